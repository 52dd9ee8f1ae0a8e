"""The log of one partition as arrays: where each record stands, and which record stands where."""

from collections.abc import Callable, Mapping

import numpy as np

from prozess.checkers.alignment import rows_where, strictly_ascends
from prozess.checkers.lookup import CLIENT_BITS, UNREADABLE, Lookup, differs_from_next, differs_from_previous, lazy
from prozess.harness.columns import stretch, taken
from prozess.harness.plan.plan import SENTINEL_CLIENT


class Log:
    """The log of a partition as the audit read it at one isolation level: L(p) at read_uncommitted, V(p) at
    read_committed. It ascends by offset, has no sentinels, and ends at the sentinel where the audit reached it. If the
    audit read an offset more than once, the last read counts."""

    def __init__(
        self,
        reads: Mapping[str, np.ndarray],
        rows: np.ndarray,
        keys: Callable[[np.ndarray | slice], np.ndarray],
        *,
        end: int | None,
        sentinels: np.ndarray,
    ) -> None:
        """`rows`: those of `reads` by the audit at one level, in the order of reading. `keys` returns the identity of the
        record that some rows show. `sentinels`: the rows that show one."""
        self.end = end
        """The offset of the sentinel. None: the audit is not complete."""
        offset = taken(reads["log_offset"], rows)
        if strictly_ascends(offset):
            # The usual case: the audit read each offset once, in order. The log is what it read before the sentinel's offset.
            # Example: offsets 5 6 9 10, and the sentinel at 9. `cut` is 2: the log is 5 6, and 10 stands behind.
            cut = len(rows) if end is None else int(np.searchsorted(offset, end))
            # Where `cut` is less, there is an end to compare with.
            self.behind = rows[cut:][offset[cut:] > end] if cut < len(rows) else rows[:0]
            """intp[n]: the rows of `reads` by which the audit read what stands behind the sentinel."""
            rows, offset = rows[:cut], offset[:cut]
            # Sentinels of earlier tries stand in front of the one at the end.
            if len(dropped := slots_of(sentinels, rows)):
                rows, offset = np.delete(rows, dropped), np.delete(offset, dropped)
        else:
            rows, offset = self._last_reads(reads, rows, offset)
        assert len(rows) == len(offset), f"{len(rows)} rows, {len(offset)} offsets"
        self.key = keys(stretch(rows))
        """int64[n]: the identity of each record."""
        self.rows = rows
        """intp[n]: the rows of `reads` by which the audit read each record."""
        self.offset = offset
        self.positions = Lookup(offset)
        """Finds the position of an offset in the log."""

    @lazy
    def holes(self) -> np.ndarray:
        """Returns the positions, ascending, after which comes a record whose offset is not the next."""
        offset = self.offset
        if self.positions.is_dense:
            return np.empty(0, dtype=np.intp)
        return rows_where(len(offset) - 1, lambda rows: offset[rows.start + 1 : rows.stop + 1] - offset[rows] != 1)

    def _last_reads(
        self, reads: Mapping[str, np.ndarray], rows: np.ndarray, offset: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the last row of `reads` for each offset of a record, and the offset, where the audit read some more than
        once, or not in their order."""
        drop = reads["sender"][rows] == SENTINEL_CLIENT
        if self.end is not None:
            drop |= offset >= self.end
        self.behind = rows[:0] if self.end is None else rows[drop & (offset > self.end)]
        rows, offset = rows[~drop], offset[~drop]
        # Sorted by offset, then by time: of an offset that was read twice the last row counts.
        # Example: offsets 7 8 7 8 9 were read at 1 to 5 s. In order these are the rows 0 2 | 1 3 | 4, and rows 2 3 4 stay.
        rows = rows[np.lexsort((reads["read_ns"][rows], offset))]
        offset = reads["log_offset"][rows]
        last = differs_from_next(offset)
        return rows[last], offset[last]


def slots_of(few: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns at which indices of some rows, which strictly ascend, there is one of a few others."""
    # Example: rows 3 5 9, and 5 and 7 of the others. They would stand in slots 1 and 2; in slot 1 is 5 itself, so 1 is
    # returned.
    slot = np.searchsorted(rows, few)
    inside = slot < len(rows)
    slot, few = slot[inside], few[inside]
    return np.asarray(slot[rows[slot] == few])


class LogIdentities:
    """The records of a log by identity: where each record stands first, and where its further copies stand."""

    def __init__(self, grouped: np.ndarray, key: np.ndarray) -> None:
        """`grouped`, `key`: the position and the identity of each readable record. The records of one sender stand together,
        in the order of the log."""
        assert len(grouped) == len(key), "one key for each position"
        self.grouped, self.orderly = grouped, bool((key[1:] > key[:-1]).all())
        self.first, self.extra, self.extra_first = grouped, grouped[:0], grouped[:0]
        """The position of the first copy of each record, ascending by key; the positions of all further copies, and for
        each of these where its record stands first."""
        if not self.orderly:
            order = np.argsort(key, kind="stable")  # timsort: linear on what is nearly in order
            # Copies of a record stand together now, in the order of the log. Example [a b a]: a 0, a 2, b 1; first 0, 1;
            # extra 2.
            position, key = grouped[order], key[order]
            first = differs_from_previous(key)
            self.first, self.extra, key = position[first], position[~first], key[first]
            # `first` is [True False True] in the example, its cumsum [1 1 2]: the extra copy is of record 1 - 1 = 0.
            self.extra_first = self.first[np.cumsum(first)[~first] - 1]
        assert len(self.first) == len(key), "each record stands somewhere first"
        assert len(self.extra) == len(self.extra_first), "a further copy has a first one"
        self._keys = Lookup(key)

    @staticmethod
    def of(log: Log, sender: np.ndarray) -> "LogIdentities":
        """Returns the records of any log. `sender`: of each record."""
        grouped = grouped_by_client(sender)
        key = log.key[grouped]
        if (key == UNREADABLE).any():
            grouped = grouped[key != UNREADABLE]
            key = log.key[grouped]
        return LogIdentities(grouped, key)

    def find(self, key: np.ndarray) -> np.ndarray:
        """Returns intp[k]: the position of the first copy of each record, -1 if the log does not have it."""
        # Two steps: the key's slot among the different keys, then the position of that record's first copy.
        # Example [a b a] at the positions 0 1 2: a query for b has slot 1, and b stands first at position 1.
        slot = self._keys.find(key)
        found = np.full(len(key), -1, dtype=np.intp)
        hit = slot >= 0
        found[hit] = self.first[slot[hit]]
        return found


def grouped_by_client(sender: np.ndarray) -> np.ndarray:
    """Returns intp[n]: the rows by sender, ascending. Rows of one sender keep their order."""
    if not len(sender) or sender.min() == sender.max():
        return np.arange(len(sender))
    # A radix sort (16 bits) needs small numbers; whoever is no client of ours comes first, as its key does.
    # Example: senders 7 3 7 -9 become 8 4 8 0, and the rows by sender are 3 1 0 2.
    small = sender.astype(np.int64) + 1
    small[(sender < 0) | (sender >= 1 << CLIENT_BITS)] = 0
    kind = np.uint16 if small.max() < 1 << 16 else np.uint32
    return np.argsort(small.astype(kind), kind="stable")
