"""disk-slow: what a node syncs to its disk passes at a limited rate.

Most of what Kafka writes it only hands to the page cache, and never waits for: topics with flush.messages=1 feel a slow disk
in every acknowledgement, others only where something is synced (segment rolls, checkpoints, the metadata log).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from harness.configuration import Frozen
from harness.impairments import Impairment, SlowDisk
from harness.protocols import Capability, Node, NodeState, Scene
from nemesis.impair import ImpairingFault
from nemesis.targets import TargetMissing


class SlowDiskParameters(Frozen):
    """`bytes_per_s`: what the disk takes."""

    bytes_per_s: int = Field(default=65_536, ge=4096, le=10_000_000)


class SlowDownDisk(ImpairingFault):
    """The effect is that a synced write takes as long as it should at that rate."""

    name = "disk-slow"
    needs = frozenset({Capability.SLOW_DISK})
    parameters_model = SlowDiskParameters
    observe_s = 20.0

    def impairments(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[tuple[Node, Impairment]]:
        for node in scene.targets:
            if node.state() is NodeState.STOPPED:
                raise TargetMissing(f"the disk of {node.name} is not at work: it has no process now.")
        return [(node, SlowDisk(bytes_per_s=parameters["bytes_per_s"])) for node in scene.targets]
