"""This machine's own record of the topics that its watches made. A later watch finds in it the topics that a killed one left
behind.

    ~/.local/state/prozess/watches/TOPIC.json     cluster, topic, the id that Kafka gave it, and whether it is kept

The watch holds a lock (flock) on the file for as long as it lives, which the kernel gives back however it ends. Therefore
a record whose lock can be had, and that is not kept, is of a watch that was killed. Its topic may be deleted if the
cluster and the topic's id are the same; a topic that only has such a name is somebody else's.
"""

import fcntl
import json
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from prozess.harness.errors import MissingTool
from prozess.harness.machine_record import private_directory

FOLDER = "watches"
RECORD_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class RecordedTopic:
    """A topic that a watch of this machine made."""

    cluster: str
    topic: str
    topic_id: UUID | None
    kept: bool = False
    """Whether the watch left it there on purpose."""

    def text(self) -> str:
        """Returns the record's file."""
        topic_id = None if self.topic_id is None else str(self.topic_id)
        return json.dumps({"cluster": self.cluster, "topic": self.topic, "id": topic_id, "kept": self.kept})


def parse_record(text: str) -> RecordedTopic | None:
    """Reads a record's file; None if it is none, as one that was being written when the machine stopped."""
    try:
        found = json.loads(text)
        topic_id = None if found["id"] is None else UUID(found["id"])
        return RecordedTopic(str(found["cluster"]), str(found["topic"]), topic_id, bool(found["kept"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


class TopicRecord:
    """The record of one watch that runs. Its methods do nothing if the record could not be made."""

    def __init__(self, topic: RecordedTopic) -> None:
        """Writes the record down and locks it, once the topic is made. `problem` says why if that is not possible."""
        self.problem = ""
        self._topic = topic
        self._descriptor: int | None = None
        try:
            self._path = private_directory(FOLDER) / f"{topic.topic}.json"
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write(topic)
        except (OSError, MissingTool) as error:
            self._give_up(str(error))

    def close(self, *, gone: bool, kept: bool) -> None:
        """Ends the record. `gone`: the topic is not there any more. `kept`: it stays on purpose."""
        if self._descriptor is None:
            return
        if gone:
            self._path.unlink(missing_ok=True)
        else:
            with suppress(OSError):
                self._write(replace(self._topic, kept=kept))
        self._give_up("")

    def _write(self, topic: RecordedTopic) -> None:
        assert self._descriptor is not None
        content = topic.text().encode()
        os.pwrite(self._descriptor, content, 0)
        os.ftruncate(self._descriptor, len(content))
        os.fsync(self._descriptor)

    def _give_up(self, problem: str) -> None:
        self.problem = problem
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@dataclass(frozen=True, slots=True)
class RecordsHere:
    """The records of this machine about the topics of its watches on one cluster."""

    alive: frozenset[str]
    """Topics of watches that run on this machine."""
    left: tuple[RecordedTopic, ...]
    """Topics of watches that were killed."""


def records_here(cluster: str) -> RecordsHere:
    """Returns this machine's records about a cluster; nothing if they cannot be read or belong to another account."""
    alive, left = set(), []
    with suppress(OSError, MissingTool):
        for path in sorted(private_directory(FOLDER).glob("*.json")):
            with suppress(OSError):
                known, locked = _read(path)
                if known is None or known.cluster != cluster or known.topic != path.stem:
                    continue
                if locked:
                    alive.add(known.topic)
                elif not known.kept:
                    left.append(known)
    return RecordsHere(frozenset(alive), tuple(left))


def forget(topic: str) -> None:
    """Removes the record of a topic that is not there any more."""
    with suppress(OSError, MissingTool):
        (private_directory(FOLDER) / f"{topic}.json").unlink(missing_ok=True)


def _read(path: Path) -> tuple[RecordedTopic | None, bool]:
    """Returns the content of a record, and whether its watch is alive."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        locked = False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            locked = True
        return parse_record(os.read(descriptor, RECORD_BYTES_MAX).decode(errors="replace")), locked
    finally:
        os.close(descriptor)
