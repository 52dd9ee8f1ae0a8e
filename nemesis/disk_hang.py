"""disk-hang: the file system of a node's data stands still; whoever writes waits, and cannot even be killed.

Kafka does not notice by itself: a broker whose disk hangs goes on answering from memory until a thread that must write is
asked; its heartbeats come from another one. What it does then is measured in docs/faults.md.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.impairments import FrozenDisk, Impairment
from harness.protocols import Capability, Node, NodeState, Scene
from nemesis.impair import ImpairingFault
from nemesis.parameters import NoParameters
from nemesis.targets import TargetMissing


class HangDisk(ImpairingFault):
    """fsfreeze(8). The effect is that a write waits."""

    name = "disk-hang"
    needs = frozenset({Capability.FREEZE_DISK})
    parameters_model = NoParameters

    def impairments(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[tuple[Node, Impairment]]:
        for node in scene.targets:
            if node.state() is NodeState.STOPPED:
                raise TargetMissing(f"the disk of {node.name} is not at work: it has no process now.")
        return [(node, FrozenDisk()) for node in scene.targets]
