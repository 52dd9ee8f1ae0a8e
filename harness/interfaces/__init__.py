"""These are the interfaces of prozess: what a cluster, a fault, a workload and a checker must offer, and what they are
given.

The stages of `harness` know only these interfaces, and the packages `clusters`, `nemesis`, `workloads` and `checkers`
implement them. Import all of them from here. Those of clusters and faults are written in
`prozess.harness.interfaces.cluster`, those of workloads below. Those of checkers are in
`prozess.harness.interfaces.checking`, which needs numpy: what plans a trial or validates a configuration does not.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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
from prozess.harness.plan.schedule import ClientCommand
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
    "ClientNode",
    "ClientSpec",
    "Cluster",
    "Effect",
    "Fault",
    "FaultContext",
    "MessageWatch",
    "Node",
    "NodeState",
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
    """The partitions (dense ids) that do not exist yet. A producer writes to them once it learns that they do."""
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
        """The id of the client that has this slot now, alive or dead. None means that no client has had it yet: it
        starts late."""
        ...

    @property
    def clients_alive(self) -> Sequence[int]:
        """Returns the ids of all living clients in this slot. There are two after `duplicate`, until Kafka has ended
        one of them."""
        ...

    def at_work(self) -> bool:
        """Says whether the client that has this slot now was seen to work, by the rows that it recorded.

        A member of a group works once it was assigned partitions, or informed that there are none for it. A client that
        sends works once it had an acknowledgement. Any other works once it is ready.
        """
        ...

    def duplicate(self) -> None:
        """Starts another client with the same configuration, group.instance.id included, beside the one that has this
        slot. Kafka may end either of them, and neither end counts as an unexpected death."""
        ...


ALL_CLIENTS_NODE = 1_999_999
"""The node id that stands for all clients of the trial together, as the other end of a link
(`prozess.harness.config.impairments.CLIENTS`)."""
CLIENT_NODE = 2_000_000
"""Node ids from here up are slots of clients, so that they never collide with the ids of Kafka's servers."""


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
        """Reports producers that these late partitions (dense ids) exist: they write to them from now on."""
        ...

    def appeared(self, partitions: Collection[int], *, there: bool) -> None:
        """Notes that partitions (recorded ids) are there, or are there no more. Clients are not informed."""
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
