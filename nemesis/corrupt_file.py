"""corrupt-file: bytes of a file of a partition are changed while its broker is down.

A broker that was killed checks the segments that may not be on the disk, cuts the log where a batch is broken, and copies
the rest from the leader; it rebuilds an index that is not sane (LogSegment.recover). What it does to a file that it takes
for whole is another matter.

A broker that cannot read its recovery-point-offset-checkpoint says that it resets it to 0, and goes on recovering; but the
failure was also told to the LogDirFailureChannel, which takes the directory offline, and the broker ends: at every start,
until somebody removes the file (seen with 4.3.1). So with that file the broker is started at once, and healing removes it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from harness.configuration import Frozen
from harness.impairments import Corrupt, Harm
from harness.protocols import Capability, Node, Scene, Undo
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
    """The broker is killed first, if it runs, and started by healing (with a broken checkpoint, at once)."""

    name = "corrupt-file"
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

    def starts(self, parameters: Mapping[str, Any]) -> bool:
        return bool(parameters["file"] == "checkpoint")

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        """The newest first: the file, and then the node."""
        starts = super().undos(scene, parameters)
        if not self.starts(parameters):
            return starts
        return [*starts, *(Undo(action="drop-checkpoint", node=node.name) for node in scene.targets)]
