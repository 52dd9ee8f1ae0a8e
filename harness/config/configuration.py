"""Configurations are frozen values that print, validate and round-trip. They use Kafka's own spelling, with `_` for `.`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from prozess.harness.values import Frozen

# Errors that no retry can heal, as the errors workload provokes them: what each is, and what it takes. Pure.
#
# An error is either one record's (every n-th record is bad by itself: too large, without key, …) or a state of the
# cluster or of the client (a denied topic, a full queue, brokers that are away), which whatever is sent meanwhile runs
# into.


Error = Literal[
    "too-large-for-client",
    "too-large-for-broker",
    "list-too-large",
    "not-authorised",
    "invalid-record",
    "invalid-timestamp",
    "serialization",
    "full-queue",
    "timeout",
    "bad-configuration",
]
AUTHORIZER_PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""The broker properties that the error `not-authorised` needs."""
OLDEST_TIMESTAMP_MS = 3_600_000
DAY_MS = 86_400_000
_INVALID_RECORD, _INVALID_DIFFERENT_RECORD = 87, -138
"""The codes that librdkafka returns for records in a batch that a broker refused. The records at fault get the first.
Their neighbours get the second, the first, or the code of the whole batch, since librdkafka was seen not to distinguish
them."""
_SEGMENT_BYTES = 1 << 20
"""The smallest segment.bytes that brokers accept from 4.0 on (KIP-1030)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provocation:
    """One error that a producer can provoke, and how."""

    code: int
    """The code that the caller gets: one of Kafka's protocol or, if it is negative, one of librdkafka."""
    by_broker: bool
    """True means that a broker refuses the record. False means that the client refuses it before it sends anything."""
    of_record: bool
    """True means that bad records cause the error. False means that a state of the cluster or client causes it."""
    value_bytes: int | None = None
    """The size of a bad record's value; None means that of the other records."""
    implied: Mapping[str, Any] = field(default_factory=dict)
    """The settings that the error needs: `scope.key` = value, unless the trial sets them otherwise."""

    @property
    def codes(self) -> tuple[int, ...]:
        """All codes that the caller may get."""
        in_batch = (_INVALID_RECORD, _INVALID_DIFFERENT_RECORD) if self.by_broker and self.of_record else ()
        return tuple(dict.fromkeys((self.code, *in_batch)))


PROVOCATIONS: Mapping[Error, Provocation] = {
    "too-large-for-client": Provocation(
        code=10,
        by_broker=False,
        of_record=True,
        value_bytes=20_000,
        implied={"producer.properties.message.max.bytes": 10_000},
    ),
    "too-large-for-broker": Provocation(
        code=10,
        by_broker=True,
        of_record=True,
        value_bytes=200_000,
        # A batch of good records must stay below the limit, however long the brokers were away.
        implied={"topic.properties.max.message.bytes": 100_000, "producer.properties.batch.size": 50_000},
    ),
    "list-too-large": Provocation(
        code=18,
        by_broker=True,
        of_record=True,
        value_bytes=_SEGMENT_BYTES + 100_000,
        implied={
            "topic.properties.segment.bytes": _SEGMENT_BYTES,
            "topic.properties.max.message.bytes": 4 * _SEGMENT_BYTES,
            "producer.properties.message.max.bytes": 4 * _SEGMENT_BYTES,
            "producer.properties.batch.size": 50_000,
        },
    ),
    "not-authorised": Provocation(code=29, by_broker=True, of_record=False),
    "invalid-record": Provocation(code=87, by_broker=True, of_record=True, implied={"topic.cleanup_policy": "compact"}),
    "invalid-timestamp": Provocation(
        code=32,
        by_broker=True,
        of_record=True,
        implied={"topic.properties.message.timestamp.before.max.ms": OLDEST_TIMESTAMP_MS},
    ),
    "serialization": Provocation(code=-161, by_broker=False, of_record=True),
    "full-queue": Provocation(
        code=-184, by_broker=False, of_record=False, implied={"producer.properties.queue.buffering.max.messages": 20}
    ),
    "timeout": Provocation(
        code=-192, by_broker=False, of_record=False, implied={"producer.delivery_timeout_ms": 2_000}
    ),
    "bad-configuration": Provocation(code=-186, by_broker=False, of_record=True),
}


# `None` means "not set: whatever the client or broker defaults to".


COUNT_MAX = 1_000_000_000
"""The greatest count that a trial may name: more records, messages or calls than any trial has."""
WAIT_MAX_S = 604_800.0
"""The longest time that a trial may name, in seconds: a week."""
INT_MAX = 2**31 - 1
"""Kafka's protocol and its clients have so many milliseconds, replicas and requests at most."""
Int = Annotated[int, Field(ge=1, le=INT_MAX)]
PauseMs = Annotated[float, Field(ge=0, le=WAIT_MAX_S * 1000)]
"""A time in milliseconds, which may be 0."""
Count = Annotated[int, Field(ge=1, le=COUNT_MAX)]
Pause = Annotated[float, Field(ge=0, le=WAIT_MAX_S)]
"""A time in seconds, which may be 0."""
Limit = Annotated[float, Field(gt=0, le=WAIT_MAX_S)]
"""The longest that something may take, in seconds."""


def refuse_counts(nth: int | None, every: int | None, until: int | None, what: str) -> None:
    """Raises ValueError for numbers that contradict one another, or that none of the things counted can have."""
    if nth is not None and (every is not None or until is not None):
        raise ValueError(f"nth = {nth} means one {what}; leave out every and until")
    if every is not None and until is not None and every > until:
        raise ValueError(f"every = {every}, until = {until}: no {what} up to number {until} counts; raise until")


def _text(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value


Text = Annotated[str, BeforeValidator(_text)]
"""The value of a Kafka property. Numbers and booleans from TOML become Kafka's spelling of them."""

Acks = Annotated[Literal["0", "1", "all"], BeforeValidator(_text)]
RETRIES_MAX = 2_147_483_647
"""The greatest number of retries of librdkafka and of Kafka's Java clients, which is also their default."""


def _retries(value: object) -> object:
    """Returns a number of retries without leading zeros, or "max" for the clients' own maximum. ValueError for anything
    else."""
    text = str(_text(value)).strip()
    if text == "max":
        return text
    if not re.fullmatch("[0-9]{1,10}", text) or int(text) > RETRIES_MAX:
        raise ValueError(f"retries are a number from 0 to {RETRIES_MAX}, or 'max'")
    return "max" if int(text) == RETRIES_MAX else str(int(text))


Retries = Annotated[str, BeforeValidator(_retries)]
"""How often a client sends a request again: a number as text, or "max"."""
ClientVersion = Annotated[str, BeforeValidator(_text), Field(pattern=r"^\d+\.\d+\.\d+(-rc\d+)?$")]
"""The version of a client: of librdkafka, or of Kafka's Java clients. None means the one that prozess runs with, or that of
the variant."""
MetadataMode = Literal["kraft-isolated", "kraft-combined", "zookeeper"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
FIRST_CONTROLLER_ID = 3001
"""The node id of the first isolated controller, as in Kafka's own system tests. Brokers start at 1."""
FIRST_ZOOKEEPER_ID = 4001
"""The node id of the first ZooKeeper server here. ZooKeeper numbers its servers 1, 2, … by itself; these ids distinguish
them from brokers."""


class TopicConfiguration(Frozen):
    """How a topic is created: replicas, min.insync.replicas, what may be lost to an election, a crash or the cleaner."""

    partitions: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """How many partitions the topic has when the trial begins. None means `topics.partitions` of its workload."""
    replication_factor: Int = 3
    """How many replicas each partition has."""
    min_insync_replicas: Int = 1
    """`min.insync.replicas`: how many replicas must be in sync for acks=all."""
    unclean_leader_election_enable: bool = False
    """`unclean.leader.election.enable`: whether a replica that is not in sync may lead."""
    flush_messages: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    """`flush.messages`: after how many records the log is synced to the disk. None means when the system does."""
    cleanup_policy: Literal["delete", "compact", "compact,delete"] = "delete"
    """`cleanup.policy`."""
    properties: dict[str, Text] = Field(default_factory=dict)
    """Kafka's own properties that have no key here, such as `topic.properties.segment.ms`."""

    @property
    def is_tiered(self) -> bool:
        """Says whether segments of the topic go to a remote store (KIP-405)."""
        return self.properties.get("remote.storage.enable", "false").lower() == "true"

    def kafka_properties(self) -> dict[str, str]:
        """Returns the properties as CreateTopics wants them."""
        named = {
            "min.insync.replicas": str(self.min_insync_replicas),
            "unclean.leader.election.enable": str(self.unclean_leader_election_enable).lower(),
            "cleanup.policy": self.cleanup_policy,
        }
        if self.flush_messages is not None:
            named["flush.messages"] = str(self.flush_messages)
        return named | self.properties


class ProducerConfiguration(Frozen):
    """The settings of one producer.

    `retries="max"` is the client's own maximum; otherwise it is a number. A client that stops sending a record after fewer
    retries says so earlier, and promises the same.
    """

    client: Literal["librdkafka", "java", "command"] = "librdkafka"
    """Which client sends. command: a program of your own, which `command` starts."""
    command: tuple[str, ...] = ()
    """The command line of a program that takes the options of Kafka's VerifiableProducer and prints what that prints, word
    by word. {python} is the interpreter that runs prozess. {{ and }} stand for braces."""
    client_version: ClientVersion | None = None
    """The version of the client's library. None means that of prozess, or of the brokers for Java."""
    beside: Literal["librdkafka", "java"] | None = None
    """The client of a second producer, which sends to the same topic with the partitioner that its library has by default.
    None means that there is none. For verifiable workloads."""
    defaults: Literal["prozess", "library"] = "prozess"
    """Names whose defaults count for what the trial does not set. prozess: those below, which are written to the client.
    library: nothing is written, and the client's own library decides."""
    left_to_client: tuple[str, ...] = ()
    """The settings that are not written to the client. Their values here are those of its library. Made by the plan."""
    acks: Acks = "all"
    """`acks`."""
    enable_idempotence: bool = False
    """`enable.idempotence`."""
    retries: Retries = "max"
    """`retries`: a number, or `max`."""
    max_in_flight: Int = 5
    """`max.in.flight.requests.per.connection`."""
    delivery_timeout_ms: Int = 60_000
    """`delivery.timeout.ms`."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """`compression.type`."""
    linger_ms: PauseMs = 5
    """`linger.ms`."""
    properties: dict[str, Text] = Field(default_factory=dict)
    """Kafka's own properties that have no key here, such as `producer.properties.batch.size`."""

    @model_validator(mode="before")
    @classmethod
    def _of_a_command(cls, given: object) -> object:
        """A command says by itself which client it is."""
        return {"client": "command", **given} if isinstance(given, dict) and given.get("command") else given

    @property
    def retries_most(self) -> int:
        """Returns the retries as a number."""
        return RETRIES_MAX if self.retries == "max" else int(self.retries)


NEWEST_VERSION = "4.4.0"
"""The newest release of Kafka, which clusters run unless a trial says otherwise."""
LAST_WITH_ZOOKEEPER = "3.9.2"
"""The last version of Kafka with ZooKeeper mode, which 4.0 removed (KIP-500)."""


class Variant(Frozen):
    """Describes a kind of cluster: its mode, its version, its servers and their settings. The report states the times
    that are set here."""

    metadata_mode: MetadataMode = "kraft-isolated"
    """Where the metadata is: controllers of their own, brokers that are controllers too, or ZooKeeper."""
    kafka_version: Text = NEWEST_VERSION
    """The version of Kafka that every node runs, unless `versions` names it."""
    versions: dict[str, Text] = Field(default_factory=dict)
    """Name of a node → its version of Kafka, if that differs from `version`, as in the middle of an upgrade."""
    brokers: Annotated[int, Field(ge=1, le=9)] = 3
    """How many brokers there are."""
    controllers: Annotated[int, Field(ge=1, le=5)] = 1
    """How many controllers a `kraft-isolated` cluster has."""
    zookeepers: Annotated[int, Field(ge=1, le=5)] = 1
    """How many ZooKeeper servers a `zookeeper` cluster has."""
    migration_controllers: Annotated[int, Field(ge=0, le=5)] = 0
    """How many controllers a `zookeeper` cluster has for its migration. They do not run until a step `migrate` starts
    them (KIP-866)."""
    racks: tuple[str, ...] = ()
    """The racks of the cluster. Brokers are dealt to them in turn."""
    features: dict[str, Annotated[int, Field(ge=0, le=1000)]] = Field(default_factory=dict)
    """The feature levels that differ from those of the version, such as that of `transaction.version` (KIP-1022)."""
    tiered_storage: bool = False
    """Brokers keep the records of topics with remote.storage.enable in a remote store, too (KIP-405): LocalTieredStorage of
    Kafka's own tests, in a directory of the run that all brokers share."""
    properties: dict[str, Text] = Field(default_factory=dict)
    """Broker properties that override the defaults of the backend."""

    def version_of(self, node: str) -> str:
        """Returns the version of Kafka that the node of this name runs."""
        return self.versions.get(node, self.kafka_version)

    def rack_of(self, broker: int) -> str | None:
        """Returns the rack of the broker with this id. None if the cluster has no racks."""
        return self.racks[(broker - 1) % len(self.racks)] if self.racks else None

    @property
    def kafka_versions(self) -> tuple[str, ...]:
        """Every version of Kafka that some node runs, the oldest first."""
        servers = self.server_names()
        return tuple(sorted({self.version_of(name) for name in servers.values()}, key=version_numbers))

    @property
    def oldest_version(self) -> str:
        """The oldest version of Kafka that any node runs. The whole cluster can rely only on its features."""
        return self.kafka_versions[0]

    @property
    def metadata_keepers(self) -> tuple[int, ...]:
        """Returns the ids of the nodes that keep the metadata: the controllers or, with ZooKeeper, its servers and
        every broker, since each broker may be the controller."""
        everyone = tuple(self.server_names())
        return everyone if self.metadata_mode != "kraft-isolated" else everyone[self.brokers :]

    def server_names(self) -> dict[int, str]:
        """Returns node id → name for every server. Ids are Kafka's; those of ZooKeeper servers are ids that no broker
        can have."""
        brokers = {number: f"broker-{number}" for number in range(1, self.brokers + 1)}
        if self.metadata_mode == "kraft-combined":
            return brokers
        if self.metadata_mode == "zookeeper":
            later = range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + self.migration_controllers)
            brokers |= {number: f"controller-{number}" for number in later}
            return brokers | {FIRST_ZOOKEEPER_ID - 1 + n: f"zookeeper-{n}" for n in range(1, self.zookeepers + 1)}
        controllers = range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + self.controllers)
        return brokers | {number: f"controller-{number}" for number in controllers}


def version_numbers(version: str) -> tuple[int, ...]:
    """Returns a version as numbers that can be compared: "3.9.2" → (3, 9, 2). A part that is no number counts as 0."""
    return tuple(int(part) if part.isdigit() else 0 for part in version.partition("-")[0].split("."))


class ComposeService(Frozen):
    """A service of your own Compose file that runs Kafka, as far as its labels and environment do not say it."""

    node_id: Annotated[int, Field(ge=0)] | None = None
    """Kafka's node.id."""
    roles: str | None = None
    """The roles of the service: "broker", "controller", or "broker,controller"."""
    clients: str | None = None
    """The HOST:PORT at which clients on this machine reach it. It must be the one that the broker advertises."""
    observer: str | None = None
    """The HOST:PORT for administration and audit, which faults of clients leave alone. None means that of clients."""
    controllers: str | None = None
    """The HOST:PORT of its controller listener. None means its port at the container's address."""
    data: str | None = None
    """Its log directory in the container."""


class ComposeOptions(Frozen):
    """Options that only the compose backend has."""

    kafka_image: str | None = None
    """The image of Kafka, in which {version} stands for that of the variant. None means the official image, or the one
    that `prozess images build` built."""
    zookeeper_image: str | None = None
    """The image of ZooKeeper, as `kafka_image`."""
    broker_heap: str | None = None
    """The JVM's memory options, such as "-Xms64m -Xmx512m". None means those of the local backend."""
    controller_heap: str | None = None
    """The memory options of controllers, as `broker_heap`."""
    file: str | None = None
    """Your own Compose file, which is used as it is. Its path is relative to the trial's file."""
    services: dict[str, ComposeService] = Field(default_factory=dict)
    """Name of a service in that file → what it is. Other services are recognised by label or environment, or run no
    Kafka."""


TIER_INTERVAL_MS = 500
"""How often brokers look for segments to copy and to delete, unless a trial says otherwise. Kafka's own half a minute is
longer than some trials."""
TIERED = "tiered"
"""The trait of cells whose topic has tiered storage."""
KEYED = "keyed"
"""The trait of cells whose producers leave the choice of a partition to their library, by the record's key."""
BOUNDED = "bounded"
"""The trait of cells for which the trial states a delivery bound."""


class DeliveryBound(Frozen):
    """The promise of a trial about its deliveries: each acknowledged record reaches its consumers in time."""

    latency_s: Annotated[float, Field(ge=0.1, le=86_400)]
    """The greatest latency, from before the call of produce() until the return of the poll that delivers the record. A
    poll may say it up to 50 ms late."""
    window_s: Annotated[float, Field(ge=0.1, le=86_400)] = 1.0
    """The length of a window. Counts and latencies are reported for each window, by the time at which records were sent
    on the trial's clock."""
    except_during_faults: bool = True
    """True means that the promise excludes records which a fault may have delayed: the fault was made before their
    deadline, and had not been over for `recovery_s` when they were sent."""
    recovery_s: Annotated[float, Field(ge=0, le=86_400)] = 10.0
    """How long after the end of a fault the promise holds again."""

    @property
    def latency_ns(self) -> int:
        return round(self.latency_s * 1e9)

    @property
    def window_ns(self) -> int:
        return round(self.window_s * 1e9)

    @property
    def recovery_ns(self) -> int:
        return round(self.recovery_s * 1e9)


class ConsumerConfiguration(Frozen):
    """Says who consumes in a cell of the verifiable workload."""

    command: tuple[str, ...] = ()
    """The command line of a program of your own that takes the options of Kafka's VerifiableConsumer and prints what that
    prints, word by word, as the command of a producer. Empty: the consumer is of the producer's kind, or prozess's own."""


class GroupConfiguration(Frozen):
    """The settings of one consumer group. `protocol` is how members share the partitions; `commit` is when they commit
    offsets."""

    client: Literal["librdkafka", "java"] = "librdkafka"
    """Which client the members are."""
    client_version: ClientVersion | None = None
    """The version of the client's library, as of producers."""
    defaults: Literal["prozess", "library"] = "prozess"
    """Names whose defaults count for what the trial does not set, as of producers."""
    left_to_client: tuple[str, ...] = ()
    """The settings that are not written to the members. Their values here are those of the library. Made by the plan."""
    protocol: Literal["classic-eager", "classic-cooperative", "consumer"] = "classic-cooperative"
    """How members share partitions. classic-eager: they give up all in every rebalance; classic-cooperative: only those that
    move (KIP-429); consumer: the protocol of KIP-848."""
    assignor: Literal["default", "range", "roundrobin", "sticky", "cooperative-sticky", "uniform"] = "default"
    """Which of Kafka's own assignors shares the partitions out. default: range with classic-eager, cooperative-sticky with
    classic-cooperative, and with consumer the first of the brokers' group.consumer.assignors, which is uniform."""
    commit: Literal["auto", "auto-stored", "sync-after", "sync-before", "async-after", "on-revoke", "none"] = (
        "sync-after"
    )
    """When members commit. auto: at an interval, what was delivered; auto-stored: at an interval, what was stored after
    processing; before and after: relative to processing the batch; on-revoke: only when partitions are taken away and
    at the end."""
    auto_commit_interval_ms: Int = 1_000
    """`auto.commit.interval.ms`."""
    auto_offset_reset: Literal["earliest", "latest", "error"] = "earliest"
    """`auto.offset.reset`; `error` is what Java calls `none`."""
    isolation_level: IsolationLevel = "read_committed"
    """`isolation.level`."""
    static_membership: bool = False
    """Whether each member has a `group.instance.id` (KIP-345)."""
    session_timeout_ms: Int = 6_000
    """The members' session timeout in the classic protocols. With KIP-848 it is the brokers'
    `group.consumer.session.timeout.ms`."""
    max_poll_interval_ms: Int = 300_000
    """`max.poll.interval.ms`."""
    subscription: Literal["topics", "pattern"] = "topics"
    """How members subscribe. pattern: with a regular expression that late topics of the cell match, too."""
    failure_share: Annotated[float, Field(ge=0, lt=1)] = 0
    """The share of records whose processing fails when a member tries it for the first time."""
    on_failure: Literal["pause", "retry-topic", "retry-topic-unawaited"] = "pause"
    """What a member does when processing fails.

    pause: it pauses the partition, commits what was before, and tries again `retry_after_ms` later. retry-topic: it
    sends the record to a topic of its own, which the group also consumes, waits for the acknowledgement and commits
    past it. retry-topic-unawaited: the same without waiting.
    """
    retry_after_ms: Int = 500
    """How long a member waits before it processes a failed record again."""
    processing_ms: PauseMs = 0
    """How long it takes to process one record."""
    batch: Count = 100
    """How many records a poll returns at most."""
    members: Annotated[int, Field(ge=1, le=16)] = 2
    """How many members the group has."""
    late_members: Annotated[int, Field(ge=0, le=15)] = 0
    """How many of the members (the last ones) start only when a step says so (`client`, do = "start")."""
    properties: dict[str, Text] = Field(default_factory=dict)
    """Kafka's own properties that have no key here, such as `group.properties.fetch.min.bytes`."""

    @property
    def hands_on(self) -> bool:
        """Says whether the group has a retry topic."""
        return self.on_failure != "pause"


class ShareConfiguration(Frozen):
    """The settings of one share group (KIP-932), and what its members do with what they are given. They are Kafka's own Java
    consumers."""

    client_version: ClientVersion | None = None
    """The version of the members' Java client, from 4.2.0 on; that of the brokers if not set."""
    acknowledgement: Literal["implicit", "explicit"] = "explicit"
    """How members acknowledge (`share.acknowledgement.mode`). implicit: the next poll accepts what the last one gave."""
    auto_offset_reset: Literal["earliest", "latest"] = "earliest"
    """Where a new share group begins (`share.auto.offset.reset`). What stands before it is owed to nobody."""
    isolation_level: IsolationLevel = "read_uncommitted"
    """Which records of transactions the group delivers (`share.isolation.level`)."""
    lock_duration_ms: Int = 30_000
    """How long a member may hold a record (`share.record.lock.duration.ms`)."""
    delivery_count_limit: Annotated[int, Field(ge=2, le=25)] = 5
    """How often a record is delivered before the group archives it (`share.delivery.count.limit`; before 4.3 on the brokers
    alone). No broker takes less than 2. [Kafka documentation, group.share.min.delivery.count.limit]"""
    session_timeout_ms: Int = 45_000
    """How long a silent member stays in the group, and keeps its partitions (`share.session.timeout.ms`)."""
    dead_letter_replicas: Annotated[int, Field(ge=0, le=15)] = 0
    """How many replicas the group's dead-letter queue has, a topic of its own to which brokers copy what is rejected or
    exhausted (`errors.deadletterqueue.topic.name`, KIP-1191). Members make it, and read it at the end. 0: there is none."""
    abort_share: Annotated[float, Field(ge=0, le=1)] = 0
    """The share of transactions that the producers abort, which write in transactions then. 0: they write without."""
    release_share: Annotated[float, Field(ge=0, le=1)] = 0
    """The share of deliveries that members release."""
    reject_share: Annotated[float, Field(ge=0, le=1)] = 0
    """The share of deliveries that members reject."""
    renew_share: Annotated[float, Field(ge=0, le=1)] = 0
    """The share of deliveries whose lock members renew once before they accept them (KIP-1222)."""
    processing_ms: PauseMs = 0
    """How long it takes to process one record."""
    batch: Count = 50
    """How many records a poll returns at most."""
    members: Annotated[int, Field(ge=1, le=16)] = 2
    """How many members the group has."""
    late_members: Annotated[int, Field(ge=0, le=15)] = 0
    """How many of the members (the last ones) start only when a step says so (`client`, do = "start")."""
    properties: dict[str, Text] = Field(default_factory=dict)
    """Properties of the members' Java client, which win over all others."""

    @property
    def lock_ns(self) -> int:
        return self.lock_duration_ms * 1_000_000

    @property
    def session_ns(self) -> int:
        return self.session_timeout_ms * 1_000_000

    @property
    def transaction(self) -> "TransactionConfiguration | None":
        """Returns how the producers of the cell write in transactions. None: they do not."""
        return TransactionConfiguration(abort_share=self.abort_share) if self.abort_share else None


class CompactionConfiguration(Frozen):
    """The settings of one keyed workload: how many keys are written, and how often a key is deleted."""

    keys: Annotated[int, Field(ge=1, le=1_000_000)] = 200
    """How many different keys a partition has. Each record gets one of them, drawn by the trial's seed."""
    tombstone_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """The share of records that are tombstones, which have a key and no value."""
    properties: dict[str, Text] = Field(default_factory=dict)
    """Kafka's own properties that have no key here, such as `compaction.properties.linger.ms`."""


class ProvocationConfiguration(Frozen):
    """The settings of one producer of the errors workload."""

    error: Error
    """The error that the producer provokes."""
    every: Annotated[int, Field(ge=2)] = 10
    """Every n-th record is bad, if bad records cause the error."""
    properties: dict[str, Text] = Field(default_factory=dict)
    """Kafka's own properties that have no key here, such as `provocation.properties.linger.ms`."""


Delivery = Literal["exactly-once", "at-least-once", "at-most-once"]
"""What a copier promises about each record. [Kafka documentation, design, 'Message Delivery Semantics']"""


class CopierConfiguration(Frozen):
    """The settings of one copying group, which consumes, processes and produces. `delivery` is how it keeps its
    progress."""

    client: Literal["librdkafka", "java"] = "librdkafka"
    """Which client copies. java: Kafka's TransactionalMessageCopier."""
    client_version: ClientVersion | None = None
    """The version of the client's library, as of producers."""
    delivery: Delivery | Literal["transaction-alone"] = "exactly-once"
    """How the copier keeps its progress.

    exactly-once: the offsets are part of the transaction (KIP-447). transaction-alone: copies are made in a
    transaction, and offsets are committed once a second. at-least-once: offsets are committed once the copies are
    acknowledged. at-most-once: offsets are committed before the copies are made.
    """
    protocol: Literal["classic-eager", "classic-cooperative", "consumer"] = "classic-cooperative"
    """How members share the partitions, as in `group`."""
    members: Annotated[int, Field(ge=1, le=16)] = 2
    """How many members the group has."""
    batch: Count = 50
    """How many records a poll returns at most, and so how many a transaction has."""
    processing_ms: PauseMs = 0
    """How long it takes to copy one record."""
    abort_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of transactions that are aborted on purpose. Their records are copied again."""
    session_timeout_ms: Int = 6_000
    """The session timeout, as in `group`."""
    max_poll_interval_ms: Int = 300_000
    """`max.poll.interval.ms`."""
    transaction_timeout_ms: Int = 10_000
    """`transaction.timeout.ms`."""
    properties: dict[str, Text] = Field(default_factory=dict)
    """Kafka's own properties that have no key here, such as `copier.properties.fetch.min.bytes`."""

    @property
    def transactional(self) -> bool:
        """Says whether the copies are made in transactions."""
        return self.delivery in ("exactly-once", "transaction-alone")


class ApplicationConfiguration(Frozen):
    """The settings of one application under test: any process that copies one topic to another."""

    command: Annotated[tuple[str, ...], Field(min_length=1)]
    """The command line, word by word.

    {bootstrap}, {input} and {output} (topics), {group}, {instance} (0, 1, …), {delivery}, {python} (the interpreter
    that runs prozess) and {trials} (the directory of its own trials) are replaced. {{ and }} stand for braces.
    """
    environment: dict[str, Text] = Field(default_factory=dict)
    """Environment variables that are added to those of prozess itself. The same words are replaced in them."""
    delivery: Delivery = "at-least-once"
    """The delivery that the application promises. It is judged by this promise."""
    instances: Annotated[int, Field(ge=1, le=16)] = 1
    """How many processes of it run."""
    input_carrier: Literal["value", "header"] = "header"
    """Where an input record carries its identity: in a binary value, or in a record header beside a value of JSON
    text."""
    output_carrier: Literal["value", "header", "content"] = "content"
    """Where an output record carries its identity: in the copied value, in the copied header, or nowhere. If nowhere,
    input and output are compared as multisets of (key, value)."""
    stop_s: Annotated[float, Field(gt=0, le=15)] = 10.0
    """How long the application may take to end after SIGTERM, before SIGKILL."""


class TransactionConfiguration(Frozen):
    """The settings of one transactional producer."""

    records: Count = 10
    """How many records a transaction has, over all partitions of the cell."""
    dwell_ms: Annotated[int, Field(ge=0, le=INT_MAX)] = 0
    """How long a transaction waits after the first half of its records, and again before its end."""
    abort_share: Annotated[float, Field(ge=0, le=1)] = 0.2
    """The share of transactions that are aborted on purpose."""
    timeout_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The share of transactions that are left open past their timeout."""
    transaction_timeout_ms: Int = 10_000
    """`transaction.timeout.ms`."""
    transactional_ids: Annotated[int, Field(ge=1, le=16)] = 2
    """How many producers work side by side, each with a transactional.id of its own."""
    rate_hz: Annotated[float, Field(gt=0)] = 10
    """How many transactions per second each transactional.id begins at most."""
    reads: Literal["none", "read_committed", "read_uncommitted"] = "none"
    """The isolation level at which transactions read the cell's partitions, before and while they write. none: they do
    not read."""
    standby: bool = False
    """True means that each id has a second process, which does nothing until a step asks it to take the id over
    (`take_over`)."""
    properties: dict[str, Text] = Field(default_factory=dict)
    """Kafka's own properties that have no key here, such as `transaction.properties.linger.ms`."""
