"""This module says what a person reads: one sentence per cell and anomaly, one for the trial, and the witnesses and
faults that reports show."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.config.configuration import FIRST_CONTROLLER_ID, FIRST_ZOOKEEPER_ID
from prozess.harness.config.impairments import CLIENTS
from prozess.harness.guarantees.evidence.ground_truth import FaultRecord
from prozess.harness.guarantees.evidence.trial import Evidence
from prozess.harness.guarantees.table import TABLE, Guarantee, Rule, RuleEffect
from prozess.harness.guarantees.table.harm import harm_rank, worst_first
from prozess.harness.guarantees.verdict.evaluation import Judgement, Tally
from prozess.harness.interfaces import ALL_CLIENTS_NODE, CLIENT_NODE
from prozess.harness.interfaces.witnesses import WITNESSES_SHOWN
from prozess.harness.plan.plan import Cell, Plan
from prozess.harness.printable import first_of_many, number_of
from prozess.harness.schema import MISSING, NONE, Tristate
from prozess.harness.verdict import (
    AnomalyOutcome,
    CellAnomaly,
    CellVerdict,
    ControlResult,
    FaultShown,
    Verdict,
    WitnessShown,
)

NAMED_MAX = 3
"""How many broken promises, and how many permitted findings, the trial's sentence names. The report lists all."""
_RULES = {rule.id: rule for guarantee in TABLE.values() for rule in guarantee.rules}
_ANOMALIES = {rule.id: guarantee.anomaly for guarantee in TABLE.values() for rule in guarantee.rules}
_FOUND = {rule.id: rule.found or guarantee.found for guarantee in TABLE.values() for rule in guarantee.rules}


def counted(forms: tuple[str, str], count: int) -> str:
    """Returns the form for one, or the form for many with its number."""
    return forms[0] if count == 1 else forms[1].format(n=f"{count:,}")


def sentence(why: str) -> str:
    """Makes a sentence of a reason."""
    return f"{_capital(why.rstrip('.'))}."


def outcome_reason(
    guarantee: Guarantee, outcome: AnomalyOutcome, tally: Tally, rule: Rule | None, why: str, *, change: str = ""
) -> str:
    """One sentence about one anomaly in one cell. `why`: of what is unknown; `change`: what would have prevented what was
    permitted and seen."""
    found = _capital(counted(guarantee.found, tally.applicable))
    match outcome:
        case AnomalyOutcome.VIOLATED:
            which = "this" if tally.forbidden == tally.applicable else f"{tally.forbidden:,} of these"
            return f"{found}; neither this configuration nor what happened permits {which}.{_defects(guarantee, tally)}"
        case AnomalyOutcome.PERMITTED:
            assert rule is not None
            seen = _capital(counted(rule.found or guarantee.found, tally.permitted))
            return f"{seen}: {rule.reason}; {change} {guarantee.undone}."
        case AnomalyOutcome.POSSIBLE:
            assert rule is not None
            return f"Not seen, though it would have been permitted: {rule.reason}."
        case AnomalyOutcome.UNKNOWN if tally.unknown:
            because = f" because of {rule.label}" if rule else ""
            return f"{found}; it is unknown whether this is permitted{because}: {why}."
        case AnomalyOutcome.UNKNOWN:
            return sentence(why)
        case AnomalyOutcome.NOT_JUDGED:
            return f"Does not apply: {guarantee.nothing}."
        case AnomalyOutcome.HELD:
            return guarantee.promise


def _defects(guarantee: Guarantee, tally: Tally) -> str:
    """Yields what is proven to be a known defect, then what may be one. For how many, where it is not all of them."""

    def described(found: Iterable[tuple[Rule, int]], as_what: str, proof: str) -> Iterator[str]:
        for rule, count in found:
            of = f" ({count:,} of {tally.forbidden:,})" if count < tally.forbidden else ""
            yield f" {as_what}{rule.defect and ' '}{rule.defect}{of}: {rule.reason}{proof}."

    known = described(tally.defects(guarantee), "Known defect", "")
    perhaps = described(tally.possible_defects(guarantee), "Possibly", "; nothing that was recorded proves it")
    alike = [
        f" Nothing that was recorded distinguishes {_list(labels)}." for labels in tally.indistinguishable(guarantee)
    ]
    explained = described(tally.defects(guarantee, effect=RuleEffect.EXPLAINED), "What happened", "")
    return "".join((*known, *explained, *perhaps, *alike))


def at_risk(cells: Sequence[CellVerdict]) -> dict[str, str]:
    """Returns what some cells' configurations permitted under these faults although nothing of it was seen: "not seen",
    if any."""
    anomalies = {name: _in(cells, name, AnomalyOutcome.POSSIBLE) for name in TABLE}
    texts = [f"{name} in {number_of(len(found), 'cell')}" for name, found in anomalies.items() if found]
    return {"not seen": "though possible: " + ", ".join(texts)} if texts else {}


def trial_sentence(
    plan: Plan,
    cells: Sequence[CellVerdict],
    verdict: Verdict,
    *,
    reasons: Sequence[str],
    costs: Mapping[str, int],
    evidence: Evidence,
    omitted: Mapping[str, str],
    chosen: Collection[str] = (),
) -> str:
    """Returns the verdict of the trial in a sentence. `costs`: id of a rule → how many witnesses it permitted;
    `omitted`: guarantee that did not decide → why; `chosen`: those that were chosen to."""
    under, left = _under(plan, evidence), _left(cells, omitted)
    match verdict:
        case Verdict.VIOLATED:
            more = f"{_and_unknown(cells)}{_ended_early(evidence)}"
            first = f" ({_limits(evidence)})" if evidence.limits else ""
            known = _counts(cells, "known")
            perhaps = (
                f" Possibly by {counts}; nothing that was recorded proves it."
                if (counts := _counts(cells, "possible"))
                else ""
            )
            if all(a.by_known_defects for c in cells for a in c.anomalies.values() if a.verdict is Verdict.VIOLATED):
                return (
                    f"Violated{first}, only by known defects ({known}): {_violations(plan, cells)}{under}.{more}{left}"
                )
            of_them = f" By known defects: {known}." if known else ""
            return f"Violated{first}: {_violations(plan, cells)}{under}. Nothing permits that.{of_them}{perhaps}{more}{left}"
        case Verdict.HELD:
            kept = f"{_kept(plan, cells)} {_promises(plan, omitted, chosen)}"
            return f"Held: {kept}{under}{_unproven_words(cells)}.{_costs(costs)}{_ended_early(evidence)}{left}"
        case _:
            found = _found_unjudged(cells)
            counts = "; ".join(filter(None, (_limits(evidence), found))) if evidence.limits else found
            why = counts or (reasons[0].rstrip(".") if reasons else "nothing was judged")
            held = sum(cell.verdict is Verdict.HELD for cell in cells)
            more = f" (and {number_of(len(reasons) - 1, 'more reason')})" if len(reasons) > 1 else ""
            of_cells = f"{held} of {number_of(len(cells), 'cell')} held{under}."
            return f"Unknown: {why}{more}. {of_cells}{_costs(costs)}{left}"


def _limits(evidence: Evidence) -> str:
    """Says which limit of its own the run ran into, the first of several."""
    more = f" (and {number_of(len(evidence.limits) - 1, 'more limit')})" if evidence.limits[1:] else ""
    return f"{evidence.limits[0]}{more}" if evidence.limits else ""


def _promises(plan: Plan, omitted: Mapping[str, str], chosen: Collection[str]) -> str:
    """Returns what was kept: never more than what decided."""
    read = "" if plan.audited else ", as far as consumers read"
    if plan.topics_end and plan.audited:
        read = " (of a topic that was deleted: as far as consumers read)"
    if chosen:
        names = [name for name in TABLE if name in chosen]
        return f"the guarantees that were chosen to decide ({', '.join(names)}{read})"
    return f"every promise that was judged{read}" if omitted or read else "every promise"


def _left(cells: Sequence[CellVerdict], omitted: Mapping[str, str]) -> str:
    """Returns what did not decide, and what was found of it all the same: first, since nobody may overlook it."""
    if not omitted:
        return ""
    counts = {name: sum(c.anomalies[name].count for c in cells if name in c.anomalies) for name in omitted}
    found = [f"{name} {count:,}" for name, count in worst_first(counts.items()) if count]
    text = f" Found, but not judged: {_list(found)}." if found else ""
    verb = "was" if len(omitted) == 1 else "were"
    return f"{text} {number_of(len(omitted), 'guarantee')} {verb} not judged: {first_of_many(list(omitted))}."


def _found_unjudged(cells: Sequence[CellVerdict]) -> str:
    """Returns what was found that cannot be judged, and why: "lost 1 was found, but …". Empty: nothing was. What is known to
    be no anomaly, such as a copy that is behind outside the ISR, does not count."""
    unjudged = [a for name in TABLE for a in _in(cells, name, AnomalyOutcome.UNKNOWN).values() if _open(a)]
    if not unjudged:
        return ""
    counts: dict[str, int] = {}
    for a in unjudged:
        counts[a.anomaly] = counts.get(a.anomaly, 0) + _open(a)
    found = _list(f"{name} {count:,}" for name, count in worst_first(counts.items()))
    return f"{found} found, but it is unknown whether that is permitted: {unjudged[0].why.rstrip('.')}"


def _open(anomaly: CellAnomaly) -> int:
    return anomaly.forbidden + anomaly.permitted + anomaly.unknown


def not_proven(controls: Sequence[ControlResult], cells: Sequence[CellVerdict]) -> tuple[str, ...]:
    """Returns a sentence for each anomaly whose optional control was silent: what held that was not shown to be
    possible. (Of what a required one was to show everything is unknown, with the reason.)"""
    fired = {control.anomaly for control in controls if control.fired or control.required}
    silent = {control.anomaly: len(control.cells) for control in controls if control.anomaly not in fired}
    return tuple(_why_unproven(name, asked, cells) for name, asked in silent.items())


def _unproven(cells: Sequence[CellVerdict], anomaly: str) -> list[CellAnomaly]:
    """Returns the anomaly in the cells in which it held although its control showed nothing."""
    return [a for a in _in(cells, anomaly, AnomalyOutcome.HELD).values() if a.proven is False]


def _why_unproven(anomaly: str, asked: int, cells: Sequence[CellVerdict]) -> str:
    held = _unproven(cells, anomaly)
    control = f"{number_of(asked, 'control cell')}, where these faults may cause it"
    if not held:
        return (
            f"{anomaly} was not seen in its {control}. This run did not prove that it can see {anomaly}; no cell's promise "
            "rests on it."
        )
    return (
        f"{anomaly} was not seen in its {control}. This run did not prove that it can see {anomaly}, and 'held' proves "
        f"nothing in the {number_of(len(held), 'cell')} that must not show it."
    )


def _unproven_words(cells: Sequence[CellVerdict]) -> str:
    """Returns the reservation beside what held: which anomalies had controls that were silent. Empty: none."""
    names = [name for name in TABLE if _unproven(cells, name)]
    if not names:
        return ""
    each = "its control" if len(names) == 1 else "their controls"
    return f" (for {_list(names)} this proves nothing: {each} stayed silent)"


def _ended_early(evidence: Evidence) -> str:
    """Names the clients that an assertion in librdkafka ended, and counts those that ended because a broker reported a
    loss."""
    crashed, ended = evidence.crashed_in_librdkafka, evidence.ended_by_loss
    by = f" An assertion in librdkafka ended {_list(crashed)}." if crashed else ""
    lost = (
        f" {number_of(len(ended), 'producer')} ended because a broker reported the loss (OUT_OF_ORDER_SEQUENCE_NUMBER)."
    )
    return by + (lost if ended else "")


def _under(plan: Plan, evidence: Evidence) -> str:
    kinds = dict.fromkeys(f.kind for f in evidence.fault_records if f.effective is Tristate.YES)
    if kinds or evidence.fault_records:
        return f" under {_list(kinds)}" if kinds else ""
    if plan.nodes_unread:
        return ", with no fault of the trial's own"
    return ", with no fault" if plan.audited else ", with no fault, as was stated"


def _kept(plan: Plan, cells: Sequence[CellVerdict]) -> str:
    """Returns how many of the cells that promise most kept every promise: those with acks=all, if acks differ."""
    cells = [cell for cell in cells if cell.verdict is not Verdict.NOT_JUDGED]
    strict = [cell for cell in cells if plan.cells[cell.cell].producer.acks == "all"]
    which, of = (" with acks=all", strict) if strict and len(strict) < len(cells) else ("", cells)
    kept = sum(cell.verdict is Verdict.HELD for cell in of)
    return f"{kept} of {number_of(len(of), 'cell')}{which} kept"


def _violations(plan: Plan, cells: Sequence[CellVerdict]) -> str:
    """Returns each broken promise with its count and cells, what harms most first."""
    broken = {name: _in(cells, name, AnomalyOutcome.VIOLATED) for name in TABLE}
    counts = {name: sum(a.forbidden for a in found.values()) for name, found in broken.items() if found}
    texts = []
    for name, count in worst_first(counts.items()):
        where = number_of(len(broken[name]), "cell")
        acks = {plan.cells[c].producer.acks for c in broken[name]}
        named = where if len(acks) > 1 else f"{where} with acks={next(iter(acks))}"
        texts.append(f"{counted(TABLE[name].found, count)} in {named}")
    more = [number_of(len(texts) - NAMED_MAX, "more broken promise")] if len(texts) > NAMED_MAX else []
    return "; ".join([*texts[:NAMED_MAX], *more])


def _counts(cells: Sequence[CellVerdict], which: Literal["known", "possible"]) -> str:
    """Defects with how much is forbidden because of each, the most frequent first: "librdkafka#4953 ×20"."""
    counts: Counter[str] = Counter()
    for cell in cells:
        for found in cell.anomalies.values():
            if found.verdict is Verdict.VIOLATED:  # what was not chosen to decide is distinguished
                counts.update(found.known if which == "known" else found.possible)
    return _list(f"{label} ×{count:,}" for label, count in counts.most_common()) if counts else ""


def _and_unknown(cells: Sequence[CellVerdict]) -> str:
    unknown = sum(cell.verdict is Verdict.UNKNOWN for cell in cells)
    return f" {number_of(unknown, 'other cell')} {'is' if unknown == 1 else 'are'} unknown." if unknown else ""


def _costs(costs: Mapping[str, int]) -> str:
    """Returns what was permitted and seen: " Permitted, and seen: 1,600 acknowledged records are gone (acks=1)."."""
    shown = sorted(costs.items(), key=lambda item: (harm_rank(_ANOMALIES[item[0]]), -item[1]))
    lost = {(_RULES[rule].label, count): rule for rule, count in shown if _ANOMALIES[rule] == "lost"}
    # The same records by the same cause are one matter: what is gone, and of which nobody learned.
    silent = {
        rule: lost[cause]
        for rule, count in shown
        if _ANOMALIES[rule] == "unreported" and (cause := (_RULES[rule].label, count)) in lost
    }
    shown = [(rule, count) for rule, count in shown if rule not in silent]
    most = NAMED_MAX + (len(shown) == NAMED_MAX + 1)  # "1 more finding" takes as many words as its name
    texts = [
        f"{counted(_FOUND[rule], count)}{', and no producer got an error' if rule in silent.values() else ''} "
        f"({_RULES[rule].label})"
        for rule, count in shown[:most]
    ]
    texts += [number_of(len(shown) - most, "more finding")] if len(shown) > most else []
    return f" Permitted, and seen: {'; '.join(texts)}." if texts else ""


def _in(cells: Sequence[CellVerdict], anomaly: str, outcome: AnomalyOutcome) -> dict[int, CellAnomaly]:
    judged = {c.cell: c.anomalies[anomaly] for c in cells if anomaly in c.anomalies}  # not every workload's cells
    return {cell: found for cell, found in judged.items() if found.outcome is outcome}


def _list(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# Witnesses and faults as a report shows them: seconds, names, and what was broken at the time.


AROUND_NS = 2 * NS_PER_S
"""A fault that begins or ends this close to a witness's interval is shown with it."""
_EFFECTS = {
    Judgement.FORBIDDEN: "forbidden",
    Judgement.UNKNOWN: "unknown",
    Judgement.PERMITTED: "permitted",
    Judgement.NOT_APPLICABLE: "not applicable",
}


def show_witnesses(
    plan: Plan, cell: Cell, guarantee: Guarantee, tally: Tally, evidence: Evidence
) -> tuple[WitnessShown, ...]:
    """Returns at most WITNESSES_SHOWN, the forbidden first, then the unknown; of each rule that decided some at least
    one."""
    planned = {p: plan.partitions[p] for p in cell.partitions}
    chosen = chosen_witnesses(tally)
    return tuple(
        _show(
            tally.witnesses[i],
            topic=of.topic_name if (of := planned.get(int(tally.witnesses[i]["partition"]))) else cell.topic_name,
            number=of.number if of else NONE,
            effect=_EFFECTS[Judgement(int(tally.judgement[i]))],
            rule=guarantee.rules[r].id if (r := int(tally.rule[i])) >= 0 else f"{guarantee.anomaly}/forbidden",
            faults=_active(plan, tally.witnesses[i], evidence.fault_records),
        )
        for i in chosen.tolist()
    )


def chosen_witnesses(tally: Tally) -> np.ndarray:
    """Returns the indices of the witnesses to show, in order."""
    order = np.argsort(tally.judgement, kind="stable")
    _, first = np.unique(tally.rule[order], return_index=True)
    first = np.sort(first)[:WITNESSES_SHOWN]
    others = np.setdiff1d(np.arange(min(len(order), 2 * WITNESSES_SHOWN)), first)[: WITNESSES_SHOWN - len(first)]
    return np.asarray(order[np.sort(np.concatenate([first, others]))])


def _show(
    witness: np.void, *, topic: str, number: int, effect: str, rule: str, faults: tuple[str, ...]
) -> WitnessShown:
    return WitnessShown(
        partition=int(witness["partition"]),
        topic=topic,
        number=number,
        client=int(witness["client"]),
        sequence=int(witness["sequence"]),
        log_offset=_known(witness["log_offset"]),
        begin_s=_seconds(witness["begin_ns"]),
        end_s=_seconds(witness["end_ns"]),
        other_client=_known(witness["other_client"]),
        other_sequence=_known(witness["other_sequence"]),
        other_offset=_known(witness["other_offset"]),
        reader=_known(witness["reader"]),
        seen_s=_seconds(witness["seen_ns"]),
        effect=effect,
        rule=rule,
        faults=faults,
    )


def _active(plan: Plan, witness: np.void, faults: tuple[FaultRecord, ...]) -> tuple[str, ...]:
    """Steps whose faults were active between the witness's times, or just before or after."""
    times = [int(witness[name]) for name in ("begin_ns", "end_ns", "seen_ns") if witness[name] != MISSING]
    if not times:
        return ()
    begin_ns, end_ns = min(times) - AROUND_NS, max(times) + AROUND_NS
    return tuple(
        dict.fromkeys(_step_name(plan, f) for f in faults if f.begin_ns <= end_ns and f.end_ns >= begin_ns and f.hit)
    )


def faults_shown(plan: Plan, evidence: Evidence) -> tuple[FaultShown, ...]:
    """Returns every fault as reports show it, in order."""
    effective = {Tristate.YES: True, Tristate.NO: False, Tristate.UNKNOWN: None}
    return tuple(
        FaultShown(
            step=_step_name(plan, fault),
            fault=fault.kind,
            nodes=tuple(node_name(n) for n in fault.nodes),
            begin_s=fault.begin_ns / NS_PER_S,
            end_s=None if fault.undone_ns is None else fault.undone_ns / NS_PER_S,
            effective=effective[fault.effective],
            detail=fault.detail,
            number=fault.number,
        )
        for fault in evidence.fault_records
    )


def node_name(node_id: int) -> str:
    """Returns the name of a node as backends have it; a client's node is named by the id of the planned client."""
    if node_id == ALL_CLIENTS_NODE:
        return CLIENTS
    if node_id >= CLIENT_NODE:
        return f"client-{node_id - CLIENT_NODE}"
    if node_id >= FIRST_ZOOKEEPER_ID:
        return f"zookeeper-{node_id - FIRST_ZOOKEEPER_ID + 1}"
    return f"{'controller' if node_id >= FIRST_CONTROLLER_ID else 'broker'}-{node_id}"


def _step_name(plan: Plan, fault: FaultRecord) -> str:
    if fault.step == NONE:
        return "as the history states"
    return plan.steps[fault.step].name if 0 <= fault.step < len(plan.steps) else f"step {fault.step}"


def _known(value: np.int64) -> int | None:
    return None if value == NONE else int(value)


def _seconds(time_ns: np.int64) -> float | None:
    return None if time_ns == MISSING else int(time_ns) / NS_PER_S
