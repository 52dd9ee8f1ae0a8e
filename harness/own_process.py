"""`prozess run` in a process of its own, for whoever runs many trials: nothing of one stays in the next."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

RUN = (sys.executable, "-c", "from harness.cli import main; main()", "run")
END_TIMEOUT_S = 120.0
"""From Ctrl-C to the end of a trial: it heals, keeps what was recorded, and reports."""


@dataclass(slots=True)
class Stop:
    """Was the whole asked to end? By Ctrl-C, which the trial that runs is told too."""

    asked: bool = False
    child: "subprocess.Popen[bytes] | None" = None

    def ask(self, _number: int, _frame: FrameType | None) -> None:
        """A handler of signals."""
        self.asked = True
        if self.child is not None:
            self.child.send_signal(signal.SIGINT)


@contextmanager
def listening() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM are noted, and told to the trial, while this is open."""
    stop = Stop()
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def await_end(child: "subprocess.Popen[bytes]", timeout_s: float) -> int:
    """Its exit code. A trial that takes too long is interrupted, then killed: its supervisor heals."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            return child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            child.send_signal(number)
            timeout_s = END_TIMEOUT_S
    return child.wait(timeout_s)
