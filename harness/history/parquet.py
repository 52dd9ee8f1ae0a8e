"""One table of a history as a Parquet file, of which single columns and row groups can be read and written.

The footer stays parsed. Data pages carry checksums, so that a rotten one is `HistoryUnreadable`, never a wrong number.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from prozess.harness.columns import empty_rows, stretch
from prozess.harness.errors import HistoryUnreadable, StorageFull
from prozess.harness.history.joining import FileToJoin, join_files
from prozess.harness.history.row_groups import NotClustered, RowRange, Run, row_ranges_of, runs_of, shared_metadata
from prozess.harness.run_directory import RunDirectory, read_object
from prozess.harness.schema import FORMAT_VERSION, MISSING, NONE, TABLES, Table

READ_WHOLE_ROWS = 1 << 16
"""Up to this many rows, one call for all columns costs less than a call for each."""
READ_TOGETHER_ROWS = 1 << 20
"""Up to this many rows, one call for columns of which every check needs all costs a third less than a call for each."""
_TOGETHER: Mapping[str, Sequence[str]] = {
    "sends": ("client", "sequence", "log_offset", "invoked_ns", "completed_ns"),
    "reads": ("log_offset", "sender", "sequence", "read_ns"),
}
"""These columns, by table."""
ROW_GROUPS_MANY, RANGES_FEW, WHOLE_ROWS_MAX = 32, 4, 1 << 20
"""A table with many row groups and no more rows than this (100 MB) is decoded at once, when more than a few
ranges of it were asked for."""
SHARED_HELD = 8
"""At most this many row groups that several partitions share stay decoded: about a megabyte each."""
UNBOUNDED = np.iinfo(np.int64).max
"""A bound for ranges of offsets that is greater than every offset."""
_KEY = "prozess."
_DECODING = threading.Lock()
"""Held while rows are decoded that are kept. For the module, because files are pickled."""


def table_path(run: RunDirectory, table: str) -> Path:
    """Returns the path of a table's Parquet file."""
    return run.history / f"{table}.parquet"


def parquet_schema(table: Table) -> pa.Schema:
    """Returns the names and types of a table's Parquet form: int32 and int64, without nulls."""
    kinds = {"i4": pa.int32(), "i8": pa.int64()}
    fields = [("client", pa.int32()), *((c.name, kinds[c.kind]) for c in table.columns)]
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])


def key_value_metadata(table: str, *, rows: int, torn_rows: int, start_monotonic_ns: int) -> dict[str, str]:
    """Returns what the footer of a table's file says about it."""
    facts = {
        "format_version": FORMAT_VERSION,
        "table": table,
        "rows": rows,
        "torn_rows": torn_rows,
        "start_monotonic_ns": start_monotonic_ns,
    }
    return {_KEY + name: str(value) for name, value in facts.items()}


class TableFile:
    """The file of one table, with its footer parsed. Thread safe."""

    def __init__(self, run: RunDirectory, table: Table) -> None:
        """HistoryUnreadable if the file is missing, torn, of another version, or not this table."""
        self.table = table
        self._filesystem = None if run.tables is None else run.tables.filesystem
        self._file = str(table_path(run, table.name)) if run.tables is None else run.tables.path(table.name)
        self._folder, self._rows = run.history, run.rows if run.tables is None else None
        self.address = self._file if run.tables is None else f"{run.tables.address}/{table.name}.parquet"
        """Where the file is, for people."""
        self._whole: Mapping[str, np.ndarray] | None = None
        self._shared: dict[int, Mapping[str, np.ndarray]] = {}
        self._asked = 0
        self._statistics: dict[str, dict[int, int | None]] = {}
        self._readers = threading.local()
        self.read_bytes: int | None = None
        """How many bytes were read from the file, as they are stored. None: nobody counts them."""
        lost = next((lost for lost in run.lost if lost.table == table.name), None)
        self._lost = frozenset() if lost is None else lost.partitions
        """The partitions of which rows are damaged: it is as if there were none."""
        if lost is not None and lost.whole:
            self.metadata, self.rows = _without_rows(table), 0
            return
        try:
            self.metadata = pq.read_metadata(self._file, filesystem=self._filesystem)
        except FileNotFoundError as error:
            if not of_an_earlier_version(run, table):
                raise self._unreadable("is missing") from error
            self.metadata, self.rows = _without_rows(table), 0
            return
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(f"is torn or no Parquet ({_first_line(error)})") from error
        self.rows = int(self.metadata.num_rows)
        version = self._fact("format_version")
        if version != str(FORMAT_VERSION):
            raise self._unreadable(f"has format version {version}; this prozess reads {FORMAT_VERSION}")
        if self._fact("table") != table.name:
            raise self._unreadable(f"holds table {self._fact('table')!r}")
        if not self.metadata.schema.to_arrow_schema().equals(parquet_schema(table)):
            raise self._unreadable(f"does not have the columns {', '.join(table.column_names)}")
        if self._fact("rows") != str(self.rows):
            raise self._unreadable(f"has {self.rows} rows instead of {self._fact('rows')}")
        if self._lost:
            self.rows = sum(map(self.length_of, self.intact))

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the rows: whoever is sent the file reads them there."""
        return {name: value for name, value in self.__dict__.items() if name != "_readers"} | {
            "_whole": None,
            "_shared": {},
            "_asked": 0,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Opens nothing: each thread has readers of its own."""
        self.__dict__.update(state, _readers=threading.local())

    @property
    def torn_rows(self) -> int:
        """Returns how many rows were left out because their writer died while it wrote them."""
        return int(self._fact("torn_rows"))

    @property
    def start_monotonic_ns(self) -> int:
        """Returns what was subtracted from CLOCK_MONOTONIC."""
        return int(self._fact("start_monotonic_ns"))

    @cached_property
    def row_ranges(self) -> dict[int, tuple[int, ...]]:
        """Returns the ranges of rows of each partition of a partitioned table, by the footer. A range of rows is known by
        its number, in the order of the rows: it is a row group, or a partition's rows in one that is shared."""
        found: dict[int, list[int]] = {}
        for number, row_range in enumerate(self._row_ranges):
            if row_range.partition not in self._lost:
                found.setdefault(row_range.partition, []).append(number)
        return {partition: tuple(numbers) for partition, numbers in sorted(found.items())}

    @cached_property
    def _row_ranges(self) -> list[RowRange]:
        try:
            return row_ranges_of(self.metadata, self.table)
        except NotClustered as error:
            raise self._unreadable(f"is not clustered by partition ({error})") from error

    def rows_of(self, partition: int) -> int:
        """Returns how many rows a partition has."""
        return sum(map(self.length_of, self.row_ranges.get(partition, ())))

    def length_of(self, row_range: int) -> int:
        """Returns how many rows a range of rows has."""
        one = self._row_ranges[row_range]
        return one.last - one.first

    def row_group_of(self, row_range: int) -> int:
        """Returns the row group in which a range of rows is."""
        return self._row_ranges[row_range].group

    def bounds_of(self, row_range: int, column: str) -> tuple[int, int] | None:
        """Returns bounds of a column's values in a range of rows, by the statistics of its row group. None: there are
        none."""
        index = self.table.column_names.index(column)
        statistics = self.metadata.row_group(self.row_group_of(row_range)).column(index).statistics
        if statistics is None or not statistics.has_min_max:
            return None
        return int(statistics.min), int(statistics.max)

    def offsets_of(self, row_range: int) -> tuple[int, int]:
        """Returns bounds of `log_offset` in a range of rows, by the statistics. If there are none, they include every
        offset."""
        return self.bounds_of(row_range, "log_offset") or (NONE, int(np.iinfo(np.int64).max))

    def read(self, columns: Sequence[str], row_ranges: Sequence[int] | None = None) -> dict[str, np.ndarray]:
        """Reads columns of some ranges of rows (None = all) as read-only arrays. HistoryUnreadable for a damaged page.

        A column that has one value in each of their row groups, by the footer's statistics, is not decoded, and takes no
        memory if it is the same one in all of them.
        """
        chosen = self.intact if row_ranges is None else row_ranges
        if row_ranges is not None and (held := self._whole_if_small()) is not None:
            return {name: self._slice(held[name], chosen) for name in columns}
        return self._decoded(columns, chosen)

    def _whole_if_small(self) -> Mapping[str, np.ndarray] | None:
        """Returns the whole table, if it is small, has many row groups, and several of them have been asked for: a call
        for each would cost more than its rows. None: it is not so, or a page is damaged, which is stated of its own row
        group alone."""
        count = self.metadata.num_row_groups
        if self._lost or count < ROW_GROUPS_MANY or self.rows > min(WHOLE_ROWS_MAX, count * READ_WHOLE_ROWS):
            return None
        with _DECODING:
            self._asked += 1
            if self._whole is None and self._asked == RANGES_FEW:
                with contextlib.suppress(HistoryUnreadable):
                    self._whole = self._decoded(self.table.column_names, range(len(self._row_ranges)))
            return self._whole

    def _slice(self, values: np.ndarray, row_ranges: Sequence[int]) -> np.ndarray:
        return _joined(
            [values[self._starts[row_range] : self._starts[row_range + 1]] for row_range in row_ranges], values[:0]
        )

    @cached_property
    def intact(self) -> Sequence[int]:
        """The ranges of rows that are not damaged, in order."""
        if not self._lost:
            return range(len(self._row_ranges))
        return sorted(row_range for row_ranges in self.row_ranges.values() for row_range in row_ranges)

    @cached_property
    def _starts(self) -> list[int]:
        """Returns the first row of each range of rows, and the number of all rows."""
        return [0, *accumulate(row_range.last - row_range.first for row_range in self._row_ranges)]

    def _decoded(self, columns: Sequence[str], row_ranges: Sequence[int]) -> dict[str, np.ndarray]:
        if not row_ranges:
            return {name: empty_rows(self.table)[name] for name in columns}
        stretches = self._stretches(row_ranges)
        lengths = [last - first for _, first, last in stretches]
        if len(stretches) == 1 and lengths[0] < self._group_lengths[stretches[0][0]]:
            ((group, first, last),) = stretches
            held = self._of_shared(group)
            return {name: held[name][first:last] for name in columns}
        found = self._constants(columns, [group for group, _, _ in stretches], lengths)
        decoded = [name for name in columns if name not in found]
        whole = lengths == [self._group_lengths[group] for group, _, _ in stretches]
        groups = [group for group, _, _ in stretches] if whole else list(dict.fromkeys(g for g, _, _ in stretches))
        values = self._of_groups(decoded, groups) if decoded else {}
        if not whole:
            # The row groups are decoded one behind the other: each stretch is found from where its row group begins among
            # them.
            begins = dict(zip(groups, accumulate((self._group_lengths[g] for g in groups), initial=0), strict=False))
            chosen = [slice(begins[group] + first, begins[group] + last) for group, first, last in stretches]
            values = {n: _joined([column[rows] for rows in chosen], column[:0]) for n, column in values.items()}
        return {name: found[name] if name in found else values[name] for name in columns}

    def _stretches(self, row_ranges: Sequence[int]) -> list[tuple[int, int, int]]:
        """Returns which rows of which row groups these ranges of rows are. Ranges that follow one another in a row group
        are one stretch of rows."""
        found: list[tuple[int, int, int]] = []
        for number in row_ranges:
            row_range = self._row_ranges[number]
            if found and found[-1][0] == row_range.group and found[-1][2] == row_range.first:
                found[-1] = (row_range.group, found[-1][1], row_range.last)
            else:
                found.append((row_range.group, row_range.first, row_range.last))
        return found

    @cached_property
    def _group_lengths(self) -> list[int]:
        return [int(self.metadata.row_group(group).num_rows) for group in range(self.metadata.num_row_groups)]

    def _of_shared(self, group: int) -> Mapping[str, np.ndarray]:
        """Returns every column of a row group that partitions share. The last few are kept: whoever asks for one of these
        partitions mostly asks for the others, too."""
        held = self._shared.get(group)
        if held is None:
            with _DECODING:
                held = self._shared.get(group)
                if held is None:
                    held = self._of_groups(self.table.column_names, [group])
                    for other in list(self._shared)[: 1 - SHARED_HELD]:
                        del self._shared[other]
                    self._shared[group] = held
        return held

    def _of_groups(self, columns: Sequence[str], groups: Sequence[int]) -> dict[str, np.ndarray]:
        try:
            table = self._reader().read_row_groups(groups, columns=list(columns), use_threads=False)
        except (OSError, pa.ArrowException) as error:
            self._readers.mine = None
            raise self._unreadable(f"is torn ({_first_line(error)})") from error
        if self.read_bytes is not None:
            self.read_bytes += self._stored_bytes(columns, groups)
        return {name: to_numpy(table.column(name)) for name in columns}

    def _stored_bytes(self, columns: Sequence[str], groups: Sequence[int]) -> int:
        indices = [self.table.column_names.index(name) for name in columns]
        found = (self.metadata.row_group(group) for group in groups)
        return sum(int(group.column(index).total_compressed_size) for group in found for index in indices)

    def _reader(self) -> pq.ParquetFile:
        """Returns this thread's reader: readers are not safe to share. What is far away is read by a new one each time,
        because a reader keeps what it has fetched."""
        held: pq.ParquetFile | None = getattr(self._readers, "mine", None)
        if held is not None:
            return held
        made = pq.ParquetFile(
            self._file,
            metadata=self.metadata,
            memory_map=self._filesystem is None,
            pre_buffer=self._filesystem is not None,
            page_checksum_verification=True,
            filesystem=self._filesystem,
        )
        self._readers.mine = made if self._filesystem is None else None
        return made

    def constant(self, column: str, row_ranges: Sequence[int]) -> np.ndarray | None:
        """Returns the one value that a column has in the row groups of all of these ranges of rows, by the statistics.
        None: it has several values, or none."""
        groups = [self.row_group_of(row_range) for row_range in row_ranges]
        found = self._constants([column], groups, [self.length_of(row_range) for row_range in row_ranges]).get(column)
        return found[0] if found is not None and found.strides == (0,) else None

    def _constants(
        self, columns: Sequence[str], groups: Sequence[int], lengths: Sequence[int]
    ) -> dict[str, np.ndarray]:
        """Returns those of these columns that have one value in each of these row groups, as that of so many rows of each."""
        found = {}
        for name in columns if sum(lengths) else ():
            values = self._values(name, groups)
            if None not in values:
                found[name] = _repeated(np.array(values, dtype=self._dtypes[name]), lengths)
        return found

    @cached_property
    def _dtypes(self) -> dict[str, np.dtype[Any]]:
        return {name: values.dtype for name, values in empty_rows(self.table).items()}

    def _values(self, column: str, groups: Sequence[int]) -> list[int | None]:
        """Returns the one value that a column has in each of these row groups, by the statistics; None where it has several.
        It is asked again and again, and thousands of row groups take a while."""
        known = self._statistics.setdefault(column, {})
        for group in groups:
            if group not in known:
                index = self.table.column_names.index(column)
                statistics = self.metadata.row_group(group).column(index).statistics
                one = statistics is not None and statistics.has_min_max and statistics.min == statistics.max
                known[group] = statistics.min if one else None
        return [known[group] for group in groups]

    def _fact(self, name: str) -> str:
        held = self.metadata.metadata or {}
        return str(held.get((_KEY + name).encode(), b"none").decode())

    def _unreadable(self, what: str) -> HistoryUnreadable:
        again = "There are no rows to write it from: put back the file that was there, or make the history again"
        if self._rows is not None and any(self._rows.glob("*.rows")):
            again = f"Remove {self._folder} and check the run again: the tables are written again from the rows"
        return HistoryUnreadable(f"table {self.table.name}: {self.address} {what}. {again}.")


class PartitionColumns(Mapping[str, np.ndarray]):
    """The columns of one partition of a table, or of several partitions in sequence. Each is decoded when it is first
    asked for. For one thread."""

    def __init__(self, file: TableFile, *partitions: int) -> None:
        self._file = file
        self._row_ranges = [row_range for partition in partitions for row_range in file.row_ranges.get(partition, ())]
        self._length = sum(map(file.rows_of, partitions))
        self._held: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._held:
            if name not in self._file.table.column_names:
                raise KeyError(name)
            if not self._row_ranges:
                self._held = empty_rows(self._file.table)
            elif self._length <= READ_WHOLE_ROWS:
                self._held = self._file.read(self._file.table.column_names, self._row_ranges)
            else:
                together = _TOGETHER.get(self._file.table.name, ())
                if name not in together or self._length > READ_TOGETHER_ROWS:
                    together = (name,)
                self._held |= self._file.read([one for one in together if one not in self._held], self._row_ranges)
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.table.column_names)

    def __len__(self) -> int:
        return len(self._file.table.column_names)


class PartitionRows:
    """The rows of a partition in a table's file, read range by range."""

    def __init__(self, file: TableFile, partition: int) -> None:
        self._file = file
        self._row_ranges: list[tuple[int, int, int]] = []
        first = 0
        for row_range in file.row_ranges.get(partition, ()):
            rows = file.length_of(row_range)
            self._row_ranges.append((row_range, first, first + rows))
            first += rows

    def by_offset(
        self, low: int, high: int, without: np.ndarray | None = None
    ) -> tuple[Mapping[str, np.ndarray], np.ndarray]:
        """Returns the rows with low ≤ log_offset < high (or UNBOUNDED), and their numbers, ascending. `without`: but for the
        rows with these numbers, which ascend."""
        chosen = []
        for row_range, first, end in self._row_ranges:
            least, greatest = self._file.offsets_of(row_range)
            if greatest < low or (least >= high and high != UNBOUNDED):
                continue
            offset = self._file.read(["log_offset"], [row_range])["log_offset"]
            inside = offset >= low
            if high != UNBOUNDED:
                inside &= offset < high
            if without is not None:
                # Numbers of rows of the whole partition, less where this range begins: indices within it.
                out, behind = np.searchsorted(without, [first, end])
                inside[without[out:behind] - first] = False
            chosen.append((row_range, first, np.flatnonzero(inside)))
        return self._chosen(chosen)

    def by_row(self, first: int, last: int) -> tuple[Mapping[str, np.ndarray], np.ndarray]:
        """Returns the rows with first ≤ number < last, and their numbers."""
        chosen = [
            (row_range, begin, np.arange(max(first, begin) - begin, min(last, end) - begin))
            for row_range, begin, end in self._row_ranges
            if begin < last and end > first
        ]
        return self._chosen(chosen)

    def take(self, rows: np.ndarray) -> Mapping[str, np.ndarray]:
        """Returns the rows with these numbers, which ascend."""
        chosen = []
        for row_range, begin, end in self._row_ranges:
            low, high = np.searchsorted(rows, [begin, end])
            if high > low:
                chosen.append((row_range, begin, rows[low:high] - begin))
        return self._chosen(chosen)[0]

    def _chosen(self, chosen: list[tuple[int, int, np.ndarray]]) -> tuple[Mapping[str, np.ndarray], np.ndarray]:
        numbers = np.concatenate([np.empty(0, dtype=np.int64), *(first + rows for _, first, rows in chosen)])
        assert (numbers[1:] > numbers[:-1]).all(), "numbers of rows ascend"
        return _ChosenColumns(self._file, [(row_range, rows) for row_range, _, rows in chosen]), numbers


class _ChosenColumns(Mapping[str, np.ndarray]):
    """The columns of chosen rows. Each is decoded when it is first asked for, a range of rows at a time."""

    def __init__(self, file: TableFile, chosen: list[tuple[int, np.ndarray]]) -> None:
        self._file, self._chosen = file, [(row_range, stretch(rows)) for row_range, rows in chosen if len(rows)]
        self._length = sum(len(rows) for _, rows in chosen)
        self._held: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._held:
            if name not in self._file.table.column_names:
                raise KeyError(name)
            constant = self._file.constant(name, [row_range for row_range, _ in self._chosen])
            if constant is not None:
                self._held[name] = np.broadcast_to(constant, self._length)
            else:
                values = [self._file.read([name], [row_range])[name][rows] for row_range, rows in self._chosen]
                self._held[name] = np.concatenate([empty_rows(self._file.table)[name], *values])
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.table.column_names)

    def __len__(self) -> int:
        return len(self._file.table.column_names)


def of_an_earlier_version(run: RunDirectory, table: Table) -> bool:
    """Returns whether a version of prozess that knew no such table proved this history: its manifest names others, and not
    this one. Nothing is known of what is recorded there. A table that the manifest names and that is gone is damage."""
    if not run.manifest.is_file() or (run.tables is None and table_path(run, table.name).exists()):
        return False
    named, folder = read_object(run.manifest).get("files", {}), f"{run.history.name}/"
    return f"{folder}{table.name}.parquet" not in named and any(name.startswith(folder) for name in named)


def _without_rows(table: Table) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Returns the footer of a file of this table without rows."""
    return pq.read_metadata(file_without_rows(table))


def file_without_rows(table: Table) -> pa.BufferReader:
    """Returns a Parquet file of this table without rows, in memory."""
    written = pa.BufferOutputStream()
    with writer_to(written, table) as writer:
        writer.add_key_value_metadata(key_value_metadata(table.name, rows=0, torn_rows=0, start_monotonic_ns=0))
    return pa.BufferReader(written.getvalue())


def _joined(parts: Sequence[np.ndarray], nothing: np.ndarray) -> np.ndarray:
    """Returns arrays, one after the other, as one. One alone is not copied."""
    if len(parts) == 1:
        return parts[0]
    array = np.concatenate([nothing, *parts])
    array.setflags(write=False)
    return array


def _repeated(values: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
    array = np.repeat(values, lengths) if (values != values[0]).any() else np.broadcast_to(values[0], sum(lengths))
    array.setflags(write=False)
    return array


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


# Between numpy and Arrow without pandas. pyarrow's own conversions import pandas, which takes a fifth of a second in
# every process.


def to_numpy(column: pa.ChunkedArray) -> np.ndarray:
    """Returns a column of integers without nulls as a read-only array. A column of one chunk is not copied."""
    dtype = np.dtype(column.type.to_pandas_dtype())
    parts = [
        np.frombuffer(chunk.buffers()[1], dtype, count=len(chunk), offset=chunk.offset * dtype.itemsize)
        for chunk in column.chunks
        if len(chunk)
    ]
    assert column.null_count == 0, f"{column.null_count} nulls in a column of integers"
    array = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype), *parts])
    array.setflags(write=False)
    return array


def from_numpy(values: np.ndarray) -> pa.Array:
    """Returns an array of integers as an Arrow array."""
    held = np.ascontiguousarray(values)
    kinds = {"i4": pa.int32(), "i8": pa.int64()}
    return pa.Array.from_buffers(kinds[held.dtype.str[1:]], len(held), [None, pa.py_buffer(held)])


def from_strings(values: Sequence[str | None]) -> pa.Array:
    """Returns texts as an Arrow array; None becomes null."""
    encoded = [(value or "").encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    there = np.packbits(np.array([value is not None for value in values], dtype=bool), bitorder="little")
    assert len(ends) == len(values) + 1, "a text ends where the next begins"
    buffers = [pa.py_buffer(there), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


# Writing tables of a history as Parquet: each call writes columns as one row group, and the file appears in its place
# at once. This serves everyone who makes a history: from rows after a trial (`prozess.harness.history.convert`), from
# other programs' histories, or out of nothing (`prozess.exchange`).


ROW_GROUP_MAX = 1 << 20
"""The most rows of a row group. A larger partition has several, of which only some are read where it is checked in
pieces."""


def writer_to(sink: Path | pa.NativeFile, table: Table) -> pq.ParquetWriter:
    """Opens a file of a table, or of a part of it. Every file of a history is opened here, so all are written alike."""
    return pq.ParquetWriter(
        sink,
        parquet_schema(table),
        compression="zstd",
        compression_level=1,
        use_dictionary=["client", *(c.name for c in table.columns if c.kind == "i4")],
        column_encoding={c.name: "DELTA_BINARY_PACKED" for c in table.columns if c.kind == "i8"},
        write_statistics=True,
        write_page_checksum=True,
    )


def rows_into(writer: pq.ParquetWriter, table: Table, columns: Mapping[str, np.ndarray]) -> int:
    """Writes rows as one row group, or as several if they are very many, and returns how many there are. `columns` has every
    column of the Parquet form, `client` included, all of one length."""
    schema = parquet_schema(table)
    lengths = {len(columns[name]) for name in schema.names}
    assert len(lengths) == 1, f"{table.name}: columns of {sorted(lengths)} rows"
    arrays = pa.table([from_numpy(columns[name]) for name in schema.names], schema=schema)
    if arrays.num_rows:
        writer.write_table(arrays, row_group_size=min(arrays.num_rows, ROW_GROUP_MAX))
    return int(arrays.num_rows)


def join_into(run: RunDirectory, table: Table, files: Sequence[FileToJoin], *, start_ns: int, torn_rows: int) -> None:
    """Makes a table of files that `writer_to` opened, in their order: the same file, byte for byte, that a TableWriter would
    have written. StorageFull if there is no room."""
    assert table.partitioned, f"{table.name} is not clustered: it is written by a TableWriter"
    rows = sum(file.rows for file in files)
    empty = pa.BufferOutputStream()
    with writer_to(empty, table) as writer:
        facts = key_value_metadata(table.name, rows=rows, torn_rows=torn_rows, start_monotonic_ns=start_ns)
        writer.add_key_value_metadata(facts)
    path = table_path(run, table.name)
    making = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with _guarded_from_full_disk(path), making.open("wb") as sink:
            join_files(files, empty.getvalue().to_pybytes(), sink)
            sink.flush()
            os.fsync(sink.fileno())
        making.replace(path)
    finally:
        making.unlink(missing_ok=True)


@contextlib.contextmanager
def _guarded_from_full_disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StorageFull(
                f"{path}: no room left for the history. Free space there and try again; what was recorded is kept."
            ) from error
        raise


class TableWriter:
    """Writes one table of a history. It is a context manager: the file appears, whole, when the context ends without an
    error.

    A partitioned table is written partition by partition, ascending, each in one call of `write` or in several that follow
    one another. One call may have the rows of several partitions of one cell, which then share a row group
    (`prozess.harness.history.row_groups`). Others are written in any number of calls. StorageFull if there is no room.
    """

    def __init__(self, run: RunDirectory, table: Table, *, start_ns: int = 0, torn_rows: int = 0) -> None:
        self._table, self._start_ns, self._torn_rows = table, start_ns, torn_rows
        self._path = table_path(run, table.name)
        self._part = self._path.with_name(f"{self._path.name}.{os.getpid()}.part")
        self._row_groups = 0
        self._shared: dict[int, list[Run]] = {}
        self.rows = 0

    def __enter__(self) -> "TableWriter":
        with _guarded_from_full_disk(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._part.unlink(missing_ok=True)  # whatever it is: nothing is written through it
            self._writer = writer_to(self._part, self._table)
        return self

    def write(self, columns: Mapping[str, np.ndarray]) -> None:
        """Appends rows. `columns` has every column of the Parquet form, `client` included, all of one length. It does
        nothing for length 0."""
        with _guarded_from_full_disk(self._path):
            rows = rows_into(self._writer, self._table, columns)
        if self._table.partitioned and rows and columns["partition"][0] != columns["partition"][-1]:
            assert rows <= ROW_GROUP_MAX, "partitions that share a row group are small"
            self._shared[self._row_groups] = runs_of(columns["partition"])
        self.rows += rows
        self._row_groups += -(-rows // ROW_GROUP_MAX)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                with _guarded_from_full_disk(self._path):
                    self._finish()
            else:
                self._writer.close()
        finally:
            self._part.unlink(missing_ok=True)

    def _finish(self) -> None:
        self._writer.add_key_value_metadata(
            key_value_metadata(
                self._table.name, rows=self.rows, torn_rows=self._torn_rows, start_monotonic_ns=self._start_ns
            )
            | shared_metadata(self._shared)
        )
        self._writer.close()
        with self._part.open("rb") as file:
            os.fsync(file.fileno())
        self._part.replace(self._path)


def write_table(run: RunDirectory, name: str, columns: Mapping[str, np.ndarray | int], *, length: int) -> None:
    """Writes a whole table that is not partitioned, or has at most one partition. A column is an array of `length`, or
    one value for all rows. Columns that are not given are filled as `filled` does."""
    with TableWriter(run, TABLES[name]) as writer:
        writer.write(filled(TABLES[name], columns, length=length))


def filled(table: Table, columns: Mapping[str, np.ndarray | int], *, length: int) -> dict[str, np.ndarray]:
    """Returns every column of a table's Parquet form: those given (arrays, or one value for all rows), MISSING for other
    times, and NONE for the rest."""
    unknown = columns.keys() - set(table.column_names)
    assert not unknown, f"{table.name} has no {unknown}"
    kinds = {"client": "i4"} | {column.name: column.kind for column in table.columns}
    units = {"client": ""} | {column.name: column.unit for column in table.columns}
    found = {}
    for name, kind in kinds.items():
        values = np.asarray(columns.get(name, MISSING if units[name] == "ns" else NONE))
        if values.shape != (length,):  # one value for all
            values = np.full(length, values, dtype=kind)
        found[name] = np.ascontiguousarray(values, dtype=kind)
    return found


def ensure_every_table(run: RunDirectory) -> None:
    """Writes an empty table for each that is not there, because a history has all of them."""
    for name, table in TABLES.items():
        if not table_path(run, name).exists():
            with TableWriter(run, table) as writer:
                writer.write(empty_rows(table))
