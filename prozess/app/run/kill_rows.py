"""Makes the history's rows for an application that a test killed and started again, as of any fault of the nemesis."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prozess.harness.interfaces import CLIENT_NODE
from prozess.harness.recording.rows import Recorder
from prozess.harness.schema import NONE, FaultPhase, StepOutcome, Tristate

FIRST_FAULT = 1_000_000
"""The number of the first of these faults. The nemesis gives lower ones."""
FAULT = "kill"


@dataclass(frozen=True, slots=True)
class TextRow:
    """A row whose texts have no codes yet: only the process that writes the history gives codes."""

    table: str
    columns: Mapping[str, int]
    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Column → (dictionary, text)."""

    def as_json(self) -> dict[str, Any]:
        """Returns the row as JSON values, for the session's process."""
        return {"table": self.table, "columns": dict(self.columns), "texts": dict(self.texts)}


def kill_rows(step: int, clients: Sequence[int], *, killed_ns: int, seen_ns: int, seen: str) -> list[TextRow]:
    """Returns the rows of a step that killed these clients. `killed_ns`: when the process announced its death; `seen_ns`:
    when the kernel reported that it had died; `seen`: how that was seen, in words."""
    nodes = [CLIENT_NODE + client for client in clients] or [NONE]
    rows = [
        _fault(step, node, phase, time_ns, effect, seen if phase is FaultPhase.VERIFIED else "")
        for node in nodes
        for phase, time_ns, effect in (
            (FaultPhase.APPLIED, killed_ns, Tristate.UNKNOWN),
            (FaultPhase.VERIFIED, seen_ns, Tristate.YES),
        )
    ]
    times = {"awaited_ns": killed_ns, "fired_ns": killed_ns, "done_ns": seen_ns}
    return [*rows, TextRow("steps", {**times, "step": step, "outcome": int(StepOutcome.DONE)})]


def restart_rows(step: int, clients: Sequence[int], *, started_ns: int) -> list[TextRow]:
    """Returns the rows that say that new clients run in the place of the killed ones."""
    return [
        _fault(step, CLIENT_NODE + client, phase, started_ns, effect, "")
        for client in clients
        for phase, effect in ((FaultPhase.UNDONE, Tristate.UNKNOWN), (FaultPhase.UNDO_VERIFIED, Tristate.YES))
    ]


def write_rows(recorder: Recorder, rows: Sequence[TextRow]) -> None:
    """Writes the rows into the history, with codes for their texts."""
    for row in rows:
        codes = {column: recorder.code(*text) for column, text in row.texts.items()}
        recorder.write(row.table, **row.columns, **codes)


def rows_from_json(rows: Sequence[Mapping[str, Any]]) -> list[TextRow]:
    """Returns the rows that `TextRow.as_json` made into JSON."""
    return [TextRow(row["table"], row["columns"], {k: (v[0], v[1]) for k, v in row["texts"].items()}) for row in rows]


def _fault(step: int, node: int, phase: FaultPhase, time_ns: int, effect: Tristate, detail: str) -> TextRow:
    columns = {"fault": FIRST_FAULT + step, "step": step, "phase": int(phase), "node": node, "effect": int(effect)}
    texts = {"kind": ("fault", FAULT)} | ({"detail": ("detail", detail)} if detail else {})
    return TextRow("faults", {**columns, "time_ns": time_ns}, texts)
