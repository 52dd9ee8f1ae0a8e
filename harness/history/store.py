"""A stored run on another file system than this machine's: an object store, or whatever pyarrow can read.

Its small files are copied here, into a directory of their own. The tables of its history stay where they are: whoever
checks them, here or on Spark's workers, reads the parts of them that it needs from there.
"""

import hashlib
import os
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa

from prozess.harness.errors import BadInput, HistoryUnreadable
from prozess.harness.history.convert import write_history
from prozess.harness.history.manifest import JUDGED, RECORDED, condition_of, seal_history
from prozess.harness.run_directory import REPORTS, RunDirectory

Setting = Callable[[str], str | None]
"""Gives the value of a setting of Hadoop's, or None."""
_URI = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<path>.+)")
if TYPE_CHECKING:
    from pyarrow import fs  # which takes time to import, and most runs are in a directory here

_NEEDED = {
    "hdfs": " For hdfs:// pyarrow needs Java and Hadoop's client: HADOOP_HOME, ARROW_LIBHDFS_DIR (where libhdfs.so is) and "
    "CLASSPATH (what `hadoop classpath --glob` prints).",
    "gs": " For gs:// pyarrow takes Google's default credentials (GOOGLE_APPLICATION_CREDENTIALS).",
}
"""What pyarrow needs to read a file system. [Apache Arrow, Python: "Filesystem Interface"]"""
SMALL_FILES = frozenset({*RECORDED, *JUDGED, "manifest.json", "events.jsonl", "interrupted"})
"""The files beside rows, tables and findings that a check or a judge looks at."""
RUN_MARKS = ("plan.json", "manifest.json", "verdict.json")
"""A directory with one of these files is a run, whatever else it lacks."""
_READ_BYTES = 8 << 20
"""How much of a file is read at a time."""


@dataclass(frozen=True)
class StoredTables:
    """The tables of one history on a file system of pyarrow's. It can be pickled, and sent to Spark's workers with what it
    takes to log in."""

    filesystem: "fs.FileSystem"
    directory: str
    """The directory of the tables, as that file system names it."""
    address: str
    """The same for people: a URI without secrets."""

    @property
    def run_address(self) -> str:
        """Returns the URI of the run to which the tables belong."""
        return self.address.removesuffix("/history")

    def path(self, table: str) -> str:
        """Returns the path of a table's file, as the file system names it."""
        return f"{self.directory}/{table}.parquet"

    def names(self) -> list[str]:
        """Returns the names of the files that are there, in order."""
        return [name for name, _ in files_in(self.filesystem, self.directory) if name.endswith(".parquet")]

    def open(self, name: str) -> pa.NativeFile:
        """Opens a file to be read anywhere. Raises OSError."""
        return self.filesystem.open_input_file(f"{self.directory}/{name}")

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

    filesystem: "fs.FileSystem"
    directory: str
    """The run directory, as that file system names it."""
    address: str
    """The same for people: a URI without secrets."""

    @property
    def tables(self) -> StoredTables:
        """Returns where the tables of its history are."""
        return StoredTables(self.filesystem, f"{self.directory}/history", f"{self.address}/history")

    @contextmanager
    def opened(self, *, untouched: bool = False) -> Iterator[RunDirectory]:
        """A context in which the run is open: its small files are in a directory here, which is removed in the end, and the
        tables are read where they are. A history that is not there is made here from the rows, and copied there.

        `untouched`: nothing is copied there, and what an earlier check found is not copied here. BadInput if there is no
        run; HistoryUnreadable if a file cannot be read or written.
        """
        with TemporaryDirectory(prefix="prozess-run-") as directory:
            run = RunDirectory(Path(directory))
            run.create()
            with self.errors_named("read"):
                self._fetch(run, "", SMALL_FILES.difference(JUDGED) if untouched else SMALL_FILES)
                if not untouched:
                    self._fetch(run, "findings")
                there = self.tables.names()
            if not run.plan.is_file():
                raise BadInput(f"{self.address} is not a run directory: it has no plan.json. Give a directory of runs.")
            if not there:
                with self.errors_named("read"):
                    self._fetch(run, "rows", linked=untouched)
            if there or self._made_history(run, kept=not untouched):
                run = RunDirectory(run.path, self._tables_of(run) if untouched and not there else self.tables)
            yield run

    def fetch_small(self, run: RunDirectory, names: Collection[str]) -> None:
        """Copies these files to a directory here, if they are there; of a name that ends with `/`, all files of that folder.
        HistoryUnreadable if they cannot be read."""
        split = [name.rpartition("/") for name in names]
        with self.errors_named("read"):
            for folder in {folder for folder, _, _ in split}:
                wanted = {name for of, _, name in split if of == folder}
                self._fetch(run, folder, None if "" in wanted else wanted)

    def keep(self, run: RunDirectory, *, proven: bool = True) -> None:
        """Copies what a check has written to this directory. `proven`: with the manifest, because the run itself is here.
        HistoryUnreadable if that fails."""
        with self.errors_named("written"):
            self._send(run, "findings", run.findings.glob("*.parquet"))
            reports = (run.path / name for name in REPORTS)
            self._send(run, "", (run.impact, run.verdict, *([run.manifest] if proven else []), *reports))

    def refuse_full(self) -> None:
        """Raises BadInput if there is anything in this directory; HistoryUnreadable if nobody can look."""
        from pyarrow import fs

        with self.errors_named("read"):
            there = self.filesystem.get_file_info(fs.FileSelector(self.directory, allow_not_found=True))
        if there:
            raise BadInput(
                f"--out {self.address} is not empty: {there[0].base_name} is there. Give a new or an empty directory, so "
                "that results of two checks are never mixed."
            )

    def _tables_of(self, run: RunDirectory) -> StoredTables:
        """Returns tables that were made here, for people under the address of the run."""
        from pyarrow import fs

        return StoredTables(fs.LocalFileSystem(), str(run.history), f"{self.address}/history")

    def _made_history(self, run: RunDirectory, *, kept: bool) -> bool:
        """Makes the tables from the rows, which are here, and, if they are to be `kept`, copies them to the run. Rows that
        are damaged are left as they are: the verdict says so."""
        if condition_of(run).damaged:
            return False
        write_history(run)
        seal_history(run)
        if kept:
            with self.errors_named("written"):
                self._send(run, "history", run.history.glob("*.parquet"))
                self._send(run, "", [run.manifest])
        return True

    def _fetch(
        self, run: RunDirectory, folder: str, names: Collection[str] | None = None, *, linked: bool = False
    ) -> None:
        """Copies files of a folder here. `linked`: a link does where they are on this machine and nobody writes them."""
        from pyarrow import fs

        target = run.path / folder
        for name, path in files_in(self.filesystem, f"{self.directory}/{folder}".rstrip("/")):
            if names is None or name in names:
                target.mkdir(exist_ok=True)
                if linked and self.filesystem.type_name == "local":
                    (target / name).symlink_to(path)
                else:
                    fs.copy_files(path, str(target / name), source_filesystem=self.filesystem)

    def _send(self, run: RunDirectory, folder: str, paths: Iterable[Path]) -> None:
        from pyarrow import fs

        there = f"{self.directory}/{folder}".rstrip("/")
        for path in (path for path in sorted(paths) if path.is_file()):
            self.filesystem.create_dir(there, recursive=True)  # an object store has no directories, and does not mind
            fs.copy_files(str(path), f"{there}/{path.name}", destination_filesystem=self.filesystem)

    @contextmanager
    def errors_named(self, what: str) -> Iterator[None]:
        """A context in which an error of the file system is one that says where the run is, and what to look at."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise HistoryUnreadable(
                f"{self.address} cannot be {what}: {str(error).splitlines()[0]}. Look at the address, at how to log in, "
                "and at what you may do there."
            ) from error


@contextmanager
def opened_run(
    run: Path | str, setting: Setting | None = None, *, kept: bool = False, out: Path | str | None = None
) -> Iterator[RunDirectory]:
    """A context in which a run is open, wherever it is: a directory, or a URI (`s3a://bucket/run`, `file:///…`).

    `setting`: how to log in, by the settings of Hadoop's s3a connector; what it leaves out, the environment and the AWS
    configuration files say. `kept`: what is written beside the tables is copied to the run at the end, unless the block
    failed. `out`: it is copied there instead, a directory or a URI where nothing is yet, and the run stays as it was. Raises
    BadInput, HistoryUnreadable.
    """
    location = location_of(run)
    if isinstance(location, Path) and (kept or out is not None):
        RunDirectory.existing(location).refuse_links()
    if out is not None:
        results = stored_run(_address_of(location_of(out)), setting)
        results.refuse_full()
        stored = stored_run(_address_of(location), setting)
        with stored.opened(untouched=True) as directory:
            yield directory
            results.keep(directory, proven=False)
        if results.filesystem.type_name == "local":
            RunDirectory(Path(results.directory)).keep_private()
        return
    if isinstance(location, Path):
        yield RunDirectory.existing(location)
        return
    stored = stored_run(location, setting)
    with stored.opened() as directory:
        yield directory
        if kept:
            stored.keep(directory)


def _address_of(location: Path | str) -> str:
    return location.resolve().as_uri() if isinstance(location, Path) else location


def location_of(run: Path | str) -> Path | str:
    """Returns where a run is: the path of a directory here, which somebody may also give as `file://`, or else its URI."""
    matched = _URI.fullmatch(run) if isinstance(run, str) else None
    if matched is None:
        return Path(run)
    return Path(matched["path"]) if matched["scheme"] == "file" else matched[0].rstrip("/")


def stored_run(address: str, setting: Setting | None = None) -> StoredRun:
    """Returns the run at a URI, as `opened_run` finds it. BadInput for a file system that pyarrow cannot read."""
    from pyarrow import fs

    matched = _URI.fullmatch(address)
    assert matched is not None, address
    try:
        if matched["scheme"] in ("s3", "s3a", "s3n"):
            path = matched["path"]
            return StoredRun(_s3(setting or (lambda _: None), bucket=path.partition("/")[0]), path, address)
        filesystem, directory = fs.FileSystem.from_uri(address)
        if matched["scheme"] == "file":
            address = directory
    except (OSError, pa.ArrowException) as error:
        raise BadInput(
            f"{address}: there is no way to read {matched['scheme']}:// here ({str(error).splitlines()[0]}). Give a URI that "
            f"begins with s3a://, gs:// or hdfs://, or a directory.{_NEEDED.get(matched['scheme'], '')}"
        ) from error
    return StoredRun(filesystem, directory, address)


def runs_below(address: str, setting: Setting | None = None) -> list[StoredRun]:
    """Returns every run at a URI or below it, in order, also one that lost its plan. BadInput if there is none;
    HistoryUnreadable if nobody can look."""
    from pyarrow import fs

    above = stored_run(address, setting)
    with above.errors_named("read"):
        below = fs.FileSelector(above.directory, allow_not_found=True, recursive=True)
        found = [info.path for info in above.filesystem.get_file_info(below) if info.base_name in RUN_MARKS]
    if not found:
        raise BadInput(f"There is no run below {address}. Give directories of runs or of campaigns.")
    directories = sorted({path.rpartition("/")[0] for path in found})
    return [
        StoredRun(above.filesystem, directory, address + directory.removeprefix(above.directory))
        for directory in directories
    ]


def _s3(setting: Setting, *, bucket: str) -> "fs.FileSystem":
    """Returns an object store with S3's protocol, as the settings of Hadoop's s3a connector describe it. What they leave out,
    the environment and the AWS configuration files say, as for any other program. What the environment here says goes along
    to Spark's workers; their own files are theirs."""
    from pyarrow import fs

    def s3a(name: str) -> str | None:
        return setting(f"fs.s3a.bucket.{bucket}.{name}") or setting(f"fs.s3a.{name}")

    def setting_of(name: str, *variables: str) -> str | None:
        return s3a(name) or next((value for variable in variables if (value := os.environ.get(variable))), None)

    given = {
        "access_key": setting_of("access.key", "AWS_ACCESS_KEY_ID"),
        "secret_key": setting_of("secret.key", "AWS_SECRET_ACCESS_KEY"),
        "session_token": setting_of("session.token", "AWS_SESSION_TOKEN"),
        "region": setting_of("endpoint.region", "AWS_REGION", "AWS_DEFAULT_REGION"),
    }
    if s3a("access.key") and not s3a("session.token"):
        given["session_token"] = None  # of somebody else
    endpoint = setting_of("endpoint", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    if endpoint and "://" not in endpoint:
        given["scheme"] = "http" if s3a("connection.ssl.enabled") == "false" else "https"
    given["endpoint_override"] = endpoint
    waits = {"connect_timeout": _CONNECT_S, "request_timeout": _REQUEST_S}
    return fs.S3FileSystem(**{name: value for name, value in given.items() if value}, **waits)


_CONNECT_S, _REQUEST_S = 10, 60
"""How long an object store may take to accept a connection, and how long it may send nothing. Without them it is 3 s (the AWS
SDK for C++, ClientConfiguration), and a store that stood still for so long ended a matrix whose last trial was over."""


def files_in(filesystem: "fs.FileSystem", directory: str) -> list[tuple[str, str]]:
    """Returns (name, path) of every file in a directory, in order; none if it is not there. Raises OSError."""
    from pyarrow import fs

    found = filesystem.get_file_info(fs.FileSelector(directory, allow_not_found=True))
    return sorted((info.base_name, info.path) for info in found if info.type == fs.FileType.File)


def write_file(filesystem: "fs.FileSystem", path: str, content: "pa.Buffer | bytes") -> None:
    """Writes a file, and the folder that it is in. It is there as a whole or not at all. Whoever lists the folder meanwhile
    may see a name that begins with a point."""
    folder, _, last = path.rpartition("/")
    beside = filesystem.type_name in ("local", "hdfs")  # an object appears when it is whole
    part = f"{folder}/.{last}.{uuid.uuid4().hex}.part" if beside else path
    if beside:  # in an object store a folder would be an empty object, which some list as a file
        filesystem.create_dir(folder, recursive=True)
    with filesystem.open_output_stream(part) as stream:
        stream.write(content)
    if beside:
        filesystem.move(part, path)
