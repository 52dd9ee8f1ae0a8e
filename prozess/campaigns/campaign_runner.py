"""Runs a campaign: trial after trial, each by `prozess run` in a process of its own, so that nothing of one stays in
the next."""

import itertools
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ValidationError

from prozess.app.webhook import Webhook, message, posting_failure, trials_message, verdict_message
from prozess.campaigns.campaign_index import write_index
from prozess.campaigns.campaign_plan import (
    ALL_TRIALS,
    CAMPAIGN_FILE,
    NO_OVERRIDES,
    BegunCampaign,
    Campaign,
    CampaignDirectory,
    Entry,
    JobList,
    TrialOverrides,
    combinations,
    load_campaign,
    parse_shard,
    trials_in_all,
    with_settings,
)
from prozess.campaigns.comparing import RunSummary
from prozess.campaigns.engine import TrialAttempt, TrialJob, engine_in, exit_code_of, refuse_strangers
from prozess.campaigns.kept_runs import make_room, tidy
from prozess.campaigns.on_spark import SparkCluster, SparkTrials, opened_results, run_on_spark, runs_of
from prozess.campaigns.shared_results import SharedResults
from prozess.harness.clock import NS_PER_S, Clock, SystemClock, parse_duration
from prozess.harness.errors import BadInput, HarnessFailed
from prozess.harness.exit_codes import ExitCode
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import known_campaigns, known_trials, load_trial
from prozess.harness.printable import number_of
from prozess.harness.report.words import roughly, time_left_s
from prozess.harness.verdict import Verdict


def run_campaign(
    directory: CampaignDirectory,
    *,
    clock: Clock,
    options: Sequence[str] = (),
    runner: tuple[str, ...] | None = None,
    jobs: JobList | None = None,
    limit_s: float | None = None,
    webhook: Webhook | None = None,
) -> int:
    """Runs trials until all of this share were run, or the time is over, and returns the exit code.

    `options` and `runner`: as for `engine_in`; the options of the campaign follow. `jobs`: the trials; None: those of the
    campaign. `limit_s`: how long all attempts may take together; None: as long as the campaign says. `webhook`: gets each
    violation, and the end.

    The exit code is 1 if a trial was violated; else 2 if one was unknown, prozess itself failed for good, or the
    campaign was interrupted; else 0.
    """
    begun = directory.begun()
    jobs, limit_s = jobs or JobList.of(begun), begun.duration_s if limit_s is None else limit_s
    planned = None if jobs.count is None else sum(map(begun.shard.has, range(jobs.count)))
    keep, failures_max, in_a_row = begun.campaign.keep, begun.campaign.failures_in_a_row_max, 0
    attempts: list[TrialAttempt] = []

    def next_job() -> TrialJob | None:
        if (job := jobs.next_job(attempts, begun, limit_s)) is not None:
            _print_begin(job, progress(attempts, planned, limit_s))
        return job

    def over(done: TrialAttempt) -> None:
        nonlocal in_a_row
        _print_attempt(done)
        _post(webhook, done, str(directory.runs))
        tidy(directory.runs, done, keep)
        there_is_room = make_room(directory.runs, attempts, keep)
        write_index(directory, begun, attempts)
        in_a_row = in_a_row + 1 if done.failed else 0
        if not there_is_room:
            raise HarnessFailed(
                f"{directory.path} holds more than {keep.disk_max_gib:g} GiB of runs that may not be removed. "
                "Move some away, or raise keep.disk_max_gib in campaign.json, and continue with --resume."
            )
        if in_a_row >= failures_max:
            raise HarnessFailed(f"{in_a_row} trials in a row gave no verdict. The reason of the last one: {done.why}")

    options = (*options, *begun.options)
    timeout_s = begun.campaign.trial_timeout_s
    with (
        posting_failure(webhook, directory.path.name),
        engine_in(directory, clock=clock, options=options, runner=runner, timeout_s=timeout_s) as engine,
    ):
        attempts = engine.attempts
        if attempts:  # a command that was killed may have noted the last one, and no more
            tidy(directory.runs, attempts[-1], keep)
            write_index(directory, begun, attempts)
        engine.work(next_job, over)
        code = int(ExitCode.UNKNOWN if engine.stop.asked else exit_code(attempts))
    if webhook is not None:
        name, index = begun.campaign.name, str(directory.index)
        webhook.post(trials_message(name, code, summary(attempts), index, webhook.host))
    return code


def _post(webhook: Webhook | None, done: TrialAttempt, runs: str) -> None:
    """Posts that a trial was violated, if it was. `runs`: the directory of the runs, or its URI."""
    if webhook is None or done.verdict is not Verdict.VIOLATED:
        return
    run, what = f"{runs}/{done.run}", f"{done.job.trial}, seed {done.job.seed}"
    verdict = RunSummary.at(Path(run)).readable_verdict
    webhook.post(
        message(f"✗ *violated* {what}", [f"run: {run}"], webhook.host)
        if verdict is None
        else verdict_message(what, verdict, Path(run), webhook.host)
    )


def exit_code(attempts: list[TrialAttempt]) -> ExitCode:
    """Returns the exit code of all attempts. A trial that was tried again counts by its last attempt."""
    last = {attempt.job.number: attempt.verdict for attempt in attempts}
    return exit_code_of(last.values())


def summary(attempts: list[TrialAttempt]) -> str:
    """Returns one line: how many of each verdict, and how often prozess itself failed."""
    verdicts = Counter(attempt.verdict for attempt in attempts if attempt.verdict)
    lines = [f"{count} {verdict}" for verdict, count in verdicts.most_common()]
    failed = sum(attempt.failed for attempt in attempts)
    return (
        ", ".join([*lines, *([f"{failed} without a verdict, because prozess failed"] if failed else [])])
        or "none was run"
    )


def progress(attempts: Sequence[TrialAttempt], planned: int | None, duration_s: float | None) -> str:
    """Returns how far a campaign is: how many trials are over, and about how long it still takes.

    The estimate is the mean time of the trials so far. `planned`: how many there are in all; `duration_s`: how long it may
    take in all. None: there is no such end.
    """
    over, spent_s = len({attempt.job.number for attempt in attempts}), sum(attempt.took_s for attempt in attempts)
    text = (
        f"{over} of {number_of(planned, 'trial')} over" if planned is not None else f"{number_of(over, 'trial')} over"
    )
    left_s = time_left_s(over, planned, spent_s=spent_s, limit_s=duration_s)
    return text + (f", about {roughly(left_s)} left" if left_s is not None else "")


def _print_begin(job: TrialJob, so_far: str) -> None:
    """Prints that a trial begins, because the trial itself prints nothing for minutes."""
    settings = "".join(f" {key}={value}" for key, value in job.settings.items())
    sys.stderr.write(f"{job.number:4} {job.trial} seed {job.seed}{settings} begins; {so_far}\n")
    sys.stderr.flush()


def _print_attempt(done: TrialAttempt, where: str = "") -> None:
    """Prints the outcome of a trial, and the host if it ran on another one."""
    settings = " ".join(f"{key}={value}" for key, value in done.job.settings.items())
    what = done.verdict or f"no verdict (exit {done.exit_code}): {done.why}"
    sys.stdout.write(
        f"{done.job.number:4} {done.job.trial} seed {done.job.seed} {settings} {what} {done.took_s:.0f} s{where}\n"
    )
    sys.stdout.flush()


def print_known(what: str, location: Path | str, attempts: Sequence[TrialAttempt], planned: int | None) -> None:
    """Prints where trials are run, and how many of them are over already. `planned` None: there is no end."""
    known, of = len({attempt.job.number for attempt in attempts}), "" if planned is None else f" of {planned}"
    sys.stdout.write(f"{what:10} {location}: {known}{of} trials were run before\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class CampaignRequest:
    """The options of `prozess run` with which it runs a campaign."""

    name: str
    seed: int = 1
    runs: str = "runs"
    """With `master`: a directory of its own that the machines share, or a URI."""
    duration: str | None = None
    rounds: int | None = None
    """None: as many as the campaign's file says."""
    resume: Path | None = None
    shard: str | None = None
    """The share of this machine: it runs every n-th trial, and other machines the others."""
    each: TrialOverrides = NO_OVERRIDES
    master: str | None = None
    cores: int = 2
    webhook: Webhook | None = None
    trust: bool = False


def campaign(asked: CampaignRequest) -> int:
    """Begins or continues a campaign (`prozess run NAME --for 8h`, `--rounds 10` or `--resume`). Returns the exit code.

    0: all held; 1: a trial was violated; 2: unknown or interrupted. It ends when `duration` or `rounds` are over,
    whichever is first. A campaign that is continued gives each trial what it gave from its beginning.
    """
    if asked.master is not None:
        return _campaign_on_spark(asked, asked.master)
    clock = SystemClock()
    if asked.resume is not None:
        directory = _resumed(asked, asked.resume)
        begun = directory.begun()
        refuse_strangers(directory, trust=asked.trust, what="campaign")
    else:
        shard = ALL_TRIALS if asked.shard is None else parse_shard(asked.shard)
        found = _wanted_campaign(asked)
        seconds = None if asked.duration is None else parse_duration(asked.duration)
        stamp = datetime.fromtimestamp(clock.wall_ns() / NS_PER_S, UTC).strftime("%Y%m%dT%H%M%S")
        share = "" if shard == ALL_TRIALS else f"-{shard.number}-of-{shard.of}"
        directory = CampaignDirectory((Path(asked.runs) / f"{found.name}{share}-{stamp}").resolve())
        begun = BegunCampaign(
            campaign=found, seed=asked.seed, duration_s=seconds, shard=shard, options=asked.each.options
        )
        directory.begin(begun)
    sys.stdout.write(f"campaign   {directory.path}\n")
    sys.stdout.flush()
    try:
        return run_campaign(directory, clock=clock, webhook=asked.webhook)
    finally:
        attempts = directory.attempts()
        sys.stdout.write(f"trials     {summary(attempts)}\nindex      {directory.index}\n")
        if JobList.of(begun).next_job(attempts, begun, begun.duration_s) is not None:
            sys.stdout.write(
                f"resume     prozess run {begun.campaign.name} --resume {shlex.quote(str(directory.path))}\n"
            )


def _campaign_on_spark(asked: CampaignRequest, master: str) -> int:
    """Begins a campaign that has rounds on the machines of a Spark cluster, or continues it, each trial a task. Returns the
    exit code."""
    if asked.each.options:
        raise BadInput(f"With --master each machine checks its trials by threads. Leave {asked.each.options[0]} out.")
    if asked.resume is not None or asked.shard is not None:
        raise BadInput("--master shares the trials of all --rounds out itself. Leave --resume and --shard out.")
    found, runs, webhook = _wanted_campaign(asked), asked.runs, asked.webhook
    if trials_in_all(found) is None and asked.duration is None:
        raise BadInput(f"{asked.name} has no end: give --rounds, such as --rounds 10, or --for, such as --for 8h.")
    begun = BegunCampaign(campaign=found, seed=asked.seed)
    begin_shared(runs, {CAMPAIGN_FILE: begun})
    done = run_shared(
        "campaign",
        runs,
        JobList.of(begun),
        cluster=SparkCluster(master, asked.cores, None if asked.duration is None else parse_duration(asked.duration)),
        plan_of=lambda job: make_plan(load_trial(job.trial, job.settings), seed=job.seed),
        webhook=webhook,
    )
    with opened_results(runs) as directory:
        attempts = directory.attempts()
        write_index(directory, begun, attempts, runs_of(runs))
        index = f"{SharedResults.at(runs).address}/{directory.index.name}"
        sys.stdout.write(f"trials     {summary(attempts)}\nindex      {index}\n")
        code = int(exit_code(attempts) if done else ExitCode.UNKNOWN)
    if webhook is not None:
        webhook.post(trials_message(found.name, code, summary(attempts), index, webhook.host))
    return code


def begin_shared(location: str, files: Mapping[str, BaseModel]) -> None:
    """Writes the files that describe what is run into a location that is new. BadInput if it has others. `files`: name →
    content, campaign.json last."""
    shared = SharedResults.at(location)
    there = {name: shared.read(name) for name in files}
    if there[CAMPAIGN_FILE] is None:
        for name, content in files.items():
            shared.write(name, content.model_dump_json(indent=1).encode())
        return
    for name, content in files.items():
        with suppress(ValidationError):
            if type(content).model_validate_json(there[name] or b"") == content:
                continue
        raise BadInput(
            f"{shared.address} holds results of other trials, or of these before they were changed: its {name} is another. "
            "Give a new location."
        )


def run_shared(
    what: str,
    location: str,
    jobs: JobList,
    *,
    cluster: SparkCluster,
    plan_of: Callable[[TrialJob], Plan],
    webhook: Webhook | None,
) -> bool:
    """Runs the trials that were not run before, each as a task of Spark. Returns false if somebody interrupted. `what` they
    are: "campaign". `plan_of`: the plan of a trial. `webhook`: gets each violation."""
    shared = SharedResults.at(location)
    with opened_results(location) as directory:
        begun, before = directory.begun(), directory.attempts()
    print_known(what, shared.address, before, jobs.count)
    known = {attempt.job.number for attempt in before}
    numbers = itertools.count() if jobs.count is None else range(jobs.count)

    def over(attempt: TrialAttempt, host: str) -> None:
        _print_attempt(attempt, f" on {host}")
        _post(webhook, attempt, f"{shared.address}/runs")

    return run_on_spark(
        SparkTrials.of(begun.campaign, shared),
        (jobs.job(number) for number in numbers if number not in known),
        planned=jobs.count,
        cluster=cluster,
        plan_of=plan_of,
        on_attempt=over,
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


def _wanted_campaign(asked: CampaignRequest) -> Campaign:
    """Returns the campaign with the options of the command line. Raises BadInput before the first trial starts if any trial
    cannot be planned with a combination of its values."""
    found = find_campaign(asked.name)
    if asked.rounds is not None:
        found = found.model_copy(update={"rounds": asked.rounds})
    found = with_settings(found, asked.each.settings)
    for entry in found.entries:
        for laid_over in combinations(entry):
            make_plan(load_trial(entry.trial, laid_over), seed=asked.seed)
    return found


def _resumed(asked: CampaignRequest, path: Path) -> CampaignDirectory:
    directory = CampaignDirectory(path.resolve())
    begun = directory.begun()
    if given := asked.each.words():
        raise BadInput(
            f"--resume goes on with the settings and options that the campaign was begun with. Leave out {' '.join(given)}."
        )
    if asked.name not in (begun.campaign.name, "-"):
        raise BadInput(
            f"{path} holds the campaign {begun.campaign.name!r}, not {asked.name!r}. Give its name, or another directory."
        )
    if asked.duration is not None or asked.rounds is not None:
        raise BadInput("--resume continues a campaign for as long as it was to take. Leave --for and --rounds out.")
    if asked.shard is not None and parse_shard(asked.shard) not in (ALL_TRIALS, begun.shard):
        raise BadInput(
            f"{path} holds the share {begun.shard}, not {asked.shard}. Leave --shard out: --resume keeps the share."
        )
    return directory
