"""Turns topic and broker properties into settings of a trial (the topic's own, else its brokers' defaults, else Kafka's),
and what brokers refuse of them and of clients."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prozess.harness.config.client_settings import SettingValue, Translated
from prozess.harness.config.configuration import Variant, version_numbers
from prozess.harness.config.known_properties import (
    Property,
    Setting,
    Settings,
    check,
    default_of,
    does_nothing,
    is_placeholder,
    is_true,
    notes_of,
    number,
    properties_of,
    trimmed,
)
from prozess.harness.config.releases import READY_KRAFT
from prozess.harness.errors import BadInput
from prozess.validation.tiers import OF_STORE, refused_tiers, set_tiers

REPLICATION = ("replication.factor", "replication-factor", "replicas")
"""People write it so in files of topics; Kafka has it outside the topic's configuration."""
BROKERS_MAX = 9
"""At most this many brokers a trial has at most."""
OF_OFFSETS = "min.insync.replicas"
"""A broker's default of topics that __consumer_offsets takes. [GroupCoordinatorService.groupMetadataTopicConfigs]"""
INTERNAL_FACTORS = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)
_OF_THE_MACHINE = re.compile(
    r"(advertised\.|listener|control\.plane|controller\.(listener|quorum)|zookeeper\.(connect$|ssl|clientCnxn|set\.acl)|"
    r"log\.dirs?$|metadata\.log\.dir|node\.id|broker\.(id|rack)|process\.roles|inter\.broker|security\.|ssl\.|sasl\.|"
    r"principal\.|authorizer|super\.users|allow\.everyone|delegation\.|metric|auto\.include|kafka\.metrics|"
    r"client\.quota|quota\.window|remote\.log|rlmm\.config|rsm\.config|create\.topic\.policy|alter\.config\.policy|host\.name|port$|"
    r"initial\.broker\.registration|early\.start|num\.(network|io|recovery|replica|partitions)|background\.threads|"
    r"confluent\.|replica\.selector|socket\.|reserved\.broker|auto\.create|default\.replication)"
)
"""What says where brokers are and how they are reached, not what they promise."""


@dataclass(slots=True)
class ServerSettings(Translated):
    """Settings of a trial for topic and brokers, with the files' own settings."""

    topic: Settings | None = None
    """The topic's settings in the files; None if there is no file for it."""
    broker: Settings | None = None
    """The brokers' settings in the files; None if there is no file for them, so that any value is possible."""
    count: int | None = None
    """The number of brokers; None if no file says it."""


def translate_servers(
    topic: Settings | None, broker: Settings | None, version: str, brokers: int | None
) -> ServerSettings:
    """Returns the `topic.…` and `variant.properties.…` settings of a trial, with `variant.brokers` and
    `variant.metadata_mode` where known."""
    known_topic = properties_of("topic", "java", version)
    known_broker = properties_of("broker", "java", version)
    found = ServerSettings(topic=topic, broker=broker, count=brokers)
    mine, servers = _without_placeholders(topic or {}, found), _without_placeholders(broker or {}, found)
    ignored = check("topic", mine, known_topic, more=REPLICATION)
    ignored += check("broker", servers, known_broker, more=(*known_topic, *OF_STORE))
    refuse_servers(mine, servers, known_topic, known_broker)
    found.notes += [*notes_of(mine), *notes_of(servers)]
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
        value = trimmed(setting.value) if setting else default_of(name, known_topic)
        if name == "flush.messages" and (not value or int(value) >= 2**31):
            continue
        found.set(key, _typed(name, value), setting)
        if name == "cleanup.policy" and setting is not None and value not in ("delete", "compact"):
            found.doubt(name, setting, f"is {value!r}, and no trial runs a topic that is not either compact or delete")
    named = {"min.insync.replicas", "unclean.leader.election.enable", "cleanup.policy", "flush.messages", *REPLICATION}
    of_topics = {facts["server"]: name for name, facts in known_topic.items() if facts.get("server")}
    inherited = {of_topics[name]: setting for name, setting in servers.items() if name in of_topics}
    for name, setting in (inherited | dict(mine)).items():
        if name not in named and name in known_topic:
            found.set(f"topic.properties.{name}", setting.value, setting)
    own = {k: s for k, s in servers.items() if k == OF_OFFSETS or (k not in of_topics and k not in ignored)}
    _of_variant(found, own)
    set_tiers(found, mine, servers)
    _count(found, own, brokers)
    return found


def _count(found: Translated, servers: Settings, brokers: int | None) -> None:
    """Gives the cluster as many brokers as every topic has copies, internal ones too: else a trial could not create
    them."""
    copies = {name: int(servers[name].value) for name in INTERNAL_FACTORS if name in servers}
    wanted = max(brokers or 0, 3, int(found.base["topic.replication_factor"]), *copies.values())
    found.base["variant.brokers"] = min(wanted, BROKERS_MAX)
    if wanted > BROKERS_MAX:
        found.notes.append(f"the trials have {BROKERS_MAX} brokers, and not {wanted}: they never have more")
    for name, wished in copies.items():
        if wished > BROKERS_MAX:
            found.base[f"variant.properties.{name}"] = str(BROKERS_MAX)


def _replication(found: Translated, topic: Settings, servers: Settings) -> None:
    name = next((name for name in REPLICATION if name in topic), None)
    own = topic[name] if name else None
    if own is not None and trimmed(own.value) == "-1":  # the brokers' own default (KIP-464)
        own = None
    setting = own or servers.get("default.replication.factor")
    if setting is not None and not re.fullmatch("0*[1-9][0-9]{0,4}", trimmed(setting.value)):
        raise BadInput(
            f"{setting.origin}: replication.factor = {setting.value!r} must be a number from 1 on. Change it."
        )
    if setting is not None and int(setting.value) > BROKERS_MAX:
        raise BadInput(
            f"{setting.origin}: replication.factor = {setting.value}: the trials of prozess have at most {BROKERS_MAX} "
            f"brokers, so they cannot show what this promises. Give at most {BROKERS_MAX}."
        )
    found.set("topic.replication_factor", int(setting.value) if setting else 1, setting)
    if setting is None:
        found.notes.append(
            "no file sets replication.factor of the topic, or default.replication.factor of the brokers: Kafka's default is 1"
        )


def _without_placeholders(settings: Settings, found: Translated) -> Settings:
    """Returns the settings that are no placeholders, and notes the others as unclear."""
    for name, setting in settings.items():
        if is_placeholder(setting.value):
            found.doubt(name, setting, f"is a placeholder: what {setting.value} stands for is not in the file")
    return {name: setting for name, setting in settings.items() if not is_placeholder(setting.value)}


def _typed(name: str, value: str) -> SettingValue:
    if name == "unclean.leader.election.enable":
        return is_true(value)
    if name == "cleanup.policy":
        return "compact" if "compact" in value else "delete"
    return int(value)


def _of_variant(found: Translated, servers: Settings) -> None:
    """Takes what brokers have for themselves. Their defaults of topics are set on the topic, so that no internal one
    has them, but for the minimum in sync of __consumer_offsets."""
    roles = servers.get("process.roles")
    if "zookeeper.connect" in servers:
        found.set("variant.metadata_mode", "zookeeper", servers["zookeeper.connect"])
    elif roles is not None and {"broker", "controller"} <= {trimmed(role) for role in roles.value.split(",")}:
        found.set("variant.metadata_mode", "kraft-combined", roles)
    for name, setting in servers.items():
        if not _OF_THE_MACHINE.match(name):
            found.set(f"variant.properties.{name}", setting.value, setting)


def variant_of(found: Translated, version: str) -> Variant:
    """Returns the kind of cluster that these settings describe. Where they do not say how it keeps its metadata, and KRaft
    was a preview in this version, it has ZooKeeper."""
    values = {key.removeprefix("variant."): value for key, value in found.base.items() if key.startswith("variant.")}
    properties = {k.removeprefix("properties."): v for k, v in values.items() if k.startswith("properties.")}
    plain = {k: v for k, v in values.items() if not k.startswith("properties.")}
    before_kraft = {"metadata_mode": "zookeeper"} if version_numbers(version) < READY_KRAFT else {}
    return Variant.model_validate(before_kraft | plain | {"kafka_version": version, "properties": properties})


# What brokers refuse of settings that are each right by themselves: theirs when they start
# (KafkaConfig.validateValues), a topic's when it is made (LogConfig.validateValues). BadInput says which, why, and
# what to change.


_MEGABYTE = 1_048_576


def refuse_servers(
    topic: Settings, broker: Settings, of_topic: Mapping[str, Property], of_broker: Mapping[str, Property]
) -> None:
    """`of_topic`, `of_broker`: what is known of their properties."""
    wrong = [*_wrong_of_topic(topic, of_topic), *refused_tiers(topic, broker, of_topic)]
    for names, why in [*wrong, *_wrong_of_brokers(broker, of_broker)]:
        settings = {**broker, **topic}
        setting = next((settings[name] for name in names if name in settings), None)
        if setting is not None:
            raise BadInput(f"{setting.origin}: {why}. Change {' or '.join(names)}.")


def _value(name: str, settings: Settings, known: Mapping[str, Property]) -> float | None:
    """Returns the value that is set, else its default; None if there is neither."""
    text = settings[name].value if name in settings else default_of(name, known)
    return number(text) if text else None


def _wrong_of_topic(settings: Settings, known: Mapping[str, Property]) -> Iterator[tuple[tuple[str, ...], str]]:
    least, most = (_value(f"{end}.compaction.lag.ms", settings, known) for end in ("min", "max"))
    if least is not None and most is not None and least > most:
        why = f"min.compaction.lag.ms, {least}, is more than max.compaction.lag.ms, {most}"
        yield (
            ("min.compaction.lag.ms", "max.compaction.lag.ms"),
            f"{why}: no such topic is made (LogConfig.validateValues)",
        )


def _wrong_of_brokers(settings: Settings, known: Mapping[str, Property]) -> Iterator[tuple[tuple[str, ...], str]]:
    ends = ": no broker starts (KafkaConfig.validateValues)"
    wait = _value("replica.fetch.wait.max.ms", settings, known)
    for name in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        limit = _value(name, settings, known)
        if wait is not None and limit is not None and wait > limit:
            yield (
                ("replica.fetch.wait.max.ms", name),
                f"replica.fetch.wait.max.ms, {wait}, is more than {name}, {limit}{ends}",
            )
    for name, least, rule in (
        ("log.roll.ms", 1, "at least 1"),
        ("log.roll.jitter.ms", 0, "at least 0"),
        ("log.retention.ms", 1, "at least 1, or -1 for ever"),
    ):
        given = _value(name, settings, known) if name in settings else None
        if given is not None and given < least and not (name == "log.retention.ms" and given == -1):
            yield (name,), f"{name} = {given} must be {rule}{ends}"
    buffer, threads = (_value(f"log.cleaner.{name}", settings, known) for name in ("dedupe.buffer.size", "threads"))
    if buffer is not None and threads and buffer // threads <= _MEGABYTE:
        why = f"log.cleaner.dedupe.buffer.size, {buffer}, must be more than 1 MB for each of log.cleaner.threads, {threads}"
        yield ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads"), f"{why}{ends}"


# What brokers refuse of clients, which is in two files: each is right by itself. A limit that somebody has set
# refuses; of one that is Kafka's default, and may be another, it is doubted.


_BROKER = "variant.properties."


def doubt_across(client: Translated, servers: Translated, version: str, *, given_by_somebody: bool) -> None:
    """Notes where a client's settings may exceed the brokers' limits. BadInput for what the brokers' own settings refuse.
    `given_by_somebody`: did somebody say what the brokers are set to, so that what is not among it is Kafka's default?"""
    known = properties_of("broker", "java", version)
    for name, key, limit, below, refused in _rules(client):
        given = servers.base.get(f"{_BROKER}{limit}")
        bound = int(str(given) if given is not None else default_of(limit, known))
        value = int(client.base[key])
        if (value >= bound) if below else (value <= bound):
            continue
        origin = client.origins.get(key, name)
        rule = f"must be at {'least' if below else 'most'} {limit}, {bound}"
        if given is not None or given_by_somebody:
            where = servers.origins.get(_BROKER + limit, "its default")
            raise BadInput(f"{origin}: {name} = {value} {rule} ({where}): {refused}. Change one of the two.")
        why = f"= {value} {rule} unless the brokers have another limit, and no file says whether they have: {refused}"
        client.doubt(name, Setting(str(value), origin), why)


def _rules(client: Translated) -> Iterator[tuple[str, str, str, bool, str]]:
    """Client's property, its setting, the broker's limit, is that the least, and what brokers do."""
    if "transaction.transaction_timeout_ms" in client.base:
        refused = "brokers refuse it, INVALID_TRANSACTION_TIMEOUT (TransactionCoordinator.handleInitProducerId)"
        timeout = ("transaction.timeout.ms", "transaction.transaction_timeout_ms")
        yield (*timeout, "transaction.max.timeout.ms", False, refused)
    if "group.session_timeout_ms" in client.base:
        refused = "brokers let no member join, INVALID_SESSION_TIMEOUT (GroupCoordinatorService.joinGroup)"
        session = ("session.timeout.ms", "group.session_timeout_ms")
        yield (*session, "group.max.session.timeout.ms", False, refused)
        yield (*session, "group.min.session.timeout.ms", True, refused)
