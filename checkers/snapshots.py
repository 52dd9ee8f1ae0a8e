"""Do brokers remember their producers? Stage check: producer snapshots against the batches of the same replica."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from checkers.lookup import differs_from_previous, distinct
from checkers.replicas import unread_copies
from harness.protocols import CopyFacts, KernelResult, PartitionHistory
from harness.schema import MISSING, NONE, ObservationKind
from harness.snapshot_cases import SnapshotCase
from harness.witnesses import WITNESSES_MAX, make_witnesses

_TRANSACTIONAL, _CONTROL = 0x10, 0x20
"""Bits of a batch's attributes."""
_SEQUENCES = 1 << 31
"""After the greatest int32 a sequence begins at 0 again. [DefaultRecordBatch.incrementSequence]"""
_COMPARED = (
    ("producer_epoch", SnapshotCase.EPOCH),
    ("last_sequence", SnapshotCase.LAST_BATCH),
    ("last_offset", SnapshotCase.LAST_BATCH),
    ("offset_delta", SnapshotCase.LAST_BATCH),
    ("transaction_offset", SnapshotCase.TRANSACTION),
    ("timestamp_ms", SnapshotCase.TIMESTAMP),
)
Columns = Mapping[str, np.ndarray]


def snapshot_conflict(history: PartitionHistory) -> KernelResult:
    """A replica's producer snapshot of offset O says of each producer what that replica's batches below O say.

    Source: KIP-98, "Producer ID mapping"; ProducerStateManager, ProducerAppendInfo, ProducerStateEntry: the state is that of
    the last batch or marker; another epoch forgets the batches of the one before; a transaction begins with its first batch
    and ends with a marker. What recovery begins with decides whether a retry is taken for new.

    Counts (replica, snapshot, producer) that differ, by their first difference (`case`, SnapshotCase). `log_offset` is that
    of the snapshot, `reader` the broker; `other_offset` the last offset of the producer below it, by the batches; `sequence`
    the last sequence by the snapshot, `other_sequence` by the batches. `begin_ns` is the first send to the partition that
    was recorded, `end_ns` when the copies were read. Judged are pairs of a snapshot and a producer.

    Not judged: compacted topics (cleaning rewrites batches), snapshots beyond the end of the log (a broker discards them),
    and what only batches could tell that retention took away. O(n log n), no loop but over copies.
    """
    if history.compacted:
        return KernelResult(make_witnesses(0, {}), count=0, judged=0)
    found, judged = [make_witnesses(0, {})], 0
    for node, copy in sorted(history.copies.items()):
        pairs = _compare(history, node, copy)
        judged += len(pairs["case"])
        if len(pairs["case"]):
            chosen = {name: values[pairs["case"] > 0] for name, values in pairs.items()}
            found.append(_witnesses(history, node, chosen))
    witnesses = np.concatenate(found)
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), judged, _incomplete(history))


def _incomplete(history: PartitionHistory) -> str | None:
    if unread := unread_copies(history):
        return unread
    for offset, node in _offsets(history, ObservationKind.REPLICA_SNAPSHOT_DAMAGED):
        return f"the snapshot {offset} of partition {history.partition} on broker {node} cannot be read"
    return None


def _offsets(history: PartitionHistory, kind: ObservationKind) -> Iterator[tuple[int, int]]:
    """(offset, broker) of each snapshot noted so at the end."""
    seen = history.observations
    rows = np.flatnonzero((seen["kind"] == kind) & (seen["step"] == NONE))
    return zip(seen["value"][rows].tolist(), seen["node"][rows].tolist(), strict=True)


def _compare(history: PartitionHistory, node: int, copy: CopyFacts) -> dict[str, np.ndarray]:
    """All pairs of a snapshot and a producer that either of them knows: arrays of one length, `case` 0 = they agree."""
    told = {name: history.snapshots[name] for name in history.snapshots}
    mine = np.flatnonzero((told["node"] == node) & (told["step"] == NONE) & (told["snapshot_offset"] <= copy.log_end))
    told = {name: values[mine] for name, values in told.items()}
    noted = _offsets(history, ObservationKind.REPLICA_SNAPSHOT)
    offsets = np.array(sorted(o for o, n in noted if n == node and o <= copy.log_end), dtype=np.int64)
    if not len(offsets) and not len(mine):
        return {"case": np.empty(0, dtype=np.int32)}
    states = _states(history.replicas, node, copy.log_start)
    producers = distinct(np.concatenate([states.producer, told["producer_id"]]))
    # Every pair there could be, in the order (producer, offset): a key of its own for each.
    key = np.arange(len(producers) * len(offsets))
    rank, of = key // max(1, len(offsets)), key % max(1, len(offsets))
    here = states.at(producers[rank], offsets[of])
    there = np.full(len(key), -1, dtype=np.intp)
    place = np.searchsorted(producers, told["producer_id"]) * len(offsets)
    there[place + np.searchsorted(offsets, told["snapshot_offset"])] = np.arange(len(mine))
    known = np.flatnonzero((here >= 0) | (there >= 0))
    case = _cases(states, told, here[known], there[known], log_start=copy.log_start)
    return {
        "case": case,
        "log_offset": offsets[of[known]],
        "other_offset": _or_none(states.columns["end"], here[known]),
        "sequence": _or_none(told["last_sequence"], there[known]),
        "other_sequence": _or_none(states.columns["last_sequence"], here[known]),
    }


def _cases(states: "_States", told: Columns, here: np.ndarray, there: np.ndarray, *, log_start: int) -> np.ndarray:
    """int32[k]: SnapshotCase, 0 = they agree or it cannot be told. `here`, `there`: rows of both, -1 = none."""
    case = np.zeros(len(here), dtype=np.int32)
    case[there < 0] = SnapshotCase.UNKNOWN_THERE
    # What retention took away may have been known rightly.
    above = _or_none(told["last_offset"], there) >= log_start
    case[(here < 0) & (above | (log_start == 0))] = SnapshotCase.UNKNOWN_HERE
    both = np.flatnonzero((here >= 0) & (there >= 0))
    for name, what in _COMPARED:
        differ = states.columns[name][here[both]] != told[name][there[both]]
        if what is SnapshotCase.LAST_BATCH and log_start:
            differ &= states.columns["last_batch_known"][here[both]] > 0
        if what is SnapshotCase.TRANSACTION and log_start:
            differ &= states.columns["transaction_known"][here[both]] > 0
        case[both[differ & (case[both] == 0)]] = what
    return case


@dataclass(frozen=True, slots=True)
class _States:
    """The state of a producer after each of its batches, ascending by (producer, offset)."""

    producer: np.ndarray
    base_offset: np.ndarray
    columns: Columns
    """The columns of `snapshots`, and `end`, the last offset of the batch. `last_batch_known`, `transaction_known`: 0 where
    batches before the first one here could have told otherwise."""

    def at(self, producer: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """intp[k]: the last batch of each producer below each offset, -1 = none. Ascending by (producer, offset)."""
        if not len(self.producer):
            return np.full(len(producer), -1, dtype=np.intp)
        # Both ascend in the same order: one merge finds how many batches come before each question.
        order = np.lexsort(
            (
                np.concatenate([np.ones(len(self.producer), "i1"), np.zeros(len(producer), "i1")]),
                np.concatenate([self.base_offset, offset]),
                np.concatenate([self.producer, producer]),
            )
        )
        before = np.cumsum(order < len(self.producer)) - 1
        found = np.empty(len(producer), dtype=np.intp)
        asked = order >= len(self.producer)
        found[order[asked] - len(self.producer)] = before[asked]
        return np.asarray(np.where((found >= 0) & (self.producer[found] == producer), found, -1))


def _states(replicas: Columns, node: int, log_start: int) -> _States:
    rows = np.flatnonzero((replicas["node"] == node) & (replicas["step"] == NONE) & (replicas["producer_id"] >= 0))
    rows = rows[replicas["last_offset"][rows] >= log_start]
    rows = rows[np.lexsort((replicas["base_offset"][rows], replicas["producer_id"][rows]))]
    batch = {name: replicas[name][rows] for name in replicas}
    count, place = len(rows), np.arange(len(rows))
    first = differs_from_previous(batch["producer_id"])
    begins = np.maximum.accumulate(np.where(first, place, 0))
    control = (batch["attributes"] & _CONTROL) != 0
    # The last batch of records: of the same epoch, or it is forgotten.
    under = np.maximum.accumulate(np.where(first | differs_from_previous(batch["producer_epoch"]), place, 0))
    last = np.maximum.accumulate(np.where(control, -1, place)) if count else place
    has_last = last >= under
    # The open transaction: the first batch in one after the last marker.
    marker = np.maximum.accumulate(np.where(control, place, -1)) if count else place
    marked = marker >= begins
    begun = np.where((batch["attributes"] & (_TRANSACTIONAL | _CONTROL)) == _TRANSACTIONAL, place, count)
    next_begun = np.append(np.minimum.accumulate(begun[::-1])[::-1], count)
    opened = next_begun[np.where(marked, marker + 1, begins)]
    delta = batch["last_offset"] - batch["base_offset"]
    sequence = (batch["base_sequence"].astype(np.int64) + delta) % _SEQUENCES
    columns = {
        "producer_epoch": batch["producer_epoch"],
        "last_sequence": np.where(has_last, sequence[last], NONE),
        "last_offset": np.where(has_last, batch["last_offset"][last], NONE),
        "offset_delta": np.where(has_last, delta[last], 0),
        "timestamp_ms": batch["max_timestamp_ms"],
        "transaction_offset": np.where(opened <= place, batch["base_offset"][np.minimum(opened, place)], NONE),
        "end": batch["last_offset"],
        "last_batch_known": has_last | (under > begins),
        "transaction_known": marked,
    }
    return _States(batch["producer_id"], batch["base_offset"], columns)


def _or_none(values: np.ndarray, place: np.ndarray) -> np.ndarray:
    """int64[k]: `values` at these places, NONE where there is none (-1)."""
    if not len(values):
        return np.full(len(place), NONE, dtype=np.int64)
    return np.where(place >= 0, values[place], NONE).astype(np.int64)


def _witnesses(history: PartitionHistory, node: int, pairs: Columns) -> np.ndarray:
    invoked_ns, read_ns = history.sends["invoked_ns"], history.snapshots["read_ns"]
    sent = invoked_ns[invoked_ns != MISSING]
    columns: dict[str, np.ndarray | int] = {
        **pairs,
        "partition": history.partition,
        "reader": node,
        "begin_ns": int(sent.min()) if len(sent) else MISSING,
        "end_ns": int(read_ns.max()) if len(read_ns) else MISSING,
    }
    return make_witnesses(len(pairs["case"]), columns)
