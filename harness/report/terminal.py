"""Prints verdicts, plans, trials, scenarios and probes as tables on the terminal."""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from prozess.harness.console import console
from prozess.harness.history.versions import unverified
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.schedule import Elapsed, FaultAction, Step
from prozess.harness.plan.trial import SCENARIOS, Trial, covered
from prozess.harness.printable import number_of
from prozess.harness.report.cell_groups import GROUPED_FROM, groups_of
from prozess.harness.report.server_complaints import ServerComplaints, complaint_words
from prozess.harness.report.words import (
    SIGNS,
    VERDICT_SIGNS,
    CellMatrix,
    brief_of_application,
    cells_line,
    clients_on_trial,
    found_line,
    matrices,
    meanings_of,
    names_met,
    not_judged_lines,
    reproduce,
    seen_in,
    short,
    verdict_words,
)
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import AnomalyOutcome, CellVerdict, TrialVerdict, Verdict

_STYLES = {Verdict.HELD: "green", Verdict.VIOLATED: "bold red", Verdict.UNKNOWN: "yellow", Verdict.NOT_JUDGED: "dim"}
_PERMITTED_STYLE = "dark_orange"

# Headings of narrow columns; everything else keeps Kafka's spelling.
_BRIEF = {
    "enable.idempotence": "idempotence",
    "min.insync.replicas": "min.insync",
    "unclean.leader.election.enable": "unclean",
    "replication.factor": "replicas",
}
_VERDICT_AND_SEEN = 14 + 3 + 20
"""Columns that these need: "● permitted", a gap, and words of what was seen."""


def show_verdict(verdict: TrialVerdict, run: RunDirectory) -> None:
    """The verdict table: a line per cell, what was seen in it, the controls."""
    out = console()
    for matrix in matrices(verdict.cells):
        out.print(f"[italic]{escape(f'{verdict.trial}, seed {verdict.seed}: {matrix.workload}')}[/italic]")
        out.print(_grouped(matrix) if len(matrix.cells) >= GROUPED_FROM else _cell_by_cell(matrix, out.width))
    for one in () if verdict.application is None else verdict.application.anomalies:
        text = f"{SIGNS[one.outcome]} {brief_of_application(one)}: {one.reason}"
        out.print(f"application {escape(text)}", soft_wrap=True)
    out.print(f"cells      {cells_line(verdict.cells)}")
    out.print(f"found      {escape(found_line(verdict))}", soft_wrap=True)
    _show_names(verdict)
    for text in verdict.not_proven:
        out.print(f"[yellow]not proven: {escape(text)}[/yellow]")
    for alert in verdict.alerts:
        style = _STYLES[alert.verdict]
        out.print(
            f"alert [{style}]{VERDICT_SIGNS[alert.verdict]} {alert.verdict}[/{style}]  {escape(alert.name)}: "
            f"{escape(alert.reason)}"
        )
    for text in unverified(run):
        out.print(f"[yellow]not verified: {escape(text)}[/yellow]")
    if verdict.expectations:
        reached = sum(result.reached is True for result in verdict.expectations)
        out.print(f"situation: {reached} of {number_of(len(verdict.expectations), 'expectation')} came true")
    for reason in verdict.unknown_reasons[:8]:
        out.print(f"[yellow]unknown: {escape(reason)}[/yellow]")
    for line in not_judged_lines(verdict):
        out.print(f"not judged: {escape(line)}", soft_wrap=True)
    style = _STYLES[verdict.verdict]
    out.print(f"[{style}]{VERDICT_SIGNS[verdict.verdict]} {verdict.verdict}[/{style}]  {escape(verdict.sentence)}")
    out.print(f"reproduce  {reproduce(run)}", soft_wrap=True)


def show_complaints(complaints: ServerComplaints) -> None:
    """Prints that servers complained although no fault was near, with what they complained of most."""
    if not complaints.quiet:
        return
    first, *others = complaints.quiet
    more = f"; and {number_of(len(others), 'other kind')}" if others else ""
    console().print(f"[yellow]servers    {escape(complaint_words(first))}{more}[/yellow]", soft_wrap=True)


def _cell_by_cell(matrix: CellMatrix[CellVerdict], width: int) -> Table:
    """Returns a table with a row for each cell."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    apart = _has_room(matrix, width)
    for heading in (_heading(axis) for axis in matrix.axes) if apart else ("configuration",):
        table.add_column(heading, no_wrap=apart, overflow="fold")
    table.add_column("verdict", no_wrap=True)
    table.add_column("seen")
    for cell in matrix.cells:
        values = [cell.axes[axis] for axis in matrix.axes] if apart else [_label(matrix.axes, cell)]
        table.add_row(*map(escape, values), _styled(cell.verdict, (cell,)), escape(seen_in(cell)))
    return table


def _grouped(matrix: CellMatrix[CellVerdict]) -> Table:
    """Returns a table with a row for each group of cells: `report.html` has one for each cell."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("configuration", overflow="fold")
    table.add_column("cells", justify="right")
    table.add_column("verdict", no_wrap=True)
    table.add_column("seen")
    for group in groups_of(matrix):
        values = (f"{_heading(axis)}={' or '.join(values)}" for axis, values in group.values.items())
        label = ", ".join(values) or "all"
        table.add_row(escape(label), f"{len(group.cells):,}", _styled(group.verdict, group.cells), escape(group.seen))
    return table


def _styled(verdict: Verdict, cells: Sequence[CellVerdict]) -> str:
    """Returns the verdict of cells, with its sign and colour."""
    sign, words, colour = verdict_words(verdict, cells)
    style = _PERMITTED_STYLE if colour == AnomalyOutcome.PERMITTED else _STYLES[verdict]
    return f"[{style}]{sign} {words}[/{style}]"


def _show_names(verdict: TrialVerdict) -> None:
    """Prints what the names mean that were met, and whether controls showed that the run could see them."""
    out = console()
    for name, meaning in meanings_of(names_met(verdict)).items():
        out.print(f"  [bold]{name}[/bold]: {escape(meaning)}", soft_wrap=True)
    for control in verdict.controls:
        acks = {cell.axes.get("producer.acks", "") for cell in verdict.cells if cell.cell in control.cells}
        which = f" (acks={acks.pop()})" if len(acks) == 1 and acks != {""} else ""
        cells = f"{number_of(len(control.cells), 'control cell')}{which}"
        seen = f"seen in {len(control.fired_in)} of its {cells}, {number_of(control.count, 'time')}"
        silent = f"[yellow]seen in none of its {cells}[/yellow]"
        out.print(f"control {control.anomaly}: {seen if control.fired else silent}", soft_wrap=True)


def _heading(axis: str) -> str:
    return _BRIEF.get(short(axis), short(axis))


def _label(axes: Sequence[str], cell: CellVerdict) -> str:
    return ", ".join(f"{_heading(axis)}={cell.axes[axis]}" for axis in axes)


def _has_room(matrix: CellMatrix[CellVerdict], width: int) -> bool:
    """Do a column for each axis, the verdict and what was seen fit beside each other? Else a value would be cut off."""
    gap = 3
    axes = (max(len(_heading(a)), *(len(cell.axes[a]) for cell in matrix.cells)) + gap for a in matrix.axes)
    return sum(axes) + _VERDICT_AND_SEEN <= width


def show_plan(plan: Plan) -> None:
    """Cells, exclusions, clients and the schedule of a plan."""
    out = console()
    out.print(f"[bold]{escape(plan.title)}[/bold]  (trial {plan.trial}, seed {plan.seed})")
    out.print(
        f"{plan.cluster_in_words}; "
        f"{number_of(len(plan.cells), 'cell')}, {number_of(len(plan.excluded), 'combination')} excluded, "
        f"{number_of(len(plan.clients), 'client')}"
    )
    for matrix in matrices(plan.cells):
        cells = Table(title=f"cells: {matrix.workload}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for heading in ("cell", *map(_heading, matrix.axes), "placement"):
            cells.add_column(heading)
        for cell in matrix.cells:
            placement = " ".join(str(list(plan.partitions[p].assignment)) for p in cell.partitions)
            cells.add_row(str(cell.cell), *(cell.axes[axis] for axis in matrix.axes), placement)
        out.print(cells)
    for line in clients_on_trial(plan):
        out.print(f"client: {escape(line)}", soft_wrap=True)
    reasons: dict[str, int] = {}
    for exclusion in plan.excluded:
        reasons[exclusion.reason] = reasons.get(exclusion.reason, 0) + 1
    for reason, count in reasons.items():
        out.print(f"excluded {count}: {escape(reason)}")
    for fault, why in plan.left_out.items():
        out.print(f"left out: {escape(fault)}: {escape(why)}")
    for number, step in enumerate(plan.steps):
        out.print(f"step {number}: {escape(step.name)}: {escape(describe_step(step))}")


def describe_step(step: Step) -> str:
    """Describes a step of a schedule in words."""
    parts = [f"at {step.at_s:g} s"] if step.at_s is not None else []
    if isinstance(step.after, Elapsed):
        parts.append(f"after {step.after.seconds:g} s")
    elif step.after is not None:
        details = step.after.model_dump(exclude={"condition"}, exclude_none=True, exclude_defaults=True)
        parts.append(f"once {_with_details(step.after.condition, details)} (at most {step.timeout_s:g} s)")
    if isinstance(step.do, FaultAction):
        parts.append(_with_details(f"{step.do.fault} {', '.join(step.do.targets)}".strip(), step.do.parameters))
    elif step.do is not None:
        details = step.do.model_dump(exclude={"kind"}, exclude_none=True, exclude_defaults=True)
        parts.append(_with_details(step.do.kind, details))
    parts += [f"expecting that {expectation.in_words}" for expectation in step.expect]
    return ", ".join(parts) or "nothing"


def _with_details(name: str, details: Mapping[str, object]) -> str:
    text = ", ".join(f"{key}={_in_words(value)}" for key, value in details.items())
    return f"{name} ({text})" if text else name


def _in_words(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}={_in_words(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_in_words, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def show_trials(
    trials: Sequence[Trial],
    *,
    campaigns: Sequence[str] = (),
    matrices: Sequence[str] = (),
    exhibits: Sequence[str] = (),
) -> None:
    """A line per trial, with the scenarios it runs; the names of what is made of many."""
    out = console()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("trial", "scenarios", "what happens"):
        table.add_column(heading)
    for trial in trials:
        table.add_row(trial.name, " ".join(trial.scenarios), escape(trial.title))
    out.print(table)
    out.print(
        "A code such as H8 names a scenario, a situation that a trial brings about: `prozess explain H8` says which, and "
        "`prozess list --scenarios` lists all.",
        soft_wrap=True,
    )
    if campaigns:
        out.print(f"campaigns  {', '.join(campaigns)}: `prozess run NAME --for 8h`", soft_wrap=True)
    if matrices:
        out.print(f"matrices   {', '.join(matrices)}: `prozess matrix NAME`", soft_wrap=True)
    if exhibits:
        out.print(f"museum     {', '.join(exhibits)}: `prozess museum NAME`", soft_wrap=True)


def show_scenarios(trials: Sequence[Trial]) -> None:
    """A line per scenario, with the trials that run it."""
    out = console()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("scenario", "what it is about", "trials"):
        table.add_column(heading)
    runs = covered(trials)
    for number, names in runs.items():
        table.add_row(number, escape(SCENARIOS[number]), ", ".join(names) or "[yellow]none[/yellow]")
    out.print(table)
    out.print(f"{sum(bool(names) for names in runs.values())} of {len(runs)} scenarios are run by a trial")
