"""pause: the process of a node stands still, by SIGSTOP; its connections stay open and its socket buffers go on filling.

A pause longer than `broker.session.timeout.ms` (KRaft, default 9 s, KIP-631) gets a broker fenced, one longer than
`replica.lag.time.max.ms` (default 30 s) takes a follower out of the ISR. That is Kafka's answer, not this fault's to judge.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.clock import Clock
from harness.protocols import Capability, Cluster, Effect, Node, NodeState, Undo
from nemesis.effects import observe, watch_state
from nemesis.parameters import NoParameters
from nemesis.targets import TargetMissing


class Pause:
    """SIGSTOP; undone by SIGCONT. The effect is that the process is observed stopped."""

    name = "pause"
    needs = frozenset({Capability.PAUSE})
    parameters_model = NoParameters
    role_parameters: frozenset[str] = frozenset()

    def undos(self, targets: Sequence[Node], parameters: Mapping[str, Any], cluster: Cluster) -> Sequence[Undo]:
        """Let each go on. TargetMissing if one is not running: there is nothing that could be made to stand still."""
        for node in targets:
            if (state := node.state()) is not NodeState.RUNNING:
                raise TargetMissing(f"{node.name} cannot be paused: it is {state} already.")
        return [Undo(action="resume", node=node.name) for node in targets]

    def apply(self, targets: Sequence[Node], parameters: Mapping[str, Any], cluster: Cluster, clock: Clock) -> None:
        for node in targets:
            node.pause()

    def verify(
        self, targets: Sequence[Node], parameters: Mapping[str, Any], cluster: Cluster, clock: Clock
    ) -> Sequence[Effect]:
        return observe(
            [watch_state(node, NodeState.PAUSED, seen="the process stands still") for node in targets], clock=clock
        )
