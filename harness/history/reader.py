"""Reading a history: one Kafka partition at a time, and only the columns that are asked for.

`History.open` looks at every table's footer before anything is checked (`prozess.harness.history.parquet`).
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from prozess.harness.clock import NS_PER_S
from prozess.harness.columns import Clustered, SharedRows, empty_rows
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.history.parquet import PartitionColumns, TableFile
from prozess.harness.history.participants import (
    REVEALED,
    AuditEnds,
    Claim,
    ClientFacts,
    RevealedReads,
    audit_claims,
    client_facts,
    copied_segment_bytes,
    copies,
    delete_delay_ns,
    ended_partitions,
    log_starts,
    nodes_out,
    remote_stores_read,
    retention_of,
    taken_partitions,
    tier_within_ns,
)
from prozess.harness.interfaces.checking import CellHistory, CopyFacts, PartitionHistory, Retention
from prozess.harness.plan.bounds import bounds_of
from prozess.harness.plan.plan import Cell, Plan, PlannedClient, parse_plan
from prozess.harness.recording.codes import read_texts
from prozess.harness.recording.metrics import code_of
from prozess.harness.run_directory import LostRows, RunDirectory, read_document, read_object
from prozess.harness.schema import NONE, RECORDER_CLIENT, TABLES, ObservationKind

PARTITIONED = tuple(name for name, table in TABLES.items() if table.partitioned)
CELL_ROWS_HELD = 20_000_000
"""The rows of a cell above which a kernel reads a partition anew each time it asks. This takes longer, and less memory."""
CELLS_HELD = 4
"""For how many cells the rows of their clients are kept."""
_TABLES_OF_CLIENTS = ("transactions", "commits", "assignments", "positions", "clients", "heartbeats")
_OF_LOGS = ("cluster_states", "transaction_states", "group_states", "share_states")
_OF_LEADERS = (code_of("high_watermark"), code_of("last_stable_offset"))
_OF_THE_QUORUM = (code_of("quorum_leader"), code_of("quorum_epoch"))
METADATA_RESOLUTION_NS = 1_000_000
"""The controllers' records carry milliseconds."""
NO_CLOCK_ERROR_NS = NS_PER_S
"""The clock error that is assumed where nobody measured it."""


def metadata_error_ns(run: RunDirectory) -> int:
    """Returns how far the times of `metadata` from the controllers' log may be off from all other times."""
    if not run.clock.exists():
        return NO_CLOCK_ERROR_NS
    return METADATA_RESOLUTION_NS + int(read_object(run.clock).get("wall_error_ns", NO_CLOCK_ERROR_NS))


def unreadable_cells(plan: Plan, lost: Sequence[LostRows]) -> Mapping[int, str]:
    """Returns the cells of which rows are damaged, and the reason that names the files, as a clause."""
    found = {}
    for cell in plan.cells:
        damage = [f"{one.file} {one.why}" for one in lost if one.partitions & set(cell.partitions)]
        if damage:
            found[cell.cell] = f"the evidence is damaged: {'; '.join(damage)}"
    return found


class _EachTime(Mapping[int, PartitionHistory]):
    """The histories of partitions, read each time they are asked for, and not kept."""

    def __init__(self, history: "History", partitions: Sequence[int]) -> None:
        self._history, self._partitions = history, dict.fromkeys(partitions)

    def __getitem__(self, partition: int) -> PartitionHistory:
        if partition not in self._partitions:
            raise KeyError(partition)
        return self._history.partition_history(partition)

    def __iter__(self) -> Iterator[int]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)


class _Once(_EachTime):
    """The histories of partitions, read when they are first asked for, and kept. For one thread."""

    def __init__(self, history: "History", partitions: Sequence[int]) -> None:
        super().__init__(history, partitions)
        self._held: dict[int, PartitionHistory] = {}

    def __getitem__(self, partition: int) -> PartitionHistory:
        if partition not in self._held:
            self._held[partition] = super().__getitem__(partition)
        return self._held[partition]


class History:
    """The history of a run. It is thread safe, and `open` is cheap enough to be called by every task of an engine."""

    def __init__(self, run: RunDirectory, plan: Plan) -> None:
        self.run, self.plan = run, plan
        self.files = {name: TableFile(run, table) for name, table in TABLES.items()}
        self._metadata_error_ns = metadata_error_ns(run)
        self._held: dict[str, dict[str, np.ndarray]] = {}
        self._orders: dict[str, Clustered] = {}
        self._nothing: dict[str, dict[str, np.ndarray]] = {}
        self._cell_tables: dict[int, Mapping[str, SharedRows]] = {}
        self._cell_clients: dict[int, Sequence[PlannedClient]] = {}
        self._lock = threading.Lock()

    @staticmethod
    def open(run: RunDirectory) -> "History":
        """Opens the history of a run. HistoryUnreadable, with table and reason, if any table is missing, torn, or of
        another version."""
        try:
            text = read_document(run.plan)
        except (OSError, UnicodeDecodeError) as error:
            raise HistoryUnreadable(f"{run.plan} cannot be read: {error}.") from error
        return History(run, parse_plan(text, source=str(run.plan)))

    @property
    def torn_rows(self) -> dict[str, int]:
        """Returns how many rows of each table were left out as torn. Only tables that have some."""
        return {name: file.torn_rows for name, file in self.files.items() if file.torn_rows}

    def rows(self, table: str) -> int:
        """Returns how many rows a table has."""
        return self.files[table].rows

    def table(self, table: str) -> dict[str, np.ndarray]:
        """Returns a whole table as arrays, column name → values. For small tables."""
        return self.files[table].read(TABLES[table].column_names)

    @cached_property
    def partitions(self) -> tuple[int, ...]:
        """The ids of every planned partition, and of any other that has rows, ascending."""
        ids = {planned.partition for planned in self.plan.partitions}
        return tuple(sorted(ids.union(*(self.files[name].row_ranges for name in PARTITIONED))))

    def rows_of(self, partition: int) -> int:
        """Returns how many rows a partition has, over all partitioned tables."""
        return sum(self.files[name].rows_of(partition) for name in PARTITIONED)

    @cached_property
    def unreadable(self) -> Mapping[int, str]:
        """The cells of which rows are damaged, and the reason, as a clause. Nothing is judged in them."""
        return unreadable_cells(self.plan, self.run.lost)

    def bytes_since(self) -> int:
        """Returns how many bytes of the tables were read since this was last asked, as they are stored; 0 the first time,
        from which on they are counted."""
        found = sum(file.read_bytes or 0 for file in self.files.values())
        for file in self.files.values():
            file.read_bytes = 0
        return found

    def cell_of(self, partition: int) -> Cell | None:
        """Returns the cell of a partition. None: the partition was not planned."""
        return self._cells.get(partition)

    @cached_property
    def _cells(self) -> dict[int, Cell]:
        return {partition: cell for cell in self.plan.cells for partition in cell.partitions}

    def assignment_of(self, partition: int) -> tuple[int, ...]:
        """Returns the nodes to which a partition was assigned. Empty: nobody knows."""
        return self._assignments.get(partition, ())

    def manifest(self) -> pa.Table:
        """Returns a table with one row for each partition: partition (int32); for each partitioned table `<table>_rows`
        (int64) and `<table>_row_groups` (list of int32)."""
        columns: dict[str, Any] = {"partition": pa.array(self.partitions, pa.int32())}
        for name in PARTITIONED:
            file = self.files[name]
            columns[f"{name}_rows"] = pa.array([file.rows_of(p) for p in self.partitions], pa.int64())
            groups = [list(map(file.row_group_of, file.row_ranges.get(p, ()))) for p in self.partitions]
            columns[f"{name}_row_groups"] = pa.array(groups, pa.list_(pa.int32()))
        return pa.table(columns)

    def partition_history(self, partition: int) -> PartitionHistory:
        """Returns everything that a kernel may look at in a partition. Columns of sends and reads are decoded when the
        kernel asks for them."""
        facts = self.clients
        sends: Mapping[str, np.ndarray] = PartitionColumns(self.files["sends"], partition)
        reads: Mapping[str, np.ndarray] = PartitionColumns(self.files["reads"], partition)
        audited = self.plan.audited and partition not in self.ended
        if not audited:
            reads = RevealedReads(sends, reads, facts.isolation, first_id=len(facts.role) - len(REVEALED))
        return PartitionHistory(
            partition=partition,
            audited=audited,
            readers_begin="anywhere" if not audited and partition in self._taken else self.plan.readers_begin,
            sends=sends,
            reads=reads,
            client_role=facts.role,
            client_isolation=facts.isolation,
            client_issued=facts.issued,
            client_acks=facts.acks,
            client_reported_until_ns=facts.reported_until_ns,
            audit_end=AuditEnds(
                self._audit_claims.get(partition, {}), lambda offset: self._reads_near(partition, offset, reads)
            ),
            compacted=partition in self._compacted,
            log_start=self._log_starts.get(partition, 0),
            assignment=self.assignment_of(partition),
            copies=self._copies.get(partition, {}),
            replicas=PartitionColumns(self.files["replicas"], partition),
            snapshots=self._of_partition("snapshots", partition),
            tiered=partition in self._tiered,
            remote=self._of_partition("remote_segments", partition),
            remote_read=partition in self._remote_read,
            segment_bytes=self._segment_bytes.get(partition),
            tier_within_ns=tier_within_ns(self.plan),
            client_clock=facts.clock,
            metadata=self._of_partition("metadata", partition),
            observations=self._of_partition("observations", partition),
            min_insync_replicas=self._min_insync_replicas.get(partition),
            retention=self._retention.get(partition),
            delete_delay_ns=delete_delay_ns(self.plan),
            metadata_error_ns=self._metadata_error_ns,
        )

    def _reads_near(self, partition: int, offset: int, reads: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Returns rows of `reads` of a partition, among them all rows at this offset. For a large partition it reads only
        the ranges of rows that may have the offset."""
        file = self.files["reads"]
        row_ranges = file.row_ranges.get(partition, ())
        if len(row_ranges) < 2:
            return reads
        near = [one for one in row_ranges if file.offsets_of(one)[0] <= offset <= file.offsets_of(one)[1]]
        return file.read(["log_offset", "sender", "client"], near) if near else empty_rows(file.table)

    def cell_history(
        self, cell: int, only: Sequence[PartitionHistory] = (), known: Mapping[str, Any] | None = None
    ) -> CellHistory:
        """Returns everything that a kernel over a whole cell may look at. `only` restricts it to some partitions, for
        kernels that look at one at a time (`prozess.harness.checking.checker.ByPartition`). `known` is that of
        `CellHistory`."""
        planned = self.plan.cells[cell]
        numbers = [one.partition for one in only] or planned.partitions
        clients = self._clients_of(cell)
        tables: dict[str, Mapping[str, np.ndarray]] = dict(self._of_clients(cell, clients))
        tables["observations"] = self._of_partitions("observations", numbers)
        tables["asked"] = self._asked
        tables["calls"], tables["own_heartbeats"] = self._calls, self._own_heartbeats
        tables["admin_operations"] = self._small("admin_operations")
        tables |= self._of_logs
        tables["processed"] = PartitionColumns(self.files["processed"], *sorted(numbers))
        tables["deliveries"] = PartitionColumns(self.files["deliveries"], *sorted(numbers))
        tables["metadata"] = self._of_nodes
        tables["metrics"] = self._quorum
        tables["leader_offsets"] = self._of_partitions("leader_offsets", numbers)
        assert all(self.cell_of(one.partition) is planned for one in only), f"partitions of cell {cell}"
        return CellHistory(
            cell=planned,
            partitions={one.partition: one for one in only} if only else self._partitions_of(numbers),
            tables=tables,
            clients=clients,
            known=known or {},
            bounds=bounds_of(self.plan, planned, self._settings),
            out=self._nodes_out,
        )

    @cached_property
    def _of_nodes(self) -> SharedRows:
        return SharedRows(self._of_partition("metadata", NONE))

    @cached_property
    def _of_logs(self) -> dict[str, Mapping[str, np.ndarray]]:
        return {name: SharedRows(self._small(name)) for name in _OF_LOGS}

    @cached_property
    def _asked(self) -> dict[str, np.ndarray]:
        table = self._small("observations")
        kinds = (ObservationKind.ASKED.value, ObservationKind.CALLED.value, ObservationKind.POLLED.value)
        return _rows(table, np.isin(table["kind"], kinds))

    @cached_property
    def _calls(self) -> dict[str, np.ndarray]:
        table = self._small("observations")
        kinds = (ObservationKind.ADMIN_ANSWERED.value, ObservationKind.ADMIN_WAITED.value)
        return _rows(table, np.isin(table["kind"], kinds))

    @cached_property
    def _own_heartbeats(self) -> dict[str, np.ndarray]:
        table = self._small("heartbeats")
        return _rows(table, table["client"] == RECORDER_CLIENT)

    @cached_property
    def _nodes_out(self) -> Mapping[int, Sequence[tuple[int, int]]]:
        return nodes_out(self._small("faults"), read_texts(self.run.dictionaries))

    @cached_property
    def _settings(self) -> Mapping[str, Any]:
        """Returns what the cluster was seen to have set; nothing where nobody noted it."""
        cluster = read_object(self.run.cluster) if self.run.cluster.exists() else {}
        settings = cluster.get("settings", {})
        return settings if isinstance(settings, dict) else {}

    def _clients_of(self, cell: int) -> Sequence[PlannedClient]:
        """Returns the clients of a cell. There may be thousands, and each partition of the cell asks."""
        held = self._cell_clients.get(cell)
        if held is None:
            mine = frozenset(self.plan.cells[cell].partitions)
            held = self._cell_clients[cell] = [c for c in self.plan.clients if not mine.isdisjoint(c.partitions)]
        return held

    def _of_clients(self, cell: int, planned: Sequence[PlannedClient]) -> Mapping[str, SharedRows]:
        """Returns the rows of the cell's own clients. They are the same for every partition of the cell, so they are
        kept."""
        held = self._cell_tables.get(cell)
        if held is None:
            ids = self._incarnations([client.client for client in planned])
            held = {name: SharedRows(_those_of(self._small(name), ids)) for name in _TABLES_OF_CLIENTS}
            with self._lock:
                for other in list(self._cell_tables)[: 1 - CELLS_HELD]:
                    del self._cell_tables[other]
                self._cell_tables[cell] = held
        return held

    def _partitions_of(self, partitions: Sequence[int]) -> Mapping[int, PartitionHistory]:
        """Returns the histories of these partitions. All kernels share them, unless they would hold too many rows in
        memory."""
        if sum(map(self.rows_of, partitions)) > CELL_ROWS_HELD:
            return _EachTime(self, partitions)
        return _Once(self, partitions)

    def untimed_senders(self) -> list[int]:
        """Returns the clients whose `invoked_ns` is only a lower bound. Verifiable producers report a send when it is
        over, not when it began."""
        planned = [client.client for client in self.plan.clients if client.role == "verifiable-producer"]
        return sorted({int(client) for client in self._incarnations(planned)}) if planned else []

    def _incarnations(self, planned: Sequence[int]) -> np.ndarray:
        """Returns the client ids of these planned clients and of the clients that took their place later."""
        clients = self._small("clients")
        later = clients["client"][np.isin(clients["planned"], planned)]
        return np.concatenate([np.asarray(planned, dtype=np.int64), later.astype(np.int64)])

    def _small(self, name: str) -> dict[str, np.ndarray]:
        """Returns a whole table, read once."""
        with self._lock:
            if name not in self._held:
                self._held[name] = self._leader_offsets() if name == "leader_offsets" else self.table(name)
            return self._held[name]

    def _of_partition(self, name: str, partition: int) -> dict[str, np.ndarray]:
        """Returns the rows of one partition (NONE: of none) of a table that is not clustered, in the order of writing."""
        table = self._small(name)
        with self._lock:
            if name not in self._orders:
                self._orders[name] = Clustered(table["partition"])
                self._nothing[name] = {column: values[:0] for column, values in table.items()}
        rows = self._orders[name].rows_of(partition)
        return _rows(table, rows) if len(rows) else self._nothing[name]

    def _of_partitions(self, name: str, partitions: Sequence[int]) -> dict[str, np.ndarray]:
        """Returns the rows of these partitions of a table that is not clustered, in the order of writing."""
        if len(partitions) == 1:  # as thousands of times in a row
            return self._of_partition(name, partitions[0])
        table = self._small(name)
        return _rows(table, np.isin(table["partition"], partitions))

    @cached_property
    def _quorum(self) -> dict[str, np.ndarray]:
        metrics = self.table("metrics")
        return _rows(metrics, np.isin(metrics["metric"], _OF_THE_QUORUM))

    def _leader_offsets(self) -> dict[str, np.ndarray]:
        metrics = self.table("metrics")
        return _rows(metrics, np.isin(metrics["metric"], _OF_LEADERS))

    @cached_property
    def _min_insync_replicas(self) -> dict[int, int]:
        return {p: cell.topic.min_insync_replicas for cell in self.plan.cells for p in cell.partitions}

    @cached_property
    def _retention(self) -> Mapping[int, Retention]:
        return retention_of(self.plan)

    @cached_property
    def _taken(self) -> frozenset[int]:
        return taken_partitions(self.plan)

    @cached_property
    def clients(self) -> ClientFacts:
        """Returns what is known of each client."""
        return client_facts(self.plan, self.table("clients"), revealed=bool(self.ended))

    @cached_property
    def ended(self) -> frozenset[int]:
        """The partitions whose topic was deleted before the audit."""
        return ended_partitions(self.plan, self._small("metadata")) if self.plan.topics_end else frozenset()

    @cached_property
    def _observations(self) -> dict[str, np.ndarray]:
        return self._small("observations")

    @cached_property
    def _audit_claims(self) -> dict[int, dict[int, Claim]]:
        return audit_claims(self._observations)

    @cached_property
    def _log_starts(self) -> dict[int, int]:
        return log_starts(self._observations)

    @cached_property
    def _copies(self) -> dict[int, dict[int, CopyFacts]]:
        return copies(self._observations)

    @cached_property
    def _assignments(self) -> dict[int, tuple[int, ...]]:
        return {planned.partition: planned.assignment for planned in self.plan.partitions}

    @cached_property
    def _tiered(self) -> frozenset[int]:
        return frozenset(p for c in self.plan.cells if c.topic.is_tiered for p in c.partitions)

    @cached_property
    def _segment_bytes(self) -> Mapping[int, int]:
        return copied_segment_bytes(self.plan)

    @cached_property
    def _remote_read(self) -> frozenset[int]:
        return remote_stores_read(self._observations)

    @cached_property
    def _compacted(self) -> frozenset[int]:
        return frozenset(p for c in self.plan.cells if "compact" in c.topic.cleanup_policy for p in c.partitions)


def _those_of(table: Mapping[str, np.ndarray], clients: np.ndarray) -> Mapping[str, np.ndarray]:
    """Returns the rows of these clients. Nothing is copied if those are all rows."""
    chosen = np.isin(table["client"], clients)
    return table if chosen.all() else _rows(table, chosen)


def _rows(table: Mapping[str, np.ndarray], chosen: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[chosen] for name, values in table.items()}
