"""The Spark engine: Spark distributes, Python reads the Parquet itself and runs the same kernels; only findings return.

Spark's own path from Parquet into Python workers moves about 4 M rows/s; the kernels do several times that. So no row of
the history passes through the JVM: each task gets a list of partitions and reads their row groups.
"""

import pickle
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from harness.cell_parts import Look, in_order
from harness.errors import HarnessFailed, HistoryUnreadable
from harness.findings import FINDINGS_SCHEMA, findings_from_arrow, findings_to_arrow
from harness.history_reader import History
from harness.impact import FaultTime, Impact, groups_of, measure, put_together
from harness.kernels import KernelNames, Unit, check_unit, perform, shared_out, units_of
from harness.pieces import ROWS_MAX, Job
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


_PICKLED = pa.schema([("number", pa.int64()), ("result", pa.binary())])
Batches = Iterator[pa.RecordBatch]


def check_with_spark(
    run_directory: Path,
    anomalies: Sequence[str],
    *,
    workers: int,
    session: "SparkSession | None" = None,
    rows_max: int = ROWS_MAX,
) -> list[Finding]:
    """Findings of every anomaly in every partition, ordered by partition, then as `anomalies`: those of the local engine.

    `workers`: tasks at a time. `session`: a running one, left running; else the one that this process has, or one started
    and stopped here. A partition with more than `rows_max` rows is looked at in pieces, by several tasks. The run directory
    must be readable under the same path where Spark's workers are.

    Raises HistoryUnreadable, MissingTool; HarnessFailed if Spark fails.
    """
    assert workers > 0, workers
    if session is None:
        from spark_checkers.session import (
            start_session,
        )  # importing pyspark takes time that a caller may not have spent

        session = start_session(master=f"local[{workers}]")
        try:
            return check_with_spark(run_directory, anomalies, workers=workers, session=session, rows_max=rows_max)
        finally:
            session.stop()
    names = KernelNames.of(anomalies)
    history = History.open(RunDirectory(run_directory))
    spread = _Spread(session, str(run_directory), TASKS_PER_WORKER * workers)
    units = units_of(history, names, spread.perform, rows_max=rows_max)
    return in_order(spread.check(units, names), anomalies, history.plan.cells)


def tasks_of(rows: Sequence[int], *, tasks_max: int) -> list[list[int]]:
    """Numbers of things that have so many rows, in at most `tasks_max` tasks of nearly equal rows, the largest first: the
    first tasks are begun first. The same rows give the same tasks."""
    costs = [count + UNIT_COST_ROWS for count in rows]
    return shared_out(costs, max(1, min(tasks_max, len(rows), sum(costs) // ROWS_PER_TASK_MIN)))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a history is, for one check: a worker that has several of its tasks opens it once, and keeps what it has read of
    small tables and made of them. What the last check opened is forgotten."""

    run_directory: str
    check: str
    """Of no other check."""

    def open_here(self) -> History:
        """The history, in a worker. It was readable where the check was started: here may be another machine."""
        if self not in _OPENED:
            _OPENED.clear()
            try:
                _OPENED[self] = History.open(RunDirectory(Path(self.run_directory)))
            except HistoryUnreadable as error:
                raise HistoryUnreadable(
                    f"on {socket.gethostname()}, {error} Spark's workers must see the run directory under the same path: put "
                    "it on storage that they share"
                ) from error
        return _OPENED[self]


_OPENED: dict[Place, History] = {}
"""Of this worker: a process that Spark gives one task at a time."""


class _Spread:
    """Has things done by Spark's workers."""

    def __init__(self, session: "SparkSession", run_directory: str, tasks_max: int) -> None:
        self._session, self._tasks_max = session, tasks_max
        self._place = Place(run_directory, uuid.uuid4().hex)

    def check(self, units: Sequence[Unit], names: KernelNames) -> list[Finding]:
        """What the kernels find in these units."""
        tasks = tasks_of([unit.rows for unit in units], tasks_max=self._tasks_max)
        work = _checking(self._place, names, [[units[number] for number in task] for task in tasks])
        return findings_from_arrow(_collect(self._session, len(tasks), work, FINDINGS_SCHEMA)) if tasks else []

    def perform(self, jobs: Sequence[Job | Look]) -> list[Any]:
        """What each job gives, in their order."""
        return (
            self.apply(perform, jobs, tasks_of([job.rows for job in jobs], tasks_max=self._tasks_max)) if jobs else []
        )

    def apply(
        self,
        function: Callable[[History, Any], Any],
        items: Sequence[Any],
        tasks: Sequence[Sequence[int]] | None = None,
    ) -> list[Any]:
        """`function(history, item)` of each item, in their order. `tasks`: numbers of items; None: a task for each."""
        tasks = [[number] for number in range(len(items))] if tasks is None else tasks
        work = _applying(self._place, function, items, tasks)
        done = _collect(self._session, len(tasks), work, _PICKLED)
        numbers, results = (column.to_pylist() for column in done.columns)
        found = {number: pickle.loads(result) for number, result in zip(numbers, results, strict=True)}
        return [found[number] for number in range(len(items))]


def measure_with_spark(
    run_directory: Path, faults: Sequence[FaultTime], *, workers: int, session: "SparkSession"
) -> Impact:
    """What faults cost, as the local engine measures it. HistoryUnreadable; HarnessFailed if Spark fails."""
    groups = groups_of(History.open(RunDirectory(run_directory)), TASKS_PER_WORKER * workers)
    spread = _Spread(session, str(run_directory), len(groups))
    parts = spread.apply(lambda history, group: measure(history, group, faults), groups) if groups else []
    return put_together(parts, faults)


def _checking(place: Place, names: KernelNames, tasks: Sequence[Sequence[Unit]]) -> Callable[[Batches], Batches]:
    def check_tasks(batches: Batches) -> Batches:
        """Runs in Spark's Python worker: numbers of tasks in, findings out."""
        kernels = names.resolve()
        history = place.open_here()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for unit in tasks[number]:
                    yield findings_to_arrow(check_unit(history, unit, kernels))

    return check_tasks


def _applying(
    place: Place, function: Callable[[History, Any], Any], items: Sequence[Any], tasks: Sequence[Sequence[int]]
) -> Callable[[Batches], Batches]:
    def apply_to_items(batches: Batches) -> Batches:
        """Runs in Spark's Python worker: numbers of tasks in, results of their items out."""
        history = place.open_here()
        for batch in batches:
            for number in (item for task in batch.column(0).to_pylist() for item in tasks[task]):
                result = pickle.dumps(function(history, items[number]))
                yield pa.record_batch([pa.array([number]), pa.array([result])], schema=_PICKLED)

    return apply_to_items


def _collect(session: "SparkSession", tasks: int, work: Callable[[Batches], Batches], schema: pa.Schema) -> pa.Table:
    from pyspark.sql.pandas.types import from_arrow_schema

    try:
        # `range` gives each of its partitions exactly one number, without a shuffle.
        numbers = session.range(0, tasks, 1, numPartitions=tasks)
        return numbers.mapInArrow(work, from_arrow_schema(schema)).toArrow()
    except Exception as error:  # pyspark's, py4j's, or a lost connection: all mean that Spark failed
        from spark_checkers.elsewhere import last_line

        raise HarnessFailed(f"Spark could not check the history: {last_line(error)}. Try --engine local.") from error
