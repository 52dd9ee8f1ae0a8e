"""These kernels compare the replicas of a partition, and each replica's producer snapshots with its batches."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from prozess.checkers.copies import Copies
from prozess.checkers.lookup import differs_from_previous, distinct
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
from prozess.harness.schema import MISSING, NONE, Isolation, ObservationKind

# Are the copies of a partition the same? The batch headers of every replica's own segments are compared.


DIFFERENT = 1
"""Both copies have a batch at this offset, and the two are not the same."""
MISSING_THERE = 2
"""The reference has a batch that the other copy lacks."""
ONLY_THERE = 3
"""The other copy has a batch that the reference lacks."""
BEHIND = 4
"""The other copy ends here, and the reference goes on: everything that the reference has from here on is one finding. A
replica that was down or cut off at the end is like this, and nothing of it is wrong. One in the ISR must not be."""
COMPARED = (
    "last_offset",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "checksum",
    "records",
    "attributes",
    "base_timestamp_ms",
    "max_timestamp_ms",
    "size",
)
"""What must be equal in two batches with one base offset: the whole header. Followers append the leader's bytes
unchanged. The comparison includes the leader epoch, which the checksum does not cover."""
CLEANED = ("last_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence", "attributes")
"""What the log cleaner leaves unchanged in a batch of which it keeps anything (MemoryRecords.filterTo: "we must preserve
the last offset from the initial batch"). It keeps the KEPT_BITS of the attributes."""
KEPT_BITS = 0b111000
"""The bits for timestamp type, transactional and control. The codec and the delete horizon (KIP-534) may change."""
_COLUMNS = ("base_offset", *COMPARED)
Batches = Mapping[str, np.ndarray]
_NOTHING = np.empty(0, dtype=np.int64)
_NO_DIFFERENCE = (_NOTHING, _NOTHING, _NOTHING, _NOTHING)


def diverged(history: PartitionHistory) -> KernelResult:
    """Below the high watermark and above both log starts, any two replicas hold the same batches, whatever their segments.

    Source: Kafka documentation, design, "Replicated logs"; KIP-101 (followers truncate by leader epoch). The high watermark
    is at least behind the audit's sentinel, which a whole ISR acknowledged; without it, the least that any copy had written
    down. Batches of one partition are appended by followers byte for byte (UnifiedLog.appendAsFollower; the leader epoch in
    the header is the leader's too, KIP-101), so whole headers are compared, checksums as stored included.

    Counts (replica, base offset) where a replica differs from the reference, the replica that agrees best with the others;
    `reader` is the replica's broker, `other_client` the reference's; `sequence` and `other_sequence` are base sequences of
    their batches (NONE: no batch, or no producer id); `case` is DIFFERENT, MISSING_THERE, ONLY_THERE or BEHIND. Judged are
    batches. A copy that ends early lacks what others have behind its end: that is counted once, at the first batch that it
    lacks there. Copies [0, 3, 4] and [0], whose log ends at 3: one finding, BEHIND at 3. Did it end at 1000, there would be
    two, MISSING_THERE.
    Copies of compacted topics are cleaned at different moments: a batch that one lacks is no difference, but two batches that
    overlap are, unless they were the same one before (CLEANED). O(n) for copies that are equal.
    """
    if len(history.assignment) < 2:
        return KernelResult(no_witnesses(), count=0, judged=0)
    found, judged = _compare(history) if history.copies else ([], 0)
    witnesses = join_witnesses(found)
    witnesses = witnesses[np.argsort(witnesses["log_offset"], kind="stable")]
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), judged, _incomplete(history))


def diverged_of_each(histories: Sequence[PartitionHistory]) -> list[KernelResult]:
    """Returns what `diverged` finds in each of these small partitions."""
    copies = Copies(histories)
    low, high = np.full(len(histories), np.iinfo(np.int64).min), np.zeros(len(histories), dtype=np.int64)
    np.maximum.at(low, copies.owner, copies.log_start)
    for owner in set(copies.owner.tolist()):
        high[owner] = _watermark(histories[owner])
    batches = copies.rows("replicas", _COLUMNS)
    owner = copies.owner[batches["copy"]]
    batches = _chosen(batches, (batches["base_offset"] >= low[owner]) & (batches["base_offset"] < high[owner]))
    batches = _chosen(batches, np.lexsort((batches["base_offset"], batches["copy"])))
    # Each batch beside that of its number in the first copy of its partition.
    lengths = np.bincount(batches["copy"], minlength=len(copies.node))
    begins, first = np.cumsum(lengths) - lengths, np.searchsorted(copies.owner, copies.owner)
    beside = np.arange(len(batches["copy"])) + (begins[first] - begins)[batches["copy"]]
    odd = set(copies.owner[lengths != lengths[first]].tolist())
    beside = np.minimum(beside, max(0, len(beside) - 1))  # of copies that are longer: those are odd already
    unlike = np.zeros(len(beside), dtype=bool)
    for name in _COLUMNS:
        unlike |= batches[name] != batches[name][beside]
    odd.update(copies.owner[batches["copy"][unlike]].tolist())
    judged = copies.count(batches["copy"])
    return [
        diverged(one)
        if i in odd or len(one.assignment) < 2
        else KernelResult(no_witnesses(), 0, judged[i], _incomplete(one))
        for i, one in enumerate(histories)
    ]


def _incomplete(history: PartitionHistory) -> str | None:
    """Returns why it cannot be concluded that the copies are equal. None: every copy was read up to the sentinel."""
    if unread := unread_copies(history):
        return unread
    if Isolation.READ_UNCOMMITTED not in history.audit_end:
        return f"the audit of partition {history.partition} at read_uncommitted did not reach its sentinel"
    return None


def unread_copies(history: PartitionHistory) -> str | None:
    """Returns which brokers' copies were not read. None: every copy was read."""
    unread = [node for node in history.assignment if node not in history.copies]
    if not unread:
        return None
    nodes = ", ".join(str(node) for node in unread)
    return f"the copies of partition {history.partition} on brokers {nodes} were not read"


def _compare(history: PartitionHistory) -> tuple[list[np.ndarray], int]:
    """Returns witnesses, and how many batches were compared."""
    assert history.copies, "there is something to compare"
    low = max(copy.log_start for copy in history.copies.values())
    # Example: copies 1 and 2 are [0 5 9], copy 3 is [0 5 8]. 1 and 2 are alike, so each differs from one other copy, and 3
    # from two: 1 is the reference, and all findings are of 3.
    copies = _copies(history, low, _watermark(history))
    first = next(iter(copies.values()), {})
    # Nearly always all copies are equal to the first one, and then no two have to be compared again.
    alike = {node for node, batches in copies.items() if _are_equal(first, batches)}
    differences = {
        (one, other): _NO_DIFFERENCE
        if {one, other} <= alike
        else _differences(copies[one], copies[other], cleaned=history.compacted)
        for one in copies
        for other in copies
        if one != other
    }
    # The copy that agrees best with the others is taken for right, so that one odd copy of three is one finding, not two.
    reference = min(copies, key=lambda one: (sum(len(differences[one, o][0]) for o in copies if o != one), one))
    found = [
        _copy_witnesses(
            history.partition,
            reference,
            other,
            *_behind_once(*differences[reference, other], log_end=history.copies[other].log_end),
        )
        for other in copies
        if other != reference and len(differences[reference, other][0])
    ]
    return found, sum(len(batches["base_offset"]) for batches in copies.values())


def _watermark(history: PartitionHistory) -> int:
    """Returns an offset that the high watermark had certainly reached."""
    watermarks = [copy.high_watermark or 0 for copy in history.copies.values()]
    return max(history.audit_end.get(Isolation.READ_UNCOMMITTED, NONE) + 1, min(watermarks))


def _copies(history: PartitionHistory, low: int, high: int) -> dict[int, Batches]:
    """Returns, for each node, the batches of its copy that begin in [low, high)."""
    rows, base = history.replicas, history.replicas["base_offset"]
    chosen = (rows["step"] == NONE) & (base >= low) & (base < high)
    found: dict[int, Batches] = {}
    for node in sorted(history.copies):
        mine = np.flatnonzero(chosen & (rows["node"] == node))
        if not (base[mine][1:] > base[mine][:-1]).all():
            mine = mine[np.argsort(base[mine], kind="stable")]
        # Rows that follow one another are not copied.
        whole = len(mine) > 0 and bool((np.diff(mine) == 1).all())
        slot: slice | np.ndarray = slice(int(mine[0]), int(mine[-1]) + 1) if whole else mine
        found[node] = {name: rows[name][slot] for name in _COLUMNS}
    return found


def _are_equal(one: Batches, other: Batches) -> bool:
    return one is other or all(_same(one[name], other[name]) for name in _COLUMNS)


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Returns whether two columns are equal. If each has one value for all rows, it compares those alone."""
    if one.strides == other.strides == (0,) and len(one) == len(other):
        one, other = one[:1], other[:1]
    return bool(np.array_equal(one, other))


def _differences(
    one: Batches, other: Batches, *, cleaned: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns where `other` differs from `one`: base offsets, cases, and the base sequences there in `other` and in
    `one`."""
    if _are_equal(one, other):
        return _NO_DIFFERENCE
    # Both copies side by side, at every base offset that one of them has. Example [0, 3] and [0, 5] at 0, 3, 5: `here` is
    # 0 1 -1, `there` 0 -1 1. Only at 0 both have a batch, whose headers are compared.
    offsets = distinct(np.concatenate([one["base_offset"], other["base_offset"]]))
    assert (offsets[1:] > offsets[:-1]).all(), "each base offset once"
    here, there = _slots(offsets, one["base_offset"]), _slots(offsets, other["base_offset"])
    both = np.flatnonzero((here >= 0) & (there >= 0))
    unlike = np.zeros(len(both), dtype=bool)
    for name in CLEANED if cleaned else COMPARED:
        # Exclusive or: zero where equal, and of attributes the bits that count can be picked out.
        differing = one[name][here[both]] ^ other[name][there[both]]
        unlike |= (differing & KEPT_BITS if cleaned and name == "attributes" else differing) != 0
    case = np.zeros(len(offsets), dtype=np.int32)
    case[both[unlike]] = DIFFERENT
    # The cleaner may have taken a whole batch out of one copy, but where the other copy has a batch around that offset which
    # begins elsewhere, the two were never the same.
    if cleaned:
        case[((there < 0) & _within(offsets, other)) | ((here < 0) & _within(offsets, one))] = DIFFERENT
    else:
        case[there < 0] = MISSING_THERE
        case[here < 0] = ONLY_THERE
    chosen = np.flatnonzero(case)
    sequences = [_sequence(batches, slot[chosen]) for batches, slot in ((other, there), (one, here))]
    return offsets[chosen], case[chosen], sequences[0], sequences[1]


def _behind_once(
    offset: np.ndarray, case: np.ndarray, sequence: np.ndarray, other_sequence: np.ndarray, *, log_end: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the same differences, with those behind the end of the copy as one: BEHIND, at the first of them."""
    lacking = (case == MISSING_THERE) & (offset >= log_end)
    if not lacking.any():
        return offset, case, sequence, other_sequence
    assert len(offset) == len(case) == len(sequence) == len(other_sequence), "differences"
    # Example: lacking are the batches at 3, 9 and 12 of a copy that ends at 3. The one at 3 stays, as BEHIND, for all three.
    first = np.argmax(lacking)  # offsets ascend
    kept = ~lacking
    kept[first] = True
    case = case.copy()
    case[first] = BEHIND
    return offset[kept], case[kept], sequence[kept], other_sequence[kept]


def _within(offsets: np.ndarray, batches: Batches) -> np.ndarray:
    """Returns bool[k]: does one of the batches contain this offset?"""
    if not len(batches["base_offset"]):
        return np.zeros(len(offsets), dtype=bool)
    before = np.searchsorted(batches["base_offset"], offsets, side="right") - 1
    return np.asarray((before >= 0) & (batches["last_offset"][before] >= offsets))


def _slots(wanted: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Returns intp[k]: where each wanted value is in `among` (ascending), -1 if it is not there."""
    if not len(among):
        return np.full(len(wanted), -1, dtype=np.intp)
    # The first that is not less is the wanted one, or it is not there.
    slot = np.minimum(np.searchsorted(among, wanted), len(among) - 1)
    return np.asarray(np.where(among[slot] == wanted, slot, -1))


def _sequence(batches: Batches, slot: np.ndarray) -> np.ndarray:
    if not len(batches["base_sequence"]):
        return np.full(len(slot), NONE, dtype=np.int64)
    return np.asarray(np.where(slot >= 0, batches["base_sequence"][slot], NONE))


def _copy_witnesses(
    partition: int,
    reference: int,
    node: int,
    offset: np.ndarray,
    case: np.ndarray,
    sequence: np.ndarray,
    other_sequence: np.ndarray,
) -> np.ndarray:
    columns: dict[str, np.ndarray | int] = {
        "partition": partition,
        "log_offset": offset,
        "other_offset": offset,
        "sequence": sequence,
        "other_sequence": other_sequence,
        "reader": node,
        "other_client": reference,
        "case": case,
    }
    return make_witnesses(len(offset), columns)


# Do brokers remember their producers? Producer snapshots are compared with the batches of the same replica.


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


def _offsets(history: PartitionHistory, kind: ObservationKind) -> Iterator[tuple[int, int]]:
    """Returns (offset, broker) of each snapshot of this kind that was found at the end of the run."""
    seen = history.observations
    rows = np.flatnonzero((seen["kind"] == kind.value) & (seen["step"] == NONE))
    return zip(seen["value"][rows].tolist(), seen["node"][rows].tolist(), strict=True)


def _compare_snapshots(copies: Copies) -> dict[str, np.ndarray]:
    """Returns every pair of a snapshot and a producer that the snapshot or the batches of its copy know: arrays of one
    length, in the order (copy, producer, offset). `case` is 0 where the two agree."""
    entries, noted = copies.rows("snapshots", _SNAPSHOT), copies.rows("observations", ("kind", "value"))
    entries = _chosen(entries, entries["snapshot_offset"] <= copies.log_end[entries["copy"]])
    chosen = (noted["kind"] == ObservationKind.REPLICA_SNAPSHOT.value) & (
        noted["value"] <= copies.log_end[noted["copy"]]
    )
    noted = _chosen(noted, chosen)
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
    batches, count = _chosen(batches, kept), int(np.count_nonzero(kept))
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


def _chosen(columns: Columns, rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[rows] for name, values in columns.items()}


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
    batch, producer = _chosen(batches, rows), producer[rows]
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
