"""Defines the interfaces of checkers: what a kernel is given, and what it returns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from prozess.harness.columns import empty_rows
from prozess.harness.interfaces.witnesses import no_latencies, no_windows
from prozess.harness.plan.bounds import Bounds
from prozess.harness.plan.plan import Cell, PlannedClient, ReadersBegin
from prozess.harness.schema import METADATA, OBSERVATIONS, REMOTE_SEGMENTS, SNAPSHOTS


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """Describes one replica of a partition as its own files had it at the end, after the audit."""

    log_start: int
    log_end: int
    """The offset behind the last whole batch."""
    high_watermark: int | None = None
    """The high watermark that the broker last wrote to its checkpoint, which is at most 5 s old. None means that it
    wrote none."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Describes what retention may remove from a partition."""

    time_ns: int
    """retention.ms: it may remove records that are older."""
    size_bytes: int | None = None
    """retention.bytes: it may remove the oldest of a log that is larger. None means that the size does not count."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class PartitionHistory:
    """Everything that a kernel may look at: the arrays of one Kafka partition, and small facts about it. A kernel is
    the function that looks for one anomaly.

    `sends` and `reads` hold the Parquet form of `prozess.harness.schema` (column name → array of equal length), in the
    order (client, sequence) and (client, order of reading). `client_*` arrays are indexed by client id.
    """

    partition: int
    sends: Mapping[str, np.ndarray]
    reads: Mapping[str, np.ndarray]
    client_role: np.ndarray
    """int32[clients]: the Role of each client. 0 means that there is no such client."""
    client_isolation: np.ndarray
    """int32[clients]: the isolation level of each client, as Isolation."""
    client_issued: np.ndarray
    """int64[clients]: each client issued the sequences below this number. NONE means that it did not say. A client
    that crashed may have issued more than its rows show."""
    client_acks: np.ndarray
    """int32[clients]: the producer's acks, which is 0, 1, or -1 for all. It is 0 for clients of other roles."""
    audit_end: Mapping[int, int]
    """Isolation → the offset of the sentinel through which the audit read the partition. An isolation level whose audit
    is not complete is absent."""
    audited: bool = True
    """False means that nobody audited the partition, as in an imported history. Reads of the role AUDIT are then what
    acknowledgements and consumers' reads reveal of the log (`prozess.harness.history.participants`), and `audit_end` is
    empty."""
    readers_begin: ReadersBegin = "start"
    """For a partition that nobody audited: where consumers began to read."""
    client_reported_until_ns: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """int64[clients]: the client must have learned the outcome of every record that it sent before this moment.
    MISSING means that it did not live so long, or records only what it was reported."""
    compacted: bool = False
    log_start: int = 0
    """The greatest log start offset that anybody saw. Retention may have removed records below it."""
    left_out: int = 0
    """How many records of L(p) are not here, from the greatest log start of its replicas on: of a large partition that is
    checked in pieces, those that agree with everything are counted, and left out."""
    left_out_ns: tuple[int, int] | None = None
    """If nobody audited: when the last send of such a record was over, and the moment at which or after which consumers
    received each of them. None: none was left out."""
    left_out_given: np.ndarray = field(default_factory=lambda: np.empty((0, 4), dtype=np.int64))
    """int64[n, 4]: stretches of such records that consumers received: the first offset, the one behind the last, the leader
    epoch of all of them (NONE: not one), and when the last of them was sent (ns)."""
    assignment: tuple[int, ...] = ()
    """The ids of the brokers that are to have a replica."""
    copies: Mapping[int, CopyFacts] = field(default_factory=dict)
    """Broker id → its replica, for each replica that was read at the end."""
    replicas: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The rows of the table `replicas`, of every step, in the Parquet form. Those of one node and step are in the order
    of its log."""
    snapshots: Mapping[str, np.ndarray] = field(default_factory=partial(empty_rows, SNAPSHOTS))
    """The rows of the table `snapshots` for this partition, of every step, as they were written."""
    tiered: bool = False
    """True means that brokers keep the partition's segments in a remote store, too (KIP-405)."""
    remote: Mapping[str, np.ndarray] = field(default_factory=partial(empty_rows, REMOTE_SEGMENTS))
    """The rows of the table `remote_segments` for this partition, of every step, as they were written."""
    remote_read: bool = False
    """True means that the remote store was read to its end after the audit, and what brokers believe of it."""
    segment_bytes: int | None = None
    """segment.bytes of the topic, where its segments are to be copied to the remote store all the time; else None."""
    tier_within_ns: int = 0
    """Within so long brokers copy to the remote store what is full, and delete there what was let go."""
    client_clock: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    """int32[clients]: the clock that each client took its times from. Only times of the same clock can be compared.
    NONE means that the clock is not known, and so does an id beyond the end of the array."""
    metadata: Mapping[str, np.ndarray] = field(default_factory=partial(empty_rows, METADATA))
    """The rows of the table `metadata` for this partition, from every source, as they were written."""
    observations: Mapping[str, np.ndarray] = field(default_factory=partial(empty_rows, OBSERVATIONS))
    """The rows of the table `observations` for this partition, as they were written."""
    min_insync_replicas: int | None = None
    """The topic's min.insync.replicas; None means that it is not known."""
    retention: Retention | None = None
    """What retention may remove. None means that it removes nothing, or that nobody knows what was set all the time."""
    delete_delay_ns: int = 60_000_000_000
    """log.segment.delete.delay.ms of the brokers: how long a directory stays that is to be removed."""
    metadata_error_ns: int = 0
    """How far times in `metadata` that come from the controllers' log may differ from all other times."""


@dataclass(frozen=True, slots=True)
class KernelResult:
    """Describes what one kernel found in one partition."""

    witnesses: np.ndarray
    """The witnesses, dtype prozess.harness.interfaces.witnesses.WITNESS. There are at most WITNESSES_MAX, while `count`
    is exact."""
    count: int
    judged: int
    """How many things the kernel looked at. 0 means that there was nothing to judge."""
    incomplete: str | None = None
    """Why the kernel cannot conclude that the anomaly is absent. What it found stands all the same."""
    windows: np.ndarray = field(default_factory=no_windows)
    """Counts per window of time, dtype prozess.harness.interfaces.witnesses.WINDOW, ascending. Only the kernel of
    `late` fills it."""
    latencies: np.ndarray = field(default_factory=no_latencies)
    """The latencies from which the percentiles of `windows` are computed, dtype
    prozess.harness.interfaces.witnesses.BINNED. They are there so that parts of a finding can be joined. A whole
    finding has none."""


Kernel = Callable[[PartitionHistory], KernelResult]


@dataclass(frozen=True, slots=True, eq=False)
class PartitionPartRows:
    """Says which rows of a partition are in a part of it (`prozess.harness.checking.checker.PartitionPart`)."""

    number: int
    sends: np.ndarray
    """int64: the numbers of the rows of `sends` that are here, ascending."""
    reads: np.ndarray
    breaks: np.ndarray
    """int64: offsets of records of the last part, ascending: in the log they stand between the records that are here, or
    are these."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class CellHistory:
    """Everything that a kernel over a whole cell may look at: its partitions, and its rows of the tables that are not
    clustered by partition. A cell is one combination of configurations.

    Each table is column name → array of equal length, in the Parquet form, as it was written.
    """

    cell: Cell
    partitions: Mapping[int, PartitionHistory]
    """Dense id → history, for every partition of the cell."""
    tables: Mapping[str, Mapping[str, np.ndarray]]
    """Table name → its rows that concern this cell.

    `transactions`, `commits`, `assignments`, `positions`, `clients` and `heartbeats` hold rows of the cell's own clients.
    `observations`, `processed` and `deliveries` hold rows of its partitions. `metadata` holds the rows of brokers and
    controllers, which name no partition. `metrics` holds those of the metadata quorum, `quorum_leader` and `quorum_epoch`.
    `asked` holds rows of `observations` of the kinds ASKED and CALLED. `calls` holds those of the kinds ADMIN_ANSWERED and
    ADMIN_WAITED, and `own_heartbeats` the heartbeats of the process that made these calls. `leader_offsets` holds rows of
    `metrics` of its partitions, `high_watermark` and `last_stable_offset`. `admin_operations`, `cluster_states`,
    `transaction_states`, `group_states` and `share_states` are whole.
    """
    clients: Sequence[PlannedClient]
    """The planned clients that serve this cell. The audit is one of them."""
    known: Mapping[str, Any] = field(default_factory=dict)
    """Facts about all partitions of the cell together, for when `partitions` holds only some of them. Each has its name
    in `prozess.harness.checking.checker.CellFacts`. It is empty if all partitions are here."""
    part: PartitionPartRows | None = None
    """Which rows of the one partition these are. None: all of them."""
    bounds: Bounds = Bounds()  # noqa: RUF009 - it is frozen
    """How long what its clients wait for may take."""
    out: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Node id → when it was certainly out of reach, in ns (`prozess.harness.history.nodes_out`)."""


CellKernel = Callable[[CellHistory], KernelResult]


@dataclass(frozen=True, slots=True)
class Finding:
    """Describes what one kernel found in one partition or cell, with the name of the anomaly. Engines return findings,
    and guarantees judge them."""

    anomaly: str
    partition: int
    """The dense id of the partition. For a kernel over a whole cell it is the cell's first partition, and each witness
    names its own."""
    result: KernelResult
