"""A test's own clients register here while the test runs: which topics there are, and who writes and reads them. It is
also written here where an application is to crash.

The register is one file of JSON lines in the directory of the recording. Clients of several processes append to it
under a lock, so that their ids differ. What they send and read is in their recorded rows. The plan of the test is made
from this file afterwards.
"""

import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from prozess.harness.errors import BadInput
from prozess.harness.run_directory import write_json
from prozess.harness.schema import NONE
from prozess.harness.suggestions import did_you_mean

REGISTRY_NAME = "registry.jsonl"
RECORDING_VARIABLE = "PROZESS_RECORDING"
"""The directory of the recording that the clients of this process belong to, unless they learn another one."""
FIRST_CLIENT = 1
"""The lowest id of a client. 0 belongs to the sentinel (`prozess.harness.plan.plan.SENTINEL_CLIENT`)."""

ClientKind = Literal["producer", "consumer"]
Property = str | int | float | bool


@dataclass(frozen=True, slots=True)
class RegisteredTopic:
    """A topic as it was when a client first used it."""

    name: str
    first: int
    """The dense id of partition 0. The other partitions follow it."""
    assignment: tuple[tuple[int, ...], ...]
    """The broker ids of each partition, preferred leader first."""
    properties: Mapping[str, str]

    @property
    def partitions(self) -> tuple[int, ...]:
        """Returns the dense ids of the partitions."""
        return tuple(range(self.first, self.first + len(self.assignment)))


@dataclass(slots=True)
class RegisteredClient:
    """A recorded client of a test, and what it was seen to do."""

    client: int
    kind: ClientKind
    pid: int
    properties: Mapping[str, Property]
    wrote: dict[str, None] = field(default_factory=dict)
    """The topics that it wrote, in the order of first use."""
    read: dict[str, None] = field(default_factory=dict)
    how: dict[str, None] = field(default_factory=dict)
    """What the client was seen to use. For a consumer: subscribe, assign, commit, processing, effects, handed-over. For
    a producer: identity. For either: command, which is a program that prints what it does
    (`prozess.testing.application`)."""
    hazards: dict[str, None] = field(default_factory=dict)
    """The commits of a consumer that came before an effect of a record which they cover, as JSON
    (`prozess.testing.recorded.processing_steps`)."""
    doubts: dict[str, None] = field(default_factory=dict)
    """The lines that a program printed and that prozess did not understand."""
    silences: dict[str, None] = field(default_factory=dict)
    """SECONDS@SINCE: for how long a program that produces ran on without a word of any send, until it was ended, and since
    when (monotonic, in ns)."""
    application: str = ""
    """The application of the test that the client belongs to, and which of its lives. It is empty if the test's fixture
    did not start the application."""

    @property
    def is_command(self) -> bool:
        """Says whether the client is a program that prints what it does."""
        return "command" in self.how


class Registry:
    """The register of a test's topics and clients. Several threads and several processes may use it at once."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / REGISTRY_NAME
        self._lock = threading.RLock()
        self._position = 0
        self._topics: dict[str, RegisteredTopic] = {}
        self._clients: dict[int, RegisteredClient] = {}
        self._partitions = 0
        self._token = ""

    def begin(self, token: bytes) -> None:
        """Notes the token of the test. The records of its clients carry it, which distinguishes them from those of other
        tests in the same topic."""
        with self._appending() as file:
            self._write(file, {"token": token.hex()})

    @property
    def token(self) -> bytes:
        """Returns the token of the test; nothing if it has none."""
        with self._lock:
            if not self._token:
                self._read()
            return bytes.fromhex(self._token)

    def topic(self, name: str) -> RegisteredTopic | None:
        """Returns what is known about a topic. None if no client has registered it yet."""
        with self._lock:
            if name not in self._topics:
                self._read()
            return self._topics.get(name)

    def add_topic(
        self, name: str, assignment: Sequence[Sequence[int]], properties: Mapping[str, str]
    ) -> RegisteredTopic:
        """Registers a topic, unless it is registered already. Returns what was registered first."""
        with self._appending() as file:
            if name not in self._topics:
                self._write(
                    file, {"topic": name, "assignment": [list(a) for a in assignment], "properties": dict(properties)}
                )
            return self._topics[name]

    def add_client(self, kind: ClientKind, properties: Mapping[str, Property]) -> int:
        """Registers a client, and returns its new id."""
        with self._appending() as file:
            client = FIRST_CLIENT + len(self._clients)
            self._write(
                file,
                {
                    "client": client, "kind": kind, "pid": os.getpid(), "properties": dict(properties),
                    "application": os.environ.get(APPLICATION_VARIABLE, ""),
                },
            )  # fmt: skip
            return client

    def note(
        self, client: int, what: Literal["wrote", "read", "how", "hazards", "doubts", "silences"], value: str
    ) -> None:
        """Notes what a client did for the first time: wrote or read a topic, subscribed, committed."""
        with self._lock:
            if value in getattr(self._clients[client], what):
                return
        with self._appending() as file:
            self._write(file, {"note": client, "what": what, "value": value})

    @property
    def topics(self) -> list[RegisteredTopic]:
        """Returns all registered topics, ordered by dense id."""
        with self._lock:
            self._read()
            return list(self._topics.values())

    @property
    def clients(self) -> list[RegisteredClient]:
        """Returns all registered clients, ordered by id."""
        with self._lock:
            self._read()
            return list(self._clients.values())

    @contextmanager
    def _appending(self) -> Iterator[IO[str]]:
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # let go when the file is closed
            self._read()
            yield file

    def _write(self, file: IO[str], fact: Mapping[str, Any]) -> None:
        file.write(json.dumps(fact) + "\n")
        file.flush()
        self._read()

    def _read(self) -> None:
        """Reads what was appended to the file since the last call. A line counts once its end is there."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            whole, end, _ = file.read().rpartition(b"\n")
        self._position += len(whole) + len(end)
        for line in whole.splitlines():
            self._take(json.loads(line))

    def _take(self, fact: Mapping[str, Any]) -> None:
        if "topic" in fact:
            assignment = tuple(tuple(brokers) for brokers in fact["assignment"])
            self._topics[fact["topic"]] = RegisteredTopic(
                fact["topic"], self._partitions, assignment, fact["properties"]
            )
            self._partitions += len(assignment)
        elif "token" in fact:
            self._token = fact["token"]
        elif "client" in fact:
            self._clients[fact["client"]] = RegisteredClient(
                fact["client"], fact["kind"], fact["pid"], fact["properties"], application=fact.get("application", "")
            )
        else:
            getattr(self._clients[fact["note"]], fact["what"])[fact["value"]] = None


# Crash points: a test asks that an application crashes between two of its own steps.
#
# The test writes the points to a file in the folder of the recording. The recorded clients in the processes of the
# application look at that file at each of their steps, which costs a `stat`. A process that reaches a point writes this
# to a second file and kills the application with SIGKILL. Therefore no handler runs, no buffer is flushed, nothing is closed.


APPLICATION_VARIABLE = "PROZESS_APPLICATION"
"""The environment variable that says to which application of the test this process belongs, and in which of its lives:
NAME#1, NAME#2, …"""
POINTS = "crash_points.json"
REACHED = "crash_points_reached.jsonl"
When = Literal["before", "after"]
STEPS = {
    "produce": "a record is handed to the client",
    "deliver": "an acknowledgement is reported to the application",
    "flush": "the application waits for its records to be acknowledged",
    "receive": "poll or consume gives records",
    "process": "the block of `with consumer.processing(…)`",
    "commit": "offsets are committed",
    "begin_transaction": "a transaction is begun",
    "send_offsets_to_transaction": "offsets are sent within a transaction",
    "commit_transaction": "a transaction is committed",
    "abort_transaction": "a transaction is aborted",
}


@dataclass(frozen=True, slots=True)
class Point:
    """One place in an application's work at which it is to crash, such as before its second commit."""

    number: int
    when: When
    step: str
    nth: int
    application: str | None
    """The name of the application. None means whichever reaches the point first."""

    def __str__(self) -> str:
        """Returns the point as words, as in "the crash before its 2nd commit"."""
        return f"{self.when} its {_ordinal(self.nth)} {self.step}"


@dataclass(frozen=True, slots=True)
class ReachedPoint:
    """Describes what a process writes down when it reaches a point, just before it is killed."""

    number: int
    life: str
    pid: int
    time_ns: int


def checked_point(number: int, when: When, step: str, nth: int, application: str | None) -> Point:
    """Returns a point that an application can reach. BadInput if there is no such point."""
    if step not in STEPS:
        hint = did_you_mean(step, STEPS, otherwise=f"Known: {', '.join(STEPS)}.")
        raise BadInput(f"crash.{when}({step!r}): there is no such step; {hint}")
    if step == "receive" and when == "before":
        raise BadInput(
            'crash.before("receive"): nobody knows a record before it is given. Give crash.after("receive").'
        )
    if nth < 1:
        raise BadInput(f"crash.{when}({step!r}, nth={nth}): the first time is 1. Give a positive number.")
    return Point(number, when, step, nth, application)


def write_points(directory: Path, points: Sequence[Point]) -> None:
    """Writes the points to the file where the processes of the application look for them."""
    write_json(directory / POINTS, [asdict(point) for point in points])


def read_points(directory: Path) -> list[Point]:
    """Returns the points that the test asked for, or an empty list if it asked for none."""
    try:
        points = json.loads((directory / POINTS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return [Point(**fields) for fields in points]


def read_reached(directory: Path) -> list[ReachedPoint]:
    """Returns the points that were reached, in that order."""
    try:
        text = (directory / REACHED).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [ReachedPoint(**json.loads(line)) for line in text.splitlines()]


def kill_application() -> None:
    """Kills all processes of the application at once. The application leads a process group of its own."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


class CrashPoints:
    """The points at which one process of an application is to crash. Each counts from when the process began, or
    learned of it."""

    def __init__(self, directory: Path, life: str, *, now_ns: Callable[[], int], kill: Callable[[], None]) -> None:
        self._directory, self._life, self._now_ns, self._kill = directory, life, now_ns, kill
        self._name = life.rpartition("#")[0]
        self._lock = threading.Lock()
        self._seen: tuple[int, int] | None = None
        self._points: list[Point] = []
        self._times: dict[int, int] = {}

    def at(self, when: When, step: str) -> None:
        """Says that the process is at this step. It does not return if the process is to crash here."""
        with self._lock:
            self._look()
            for point in self._points:
                if (point.when, point.step) == (when, step):
                    self._times[point.number] = self._times.get(point.number, 0) + 1
                    if self._times[point.number] == point.nth:
                        self._strike(point)

    def _look(self) -> None:
        try:
            status = (self._directory / POINTS).stat()
        except FileNotFoundError:
            return
        if (status.st_mtime_ns, status.st_ino) != self._seen:
            self._seen = (status.st_mtime_ns, status.st_ino)
            over = {reached.number for reached in read_reached(self._directory)}
            self._points = [
                p for p in read_points(self._directory) if p.number not in over and p.application in (None, self._name)
            ]

    def _strike(self, point: Point) -> None:
        reached = ReachedPoint(point.number, self._life, os.getpid(), self._now_ns())
        file = os.open(self._directory / REACHED, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, json.dumps(asdict(reached)).encode() + b"\n")
        finally:
            os.close(file)
        self._kill()


def points_of_this_process(directory: Path | None) -> CrashPoints | None:
    """Returns the points of this process. None if no fixture of a test started it: a test never crashes its own
    process."""
    life = os.environ.get(APPLICATION_VARIABLE)
    if life is None or directory is None:
        return None
    return CrashPoints(directory, life, now_ns=time.monotonic_ns, kill=kill_application)


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


# The records of a topic, which prozess reads itself when the test is over and gives to functions of the test.


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it is in the log of a topic, read at read_committed when the test was over. The functions of a test
    are given it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """The headers that the application wrote itself."""
    timestamp_ms: int = 0
    sender: int = field(default=NONE, repr=False)
    """The id of the recorded client that sent the record. NONE means that somebody else did."""
    sequence: int = field(default=NONE, repr=False)
    identity: bytes | None = field(default=None, repr=False)
    """The identity that its producer gave the record (`recorded_producer(…, identity=…)`)."""

    @property
    def position(self) -> str:
        """Returns topic, partition and offset as words."""
        return f"{self.topic}/{self.partition}, offset {self.offset}"


@dataclass(frozen=True, slots=True)
class Contents:
    """The records of one topic, partition by partition in the order of the log."""

    records: tuple[Record, ...]
    incomplete: str = ""
    """Why these are not all records that were ever in the topic, as a clause. Empty means that they are all."""
