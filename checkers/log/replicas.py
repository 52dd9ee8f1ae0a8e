"""This kernel compares the replicas of a partition: the batch headers of every replica's own segments."""

from collections.abc import Mapping, Sequence

import numpy as np

from prozess.checkers.copies import Copies, chosen
from prozess.checkers.lookup import distinct
from prozess.harness.interfaces.checking import KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import (
    WITNESSES_MAX,
    join_witnesses,
    make_witnesses,
    no_witnesses,
)
from prozess.harness.schema import NONE, Isolation

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
    batches = chosen(batches, (batches["base_offset"] >= low[owner]) & (batches["base_offset"] < high[owner]))
    batches = chosen(batches, np.lexsort((batches["base_offset"], batches["copy"])))
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
