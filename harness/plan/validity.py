"""This module says which combinations of settings are valid, and which rule each of the others breaks.

Pure: it reads no clock, file or cluster.
"""

from collections.abc import Mapping, Sequence

from prozess.harness.config.configuration import (
    AUTHORIZER_PROPERTIES,
    PROVOCATIONS,
    ApplicationConfiguration,
    CompactionConfiguration,
    ConsumerConfiguration,
    CopierConfiguration,
    DeliveryBound,
    GroupConfiguration,
    ProducerConfiguration,
    ProvocationConfiguration,
    ShareConfiguration,
    TopicConfiguration,
    TransactionConfiguration,
    Variant,
    version_numbers,
)
from prozess.harness.config.releases import NEWEST_PATCHES, nearest_releases
from prozess.harness.plan.cell_work import OwnConfiguration
from prozess.harness.values import Frozen


class Combination(Frozen):
    """One choice for every axis, and the configurations that it makes."""

    axes: dict[str, str]
    topic: TopicConfiguration
    producer: ProducerConfiguration
    own: OwnConfiguration | None = None
    """The configuration that only its kind of workload has (`WorkloadKind.own`)."""
    delivery: DeliveryBound | None = None


def why_invalid(combination: Combination, variant: Variant) -> str | None:
    """Returns the rule that this combination breaks, with its source. None means that it is valid."""
    topic, producer = combination.topic, combination.producer
    if producer.enable_idempotence and producer.acks != "all":
        return f"enable.idempotence=true needs acks=all, not acks={producer.acks} (KIP-98)"
    if producer.enable_idempotence and producer.retries == "0":
        return "enable.idempotence=true needs retries > 0 (KIP-98)"
    if producer.enable_idempotence and producer.max_in_flight > 5:
        return f"enable.idempotence=true needs max.in.flight <= 5, not {producer.max_in_flight} (KAFKA-5494)"
    if why := why_invalid_client(combination, variant) or why_invalid_scope(combination, variant):
        return why
    if topic.min_insync_replicas > topic.replication_factor:
        return (
            f"min.insync.replicas={topic.min_insync_replicas} exceeds replication.factor={topic.replication_factor}: "
            "before 3.7 a broker refuses every write with acks=all, since then it silently lowers the minimum (KAFKA-15583)"
        )
    if topic.replication_factor > variant.brokers:
        return f"replication.factor={topic.replication_factor} needs as many brokers, the variant has {variant.brokers}"
    return None


OLDEST_JAVA = (2, 8)
"""The oldest minor version of Kafka's Java clients whose settings prozess knows, and whose tools it starts."""
SHARE_GROUPS_SINCE = (4, 2)
"""The first release whose share groups are for production. [KIP-932]"""
GROUP_LIMITS_SINCE = (4, 3)
"""The first release in which a share group may have a delivery count limit of its own. [KIP-1240]"""
DEAD_LETTERS_SINCE = (4, 4)
"""The first release in which a share group may have a dead-letter queue. [KIP-1191]"""
_CONSUMER_PROTOCOL_SINCE: Mapping[str, tuple[tuple[int, int], str]] = {
    "librdkafka": ((2, 4), "librdkafka 2.4.0, CHANGELOG"),
    "java": ((3, 7), "Kafka 3.7, early access"),
}
"""Client → the first version that has group.protocol=consumer, and where that stands."""


def why_invalid_client(combination: Combination, variant: Variant) -> str | None:
    """Returns why a client of the version that is asked for cannot do what the combination asks of it; None = it can."""
    own, producer = combination.own, combination.producer
    if (producer.client == "command") != bool(producer.command):
        return 'producer.command and producer.client = "command" belong together'
    if producer.client == "command":
        return _why_invalid_command(combination)
    if why := _why_not_of_workload(producer, combination.axes["workload"]):
        return why
    if isinstance(own, ShareConfiguration) and version_numbers(own.client_version or "4.2") < SHARE_GROUPS_SINCE:
        return f"client_version={own.client_version} has no share groups for production (KIP-932), 4.2.0 has"
    clients: list[ProducerConfiguration | GroupConfiguration | CopierConfiguration] = [combination.producer]
    if isinstance(own, GroupConfiguration | CopierConfiguration):
        clients.append(own)
    for one in clients:
        version = version_numbers(one.client_version) if one.client_version is not None else None
        if version is not None and (why := _why_no_release(one.client, version)):
            return f"client_version={one.client_version} {why}"
        if version is None or isinstance(one, ProducerConfiguration) or one.protocol != "consumer":
            continue
        since, source = _CONSUMER_PROTOCOL_SINCE[one.client]
        if version[:2] < since:
            return f"client_version={one.client_version} has no group.protocol=consumer (KIP-848; {source})"
    return None


def _why_not_of_workload(producer: ProducerConfiguration, kind: str) -> str | None:
    """Returns why this kind of workload has no such producer."""
    if producer.client == "java" and kind in _LIBRDKAFKA_ALONE:
        return (
            f"the producers of workload {kind} use librdkafka, not producer.client=java; those of transactions and "
            "verifiable may use Kafka's"
        )
    if producer.beside is not None and kind not in _TAKES_COMMANDS:
        return f"producer.beside is for {' and '.join(_TAKES_COMMANDS)} workloads, not for {kind}"
    return None


def _why_no_release(client: str, version: tuple[int, ...]) -> str | None:
    """Returns why a client has no such version: the numbers of librdkafka (2.13) and of Kafka (3.9) are easily mistaken."""
    if client == "java" and version[:2] < OLDEST_JAVA:
        return "is too old: prozess knows Kafka's Java clients from 2.8 on"
    if client == "librdkafka" and version[0] > NEWEST_LIBRDKAFKA:
        return f"is no version of librdkafka, whose newest are {NEWEST_LIBRDKAFKA}.x"
    minors = [version_numbers(release)[:2] for release in NEWEST_PATCHES]
    if client == "java" and version[:2] < minors[-1] and version[:2] not in minors:
        return f"is no release of Kafka; the nearest are {nearest_releases('.'.join(map(str, version)))}"
    return None


NEWEST_LIBRDKAFKA = 2
"""The major version of librdkafka's newest releases."""
COMMAND_PLACEHOLDERS = ("python",)
"""The placeholders in the command of a producer or a consumer."""
_LIBRDKAFKA_ALONE = ("log", "group", "compaction", "share", "exactly-once")
"""The kinds of workload whose producers are librdkafka's."""
_TAKES_COMMANDS = ("verifiable", "verifiable-share")
"""The kinds of workload whose producers may be programs of your own."""


def _why_invalid_command(combination: Combination) -> str | None:
    kind, producer = combination.axes.get("workload", ""), combination.producer
    if kind not in _TAKES_COMMANDS:
        return f"producer.command is for {' and '.join(_TAKES_COMMANDS)} workloads, not for {kind}"
    if producer.defaults == "library" or producer.client_version is not None or producer.beside is not None:
        return "of a command nobody knows what its library does: producer.defaults, client_version and beside are not for it"
    return _why_no_words("producer.command", producer.command)


def _why_no_words(key: str, command: Sequence[str]) -> str | None:
    try:
        for word in command:
            word.format_map(dict.fromkeys(COMMAND_PLACEHOLDERS, ""))
    except (KeyError, ValueError, IndexError, AttributeError) as error:
        return f"{key}: {error} is no placeholder; there is {{python}}; write {{{{ and }}}} for braces"
    return None


# Settings of one kind of workload that cannot be combined. Each rule has its source.


PLACEHOLDERS = ("bootstrap", "input", "output", "group", "instance", "delivery", "python", "trials")
"""The placeholders in an application's command and environment."""


def why_invalid_scope(combination: Combination, variant: Variant) -> str | None:
    """Returns the rule that is broken by settings which only one kind of workload has. None means that they are
    valid."""
    producer = combination.producer
    match combination.own:
        case TransactionConfiguration() as transaction:
            return _why_invalid_transaction(transaction, producer, variant)
        case GroupConfiguration() as group:
            return _why_invalid_group(group, producer, variant)
        case ShareConfiguration() as share:
            why = None if share.transaction is None else _why_invalid_transaction(share.transaction, producer, variant)
            return why or _why_invalid_share(share, variant)
        case CopierConfiguration() as copier:
            return _why_invalid_copier(copier, producer, variant)
        case ApplicationConfiguration() as application:
            return _why_invalid_application(application)
        case ProvocationConfiguration() as provocation:
            return _why_invalid_provocation(provocation, producer, variant)
        case ConsumerConfiguration() as consumer:
            return _why_no_words("consumer.command", consumer.command)
        case CompactionConfiguration() | None:
            return None


def _why_invalid_group(group: GroupConfiguration, producer: ProducerConfiguration, variant: Variant) -> str | None:
    if group.hands_on and not group.failure_share:
        return f"on_failure={group.on_failure} needs failures: set group.failure_share"
    if group.hands_on and producer.acks != "all":
        return f"acks={producer.acks} may lose what is sent to the retry topic, which no consumer could then process"
    if group.late_members >= group.members:
        return f"late_members={group.late_members} of {group.members} members leaves nobody to begin with"
    if group.protocol != "consumer" and "session.timeout.ms" in group.properties:
        return "session.timeout.ms has a name of its own here: set group.session_timeout_ms"
    if group.client == "java" and (why := _why_not_java(group)):
        return why
    if group.assignor != "default" and (why := _why_no_such_assignor(group)):
        return why
    return _why_invalid_protocol(group.protocol, group.properties, variant)


ASSIGNORS_OF: Mapping[str, tuple[str, ...]] = {
    "classic-eager": ("range", "roundrobin", "sticky"),
    "classic-cooperative": ("cooperative-sticky",),
    "consumer": ("uniform", "range"),
}
"""Protocol of a group → the assignors that Kafka has for it. [ConsumerPartitionAssignor; KIP-429; KIP-848]"""


def _why_no_such_assignor(group: GroupConfiguration) -> str | None:
    known = ASSIGNORS_OF[group.protocol]
    if group.assignor not in known:
        return f"assignor={group.assignor} is none of those for protocol={group.protocol}: {', '.join(known)}"
    if (group.client, group.assignor) == ("librdkafka", "sticky"):
        return "librdkafka has no assignor sticky, only cooperative-sticky (CONFIGURATION.md)"
    name = "group.remote.assignor" if group.protocol == "consumer" else "partition.assignment.strategy"
    return f"{name} and assignor={group.assignor} name an assignor each: set one" if name in group.properties else None


_LOCKS = (("group.share.min.record.lock.duration.ms", 15_000), ("group.share.max.record.lock.duration.ms", 60_000))
_SESSIONS = (("group.share.min.session.timeout.ms", 45_000), ("group.share.max.session.timeout.ms", 60_000))
_DELIVERIES = (("group.share.min.delivery.count.limit", 2), ("group.share.max.delivery.count.limit", 10))
"""Properties of brokers, and their defaults, between which a share group may choose. [Kafka documentation, broker
configuration]"""
_LIMIT = "group.share.delivery.count.limit"


def _why_invalid_share(share: ShareConfiguration, variant: Variant) -> str | None:
    if share.late_members > share.members:
        return f"late_members={share.late_members} of {share.members} members are more than there are"
    if share.release_share + share.reject_share + share.renew_share > 1:
        return "release_share + reject_share + renew_share exceeds 1"
    if share.acknowledgement == "implicit" and share.release_share + share.reject_share + share.renew_share > 0:
        return "acknowledgement=implicit accepts everything: releases, rejects and renewals need explicit"
    if share.dead_letter_replicas and version_numbers(variant.oldest_version) < DEAD_LETTERS_SINCE:
        return f"dead_letter_replicas needs brokers of 4.4 or later, not {variant.oldest_version} (KIP-1191)"
    bounds = [
        (share.lock_duration_ms, "lock_duration_ms", _LOCKS),
        (share.session_timeout_ms, "session_timeout_ms", _SESSIONS),
    ]
    if version_numbers(variant.oldest_version) >= GROUP_LIMITS_SINCE:
        bounds.append((share.delivery_count_limit, "delivery_count_limit", _DELIVERIES))
    elif str(share.delivery_count_limit) != variant.properties.get(_LIMIT, "5"):
        return (
            f"delivery_count_limit={share.delivery_count_limit}: before 4.3 set variant.properties {_LIMIT} to the same"
        )
    for value, name, of in bounds:
        least, most = (int(variant.properties.get(key, str(default))) for key, default in of)
        if not least <= value <= most:
            return f"{name}={value} is not within the brokers' bounds, {least} to {most}: set {of[value > most][0]}"
    return None


JAVA_COMMITS = ("sync-after", "auto")
"""The ways in which a VerifiableConsumer can commit: with commitSync after each poll, or by itself at an interval."""


def _why_not_java(group: GroupConfiguration) -> str | None:
    """Returns why org.apache.kafka.tools.VerifiableConsumer cannot be such a member of a group. None means that it
    can."""
    if group.commit not in JAVA_COMMITS:
        return f"VerifiableConsumer commits in the ways {' and '.join(JAVA_COMMITS)}, not {group.commit}"
    if group.processing_ms or group.failure_share:
        return "VerifiableConsumer processes a record by printing it, which takes no processing_ms and never fails"
    if group.subscription != "topics":
        return "VerifiableConsumer subscribes to one topic by its name, not to a pattern"
    if group.auto_offset_reset == "error":
        return (
            "VerifiableConsumer ends where there is no position (NoOffsetForPartitionException): it seeks none itself"
        )
    return None


def _why_invalid_protocol(protocol: str, properties: Mapping[str, str], variant: Variant) -> str | None:
    if protocol != "consumer":
        return None
    if variant.metadata_mode == "zookeeper":
        return "group.protocol=consumer needs the group coordinator of KRaft, which ZooKeeper mode has not (KIP-848)"
    if version_numbers(variant.oldest_version) < (4, 0):
        return f"group.protocol=consumer needs brokers of 4.0 or later, not {variant.oldest_version} (KIP-848)"
    classic_only = {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}
    of_brokers = sorted(classic_only & set(properties))
    if of_brokers:
        return f"group.protocol=consumer has no {of_brokers[0]}: the brokers set it (KIP-848)"
    return None


def _why_invalid_provocation(
    provocation: ProvocationConfiguration, producer: ProducerConfiguration, variant: Variant
) -> str | None:
    made = PROVOCATIONS[provocation.error]
    if producer.client != "librdkafka":
        return f"errors are provoked by librdkafka clients only, not by producer.client={producer.client}"
    if made.value_bytes and made.by_broker and producer.compression_type != "none":
        return f"compression.type={producer.compression_type} makes records too small to provoke {provocation.error}"
    if provocation.error == "timeout" and producer.acks == "0":
        return "with acks=0 a record counts as delivered once it is in a socket buffer, so nothing would time out"
    if provocation.error == "invalid-timestamp" and version_numbers(variant.oldest_version) < (3, 6):
        return f"message.timestamp.before.max.ms needs brokers of 3.6 or later, not {variant.oldest_version} (KIP-937)"
    if provocation.error == "not-authorised" and variant.metadata_mode == "zookeeper":
        return "not-authorised needs StandardAuthorizer, which keeps its rules in KRaft's metadata log (KIP-801)"
    lacking = [key for key, value in AUTHORIZER_PROPERTIES.items() if variant.properties.get(key) != value]
    if provocation.error == "not-authorised" and lacking:
        return f"not-authorised needs variant.properties.{lacking[0]} = {AUTHORIZER_PROPERTIES[lacking[0]]}"
    return None


TRANSACTION_MAX_MS = 900_000
"""The default of the brokers' transaction.max.timeout.ms. [Kafka documentation, broker configuration]"""


def _why_invalid_transaction(
    transaction: TransactionConfiguration, producer: ProducerConfiguration, variant: Variant
) -> str | None:
    if not producer.enable_idempotence:
        return "a transactional.id implies enable.idempotence=true (KIP-98)"
    if transaction.abort_share + transaction.timeout_share > 1:
        return f"abort_share {transaction.abort_share:g} + timeout_share {transaction.timeout_share:g} exceeds 1"
    too_long = producer.delivery_timeout_ms > transaction.transaction_timeout_ms
    if too_long and "delivery_timeout_ms" not in producer.left_to_client:
        return (
            f"delivery.timeout.ms={producer.delivery_timeout_ms} exceeds "
            f"transaction.timeout.ms={transaction.transaction_timeout_ms} (librdkafka CONFIGURATION, transaction.timeout.ms)"
        )
    return _why_too_long(transaction.transaction_timeout_ms, variant)


def _why_too_long(transaction_timeout_ms: int, variant: Variant) -> str | None:
    limit_ms = int(variant.properties.get("transaction.max.timeout.ms", TRANSACTION_MAX_MS))
    if transaction_timeout_ms > limit_ms:
        return (
            f"transaction.timeout.ms={transaction_timeout_ms} exceeds the brokers' "
            f"transaction.max.timeout.ms={limit_ms} (KIP-98: INVALID_TRANSACTION_TIMEOUT)"
        )
    return None


def _why_invalid_copier(copier: CopierConfiguration, producer: ProducerConfiguration, variant: Variant) -> str | None:
    if copier.transactional and not producer.enable_idempotence:
        return "a transactional.id implies enable.idempotence=true (KIP-98)"
    if copier.abort_share and not copier.transactional:
        return f"abort_share={copier.abort_share:g} needs transactions, which delivery={copier.delivery} has none of"
    if copier.client == "java" and (copier.delivery, copier.protocol) != ("exactly-once", "classic-eager"):
        return "TransactionalMessageCopier can only do exactly-once, with the range assignor of the classic protocol"
    if copier.client == "java" and copier.abort_share:
        return "TransactionalMessageCopier aborts a third of its transactions, or none: it knows no abort_share"
    if why := _why_invalid_protocol(copier.protocol, copier.properties, variant):
        return why
    return _why_too_long(copier.transaction_timeout_ms, variant) if copier.transactional else None


def _why_invalid_application(application: ApplicationConfiguration) -> str | None:
    try:
        for text in (*application.command, *application.environment.values()):
            text.format_map(dict.fromkeys(PLACEHOLDERS, ""))
    except (KeyError, ValueError, IndexError, AttributeError) as error:
        return (
            f"application.command and environment: {error} is no placeholder. There are "
            f"{', '.join('{' + name + '}' for name in PLACEHOLDERS)}; write {{{{ and }}}} for braces"
        )
    if application.output_carrier == "header" and application.input_carrier == "value":
        return "output_carrier=header needs input_carrier=header: else there is no header to copy"
    if application.output_carrier == "value" and application.input_carrier == "header":
        return "output_carrier=value needs input_carrier=value: else the value has no identity"
    return None
