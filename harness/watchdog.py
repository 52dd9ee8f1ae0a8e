"""Ends a process that hangs where no Python code can end it.

A call into C that keeps the interpreter's lock stops every thread of the process, and with it every timeout. Therefore a
second, tiny process waits for the end of such a call:

    python harness/watchdog.py PID LIMIT_SECONDS WHAT

It reads a pipe that the other process closes when the call has returned. If that takes too long, it prints a message, and
ends the process by SIGABRT (pytest's faulthandler writes where every thread was), and by SIGKILL if that is not enough.
It uses the standard library alone, and nothing of ours, so it starts within some 20 ms.
"""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

ABORT_GRACE_S = 5.0
END_LIMIT_S = 10.0
_words_fd: int | None = None


def say_to(descriptor: int | None) -> None:
    """Sets where the watchdog prints its last words. None: standard error, which pytest takes away while a test runs."""
    global _words_fd
    _words_fd = descriptor


@contextmanager
def watchdog(what: str, *, limit_s: float) -> Iterator[None]:
    """Ends this process if the block takes longer than `limit_s`. `what` says what the process does here, as the subject of a
    sentence."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(limit_s), what],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=_words_fd,
        start_new_session=True,
    )
    try:
        yield
    finally:
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _guard(pid: int, limit_s: float, what: str) -> int:
    """Watches the process `pid`. Exit status: 0 if the call returned or the process ended by itself, 1 if it was ended."""
    try:
        process = os.pidfd_open(pid)
    except OSError:  # gone already, or a kernel that has none (before 5.3)
        return 0
    if os.getppid() != pid or _readable([sys.stdin.fileno(), process], limit_s):
        return 0
    text = (
        f"\nprozess: {what} has not returned for {limit_s:g} s, and keeps the interpreter's lock: no time-out of the "
        f"process {pid} can fire. It is ended now.\n"
    )
    with suppress(OSError):
        os.write(2, text.encode(errors="replace"))
    for number in (signal.SIGABRT, signal.SIGKILL):
        with suppress(OSError):
            signal.pidfd_send_signal(process, number)
        if _readable([process], ABORT_GRACE_S):
            break
    return 1


def _readable(descriptors: list[int], timeout_s: float) -> bool:
    return bool(select.select(descriptors, [], [], timeout_s)[0])


if __name__ == "__main__":
    sys.exit(_guard(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]))
