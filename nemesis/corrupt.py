"""corrupt: bytes of a file of a partition are changed while its broker is down.

A broker that was killed checks the segments that may not be on the disk, cuts the log where a batch is broken, and copies
the rest from the leader; it rebuilds an index that is not sane (LogSegment.recover). What it does to a file that it takes
for whole is another matter.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from harness.configuration import Frozen
from harness.impairments import Corrupt, Harm
from harness.protocols import Capability, Node, Scene
from nemesis.harm import HarmingFault
from nemesis.targets import TargetMissing


class CorruptParameters(Frozen):
    """`file`: the newest segment, or its offset index, or the broker's recovery-point-offset-checkpoint. `partition`: of
    which partition (its number in the plan). `bytes`: how many are changed, at places that `seed` draws (None: the
    plan's)."""

    file: Literal["segment", "index", "checkpoint"] = "segment"
    partition: int = Field(default=0, ge=0)
    bytes: int = Field(default=8, ge=1, le=65_536)
    seed: int | str | None = None


class CorruptFile(HarmingFault):
    """The broker is killed first, if it runs, and started by healing."""

    name = "corrupt"
    needs = frozenset({Capability.KILL, Capability.CHANGE_FILES})
    parameters_model = CorruptParameters

    def harm(self, scene: Scene, node: Node, parameters: Mapping[str, Any]) -> Harm:
        if parameters["partition"] not in scene.partitions:
            raise TargetMissing(f"there is no partition {parameters['partition']} in the plan.")
        topic, number = scene.partitions[parameters["partition"]]
        return Corrupt(
            file=parameters["file"],
            topic=topic,
            number=number,
            bytes=parameters["bytes"],
            seed=f"{parameters['seed']} {node.name}",
        )
