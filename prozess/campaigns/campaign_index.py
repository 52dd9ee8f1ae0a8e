"""Writes index.html of a campaign: verdicts by trial and variant, what did not hold and why, and every run with its
report."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from prozess.app.run_tables import Read, Row, by_run, opened_tables
from prozess.campaigns.campaign_plan import BegunCampaign, CampaignDirectory, trials_in_all
from prozess.campaigns.engine import TrialAttempt
from prozess.campaigns.kept_runs import size_of
from prozess.harness.plan import catalogue
from prozess.harness.printable import printable
from prozess.harness.report.html import environment
from prozess.harness.report.words import VERDICT_SIGNS, reproduce, roughly
from prozess.harness.run_directory import RunDirectory, write_whole
from prozess.harness.verdict import Verdict, worst

CELLS_MAX = 2
"""At most this many cells are named with a reason; the report has them all."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts of one run that the index shows: where it ran, what was found, and why it did not hold."""

    variant: str
    """Backend, metadata mode and versions; empty if there is no plan."""
    forbidden: tuple[tuple[str, int], ...] = ()
    permitted: tuple[tuple[str, int], ...] = ()
    why: tuple[str, ...] = ()
    """The reasons why it did not hold."""
    by_defects: bool = False
    """True if it was violated and known defects explain all of it."""


NO_FACTS = RunFacts("")


_READ = ("runs", "outcomes", "cells")


@lru_cache(maxsize=10_000)
def facts_of(path: Path) -> RunFacts:
    """Returns the facts of a run that is over."""
    with opened_tables([path], together=_READ) as read:
        return facts_in(read).get(path.name, NO_FACTS)


def facts_in(read: Read) -> dict[str, RunFacts]:
    """Returns name of the run → its facts, for all runs in these tables: where it ran is all if it is not judged."""
    runs = read("runs", ["run", "name", "state", "backend", "metadata_mode", "version", "verdict", "by_known_defects",
                         "unknown_reasons"])  # fmt: skip
    outcomes = read("outcomes", ["run", "cell", "anomaly", "outcome", "forbidden", "permitted", "reason", "defects"])
    named = read("cells", ["run", "cell", "name", "verdict"])
    cells = named.filter(named["verdict"].is_valid())
    counts = outcomes.group_by(["run", "anomaly"], use_threads=False)
    counted = by_run(counts.aggregate([("forbidden", "sum"), ("permitted", "sum")]))
    bad = outcomes.filter(pc.is_in(outcomes["outcome"], value_set=pa.array(["violated", "unknown"])))
    where = pc.index_in(_cell_keys(bad), value_set=_cell_keys(cells).combine_chunks())
    found = by_run(bad.append_column("name", cells["name"].take(where)))
    sizes = by_run(cells.group_by("run").aggregate([("cell", "count")]))
    facts = {}
    for run in runs.to_pylist():
        if run["backend"] not in catalogue.BACKENDS:  # there is no plan that can be read, or it is no trial's
            continue
        # The version of a cluster that was already there is not known here.
        only_reached = catalogue.BACKENDS[run["backend"]].protocol_only
        variant = run["backend"] if only_reached else ", ".join(run[c] for c in ("backend", "metadata_mode", "version"))
        facts[run["name"]] = RunFacts(variant)
        if run["state"] == "judged":
            own, size = counted[run["run"]], sum(row["cell_count"] for row in sizes[run["run"]])
            facts[run["name"]] = RunFacts(
                variant,
                forbidden=tuple((row["anomaly"], row["forbidden_sum"]) for row in own if row["forbidden_sum"]),
                permitted=tuple((row["anomaly"], row["permitted_sum"]) for row in own if row["permitted_sum"]),
                why=tuple(reasons_of(run["verdict"], run["unknown_reasons"], found[run["run"]], size)),
                by_defects=run["by_known_defects"],
            )
    return facts


def _cell_keys(table: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(table["run"], table["cell"].cast(pa.string()), "\0")


def reasons_of(verdict: str, unknown_reasons: Sequence[str], rows: Sequence[Row], cells: int) -> Iterator[str]:
    """Yields a sentence for each reason: what was violated, and in which cells; else why it is unknown. `rows`: the outcomes
    that are violated or unknown, with the names of their cells, of which there are `cells` in all."""
    if verdict == "violated":
        yield from _by_reason(rows, "violated", cells)
    elif verdict == "unknown":
        known = {row["reason"].rstrip(".").casefold() for row in rows if row["outcome"] == "unknown"}
        yield from _by_reason(rows, "unknown", cells)
        for reason in unknown_reasons:
            if not any(reason_given and reason_given in reason.casefold() for reason_given in known):
                yield reason[:1].upper() + reason[1:] + "."


def _by_reason(rows: Sequence[Row], outcome: str, cells: int) -> Iterator[str]:
    """Yields each reason once, although it may explain many anomalies of many cells."""
    grouped: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row["outcome"] == outcome:
            own = (row["anomaly"],) if outcome == "violated" else ()
            grouped[(row["reason"], *row["defects"], *own)].append(row)
    for found in grouped.values():
        names, first = list(dict.fromkeys(row["anomaly"] for row in found)), found[0]
        what = _what(names, sum(row["forbidden"] for row in found))
        unstated = [defect for defect in first["defects"] if defect not in first["reason"]]
        known = f" Known: {'; '.join(unstated)}." if unstated else ""
        where = _cells(list(dict.fromkeys(row["name"] for row in found)), cells)
        yield f"{what} in {where}: {first['reason']}{known}"


def _what(names: Sequence[str], count: int) -> str:
    if count:
        return f"{names[0]} {count:,}"
    return " and ".join(names) if len(names) <= CELLS_MAX else f"{len(names)} anomalies"


def _cells(names: Sequence[str], of: int) -> str:
    if len(names) == of > CELLS_MAX:
        return f"all {of} cells"
    more = f" and {len(names) - CELLS_MAX} more" if len(names) > CELLS_MAX else ""
    return ", ".join(names[:CELLS_MAX]) + more


# index.html of a campaign: what needs a look and why, verdicts by trial and variant, every run with a link to its
# report.

CONCERNS_MAX = 100
"""At most this many runs are described at the top of the page; all are in the table."""
_BEGINNING = "not begun"
"""The location of a trial that failed before it had a plan."""
_OF_VARIANT = ("backend", "variant.metadata_mode", "variant.kafka_version")
"""Drawn settings that the name of the variant already states."""
_ORDER = (Verdict.VIOLATED, Verdict.UNKNOWN, Verdict.HELD, Verdict.NOT_JUDGED)


@dataclass(frozen=True, slots=True)
class RunLine:
    """One attempt, with the facts of its run."""

    attempt: TrialAttempt
    facts: RunFacts
    variant: str
    bytes: int | None
    """The bytes that the run takes on the disk; None if there is no run directory."""
    report: str | None
    """The path of its report, relative to the index."""
    replaced: bool
    """True if prozess itself failed, and the trial was tried again."""
    again: str | None
    """The command that runs its plan again; None if there is no plan."""


@dataclass(slots=True)
class VariantRuns:
    """A cell of the page of results: the runs of one trial in one metadata mode, and their verdicts."""

    lines: list[RunLine] = field(default_factory=list)

    @property
    def counts(self) -> list[tuple[Verdict, int, RunLine]]:
        """Returns each verdict, how many runs have it, and the newest of them; the worst first."""
        found = Counter(line.attempt.verdict for line in self.lines if line.attempt.verdict is not None)
        return [
            (v, found[v], next(line for line in reversed(self.lines) if line.attempt.verdict == v))
            for v in _ORDER
            if v in found
        ]

    @property
    def verdict(self) -> Verdict | None:
        """The worst verdict. None: prozess itself failed each time."""
        verdicts = [line.attempt.verdict for line in self.lines if line.attempt.verdict is not None]
        return worst(verdicts) if verdicts else None

    @property
    def failed(self) -> int:
        """The number of attempts that gave no verdict."""
        return sum(line.attempt.failed for line in self.lines)

    @property
    def median_s(self) -> float:
        """The median seconds of the attempts that gave a verdict, if any did."""
        took = sorted(line.attempt.took_s for line in self.lines if not line.attempt.failed or self.verdict is None)
        return took[len(took) // 2]


@dataclass(frozen=True, slots=True)
class Overview:
    """The content of the page: all runs, by trial and variant."""

    lines: tuple[RunLine, ...]
    variants: tuple[str, ...]
    runs_by_variant: dict[str, dict[str, VariantRuns]]
    """Trial → variant → its runs."""

    @property
    def concerns(self) -> list[RunLine]:
        """The runs that did not hold, the worst first, then the newest; without those that were tried again."""
        bad = [line for line in reversed(self.lines) if line.attempt.verdict != Verdict.HELD and not line.replaced]
        return sorted(bad, key=lambda line: 2 if line.attempt.verdict is None else _ORDER.index(_verdict(line)))

    @property
    def counts(self) -> dict[Verdict, int]:
        """The number of trials with each verdict, each by its last attempt."""
        found = Counter(_verdict(line) for line in self.lines if line.attempt.verdict is not None)
        return {verdict: found[verdict] for verdict in _ORDER if found[verdict]}

    @property
    def by_defects(self) -> int:
        """The number of trials that are violated by known defects alone."""
        return sum(line.facts.by_defects for line in self.lines)

    @property
    def failed(self) -> int:
        """The number of attempts in which prozess itself failed."""
        return sum(line.attempt.failed for line in self.lines)

    @property
    def left_without(self) -> int:
        """The number of these attempts that were not tried again."""
        return sum(line.attempt.failed and not line.replaced for line in self.lines)

    @property
    def verdict(self) -> Verdict:
        """The verdict of the campaign so far."""
        if self.left_without and Verdict.VIOLATED not in self.counts:
            return Verdict.UNKNOWN
        return worst(self.counts)


def overview_of(directory: CampaignDirectory, attempts: Sequence[TrialAttempt], runs: str | None = None) -> Overview:
    """Makes the page from the attempts and the tables over their runs, which are in the directory, or at the URI `runs`."""
    drawn_again = Counter(attempt.job.number for attempt in attempts)
    facts = list(_facts(directory, attempts, runs))
    by_settings = {_settings(a): f.variant for a, f in zip(attempts, facts, strict=True) if f.variant}
    lines = []
    for attempt, own in zip(attempts, facts, strict=True):
        drawn_again[attempt.job.number] -= 1
        run = None if attempt.run is None else directory.runs / attempt.run
        there = run is not None and run.is_dir()
        planned = None if run is None else RunDirectory(run)
        lines.append(
            RunLine(
                attempt,
                own,
                own.variant or by_settings.get(_settings(attempt), _BEGINNING),
                size_of(run) if run is not None and there else None,
                f"runs/{attempt.run}/report.html" if run is not None and (run / "report.html").exists() else None,
                replaced=attempt.failed and drawn_again[attempt.job.number] > 0,
                again=reproduce(planned) if planned is not None and planned.plan.is_file() else None,
            )
        )
    variants: dict[str, dict[str, VariantRuns]] = defaultdict(lambda: defaultdict(VariantRuns))
    for line in lines:
        variants[line.attempt.job.trial][line.variant].lines.append(line)
    return Overview(
        tuple(lines),
        tuple(sorted({line.variant for line in lines})),
        {trial: dict(variants[trial]) for trial in sorted(variants)},
    )


def _facts(directory: CampaignDirectory, attempts: Sequence[TrialAttempt], runs: str | None) -> Iterator[RunFacts]:
    if runs is not None and any(attempt.run is not None for attempt in attempts):
        with opened_tables([runs], together=_READ) as read:
            known = facts_in(read)
        yield from (known.get(attempt.run or "", NO_FACTS) for attempt in attempts)
        return
    for attempt in attempts:
        run = None if attempt.run is None else directory.runs / attempt.run
        yield facts_of(run) if run is not None and run.is_dir() else NO_FACTS


def write_index(
    directory: CampaignDirectory, begun: BegunCampaign, attempts: Sequence[TrialAttempt], runs: str | None = None
) -> Path:
    """Writes index.html and returns its path. `runs`: the URI of the runs, if they are not in the directory."""
    overview = overview_of(directory, attempts, runs)
    text = (
        environment("prozess.campaigns")
        .get_template("campaign.html.j2")
        .render(
            begun=begun,
            overview=overview,
            concerns=overview.concerns[:CONCERNS_MAX],
            in_all=trials_in_all(begun.campaign),
            signs=VERDICT_SIGNS,
            took_s=sum(a.took_s for a in attempts),
            roughly=roughly,
            gib=sum(line.bytes or 0 for line in overview.lines) / 2**30,
            memory=[a.own_memory_bytes for a in attempts if a.own_memory_bytes],
            largest=max((a.memory_bytes for a in attempts), default=0),
            of_variant=_OF_VARIANT,
            at=lambda seconds: datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M"),
        )
    )
    write_whole(directory.index, printable(text))
    return directory.index


def _verdict(line: RunLine) -> Verdict:
    assert line.attempt.verdict is not None
    return line.attempt.verdict


def _settings(attempt: TrialAttempt) -> tuple[object, ...]:
    return (attempt.job.trial, *sorted(attempt.job.settings.items()))
