"""One table of a history, as a Parquet file: what its footer says, and row groups of it, only the columns asked for.

The footer stays parsed. Data pages carry checksums, so that a rotten one is `HistoryUnreadable`, never a wrong number.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.arrow_arrays import to_numpy
from harness.errors import HistoryUnreadable
from harness.run_directory import RunDirectory
from harness.schema import FORMAT_VERSION, NONE, Table

READ_WHOLE_ROWS = 1 << 14
"""Up to this many rows one call for all columns is cheaper than one for each."""
_KEY = "prozess."


def table_path(run: RunDirectory, table: str) -> Path:
    """The Parquet file of a table."""
    return run.history / f"{table}.parquet"


def parquet_schema(table: Table) -> pa.Schema:
    """Names and types of a table's Parquet form: int32 and int64, nothing is null."""
    kinds = {"i4": pa.int32(), "i8": pa.int64()}
    fields = [("client", pa.int32()), *((c.name, kinds[c.kind]) for c in table.columns)]
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])


def key_value_metadata(table: str, *, rows: int, torn_rows: int, start_monotonic_ns: int) -> dict[str, str]:
    """What the footer of a table says about it."""
    facts = {
        "format_version": FORMAT_VERSION,
        "table": table,
        "rows": rows,
        "torn_rows": torn_rows,
        "start_monotonic_ns": start_monotonic_ns,
    }
    return {_KEY + name: str(value) for name, value in facts.items()}


class TableFile:
    """One table's file with its footer parsed. Thread safe."""

    def __init__(self, run: RunDirectory, table: Table) -> None:
        """HistoryUnreadable if the file is missing, torn, of another version, or not this table."""
        self.table, self.path = table, table_path(run, table.name)
        try:
            self.metadata: Any = pq.read_metadata(self.path)
        except FileNotFoundError as error:
            raise self._unreadable("is missing") from error
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

    @property
    def torn_rows(self) -> int:
        """Rows that were left out because their writer died while writing them."""
        return int(self._fact("torn_rows"))

    @property
    def start_monotonic_ns(self) -> int:
        """What was subtracted from CLOCK_MONOTONIC."""
        return int(self._fact("start_monotonic_ns"))

    @cached_property
    def row_groups(self) -> dict[int, tuple[int, ...]]:
        """Partition → its row groups, of a partitioned table; from the statistics of the footer."""
        column = self.table.column_names.index("partition")
        found: dict[int, list[int]] = {}
        for number in range(self.metadata.num_row_groups):
            group = self.metadata.row_group(number)
            if not group.num_rows:
                continue
            statistics = group.column(column).statistics
            if statistics is None or not statistics.has_min_max or statistics.min != statistics.max:
                raise self._unreadable(f"is not clustered by partition (row group {number})")
            found.setdefault(int(statistics.min), []).append(number)
        return {partition: tuple(groups) for partition, groups in sorted(found.items())}

    def rows_of(self, partition: int) -> int:
        """How many rows a partition has."""
        return sum(int(self.metadata.row_group(group).num_rows) for group in self.row_groups.get(partition, ()))

    def offsets_of(self, row_group: int) -> tuple[int, int]:
        """The least and the greatest `log_offset` of a row group; from the statistics, else any."""
        statistics = self.metadata.row_group(row_group).column(self.table.column_names.index("log_offset")).statistics
        if statistics is None or not statistics.has_min_max:
            return NONE, int(np.iinfo(np.int64).max)
        return int(statistics.min), int(statistics.max)

    def read(self, columns: Sequence[str], row_groups: Sequence[int] | None = None) -> dict[str, np.ndarray]:
        """Columns of some row groups (None = all) as read-only arrays. HistoryUnreadable for a rotten page.

        A column that has one value in each of them, by the footer's statistics, is not decoded, and takes no memory if it is
        the same one in all of them."""
        groups = list(range(self.metadata.num_row_groups) if row_groups is None else row_groups)
        found = self._constants(columns, groups)
        decoded = [name for name in columns if name not in found]
        try:
            # A reader per call: they are cheap with a parsed footer, and not safe to share between threads.
            if decoded:
                with pq.ParquetFile(
                    self.path, metadata=self.metadata, memory_map=True, page_checksum_verification=True
                ) as file:
                    table = file.read_row_groups(groups, columns=decoded, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(f"is torn ({_first_line(error)})") from error
        return {name: found[name] if name in found else to_numpy(table.column(name)) for name in columns}

    def constant(self, column: str, row_groups: Sequence[int]) -> np.ndarray | None:
        """The one value of a column in all of these row groups, by the statistics; None = there are several, or none."""
        found = self._constants([column], row_groups).get(column)
        return found[0] if found is not None and found.strides == (0,) else None

    def _constants(self, columns: Sequence[str], groups: Sequence[int]) -> dict[str, np.ndarray]:
        """Of those columns that have one value in each of these row groups."""
        parts = [self.metadata.row_group(group) for group in groups]
        lengths = [int(part.num_rows) for part in parts]
        found = {}
        for name in columns if sum(lengths) else ():
            values = []
            for part in parts:
                statistics = part.column(self.table.column_names.index(name)).statistics
                if statistics is None or not statistics.has_min_max or statistics.min != statistics.max:
                    break
                values.append(statistics.min)
            else:
                found[name] = _repeated(np.array(values, dtype=self.table.empty()[name].dtype), lengths)
        return found

    def _fact(self, name: str) -> str:
        held = self.metadata.metadata or {}
        return str(held.get((_KEY + name).encode(), b"none").decode())

    def _unreadable(self, what: str) -> HistoryUnreadable:
        return HistoryUnreadable(
            f"table {self.table.name}: {self.path} {what}. Delete it and check the run again to write it from the rows; "
            "where there are none, make the history again."
        )


class PartitionColumns(Mapping[str, np.ndarray]):
    """Columns of one partition of a table, or of several one behind the other, each decoded when it is first asked for. For
    one thread."""

    def __init__(self, file: TableFile, *partitions: int) -> None:
        self._file = file
        self._groups = [group for partition in partitions for group in file.row_groups.get(partition, ())]
        self._length = sum(map(file.rows_of, partitions))
        self._held: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._held:
            if name not in self._file.table.column_names:
                raise KeyError(name)
            if not self._groups:
                self._held = self._file.table.empty()
            elif self._length <= READ_WHOLE_ROWS:
                self._held = self._file.read(self._file.table.column_names, self._groups)
            else:
                self._held |= self._file.read([name], self._groups)
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.table.column_names)

    def __len__(self) -> int:
        return len(self._file.table.column_names)


def _repeated(values: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
    array = np.repeat(values, lengths) if (values != values[0]).any() else np.broadcast_to(values[0], sum(lengths))
    array.setflags(write=False)
    return array


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
