"""The results of a matrix on the terminal: one table of guarantees, one of settings, and what needs a look."""

from collections import Counter
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from harness.console import console
from harness.errors import ExitCode
from harness.guarantees.sentences import number_of
from harness.matrices.results import Results, Tally
from harness.report.words import SIGNS, VERDICT_SIGNS, short
from harness.verdict import AnomalyOutcome, Verdict

_PROBLEMS, _LONG = 20, 300
"""Shown of each kind; letters of a reason. The page has all."""
LEGEND = "✓ held  ● permitted and seen (cells: records)  ○ permitted, not seen  ✗ violated  ? unknown"


def show_results(results: Results) -> None:
    """What these settings are worth."""
    out = console()
    run = [trial for trial in results.trials if trial.verdict is not None]
    cells = sum(trial.cells for trial in run)
    out.print(f"[bold]{results.name}[/bold]  {results.title}")
    out.print(
        f"{len(run):,} of {results.planned:,} trials, {cells:,} cells, {sum(t.took_s for t in run) / 60:.0f} minutes"
    )
    if not run:
        out.print("Nothing was run yet.")
    else:
        verdict = overall(results)
        out.print(f"{VERDICT_SIGNS[verdict]} {verdict}  {sentence(results)}\n", markup=False, soft_wrap=True)
        _show_guarantees(out, results)
        _show_settings(out, results)
        _show_problems(out, results)
    for note in results.notes:
        out.print(f"? {note}", markup=False, soft_wrap=True)


def overall(results: Results) -> Verdict:
    """Of everything that was to be run."""
    return {ExitCode.HELD: Verdict.HELD, ExitCode.VIOLATED: Verdict.VIOLATED}.get(results.exit_code, Verdict.UNKNOWN)


def sentence(results: Results) -> str:
    """What came of it: the trials, and what was violated in how many cells."""
    verdicts = Counter(trial.verdict for trial in results.trials)
    words = {"held": "held", "violated": "violated", "unknown": "unknown", None: "without a verdict"}
    counts = ", ".join(f"{verdicts[key]:,} {word}" for key, word in words.items() if verdicts[key] and key != "held")
    said = f"{verdicts['held']:,} of {number_of(results.planned, 'trial')} held" + (f", {counts}" if counts else "")
    broken = sorted(((t.violated, name) for name, t in results.guarantees.items() if t.violated), reverse=True)
    if broken:
        said += ". Violated: " + ", ".join(
            f"{name} in {number_of(cells, 'cell')}{_known(results, name)}" for cells, name in broken
        )
    doubted = max((tally.unknown for tally in results.guarantees.values()), default=0)
    if doubted:
        said += f". It could not be told of up to {number_of(doubted, 'cell')}"
    return f"{said}."


def _known(results: Results, anomaly: str) -> str:
    """Which known defects were found where it was violated, if it was nowhere violated without one."""
    broken = [p for p in results.problems if p.anomaly == anomaly and p.outcome is AnomalyOutcome.VIOLATED]
    defects = dict.fromkeys(defect.partition(",")[0] for problem in broken for defect in problem.defects)
    return f" (known: {', '.join(defects)})" if broken and all(p.defects for p in broken) else ""


def told(results: Results) -> list[str]:
    """Guarantees of which there is more to say than that they held, those with most to say first."""
    order = (AnomalyOutcome.VIOLATED, AnomalyOutcome.UNKNOWN, AnomalyOutcome.SHOWN)
    some = [name for name, tally in results.guarantees.items() if tally.worst in order]
    return sorted(some, key=lambda name: order.index(results.guarantees[name].worst))


def _show_guarantees(out: Console, results: Results) -> None:
    table = Table(box=None, pad_edge=False, title="Guarantees, in cells", title_justify="left")
    table.add_column("guarantee against", min_width=max(map(len, results.guarantees)))
    for column in ("✓ held", "proven", "● seen", "records", "○ not seen", "✗ violated", "? unknown"):
        table.add_column(column, justify="right")
    table.add_column("controls")
    for name, tally in results.guarantees.items():
        counts = (tally.held, tally.proven, tally.shown, tally.witnesses_permitted, tally.permitted)
        table.add_row(
            name,
            *(f"{n:,}" if n else "" for n in (*counts, tally.violated, tally.unknown)),
            controls(results, name),
            style="bold" if tally.violated else "",
        )
    out.print(table)


def controls(results: Results, anomaly: str) -> str:
    """In how many trials the controls of an anomaly fired, of those that had some."""
    fired = sum(anomaly in trial.controls_fired for trial in results.trials)
    silent = sum(anomaly in trial.controls_silent and anomaly not in trial.controls_fired for trial in results.trials)
    return f"fired in {fired} of {fired + silent}" if fired + silent else ""


def brief(tally: Tally | None) -> str:
    """Of a setting and a guarantee, what matters most."""
    if tally is None:
        return ""
    sign = SIGNS[tally.worst]
    match tally.worst:
        case AnomalyOutcome.VIOLATED:
            return f"{sign} {tally.violated}: {tally.witnesses_forbidden:,}"
        case AnomalyOutcome.SHOWN:
            return f"{sign} {tally.shown}: {tally.witnesses_permitted:,}"
        case AnomalyOutcome.UNKNOWN:
            return f"{sign} {tally.unknown}" + (
                f" ● {tally.shown}: {tally.witnesses_permitted:,}" if tally.shown else ""
            )
        case _:
            return sign


def _show_settings(out: Console, results: Results) -> None:
    columns = [name for name in told(results) if results.guarantees[name].violated or results.guarantees[name].shown]
    if not columns:
        return
    out.print(f"\nWhat settings are worth, in cells: {LEGEND}", soft_wrap=True)
    width = max(1, (out.width - 40) // 14)
    for first in range(0, len(columns), width):
        part = columns[first : first + width]
        table = Table(box=None, pad_edge=False)
        table.add_column("setting", no_wrap=True)
        for column in part:
            table.add_column(column, justify="right")
        for axis, values in results.settings.items():
            for value, tallies in values.items():
                if _worth_a_row(tallies, part):
                    table.add_row(f"{short(axis) or axis}={value}"[:44], *(brief(tallies.get(c)) for c in part))
        out.print(table)


def _worth_a_row(tallies: Mapping[str, Tally], columns: list[str]) -> bool:
    return any(column in tallies for column in columns)


def _show_problems(out: Console, results: Results) -> None:
    violated = [p for p in results.problems if p.outcome is AnomalyOutcome.VIOLATED]
    unknown = len(results.problems) - len(violated)
    if violated:
        out.print(f"\nViolated, {len(violated):,}:")
    for problem in violated[:_PROBLEMS]:
        known = f" [{'; '.join(problem.defects)}]" if problem.defects else ""
        out.print(
            f"  ✗ {problem.anomaly} {problem.count:,} in {problem.cell} of trial {problem.trial} ({problem.run}): "
            f"{problem.reason}{known}",
            markup=False,
            soft_wrap=True,
        )
    if len(violated) > _PROBLEMS:
        out.print(f"  and {len(violated) - _PROBLEMS:,} more, in matrix.html")
    if unknown:
        out.print(f"\nUnknown, for {number_of(unknown, 'reason')}:")
    for problem in [p for p in results.problems if p.outcome is AnomalyOutcome.UNKNOWN][:_PROBLEMS]:
        reason = problem.reason if len(problem.reason) < _LONG else problem.reason[:_LONG] + "…"
        out.print(
            f"  ? {number_of(problem.cells, 'cell')} of trial {problem.trial}: {reason}", markup=False, soft_wrap=True
        )
