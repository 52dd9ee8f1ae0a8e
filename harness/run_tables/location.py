"""Where the tables over many runs come from: a location where they are kept as Parquet files, or the run directories.

    tables/_prozess_tables.json                                 {"format": 2, "packed": false}
    tables/outcomes/day=2026-11-27/smoke-1-20261127T224817-dc68423bcb.parquet
    tables/runs/day=2026-11-27/smoke-1-20261127T224817-dc68423bcb.parquet

Each run has a file of its own in each table, named after its id. To write a run again replaces its files, so nothing is ever
there twice. Its file in `runs` is written last: whoever finds it there finds all of its rows.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from prozess.harness.checking.helper_process import HelperProcess
from prozess.harness.errors import BadInput, HarnessFailed, HistoryUnreadable
from prozess.harness.history.store import RUN_MARKS, Setting, StoredRun, location_of, runs_below, stored_run, write_file
from prozess.harness.run_directory import RunDirectory
from prozess.harness.run_tables.definitions import FORMAT, RUN_TABLES, RUNS
from prozess.harness.run_tables.rows_of_run import tables_of, tables_of_all
from prozess.harness.run_tables.run_files import READ, UNPROVEN, RunFiles
from prozess.harness.values import no_collection

if TYPE_CHECKING:
    from pyarrow import fs

MARKER = "_prozess_tables.json"
"""The file that says that tables are kept here. Spark and Arrow pass over names that begin so."""
NO_DAY = "__HIVE_DEFAULT_PARTITION__"
"""The directory of runs without a day, as Hive, Spark and Arrow name it."""
_RUNS_AT_ONCE = 100
_RUNS_TOGETHER = 20
"""How many runs have their files in memory together."""
_FEW_RUNS = 300
"""Fewer run directories are read sooner than a second process is started."""
Days = tuple[date | None, date | None]
"""The first and the last day that are wanted; None: there is no bound."""
ALL_DAYS: Days = (None, None)


@dataclass(frozen=True)
class TablesLocation:
    """A location where tables over many runs are kept, on a file system of pyarrow's."""

    filesystem: "fs.FileSystem"
    directory: str
    """The location, as that file system names it."""
    address: str
    """The same for people, and for Spark: a URI without secrets."""
    packed: bool = False
    """Whether each day has one file. Then no run can be added."""

    @staticmethod
    def at(location: Path | str, setting: Setting | None = None) -> "TablesLocation | None":
        """Returns the tables that are kept there; None: there are none. BadInput if they are of another format, or if there
        is no way to read the file system; HistoryUnreadable."""
        found = _unmarked(location, setting)
        try:
            with found.filesystem.open_input_stream(f"{found.directory}/{MARKER}") as stream:
                marker = json.loads(stream.read())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise HistoryUnreadable(
                f"{found.address}/{MARKER} cannot be read: {str(error).splitlines()[0]}."
            ) from error
        if not isinstance(marker, dict) or marker.get("format") != FORMAT:
            raise BadInput(
                f"{found.address} has tables of another format than {FORMAT}, which this prozess reads. Write them again "
                "from the runs: `prozess tables RUNS --out URI`."
            )
        return TablesLocation(found.filesystem, found.directory, found.address, bool(marker.get("packed")))

    @staticmethod
    def made(location: Path | str, setting: Setting | None = None, *, packed: bool = False) -> "TablesLocation":
        """Returns the location with this address, which is made if it is not there. BadInput if no run can be added there;
        HarnessFailed if it cannot be written."""
        there = TablesLocation.at(location, setting)
        if there is not None:
            if packed or there.packed:
                why = "is packed, and takes no further run" if there.packed else "has tables already"
                raise BadInput(f"{there.address} {why}. Give a location where no tables are.")
            return there
        found = _unmarked(location, setting)
        made = TablesLocation(found.filesystem, found.directory, found.address, packed)
        made._write(MARKER, json.dumps({"format": FORMAT, "packed": packed}).encode())
        return made

    def append(self, run: RunDirectory, name: str, address: str) -> str:
        """Writes the rows of a run, instead of those that it had before, and returns its id. HarnessFailed if that fails."""
        tables = tables_of(run, name, address)
        (row,) = tables[RUNS.name].select(["run", "day"]).to_pylist()
        for table in sorted(tables, key=lambda table: table == RUNS.name):
            self._write_table(table, row["day"], row["run"], tables[table])
        return str(row["run"])

    def pack(self, sources: "Sequence[TablesLocation | RunSource]") -> int:
        """Writes one file for each table and day, with the rows of these sources, and returns how many runs there are."""
        days = read_table(RUNS.name, ["day"], sources=sources).column("day")
        for table in sorted(RUN_TABLES, key=lambda table: table == RUNS.name):
            rows = read_table(table, sources=sources)
            for day in days.unique().to_pylist():
                self._write_table(table, day, "day", rows.filter(_of_day(rows.column("day"), day)))
        return len(days)

    def read(self, table: str, columns: Sequence[str] | None = None, days: Days = ALL_DAYS) -> pa.Table:
        """Returns the rows of a table. Only files of these days are read. HistoryUnreadable if one of them is damaged."""
        import pyarrow.dataset as ds

        schema = RUN_TABLES[table].schema
        wanted = list(columns or schema.names)
        first, last = days
        chosen = [ds.field("day") >= first] if first else []
        chosen += [ds.field("day") <= last] if last else []
        condition = None
        for one in chosen:
            condition = one if condition is None else condition & one
        try:
            parts = ds.partitioning(pa.schema([schema.field("day")]), flavor="hive")
            folder = f"{self.directory}/{table}"
            files = self._files(folder)
            found = ds.dataset(
                files, schema, "parquet", self.filesystem, parts, partition_base_dir=folder, exclude_invalid_files=False
            )
            rows: pa.Table = found.to_table(columns=wanted, filter=condition)
        except (OSError, pa.ArrowException) as error:
            raise HistoryUnreadable(
                f"{self.address}/{table} cannot be read: {str(error).splitlines()[0]}. Write the run of that file again: "
                "`prozess tables RUN --out URI`."
            ) from error
        return rows.cast(pa.schema([schema.field(name) for name in wanted]))

    def _files(self, folder: str) -> list[str]:
        """Returns the files of a table; none if no run was written yet. Some object stores list a folder as a file, too."""
        from pyarrow import fs

        found = self.filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True))
        names = [(info.path, info.base_name) for info in found if info.type == fs.FileType.File]
        return sorted(path for path, name in names if name.endswith(".parquet") and not name.startswith("."))

    def _write_table(self, table: str, day: date | None, name: str, rows: pa.Table) -> None:
        stored = pa.BufferOutputStream()
        pq.write_table(rows.select(RUN_TABLES[table].stored.names), stored, compression="zstd")
        self._write(f"{table}/day={day or NO_DAY}/{name}.parquet", stored.getvalue())

    def _write(self, name: str, content: "pa.Buffer | bytes") -> None:
        try:
            write_file(self.filesystem, f"{self.directory}/{name}", content)
        except (OSError, pa.ArrowException) as error:
            raise HarnessFailed(
                f"{self.address}/{name} cannot be written: {str(error).splitlines()[0]}. Look at the address, at how to log "
                "in, and at what you may do there; then `prozess tables RUN --out URI` writes the rows of the run."
            ) from error


def append_run(run: RunDirectory, location: str) -> str:
    """Writes the rows of a run where tables are kept, and returns that location for people. Errors are those of `made` and
    `append`."""
    store = TablesLocation.made(location)
    store.append(run, run.name, run.address)
    return store.address


RunSource = Path | StoredRun
"""A run directory, here or on another file system."""


def sources_of(locations: Iterable[Path | str], setting: Setting | None = None) -> list[TablesLocation | RunSource]:
    """Returns where rows come from: locations with tables, and every run directory in these locations or below. BadInput for
    a location with neither."""
    found: list[TablesLocation | RunSource] = []
    for location in map(location_of, locations):
        if isinstance(location, Path) and not location.is_dir():
            raise BadInput(
                f"{str(location)!r} is no directory. Give directories of runs or of campaigns, or of tables."
            )
        if (kept := TablesLocation.at(location, setting)) is not None:
            found.append(kept)
        elif isinstance(location, Path):
            found += run_directories_below(location)
        else:
            found += runs_below(location, setting)
    return found


def run_directories_below(folder: Path) -> list[Path]:
    """Returns every run directory here or below, in order, also one that lost its plan. No link is followed. BadInput if
    there is none."""
    found, waiting = [], [folder.resolve()]
    while waiting:
        try:
            with os.scandir(above := waiting.pop()) as entries:
                listed = list(entries)
        except OSError as error:
            raise BadInput(f"{str(folder)!r} cannot be read: {error.strerror}. Give a directory of runs.") from error
        if any(entry.name in RUN_MARKS for entry in listed):
            found.append(above)
        else:
            waiting += [above / entry.name for entry in listed if entry.is_dir(follow_symlinks=False)]
    if not found:
        raise BadInput(
            f"There is no run below {str(folder)!r}. Give directories of runs or of campaigns, or of tables."
        )
    return sorted(found)


PASSES = (
    ("impacts", "faults", "runs"),
    ("cells", "outcomes", "controls"),
    ("findings", "witnesses"),
    ("server_errors",),
)
"""Tables that rest on the same files of a run: one pass over run directories makes all of them."""


def together_with(table: str) -> tuple[str, ...]:
    """Returns the tables that are made in one pass with this one."""
    return next(names for names in PASSES if table in names)


def read_table(
    table: str,
    columns: Sequence[str] | None = None,
    *,
    sources: Sequence[TablesLocation | RunSource],
    days: Days = ALL_DAYS,
    made: Callable[[], pa.Table] | None = None,
) -> pa.Table:
    """Returns a table over all runs of these sources. HistoryUnreadable if a file of tables or an object store cannot be
    read; a run directory that cannot be read has its row in `runs`. `made`: gives the rows of the run directories, if they
    may have been made before."""
    kept = [source.read(table, columns, days) for source in sources if isinstance(source, TablesLocation)]
    runs = directories_among(sources)
    rows = rows_of_directories((table,), runs)[table] if made is None else made()
    for bound, later in zip(days, (False, True), strict=True):
        if bound is not None:
            import pyarrow.compute as pc

            rows = rows.filter((pc.less_equal if later else pc.greater_equal)(rows.column("day"), bound))
    return pa.concat_tables([*kept, rows.select(list(columns or rows.column_names))])


def directories_among(sources: Sequence[TablesLocation | RunSource]) -> list[RunSource]:
    """Returns the run directories among these sources."""
    return [source for source in sources if not isinstance(source, TablesLocation)]


def rows_of_directories(names: Sequence[str], runs: Sequence[RunSource]) -> dict[str, pa.Table]:
    """Returns the rows of run directories in these tables, in the order of the runs. If there are many, several
    processes make them."""
    if len(runs) < _FEW_RUNS:
        return rows_of_group(names, runs)
    from concurrent.futures import ThreadPoolExecutor

    groups = [runs[at : at + _RUNS_AT_ONCE] for at in range(0, len(runs), _RUNS_AT_ONCE)]
    workers = min(8, os.cpu_count() or 1, len(groups))
    with ExitStack() as open_ones:
        helpers = [open_ones.enter_context(HelperProcess(row_maker, tuple(names), None)) for _ in range(workers - 1)]
        making: list[Callable[[Sequence[RunSource]], dict[str, pa.Table]]] = [
            *(helper.check for helper in helpers),
            partial(rows_of_group, names),
        ]
        with ThreadPoolExecutor(workers) as threads:
            shares = threads.map(lambda n: [making[n](group) for group in groups[n::workers]], range(workers))
            made: list[list[dict[str, pa.Table]]] = list(shares)
    return {name: pa.concat_tables(made[n % workers][n // workers][name] for n in range(len(groups))) for name in names}


def row_maker(names: Any, _: object) -> Any:  # noqa: ANN401 - what a HelperProcess is given
    """Runs in another process: returns what makes the rows of some runs."""
    return lambda runs: rows_of_group(names, runs)


def rows_of_group(names: Sequence[str], runs: Sequence[RunSource]) -> dict[str, pa.Table]:
    """Returns the rows of these run directories in these tables, each in one piece."""
    rows = {name: [RUN_TABLES[name].schema.empty_table()] for name in names}
    for at in range(0, len(runs), _RUNS_TOGETHER):
        with no_collection(), ExitStack() as open_ones:
            some = [open_ones.enter_context(opened(source)) for source in runs[at : at + _RUNS_TOGETHER]]
            for name, made in tables_of_all([RunFiles.of(*one) for one in some], names).items():
                rows[name].append(made)
    return {name: pa.concat_tables(parts).combine_chunks() for name, parts in rows.items()}


@contextmanager
def opened(source: RunSource) -> Iterator[tuple[RunDirectory, str, str]]:
    """A context with a run whose small files are here, its name and its address."""
    if isinstance(source, Path):
        yield RunDirectory(source), source.name, str(source)
        return
    with TemporaryDirectory(prefix="prozess-run-") as directory:
        run = RunDirectory(Path(directory))
        source.fetch_small(run, (*READ, *UNPROVEN))
        yield run, source.address.rstrip("/").rpartition("/")[2], source.address


def _unmarked(location: Path | str, setting: Setting | None) -> StoredRun:
    where = location_of(location)
    return stored_run(where.resolve().as_uri() if isinstance(where, Path) else where, setting)


def _of_day(days: pa.ChunkedArray, day: date | None) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    return pc.is_null(days) if day is None else pc.equal(days, day)
