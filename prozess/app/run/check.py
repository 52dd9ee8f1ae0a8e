"""The check stage: reads the history of a run, runs every checker over it, and writes the findings. It needs no cluster."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from prozess.app.run_options import EngineName
from prozess.harness.checking.findings import read_findings, write_findings
from prozess.harness.errors import HarnessFailed
from prozess.harness.history.convert import History, LargeTables, ensure_proven_history
from prozess.harness.history.manifest import Condition, Hashing, condition_of, is_large, naming_unproven
from prozess.harness.impact.cost import (
    FaultTime,
    Impact,
    ImpactShown,
    fault_names,
    fault_times,
    reactions_of,
    summarise,
)
from prozess.harness.interfaces.checking import Finding
from prozess.harness.run_directory import RunDirectory, write_whole

if TYPE_CHECKING:
    from prozess.harness.checking.checker import CheckerSet
    from prozess.spark_checkers.session import SparkSession

WRITTEN_BY_SPARK_ROWS, WRITTEN_BY_SPARK_WORKERS = 20_000_000, 4
"""From how many recorded rows and tasks at a time on Spark writes the history. It takes up to 1.7 times the CPU time, and
this process works on two tables at a time by itself (benchmarks/conversion.py)."""


@dataclass(frozen=True, slots=True)
class Engine:
    """The two things that an engine can do with a stored run: check it, and measure what the faults cost."""

    check: Callable[[History, "CheckerSet"], list[Finding]]
    """Runs checkers over a stored history, and returns findings ordered by partition, then as the checkers.
    HistoryUnreadable; HarnessFailed if it fails."""
    measure: Callable[[History, Sequence[FaultTime]], Impact]
    """Measures what faults cost: rates, latencies and gaps (`prozess.harness.impact`). HistoryUnreadable; HarnessFailed
    if it fails."""


def local_engine(workers: int, _session: "SparkSession | None") -> Engine:
    """Returns an engine that checks with threads of this process."""
    from prozess.harness.checking.kernels import check_locally
    from prozess.harness.impact.cost import measure_locally

    return Engine(partial(check_locally, workers=workers), partial(measure_locally, workers=workers))


def spark_engine(workers: int, session: "SparkSession | None") -> Engine:
    """Returns an engine that checks with Spark, on this machine or on others."""
    assert session is not None, "who asks for Spark has started it"
    from prozess.spark_checkers.engine import check_with_spark, measure_with_spark

    return Engine(
        partial(check_with_spark, workers=workers, session=session),
        partial(measure_with_spark, workers=workers, session=session),
    )


_MAKERS: Mapping[EngineName, Callable[[int, "SparkSession | None"], Engine]] = {
    "local": local_engine,
    "spark": spark_engine,
}


def engine_named(name: EngineName, *, workers: int, session: "SparkSession | None" = None) -> Engine:
    """Returns the engine of this name with so many workers. `session`: a Spark session that was started ahead, if any."""
    return _MAKERS[name](workers, session)


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The choices of a check. `anomalies`: None means all. `session`: a Spark session that was started ahead, if any."""

    engine: EngineName = "local"
    workers: int = 2
    anomalies: Sequence[str] | None = None
    session: "SparkSession | None" = None


def check_run(run: RunDirectory, options: CheckOptions, condition: Condition | None = None) -> Sequence[Finding]:
    """Runs every checker over the run's history and writes `findings/`. HistoryUnreadable if the history cannot be read.

    `condition`: the condition of the run's files, if it is known already. Damaged rows are not read: nothing is found in
    their cells, and the judge says why. If other files are damaged, nothing is read at all.
    """
    condition = condition or condition_of(run)
    if not condition.readable:
        return ()
    run = replace(run, lost=condition.lost)
    with naming_unproven(run, condition):
        return _check(run, options, condition)


def _check(run: RunDirectory, options: CheckOptions, condition: Condition) -> Sequence[Finding]:
    ensure_proven_history(run, condition, large_tables(options.session, options.workers))
    from prozess.checkers.registry import select  # it imports every kernel, which only a check needs

    engine = engine_named(options.engine, workers=options.workers, session=options.session)
    history = History.open(run)
    findings = engine.check(history, select(options.anomalies))
    write_findings(run, findings)
    write_whole(run.impact, _impact(history, engine).model_dump_json(indent=1))
    return findings


def large_tables(session: "SparkSession | None", workers: int | None = None) -> LargeTables | None:
    """Returns the writer of the tables of a large run, if there is a Spark session with enough workers. `workers`: tasks at a
    time; None means the session's default parallelism. None: this process is faster."""
    if session is None:
        return None
    from prozess.spark_checkers.session import parallelism_of
    from prozess.spark_checkers.tables import write_clustered

    workers = workers or parallelism_of(session)
    if workers < WRITTEN_BY_SPARK_WORKERS:
        return None
    return LargeTables(partial(write_clustered, session, workers), WRITTEN_BY_SPARK_ROWS)


def hashing_of(run: RunDirectory, session: "SparkSession | None", workers: int) -> Hashing | None:
    """Returns what has the tables of a large run hashed by tasks of Spark. None: this process does it, faster than a job
    starts."""
    if session is None or not is_large(run):
        return None
    from prozess.spark_checkers.engine import hash_with_spark

    return partial(hash_with_spark, run=run, workers=workers, session=session)


def _impact(history: History, engine: Engine) -> ImpactShown:
    """Measures what the faults cost. A measurement that fails is noted, and leaves the verdict as it is."""
    if history.run.lost:
        damaged = ", ".join(one.file for one in history.run.lost)
        return ImpactShown(incomplete=f"the evidence is damaged: {damaged}")
    try:
        faults, names = fault_times(history), fault_names(history)
        found = engine.measure(history, faults)
        awaited_ns = history.table("steps")["awaited_ns"]
        schedule_ns = int(awaited_ns.min()) if len(awaited_ns) else None
        return summarise(found, faults, names, reactions_of(history), schedule_ns=schedule_ns)
    except HarnessFailed as error:
        return ImpactShown(incomplete=str(error))


def compare_with_oracle(run: RunDirectory, *, workers: int, session: "SparkSession | None" = None) -> str | None:
    """Compares the findings of a checked run with the same checks, written independently in SQL. `session`: a Spark
    session, if there is one. It returns a sentence that names what could not be compared in a history that nobody audited,
    and None of any other.

    HarnessFailed with the anomaly, the cell and both numbers if they differ: then one of the two is wrong.
    """
    from prozess.spark_checkers.oracle.second_opinion import not_compared, second_opinion

    findings = read_findings(run)
    disagreements = second_opinion(run, findings, workers=workers, session=session)
    if disagreements:
        raise HarnessFailed(
            f"The second opinion differs: {'; '.join(disagreements)}. One of the two checkers is wrong. Keep the run, and "
            "report this with the run's history."
        )
    return not_compared(run, findings)
