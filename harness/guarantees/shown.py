"""Witnesses and faults as a report shows them: seconds, names, and what was broken at the time."""

import numpy as np

from harness.clock import NS_PER_S
from harness.configuration import FIRST_CONTROLLER_ID, FIRST_ZOOKEEPER_ID
from harness.guarantees.evaluate import Judgement
from harness.guarantees.evidence import Evidence
from harness.guarantees.faults import FaultRecord
from harness.guarantees.table import Guarantee
from harness.guarantees.tally import Tally
from harness.impairments import CLIENTS
from harness.plan import Cell, Plan
from harness.protocols import ALL_CLIENTS_NODE, CLIENT_NODE
from harness.schema import MISSING, NONE, Tristate
from harness.verdict import FaultShown, WitnessShown
from harness.witnesses import WITNESSES_SHOWN

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
    """At most WITNESSES_SHOWN, the forbidden first, then the unknown."""
    planned = {p: plan.partitions[p] for p in cell.partitions}
    chosen = np.argsort(tally.judgement, kind="stable")[:WITNESSES_SHOWN]
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
    told = [int(witness[name]) for name in ("begin_ns", "end_ns", "seen_ns") if witness[name] != MISSING]
    if not told:
        return ()
    begin_ns, end_ns = min(told) - AROUND_NS, max(told) + AROUND_NS
    return tuple(
        dict.fromkeys(_step_name(plan, f) for f in faults if f.begin_ns <= end_ns and f.end_ns >= begin_ns and f.hit)
    )


def faults_shown(plan: Plan, evidence: Evidence) -> tuple[FaultShown, ...]:
    """Every fault, in order."""
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
    """As backends name their nodes; places of clients by the planned client's id."""
    if node_id == ALL_CLIENTS_NODE:
        return CLIENTS
    if node_id >= CLIENT_NODE:
        return f"client-{node_id - CLIENT_NODE}"
    if node_id >= FIRST_ZOOKEEPER_ID:
        return f"zookeeper-{node_id - FIRST_ZOOKEEPER_ID + 1}"
    return f"{'controller' if node_id >= FIRST_CONTROLLER_ID else 'broker'}-{node_id}"


def _step_name(plan: Plan, fault: FaultRecord) -> str:
    return plan.steps[fault.step].name if 0 <= fault.step < len(plan.steps) else f"step {fault.step}"


def _known(value: np.int64) -> int | None:
    return None if value == NONE else int(value)


def _seconds(time_ns: np.int64) -> float | None:
    return None if time_ns == MISSING else int(time_ns) / NS_PER_S
