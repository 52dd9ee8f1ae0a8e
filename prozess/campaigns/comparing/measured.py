"""This module summarizes the measurements of many runs (`prozess measured`): verdicts, seconds to ready, memory, times of
faults, and reactions of Kafka. It reads the runs' own files, judges nothing again, and writes tables in Markdown.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

from prozess.campaigns.comparing import RunSummary
from prozess.harness import inputs
from prozess.harness.errors import BadInput
from prozess.harness.impact.cost import FaultImpact, ReactionShown, RecoveryShown
from prozess.harness.plan.plan import Plan
from prozess.harness.verdict import Verdict

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
KILLED = "kill leader"
"""The fault after which clusters are compared: a leader is killed."""
NONE = "–"
HOW_MAX = 70
"""How many letters of how the effect of a fault was seen are in a table."""
BEGIN, END = "<!-- measured: what follows is written by `prozess measured --into` -->", "<!-- measured: the end -->"
"""The marks of a page between which the tables are written."""


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

    @staticmethod
    def seconds_of(found: Iterable[RecoveryShown]) -> "MedianAndWorst":
        """Returns the median of the medians, and the slowest of all, in seconds."""
        every = list(found)
        medians_s = [r.median_ms / 1000 for r in every if r.median_ms is not None]
        slowest_s = [r.slowest_ms / 1000 for r in every if r.slowest_ms is not None]
        return MedianAndWorst(MedianAndWorst.of(medians_s).median, MedianAndWorst.of(slowest_s).worst)

    def __str__(self) -> str:
        return NONE if self.median is None else f"{_number(self.median)}, {_number(self.worst)}"


def measured_text(runs: Sequence[RunSummary]) -> str:
    """Returns all tables. Where a column has two numbers, they are the median and the worst. HistoryUnreadable for a file of
    a run that is torn."""
    parts = [
        "### Runs",
        "Known defect: violated, and by nothing but what the guarantee table knows as an open defect of others.",
        markdown_table(
            "trial | backend | metadata | held | known defect | violated | unknown | no verdict", trial_rows(runs)
        ),
        "### Clusters",
        "Of two numbers the first is the median, and the second is the worst. The times after the kill of a leader last "
        "until the metadata log had the next leader; until every live broker named it; until a record that was sent after "
        "the kill was acknowledged.",
        markdown_table(
            "backend | metadata | Kafka | nodes | runs | ready, s | memory, MiB | leaders killed | decided, s | known, s | "
            "acknowledged, s",
            cluster_rows(runs),
        ),
        "### Faults, by backend",
        markdown_table(
            "fault | backend | faults | seen to work | as, for one | apply, ms | verify, ms | undo, ms",
            fault_rows(runs),
        ),
        "### What Kafka did",
        "Led: partitions that the target of the fault led. Moved: those of them that had another leader before the next "
        "fault, which every other broker knew. Times count from the moment when the fault was made. ISR left: how many of "
        "the target's in-sync replicas left the ISR. Unanswered: records that were sent while the fault lasted and were "
        "never acknowledged, refused ones among them.",
        markdown_table(
            "fault | metadata | faults | led | moved | known, s | acknowledged, s | ISR left | "
            "longest without an acknowledgement, s | unanswered",
            reaction_rows(runs),
        ),
    ]
    if left_out := left_out_rows(runs):
        parts += ["### Left out", markdown_table("fault | where | why", left_out)]
    return "\n\n".join(parts) + "\n"


Row = tuple[object, ...]


def trial_rows(runs: Sequence[RunSummary]) -> list[Row]:
    """Returns how many runs of each trial, backend and metadata mode had which verdict."""
    rows: list[Row] = []
    for where, mine in _grouped(runs, lambda run: (run.plan.trial, *run.cluster_kind)):
        counts = Counter(None if run.verdict is None else run.verdict.verdict for run in mine)
        known = sum(run.by_known_defects for run in mine)
        others = counts[Verdict.VIOLATED] - known
        rows.append((*where, counts[Verdict.HELD], known, others, counts[Verdict.UNKNOWN], counts[None]))
    return rows


def cluster_rows(runs: Sequence[RunSummary]) -> list[Row]:
    """Returns memory and start time of each backend, metadata mode, version and number of nodes, and the seconds until a
    killed leader was replaced."""
    rows: list[Row] = []
    for where, mine in _grouped(runs, lambda run: (*run.cluster_kind, run.versions, _nodes(run.plan))):
        killed = [r for run in mine for _, r in _strikes(run) if r.what == KILLED and r.led]
        rows.append(
            (
                *where,
                len(mine),
                MedianAndWorst.of(run.parts_s.get("run: cluster") for run in mine),
                MedianAndWorst.of(run.facts(run.run.cluster).get("memory_pss_mib") for run in mine),
                len(killed),
                MedianAndWorst.seconds_of(r.decided for r in killed),
                MedianAndWorst.seconds_of(r.new_leader for r in killed),
                MedianAndWorst.seconds_of(r.first_acknowledged for r in killed),
            )
        )
    return rows


def fault_rows(runs: Sequence[RunSummary]) -> list[Row]:
    """Returns how each fault was made and seen on each backend."""
    struck = [(run.plan.backend, reaction) for run in runs for _, reaction in _strikes(run)]
    rows: list[Row] = []
    for (what, backend), mine in _grouped(struck, lambda strike: (strike[1].what, strike[0])):
        reactions = [reaction for _, reaction in mine]
        seen = [r.seen for r in reactions if r.effect == "yes"]
        how = (seen or [reactions[0].seen])[0]
        rows.append(
            (
                f"`{what}`",
                backend,
                len(mine),
                len(seen),
                how if len(how) <= HOW_MAX else f"{how[:HOW_MAX]}…",
                MedianAndWorst.of(r.apply_ms for r in reactions),
                MedianAndWorst.of(r.verify_ms for r in reactions),
                MedianAndWorst.of(r.undo_ms for r in reactions),
            )
        )
    return rows


def reaction_rows(runs: Sequence[RunSummary]) -> list[Row]:
    """Returns what Kafka did about each fault in each metadata mode."""
    struck = [(run.plan.variant.metadata_mode, fault, r) for run in runs for fault, r in _strikes(run)]
    rows: list[Row] = []
    for (what, mode), mine in _grouped(struck, lambda strike: (strike[2].what, strike[0])):
        reactions = [reaction for *_, reaction in mine]
        rows.append(
            (
                f"`{what}`",
                mode,
                len(mine),
                sum(r.led for r in reactions),
                sum(r.new_leader.partitions - r.new_leader.never for r in reactions),
                MedianAndWorst.seconds_of(r.new_leader for r in reactions),
                MedianAndWorst.seconds_of(r.first_acknowledged for r in reactions),
                f"{sum(r.isr_left for r in reactions)} of {sum(r.copies for r in reactions)}",
                _number(MedianAndWorst.of(fault.longest_s for _, fault, _ in mine).worst),
                sum(fault.unanswered for _, fault, _ in mine),
            )
        )
    return rows


def left_out_rows(runs: Sequence[RunSummary]) -> list[Row]:
    """Returns each fault that was left out, where, such as "local kraft-isolated", and why."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for run in runs:
        for label, why in run.plan.left_out.items():
            found[label, why].add(" ".join(run.cluster_kind))
    return [(label, ", ".join(sorted(where)), why) for (label, why), where in sorted(found.items())]


def _strikes(run: RunSummary) -> list[tuple[FaultImpact, ReactionShown]]:
    """Returns what each fault cost, and what the cluster did about it, for the faults of which that is known."""
    return [(f, f.reaction) for f in (run.impact.faults if run.impact else ()) if f.reaction is not None]


def _nodes(plan: Plan) -> str:
    """Returns the number of nodes of each kind, metadata nodes first."""
    kinds = [name.rpartition("-")[0] for name in plan.variant.server_names().values()]
    return " + ".join(str(kinds.count(kind)) for kind in ("zookeeper", "controller", "broker") if kind in kinds)


def _grouped(values: Iterable[T], key: Callable[[T], K]) -> list[tuple[K, list[T]]]:
    groups: dict[K, list[T]] = defaultdict(list)
    for value in values:
        groups[key(value)].append(value)
    return sorted(groups.items(), key=lambda item: str(item[0]))


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def markdown_table(headings: str, rows: Iterable[Sequence[object]]) -> str:
    """Returns a table in Markdown. `headings`: with " | " between them."""
    lines = [" | ".join(str(cell).replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in [headings, " | ".join(["---"] * len(headings.split(" | "))), *lines])


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


def write_into(path: Path, text: str) -> None:
    """Writes the tables between the marks of a page. BadInput if it has none."""
    write_between(path, BEGIN, END, f"\n{text}\n")
