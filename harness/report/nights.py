"""Numbers over nights as small SVG charts: a panel per number, drawn without scripts in the colours of the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.trends import Measure

WIDTH, HEIGHT = 250, 90
TOP, BOTTOM = 6, 84
LEFT, RIGHT = 6, 244


@dataclass(frozen=True, slots=True)
class NightChart:
    """One number of a trial. `points`: (x, y, night, value) in the drawing."""

    name: str
    unit: str
    points: Sequence[tuple[float, float, str, float]]
    highest: float

    @property
    def line(self) -> str:
        """Points of a polyline."""
        return " ".join(f"{x:.1f},{y:.1f}" for x, y, *_ in self.points)

    @property
    def words(self) -> str:
        """For who does not see it."""
        first, last = self.points[0], self.points[-1]
        nights = f"{len(self.points)} nights" if len(self.points) > 1 else "one night"
        told = f"{self.name}, {self.unit}, {nights}: from {first[3]:,.1f} ({first[2]}) to {last[3]:,.1f} ({last[2]})"
        return f"{told}; at most {self.highest:,.1f}"


def night_charts(measures: Sequence[Measure]) -> list[NightChart]:
    """Of one trial; the axis of values begins at zero."""

    def key(measure: Measure) -> tuple[str, str]:
        return measure.name, measure.unit

    return [
        _chart(*name, list(group)) for name, group in groupby(sorted(measures, key=lambda m: (*key(m), m.night)), key)
    ]


def _chart(name: str, unit: str, measures: Sequence[Measure]) -> NightChart:
    highest = max(measure.value for measure in measures)
    step = (RIGHT - LEFT) / max(len(measures) - 1, 1)
    points = [
        (LEFT + place * step, BOTTOM - (BOTTOM - TOP) * m.value / (highest or 1), m.night, m.value)
        for place, m in enumerate(measures)
    ]
    return NightChart(name, unit, points, highest)
