"""From where on a recorded consumer reads, in rows of `positions`: a span is what it reads in order by itself."""

from pathlib import Path

import numpy as np

from harness.rows import RowWriter
from harness.schema import NONE, POSITIONS
from workloads.recorded_client import now_ns

ASSIGNED, SOUGHT, PAUSED, RESUMED = 1, 2, 4, 5
"""`positions.event`."""


class ConsumerSpans:
    """Of every partition the span that it is in. Partitions are dense ids."""

    def __init__(self, rows: Path, client: int) -> None:
        self._positions = RowWriter(rows, POSITIONS, client)
        self._span: dict[int, int] = {}
        self._unfilled: dict[int, int] = {}
        """Partition → its row of `positions` that does not say yet where it begins."""
        self._spans = -1
        self.next_offset = np.full(16, NONE, dtype=np.int64)
        """By partition, what it is given next; NONE: the first record will tell."""

    def make_room(self, partition: int) -> None:
        """For a partition that is new to it, and all with smaller ids."""
        if partition >= len(self.next_offset):
            more = np.full(2 * (partition + 1) - len(self.next_offset), NONE, dtype=np.int64)
            self.next_offset = np.concatenate([self.next_offset, more])

    def begin(self, partition: int, offset: int, event: int) -> None:
        """What is read from here on is in order by itself. NONE: where that is, the first record will tell."""
        self._spans += 1
        self._span[partition], self.next_offset[partition] = self._spans, offset
        row = self._positions.append(now_ns(), offset, partition, event, self._spans)
        self._unfilled.pop(partition, None)
        if offset == NONE and event == ASSIGNED:
            self._unfilled[partition] = row

    def given(self, partition: int, offset: int) -> int:
        """The record there was given: the number of its span."""
        if partition not in self._span:  # given without an assignment that was seen
            self.begin(partition, NONE, ASSIGNED)
        row = self._unfilled.pop(partition, None)
        if row is not None:
            self._positions.complete(np.array([row]), {"log_offset": offset})
        self.next_offset[partition] = offset + 1
        return self._span[partition]

    def note(self, partition: int, event: int) -> None:
        """Where it is, and that this happened there."""
        span = self._span.get(partition, NONE)
        self._positions.append(now_ns(), int(self.next_offset[partition]), partition, event, span)

    def close(self) -> None:
        """Flush."""
        self._positions.close()
