"""Asks each node over the observer's link for its JMX metrics, and for what Kafka's protocol says.

One node is asked per call, so that one that hangs holds up no other. Every call ends within about its limit, and None means:
this node did not answer.
"""

import http.client
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prozess.clusters.protocol.admin import Admin
from prozess.clusters.protocol.client import WireClient
from prozess.clusters.protocol.login import wire_login
from prozess.clusters.protocol.requests import (
    EARLIEST,
    LATEST,
    OffsetAnswers,
    OpenTransactions,
    describe_producers_request,
    describe_quorum_request,
    list_offsets_request,
    list_transactions_request,
    metadata_request,
)
from prozess.harness.clock import NS_PER_S, Clock, SystemClock
from prozess.harness.errors import ClusterFailed
from prozess.harness.interfaces.cluster import ObservedCluster, OpenTransaction
from prozess.harness.recording import jolokia
from prozess.harness.recording.jolokia import HEADERS, JSON, PATH, Attribute, is_number
from prozess.harness.recording.metrics import errors_metric
from prozess.harness.schema import NONE, Isolation


@dataclass(frozen=True, slots=True)
class LeaderState:
    """Describes what a broker that takes itself for the leader says of a partition. None if it did not say."""

    leader_epoch: int
    isr_size: int
    high_watermark: int | None
    last_stable_offset: int | None
    watermark_epoch: int = NONE
    """The leader epoch in which it reported the high watermark; NONE if it was not reported."""
    transactions: tuple[OpenTransaction, ...] | None = None
    """The open transactions, the oldest first; asked only where the last stable offset is behind the high watermark."""
    log_start: int | None = None


class MetricsObserver:
    """Observes every cluster whose nodes the observer reaches.

    Safe from many threads, but for `jmx` only one at a time per node."""

    def __init__(self, cluster: ObservedCluster, *, clock: Clock | None = None) -> None:
        self._cluster = cluster
        self._clock = clock or SystemClock()
        self._servers = cluster.metrics_servers
        with_zookeeper = any("zookeeper" in node.roles for node in cluster.nodes)
        self._attributes = {
            node.node_id: attributes_of(node.roles, with_zookeeper=with_zookeeper) for node in cluster.nodes
        }
        login = wire_login(cluster.login, self._clock)
        self._brokers = WireClient(lambda: cluster.observer_servers, name="broker", clock=self._clock, login=login)
        self._controllers = WireClient(lambda: cluster.controller_servers, name="controller", clock=self._clock)
        self._admin = Admin(cluster, clock=self._clock)
        self._agents = {node: _Agent(address, self._attributes[node]) for node, address in self._servers.items()}

    @property
    def brokers(self) -> tuple[int, ...]:
        """Returns the ids of the nodes that speak the brokers' part of the protocol."""
        return tuple(self._cluster.observer_servers)

    @property
    def controllers(self) -> tuple[int, ...]:
        """The ids of the controllers that can be asked."""
        return tuple(self._cluster.controller_servers)

    def expected(self, node_id: int) -> tuple[str, ...]:
        """The metrics that JMX of this node should say, whether it can be asked or not."""
        return tuple(attribute.metric for attribute in self._attributes[node_id])

    def jmx(self, node_id: int, *, timeout_s: float) -> Mapping[str, float | None] | None:
        """Asks one node for its JMX metrics. A value is None if the node does not know it."""
        agent = self._agents.get(node_id)
        return None if agent is None else agent.ask(timeout_s=timeout_s)

    def led_by(
        self, node_id: int, topics: Sequence[str], *, timeout_s: float
    ) -> Mapping[tuple[str, int], LeaderState] | None:
        """Asks a broker about the partitions that it takes itself for the leader of: (topic, number) → state."""
        deadline_ns = self._clock.monotonic_ns() + int(timeout_s * NS_PER_S)
        answered = self._brokers.ask(node_id, metadata_request(topics), timeout_s=timeout_s)
        if answered is None:
            return None
        views = {key: view for key, view in answered[0].partitions.items() if view.leader == node_id}
        led: dict[str, list[int]] = {}
        for topic, number in views:
            led.setdefault(topic, []).append(number)
        if not led:
            return {}
        levels = (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)
        requests = [list_offsets_request(led, timestamp=LATEST, isolation=level) for level in levels]
        requests.append(list_offsets_request(led, timestamp=EARLIEST, isolation=Isolation.READ_UNCOMMITTED))
        left_s = (deadline_ns - self._clock.monotonic_ns()) / NS_PER_S
        offsets = self._brokers.ask(node_id, *requests, timeout_s=left_s)
        if offsets is None:
            return None
        unstable = [key for key in views if _is_unstable(offsets[:2], key)]
        left_s = (deadline_ns - self._clock.monotonic_ns()) / NS_PER_S
        opened = self._opened(node_id, unstable, timeout_s=left_s) if unstable else {}
        found = [{key: o.log_offset for key, o in by_key.items() if o.error == 0 <= o.log_offset} for by_key in offsets]
        return {
            key: LeaderState(
                view.leader_epoch,
                len(view.isr),
                found[0].get(key),
                found[1].get(key),
                watermark_epoch=offsets[0][key].leader_epoch if key in found[0] else NONE,
                transactions=opened.get(key) if key in unstable else () if key in found[1] else None,
                log_start=found[2].get(key),
            )
            for key, view in views.items()
        }

    def first_since(
        self, node_id: int, asked_ms: Mapping[tuple[str, int], int], *, timeout_s: float
    ) -> OffsetAnswers | None:
        """Asks a broker for the first record of each of these partitions, (topic, number), since a time. One that does not
        lead one answers with an error."""
        topics: dict[str, list[int]] = {}
        for topic, number in asked_ms:
            topics.setdefault(topic, []).append(number)
        request = list_offsets_request(topics, timestamp=asked_ms, isolation=Isolation.READ_UNCOMMITTED)
        answered = self._brokers.ask(node_id, request, timeout_s=timeout_s)
        return None if answered is None else answered[0]

    def _opened(self, node_id: int, keys: Sequence[tuple[str, int]], *, timeout_s: float) -> OpenTransactions:
        asked: dict[str, list[int]] = {}
        for topic, number in keys:
            asked.setdefault(topic, []).append(number)
        answered = self._brokers.ask(node_id, describe_producers_request(asked), timeout_s=timeout_s)
        return {} if answered is None else answered[0]

    def open_transactions(self, node_id: int, *, timeout_s: float) -> int | None:
        """Asks a coordinator how many transactions are ongoing."""
        answered = self._brokers.ask(node_id, list_transactions_request(["Ongoing"]), timeout_s=timeout_s)
        return None if answered is None or answered[0] is None else len(answered[0])

    def quorum(self, node_id: int, *, timeout_s: float) -> tuple[int, int] | None:
        """Asks a controller for the leader and the epoch of the metadata log. None: it is not the leader, or silent."""
        answered = self._controllers.ask(node_id, describe_quorum_request(), timeout_s=timeout_s)
        if answered is None or answered[0].leader_epoch < 0:
            return None
        return answered[0].leader, answered[0].leader_epoch

    def elr_sizes(self, topics: Sequence[str], *, timeout_s: float) -> Mapping[tuple[str, int], int] | None:
        """Asks for the number of eligible leader replicas by (topic, number); None if no broker says."""
        found = self._admin.elr(topics, timeout_s=timeout_s)
        return None if found is None else {key: len(replicas.elr) for key, replicas in found.items()}

    def close(self) -> None:
        """Gives back connections and threads."""
        for agent in self._agents.values():
            agent.close()
        self._brokers.close()
        self._controllers.close()
        self._admin.close()


def _is_unstable(offsets: Sequence[OffsetAnswers], key: tuple[str, int]) -> bool:
    """Is the last stable offset behind the high watermark?"""
    high, stable = (by_key.get(key) for by_key in offsets)
    return (
        high is not None
        and stable is not None
        and high.error == stable.error == 0 <= stable.log_offset < high.log_offset
    )


class _Agent:
    """The metrics agent of one node, over a connection that is kept while it works."""

    def __init__(self, address: tuple[str, int], attributes: Sequence[Attribute]) -> None:
        self._host, self._port = address
        self._attributes = attributes
        self._body = json.dumps(reads(attributes))
        self._connection: http.client.HTTPConnection | None = None
        self._lock = threading.Lock()

    def ask(self, *, timeout_s: float) -> Mapping[str, float | None] | None:
        with self._lock:
            for _ in range(2):
                kept = self._connection is not None
                try:
                    return self._exchange(timeout_s)
                except TimeoutError:
                    self._drop()
                    return None
                except (OSError, http.client.HTTPException):
                    self._drop()
                    if not kept:
                        return None  # a kept connection may be one of an earlier incarnation: a new one says
            return None

    def _exchange(self, timeout_s: float) -> Mapping[str, float | None] | None:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        self._connection.request("POST", PATH, self._body, HEADERS)
        response = self._connection.getresponse()
        text = response.read()
        try:
            answers: Any = json.loads(text)
        except ValueError as error:
            raise ClusterFailed(
                f"What listens at {self._host}:{self._port} is no metrics agent: it answers {text[:80]!r}."
            ) from error
        return values(self._attributes, answers) if isinstance(answers, list) else None

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


# Which MBean and attribute each metric of `prozess.harness.recording.metrics` is, in Kafka 3.x and 4.x.
#
# Names: https://kafka.apache.org/documentation/#monitoring. Gauges have `Value`, meters `Count`, histograms
# percentiles.


ERRORS = "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=*,error=*"
"""The pattern of the error metrics: one MBean per (request, error) that ever happened, NONE included."""


def _replica_manager(metric: str, name: str, attribute: str = "Value") -> Attribute:
    return Attribute(metric, f"kafka.server:type=ReplicaManager,name={name}", attribute)


def _topics(metric: str, name: str) -> Attribute:
    return Attribute(metric, f"kafka.server:type=BrokerTopicMetrics,name={name}", "Count")


def _controller(metric: str, name: str) -> Attribute:
    return Attribute(metric, f"kafka.controller:type=KafkaController,name={name}", "Value")


_FLUSH = "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"
BROKER: tuple[Attribute, ...] = (
    _replica_manager("under_replicated_partitions", "UnderReplicatedPartitions"),
    _replica_manager("under_min_isr_partitions", "UnderMinIsrPartitionCount"),
    _replica_manager("at_min_isr_partitions", "AtMinIsrPartitionCount"),
    _replica_manager("offline_replicas", "OfflineReplicaCount"),
    _replica_manager("leaders", "LeaderCount"),
    _replica_manager("isr_shrinks", "IsrShrinksPerSec", "Count"),
    _replica_manager("isr_expands", "IsrExpandsPerSec", "Count"),
    _replica_manager("failed_isr_updates", "FailedIsrUpdatesPerSec", "Count"),
    _replica_manager("late_transaction_partitions", "PartitionsWithLateTransactionsCount"),
    Attribute("replica_max_lag", "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica", "Value"),
    Attribute(
        "dead_fetcher_threads", "kafka.server:type=ReplicaFetcherManager,name=DeadThreadCount,clientId=Replica", "Value"
    ),
    Attribute("broker_state", "kafka.server:type=KafkaServer,name=BrokerState", "Value"),
    _topics("failed_produce_requests", "FailedProduceRequestsPerSec"),
    _topics("failed_fetch_requests", "FailedFetchRequestsPerSec"),
    _topics("messages_in", "MessagesInPerSec"),
    _topics("bytes_in", "BytesInPerSec"),
    _topics("invalid_records", "InvalidMessageCrcRecordsPerSec"),
    Attribute(
        "request_handler_idle",
        "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
        "OneMinuteRate",
    ),
    Attribute("log_flushes", _FLUSH, "Count"),
    Attribute("log_flush_p99", _FLUSH, "99thPercentile"),
    Attribute("offline_log_directories", "kafka.log:type=LogManager,name=OfflineLogDirectoryCount", "Value"),
    Attribute("produce_p99", "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce", "99thPercentile"),
)
CONTROLLER: tuple[Attribute, ...] = (
    _controller("active_controllers", "ActiveControllerCount"),
    _controller("offline_partitions", "OfflinePartitionsCount"),
    _controller("fenced_brokers", "FencedBrokerCount"),
    _controller("active_brokers", "ActiveBrokerCount"),
    _controller("preferred_replica_imbalance", "PreferredReplicaImbalanceCount"),
    _controller("metadata_errors", "MetadataErrorCount"),
    _controller("timed_out_heartbeats", "TimedOutBrokerHeartbeatCount"),
    Attribute("unclean_elections", "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec", "Count"),
    _controller("controller_changes", "NewActiveControllersCount"),
)
WITH_ZOOKEEPER: tuple[Attribute, ...] = tuple(
    attribute
    for attribute in CONTROLLER
    if attribute.metric not in ("metadata_errors", "timed_out_heartbeats", "controller_changes")
)
"""The metrics of a broker that may become the controller, as each may with ZooKeeper.

The rest is of KRaft's controllers alone. [KafkaController.scala of 3.9]"""
BY_ROLE: Mapping[str, tuple[Attribute, ...]] = {"broker": BROKER, "controller": CONTROLLER}


def attributes_of(roles: Iterable[str], *, with_zookeeper: bool = False) -> tuple[Attribute, ...]:
    """Returns the metrics that a node with these roles has; a ZooKeeper server has none here."""
    roles = sorted(roles)
    more = WITH_ZOOKEEPER if with_zookeeper and "broker" in roles else ()
    return (*(attribute for role in roles for attribute in BY_ROLE.get(role, ())), *more)


def reads(attributes: Sequence[Attribute]) -> list[JSON]:
    """The body of one request to a server: its attributes, and the pattern of errors last."""
    return [*jolokia.reads(attributes), {"type": "read", "mbean": ERRORS, "attribute": ["Count"]}]


def values(attributes: Sequence[Attribute], answers: Sequence[JSON]) -> dict[str, float | None]:
    """The value of each metric, from the answers to `reads(attributes)`: see `jolokia.values`.

    Errors appear by `errors_metric` once they happened."""
    asked = len(jolokia.reads(attributes))
    found = jolokia.values(attributes, answers[:asked])
    for answer in answers[asked:]:
        value = answer.get("value")
        if answer.get("status") == 200 and isinstance(value, Mapping):
            found |= _errors(value)
    return found


def _errors(by_mbean: JSON) -> dict[str, float | None]:
    found: dict[str, float] = {}
    for mbean, attributes in by_mbean.items():
        keys = dict(part.split("=", 1) for part in mbean.partition(":")[2].split(",") if "=" in part)
        if keys.get("error", "NONE") == "NONE" or not is_number(attributes.get("Count")):
            continue
        name = errors_metric(keys.get("request", "").replace("-", ""), keys["error"])
        found[name] = found.get(name, 0.0) + float(attributes["Count"])
    return dict(found)
