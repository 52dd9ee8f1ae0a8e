"""power-loss: nodes are gone at once, and so is everything that they had not made the disk keep (fsync).

Kafka acknowledges from memory, of as many machines as the ISR has: it leaves flushing to the operating system unless
`flush.messages` says otherwise (Kafka documentation, "Application vs. OS Flush Management"). So one node that loses its power
takes nothing from the others; all of them at once take what was acknowledged and not yet written back.
"""

from collections.abc import Mapping
from typing import Any

from harness.impairments import Harm, PowerLoss
from harness.protocols import Capability, Node, NodeState, Scene
from nemesis.harm import HarmingFault
from nemesis.parameters import NoParameters
from nemesis.targets import TargetMissing


class LosePower(HarmingFault):
    """Every target at the same time: give several, or several roles, for a power cut of the whole room."""

    name = "power-loss"
    needs = frozenset({Capability.LOSE_POWER})
    parameters_model = NoParameters
    kills_first = False

    def harm(self, scene: Scene, node: Node, parameters: Mapping[str, Any]) -> Harm:
        return PowerLoss()

    def check(self, scene: Scene, node: Node) -> None:
        if node.state() is NodeState.STOPPED:
            raise TargetMissing(f"{node.name} cannot lose its power: it has no process now.")
