"""A verifiable client as a child process: started, listened to, stopped. It dies with the process that started it.

Its standard output is the events; its standard error goes to the log of the client process that runs it.
"""

import ctypes
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.clock import SystemClock
from harness.verifiable_events import EventLines, Parse, parse_event
from workloads.client import NowNs

_CLOCK = SystemClock()
CHUNK_BYTES = 1 << 18
NS_PER_MS = 1_000_000
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def die_with_parent() -> None:
    """Called between fork and exec: killed when the thread that forked it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Tool:
    """One process. `since_ns`: everything that the last events tell of was printed after it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        now_ns: NowNs,
        wall_ns: NowNs = _CLOCK.wall_ns,
        parse: Parse = parse_event,
    ) -> None:
        """`parse`: what a line of its output says. The process has a session of its own: faults hit it with its client."""
        self._now_ns, self._wall_ns, self._lines = now_ns, wall_ns, EventLines(parse)
        self.started_ns = self.since_ns = self.read_ns = now_ns()
        self._ahead_ns = wall_ns() - self.read_ns
        """The wall clock, of the trial's, when the last events were read."""
        # The only thread here is ours, so running Python between fork and exec is safe.
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent,
            start_new_session=True,
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        os.set_blocking(self._output, False)
        self._open = True
        self.stopping = False

    @property
    def torn(self) -> str | None:
        """What of its output began as an event and cannot be read; None = nothing."""
        count = self._lines.torn
        return f"{count} lines of its output are torn, the first {self._lines.first_torn!r}" if count else None

    def events(self, *, wait_s: float) -> Iterator[dict[str, Any]]:
        """What it has said, once it has said something, or nothing after `wait_s`. `read_ns` is when it was read."""
        if not self._open:
            select.select([], [], [], wait_s)  # its output ended; the process may take a moment longer
            return
        readable, _, _ = select.select([self._output], [], [], wait_s)
        before_ns = self._now_ns()
        chunk = os.read(self._output, CHUNK_BYTES) if readable else b""
        if readable and not chunk:
            self._open = False
        self.read_ns = self._now_ns()
        self._ahead_ns = self._wall_ns() - self.read_ns
        yield from self._lines.feed(chunk)
        if not self._open:
            yield from self._lines.end()
        if len(chunk) < CHUNK_BYTES:  # the pipe was emptied: what comes next is printed after this moment
            self.since_ns = before_ns

    def moment(self, event: Mapping[str, Any]) -> tuple[int, int]:
        """(not before, not after): when one of the last events was made. By its own `timestamp`, whole milliseconds of this
        host's wall clock, as far as it agrees with what is certain: it was printed after `since_ns`, and read at `read_ns`.
        So a clock that is set meanwhile makes it wrong by no more than lies between these two."""
        told = event.get("timestamp")
        if not isinstance(told, int) or isinstance(told, bool):
            return self.since_ns, self.read_ns
        low = told * NS_PER_MS - self._ahead_ns
        return tuple(min(max(at, self.since_ns), self.read_ns) for at in (low, low + NS_PER_MS))  # type: ignore[return-value]

    def stop(self) -> None:
        """SIGTERM: both tools then flush and say `shutdown_complete`. Safe to call again, and on one that has ended."""
        self.stopping = True
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self._process.kill()
        self._process.wait()

    def ended(self) -> int | None:
        """Its exit code once it has ended and all it said was read; negative = the signal; None = not yet."""
        return None if self._open else self._process.poll()
