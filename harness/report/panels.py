"""Charts as data: panels over one time axis, as columns of JSON. The page draws them (`assets/chart.js`). Values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

BINS_MAX = 800
"""No more can be told apart on a screen; a longer run has wider bins."""
_DIGITS = 4
"""Of a number in a chart; more cannot be seen."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line. `values`: float64, one per time of its panel; NaN = nothing is known. `style`: colour and dashes."""

    name: str
    values: np.ndarray
    style: int


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines with one axis. `at_s`: ascending times of the values (of bins and steps: where each begins)."""

    title: str
    at_s: np.ndarray
    series: Sequence[Series]
    kind: Literal["line", "step", "area", "bars"] = "line"
    log: bool = False
    height: int = 110

    def as_json(self) -> dict[str, Any]:
        """As `chart.js` reads it."""
        return {
            "title": self.title,
            "kind": self.kind,
            "log": self.log,
            "height": self.height,
            "at": numbers(self.at_s, digits=9),
            "series": [{"name": s.name, "style": s.style, "y": numbers(s.values)} for s in self.series],
        }


@dataclass(frozen=True, slots=True)
class Lane:
    """Spans of time on a line of their own: (begin_s, end_s, number of the kind)."""

    name: str
    spans: Sequence[tuple[float, float, int]]


@dataclass(frozen=True, slots=True)
class Lanes:
    """Lanes below one another. `kinds`: what spans may be."""

    title: str
    lanes: Sequence[Lane]
    kinds: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """As `chart.js` reads it."""
        return {
            "title": self.title,
            "kind": "lanes",
            "kinds": list(self.kinds),
            "lanes": [
                {
                    "name": lane.name,
                    "spans": [[round(begin, 3), round(end, 3), kind] for begin, end, kind in lane.spans],
                }
                for lane in self.lanes
            ],
        }


def figure(panels: Sequence[Panel | Lanes], begin_s: float, end_s: float) -> Mapping[str, Any]:
    """Panels that share one time axis."""
    return {"begin": round(begin_s, 3), "end": round(end_s, 3), "panels": [panel.as_json() for panel in panels]}


def numbers(values: np.ndarray, *, digits: int = _DIGITS) -> list[float | int | None]:
    """Few significant digits, whole ones without a point, NaN as null: a quarter of the bytes."""
    return [_number(value, digits) for value in values.tolist()]


def _number(value: float, digits: int) -> float | int | None:
    if value != value:
        return None
    if value == int(value) and abs(value) < 10**15:
        return int(value)
    return float(f"{value:.{digits}g}")
