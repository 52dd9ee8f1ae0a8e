"""Are the copies of a partition the same? Stage check: the batch headers of every replica's own segments in, findings out."""

from collections.abc import Mapping

import numpy as np

from checkers.lookup import distinct
from harness.protocols import KernelResult, PartitionHistory
from harness.schema import NONE, Isolation
from harness.witnesses import WITNESSES_MAX, make_witnesses

DIFFERENT = 1
"""Both copies have a batch there, but not the same."""
MISSING_THERE = 2
"""The reference has a batch that the other copy lacks."""
ONLY_THERE = 3
"""The other copy has a batch that the reference lacks."""
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
"""What must be equal of two batches with one base offset: the whole header. Followers append the leader's bytes unchanged,
the leader epoch among them, which the checksum does not cover."""
CLEANED = ("last_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence", "attributes")
"""What the log cleaner leaves as it was in a batch of which it keeps anything (MemoryRecords.filterTo: "we must preserve the
last offset from the initial batch"); of the attributes KEPT_BITS."""
KEPT_BITS = 0b111000
"""Timestamp type, transactional, control: not the codec, nor the delete horizon (KIP-534)."""
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
    their batches (NONE: no batch, or no producer id); `case` is DIFFERENT, MISSING_THERE or ONLY_THERE. Judged are batches.
    Copies of compacted topics are cleaned at different moments: a batch that one lacks is no difference, but two batches that
    overlap are, unless they were the same one before (CLEANED). O(n) for copies that are equal.
    """
    if len(history.assignment) < 2:
        return KernelResult(make_witnesses(0, {}), count=0, judged=0)
    found, judged = _compare(history) if history.copies else ([], 0)
    witnesses = np.concatenate(found) if found else make_witnesses(0, {})
    witnesses = witnesses[np.argsort(witnesses["log_offset"], kind="stable")]
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), judged, _incomplete(history))


def _incomplete(history: PartitionHistory) -> str | None:
    """Why equality cannot be concluded; None = every copy was read, up to the sentinel."""
    if unread := unread_copies(history):
        return unread
    if Isolation.READ_UNCOMMITTED not in history.audit_end:
        return f"the audit of partition {history.partition} at read_uncommitted did not reach its sentinel"
    return None


def unread_copies(history: PartitionHistory) -> str | None:
    """Which brokers' copies were not read; None = every one was."""
    unread = [node for node in history.assignment if node not in history.copies]
    if not unread:
        return None
    nodes = ", ".join(str(node) for node in unread)
    return f"the copies of partition {history.partition} on brokers {nodes} were not read"


def _compare(history: PartitionHistory) -> tuple[list[np.ndarray], int]:
    """Witnesses, and how many batches were looked at."""
    low = max(copy.log_start for copy in history.copies.values())
    copies = _copies(history, low, _watermark(history))
    first = next(iter(copies.values()), {})
    alike = {node for node, batches in copies.items() if _are_equal(first, batches)}
    differences = {
        (one, other): _NO_DIFFERENCE
        if {one, other} <= alike
        else _differences(copies[one], copies[other], cleaned=history.compacted)
        for one in copies
        for other in copies
        if one != other
    }
    reference = min(copies, key=lambda one: (sum(len(differences[one, o][0]) for o in copies if o != one), one))
    found = [
        _witnesses(history.partition, reference, other, *differences[reference, other])
        for other in copies
        if other != reference and len(differences[reference, other][0])
    ]
    return found, sum(len(batches["base_offset"]) for batches in copies.values())


def _watermark(history: PartitionHistory) -> int:
    """The high watermark was at least here."""
    told = [copy.high_watermark or 0 for copy in history.copies.values()]
    return max(history.audit_end.get(Isolation.READ_UNCOMMITTED, NONE) + 1, min(told))


def _copies(history: PartitionHistory, low: int, high: int) -> dict[int, Batches]:
    """Node → the batches of its copy that begin in [low, high)."""
    rows, base = history.replicas, history.replicas["base_offset"]
    chosen = (rows["step"] == NONE) & (base >= low) & (base < high)
    found: dict[int, Batches] = {}
    for node in sorted(history.copies):
        mine = np.flatnonzero(chosen & (rows["node"] == node))
        if not (base[mine][1:] > base[mine][:-1]).all():
            mine = mine[np.argsort(base[mine], kind="stable")]
        # Rows that follow one another are not copied.
        whole = len(mine) > 0 and bool((np.diff(mine) == 1).all())
        place: slice | np.ndarray = slice(int(mine[0]), int(mine[-1]) + 1) if whole else mine
        found[node] = {name: rows[name][place] for name in _COLUMNS}
    return found


def _are_equal(one: Batches, other: Batches) -> bool:
    return one is other or all(np.array_equal(one[name], other[name]) for name in _COLUMNS)


def _differences(
    one: Batches, other: Batches, *, cleaned: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Where `other` differs from `one`: base offsets, cases, and the base sequences there in `other` and in `one`."""
    if _are_equal(one, other):
        return _NO_DIFFERENCE
    offsets = distinct(np.concatenate([one["base_offset"], other["base_offset"]]))
    here, there = _place(offsets, one["base_offset"]), _place(offsets, other["base_offset"])
    both = np.flatnonzero((here >= 0) & (there >= 0))
    unlike = np.zeros(len(both), dtype=bool)
    for name in CLEANED if cleaned else COMPARED:
        differing = one[name][here[both]] ^ other[name][there[both]]
        unlike |= (differing & KEPT_BITS if cleaned and name == "attributes" else differing) != 0
    case = np.zeros(len(offsets), dtype=np.int32)
    case[both[unlike]] = DIFFERENT
    if cleaned:
        case[((there < 0) & _within(offsets, other)) | ((here < 0) & _within(offsets, one))] = DIFFERENT
    else:
        case[there < 0] = MISSING_THERE
        case[here < 0] = ONLY_THERE
    chosen = np.flatnonzero(case)
    sequences = [_sequence(batches, place[chosen]) for batches, place in ((other, there), (one, here))]
    return offsets[chosen], case[chosen], sequences[0], sequences[1]


def _within(offsets: np.ndarray, batches: Batches) -> np.ndarray:
    """bool[k]: is each offset one of a batch's?"""
    if not len(batches["base_offset"]):
        return np.zeros(len(offsets), dtype=bool)
    before = np.searchsorted(batches["base_offset"], offsets, side="right") - 1
    return np.asarray((before >= 0) & (batches["last_offset"][before] >= offsets))


def _place(wanted: np.ndarray, among: np.ndarray) -> np.ndarray:
    """intp[k]: where each wanted value is in `among` (ascending), -1 = nowhere."""
    if not len(among):
        return np.full(len(wanted), -1, dtype=np.intp)
    place = np.minimum(np.searchsorted(among, wanted), len(among) - 1)
    return np.asarray(np.where(among[place] == wanted, place, -1))


def _sequence(batches: Batches, place: np.ndarray) -> np.ndarray:
    if not len(batches["base_sequence"]):
        return np.full(len(place), NONE, dtype=np.int64)
    return np.asarray(np.where(place >= 0, batches["base_sequence"][place], NONE))


def _witnesses(
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
