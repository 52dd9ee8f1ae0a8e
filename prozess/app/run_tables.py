"""Tables over many runs: reading them in Python, and writing those of runs that are over."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from prozess.app.run_options import NO_SETTINGS, refuse_without_spark
from prozess.app.trial_run import RunTable
from prozess.harness.errors import BadInput
from prozess.harness.run_tables.definitions import RUN_TABLES
from prozess.harness.run_tables.location import (
    ALL_DAYS,
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


Row = Mapping[str, Any]
"""A row of a table over many runs (docs/run-tables.md)."""
Read = Callable[[str, Sequence[str]], pa.Table]
"""Reads columns of a table over many runs."""


@contextmanager
def opened_tables(
    locations: Sequence[Path | str],
    *,
    together: Sequence[str] = (),
    master: str | None = None,
    conf: Mapping[str, str] = NO_SETTINGS,
) -> Iterator[Read]:
    """A context in which tables over many runs can be read, as `tables` returns them. `together`: the tables of which all are
    asked for, so that one pass over run directories makes them. `master`: the Spark cluster whose workers read the runs,
    with Spark's settings `conf`; None: this machine does, without Spark, unless there are settings."""
    if master is None and not conf:
        found = _tables_of(sources_of(locations), ALL_DAYS, together)
        yield lambda name, columns: found[name].to_arrow(columns)
        return
    refuse_without_spark("--master", "Without it, prozess reads the runs itself.")
    from prozess.clusters.install.tools import find_java, spark_java_home
    from prozess.spark_checkers.run_tables import collected
    from prozess.spark_checkers.session import start_session

    sources = sources_of(locations, lambda name: conf.get(f"spark.hadoop.{name}"))
    spark = start_session(master=master, java_home=str(spark_java_home(find_java())), settings=conf)
    try:
        yield partial(collected, spark, sources=sources)
    finally:
        spark.stop()


def by_run(table: pa.Table) -> dict[str, list[dict[str, Any]]]:
    """Returns id of the run → its rows, in their order; none for a run without rows."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in table.to_pylist():
        found[row["run"]].append(row)
    return found


def tables(*locations: Path | str, since: date | None = None, until: date | None = None) -> dict[str, RunTable]:
    """Returns tables over many runs by their names: runs, cells, outcomes, findings, witnesses, impacts, faults,
    server_errors and controls. docs/run-tables.md has their columns. Each is read when you ask for it, without Spark unless
    you ask for a DataFrame of it; run directories are read once.

    `locations`: where `--tables` wrote them, and directories of runs or of campaigns; paths or URIs. `since` and
    `until`: the first and the last day on which the runs began. A run that is torn, damaged or not judged has a row in `runs`
    that says so. BadInput if there is neither a run nor a table.
    """
    if not locations:
        raise BadInput("prozess.tables needs a location of tables or a directory of runs.")
    return _tables_of(sources_of(locations), (since, until))


def _tables_of(
    sources: Sequence[TablesLocation | RunSource], days: Days, together: Sequence[str] = ()
) -> dict[str, RunTable]:
    runs = directories_among(sources)
    rows = cache(lambda names: rows_of_directories(names, runs))  # one pass makes several tables

    def made(name: str) -> pa.Table:
        return rows(tuple(together) if name in together else together_with(name))[name]

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
