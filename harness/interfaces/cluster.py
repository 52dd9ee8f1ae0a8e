"""These are the interfaces of what a trial runs on and what it breaks: nodes, clusters, their administration, and
faults."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, unique
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import UUID

from prozess.harness.clock import Clock, wait_until
from prozess.harness.config.configuration import Variant
from prozess.harness.config.existing_clusters import Login
from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.config.impairments import Capability as Capability
from prozess.harness.config.impairments import Harm, Impairment
from prozess.harness.config.messages.facts import WantedMessage
from prozess.harness.config.messages.planned_names import PlannedNames
from prozess.harness.errors import ClusterFailed, NotReady
from prozess.harness.schema import Tristate
from prozess.harness.values import Frozen

# Transactions as the leaders of partitions and the coordinators report them (KIP-664).


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in one partition, as the leader of the partition reports it (KIP-664)."""

    start_offset: int
    producer_id: int
    producer_epoch: int
    last_timestamp_ms: int
    """The wall-clock time of the producer's last batch."""
    coordinator_epoch: int
    """The epoch of the coordinator that wrote the producer's last marker; -1 means that there is none yet."""


@dataclass(frozen=True, slots=True)
class CoordinatedTransaction:
    """Describes what a transaction coordinator knows about one transactional.id (KIP-664)."""

    transactional_id: str
    producer_id: int
    state: str
    """The state of the transaction, as Kafka's TransactionState names it: "Empty", "Ongoing", "PrepareAbort", …"""

    @property
    def over(self) -> bool:
        """Says whether the transaction is over in every partition, as far as the coordinator knows: all its markers
        are written."""
        return self.state in ("Empty", "CompleteCommit", "CompleteAbort")


class HangingTransaction(Frozen):
    """A hanging transaction that was found: open in a partition, and no coordinator will end it. `hanging.json` of a
    run lists them."""

    partition: int
    """The dense id of the partition in the plan."""
    topic: str
    number: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    ended: bool
    """True means that an abort marker was written, which ended the transaction."""
    why_not: str = ""

    @property
    def text(self) -> str:
        """Returns the finding as a sentence for people."""
        what = f"{self.topic}-{self.number}: open since offset {self.start_offset}, of producer id {self.producer_id}"
        return f"{what}: " + ("ended by an abort marker" if self.ended else self.why_not)


# Nodes and clusters. What only some backends can do is a member of `Capability`. A fault names the capabilities that it
# needs, and a trial whose backend lacks one is refused before anything starts.


@unique
class NodeState(StrEnum):
    """The state of a node's process, as it was observed and not as it is remembered."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "shutting down"
    """It was asked to end (SIGTERM) and has not ended yet: neither up nor down. A broker that reaches no controller may
    stay like this, and ends by itself as soon as it reaches one."""
    STOPPED = "stopped"


class Node(Protocol):
    """One broker, controller or ZooKeeper server. Every fault acts through this interface. Node ids are Kafka's."""

    @property
    def name(self) -> str: ...
    @property
    def node_id(self) -> int: ...
    @property
    def roles(self) -> frozenset[str]:
        """Returns the roles of the server: "broker", "controller", "zookeeper"."""
        ...

    @property
    def address(self) -> str:
        """Returns the node's address on the network that faults touch."""
        ...

    @property
    def data_directory(self) -> Path: ...

    @property
    def os_pid(self) -> int | None:
        """The pid of the server process, as the process of the run sees it. None means that the server is stopped."""
        ...

    def state(self) -> NodeState:
        """Observes the state of the process now."""
        ...

    def kill(self) -> None:
        """Kills the process with SIGKILL. Returns once the process is gone. It is safe on a node in any state."""
        ...

    def stop(self, *, timeout_s: float) -> None:
        """Stops the server with SIGTERM, which is a controlled shutdown. Returns once the process is gone, or raises
        NotReady if it stays: it is shutting down from then on, and nothing takes that back."""
        ...

    def start(self) -> None:
        """Starts the server process, and returns once it is forked.

        It is safe on a running node. Blocks that a restart would undo are made again. On a node that is shutting down it
        does nothing: see `await_end`.
        """
        ...

    def pause(self) -> None:
        """Pauses the process with SIGSTOP. Returns once the process is seen to be stopped."""
        ...

    def resume(self) -> None:
        """Resumes the process with SIGCONT. It is safe on a node that is not paused."""
        ...

    def block(self, source: "Node") -> None:
        """Drops everything that `source` sends to this node, from now on. The other direction and the observer's link
        stay open."""
        ...

    def unblock(self, source: "Node") -> None:
        """Ends `block`. It is safe when nothing is blocked."""
        ...

    def receives_from(self, source: "Node") -> Tristate:
        """Observes whether a datagram that `source` sends on the trial's network arrives at this node now."""
        ...

    def impair(self, impairment: Impairment) -> None:
        """Impairs the node until `repair`.

        A restart of the node does not end the impairment: `start` makes again what dies with the process, such as rules
        and throttles. It is safe to repeat. HarnessFailed if it cannot be done.
        """
        ...

    def repair(self, impairment: Impairment) -> None:
        """Ends exactly that impairment. It is safe when nothing is impaired, and when another process made the
        impairment."""
        ...

    def impaired(self, impairment: Impairment) -> tuple[Tristate, str]:
        """Observes whether the node is impaired in this way now, and returns what exactly was seen.

        It goes by the effect (a write gets ENOSPC, packets do not arrive), not by what was asked for.
        """
        ...

    def harm(self, harm: Harm) -> str:
        """Does the harm once, and returns what was seen to be done. HarnessFailed if it cannot be done now."""
        ...


NOT_IN_ORDER = "did not shut down within"
"""What the effect of a fault says of a node that was to end in order and was killed, since it took too long."""


def end_in_order(node: Node, *, timeout_s: float) -> str:
    """Shuts a node down, and kills it if it is not gone in time. Returns what the fault has to say of that, "" if it ended
    in order."""
    try:
        node.stop(timeout_s=timeout_s)
    except NotReady:
        node.kill()
        return f"it {NOT_IN_ORDER} {timeout_s:g} s, and was killed"
    return ""


def await_end(node: Node, *, timeout_s: float, clock: Clock) -> str:
    """Waits until a node that is shutting down has ended, and kills it if it is not gone in time. Returns what was done,
    "" if it was not shutting down."""
    if node.state() is not NodeState.STOPPING:
        return ""
    try:
        wait_until(
            lambda: node.state() is not NodeState.STOPPING,
            awaited=f"{node.name} to end its shutdown",
            timeout_s=timeout_s,
            clock=clock,
            last_seen=lambda: f"process {node.state()}",
            interval_s=0.1,
        )
    except NotReady:
        node.kill()
        return f"{node.name} was shutting down, {NOT_IN_ORDER} another {timeout_s:g} s, and was killed"
    return f"{node.name} was shutting down, and has ended"


class Targets(Protocol):
    """The nodes that faults can strike: those of a cluster, and the processes of clients where a trial has its own."""

    @property
    def nodes(self) -> Sequence[Node]: ...


class ObservedCluster(Targets, Protocol):
    """The part of a cluster that its observer needs: its nodes, and where and as whom they are asked."""

    @property
    def observer_servers(self) -> Mapping[int, tuple[str, int]]:
        """Returns, for each broker id, (host, port) of its observer listener. prozess administers the cluster over it,
        and no fault touches it."""
        ...

    @property
    def controller_servers(self) -> Mapping[int, tuple[str, int]]:
        """Returns, for each controller id, (host, port) of its controller listener, as the observer reaches it."""
        ...

    @property
    def zookeeper_servers(self) -> Mapping[int, tuple[str, int]]:
        """Returns, for each node id, (host, port) of the ZooKeeper server as the observer reaches it; empty if there is
        none to ask."""
        ...

    @property
    def metrics_servers(self) -> Mapping[int, tuple[str, int]]:
        """Returns, for each node id, (host, port) of its metrics agent as the observer reaches it; empty if there are
        none."""
        ...

    @property
    def login(self) -> Login | None:
        """The login with which brokers are asked; None for PLAINTEXT: only somebody else's cluster wants one."""
        ...


class Cluster(ObservedCluster, Protocol):
    """The cluster that a trial runs on, as one backend makes it. It is built from the variant of the plan, the run
    directory and options. Nothing runs before `setup`."""

    @property
    def capabilities(self) -> Mapping[Capability, str]:
        """Returns what this backend can do on this machine: capability → how it does it."""
        ...

    @property
    def lacks(self) -> Mapping[Capability, str]:
        """Returns what this backend cannot do on this machine: capability → the reason."""
        ...

    @property
    def bootstrap_servers(self) -> str:
        """Returns the bootstrap.servers of the clients under trial, on the network that faults touch."""
        ...

    @property
    def client_prefix(self) -> Sequence[str]:
        """The words before the command of the process that clients are forked from; empty if it needs none."""
        ...

    @property
    def messages(self) -> "MessageWatch | None":
        """Returns what watches single messages; None if no step of the plan is about any."""
        ...

    def refusal_of(self, fault: str, parameters: Mapping[str, Any]) -> str | None:
        """Returns why the backend cannot make this fault with these parameters, or None if it can.

        A backend may have every capability that the fault needs, and still reach only some links.
        """
        ...

    def setup(self) -> None:
        """Starts a fresh cluster, without data from an earlier run. ClusterFailed if a node dies at once."""
        ...

    def wait_ready(self, *, timeout_s: float) -> None:
        """Waits until the cluster can be used, or raises NotReady.

        It can be used once every broker names every broker as registered and unfenced, and a topic can be created and
        written. It also asserts that the cluster has the feature levels that it was formatted with.
        """
        ...

    def describe(self) -> Mapping[str, Any]:
        """Returns facts for the report, as JSON values: versions, feature levels, settings that shape a trial, pids,
        memory."""
        ...

    def collect_logs(self, into: Path) -> None:
        """Copies the server log of every node to `into/<node>.log`. It works on stopped nodes, too."""
        ...

    def teardown(self) -> None:
        """Removes everything that runs. It is safe to call this twice, and after a failed setup. Logs and data stay
        readable on disk."""
        ...


class MessageWatch(Protocol):
    """Watches the messages of Kafka's protocol on the links of a cluster, and can hold one."""

    on_message: Callable[[Mapping[str, Any]], None]
    """What is called with each message that a rule meant, as the proxy informs it, in a thread of its own."""

    def arm(
        self,
        rule: str,
        wanted: WantedMessage,
        action: Mapping[str, object],
        *,
        link: tuple[str, str] | None,
        until: WantedMessage | None = None,
    ) -> None:
        """Arms a rule for one more link (opener, server), or with None for every link."""
        ...

    def disarm(self, rule: str, *, link: tuple[str, str] | None, deliver: bool) -> None:
        """Disarms a rule. Messages that wait for it go on, or are dropped."""
        ...

    def look(self, rule: str) -> Mapping[str, Any]:
        """Returns how many messages a rule `matched`, and how many wait for it (`held`)."""
        ...


@dataclass(frozen=True, slots=True)
class PartitionView:
    """Describes what one broker says about one partition when it is asked itself."""

    leader: int
    """The node id of the leader; -1 means that there is none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: int = 0


BrokerView = Mapping[tuple[str, int], PartitionView]
"""What one broker says about all partitions: (topic, partition number) → its view."""


class AdminProtocol(Protocol):
    """Administers the Kafka cluster over the observer's link, which no fault touches. Every call has a time limit."""

    def create_topics(self, topics: Sequence["TopicSpec"], *, timeout_s: float, whole: bool = True) -> None:
        """Creates the topics, and returns once every living broker reports all replicas of all their partitions in
        sync. `whole` = False: once the controller has created them."""
        ...

    def delete_topics(self, ids: Sequence[UUID], *, timeout_s: float) -> None:
        """Deletes topics by their ids (KIP-516). It is safe where they are gone. ClusterFailed if Kafka refuses, or
        nobody answers."""
        ...

    def await_coordinators(self, group_ids: Collection[str], *, timeout_s: float) -> None:
        """Waits until every living broker names a working coordinator for each of these groups."""
        ...

    def add_partitions(self, grown: Mapping[str, tuple[int, tuple[tuple[int, ...], ...]]], *, timeout_s: float) -> None:
        """Adds partitions: topic → (how many partitions it will have, the brokers of each new one). Returns when
        `create_topics` would."""
        ...

    def delete_records(
        self, partitions: Sequence[tuple[str, int]], *, keep: int, timeout_s: float
    ) -> Mapping[tuple[str, int], int]:
        """Deletes all but the last `keep` records below the present high watermark of each (topic, number). Returns
        where each log begins now."""
        ...

    def elect_leaders(
        self, partitions: Sequence[tuple[str, int]], *, unclean: bool, timeout_s: float
    ) -> Mapping[tuple[str, int], str]:
        """Asks Kafka to elect a leader for each partition (KIP-460): the preferred replica or, with `unclean`, any
        replica. Returns the partitions for which it did not, each with the reason."""
        ...

    def reassign(self, assignments: Mapping[tuple[str, int], tuple[int, ...] | None], *, timeout_s: float) -> None:
        """Begins to move replicas of (topic, number) to these brokers, preferred leader first (KIP-455). None cancels a
        reassignment.

        Returns once Kafka has accepted it. ClusterFailed with the reason if it does not.
        """
        ...

    def reassignments(self, *, timeout_s: float = 5.0) -> Mapping[tuple[str, int], object]:
        """Returns every reassignment that is under way."""
        ...

    def own_configs(self, resource: str, *, timeout_s: float = 10.0) -> Mapping[str, str]:
        """Returns the properties that are set for exactly "topic:NAME" or "broker:ID", without those that it
        inherits."""
        ...

    def alter_configs(self, resource: str, properties: Mapping[str, str | None], *, timeout_s: float = 10.0) -> None:
        """Sets these properties for this resource, and leaves all others (KIP-339). None deletes a property, as if it
        was never set."""
        ...

    def describe_configs(
        self, *, brokers: Sequence[int] = (), topics: Sequence[str] = (), timeout_s: float = 10.0
    ) -> Mapping[str, Mapping[str, str | None]]:
        """Returns all effective properties by resource, such as "broker:1" or "topic:NAME". A sensitive value is
        None."""
        ...

    def view(self, node_id: int, topics: Sequence[str], *, timeout_s: float = 2.0) -> BrokerView | None:
        """Returns what exactly this broker says, asked by a raw Metadata request to it alone. None if it does not
        answer."""
        ...

    def views(self, topics: Sequence[str], *, timeout_s: float = 2.0) -> Mapping[int, BrokerView | None]:
        """Returns the `view` of every broker. They are asked in parallel."""
        ...

    def active_controller(self, *, timeout_s: float = 2.0) -> int | None:
        """Returns the node id of the active controller; None if there is none.

        In KRaft the controllers themselves are asked by DescribeQuorum, since Metadata names a random broker: it is the
        leader with the highest epoch that answers as leader. With ZooKeeper it is the broker that `/controller` names.
        """
        ...

    def zookeeper_serving(self, *, timeout_s: float = 2.0) -> frozenset[int]:
        """Returns the node ids of the ZooKeeper servers that say they lead or follow."""
        ...

    def zookeeper_leader(self, *, timeout_s: float = 2.0) -> int | None:
        """Returns the node id of the ZooKeeper server that leads the ensemble. None if no server says it does, or there
        is none."""
        ...

    def living_brokers(self, node_id: int, *, timeout_s: float = 2.0) -> frozenset[int] | None:
        """Returns the ids of the brokers that this broker names as alive, which means unfenced. None if it does not
        answer."""
        ...

    def quorum_ends(self, *, timeout_s: float = 2.0) -> Mapping[int, int] | None:
        """Returns where each controller's replica of the metadata log ends, as the active controller knows: controller
        id → offset.

        A controller that is away keeps its last value. None if no controller claims to be active.
        """
        ...

    def features(self, *, timeout_s: float = 5.0) -> Mapping[str, int]:
        """Returns the finalized feature levels of the cluster."""
        ...

    def supported_features(self, *, timeout_s: float = 5.0) -> Mapping[str, int]:
        """Returns the highest level of each feature that every living broker supports. Brokers do not report features
        that may be switched off altogether (KAFKA-17011)."""
        ...

    def update_feature(self, feature: str, level: int, *, timeout_s: float) -> None:
        """Raises the finalized level of a feature (KIP-584). ClusterFailed with the reason if it is refused."""
        ...

    def open_transactions(
        self, partitions: Collection[tuple[str, int]], *, timeout_s: float = 5.0
    ) -> Mapping[tuple[str, int], Sequence[OpenTransaction]]:
        """Returns the open transactions of each (topic, number) as its leader reports them, the oldest first. A
        partition whose leader does not answer is absent."""
        ...

    def coordinated_transactions(self, *, timeout_s: float = 5.0) -> Sequence[CoordinatedTransaction] | None:
        """Returns what all transaction coordinators know, together. None if one of them does not answer, or is still
        loading."""
        ...

    def abort_transaction(
        self, partition: tuple[str, int], transaction: OpenTransaction, *, timeout_s: float = 10.0
    ) -> str:
        """Asks the leader to write the marker that aborts this transaction in this partition (KIP-664). Returns "" once
        it is written, else the reason why not."""
        ...

    def topic_ids(self, topics: Collection[str], *, timeout_s: float = 5.0) -> Mapping[str, UUID]:
        """Returns the ids of topics (KIP-516). A topic that has none, or that no broker knows, is absent."""
        ...

    def close(self) -> None:
        """Closes all connections and ends all threads. It is safe to call this twice."""
        ...


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic that is to be created. `assignment[i]` holds the broker ids of partition i, preferred leader first."""

    name: str
    assignment: tuple[tuple[int, ...], ...]
    properties: Mapping[str, str] = field(default_factory=dict)


class Undo(Frozen):
    """Says how to undo one fault on one node. It is plain data, so that the journal can hold it and any process can
    carry it out.

    `action` is a name of `prozess.nemesis.registry.UNDO_ACTIONS`; `peer` is the node at the other end of the link, if
    there is one. Equal undos of several faults are one: it is carried out when the last of these faults is healed.
    """

    action: str
    node: str
    peer: str | None = None
    details: str = ""
    """What else the action needs, as JSON in a single form (`Undo.of`), so that equal details are equal text."""

    @classmethod
    def of(cls, action: str, node: str, peer: str | None = None, /, **details: object) -> "Undo":
        """Makes an undo with these details, which must be JSON values."""
        return cls(action=action, node=node, peer=peer, details=json.dumps(details, sort_keys=True))

    @property
    def given(self) -> dict[str, Any]:
        """Returns the details as a dictionary."""
        return dict(json.loads(self.details)) if self.details else {}


class Effect(Frozen):
    """Describes what was observed of one fault on one node: whether it took effect, and what was seen."""

    node: str
    peer: str | None = None
    effect: Tristate
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FaultContext:
    """Everything that a fault may use when it is made or undone: the cluster, its administration, the clock and the
    targets."""

    cluster: Targets
    admin: AdminProtocol
    clock: Clock
    targets: tuple[Node, ...] = ()
    """The nodes that the roles of the step mean at this moment. It is empty when a fault is undone."""
    roles: tuple[str, ...] = ()
    """The targets as the step names them, such as "leader(0)"."""
    partitions: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    """Dense partition id → (topic, number), for all partitions of the plan."""
    racks: Mapping[str, str] = field(default_factory=dict)
    """The name of a broker → its rack, if brokers have racks."""
    names: PlannedNames = field(default_factory=PlannedNames)
    """Kafka's names of what the plan numbers."""
    step: str = ""
    """The name of the step. It is empty when a fault is undone."""
    cut_off: frozenset[str] = frozenset()
    """The names of the nodes whose links to other nodes an earlier fault holds."""

    def node(self, name: str) -> Node:
        """Returns the node with this name. ClusterFailed if there is none."""
        for node in self.cluster.nodes:
            if node.name == name:
                return node
        known = ", ".join(node.name for node in self.cluster.nodes)
        raise ClusterFailed(f"There is no node {name!r}. Nodes: {known}.")


P = TypeVar("P", bound=Frozen)


class Fault(Protocol[P]):
    """A fault that a trial can ask for, with parameters of the type `P`: how it is made, how its effect is observed, and
    what will undo it.

    Every fault is a subclass. What has a value here, a fault says only where it differs. Nothing that is needed to undo a
    fault may live in it: that is in its `Undo` values.
    """

    name: str
    parameters_model: type[P]
    """The model that the `parameters` of a step must satisfy. Other keys are refused."""
    nature: FaultNature | None = None
    """What the fault may do to a node. A class declares its own and inherits none; without one, it might do anything."""
    needs: frozenset[Capability] = frozenset()
    """The capabilities that the backend must have."""
    role_parameters: frozenset[str] = frozenset()
    """The parameters that name the other side of the targets. The nemesis resolves them to names of nodes before it
    calls `undos`."""
    in_a_mix: Mapping[str, object] = {}
    """The parameters that the fault has in a mix, where the trial does not say them."""
    of_partitions: bool = False
    """True means that the targets must be partitions: `partition(p)`, or a coordinator for the partition that it leads."""
    of_clients: bool = False
    """True means that the targets must be clients of the trial, and not nodes of the cluster."""
    ends_itself: bool = False
    """True means that the fault is over when `apply` returns. It is healed at once, and holds nothing that another step
    has broken."""
    proven_at_the_end: bool = False
    """True means that the fault waits for something, and that its effect is observed when it is healed."""
    moves_client_clocks: bool = False
    """True means that the fault moves clocks of clients, which not every machine allows."""

    @staticmethod
    def refusal(targets: Sequence[str], nodes: Collection[str]) -> str | None:
        """Returns why the fault is impossible with these targets on nodes of these names, or None if it is possible."""
        return None

    @staticmethod
    def means_nothing(variant: Variant, parameters: P) -> str | None:
        """Returns why the fault has no meaning on a cluster of this variant with these parameters, or None if it has
        one."""
        return None

    def needs_for(self, parameters: P) -> frozenset[Capability]:
        """Returns the capabilities that the backend must have besides `needs`, because of these parameters."""
        return frozenset()

    def spares(self, parameters: P) -> frozenset[Capability]:
        """Returns the capabilities of `needs` that the backend need not have, because of these parameters."""
        return frozenset()

    def drawn(self, context: FaultContext, parameters: P) -> Mapping[str, tuple[str, ...]]:
        """Returns what the seed decided besides the roles, as name → nodes, for `resolved.json`."""
        return {}

    def undos(self, context: FaultContext, parameters: P) -> Sequence[Undo]:
        """Returns what will undo the fault. It is journaled before `apply`, and this changes nothing."""
        ...

    def apply(self, context: FaultContext, parameters: P) -> None:
        """Makes the fault. A fault that takes time, such as a storm, waits by the clock that it is given."""
        ...

    def verify(self, context: FaultContext, parameters: P) -> Sequence[Effect]:
        """Observes whether the fault took effect, within a stated limit."""
        ...


AnyFault = Fault[Any]
"""A fault of which nobody knows which parameters it has: it was looked up by its name, and so its own `parameters_model`
makes them."""


class UndoAction(Protocol):
    """A way to undo faults, by the name that the journal has for it. It keeps no state, and works in any process."""

    of_kafka: bool = False
    """True means that Kafka is asked to undo it. This is done after the nodes are healed, and Kafka has a minute to do
    it."""

    def carry_out(self, undo: Undo, context: FaultContext) -> None:
        """Undoes the fault as far as the present state still needs it. It is safe to repeat, and safe where nothing is
        broken."""
        ...

    def undone(self, undo: Undo, context: FaultContext) -> tuple[Tristate, str]:
        """Observes once whether the undo has worked, and returns what was seen."""
        ...

    def things(self, undo: Undo) -> Mapping[str, Undo]:
        """Returns each thing that is put back, with the undo of that thing alone. The end of healing verifies each.

        Where several faults changed one thing, the undo of the first of them has the value from before all faults.
        """
        return {f"{undo.action} {undo.node} {undo.peer} {undo.details}": undo}

    def holds(self, undo: Undo, context: FaultContext) -> bool:
        """Says whether the node is still broken in this way. It looks where that costs nothing; otherwise it says True
        until the fault is undone."""
        ...
