"""What a stage is that runs as a child of the outer process: it tells events on its standard output, can be asked to stop,
and ends with an exit code.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from harness import catalogue
from harness.clock import Clock, SystemClock
from harness.errors import ExitCode, Interrupted, ProzessError
from harness.events import Events
from harness.run_directory import RunDirectory


class InterruptibleClock(SystemClock):
    """The machine's clock; `sleep` raises Interrupted once somebody asked the stage to stop, unless shielded."""

    def __init__(self) -> None:
        self.stop_asked = threading.Event()
        self.why = ""
        self._shielded = False

    def ask_to_stop(self, why: str) -> None:
        """From any thread or signal handler."""
        self.why = self.why or why
        self.stop_asked.set()

    def sleep(self, seconds: float) -> None:
        self.check()
        if self._shielded:
            super().sleep(seconds)
        elif self.stop_asked.wait(seconds):
            self.check()

    def check(self) -> None:
        """Raise if somebody asked to stop."""
        if self.stop_asked.is_set() and not self._shielded:
            raise Interrupted(f"the run was stopped: {self.why}")

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """What must be finished even so: healing."""
        before, self._shielded = self._shielded, True
        try:
            yield
        finally:
            self._shielded = before


def events_on_standard_output(run: RunDirectory, clock: Clock) -> Events:
    """Events go where standard output went; whatever else prints must not disturb them, and goes to standard error."""
    events = Events(run.events, os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8"), clock)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return events


def carry_out(run: RunDirectory, events: Events, work: Callable[[], None]) -> int:
    """Do the work while the run is held alive. Returns the exit code; an error for the user goes out as an `error` event."""
    code = ExitCode.HELD
    with catalogue.service("hold-alive")(run):
        try:
            work()
        except ProzessError as error:
            code = error.exit_code
            events.emit("error", kind=type(error).__name__, text=str(error), exit_code=int(code))
    events.emit("end", exit_code=int(code))
    with suppress(OSError):
        events.close()
    return int(code)
