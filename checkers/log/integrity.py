"""These kernels check a partition's log: no acknowledged record disappears, no record stands in it twice or out of
order, and an offset names one record."""

from dataclasses import dataclass

import numpy as np

from prozess.checkers.alignment import rows_that
from prozess.checkers.lookup import UNREADABLE, Indexed, Lookup, differs_from_previous, distinct, identity_keys
from prozess.checkers.partition_index import PartitionIndex, read_in_the_end
from prozess.harness.columns import of_clients
from prozess.harness.interfaces.checking import KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import NONE, Isolation, Outcome

# These kernels do not ask whether a finding was permitted. They are O(n) where observers agree with the log. Only what
# does not agree is sorted.


LOST_ABSENT = 0
"""Case of `lost`: no record stands at its offset any more, or its offset is not known."""
LOST_REPLACED = 1
"""Case of `lost`: another record stands at its offset (`other_*`). An acks=1 acknowledgement that conflicts with the log
counts here, too: its record is not in the log, or it stands elsewhere and nothing is lost."""
LOST_OR_BEFORE = 2
"""Case of `lost`: nobody audited, somebody read a later offset, and no consumer is known to have come by this one: each
may have begun behind it."""

REORDERED_OR_COPY = 1
"""Case of `reordered`: this may instead be a second copy of a record whose first copy was cleaned away."""


def lost(history: PartitionHistory) -> KernelResult:
    """Every record that was acknowledged, or that anyone received, is in the log.

    Source: acks ("As long as at least one in-sync replica remains alive" for acks=all),
    https://kafka.apache.org/documentation/#producerconfigs_acks. Counts records. Not judged: sends that were completed
    after the sentinel was sent and may stand behind it; what retention or compaction may have removed; a record whose
    index holds an unreadable one (that is `corrupt`). Records without offset that one of these may be make the result
    incomplete. `case`: LOST_ABSENT, LOST_REPLACED, LOST_OR_BEFORE. O(n), and O(k log k) for the k records that the log
    does not confirm.

    Example: a, b and c were acknowledged at 0, 1 and 2, and the log is [a x]. At offset 1 stands x, and no other offset has
    b: b is lost, LOST_REPLACED. Nothing stands at 2: c is lost, LOST_ABSENT. d was not acknowledged, but a consumer
    received it at 3: it was in the log, and is lost, too.
    """
    index = PartitionIndex.of(history)
    sends = index.sends
    if not index.audited:
        return _lost_unaudited(index, history)
    if reason := index.incomplete():
        judged = int(np.count_nonzero(index.acknowledged))
        return KernelResult(no_witnesses(), count=0, judged=judged, incomplete=reason)
    by_transaction = _proven_by_transaction(index)
    acknowledged, acknowledged_judged, doubtful = _lost_acknowledged(index, by_transaction)
    seen_row, seen_send, proven_judged, resolved = _lost_proven(index, doubtful, by_transaction)
    # Two kinds of witnesses: by a row of `sends` (acknowledged), and by a row of `reads` (received). -1: there is no such
    # row.
    count = len(acknowledged) + len(seen_row)
    witnesses = no_witnesses()
    if count:
        reads, gap = index.reads, np.full(len(acknowledged), -1, dtype=np.intp)
        assert len(seen_row) == len(seen_send), "a read that proves a record has its send, or -1"
        row, read = np.concatenate([acknowledged, seen_send]), np.concatenate([gap, seen_row])
        row, read = row[:WITNESSES_MAX], read[:WITNESSES_MAX]
        by_send = read < 0
        witnesses = _lost_witnesses(
            index,
            row,
            key=_pick(by_send, index.send_key[row[by_send]], index.keys_of_reads(read[~by_send])),
            client=_pick(by_send, sends["client"][row[by_send]], reads["sender"][read[~by_send]]),
            sequence=_pick(by_send, sends["sequence"][row[by_send]], reads["sequence"][read[~by_send]]),
            offset=_pick(by_send, sends["log_offset"][row[by_send]], reads["log_offset"][read[~by_send]]),
        )
    unknown = len(doubtful) - resolved
    reason = (
        f"{unknown} acknowledged records without offset may have been removed by cleaning, or be the unreadable ones"
    )
    return KernelResult(witnesses, count, acknowledged_judged + proven_judged, reason if unknown else None)


def _lost_unaudited(index: PartitionIndex, history: PartitionHistory) -> KernelResult:
    """Judges `lost` without an audit. A record is missing if consumers read past its offset and none of them received
    it; LOST_OR_BEFORE if none of them is known to have come by. No record is missing if consumers received all of them
    once more after the last send was over."""
    sends, never = index.sends, _NeverGiven.of(history)
    rows, reached = never.rows, never.reached
    lost_rows = rows[~index.consumed.beyond(sends["log_offset"][rows])]
    if not len(lost_rows):
        everything = read_in_the_end(index, history.client_clock)
        return KernelResult(no_witnesses(), 0, reached, None if everything else index.incomplete())
    shown = lost_rows[:WITNESSES_MAX]
    witnesses = _lost_witnesses(
        index,
        shown,
        key=index.send_key[shown],
        client=sends["client"][shown],
        sequence=sends["sequence"][shown],
        offset=sends["log_offset"][shown],
    )
    in_doubt = index.consumed.not_within(witnesses["log_offset"]) & (witnesses["case"] == LOST_ABSENT)
    witnesses["case"][in_doubt] = LOST_OR_BEFORE
    return KernelResult(witnesses, len(lost_rows), reached)


def unseen(history: PartitionHistory) -> KernelResult:
    """A fact, not an anomaly: acknowledged records that no consumer received, and that none can be stated to have
    missed, because nobody read as far, or nobody knows where they stand. Only of histories that nobody audited.

    O(n log n).

    Example: a, b and c were acknowledged at 0, 1 and 2. Consumers that began at the start received a alone: b and c are
    unseen. If one had received c, b would be `lost`.
    """
    index = PartitionIndex.of(history)
    if index.audited:
        return KernelResult(no_witnesses(), count=0, judged=0)
    sends, rows = index.sends, _NeverGiven.of(history).rows
    rows = rows[index.consumed.beyond(sends["log_offset"][rows])]
    judged = int(np.count_nonzero(sends["outcome"] == Outcome.OK.value))
    if not len(rows):
        return KernelResult(no_witnesses(), 0, judged)
    shown = rows[:WITNESSES_MAX]
    columns = {
        "partition": np.full(len(shown), index.partition),
        **index.records_sent(shown),
        **index.sent(shown),
    }
    return KernelResult(make_witnesses(len(shown), columns), len(rows), judged)


class _NeverGiven(Indexed):
    """Finds the records of a partition that nobody audited that were acknowledged and that no consumer received."""

    def __init__(self, history: PartitionHistory) -> None:
        index = PartitionIndex.of(history)
        sends = index.sends
        ok = ((sends["outcome"] == Outcome.OK.value) | _proven_by_transaction(index)) & (
            sends["client"] != SENTINEL_CLIENT
        )
        self.reached = int(np.count_nonzero(ok & ~index.consumed.beyond(sends["log_offset"])))
        """How many sends are ok and stand where consumers read."""
        rows = np.flatnonzero(ok & ~index.consumed.sends)
        tombstone = sends["size"][rows] == NONE
        key, offset = sends["key"][rows], sends["log_offset"][rows]
        self.rows = rows[~index.may_be_cleaned(record_key=key, offset=offset, tombstone=tombstone)]
        """The rows of `sends` that are ok (or proven by their transaction) and that no consumer received."""


def _pick(first: np.ndarray, values: np.ndarray, others: np.ndarray) -> np.ndarray:
    assert len(values) + len(others) == len(first), "each index gets one value"
    picked = np.empty(len(first), dtype=np.int64)
    picked[first], picked[~first] = values, others
    return picked


def _proven_by_transaction(index: PartitionIndex) -> np.ndarray:
    """Returns bool[sends]: was this record committed, although its commit is in doubt? It was if somebody at
    read_committed received another record of its transaction in this partition. (Proof from other partitions is left to
    the cell: `torn`, `lost-transaction`.)"""
    sends = index.sends
    doubtful = rows_that(sends["outcome"], lambda some: some == Outcome.INFO.value)
    doubtful = doubtful[sends["transaction"][doubtful] != NONE]
    proven = np.zeros(len(sends["outcome"]), dtype=bool)
    if not len(doubtful):
        return proven
    seen = np.flatnonzero(index.shown_committed & (sends["transaction"] != NONE))
    shown = Lookup(distinct(identity_keys(sends["client"][seen], sends["transaction"][seen])))
    proven[doubtful] = shown.find(identity_keys(sends["client"][doubtful], sends["transaction"][doubtful])) >= 0
    # What somebody received itself is `_lost_proven`'s: the read knows the offset.
    proven &= ~index.marked(index.send_of_read[index.unmatched_reads])
    return proven


def _lost_acknowledged(index: PartitionIndex, by_transaction: np.ndarray) -> tuple[np.ndarray, int, np.ndarray]:
    """Returns the rows of `sends` that are ok (or proven by their transaction) and not in L(p); how many were judged;
    and the rows that cannot be judged, because nobody knows their offset."""
    sends = index.sends
    ok = index.acknowledged
    if by_transaction.any():
        ok = ok | by_transaction
        ok[: index.sentinel_sends] = False
    rows = np.flatnonzero(ok & ~index.send_confirmed)
    judged = int(np.count_nonzero(ok))
    # Not where it was acknowledged: it may stand elsewhere in the log, and then nothing is lost.
    rows = rows[index.identities.find(index.send_key[rows]) < 0]
    offset = sends["log_offset"][rows]
    excused = index.beyond.find(index.send_key[rows]) >= 0
    end, sentinel_ns = index.log.end, index.sentinel_ns
    assert end is not None
    if sentinel_ns is not None:
        # Completed after the sentinel was sent: it may stand behind it, where the audit did not read.
        excused |= (sends["completed_ns"][rows] >= sentinel_ns) & ((offset == NONE) | (offset > end))
    maybe = index.may_be_cleaned(record_key=sends["key"][rows], offset=offset, tombstone=sends["size"][rows] == NONE)
    if index.unreadable_positions:
        position = index.send_position[rows]
        maybe |= (offset == NONE) | ((position >= 0) & (index.log.key[position] == UNREADABLE))
    doubtful = rows[maybe & ~excused & (offset == NONE)]
    excused |= maybe
    return rows[~excused], judged - int(np.count_nonzero(excused)), doubtful


def _lost_proven(
    index: PartitionIndex, doubtful: np.ndarray, by_transaction: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Returns records that somebody received although nobody acknowledged them, and that are not in L(p): the first such
    rows of `reads`, and their rows of `sends` (-1: not recorded, because the producer crashed). It also returns how many
    proven records were judged. It judges `doubtful` rows of `sends` as well, whose offset only a reader knows, and
    returns last how many of them that resolved.

    In a transaction only what was seen at read_committed is proven: a record given to a read_uncommitted reader may be an
    aborted one, and even the log need not keep that.
    """
    sends, reads = index.sends, index.reads
    in_log = _in_doubt_in_log(index, by_transaction)
    missing = _reads_missing_from_log(index)
    send = index.send_rows(index.keys_of_reads(missing))
    sent = send >= 0
    # Only reads prove these: the send was never recorded, or nobody knows how it ended, or at which offset.
    proven = ~sent
    proven[sent] = sends["outcome"][send[sent]] == Outcome.INFO.value
    # `doubtful` was acknowledged, and nobody knew where: a reader that received it knows, and resolves it.
    located = Lookup(doubtful).find(send) >= 0
    resolved = len(distinct(send[located]))
    proven |= located
    tombstone, transactional = np.zeros(len(missing), dtype=bool), np.zeros(len(missing), dtype=bool)
    tombstone[sent] = sends["size"][send[sent]] == NONE
    transactional[sent] = sends["transaction"][send[sent]] != NONE
    level = of_clients(index.client_isolation, reads["client"][missing], unknown=Isolation.NOT_A_READER)
    proven &= ~transactional | (level == Isolation.READ_COMMITTED.value)
    # Cleaning may have removed it, or what stands there cannot be read and may be it: neither is lost for certain.
    offset = reads["log_offset"][missing]
    proven &= ~index.may_be_cleaned(record_key=reads["key"][missing], offset=offset, tombstone=tombstone)
    if index.unreadable_positions:
        position = index.positions_of_reads(missing)
        proven &= ~((position >= 0) & (index.log.key[position] == UNREADABLE))
    # Several readers may have received one record: the first of them is the witness.
    candidates = np.flatnonzero(proven)
    key = index.keys_of_reads(missing[candidates])
    order = np.lexsort((reads["read_ns"][missing[candidates]], key))
    first = candidates[order[differs_from_previous(key[order])]]
    return missing[first], send[first], in_log + len(first), resolved


def _in_doubt_in_log(index: PartitionIndex, by_transaction: np.ndarray) -> int:
    """Returns how many records, of which nobody knows how their send ended, are in L(p): the log itself proves them."""
    rows = rows_that(index.sends["outcome"], lambda some: some == Outcome.INFO.value)
    rows = rows[(index.sends["client"][rows] != SENTINEL_CLIENT) & ~by_transaction[rows]]
    return int(np.count_nonzero(index.identities.find(index.send_key[rows]) >= 0))


def _reads_missing_from_log(index: PartitionIndex) -> np.ndarray:
    """Returns the rows of `reads` that show a record that was sent here, and that L(p) should have and does not have."""
    unmatched = index.unmatched_reads
    key = index.keys_of_reads(unmatched)
    absent = index.concerns_log(unmatched) & (index.identities.find(key) < 0) & (index.beyond.find(key) < 0)
    rows = unmatched[absent]
    return np.asarray(rows[~index.never_issued(rows) & ~index.sent_elsewhere(rows)])


def _lost_witnesses(
    index: PartitionIndex,
    row: np.ndarray,
    *,
    key: np.ndarray,
    client: np.ndarray,
    sequence: np.ndarray,
    offset: np.ndarray,
) -> np.ndarray:
    position = index.log.positions.find(offset)
    position[index.agrees(position, key)] = -1  # without an audit its own acknowledgement stands there
    columns: dict[str, np.ndarray | int] = {
        "partition": index.partition,
        "client": client,
        "sequence": sequence,
        "log_offset": offset,
        "case": np.where(position >= 0, LOST_REPLACED, LOST_ABSENT),
        **index.record_at(position),
        **index.seen_at(key, index.unmatched_reads, offset),
        **index.sent(row),
    }
    # Unrecorded ones, past what a crashed producer could record, are treated as info.
    columns["outcome"] = np.where(row >= 0, columns.get("outcome", NONE), Outcome.INFO)
    return make_witnesses(len(row), columns)


def duplicate(history: PartitionHistory) -> KernelResult:
    """No record stands at two offsets of the log (of a transactional producer: of what read_committed shows).

    Source: enable.idempotence, "exactly one copy of each message is written in the stream",
    https://kafka.apache.org/documentation/#producerconfigs_enable.idempotence; KIP-98. Counts copies beyond the first;
    `log_offset` is the copy's, `other_offset` that of the first. O(n), O(n log n) if the log is not in order.

    Example: in the log [a b a c a] the copies at 2 and 4 count, each with `other_offset` 0.
    """
    index = PartitionIndex.of(history)
    log, found = index.log, index.identities
    extra, first, reason = found.extra, found.extra_first, index.incomplete()
    if not len(extra):
        return KernelResult(no_witnesses(), 0, judged=len(log.key), incomplete=reason)
    row = index.send_rows(log.key[extra])
    # A copy of a transactional record counts if V shows it: aborted ones stay in L(p), and nobody is given them.
    transactional = row >= 0
    transactional[transactional] = index.sends["transaction"][row[transactional]] != NONE
    if transactional.any():
        reason = reason or index.incomplete(Isolation.READ_COMMITTED)
        assert len(extra) == len(first) == len(transactional), "a further copy has a first one"
        visible = _visible_copies(index, extra[transactional], first[transactional])
        extra = np.concatenate([extra[~transactional], visible[0]])
        first = np.concatenate([first[~transactional], visible[1]])
    count = len(extra)
    order = np.argsort(extra, kind="stable")[:WITNESSES_MAX]
    extra, first = extra[order], first[order]
    witnesses = make_witnesses(len(extra), _pairs_in_log(index, extra, first))
    return KernelResult(witnesses, count, judged=len(log.key), incomplete=reason)


def _pairs_in_log(index: PartitionIndex, slot: np.ndarray, other: np.ndarray) -> dict[str, np.ndarray | int]:
    """Columns of witnesses: the records at these positions of L(p), and (`other_*`) those at the other positions."""
    log, sender, sequence = index.log, index.reads["sender"], index.reads["sequence"]
    return {
        "partition": index.partition,
        "client": sender[log.rows[slot]],
        "sequence": sequence[log.rows[slot]],
        "log_offset": log.offset[slot],
        "other_client": sender[log.rows[other]],
        "other_sequence": sequence[log.rows[other]],
        "other_offset": log.offset[other],
        **index.sent(index.send_rows(log.key[slot])),
        **index.seen(log.key[slot]),
    }


def _visible_copies(index: PartitionIndex, extra: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns, for records with several copies in L(p), the copies beyond the first that V(p) shows, and that first one."""
    log, visible = index.log, index.visible
    # All copies of these records, the first ones too, as far as V shows them; then each group in the order of the log.
    position = np.concatenate([distinct(first), extra])
    slot = visible.positions.find(log.offset[position])
    shown = slot >= 0
    shown[shown] = visible.key[slot[shown]] == log.key[position[shown]]
    position = position[shown]
    position = position[np.lexsort((position, log.key[position]))]
    key = log.key[position]
    new = differs_from_previous(key)
    starts = position[new]
    # Example: V shows a at 2 and at 5, not its first copy at 0. Then 2 is the first, and 5 the only further copy.
    return position[~new], starts[np.cumsum(new)[~new] - 1]


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
    columns = {**_pairs_in_log(index, after, before), "case": REORDERED_OR_COPY if cleaned else 0}
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
    starts = np.flatnonzero(differs_from_previous(seen.key) | differs_from_previous(seen.offset))
    stops = np.append(starts[1:], len(seen.offset))
    # The first observation of each (offset, record) is its strongest; among equals the latest stands.
    latest = np.maximum.reduceat(seen.time_ns, starts)
    order = np.lexsort((-latest, seen.rank[starts], seen.offset[starts]))
    standing = differs_from_previous(seen.offset[starts[order]])
    # Each other record of an offset, beside the one that stands: the latest True of `standing` up to it.
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
