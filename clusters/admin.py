"""Kafka administration over the observer's link: what each node says, asked of exactly that node.

Views, quorum, features and offsets are raw requests (`clusters.wire_requests`), because a client library may ask any broker
and a zombie lies. Creating topics and reading configurations go through librdkafka, bootstrapped on the observer's
listeners: brokers then advertise those listeners, so that no fault is in the way.
"""

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from clusters.changes import AdminChanges
from clusters.coordinators import await_coordinators
from clusters.wire import Request, WireClient
from clusters.wire_requests import (
    DESCRIBE_TOPIC_PARTITIONS,
    EARLIEST,
    LATEST,
    EligibleReplicas,
    MetadataAnswer,
    OffsetAnswer,
    QuorumAnswer,
    api_versions_request,
    describe_quorum_request,
    describe_topic_partitions_request,
    list_offsets_request,
    metadata_request,
)
from clusters.zookeeper_client import ZooKeeperClient
from harness.clock import NS_PER_S, Clock, SystemClock, wait_until
from harness.errors import BadInput, ClusterFailed, NotReady
from harness.protocols import BrokerView, Cluster, NodeState, PartitionView, TopicSpec
from harness.schema import Isolation

T = TypeVar("T")
_USERS_FAULT = {
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_REPLICA_ASSIGNMENT,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_EXCEPTION,
}


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """What one broker, taking itself for the leader, says of a partition's offsets. None = it did not tell."""

    node: int
    leader_epoch: int
    """In which it answered (of the high watermark's answer); NONE = not told."""
    log_start: int | None
    high_watermark: int | None
    last_stable_offset: int | None


class Admin(AdminChanges):
    """`harness.protocols.AdminProtocol` for every cluster whose brokers speak Kafka's protocol. Safe from many threads."""

    def __init__(self, cluster: Cluster, *, clock: Clock | None = None) -> None:
        self._cluster = cluster
        self._clock = clock or SystemClock()
        self._brokers = WireClient(lambda: cluster.observer_servers, name="broker", clock=self._clock)
        self._controllers = WireClient(lambda: cluster.controller_servers, name="controller", clock=self._clock)
        self._zookeeper = ZooKeeperClient(self._zookeepers, clock=self._clock)
        self._threads = ThreadPoolExecutor(max_workers=16, thread_name_prefix="observer")
        self._client: AdminClient | None = None
        # Whoever forgets `close` must not leave sockets to the garbage collector.
        self._finalizer = weakref.finalize(self, _close, self._brokers, self._controllers, self._threads)

    def close(self) -> None:
        """Give back connections and threads. Safe to call twice; the object is of no use afterwards."""
        self._finalizer()
        self._client = None

    # --- views ---

    def view(self, node_id: int, topics: Sequence[str], *, timeout_s: float = 2.0) -> BrokerView | None:
        """What exactly this broker says of these topics; None if it does not answer. Unknown topics are not there."""
        answer = self._metadata(node_id, topics, timeout_s)
        return None if answer is None else answer.partitions

    def views(self, topics: Sequence[str], *, timeout_s: float = 2.0) -> Mapping[int, BrokerView | None]:
        """`view` of every broker, in parallel: all together within `timeout_s`."""
        return self._each(self._cluster.observer_servers, lambda node: self.view(node, topics, timeout_s=timeout_s))

    def living_brokers(self, node_id: int, *, timeout_s: float = 2.0) -> frozenset[int] | None:
        """Ids of the brokers that this broker names as alive (unfenced); None if it does not answer."""
        answer = self._metadata(node_id, (), timeout_s)
        return None if answer is None else answer.brokers

    def elr(
        self, topics: Sequence[str], *, timeout_s: float = 5.0
    ) -> Mapping[tuple[str, int], EligibleReplicas] | None:
        """Eligible leader replicas (KIP-966) as the first broker that answers sees them. None: the brokers cannot say
        (older than 3.8), or none answers."""
        deadline_ns = self._deadline_ns(timeout_s)
        for node_id in self._living_first():
            versions = self._ask(node_id, api_versions_request(), deadline_ns)
            if versions is None:
                continue
            if DESCRIBE_TOPIC_PARTITIONS not in versions.apis:
                return None
            found: dict[tuple[str, int], EligibleReplicas] = {}
            page = None
            while True:
                answer = self._ask(node_id, describe_topic_partitions_request(topics, page=page), deadline_ns)
                if answer is None:
                    break
                found |= answer.partitions
                if (page := answer.next_page) is None:
                    return found
        return None

    def zookeeper_leader(self, *, timeout_s: float = 2.0) -> int | None:
        """Node id of the ZooKeeper server that leads the ensemble; None if no one says it does."""
        return self._zookeeper.leader(timeout_s=timeout_s)

    def zookeeper_serving(self, *, timeout_s: float = 2.0) -> frozenset[int]:
        """Node ids of the ZooKeeper servers that say they lead or follow."""
        states = self._zookeeper.states(timeout_s=timeout_s)
        return frozenset(node for node, state in states.items() if state is not None)

    def active_controller(self, *, timeout_s: float = 2.0) -> int | None:
        """With ZooKeeper, the broker that `/controller` names. In KRaft who answers DescribeQuorum as leader, of several (one
        is deposed and does not know) the one with the highest epoch; None if no one does. The others answer with an error,
        or name somebody else."""
        if getattr(self._cluster, "zookeeper_servers", {}):
            return self._zookeeper.controller(timeout_s=timeout_s)
        answer = self._quorum(timeout_s)
        return None if answer is None else answer.leader

    def quorum_ends(self, *, timeout_s: float = 2.0) -> Mapping[int, int] | None:
        """Controller → where its copy of the metadata log ends, as the active one knows by its fetches; None if no one
        claims to be active. One that is away keeps its last value."""
        answer = self._quorum(timeout_s)
        return None if answer is None else answer.voters

    def _quorum(self, timeout_s: float) -> QuorumAnswer | None:
        if not self._cluster.controller_servers:
            return self._quorum_by_brokers(timeout_s)
        told = self._each(
            self._cluster.controller_servers,
            lambda node: self._controllers.ask(node, describe_quorum_request(), timeout_s=timeout_s),
        )
        answers = [
            found[0] for node, found in told.items() if found and found[0].error == 0 and found[0].leader == node
        ]
        return max(answers, key=lambda answer: answer.leader_epoch, default=None)

    def _quorum_by_brokers(self, timeout_s: float) -> QuorumAnswer | None:
        """Where no controller is reached: brokers hand the question on to the one they take for the active one (KIP-595)."""
        told = self._each(
            self._cluster.observer_servers,
            lambda node: self._brokers.ask(node, describe_quorum_request(), timeout_s=timeout_s),
        )
        answers = [found[0] for found in told.values() if found and found[0].error == 0]
        return max(answers, key=lambda answer: answer.leader_epoch, default=None)

    def features(self, *, timeout_s: float = 5.0) -> Mapping[str, int]:
        """Finalized feature levels, as the first broker that answers knows them; a level of 0 may be left out by it.
        NotReady if none answers."""
        deadline_ns = self._deadline_ns(timeout_s)
        for node_id in self._living_first():
            answer = self._ask(node_id, api_versions_request(), deadline_ns)
            if answer is not None:
                return answer.features
        raise NotReady(awaited="feature levels from any broker", timeout_s=timeout_s, last_seen="no broker answered")

    def supported_features(self, *, brokers: Sequence[int] | None = None, timeout_s: float = 5.0) -> Mapping[str, int]:
        """The highest level of each feature that each of these (None: all that live) tells. NotReady if one is silent."""
        deadline_ns = self._deadline_ns(timeout_s)
        asked = self._running_brokers() if brokers is None else brokers
        told = [self._ask(node, api_versions_request(), deadline_ns) for node in asked]
        answers = [answer.supported for answer in told if answer is not None]
        if not answers or len(answers) < len(told):
            silent = f"{len(told) - len(answers)} of {len(told)} brokers did not answer"
            raise NotReady(awaited="what features every broker supports", timeout_s=timeout_s, last_seen=silent)
        known = set.intersection(*(set(answer) for answer in answers))
        return {feature: min(answer[feature] for answer in answers) for feature in sorted(known)}

    def log_starts_and_ends(
        self, topics: Sequence[str], *, timeout_s: float = 5.0
    ) -> Mapping[tuple[str, int], Sequence[PartitionOffsets]]:
        """Log start, high watermark and last stable offset of every partition, from each broker that takes itself for its
        leader (two, if one is a zombie). A partition for which nobody answers is not there."""
        deadline_ns = self._deadline_ns(timeout_s)
        per_node = self._each(
            self._cluster.observer_servers, lambda node: self._offsets_of(node, topics, deadline_ns) or {}
        )
        found: dict[tuple[str, int], list[PartitionOffsets]] = {}
        for offsets in per_node.values():
            for key, value in offsets.items():
                found.setdefault(key, []).append(value)
        return found

    # --- changes and configurations ---

    def create_topics(self, topics: Sequence[TopicSpec], *, timeout_s: float) -> None:
        """Create them as assigned, and return once the own view of every running broker has each of their partitions with
        a leader and whole ISR, and the leader has its log.

        BadInput: Kafka refuses the name, a property or the assignment. ClusterFailed: it refuses otherwise. NotReady: not
        whole in time, with what is lacking where.
        """
        if not topics:
            return
        deadline_ns = self._deadline_ns(timeout_s)
        requested = self._admin_client().create_topics(
            [
                NewTopic(
                    topic.name,
                    num_partitions=len(topic.assignment),
                    replica_assignment=[list(replicas) for replicas in topic.assignment],
                    config=dict(topic.properties),
                )
                for topic in topics
            ],
            request_timeout=timeout_s,
            operation_timeout=timeout_s,
        )
        for name, future in requested.items():
            _result(future, self._left_s(deadline_ns), what=f"create topic {name!r}")
        expected = {(t.name, number): frozenset(r) for t in topics for number, r in enumerate(t.assignment)}
        self._await_whole(expected, deadline_ns)

    def await_coordinators(self, group_ids: Collection[str], *, timeout_s: float) -> None:
        """Return once every living broker names a coordinator of each group that is at work; NotReady with what lacks."""
        await_coordinators(group_ids, self._brokers, self._running_brokers, clock=self._clock, timeout_s=timeout_s)

    def add_partitions(self, grown: Mapping[str, tuple[int, tuple[tuple[int, ...], ...]]], *, timeout_s: float) -> None:
        """Topic → (how many partitions it has, brokers of each new one); errors and return as of `create_topics`."""
        if not grown:
            return
        deadline_ns = self._deadline_ns(timeout_s)
        requested = self._admin_client().create_partitions(
            [
                NewPartitions(name, had + len(new), replica_assignment=[list(replicas) for replicas in new])
                for name, (had, new) in grown.items()
            ],
            request_timeout=timeout_s,
            operation_timeout=timeout_s,
        )
        for name, future in requested.items():
            _result(future, self._left_s(deadline_ns), what=f"add partitions to {name!r}")
        expected = {(n, had + i): frozenset(r) for n, (had, new) in grown.items() for i, r in enumerate(new)}
        self._await_whole(expected, deadline_ns)

    def delete_records(
        self, partitions: Sequence[tuple[str, int]], *, keep: int, timeout_s: float
    ) -> Mapping[tuple[str, int], int]:
        """All but the last `keep` records of each (topic, number), by its high watermark now → where its log begins now.
        ClusterFailed if the end of one is not told, or Kafka refuses."""
        deadline_ns = self._deadline_ns(timeout_s)
        told = self.log_starts_and_ends(sorted({topic for topic, _ in partitions}), timeout_s=timeout_s)
        before = []
        for topic, number in partitions:
            newest = max(told.get((topic, number), ()), key=lambda answer: answer.leader_epoch, default=None)
            if newest is None or newest.high_watermark is None:
                raise ClusterFailed(f"Where {topic}-{number} ends is not told, so its records cannot be deleted.")
            start = newest.log_start or 0
            before.append(TopicPartition(topic, number, max(start, newest.high_watermark - keep)))
        found = {}
        for partition, future in self._admin_client().delete_records(before, request_timeout=timeout_s).items():
            what = f"delete records of {partition.topic}-{partition.partition}"
            found[partition.topic, partition.partition] = int(
                _result(future, self._left_s(deadline_ns), what=what).low_watermark
            )
        return found

    def _await_whole(self, expected: Mapping[tuple[str, int], frozenset[int]], deadline_ns: int) -> None:
        """Until the own view of every running broker has each partition with a leader and whole ISR; NotReady with what is
        lacking where."""
        lacking = ["no broker was asked yet"]

        def whole() -> bool:
            lacking[0] = self._lacking(expected)
            return not lacking[0]

        wait_until(
            whole,
            awaited=f"{len(expected)} partitions with leader and whole ISR on every running broker's own view",
            timeout_s=max(0.0, self._left_s(deadline_ns)),
            clock=self._clock,
            last_seen=lambda: lacking[0],
        )

    def describe_configs(
        self, *, brokers: Sequence[int] = (), topics: Sequence[str] = (), timeout_s: float = 10.0
    ) -> Mapping[str, Mapping[str, str | None]]:
        """Effective properties by "broker:1", "topic:NAME" (a sensitive value is None). ClusterFailed if refused."""
        if not brokers and not topics:
            return {}
        resources = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in brokers]
        resources += [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        deadline_ns = self._deadline_ns(timeout_s)
        described = {}
        for resource, future in self._admin_client().describe_configs(resources, request_timeout=timeout_s).items():
            name = f"{resource.restype.name.lower()}:{resource.name}"
            entries = _result(future, self._left_s(deadline_ns), what=f"describe the configuration of {name}")
            described[name] = {key: entry.value for key, entry in entries.items()}
        return described

    # --- inside ---

    def _metadata(self, node_id: int, topics: Sequence[str], timeout_s: float) -> MetadataAnswer | None:
        answers = self._brokers.ask(node_id, metadata_request(topics), timeout_s=timeout_s)
        return None if answers is None else answers[0]

    def _ask(self, node_id: int, request: Request[T], deadline_ns: int) -> T | None:
        answers = self._brokers.ask(node_id, request, timeout_s=self._left_s(deadline_ns))
        return None if answers is None else answers[0]

    def _offsets_of(
        self, node_id: int, topics: Sequence[str], deadline_ns: int
    ) -> Mapping[tuple[str, int], PartitionOffsets] | None:
        metadata = self._ask(node_id, metadata_request(topics), deadline_ns)
        led: dict[str, list[int]] = {}
        for (topic, number), seen in (metadata.partitions if metadata else {}).items():
            if seen.leader == node_id:
                led.setdefault(topic, []).append(number)
        if not led:
            return None
        asked = (
            (EARLIEST, Isolation.READ_UNCOMMITTED),
            (LATEST, Isolation.READ_UNCOMMITTED),
            (LATEST, Isolation.READ_COMMITTED),
        )
        requests = [list_offsets_request(led, timestamp=timestamp, isolation=level) for timestamp, level in asked]
        answers = self._brokers.ask(node_id, *requests, timeout_s=self._left_s(deadline_ns))
        if answers is None:
            return None
        starts, watermarks, stable = answers
        return {
            key: PartitionOffsets(
                node_id, watermark.leader_epoch, _told(starts.get(key)), _told(watermark), _told(stable.get(key))
            )
            for key, watermark in watermarks.items()
        }

    def _lacking(self, expected: Mapping[tuple[str, int], frozenset[int]]) -> str:
        """What the first broker that lacks something lacks; "" = nothing."""
        running = self._running_brokers()
        if dead := frozenset().union(*expected.values()).difference(running):
            return f"of the brokers that hold replicas, {sorted(dead)} are not running"
        topics = sorted({topic for topic, _ in expected})
        views = self._each(running, lambda node: self.view(node, topics))
        for node, seen in views.items():
            if seen is None:
                return f"broker {node} does not answer"
            for key, replicas in expected.items():
                if (problem := _not_whole(seen.get(key), replicas)) is not None:
                    return f"on broker {node}, {key[0]}-{key[1]} {problem}"
        # A broker's view says that it leads before its log is there: it would refuse the first records until then.
        told = self.log_starts_and_ends(topics)
        silent = [key for key in expected if not any(found.high_watermark is not None for found in told.get(key, ()))]
        if silent:
            return f"of {len(silent)} partitions, such as {silent[0]}, the leader does not say where they end"
        return ""

    def _running_brokers(self) -> list[int]:
        nodes = self._cluster.nodes
        return [n.node_id for n in nodes if "broker" in n.roles and n.state() is NodeState.RUNNING]

    def _living_first(self) -> list[int]:
        running = self._running_brokers()
        return running + [node for node in self._cluster.observer_servers if node not in running]

    def _each(self, nodes: Sequence[int] | Mapping[int, object], call: Callable[[int], T]) -> dict[int, T]:
        futures: dict[int, Future[T]] = {node: self._threads.submit(call, node) for node in nodes}
        return {node: future.result() for node, future in futures.items()}

    def _zookeepers(self) -> Mapping[int, tuple[str, int]]:
        """Of a backend that runs them, those that could answer: a paused one would keep whoever asks it waiting."""
        servers: Mapping[int, tuple[str, int]] = getattr(self._cluster, "zookeeper_servers", {})
        if not servers:
            return servers
        running = {node.node_id for node in self._cluster.nodes if node.state() is NodeState.RUNNING}
        return {node: address for node, address in servers.items() if node in running}

    def _admin_client(self) -> AdminClient:
        if self._client is None:
            servers = ",".join(f"{host}:{port}" for host, port in self._cluster.observer_servers.values())
            self._client = AdminClient(
                {
                    "bootstrap.servers": servers,
                    "client.id": "prozess-admin",
                    "log_level": 0,
                    "reconnect.backoff.max.ms": 500,
                    # Whom it takes for the controller it learns from metadata alone, and waits for that one if it is down.
                    "topic.metadata.refresh.interval.ms": 1_000,
                    "socket.connection.setup.timeout.ms": 5_000,
                }
            )
        return self._client

    def _deadline_ns(self, timeout_s: float) -> int:
        return self._clock.monotonic_ns() + int(timeout_s * NS_PER_S)

    def _left_s(self, deadline_ns: int) -> float:
        return (deadline_ns - self._clock.monotonic_ns()) / NS_PER_S


def _close(brokers: WireClient, controllers: WireClient, threads: ThreadPoolExecutor) -> None:
    threads.shutdown(wait=True)
    brokers.close()
    controllers.close()


def _told(answer: OffsetAnswer | None) -> int | None:
    return answer.log_offset if answer is not None and answer.error == 0 and answer.log_offset >= 0 else None


def _not_whole(seen: PartitionView | None, replicas: frozenset[int]) -> str | None:
    if seen is None:
        return "is not known yet"
    if seen.leader < 0:
        return "has no leader"
    return None if frozenset(seen.isr) == replicas else f"has ISR {sorted(seen.isr)} of {sorted(replicas)}"


def _result(future: "Future[T]", timeout_s: float, *, what: str) -> T:
    """The result of a librdkafka call, with our errors."""
    try:
        return future.result(max(0.1, timeout_s))
    except TimeoutError as error:
        raise ClusterFailed(f"Kafka did not {what} in time.") from error
    except KafkaException as error:
        reason = error.args[0]
        if reason.code() in _USERS_FAULT:
            raise BadInput(
                f"Kafka refuses to {what}: {reason.str().rstrip('.')}. Change that value in the trial."
            ) from error
        raise ClusterFailed(f"Kafka refuses to {what}: {reason.name()}: {reason.str().rstrip('.')}.") from error
