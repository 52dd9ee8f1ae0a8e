"""Client processes as their parent sees them: it starts and commands them, notices their end, and ends them, without a
thread. Several clients may share a process (`prozess.workloads.runtime.fork_server`); each has a control pipe all
the same.

Everything the parent knows comes over two kinds of pipe: one control pipe per client, and the fork server's, which reports
starts and exits. Both are read whenever something is asked here.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

import numpy as np

from prozess.harness import installation
from prozess.harness.clock import Clock, wait_until
from prozess.harness.columns import row_dtype
from prozess.harness.errors import BadInput, HarnessFailed, NotReady
from prozess.harness.schema import CLIENTS, NONE
from prozess.workloads import messages
from prozess.workloads.client import ClientExit, ClientLaunch
from prozess.workloads.runtime.fork_server import MESSAGE_BYTES_MAX

START_LIMIT_S = 60.0
STOP_LIMIT_S = 3.0
KILL_LIMIT_S = 5.0
IDLE_MAX = 3
"""How many idle fork servers a process keeps, some 40 MB each."""
_INTERVAL_S = 0.005
_OF_THE_TEST = "PYTEST_CURRENT_TEST"
"""A variable that differs from test to test, and that no client reads."""


@dataclass
class ClientProcess:
    """A client and its process. `exit_code` None = running; negative = the signal that ended it."""

    client: int
    name: str
    role: str
    log: Path
    connection: socket.socket
    process_log: Path
    """The log of the process: the same as `log`, unless others have the same process."""
    others: int = 0
    """How many others have the same process: what ends the process ends them too."""
    library: Path | None = None
    """The directory with its version of confluent_kafka; None: the installed one."""
    os_pid: int | None = None
    exit_code: int | None = None
    ready: bool = False
    expected_to_end: bool = False
    killed: bool = False
    """We killed it, because it did not stop when asked."""
    may_be_fenced: bool = False
    """Another client has its group.instance.id, so a fatal error is what was asked for."""
    last_words: str = ""
    events: list[messages.Answer] = field(default_factory=list)
    """The messages of this client that nobody has taken yet."""
    received: bytes = b""
    sessions: set[int] = field(default_factory=set)
    """Sessions of the processes that it runs for itself: what hits it hits them too."""
    child_speaks: bool = False
    """It records what such a process says, and ends with it."""
    replies: set[int] = field(default_factory=set)
    """Numbers of the commands that it has carried out."""

    @property
    def running(self) -> bool:
        """Returns whether it is not known to have ended."""
        return self.exit_code is None


@dataclass(slots=True)
class ForkServer:
    """A process that client processes are forked from, and our end of its pipe."""

    process: subprocess.Popen[bytes]
    pipe: socket.socket
    key: str | None = None
    """How it was started: whoever would start it otherwise needs another. None: it is for one trial alone."""
    forked: int = 0
    """How many processes were asked of it that are not known to have ended."""

    def end(self) -> None:
        """Ends the process. It ends those that were forked from it."""
        self.pipe.close()
        try:
            self.process.wait(timeout=KILL_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class ForkServers:
    """Fork servers that one trial leaves to the next of the same process: to start one costs 0.4 s of CPU time.

    `close` ends them. If this process is killed, they end, too, with their pipes."""

    def __init__(self) -> None:
        self._idle: dict[str, ForkServer] = {}
        self._lock = threading.Lock()

    def take(self, key: str) -> ForkServer | None:
        """Returns an idle fork server that was started like this, if there is one. It is the caller's from now on."""
        with self._lock:
            server = self._idle.pop(key, None)
        if server is not None and server.process.poll() is not None:
            server.end()
            return None
        return server

    def leave(self, server: ForkServer) -> None:
        """Keeps a fork server whose processes have all ended, unless there is another like it. It ends the one that has
        been idle for longest if there are too many."""
        ends = server
        with self._lock:
            if server.key is not None and server.forked == 0 and server.process.poll() is None:
                ends = self._idle.pop(server.key, server)
                self._idle[server.key] = server
                if len(self._idle) > IDLE_MAX:
                    ends = self._idle.pop(next(iter(self._idle)))
                elif ends is server:
                    return
        ends.end()

    def close(self) -> None:
        """Ends all that are idle. Safe to call twice."""
        with self._lock:
            idle, self._idle = list(self._idle.values()), {}
        for server in idle:
            server.end()


class ClientProcesses:
    """Starts and holds client processes. `close` ends all of them, and the fork servers, unless others want those."""

    def __init__(
        self,
        *,
        rows: Path,
        logs: Path,
        clock: Clock,
        prefix: Callable[[], Sequence[str]] = lambda: (),
        environment: Callable[[], Mapping[str, str]] = dict,
        servers: ForkServers | None = None,
    ) -> None:
        """`prefix`: words before the command of the fork server; `environment`: its variables beyond ours. Both are
        asked for when it is started. `servers`: where fork servers are taken from and left for others; None: nowhere."""
        self._rows, self._logs, self._clock = rows, logs, clock
        self._prefix, self._environment, self._left = prefix, environment, servers
        self._servers: dict[Path | None, ForkServer] = {}
        """Import path of a client library → the process that its clients are forked from; None: the installed one."""
        self._by_pid: dict[int, list[ClientProcess]] = {}
        self._command = 0
        self.clients: dict[int, ClientProcess] = {}
        """All clients by their ids; ended ones stay."""

    def start(
        self, launches: Sequence[ClientLaunch], *, together: Iterable[Collection[int]] = ()
    ) -> list[ClientProcess]:
        """Starts clients, and returns once each is ready. `together`: ids of those that share a process. BadInput if
        librdkafka refuses a configuration; HarnessFailed, with its last words, if one ends; NotReady after
        START_LIMIT_S."""
        sharing = [[launch for launch in launches if launch.spec.client in ids] for ids in together]
        shared = {launch.spec.client for group in sharing for launch in group}
        alone = [[launch] for launch in launches if launch.spec.client not in shared]
        started = [process for group in (*alone, *sharing) for process in self._start(group)]

        def all_ready() -> bool:
            self.poll()
            for process in started:
                if not process.running and not process.ready:  # one that was ready and died since is a dead client
                    error = BadInput if process.exit_code == ClientExit.REFUSED else HarnessFailed
                    raise error(f"Client {process.name} did not start: {self.last_words(process)}")
            return all(process.ready for process in started)

        wait_until(
            all_ready,
            awaited=f"{len(started)} client processes to be ready",
            timeout_s=START_LIMIT_S,
            clock=self._clock,
            last_seen=lambda: f"not ready: {', '.join(p.name for p in started if not p.ready)}",
            interval_s=_INTERVAL_S,
        )
        return started

    def running(self, roles: Collection[str]) -> list[ClientProcess]:
        """Returns the clients of these roles that have not ended."""
        self.poll()
        return [process for process in self.clients.values() if process.role in roles and process.running]

    def command(
        self,
        processes: Iterable[ClientProcess],
        command: messages.Command,
        *,
        timeout_s: float,
    ) -> None:
        """Reports clients something, and returns once each that still runs has carried it out. NotReady after
        `timeout_s`."""
        reached = self.send(processes, command)
        number = self._command

        def waiting() -> list[str]:
            return [p.name for p in reached if p.running and number not in p.replies]

        def all_done() -> bool:
            self.poll()
            return not waiting()

        wait_until(
            all_done,
            awaited=f"the clients to carry out {command.do}",
            timeout_s=timeout_s,
            clock=self._clock,
            last_seen=lambda: f"nothing from {', '.join(waiting())}",
            interval_s=_INTERVAL_S,
        )

    def send(self, processes: Iterable[ClientProcess], command: messages.Command) -> list[ClientProcess]:
        """Reports something to each client that still runs, without waiting. Returns those that were reported."""
        self._command += 1
        line = messages.encoded(messages.Order(number=self._command, command=command)) + b"\n"
        return [process for process in processes if process.running and _sent(process.connection, line)]

    def poll(self) -> None:
        """Reads the messages of clients and of the fork server. Never blocks. Does nothing after `close`: everything
        has been taken in."""
        if not self._servers:
            return
        # Exits are read before messages: when a client is seen to have ended, all of its messages have been read.
        for library, server in self._servers.items():
            self._poll_server(library, server)
        for process in self.clients.values():
            self._poll_client(process)

    def wait(self, processes: Iterable[ClientProcess], *, timeout_s: float) -> bool:
        """Waits until all of them have ended. False if some still run after `timeout_s`."""
        awaited = list(processes)
        deadline_ns = self._clock.monotonic_ns() + int(timeout_s * 1e9)
        while True:
            self.poll()
            if not any(p.running for p in awaited):
                return True
            if self._clock.monotonic_ns() >= deadline_ns:
                return False
            self._clock.sleep(_INTERVAL_S)

    def end(self, processes: Iterable[ClientProcess]) -> None:
        """Stops clients, and kills those that do not stop within STOP_LIMIT_S. All of them have ended on return."""
        ending = list(processes)
        for process in ending:
            process.expected_to_end = True
        self.send(ending, messages.StopCommand())
        if self.wait(ending, timeout_s=STOP_LIMIT_S):
            return
        for process in ending:
            if process.running and process.os_pid is not None:
                process.killed = True
                os.kill(process.os_pid, signal.SIGKILL)  # the fork server has not reaped it: the pid is still its own
        if not self.wait(ending, timeout_s=KILL_LIMIT_S):
            left = ", ".join(f"{p.name} (pid {p.os_pid})" for p in ending if p.running)
            raise HarnessFailed(f"These client processes survived SIGKILL for {KILL_LIMIT_S:g} s: {left}.")

    def close(self) -> None:
        """Ends every client and the fork servers. Safe to call twice."""
        if not self._servers:
            return
        ended = False
        try:
            self.end(self.clients.values())
            ended = True
        finally:
            for process in self.clients.values():
                process.connection.close()
            for library, server in self._servers.items():
                if ended and self._left is not None and server.key is not None:
                    self._hear_exits(library, server)
                    self._left.leave(server)
                else:
                    server.end()
            self._servers.clear()

    def last_words(self, process: ClientProcess) -> str:
        """Returns why a client ended, in its own words, else the end of its log."""
        if process.last_words:
            return process.last_words
        lines = _lines(process.log) or _lines(process.process_log)
        return lines[-1] if lines else "it left no message"

    def _start(self, launches: Sequence[ClientLaunch]) -> list[ClientProcess]:
        """Starts one process with these clients."""
        (library,) = {launch.library for launch in launches}
        logs = [self._logs / f"client-{launch.spec.name.replace('/', '_')}.log" for launch in launches]
        clients = [launch.spec.client for launch in launches]
        assert self.clients.keys().isdisjoint(clients), clients
        pairs = [socket.socketpair() for _ in launches]
        of_process = logs[0] if len(logs) == 1 else self._logs / f"clients-{clients[0]}-to-{clients[-1]}.log"
        message = messages.encoded(messages.Fork(clients=clients, logs=list(map(str, logs)), log=str(of_process)))
        assert len(message) < MESSAGE_BYTES_MAX
        try:
            self._ask_for_process(library, message, [theirs.fileno() for _, theirs in pairs])
        except BaseException:
            for ours, _ in pairs:
                ours.close()
            raise
        finally:
            for _, theirs in pairs:
                theirs.close()
        started = []
        for launch, log, (ours, _) in zip(launches, logs, pairs, strict=True):
            spec, others = launch.spec, len(launches) - 1
            process = ClientProcess(
                spec.client, spec.name, spec.role, log, ours, of_process, others=others, library=library
            )
            self.clients[spec.client] = process
            started.append(process)
            ours.settimeout(START_LIMIT_S)
            line = json.dumps(launch.model_dump(mode="json")).encode() + b"\n"
            if not _sent(ours, line):
                raise HarnessFailed(f"Client {spec.name} did not start: it closed its control pipe. See {log}.")
        return started

    def _ask_for_process(self, library: Path | None, message: bytes, files: Sequence[int]) -> None:
        """Asks a fork server for a process that has these files. One that has died since it was left gives way to another.
        HarnessFailed if clients of this trial have died with it."""
        server = self._ensure_server(library)
        try:
            socket.send_fds(server.pipe, [message], files)
        except OSError as error:
            if server.forked:
                raise HarnessFailed(
                    f"The process that client processes are forked from has died, and {server.forked} of them with it."
                ) from error
            del self._servers[library]
            server.end()
            server = self._ensure_server(library)
            socket.send_fds(server.pipe, [message], files)
        server.forked += 1

    def _ensure_server(self, library: Path | None) -> ForkServer:
        """Returns the process that clients with this library are forked from. It is started if need be."""
        if (running := self._servers.get(library)) is not None:
            return running
        # numpy's OpenBLAS would start threads, and what forks must have none.
        threadless = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        # -P and this path: the clients run this very code, whatever the working directory holds.
        here = str(installation.SEARCH_PATH)
        first = "" if library is None else str(library)
        path = os.pathsep.join(filter(None, (first, here, os.environ.get("PYTHONPATH"))))
        more = dict(self._environment())
        environment = os.environ | threadless | {"PYTHONPATH": path} | more
        command = [*self._prefix(), sys.executable, "-P", "-m", "prozess.workloads.runtime.fork_server"]
        server = key = None
        if self._left is not None and not more:  # files of this trial are in what is added
            known = sorted((name, value) for name, value in environment.items() if name != _OF_THE_TEST)
            key = repr((os.getpid(), str(Path.cwd()), command, known))
            server = self._left.take(key)
        self._servers[library] = server or _started(command, environment, key)
        return self._servers[library]

    def _poll_server(self, library: Path | None, server: ForkServer) -> None:
        while _readable(server.pipe):
            message = server.pipe.recv(MESSAGE_BYTES_MAX)
            if not message:
                self._server_is_gone(library)
                return
            event = messages.fork_server_events(message)
            if isinstance(event, messages.Started):
                started = [self.clients[client] for client in event.clients]
                self._by_pid[event.pid] = started
                for process in started:
                    process.os_pid = event.pid
            else:
                server.forked -= 1
                assert server.forked >= 0, f"process {event.pid} has ended, and nobody had asked for it"
                for process in self._by_pid[event.pid]:
                    self._poll_client(process)
                    if process.running:  # of several that shared it some may have ended before
                        process.exit_code = event.status
                    process.connection.close()  # it has been heard out; a trial may restart hundreds

    def _hear_exits(self, library: Path | None, server: ForkServer) -> None:
        """Waits until the processes of clients that have ended are gone, since several may have shared one. A fork server of
        which one is left is not left to others."""

        def all_gone() -> bool:
            self._poll_server(library, server)
            return not server.forked or server.process.poll() is not None

        with suppress(NotReady):
            wait_until(
                all_gone,
                awaited="the processes of clients that have ended to be gone",
                timeout_s=KILL_LIMIT_S,
                clock=self._clock,
                last_seen=lambda: f"{server.forked} are left",
                interval_s=_INTERVAL_S,
            )

    def _server_is_gone(self, library: Path | None) -> None:
        """Notes that all clients with this library have ended: they were killed with their fork server
        (PR_SET_PDEATHSIG)."""
        for process in self.clients.values():
            if process.running and process.library == library:
                process.exit_code = -signal.SIGKILL
                process.last_words = process.last_words or "the process that client processes are forked from died"

    def _poll_client(self, process: ClientProcess) -> None:
        while process.running and _readable(process.connection):
            try:
                chunk = process.connection.recv(1 << 20)
            except OSError:
                return
            if not chunk:
                return
            *lines, process.received = (process.received + chunk).split(b"\n")
            for line in lines:
                _take(process, messages.event_of(line))


def _started(command: Sequence[str], environment: Mapping[str, str], key: str | None) -> ForkServer:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [*command, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=dict(environment),
        )
    return ForkServer(process, ours, key)


def _take(process: ClientProcess, event: messages.Event) -> None:
    match event:
        case messages.ReadyEvent():
            process.ready = True
        case messages.DoneEvent():
            process.replies.add(event.number)
        case messages.ChildEvent():
            process.sessions.add(event.session)
            process.child_speaks = event.speaks
        case messages.ChildEndedEvent():
            process.sessions.discard(event.session)
        case messages.EndedEvent():
            process.last_words = event.reason
            if process.others:  # its process may live on
                process.exit_code = event.code
        case (
            messages.DrainingEvent()
            | messages.FencedEvent()
            | messages.LookedEvent()
            | messages.FollowedEvent()
            | messages.SentinelsEvent()
            | messages.AuditedEvent()
            | messages.ReachedEvent()
        ):
            process.events.append(event)
        case _:
            assert_never(event)


def _lines(log: Path) -> list[str]:
    try:
        return log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return []


def _readable(connection: socket.socket) -> bool:
    poll = select.poll()  # select() cannot take descriptors beyond 1023
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _sent(connection: socket.socket, line: bytes) -> bool:
    try:
        connection.sendall(line)
    except OSError:
        return False
    return True


# How clients ended that cannot say so themselves: killed by a signal, or crashed.


class ExitRows:
    """Completes the rows of clients that could not do it themselves, each once."""

    def __init__(self, rows: Path) -> None:
        self._rows = rows
        self._noted: set[int] = set()

    def note(self, processes: Iterable[ClientProcess]) -> None:
        """Completes `clients.exit_code` of those that could not do it themselves: killed by a signal, or crashed.
        Their `ended_ns` stays MISSING: nobody saw the moment."""
        for process in processes:
            path = self._rows / f"{CLIENTS.name}.{process.client}.0.rows"
            if process.running or process.client in self._noted or not path.exists():
                continue
            self._noted.add(process.client)
            row = np.memmap(path, dtype=row_dtype(CLIENTS), mode="r+", shape=(1,))
            if row["mark"][0] == 1 and row["exit_code"][0] == NONE:
                row["exit_code"][0] = process.exit_code
                row.flush()


def how_it_ended(process: ClientProcess, last_words: str) -> str:
    """Returns in words how a client ended."""
    code = process.exit_code
    assert code is not None
    how = f"killed by signal {-code}" if code < 0 else f"exit {code}"
    if code < 0 and process.others:
        how += f", and with it the {process.others} that shared its process"
    return f"{how}: {last_words}"
