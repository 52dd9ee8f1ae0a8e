"""When each client lived, and which transactions there were: rows of a history are compared with this
(`prozess.harness.history.contradictions`)."""

from collections.abc import Mapping, Sequence

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.schema import MISSING, NONE

BESIDE_NS = 24 * 3600 * NS_PER_S
"""What prozess itself records lies within the lives of the clients, and a day before and after."""

_TRANSACTION_BITS = 40

Columns = Mapping[str, np.ndarray]


class TransactionsAtHand:
    """The rows of the table `transactions` by client and number."""

    def __init__(self, table: Columns) -> None:
        """Adds a row of no transaction, which is that of -1."""
        self.table = {name: np.append(values, values.dtype.type(NONE)) for name, values in table.items()}
        key = self._key(table["client"], table["transaction"])
        # Numbers of transactions → rows: keys ascend, and `_order` leads from a key's index back to its row.
        self._order = np.flatnonzero(table["transaction"] != NONE)
        self._order = self._order[np.argsort(key[self._order], kind="stable")]
        self._keys = key[self._order]

    def rows(self, client: np.ndarray, transaction: np.ndarray) -> np.ndarray:
        """Returns the row of each of these transactions. -1: there is none."""
        if not len(self._keys):
            return np.full(len(client), -1)
        key = self._key(client, transaction)
        # The first key that is not less: the one that is asked for, or another one. Behind the last, the last one differs.
        index = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        assert len(client) == len(transaction), "a number for each client"
        return np.asarray(np.where(self._keys[index] == key, self._order[index], -1))

    @staticmethod
    def _key(client: np.ndarray, transaction: np.ndarray) -> np.ndarray:
        # A damaged number that is too great must not reach into those of the next client.
        number = np.minimum(transaction, (1 << _TRANSACTION_BITS) - 1)
        return np.asarray((client.astype(np.int64) << _TRANSACTION_BITS) + number)


class Lives:
    """When each client began and ended, by the table `clients`."""

    def __init__(self, clients: Columns) -> None:
        ended = np.where(clients["ended_ns"] == MISSING, np.iinfo(np.int64).max, clients["ended_ns"])
        order = np.argsort(clients["client"], kind="stable")
        self._client = clients["client"][order].astype(np.int64)
        self._started, self._ended = clients["started_ns"][order], ended[order]
        known = clients["ended_ns"] != MISSING
        self._first = int(clients["started_ns"].min()) - BESIDE_NS if len(order) else None
        self._last = int(clients["ended_ns"][known].max()) + BESIDE_NS if known.any() else np.iinfo(np.int64).max

    def hold(self, client: np.ndarray, time_ns: np.ndarray, *, since: bool) -> bool:
        """Returns whether no time is `outside`, by the least and the greatest time of each run of rows of one client. False:
        it is not known, because some may be, or are MISSING."""
        if self._first is None or not len(client):
            return True
        # Example: client 3 has times 5 9 7, client 4 has 2. The runs begin at 0 and 3, and their bounds are 5–9 and 2–2: if
        # both ends are within a life, all times are. MISSING is less than all times, so a least one of it shows.
        starts = run_starts({"client": client}, ["client"])
        least_ns, greatest_ns = np.minimum.reduceat(time_ns, starts), np.maximum.reduceat(time_ns, starts)
        if int(least_ns.min()) == MISSING:
            return False
        return not any(self.outside(client[starts], ends, since=since).any() for ends in (least_ns, greatest_ns))

    def outside(self, client: np.ndarray, time_ns: np.ndarray, *, since: bool) -> np.ndarray:
        """Returns which times are not in the life of their client. `since`: times before all clients count, too, in rows that
        are of none of them."""
        if self._first is None:
            return np.zeros(len(client), dtype=bool)
        assert len(client) == len(time_ns), "a time for each client"
        index = np.minimum(np.searchsorted(self._client, client), len(self._client) - 1)
        known = self._client[index] == client
        early = np.where(known, time_ns < self._started[index], since & (time_ns < self._first))
        late = np.where(known, time_ns > self._ended[index], time_ns > self._last)
        return np.asarray((early | late) & (time_ns != MISSING))


def among(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Returns which values are among the known ones, which ascend."""
    # Where nothing is known the index is -1, and is not used.
    index = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return np.asarray(known[index] == values) if len(known) else np.zeros(len(values), dtype=bool)


def run_starts(rows: Columns, names: Sequence[str]) -> np.ndarray:
    """Returns the rows at which one of these columns differs from the row before."""
    new = np.zeros(len(rows[names[0]]), dtype=bool)
    new[:1] = True
    for name in names:
        new[1:] |= rows[name][1:] != rows[name][:-1]
    return np.flatnonzero(new)
