"""Controls: which cells are expected to show an anomaly under a fault, so that its absence elsewhere means something.

A trial names its own; where it names none, the table's are asked, as optional ones. A control proves cells that lived
through the same faults with the same placement and traffic.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.guarantees.configured import is_idempotent
from harness.plan import Cell, Control, Plan
from harness.verdict import CellAnomaly, ControlResult


@dataclass(frozen=True, slots=True)
class ControlRule:
    """Under any of these faults, cells of `kind` are expected to show the anomaly."""

    anomaly: str
    faults: frozenset[str]
    kind: str
    """A name of `KINDS`."""
    source: str


KINDS: Mapping[str, Callable[[Cell], bool]] = {
    "acks=1": lambda cell: cell.producer.acks == "1",
    "not idempotent, retries": lambda cell: not is_idempotent(cell.producer) and cell.producer.retries != "0",
    "not idempotent, retries, several in flight": lambda cell: (
        not is_idempotent(cell.producer) and cell.producer.retries != "0" and cell.producer.max_in_flight > 1
    ),
}
CONTROLS = (
    ControlRule(
        "lost",
        frozenset({"kill", "partition"}),
        "acks=1",
        "acks: the leader alone had the tail; seen 1000 of 1000 with followers frozen and the leader killed",
    ),
    ControlRule(
        "duplicate",
        frozenset({"pause", "partition"}),
        "not idempotent, retries",
        "enable.idempotence: seen 1500 of 600 records with followers frozen, 500 of 500 with replies cut",
    ),
    ControlRule(
        "reordered",
        frozenset({"pause", "partition"}),
        "not idempotent, retries, several in flight",
        "max.in.flight.requests.per.connection",
    ),
)


def controls_of(plan: Plan) -> tuple[Control, ...]:
    """The trial's own controls, and the table's for the anomalies it names none for."""
    own = {control.anomaly for control in plan.controls}
    added = []
    for rule in CONTROLS:
        cells = tuple(cell.cell for cell in plan.cells if KINDS[rule.kind](cell))
        if rule.anomaly not in own and cells and rule.faults & set(plan.faults):
            added.append(Control(anomaly=rule.anomaly, cells=cells, required=False))
    return (*plan.controls, *added)


def control_result(control: Control, outcomes: Mapping[int, Mapping[str, CellAnomaly]]) -> ControlResult:
    """Did its cells show the anomaly? Whatever the rules make of it: seen is seen."""
    counts = {c: outcomes[c][control.anomaly].count for c in control.cells if control.anomaly in outcomes[c]}
    return ControlResult(
        anomaly=control.anomaly,
        cells=control.cells,
        fired_in=tuple(cell for cell, count in counts.items() if count),
        count=sum(counts.values()),
        required=control.required,
    )


def proves(plan: Plan, cells: Sequence[int], cell: Cell) -> bool:
    """Does one of these control cells have the same traffic (workload) and placement as `cell`?"""
    return any(
        plan.cells[c].workload == cell.workload and _placement(plan, plan.cells[c]) == _placement(plan, cell)
        for c in cells
    )


def _placement(plan: Plan, cell: Cell) -> frozenset[tuple[int, ...]]:
    return frozenset(plan.partitions[p].assignment for p in cell.partitions)
