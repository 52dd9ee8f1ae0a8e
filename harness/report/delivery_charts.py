"""Delivery over time as charts: produced and consumed, what was late or never came, and latencies beside the bounds."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from harness.report.delivery import Deliveries, Window
from harness.report.panels import Lanes, Panel, Series

BINS_MAX = 400
_LATENCIES = {"50 %": "p50_ms", "99 %": "p99_ms", "the last": "max_ms"}
_BOUNDS_MAX = 3
_LEAST_MS = 0.1


def delivery_panels(found: Sequence[Deliveries]) -> list[list[Panel | Lanes]]:
    """The panels of each figure: one figure for all cells with windows of one length."""
    ordered = sorted((one for one in found if one.windows), key=lambda one: one.bound.window_s)
    return [_panels(list(group)) for _, group in groupby(ordered, key=lambda one: one.bound.window_s)]


def _panels(found: Sequence[Deliveries]) -> list[Panel | Lanes]:
    width_s = found[0].bound.window_s
    windows = [window for one in found for window in one.windows]
    span_s = max(w.end_s for w in windows) - min(w.begin_s for w in windows)
    bins = _binned(windows, width_s * float(max(1, np.ceil(span_s / width_s / BINS_MAX))))
    at_s = np.array(list(bins))
    panels = [_counts(at_s, bins, width_s), _beyond(at_s, bins), _latency(at_s, bins, found)]
    return [panel for panel in panels if panel is not None]


def _binned(windows: Sequence[Window], bin_s: float) -> dict[float, list[Window]]:
    """Time → the windows of every cell that are drawn there, ascending."""
    found: dict[float, list[Window]] = defaultdict(list)
    for window in windows:
        found[round(float(window.begin_s // bin_s * bin_s), 3)].append(window)
    return dict(sorted(found.items()))


def _totals(bins: dict[float, list[Window]], column: str) -> np.ndarray:
    return np.array([sum(getattr(window, column) for window in windows) for windows in bins.values()], dtype=float)


def _counts(at_s: np.ndarray, bins: dict[float, list[Window]], width_s: float) -> Panel:
    took_s = np.array([len({window.begin_s for window in windows}) * width_s for windows in bins.values()])
    series = [Series(name, _totals(bins, name) / took_s, style) for style, name in enumerate(("produced", "consumed"))]
    return Panel("sent then, per s", at_s, series)


def _beyond(at_s: np.ndarray, bins: dict[float, list[Window]]) -> Panel | None:
    """Nothing, if there is nothing."""
    columns = {"late": "late", "never delivered": "missing"}
    series = [Series(name, _totals(bins, column), style) for style, (name, column) in enumerate(columns.items(), 3)]
    series = [one for one in series if one.values.any()]
    return Panel("beyond the bound", at_s, series, kind="bars", height=70) if series else None


def _latency(at_s: np.ndarray, bins: dict[float, list[Window]], found: Sequence[Deliveries]) -> Panel | None:
    """Of the slowest cell in each bin, beside the bounds."""
    series = []
    for style, (name, column) in enumerate(_LATENCIES.items()):
        known = [[value for w in windows if (value := getattr(w, column)) is not None] for windows in bins.values()]
        values = np.array([max(_LEAST_MS, *told) if told else np.nan for told in known])
        series += [Series(name, values, style)] if not np.isnan(values).all() else []
    if not series:
        return None
    bounds = sorted({one.bound.latency_s for one in found})[:_BOUNDS_MAX]
    series += [
        Series(f"bound {latency_s:g} s", np.full(len(at_s), latency_s * 1000), style)
        for style, latency_s in enumerate(bounds, 3)
    ]
    return Panel("delivered after, ms", at_s, series, log=True, height=120)
