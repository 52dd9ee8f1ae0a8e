"""What the SQL of the second opinion needs to know beside the tables: facts of clients, partitions and cells, as tables."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from harness.history_reader import History
from harness.plan import Cell
from harness.protocols import PartitionHistory
from harness.schema import NONE, Isolation
from spark_checkers.sql_views import FACTS

_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "boolean": pa.bool_(), "string": pa.string()}
Rows = list[tuple[Any, ...]]


def facts_of(history: History) -> dict[str, pa.Table]:
    """Of a run: one world, 0."""
    facts = empty_facts()
    known = history.clients
    columns = (known.role, known.isolation, known.issued, known.acks, known.clock)
    values = zip(*(column.tolist() for column in columns), strict=True)
    facts["fact_clients"] += [(0, client, *told) for client, told in enumerate(values)]
    of_cell = {p: cell.cell for cell in history.plan.cells for p in cell.partitions}
    for partition in history.partitions:
        add_partition(facts, history.partition_history(partition), world=0, cell=of_cell.get(partition, NONE))
    for cell in history.plan.cells:
        add_cell(facts, cell, world=0)
    return to_arrow(facts)


def empty_facts() -> dict[str, Rows]:
    """Every table of facts, without rows."""
    return {name: [] for name in FACTS}


def add_partition(facts: Mapping[str, Rows], partition: PartitionHistory, *, world: int, cell: int) -> None:
    """What is known of one partition. `cell` NONE: nobody planned it."""
    number = partition.partition
    facts["fact_partitions"].append(
        (
            world,
            number,
            cell,
            partition.compacted,
            partition.log_start,
            partition.audit_end.get(Isolation.READ_UNCOMMITTED),
            partition.audit_end.get(Isolation.READ_COMMITTED),
            partition.min_insync_replicas,
            partition.metadata_error_ns,
        )
    )
    facts["fact_assignment"].extend((number, node) for node in partition.assignment)
    facts["fact_copies"].extend(
        (number, node, copy.log_start, copy.log_end, copy.high_watermark) for node, copy in partition.copies.items()
    )


def add_cell(facts: Mapping[str, Rows], cell: Cell, *, world: int) -> None:
    """What is known of one cell."""
    group = cell.group
    of_group: tuple[Any, ...] = (None, None, None)
    if group is not None:
        level = Isolation.READ_COMMITTED if group.isolation_level == "read_committed" else Isolation.READ_UNCOMMITTED
        of_group = (group.commit, int(level), group.auto_offset_reset)
    facts["fact_cells"].append((world, cell.cell, *of_group))


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
