"""`prozess run` in a process of its own, for whoever runs many trials: nothing of one stays in the next."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

RUN = (sys.executable, "-P", "-c", "from harness.cli import main; main()", "run")
"""`-P`: a folder `harness` where somebody happens to be is not ours."""
END_TIMEOUT_S = 120.0
"""From Ctrl-C to the end of a trial: it heals, keeps what was recorded, and reports."""


@dataclass(slots=True)
class Stop:
    """Was the whole asked to end? By Ctrl-C, which the trial that runs is told too."""

    asked: bool = False
    _child: "subprocess.Popen[bytes] | None" = None
    _told: bool = False

    def ask(self, _number: int, _frame: FrameType | None) -> None:
        """A handler of signals."""
        self.asked = True
        if self._child is not None:
            self._told = True
            self._child.send_signal(signal.SIGINT)

    def tell(self, child: "subprocess.Popen[bytes] | None") -> None:
        """The trial that runs now; None: it is over. It is told at once if it was asked for while the trial was started."""
        self._child = child
        if child is not None and self.asked and not self._told:
            self._told = True
            child.send_signal(signal.SIGINT)


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


def run_one(words: Sequence[str], runs: Path, log: Path, *, timeout_s: float, stop: Stop) -> tuple[int, Path | None]:
    """Run the command, which makes a run directory in `runs`, and what it says into `log`: (its exit code, the directory)."""
    before = _directories(runs)
    with log.open("wb") as output:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C comes to it through us, once
        )
        stop.tell(child)
        code = await_end(child, timeout_s)
        stop.tell(None)
    return code, next(iter(sorted(_directories(runs) - before)), None)


def verdict_of(run: Path) -> Mapping[str, Any]:
    """Its verdict.json; empty where there is none that can be read."""
    try:
        found = json.loads((run / "verdict.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _directories(runs: Path) -> set[Path]:
    return {path for path in runs.iterdir() if path.is_dir()}
