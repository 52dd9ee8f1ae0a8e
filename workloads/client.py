"""The inside of a client process: its control pipe, its heartbeat, its row in `clients`, its log.

A client process has one thread of ours (librdkafka has its own). It ends when it is told to, when its work is done, when its
Kafka client dies, when the disk is full, or when whoever started it is gone: then its control pipe is at its end. Each has
its own exit code.
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
from typing import Any, Protocol, TypeVar

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

    def __init__(self, launch: Launch, control: Control, now_ns: NowNs) -> None:
        self.spec, self.rows, self.control, self.now_ns = launch.spec, launch.rows, control, now_ns
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
            sys.stderr.write(f"{self.now_ns() / 1e9:.3f} {text}\n")
            sys.stderr.flush()
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


def run_client(connection: socket.socket, roles: Mapping[str, Callable[[Client], Work]], now_ns: NowNs) -> int:
    """The life of a client process: be launched, do the role's work, complete the rows. Returns the exit code."""
    control = Control(connection)
    try:
        launch = _launched(control)
    except Orphaned:
        return ClientExit.ORPHANED
    client: Client | None = None
    work: Work | None = None
    reason = ""
    take(launch.rows, launch.planned)
    try:
        client = Client(launch, control, now_ns)
        work = roles[launch.spec.role](client)
        control.tell("ready", os_pid=os.getpid())
        work.run()
        code = ClientExit.CLEAN
    except FatalClient as error:
        code, reason = ClientExit.FATAL, f"{error.what}: {error}"
    except StorageFull as error:
        code, reason = ClientExit.STORAGE_FULL, str(error)
    except Orphaned:
        code, reason = ClientExit.ORPHANED, "whoever started this client is gone"
    except KafkaException as error:
        if work is not None:
            raise
        code, reason = ClientExit.REFUSED, f"librdkafka refuses the configuration: {error.args[0].str()}"
    finally:
        if work is not None:
            work.close()
    if client is not None:
        if reason:
            client.log(reason)
        # A client that died has told all it did; only a full disk leaves a table short.
        complete = code in (ClientExit.CLEAN, ClientExit.FATAL, ClientExit.ORPHANED)
        client.end(issued=work.issued() if work else 0, exit_code=code, complete=complete)
    with suppress(Orphaned):
        control.tell("ended", code=int(code), reason=reason)
    return code


def _launched(control: Control) -> Launch:
    for command in control.until(timeout_s=LAUNCH_LIMIT_S):
        return Launch.model_validate(command["launch"])
    raise Orphaned(f"no launch within {LAUNCH_LIMIT_S} s")
