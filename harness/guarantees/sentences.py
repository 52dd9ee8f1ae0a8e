"""What a person reads: one sentence per cell and anomaly, one for the trial."""

from collections.abc import Iterable, Mapping, Sequence

from harness.guarantees.doubts import crashed_in_library
from harness.guarantees.evidence import Evidence
from harness.guarantees.table import TABLE, Guarantee, Rule
from harness.guarantees.tally import Tally
from harness.plan import Plan
from harness.schema import Tristate
from harness.verdict import AnomalyOutcome, CellAnomaly, CellVerdict, Verdict

COSTS_MAX = 3
"""So many permitted findings are named in the trial's sentence."""
_RULES = {rule.id: rule for guarantee in TABLE.values() for rule in guarantee.rules}
_DID = {rule.id: rule.did or guarantee.did for guarantee in TABLE.values() for rule in guarantee.rules}


def counted(forms: tuple[str, str], count: int) -> str:
    """The form for one, or the form for many with its number."""
    return forms[0] if count == 1 else forms[1].format(n=f"{count:,}")


def sentence(why: str) -> str:
    """A reason as a sentence of its own."""
    return f"{_capital(why.rstrip('.'))}."


def outcome_reason(guarantee: Guarantee, outcome: AnomalyOutcome, tally: Tally, rule: Rule | None, why: str) -> str:
    """One sentence about one anomaly in one cell. `why`: of what is unknown."""
    found = _capital(counted(guarantee.found, tally.count))
    match outcome:
        case AnomalyOutcome.VIOLATED:
            of = f", {tally.forbidden:,} of them beyond" if tally.forbidden < tally.count else ", beyond"
            known = f" Known defect {rule.defect}: {rule.reason}." if rule and rule.defect else ""
            return f"{found}{of} anything that happened and this configuration would excuse.{known}"
        case AnomalyOutcome.SHOWN:
            assert rule is not None
            seen = _capital(counted(rule.found or guarantee.found, tally.permitted))
            return f"{seen}: {rule.reason}; {rule.change} {guarantee.undone}."
        case AnomalyOutcome.PERMITTED:
            assert rule is not None
            return f"Not seen, though it was possible: {rule.reason}."
        case AnomalyOutcome.UNKNOWN if tally.unknown:
            excuse = f"whether that is permitted ({rule.label}) cannot be told" if rule else "it cannot be judged"
            return f"{found}; {excuse}: {why}."
        case AnomalyOutcome.UNKNOWN:
            return sentence(why)
        case AnomalyOutcome.NOT_JUDGED:
            return f"Does not apply: {guarantee.nothing}."
        case AnomalyOutcome.HELD:
            return guarantee.promise


def at_risk(cells: Sequence[CellVerdict]) -> dict[str, str]:
    """What some cells' configurations permitted under these faults although nothing of it was seen: "not seen", if any."""
    anomalies = {name: _in(cells, name, AnomalyOutcome.PERMITTED) for name in TABLE}
    told = [f"{name} in {number_of(len(found), 'cell')}" for name, found in anomalies.items() if found]
    return {"not seen": "though possible: " + ", ".join(told)} if told else {}


def trial_sentence(
    plan: Plan,
    cells: Sequence[CellVerdict],
    verdict: Verdict,
    *,
    reasons: Sequence[str],
    costs: Mapping[str, int],
    evidence: Evidence,
) -> str:
    """The verdict of the trial in a sentence. `costs`: id of a rule → how many witnesses it permitted."""
    under = _under(evidence)
    match verdict:
        case Verdict.VIOLATED:
            more = f"{_and_unknown(cells)}{_ended_early(evidence)}"
            return f"Violated: {_violations(plan, cells)}{under}, which nothing permits{more}."
        case Verdict.HELD:
            return f"Held: {_kept(plan, cells)}{under}{_costs(costs)}{_ended_early(evidence)}."
        case _:
            why = reasons[0].rstrip(".") if reasons else "nothing was judged"
            held = sum(cell.verdict is Verdict.HELD for cell in cells)
            more = f" (and {number_of(len(reasons) - 1, 'more reason')})" if len(reasons) > 1 else ""
            return f"Unknown: {why}{more}; {held} of {number_of(len(cells), 'cell')} held{under}{_costs(costs)}."


def _ended_early(evidence: Evidence) -> str:
    """Clients that librdkafka itself ended, and those that Kafka told of a loss; nobody else is judged by it."""
    crashed, told = crashed_in_library(evidence), evidence.told_of_loss
    by = f"; librdkafka ended {_list(crashed)} by an assertion of its own" if crashed else ""
    lost = f"; {number_of(len(told), 'producer')} ended when Kafka told of the loss (OUT_OF_ORDER_SEQUENCE_NUMBER)"
    return by + (lost if told else "")


def _under(evidence: Evidence) -> str:
    kinds = dict.fromkeys(f.kind for f in evidence.fault_records if f.effective is Tristate.YES)
    return f" under {_list(kinds)}" if kinds else ", with no fault" if not evidence.fault_records else ""


def _kept(plan: Plan, cells: Sequence[CellVerdict]) -> str:
    """How many of the cells that promise most kept every promise: those with acks=all, if acks differ."""
    strict = [cell for cell in cells if plan.cells[cell.cell].producer.acks == "all"]
    named, of = ("acks=all cells", strict) if strict and len(strict) < len(cells) else ("cells", cells)
    kept = sum(cell.verdict is Verdict.HELD for cell in of)
    return f"{kept} of {len(of)} {named if len(of) != 1 else named[:-1]} kept every promise"


def _violations(plan: Plan, cells: Sequence[CellVerdict]) -> str:
    """Each broken promise with its count and cells, the most frequent first."""
    told = []
    for name, guarantee in TABLE.items():
        if broken := _in(cells, name, AnomalyOutcome.VIOLATED):
            forbidden = sum(a.forbidden for a in broken.values())
            where = number_of(len(broken), "cell")
            acks = {plan.cells[c].producer.acks for c in broken}
            named = where if len(acks) > 1 else where.replace("cell", f"acks={next(iter(acks))} cell")
            told.append((forbidden, f"{counted(guarantee.found, forbidden)} in {named}"))
    return "; ".join(text for _, text in sorted(told, key=lambda pair: -pair[0]))


def _and_unknown(cells: Sequence[CellVerdict]) -> str:
    unknown = sum(cell.verdict is Verdict.UNKNOWN for cell in cells)
    return f"; {number_of(unknown, 'other cell')} unknown" if unknown else ""


def _costs(costs: Mapping[str, int]) -> str:
    """What was permitted and seen: "; acks=1 lost 1,600 acknowledged records, as it may"."""
    shown = sorted(costs.items(), key=lambda item: -item[1])
    told = [f"{_RULES[rule].label} {counted(_DID[rule], count)}" for rule, count in shown[:COSTS_MAX]]
    more = f", and {number_of(len(shown) - COSTS_MAX, 'more finding')}" if len(shown) > COSTS_MAX else ""
    return f"; {_list(told)}{more}, as {'they' if len(shown) > 1 else 'it'} may" if told else ""


def _in(cells: Sequence[CellVerdict], anomaly: str, outcome: AnomalyOutcome) -> dict[int, CellAnomaly]:
    judged = {c.cell: c.anomalies[anomaly] for c in cells if anomaly in c.anomalies}  # not every workload's cells
    return {cell: found for cell, found in judged.items() if found.outcome is outcome}


def _list(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def number_of(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
