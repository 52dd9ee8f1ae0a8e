"""Runs a trial, or loads a stored run, and returns its results as values and tables. `import prozess` and the fixture `trial`
use it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from prozess.app.conduct import conduct_trial
from prozess.app.run.check import CheckOptions, check_run, large_tables
from prozess.app.run.judge import judge_run, judged_tables
from prozess.app.run.outside_sandbox import lacking_faults
from prozess.app.run_options import RunOptions, engine_name
from prozess.harness.checking.findings import findings_table, nested_table
from prozess.harness.errors import BadInput, HarnessFailed, HistoryUnreadable, Interrupted
from prozess.harness.guarantees.verdict.judge import parse_decide, refuse_idle, with_decide
from prozess.harness.history.convert import LargeTables, ensure_proven_history
from prozess.harness.history.manifest import Condition, condition_of, plan_of
from prozess.harness.history.parquet import file_without_rows, of_an_earlier_version, parquet_schema, table_path
from prozess.harness.history.readable import RunNames, readable_columns
from prozess.harness.history.readable import readable as made_readable
from prozess.harness.history.reader import unreadable_cells
from prozess.harness.history.store import location_of, opened_run
from prozess.harness.installation import of_an_extra
from prozess.harness.plan.plan import Plan, read_plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial import Trial
from prozess.harness.plan.trial_files import load_trial, parse_trial
from prozess.harness.report.reports import proven_verdict
from prozess.harness.result_tables import FACTS, FINDINGS, VERDICT_INPUTS, WINDOWS, WITNESSES, ResultTable
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import TABLES
from prozess.harness.verdict import CellVerdict, TrialVerdict, Verdict

if TYPE_CHECKING:
    from pandas import DataFrame as PandasFrame

    from prozess.spark_checkers.session import DataFrame, SparkSession

TrialSource = str | Path | Trial | Plan | Mapping[str, Any]
"""A trial: its name, the path of its file, a `Trial`, a document as a trial file would have it, a plan, or the path of a
plan.json or of its run directory."""


@dataclass(frozen=True, slots=True)
class RunTable:
    """A table of a run. It is read when you ask for it in one of its forms, and each time anew."""

    name: str
    _read: "Callable[[Sequence[str] | None], pa.Table]"
    _frame: "Callable[[SparkSession], DataFrame] | None" = None

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns the table as a `pyarrow.Table`. `columns`: the names of those that are wanted; None means all of them.

        BadInput for a column that it does not have, or if the run has not been checked yet; HistoryUnreadable if files of
        the run are damaged.
        """
        return self._read(columns)

    def to_pandas(self, columns: Sequence[str] | None = None) -> "PandasFrame":
        """Returns the table as a `pandas.DataFrame`. Errors are those of `to_arrow`; MissingTool without pandas."""
        with of_an_extra("A table as a DataFrame of pandas"):
            frame: PandasFrame = self.to_arrow(columns).to_pandas()
        return frame

    def to_spark(self, session: "SparkSession") -> "DataFrame":
        """Returns the table as a DataFrame of a Spark session. Its workers read a history themselves, where it is. Errors
        are those of `to_arrow`."""
        return session.createDataFrame(self.to_arrow()) if self._frame is None else self._frame(session)


@dataclass(frozen=True, slots=True)
class TrialRun:
    """A trial that was run and judged, wherever its files are."""

    location: str | Path
    """The run directory, or its URI in an object store."""
    verdict: TrialVerdict

    @property
    def path(self) -> Path:
        """Returns the run directory. BadInput if the run is in an object store."""
        if isinstance(location := location_of(self.location), Path):
            return location
        raise BadInput(
            f"{location} is in an object store, so it has no directory on this machine. Copy the run to one."
        )

    @property
    def held(self) -> bool:
        """Returns whether every promise held. Unknown is not held."""
        return self.verdict.verdict is Verdict.HELD

    @property
    def report(self) -> Path:
        """Returns the path of report.html."""
        return self.path / "report.html"

    @property
    def plan(self) -> Plan:
        """Returns everything that was planned: cells, clients, partitions, steps. HistoryUnreadable if it is damaged."""
        with opened_run(self.location) as directory:
            return plan_of(directory, readable_condition(directory))

    def count(self, anomaly: str) -> int:
        """Returns how often an anomaly was seen, permitted or not."""
        return self.verdict.findings.get(anomaly, 0)

    @property
    def cells(self) -> RunTable:
        """Returns a table with one row for each cell: `cell` (its number), `name`, `workload`, `verdict`, and a column for
        each setting that varies, such as `producer.acks`. A cell that does not have a setting has null there."""
        return RunTable("cells", lambda columns: _chosen("cells", _cells(self.verdict.cells), columns))

    @property
    def outcomes(self) -> RunTable:
        """Returns a table with one row for each cell and anomaly: `cell`, `anomaly`, `outcome`, `verdict`, how many
        witnesses there are (`count`), how many of them are `forbidden`, `permitted` and `unknown`, `proven` (whether a
        control showed that it could have been seen; null: there is no control), and `reason`."""
        return RunTable("outcomes", lambda columns: _chosen("outcomes", _outcomes(self.verdict.cells), columns))

    @property
    def findings(self) -> RunTable:
        """Returns a table with one row for each checker and partition (or cell). docs/tables.md has the columns of this and
        of the other tables that a check makes."""
        return self._found(FINDINGS, lambda directory, _: findings_table(directory))

    @property
    def witnesses(self) -> RunTable:
        """Returns a table of the records that show what was found. `finding` is the number of the row in `findings`."""
        return self._found(WITNESSES, lambda directory, _: nested_table(directory, WITNESSES))

    @property
    def windows(self) -> RunTable:
        """Returns a table of the outcomes of records in each window of a delivery bound."""
        return self._found(WINDOWS, lambda directory, _: nested_table(directory, WINDOWS))

    @property
    def facts(self) -> RunTable:
        """Returns a table that says whether each fact of the guarantee table holds in each partition."""
        return self._found(FACTS, lambda directory, condition: judged_tables(directory, condition)[FACTS.name])

    @property
    def verdict_inputs(self) -> RunTable:
        """Returns a table that says how the guarantee table judges the witnesses of each finding, by which rule."""
        return self._found(
            VERDICT_INPUTS, lambda directory, condition: judged_tables(directory, condition)[VERDICT_INPUTS.name]
        )

    def history(self, table: str, *, readable: bool = False) -> RunTable:
        """Returns a table of what was recorded, such as "sends" or "reads" (docs/spark.md names them all). It is made from
        the rows if that has not been done yet. `readable`: with nulls, timestamps and names, as `prozess.spark.history` gives
        it. BadInput if there is no such table."""
        if table not in TABLES:
            raise BadInput(f"a history has no table {table!r}. Its tables are {', '.join(sorted(TABLES))}.")

        def read(columns: Sequence[str] | None) -> pa.Table:
            with opened_run(self.location) as directory, history_file(directory, self.location, table) as file:
                if not readable:
                    return _of_file(table, file, columns)
                raw = _of_file(table, file, None)
                return _chosen(table, made_readable(raw, own, names_in(directory)), columns)

        def frame(session: "SparkSession") -> "DataFrame":
            return history_frame(session, opened_run(self.location), self.location, table, readable=readable)

        own = readable_columns(TABLES[table].stored_columns, named=True)
        return RunTable(table, read, frame)

    def check(
        self,
        *,
        engine: str = "local",
        workers: int = 2,
        decide: Sequence[str] = (),
        session: "SparkSession | None" = None,
    ) -> "TrialRun":
        """Checks and judges the run again, and returns it with its new verdict. It writes `findings/` and `verdict.json` as
        `prozess check` does, and no reports. RunOptions and errors are those of `check`."""
        return check(self.location, engine=engine, workers=workers, decide=decide, session=session)

    def _found(self, table: ResultTable, read: Callable[[RunDirectory, Condition], pa.Table]) -> RunTable:
        def rows() -> pa.Table:
            with checked_run(opened_run(self.location), self.location) as (directory, condition):
                return read(directory, condition)

        return RunTable(
            table.name,
            lambda columns: _chosen(table.name, rows(), columns),
            lambda session: result_frame(session, table, rows()),
        )

    def __str__(self) -> str:
        return f"{self.verdict.verdict}: {self.verdict.sentence} ({self.location})"


def plan(
    trial: TrialSource,
    *,
    seed: int = 1,
    overrides: Mapping[str, Any] | None = None,
    isolation: str = "auto",
    decide: Sequence[str] = (),
) -> Plan:
    """Makes the plan of a trial: its cells, clients and steps. Nothing is started. The same trial and seed give the same
    plan.

    `overrides`: settings that replace those of a trial by name or file, as `--set` does: {"traffic.rate_hz": 50}.
    `decide`: the guarantees that decide the verdict; empty means all that can be judged. BadInput for a trial that is
    not valid.
    """
    return with_decide(_planned(trial, seed, overrides, isolation), decide)


def _planned(trial: TrialSource, seed: int, overrides: Mapping[str, Any] | None, isolation: str) -> Plan:
    if overrides and not isinstance(trial, str | Path):
        raise BadInput("overrides change a trial by name or file. Change the trial that you give, instead.")
    if isinstance(trial, Plan):
        return trial
    if isinstance(trial, str | Path) and (Path(trial).suffix == ".json" or (Path(trial) / "plan.json").is_file()):
        from prozess.app.commands.options import load_plan  # it imports typer, which nothing else here needs

        return load_plan(str(trial), seed=seed, settings=[f"{key}={value}" for key, value in (overrides or {}).items()])
    if isinstance(trial, Trial):
        made = trial
    elif isinstance(trial, Mapping):
        made = parse_trial(dict(trial), source="this trial")
    else:
        made = load_trial(str(trial), dict(overrides or {}))
    return make_plan(made, seed=seed, lacking=lacking_faults(made, isolation=isolation))


def run(  # noqa: PLR0913 - the options of `prozess run`
    trial: TrialSource,
    *,
    seed: int = 1,
    overrides: Mapping[str, Any] | None = None,
    runs: Path | str = "runs",
    engine: str = "local",
    workers: int = 2,
    isolation: str = "auto",
    decide: Sequence[str] = (),
    progress: bool = False,
) -> TrialRun:
    """Runs a trial and judges it: starts a cluster and clients, breaks the cluster, and audits what is in its logs.

    `seed`, `overrides` and `decide` are those of `plan`. `runs`: the directory in which the run directory is made.
    `engine`: what checks the history, "local" (threads), "spark" or "auto" (threads here). `workers`: how many threads or
    tasks work at a time. `isolation`: how nodes are kept apart: "auto", "namespaces" or "signals".
    `progress`: whether to show on standard error what is being done.

    BadInput for a trial that is not valid, UnsupportedFault if it cannot be run here, Interrupted after Ctrl-C,
    HarnessFailed if it could not be run to where it can be judged. Whatever happens, what was recorded is kept.
    """
    planned = plan(trial, seed=seed, overrides=overrides, isolation=isolation, decide=decide)
    Path(runs).mkdir(parents=True, exist_ok=True)
    options = RunOptions(Path(runs), engine, workers, isolation, quiet=not progress, as_json=False, print_verdict=False)
    conducted = conduct_trial(planned, options)
    if conducted.interrupted:
        raise Interrupted(f"The trial {planned.trial!r} was interrupted. What was recorded is in {conducted.run.path}.")
    if conducted.verdict is None:
        raise HarnessFailed(
            f"The trial {planned.trial!r} could not be judged; what was recorded is in {conducted.run.path}."
        )
    return TrialRun(conducted.run.path, conducted.verdict)


def load(run: Path | str) -> TrialRun:
    """Loads a run that was judged: a run directory, or its URI in an object store ("s3a://bucket/runs/smoke-1").

    Its verdict says of what rests on damaged files, or of a run that was killed, that it is unknown. BadInput if there is no
    such run, or if it was not judged yet; NotJudged if its plan is damaged.
    """
    with opened_run(run) as directory:
        if not directory.verdict.is_file():
            raise BadInput(f"{run} has no verdict.json yet. Call prozess.check, or run `prozess check {run}`.")
        return TrialRun(run, proven_verdict(directory, condition_of(directory, ("recorded", "history", "judged"))))


def check(
    run: Path | str,
    *,
    engine: str = "local",
    workers: int = 2,
    decide: Sequence[str] = (),
    session: "SparkSession | None" = None,
) -> TrialRun:
    """Checks and judges a stored run again, and returns it with its verdict. It writes `findings/` and `verdict.json`, and no
    reports. It needs no cluster.

    `session`: a Spark session of yours that shares the work out; `engine` is then "spark". Without one, "spark" starts and
    stops one. `decide`: the guarantees that decide, instead of the plan's. BadInput if there is no such run; NotJudged if
    its plan cannot be read; HarnessFailed if Spark fails. What rests on damaged files is unknown.
    """
    name = engine_name("spark" if session is not None else engine)
    named = parse_decide(decide)
    with opened_run(run, kept=True) as directory:
        directory.refuse_read_only()
        condition = condition_of(directory)
        refuse_idle(plan_of(directory, condition), named)
        with _session(session, wanted=name == "spark" and condition.readable, workers=workers) as used:
            findings = check_run(directory, CheckOptions(name, workers, session=used), condition)
            return TrialRun(run, judge_run(directory, findings, condition, decide=named))


@contextmanager
def _session(session: "SparkSession | None", *, wanted: bool, workers: int) -> "Iterator[SparkSession | None]":
    """A context with a Spark session, if one is wanted: the one that was given, or one that is stopped in the end."""
    if session is not None or not wanted:
        yield session
        return
    from prozess.clusters.install.tools import find_java, spark_java_home
    from prozess.spark_checkers.session import local_master, start_session

    own = start_session(master=local_master(workers), java_home=str(spark_java_home(find_java())))
    try:
        yield own
    finally:
        own.stop()


# The readable parts of a stored run.


def readable_condition(directory: RunDirectory, run: Path | str | None = None) -> Condition:
    """Returns the condition of a run, of which no more than rows of known partitions is damaged. HistoryUnreadable with the
    files if there is more. `run`: its address, for the error."""
    condition = condition_of(directory, ("recorded", "history", "judged"))
    if not condition.readable:
        raise _damaged(run or directory.address, condition)
    return condition


def _damaged(run: Path | str, condition: Condition) -> HistoryUnreadable:
    return HistoryUnreadable(f"{run} is damaged: {'; '.join(condition.doubts)}.")


@contextmanager
def checked_run(
    opened: AbstractContextManager[RunDirectory], run: Path | str
) -> Iterator[tuple[RunDirectory, Condition]]:
    """A context with a run whose findings are those of what was recorded, and the condition of its files: of damaged ones an
    earlier check may have left findings. BadInput if it was not checked yet; HistoryUnreadable if its findings cannot be
    believed."""
    with opened as directory:
        condition = readable_condition(directory, run)
        if not (directory.findings / "findings.parquet").is_file():
            raise BadInput(f"{run} has not been checked yet. Call prozess.check, or run `prozess check`.")
        if condition.bounded and _older(directory, condition):
            raise HistoryUnreadable(
                f"{run} was damaged after it was checked: {'; '.join(condition.doubts)}. Call prozess.check again: it "
                "keeps what was found in the cells that this does not concern."
            )
        yield directory, condition


def _older(directory: RunDirectory, condition: Condition) -> bool:
    """Returns whether there are findings in cells of which rows are damaged now."""
    found = findings_table(directory)
    cells = np.array(list(unreadable_cells(plan_of(directory, condition), condition.lost)), dtype=np.int64)
    judged = found["incomplete"].is_null().to_numpy()
    return bool((np.isin(found["cell"].to_numpy(), cells) & judged).any())


@contextmanager
def history_file(
    directory: RunDirectory, run: Path | str, table: str, large: LargeTables | None = None
) -> Iterator[Any]:
    """A context with the file of a history's table, proven and open: a path, or a file of the object store. The history is
    made from the rows if it is not there yet. `large`: the writer of the tables of a large run. HistoryUnreadable if the
    table or another file of the run is damaged."""
    condition = readable_condition(directory, run)
    if any(lost.table == table for lost in condition.lost):
        raise _damaged(run, condition)
    ensure_proven_history(directory, condition, large)
    if of_an_earlier_version(directory, TABLES[table]):
        yield file_without_rows(TABLES[table])
    elif directory.tables is None:
        yield table_path(directory, table)
    else:
        with directory.tables.open(f"{table}.parquet") as file:
            yield file


def names_in(directory: RunDirectory) -> RunNames:
    """Returns what the numbers of an open run stand for."""
    return RunNames.of(directory, read_plan(directory))


def result_frame(session: "SparkSession", table: ResultTable, rows: pa.Table) -> "DataFrame":
    """Returns rows of a result as a DataFrame, whose columns say in their metadata (`comment`) what they mean."""
    from prozess.spark_checkers.session import fields_of

    return session.createDataFrame(rows, schema=fields_of(table))


def history_frame(
    session: "SparkSession",
    opened: AbstractContextManager[RunDirectory],
    run: Path | str,
    table: str,
    *,
    readable: bool,
) -> "DataFrame":
    """Returns a table of what was recorded, as `prozess.spark.history` does. `opened`: the run at `run`."""
    with opened as directory, history_file(directory, run, table, large_tables(session)):
        if of_an_earlier_version(directory, TABLES[table]):
            from prozess.spark_checkers.session import frame_without_rows

            raw = frame_without_rows(session, parquet_schema(TABLES[table]))
        else:
            raw = session.read.parquet(_history_address(directory, run, table))
        if not readable:
            return raw
        from prozess.spark_checkers.run_tables import readable_frame

        return readable_frame(raw, readable_columns(TABLES[table].stored_columns, named=True), names_in(directory))


def _history_address(directory: RunDirectory, run: Path | str, table: str) -> str:
    """Returns the URI of a table's file, as Spark reads it."""
    if directory.tables is not None:
        return f"{run}/history/{table}.parquet"
    # Without a scheme Spark would look on the file system that is the session's default.
    return (directory.history / f"{table}.parquet").resolve().as_uri()


def _of_file(name: str, file: Any, columns: Sequence[str] | None) -> pa.Table:  # noqa: ANN401 - pyarrow has no types
    # Not read_table: it imports pyarrow.dataset, and that pandas, half a second.
    with pq.ParquetFile(file) as opened:
        _refuse_columns(name, opened.schema_arrow.names, columns)
        return opened.read(columns=None if columns is None else list(columns)).replace_schema_metadata(None)


def _chosen(name: str, table: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    _refuse_columns(name, table.column_names, columns)
    return table.replace_schema_metadata(None) if columns is None else table.select(list(columns))


def _refuse_columns(name: str, known: Sequence[str], columns: Sequence[str] | None) -> None:
    for column in columns or ():
        if column not in known:
            raise BadInput(f"table {name!r} has no column {column!r}. Its columns are {', '.join(known)}.")


def _cells(cells: Sequence[CellVerdict]) -> pa.Table:
    axes = list(dict.fromkeys(axis for cell in cells for axis in cell.axes))
    return pa.table(
        {
            "cell": pa.array([cell.cell for cell in cells], pa.int32()),
            "name": pa.array([cell.name for cell in cells], pa.string()),
            "workload": pa.array([cell.workload for cell in cells], pa.string()),
            "verdict": pa.array([str(cell.verdict) for cell in cells], pa.string()),
        }
        | {axis: pa.array([cell.axes.get(axis) for cell in cells], pa.string()) for axis in axes}
    )


def _outcomes(cells: Sequence[CellVerdict]) -> pa.Table:
    judged = [(cell.cell, outcome) for cell in cells for outcome in cell.anomalies.values()]
    return pa.table(
        {
            "cell": pa.array([cell for cell, _ in judged], pa.int32()),
            "anomaly": pa.array([one.anomaly for _, one in judged], pa.string()),
            "outcome": pa.array([str(one.outcome) for _, one in judged], pa.string()),
            "verdict": pa.array([str(one.verdict) for _, one in judged], pa.string()),
            "count": pa.array([one.count for _, one in judged], pa.int64()),
            "forbidden": pa.array([one.forbidden for _, one in judged], pa.int64()),
            "permitted": pa.array([one.permitted for _, one in judged], pa.int64()),
            "unknown": pa.array([one.unknown for _, one in judged], pa.int64()),
            "proven": pa.array([one.proven for _, one in judged], pa.bool_()),
            "reason": pa.array([one.reason for _, one in judged], pa.string()),
        }
    )
