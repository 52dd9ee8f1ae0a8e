"""When clients stood still, by the gaps between their heartbeats: what is late because its observer slept proves nothing."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from harness.schema import MISSING

STILL_NS = 500_000_000
"""Five heartbeats (100 ms): a heart that is silent for longer stood still."""
BEFORE = -(2**62)
"""A time before every time of a history; half of what an int64 holds, so that differences hold too."""
Columns = Mapping[str, np.ndarray]


class Stillness:
    """Stretches in which somebody stood still; those that overlap count once."""

    def __init__(self, begin_ns: np.ndarray, end_ns: np.ndarray) -> None:
        order = np.argsort(begin_ns, kind="stable")
        begin, reach = begin_ns[order], np.maximum.accumulate(end_ns[order])
        first = np.flatnonzero(np.concatenate([[True], begin[1:] > reach[:-1]])[: len(begin)])
        self.begin_ns = begin[first]
        self.end_ns = reach[np.append(first[1:], len(reach)) - 1] if len(reach) else reach
        self._before = np.concatenate([[0], np.cumsum(self.end_ns - self.begin_ns)])

    def __or__(self, other: "Stillness") -> "Stillness":
        return Stillness(np.concatenate([self.begin_ns, other.begin_ns]), np.concatenate([self.end_ns, other.end_ns]))

    def within(self, begin_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
        """int64[n]: how much of each [begin, end] it lasted, in ns."""
        return np.asarray(self._until(np.maximum(begin_ns, end_ns)) - self._until(begin_ns))

    def _until(self, time_ns: np.ndarray) -> np.ndarray:
        if not len(self.begin_ns):
            return np.zeros(len(time_ns), dtype=np.int64)
        last = np.searchsorted(self.begin_ns, time_ns, side="right") - 1
        at = np.maximum(last, 0)
        inside = np.clip(time_ns - self.begin_ns[at], 0, self.end_ns[at] - self.begin_ns[at])
        return np.where(last >= 0, self._before[at] + inside, 0)


class Place:
    """Whoever is to be given the records of some partitions: one client after the other (a reader and its successors), or
    several at once (the members of a group), of whom any will do."""

    def __init__(
        self, clients: Columns, heartbeats: Columns, planned: Iterable[int], partitions: Iterable[int]
    ) -> None:
        """`clients`, `heartbeats`: those tables. `planned`: whose place it is, by the plan."""
        rows = np.flatnonzero(np.isin(clients["planned"], list(planned)) & (clients["started_ns"] != MISSING))
        self.clients = clients["client"][rows].astype(np.int64)
        """Ids of everybody who had it."""
        self.partitions = frozenset(partitions)
        beats = [_beats(heartbeats, int(client)) for client in self.clients]
        started, ended = clients["started_ns"][rows], clients["ended_ns"][rows]
        last = np.array([b[-1] if len(b) else s for b, s in zip(beats, started, strict=True)], dtype=np.int64)
        ended = np.where(ended != MISSING, ended, last)
        self.end_ns = int(ended.max(initial=BEFORE))
        """When the last of them ended, or was last known to live; BEFORE = nobody ever lived."""
        orderly = (clients["complete"][rows] == 1) & (clients["exit_code"][rows] == 0)
        self.orderly = bool(orderly[np.argmax(ended)]) if len(rows) else False
        """Did whoever ended last end by itself, when it was told to?"""
        self.still = stillness(beats) | _nobody(started, ended)


def stillness_of(heartbeats: Columns, client: int) -> Stillness:
    """When one client stood still while it lived."""
    return stillness([_beats(heartbeats, client)])


def stillness(beats: Sequence[np.ndarray]) -> Stillness:
    """When one of several stood still, by the heartbeats of each, ascending."""
    gaps = [np.flatnonzero(np.diff(times) > STILL_NS) for times in beats]
    none = np.empty(0, dtype=np.int64)
    begin = np.concatenate([none, *(times[gap] for times, gap in zip(beats, gaps, strict=True))])
    end = np.concatenate([none, *(times[gap + 1] for times, gap in zip(beats, gaps, strict=True))])
    return Stillness(begin, end)


def _nobody(started_ns: np.ndarray, ended_ns: np.ndarray) -> Stillness:
    """Before the first of some lives, and between them."""
    order = np.argsort(started_ns, kind="stable")
    began, reach = started_ns[order], np.maximum.accumulate(ended_ns[order])
    since = np.concatenate([[BEFORE], reach[:-1]])[: len(began)]
    gone = began > since
    return Stillness(since[gone].astype(np.int64), began[gone].astype(np.int64))


def _beats(heartbeats: Columns, client: int) -> np.ndarray:
    return np.sort(heartbeats["time_ns"][heartbeats["client"] == client])
