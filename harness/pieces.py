"""A partition that is too large for one place: where it is cut, and how only some of its rows are read.

The rules of what may be left out are the checkers' (`checkers.pieces`); engines carry out the jobs (`harness.kernels`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from harness.history_reader import History
from harness.protocols import CellHistory, PartitionHistory
from harness.schema import TABLES
from harness.table_file import TableFile

ROWS_MAX = 6_000_000
"""Of sends and reads of one partition that are checked at one place; about 600 MB."""
PIECES_AT_LEAST = 2
"""A partition that has more is looked at in pieces of half of that."""
UNBOUNDED = np.iinfo(np.int64).max
Columns = Mapping[str, np.ndarray]


class Rows(Protocol):
    """The rows of one table of one partition, of which only some are read at a time."""

    def by_offset(self, low: int, high: int) -> tuple[Columns, np.ndarray]:
        """Rows with low ≤ log_offset < high (or UNBOUNDED), and their numbers, ascending."""
        ...

    def by_row(self, first: int, last: int) -> tuple[Columns, np.ndarray]:
        """Rows first ≤ number < last, and their numbers."""
        ...

    def take(self, rows: np.ndarray) -> Columns:
        """Rows of these numbers, which ascend."""
        ...


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where a partition is cut: bounds of ranges of offsets, and of rows; each ascending, the first 0."""

    offsets: tuple[int, ...]
    """The last is UNBOUNDED."""
    sends: tuple[int, ...]
    reads: tuple[int, ...]

    @property
    def rows_per_range(self) -> int:
        """About."""
        return (self.sends[-1] + self.reads[-1]) // max(1, len(self.offsets) - 1)


@dataclass(frozen=True, slots=True)
class Job:
    """One look at one piece: what `checkers.split.perform` does. `rows`: how much it is."""

    partition: int
    stage: str
    arguments: tuple[Any, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Failed:
    """What a job gives that could not be done, and why: a rotten page, for example."""

    reason: str


@dataclass(frozen=True, slots=True)
class Source:
    """A partition's rows, and the facts about it. Of `history` only what is no row may be looked at without need: its columns
    are read whole. `cell`: the tables of its cell; None = it has none."""

    history: PartitionHistory
    sends: Rows
    reads: Rows
    cell: Callable[[], CellHistory] | None = None

    @staticmethod
    def of(history: History, partition: int) -> "Source":
        """From the run's files."""
        files, one, place = history.files, history.partition_history(partition), history.cell_of(partition)
        return Source(
            one,
            PartitionRows(files["sends"], partition),
            PartitionRows(files["reads"], partition),
            None if place is None else partial(history.cell_history, place.cell, only=one),
        )

    @staticmethod
    def empty(table: str) -> Columns:
        """No row."""
        return TABLES[table].empty()


def cuts_of(history: History, partition: int, *, rows_max: int) -> Cuts | None:
    """Where to cut a partition that has more rows than `rows_max`; None = it has not.

    Ranges of equal length: offsets are dense, and readers read what is there.
    """
    files = [history.files[name] for name in ("sends", "reads")]
    lengths = [file.rows_of(partition) for file in files]
    if sum(lengths) <= rows_max:
        return None
    number = -(-sum(lengths) * PIECES_AT_LEAST // max(rows_max, PIECES_AT_LEAST))
    low, high = _offsets_of(files, partition)
    inner = [low + (high - low) * n // number for n in range(1, number)]
    sends, reads = (tuple(length * n // number for n in range(number + 1)) for length in lengths)
    return Cuts((0, *sorted({bound for bound in inner if bound > 0}), UNBOUNDED), sends, reads)


def _offsets_of(files: list[TableFile], partition: int) -> tuple[int, int]:
    """The least offset that is one, and behind the greatest, by the files' statistics."""
    bounds = [
        bound for file in files for group in file.row_groups.get(partition, ()) for bound in file.offsets_of(group)
    ]
    return max(0, min(bounds, default=0)), max(bounds, default=0) + 1


class PartitionRows:
    """The rows of a partition in a table's file, read row group by row group."""

    def __init__(self, file: TableFile, partition: int) -> None:
        self._file = file
        self._groups: list[tuple[int, int, int]] = []
        first = 0
        for group in file.row_groups.get(partition, ()):
            rows = int(file.metadata.row_group(group).num_rows)
            self._groups.append((group, first, first + rows))
            first += rows

    def by_offset(self, low: int, high: int) -> tuple[Columns, np.ndarray]:
        """As `Rows`."""
        chosen = []
        for group, first, _ in self._groups:
            least, greatest = self._file.offsets_of(group)
            if greatest < low or (least >= high and high != UNBOUNDED):
                continue
            offset = self._file.read(["log_offset"], [group])["log_offset"]
            inside = offset >= low
            if high != UNBOUNDED:
                inside &= offset < high
            chosen.append((group, first, np.flatnonzero(inside)))
        return self._chosen(chosen)

    def by_row(self, first: int, last: int) -> tuple[Columns, np.ndarray]:
        """As `Rows`."""
        chosen = [
            (group, begin, np.arange(max(first, begin) - begin, min(last, end) - begin))
            for group, begin, end in self._groups
            if begin < last and end > first
        ]
        return self._chosen(chosen)

    def take(self, rows: np.ndarray) -> Columns:
        """As `Rows`."""
        chosen = []
        for group, begin, end in self._groups:
            low, high = np.searchsorted(rows, [begin, end])
            if high > low:
                chosen.append((group, begin, rows[low:high] - begin))
        return self._chosen(chosen)[0]

    def _chosen(self, chosen: list[tuple[int, int, np.ndarray]]) -> tuple[Columns, np.ndarray]:
        numbers = np.concatenate([np.empty(0, dtype=np.int64), *(first + rows for _, first, rows in chosen)])
        return _ChosenColumns(self._file, [(group, rows) for group, _, rows in chosen]), numbers


class _ChosenColumns(Mapping[str, np.ndarray]):
    """Columns of chosen rows, each decoded when it is first asked for, a row group at a time."""

    def __init__(self, file: TableFile, chosen: list[tuple[int, np.ndarray]]) -> None:
        self._file, self._chosen = file, [(group, _stretch(rows)) for group, rows in chosen if len(rows)]
        self._length = sum(len(rows) for _, rows in chosen)
        self._held: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._held:
            if name not in self._file.table.column_names:
                raise KeyError(name)
            constant = self._file.constant(name, [group for group, _ in self._chosen])
            if constant is not None:
                self._held[name] = np.broadcast_to(constant, self._length)
            else:
                parts = [self._file.read([name], [group])[name][rows] for group, rows in self._chosen]
                self._held[name] = np.concatenate([self._file.table.empty()[name], *parts])
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.table.column_names)

    def __len__(self) -> int:
        return len(self._file.table.column_names)


def _stretch(rows: np.ndarray) -> np.ndarray | slice:
    """Rows that follow one another, as a slice: taking it copies nothing."""
    first, last = int(rows[0]), int(rows[-1]) + 1
    return slice(first, last) if last - first == len(rows) else rows
