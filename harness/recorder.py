"""What the run stage itself writes into the history: faults, steps, metadata, observations. Columns by name.

Clients on the hot path use `harness.rows.RowWriter` directly; this is for the small tables.
"""

import threading
from collections.abc import Iterable, Mapping
from types import TracebackType

import numpy as np

from harness.dictionaries import Dictionaries
from harness.rows import RowWriter
from harness.run_directory import RunDirectory
from harness.schema import MISSING, NONE, TABLES, Column

RECORDER_CLIENT = 1_000_000
"""Client id of the run stage's own rows: beyond every planned client. Ids from here up are no clients of the trial."""


class Recorder:
    """Writes rows of any table for one client id. Thread safe. Every row is safe from a SIGKILL once `write` returns.

    One Recorder per run directory and client id, ever: another process (a later heal) takes another id.
    """

    def __init__(self, run: RunDirectory, client: int = RECORDER_CLIENT) -> None:
        self._run, self.client = run, client
        self._dictionaries = Dictionaries(run.dictionaries)
        self._writers: dict[str, RowWriter] = {}
        self._lock = threading.Lock()
        self._closed = False

    def write(self, table: str, **columns: int) -> None:
        """Append a row. Columns that are not given are NONE, times MISSING.

        Raises StorageFull. An unknown table or column is our own mistake.
        """
        _check(table, columns.keys())
        with self._lock:
            self._writer(table).append(*(columns.get(c.name, _unset(c)) for c in TABLES[table].columns))

    def extend(self, table: str, columns: Mapping[str, np.ndarray]) -> None:
        """Append many rows: arrays of one length by column name. Columns that are not given are NONE, times MISSING."""
        _check(table, columns.keys())
        lengths = {len(values) for values in columns.values()}
        assert len(lengths) == 1, f"{table}: columns of lengths {sorted(lengths)}"
        (length,) = lengths
        whole = {
            c.name: columns[c.name] if c.name in columns else np.full(length, _unset(c)) for c in TABLES[table].columns
        }
        with self._lock:
            self._writer(table).extend(whole)

    def code(self, dictionary: str, text: str) -> int:
        """The dictionary code of `text`; a new text is in dictionaries.json before this returns."""
        return self._dictionaries.code(dictionary, text)

    def close(self) -> None:
        """Flush to the file system. Safe to call twice."""
        with self._lock:
            self._closed = True
            for writer in self._writers.values():
                writer.close()

    def _writer(self, table: str) -> RowWriter:
        assert not self._closed, f"{table} written after close"
        if table not in self._writers:
            self._writers[table] = RowWriter(self._run.rows, TABLES[table], self.client)
        return self._writers[table]

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _check(table: str, columns: Iterable[str]) -> None:
    unknown = set(columns) - {column.name for column in TABLES[table].columns}
    assert not unknown, f"{table} has no columns {sorted(unknown)}"


def _unset(column: Column) -> int:
    return MISSING if column.unit == "ns" else NONE
