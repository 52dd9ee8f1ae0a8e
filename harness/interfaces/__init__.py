"""These are the interfaces of prozess: what a cluster, a fault, a workload and a checker must offer, and what they are
given.

The stages of `harness` know only these interfaces, and the packages `clusters`, `nemesis`, `workloads` and `checkers`
implement them. Import all of them from here. Those of clusters and faults are written in
`prozess.harness.interfaces.cluster`, those of workloads and checkers below.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from pydantic import Field

from prozess.harness.interfaces.backend import Backend
from prozess.harness.interfaces.cluster import (
    NOT_IN_ORDER,
    AdminProtocol,
    AnyFault,
    BrokerView,
    Capability,
    Cluster,
    Effect,
    Fault,
    FaultContext,
    MessageWatch,
    Node,
    NodeState,
    PartitionView,
    Targets,
    TopicSpec,
    Undo,
    UndoAction,
    await_end,
    end_in_order,
)
from prozess.harness.interfaces.witnesses import no_latencies, no_windows
from prozess.harness.plan.bounds import Bounds
from prozess.harness.plan.plan import Cell, PlannedClient, ReadersBegin
from prozess.harness.plan.schedule import ClientCommand
from prozess.harness.schema import METADATA, OBSERVATIONS, SNAPSHOTS
from prozess.harness.values import Frozen

__all__ = [
    "ALL_CLIENTS_NODE",
    "CLIENT_NODE",
    "NOT_IN_ORDER",
    "AdminProtocol",
    "AnyFault",
    "AuditResult",
    "Backend",
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
    "FaultContext",
    "Finding",
    "Kernel",
    "KernelResult",
    "MessageWatch",
    "Node",
    "NodeState",
    "PartRows",
    "PartitionHistory",
    "PartitionView",
    "Progress",
    "Targets",
    "TopicSpec",
    "Undo",
    "UndoAction",
    "Workload",
    "await_end",
    "end_in_order",
]

# Workloads: the clients of a trial, and what is asked of them.


class ClientSpec(Frozen):
    """Describes one client that is to be started. It is plain data, which its process is given."""

    client: int
    role: str
    """What the client does: "producer", "reader", "audit", "sentinel" and so on (`prozess.workloads.roles.ROLES`)."""
    name: str
    bootstrap_servers: str
    properties: dict[str, str | int | float | bool] = Field(default_factory=dict)
    partitions: tuple[tuple[int, str, int], ...]
    """The partitions that it serves, each as (dense id, topic, Kafka's partition number). The dense id numbers all
    partitions of a plan: 0, 1, 2, …"""
    rate_hz: float = 0
    """How many records per second a producer sends to each of its partitions."""
    value_bytes: int = 100
    unacknowledged_max: int = 1000
    """How many records of one partition may wait for their acknowledgement. The client withholds what exceeds this."""
    late: tuple[int, ...] = ()
    """The partitions (dense ids) that do not exist yet. A producer writes to them once it is told that they do."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The options that only clients of this role have, as JSON values. The role has a model of them."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts the records that all clients together have sent to one partition so far."""

    issued: int
    ok: int
    failed: int
    info: int
    """The sends whose outcome nobody can know. issued - ok - failed - info is what is still in flight."""


@dataclass(frozen=True, slots=True)
class AuditResult:
    """Says how far the audit has read each partition, and why it could not read the rest. The audit is the last reading
    of all partitions, from the first record to a sentinel that was written to the end."""

    complete: Mapping[tuple[int, int], int]
    """(dense partition id, Isolation) → the offset of the sentinel, for each reading that came to its end."""
    incomplete: Mapping[tuple[int, int], str]


class ClientNode(Node, Protocol):
    """The process of one planned client, as a target of faults: `kill` and `pause` hit it, and `start` puts a new
    client in its place.

    Its node id is `CLIENT_NODE` plus the id of the planned client. It has no role of a server, and nothing can be cut
    off from it.
    """

    @property
    def client_role(self) -> str:
        """Returns the role of the client in the plan, such as "producer"."""
        ...

    @property
    def cell(self) -> int | None:
        """Returns the only cell that this client serves; None if it serves several. A cell is one combination of
        configurations, with a topic of its own."""
        ...

    @property
    def instance(self) -> int: ...

    @property
    def client(self) -> int | None:
        """The id of the client that has this place now, alive or dead. None means that no client has had it yet: it
        starts late."""
        ...

    @property
    def clients_alive(self) -> Sequence[int]:
        """Returns the ids of all living clients in this place. There are two after `duplicate`, until Kafka has ended
        one of them."""
        ...

    def at_work(self) -> bool:
        """Tells whether the client that has this place now was seen to work, by the rows that it recorded.

        A member of a group works once it was assigned partitions, or told that there are none for it. A client that
        sends works once it had an acknowledgement. Any other works once it is ready.
        """
        ...

    def duplicate(self) -> None:
        """Starts another client with the same configuration, group.instance.id included, beside the one that has this
        place. Kafka may end either of them, and neither end counts as an unexpected death."""
        ...


ALL_CLIENTS_NODE = 1_999_999
"""The node id that stands for all clients of the trial together, as the other end of a link
(`prozess.harness.config.impairments.CLIENTS`)."""
CLIENT_NODE = 2_000_000
"""Node ids from here up are places of clients, so that they never collide with the ids of Kafka's servers."""


class Workload(Protocol):
    """The clients of a trial, and everything that a run asks of them. It is built from the plan, the run directory, the
    cluster and the clock."""

    def nodes(self) -> Sequence[ClientNode]:
        """Returns the client processes that faults can hit: one for each planned client that runs during the
        schedule."""
        ...

    def start(self) -> None:
        """Starts every client process. Producers send nothing until the command `resume_sends`."""
        ...

    def command(self, action: ClientCommand) -> None:
        """Carries out an action of the schedule. Returns once every living client that it concerns has done so; NotReady,
        naming those that have not, after a limit."""
        ...

    def begin(self, partitions: Collection[int]) -> None:
        """Tells producers that these late partitions (dense ids) exist: they write to them from now on."""
        ...

    def progress(self) -> Mapping[int, Progress]:
        """Returns the counts of sends by dense partition id. They are taken from the recorded rows."""
        ...

    def dead_clients(self) -> Mapping[str, str]:
        """Returns the clients that ended although nobody asked them to: name → exit code and last output."""
        ...

    def finish_sends(self, *, timeout_s: float) -> Sequence[str]:
        """Ends sending: clients send no new records, wait for outstanding acknowledgements until the limit, and then
        the producers end. Returns the names of those that had to be ended."""
        ...

    def drain(self, *, timeout_s: float) -> Sequence[str]:
        """Lets consumer groups finish their work. It is called after the faults are healed and after `finish_sends`.

        Members go on until they have processed all records, or until nothing moves any more. Then they end in order,
        and the committed offsets are looked up. Without groups there is nothing to do. Returns what was awaited in vain.
        """
        ...

    def fence(self, *, timeout_s: float) -> Mapping[str, str]:
        """Initialises every transactional.id once more, so that no transaction stays open. Returns those that could not
        be initialised: id → why."""
        ...

    def audit(self, *, timeout_s: float) -> AuditResult:
        """Reads all partitions to the end: writes a sentinel to each with acks=all, then reads each from its start
        through its sentinel, at both isolation levels. The cluster is healed and all replicas are in sync when this is
        called."""
        ...

    def close(self) -> Sequence[str]:
        """Ends every client. It is safe to call this twice. Returns the names of those that had to be killed."""
        ...


# Checkers: what a kernel is given, and what it returns.


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """Describes one replica of a partition as its own files had it at the end, after the audit."""

    log_start: int
    log_end: int
    """The offset behind the last whole batch."""
    high_watermark: int | None = None
    """The high watermark that the broker last wrote to its checkpoint, which is at most 5 s old. None means that it
    wrote none."""


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
    """int64[clients]: each client issued the sequences below this number. NONE means that it did not tell. A client
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
    """Of a partition that nobody audited: where consumers began to read."""
    client_reported_until_ns: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """int64[clients]: the client must have been told the outcome of every record that it sent before this moment.
    MISSING means that it did not live so long, or records only what it was told."""
    compacted: bool = False
    log_start: int = 0
    """The greatest log start offset that anybody saw. Retention may have removed records below it."""
    left_out: int = 0
    """How many records of L(p) are not here: of a large partition that is checked in pieces, those that agree with
    everything are counted, and left out."""
    assignment: tuple[int, ...] = ()
    """The ids of the brokers that are to have a replica."""
    copies: Mapping[int, CopyFacts] = field(default_factory=dict)
    """Broker id → its replica, for each replica that was read at the end."""
    replicas: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The rows of the table `replicas`, of every step, in the Parquet form. Those of one node and step are in the order
    of its log."""
    snapshots: Mapping[str, np.ndarray] = field(default_factory=SNAPSHOTS.empty)
    """The rows of the table `snapshots` for this partition, of every step, as they were written."""
    client_clock: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    """int32[clients]: the clock that each client took its times from. Only times of the same clock can be compared.
    NONE means that the clock is not known, and so does an id beyond the end of the array."""
    metadata: Mapping[str, np.ndarray] = field(default_factory=METADATA.empty)
    """The rows of the table `metadata` for this partition, from every source, as they were written."""
    observations: Mapping[str, np.ndarray] = field(default_factory=OBSERVATIONS.empty)
    """The rows of the table `observations` for this partition, as they were written."""
    min_insync_replicas: int | None = None
    """The topic's min.insync.replicas; None means that it is not known."""
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
class PartRows:
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
    `observations` and `processed` hold rows of its partitions. `metadata` holds the rows of brokers and controllers, which
    name no partition. `metrics` holds those of the metadata quorum, `quorum_leader` and `quorum_epoch`. `asked` holds rows
    of `observations` of the kinds ASKED and CALLED. `calls` holds those of the kinds ADMIN_ANSWERED
    and ADMIN_WAITED, and `own_heartbeats` the heartbeats of the process that made these calls. `leader_offsets` holds rows
    of `metrics` of its partitions, `high_watermark` and `last_stable_offset`.
    """
    clients: Sequence[PlannedClient]
    """The planned clients that serve this cell. The audit is one of them."""
    known: Mapping[str, Any] = field(default_factory=dict)
    """Facts about all partitions of the cell together, for when `partitions` holds only some of them. Each has its name
    in `prozess.harness.checking.checker.CellFacts`. It is empty if all partitions are here."""
    part: PartRows | None = None
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
