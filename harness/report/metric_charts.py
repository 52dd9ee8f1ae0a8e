"""Charts of metrics and alerts for the timeline: lines of the most telling ones, and bars of when alerts fired."""

import altair as alt
import pandas as pd

from harness.report.metric_lines import Monitor, Panel

WIDTH = 860
_LINE_COLOURS = ("#7c3aed", "#dc2626", "#0f766e")
_BAR_HEIGHT = 15
_INSIDE = alt.Axis(labelAlign="left", labelPadding=-4, labelLimit=300, ticks=False, domain=False, grid=False, zindex=1)
"""Names inside the plot, so that its time axis stays below the others'; before the first fault there is room."""


def monitor_charts(monitor: Monitor) -> list[alt.Chart]:
    """One chart per panel, and one of all bars, to lie over the bands of the faults."""
    charts = [_lines(panel) for panel in monitor.panels]
    return [*charts, _bars(monitor)] if monitor.bars else charts


def _lines(panel: Panel) -> alt.Chart:
    scale = alt.Scale(domain=list(panel.labels), range=list(_LINE_COLOURS[: len(panel.labels)]))
    dashes = alt.Scale(domain=list(panel.labels), range=[[1, 0], [5, 2], [2, 2]][: len(panel.labels)])
    chart: alt.Chart = (
        alt.Chart(pd.DataFrame(panel.rows))
        .mark_line(interpolate="step-after", strokeWidth=1.6)
        .encode(
            x=alt.X("at_s:Q", title=None),
            y=alt.Y("value:Q", title=panel.title),
            stroke=alt.Stroke("what:N", title=None, scale=scale),
            strokeDash=alt.StrokeDash("what:N", title=None, scale=dashes),
        )
        .properties(width=WIDTH, height=80)
    )
    return chart


def _bars(monitor: Monitor) -> alt.Chart:
    """When alerts fired, when they may have, and who told nothing."""
    order = list(dict.fromkeys(str(bar["what"]) for bar in monitor.bars))
    chart: alt.Chart = (
        alt.Chart(pd.DataFrame(monitor.bars))
        .mark_bar(height=8)
        .encode(
            x=alt.X("begin_s:Q", title=None),
            x2="end_s:Q",
            y=alt.Y("what:N", title=None, sort=order, axis=_INSIDE),
            fill=alt.Fill(
                "kind:N",
                title=None,
                scale=alt.Scale(domain=["fired", "unknown", "absent"], range=["#b91c1c", "#d4a72c", "#71717a"]),
            ),
        )
        .properties(width=WIDTH, height=_BAR_HEIGHT * len(order))
    )
    return chart
