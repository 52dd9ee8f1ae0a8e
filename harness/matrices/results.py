"""What all trials of a matrix say together: per guarantee and setting, how often it held, what was lost, what is unknown.

Read from the verdicts of the runs; a trial without a whole verdict is counted as such, and never as held.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from harness.campaign.state import Attempt, CampaignDirectory
from harness.configuration import Frozen
from harness.errors import ExitCode
from harness.matrices.runner import read_matrix_file
from harness.verdict import AnomalyOutcome, CellAnomaly, CellVerdict, TrialVerdict

Axis = str
Value = str


class Tally(Frozen):
    """Outcomes of one guarantee in many cells: how many cells of each, and how many witnesses."""

    held: int = 0
    proven: int = 0
    """Of those held: a control showed, under the same faults, that it could have been seen."""
    shown: int = 0
    permitted: int = 0
    violated: int = 0
    unknown: int = 0
    witnesses_permitted: int = 0
    witnesses_forbidden: int = 0
    defects: tuple[str, ...] = ()
    """Known defects that match what was forbidden."""

    @property
    def worst(self) -> AnomalyOutcome:
        """Violated before unknown before seen before held."""
        for outcome in (AnomalyOutcome.VIOLATED, AnomalyOutcome.UNKNOWN, AnomalyOutcome.SHOWN, AnomalyOutcome.HELD):
            if getattr(self, outcome.name.lower()):
                return outcome
        return AnomalyOutcome.PERMITTED if self.permitted else AnomalyOutcome.NOT_JUDGED

    def __add__(self, other: "Tally") -> "Tally":
        counts = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        return Tally(**counts, defects=tuple(dict.fromkeys((*self.defects, *other.defects))))


_COUNTS = tuple(name for name in Tally.model_fields if name != "defects")
Tallies = dict[str, Tally]
"""By anomaly."""


class Configuration(Frozen):
    """One combination of settings, over all trials that had it. `axes`: only those that vary in its workload."""

    workload: str
    axes: dict[Axis, Value]
    tallies: Tallies
    runs: dict[str, str] = Field(default_factory=dict)
    """Anomaly → the run in which it was worst, where that is worth a look: violated, unknown, or seen."""

    @property
    def key(self) -> str:
        """The same in every result of the same matrix."""
        return f"{self.workload} " + " ".join(f"{axis}={value}" for axis, value in sorted(self.axes.items()))


class TrialLine(Frozen):
    """One trial of the matrix."""

    number: int
    row: dict[Axis, Value]
    seed: int
    part: int
    parts: int
    verdict: str | None = None
    """None = it was not run, or has no verdict."""
    sentence: str = ""
    run: str | None = None
    took_s: float = 0.0
    cpu_s: float = 0.0
    cells: int = 0
    controls_fired: tuple[str, ...] = ()
    """Anomalies whose controls showed them; and those whose did not."""
    controls_silent: tuple[str, ...] = ()


class Problem(Frozen):
    """A guarantee that was violated in a cell; or all those of a trial that could not be told for one reason."""

    trial: int
    run: str
    cell: str
    """The first of them."""
    cells: int = 1
    anomaly: str
    """Of what is unknown, each of them."""
    outcome: AnomalyOutcome
    count: int
    reason: str
    defects: tuple[str, ...] = ()


class Results(Frozen):
    """result.json"""

    name: str
    title: str
    planned: int
    trials: tuple[TrialLine, ...]
    guarantees: Tallies
    settings: dict[Axis, dict[Value, Tallies]]
    """Every axis that varies, of cells, cluster and schedule."""
    configurations: tuple[Configuration, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    """Runs whose verdict could not be read."""

    @property
    def exit_code(self) -> ExitCode:
        """1 if anything was violated, 2 if anything is unknown or not run, else 0."""
        verdicts = {trial.verdict for trial in self.trials}
        if "violated" in verdicts:
            return ExitCode.VIOLATED
        return ExitCode.HELD if verdicts == {"held"} else ExitCode.UNKNOWN


def read_results(directory: CampaignDirectory) -> Results:
    """From the directory of a matrix. BadInput if it is none."""
    file = read_matrix_file(directory.path)
    last = {attempt.drawn.number: attempt for attempt in directory.attempts()}
    planned = file["trials"]
    assert isinstance(planned, list)
    lines, verdicts, notes = [], {}, []
    for planned_trial in planned:
        line = TrialLine.model_validate(planned_trial)
        attempt = last.get(line.number)
        if attempt is not None:
            line, verdict, note = _line(line, attempt, directory.runs)
            notes += [note] if note else []
            if verdict is not None:
                verdicts[line.number] = verdict
        lines.append(line)
    return gather(str(file["name"]), str(file["title"]), lines, verdicts, notes)


def _line(line: TrialLine, attempt: Attempt, runs: Path) -> tuple[TrialLine, TrialVerdict | None, str | None]:
    told = line.model_copy(
        update={"run": attempt.run, "took_s": attempt.took_s, "cpu_s": attempt.cpu_s, "sentence": attempt.reason}
    )
    if attempt.run is None or attempt.verdict is None:
        return told, None, f"trial {line.number} has no verdict: {attempt.reason or 'it ended before'}"
    try:
        verdict = TrialVerdict.model_validate_json((runs / attempt.run / "verdict.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        return (
            told,
            None,
            f"trial {line.number}: the verdict of {attempt.run} cannot be read ({reason}); check it again",
        )
    update = {
        "verdict": str(verdict.verdict),
        "sentence": verdict.sentence,
        "cells": len(verdict.cells),
        "controls_fired": tuple(dict.fromkeys(c.anomaly for c in verdict.controls if c.fired)),
        "controls_silent": tuple(dict.fromkeys(c.anomaly for c in verdict.controls if not c.fired)),
    }
    return told.model_copy(update=update), verdict, None


def gather(
    name: str,
    title: str,
    lines: Sequence[TrialLine],
    verdicts: Mapping[int, TrialVerdict],
    notes: Iterable[str] = (),
) -> Results:
    """Everything together. `verdicts`: by number of the trial. Pure."""
    varying = _varying(verdicts.values())
    rows = {line.number: (line.row if len(lines) > 1 else {}) for line in lines}
    settings: dict[Axis, dict[Value, dict[str, Tally]]] = defaultdict(lambda: defaultdict(dict))
    together: dict[str, Tally] = {}
    configurations: dict[str, Configuration] = {}
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
            _configure(configurations, cell, mine, tallies, line.run)
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


def _varying(verdicts: Iterable[TrialVerdict]) -> dict[str, set[Axis]]:
    """Workload → axes in which its cells differ."""
    values: dict[str, dict[Axis, set[Value]]] = defaultdict(lambda: defaultdict(set))
    for verdict in verdicts:
        for cell in verdict.cells:
            for axis, value in cell.axes.items():
                values[cell.workload][axis].add(value)
    return {w: {axis for axis, seen in axes.items() if len(seen) > 1} for w, axes in values.items()}


def tally_of(anomaly: CellAnomaly) -> Tally:
    """One guarantee in one cell."""
    return Tally(
        **{anomaly.outcome.name.lower(): 1},
        proven=int(anomaly.outcome is AnomalyOutcome.HELD and anomaly.proven is True),
        witnesses_permitted=anomaly.permitted,
        witnesses_forbidden=anomaly.forbidden,
        defects=anomaly.defects,
    )


def _add(into: dict[str, Tally], tallies: Mapping[str, Tally]) -> None:
    for anomaly, tally in tallies.items():
        into[anomaly] = into[anomaly] + tally if anomaly in into else tally


_WORTH_A_LOOK = (AnomalyOutcome.VIOLATED, AnomalyOutcome.UNKNOWN, AnomalyOutcome.SHOWN)


def _configure(
    found: dict[str, Configuration], cell: CellVerdict, axes: dict[str, str], tallies: Mapping[str, Tally], run: str
) -> None:
    new = Configuration(workload=cell.workload, axes=axes, tallies=dict(tallies))
    old = found.setdefault(new.key, new.model_copy(update={"tallies": {}}))
    merged, runs = dict(old.tallies), dict(old.runs)
    for anomaly, tally in tallies.items():
        before = merged.get(anomaly, Tally())
        if tally.worst in _WORTH_A_LOOK and (
            before.worst not in _WORTH_A_LOOK or _WORTH_A_LOOK.index(tally.worst) < _WORTH_A_LOOK.index(before.worst)
        ):
            runs[anomaly] = run
        merged[anomaly] = before + tally
    found[new.key] = old.model_copy(update={"tallies": merged, "runs": runs})


def _problems(line: TrialLine, verdict: TrialVerdict) -> list[Problem]:
    """Each violation; what is unknown by its reason."""
    assert line.run is not None
    number, run = line.number, line.run
    violated: list[Problem] = []
    unknown: dict[str, list[tuple[str, CellAnomaly]]] = defaultdict(list)
    for cell in verdict.cells:
        for a in cell.anomalies.values():
            if a.outcome is AnomalyOutcome.UNKNOWN:
                unknown[a.reason].append((cell.name, a))
            elif a.outcome is AnomalyOutcome.VIOLATED:
                violated.append(
                    Problem(
                        trial=number,
                        run=run,
                        cell=cell.name,
                        anomaly=a.anomaly,
                        outcome=a.outcome,
                        count=a.forbidden,
                        reason=a.reason,
                        defects=a.defects,
                    )
                )
    return [*violated, *(_unknown(number, run, reason, concerned) for reason, concerned in unknown.items())]


def _unknown(number: int, run: str, reason: str, concerned: Sequence[tuple[str, CellAnomaly]]) -> Problem:
    return Problem(
        trial=number,
        run=run,
        cell=concerned[0][0],
        cells=len({name for name, _ in concerned}),
        anomaly=", ".join(dict.fromkeys(a.anomaly for _, a in concerned)),
        outcome=AnomalyOutcome.UNKNOWN,
        count=sum(a.count for _, a in concerned),
        reason=reason,
    )
