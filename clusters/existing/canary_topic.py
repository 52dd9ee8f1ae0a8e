"""The topic of `prozess watch`: made on somebody else's cluster, looked at, and removed. No other topic is touched."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined] # they are in its __init__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from prozess.clusters.existing.adoption import Kafka, refused_login
from prozess.clusters.protocol.admin import Admin, PartitionOffsets
from prozess.harness.clock import Clock, wait_until
from prozess.harness.config.existing_clusters import Login
from prozess.harness.errors import BadInput, ClusterFailed
from prozess.harness.interfaces import BrokerView

PREFIX = "prozess-watch-"
COPIES = 3
"""The replication factor, unless the cluster has fewer brokers."""
RETENTION_MS = 30 * 60 * 1000
CREATE_LIMIT_S = 60.0
ASK_LIMIT_S = 1.0
"""How long one broker may take to answer. A sample waits for the slowest."""
ADMIN_LIMIT_S = 30.0
LONG_AGO_MS = 7 * 24 * 3600 * 1000
"""How long the records of a topic that is kept as evidence stay."""


@dataclass(slots=True)
class WatchedBrokers:
    """The brokers of a watched cluster, as administration needs them. One that comes later is added."""

    observer_servers: Mapping[int, tuple[str, int]]
    login: Login | None
    controller_servers: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    zookeeper_servers: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    metrics_servers: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    nodes: tuple[()] = ()


@dataclass(frozen=True, slots=True)
class CanarySample:
    """What every broker answered about the topic at one time."""

    asked_ns: int
    answered_ns: int
    """When the last broker had answered, or was given up."""
    views: Mapping[int, BrokerView | None]
    """Broker id → its view of the topic; None if it did not answer."""
    offsets: Mapping[tuple[str, int], Sequence[PartitionOffsets]]
    """What each broker stated of the offsets of the partitions that it leads."""


class CanaryTopic:
    """A topic with one partition for each broker, which that broker leads first."""

    def __init__(self, servers: str, name: str, *, copies: int | None, clock: Clock, login: Login | None) -> None:
        """`copies`: the replication factor; None: COPIES, or the number of brokers if that is less.

        BadInput for a name or a number that is not possible. ClusterFailed if the cluster does not answer."""
        if not name.startswith(PREFIX):
            raise BadInput(f"--topic {name!r} must begin with {PREFIX}, so that everybody sees whose it is. Rename it.")
        self.name, self._servers, self._clock, self._login = name, servers, clock, login
        self.cluster_id, brokers = Kafka(servers, clock, login).describe()
        self._watched = WatchedBrokers(brokers, login)
        self.copies = min(COPIES, len(self.brokers)) if copies is None else copies
        if self.copies > len(self.brokers):
            raise BadInput(
                f"--replication-factor {copies} needs as many brokers, and the cluster has {len(self.brokers)}. Give less."
            )
        self.min_in_sync = max(1, self.copies - 1)
        self.admin = Admin(self._watched, clock=clock)
        self.id: UUID | None = None
        """The id that Kafka gave the topic (KIP-516); None if no broker says it (before 2.8)."""
        self.made = False
        ids = sorted(self.brokers)
        self.assignment = [[ids[(first + n) % len(ids)] for n in range(self.copies)] for first in range(len(ids))]
        """The brokers of each partition. The first leads, unless the cluster decides otherwise."""

    @property
    def brokers(self) -> Mapping[int, tuple[str, int]]:
        """Returns where the brokers are that are watched, by id."""
        return self._watched.observer_servers

    @property
    def properties(self) -> dict[str, str]:
        """Returns the properties of the topic. Whether unclean leaders may be elected is left to the cluster.

        The brokers' clocks stamp the records: by a client's clock that is slow, retention would remove them at once."""
        return {
            "cleanup.policy": "delete",
            "min.insync.replicas": str(self.min_in_sync),
            "message.timestamp.type": "LogAppendTime",
            "retention.ms": str(RETENTION_MS),
            "retention.bytes": "-1",
            "segment.ms": str(RETENTION_MS // 3),
            "segment.bytes": str(16 * 1024 * 1024),
        }

    def create(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Makes the topic, and returns once every partition is led and every replica is in sync, or `stop`.

        BadInput if there is a topic of this name, whoever made it. ClusterFailed or NotReady if it cannot be made."""
        client = self._client()
        topic = NewTopic(self.name, len(self.assignment), replica_assignment=self.assignment, config=self.properties)
        (future,) = client.create_topics([topic], request_timeout=ADMIN_LIMIT_S).values()
        try:
            future.result(ADMIN_LIMIT_S + 1)
        except (KafkaException, TimeoutError) as error:
            code = error.args[0].code() if isinstance(error, KafkaException) else None
            if code == KafkaError.TOPIC_ALREADY_EXISTS:
                raise BadInput(
                    f"The cluster has a topic {self.name!r} already, and a watch touches no topic that it did not make. "
                    "Give another --topic, or none."
                ) from error
            raise ClusterFailed(f"Kafka does not make the topic {self.name!r}: {self._words(error)}.") from error
        self.made = True
        seen = ["nothing"]

        def whole() -> bool:
            seen[0] = self._lacking(self.sample())
            return not seen[0] or stop()

        wait_until(
            whole,
            awaited=f"the topic {self.name} to be whole on every broker",
            timeout_s=CREATE_LIMIT_S,
            clock=self._clock,
            last_seen=lambda: seen[0],
            interval_s=0.2,
        )
        self.id = self._topic_id()

    def sample(self) -> CanarySample:
        """Asks every broker. It takes a little more than 2 * ASK_LIMIT_S at most. ClusterFailed if one refuses the login."""
        asked_ns = self._clock.monotonic_ns()
        views = self.admin.views([self.name], timeout_s=ASK_LIMIT_S)
        offsets = self.admin.log_starts_and_ends([self.name], timeout_s=ASK_LIMIT_S)
        return CanarySample(asked_ns, self._clock.monotonic_ns(), views, offsets)

    def moved(self, broker: int, address: tuple[str, int]) -> None:
        """Notes where a broker that is watched is now."""
        self._watched.observer_servers = {**self.brokers, broker: address}

    def grow(self, broker: int, address: tuple[str, int], *, timeout_s: float) -> int:
        """Adds a partition that this broker leads first, and returns its number. ClusterFailed if Kafka does not add it."""
        others = [known for known in sorted(self.brokers) if known != broker]
        replicas = [broker, *others][: self.copies]
        number, client = len(self.assignment), self._client()
        new = NewPartitions(self.name, number + 1, replica_assignment=[replicas])
        (future,) = client.create_partitions([new], request_timeout=timeout_s, operation_timeout=timeout_s).values()
        try:
            future.result(timeout_s + 1)
        except (KafkaException, TimeoutError) as error:
            raise ClusterFailed(f"Kafka adds no partition to {self.name!r}: {self._words(error)}.") from error
        self.moved(broker, address)
        self.assignment.append(replicas)
        return number

    def keep(self, retention_ms: int, *, timeout_s: float) -> None:
        """Lets the topic keep its records for so long. ClusterFailed if Kafka refuses or does not answer."""
        entry = ConfigEntry("retention.ms", str(retention_ms), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=[entry])
        client = self._client()
        try:
            (future,) = client.incremental_alter_configs([resource], request_timeout=timeout_s).values()
            future.result(timeout_s + 1)
        except (KafkaException, TimeoutError) as error:
            raise ClusterFailed(f"Kafka does not set retention.ms of {self.name!r}: {self._words(error)}.") from error

    def others(self, *, timeout_s: float = ADMIN_LIMIT_S) -> list[str]:
        """Returns the other topics whose names begin with PREFIX: of other watches, or left by one that was killed."""
        try:
            topics = self._client().list_topics(timeout=timeout_s).topics
        except KafkaException as error:
            raise ClusterFailed(f"Kafka at {self._servers} does not list its topics: {self._words(error)}.") from error
        return sorted(name for name in topics if name.startswith(PREFIX) and name != self.name)

    def ends(self, names: Sequence[str]) -> Mapping[tuple[str, int], tuple[int, int]]:
        """Returns the log start and the high watermark of every partition of these topics whose leader answers."""
        found = self.admin.log_starts_and_ends(names, timeout_s=ASK_LIMIT_S)
        newest = {key: max(answers, key=lambda answer: answer.leader_epoch) for key, answers in found.items()}
        return {
            key: (answer.log_start, answer.high_watermark)
            for key, answer in newest.items()
            if answer.log_start is not None and answer.high_watermark is not None
        }

    def remove(self, *, timeout_s: float = ADMIN_LIMIT_S) -> None:
        """Deletes the topic, if `create` made it. ClusterFailed if that fails, or if another topic has its name now."""
        if not self.made:
            return
        if self.id is not None and (now := self._topic_id()) is not None and now != self.id:
            raise ClusterFailed(
                f"The topic {self.name!r} is not the one that the watch made: somebody deleted that one. It stays."
            )
        client = self._client()  # which must live until the answer
        (future,) = client.delete_topics([self.name], request_timeout=timeout_s).values()
        try:
            future.result(timeout_s + 0.2)
        except (KafkaException, TimeoutError) as error:
            if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return
            raise ClusterFailed(
                f"The topic {self.name!r} could not be deleted: {self._words(error)}. Delete it with kafka-topics.sh."
            ) from error

    def remove_left(self, name: str, topic_id: UUID, *, timeout_s: float) -> bool:
        """Deletes a topic that a killed watch left behind, if it has this id. Returns whether it is gone. ClusterFailed if
        Kafka does not delete it."""
        if self._id_of(name) != topic_id:
            return False
        client = self._client()
        (future,) = client.delete_topics([name], request_timeout=timeout_s).values()
        try:
            future.result(timeout_s + 0.2)
        except (KafkaException, TimeoutError) as error:
            raise ClusterFailed(f"The topic {name!r} could not be deleted: {self._words(error)}.") from error
        return True

    def remove_group(self, group: str, *, timeout_s: float) -> None:
        """Deletes the group to which the reader committed. One that cannot be deleted goes with the topic: its offsets do."""
        client = self._client()
        with suppress(KafkaException, TimeoutError):
            (future,) = client.delete_consumer_groups([group], request_timeout=timeout_s).values()
            future.result(timeout_s + 0.2)

    def close(self) -> None:
        """Closes the connections to the brokers."""
        self.admin.close()

    def _topic_id(self) -> UUID | None:
        """Returns the id of the topic (KIP-516) as the first broker says that can; None if none can (older than 2.8)."""
        return self._id_of(self.name)

    def _id_of(self, name: str) -> UUID | None:
        with suppress(ClusterFailed):
            return self.admin.topic_ids([name], timeout_s=2 * ASK_LIMIT_S).get(name)
        return None

    def _lacking(self, sample: CanarySample) -> str:
        for broker, view in sample.views.items():
            if view is None:
                return f"broker {broker} does not answer"
            for number, replicas in enumerate(self.assignment):
                found = view.get((self.name, number))
                if found is None or found.leader < 0 or set(found.isr) != set(replicas):
                    return f"broker {broker} says of {self.name}-{number}: {found}"
        silent = [n for n in range(len(self.assignment)) if not sample.offsets.get((self.name, n))]
        return f"nobody says where {self.name}-{silent[0]} ends" if silent else ""

    def _client(self) -> AdminClient:
        """Returns a new client, which ends with its last use: one that is idle would go on connecting to brokers that are
        down."""
        own: dict[str, Any] = {"bootstrap.servers": self._servers, "client.id": "prozess-watch-admin", "log_level": 0}
        try:
            return AdminClient({**({} if self._login is None else self._login.properties), **own})
        except (KafkaException, ValueError) as error:
            raise refused_login(error, self._login) from None

    def _words(self, error: Exception) -> str:
        text = error.args[0].str() if isinstance(error, KafkaException) else "no answer in time"
        return (text if self._login is None else self._login.hide(text)).rstrip(".")
