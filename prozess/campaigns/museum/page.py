"""The page of the museum: the table, and for each exhibit its story, from a run of the release that has the defect."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prozess.campaigns.museum.exhibits import ExhibitResult, Release, ReleaseResult
from prozess.harness.errors import ProzessError
from prozess.harness.history.convert import History
from prozess.harness.printable import printable
from prozess.harness.report.html import environment
from prozess.harness.report.reports import read_verdict
from prozess.harness.report.server_logs import ServerLogs
from prozess.harness.report.stories import Story, StoryWriter
from prozess.harness.run_directory import RunDirectory, write_whole
from prozess.harness.verdict import SERVER_ERRORS

PAGE = "museum.html"
LINES_MAX = 12
"""How many lines of the servers' logs a story shows."""


@dataclass(frozen=True)
class ExhibitStory:
    """What happened around the first witness of an exhibit."""

    run: str
    sentence: str
    """The verdict of the run, in words."""
    anomaly: str
    story: Story | None
    """None: the rows of its partition cannot be read, or are too many; or servers alone show the defect."""
    lines: Sequence[str] = ()
    """What servers wrote with no fault near, where they show it: a line of each kind, in the order of time."""


def write_page(found: Sequence[ExhibitResult], directory: Path) -> Path:
    """Writes the page into the museum's directory; returns its path."""
    text = environment("prozess.campaigns").get_template("museum.html.j2").render(
        found=found,
        stories=[story_of(one, directory / "runs") for one in found],
        affected=Release.AFFECTED,
        mended=Release.MENDED,
        counted=sum(one.counts for one in found),
        lines_max=LINES_MAX,
    )  # fmt: skip
    path = directory / PAGE
    write_whole(path, printable(text))
    return path


def story_of(one: ExhibitResult, runs: Path) -> ExhibitStory | None:
    """Returns the story of the first run that showed the defect; None if none did, or its files cannot be read."""
    shown: ReleaseResult | None = next((each for each in one.of(Release.AFFECTED) if each.shown), None)
    if shown is None:
        return None
    run = RunDirectory(runs / shown.run)
    try:
        verdict, history = read_verdict(run), History.open(run)
        writer = StoryWriter(history, verdict.faults, ServerLogs(run, history.plan.server_names.values()))
        ticket = one.trial.exhibit.ticket
        if SERVER_ERRORS in shown.of_ticket:
            return ExhibitStory(shown.run, verdict.sentence, SERVER_ERRORS, None, sorted(verdict.complaints))
        for anomaly in (found for cell in verdict.cells for found in cell.anomalies.values()):
            if anomaly.anomaly not in shown.of_ticket:
                continue
            own = [witness for witness in anomaly.witnesses if ticket in witness.rule] or [*anomaly.witnesses]
            for witness in own:
                if (story := writer.story_of(witness)) is not None:
                    return ExhibitStory(shown.run, verdict.sentence, anomaly.anomaly, story)
        return ExhibitStory(shown.run, verdict.sentence, next(iter(shown.of_ticket)), None)
    except (ProzessError, OSError):
        return None
