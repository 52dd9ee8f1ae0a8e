"""`prozess explain`: what an anomaly, a rule of the guarantee table, a fault or a finished run means, in sentences."""

import difflib
import sys
from collections.abc import Iterator
from inspect import getdoc
from pathlib import Path

from rich.markup import escape

from harness import catalogue
from harness.console import console
from harness.errors import BadInput
from harness.guarantees.controls import CONTROLS
from harness.guarantees.facts import FACTS
from harness.guarantees.faults import NATURES
from harness.guarantees.rules import Effect, Guarantee, Rule
from harness.guarantees.table import TABLE
from harness.report.words import MEANINGS, SIGNS
from harness.scenarios import SCENARIOS
from harness.trial import known_trials, load_trial
from harness.verdict import AnomalyOutcome, Verdict

_EFFECTS = {
    Effect.PERMITTED: "permitted",
    Effect.NOT_APPLICABLE: "does not apply",
    Effect.DEFECT: "forbidden, and a known defect",
}
_OUTCOMES = tuple(map(str, AnomalyOutcome))
_OF_A_TRIAL: dict[str, str] = {
    Verdict.HELD: "nothing that its configurations forbid was seen, and what it names as controls fired. Exit code 0.",
    Verdict.VIOLATED: "something was seen that a cell's configuration forbids. Exit code 1. `report.html` has the witnesses, "
    "`prozess shrink RUN` searches the smallest plan that still shows it.",
    Verdict.UNKNOWN: "it cannot be told: an audit that was not completed, a fault without proven effect, a silent control, a "
    "step that timed out. The report's first section says which. Exit code 2: unknown never passes.",
}
_FACTUAL = "Counted and shown as a fact; no guarantee judges it."


def explain(subject: str) -> None:
    """Print what `subject` means. BadInput with the nearest names if it is nothing that is known."""
    out = console()
    if (Path(subject) / "plan.json").is_file():
        _explain_run(Path(subject))
        return
    rules = {rule.id: guarantee for guarantee in TABLE.values() for rule in guarantee.rules}
    if subject in TABLE:
        lines = _anomaly(TABLE[subject])
    elif subject in catalogue.FACT_KERNELS:
        lines = iter((f"[bold]{subject}[/bold]  {escape(_invariant(subject))}", _FACTUAL))
    elif subject in rules:
        lines = _rule_alone(subject, rules[subject])
    elif subject in catalogue.FAULTS:
        lines = _fault(subject)
    elif subject in _OUTCOMES:
        lines = _outcome(AnomalyOutcome(subject))
    elif subject in SCENARIOS:
        lines = _scenario(subject)
    else:
        raise BadInput(_unknown(subject, [*TABLE, *catalogue.FACT_KERNELS, *rules, *catalogue.FAULTS, *_OUTCOMES]))
    for line in lines:
        out.print(line, soft_wrap=True)


def _scenario(number: str) -> Iterator[str]:
    yield f"[bold]{number}[/bold]  {escape(SCENARIOS[number])}"
    for trial in (load_trial(str(path)) for path in known_trials().values()):
        if number in trial.scenarios:
            yield f"run by     {trial.name}: {escape(trial.title)} (`prozess plan {trial.name}`)"


def _unknown(subject: str, known: list[str]) -> str:
    if subject in known_trials():
        return f"{subject!r} is a trial. `prozess plan {subject}` says what it would do."
    path = Path(subject)
    if path.exists() or (path.is_absolute() or subject.startswith((".", "runs/"))):
        what = "it has no plan.json" if path.exists() else "it does not exist"
        return f"{subject!r} is no run directory: {what}. Give a directory under runs/."
    near = difflib.get_close_matches(subject, known, n=3, cutoff=0.5)
    hint = f"Did you mean {', '.join(near)}? " if near else ""
    return (
        f"{subject!r} is neither an anomaly, nor a rule, nor a fault, nor a scenario, nor a run directory. {hint}"
        f"Anomalies: {', '.join([*TABLE, *catalogue.FACT_KERNELS])}. Faults: {', '.join(catalogue.FAULTS)}."
    )


def _anomaly(guarantee: Guarantee) -> Iterator[str]:
    name = guarantee.anomaly
    yield f"[bold]{name}[/bold]  {escape(guarantee.promise)}"
    yield f"source     {escape(guarantee.source)}"
    yield f"looked for {escape(_invariant(name))}"
    if guarantee.workloads:
        yield f"judged in  cells of {', '.join(guarantee.workloads)}"
    for number, rule in enumerate(guarantee.rules, 1):
        yield f"{number}. " + _rule(rule, guarantee)
    yield (
        f"{len(guarantee.rules) + 1}. [red]forbidden[/red] otherwise"
        if guarantee.rules
        else "[red]always forbidden[/red]"
    )
    for control in CONTROLS:
        if control.anomaly == name:
            yield f"control    {control.kind} under {', '.join(sorted(control.faults))}: {escape(control.source)}"


def _rule(rule: Rule, guarantee: Guarantee) -> str:
    change = f"; {rule.change} {guarantee.undone}" if rule.change else ""
    return (
        f"[bold]{rule.id}[/bold]: {_EFFECTS[rule.effect]} when {escape(', '.join(rule.when))}: "
        f"{escape(rule.reason)}{escape(change)} [dim]({escape(rule.source)})[/dim]"
    )


def _rule_alone(name: str, guarantee: Guarantee) -> Iterator[str]:
    rule = next(rule for rule in guarantee.rules if rule.id == name)
    yield _rule(rule, guarantee)
    yield f"of         {guarantee.anomaly}: {escape(guarantee.promise)}"
    for fact in rule.when:
        plain = fact.removeprefix("not ")
        yield f"fact       {escape(fact)}: {escape(FACTS[plain].meaning)}"
    if rule.defect:
        yield f"defect     {escape(rule.defect)}"


def _fault(name: str) -> Iterator[str]:
    kind = catalogue.resolve(catalogue.FAULTS, name, what="fault")
    told = _first_paragraph(sys.modules[kind.__module__].__doc__ or "").removeprefix(f"{name}: ")
    yield f"[bold]{name}[/bold]  {escape(told)}"
    yield f"effect     {escape(_first_paragraph(getdoc(kind) or ''))}"
    yield f"needs      {', '.join(sorted(kind.needs)) or 'nothing of the backend'}"
    for parameter, field in kind.parameters_model.model_fields.items():
        default = "required" if field.is_required() else f"default {field.default!r}"
        yield f"parameter  {parameter} ({escape(default)})"
    about = _first_paragraph(getdoc(kind.parameters_model) or "")
    if kind.parameters_model.model_fields and about:
        yield f"           {escape(about)}"
    nature = NATURES.get(name)
    does = [] if nature is None else [w.replace("_", " ") for w in nature.__slots__ if getattr(nature, w) is True]
    yield f"may        {', '.join(does) or ('do anything' if nature is None else 'harm nothing that is judged')}"


def _outcome(outcome: AnomalyOutcome) -> Iterator[str]:
    yield f"[bold]{SIGNS[outcome]} {outcome}[/bold]  of an anomaly in a cell: {MEANINGS[outcome]}."
    if meaning := _OF_A_TRIAL.get(str(outcome)):
        yield f"of a trial: {meaning}"


def _invariant(anomaly: str) -> str:
    kernels = catalogue.KERNELS | catalogue.CELL_KERNELS | catalogue.FACT_KERNELS
    return _first_paragraph(getdoc(catalogue.resolve(kernels, anomaly, what="anomaly")) or "")


def _first_paragraph(text: str) -> str:
    return " ".join(text.strip().split("\n\n")[0].split())


def _explain_run(path: Path) -> None:
    """The verdict, then what was seen, as the report has it: alike together, why, and where its witnesses are."""
    from harness.report.seen import has_section, seen_groups
    from harness.report.terminal import show_verdict
    from harness.report.words import SIGNS
    from harness.run_directory import RunDirectory
    from harness.verdict import AnomalyOutcome, TrialVerdict

    run = RunDirectory.existing(path)
    if not run.verdict.exists():
        raise BadInput(f"{str(path)!r} has no verdict yet. `prozess check {path}` makes one from what was recorded.")
    verdict = TrialVerdict.model_validate_json(run.verdict.read_bytes())
    show_verdict(verdict, run)
    out = console()
    for group in seen_groups(verdict):
        cells = "cell" if len(group.pairs) == 1 else "cells"
        told = f"{SIGNS[group.outcome]} {group.outcome} {group.anomaly}: {group.count:,} in {len(group.pairs)} {cells}"
        cell, first = group.pairs[0]
        out.print(f"\n[bold]{escape(told)}[/bold]  {escape(group.rule)}", soft_wrap=True)
        out.print(
            escape(f"In cell {cell.cell}: {first.reason}") + f" [dim]({escape(first.source)})[/dim]", soft_wrap=True
        )
        out.print(f"witnesses  {run.path / 'report.html'}#w-{cell.cell}-{group.anomaly}", soft_wrap=True)
    unknown: dict[tuple[str, str], list[str]] = {}
    for cell in verdict.cells:
        for anomaly in cell.anomalies.values():
            if anomaly.outcome is AnomalyOutcome.UNKNOWN and not has_section(anomaly):
                unknown.setdefault((cell.name, anomaly.reason), []).append(anomaly.anomaly)
    for (name, reason), anomalies in unknown.items():
        out.print(f"\n[bold]? unknown {', '.join(anomalies)}[/bold]", soft_wrap=True)
        out.print(escape(f"In {name}: {reason}"), soft_wrap=True)
