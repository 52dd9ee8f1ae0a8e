"""What a report tells of one by one: anomalies that were seen, or that nobody can tell of, those that are alike together."""

from collections import Counter
from dataclasses import dataclass

from harness.verdict import AnomalyOutcome, CellAnomaly, CellVerdict, TrialVerdict

FOLDED_FROM = 3
"""A longer list of cells is opened by a click."""
ROWS_MAX = 400
"""Witnesses in all tables together, about; verdict.json has more."""
ROWS_LEAST = 3
_WORST_FIRST = (AnomalyOutcome.VIOLATED, AnomalyOutcome.UNKNOWN, AnomalyOutcome.SHOWN)


@dataclass(frozen=True, slots=True)
class Group:
    """Cells in which the same anomaly came to the same, by the same rule."""

    anomaly: str
    outcome: AnomalyOutcome
    rule: str
    """That judged the first witness; empty = there is none."""
    pairs: list[tuple[CellVerdict, CellAnomaly]]

    @property
    def count(self) -> int:
        """Seen in all of them."""
        return sum(anomaly.count for _, anomaly in self.pairs)


def has_section(anomaly: CellAnomaly) -> bool:
    """Does the report tell of it one by one?"""
    return anomaly.outcome in _WORST_FIRST and bool(anomaly.witnesses or anomaly.count)


def seen_groups(verdict: TrialVerdict) -> list[Group]:
    """Worst first, then by the first cell."""
    found: dict[tuple[str, AnomalyOutcome, str], Group] = {}
    for cell in verdict.cells:
        for anomaly in cell.anomalies.values():
            if has_section(anomaly):
                rule = anomaly.witnesses[0].rule if anomaly.witnesses else ""
                key = (anomaly.anomaly, anomaly.outcome, rule)
                found.setdefault(key, Group(*key, pairs=[])).pairs.append((cell, anomaly))
    return sorted(found.values(), key=lambda group: _WORST_FIRST.index(group.outcome))


def tallies(verdict: TrialVerdict) -> dict[str, Counter[str]]:
    """Guarantee → outcome → cells, and `seen` → how often in all of them; the first look at a matrix that is long."""
    found: dict[str, Counter[str]] = {}
    for cell in verdict.cells if len(verdict.cells) > 1 else ():
        for anomaly in cell.anomalies.values():
            found.setdefault(anomaly.anomaly, Counter()).update({anomaly.outcome: 1, "seen": anomaly.count})
    return found


def rows_each(articles: int) -> int:
    """So many witnesses are shown of each."""
    return max(ROWS_LEAST, ROWS_MAX // max(articles, 1))
