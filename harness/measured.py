"""What many runs measured, put together: verdicts, seconds to ready, memory, times of faults, what Kafka did. From the runs'
own files; nothing is judged again."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from harness.impact_summary import FaultImpact, ImpactShown, RecoveryShown
from harness.plan import Plan, parse_plan
from harness.run_directory import RunDirectory, read_json
from harness.verdict import TrialVerdict, Verdict

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
KILLED = "kill leader"
"""The fault after which clusters are compared: a leader dies without a word."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Of several numbers; None = there are none."""

    median: float | None
    worst: float | None

    @staticmethod
    def of(values: Iterable[float | None]) -> "Spread":
        """Of those that are there."""
        known = [value for value in values if value is not None]
        return Spread(median(known), max(known)) if known else Spread(None, None)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    plan: Plan
    verdict: Verdict | None
    """None = it has none: it was not judged, or the machinery failed."""
    by_defects: bool
    """Violated by nothing but known defects of others, such as the client's."""
    ready_s: float | None
    memory_mib: float | None
    """Of the servers when they were ready, shared pages counted once."""
    faults: tuple[FaultImpact, ...]

    @property
    def place(self) -> tuple[str, str]:
        """Backend, metadata mode."""
        return self.plan.backend, self.plan.variant.metadata_mode


@dataclass(frozen=True, slots=True)
class TrialLine:
    """All runs of one trial in one place."""

    trial: str
    backend: str
    mode: str
    held: int
    by_defects: int
    """Violated by nothing but known defects of others."""
    violated: int
    """Else."""
    unknown: int
    without: int
    """Runs without a verdict."""


@dataclass(frozen=True, slots=True)
class ClusterLine:
    """All runs in one place with so many nodes."""

    backend: str
    mode: str
    version: str
    nodes: str
    runs: int
    ready_s: Spread
    memory_mib: Spread
    killed: int
    """How often a leader was killed."""
    decided_ms: Spread
    known_ms: Spread
    acknowledged_ms: Spread


@dataclass(frozen=True, slots=True)
class FaultLine:
    """All strikes of one fault on one backend."""

    what: str
    backend: str
    strikes: int
    seen: int
    """How many were seen to work."""
    how: str
    """How one of them was seen."""
    apply_ms: Spread
    verify_ms: Spread
    undo_ms: Spread


@dataclass(frozen=True, slots=True)
class ReactionLine:
    """What Kafka did about one fault, in one metadata mode."""

    what: str
    mode: str
    strikes: int
    led: int
    """Partitions that were led by whom it was aimed at, over all strikes."""
    moved: int
    """How many of them had another leader, known to all, before the next fault."""
    known_ms: Spread
    acknowledged_ms: Spread
    copies: int
    isr_left: int
    longest_s: float | None
    """That a partition acknowledged nothing, put down to it."""
    unanswered: int


def read_measured(run: RunDirectory) -> Measured:
    """What a run's files say. HistoryUnreadable for a file that is torn."""
    plan = parse_plan(run.plan.read_text(encoding="utf-8"), source=str(run.plan))
    cluster = _json(run.cluster)
    impact = ImpactShown.model_validate(_json(run.impact))
    judged = TrialVerdict.model_validate(found) if (found := _json(run.verdict)) else None
    return Measured(
        plan=plan,
        verdict=None if judged is None else judged.verdict,
        by_defects=judged is not None and judged.by_known_defects,
        ready_s=_json(run.path / "seconds.json").get("run: cluster"),
        memory_mib=cluster.get("memory_pss_mib"),
        faults=tuple(fault for fault in impact.faults if fault.reaction is not None),
    )


def _json(path: Path) -> dict[str, Any]:
    return dict(read_json(path)) if path.is_file() else {}


def trial_lines(runs: Sequence[Measured]) -> list[TrialLine]:
    """By trial, backend and mode."""
    return [_trial(*key, mine) for key, mine in _grouped(runs, _trial_and_place)]


def _trial_and_place(run: Measured) -> tuple[str, str, str]:
    return (run.plan.trial, *run.place)


def _trial(trial: str, backend: str, mode: str, runs: Sequence[Measured]) -> TrialLine:
    verdicts = [run.verdict for run in runs]
    held, violated, unknown = (verdicts.count(v) for v in (Verdict.HELD, Verdict.VIOLATED, Verdict.UNKNOWN))
    by_defects = sum(run.by_defects for run in runs)
    return TrialLine(
        trial, backend, mode, held, by_defects, violated - by_defects, unknown, without=verdicts.count(None)
    )


def cluster_lines(runs: Sequence[Measured]) -> list[ClusterLine]:
    """By backend, mode, version and number of nodes."""
    return [_cluster(*key, mine) for key, mine in _grouped(runs, lambda run: (*run.place, *_size(run.plan)))]


def _size(plan: Plan) -> tuple[str, str]:
    """Versions; how many nodes of which kind, those that keep the metadata first."""
    kinds = [name.rpartition("-")[0] for name in plan.variant.server_names().values()]
    counts = [str(kinds.count(kind)) for kind in ("zookeeper", "controller", "broker") if kind in kinds]
    return " and ".join(plan.variant.kafka_versions), " + ".join(counts)


def _cluster(backend: str, mode: str, version: str, nodes: str, runs: Sequence[Measured]) -> ClusterLine:
    killed = [r for run in runs for f in run.faults if (r := f.reaction) and r.what == KILLED and r.led]
    return ClusterLine(
        backend=backend,
        mode=mode,
        version=version,
        nodes=nodes,
        runs=len(runs),
        ready_s=Spread.of(run.ready_s for run in runs),
        memory_mib=Spread.of(run.memory_mib for run in runs),
        killed=len(killed),
        decided_ms=_spread(r.decided for r in killed),
        known_ms=_spread(r.new_leader for r in killed),
        acknowledged_ms=_spread(r.first_acknowledged for r in killed),
    )


def fault_lines(runs: Sequence[Measured]) -> list[FaultLine]:
    """By fault and backend."""
    struck = [(run.plan.backend, fault.reaction) for run in runs for fault in run.faults if fault.reaction is not None]
    return [
        FaultLine(
            what=what,
            backend=backend,
            strikes=len(mine),
            seen=sum(r.effect == "yes" for _, r in mine),
            how=next((r.seen for _, r in mine if r.effect == "yes"), mine[0][1].seen),
            apply_ms=Spread.of(r.apply_ms for _, r in mine),
            verify_ms=Spread.of(r.verify_ms for _, r in mine),
            undo_ms=Spread.of(r.undo_ms for _, r in mine),
        )
        for (what, backend), mine in _grouped(struck, lambda pair: (pair[1].what, pair[0]))
    ]


def reaction_lines(runs: Sequence[Measured]) -> list[ReactionLine]:
    """By fault and metadata mode."""
    struck = [(run.plan.variant.metadata_mode, fault) for run in runs for fault in run.faults]
    return [
        _reaction(what, mode, [fault for _, fault in mine])
        for (what, mode), mine in _grouped(
            struck, lambda pair: (pair[1].reaction.what if pair[1].reaction else "", pair[0])
        )
    ]


def _reaction(what: str, mode: str, faults: Sequence[FaultImpact]) -> ReactionLine:
    found = [fault.reaction for fault in faults if fault.reaction is not None]
    return ReactionLine(
        what=what,
        mode=mode,
        strikes=len(faults),
        led=sum(r.led for r in found),
        moved=sum(r.new_leader.partitions - r.new_leader.never for r in found),
        known_ms=_spread(r.new_leader for r in found),
        acknowledged_ms=_spread(r.first_acknowledged for r in found),
        copies=sum(r.copies for r in found),
        isr_left=sum(r.isr_left for r in found),
        longest_s=Spread.of(fault.longest_s for fault in faults).worst,
        unanswered=sum(fault.unanswered for fault in faults),
    )


def refused(runs: Sequence[Measured]) -> dict[tuple[str, str], list[str]]:
    """(fault, why) → where it was left out for that reason: "local kraft-isolated"."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for run in runs:
        for label, why in run.plan.left_out.items():
            found[label, why].add(" ".join(run.place))
    return {key: sorted(places) for key, places in sorted(found.items())}


def _spread(found: Iterable[RecoveryShown]) -> Spread:
    """Median of the medians, and the slowest of all."""
    every = list(found)
    return Spread(Spread.of(r.median_ms for r in every).median, Spread.of(r.slowest_ms for r in every).worst)


def _grouped(values: Iterable[T], key: Callable[[T], K]) -> list[tuple[K, list[T]]]:
    groups: dict[K, list[T]] = defaultdict(list)
    for value in values:
        groups[key(value)].append(value)
    return sorted(groups.items(), key=lambda item: str(item[0]))
