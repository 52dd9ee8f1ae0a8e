"""From rows to Parquet, once, after the trial: `history/<table>.parquet` for every table, with `client` in front.

Partitioned tables are clustered: one row group per Kafka partition (more only beyond Parquet's limit of rows), sorted by
(client, order of writing) within it, so that a checker reads one partition and nothing else. Others have one row group.
Times become nanoseconds since the trial's start. Memory: the largest partition of two
tables and 4 bytes per row; never the history.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from harness.broker_masks import broker_mask
from harness.dictionaries import Dictionaries
from harness.errors import HistoryUnreadable
from harness.history_reader import History
from harness.history_writer import TableWriter
from harness.plan import Plan, parse_plan
from harness.rows import read_segments, recorded
from harness.run_directory import RunDirectory, read_object
from harness.schema import MISSING, NONE, SENDS, TABLES, Table
from harness.table_file import table_path

__all__ = ["History", "ensure_history", "write_history"]

_AGAIN = "Make the run again: import or generate it."


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one client, in order: a mapped segment of its file, or part of one."""

    client: int
    rows: np.ndarray


def ensure_history(run: RunDirectory) -> None:
    """Write the history unless it is there, readable, and no older than the rows, the clock, the plan and the run's end.

    A history without any rows beside it (an archived run, an imported one) is left as it is: HistoryUnreadable if not all
    of it is there.
    """
    # The events, because writing to mapped memory need not change a file's time: one written during the run is too old.
    inputs = [*run.rows.glob("*.rows"), run.clock, run.plan, run.events]
    newest_ns = max((path.stat().st_mtime_ns for path in inputs if path.exists()), default=0)
    written = [table_path(run, table) for table in TABLES]
    if any(path.exists() for path in written) and not any(run.rows.glob("*.rows")):
        History.open(run)
        return
    if all(path.exists() for path in written) and min(path.stat().st_mtime_ns for path in written) >= newest_ns:
        try:
            History.open(run)
        except HistoryUnreadable:
            pass
        else:
            return
    write_history(run)


def write_history(run: RunDirectory) -> None:
    """Write every table of `harness.schema.TABLES` from the rows and the plan. Replaces what is there, file by file.

    Raises BadInput for a plan of another version, HistoryUnreadable if a segment of rows is missing, StorageFull.
    """
    plan = _plan(run)
    if plan.origin not in ("trial", "recorded"):
        raise HistoryUnreadable(f"{run.history} has no tables, and there are no rows to write them from. {_AGAIN}")
    run.history.mkdir(exist_ok=True)
    clients = recorded(run.rows)
    start_ns = _start_ns(run, clients)
    planned = _planned_tables(plan, Dictionaries(run.dictionaries))

    def write(table: Table) -> None:
        if table.name in planned:
            sources, torn = [_Rows(NONE, planned[table.name])], 0
        else:
            sources, torn = _sources(run, table, clients.get(table.name, []))
        if table is SENDS:
            sources = [piece for _, own in groupby(sources, lambda s: s.client) for piece in _in_sequence(list(own))]
        groups = _clustered(sources) if table.partitioned else iter([sources])
        _write_table(run, table, groups, start_ns=start_ns, torn=torn)

    # Two at a time: `sends` and `reads` are the long ones, and both numpy and pyarrow release the interpreter.
    with ThreadPoolExecutor(2, thread_name_prefix="history") as pool:
        list(pool.map(write, TABLES.values()))


def _plan(run: RunDirectory) -> Plan:
    try:
        return parse_plan(run.plan.read_text(encoding="utf-8"), source=str(run.plan))
    except (OSError, UnicodeDecodeError) as error:
        raise HistoryUnreadable(f"{run.plan} cannot be read: {error}.") from error


def _sources(run: RunDirectory, table: Table, clients: Sequence[int]) -> tuple[list[_Rows], int]:
    sources, torn = [], 0
    for client in clients:
        segments, torn_here = read_segments(run.rows, table, client)
        there = len(list(run.rows.glob(f"{table.name}.{client}.*.rows")))
        if there != len(segments):
            raise HistoryUnreadable(
                f"table {table.name}: segment {len(segments)} of client {client} is missing in {run.rows}, although "
                "later ones are there. Restore it; without it the history is not whole."
            )
        sources += [_Rows(client, np.asarray(rows)) for rows in segments if len(rows)]
        torn += torn_here
    return sources, torn


def _start_ns(run: RunDirectory, clients: Mapping[str, Sequence[int]]) -> int:
    """CLOCK_MONOTONIC at the trial's start; if it never started, the earliest time in any row."""
    if run.clock.exists():
        clock = read_object(run.clock)
        start_ns = clock.get("start_monotonic_ns") if isinstance(clock, dict) else None
        if not isinstance(start_ns, int):
            raise HistoryUnreadable(f"{run.clock} has no start_monotonic_ns, the moment the trial's clock started.")
        return start_ns
    earliest = None
    for name, ids in clients.items():
        times = [column.name for column in TABLES[name].columns if column.unit == "ns"]
        for source in _sources(run, TABLES[name], ids)[0]:
            for column in times:
                values = source.rows[column]
                if len(known := values[values != MISSING]):
                    earliest = min(int(known.min()), int(known.min()) if earliest is None else earliest)
    return earliest or 0


def _planned_tables(plan: Plan, dictionaries: Dictionaries) -> dict[str, np.ndarray]:
    """Rows of the tables that come from the plan, in their row form."""
    partitions = np.zeros(len(plan.partitions), dtype=TABLES["partitions"].row_dtype)
    for row, planned in zip(partitions, plan.partitions, strict=True):
        row["partition"], row["number"], row["cell"] = planned.partition, planned.number, planned.cell
        row["topic"] = dictionaries.code("topic", planned.topic_name)
        row["replicas"] = broker_mask(planned.assignment)
        row["preferred_leader"] = planned.assignment[0] if planned.assignment else NONE
    cells = np.zeros(len(plan.cells), dtype=TABLES["cells"].row_dtype)
    for row, cell in zip(cells, plan.cells, strict=True):
        row["cell"], row["name"] = cell.cell, dictionaries.code("cell", cell.name)
    return {"partitions": partitions, "cells": cells}


def _clustered(sources: Sequence[_Rows]) -> Iterator[list[_Rows]]:
    """The rows partition by partition, ascending; within one in the order of `sources`. Each source is sorted once."""
    pieces: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    orders = []
    for number, source in enumerate(sources):
        order, partitions, bounds = partition_order(source.rows["partition"])
        orders.append(order)
        for index, partition in enumerate(partitions.tolist()):
            pieces[partition].append((number, int(bounds[index]), int(bounds[index + 1])))
    for partition in sorted(pieces):
        yield [
            _Rows(sources[number].client, _gather(sources[number].rows, orders[number][low:high]))
            for number, low, high in pieces[partition]
        ]


def _in_sequence(own: Sequence[_Rows]) -> Sequence[_Rows]:
    """The segments of one client by sequence: verifiable clients tell of their sends in the order in which they ended, and
    some end segments later."""
    ends = [(s.rows["sequence"][0], s.rows["sequence"][-1]) for s in own]
    inside = all((s.rows["sequence"][1:] >= s.rows["sequence"][:-1]).all() for s in own)
    if inside and all(before <= first for (_, before), (first, _) in pairwise(ends)):
        return own
    rows = np.concatenate([s.rows for s in own])
    return [_Rows(own[0].client, _gather(rows, np.argsort(rows["sequence"], kind="stable")))]


def _gather(rows: np.ndarray, index: np.ndarray) -> np.ndarray:
    # As words, not as structures: numpy copies a structure field by field, words row by row.
    words = rows.view(np.int64).reshape(len(rows), -1)
    return np.take(words, index, axis=0).view(rows.dtype).reshape(-1)


def partition_order(partition: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How to cluster rows: (order, partitions, bounds) such that `order[bounds[i]:bounds[i + 1]]` are the row numbers of
    `partitions[i]`, ascending. `partition`: int32[n]; order: uint32[n]; partitions ascending, each once.
    """
    if not len(partition):
        return np.empty(0, dtype=np.uint32), np.empty(0, dtype=partition.dtype), np.zeros(1, dtype=np.int64)
    partition = np.ascontiguousarray(partition)
    low = int(partition.min())
    # 16-bit keys are sorted by radix, which is stable and several times faster than a comparison sort.
    narrow = int(partition.max()) - low < 1 << 16
    keys = (partition.astype(np.int64) - low).astype(np.uint16) if narrow else partition
    order = np.argsort(keys, kind="stable").astype(np.uint32)
    clustered = partition[order]
    starts = np.concatenate(([0], np.flatnonzero(clustered[1:] != clustered[:-1]) + 1))
    return order, clustered[starts], np.append(starts, len(partition))


def _write_table(run: RunDirectory, table: Table, groups: Iterator[list[_Rows]], *, start_ns: int, torn: int) -> None:
    with TableWriter(run, table, start_ns=start_ns, torn_rows=torn) as writer:
        for group in groups:
            writer.write(_columns(table, group, start_ns))


def _columns(table: Table, group: Sequence[_Rows], start_ns: int) -> dict[str, np.ndarray]:
    columns = {
        "client": np.concatenate([np.full(len(s.rows), s.client, dtype=np.int32) for s in group] or [_NO_CLIENTS])
    }
    for column in table.columns:
        kind = np.dtype(column.kind)
        values = np.concatenate([s.rows[column.name] for s in group] or [np.empty(0, dtype=kind)])
        if column.unit == "ns":
            values = np.where(values == MISSING, MISSING, values - start_ns)
        columns[column.name] = values
    return columns


_NO_CLIENTS = np.empty(0, dtype=np.int32)
