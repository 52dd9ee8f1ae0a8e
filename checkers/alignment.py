"""Where what observers read stands in the log of a partition: in stretches, not record by record.

An observer reads the records of the log one after the other. The rows of its reads mostly are a stretch of the log's
records, which is known by its ends, and to compare both is to compare two slices. Only where stretches are short each
record is looked up by itself.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

ALIGNED_ROWS_MIN = 1 << 12
"""Where there are fewer rows, to look up each takes less time than all else."""
_ROWS_PER_STRETCH, _STRETCHES_FEW = 1 << 13, 16
"""Stretches that are shorter than this, on average, are not worth their calls, unless there are only a few."""
_BLOCK, _FIRST_LOOK = 1 << 16, 1 << 7
"""How many rows are looked at in one go: what is computed of them stays in the processor's cache. The first look is short,
because a stretch may be."""


class Stretch(NamedTuple):
    """Rows of `reads` that show, one after the other, the offsets of records of the log that follow one another:
    first ≤ row < last."""

    first: int
    last: int
    position: int
    """The position in the log of the first of them."""

    @property
    def rows(self) -> slice:
        """Returns which rows of `reads` it is, as a slice: taking them copies nothing."""
        return slice(self.first, self.last)

    @property
    def positions(self) -> slice:
        """Returns at which positions of the log these rows stand, as a slice of the same length."""
        return slice(self.position, self.position + self.last - self.first)

    def unlike(self, columns: Sequence[tuple[np.ndarray, np.ndarray]]) -> Callable[[slice], np.ndarray]:
        """Returns a function of a slice of this stretch: its mask of the rows in which one of these columns of `reads`
        differs from that of the log."""

        def differs(rows: slice) -> np.ndarray:
            # `rows` count from the stretch's begin: one slice of `reads` and one of the log, which begin at other rows.
            unlike = np.zeros(rows.stop - rows.start, dtype=bool)
            for read, logged in columns:
                mine = read[self.first + rows.start : self.first + rows.stop]
                unlike |= mine != logged[self.position + rows.start : self.position + rows.stop]
            return unlike

        return differs


class Alignment(NamedTuple):
    """All reads of a partition: the stretches of them that have an index in the log, ascending by row, and the other rows."""

    stretches: Sequence[Stretch]
    elsewhere: np.ndarray
    """intp[n]: the rows of `reads` that show offsets at which the log has no record, ascending."""


def align(
    offset: np.ndarray,
    runs: Sequence[tuple[int, int, int]],
    log_offset: np.ndarray,
    find: Callable[[np.ndarray], np.ndarray],
) -> Alignment | None:
    """Returns where reads stand in the log; None: in so many stretches that it is faster to look each read up.

    `offset`: of each read. `runs`: (first row, row after the last, client) of stretches of one client, which cover all rows.
    `log_offset` strictly ascends. `find` returns the position in the log of offsets, -1 where it has none. O(n); the loop is
    over stretches.
    """
    most = max(_STRETCHES_FEW, len(offset) // _ROWS_PER_STRETCH)
    stretches: list[Stretch] = []
    elsewhere: list[np.ndarray] = [np.empty(0, dtype=np.intp)]
    if not len(log_offset):
        return Alignment(stretches, np.arange(len(offset)))
    if len(runs) > most:
        return None
    assert not runs or (runs[0][0], runs[-1][1]) == (0, len(offset)), "runs cover all rows"
    for begin, end, _ in runs:
        row = begin
        while row < end:
            # Example: the log has the offsets 0 1 2 5 6, and a consumer read 1 2 3 5. Row 0 stands at position 1, and the
            # stretch is rows 0 and 1; row 2 (offset 3) is elsewhere; row 3 begins another stretch, at position 3.
            position = int(find(offset[row : row + 1])[0])
            if position < 0:
                after = _first_found(find, offset, row, end)
                elsewhere.append(np.arange(row, after))
                row = after
                continue
            # From here on both are compared as slices. The audit's own offsets are the log's array itself (a slice shares its
            # memory): they need no look.
            values, others = offset[row:end], log_offset[position:]
            itself = values.__array_interface__["data"][0] == others.__array_interface__["data"][0]
            length = min(len(values), len(others)) if itself else _agreeing(values, others)
            stretches.append(Stretch(row, row + length, position))
            row += length
            if len(stretches) > most:
                return None
    assert sum(one.last - one.first for one in stretches) + sum(map(len, elsewhere)) == len(offset), (
        "each row is once in it"
    )
    return Alignment(stretches, np.concatenate(elsewhere))


def _first_found(find: Callable[[np.ndarray], np.ndarray], offset: np.ndarray, row: int, end: int) -> int:
    """Returns the first row from this one on of which the log has the offset; `end`, if there is none."""
    for block in _blocks(row, end):
        there = find(offset[block]) >= 0
        if there.any():
            # `argmax` of a mask is its first True, and `argmin` (below) its first False.
            return int(block.start + np.argmax(there))
    return end


def _agreeing(values: np.ndarray, others: np.ndarray) -> int:
    """Returns how many values from the beginning are the same in both arrays."""
    length = min(len(values), len(others))
    for block in _blocks(0, length):
        same = values[block] == others[block]
        if not same.all():
            return int(block.start + np.argmin(same))
    return length


def _blocks(first: int, last: int) -> Iterator[slice]:
    """Yields slices of the rows first ≤ row < last, of which the first are short."""
    size = _FIRST_LOOK
    while first < last:
        yield slice(first, min(first + size, last))
        # 128, 512, 2048, … rows: a short stretch costs little, and a long one few calls.
        first, size = first + size, min(4 * size, _BLOCK)


def rows_where(length: int, holds: Callable[[slice], np.ndarray]) -> np.ndarray:
    """Returns intp[k]: the rows below `length` for which something holds, ascending. `holds` informs it for a slice of them,
    so that what it computes stays in the processor's cache."""
    if length <= _BLOCK:  # -1 is given where pairs of neighbours are looked at, and there is not even one row
        return holds(slice(0, max(length, 0))).nonzero()[0]
    found = []
    for first in range(0, length, _BLOCK):
        if len(rows := holds(slice(first, min(first + _BLOCK, length))).nonzero()[0]):
            found.append(rows + first)
    return np.concatenate(found) if found else np.empty(0, dtype=np.intp)


def rows_that(values: np.ndarray, holds: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Returns intp[k]: the indices of the values for which something holds, ascending. If a column has one value for all
    rows, it looks at that alone."""
    # Stride 0: Parquet's statistics reported one value for all rows, and the array is that value, broadcast.
    if values.strides == (0,) and len(values):
        return np.arange(len(values) if bool(holds(values[:1])[0]) else 0)
    return rows_where(len(values), lambda rows: holds(values[rows]))


def strictly_ascends(values: np.ndarray) -> bool:
    """Returns whether each value is greater than the value before it."""
    for first in range(0, len(values) - 1, _BLOCK):
        # One more than a block, so that the last of it is compared with the first of the next one.
        block = values[first : first + _BLOCK + 1]
        if not (block[1:] > block[:-1]).all():
            return False
    return True
