"""The files of a campaign: what it is, and a line for each trial that was run. Appended and flushed, so that it can go on
after any interruption.

campaign.json    the campaign, its seed, and how long it is to take
entries.jsonl    one line per attempt, in order
runs/            run directories
index.html       every trial, with links
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from harness.campaign.plan import FORMAT_VERSION, Campaign, Drawn
from harness.configuration import Frozen
from harness.errors import BadInput, StorageFull
from harness.run_directory import write_json

_OWN = "prozess: "
"""Before what prozess says itself."""


class Attempt(Frozen):
    """One attempt at one trial, over."""

    drawn: Drawn
    attempt: int = 0
    exit_code: int
    """Of `prozess run`: 0 held, 1 violated, 2 unknown, 254 and 255 no verdict; negative: it was killed."""
    verdict: str | None = None
    """None = there is none."""
    run: str | None = None
    """Name of the run directory; None = there was none."""
    began_s: float
    """Wall clock (Unix time): nights are told apart by it."""
    took_s: float
    cpu_s: float = 0.0
    """Of all its processes, as far as they were waited for."""
    memory_bytes: int = 0
    """The largest process of any trial of this campaign until then; 0: not noted."""
    own_memory_bytes: int = 0
    """Of the campaign's own process, at most until then: it must not grow."""
    reason: str = ""
    """Why there is no verdict: the end of what was said."""
    findings: dict[str, int] = Field(default_factory=dict)

    @property
    def why(self) -> str:
        """The reason in a line: what prozess itself said, else the last words."""
        lines = [line.strip() for line in self.reason.splitlines() if line.strip()]
        own = [line.removeprefix(_OWN) for line in lines if line.startswith(_OWN)]
        return (own or lines or ["it said nothing"])[-1]

    @property
    def failed(self) -> bool:
        """Did the machinery fail, so that nothing was learnt of Kafka?"""
        return self.verdict is None


class Begun(Frozen):
    """campaign.json"""

    campaign: Campaign
    seed: int
    duration_s: float | None = None
    """None = until its rounds are over."""
    format_version: int = FORMAT_VERSION


@dataclass(frozen=True, slots=True)
class CampaignDirectory:
    """Where a campaign is."""

    path: Path

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def index(self) -> Path:
        return self.path / "index.html"

    @property
    def is_there(self) -> bool:
        """Is there a campaign, of whatever version?"""
        return self._campaign.is_file()

    @property
    def _campaign(self) -> Path:
        return self.path / "campaign.json"

    @property
    def _entries(self) -> Path:
        return self.path / "entries.jsonl"

    def begin(self, begun: Begun) -> None:
        """Make it. BadInput if there is one already."""
        if self._campaign.exists():
            raise BadInput(
                f"{self.path} is a campaign already. Go on with it by --resume {self.path}, or give another --runs."
            )
        self.runs.mkdir(parents=True, exist_ok=True)
        write_json(self._campaign, begun.model_dump(mode="json"))

    def begun(self) -> Begun:
        """What it is. BadInput if it is none, or of another version."""
        try:
            document = json.loads(self._campaign.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise BadInput(f"{str(self.path)!r} is no campaign: it has no campaign.json.") from error
        except (OSError, ValueError) as error:
            raise BadInput(f"{self._campaign} cannot be read: {error}.") from error
        version = document.get("format_version") if isinstance(document, dict) else None
        if version != FORMAT_VERSION:
            raise BadInput(f"{self.path} is a campaign of version {version}; this prozess reads {FORMAT_VERSION}.")
        try:
            return Begun.model_validate(document)
        except ValidationError as error:
            raise BadInput(f"{self._campaign} is damaged: {error.errors()[0]['msg']}.") from error

    def append(self, attempt: Attempt) -> None:
        """Note it; on the disk when this returns. StorageFull if it cannot be."""
        line = attempt.model_dump_json().encode() + b"\n"
        try:
            with self._entries.open("ab", buffering=0) as file:
                if (torn := _torn(self._entries)) is not None:
                    file.truncate(torn)
                file.write(line)
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageFull(f"{self._entries} cannot be written: {error.strerror}.") from error

    def attempts(self) -> list[Attempt]:
        """Every attempt so far, in order. A torn last line is one that was never noted."""
        return list(self._attempts())

    def _attempts(self) -> Iterator[Attempt]:
        if not self._entries.exists():
            return
        for line in self._entries.read_bytes().split(b"\n")[:-1]:
            try:
                yield Attempt.model_validate_json(line)
            except ValidationError as error:
                raise BadInput(f"{self._entries} is damaged: {error.errors()[0]['msg']}.") from error


def _torn(path: Path) -> int | None:
    """Where a last line without an end begins; None = there is none."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    return whole if whole < len(content) else None


def next_number(attempts: list[Attempt], retries: int) -> tuple[int, int]:
    """(number of the trial that is next, which attempt at it). A trial that the machinery failed is tried again."""
    if not attempts:
        return 0, 0
    last = attempts[-1]
    if last.failed and last.attempt < retries:
        return last.drawn.number, last.attempt + 1
    return last.drawn.number + 1, 0
