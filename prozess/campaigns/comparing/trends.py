"""This module shows the trends of many runs (`prozess trends`): tables for the terminal, and a page with a chart per number.

The numbers come from Spark (`prozess.spark_checkers.trends`), and `prozess.harness.impact.trends` says what got worse.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from prozess.campaigns.comparing import run_directories
from prozess.harness.console import console
from prozess.harness.errors import ExitCode, NotJudged
from prozess.harness.history.store import StoredRun, location_of, runs_below
from prozess.harness.impact.trends import Measure, Regression, Trends, regressions
from prozess.harness.printable import number_of, printable
from prozess.harness.report.html import environment
from prozess.harness.report.words import VERDICT_SIGNS


def runs_among(directories: Sequence[str]) -> list[Path | StoredRun]:
    """Returns the runs in these directories and at these URIs, and below them. BadInput if there is none; NotJudged if all
    are in directories here, and none has a verdict."""
    locations = [location_of(location) for location in directories]
    here = [location for location in locations if isinstance(location, Path)]
    found: list[Path | StoredRun] = [*run_directories(here)] if here else []
    stored = [run for location in locations if isinstance(location, str) for run in runs_below(location)]
    if not stored and not any((run / "verdict.json").is_file() for run in found if isinstance(run, Path)):
        raise nothing_judged(found)
    return [*found, *stored]


def nothing_judged(runs: Sequence[Path | StoredRun]) -> NotJudged:
    """Makes the error for runs without any verdict."""
    first = runs[0] if isinstance(runs[0], Path) else runs[0].address
    return NotJudged(
        f"There is nothing to show: {len(runs):,} runs were found, and none has a verdict (verdict.json is missing or torn). "
        f"`prozess check {first}` makes one."
    )


def report_trends(
    directories: Sequence[str], out: Path, *, find: Callable[[Sequence[Path | StoredRun]], Trends], strict: bool
) -> int:
    """Finds, shows and writes the trends; returns the exit code: 1 if something got worse and `strict`. `directories`:
    directories and URIs. `find`: the trends of these runs."""
    runs = runs_among(directories)
    trends = find(runs)
    if not trends.nights:
        raise nothing_judged(runs)
    worse = regressions(trends)
    show_trends(trends, worse)
    sys.stdout.write(f"page   {write_trends(trends, worse, out)}\n")
    return int(ExitCode.VIOLATED if worse and strict else ExitCode.HELD)


# Numbers over nights as small SVG charts: a panel per number, drawn without scripts in the colours of the page.


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
        """Returns the points of the line in SVG's format."""
        return " ".join(f"{x:.1f},{y:.1f}" for x, y, *_ in self.points)

    @property
    def words(self) -> str:
        """Returns the chart in words, for readers who cannot see it."""
        first, last = self.points[0], self.points[-1]
        nights = f"{len(self.points)} nights" if len(self.points) > 1 else "one night"
        course = f"{self.name}, {self.unit}, {nights}: from {first[3]:,.1f} ({first[2]}) to {last[3]:,.1f} ({last[2]})"
        return f"{course}; at most {self.highest:,.1f}"


def night_charts(measures: Sequence[Measure]) -> list[NightChart]:
    """Returns the charts of one trial; the axis of values begins at zero."""

    def key(measure: Measure) -> tuple[str, str]:
        return measure.name, measure.unit

    return [
        _chart(*name, list(group)) for name, group in groupby(sorted(measures, key=lambda m: (*key(m), m.night)), key)
    ]


def _chart(name: str, unit: str, measures: Sequence[Measure]) -> NightChart:
    highest = max(measure.value for measure in measures)
    step = (RIGHT - LEFT) / max(len(measures) - 1, 1)
    points = [
        (LEFT + index * step, BOTTOM - (BOTTOM - TOP) * m.value / (highest or 1), m.night, m.value)
        for index, m in enumerate(measures)
    ]
    return NightChart(name, unit, points, highest)


# What `prozess trends` shows: tables for the terminal, and trends.html with a chart per number.


def show_trends(trends: Trends, worse: Sequence[Regression]) -> None:
    """Prints a line per trial and night, and then the numbers that got worse."""
    out = console()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("trial", "night", "held", "violated", "unknown", "interrupted", "found"):
        table.add_column(heading, justify="left" if heading in ("trial", "night", "found") else "right")
    for night in trends.nights:
        found = ", ".join(f"{name} {count:,}" for name, count in night.findings)
        counts = (str(night.held), str(night.violated), str(night.unknown), str(night.interrupted))
        table.add_row(night.trial, night.night, *counts, escape(found))
    out.print(table)
    for regression in worse:
        out.print(
            f"[yellow]worse[/yellow]  {regression.trial}, {regression.night}: {escape(regression.what)}", soft_wrap=True
        )
    without = f", {trends.without_verdict} of them without a verdict" if trends.without_verdict else ""
    out.print(f"{number_of(trends.runs, 'run')}{without}; {number_of(len(worse), 'regression')}")


def write_trends(trends: Trends, worse: Sequence[Regression], path: Path) -> Path:
    """Writes trends.html: one file, nothing loaded; returns its path."""
    trials = sorted({night.trial for night in trends.nights})
    template = environment("prozess.harness.report").get_template("trends.html.j2")
    text = template.render(
        trends=trends,
        worse=worse,
        charts={trial: night_charts([m for m in trends.measures if m.trial == trial]) for trial in trials},
        signs=VERDICT_SIGNS,
        width=WIDTH,
        height=HEIGHT,
    )
    path.write_text(printable(text), encoding="utf-8")
    return path
