"""What a campaign is, and which trial is its n-th. Pure: the same campaign and seed draw the same trials, however often it
was interrupted."""

import random
import re
import tomllib
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)

from harness.configuration import Frozen
from harness.errors import BadInput

FORMAT_VERSION = 1
Value = StrictBool | StrictInt | StrictFloat | StrictStr
"""Of a key of a trial file, as the campaign's file has it: what a number is, stays one."""


class Entry(Frozen):
    """A trial that may be drawn."""

    trial: Annotated[str, Field(min_length=1)]
    """Name or file."""
    weight: PositiveFloat = 1.0
    set: dict[str, tuple[Value, ...]] = Field(default_factory=dict)
    """Dotted key of the trial file → values, one of which is drawn each time: the axes that cost a trial of their own
    (metadata mode, version, session timeouts)."""


class Keep(Frozen):
    """What stays of a run on the disk. Verdict, findings, report, plan and what was hit always do; everything stays of a run
    that was violated or unknown."""

    held: Literal["everything", "history", "verdict"] = "verdict"
    """Of a run that held: everything; its tables without rows and data of nodes; neither."""
    disk_max_gib: PositiveFloat = 20.0
    """Beyond this the oldest runs that held lose more, then the campaign stops, and says so."""


class Campaign(Frozen):
    """A campaign file."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: str
    entries: Annotated[tuple[Entry, ...], Field(min_length=1)]
    rounds: PositiveInt | None = None
    """Every entry with every combination of its values, so many times, each time with another seed; then it is over. None: by
    weight, until its time is over."""
    keep: Keep = Field(default_factory=Keep)
    retries: NonNegativeInt = 1
    """How often a trial that the machinery failed (never one that was violated or unknown) is tried again."""
    failures_in_a_row_max: PositiveInt = 5
    """So many trials in a row that the machinery failed end the campaign."""
    trial_timeout_s: PositiveFloat = 1800.0
    format_version: int = FORMAT_VERSION


class Drawn(Frozen):
    """The n-th trial of a campaign."""

    number: NonNegativeInt
    trial: str
    seed: int
    settings: dict[str, Value] = Field(default_factory=dict)


def draw(campaign: Campaign, seed: int, number: int) -> Drawn:
    """In rounds: every combination in the order of the file, then all again. Else every entry once in the first round, in an
    order of the seed's; then by weight."""
    rng = random.Random(f"{seed} {number}")
    if campaign.rounds is not None:
        every = [(entry, settings) for entry in campaign.entries for settings in combinations(entry)]
        entry, settings = every[number % len(every)]
        return Drawn(number=number, trial=entry.trial, seed=rng.randrange(1, 2**31), settings=settings)
    entries = list(campaign.entries)
    if number < len(entries):
        random.Random(f"{seed} order").shuffle(entries)
        entry = entries[number]
    else:
        entry = rng.choices(entries, [e.weight for e in entries])[0]
    settings = {key: rng.choice(values) for key, values in sorted(entry.set.items())}
    return Drawn(number=number, trial=entry.trial, seed=rng.randrange(1, 2**31), settings=settings)


def combinations(entry: Entry) -> list[dict[str, Value]]:
    """Each of its values with each of the others."""
    return [dict(zip(entry.set, values, strict=True)) for values in product(*entry.set.values())]


def is_over(campaign: Campaign, number: int) -> bool:
    """Are all rounds run before this trial?"""
    in_all = trials_in_all(campaign)
    return in_all is not None and number >= in_all


def trials_in_all(campaign: Campaign) -> int | None:
    """In every round together; None: it has none, and goes on until its time is over."""
    return None if campaign.rounds is None else campaign.rounds * sum(len(combinations(e)) for e in campaign.entries)


def load_campaign(path: Path) -> Campaign:
    """The campaign in that file. BadInput if it is none."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInput(f"{str(path)!r} does not exist. Give a campaign's .toml file.") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{str(path)!r} cannot be read as TOML: {error}.") from error
    return parse_campaign(document, source=str(path))


def parse_campaign(document: dict[str, Any], *, source: str) -> Campaign:
    """A campaign from a parsed document. BadInput names what is wrong; a file of another version is refused."""
    version = document.get("format_version", FORMAT_VERSION)
    if version != FORMAT_VERSION:
        raise BadInput(
            f"{source} is a campaign of version {version}; this prozess reads {FORMAT_VERSION}. Begin a new one."
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


_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_duration(text: str) -> float:
    """ "90s", "30m", "8h", "1h30m" → seconds. BadInput otherwise."""
    if not re.fullmatch(r"(\d+(\.\d+)?[smhd])+", text.strip()):
        raise BadInput(f"--for {text!r} is no duration. Give 90s, 30m, 8h, 1h30m.")
    return sum(float(number) * _UNITS_S[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)([smhd])", text))
