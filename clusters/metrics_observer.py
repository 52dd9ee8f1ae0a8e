"""What each node tells of itself, over the observer's link: its JMX metrics, and what Kafka's protocol says.

One node is asked per call, so that one that hangs holds up no other. Every call ends within about its limit, and None means:
this node did not answer.
"""

import http.client
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusters.admin import Admin
from clusters.jmx_metrics import attributes_of, reads, values
from clusters.transaction_requests import OpenTransactions, describe_producers_request, list_transactions_request
from clusters.wire import WireClient
from clusters.wire_requests import (
    LATEST,
    OffsetAnswers,
    describe_quorum_request,
    list_offsets_request,
    metadata_request,
)
from harness.clock import NS_PER_S, Clock, SystemClock
from harness.errors import ClusterFailed
from harness.jolokia import HEADERS, PATH, Attribute
from harness.open_transactions import OpenTransaction
from harness.protocols import Cluster
from harness.schema import NONE, Isolation


@dataclass(frozen=True, slots=True)
class LeaderState:
    """What a broker that takes itself for the leader says of a partition. None = it did not tell."""

    leader_epoch: int
    isr_size: int
    high_watermark: int | None
    last_stable_offset: int | None
    watermark_epoch: int = NONE
    """Leader epoch in which the high watermark was answered; NONE = not told."""
    transactions: tuple[OpenTransaction, ...] | None = None
    """Open ones, the oldest first; asked only where the last stable offset is behind the high watermark."""


class MetricsObserver:
    """`harness.stages.metrics_sampler.Observer` of every cluster whose nodes the observer reaches. Safe from many threads,
    but one at a time per node for `jmx`."""

    def __init__(self, cluster: Cluster, *, clock: Clock | None = None) -> None:
        self._cluster = cluster
        self._clock = clock or SystemClock()
        self._servers: Mapping[int, tuple[str, int]] = getattr(cluster, "metrics_servers", {})
        with_zookeeper = any("zookeeper" in node.roles for node in cluster.nodes)
        self._attributes = {
            node.node_id: attributes_of(node.roles, with_zookeeper=with_zookeeper) for node in cluster.nodes
        }
        self._brokers = WireClient(lambda: cluster.observer_servers, name="broker", clock=self._clock)
        self._controllers = WireClient(lambda: cluster.controller_servers, name="controller", clock=self._clock)
        self._admin = Admin(cluster, clock=self._clock)
        self._agents = {node: _Agent(address, self._attributes[node]) for node, address in self._servers.items()}

    @property
    def brokers(self) -> tuple[int, ...]:
        """Node ids that speak the brokers' part of the protocol."""
        return tuple(self._cluster.observer_servers)

    @property
    def controllers(self) -> tuple[int, ...]:
        """Node ids of controllers that can be asked."""
        return tuple(self._cluster.controller_servers)

    def expected(self, node_id: int) -> tuple[str, ...]:
        """Metrics that JMX of this node should tell, whether it can be asked or not."""
        return tuple(attribute.metric for attribute in self._attributes[node_id])

    def jmx(self, node_id: int, *, timeout_s: float) -> Mapping[str, float | None] | None:
        """Every JMX metric of one node; a value None: the node does not know it."""
        agent = self._agents.get(node_id)
        return None if agent is None else agent.ask(timeout_s=timeout_s)

    def led_by(
        self, node_id: int, topics: Sequence[str], *, timeout_s: float
    ) -> Mapping[tuple[str, int], LeaderState] | None:
        """(topic, number) → state, of the partitions that this broker takes itself for the leader of."""
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
        left_s = (deadline_ns - self._clock.monotonic_ns()) / NS_PER_S
        offsets = self._brokers.ask(node_id, *requests, timeout_s=left_s)
        if offsets is None:
            return None
        unstable = [key for key in views if _is_unstable(offsets, key)]
        left_s = (deadline_ns - self._clock.monotonic_ns()) / NS_PER_S
        opened = self._opened(node_id, unstable, timeout_s=left_s) if unstable else {}
        told = [{key: o.log_offset for key, o in by_key.items() if o.error == 0 <= o.log_offset} for by_key in offsets]
        return {
            key: LeaderState(
                view.leader_epoch,
                len(view.isr),
                told[0].get(key),
                told[1].get(key),
                watermark_epoch=offsets[0][key].leader_epoch if key in told[0] else NONE,
                transactions=opened.get(key) if key in unstable else () if key in told[1] else None,
            )
            for key, view in views.items()
        }

    def _opened(self, node_id: int, keys: Sequence[tuple[str, int]], *, timeout_s: float) -> OpenTransactions:
        asked: dict[str, list[int]] = {}
        for topic, number in keys:
            asked.setdefault(topic, []).append(number)
        answered = self._brokers.ask(node_id, describe_producers_request(asked), timeout_s=timeout_s)
        return {} if answered is None else answered[0]

    def open_transactions(self, node_id: int, *, timeout_s: float) -> int | None:
        """Ongoing transactions of this coordinator."""
        answered = self._brokers.ask(node_id, list_transactions_request(["Ongoing"]), timeout_s=timeout_s)
        return None if answered is None or answered[0] is None else len(answered[0])

    def quorum(self, node_id: int, *, timeout_s: float) -> tuple[int, int] | None:
        """(leader, epoch) of the metadata log, as this controller says; leader -1: it knows none."""
        answered = self._controllers.ask(node_id, describe_quorum_request(), timeout_s=timeout_s)
        if answered is None or answered[0].leader_epoch < 0:
            return None
        return answered[0].leader, answered[0].leader_epoch

    def elr_sizes(self, topics: Sequence[str], *, timeout_s: float) -> Mapping[tuple[str, int], int] | None:
        """(topic, number) → eligible leader replicas, as the first broker that answers sees them; None: nobody tells."""
        found = self._admin.elr(topics, timeout_s=timeout_s)
        return None if found is None else {key: len(replicas.elr) for key, replicas in found.items()}

    def close(self) -> None:
        """Give back connections and threads."""
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
                        return None  # a kept connection may be one of an earlier incarnation: a new one tells
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
