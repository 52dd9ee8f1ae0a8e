"""disk-full: the file system of a node's data has no room left.

A broker whose log directory fails takes it offline, and ends when it was the only one (KIP-112): so healing frees the room
and starts the node again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from harness.configuration import Frozen
from harness.impairments import FullDisk, Impairment
from harness.protocols import Capability, Node, NodeState, Scene, Undo
from nemesis.impair import ImpairingFault
from nemesis.targets import TargetMissing


class FullDiskParameters(Frozen):
    """`left_bytes`: what stays free."""

    left_bytes: int = Field(default=0, ge=0, le=2**40)


class FillDisk(ImpairingFault):
    """The effect is that a write there really gets ENOSPC."""

    name = "disk-full"
    needs = frozenset({Capability.FILL_DISK})
    parameters_model = FullDiskParameters

    def impairments(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[tuple[Node, Impairment]]:
        return [(node, FullDisk(left_bytes=parameters["left_bytes"])) for node in scene.targets]

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        """The newest first: room, and then the node. TargetMissing if one does not run: others must not start it."""
        return [*start_again(scene), *super().undos(scene, parameters)]


def start_again(scene: Scene) -> list[Undo]:
    """Of nodes that may end by themselves. TargetMissing if one is down already: it must not be started by this fault."""
    for node in scene.targets:
        if node.state() is NodeState.STOPPED:
            raise TargetMissing(f"the disk of {node.name} is not at work: it has no process now.")
    return [Undo(action="start", node=node.name) for node in scene.targets]
