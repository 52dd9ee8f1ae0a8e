"""The log of one partition as arrays: what the audit read at one level, where each record stands first, and its copies."""

from typing import TYPE_CHECKING

import numpy as np

from checkers.lookup import CLIENT_BITS, UNREADABLE, Lookup, differs_from_previous
from harness.plan import SENTINEL_CLIENT
from harness.schema import Isolation

if TYPE_CHECKING:
    from checkers.arrays import PartitionIndex


class Log:
    """L(p) or V(p): what the audit read at one isolation level, ascending by offset, without sentinels, and up to the
    sentinel where it was reached. If one offset was read more than once, the last reading counts."""

    def __init__(self, index: "PartitionIndex", isolation: Isolation) -> None:
        self.end: int | None = index.audit_end.get(isolation)
        """Offset of the sentinel; None = the audit is not complete."""
        rows = index.audit_rows(isolation)
        drop = index.reads["sender"][rows] == SENTINEL_CLIENT
        if self.end is not None:
            drop |= index.reads["log_offset"][rows] >= self.end
        dropped = int(np.count_nonzero(drop))
        if dropped and drop[len(drop) - dropped :].all():  # the usual case: the sentinel ends it
            rows = rows[: len(rows) - dropped]
        elif dropped:
            rows = rows[~drop]
        offset = index.reads["log_offset"][rows]
        if not (offset[1:] > offset[:-1]).all():
            rows = rows[np.lexsort((index.reads["read_ns"][rows], offset))]
            offset = index.reads["log_offset"][rows]
            last = np.append(offset[1:] != offset[:-1], True)
            rows, offset = rows[last], offset[last]
        self.rows = rows
        """intp[n]: rows of `reads`."""
        self.offset = offset
        self.key = index.read_key[rows]
        self.positions = Lookup(offset)
        """Offset → position in the log (dense rank)."""


class Identities:
    """The records of a log by identity: where each stands first, and every further copy."""

    def __init__(self, log: Log, sender: np.ndarray) -> None:
        self.grouped = grouped_by_client(sender)
        """Positions in the log grouped by sender, each group in the order of the log; unreadable ones left out."""
        key = log.key[self.grouped]
        if (key == UNREADABLE).any():
            self.grouped = self.grouped[key != UNREADABLE]
            key = log.key[self.grouped]
        position, self.orderly = self.grouped, bool((key[1:] > key[:-1]).all())
        if not self.orderly:
            order = np.argsort(key, kind="stable")  # timsort: linear on what is nearly in order
            position, key = position[order], key[order]
        first = differs_from_previous(key)
        self.first = position[first]
        """Position of the first copy of each record, ascending by key."""
        self.extra = position[~first]
        """Positions of all further copies."""
        self.extra_first = self.first[np.cumsum(first)[~first] - 1]
        """For each of them: where the record stands first."""
        self._keys = Lookup(key[first])

    def find(self, key: np.ndarray) -> np.ndarray:
        """intp[k]: position of the first copy of each record, -1 if the log does not have it."""
        place = self._keys.find(key)
        found = np.full(len(key), -1, dtype=np.intp)
        hit = place >= 0
        found[hit] = self.first[place[hit]]
        return found


def grouped_by_client(sender: np.ndarray) -> np.ndarray:
    """intp[n]: the rows by sender, ascending, those of one in the order that they have."""
    if not len(sender) or sender.min() == sender.max():
        return np.arange(len(sender))
    # A radix sort (16 bits) needs small numbers; whoever is no client of ours comes first, as its key does.
    small = sender.astype(np.int64) + 1
    small[(sender < 0) | (sender >= 1 << CLIENT_BITS)] = 0
    kind = np.uint16 if small.max() < 1 << 16 else np.uint32
    return np.argsort(small.astype(kind), kind="stable")
