"""The process that client processes are forked from. It imports everything once, so that 28 of them start in a second.

Like multiprocessing's forkserver, and for its reason: librdkafka's threads do not survive a fork
(confluent-kafka-python#172), so clients must be created after it, in a child of a process that has no thread. Unlike it, it
and all its children end with whoever started it: it ends at the end of its pipe, and its children with it (PR_SET_PDEATHSIG).

Its pipe is a SOCK_SEQPACKET socket. In: `Fork` with the clients' ends of their control pipes (SCM_RIGHTS): one client, or
several that share a process. Out: `Started` and `Exited` (`prozess.workloads.messages`).
"""

import ctypes
import gc
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TextIO

from prozess.harness.clock import NS_PER_S
from prozess.harness.plan.plan import ClientLibrary, PlannedClient
from prozess.harness.plan.schedule import (
    CLIENT_ROLES,
    ClientAction,
    StallAction,
    Step,
    Target,
    client_target,
    means_client,
    parse_target,
)
from prozess.workloads import messages
from prozess.workloads.client import (
    Client,
    ClientExit,
    ClientLife,
    ControlPipe,
    NowNs,
    Orphaned,
    SteppedWork,
    run_client,
)
from prozess.workloads.roles import ROLES, SHARED

MESSAGE_BYTES_MAX = 64 * 1024
DESCRIPTORS_MAX = 64
"""The most file descriptors of one message; the kernel allows 253. [unix(7)]"""
ORPHANS_LIMIT_S = 5.0
_PR_SET_PDEATHSIG = 1
_GC_THRESHOLD = 100_000


def serve(connection: socket.socket) -> None:
    """Forks the processes that are asked for until the pipe ends; then ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the outer process alone handles Ctrl-C
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    gc.freeze()
    children: set[int] = set()
    while True:
        readable, _, _ = select.select([connection.fileno(), wake_read], [], [])
        if wake_read in readable:
            os.read(wake_read, 4096)
            for pid, status in _reaped(children):
                connection.sendall(messages.encoded(messages.Exited(pid=pid, status=status)))
        if connection.fileno() in readable:
            message, descriptors, _, _ = socket.recv_fds(connection, MESSAGE_BYTES_MAX, DESCRIPTORS_MAX)
            if not message:
                return _end(children)
            request = messages.fork_of(message)
            assert len(descriptors) == len(request.clients), "each client of a process has one control pipe"
            pid = os.fork()
            if pid == 0:
                _become_clients(connection, (wake_read, wake_write), descriptors, request)
            for descriptor in descriptors:
                os.close(descriptor)
            children.add(pid)
            connection.sendall(messages.encoded(messages.Started(pid=pid, clients=request.clients)))


def _reaped(children: set[int]) -> list[tuple[int, int]]:
    ended = []
    for pid in tuple(children):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            children.discard(pid)
            ended.append((pid, os.waitstatus_to_exitcode(status)))
    return ended


def _end(children: set[int]) -> None:
    """Ends the children: waits for them to notice that their pipes have ended, then kills what is left (a paused one,
    say)."""
    deadline = time.monotonic() + ORPHANS_LIMIT_S
    while children and time.monotonic() < deadline:
        _reaped(children)
        select.select([], [], [], 0.02)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _become_clients(
    connection: socket.socket, pipes: tuple[int, int], controls: Sequence[int], request: messages.Fork
) -> None:
    """Runs in the child: closes what belongs to the fork server, and becomes the client or clients. Never returns."""
    code: int = ClientExit.CRASHED
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for pipe in pipes:
            os.close(pipe)
        connection.close()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        log = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        # A core of a client is of no use, and its rows are mapped: it could be large.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        gc.set_threshold(_GC_THRESHOLD)
        sockets = [socket.socket(fileno=control) for control in controls]
        if len(sockets) == 1:
            works = {name: role.work for name, role in ROLES.items()}
            code = run_client(sockets[0], works, time.monotonic_ns)
        else:
            code = run_shared(sockets, [Path(log) for log in request.logs], SHARED, time.monotonic_ns)
    except BaseException:  # noqa: BLE001 - a child must never return into the fork server's loop
        traceback.print_exc()
    finally:
        # No destructors: librdkafka's would wait for brokers that may be gone. Everything recorded is in mapped files.
        os._exit(code)


# Several clients in one process.
#
# A process of its own costs a client that seldom sends more than its sending does: it wakes for nothing fifty times a
# second, with its caches cold. What is recorded of a client is the same here: it has its rows, its heartbeats, its log
# and its control pipe, and ends with an exit code of its own. But a process that dies takes all of them; and a
# delivery report may be noticed `TICK_S` later than it came, which `completed_ns`, an upper bound, allows.


TICK_S = 0.01
"""How often a client that has nothing to do is looked at."""


class SharedClient:
    """One of the clients of a shared process: the next step of its work, and when that is due."""

    def __init__(self, connection: socket.socket, log: TextIO, now_ns: NowNs) -> None:
        self.connection = connection
        self._control, self._log, self._now_ns = ControlPipe(connection), log, now_ns
        self._life: ClientLife | None = None
        self._work: SteppedWork | None = None
        self._steps: Iterator[float] = iter(())
        self.due_ns = 0
        self.ended = False

    def begin(self, roles: Mapping[str, Callable[[Client], SteppedWork]]) -> None:
        """Waits for the launch, and makes the Kafka client."""
        try:
            launch = self._control.launch()
        except Orphaned:
            self.ended = True
            return
        self._life = ClientLife(self._control, launch, self._now_ns, self._log)
        self._live(lambda life: self._made(life, roles))

    def step(self) -> None:
        """Takes the next step."""
        self._live(lambda _: self._next())

    def _made(self, life: ClientLife, roles: Mapping[str, Callable[[Client], SteppedWork]]) -> bool:
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

    def _live(self, piece: Callable[[ClientLife], bool]) -> None:
        """Lets the client do a piece of its work. The client ends if there is no more work, or with the exception that
        comes."""
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

    def _end(self, life: ClientLife) -> None:
        self.ended = True
        if self._work is not None:
            self._work.let_go()
        life.end()

    def _crash(self, life: ClientLife) -> None:
        """Ends a client that crashed, as a process of its own would end: its row stays as it is, and whoever started
        it completes that."""
        self.ended, life.code = True, ClientExit.CRASHED
        with suppress(Exception):  # it may be what it crashed of
            if self._work is not None:
                self._work.let_go()
            life.close()
        life.send_end()


def run_shared(
    connections: Sequence[socket.socket],
    logs: Sequence[Path],
    roles: Mapping[str, Callable[[Client], SteppedWork]],
    now_ns: NowNs,
) -> int:
    """Runs several clients in this process until each has ended. `logs`: the log of each. Returns the exit code of the
    process: each client has reported its own."""
    with ExitStack() as stack:
        opened = [stack.enter_context(_log(path)) for path in logs]
        members = [SharedClient(*one, now_ns) for one in zip(connections, opened, strict=True)]
        for member in members:
            member.begin(roles)
        _take_turns(members, now_ns)
    return ClientExit.CLEAN


def _take_turns(members: Sequence[SharedClient], now_ns: NowNs) -> None:
    """Steps every client that is due, or that learned something, until all have ended."""
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


# Which clients share a process. Pure.
#
# Only plain producers do, of a trial that has very many, and only those that no step means: a process that is killed,
# paused or given another clock is one client's alone. The readers are few and busy; members and copiers are judged by
# what their process did.


ALONE_MAX = 16
"""A trial with no more such clients than this gives each a process of its own."""
TOGETHER_MAX = 24
"""The most clients in one process: a process that dies takes that many with it."""
RATE_MAX_HZ = 500.0
"""The most records a second of all clients in one process. One producer alone does some ten thousand; this leaves it
idle for most of the time, so that nobody waits for another's turn."""


def share(clients: Sequence[PlannedClient], steps: Sequence[Step]) -> tuple[tuple[int, ...], ...]:
    """Returns groups of ids of clients that share a process, in their order. A client that is in no group has a
    process to itself."""
    meant = list(targets_of(steps))
    fit = [client for client in clients if client.role in SHARED and not client.late and not _is_meant(client, meant)]
    if len(fit) <= ALONE_MAX:
        return ()
    alike: dict[ClientLibrary | None, list[PlannedClient]] = {}
    for client in fit:
        alike.setdefault(client.library, []).append(client)
    groups = (group for clients in alike.values() for group in _dealt(clients))
    return tuple(tuple(client.client for client in group) for group in groups if len(group) > 1)


def targets_of(steps: Iterable[Step]) -> Iterator[Target]:
    """Yields the clients that steps name: as targets, and as roles in their parameters."""
    for step in steps:
        if isinstance(step.do, ClientAction | StallAction):
            yield from (parse_target(client_target(name)) for name in step.do.client)
        elif step.do is not None:
            yield from (target for text in _texts(step.do.model_dump()) if (target := _client(text)) is not None)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)


def _client(text: str) -> Target | None:
    try:
        target = parse_target(text)
    except ValueError:
        return None
    return target if target.role in CLIENT_ROLES else None


def _is_meant(client: PlannedClient, targets: Iterable[Target]) -> bool:
    return any(
        means_client(target, name=client.name, role=client.role, cell=client.cell, instance=client.instance)
        for target in targets
    )


def _dealt(clients: Sequence[PlannedClient]) -> list[list[PlannedClient]]:
    """Divides clients, in order, into as few groups as the bounds allow, all of about one size."""
    groups: list[list[PlannedClient]] = []
    rate_hz, size = 0.0, -(-len(clients) // -(-len(clients) // TOGETHER_MAX))
    for client in clients:
        own_hz = client.traffic.rate_hz * len(client.partitions)
        if not groups or len(groups[-1]) == size or rate_hz + own_hz > RATE_MAX_HZ:
            groups.append([])
            rate_hz = 0.0
        groups[-1].append(client)
        rate_hz += own_hz
    return groups


def main() -> None:
    """The command `python -m prozess.workloads.runtime.fork_server DESCRIPTOR`."""
    assert Path(f"/proc/self/fd/{sys.argv[1]}").exists(), sys.argv
    serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
