"""What each node says, asked of exactly that node: views, quorum, features and offsets.

They are raw requests (`clusters.wire_requests`), because a client library may ask any broker and a zombie lies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clusters.admin_connections import AdminConnections
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
from harness.errors import NotReady
from harness.protocols import BrokerView
from harness.schema import Isolation


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """What one broker, taking itself for the leader, says of a partition's offsets. None = it did not tell."""

    node: int
    leader_epoch: int
    """In which it answered (of the high watermark's answer); NONE = not told."""
    log_start: int | None
    high_watermark: int | None
    last_stable_offset: int | None


class AdminViews(AdminConnections):
    """The part of `clusters.admin.Admin` that looks, and changes nothing."""

    # --- brokers ---

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

    def _metadata(self, node_id: int, topics: Sequence[str], timeout_s: float) -> MetadataAnswer | None:
        answers = self._brokers.ask(node_id, metadata_request(topics), timeout_s=timeout_s)
        return None if answers is None else answers[0]

    # --- controllers ---

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

    # --- features ---

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

    # --- offsets ---

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


def _told(answer: OffsetAnswer | None) -> int | None:
    return answer.log_offset if answer is not None and answer.error == 0 and answer.log_offset >= 0 else None
