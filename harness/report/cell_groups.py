"""Groups the cells of a matrix by the settings that decide what was promised, for tables that would be hundreds of lines."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2

from prozess.harness.report.words import CellMatrix
from prozess.harness.verdict import AnomalyOutcome, CellVerdict, Verdict

GROUPED_FROM = 40
"""A table of so many cells has a row for each group instead of one for each cell."""
_SHOWN = {
    AnomalyOutcome.VIOLATED: "forbidden",
    AnomalyOutcome.UNKNOWN: "unknown",
    AnomalyOutcome.PERMITTED: "permitted",
    AnomalyOutcome.POSSIBLE: "permitted",
}
_WORST_FIRST = (Verdict.VIOLATED, Verdict.UNKNOWN, Verdict.HELD, Verdict.NOT_JUDGED)
Kind = tuple[Verdict, frozenset[tuple[str, str]]]
"""A verdict, and what came of each guarantee that did not simply hold. Whether a loss that is permitted was seen is luck, and
makes no difference."""


@dataclass(frozen=True)
class CellGroup:
    """Cells that have these values, and of which the same was promised and came true."""

    values: Mapping[str, tuple[str, ...]]
    """Axis → its values in this group, of the axes that decide. All cells with these values are in the group."""
    cells: tuple[CellVerdict, ...]

    @property
    def verdict(self) -> Verdict:
        """Returns the worst verdict of its cells."""
        return min((cell.verdict for cell in self.cells), key=_WORST_FIRST.index)

    @property
    def seen(self) -> str:
        """Returns what was seen in all of its cells together, the worst first: `lost 960 in 48 of 96 (permitted)`."""
        order = [AnomalyOutcome.VIOLATED, AnomalyOutcome.UNKNOWN, AnomalyOutcome.PERMITTED]
        counts: dict[tuple[AnomalyOutcome, str], list[int]] = defaultdict(list)
        for cell in self.cells:
            for anomaly in cell.anomalies.values():
                if anomaly.outcome in order:
                    counts[anomaly.outcome, anomaly.anomaly].append(anomaly.seen)
        lines = [
            f"{name} {sum(found):,} in {len(found)} of {len(self.cells)} ({_SHOWN[outcome]})"
            for (outcome, name), found in sorted(counts.items(), key=lambda pair: order.index(pair[0][0]))
        ]
        return ", ".join(lines) or "nothing"


def groups_of(matrix: CellMatrix[CellVerdict]) -> list[CellGroup]:
    """Returns groups that together have every cell once, the worst first: as few as a tree of decisions by single axes "
    "finds."""
    found = _split(matrix.cells, matrix.axes, {})
    return sorted(found, key=lambda group: _WORST_FIRST.index(group.verdict))


def _split(cells: Sequence[CellVerdict], axes: Sequence[str], values: Mapping[str, tuple[str, ...]]) -> list[CellGroup]:
    varying = [axis for axis in axes if len({cell.axes[axis] for cell in cells}) > 1]
    if not varying or len({kind_of(cell) for cell in cells}) == 1:
        return [CellGroup(dict(values), tuple(cells))]
    axis = min(varying, key=lambda axis: _entropy(cells, axis))
    rest = [other for other in axes if other != axis]
    alike: dict[frozenset[object], list[str]] = {}
    for value in dict.fromkeys(cell.axes[axis] for cell in cells):
        members = [cell for cell in cells if cell.axes[axis] == value]
        shape = frozenset((tuple(cell.axes[other] for other in rest), kind_of(cell)) for cell in members)
        alike.setdefault(shape, []).append(value)
    return [
        group
        for together in alike.values()
        for group in _split([c for c in cells if c.axes[axis] in together], rest, {**values, axis: tuple(together)})
    ]


def kind_of(cell: CellVerdict) -> Kind:
    """Returns what was promised of a cell, and whether it came true."""
    outcomes = ((a.anomaly, _SHOWN[a.outcome]) for a in cell.anomalies.values() if a.outcome in _SHOWN)
    return cell.verdict, frozenset(outcomes)


def _entropy(cells: Sequence[CellVerdict], axis: str) -> float:
    """Returns how little this axis says about the kinds of the cells, in bits per cell."""
    by_value: dict[str, Counter[Kind]] = defaultdict(Counter)
    for cell in cells:
        by_value[cell.axes[axis]][kind_of(cell)] += 1
    return sum(-count * log2(count / kinds.total()) for kinds in by_value.values() for count in kinds.values()) / len(
        cells
    )
