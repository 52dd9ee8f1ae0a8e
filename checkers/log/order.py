"""These kernels check that no record of a partition's log is out of order, and that an offset names one record."""

from dataclasses import dataclass

import numpy as np

from prozess.checkers.log.duplicates import pairs_in_log
from prozess.checkers.lookup import UNREADABLE, differs_from_previous
from prozess.checkers.partition_index import PartitionIndex
from prozess.harness.interfaces.checking import KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses
from prozess.harness.schema import NONE

# These kernels do not ask whether a finding was permitted. They are O(n) where observers agree with the log. Only what
# does not agree is sorted.


REORDERED_OR_COPY = 1
"""Case of `reordered`: this may instead be a second copy of a record whose first copy was cleaned away."""


def reordered(history: PartitionHistory) -> KernelResult:
    """The first copies of one client's records stand in the log in the order in which they were sent.

    Source: "Messages sent by a producer to a particular topic partition will be appended in the order they are sent",
    https://kafka.apache.org/documentation/#intro_guarantees. Counts descents: pairs of first copies of one client, next to
    each other in the log, of which the later was sent earlier (that one is the witness's record, the one before it
    `other_*`). Records never sent here (`phantom`, `misplaced`) have no place in the order. Where retention or compaction
    may have removed first copies, a descent may be a second copy behind a removed first (`case` REORDERED_OR_COPY). O(n),
    O(n log n) if the log is not in order.

    Example: one client sent 1, 2, 3, 4, and the log is [1 3 2 1 4]. The 1 at offset 3 is a further copy (`duplicate`). The
    first copies are 1 3 2 4: one descent, from 3 to 2.
    """
    index = PartitionIndex.of(history)
    log, found, reason = index.log, index.identities, index.incomplete()
    if found.orderly:
        return KernelResult(no_witnesses(), 0, judged=len(log.key), incomplete=reason)
    is_first = np.zeros(len(log.key), dtype=bool)
    is_first[found.first] = True
    is_first &= ~index.never_issued(log.rows) & ~index.sent_elsewhere(log.rows)
    # `grouped` has no record that cannot be read: such a one has no place among its client's.
    # One line of first copies for each client, one line after the other, each in the order of the log.
    # Example: log [a1 b1 a3 a2 b2]. Grouped it is a1 a3 a2 | b1 b2; from a3 to a2 the key descends, and from a2 to b1 it
    # ascends.
    line = found.grouped[is_first[found.grouped]]
    key = log.key[line]  # clients come in ascending order, so keys descend only within one
    descent = np.flatnonzero(key[1:] < key[:-1])
    before, after = line[descent], line[descent + 1]
    cleaned = index.compacted or index.log_start > 0
    count = len(after)
    order = np.argsort(after, kind="stable")[:WITNESSES_MAX]
    before, after = before[order], after[order]
    columns = {**pairs_in_log(index, after, before), "case": REORDERED_OR_COPY if cleaned else 0}
    other_sent = index.sent(index.send_rows(log.key[before]))
    if "begin_ns" in other_sent:
        columns["other_ns"] = other_sent["begin_ns"]
    return KernelResult(make_witnesses(len(after), columns), count, judged=len(log.key), incomplete=reason)


# One offset, one record: everybody who looked at an offset saw the same record (`offset_conflict`).


# The kinds of observers. The strongest evidence of what the log holds comes first.
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
"""The rank of the audit's own L(p), which comes before every other observation."""


@dataclass(frozen=True, slots=True)
class _Observations:
    """The observations of records: who saw which record at which offset. All arrays have the same length."""

    offset: np.ndarray
    key: np.ndarray
    rank: np.ndarray
    """_IN_LOG, _AUDIT, _ACKNOWLEDGEMENT or _CONSUMER."""
    time_ns: np.ndarray
    row: np.ndarray
    """A row of `sends` for an acknowledgement, and a row of `reads` otherwise."""

    def take(self, rows: np.ndarray) -> "_Observations":
        """Returns some of the observations."""
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

    Example: at offset 7 the log has a. A consumer received b there, and b's send was acknowledged at 7 with acks=all: one
    record other than the log's, b, with the case CONSUMER_AGAINST_AUDIT.
    """
    index = PartitionIndex.of(history)
    acknowledged = index.acknowledged & (index.sends["log_offset"] != NONE) & index.sent_with(acks=-1)
    judged = int(np.count_nonzero(acknowledged)) + index.read_count
    if not len(index.unmatched_reads) and (index.send_confirmed | ~acknowledged).all():
        return KernelResult(no_witnesses(), count=0, judged=judged, incomplete=index.incomplete())
    seen = _conflicting(_unconfirmed(index, np.flatnonzero(acknowledged)))
    if not len(seen.offset):
        return KernelResult(no_witnesses(), count=0, judged=judged, incomplete=index.incomplete())
    witnesses, count = _witnesses(index, seen)
    return KernelResult(witnesses, count, judged, incomplete=index.incomplete())


def _unconfirmed(index: PartitionIndex, acknowledged: np.ndarray) -> _Observations:
    """Returns every observation that L(p) does not confirm, and what L(p) shows at the same offsets."""
    reads, sends, log = index.reads, index.sends, index.log
    read = index.unmatched_reads
    sent = acknowledged[~index.send_confirmed[acknowledged]]
    offset = np.concatenate([reads["log_offset"][read], sends["log_offset"][sent]])
    # What agrees with L(p) is left out, because L(p) itself stands for it: a conflict needs somebody who disagrees.
    # Each position once, however many observers disagree with the record there; -1 (the log has none) goes.
    position = np.sort(log.positions.find(offset))
    position = position[differs_from_previous(position)]
    position = position[position >= 0]
    stands = log.rows[position[log.key[position] != UNREADABLE]]
    consumer = index.read_by_consumer(read)
    return _Observations(
        offset=np.concatenate([offset, reads["log_offset"][stands]]),
        key=np.concatenate([index.keys_of_reads(read), index.send_key[sent], index.keys_of_reads(stands)]),
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
    """Returns the observations at offsets where not all name one record. They are ordered by offset, record, strength
    and time."""
    # Side by side by offset and record: a conflict is where the record changes and the offset does not.
    order = np.lexsort((seen.key, seen.offset))
    offset, key = seen.offset[order], seen.key[order]
    same_offset = ~differs_from_previous(offset)
    # Example: sorted, the pairs (offset, record) are 6a 7a 7a 7b. Only from 7a to 7b the record alone changes.
    conflict = offset[same_offset & differs_from_previous(key)]  # ascending
    if not len(conflict):
        return seen.take(order[:0])
    conflict = conflict[differs_from_previous(conflict)]
    # Is the offset of an observation one of those with a conflict? Compare it with the first that is not less.
    slot = np.minimum(np.searchsorted(conflict, seen.offset), len(conflict) - 1)
    seen = seen.take(np.flatnonzero(conflict[slot] == seen.offset))
    return seen.take(np.lexsort((seen.time_ns, seen.rank, seen.key, seen.offset)))


def _witnesses(index: PartitionIndex, seen: _Observations) -> tuple[np.ndarray, int]:
    """Returns one witness for each offset and each record there other than the one that stands, and how many there are."""
    # Example: at offset 7 the log has a; the audit read a, a consumer b, and an acknowledgement names b, too. Groups are (7,
    # a) with rank _IN_LOG and (7, b) with rank _ACKNOWLEDGEMENT. a stands; b is the witness. A consumer saw b, so the case is
    # CONSUMER_AGAINST_AUDIT, though an acknowledgement is the stronger evidence.
    new = differs_from_previous(seen.key) | differs_from_previous(seen.offset)
    starts = np.flatnonzero(new)
    stops = np.append(starts[1:], len(seen.offset))
    # The first observation of each (offset, record) is its strongest; among equals the latest stands. Weaker observations do
    # not count: if a was acknowledged at 10 s and read at 90 s, and b acknowledged at 50 s, b stands.
    ranks = np.flatnonzero(new | differs_from_previous(seen.rank))
    latest = seen.time_ns[np.append(ranks[1:], len(seen.rank))[np.searchsorted(ranks, starts)] - 1]
    order = np.lexsort((-latest, seen.rank[starts], seen.offset[starts]))
    standing = differs_from_previous(seen.offset[starts[order]])
    # Each other record of an offset, beside the one that stands: the latest True of `standing` up to it.
    # Example: two offsets with 2 and 3 records: standing is T F T F F, its cumsum less 1 is 0 0 1 1 1. The others (F) are
    # beside the first, the second and the second of those that stand.
    other = starts[order][np.flatnonzero(standing)[np.cumsum(standing) - 1]][~standing]
    # From the strongest observation of the record to the weakest one: a consumer, if one is among them, comes last.
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
    # A damaged observation may have no time: contradictions say, and then nothing that was found decides.
    return make_witnesses(len(first), {"partition": index.partition, **columns}), count


def _by_consumer(seen: _Observations, last: np.ndarray) -> np.ndarray:
    return np.asarray(seen.rank[last] == _CONSUMER)


def _identity(index: PartitionIndex, seen: _Observations, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (client, sequence) of the records of these observations."""
    sent = seen.rank[rows] == _ACKNOWLEDGEMENT
    client, sequence = np.empty(len(rows), dtype=np.int32), np.empty(len(rows), dtype=np.int64)
    send, read = seen.row[rows[sent]], seen.row[rows[~sent]]
    client[sent], client[~sent] = index.sends["client"][send], index.reads["sender"][read]
    sequence[sent], sequence[~sent] = index.sends["sequence"][send], index.reads["sequence"][read]
    return client, sequence
