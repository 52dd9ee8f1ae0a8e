"""This module shows the trends of many runs (`prozess trends`): tables for the terminal, and a page with a chart per number.

The numbers are questions to the tables over many runs (docs/run-tables.md), and `prozess.harness.impact.trends` says what got
worse.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from prozess.app.run_tables import Read
from prozess.harness.console import console
from prozess.harness.errors import NotJudged
from prozess.harness.exit_codes import ExitCode
from prozess.harness.impact.trends import Measure, NightOfTrial, Regression, Trends, regressions
from prozess.harness.printable import number_of, printable
from prozess.harness.report.html import environment
from prozess.harness.report.words import VERDICT_SIGNS

UNDATED = "undated"
"""The night of runs of which nobody noted when they began."""


def report_trends(read: Read, out: Path, *, strict: bool) -> int:
    """Finds, shows and writes the trends; returns the exit code: 1 if something got worse and `strict`. NotJudged if no run
    has a verdict."""
    trends = find_trends(read)
    if not trends.nights:
        raise NotJudged(
            f"There is nothing to show: {number_of(trends.runs, 'run')}, and none has a verdict (verdict.json is missing or "
            "torn). `prozess check RUN` makes one."
        )
    worse = regressions(trends)
    show_trends(trends, worse)
    sys.stdout.write(f"page   {write_trends(trends, worse, out)}\n")
    return int(ExitCode.VIOLATED if worse and strict else ExitCode.HELD)


def find_trends(read: Read) -> Trends:
    """Returns the trends of the runs in these tables. A run without a verdict is counted and left out."""
    runs = read("runs", ["run", "trial", "night", "verdict", "interrupted", "found"]).to_pylist()
    judged = [run for run in runs if run["verdict"] is not None]
    nights: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    key_of: dict[str, tuple[str, str]] = {}
    for run in judged:
        key = key_of[run["run"]] = (run["trial"] or "unreadable", str(run["night"] or UNDATED))
        nights[key]["interrupted" if run["verdict"] == "unknown" and run["interrupted"] else run["verdict"]] += 1
        found[key].update(dict(run["found"]))
    return Trends(
        tuple(
            NightOfTrial(
                *key, n["held"], n["violated"], n["unknown"], tuple(sorted(found[key].items())), n["interrupted"]
            )
            for key, n in sorted(nights.items())
        ),
        tuple(_measures(read, key_of)),
        len(runs),
        len(runs) - len(judged),
    )


def _measures(read: Read, key_of: dict[str, tuple[str, str]]) -> Iterator[Measure]:
    """Yields what faults cost in each night: recovery, the longest gap, and the throughput before them."""
    numbers: dict[tuple[str, str, str], list[Any]] = defaultdict(list)  # trial, name and night → numbers, or None
    for row in read("impacts", ["run", "kind", "after_fault_median_ms", "longest_s", "phases"]).to_pylist():
        if (key := key_of.get(row["run"])) is not None:
            trial, night = key
            longest_s = row["longest_s"]
            numbers[trial, f"recovery after {row['kind']}", night].append(row["after_fault_median_ms"])
            numbers[trial, f"longest gap under {row['kind']}", night].append(longest_s and longest_s * 1000)
            for phase in (phase for phase in row["phases"] if phase["phase"] == "before"):
                numbers[trial, f"throughput before faults, acks={phase['acks']}", night].append(phase["per_s"])
    for (trial, name, night), values in sorted(numbers.items()):
        known = [value for value in values if value is not None]
        if known:
            value = max(known) if name.startswith("longest") else median(known)
            unit, worse = ("records/s", False) if name.startswith("throughput") else ("ms", True)
            yield Measure(trial, night, name, value, unit, len(values), worse)


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
