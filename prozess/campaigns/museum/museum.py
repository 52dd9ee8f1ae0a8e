"""Runs the exhibits of the museum (`prozess museum`), and prints the table. It continues where it was interrupted."""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from prozess.campaigns.comparing import RunSummary
from prozess.campaigns.engine import JobDirectory, TrialAttempt, TrialJob, engine_in, exit_code_of
from prozess.campaigns.museum.exhibits import (
    ExhibitResult,
    MuseumTrial,
    Release,
    ReleaseResult,
    chosen_exhibits,
    results_of,
)
from prozess.campaigns.museum.page import write_page
from prozess.harness.clock import SystemClock
from prozess.harness.console import console
from prozess.harness.errors import BadInput
from prozess.harness.machine_record import begin
from prozess.harness.run_directory import RunDirectory

SEEDS_MAX = 100
TRIES = 2
"""A run without a verdict, because prozess failed, is tried once more."""


@dataclass(frozen=True)
class MuseumRequest:
    """What the command is asked for."""

    names: Sequence[str]
    seeds: int
    runs: Path
    engine: str = "auto"
    only_page: bool = False


def museum(request: MuseumRequest, *, runner: tuple[str, ...] | None = None) -> int:
    """Runs every exhibit with each seed on the release that has the defect and on the one that does not, as far as the
    directory does not have the runs; prints the table, and writes the page.

    Returns the exit code: 0 if each exhibit counts, 1 if a release without the defect was violated, else 2.
    `runner`: as for `engine_in`.
    """
    if not 1 <= request.seeds <= SEEDS_MAX:
        raise BadInput(f"--seeds {request.seeds} is out of range; give 1 to {SEEDS_MAX}.")
    exhibits = chosen_exhibits(request.names)
    request.runs.mkdir(parents=True, exist_ok=True)
    directory = JobDirectory(request.runs)
    if not request.only_page:
        begin(RunDirectory(request.runs))
        _run(exhibits, request, directory, runner)
    over, seeds = attempts_by_job(directory.attempts()), range(1, request.seeds + 1)
    found = [result_in(directory, exhibit, over, seeds) for exhibit in exhibits]
    show(found)
    sys.stdout.write(f"page   {write_page(found, request.runs)}\n")
    return int(exit_code_of(one.verdict for one in found))


def _run(
    exhibits: Sequence[MuseumTrial], request: MuseumRequest, directory: JobDirectory, runner: tuple[str, ...] | None
) -> None:
    directory.runs.mkdir(exist_ok=True)
    wanted = [(exhibit, job) for exhibit in exhibits for job in exhibit.jobs(range(1, request.seeds + 1))]
    with engine_in(directory, clock=SystemClock(), options=("--engine", request.engine), runner=runner) as engine:

        def following() -> TrialJob | None:
            over = attempts_by_job(engine.attempts)
            for _, job in wanted:
                before = over[job.key, job.seed]
                if not any(attempt.verdict is not None for attempt in before) and len(before) < TRIES:
                    return job
            return None

        def over(done: TrialAttempt) -> None:
            exhibit = next(exhibit for exhibit, job in wanted if job.key == done.job.key)
            for result in results_in(directory, exhibit, done):
                sys.stdout.write(f"{line_of(exhibit, result)}\n")
            sys.stdout.flush()

        engine.work(following, over)


AttemptsByJob = Mapping[tuple[str, int], Sequence[TrialAttempt]]
"""(key, seed) of a job → the attempts at it, in order."""


def attempts_by_job(attempts: Sequence[TrialAttempt]) -> AttemptsByJob:
    """Returns (key, seed) of a job → the attempts at it, in order."""
    found: dict[tuple[str, int], list[TrialAttempt]] = defaultdict(list)
    for attempt in attempts:
        found[attempt.job.key, attempt.job.seed].append(attempt)
    return found


def result_in(
    directory: JobDirectory, exhibit: MuseumTrial, over: AttemptsByJob, seeds: Sequence[int]
) -> ExhibitResult:
    """Returns what the runs in a directory show of an exhibit, as its file is now. `over`: the attempts there."""
    last = [attempts[-1] for job in exhibit.jobs(seeds) if (attempts := over[job.key, job.seed])]
    return ExhibitResult(exhibit, [one for attempt in last for one in results_in(directory, exhibit, attempt)])


def results_in(directory: JobDirectory, exhibit: MuseumTrial, attempt: TrialAttempt) -> list[ReleaseResult]:
    """Returns what one attempt shows: its verdict file is read, and not the note of what came of it."""
    verdict = None
    if attempt.run is not None and attempt.verdict is not None:
        verdict = RunSummary.at(directory.runs / attempt.run).readable_verdict
    return results_of(exhibit.exhibit, attempt, verdict)


def line_of(exhibit: MuseumTrial, result: ReleaseResult) -> str:
    """Returns one line for the terminal after a run."""
    about = exhibit.exhibit
    which = about.affected if result.release is Release.AFFECTED else about.mended
    what = f"{about.ticket}, {which}, seed {result.seed}: {result.verdict}"
    found = ", ".join(f"{name} {count:,}" for name, count in result.of_ticket.items())
    others = ", ".join(f"{name} {count:,}" for name, count in result.others.items())
    parts = [part for part in (found, f"not the ticket's: {others}" if others else "", result.why) if part]
    return "; ".join([what, *parts]) + f" ({result.took_s:.0f} s)"


def show(found: Sequence[ExhibitResult]) -> None:
    """Prints a line for each exhibit."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("ticket", "old", "violated", "by", "new", "held"):
        table.add_column(heading)
    table.add_column("s", justify="right")
    for one in found:
        table.add_row(*map(escape, cells_of(one)))
    out = console()
    out.print(table)
    counted, seconds = sum(one.counts for one in found), sum(one.took_s for one in found)
    out.print(f"exhibits that count: {counted} of {len(found)}; {seconds:,.0f} s of runs", soft_wrap=True)


def cells_of(one: ExhibitResult) -> tuple[str, ...]:
    """Returns the texts of the columns."""
    about = one.trial.exhibit
    by = ", ".join(f"{name} {count:,}" for name, count in one.anomalies.items())
    return (
        about.ticket,
        about.affected,
        _share(one.shown, one.of(Release.AFFECTED)),
        by or "–",
        about.mended,
        _share(one.held, one.of(Release.MENDED)),
        f"{one.took_s:.0f}",
    )


def _share(count: int, of: Sequence[ReleaseResult]) -> str:
    """Returns how many of these runs showed it. Those that never began are named: they say nothing of the release."""
    missing = sum(not one.run for one in of)
    return f"{count} of {len(of)}" + (f", {missing} not run" if missing else "")
