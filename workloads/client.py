"""One client process: its control pipe, its heartbeat, its row in `clients`, its log and its wall clock."""

import ctypes
import json
import mmap
import os
import select
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import IntEnum, unique
from pathlib import Path
from types import TracebackType
from typing import Protocol, TextIO, TypeVar

from confluent_kafka import KafkaError, KafkaException
from pydantic import Field

from prozess.harness.config.existing_clusters import hidden
from prozess.harness.errors import StorageFull
from prozess.harness.interfaces import ClientSpec
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import CLIENTS, HEARTBEATS, MISSING, NONE, Isolation, role_named
from prozess.harness.values import Frozen
from prozess.workloads import messages
from prozess.workloads.metrics import Statistics

# A client process has one thread of ours (librdkafka has its own). A client ends when it is asked to, when its work is
# done, when its Kafka client dies, when the disk is full, or when whoever started it is gone: then its control pipe is
# at its end. Each has its own exit code. Most have a process to themselves; plain producers of a trial with very many
# may share one (`prozess.workloads.runtime.fork_server`).


HEARTBEAT_NS = 100_000_000
ERROR_REPEAT_NS = 1_000_000_000
CLOCK_OF_THIS_HOST = 0
"""The value of `clients.clock`: every client runs on the host of the harness."""
LAUNCH_LIMIT_S = 30

NowNs = Callable[[], int]
Result = TypeVar("Result")


@unique
class ClientExit(IntEnum):
    """The exit code of a client process, which says why it ended."""

    CLEAN = 0
    CRASHED = 1
    """An exception nobody expected; the traceback is in its log."""
    REFUSED = 2
    """librdkafka refused the configuration."""
    FATAL = 3
    """The Kafka client reported a fatal error and cannot go on."""
    STORAGE_FULL = 4
    ORPHANED = 5
    """The process that started the client is gone."""


class ClientLaunch(Frozen):
    """Everything that a client process is given at its start."""

    spec: ClientSpec
    rows: Path
    planned: int
    """The client's id in the plan: its own id, or that of the client whose place it takes."""
    library: Path | None = None
    """The directory that has its version of confluent_kafka, first on its import path; None = the installed one."""
    isolation: int = Isolation.NOT_A_READER.value
    start_offsets: dict[int, int] = Field(default_factory=dict)
    """The offset to begin at by dense partition id, for readers; 0 for partitions that are not in it."""


class FatalClient(Exception):
    """The Kafka client has died; the text says why."""

    what = "the Kafka client died"


class Orphaned(Exception):
    """The control pipe has ended, so the process that started this client is gone."""


class ControlPipe:
    """The client's end of its control pipe: one message per line, both ways. The first line is the launch."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = b""
        connection.setblocking(False)

    def commands(self) -> Iterator[messages.Order]:
        """Yields the commands that have arrived; never blocks. Orphaned at the end of the pipe."""
        return map(messages.order_of, self._lines())

    def until(self, *, timeout_s: float) -> list[messages.Order]:
        """Waits up to `timeout_s` for commands and returns those that have arrived. Orphaned at the end of the pipe."""
        return [messages.order_of(line) for line in self._lines_until(timeout_s)]

    def launch(self) -> ClientLaunch:
        """Waits for the launch, which is the first message to a client. Orphaned if it does not come."""
        for line in self._lines_until(LAUNCH_LIMIT_S):
            return ClientLaunch.model_validate(json.loads(line))
        raise Orphaned(f"no launch within {LAUNCH_LIMIT_S} s")

    def send(self, event: messages.Event) -> None:
        """Sends an event to the process that started this client. Orphaned if that is impossible."""
        try:
            self._connection.setblocking(True)
            self._connection.sendall(messages.encoded(event) + b"\n")
            self._connection.setblocking(False)
        except OSError as error:
            raise Orphaned(str(error)) from error

    def _lines(self) -> Iterator[bytes]:
        try:
            chunk = self._connection.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError as error:
            raise Orphaned(str(error)) from error
        if not chunk:
            raise Orphaned("the control pipe was closed")
        self._received += chunk
        *lines, self._received = self._received.split(b"\n")
        yield from lines

    def _lines_until(self, timeout_s: float) -> list[bytes]:
        found = list(self._lines())
        if not found:
            select.select([self._connection], [], [], timeout_s)
            found = list(self._lines())
        return found


class Client:
    """The base of a client, whatever its role: its identity, the rows that every client writes, and errors of its
    Kafka client."""

    def __init__(self, launch: ClientLaunch, control: ControlPipe, now_ns: NowNs, log: TextIO | None = None) -> None:
        """`log`: where the client writes its log; None = to standard error."""
        self.spec, self.rows, self.control, self.now_ns = launch.spec, launch.rows, control, now_ns
        self._log = log or sys.stderr
        self.launch = launch
        self.fatal: str | None = None
        self.finished = False
        self._role, self._isolation = role_named(launch.spec.role), launch.isolation
        self._started_ns = now_ns()
        self._last_errors_ns: dict[int, int] = {}
        self._next_heartbeat_ns = 0
        self._clients = RowWriter(launch.rows, CLIENTS, launch.spec.client)
        self._row(ended_ns=MISSING, issued=NONE, exit_code=NONE, complete=0, write=self._clients.append)
        self._heartbeats = RowWriter(launch.rows, HEARTBEATS, launch.spec.client)
        self.heartbeat(self._started_ns)
        spec = launch.spec
        self.statistics = Statistics(
            launch.rows,
            client=spec.client,
            properties=spec.properties,
            partitions={(topic, number): dense for dense, topic, number in spec.partitions},
            now_ns=now_ns,
        )

    def heartbeat(self, now_ns: int) -> None:
        """Writes a heartbeat if 100 ms have passed since the last one. Call it at least that often."""
        if now_ns >= self._next_heartbeat_ns:
            self._heartbeats.append(now_ns)
            self._next_heartbeat_ns = now_ns + HEARTBEAT_NS

    def on_error(self, error: KafkaError) -> None:
        """Logs an error of librdkafka, and remembers a fatal one. librdkafka calls it."""
        fatal = (
            error.fatal() or error.code() == KafkaError._FATAL
        )  # the latter where it is handed on in place of a record
        if fatal:
            self.fatal = self.fatal or f"{error.name()}: {error.str()}"
        now = self.now_ns()
        if fatal or now - self._last_errors_ns.get(error.code(), MISSING) >= ERROR_REPEAT_NS:
            self._last_errors_ns[error.code()] = now
            self.log(f"{error.name()} {error.str()}")

    def serve(self, call: Callable[..., Result], *arguments: float) -> Result | None:
        """Calls a method that runs librdkafka's callbacks (poll, consume). The binding raises a fatal error from there
        instead of handing it to the error callback: remembered here, and None returned."""
        try:
            return call(*arguments)
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            self.on_error(error.args[0])
            return None

    def log(self, text: str) -> None:
        """Writes one line into the client's log, with the time on the trial's clock (CLOCK_MONOTONIC). A full disk is
        no reason to end here: the rows will say so."""
        try:
            self._log.write(f"{self.now_ns() / 1e9:.3f} {hidden(text)}\n")
            self._log.flush()
        except OSError:
            return

    def check(self) -> None:
        """Raises FatalClient if the Kafka client has died."""
        if self.fatal is not None:
            raise FatalClient(self.fatal)

    def end(self, *, issued: int, exit_code: int, complete: bool) -> None:
        """Completes the row in `clients`. `complete`: every table of this client was written to its end."""
        self._row(
            ended_ns=self.now_ns(),
            issued=issued,
            exit_code=exit_code,
            complete=int(complete),
            write=lambda *values: self._clients.rewrite(0, *values),
        )
        self.statistics.close()
        self._heartbeats.close()
        self._clients.close()

    def _row(self, *, ended_ns: int, issued: int, exit_code: int, complete: int, write: Callable[..., object]) -> None:
        values = {
            "started_ns": self._started_ns,
            "ended_ns": ended_ns,
            "issued": issued,
            "role": self._role,
            "isolation": self._isolation,
            "exit_code": exit_code,
            "os_pid": os.getpid(),
            "planned": self.launch.planned,
            "clock": CLOCK_OF_THIS_HOST,
            "complete": complete,
        }
        write(*(int(values[column.name]) for column in CLIENTS.columns))


class Work(Protocol):
    """Describes what a client of some role does. It is built from its `Client`."""

    def run(self) -> None:
        """Works until the work is done or `stop` was commanded. FatalClient, StorageFull and Orphaned end it early."""
        ...

    def issued(self) -> int:
        """Returns how many sequences were issued, or records read, so far."""
        ...

    def close(self) -> None:
        """Writes every table of this role to its end."""
        ...


class SteppedWork(Work, Protocol):
    """Work that can be done step by step, so that several clients can share a process
    (`prozess.workloads.log.producer`)."""

    def steps(self) -> Iterator[float]:
        """Does what is due in each step, and yields for how many seconds nothing more is due."""
        ...

    def poll(self, wait_s: float) -> None:
        """Serves the Kafka client's callbacks. It is called before each step."""
        ...

    def let_go(self) -> None:
        """Drops what is still queued: the client has ended, and its process goes on with others."""
        ...


SomeWork = TypeVar("SomeWork", bound=Work)


class ClientLife:
    """The life of one client, from its launch to its last message. Used as a context, it turns what ends a client early into
    its exit; an exception that nobody expected leaves it."""

    def __init__(self, control: ControlPipe, launch: ClientLaunch, now_ns: NowNs, log: TextIO | None = None) -> None:
        self._control, self._launch, self._now_ns, self._log = control, launch, now_ns, log
        self._client: Client | None = None
        self._work: Work | None = None
        self._reason = ""
        self.code = ClientExit.CLEAN

    def begin(self, roles: Mapping[str, Callable[[Client], SomeWork]]) -> SomeWork:
        """Makes the Kafka client, and returns the work that is to be done with it."""
        self._client = Client(self._launch, self._control, self._now_ns, self._log)
        self._work = work = roles[self._launch.spec.role](self._client)
        self._control.send(messages.ReadyEvent())
        return work

    def __enter__(self) -> "ClientLife":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        match error:
            case None:
                return True
            case FatalClient():
                self.code, self._reason = ClientExit.FATAL, f"{error.what}: {error}"
            case StorageFull():
                self.code, self._reason = ClientExit.STORAGE_FULL, str(error)
            case Orphaned():
                self.code, self._reason = ClientExit.ORPHANED, "whoever started this client is gone"
            case KafkaException() if self._work is None:
                why = hidden(error.args[0].str())
                self.code, self._reason = ClientExit.REFUSED, f"librdkafka refuses the configuration: {why}"
            case _:
                return False
        return True

    def close(self) -> None:
        """Writes every table of its role to its end."""
        if self._work is not None:
            self._work.close()

    def end(self) -> ClientExit:
        """Completes the client's row, and reports how it ended to the process that started it."""
        self.close()
        if self._client is not None:
            if self._reason:
                self._client.log(self._reason)
            # A client that died has reported all it did; only a full disk leaves a table short.
            complete = self.code in (ClientExit.CLEAN, ClientExit.FATAL, ClientExit.ORPHANED)
            issued = self._work.issued() if self._work else 0
            self._client.end(issued=issued, exit_code=self.code, complete=complete)
        self.send_end()
        return self.code

    def send_end(self) -> None:
        """Sends the last message to the process that started this client."""
        with suppress(Orphaned):
            self._control.send(messages.EndedEvent(code=int(self.code), reason=self._reason))


def run_client(connection: socket.socket, roles: Mapping[str, Callable[[Client], Work]], now_ns: NowNs) -> int:
    """Runs a client that has a process to itself: waits for its launch, does its work, completes its rows. Returns the
    exit code."""
    control = ControlPipe(connection)
    try:
        launch = control.launch()
    except Orphaned:
        return ClientExit.ORPHANED
    follow_clock_file(launch.rows, launch.planned)
    life = ClientLife(control, launch, now_ns)
    try:
        with life:
            life.begin(roles).run()
    except BaseException:
        life.close()
        raise
    return life.end()


# The wall clock of a client process, as the process takes it: that of its slot, which whoever runs the trial can
# move.
#
# Client processes are forked from one, which has the shim preloaded where a trial moves their clocks
# (`clusters/disks/shim.c`: the wall clock alone; what is recorded is CLOCK_MONOTONIC). Each maps the clock file of its
# slot over the one that it was born with, and what it runs for itself (a JVM) is started with that file: so a
# successor in the place has the same clock.


VARIABLE = "PROZESS_CLOCK"
CLOCK_BYTES = 4096


def clocks_of(rows: Path) -> Path:
    """Returns the directory with the clock files of a run."""
    return rows.parent / "clocks"


def clock_file_of(rows: Path, planned: int) -> Path:
    """Returns the clock file of one client's slot."""
    return clocks_of(rows) / f"{planned}.clock"


def follow_clock_file(rows: Path, planned: int) -> None:
    """Makes this process follow the clock file of its slot. Called before the process has a Kafka client."""
    common, mine = os.environ.get(VARIABLE, ""), clock_file_of(rows, planned)
    if not common or not mine.exists():
        return
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if line.endswith(common):
            _map_over(int(line.partition("-")[0], 16), mine)
    os.environ[VARIABLE] = str(mine)


def _map_over(address: int, path: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fixed = 0x10  # MAP_FIXED: in place of what is there [mmap(2)]
        found = libc.mmap(address, CLOCK_BYTES, mmap.PROT_READ, mmap.MAP_SHARED | fixed, descriptor, 0)
    finally:
        os.close(descriptor)
    if found != address:
        raise OSError(ctypes.get_errno(), "a client's clock could not be mapped", str(path))
