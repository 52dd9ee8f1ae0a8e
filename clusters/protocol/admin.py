"""Administers Kafka over the observer's link: it makes, grows and truncates topics, and asks and changes what Kafka has.

Creating topics and reading configurations go through librdkafka; what exactly one node is asked, and what the nemesis
changes besides configurations, are requests of ours.
"""

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # they are in its __init__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from prozess.clusters.protocol.client import Request, WireClient
from prozess.clusters.protocol.login import wire_login
from prozess.clusters.protocol.readiness import await_coordinators
from prozess.clusters.protocol.requests import (
    DESCRIBE_QUORUM,
    DESCRIBE_TOPIC_PARTITIONS,
    EARLIEST,
    LATEST,
    NO_REASSIGNMENT_IN_PROGRESS,
    NOT_CONTROLLER,
    Assignments,
    DescribedPartition,
    EligibleReplicas,
    ListAnswer,
    MetadataAnswer,
    OffsetAnswer,
    PartitionAnswers,
    PartitionKey,
    QuorumAnswer,
    Reassignment,
    abort_marker_request,
    all_topics_request,
    alter_reassignments_request,
    api_versions_request,
    delete_topics_request,
    describe_producers_request,
    describe_quorum_request,
    describe_topic_partitions_request,
    elect_leaders_request,
    list_offsets_request,
    list_reassignments_request,
    list_transactions_request,
    metadata_request,
    topic_ids_request,
    update_feature_request,
)
from prozess.clusters.protocol.zookeeper import ZooKeeperClient
from prozess.harness.clock import NS_PER_S, Clock, SystemClock, wait_until
from prozess.harness.errors import BadInput, ClusterFailed, NotReady
from prozess.harness.interfaces import BrokerView, NodeState, PartitionView, TopicSpec
from prozess.harness.interfaces.cluster import CoordinatedTransaction, ObservedCluster, OpenTransaction
from prozess.harness.machine_record import Made
from prozess.harness.schema import Isolation

# Connections to a cluster's nodes over the observer's link: a question to exactly one of them, or to many at once.
#
# Raw requests (`prozess.clusters.protocol.client`) go to the node that is named, because a client library may ask any
# broker. librdkafka is bootstrapped on the observer's listeners: brokers then advertise those listeners, so that no
# fault is in the way.


T = TypeVar("T")
_ASKED_AGAIN = (KafkaError.REQUEST_TIMED_OUT, NOT_CONTROLLER)
"""What the broker says that could not reach the active controller, and one that is not it."""


class AdminConnections:
    """The connections that `Admin` uses. Safe from many threads."""

    def __init__(self, cluster: ObservedCluster, *, clock: Clock | None = None) -> None:
        self._cluster = cluster
        self._clock = clock or SystemClock()
        self._login = cluster.login
        self._brokers = WireClient(
            lambda: cluster.observer_servers,
            name="broker",
            clock=self._clock,
            login=wire_login(self._login, self._clock),
        )
        self._controllers = WireClient(lambda: cluster.controller_servers, name="controller", clock=self._clock)
        self._zookeeper = ZooKeeperClient(self._zookeepers, clock=self._clock)
        self._threads = ThreadPoolExecutor(max_workers=16, thread_name_prefix="observer")
        self._client: AdminClient | None = None
        # Anyone who forgets `close` must not leave sockets to the garbage collector.
        self._finalizer = weakref.finalize(self, _close, self._brokers, self._controllers, self._threads)

    def close(self) -> None:
        """Gives back connections and threads. Safe to call twice; the object is of no use afterwards."""
        self._finalizer()
        self._client = None

    def _ask(self, node_id: int, request: Request[T], deadline_ns: int) -> T | None:
        answers = self._brokers.ask(node_id, request, timeout_s=self._left_s(deadline_ns))
        return None if answers is None else answers[0]

    def _each(self, nodes: Sequence[int] | Mapping[int, object], call: Callable[[int], T]) -> dict[int, T]:
        futures: dict[int, Future[T]] = {node: self._threads.submit(call, node) for node in nodes}
        return {node: future.result() for node, future in futures.items()}

    def _running_brokers(self) -> list[int]:
        nodes = self._cluster.nodes
        return [n.node_id for n in nodes if "broker" in n.roles and n.state() is NodeState.RUNNING]

    def _living_first(self) -> list[int]:
        running = self._running_brokers()
        return running + [node for node in self._cluster.observer_servers if node not in running]

    def _zookeepers(self) -> Mapping[int, tuple[str, int]]:
        """The ZooKeeper servers that could answer, of a backend that runs them: a paused one would keep the caller
        waiting."""
        servers = self._cluster.zookeeper_servers
        if not servers:
            return servers
        running = {node.node_id for node in self._cluster.nodes if node.state() is NodeState.RUNNING}
        return {node: address for node, address in servers.items() if node in running}

    def _admin_client(self) -> AdminClient:
        if self._client is None:
            servers = ",".join(f"{host}:{port}" for host, port in self._cluster.observer_servers.values())
            self._client = AdminClient(
                {
                    **({} if self._login is None else self._login.properties),
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


# What each node says, asked of exactly that node: views, quorum, features and offsets.
#
# They are raw requests (`prozess.clusters.protocol.requests`), because a client library may ask any broker and a
# zombie lies.


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Describes what a broker that takes itself for the leader says of a partition's offsets. None if it did not say."""

    node: int
    leader_epoch: int
    """The leader epoch in which it reported the high watermark; NONE if it was not reported."""
    log_start: int | None
    high_watermark: int | None
    last_stable_offset: int | None


class AdminViews(AdminConnections):
    """The part of `Admin` that asks the cluster, and changes nothing."""

    # --- brokers ---

    def view(self, node_id: int, topics: Sequence[str], *, timeout_s: float = 2.0) -> BrokerView | None:
        """Asks exactly this broker about these topics; None if it does not answer. Topics that it does not know are left
        out."""
        answer = self._metadata(node_id, topics, timeout_s)
        return None if answer is None else answer.partitions

    def views(self, topics: Sequence[str], *, timeout_s: float = 2.0) -> Mapping[int, BrokerView | None]:
        """Asks every broker for its `view`, in parallel, all together within `timeout_s`."""
        return self._each(self._cluster.observer_servers, lambda node: self.view(node, topics, timeout_s=timeout_s))

    def topic_ids(self, topics: Collection[str], *, timeout_s: float = 5.0) -> Mapping[str, UUID]:
        """Asks the first broker that answers. Topics that it does not know, or that have no id, are left out."""
        deadline_ns = self._deadline_ns(timeout_s)
        for node_id in self._living_first():
            if (found := self._ask(node_id, topic_ids_request(sorted(topics)), deadline_ns)) is not None:
                return found
        return {}

    def living_brokers(self, node_id: int, *, timeout_s: float = 2.0) -> frozenset[int] | None:
        """The ids of the brokers that this broker names as alive (unfenced); None if it does not answer."""
        answer = self._metadata(node_id, (), timeout_s)
        return None if answer is None else answer.brokers

    def elr(
        self, topics: Sequence[str], *, timeout_s: float = 5.0
    ) -> Mapping[tuple[str, int], EligibleReplicas] | None:
        """The eligible leader replicas (KIP-966) as the first broker that answers sees them.

        None if the brokers cannot report (older than 3.8), or none answers."""
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

    def described(
        self, node_id: int, topics: Sequence[str], *, timeout_s: float = 2.0
    ) -> Mapping[tuple[str, int], DescribedPartition] | None:
        """Returns what exactly this broker's copy of the metadata says of these topics (KIP-966).

        None if it does not answer, or is older than 3.8 and cannot."""
        deadline_ns = self._deadline_ns(timeout_s)
        versions = self._ask(node_id, api_versions_request(), deadline_ns)
        if versions is None or DESCRIBE_TOPIC_PARTITIONS not in versions.apis:
            return None
        found: dict[tuple[str, int], DescribedPartition] = {}
        page = None
        while (
            answer := self._ask(node_id, describe_topic_partitions_request(topics, page=page), deadline_ns)
        ) is not None:
            found |= answer.described
            if (page := answer.next_page) is None:
                return found
        return None

    def everything(self, node_id: int, *, timeout_s: float) -> MetadataAnswer | None:
        """Asks exactly this broker for all brokers and all topics that we may describe; None if it does not answer."""
        return self._ask(node_id, all_topics_request(), self._deadline_ns(timeout_s))

    def is_kraft(self, node_id: int, *, timeout_s: float = 2.0) -> bool | None:
        """Returns whether this broker can be asked about a quorum of controllers (KIP-595); None if it does not answer."""
        answer = self._ask(node_id, api_versions_request(), self._deadline_ns(timeout_s))
        return None if answer is None else DESCRIBE_QUORUM in answer.apis

    def answers(self, node_id: int, *, timeout_s: float) -> bool:
        """Asks exactly this broker for the brokers that it knows. Returns whether it answered."""
        return self._ask(node_id, metadata_request(()), self._deadline_ns(timeout_s)) is not None

    def controller_answers(self, node_id: int, *, timeout_s: float) -> bool:
        """Asks this broker what only the active controller knows: in KRaft it forwards the question (KIP-590). Returns
        whether an answer came, or a definite error. One for which a client makes the call again is none."""
        deadline_ns = self._deadline_ns(timeout_s)
        answer = self._ask(node_id, list_reassignments_request(timeout_ms=int(timeout_s * 1000)), deadline_ns)
        return answer is not None and answer.whole.error not in _ASKED_AGAIN

    def _metadata(self, node_id: int, topics: Sequence[str], timeout_s: float) -> MetadataAnswer | None:
        answers = self._brokers.ask(node_id, metadata_request(topics), timeout_s=timeout_s)
        return None if answers is None else answers[0]

    # --- controllers ---

    def zookeeper_leader(self, *, timeout_s: float = 2.0) -> int | None:
        """The node id of the ZooKeeper server that leads the ensemble; None if none says that it does."""
        return self._zookeeper.leader(timeout_s=timeout_s)

    def zookeeper_serving(self, *, timeout_s: float = 2.0) -> frozenset[int]:
        """Returns the node ids of the ZooKeeper servers that say that they lead or follow."""
        states = self._zookeeper.states(timeout_s=timeout_s)
        return frozenset(node for node, state in states.items() if state is not None)

    def active_controller(self, *, timeout_s: float = 2.0) -> int | None:
        """The node id of the active controller; None if there is none.

        With ZooKeeper it is the broker that `/controller` names. In KRaft it is the controller that answers DescribeQuorum as
        leader; of several (one is deposed and does not know) the one with the highest epoch. The others answer with an error,
        or name somebody else."""
        if self._cluster.zookeeper_servers:
            return self._zookeeper.controller(timeout_s=timeout_s)
        answer = self._quorum(timeout_s)
        return None if answer is None else answer.leader

    def quorum_leader(self, *, timeout_s: float = 2.0) -> tuple[int, int] | None:
        """The node id and the epoch of the active controller, by DescribeQuorum (KIP-595); None if nobody says."""
        answer = self._quorum(timeout_s)
        return None if answer is None or answer.leader < 0 else (answer.leader, answer.leader_epoch)

    def quorum_ends(self, *, timeout_s: float = 2.0) -> Mapping[int, int] | None:
        """Returns where each controller's copy of the metadata log ends, as the active controller knows by their
        fetches.

        None if none claims to be active. A controller that is away keeps its last value."""
        answer = self._quorum(timeout_s)
        return None if answer is None else answer.voters

    def _quorum(self, timeout_s: float) -> QuorumAnswer | None:
        if not self._cluster.controller_servers:
            return self._quorum_by_brokers(timeout_s)
        replies = self._each(
            self._cluster.controller_servers,
            lambda node: self._controllers.ask(node, describe_quorum_request(), timeout_s=timeout_s),
        )
        answers = [
            found[0] for node, found in replies.items() if found and found[0].error == 0 and found[0].leader == node
        ]
        return max(answers, key=lambda answer: answer.leader_epoch, default=None)

    def _quorum_by_brokers(self, timeout_s: float) -> QuorumAnswer | None:
        """Asks brokers about the quorum where no controller is reached: they ask the one that they take for active
        (KIP-595)."""
        replies = self._each(
            self._cluster.observer_servers,
            lambda node: self._brokers.ask(node, describe_quorum_request(), timeout_s=timeout_s),
        )
        answers = [found[0] for found in replies.values() if found and found[0].error == 0]
        return max(answers, key=lambda answer: answer.leader_epoch, default=None)

    # --- features ---

    def features(self, *, timeout_s: float = 5.0) -> Mapping[str, int]:
        """The finalized feature levels that the first broker that answers knows; it may leave out a level of 0.

        NotReady if none answers."""
        deadline_ns = self._deadline_ns(timeout_s)
        for node_id in self._living_first():
            answer = self._ask(node_id, api_versions_request(), deadline_ns)
            if answer is not None:
                return answer.features
        raise NotReady(awaited="feature levels from any broker", timeout_s=timeout_s, last_seen="no broker answered")

    def supported_features(self, *, brokers: Sequence[int] | None = None, timeout_s: float = 5.0) -> Mapping[str, int]:
        """Returns the highest level of each feature that all of these brokers (None: all that live) say. NotReady if
        one is silent."""
        deadline_ns = self._deadline_ns(timeout_s)
        asked = self._running_brokers() if brokers is None else brokers
        replies = [self._ask(node, api_versions_request(), deadline_ns) for node in asked]
        answers = [answer.supported for answer in replies if answer is not None]
        if not answers or len(answers) < len(replies):
            silent = f"{len(replies) - len(answers)} of {len(replies)} brokers did not answer"
            raise NotReady(awaited="what features every broker supports", timeout_s=timeout_s, last_seen=silent)
        known = set.intersection(*(set(answer) for answer in answers))
        return {feature: min(answer[feature] for answer in answers) for feature in sorted(known)}

    # --- offsets ---

    def log_starts_and_ends(
        self, topics: Sequence[str], *, timeout_s: float = 5.0
    ) -> Mapping[tuple[str, int], Sequence[PartitionOffsets]]:
        """Returns the log start, high watermark and last stable offset of every partition, from each broker that claims
        to lead it.

        Two brokers may, if one is a zombie. A partition for which nobody answers is left out."""
        deadline_ns = self._deadline_ns(timeout_s)
        per_node = self._each(
            self._cluster.observer_servers, lambda node: self._offsets_of(node, topics, deadline_ns) or {}
        )
        found: dict[tuple[str, int], list[PartitionOffsets]] = {}
        for offsets in per_node.values():
            for key, value in offsets.items():
                found.setdefault(key, []).append(value)
        return found

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
                node_id,
                watermark.leader_epoch,
                _offset_of(starts.get(key)),
                _offset_of(watermark),
                _offset_of(stable.get(key)),
            )
            for key, watermark in watermarks.items()
        }


def _offset_of(answer: OffsetAnswer | None) -> int | None:
    return answer.log_offset if answer is not None and answer.error == 0 and answer.log_offset >= 0 else None


# Transactions that are open in partitions, what coordinators know of them, and the end of one that nobody else ends.


class AdminTransactions(AdminViews):
    """The part of `Admin` that does what `kafka-transactions.sh` does (KIP-664)."""

    def open_transactions(
        self, partitions: Collection[PartitionKey], *, timeout_s: float = 5.0
    ) -> Mapping[PartitionKey, Sequence[OpenTransaction]]:
        """Returns the open transactions of each (topic, number) by its leader, the oldest first. It is left out if the
        leader is silent."""
        deadline_ns = self._deadline_ns(timeout_s)
        asked: dict[int, dict[str, list[int]]] = {}
        for (topic, number), leader in self._leaders(partitions, deadline_ns).items():
            asked.setdefault(leader, {}).setdefault(topic, []).append(number)
        answers = self._each(
            asked, lambda leader: self._ask(leader, describe_producers_request(asked[leader]), deadline_ns) or {}
        )
        return {key: opened for answer in answers.values() for key, opened in answer.items()}

    def coordinated_transactions(self, *, timeout_s: float = 5.0) -> Sequence[CoordinatedTransaction] | None:
        """Returns the transactions that all coordinators know. None if a broker does not answer, or is still loading."""
        deadline_ns = self._deadline_ns(timeout_s)
        answers = self._each(
            self._cluster.observer_servers, lambda node: self._ask(node, list_transactions_request(), deadline_ns)
        )
        found: list[CoordinatedTransaction] = []
        for answer in answers.values():
            if answer is None:
                return None
            found += answer
        return found

    def abort_transaction(
        self, partition: PartitionKey, transaction: OpenTransaction, *, timeout_s: float = 10.0
    ) -> str:
        """Has the leader write the marker that ends a transaction in this partition; "" once it is written, else why not."""
        deadline_ns = self._deadline_ns(timeout_s)
        leader = self._leaders([partition], deadline_ns).get(partition)
        if leader is None:
            return "no broker says who leads the partition"
        answer = self._ask(leader, abort_marker_request(partition, transaction), deadline_ns)
        if answer is None:
            return f"broker {leader}, which leads the partition, did not answer the request to write an abort marker"
        error = KafkaError(answer.get(partition, KafkaError.UNKNOWN))
        if error.code() == KafkaError.NO_ERROR:
            return ""
        return f"broker {leader} refused to write an abort marker: {error.name()}: {error.str().rstrip('.')}"

    def _leaders(self, partitions: Collection[PartitionKey], deadline_ns: int) -> Mapping[PartitionKey, int]:
        """The leader of each partition by the newest of all brokers' own views; one without a leader is left out."""
        topics = sorted({topic for topic, _ in partitions})
        views = self.views(topics, timeout_s=self._left_s(deadline_ns)).values()
        found = {}
        for key in partitions:
            seen = [view[key] for view in views if view is not None and key in view]
            newest = max(seen, key=lambda one: one.leader_epoch, default=None)
            if newest is not None and newest.leader >= 0:
                found[key] = newest.leader
        return found


# What the nemesis asks Kafka to change about itself: leaders, replicas, configurations. Over the observer's link.
#
# Configurations go through librdkafka. Reassignments, which it does not know, are requests of ours, and so are
# elections: that call of confluent_kafka 2.16.1 takes no timeout ("more argument specifiers than keyword list
# entries").


_OWN_SOURCE = {
    "topic": ConfigSource.DYNAMIC_TOPIC_CONFIG,
    "broker": ConfigSource.DYNAMIC_BROKER_CONFIG,
}
_ONE_BROKER_S = 5.0
"""How long a broker may take before the next one is asked; the broker itself waits for the controller."""


class AdminChanges(AdminConnections):
    """The part of `Admin` that changes Kafka. Every call ends within its `timeout_s`, or a moment later."""

    def update_feature(self, feature: str, level: int, *, timeout_s: float) -> None:
        """Raises the finalized level of a feature (KIP-584). ClusterFailed, with the reason, if it is refused."""
        request = update_feature_request(feature, level, timeout_ms=int(timeout_s * 1000))
        self._ask_any(request, timeout_s, what=f"to finalize {feature} = {level}")

    # --- leaders ---

    def elect_leaders(
        self, partitions: Sequence[PartitionKey], *, unclean: bool, timeout_s: float
    ) -> Mapping[PartitionKey, str]:
        """Asks for an election of each (KIP-460), of the preferred replica or, with `unclean`, of any.

        Returns those that Kafka did not elect, with the reason (ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, …).
        ClusterFailed if it refuses it all."""
        request = elect_leaders_request(partitions, unclean=unclean, timeout_ms=int(timeout_s * 1000))
        answer = self._ask_any(request, timeout_s, what="to elect leaders")
        return {key: refusal.text for key, refusal in answer.partitions.items() if refusal.error}

    # --- replicas ---

    def delete_topics(self, ids: Sequence[UUID], *, timeout_s: float) -> None:
        """Deletes topics by their ids, so that one which got the name of an old one stays. Safe where they are gone.

        ClusterFailed if Kafka refuses."""
        answer = self._ask_any(
            delete_topics_request(ids, timeout_ms=int(timeout_s * 1000)), timeout_s, what="deletion of topics"
        )
        for topic_id, refusal in answer.refused.items():
            raise ClusterFailed(f"The topic with the id {topic_id} could not be deleted: {refusal.text}.")

    def reassign(self, assignments: Assignments, *, timeout_s: float) -> None:
        """Begins to move replicas (KIP-455), and returns once that is accepted, which is before it is done.

        None gives up what is under way, if anything is. ClusterFailed, with the reason, if a partition is refused or
        nobody answers."""
        request = alter_reassignments_request(assignments, timeout_ms=int(timeout_s * 1000))
        answer: PartitionAnswers = self._ask_any(request, timeout_s, what="to reassign partitions")
        harmless = (0, NO_REASSIGNMENT_IN_PROGRESS)
        for (topic, number), refusal in answer.partitions.items():
            if refusal.error not in harmless:
                raise ClusterFailed(f"Kafka refuses to reassign {topic}-{number}: {refusal.text}.")

    def reassignments(self, *, timeout_s: float = 10.0) -> Mapping[PartitionKey, Reassignment]:
        """The reassignments that are under way. ClusterFailed if nobody answers."""
        request = list_reassignments_request(timeout_ms=int(timeout_s * 1000))
        answer: ListAnswer = self._ask_any(request, timeout_s, what="for the reassignments under way")
        return answer.partitions

    def _ask_any(self, request: Request[T], timeout_s: float, *, what: str) -> T:
        """Asks the brokers, first those that run, until one can say.

        With ZooKeeper only the controller can: the others say so, of the whole or of each partition (ElectLeaders), and
        have done nothing."""
        deadline_ns, last = self._deadline_ns(timeout_s), "nobody answered"
        for broker in self._living_first():
            if (left_s := self._left_s(deadline_ns)) <= 0:
                break
            answer = self._ask(broker, request, self._deadline_ns(min(left_s, _ONE_BROKER_S)))
            if answer is None:
                continue
            whole = answer.whole  # type: ignore[attr-defined] # PartitionAnswers or ListAnswer
            refusals = [whole, *(answer.partitions.values() if isinstance(answer, PartitionAnswers) else ())]
            elsewhere = next((refusal for refusal in refusals if refusal.error == NOT_CONTROLLER), None)
            if whole.error == 0 and elsewhere is None:
                return answer
            last = f"broker {broker}: {(elsewhere or whole).text}"
        raise ClusterFailed(f"No broker can be asked {what}: {last}.")

    # --- configurations ---

    def own_configs(self, resource: str, *, timeout_s: float = 10.0) -> Mapping[str, str]:
        """Returns the settings of exactly this resource ("topic:NAME", "broker:1"), without those that it gets from
        elsewhere.

        ClusterFailed if it is refused, or if the broker does not answer."""
        asked = _resource(resource)
        try:
            (future,) = self._admin_client().describe_configs([asked], request_timeout=timeout_s).values()
            entries = future.result(timeout_s + 1)
        except (KafkaException, TimeoutError) as error:
            raise ClusterFailed(f"Kafka did not give the configuration of {resource}: {_words(error)}.") from error
        own = _OWN_SOURCE[resource.partition(":")[0]].value
        return {key: entry.value for key, entry in entries.items() if entry.source == own and entry.value is not None}

    def alter_configs(self, resource: str, properties: Mapping[str, str | None], *, timeout_s: float = 10.0) -> None:
        """Sets these properties of this resource and no others (KIP-339); None stands for "never set".

        ClusterFailed if Kafka refuses."""
        changes = [
            ConfigEntry(
                key,
                "" if value is None else value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in properties.items()
        ]
        asked = _resource(resource, changes)
        try:
            (future,) = self._admin_client().incremental_alter_configs([asked], request_timeout=timeout_s).values()
            future.result(timeout_s + 1)
        except (KafkaException, TimeoutError) as error:
            raise ClusterFailed(f"Kafka refuses to change the configuration of {resource}: {_words(error)}.") from error


def _resource(text: str, changes: Sequence[ConfigEntry] = ()) -> ConfigResource:
    kind, _, name = text.partition(":")
    return ConfigResource(
        {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER}[kind],
        name,
        incremental_configs=list(changes) or None,
    )


def _words(error: Exception) -> str:
    if isinstance(error, KafkaException):
        reason = error.args[0]
        return f"{reason.name().lstrip('_')}: {reason.str().rstrip('.')}"
    return "no answer in time"


_USERS_FAULT = {
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_REPLICA_ASSIGNMENT,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_EXCEPTION,
}


class Admin(AdminTransactions, AdminChanges):
    """Administers every cluster whose brokers speak Kafka's protocol. Safe from many threads.

    `made`: where the ids of topics are written down as soon as they are made, for a cluster that outlives the run."""

    def __init__(self, cluster: ObservedCluster, *, clock: Clock | None = None, made: Made | None = None) -> None:
        super().__init__(cluster, clock=clock)
        self._made = made

    def create_topics(self, topics: Sequence[TopicSpec], *, timeout_s: float, whole: bool = True) -> None:
        """Creates topics as assigned, and returns once they are whole; `whole` = False: once the controller has them.

        They are once the own view of every running broker has each of their partitions with a leader and whole ISR, and the
        leader has its log.

        BadInput: Kafka refuses the name, a property or the assignment. ClusterFailed: it refuses otherwise. NotReady: not
        whole in time, with what is lacking where.
        """
        if not topics:
            return
        deadline_ns = self._deadline_ns(timeout_s)
        if self._made is not None:
            self._made.begin("topic", [topic.name for topic in topics])
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
        if self._made is not None:
            self._made.made(self.topic_ids([topic.name for topic in topics]))
        expected = {(t.name, number): frozenset(r) for t in topics for number, r in enumerate(t.assignment)}
        if whole:
            self._await_whole(expected, deadline_ns)

    def await_coordinators(self, group_ids: Collection[str], *, timeout_s: float) -> None:
        """Returns once every living broker names a working coordinator for each group; NotReady with what is lacking."""
        await_coordinators(group_ids, self._brokers, self._running_brokers, clock=self._clock, timeout_s=timeout_s)

    def add_partitions(self, grown: Mapping[str, tuple[int, tuple[tuple[int, ...], ...]]], *, timeout_s: float) -> None:
        """Adds partitions: topic → (how many it has, brokers of each new one). Errors and return as of `create_topics`."""
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
        """Deletes all but the last `keep` records of each (topic, number), by its high watermark now.

        Returns where each log begins now. ClusterFailed if the end of one is not reported, or Kafka refuses."""
        deadline_ns = self._deadline_ns(timeout_s)
        ends = self.log_starts_and_ends(sorted({topic for topic, _ in partitions}), timeout_s=timeout_s)
        before = []
        for topic, number in partitions:
            newest = max(ends.get((topic, number), ()), key=lambda answer: answer.leader_epoch, default=None)
            if newest is None or newest.high_watermark is None:
                raise ClusterFailed(
                    f"No broker answered where {topic}-{number} ends, so its records cannot be deleted."
                )
            start = newest.log_start or 0
            before.append(TopicPartition(topic, number, max(start, newest.high_watermark - keep)))
        found = {}
        for partition, future in self._admin_client().delete_records(before, request_timeout=timeout_s).items():
            what = f"delete records of {partition.topic}-{partition.partition}"
            found[partition.topic, partition.partition] = int(
                _result(future, self._left_s(deadline_ns), what=what).low_watermark
            )
        return found

    def describe_configs(
        self, *, brokers: Sequence[int] = (), topics: Sequence[str] = (), timeout_s: float = 10.0
    ) -> Mapping[str, Mapping[str, str | None]]:
        """The effective properties by "broker:1", "topic:NAME" (a sensitive value is None). ClusterFailed if refused."""
        if not brokers and not topics:
            return {}
        resources = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in brokers]
        resources += [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        deadline_ns = self._deadline_ns(timeout_s)
        described, client = {}, self._admin_client()
        # One resource a call: librdkafka asks a broker itself, and takes no two of them at once.
        futures = {r: client.describe_configs([r], request_timeout=timeout_s)[r] for r in resources}
        for resource, future in futures.items():
            name = f"{resource.restype.name.lower()}:{resource.name}"
            entries = _result(future, self._left_s(deadline_ns), what=f"describe the configuration of {name}")
            described[name] = {key: entry.value for key, entry in entries.items()}
        return described

    def _await_whole(self, expected: Mapping[tuple[str, int], frozenset[int]], deadline_ns: int) -> None:
        """Waits until the own view of every running broker has each partition with a leader and whole ISR.

        NotReady with what is lacking where."""
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

    def _lacking(self, expected: Mapping[tuple[str, int], frozenset[int]]) -> str:
        """Returns what the first broker that lacks something lacks; "" if none does."""
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
        ends = self.log_starts_and_ends(topics)
        silent = [key for key in expected if not any(found.high_watermark is not None for found in ends.get(key, ()))]
        if silent:
            return f"of {len(silent)} partitions, such as {silent[0]}, the leader does not say where they end"
        return ""


def _not_whole(seen: PartitionView | None, replicas: frozenset[int]) -> str | None:
    if seen is None:
        return "is not known yet"
    if seen.leader < 0:
        return "has no leader"
    return None if frozenset(seen.isr) == replicas else f"has ISR {sorted(seen.isr)} of {sorted(replicas)}"


def _result(future: "Future[T]", timeout_s: float, *, what: str) -> T:
    """Returns the result of a librdkafka call; its errors become ours."""
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
