"""wipe: a broker's data directory is lost while the broker is down, and replaced by an empty one, formatted as an operator
would: the same cluster and node, a new directory id (KIP-858).

A broker without meta.properties does not start in KRaft mode ("No readable meta.properties files found"); with it, it starts
with nothing and copies everything from the leaders. A controller's data is the cluster itself and is not wiped here.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from harness.impairments import Harm, Wipe
from harness.protocols import Capability, Node, Scene
from nemesis.harm import HarmingFault
from nemesis.parameters import NoParameters
from nemesis.targets import TargetMissing

KEPT = "the metadata log is not wiped, it is the cluster itself"


class WipeDirectory(HarmingFault):
    """The broker is killed first, if it runs, and started by healing."""

    name = "wipe"
    needs = frozenset({Capability.KILL, Capability.CHANGE_FILES})
    parameters_model = NoParameters

    @staticmethod
    def refusal(targets: Sequence[str], nodes: Collection[str]) -> str | None:
        """Why it cannot be with these nodes; None = it can."""
        keepers = [name for name in nodes if name.startswith(("controller", "zookeeper"))]
        return None if keepers or not nodes else f"brokers are controllers here: {KEPT}"

    def harm(self, scene: Scene, node: Node, parameters: Mapping[str, Any]) -> Harm:
        return Wipe()

    def check(self, scene: Scene, node: Node) -> None:
        if "controller" in node.roles:
            raise TargetMissing(f"{node.name} is a controller: {KEPT}.")
