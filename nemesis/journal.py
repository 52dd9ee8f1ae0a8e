"""The undo journal: what would undo each fault, on disk before the fault is made.

One JSON object per line, each complete in itself; the last line of an id is its state:

    {"id": 3, "number": 1, "step_number": 4, "step": "kill the leader", "fault": "kill", "targets": ["broker-1"],
     "undo": {"action": "start", "node": "broker-1", "peer": null}, "state": "planned"}

Readable after a SIGKILL at any moment. A torn last line is one whose write never returned: of a fault that was not made yet,
or of a mark, without which the undo is only done once more.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import ValidationError

from harness.configuration import Frozen
from harness.errors import StorageFull
from harness.protocols import Undo
from harness.run_directory import RunDirectory


class UndoState(StrEnum):
    """How far a fault and its undo are."""

    PLANNED = "planned"
    """Journaled; the fault may or may not have been made."""
    APPLIED = "applied"
    UNDONE = "undone"
    """Undone, and observed to be."""


class JournalEntry(Frozen):
    """One undo of one fault."""

    id: int
    number: int
    """Of the fault within the run: 0, 1, …"""
    step_number: int
    step: str
    """Name of the step."""
    fault: str
    targets: tuple[str, ...]
    """Names of the nodes that the fault was aimed at (not those on the other side of a cut)."""
    undo: Undo
    state: UndoState = UndoState.PLANNED


@dataclass(frozen=True, slots=True)
class JournalContents:
    """What a journal says. `unreadable`: lines that are no entry, a torn last one not counted."""

    entries: tuple[JournalEntry, ...]
    """The last state of each id, in the order they were planned."""
    unreadable: int = 0

    @property
    def open(self) -> tuple[JournalEntry, ...]:
        """What is not known to be undone."""
        return tuple(entry for entry in self.entries if entry.state is not UndoState.UNDONE)


def read_journal(path: Path) -> JournalContents:
    """The journal at `path`; a missing file is an empty one: nothing was ever broken. OSError if it cannot be read."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return JournalContents(())
    entries: dict[int, JournalEntry] = {}
    unreadable = 0
    for line in lines[:-1]:  # What follows the last newline is torn, or empty.
        try:
            entry = JournalEntry.model_validate_json(line)
        except ValidationError:
            unreadable += 1
            continue
        entries[entry.id] = entry
    return JournalContents(tuple(entries.values()), unreadable)


def open_faults(run: RunDirectory) -> list[str]:
    """What is broken now, "kill broker-2", in the order it was planned. Reads only: for whoever watches a run."""
    entries = read_journal(run.journal).open
    return list(dict.fromkeys(f"{entry.fault} {', '.join(entry.targets)}" for entry in entries))


class Journal:
    """Appends to one run's journal. One writer at a time."""

    def __init__(self, path: Path) -> None:
        """Go on with what is there; a torn last line is cut off, so that the next one starts on its own."""
        self._path = path
        _cut_torn_line(path)
        self._entries = {entry.id: entry for entry in read_journal(path).entries}

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """Every entry in its present state, in the order they were planned."""
        return tuple(self._entries.values())

    @property
    def open(self) -> tuple[JournalEntry, ...]:
        """What is not undone, in the order it was planned."""
        return JournalContents(self.entries).open

    @property
    def next_number(self) -> int:
        """The number of the next fault."""
        return max((entry.number for entry in self._entries.values()), default=-1) + 1

    def plan(
        self,
        undos: Sequence[Undo],
        *,
        number: int,
        step_number: int,
        step: str,
        fault: str,
        targets: Sequence[str],
    ) -> list[JournalEntry]:
        """Write what will undo a fault. On return it is on the disk (fsync), and the fault may be made. StorageFull if it
        cannot be."""
        first = max(self._entries, default=-1) + 1
        entries = [
            JournalEntry(
                id=first + index,
                number=number,
                step_number=step_number,
                step=step,
                fault=fault,
                targets=tuple(targets),
                undo=undo,
            )
            for index, undo in enumerate(undos)
        ]
        self._append(entries, sync=True)
        return entries

    def mark(self, entries: Iterable[JournalEntry], state: UndoState) -> None:
        """Write a new state. Survives any SIGKILL, but is not fsynced: without it the undo is only done once more."""
        self._append([self._entries[e.id].model_copy(update={"state": state}) for e in entries], sync=False)

    def _append(self, entries: Sequence[JournalEntry], *, sync: bool) -> None:
        created = not self._path.exists()
        lines = "".join(json.dumps(e.model_dump(mode="json"), ensure_ascii=False) + "\n" for e in entries)
        with self._path.open("ab", buffering=0) as file:
            size = file.tell()
            try:
                _write_whole(file.fileno(), lines.encode())
                if sync:
                    os.fsync(file.fileno())
            except OSError as error:
                file.truncate(size)  # No half line before the next one.
                raise StorageFull(
                    f"{self._path}: the undo journal cannot be written ({error.strerror}). Free space there or give another "
                    "--runs directory; no fault is made without it."
                ) from error
        if created:
            _sync_directory(self._path.parent)
        self._entries |= {entry.id: entry for entry in entries}


def _cut_torn_line(path: Path) -> None:
    try:
        with path.open("r+b") as file:
            content = file.read()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                file.truncate(whole)
    except FileNotFoundError:
        return


def _write_whole(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _sync_directory(path: Path) -> None:
    """A new file's name is on disk only when its directory is."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
