"""The topic of `prozess watch`: made on somebody else's cluster, looked at, and removed. No other topic is touched."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # they are in its __init__

from prozess.clusters.existing.adoption import Kafka, ReachedCluster, refused_login
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


@dataclass(frozen=True, slots=True)
class CanarySample:
    """What every broker said of the topic at one time."""

    asked_ns: int
    answered_ns: int
    """When the last broker had answered, or was given up."""
    views: Mapping[int, BrokerView | None]
    """Broker id → its view of the topic; None if it did not answer."""
    offsets: Mapping[tuple[str, int], Sequence[PartitionOffsets]]
    """What each broker said of the offsets of the partitions that it leads."""


class CanaryTopic:
    """A topic with one partition for each broker, which that broker leads first."""

    def __init__(self, servers: str, name: str, *, copies: int | None, clock: Clock, login: Login | None) -> None:
        """`copies`: the replication factor; None: COPIES, or the number of brokers if that is less.

        BadInput for a name or a number that is not possible. ClusterFailed if the cluster does not answer."""
        if not name.startswith(PREFIX):
            raise BadInput(f"--topic {name!r} must begin with {PREFIX}, so that everybody sees whose it is. Rename it.")
        self.name, self._servers, self._clock, self._login = name, servers, clock, login
        self.cluster_id, self.brokers = Kafka(servers, clock, login).describe()
        self.copies = min(COPIES, len(self.brokers)) if copies is None else copies
        if self.copies > len(self.brokers):
            raise BadInput(
                f"--replication-factor {copies} needs as many brokers, and the cluster has {len(self.brokers)}. Give less."
            )
        self.min_in_sync = max(1, self.copies - 1)
        self._admin = Admin(ReachedCluster(self.brokers, login=login), clock=clock)
        self._id: UUID | None = None
        self.made = False

    @property
    def assignment(self) -> list[list[int]]:
        """Returns the brokers of each partition. The first leads, unless the cluster decides otherwise."""
        ids = sorted(self.brokers)
        return [[ids[(first + n) % len(ids)] for n in range(self.copies)] for first in range(len(ids))]

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

    def create(self) -> None:
        """Makes the topic, and returns once every partition is led and every replica is in sync.

        BadInput if there is a topic of this name, whoever made it. ClusterFailed or NotReady if it cannot be made."""
        client = self._client()
        topic = NewTopic(self.name, len(self.brokers), replica_assignment=self.assignment, config=self.properties)
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
            return not seen[0]

        wait_until(
            whole,
            awaited=f"the topic {self.name} to be whole on every broker",
            timeout_s=CREATE_LIMIT_S,
            clock=self._clock,
            last_seen=lambda: seen[0],
            interval_s=0.2,
        )
        self._id = self._topic_id()

    def sample(self) -> CanarySample:
        """Asks every broker. It takes a little more than 2 * ASK_LIMIT_S at most. ClusterFailed if one refuses the login."""
        asked_ns = self._clock.monotonic_ns()
        views = self._admin.views([self.name], timeout_s=ASK_LIMIT_S)
        offsets = self._admin.log_starts_and_ends([self.name], timeout_s=ASK_LIMIT_S)
        return CanarySample(asked_ns, self._clock.monotonic_ns(), views, offsets)

    def others(self) -> list[str]:
        """Returns the other topics whose names begin with PREFIX: of other watches, or left by one that was killed."""
        try:
            topics = self._client().list_topics(timeout=ADMIN_LIMIT_S).topics
        except KafkaException as error:
            raise ClusterFailed(f"Kafka at {self._servers} does not list its topics: {self._words(error)}.") from error
        return sorted(name for name in topics if name.startswith(PREFIX) and name != self.name)

    def remove(self) -> None:
        """Deletes the topic, if `create` made it. ClusterFailed if that fails, or if another topic has its name now."""
        if not self.made:
            return
        if self._id is not None and (now := self._topic_id()) is not None and now != self._id:
            raise ClusterFailed(
                f"The topic {self.name!r} is not the one that the watch made: somebody deleted that one. It stays."
            )
        client = self._client()  # which must live until the answer
        (future,) = client.delete_topics([self.name], request_timeout=ADMIN_LIMIT_S).values()
        try:
            future.result(ADMIN_LIMIT_S + 1)
        except (KafkaException, TimeoutError) as error:
            if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return
            raise ClusterFailed(
                f"The topic {self.name!r} could not be deleted: {self._words(error)}. Delete it with kafka-topics.sh."
            ) from error

    def close(self) -> None:
        """Closes the connections to the brokers."""
        self._admin.close()

    def _topic_id(self) -> UUID | None:
        """Returns the id of the topic (KIP-516) as the first broker says that can; None if none can (older than 3.8)."""
        for broker in self.brokers:
            with suppress(ClusterFailed):
                told = self._admin.described(broker, [self.name], timeout_s=ASK_LIMIT_S) or {}
                for partition in told.values():
                    return partition.topic_id
        return None

    def _lacking(self, sample: CanarySample) -> str:
        for broker, view in sample.views.items():
            if view is None:
                return f"broker {broker} does not answer"
            for number, replicas in enumerate(self.assignment):
                told = view.get((self.name, number))
                if told is None or told.leader < 0 or set(told.isr) != set(replicas):
                    return f"broker {broker} says of {self.name}-{number}: {told}"
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
