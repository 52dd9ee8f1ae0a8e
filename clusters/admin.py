"""Kafka administration over the observer's link: topics made, grown and cut short, and their configurations.

Creating topics and reading configurations go through librdkafka; what the nodes say, and what the nemesis changes, are
`clusters.admin_views` and `clusters.changes`; transactions, `clusters.admin_transactions`.
"""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from clusters.admin_transactions import AdminTransactions
from clusters.changes import AdminChanges
from clusters.coordinators import await_coordinators
from harness.clock import wait_until
from harness.errors import BadInput, ClusterFailed
from harness.protocols import PartitionView, TopicSpec

T = TypeVar("T")
_USERS_FAULT = {
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_REPLICA_ASSIGNMENT,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_EXCEPTION,
}


class Admin(AdminTransactions, AdminChanges):
    """`harness.protocols.AdminProtocol` for every cluster whose brokers speak Kafka's protocol. Safe from many threads."""

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
