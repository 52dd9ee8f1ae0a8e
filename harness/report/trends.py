"""What `prozess trends` shows: tables for the terminal, and trends.html with a chart per number."""

from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from harness.console import console
from harness.report.nights import HEIGHT, WIDTH, night_charts
from harness.report.page import environment
from harness.report.words import VERDICT_SIGNS
from harness.trends import Regression, Trends


def show_trends(trends: Trends, worse: Sequence[Regression]) -> None:
    """A line per trial and night, then what got worse."""
    out = console()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("trial", "night", "held", "violated", "unknown", "found"):
        table.add_column(heading, justify="right" if heading in ("held", "violated", "unknown") else "left")
    for night in trends.nights:
        found = ", ".join(f"{name} {count:,}" for name, count in night.findings)
        counts = (str(night.held), str(night.violated), str(night.unknown))
        table.add_row(night.trial, night.night, *counts, escape(found))
    out.print(table)
    for regression in worse:
        out.print(
            f"[yellow]worse[/yellow]  {regression.trial}, {regression.night}: {escape(regression.what)}", soft_wrap=True
        )
    without = f", {trends.without_verdict} of them without a verdict" if trends.without_verdict else ""
    out.print(f"{trends.runs} runs{without}; {len(worse)} regressions")


def write_trends(trends: Trends, worse: Sequence[Regression], path: Path) -> Path:
    """Write trends.html: one file, nothing loaded; returns its path."""
    trials = sorted({night.trial for night in trends.nights})
    template = environment("harness.report").get_template("trends.html.j2")
    text = template.render(
        trends=trends,
        worse=worse,
        charts={trial: night_charts([m for m in trends.measures if m.trial == trial]) for trial in trials},
        signs=VERDICT_SIGNS,
        width=WIDTH,
        height=HEIGHT,
    )
    path.write_text(text, encoding="utf-8")
    return path
