"""Judges a run: takes its plan, findings and evidence, and returns the verdict.

For each cell and anomaly, the guarantee table judges every witness, given what happened to its partition. The worst one
decides.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from prozess.harness.errors import BadInput
from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.evidence.ground_truth import UNSTATED
from prozess.harness.guarantees.evidence.trial import Evidence
from prozess.harness.guarantees.facts.happened import Happened, with_plan
from prozess.harness.guarantees.facts.stale_leaders import reply_endangered
from prozess.harness.guarantees.facts.truncation import elected_unclean, last_unclean_ns
from prozess.harness.guarantees.facts.witnessed import what_happened
from prozess.harness.guarantees.logic import any_true
from prozess.harness.guarantees.possible import satisfiable_rules
from prozess.harness.guarantees.table import TABLE, Guarantee, Rule, RuleEffect
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration, configuration_of
from prozess.harness.guarantees.table.controls import CONTROLS, KINDS
from prozess.harness.guarantees.verdict.advice import PartitionSettings, change_of
from prozess.harness.guarantees.verdict.doubts import (
    beyond_reality_in,
    cell_doubts,
    ended_by_loss,
    not_asked,
    reasons_of_gaps,
    trial_doubts,
    uncertain_partitions,
)
from prozess.harness.guarantees.verdict.evaluation import (
    Evaluation,
    Judgement,
    Tally,
    evaluate_witnesses,
    tally_of,
    windows_judged,
)
from prozess.harness.guarantees.verdict.expectations import expectation_results
from prozess.harness.guarantees.verdict.sentences import (
    at_risk,
    faults_shown,
    not_proven,
    outcome_reason,
    sentence,
    show_witnesses,
    trial_sentence,
)
from prozess.harness.history.participants import nobody_audited
from prozess.harness.interfaces.checking import Finding, KernelResult
from prozess.harness.plan import catalogue
from prozess.harness.plan.plan import Cell, Control, Plan
from prozess.harness.printable import first_of_many, number_of
from prozess.harness.schema import NONE, Tristate
from prozess.harness.suggestions import did_you_mean
from prozess.harness.verdict import (
    SERVER_ERRORS,
    AnomalyOutcome,
    CellAnomaly,
    CellVerdict,
    ControlResult,
    TrialVerdict,
    Verdict,
    WindowJudged,
    worst,
)

_VERDICTS = {
    AnomalyOutcome.HELD: Verdict.HELD,
    AnomalyOutcome.POSSIBLE: Verdict.HELD,
    AnomalyOutcome.PERMITTED: Verdict.HELD,
    AnomalyOutcome.VIOLATED: Verdict.VIOLATED,
    AnomalyOutcome.UNKNOWN: Verdict.UNKNOWN,
    AnomalyOutcome.NOT_JUDGED: Verdict.NOT_JUDGED,
}


def judge(plan: Plan, findings: Sequence[Finding], evidence: Evidence, *, decide: Collection[str] = ()) -> TrialVerdict:
    """Returns the verdict of a trial. `findings`: one per anomaly of the table and planned partition; what is missing
    is unknown. `decide`: the guarantees that were chosen to decide, instead of the plan's."""
    decide = guarantees_in(decide) or guarantees_in(plan.decide)
    expectations = expectation_results(plan, evidence)
    doubts = trial_doubts(plan, evidence, expectations)
    found = {(f.anomaly, f.partition): f for f in findings}
    costs: Counter[str] = Counter()
    windows: dict[int, tuple[WindowJudged, ...]] = {}
    evidence = replace(evidence, ended_by_loss=ended_by_loss(plan, evidence, _losers(findings)))
    beyond = beyond_reality_in(plan, evidence)
    outcomes = {
        cell.cell: _judge_cell(plan, cell, found, evidence, doubts, beyond, costs, windows) for cell in plan.cells
    }
    controls, silent = _ask_controls(plan, outcomes, decide)
    _leave_out(plan, outcomes, decide, evidence)
    doubts = (*doubts, *idle_doubts(outcomes, decide))
    reasons = list(dict.fromkeys((*doubts, *silent, *_unknown_reasons(outcomes, (*doubts, *silent)))))
    cells = tuple(
        CellVerdict(
            cell=cell.cell,
            name=cell.name,
            workload=cell.workload,
            axes=cell.axes,
            verdict=_of_cell(outcomes[cell.cell], decide),
            anomalies=outcomes[cell.cell],
            windows=windows.get(cell.cell, ()),
        )
        for cell in plan.cells
    )
    in_doubt = [Verdict.UNKNOWN] if doubts or silent else []
    verdict = worst([*(cell.verdict for cell in cells), *in_doubt])
    omitted = not_judged(outcomes)
    if decide:
        costs = Counter({rule: count for rule, count in costs.items() if rule.partition("/")[0] in decide})
    text = trial_sentence(
        plan, cells, verdict, reasons=reasons, costs=costs, evidence=evidence, omitted=omitted, chosen=decide
    )
    return TrialVerdict(
        verdict=verdict,
        sentence=text,
        trial=plan.trial,
        title=plan.title,
        seed=plan.seed,
        cells=cells,
        controls=controls,
        not_proven=not_proven(controls, cells),
        unknown_reasons=tuple(reasons),
        faults=faults_shown(plan, evidence),
        expectations=expectations,
        findings=_counts(findings),
        decided=tuple(name for name in TABLE if _decided(outcomes, name)),
        not_judged=omitted,
        facts=at_risk(cells),
    )


def _leave_out(
    plan: Plan, outcomes: Mapping[int, dict[str, CellAnomaly]], decide: Collection[str], evidence: Evidence
) -> None:
    for cell, judged in outcomes.items():
        ended = not evidence.ended.isdisjoint(plan.cells[cell].partitions)
        for name, anomaly in judged.items():
            if (why := why_not_deciding(plan, anomaly, decide, ended=ended)) is not None:
                judged[name] = not_deciding(anomaly, why)


def _of_cell(judged: Mapping[str, CellAnomaly], decide: Collection[str]) -> Verdict:
    """Returns the verdict on a cell: the worst of its anomalies, or NOT_JUDGED if none of the chosen guarantees applies to
    it."""
    if decide and not set(decide) & judged.keys():
        return Verdict.NOT_JUDGED
    return worst(anomaly.verdict for anomaly in judged.values())


def _decided(outcomes: Mapping[int, Mapping[str, CellAnomaly]], name: str) -> bool:
    judged = (anomalies[name] for anomalies in outcomes.values() if name in anomalies)
    return any(anomaly.outcome is not AnomalyOutcome.NOT_JUDGED for anomaly in judged)


def _counts(findings: Sequence[Finding]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.anomaly] += finding.result.count
    return dict(counts)


def _losers(findings: Sequence[Finding]) -> frozenset[int]:
    """Returns the clients whose acknowledged records are missing from the log."""
    gone = ("lost", "compacted-away", "tombstone-lost")
    return frozenset(int(c) for f in findings if f.anomaly in gone for c in np.unique(f.result.witnesses["client"]))


def _unknown_reasons(outcomes: Mapping[int, Mapping[str, CellAnomaly]], known: Sequence[str]) -> list[str]:
    """Each reason of an unknown once, with the anomalies it concerns; without those `known` already."""
    concerned: dict[str, dict[str, None]] = {}
    for cell in outcomes.values():
        for a in cell.values():
            if a.outcome is AnomalyOutcome.UNKNOWN:
                concerned.setdefault(a.reason, {})[a.anomaly] = None
    texts = {sentence(why) for why in known}
    return [
        why if len(anomalies) == len(TABLE) else f"{first_of_many(list(anomalies))}: {why}"
        for why, anomalies in concerned.items()
        if why not in texts
    ]


# One cell.


def _judge_cell(
    plan: Plan,
    cell: Cell,
    found: Mapping[tuple[str, int], Finding],
    evidence: Evidence,
    doubts: Sequence[str],
    beyond: str | None,
    costs: Counter[str],
    windows: dict[int, tuple[WindowJudged, ...]],
) -> dict[str, CellAnomaly]:
    envelopes = envelopes_of(plan, cell, evidence)
    configuration = configuration_of(
        cell, evidence.kafka_version, transaction_version=evidence.feature("transaction.version")
    )
    lived_ns = cell.producer.delivery_timeout_ms * 1_000_000
    # Thousands of partitions, but few things that happened to them.
    happened = dict.fromkeys(what_happened(e, sends_lived_ns=lived_ns) for e in envelopes.values())
    happened_in_plan = [with_plan(one, plan, cell) for one in happened]
    own_doubts, unasked = cell_doubts(plan, cell, evidence), not_asked(plan, cell)
    contradicted = (*evidence.contradictions.get(cell.cell, ()), *evidence.contradictions.get(NONE, ()))
    ended = not evidence.ended.isdisjoint(cell.partitions)
    unread = None if plan.audited else _unread(cell, found)
    dropped = reasons_of_gaps(plan, cell)
    judged = {}
    for anomaly, guarantee in TABLE.items():
        if not guarantee.applies(cell.traits):
            continue
        of_ended = _ENDED if ended and anomaly not in OF_ENDED_TOPICS else None
        if (unasked_why := unasked.get(anomaly, of_ended)) is not None:
            blank = CellAnomaly(anomaly=anomaly, outcome=AnomalyOutcome.NOT_JUDGED, verdict=Verdict.NOT_JUDGED)
            judged[anomaly] = not_deciding(blank, unasked_why)
            continue
        results = results_of(anomaly, cell, found)
        uncertain = uncertain_partitions(plan, cell, anomaly)
        tally = tally_of(guarantee, results, evaluation_of(anomaly, configuration, envelopes), uncertain)
        costs.update({rule.id: count for rule, count in tally.by_rule(guarantee)})
        if anomaly == "late" and cell.delivery_bound is not None:
            windows[cell.cell] = windows_judged(cell.delivery_bound, tally)
        missing = [p for p in cell.partitions if p not in results]
        outcome, rule, why = _decide(
            guarantee,
            tally,
            hidden=_why_unknown(
                guarantee,
                (
                    *(dropped if tally.judged or anomaly in WITHOUT_AUDIT else ()),
                    *(_gaps_of_ended(cell, tally) if ended else _gaps(plan, cell, anomaly, tally, unread)),
                ),
                tally,
                missing,
                evidence,
                own_doubts,
                cell=cell,
            ),
            doubt=doubts[0] if doubts else None,
            beyond=beyond or next(iter(contradicted), None),
            possible=_possible(anomaly, configuration, happened_in_plan),
        )
        gap = why or _gap(tally, envelopes, rule) if outcome is AnomalyOutcome.UNKNOWN else ""
        judged[anomaly] = CellAnomaly(
            anomaly=anomaly,
            outcome=outcome,
            verdict=_VERDICTS[outcome],
            count=tally.count,
            forbidden=tally.forbidden,
            permitted=tally.permitted,
            unknown=tally.unknown,
            not_applicable=tally.count - tally.applicable,
            reason=outcome_reason(
                guarantee,
                outcome,
                tally,
                rule,
                gap,
                change=_change(plan, cell, evidence, tally, envelopes, guarantee, rule)
                if rule and outcome is AnomalyOutcome.PERMITTED
                else "",
            )
            + (_cause(tally, envelopes) if guarantee.by_resending and outcome is AnomalyOutcome.PERMITTED else ""),
            why=gap,
            source=rule.source if rule and outcome is not AnomalyOutcome.VIOLATED else guarantee.source,
            defects=tuple(dict.fromkeys(r.defect for r, _ in tally.defects(guarantee))),
            known={r.label: count for r, count in tally.defects(guarantee)},
            by_rule={r.id: count for r, count in tally.by_rule(guarantee)},
            possible={r.label: count for r, count in tally.possible_defects(guarantee)},
            witnesses=show_witnesses(plan, cell, guarantee, tally, evidence),
        )
    return judged


def _change(
    plan: Plan,
    cell: Cell,
    evidence: Evidence,
    tally: Tally,
    envelopes: Mapping[int, Envelope],
    guarantee: Guarantee,
    rule: Rule,
) -> str:
    """Returns the change of settings that would have prevented what this rule permitted."""
    permitted = tally.permitted_by(guarantee, rule)
    # Sorted as the witnesses were judged: those of no partition of the cell with its first.
    where = np.where(np.isin(permitted["partition"], cell.partitions), permitted["partition"], cell.partitions[0])
    setting = PartitionSettings.of(
        cell,
        flushed=evidence.flushed(cell),
        eligible=evidence.feature("eligible.leader.replicas.version") > 0,
        brokers=plan.variant.brokers,
    )
    return change_of(rule, setting, [(envelopes[p], permitted[where == p]) for p in np.unique(where).tolist()])


def envelopes_of(plan: Plan, cell: Cell, evidence: Evidence) -> dict[int, Envelope]:
    """Returns what happened to each partition of a cell, and to all of them together."""
    envelopes = {p: evidence.envelope(plan, cell, p) for p in cell.partitions}
    unclean = any_true(*(np.int8(elected_unclean(envelope)) for envelope in envelopes.values()))
    last_ns = max(last_unclean_ns(envelope) for envelope in envelopes.values())
    timelines = tuple(envelope.timeline for envelope in envelopes.values())
    return {
        p: replace(envelope, cell_unclean=Tristate(int(unclean)), cell_unclean_ns=last_ns, cell_timelines=timelines)
        for p, envelope in envelopes.items()
    }


def results_of(anomaly: str, cell: Cell, found: Mapping[tuple[str, int], Finding]) -> dict[int, KernelResult]:
    """Returns the results for each partition of the cell; what a kernel over the whole cell found is taken apart by the
    witnesses' partitions."""
    if not catalogue.CHECKERS[anomaly].of_cells:
        return {p: f.result for p in cell.partitions if (f := found.get((anomaly, p))) is not None}
    whole = found.get((anomaly, cell.partitions[0]))
    if whole is None:
        return {}
    witnesses, first = whole.result.witnesses, cell.partitions[0]
    where = np.where(np.isin(witnesses["partition"], cell.partitions), witnesses["partition"], first)
    assert set(np.unique(where).tolist()) <= set(cell.partitions), "witnesses of the cell"
    shown = {p: witnesses[where == p] for p in np.unique(where).tolist()}
    nothing = replace(whole.result, witnesses=witnesses[:0], count=0, judged=0)
    parts = dict.fromkeys(cell.partitions, nothing)
    parts |= {p: replace(nothing, witnesses=mine, count=len(mine)) for p, mine in shown.items()}
    assert sum(part.count for part in parts.values()) == len(witnesses), "each witness is in one partition"
    beyond = whole.result.count - len(witnesses)
    parts[first] = replace(parts[first], count=parts[first].count + beyond, judged=whole.result.judged)
    return parts


def evaluation_of(
    anomaly: str, configuration: CellConfiguration, envelopes: Mapping[int, Envelope]
) -> Callable[[int, np.ndarray], Evaluation]:
    return lambda p, witnesses: evaluate_witnesses(anomaly, configuration, envelopes[p], witnesses)


def _gap(tally: Tally, envelopes: Mapping[int, Envelope], rule: Rule | None) -> str:
    """Says what was missing to judge the unknown witnesses. `rule`: the one in doubt for most of them."""
    if tally.overflow:
        return f"only the first {len(tally.witnesses):,} of them were kept for judging"
    if tally.spoilt:
        return tally.spoilt[0] + _sampled(envelopes)
    stated = {f.kind for e in envelopes.values() for f in e.faults}
    if UNSTATED in stated or any(e.unstated for e in envelopes.values()):
        return "the history does not say which faults struck the cluster" + _sampled(envelopes)
    unknown = np.unique(tally.witnesses["partition"][tally.judgement == Judgement.UNKNOWN]).tolist()
    if any(p in envelopes and not envelopes[p].timeline.known for p in unknown):
        return "the controllers' log says nothing about who led their partition" + _sampled(envelopes)
    faults = next((e.faults for e in envelopes.values()), ())
    if unproven := next((f for f in faults if f.effective is Tristate.UNKNOWN), None):
        return f"the {unproven.kind} was not proven to work"
    if (
        rule is not None and rule.effect is RuleEffect.NOT_APPLICABLE
    ):  # such a rule is in doubt where what it names was seen
        return rule.reason
    return "the history does not say precisely when or where they were written, or which settings a broker had"


def _sampled(envelopes: Mapping[int, Envelope]) -> str:
    """Says what samples of the brokers' metadata add; nothing if they prove nothing."""
    seen = [f"in partition {p} {election}" for p, e in sorted(envelopes.items()) for election in e.sampled_unclean]
    return f"; but {seen[0]}{f', and {len(seen) - 1} more' if seen[1:] else ''}" if seen else ""


def _cause(tally: Tally, envelopes: Mapping[int, Envelope]) -> str:
    """Says how many sends overlapped a fault or a leader change, which may have cost the reply. It permits nothing."""
    of = tally.witnesses["partition"]
    endangered = sum(int(reply_endangered(e, tally.witnesses[of == p]).sum()) for p, e in envelopes.items())
    return f" In {endangered:,} of {tally.count:,} cases a fault or a leader change happened during the send."


def _possible(anomaly: str, configuration: CellConfiguration, happened: Sequence[Happened]) -> Rule | None:
    rules = (r for h in happened for r in satisfiable_rules(anomaly, configuration, h))
    return next(rules, None)


def _unread(cell: Cell, found: Mapping[tuple[str, int], Finding]) -> str | None:
    """Returns why consumers may have missed something of a cell that nobody audited; None = they were given everything
    that was acknowledged."""
    never = [found.get((name, p)) for name in ("lost", "unseen") for p in cell.partitions]
    count = sum(finding.result.count for finding in never if finding is not None)
    if None in never:
        return "there was no audit, and it was not checked whether consumers read everything that was acknowledged"
    return (
        f"consumers did not read {number_of(count, 'acknowledged record')}, and there was no audit" if count else None
    )


def _gaps(plan: Plan, cell: Cell, anomaly: str, tally: Tally, unread: str | None) -> Sequence[str]:
    """Returns why absence cannot be concluded. Without an audit, absence counts only if consumers received every
    acknowledged record and would have met the anomaly."""
    if plan.audited:
        return tally.incomplete
    if anomaly not in WITHOUT_AUDIT:  # the check of `lost` itself knows whether consumers read all again
        return tally.incomplete or ((_NO_AUDIT,) if tally.judged and anomaly != "lost" else ())
    unaudited = set(map(nobody_audited, cell.partitions))
    others = [why for why in tally.incomplete if not set(why.split("; ")) <= unaudited]
    return (*others, *([unread] if unread and tally.judged else []))


def _gaps_of_ended(cell: Cell, tally: Tally) -> Sequence[str]:
    """Returns the same of a cell whose topic was deleted before the audit. What consumers never came to is gone with it, and
    nobody was promised that."""
    unaudited = set(map(nobody_audited, cell.partitions))
    return [why for why in tally.incomplete if not set(why.split("; ")) <= unaudited]


def _why_unknown(
    guarantee: Guarantee,
    gaps: Sequence[str],
    tally: Tally,
    missing: Sequence[int],
    evidence: Evidence,
    doubts: Sequence[str],
    *,
    cell: Cell,
) -> str | None:
    """Returns why this cell's evidence may hide something; None = it is whole."""
    if failure := evidence.failures.get(guarantee.anomaly):
        return f"its check failed: {failure}"
    if missing:
        return f"its check gave no result for partitions {', '.join(map(str, missing))}"
    if gaps:
        return gaps[0]
    if doubts:
        return "; ".join(doubts)
    # A test need not have clients of every kind; a trial's are there to do something.
    needed = guarantee.nothing_is_unknown and cell.workload != catalogue.RECORDED
    return f"nothing to judge: {guarantee.nothing}" if not tally.judged and needed else None


def _decide(
    guarantee: Guarantee,
    tally: Tally,
    *,
    hidden: str | None,
    doubt: str | None,
    beyond: str | None,
    possible: Rule | None,
) -> tuple[AnomalyOutcome, Rule | None, str | None]:
    """The outcome, the rule it rests on, and why it is unknown. What was seen stands, unless its own evidence has gaps, the
    trial did what no network does, or tables contradict one another (`beyond`); a doubt about the trial takes away only what
    rests on not having seen anything."""
    if tally.forbidden and beyond is not None:
        return AnomalyOutcome.UNKNOWN, None, beyond
    if tally.forbidden:
        return AnomalyOutcome.VIOLATED, tally.leading(guarantee, Judgement.FORBIDDEN), None
    if tally.unknown:
        return AnomalyOutcome.UNKNOWN, tally.leading(guarantee, Judgement.UNKNOWN), None
    if hidden is not None:
        return AnomalyOutcome.UNKNOWN, None, hidden
    if tally.permitted:
        return AnomalyOutcome.PERMITTED, tally.leading(guarantee, Judgement.PERMITTED), None
    if not tally.judged:
        return AnomalyOutcome.NOT_JUDGED, None, None
    if doubt is not None:
        return AnomalyOutcome.UNKNOWN, None, doubt
    return (AnomalyOutcome.POSSIBLE, possible, None) if possible else (AnomalyOutcome.HELD, None, None)


# Controls.


def _ask_controls(
    plan: Plan, outcomes: dict[int, dict[str, CellAnomaly]], decide: Collection[str]
) -> tuple[tuple[ControlResult, ...], tuple[str, ...]]:
    """Asks every control and writes into `outcomes` what it proves; returns the results, and why required ones leave
    doubt."""
    results, silent = [], []
    for control in controls_of(plan):
        result = control_result(control, outcomes)
        results.append(result)
        if decide and control.anomaly not in decide:
            continue
        if not result.fired and control.required:
            silent.append(
                f"the control for {control.anomaly!r} showed nothing: {_cells_text(plan, control)} should have shown it"
            )
        for cell in plan.cells:
            if (held := outcomes[cell.cell].get(control.anomaly)) is None:
                continue
            witnesses = result.fired_in or control.cells
            if held.outcome is AnomalyOutcome.HELD and held.proven is not True and proves(plan, witnesses, cell):
                outcomes[cell.cell][control.anomaly] = _proven(held, result, silent[-1:])
    return tuple(results), tuple(silent)


def _proven(held: CellAnomaly, result: ControlResult, silent: Sequence[str]) -> CellAnomaly:
    if result.fired:
        return held.model_copy(update={"proven": True})
    if result.required:
        unknown = {
            "outcome": AnomalyOutcome.UNKNOWN,
            "verdict": Verdict.UNKNOWN,
            "proven": False,
            "reason": sentence(silent[0]),
            "why": silent[0],
        }
        return held.model_copy(update=unknown)
    reason = f"{held.reason} Unproven: the cells that may show it under these faults did not show it either."
    return held.model_copy(update={"proven": False, "reason": reason})


def _cells_text(plan: Plan, control: Control) -> str:
    """Describes the cells of a control: how many there are, and the setting that only they have."""
    chosen = [plan.cells[c].axes for c in control.cells]
    common = {k: v for k, v in chosen[0].items() if all(axes.get(k) == v for axes in chosen)}
    differing = {k: v for k, v in common.items() if any(cell.axes.get(k) != v for cell in plan.cells)}
    enough = [{k: v} for k, v in differing.items() if len(plan.cells_matching({k: v})) == len(control.cells)]
    named = " ".join(f"{k.partition('.')[2]}={v}" for k, v in (enough[0] if enough else differing).items())
    return f"{number_of(len(control.cells), 'cell')}{f' with {named}' if named else ''}"


# Which guarantees decide a verdict. The rest is listed as not judged, by name and with the reason.
#
# By default everything decides that can be judged where the history comes from; what cannot decides all the same once
# something of it was found. A caller that chooses (`--decide`) gets exactly what was chosen.


_OF_CONTROLLERS = (
    *("under-acknowledged", "unclean", "two-controllers", "stale-controller", "leaderless", "unanswered"),
    *("not-linearizable", "illegal-transition"),
)
_OF_COORDINATORS = ("illegal-transaction-state", "illegal-group-state", "illegal-share-state")
NEEDS_NODES = (
    *(*_OF_CONTROLLERS, "diverged", "remote-gap", "remote-conflict", "remote-left", "uncopied"),
    *("snapshot-conflict", "out-of-sequence", *_OF_COORDINATORS),
)
"""Anomalies that only the nodes' own files, or the controllers' log, can show."""
WITHOUT_AUDIT = (
    *("duplicate", "reordered", "offset-conflict", "phantom", "corrupt", "misplaced", "resurrected", "rewound"),
    *("time-travel", "zombie-write", "aborted-read", "early-read", "own-read", "information-cycle", "write-cycle"),
    "split-key",
)
"""Anomalies that the clients' own records prove without an audit: a consumer that received every acknowledged record would
have met them. The others mean that something is missing, and only an audit can show that."""
OF_ENDED_TOPICS = (
    *(*WITHOUT_AUDIT, "lost", "skipped", *_OF_CONTROLLERS),
    *("undeleted", "log-start-regression", "expired-early", "remote-left"),
)
"""Anomalies that are judged of a topic that was deleted before the audit: by what consumers were given while it was there,
and by the controllers' log."""
NEEDS_HEARTBEATS = ("hanging", "stuck")
"""Anomalies of clients that wait. A client that only slept looks the same, unless its heartbeats show that it was awake."""
NOT_CHOSEN = "it was not chosen to decide"
_NODES_UNREAD = "neither the nodes' files nor the controllers' log can be read on this cluster"
_NOT_FETCHED = "the logs of coordinators are not fetched from other machines, because they have what others commit"
_NOT_IMPORTED = "an imported history has neither the nodes' files nor the controllers' log"
_NO_AUDIT = "there was no audit"
_ENDED = "its topic was deleted before the audit"
_NO_HEARTBEATS = "an imported history does not say when its clients were awake"


def parse_decide(texts: Sequence[str]) -> tuple[str, ...]:
    """The guarantees that `--decide` names, comma-separated, in the order of the table, and SERVER_ERRORS. BadInput for what
    is neither."""
    known = (*TABLE, SERVER_ERRORS)
    named = [name.strip() for text in texts for name in text.split(",")]
    for name in named:
        if name not in known:
            hint = did_you_mean(name, known)
            raise BadInput(f"--decide {name!r} is not the name of a guarantee; {hint} Known: {', '.join(known)}.")
    return tuple(name for name in known if name in named)


def guarantees_in(decide: Collection[str]) -> tuple[str, ...]:
    """Returns the guarantees among what was chosen. SERVER_ERRORS is none: it decides beside them, and they still do."""
    return tuple(name for name in decide if name != SERVER_ERRORS)


def refuse_idle(plan: Plan, decide: Collection[str]) -> None:
    """Raises BadInput for a guarantee that no cell of the plan is judged by: it could never decide."""
    for name in guarantees_in(decide):
        if not any(TABLE[name].applies(cell.traits) for cell in plan.cells):
            workloads = ", ".join(TABLE[name].workloads)
            raise BadInput(
                f"--decide {name!r} cannot decide anything: it applies to cells of {workloads}, and {plan.trial!r} has none. "
                "Leave it out."
            )


def with_decide(plan: Plan, decide: Sequence[str]) -> Plan:
    """Returns the plan with the guarantees that were chosen to decide, `--decide`, or else those that its trial names.
    BadInput for an unknown one, or one that no cell is judged by."""
    named = parse_decide(decide or plan.decide)
    refuse_idle(plan, named)
    return plan.model_copy(update={"decide": named})


def why_not_judged(plan: Plan, anomaly: str, *, ended: bool = False) -> str | None:
    """Returns why a guarantee cannot be judged where this history comes from; None = it can. `ended`: in a cell whose topic
    was deleted before the audit."""
    if ended and anomaly not in OF_ENDED_TOPICS:
        return _ENDED
    if anomaly in _OF_COORDINATORS and plan.ssh is not None:
        return _NOT_FETCHED
    if anomaly in NEEDS_NODES and plan.audited:
        return _NODES_UNREAD if plan.nodes_unread else None
    if plan.audited or anomaly in WITHOUT_AUDIT:
        return None
    if anomaly in NEEDS_HEARTBEATS:
        return _NO_HEARTBEATS
    return _NOT_IMPORTED if anomaly in NEEDS_NODES else _NO_AUDIT


def why_not_deciding(plan: Plan, judged: CellAnomaly, decide: Collection[str], *, ended: bool = False) -> str | None:
    """Returns why a guarantee does not decide in a cell; None = it does, or it does not apply there. `decide`: as
    chosen."""
    if judged.outcome is AnomalyOutcome.NOT_JUDGED or judged.anomaly in decide:
        return None
    if decide:
        return NOT_CHOSEN
    nothing_seen = judged.outcome is AnomalyOutcome.UNKNOWN and not judged.count
    return why_not_judged(plan, judged.anomaly, ended=ended) if nothing_seen else None


def not_deciding(judged: CellAnomaly, why: str) -> CellAnomaly:
    """Returns the anomaly as not judged. What was found is still reported."""
    found = f"{judged.count:,} found. " if judged.count else ""
    return judged.model_copy(
        update={
            "outcome": AnomalyOutcome.NOT_JUDGED,
            "verdict": Verdict.NOT_JUDGED,
            "proven": None,
            "left_out": why,
            "reason": f"{found}Not judged: {why}.",
        }
    )


def idle_doubts(outcomes: Mapping[int, Mapping[str, CellAnomaly]], decide: Collection[str]) -> list[str]:
    """Returns what was chosen to decide, and had nothing to judge in any cell. It must not count as passed."""
    reasons = []
    for name in decide:
        found = [anomalies[name] for anomalies in outcomes.values() if name in anomalies]
        if all(judged.outcome is AnomalyOutcome.NOT_JUDGED for judged in found):
            reasons.append(f"{name} was chosen to decide, but there was nothing to judge: {TABLE[name].nothing}")
    return reasons


def not_judged(outcomes: Mapping[int, Mapping[str, CellAnomaly]]) -> dict[str, str]:
    """Returns, for each guarantee, why it did not decide in some cell, with what was found; in the order of the table."""
    found: dict[str, str] = {}
    for name in TABLE:
        of = [anomalies[name] for anomalies in outcomes.values() if name in anomalies and anomalies[name].left_out]
        if of:
            count = sum(judged.count for judged in of)
            found[name] = of[0].left_out + (f"; {count:,} found" if count else "")
    return found


def controls_of(plan: Plan) -> tuple[Control, ...]:
    """The trial's own controls, and the table's for the anomalies it names none for."""
    own = {control.anomaly for control in plan.controls}
    added = []
    for rule in CONTROLS:
        cells = tuple(cell.cell for cell in plan.cells if KINDS[rule.kind](cell))
        if rule.anomaly not in own and cells and rule.faults & set(plan.faults):
            added.append(Control(anomaly=rule.anomaly, cells=cells, required=False))
    return (*plan.controls, *added)


def control_result(control: Control, outcomes: Mapping[int, Mapping[str, CellAnomaly]]) -> ControlResult:
    """Says whether its cells showed the anomaly. Whether a rule permits what was seen does not matter here."""
    counts = {c: outcomes[c][control.anomaly].count for c in control.cells if control.anomaly in outcomes[c]}
    return ControlResult(
        anomaly=control.anomaly,
        cells=control.cells,
        fired_in=tuple(cell for cell, count in counts.items() if count),
        count=sum(counts.values()),
        required=control.required,
    )


def proves(plan: Plan, cells: Sequence[int], cell: Cell) -> bool:
    """Says whether one of these control cells has the same traffic (workload) and placement as `cell`."""
    return any(
        plan.cells[c].workload == cell.workload and _placement(plan, plan.cells[c]) == _placement(plan, cell)
        for c in cells
    )


def _placement(plan: Plan, cell: Cell) -> frozenset[tuple[int, ...]]:
    return frozenset(plan.partitions[p].assignment for p in cell.partitions)
