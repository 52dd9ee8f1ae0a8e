"""The rows of `transactions`: what each client knows of its own transactions, and of its instances."""

from collections.abc import Mapping

import numpy as np

from checkers.lookup import Lookup, identity_keys, lazy
from harness.columns import once
from harness.schema import MISSING, NONE

COMMIT, ABORT = 1, 2
"""`transactions.ended_by`."""
NEVER = np.iinfo(np.int64).max
Columns = Mapping[str, np.ndarray]


class Transactions:
    """The rows of `transactions` that are transactions, ascending by (client, number); and the instances."""

    def __init__(self, table: Columns) -> None:
        rows = np.flatnonzero(table["transaction"] != NONE)
        key = identity_keys(table["client"][rows], table["transaction"][rows])
        order = np.argsort(key, kind="stable")
        self.columns = {name: values[rows[order]] for name, values in table.items()}
        self.places = Lookup(key[order])
        self.instances = {name: values[table["transaction"] == NONE] for name, values in table.items()}

    @staticmethod
    def of(table: Columns) -> "Transactions":
        """Made once of a table that many are given."""
        return once(table, Transactions, lambda: Transactions(table))

    def __len__(self) -> int:
        return len(self.columns["client"])

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
