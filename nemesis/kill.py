"""kill: the process of a node ends at once, by SIGKILL. Its files stay as the kernel has them: nothing written is lost."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.protocols import Capability, Effect, NodeState, Scene, Undo
from nemesis.effects import observe, watch_state
from nemesis.parameters import NoParameters
from nemesis.targets import TargetMissing


class Kill:
    """SIGKILL. The effect is that the process is gone; what Kafka makes of it (fencing, a new leader) is not this fault's."""

    name = "kill"
    needs = frozenset({Capability.KILL})
    parameters_model = NoParameters
    role_parameters: frozenset[str] = frozenset()

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        """Start each again. TargetMissing if one has no process: another fault's node must not be started by this one."""
        for node in scene.targets:
            if node.state() is NodeState.STOPPED:
                raise TargetMissing(f"{node.name} cannot be killed: it has no process now.")
        return [Undo(action="start", node=node.name) for node in scene.targets]

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        for node in scene.targets:
            node.kill()

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        return observe(
            [watch_state(node, NodeState.STOPPED, seen="the process is gone") for node in scene.targets],
            clock=scene.clock,
        )
