"""The fault `configure` changes the configuration of topics or brokers under load (KIP-339), and puts it back exactly
as it was.

Changes to the promises themselves are refused, because verdicts go by the configuration that the plan states.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from prozess.harness.config.configuration import Frozen, Text
from prozess.harness.errors import ClusterFailed
from prozess.harness.interfaces import Effect, Fault, FaultContext, Undo, UndoAction
from prozess.harness.plan.schedule import parse_target
from prozess.harness.schema import Tristate
from prozess.nemesis.faults import Observation, Watch, observe
from prozess.nemesis.kafka.partitions import PartitionKey, broker_name, leader_of, named_partitions, until_accepted
from prozess.nemesis.roles import TargetMissing

CHANGE_S = 20.0
"""How long Kafka may take to accept a change."""
PROMISES = ("unclean.leader.election.enable", "cleanup.policy", "retention.", "log.retention.", "local.retention.")
"""The properties that decide what may be lost, by how their names begin. min.insync.replicas may be raised, but not
lowered."""
MIN_ISR = "min.insync.replicas"


def _harmless(properties: object) -> object:
    for key in properties if isinstance(properties, Mapping) else ():
        if str(key).startswith(PROMISES):
            raise ValueError(
                f"{key} decides what may be lost, and verdicts go by what the plan states; put it into "
                "[base] or [axes], as topic.…"
            )
    return properties


class ConfigureParameters(Frozen):
    """`properties`: name → value. They are set for the topics of `partition(p)`, or for the brokers that are the
    targets."""

    properties: Annotated[dict[str, Text], BeforeValidator(_harmless), Field(min_length=1)]


class Configure(Fault):
    """Changes the configuration of topics or brokers under load (KIP-339), and puts it back exactly as it was.

    Changes to the promises themselves are refused, because verdicts go by the configuration that the plan states.

    The effect is that Kafka reports the new values.
    """

    name = "configure"
    parameters_model = ConfigureParameters

    def undos(self, scene: FaultContext, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        """Plans to put back what was set for exactly these resources. A property that was not set is deleted again."""
        _refuse_less(scene, parameters["properties"], _resources(scene))
        return [
            changes_back(scene, resource, parameters["properties"], node=node)
            for resource, node in _resources(scene).items()
        ]

    def apply(self, scene: FaultContext, parameters: Mapping[str, Any]) -> None:
        for resource in _resources(scene):
            scene.admin.alter_configs(resource, parameters["properties"], timeout_s=CHANGE_S)

    def verify(self, scene: FaultContext, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        watches = [
            Watch(node, None, partial(_has, scene, resource, parameters["properties"]))
            for resource, node in _resources(scene).items()
        ]
        return observe(watches, clock=scene.clock)


def _resources(scene: FaultContext) -> dict[str, str]:
    """Returns resource → a node to name. For a topic that is the leader of its first partition, for a broker the broker
    itself."""
    of_topics = [role for role in scene.roles if parse_target(role).role == "partition"]
    if of_topics and len(of_topics) < len(scene.roles):
        raise TargetMissing("configure takes partitions (their topics) or brokers, not both at once.")
    if not of_topics:
        brokers = {f"broker:{node.node_id}": node.name for node in scene.targets if "broker" in node.roles}
        if not brokers:
            raise TargetMissing("configure: none of the targets is a broker.")
        return brokers
    first: dict[str, PartitionKey] = {}
    named = named_partitions(scene)
    for key in named:
        first.setdefault(key[0], key)
    leaders = {topic: leader_of(named[key]) for topic, key in first.items()}
    return {f"topic:{topic}": broker_name(scene, broker) for topic, broker in leaders.items()}


def _refuse_less(scene: FaultContext, properties: Mapping[str, str], resources: Mapping[str, str]) -> None:
    """Raises ClusterFailed if min.insync.replicas would become lower than it is, because the promises of the plan would
    no longer hold."""
    if MIN_ISR not in properties:
        return
    for resource in resources:
        now = _effective(scene, resource).get(MIN_ISR)
        if now is not None and int(properties[MIN_ISR]) < int(now):
            raise ClusterFailed(
                f"{MIN_ISR} = {properties[MIN_ISR]} is less than the {now} that {resource} has now, and promises must not "
                "change. Raise it, or leave it out."
            )


def _effective(scene: FaultContext, resource: str) -> Mapping[str, str | None]:
    kind, _, name = resource.partition(":")
    asked: dict[str, Any] = {"brokers": [int(name)]} if kind == "broker" else {"topics": [name]}
    return scene.admin.describe_configs(**asked)[resource]


def _has(scene: FaultContext, resource: str, properties: Mapping[str, str]) -> Observation:
    told = _effective(scene, resource)
    now = {key: told.get(key) for key in properties}
    return Tristate(int(now == dict(properties))), f"{resource} has {_words(now)}"


def changes_back(scene: FaultContext, resource: str, properties: Mapping[str, object], *, node: str) -> Undo:
    """Returns the undo of a change of these properties, as they are set for exactly this resource now."""
    own = scene.admin.own_configs(resource)
    return Undo.of("configure", node, resource=resource, properties={key: own.get(key) for key in sorted(properties)})


class ConfigureBack(UndoAction):
    """Sets properties to what they were before the fault, and deletes those that were not set."""

    of_kafka = True

    def carry_out(self, undo: Undo, scene: FaultContext) -> None:
        resource, properties = undo.given["resource"], undo.given["properties"]

        def put_back() -> None:
            if self.undone(undo, scene)[0] is not Tristate.YES:
                scene.admin.alter_configs(resource, properties, timeout_s=CHANGE_S / 2)

        until_accepted(
            put_back,
            awaited=f"Kafka to take back the configuration of {resource}",
            timeout_s=CHANGE_S,
            clock=scene.clock,
        )

    def undone(self, undo: Undo, scene: FaultContext) -> Observation:
        before = undo.given["properties"]
        own = scene.admin.own_configs(undo.given["resource"])
        now = {key: own.get(key) for key in before}
        return Tristate(int(now == before)), f"{undo.given['resource']} has {_words(now)} of its own"

    def holds(self, undo: Undo, scene: FaultContext) -> bool:
        return False  # no node is broken by it


def _words(properties: Mapping[str, str | None]) -> str:
    return ", ".join(f"{key} {'unset' if value is None else value}" for key, value in properties.items())
