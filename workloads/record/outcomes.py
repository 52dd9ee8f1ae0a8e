"""What a produce() error code proves about the record: one table, reviewed line by line.

`fail` means *certainly did not take effect*, and only two things prove that: produce() raised, so that the record
never entered the client's queue; or the client was forbidden to retry and the one answer it got is a refusal from
before the append. With retries an earlier attempt may have been appended although the last was refused. What is not
in the table is INFO: librdkafka knows more (rd_kafka_message_status), but its Python binding does not pass it on.

"Forbidden to retry" has a hole. Measured with librdkafka 2.16.0 and message.send.max.retries=0: after
NOT_LEADER_FOR_PARTITION, LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PART, BROKER_NOT_AVAILABLE and REPLICA_NOT_AVAILABLE
a record is sent again all the same; yet with acks=all a leader may answer the first of them after the append (so in
the trace of librdkafka#4953). The report informs only of the last attempt. But nothing is sent again before the retry
back-off (less its jitter of 20 %) has passed: so a refusal is certain only if it came sooner (`certain_within_ns`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError

from prozess.harness.config.configuration import version_numbers
from prozess.harness.schema import Outcome
from prozess.workloads.librdkafka import BACKOFF_KEY, BACKOFF_MS, LIMIT_KEY, library_version


@dataclass(frozen=True, slots=True)
class CodeRule:
    """Says what this final code of a delivery report means. Each line was reviewed."""

    code: int
    name: str
    with_retries: Outcome
    without_retries: Outcome
    reason: str


def _refused(name: str, reason: str) -> CodeRule:
    return CodeRule(getattr(KafkaError, name), name, Outcome.INFO, Outcome.FAIL, reason)


def _unknown(name: str, reason: str) -> CodeRule:
    return CodeRule(getattr(KafkaError, name, _NO_CODE), name, Outcome.INFO, Outcome.INFO, reason)


_NO_CODE = -(2**31)
"""Stands for the code of an error that this version of librdkafka does not have."""


REVIEWED: tuple[CodeRule, ...] = (
    CodeRule(KafkaError.NO_ERROR, "NO_ERROR", Outcome.OK, Outcome.OK, "acknowledged as acks asked; acks=0: handed over"),
    _refused("NOT_ENOUGH_REPLICAS", "checked before the append (Partition.appendRecordsToLeader)"),
    _refused("MSG_SIZE_TOO_LARGE", "the leader validates the size of the batch before it appends (MESSAGE_TOO_LARGE)"),
    _refused("RECORD_LIST_TOO_LARGE", "the batch exceeds the segment: refused before the append"),
    _refused("INVALID_RECORD", "LogValidator refuses the batch before the append"),
    _refused("INVALID_TIMESTAMP", "LogValidator refuses the batch before the append"),
    _refused("TOPIC_AUTHORIZATION_FAILED", "checked before the append (KafkaApis.handleProduceRequest)"),
    _refused("_PURGE_QUEUE", "purged while still in the client's queue: this attempt was never sent"),
    _unknown("_PURGE_INFLIGHT", "purged after it was sent: the broker may have it"),
    _unknown("_MSG_TIMED_OUT", "the same code for never sent and for appended; seen on records that were in the log"),
    _unknown("_TIMED_OUT", "no answer in time: the broker may have it"),
    _unknown("_TRANSPORT", "the connection broke: the request may have arrived"),
    _unknown("REQUEST_TIMED_OUT", "the leader appended, replication was not confirmed in time"),
    _unknown("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "appended, as its name says"),
    _unknown("NOT_LEADER_FOR_PARTITION", "with acks=all also answered after the append, when leadership moves meanwhile"),
    _unknown("UNKNOWN_TOPIC_OR_PART", "with acks=all also answered after the append"),
    _unknown("_INVALID_DIFFERENT_RECORD", "refused beside an invalid record (KIP-467); like all but a few, no certain one"),
    _unknown("KAFKA_STORAGE_ERROR", "the disk failed during the append: part of it may be there"),
    _unknown("OUT_OF_ORDER_SEQUENCE_NUMBER", "says that an earlier batch is missing, not what became of this one"),
    _unknown("UNKNOWN_PRODUCER_ID", "the broker forgot the producer; an earlier attempt may be in the log"),
    _unknown("_FATAL", "the instance died; whatever was in flight may have arrived"),
    _unknown("_FENCED", "a newer producer took over; whatever was in flight may have arrived"),
)  # fmt: skip
"""Kafka's MESSAGE_TOO_LARGE is librdkafka's MSG_SIZE_TOO_LARGE (10)."""


_WITH = {rule.code: rule.with_retries for rule in REVIEWED}


_WITHOUT = {rule.code: rule.without_retries for rule in REVIEWED}


INSTANCE_IS_DEAD: frozenset[int] = frozenset({KafkaError._FATAL, KafkaError._FENCED})
"""After these codes the producer can send nothing more, whatever `fatal()` of the single report says."""


_JITTER = 0.2


_MEASURED = (2, 16)


def certain_within_ns(properties: Mapping[str, str | int | float | bool]) -> int:
    """Returns how soon after its invocation a refusal must be reported to be certainly the answer to the first
    attempt. 0: it never certainly is, since it was measured with librdkafka 2.16.0, and this is an older one."""
    if version_numbers(library_version()) < _MEASURED:
        return 0
    backoff_ms = float(properties.get(BACKOFF_KEY, BACKOFF_MS))
    limit_ms = float(properties.get(LIMIT_KEY, backoff_ms))
    return int(min(backoff_ms, limit_ms) * (1 - _JITTER) * 1_000_000)


def outcome_of(code: int, *, retries_allowed: bool) -> Outcome:
    """Returns what the final code of a delivery report proves. Unlisted codes prove nothing: INFO."""
    return (_WITH if retries_allowed else _WITHOUT).get(code, Outcome.INFO)


def outcomes_by_code(*, retries_allowed: bool) -> dict[int, Outcome]:
    """Returns what each final code proves, for a delivery callback. INFO is the default."""
    return dict(_WITH if retries_allowed else _WITHOUT)
