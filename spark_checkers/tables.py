"""Rows of a large run become the tables of its history on Spark's workers. Each task writes the row groups of some partitions
as a file, and the driver joins the files, without looking into them. The tables are, byte for byte, those that one process
writes.

Like the checkers, the workers read and write files themselves: no row passes through Spark's virtual machine. They must see
the run directory under the same path as the driver.
"""

import pickle
import shutil
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from prozess.harness.errors import HistoryUnreadable
from prozess.harness.history.convert import count_rows, write_share
from prozess.harness.history.joining import FileToJoin
from prozess.harness.history.parquet import join_into
from prozess.harness.recording.rows import rows_in
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import TABLES
from prozess.spark_checkers.engine import PICKLED, TASKS_PER_WORKER, collect, described, tasks_of, unpickled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from prozess.spark_checkers.session import Batches

SHARE_ROWS_MAX = 64_000_000
"""About the most rows that one task writes. It holds 8 bytes for each of them in memory, and the largest partition."""
SHARE_ROWS_MIN = 1_000_000
"""The fewest rows for which it is worth to start another task."""
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Recorded:
    """Describes the rows of one table that one client recorded."""

    table: str
    client: int
    segments: int
    """How many files there are, as the driver sees them."""
    rows: int
    """About how many rows they have."""


@dataclass(frozen=True, slots=True)
class TableShare:
    """Describes a share of a table: which partitions, from which clients."""

    table: str
    clients: tuple[int, ...]
    within: tuple[int, int]
    rows: int
    path: Path


def write_clustered(
    session: "SparkSession", workers: int, run: RunDirectory, clients: Mapping[str, Sequence[int]], start_ns: int
) -> None:
    """Writes these clustered tables of a run's history with Spark (`prozess.harness.history.convert.WriteClustered`).

    `workers`: tasks at a time. HistoryUnreadable if the workers do not see the rows, or not all of them; MissingTool;
    HarnessFailed if Spark fails; StorageFull.
    """
    jobs = [_recorded(run, table, client) for table, own in clients.items() for client in own]
    what = f"rows of {', '.join(clients)}: {sum(job.rows for job in jobs):,}"
    tasks = tasks_of([job.rows for job in jobs], tasks_max=TASKS_PER_WORKER * workers)
    counted = _on_workers(session, f"{run.name}: counting {what}", lambda job: _count(run, job), jobs, tasks)
    folder = run.history / f"shares-{uuid.uuid4().hex}"
    folder.mkdir()
    try:
        shares = [share for table in clients for share in _shares(table, jobs, counted, folder, workers)]
        order = sorted(range(len(shares)), key=lambda number: -shares[number].rows)
        described_as = f"{run.name}: writing {what}, parts: {len(shares)}"
        written = _on_workers(
            session, described_as, lambda share: _write(run, share, start_ns), shares, [[number] for number in order]
        )
        for table in clients:
            own = [file for share, file in zip(shares, written, strict=True) if share.table == table]
            torn = sum(found[2] for job, found in zip(jobs, counted, strict=True) if job.table == table)
            _join(run, table, own, start_ns=start_ns, torn_rows=torn)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _recorded(run: RunDirectory, table: str, client: int) -> Recorded:
    files = list(run.rows.glob(f"{table}.{client}.*.rows"))
    return Recorded(table, client, len(files), sum(map(rows_in, files)))


def _count(run: RunDirectory, job: Recorded) -> tuple[np.ndarray, np.ndarray, int]:
    """Runs on a worker: counts the rows of a client by partition."""
    seen = len(list(run.rows.glob(f"{job.table}.{job.client}.*.rows")))
    if seen != job.segments:
        raise HistoryUnreadable(
            f"on {socket.gethostname()}, {run.rows} has {seen} files of table {job.table} and client {job.client}, and "
            f"{job.segments} where the check was started. Spark's workers must see the run directory under the same path: "
            "put it on storage that they share"
        )
    return count_rows(run, TABLES[job.table], job.client)


def _write(run: RunDirectory, share: TableShare, start_ns: int) -> FileToJoin:
    """Runs on a worker: writes one share of a table."""
    written = write_share(run, TABLES[share.table], share.clients, share.within, share.path, start_ns=start_ns)
    if written.rows != share.rows:
        raise HistoryUnreadable(
            f"on {socket.gethostname()}, table {share.table} has {written.rows:,} rows in partitions {share.within[0]} to "
            f"{share.within[1]}, and {share.rows:,} were counted before: {run.rows} has changed meanwhile"
        )
    return written


def _join(run: RunDirectory, table: str, files: Sequence[FileToJoin], *, start_ns: int, torn_rows: int) -> None:
    try:
        join_into(run, TABLES[table], files, start_ns=start_ns, torn_rows=torn_rows)
    except FileNotFoundError as error:
        raise HistoryUnreadable(
            f"table {table}: Spark's workers have written {error.filename}, and it is not here. They must see the run "
            "directory under the same path: put it on storage that they share."
        ) from error


def _shares(
    table: str,
    jobs: Sequence[Recorded],
    counted: Sequence[tuple[np.ndarray, np.ndarray, int]],
    folder: Path,
    workers: int,
) -> Iterator[TableShare]:
    """Yields the shares of a table, in the order of their partitions. Shares are of about equal rows. There is one for each
    worker, because each share costs a look at every row of the clients that it is from."""
    mine = [(job.client, found) for job, found in zip(jobs, counted, strict=True) if job.table == table]
    partitions = np.unique(np.concatenate([found[0] for _, found in mine]))
    rows = np.zeros(len(partitions), dtype=np.int64)
    for _, (own, count, _) in mine:
        rows[np.searchsorted(partitions, own)] += count
    for number, (low, high) in enumerate(ranges_of(rows, workers)):
        first, last = int(partitions[low]), int(partitions[high - 1])
        writers = tuple(c for c, (own, _, _) in mine if ((own >= first) & (own <= last)).any())
        yield TableShare(table, writers, (first, last), int(rows[low:high].sum()), folder / f"{table}.{number}.parquet")


def ranges_of(rows: np.ndarray, workers: int) -> list[tuple[int, int]]:
    """Cuts partitions with so many rows, in their order, into ranges of about equal rows: (first, behind the last). There are
    as many as workers, unless they would have too many or too few rows."""
    total = int(rows.sum())
    wanted = max(1, min(workers, total // SHARE_ROWS_MIN), -(-total // SHARE_ROWS_MAX))
    before = np.concatenate([[0], np.cumsum(rows)])
    cuts = np.searchsorted(before, [total * n // wanted for n in range(1, wanted)])
    bounds = sorted({0, *cuts.tolist(), len(rows)})
    return [(low, high) for low, high in pairwise(bounds) if high > low]


def _on_workers(
    session: "SparkSession",
    description: str,
    function: Callable[[Item], Result],
    items: Sequence[Item],
    tasks: Sequence[Sequence[int]],
) -> list[Result]:
    """Returns `function(item)` for each item, in their order. `tasks` has the numbers of the items of each task."""

    def work(numbers: Iterator[int]) -> "Batches":
        for number in (item for task in numbers for item in tasks[task]):
            result = pickle.dumps(function(items[number]))
            yield pa.record_batch([pa.array([number]), pa.array([result])], schema=PICKLED)

    with described(session, f"prozess check {description}"):
        return unpickled(collect(session, len(tasks), work, PICKLED, what="write the history"))
