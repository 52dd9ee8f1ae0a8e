"""Many generated histories as one set of tables, so that one Spark session is asked about all of them at once."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from harness.history_reader import parquet_schema
from harness.protocols import CellHistory, PartitionHistory
from harness.schema import NONE, TABLES
from spark_checkers.facts import add_cell, add_partition, empty_facts, to_arrow
from spark_checkers.oracle import WORLDLY

PARTITIONS_PER_WORLD = 100
_OF_PARTITION = ("sends", "reads", "replicas", "metadata", "observations")
_IDS = ("partition", "sent_partition")


def tables_of(worlds: Sequence[tuple[Sequence[PartitionHistory], CellHistory | None]]) -> dict[str, pa.Table]:
    """World k: its partitions get the ids 100 k + id, its cell the number k. Clients keep their ids."""
    facts = empty_facts()
    found: dict[str, list[dict[str, np.ndarray]]] = {name: [] for name in TABLES}
    for world, (partitions, cell) in enumerate(worlds):
        for partition in partitions:
            for name in _OF_PARTITION:
                found[name].append(_moved(getattr(partition, name), world))
            moved = replace(partition, partition=partition.partition + PARTITIONS_PER_WORLD * world)
            add_partition(facts, moved, world=world, cell=world)
        _add_clients(facts, partitions[0], world)
        if cell is not None:
            add_cell(facts, cell.cell.model_copy(update={"cell": world}), world=world)
            for name, rows in cell.tables.items():
                if name == "observations":  # the partitions' own, once
                    found[name] = found[name][: -len(partitions)]
                found[name].append(_moved(rows, world))
    return to_arrow(facts) | {name: _table(name, parts) for name, parts in found.items()}


def moved_partition(partition: int, world: int) -> int:
    """The id that a partition of a world has in the tables."""
    return partition + PARTITIONS_PER_WORLD * world


def _add_clients(facts: Mapping[str, list[tuple[Any, ...]]], known: PartitionHistory, world: int) -> None:
    clocks = np.full(len(known.client_role), NONE)
    clocks[: len(known.client_clock)] = known.client_clock[: len(clocks)]
    columns = (known.client_role, known.client_isolation, known.client_issued, known.client_acks, clocks)
    for client, values in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        facts["fact_clients"].append((world, client, *values))


def _moved(columns: Mapping[str, np.ndarray], world: int) -> dict[str, np.ndarray]:
    made = {name: np.asarray(values) for name, values in columns.items()}
    for name in _IDS:
        if name in made:
            shift = np.where(made[name] == NONE, 0, PARTITIONS_PER_WORLD * world).astype(made[name].dtype)
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
