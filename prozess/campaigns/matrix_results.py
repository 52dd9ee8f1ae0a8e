"""Puts the verdicts of all trials of a matrix together: how often each guarantee held with each setting, what was lost,
what is unknown.

A trial without a whole verdict is counted as such, and never as held.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import Field
from rich.console import Console
from rich.table import Table

from prozess.campaigns.campaign_plan import ALL_TRIALS, CampaignDirectory
from prozess.campaigns.comparing import RunSummary
from prozess.campaigns.engine import TrialAttempt, exit_code_of
from prozess.campaigns.matrix_layout import MatrixTrial, read_matrix_file
from prozess.harness.console import console
from prozess.harness.errors import ExitCode, HistoryUnreadable
from prozess.harness.printable import number_of, printable
from prozess.harness.report.html import environment
from prozess.harness.report.words import MEANINGS, SIGNS, VERDICT_SIGNS, short
from prozess.harness.run_directory import write_whole
from prozess.harness.values import Frozen
from prozess.harness.verdict import AnomalyOutcome, CellAnomaly, TrialVerdict, Verdict

_WORTH_A_LOOK = (AnomalyOutcome.VIOLATED, AnomalyOutcome.UNKNOWN, AnomalyOutcome.SHOWN)
"""The outcomes that pages name, the worst first."""
_WORSE = (*_WORTH_A_LOOK, AnomalyOutcome.PERMITTED, AnomalyOutcome.HELD, AnomalyOutcome.NOT_JUDGED)
_MUCH = 10
"""A change is reported if so many times as many permitted records were seen as before."""


class CellTally(Frozen):
    """Counts how often one guarantee had each outcome in many cells, and how many witnesses there were."""

    held: int = 0
    proven: int = 0
    """The held cells in which a control showed, under the same faults, that a violation would have been seen."""
    shown: int = 0
    permitted: int = 0
    violated: int = 0
    unknown: int = 0
    witnesses_permitted: int = 0
    witnesses_forbidden: int = 0
    defects: tuple[str, ...] = ()
    """Known defects that are proven to have caused everything that was forbidden."""

    @property
    def worst(self) -> AnomalyOutcome:
        """The worst outcome: violated before unknown before seen before held."""
        for outcome in (*_WORTH_A_LOOK, AnomalyOutcome.HELD):
            if getattr(self, outcome.name.lower()):
                return outcome
        return AnomalyOutcome.PERMITTED if self.permitted else AnomalyOutcome.NOT_JUDGED

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


def read_results(directory: CampaignDirectory) -> Results:
    """Reads the results of a matrix, or of one share of it, from its directory. BadInput if it is none."""
    begun, shard = read_matrix_file(directory.path), directory.begun().shard
    last = {attempt.job.number: attempt for attempt in directory.attempts()}
    lines, verdicts, notes = [], {}, []
    for planned_trial in begun.trials:
        line = MatrixTrialLine.model_validate(planned_trial.model_dump())
        if not shard.has(line.number):
            continue
        attempt = last.get(line.number)
        if attempt is not None:
            line, verdict, note = _line(line, attempt, directory.runs)
            notes += [note] if note else []
            if verdict is not None:
                verdicts[line.number] = verdict
        lines.append(line)
    share = "" if shard == ALL_TRIALS else f" (share {shard.number} of {shard.of})"
    return gather_results(begun.name, f"{begun.title}{share}", lines, verdicts, notes)


def _line(
    line: MatrixTrialLine, attempt: TrialAttempt, runs: Path
) -> tuple[MatrixTrialLine, TrialVerdict | None, str | None]:
    made = line.model_copy(
        update={"run": attempt.run, "took_s": attempt.took_s, "cpu_s": attempt.cpu_s, "sentence": attempt.reason}
    )
    if attempt.run is None or attempt.verdict is None:
        return made, None, f"trial {line.number} has no verdict: {attempt.reason or 'it ended before it had one'}"
    try:
        verdict, reason = RunSummary.at(runs / attempt.run).verdict, "it is missing"
    except HistoryUnreadable as error:
        verdict, reason = None, str(error).splitlines()[0]
    if verdict is None:
        return (
            made,
            None,
            f"trial {line.number}: the verdict of {attempt.run} cannot be read ({reason}). Check the run again",
        )
    update = {
        "verdict": verdict.verdict,
        "sentence": verdict.sentence,
        "cells": len(verdict.cells),
        "controls_fired": tuple(dict.fromkeys(c.anomaly for c in verdict.controls if c.fired)),
        "controls_silent": tuple(dict.fromkeys(c.anomaly for c in verdict.controls if not c.fired)),
    }
    return made.model_copy(update=update), verdict, None


def gather_results(
    name: str,
    title: str,
    lines: Sequence[MatrixTrialLine],
    verdicts: Mapping[int, TrialVerdict],
    notes: Iterable[str] = (),
) -> Results:
    """Summarizes all verdicts. `verdicts`: number of the trial → its verdict."""
    varying = _varying(verdicts.values())
    rows = {line.number: (line.row if len(lines) > 1 else {}) for line in lines}
    settings: dict[str, dict[str, Tallies]] = defaultdict(lambda: defaultdict(dict))
    together: dict[str, CellTally] = {}
    configurations: dict[str, ConfigurationResult] = {}
    problems: list[Problem] = []
    for line in lines:
        verdict = verdicts.get(line.number)
        if verdict is None or line.run is None:
            continue
        for cell in verdict.cells:
            mine = {axis: value for axis, value in cell.axes.items() if axis in varying[cell.workload]}
            tallies = {
                a.anomaly: tally_of(a) for a in cell.anomalies.values() if a.outcome != AnomalyOutcome.NOT_JUDGED
            }
            _add(together, tallies)
            for axis, value in ({"workload": cell.workload} | mine | rows[line.number]).items():
                _add(settings[axis][value], tallies)
            new = ConfigurationResult(workload=cell.workload, axes=mine, tallies={})
            configuration = configurations.setdefault(new.key, new)
            for anomaly, tally in tallies.items():
                before = configuration.tallies.get(anomaly, CellTally())
                if tally.worst in _WORTH_A_LOOK and _WORSE.index(tally.worst) < _WORSE.index(before.worst):
                    configuration.runs[anomaly] = line.run
            _add(configuration.tallies, tallies)
        problems += _problems(line, verdict)
    return Results(
        name=name,
        title=title,
        planned=len(lines),
        trials=tuple(lines),
        guarantees=together,
        settings={axis: dict(values) for axis, values in settings.items()},
        configurations=tuple(configurations.values()),
        problems=tuple(sorted(problems, key=lambda p: (p.outcome != AnomalyOutcome.VIOLATED, p.anomaly, p.trial))),
        notes=tuple(notes),
    )


def _varying(verdicts: Iterable[TrialVerdict]) -> dict[str, set[str]]:
    """Returns workload → the axes in which its cells differ."""
    values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for verdict in verdicts:
        for cell in verdict.cells:
            for axis, value in cell.axes.items():
                values[cell.workload][axis].add(value)
    return {w: {axis for axis, seen in axes.items() if len(seen) > 1} for w, axes in values.items()}


def tally_of(anomaly: CellAnomaly) -> CellTally:
    """Returns the tally of one guarantee in one cell."""
    return CellTally(
        **{anomaly.outcome.name.lower(): 1},
        proven=int(anomaly.outcome is AnomalyOutcome.HELD and anomaly.proven is True),
        witnesses_permitted=anomaly.permitted,
        witnesses_forbidden=anomaly.forbidden,
        defects=anomaly.defects if anomaly.by_known_defects else (),
    )


def _add(into: dict[str, CellTally], tallies: Mapping[str, CellTally]) -> None:
    for anomaly, tally in tallies.items():
        into[anomaly] = into[anomaly] + tally if anomaly in into else tally


def _problems(line: MatrixTrialLine, verdict: TrialVerdict) -> Iterator[Problem]:
    """Yields each violation, and what is unknown by its reason."""
    assert line.run is not None
    number, run = line.number, line.run
    unknown: dict[str, list[tuple[str, CellAnomaly]]] = defaultdict(list)
    for cell in verdict.cells:
        for a in cell.anomalies.values():
            if a.outcome is AnomalyOutcome.UNKNOWN:
                unknown[a.reason].append((cell.name, a))
            elif a.outcome is AnomalyOutcome.VIOLATED:
                yield Problem(
                    trial=number,
                    run=run,
                    cell=cell.name,
                    anomaly=a.anomaly,
                    outcome=a.outcome,
                    count=a.forbidden,
                    reason=a.reason,
                    defects=a.defects if a.by_known_defects else (),
                )
    for reason, concerned in unknown.items():
        yield Problem(
            trial=number,
            run=run,
            cell=concerned[0][0],
            cells=len({name for name, _ in concerned}),
            anomaly=", ".join(dict.fromkeys(a.anomaly for _, a in concerned)),
            outcome=AnomalyOutcome.UNKNOWN,
            count=sum(a.count for _, a in concerned),
            reason=reason,
        )


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
        bad_before, bad_after = (_WORSE.index(tally.worst) for tally in (was, now))
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
    if tally.worst is AnomalyOutcome.SHOWN:
        return f"permitted, and seen {tally.witnesses_permitted:,} times"
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
LEGEND = "✓ held  ● permitted and seen (cells: records)  ○ permitted, not seen  ✗ violated  ? unknown"


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
    some = [name for name, tally in results.guarantees.items() if tally.worst in _WORTH_A_LOOK]
    return sorted(some, key=lambda name: _WORSE.index(results.guarantees[name].worst))


def _show_guarantees(out: Console, results: Results) -> None:
    table = Table(box=None, pad_edge=False, title="Guarantees, in cells", title_justify="left")
    table.add_column("guarantee against", min_width=max(map(len, results.guarantees)))
    for column in ("✗ violated", "? unknown", "● seen", "records", "✓ held", "proven", "○ not seen"):
        table.add_column(column, justify="right")
    table.add_column("controls")
    for name, tally in results.guarantees.items():
        bad = (tally.violated, tally.unknown, tally.shown, tally.witnesses_permitted)
        table.add_row(
            name,
            *(f"{n:,}" if n else "" for n in (*bad, tally.held, tally.proven, tally.permitted)),
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
        case AnomalyOutcome.SHOWN:
            return f"{sign} {tally.shown}: {tally.witnesses_permitted:,}"
        case AnomalyOutcome.UNKNOWN:
            return f"{sign} {tally.unknown}" + (
                f" ● {tally.shown}: {tally.witnesses_permitted:,}" if tally.shown else ""
            )
        case _:
            return sign


def _show_settings(out: Console, results: Results) -> None:
    columns = [
        name
        for name in guarantee_columns(results)
        if results.guarantees[name].violated or results.guarantees[name].shown
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
            verdict_signs=VERDICT_SIGNS,
            has_report=lambda run: run is not None and (path / "runs" / run / "report.html").exists(),
            short=lambda axis: short(axis) or axis,
        )
    )
    written = [path / DATA, path / PAGE]
    for file, content in zip(written, (results.model_dump_json(indent=1), printable(text)), strict=True):
        write_whole(file, content)
    return written
