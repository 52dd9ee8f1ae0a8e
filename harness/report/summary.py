"""summary.md: what a person reads in a pull request or a mail."""

from pathlib import Path

from harness.history import History
from harness.plan import Plan
from harness.report.delivery import deliveries, delivery_lines
from harness.report.groups import group_lines
from harness.report.hanging import hanging_lines, read_hanging
from harness.report.impact import impact_lines
from harness.report.replicas import replica_lines
from harness.report.words import (
    SIGNS,
    VERDICT_SIGNS,
    anomalies_of,
    brief,
    found_line,
    matrices,
    reproduce,
    seen_in,
    short,
)
from harness.run_directory import RunDirectory
from harness.verdict import AnomalyOutcome, TrialVerdict


def write_summary(run: RunDirectory, plan: Plan, verdict: TrialVerdict, history: History) -> Path:
    """Write summary.md; returns its path."""
    out = [f"# {verdict.verdict}: {verdict.title}", "", verdict.sentence, ""]
    out += [f"- unknown: {reason}" for reason in verdict.unknown_reasons]
    out += [f"- not tried here: {fault}: {why}" for fault, why in plan.left_out.items()]
    out += [
        f"- control `{c.anomaly}`: " + (f"fired, {c.count:,} times" if c.fired else "silent") for c in verdict.controls
    ]
    for matrix in matrices(verdict.cells):
        out += ["", "| " + " | ".join([matrix.workload, *map(short, matrix.axes), "verdict", "seen"]) + " |"]
        out += ["|" + "---|" * (len(matrix.axes) + 3)]
        out += [
            "| " + " | ".join([str(c.cell), *(c.axes[axis] for axis in matrix.axes), c.verdict, seen_in(c)]) + " |"
            for c in matrix.cells
        ]
    if verdict.alerts:
        out += ["", "## Alerts", "", "| alert | rule | verdict | why |", "|---|---|---|---|"]
        out += [
            f"| {a.name} | `{a.expr}` | {VERDICT_SIGNS[a.verdict]} {a.verdict} | {a.reason} |" for a in verdict.alerts
        ]
    out += ["", "## What was seen, and why it may or may not be", ""]
    for name in anomalies_of(verdict.cells):
        told: set[str] = set()
        for cell in verdict.cells:
            anomaly = cell.anomalies.get(name)
            if anomaly is None or anomaly.outcome not in (AnomalyOutcome.VIOLATED, AnomalyOutcome.SHOWN):
                continue
            line = f"- {SIGNS[anomaly.outcome]} {brief(anomaly)}: {anomaly.reason}"
            if line not in told:
                told.add(line)
                out.append(line)
    out += ["", f"Found: {found_line(verdict.findings)}."]
    out += hanging_lines(read_hanging(run))
    out += impact_lines(run)
    out += delivery_lines(deliveries(run, plan, verdict))
    out += group_lines(plan, history)
    out += replica_lines(plan, history)
    out += ["", f"Seed {verdict.seed}; {len(plan.cells)} cells, {len(plan.excluded)} combinations excluded."]
    out += ["", f"    {reproduce(run)}", ""]
    path = run.path / "summary.md"
    path.write_text("\n".join(out), encoding="utf-8")
    return path
