"""duplicate-member: a second process with the group.instance.id of a static member that lives. The classic protocol fences
the old one (KIP-345: FENCED_INSTANCE_ID); the consumer protocol refuses the new one (KIP-848: UNRELEASED_INSTANCE_ID)."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import PositiveFloat

from harness.clock import Clock
from harness.configuration import Frozen
from harness.protocols import Capability, ClientNode, Cluster, Effect, Node, NodeState, Undo
from harness.schema import Tristate
from nemesis.client_places import places_of, starts
from nemesis.effects import Seen, Watch, observe


class DuplicateParameters(Frozen):
    """`timeout_s`: for Kafka to end one of the two: a heartbeat of the older one, or the first of the newer."""

    timeout_s: PositiveFloat = 30.0


class DuplicateMember:
    """The effect is that one of the two has ended and the other is at work. Which one is seen, and recorded."""

    name = "duplicate-member"
    needs: frozenset[Capability] = frozenset()
    of_clients = True
    parameters_model = DuplicateParameters
    role_parameters: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self._before: dict[str, int | None] = {}

    def undos(self, targets: Sequence[Node], parameters: Mapping[str, Any], cluster: Cluster) -> Sequence[Undo]:
        """Start one if none is left."""
        return starts(places_of(targets, fault=self.name))

    def apply(self, targets: Sequence[Node], parameters: Mapping[str, Any], cluster: Cluster, clock: Clock) -> None:
        for place in places_of(targets, fault=self.name):
            self._before[place.name] = place.client
            place.duplicate()

    def verify(
        self, targets: Sequence[Node], parameters: Mapping[str, Any], cluster: Cluster, clock: Clock
    ) -> Sequence[Effect]:
        watches = [Watch(p.name, None, lambda p=p: self._one_left(p)) for p in targets]  # type: ignore[misc]
        return observe(watches, clock=clock, timeout_s=parameters["timeout_s"])

    def _one_left(self, place: ClientNode) -> Seen:
        left = place.clients_alive
        if len(left) == 2:
            return Tristate.NO, "both live"
        if not left or place.state() is not NodeState.RUNNING or not place.at_work():
            return Tristate.UNKNOWN, f"{len(left)} of the two live, and nobody was seen at work"
        who = "the newcomer was refused" if left[0] == self._before[place.name] else "the older one was fenced"
        return Tristate.YES, f"{who}; client {left[0]} is at work"
