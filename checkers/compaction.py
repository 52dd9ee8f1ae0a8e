"""What compaction promises: the latest record of every key stays, and a deleted key stays deleted.
Stage check: the arrays of one partition in, findings out. Nothing is judged in partitions that are not compacted.

A compacted log has holes, so what is missing is told by the greatest acknowledged offset of each key, never by counting. The
promise is empty where nothing was compacted: unless at least COMPACTED_SHARE of the acknowledged records that a later one of
their key supersedes are gone from the log, the result is incomplete.
"""

from dataclasses import dataclass

import numpy as np

from checkers.arrays import PartitionIndex
from checkers.lookup import Lookup, differs_from_previous
from harness.plan import SENTINEL_CLIENT
from harness.protocols import KernelResult, PartitionHistory
from harness.schema import MISSING, NONE, Outcome
from harness.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses

COMPACTED_SHARE = 0.5


def compacted_away(history: PartitionHistory) -> KernelResult:
    """Of each key whose last acknowledged record is no tombstone, the log has that record or a later one.

    Source: https://kafka.apache.org/documentation/#compaction ("Log compaction ensures that Kafka will always retain at least
    the last known value for each message key"). Counts keys. The witness is that record, `other_*` the last record of the key
    that the log still has, if any. A key whose last record is gone is left out if it also has a tombstone that nobody told
    the offset of: it may stand behind. Records without key are not compacted. O(n log n).
    """
    index = PartitionIndex.of(history)
    if not index.compacted:
        return KernelResult(no_witnesses(), count=0, judged=0)
    latest = _latest_acknowledged(index)
    rows = latest.rows[index.sends["size"][latest.rows] != NONE]
    last = _last_in_log(index, rows)
    gone = last < index.sends["log_offset"][rows]
    maybe = gone & (index.tombstones.behind(index.sends["key"][rows], index.sends["log_offset"][rows]))
    gone &= ~maybe
    return _result(index, rows[gone], last[gone], len(rows) - int(np.count_nonzero(maybe)), latest)


def tombstone_lost(history: PartitionHistory) -> KernelResult:
    """A key whose last tombstone was acknowledged has no record before it in the log, unless the tombstone or a later record
    is there as well.

    Source: https://kafka.apache.org/documentation/#compaction ("any consumer progressing from the start of the log will see
    at least the final state of all records in the order they were written. Additionally, all delete markers for deleted
    records will be seen, provided the consumer reaches the head of the log in a time period less than the topic's
    delete.retention.ms setting"). Counts keys. The witness is the tombstone, `other_*` the older record. O(n log n).
    """
    index = PartitionIndex.of(history)
    if not index.compacted:
        return KernelResult(no_witnesses(), count=0, judged=0)
    tombstones = _acknowledged(index)
    tombstones = tombstones[index.sends["size"][tombstones] == NONE]
    rows = _last_of_each_key(index, tombstones)
    last = _last_in_log(index, rows)
    back = (last >= 0) & (last < index.sends["log_offset"][rows])
    return _result(index, rows[back], last[back], len(rows), _latest_acknowledged(index))


@dataclass(frozen=True, slots=True)
class _Latest:
    """Acknowledged records with a key and a known offset, below the end of the audit."""

    rows: np.ndarray
    """Rows of `sends`: the one with the greatest offset of each key."""
    superseded: int
    """How many others there are: compaction may remove them."""
    removed: int
    """How many of those the log does not have (any more)."""


def _latest_acknowledged(index: PartitionIndex) -> _Latest:
    rows = _acknowledged(index)
    latest = _last_of_each_key(index, rows)
    there = int(np.count_nonzero(index.send_confirmed[rows]))
    kept = int(np.count_nonzero(index.send_confirmed[latest]))
    superseded = len(rows) - len(latest)
    return _Latest(latest, superseded, superseded - (there - kept))


def _acknowledged(index: PartitionIndex) -> np.ndarray:
    """Rows of `sends`: acknowledged with a key at a known offset, which the audit should have passed."""
    sends = index.sends
    rows = np.flatnonzero(
        (sends["outcome"] == Outcome.OK)
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
    """Of these rows of `sends` the one with the greatest offset of each key, ascending by key."""
    rows = rows[np.lexsort((index.sends["log_offset"][rows], index.sends["key"][rows]))]
    first = differs_from_previous(index.sends["key"][rows])
    last: np.ndarray = np.append(first[1:], True)[: len(rows)]
    chosen: np.ndarray = rows[last]
    return chosen


def _last_in_log(index: PartitionIndex, rows: np.ndarray) -> np.ndarray:
    """int64[k]: the greatest offset at which L(p) has a record of the key of each of these sends; NONE: it has none."""
    read = index.log.rows
    key, offset = index.reads["key"][read], index.reads["log_offset"][read]
    order = np.lexsort((offset, key))
    key, offset = key[order], offset[order]
    last = np.append(differs_from_previous(key)[1:], True)[: len(key)]
    key, offset = key[last], offset[last]
    place = Lookup(key).find(index.sends["key"][rows])
    found = np.full(len(rows), NONE, dtype=np.int64)
    found[place >= 0] = offset[place[place >= 0]]
    return found


def _result(index: PartitionIndex, rows: np.ndarray, last: np.ndarray, judged: int, latest: _Latest) -> KernelResult:
    """A finding of these sends, where `last` is the offset of the last record of their key in the log."""
    if reason := index.incomplete():
        return KernelResult(no_witnesses(), count=0, judged=judged, incomplete=reason)
    count = len(rows)
    rows, last = rows[:WITNESSES_MAX], last[:WITNESSES_MAX]
    key = index.send_key[rows]
    columns: dict[str, np.ndarray | int] = {
        "partition": index.partition,
        "client": index.sends["client"][rows],
        "sequence": index.sends["sequence"][rows],
        "log_offset": index.sends["log_offset"][rows],
        "other_ns": MISSING,
        **index.record_at(index.log.positions.find(last)),
        **index.sent(rows),
        **(index.seen(key) if count else {}),
    }
    return KernelResult(make_witnesses(len(rows), columns), count, judged, incomplete=_not_compacted(latest))


def _not_compacted(latest: _Latest) -> str | None:
    """Why this partition proves nothing of compaction."""
    if latest.removed >= max(1, COMPACTED_SHARE * latest.superseded):
        return None
    return (
        f"compaction did not run: {latest.removed} of {latest.superseded} superseded records are gone from the log, "
        f"fewer than {COMPACTED_SHARE:.0%}"
    )
