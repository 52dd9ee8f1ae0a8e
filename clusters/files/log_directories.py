"""Reads which logs a broker keeps in its data directory, and of which topics: also of those that were deleted."""

import base64
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from prozess.harness.interfaces.witnesses import OnDisk

_NAME = re.compile(r"(?P<topic>.+)-(?P<number>\d+)(?:\.[0-9a-f]{32}-(?P<state>delete|stray|future))?")
_STATES = {None: OnDisk.SERVED, "delete": OnDisk.GOING, "stray": OnDisk.GOING}


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """Describes the directory of one log. `state`: what its broker means to do with it, by its name."""

    topic: str
    number: int
    topic_id: UUID
    state: OnDisk


def log_directories(directory: Path, topics: Collection[str]) -> Iterator[LogDirectory]:
    """Yields the logs of these topics in a broker's data directory.

    A broker renames the directory of a topic that was deleted to NAME.ID-delete, and removes it some time later; one
    that it finds and does not know becomes NAME.ID-stray. The file partition.metadata has the topic's id (KIP-516). A
    directory without one is left out, and so is one that goes while it is read. [LocalLog.logDirNameWithSuffix,
    PartitionMetadataFile]"""
    try:
        entries = sorted(directory.iterdir())
    except OSError:
        return
    for entry in entries:
        match = _NAME.fullmatch(entry.name)
        if match is None or match["topic"] not in topics or match["state"] == "future":
            continue
        if (topic_id := topic_id_of(entry)) is not None:
            yield LogDirectory(match["topic"], int(match["number"]), topic_id, _STATES[match["state"]])


def topic_id_of(log: Path) -> UUID | None:
    """Returns the id of the topic whose log is in this directory, by `partition.metadata`; None if it has none."""
    try:
        lines = dict(line.split(": ", 1) for line in (log / "partition.metadata").read_text("ascii").splitlines())
        return parse_uuid(lines["topic_id"])
    except (OSError, ValueError, KeyError):
        return None


def parse_uuid(text: str) -> UUID | None:
    """Reads an id as Kafka writes it: base 64 for addresses, without padding. None if it is none."""
    try:
        return UUID(bytes=base64.urlsafe_b64decode(f"{text}=="))
    except ValueError:
        return None
