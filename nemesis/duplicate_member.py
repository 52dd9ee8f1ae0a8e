"""duplicate-member: a second process with the group.instance.id of a static member that lives. The classic protocol fences
the old one (KIP-345: FENCED_INSTANCE_ID); the consumer protocol refuses the new one (KIP-848: UNRELEASED_INSTANCE_ID)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import PositiveFloat

from harness.configuration import Frozen
from harness.protocols import ClientNode, Effect, NodeState, Scene
from harness.schema import Tristate
from nemesis.client_places import ClientFault
from nemesis.effects import Seen, Watch, observe
from nemesis.targets import is_client


class DuplicateParameters(Frozen):
    """`timeout_s`: for Kafka to end one of the two: a heartbeat of the older one, or the first of the newer."""

    timeout_s: PositiveFloat = 30.0


class DuplicateMember(ClientFault):
    """The effect is that one of the two has ended and the other is at work. Which one is seen, and recorded."""

    name = "duplicate-member"
    parameters_model = DuplicateParameters

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        for place in self._places(scene.targets):
            self._before[place.name] = place.client
            place.duplicate()

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        watches = [Watch(p.name, None, partial(self._one_left, p)) for p in scene.targets if is_client(p)]
        return observe(watches, clock=scene.clock, timeout_s=parameters["timeout_s"])

    def _one_left(self, place: ClientNode) -> Seen:
        left = place.clients_alive
        if len(left) == 2:
            return Tristate.NO, "both live"
        if not left or place.state() is not NodeState.RUNNING or not place.at_work():
            return Tristate.UNKNOWN, f"{len(left)} of the two live, and nobody was seen at work"
        who = "the newcomer was refused" if left[0] == self._before[place.name] else "the older one was fenced"
        return Tristate.YES, f"{who}; client {left[0]} is at work"
