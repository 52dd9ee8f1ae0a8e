"""What the run stage tells the outer process, one JSON object per line: kept in `events.jsonl` and sent up a pipe.

Lossy towards the pipe (the outer process may be gone), never towards the file.
"""

import json
import threading
from pathlib import Path
from typing import IO, Any

from harness.clock import NS_PER_S, Clock


class Events:
    """Thread-safe; every event carries `event` and `at_s` (seconds since the stage began)."""

    def __init__(self, path: Path, pipe: IO[str] | None, clock: Clock) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._pipe, self._clock = pipe, clock
        self._begun_ns = clock.monotonic_ns()
        self._lock = threading.Lock()

    def emit(self, event: str, **details: Any) -> None:  # noqa: ANN401 - JSON values
        """Write one event."""
        at_s = round((self._clock.monotonic_ns() - self._begun_ns) / NS_PER_S, 3)
        line = json.dumps({"event": event, "at_s": at_s, **details}, ensure_ascii=False) + "\n"
        with self._lock:
            self._file.write(line)
            self._file.flush()
            if self._pipe is None:
                return
            try:
                self._pipe.write(line)
                self._pipe.flush()
            except (BrokenPipeError, ValueError):
                self._pipe = None  # The outer process is gone; the stage notices by its control pipe.

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()
