"""The second opinion: every check that SQL can express is stated again in SQL, and compared with what the kernels found.

`prozess check RUN --oracle` asks for it. Spark SQL reads the Parquet tables itself, and nothing of `checkers` is used.
It is meant to be simple, and is slow.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from prozess.harness.config.configuration import PROVOCATIONS
from prozess.harness.history.parquet import parquet_schema, table_path
from prozess.harness.history.reader import History
from prozess.harness.interfaces import CellHistory, Finding, PartitionHistory
from prozess.harness.interfaces.witnesses import SCAN_NS, WITNESS, no_witnesses
from prozess.harness.plan.plan import Cell
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import CLIENTS, MISSING, NONE, TABLES, Isolation
from prozess.spark_checkers.oracle.asking import AUDITED, UNAUDITED, Opinion, Rows, ask_run
from prozess.spark_checkers.oracle.views import FACTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WORLDLY = ("metadata", "metrics", "transactions", "clients", "heartbeats", "assignments")
"""Tables that have no partition, or have rows without one. Each row says which world it belongs to."""
_SHOWN = 3


def second_opinion(
    run: RunDirectory, findings: Sequence[Finding], *, workers: int, session: "SparkSession | None" = None
) -> tuple[str, ...]:
    """Compares the findings of a run with what SQL finds in it. It returns one sentence for each disagreement, and none
    if the two agree.

    `findings`: of every kernel that was asked, as an engine returned them. Of a history that nobody audited, only what can
    be judged without an audit is compared (`not_compared`). HistoryUnreadable, HarnessFailed (Spark).
    """
    if session is None:
        from prozess.spark_checkers.session import start_session

        session = start_session(master=f"local[{workers}]")
        try:
            return second_opinion(run, findings, workers=workers, session=session)
        finally:
            session.stop()
    history = History.open(run)
    texts = AUDITED if history.plan.audited else UNAUDITED
    asked = [anomaly for anomaly in texts.queries if any(f.anomaly == anomaly for f in findings)]
    of_run = facts_of(history)
    tables = {name: _table_of_run(session, table_path(run, name), name) for name in TABLES}
    tables |= {name: session.createDataFrame(rows) for name, rows in of_run.items()}
    sizes = {name: history.rows(name) for name in TABLES} | {name: rows.num_rows for name, rows in of_run.items()}
    if texts is UNAUDITED:
        tables["received"], sizes["received"] = tables.pop("reads"), sizes.pop("reads")
    opinions = ask_run(session, tables, sizes, asked, texts, workers=workers)
    cells = {planned.partition: planned.cell for planned in history.plan.partitions}
    return disagreements(findings, opinions, cells)


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


def disagreements(
    findings: Sequence[Finding], opinions: Mapping[str, Opinion], cells: Mapping[int, int]
) -> tuple[str, ...]:
    """Returns a sentence for each (anomaly, cell) of which kernels and SQL found different numbers or different
    witnesses. `cells` maps a partition to its cell."""
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


def _table_of_run(session: "SparkSession", path: Path, name: str) -> "DataFrame":
    """Returns a table with the number of each row. The history is one world, 0."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(parquet_schema(TABLES[name]))
    frame = session.read.schema(schema).parquet(str(path)).selectExpr("*", "_metadata.row_index as row")
    return frame.selectExpr("*", "0 as world") if name in WORLDLY else frame


# The facts that the SQL needs beside the tables: of clients, partitions and cells.


_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "boolean": pa.bool_(), "string": pa.string()}
_LEVELS = {"read_uncommitted": int(Isolation.READ_UNCOMMITTED), "read_committed": int(Isolation.READ_COMMITTED)}
_NS_PER_MS = 1_000_000
FactRows = list[tuple[Any, ...]]


def facts_of(history: History) -> dict[str, pa.Table]:
    """Returns the facts of a run, as one world, 0."""
    facts = empty_facts()
    known = history.clients
    nobody = [MISSING] * (len(known.role) - len(known.told_ns))  # two that stand for an audit, where there was none
    columns = (known.role, known.isolation, known.issued, known.acks, known.clock)
    told_ns = known.told_ns.tolist() + nobody
    for client, told in enumerate(zip(*(column.tolist() for column in columns), told_ns, strict=True)):
        facts["fact_clients"].append((0, client, *told[:-1], None if told[-1] == MISSING else told[-1]))
    of_cell = {p: cell for cell in history.plan.cells for p in cell.partitions}
    for partition in history.partitions:
        add_partition(facts, history.partition_history(partition), world=0, cell=of_cell.get(partition))
    for cell in history.plan.cells:
        add_cell(facts, cell, world=0)
        add_serving(facts, history.cell_history(cell.cell), world=0, cell=cell)
    return to_arrow(facts)


def empty_facts() -> dict[str, FactRows]:
    """Returns every table of facts, without rows."""
    return {name: [] for name in FACTS}


def add_partition(facts: Mapping[str, FactRows], partition: PartitionHistory, *, world: int, cell: Cell | None) -> None:
    """Adds what is known of one partition. `cell` None: the partition was not planned."""
    number = partition.partition
    hands_on = cell is not None and cell.group is not None and cell.group.hands_on
    retried_in = dict(zip(cell.written, cell.derived, strict=True)) if cell is not None and hands_on else {}
    facts["fact_partitions"].append(
        (
            world,
            number,
            NONE if cell is None else cell.cell,
            partition.compacted,
            partition.log_start,
            partition.audit_end.get(Isolation.READ_UNCOMMITTED),
            partition.audit_end.get(Isolation.READ_COMMITTED),
            partition.min_insync_replicas,
            partition.metadata_error_ns,
            cell is not None and number in cell.derived,
            cell is not None and number in cell.late_partitions,
            retried_in.get(number),
        )
    )
    facts["fact_assignment"].extend((number, node) for node in partition.assignment)
    facts["fact_copies"].extend(
        (number, node, copy.log_start, copy.log_end, copy.high_watermark) for node, copy in partition.copies.items()
    )


def add_cell(facts: Mapping[str, FactRows], cell: Cell, *, world: int) -> None:
    """Adds what is known of one cell."""
    group, session, made = cell.group, cell.session, cell.provocation
    of_group: tuple[Any, ...] = (None, None, None)
    limits: tuple[Any, ...] = (None, None, False, True)
    if group is not None:
        of_group = (group.commit, _LEVELS[group.isolation_level], group.auto_offset_reset)
        silent_ms = None if session is None else max(0, session.timeout_ms - session.heartbeat_ms)
        limits = (
            None if silent_ms is None else silent_ms * _NS_PER_MS,
            group.max_poll_interval_ms * _NS_PER_MS,
            group.static_membership and group.protocol != "consumer",
            group.client != "java",
        )
    open_ns = None
    if cell.transaction is not None:
        open_ns = cell.transaction.transaction_timeout_ms * _NS_PER_MS + SCAN_NS
    every = None
    if made is not None:
        provocation = PROVOCATIONS[made.error]
        every = made.every if provocation.of_record else 0
        facts["fact_codes"].extend((world, cell.cell, code) for code in provocation.codes)
    by_content = cell.carriers[1] == "content"
    bound_ns = None if cell.delivery_bound is None else cell.delivery_bound.latency_ns
    facts["fact_cells"].append(
        (world, cell.cell, cell.workload, *of_group, *limits, open_ns, by_content, every, bound_ns)
    )


def add_serving(facts: Mapping[str, FactRows], history: CellHistory, *, world: int, cell: Cell) -> None:
    """Adds who served a cell. `cell` is the same cell, perhaps with other ids."""
    told = history.tables.get("clients", CLIENTS.empty())
    level = {c.client: _LEVELS[c.isolation_level] for c in history.clients if c.role == "reader" and c.isolation_level}
    for client, planned in zip(told["client"].tolist(), told["planned"].tolist(), strict=True):
        facts["fact_serving"].append((world, cell.cell, client))
        if planned in level:
            facts["fact_readers"].append((world, cell.cell, client, level[planned]))
    if cell.delivery_bound is not None:
        _add_places(facts, history, world=world, cell=cell)


def _add_places(facts: Mapping[str, FactRows], history: CellHistory, *, world: int, cell: Cell) -> None:
    """Adds who should receive the records of the cell: its group, or each tailing reader of the partition. Of
    transactions it is each reader at read_committed."""
    alone = "transactions" in cell.traits
    owed = [
        ([c.client], c.partitions)
        for c in history.clients
        if c.role == "reader" and not (alone and c.isolation_level != "read_committed")
    ]
    if cell.group is not None:
        members = [c.client for c in history.clients if c.role == "member" and c.cell == history.cell.cell]
        owed = [(members, history.cell.written)]
    for planned, partitions in owed:
        place = len(facts["fact_due"])  # any number that grows will do
        facts["fact_places"].extend((world, place, client) for client in planned)
        named = zip(history.cell.written, cell.written, strict=True)
        facts["fact_due"].extend((world, place, own) for number, own in named if number in partitions)


def to_arrow(facts: Mapping[str, FactRows]) -> dict[str, pa.Table]:
    """Returns the facts as Arrow tables."""
    made = {}
    for name, rows in facts.items():
        fields = [field.strip().split(" ") for field in FACTS[name].split(",")]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
        made[name] = pa.table(
            {field: pa.array(c, _TYPES[kind]) for (field, kind), c in zip(fields, columns, strict=True)}
        )
    return made
