"""index.html of a campaign: what needs a look and why, verdicts by trial and variant, every run with a link to its report."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from harness.campaign.facts import NOTHING, RunFacts, facts_of
from harness.campaign.keep import size_of
from harness.campaign.plan import trials_in_all
from harness.campaign.state import Attempt, Begun, CampaignDirectory
from harness.report.page import environment
from harness.report.words import VERDICT_SIGNS, reproduce
from harness.run_directory import RunDirectory
from harness.verdict import Verdict, worst

CONCERNS_MAX = 100
"""So many runs are told of at the top; all are in the table."""
_BEGINNING = "not begun"
"""Where a trial would have run that the machinery failed before it had a plan."""
_OF_VARIANT = ("backend", "variant.metadata_mode", "variant.kafka_version")
"""Drawn settings that the variant tells."""
_ORDER = (Verdict.VIOLATED, Verdict.UNKNOWN, Verdict.HELD, Verdict.NOT_JUDGED)


@dataclass(frozen=True, slots=True)
class RunLine:
    """One attempt, with what its run says."""

    attempt: Attempt
    facts: RunFacts
    variant: str
    bytes: int | None
    """On the disk; None: it left nothing."""
    report: str | None
    """Its path, seen from the index."""
    replaced: bool
    """The machinery failed it, and it was tried again."""
    again: str | None
    """The command that runs its plan again; None: it left no plan."""


@dataclass(slots=True)
class Place:
    """A trial on a variant: its runs."""

    lines: list[RunLine] = field(default_factory=list)

    @property
    def counts(self) -> list[tuple[Verdict, int, RunLine]]:
        """Verdict, how many, and the newest of them; the worst first."""
        found = Counter(Verdict(line.attempt.verdict) for line in self.lines if line.attempt.verdict is not None)
        return [
            (v, found[v], next(line for line in reversed(self.lines) if line.attempt.verdict == v))
            for v in _ORDER
            if v in found
        ]

    @property
    def verdict(self) -> Verdict | None:
        """The worst; None: the machinery failed each."""
        verdicts = [Verdict(line.attempt.verdict) for line in self.lines if line.attempt.verdict is not None]
        return worst(verdicts) if verdicts else None

    @property
    def failed(self) -> int:
        """Attempts of which nothing was learnt."""
        return sum(line.attempt.failed for line in self.lines)

    @property
    def median_s(self) -> float:
        """Of what gave a verdict, if anything did."""
        took = sorted(line.attempt.took_s for line in self.lines if not line.attempt.failed or self.verdict is None)
        return took[len(took) // 2]


@dataclass(frozen=True, slots=True)
class Overview:
    """What the page shows."""

    lines: tuple[RunLine, ...]
    variants: tuple[str, ...]
    places: dict[str, dict[str, Place]]
    """Trial → variant → its runs."""

    @property
    def concerns(self) -> list[RunLine]:
        """What did not hold, the worst first, then the newest; without what was tried again."""
        bad = [line for line in reversed(self.lines) if line.attempt.verdict != Verdict.HELD and not line.replaced]
        return sorted(bad, key=lambda line: 2 if line.attempt.verdict is None else _ORDER.index(_verdict(line)))

    @property
    def counts(self) -> dict[Verdict, int]:
        """Of trials, each by its last attempt."""
        found = Counter(_verdict(line) for line in self.lines if line.attempt.verdict is not None)
        return {verdict: found[verdict] for verdict in _ORDER if found[verdict]}

    @property
    def by_defects(self) -> int:
        """Trials that are violated by known defects alone."""
        return sum(line.facts.by_defects for line in self.lines)

    @property
    def failed(self) -> int:
        """Attempts that the machinery failed."""
        return sum(line.attempt.failed for line in self.lines)

    @property
    def left_without(self) -> int:
        """Of these, how many were not tried again."""
        return sum(line.attempt.failed and not line.replaced for line in self.lines)

    @property
    def verdict(self) -> Verdict:
        """Of the campaign so far."""
        if self.left_without and Verdict.VIOLATED not in self.counts:
            return Verdict.UNKNOWN
        return worst(self.counts)


def overview_of(directory: CampaignDirectory, attempts: Sequence[Attempt]) -> Overview:
    """From the attempts, and the files of their runs."""
    drawn_again = Counter(attempt.drawn.number for attempt in attempts)
    facts = [NOTHING if a.run is None else facts_of(directory.runs / a.run) for a in attempts]
    by_settings = {_settings(a): f.variant for a, f in zip(attempts, facts, strict=True) if f.variant}
    lines = []
    for attempt, own in zip(attempts, facts, strict=True):
        drawn_again[attempt.drawn.number] -= 1
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
                replaced=attempt.failed and drawn_again[attempt.drawn.number] > 0,
                again=reproduce(planned) if planned is not None and planned.plan.is_file() else None,
            )
        )
    places: dict[str, dict[str, Place]] = defaultdict(lambda: defaultdict(Place))
    for line in lines:
        places[line.attempt.drawn.trial][line.variant].lines.append(line)
    return Overview(
        tuple(lines),
        tuple(sorted({line.variant for line in lines})),
        {trial: dict(places[trial]) for trial in sorted(places)},
    )


def write_index(directory: CampaignDirectory, begun: Begun, attempts: Sequence[Attempt]) -> Path:
    """Write index.html; returns its path."""
    overview = overview_of(directory, attempts)
    text = (
        environment("harness.campaign")
        .get_template("index.html.j2")
        .render(
            begun=begun,
            overview=overview,
            concerns=overview.concerns[:CONCERNS_MAX],
            in_all=trials_in_all(begun.campaign),
            signs=VERDICT_SIGNS,
            hours=sum(a.took_s for a in attempts) / 3600,
            gib=sum(line.bytes or 0 for line in overview.lines) / 2**30,
            memory=[a.own_memory_bytes for a in attempts if a.own_memory_bytes],
            largest=max((a.memory_bytes for a in attempts), default=0),
            of_variant=_OF_VARIANT,
            at=lambda seconds: datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M"),
        )
    )
    part = directory.index.with_name("index.html.part")
    part.write_text(text, encoding="utf-8")
    part.replace(directory.index)
    return directory.index


def _verdict(line: RunLine) -> Verdict:
    assert line.attempt.verdict is not None
    return Verdict(line.attempt.verdict)


def _settings(attempt: Attempt) -> tuple[object, ...]:
    return (attempt.drawn.trial, *sorted(attempt.drawn.settings.items()))
