"""A stored run on another file system than this machine's: an object store, or whatever pyarrow can read.

Its small files are copied here, into a directory of their own. The tables of its history stay where they are: whoever
checks them, here or on Spark's workers, reads the parts of them that it needs from there.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyarrow import fs

from prozess.harness.errors import BadInput, HistoryUnreadable
from prozess.harness.history.convert import write_history
from prozess.harness.history.manifest import JUDGED, RECORDED, condition_of, seal_history
from prozess.harness.run_directory import RunDirectory

SMALL = frozenset({*RECORDED, *JUDGED, "manifest.json", "events.jsonl", "interrupted"})
"""The files beside rows, tables and findings that a check or a judge looks at."""
_READ_BYTES = 8 << 20
"""How much of a file is read at a time."""


@dataclass(frozen=True)
class TableStore:
    """The tables of one history on a file system of pyarrow's. It can be pickled, and sent to Spark's workers with what it
    takes to log in."""

    filesystem: fs.FileSystem
    directory: str
    """The directory of the tables, as that file system names it."""
    address: str
    """The same for people: a URI without secrets."""

    def path(self, table: str) -> str:
        """Returns the path of a table's file, as the file system names it."""
        return f"{self.directory}/{table}.parquet"

    def names(self) -> list[str]:
        """Returns the names of the files that are there, in order."""
        return [name for name, _ in files_in(self.filesystem, self.directory) if name.endswith(".parquet")]

    def digest(self, name: str) -> tuple[int, str]:
        """Returns the size of a file in bytes, and its SHA-256. Raises OSError."""
        with self.filesystem.open_input_stream(f"{self.directory}/{name}") as stream:
            digest, size = hashlib.sha256(), 0
            while content := stream.read(_READ_BYTES):
                digest.update(content)
                size += len(content)
            return size, digest.hexdigest()


@dataclass(frozen=True)
class StoredRun:
    """A run directory on a file system of pyarrow's."""

    filesystem: fs.FileSystem
    directory: str
    """The run directory, as that file system names it."""
    address: str
    """The same for people: a URI without secrets."""

    @property
    def tables(self) -> TableStore:
        """Where the tables of its history are."""
        return TableStore(self.filesystem, f"{self.directory}/history", f"{self.address}/history")

    @contextmanager
    def opened(self) -> Iterator[RunDirectory]:
        """A context in which the run is open: its small files are in a directory here, which is removed in the end, and the
        tables are read where they are. A history that is not there is made here from the rows, and copied there.

        BadInput if there is no run; HistoryUnreadable if a file cannot be read or written.
        """
        with TemporaryDirectory(prefix="prozess-run-") as directory:
            run = RunDirectory(Path(directory))
            run.create()
            with self._said("read"):
                self._fetch(run, "", SMALL)
                self._fetch(run, "findings")
                there = self.tables.names()
            if not run.plan.is_file():
                raise BadInput(f"{self.address} is not a run directory: it has no plan.json. Give a directory of runs.")
            if not there:
                with self._said("read"):
                    self._fetch(run, "rows")
            if there or self._made_history(run):
                run = RunDirectory(run.path, self.tables)
            yield run

    def keep(self, run: RunDirectory) -> None:
        """Copies what a check has written back to where the run is. HistoryUnreadable if that fails."""
        with self._said("written"):
            self._send(run, "findings", run.findings.glob("*.parquet"))
            self._send(run, "", (run.impact, run.verdict, run.manifest))

    def _made_history(self, run: RunDirectory) -> bool:
        """Makes the tables from the rows, which are here, and copies them to the run. Rows that are damaged are left as they
        are: the verdict says so."""
        if condition_of(run).damaged:
            return False
        write_history(run)
        seal_history(run)
        with self._said("written"):
            self._send(run, "history", run.history.glob("*.parquet"))
            self._send(run, "", [run.manifest])
        return True

    def _fetch(self, run: RunDirectory, folder: str, names: Collection[str] | None = None) -> None:
        target = run.path / folder
        for name, path in files_in(self.filesystem, f"{self.directory}/{folder}".rstrip("/")):
            if names is None or name in names:
                target.mkdir(exist_ok=True)
                fs.copy_files(path, str(target / name), source_filesystem=self.filesystem)

    def _send(self, run: RunDirectory, folder: str, paths: Iterable[Path]) -> None:
        there = f"{self.directory}/{folder}".rstrip("/")
        for path in (path for path in sorted(paths) if path.is_file()):
            self.filesystem.create_dir(there, recursive=True)  # an object store has no directories, and does not mind
            fs.copy_files(str(path), f"{there}/{path.name}", destination_filesystem=self.filesystem)

    @contextmanager
    def _said(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise HistoryUnreadable(
                f"{self.address} cannot be {what}: {str(error).splitlines()[0]}. Look at the address, at how to log in, "
                "and at what you may do there."
            ) from error


def files_in(filesystem: fs.FileSystem, directory: str) -> list[tuple[str, str]]:
    """Returns (name, path) of every file in a directory, in order; none if it is not there. Raises OSError."""
    found = filesystem.get_file_info(fs.FileSelector(directory, allow_not_found=True))
    return sorted((info.base_name, info.path) for info in found if info.type == fs.FileType.File)
