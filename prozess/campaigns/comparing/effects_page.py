"""Shows what each setting changes (`prozess effects`): a table for the terminal, and a page with small charts."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isnan
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from prozess.app.run_tables import Read
from prozess.campaigns.comparing.setting_effects import (
    HARMS,
    RUNS_MIN,
    CellObservations,
    SettingEffect,
    SettingInteraction,
    ShareChange,
    effects,
    interactions,
    observe,
)
from prozess.harness.console import console
from prozess.harness.errors import NotJudged
from prozess.harness.printable import number_of, printable
from prozess.harness.report.html import environment
from prozess.harness.report.words import short

NOTHING = 0.005
"""A smaller change is shown as none."""
WIDTH, ROW, LEFT = 250, 14, 64
"""A chart has this width, and this height for each row; its axis of −100 % begins at LEFT."""


def report_effects(read: Read, out: Path) -> None:
    """Finds, shows and writes the effects. NotJudged if no cell of these tables was looked at."""
    observations = observe(read)
    if not len(observations.seen):
        raise NotJudged(
            "There is nothing to compare: no cell has a verdict. `prozess check RUN` makes one; `prozess runs` lists runs."
        )
    found, together = effects(observations), interactions(observations)
    show_effects(observations, found, together)
    sys.stdout.write(f"page   {write_effects(observations, found, together, out)}\n")


def change_words(change: ShareChange | None) -> str:
    """Returns a change in percent of the cells, with its interval: `+38 (31 to 45)`; `none`; `–` where nobody could look."""
    if change is None:
        return "–"
    mean = f"{100 * change.mean:+.0f}" if abs(change.mean) >= NOTHING else "none"
    if isnan(change.low):
        return f"{mean} (?)"
    if mean == "none" and max(-change.low, change.high) < NOTHING:
        return mean
    return f"{mean} ({100 * change.low:.0f} to {100 * change.high:.0f})"


def interaction_words(one: SettingInteraction) -> str:
    """Returns an interaction as a sentence, with the shares of cells that it rests on."""
    (first, second), (a, b) = one.settings, one.values
    neither, alone, other, both = (f"{100 * share:.0f} %" for share in one.shares)
    how = (
        "only together" if one.only_together else "more than each alone" if one.contrast.mean > 0 else "less than both"
    )
    return (
        f"{short(first)}={a} and {short(second)}={b}, {how}: {one.harm} in {both} of the cells; with the first alone "
        f"{alone}, with the second alone {other}, with neither {neither} ({number_of(one.contrast.runs, 'run')})"
    )


def runs_behind(effect: SettingEffect) -> int:
    """Returns how many runs are behind an effect."""
    return max(change.runs for change in effect.changes if change is not None)


def show_effects(
    observations: CellObservations, found: Sequence[SettingEffect], together: Sequence[SettingInteraction]
) -> None:
    """Prints a line for each value of each setting that changes something, and names those that change nothing."""
    out = console()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("setting")
    table.add_column("from → to")
    for harm in HARMS:
        table.add_column(harm, justify="right")
    table.add_column("runs", justify="right")
    idle = []
    for effect in found:
        if all(change is None or abs(change.mean) < NOTHING for change in effect.changes):
            idle.append(effect)
            continue
        words = [change_words(change) for change in effect.changes]
        label = f"{effect.reference} → {effect.value}"
        table.add_row(escape(short(effect.setting)), escape(label), *words, str(runs_behind(effect)))
    out.print(table)
    out.print(
        "Change of the share of cells in which it was seen, in percent, with an interval of 95 %.", soft_wrap=True
    )
    for harm, meaning in HARMS.items():
        out.print(f"  [bold]{harm}[/bold]: {escape(meaning)}", soft_wrap=True)
    if idle:
        names = sorted({short(effect.setting) for effect in idle})
        out.print(f"no change was seen of {escape(', '.join(names))}", soft_wrap=True)
    for one in together:
        out.print(f"together  {escape(interaction_words(one))}", soft_wrap=True)
    runs = number_of(len(set(observations.run.tolist())), "run")
    out.print(f"{runs}, {number_of(len(observations.seen), 'cell')}; {number_of(len(together), 'interaction')}")


@dataclass(frozen=True, slots=True)
class EffectMark:
    """One change in a chart: a row, where its interval begins and ends, and where the change is."""

    harm: str
    y: float
    x: float
    begin: float
    end: float
    words: str


def marks_of(effect: SettingEffect) -> list[EffectMark]:
    """Returns the marks of one value of a setting, a row for each harm that could be compared."""
    known = [(harm, change) for harm, change in zip(HARMS, effect.changes, strict=True) if change is not None]
    return [
        EffectMark(harm, ROW * (row + 0.5), _x(c.mean), _x(c.mean if isnan(c.low) else c.low),
             _x(c.mean if isnan(c.high) else c.high), change_words(c))
        for row, (harm, c) in enumerate(known)
    ]  # fmt: skip


def _x(share: float) -> float:
    """Returns where a change between −1 and 1 stands in a chart."""
    return LEFT + (WIDTH - LEFT - 6) * (share + 1) / 2


def write_effects(
    observations: CellObservations, found: Sequence[SettingEffect], together: Sequence[SettingInteraction], path: Path
) -> Path:
    """Writes the page: one file, nothing loaded; returns its path."""
    by_setting = [
        (name, [(effect, marks_of(effect)) for effect in group])
        for name, group in groupby(sorted(found, key=lambda e: [f.setting for f in found].index(e.setting)),
                                   key=lambda e: e.setting)
    ]  # fmt: skip
    text = environment("prozess.campaigns").get_template("effects.html.j2").render(
        settings=by_setting,
        together=[interaction_words(one) for one in together],
        harms=HARMS,
        runs=len(set(observations.run.tolist())),
        cells=len(observations.seen),
        short=short,
        runs_behind=runs_behind,
        words=change_words,
        runs_min=RUNS_MIN,
        width=WIDTH,
        row=ROW,
        zero=_x(0),
        left=LEFT,
    )  # fmt: skip
    path.write_text(printable(text), encoding="utf-8")
    return path
