"""The fault of methods: calls of a server's own methods are delayed, paused or end with an exception, by Byteman."""

from collections.abc import Collection, Sequence

from pydantic import model_validator

from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.config.impairments import Impairment, MethodRule
from prozess.harness.config.methods import WAKING_CLASS, MethodAction, MethodMatch, PauseCall, ThrowFromCall
from prozess.harness.errors import TargetMissing
from prozess.harness.interfaces import Capability, FaultContext, Node, NodeState, Undo
from prozess.harness.plan.schedule import CLIENT_ROLES, METHOD_FAULT, parse_target
from prozess.harness.values import Frozen
from prozess.nemesis.faults import ImpairingFault


class MethodParameters(Frozen):
    """`match`: which calls are meant. `action`: what is done to them."""

    match: MethodMatch
    """Which calls: `{ method = "kafka.cluster.Partition#appendRecordsToLeader", at = "exit", nth = 2 }`."""
    action: MethodAction
    """What is done to them: `{ do = "pause" }`, and so on."""

    @model_validator(mode="after")
    def _can_end(self) -> "MethodParameters":
        if not isinstance(self.action, ThrowFromCall) and self.match.name.class_name == WAKING_CLASS:
            raise ValueError(
                f"calls that stand still are woken by calls of {WAKING_CLASS}, which must not stand still itself"
            )
        return self


class ChangeMethods(ImpairingFault[MethodParameters]):
    """Calls of a server's own methods are delayed, paused, or end with an exception: those that a match means, by method,
    arguments, partition and number.

    A broker may end over an exception. Therefore where one is thrown, healing starts the nodes again.

    Byteman is an agent in the server's JVM from its start on, if a step of the plan needs it. The fault may wait for long
    until the method is called. Therefore the effect is what the rule itself has counted when the fault is healed: without
    a call it had none. A server that was killed meanwhile has the rule again from its start on, and the rule goes on
    counting."""

    name = METHOD_FAULT
    # A node that waits for a stalled thread hears nothing; a server may end over an exception.
    nature = FaultNature(stops=True, freezes=True, cuts=True)
    needs = frozenset({Capability.METHODS})
    parameters_model = MethodParameters
    proven_at_the_end = True
    observe_s = 1.0
    """The count is looked at when the fault is healed: then it has everything."""

    @staticmethod
    def refusal(targets: Sequence[str], nodes: Collection[str]) -> str | None:
        """Returns which target has no methods of Kafka's servers, or None if all have."""
        for text in targets:
            target = parse_target(text)
            named = (target.node or "").startswith("zookeeper") or target.of == "zookeepers"
            if target.role in ("zookeepers", "zookeeper-leader") or named:
                return f"{text} is no server of Kafka, and only their methods can be named"
            if target.role in CLIENT_ROLES:
                return f"{text} is a client, and only methods of Kafka's servers can be named"
        return None

    def impairments(self, context: FaultContext, parameters: MethodParameters) -> Sequence[tuple[Node, Impairment]]:
        """Returns (node, rule) for each target. TargetMissing if the plan has no such partition."""
        match, action = parameters.match, parameters.action
        until = action.until if isinstance(action, PauseCall) else None
        partitions = context.names.partitions
        for calls in (match, until):
            if calls is not None and calls.partition is not None and calls.partition not in partitions:
                raise TargetMissing(f"partition = {calls.partition}: the plan has partitions 0…{len(partitions) - 1}.")
        rule = MethodRule.of(context.step, match, action, partitions)
        return [(node, rule) for node in context.targets]

    def undos(self, context: FaultContext, parameters: MethodParameters) -> Sequence[Undo]:
        """Plans to take the rules away and, where an exception is thrown, to start the node again. TargetMissing if a node
        does not run."""
        for node in context.targets:
            if (state := node.state()) is not NodeState.RUNNING:
                raise TargetMissing(f"no method of {node.name} is called: its process is {state}.")
        throws = isinstance(parameters.action, ThrowFromCall)
        starts = [Undo(action="start", node=node.name) for node in context.targets if throws]
        return [*starts, *super().undos(context, parameters)]
