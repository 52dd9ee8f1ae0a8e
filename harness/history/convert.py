"""Recorded rows become Parquet here, once, after the trial: `history/<table>.parquet` for every table, with `client` as
the first column."""

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np

from prozess.harness.columns import row_dtype
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.history.joining import FileToJoin
from prozess.harness.history.manifest import Condition, has_history, seal_history, seal_recorded
from prozess.harness.history.parquet import TableWriter, rows_into, table_path, writer_to
from prozess.harness.history.reader import History, metadata_error_ns
from prozess.harness.history.topic_lives import TopicLives
from prozess.harness.plan.plan import Plan, parse_plan
from prozess.harness.recording.codes import Dictionaries, broker_mask
from prozess.harness.recording.rows import read_segments, recorded, rows_in
from prozess.harness.run_directory import RunDirectory, read_document, read_object
from prozess.harness.schema import MISSING, NONE, READS, SENDS, TABLES, Outcome, Table

# Where records were acknowledged that do not say themselves where they were sent: a verifiable producer's "prefix.n".
# The acknowledgement names the partition, so a record that somebody received from another partition is misplaced.


PartitionsBySequence = Mapping[int, np.ndarray]
"""For each client, the partition by sequence. NONE where nothing was acknowledged."""


def acknowledged_partitions(sends: Mapping[int, Sequence[np.ndarray]]) -> PartitionsBySequence:
    """Returns where each client's records were acknowledged. `sends` maps a client to its rows of `sends`. Four bytes
    for each record."""
    return {client: _by_sequence(rows) for client, rows in sends.items()}


def _by_sequence(segments: Sequence[np.ndarray]) -> np.ndarray:
    acknowledged = [rows[(rows["outcome"] == Outcome.OK) & (rows["sequence"] >= 0)] for rows in segments]
    size = max((int(rows["sequence"].max()) + 1 for rows in acknowledged if len(rows)), default=0)
    partition = np.full(size, NONE, dtype=np.int32)
    for rows in acknowledged:
        partition[rows["sequence"]] = rows["partition"]
    return partition


def lack_partition(sender: np.ndarray, sent_partition: np.ndarray, flags: np.ndarray) -> np.ndarray:
    """Returns bool[n]: rows of `reads` with a readable record of a client that does not say where the record was sent."""
    return np.asarray((sent_partition == NONE) & (flags == 0) & (sender > 0))


def sent_to(columns: Mapping[str, np.ndarray], acknowledged: PartitionsBySequence) -> np.ndarray:
    """Returns `sent_partition` of rows of `reads`: as the record says, or else where it was acknowledged, or else NONE.
    O(n)."""
    sender, sequence = columns["sender"], columns["sequence"]
    found = np.array(columns["sent_partition"])
    open_rows = np.flatnonzero(lack_partition(sender, found, columns["flags"]))
    for client in np.unique(sender[open_rows]).tolist():
        partition = acknowledged.get(client)
        if partition is None:
            continue
        rows = open_rows[sender[open_rows] == client]
        rows = rows[(sequence[rows] >= 0) & (sequence[rows] < len(partition))]
        found[rows] = partition[sequence[rows]]
    return found


# Partitioned tables are clustered. They have one row group for each Kafka partition (more only for very large ones),
# sorted by (client, order of writing), so that a checker reads one partition and nothing else. Other tables have one
# row group. Times become nanoseconds since the trial's start. Memory holds the largest partition of two tables and 4
# bytes for each row, and never the whole history.


__all__ = ["History", "ensure_history", "ensure_proven_history", "finish_recording", "write_history"]

_AGAIN = "Make the run again: import or generate it."


WriteClustered = Callable[[RunDirectory, Mapping[str, Sequence[int]], int], None]
"""Writes clustered tables of a run elsewhere than in this process: (run, the clients that recorded each table, the moment
when the trial's clock started). It does so with `count_rows` and `write_share`."""


@dataclass(frozen=True, slots=True)
class LargeTables:
    """Says who writes the clustered tables of a large run, and what is large."""

    write: WriteClustered
    rows_min: int
    """With fewer rows, this process writes them."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one client, in order: a mapped segment of its file, or a part of one."""

    client: int
    rows: np.ndarray


def ensure_history(run: RunDirectory, large: LargeTables | None = None) -> None:
    """Writes the history as `write_history` does, unless it is there, readable, and no older than the rows, the clock, the
    plan and the end of the run.

    A history without any rows beside it (an archived run, an imported one), or on another file system, is left as it is:
    HistoryUnreadable if not all of it is there.
    """
    if run.tables is not None:
        History.open(run)
        return
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
    write_history(run, large)


def ensure_proven_history(run: RunDirectory, condition: Condition, large: LargeTables | None = None) -> None:
    """Makes the Parquet history from the rows if it is missing or, in a run without a manifest, cannot be read. `large`: the
    writer of the tables of a large run."""
    if not condition.sealed:
        ensure_history(run, large)
    elif not has_history(run):
        write_history(run, large)
        seal_history(run)


def write_history(run: RunDirectory, large: LargeTables | None = None) -> None:
    """Writes every table of `prozess.harness.schema.TABLES` from the rows and the plan. It replaces what is there, file
    by file.

    `large`: who writes the clustered tables of a large run. None: this process. Those of verifiable clients, and those of
    topics that were made again, are always written here, because a row of `reads` may need any row of `sends`. Raises
    BadInput for a plan of another version, HistoryUnreadable if a segment of rows is missing, StorageFull.
    """
    plan = _plan(run)
    if plan.origin not in ("trial", "recorded"):
        raise HistoryUnreadable(f"{run.history} has no tables, and there are no rows to write them from. {_AGAIN}")
    run.history.mkdir(exist_ok=True)
    clients = recorded(run.rows)
    start_ns = _start_ns(run, clients)
    planned = _planned_tables(plan, Dictionaries(run.dictionaries))
    lives = _topic_lives(run, plan, clients)

    def write(table: Table) -> None:
        if table.name in planned:
            sources, torn = [_Rows(NONE, planned[table.name])], 0
        else:
            sources, torn = _sources(run, table, clients.get(table.name, []))
            if lives is not None:
                sources = [_Rows(s.client, lives.rekeyed(table, s.client, s.rows)) for s in sources]
        groups = _clustered(_in_order(table, sources)) if table.partitioned else iter([sources])
        acknowledged = _acknowledged(run, plan, clients) if table is READS else None
        with TableWriter(run, table, start_ns=start_ns, torn_rows=torn) as writer:
            for columns in _in_columns(table, groups, start_ns, acknowledged):
                writer.write(columns)

    there = large is not None and lives is None and not _has_verifiable(plan) and _recorded_rows(run) >= large.rows_min
    far = _clustered_tables(clients) if there else {}
    # Two at a time: `sends` and `reads` are the long ones, and both numpy and pyarrow release the interpreter.
    with ThreadPoolExecutor(2, thread_name_prefix="history") as pool:
        begun = pool.submit(large.write, run, far, start_ns) if far and large is not None else None
        list(pool.map(write, (table for table in TABLES.values() if table.name not in far)))
        if begun is not None:
            begun.result()


def _recorded_rows(run: RunDirectory) -> int:
    """Returns about how many rows were recorded for clustered tables, by what their files say of themselves."""
    return sum(rows_in(path) for name in _CLUSTERED for path in run.rows.glob(f"{name}.*.rows"))


def count_rows(run: RunDirectory, table: Table, client: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Counts the rows that a client recorded for a clustered table: its partitions (ascending), the rows of each, and how
    many rows were torn and are left out. HistoryUnreadable if a segment is missing."""
    sources, torn = _sources(run, table, [client])
    counted = [_counted(source.rows["partition"]) for source in sources]
    # Counts of segments are added up. Example: partitions 1 2 | 2 with counts 5 3 | 4: 1 2, with 5 and 7. `add.at` adds twice
    # where an index comes twice, which an assignment would not.
    partitions, index = np.unique(np.concatenate([_NO_CLIENTS, *(found for found, _ in counted)]), return_inverse=True)
    assert len(counted) == len(sources), "each source is counted"
    counts = np.zeros(len(partitions), dtype=np.int64)
    np.add.at(counts, index, np.concatenate([np.empty(0, dtype=np.int64), *(count for _, count in counted)]))
    return partitions, counts, torn


def _counted(partition: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low = int(partition.min())
    if int(partition.max()) - low > _DENSE:
        return np.unique(partition, return_counts=True)
    counts = np.bincount(partition - low)
    there = np.flatnonzero(counts)
    return (there + low).astype(np.int32), counts[there]


def write_share(
    run: RunDirectory, table: Table, clients: Sequence[int], within: tuple[int, int], path: Path, *, start_ns: int
) -> FileToJoin:
    """Writes the rows that these clients recorded for the partitions `within` (the first, and the last) as a file: a
    share of a clustered table. All shares, in the order of their partitions, are the table (`join_into`)."""
    sources, _ = _sources(run, table, clients)
    making = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        with writer_to(making, table) as writer:
            for columns in _in_columns(table, _clustered(_in_order(table, sources), within), start_ns):
                rows_into(writer, table, columns)
        making.replace(path)
    finally:
        making.unlink(missing_ok=True)
    return FileToJoin.of(path)


_DENSE = 1 << 20
"""Up to so many partition ids are counted by their number, which takes no sorting."""
_CLUSTERED = tuple(name for name, table in TABLES.items() if table.partitioned)


def _clustered_tables(clients: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """Returns the clients that recorded each clustered table; a table that nobody recorded is left out."""
    return {name: clients[name] for name in _CLUSTERED if clients.get(name)}


def finish_recording(run: RunDirectory) -> None:
    """Does the last thing of a run: writes its manifest. Texts that the history needs get their codes before, because
    what is written after the manifest counts as damage."""
    _planned_tables(_plan(run), Dictionaries(run.dictionaries))
    seal_recorded(run)


def _plan(run: RunDirectory) -> Plan:
    try:
        return parse_plan(read_document(run.plan), source=str(run.plan))
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


def _in_order(table: Table, sources: Sequence[_Rows]) -> Sequence[_Rows]:
    """Returns the rows of a table in the order that they have within a partition."""
    if table is not SENDS:
        return sources
    return [piece for _, own in groupby(sources, lambda s: s.client) for piece in _in_sequence(list(own))]


def _acknowledged(run: RunDirectory, plan: Plan, clients: Mapping[str, Sequence[int]]) -> PartitionsBySequence:
    """Returns where verifiable producers' records were acknowledged, because these do not say where they were sent.
    Empty if there are no such producers."""
    if not _has_verifiable(plan):
        return {}
    own = {client: [source.rows for source in _sources(run, SENDS, [client])[0]] for client in clients.get("sends", [])}
    return acknowledged_partitions(own)


def _topic_lives(run: RunDirectory, plan: Plan, clients: Mapping[str, Sequence[int]]) -> TopicLives | None:
    """Returns what says of each row which topic of its name it is about; None if each name stands for one in the plan."""
    if not plan.nameless:
        return None

    def rows_of(table: str) -> Iterator[tuple[int, np.ndarray]]:
        for source in _sources(run, TABLES[table], clients.get(table, []))[0]:
            yield source.client, source.rows

    return TopicLives(plan, rows_of, error_ns=metadata_error_ns(run))


def _has_verifiable(plan: Plan) -> bool:
    return any(client.role == "verifiable-producer" for client in plan.clients)


def _start_ns(run: RunDirectory, clients: Mapping[str, Sequence[int]]) -> int:
    """Returns CLOCK_MONOTONIC at the trial's start. If the trial never started, it is the earliest time in any row."""
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
    """Returns the rows of the tables that come from the plan."""
    partitions = np.zeros(len(plan.partitions), dtype=row_dtype(TABLES["partitions"]))
    for row, planned in zip(partitions, plan.partitions, strict=True):
        row["partition"], row["number"], row["cell"] = planned.partition, planned.number, planned.cell
        row["topic"] = dictionaries.code("topic", planned.topic_name)
        row["replicas"] = broker_mask(planned.assignment)
        row["preferred_leader"] = planned.assignment[0] if planned.assignment else NONE
    cells = np.zeros(len(plan.cells), dtype=row_dtype(TABLES["cells"]))
    for row, cell in zip(cells, plan.cells, strict=True):
        row["cell"], row["name"] = cell.cell, dictionaries.code("cell", cell.name)
    return {"partitions": partitions, "cells": cells}


def _clustered(sources: Sequence[_Rows], within: tuple[int, int] | None = None) -> Iterator[list[_Rows]]:
    """Yields the rows partition by partition, ascending. Within a partition they are in the order of `sources`. Each
    source is sorted once. `within`: the first and the last of the partitions. None: all of them."""
    pieces: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    orders = []
    for number, source in enumerate(sources):
        of = source.rows["partition"]
        chosen = None if within is None else np.flatnonzero((of >= within[0]) & (of <= within[1]))
        # `order` counts among the chosen rows, and `chosen` leads back to those of the source.
        order, partitions, bounds = partition_order(of if chosen is None else of[chosen])
        orders.append(order if chosen is None else chosen[order])
        for index, partition in enumerate(partitions.tolist()):
            pieces[partition].append((number, int(bounds[index]), int(bounds[index + 1])))
    for partition in sorted(pieces):
        yield [
            _Rows(sources[number].client, _gather(sources[number].rows, orders[number][low:high]))
            for number, low, high in pieces[partition]
        ]


def _in_sequence(own: Sequence[_Rows]) -> Sequence[_Rows]:
    """Returns the segments of one client in the order of sequences. Verifiable clients report sends in the order in
    which these end, and some end segments later."""
    # In order already if each segment is, and none begins before the one in front of it ends: then nothing is copied.
    ends = [(s.rows["sequence"][0], s.rows["sequence"][-1]) for s in own]
    inside = all((s.rows["sequence"][1:] >= s.rows["sequence"][:-1]).all() for s in own)
    if inside and all(before <= first for (_, before), (first, _) in pairwise(ends)):
        return own
    rows = np.concatenate([s.rows for s in own])
    return [_Rows(own[0].client, _gather(rows, np.argsort(rows["sequence"], kind="stable")))]


def _gather(rows: np.ndarray, index: np.ndarray) -> np.ndarray:
    # Copied as words, not as structures: numpy copies a structure field by field, words row by row.
    words = rows.view(np.int64).reshape(len(rows), -1)
    assert rows.dtype.itemsize % 8 == 0, f"{rows.dtype.itemsize} bytes are no whole words"
    return np.take(words, index, axis=0).view(rows.dtype).reshape(-1)


def partition_order(partition: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns how to cluster rows: (order, partitions, bounds), such that `order[bounds[i]:bounds[i + 1]]` are the row
    numbers of `partitions[i]`, ascending. `partition` is int32[n], order is uint32[n]. Partitions ascend, each once."""
    if not len(partition):
        return np.empty(0, dtype=np.uint32), np.empty(0, dtype=partition.dtype), np.zeros(1, dtype=np.int64)
    partition = np.ascontiguousarray(partition)
    low = int(partition.min())
    # 16-bit keys are sorted by radix, which is stable and several times faster than a comparison sort.
    narrow = int(partition.max()) - low < 1 << 16
    keys = (partition.astype(np.int64) - low).astype(np.uint16) if narrow else partition
    order = np.argsort(keys, kind="stable").astype(np.uint32)
    clustered = partition[order]
    # Example: partitions 2 0 2 1. The order is 1 3 0 2, clustered 0 1 2 2, and the bounds are 0 1 2 4.
    starts = np.concatenate(([0], np.flatnonzero(clustered[1:] != clustered[:-1]) + 1))
    return order, clustered[starts], np.append(starts, len(partition))


def _in_columns(
    table: Table, groups: Iterator[list[_Rows]], start_ns: int, acknowledged: PartitionsBySequence | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """Yields each group of rows in the Parquet form."""
    for group in groups:
        columns = _columns(table, group, start_ns)
        yield columns | {"sent_partition": sent_to(columns, acknowledged)} if acknowledged else columns


def _columns(table: Table, group: Sequence[_Rows], start_ns: int) -> dict[str, np.ndarray]:
    columns = {
        "client": np.concatenate([np.full(len(s.rows), s.client, dtype=np.int32) for s in group] or [_NO_CLIENTS])
    }
    for column in table.columns:
        kind = np.dtype(column.kind)
        values = np.concatenate([s.rows[column.name] for s in group] or [np.empty(0, dtype=kind)])
        if column.unit == "ns":
            values = np.where(values == MISSING, MISSING, values - start_ns)
        assert len(values) == len(columns["client"]), f"{table.name}.{column.name} has {len(values)} rows"
        columns[column.name] = values
    return columns


_NO_CLIENTS = np.empty(0, dtype=np.int32)
