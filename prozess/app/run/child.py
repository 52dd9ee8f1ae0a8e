"""The run stage's side of its connection with the outer process: it emits events, can be asked to stop, and ends with
an exit code."""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from prozess.harness.clock import NS_PER_S, Clock, SystemClock
from prozess.harness.errors import Interrupted, ProzessError
from prozess.harness.exit_codes import ExitCode
from prozess.harness.run_directory import RunDirectory


class EventLog:
    """Writes events to `events.jsonl` and to a pipe, one JSON object a line. Any thread may use it.

    Every event carries `event` and `at_s` (seconds since the stage began). If the outer process is gone, the pipe loses
    events; the file never does.
    """

    def __init__(self, path: Path, pipe: IO[str] | None, clock: Clock) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._pipe, self._clock = pipe, clock
        self._begun_ns = clock.monotonic_ns()
        self._lock = threading.Lock()

    def emit(self, event: str, **details: object) -> None:
        """Writes one event. `details`: JSON values."""
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
        """Closes the file of events, which takes no further one."""
        with self._lock:
            self._file.close()


class InterruptibleClock(SystemClock):
    """The machine's clock, whose `sleep` raises Interrupted once somebody asked the stage to stop, unless it is
    shielded."""

    def __init__(self) -> None:
        self.stop_asked = threading.Event()
        self.why = ""
        self._shielded = False

    def ask_to_stop(self, why: str) -> None:
        """Asks the stage to stop. Any thread or signal handler may call it."""
        self.why = self.why or why
        self.stop_asked.set()

    def sleep(self, seconds: float) -> None:
        self.check()
        if self._shielded:
            super().sleep(seconds)
        elif self.stop_asked.wait(seconds):
            self.check()

    def check(self) -> None:
        """Raises Interrupted if somebody asked to stop."""
        if self.stop_asked.is_set() and not self._shielded:
            raise Interrupted(f"the run was stopped: {self.why}")

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """A context for work that must be finished even after Ctrl-C, such as healing."""
        before, self._shielded = self._shielded, True
        try:
            yield
        finally:
            self._shielded = before


def events_on_standard_output(run: RunDirectory, clock: Clock) -> EventLog:
    """Sends events to standard output, and redirects everything else that is printed to standard error from now on."""
    events = EventLog(run.events, os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8"), clock)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return events


def carry_out(run: RunDirectory, events: EventLog, work: Callable[[], None]) -> int:
    """Does the work while the run is marked as alive. Returns the exit code; an error for the user goes out as an
    event."""
    from prozess.nemesis.crash_recovery import hold_alive

    code = ExitCode.HELD
    with hold_alive(run):
        try:
            work()
        except ProzessError as error:
            code = error.exit_code
            events.emit("error", kind=type(error).__name__, text=str(error), exit_code=int(code))
    events.emit("end", exit_code=int(code))
    with suppress(OSError):
        events.close()
    return int(code)
