"""The Spark engine: Spark distributes, Python reads the Parquet itself and runs the same kernels; only findings return.

Spark's own path from Parquet into Python workers moves about 4 M rows/s; the kernels do several times that. So no row of
the history passes through the JVM: each task gets a list of partitions and reads their row groups.
"""

import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from harness.errors import HarnessFailed, HistoryUnreadable
from harness.findings import FINDINGS_SCHEMA, findings_from_arrow, findings_to_arrow
from harness.history_reader import History
from harness.kernels import KernelNames, Unit, check_unit, in_order, shared_out, units_of
from harness.protocols import Finding
from harness.run_directory import RunDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_PER_WORKER = 2
"""Enough to level out what the balance by rows misses; each further task costs about 20 ms."""
ROWS_PER_TASK_MIN = 250_000
"""Below this, what a kernel saves is less than what starting a task costs."""
UNIT_COST_ROWS = 5_000
"""What opening a partition and calling the kernels costs, however few rows there are, as a number of rows."""


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
    tasks = tasks_of(units_of(history, names), tasks_max=TASKS_PER_WORKER * workers)
    if not tasks:
        return []
    found = findings_from_arrow(_collect(session, len(tasks), _work(str(run_directory), names, tasks)))
    return in_order(found, anomalies, history.plan.cells)


def tasks_of(units: Sequence[Unit], *, tasks_max: int) -> list[list[Unit]]:
    """Units in at most `tasks_max` tasks of nearly equal rows, the largest first: the first tasks are begun first. The same
    units give the same tasks."""
    costs = [unit.rows + UNIT_COST_ROWS for unit in units]
    tasks = max(1, min(tasks_max, len(units), sum(costs) // ROWS_PER_TASK_MIN))
    return [[units[number] for number in task] for task in shared_out(costs, tasks)]


def _work(run_directory: str, names: KernelNames, tasks: Sequence[Sequence[Unit]]) -> Callable[[Batches], Batches]:
    def check_tasks(batches: Batches) -> Batches:
        """Runs in Spark's Python worker: numbers of tasks in, findings out."""
        kernels = names.resolve()
        history = _open_here(Path(run_directory))
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for unit in tasks[number]:
                    yield findings_to_arrow(check_unit(history, unit, kernels))

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
