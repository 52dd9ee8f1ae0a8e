"""Transactions that are open in partitions, what coordinators know of them, and the end of one that nobody else ends."""

from collections.abc import Collection, Mapping, Sequence

from confluent_kafka import KafkaError

from clusters.admin_views import AdminViews
from clusters.transaction_requests import (
    PartitionKey,
    abort_marker_request,
    describe_producers_request,
    list_transactions_request,
)
from harness.open_transactions import CoordinatedTransaction, OpenTransaction


class AdminTransactions(AdminViews):
    """The part of `clusters.admin.Admin` that does what `kafka-transactions.sh` does (KIP-664)."""

    def open_transactions(
        self, partitions: Collection[PartitionKey], *, timeout_s: float = 5.0
    ) -> Mapping[PartitionKey, Sequence[OpenTransaction]]:
        """Of each (topic, number) what its leader says, the oldest first. One whose leader does not tell is not there."""
        deadline_ns = self._deadline_ns(timeout_s)
        asked: dict[int, dict[str, list[int]]] = {}
        for (topic, number), leader in self._leaders(partitions, deadline_ns).items():
            asked.setdefault(leader, {}).setdefault(topic, []).append(number)
        told = self._each(
            asked, lambda leader: self._ask(leader, describe_producers_request(asked[leader]), deadline_ns) or {}
        )
        return {key: opened for answer in told.values() for key, opened in answer.items()}

    def coordinated_transactions(self, *, timeout_s: float = 5.0) -> Sequence[CoordinatedTransaction] | None:
        """What all coordinators know, together. None: a broker does not answer, or is still loading what it must know."""
        deadline_ns = self._deadline_ns(timeout_s)
        told = self._each(
            self._cluster.observer_servers, lambda node: self._ask(node, list_transactions_request(), deadline_ns)
        )
        found: list[CoordinatedTransaction] = []
        for answer in told.values():
            if answer is None:
                return None
            found += answer
        return found

    def abort_transaction(
        self, partition: PartitionKey, transaction: OpenTransaction, *, timeout_s: float = 10.0
    ) -> str:
        """Have the leader write the marker that ends it in this partition; "" once it is written, else why it is not."""
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
        """Of each whom the newest of all brokers' own views names; one without a leader is not there."""
        topics = sorted({topic for topic, _ in partitions})
        views = self.views(topics, timeout_s=self._left_s(deadline_ns)).values()
        found = {}
        for key in partitions:
            seen = [view[key] for view in views if view is not None and key in view]
            newest = max(seen, key=lambda one: one.leader_epoch, default=None)
            if newest is not None and newest.leader >= 0:
                found[key] = newest.leader
        return found
