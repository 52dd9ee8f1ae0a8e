"""Rows of `sends` completed in place, and rows of `withheld`: what a producer records besides issuing.

Nothing here sends. Rows are little-endian and 8-byte aligned, so that completing one is two native stores.
"""

import mmap
import struct
import sys
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, Message

from harness.rows import RowWriter
from harness.schema import MISSING, NONE, SENDS, Outcome
from workloads.carrier import IDENTITY, IDENTITY_OFFSET
from workloads.client import NowNs
from workloads.outcomes import certain_within_ns, outcomes_by_code
from workloads.properties import offsets_are_told, retries_allowed

assert sys.byteorder == "little", "rows are little-endian, and completed with native stores"
_AT = {name: SENDS.row_dtype.fields[name][1] for name in SENDS.row_dtype.names or ()}  # type: ignore[index]
_OUTCOME, _COMPLETED, _INVOKED = struct.Struct("@ii"), struct.Struct("@qq"), struct.Struct("@q")
"""outcome, code; completed_ns, log_offset; invoked_ns."""
assert _AT["code"] == _AT["outcome"] + 4
assert _AT["log_offset"] == _AT["completed_ns"] + 8


def completer(
    sends: RowWriter,
    properties: Mapping[str, str | int | float | bool],
    now_ns: NowNs,
    settled: Callable[[int, KafkaError | None], None],
) -> Callable[[KafkaError | None, Message], None]:
    """The delivery callback shared by all sends of a client: finds the row by the identity in the value and completes it,
    see `completer_at`. Reading the identity from the value costs less than a closure per record."""
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
    """Completes the row of a record whose partition and sequence are told: a tombstone's delivery report has no value, and
    the binding does not give it the headers.

    `properties` are the producer's: they decide what an error code proves. `settled(partition, error)` is called for each.
    `completed_ns` is written after the outcome: whoever follows the rows live takes a row that has it as judged.
    Remembering the segment costs less than asking for it.
    """
    pack_outcome, pack_completed = _OUTCOME.pack_into, _COMPLETED.pack_into
    at_outcome, at_completed, size = _AT["outcome"], _AT["completed_ns"], SENDS.row_dtype.itemsize
    outcomes, certain_ns = outcomes_by_code(retries_allowed=retries_allowed(properties)), certain_within_ns(properties)
    invoked_at, unknown, ok, fail = _INVOKED.unpack_from, int(Outcome.INFO), int(Outcome.OK), int(Outcome.FAIL)
    answered = offsets_are_told(properties)
    row: mmap.mmap | None = None
    first = end = 0

    def complete(partition: int, sequence: int, error: KafkaError | None, message: Message) -> None:
        nonlocal row, first, end
        completed_ns, log_offset = now_ns(), NONE
        if not first <= sequence < end:
            row, first, end = segment_of(sends, sequence)
        assert row is not None
        start = (sequence - first) * size
        if error is None:
            # None for a duplicate sequence, which is a success that does not know its offset.
            told = message.offset()
            if answered and told is not None and told >= 0:
                log_offset = told
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


def segment_of(writer: RowWriter, index: int) -> tuple[mmap.mmap, int, int]:
    """The mapping that holds row `index`, the first row in it, and the first row after it."""
    mapping, offset = writer.slot(index)
    first = index - offset // writer.table.row_dtype.itemsize
    return mapping, first, first + len(mapping) // writer.table.row_dtype.itemsize


def complete_refused(sends: RowWriter, sequence: int, *, code: int, completed_ns: int) -> None:
    """produce() raised: the record never entered the client's queue, so it certainly failed."""
    row, start = sends.slot(sequence)
    _OUTCOME.pack_into(row, start + _AT["outcome"], int(Outcome.FAIL), code)
    _COMPLETED.pack_into(row, start + _AT["completed_ns"], completed_ns, NONE)


class WithheldRows:
    """Rows of `withheld`: one per stretch during which a partition's cap held records back."""

    def __init__(self, writer: RowWriter, now_ns: NowNs) -> None:
        self._writer, self._now_ns = writer, now_ns
        self.open: dict[int, tuple[int, int, int]] = {}
        """Dense partition → (row, begun_ns, count)."""

    def hold(self, partition: int) -> None:
        """One record more is held back."""
        if partition not in self.open:
            begun_ns = self._now_ns()
            row = self._writer.append(begun_ns, MISSING, 1, partition)
            self.open[partition] = row, begun_ns, 1
            return
        row, begun_ns, count = self.open[partition]
        self.open[partition] = row, begun_ns, count + 1
        self._writer.rewrite(row, begun_ns, MISSING, count + 1, partition)

    def release(self, partition: int) -> None:
        """Records are issued again; safe when nothing was held back."""
        if partition in self.open:
            row, begun_ns, count = self.open.pop(partition)
            self._writer.rewrite(row, begun_ns, self._now_ns(), count, partition)

    def end_all(self) -> None:
        """Nothing is to be issued any more: nothing is held back."""
        for partition in tuple(self.open):
            self.release(partition)

    def close(self) -> None:
        """Flush. Open stretches stay open: still held back at the end."""
        self._writer.close()
