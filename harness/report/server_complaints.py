"""Finds out which complaints in the servers' logs are unusual, beside those of runs in which nothing was broken.

A fact for reports and no promise: Kafka promises nothing about its logs, and nothing proves them. It decides only where
`--decide server-errors` asks for it. A complaint is *unusual* if no clean run of this version has it, or if it comes a
hundred times as often. It is *quiet* where nothing is near that was done to the cluster: after it was healed, or in a run
that breaks nothing. The refused markers of KAFKA-20322 are of this kind.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from prozess.harness.config.configuration import Variant, version_numbers
from prozess.harness.report.server_logs import Complaint, TrialTime, complaints_in
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import SERVER_ERRORS, TrialVerdict, Verdict, worst

NEAR_S = 15.0
"""How long after the end of a fault what servers complain of may still come from it: sessions and elections are over."""
OFTEN = 100
"""How many times as often as in a clean run is unusual."""
SHOWN_MAX = 12
"""How many kinds of complaints a report shows."""
BASELINE = "server_complaints.json"
"""In `harness/config`: kind of cluster (`cluster_kinds`) → `LEVEL template` → the most in a minute of any clean run."""

Window = tuple[float, float]


@dataclass(frozen=True, slots=True)
class UnusualComplaint:
    """A complaint that clean runs do not have, or far less often, of all servers together."""

    level: str
    template: str
    """The line without its time, numbers, ids, names and addresses."""
    nodes: tuple[str, ...]
    count: int
    quiet: int
    """How many of them came while no fault was near."""
    first_s: float
    last_s: float
    example: str
    usual: float | None
    """The most in a minute of a clean run; None: no clean run has it."""


@dataclass(frozen=True, slots=True)
class ServerComplaints:
    """What a report says of the servers' logs."""

    unusual: tuple[UnusualComplaint, ...]
    """Those with quiet lines first: of these the gravest, and then by how many there are."""
    gap: str | None = None
    """Why nothing is known; None: all was compared, but for `unread`."""
    unread: tuple[str, ...] = ()
    """What was not compared, as clauses."""

    @property
    def quiet(self) -> tuple[UnusualComplaint, ...]:
        """Returns those that came while no fault was near."""
        return tuple(one for one in self.unusual if one.quiet)


def quiet_windows(done: Iterable[tuple[float, float | None]], end_s: float) -> list[Window]:
    """Returns the times of the trial in which nothing is near that was done to the cluster, ascending, from 0 to `end_s`.
    `done`: begin and end of each fault, and of each step that changes topics or clients. What never ended, None, is near for
    ever.

    Example: a fault from 10 to 20 s, a trial of 60 s, and NEAR_S = 15: (0, 10) and (35, 60).
    """
    free_s, found = 0.0, []
    for begin_s, last_s in sorted((begin, end_s if end is None else end) for begin, end in done):
        if begin_s > free_s:
            found.append((free_s, min(begin_s, end_s)))
        free_s = max(free_s, last_s + NEAR_S)
    return [*found, (free_s, end_s)] if free_s < end_s else found


def unusual(
    complaints: Mapping[str, Sequence[Complaint]], usual: Mapping[str, float], minutes: float
) -> tuple[UnusualComplaint, ...]:
    """Returns what is unusual. `complaints`: of each node; `usual`: as the baseline has it for this version; `minutes`: how
    long the logs are. What one log has beyond its most kinds has no template, and is left to the report."""
    together: dict[tuple[str, str], list[tuple[str, Complaint]]] = {}
    for node, some in complaints.items():
        for one in some:
            if one.level is not None and one.kind is not None:
                together.setdefault((one.level, one.kind), []).append((node, one))
    found = []
    for (level, template), rows in together.items():
        count, most = sum(one.count for _, one in rows), usual.get(f"{level} {template}")
        if most is not None and count <= OFTEN * max(most * minutes, 1):
            continue
        times = [at for _, one in rows for at in (one.first_s, one.last_s) if at is not None]
        found.append(
            UnusualComplaint(
                level, template, tuple(sorted(node for node, _ in rows)), count, sum(one.quiet for _, one in rows),
                min(times, default=0.0), max(times, default=0.0), rows[0][1].example or "", most,
            )
        )  # fmt: skip
    gravest = ("FATAL", "ERROR")
    return tuple(
        sorted(
            found,
            key=lambda one: (
                not one.quiet,
                one.level not in gravest,
                -one.quiet,
                -one.count,
                one.first_s,
                one.template,
            ),
        )
    )


@cache
def baseline() -> Mapping[str, Mapping[str, float]]:
    """Returns what clean runs complain of, by the kind of cluster."""
    text = (files("prozess.harness.config") / BASELINE).read_text(encoding="utf-8")
    found: dict[str, dict[str, float]] = json.loads(text)["versions"]
    return found


def cluster_kinds(variant: Variant, versions: Iterable[str]) -> tuple[str, ...]:
    """Returns the kinds of clean runs whose complaints are usual for a cluster of these versions, one for each release.

    Example: 4.1.2 and 4.2.1 with tiered storage: "4.1 with tiered storage" and "4.2 with tiered storage".
    """
    more = [" with ZooKeeper"] if variant.metadata_mode == "zookeeper" else []
    more += [" with tiered storage"] if variant.tiered_storage else []
    releases = sorted({version_numbers(version)[:2] for version in versions})
    return tuple(".".join(map(str, release)) + "".join(more) for release in releases)


def of_run(
    run: RunDirectory,
    nodes: Iterable[str],
    kinds: Sequence[str],
    done: Iterable[tuple[float, float | None]],
    end_s: float,
) -> ServerComplaints:
    """Returns what the servers of a run complained of, and clean runs do not. `end_s`: when the last client had ended, on
    the trial's clock; servers that shut down afterwards complain of each other. `kinds`: of the cluster. Where no server's
    log is there, or a kind has no baseline, the result says so, and nothing else."""
    time = TrialTime.of(run)
    paths = {node: run.logs / f"{node}.log" for node in nodes}
    there = {node: path for node, path in paths.items() if path.is_file() and not path.is_symlink()}
    if time is None or not there:
        return ServerComplaints((), "no log of a server is there")
    if unknown := [kind for kind in kinds if kind not in baseline()]:
        return ServerComplaints((), f"no clean run of Kafka {' and '.join(unknown)} says what its servers usually log")
    usual: dict[str, float] = {}
    for kind in kinds:
        for line, most in baseline()[kind].items():
            usual[line] = max(most, usual.get(line, 0.0))
    windows = quiet_windows(done, end_s)
    found = {node: complaints_in(path, time, windows) for node, path in there.items()}
    unread = [f"the log of {node} is not there" for node in sorted(paths.keys() - there.keys())]
    unread += [
        f"{one.count:,} lines of {node} are of kinds that are not distinguished any more"
        for node, some in sorted(found.items())
        for one in some
        if one.kind is None
    ]
    return ServerComplaints(unusual(found, usual, max(end_s, 1.0) / 60), unread=tuple(unread))


def with_server_errors(verdict: TrialVerdict, complaints: ServerComplaints) -> TrialVerdict:
    """Returns the verdict where the servers' complaints decide, too: one that clean runs do not have, with no fault near,
    violates, and what was not compared is unknown."""
    quiet = complaints.quiet
    doubts = [complaints.gap] if complaints.gap else list(complaints.unread)
    own = Verdict.VIOLATED if quiet else Verdict.UNKNOWN if doubts else Verdict.HELD
    if quiet:
        more = f" And {len(quiet) - 1} more kinds." if len(quiet) > 1 else ""
        text = f"Violated: {SERVER_ERRORS}: {complaint_words(quiet[0])}.{more} {verdict.sentence}"
    elif doubts and verdict.verdict is not Verdict.VIOLATED:
        text = f"Unknown: {SERVER_ERRORS}: {doubts[0]}. {verdict.sentence}"
    elif own is Verdict.HELD and verdict.verdict is Verdict.HELD:
        text = f"{verdict.sentence} With no fault near, servers complained of nothing that clean runs do not have."
    else:
        text = verdict.sentence
    return verdict.model_copy(
        update={
            "verdict": worst([verdict.verdict, own]),
            "sentence": text,
            "unknown_reasons": (*verdict.unknown_reasons, *(f"{SERVER_ERRORS}: {doubt}" for doubt in doubts)),
            "findings": {**verdict.findings, SERVER_ERRORS: sum(one.quiet for one in quiet)},
            "decided": (*verdict.decided, SERVER_ERRORS),
            "server_errors": own,
            "complaints": {one.example: one.quiet for one in quiet[:SHOWN_MAX]},
        }
    )


def complaint_words(one: UnusualComplaint) -> str:
    """Returns an unusual complaint in a sentence: how many, of whom, when, and what."""
    when = f"{one.quiet:,} with no fault near" if one.quiet else "all near a fault"
    usual = "never in a clean run" if one.usual is None else f"at most {one.usual:g} a minute in a clean run"
    period = f"{one.first_s:.0f} to {one.last_s:.0f} s"
    return f"{one.count:,} × {one.level} on {', '.join(one.nodes)}, {period}, {when}, {usual}: {one.example}"
