"""Rows of `sends` are written before a record is sent, and completed in place. A table says what each error code
proves."""

import mmap
import struct
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Protocol, cast

import numpy as np
from confluent_kafka import KafkaError, Message

from prozess.harness.columns import row_dtype
from prozess.harness.config.configuration import version_numbers
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import MISSING, NONE, SENDS, TRANSACTIONS, Outcome
from prozess.workloads.client import NowNs
from prozess.workloads.librdkafka import BACKOFF_KEY, BACKOFF_MS, LIMIT_KEY, library_version
from prozess.workloads.record.identity import IDENTITY, IDENTITY_OFFSET, encoder_of_many, identities_of
from prozess.workloads.settings import offsets_are_reported, retries_allowed

# Rows of `sends` completed in place, and rows of `withheld`: what a producer records besides issuing.
#
# Nothing here sends. Rows are little-endian and 8-byte aligned, so that completing one is two native stores.


assert sys.byteorder == "little", "rows are little-endian, and completed with native stores"
_AT = {name: row_dtype(SENDS).fields[name][1] for name in row_dtype(SENDS).names or ()}  # type: ignore[index]
_OUTCOME, _COMPLETED, _TIME = struct.Struct("@ii"), struct.Struct("@qq"), struct.Struct("@q")
"""Layouts of columns: outcome, code; completed_ns, log_offset; one column of eight bytes."""
assert _AT["code"] == _AT["outcome"] + 4
assert _AT["log_offset"] == _AT["completed_ns"] + 8


def completer(
    sends: RowWriter,
    properties: Mapping[str, str | int | float | bool],
    now_ns: NowNs,
    settled: Callable[[int, KafkaError | None], None],
) -> Callable[[KafkaError | None, Message], None]:
    """Returns the delivery callback shared by all sends of a client. It finds the row by the identity in the value and
    completes it, see `completer_at`. Reading the identity from the value costs less than a closure per record."""
    unpack, complete = IDENTITY.unpack_from, completer_at(sends, properties, now_ns, settled)

    def by_value(error: KafkaError | None, message: Message) -> None:
        partition, sequence = unpack(message.value(), IDENTITY_OFFSET)  # type: ignore[arg-type] # we sent one
        complete(partition, sequence, error, message)

    return by_value


def completer_at(
    sends: RowWriter,
    properties: Mapping[str, str | int | float | bool],
    now_ns: NowNs,
    settled: Callable[[int, KafkaError | None], None],
) -> Callable[[int, int, KafkaError | None, Message], None]:
    """Returns a function that completes the row of a record whose partition and sequence are reported: a tombstone's
    delivery report has no value, and the binding does not give it the headers.

    `properties` are the producer's: they decide what an error code proves. `settled(partition, error)` is called for each.
    `completed_ns` is written after the outcome: whoever follows the rows live takes a row that has it as judged.
    Remembering the segment costs less than asking for it.
    """
    pack_outcome, pack_completed = _OUTCOME.pack_into, _COMPLETED.pack_into
    at_outcome, at_completed, size = _AT["outcome"], _AT["completed_ns"], row_dtype(SENDS).itemsize
    outcomes, certain_ns = outcomes_by_code(retries_allowed=retries_allowed(properties)), certain_within_ns(properties)
    invoked_at, unknown, ok, fail = _TIME.unpack_from, int(Outcome.INFO), int(Outcome.OK), int(Outcome.FAIL)
    answered = offsets_are_reported(properties)
    row: mmap.mmap | None = None
    first = end = 0

    def complete(partition: int, sequence: int, error: KafkaError | None, message: Message) -> None:
        nonlocal row, first, end
        completed_ns, log_offset = now_ns(), NONE
        if not first <= sequence < end:
            row, first, end = sends.segment_at(sequence)
        assert row is not None
        start = (sequence - first) * size
        if error is None:
            # None for a duplicate sequence, which is a success that does not know its offset.
            offset = message.offset()
            if answered and offset is not None and offset >= 0:
                log_offset = offset
            pack_outcome(row, start + at_outcome, ok, 0)
        else:
            code = error.code()
            outcome = int(outcomes.get(code, unknown))
            if outcome == fail and completed_ns - invoked_at(row, start + _AT["invoked_ns"])[0] >= certain_ns:
                outcome = unknown  # it may have been the answer to a second attempt
            pack_outcome(row, start + at_outcome, outcome, code)
        pack_completed(row, start + at_completed, completed_ns, log_offset)
        settled(partition, error)

    return complete


def complete_refused(sends: RowWriter, sequence: int, *, code: int, completed_ns: int) -> None:
    """Completes a row as failed: produce() raised, so the record never entered the client's queue."""
    row, start = sends.slot(sequence)
    _OUTCOME.pack_into(row, start + _AT["outcome"], int(Outcome.FAIL), code)
    _COMPLETED.pack_into(row, start + _AT["completed_ns"], completed_ns, NONE)


class WithheldRows:
    """Writes rows of `withheld`: one per stretch during which a partition's cap held records back."""

    def __init__(self, writer: RowWriter, now_ns: NowNs) -> None:
        self._writer, self._now_ns = writer, now_ns
        self.open: dict[int, tuple[int, int, int]] = {}
        """The stretches that go on: dense partition → (row, begun_ns, count)."""

    def hold(self, partition: int) -> None:
        """Notes that one more record is held back."""
        if partition not in self.open:
            begun_ns = self._now_ns()
            row = self._writer.append(begun_ns, MISSING, 1, partition)
            self.open[partition] = row, begun_ns, 1
            return
        row, begun_ns, count = self.open[partition]
        self.open[partition] = row, begun_ns, count + 1
        self._writer.rewrite(row, begun_ns, MISSING, count + 1, partition)

    def release(self, partition: int) -> None:
        """Notes that records are issued again. Safe if nothing was held back."""
        if partition in self.open:
            row, begun_ns, count = self.open.pop(partition)
            self._writer.rewrite(row, begun_ns, self._now_ns(), count, partition)

    def end_all(self) -> None:
        """Ends all stretches: nothing is to be issued any more."""
        for partition in tuple(self.open):
            self.release(partition)

    def close(self) -> None:
        """Writes the rows to their end. A stretch that goes on stays open: it was still held back at the end."""
        self._writer.close()


# What a produce() error code proves about the record: one table, reviewed line by line.
#
# `fail` means *certainly did not take effect*, and only two things prove that: produce() raised, so that the record
# never entered the client's queue; or the client was forbidden to retry and the one answer it got is a refusal from
# before the append. With retries an earlier attempt may have been appended although the last was refused. What is not
# in the table is INFO: librdkafka knows more (rd_kafka_message_status), but its Python binding does not pass it on.
#
# "Forbidden to retry" has a hole. Measured with librdkafka 2.16.0 and message.send.max.retries=0: after
# NOT_LEADER_FOR_PARTITION, LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PART, BROKER_NOT_AVAILABLE and REPLICA_NOT_AVAILABLE
# a record is sent again all the same; yet with acks=all a leader may answer the first of them after the append (so in
# the trace of librdkafka#4953). The report informs only of the last attempt. But nothing is sent again before the retry
# back-off (less its jitter of 20 %) has passed: so a refusal is certain only if it came sooner (`certain_within_ns`).


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


# What a producer does by the batch instead of by the record: rows and values before the calls, rows completed after a
# poll.
#
# Per record there is left: produce(), and one short call per delivery report. A few records are cheaper one by one
# (`completer`); `FEW` is where numpy begins to pay.


FEW = 32
_DENSE = itemgetter(0)
PartitionName = tuple[int, str, int]
"""A partition: its dense id, its topic, and its number within the topic."""


class Issuing:
    """Makes rows and values of many sends at once."""

    def __init__(self, sends: RowWriter, now_ns: NowNs, *, sender: int, value_bytes: int, most: int) -> None:
        """`most`: how many records there may be at once."""
        self._sends, self._now_ns = sends, now_ns
        self._encode = encoder_of_many(sender=sender, value_bytes=value_bytes)
        alike = {"completed_ns": MISSING, "log_offset": NONE, "transaction": NONE, "key": NONE}
        alike |= {"outcome": int(Outcome.INFO), "code": 0, "size": value_bytes}
        kinds = {column.name: column.kind for column in sends.table.columns}
        self._alike = {name: np.full(most, value, dtype=kinds[name]) for name, value in alike.items()}

    def invoke(self, turns: Sequence[PartitionName]) -> list[bytes]:
        """Writes the rows of records before any of them is attempted, and returns their values. The first has the
        sequence that was `sends.count`. One time for all: rows say "not before"."""
        count, first = len(turns), self._sends.count
        partitions = np.fromiter(map(_DENSE, turns), dtype=np.int32, count=count)
        sequences = np.arange(first, first + count)
        own: dict[str, np.ndarray] = {
            "invoked_ns": np.full(count, self._now_ns(), dtype=np.int64),
            "sequence": sequences,
            "partition": partitions,
        }
        self._sends.extend(own | {name: values[:count] for name, values in self._alike.items()})
        return self._encode(partitions, sequences)


class Reports:
    """Completes delivery reports together after each poll. An error is completed at once, by `complete_one`."""

    def __init__(
        self,
        sends: RowWriter,
        now_ns: NowNs,
        *,
        complete_one: Callable[[KafkaError | None, Message], None],
        acknowledged: Callable[[Mapping[int, int]], None],
        offsets_reported: bool = True,
    ) -> None:
        """`acknowledged` is called with how many of each partition (dense id) were completed without error, but for those
        that went to `complete_one`. `offsets_reported`: see `prozess.workloads.settings.offsets_are_reported`."""
        self._sends, self._now_ns = sends, now_ns
        self._complete_one, self._acknowledged = complete_one, acknowledged
        self._offsets_reported = offsets_reported
        self._waiting: list[Message] = []

    def reported(self, error: KafkaError | None, message: Message) -> None:
        """Takes a delivery report."""
        if error is None:
            self._waiting.append(message)
        else:
            self._complete_one(error, message)

    def complete(self) -> None:
        """Completes the rows of all that was reported since the last call. Call it after every poll. `completed_ns` is
        an upper bound, so the time of this call is right for all of them."""
        if not self._waiting:
            return
        messages, self._waiting = self._waiting, []
        if len(messages) < FEW:
            for message in messages:
                self._complete_one(None, message)
            return
        partitions, sequences = identities_of(cast(list[bytes], list(map(Message.value, messages))))
        offsets = _offsets(messages) if self._offsets_reported else NONE
        columns: dict[str, np.ndarray | int] = {
            "outcome": int(Outcome.OK),
            "log_offset": offsets,
            "completed_ns": self._now_ns(),
        }
        self._sends.complete(sequences.astype(np.int64), columns)
        self._acknowledged(Counter(partitions.tolist()))


def _offsets(messages: Sequence[Message]) -> np.ndarray:
    """Returns the offsets of reports (int64). NONE where it is not reported: for a duplicate sequence, which is a success
    all the same."""
    raw = list(map(Message.offset, messages))
    try:
        offsets = np.array(raw, dtype=np.int64)
    except TypeError:
        offsets = np.array([NONE if offset is None else offset for offset in raw], dtype=np.int64)
    return np.maximum(offsets, NONE)


# Rows of `sends` inside transactions, and rows of `transactions`.
#
# A delivery report inside a transaction says that the record was appended, not that it will ever be shown: it gives the
# row its offset, and no more. Outcome and `completed_ns` of every record are its transaction's, given once that has
# ended.


class DeliveryReport(Protocol):
    """A delivery report of any client library, as far as it is needed here: confluent_kafka's `Message` is one."""

    def value(self) -> bytes | None:
        """Returns the record's value."""
        ...

    def offset(self) -> int | None:
        """Returns where the record was appended; None if that is not known."""
        ...


COMMIT, ABORT = 1, 2
"""Values of `transactions.ended_by`."""
_FIELDS = row_dtype(TRANSACTIONS).fields
assert _FIELDS is not None
_COLUMNS = {c.name: (struct.Struct("@q" if c.kind == "i8" else "@i"), _FIELDS[c.name][1]) for c in TRANSACTIONS.columns}


class TransactionalSends:
    """Writes the `sends` of a client whose records are all in transactions. A record's sequence is the index of its
    row."""

    def __init__(self, writer: RowWriter, now_ns: NowNs, *, value_bytes: int) -> None:
        self._writer, self._now_ns, self._value_bytes = writer, now_ns, value_bytes

    @property
    def count(self) -> int:
        """Returns how many sequences were issued."""
        return self._writer.count

    def issue(self, *, transaction: int, partition: int) -> int:
        """Writes the row of a record that is about to be produced, and returns its sequence."""
        sequence = self._writer.count
        values = (self._now_ns(), MISSING, NONE, sequence, transaction, NONE, partition, 0, 0, self._value_bytes)
        return self._writer.append(*values)

    def refused(self, sequence: int, code: int) -> None:
        """Completes a row as failed: produce() raised, so the record is no part of its transaction."""
        complete_refused(self._writer, sequence, code=code, completed_ns=self._now_ns())

    def reported(self, error: KafkaError | None, message: DeliveryReport) -> None:
        """Takes a delivery report: notes where the record was appended, if it was."""
        offset = message.offset()
        if error is None and offset is not None and offset >= 0:
            _, sequence = IDENTITY.unpack_from(message.value() or b"", IDENTITY_OFFSET)
            row, start = self._slot(sequence)
            _TIME.pack_into(row, start + _AT["log_offset"], offset)

    def complete(self, first: int, *, outcome: Outcome, code: int, completed_ns: int) -> None:
        """Completes the records from `first` on with the end of their transaction. `completed_ns` is written last: who
        follows the rows takes a row that has it as judged."""
        for sequence in range(first, self._writer.count):
            row, start = self._slot(sequence)
            if _TIME.unpack_from(row, start + _AT["completed_ns"])[0] == MISSING:
                _OUTCOME.pack_into(row, start + _AT["outcome"], int(outcome), code)
                _TIME.pack_into(row, start + _AT["completed_ns"], completed_ns)

    def close(self) -> None:
        """Writes the rows to their end."""
        self._writer.close()

    def _slot(self, sequence: int) -> tuple[mmap.mmap, int]:
        return self._writer.slot(sequence)


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """What a client knows of one transaction, or of one init_transactions: the columns of `transactions`. Times in ns."""

    transaction: int
    begun_ns: int
    initialised_ns: int
    transactional_id: int
    end_invoked_ns: int = MISSING
    completed_ns: int = MISSING
    ended_by: int = NONE
    outcome: Outcome = Outcome.INFO
    code: int = 0

    def values(self) -> list[int]:
        """Returns the values in the order of the table."""
        return [int(getattr(self, column.name)) for column in TRANSACTIONS.columns]


class TransactionRows:
    """Writes the `transactions` of one client. A row is written before what it reports is tried, and rewritten when
    that is known."""

    def __init__(self, writer: RowWriter, now_ns: NowNs, *, transactional_id: int) -> None:
        self._writer, self._now_ns, self._id = writer, now_ns, transactional_id
        self._row = -1
        self._current: TransactionRow | None = None
        self._initialised_ns = MISSING
        self.transactions = 0
        """How many transactions were begun, which is also the number of the next one."""

    @property
    def current(self) -> TransactionRow:
        """The row that is being written."""
        assert self._current is not None
        return self._current

    def initialising(self) -> None:
        """Notes that init_transactions of a new instance is about to be called."""
        self._initialised_ns = MISSING
        self._append(TransactionRow(NONE, self._now_ns(), MISSING, self._id))

    def initialised(self) -> None:
        """Notes that init_transactions returned."""
        self._initialised_ns = self._now_ns()
        self._rewrite(outcome=Outcome.OK, completed_ns=self._initialised_ns, initialised_ns=self._initialised_ns)

    def begin(self) -> int:
        """Notes that a transaction is about to begin, and returns its number."""
        number = self.transactions
        self.transactions += 1
        self._append(TransactionRow(number, self._now_ns(), self._initialised_ns, self._id))
        return number

    def ending(self, ended_by: int) -> None:
        """Notes that a commit or an abort is about to be invoked. The first of them counts."""
        if self.current.ended_by == NONE:
            self._rewrite(ended_by=ended_by, end_invoked_ns=self._now_ns())

    def ended(self, outcome: Outcome, code: int) -> int:
        """Notes that nothing more will be tried, and returns when that was."""
        now_ns = self._now_ns()
        self._rewrite(outcome=outcome, code=code, completed_ns=now_ns)
        return now_ns

    def close(self) -> None:
        """Writes the rows to their end."""
        self._writer.close()

    def _append(self, row: TransactionRow) -> None:
        self._current, self._row = row, self._writer.append(*row.values())

    def _rewrite(self, **columns: int) -> None:
        """Rewrites a row in place, column by column: its rest and its mark stay whole under a SIGKILL at any moment."""
        self._current = replace(self.current, **columns)  # type: ignore[arg-type] # Outcome is an int
        row, start = self._writer.slot(self._row)
        for name, value in columns.items():
            column, at = _COLUMNS[name]
            column.pack_into(row, start + at, int(value))
