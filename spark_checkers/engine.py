"""The Spark engine: Spark distributes, Python reads the Parquet itself and runs the same kernels; only findings return.

Spark's own path from Parquet into Python workers moves about 4 M rows/s; the kernels do several times that. So no row of
the history passes through the JVM: each task gets a list of partitions and reads their row groups.
"""

import heapq
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import HarnessFailed, HistoryUnreadable
from harness.findings import FINDINGS_SCHEMA, findings_from_arrow, findings_to_arrow
from harness.history_reader import PARTITIONED, History
from harness.kernels import KernelNames, check_cell, check_partition, in_order
from harness.protocols import Finding
from harness.run_directory import RunDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_PER_WORKER = 2
"""Enough to level out what the balance by rows misses; each further task costs about 20 ms."""
ROWS_PER_TASK_MIN = 250_000
"""Below this, what a kernel saves is less than what starting a task costs."""
PARTITION_COST_ROWS = 5_000
"""What opening a partition and calling the kernels costs, however few rows there are, as a number of rows."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one Spark task checks."""

    partitions: Sequence[int]
    cells: Sequence[int]


Batches = Iterator[pa.RecordBatch]


def check_with_spark(
    run_directory: Path, anomalies: Sequence[str], *, workers: int, session: "SparkSession | None" = None
) -> list[Finding]:
    """Findings of every anomaly in every partition, ordered by partition, then as `anomalies`: those of the local engine.

    `workers`: tasks at a time. `session`: a running one, left running; else the one that this process has, or one started
    and stopped here. The run directory must be readable under the same path where Spark's workers are.

    Raises HistoryUnreadable, MissingTool; HarnessFailed if Spark fails.
    """
    assert workers > 0, workers
    if session is None:
        from spark_checkers.session import (
            start_session,
        )  # importing pyspark takes time that a caller may not have spent

        session = start_session(master=f"local[{workers}]")
        try:
            return check_with_spark(run_directory, anomalies, workers=workers, session=session)
        finally:
            session.stop()
    names = KernelNames.of(anomalies)
    history = History.open(RunDirectory(run_directory))
    groups = balance(history.manifest(), tasks_max=TASKS_PER_WORKER * workers)
    cells = [cell.cell for cell in history.plan.cells] if names.cell else []
    tasks = [Task(partitions=group, cells=cells[number :: len(groups)]) for number, group in enumerate(groups)]
    if not tasks:
        return []
    found = findings_from_arrow(_collect(session, len(tasks), _work(str(run_directory), names, tasks)))
    return in_order(found, anomalies)


def balance(manifest: pa.Table, *, tasks_max: int) -> list[list[int]]:
    """Partitions in at most `tasks_max` groups of nearly equal rows, each group ascending. The same manifest gives the
    same groups: the largest partition first, each to the group with the fewest rows so far.
    """
    rows = manifest.column(f"{PARTITIONED[0]}_rows")
    for name in PARTITIONED[1:]:
        rows = pc.add(rows, manifest.column(f"{name}_rows"))
    costs = pc.add(rows, PARTITION_COST_ROWS).to_pylist()
    sizes = sorted(zip(costs, manifest.column("partition").to_pylist(), strict=True), reverse=True)
    total = sum(size for size, _ in sizes)
    tasks = max(1, min(tasks_max, len(sizes), total // ROWS_PER_TASK_MIN))
    groups: list[list[int]] = [[] for _ in range(tasks)]
    heap = [(0, number) for number in range(tasks)]
    for size, partition in sizes:
        filled, number = heapq.heappop(heap)
        groups[number].append(partition)
        heapq.heappush(heap, (filled + size, number))
    return [sorted(group) for group in groups if group]


def _work(run_directory: str, names: KernelNames, tasks: Sequence[Task]) -> Callable[[Batches], Batches]:
    def check_tasks(batches: Batches) -> Batches:
        """Runs in Spark's Python worker: numbers of tasks in, findings out."""
        kernels = names.resolve()
        history = _open_here(Path(run_directory))
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for partition in tasks[number].partitions:
                    yield findings_to_arrow(check_partition(history.partition_history(partition), kernels.partition))
                for cell in tasks[number].cells:
                    yield findings_to_arrow(check_cell(history.cell_history(cell), kernels.cell))

    return check_tasks


def _open_here(path: Path) -> History:
    """The history, in a worker. It was readable where the check was started: here may be another machine."""
    try:
        return History.open(RunDirectory(path))
    except HistoryUnreadable as error:
        raise HistoryUnreadable(
            f"on {socket.gethostname()}, {error} Spark's workers must see the run directory under the same path: put it on "
            "storage that they share"
        ) from error


def _collect(session: "SparkSession", tasks: int, work: Callable[[Batches], Batches]) -> pa.Table:
    from pyspark.sql.pandas.types import from_arrow_schema

    try:
        # `range` gives each of its partitions exactly one number, without a shuffle.
        numbers = session.range(0, tasks, 1, numPartitions=tasks)
        return numbers.mapInArrow(work, from_arrow_schema(FINDINGS_SCHEMA)).toArrow()
    except Exception as error:  # pyspark's, py4j's, or a lost connection: all mean that Spark failed
        from spark_checkers.elsewhere import last_line

        raise HarnessFailed(f"Spark could not check the history: {last_line(error)}. Try --engine local.") from error
