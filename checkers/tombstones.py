"""Where the tombstones of a partition stand, as their producers were told: what is excused although nothing is left of it."""

from collections.abc import Mapping

import numpy as np

from checkers.lookup import Lookup, differs_from_previous
from harness.plan import SENTINEL_CLIENT
from harness.schema import NONE, Outcome

_FOREVER = np.iinfo(np.int64).max


class Tombstones:
    """The last tombstone of every key, by the offset that was acknowledged; _FOREVER if any of the key is, or may be, in the
    log and nobody told where. Compaction removes what a tombstone supersedes, and later the tombstone itself."""

    def __init__(self, sends: Mapping[str, np.ndarray]) -> None:
        there = (sends["size"] == NONE) & (sends["outcome"] != Outcome.FAIL) & (sends["client"] != SENTINEL_CLIENT)
        rows = np.flatnonzero(there & (sends["key"] != NONE))
        key, offset = sends["key"][rows], sends["log_offset"][rows]
        offset = np.where((sends["outcome"][rows] == Outcome.OK) & (offset != NONE), offset, _FOREVER)
        order = np.lexsort((offset, key))
        key, offset = key[order], offset[order]
        last = np.append(differs_from_previous(key)[1:], True)[: len(key)]
        self._keys, self._offset = Lookup(key[last]), offset[last]

    def behind(self, key: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """bool[k]: does, or may, a tombstone of this key stand behind this offset?"""
        place = self._keys.find(key)
        found = place >= 0
        found[found] = self._offset[place[found]] > offset[found]
        return found
