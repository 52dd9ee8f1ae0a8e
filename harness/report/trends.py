"""What `prozess trends` shows: tables for the terminal, and trends.html with a chart per number."""

from collections.abc import Sequence
from pathlib import Path

import altair as alt
import pandas as pd
import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.trends import Measure, Regression, Trends

PANEL_WIDTH, PANEL_HEIGHT = 250, 110


def show_trends(trends: Trends, worse: Sequence[Regression]) -> None:
    """A line per trial and night, then what got worse."""
    console = Console(highlight=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("trial", "night", "held", "violated", "unknown", "found"):
        table.add_column(heading, justify="right" if heading in ("held", "violated", "unknown") else "left")
    for night in trends.nights:
        found = ", ".join(f"{name} {count:,}" for name, count in night.findings)
        counts = (str(night.held), str(night.violated), str(night.unknown))
        table.add_row(night.trial, night.night, *counts, escape(found))
    console.print(table)
    for regression in worse:
        console.print(
            f"[yellow]worse[/yellow]  {regression.trial}, {regression.night}: {escape(regression.what)}", soft_wrap=True
        )
    without = f", {trends.without_verdict} of them without a verdict" if trends.without_verdict else ""
    console.print(f"{trends.runs} runs{without}; {len(worse)} regressions")


def write_trends(trends: Trends, worse: Sequence[Regression], path: Path) -> Path:
    """Write trends.html: one file, nothing loaded; returns its path."""
    environment = Environment(
        loader=PackageLoader("harness.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    trials = sorted({night.trial for night in trends.nights})
    text = environment.get_template("trends.html.j2").render(
        trends=trends,
        worse=worse,
        charts={trial: _chart([m for m in trends.measures if m.trial == trial], trial) for trial in trials},
    )
    path.write_text(text, encoding="utf-8")
    return path


def _chart(measures: Sequence[Measure], trial: str) -> Markup:
    """A panel per number, over nights; empty if there are none."""
    if not measures:
        return Markup()
    frame = pd.DataFrame([{"night": m.night, "value": m.value, "name": f"{m.name}, {m.unit}"} for m in measures])
    panels = (
        alt.Chart(frame, width=PANEL_WIDTH, height=PANEL_HEIGHT)
        .mark_line(point=True)
        .encode(
            x=alt.X("night:O", title=None, axis=alt.Axis(labelAngle=-40)),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=True)),
            facet=alt.Facet("name:N", columns=3, title=None),
        )
        .resolve_scale(y="independent")
    )
    svg = str(vl_convert.vegalite_to_svg(panels.to_json()))
    label = escape(f"{trial}: {len(frame['name'].unique())} numbers over {len(frame['night'].unique())} nights")
    return Markup(svg.replace("<svg ", f'<svg role="img" aria-label="{Markup.escape(label)}" ', 1))
