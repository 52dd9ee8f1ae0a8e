"""Topic and broker properties as settings of a trial: the topic's own, else its brokers' defaults, else Kafka's."""

import re

from harness.configuration import Variant
from harness.errors import BadInput
from harness.validation.clients import Translated
from harness.validation.known import Settings, check, default_of, does_nothing, properties_of

REPLICATION = ("replication.factor", "replication-factor", "replicas")
"""As people write it in files of topics; Kafka has it outside the topic's configuration."""
_OF_THE_MACHINE = re.compile(
    r"(advertised\.|listener|control\.plane|controller\.(listener|quorum)|zookeeper\.(connect$|ssl|clientCnxn|set\.acl)|"
    r"log\.dirs?$|metadata\.log\.dir|node\.id|broker\.(id|rack)|process\.roles|inter\.broker|security\.|ssl\.|sasl\.|"
    r"principal\.|authorizer|super\.users|allow\.everyone|delegation\.|metric|auto\.include|kafka\.metrics|"
    r"client\.quota|quota\.window|remote\.log|create\.topic\.policy|alter\.config\.policy|host\.name|port$|"
    r"initial\.broker\.registration|early\.start|num\.(network|io|recovery|replica|partitions)|background\.threads|"
    r"confluent\.|replica\.selector|socket\.|reserved\.broker|auto\.create|default\.replication)"
)
"""What says where brokers are and how they are reached, not what they promise."""


def translate_servers(topic: Settings | None, broker: Settings | None, version: str, brokers: int | None) -> Translated:
    """`topic.…` of a trial and `variant.properties.…`, with `variant.brokers` and `variant.metadata_mode` where known."""
    known_topic = properties_of("topic", "java", version)
    known_broker = properties_of("broker", "java", version)
    found = Translated()
    mine, servers = topic or {}, broker or {}
    ignored = check("topic", mine, known_topic, more=REPLICATION)
    ignored += check("broker", servers, known_broker, more=tuple(known_topic))
    found.notes += [does_nothing(name, [*known_topic, *known_broker, *REPLICATION]) for name in ignored]
    _replication(found, mine, servers)
    for name, key in (
        ("min.insync.replicas", "topic.min_insync_replicas"),
        ("unclean.leader.election.enable", "topic.unclean_leader_election_enable"),
        ("cleanup.policy", "topic.cleanup_policy"),
        ("flush.messages", "topic.flush_messages"),
    ):
        server = known_topic[name].get("server") or name
        setting = mine.get(name) or servers.get(server)
        value = setting.value if setting else default_of(name, known_topic)
        if name == "flush.messages" and (not value or int(value) >= 2**31):
            continue
        found.set(key, _typed(name, value, found), setting)
    named = {"min.insync.replicas", "unclean.leader.election.enable", "cleanup.policy", "flush.messages", *REPLICATION}
    of_topics = {facts["server"]: name for name, facts in known_topic.items() if facts.get("server")}
    inherited = {of_topics[name]: setting for name, setting in servers.items() if name in of_topics}
    for name, setting in (inherited | dict(mine)).items():
        if name not in named and name in known_topic:
            found.set(f"topic.properties.{name}", setting.value, setting)
    _of_variant(found, {k: s for k, s in servers.items() if k not in of_topics and k not in ignored})
    found.base["variant.brokers"] = max(brokers or 0, 3, found.base["topic.replication_factor"])
    return found


def _replication(found: Translated, topic: Settings, servers: Settings) -> None:
    name = next((name for name in REPLICATION if name in topic), None)
    setting = topic[name] if name else servers.get("default.replication.factor")
    if setting is not None and not setting.value.isdigit():
        raise BadInput(f"{setting.origin}: replication.factor = {setting.value!r} must be a number.")
    found.set("topic.replication_factor", int(setting.value) if setting else 1, setting)
    if setting is None:
        found.notes.append(
            "no replication.factor is given, neither of the topic nor as default.replication.factor: Kafka's default is 1"
        )


def _typed(name: str, value: str, found: Translated) -> object:
    if name == "unclean.leader.election.enable":
        return value.lower() == "true"
    if name == "cleanup.policy":
        if value not in ("delete", "compact"):
            found.notes.append(f"cleanup.policy={value} is run as {'compact' if 'compact' in value else 'delete'}")
        return "compact" if "compact" in value else "delete"
    return int(value)


def _of_variant(found: Translated, servers: Settings) -> None:
    """What brokers have for themselves; their defaults of topics are set on the topic, so that no internal one has them."""
    roles = servers.get("process.roles")
    if "zookeeper.connect" in servers:
        found.set("variant.metadata_mode", "zookeeper", servers["zookeeper.connect"])
    elif roles is not None and {"broker", "controller"} <= {role.strip() for role in roles.value.split(",")}:
        found.set("variant.metadata_mode", "kraft-combined", roles)
    for name, setting in servers.items():
        if not _OF_THE_MACHINE.match(name):
            found.set(f"variant.properties.{name}", setting.value, setting)


def variant_of(found: Translated, version: str) -> Variant:
    """The kind of cluster that these settings mean."""
    values = {key.removeprefix("variant."): value for key, value in found.base.items() if key.startswith("variant.")}
    properties = {k.removeprefix("properties."): v for k, v in values.items() if k.startswith("properties.")}
    plain = {k: v for k, v in values.items() if not k.startswith("properties.")}
    return Variant.model_validate(plain | {"kafka_version": version, "properties": properties})
