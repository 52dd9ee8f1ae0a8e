"""Generates histories that are valid except for the planted anomalies. They serve benchmarks, and tests that the checkers
find every anomaly.

The same options and seed give the same history. It is written partition by partition in chunks, so that its length costs
disk and time, never memory; sends and reads at the same time.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from prozess.exchange.synthetic import cells as tables
from prozess.exchange.synthetic import coordinators, members, shares, snapshots, tiers, waits
from prozess.exchange.synthetic.cells import SHORT_AFTER_NS, GeneratedCell
from prozess.exchange.synthetic.cluster_states import cluster_states
from prozess.exchange.synthetic.log import LATE_S, GeneratedPartition, LogLayout, SpreadLayout
from prozess.exchange.synthetic.plants import PLANTS, expected_findings
from prozess.exchange.synthetic.witnesses import write_planted
from prozess.harness.errors import BadInput
from prozess.harness.history.manifest import seal_recorded
from prozess.harness.history.parquet import TableWriter, ensure_every_table, filled, write_table
from prozess.harness.history.row_groups import SHARED_ROWS_MAX
from prozess.harness.plan.plan import SENTINEL_CLIENT, Cell, Plan, PlannedClient
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.codes import Dictionaries
from prozess.harness.run_directory import RunDirectory, write_json
from prozess.harness.schema import NONE, TABLES, Isolation, Role, Table, role_named

CHUNK = 1 << 20
"""Positions."""
PRODUCERS = 4
ROWS_MAX = 10**11
Columns = Mapping[str, np.ndarray]
PARTITIONS_MAX = 10_000
KINDS = ("log", "transactions", "group", "compaction", "share", "tiered")
_ROWS_PER_POSITION = {"log": 4, "transactions": 4, "group": 5, "share": 5, "compaction": 3, "tiered": 4}
_ROUNDS = 8
"""The number of records per key of a compacted topic; the last two stay."""
_TOMBSTONES = 8
_RELIABLE = {"producer.acks": "all", "producer.enable_idempotence": True, "topic.min_insync_replicas": 2}
_WORKLOADS: Mapping[str, dict[str, Any]] = {
    "log": {
        "traffic": {"producers": PRODUCERS},
        "base": _RELIABLE,
        "isolation_levels": ["read_uncommitted"],
        "delivery": {"latency_s": LATE_S, "window_s": LATE_S, "except_during_faults": False},
    },
    "transactions": {
        "base": {"transaction.transactional_ids": PRODUCERS, "topic.min_insync_replicas": 2},
        "isolation_levels": ["read_committed"],
    },
    "group": {
        "traffic": {"producers": PRODUCERS},
        "base": _RELIABLE
        | {
            "group.max_poll_interval_ms": members.POLL_MS,
            "group.session_timeout_ms": members.SESSION_MS,
            "group.properties.heartbeat.interval.ms": str(members.HEARTBEAT_MS),
        },
        "isolation_levels": [],
    },
    "share": {
        "traffic": {"producers": PRODUCERS},
        "base": _RELIABLE | {"share_group.dead_letter_replicas": 1},
        "isolation_levels": [],
    },
    "tiered": {
        "traffic": {"producers": PRODUCERS},
        "base": _RELIABLE | {"topic.properties.remote.storage.enable": True},
        "isolation_levels": ["read_uncommitted"],
    },
    "compaction": {
        "base": _RELIABLE | {"topic.cleanup_policy": "compact"},
        "isolation_levels": ["read_uncommitted"],
    },
}


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """The options of `prozess generate`. `rows`: of sends, reads and processed records together, about; `partitions`: of each
    cell."""

    rows: int
    partitions: int = 4
    planted: Mapping[str, int] = field(default_factory=dict)
    kinds: Sequence[str] = ()
    """Kinds of cells; those that the plants need are added. Empty: log."""
    seed: int = 1
    transaction_records: int | None = None
    """Transactions have so many records, each in another partition, and read meanwhile. None: a batch in every partition, and
    they read nothing."""


def generate(run: RunDirectory, options: GenerateOptions, *, command: str) -> dict[str, Any]:
    """Writes a generated run, with every planted witness in planted.parquet, and returns its manifest, which is in
    `source.json` too. BadInput for what cannot be planted."""
    kinds = _kinds(options)
    plan = _plan(kinds, options)
    cells = [_cell(plan, cell, options, rows=options.rows // len(kinds)) for cell in plan.cells]
    rng = np.random.default_rng(options.seed)
    for cell in cells:
        cell.plant(rng)
        if cell.kind == "tiered":
            tiers.plant_tiers(cell, rng)
    run.plan.write_text(plan.model_dump_json(indent=1), encoding="utf-8")
    write_json(run.clock, {"start_monotonic_ns": 0, "wall_minus_monotonic_ns": 0, "wall_error_ns": 0})
    write_json(run.cluster, {"kafka_version": plan.variant.kafka_version, "settings": {}})
    audits = _audits(plan)
    received: Counter[int] = Counter()
    writers: list[Callable[[], int]] = [
        lambda: _write_sends(run, cells),
        lambda: _write_reads(run, cells, audits, received),
        lambda: _write_others(run, cells, audits, options),
    ]
    with ThreadPoolExecutor(len(writers), thread_name_prefix="generate") as pool:
        rows = sum(pool.map(lambda write: write(), writers))
    _write_clients(run, plan, cells, received)
    _write_planned(run, plan)
    write_planted(run, cells, options.planted)
    ensure_every_table(run)
    manifest = {
        "command": command,
        "seed": options.seed,
        "rows": rows,
        "planted": dict(options.planted),
        "expected": expected_findings(options.planted, cells=len(cells)),
    }
    write_json(run.source, manifest)
    seal_recorded(run)
    return manifest


def _kinds(options: GenerateOptions) -> list[str]:
    for kind in options.kinds:
        if kind not in KINDS:
            raise BadInput(f"--workload {kind!r} cannot be generated. Known: {', '.join(KINDS)}.")
    if not 1 <= options.partitions <= PARTITIONS_MAX:
        raise BadInput(f"--partitions {options.partitions} is not between 1 and {PARTITIONS_MAX:,}.")
    if not 1 <= options.rows <= ROWS_MAX:
        raise BadInput(f"--rows {options.rows} is not between 1 and {ROWS_MAX:,}.")
    spread = options.transaction_records
    if spread is not None and (spread < 2 or options.partitions % (spread * PRODUCERS)):
        raise BadInput(
            f"--transaction-records {spread} with --partitions {options.partitions}: give 2 or more records, and a multiple "
            f"of {PRODUCERS} times as many partitions (such as {PRODUCERS * max(2, spread)}): so many producers write."
        )
    if options.planted.get("misplaced") and options.partitions < 2:
        raise BadInput("--plant misplaced needs another partition. Give --partitions 2 or more.")
    needed = {PLANTS[name].kind for name in options.planted}
    wanted = needed | set(options.kinds)
    return [kind for kind in KINDS if kind in wanted] or ["log"]


def _plan(kinds: Sequence[str], options: GenerateOptions) -> Plan:
    document = {
        "name": "generated",
        "title": "A generated history",
        "metrics": False,
        "workloads": [
            {
                "kind": "log" if kind == "tiered" else kind,
                "topics": {"partitions": options.partitions},
                **_workload(kind, options, rows=options.rows // len(kinds)),
            }
            for kind in kinds
        ],
    }
    plan = make_plan(parse_trial(document, source="generate"), seed=options.seed)
    planters: list[PlannedClient] = []
    for cell in plan.cells:
        for role in ("planter", "zombie", "successor", "waiter"):
            planters.append(
                PlannedClient(
                    client=len(plan.clients) + len(planters),
                    role="producer",
                    name=f"{role}-{cell.name}",
                    partitions=cell.partitions,
                    producer=cell.producer,
                    cell=cell.cell,
                )
            )
        planters += [
            client.model_copy(
                update={"client": len(plan.clients) + len(planters), "name": f"newcomer-{cell.name}", "instance": 2}
            )
            for client in plan.clients
            if client.cell == cell.cell and client.name == f"member-{cell.name}-0"
        ]
    return plan.model_copy(update={"origin": "synthetic", "clients": (*plan.clients, *planters)})


def _workload(kind: str, options: GenerateOptions, *, rows: int) -> dict[str, Any]:
    workload = _WORKLOADS[kind]
    if kind == "tiered":
        length = _length(kind, rows, options.partitions, unit=LogLayout(0, options.partitions, PRODUCERS).period * 2)
        size = {"topic.properties.segment.bytes": tiers.segment_length(length) * tiers.RECORD_BYTES}
        return workload | {"base": workload["base"] | size}
    if kind == "transactions" and options.transaction_records is not None:
        base = workload["base"] | {"transaction.reads": "read_committed"}
        return workload | {"base": base | {"transaction.records": options.transaction_records}}
    return workload


def _length(kind: str, rows: int, partitions: int, *, unit: int) -> int:
    """Returns the number of positions of each partition: a multiple of `unit`."""
    return max(unit, rows // _ROWS_PER_POSITION[kind] // partitions // unit * unit)


def _cell(plan: Plan, cell: Cell, options: GenerateOptions, *, rows: int) -> GeneratedCell:
    serving = [c for c in plan.clients if set(c.partitions) & set(cell.partitions)]
    named = {
        c.name.split("-")[0]: c.client for c in serving if c.name.endswith(f"-{cell.name}") and c.cell == cell.cell
    }
    own = [c for c in serving if c.client not in named.values()]
    producers = np.array([c.client for c in own if role_named(c.role) is Role.PRODUCER], dtype=np.int32)
    readers = [c.client for c in own if role_named(c.role) in (Role.READER, Role.MEMBER)]
    spread = (options.transaction_records or 0) if cell.workload == "transactions" else 0
    sizes = (0, len(cell.partitions), len(producers))
    layout = SpreadLayout(*sizes, spread) if spread else LogLayout(*sizes)
    unit = layout.period * (_ROUNDS if cell.workload == "compaction" else 2)
    kind = "tiered" if cell.topic.is_tiered else cell.workload
    length = _length(kind, rows, len(cell.partitions), unit=unit)
    compacted = cell.workload == "compaction"
    keys = length // _ROUNDS if compacted else 0
    partitions = [
        GeneratedPartition(
            partition=partition,
            rank=rank,
            partitions=len(cell.partitions),
            producers=producers,
            length=length,
            transactional=cell.workload == "transactions",
            keys=keys,
            tombstones=_TOMBSTONES,
            kept_from=length - 2 * keys if compacted else 0,
            spread=spread,
        )
        for rank, partition in enumerate(cell.partitions)
    ]
    planted = {
        name: PLANTS[name].in_cells(count) for name, count in options.planted.items() if PLANTS[name].kind == kind
    }
    return GeneratedCell(
        kind=kind,
        cell=cell.cell,
        partitions=partitions,
        readers=producers.tolist() if spread else readers,
        planter=named["planter"],
        zombie=named["zombie"],
        successor=named["successor"],
        waiter=named["waiter"],
        newcomer=named.get("newcomer", NONE),
        audit=_audits(plan)[Isolation.READ_UNCOMMITTED],
        planted=planted,
        turn_ns=members.MAY_EXPLAIN_NS,
    )


def _audits(plan: Plan) -> dict[Isolation, int]:
    return {Isolation[str(c.isolation_level).upper()]: c.client for c in plan.clients if c.role == "audit"}


def _chunks(length: int) -> Iterator[tuple[int, int]]:
    return ((first, min(first + CHUNK, length)) for first in range(0, length, CHUNK))


class _SharingWriter:
    """Writes a table as a run's own conversion does: small partitions of one cell share a row group, and so do small calls
    for a table that is not clustered. A row group costs about a millisecond in every check, however few rows it has."""

    def __init__(self, writer: TableWriter, table: Table) -> None:
        self._writer, self._table = writer, table
        self._of: tuple[int, int] | None = None
        self._held: list[Columns] = []
        self._own: list[Columns] = []
        self._held_rows = self._own_rows = 0

    def put(self, columns: Mapping[str, np.ndarray | int], cell: int = NONE, partition: int = NONE) -> int:
        """Appends rows of a partition of a cell, and returns how many. NONE: the table is not clustered."""
        rows = len(np.asarray(columns["client"]))
        if self._of != (cell, partition):
            self._join()
            if self._of is not None and self._of[0] != cell:
                self._flush()
        self._of = cell, partition
        self._own.append(filled(self._table, columns, length=rows))
        self._own_rows += rows
        if self._own_rows >= SHARED_ROWS_MAX:
            self._join()  # each call alone would be a row group, and there may be ten thousand
            self._flush()
        return rows

    def close(self) -> None:
        """Writes what is held."""
        self._join()
        self._flush()

    def _join(self) -> None:
        """Adds the rows of the partition that is over to those of the partitions before it, if they have room for them."""
        if self._held_rows + self._own_rows > SHARED_ROWS_MAX:
            self._flush()
        self._held += self._own
        self._held_rows += self._own_rows
        self._own, self._own_rows = [], 0

    def _flush(self) -> None:
        if self._held:
            names = self._held[0]
            self._writer.write({name: np.concatenate([columns[name] for columns in self._held]) for name in names})
        self._held, self._held_rows = [], 0


@contextmanager
def _table_writer(run: RunDirectory, name: str) -> Iterator[_SharingWriter]:
    with TableWriter(run, TABLES[name]) as writer:
        sharing = _SharingWriter(writer, TABLES[name])
        yield sharing
        sharing.close()


def _write_sends(run: RunDirectory, cells: Sequence[GeneratedCell]) -> int:
    rows = 0
    with _table_writer(run, "sends") as writer:
        for number, cell in enumerate(cells):
            for partition in cell.partitions:
                put = partial(writer.put, cell=number, partition=partition.partition)
                rows += put(partition.sentinel_send(cell.audit_ns))
                own = partition.length // len(partition.producers)
                for producer in range(len(partition.producers)):
                    rows += sum(put(partition.sends(producer, first, last)) for first, last in _chunks(own))
                rows += put(partition.planted_sends())
    return rows


def _write_reads(
    run: RunDirectory, cells: Sequence[GeneratedCell], audits: Mapping[Isolation, int], received: Counter[int]
) -> int:
    """Writes the reads of all clients, and counts them in `received` by client."""
    rows = 0
    with _table_writer(run, "reads") as writer:
        for number, cell in enumerate(cells):
            from_ns = cell.audited_from_ns
            for partition in cell.partitions:
                tail = tables.owner_of(cell, partition)
                views = [("tail", tail, None)]
                views += [("log", audits[Isolation.READ_UNCOMMITTED], from_ns)]  # type: ignore[list-item]
                views += [("visible", audits[Isolation.READ_COMMITTED], from_ns)]  # type: ignore[list-item]
                put = partial(writer.put, cell=number, partition=partition.partition)
                for view, client, begun_ns in views:
                    read = 0
                    for first, last in _chunks(partition.length):
                        columns = partition.reads(view, client, first, last, from_ns=begun_ns)
                        alone = cell.kind == "share" and begun_ns is None  # a share group has no spans
                        read += put(columns | {"span": columns["log_offset"]} if alone else columns)
                    if begun_ns is not None:
                        read += put(partition.sentinel_read(client, begun_ns + partition.end))
                    received[client] += read
                    rows += read
                if cell.kind == "share":
                    again = put(shares.reads_again(cell, partition))
                    received[tables.second_owner_of(cell, partition)] += again
                    rows += again
    return rows


def _write_others(
    run: RunDirectory, cells: Sequence[GeneratedCell], audits: Mapping[Isolation, int], options: GenerateOptions
) -> int:
    rows = 0
    pairs = [(cell, partition) for cell in cells for partition in cell.partitions]
    groups = [(cell, partition) for cell, partition in pairs if cell.kind == "group"]
    numbers = {id(cell): number for number, cell in enumerate(cells)}
    with _table_writer(run, "processed") as writer:
        for cell, partition in groups:
            for first, last in _chunks(partition.length):
                columns = tables.processed(cell, partition, first, last)
                rows += writer.put(columns, numbers[id(cell)], partition.partition)
    with _table_writer(run, "deliveries") as writer:
        for cell, partition in [pair for pair in pairs if pair[0].kind == "share"]:
            for first, last in _chunks(partition.length):
                for columns in shares.deliveries(cell, partition, first, last):
                    rows += writer.put(columns, numbers[id(cell)], partition.partition)
    _write_all(run, "commits", (c for pair in groups for c in tables.commits(*pair)))
    callbacks = [members.empty_callbacks(cell) for cell in cells if cell.kind == "group"]
    _write_all(run, "assignments", (*callbacks, *(c for pair in groups for c in members.assignments(*pair))))
    _write_all(run, "positions", (tables.positions(*pair, audits.values()) for pair in pairs))
    _write_all(run, "heartbeats", (waits.own_heartbeats(cells), *(tables.heartbeats(cell) for cell in cells)))
    transacting = [cell for cell in cells if cell.kind == "transactions"]
    _write_all(
        run, "transactions", (c for cell in transacting for c in (*cell.transactions(), waits.hanging_calls(cell)))
    )
    _write_all(run, "transaction_states", (c for cell in transacting for c in coordinators.transaction_states(cell)))
    _write_all(run, "group_states", (coordinators.group_states(cell) for cell in cells if cell.kind == "group"))
    _write_all(
        run, "share_states", (c for cell in cells if cell.kind == "share" for c in coordinators.share_states(cell))
    )
    shared = [c for pair in pairs if pair[0].kind == "share" for c in shares.group_offsets(*pair)]
    observed = [c for cell, partition in pairs for c in tables.observations(cell, partition, dict(audits))]
    two, stale, late = (options.planted.get(n, 0) for n in ("two-controllers", "stale-controller", "unanswered"))
    _write_all(
        run,
        "observations",
        [
            waits.admin_calls(late),
            *observed,
            *(c for pair in pairs for c in tables.copies(*pair, _own_logs(*pair))),
            *(c for pair in pairs if pair[0].kind == "tiered" for c in tiers.store_read(*pair)),
            *(snapshots.observed(*pair) for pair in pairs if pair[0].kind == "log"),
            *shared,
        ],
    )
    _write_all(run, "admin_operations", [waits.admin_operations(options.planted.get("not-linearizable", 0))])
    stable = [c for cell in cells if cell.kind == "log" for c in waits.stable_offsets(cell)]
    _write_all(run, "metrics", [waits.quorum_answers(two, stale), *stable])
    led = [c for pair in pairs for c in tables.metadata(*pair)]
    _write_all(run, "metadata", [waits.brokers(), waits.controllers(two, stale), *led])
    _write_all(run, "cluster_states", [cluster_states(options.planted.get("illegal-transition", 0))])
    logs = [pair for pair in pairs if pair[0].kind == "log"]
    _write_all(run, "snapshots", (snapshots.entries(*pair) for pair in logs))
    with _table_writer(run, "replicas") as writer:
        for cell, partition in pairs:
            begins = _own_logs(cell, partition)
            for node in tables.NODES:
                for first, last in _chunks(partition.length):
                    columns = tables.replicas(cell, partition, node, min(max(first, begins.get(node, 0)), last), last)
                    writer.put(columns, numbers[id(cell)], partition.partition)
            for first, last in _chunks(partition.length) if cell.kind == "tiered" else ():
                columns = tiers.remote_batches(cell, partition, first, last)
                writer.put(columns, numbers[id(cell)], partition.partition)
    _write_all(
        run,
        "remote_segments",
        (made(*pair) for pair in pairs if pair[0].kind == "tiered" for made in (tiers.segments, tiers.leftover)),
    )
    return rows


def _own_logs(cell: GeneratedCell, partition: GeneratedPartition) -> Mapping[int, int]:
    """Returns node → the offset with which its own log begins, if that is not 0."""
    return tiers.local_from(partition.length) if cell.kind == "tiered" else {}


def _write_all(run: RunDirectory, name: str, parts: Iterable[Mapping[str, np.ndarray | int]]) -> None:
    with _table_writer(run, name) as writer:
        for columns in parts:
            writer.put(columns)


def _write_clients(run: RunDirectory, plan: Plan, cells: Sequence[GeneratedCell], received: Mapping[int, int]) -> None:
    issued = np.zeros(len(plan.clients), dtype=np.int64)
    for cell in cells:
        first = cell.partitions[0]
        issued[first.producers] = first.length // len(first.producers) * len(cell.partitions)
        for client, count in cell.issued.items():
            issued[client] = count
    roles = np.array([role_named(c.role) for c in plan.clients])
    reading = np.isin(roles, [Role.READER, Role.AUDIT, Role.MEMBER])
    issued[reading] = [received.get(c.client, 0) for c, reads in zip(plan.clients, reading, strict=True) if reads]
    issued[SENTINEL_CLIENT] = len(plan.partitions)
    ended = np.full(len(plan.clients), max(cell.audit_ns for cell in cells) + 4 * SHORT_AFTER_NS)
    for cell in cells:
        if cell.kind == "group":
            ended[cell.readers], ended[cell.newcomer] = cell.ended_ns, cell.calm_end_ns
    levels = [Isolation[str(c.isolation_level).upper()] if c.isolation_level else NONE for c in plan.clients]
    ids = np.array([c.client for c in plan.clients])
    columns: dict[str, np.ndarray | int] = {
        "client": ids,
        "planned": ids,
        "started_ns": tables.FIRST_NS,
        "ended_ns": ended,
        "issued": issued,
        "role": roles,
        "isolation": np.array(levels),
        "exit_code": 0,
        "clock": 0,
        "complete": 1,
    }
    write_table(run, "clients", columns, length=len(ids))


def _write_planned(run: RunDirectory, plan: Plan) -> None:
    dictionaries = Dictionaries(run.dictionaries)
    topics = dictionaries.codes("topic", [p.topic_name for p in plan.partitions])
    columns: dict[str, np.ndarray | int] = {
        "partition": np.array([p.partition for p in plan.partitions]),
        "topic": np.array(topics),
        "number": np.array([p.number for p in plan.partitions]),
        "cell": np.array([p.cell for p in plan.partitions]),
        "replicas": np.array([sum(1 << node for node in p.assignment) for p in plan.partitions]),
        "preferred_leader": np.array([p.assignment[0] for p in plan.partitions]),
    }
    write_table(run, "partitions", columns, length=len(plan.partitions))
    names = np.array(dictionaries.codes("cell", [cell.name for cell in plan.cells]))
    write_table(run, "cells", {"cell": np.arange(len(names)), "name": names}, length=len(names))
