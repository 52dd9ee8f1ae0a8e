"""The Spark engine: Spark distributes the work, Python reads the Parquet itself and runs the same kernels, and only
findings come back.

Spark's own path from Parquet into Python workers costs about ten times what reading row groups by hand costs, kernels
included (benchmarks/exchange.py). No row of the history passes through the JVM: each task gets a list of partitions and
reads their row groups.
"""

import hashlib
import pickle
import socket
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from prozess.harness.checking.checker import ROWS_MAX, CheckerSet, Job, Look
from prozess.harness.checking.findings import FINDINGS_SCHEMA, findings_from_arrow, findings_to_arrow
from prozess.harness.checking.kernels import (
    Unit,
    check_units,
    in_order,
    perform,
    shared_out,
    side_by_side,
    units_of,
    unread,
)
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.history.manifest import Stretch, digests_of
from prozess.harness.history.reader import History
from prozess.harness.impact.cost import FaultTime, Impact, groups_of, join_impacts, measure, measure_locally
from prozess.harness.interfaces.checking import Finding
from prozess.harness.run_directory import RunDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from prozess.spark_checkers.session import Batches, NumberedWork

TASKS_PER_WORKER = 2
"""How many tasks each worker gets: enough to level out what the balance by rows misses. Each further task costs about 20
ms."""
ROWS_PER_TASK_MIN = 250_000
"""The fewest rows of a task. With fewer, starting the task costs more than it saves."""
MEASURED_HERE_ROWS = 1_000_000
"""Up to so many sends, what faults cost is measured by the driver, in a few hundredths of a second: less than it takes to
start a job."""
UNIT_COST_ROWS = 5_000
"""What it costs to open a partition and to call the kernels, however few rows there are, as a number of rows."""


PICKLED = pa.schema([("number", pa.int64()), ("result", pa.binary())])
"""Numbered results of a job, which Python pickled on a worker."""


def check_with_spark(
    history: History,
    checkers: CheckerSet,
    *,
    workers: int,
    session: "SparkSession | None" = None,
    rows_max: int = ROWS_MAX,
) -> list[Finding]:
    """Returns what every checker finds in every partition, ordered by partition, then as `checkers`. The findings are
    those of the local engine.

    `workers`: tasks at a time. `session`: a running one, left running; else the one that this process has, or one started
    and stopped here. A partition with more than `rows_max` rows is looked at in pieces, by several tasks. Spark's workers
    must see the run directory under the same path, unless the tables are elsewhere (`RunDirectory.tables`): then they read
    them there, and get the plan and the clock from here.

    Raises HistoryUnreadable, MissingTool; HarnessFailed if Spark fails.
    """
    assert workers > 0, workers
    if session is None:
        # Importing pyspark takes time that a caller may not have spent.
        from prozess.spark_checkers.session import local_master, start_session

        session = start_session(master=local_master(workers))
        try:
            return check_with_spark(history, checkers, workers=workers, session=session, rows_max=rows_max)
        finally:
            session.stop()
    spread = _Spread(session, history.run, TASKS_PER_WORKER * workers)
    units, found = units_of(history, checkers, partial(spread.perform, checkers), rows_max=rows_max)
    found += spread.check(list(side_by_side(history, units)), checkers)
    return in_order([*found, *unread(history, checkers)], checkers, history.plan.cells)


def tasks_of(rows: Sequence[int], *, tasks_max: int) -> list[list[int]]:
    """Shares things with so many rows out among at most `tasks_max` tasks of nearly equal rows, and returns the numbers
    of the things of each, the largest task first, because the first tasks begin first. The same rows give the same
    tasks."""
    costs = [count + UNIT_COST_ROWS for count in rows]
    return shared_out(costs, max(1, min(tasks_max, len(rows), sum(costs) // ROWS_PER_TASK_MIN)))


@dataclass(frozen=True, slots=True)
class HistoryLocation:
    """Says where the history of one check is. A worker that has several tasks of the check opens the history once, and
    keeps what it read of small tables and computed from them. It forgets what the last check opened."""

    run: RunDirectory
    check: str
    """An id that no other check has."""
    beside: Mapping[str, bytes] = field(default_factory=dict)
    """What a worker needs beside the tables, if these are elsewhere: name → content."""

    digest: str = ""
    """What identifies the run that the check was started for: see `_digest_of`."""

    @staticmethod
    def of(run: RunDirectory) -> "HistoryLocation":
        """Returns the location for one more check of this run."""
        beside = (run.plan, run.clock) if run.tables is not None else ()
        contents = {path.name: path.read_bytes() for path in beside if path.is_file()}
        return HistoryLocation(run, uuid.uuid4().hex, contents, "" if beside else _digest_of(run))

    def open_here(self) -> History:
        """Opens the history in a worker. The history could be read where the check was started, but this may be another
        machine, which sees no such directory, or another one under the same path."""
        if self.check not in _OPENED:
            _OPENED.clear()
            _OPENED[self.check] = self._open_elsewhere() if self.run.tables is not None else self._open_same()
        return _OPENED[self.check]

    def _open_same(self) -> History:
        self.refuse_other()
        return History.open(self.run)

    def refuse_other(self) -> None:
        """Raises HistoryUnreadable if this machine sees no run under this path, or another one."""
        if self.run.tables is not None:
            return
        machine = socket.gethostname()
        if not self.run.plan.is_file():
            raise HistoryUnreadable(f"{self.run.path} is not on {machine}. {_SHARE}")
        if _digest_of(self.run) != self.digest:
            raise HistoryUnreadable(
                f"{self.run.path} on {machine} is not the run that this check was started for: plan or tables differ. "
                f"{_SHARE}"
            )

    def _open_elsewhere(self) -> History:
        with tempfile.TemporaryDirectory() as directory:
            for name, content in self.beside.items():
                (Path(directory) / name).write_bytes(content)
            return History.open(replace(self.run, path=Path(directory)))


def _digest_of(run: RunDirectory) -> str:
    """Returns the SHA-256 of the plan, and of the names and sizes of the tables: enough to distinguish an older copy, or
    another run, from this one."""
    digest = hashlib.sha256(run.plan.read_bytes() if run.plan.is_file() else b"")
    for path in sorted(run.history.glob("*.parquet")):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
    return digest.hexdigest()


_SHARE = (
    "Spark's workers must see the run directory under the same path: put it on storage that they share, or into an object "
    "store, and change nothing in it."
)

_OPENED: dict[str, History] = {}
"""The history that this worker has open. A worker is a process that Spark gives one task at a time."""


_FAILED = "failed attempts"
"""What a tally calls the attempts at its tasks that failed."""


class _Tally:
    """Counts what the tasks of one job did: each attempt at a task counts where it succeeded. Spark Connect has nothing that
    counts."""

    def __init__(self, session: "SparkSession", names: Sequence[str]) -> None:
        from prozess.spark_checkers.session import context_of

        context = context_of(session)
        self._counters = {} if context is None else {name: context.accumulator(0) for name in (*names, _FAILED)}

    def add(self, name: str, count: int) -> None:
        """Counts so many more. Called on the workers."""
        if name in self._counters:
            self._counters[name] += count

    def begin(self) -> None:
        """Counts the attempts at this task that failed before. Called on the workers."""
        from pyspark import TaskContext

        task = TaskContext.get()
        self.add(_FAILED, task.attemptNumber() if task is not None else 0)

    def describe(self) -> str:
        """Returns the counters in words. Empty if nothing counted."""
        return ", ".join(f"{name}: {counter.value:,}" for name, counter in self._counters.items())


class _Spread:
    """Has work done by Spark's workers. Each job says in Spark's UI and event log what it is for, and a small one after it
    what was done."""

    def __init__(self, session: "SparkSession", run: RunDirectory, tasks_max: int) -> None:
        self._session, self._tasks_max = session, tasks_max
        self._location = HistoryLocation.of(run)
        self._name = run.name if run.tables is None else run.address

    def check(self, bundles: Sequence[Sequence[Unit]], checkers: CheckerSet) -> list[Finding]:
        """Returns what the checkers find in these units, of which some are checked side by side."""
        units = [unit for bundle in bundles for unit in bundle]
        rows = [sum(unit.rows + UNIT_COST_ROWS for unit in bundle) - UNIT_COST_ROWS for bundle in bundles]
        tasks = tasks_of(rows, tasks_max=self._tasks_max)
        if not tasks:
            return []
        tally = _Tally(self._session, ("partitions", "cells", "rows", "bytes", "findings", "witnesses"))
        work = _checking(self._location, checkers, [[bundles[number] for number in task] for task in tasks], tally)
        what = f"checkers: {len(checkers.order)}, {_counted(units)}"
        return findings_from_arrow(self._collect(len(tasks), work, FINDINGS_SCHEMA, what, tally))

    def perform(self, checkers: CheckerSet, jobs: Sequence[Job | Look]) -> list[Any]:
        """Returns the result of each job, in their order."""
        if not jobs:
            return []
        rows = [job.rows for job in jobs]
        what = f"looks at pieces of large partitions: {len(jobs)}, rows: {sum(rows):,}"
        return self.apply(partial(perform, checkers), jobs, what, tasks_of(rows, tasks_max=self._tasks_max))

    def apply(
        self,
        function: Callable[[History, Any], Any],
        items: Sequence[Any],
        what: str,
        tasks: Sequence[Sequence[int]] | None = None,
    ) -> list[Any]:
        """Returns `function(history, item)` for each item, in their order. `what` says what the job is for. `tasks` has the
        numbers of the items of each task. None: a task for each item."""
        tasks = [[number] for number in range(len(items))] if tasks is None else tasks
        tally = _Tally(self._session, ("done", "bytes"))
        work = _applying(self._location, function, items, tasks, tally)
        done = self._collect(len(tasks), work, PICKLED, what, tally)
        return unpickled(done)

    def _collect(self, tasks: int, work: "NumberedWork", schema: pa.Schema, what: str, tally: _Tally) -> pa.Table:
        from prozess.spark_checkers.session import context_of

        with described(self._session, f"prozess check {self._name}: {what}"):
            done = collect(self._session, tasks, work, schema)
        if (context := context_of(self._session)) is not None:
            subject = what.partition(":")[0]
            with described(self._session, f"prozess check {self._name}: done: {subject}: {tally.describe()}"):
                virtual_machine: Any = context._jvm
                context._jsc.parallelize(virtual_machine.java.util.ArrayList(), 1).count()
        return done


def _counted(units: Sequence[Unit]) -> str:
    partitions = {unit.partition for unit in units if unit.partition is not None}
    cells = {unit.cell for unit in units if unit.cell is not None}
    return f"partitions: {len(partitions)}, cells: {len(cells)}, rows: {sum(unit.rows for unit in units):,}"


def unpickled(done: pa.Table) -> list[Any]:
    """Returns the results of a table in PICKLED, by their numbers."""
    numbers, results = (column.to_pylist() for column in done.columns)
    found = {number: pickle.loads(result) for number, result in zip(numbers, results, strict=True)}
    return [found[number] for number in sorted(found)]


@contextmanager
def described(session: "SparkSession", description: str) -> Iterator[None]:
    """A context in which jobs of this thread have that description in Spark's UI and event log, and after which they have
    again what they had. Spark Connect has no way to describe a job."""
    from prozess.spark_checkers.session import context_of

    context = context_of(session)
    if context is None:
        yield
        return
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, description)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]  # None takes it away, as in Scala


_DESCRIPTION = "spark.job.description"
"""The property in which Spark keeps it (SparkContext.setJobDescription)."""


def measure_with_spark(
    history: History, faults: Sequence[FaultTime], *, workers: int, session: "SparkSession"
) -> Impact:
    """Returns what faults cost, as the local engine measures it. A small history is measured here. HistoryUnreadable;
    HarnessFailed if Spark fails."""
    if history.rows("sends") <= MEASURED_HERE_ROWS:
        return measure_locally(history, faults, workers=1)
    groups = groups_of(history, TASKS_PER_WORKER * workers)
    spread = _Spread(session, history.run, len(groups))
    what = f"the cost of faults: {len(faults)}, groups of partitions: {len(groups)}"
    parts = spread.apply(lambda history, group: measure(history, group, faults), groups, what) if groups else []
    return join_impacts(parts, faults)


def hash_with_spark(
    stretches: Sequence[Stretch], *, run: RunDirectory, workers: int, session: "SparkSession"
) -> Sequence[str]:
    """Returns the SHA-256 of each of these stretches of the run's rows and tables, which tasks read; nothing for one that a
    task cannot read. HistoryUnreadable; HarnessFailed if Spark fails."""
    sizes = [size for _, _, size in stretches]
    tasks = shared_out(sizes, min(len(sizes), TASKS_PER_WORKER * workers))
    location = HistoryLocation.of(run)

    def hash_stretches(numbers: Iterator[int]) -> "Batches":
        """Runs in Spark's Python worker, which opens no history: nothing of it is proven yet."""
        location.refuse_other()
        for task in numbers:
            digests = digests_of(location.run, [stretches[number] for number in tasks[task]])
            yield pa.record_batch([pa.array(tasks[task]), pa.array(map(pickle.dumps, digests))], schema=PICKLED)

    what = f"proofs of rows and tables: stretches: {len(sizes)}, bytes: {sum(sizes):,}"
    with described(session, f"prozess check {run.name if run.tables is None else run.address}: {what}"):
        return unpickled(collect(session, len(tasks), hash_stretches, PICKLED, what="prove the history"))


def _checking(
    location: HistoryLocation, checkers: CheckerSet, tasks: Sequence[Sequence[Sequence[Unit]]], tally: _Tally
) -> "NumberedWork":
    def check_tasks(numbers: Iterator[int]) -> "Batches":
        """Runs in Spark's Python worker: takes numbers of tasks and yields findings.

        The checkers come with it, pickled: a kernel as the name of its module and its own, and the worker imports it.
        """
        tally.begin()
        history = location.open_here()
        history.bytes_since()
        for number in numbers:
            for some in tasks[number]:
                found = check_units(history, checkers, some)
                tally.add("bytes", history.bytes_since())
                for unit in some:
                    tally.add("cells" if unit.partition is None else "partitions", 1)
                tally.add("rows", sum(unit.rows for unit in some))
                tally.add("findings", len(found))
                tally.add("witnesses", sum(finding.result.count for finding in found))
                yield findings_to_arrow(found)

    return check_tasks


def _applying(
    location: HistoryLocation,
    function: Callable[[History, Any], Any],
    items: Sequence[Any],
    tasks: Sequence[Sequence[int]],
    tally: _Tally,
) -> "NumberedWork":
    def apply_to_items(numbers: Iterator[int]) -> "Batches":
        """Runs in Spark's Python worker: takes numbers of tasks and yields the results of their items."""
        tally.begin()
        history = location.open_here()
        history.bytes_since()
        for number in (item for task in numbers for item in tasks[task]):
            result = pickle.dumps(function(history, items[number]))
            tally.add("done", 1)
            tally.add("bytes", history.bytes_since())
            yield pa.record_batch([pa.array([number]), pa.array([result])], schema=PICKLED)

    return apply_to_items


def collect(
    session: "SparkSession", tasks: int, work: "NumberedWork", schema: pa.Schema, *, what: str = "check the history"
) -> pa.Table:
    """Returns the rows that the tasks yield. `what` says what Spark could not do if it fails. MissingTool if the workers lack
    a module, or have other code; HarnessFailed."""
    from prozess.spark_checkers.session import failure_named, map_numbers, to_arrow

    with failure_named(what):
        return to_arrow(map_numbers(session, tasks, work, schema, tasks=tasks))
