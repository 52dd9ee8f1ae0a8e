"""What a test is told of its verdict: does it fail, and in which words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.plan import Plan
from harness.report.words import SIGNS, brief, reproduce
from harness.run_directory import RunDirectory
from harness.testing.recording import Judged
from harness.verdict import AnomalyOutcome, CellAnomaly, CellVerdict, TrialVerdict, Verdict, WitnessShown

WITNESSES_MAX = 3
"""Of each anomaly; the report has more."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a test. `failure`: why it fails; None = it does not. `costs`: what was seen and permitted."""

    failure: str | None
    costs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def outcome_of(judged: Judged, plan: Plan, *, forbid: Sequence[str]) -> Outcome:
    """The outcome. `forbid`: anomalies that fail the test although its configuration permits them."""
    verdict = judged.verdict
    if verdict is None:
        return Outcome(None, notes=judged.notes)
    unwanted = [
        (cell, anomaly)
        for cell in verdict.cells
        for anomaly in cell.anomalies.values()
        if anomaly.outcome is AnomalyOutcome.VIOLATED or (anomaly.anomaly in forbid and anomaly.count)
    ]
    costs = tuple(
        f"{cell.name}: {brief(anomaly)}"
        for cell in verdict.cells
        for anomaly in cell.anomalies.values()
        if anomaly.outcome is AnomalyOutcome.SHOWN
    )
    silent = not verdict.cells and not verdict.unknown_reasons
    if not unwanted and (silent or verdict.verdict in (Verdict.HELD, Verdict.NOT_JUDGED)):
        return Outcome(None, costs, judged.notes)
    how = "violated" if unwanted else "unknown"
    lines = [f"prozess: {how}: {_sentence(verdict, unwanted)}", ""]
    for cell, anomaly in unwanted:
        lines += _told(cell, anomaly, plan, forbidden_by_test=anomaly.outcome is not AnomalyOutcome.VIOLATED)
    lines += [f"  ? {reason}" for reason in verdict.unknown_reasons[:5]]
    lines += ["", *_faults(verdict), *_where(judged.run)]
    return Outcome("\n".join(lines), costs, judged.notes)


def _sentence(verdict: TrialVerdict, unwanted: Sequence[tuple[CellVerdict, CellAnomaly]]) -> str:
    if not unwanted:
        return "what the clients recorded does not show whether the promises held"
    cell, anomaly = unwanted[0]
    more = f", and {len(unwanted) - 1} more" if len(unwanted) > 1 else ""
    return f"{anomaly.anomaly} in {cell.name}{more}"


def _told(cell: CellVerdict, anomaly: CellAnomaly, plan: Plan, *, forbidden_by_test: bool) -> Iterator[str]:
    settings = ", ".join(f"{axis.partition('.')[2].replace('_', '.')}={value}" for axis, value in _telling(cell))
    yield f"  {SIGNS[anomaly.outcome]} {brief(anomaly)} in {cell.name} ({settings})"
    if forbidden_by_test:
        yield "    The configuration permits it, the test does not (forbid)."
    yield f"    {anomaly.reason}"
    names = {client.client: client.name for client in plan.clients}
    shown = [w for w in anomaly.witnesses if w.effect == "forbidden" or forbidden_by_test][:WITNESSES_MAX]
    for witness in shown:
        yield f"    - {_witness(witness, names)}"
    if anomaly.count > len(shown):
        yield f"    … {anomaly.count:,} in all"


def _telling(cell: CellVerdict) -> list[tuple[str, str]]:
    return [(a, v) for a, v in cell.axes.items() if v not in ("–", "no") and a != "topic.name"]


def _witness(witness: WitnessShown, names: dict[int, str]) -> str:
    parts = [f"{witness.topic}/{witness.number}"]
    if witness.log_offset is not None:
        parts.append(f"offset {witness.log_offset}")
    if witness.client >= 0:
        parts.append(f"record {witness.sequence} of {names.get(witness.client, f'client {witness.client}')}")
    if witness.begin_s is not None:
        parts.append(f"at {witness.begin_s:.3f} s")
    if witness.reader is not None:
        parts.append(f"seen by {names.get(witness.reader, f'client {witness.reader}')}")
    if witness.faults:
        parts.append(f"during {', '.join(witness.faults)}")
    return ", ".join(parts)


def _faults(verdict: TrialVerdict) -> list[str]:
    if not verdict.faults:
        return ["  faults active: none"]
    lines = ["  faults active:"]
    for fault in verdict.faults:
        until = "the end" if fault.end_s is None else f"{fault.end_s:.1f} s"
        effect = {True: "effective", False: "without effect", None: "effect not seen"}[fault.effective]
        lines.append(f"    {fault.fault} of {', '.join(fault.nodes)}: {fault.begin_s:.1f} s to {until}, {effect}")
    return lines


def _where(run: RunDirectory) -> list[str]:
    return [
        f"  report:    {run.path / 'report.html'}",
        f"  reproduce: {reproduce(run)}",
    ]
