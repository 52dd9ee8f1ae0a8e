"""stop: a node leaves in an orderly way, by SIGTERM: a broker hands its leaderships over first, and writes its snapshots."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from harness.configuration import Frozen
from harness.protocols import Capability, Effect, NodeState, Scene, Undo
from nemesis.effects import observe, watch_state
from nemesis.targets import TargetMissing


class StopParameters(Frozen):
    """`timeout_s`: how long a node may take; a broker that cannot move its leaders tries for some seconds
    (controlled.shutdown.max.retries)."""

    timeout_s: float = Field(default=30.0, gt=0, le=600)


class Stop:
    """SIGTERM. The effect is that the process is gone; NotReady if it stays: a paused node cannot shut down."""

    name = "stop"
    needs = frozenset({Capability.STOP})
    parameters_model = StopParameters
    role_parameters: frozenset[str] = frozenset()

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        """Start each again. TargetMissing if one does not run: it could not shut down."""
        for node in scene.targets:
            state = node.state()
            if state is not NodeState.RUNNING:
                raise TargetMissing(f"{node.name} cannot be shut down: its process is {state}.")
        return [Undo(action="start", node=node.name) for node in scene.targets]

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        for node in scene.targets:
            node.stop(timeout_s=parameters["timeout_s"])

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        return observe(
            [watch_state(node, NodeState.STOPPED, seen="the process is gone") for node in scene.targets],
            clock=scene.clock,
        )
