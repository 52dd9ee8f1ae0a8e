"""The second opinion: every check that SQL can express is stated again in SQL, and compared with what the kernels found.

`prozess check RUN --oracle` asks for it. Spark SQL reads the Parquet tables itself, and nothing of `checkers` is used.
It is meant to be simple, and is slow: `docs/performance.md` says how slow.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from prozess.harness.history.parquet import of_an_earlier_version, parquet_schema, table_path
from prozess.harness.history.participants import REVEALED
from prozess.harness.history.reader import History
from prozess.harness.interfaces.checking import Finding
from prozess.harness.interfaces.witnesses import WITNESS, no_witnesses
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import NONE, TABLES, Role
from prozess.spark_checkers.oracle.circles import CYCLES, circles_in
from prozess.spark_checkers.oracle.facts import facts_of
from prozess.spark_checkers.oracle.texts import FILES, SqlTexts, texts_of
from prozess.spark_checkers.session import (
    Batches,
    failure_named,
    frame_without_rows,
    local_master,
    map_numbers,
    start_session,
    to_arrow,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from prozess.harness.run_directory import TableStore

_INSTEAD = ("recorded", "revealed", *(name for name in FILES if name.startswith("unaudited_")))
"""The files that have texts in place of others."""
AUDITED = texts_of(*(name for name in FILES if name not in _INSTEAD))
"""The texts for a history that was audited."""
QUERIES = AUDITED.queries
AS_AUDITED = (
    *("duplicate", "reordered", "offset-conflict", "phantom", "corrupt", "misplaced", "rewound"),
    *("torn", "lost-transaction", "zombie-write", "aborted-read", "early-read"),
    *CYCLES,
)
"""The anomalies whose texts hold without an audit, too."""
_UNAUDITED = texts_of("unaudited_log", "unaudited_reading", "unaudited_transactions")
UNAUDITED = SqlTexts(
    {**{name: QUERIES[name] for name in AS_AUDITED}, **_UNAUDITED.queries},
    texts_of(
        *("revealed", "views", "log", "unaudited_log", "reading", "compaction", "replicas", "deletions", "leadership"),
        *("transactions", "cycles", "unaudited_transactions"),
    ).views,
)
"""The texts for a history that nobody audited: what can be judged all the same."""
RECORDED = texts_of("recorded").views
"""The texts of facts that are read from the tables, and not taken from the reading that kernels rely on."""
FEW_ROWS = 20_000
"""To go through fewer rows takes less time than to compile how."""
WHOLE_ROWS = 1_200_000
"""A history with fewer rows is in one piece. Two texts at a time keep two cores busy, and no row ever moves. Spark has 1 GB:
1.9 million rows still fitted in one piece, and 2.5 million did not."""
ROWS_PER_PIECE = 500_000
ROWS_PER_BATCH = 131_072
"""How many rows of a stored table a worker hands over at a time."""
TASKS_MAX = 16
"""The most tasks that read a stored table."""
PLANS = {
    "spark.sql.adaptive.enabled": "false",
    # Rows that are in one piece by their partition are also by their partition and offset.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    # Unions of which a branch is known to be empty: "key not found", in Spark 4.3.0 [UnionBase.rewriteConstraints].
    "spark.sql.constraintPropagation.enabled": "false",
}
_COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
TINY_PLANS = PLANS | _INTERPRETED | {"spark.sql.shuffle.partitions": "1"}
"""Settings for histories that have few rows in every table."""
_AT_ONCE = 2
"""How many texts are asked at the same time. One alone leaves a core idle while it is planned."""
Rows = Counter[tuple[int, ...]]
"""Witnesses, as the values of the columns that name them, each as often as it was found."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """Describes what SQL found of one anomaly: the columns that name a witness, and every witness. The first is `partition`,
    or `somewhere`, a partition of the cell that is not compared."""

    fields: tuple[str, ...]
    rows: Rows

    def counts(self, cells: Mapping[int, int]) -> Counter[int]:
        """Returns how many witnesses each cell has. `cells` maps a partition to its cell."""
        found: Counter[int] = Counter()
        for row, times in self.rows.items():
            found[cells.get(row[0], NONE)] += times
        return found


WORLDLY = (
    "metadata",
    "metrics",
    "transactions",
    "clients",
    "heartbeats",
    "assignments",
    "positions",
    "admin_operations",
    "cluster_states",
    "transaction_states",
    "group_states",
    "share_states",
)
"""Tables that have no partition, or have rows without one. Each row says which world it belongs to."""
_SHOWN = 3


def second_opinion(
    run: RunDirectory, findings: Sequence[Finding], *, workers: int, session: "SparkSession | None" = None
) -> tuple[str, ...]:
    """Compares the findings of a run with what SQL finds in it. It returns one sentence for each disagreement, and none
    if the two agree.

    `findings`: of every kernel that was asked, as an engine returned them. If nobody audited the history, only what can
    be judged without an audit is compared (`not_compared`). HistoryUnreadable, HarnessFailed (Spark).
    """
    if session is None:
        session = start_session(master=local_master(workers))
        try:
            return second_opinion(run, findings, workers=workers, session=session)
        finally:
            session.stop()
    history = History.open(run)
    of_run = facts_of(history)
    tables = {name: _table_of_run(session, run, name) for name in TABLES}
    of_run |= _recorded(session, tables, of_run)
    tables |= {name: session.createDataFrame(rows) for name, rows in of_run.items()}
    sizes = {name: history.rows(name) for name in TABLES} | {name: rows.num_rows for name, rows in of_run.items()}
    cells = {planned.partition: planned.cell for planned in history.plan.partitions}
    if not (history.plan.audited and history.ended):
        texts = AUDITED if history.plan.audited else UNAUDITED
        return _compared(session, tables, sizes, findings, texts, cells, workers=workers)
    first = len(history.clients.role) - len(REVEALED)
    found: tuple[str, ...] = ()
    for texts in (AUDITED, UNAUDITED):  # the topics that went on, then those that were deleted before the audit
        mine = [f for f in findings if (f.partition in history.ended) is (texts is UNAUDITED)]
        chosen = _of_topics(tables, history.ended, gone=texts is UNAUDITED, first_revealed=first)
        found += _compared(session, chosen, sizes, mine, texts, cells, workers=workers)
    return found


def _recorded(
    session: "SparkSession", tables: "Mapping[str, DataFrame]", of_run: Mapping[str, pa.Table]
) -> dict[str, pa.Table]:
    """Returns the facts that SQL reads from the tables itself (`recorded.sql`), in the form of the planned ones."""
    planned = {name.replace("fact_", "planned_"): of_run[name] for name in RECORDED}
    given = {name: tables[name] for name in ("observations", "reads", "clients")}
    given |= {name: session.createDataFrame(rows) for name, rows in planned.items()}
    with failure_named("read the history in SQL", "", _first_line):
        for name, frame in given.items():
            frame.createOrReplaceTempView(name)
        found = {name: to_arrow(session.sql(text)) for name, text in RECORDED.items()}
        for name in given:
            session.catalog.dropTempView(name)
    return {name: rows.select(of_run[name].column_names).cast(of_run[name].schema) for name, rows in found.items()}


def _compared(
    session: "SparkSession",
    tables: "Mapping[str, DataFrame]",
    sizes: Mapping[str, int],
    findings: Sequence[Finding],
    texts: SqlTexts,
    cells: Mapping[int, int],
    *,
    workers: int,
) -> tuple[str, ...]:
    """Asks the tables, and compares. `tables` has `reads`, audited or not."""
    asked = [anomaly for anomaly in texts.queries if any(f.anomaly == anomaly for f in findings)]
    tables, sizes = dict(tables), dict(sizes)
    if texts is UNAUDITED:
        tables["received"], sizes["received"] = tables.pop("reads"), sizes.pop("reads")
    opinions = ask_run(session, tables, sizes, asked, texts, workers=workers)
    return disagreements(findings, opinions, cells)


def _of_topics(
    tables: "Mapping[str, DataFrame]", ended: Set[int], *, gone: bool, first_revealed: int
) -> "dict[str, DataFrame]":
    """Returns the rows of the topics that were deleted before the audit, or of the others; rows of no partition are of both.
    No audit read the former: two clients from `first_revealed` on stand for one."""
    numbers = ", ".join(map(str, sorted(ended)))
    of_partitions = f"partition < 0 or partition {'in' if gone else 'not in'} ({numbers})"
    audit = "client >=" if gone else "client <"
    of_clients = f"role != {int(Role.AUDIT)} or {audit} {first_revealed}"
    return {
        name: frame.where(of_partitions)
        if "partition" in frame.columns
        else frame.where(of_clients)
        if name == "fact_clients"
        else frame
        for name, frame in tables.items()
    }


def not_compared(run: RunDirectory, findings: Sequence[Finding]) -> str | None:
    """Returns a sentence that names what the second opinion cannot compare in this run, or None if there was an audit.
    HistoryUnreadable."""
    if History.open(run).plan.audited:
        return None
    named = dict.fromkeys(f.anomaly for f in findings if f.anomaly not in UNAUDITED.queries)
    if not named:
        return None
    return (
        "Nobody audited this history, so the second opinion compared only what can be judged without an audit. "
        f"Not compared: {', '.join(named)}."
    )


# How the texts are asked. At 20,000 rows nearly all of the time goes into planning them and starting tasks, at 1,000,000 rows
# half of it. Rows move as little as possible, nothing is planned for a table without rows, and what few rows go through
# is not compiled.


def ask_run(
    session: "SparkSession",
    tables: "Mapping[str, DataFrame]",
    sizes: Mapping[str, int],
    anomalies: Sequence[str],
    texts: SqlTexts,
    *,
    workers: int,
) -> dict[str, Opinion]:
    """Returns what SQL finds of these anomalies, as `ask`. `sizes`: how many rows each table has."""
    # Without an audit each read may reveal a record of both logs, which are reported as reads, too.
    assert tables.keys() == sizes.keys(), "each table has a size"
    rows = sum(sizes.values()) + 2 * sizes.get("received", 0)
    pieces = 1 if rows < WHOLE_ROWS else max(workers, -(-rows // ROWS_PER_PIECE))
    plans = PLANS | _COMPILED | {"spark.sql.shuffle.partitions": str(pieces)}
    with _planned(session, plans):
        placed = {name: _placed(frame, pieces, sizes[name]) for name, frame in tables.items()}
        return ask(session, placed, anomalies, texts, sizes)


def ask(
    session: "SparkSession",
    tables: "Mapping[str, DataFrame]",
    anomalies: Sequence[str],
    texts: SqlTexts = AUDITED,
    sizes: Mapping[str, int] | None = None,
) -> dict[str, Opinion]:
    """Returns what SQL finds of these anomalies. `tables` has every table of a history, and the facts beside it, by
    name; without an audit, `received` in place of `reads`. `sizes`: how many rows each table has; then a text is only
    compiled if many rows go through it. None: the session decides. HarnessFailed if Spark fails."""
    views = needed_views(anomalies, texts)
    rows = dict(sizes or {})
    found: dict[str, pa.Table] = {}

    def make(name: str) -> None:
        # Each view is computed once, and is a plain table to those who use it. A view that is cached keeps the plans of all
        # that it is made of, and Spark goes through them again for each text: that took most of the time.
        frame = session.sql(texts.views[name]).localCheckpoint(eager=False)
        rows[name] = frame.count()
        _known(frame, rows[name]).createOrReplaceTempView(name)

    def answer(name: str) -> None:
        found[name] = to_arrow(session.sql(texts.queries[name]))

    made = {view: partial(make, view) for view in views} | {f"? {name}": partial(answer, name) for name in anomalies}
    written = {view: texts.views[view] for view in views} | {f"? {name}": texts.queries[name] for name in anomalies}
    needs = {  # each is made of those before it, and may use the name of another one for a column
        name: {view for view in views[:index] if _names(text, view)}
        for index, (name, text) in enumerate(written.items())
    }
    reads = {name: needs[name] | {table for table in tables if _names(text, table)} for name, text in written.items()}

    def compiled(name: str) -> bool | None:
        return None if sizes is None else any(rows[read] > FEW_ROWS for read in reads[name])

    with failure_named("ask the history in SQL", "", _first_line):
        for name, frame in tables.items():
            frame.createOrReplaceTempView(name)
        _perform(session, made, needs, compiled)
        for name in (*tables, *views):  # Spark frees what nobody names
            session.catalog.dropTempView(name)
        return {anomaly: _opinion(anomaly, found[anomaly]) for anomaly in anomalies}


def _first_line(error: Exception) -> str:
    """Returns what Spark says of a text in SQL: its plan follows in further lines."""
    first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return first.strip()[:500]


def needed_views(anomalies: Sequence[str], texts: SqlTexts = AUDITED) -> tuple[str, ...]:
    """Returns the views that the texts of these anomalies use, and those that these are made of, in the order of making."""
    assert set(anomalies) <= texts.queries.keys(), (
        f"there is no text of {sorted(set(anomalies) - texts.queries.keys())}"
    )
    wanted = [texts.queries[anomaly] for anomaly in anomalies]
    needed = []
    for name, text in reversed(list(texts.views.items())):  # each is made of those before it
        if any(_names(other, name) for other in wanted):
            needed.append(name)
            wanted.append(text)
    return tuple(reversed(needed))


def _names(text: str, view: str) -> bool:
    """Returns whether a text names this view or table."""
    return re.search(rf"\b{view}\b", text) is not None


def _perform(
    session: "SparkSession",
    works: Mapping[str, Callable[[], None]],
    needs: Mapping[str, Set[str]],
    compiled: Callable[[str], bool | None],
) -> None:
    """Does all of these works, some at the same time, each after those that it needs. `compiled`: whether a work whose
    needs are done is to be compiled. That is a setting of the session, so it only changes while nothing runs."""
    waiting, done = dict(works), set[str]()
    running: dict[Future[None], str] = {}
    now = None
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        while waiting or running:
            ready = [name for name in waiting if needs[name] <= done]
            if not running and ready and all(compiled(name) != now for name in ready):
                now = compiled(ready[0])
                for setting, value in (_COMPILED if now else _INTERPRETED).items():
                    session.conf.set(setting, value)
            chosen = [name for name in ready if compiled(name) == now][: _AT_ONCE - len(running)]
            running |= {threads.submit(waiting.pop(name)): name for name in chosen}
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                future.result()
                done.add(running.pop(future))


def _placed(frame: "DataFrame", pieces: int, rows: int) -> "DataFrame":
    """Returns the same table, with the rows of each partition of the history in one piece. No join within a partition then
    moves any."""
    whole = pieces == 1 or "partition" not in frame.columns
    return _known(frame.coalesce(1) if whole else frame.repartition(pieces, "partition"), rows)


def _known(frame: "DataFrame", rows: int) -> "DataFrame":
    """Returns the same table, of which Spark now knows that it has no rows, or few. Spark plans no work for what no row can
    come of, and keeps few rows in a hash table where they are joined. Without a hint it takes every table for a large one,
    and sorts both sides of each join."""
    if not rows:
        return frame.where("false")
    if rows > FEW_ROWS:
        return frame
    return frame.hint("shuffle_hash" if "partition" in frame.columns else "broadcast")


@contextlib.contextmanager
def _planned(session: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """A context in which the session has these settings. Afterwards they are as before."""
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


def _opinion(anomaly: str, table: pa.Table) -> Opinion:
    for cycle in CYCLES:
        if cycle == anomaly:
            return Opinion(("somewhere", "case"), circles_in(cycle, table))
    names = tuple(table.column_names)
    fields = ("partition", *(name for name in names if name != "partition"))
    columns = [table.column(name).to_pylist() for name in fields]
    return Opinion(fields, Counter(zip(*columns, strict=True)))


# What both found, side by side.


def disagreements(
    findings: Sequence[Finding], opinions: Mapping[str, Opinion], cells: Mapping[int, int]
) -> tuple[str, ...]:
    """Returns a sentence for each (anomaly, cell) of which kernels and SQL found different numbers or different
    witnesses. `cells` maps a partition to its cell."""
    found = []
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
                found.append(f"{anomaly} in cell {cell}: the kernel counted {counted[cell]:,}, SQL {of_sql[cell]:,}")
        fields = [name for name in opinion.fields if name in (WITNESS.names or ())]
        opinion = Opinion(
            opinion.fields, Counter({r: n for r, n in opinion.rows.items() if cells.get(r[0]) in counted})
        )
        if whole and results and not any(s.startswith(f"{anomaly} in cell") for s in found):
            found += _strangers(anomaly, fields, shown, opinion)
    return tuple(found)


def _strangers(anomaly: str, fields: Sequence[str], shown: np.ndarray, opinion: Opinion) -> list[str]:
    """Returns a sentence if the kernel and SQL found the same number, but different witnesses."""
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


def _table_of_run(session: "SparkSession", run: RunDirectory, name: str) -> "DataFrame":
    """Returns a table with the number of each row. The history is one world, 0."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if of_an_earlier_version(run, TABLES[name]):
        frame = frame_without_rows(session, parquet_schema(TABLES[name])).selectExpr("*", "0L as row")
    elif run.tables is None:
        schema = from_arrow_schema(parquet_schema(TABLES[name]))
        frame = session.read.schema(schema).parquet(str(table_path(run, name)))
        frame = frame.selectExpr("*", "_metadata.row_index as row")
    else:
        frame = _stored_table(session, run.tables, name)
    return frame.selectExpr("*", "0 as world") if name in WORLDLY else frame


def _stored_table(session: "SparkSession", store: "TableStore", name: str) -> "DataFrame":
    """Returns the same of a table in an object store: workers read it with pyarrow, logged in as whoever asks, so Spark needs
    no connector and no path that all see. It is read once, and kept."""
    schema = parquet_schema(TABLES[name]).append(pa.field("row", pa.int64()))
    with store.filesystem.open_input_file(store.path(name)) as file:
        footer = pq.read_metadata(file)
    sizes = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
    first = [0, *accumulate(sizes)]
    if not sizes:
        return session.createDataFrame(schema.empty_table())

    def read(groups: Iterator[int]) -> Batches:
        with pq.ParquetFile(store.filesystem.open_input_file(store.path(name)), pre_buffer=True) as file:
            for group in groups:
                table = file.read_row_group(group)
                rows = pa.array(range(first[group], first[group] + table.num_rows), pa.int64())
                yield from table.append_column("row", rows).cast(schema).to_batches(max_chunksize=ROWS_PER_BATCH)

    return map_numbers(session, len(sizes), read, schema, tasks=TASKS_MAX).localCheckpoint(eager=False)
