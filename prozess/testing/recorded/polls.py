"""Records when an application polled its client for results: a result is known to the application only then, however long it
was ready.
"""

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prozess.harness.clock import NS_PER_S
from prozess.harness.columns import row_dtype
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import NONE, OBSERVATIONS, Isolation, ObservationKind
from prozess.testing.recorded.client import now_ns

PAUSE_NS = NS_PER_S
"""Two calls within this time belong to one stretch."""
SHORT_S = 0.05
"""A call that may take no longer is only counted, because an application may make one for each record. The thread that writes
heartbeats looks every now and then whether there were any."""
_FIELDS = row_dtype(OBSERVATIONS).fields
assert _FIELDS is not None
_VALUE, _VALUE_AT = struct.Struct("@q"), _FIELDS["value"][1]


class AskedRows:
    """Writes rows of `observations` of the kinds ASKED and CALLED, a row for each stretch without a pause. It is safe to use
    from many threads."""

    def __init__(self, rows: Path, client: int) -> None:
        self._path, self._client = rows, client
        self._writer: RowWriter | None = None
        self._lock, self._closed = threading.Lock(), False
        self.short = self._seen = 0
        """How many short calls of the kind ASKED there were, at least: threads may count at the same time."""
        self._stretches = {kind: _AskedTime() for kind in (ObservationKind.ASKED, ObservationKind.CALLED)}

    def look(self) -> None:
        """Notes that there were short calls, if there were some since the last look."""
        if self.short != self._seen:
            self._seen = self.short
            self.begin(ObservationKind.ASKED)
            self.end(ObservationKind.ASKED)

    @contextmanager
    def asking(self, kind: ObservationKind, *, may_last: bool = False) -> Iterator[None]:
        """Guards a call in which the client says what happened. `may_last`: it may be under way when the client ends, and
        what is written says so."""
        self.begin(kind, may_last=may_last)
        try:
            yield
        finally:
            self.end(kind)

    def begin(self, kind: ObservationKind, *, may_last: bool = False) -> None:
        """Notes that such a call begins. `end` must follow."""
        stretch = self._stretches[kind]
        with self._lock:
            stretch.depth += 1
            if self._closed or (stretch.depth > 1 and not may_last):
                return
            begun_ns = now_ns()
            if stretch.row < 0 or (stretch.depth == 1 and begun_ns - stretch.until_ns > PAUSE_NS):
                stretch.row, stretch.begun_ns = self._append(kind, begun_ns), begun_ns
                stretch.until_ns = begun_ns
            if may_last:
                self._set(stretch, NONE)

    def end(self, kind: ObservationKind) -> None:
        """Notes that the call is over."""
        stretch = self._stretches[kind]
        with self._lock:
            stretch.depth -= 1
            if self._closed or stretch.depth or stretch.row < 0:
                return
            stretch.until_ns = now_ns()
            self._set(stretch, stretch.until_ns - stretch.begun_ns)

    def close(self) -> None:
        """Writes the rows to their end. What is under way now lasts until the client ends."""
        self.look()
        with self._lock:
            self._closed = True
            if self._writer is not None:
                self._writer.close()

    def _append(self, kind: ObservationKind, time_ns: int) -> int:
        if self._writer is None:
            self._writer = RowWriter(self._path, OBSERVATIONS, self._client)
        values = {"time_ns": time_ns, "value": 0, "kind": kind, "isolation": Isolation.NOT_A_READER}
        return self._writer.append(*(int(values.get(column.name, NONE)) for column in OBSERVATIONS.columns))

    def _set(self, stretch: "_AskedTime", value: int) -> None:
        assert self._writer is not None
        row, start = self._writer.slot(stretch.row)
        _VALUE.pack_into(row, start + _VALUE_AT, value)


class _AskedTime:
    """A stretch in which an application asked again and again."""

    def __init__(self) -> None:
        self.row, self.depth = -1, 0
        self.begun_ns = self.until_ns = 0
