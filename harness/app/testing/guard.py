"""Starts an application for a test, tells how it ends, and lets nothing of it outlive the test.

    python -P -m prozess.harness.app.testing.guard OUTPUT ERRORS -- COMMAND…

The application leads a session and a process group of its own. Standard output says what becomes of it, in lines of JSON:
`{"pid": …}` or `{"error": …}`, and later `{"ended": status, "at_ns": …}`. A byte on standard input asks it to end (SIGTERM).
The end of standard input, which comes with the end of the test process whatever ended that, kills it, and all it started.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil

GONE_S = 10.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
"""prctl(2)."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def main(argv: list[str]) -> int:
    """Runs the application until it has ended or nobody wants it any more; returns the exit code."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # a handler, which a child does not inherit
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what leaves its session is still ours to end
    output, errors, dashes, *command = argv
    assert dashes == "--", argv
    try:
        with open(output, "ab") as out, open(errors, "ab") as error:  # noqa: PTH123
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=error,
                start_new_session=True,
                preexec_fn=_die_with_the_guard,  # safe: this process has one thread
            )
    except OSError as error:
        _say(error=f"{error.strerror}: {error.filename}")
        return 1
    _say(pid=process.pid)
    _attend(process)
    _kill_rest()
    return 0


def _attend(process: "subprocess.Popen[bytes]") -> None:
    ended = os.pidfd_open(process.pid)
    while True:
        readable, _, _ = select.select([0, ended], [], [])
        if ended in readable:
            _say(ended=process.wait(), at_ns=time.monotonic_ns())
            return
        if not os.read(0, 64):
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def _kill_rest() -> None:
    """Kills everything that the application started, and what those processes started meanwhile."""
    until = time.monotonic() + GONE_S
    while (left := psutil.Process().children(recursive=True)) and time.monotonic() < until:
        for child in left:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _die_with_the_guard() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _say(**told: str | int) -> None:
    with suppress(BrokenPipeError):
        os.write(1, json.dumps(told).encode() + b"\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
