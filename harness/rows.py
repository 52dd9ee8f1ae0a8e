"""Fixed-width rows in shared memory-mapped files: what clients write while a trial runs.

A file survives the SIGKILL of its writer and of the harness: the pages belong to the kernel. The last word of a row (`mark`)
is its index + 1 and is written last, so a torn or never written row is recognised and ignored. Space is allocated before it
is mapped, so a full disk is an error at a known place (`StorageFull`) instead of a SIGBUS.

A table of one client is a list of segments `<table>.<client>.<segment>.rows`, each twice the size of the one before up to a
limit. One writer per (table, client).
"""

import mmap
import os
import re
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from harness.errors import StorageFull
from harness.schema import TABLES, Table

FIRST_SEGMENT_ROWS = 1 << 12
LAST_SEGMENT_ROWS = 1 << 20
_NAME = re.compile(r"(?P<table>[a-z]+)\.(?P<client>\d+)\.(?P<segment>\d+)\.rows")


def segment_rows(segment: int) -> int:
    """How many rows segment number `segment` holds."""
    return min(FIRST_SEGMENT_ROWS << segment, LAST_SEGMENT_ROWS)


class RowWriter:
    """Appends rows of one table for one client. Not thread safe: one thread writes.

    `append` takes one value per column in the order of `table.columns`. A row may be completed in place with `rewrite`,
    from the same thread, for as long as the writer is open.
    """

    def __init__(self, directory: Path, table: Table, client: int) -> None:
        self.table, self.client, self.directory = table, client, directory
        self.count = 0
        self._struct = struct.Struct(table.row_format)
        assert self._struct.size == table.row_dtype.itemsize
        self._size = self._struct.size
        self._segments: list[mmap.mmap] = []
        self._views: list[np.ndarray] = []
        self._starts: list[int] = []
        self._end = 0
        self._grow()

    def append(self, *values: int) -> int:
        """Write the next row and return its index."""
        index = self.count
        if index == self._end:
            self._grow()
        self._struct.pack_into(self._segments[-1], (index - self._starts[-1]) * self._size, *values, index + 1)
        self.count = index + 1
        return index

    def rewrite(self, index: int, *values: int) -> None:
        """Replace row `index` (all columns)."""
        segment = self._segment_of(index)
        offset = (index - self._starts[segment]) * self._size
        # Copied over, not packed in place: pack_into clears the row first, and a SIGKILL in between would tear it.
        self._segments[segment][offset : offset + self._size] = self._struct.pack(*values, index + 1)

    def slot(self, index: int) -> tuple[mmap.mmap, int]:
        """The mapping and byte offset of row `index`, for callers that complete single columns with their own struct."""
        segment = self._segment_of(index)
        return self._segments[segment], (index - self._starts[segment]) * self._size

    def extend(self, columns: Mapping[str, np.ndarray]) -> None:
        """Append many rows at once; `columns` has every column, all of one length."""
        length = len(next(iter(columns.values())))
        done = 0
        while done < length:
            if self.count == self._end:
                self._grow()
            take = min(length - done, self._end - self.count)
            first = self.count - self._starts[-1]
            view = self._views[-1][first : first + take]
            for column in self.table.columns:
                view[column.name] = columns[column.name][done : done + take]
            view["mark"] = np.arange(self.count + 1, self.count + take + 1)
            self.count += take
            done += take

    def complete(self, indices: np.ndarray, columns: Mapping[str, np.ndarray | int]) -> None:
        """Set these columns of the rows `indices` (int[n], each once, in any order). Column by column in the order given: who
        follows the rows live sees the last one last."""
        if not len(indices):
            return
        assert int(indices.max()) < self.count, (int(indices.max()), self.count)
        if indices.min() >= self._starts[-1]:
            return _set(self._views[-1], indices - self._starts[-1], columns, slice(None))
        of = np.searchsorted(self._starts, indices, side="right") - 1
        for number in np.unique(of).tolist():
            chosen = np.flatnonzero(of == number)
            _set(self._views[number], indices[chosen] - self._starts[number], columns, chosen)

    def close(self) -> None:
        """Flush to the file system. The mappings go with the process."""
        for segment in self._segments:
            segment.flush()

    def _segment_of(self, index: int) -> int:
        assert 0 <= index < self.count, (index, self.count)
        segment = len(self._starts) - 1
        while self._starts[segment] > index:
            segment -= 1
        return segment

    def _grow(self) -> None:
        number = len(self._segments)
        rows = segment_rows(number)
        path = self.directory / f"{self.table.name}.{self.client}.{number}.rows"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(descriptor, 0, rows * self._size)
            mapping = mmap.mmap(descriptor, rows * self._size)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise StorageFull(
                f"{path}: cannot allocate {rows * self._size} bytes for the history ({error.strerror}). "
                "Free space there or give another --runs directory; what was recorded so far is kept."
            ) from error
        finally:
            os.close(descriptor)
        self._segments.append(mapping)
        self._views.append(np.frombuffer(mapping, dtype=self.table.row_dtype))
        self._starts.append(self._end)
        self._end += rows


def _set(rows: np.ndarray, at: np.ndarray, columns: Mapping[str, np.ndarray | int], chosen: np.ndarray | slice) -> None:
    for name, values in columns.items():
        rows[name][at] = values[chosen] if isinstance(values, np.ndarray) else values


class RowTail:
    """Follows the rows another process is writing: `view()` maps what is there now. Cheap to call again and again."""

    def __init__(self, directory: Path, table: Table, client: int) -> None:
        self.directory, self.table, self.client = directory, table, client
        self._maps: list[np.ndarray] = []
        self._next = self._path()

    def _path(self) -> Path:
        return self.directory / f"{self.table.name}.{self.client}.{len(self._maps)}.rows"

    def segments(self) -> list[np.ndarray]:
        """Every row slot of every segment so far, written or not; filter on `mark`. Views of live memory."""
        while True:
            try:
                size = self._next.stat().st_size
            except FileNotFoundError:
                return self._maps
            if size < segment_rows(len(self._maps)) * self.table.row_dtype.itemsize:
                return self._maps
            self._maps.append(np.asarray(np.memmap(self._next, dtype=self.table.row_dtype, mode="r")))
            self._next = self._path()

    def close(self) -> None:
        """Let go of the files, each of which holds a descriptor."""
        self._maps = []
        self._next = self._path()


def read_segments(directory: Path, table: Table, client: int) -> tuple[list[np.ndarray], int]:
    """The valid rows of one client segment by segment, in order, and how many torn rows were left out.

    Arrays of `table.row_dtype`, mapped from the files (copied only where a torn row had to go). A row is valid if its mark
    is its index + 1; the first never-written row ends the table. A torn row is one with a wrong mark before the last valid
    one, or a mark that is neither 0 nor right.
    """
    parts, torn, start, segment = [], 0, 0, 0
    while (path := directory / f"{table.name}.{client}.{segment}.rows").exists():
        whole = path.stat().st_size // table.row_dtype.itemsize
        rows: np.ndarray = (
            np.memmap(path, dtype=table.row_dtype, mode="r", shape=(whole,))
            if whole
            else np.empty(0, dtype=table.row_dtype)
        )
        valid = rows["mark"] == np.arange(start + 1, start + whole + 1)
        last = int(np.flatnonzero(valid)[-1]) + 1 if valid.any() else 0
        torn += int((~valid[:last]).sum()) + int((rows["mark"][last:] != 0).sum())
        parts.append(rows[:last] if valid[:last].all() else rows[:last][valid[:last]])
        start += segment_rows(segment)
        segment += 1
    return parts, torn


def read_rows(directory: Path, table: Table, client: int) -> tuple[np.ndarray, int]:
    """`read_segments` in one array."""
    parts, torn = read_segments(directory, table, client)
    if not parts:
        return np.empty(0, dtype=table.row_dtype), 0
    return (np.concatenate(parts) if len(parts) > 1 else parts[0]), torn


def recorded(directory: Path) -> dict[str, list[int]]:
    """Which clients wrote which tables: table name → client ids, ascending. Foreign files are left out."""
    found: dict[str, set[int]] = {}
    for path in directory.glob("*.rows"):
        if (match := _NAME.fullmatch(path.name)) and match["table"] in TABLES:
            found.setdefault(match["table"], set()).add(int(match["client"]))
    return {table: sorted(clients) for table, clients in sorted(found.items())}
