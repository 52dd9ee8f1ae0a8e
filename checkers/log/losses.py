"""These kernels check that no acknowledged record disappears from a partition's log, and that consumers were given each."""

import numpy as np

from prozess.checkers.alignment import rows_that
from prozess.checkers.lookup import UNREADABLE, Indexed, Lookup, differs_from_previous, distinct, identity_keys
from prozess.checkers.partition_index import PartitionIndex, read_in_the_end
from prozess.harness.columns import of_clients
from prozess.harness.interfaces.checking import KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import MISSING, NONE, Isolation, Outcome

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


def lost(history: PartitionHistory) -> KernelResult:
    """Every record that was acknowledged, or that anyone received, is in the log.

    Source: acks ("As long as at least one in-sync replica remains alive" for acks=all),
    https://kafka.apache.org/documentation/#producerconfigs_acks. Counts records. Not judged: sends that were completed
    after the sentinel was sent and may stand behind it; what retention or compaction may have removed; a record whose
    index holds an unreadable one (that is `corrupt`). Records without offset that one of these may be make the result
    incomplete, unless consumers show that it is nowhere (`_overtaken`). `case`: LOST_ABSENT, LOST_REPLACED,
    LOST_OR_BEFORE. O(n), and O(k log k) for the k records that the log does not confirm.

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
    acknowledged, acknowledged_judged, doubtful = _lost_acknowledged(index, by_transaction, history)
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
    lost_rows = rows[never.passed]
    if not len(lost_rows):
        everything = read_in_the_end(index, history)
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
    offset = witnesses["log_offset"]
    in_doubt = (offset != NONE) & index.consumed.not_within(offset) & (witnesses["case"] == LOST_ABSENT)
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
    sends, never = index.sends, _NeverGiven.of(history)
    rows = never.rows[~never.passed]
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
        beyond = index.consumed.beyond(sends["log_offset"][self.rows])
        self.passed = ~beyond | _overtaken(index, self.rows, history)
        """bool[rows]: did a consumer come by this record, if it was in the log?"""


def _overtaken(index: PartitionIndex, rows: np.ndarray, history: PartitionHistory) -> np.ndarray:
    """Returns bool[rows]: was the record acknowledged without an offset, and is it nowhere in the log? That is proven if a
    record that was sent after the acknowledgement stands where no room is left for it (`_newest_without_room_ns`), and no
    consumer received this one. All producers must use one clock. acks=0 acknowledges nothing.

    Example: a and b were acknowledged at 3.1 s, and nobody knows where. Consumers received c d e at 0, 1 and 2, and e was
    sent at 3.2 s: a and b would have to stand before it. (A broker took c as the first batch, KAFKA-15591.)
    """
    sends = index.sends
    unknown = (sends["log_offset"][rows] == NONE) & (sends["outcome"][rows] == Outcome.OK.value)
    unknown &= of_clients(history.client_acks, sends["client"][rows], unknown=0) != 0
    clocks = of_clients(history.client_clock, index.senders[index.senders != SENTINEL_CLIENT], unknown=NONE)
    if not unknown.any() or (clocks == NONE).any() or (clocks != clocks[0]).any():
        return np.zeros(len(rows), dtype=bool)
    completed_ns, newest_ns = sends["completed_ns"][rows], _newest_without_room_ns(index, history)
    return np.asarray(unknown & ~index.consumed.sends[rows] & (completed_ns != MISSING) & (completed_ns < newest_ns))


def _newest_without_room_ns(index: PartitionIndex, history: PartitionHistory) -> int:
    """Returns when the newest record was sent that stands where consumers received every offset from 0 on, all of one
    leader's epoch. MISSING: there is none, or one of them cannot be read.

    One epoch, also for the audit, which must have read the later record or one behind it: a consumer may have received what
    a new leader then wrote over, or what a deposed one took after an unclean election, and another record may stand there. A
    leader that wrote both would have it at an offset of its own, and leaders after it have all that the audit read of it.
    """
    sends, reads = index.sends, index.reads
    rows = np.flatnonzero(reads["sender"] != SENTINEL_CLIENT)
    by_consumer = index.by_consumer[rows]
    consumer, audit = rows[by_consumer], rows[~by_consumer]
    # Stretches of offsets that consumers received: those of the records that are here, and of those that were left out.
    send = index.send_of_read[consumer]
    sent_ns = np.where(send >= 0, sends["invoked_ns"][send], MISSING)
    offset, epoch = reads["log_offset"][consumer], reads["leader_epoch"][consumer]
    stretches = np.concatenate([np.stack([offset, offset + 1, epoch, sent_ns], axis=1), history.left_out_given])
    first, behind, epoch, sent_ns = stretches[np.argsort(stretches[:, 0], kind="stable")].T
    # Example: 0-2 3-4 6-9 at epochs 4 5 5: nothing is missing before the offset 4, and 3 has another epoch: the first 3.
    until = np.maximum.accumulate(np.append(0, behind))
    whole = int(until[np.append((first > until[:-1]) | (first < 0), True).argmax()])
    begins = epoch[first == 0].max(initial=NONE)
    other = first[(epoch != begins) | (epoch == NONE)]
    if history.audited:
        same = reads["leader_epoch"][audit] == begins
        left = history.left_out_given[history.left_out_given[:, 2] == begins]
        confirmed = np.concatenate([reads["log_offset"][audit[same]] + 1, left[:, 1]]).max(initial=0)
        other, whole = np.concatenate([other, reads["log_offset"][audit[~same]]]), min(whole, int(confirmed))
    whole = int(other.min(initial=whole))
    readable = not (index.read_key[consumer[offset < whole]] == UNREADABLE).any()
    return int(sent_ns[first < whole].max(initial=MISSING)) if readable else MISSING


def _pick(first: np.ndarray, values: np.ndarray, others: np.ndarray) -> np.ndarray:
    assert len(values) + len(others) == len(first), "each index gets one value"
    # Example: first T F T, values 7 8, others 5: 7 5 8.
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
    # What somebody received himself at read_committed is `_lost_proven`'s: the read knows the offset. A read at
    # read_uncommitted proves nothing there, and takes no proof away here.
    unmatched = index.unmatched_reads
    level = of_clients(index.client_isolation, index.reads["client"][unmatched], unknown=Isolation.NOT_A_READER)
    proven &= ~index.marked(index.send_of_read[unmatched[level == Isolation.READ_COMMITTED.value]])
    return proven


def _lost_acknowledged(
    index: PartitionIndex, by_transaction: np.ndarray, history: PartitionHistory
) -> tuple[np.ndarray, int, np.ndarray]:
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
    if not len(rows):
        return rows, judged, rows
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
    maybe &= ~_overtaken(index, rows, history)
    doubtful = rows[maybe & ~excused & (offset == NONE)]
    # What may have been cleaned at a known offset is not judged; at an unknown one somebody may still know where it stood.
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
    if not len(missing):
        return missing, missing, in_log, 0
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
    # A transaction whose commit is certain has no such doubt: whoever received the record saw where it stands.
    proven &= ~transactional | (level == Isolation.READ_COMMITTED.value) | located
    # Cleaning may have removed it, or what stands there cannot be read and may be it: neither is lost for certain.
    offset = reads["log_offset"][missing]
    proven &= ~index.may_be_cleaned(record_key=reads["key"][missing], offset=offset, tombstone=tombstone)
    if index.unreadable_positions:
        position = index.positions_of_reads(missing)
        proven &= ~((position >= 0) & (index.log.key[position] == UNREADABLE))
    # Several readers may have received one record: the first of them is the witness.
    # Example: x was received at 9 s and at 4 s. In order the rows of x are 4 s, 9 s: the read at 4 s stays.
    candidates = np.flatnonzero(proven)
    key = index.keys_of_reads(missing[candidates])
    order = np.lexsort((reads["read_ns"][missing[candidates]], key))
    first = candidates[order[differs_from_previous(key[order])]]
    return missing[first], send[first], in_log + len(first), resolved


def _in_doubt_in_log(index: PartitionIndex, by_transaction: np.ndarray) -> int:
    """Returns how many records, of which nobody knows how their send ended, are in L(p): the log itself proves them."""
    rows = rows_that(index.sends["outcome"], lambda some: some == Outcome.INFO.value)
    # Those that their transaction proves are counted with the acknowledged ones.
    rows = rows[(index.sends["client"][rows] != SENTINEL_CLIENT) & ~by_transaction[rows]]
    return int(np.count_nonzero(index.identities.find(index.send_key[rows]) >= 0))


def _reads_missing_from_log(index: PartitionIndex) -> np.ndarray:
    """Returns the rows of `reads` that show a record that was sent here, and that L(p) should have and does not have."""
    unmatched = index.unmatched_reads
    if not len(unmatched):
        return unmatched
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
