"""What Kafka promises of a partition's log: nothing acknowledged disappears, nothing stands there twice or out of order, an
offset means one record. Stage check: the arrays of one partition in, findings out; needs no cluster.

Whether a finding was permitted is not asked here. O(n) where observers agree with the log; what does not agree is sorted.
"""

import numpy as np

from checkers.arrays import PartitionIndex
from checkers.conflict import offset_conflict as offset_conflict
from checkers.lookup import UNREADABLE, Lookup, differs_from_previous, distinct, identity_keys
from harness.plan import SENTINEL_CLIENT
from harness.protocols import KernelResult, PartitionHistory
from harness.schema import NONE, Isolation, Outcome
from harness.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses

LOST_ABSENT = 0
"""`lost`: nothing stands at its offset any more, or its offset is not known."""
LOST_REPLACED = 1
"""`lost`: another record stands at its offset (`other_*`). This is also where an acks=1 acknowledgement that conflicts with
the log counts: its record is then not in the log, or it is there elsewhere and nothing is lost."""

REORDERED_OR_COPY = 1
"""`reordered`: or a second copy of a record whose first was cleaned away."""


def lost(history: PartitionHistory) -> KernelResult:
    """Every record that was acknowledged, or that anyone was given, is in the log.

    Source: acks ("As long as at least one in-sync replica remains alive" for acks=all),
    https://kafka.apache.org/documentation/#producerconfigs_acks. Counts records. Not judged: sends that were completed
    after the sentinel was sent and may stand behind it; what retention or compaction may have removed; a record whose
    place holds an unreadable one (that is `corrupt`). Records without offset that one of these may be make the result
    incomplete. `case`: LOST_ABSENT, LOST_REPLACED. O(n), and O(k log k) for the k records that the log does not confirm.
    """
    index = PartitionIndex.of(history)
    sends = index.sends
    if not index.audited:
        return _lost_unaudited(index)
    if reason := index.incomplete():
        judged = int(np.count_nonzero((sends["outcome"] == Outcome.OK) & (sends["client"] != SENTINEL_CLIENT)))
        return KernelResult(no_witnesses(), count=0, judged=judged, incomplete=reason)
    by_transaction = _proven_by_transaction(index)
    acknowledged, acknowledged_judged, doubtful = _lost_acknowledged(index, by_transaction)
    seen_row, seen_send, proven_judged, resolved = _lost_proven(index, doubtful, by_transaction)
    count = len(acknowledged) + len(seen_row)
    witnesses = no_witnesses()
    if count:
        reads, gap = index.reads, np.full(len(acknowledged), -1, dtype=np.intp)
        row, read = np.concatenate([acknowledged, seen_send]), np.concatenate([gap, seen_row])
        row, read = row[:WITNESSES_MAX], read[:WITNESSES_MAX]
        by_send = read < 0
        witnesses = _lost_witnesses(
            index,
            row,
            key=_pick(by_send, index.send_key, row, index.read_key, read),
            client=_pick(by_send, sends["client"], row, reads["sender"], read),
            sequence=_pick(by_send, sends["sequence"], row, reads["sequence"], read),
            offset=_pick(by_send, sends["log_offset"], row, reads["log_offset"], read),
        )
    unknown = len(doubtful) - resolved
    reason = (
        f"{unknown} acknowledged records without offset may have been removed by cleaning, or be the unreadable ones"
    )
    return KernelResult(witnesses, count, acknowledged_judged + proven_judged, reason if unknown else None)


def _lost_unaudited(index: PartitionIndex) -> KernelResult:
    """Without an audit a record is missing where consumers read past its offset and none was ever given it."""
    sends, rows, reached = index.sends, *_never_given(index)
    lost_rows = rows[~index.given.beyond(sends["log_offset"][rows])]
    witnesses = no_witnesses()
    if len(lost_rows):
        shown = lost_rows[:WITNESSES_MAX]
        witnesses = _lost_witnesses(
            index,
            shown,
            key=index.send_key[shown],
            client=sends["client"][shown],
            sequence=sends["sequence"][shown],
            offset=sends["log_offset"][shown],
        )
    return KernelResult(witnesses, len(lost_rows), reached, None if len(lost_rows) else index.incomplete())


def unseen(history: PartitionHistory) -> KernelResult:
    """A fact, not an anomaly: acknowledged records that no consumer was given, and that none can be said to have missed,
    because nobody read as far, or nobody knows where they stand. Only of histories that nobody audited. O(n log n)."""
    index = PartitionIndex.of(history)
    if index.audited:
        return KernelResult(no_witnesses(), count=0, judged=0)
    sends, rows, _ = index.sends, *_never_given(index)
    rows = rows[index.given.beyond(sends["log_offset"][rows])]
    shown = rows[:WITNESSES_MAX]
    columns = {
        "partition": np.full(len(shown), index.partition),
        "client": sends["client"][shown],
        "sequence": sends["sequence"][shown],
        "log_offset": sends["log_offset"][shown],
        **index.sent(shown),
    }
    judged = int(np.count_nonzero(sends["outcome"] == Outcome.OK))
    return KernelResult(make_witnesses(len(shown), columns), len(rows), judged)


def _never_given(index: PartitionIndex) -> tuple[np.ndarray, int]:
    """Rows of `sends` that are ok (or proven by their transaction) and were given to no consumer; and how many are ok and
    stand where consumers read."""
    sends = index.sends
    ok = ((sends["outcome"] == Outcome.OK) | _proven_by_transaction(index)) & (sends["client"] != SENTINEL_CLIENT)
    reached = int(np.count_nonzero(ok & ~index.given.beyond(sends["log_offset"])))
    rows = np.flatnonzero(ok)
    rows = rows[index.given.keys.find(index.send_key[rows]) < 0]
    tombstone = sends["size"][rows] == NONE
    cleaned = index.may_be_cleaned(record_key=sends["key"][rows], offset=sends["log_offset"][rows], tombstone=tombstone)
    return rows[~cleaned], reached


def _pick(first: np.ndarray, a: np.ndarray, row_a: np.ndarray, b: np.ndarray, row_b: np.ndarray) -> np.ndarray:
    picked = np.empty(len(first), dtype=np.int64)
    picked[first], picked[~first] = a[row_a[first]], b[row_b[~first]]
    return picked


def _proven_by_transaction(index: PartitionIndex) -> np.ndarray:
    """bool[sends]: the commit is in doubt, but another record of the transaction in this partition was seen at
    read_committed: so this one was committed, too. (Proof from other partitions is the cell's matter: `torn`,
    `lost-transaction`.)"""
    sends = index.sends
    doubtful = np.flatnonzero((sends["outcome"] == Outcome.INFO) & (sends["transaction"] != NONE))
    proven = np.zeros(len(sends["outcome"]), dtype=bool)
    if not len(doubtful):
        return proven
    level = index.fact(index.client_isolation, index.reads["client"], unknown=Isolation.NOT_A_READER)
    seen = index.send_rows(distinct(index.read_key[level == Isolation.READ_COMMITTED]))
    seen = seen[seen >= 0]
    seen = seen[sends["transaction"][seen] != NONE]
    shown = Lookup(distinct(identity_keys(sends["client"][seen], sends["transaction"][seen])))
    proven[doubtful] = shown.find(identity_keys(sends["client"][doubtful], sends["transaction"][doubtful])) >= 0
    # What somebody was given itself is `_lost_proven`'s: the read knows the offset.
    given = Lookup(distinct(index.read_key[index.unmatched_reads]))
    proven &= given.find(index.send_key) < 0
    return proven


def _lost_acknowledged(index: PartitionIndex, by_transaction: np.ndarray) -> tuple[np.ndarray, int, np.ndarray]:
    """Rows of `sends` that are ok (or proven by their transaction) and not in L(p), how many were judged, and the rows that
    cannot be told for want of an offset."""
    sends = index.sends
    ok = ((sends["outcome"] == Outcome.OK) | by_transaction) & (sends["client"] != SENTINEL_CLIENT)
    rows = np.flatnonzero(ok & ~index.send_confirmed)
    judged = int(np.count_nonzero(ok))
    rows = rows[index.identities.find(index.send_key[rows]) < 0]
    offset = sends["log_offset"][rows]
    excused = index.beyond.find(index.send_key[rows]) >= 0
    end, sentinel_ns = index.log.end, index.sentinel_ns
    assert end is not None
    if sentinel_ns is not None:
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
    """Records that somebody was given although nobody acknowledged them, and that are not in L(p): the first such rows of
    `reads`, their rows of `sends` (-1: not recorded, the producer crashed), and how many proven records were judged. So are
    `doubtful` rows of `sends`, of which nobody but a reader knows the offset; how many of them that resolved comes last.

    In a transaction only what was seen at read_committed is proven: a record given to a read_uncommitted reader may be an
    aborted one, and even the log need not keep that.
    """
    sends = index.sends
    informal = (sends["outcome"] == Outcome.INFO) & (sends["client"] != SENTINEL_CLIENT)
    informal = np.flatnonzero(informal & ~by_transaction)
    in_log = int(np.count_nonzero(index.identities.find(index.send_key[informal]) >= 0))
    rows = index.unmatched_reads
    rows = rows[index.concerns_log(rows) & (index.identities.find(index.read_key[rows]) < 0)]
    rows = rows[(index.beyond.find(index.read_key[rows]) < 0) & ~index.never_issued(rows)]
    rows = rows[~index.sent_elsewhere(rows)]
    row = index.send_rows(index.read_key[rows])
    kept = row < 0
    kept[~kept] = sends["outcome"][row[~kept]] == Outcome.INFO
    told = Lookup(doubtful).find(row) >= 0
    resolved = len(distinct(row[told]))
    kept |= told
    tombstone = np.zeros(len(rows), dtype=bool)
    tombstone[row >= 0] = sends["size"][row[row >= 0]] == NONE
    transactional = np.zeros(len(rows), dtype=bool)
    transactional[row >= 0] = sends["transaction"][row[row >= 0]] != NONE
    level = index.fact(index.client_isolation, index.reads["client"][rows], unknown=Isolation.NOT_A_READER)
    kept &= ~transactional | (level == Isolation.READ_COMMITTED)
    offset = index.reads["log_offset"][rows]
    kept &= ~index.may_be_cleaned(record_key=index.reads["key"][rows], offset=offset, tombstone=tombstone)
    position = index.read_position[rows]
    if index.unreadable_positions:
        kept &= ~((position >= 0) & (index.log.key[position] == UNREADABLE))
    rows, row = rows[kept], row[kept]
    order = np.lexsort((index.reads["read_ns"][rows], index.read_key[rows]))
    rows, row = rows[order], row[order]
    key = index.read_key[rows]
    first = differs_from_previous(key)
    rows, row = rows[first], row[first]
    return rows, row, in_log + len(rows), resolved


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
    """
    index = PartitionIndex.of(history)
    log, found = index.log, index.identities
    extra, first, reason = found.extra, found.extra_first, index.incomplete()
    row = index.send_rows(log.key[extra])
    transactional = row >= 0
    transactional[transactional] = index.sends["transaction"][row[transactional]] != NONE
    if transactional.any():
        reason = reason or index.incomplete(Isolation.READ_COMMITTED)
        visible = _visible_copies(index, extra[transactional], first[transactional])
        extra = np.concatenate([extra[~transactional], visible[0]])
        first = np.concatenate([first[~transactional], visible[1]])
    count = len(extra)
    order = np.argsort(extra, kind="stable")[:WITNESSES_MAX]
    extra, first = extra[order], first[order]
    read = log.rows[extra]
    columns = {
        "client": index.reads["sender"][read],
        "sequence": index.reads["sequence"][read],
        "log_offset": log.offset[extra],
        "other_client": index.reads["sender"][read],
        "other_sequence": index.reads["sequence"][read],
        "other_offset": log.offset[first],
        **index.sent(index.send_rows(log.key[extra])),
        **(index.seen(log.key[extra]) if count else {}),
    }
    witnesses = make_witnesses(len(extra), {"partition": index.partition, **columns})
    return KernelResult(witnesses, count, judged=len(log.key), incomplete=reason)


def _visible_copies(index: PartitionIndex, extra: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of records with several copies in L(p): the copies beyond the first that V(p) shows, and that first one."""
    log, visible = index.log, index.visible
    position = np.concatenate([distinct(first), extra])
    place = visible.positions.find(log.offset[position])
    shown = place >= 0
    shown[shown] = visible.key[place[shown]] == log.key[position[shown]]
    position = position[shown]
    position = position[np.lexsort((position, log.key[position]))]
    key = log.key[position]
    new = differs_from_previous(key)
    starts = position[new]
    return position[~new], starts[np.cumsum(new)[~new] - 1]


def reordered(history: PartitionHistory) -> KernelResult:
    """First copies of what one client sent stand in the log in the order sent.

    Source: "Messages sent by a producer to a particular topic partition will be appended in the order they are sent",
    https://kafka.apache.org/documentation/#intro_guarantees. Counts descents: pairs of first copies of one client, next to
    each other in the log, of which the later was sent earlier (that one is the witness's record, the one before it
    `other_*`). Records never sent here (`phantom`, `misplaced`) have no place in the order. Where retention or compaction
    may have removed first copies, a descent may be a second copy behind a removed first (`case` REORDERED_OR_COPY). O(n),
    O(n log n) if the log is not in order.
    """
    index = PartitionIndex.of(history)
    log, found, reason = index.log, index.identities, index.incomplete()
    before = after = np.empty(0, dtype=np.intp)
    if not found.orderly:
        is_first = np.zeros(len(log.key), dtype=bool)
        is_first[found.first] = True
        is_first &= ~index.never_issued(log.rows) & ~index.sent_elsewhere(log.rows)
        line = found.grouped[is_first[found.grouped]]
        key = log.key[line]  # clients come in ascending order, so keys descend only within one
        descent = np.flatnonzero(key[1:] < key[:-1])
        before, after = line[descent], line[descent + 1]
    cleaned = index.compacted or index.log_start > 0
    count = len(after)
    order = np.argsort(after, kind="stable")[:WITNESSES_MAX]
    before, after = before[order], after[order]
    read, other = log.rows[after], log.rows[before]
    columns = {
        "client": index.reads["sender"][read],
        "sequence": index.reads["sequence"][read],
        "log_offset": log.offset[after],
        "other_client": index.reads["sender"][other],
        "other_sequence": index.reads["sequence"][other],
        "other_offset": log.offset[before],
        "case": REORDERED_OR_COPY if cleaned else 0,
        **index.sent(index.send_rows(log.key[after])),
        **(index.seen(log.key[after]) if count else {}),
    }
    other_sent = index.sent(index.send_rows(log.key[before]))
    if "begin_ns" in other_sent:
        columns["other_ns"] = other_sent["begin_ns"]
    witnesses = make_witnesses(len(after), {"partition": index.partition, **columns})
    return KernelResult(witnesses, count, judged=len(log.key), incomplete=reason)
