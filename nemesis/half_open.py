"""half-open: a node is gone without a word, as if its power or its cable were pulled: no FIN, no RST. Whoever had a
connection to it keeps it, sends into nothing, and learns of it by timeouts only."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.configuration import Frozen
from harness.errors import HarnessFailed
from harness.impairments import CLIENTS, ClientCut, Vanish
from harness.protocols import Capability, Effect, Node, NodeState, Scene, Undo
from harness.schema import Tristate
from nemesis.effects import observe, watch_state
from nemesis.targets import TargetMissing


class HalfOpenParameters(Frozen):
    """`silent`: while it is gone nothing answers in its place; else its machine is there again at once, without the process,
    and answers what is sent on old connections with an RST."""

    silent: bool = True


class HalfOpen:
    """Cut off from everybody, clients too; killed; its connections forgotten by its kernel; if not `silent`, joined again."""

    name = "half-open"
    needs = frozenset({Capability.KILL, Capability.BLOCK, Capability.CUT_CLIENTS, Capability.RESET})
    parameters_model = HalfOpenParameters
    role_parameters: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self._done: dict[str, str] = {}

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        undos = []
        for node in scene.targets:
            if node.state() is NodeState.STOPPED:
                raise TargetMissing(f"{node.name} cannot vanish: it has no process now.")
            undos.append(Undo(action="start", node=node.name))
            undos += [Undo.of("repair", node.name, CLIENTS, **way.model_dump(mode="json")) for way in _client_cuts()]
            for other in _others(scene, node):
                undos += [
                    Undo(action="unblock", node=node.name, peer=other.name),
                    Undo(action="unblock", node=other.name, peer=node.name),
                ]
        return undos

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        """HarnessFailed if everybody was told of its end, or if it could not be told apart from an ordinary one."""
        for node in scene.targets:
            for other in _others(scene, node):
                node.block(other)
                other.block(node)
            for way in _client_cuts():
                node.impair(way)
            self._done[node.name] = node.harm(Vanish())
            if not parameters["silent"]:
                self._join_again(scene, node)

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        watches = [watch_state(node, NodeState.STOPPED, seen=self._done.get(node.name, "")) for node in scene.targets]
        return [
            effect
            if effect.detail
            else effect.model_copy(update={"effect": Tristate.UNKNOWN, "detail": "nobody looked at its connections"})
            for effect in observe(watches, clock=scene.clock)
        ]

    def _join_again(self, scene: Scene, node: Node) -> None:
        for way in _client_cuts():
            node.repair(way)
        for other in _others(scene, node):
            node.unblock(other)
            other.unblock(node)
        if node.state() is not NodeState.STOPPED:
            raise HarnessFailed(f"{node.name} runs, although it was made to vanish.")


def _client_cuts() -> tuple[ClientCut, ClientCut]:
    return ClientCut(way="to-node"), ClientCut(way="from-node")


def _others(scene: Scene, node: Node) -> list[Node]:
    return [other for other in scene.cluster.nodes if other.roles and other.name != node.name]
