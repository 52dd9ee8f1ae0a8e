"""This module says what a finished run says, read from its own files: plan, verdict, cost of the faults, times. Nothing
is judged again, and every table of many runs reads them here.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from prozess.harness.errors import BadInput, HistoryUnreadable, ProzessError
from prozess.harness.history.manifest import refuse_damaged
from prozess.harness.impact.cost import ImpactShown
from prozess.harness.plan.plan import Plan, parse_plan
from prozess.harness.run_directory import RunDirectory, read_document, read_object, seconds_in_all
from prozess.harness.values import Frozen
from prozess.harness.verdict import TrialVerdict

M = TypeVar("M", bound=Frozen)


@dataclass(frozen=True)
class RunSummary:
    """One run that is over. Each file is read once, when it is asked for; HistoryUnreadable if it is torn or is not what the
    manifest says."""

    run: RunDirectory

    @staticmethod
    def at(path: Path) -> "RunSummary":
        """Returns the summary of the run in that directory, which need not exist."""
        return RunSummary(RunDirectory(path))

    @cached_property
    def plan(self) -> Plan:
        """The plan. BadInput if it is of another version."""
        refuse_damaged(self.run, self.run.plan)
        try:
            text = read_document(self.run.plan)
        except (OSError, UnicodeDecodeError) as error:
            raise HistoryUnreadable(f"{self.run.plan} cannot be read: {error}.") from error
        return parse_plan(text, source=str(self.run.plan))

    @cached_property
    def verdict(self) -> TrialVerdict | None:
        """The verdict; None: it was not judged, or the machinery failed."""
        return self._read(self.run.verdict, TrialVerdict)

    @property
    def judged(self) -> TrialVerdict:
        """The verdict of a run that must have one. HistoryUnreadable if it has none."""
        if self.verdict is None:
            raise HistoryUnreadable(f"{self.run.path} has no verdict. `prozess check {self.run.path}` makes one.")
        return self.verdict

    @cached_property
    def impact(self) -> ImpactShown | None:
        """Returns what the faults cost; None: it was not checked."""
        return self._read(self.run.impact, ImpactShown)

    @cached_property
    def readable_verdict(self) -> TrialVerdict | None:
        """The verdict; None also where its file is torn or damaged."""
        try:
            return self.verdict
        except ProzessError:
            return None

    @cached_property
    def parts_s(self) -> dict[str, float]:
        """Returns the seconds that each part of the run took; empty where they were not noted."""
        try:
            return self.facts(self.run.path / "seconds.json")
        except HistoryUnreadable:  # no verdict rests on it
            return {}

    @property
    def took_s(self) -> float | None:
        """Returns the time from the command to the verdict. None: not noted."""
        return seconds_in_all(self.parts_s) if self.parts_s else None

    @property
    def cluster_kind(self) -> tuple[str, str]:
        """Returns where the run took place: backend and metadata mode."""
        return self.plan.backend, self.plan.variant.metadata_mode

    @property
    def versions(self) -> str:
        """The versions of Kafka, as planned."""
        return " and ".join(self.plan.variant.kafka_versions)

    @property
    def began(self) -> str:
        """Returns when it began (UTC), as the name of the directory ends; empty where it has another name."""
        parts = reversed(self.run.path.name.split("-"))
        return next((part for part in parts if "T" in part and part[:8].isdigit()), "")

    @property
    def by_known_defects(self) -> bool:
        """Was it violated by nothing but known defects of others, such as the client's?"""
        return self.verdict is not None and self.verdict.by_known_defects

    def counts(self, effect: Literal["forbidden", "permitted"]) -> dict[str, int]:
        """Returns, for each anomaly, how many witnesses of it have that effect in all cells; without those of which
        there are none."""
        found: Counter[str] = Counter()
        for cell in self.verdict.cells if self.verdict else ():
            for name, anomaly in cell.anomalies.items():
                found[name] += getattr(anomaly, effect)
        return dict(+found)

    def facts(self, path: Path) -> dict[str, Any]:
        """The object in another file of the run; empty where there is none."""
        refuse_damaged(self.run, path)
        return read_object(path) if path.is_file() else {}

    def _read(self, path: Path, model: type[M]) -> M | None:
        if not path.is_file():
            return None
        try:
            return model.model_validate(self.facts(path))
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(map(str, problem["loc"]))
            raise HistoryUnreadable(f"{path}: {where}: {problem['msg']}. `prozess check` writes it again.") from error


def run_directories(paths: Sequence[Path]) -> list[Path]:
    """Every run directory below these, campaigns included. BadInput if there is none."""
    found = sorted(
        {
            plan.parent.resolve()
            for path in paths
            for plan in [path / "plan.json", *path.glob("**/plan.json")]
            if plan.is_file()
        }
    )
    if not found:
        raise BadInput(f"There is no run below {', '.join(map(str, paths))}. Give directories of runs or of campaigns.")
    for path in found:
        RunDirectory(path).refuse_devices()
    return found
