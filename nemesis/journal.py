"""The undo journal holds what would undo each fault, and is on disk before the fault is made. The history's rows about
faults are written here, too.

One JSON object per line, each complete in itself; the last line of an id is its state:

    {"id": 3, "number": 1, "step_number": 4, "step": "kill the leader", "fault": "kill", "targets": ["broker-1"],
     "undo": {"action": "start", "node": "broker-1", "peer": null}, "state": "planned"}

The first line of all says what each server was before the first fault: {"before": {"broker-1": "running"}}.

The journal can be read after a SIGKILL at any moment. For one kill of broker-1 it grows like this:

    line                                    what is true at this moment
    {"before": {"broker-1": "running"}}     nothing was done yet
    {"id": 0, …, "state": "planned"}        fsync has returned: only now may broker-1 be killed
    {"id": 0, …, "state": "applied"}        broker-1 was killed
    {"id": 0, …, "state": "undone"}         broker-1 was started, and was seen to run

A harness that is killed after the second line leaves a fault that was made, or was not made: nobody knows. Its undo is open,
and is carried out, which must be right in both cases: "start" does nothing to a server that runs. A harness that is killed
after the third line leaves an open undo in the same way. A torn last line is one whose write never returned: either its fault
was not made yet, or it is a mark, without which an undo is only done once more.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, unique
from pathlib import Path
from typing import Protocol

from pydantic import TypeAdapter, ValidationError

from prozess.harness.clock import Clock
from prozess.harness.config.impairments import CLIENTS
from prozess.harness.errors import StorageFull
from prozess.harness.interfaces import ALL_CLIENTS_NODE, Effect, Targets, Undo
from prozess.harness.machine_record import kept
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import NONE, FaultPhase, Tristate
from prozess.harness.values import Frozen


@unique
class UndoState(StrEnum):
    """The progress of a fault and of its undo."""

    PLANNED = "planned"
    """Journaled; the fault may or may not have been made."""
    APPLIED = "applied"
    UNDONE = "undone"
    """Undone, and observed to be."""


class JournalEntry(Frozen):
    """One undo of one fault."""

    id: int
    number: int
    """The number of the fault within the run: 0, 1, …"""
    step_number: int
    step: str
    """The name of the step that made the fault."""
    fault: str
    targets: tuple[str, ...]
    """The names of the nodes that the fault was aimed at, without those on the other side of a cut."""
    undo: Undo
    state: UndoState = UndoState.PLANNED


class Before(Frozen):
    """The line of the journal that says what each server was before the first fault, by its name."""

    before: dict[str, str]


@dataclass(frozen=True, slots=True)
class JournalContents:
    """Describes what a journal contains. `unreadable` holds the lines that are no entry; a torn last line does not
    count."""

    entries: tuple[JournalEntry, ...]
    """The last state of each id, in the order in which they were planned."""
    unreadable: int = 0
    before: Mapping[str, str] = field(default_factory=dict)
    """The name of each server → its state (`NodeState`) before the first fault. Empty if no fault was ever about to be
    made."""

    @property
    def open(self) -> tuple[JournalEntry, ...]:
        """The entries that are not known to be undone."""
        return tuple(entry for entry in self.entries if entry.state is not UndoState.UNDONE)


def read_journal(path: Path) -> JournalContents:
    """Reads the journal at `path`. A missing file is an empty journal, because then nothing was ever broken. OSError if
    it cannot be read."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return JournalContents(())
    entries: dict[int, JournalEntry] = {}
    before: dict[str, str] = {}
    unreadable = 0
    for line in lines[:-1]:  # What follows the last newline is torn, or empty.
        try:
            read = _LINE.validate_json(line)
        except ValidationError:
            unreadable += 1
            continue
        if isinstance(read, Before):
            before = read.before
        else:
            entries[read.id] = read
    return JournalContents(tuple(entries.values()), unreadable, before)


_LINE: TypeAdapter[Before | JournalEntry] = TypeAdapter(Before | JournalEntry)


def open_faults(run: RunDirectory) -> list[str]:
    """Returns the faults that hold now, as "kill broker-2", in the order in which they were planned. It changes
    nothing."""
    entries = read_journal(run.journal).open
    return list(dict.fromkeys(f"{entry.fault} {', '.join(entry.targets)}" for entry in entries))


class Journal:
    """Appends to the journal of one run. Only one writer may use it at a time."""

    def __init__(self, path: Path) -> None:
        """Continues the journal that is there. A torn last line is cut off, so that the next line starts on its own.

        It is kept twice, if this machine has a record of the run: there, where it counts, and in the run's directory."""
        self._paths = kept(path)
        for each in self._paths:
            _cut_torn_line(each)
        contents = read_journal(self._paths[0])
        self._entries = {entry.id: entry for entry in contents.entries}
        self._before = contents.before

    @property
    def before(self) -> Mapping[str, str]:
        """The state of each server before the first fault, by its name. Empty until `note_before`."""
        return self._before

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """Every entry in its present state, in the order in which they were planned."""
        return tuple(self._entries.values())

    @property
    def open(self) -> tuple[JournalEntry, ...]:
        """The entries that are not undone, in the order in which they were planned."""
        return JournalContents(self.entries).open

    @property
    def next_number(self) -> int:
        """Returns the number that the next fault gets."""
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
        """Writes what will undo a fault. When this returns, it is on the disk (fsync), and the fault may be made.
        StorageFull if it cannot be written."""
        assert undos, f"the fault {fault!r} of step {step!r} has no undo: one that is over has Nothing"
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

    def note_before(self, before: Mapping[str, str]) -> None:
        """Writes what each server is before the first fault. When this returns, it is on the disk (fsync)."""
        assert not self._before, (
            "the states before the first fault are written once: later ones are no longer from before it"
        )
        self._write([Before(before=dict(before))], sync=True)
        self._before = dict(before)

    def mark(self, entries: Iterable[JournalEntry], state: UndoState) -> None:
        """Writes a new state of an entry. It survives a SIGKILL but is not fsynced: without it the undo is only done
        once more."""
        marked = [self._entries[e.id] for e in entries]
        assert state is not UndoState.PLANNED, "an entry is planned by `plan`, which syncs"
        undone = [e.id for e in marked if e.state is UndoState.UNDONE]
        assert not undone or state is UndoState.UNDONE, f"entries {undone} were undone, and cannot become {state} again"
        self._append([e.model_copy(update={"state": state}) for e in marked], sync=False)

    def _append(self, entries: Sequence[JournalEntry], *, sync: bool) -> None:
        self._write(entries, sync=sync)
        self._entries |= {entry.id: entry for entry in entries}

    def _write(self, values: Sequence[Frozen], *, sync: bool) -> None:
        lines = "".join(json.dumps(e.model_dump(mode="json"), ensure_ascii=False) + "\n" for e in values)
        for number, path in enumerate(self._paths):
            _append_to(path, lines.encode(), sync=sync and number == 0)


def _append_to(path: Path, lines: bytes, *, sync: bool) -> None:
    created = not path.exists()
    with path.open("ab", buffering=0) as file:
        size = file.tell()
        try:
            _write_whole(file.fileno(), lines)
            if sync:
                os.fsync(file.fileno())
        except OSError as error:
            file.truncate(size)  # No half line before the next one.
            raise StorageFull(
                f"{path}: the undo journal cannot be written ({error.strerror}). Free space there or give another "
                "--runs directory; no fault is made without it."
            ) from error
    if created:
        _sync_directory(path.parent)


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
    """Syncs a directory. The name of a new file is on disk only once its directory is."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# What the nemesis records of its faults: rows of `faults`, one per node (and peer) and phase.


class RecorderProtocol(Protocol):
    """Describes what the nemesis needs of `prozess.harness.recording.rows.Recorder`."""

    def write(self, table: str, **columns: int) -> object:
        """Writes one row. Columns that are missing are unset."""
        ...

    def code(self, dictionary: str, text: str) -> int:
        """Returns the code that the dictionary has for a text."""
        ...


class FaultRows:
    """Writes the table `faults` of a run. A `row` holds what all rows of one fault share: its number, its kind, its
    step."""

    def __init__(self, recorder: RecorderProtocol, cluster: Targets, clock: Clock) -> None:
        self._recorder, self._cluster, self._clock = recorder, cluster, clock

    def row(self, number: int, fault: str, step_number: int) -> dict[str, int]:
        """Returns the row of a fault that is about to be made."""
        return {"fault": number, "kind": self._recorder.code("fault", fault), "step": step_number}

    def row_of(self, entry: JournalEntry) -> dict[str, int]:
        """Returns the row of the fault that an entry undoes."""
        return self.row(entry.number, entry.fault, entry.step_number)

    def write_undos(
        self, row: Mapping[str, int], undos: Sequence[Undo], phase: FaultPhase, *, detail: str = ""
    ) -> None:
        """Writes one row for each node, or link, where something is to be undone."""
        for undo in undos:
            self.write(row, phase, node=undo.node, peer=undo.peer, detail=detail)

    def write_effect(self, row: Mapping[str, int], effect: Effect, phase: FaultPhase) -> None:
        """Writes what was observed of a fault on one node."""
        self.write(row, phase, node=effect.node, peer=effect.peer, effect=effect.effect, detail=effect.detail)

    def write(
        self,
        row: Mapping[str, int],
        phase: FaultPhase,
        *,
        node: str | None = None,
        peer: str | None = None,
        effect: Tristate = Tristate.UNKNOWN,
        detail: str = "",
        time_ns: int | None = None,
    ) -> None:
        """Writes one row of `faults`. For a cut, `node` receives and `peer` sends."""
        ids = {CLIENTS: ALL_CLIENTS_NODE} | {n.name: n.node_id for n in self._cluster.nodes}
        self._recorder.write(
            "faults",
            **row,
            time_ns=self._clock.monotonic_ns() if time_ns is None else time_ns,
            phase=int(phase),
            node=NONE if node is None else ids.get(node, NONE),
            peer=NONE if peer is None else ids.get(peer, NONE),
            effect=int(effect),
            detail=self._recorder.code("detail", detail) if detail else NONE,
        )
