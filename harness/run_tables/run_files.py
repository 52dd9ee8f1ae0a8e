"""The files of one run directory, as tables over many runs need them: each is read once, through no link, and compared with
the manifest before anything of it is believed.

Only a part of a plan and of a verdict is read. Most of a verdict are the witnesses that a report shows, and the table of
witnesses has all of them.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from prozess.harness.clock import NS_PER_S
from prozess.harness.config.configuration import DeliveryBound, ProducerConfiguration, TopicConfiguration, Variant
from prozess.harness.errors import ProzessError
from prozess.harness.history.manifest import NO_MANIFEST, own_digest_of
from prozess.harness.history.readable import wall_ns_of
from prozess.harness.history.store import RUN_MARKS
from prozess.harness.impact.cost import ImpactShown
from prozess.harness.plan.cell_work import PLAIN, CellWork
from prozess.harness.run_directory import RunDirectory, is_within
from prozess.harness.schema import FORMAT_VERSION
from prozess.harness.verdict import AnomalyOutcome, FaultShown, Verdict

READ = (*RUN_MARKS, "clock.json", "impact.json", "cluster.json", "versions.json", "findings/findings.parquet",
        "findings/witnesses.parquet")  # fmt: skip
"""The files that tables are made of."""
UNPROVEN = ("seconds.json", "logs/")
"""What else is read: the manifest has neither."""
_BYTES_MAX = 1 << 30
_STAMP = re.compile(r"-(\d{8}T\d{6})(?:-\d+)?")
"""How the name of a run directory ends."""
_ID_BYTES, _NAME_CHARACTERS = 5, 150


class PartRead(BaseModel):
    """A value of a file of which only a part is read."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class CellPlanned(PartRead):
    """What of a planned cell the tables show."""

    cell: int
    name: str
    workload: str
    topic_name: str
    axes: dict[str, str]
    topic: TopicConfiguration
    producer: ProducerConfiguration
    work: CellWork = PLAIN
    partitions: tuple[int, ...]
    delivery_bound: DeliveryBound | None = None


class PartitionNamed(PartRead):
    """The topic and Kafka's number of a planned partition."""

    partition: int
    topic_name: str
    number: int


class PlanRead(PartRead):
    """What of a plan the tables show."""

    format_version: int
    origin: str = "trial"
    trial: str
    title: str
    seed: int
    backend: str
    variant: Variant
    scenarios: tuple[str, ...] = ()
    cells: tuple[CellPlanned, ...]
    partitions: tuple[PartitionNamed, ...]


class OutcomeRead(PartRead):
    """What of an anomaly in a cell the tables show. Witnesses are not read: they are most of a verdict."""

    anomaly: str
    outcome: AnomalyOutcome
    verdict: Verdict
    count: int = 0
    forbidden: int = 0
    permitted: int = 0
    unknown: int = 0
    not_applicable: int = 0
    proven: bool | None = None
    reason: str = ""
    why: str = ""
    defects: tuple[str, ...] = ()
    known: dict[str, int] = Field(default_factory=dict)
    by_rule: dict[str, int] = Field(default_factory=dict)


class CellRead(PartRead):
    """What of a judged cell the tables show."""

    cell: int
    workload: str
    verdict: Verdict
    anomalies: dict[str, OutcomeRead]


class JudgedRead(PartRead):
    """An alert, or an anomaly of an application, as far as it may have violated something."""

    verdict: Verdict | None = None
    outcome: AnomalyOutcome | None = None


class ControlRead(PartRead):
    """What of a control the tables show."""

    anomaly: str
    cells: tuple[int, ...]
    fired_in: tuple[int, ...]
    count: int
    required: bool


class ApplicationRead(PartRead):
    """What a verdict says of an application."""

    anomalies: tuple[JudgedRead, ...] = ()


class VerdictRead(PartRead):
    """What of a verdict the tables show."""

    verdict: Verdict
    sentence: str
    interrupted: bool = False
    cells: tuple[CellRead, ...]
    controls: tuple[ControlRead, ...] = ()
    unknown_reasons: tuple[str, ...] = ()
    faults: tuple[FaultShown, ...] = ()
    alerts: tuple[JudgedRead, ...] = ()
    application: ApplicationRead | None = None
    server_errors: str | None = None
    findings: dict[str, int] = Field(default_factory=dict)


class ProofRead(PartRead):
    """What a manifest says of one file."""

    part: str
    size: int
    sha256: str


class ManifestRead(PartRead):
    """What of a manifest is needed to compare files with it."""

    files: dict[str, ProofRead]
    sha256: str


T = TypeVar("T")


@dataclass
class RunFiles:
    """The files of one run, each read once and compared with the manifest. `trouble`: file → what is wrong with it."""

    run: RunDirectory
    name: str
    address: str
    trouble: dict[str, str] = field(default_factory=dict)
    unreadable: bool = False
    contents: dict[str, bytes] = field(default_factory=dict)
    proofs: Mapping[str, ProofRead] | None = None
    """What the manifest says of each file. None: there is no manifest that can be believed."""

    @staticmethod
    def of(run: RunDirectory, name: str, address: str) -> "RunFiles":
        """Reads the files of a run, whatever is wrong with them."""
        files = RunFiles(run, name, address)
        for path in READ:
            try:
                content = read_unlinked(run.path, path)
            except OSError as error:
                files.trouble[path] = error.strerror or str(error)
            else:
                if content is not None:
                    files.contents[path] = content
        files.proofs = files._manifest()
        if files.proofs is not None:
            files._compare(files.proofs)
        return files

    def _manifest(self) -> Mapping[str, ProofRead] | None:
        if (content := self.contents.get("manifest.json")) is None:
            return None
        try:
            read = ManifestRead.model_validate_json(content)
            if read.sha256 == own_digest_of(content) and all(is_within(name) for name in read.files):
                return read.files
            self.trouble["manifest.json"] = "has changed since it was written"
        except ValueError:
            self.trouble["manifest.json"] = "is no manifest of this version"
        return None

    def _compare(self, proofs: Mapping[str, ProofRead]) -> None:
        for path in (path for path in READ if path != "manifest.json" and path not in self.trouble):
            content, proof = self.contents.get(path), proofs.get(path)
            if proof is None and content is not None:
                self.trouble[path] = "was added later: the manifest does not name it"
            elif proof is not None and content is None:
                self.trouble[path] = "is missing"
            elif proof is not None and hashlib.sha256(content or b"").hexdigest() != proof.sha256:
                self.trouble[path] = "has changed since it was written (its SHA-256 differs)"

    def _parsed(self, path: str, parse: Callable[[bytes], T]) -> T | None:
        """Returns a file's value. None: it is not there, or it is damaged; or it is no such file, which is noted."""
        content = self.contents.get(path)
        if content is None or path in self.trouble:
            return None
        try:
            return parse(content)
        except (ValueError, ProzessError) as error:
            self.trouble[path], self.unreadable = f"is not of this version: {first_problem(error)}", True
            return None

    @cached_property
    def plan(self) -> PlanRead | None:
        """The plan; None: it cannot be read."""
        return self._parsed("plan.json", _plan)

    @cached_property
    def verdict(self) -> VerdictRead | None:
        """The verdict; None: it has none that can be read."""
        return self._parsed("verdict.json", VerdictRead.model_validate_json)

    @cached_property
    def impact(self) -> ImpactShown | None:
        """What the faults cost; None: nobody measured it."""
        return self._parsed("impact.json", ImpactShown.model_validate_json)

    @cached_property
    def wall_ns(self) -> int | None:
        """The wall clock when the trial's clock began; None: it is not known."""
        return self._parsed("clock.json", lambda content: wall_ns_of(object_of(content)))

    def object_in(self, path: str) -> Mapping[str, Any]:
        """Returns the object in one of the files, empty if that cannot be read."""
        return self._parsed(path, object_of) or {}

    @property
    def state(self) -> str:
        """Returns what became of the run: unreadable, damaged, unproven, not judged or judged (column `runs.state`)."""
        _ = self.plan, self.verdict, self.impact, self.wall_ns  # reading them finds out what is wrong with them
        if self.trouble:
            return "unreadable" if self.unreadable else "damaged"
        if self.proofs is None:
            return "unproven"
        return "not judged" if self.verdict is None else "judged"

    @property
    def problem(self) -> str | None:
        """Returns why the state is not `judged`."""
        if self.trouble:
            return "; ".join(f"{path} {why}" for path, why in self.trouble.items())
        if self.proofs is None:
            return NO_MANIFEST
        return None if self.verdict is not None else "it has no verdict.json: `prozess check` makes one"

    @cached_property
    def id(self) -> str:
        """The id of the run. It stays when the run is checked again or copied, and two runs never share one: it has the
        digest of what was recorded."""
        proofs = self.proofs or {}
        parts = ("recorded",) if any(name.startswith("rows/") for name in proofs) else ("recorded", "history")
        recorded = {name: proof.sha256 for name, proof in proofs.items() if proof.part in parts}
        digests = recorded or {
            path: hashlib.sha256(self.contents.get(path, b"")).hexdigest() for path in ("plan.json", "clock.json")
        }
        digest = hashlib.blake2b("\n".join(map(" ".join, sorted(digests.items()))).encode(), digest_size=_ID_BYTES)
        plain = re.sub(r"[^A-Za-z0-9.-]", "_", self.name)[:_NAME_CHARACTERS].lstrip("._-")
        return f"{plain or 'run'}-{digest.hexdigest()}"

    @cached_property
    def began(self) -> datetime | None:
        """When the run began."""
        if (stamp := _STAMP.search(self.name)) is not None and stamp.end() == len(self.name):
            with suppress(ValueError):
                return datetime.strptime(stamp[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        return None if self.wall_ns is None else datetime.fromtimestamp(self.wall_ns // NS_PER_S, UTC)

    @property
    def day(self) -> date | None:
        """Returns the day on which the run began."""
        return None if self.began is None else self.began.date()

    def at(self, seconds: float | None) -> datetime | None:
        """Returns the wall clock at a moment of the trial."""
        if seconds is None or self.wall_ns is None:
            return None
        return datetime.fromtimestamp(self.wall_ns / NS_PER_S + seconds, UTC)


def read_unlinked(folder: Path, name: str) -> bytes | None:
    """Returns what is in a file below a folder; None if it is not there. OSError with the reason if it is no file, or if it
    is reached through a link."""
    *above, last = name.split("/")
    for number in range(len(above)):
        if folder.joinpath(*above[: number + 1]).is_symlink():
            raise OSError(0, "is reached through a link, and no run has one")
    try:
        descriptor = os.open(folder.joinpath(*above, last), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OSError(error.errno, f"cannot be read ({error.strerror})") from error
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "is no file")
        if found.st_size > _BYTES_MAX:
            raise OSError(0, f"has {found.st_size:,} bytes, and no such file is so large")
        return file.read()


def _plan(content: bytes) -> PlanRead:
    plan = PlanRead.model_validate_json(content)
    if plan.format_version != FORMAT_VERSION:
        raise ValueError(f"it has format version {plan.format_version}")
    return plan


def object_of(content: bytes) -> dict[str, Any]:
    """Returns the object in a JSON file. ValueError if it holds anything else."""
    value = from_json(content)
    if not isinstance(value, dict):
        raise ValueError("it holds no JSON object")
    return value


def first_problem(error: Exception) -> str:
    """Returns what is wrong with a file, in one line, without anything that the file says."""
    if isinstance(error, ValidationError):
        problem = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}".lstrip(": ")
    return str(error).splitlines()[0]
