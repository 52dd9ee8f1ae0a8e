"""Delivery over time as charts: produced and consumed, what was late or never came, and latencies beside the bounds."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

import altair as alt
import numpy as np
import pandas as pd

from harness.report.delivery import Deliveries, Window
from harness.report.timeline import Row

WIDTH = 860
BINS_MAX = 400
"""A longer trial is drawn in wider bins: a chart of altair's takes 5,000 rows."""
_LATENCIES = {"50 %": "p50_ms", "99 %": "p99_ms", "the last": "max_ms"}
_COLOURS = ("#0f766e", "#1d4ed8", "#7c3aed")
_BOUNDS = ("#b91c1c", "#9a3412", "#854d0e")
_DASHES = [[1, 0], [5, 4], [2, 2], [10, 4], [14, 3, 2, 3], [14, 3, 2, 3, 2, 3]]
"""Lines that lie on one another are told apart by what shows between the dashes."""


def delivery_panels(found: Sequence[Deliveries]) -> list[list[alt.Chart]]:
    """The panels of each figure, to lie over the bands of the faults: one figure for all cells with windows of one length."""
    ordered = sorted((one for one in found if one.windows), key=lambda one: one.bound.window_s)
    return [_panels(list(group)) for _, group in groupby(ordered, key=lambda one: one.bound.window_s)]


def _panels(found: Sequence[Deliveries]) -> list[alt.Chart]:
    width_s = found[0].bound.window_s
    windows = [window for one in found for window in one.windows]
    span_s = max(w.end_s for w in windows) - min(w.begin_s for w in windows)
    bin_s = width_s * float(max(1, np.ceil(span_s / width_s / BINS_MAX)))
    bins = _binned(windows, bin_s)
    panels = [_counts(bins, width_s), _beyond(bins, bin_s), _latency(bins, found)]
    return [panel for panel in panels if panel is not None]


def _binned(windows: Sequence[Window], bin_s: float) -> dict[float, list[Window]]:
    """Time → the windows of every cell that are drawn there, ascending."""
    found: dict[float, list[Window]] = defaultdict(list)
    for window in windows:
        found[round(float(window.begin_s // bin_s * bin_s), 3)].append(window)
    return dict(sorted(found.items()))


def _counts(bins: dict[float, list[Window]], width_s: float) -> alt.Chart:
    rows: list[Row] = []
    for at_s, windows in bins.items():
        times = len({window.begin_s for window in windows}) * width_s
        for name, column in (("produced", "produced"), ("consumed", "consumed")):
            rows.append({"at_s": at_s, "what": name, "per_s": sum(getattr(w, column) for w in windows) / times})
    most = max(float(row["per_s"]) for row in rows)
    scale = alt.Scale(domain=[0, 1.3 * most or 1])  # room for the names of the faults
    return _lines(rows, "per_s", "sent then, per s", {"produced": "#d97706", "consumed": "#1d4ed8"}, scale, height=110)


def _beyond(bins: dict[float, list[Window]], bin_s: float) -> alt.Chart | None:
    """Nothing, if there is nothing."""
    rows: list[Row] = []
    for at_s, windows in bins.items():
        low = 0
        for name, column in (("late", "late"), ("never delivered", "missing")):
            high = low + sum(getattr(w, column) for w in windows)
            if high > low:
                rows.append({"at_s": at_s, "until_s": at_s + bin_s, "what": name, "low": low, "high": high})
            low = high
    if not rows:
        return None
    scale = alt.Scale(domain=["late", "never delivered"], range=["#d4a72c", "#7f1d1d"])
    chart: alt.Chart = (
        alt.Chart(pd.DataFrame(rows))
        .mark_rect(stroke="white", strokeWidth=0.5)
        .encode(
            x=alt.X("at_s:Q", title=None),
            x2="until_s:Q",
            y=alt.Y("low:Q", title="beyond the bound"),
            y2="high:Q",
            fill=alt.Fill("what:N", title=None, scale=scale),
        )
        .properties(width=WIDTH, height=70)
    )
    return chart


def _latency(bins: dict[float, list[Window]], found: Sequence[Deliveries]) -> alt.Chart | None:
    """Of the slowest cell in each bin, beside the bounds."""
    rows: list[Row] = []
    for at_s, windows in bins.items():
        for name, column in _LATENCIES.items():
            values = [value for w in windows if (value := getattr(w, column)) is not None]
            rows += [{"at_s": at_s, "what": name, "ms": max(0.1, *values)}] if values else []
    if not rows:
        return None
    bounds = sorted({one.bound.latency_s for one in found})[: len(_BOUNDS)]
    names = [f"bound {latency_s:g} s" for latency_s in bounds]
    for name, latency_s in zip(names, bounds, strict=True):
        rows += [{"at_s": at_s, "what": name, "ms": latency_s * 1000} for at_s in (min(bins), max(bins))]
    colours = dict(zip(_LATENCIES, _COLOURS, strict=True)) | dict(zip(names, _BOUNDS, strict=False))
    return _lines(rows, "ms", "delivered after, ms", colours, alt.Scale(type="log"), height=120)


def _lines(
    rows: list[Row], column: str, title: str, colours: dict[str, str], scale: alt.Scale, *, height: int
) -> alt.Chart:
    domain, dashes = list(colours), _DASHES[: len(colours)]
    chart: alt.Chart = (
        alt.Chart(pd.DataFrame(rows))
        .mark_line(strokeWidth=1.6)
        .encode(
            x=alt.X("at_s:Q", title=None),
            y=alt.Y(f"{column}:Q", title=title, scale=scale),
            stroke=alt.Stroke("what:N", title=None, scale=alt.Scale(domain=domain, range=list(colours.values()))),
            strokeDash=alt.StrokeDash("what:N", title=None, scale=alt.Scale(domain=domain, range=dashes)),
        )
        .properties(width=WIDTH, height=height)
    )
    return chart
