"""The second opinion: every check that can be said in SQL, said again, and compared with what the kernels found.

`prozess check RUN --oracle`. Spark SQL reads the Parquet tables itself; nothing of `checkers` is used. Slow on purpose.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from harness.errors import BadInput, HarnessFailed
from harness.history_reader import History
from harness.protocols import Finding
from harness.run_directory import RunDirectory
from harness.schema import NONE, TABLES
from harness.table_file import table_path
from harness.witnesses import WITNESS, no_witnesses
from spark_checkers import (
    sql_commits,
    sql_copies,
    sql_delivery,
    sql_groups,
    sql_log,
    sql_ownership,
    sql_reading,
    sql_snapshots,
    sql_stalls,
    sql_telling,
    sql_transactions,
)
from spark_checkers.facts import facts_of
from spark_checkers.sql_views import VIEWS, fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERIES: Mapping[str, str] = {
    **sql_log.QUERIES,
    **sql_telling.QUERIES,
    **sql_reading.QUERIES,
    **sql_stalls.QUERIES,
    **sql_transactions.QUERIES,
    **sql_commits.QUERIES,
    **sql_groups.QUERIES,
    **sql_ownership.QUERIES,
    **sql_copies.QUERIES,
    **sql_snapshots.QUERIES,
    **sql_delivery.QUERIES,
}
"""Anomaly → text."""
_ALL_VIEWS = {
    **VIEWS,
    **sql_log.LOG_VIEWS,
    **sql_reading.READING_VIEWS,
    **sql_stalls.STALL_VIEWS,
    **sql_transactions.TRANSACTION_VIEWS,
    **sql_ownership.OWNERSHIP_VIEWS,
    **sql_commits.COMMIT_VIEWS,
    **sql_groups.GROUP_VIEWS,
    **sql_copies.COPY_VIEWS,
    **sql_delivery.DELIVERY_VIEWS,
}
_HELD = (
    *("given", "log", "sent", "first_copy", "unconfirmed", "batch", "unread"),
    *("record", "owned", "left_over", "why_again", "overdue"),
)
"""Views that many texts use: computed once. Spark only finds them again if neither they nor what they are made of has a
`with`."""
WORLDLY = ("metadata", "metrics", "transactions", "clients", "heartbeats", "assignments")
"""Tables that have no partition, or rows without one: each row says of which world it is."""
SMALL_ROWS = 2_000_000
"""Of a history with fewer, most of the time goes into planning, compiling and starting tasks."""
_SMALL_PLANS = {"spark.sql.adaptive.enabled": "false", "spark.sql.codegen.wholeStage": "false"}
_SHOWN = 3
Rows = Counter[tuple[int, ...]]
"""Witnesses as the values of the columns that name them, each as often as it was found."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What SQL found of one anomaly: the columns that name a witness, `partition` first, and every witness."""

    fields: tuple[str, ...]
    rows: Rows

    def counts(self, cells: Mapping[int, int]) -> Counter[int]:
        """Cell → how many. `cells`: partition → cell."""
        found: Counter[int] = Counter()
        for row, times in self.rows.items():
            found[cells.get(row[0], NONE)] += times
        return found


def second_opinion(
    run: RunDirectory, findings: Sequence[Finding], *, workers: int, session: "SparkSession | None" = None
) -> tuple[str, ...]:
    """Compare findings of a run with what SQL finds in it: one sentence for each disagreement; none: they agree.

    `findings`: of every kernel that was asked, as an engine returned them. BadInput for a history that nobody audited,
    HistoryUnreadable, HarnessFailed (Spark).
    """
    if session is None:
        from spark_checkers.session import start_session

        session = start_session(master=f"local[{workers}]")
        try:
            return second_opinion(run, findings, workers=workers, session=session)
        finally:
            session.stop()
    history = History.open(run)
    if not all(history.partition_history(p).audited for p in history.partitions):
        raise BadInput(
            f"{run.path} was imported, and the second opinion needs an audit to compare with. Leave --oracle away."
        )
    asked = [anomaly for anomaly in QUERIES if any(f.anomaly == anomaly for f in findings)]
    tables = {name: _table_of_run(session, table_path(run, name), name) for name in TABLES}
    facts = {name: session.createDataFrame(rows) for name, rows in facts_of(history).items()}
    rows = sum(history.rows(name) for name in TABLES)
    with _planned(session, _SMALL_PLANS | {"spark.sql.shuffle.partitions": str(workers)} if rows < SMALL_ROWS else {}):
        opinions = ask(session, tables | facts, asked)
    cells = {planned.partition: planned.cell for planned in history.plan.partitions}
    return disagreements(findings, opinions, cells)


@contextlib.contextmanager
def _planned(session: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """With these settings of the session, which are as before afterwards."""
    before = {name: session.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, was in before.items():
            if was is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, was)


def ask(session: "SparkSession", tables: "Mapping[str, DataFrame]", anomalies: Sequence[str]) -> dict[str, Opinion]:
    """What SQL finds of these anomalies. `tables`: every table of a history and the facts beside it, by name."""
    held: list[DataFrame] = []
    try:
        for name, frame in tables.items():
            frame.createOrReplaceTempView(name)
        for name, text in _ALL_VIEWS.items():
            frame = session.sql(fill(text))
            if name in _HELD:
                held.append(frame.cache())
            frame.createOrReplaceTempView(name)
        return {anomaly: _opinion(session.sql(fill(QUERIES[anomaly])).toArrow()) for anomaly in anomalies}
    except Exception as error:  # pyspark's, py4j's, or a lost connection: all mean that Spark failed
        said = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise HarnessFailed(f"Spark could not ask the history in SQL: {said.strip()[:500]}.") from error
    finally:
        for frame in held:
            frame.unpersist()


def disagreements(
    findings: Sequence[Finding], opinions: Mapping[str, Opinion], cells: Mapping[int, int]
) -> tuple[str, ...]:
    """A sentence for each (anomaly, cell) of which kernels and SQL found another number, or other witnesses.
    `cells`: partition → cell."""
    said = []
    for anomaly, opinion in opinions.items():
        results = [f.result for f in findings if f.anomaly == anomaly]
        shown = np.concatenate([no_witnesses(), *(r.witnesses for r in results)])
        whole = sum(r.count for r in results) == len(shown)
        counted: Counter[int] = Counter()
        for finding in findings:
            if finding.anomaly == anomaly:
                counted[cells.get(finding.partition, NONE)] += finding.result.count
        of_sql = opinion.counts(cells)
        for cell in sorted(counted):  # a kernel over cells gives findings only of those that it applies to
            if counted[cell] != of_sql[cell]:
                said.append(f"{anomaly} in cell {cell}: the kernel counted {counted[cell]:,}, SQL {of_sql[cell]:,}")
        fields = [name for name in opinion.fields if name in (WITNESS.names or ())]
        opinion = Opinion(
            opinion.fields, Counter({r: n for r, n in opinion.rows.items() if cells.get(r[0]) in counted})
        )
        if whole and results and not any(s.startswith(f"{anomaly} in cell") for s in said):
            said += _strangers(anomaly, fields, shown, opinion)
    return tuple(said)


def _strangers(anomaly: str, fields: Sequence[str], shown: np.ndarray, opinion: Opinion) -> list[str]:
    """The same number, but other witnesses."""
    chosen = [opinion.fields.index(name) for name in fields]
    of_sql: Rows = Counter()
    for row, times in opinion.rows.items():
        of_sql[tuple(row[i] for i in chosen)] += times
    of_kernel: Rows = Counter(zip(*(shown[name].tolist() for name in fields), strict=True))
    here, there = list((of_kernel - of_sql).elements()), list((of_sql - of_kernel).elements())
    if not here and not there:
        return []
    names = ", ".join(fields)
    return [
        f"{anomaly}: the kernel and SQL found other witnesses ({names}): the kernel {here[:_SHOWN]}, SQL {there[:_SHOWN]}"
    ]


def _opinion(table: pa.Table) -> Opinion:
    names = tuple(table.column_names)
    fields = ("partition", *(name for name in names if name != "partition"))
    columns = [table.column(name).to_pylist() for name in fields]
    return Opinion(fields, Counter(zip(*columns, strict=True)))


def _table_of_run(session: "SparkSession", path: Path, name: str) -> "DataFrame":
    """A table with the number of each row; the history is one world, 0."""
    frame = session.read.parquet(str(path)).selectExpr("*", "_metadata.row_index as row")
    return frame.selectExpr("*", "0 as world") if name in WORLDLY else frame
