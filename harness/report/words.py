"""Words and signs that every report uses alike. Signs carry the meaning without colour."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, Protocol, TypeVar

from harness.configuration import version_numbers
from harness.plan import Plan
from harness.run_directory import RunDirectory, read_json, read_object
from harness.verdict import AnomalyOutcome, CellAnomaly, CellVerdict, Verdict

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
NAMED_MAX = 2
"""So many nodes of a fault are named in a chart."""
VERDICT_SIGNS = {Verdict.HELD: "✓", Verdict.VIOLATED: "✗", Verdict.UNKNOWN: "?", Verdict.NOT_JUDGED: "–"}


class HasAxes(Protocol):
    """A cell, of a plan or of a verdict."""

    @property
    def workload(self) -> str: ...
    @property
    def axes(self) -> dict[str, str]: ...


CellT = TypeVar("CellT", bound=HasAxes)


@dataclass(frozen=True)
class Matrix(Generic[CellT]):
    """Cells of one workload, and the axes in which they differ, in their order: one table of a report."""

    workload: str
    axes: tuple[str, ...]
    cells: tuple[CellT, ...]

    def label(self, cell: CellT) -> str:
        """The cell among these: `acks=1, min.insync.replicas=2`; empty where it is the only one."""
        return ", ".join(f"{short(axis)}={cell.axes[axis]}" for axis in self.axes)


def matrices(cells: Iterable[CellT]) -> list[Matrix[CellT]]:
    """One per workload, in order: the cells of two workloads have different axes."""
    found: list[Matrix[CellT]] = []
    for (workload, axes), group in groupby(cells, key=lambda cell: (cell.workload, tuple(cell.axes))):
        members = tuple(group)
        varying = tuple(axis for axis in axes if len({cell.axes[axis] for cell in members}) > 1)
        found.append(Matrix(workload=workload, axes=varying, cells=members))
    return found


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
        case _ if anomaly.count:
            return f"{anomaly.anomaly} {anomaly.count:,} ({anomaly.outcome})"
        case _:
            return f"{anomaly.anomaly} {anomaly.outcome}"


def reproduce(run: RunDirectory) -> str:
    """The command that runs the same plan again, from wherever one stands; of a history that was imported or generated, the
    one that made it."""
    if run.source.exists():
        return str(read_json(run.source)["command"])
    return f"prozess replay {shlex.quote(str(run.path.resolve()))}"


def kafka_told(run: RunDirectory, plan: Plan) -> str:
    """Versions and metadata mode, as the cluster told them; of a trial whose cluster never came up, as planned."""
    versions, mode = list(plan.variant.kafka_versions), str(plan.variant.metadata_mode)
    if run.cluster.exists():
        told = read_object(run.cluster)
        alone = [told["kafka_version"]] if told.get("kafka_version") else []
        of_nodes = told.get("kafka_versions", {}).values()
        versions, mode = sorted({*map(str, of_nodes)}, key=version_numbers) or alone, told.get("metadata_mode") or ""
    elif plan.origin != "trial" or plan.backend == "attach":
        versions, mode = [], ""
    return ", ".join(filter(None, (" and ".join(versions) or "of an unknown version", mode)))


def found_line(findings: Mapping[str, int]) -> str:
    """Everything that was found, by name."""
    return ", ".join(f"{name} {count:,}" for name, count in findings.items() if count) or "nothing"


def anomalies_of(cells: Iterable[CellVerdict]) -> list[str]:
    """Names of all anomalies judged in these cells, in order of first appearance."""
    return list(dict.fromkeys(name for cell in cells for name in cell.anomalies))


def brief_nodes(nodes: Sequence[str]) -> str:
    """All of two, else the first and how many more: the table of faults has them all."""
    return ", ".join(nodes) if len(nodes) <= NAMED_MAX else f"{nodes[0]} and {len(nodes) - 1} more"
