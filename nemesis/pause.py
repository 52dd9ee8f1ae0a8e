"""pause: the process of a node stands still, by SIGSTOP; its connections stay open and its socket buffers go on filling.

A pause longer than `broker.session.timeout.ms` (KRaft, default 9 s, KIP-631) gets a broker fenced, one longer than
`replica.lag.time.max.ms` (default 30 s) takes a follower out of the ISR. That is Kafka's answer, not this fault's to judge.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.protocols import Capability, Effect, NodeState, Scene, Undo
from nemesis.effects import observe, watch_state
from nemesis.parameters import NoParameters
from nemesis.targets import TargetMissing


class Pause:
    """SIGSTOP; undone by SIGCONT. The effect is that the process is observed stopped."""

    name = "pause"
    needs = frozenset({Capability.PAUSE})
    parameters_model = NoParameters
    role_parameters: frozenset[str] = frozenset()

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        """Let each go on. TargetMissing if one is not running: there is nothing that could be made to stand still."""
        for node in scene.targets:
            if (state := node.state()) is not NodeState.RUNNING:
                raise TargetMissing(f"{node.name} cannot be paused: it is {state} already.")
        return [Undo(action="resume", node=node.name) for node in scene.targets]

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        for node in scene.targets:
            node.pause()

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        return observe(
            [watch_state(node, NodeState.PAUSED, seen="the process stands still") for node in scene.targets],
            clock=scene.clock,
        )
