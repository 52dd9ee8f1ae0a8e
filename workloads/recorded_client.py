"""What recorded clients of a test share: their identity, their heartbeat, their end; and the record header they write.

A recorded client is a confluent_kafka client in whatever process the application runs it, which writes rows as every client
of a trial does. The rows are mapped files: a SIGKILL of that process loses none.
"""

import os
import struct
import threading
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from harness.errors import BadInput, ProzessError
from harness.rows import RowWriter, read_rows
from harness.run_directory import RunDirectory
from harness.schema import CLIENTS, HEARTBEATS, MISSING, NONE, PROCESSED, READS, Isolation, ReadFlag, Role
from harness.testing.registry import RECORDING_VARIABLE, Kind, Property, Registry
from workloads.carrier import HEADER_NAME, MAGIC, VALUE_BYTES_MIN, pack_header

BEAT_S = 0.1
_ID = struct.Struct("<4sIIQI")
Headers = Sequence[tuple[str, Any]] | Mapping[str, Any] | None


OVER = "The test is over, and its history closed. Stop what still produces or consumes before the test ends."


class Sealed(ProzessError):
    """The test is over: what a client does now is recorded by nobody."""


class Recorded(Protocol):
    """A client that can be told that its test is over."""

    def seal(self, *, timeout_s: float) -> None:
        """Wait for what is under way, write the end of the rows; from then on nothing is recorded."""
        ...

    def end(self) -> None:
        """Let go of Kafka for good: it neither sends nor logs any more, whoever still holds it."""
        ...


def now_ns() -> int:
    """CLOCK_MONOTONIC, as in every row."""
    return time.monotonic_ns()


def recording_of(directory: Path | None) -> RunDirectory:
    """Where a client records. BadInput if no test records."""
    told = directory or (Path(os.environ[RECORDING_VARIABLE]) if RECORDING_VARIABLE in os.environ else None)
    if told is None or not told.is_dir():
        raise BadInput(
            f"No test records in this process ({RECORDING_VARIABLE} names no directory). Take the class from the fixture "
            "`recorded_producer` or `recorded_consumer`, or start the process from such a test."
        )
    return RunDirectory(told)


def plain(config: Mapping[str, Any]) -> dict[str, Property]:
    """The properties of a configuration, without callbacks and secrets."""
    return {
        key: value
        for key, value in config.items()
        if isinstance(value, str | int | float | bool) and "password" not in key and "secret" not in key
    }


class Life:
    """A client's row in `clients`, and its heartbeat, which a thread of the process writes: it stops with the process."""

    def __init__(
        self, run: RunDirectory, kind: Kind, properties: Mapping[str, Property], *, isolation: Isolation
    ) -> None:
        self.run, self.registry = run, Registry(run.path)
        self.client = self.registry.add_client(kind, properties)
        self.role = Role.PRODUCER if kind == "producer" else Role.READER
        self._isolation, self._started_ns = isolation, now_ns()
        self._clients = RowWriter(run.rows, CLIENTS, self.client)
        self._clients.append(*self._row(MISSING, NONE, NONE, 0))
        self._heartbeats = RowWriter(run.rows, HEARTBEATS, self.client)
        self._heartbeats.append(now_ns())
        HEART.keep(self)

    def becomes(self, role: Role) -> None:
        """It turns out to be a member of a group."""
        self.role = role
        self._clients.rewrite(0, *self._row(MISSING, NONE, NONE, 0))

    def beat(self) -> None:
        """By the heart's thread alone."""
        self._heartbeats.append(now_ns())

    def end(self, *, issued: int) -> None:
        """In order: every table was written to its end."""
        HEART.let_go(self)
        self._clients.rewrite(0, *self._row(now_ns(), issued, 0, 1))
        self._clients.close()

    def _row(self, ended_ns: int, issued: int, exit_code: int, complete: int) -> list[int]:
        values = {
            "started_ns": self._started_ns,
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


class Heart:
    """One thread of a process, which beats for all its recorded clients."""

    def __init__(self) -> None:
        self._lives: list[Life] = []
        self._lock = threading.Lock()
        self._pid = 0

    def keep(self, life: Life) -> None:
        """Beat for it, too."""
        with self._lock:
            if self._pid != os.getpid():  # a fork has neither the thread nor the clients
                self._lives, self._pid = [], os.getpid()
                threading.Thread(target=self._beat, name="prozess-heartbeat", daemon=True).start()
            self._lives.append(life)

    def let_go(self, life: Life) -> None:
        """No more."""
        with self._lock:
            if life in self._lives:
                self._lives.remove(life)

    def _beat(self) -> None:
        pause = threading.Event()
        while not pause.wait(BEAT_S):
            with self._lock:
                for life in self._lives:
                    life.beat()


HEART = Heart()
_CLIENTS: dict[Path, list[Recorded]] = {}


def remember(run: RunDirectory, client: Recorded) -> None:
    """It is to be sealed when its test is over, and ended when its fixtures are."""
    _CLIENTS.setdefault(run.path, []).append(client)


def seal(run: RunDirectory, *, timeout_s: float) -> None:
    """All clients of this process that record there: wait for what they have under way, and end their rows."""
    until_ns = now_ns() + int(timeout_s * 1e9)
    for client in _CLIENTS.get(run.path, []):
        client.seal(timeout_s=max(0.0, (until_ns - now_ns()) / 1e9))


def end(run: RunDirectory, *, timeout_s: float) -> None:
    """All clients of this process that recorded there, sealed before. pytest keeps what a failed test had, and so whatever
    client it did not close. One that takes longer, because its cluster is gone, is left to a thread of its own."""
    until_ns = now_ns() + int(timeout_s * 1e9)
    ending = [
        threading.Thread(target=client.end, name="prozess-end", daemon=True) for client in _CLIENTS.pop(run.path, [])
    ]
    for thread in ending:
        thread.start()
    for thread in ending:
        thread.join(max(0.0, (until_ns - now_ns()) / 1e9))


# --- the record header --------------------------------------------------------------------------------------------------


def identity(sender: int, partition: int, sequence: int) -> bytes:
    """The value of the header `prozess`: as a value of ours (`workloads.carrier`), of the least size."""
    head = pack_header(sender, partition, sequence, VALUE_BYTES_MIN)
    return head + zlib.crc32(head).to_bytes(4, "little")


def identity_in(value: bytes | None) -> tuple[int, int, int, int]:
    """(sender, sent partition, sequence, ReadFlag bits) by that header. Without it the record is somebody else's."""
    if value is None:
        return NONE, NONE, NONE, int(ReadFlag.ANONYMOUS)
    if len(value) == VALUE_BYTES_MIN:
        magic, sender, partition, sequence, length = _ID.unpack_from(value)
        whole = zlib.crc32(value[:-4]) == int.from_bytes(value[-4:], "little")
        if whole and magic == MAGIC and length == VALUE_BYTES_MIN:
            return sender, partition, sequence, 0
    return NONE, NONE, NONE, int(ReadFlag.CORRUPT)


def with_identity(headers: Headers, value: bytes) -> list[tuple[str, Any]]:
    """The headers of a record to be sent, ours last; one that was handed on from a record that was read is dropped."""
    given: Iterable[tuple[str, Any]] = headers.items() if isinstance(headers, Mapping) else headers or ()
    return [*((name, held) for name, held in given if name != HEADER_NAME), (HEADER_NAME, value)]


# --- after the test -----------------------------------------------------------------------------------------------------


def fill_processed(run: RunDirectory, clients: Iterable[int], group: int) -> None:
    """Rows of `processed` for members that said nothing of processing: what they were given counts as processed then."""
    for client in clients:
        reads, _ = read_rows(run.rows, READS, client)
        if not len(reads) or (run.rows / f"{PROCESSED.name}.{client}.0.rows").exists():
            continue
        writer = RowWriter(run.rows, PROCESSED, client)
        columns = {name: np.asarray(reads[name]) for name in ("log_offset", "sequence", "sender", "partition", "span")}
        columns |= {"started_ns": np.asarray(reads["read_ns"]), "done_ns": np.asarray(reads["read_ns"])}
        writer.extend({**columns, "group": np.full(len(reads), group, dtype=np.int32)})
        writer.close()
