"""The base of all recorded clients: their identity, their heartbeat, their end, the record header that they write, and
the points at which a test crashes its application.

A recorded client is a confluent_kafka client, in any process of the application, that writes rows as every client of
a trial does. The rows are mapped files: a SIGKILL of that process loses none.
"""

import ctypes
import functools
import os
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from logging import getLevelName
from pathlib import Path
from typing import Any, Protocol

from prozess.harness.config.existing_clusters import OF_LOGGING_IN, may_be_written
from prozess.harness.errors import BadInput, ProzessError
from prozess.harness.interfaces.application import (
    RECORDING_VARIABLE,
    ClientKind,
    CrashPoints,
    Property,
    Registry,
    When,
    points_of_this_process,
)
from prozess.harness.recording.rows import RowWriter
from prozess.harness.recording.verifiable_output import foreign_identity
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import CLIENTS, HEARTBEATS, MISSING, NONE, Isolation, ReadFlag, Role
from prozess.workloads.record.identity import HEADER_NAME, MAGIC, VALUE_BYTES_MIN, pack_header, without_token

BEAT_S = 0.1
_ID = struct.Struct("<4sIIQI")
_REACHING = ("bootstrap.servers", "metadata.broker.list", "oauth_cb", *OF_LOGGING_IN)
Headers = Sequence[tuple[str, Any]] | Mapping[str, Any] | None


IDENTITY_NAME = "prozess-identity"
"""The record header with the identity that the application gives a record: two sends with one identity are one message, sent
twice."""
OUR_HEADERS = frozenset((HEADER_NAME, IDENTITY_NAME))
TEST_IS_OVER = "The test is over, and its history closed. Stop what still produces or consumes before the test ends."


class ClientSealed(ProzessError):
    """The test is over, so nobody would record what a client does now."""


class Sealable(Protocol):
    """A client that can learn that its test is over."""

    def seal(self, *, timeout_s: float) -> None:
        """Waits for what is under way, and writes the end of the rows. From then on nothing is recorded."""
        ...

    def end(self) -> None:
        """Ends the connection to Kafka: the client neither sends nor logs any more, even if the application still holds
        it."""
        ...


def now_ns() -> int:
    """Returns CLOCK_MONOTONIC in nanoseconds, the clock of every row."""
    return time.monotonic_ns()


def recording_of(directory: Path | None) -> RunDirectory:
    """Returns the directory in which a client records. BadInput if no test records."""
    found = directory or (Path(os.environ[RECORDING_VARIABLE]) if RECORDING_VARIABLE in os.environ else None)
    if found is None or not found.is_dir():
        raise BadInput(
            f"No test records in this process ({RECORDING_VARIABLE} names no directory). Take the class from the fixture "
            "`recorded_producer` or `recorded_consumer`, or start the process from such a test."
        )
    return RunDirectory(found)


def _is_text(value: object) -> bool:
    return isinstance(value, str | int | float | bool)


def properties_to_record(config: Mapping[str, Any]) -> dict[str, Property]:
    """Returns the properties of a configuration that may be written down: no callbacks, and none that could be a
    secret."""
    return {key: value for key, value in may_be_written(config).items() if _is_text(value)}


def properties_to_connect(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the properties that say where the brokers are and how to log in. They are kept in memory alone, never
    written."""
    return {key: value for key, value in config.items() if key.startswith(_REACHING)}


class RecordedLife:
    """A recorded client's row in `clients` and its heartbeat. A thread of the process writes the heartbeat, so it
    stops with the process."""

    def __init__(self, run: RunDirectory, kind: ClientKind, config: Mapping[str, Any], *, isolation: Isolation) -> None:
        properties = properties_to_record(config)
        self.reaching = properties_to_connect(config)
        _LOGINS[run.path] = {k: v for k, v in self.reaching.items() if k.startswith(OF_LOGGING_IN) and _is_text(v)}
        self.run, self.registry = run, Registry(run.path)
        self.on_beat: Callable[[], None] | None = None
        """Further work with each heartbeat."""
        self.token = self.registry.token
        self.client = self.registry.add_client(kind, properties)
        self.role = Role.PRODUCER if kind == "producer" else Role.READER
        self._isolation, self.started_ns = isolation, now_ns()
        self._clients = RowWriter(run.rows, CLIENTS, self.client)
        self._clients.append(*self._row(MISSING, NONE, NONE, 0))
        self._heartbeats = RowWriter(run.rows, HEARTBEATS, self.client)
        self._heartbeats.append(now_ns())
        HEARTBEAT_THREAD.keep(self)

    def becomes(self, role: Role) -> None:
        """Changes the role of the client, for example to a member of a group."""
        self.role = role
        self._clients.rewrite(0, *self._row(MISSING, NONE, NONE, 0))

    def beat(self) -> None:
        """Writes a heartbeat. Only the heart's thread calls it."""
        self._heartbeats.append(now_ns())
        if self.on_beat is not None:
            self.on_beat()

    def end(self, *, issued: int) -> None:
        """Completes the client's row: every table was written to its end."""
        HEARTBEAT_THREAD.let_go(self)
        self._clients.rewrite(0, *self._row(now_ns(), issued, 0, 1))
        self._clients.close()

    def _row(self, ended_ns: int, issued: int, exit_code: int, complete: int) -> list[int]:
        values = {
            "started_ns": self.started_ns,
            "ended_ns": ended_ns,
            "issued": issued,
            "role": self.role,
            "isolation": self._isolation,
            "exit_code": exit_code,
            "os_pid": os.getpid(),
            "planned": self.client,
            "clock": 0,
            "complete": complete,
        }
        return [int(values[column.name]) for column in CLIENTS.columns]


class HeartbeatThread:
    """One thread of a process, which writes the heartbeats of all its recorded clients."""

    def __init__(self) -> None:
        self._lives: list[RecordedLife] = []
        self._lock = threading.Lock()
        self._pid = 0

    def keep(self, life: RecordedLife) -> None:
        """Begins to write heartbeats for a client."""
        with self._lock:
            if self._pid != os.getpid():  # a fork has neither the thread nor the clients
                self._lives, self._pid = [], os.getpid()
                threading.Thread(target=self._beat, name="prozess-heartbeat", daemon=True).start()
            self._lives.append(life)

    def let_go(self, life: RecordedLife) -> None:
        """Stops writing heartbeats for a client."""
        with self._lock:
            if life in self._lives:
                self._lives.remove(life)

    def _beat(self) -> None:
        pause = threading.Event()
        while not pause.wait(BEAT_S):
            with self._lock:
                for life in self._lives:
                    life.beat()


HEARTBEAT_THREAD = HeartbeatThread()
_CLIENTS: dict[Path, list[Sealable]] = {}
_LOGINS: dict[Path, dict[str, str]] = {}
"""How the clients of this process log in, by the directory of their recording."""


def recorded_login(run: RunDirectory) -> Mapping[str, str] | None:
    """Returns how the newest client of this process that recorded there logs in; None if none did so."""
    return _LOGINS.get(run.path) or None


def remember_client(run: RunDirectory, client: Sealable) -> None:
    """Remembers a client, to be sealed when its test is over and ended when its fixtures are."""
    _CLIENTS.setdefault(run.path, []).append(client)


def seal_clients(run: RunDirectory, *, timeout_s: float) -> None:
    """Seals all clients of this process that record there: waits for what they have under way, and ends their rows."""
    until_ns = now_ns() + int(timeout_s * 1e9)
    for client in _CLIENTS.get(run.path, []):
        client.seal(timeout_s=max(0.0, (until_ns - now_ns()) / 1e9))


def end_clients(run: RunDirectory, *, timeout_s: float) -> None:
    """Ends all clients of this process that recorded there. They were sealed before. pytest keeps what a failed test
    had, and so whatever client it did not close. One that takes longer, because its cluster is gone, is left to a
    thread of its own."""
    until_ns = now_ns() + int(timeout_s * 1e9)
    ending = [
        threading.Thread(target=client.end, name="prozess-end", daemon=True) for client in _CLIENTS.pop(run.path, [])
    ]
    for thread in ending:
        thread.start()
    for thread in ending:
        thread.join(max(0.0, (until_ns - now_ns()) / 1e9))


# The record header.


def identity(sender: int, partition: int, sequence: int, token: bytes = b"") -> bytes:
    """Returns the value of the header `prozess`, which has the form of a value of ours with the least size
    (`prozess.workloads.record.identity`), and the token of the test behind it."""
    head = pack_header(sender, partition, sequence, VALUE_BYTES_MIN)
    return head + zlib.crc32(head).to_bytes(4, "little") + token


def identity_in(value: bytes | None, token: bytes = b"") -> tuple[int, int, int, int]:
    """Returns (sender, sent partition, sequence, ReadFlag bits) of that header. A record without it, or with
    the token of another test, is of an unknown producer."""
    value = without_token(value, token)
    if value is None:
        return NONE, NONE, NONE, int(ReadFlag.ANONYMOUS)
    if len(value) == VALUE_BYTES_MIN:
        magic, sender, partition, sequence, length = _ID.unpack_from(value)
        whole = zlib.crc32(value[:-4]) == int.from_bytes(value[-4:], "little")
        if whole and magic == MAGIC and length == VALUE_BYTES_MIN:
            return sender, partition, sequence, 0
    return NONE, NONE, NONE, int(ReadFlag.CORRUPT)


def identity_of_command(registry: Registry, value: object) -> tuple[int, int] | None:
    """Returns (sender, sequence) of a record of a `recorded_command` program: its value is "prefix.n", and the prefix is its
    client's id. None for any other record."""
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    sender, sequence = foreign_identity(text)
    if sender == NONE or not any(client.client == sender and client.is_command for client in registry.clients):
        return None
    return sender, sequence


def with_identity(headers: Headers, value: bytes, taken_for: bytes | None = None) -> list[tuple[str, Any]]:
    """Returns the headers of a record to be sent, ours last. Headers of prozess on a forwarded record are dropped.
    `taken_for`: the identity that the application gives the record."""
    given: Iterable[tuple[str, Any]] = headers.items() if isinstance(headers, Mapping) else headers or ()
    ours = [(HEADER_NAME, value)] if taken_for is None else [(HEADER_NAME, value), (IDENTITY_NAME, taken_for)]
    return [*((name, held) for name, held in given if name not in OUR_HEADERS), *ours]


# Log lines of librdkafka go into the run's folder, and not between the output of a user's tests.
#
# Without a logger it writes to standard error, from a thread of its own. Given a logger, confluent_kafka has librdkafka keep
# the lines in the client's queue (`rd_kafka_set_log_queue` in Producer.c and Consumer.c), and hands them over in
# `poll`, `flush` and `consume`; so nothing is called from a foreign thread, and a client is not slowed down.


NAME = "clients.log"


# After any call of Python's own interface ctypes raises the exception that waits in this thread. The call itself is nothing.
raise_pending = ctypes.pythonapi.PyErr_Occurred
raise_pending.restype = None


class ClientLog:
    """Writes librdkafka's own lines into the run's folder, in place of a `logging.Logger`. confluent_kafka calls `log`
    alone. No file stays open between lines."""

    def __init__(self, run: RunDirectory) -> None:
        self._path = run.logs / NAME

    def log(self, level: int, message: str, *values: object) -> None:
        """Writes one line: when it was handed over, its level, and its text. The binding calls it, too, while its exception
        of a fatal error waits to be raised: that is raised after the line is written."""
        try:
            raise_pending()
        finally:
            self._write(level, message, values)

    def _write(self, level: int, message: str, values: tuple[object, ...]) -> None:
        text = message % values if values else message
        line = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z {getLevelName(level)} {text}\n"
        with self._path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(line)


def logger_for(run: RunDirectory, config: Mapping[str, Any], more: MutableMapping[str, Any]) -> dict[str, Any]:
    """Returns the `logger` that a client is made with: the user's own, else one that writes into the run's folder. It
    is taken out of `more`."""
    if config.get("logger") is not None:
        return {}
    given = more.pop("logger", None)
    return {"logger": ClientLog(run) if given is None else given}


# Where a test asks for it, the recorded clients of its application crash that application
# (`prozess.harness.interfaces.application`).


_recording = os.environ.get(RECORDING_VARIABLE)
_POINTS: CrashPoints | None = points_of_this_process(None if _recording is None else Path(_recording))


def crash_at(when: When, step: str) -> None:
    """Crashes the application, and does not return, if its test wants it to crash here."""
    if _POINTS is not None:
        _POINTS.at(when, step)


def crashes_at(client: type, methods: Mapping[str, str]) -> None:
    """Makes methods of a recorded client the steps at which its application can be crashed: name of the method → step."""
    if _POINTS is None:  # not an application that a test has started: it has nothing to crash
        return
    for name, step in methods.items():
        original = getattr(client, name)
        wrapped = _awaited(original, step) if iscoroutinefunction(original) else _called(original, step)
        setattr(client, name, wrapped)


def _called(original: Callable[..., Any], step: str) -> Callable[..., Any]:
    if step == "process":
        return _block(original, step)

    @functools.wraps(original)
    def method(*given: object, **more: object) -> object:
        if step != "receive":
            crash_at("before", step)
        result = original(*given, **more)
        if step != "receive" or _has_records(result):
            crash_at("after", step)
        return result

    return method


def _awaited(original: Callable[..., Any], step: str) -> Callable[..., Any]:
    @functools.wraps(original)
    async def method(*given: object, **more: object) -> object:
        if step != "receive":
            crash_at("before", step)
        result = await original(*given, **more)
        if step != "receive" or _has_records(result):
            crash_at("after", step)
        return result

    return method


def _block(original: Callable[..., Any], step: str) -> Callable[..., Any]:
    @functools.wraps(original)
    @contextmanager
    def method(*given: object, **more: object) -> Iterator[object]:
        crash_at("before", step)
        with original(*given, **more) as held:
            yield held
        crash_at("after", step)

    return method


def _has_records(given: object) -> bool:
    """Says whether a method that reads gave any record: a record, several of them, or several by partition."""
    if isinstance(given, Mapping):  # aiokafka's getmany
        return any(given.values())
    records = given if isinstance(given, list) else [given]
    return any(r is not None and (not hasattr(r, "error") or r.error() is None) for r in records)
