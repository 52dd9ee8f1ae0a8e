"""The inside of a client process: its control pipe, its heartbeat, its row in `clients`, its log.

A client process has one thread of ours (librdkafka has its own). A client ends when it is told to, when its work is done,
when its Kafka client dies, when the disk is full, or when whoever started it is gone: then its control pipe is at its end.
Each has its own exit code. Most have a process to themselves; plain producers of a trial with very many may share one
(`workloads.company`).
"""

import json
import os
import select
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TextIO, TypeVar

from confluent_kafka import KafkaError, KafkaException
from pydantic import Field

from harness.configuration import Frozen
from harness.errors import StorageFull
from harness.protocols import ClientSpec
from harness.rows import RowWriter
from harness.schema import CLIENTS, HEARTBEATS, MISSING, NONE, Isolation, role_named
from workloads.own_clock import take
from workloads.statistics import Statistics

HEARTBEAT_NS = 100_000_000
ERROR_REPEAT_NS = 1_000_000_000
CLOCK_OF_THIS_HOST = 0
"""`clients.clock`: every client of this workload runs on the harness's host."""
LAUNCH_LIMIT_S = 30

NowNs = Callable[[], int]
Result = TypeVar("Result")


class ClientExit(IntEnum):
    """Why a client process ended."""

    CLEAN = 0
    CRASHED = 1
    """An exception nobody expected; the traceback is in its log."""
    REFUSED = 2
    """librdkafka refused the configuration."""
    FATAL = 3
    """The Kafka client reported a fatal error and cannot go on."""
    STORAGE_FULL = 4
    ORPHANED = 5
    """Whoever started it is gone."""


class Launch(Frozen):
    """What a client process is given at its start."""

    spec: ClientSpec
    rows: Path
    planned: int
    """Client id of the plan: its own, or that of the client whose place it takes."""
    isolation: int = Isolation.NOT_A_READER.value
    start_offsets: dict[int, int] = Field(default_factory=dict)
    """Dense partition id → offset to begin at, for readers; absent = 0."""


class FatalClient(Exception):
    """The Kafka client is dead; the text says why."""

    what = "the Kafka client died"


class Orphaned(Exception):
    """The control pipe is at its end."""


class Control:
    """The client's end of the control pipe: JSON objects, one per line, both ways."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = b""
        connection.setblocking(False)

    def commands(self) -> Iterator[dict[str, Any]]:
        """What has arrived; never blocks. Orphaned at the end of the pipe."""
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
        for line in lines:
            yield json.loads(line)

    def until(self, *, timeout_s: float) -> list[dict[str, Any]]:
        """What has arrived, once something has, or nothing after `timeout_s`. Orphaned at the end of the pipe."""
        found = list(self.commands())
        if not found:
            select.select([self._connection], [], [], timeout_s)
            found = list(self.commands())
        return found

    def tell(self, event: str, **facts: Any) -> None:  # noqa: ANN401 - JSON values
        """Send an event to whoever started this client. Orphaned if that is impossible."""
        try:
            self._connection.setblocking(True)
            self._connection.sendall(json.dumps({"event": event, **facts}).encode() + b"\n")
            self._connection.setblocking(False)
        except OSError as error:
            raise Orphaned(str(error)) from error


class Client:
    """What every role shares: identity, rows that every client writes, errors of the Kafka client."""

    def __init__(self, launch: Launch, control: Control, now_ns: NowNs, log: TextIO | None = None) -> None:
        """`log`: where its words go; the process's standard error, where nothing is given."""
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
        """Write a row if 100 ms have passed since the last; call it at least that often."""
        if now_ns >= self._next_heartbeat_ns:
            self._heartbeats.append(now_ns)
            self._next_heartbeat_ns = now_ns + HEARTBEAT_NS

    def on_error(self, error: KafkaError) -> None:
        """librdkafka's error callback: log it, and remember a fatal one."""
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
        """Call what runs librdkafka's callbacks (poll, consume). The binding raises a fatal error from there instead of
        handing it to the error callback: remembered here, and None returned."""
        try:
            return call(*arguments)
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            self.on_error(error.args[0])
            return None

    def log(self, text: str) -> None:
        """One line into the client's log, with the time on the trial's clock (CLOCK_MONOTONIC). A full disk is no reason
        to end here: the rows will say so."""
        try:
            self._log.write(f"{self.now_ns() / 1e9:.3f} {text}\n")
            self._log.flush()
        except OSError:
            return

    def check(self) -> None:
        """FatalClient if the Kafka client has died."""
        if self.fatal is not None:
            raise FatalClient(self.fatal)

    def end(self, *, issued: int, exit_code: int, complete: bool) -> None:
        """Complete the row in `clients`. `complete`: every table of this client was written to its end."""
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
    """What a role does. Built from its Client."""

    def run(self) -> None:
        """Until the work is done or `stop` was commanded. FatalClient, StorageFull, Orphaned end it early."""
        ...

    def issued(self) -> int:
        """Sequences issued, or records read, so far."""
        ...

    def close(self) -> None:
        """Flush every table this role wrote."""
        ...


SomeWork = TypeVar("SomeWork", bound=Work)


class Life:
    """A client from its launch to its last word. As a context it turns what ends a client early into its exit; an exception
    that nobody expected leaves it."""

    def __init__(self, control: Control, launch: Launch, now_ns: NowNs, log: TextIO | None = None) -> None:
        self._control, self._launch, self._now_ns, self._log = control, launch, now_ns, log
        self._client: Client | None = None
        self._work: Work | None = None
        self._reason = ""
        self.code = ClientExit.CLEAN

    def begin(self, roles: Mapping[str, Callable[[Client], SomeWork]]) -> SomeWork:
        """Make the Kafka client; returns what is to be done with it."""
        self._client = Client(self._launch, self._control, self._now_ns, self._log)
        self._work = work = roles[self._launch.spec.role](self._client)
        self._control.tell("ready", os_pid=os.getpid())
        return work

    def __enter__(self) -> "Life":
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
                why = error.args[0].str()
                self.code, self._reason = ClientExit.REFUSED, f"librdkafka refuses the configuration: {why}"
            case _:
                return False
        return True

    def close(self) -> None:
        """Flush every table of its role."""
        if self._work is not None:
            self._work.close()

    def end(self) -> ClientExit:
        """Complete its row, and tell how it ended."""
        self.close()
        if self._client is not None:
            if self._reason:
                self._client.log(self._reason)
            # A client that died has told all it did; only a full disk leaves a table short.
            complete = self.code in (ClientExit.CLEAN, ClientExit.FATAL, ClientExit.ORPHANED)
            issued = self._work.issued() if self._work else 0
            self._client.end(issued=issued, exit_code=self.code, complete=complete)
        self.tell_end()
        return self.code

    def tell_end(self) -> None:
        """The last word to whoever started it."""
        with suppress(Orphaned):
            self._control.tell("ended", code=int(self.code), reason=self._reason)


def run_client(connection: socket.socket, roles: Mapping[str, Callable[[Client], Work]], now_ns: NowNs) -> int:
    """The life of a client that has a process to itself: be launched, do the role's work, complete the rows. Returns the
    exit code."""
    control = Control(connection)
    try:
        launch = launched(control)
    except Orphaned:
        return ClientExit.ORPHANED
    take(launch.rows, launch.planned)
    life = Life(control, launch, now_ns)
    try:
        with life:
            life.begin(roles).run()
    except BaseException:
        life.close()
        raise
    return life.end()


def launched(control: Control) -> Launch:
    """What it is told first. Orphaned if that does not come."""
    for command in control.until(timeout_s=LAUNCH_LIMIT_S):
        return Launch.model_validate(command["launch"])
    raise Orphaned(f"no launch within {LAUNCH_LIMIT_S} s")
