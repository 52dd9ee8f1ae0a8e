"""Writing tables of a history as Parquet: columns in, one row group per call, atomically put in place. For whoever makes a
history: from rows after a trial (`harness.history`), from other programs' histories, or out of nothing (`harness.histories`).
"""

import errno
import os
from collections.abc import Callable, Mapping
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import StorageFull
from harness.run_directory import RunDirectory
from harness.schema import MISSING, NONE, TABLES, Table
from harness.table_file import key_value_metadata, parquet_schema, table_path

ROW_GROUP_MAX = 1 << 20
"""Rows. A larger partition has several row groups, of which only some are read where it is checked in pieces."""


class TableWriter:
    """One table of a history, as a context manager: the file appears, whole, when it is left without an error.

    A partitioned table is written partition by partition, ascending, each in one call of `write` or in several that follow
    one another; others in any number of calls. StorageFull if there is no room.
    """

    def __init__(self, run: RunDirectory, table: Table, *, start_ns: int = 0, torn_rows: int = 0) -> None:
        self._table, self._start_ns, self._torn_rows = table, start_ns, torn_rows
        self._path = table_path(run, table.name)
        self._part = self._path.with_name(f"{self._path.name}.{os.getpid()}.part")
        self._schema = parquet_schema(table)
        self.rows = 0

    def __enter__(self) -> "TableWriter":
        self._guarded_from_full_disk(self._open)
        return self

    def write(self, columns: Mapping[str, np.ndarray]) -> None:
        """Append rows: every column of the Parquet form, `client` included, of one length. Nothing for length 0."""
        arrays = pa.table([pa.array(columns[name]) for name in self._schema.names], schema=self._schema)
        if arrays.num_rows:
            self.rows += arrays.num_rows
            size = min(arrays.num_rows, ROW_GROUP_MAX)
            self._guarded_from_full_disk(lambda: self._writer.write_table(arrays, row_group_size=size))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._guarded_from_full_disk(self._finish)
            else:
                self._writer.close()
        finally:
            self._part.unlink(missing_ok=True)

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(
            self._part,
            self._schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=["client", *(c.name for c in self._table.columns if c.kind == "i4")],
            column_encoding={c.name: "DELTA_BINARY_PACKED" for c in self._table.columns if c.kind == "i8"},
            write_statistics=True,
            write_page_checksum=True,
        )

    def _finish(self) -> None:
        self._writer.add_key_value_metadata(
            key_value_metadata(
                self._table.name, rows=self.rows, torn_rows=self._torn_rows, start_monotonic_ns=self._start_ns
            )
        )
        self._writer.close()
        with self._part.open("rb") as file:
            os.fsync(file.fileno())
        self._part.replace(self._path)

    def _guarded_from_full_disk(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise StorageFull(
                    f"{self._path}: no room left for the history. Free space there and try again; what was recorded is kept."
                ) from error
            raise


def write_table(run: RunDirectory, name: str, columns: Mapping[str, np.ndarray | int], *, length: int) -> None:
    """A whole table that is not partitioned, or has one partition at most: arrays of `length`, or one value for all rows;
    columns that are not given are filled as `filled` does."""
    with TableWriter(run, TABLES[name]) as writer:
        writer.write(filled(TABLES[name], columns, length=length))


def filled(table: Table, columns: Mapping[str, np.ndarray | int], *, length: int) -> dict[str, np.ndarray]:
    """Every column of a table's Parquet form: those given (arrays, or one value for all), times MISSING, the rest NONE."""
    unknown = columns.keys() - set(table.column_names)
    assert not unknown, f"{table.name} has no {unknown}"
    kinds = {"client": "i4"} | {column.name: column.kind for column in table.columns}
    units = {"client": ""} | {column.name: column.unit for column in table.columns}
    return {
        name: np.ascontiguousarray(
            np.broadcast_to(
                np.asarray(columns.get(name, MISSING if units[name] == "ns" else NONE)).astype(kind, copy=False), length
            )
        )
        for name, kind in kinds.items()
    }


def ensure_every_table(run: RunDirectory) -> None:
    """Write an empty table for each that is not there: a history has all of them."""
    for name, table in TABLES.items():
        if not table_path(run, name).exists():
            with TableWriter(run, table) as writer:
                writer.write(table.empty())
