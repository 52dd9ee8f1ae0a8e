"""Which settings cannot be combined, of what only one kind of workload has: each rule with its source. Pure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.configuration import (
    ApplicationConfiguration,
    CopierConfiguration,
    GroupConfiguration,
    ProducerConfiguration,
    ProvocationConfiguration,
    TransactionConfiguration,
    Variant,
    version_numbers,
)
from harness.provocations import AUTHORIZER_PROPERTIES, PROVOCATIONS

if TYPE_CHECKING:
    from harness.matrix import Combination

PLACEHOLDERS = ("bootstrap", "input", "output", "group", "instance", "delivery", "python", "trials")
"""Of an application's command and environment."""


def why_invalid_scope(combination: "Combination", variant: Variant) -> str | None:
    """The rule that what only its kind of workload has breaks."""
    producer = combination.producer
    if combination.transaction:
        return _why_invalid_transaction(combination.transaction, producer, variant)
    if combination.group:
        return _why_invalid_group(combination.group, producer, variant)
    if combination.copier:
        return _why_invalid_copier(combination.copier, producer, variant)
    if combination.application:
        return _why_invalid_application(combination.application)
    if combination.provocation:
        return _why_invalid_provocation(combination.provocation, producer, variant)
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
    return _why_invalid_protocol(group.protocol, group.properties, variant)


JAVA_COMMITS = ("sync-after", "auto")
"""The ways in which a VerifiableConsumer commits: with commitSync after each poll, or by itself at an interval."""


def _why_not_java(group: GroupConfiguration) -> str | None:
    """What org.apache.kafka.tools.VerifiableConsumer cannot be told, as a member of a group."""
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
        return f"group.protocol=consumer has no {of_brokers[0]}: it is the brokers' to set (KIP-848)"
    return None


def _why_invalid_provocation(
    provocation: ProvocationConfiguration, producer: ProducerConfiguration, variant: Variant
) -> str | None:
    made = PROVOCATIONS[provocation.error]
    if producer.client != "librdkafka":
        return f"errors are provoked by librdkafka clients only, not by producer.client={producer.client}"
    if made.value_bytes and made.by_broker and producer.compression_type != "none":
        return f"compression.type={producer.compression_type} makes a record that is {provocation.error} a small one"
    if provocation.error == "timeout" and producer.acks == "0":
        return "acks=0 counts as delivered what is in the buffer of a socket: nothing would time out"
    if provocation.error == "invalid-timestamp" and version_numbers(variant.oldest_version) < (3, 6):
        return f"message.timestamp.before.max.ms needs brokers of 3.6 or later, not {variant.oldest_version} (KIP-937)"
    if provocation.error == "not-authorised" and variant.metadata_mode == "zookeeper":
        return "not-authorised needs StandardAuthorizer, which keeps its rules in KRaft's metadata log (KIP-801)"
    lacking = [key for key, value in AUTHORIZER_PROPERTIES.items() if variant.properties.get(key) != value]
    if provocation.error == "not-authorised" and lacking:
        return f"not-authorised needs variant.properties.{lacking[0]} = {AUTHORIZER_PROPERTIES[lacking[0]]}"
    return None


TRANSACTION_MAX_MS = 900_000
"""Default of the brokers' transaction.max.timeout.ms. [Kafka documentation, broker configuration]"""


def _why_invalid_transaction(
    transaction: TransactionConfiguration, producer: ProducerConfiguration, variant: Variant
) -> str | None:
    if not producer.enable_idempotence:
        return "a transactional.id implies enable.idempotence=true (KIP-98)"
    if transaction.abort_share + transaction.timeout_share > 1:
        return f"abort_share {transaction.abort_share:g} + timeout_share {transaction.timeout_share:g} exceeds 1"
    if producer.delivery_timeout_ms > transaction.transaction_timeout_ms:
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
        return "TransactionalMessageCopier is exactly-once alone, with the range assignor of the classic protocol"
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
