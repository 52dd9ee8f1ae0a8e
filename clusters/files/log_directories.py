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
        if (topic_id := _topic_id(entry / "partition.metadata")) is not None:
            yield LogDirectory(match["topic"], int(match["number"]), topic_id, _STATES[match["state"]])


def _topic_id(path: Path) -> UUID | None:
    try:
        lines = dict(line.split(": ", 1) for line in path.read_text(encoding="ascii").splitlines())
        return UUID(bytes=base64.urlsafe_b64decode(lines["topic_id"] + "=="))
    except (OSError, ValueError, KeyError):
        return None
