"""These kernels check what compaction promises: the latest record of every key stays, and a deleted key stays deleted.

Partitions that are not compacted are not judged. A compacted log has holes, so the greatest acknowledged offset of each
key says what is missing, and never a count. The promise is empty where nothing was compacted. Therefore the result is
incomplete unless at least COMPACTED_SHARE of the acknowledged records that a later record of their key supersedes are
gone from the log.
"""

from dataclasses import dataclass

import numpy as np

from prozess.checkers.lookup import Lookup, differs_from_next
from prozess.checkers.partition_index import PartitionIndex
from prozess.harness.interfaces.checking import KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import MISSING, NONE, Outcome

COMPACTED_SHARE = 0.5


def compacted_away(history: PartitionHistory) -> KernelResult:
    """The log has the last acknowledged record of each key, or a later one, unless that record is a tombstone.

    Source: https://kafka.apache.org/documentation/#compaction ("Log compaction ensures that Kafka will always retain at
    least the last known value for each message key"). Counts keys. The witness is that record, `other_*` the last record
    of the key that the log still has, if any. A key whose last record is gone is left out if it also has a tombstone that
    nobody stated the offset of: it may stand behind; and if the log begins behind it, by cleanup.policy=compact,delete
    (`expired-early`). Records without key are not compacted. O(n log n).

    Example: a, b and c with one key were acknowledged at 0, 5 and 9. A cleaned log with c alone is right. One with b alone
    has lost c: the witness is c, and `other_offset` is 5.
    """
    index = PartitionIndex.of(history)
    if not index.compacted:
        return KernelResult(no_witnesses(), count=0, judged=0)
    latest = _latest_acknowledged(index)
    rows = latest.rows[index.sends["size"][latest.rows] != NONE]
    last = _last_in_log(index, rows)
    # NONE is below every offset: a key of which the log has nothing is gone as well.
    gone = last < index.sends["log_offset"][rows]
    offset = index.sends["log_offset"][rows]
    maybe = gone & (index.tombstones.behind(index.sends["key"][rows], offset) | (offset < index.log_start))
    gone &= ~maybe
    return _result(index, rows[gone], last[gone], len(rows) - int(np.count_nonzero(maybe)), latest)


def tombstone_lost(history: PartitionHistory) -> KernelResult:
    """If the last tombstone of a key was acknowledged, the log has no older record of the key, unless the tombstone or a
    later record is there as well.

    Source: https://kafka.apache.org/documentation/#compaction ("any consumer progressing from the start of the log will see
    at least the final state of all records in the order they were written. Additionally, all delete markers for deleted
    records will be seen, provided the consumer reaches the head of the log in a time period less than the topic's
    delete.retention.ms setting"). Counts keys. The witness is the tombstone, `other_*` the older record. O(n log n).

    Example: a and then a tombstone of its key were acknowledged at 0 and 5. A log with nothing of the key is right, and so
    is one with the tombstone. A log with a alone has forgotten that the key was deleted.
    """
    index = PartitionIndex.of(history)
    if not index.compacted:
        return KernelResult(no_witnesses(), count=0, judged=0)
    tombstones = _acknowledged(index)
    tombstones = tombstones[index.sends["size"][tombstones] == NONE]
    rows = _last_of_each_key(index, tombstones)
    last = _last_in_log(index, rows)
    # NONE (-1) is no offset: nothing is left of the key, which is right. At the tombstone's offset stands the tombstone
    # itself, and behind it a later record, which may have brought the key back.
    back = (last >= 0) & (last < index.sends["log_offset"][rows])
    return _result(index, rows[back], last[back], len(rows), _latest_acknowledged(index))


@dataclass(frozen=True, slots=True)
class _Latest:
    """Acknowledged records with a key and a known offset, below the end of the audit."""

    rows: np.ndarray
    """The row of `sends` with the greatest offset of each key."""
    superseded: int
    """How many other records there are, which compaction may remove."""
    removed: int
    """How many superseded records the log does not have, or not any more."""


def _latest_acknowledged(index: PartitionIndex) -> _Latest:
    rows = _acknowledged(index)
    latest = _last_of_each_key(index, rows)
    # Which superseded ones are gone: all that were superseded, less those that stand where they were acknowledged.
    # Example: a b c of one key, and the log has b and c. Superseded are a and b: 2. Confirmed are 2 of 3, of which c is the
    # latest: one superseded one is still there, so 1 was removed.
    there = int(np.count_nonzero(index.send_confirmed[rows]))
    kept = int(np.count_nonzero(index.send_confirmed[latest]))
    superseded = len(rows) - len(latest)
    return _Latest(latest, superseded, superseded - (there - kept))


def _acknowledged(index: PartitionIndex) -> np.ndarray:
    """Returns the rows of `sends` that were acknowledged with a key at a known offset, which the audit should have
    passed."""
    sends = index.sends
    rows = np.flatnonzero(
        (sends["outcome"] == Outcome.OK.value)
        & (sends["client"] != SENTINEL_CLIENT)
        & (sends["key"] != NONE)
        & (sends["log_offset"] != NONE)
    )
    end, sentinel_ns = index.log.end, index.sentinel_ns
    if (
        end is not None and sentinel_ns is not None
    ):  # as `lost`: what came after the sentinel was sent may stand behind it
        behind = (sends["log_offset"][rows] > end) & (sends["completed_ns"][rows] >= sentinel_ns)
        rows = rows[~behind]
    return rows


def _last_of_each_key(index: PartitionIndex, rows: np.ndarray) -> np.ndarray:
    """Returns, of these rows of `sends`, the one with the greatest offset of each key, ascending by key."""
    rows = rows[np.lexsort((index.sends["log_offset"][rows], index.sends["key"][rows]))]
    # Sorted by key, then by offset: the last row of each key stands before the first one of the next key.
    return np.asarray(rows[differs_from_next(index.sends["key"][rows])])


def _last_in_log(index: PartitionIndex, rows: np.ndarray) -> np.ndarray:
    """Returns int64[k]: the greatest offset at which L(p) has a record with the key of each of these sends. NONE: it has
    none."""
    read = index.log.rows
    key, offset = index.reads["key"][read], index.reads["log_offset"][read]
    # The same for L(p): the last offset at which each key stands.
    order = np.lexsort((offset, key))
    key, offset = key[order], offset[order]
    last = differs_from_next(key)
    key, offset = key[last], offset[last]
    assert len(key) == len(offset), "each key has its last offset"
    slot = Lookup(key).find(index.sends["key"][rows])
    found = np.full(len(rows), NONE, dtype=np.int64)
    found[slot >= 0] = offset[slot[slot >= 0]]
    return found


def _result(index: PartitionIndex, rows: np.ndarray, last: np.ndarray, judged: int, latest: _Latest) -> KernelResult:
    """Returns a finding of these sends. `last` is the offset of the last record of their key in the log."""
    if reason := index.incomplete():
        return KernelResult(no_witnesses(), count=0, judged=judged, incomplete=reason)
    count = len(rows)
    rows, last = rows[:WITNESSES_MAX], last[:WITNESSES_MAX]
    key = index.send_key[rows]
    columns: dict[str, np.ndarray | int] = {
        "partition": index.partition,
        **index.records_sent(rows),
        "other_ns": MISSING,
        **index.record_at(index.log.positions.find(last)),
        **index.sent(rows),
        **(index.seen(key) if count else {}),
    }
    return KernelResult(make_witnesses(len(rows), columns), count, judged, incomplete=_not_compacted(latest))


def _not_compacted(latest: _Latest) -> str | None:
    """Returns why this partition proves nothing about compaction. None: enough of it was compacted."""
    if latest.removed >= max(1, COMPACTED_SHARE * latest.superseded):
        return None
    return (
        f"compaction did not run: {latest.removed} of {latest.superseded} superseded records are gone from the log, "
        f"fewer than {COMPACTED_SHARE:.0%}"
    )
