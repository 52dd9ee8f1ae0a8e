"""The fault `configure`: it changes the configuration of topics or brokers under load (KIP-339), and puts it back exactly
as it was."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from prozess.harness.config.configuration import Text
from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.errors import ClusterFailed
from prozess.harness.interfaces import Effect, Fault, FaultContext, Undo, UndoAction
from prozess.harness.plan.schedule import parse_target
from prozess.harness.schema import Tristate
from prozess.harness.values import Frozen
from prozess.nemesis.faults import Observation, Watch, observe
from prozess.nemesis.kafka.partitions import PartitionKey, broker_name, leader_of, named_partitions
from prozess.nemesis.kafka.readiness import until_accepted
from prozess.nemesis.roles import TargetMissing

CHANGE_S = 20.0
"""How long Kafka may take to accept a change."""
PROMISE_PROPERTIES = (
    "unclean.leader.election.enable",
    "cleanup.policy",
    "retention.",
    "log.retention.",
    "local.retention.",
)
"""The properties that decide what may be lost, by how their names begin. min.insync.replicas may be raised, but not
lowered."""
MIN_ISR = "min.insync.replicas"


def _harmless(properties: object) -> object:
    for key in properties if isinstance(properties, Mapping) else ():
        if str(key).startswith(PROMISE_PROPERTIES):
            raise ValueError(
                f"{key} decides what may be lost, and verdicts go by what the plan states; put it into "
                "[base] or [axes], as topic.…"
            )
    return properties


class ConfigureParameters(Frozen):
    """`properties`: name → value. They are set for the topics of `partition(p)`, or for the brokers that are the
    targets."""

    properties: Annotated[dict[str, Text], BeforeValidator(_harmless), Field(min_length=1)]


class Configure(Fault[ConfigureParameters]):
    """Changes the configuration of topics or brokers under load (KIP-339), and puts it back exactly as it was.

    Changes to the promises themselves are refused, because verdicts go by the configuration that the plan states.

    The effect is that Kafka reports the new values.
    """

    name = "configure"
    nature = FaultNature(reconfigures=True)
    parameters_model = ConfigureParameters

    def undos(self, context: FaultContext, parameters: ConfigureParameters) -> Sequence[Undo]:
        """Plans to put back what was set for exactly these resources. A property that was not set is deleted again."""
        _refuse_less(context, parameters.properties, _resources(context))
        return [
            changes_back(context, resource, parameters.properties, node=node)
            for resource, node in _resources(context).items()
        ]

    def apply(self, context: FaultContext, parameters: ConfigureParameters) -> None:
        for resource in _resources(context):
            context.admin.alter_configs(resource, parameters.properties, timeout_s=CHANGE_S)

    def verify(self, context: FaultContext, parameters: ConfigureParameters) -> Sequence[Effect]:
        watches = [
            Watch(node, None, partial(_has, context, resource, parameters.properties))
            for resource, node in _resources(context).items()
        ]
        return observe(watches, clock=context.clock)


def _resources(context: FaultContext) -> dict[str, str]:
    """Returns resource → a node to name. For a topic that is the leader of its first partition, for a broker the broker
    itself."""
    of_topics = [role for role in context.roles if parse_target(role).role == "partition"]
    if of_topics and len(of_topics) < len(context.roles):
        raise TargetMissing("configure takes partitions (their topics) or brokers, not both at once.")
    if not of_topics:
        brokers = {f"broker:{node.node_id}": node.name for node in context.targets if "broker" in node.roles}
        if not brokers:
            raise TargetMissing("configure: none of the targets is a broker.")
        return brokers
    first: dict[str, PartitionKey] = {}
    named = named_partitions(context)
    for key in named:
        first.setdefault(key[0], key)
    leaders = {topic: leader_of(named[key]) for topic, key in first.items()}
    return {f"topic:{topic}": broker_name(context, broker) for topic, broker in leaders.items()}


def _refuse_less(context: FaultContext, properties: Mapping[str, str], resources: Mapping[str, str]) -> None:
    """Raises ClusterFailed if min.insync.replicas would become lower than it is, because the promises of the plan would
    no longer hold."""
    if MIN_ISR not in properties:
        return
    for resource in resources:
        now = _effective(context, resource).get(MIN_ISR)
        if now is not None and int(properties[MIN_ISR]) < int(now):
            raise ClusterFailed(
                f"{MIN_ISR} = {properties[MIN_ISR]} is less than the {now} that {resource} has now, and promises must not "
                "change. Raise it, or leave it out."
            )


def _effective(context: FaultContext, resource: str) -> Mapping[str, str | None]:
    kind, _, name = resource.partition(":")
    asked: dict[str, Any] = {"brokers": [int(name)]} if kind == "broker" else {"topics": [name]}
    return context.admin.describe_configs(**asked)[resource]


def _has(context: FaultContext, resource: str, properties: Mapping[str, str]) -> Observation:
    effective = _effective(context, resource)
    now = {key: effective.get(key) for key in properties}
    return Tristate(int(now == dict(properties))), f"{resource} has {_words(now)}"


def changes_back(context: FaultContext, resource: str, properties: Mapping[str, object], *, node: str) -> Undo:
    """Returns the undo of a change of these properties, as they are set for exactly this resource now."""
    own = context.admin.own_configs(resource)
    return Undo.of("configure", node, resource=resource, properties={key: own.get(key) for key in sorted(properties)})


class ConfigureBack(UndoAction):
    """Sets properties to what they were before the fault, and deletes those that were not set."""

    of_kafka = True

    def carry_out(self, undo: Undo, context: FaultContext) -> None:
        resource, properties = undo.given["resource"], undo.given["properties"]

        def put_back() -> None:
            if self.undone(undo, context)[0] is not Tristate.YES:
                context.admin.alter_configs(resource, properties, timeout_s=CHANGE_S / 2)

        until_accepted(
            put_back,
            awaited=f"Kafka to take back the configuration of {resource}",
            timeout_s=CHANGE_S,
            clock=context.clock,
        )

    def undone(self, undo: Undo, context: FaultContext) -> Observation:
        before = undo.given["properties"]
        own = context.admin.own_configs(undo.given["resource"])
        now = {key: own.get(key) for key in before}
        return Tristate(int(now == before)), f"{undo.given['resource']} has {_words(now)} of its own"

    def things(self, undo: Undo) -> Mapping[str, Undo]:
        """Returns each property by itself: two faults may have changed one of them both."""
        resource = undo.given["resource"]
        return {
            f"{resource} {key}": Undo.of("configure", undo.node, resource=resource, properties={key: value})
            for key, value in undo.given["properties"].items()
        }

    def holds(self, undo: Undo, context: FaultContext) -> bool:
        return False  # no node is broken by it


def _words(properties: Mapping[str, str | None]) -> str:
    return ", ".join(f"{key} {'unset' if value is None else value}" for key, value in properties.items())
