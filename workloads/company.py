"""Several clients in one process, which takes their steps in turn. For plain producers of a trial that has very many.

A process of its own costs a client that seldom sends more than its sending does: it wakes for nothing fifty times a second,
with its caches cold. What is recorded of a client is the same here: it has its rows, its heartbeats, its log and its control
pipe, and ends with an exit code of its own. But a process that dies takes all of them; and a delivery report may be noticed
`TICK_S` later than it came, which `completed_ns`, an upper bound, allows.
"""

import select
import socket
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol, TextIO

from workloads.client import Client, ClientExit, Control, Launch, Life, NowNs, Orphaned, Work, launched

TICK_S = 0.01
"""A client that has nothing to do is looked at this often."""
NS_PER_S = 1_000_000_000


class SteppedWork(Work, Protocol):
    """Work that can be done piece by piece (`workloads.producer.LogProducer`)."""

    def steps(self) -> Iterator[float]:
        """Each does what is due, and says for how long nothing more is, in seconds."""
        ...

    def poll(self, wait_s: float) -> None:
        """Serve the Kafka client; called before each step."""
        ...

    def let_go(self) -> None:
        """The client has ended, and its process has not: nothing more is to be sent."""
        ...


class Companion:
    """One of the clients: the next of its steps, and when that is due."""

    def __init__(self, connection: socket.socket, log: TextIO, now_ns: NowNs) -> None:
        self.connection = connection
        self._control, self._log, self._now_ns = Control(connection), log, now_ns
        self._life: Life | None = None
        self._work: SteppedWork | None = None
        self._steps: Iterator[float] = iter(())
        self.due_ns = 0
        self.ended = False

    def begin(self, roles: Mapping[str, Callable[[Client], SteppedWork]]) -> None:
        """Be launched, and make the Kafka client."""
        try:
            launch: Launch = launched(self._control)
        except Orphaned:
            self.ended = True
            return
        self._life = Life(self._control, launch, self._now_ns, self._log)
        self._live(lambda life: self._made(life, roles))

    def step(self) -> None:
        """Take the next one."""
        self._live(lambda _: self._next())

    def _made(self, life: Life, roles: Mapping[str, Callable[[Client], SteppedWork]]) -> bool:
        self._work = life.begin(roles)
        self._steps = self._work.steps()
        return True

    def _next(self) -> bool:
        assert self._work is not None
        self._work.poll(0.0)
        wait_s = next(self._steps, None)
        if wait_s is not None:
            self.due_ns = self._now_ns() + int((max(wait_s, TICK_S) if wait_s else 0.0) * NS_PER_S)
        return wait_s is not None

    def _live(self, piece: Callable[[Life], bool]) -> None:
        """Let the client do a piece of its work; it ends if there is no more of it, or with what goes wrong."""
        life, goes_on = self._life, False
        assert life is not None
        try:
            with life:
                goes_on = piece(life)
            if not goes_on:
                self._end(life)
        except Exception:  # noqa: BLE001 - whatever it is, it is one client's, and the others go on
            traceback.print_exc(file=self._log)
            self._crash(life)

    def _end(self, life: Life) -> None:
        self.ended = True
        if self._work is not None:
            self._work.let_go()
        life.end()

    def _crash(self, life: Life) -> None:
        """As a process of its own would: its row stays as it is, and whoever started it completes that."""
        self.ended, life.code = True, ClientExit.CRASHED
        with suppress(Exception):  # it may be what it crashed of
            if self._work is not None:
                self._work.let_go()
            life.close()
        life.tell_end()


def run_company(
    connections: Sequence[socket.socket],
    logs: Sequence[Path],
    roles: Mapping[str, Callable[[Client], SteppedWork]],
    now_ns: NowNs,
) -> int:
    """Until each has ended. `logs`: of each. Returns the exit code of the process: each has told its own."""
    with ExitStack() as stack:
        opened = [stack.enter_context(_log(path)) for path in logs]
        members = [Companion(*one, now_ns) for one in zip(connections, opened, strict=True)]
        for member in members:
            member.begin(roles)
        _take_turns(members, now_ns)
    return ClientExit.CLEAN


def _take_turns(members: Sequence[Companion], now_ns: NowNs) -> None:
    """Step whoever is due, or was told something, until all have ended."""
    living = [member for member in members if not member.ended]
    by_descriptor = {member.connection.fileno(): member for member in living}
    waiting = select.poll()
    for descriptor in by_descriptor:
        waiting.register(descriptor, select.POLLIN)
    while living:
        left_ns = min(member.due_ns for member in living) - now_ns()
        for descriptor, _ in waiting.poll(max(0, left_ns) / 1e6):
            by_descriptor[descriptor].due_ns = 0
        now = now_ns()
        for member in living:
            if member.due_ns <= now:
                member.step()
            if member.ended:
                waiting.unregister(member.connection.fileno())
        living = [member for member in living if not member.ended]


def _log(path: Path) -> TextIO:
    return path.open("a", buffering=1, encoding="utf-8", errors="backslashreplace")
