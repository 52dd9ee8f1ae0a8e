"""Says which cells are expected to show an anomaly under a fault, so that its absence elsewhere means something.

A trial names its own controls. Where it names none, those of this table are asked, as optional ones. A control proves cells
that lived through the same faults with the same assignment and traffic.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prozess.harness.guarantees.table.cell_configuration import is_idempotent
from prozess.harness.plan.plan import Cell


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
