"""The fault `reassign`: replicas are moved to other brokers, or made more or fewer, at full speed or throttled, and put
back exactly as they were (KIP-455, KIP-73)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

from pydantic import PositiveInt, model_validator

from prozess.harness.config.configuration import Limit, Variant
from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.interfaces import Effect, Fault, FaultContext, PartitionView, Undo, UndoAction
from prozess.harness.schema import Tristate
from prozess.harness.values import Frozen
from prozess.nemesis.faults import Observation, Watch, observe
from prozess.nemesis.kafka.configurations import changes_back
from prozess.nemesis.kafka.partitions import (
    PartitionKey,
    broker_name,
    leader_of,
    named_partitions,
    newest_views,
    text_of,
)
from prozess.nemesis.kafka.readiness import until_accepted
from prozess.nemesis.roles import TargetMissing

ReassignmentKind = Literal["rotate", "move-follower", "move-leader", "grow", "shrink", "shrink-leader"]
ASK_S = 20.0
"""How long Kafka may take to accept a reassignment."""
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


class ReassignParameters(Frozen):
    """`how`: "rotate" makes the second replica the preferred one and moves nothing; "move-follower" and "move-leader"
    move that replica to a broker that has none; "grow" adds a replica; "shrink" and "shrink-leader" take away a
    follower's replica, or the leader's. `to`: instead of that, the ids of the brokers that are to have the replicas, the
    preferred leader first; a leader that is among them goes on until `elect-preferred`. `throttle_bytes_per_s`: the
    limit of replication meanwhile (KIP-73). `done`:
    true waits until it is done, false until it has begun. `timeout_s`: how long to wait."""

    how: ReassignmentKind = "rotate"
    to: tuple[PositiveInt, ...] | None = None
    throttle_bytes_per_s: PositiveInt | None = None
    done: bool = True
    timeout_s: Limit = 60.0

    @model_validator(mode="after")
    def _one_aim(self) -> "ReassignParameters":
        if self.to is not None and "how" in self.model_fields_set:
            raise ValueError(f'give how = "{self.how}" or to = {list(self.to)}, and one of the two only')
        if self.to is not None and (not self.to or len(set(self.to)) < len(self.to)):
            raise ValueError(f"to = {list(self.to)} must name at least one broker, and each once")
        return self


def reassigned(seen: PartitionView, how: ReassignmentKind, brokers: Sequence[int]) -> tuple[int, ...]:
    """Returns the brokers that are to have the replicas, preferred leader first. TargetMissing if that is impossible
    with these brokers."""
    replicas, spare = list(seen.replicas), [broker for broker in brokers if broker not in seen.replicas]
    leader = seen.leader if seen.leader in replicas else replicas[0]
    follower = next((broker for broker in reversed(replicas) if broker != leader), None)
    if how in ("move-follower", "move-leader", "grow") and not spare:
        raise TargetMissing(
            f"every running broker has a copy already ({replicas}), and {how} needs a broker that has none."
        )
    if how in ("move-follower", "shrink", "shrink-leader") and follower is None:
        raise TargetMissing(f"{how} needs two copies, and the partition has only one, on broker {leader}.")
    if how == "rotate":
        return (*replicas[1:], replicas[0])
    if how == "grow":
        return (*replicas, spare[0])
    gone = leader if how in ("move-leader", "shrink-leader") else follower
    if how in ("shrink", "shrink-leader"):
        return tuple(broker for broker in replicas if broker != gone)
    return tuple(spare[0] if broker == gone else broker for broker in replicas)


class Reassign(Fault[ReassignParameters]):
    """Moves replicas to other brokers, or makes them more or fewer (KIP-455). A target is a partition, or a coordinator:
    the partition of the internal topic that it leads. Healing puts the replicas exactly where they were.

    The effect is that Kafka has the replicas where they were asked to be, and moves nothing any more.
    """

    name = "reassign"
    nature = FaultNature(moves=True)
    parameters_model = ReassignParameters
    of_partitions = True

    def __init__(self) -> None:
        self._wanted: dict[PartitionKey, tuple[int, ...]] = {}
        self._nodes: dict[PartitionKey, str] = {}

    def undos(self, context: FaultContext, parameters: ReassignParameters) -> Sequence[Undo]:
        """Plans to put the replicas back where they are now. TargetMissing if one is being moved already, because its
        way back would not be known."""
        named, moving = named_partitions(context), context.admin.reassignments()
        if busy := sorted(named.keys() & moving.keys()):
            raise TargetMissing(f"{text_of(busy[0])} is being reassigned already.")
        brokers = sorted(context.admin.living_brokers(self._anyone(context)) or ())
        if absent := sorted(set(parameters.to or ()) - set(brokers)):
            raise TargetMissing(f"broker {absent[0]} does not live now, and cannot be given a copy. Living: {brokers}.")
        self._wanted = {
            key: parameters.to if parameters.to is not None else reassigned(seen, parameters.how, brokers)
            for key, seen in named.items()
        }
        self._nodes = {key: broker_name(context, leader_of(seen)) for key, seen in named.items()}
        back = [
            Undo.of("reassign", self._nodes[key], topic=key[0], number=key[1], replicas=list(seen.replicas))
            for key, seen in named.items()
        ]
        return [*back, *self._throttles(context, parameters)]

    @staticmethod
    def means_nothing(variant: Variant, parameters: ReassignParameters) -> str | None:
        """Returns which broker the variant does not have, or None if it has all."""
        wrong = [broker for broker in parameters.to or () if broker > variant.brokers]
        return f"to = {wrong[0]}: the variant has brokers 1…{variant.brokers}" if wrong else None

    @staticmethod
    def _anyone(context: FaultContext) -> int:
        return next(n.node_id for n in context.cluster.nodes if "broker" in n.roles and n.os_pid is not None)

    def _throttles(self, context: FaultContext, parameters: ReassignParameters) -> list[Undo]:
        """Plans the end of throttling last, so that it is undone first: the way back is not throttled."""
        if parameters.throttle_bytes_per_s is None:
            return []
        return [
            changes_back(context, resource, properties, node=node)
            for resource, node, properties in self._throttled(context, parameters)
        ]

    def _throttled(
        self, context: FaultContext, parameters: ReassignParameters
    ) -> list[tuple[str, str, dict[str, str]]]:
        """Returns (resource, node, properties) for each resource that is throttled."""
        rate = str(parameters.throttle_bytes_per_s)
        topics = dict.fromkeys(topic for topic, _ in self._wanted)
        first = {topic: node for (topic, _), node in reversed(self._nodes.items())}
        brokers = [n for n in context.cluster.nodes if "broker" in n.roles]
        return [
            *((f"broker:{n.node_id}", n.name, dict.fromkeys(_RATES, rate)) for n in brokers),
            *((f"topic:{topic}", first[topic], dict.fromkeys(_THROTTLED, "*")) for topic in topics),
        ]

    def apply(self, context: FaultContext, parameters: ReassignParameters) -> None:
        if parameters.throttle_bytes_per_s is not None:
            for resource, _, properties in self._throttled(context, parameters):
                context.admin.alter_configs(resource, properties)
        context.admin.reassign(self._wanted, timeout_s=ASK_S)

    def verify(self, context: FaultContext, parameters: ReassignParameters) -> Sequence[Effect]:
        watches = [
            Watch(self._nodes[key], None, partial(_arrived, context, key, wanted, begun=not parameters.done))
            for key, wanted in self._wanted.items()
        ]
        return observe(watches, clock=context.clock, timeout_s=parameters.timeout_s)


def _arrived(context: FaultContext, key: PartitionKey, wanted: Sequence[int], *, begun: bool = False) -> Observation:
    """Says whether the replicas of a partition are exactly there, and nothing moves any more. With `begun` it is
    enough that they are on the way."""
    now, moving = newest_views(context, [key]).get(key), key in context.admin.reassignments()
    if now is None:
        return Tristate.UNKNOWN, f"no running broker knows {text_of(key)}"
    seen = f"{text_of(key)} has copies on {list(now.replicas)}" + (", and more are moved" if moving else "")
    there = now.replicas == tuple(wanted) and not moving
    return Tristate(int(there or (begun and moving))), seen


class ReassignBack(UndoAction):
    """Puts the replicas back where they were. A reassignment that is under way is replaced (KIP-455)."""

    of_kafka = True

    def carry_out(self, undo: Undo, context: FaultContext) -> None:
        key, replicas = _given(undo)

        def put_back() -> None:
            if _arrived(context, key, replicas)[0] is not Tristate.YES:
                context.admin.reassign({key: replicas}, timeout_s=ASK_S / 2)

        until_accepted(put_back, awaited=f"Kafka to take {text_of(key)} back", timeout_s=ASK_S, clock=context.clock)

    def undone(self, undo: Undo, context: FaultContext) -> Observation:
        return _arrived(context, *_given(undo))

    def things(self, undo: Undo) -> Mapping[str, Undo]:
        return {f"replicas of {text_of(_given(undo)[0])}": undo}

    def holds(self, undo: Undo, context: FaultContext) -> bool:
        return False  # no node is broken by it


def _given(undo: Undo) -> tuple[PartitionKey, tuple[int, ...]]:
    given = undo.given
    return (given["topic"], given["number"]), tuple(given["replicas"])
