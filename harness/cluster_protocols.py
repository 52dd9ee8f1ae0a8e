"""The interfaces of what a trial runs on and breaks: nodes, clusters, their administration, faults. Imported from
`harness.protocols`, which has all interfaces.

A capability that only some backends have is a member of `Capability`; a fault names what it needs, and the plan refuses a
trial whose backend lacks it, before anything starts.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from harness.capabilities import Capability as Capability
from harness.clock import Clock
from harness.configuration import Frozen
from harness.errors import ClusterFailed
from harness.impairments import Harm, Impairment
from harness.open_transactions import CoordinatedTransaction, OpenTransaction
from harness.schema import Tristate


class NodeState(StrEnum):
    """As observed, not as remembered."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


class Node(Protocol):
    """One broker, controller or ZooKeeper server: the seam through which every fault acts. Node ids are Kafka's."""

    @property
    def name(self) -> str: ...
    @property
    def node_id(self) -> int: ...
    @property
    def roles(self) -> frozenset[str]:
        """Of "broker", "controller", "zookeeper"."""
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

    def impair(self, impairment: Impairment) -> None:
        """From now on the node is impaired so, until `repair`; a restart does not change that: what dies with the process
        (rules, throttles) `start` puts back. Safe to repeat. HarnessFailed if it cannot be done."""
        ...

    def repair(self, impairment: Impairment) -> None:
        """Undo exactly that; safe when nothing is impaired, and when another process impaired it."""
        ...

    def impaired(self, impairment: Impairment) -> tuple[Tristate, str]:
        """Is the node impaired so now? Observed by its effect (a write that gets ENOSPC, packets that do not come), not by
        what was asked for; and what exactly was seen."""
        ...

    def harm(self, harm: Harm) -> str:
        """Do it, once. Returns what was done, seen to be done. HarnessFailed if it cannot be done now."""
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

    def await_coordinators(self, group_ids: Collection[str], *, timeout_s: float) -> None:
        """Return once every living broker names a coordinator of each group that is at work."""
        ...

    def add_partitions(self, grown: Mapping[str, tuple[int, tuple[tuple[int, ...], ...]]], *, timeout_s: float) -> None:
        """Topic → (how many partitions it has, brokers of each new one). Returns as `create_topics` does."""
        ...

    def delete_records(
        self, partitions: Sequence[tuple[str, int]], *, keep: int, timeout_s: float
    ) -> Mapping[tuple[str, int], int]:
        """All but the last `keep` records of each (topic, number), by its high watermark now → where its log begins now."""
        ...

    def elect_leaders(
        self, partitions: Sequence[tuple[str, int]], *, unclean: bool, timeout_s: float
    ) -> Mapping[tuple[str, int], str]:
        """Ask for an election of each (KIP-460), of the preferred replica or, with `unclean`, of anybody → those that Kafka
        did not elect, with why."""
        ...

    def reassign(self, assignments: Mapping[tuple[str, int], tuple[int, ...] | None], *, timeout_s: float) -> None:
        """Begin to move copies of (topic, number) to these brokers, preferred leader first (KIP-455); None gives up what is
        under way. Returns once it is accepted; ClusterFailed with the reason if not."""
        ...

    def reassignments(self, *, timeout_s: float = 5.0) -> Mapping[tuple[str, int], object]:
        """Every reassignment that is under way."""
        ...

    def own_configs(self, resource: str, *, timeout_s: float = 10.0) -> Mapping[str, str]:
        """What is set for exactly "topic:NAME" or "broker:ID"; not what it gets from elsewhere."""
        ...

    def alter_configs(self, resource: str, properties: Mapping[str, str | None], *, timeout_s: float = 10.0) -> None:
        """Set these for this resource, and nothing else (KIP-339); None: as if it was never set."""
        ...

    def describe_configs(
        self, *, brokers: Sequence[int] = (), topics: Sequence[str] = (), timeout_s: float = 10.0
    ) -> Mapping[str, Mapping[str, str | None]]:
        """Effective properties by "broker:1", "topic:NAME"; a sensitive value is None."""
        ...

    def view(self, node_id: int, topics: Sequence[str], *, timeout_s: float = 2.0) -> BrokerView | None:
        """What exactly this broker says (a raw Metadata request to it alone); None if it does not answer."""
        ...

    def views(self, topics: Sequence[str], *, timeout_s: float = 2.0) -> Mapping[int, BrokerView | None]:
        """`view` of every broker, in parallel."""
        ...

    def active_controller(self, *, timeout_s: float = 2.0) -> int | None:
        """By DescribeQuorum of the controllers themselves (Metadata's controller id is a random broker in KRaft):
        the leader with the highest epoch that answers as leader; with ZooKeeper, the broker that `/controller` names.
        None if there is none."""
        ...

    def zookeeper_serving(self, *, timeout_s: float = 2.0) -> frozenset[int]:
        """Node ids of the ZooKeeper servers that say they lead or follow."""
        ...

    def zookeeper_leader(self, *, timeout_s: float = 2.0) -> int | None:
        """Node id of the ZooKeeper server that leads the ensemble; None if no one says it does, or there is none."""
        ...

    def living_brokers(self, node_id: int, *, timeout_s: float = 2.0) -> frozenset[int] | None:
        """Ids of the brokers that this broker names as alive (unfenced); None if it does not answer."""
        ...

    def quorum_ends(self, *, timeout_s: float = 2.0) -> Mapping[int, int] | None:
        """Controller → where its copy of the metadata log ends, as the active one knows (one that is away keeps its last
        value); None if nobody claims to be active."""
        ...

    def features(self, *, timeout_s: float = 5.0) -> Mapping[str, int]:
        """Finalized feature levels."""
        ...

    def supported_features(self, *, timeout_s: float = 5.0) -> Mapping[str, int]:
        """The highest level of each feature that every living broker tells; those that may be switched off altogether are
        not told (KAFKA-17011)."""
        ...

    def update_feature(self, feature: str, level: int, *, timeout_s: float) -> None:
        """Raise the finalized level (KIP-584). ClusterFailed with the reason if it is refused."""
        ...

    def open_transactions(
        self, partitions: Collection[tuple[str, int]], *, timeout_s: float = 5.0
    ) -> Mapping[tuple[str, int], Sequence[OpenTransaction]]:
        """Of each (topic, number) what its leader says, the oldest first. One whose leader does not tell is not there."""
        ...

    def coordinated_transactions(self, *, timeout_s: float = 5.0) -> Sequence[CoordinatedTransaction] | None:
        """What all coordinators know, together; None if one does not tell, or is still loading."""
        ...

    def abort_transaction(
        self, partition: tuple[str, int], transaction: OpenTransaction, *, timeout_s: float = 10.0
    ) -> str:
        """Have the leader write the marker that ends it in this partition (KIP-664); "" once it is written, else why not."""
        ...


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create; `assignment[i]` = broker ids of partition i, preferred leader first."""

    name: str
    assignment: tuple[tuple[int, ...], ...]
    properties: Mapping[str, str] = field(default_factory=dict)


class Undo(Frozen):
    """How to undo one fault on one node, as data: what the journal holds and `heal` replays, in any process.

    `action` is a name of `catalogue.UNDO_ACTIONS`; `peer` its other node, if any. Equal undos of several faults are one: it
    is carried out when the last of them is healed.
    """

    action: str
    node: str
    peer: str | None = None
    details: str = ""
    """What else the action needs, as JSON in one form only (`Undo.of`), so that equal is equal."""

    @classmethod
    def of(cls, action: str, node: str, peer: str | None = None, /, **details: object) -> "Undo":
        """With details that are JSON values."""
        return cls(action=action, node=node, peer=peer, details=json.dumps(details, sort_keys=True))

    @property
    def given(self) -> dict[str, Any]:
        """The details."""
        return dict(json.loads(self.details)) if self.details else {}


class Effect(Frozen):
    """What was observed of one fault on one node."""

    node: str
    peer: str | None = None
    effect: Tristate
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a fault acts, or is undone: all that it may use."""

    cluster: Cluster
    admin: AdminProtocol
    clock: Clock
    targets: tuple[Node, ...] = ()
    """What the roles of the step are at this moment; empty when a fault is undone."""
    roles: tuple[str, ...] = ()
    """`targets` of the step, as it says them."""
    partitions: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    """Dense partition id → (topic, number), of the plan."""
    racks: Mapping[str, str] = field(default_factory=dict)
    """Name of a broker → its rack, where brokers have racks."""

    def node(self, name: str) -> Node:
        """The node of that name. ClusterFailed if there is none."""
        for node in self.cluster.nodes:
            if node.name == name:
                return node
        known = ", ".join(node.name for node in self.cluster.nodes)
        raise ClusterFailed(f"There is no node {name!r}. Nodes: {known}.")


class Fault(Protocol):
    """One kind of fault. Stateless: everything it needs to undo is in its `Undo` values. One that is over when `apply`
    returns says `ends_itself = True`: it is healed at once, and holds nothing that another step has broken."""

    name: str
    needs: frozenset[Capability]

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        """What will undo it: journaled before `apply`. Touches nothing."""
        ...

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        """Break it. A fault that takes its time (a storm) waits by the scene's clock."""
        ...

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        """Observe whether it took effect, within a stated limit."""
        ...


class UndoAction(Protocol):
    """One way to undo: what `catalogue.UNDO_ACTIONS` names. Stateless; works in any process. One that asks Kafka to undo it
    says `of_kafka = True`: it is carried out after those of nodes, and has a minute to be seen."""

    def carry_out(self, undo: Undo, scene: Scene) -> None:
        """Undo, as far as the present state still needs it; safe to repeat, and where nothing was broken."""
        ...

    def undone(self, undo: Undo, scene: Scene) -> tuple[Tristate, str]:
        """Has it worked? Observed, once; and what was seen."""
        ...

    def holds(self, undo: Undo, scene: Scene) -> bool:
        """Is the node still broken in this way? Seen where it costs nothing; else True until it is undone."""
        ...
