"""The interfaces, all to be imported from here. Middle packages implement them; the stages of `harness` use nothing else.

Those of clusters and faults are written in `harness.cluster_protocols`, those of workloads and checkers below.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from pydantic import Field

from harness.cluster_protocols import (
    AdminProtocol,
    BrokerView,
    Capability,
    Cluster,
    Effect,
    Fault,
    Node,
    NodeState,
    PartitionView,
    Scene,
    TopicSpec,
    Undo,
    UndoAction,
)
from harness.configuration import Frozen
from harness.plan import Cell, PlannedClient
from harness.schema import METADATA, OBSERVATIONS, SNAPSHOTS
from harness.windows import no_latencies, no_windows

__all__ = [
    "ALL_CLIENTS_NODE",
    "CLIENT_NODE",
    "AdminProtocol",
    "AuditResult",
    "BrokerView",
    "Capability",
    "CellHistory",
    "CellKernel",
    "ClientNode",
    "ClientSpec",
    "Cluster",
    "CopyFacts",
    "Effect",
    "Fault",
    "Finding",
    "Kernel",
    "KernelResult",
    "Node",
    "NodeState",
    "PartitionHistory",
    "PartitionView",
    "Progress",
    "Scene",
    "TopicSpec",
    "Undo",
    "UndoAction",
    "Workload",
]

# --- workloads ------------------------------------------------------------------------------------------------------


class ClientSpec(Frozen):
    """One client to start: plain data, passed to its process."""

    client: int
    role: str
    """producer, reader, audit, sentinel."""
    name: str
    bootstrap_servers: str
    properties: dict[str, str | int | float | bool] = Field(default_factory=dict)
    partitions: tuple[tuple[int, str, int], ...]
    """(dense id, topic, number)"""
    rate_hz: float = 0
    """Records per second and partition (producers)."""
    value_bytes: int = 100
    unacknowledged_max: int = 1000
    """Per partition; what exceeds it is withheld."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What only this role needs, as JSON values; the role says what."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of one partition so far, over all clients."""

    issued: int
    ok: int
    failed: int
    info: int
    """Completed as info. issued - ok - failed - info = in flight."""


@dataclass(frozen=True, slots=True)
class AuditResult:
    """How far the audit got: dense partition id → offset of the sentinel, for each isolation; what is missing and why."""

    complete: Mapping[tuple[int, int], int]
    """(partition, Isolation) → sentinel offset."""
    incomplete: Mapping[tuple[int, int], str]


class ClientNode(Node, Protocol):
    """The process of a planned client as a target of faults: `kill`, `pause`, and `start`, which is a new client in its
    place. Its id is `CLIENT_NODE` + the planned client's; it has no role of a server, and nothing can be cut off from it."""

    @property
    def client_role(self) -> str:
        """Of the plan."""
        ...

    @property
    def cell(self) -> int | None:
        """The only cell it serves, where it serves one."""
        ...

    @property
    def instance(self) -> int: ...

    @property
    def client(self) -> int | None:
        """Id of who has the place now, alive or dead; None = nobody had it yet (a late starter)."""
        ...

    @property
    def clients_alive(self) -> Sequence[int]:
        """Ids of everybody in this place who lives: two after `duplicate`, until Kafka has ended one."""
        ...

    def at_work(self) -> bool:
        """Has who has the place now been seen at its work, by its own rows? A member: was assigned partitions (or told that
        there are none for it); who sends: had an acknowledgement; others: is ready."""
        ...

    def duplicate(self) -> None:
        """Another client with the same configuration (its group.instance.id too) beside who has the place. Kafka may end
        either of them: that is no death unasked."""
        ...


ALL_CLIENTS_NODE = 1_999_999
"""Node id of `harness.impairments.CLIENTS`: all the trial's clients, as the other end of a link."""
CLIENT_NODE = 2_000_000
"""Node ids from here up are places of clients: they never collide with Kafka's."""


class Workload(Protocol):
    """What clients do. Built from (plan, run directory, cluster, clock)."""

    def nodes(self) -> Sequence[ClientNode]:
        """The processes that faults can hit: of every planned client that runs while the schedule does."""
        ...

    def start(self) -> None:
        """Start every client process. Producers wait for `resume_sends`."""
        ...

    def command(self, name: str, **arguments: Any) -> None:  # noqa: ANN401 - checked by the schedule's models
        """Carry out a command of the schedule: pause_sends(), resume_sends(), send(cells, count), stop_client(client),
        start_client(client), stall_client(client, seconds), begin(partitions): producers write to late partitions now."""
        ...

    def progress(self) -> Mapping[int, Progress]:
        """Per dense partition id, from the recorded rows themselves."""
        ...

    def dead_clients(self) -> Mapping[str, str]:
        """Clients that ended although nobody asked them to: name → exit and last words."""
        ...

    def finish_sends(self, *, timeout_s: float) -> None:
        """No new sends; wait for outstanding ones to be completed, or for the limit. Then end the producers."""
        ...

    def drain(self, *, timeout_s: float) -> None:
        """After healing and `finish_sends`: members of groups go on until they have processed all there is, or nothing
        moves any more; then they end in order, and the committed offsets are looked up. Nothing to do without groups."""
        ...

    def fence(self, *, timeout_s: float) -> Mapping[str, str]:
        """Initialise every transactional.id once more, so that no transaction is open: id → why it could not be."""
        ...

    def audit(self, *, timeout_s: float) -> AuditResult:
        """Write a sentinel to each partition with acks=all, then read each from its start through its sentinel at both
        isolation levels. The cluster is healed and whole when this is called."""
        ...

    def close(self) -> None:
        """End every client. Safe to call twice."""
        ...


# --- checkers -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """One replica of a partition as its own files said at the end, after the audit."""

    log_start: int
    log_end: int
    """Behind its last whole batch."""
    high_watermark: int | None = None
    """As it last wrote it down (at most 5 s before); None = never."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class PartitionHistory:
    """Everything a kernel may look at: the arrays of one Kafka partition, and small facts.

    `sends` and `reads` hold the Parquet form of `harness.schema` (column name → array of equal length), in the order
    (client, sequence) and (client, order of reading). `client_*` arrays are indexed by client id.
    """

    partition: int
    sends: Mapping[str, np.ndarray]
    reads: Mapping[str, np.ndarray]
    client_role: np.ndarray
    """int32[clients], Role; 0 = no such client."""
    client_isolation: np.ndarray
    """int32[clients], Isolation."""
    client_issued: np.ndarray
    """int64[clients]: sequences below it were issued; NONE = not told (a crashed client: past its rows is unrecorded)."""
    client_acks: np.ndarray
    """int32[clients]: 0, 1, -1 (all); for other roles 0."""
    audit_end: Mapping[int, int]
    """Isolation → offset of the sentinel through which the audit is complete; absent = audit incomplete."""
    audited: bool = True
    """False: nobody audited (an imported history). Reads of the role AUDIT are then what acknowledgements and consumers'
    reads reveal of the log (`harness.revealed`), and `audit_end` is empty."""
    client_told_ns: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """int64[clients]: of what it sent before this moment a client must have been told; MISSING = it did not live to be, or
    records only what it was told."""
    compacted: bool = False
    log_start: int = 0
    """Greatest log start seen: below it retention may have removed records."""
    assignment: tuple[int, ...] = ()
    """Brokers that are to have a copy."""
    copies: Mapping[int, CopyFacts] = field(default_factory=dict)
    """Broker → its copy, of those that were read at the end."""
    replicas: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Rows of `replicas`, of every step, in the Parquet form; of one node and step in the order of its log."""
    snapshots: Mapping[str, np.ndarray] = field(default_factory=SNAPSHOTS.empty)
    """Rows of `snapshots` of this partition, of every step, as they were written."""
    client_clock: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    """int32[clients]: only those on the same clock may be ordered; NONE (and beyond the end): not known."""
    metadata: Mapping[str, np.ndarray] = field(default_factory=METADATA.empty)
    """Rows of `metadata` of this partition, from every source, as they were written."""
    observations: Mapping[str, np.ndarray] = field(default_factory=OBSERVATIONS.empty)
    """Rows of `observations` of this partition, as they were written."""
    min_insync_replicas: int | None = None
    """Of the topic; None = not known."""
    metadata_error_ns: int = 0
    """How far times of `metadata` from the controllers' log may be off from all others."""


@dataclass(frozen=True, slots=True)
class KernelResult:
    """What one kernel found in one partition."""

    witnesses: np.ndarray
    """dtype harness.witnesses.WITNESS, at most WITNESSES_MAX; `count` is exact."""
    count: int
    judged: int
    """How many things were looked at: 0 = nothing there to judge."""
    incomplete: str | None = None
    """Why absence cannot be concluded; presence found all the same stands."""
    windows: np.ndarray = field(default_factory=no_windows)
    """dtype harness.windows.WINDOW, ascending: of `late` alone, what it counted over time."""
    latencies: np.ndarray = field(default_factory=no_latencies)
    """dtype harness.windows.BINNED: what the percentiles of `windows` come from, to put parts together. Whole findings have
    none."""


Kernel = Callable[[PartitionHistory], KernelResult]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class CellHistory:
    """Everything a kernel over a whole cell may look at: its partitions, and its rows of the tables that have no partition
    clustering. Column name → array of equal length, in the Parquet form, as they were written."""

    cell: Cell
    partitions: Mapping[int, PartitionHistory]
    """Dense id → history, of every partition of the cell."""
    tables: Mapping[str, Mapping[str, np.ndarray]]
    """`transactions`, `commits`, `assignments`, `positions`, `clients`, `heartbeats`: rows of the cell's own clients.
    `observations`: rows of its partitions. `processed`: rows of its partitions. `metadata`: rows without a partition, of
    brokers and controllers. `metrics`: those of the metadata quorum, `quorum_leader` and `quorum_epoch`.
    `leader_offsets`: rows of `metrics` of its partitions, `high_watermark` and `last_stable_offset`."""
    clients: Sequence[PlannedClient]
    """The planned clients that serve this cell, the audit included."""
    known: Mapping[str, Any] = field(default_factory=dict)
    """Where `partitions` are only some: what must be known of all of them together, by its name in
    `harness.catalogue.CELL_FACTS`. Empty: they are all here."""


CellKernel = Callable[[CellHistory], KernelResult]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one kernel found in one partition or cell, by name: what engines return and guarantees judge."""

    anomaly: str
    partition: int
    """Dense id; of a kernel over a whole cell: the cell's first partition (each witness names its own)."""
    result: KernelResult
