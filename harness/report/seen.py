"""What a report tells of one by one: anomalies that were seen, or that nobody can tell of, those that are alike together."""

from collections import Counter
from dataclasses import dataclass, field

from harness.verdict import AnomalyOutcome, CellAnomaly, CellVerdict, TrialVerdict

FOLDED_FROM = 3
"""A longer list of cells is opened by a click."""
TABLES_EACH = 15
"""So many cells of a group have a table of their witnesses."""
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


@dataclass(slots=True)
class Tally:
    """Of one guarantee in all cells."""

    cells: Counter[AnomalyOutcome] = field(default_factory=Counter)
    seen: int = 0
    """How often the anomaly was."""

    @property
    def quiet(self) -> bool:
        """It was judged, and held wherever it was."""
        judged = {outcome for outcome in self.cells if outcome is not AnomalyOutcome.NOT_JUDGED}
        return judged == {AnomalyOutcome.HELD}


def tallies(verdict: TrialVerdict) -> dict[str, Tally]:
    """By guarantee: the first look at a matrix. Empty where there is one cell."""
    found: dict[str, Tally] = {}
    for cell in verdict.cells if len(verdict.cells) > 1 else ():
        for anomaly in cell.anomalies.values():
            tally = found.setdefault(anomaly.anomaly, Tally())
            tally.cells[anomaly.outcome] += 1
            tally.seen += anomaly.count
    return found


def rows_each(articles: int) -> int:
    """So many witnesses are shown of each."""
    return max(ROWS_LEAST, ROWS_MAX // max(articles, 1))
