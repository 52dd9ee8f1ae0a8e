"""What the kernels of transactions share: the transactions of a cell, their records, and who was shown which. Built once per
cell, vectorised; loops run over partitions.

V(p) is the audit at read_committed, L(p) at read_uncommitted. A transaction's own row says what its client knows; what it
does not know (a commit in doubt) is resolved by what was shown: one record that read_committed shows proves the commit.
"""

from collections.abc import Callable, Sequence

import numpy as np

from checkers.arrays import PartitionIndex
from checkers.indexed import Indexed
from checkers.lookup import UNREADABLE, Lookup, distinct, lazy
from checkers.transaction_known import Known, unpacked
from checkers.transaction_rows import NEVER, Transactions
from harness.columns import once
from harness.protocols import CellHistory
from harness.schema import MISSING, NONE, Isolation, Outcome


class CellIndex(Indexed):
    """Transactions and their records over all partitions of a cell; or over some, where what must be known of all is told.
    Arrays of records have one length."""

    def __init__(self, history: CellHistory) -> None:
        self.partitions = [PartitionIndex.of(history.partitions[p]) for p in sorted(history.partitions)]
        self._table = history.tables["transactions"]
        self.transactions = Transactions.of(self._table)
        self._consumed: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._shown_by: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._of_send: dict[int, np.ndarray] = {}
        self.known: Known | None = history.known.get("transactions")

    @property
    def audited(self) -> bool:
        """Is there an audit of every partition?"""
        return self.known.audited if self.known else all(index.audited for index in self.partitions)

    @property
    def incomplete(self) -> str | None:
        """Why nothing can be concluded from what read_committed does not show; None = all of it is known."""
        if self.known:
            return self.known.incomplete
        return reasons_of([self.reason(index) for index in self.partitions], self.unrecorded)

    def reason(self, partition: PartitionIndex) -> str | None:
        """As `incomplete`, of one of its partitions."""
        return partition.incomplete(Isolation.READ_COMMITTED)

    @lazy
    def read_until_ns(self) -> np.ndarray:
        """int64[transactions]: until when its client reads inside it. Of an imported one is only known when it was over; its
        client does one thing at a time."""
        until_ns = self.transactions.columns["end_invoked_ns" if self.audited else "completed_ns"]
        return np.asarray(np.where(until_ns != MISSING, until_ns, NEVER))

    def _over_partitions(self, column: Callable[[PartitionIndex, np.ndarray], np.ndarray]) -> np.ndarray:
        parts = [column(index, rows) for index, rows in zip(self.partitions, self._rows, strict=True)]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    @lazy
    def _all_rows(self) -> Sequence[tuple[np.ndarray, np.ndarray]]:
        """Per partition: rows of `sends` in transactions that entered the client's queue, and their transactions (-1 = not
        recorded)."""
        found = []
        for position, index in enumerate(self.partitions):
            sends = index.sends
            rows = np.flatnonzero(sends["transaction"] != NONE)
            place = self._transaction_of_send(position)[rows]
            # A record that produce() refused has failed although its transaction has not.
            failed = np.zeros(len(rows), dtype=bool)
            known = place >= 0
            failed[known] = self.transactions.columns["outcome"][place[known]] == Outcome.FAIL
            part = (sends["outcome"][rows] != Outcome.FAIL) | failed
            found.append((rows[part], place[part]))
        return found

    def transactions_of_sends(self, partition: PartitionIndex) -> tuple[np.ndarray, np.ndarray]:
        """Of one of its partitions: rows of `sends` in recorded transactions, and which."""
        rows, place = self._all_rows[self.partitions.index(partition)]
        return rows[place >= 0], place[place >= 0]

    @lazy
    def unrecorded(self) -> int:
        """Records whose transaction has no row."""
        return sum(int(np.count_nonzero(place < 0)) for _, place in self._all_rows)

    @lazy
    def _rows(self) -> Sequence[np.ndarray]:
        return [rows[place >= 0] for rows, place in self._all_rows]

    @lazy
    def transaction(self) -> np.ndarray:
        """intp[records]: place in `transactions`."""
        return np.concatenate([place[place >= 0] for _, place in self._all_rows] or [np.empty(0, dtype=np.intp)])

    @lazy
    def which(self) -> np.ndarray:
        """intp[records]: place in `partitions`."""
        return np.repeat(np.arange(len(self.partitions)), [len(rows) for rows in self._rows])

    @lazy
    def row(self) -> np.ndarray:
        """intp[records]: row of `sends` of that partition."""
        return np.concatenate([*self._rows, np.empty(0, dtype=np.intp)])

    def of_sends(self, name: str) -> np.ndarray:
        """A column of `sends`, per record."""
        return self._over_partitions(lambda index, rows: index.sends[name][rows])

    @lazy
    def visible_at(self) -> np.ndarray:
        """intp[records]: position in V of its partition, -1 = V does not show it."""

        def find(index: PartitionIndex, rows: np.ndarray) -> np.ndarray:
            send = index.sends_of_reads(index.visible.rows)
            at = np.full(len(index.send_key) + 1, -1, dtype=np.intp)
            at[send[::-1]] = np.arange(len(send))[
                ::-1
            ]  # of several copies numpy keeps the last, which is the first of them
            found: np.ndarray = at[:-1][rows]
            if not index.audited:  # an acknowledgement reveals where it ought to stand, not that it is shown
                found[index.given_committed.keys.find(index.send_key[rows]) < 0] = -1
            return found

        return self._over_partitions(find)

    @lazy
    def missing(self) -> np.ndarray:
        """bool[records]: V is known, ought to show the record if its transaction was committed, and does not."""
        return np.asarray((self.visible_at < 0) & ~self._over_partitions(_excused).astype(bool))

    @lazy
    def shown(self) -> np.ndarray:
        """bool[transactions]: V shows a record of it."""
        if self.known:
            return self._told("shown")
        return self._any_of(self.visible_at >= 0)

    def first_shown(self, transactions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(sequence, offset), int64[k]: of the first record, by partition, that V shows of each of these; NONE = of none."""
        if self.known:
            which, *columns = self.known.first
            place = Lookup(which).find(transactions)
            found = [np.append(column, NONE)[place] for column in columns]
            return found[0], found[1]
        shown = np.flatnonzero(self.visible_at >= 0)
        first = np.full(len(self.transactions), -1, dtype=np.intp)
        first[self.transaction[shown[::-1]]] = shown[::-1]
        rows = first[transactions]
        sequence = np.append(self.of_sends("sequence"), NONE)[rows]
        return sequence, np.where(rows >= 0, self.visible_offsets(rows), NONE)

    def visible_offsets(self, records: np.ndarray) -> np.ndarray:
        """int64[k]: where V shows these records; NONE where it does not."""
        found = np.full(len(records), NONE, dtype=np.int64)
        for position, partition in enumerate(self.partitions):
            mine = (records >= 0) & (self.which[records] == position) & (self.visible_at[records] >= 0)
            found[mine] = partition.visible.offset[self.visible_at[records[mine]]]
        return found

    @lazy
    def seen_committed(self) -> np.ndarray:
        """bool[transactions]: a read_committed consumer was given a record of it."""
        if self.known:
            return self._told("seen_committed")
        found = np.zeros(len(self.transactions), dtype=bool)
        for position in range(len(self.partitions)):
            _, transaction, level = self.consumed(position)
            found[transaction[level == Isolation.READ_COMMITTED]] = True
        return found

    @lazy
    def committed(self) -> np.ndarray:
        """bool[transactions]: the commit was confirmed; or it was in doubt, and somebody was shown a record."""
        return self._of_all("committed", self._committed)

    def _committed(self) -> np.ndarray:
        outcome = self.transactions.columns["outcome"]
        proven = (outcome == Outcome.INFO) & (self.shown | self.seen_committed)
        return np.asarray(((outcome == Outcome.OK) | proven) & ~self.transactions.aborted)

    def _told(self, name: str) -> np.ndarray:
        """bool[transactions]: what is known of all partitions together."""
        return self._of_all(name, lambda: unpacked(getattr(self.known, name), len(self.transactions)))

    def _of_all(self, name: str, make: Callable[[], np.ndarray]) -> np.ndarray:
        """What follows for all transactions from what is known of them: made once for all partitions that are looked at here
        one after the other, with the table that they share."""
        return make() if self.known is None else once(self._table, (self.known, name), make)

    def _any_of(self, chosen: np.ndarray) -> np.ndarray:
        found = np.zeros(len(self.transactions), dtype=bool)
        found[self.transaction[chosen]] = True
        return found

    def consumed(self, position: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of partition number `position`: rows of `reads` by which consumers were given records of recorded transactions,
        their transactions, and the consumers' isolation levels."""
        if position not in self._consumed:
            index = self.partitions[position]
            rows = np.flatnonzero(index.by_consumer)
            rows, transaction = self.transactions_of_reads(position, rows)
            level = index.fact(index.client_isolation, index.reads["client"][rows], unknown=Isolation.NOT_A_READER)
            self._consumed[position] = rows, transaction, level
        return self._consumed[position]

    def shown_by(self, position: int) -> tuple[np.ndarray, np.ndarray]:
        """Of partition number `position`: rows of `reads` in V with records of recorded transactions, and which."""
        if position not in self._shown_by:
            self._shown_by[position] = self.transactions_of_reads(position, self.partitions[position].visible.rows)
        return self._shown_by[position]

    def transactions_of_reads(self, position: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of these rows of `reads` those that show records of recorded transactions, and which."""
        place = self._transaction_of_send(position)[self.partitions[position].sends_of_reads(rows)]
        there = place >= 0
        return (rows, place) if there.all() else (rows[there], place[there])

    def _transaction_of_send(self, position: int) -> np.ndarray:
        """intp[sends + 1]: place of the transaction of each, -1 = of none that is recorded; the last is -1."""
        if position not in self._of_send:
            sends = self.partitions[position].sends
            found = self.transactions.find(sends["client"], sends["transaction"])
            found[sends["transaction"] == NONE] = -1
            self._of_send[position] = np.append(found, -1)
        return self._of_send[position]


def reasons_of(reasons: Sequence[str | None], unrecorded: int) -> str | None:
    """Reasons of partitions, and how many records belong to no known transaction, as one."""
    said = [reason for reason in reasons if reason]
    if unrecorded:
        said.append(f"{unrecorded} records belong to transactions that were not recorded")
    return "; ".join(said) or None


def reading_transactions(index: CellIndex, client: np.ndarray, read_ns: np.ndarray) -> np.ndarray:
    """intp[k]: place of the transaction that this client had open when it was given a record, -1 = none: begun before, and
    its end not invoked before (of an imported one: not completed). O(k log n); the loop runs over clients."""
    columns = index.transactions.columns
    found = np.full(len(client), -1, dtype=np.intp)
    for number in distinct(client).tolist():
        low, high = np.searchsorted(columns["client"], [number, number + 1])
        rows = np.flatnonzero(client == number)
        place = low + np.searchsorted(columns["begun_ns"][low:high], read_ns[rows], side="right") - 1
        inside = place >= low
        inside[inside] = read_ns[rows[inside]] <= index.read_until_ns[place[inside]]
        found[rows[inside]] = place[inside]
    return found


def _excused(index: PartitionIndex, rows: np.ndarray) -> np.ndarray:
    """bool[k]: records (rows of `sends`) that V need not show: the audit did not get through, the record may stand behind the
    sentinel, may have been cleaned, or may be one that could not be read."""
    sends, log = index.sends, index.visible
    if not index.audited:
        return index.given_committed.beyond(sends["log_offset"][rows])
    if index.incomplete(Isolation.READ_COMMITTED):
        return np.ones(len(rows), dtype=bool)
    offset = sends["log_offset"][rows]
    excused = index.may_be_cleaned(record_key=sends["key"][rows], offset=offset, tombstone=sends["size"][rows] == NONE)
    if index.sentinel_ns is not None:
        assert log.end is not None
        late = sends["completed_ns"][rows] >= index.sentinel_ns
        excused |= late & ((offset == NONE) | (offset > log.end))
    if (log.key == UNREADABLE).any():
        position = log.positions.find(offset)
        excused |= (offset == NONE) | ((position >= 0) & (log.key[position] == UNREADABLE))
    return excused
