"""What the SQL of the second opinion needs to know beside the tables: facts of clients, partitions and cells, as tables."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from harness.history_reader import History
from harness.plan import Cell
from harness.protocols import CellHistory, PartitionHistory
from harness.provocations import PROVOCATIONS
from harness.schema import CLIENTS, MISSING, NONE, Isolation
from harness.stalls import SCAN_NS
from spark_checkers.sql_views import FACTS

_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "boolean": pa.bool_(), "string": pa.string()}
_LEVELS = {"read_uncommitted": int(Isolation.READ_UNCOMMITTED), "read_committed": int(Isolation.READ_COMMITTED)}
_NS_PER_MS = 1_000_000
Rows = list[tuple[Any, ...]]


def facts_of(history: History) -> dict[str, pa.Table]:
    """Of a run: one world, 0."""
    facts = empty_facts()
    known = history.clients
    columns = (known.role, known.isolation, known.issued, known.acks, known.clock, known.told_ns)
    for client, told in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        facts["fact_clients"].append((0, client, *told[:-1], None if told[-1] == MISSING else told[-1]))
    of_cell = {p: cell for cell in history.plan.cells for p in cell.partitions}
    for partition in history.partitions:
        add_partition(facts, history.partition_history(partition), world=0, cell=of_cell.get(partition))
    for cell in history.plan.cells:
        add_cell(facts, cell, world=0)
        add_serving(facts, history.cell_history(cell.cell), world=0, cell=cell)
    return to_arrow(facts)


def empty_facts() -> dict[str, Rows]:
    """Every table of facts, without rows."""
    return {name: [] for name in FACTS}


def add_partition(facts: Mapping[str, Rows], partition: PartitionHistory, *, world: int, cell: Cell | None) -> None:
    """What is known of one partition. `cell` None: nobody planned it."""
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


def add_cell(facts: Mapping[str, Rows], cell: Cell, *, world: int) -> None:
    """What is known of one cell."""
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


def add_serving(facts: Mapping[str, Rows], history: CellHistory, *, world: int, cell: Cell) -> None:
    """Who served a cell. `cell`: the same one, perhaps with other ids."""
    told = history.tables.get("clients", CLIENTS.empty())
    level = {c.client: _LEVELS[c.isolation_level] for c in history.clients if c.role == "reader" and c.isolation_level}
    for client, planned in zip(told["client"].tolist(), told["planned"].tolist(), strict=True):
        facts["fact_serving"].append((world, cell.cell, client))
        if planned in level:
            facts["fact_readers"].append((world, cell.cell, client, level[planned]))
    if cell.delivery_bound is not None:
        _add_places(facts, history, world=world, cell=cell)


def _add_places(facts: Mapping[str, Rows], history: CellHistory, *, world: int, cell: Cell) -> None:
    """To whom the records of the cell are owed: to its group, or to each tailing reader of the partition; of transactions to
    those at read_committed."""
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


def to_arrow(facts: Mapping[str, Rows]) -> dict[str, pa.Table]:
    """The facts as tables."""
    made = {}
    for name, rows in facts.items():
        fields = [field.strip().split(" ") for field in FACTS[name].split(",")]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
        made[name] = pa.table(
            {field: pa.array(c, _TYPES[kind]) for (field, kind), c in zip(fields, columns, strict=True)}
        )
    return made
