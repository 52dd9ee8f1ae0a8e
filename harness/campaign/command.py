"""`prozess run NAME --for 8h` or `--rounds 10`: begins a campaign, or goes on with one."""

import sys
from datetime import UTC, datetime
from pathlib import Path

from harness.campaign.plan import Campaign, Entry, combinations, load_campaign, parse_duration
from harness.campaign.runner import run_campaign, summary
from harness.campaign.state import Begun, CampaignDirectory
from harness.clock import NS_PER_S, SystemClock
from harness.errors import BadInput
from harness.trial import known_campaigns, known_trials, load_trial


def campaign(
    name: str, *, seed: int, runs: Path, duration: str | None, resume: Path | None, rounds: int | None = None
) -> int:
    """The exit code: 0 all held, 1 a trial was violated, 2 unknown or interrupted. It ends when `duration` or `rounds` are
    over, whichever is first."""
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
        directory.begin(Begun(campaign=found, seed=seed, duration_s=seconds))
    sys.stdout.write(f"campaign   {directory.path}\n")
    try:
        return run_campaign(directory, clock=clock)
    finally:
        sys.stdout.write(f"trials     {summary(directory.attempts())}\nindex      {directory.index}\n")


def find_campaign(name: str) -> Campaign:
    """A campaign by name or file; the name of a trial is a campaign of that trial alone. BadInput if it is neither."""
    if name.endswith(".toml") or "/" in name:
        return load_campaign(Path(name))
    if name in (campaigns := known_campaigns()):
        return load_campaign(campaigns[name])
    if name in (trials := known_trials()):
        return Campaign(name=name, title=load_trial(name).title, entries=(Entry(trial=name),))
    raise BadInput(f"There is no campaign and no trial {name!r}. Known: {', '.join([*campaigns, *sorted(trials)])}.")


def _check_trials(found: Campaign) -> None:
    """BadInput now, not in the middle of the night: every trial with each combination of its values can be loaded."""
    for entry in found.entries:
        for settings in combinations(entry):
            load_trial(entry.trial, settings)


def _resumed(path: Path, name: str, duration: str | None, rounds: int | None) -> CampaignDirectory:
    directory = CampaignDirectory(path.resolve())
    begun = directory.begun()
    if name not in (begun.campaign.name, "-"):
        raise BadInput(f"{path} is a campaign of {begun.campaign.name!r}, not of {name!r}.")
    if duration is not None or rounds is not None:
        raise BadInput("--resume: a campaign goes on for as long as it was to take. Leave --for and --rounds away.")
    return directory
