"""A signal at any moment of a command's start ends it with a code of docs/exit-codes.md, and without a traceback."""

import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from prozess.harness.clock import SystemClock, wait_until
from tests.support.paths import ROOT

CLOCK = SystemClock()
MOMENTS = 6
START_S = 0.8
"""About as long as `prozess plan` takes to load and to plan."""
DONE = 0
"""It was ready before the signal came."""


def answers(pid, number):
    """Whether the process has a handler for the signal: Python itself has begun to run prozess."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (number - 1) & 1)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 2), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_in_the_first_second_ends_the_command_in_order(number, code, tmp_path):
    chance = random.Random(number)
    waits_s = [0.0, *(chance.uniform(0, START_S) for _ in range(MOMENTS))]
    for wait_s in waits_s:
        command = subprocess.Popen(
            [sys.executable, "-P", "-m", "prozess", "plan", "smoke"],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        # SIGTERM: Python has a handler of its own for SIGINT from its first moment on.
        wait_until(
            partial(answers, command.pid, signal.SIGTERM),
            awaited="its handler",
            timeout_s=60,
            clock=CLOCK,
            interval_s=0.005,
        )
        CLOCK.sleep(wait_s)
        command.send_signal(number)
        _, errors = command.communicate(timeout=60)
        assert command.returncode in (code, DONE), (wait_s, command.returncode, errors)
        assert "Traceback" not in errors, (wait_s, errors)
        if command.returncode == code:
            assert errors.strip().endswith("Interrupted."), (wait_s, errors)
