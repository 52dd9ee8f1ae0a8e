"""Connections to a cluster's nodes over the observer's link: a question to exactly one of them, or to many at once.

Raw requests (`clusters.wire`) go to the node that is named, because a client library may ask any broker. librdkafka is
bootstrapped on the observer's listeners: brokers then advertise those listeners, so that no fault is in the way.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from confluent_kafka.admin import AdminClient

from clusters.wire import Request, WireClient
from clusters.zookeeper_client import ZooKeeperClient
from harness.clock import NS_PER_S, Clock, SystemClock
from harness.protocols import Cluster, NodeState

T = TypeVar("T")


class AdminConnections:
    """What the parts of `clusters.admin.Admin` ask through. Safe from many threads."""

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
