"""disk-error: the file system of a node's data fails: read-only after an error, or every access an I/O error.

A broker whose log directory fails takes it offline, and ends when it was the only one (KIP-112). Healing does what an
operator does: the node is down, the file system is checked and mounted again, the node started. What had not been written
back when the disk failed is gone.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from harness.configuration import Frozen
from harness.impairments import FailedDisk, Impairment
from harness.protocols import Capability, Node, Scene, Undo
from nemesis.disk_full import start_again
from nemesis.impair import ImpairingFault


class DiskErrorParameters(Frozen):
    """`how`: read-only, or io-error."""

    how: Literal["read-only", "io-error"] = "io-error"


class FailDisk(ImpairingFault):
    """The effect is that a write gets EROFS, or EIO."""

    name = "disk-error"
    needs = frozenset({Capability.FAIL_DISK})
    parameters_model = DiskErrorParameters

    def impairments(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[tuple[Node, Impairment]]:
        return [(node, FailedDisk(how=parameters["how"])) for node in scene.targets]

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        """The newest first: the disk, and then the node."""
        return [*start_again(scene), *super().undos(scene, parameters)]
