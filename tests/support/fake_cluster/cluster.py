"""A cluster in memory: no process, no network, no Kafka. For tests of schedules, faults and whatever waits.

It keeps the protocols of `prozess.harness.interfaces` to the letter, so that the same contract tests run against it and
against real clusters; what Kafka would do in the meantime is `tests.support.fake_cluster.kraft_model`, on the clock it is
given."""

import itertools
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from prozess.clusters.machine.server_properties import node_name, node_roles, shaping_settings
from prozess.clusters.machine.servers import new_kafka_uuid
from prozess.harness.clock import Clock, wait_until
from prozess.harness.config.existing_clusters import Login
from prozess.harness.config.impairments import Harm, Impairment
from prozess.harness.errors import BadInput, ClusterFailed, HarnessFailed, NotReady
from prozess.harness.interfaces import BrokerView, Capability, MessageWatch, Node, NodeState, TopicSpec
from prozess.harness.interfaces.cluster import CoordinatedTransaction, OpenTransaction
from prozess.harness.plan.plan import Plan
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import Tristate
from tests.support.fake_cluster.changes import FakeChanges
from tests.support.fake_cluster.kraft_model import Timings, World

EVERYTHING: Mapping[Capability, str] = dict.fromkeys(Capability, "in memory")
FEATURES: Mapping[str, int] = {
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "transaction.version": 2,
    "group.version": 1,
}
"""As a real 4.3.1 cluster has them; the model has no ELR all the same (`tests.support.fake_cluster.kraft_model`)."""
_PIDS = itertools.count((1 << 22) + 1)
"""Above any pid that Linux gives (PID_MAX_LIMIT, proc(5)): never someone's process."""
_HOST = "fake.invalid"
"""Reserved never to resolve (RFC 2606): whoever takes a fake cluster for a real one gets an error, not a connection."""


class FakeNode:
    """`prozess.harness.interfaces.Node` in memory."""

    def __init__(self, cluster: "FakeCluster", node_id: int, roles: frozenset[str], data_directory: Path) -> None:
        self._cluster, self._id, self._roles, self._data_directory = cluster, node_id, roles, data_directory
        self._pid: int | None = None
        self.impairments: set[Impairment] = set()
        self.log: list[str] = []
        """What its server log would say."""

    @property
    def name(self) -> str:
        return node_name(self._id, self._roles)

    @property
    def node_id(self) -> int:
        return self._id

    @property
    def roles(self) -> frozenset[str]:
        return self._roles

    @property
    def address(self) -> str:
        return f"{self.name}.{_HOST}"

    @property
    def data_directory(self) -> Path:
        return self._data_directory

    @property
    def os_pid(self) -> int | None:
        return None if self.state() is NodeState.STOPPED else self._pid

    def state(self) -> NodeState:
        if self._cluster.world is None:
            return NodeState.STOPPED
        self._cluster.world.advance()
        process = self._cluster.world.processes[self._id]
        ending = process.term_pending and process.state is NodeState.RUNNING
        return NodeState.STOPPING if ending else process.state

    def kill(self) -> None:
        self._need(Capability.KILL)
        self.end("killed")

    def end(self, why: str) -> None:
        """The process is gone, whatever the backend can do to it. Safe on a stopped node."""
        if self.state() is not NodeState.STOPPED:
            self._world().end(self._id)
            self.log.append(why)

    def stop(self, *, timeout_s: float) -> None:
        self._need(Capability.STOP)
        if self.state() is NodeState.STOPPED:
            return
        self._world().terminate(self._id)
        wait_until(
            lambda: self.state() is NodeState.STOPPED,
            awaited=f"{self.name} to shut down after SIGTERM",
            timeout_s=timeout_s,
            clock=self._cluster.clock,
            last_seen=lambda: f"process {self.state()}",
        )
        self.log.append("shut down")

    def start(self) -> None:
        if self.state() is NodeState.STOPPED:
            self._pid = next(_PIDS)
            self._world().start(self._id)
            self.log.append("started")

    def pause(self) -> None:
        self._need(Capability.PAUSE)
        self._world().set_paused(self._id, True)

    def resume(self) -> None:
        self._world().set_paused(self._id, False)

    def block(self, source: Node) -> None:
        self._need(Capability.BLOCK)
        self._world().set_blocked(source.node_id, self._id, True)

    def unblock(self, source: Node) -> None:
        if self._cluster.world is not None:
            self._cluster.world.set_blocked(source.node_id, self._id, False)

    def receives_from(self, source: Node) -> Tristate:
        if self._cluster.world is None:
            return Tristate.UNKNOWN
        return Tristate.NO if (source.node_id, self._id) in self._cluster.world.blocked else Tristate.YES

    def impair(self, impairment: Impairment) -> None:
        self._need(impairment.needs)
        self._world()
        self.impairments.add(impairment)

    def repair(self, impairment: Impairment) -> None:
        self.impairments.discard(impairment)

    def impaired(self, impairment: Impairment) -> tuple[Tristate, str]:
        if self._cluster.world is None:
            return Tristate.UNKNOWN, "the cluster is not set up"
        return (Tristate.YES, "as asked") if impairment in self.impairments else (Tristate.NO, "nothing of it")

    def harm(self, harm: Harm) -> str:
        self._need(harm.needs)
        self._world()
        if harm.kind == "power-loss":
            self.end("power lost")
        elif harm.needs in (Capability.CHANGE_FILES, Capability.INSTALL) and self.state() is not NodeState.STOPPED:
            raise HarnessFailed(f"{self.name}: {harm.kind} is for a node that is down; it is {self.state()}.")
        self.log.append(harm.kind)
        if harm.kind == "install":
            self.start()
        return f"{harm.kind}, in memory"

    def _world(self) -> World:
        if self._cluster.world is None:
            raise ClusterFailed(f"{self.name} does not exist: the cluster is not set up.")
        return self._cluster.world

    def _need(self, capability: Capability) -> None:
        if capability in self._cluster.lacks:
            raise HarnessFailed(f"{self.name}: this backend cannot {capability}: {self._cluster.lacks[capability]}")


class FakeCluster:
    """`prozess.harness.interfaces.Cluster` in memory."""

    login: Login | None = None
    client_prefix: Sequence[str] = ()

    def __init__(
        self,
        plan: Plan,
        run: RunDirectory,
        *,
        clock: Clock,
        isolation: str | None = None,
        capabilities: Mapping[Capability, str] = EVERYTHING,
        timings: Timings | None = None,
    ) -> None:
        """`isolation`: taken for the sake of the run stage, nothing here needs any. `capabilities`: what it can do; the
        rest is lacking. `timings`: None = those that real brokers of the plan's variant would have."""
        if plan.variant.metadata_mode == "zookeeper":
            raise BadInput('metadata_mode = "zookeeper" is not modelled by the fake backend. Use "kraft-isolated".')
        self.clock, self.isolation = clock, isolation
        self.world: World | None = None
        """None unless set up."""
        self._variant, self._run, self._capabilities = plan.variant, run, dict(capabilities)
        self._timings = timings or _timings(shaping_settings(plan.variant))
        self._cluster_id = ""
        roles = sorted(node_roles(plan.variant).items(), key=lambda item: ("broker" in item[1], item[0]))
        self._nodes = tuple(FakeNode(self, n, r, run.nodes / node_name(n, r) / "data") for n, r in roles)

    @property
    def nodes(self) -> Sequence[FakeNode]:
        return self._nodes

    @property
    def capabilities(self) -> Mapping[Capability, str]:
        return self._capabilities

    @property
    def lacks(self) -> Mapping[Capability, str]:
        return {c: "this fake learned that it cannot." for c in Capability if c not in self._capabilities}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{node.address}:9092" for node in self._nodes if "broker" in node.roles)

    @property
    def observer_servers(self) -> Mapping[int, tuple[str, int]]:
        return {node.node_id: (node.address, 9093) for node in self._nodes if "broker" in node.roles}

    @property
    def controller_servers(self) -> Mapping[int, tuple[str, int]]:
        return {node.node_id: (node.address, 9096) for node in self._nodes if "controller" in node.roles}

    @property
    def zookeeper_servers(self) -> Mapping[int, tuple[str, int]]:
        """Empty: ZooKeeper is not modelled."""
        return {}

    @property
    def metrics_servers(self) -> Mapping[int, tuple[str, int]]:
        """Empty: there is no JVM to ask."""
        return {}

    @property
    def messages(self) -> MessageWatch | None:
        """Returns None: nothing is between the links that could see messages."""
        return None

    def refusal_of(self, fault: str, parameters: Mapping[str, Any]) -> str | None:
        """None: what a fake can do, it can do to every link."""
        return None

    def admin(self) -> "FakeAdmin":
        """The administration of this cluster (`prozess.clusters.protocol.admin.Admin` needs real brokers)."""
        return FakeAdmin(self)

    def setup(self) -> None:
        self.teardown()
        self._cluster_id = new_kafka_uuid()
        self.world = World({node.node_id: node.roles for node in self._nodes}, self._timings, self.clock)
        for node in self._nodes:
            shutil.rmtree(node.data_directory, ignore_errors=True)
            node.data_directory.mkdir(parents=True)
            node.log.clear()
            node.impairments.clear()
            node.start()

    def wait_ready(self, *, timeout_s: float) -> None:
        brokers = frozenset(self.observer_servers)
        wait_until(
            lambda: all(self.admin().living_brokers(broker) == brokers for broker in brokers),
            awaited="every broker to see every broker unfenced",
            timeout_s=timeout_s,
            clock=self.clock,
            last_seen=lambda: str({broker: self.admin().living_brokers(broker) for broker in sorted(brokers)}),
        )

    def describe(self) -> Mapping[str, Any]:
        return {
            "backend": "fake",
            "kafka_version": self._variant.kafka_version,
            "metadata_mode": self._variant.metadata_mode,
            "cluster_id": self._cluster_id,
            "settings": shaping_settings(self._variant),
            "features": dict(FEATURES),
            "nodes": {n.name: {"id": n.node_id, "state": n.state().value, "pid": n.os_pid} for n in self._nodes},
        }

    def collect_logs(self, into: Path) -> None:
        into.mkdir(parents=True, exist_ok=True)
        for node in self._nodes:
            (into / f"{node.name}.log").write_text("".join(f"{line}\n" for line in node.log), encoding="utf-8")

    def teardown(self) -> None:
        for node in self._nodes:
            node.end("taken down")
        self.world = None


class FakeAdmin(FakeChanges):
    """`prozess.harness.interfaces.AdminProtocol` of a fake cluster: each broker says what it believes."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._features = dict(FEATURES)

    def await_coordinators(self, group_ids: Collection[str], *, timeout_s: float) -> None:
        self._world(timeout_s)  # it has no groups: whoever would coordinate them is there with the cluster

    def create_topics(self, topics: Sequence[TopicSpec], *, timeout_s: float) -> None:
        if not topics:
            return
        world = self._world(timeout_s)
        keys = {(topic.name, number): replicas for topic in topics for number, replicas in enumerate(topic.assignment)}
        for (name, _), replicas in keys.items():
            if unknown := set(replicas) - set(world.brokers):
                raise BadInput(f"Topic {name!r} is assigned to brokers {sorted(unknown)}, which do not exist.")
            if any(name == known for known, _ in world.partitions):
                raise ClusterFailed(f"Topic {name!r} exists already.")
        for topic in topics:
            unclean = topic.properties.get("unclean.leader.election.enable") == "true"
            for number, replicas in enumerate(topic.assignment):
                world.create((topic.name, number), replicas, unclean=unclean)

        def whole() -> bool:
            views = self.views([topic.name for topic in topics])
            running = {n.node_id for n in self._cluster.nodes if n.node_id in views and n.state() is NodeState.RUNNING}
            return running.issuperset(broker for replicas in keys.values() for broker in replicas) and all(
                (view := views[broker]) is not None
                and key in view
                and view[key].leader >= 0
                and set(view[key].isr) == set(replicas)
                for broker in running
                for key, replicas in keys.items()
            )

        wait_until(
            whole,
            awaited=f"{len(keys)} partitions with leader and whole ISR on every running broker's own view",
            timeout_s=timeout_s,
            clock=self._cluster.clock,
            last_seen=lambda: str(self.views([topic.name for topic in topics])),
        )

    def view(self, node_id: int, topics: Sequence[str], *, timeout_s: float = 2.0) -> BrokerView | None:
        """Answers at once, or not at all: `timeout_s` is not waited for."""
        world = self._cluster.world
        if world is None:
            return None
        world.advance()
        known = world.knowledge.get(node_id) if world.answers(node_id) else None
        return None if known is None else {key: seen for key, seen in known.partitions.items() if key[0] in topics}

    def views(self, topics: Sequence[str], *, timeout_s: float = 2.0) -> Mapping[int, BrokerView | None]:
        return {broker: self.view(broker, topics) for broker in self._cluster.observer_servers}

    def living_brokers(self, node_id: int, *, timeout_s: float = 2.0) -> frozenset[int] | None:
        """Whom this broker believes alive; None if it does not answer."""
        world = self._cluster.world
        if world is None:
            return None
        world.advance()
        known = world.knowledge.get(node_id) if world.answers(node_id) else None
        return None if known is None else known.living

    def zookeeper_serving(self, *, timeout_s: float = 2.0) -> frozenset[int]:
        return frozenset()

    def zookeeper_leader(self, *, timeout_s: float = 2.0) -> int | None:
        return None

    def active_controller(self, *, timeout_s: float = 2.0) -> int | None:
        world = self._cluster.world
        if world is None:
            return None
        world.advance()
        return world.active if world.active is not None and world.answers(world.active) else None

    def quorum_ends(self, *, timeout_s: float = 2.0) -> Mapping[int, int] | None:
        world = self._cluster.world
        if world is None or self.active_controller() is None:
            return None
        return {node: self._cluster.clock.monotonic_ns() if world.answers(node) else 0 for node in world.controllers}

    def features(self, *, timeout_s: float = 5.0) -> Mapping[str, int]:
        self._world(timeout_s)
        return self._features

    def supported_features(self, *, timeout_s: float = 5.0) -> Mapping[str, int]:
        self._world(timeout_s)
        return FEATURES

    def update_feature(self, feature: str, level: int, *, timeout_s: float) -> None:
        self._world(timeout_s)
        if level > FEATURES.get(feature, 0):
            raise ClusterFailed(f"Kafka refuses {feature} = {level}: this fake does not know it.")
        self._features[feature] = level

    def open_transactions(
        self, partitions: Collection[tuple[str, int]], *, timeout_s: float = 5.0
    ) -> Mapping[tuple[str, int], Sequence[OpenTransaction]]:
        return {key: () for key in partitions}  # nobody writes to it, with or without transactions

    def coordinated_transactions(self, *, timeout_s: float = 5.0) -> Sequence[CoordinatedTransaction] | None:
        return ()

    def abort_transaction(
        self, partition: tuple[str, int], transaction: OpenTransaction, *, timeout_s: float = 10.0
    ) -> str:
        return "there is no transaction in a fake cluster"

    def _world(self, timeout_s: float) -> World:
        """The world once a broker answers."""
        world = self._cluster.world
        if world is None:
            raise NotReady(awaited="a broker to answer", timeout_s=timeout_s, last_seen="the cluster is not set up")
        wait_until(
            lambda: any(self.living_brokers(broker) is not None for broker in world.brokers),
            awaited="a broker to answer",
            timeout_s=timeout_s,
            clock=self._cluster.clock,
            last_seen=lambda: "none answers",
        )
        return world


def _timings(settings: Mapping[str, str]) -> Timings:
    """The timeouts that real brokers of this variant would have."""
    return Timings(
        session_s=float(settings["broker.session.timeout.ms"]) / 1000,
        lag_s=float(settings["replica.lag.time.max.ms"]) / 1000,
    )
