"""The batches that the replicas of a partition hold in the end, looked up by offset."""

from collections.abc import Iterator, Mapping

import numpy as np

from prozess.harness.interfaces.checking import CopyFacts
from prozess.harness.schema import NONE

TRANSACTIONAL, CONTROL = 0x10, 0x20
"""Bits of a batch's attributes."""


class StoredBatches:
    """Batches of all replicas of a partition that is not compacted, as their files were read after the audit. A batch of
    records has one at each of its offsets: only compaction takes single ones out."""

    def __init__(
        self, replicas: Mapping[str, np.ndarray], copies: Mapping[int, CopyFacts], assignment: tuple[int, ...]
    ) -> None:
        """The arguments are those of `PartitionHistory`."""
        self._replicas, self._copies = replicas, copies
        self.whole = len(copies) > 0 and set(assignment) <= copies.keys()
        """Was every replica read?"""

    def everywhere(self, offset: np.ndarray) -> np.ndarray:
        """Returns bool[k]: does every replica have a record at this offset? It says no where a replica was not read."""
        if not self.whole or not len(offset):
            return np.zeros(len(offset), dtype=bool)
        there = np.ones(len(offset), dtype=bool)
        for base, last, attributes in self._each():
            slot, inside = _batch_at(base, last, offset)
            # `there` is what all replicas so far have; a batch of markers (CONTROL) has no record.
            there &= inside
            there[inside] &= (attributes[slot[inside]] & CONTROL) == 0
        return there

    def in_transaction(self, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns (yes, no), bool[k]: does a replica say that a transaction wrote what stands at this offset, and does one
        say that none did? Neither: no replica that was read has anything there."""
        yes, no = np.zeros(len(offset), dtype=bool), np.zeros(len(offset), dtype=bool)
        if not len(offset):
            return yes, no
        for base, last, attributes in self._each():
            slot, inside = _batch_at(base, last, offset)
            written = (attributes[slot[inside]] & TRANSACTIONAL) != 0
            yes[inside] |= written
            no[inside] |= ~written
        return yes, no

    def count(self, low: int, high: int) -> int | None:
        """Returns how many records each replica has at the least at offsets in [low, high). None: not every replica was
        read."""
        if not self.whole:
            return None
        counts = []
        for base, last, attributes in self._each():
            records = (attributes & CONTROL) == 0
            # What a batch and [low, high) have in common; a batch outside of it has a negative length, which counts as 0.
            length = np.minimum(last[records] + 1, high) - np.maximum(base[records], low)
            counts.append(int(np.maximum(length, 0).sum()))
        return min(counts)

    def _each(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yields (base offset, last offset, attributes) of the batches of each replica, in the order of its log."""
        if not self._copies:
            return
        rows = self._replicas
        # Steps of the schedule may have read files, too, while the log was still growing: those rows have their numbers.
        at_end = rows["step"] == NONE
        for node in sorted(self._copies):
            mine = np.flatnonzero(at_end & (rows["node"] == node))
            base = rows["base_offset"][mine]
            if not (base[1:] > base[:-1]).all():
                mine = mine[np.argsort(base, kind="stable")]
                base = rows["base_offset"][mine]
            yield base, rows["last_offset"][mine], rows["attributes"][mine]


def _batch_at(base: np.ndarray, last: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns, for each offset, the batch that begins last before it (intp[k]), and whether it is in that batch."""
    # Example: batches 0–2 and 5–7. Offset 6 is behind base 5, in batch 1. Offset 3 is behind base 0, and past its end:
    # nowhere.
    slot = np.searchsorted(base, offset, side="right") - 1
    inside = slot >= 0
    # The mask on both sides: -1 would take the last batch.
    inside[inside] = last[slot[inside]] >= offset[inside]
    return slot, inside
