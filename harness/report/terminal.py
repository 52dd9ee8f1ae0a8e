"""Tables for the terminal."""

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.plan import Plan
from harness.report.words import VERDICT_SIGNS, found_line, matrices, reproduce, seen_in, short
from harness.run_directory import RunDirectory
from harness.scenarios import SCENARIOS, covered
from harness.schedule import Elapsed, Step
from harness.trial import Trial
from harness.verdict import TrialVerdict, Verdict

_STYLES = {Verdict.HELD: "green", Verdict.VIOLATED: "bold red", Verdict.UNKNOWN: "yellow", Verdict.NOT_JUDGED: "dim"}

# Headings of narrow columns; everything else keeps Kafka's spelling.
_BRIEF = {
    "enable.idempotence": "idempotence",
    "min.insync.replicas": "min.insync",
    "unclean.leader.election.enable": "unclean",
    "replication.factor": "replicas",
}


def show_verdict(verdict: TrialVerdict, run: RunDirectory) -> None:
    """The verdict table: a line per cell, what was seen in it, the controls."""
    console = Console(highlight=False)
    for matrix in matrices(verdict.cells):
        title = f"{verdict.trial}, seed {verdict.seed}: {matrix.workload}"
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for axis in matrix.axes:
            table.add_column(_BRIEF.get(short(axis), short(axis)), no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        table.add_column("seen")
        for cell in matrix.cells:
            style = _STYLES[cell.verdict]
            shown = f"[{style}]{VERDICT_SIGNS[cell.verdict]} {cell.verdict}[/{style}]"
            table.add_row(*(escape(cell.axes[axis]) for axis in matrix.axes), shown, escape(seen_in(cell)))
        console.print(table)
    console.print(f"found      {escape(found_line(verdict.findings))}", soft_wrap=True)
    for control in verdict.controls:
        said = f"fired in {len(control.fired_in)} of {len(control.cells)} cells, {control.count:,} times"
        console.print(f"control {control.anomaly}: {said if control.fired else '[yellow]silent[/yellow]'}")
    for alert in verdict.alerts:
        style = _STYLES[alert.verdict]
        console.print(
            f"alert [{style}]{VERDICT_SIGNS[alert.verdict]} {alert.verdict}[/{style}]  {escape(alert.name)}: "
            f"{escape(alert.reason)}"
        )
    for reason in verdict.unknown_reasons[:8]:
        console.print(f"[yellow]unknown: {escape(reason)}[/yellow]")
    style = _STYLES[verdict.verdict]
    console.print(f"[{style}]{VERDICT_SIGNS[verdict.verdict]} {verdict.verdict}[/{style}]  {escape(verdict.sentence)}")
    console.print(f"reproduce  {reproduce(run)}", soft_wrap=True)


def show_plan(plan: Plan) -> None:
    """Cells, exclusions, clients and the schedule of a plan."""
    console = Console(highlight=False)
    console.print(f"[bold]{escape(plan.title)}[/bold]  (trial {plan.trial}, seed {plan.seed})")
    console.print(
        f"{plan.cluster_in_words}; "
        f"{len(plan.cells)} cells, {len(plan.excluded)} combinations excluded, {len(plan.clients)} clients"
    )
    for matrix in matrices(plan.cells):
        cells = Table(title=f"cells: {matrix.workload}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for heading in ("cell", *(_BRIEF.get(short(axis), short(axis)) for axis in matrix.axes), "placement"):
            cells.add_column(heading)
        for cell in matrix.cells:
            placement = " ".join(str(list(plan.partitions[p].assignment)) for p in cell.partitions)
            cells.add_row(str(cell.cell), *(cell.axes[axis] for axis in matrix.axes), placement)
        console.print(cells)
    reasons: dict[str, int] = {}
    for exclusion in plan.excluded:
        reasons[exclusion.reason] = reasons.get(exclusion.reason, 0) + 1
    for reason, count in reasons.items():
        console.print(f"excluded {count}: {escape(reason)}")
    for fault, why in plan.left_out.items():
        console.print(f"left out: {escape(fault)}: {escape(why)}")
    for number, step in enumerate(plan.steps):
        console.print(f"step {number}: {escape(step.name)}: {escape(describe_step(step))}")


def describe_step(step: Step) -> str:
    """A step in words."""
    parts = [f"at {step.at_s:g} s"] if step.at_s is not None else []
    if isinstance(step.after, Elapsed):
        parts.append(f"after {step.after.seconds} s")
    elif step.after is not None:
        details = step.after.model_dump(exclude={"condition"}, exclude_none=True, exclude_defaults=True)
        parts.append(f"once {step.after.condition} {details or ''}".strip() + f" (at most {step.timeout_s:g} s)")
    if step.do is not None:
        details = step.do.model_dump(exclude={"kind"}, exclude_none=True, exclude_defaults=True)
        parts.append(f"{step.do.kind} {details or ''}".strip())
    return ", ".join(parts) or "nothing"


def show_trials(trials: Sequence[Trial]) -> None:
    """A line per trial, with the scenarios it runs."""
    console = Console(highlight=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("trial", "scenarios", "what happens"):
        table.add_column(heading)
    for trial in trials:
        table.add_row(trial.name, " ".join(trial.scenarios), escape(trial.title))
    console.print(table)


def show_scenarios(trials: Sequence[Trial]) -> None:
    """A line per scenario, with the trials that run it."""
    console = Console(highlight=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("scenario", "what it is about", "trials"):
        table.add_column(heading)
    runs = covered(trials)
    for number, names in runs.items():
        table.add_row(number, escape(SCENARIOS[number]), ", ".join(names) or "[yellow]none[/yellow]")
    console.print(table)
    console.print(f"{sum(bool(names) for names in runs.values())} of {len(runs)} scenarios are run by a trial")


def show_probes(probes: Sequence[Any]) -> None:
    """What the machine offers: one line per probe, with the cost of each lack."""
    console = Console(highlight=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "what", "found", "without it"):
        table.add_column(heading)
    for probe in probes:
        sign = "[green]✓[/green]" if probe.found else "[yellow]✗[/yellow]"
        table.add_row(sign, escape(probe.name), escape(probe.detail), "" if probe.found else escape(probe.costs))
    console.print(table)
