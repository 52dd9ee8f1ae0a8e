"""This kernel compares the order of a partition's log with time: nothing is read before it is sent, and nothing that is sent
later stands in front of what was acknowledged or read before."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from prozess.checkers.alignment import rows_that, rows_where
from prozess.checkers.lookup import UNREADABLE, differs_from_previous, distinct
from prozess.checkers.partition_index import PartitionIndex
from prozess.harness.columns import of_clients, taken
from prozess.harness.interfaces.checking import KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, RealTimeCase, make_witnesses, no_witnesses
from prozess.harness.schema import MISSING, NONE, Role

_NEVER, _LEAST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def time_travel(history: PartitionHistory) -> KernelResult:
    """What was acknowledged or read before another record was sent, on the same clock, stands before it in the log, and
    nothing is read before it is sent.

    Source: a leader appends to the end of its log, acknowledges what it has appended, and gives consumers what is committed;
    positions of a committed log never change (Kafka documentation, design, "Replicated logs"). A send is recorded before the
    call, and a read when the poll has returned, so both times are on the safe side. Three records of a log:

        offset   sent   acknowledged   read
        7        10     20             25
        8        50     60             65
        9        30     40             45     acknowledged, and read, before the record in front of it was sent

    Counts records: `other_*` is the record in front of it that was sent last. `case` (RealTimeCase): ACKNOWLEDGED, acks other
    than 0, judged where its first copy stands; READ, judged at each offset where it was read and where the log has it;
    READ_UNSENT, the record itself was sent after the read, wherever it stands. A record has one case: the last of these
    that applies, but for ACKNOWLEDGED before READ. In front, the first copy of a record counts. Records without a row of
    `sends` are in no order of time. Where retention or compaction may have removed first copies, an acknowledged record is
    judged only where it stands at its acknowledged offset. O(n): one running maximum of the times of invocation, in the order
    of the log.
    """
    index = PartitionIndex.of(history)
    readers = _Readers(index, history.client_clock)
    row = _sends_in_log_order(index)
    # Records without a send of ours are left out: nothing says when they were sent.
    # `slot` is the position in the log of each record that is left, `row` its send, from here on in step with one another.
    slot = np.arange(len(row)) if not len(row) or int(row.min()) >= 0 else np.flatnonzero(row >= 0)
    row = taken(row, slot)
    sends = index.sends
    invoked_ns, completed_ns = sends["invoked_ns"][row], sends["completed_ns"][row]
    silent = rows_that(_acknowledged(index, row, slot), np.logical_not)
    # After every send: such a record is behind nothing, and is not judged.
    completed_ns[silent] = _NEVER
    judged = readers.judged
    found = [readers.unsent_elsewhere()]
    for clock, mine in _by_clock(index, history.client_clock, row):
        at, its_invoked_ns, its_completed_ns = (taken(of, mine) for of in (slot, invoked_ns, completed_ns))
        judged += int(np.count_nonzero(its_completed_ns != _NEVER)) if len(silent) else len(mine)
        # In the example above: sent 10, 50, 30, so newest 10, 50, 50. The record at 9 was acknowledged at 40, before 50.
        newest_ns = np.maximum.accumulate(its_invoked_ns)
        behind = _behind(newest_ns, its_completed_ns)
        if len(behind):
            # Where the running maximum first reached that value stands the record that was sent last.
            leader = at[np.searchsorted(newest_ns, newest_ns[behind - 1])]
            found.append(_Found.acknowledged(index, at[behind], leader))
        # What only an acknowledgement places may not be in the log that a consumer read: it makes no read too early.
        if not index.audited:
            newest_ns = np.maximum.accumulate(np.where(_certainly_there(index, row[mine]), its_invoked_ns, _LEAST))
        if len(at) < len(index.log.key):
            newest_ns = _for_each_position(at, newest_ns, len(index.log.key))
        found.append(readers.too_early(clock, newest_ns))
    return _result(index, found, judged)


def _behind(newest_ns: np.ndarray, completed_ns: np.ndarray) -> np.ndarray:
    """Returns the indices of records that were completed before one was invoked that stands before them."""
    following_ns = completed_ns[1:]
    assert len(newest_ns) == len(completed_ns), "two times for each record"
    return 1 + rows_where(len(following_ns), lambda rows: newest_ns[rows] > following_ns[rows])


def _sends_in_log_order(index: PartitionIndex) -> np.ndarray:
    """Returns intp[log]: for each position of L(p) the row of `sends` of the record whose first copy stands there, -1 if
    there is none."""
    # Two ways to the same: nearly all records stand once, where they were acknowledged, and that is known already.
    if len(index.identities.extra):  # the acknowledged copy need not be the first
        found, rows = np.full(len(index.log.key), -1, dtype=np.intp), np.arange(len(index.send_key))
    else:
        found, rows = index.send_at[:-1], np.flatnonzero(~index.send_confirmed)
        if len(rows):
            found = found.copy()
    # The rows that are left stand elsewhere than they were acknowledged, or were not acknowledged: they are searched for.
    assert len(found) == len(index.log.key), "an entry for each position"
    position = index.identities.find(index.send_key[rows])
    found[position[position >= 0]] = rows[position >= 0]
    return found


def _by_clock(index: PartitionIndex, client_clock: np.ndarray, row: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Returns each clock (one for each host), and the indices among these rows of `sends` that its clients sent."""
    clocks = of_clients(client_clock, index.senders, unknown=NONE)
    if len(clocks) and clocks[0] != NONE and (clocks == clocks[0]).all():
        return [(int(clocks[0]), np.arange(len(row)))]
    clock = of_clients(client_clock, index.sends["client"][row], unknown=NONE)
    return [(value, np.flatnonzero(clock == value)) for value in distinct(clock[clock != NONE]).tolist()]


def _acknowledged(index: PartitionIndex, row: np.ndarray, slot: np.ndarray) -> np.ndarray:
    """Returns bool[k]: was this send acknowledged, with acks other than 0, and did it stand there by then?"""
    sends = index.sends
    confirmed = index.acknowledged & (sends["completed_ns"] != MISSING) & ~index.sent_with(acks=0)
    confirmed[: index.sentinel_sends] = True  # these are not in L(p)
    known: np.ndarray = np.ones(len(row), dtype=bool) if confirmed.all() else confirmed[row]
    if index.compacted or index.log_start > 0:
        known &= sends["log_offset"][row] == index.log.offset[slot]
    return known


def _certainly_there(index: PartitionIndex, row: np.ndarray) -> np.ndarray:
    """Returns bool[k]: does this record certainly stand in the log that consumers read? Nobody audited it, and what acks=1
    acknowledged may stand in the log of a deposed leader alone."""
    return np.asarray((index.sent_with(acks=-1) | index.consumed.sends)[row])


def _for_each_position(at: np.ndarray, newest_ns: np.ndarray, length: int) -> np.ndarray:
    """Returns int64[length]: the running maximum at every position of L(p), of one that is known at some."""
    # Example: of 5 positions 1 and 3 are known, with the maxima 7 and 9: least, 7, 7, 9, 9.
    found = np.full(length, _LEAST)
    # Positions between two known ones take over the maximum of the one before: nothing that is known was sent there.
    found[at] = newest_ns
    return np.maximum.accumulate(found, out=found)


@dataclass(frozen=True, slots=True)
class _Found:
    """Records that may be witnesses. All arrays have one length, and a record may occur several times."""

    offset: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    key: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    case: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    read: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    """The row of `reads`, -1 for ACKNOWLEDGED."""
    other: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    """The position in L(p) of the record that was sent later, -1 for READ_UNSENT."""

    @staticmethod
    def acknowledged(index: PartitionIndex, position: np.ndarray, other: np.ndarray) -> "_Found":
        """Returns records of L(p) that were acknowledged before others in front of them were sent."""
        case = np.full(len(position), int(RealTimeCase.ACKNOWLEDGED))
        nobody = np.full(len(position), -1, dtype=np.intp)
        return _Found(index.log.offset[position], index.log.key[position], case, nobody, other)

    def take(self, rows: np.ndarray) -> "_Found":
        """Returns some of them."""
        return _Found(self.offset[rows], self.key[rows], self.case[rows], self.read[rows], self.other[rows])


class _Readers:
    """The reads of a partition by clients of known clocks. Without an audit only those of consumers count."""

    def __init__(self, index: PartitionIndex, client_clock: np.ndarray) -> None:
        self._index, self._client_clock = index, client_clock

    def clock_of(self, rows: np.ndarray) -> np.ndarray:
        """Returns int[k]: by which clock these rows of `reads` were read. NONE: they do not count."""
        client = self._index.reads["client"][rows]
        clock = of_clients(self._client_clock, client, unknown=NONE)
        if self._index.audited:
            return clock
        audit = of_clients(self._index.client_role, client, unknown=NONE) == Role.AUDIT.value
        return np.where(audit, NONE, clock)

    @property
    def judged(self) -> int:
        """Returns how many reads count, without the sentinels."""
        runs = self._index.reader_runs
        counts = self.clock_of(np.array([first for first, _, _ in runs], dtype=np.intp)) != NONE
        given = sum(last - first for (first, last, _), count in zip(runs, counts.tolist(), strict=True) if count)
        return given - int(np.count_nonzero(self.clock_of(self._index.sentinel_reads) != NONE))

    def too_early(self, clock: int, newest_ns: np.ndarray) -> _Found:
        """Returns the records that clients of this clock read, where L(p) has them, before one was sent that stands in front
        of them, or they were sent themselves. `newest_ns`: when, of the records up to each position, the last was sent."""
        index = self._index
        if not len(newest_ns):
            return _Found()
        rows = reads_before(index, newest_ns, lambda some: self.clock_of(some) == clock)
        if not len(rows):
            return _Found()
        at = index.positions_of_reads(rows)
        key = index.keys_of_reads(rows)
        there = index.agrees(at, key) & (key != UNREADABLE)
        rows, at, key = rows[there], at[there], key[there]
        unsent = self._before_its_send(rows)
        # The running maximum has its value for the first time where the record stands that was sent last.
        other = np.where(unsent, -1, np.searchsorted(newest_ns, newest_ns[at]))
        case = np.where(unsent, int(RealTimeCase.READ_UNSENT), int(RealTimeCase.READ))
        return _Found(index.log.offset[at], key, case, rows, other)

    def unsent_elsewhere(self) -> _Found:
        """Returns the records that were read before they were sent, at offsets where L(p) does not have them."""
        index = self._index
        rows = index.unmatched_reads
        rows = rows[self._before_its_send(rows)] if len(rows) else rows
        if not len(rows):
            return _Found()
        case, nothing = np.full(len(rows), int(RealTimeCase.READ_UNSENT)), np.full(len(rows), -1, dtype=np.intp)
        return _Found(index.reads["log_offset"][rows], index.keys_of_reads(rows), case, rows, nothing)

    def _before_its_send(self, rows: np.ndarray) -> np.ndarray:
        """Returns bool[k]: was the record that these rows of `reads` show sent after the read, by the same clock?"""
        index = self._index
        send = index.send_rows(index.keys_of_reads(rows))
        found = send >= 0
        some, send = rows[found], send[found]
        clock = self.clock_of(some)
        same = (clock != NONE) & (clock == of_clients(self._client_clock, index.sends["client"][send], unknown=NONE))
        found[found] = same & (index.sends["invoked_ns"][send] > index.reads["read_ns"][some])
        return found


def reads_before(
    index: PartitionIndex, newest_ns: np.ndarray, chosen: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Returns the rows of `reads`, by chosen clients, at offsets of L(p) at which `newest_ns` is later. `chosen` returns, for
    rows, whether a chosen client read them: bool[k]."""
    read_ns = index.reads["read_ns"]
    if index.alignment is None:
        at = index.read_position
        rows = np.flatnonzero((newest_ns[at] > read_ns) & (at >= 0))  # -1 takes the last one, and the mask drops it
        return np.asarray(rows[chosen(rows)])
    stretches = index.alignment.stretches
    # A stretch has one client: whether that one is chosen, its first row says for all. Rows in no stretch are at no offset of
    # L(p), and are not asked for.
    own = chosen(np.array([one.first for one in stretches], dtype=np.intp))
    found = [np.empty(0, dtype=np.intp)]
    for one, mine in zip(stretches, own.tolist(), strict=True):
        if mine:
            found.append(one.first + _later(newest_ns[one.positions], read_ns[one.rows]))
    return np.concatenate(found)


def _later(times_ns: np.ndarray, others_ns: np.ndarray) -> np.ndarray:
    """Returns where a time is later than the other one."""
    return rows_where(len(times_ns), lambda rows: times_ns[rows] > others_ns[rows])


_FIRST = (RealTimeCase.READ_UNSENT, RealTimeCase.ACKNOWLEDGED, RealTimeCase.READ)
"""Which of several witnesses of one record counts: the first of these."""
_RANK = np.zeros(max(RealTimeCase) + 1, dtype=np.intp)
_RANK[list(_FIRST)] = np.arange(len(_FIRST))


def _result(index: PartitionIndex, parts: list[_Found], judged: int) -> KernelResult:
    if not any(len(part.offset) for part in parts):
        return KernelResult(no_witnesses(), 0, judged, incomplete=index.incomplete())
    found = _Found(*(np.concatenate([getattr(part, name) for part in parts]) for name in _Found.__slots__))
    reads = index.reads
    read_ns = np.where(found.read >= 0, reads["read_ns"][found.read], MISSING) if len(reads["read_ns"]) else found.read
    # Sorted by offset, record, rank of the case, then time: the first of each (offset, record) is its witness. ACKNOWLEDGED
    # has no read: its time is MISSING, and its row -1.
    found = found.take(np.lexsort((found.read, read_ns, _RANK[found.case], found.key, found.offset)))
    found = found.take(np.flatnonzero(differs_from_previous(found.offset) | differs_from_previous(found.key)))
    count = len(found.offset)
    found = found.take(np.arange(min(count, WITNESSES_MAX)))
    send, other = index.send_rows(found.key), found.other
    client, sequence = _identity(index, found, send)
    columns = {
        "client": client,
        "sequence": sequence,
        "log_offset": found.offset,
        **index.record_at(other),
        **index.sent(send),
        **index.seen(found.key),
        "case": found.case,
    }
    # UNREADABLE is the key of no send: the witness gets no time of another record.
    later = np.full(len(other), UNREADABLE)
    later[other >= 0] = index.log.key[other[other >= 0]]
    columns["other_ns"] = index.sent(index.send_rows(later))["begin_ns"]
    read = np.flatnonzero(found.read >= 0)
    epoch = np.full(len(send), NONE, dtype=np.int32)
    epoch[read] = reads["leader_epoch"][found.read[read]]
    columns["seen_ns"][read], columns["reader"][read] = (reads[n][found.read[read]] for n in ("read_ns", "client"))
    witnesses = make_witnesses(len(send), {"partition": index.partition, **columns, "leader_epoch": epoch})
    return KernelResult(witnesses, count, judged, incomplete=index.incomplete())


def _identity(index: PartitionIndex, found: _Found, send: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (client, sequence) of these records: as they were read, or as they were sent."""
    client, sequence = np.empty(len(send), dtype=np.int32), np.empty(len(send), dtype=np.int64)
    read = found.read >= 0
    client[read], client[~read] = index.reads["sender"][found.read[read]], index.sends["client"][send[~read]]
    sequence[read], sequence[~read] = index.reads["sequence"][found.read[read]], index.sends["sequence"][send[~read]]
    return client, sequence
