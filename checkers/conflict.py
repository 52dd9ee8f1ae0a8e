"""One offset, one record: whoever looked at an offset saw the same. The kernel is `checkers.log.offset_conflict`."""

from dataclasses import dataclass

import numpy as np

from checkers.arrays import PartitionIndex
from checkers.lookup import UNREADABLE, differs_from_previous
from harness.plan import SENTINEL_CLIENT
from harness.protocols import KernelResult, PartitionHistory
from harness.schema import MISSING, NONE, Outcome
from harness.witnesses import WITNESSES_MAX, make_witnesses

# Kinds of observers, the strongest evidence of what the log holds first.
_AUDIT, _ACKNOWLEDGEMENT, _CONSUMER = 1, 2, 3
ACKNOWLEDGEMENT_AGAINST_AUDIT = 1
ACKNOWLEDGEMENT_AGAINST_ACKNOWLEDGEMENT = 2
CONSUMER_AGAINST_AUDIT = 3
CONSUMER_AGAINST_ACKNOWLEDGEMENT = 4
CONSUMER_AGAINST_CONSUMER = 5
AUDIT_AGAINST_AUDIT = 6
_CASE = np.zeros((4, 4), dtype=np.int32)
_CASE[_ACKNOWLEDGEMENT, _AUDIT] = ACKNOWLEDGEMENT_AGAINST_AUDIT
_CASE[_ACKNOWLEDGEMENT, _ACKNOWLEDGEMENT] = ACKNOWLEDGEMENT_AGAINST_ACKNOWLEDGEMENT
_CASE[_CONSUMER, _AUDIT] = CONSUMER_AGAINST_AUDIT
_CASE[_CONSUMER, _ACKNOWLEDGEMENT] = CONSUMER_AGAINST_ACKNOWLEDGEMENT
_CASE[_CONSUMER, _CONSUMER] = CONSUMER_AGAINST_CONSUMER
_CASE[_AUDIT, _AUDIT] = AUDIT_AGAINST_AUDIT
_IN_LOG = 0
"""Sort order of the audit's own L(p), before every other observation."""


@dataclass(frozen=True, slots=True)
class _Observations:
    """Who saw which record at which offset. Arrays of equal length."""

    offset: np.ndarray
    key: np.ndarray
    rank: np.ndarray
    """_IN_LOG, _AUDIT, _ACKNOWLEDGEMENT or _CONSUMER."""
    time_ns: np.ndarray
    row: np.ndarray
    """Of `sends` for an acknowledgement, else of `reads`."""

    def take(self, rows: np.ndarray) -> "_Observations":
        """Some of them."""
        return _Observations(self.offset[rows], self.key[rows], self.rank[rows], self.time_ns[rows], self.row[rows])


def offset_conflict(history: PartitionHistory) -> KernelResult:
    """At one offset every consumer, the audit and every acks=all acknowledgement name the same record.

    Source: KIP-101, KIP-320 (an offset names one record below the high watermark). An acknowledgement with acks=1 is no
    observer here: if its offset was taken by another record, that is `lost` (LOST_REPLACED); acks=0 knows no offset.
    Counts per offset the records other than the one that stands: the log's; where it has none, the last acknowledged;
    else the last that was read. The witness is such a record, `other_*` the one that stands; `case` says who disagrees: who
    saw it (a consumer, else the audit, else its acknowledgement) against the strongest observer of the other (the audit,
    else an acknowledgement, else a consumer). Unreadable records and sentinels are nobody's observation.
    O(n), and O(k log k) for k observations that the log does not confirm.
    """
    index = PartitionIndex.of(history)
    acknowledged = np.flatnonzero(
        (index.sends["outcome"] == Outcome.OK)
        & (index.sends["log_offset"] != NONE)
        & (index.fact(index.client_acks, index.sends["client"], unknown=0) == -1)
        & (index.sends["client"] != SENTINEL_CLIENT)
    )
    judged = len(acknowledged) + index.records_read
    seen = _conflicting(_unconfirmed(index, acknowledged))
    if not len(seen.offset):
        return KernelResult(make_witnesses(0, {}), count=0, judged=judged, incomplete=index.incomplete())
    witnesses, count = _witnesses(index, seen)
    return KernelResult(witnesses, count, judged, incomplete=index.incomplete())


def _unconfirmed(index: PartitionIndex, acknowledged: np.ndarray) -> _Observations:
    """Every observation that is not just what L(p) shows, and what L(p) shows at those offsets."""
    reads, sends, log = index.reads, index.sends, index.log
    read = index.unmatched_reads
    sent = acknowledged[~index.send_confirmed[acknowledged]]
    offset = np.concatenate([reads["log_offset"][read], sends["log_offset"][sent]])
    position = np.sort(log.positions.find(offset))
    position = position[differs_from_previous(position)]
    position = position[position >= 0]
    stands = log.rows[position[log.key[position] != UNREADABLE]]
    consumer = index.by_consumer[read]
    return _Observations(
        offset=np.concatenate([offset, reads["log_offset"][stands]]),
        key=np.concatenate([index.read_key[read], index.send_key[sent], index.read_key[stands]]),
        rank=np.concatenate(
            [
                np.where(consumer, _CONSUMER, _AUDIT),
                np.full(len(sent), _ACKNOWLEDGEMENT),
                np.full(len(stands), _IN_LOG),
            ]
        ),
        time_ns=np.concatenate([reads["read_ns"][read], sends["completed_ns"][sent], reads["read_ns"][stands]]),
        row=np.concatenate([read, sent, stands]),
    )


def _conflicting(seen: _Observations) -> _Observations:
    """Those at offsets where not all name one record, ordered by offset, record, strength, time."""
    order = np.lexsort((seen.key, seen.offset))
    offset, key = seen.offset[order], seen.key[order]
    same_offset = ~differs_from_previous(offset)
    conflict = offset[same_offset & differs_from_previous(key)]  # ascending
    if not len(conflict):
        return seen.take(order[:0])
    conflict = conflict[differs_from_previous(conflict)]
    place = np.minimum(np.searchsorted(conflict, seen.offset), len(conflict) - 1)
    seen = seen.take(np.flatnonzero(conflict[place] == seen.offset))
    return seen.take(np.lexsort((seen.time_ns, seen.rank, seen.key, seen.offset)))


def _witnesses(index: PartitionIndex, seen: _Observations) -> tuple[np.ndarray, int]:
    """One per record and offset but for the record that stands."""
    starts = np.flatnonzero(differs_from_previous(seen.key) | differs_from_previous(seen.offset))
    stops = np.append(starts[1:], len(seen.offset))
    # The first observation of each (offset, record) is its strongest; among equals the latest stands.
    latest = np.maximum.reduceat(seen.time_ns, starts)
    order = np.lexsort((-latest, seen.rank[starts], seen.offset[starts]))
    standing = differs_from_previous(seen.offset[starts[order]])
    other = starts[order][np.flatnonzero(standing)[np.cumsum(standing) - 1]][~standing]
    first, last = starts[order][~standing], stops[order][~standing] - 1
    count = len(first)
    first, last, other = first[:WITNESSES_MAX], last[:WITNESSES_MAX], other[:WITNESSES_MAX]
    loser = np.maximum(seen.rank[first], _AUDIT)
    case = _CASE[np.where(_by_consumer(seen, last), _CONSUMER, loser), np.maximum(seen.rank[other], _AUDIT)]
    client, sequence = _identity(index, seen, first)
    other_client, other_sequence = _identity(index, seen, other)
    key = seen.key[first]
    columns = {
        "client": client,
        "sequence": sequence,
        "log_offset": seen.offset[first],
        "other_client": other_client,
        "other_sequence": other_sequence,
        "other_offset": seen.offset[first],
        "other_ns": seen.time_ns[other],
        "case": case,
        **index.sent(index.send_rows(key)),
        **index.seen_at(key, index.unmatched_reads, seen.offset[first]),
    }
    missing = columns["other_ns"] == MISSING
    assert not missing.any(), "an observation without a time"
    return make_witnesses(len(first), {"partition": index.partition, **columns}), count


def _by_consumer(seen: _Observations, last: np.ndarray) -> np.ndarray:
    return np.asarray(seen.rank[last] == _CONSUMER)


def _identity(index: PartitionIndex, seen: _Observations, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(client, sequence) of the records of these observations."""
    sent = seen.rank[rows] == _ACKNOWLEDGEMENT
    client, sequence = np.empty(len(rows), dtype=np.int32), np.empty(len(rows), dtype=np.int64)
    send, read = seen.row[rows[sent]], seen.row[rows[~sent]]
    client[sent], client[~sent] = index.sends["client"][send], index.reads["sender"][read]
    sequence[sent], sequence[~sent] = index.sends["sequence"][send], index.reads["sequence"][read]
    return client, sequence
