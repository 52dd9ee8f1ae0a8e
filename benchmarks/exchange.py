"""How the partitions of a history reach the kernels in Spark's workers: by row groups that these read by hand, or by
Spark's own reader and exchange, as Arrow.

    python benchmarks/exchange.py [--rows 2000000 8000000] [--partitions 64] [--workers 2] [--times 2]

Four ways, in one session, over one generated history, with all checkers of partitions:

* scan: Spark's reader alone. It decodes `sends` and `reads`, and adds up one column. Nothing comes to Python.
* arrow: Spark's reader and mapInArrow: all columns of both tables come to Python, where nobody looks at them. This is the
  least that any way costs in which Spark reads.
* exchange: Spark reads both tables and brings the rows of each partition together (cogroup). applyInArrow gives them to
  the kernels, in the order of the file, by the row's number in it.
* by hand: what prozess does. Spark hands out numbers of partitions, and each task reads their row groups.

The last two must find the same. CPU seconds are those of all processes, Spark's virtual machine included, for one check
in a session that has done one before; the floor of the ratios is the scan.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from checking import PLANTED, seconds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import from_arrow_schema

from prozess.checkers.registry import select
from prozess.exchange.synthetic.history import GenerateOptions, generate
from prozess.harness.checking.checker import CheckerSet
from prozess.harness.checking.findings import FINDINGS_SCHEMA, findings_from_arrow, findings_to_arrow
from prozess.harness.checking.kernels import check_partition, in_order
from prozess.harness.history.parquet import to_numpy
from prozess.harness.history.reader import History
from prozess.harness.interfaces.checking import Finding
from prozess.harness.run_directory import RunDirectory
from prozess.spark_checkers.engine import HistoryLocation, check_with_spark
from prozess.spark_checkers.session import start_session

CLUSTERED = ("sends", "reads")


def frame(session: SparkSession, run: RunDirectory, table: str) -> DataFrame:
    """Returns a table as Spark reads it, with the number of each row in the file."""
    return session.read.parquet((run.history / f"{table}.parquet").as_uri()).withColumn(
        "row", col("_metadata.row_index")
    )


def scan(session: SparkSession, run: RunDirectory) -> None:
    """Has Spark's reader decode a column of both tables."""
    for table in CLUSTERED:
        session.read.parquet((run.history / f"{table}.parquet").as_uri()).groupBy().sum("log_offset").collect()


def _counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch([pa.array([sum(batch.num_rows for batch in batches)])], names=["rows"])


def arrow(session: SparkSession, run: RunDirectory) -> int:
    """Brings all columns of both tables to Python, and returns how many rows there are."""
    tables = (session.read.parquet((run.history / f"{table}.parquet").as_uri()) for table in CLUSTERED)
    return sum(row.rows for table in tables for row in table.mapInArrow(_counted, "rows long").collect())


def exchange(session: SparkSession, run: RunDirectory, checkers: CheckerSet) -> list[Finding]:
    """Returns what the checkers find in partitions that Spark brings together."""
    location, kernels = HistoryLocation.of(run), checkers.kernels

    def check(key: tuple[pa.Scalar, ...], sends: pa.Table, reads: pa.Table) -> pa.Table:
        history = location.open_here()
        one = history.partition_history(key[0].as_py())
        one = replace(one, **{name: _in_file_order(table) for name, table in (("sends", sends), ("reads", reads))})
        return pa.Table.from_batches([findings_to_arrow(check_partition(one, kernels))])

    sends, reads = (frame(session, run, table).groupBy("partition") for table in CLUSTERED)
    found = sends.cogroup(reads).applyInArrow(check, from_arrow_schema(FINDINGS_SCHEMA)).toArrow()
    return in_order(findings_from_arrow(found), checkers, History.open(run).plan.cells)


def _in_file_order(rows: pa.Table) -> dict[str, object]:
    ordered = rows.sort_by("row")
    return {name: to_numpy(ordered.column(name)) for name in rows.column_names if name != "row"}


def by_hand(session: SparkSession, run: RunDirectory, checkers: CheckerSet, workers: int) -> list[Finding]:
    """Returns what the checkers find in partitions whose row groups the tasks read."""
    return check_with_spark(History.open(run), checkers, workers=workers, session=session)


def facts(findings: list[Finding]) -> list[tuple[str, int, int, int, bytes]]:
    """Returns what must be the same, of partitions in which there is anything to find or not."""
    return [(f.anomaly, f.partition, f.result.count, f.result.judged, f.result.witnesses.tobytes()) for f in findings]


def report(session: SparkSession, size: int, partitions: int, workers: int, times: int) -> None:
    """Measures a history of this size, and prints a line for each way."""
    with tempfile.TemporaryDirectory(prefix="prozess-bench-") as folder:
        run = RunDirectory(Path(folder) / "run")
        run.create()
        options = GenerateOptions(rows=size, partitions=partitions, planted=PLANTED["log"], kinds=["log"], seed=1)
        generate(run, options, command="benchmarks/exchange.py")
        whole = select()
        checkers = CheckerSet.of(list(whole.partition.values()), whole.pieces)
        history = History.open(run)
        rows = sum(history.rows(table) for table in CLUSTERED)
        asked: dict[str, Callable[[], object]] = {
            "scan": partial(scan, session, run),
            "arrow": partial(arrow, session, run),
            "exchange": partial(exchange, session, run, checkers),
            "by hand": partial(by_hand, session, run, checkers, workers),
        }
        found = {name: work() for name, work in asked.items()}
        assert found["arrow"] == rows, (found["arrow"], rows)
        assert facts(found["exchange"]) == facts(found["by hand"]), "both find the same"
        print(
            f"\n{rows:,} rows, {partitions} partitions, {len(checkers.order)} checkers, load {os.getloadavg()[0]:.1f}"
        )
        print(f"{'':<10}{'CPU s':>8}{'ns/row':>8}{'× scan':>8}{'wall s':>8}")
        floor = 0.0
        for name, work in asked.items():
            wall, cpu = seconds(work, times)
            floor = floor or cpu
            print(f"{name:<10}{cpu:>8.2f}{cpu / rows * 1e9:>8.0f}{cpu / floor:>8.1f}{wall:>8.2f}", flush=True)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", type=int, default=[2_000_000, 8_000_000])
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--times", type=int, default=2, help="checks of each way, of which the mean counts")
    chosen = parser.parse_args()
    session = start_session(master=f"local[{chosen.workers}]")
    try:
        for size in chosen.rows:
            report(session, size, chosen.partitions, chosen.workers, chosen.times)
    finally:
        session.stop()


if __name__ == "__main__":
    main()
