"""The rows of `transactions`: what each client knows of its own transactions, and of its instances."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np

from checkers.lookup import Lookup, differs_from_previous, identity_keys, lazy
from harness.columns import once
from harness.schema import MISSING, NONE

COMMIT, ABORT = 1, 2
"""`transactions.ended_by`."""
NEVER = np.iinfo(np.int64).max
Columns = Mapping[str, np.ndarray]


_STRETCH_ROWS_MIN = 16
"""Where clients have fewer rows one after the other, transactions are looked for one by one."""


class _Chosen(Mapping[str, np.ndarray]):
    """Chosen rows of a table: each column taken when it is first asked for."""

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
    """The rows of `transactions` that are transactions, ascending by (client, number); and the instances."""

    def __init__(self, table: Columns) -> None:
        rows = np.flatnonzero(table["transaction"] != NONE)
        key = identity_keys(table["client"][rows], table["transaction"][rows])
        order = np.argsort(key, kind="stable")
        self.columns: Columns = _Chosen(table, rows[order])
        self._places = Lookup(key[order])
        self.instances: Columns = _Chosen(table, np.flatnonzero(table["transaction"] == NONE))
        key = self._places.values
        self._once_each = not len(key) or bool(key[0] >= 0 and (key[1:] > key[:-1]).all())
        self._of_clients: dict[int, tuple[int, Lookup]] = {}

    def find(self, client: np.ndarray, number: np.ndarray) -> np.ndarray:
        """intp[n]: the place of each of these transactions, -1 = it is not recorded. Numbers of one client are dense, and its
        rows stand together: so it is an array access."""
        starts = np.flatnonzero(differs_from_previous(client))
        if not self._once_each or len(starts) * _STRETCH_ROWS_MIN > len(client):
            return self._places.find(identity_keys(client, number))
        found = np.empty(len(client), dtype=np.intp)
        for first, last in pairwise([*starts.tolist(), len(client)]):
            low, places = self._of_client(int(client[first]))
            place = places.find(number[first:last].astype(np.int64, copy=False))
            found[first:last] = np.where(place >= 0, place + low, -1)
        return found

    def _of_client(self, client: int) -> tuple[int, Lookup]:
        """Place of its first transaction, and its numbers."""
        if client not in self._of_clients:
            low, high = np.searchsorted(self.columns["client"], [client, client + 1])
            self._of_clients[client] = int(low), Lookup(self.columns["transaction"][low:high])
        return self._of_clients[client]

    @staticmethod
    def of(table: Columns) -> "Transactions":
        """Made once of a table that many are given."""
        return once(table, Transactions, lambda: Transactions(table))

    def __len__(self) -> int:
        return len(self._places.values)

    @lazy
    def aborted(self) -> np.ndarray:
        """bool[n]: an abort was invoked and never a commit, so nobody may ever be shown it at read_committed."""
        return np.asarray(self.columns["ended_by"] == ABORT)

    @lazy
    def commit_invoked_ns(self) -> np.ndarray:
        """int64[n]: NEVER where no commit was invoked."""
        invoked = (self.columns["ended_by"] == COMMIT) & (self.columns["end_invoked_ns"] != MISSING)
        return np.asarray(np.where(invoked, self.columns["end_invoked_ns"], NEVER))

    @lazy
    def committing(self) -> int:
        """Of how many was a commit invoked?"""
        return int(np.count_nonzero(self.commit_invoked_ns != NEVER))

    @lazy
    def zombie(self) -> np.ndarray:
        """bool[n]: its commit was invoked when a later instance had already been initialised."""
        since, _ = self.superseded
        return np.asarray((self.commit_invoked_ns != NEVER) & (self.commit_invoked_ns > since))

    @lazy
    def in_time(self) -> np.ndarray:
        """intp[n]: place of each by when its commit was invoked (of an imported one: was over). A read at read_committed
        leads forward in this order, unless it is an early one."""
        invoked_ns, over_ns = self.commit_invoked_ns, self.columns["completed_ns"]
        order = np.argsort(np.where((invoked_ns == NEVER) & (over_ns != MISSING), over_ns, invoked_ns), kind="stable")
        rank = np.empty(len(order), dtype=np.intp)
        rank[order] = np.arange(len(order))
        return rank

    @lazy
    def superseded(self) -> tuple[np.ndarray, np.ndarray]:
        """(int64[n], int[n]): when init_transactions of an instance that is certainly later, of the same transactional.id,
        had first returned, NEVER = there is none; and that instance's client.

        Certainly later: its init_transactions was first called after that of the transaction's own instance had returned.
        """
        table, told = self.columns, self.instances
        returned = np.where(told["initialised_ns"] != MISSING, told["initialised_ns"], NEVER)
        order = np.lexsort((told["begun_ns"], told["transactional_id"]))
        of_id, called, returned = (values[order] for values in (told["transactional_id"], told["begun_ns"], returned))
        client = told["client"][order]
        when, who = np.full(len(self), NEVER), np.full(len(self), NONE, dtype=np.int64)
        for number in np.unique(of_id):  # as many as there are producers
            first, last = np.searchsorted(of_id, number), np.searchsorted(of_id, number, side="right")
            # From each instance on, the one that returned first.
            backwards = returned[first:last][::-1]
            least = np.minimum.accumulate(backwards)[::-1]
            rows = np.flatnonzero((table["transactional_id"] == number) & (table["initialised_ns"] != MISSING))
            later = np.searchsorted(called[first:last], table["initialised_ns"][rows], side="right")
            rows, later = rows[later < last - first], later[later < last - first]
            when[rows] = least[later]
            position = np.searchsorted(least, least[later], side="right") - 1  # the instance that this is of
            who[rows] = client[first:last][position]
        return when, who
