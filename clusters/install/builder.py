"""Runs a command that makes something in a directory, and leaves neither when whoever asked for it is gone.

    python clusters/install/builder.py DIRECTORY COMMAND…

Its standard input is a pipe from whoever asked. When that ends before the command does, the command and everything it
started are killed, and the directory is removed. Standard library only, and nothing of ours.
"""

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
END_LIMIT_S = 10.0


def build(
    command: Sequence[str], directory: Path, *, timeout_s: float, environment: Mapping[str, str]
) -> tuple[int, str]:
    """Runs the command, and returns its exit code and what it printed. subprocess.TimeoutExpired after `timeout_s`.

    However this ends, and even if this process is killed, the command does not go on. If this process is killed, the
    directory goes, too."""
    found = directory / "output"
    with found.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(directory), *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,  # a signal to our group is ours to obey
        )
    assert process.stdin is not None
    try:
        code = process.wait(timeout_s)
        return code, found.read_text(encoding="utf-8", errors="replace")
    finally:
        process.stdin.close()
        process.wait(END_LIMIT_S)


def _run(directory: str, command: Sequence[str]) -> int:
    libc = ctypes.CDLL(None)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # if this is killed, too
    )
    ended = os.pidfd_open(child.pid)
    ready, _, _ = select.select([ended, sys.stdin.fileno()], [], [])
    gone = ended not in ready
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    code = child.wait()
    if gone:
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if gone else code


if __name__ == "__main__":
    sys.exit(_run(sys.argv[1], sys.argv[2:]))
