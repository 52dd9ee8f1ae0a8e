"""The fault of single messages: a proxy that understands Kafka's protocol holds, loses or alters those that a step means."""

from collections.abc import Sequence
from functools import partial

from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.config.impairments import CLIENTS, Impairment, MessageRule
from prozess.harness.config.messages.match import HoldMessage, MessageAction, MessageMatch
from prozess.harness.errors import TargetMissing
from prozess.harness.interfaces import Capability, FaultContext, Node
from prozess.harness.plan.schedule import MESSAGE_FAULT
from prozess.harness.values import Frozen
from prozess.nemesis.faults import ImpairingFault
from prozess.nemesis.links import Peer, names_of


class MessageParameters(Frozen):
    """`match`: which messages are meant. `action`: what is done to them. `others`: who opens the connections to the
    targets, on which these messages are."""

    match: MessageMatch
    """Which messages: `{ api = "Produce", direction = "answer", partition = 0, nth = 2 }`."""
    action: MessageAction
    """What is done to them: `{ do = "lose" }`, and so on."""
    others: Peer = CLIENTS
    """The nodes that open the connections to the targets. A request goes from the others to the targets, an answer back."""


class AlterMessages(ImpairingFault[MessageParameters]):
    """Single messages are held, lost, swapped, repeated, answered with an error, or cut off: those that a match means, by
    API, direction, client, partition, group, transaction or error code.

    A proxy that understands the frames of Kafka's protocol is in all links of the trial, and does this from when the fault
    strikes until it is healed. It may wait for long until a message matches. Therefore the effect is what the proxy's own
    journal says when the fault is healed: without a match it had none.
    """

    name = MESSAGE_FAULT
    nature = FaultNature(cuts=True)
    needs = frozenset({Capability.MESSAGES})
    parameters_model = MessageParameters
    role_parameters = frozenset({"others"})
    proven_at_the_end = True
    observe_s = 1.0
    """The proxy's journal is looked at when the fault is healed: then it has everything."""

    def __init__(self) -> None:
        self._rules: Sequence[tuple[Node, MessageRule]] | None = None

    def impairments(self, context: FaultContext, parameters: MessageParameters) -> Sequence[tuple[Node, Impairment]]:
        """Returns (node, rule) for each link. The brokers are asked for ids of topics only when the fault is planned: it is
        proven much later, when they may not answer. TargetMissing if the plan has not what the match names."""
        if self._rules is None:
            self._rules = self._made(context, parameters)
        return self._rules

    def _made(self, context: FaultContext, parameters: MessageParameters) -> Sequence[tuple[Node, MessageRule]]:
        action = parameters.action
        until = action.until if isinstance(action, HoldMessage) else None
        for match in (parameters.match, until):
            if match is not None and (why := context.names.missing(match)) is not None:
                raise TargetMissing(f"{why}.")
        ids_of = context.admin.topic_ids
        rule = partial(
            MessageRule,
            rule=context.step,
            meant=context.names.meant(parameters.match, ids_of),
            action=action,
            until=context.names.meant(until, ids_of) if until is not None else None,
        )
        return [
            (node, rule(peer=other))
            for node in context.targets
            for other in names_of(parameters.others)
            if other != node.name
        ]
