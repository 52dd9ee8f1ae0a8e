"""index.html of a campaign: every trial of it, worst first per trial, with links to the reports."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.campaign.state import Attempt, Begun, CampaignDirectory
from harness.report.page import environment
from harness.report.words import VERDICT_SIGNS
from harness.verdict import Verdict, worst


@dataclass(frozen=True, slots=True)
class TrialLine:
    """All attempts at one trial."""

    trial: str
    verdict: Verdict
    held: int
    violated: int
    unknown: int
    failed: int
    median_s: float
    findings: dict[str, int]


def lines_of(attempts: Sequence[Attempt]) -> list[TrialLine]:
    """One per trial, by name. What the machinery failed is counted, and is no verdict."""
    by_trial: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        by_trial[attempt.drawn.trial].append(attempt)
    return [_line(trial, mine) for trial, mine in sorted(by_trial.items())]


def _line(trial: str, attempts: Sequence[Attempt]) -> TrialLine:
    verdicts = [Verdict(a.verdict) for a in attempts if a.verdict is not None]
    findings: dict[str, int] = defaultdict(int)
    for attempt in attempts:
        for name, count in attempt.findings.items():
            findings[name] += count
    took = sorted(a.took_s for a in attempts)
    return TrialLine(
        trial=trial,
        verdict=worst(verdicts),
        held=verdicts.count(Verdict.HELD),
        violated=verdicts.count(Verdict.VIOLATED),
        unknown=verdicts.count(Verdict.UNKNOWN),
        failed=sum(a.failed for a in attempts),
        median_s=took[len(took) // 2],
        findings=dict(findings),
    )


def write_index(directory: CampaignDirectory, begun: Begun, attempts: Sequence[Attempt], size: int) -> Path:
    """Write index.html; returns its path."""
    text = (
        environment("harness.campaign")
        .get_template("index.html.j2")
        .render(
            begun=begun,
            lines=lines_of(attempts),
            attempts=list(reversed(attempts)),
            signs=VERDICT_SIGNS,
            hours=sum(a.took_s for a in attempts) / 3600,
            gib=size / 2**30,
            at=lambda seconds: datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M"),
            has_report=lambda run: run is not None and (directory.runs / run / "report.html").exists(),
        )
    )
    part = directory.index.with_name("index.html.part")
    part.write_text(text, encoding="utf-8")
    part.replace(directory.index)
    return directory.index
