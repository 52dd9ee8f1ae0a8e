"""`prozess explain`: explains an anomaly, a rule, a fault, a scenario, a ticket, a word of the tables or a finished run in
sentences."""

import difflib
from collections.abc import Callable, Iterable, Iterator
from inspect import getdoc
from pathlib import Path

from rich.markup import escape

from prozess.app.explain_tickets import explain_id, known_ids
from prozess.harness import installation
from prozess.harness.config.impairments import Capability
from prozess.harness.console import console
from prozess.harness.errors import BadInput
from prozess.harness.guarantees.facts.registry import FACTS
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.controls import CONTROLS
from prozess.harness.guarantees.table.rules import Guarantee, Rule, RuleEffect
from prozess.harness.plan.catalogue import NATURES
from prozess.harness.plan.trial import SCENARIOS
from prozess.harness.plan.trial_files import known_trials, load_trial
from prozess.harness.report.words import MEANINGS, SIGNS
from prozess.harness.verdict import AnomalyOutcome, Verdict
from prozess.nemesis.registry import FAULTS, fault_named

_EFFECTS = {
    RuleEffect.PERMITTED: "permitted",
    RuleEffect.NOT_APPLICABLE: "does not apply",
    RuleEffect.DEFECT: "forbidden, and a known defect",
    RuleEffect.EXPLAINED: "forbidden, and explained",
}
_OUTCOMES = tuple(map(str, AnomalyOutcome))
_OF_A_TRIAL: dict[str, str] = {
    Verdict.HELD: "nothing happened that a configuration forbids, and every required control showed its losses. "
    "Exit code 0.",
    Verdict.VIOLATED: "something happened that a cell's configuration forbids. Exit code 1. `report.html` shows the "
    "witnesses, and `prozess shrink RUN` searches for the smallest plan that still shows it.",
    Verdict.UNKNOWN: "the evidence does not suffice: the audit is incomplete, a fault had no proven effect, a required "
    "control showed nothing, or a step timed out. The report's first section says which. Exit code 2: unknown never passes.",
}
_NEEDS = {
    Capability.KILL: "kill a node's process",
    Capability.STOP: "shut a node down by SIGTERM",
    Capability.PAUSE: "freeze a node's process",
    Capability.BLOCK: "block traffic between nodes",
    Capability.CUT_CLIENTS: "block traffic between nodes and the trial's clients",
    Capability.LOSE: "drop a share of the packets",
    Capability.SHAPE: "limit the bandwidth of a link",
    Capability.DELAY: "delay traffic",
    Capability.MESSAGES: "hold, drop or change single messages of Kafka's protocol",
    Capability.METHODS: "delay, pause or break calls of a server's methods",
    Capability.RESET: "reset open connections",
    Capability.FILL_DISK: "fill a disk that no other node uses",
    Capability.SLOW_DISK: "slow a disk down",
    Capability.FREEZE_DISK: "freeze a disk",
    Capability.FAIL_DISK: "make a disk fail with EROFS or EIO",
    Capability.CHANGE_FILES: "wipe and corrupt files of a node that is down",
    Capability.LOSE_POWER: "end a node together with everything that it has not synced",
    Capability.INSTALL: "start a node with another version of Kafka",
    Capability.HARM_STORE: "keep brokers from the remote store of tiered storage",
    Capability.SHIFT_CLOCK: "set the wall clock of one running node",
}
"""What a fault needs of its backend, in words that follow "a backend that can"."""
_NATURE = {
    "stops": "stop a process, whose files stay",
    "restarts": "start a successor at once",
    "freezes": "freeze a process that later goes on",
    "cuts": "keep what one node sends from arriving",
    "reconfigures": "change a configuration for a while",
    "moves": "move leaders although no node is ill",
    "destroys": "destroy a node's replicas from offset 0 on",
    "loses_unflushed": "lose what was not synced to the disk",
    "shifts_clock": "move a node's wall clock",
    "elects_unclean": "ask for an unclean election",
    "harms_store": "keep brokers from what is in the remote store",
}
"""What a kind of fault may do to a node (`FaultNature`), in words that follow "may"."""
_WORDS: dict[str, tuple[str, str]] = {
    "cell": (
        "one combination of settings of topic, producer and consumer in a trial. It has its own partitions, and a "
        "verdict.",
        "docs/results.md",
    ),
    "control": (
        "the cells whose configuration permits an anomaly, under the same faults. If a control shows the anomaly, the trial "
        "can see it, so that its absence elsewhere means something.",
        "docs/results.md",
    ),
    "anomaly": (
        "something that a client should not see, such as a lost record. Whether Kafka promised that it does not happen "
        "depends on the configuration, and on what happened to the cluster.",
        "docs/results.md",
    ),
    "finding": (
        "what a checker says of one partition: an anomaly, how often it was seen, and its witnesses. It does not say whether "
        "that was forbidden.",
        "docs/results.md",
    ),
    "verdict": (
        "the judgement on the findings, by the configuration and by what happened to the cluster: held, violated or unknown.",
        "docs/results.md",
    ),
    "audit": (
        "prozess reads each partition from its beginning when everything is healed. What it reads is what is in the log, so "
        "it shows which acknowledged records are missing.",
        "docs/results.md",
    ),
    "sentinel": (
        "a record that prozess writes to each partition before the audit. Whoever has read it has read everything in front "
        "of it.",
        "docs/results.md",
    ),
    "envelope": (
        "what happened to a partition: who led it, which replicas were in sync, and which faults took effect. It comes from "
        "the controllers' own log, and never from the answer of a broker alone.",
        "docs/architecture.md",
    ),
    "nemesis": (
        "the part of prozess that makes faults, and undoes them. The word is Jepsen's.",
        "docs/faults.md",
    ),
    "silent": (
        "a control that did not show its anomaly. Nothing then proves that the trial would have seen it: what depends on a "
        "required control is unknown.",
        "docs/results.md",
    ),
    "witness": ("a record, or another thing that was recorded, that shows an anomaly.", "docs/results.md"),
    "forbidden": (
        "neither the configuration nor what happened permits it, so Kafka or a client broke a promise.",
        "docs/guarantees.md",
    ),
    "seen": (
        "what happened in the cell that a guarantee is about, forbidden, permitted or unknown.",
        "docs/results.md",
    ),
    "in sync": (
        "a replica that has caught up with its leader within the last replica.lag.time.max.ms. The controllers keep the set "
        "of them (ISR). With acks=all a record is acknowledged when every replica of the set has it.",
        "Kafka documentation, Replication; Broker Configs, replica.lag.time.max.ms",
    ),
    "in doubt": (
        "a send without an answer: the producer does not know whether the record is in the log. It may be there or not.",
        "Kafka documentation, Message Delivery Semantics",
    ),
    "acks": (
        "a producer's setting: how many replicas have the record when the broker acknowledges it. 0: the producer waits for "
        "no answer; 1: the leader alone has it; all: every replica that is in sync, at least min.insync.replicas.",
        "Kafka documentation, Producer Configs, acks",
    ),
    "idempotence": (
        "the producer's enable.idempotence: the broker recognises a batch that the producer sends again, so that it is "
        "written once and in order.",
        "KIP-98; Kafka documentation, Producer Configs, enable.idempotence",
    ),
    "retries": (
        "a producer's setting: how often it sends a batch again whose answer was an error that may pass. `max` is "
        "2147483647.",
        "Kafka documentation, Producer Configs, retries",
    ),
    "replicas": (
        "the topic's replication factor: how many brokers keep a copy of each partition.",
        "Kafka documentation, Replication",
    ),
    "min.insync": (
        "the topic's min.insync.replicas: with acks=all a broker refuses a write while fewer replicas are in sync.",
        "Kafka documentation, Topic Configs, min.insync.replicas",
    ),
    "unclean": (
        "the topic's unclean.leader.election.enable: a replica that is not in sync may become the leader, and records "
        "that it does not have are lost.",
        "Kafka documentation, Topic Configs, unclean.leader.election.enable",
    ),
}
"""Words of the tables and pages that are no anomalies → their meaning, with its source."""
_OTHER_NAMES = {
    "min.insync.replicas": "min.insync",
    "enable.idempotence": "idempotence",
    "unclean.leader.election.enable": "unclean",
    "replication.factor": "replicas",
    "controls": "control",
    "witnesses": "witness",
    "cells": "cell",
    "anomalies": "anomaly",
    "findings": "finding",
    "ISR": "in sync",
}
_FACTUAL = "prozess counts it and shows it as a fact. No guarantee judges it."


def explain(subject: str, *, sources: bool = False) -> None:
    """Prints what `subject` means. BadInput with the nearest names if nothing has this name. `sources`: of an anomaly with
    the reasons, sources and measurements behind its rules."""
    out = console()
    if (Path(subject) / "plan.json").is_file():
        _explain_run(Path(subject))
        return
    known: list[str] = []
    for names, lines_about in _subjects(sources=sources):
        some = tuple(names())
        if subject in some:
            for line in lines_about(subject):
                out.print(line, soft_wrap=True)
            return
        known += some
    raise BadInput(_unknown(subject, known))


def _subjects(*, sources: bool) -> Iterator[tuple[Callable[[], Iterable[str]], Callable[[str], Iterator[str]]]]:
    """Yields the kinds of subjects: a function for their names, and one for the lines about a subject. The
    slowest come last: all pages are read for the ids of tickets, and facts are kernels, which are imported."""
    rules = {rule.id: guarantee for guarantee in TABLE.values() for rule in guarantee.rules}
    yield lambda: TABLE, lambda name: _anomaly(TABLE[name], sources=sources)
    yield lambda: rules, lambda name: _rule_alone(name, rules[name])
    yield lambda: FAULTS, _fault
    yield lambda: _OUTCOMES, lambda name: _outcome(AnomalyOutcome(name))
    yield lambda: SCENARIOS, _scenario
    yield lambda: (*_WORDS, *_OTHER_NAMES), _word
    yield lambda: FACTS, _fact_of_rules
    yield known_ids, explain_id
    yield _facts, _fact


def _fact(name: str) -> Iterator[str]:
    yield f"[bold]{name}[/bold]  {escape(_invariant(name))}"
    yield _FACTUAL


def _fact_of_rules(name: str) -> Iterator[str]:
    fact = FACTS[name]
    of = "the configuration" if fact.of_configuration else "what happened"
    yield f"[bold]{name}[/bold]  a fact of {of}: {escape(fact.meaning)}"
    asking = (
        rule.id for guarantee in TABLE.values() for rule in guarantee.rules if {name, f"not {name}"} & {*rule.when}
    )
    yield f"asked by   {', '.join(asking) or 'no rule'}"


def _word(name: str) -> Iterator[str]:
    meaning, source = _WORDS[_OTHER_NAMES.get(name, name)]
    yield f"[bold]{name}[/bold]  {escape(meaning)}"
    yield f"source     {escape(source)}"
    if name in FACTS:
        yield from _fact_of_rules(name)


def _scenario(number: str) -> Iterator[str]:
    yield f"[bold]{number}[/bold]  {escape(SCENARIOS[number])}"
    for trial in (load_trial(str(path)) for path in known_trials().values()):
        if number in trial.scenarios:
            yield f"run by     {trial.name}: {escape(trial.title)} (`prozess plan {trial.name}`)"


def _unknown(subject: str, known: list[str]) -> str:
    if subject in known_trials():
        return f"{subject!r} is a trial. `prozess plan {subject}` shows what it would do."
    path = Path(subject)
    if path.exists() or (path.is_absolute() or subject.startswith((".", "runs/"))):
        what = "it has no plan.json" if path.exists() else "it does not exist"
        return f"{subject!r} is not a run directory: {what}. Give a directory under runs/."
    near = difflib.get_close_matches(subject, known, n=3, cutoff=0.5)
    hint = f"Did you mean {', '.join(near)}? " if near else ""
    return (
        f"{subject!r} is not the name of an anomaly, a rule, a fault or a scenario, no word of the tables, no fact of a "
        f"rule, no ticket that prozess knows, and not a run directory. {hint}"
        f"Anomalies: {', '.join(TABLE)}. Facts: {', '.join(_facts())}. Faults: {', '.join(FAULTS)}. "
        f"Words: {', '.join(_WORDS)}."
    )


def _anomaly(guarantee: Guarantee, *, sources: bool) -> Iterator[str]:
    name = guarantee.anomaly
    yield f"[bold]{name}[/bold]  {escape(guarantee.meaning_in_full)}"
    yield f"promise    {escape(guarantee.promise)}"
    if sources:
        yield f"source     {escape(guarantee.source)}"
    if installation.has("numpy"):
        yield f"checked    {escape(_invariant(name))}"
    else:
        yield escape("checked    by a kernel whose own words need its packages: pip install 'prozess[run]'")
    if guarantee.workloads:
        yield f"judged in  cells of {', '.join(guarantee.workloads)}"
    for number, rule in enumerate(guarantee.rules, 1):
        yield f"{number}. " + (_rule(rule, guarantee) if sources else _rule_in_brief(rule))
    yield (
        f"{len(guarantee.rules) + 1}. [red]forbidden[/red] otherwise"
        if guarantee.rules
        else "[red]always forbidden[/red]"
    )
    if not sources:
        yield f"`prozess explain RULE` explains a rule and its facts, `prozess explain {name} --sources` all of them."
    for control in CONTROLS if sources else ():
        if control.anomaly == name:
            yield f"control    {control.kind}, under {' or '.join(sorted(control.faults))}: {escape(control.source)}"


def _rule(rule: Rule, guarantee: Guarantee) -> str:
    change = f"; {rule.change} {guarantee.undone}" if rule.change else ""
    return (
        f"[bold]{rule.id}[/bold]: {_EFFECTS[rule.effect]} when {escape(', '.join(rule.when))}: "
        f"{escape(rule.reason)}{escape(change)} [dim]({escape(rule.source)})[/dim]"
    )


def _rule_in_brief(rule: Rule) -> str:
    return f"[bold]{rule.id}[/bold]: {_EFFECTS[rule.effect]} when {escape(', '.join(rule.when))}"


def _rule_alone(name: str, guarantee: Guarantee) -> Iterator[str]:
    rule = next(rule for rule in guarantee.rules if rule.id == name)
    yield _rule(rule, guarantee)
    yield f"guarantee  against {guarantee.anomaly}: {escape(guarantee.promise)}"
    for fact in rule.when:
        plain = fact.removeprefix("not ")
        yield f"fact       {escape(fact)}: {escape(FACTS[plain].meaning)}"
    for fact in rule.perhaps:
        plain = fact.removeprefix("not ")
        yield f"possible   {escape(fact)}: {escape(FACTS[plain].meaning)}"
    if rule.defect:
        yield f"defect     {escape(rule.defect)}"


def _fault(name: str) -> Iterator[str]:
    kind = fault_named(name)
    paragraphs = [" ".join(paragraph.split()) for paragraph in (getdoc(kind) or "").strip().split("\n\n")]
    yield f"[bold]{name}[/bold]  {escape(paragraphs[0])}"
    if len(paragraphs) > 1:
        yield f"effect     {escape(paragraphs[-1])}"
    needs = " and ".join(_NEEDS[need] for need in sorted(kind.needs))
    yield f"needs      {f'a backend that can {needs}' if needs else 'nothing special: every backend can do it'}"
    for parameter, field in kind.parameters_model.model_fields.items():
        default = "required" if field.is_required() else f"default {field.default!r}"
        yield f"parameter  {parameter} ({escape(default)})"
    about = _first_paragraph(getdoc(kind.parameters_model) or "")
    if kind.parameters_model.model_fields and about:
        yield f"           {escape(about)}"
    nature = NATURES.get(name)
    does = [] if nature is None else [words for name, words in _NATURE.items() if getattr(nature, name)]
    yield f"may        {'; or '.join(does) or ('do anything' if nature is None else 'harm nothing that prozess judges')}"


def _outcome(outcome: AnomalyOutcome) -> Iterator[str]:
    yield f"[bold]{SIGNS[outcome]} {outcome}[/bold]  for an anomaly in a cell: {MEANINGS[outcome]}."
    if meaning := _OF_A_TRIAL.get(str(outcome)):
        yield f"for a trial: {meaning}"


def _invariant(anomaly: str) -> str:
    from prozess.checkers.registry import CHECKERS  # it imports every kernel, and numpy

    return _first_paragraph(getdoc(CHECKERS[anomaly].kernel) or "")


def _facts() -> list[str]:
    """Returns the anomalies that are counted, and that no guarantee judges. Without numpy nothing can count them."""
    if not installation.has("numpy"):
        return []
    from prozess.checkers.registry import CHECKERS  # it imports every kernel, and numpy

    return [name for name, checker in CHECKERS.items() if checker.fact]


def _first_paragraph(text: str) -> str:
    return " ".join(text.strip().split("\n\n")[0].split())


def _explain_run(path: Path) -> None:
    """Prints the verdict of a run, then what was seen: similar witnesses together, the reason, and a link into the
    report."""
    from prozess.harness.history.manifest import refuse_damaged
    from prozess.harness.report.terminal import show_verdict
    from prozess.harness.report.words import SIGNS, has_section, seen_groups
    from prozess.harness.run_directory import RunDirectory, read_document
    from prozess.harness.verdict import AnomalyOutcome, TrialVerdict

    run = RunDirectory.existing(path)
    if not run.verdict.exists():
        raise BadInput(f"{str(path)!r} has no verdict yet. `prozess check {path}` makes one from what was recorded.")
    refuse_damaged(run, run.verdict)
    verdict = TrialVerdict.model_validate_json(read_document(run.verdict))
    show_verdict(verdict, run)
    out = console()
    for group in seen_groups(verdict):
        cells = "cell" if len(group.pairs) == 1 else "cells"
        text = f"{SIGNS[group.outcome]} {group.outcome} {group.anomaly}: {group.count:,} in {len(group.pairs)} {cells}"
        cell, first = group.pairs[0]
        out.print(f"\n[bold]{escape(text)}[/bold]  {escape(group.rule)}", soft_wrap=True)
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
