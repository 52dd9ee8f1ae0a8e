"""Rows of `sends` are written before a record is sent, and completed in place. A table says what each error code
proves."""

import mmap
import struct
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Protocol, cast

import numpy as np
from confluent_kafka import KafkaError, Message

from prozess.harness.columns import offsets_in_row, row_dtype
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import MISSING, NONE, SENDS, Outcome
from prozess.workloads.client import NowNs
from prozess.workloads.record.identity import IDENTITY, IDENTITY_OFFSET, encoder_of_many, identities_of
from prozess.workloads.record.outcomes import certain_within_ns, outcomes_by_code
from prozess.workloads.settings import offsets_are_reported, retries_allowed

# Rows of `sends` completed in place, and rows of `withheld`: what a producer records besides issuing.
#
# Nothing here sends. Rows are little-endian and 8-byte aligned, so that completing one is two native stores.


assert sys.byteorder == "little", "rows are little-endian, and completed with native stores"
FIELD_AT = offsets_in_row(SENDS)
OUTCOME_FORM, _COMPLETED, TIME_FORM = struct.Struct("@ii"), struct.Struct("@qq"), struct.Struct("@q")
"""Layouts of columns: outcome, code; completed_ns, log_offset; one column of eight bytes."""
assert FIELD_AT["code"] == FIELD_AT["outcome"] + 4
assert FIELD_AT["log_offset"] == FIELD_AT["completed_ns"] + 8


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
    pack_outcome, pack_completed = OUTCOME_FORM.pack_into, _COMPLETED.pack_into
    at_outcome, at_completed, size = FIELD_AT["outcome"], FIELD_AT["completed_ns"], row_dtype(SENDS).itemsize
    outcomes, certain_ns = outcomes_by_code(retries_allowed=retries_allowed(properties)), certain_within_ns(properties)
    invoked_at, unknown, ok, fail = TIME_FORM.unpack_from, int(Outcome.INFO), int(Outcome.OK), int(Outcome.FAIL)
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
            if outcome == fail and completed_ns - invoked_at(row, start + FIELD_AT["invoked_ns"])[0] >= certain_ns:
                outcome = unknown  # it may have been the answer to a second attempt
            pack_outcome(row, start + at_outcome, outcome, code)
        pack_completed(row, start + at_completed, completed_ns, log_offset)
        settled(partition, error)

    return complete


def complete_refused(sends: RowWriter, sequence: int, *, code: int, completed_ns: int) -> None:
    """Completes a row as failed: produce() raised, so the record never entered the client's queue."""
    row, start = sends.slot(sequence)
    OUTCOME_FORM.pack_into(row, start + FIELD_AT["outcome"], int(Outcome.FAIL), code)
    _COMPLETED.pack_into(row, start + FIELD_AT["completed_ns"], completed_ns, NONE)


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
