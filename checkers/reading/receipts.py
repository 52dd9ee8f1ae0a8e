"""When somebody first received each record of a partition."""

from itertools import pairwise

import numpy as np

from prozess.checkers.alignment import Stretch
from prozess.checkers.lookup import distinct, lazy
from prozess.checkers.partition_index import PartitionIndex

NEVER = np.iinfo(np.int64).max
"""The time at which a record was received that never was."""


class Receipts:
    """The first receipt of each record by one recipient: by any of some clients.

    Nearly all records are received where they stand in L(p), and stand where they were acknowledged. The times are kept by
    position in the log, where those of a client that read on and on are a stretch of its rows. Records of which that is
    not so are *others*: they are looked up by themselves.
    """

    def __init__(self, index: PartitionIndex, clients: np.ndarray) -> None:
        """`clients`: the ids of those of whom any one will do."""
        self._index = index
        self._runs = [(a, b) for a, b, client in index.reader_runs if (clients == client).any()]

    @lazy
    def _stretches(self) -> list[Stretch] | None:
        """Returns the stretches of L(p) that the recipient read. None: they are not known, or overlap."""
        alignment = self._index.alignment
        if alignment is None:
            return None
        # The reshape is for a recipient that received nothing: two empty columns.
        begins, ends = np.array(self._runs, dtype=np.intp).reshape(-1, 2).T
        # The run that begins last before a stretch; the stretch is this client's if it begins before the run ends.
        run = np.searchsorted(begins, [one.first for one in alignment.stretches], side="right") - 1
        mine = [
            one
            for one, number in zip(alignment.stretches, run.tolist(), strict=True)
            if number >= 0 and one.first < ends[number]
        ]
        mine.sort(key=lambda one: one.position)
        # Stretches that overlap show a record twice, and then time decides which receipt was the first.
        apart = all(one.positions.stop <= other.position for one, other in pairwise(mine))
        return mine if apart else None

    @lazy
    def _rows(self) -> np.ndarray:
        """Returns intp[n]: the recipient's rows of `reads`, in the order in which it received them."""
        rows = np.concatenate([np.empty(0, dtype=np.intp), *(np.arange(a, b) for a, b in self._runs)])
        if len(self._runs) > 1:
            rows = rows[np.argsort(self._index.reads["read_ns"][rows], kind="stable")]
        return rows

    @lazy
    def _unconfirmed(self) -> np.ndarray:
        """Returns the recipient's rows of `reads` that L(p) does not confirm."""
        rows = self._index.unconfirmed_reads
        parts = [rows[slice(*np.searchsorted(rows, run))] for run in self._runs]
        return np.concatenate([rows[:0], *parts])

    @lazy
    def _row_at(self) -> np.ndarray:
        """Returns intp[log + 1]: for each position of L(p) the row of `reads` by which its record was first received there;
        -1: it was not, as at the last entry."""
        index = self._index
        found = np.full(len(index.log.rows) + 1, -1, dtype=np.intp)
        if self._stretches is not None:
            for one in self._stretches:
                found[one.positions] = np.arange(one.first, one.last)
            # What this recipient got there is another record. A position -1 is the last entry, which is -1 in any case.
            found[index.positions_of_reads(self._unconfirmed)] = -1
            return found
        confirmed = np.ones(len(index.reads["client"]), dtype=bool)
        confirmed[index.unconfirmed_reads] = False
        # Backwards, so that of several receipts of one record the earliest is written last.
        rows = self._rows[confirmed[self._rows]][::-1]
        found[index.read_position[rows]] = rows  # of several numpy keeps the last, which is the earliest
        return found

    @lazy
    def given_at(self) -> np.ndarray:
        """Returns int64[log]: when the record at each position of L(p) was first received there. NEVER: it was not."""
        index, length = self._index, len(self._index.log.rows)
        if self._stretches is None:
            row = self._row_at[:-1]
            return np.where(row >= 0, index.reads["read_ns"][row], NEVER)
        unconfirmed = index.positions_of_reads(self._unconfirmed)
        unconfirmed = unconfirmed[unconfirmed >= 0]
        if len(self._stretches) == 1 and self._stretches[0].positions == slice(0, length) and not len(unconfirmed):
            return np.asarray(index.reads["read_ns"][self._stretches[0].rows])
        found = np.full(length, NEVER)
        for one in self._stretches:
            found[one.positions] = index.reads["read_ns"][one.rows]
        assert sum(one.last - one.first for one in self._stretches) <= length, "stretches do not overlap"
        found[unconfirmed] = NEVER
        return found

    @lazy
    def _other_first(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rows of `sends`, ascending, of records that were received elsewhere than where they were acknowledged,
        and the rows of `reads` by which they first were."""
        index = self._index
        # Two ways to be elsewhere: it stands in L(p) where it was not acknowledged, or L(p) does not confirm the read.
        other = np.append(index.send_at[:-1] < 0, False) & (index.send_in_log >= 0)
        row, send = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
        if other.any():
            position = np.flatnonzero(other)
            position = position[self._row_at[position] >= 0]
            row, send = self._row_at[position], index.send_in_log[position]
        if len(rows := self._unconfirmed):
            found = index.send_rows(index.keys_of_reads(rows))
            row, send = np.append(row, rows[found >= 0]), np.append(send, found[found >= 0])
        if not len(row):
            return send, row
        order = (
            np.lexsort((row, index.reads["read_ns"][row])) if len(self._runs) > 1 else np.argsort(row, kind="stable")
        )
        # Rows of one client ascend by time, and so the row decides; of several clients the time does. Backwards, so that of
        # several receipts of one send the earliest is written last.
        row, send = row[order][::-1], send[order][::-1]
        assert len(row) == len(send), "a receipt for each send"
        first = np.full(len(index.sends["client"]), -1, dtype=np.intp)
        first[send] = row
        send = distinct(send)
        return send, first[send]

    @property
    def others(self) -> np.ndarray:
        """Returns the rows of `sends`, ascending, whose first receipt need not be where the record was acknowledged."""
        return self._other_first[0]

    def first(self, sends: np.ndarray) -> np.ndarray:
        """Returns intp[k]: the row of `reads` by which each of these rows of `sends` was first received, -1: never."""
        index = self._index
        position = np.where(index.send_confirmed[sends], index.send_position[sends], -1)
        found = self._row_at[position]
        others, other = self._other_first
        if not len(others):
            return np.asarray(found)
        # Two candidates for each send: where it was acknowledged, and elsewhere. The earlier of the two counts.
        slot = np.minimum(np.searchsorted(others, sends), len(others) - 1)
        other = np.where(others[slot] == sends, other[slot], -1)
        if len(self._runs) <= 1:
            earlier = (other >= 0) & ((found < 0) | (other < found))
        else:
            read_ns = index.reads["read_ns"]
            sooner = (read_ns[other] < read_ns[found]) | ((read_ns[other] == read_ns[found]) & (other < found))
            earlier = (other >= 0) & ((found < 0) | sooner)
        return np.where(earlier, other, found)

    def given_ns(self, sends: np.ndarray) -> np.ndarray:
        """Returns int64[k]: when each of these rows of `sends` was first received. NEVER: it was not."""
        row = self.first(sends)
        if not len(self._index.reads["read_ns"]):
            return np.full(len(row), NEVER)
        return np.where(row >= 0, self._index.reads["read_ns"][row], NEVER)
