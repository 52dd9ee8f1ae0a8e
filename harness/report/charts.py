"""The timeline as one SVG: throughput, latency and replication over one time axis, with the faults as bands behind.

Drawn by vl-convert without a browser; nothing is loaded from anywhere when the report is opened.
"""

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

from harness.report.timeline import Row, Timeline

WIDTH = 860
LABEL_LINES = 7
"""So many names of faults stand below one another, then they begin at the top again."""
LATE = 0.75
"""From this part of the time axis on, names would not fit to the right."""
_COLOURS = alt.Scale(
    domain=["acks=0", "acks=1", "acks=all"],
    range=["#8a6d3b", "#c2410c", "#1d4ed8"],
)
_DASHES = alt.Scale(domain=["acks=0", "acks=1", "acks=all"], range=[[2, 2], [6, 3], [1, 0]])


def draw_timeline(timeline: Timeline, bands: list[Row]) -> str:
    """SVG text."""
    panels = [_throughput(timeline), _unknown(timeline), _latency(timeline), _replication(timeline)]
    x_domain = [timeline.begin_s, timeline.end_s]
    drawn = [panel for panel in panels if panel is not None]
    return _svg(over_bands(drawn, bands, x_domain).resolve_scale(color="shared", strokeDash="shared"))


def draw_monitor(panels: Sequence[alt.Chart], bands: list[Row], x_domain: list[float]) -> str:
    """SVG text of panels that each have colours and a legend of their own."""
    chart = over_bands(panels, bands, x_domain)
    chart = chart.resolve_scale(stroke="independent", strokeDash="independent", fill="independent")
    return _svg(chart.resolve_legend(stroke="independent", strokeDash="independent", fill="independent"))


def over_bands(panels: Sequence[alt.Chart], bands: list[Row], x_domain: list[float]) -> alt.VConcatChart:
    """The panels below one another, each over the bands of the faults."""
    shown = [
        _with_bands(panel, bands, x_domain, last=panel is panels[-1], first=panel is panels[0]) for panel in panels
    ]
    return alt.vconcat(*shown, spacing=14)


def _svg(drawn: alt.VConcatChart) -> str:
    chart = (
        drawn.configure_view(stroke="#d4d4d8")
        .configure_axis(labelFontSize=11, titleFontSize=11, grid=True, gridColor="#f0f0f2")
        .configure_axisY(minExtent=45)
        .configure_legend(orient="top", title=None, labelFontSize=11)
    )
    return str(vl_convert.vegalite_to_svg(chart.to_json()))


def _x() -> alt.X:
    return alt.X("at_s:Q", title=None)


def _series() -> tuple[alt.Color, alt.StrokeDash]:
    return alt.Color("acks:N", scale=_COLOURS, title=None), alt.StrokeDash("acks:N", scale=_DASHES, title=None)


def _throughput(timeline: Timeline) -> alt.Chart | None:
    rows = [row for row in timeline.traffic if row["outcome"] == "acknowledged"]
    return _lines(rows, "per_s", "acknowledged per s", height=150)


def _unknown(timeline: Timeline) -> alt.Chart | None:
    rows = [row for row in timeline.traffic if row["outcome"] != "acknowledged"]
    if not rows:
        return None
    colour, _ = _series()
    chart: alt.Chart = (
        alt.Chart(pd.DataFrame(rows))
        .mark_bar(size=2)
        .encode(x=_x(), y=alt.Y("sum(per_s):Q", title="unknown or refused per s"), color=colour)
        .properties(width=WIDTH, height=70)
    )
    return chart


def _latency(timeline: Timeline) -> alt.Chart | None:
    rows = [{**row, "p99_ms": max(float(row["p99_ms"]), 0.1)} for row in timeline.latency]
    return _lines(rows, "p99_ms", "99th percentile, ms", height=110, log=True)


def _lines(rows: list[Row], column: str, title: str, *, height: int, log: bool = False) -> alt.Chart | None:
    if not rows:
        return None
    colour, dash = _series()
    scale = alt.Scale(type="log") if log else alt.Scale()
    chart: alt.Chart = (
        alt.Chart(pd.DataFrame(rows))
        .mark_line(strokeWidth=1.6)
        .encode(x=_x(), y=alt.Y(f"{column}:Q", title=title, scale=scale), color=colour, strokeDash=dash)
        .properties(width=WIDTH, height=height)
    )
    return chart


def _replication(timeline: Timeline) -> alt.Chart | None:
    if not timeline.replication:
        return None
    chart: alt.Chart = (
        alt.Chart(pd.DataFrame(timeline.replication))
        .mark_area(interpolate="step-after", opacity=0.45, line=True)
        .encode(
            x=_x(),
            y=alt.Y("partitions:Q", title="partitions", stack=None),
            fill=alt.Fill(
                "what:N",
                title=None,
                scale=alt.Scale(domain=["ISR not whole", "no leader"], range=["#a1a1aa", "#dc2626"]),
            ),
        )
        .properties(width=WIDTH, height=80)
    )
    return chart


def _with_bands(
    panel: alt.Chart, bands: list[Row], x_domain: list[float], *, first: bool, last: bool
) -> alt.LayerChart:
    """The panel over the bands of the faults; the first panel names them, each below the one before; the last one names
    the axis. What begins in the last part is named to the left."""
    title = "seconds on the trial's clock" if last else None
    scale = alt.Scale(domain=x_domain, nice=False, clamp=True)
    late_s = x_domain[0] + LATE * (x_domain[1] - x_domain[0])
    numbered: list[dict[str, Any]] = [
        band | {"line": float(index % LABEL_LINES * 11 + 3), "late": float(band["begin_s"]) > late_s}
        for index, band in enumerate(bands)
    ]
    nothing: dict[str, Any] = {"begin_s": 0.0, "end_s": 0.0, "fault": "", "line": 0.0, "late": False}
    base = alt.Chart(pd.DataFrame(numbered or [nothing]))
    rectangles = base.mark_rect(opacity=0.13, color="#dc2626").encode(
        x=alt.X("begin_s:Q", scale=scale, title=title), x2="end_s:Q"
    )
    names = [
        base.transform_filter(alt.datum.late == late)
        .mark_text(align="right" if late else "left", baseline="top", dx=-3 if late else 3, fontSize=9, color="#7f1d1d")
        .encode(x=alt.X("begin_s:Q", scale=scale, title=title), y=alt.Y("line:Q", scale=None), text="fault:N")
        for late in (False, True)
    ]
    chart = alt.LayerChart(layer=[rectangles, panel, *names] if bands and first else [rectangles, panel])
    layered: alt.LayerChart = chart.resolve_scale(y="independent")
    return layered
