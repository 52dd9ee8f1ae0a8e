"""Checks runs in a Spark session of yours, and gives their findings and histories as DataFrames.

    from prozess import spark as trial

    run = "runs/smoke-1-20261123T101500"
    verdict = trial.check(spark, run)
    trial.witnesses(spark, run).where("anomaly = 'lost'").show()
    trial.history(spark, run, "sends", readable=True).groupBy("topic", "number", "outcome").count().show()
    trial.tables(spark, "s3a://trials/tables")["outcomes"].groupBy("anomaly", "outcome").count().show()

The session stays as it is: nothing is configured, and it is not stopped. Its workers need this package. A run is a directory
that they see under the same path as the driver, or a URI of an object store ("s3a://bucket/runs/smoke-1"), where they read
what they need, logged in as the session is.
"""

from contextlib import AbstractContextManager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from prozess.app.run.check import CheckOptions, check_run, hashing_of
from prozess.app.run.judge import judge_run, judged_tables, write_judged_tables
from prozess.app.trial_run import checked_run, history_frame, result_frame
from prozess.harness.checking.findings import findings_table, nested_file, nested_table
from prozess.harness.errors import BadInput
from prozess.harness.history.manifest import Condition, condition_of
from prozess.harness.history.store import Setting, location_of, opened_run
from prozess.harness.result_tables import FACTS, FINDINGS, VERDICT_INPUTS, WINDOWS, WITNESSES, ResultTable
from prozess.harness.run_directory import RunDirectory
from prozess.harness.run_tables.definitions import RUN_TABLES
from prozess.harness.run_tables.location import sources_of
from prozess.harness.schema import TABLES
from prozess.harness.verdict import TrialVerdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def check(
    spark: "SparkSession", run: Path | str, *, workers: int | None = None, out: Path | str | None = None
) -> TrialVerdict:
    """Runs every checker over a run, judges what they find, and returns the verdict. It writes `findings/` and `verdict.json`
    as `prozess check` does, and no reports.

    `workers`: how many tasks Spark works on at a time. None: the session's default parallelism. `out`: where it writes, a
    directory or a URI where nothing is yet, with `facts` and `verdict_inputs` beside the findings; the run stays as it was.
    None: beside the run. BadInput if there is no such run; NotJudged if its plan cannot be read; HarnessFailed if Spark
    fails; HistoryUnreadable if a URI cannot be read or written. What rests on damaged files is unknown.
    """
    from prozess.spark_checkers.session import parallelism_of

    if workers is not None and workers < 1:
        raise BadInput(f"workers={workers}: at least one task must work at a time.")
    with _opened(spark, run, kept=True, out=out) as directory:
        directory.refuse_read_only()
        workers = workers or parallelism_of(spark)
        condition = condition_of(directory, hashing=hashing_of(directory, spark, workers))
        options = CheckOptions(engine="spark", workers=workers, session=spark)
        verdict = judge_run(directory, check_run(directory, options, condition), condition)
        if out is not None:
            write_judged_tables(directory, condition)
        return verdict


def findings(spark: "SparkSession", run: Path | str) -> "DataFrame":
    """Returns the table `findings`: one row for each checker and partition (or cell) of a run that was checked.

    docs/tables.md has the columns of this and of the other tables. For a cell of which rows are damaged, `incomplete` names
    the file. BadInput if the run was not checked yet; HistoryUnreadable if other files of the run or its findings are
    damaged, or if rows were damaged since it was checked.
    """
    with _checked(spark, run) as (directory, _):
        return result_frame(spark, FINDINGS, findings_table(directory))


def witnesses(spark: "SparkSession", run: Path | str) -> "DataFrame":
    """Returns the table `witnesses`: the records that show what was found. `finding` is the number of the row in
    `findings`. Errors are those of `findings`."""
    with _checked(spark, run) as (directory, _):
        return _nested_frame(spark, directory, WITNESSES)


def windows(spark: "SparkSession", run: Path | str) -> "DataFrame":
    """Returns the table `windows`: what became of the records of each window of a delivery bound. Errors are those of
    `findings`."""
    with _checked(spark, run) as (directory, _):
        return _nested_frame(spark, directory, WINDOWS)


LARGE_ROWS = 200_000
"""A result with more rows is read by tasks, where the run is a directory: the driver would hold each row twice, in Python and
in its virtual machine."""


def _nested_frame(spark: "SparkSession", directory: RunDirectory, table: ResultTable) -> "DataFrame":
    footer = nested_file(directory, table)
    if directory.tables is not None or footer.num_rows <= LARGE_ROWS:
        return result_frame(spark, table, nested_table(directory, table))
    from prozess.spark_checkers.run_tables import result_of_tasks

    path = (directory.findings / f"{table.name}.parquet").resolve()
    return result_of_tasks(spark, path, table, footer.num_row_groups)


def facts(spark: "SparkSession", run: Path | str) -> "DataFrame":
    """Returns the table `facts`: whether each fact of the guarantee table holds in each partition. The driver computes it.
    Cells of which rows are damaged have no rows. Errors are those of `findings`."""
    with _checked(spark, run) as (directory, condition):
        return result_frame(spark, FACTS, judged_tables(directory, condition)[FACTS.name])


def verdict_inputs(spark: "SparkSession", run: Path | str) -> "DataFrame":
    """Returns the table `verdict_inputs`: how the guarantee table judges the witnesses of each finding, by which rule. The
    driver computes it. Cells of which rows are damaged have no rows. Errors are those of `findings`."""
    with _checked(spark, run) as (directory, condition):
        return result_frame(spark, VERDICT_INPUTS, judged_tables(directory, condition)[VERDICT_INPUTS.name])


def history(spark: "SparkSession", run: Path | str, table: str, *, readable: bool = False) -> "DataFrame":
    """Returns a table of what was recorded, such as "sends" or "reads" (docs/spark.md names them all). It is made from the
    rows if that has not been done yet. Spark reads it itself, so for a URI it needs its own connector to that file system.

    `readable`: with null for what is not there, a timestamp beside each time, names in place of codes, topic and number of
    each partition, and a comment on each column. Otherwise as kernels read it: integers, without nulls.

    BadInput if there is no such run or table; HistoryUnreadable if the table or other files of the run are damaged: `check`
    says which.
    """
    if table not in TABLES:
        raise BadInput(f"a history has no table {table!r}. Its tables are {', '.join(sorted(TABLES))}.")
    return history_frame(spark, _opened(spark, run), run, table, readable=readable)


def tables(
    spark: "SparkSession", *locations: Path | str, since: date | None = None, until: date | None = None
) -> "dict[str, DataFrame]":
    """Returns tables over many runs by their names, as `prozess.tables` does: runs, cells, outcomes, findings, witnesses,
    impacts, faults, server_errors and controls. docs/run-tables.md has their columns.

    Where `--tables` wrote them, Spark reads the files itself, and only of the days that are wanted. Run directories
    are read by its tasks. Errors are those of `prozess.tables`.
    """
    from prozess.spark_checkers.run_tables import run_table

    sources = sources_of(locations, _setting_of(spark))
    return {name: run_table(spark, name, sources, (since, until)) for name in RUN_TABLES}


def save_tables(spark: "SparkSession", *locations: Path | str, into: str, provider: str = "delta") -> int:
    """Writes the rows of runs into tables of the session's catalog, such as Delta Lake's, and returns how many runs there
    are. A run that is there already is replaced, in one transaction for each table. A column that the tables lack is added.

    `locations`: as for `tables`. `into`: the catalog and schema, such as "lake.trials", which must be there. `provider`:
    what keeps tables that are not there yet. Errors are those of `tables`; HarnessFailed if Spark cannot write.
    """
    from prozess.spark_checkers.run_tables import save

    return save(spark, sources_of(locations, _setting_of(spark)), into, provider)


def _checked(spark: "SparkSession", run: Path | str) -> AbstractContextManager[tuple[RunDirectory, Condition]]:
    """A context with a run whose findings are those of what was recorded, and the condition of its files."""
    return checked_run(_opened(spark, run), run)


def _opened(
    spark: "SparkSession", run: Path | str, *, kept: bool = False, out: Path | str | None = None
) -> AbstractContextManager[RunDirectory]:
    """A context in which a run is open, wherever it is, logged in as the session is. `kept`: what is written beside the
    tables is copied to it, or to `out`."""
    far = any(isinstance(location_of(location), str) for location in (run, out) if location is not None)
    return opened_run(run, _setting_of(spark) if far else None, kept=kept, out=out)


def _setting_of(spark: "SparkSession") -> Setting:
    """Returns what gives a setting of Hadoop's in this session: the value, or None."""
    from prozess.spark_checkers.session import context_of

    context = context_of(spark)
    if context is None:  # only what was given as spark.hadoop.…
        return lambda name: spark.conf.get(f"spark.hadoop.{name}", None)
    hadoop = context._jsc.hadoopConfiguration()

    def setting(name: str) -> str | None:
        value = hadoop.get(name)
        return None if value is None else str(value)

    return setting
