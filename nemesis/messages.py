"""The fault of single messages: a proxy that understands Kafka's protocol holds, loses or alters those that a step means."""

from collections.abc import Mapping, Sequence
from functools import partial
from uuid import UUID

from prozess.harness.config.configuration import Frozen
from prozess.harness.config.impairments import CLIENTS, MessageRule
from prozess.harness.config.messages.looked_up import MeantMessages
from prozess.harness.config.messages.match import HoldMessage, MessageAction, MessageMatch
from prozess.harness.errors import TargetMissing
from prozess.harness.interfaces import Capability, Effect, Fault, FaultContext, Node, Undo
from prozess.harness.plan.schedule import MESSAGE_FAULT
from prozess.nemesis.faults import Watch, observe
from prozess.nemesis.links import Peer, names_of

LOOK_S = 1.0
"""The proxy's journal is looked at when the fault is healed: then it has everything."""


class MessageParameters(Frozen):
    """`match`: which messages are meant. `action`: what is done to them. `others`: who opens the connections to the
    targets, on which these messages are."""

    match: MessageMatch
    """Which messages: `{ api = "Produce", direction = "answer", partition = 0, nth = 2 }`."""
    action: MessageAction
    """What is done to them: `{ do = "lose" }`, and so on."""
    others: Peer = CLIENTS
    """Who opens the connections to the targets. A request goes from the others to the targets, an answer back."""


class AlterMessages(Fault[MessageParameters]):
    """Single messages are held, lost, swapped, repeated, answered with an error, or cut off: those that a match means, by
    API, direction, client, partition, group, transaction or error code.

    A proxy that understands the frames of Kafka's protocol is in all links of the trial, and does this from when the fault
    strikes until it is healed. It may wait for long until a message matches. So the effect is what the proxy's own journal
    says when the fault is healed: without a match it had none.
    """

    name = MESSAGE_FAULT
    needs = frozenset({Capability.MESSAGES})
    parameters_model = MessageParameters
    role_parameters = frozenset({"others"})
    proven_at_the_end = True

    def rules(self, scene: FaultContext, parameters: MessageParameters) -> Sequence[tuple[Node, MessageRule]]:
        """Returns (node, rule) for each link. TargetMissing if the plan has not what the match names."""
        action = parameters.action
        until = action.until if isinstance(action, HoldMessage) else None
        matches = [parameters.match, *([until] if until is not None else [])]
        for match in matches:
            if (why := scene.names.missing(match)) is not None:
                raise TargetMissing(f"{why}.")
        named = [scene.names.of(match) for match in matches]
        topics = {match.topic for match in named if match.topic is not None}
        ids = scene.admin.topic_ids(topics) if topics else {}
        meant = [_meant(match, ids) for match in named]
        rule = partial(
            MessageRule,
            rule=scene.step,
            meant=meant[0],
            action=action,
            until=meant[1] if until is not None else None,
        )
        return [
            (node, rule(peer=other))
            for node in scene.targets
            for other in names_of(parameters.others)
            if other != node.name
        ]

    def undos(self, scene: FaultContext, parameters: MessageParameters) -> Sequence[Undo]:
        """Each link's rule is disarmed."""
        self._rules = self.rules(scene, parameters)
        return [
            Undo.of("repair", node.name, rule.peer, **rule.model_dump(mode="json", exclude_none=True))
            for node, rule in self._rules
        ]

    def apply(self, scene: FaultContext, parameters: MessageParameters) -> None:
        """Arms the rule on each link."""
        for node, rule in self._rules:
            node.impair(rule)

    def verify(self, scene: FaultContext, parameters: MessageParameters) -> Sequence[Effect]:
        """Looks at the proxy's journal."""
        watches = [Watch(node.name, rule.peer, partial(node.impaired, rule)) for node, rule in self._rules]
        return observe(watches, clock=scene.clock, timeout_s=LOOK_S)


def _meant(match: MessageMatch, ids: Mapping[str, UUID]) -> MeantMessages:
    found = ids.get(match.topic) if match.topic is not None else None
    return MeantMessages(match=match, topic_id=str(found) if found is not None else None)
