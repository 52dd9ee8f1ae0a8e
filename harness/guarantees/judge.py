"""The judge: plan, findings and evidence in, verdict out. Pure.

Per cell and anomaly: every witness is put to the table, in the envelope of its partition; the worst decides.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from harness import catalogue
from harness.guarantees.configured import Configuration, configuration_of
from harness.guarantees.controls import control_result, controls_of, proves
from harness.guarantees.cutoffs import elected_unclean
from harness.guarantees.doubts import cell_doubts, told_of_loss, trial_doubts
from harness.guarantees.envelope import Envelope
from harness.guarantees.evaluate import Evaluation, Judgement, evaluate_witnesses, satisfiable_rules
from harness.guarantees.evidence import Evidence
from harness.guarantees.happened import Happened, what_happened, with_readers
from harness.guarantees.logic import either
from harness.guarantees.reasons import reply_endangered
from harness.guarantees.sentences import at_risk, number_of, outcome_reason, sentence, trial_sentence
from harness.guarantees.shown import faults_shown, show_witnesses
from harness.guarantees.table import TABLE, Effect, Guarantee, Rule
from harness.guarantees.tally import Tally, tally_of, windows_judged
from harness.plan import Cell, Control, Plan
from harness.protocols import Finding, KernelResult
from harness.schema import Tristate
from harness.verdict import (
    AnomalyOutcome,
    CellAnomaly,
    CellVerdict,
    ControlResult,
    TrialVerdict,
    Verdict,
    WindowJudged,
    worst,
)

NEEDS_NODES = ("under-acknowledged", "unclean", "two-controllers", "diverged", "snapshot-conflict")
"""Anomalies that only the nodes' own files, or the controllers' log, can show."""
NEEDS_OUR_CLIENTS = ("stalled", "orphaned", "own-read", "information-cycle", "write-cycle")
"""Of clients that go on until they are told to stop, or read within their transactions: a test's own do as they please."""
NAMED_MAX = 4
"""So many anomalies are named with what leaves them unknown."""
_VERDICTS = {
    AnomalyOutcome.HELD: Verdict.HELD,
    AnomalyOutcome.PERMITTED: Verdict.HELD,
    AnomalyOutcome.SHOWN: Verdict.HELD,
    AnomalyOutcome.VIOLATED: Verdict.VIOLATED,
    AnomalyOutcome.UNKNOWN: Verdict.UNKNOWN,
    AnomalyOutcome.NOT_JUDGED: Verdict.NOT_JUDGED,
}


def judge(plan: Plan, findings: Sequence[Finding], evidence: Evidence) -> TrialVerdict:
    """The verdict of a trial. `findings`: one per anomaly of the table and planned partition; what is missing is unknown."""
    doubts = trial_doubts(plan, evidence)
    found = {(f.anomaly, f.partition): f for f in findings}
    costs: Counter[str] = Counter()
    windows: dict[int, tuple[WindowJudged, ...]] = {}
    evidence = replace(evidence, told_of_loss=told_of_loss(plan, evidence, _losers(findings)))
    outcomes = {cell.cell: _judge_cell(plan, cell, found, evidence, doubts, costs, windows) for cell in plan.cells}
    controls, silent = _ask_controls(plan, outcomes)
    reasons = list(dict.fromkeys((*doubts, *silent, *_unknown_reasons(outcomes, (*doubts, *silent)))))
    cells = tuple(
        CellVerdict(
            cell=cell.cell,
            name=cell.name,
            workload=cell.workload,
            axes=cell.axes,
            verdict=worst(a.verdict for a in outcomes[cell.cell].values()),
            anomalies=outcomes[cell.cell],
            windows=windows.get(cell.cell, ()),
        )
        for cell in plan.cells
    )
    in_doubt = [Verdict.UNKNOWN] if doubts or silent else []
    verdict = worst([*(cell.verdict for cell in cells), *in_doubt])
    return TrialVerdict(
        verdict=verdict,
        sentence=trial_sentence(plan, cells, verdict, reasons=reasons, costs=costs, evidence=evidence),
        trial=plan.trial,
        title=plan.title,
        seed=plan.seed,
        cells=cells,
        controls=controls,
        unknown_reasons=tuple(reasons),
        faults=faults_shown(plan, evidence),
        findings=_counts(findings),
        facts=at_risk(cells),
    )


def _counts(findings: Sequence[Finding]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.anomaly] += finding.result.count
    return dict(counts)


def _losers(findings: Sequence[Finding]) -> frozenset[int]:
    """Clients of which acknowledged records are gone."""
    gone = ("lost", "compacted-away", "tombstone-lost")
    return frozenset(int(c) for f in findings if f.anomaly in gone for c in np.unique(f.result.witnesses["client"]))


def _unknown_reasons(outcomes: Mapping[int, Mapping[str, CellAnomaly]], known: Sequence[str]) -> list[str]:
    """Each reason of an unknown once, with the anomalies it concerns; without those `known` already."""
    concerned: dict[str, dict[str, None]] = {}
    for cell in outcomes.values():
        for a in cell.values():
            if a.outcome is AnomalyOutcome.UNKNOWN:
                concerned.setdefault(a.reason, {})[a.anomaly] = None
    said = {sentence(why) for why in known}
    return [
        why if len(anomalies) == len(TABLE) else f"{_few(list(anomalies))}: {why}"
        for why, anomalies in concerned.items()
        if why not in said
    ]


def _few(names: Sequence[str]) -> str:
    """Of many only the first: what a client that died leaves open is thirty anomalies, and the cells name each."""
    more = len(names) - NAMED_MAX
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:NAMED_MAX])} and {more} more"


# --- one cell -------------------------------------------------------------------------------------------------------


def _judge_cell(
    plan: Plan,
    cell: Cell,
    found: Mapping[tuple[str, int], Finding],
    evidence: Evidence,
    doubts: Sequence[str],
    costs: Counter[str],
    windows: dict[int, tuple[WindowJudged, ...]],
) -> dict[str, CellAnomaly]:
    envelopes = _envelopes(plan, cell, evidence)
    configuration = configuration_of(
        cell, evidence.kafka_version, transaction_version=evidence.feature("transaction.version")
    )
    lived_ns = cell.producer.delivery_timeout_ms * 1_000_000
    happened = [with_readers(what_happened(e, sends_lived_ns=lived_ns), plan, cell) for e in envelopes.values()]
    own_doubts = cell_doubts(plan, cell, evidence)
    judged = {}
    for anomaly, guarantee in TABLE.items():
        if not guarantee.applies(cell.traits) or anomaly in _not_asked(plan, cell):
            continue
        results = _results_of(anomaly, cell, found)
        tally = tally_of(guarantee, results, _evaluation(anomaly, configuration, envelopes))
        costs.update({rule.id: count for rule, count in tally.by_rule(guarantee)})
        if anomaly == "late" and cell.delivery_bound is not None:
            windows[cell.cell] = windows_judged(cell.delivery_bound, tally)
        missing = [p for p in cell.partitions if p not in results]
        outcome, rule, why = _decide(
            guarantee,
            tally,
            hidden=_why_unknown(guarantee, tally, missing, evidence, own_doubts, cell=cell),
            doubt=doubts[0] if doubts else None,
            possible=_possible(anomaly, configuration, happened),
        )
        judged[anomaly] = CellAnomaly(
            anomaly=anomaly,
            outcome=outcome,
            verdict=_VERDICTS[outcome],
            count=tally.count,
            forbidden=tally.forbidden,
            permitted=tally.permitted,
            unknown=tally.unknown,
            reason=outcome_reason(guarantee, outcome, tally, rule, why or _gap(tally, envelopes, rule))
            + (_cause(tally, envelopes) if guarantee.by_resending and outcome is AnomalyOutcome.SHOWN else ""),
            source=rule.source if rule and outcome is not AnomalyOutcome.VIOLATED else guarantee.source,
            defects=tuple(dict.fromkeys(r.defect for r in tally.defects(guarantee))),
            witnesses=show_witnesses(plan, cell, guarantee, tally, evidence),
        )
    return judged


def _not_asked(plan: Plan, cell: Cell) -> tuple[str, ...]:
    """Anomalies that nobody could have seen in this cell."""
    blind = NEEDS_NODES if plan.blind else ()
    return (*blind, *NEEDS_OUR_CLIENTS) if cell.workload == catalogue.RECORDED else blind


def _envelopes(plan: Plan, cell: Cell, evidence: Evidence) -> dict[int, Envelope]:
    """What happened to each of its partitions, and to all of them together."""
    envelopes = {p: evidence.envelope(plan, cell, p) for p in cell.partitions}
    unclean = either(*(np.int8(elected_unclean(envelope)) for envelope in envelopes.values()))
    return {p: replace(envelope, cell_unclean=Tristate(int(unclean))) for p, envelope in envelopes.items()}


def _results_of(anomaly: str, cell: Cell, found: Mapping[tuple[str, int], Finding]) -> dict[int, KernelResult]:
    """Per partition of the cell; what a kernel over the whole cell found is taken apart by the witnesses' partitions."""
    if anomaly not in catalogue.CELL_KERNELS:
        return {p: f.result for p in cell.partitions if (f := found.get((anomaly, p))) is not None}
    whole = found.get((anomaly, cell.partitions[0]))
    if whole is None:
        return {}
    where = np.where(
        np.isin(whole.result.witnesses["partition"], cell.partitions),
        whole.result.witnesses["partition"],
        cell.partitions[0],
    )
    beyond = whole.result.count - len(where)
    parts = {p: whole.result.witnesses[where == p] for p in cell.partitions}
    return {
        p: replace(
            whole.result,
            witnesses=witnesses,
            count=len(witnesses) + (beyond if p == cell.partitions[0] else 0),
            judged=whole.result.judged if p == cell.partitions[0] else 0,
        )
        for p, witnesses in parts.items()
    }


def _evaluation(
    anomaly: str, configuration: Configuration, envelopes: Mapping[int, Envelope]
) -> Callable[[int, np.ndarray], Evaluation]:
    return lambda p, witnesses: evaluate_witnesses(anomaly, configuration, envelopes[p], witnesses)


def _gap(tally: Tally, envelopes: Mapping[int, Envelope], rule: Rule | None) -> str:
    """What was missing to judge the unknown witnesses. `rule`: the one in doubt for most of them."""
    if tally.overflow:
        return f"only the first {len(tally.witnesses):,} of them were kept for judging"
    if tally.incomplete:
        return tally.incomplete[0]
    unknown = np.unique(tally.witnesses["partition"][tally.judgement == Judgement.UNKNOWN]).tolist()
    if any(p in envelopes and not envelopes[p].timeline.known for p in unknown):
        return "the controllers' log says nothing about who led their partition"
    faults = next((e.faults for e in envelopes.values()), ())
    if unproven := next((f for f in faults if f.effective is Tristate.UNKNOWN), None):
        return f"the {unproven.kind} was not proven to work"
    if (
        rule is not None and rule.effect is Effect.NOT_APPLICABLE
    ):  # such a rule is in doubt where what it names was seen
        return rule.reason
    return "when or where they were written, or a setting of the brokers, is not known exactly enough"


def _cause(tally: Tally, envelopes: Mapping[int, Envelope]) -> str:
    """What may have cost the replies: names a cause, permits nothing."""
    of = tally.witnesses["partition"]
    endangered = sum(int(reply_endangered(e, tally.witnesses[of == p]).sum()) for p, e in envelopes.items())
    return f" {endangered:,} of {tally.count:,} were under way during a fault or a change of leader."


def _possible(anomaly: str, configuration: Configuration, happened: Sequence[Happened]) -> Rule | None:
    rules = (r for h in happened for r in satisfiable_rules(anomaly, configuration, h))
    return next(rules, None)


def _why_unknown(
    guarantee: Guarantee, tally: Tally, missing: Sequence[int], evidence: Evidence, doubts: Sequence[str], *, cell: Cell
) -> str | None:
    """Why this cell's evidence may hide something; None = it is whole."""
    if failure := evidence.failures.get(guarantee.anomaly):
        return f"its check failed: {failure}"
    if missing:
        return f"its check gave no result for partitions {', '.join(map(str, missing))}"
    if tally.incomplete:
        return tally.incomplete[0]
    if doubts:
        return "; ".join(doubts)
    # A test need not have clients of every kind; a trial's are there to do something.
    needed = guarantee.nothing_is_unknown and cell.workload != catalogue.RECORDED
    return f"nothing to judge: {guarantee.nothing}" if not tally.judged and needed else None


def _decide(
    guarantee: Guarantee, tally: Tally, *, hidden: str | None, doubt: str | None, possible: Rule | None
) -> tuple[AnomalyOutcome, Rule | None, str | None]:
    """The outcome, the rule it rests on, and why it is unknown. What was seen stands, unless its own evidence has gaps; a
    doubt about the trial takes away only what rests on not having seen anything."""
    if tally.forbidden:
        return AnomalyOutcome.VIOLATED, tally.leading(guarantee, Judgement.FORBIDDEN), None
    if tally.unknown:
        return AnomalyOutcome.UNKNOWN, tally.leading(guarantee, Judgement.UNKNOWN), None
    if hidden is not None:
        return AnomalyOutcome.UNKNOWN, None, hidden
    if tally.permitted:
        return AnomalyOutcome.SHOWN, tally.leading(guarantee, Judgement.PERMITTED), None
    if not tally.judged:
        return AnomalyOutcome.NOT_JUDGED, None, None
    if doubt is not None:
        return AnomalyOutcome.UNKNOWN, None, doubt
    return (AnomalyOutcome.PERMITTED, possible, None) if possible else (AnomalyOutcome.HELD, None, None)


# --- controls -------------------------------------------------------------------------------------------------------


def _ask_controls(
    plan: Plan, outcomes: dict[int, dict[str, CellAnomaly]]
) -> tuple[tuple[ControlResult, ...], tuple[str, ...]]:
    """Ask every control and write into `outcomes` what it proves; the results, and why required ones leave doubt."""
    results, silent = [], []
    for control in controls_of(plan):
        result = control_result(control, outcomes)
        results.append(result)
        if not result.fired and control.required:
            silent.append(
                f"the control of {control.anomaly!r} showed nothing: {_cells_text(plan, control)} should have"
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
        }
        return held.model_copy(update=unknown)
    reason = f"{held.reason} Unproven: the cells that may show it under these faults did not either."
    return held.model_copy(update={"proven": False, "reason": reason})


def _cells_text(plan: Plan, control: Control) -> str:
    """How many they are, and the setting that tells them from the other cells."""
    chosen = [plan.cells[c].axes for c in control.cells]
    common = {k: v for k, v in chosen[0].items() if all(axes.get(k) == v for axes in chosen)}
    telling = {k: v for k, v in common.items() if any(cell.axes.get(k) != v for cell in plan.cells)}
    enough = [{k: v} for k, v in telling.items() if len(plan.cells_matching({k: v})) == len(control.cells)]
    named = " ".join(f"{k.partition('.')[2]}={v}" for k, v in (enough[0] if enough else telling).items())
    return f"{number_of(len(control.cells), 'cell')}{f' with {named}' if named else ''}"
