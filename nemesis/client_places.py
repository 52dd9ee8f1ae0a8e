"""What faults of clients share: their targets, and the proof that somebody new has a place and does its work."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from harness.clock import Clock, wait_until
from harness.protocols import Capability, ClientNode, Effect, Node, NodeState, Scene, Undo
from harness.schema import Tristate
from nemesis.effects import Seen, Watch, observe
from nemesis.targets import TargetMissing, is_client


class ClientFault:
    """What a fault is whose targets are places of clients; `name`, `parameters_model`, `apply` and `verify` are its own."""

    name: str
    needs: frozenset[Capability] = frozenset()
    of_clients = True
    role_parameters: frozenset[str] = frozenset()

    ends_itself: bool = False

    def __init__(self) -> None:
        self._before: dict[str, int | None] = {}
        """Place → who had it."""

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        """Whoever is gone when it is healed is started again."""
        return [Undo(action="start", node=place.name) for place in self._places(scene.targets)]

    def _places(self, targets: Sequence[Node]) -> list[ClientNode]:
        return places_of(targets, fault=self.name)


def places_of(targets: Sequence[Node], *, fault: str) -> list[ClientNode]:
    """The targets, all of which are places of clients that run now. TargetMissing otherwise."""
    places = []
    for node in targets:
        if not is_client(node):
            raise TargetMissing(f"{fault} is for clients, and {node.name} is a node of the cluster.")
        if node.state() is not NodeState.RUNNING:
            raise TargetMissing(f"{node.name} cannot take part in {fault}: its process is {node.state()}.")
        places.append(node)
    return places


def await_work(places: Sequence[ClientNode], *, clock: Clock, timeout_s: float) -> None:
    """Until each has been seen at its work; NotReady, naming those that have not, after the limit."""
    idle = [place.name for place in places]

    def all_at_work() -> bool:
        idle[:] = [place.name for place in places if not place.at_work()]
        return not idle

    wait_until(
        all_at_work,
        awaited="restarted clients to be at work again",
        timeout_s=timeout_s,
        clock=clock,
        last_seen=lambda: f"not yet: {', '.join(idle)}",
    )


def verify_successors(places: Sequence[ClientNode], before: dict[str, int | None], clock: Clock) -> list[Effect]:
    """Has each place somebody else than `before`, who was seen at work?"""
    return observe([Watch(p.name, None, partial(_successor, p, before[p.name])) for p in places], clock=clock)


def _successor(place: ClientNode, before: int | None) -> Seen:
    if place.client == before:
        return Tristate.NO, "nobody new has its place"
    if place.state() is not NodeState.RUNNING:
        return Tristate.NO, f"the new client is {place.state()}"
    if not place.at_work():
        return Tristate.UNKNOWN, "the new client was not seen at work"
    return Tristate.YES, f"client {place.client} is at work in its place"
