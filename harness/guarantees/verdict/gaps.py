"""Judges what evidence that was dropped leaves: nothing is *held* of a partition with a gap, and what was found there stands
only if no line that is missing could explain it."""

from collections.abc import Iterator, Mapping

from prozess.harness.guarantees.table import TABLE
from prozess.harness.plan.plan import Cell, EvidenceGap, Plan

_REASONS_SHOWN = 2
CERTAIN_WITHOUT_READS = frozenset(
    (
        *("duplicate", "offset-conflict", "phantom", "corrupt", "misplaced", "resurrected", "time-travel"),
        *("zombie-write", "aborted-read", "early-read", "own-read", "information-cycle", "write-cycle"),
    )
)
"""Anomalies that consist of what somebody was given, or was answered. One more read takes none of it back. All others say
that something was not given, or in which order it was given."""
SHAKEN_WITHOUT_SENDS = frozenset(("phantom", "untold"))
"""Anomalies that say that nobody sent a record, or that nobody was answered: a line that is missing may say that."""


def reasons_of_gaps(plan: Plan, cell: Cell) -> tuple[str, ...]:
    """Returns why nothing is held in a cell: at most a few reasons, the last with how many more there are."""
    reasons = list(dict.fromkeys(gap.why for gap in _gaps(plan, cell)))
    more = len(reasons) - _REASONS_SHOWN
    if more <= 0:
        return tuple(reasons)
    shown = "; ".join(reasons[:_REASONS_SHOWN])
    return (f"{shown}; and {more} more gap{'s' if more > 1 else ''} in the evidence",)


def uncertain_partitions(plan: Plan, cell: Cell, anomaly: str) -> Mapping[int, str]:
    """Returns the partitions of a cell in which a finding of this anomaly may come of what is missing, and why."""
    assert anomaly in TABLE, anomaly
    found: dict[int, str] = {}
    for gap in _gaps(plan, cell):
        if may_explain(gap, anomaly):
            for partition in gap.partitions:
                found.setdefault(partition, gap.why)
    return found


def may_explain(gap: EvidenceGap, anomaly: str) -> bool:
    """Returns whether what is missing may explain a finding of this anomaly."""
    match gap.hides:
        case "records":
            return True
        case "reads":
            return anomaly not in CERTAIN_WITHOUT_READS
        case "sends":
            return anomaly in SHAKEN_WITHOUT_SENDS
        case "end":  # what was found had happened before
            return False


def _gaps(plan: Plan, cell: Cell) -> Iterator[EvidenceGap]:
    mine = frozenset(cell.partitions)
    return (gap for gap in plan.gaps if not mine.isdisjoint(gap.partitions))
