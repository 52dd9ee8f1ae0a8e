"""Describes a campaign, and computes its n-th trial. The same campaign and seed give the same trials, however often the
campaign was interrupted."""

import itertools
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationError

from prozess.campaigns.engine import TRIAL_TIMEOUT_S, JobDirectory, TrialAttempt, TrialJob, Value, read_begun
from prozess.campaigns.kept_runs import Keep
from prozess.harness import inputs, machine_record
from prozess.harness.errors import BadInput
from prozess.harness.run_directory import RunDirectory, write_json
from prozess.harness.values import Frozen

FORMAT_VERSION = 1
CAMPAIGN_FILE = "campaign.json"


class Entry(Frozen):
    """A trial that a campaign may draw."""

    trial: Annotated[str, Field(min_length=1)]
    """The name or file of the trial."""
    weight: PositiveFloat = 1.0
    set: dict[str, tuple[Value, ...]] = Field(default_factory=dict)
    """Dotted key of the trial file → values, one of which is drawn each time. For axes that cost a trial of their own
    (metadata mode, version, session timeouts)."""


@dataclass(frozen=True, slots=True)
class TrialOverrides:
    """What the command line gives to each trial of a campaign."""

    settings: Mapping[str, object] = field(default_factory=dict)
    """Dotted key of the trial file → value, from `--set`."""
    options: tuple[str, ...] = ()
    """Options of `prozess run`, such as `--engine`, `local`."""

    def words(self) -> list[str]:
        """Returns the options as the user wrote them."""
        return [*(f"--set {key}={value}" for key, value in self.settings.items()), *self.options]


NO_OVERRIDES = TrialOverrides()


class Campaign(Frozen):
    """A campaign file: the trials to run, how often to run them, and which of their files to keep."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: str
    entries: Annotated[tuple[Entry, ...], Field(min_length=1)]
    rounds: PositiveInt | None = None
    """How often every entry is run with every combination of its values, each time with another seed. None: trials are
    drawn by weight until the time is over."""
    keep: Keep = Field(default_factory=Keep)
    retries: NonNegativeInt = 1
    """How often a trial is tried again if prozess itself failed. One that was violated or unknown is never tried again.
    """
    failures_in_a_row_max: PositiveInt = 5
    """If prozess itself failed in so many trials in a row, the campaign ends."""
    trial_timeout_s: PositiveFloat = TRIAL_TIMEOUT_S
    format_version: int = FORMAT_VERSION


def draw(campaign: Campaign, seed: int, number: int) -> TrialJob:
    """Returns the n-th trial of a campaign.

    With rounds: every combination in the order of the file, then all again. Otherwise every entry once, in an order
    that the seed gives; then by weight.
    """
    rng = random.Random(f"{seed} {number}")
    if campaign.rounds is not None:
        every = [(entry, settings) for entry in campaign.entries for settings in combinations(entry)]
        entry, settings = every[number % len(every)]
        return TrialJob(number=number, trial=entry.trial, seed=rng.randrange(1, 2**31), settings=settings)
    entries = list(campaign.entries)
    if number < len(entries):
        random.Random(f"{seed} order").shuffle(entries)
        entry = entries[number]
    else:
        entry = rng.choices(entries, [e.weight for e in entries])[0]
    settings = {key: rng.choice(values) for key, values in sorted(entry.set.items())}
    return TrialJob(number=number, trial=entry.trial, seed=rng.randrange(1, 2**31), settings=settings)


def combinations(entry: Entry) -> list[dict[str, Value]]:
    """Returns every combination of an entry's values."""
    return [dict(zip(entry.set, values, strict=True)) for values in product(*entry.set.values())]


def with_settings(campaign: Campaign, settings: Mapping[str, object]) -> Campaign:
    """Returns the campaign with these keys of its trials' files (dotted key → value) set in every trial, whatever it sets
    there itself. BadInput for a list or a table, which no key of a campaign can have."""
    for key, value in settings.items():
        if not isinstance(value, bool | int | float | str):
            raise BadInput(
                f"--set {key}={value!r}: a campaign gives a key one text, number or truth value. Write a trial file or a "
                "campaign file of your own for anything else."
            )
    fixed = {key: (value,) for key, value in settings.items()}
    entries = [Entry.model_validate(entry.model_dump() | {"set": entry.set | fixed}) for entry in campaign.entries]
    return campaign.model_copy(update={"entries": tuple(entries)})


def trials_in_all(campaign: Campaign) -> int | None:
    """Returns the number of trials in all rounds; None if the campaign has no rounds and goes on until its time is
    over."""
    return None if campaign.rounds is None else campaign.rounds * sum(len(combinations(e)) for e in campaign.entries)


def load_campaign(path: Path) -> Campaign:
    """Reads a campaign file. BadInput if it is none."""
    return parse_campaign(inputs.read_toml(path, "Campaign"), source=str(path))


def parse_campaign(document: dict[str, Any], *, source: str) -> Campaign:
    """Makes a campaign of a parsed document. BadInput names what is wrong; a file of another version is refused."""
    version = document.get("format_version", FORMAT_VERSION)
    if version != FORMAT_VERSION:
        raise BadInput(
            f"{source} is a campaign of version {version}, and this prozess reads version {FORMAT_VERSION}. Begin a new one."
        )
    try:
        campaign = Campaign.model_validate(document)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"])) or "the file"
        raise BadInput(
            f"{source}: {where} = {problem['input']!r}: {problem['msg'].removeprefix('Value error, ')}."
        ) from error
    for entry in campaign.entries:
        if empty := next((key for key, values in entry.set.items() if not values), None):
            raise BadInput(f"{source}: {entry.trial}: set.{empty} has no values. Give at least one, or remove it.")
    return campaign


class Shard(Frozen):
    """The share of one machine: every n-th trial. Machines that know nothing of each other run all trials together."""

    number: PositiveInt = 1
    """The number of the share, from 1."""
    of: PositiveInt = 1
    """How many machines share the trials out."""

    def has(self, number: int) -> bool:
        """Returns whether the trial with this number, from 0, is in the share."""
        return number % self.of == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


ALL_TRIALS = Shard()
"""The share of a machine that runs all trials."""


def parse_shard(text: str) -> Shard:
    """Turns "3/16" into the third of sixteen shares. BadInput for anything else."""
    matched = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    number, of = (int(matched[1]), int(matched[2])) if matched else (0, 0)
    if not 1 <= number <= of:
        raise BadInput(f"--shard {text!r} is not a share. Give one such as 3/16: the third of sixteen machines.")
    return Shard(number=number, of=of)


class BegunCampaign(Frozen):
    """The file campaign.json: the campaign, its seed, how long it may take, and which share of it this is."""

    campaign: Campaign
    seed: int
    duration_s: float | None = None
    """None: until its rounds are over."""
    shard: Shard = ALL_TRIALS
    options: tuple[str, ...] = ()
    """Options of `prozess run` that every trial has, such as `--engine`, `local`."""
    format_version: int = FORMAT_VERSION


@dataclass(frozen=True, slots=True)
class CampaignDirectory(JobDirectory):
    """Where the files of a campaign are: what was begun (campaign.json), its attempts, its runs, and `index.html`."""

    @property
    def index(self) -> Path:
        return self.path / "index.html"

    @property
    def is_there(self) -> bool:
        """Returns whether there is a campaign, of whatever version."""
        return self._campaign.is_file()

    @property
    def _campaign(self) -> Path:
        return self.path / CAMPAIGN_FILE

    def begin(self, begun: BegunCampaign, more: Mapping[str, Frozen] | None = None) -> None:
        """Makes the directory. `more`: name → content of further JSON files. campaign.json is the last file: a directory
        without it was not begun, and can be begun again. BadInput if there is a campaign already."""
        if self._campaign.exists():
            raise BadInput(
                f"{self.path} has a campaign already. Continue it with --resume {self.path}, or give another --runs."
            )
        self.runs.mkdir(parents=True, exist_ok=True)
        machine_record.begin(RunDirectory(self.path))
        for name, content in (more or {}).items():
            write_json(self.path / name, content.model_dump(mode="json"))
        write_json(self._campaign, begun.model_dump(mode="json"))

    def begun(self) -> BegunCampaign:
        """Reads campaign.json. BadInput if it is missing or of another version."""
        return read_begun(self._campaign, "campaign", BegunCampaign, FORMAT_VERSION)


@dataclass(frozen=True, slots=True)
class JobList:
    """All trials of a campaign or of a matrix."""

    count: int | None
    """How many there are. None: there is no end."""
    job: Callable[[int], TrialJob]
    """Returns the trial with a number, from 0."""

    @staticmethod
    def of(begun: BegunCampaign) -> "JobList":
        """Returns the trials of a campaign."""
        return JobList(trials_in_all(begun.campaign), partial(draw, begun.campaign, begun.seed))

    def next_job(
        self, attempts: Sequence[TrialAttempt], begun: BegunCampaign, limit_s: float | None
    ) -> TrialJob | None:
        """Returns the next trial of a share. None if all are over, or if the attempts took `limit_s` together."""
        if limit_s is not None and sum(attempt.took_s for attempt in attempts) >= limit_s:
            return None
        found = next_number(attempts, begun.campaign.retries, begun.shard, self.count)
        return None if found is None else self.job(found[0]).model_copy(update={"attempt": found[1]})


def next_number(
    attempts: Iterable[TrialAttempt], retries: int, shard: Shard = ALL_TRIALS, count: int | None = None
) -> tuple[int, int] | None:
    """Returns (the number of the next trial of a share, which attempt at it): the first one that was not run, or in which
    prozess itself failed and may try again. None if all `count` trials are over; `count` None = there is no end."""
    last = {attempt.job.number: attempt for attempt in attempts}
    numbers = itertools.count() if count is None else range(count)
    for number in filter(shard.has, numbers):
        if (over := last.get(number)) is None:
            return number, 0
        if over.failed and over.job.attempt < retries:
            return number, over.job.attempt + 1
    return None
