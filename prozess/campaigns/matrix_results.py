"""Puts the verdicts of all trials of a matrix together: how often each guarantee held with each setting, what was lost,
what is unknown.

A trial without a whole verdict is counted as such, and never as held.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field
from rich.console import Console
from rich.table import Table

from prozess.campaigns.engine import exit_code_of
from prozess.campaigns.matrix_layout import MatrixTrial
from prozess.harness.console import console
from prozess.harness.exit_codes import ExitCode
from prozess.harness.printable import number_of, printable
from prozess.harness.report.html import environment
from prozess.harness.report.words import MEANINGS, SIGNS, VERDICT_SIGNS, css_class, short
from prozess.harness.run_directory import write_whole
from prozess.harness.values import Frozen
from prozess.harness.verdict import AnomalyOutcome, Verdict

WORTH_A_LOOK = (AnomalyOutcome.VIOLATED, AnomalyOutcome.UNKNOWN, AnomalyOutcome.PERMITTED)
"""The outcomes that pages name, the worst first."""
WORSE = (*WORTH_A_LOOK, AnomalyOutcome.POSSIBLE, AnomalyOutcome.HELD, AnomalyOutcome.NOT_JUDGED)
_MUCH = 10
"""A change is reported if so many times as many permitted records were seen as before."""


class CellTally(Frozen):
    """Counts how often one guarantee had each outcome in many cells, and how many witnesses there were."""

    held: int = 0
    proven: int = 0
    """The held cells in which a control showed, under the same faults, that a violation would have been seen."""
    permitted: int = 0
    possible: int = 0
    violated: int = 0
    unknown: int = 0
    witnesses_permitted: int = 0
    witnesses_forbidden: int = 0
    defects: tuple[str, ...] = ()
    """Known defects that are proven to have caused everything that was forbidden."""

    @property
    def worst(self) -> AnomalyOutcome:
        """The worst outcome: violated before unknown before permitted before held."""
        for outcome in (*WORTH_A_LOOK, AnomalyOutcome.HELD):
            if getattr(self, outcome.name.lower()):
                return outcome
        return AnomalyOutcome.POSSIBLE if self.possible else AnomalyOutcome.NOT_JUDGED

    def __add__(self, other: "CellTally") -> "CellTally":
        counts = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        return CellTally(**counts, defects=tuple(dict.fromkeys((*self.defects, *other.defects))))


_COUNTS = tuple(name for name in CellTally.model_fields if name != "defects")
Tallies = dict[str, CellTally]
"""Anomaly → its tally."""


class ConfigurationResult(Frozen):
    """One combination of settings, over all trials that had it. `axes`: only those that vary in its workload."""

    workload: str
    axes: dict[str, str]
    tallies: Tallies
    runs: dict[str, str] = Field(default_factory=dict)
    """Anomaly → the run in which it was worst, if it was violated, unknown or seen."""

    @property
    def key(self) -> str:
        """A text that is the same in every result of the same matrix."""
        return f"{self.workload} " + " ".join(f"{axis}={value}" for axis, value in sorted(self.axes.items()))


class MatrixTrialLine(MatrixTrial):
    """One trial of the matrix, as the tables show it."""

    verdict: Verdict | None = None
    """None: it was not run, or has no verdict."""
    sentence: str = ""
    run: str | None = None
    took_s: float = 0.0
    cpu_s: float = 0.0
    cells: int = 0
    controls_fired: tuple[str, ...] = ()
    """The anomalies whose controls showed them."""
    controls_silent: tuple[str, ...] = ()


class Problem(Frozen):
    """A guarantee that was violated in a cell; or all guarantees of a trial that are unknown for one reason."""

    trial: int
    run: str
    cell: str
    """The first of these cells."""
    cells: int = 1
    anomaly: str
    """The anomaly. If the outcome is unknown, each of them."""
    outcome: AnomalyOutcome
    count: int
    reason: str
    defects: tuple[str, ...] = ()


class Results(Frozen):
    """The file result.json: the outcome of every trial of a matrix, and the outcomes by setting."""

    name: str
    title: str
    planned: int
    trials: tuple[MatrixTrialLine, ...]
    guarantees: Tallies
    settings: dict[str, dict[str, Tallies]]
    """Axis → value → tallies, for every axis that varies, of cells, cluster and schedule."""
    configurations: tuple[ConfigurationResult, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    """Runs whose verdict could not be read."""

    @property
    def exit_code(self) -> ExitCode:
        """Returns 1 if anything was violated, 2 if anything is unknown or was not run, else 0."""
        return exit_code_of(trial.verdict for trial in self.trials)


class ResultChange(Frozen):
    """One guarantee of one configuration, or of the whole matrix, whose result changed."""

    what: str
    anomaly: str
    before: str
    after: str


class Difference(Frozen):
    """The changes between two results of a matrix.

    A regression: violated or unknown now and not before, a control that no longer fires, a configuration or a verdict
    that is gone.
    """

    regressions: tuple[ResultChange, ...]
    changes: tuple[ResultChange, ...]
    """Neither better nor worse: permitted losses come and go."""
    improvements: tuple[ResultChange, ...]


def compare(before: Results, after: Results) -> Difference:
    """Compares two results of a matrix, configuration by configuration."""
    ranked: list[tuple[int, ResultChange]] = []
    old, new = ({c.key: c for c in results.configurations} for results in (before, after))
    for key, configuration in old.items():
        if (now := new.get(key)) is None:
            ranked.append((1, ResultChange(what=key, anomaly="", before="judged", after="not there")))
        else:
            ranked += _changes(key, configuration, now)
    ranked += [(1, change) for change in (*_controls(before, after), *_verdicts(before, after))]

    def of_rank(wanted: int) -> tuple[ResultChange, ...]:
        return tuple(change for rank, change in ranked if rank == wanted)

    return Difference(regressions=of_rank(1), changes=of_rank(0), improvements=of_rank(-1))


def _changes(key: str, before: ConfigurationResult, after: ConfigurationResult) -> Iterator[tuple[int, ResultChange]]:
    """Yields each change of a guarantee, with 1 if it is a regression, -1 if it is an improvement, and 0 if it is neither."""
    for anomaly in {**before.tallies, **after.tallies}:
        was, now = before.tallies.get(anomaly, CellTally()), after.tallies.get(anomaly, CellTally())
        change = ResultChange(what=key, anomaly=anomaly, before=_words(was), after=_words(now))
        bad_before, bad_after = (WORSE.index(tally.worst) for tally in (was, now))
        gone = was.worst is not AnomalyOutcome.NOT_JUDGED and now.worst is AnomalyOutcome.NOT_JUDGED
        if gone or (bad_after <= 1 and bad_after < bad_before):
            yield 1, change
        elif bad_before <= 1 and bad_after > bad_before:
            yield -1, change
        elif bad_before != bad_after or now.witnesses_permitted > _MUCH * max(1, was.witnesses_permitted):
            yield 0, change


def _words(tally: CellTally) -> str:
    if tally.worst is AnomalyOutcome.VIOLATED:
        known = f" ({'; '.join(tally.defects)})" if tally.defects else ""
        return f"violated in {number_of(tally.violated, 'cell')}, {tally.witnesses_forbidden:,} records{known}"
    if tally.worst is AnomalyOutcome.UNKNOWN:
        return f"unknown in {number_of(tally.unknown, 'cell')}"
    if tally.worst is AnomalyOutcome.PERMITTED:
        return f"permitted in {number_of(tally.permitted, 'cell')}, {tally.witnesses_permitted:,} records"
    return str(tally.worst)


def _controls(before: Results, after: Results) -> Iterator[ResultChange]:
    now = {trial.number: trial for trial in after.trials}
    for trial in before.trials:
        there = now.get(trial.number)
        if there is None or there.row != trial.row or there.verdict is None:
            continue
        for anomaly in trial.controls_fired:
            if anomaly in there.controls_silent and anomaly not in there.controls_fired:
                what = f"control of trial {trial.number}, {' '.join(trial.row.values())}"
                yield ResultChange(what=what, anomaly=anomaly, before="fired", after="silent")


def _verdicts(before: Results, after: Results) -> Iterator[ResultChange]:
    now = {(tuple(sorted(t.row.items())), t.seed, t.part): t for t in after.trials}
    for trial in before.trials:
        there = now.get((tuple(sorted(trial.row.items())), trial.seed, trial.part))
        if trial.verdict is not None and (there is None or there.verdict is None):
            what = f"trial {' '.join(trial.row.values())}"
            yield ResultChange(what=what, anomaly="", before=trial.verdict, after="no verdict")


def show_difference(difference: Difference) -> None:
    """Prints what changed, regressions first."""
    out = console()
    for title, changes in (
        ("Regressions", difference.regressions),
        ("Other changes", difference.changes),
        ("Improvements", difference.improvements),
    ):
        out.print(f"{title}: {len(changes):,}")
        for change in changes:
            named = f"{change.anomaly}, " if change.anomaly else ""
            out.print(f"  {named}{change.what}: {change.before} → {change.after}", markup=False, soft_wrap=True)


_PROBLEMS, _LONG = 20, 300
"""Limits of the terminal output: entries of each kind, and letters of a reason. The page has all."""
LEGEND = "✗ violated  ? unknown  ● permitted (cells: records)  ✓ held  ○ possible, not seen"


def show_results(results: Results) -> None:
    """Prints the results of a matrix by setting."""
    out = console()
    run = [trial for trial in results.trials if trial.verdict is not None]
    cells = sum(trial.cells for trial in run)
    out.print(f"[bold]{results.name}[/bold]  {results.title}")
    out.print(
        f"{len(run):,} of {results.planned:,} trials, {cells:,} cells, {sum(t.took_s for t in run) / 60:.0f} minutes"
    )
    if not run:
        out.print("No trial was run yet.")
    else:
        verdict = overall(results)
        out.print(f"{VERDICT_SIGNS[verdict]} {verdict}  {sentence(results)}\n", markup=False, soft_wrap=True)
        _show_guarantees(out, results)
        _show_settings(out, results)
        _show_problems(out, results)
    for note in results.notes:
        out.print(f"? {note}", markup=False, soft_wrap=True)


def overall(results: Results) -> Verdict:
    """Returns the verdict of all planned trials together."""
    return {ExitCode.HELD: Verdict.HELD, ExitCode.VIOLATED: Verdict.VIOLATED}.get(results.exit_code, Verdict.UNKNOWN)


def sentence(results: Results) -> str:
    """Returns a sentence with the number of trials, and the number of cells in which each guarantee was violated."""
    verdicts = Counter(trial.verdict for trial in results.trials)
    words = {Verdict.VIOLATED: "violated", Verdict.UNKNOWN: "unknown", None: "without a verdict"}
    counts = ", ".join(f"{verdicts[key]:,} {word}" for key, word in words.items() if verdicts[key])
    text = f"{verdicts[Verdict.HELD]:,} of {number_of(results.planned, 'trial')} held" + (
        f", {counts}" if counts else ""
    )
    broken = sorted(((t.violated, name) for name, t in results.guarantees.items() if t.violated), reverse=True)
    if broken:
        text += ". Violated: " + ", ".join(
            f"{name} in {number_of(cells, 'cell')}{_known(results, name)}" for cells, name in broken
        )
    doubted = max((tally.unknown for tally in results.guarantees.values()), default=0)
    if doubted:
        text += f". Unknown in up to {number_of(doubted, 'cell')}"
    return f"{text}."


def _known(results: Results, anomaly: str) -> str:
    """Names the known defects that explain all violations of an anomaly, if they do."""
    broken = [p for p in results.problems if p.anomaly == anomaly and p.outcome is AnomalyOutcome.VIOLATED]
    defects = dict.fromkeys(defect.partition(",")[0] for problem in broken for defect in problem.defects)
    return f" (known: {', '.join(defects)})" if broken and all(p.defects for p in broken) else ""


def guarantee_columns(results: Results) -> list[str]:
    """Returns the guarantees with an outcome other than held, the worst first."""
    some = [name for name, tally in results.guarantees.items() if tally.worst in WORTH_A_LOOK]
    return sorted(some, key=lambda name: WORSE.index(results.guarantees[name].worst))


def _show_guarantees(out: Console, results: Results) -> None:
    table = Table(box=None, pad_edge=False, title="Guarantees, in cells", title_justify="left")
    table.add_column("guarantee against", min_width=max(map(len, results.guarantees)))
    for column in ("✗ violated", "? unknown", "● permitted", "records", "✓ held", "proven", "○ possible, not seen"):
        table.add_column(column, justify="right")
    table.add_column("controls")
    for name, tally in results.guarantees.items():
        bad = (tally.violated, tally.unknown, tally.permitted, tally.witnesses_permitted)
        table.add_row(
            name,
            *(f"{n:,}" if n else "" for n in (*bad, tally.held, tally.proven, tally.possible)),
            controls(results, name),
            style="bold" if tally.violated else "",
        )
    out.print(table)


def controls(results: Results, anomaly: str) -> str:
    """Returns in how many trials the controls of an anomaly fired, of those that had some."""
    fired = sum(anomaly in trial.controls_fired for trial in results.trials)
    silent = sum(anomaly in trial.controls_silent and anomaly not in trial.controls_fired for trial in results.trials)
    return f"fired in {fired} of {fired + silent}" if fired + silent else ""


def brief(tally: CellTally | None) -> str:
    """Returns the text of a table cell for a setting and a guarantee, in a few letters."""
    if tally is None:
        return ""
    sign = SIGNS[tally.worst]
    match tally.worst:
        case AnomalyOutcome.VIOLATED:
            return f"{sign} {tally.violated}: {tally.witnesses_forbidden:,}"
        case AnomalyOutcome.PERMITTED:
            return f"{sign} {tally.permitted}: {tally.witnesses_permitted:,}"
        case AnomalyOutcome.UNKNOWN:
            return f"{sign} {tally.unknown}" + (
                f" ● {tally.permitted}: {tally.witnesses_permitted:,}" if tally.permitted else ""
            )
        case _:
            return sign


def _show_settings(out: Console, results: Results) -> None:
    columns = [
        name
        for name in guarantee_columns(results)
        if results.guarantees[name].violated or results.guarantees[name].permitted
    ]
    if not columns:
        return
    out.print(f"\nWhat each setting is worth, in cells: {LEGEND}", soft_wrap=True)
    width = max(1, (out.width - 40) // 14)
    for first in range(0, len(columns), width):
        part = columns[first : first + width]
        table = Table(box=None, pad_edge=False)
        table.add_column("setting", no_wrap=True)
        for column in part:
            table.add_column(column, justify="right")
        for axis, values in results.settings.items():
            for value, tallies in values.items():
                if any(column in tallies for column in part):
                    table.add_row(f"{short(axis) or axis}={value}"[:44], *(brief(tallies.get(c)) for c in part))
        out.print(table)


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


# matrix.html: the results by setting as one page that opens offline, with links to the reports of the runs.

PAGE, DATA = "matrix.html", "result.json"


def write_page(path: Path, results: Results) -> list[Path]:
    """Writes matrix.html, which opens offline and links to the reports of the runs, and result.json. Returns their
    paths."""
    axes = sorted({axis for c in results.configurations for axis in c.axes})
    text = (
        environment("prozess.campaigns")
        .get_template("matrix.html.j2")
        .render(
            results=results,
            verdict=overall(results),
            sentence=sentence(results),
            count=lambda number: f"{number:,}" if number else "",
            columns=guarantee_columns(results),
            axes=axes,
            brief=brief,
            controls=controls,
            signs=SIGNS,
            meanings=MEANINGS,
            css=css_class,
            verdict_signs=VERDICT_SIGNS,
            has_report=lambda run: run is not None and (path / "runs" / run / "report.html").exists(),
            short=lambda axis: short(axis) or axis,
        )
    )
    written = [path / DATA, path / PAGE]
    for file, content in zip(written, (results.model_dump_json(indent=1), printable(text)), strict=True):
        write_whole(file, content)
    return written
