"""Many generated histories as one set of tables, so that one Spark session is asked about all of them at once."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from prozess.harness.history.parquet import parquet_schema
from prozess.harness.interfaces.checking import CellHistory, PartitionHistory
from prozess.harness.plan.plan import Cell
from prozess.harness.schema import MISSING, NONE, TABLES
from prozess.spark_checkers.oracle.facts import add_cell, add_partition, add_serving, empty_facts, outages, to_arrow
from prozess.spark_checkers.oracle.second_opinion import WORLDLY
from tests.support.cells.partitions import CELL

PARTITIONS_PER_WORLD = 100
_OF_PARTITION = ("sends", "reads", "replicas", "metadata", "observations", "snapshots", "remote")
_IDS = ("partition", "sent_partition")
_TABLES = {"leader_offsets": "metrics", "own_heartbeats": "heartbeats", "remote": "remote_segments"}
"""What a cell or a partition has of a table that has another name."""
_OF_CELL = ("partitions", "derived", "late_partitions")
ONLY_PARTITIONS = CELL.model_copy(update={"partitions": ()})
"""Of a world in which nothing was stated of a cell."""


def tables_of(worlds: Sequence[tuple[Sequence[PartitionHistory], CellHistory | None]]) -> dict[str, pa.Table]:
    """World k: its partitions get the ids 100 k + id, its cell the number k. Clients keep their ids."""
    facts = empty_facts()
    found: dict[str, list[dict[str, np.ndarray]]] = {name: [] for name in TABLES}
    for world, (partitions, cell) in enumerate(worlds):
        planned = _moved_cell(ONLY_PARTITIONS if cell is None else cell.cell, world)
        for partition in partitions:
            for name in _OF_PARTITION:
                rows = _moved(getattr(partition, name), world)
                own = np.full(len(rows["partition"]), moved_partition(partition.partition, world)) if rows else None
                found[_TABLES.get(name, name)].append(rows | {"partition": own} if own is not None else rows)
            moved = replace(partition, partition=moved_partition(partition.partition, world))
            add_partition(facts, moved, world=world, cell=planned)
        _add_clients(facts, partitions[0], {} if cell is None else cell.tables.get("clients", {}), world)
        if cell is not None:
            add_cell(facts, planned, world=world, bounds=cell.bounds, clients=cell.clients)
            add_serving(facts, cell, world=world, cell=planned)
            facts["fact_out"] += outages(cell, world=world)
            for name, rows in cell.tables.items():
                if name in ("asked", "calls"):  # they are facts
                    continue
                if name == "observations":  # the partitions' own, once
                    found[name] = found[name][: -len(partitions)]
                if name in ("group_states", "share_states"):
                    rows = rows | {"group": np.where(rows["group"] == cell.cell.cell, world, NONE)}
                found[_TABLES.get(name, name)].append(_moved(rows, world))
    return to_arrow(facts) | {name: _table(name, parts) for name, parts in found.items()}


def _moved_cell(cell: Cell, world: int) -> Cell:
    ids = {name: tuple(moved_partition(p, world) for p in getattr(cell, name)) for name in _OF_CELL}
    return cell.model_copy(update={"cell": world} | ids)


def moved_partition(partition: int, world: int) -> int:
    """The id that a partition of a world has in the tables."""
    return partition + PARTITIONS_PER_WORLD * world


def _add_clients(
    facts: Mapping[str, list[tuple[Any, ...]]], known: PartitionHistory, told: Mapping[str, np.ndarray], world: int
) -> None:
    roles = dict(zip(*(told[name].tolist() for name in ("client", "role")), strict=True)) if told else {}
    size = len(known.client_role)
    columns = [
        np.append(column, np.full(max(0, size - len(column)), unknown))[:size].tolist()
        for column, unknown in (
            (known.client_role, NONE),
            (known.client_isolation, NONE),
            (known.client_issued, NONE),
            (known.client_acks, 0),
            (known.client_clock, NONE),
            (known.client_reported_until_ns, MISSING),
        )
    ]
    for client, (role, *values, told_ns) in enumerate(zip(*columns, strict=True)):
        role = max(role, roles.get(client, NONE))
        facts["fact_clients"].append((world, client, role, *values, None if told_ns == MISSING else told_ns))


def _moved(columns: Mapping[str, np.ndarray], world: int) -> dict[str, np.ndarray]:
    made = {name: np.asarray(values) for name, values in columns.items()}
    for name in _IDS:
        if name in made:
            # What is gone keeps its id below NONE (group_states).
            shift = np.where(made[name] <= NONE, 0, PARTITIONS_PER_WORLD * world).astype(made[name].dtype)
            made[name] = made[name] + shift
    if not made:
        return {}
    length = len(next(iter(made.values())))
    return made | {"world": np.full(length, world, dtype=np.int32)}


def _table(name: str, parts: Sequence[Mapping[str, np.ndarray]]) -> pa.Table:
    schema = parquet_schema(TABLES[name])
    if name in WORLDLY:
        schema = schema.append(pa.field("world", pa.int32()))
    whole = {f.name: np.concatenate([np.empty(0, np.int64), *(p[f.name] for p in parts if p)]) for f in schema}
    rows = np.arange(len(whole["client"]))
    arrays = [pa.array(whole[f.name]).cast(f.type) for f in schema]
    return pa.Table.from_arrays([*arrays, pa.array(rows)], names=[*schema.names, "row"])
