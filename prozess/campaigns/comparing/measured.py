"""This module summarizes the measurements of many runs: verdicts, seconds to ready, memory, times of faults, and reactions
of Kafka. It reads the runs' own files, and judges nothing again.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

from prozess.campaigns.comparing import RunSummary
from prozess.harness import inputs
from prozess.harness.errors import BadInput
from prozess.harness.impact.cost import FaultImpact, RecoveryShown
from prozess.harness.plan.plan import Plan
from prozess.harness.verdict import Verdict

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
KILLED = "kill leader"
"""The fault after which clusters are compared: a leader is killed."""


@dataclass(frozen=True, slots=True)
class MedianAndWorst:
    """Median and worst of several numbers; None = there are no numbers."""

    median: float | None
    worst: float | None

    @staticmethod
    def of(values: Iterable[float | None]) -> "MedianAndWorst":
        """Returns median and worst of the numbers that are not None."""
        known = [value for value in values if value is not None]
        return MedianAndWorst(median(known), max(known)) if known else MedianAndWorst(None, None)


@dataclass(frozen=True, slots=True)
class Measured:
    """Describes what one run measured."""

    plan: Plan
    verdict: Verdict | None
    """The verdict; None if the run was not judged, or prozess itself failed."""
    by_defects: bool
    """Violated by nothing but known defects of others, such as the client's."""
    ready_s: float | None
    memory_mib: float | None
    """The memory of the servers when they were ready; shared pages are counted once."""
    faults: tuple[FaultImpact, ...]

    @property
    def cluster_kind(self) -> tuple[str, str]:
        """Returns the backend and the metadata mode."""
        return self.plan.backend, self.plan.variant.metadata_mode


@dataclass(frozen=True, slots=True)
class TrialLine:
    """All runs of one trial in one location."""

    trial: str
    backend: str
    mode: str
    held: int
    by_defects: int
    """Violated by nothing but known defects of others."""
    violated: int
    """Violated by something else."""
    unknown: int
    without: int
    """Runs without a verdict."""


@dataclass(frozen=True, slots=True)
class ClusterLine:
    """All runs in one location with so many nodes."""

    backend: str
    mode: str
    version: str
    nodes: str
    runs: int
    ready_s: MedianAndWorst
    memory_mib: MedianAndWorst
    killed: int
    """How often a leader was killed."""
    decided_ms: MedianAndWorst
    known_ms: MedianAndWorst
    acknowledged_ms: MedianAndWorst


@dataclass(frozen=True, slots=True)
class FaultLine:
    """All strikes of one fault on one backend."""

    what: str
    backend: str
    strikes: int
    seen: int
    """How many were seen to work."""
    how: str
    """How the effect of one of them was seen."""
    apply_ms: MedianAndWorst
    verify_ms: MedianAndWorst
    undo_ms: MedianAndWorst


@dataclass(frozen=True, slots=True)
class ReactionLine:
    """Describes what Kafka did about one fault, in one metadata mode."""

    what: str
    mode: str
    strikes: int
    led: int
    """The number of partitions whose leader was hit, over all strikes."""
    moved: int
    """The number of those that had another leader, known to all brokers, before the next fault."""
    known_ms: MedianAndWorst
    acknowledged_ms: MedianAndWorst
    copies: int
    isr_left: int
    longest_s: float | None
    """Longest time in which a partition acknowledged nothing because of it."""
    unanswered: int


def read_measured(run: RunSummary) -> Measured:
    """Returns what a run's files say. HistoryUnreadable for a file that is torn."""
    return Measured(
        plan=run.plan,
        verdict=None if run.verdict is None else run.verdict.verdict,
        by_defects=run.by_known_defects,
        ready_s=run.parts_s.get("run: cluster"),
        memory_mib=run.facts(run.run.cluster).get("memory_pss_mib"),
        faults=tuple(fault for fault in (run.impact.faults if run.impact else ()) if fault.reaction is not None),
    )


def trial_lines(runs: Sequence[Measured]) -> list[TrialLine]:
    """Returns a line for each trial, backend and metadata mode."""
    return [_trial(*key, mine) for key, mine in _grouped(runs, _trial_and_cluster)]


def _trial_and_cluster(run: Measured) -> tuple[str, str, str]:
    return (run.plan.trial, *run.cluster_kind)


def _trial(trial: str, backend: str, mode: str, runs: Sequence[Measured]) -> TrialLine:
    verdicts = [run.verdict for run in runs]
    held, violated, unknown = (verdicts.count(v) for v in (Verdict.HELD, Verdict.VIOLATED, Verdict.UNKNOWN))
    by_defects = sum(run.by_defects for run in runs)
    return TrialLine(
        trial, backend, mode, held, by_defects, violated - by_defects, unknown, without=verdicts.count(None)
    )


def cluster_lines(runs: Sequence[Measured]) -> list[ClusterLine]:
    """Returns a line for each backend, metadata mode, version and number of nodes."""
    return [_cluster(*key, mine) for key, mine in _grouped(runs, lambda run: (*run.cluster_kind, *_size(run.plan)))]


def _size(plan: Plan) -> tuple[str, str]:
    """Returns the versions and the number of nodes of each kind, metadata nodes first."""
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
        ready_s=MedianAndWorst.of(run.ready_s for run in runs),
        memory_mib=MedianAndWorst.of(run.memory_mib for run in runs),
        killed=len(killed),
        decided_ms=_spread(r.decided for r in killed),
        known_ms=_spread(r.new_leader for r in killed),
        acknowledged_ms=_spread(r.first_acknowledged for r in killed),
    )


def fault_lines(runs: Sequence[Measured]) -> list[FaultLine]:
    """Returns a line for each fault and backend."""
    struck = [(run.plan.backend, fault.reaction) for run in runs for fault in run.faults if fault.reaction is not None]
    return [
        FaultLine(
            what=what,
            backend=backend,
            strikes=len(mine),
            seen=sum(r.effect == "yes" for _, r in mine),
            how=next((r.seen for _, r in mine if r.effect == "yes"), mine[0][1].seen),
            apply_ms=MedianAndWorst.of(r.apply_ms for _, r in mine),
            verify_ms=MedianAndWorst.of(r.verify_ms for _, r in mine),
            undo_ms=MedianAndWorst.of(r.undo_ms for _, r in mine),
        )
        for (what, backend), mine in _grouped(struck, lambda pair: (pair[1].what, pair[0]))
    ]


def reaction_lines(runs: Sequence[Measured]) -> list[ReactionLine]:
    """Returns a line for each fault and metadata mode."""
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
        longest_s=MedianAndWorst.of(fault.longest_s for fault in faults).worst,
        unanswered=sum(fault.unanswered for fault in faults),
    )


def refused(runs: Sequence[Measured]) -> dict[tuple[str, str], list[str]]:
    """(fault, reason) → the backends and modes where it was left out for that reason, such as "local kraft-isolated"."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for run in runs:
        for label, why in run.plan.left_out.items():
            found[label, why].add(" ".join(run.cluster_kind))
    return {key: sorted(variants) for key, variants in sorted(found.items())}


def _spread(found: Iterable[RecoveryShown]) -> MedianAndWorst:
    """Returns the median of the medians, and the slowest of all."""
    every = list(found)
    return MedianAndWorst(
        MedianAndWorst.of(r.median_ms for r in every).median, MedianAndWorst.of(r.slowest_ms for r in every).worst
    )


def _grouped(values: Iterable[T], key: Callable[[T], K]) -> list[tuple[K, list[T]]]:
    groups: dict[K, list[T]] = defaultdict(list)
    for value in values:
        groups[key(value)].append(value)
    return sorted(groups.items(), key=lambda item: str(item[0]))


# Pages of the documentation with a part that is written anew by a command, between two marks.


def write_between(path: Path, begin: str, end: str, text: str) -> None:
    """Replaces what stands between the marks by `text`. BadInput if the page has none."""
    try:
        page = inputs.read_text(path)
    except OSError as error:
        raise BadInput(f"{str(path)!r} cannot be read: {error.strerror}. Give a page with the marks.") from error
    before, begun, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise BadInput(f"{str(path)!r} has no place for the table. Put {begin} and {end} into it, each on a line.")
    path.write_text(f"{before}{begin}\n{text}{end}{after}", encoding="utf-8")


# What `prozess measured` writes: Markdown tables, on standard output or into a page between two marks.


BEGIN, END = "<!-- measured: what follows is written by `prozess measured --into` -->", "<!-- measured: the end -->"


def measured_text(runs: Sequence[Measured]) -> str:
    """Returns all tables. Where a column has two numbers, they are the median and the worst."""
    parts = [
        "### Runs",
        "Known defect: violated, and by nothing but what the guarantee table knows as an open defect of others.",
        _runs(runs),
        "### Clusters",
        "Of two numbers the first is the median, and the second is the worst. The times after the kill of a leader last "
        "until the metadata log had the next leader; until every live broker named it; until a record that was sent after "
        "the kill was acknowledged.",
        _clusters(runs),
        "### Faults, by backend",
        _faults(runs),
        "### What Kafka did",
        "Led: partitions that the target of the fault led. Moved: those of them that had another leader before the next "
        "fault, which every other broker knew. Times count from the moment when the fault was made. ISR left: how many of "
        "the target's in-sync replicas left the ISR. Unanswered: records that were sent while the fault lasted and were "
        "never acknowledged, refused ones among them.",
        _reactions(runs),
    ]
    if whys := refused(runs):
        rows = [(label, ", ".join(variants), why) for (label, why), variants in whys.items()]
        parts += ["### Left out", _table(("fault", "where", "why"), rows)]
    return "\n\n".join(parts) + "\n"


def _runs(runs: Sequence[Measured]) -> str:
    """Returns the table of verdicts by trial."""
    return _table(
        ("trial", "backend", "metadata", "held", "known defect", "violated", "unknown", "no verdict"),
        [
            (t.trial, t.backend, t.mode, t.held, t.by_defects, t.violated, t.unknown, t.without)
            for t in trial_lines(runs)
        ],
    )


def _clusters(runs: Sequence[Measured]) -> str:
    """Returns the table of memory and start time by cluster, and of the seconds until a killed leader was replaced."""
    return _table(
        (
            "backend",
            "metadata",
            "Kafka",
            "nodes",
            "runs",
            "ready, s",
            "memory, MiB",
            "leaders killed",
            "decided, s",
            "known, s",
            "acknowledged, s",
        ),
        [
            (
                c.backend,
                c.mode,
                c.version,
                c.nodes,
                c.runs,
                _spread_text(c.ready_s),
                _spread_text(c.memory_mib),
                c.killed,
                _seconds(c.decided_ms),
                _seconds(c.known_ms),
                _seconds(c.acknowledged_ms),
            )
            for c in cluster_lines(runs)
        ],
    )


def _faults(runs: Sequence[Measured]) -> str:
    """Returns the table of faults by backend."""
    return _table(
        ("fault", "backend", "strikes", "seen to work", "as, for one", "apply, ms", "verify, ms", "undo, ms"),
        [
            (
                f"`{f.what}`",
                f.backend,
                f.strikes,
                f.seen,
                _brief(f.how),
                _spread_text(f.apply_ms),
                _spread_text(f.verify_ms),
                _spread_text(f.undo_ms),
            )
            for f in fault_lines(runs)
        ],
    )


def _reactions(runs: Sequence[Measured]) -> str:
    """Returns the table of Kafka's reactions to faults."""
    return _table(
        (
            "fault",
            "metadata",
            "strikes",
            "led",
            "moved",
            "known, s",
            "acknowledged, s",
            "ISR left",
            "longest without an acknowledgement, s",
            "unanswered",
        ),
        [
            (
                f"`{r.what}`",
                r.mode,
                r.strikes,
                r.led,
                r.moved,
                _seconds(r.known_ms),
                _seconds(r.acknowledged_ms),
                f"{r.isr_left} of {r.copies}",
                _number(r.longest_s),
                r.unanswered,
            )
            for r in reaction_lines(runs)
        ],
    )


def write_into(path: Path, text: str) -> None:
    """Writes the tables between the marks of a page. BadInput if it has none."""
    write_between(path, BEGIN, END, f"\n{text}\n")


def _table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _spread_text(spread: MedianAndWorst) -> str:
    if spread.median is None:
        return "–"
    return f"{_number(spread.median)}, {_number(spread.worst)}"


def _seconds(spread: MedianAndWorst) -> str:
    return _spread_text(MedianAndWorst(*(None if ms is None else ms / 1000 for ms in (spread.median, spread.worst))))


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _brief(text: str, most: int = 70) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
