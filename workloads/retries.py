"""Records whose processing fails at first: their partition is paused, and they are tried again later, before what is behind
them. So a partition's records are processed in order, each once, however often one fails."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

Columns = Mapping[str, np.ndarray]
"""Of `reads`: one entry per record."""
_SPREAD, _HASHES = np.uint64(2654435761), 1 << 32
"""Knuth's multiplicative hash: which records fail is spread evenly, and the same for whoever is given them."""


@dataclass(slots=True)
class Held:
    """What waits of one partition. `due_ns`: when it is tried again."""

    columns: Columns
    due_ns: int


class Retries:
    """`share` of the records fail when this member processes them for the first time; they are tried again `after_ms`
    later."""

    def __init__(self, *, share: float, after_ms: float) -> None:
        self._share, self._after_ns = share, int(after_ms * 1e6)
        self._failed: set[tuple[int, int]] = set()
        """(partition, offset) of those that have failed."""
        self.held: dict[int, Held] = {}
        """By partition."""

    def take(self, columns: Columns, now_ns: int) -> tuple[Columns, Columns, list[int]]:
        """Of these records: those to be processed now, those that fail (one per partition at most), and the partitions that
        have to wait from now on. A failed one is held back with all behind it."""
        partition = columns["partition"]
        if not self._share and not self.held:
            return columns, chosen(columns, np.zeros(len(partition), dtype=bool)), []
        fails, waits = self._fails(columns), np.zeros(len(partition), dtype=bool)
        failed, paused = np.zeros(len(partition), dtype=bool), []
        for dense in np.unique(partition).tolist():
            rows = np.flatnonzero(partition == dense)
            if dense in self.held:  # it was under way when the partition was paused
                waits[rows] = True
                self.held[dense].columns = joined(self.held[dense].columns, chosen(columns, rows))
                continue
            bad = rows[fails[rows]]
            if len(bad):
                behind = rows[rows >= bad[0]]
                waits[behind] = True
                failed[bad[0]] = True
                self._failed.add((dense, int(columns["log_offset"][bad[0]])))
                self.held[dense] = Held(chosen(columns, behind), now_ns + self._after_ns)
                paused.append(dense)
        return chosen(columns, ~waits), chosen(columns, failed), paused

    def hold(self, columns: Columns, now_ns: int) -> list[int]:
        """Hold all of these back. The partitions that have to wait from now on."""
        paused = []
        for dense in np.unique(columns["partition"]).tolist():
            late = chosen(columns, columns["partition"] == dense)
            if dense in self.held:
                self.held[dense].columns = joined(self.held[dense].columns, late)
            else:
                self.held[dense] = Held(late, now_ns + self._after_ns)
                paused.append(dense)
        return paused

    def due(self, now_ns: int) -> dict[int, Columns]:
        """What is to be tried again now, by partition; it is held no longer."""
        ready = [dense for dense, held in self.held.items() if held.due_ns <= now_ns]
        return {dense: self.held.pop(dense).columns for dense in ready}

    def forget(self, partitions: Iterable[int]) -> None:
        """They were taken away: whoever has them now is given their records again."""
        for dense in partitions:
            self.held.pop(dense, None)

    def _fails(self, columns: Columns) -> np.ndarray:
        fails = unlucky(columns, self._share)
        for row in np.flatnonzero(fails).tolist():  # as many as fail
            if (int(columns["partition"][row]), int(columns["log_offset"][row])) in self._failed:
                fails[row] = False
        return fails


def unlucky(columns: Columns, share: float) -> np.ndarray:
    """bool[n]: does the processing of each record fail the first time? The same for whoever asks."""
    identity = columns["sequence"].astype(np.uint64) + (columns["sender"].astype(np.uint64) << np.uint64(20))
    return np.asarray((identity * _SPREAD) % np.uint64(_HASHES) < np.uint64(int(share * _HASHES)))


def chosen(columns: Columns, rows: np.ndarray) -> Columns:
    """Some of the records: a mask, or indexes."""
    return {name: values[rows] for name, values in columns.items()}


def joined(first: Columns, second: Columns) -> Columns:
    """Both, in order."""
    return {name: np.concatenate([values, second[name]]) for name, values in first.items()}


def next_offsets(columns: Columns) -> dict[int, int]:
    """Partition → one past the last of its records here."""
    partitions, last = np.unique(columns["partition"][::-1], return_index=True)
    offsets = columns["log_offset"][::-1][last] + 1
    return dict(zip(partitions.tolist(), offsets.tolist(), strict=True))
