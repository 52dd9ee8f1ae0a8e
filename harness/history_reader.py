"""Reading a history: one Kafka partition at a time, only the columns that are asked for.

`History.open` looks at every table's footer before anything is checked; the footers stay parsed. Data pages carry
checksums, so that a rotten one is `HistoryUnreadable`, never a wrong number.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.arrow_arrays import to_numpy
from harness.audit_ends import AuditEnds, Claim
from harness.clock import NS_PER_S
from harness.columns import SharedRows
from harness.errors import HistoryUnreadable
from harness.metrics import code_of
from harness.plan import Cell, Plan, parse_plan
from harness.protocols import CellHistory, CopyFacts, PartitionHistory
from harness.recorder import RECORDER_CLIENT
from harness.revealed import REVEALED, with_revealed
from harness.run_directory import RunDirectory, read_json
from harness.schema import FORMAT_VERSION, MISSING, NONE, TABLES, Isolation, ObservationKind, Role, Table, role_named

PARTITIONED = tuple(name for name, table in TABLES.items() if table.partitioned)
CELL_ROWS_HELD = 20_000_000
"""Of a larger cell a kernel gets the rows of a partition each time it asks: it takes longer, and less memory."""
CELLS_HELD = 4
"""Cells of which the rows of their clients are kept."""
READ_WHOLE_ROWS = 1 << 14
"""Up to this many rows one call for all columns is cheaper than one for each."""
_LEVELS = {
    None: Isolation.NOT_A_READER,
    "read_uncommitted": Isolation.READ_UNCOMMITTED,
    "read_committed": Isolation.READ_COMMITTED,
}
_ACKS = {"0": 0, "1": 1, "all": -1}
_TOLD = frozenset({"producer", "keyed-producer", "errors-producer"})
"""Roles that record a send before they make it, and end once all of them are answered."""
TIMEOUTS_LATE_NS = 2_000_000_000
"""librdkafka looks for what has timed out once a second; and a starved client a little later."""
_KEY = "prozess."
_TABLES_OF_CLIENTS = ("transactions", "commits", "assignments", "positions", "clients", "heartbeats")
_OF_LEADERS = (code_of("high_watermark"), code_of("last_stable_offset"))
_OF_THE_QUORUM = (code_of("quorum_leader"), code_of("quorum_epoch"))
METADATA_RESOLUTION_NS = 1_000_000
"""The controllers' records carry milliseconds."""
NO_CLOCK_ERROR_NS = NS_PER_S
"""Where nobody measured it."""
_OF_COPIES = (
    ObservationKind.REPLICA_LOG_START,
    ObservationKind.REPLICA_LOG_END,
    ObservationKind.REPLICA_HIGH_WATERMARK,
)


def metadata_error_ns(run: RunDirectory) -> int:
    """How far times of `metadata` from the controllers' log may be off from all others."""
    if not run.clock.exists():
        return NO_CLOCK_ERROR_NS
    return METADATA_RESOLUTION_NS + int(read_json(run.clock).get("wall_error_ns", NO_CLOCK_ERROR_NS))


def table_path(run: RunDirectory, table: str) -> Path:
    """The Parquet file of a table."""
    return run.history / f"{table}.parquet"


def parquet_schema(table: Table) -> pa.Schema:
    """Names and types of a table's Parquet form: int32 and int64, nothing is null."""
    kinds = {"i4": pa.int32(), "i8": pa.int64()}
    fields = [("client", pa.int32()), *((c.name, kinds[c.kind]) for c in table.columns)]
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])


def key_value_metadata(table: str, *, rows: int, torn_rows: int, start_monotonic_ns: int) -> dict[str, str]:
    """What the footer of a table says about it."""
    facts = {
        "format_version": FORMAT_VERSION,
        "table": table,
        "rows": rows,
        "torn_rows": torn_rows,
        "start_monotonic_ns": start_monotonic_ns,
    }
    return {_KEY + name: str(value) for name, value in facts.items()}


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """Arrays indexed by client id, as `PartitionHistory` has them."""

    role: np.ndarray
    isolation: np.ndarray
    issued: np.ndarray
    acks: np.ndarray
    clock: np.ndarray
    told_ns: np.ndarray


class TableFile:
    """One table's file with its footer parsed. Thread safe."""

    def __init__(self, run: RunDirectory, table: Table) -> None:
        """HistoryUnreadable if the file is missing, torn, of another version, or not this table."""
        self.table, self.path = table, table_path(run, table.name)
        try:
            self.metadata: Any = pq.read_metadata(self.path)
        except FileNotFoundError as error:
            raise self._unreadable("is missing") from error
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(f"is torn or no Parquet ({_first_line(error)})") from error
        self.rows = int(self.metadata.num_rows)
        version = self._fact("format_version")
        if version != str(FORMAT_VERSION):
            raise self._unreadable(f"has format version {version}; this prozess reads {FORMAT_VERSION}")
        if self._fact("table") != table.name:
            raise self._unreadable(f"holds table {self._fact('table')!r}")
        if not self.metadata.schema.to_arrow_schema().equals(parquet_schema(table)):
            raise self._unreadable(f"does not have the columns {', '.join(table.column_names)}")
        if self._fact("rows") != str(self.rows):
            raise self._unreadable(f"has {self.rows} rows instead of {self._fact('rows')}")

    @property
    def torn_rows(self) -> int:
        """Rows that were left out because their writer died while writing them."""
        return int(self._fact("torn_rows"))

    @property
    def start_monotonic_ns(self) -> int:
        """What was subtracted from CLOCK_MONOTONIC."""
        return int(self._fact("start_monotonic_ns"))

    @cached_property
    def row_groups(self) -> dict[int, tuple[int, ...]]:
        """Partition → its row groups, of a partitioned table; from the statistics of the footer."""
        column = self.table.column_names.index("partition")
        found: dict[int, list[int]] = {}
        for number in range(self.metadata.num_row_groups):
            group = self.metadata.row_group(number)
            if not group.num_rows:
                continue
            statistics = group.column(column).statistics
            if statistics is None or not statistics.has_min_max or statistics.min != statistics.max:
                raise self._unreadable(f"is not clustered by partition (row group {number})")
            found.setdefault(int(statistics.min), []).append(number)
        return {partition: tuple(groups) for partition, groups in sorted(found.items())}

    def rows_of(self, partition: int) -> int:
        """How many rows a partition has."""
        return sum(int(self.metadata.row_group(group).num_rows) for group in self.row_groups.get(partition, ()))

    def offsets_of(self, row_group: int) -> tuple[int, int]:
        """The least and the greatest `log_offset` of a row group; from the statistics, else any."""
        statistics = self.metadata.row_group(row_group).column(self.table.column_names.index("log_offset")).statistics
        if statistics is None or not statistics.has_min_max:
            return NONE, int(np.iinfo(np.int64).max)
        return int(statistics.min), int(statistics.max)

    def read(self, columns: Sequence[str], row_groups: Sequence[int] | None = None) -> dict[str, np.ndarray]:
        """Columns of some row groups (None = all) as read-only arrays. HistoryUnreadable for a rotten page.

        A column that has one value in each of them, by the footer's statistics, is not decoded, and takes no memory if it is
        the same one in all of them."""
        groups = list(range(self.metadata.num_row_groups) if row_groups is None else row_groups)
        found = self._constants(columns, groups)
        decoded = [name for name in columns if name not in found]
        try:
            # A reader per call: they are cheap with a parsed footer, and not safe to share between threads.
            if decoded:
                with pq.ParquetFile(
                    self.path, metadata=self.metadata, memory_map=True, page_checksum_verification=True
                ) as file:
                    table = file.read_row_groups(groups, columns=decoded, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(f"is torn ({_first_line(error)})") from error
        return {name: found[name] if name in found else to_numpy(table.column(name)) for name in columns}

    def constant(self, column: str, row_groups: Sequence[int]) -> np.ndarray | None:
        """The one value of a column in all of these row groups, by the statistics; None = there are several, or none."""
        found = self._constants([column], row_groups).get(column)
        return found[0] if found is not None and found.strides == (0,) else None

    def _constants(self, columns: Sequence[str], groups: Sequence[int]) -> dict[str, np.ndarray]:
        """Of those columns that have one value in each of these row groups."""
        parts = [self.metadata.row_group(group) for group in groups]
        lengths = [int(part.num_rows) for part in parts]
        found = {}
        for name in columns if sum(lengths) else ():
            values = []
            for part in parts:
                statistics = part.column(self.table.column_names.index(name)).statistics
                if statistics is None or not statistics.has_min_max or statistics.min != statistics.max:
                    break
                values.append(statistics.min)
            else:
                found[name] = _repeated(np.array(values, dtype=self.table.empty()[name].dtype), lengths)
        return found

    def _fact(self, name: str) -> str:
        held = self.metadata.metadata or {}
        return str(held.get((_KEY + name).encode(), b"none").decode())

    def _unreadable(self, what: str) -> HistoryUnreadable:
        return HistoryUnreadable(
            f"table {self.table.name}: {self.path} {what}. Delete it and check the run again to write it from the rows; "
            "where there are none, make the history again."
        )


class PartitionColumns(Mapping[str, np.ndarray]):
    """Columns of one partition of a table, each decoded when it is first asked for. For one thread."""

    def __init__(self, file: TableFile, partition: int) -> None:
        self._file, self._groups = file, file.row_groups.get(partition, ())
        self._length = file.rows_of(partition)
        self._held: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._held:
            if name not in self._file.table.column_names:
                raise KeyError(name)
            if not self._groups:
                self._held = self._file.table.empty()
            elif self._length <= READ_WHOLE_ROWS:
                self._held = self._file.read(self._file.table.column_names, self._groups)
            else:
                self._held |= self._file.read([name], self._groups)
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.table.column_names)

    def __len__(self) -> int:
        return len(self._file.table.column_names)


class _EachTime(Mapping[int, PartitionHistory]):
    """Histories of partitions, made when they are asked for, and not held."""

    def __init__(self, history: "History", partitions: Sequence[int]) -> None:
        self._history, self._partitions = history, tuple(partitions)

    def __getitem__(self, partition: int) -> PartitionHistory:
        if partition not in self._partitions:
            raise KeyError(partition)
        return self._history.partition_history(partition)

    def __iter__(self) -> Iterator[int]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)


class History:
    """A run's history. Thread safe; `open` is cheap enough to be called by every task of an engine."""

    def __init__(self, run: RunDirectory, plan: Plan) -> None:
        self.run, self.plan = run, plan
        self.files = {name: TableFile(run, table) for name, table in TABLES.items()}
        self._held: dict[str, dict[str, np.ndarray]] = {}
        self._orders: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._cell_tables: dict[int, Mapping[str, SharedRows]] = {}
        self._lock = threading.Lock()

    @staticmethod
    def open(run: RunDirectory) -> "History":
        """HistoryUnreadable, with table and reason, if any table is missing, torn, or of another version."""
        try:
            text = run.plan.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise HistoryUnreadable(f"{run.plan} cannot be read: {error}.") from error
        return History(run, parse_plan(text, source=str(run.plan)))

    @property
    def torn_rows(self) -> dict[str, int]:
        """Table → rows left out as torn; only tables that have some."""
        return {name: file.torn_rows for name, file in self.files.items() if file.torn_rows}

    def rows(self, table: str) -> int:
        """How many rows a table has."""
        return self.files[table].rows

    def table(self, table: str) -> dict[str, np.ndarray]:
        """A whole table as arrays, column name → values: for small tables."""
        return self.files[table].read(TABLES[table].column_names)

    @cached_property
    def partitions(self) -> tuple[int, ...]:
        """Ids of every planned partition, and of any other that has rows; ascending."""
        ids = {planned.partition for planned in self.plan.partitions}
        return tuple(sorted(ids.union(*(self.files[name].row_groups for name in PARTITIONED))))

    def rows_of(self, partition: int) -> int:
        """How many rows a partition has, over all partitioned tables."""
        return sum(self.files[name].rows_of(partition) for name in PARTITIONED)

    def cell_of(self, partition: int) -> Cell | None:
        """The cell that has this partition; None = it was not planned."""
        return self._cells.get(partition)

    @cached_property
    def _cells(self) -> dict[int, Cell]:
        return {partition: cell for cell in self.plan.cells for partition in cell.partitions}

    def manifest(self) -> pa.Table:
        """One row per partition: partition (int32); for each partitioned table `<table>_rows` (int64) and
        `<table>_row_groups` (list of int32)."""
        columns: dict[str, Any] = {"partition": pa.array(self.partitions, pa.int32())}
        for name in PARTITIONED:
            file = self.files[name]
            columns[f"{name}_rows"] = pa.array([file.rows_of(p) for p in self.partitions], pa.int64())
            groups = [file.row_groups.get(p, ()) for p in self.partitions]
            columns[f"{name}_row_groups"] = pa.array(groups, pa.list_(pa.int32()))
        return pa.table(columns)

    def partition_history(self, partition: int) -> PartitionHistory:
        """Everything a kernel may look at. Columns of sends and reads are decoded when the kernel asks for them."""
        facts = self.clients
        sends: Mapping[str, np.ndarray] = PartitionColumns(self.files["sends"], partition)
        reads: Mapping[str, np.ndarray] = PartitionColumns(self.files["reads"], partition)
        if not self.plan.audited:
            reads = with_revealed(sends, reads, facts.isolation, first_id=len(facts.role) - len(REVEALED))
        return PartitionHistory(
            partition=partition,
            audited=self.plan.audited,
            sends=sends,
            reads=reads,
            client_role=facts.role,
            client_isolation=facts.isolation,
            client_issued=facts.issued,
            client_acks=facts.acks,
            client_told_ns=facts.told_ns,
            audit_end=AuditEnds(
                self._audit_claims.get(partition, {}), lambda offset: self._reads_near(partition, offset, reads)
            ),
            compacted=partition in self._compacted,
            log_start=self._log_starts.get(partition, 0),
            assignment=self._assignments.get(partition, ()),
            copies=self._copies.get(partition, {}),
            replicas=PartitionColumns(self.files["replicas"], partition),
            snapshots=self._of_partition("snapshots", partition),
            client_clock=facts.clock,
            metadata=self._of_partition("metadata", partition),
            observations=self._of_partition("observations", partition),
            min_insync_replicas=self._min_insync_replicas.get(partition),
            metadata_error_ns=self._metadata_error_ns,
        )

    def _reads_near(self, partition: int, offset: int, reads: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Rows of `reads` of a partition, those at this offset among them: of a large one only what may have it."""
        file = self.files["reads"]
        groups = file.row_groups.get(partition, ())
        if len(groups) < 2:
            return reads
        near = [group for group in groups if file.offsets_of(group)[0] <= offset <= file.offsets_of(group)[1]]
        return file.read(["log_offset", "sender", "client"], near) if near else file.table.empty()

    def cell_history(
        self, cell: int, only: PartitionHistory | None = None, known: Mapping[str, Any] | None = None
    ) -> CellHistory:
        """Everything a kernel over a whole cell may look at. `only`: of this partition's, for kernels that look at one
        partition at a time (`harness.catalogue.CELL_KERNELS_BY_PARTITION`); `known`: as `CellHistory`."""
        planned = self.plan.cells[cell]
        numbers = planned.partitions if only is None else (only.partition,)
        clients = [c for c in self.plan.clients if not set(c.partitions).isdisjoint(planned.partitions)]
        tables: dict[str, Mapping[str, np.ndarray]] = dict(self._of_clients(cell, [c.client for c in clients]))
        seen = self._observations
        tables["observations"] = _rows(seen, np.isin(seen["partition"], numbers))
        tables["processed"] = self._processed(numbers)
        tables["metadata"] = self._of_partition("metadata", NONE)
        tables["metrics"] = self._quorum
        tables["leader_offsets"] = _rows(self._leader_offsets, np.isin(self._leader_offsets["partition"], numbers))
        return CellHistory(
            cell=planned,
            partitions=self._partitions_of(numbers) if only is None else {only.partition: only},
            tables=tables,
            clients=clients,
            known=known or {},
        )

    def _of_clients(self, cell: int, planned: Sequence[int]) -> Mapping[str, SharedRows]:
        """Rows of the cell's own clients; the same for every partition of it that is checked here, one after the other."""
        held = self._cell_tables.get(cell)
        if held is None:
            ids = self._incarnations(planned)
            held = {
                name: SharedRows(_rows(self._small(name), np.isin(self._small(name)["client"], ids)))
                for name in _TABLES_OF_CLIENTS
            }
            with self._lock:
                for other in list(self._cell_tables)[: 1 - CELLS_HELD]:
                    del self._cell_tables[other]
                self._cell_tables[cell] = held
        return held

    def _partitions_of(self, partitions: Sequence[int]) -> Mapping[int, PartitionHistory]:
        """Their histories: shared by all kernels, unless that would hold too many rows in memory."""
        if sum(map(self.rows_of, partitions)) > CELL_ROWS_HELD:
            return _EachTime(self, partitions)
        return {p: self.partition_history(p) for p in partitions}

    def _processed(self, partitions: Sequence[int]) -> dict[str, np.ndarray]:
        """Rows of `processed` of these partitions, as they were written. Only theirs are read: there may be many."""
        file = self.files["processed"]
        groups = [group for p in sorted(partitions) for group in file.row_groups.get(p, ())]
        return file.read(file.table.column_names, groups) if groups else file.table.empty()

    def untimed_senders(self) -> list[int]:
        """Clients whose `invoked_ns` is the earliest that it can have been: verifiable producers tell only what they were
        told."""
        planned = [client.client for client in self.plan.clients if client.role == "verifiable-producer"]
        return sorted({int(client) for client in self._incarnations(planned)}) if planned else []

    def _incarnations(self, planned: Sequence[int]) -> np.ndarray:
        """Client ids of these planned clients and of those that took their place later."""
        told = self._small("clients")
        later = told["client"][np.isin(told["planned"], planned)]
        return np.concatenate([np.asarray(planned, dtype=np.int64), later.astype(np.int64)])

    def _small(self, name: str) -> dict[str, np.ndarray]:
        """A whole table, read once."""
        with self._lock:
            if name not in self._held:
                self._held[name] = self.table(name)
            return self._held[name]

    def _of_partition(self, name: str, partition: int) -> dict[str, np.ndarray]:
        """Rows of one partition (NONE: of none) of a table that is not clustered, as they were written."""
        table, (order, values, bounds) = self._small(name), self._order_of(name)
        place = int(np.searchsorted(values, partition))
        if place == len(values) or values[place] != partition:
            return TABLES[name].empty()
        return _rows(table, order[bounds[place] : bounds[place + 1]])

    def _order_of(self, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(row numbers clustered by partition, the partitions ascending, where each begins)."""
        table = self._small(name)
        with self._lock:
            if name not in self._orders:
                order = np.argsort(table["partition"], kind="stable")
                values, starts = np.unique(table["partition"][order], return_index=True)
                self._orders[name] = (order, values, np.append(starts, len(order)))
            return self._orders[name]

    @cached_property
    def _quorum(self) -> dict[str, np.ndarray]:
        metrics = self.table("metrics")
        return _rows(metrics, np.isin(metrics["metric"], _OF_THE_QUORUM))

    @cached_property
    def _leader_offsets(self) -> dict[str, np.ndarray]:
        metrics = self.table("metrics")
        return _rows(metrics, np.isin(metrics["metric"], _OF_LEADERS))

    @cached_property
    def _metadata_error_ns(self) -> int:
        return metadata_error_ns(self.run)

    @cached_property
    def _min_insync_replicas(self) -> dict[int, int]:
        return {p: cell.topic.min_insync_replicas for cell in self.plan.cells for p in cell.partitions}

    @cached_property
    def clients(self) -> ClientFacts:
        """What is known of each client: what was planned, then what it said itself. Not the recorder's own id."""
        told = self.table("clients")
        told = {name: values[told["client"] < RECORDER_CLIENT] for name, values in told.items()}
        ids = told["client"]
        size = 1 + max([int(ids.max(initial=-1)), *(planned.client for planned in self.plan.clients)], default=-1)
        role = np.zeros(size, dtype=np.int32)
        isolation = np.full(size, Isolation.NOT_A_READER, dtype=np.int32)
        issued = np.full(size, NONE, dtype=np.int64)
        acks = np.zeros(size, dtype=np.int32)
        for planned in self.plan.clients:
            role[planned.client] = role_named(planned.role)
            isolation[planned.client] = _LEVELS[planned.isolation_level]
            if planned.producer is not None:
                acks[planned.client] = _ACKS[planned.producer.acks]
        clock = np.full(size, NONE, dtype=np.int32)
        role[ids], isolation[ids], clock[ids] = told["role"], told["isolation"], told["clock"]
        # A client that took a planned one's place has its configuration.
        restarted = told["planned"] != NONE
        acks[ids[restarted]] = acks[told["planned"][restarted]]
        # A client that did not close its files may have issued more than it could record: nothing is said of those.
        issued[ids] = np.where(told["complete"] == 1, told["issued"], NONE)
        issued[(role == Role.MEMBER) & ~self._sending(told, size)] = 0
        told_ns = self._told_ns(told, size)
        if not self.plan.audited:  # whoever reads L(p) and V(p) out of what others saw
            role = np.append(role, np.full(len(REVEALED), Role.AUDIT, dtype=np.int32))
            isolation = np.append(isolation, np.array(REVEALED, dtype=np.int32))
            issued, acks, clock = (
                np.append(array, np.zeros(len(REVEALED), array.dtype)) for array in (issued, acks, clock)
            )
        for array in (role, isolation, issued, acks, clock, told_ns):
            array.setflags(write=False)
        return ClientFacts(role, isolation, issued, acks, clock, told_ns)

    def _sending(self, told: Mapping[str, np.ndarray], size: int) -> np.ndarray:
        """bool[size]: may this client send records? A member does with a retry topic only."""
        sending = np.zeros(size, dtype=bool)
        sending[[c.client for c in self.plan.clients if c.producer is not None]] = True
        restarted = told["planned"] != NONE
        sending[told["client"][restarted]] = sending[told["planned"][restarted]]
        return sending

    def _told_ns(self, told: Mapping[str, np.ndarray], size: int) -> np.ndarray:
        """int64[size], as `PartitionHistory.client_told_ns`. Only a client that ended in order, by itself, heard all there
        was to hear: until the last delivery timeout before its end."""
        told_ns = np.full(size, MISSING, dtype=np.int64)
        timeout_ms = {
            c.client: c.producer.delivery_timeout_ms for c in self.plan.clients if c.role in _TOLD and c.producer
        }
        for client, planned, ended_ns, code, complete in zip(
            *(told[name].tolist() for name in ("client", "planned", "ended_ns", "exit_code", "complete")), strict=True
        ):
            if planned in timeout_ms and complete == 1 and code == 0 and ended_ns != MISSING:
                told_ns[client] = ended_ns - timeout_ms[planned] * 1_000_000 - TIMEOUTS_LATE_NS
        return told_ns

    @cached_property
    def _observations(self) -> dict[str, np.ndarray]:
        return self.table("observations")

    @cached_property
    def _audit_claims(self) -> dict[int, dict[int, Claim]]:
        """Partition → isolation → through which sentinel an audit says it read, and which audit."""
        seen = self._observations
        rows = np.flatnonzero(seen["kind"] == ObservationKind.AUDIT_COMPLETE)
        rows = rows[np.argsort(seen["time_ns"][rows], kind="stable")]  # the latest audit counts
        claims: dict[int, dict[int, Claim]] = {}
        for partition, isolation, value, client in zip(
            *(seen[name][rows].tolist() for name in ("partition", "isolation", "value", "client")), strict=True
        ):
            claims.setdefault(partition, {})[isolation] = (value, client)
        return claims

    @cached_property
    def _log_starts(self) -> dict[int, int]:
        seen = self._observations
        rows = np.flatnonzero(seen["kind"] == ObservationKind.LOG_START)
        rows = rows[np.argsort(seen["value"][rows], kind="stable")]  # the greatest stays
        return dict(zip(seen["partition"][rows].tolist(), seen["value"][rows].tolist(), strict=True))

    @cached_property
    def _assignments(self) -> dict[int, tuple[int, ...]]:
        return {planned.partition: planned.assignment for planned in self.plan.partitions}

    @cached_property
    def _copies(self) -> dict[int, dict[int, CopyFacts]]:
        """Partition → node → what its own files said at the end."""
        seen = self._observations
        told: dict[tuple[int, int], dict[int, int]] = {}
        rows = np.flatnonzero(np.isin(seen["kind"], _OF_COPIES) & (seen["step"] == NONE))
        for partition, node, kind, value in zip(
            *(seen[name][rows].tolist() for name in ("partition", "node", "kind", "value")), strict=True
        ):
            told.setdefault((partition, node), {})[kind] = value
        found: dict[int, dict[int, CopyFacts]] = {}
        for (partition, node), values in told.items():
            start, end, watermark = (values.get(kind) for kind in _OF_COPIES)
            if start is not None and end is not None:
                found.setdefault(partition, {})[node] = CopyFacts(start, end, watermark)
        return found

    @cached_property
    def _compacted(self) -> frozenset[int]:
        return frozenset(p for c in self.plan.cells if "compact" in c.topic.cleanup_policy for p in c.partitions)


def _repeated(values: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
    array = np.repeat(values, lengths) if (values != values[0]).any() else np.broadcast_to(values[0], sum(lengths))
    array.setflags(write=False)
    return array


def _rows(table: Mapping[str, np.ndarray], chosen: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[chosen] for name, values in table.items()}


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
