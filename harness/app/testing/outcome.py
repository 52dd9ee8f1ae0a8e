"""Decides whether a test fails by its verdict, and in which words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prozess.harness.app.testing.expectations import ApplicationFinding, Unjudged
from prozess.harness.app.testing.recording import Judged
from prozess.harness.plan.plan import Plan
from prozess.harness.report.words import SIGNS, brief, reproduce
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import AnomalyOutcome, CellAnomaly, CellVerdict, TrialVerdict, Verdict, WitnessShown

WITNESSES_MAX = 3
"""The number of witnesses that are shown of each anomaly; the report has more."""
OF_APPLICATION_MAX = 5
"""The number of witnesses that are shown of what the application did."""


@dataclass(frozen=True, slots=True)
class VerdictOnTest:
    """What the verdict means for a test. `failure`: why it fails; None = it does not. `costs`: what was seen and permitted.
    `unjudged`: what of the application nothing tells."""

    failure: str | None
    costs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unjudged: tuple[Unjudged, ...] = ()


def outcome_of(judged: Judged, plan: Plan, *, forbid: Sequence[str]) -> VerdictOnTest:
    """Returns what the verdict means for the test. `forbid`: anomalies that fail the test although its configuration permits
    them."""
    verdict = judged.verdict
    if verdict is None:
        return VerdictOnTest(None, notes=judged.notes)
    failing = [one for one in judged.found if one.unknown or one.fails or one.anomaly in forbid]
    asked = [*_left_out(verdict, forbid), *(one for one in judged.unjudged if set(one.anomalies) & set(forbid))]
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
    ) + tuple(f"{one.where}: {one.anomaly} {one.count}: {one.reason}" for one in judged.found if one not in failing)
    of_application = set(verdict.application.doubts()) if verdict.application is not None else set()
    unknown = [reason for reason in verdict.unknown_reasons if reason not in of_application]
    silent = not verdict.cells and not unknown
    well = silent or (verdict.of_kafka or verdict.verdict) in (Verdict.HELD, Verdict.NOT_JUDGED)
    if not unwanted and not failing and not asked and well:
        return VerdictOnTest(None, costs, judged.notes, judged.unjudged)
    seen = [f"{anomaly.anomaly} in {cell.name}" for cell, anomaly in unwanted]
    seen += [f"{one.anomaly} in {one.where}" for one in failing if not one.unknown]
    how = "violated" if seen else "unknown"
    lines = [f"prozess: {how}: {_sentence(seen, asked if well else [])}", ""]
    for cell, anomaly in unwanted:
        lines += _told(cell, anomaly, plan, forbidden_by_test=anomaly.outcome is not AnomalyOutcome.VIOLATED)
    for one in failing:
        lines += _of_application(one)
    lines += [f"  ? not judged, and forbidden by the test (forbid): {one.sentence()}" for one in asked]
    lines += [f"  ? {reason}" for reason in unknown[:5]]
    lines += ["", *_faults(verdict), *_where(judged.run)]
    return VerdictOnTest("\n".join(lines), costs, judged.notes, judged.unjudged)


def _sentence(seen: Sequence[str], asked: Sequence[Unjudged]) -> str:
    if seen:
        return seen[0] + (f", and {len(seen) - 1} more" if len(seen) > 1 else "")
    if asked:
        what = f"{', '.join(asked[0].anomalies)} in {asked[0].where}"
        return f"{what}: the test forbids it, and prozess cannot tell whether it happened"
    return "what the clients recorded does not show whether the promises held"


def _left_out(verdict: TrialVerdict, forbid: Sequence[str]) -> list[Unjudged]:
    """Returns the anomalies that the test forbids, and that were not judged in a cell that could show them."""
    return [
        Unjudged((anomaly.anomaly,), cell.name, anomaly.left_out, "it cannot be forbidden here")
        for cell in verdict.cells
        for anomaly in cell.anomalies.values()
        if anomaly.anomaly in forbid and anomaly.left_out and not anomaly.count
    ]


def _of_application(found: ApplicationFinding) -> Iterator[str]:
    if found.unknown:
        yield f"  ? {found.anomaly} in {found.where} {found.reason}"
        return
    yield f"  {SIGNS[AnomalyOutcome.VIOLATED]} {found.anomaly} {found.count:,} in {found.where}"
    if not found.fails:
        yield "    This is a hazard and not yet a loss, but the test forbids it (forbid)."
    yield f"    {found.reason}"
    for witness in found.witnesses[:OF_APPLICATION_MAX]:
        yield f"    - {witness.text}"
    if found.count > OF_APPLICATION_MAX:
        yield f"    … {found.count:,} in all"


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
