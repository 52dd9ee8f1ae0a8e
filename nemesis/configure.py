"""configure: a topic's or broker's configuration changes under load (KIP-339), and is put back exactly as it was.

What would change the promises themselves is refused: verdicts judge by the configuration that the plan states.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from harness.configuration import Frozen, Text
from harness.errors import ClusterFailed
from harness.protocols import Capability, Effect, Scene, Undo
from harness.schema import Tristate
from harness.targets import parse_target
from nemesis.acceptance import until_accepted
from nemesis.effects import Seen, Watch, observe
from nemesis.kafka_partitions import PartitionKey, broker_name, leader_of, named_partitions
from nemesis.targets import TargetMissing

CHANGE_S = 20.0
"""How long Kafka may take to accept a change."""
PROMISES = ("unclean.leader.election.enable", "cleanup.policy", "retention.", "log.retention.", "local.retention.")
"""Beginnings of the properties on which it depends what may be lost; min.insync.replicas may be raised, not lowered."""
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
    """`properties`: of the topics of `partition(p)`, or of the brokers that the targets are."""

    properties: Annotated[dict[str, Text], BeforeValidator(_harmless), Field(min_length=1)]


class Configure:
    """The effect is that Kafka tells the new values when it is asked."""

    name = "configure"
    needs: frozenset[Capability] = frozenset()
    parameters_model = ConfigureParameters
    role_parameters: frozenset[str] = frozenset()

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        """What was set for exactly these resources before; a property that was not set is deleted again."""
        _refuse_less(scene, parameters["properties"], _resources(scene))
        return [
            changes_back(scene, resource, parameters["properties"], node=node)
            for resource, node in _resources(scene).items()
        ]

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        for resource in _resources(scene):
            scene.admin.alter_configs(resource, parameters["properties"], timeout_s=CHANGE_S)

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        watches = [
            Watch(node, None, partial(_has, scene, resource, parameters["properties"]))
            for resource, node in _resources(scene).items()
        ]
        return observe(watches, clock=scene.clock)


def _resources(scene: Scene) -> dict[str, str]:
    """Resource → a node to name: of a topic the one that leads the first of its partitions, of a broker itself."""
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


def _refuse_less(scene: Scene, properties: Mapping[str, str], resources: Mapping[str, str]) -> None:
    """ClusterFailed if min.insync.replicas would be lower than it is: promises would not be those of the plan."""
    if MIN_ISR not in properties:
        return
    for resource in resources:
        now = _effective(scene, resource).get(MIN_ISR)
        if now is not None and int(properties[MIN_ISR]) < int(now):
            raise ClusterFailed(
                f"{MIN_ISR} = {properties[MIN_ISR]} is less than the {now} that {resource} promises now."
            )


def _effective(scene: Scene, resource: str) -> Mapping[str, str | None]:
    kind, _, name = resource.partition(":")
    asked: dict[str, Any] = {"brokers": [int(name)]} if kind == "broker" else {"topics": [name]}
    return scene.admin.describe_configs(**asked)[resource]


def _has(scene: Scene, resource: str, properties: Mapping[str, str]) -> Seen:
    told = _effective(scene, resource)
    now = {key: told.get(key) for key in properties}
    return Tristate(int(now == dict(properties))), f"{resource} has {_words(now)}"


def changes_back(scene: Scene, resource: str, properties: Mapping[str, object], *, node: str) -> Undo:
    """The undo of a change of these properties, as they are set for exactly this resource now."""
    own = scene.admin.own_configs(resource)
    return Undo.of("configure", node, resource=resource, properties={key: own.get(key) for key in sorted(properties)})


class ConfigureBack:
    """What was set is set again, and what was not is not."""

    of_kafka = True

    def carry_out(self, undo: Undo, scene: Scene) -> None:
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

    def undone(self, undo: Undo, scene: Scene) -> Seen:
        before = undo.given["properties"]
        own = scene.admin.own_configs(undo.given["resource"])
        now = {key: own.get(key) for key in before}
        return Tristate(int(now == before)), f"{undo.given['resource']} has {_words(now)} of its own"

    def holds(self, undo: Undo, scene: Scene) -> bool:
        return False  # no node is broken by it


def _words(properties: Mapping[str, str | None]) -> str:
    return ", ".join(f"{key} {'unset' if value is None else value}" for key, value in properties.items())
