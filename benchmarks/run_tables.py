"""Measures tables over many runs, made up from real ones.

    python benchmarks/run_tables.py [--runs 1000] [--kept 100000] [--nights 100] RUN …

RUN: directories of real runs that were judged. First so many run directories are made up, each with the files of one of
these under another name. Without a virtual machine every table is read from them; their rows are written, and read again from
there; `trends` looks at both. Then so many runs are made up as tables with one file for each day, and Arrow and Spark are
asked what docs/run-tables.md asks. Seconds are those that pass; CPU seconds are those of this process and its children that
ended.
"""

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import prozess
from prozess.app.run_tables import write_tables
from prozess.campaigns.comparing.trends import find_trends
from prozess.harness.run_directory import RunDirectory
from prozess.harness.run_tables.definitions import RUN_TABLES
from prozess.harness.run_tables.location import TablesLocation
from prozess.harness.run_tables.rows_of_run import tables_of
from prozess.harness.run_tables.run_files import READ, UNPROVEN

FIRST = datetime(2026, 1, 1, 22, tzinfo=UTC)


def measured(what: str, work: Callable[[], object]) -> None:
    """Does the work, and prints what it took and what it returned."""
    before, begin = cpu_s(), time.monotonic()
    found = work()
    print(f"{what:60}{time.monotonic() - begin:9.1f} s{cpu_s() - before:9.1f} CPU s   {found}", flush=True)


def cpu_s() -> float:
    """Returns the CPU seconds of this process and of its children that ended."""
    return sum(sum(resource.getrusage(of)[:2]) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def make_directories(sources: list[Path], folder: Path, runs: int, nights: int) -> int:
    """Makes up so many run directories of links to the files of few, and returns the bytes of their files."""
    size = 0
    for number in range(runs):
        source = sources[number % len(sources)]
        night, within = divmod(number, -(-runs // nights))
        run = folder / f"made-{number}-{FIRST + timedelta(days=night, seconds=within):%Y%m%dT%H%M%S}"
        files = [source / name for name in (*READ, *UNPROVEN[:1])]
        for file in (file for file in (*files, *source.glob("logs/*.log")) if file.is_file()):
            target = run / file.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(file, target)
            size += file.stat().st_size
    return size


def make_kept(sources: list[Path], store: TablesLocation, runs: int, nights: int) -> int:
    """Makes up tables of so many runs, one file for each table and day, and returns how many rows they have."""
    originals = [tables_of(RunDirectory(source), source.name, str(source)) for source in sources]
    each, rows = -(-runs // nights), 0
    for night in range(nights):
        day: date = (FIRST + timedelta(days=night)).date()
        copies = [np.arange(number, each, len(sources)) for number in range(len(sources))]
        for table in RUN_TABLES:
            parts = []
            for source, numbers in zip(originals, copies, strict=True):
                own = source[table]
                made = own.take(pa.array(np.tile(np.arange(own.num_rows), len(numbers))))
                names = pa.array([f"made-{night}-{number}" for number in numbers])
                parts.append(
                    made.set_column(
                        0, own.schema.field(0), names.take(np.repeat(np.arange(len(numbers)), own.num_rows))
                    )
                )
            whole = pa.concat_tables(parts)
            if table == "runs":
                at = whole.schema.get_field_index("night")
                whole = whole.set_column(at, whole.schema.field(at), pa.repeat(pa.scalar(day, pa.date32()), len(whole)))
            rows += whole.num_rows
            store._write_table(table, day, "day", whole)
    return rows


def without_spark(folder: Path) -> None:
    """Reads each table, the one after the other."""
    for name, table in prozess.tables(folder).items():
        measured(f"  {name}", partial(_rows_of, table))


def _rows_of(table: prozess.RunTable) -> str:
    return f"{table.to_arrow().num_rows:,} rows"


def trends_of(folder: Path) -> str:
    """Returns what `prozess trends` would show of a folder."""
    tables = prozess.tables(folder)
    found = find_trends(lambda name, columns: tables[name].to_arrow(columns))
    return f"{found.runs:,} runs, {len(found.nights):,} nights, {len(found.measures):,} measures"


def in_spark(folder: Path) -> None:
    """Asks the questions of the page."""
    from prozess import spark as trial
    from prozess.spark_checkers.session import start_session
    from tools.table_page import QUESTIONS

    session = start_session()

    def answer(text: str) -> str:
        return f"{len(session.sql(text).collect()):,} rows"

    try:
        for name, frame in trial.tables(session, folder).items():
            frame.createOrReplaceTempView(name)
        for question, text in QUESTIONS.items():
            measured(f"  {question[:56]}", partial(answer, text))
        one_day = "select count(*) as n from outcomes where day = date'2026-01-05'"
        measured("  outcomes of one day", lambda: f"{session.sql(one_day).collect()[0].n:,}")
    finally:
        session.stop()


def main() -> None:
    """Measures both kinds, and prints a line for each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--kept", type=int, default=100_000)
    parser.add_argument("--nights", type=int, default=100)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="prozess-tables-", dir=asked.sources[0].parent) as scratch:
        folder, kept, many = (Path(scratch) / name for name in ("runs", "kept", "many"))
        if asked.runs:
            size = make_directories(asked.sources, folder, asked.runs, asked.nights)
            print(f"{asked.runs:,} run directories, {size / 1e6:,.0f} MB")
            measured("all tables from the directories, one after the other", lambda: without_spark(folder))
            measured("trends of the directories", lambda: trends_of(folder))
            measured("written", lambda: write_tables([str(folder)], str(kept), packed=False, progress=print))
            measured("all tables from where they are kept", lambda: without_spark(kept))
            measured("trends of the tables", lambda: trends_of(kept))
        if asked.kept:
            store = TablesLocation.made(many, packed=True)
            measured("made up as tables", lambda: f"{make_kept(asked.sources, store, asked.kept, asked.nights):,} rows")
            print(
                f"{asked.kept:,} runs, {sum(f.stat().st_size for f in many.rglob('*.parquet')) / 1e6:,.0f} MB of Parquet"
            )
            measured("trends, by Arrow", lambda: trends_of(many))
            measured("all questions, in Spark", lambda: in_spark(many))


if __name__ == "__main__":
    main()
