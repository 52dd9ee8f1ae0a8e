"""Counts how far the sends of a trial are, from the recorded rows themselves, while clients write them.

Each call looks only at new rows, and at rows that were not completed before.
"""

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from prozess.harness.interfaces import Progress
from prozess.harness.recording.rows import RowTail, segment_rows
from prozess.harness.schema import MISSING, SENDS, Outcome

_KINDS = len(Outcome)


class SendsTail:
    """Follows the rows of `sends` of one client, and counts them for each partition."""

    def __init__(self, rows: Path, client: int, partitions: int) -> None:
        self._tail = RowTail(rows, SENDS, client)
        self._seen, self._segment, self._start = 0, 0, 0
        self._open: list[np.ndarray] = []
        """For each segment, the numbers of its rows that were issued and are not completed, int64."""
        self.issued = np.zeros(partitions, dtype=np.int64)
        self.completed = np.zeros((_KINDS, partitions), dtype=np.int64)
        """How many sends are completed: [Outcome, partition]."""
        self._ended = False

    def end(self) -> None:
        """Takes in the last rows of a client that has ended, and closes its files. A trial may restart hundreds of
        clients."""
        self.advance()
        self._ended = True
        self._tail.close()
        self._open.clear()

    def advance(self) -> None:
        """Takes in what was written since the last call."""
        if self._ended:
            return
        segments = self._tail.segments()
        for number in range(self._segment, len(segments)):
            self._take_new(segments[number], number)
        for number, waiting in enumerate(self._open):
            if len(waiting):
                self._open[number] = self._take_completed(segments[number], waiting)

    def _take_new(self, rows: np.ndarray, number: int) -> None:
        while len(self._open) <= number:
            self._open.append(np.empty(0, dtype=np.int64))
        if self._segment != number:
            return  # the segment before is not full yet
        # A row is there once its `mark` has its number (index + 1). New rows are those from `first` on, as far as marks are
        # right. Example: 7 rows were seen, and the marks go on 8 9 0 0: two are new.
        first = self._seen - self._start
        if rows["mark"][first] != self._seen + 1:
            return  # nothing new
        right = rows["mark"][first:] == np.arange(self._seen + 1, self._start + len(rows) + 1)
        count = len(right) if right.all() else int(np.argmin(right))
        fresh = np.arange(first, first + count, dtype=np.int64)
        self.issued += np.bincount(rows["partition"][fresh], minlength=len(self.issued))
        assert count > 0, "the first row is new"
        self._open[number] = np.concatenate([self._open[number], fresh])
        self._seen += count
        if self._seen == self._start + segment_rows(number):
            self._segment, self._start = number + 1, self._seen

    def _take_completed(self, rows: np.ndarray, waiting: np.ndarray) -> np.ndarray:
        """Counts those of `waiting` that are completed now, and returns the others."""
        done = rows["completed_ns"][waiting] != MISSING
        ended = waiting[done]
        partitions, outcomes = rows["partition"][ended], rows["outcome"][ended]
        for kind in range(_KINDS):
            self.completed[kind] += np.bincount(partitions[outcomes == kind], minlength=len(self.issued))
        left: np.ndarray = waiting[~done]
        return left


def progress_of(tails: Sequence[SendsTail], dead: Collection[int], *, partitions: int) -> dict[int, Progress]:
    """Returns the progress of each dense partition, over all clients. `dead` are the indexes of tails whose client has
    ended: what such a client left open stays INFO."""
    issued, abandoned = np.zeros(partitions, dtype=np.int64), np.zeros(partitions, dtype=np.int64)
    completed = np.zeros((_KINDS, partitions), dtype=np.int64)
    for index, tail in enumerate(tails):
        issued += tail.issued
        completed += tail.completed
        if index in dead:
            assert (tail.issued >= tail.completed.sum(axis=0)).all(), "more sends are over than were made"
            abandoned += tail.issued - tail.completed.sum(axis=0)
    return {
        partition: Progress(
            issued=int(issued[partition]),
            ok=int(completed[Outcome.OK, partition]),
            failed=int(completed[Outcome.FAIL, partition]),
            info=int(completed[Outcome.INFO, partition] + abandoned[partition]),
        )
        for partition in range(partitions)
    }
