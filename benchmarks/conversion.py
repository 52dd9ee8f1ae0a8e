"""How fast recorded rows become the tables of a history: in this process, and with Spark on this machine.

    python benchmarks/conversion.py [--rows 1000000 4000000 16000000] [--partitions 64] [--clients 4] [--workers 2]
                                    [--times 2]

Makes rows as clients write them: batches of 16 records go to the partitions in turn, and a reader reads what was sent.
Half of the rows are sends, half are reads. Both ways must write the same bytes. The floor reads every row once and does
nothing with it. CPU seconds are those of all processes, Spark's virtual machine included, for one conversion in a session
that has done one before. One process works on two tables at a time. So Spark is worth it with more than two workers times
the ratio of CPU seconds, if each has a core (`WRITTEN_BY_SPARK_ROWS`, `WRITTEN_BY_SPARK_WORKERS` in
prozess/app/run/check.py).
"""

import argparse
import hashlib
import os
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from checking import seconds
from pyspark.sql import SparkSession

from prozess.harness.history.convert import LargeTables, write_history
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.rows import RowWriter
from prozess.harness.run_directory import RunDirectory, write_json
from prozess.harness.schema import READS, SENDS, TABLES, Outcome, Table
from prozess.spark_checkers.session import start_session
from prozess.spark_checkers.tables import write_clustered

CHUNK_ROWS, BATCH_RECORDS, STEP_NS = 1 << 20, 16, 1_000


def make(run: RunDirectory, rows: int, partitions: int, clients: int) -> None:
    """Writes a plan, and so many rows in all."""
    run.create()
    trial = parse_trial({"name": "rows", "title": "", "topics": {"partitions": partitions}}, source="benchmark")
    run.plan.write_text(make_plan(trial, seed=1).model_dump_json(), encoding="utf-8")
    write_json(run.clock, {"start_monotonic_ns": 0, "wall_minus_monotonic_ns": 0, "wall_error_ns": 0})
    each = rows // 2 // clients
    for number in range(clients):
        for table, client in ((SENDS, 1 + number), (READS, 1 + clients + number)):
            writer = RowWriter(run.rows, table, client)
            for first in range(0, each, CHUNK_ROWS):
                writer.extend(_columns(table, np.arange(first, min(each, first + CHUNK_ROWS)), 1 + number, partitions))
            writer.close()


def _columns(table: Table, record: np.ndarray, sender: int, partitions: int) -> dict[str, np.ndarray]:
    """Returns rows of these records of a producer."""
    rng = np.random.default_rng(int(record[0]))
    at_ns, latency_ns = record * STEP_NS, rng.integers(1_000_000, 40_000_000, len(record))
    partition = record // BATCH_RECORDS % partitions
    offset = record // (BATCH_RECORDS * partitions) * BATCH_RECORDS + record % BATCH_RECORDS
    values = {
        "invoked_ns": at_ns, "completed_ns": at_ns + latency_ns, "log_offset": offset, "sequence": record,
        "partition": partition, "outcome": Outcome.OK, "size": 100, "read_ns": at_ns + latency_ns + 1_000_000,
        "sender": sender, "sent_partition": partition, "code": 0, "flags": 0, "span": 0,
    }  # fmt: skip
    return {c.name: np.broadcast_to(np.asarray(values.get(c.name, -1)), len(record)) for c in table.columns}


def read_all(run: RunDirectory) -> int:
    """Measures the floor: it adds up the words of every row."""
    return sum(
        int(np.add.reduce(np.memmap(path, dtype=np.int64, mode="r"))) for path in sorted(run.rows.glob("*.rows"))
    )


def digests(run: RunDirectory) -> dict[str, str]:
    """Returns the SHA-256 of each table."""
    paths = {name: run.history / f"{name}.parquet" for name in TABLES}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items()}


def report(session: SparkSession, sizes: list[int], partitions: int, clients: int, workers: int, times: int) -> None:
    """Measures each size, and prints a line for it."""
    print(f"{partitions} partitions, {clients} producers and readers, {workers} workers of {os.cpu_count()} cores")
    print(
        f"{'rows':>13}{'floor':>8}{'local':>8}{'Spark':>8} CPU s {'local':>9}{'Spark':>8} × floor{'Spark / local':>16}, wall"
    )
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="prozess-bench-") as folder:
            run = RunDirectory(Path(folder) / "run")
            make(run, size, partitions, clients)
            floor = seconds(partial(read_all, run), 1)[1]
            local_wall, local = seconds(partial(write_history, run), times)
            here = digests(run)
            large = LargeTables(partial(write_clustered, session, workers), rows_min=0)
            write_history(run, large)
            spark_wall, spark = seconds(partial(write_history, run, large), times)
            assert digests(run) == here, "both ways write the same"
        text = f"{size:>13,}{floor:>8.2f}{local:>8.2f}{spark:>8.2f}       {local / floor:>9.1f}{spark / floor:>8.1f}        "
        worth = f"{spark_wall / local_wall:>16.2f}     {2 * spark / local:>16.1f}"
        print(f"{text}{worth}          load {os.getloadavg()[0]:.1f}", flush=True)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", type=int, default=[1_000_000, 4_000_000, 16_000_000])
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--clients", type=int, default=4, help="producers, and as many readers")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--times", type=int, default=2, help="conversions of which the best wall clock counts")
    chosen = parser.parse_args()
    session = start_session(master=f"local[{chosen.workers}]")
    try:
        report(session, chosen.rows, chosen.partitions, chosen.clients, chosen.workers, chosen.times)
    finally:
        session.stop()


if __name__ == "__main__":
    main()
