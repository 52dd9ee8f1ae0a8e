"""This kernel holds what brokers remember of producers, their producer snapshots, against the batches of the same log."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from prozess.checkers.copies import Columns, Copies, chosen
from prozess.checkers.log.replicas import unread_copies
from prozess.checkers.lookup import differs_from_previous
from prozess.harness.columns import joined
from prozess.harness.errors import Contradicted
from prozess.harness.interfaces.checking import KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import (
    WITNESSES_MAX,
    SnapshotCase,
    join_witnesses,
    make_witnesses,
    no_witnesses,
)
from prozess.harness.schema import MISSING, NONE, ObservationKind

_TRANSACTIONAL, _CONTROL = 0x10, 0x20
"""Bits of a batch's attributes."""
_SEQUENCES = 1 << 31
"""A sequence that reaches the greatest int32 continues at 0. [DefaultRecordBatch.incrementSequence]"""
_COMPARED = (
    ("producer_epoch", SnapshotCase.EPOCH),
    ("last_sequence", SnapshotCase.LAST_BATCH),
    ("last_offset", SnapshotCase.LAST_BATCH),
    ("offset_delta", SnapshotCase.LAST_BATCH),
    ("transaction_offset", SnapshotCase.TRANSACTION),
    ("timestamp_ms", SnapshotCase.TIMESTAMP),
)
_BATCH = (
    *("base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "attributes", "max_timestamp_ms"),
)
_SNAPSHOT = ("snapshot_offset", "producer_id", *(name for name, _ in _COMPARED))

_NOTHING = np.empty(0, dtype=np.int64)


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
    and what only batches could say that retention took away. O(n log n), no loop but over copies.

    Example: below offset 10 a producer wrote the batches 0–4 and 5–9 with the sequences 0–4 and 5–9. A snapshot of 10 that
    says that its last sequence was 4 differs: LAST_BATCH. A snapshot without the producer differs: UNKNOWN_THERE.
    """
    if history.compacted:
        return KernelResult(no_witnesses(), count=0, judged=0)
    found, judged = list[np.ndarray](), 0
    for node, copy in sorted(history.copies.items()):
        pairs = _compare_snapshots(Copies([replace(history, copies={node: copy})]))
        judged += len(pairs["copy"])
        if (pairs["case"] > 0).any():
            chosen = {name: values[pairs["case"] > 0] for name, values in pairs.items() if name != "copy"}
            found.append(_snapshot_witnesses(history, node, chosen))
    witnesses = join_witnesses(found)
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), judged, _snapshots_incomplete(history))


def snapshot_conflict_of_each(histories: Sequence[PartitionHistory]) -> list[KernelResult]:
    """Returns what `snapshot_conflict` finds in each of these small partitions."""
    copies = Copies(histories)
    pairs = _compare_snapshots(copies)
    judged, odd = copies.count(pairs["copy"]), copies.count(pairs["copy"][pairs["case"] > 0])
    seen, owner = joined([one.observations for one in histories], ("kind",))
    for i in owner[seen["kind"] == ObservationKind.REPLICA_SNAPSHOT_DAMAGED].tolist():
        odd[i] += 1
    return [
        snapshot_conflict(one)
        if odd[i] or one.compacted
        else KernelResult(no_witnesses(), 0, judged[i], unread_copies(one))
        for i, one in enumerate(histories)
    ]


def _snapshots_incomplete(history: PartitionHistory) -> str | None:
    if unread := unread_copies(history):
        return unread
    for offset, node in _offsets(history, ObservationKind.REPLICA_SNAPSHOT_DAMAGED):
        return f"the snapshot {offset} of partition {history.partition} on broker {node} cannot be read"
    return None


def _compare_snapshots(copies: Copies) -> dict[str, np.ndarray]:
    """Returns every pair of a snapshot and a producer that the snapshot or the batches of its copy know: arrays of one
    length, in the order (copy, producer, offset). `case` is 0 where the two agree."""
    entries, noted = copies.rows("snapshots", _SNAPSHOT), copies.rows("observations", ("kind", "value"))
    entries = chosen(entries, entries["snapshot_offset"] <= copies.log_end[entries["copy"]])
    there = (noted["kind"] == ObservationKind.REPLICA_SNAPSHOT.value) & (
        noted["value"] <= copies.log_end[noted["copy"]]
    )
    noted = chosen(noted, there)
    if not len(noted["copy"]) and not len(entries["copy"]):
        return {"copy": _NOTHING, "case": _NOTHING}
    # Each snapshot and each producer of a copy has a number, in the order (copy, offset) and (copy, producer).
    count = len(noted["copy"])
    number, of_copy, offsets = _numbered((noted["copy"], entries["copy"]), (noted["value"], entries["snapshot_offset"]))
    if len(strange := np.setdiff1d(number[count:], number[:count])):
        node = copies.node[of_copy[strange[0]]]
        raise Contradicted(f"node {node} has entries of a producer snapshot that it does not have")
    snapshot, first = number[count:], np.searchsorted(of_copy, np.arange(len(copies.node) + 1))
    batches = copies.rows("replicas", _BATCH)
    kept = (batches["producer_id"] >= 0) & (batches["last_offset"] >= copies.log_start[batches["copy"]])
    batches, count = chosen(batches, kept), int(np.count_nonzero(kept))
    ids = (batches["producer_id"], entries["producer_id"])
    producer, owner, _ = _numbered((batches["copy"], entries["copy"]), ids)
    states = _states(batches, producer[:count])
    # Every pair there could be: each producer with each snapshot of its copy.
    # Example: producers 7 and 9, snapshots of 10 and 20. The pairs are (7, 10), (7, 20), (9, 10), (9, 20).
    lengths = np.diff(first)[owner]
    rank, begins = np.repeat(np.arange(len(owner)), lengths), np.cumsum(lengths) - lengths
    of = np.arange(len(rank)) + (first[owner] - begins)[rank]
    here = states.at(rank, offsets[of])
    there = np.full(len(rank), -1, dtype=np.intp)
    assert len(snapshot) == len(producer) - count, "each entry of a snapshot has its producer"
    there[begins[producer[count:]] + snapshot - first[entries["copy"]]] = np.arange(len(snapshot))
    known = np.flatnonzero((here >= 0) | (there >= 0))
    copy = owner[rank[known]]
    return {
        "copy": copy,
        "case": _cases(states, entries, here[known], there[known], copies.log_start[copy]),
        "log_offset": offsets[of[known]],
        "other_offset": _or_none(states.columns["end"], here[known]),
        "sequence": _or_none(entries["last_sequence"], there[known]),
        "other_sequence": _or_none(states.columns["last_sequence"], here[known]),
    }


def _numbered(
    copies: tuple[np.ndarray, np.ndarray], values: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers the different pairs of a copy and a value, ascending: the number of each pair, and of each number its copy and
    its value. Example: (0, 7), (1, 7), (0, 7) have the numbers 0 1 0."""
    copy, value = np.concatenate(copies), np.concatenate(values)
    order = np.lexsort((value, copy))
    new = differs_from_previous(copy[order]) | differs_from_previous(value[order])
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(new) - 1
    return number, copy[order[new]], value[order[new]]


def _cases(
    states: "_States", entries: Columns, here: np.ndarray, there: np.ndarray, log_start: np.ndarray
) -> np.ndarray:
    """Returns int32[k]: the SnapshotCase of each pair, 0 where the two agree or nothing can be stated. `here` and `there`
    are rows of both, -1 for none; `log_start` is that of its copy."""
    assert len(here) == len(there), "pairs"
    case = np.zeros(len(here), dtype=np.int32)
    case[there < 0] = SnapshotCase.UNKNOWN_THERE
    # What retention took away may have been known rightly.
    above = _or_none(entries["last_offset"], there) >= log_start
    case[(here < 0) & (above | (log_start == 0))] = SnapshotCase.UNKNOWN_HERE
    both = np.flatnonzero((here >= 0) & (there >= 0))
    for name, what in _COMPARED:
        differ = states.columns[name][here[both]] != entries[name][there[both]]
        if what is SnapshotCase.LAST_BATCH:
            differ &= (states.columns["last_batch_known"][here[both]] > 0) | (log_start[both] == 0)
        if what is SnapshotCase.TRANSACTION:
            differ &= (states.columns["transaction_known"][here[both]] > 0) | (log_start[both] == 0)
        case[both[differ & (case[both] == 0)]] = what
    return case


@dataclass(frozen=True, slots=True)
class _States:
    """The state of a producer after each of its batches, ascending by (producer, offset)."""

    producer: np.ndarray
    """The number of the producer of a copy."""
    base_offset: np.ndarray
    columns: Columns
    """The columns of `snapshots`, and `end`, the last offset of the batch. `last_batch_known` and `transaction_known`
    are 0 where batches before the first one here could have stated otherwise."""

    def at(self, producer: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """Returns intp[k]: the last batch of each producer below each offset, -1 for none. The queries ascend by
        (producer, offset)."""
        if not len(self.producer):
            return np.full(len(producer), -1, dtype=np.intp)
        # Both ascend in the same order: one merge finds how many batches come before each question. At one offset the
        # question comes first (0 before 1), because a batch that begins there is not below it.
        order = np.lexsort(
            (
                np.concatenate([np.ones(len(self.producer), "i1"), np.zeros(len(producer), "i1")]),
                np.concatenate([self.base_offset, offset]),
                np.concatenate([self.producer, producer]),
            )
        )
        # Example: batches at 0, 5 and a question at 3, merged 0 3 5: one batch comes before the question, the first.
        before = np.cumsum(order < len(self.producer)) - 1
        found = np.empty(len(producer), dtype=np.intp)
        asked = order >= len(self.producer)
        found[order[asked] - len(self.producer)] = before[asked]
        # The last batch before a question may be another producer's: then this one has none below the offset.
        return np.asarray(np.where((found >= 0) & (self.producer[found] == producer), found, -1))


def _states(batches: Columns, producer: np.ndarray) -> _States:
    rows = np.lexsort((batches["base_offset"], producer))
    batch, producer = chosen(batches, rows), producer[rows]
    count, slot = len(rows), np.arange(len(rows))
    first = differs_from_previous(producer)
    # Each line below is a running maximum of indices: it carries the latest index of some kind on to the rows behind it.
    # Example: batches of two producers, [a a b b b], `first` is T F T F F, and `begins` is 0 0 2 2 2.
    begins = np.maximum.accumulate(np.where(first, slot, 0))
    control = (batch["attributes"] & _CONTROL) != 0
    # The last batch of records: of the same epoch, or it is forgotten.
    under = np.maximum.accumulate(np.where(first | differs_from_previous(batch["producer_epoch"]), slot, 0))
    last = np.maximum.accumulate(np.where(control, -1, slot)) if count else slot
    # `last` may be a batch of an older epoch, or of another producer: those stand before `under`. -1 always does.
    has_last = last >= under
    # The open transaction: the first batch in one after the last marker.
    marker = np.maximum.accumulate(np.where(control, slot, -1)) if count else slot
    marked = marker >= begins
    begun = np.where((batch["attributes"] & (_TRANSACTIONAL | _CONTROL)) == _TRANSACTIONAL, slot, count)
    # The other way round, from the end: at each row the first batch in a transaction from there on; `count`: there is none.
    # Example: [data data marker data], begun 0 1 4 3, so 0 1 3 3 4. The last row has a marker at 2 before it: opened at 3.
    next_begun = np.append(np.minimum.accumulate(begun[::-1])[::-1], count)
    # What begins behind this row is not open yet: `opened <= slot`, below.
    opened = next_begun[np.where(marked, marker + 1, begins)]
    # The sequence of the last record: that of the first, and one more for each further record.
    delta = batch["last_offset"] - batch["base_offset"]
    sequence = (batch["base_sequence"].astype(np.int64) + delta) % _SEQUENCES
    columns = {
        "producer_epoch": batch["producer_epoch"],
        "last_sequence": np.where(has_last, sequence[last], NONE),
        "last_offset": np.where(has_last, batch["last_offset"][last], NONE),
        "offset_delta": np.where(has_last, delta[last], 0),
        "timestamp_ms": batch["max_timestamp_ms"],
        "transaction_offset": np.where(opened <= slot, batch["base_offset"][np.minimum(opened, slot)], NONE),
        "end": batch["last_offset"],
        "last_batch_known": has_last | (under > begins),
        "transaction_known": marked,
    }
    return _States(producer, batch["base_offset"], columns)


def _or_none(values: np.ndarray, slot: np.ndarray) -> np.ndarray:
    """Returns int64[k]: `values` at these indices, NONE where the index is -1."""
    if not len(values):
        return np.full(len(slot), NONE, dtype=np.int64)
    return np.where(slot >= 0, values[slot], NONE).astype(np.int64)


def _snapshot_witnesses(history: PartitionHistory, node: int, pairs: Columns) -> np.ndarray:
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


def _offsets(history: PartitionHistory, kind: ObservationKind) -> Iterator[tuple[int, int]]:
    """Returns (offset, broker) of each snapshot of this kind that was found at the end of the run."""
    seen = history.observations
    rows = np.flatnonzero((seen["kind"] == kind.value) & (seen["step"] == NONE))
    return zip(seen["value"][rows].tolist(), seen["node"][rows].tolist(), strict=True)
