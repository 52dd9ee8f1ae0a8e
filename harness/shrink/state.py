"""The files of a shrink, so that it can be gone on with after any interruption: what was tried is not tried again.

begun.json      the run it began with, what is looked for
attempts.jsonl  a line for each run, in order
smallest.json   the smallest plan so far that failed: `prozess run smallest.json` runs it
runs/           runs of the smallest plan; others are removed once they were looked at
shrink.md       what was found, for a person
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from harness.configuration import Frozen
from harness.errors import BadInput
from harness.plan import Plan, parse_plan
from harness.run_directory import write_json

Stage = Literal["original", "candidate", "result"]


class Wanted(Frozen):
    """What must come back: the anomaly, forbidden, in a cell of the same class."""

    anomaly: str
    workload: str
    axes: dict[str, str]

    def __str__(self) -> str:
        axes = ", ".join(f"{axis}={value}" for axis, value in self.axes.items())
        return f"{self.anomaly} in {self.workload} ({axes})"


class BegunShrink(Frozen):
    """begun.json"""

    run: str
    """Name of the run it began with."""
    wanted: Wanted
    duration_s: float
    format_version: int = 1


class Attempt(Frozen):
    """One run of one plan, over."""

    plan: str
    """Its key."""
    stage: Stage
    what: str
    """What is less in it."""
    hit: bool
    """The failure came back, with its faults effective."""
    failed: bool = False
    """The machinery gave no verdict: nothing was learnt."""
    run: str | None = None
    took_s: float


@dataclass(frozen=True, slots=True)
class ShrinkDirectory:
    """Where a shrink is."""

    path: Path

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def original(self) -> Path:
        return self.path / "original.json"

    @property
    def smallest(self) -> Path:
        return self.path / "smallest.json"

    @property
    def told(self) -> Path:
        return self.path / "shrink.md"

    @property
    def candidate(self) -> Path:
        """The plan that is being tried."""
        return self.path / "candidate.json"

    def begin(self, begun: BegunShrink, plan: Plan) -> None:
        """Make it."""
        self.runs.mkdir(parents=True)
        write_json(self.path / "begun.json", begun.model_dump(mode="json"))
        self.write_plan(self.original, plan)

    def begun(self) -> tuple[BegunShrink, Plan]:
        """What it is. BadInput if it is none."""
        try:
            begun = BegunShrink.model_validate_json((self.path / "begun.json").read_bytes())
            text = self.original.read_text(encoding="utf-8")
        except (OSError, ValidationError) as error:
            raise BadInput(
                f"{str(self.path)!r} is no directory of a shrink of this version: begun.json, original.json."
            ) from error
        return begun, parse_plan(text, source=str(self.original))

    def write_plan(self, path: Path, plan: Plan) -> None:
        """As `prozess run` takes it."""
        write_json(path, plan.model_dump(mode="json"))

    def append(self, attempt: Attempt) -> None:
        """Note it; on the disk when this returns."""
        with (self.path / "attempts.jsonl").open("ab", buffering=0) as file:
            file.write(attempt.model_dump_json().encode() + b"\n")
            os.fsync(file.fileno())

    def attempts(self) -> list[Attempt]:
        """Every one so far. A torn line is a run that was never noted."""
        return list(self._attempts())

    def _attempts(self) -> Iterator[Attempt]:
        try:
            lines = (self.path / "attempts.jsonl").read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        for line in lines:
            try:
                yield Attempt.model_validate_json(line)
            except ValidationError:
                continue


def key_of(plan: Plan) -> str:
    """The same for plans that ask for the same."""
    document: Mapping[str, object] = plan.model_dump(mode="json", exclude={"title", "replays", "scenarios"})
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
