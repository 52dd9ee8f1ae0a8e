"""This module says what the kernels of transactions share: the transactions of a cell, their records, and who saw which
of them.

It is built once for a cell, from whole arrays; loops run over partitions. V(p) is the audit at read_committed, L(p) the
audit at read_uncommitted. The row of a transaction says what its client knows. If the client does not know whether a
commit took effect, one record that read_committed shows proves that it did.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto, unique
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from prozess.checkers.lookup import (
    UNREADABLE,
    Indexed,
    Lookup,
    differs_from_previous,
    distinct,
    identity_keys,
    lazy,
)
from prozess.checkers.partition_index import PartitionIndex
from prozess.harness.checking.checker import ShareKey, TakenRows
from prozess.harness.columns import Clustered, of_clients, once
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.schema import MISSING, NONE, Isolation, Outcome

T = TypeVar("T")


class CellIndex(Indexed):
    """The transactions of a cell and their records, over all partitions; or over some, where what must be known of all
    is given. Arrays of records have one length."""

    def __init__(self, history: CellHistory) -> None:
        self.partitions = [PartitionIndex.of(history.partitions[p]) for p in sorted(history.partitions)]
        self._table = history.tables["transactions"]
        self.transactions = Transactions.of(self._table)
        self._consumed: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._shown_by: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._inside: dict[int, np.ndarray] = {}
        self._of_send: dict[int, np.ndarray] = {}
        self.known: KnownTransactions | None = history.known.get("transactions")
        self.part, self.cell = history.part, history.cell
        self.clocks = [history.partitions[index.partition].client_clock for index in self.partitions]
        """`client_clock` of each partition."""

    @property
    def audited(self) -> bool:
        """Returns whether every partition was audited."""
        return self.known.audited if self.known else all(index.audited for index in self.partitions)

    @property
    def incomplete(self) -> str | None:
        """Returns why nothing can be concluded from what read_committed does not show. None: all of it is known."""
        if self.known:
            return self.known.incomplete
        return reasons_of([self.reason(index) for index in self.partitions], self.unrecorded)

    def reason(self, partition: PartitionIndex) -> str | None:
        """Returns why nothing can be concluded from what read_committed does not show of this partition. None: all of it
        is known."""
        return partition.incomplete(Isolation.READ_COMMITTED)

    @property
    def begun_keys(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns when transactions began, ascending; and for each transaction its client and the rank of its begin."""
        return once(self._table, "begun_keys", self._begun_keys)

    def _begun_keys(self) -> tuple[np.ndarray, np.ndarray]:
        begun_ns = self.transactions.columns["begun_ns"]
        ordered_ns = np.sort(begun_ns)
        rank = np.searchsorted(ordered_ns, begun_ns, side="right")
        return ordered_ns, _begun_key(self.transactions.columns["client"], rank)

    @property
    def read_until_ns(self) -> np.ndarray:
        """Returns int64[transactions]: until when its client reads inside the transaction. For an imported transaction
        it is known only when it was over; its client does one thing at a time."""
        column = "end_invoked_ns" if self.audited else "completed_ns"

        def make() -> np.ndarray:
            until_ns = self.transactions.columns[column]
            return np.asarray(np.where(until_ns != MISSING, until_ns, NEVER))

        return once(self._table, ("read_until_ns", column), make)

    def _over_partitions(self, column: Callable[[PartitionIndex, np.ndarray], np.ndarray]) -> np.ndarray:
        parts = [column(index, rows) for index, rows in zip(self.partitions, self._rows, strict=True)]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    @lazy
    def _all_rows(self) -> Sequence[tuple[np.ndarray, np.ndarray]]:
        """Returns for each partition the rows of `sends` in transactions that entered the client's queue, and their
        transactions (-1: not recorded)."""
        found = []
        for position, index in enumerate(self.partitions):
            sends = index.sends
            rows = np.flatnonzero(sends["transaction"] != NONE)
            slot = self.transactions_of(position)[rows]
            # A record that produce() refused has failed although its transaction has not.
            failed = np.zeros(len(rows), dtype=bool)
            assert len(slot) == len(rows), "each send has a transaction, or -1"
            known = slot >= 0
            failed[known] = self.transactions.columns["outcome"][slot[known]] == Outcome.FAIL.value
            # All records of a transaction that failed have failed with it, and those entered the queue.
            part = (sends["outcome"][rows] != Outcome.FAIL.value) | failed
            found.append((rows[part], slot[part]))
        return found

    def transactions_of_sends(self, partition: PartitionIndex) -> tuple[np.ndarray, np.ndarray]:
        """Returns, for one partition, the rows of `sends` in recorded transactions, and which transactions those are."""
        rows, slot = self._all_rows[self.partitions.index(partition)]
        return rows[slot >= 0], slot[slot >= 0]

    @lazy
    def unrecorded(self) -> int:
        """Returns how many records belong to a transaction that has no row."""
        return sum(int(np.count_nonzero(slot < 0)) for _, slot in self._all_rows)

    @lazy
    def _rows(self) -> Sequence[np.ndarray]:
        return [rows[slot >= 0] for rows, slot in self._all_rows]

    @lazy
    def transaction(self) -> np.ndarray:
        """Returns intp[records]: the index of its transaction in `transactions`."""
        return np.concatenate([slot[slot >= 0] for _, slot in self._all_rows] or [np.empty(0, dtype=np.intp)])

    @lazy
    def which(self) -> np.ndarray:
        """Returns intp[records]: the index of its partition in `partitions`."""
        return np.repeat(np.arange(len(self.partitions)), [len(rows) for rows in self._rows])

    @lazy
    def row(self) -> np.ndarray:
        """Returns intp[records]: its row in `sends` of that partition."""
        return np.concatenate([*self._rows, np.empty(0, dtype=np.intp)])

    def of_sends(self, name: str) -> np.ndarray:
        """Returns a column of `sends`, with one value for each record."""
        return self._over_partitions(lambda index, rows: index.sends[name][rows])

    @lazy
    def visible_at(self) -> np.ndarray:
        """Returns intp[records]: its position in V of its partition, -1 if V does not show it."""

        def find(index: PartitionIndex, rows: np.ndarray) -> np.ndarray:
            send = index.send_of_read[index.visible.rows]
            # Row of `sends` → position in V. One entry more, for records of which this partition has no send (-1).
            at = np.full(len(index.send_key) + 1, -1, dtype=np.intp)
            at[send[::-1]] = np.arange(len(send))[
                ::-1
            ]  # of several copies numpy keeps the last, which is the first of them
            found: np.ndarray = at[:-1][rows]
            if not index.audited:  # an acknowledgement reveals where it ought to stand, not that it is shown
                found[~index.consumed_committed.sends[rows]] = -1
            return found

        return self._over_partitions(find)

    @lazy
    def missing(self) -> np.ndarray:
        """Returns bool[records]: V is known, should show the record if its transaction was committed, and does not show
        it."""
        return np.asarray((self.visible_at < 0) & ~self._over_partitions(_excused).astype(bool))

    def missing_of(self, among: np.ndarray) -> np.ndarray:
        """Returns intp[k]: the records of these transactions (bool[transactions]) that V should show, and does not."""
        if self._nowhere(NoticedTransactions.MISSING):
            return np.empty(0, dtype=np.intp)
        return np.flatnonzero(self.missing & among[self.transaction])

    def visible_of(self, zombies: np.ndarray) -> np.ndarray:
        """Returns intp[k]: the records of these transactions (bool[transactions], `zombie`) that V shows."""
        if self._nowhere(NoticedTransactions.ZOMBIE):
            return np.empty(0, dtype=np.intp)
        return np.flatnonzero((self.visible_at >= 0) & zombies[self.transaction])

    def reads_judged(self, position: int) -> int:
        """Returns how many reads of partition number `position` show a record of a transaction to a consumer, or V a
        record."""
        survey = self._survey(position)
        if survey is not None:
            return survey.reads
        return len(self.consumed(position)[0]) + len(self.partitions[position].visible.rows)

    def has(self, position: int, what: "NoticedTransactions") -> bool:
        """Returns whether partition number `position` may have any of this. A look at it may have shown that it has
        none."""
        survey = self._survey(position)
        return survey is None or what in survey.noticed

    def _survey(self, position: int) -> "PartitionSurvey | None":
        if self.known is None:
            return None
        part = None if self.part is None else self.part.number
        return self.known.surveys.get((self.partitions[position].partition, part))

    def _nowhere(self, what: "NoticedTransactions") -> bool:
        return not any(self.has(position, what) for position in range(len(self.partitions)))

    @lazy
    def shown(self) -> np.ndarray:
        """Returns bool[transactions]: does V show a record of it?"""
        if self.known:
            return self._column("shown")
        return self._any_of(self.visible_at >= 0)

    def first_shown(self, transactions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns (sequence, offset), int64[k]: the first record, by partition, that V shows of each of these
        transactions. NONE: V shows none of it."""
        if self.known:
            which, *columns = self.known.first
            # Each column gets one entry NONE at its end, which slot -1 reads.
            slot = Lookup(which).find(transactions)
            found = [np.append(column, NONE)[slot] for column in columns]
            return found[0], found[1]
        shown = np.flatnonzero(self.visible_at >= 0)
        # Records come partition by partition, so the first index of a transaction is its first record by partition.
        which, first = np.unique(self.transaction[shown], return_index=True)
        # -1 stands for no record from here on: each column gets an entry NONE at its end, which -1 reads.
        rows = np.append(shown[first], -1)[Lookup(which).find(transactions)]
        sequence = np.append(self.of_sends("sequence"), NONE)[rows]
        return sequence, np.where(rows >= 0, self.visible_offsets(rows), NONE)

    def visible_offsets(self, records: np.ndarray) -> np.ndarray:
        """Returns int64[k]: where V shows these records. NONE: it does not show them."""
        found = np.full(len(records), NONE, dtype=np.int64)
        for position, partition in enumerate(self.partitions):
            mine = (records >= 0) & (self.which[records] == position) & (self.visible_at[records] >= 0)
            found[mine] = partition.visible.offset[self.visible_at[records[mine]]]
        return found

    @lazy
    def seen_committed(self) -> np.ndarray:
        """Returns bool[transactions]: did a read_committed consumer receive a record of it?"""
        if self.known:
            return self._column("seen_committed")
        found = np.zeros(len(self.transactions), dtype=bool)
        for position in range(len(self.partitions)):
            found[self.seen_committed_in(position)] = True
        return found

    def seen_committed_in(self, position: int) -> np.ndarray:
        """Returns, for partition number `position`, the transactions of which a read_committed consumer received a record,
        perhaps several times."""
        # Without the last entry of `transactions_of`, which is no send's.
        received = self.partitions[position].consumed_committed.sends
        transaction = self.transactions_of(position)[:-1][received]
        return np.asarray(transaction[transaction >= 0])

    @lazy
    def committed(self) -> np.ndarray:
        """Returns bool[transactions]: was its commit confirmed? A commit in doubt counts as well, if somebody was shown
        a record of it."""
        return self._of_all("committed", self._committed)

    def _committed(self) -> np.ndarray:
        outcome = self.transactions.columns["outcome"]
        proven = (outcome == Outcome.INFO.value) & (self.shown | self.seen_committed)
        return np.asarray(((outcome == Outcome.OK.value) | proven) & ~self.transactions.aborted)

    def _column(self, name: str) -> np.ndarray:
        """Returns bool[transactions]: what is known of all partitions together."""
        return self._of_all(name, lambda: unpack_bits(getattr(self.known, name), len(self.transactions)))

    @property
    def judged_whole(self) -> np.ndarray:
        """Returns bool[transactions]: V shows a record of it, and it was not aborted: so V must show all of them."""
        return self._of_all("judged_whole", lambda: self.shown & ~self.transactions.aborted)

    @property
    def gone(self) -> np.ndarray:
        """Returns bool[transactions]: it was committed, and V shows none of its records."""
        return self._of_all("gone", lambda: self.committed & ~self.shown)

    @property
    def committed_count(self) -> int:
        """Returns how many transactions were committed."""
        return int(self._of_all("committed_count", lambda: np.count_nonzero(self.committed)))

    def _of_all(self, name: str, make: Callable[[], T]) -> T:
        """Returns what follows for all transactions from what is known of them. It is made once, and kept with the table
        that all partitions checked here share: nothing may be made anew in each partition that is as long as all
        transactions."""
        return make() if self.known is None else once(self._table, (self.known, name), make)

    def of_table(self, name: object, make: Callable[[], T]) -> T:
        """Returns what follows from the table of transactions alone. It is made once, as in `_of_all`."""
        return once(self._table, name, make)

    def _any_of(self, chosen: np.ndarray) -> np.ndarray:
        found = np.zeros(len(self.transactions), dtype=bool)
        found[self.transaction[chosen]] = True
        return found

    def consumed(self, position: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns, for partition number `position`, the rows of `reads` by which consumers received records of recorded
        transactions, these transactions, and the consumers' isolation levels."""
        if position not in self._consumed:
            index = self.partitions[position]
            rows = np.flatnonzero(index.by_consumer)
            rows, transaction = self.transactions_of_reads(position, rows)
            level = of_clients(index.client_isolation, index.reads["client"][rows], unknown=Isolation.NOT_A_READER)
            self._consumed[position] = rows, transaction, level
        return self._consumed[position]

    def shown_by(self, position: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns, for partition number `position`, the rows of `reads` in V that show records of recorded transactions,
        and these transactions."""
        if position not in self._shown_by:
            self._shown_by[position] = self.transactions_of_reads(position, self.partitions[position].visible.rows)
        return self._shown_by[position]

    def read_inside(self, position: int) -> np.ndarray:
        """Returns, for each row of `consumed(position)`, the transaction that its reader had open, -1 for none."""
        if position not in self._inside:
            rows, _, _ = self.consumed(position)
            reads = self.partitions[position].reads
            self._inside[position] = reading_transactions(self, reads["client"][rows], reads["read_ns"][rows])
        return self._inside[position]

    def transactions_of_reads(self, position: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns those of these rows of `reads` that show records of recorded transactions, and these transactions."""
        # A read of no send of ours (-1) takes the last entry, which is -1, too.
        slot = self.transactions_of(position)[self.partitions[position].send_of_read[rows]]
        there = slot >= 0
        return (rows, slot) if there.all() else (rows[there], slot[there])

    def transactions_of(self, position: int) -> np.ndarray:
        """Returns intp[sends + 1], for partition number `position`: the index of the transaction of each send, -1 if it is
        in none that is recorded. The last entry is -1."""
        if position not in self._of_send:
            sends = self.partitions[position].sends
            found = self.transactions.find(sends["client"], sends["transaction"])
            found[sends["transaction"] == NONE] = -1
            self._of_send[position] = np.append(found, -1)
        return self._of_send[position]


def reasons_of(reasons: Sequence[str | None], unrecorded: int) -> str | None:
    """Returns the reasons of several partitions as one text, and with it how many records belong to no known
    transaction."""
    reasons_given = [reason for reason in reasons if reason]
    if unrecorded:
        reasons_given.append(f"{unrecorded} records belong to transactions that were not recorded")
    return "; ".join(reasons_given) or None


def reading_transactions(index: CellIndex, client: np.ndarray, read_ns: np.ndarray) -> np.ndarray:
    """Returns intp[k]: the transaction that this client had open when it received a record, -1 for none. The transaction
    had begun before, and its end had not been invoked before (of an imported one: not completed). O(k log n)."""
    columns = index.transactions.columns
    if not len(client) or not len(columns["client"]):
        return np.full(len(client), -1, dtype=np.intp)
    # What one poll gave has one client and one time.
    # Example: client 7 began transactions at 1 s and 5 s, and client 8 one at 3 s. The begins in order are 1 3 5. A read of 7
    # at 4 s comes behind two begins, so its key is (7, 2); the transactions have the keys (7, 1), (7, 3), (8, 2). The last
    # one that is not greater is (7, 1): the one of 1 s was open, if it had not ended.
    new = differs_from_previous(client) | differs_from_previous(read_ns)
    starts = np.flatnonzero(new)
    ordered_ns, keys = index.begun_keys
    rank = np.searchsorted(ordered_ns, read_ns[starts], side="right")
    slot = np.searchsorted(keys, _begun_key(client[starts], rank), side="right") - 1
    inside = (slot >= 0) & (columns["client"][slot] == client[starts])
    inside[inside] = read_ns[starts[inside]] <= index.read_until_ns[slot[inside]]
    open_then: np.ndarray = np.where(inside, slot, -1)[np.cumsum(new) - 1]
    return open_then


def _begun_key(client: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Returns int64[k], which ascends by client, and then by how many transactions had begun."""
    key: np.ndarray = (client.astype(np.int64) << _RANK_BITS) | rank
    return key


def _excused(index: PartitionIndex, rows: np.ndarray) -> np.ndarray:
    """Returns bool[k]: need V not show these records (rows of `sends`)? The audit was not complete, or the record may
    stand behind the sentinel, may have been cleaned, or may be one that could not be read."""
    sends, log = index.sends, index.visible
    if not index.audited:
        return index.consumed_committed.not_within(sends["log_offset"][rows])
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


# The rows of `transactions`: what each client knows of its own transactions, and of its instances.


COMMIT, ABORT = 1, 2
"""The values of `transactions.ended_by`."""
NEVER = np.iinfo(np.int64).max
_RANK_BITS = 40
Columns = Mapping[str, np.ndarray]


_STRETCH_ROWS_MIN = 16
"""If clients have fewer rows in sequence than this, transactions are looked up one by one."""


class _Chosen(Mapping[str, np.ndarray]):
    """Chosen rows of a table. Each column is taken when it is first asked for."""

    def __init__(self, table: Columns, rows: np.ndarray) -> None:
        self._table, self._rows = table, rows
        self._held: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._held:
            self._held[name] = self._table[name][self._rows]
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


class Transactions:
    """The rows of `transactions` that are transactions, ascending by (client, number), and those that are instances."""

    def __init__(self, table: Columns) -> None:
        rows = np.flatnonzero(table["transaction"] != NONE)
        key = identity_keys(table["client"][rows], table["transaction"][rows])
        order = np.argsort(key, kind="stable")
        self.columns: Columns = _Chosen(table, rows[order])
        self._rows_by_key = Lookup(key[order])
        self.instances: Columns = _Chosen(table, np.flatnonzero(table["transaction"] == NONE))
        assert len(order) == len(rows), "each transaction is once in the order"
        key = self._rows_by_key.values
        self._once_each = not len(key) or bool(key[0] >= 0 and (key[1:] > key[:-1]).all())
        self._of_clients: dict[int, tuple[int, Lookup]] = {}

    def find(self, client: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Returns intp[n]: the index of each of these transactions, -1 if it is not recorded. The numbers of one client
        are dense, and its rows stand together: so this is an array access."""
        # Example: clients 3 3 3 7 7 in `sends`: two lookups, each of one client's numbers.
        starts = np.flatnonzero(differs_from_previous(client))
        if not self._once_each or len(starts) * _STRETCH_ROWS_MIN > len(client):
            return self._rows_by_key.find(identity_keys(client, number))
        found = np.empty(len(client), dtype=np.intp)
        for first, last in pairwise([*starts.tolist(), len(client)]):
            low, indices = self._of_client(int(client[first]))
            slot = indices.find(number[first:last].astype(np.int64, copy=False))
            found[first:last] = np.where(slot >= 0, slot + low, -1)
        return found

    def _of_client(self, client: int) -> tuple[int, Lookup]:
        """Returns the index of the client's first transaction, and a lookup of its numbers."""
        if client not in self._of_clients:
            clients = self.columns["client"]
            # In the column's own type: for another one, numpy would convert the whole column for each client.
            low, high = np.searchsorted(clients, np.array([client, client + 1], dtype=clients.dtype))
            self._of_clients[client] = int(low), Lookup(self.columns["transaction"][low:high])
        return self._of_clients[client]

    @staticmethod
    def of(table: Columns) -> "Transactions":
        """Returns the transactions of this table, made once if several kernels share the table."""
        return once(table, Transactions, lambda: Transactions(table))

    def __len__(self) -> int:
        return len(self._rows_by_key.values)

    @lazy
    def aborted(self) -> np.ndarray:
        """Returns bool[n]: an abort was invoked and never a commit, so no one may see it at read_committed."""
        return np.asarray(self.columns["ended_by"] == ABORT)

    @lazy
    def in_doubt(self) -> np.ndarray:
        """Returns bool[n]: its client does not know whether it was committed. A reader that was shown a record of it
        proves that it was."""
        return np.asarray((self.columns["outcome"] == Outcome.INFO.value) & ~self.aborted)

    @lazy
    def perhaps_committed(self) -> np.ndarray:
        """Returns bool[n]: it was committed, or may have been."""
        return np.asarray(((self.columns["outcome"] == Outcome.OK.value) & ~self.aborted) | self.in_doubt)

    @lazy
    def commit_invoked_ns(self) -> np.ndarray:
        """Returns int64[n]: when its commit was invoked. NEVER: it was not."""
        invoked = (self.columns["ended_by"] == COMMIT) & (self.columns["end_invoked_ns"] != MISSING)
        return np.asarray(np.where(invoked, self.columns["end_invoked_ns"], NEVER))

    @lazy
    def committing(self) -> int:
        """Returns how many commits were invoked."""
        return int(np.count_nonzero(self.commit_invoked_ns != NEVER))

    @lazy
    def zombie(self) -> np.ndarray:
        """Returns bool[n]: was its commit invoked when a later instance had already been initialised?"""
        since, _ = self.superseded
        return np.asarray((self.commit_invoked_ns != NEVER) & (self.commit_invoked_ns > since))

    @lazy
    def in_time(self) -> np.ndarray:
        """Returns int32[n]: the rank of each transaction by when its commit was invoked (of an imported one: when it was
        over; of one that never was: when it began). A read at read_committed leads forward in this order, unless it is an
        early one, or somebody crashed."""
        rank = np.empty(len(self), dtype=np.int32)
        # The inverse of a permutation: by_rank [2 0 1] says that 2 came first, so the ranks are [1 2 0].
        rank[self.by_rank] = np.arange(len(self))
        return rank

    @lazy
    def by_rank(self) -> np.ndarray:
        """Returns intp[n]: the transactions in the order of `in_time`."""
        invoked_ns, over_ns = self.commit_invoked_ns, self.columns["completed_ns"]
        over_ns = np.where(over_ns != MISSING, over_ns, self.columns["begun_ns"])
        return np.argsort(np.where(invoked_ns == NEVER, over_ns, invoked_ns), kind="stable")

    @lazy
    def superseded(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns (int64[n], int[n]): when init_transactions of a certainly later instance of the same transactional.id
        first returned (NEVER: there is none), and that instance's client.

        Certainly later: its init_transactions was first called after that of the transaction's own instance had returned.
        """
        table, instances = self.columns, self.instances
        returned = np.where(instances["initialised_ns"] != MISSING, instances["initialised_ns"], NEVER)
        order = np.lexsort((instances["begun_ns"], instances["transactional_id"]))
        of_id, called = (instances[name][order] for name in ("transactional_id", "begun_ns"))
        returned = returned[order]
        client = instances["client"][order]
        when, successor = np.full(len(self), NEVER), np.full(len(self), NONE, dtype=np.int64)
        clustered = Clustered(table["transactional_id"])
        for number in distinct(of_id).tolist():  # as many as there are producers
            first, last = np.searchsorted(of_id, number), np.searchsorted(of_id, number, side="right")
            # From each instance on, the one that returned first.
            # Example: instances returned at 3, 9 and 5 s. From the first on 3 was first, from the second on 5, from the third
            # on 5: [3 5 5]. A transaction of the first instance is superseded at 5 s, by the third one.
            backwards = returned[first:last][::-1]
            least = np.minimum.accumulate(backwards)[::-1]
            rows = clustered.rows_of(number)
            rows = rows[table["initialised_ns"][rows] != MISSING]
            # Instances of one id by when they were called: the first that was called after its own init had returned.
            later = np.searchsorted(called[first:last], table["initialised_ns"][rows], side="right")
            rows, later = rows[later < last - first], later[later < last - first]
            when[rows] = least[later]
            # The least returned time is that of the last of equal entries: [3 5 5] has its 5 of the third.
            position = np.searchsorted(least, least[later], side="right") - 1
            successor[rows] = client[first:last][position]
        return when, successor


# What `prozess.checkers.chunked.transactions` gathers, where a cell is checked a partition at a time.


@unique
class NoticedTransactions(Flag):
    """What a look at a partition noticed there. Where it noticed nothing, kernels need not look at the rows again."""

    MISSING = auto()
    """V does not show a record that it should show, if the transaction was committed."""
    ZOMBIE = auto()
    """V shows a record of a zombie's transaction."""
    ABORTED = auto()
    """Somebody was shown a record of an aborted transaction."""
    EARLY = auto()
    """A consumer received a record before the commit of its transaction was invoked."""
    BEHIND_OPEN = auto()
    """A consumer at read_committed received a record behind one of a transaction that was open, or may have."""


@dataclass(frozen=True, slots=True)
class PartitionSurvey:
    """Describes what a look at one partition, or at a part of it, reported about that alone."""

    noticed: NoticedTransactions
    reads: int
    """How many reads are judged there (`CellIndex.reads_judged`)."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownTransactions:
    """Describes what must be known of all partitions of a cell to judge its transactions in each of them. Bits are
    packed, one for each transaction of the cell."""

    audited: bool
    incomplete: str | None
    """Why nothing can be concluded from what read_committed does not show in the whole cell (`CellIndex.incomplete`)."""
    shown: np.ndarray
    """Bits: does V of some partition show a record of it?"""
    seen_committed: np.ndarray
    """Bits: did a read_committed consumer receive a record of it?"""
    first: tuple[np.ndarray, np.ndarray, np.ndarray]
    """For each transaction that may be torn, ascending: which it is, and the sequence and offset of its first record
    that V shows."""
    surveys: Mapping[ShareKey, PartitionSurvey] = field(default_factory=dict)
    """What each partition, or part of one, was found to be like."""
    ranked_edges: Any = None
    """The `Edges` that may be in cycles (`prozess.checkers.transactions.isolation`). Transactions are named by their ranks in
    time (`Transactions.by_rank`). None: no kernel asked for them."""
    edges_judged: tuple[int, int] = (0, 0)
    """How many edges there are by reads, and how many by writes."""
    open_records: Mapping[int, Any] = field(default_factory=dict)
    """For each partition that was looked at in parts what they must know of one another: `OpenRecords`
    (`prozess.checkers.transactions.early_reads`)."""
    edge_rows: TakenRows = field(default_factory=dict)
    """Which rows `ranked_edges` are of in each partition that was looked at in parts. There `Edges.row` is an index among
    these."""


def pack_bits(flags: np.ndarray) -> np.ndarray:
    """Returns the bits of a bool array."""
    assert flags.dtype == np.bool_, f"{flags.dtype} has more than one bit"
    return np.packbits(flags)


_SORTED_PART = 16
"""Fewer of all numbers than one of so many are sorted; more are marked in an array that has an index for each."""


def distinct_below(numbers: np.ndarray, length: int) -> np.ndarray:
    """Returns the different ones of these numbers below `length`, int32, ascending. What this costs depends on how many
    there are, and not on `length`: there may be thousands of partitions with a few transactions each."""
    assert not len(numbers) or 0 <= numbers.min() <= numbers.max() < length, f"a number is not below {length}"
    if len(numbers) * _SORTED_PART < length:
        return distinct(numbers).astype(np.int32)
    there = np.zeros(length, dtype=bool)
    there[numbers] = True
    return np.flatnonzero(there).astype(np.int32)


def unpack_bits(bits: np.ndarray, length: int) -> np.ndarray:
    """Returns bool[length]: the array that these bits were made from."""
    assert len(bits) == -(-length // 8), f"{len(bits)} bytes for {length} transactions"
    return np.unpackbits(bits, count=length).astype(bool)
