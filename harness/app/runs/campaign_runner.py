"""Runs a campaign: trial after trial, each by `prozess run` in a process of its own, so that nothing of one stays in
the next."""

import shlex
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from prozess.harness.app.run_process import RUN
from prozess.harness.app.runs.campaign_index import write_index
from prozess.harness.app.runs.campaign_plan import (
    BegunCampaign,
    Campaign,
    CampaignDirectory,
    Entry,
    combinations,
    draw,
    is_over,
    load_campaign,
    next_number,
    parse_duration,
)
from prozess.harness.app.runs.engine import TrialAttempt, TrialJob, engine_in, exit_code_of, make_room, tidy
from prozess.harness.clock import NS_PER_S, Clock, SystemClock
from prozess.harness.errors import BadInput, ExitCode, HarnessFailed
from prozess.harness.plan.trial_files import known_campaigns, known_trials, load_trial

Following = Callable[[BegunCampaign, list[TrialAttempt]], TrialJob | None]
"""Returns the next trial; None if there is none."""


def drawn_next(begun: BegunCampaign, attempts: list[TrialAttempt]) -> TrialJob | None:
    """Draws the next trial by the campaign's seed; None if its time or its rounds are over."""
    number, attempt = next_number(attempts, begun.campaign.retries)
    if not _time_is_left(begun, attempts) or is_over(begun.campaign, number):
        return None
    return draw(begun.campaign, begun.seed, number).model_copy(update={"attempt": attempt})


def run_campaign(
    directory: CampaignDirectory, *, clock: Clock, runner: tuple[str, ...] = RUN, following: Following = drawn_next
) -> int:
    """Runs trials until nothing follows, and returns the exit code. `runner`: the command that runs a trial.

    The exit code is 1 if a trial was violated; else 2 if one was unknown, prozess itself failed for good, or the
    campaign was interrupted; else 0.
    """
    begun = directory.begun()
    keep, failures_max, in_a_row = begun.campaign.keep, begun.campaign.failures_in_a_row_max, 0
    with engine_in(directory, clock=clock, runner=runner, timeout_s=begun.campaign.trial_timeout_s) as engine:
        attempts = engine.attempts

        def next_job() -> TrialJob | None:
            if (job := following(begun, attempts)) is not None:
                _tell_begin(begun, engine.spent_s, job)
            return job

        def over(done: TrialAttempt) -> None:
            nonlocal in_a_row
            _tell(done)
            tidy(directory.runs, done, keep)
            kept = make_room(directory.runs, attempts, keep)
            write_index(directory, begun, attempts)
            in_a_row = in_a_row + 1 if done.failed else 0
            if kept.full:
                raise HarnessFailed(
                    f"{directory.path} holds more than {keep.disk_max_gib:g} GiB of runs that may not be removed. "
                    "Move some away, or raise keep.disk_max_gib in campaign.json, and continue with --resume."
                )
            if in_a_row >= failures_max:
                raise HarnessFailed(
                    f"{in_a_row} trials in a row gave no verdict. The reason of the last one: {done.why}"
                )

        engine.work(next_job, over)
        return int(ExitCode.UNKNOWN if engine.stop.asked else exit_code(attempts))


def exit_code(attempts: list[TrialAttempt]) -> ExitCode:
    """Returns the exit code of all attempts. A trial that was tried again counts by its last attempt."""
    last = {attempt.job.number: attempt.verdict for attempt in attempts}
    return exit_code_of(last.values())


def summary(attempts: list[TrialAttempt]) -> str:
    """Returns one line: how many of each verdict, and how often prozess itself failed."""
    verdicts = Counter(attempt.verdict for attempt in attempts if attempt.verdict)
    told = [f"{count} {verdict}" for verdict, count in verdicts.most_common()]
    failed = sum(attempt.failed for attempt in attempts)
    return (
        ", ".join([*told, *([f"{failed} without a verdict, because prozess failed"] if failed else [])])
        or "none was run"
    )


def _time_is_left(begun: BegunCampaign, attempts: list[TrialAttempt]) -> bool:
    return begun.duration_s is None or sum(attempt.took_s for attempt in attempts) < begun.duration_s


def _tell_begin(begun: BegunCampaign, spent_s: float, job: TrialJob) -> None:
    """Says that a trial begins, which may take minutes and says nothing itself."""
    of = "" if begun.duration_s is None else f" of {begun.duration_s:.0f} s"
    settings = "".join(f" {key}={value}" for key, value in job.settings.items())
    sys.stderr.write(f"{job.number:4} {job.trial} seed {job.seed}{settings} begins, after {spent_s:.0f} s{of}\n")
    sys.stderr.flush()


def _tell(done: TrialAttempt) -> None:
    settings = " ".join(f"{key}={value}" for key, value in done.job.settings.items())
    what = done.verdict or f"no verdict (exit {done.exit_code}): {done.why}"
    sys.stdout.write(
        f"{done.job.number:4} {done.job.trial} seed {done.job.seed} {settings} {what} {done.took_s:.0f} s\n"
    )
    sys.stdout.flush()


def campaign(
    name: str, *, seed: int, runs: Path, duration: str | None, resume: Path | None, rounds: int | None = None
) -> int:
    """Begins or continues a campaign (`prozess run NAME --for 8h`, `--rounds 10` or `--resume`). Returns the exit code.

    0: all held; 1: a trial was violated; 2: unknown or interrupted. It ends when `duration` or `rounds` are over,
    whichever is first.
    """
    clock = SystemClock()
    if resume is not None:
        directory = _resumed(resume, name, duration, rounds)
    else:
        found = find_campaign(name)
        found = found if rounds is None else found.model_copy(update={"rounds": rounds})
        seconds = None if duration is None else parse_duration(duration)
        _check_trials(found)
        stamp = datetime.fromtimestamp(clock.wall_ns() / NS_PER_S, UTC).strftime("%Y%m%dT%H%M%S")
        directory = CampaignDirectory((runs / f"{found.name}-{stamp}").resolve())
        directory.begin(BegunCampaign(campaign=found, seed=seed, duration_s=seconds))
    sys.stdout.write(f"campaign   {directory.path}\n")
    sys.stdout.flush()
    try:
        return run_campaign(directory, clock=clock)
    finally:
        attempts = directory.attempts()
        sys.stdout.write(f"trials     {summary(attempts)}\nindex      {directory.index}\n")
        if drawn_next(directory.begun(), attempts) is not None:
            sys.stdout.write(
                f"resume     prozess run {directory.begun().campaign.name} --resume {shlex.quote(str(directory.path))}\n"
            )


def find_campaign(name: str) -> Campaign:
    """Returns a campaign by name or file. The name of a trial is a campaign of that trial alone. BadInput if it is
    neither."""
    if name.endswith(".toml") or "/" in name:
        return load_campaign(Path(name))
    if name in (campaigns := known_campaigns()):
        return load_campaign(campaigns[name])
    if name in (trials := known_trials()):
        return Campaign(name=name, title=load_trial(name).title, entries=(Entry(trial=name),))
    raise BadInput(f"There is no campaign and no trial {name!r}. Known: {', '.join([*campaigns, *sorted(trials)])}.")


def _check_trials(found: Campaign) -> None:
    """Raises BadInput now and not in the middle of the night if a trial cannot be loaded with a combination of its
    values."""
    for entry in found.entries:
        for settings in combinations(entry):
            load_trial(entry.trial, settings)


def _resumed(path: Path, name: str, duration: str | None, rounds: int | None) -> CampaignDirectory:
    directory = CampaignDirectory(path.resolve())
    begun = directory.begun()
    if name not in (begun.campaign.name, "-"):
        raise BadInput(
            f"{path} holds the campaign {begun.campaign.name!r}, not {name!r}. Give its name, or another directory."
        )
    if duration is not None or rounds is not None:
        raise BadInput("--resume continues a campaign for as long as it was to take. Leave --for and --rounds out.")
    return directory
