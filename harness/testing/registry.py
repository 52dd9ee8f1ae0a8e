"""What a test's own clients say of themselves while the test goes on: which topics there are, who writes and reads them.

One file of JSON lines in the recording's directory, appended to under a lock, so that clients of several processes get
different ids. What they send and read is in their rows; this is what the plan of the test is made of afterwards.
"""

import fcntl
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

NAME = "registry.jsonl"
RECORDING_VARIABLE = "PROZESS_RECORDING"
"""Directory of the recording that clients of this process belong to, where they are not told otherwise."""
FIRST_CLIENT = 1
"""0 is the sentinel's (`harness.plan.SENTINEL_CLIENT`)."""

Kind = Literal["producer", "consumer"]
Property = str | int | float | bool


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as it was when somebody first used it."""

    name: str
    first: int
    """Dense id of its partition 0; the others follow."""
    assignment: tuple[tuple[int, ...], ...]
    """Brokers of each partition, preferred leader first."""
    properties: Mapping[str, str]

    @property
    def partitions(self) -> tuple[int, ...]:
        """Dense ids."""
        return tuple(range(self.first, self.first + len(self.assignment)))


@dataclass(slots=True)
class ClientFacts:
    """A recorded client, and what it was seen to do."""

    client: int
    kind: Kind
    pid: int
    properties: Mapping[str, Property]
    wrote: dict[str, None] = field(default_factory=dict)
    """Topics, in the order of first use."""
    read: dict[str, None] = field(default_factory=dict)
    how: dict[str, None] = field(default_factory=dict)
    """Of a consumer: subscribe, assign, commit, processing."""


class Registry:
    """Thread safe, and safe between processes."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self._lock = threading.RLock()
        self._position = 0
        self._topics: dict[str, TopicFacts] = {}
        self._clients: dict[int, ClientFacts] = {}
        self._partitions = 0

    def topic(self, name: str) -> TopicFacts | None:
        """What is known of a topic; None = nobody has told of it yet."""
        with self._lock:
            if name not in self._topics:
                self._read()
            return self._topics.get(name)

    def add_topic(self, name: str, assignment: Sequence[Sequence[int]], properties: Mapping[str, str]) -> TopicFacts:
        """Tell of a topic; whoever was first counts."""
        with self._appending() as file:
            if name not in self._topics:
                self._write(
                    file, {"topic": name, "assignment": [list(a) for a in assignment], "properties": dict(properties)}
                )
            return self._topics[name]

    def add_client(self, kind: Kind, properties: Mapping[str, Property]) -> int:
        """A new client's id."""
        with self._appending() as file:
            client = FIRST_CLIENT + len(self._clients)
            self._write(file, {"client": client, "kind": kind, "pid": os.getpid(), "properties": dict(properties)})
            return client

    def note(self, client: int, what: Literal["wrote", "read", "how"], value: str) -> None:
        """A client did something for the first time: wrote or read a topic, subscribed, committed."""
        with self._lock:
            if value in getattr(self._clients[client], what):
                return
        with self._appending() as file:
            self._write(file, {"note": client, "what": what, "value": value})

    @property
    def topics(self) -> list[TopicFacts]:
        """All of them, by dense id."""
        with self._lock:
            self._read()
            return list(self._topics.values())

    @property
    def clients(self) -> list[ClientFacts]:
        """All of them, by id."""
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
        """What was appended since; a line is taken once its end is there."""
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
            self._topics[fact["topic"]] = TopicFacts(fact["topic"], self._partitions, assignment, fact["properties"])
            self._partitions += len(assignment)
        elif "client" in fact:
            self._clients[fact["client"]] = ClientFacts(fact["client"], fact["kind"], fact["pid"], fact["properties"])
        else:
            getattr(self._clients[fact["note"]], fact["what"])[fact["value"]] = None
