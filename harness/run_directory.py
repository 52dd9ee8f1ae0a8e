"""This module says where the files of a run are. Every stage reads its input here and writes its output here, so each
stage can be repeated alone.

plan.json          stage plan: enough to run it again
rows/              stage run: rows as the clients wrote them (harness/recording/rows.py); they survive any SIGKILL
source.json        only of a history that was imported or generated: the command, and what was planted
planted.parquet    only of a history that was generated: a row for each witness that was planted, and that a check
                   must find (prozess/exchange/synthetic/witnesses.py)
clock.json         {"start_monotonic_ns", "wall_minus_monotonic_ns", "wall_error_ns"}: the trial's clock, from the
                   moment when it started; missing = it never started
dictionaries.json  name → list of texts, for the columns that hold dictionary codes
steps/             only of a test: how far its application got with the records that its consumers gave it
journal.jsonl      undo journal of the nemesis
token              repeats the token of this machine's own record of the run (harness/machine_record.py)
lasting.json       only while the run changes a cluster that was there before it: how that was before
pids.jsonl, made.jsonl    the processes that could outlive the run; what it made in a cluster that stays
resolved.json      what the roles of each fault resolved to, and when
versions.json      versions of everything that the run depended on (harness/history/versions.py)
interrupted        an empty file; it is there if somebody stopped the run
compose.yaml       only of the compose backend; written before anything is made, so that what a run left in the
                   Docker engine can be found
cluster.json       facts about the cluster (Cluster.describe)
events.jsonl       progress of the run stage, one JSON object per line
recovery.json      list of what the cluster did not reach in time when it was healed; missing = the run did not get
                   so far
hanging.json       list of the transactions that were still open when the audit began, and what became of them
                   (prozess/app/run/hanging_transactions.py); missing = nobody looked
limits.json        list of what a stage of the run awaited for longer than its limit; missing = nothing
logs/              server logs of the nodes, output of the clients
history/           Parquet, one file per table; partitioned tables have one row group per partition
findings/          stage check: findings.parquet, witnesses.parquet, windows.parquet
impact.json        stage check: what each fault cost the clients (harness/impact/cost.py)
crash_points.json, crash_points_reached.jsonl    only of a test: where its applications should crash, and who got there
application.json   only of a test: what was found of its application, and what was not judged
verdict.json       stage judge
manifest.json      size and checksum of each of these files that a verdict rests on; missing = the run was killed
report.html, junit.xml, summary.md    stage report
"""

import json
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol

from prozess.harness import inputs
from prozess.harness.errors import BadInput, HistoryUnreadable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

REPORTS = ("report.html", "junit.xml", "summary.md")
_OF_DIRECTORIES = 0o700
_OF_FILES = 0o700
"""The bits of a file's own mode that are kept."""


@dataclass(frozen=True, slots=True)
class LostRows:
    """Rows of one table that are damaged: whoever reads the run reads as if they were not there."""

    table: str
    partitions: frozenset[int]
    """The partitions of which the table has damaged rows."""
    whole: bool
    """Whether nothing of the file can be read, so that all of its rows are lost."""
    why: str
    """What is wrong, as a clause."""

    @property
    def file(self) -> str:
        """Returns the damaged file, by its path within the run directory."""
        return f"history/{self.table}.parquet"


class TableStore(Protocol):
    """The tables of one history that are elsewhere, in an object store for example (`prozess.harness.history.store`)."""

    @property
    def filesystem(self) -> "fs.FileSystem":
        """Returns the file system of pyarrow's that has them."""
        ...

    @property
    def address(self) -> str:
        """Returns the URI of their directory, for people: without secrets."""
        ...

    @property
    def run_address(self) -> str:
        """Returns the URI of the run to which the tables belong."""
        ...

    def path(self, table: str) -> str:
        """Returns the path of a table's file, as the file system names it."""
        ...

    def names(self) -> list[str]:
        """Returns the names of the files that are there, in order."""
        ...

    def open(self, name: str) -> "pa.NativeFile":
        """Opens a file to be read anywhere. Raises OSError."""
        ...

    def digest(self, name: str) -> tuple[int, str]:
        """Returns the size of a file in bytes, and its SHA-256. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The directory of one run. It only names paths; `create` makes the directories."""

    path: Path
    tables: "TableStore | None" = None
    """Where the tables of the history are, if they are not in `history/`: in an object store, for example."""
    lost: tuple[LostRows, ...] = ()
    """What of the tables is damaged. Nothing that the rest says is known of these partitions."""

    @property
    def address(self) -> str:
        """Returns where the run is, for people: its path, or its URI."""
        return str(self.path.resolve()) if self.tables is None else self.tables.run_address

    @property
    def name(self) -> str:
        """Returns the last part of its address."""
        return self.address.rpartition("/")[2]

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def rows(self) -> Path:
        return self.path / "rows"

    @property
    def clock(self) -> Path:
        return self.path / "clock.json"

    @property
    def dictionaries(self) -> Path:
        return self.path / "dictionaries.json"

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def resolved(self) -> Path:
        return self.path / "resolved.json"

    @property
    def lasting(self) -> Path:
        return self.path / "lasting.json"

    @property
    def versions(self) -> Path:
        return self.path / "versions.json"

    @property
    def interrupted(self) -> Path:
        """This file is there, and empty, if somebody stopped the run."""
        return self.path / "interrupted"

    @property
    def compose(self) -> Path:
        return self.path / "compose.yaml"

    @property
    def cluster(self) -> Path:
        return self.path / "cluster.json"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def recovery(self) -> Path:
        return self.path / "recovery.json"

    @property
    def limits(self) -> Path:
        return self.path / "limits.json"

    @property
    def hanging(self) -> Path:
        return self.path / "hanging.json"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def nodes(self) -> Path:
        """Returns the data directories of local nodes, while these run."""
        return self.path / "nodes"

    @property
    def source(self) -> Path:
        """Returns how a history was imported or generated: {"command", …}. Only such runs have it."""
        return self.path / "source.json"

    @property
    def planted(self) -> Path:
        """The witnesses that were planted in a generated history. Only such runs have it."""
        return self.path / "planted.parquet"

    @property
    def history(self) -> Path:
        return self.path / "history"

    @property
    def findings(self) -> Path:
        return self.path / "findings"

    @property
    def impact(self) -> Path:
        return self.path / "impact.json"

    @property
    def manifest(self) -> Path:
        """Returns what every file was that a verdict rests on (prozess.harness.history.manifest)."""
        return self.path / "manifest.json"

    @property
    def application(self) -> Path:
        """Returns what a test found of its application (prozess.harness.verdict.ApplicationVerdict)."""
        return self.path / "application.json"

    @property
    def verdict(self) -> Path:
        return self.path / "verdict.json"

    def create(self) -> None:
        """Makes the directories that a run writes into. Only their owner may enter them."""
        self.path.mkdir(parents=True, exist_ok=True)
        with suppress(PermissionError):  # another user's directory, who lets us write there
            self.path.chmod(_OF_DIRECTORIES)
        for directory in (self.path, self.rows, self.logs, self.nodes):
            directory.mkdir(parents=True, exist_ok=True)

    def refuse_read_only(self) -> None:
        """Raises BadInput if a file that a check or a report writes cannot be written."""
        reports = (self.path / name for name in (*REPORTS, "seconds.json"))
        written = (self.path, self.history, self.findings, self.manifest, self.impact, self.verdict, *reports)
        for path in written:
            if path.exists() and not os.access(path, os.W_OK, effective_ids=True):
                raise BadInput(
                    f"{str(path)!r} cannot be written, and findings, verdict and reports are written there. "
                    "Make it writable, or copy the run and name the copy."
                )

    def refuse_links(self, *, only: Collection[str] = (), appended: Collection[str] = ()) -> None:
        """Raises BadInput if anything in the directory is neither a file nor a directory.

        No run has links, pipes or devices. Somebody who sends a directory could lead what is written into it elsewhere.
        `only`: what of the directory is looked at, if not all of it. `appended`: files that are changed in place, and must
        have no second name. All others are replaced as a whole."""
        for folder, directories, files in os.walk(self.path):
            if only and Path(folder) == self.path:
                directories[:] = [name for name in (*directories, *files) if name in only]
                files = []
            for name in (*directories, *files):
                path = Path(folder) / name
                found = path.lstat()
                shared = found.st_nlink > 1 and name in appended
                if not stat.S_ISDIR(found.st_mode) and (shared or not stat.S_ISREG(found.st_mode)):
                    raise BadInput(
                        f"{str(path)!r} is a {_kind(found.st_mode)}, and no run has one: what is written there could go "
                        "elsewhere. Remove it, if you trust the rest."
                    )

    def keep_private(self) -> None:
        """Lets only their owner read the files, whatever happened to them elsewhere. Files of other users stay as they
        are."""
        for path in (self.path, *self.path.rglob("*")):
            with suppress(OSError):
                if not path.is_symlink():
                    path.chmod(_OF_DIRECTORIES if path.is_dir() else path.stat().st_mode & _OF_FILES)

    def refuse_devices(self) -> None:
        """Raises BadInput if a name in the directory leads to a pipe, a socket or a device: who reads it could wait for ever,
        or read without an end."""
        for folder, _, files in os.walk(self.path):
            for name in files:
                path = Path(folder) / name
                with suppress(OSError):  # a link that leads nowhere
                    if not stat.S_ISREG(mode := path.stat().st_mode):
                        what = f"{str(path)!r} is a {_kind(mode)}"
                        raise BadInput(f"{what}, and the files of a run are files. Remove it, if you trust the rest.")

    @staticmethod
    def existing(path: Path) -> "RunDirectory":
        """Returns the directory of an earlier run. BadInput if it is none."""
        try:
            run = RunDirectory(path.resolve())
        except ValueError as error:
            raise BadInput(
                f"{str(path)!r} is no name of a directory ({error}). Give a directory under runs/."
            ) from error
        if not run.plan.is_file():
            raise BadInput(f"{str(path)!r} is not a run directory: it has no plan.json. Give a directory under runs/.")
        run.refuse_devices()
        return run


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISLNK, "link"), (stat.S_ISFIFO, "pipe"), (stat.S_ISREG, "file with a second name (a hard link)"))
    return next((name for test, name in kinds if test(mode)), "device or socket")


def is_within(name: str) -> bool:
    """Returns whether a path that a file of a run names stays within the run's directory, whoever wrote it."""
    if name[:1] not in ("", ".", "/") and "/." not in name and "\0" not in name:
        return True  # a manifest has hundreds of plain names, and to take each to pieces costs more than all else
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def seconds_in_all(parts: Mapping[str, float]) -> float:
    """Returns how long a run took, by the seconds of its parts (seconds.json). What is part of a part, as "run: audit" is of
    "run", is counted with that one."""
    return float(sum(took_s for name, took_s in parts.items() if ":" not in name))


def write_json(path: Path, value: object) -> None:
    """Writes a JSON file atomically: a reader sees the whole old file or the whole new one."""
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False))


def write_whole(path: Path, text: str) -> None:
    """Writes a text file atomically. Whatever had that name, a link or a pipe too, is replaced and never written through."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path, *, writer: int | None = None) -> Iterator[Path]:
    """Yields the path of a new, empty file beside `path`, which takes its name when the context ends without an error.

    A link with either name is removed and not followed: nothing outside of the directory is written. `writer`: a number that
    another process which writes the same file at the same time does not have."""
    part = path.with_name(f"{path.name}.part" if writer is None else f"{path.name}.{writer}.part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666))
    try:
        yield part
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    part.replace(path)


DOCUMENT_BYTES_MAX = 256 * 1024 * 1024
"""The plan of a million cells is shorter, and a stranger's may have no end: it is read whole."""


def read_document(path: Path) -> str:
    """Returns the text of a JSON file of a run. OSError also for one that is too long, or is no file and has no end."""
    return inputs.read_bytes(path, limit_bytes=DOCUMENT_BYTES_MAX).decode("utf-8")


def read_json(path: Path) -> Any:  # noqa: ANN401 - any JSON value
    """Returns the value in a JSON file of a run. HistoryUnreadable, with the file's name, if it is missing or torn."""
    try:
        return json.loads(read_document(path))
    except (OSError, ValueError, RecursionError) as error:
        raise HistoryUnreadable(f"{path} is missing or not readable as JSON: {error}.") from error


def read_object(path: Path) -> dict[str, Any]:
    """Returns the object in a JSON file of a run. HistoryUnreadable if the file is missing, torn, or holds anything
    else."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise HistoryUnreadable(
            f"{path} holds no JSON object. Make the run again, or put back the file that was there."
        )
    return value


def read_resolved(run: RunDirectory) -> list[dict[str, Any]]:
    """Returns the entries of resolved.json, which each have a `step_number`, a `role` and `nodes`. Empty if no fault
    struck. HistoryUnreadable if the file holds anything else."""
    entries = read_json(run.resolved) if run.resolved.exists() else []
    if not isinstance(entries, list) or not all(_is_aim(entry) for entry in entries):
        raise HistoryUnreadable(
            f"{run.resolved} is no list of what roles were when faults struck. Make the run again, or put back the file that "
            "was there."
        )
    return entries


def _is_aim(entry: object) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("step_number"), int):
        return False
    return isinstance(entry.get("role"), str) and isinstance(entry.get("parameters") or {}, dict) and "nodes" in entry
