"""The interfaces on one page. Middle packages implement them; the stages of `harness` use nothing else.

A capability that only some backends have is a member of `Capability`; a fault names what it needs, and the plan refuses a
trial whose backend lacks it, before anything starts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pydantic import Field

from harness.clock import Clock
from harness.configuration import Frozen
from harness.plan import Cell, PlannedClient
from harness.schema import Tristate


class Capability(StrEnum):
    """What a backend can do to a node."""

    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"
    BLOCK = "block"
    """Drop what one node sends to another, one way."""


class NodeState(StrEnum):
    """As observed, not as remembered."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


# --- clusters -------------------------------------------------------------------------------------------------------


class Node(Protocol):
    """One broker or controller: the seam through which every fault acts. Node ids are Kafka's."""

    @property
    def name(self) -> str: ...
    @property
    def node_id(self) -> int: ...
    @property
    def roles(self) -> frozenset[str]:
        """Of "broker", "controller"."""
        ...

    @property
    def address(self) -> str:
        """On the network that faults touch."""
        ...

    @property
    def data_directory(self) -> Path: ...

    @property
    def os_pid(self) -> int | None:
        """Of the server process in the run stage's pid namespace; None when stopped."""
        ...

    def state(self) -> NodeState:
        """Observed now."""
        ...

    def kill(self) -> None:
        """SIGKILL. Returns once the process is gone; safe on a stopped or paused node."""
        ...

    def stop(self, *, timeout_s: float) -> None:
        """SIGTERM, a controlled shutdown. Returns once the process is gone; NotReady if it stays."""
        ...

    def start(self) -> None:
        """Start the server process; returns once it is forked. Safe on a running node. Re-applies blocks if a restart
        would have undone them."""
        ...

    def pause(self) -> None:
        """SIGSTOP. Returns once the process is observed stopped."""
        ...

    def resume(self) -> None:
        """SIGCONT. Safe on a node that is not paused."""
        ...

    def block(self, source: "Node") -> None:
        """From now on nothing that `source` sends reaches this node (one way). The observer's link is untouched."""
        ...

    def unblock(self, source: "Node") -> None:
        """Undo `block`; safe when nothing is blocked."""
        ...

    def receives_from(self, source: "Node") -> Tristate:
        """Does a datagram that `source` sends on the trial's network arrive here now? Observed."""
        ...


class Cluster(Protocol):
    """A cluster of one backend. Built from (plan's variant, run directory, options); nothing runs before `setup`."""

    @property
    def nodes(self) -> Sequence[Node]: ...
    @property
    def capabilities(self) -> Mapping[Capability, str]:
        """What this backend can do here, each with how it does it."""
        ...

    @property
    def lacks(self) -> Mapping[Capability, str]:
        """What it cannot, each with the reason."""
        ...

    @property
    def bootstrap_servers(self) -> str:
        """For workload clients, on the network that faults touch."""
        ...

    @property
    def observer_servers(self) -> Mapping[int, tuple[str, int]]:
        """Per broker id: (host, port) of its observer listener, which no fault touches."""
        ...

    @property
    def controller_servers(self) -> Mapping[int, tuple[str, int]]:
        """Per controller id: (host, port) of its controller listener as the observer reaches it."""
        ...

    def setup(self) -> None:
        """Start a fresh cluster. No data survives from an earlier run. ClusterFailed if a node dies at once."""
        ...

    def wait_ready(self, *, timeout_s: float) -> None:
        """Return once every broker is registered and unfenced on every broker's own view, and a topic can be created
        and written; else NotReady. Asserts the feature levels the format promised."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Facts for the report: versions, feature levels, settings that shape a trial, pids, memory. JSON values."""
        ...

    def collect_logs(self, into: Path) -> None:
        """Copy every node's server log to `into/<node>.log`. Works on stopped nodes."""
        ...

    def teardown(self) -> None:
        """Remove everything. Safe to call twice, and after a failed setup. Logs and data stay readable on disk."""
        ...


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One broker's own view of one partition."""

    leader: int
    """Node id; -1 = none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: int = 0


BrokerView = Mapping[tuple[str, int], PartitionView]
"""(topic, partition number) → view."""


class AdminProtocol(Protocol):
    """Kafka administration over the observer's link. Every call has a limit."""

    def create_topics(self, topics: Sequence["TopicSpec"], *, timeout_s: float) -> None:
        """Create them and return once every living broker's own view has each of their partitions with whole ISR."""
        ...

    def view(self, node_id: int, topics: Sequence[str], *, timeout_s: float = 2.0) -> BrokerView | None:
        """What exactly this broker says (a raw Metadata request to it alone); None if it does not answer."""
        ...

    def views(self, topics: Sequence[str], *, timeout_s: float = 2.0) -> Mapping[int, BrokerView | None]:
        """`view` of every broker, in parallel."""
        ...

    def active_controller(self, *, timeout_s: float = 2.0) -> int | None:
        """By DescribeQuorum of the controllers themselves (Metadata's controller id is a random broker in KRaft):
        the leader with the highest epoch that answers as leader; None if no one claims to be."""
        ...

    def features(self, *, timeout_s: float = 5.0) -> Mapping[str, int]:
        """Finalized feature levels."""
        ...


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create; `assignment[i]` = broker ids of partition i, preferred leader first."""

    name: str
    assignment: tuple[tuple[int, ...], ...]
    properties: Mapping[str, str] = field(default_factory=dict)


# --- nemesis --------------------------------------------------------------------------------------------------------


class Undo(Frozen):
    """How to undo one fault on one node, as data: what the journal holds and `heal` replays, in any process.

    `action` is a method of Node (`resume`, `start`, `unblock`); `peer` its other node, if any.
    """

    action: str
    node: str
    peer: str | None = None


class Effect(Frozen):
    """What was observed of one fault on one node."""

    node: str
    peer: str | None = None
    effect: Tristate
    detail: str = ""


class Fault(Protocol):
    """One kind of fault. Stateless: everything it needs to undo is in its `Undo` values."""

    name: str
    needs: frozenset[Capability]

    def undos(self, targets: Sequence[Node], parameters: Mapping[str, Any], cluster: Cluster) -> Sequence[Undo]:
        """What will undo it: journaled before `apply`."""
        ...

    def apply(self, targets: Sequence[Node], parameters: Mapping[str, Any], cluster: Cluster) -> None:
        """Break it."""
        ...

    def verify(
        self, targets: Sequence[Node], parameters: Mapping[str, Any], cluster: Cluster, clock: Clock
    ) -> Sequence[Effect]:
        """Observe whether it took effect, within a stated limit."""
        ...


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
        start_client(client)."""
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
    compacted: bool = False
    log_start: int = 0
    """Greatest log start seen: below it retention may have removed records."""
    assignment: tuple[int, ...] = ()
    """Brokers that are to have a copy."""
    copies: Mapping[int, CopyFacts] = field(default_factory=dict)
    """Broker → its copy, of those that were read at the end."""
    replicas: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Rows of `replicas`, of every step, in the Parquet form; of one node and step in the order of its log."""


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
    `observations`: rows of its partitions. `processed`: rows of its partitions."""
    clients: Sequence[PlannedClient]
    """The planned clients that serve this cell, the audit included."""


CellKernel = Callable[[CellHistory], KernelResult]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one kernel found in one partition or cell, by name: what engines return and guarantees judge."""

    anomaly: str
    partition: int
    """Dense id; of a kernel over a whole cell: the cell's first partition (each witness names its own)."""
    result: KernelResult
