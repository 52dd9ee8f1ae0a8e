"""What a group's retry topic says of the records whose processing failed: which were handed on, by whom, how often.

A record that was handed on is judged there: it counts as done in its own partition as soon as the retry topic has it. The
partitions of both topics are paired by their number; `reads.origin` says which record one in the retry topic was.
"""

from dataclasses import dataclass

import numpy as np

from checkers.arrays import PartitionIndex
from checkers.lookup import Lookup, differs_from_previous, distinct, identity_keys
from harness.plan import Cell
from harness.protocols import CellHistory
from harness.schema import MISSING, NONE, Isolation, Outcome


def retry_of(cell: Cell) -> dict[int, int]:
    """Partition → its retry partition (dense ids); empty where the group has no retry topic."""
    if cell.group is None or not cell.group.hands_on:
        return {}
    return dict(zip(cell.written, cell.derived, strict=True))


class RetryPartition:
    """The retry partition of one partition."""

    def __init__(self, history: CellHistory, source: int, retry: int) -> None:
        self._index = PartitionIndex.of(history.partitions[retry])
        self._processed, self._source, self._retry = history.tables["processed"], source, retry
        key, origin = self._index.read_key, self._index.reads["origin"]
        rows = np.flatnonzero((key >= 0) & (origin >= 0))
        rows = rows[np.argsort(key[rows], kind="stable")]
        rows = rows[differs_from_previous(key[rows])]
        self._keys, self._origin = Lookup(key[rows]), origin[rows]

    def incomplete(self, level: Isolation) -> str | None:
        """Why a record may be there although the audit did not show it."""
        return self._index.incomplete(level)

    def has(self, key: np.ndarray, level: Isolation) -> np.ndarray:
        """bool[n]: does the retry partition have each of these records (identity keys), or was it processed from there?"""
        log = self._index.visible if level is Isolation.READ_COMMITTED else self._index.log
        done = self._origin_of(self._done())
        origin = np.concatenate([self._index.reads["origin"][log.rows], done])
        return np.asarray(Lookup(distinct(origin[origin >= 0])).find(key) >= 0)

    def left_behind(self, offset: np.ndarray) -> np.ndarray:
        """bool[n]: did whoever tried the record at each offset last then send something to the retry topic that never
        arrived, as far as is known?"""
        table, sends = self._processed, self._index.sends
        lost = (sends["outcome"] != Outcome.OK) & (
            Lookup(distinct(self._index.read_key)).find(self._index.send_key) < 0
        )
        tried = np.flatnonzero((table["partition"] == self._source) & (table["done_ns"] == MISSING))
        tried = tried[np.lexsort((table["started_ns"][tried], table["log_offset"][tried]))]
        last = np.append(differs_from_previous(table["log_offset"][tried])[1:], True)[: len(tried)]
        tried = tried[last]
        place = Lookup(table["log_offset"][tried]).find(offset)
        found = np.zeros(len(offset), dtype=bool)
        if not len(tried):
            return found
        rows = tried[place]
        for client in distinct(sends["client"][lost]).tolist():  # members
            sent_ns = sends["invoked_ns"][lost & (sends["client"] == client)].max()
            found |= (place >= 0) & (table["client"][rows] == client) & (table["started_ns"][rows] <= sent_ns)
        return found

    def repeated(self) -> "Repeated":
        """Records that were processed by more than one way: in their own partition and from the retry topic, or from two
        places of that."""
        table = self._processed
        own = np.flatnonzero((table["partition"] == self._source) & (table["done_ns"] != MISSING))
        handed = self._done()
        origin = np.concatenate([identity_keys(table["sender"][own], table["sequence"][own]), self._origin_of(handed)])
        attempt, sent = self._attempts(handed)
        rows = np.concatenate([own, handed])
        attempt, sent = np.concatenate([own, attempt]), np.concatenate([np.full(len(own), NONE), sent])
        from_retry = np.arange(len(rows)) >= len(own)
        order = np.lexsort((table["done_ns"][rows], origin))
        order = order[origin[order] >= 0]
        one, other = order[:-1], order[1:]
        again = np.flatnonzero((origin[one] == origin[other]) & (from_retry[one] | from_retry[other]))
        before, after = order[again], order[again + 1]
        outcome = self._index.sends["outcome"]
        known = sent[before] >= 0
        unconfirmed = np.zeros(len(before), dtype=bool)
        unconfirmed[known] = outcome[sent[before][known]] != Outcome.OK
        return Repeated(rows[before], rows[after], attempt[before], attempt[after], unconfirmed)

    def _done(self) -> np.ndarray:
        """Rows of `processed`: the first time that each record of the retry partition was processed."""
        table = self._processed
        rows = np.flatnonzero((table["partition"] == self._retry) & (table["done_ns"] != MISSING))
        key = identity_keys(table["sender"][rows], table["sequence"][rows])
        order = np.lexsort((table["done_ns"][rows], key))
        return np.asarray(rows[order[differs_from_previous(key[order])]])

    def _origin_of(self, rows: np.ndarray) -> np.ndarray:
        """int64[n]: which record each of these rows of `processed` was at first; NONE = not told."""
        key = identity_keys(self._processed["sender"][rows], self._processed["sequence"][rows])
        place = self._keys.find(key)
        origin = np.full(len(rows), NONE, dtype=np.int64)
        origin[place >= 0] = self._origin[place[place >= 0]]
        return origin

    def _attempts(self, handed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of what was processed from the retry partition (rows of `processed`): the row of the attempt that failed, and the
        row of `sends`; NONE = unknown. The attempt is the sender's last one before it sent."""
        table, sends = self._processed, self._index.sends
        sent = self._index.send_rows(identity_keys(table["sender"][handed], table["sequence"][handed]))
        tried = np.flatnonzero((table["partition"] == self._source) & (table["done_ns"] == MISSING))
        sent_ns = np.full(len(handed), MISSING, dtype=np.int64)
        sent_ns[sent >= 0] = sends["invoked_ns"][sent[sent >= 0]]
        client = np.concatenate([table["client"][tried], table["sender"][handed]])
        key = np.concatenate([identity_keys(table["sender"][tried], table["sequence"][tried]), self._origin_of(handed)])
        time_ns = np.concatenate([table["started_ns"][tried], sent_ns])
        query = np.arange(len(client)) >= len(tried)
        order = np.lexsort((query, time_ns, key, client))
        last = np.maximum.accumulate(np.where(query[order], -1, np.arange(len(order))))
        before = order[np.maximum(last, 0)] if len(order) else order
        fits = (last >= 0) & (client[before] == client[order]) & (key[before] == key[order]) & ~query[before]
        found = np.full(len(client), NONE, dtype=np.intp)
        found[order[fits]] = before[fits]
        found = found[len(tried) :]
        return np.where(found >= 0, tried[np.maximum(found, 0)] if len(tried) else NONE, NONE), sent


@dataclass(frozen=True, slots=True)
class Repeated:
    """Pairs, by rows of `processed`: arrays of one length."""

    before: np.ndarray
    after: np.ndarray
    attempt_before: np.ndarray
    """The attempt in the record's own partition that led to it; NONE = not known."""
    attempt_after: np.ndarray
    unconfirmed: np.ndarray
    """bool: the sender of the first was not told that it arrived."""
