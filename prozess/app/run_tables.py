"""Tables over many runs: reading them in Python, and writing those of runs that are over."""

from collections.abc import Callable, Sequence
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from prozess.app.trial_run import RunTable
from prozess.harness.errors import BadInput
from prozess.harness.tables.definitions import RUN_TABLES
from prozess.harness.tables.location import (
    Days,
    RunSource,
    TablesLocation,
    directories_among,
    opened,
    read_table,
    rows_of_directories,
    sources_of,
    together_with,
)

if TYPE_CHECKING:
    from prozess.spark_checkers.session import DataFrame, SparkSession


def tables(*locations: Path | str, since: date | None = None, until: date | None = None) -> dict[str, RunTable]:
    """Returns tables over many runs by their names: runs, cells, outcomes, findings, witnesses, impacts, faults and
    server_errors. docs/run-tables.md has their columns. Each is read when you ask for it, without Spark unless you ask for a
    DataFrame of it; run directories are read once.

    `locations`: where `--tables` wrote them, and directories of runs or of campaigns; paths or URIs. `since` and
    `until`: the first and the last day on which the runs began. A run that is torn, damaged or not judged has a row in `runs`
    that says so. BadInput if there is neither a run nor a table.
    """
    if not locations:
        raise BadInput("prozess.tables needs a location of tables or a directory of runs.")
    sources, days = sources_of(locations), (since, until)
    runs = directories_among(sources)
    rows = cache(lambda names: rows_of_directories(names, runs))  # one pass makes several tables

    def made(name: str) -> pa.Table:
        return rows(together_with(name))[name]

    return {name: _table(name, sources, days, partial(made, name)) for name in RUN_TABLES}


def _table(
    name: str, sources: Sequence[TablesLocation | RunSource], days: Days, made: Callable[[], pa.Table]
) -> RunTable:
    def read(columns: Sequence[str] | None) -> pa.Table:
        known = RUN_TABLES[name].schema.names
        for column in columns or ():
            if column not in known:
                raise BadInput(f"table {name!r} has no column {column!r}. Its columns are {', '.join(known)}.")
        return read_table(name, columns, sources=sources, days=days, made=made)

    def frame(session: "SparkSession") -> "DataFrame":
        from prozess.spark_checkers.run_tables import run_table

        return run_table(session, name, sources, days)

    return RunTable(name, read, frame)


def write_tables(
    locations: Sequence[str], out: str, *, packed: bool, progress: Callable[[str], None]
) -> tuple[int, str]:
    """Writes the rows of all runs in these locations into a location of tables, and returns how many runs and where.
    `packed`: one file for each day, in a new location. BadInput if there is no run, or if tables are to be copied unpacked;
    HarnessFailed if that cannot be written."""
    sources = sources_of(locations)
    if kept := next((source for source in sources if isinstance(source, TablesLocation)), None) if not packed else None:
        raise BadInput(f"{kept.address} has tables. To copy them is to pack them: add --packed.")
    store = TablesLocation.made(out, packed=packed)
    if packed:
        return store.pack(sources), store.address
    for number, source in enumerate(sources):
        assert not isinstance(source, TablesLocation)
        with opened(source) as (run, name, address):
            store.append(run, name, address)
        if (number + 1) % 1000 == 0:
            progress(f"{number + 1:,} of {len(sources):,} runs")
    return len(sources), store.address
