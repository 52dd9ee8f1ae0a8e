"""This kernel checks what read_committed consumers were given while transactions were open: no record of one of these, and
no record behind one, because the last stable offset is in front of both.

The log of a partition, with the time until which the transaction of each record was certainly open:

    offset   transaction   open until   read at
    7        1             60           65
    8        2             90           95
    9        -                          70     behind the record of transaction 2, which was open
    10       3             80           92

The greatest of these times up to each offset, 60 90 90 90, is compared with when the record there was read. The record at 7
was read after the commit of its own transaction was asked for, and nothing stands before it. All that is behind 8 waits for
90.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial

import numpy as np

from prozess.checkers.log.real_time import reads_before
from prozess.checkers.lookup import UNREADABLE, differs_from_previous, distinct
from prozess.checkers.partition_index import PartitionIndex
from prozess.checkers.transactions.index import ABORT, COMMIT, CellIndex, NoticedTransactions, Transactions
from prozess.checkers.transactions.isolation import finding_of_reads
from prozess.harness.columns import Clustered, of_clients, taken
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, EarlyCase, join_witnesses, make_witnesses
from prozess.harness.plan.cell_work import RecordedWork
from prozess.harness.plan.plan import Cell
from prozess.harness.schema import MISSING, NONE, Isolation, Outcome

_NOT_OPEN = np.iinfo(np.int64).min
_KINDS = (EarlyCase.BEHIND_OPEN, EarlyCase.BEHIND_ABORTED)


def early_read(history: CellHistory) -> KernelResult:
    """No read_committed consumer receives a record before the commit of its transaction was invoked, nor a record that stands
    behind one of a transaction that is open.

    Source: KIP-98: consumers at read_committed are given what is below the last stable offset, which is the offset of the
    first record of any transaction that is not decided yet. Counts records per case (`EarlyCase`). For transactions that were
    not aborted: what was given before its own commit, per isolation level, as `aborted_read`. For all else in L(p) that was
    given at read_committed: what stands behind a record of a transaction that was certainly open by the same clock
    (`other_*`: its first record of that time there; `other_ns`: until when it was open). A poll's records were given when it
    returned, later than they were fetched: so what is found is certain. O(n), O(k log k) for k early reads.

    A transaction was certainly open until its commit was invoked, if that commit was confirmed. If its client asked for an
    abort, and for nothing else, and that was confirmed: until then, but no longer than transaction.timeout.ms after its
    begin, and not beyond the moment at which another instance of its transactional.id was to be initialised; its coordinator
    may have aborted it by then.

    Example: a transaction wrote a at 5 and invoked its commit at 20 s. A consumer at read_committed of the same clock was
    given a at 18 s: before its commit. It was given b, of no transaction, at offset 6 and at 18 s: BEHIND_OPEN, because b
    stands behind a.
    """
    index = CellIndex.of(history)
    found = finding_of_reads(index, partial(early_reads, index))
    behind = [part for position in range(len(index.partitions)) for part in _behind_open(index, position)]
    if not behind:
        return found
    count = found.count + sum(len(part) for part in behind)
    witnesses = join_witnesses([found.witnesses, *behind])
    witnesses = witnesses[np.argsort(witnesses["case"], kind="stable")]
    return KernelResult(witnesses[:WITNESSES_MAX], count, found.judged, incomplete=found.incomplete)


def early_reads(index: CellIndex, position: int) -> np.ndarray:
    """Returns the rows of `reads` of partition number `position` by which a consumer received a record before the commit
    of its transaction was invoked, by the same clock."""
    if not index.has(position, NoticedTransactions.EARLY):
        return np.empty(0, dtype=np.intp)
    reads, clocks, transactions = index.partitions[position].reads, index.clocks[position], index.transactions
    rows, transaction, _ = index.consumed(position)
    early = np.flatnonzero(taken(reads["read_ns"], rows) < transactions.commit_invoked_ns[transaction])
    # NEVER is after every read: a transaction whose commit was not invoked is here, unless it was aborted.
    early = early[~transactions.aborted[transaction[early]]]
    clock = of_clients(clocks, reads["client"][rows[early]], unknown=NONE)
    same = clock == of_clients(clocks, transactions.columns["client"][transaction[early]], unknown=NONE)
    found: np.ndarray = rows[early[same & (clock != NONE)]]
    return found


# Until when transactions were certainly open.


def certainly_open_until(index: CellIndex) -> np.ndarray:
    """Returns int64[transactions]: until when each was certainly open. _NOT_OPEN: nobody knows."""
    limit_ns = _limit_ns(index.cell) if index.audited else None
    return index.of_table(("open until", limit_ns), lambda: _open_until(index.transactions, limit_ns))


def _limit_ns(cell: Cell) -> int | None:
    """Returns how long coordinators leave a transaction of this cell open. None: not known, as of programs of yours."""
    configuration = cell.transaction
    if configuration is None or isinstance(cell.work, RecordedWork):
        return None
    if "transaction.timeout.ms" in configuration.properties:
        return None
    return configuration.transaction_timeout_ms * 1_000_000


def _open_until(transactions: Transactions, limit_ns: int | None) -> np.ndarray:
    columns = transactions.columns
    asked_ns = columns["end_invoked_ns"]
    committed = (columns["ended_by"] == COMMIT) & (columns["outcome"] == Outcome.OK.value)
    found = np.where(committed & (asked_ns != MISSING), asked_ns, _NOT_OPEN)
    if limit_ns is None:
        return found
    aborted = (columns["ended_by"] == ABORT) & (columns["outcome"] == Outcome.FAIL.value) & (columns["code"] == 0)
    for name in ("begun_ns", "end_invoked_ns", "completed_ns", "initialised_ns"):
        aborted &= columns[name] != MISSING
    rows = np.flatnonzero(aborted)
    found[rows] = np.minimum(asked_ns[rows], columns["begun_ns"][rows] + limit_ns)
    found[rows] = np.minimum(found[rows], _fenced_from(transactions, rows))
    return found


def _fenced_from(transactions: Transactions, rows: np.ndarray) -> np.ndarray:
    """Returns int64[k]: from when on each of these transactions may have been fenced, because an instance of its
    transactional.id was to be initialised that had not been when its own was. The loop runs over transactional.ids."""
    instances, its = transactions.instances, transactions.columns
    never = np.iinfo(np.int64).max
    returned = np.where(instances["initialised_ns"] != MISSING, instances["initialised_ns"], never)
    order = np.lexsort((returned, instances["transactional_id"]))
    of_id, returned, called = instances["transactional_id"][order], returned[order], instances["begun_ns"][order]
    found = np.full(len(rows), never)
    name, own = its["transactional_id"][rows], its["initialised_ns"][rows]
    clustered = Clustered(name)
    for number in distinct(name).tolist():
        first, last = np.searchsorted(of_id, number), np.searchsorted(of_id, number, side="right")
        mine = clustered.rows_of(number)
        later = first + np.searchsorted(returned[first:last], own[mine], side="right")
        # Instances by when their init returned: of all that returned later than this one, when the first was called.
        # Example: called at 1 7 5, returned at 3 8 9. A transaction of the first may be fenced from 5 on.
        assert (returned[first:last][1:] >= returned[first:last][:-1]).all(), (
            "instances in the order in which they were ready"
        )
        least = np.append(np.minimum.accumulate(called[first:last][::-1])[::-1], never)
        found[mine] = least[later - first]
    return found


# The records of open transactions in the log of a partition.


@dataclass(frozen=True, slots=True, eq=False)
class OpenRecords:
    """Records of transactions that were certainly open for a while, ascending by offset. All arrays have one length."""

    offset: np.ndarray = field(default_factory=partial(np.empty, 0, dtype=np.int64))
    until_ns: np.ndarray = field(default_factory=partial(np.empty, 0, dtype=np.int64))
    client: np.ndarray = field(default_factory=partial(np.empty, 0, dtype=np.int64))
    sequence: np.ndarray = field(default_factory=partial(np.empty, 0, dtype=np.int64))
    case: np.ndarray = field(default_factory=partial(np.empty, 0, dtype=np.int64))
    """EarlyCase: what a read behind it is."""

    def chosen(self, rows: np.ndarray) -> "OpenRecords":
        """Returns some of them, in the order of these rows or where the mask is true."""
        return OpenRecords(*(getattr(self, one.name)[rows] for one in fields(self)))

    @staticmethod
    def joined(parts: Sequence["OpenRecords"]) -> "OpenRecords":
        """Returns all of these, in the order of the log."""
        columns = [np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(OpenRecords)]
        return OpenRecords(*columns).chosen(np.argsort(columns[0], kind="stable"))


def open_records(index: CellIndex, position: int, rows: np.ndarray) -> OpenRecords:
    """Returns the records of open transactions at these positions of L(p), which ascend, of partition number `position`."""
    partition = index.partitions[position]
    transaction = _transactions_in_log(index, position)[rows]
    assert len(transaction) == len(rows), "each record has its transaction"
    send = partition.send_in_log[rows]
    return OpenRecords(
        partition.log.offset[rows].astype(np.int64),
        certainly_open_until(index)[transaction],
        partition.sends["client"][send].astype(np.int64),
        partition.sends["sequence"][send].astype(np.int64),
        np.where(index.transactions.aborted[transaction], EarlyCase.BEHIND_ABORTED, EarlyCase.BEHIND_OPEN),
    )


def open_records_of_part(index: CellIndex) -> OpenRecords:
    """Returns what other parts must know of the part of a partition that is here: of its records between two of the last
    part those whose transactions were open for longest, by clock and case."""
    assert index.part is not None, "a partition that is here whole owes other parts nothing"
    until_ns = _open_in_log(index, 0)
    rows = np.flatnonzero(until_ns != _NOT_OPEN)
    records = open_records(index, 0, rows)
    gap = np.searchsorted(index.part.breaks, records.offset)
    clock = of_clients(index.clocks[0], records.client, unknown=NONE)
    # The record that was open for longest comes first of each clock, case and gap: it alone can matter to other parts.
    order = np.lexsort((records.offset, -records.until_ns, gap, records.case, clock))
    new = differs_from_previous(gap[order]) | differs_from_previous(records.case[order])
    first = order[new | differs_from_previous(clock[order])]
    return records.chosen(np.sort(first))  # ascending by offset again


def _open_elsewhere(index: CellIndex, position: int) -> OpenRecords:
    """Returns the records that parts of a partition must know of one another; none of a partition that is here whole."""
    known = index.known
    if index.part is None or known is None:
        return OpenRecords()
    found: OpenRecords = known.open_records[index.partitions[position].partition]
    return found


def _transactions_in_log(index: CellIndex, position: int) -> np.ndarray:
    """Returns intp[L(p)]: the transaction of each record, -1 for a record of none that is recorded."""
    return np.asarray(index.transactions_of(position)[index.partitions[position].send_in_log[:-1]])


def _open_in_log(index: CellIndex, position: int) -> np.ndarray:
    """Returns int64[L(p)]: until when the transaction of each record was certainly open."""
    until_ns = np.append(certainly_open_until(index), _NOT_OPEN)  # -1 takes the last one
    return np.asarray(until_ns[_transactions_in_log(index, position)])


# What was read behind them.


def any_behind_open(index: CellIndex, position: int) -> bool:
    """Returns whether a read_committed consumer may have received a record behind one of an open transaction."""
    if index.part is not None:  # what other parts have is not known yet
        return True
    return any(len(rows) for _, rows in _rows_behind(index, position))


def _behind_open(index: CellIndex, position: int) -> Iterator[np.ndarray]:
    """Yields witnesses of partition number `position`, of one case each."""
    if not index.has(position, NoticedTransactions.BEHIND_OPEN):
        return
    found = [(clock, rows) for clock, rows in _rows_behind(index, position) if len(rows)]
    if not found:
        return
    partition = index.partitions[position]
    until_ns = _open_in_log(index, position)
    own = open_records(index, position, np.flatnonzero(until_ns != _NOT_OPEN))
    records = OpenRecords.joined([own, _open_elsewhere(index, position)])
    clock_of = of_clients(index.clocks[position], records.client, unknown=NONE)
    rows, other = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
    for clock, those in found:
        left = those
        for case in _KINDS:
            mine = np.flatnonzero((clock_of == clock) & (records.case == case))
            # Example: open records at the offsets 5 and 8 until 20 s and 9 s. A read of offset 9 at 18 s has both in front of
            # it: the running maximum of the ends is 20 20, and 18 is earlier: it was behind the record at 5, which is named.
            newest_ns, leader = _greatest_so_far(records.until_ns[mine])
            slot = np.searchsorted(records.offset[mine], partition.reads["log_offset"][left]) - 1
            early = np.zeros(len(left), dtype=bool)
            inside = slot >= 0
            early[inside] = newest_ns[slot[inside]] > partition.reads["read_ns"][left[inside]]
            rows, other = np.append(rows, left[early]), np.append(other, mine[leader[slot[early]]])
            # What one case explains is not looked at by the next one.
            left = left[~early]
    for case in _KINDS:
        mine = np.flatnonzero(records.case[other] == case)
        yield _witnesses(partition, rows[mine], records.chosen(other[mine]))


def _greatest_so_far(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the running maximum, and for each index the first one at which it was reached."""
    newest = np.maximum.accumulate(values) if len(values) else values
    new = differs_from_previous(newest)
    # Example: 4 2 6 5 has the maxima 4 4 6 6, which were first reached at 0 0 2 2.
    return newest, np.flatnonzero(new)[np.cumsum(new) - 1]


def _rows_behind(index: CellIndex, position: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields each clock, and the rows of `reads` by which its consumers at read_committed received a record of L(p) behind
    one of an open transaction. What was given although its own transaction was open, or aborted, is left out: that is
    another case, or `aborted-read`."""
    partition = index.partitions[position]
    clocks, elsewhere = index.clocks[position], _open_elsewhere(index, position)
    readers = distinct(partition.consumers)
    level = of_clients(partition.client_isolation, readers, unknown=Isolation.NOT_A_READER)
    readers = readers[level == Isolation.READ_COMMITTED.value]
    asking = of_clients(clocks, readers, unknown=NONE)
    if not len(partition.log.offset) or not (asking != NONE).any():
        return
    until_ns = _open_in_log(index, position)
    senders = of_clients(clocks, partition.senders, unknown=NONE)
    one_clock = len(senders) > 0 and bool((senders == senders[0]).all())
    if not one_clock:
        send = partition.send_in_log[:-1]
        of_record = np.where(
            send >= 0, of_clients(clocks, partition.sends["client"][np.maximum(send, 0)], unknown=NONE), NONE
        )
    for clock in distinct(asking[asking != NONE]).tolist():
        # Only transactions of the reader's own clock say anything about his time; others count as not open.
        mine = until_ns
        if not one_clock:
            mine = np.where(of_record == clock, until_ns, _NOT_OPEN)
        elif senders[0] != clock:
            mine = np.full(len(until_ns), _NOT_OPEN)
        newest_ns = np.maximum.accumulate(mine)
        of_clock = of_clients(clocks, elsewhere.client, unknown=NONE) == clock
        if of_clock.any():
            _raise(newest_ns, partition.log.offset, elsewhere.chosen(of_clock))
        chosen = _chosen_by(partition, readers[asking == clock])
        yield clock, _not_their_own(index, position, reads_before(partition, newest_ns, chosen))


def _chosen_by(partition: PartitionIndex, clients: np.ndarray) -> partial[np.ndarray]:
    return partial(_read_by, partition.reads["client"], clients)


def _read_by(client: np.ndarray, clients: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.isin(client[rows], clients)


def _raise(newest_ns: np.ndarray, offset: np.ndarray, records: OpenRecords) -> None:
    """Raises each running maximum to that of these records in front of it."""
    # Strictly in front: a record that is open does not stand behind itself.
    before = np.searchsorted(records.offset, offset) - 1
    assert (records.offset[1:] >= records.offset[:-1]).all(), "records ascend by offset"
    more = np.maximum.accumulate(records.until_ns)
    np.maximum(newest_ns, np.where(before >= 0, more[np.maximum(before, 0)], _NOT_OPEN), out=newest_ns)


def _not_their_own(index: CellIndex, position: int, rows: np.ndarray) -> np.ndarray:
    """Returns those of these rows of `reads` that show what L(p) has there, of a transaction that may have been committed by
    then, or of none."""
    if not len(rows):
        return rows
    partition, transactions = index.partitions[position], index.transactions
    key = partition.keys_of_reads(rows)
    rows = rows[partition.agrees(partition.positions_of_reads(rows), key) & (key != UNREADABLE)]
    transaction = index.transactions_of(position)[partition.send_of_read[rows]]
    inside = transaction >= 0
    its = transaction[inside]
    early = partition.reads["read_ns"][rows[inside]] < transactions.commit_invoked_ns[its]
    fine = np.ones(len(rows), dtype=bool)
    fine[inside] = ~transactions.aborted[its] & ~early
    return np.asarray(rows[fine])


def _witnesses(partition: PartitionIndex, rows: np.ndarray, other: OpenRecords) -> np.ndarray:
    """Returns a witness for each record that these rows of `reads` show, of the first of them."""
    reads = partition.reads
    order = np.lexsort((reads["client"][rows], reads["read_ns"][rows], partition.keys_of_reads(rows)))
    rows, other = rows[order], other.chosen(order)
    new = differs_from_previous(partition.keys_of_reads(rows))
    rows, other = rows[new], other.chosen(new)
    columns: Mapping[str, np.ndarray] = {
        "partition": np.full(len(rows), partition.partition),
        **partition.records_read(rows),
        "reader": reads["client"][rows],
        "seen_ns": reads["read_ns"][rows],
        "leader_epoch": reads["leader_epoch"][rows],
        "case": other.case,
        "other_client": other.client,
        "other_sequence": other.sequence,
        "other_offset": other.offset,
        "other_ns": other.until_ns,
        **partition.sent(partition.send_rows(partition.keys_of_reads(rows))),
    }
    return make_witnesses(len(rows), columns)
