"""move-controller: the active controller goes, and another one leads the metadata quorum.

Stopped in order it resigns (KIP-595, EndQuorumEpoch), killed it is missed after controller.quorum.fetch.timeout.ms.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from pydantic import PositiveFloat

from harness.configuration import Frozen
from harness.protocols import Capability, Effect, NodeState, Scene, Undo
from harness.schema import Tristate
from nemesis.effects import Seen, Watch, observe
from nemesis.targets import TargetMissing

QUORUM_MIN = 3
"""Fewer controllers have no majority without the active one."""


class MoveControllerParameters(Frozen):
    """`how`: "stop" in order (it resigns), or "kill". `timeout_s`: until it is gone, and again until another one leads."""

    how: Literal["stop", "kill"] = "kill"
    timeout_s: PositiveFloat = 30.0


class MoveController:
    """The effect is that DescribeQuorum names another leader. Undone by starting the old one, which then follows."""

    name = "move-controller"
    needs = frozenset({Capability.KILL, Capability.STOP})
    parameters_model = MoveControllerParameters
    role_parameters: frozenset[str] = frozenset()

    @staticmethod
    def refusal(targets: Sequence[str], nodes: Collection[str]) -> str | None:
        """Why it cannot be with these targets and nodes; None = it can."""
        if len(targets) != 1 or not targets[0].startswith(("active-controller", "node:")):
            return (
                f'it moves the active controller, and nobody else: targets = ["active-controller"], not {list(targets)}'
            )
        controllers = [name for name in nodes if name.startswith("controller")] or list(nodes)
        if len(controllers) < QUORUM_MIN:
            return f"it needs {QUORUM_MIN} controllers, and there are {len(controllers)}; set variant.controllers"
        return None

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        (node,) = scene.targets
        if (state := node.state()) is not NodeState.RUNNING:
            raise TargetMissing(f"{node.name} cannot resign: its process is {state}.")
        if (active := scene.admin.active_controller()) != node.node_id:
            raise TargetMissing(f"{node.name} is not the active controller, {active} is.")
        return [Undo(action="start", node=node.name)]

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        (node,) = scene.targets
        if parameters["how"] == "kill":
            node.kill()
        else:
            node.stop(timeout_s=parameters["timeout_s"])

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        (node,) = scene.targets

        def probe() -> Seen:
            now = scene.admin.active_controller()
            return Tristate(int(now not in (None, node.node_id))), f"controller {now} is active, it was {node.node_id}"

        return observe([Watch(node.name, None, probe)], clock=scene.clock, timeout_s=parameters["timeout_s"])
