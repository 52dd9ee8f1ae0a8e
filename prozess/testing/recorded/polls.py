"""Records when an application polled its client for results: a result is known to the application only then, however long it
was ready.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prozess.harness.recording.asked import AskedStretch
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import OBSERVATIONS, ObservationKind
from prozess.testing.recorded.client import now_ns

SHORT_S = 0.05
"""A call that may take no longer is only counted, because an application may make one for each record. The thread that writes
heartbeats looks every now and then whether there were any."""


class AskedRows:
    """Writes rows of `observations` of the kinds ASKED and CALLED, a row for each stretch without a pause. It is safe to use
    from many threads."""

    def __init__(self, rows: Path, client: int) -> None:
        self._path, self._client = rows, client
        self._writer: RowWriter | None = None
        self._lock, self._closed = threading.Lock(), False
        self.short = self._seen = 0
        """How many short calls of the kind ASKED there were, at least: threads may count at the same time."""
        kinds = (ObservationKind.ASKED, ObservationKind.CALLED)
        self._stretches = {kind: AskedStretch(kind) for kind in kinds}
        self._under_way = dict.fromkeys(kinds, 0)
        """How many calls of each kind are under way."""

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
        with self._lock:
            self._under_way[kind] += 1
            within = self._under_way[kind] > 1
            if self._closed or (within and not may_last):
                return
            if self._writer is None:
                self._writer = RowWriter(self._path, OBSERVATIONS, self._client)
            self._stretches[kind].begin(self._writer, now_ns(), may_last=may_last, within=within)

    def end(self, kind: ObservationKind) -> None:
        """Notes that the call is over."""
        with self._lock:
            self._under_way[kind] -= 1
            if self._closed or self._under_way[kind] or self._writer is None or self._stretches[kind].row < 0:
                return
            self._stretches[kind].end(self._writer, now_ns())

    def close(self) -> None:
        """Writes the rows to their end. What is under way now lasts until the client ends."""
        self.look()
        with self._lock:
            self._closed = True
            if self._writer is not None:
                self._writer.close()
