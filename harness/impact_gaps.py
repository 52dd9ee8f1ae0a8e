"""When a partition acknowledged nothing, and when it did again: found in its rows a stretch of them at a time, in any order,
with little in memory beside the stretch. Pure.

Two acknowledgements between which something was unavailable are far apart, so that of each short time only the first and the
last must be remembered. Which send waited first in such a gap is asked in a second look, and only where there is one.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from harness.clock import NS_PER_S
from harness.schema import MISSING

UNAVAILABLE_NS = NS_PER_S
"""A partition that acknowledged nothing for so long, although it was sent something, was unavailable."""
_BIN_NS = UNAVAILABLE_NS // 2
_BEFORE, _NEVER = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


class Answers:
    """The acknowledgements of a partition, as far as gaps of UNAVAILABLE_NS between them need them."""

    def __init__(self) -> None:
        self._times_ns = np.empty(0, dtype=np.int64)
        self._first_ns, self._newest_ns = _NEVER, 0
        self._sent = False

    def add(self, invoked_ns: np.ndarray, completed_ns: np.ndarray) -> None:
        """Of some rows: when each was sent, and when those that were acknowledged were. In any order."""
        if len(invoked_ns):
            newest_ns = int(invoked_ns.max())
            self._newest_ns = max(self._newest_ns, newest_ns) if self._sent else newest_ns
            self._first_ns = min(self._first_ns, int(invoked_ns.min(where=invoked_ns > _BEFORE, initial=_NEVER)))
            self._sent = True
        self._times_ns = _outermost(np.concatenate([self._times_ns, _outermost(completed_ns)]))

    def gaps(self) -> np.ndarray:
        """int64[k, 2]: the last acknowledgement and the next one, ascending, where a send may have waited long in between;
        _BEFORE = there was none yet, _NEVER = none came any more."""
        last, following = np.append(_BEFORE, self._times_ns), np.append(self._times_ns, _NEVER)
        since_ns, until_ns = last.copy(), following.copy()
        since_ns[0], until_ns[-1] = self._first_ns, self._newest_ns
        # What was sent last of all had less time to be answered than UNAVAILABLE_NS: that proves nothing.
        long = (until_ns > since_ns) & (until_ns - np.minimum(since_ns, until_ns) >= UNAVAILABLE_NS)
        return np.stack([last[long], following[long]], axis=1)

    def windows(self, gaps: np.ndarray, waited_since_ns: np.ndarray) -> np.ndarray:
        """int64[k, 2]: from the first send after an acknowledgement until the next acknowledgement, where that took
        UNAVAILABLE_NS; MISSING = there was no next."""
        following = gaps[:, 1]
        until_ns = np.where(following == _NEVER, self._newest_ns, following)
        long = (waited_since_ns < until_ns) & (until_ns - np.minimum(waited_since_ns, until_ns) >= UNAVAILABLE_NS)
        end_ns = np.where(following == _NEVER, MISSING, following)
        return np.stack([waited_since_ns[long], end_ns[long]], axis=1)


def waited_since(gaps: np.ndarray, invoked_ns: Callable[[], Iterable[np.ndarray]]) -> np.ndarray:
    """int64[k]: when the first send after each gap's begin was made; _NEVER = none was. Only looks if there is a gap."""
    last, found = gaps[:, 0], np.full(len(gaps), _NEVER)
    for times_ns in invoked_ns() if len(gaps) else ():
        _lower(found, np.searchsorted(last, times_ns, side="left") - 1, times_ns)
    return np.minimum.accumulate(found[::-1])[::-1]


class Successes:
    """After each of some times, the first acknowledgement of what was sent since."""

    def __init__(self, times_ns: Sequence[int]) -> None:
        self._times_ns = np.unique(np.array(times_ns, dtype=np.int64))
        self._first_ns = np.full(len(self._times_ns), _NEVER)

    def add(self, invoked_ns: np.ndarray, completed_ns: np.ndarray) -> None:
        """Of some rows that were acknowledged, in any order."""
        _lower(self._first_ns, np.searchsorted(self._times_ns, invoked_ns, side="right") - 1, completed_ns)

    def after(self, time_ns: int | None) -> int:
        """How long after one of the times; MISSING = never, or there is no such time."""
        if time_ns is None:
            return MISSING
        at = int(self._first_ns[np.searchsorted(self._times_ns, time_ns) :].min())
        return MISSING if at == _NEVER else at - time_ns


def _lower(found: np.ndarray, place: np.ndarray, values: np.ndarray) -> None:
    """The least value at each place; -1 is no place."""
    inside = place >= 0
    np.minimum.at(found, place[inside], values[inside])


def _outermost(times_ns: np.ndarray) -> np.ndarray:
    """The first and the last in each of many short times, ascending."""
    times_ns = np.sort(times_ns)
    edge = np.ones(len(times_ns) + 1, dtype=bool)
    edge[1:-1] = np.diff(times_ns // _BIN_NS) != 0
    return times_ns[edge[1:] | edge[:-1]]
