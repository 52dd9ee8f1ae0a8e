"""Words and signs that every report uses alike. Signs carry the meaning without colour."""

from harness.run_directory import RunDirectory
from harness.verdict import AnomalyOutcome, CellAnomaly, CellVerdict, TrialVerdict, Verdict

SIGNS = {
    AnomalyOutcome.HELD: "✓",
    AnomalyOutcome.VIOLATED: "✗",
    AnomalyOutcome.SHOWN: "●",
    AnomalyOutcome.PERMITTED: "○",
    AnomalyOutcome.UNKNOWN: "?",
    AnomalyOutcome.NOT_JUDGED: "–",
}
MEANINGS = {
    AnomalyOutcome.HELD: "forbidden and absent",
    AnomalyOutcome.VIOLATED: "forbidden and seen",
    AnomalyOutcome.SHOWN: "permitted and seen: what this configuration costs",
    AnomalyOutcome.PERMITTED: "permitted, not seen",
    AnomalyOutcome.UNKNOWN: "could not tell",
    AnomalyOutcome.NOT_JUDGED: "does not apply",
}
VERDICT_SIGNS = {Verdict.HELD: "✓", Verdict.VIOLATED: "✗", Verdict.UNKNOWN: "?", Verdict.NOT_JUDGED: "–"}


def varying_axes(verdict: TrialVerdict) -> list[str]:
    """The axes in which the cells differ, in their order."""
    axes = list(verdict.cells[0].axes) if verdict.cells else []
    return [axis for axis in axes if len({cell.axes[axis] for cell in verdict.cells}) > 1]


def short(axis: str) -> str:
    """An axis as a column heading: Kafka's spelling of the setting."""
    return axis.partition(".")[2].replace("_", ".")


def seen_in(cell: CellVerdict) -> str:
    """What was seen in a cell, worst first: `lost 200 (permitted)`."""
    order = [AnomalyOutcome.VIOLATED, AnomalyOutcome.UNKNOWN, AnomalyOutcome.SHOWN]
    seen = sorted((a for a in cell.anomalies.values() if a.outcome in order), key=lambda a: order.index(a.outcome))
    return ", ".join(brief(anomaly) for anomaly in seen) or "nothing"


def brief(anomaly: CellAnomaly) -> str:
    """One anomaly in a few words."""
    match anomaly.outcome:
        case AnomalyOutcome.SHOWN:
            return f"{anomaly.anomaly} {anomaly.count:,} (permitted)"
        case AnomalyOutcome.VIOLATED:
            return f"{anomaly.anomaly} {anomaly.forbidden:,} (forbidden)"
        case _:
            return f"{anomaly.anomaly} {anomaly.outcome}"


def reproduce(run: RunDirectory) -> str:
    """The command that runs the same plan again."""
    return f"prozess run {run.plan}"


def anomalies_of(verdict: TrialVerdict) -> list[str]:
    """Names of all anomalies judged, in order of first appearance."""
    return list(dict.fromkeys(name for cell in verdict.cells for name in cell.anomalies))
