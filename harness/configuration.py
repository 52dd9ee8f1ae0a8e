"""Configurations: frozen values that print, validate and round-trip. Kafka's own spelling, with `_` for `.`.

`None` means "not set: whatever the client or broker defaults to".
"""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt

from harness.provocations import Error


class Frozen(BaseModel):
    """A value from a file: immutable, an unknown key is an error, and so is a number that is infinite or none."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True, allow_inf_nan=False)


def _text(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value


Text = Annotated[str, BeforeValidator(_text)]
"""A Kafka property value: numbers and booleans from TOML become Kafka's spelling of them."""

Acks = Annotated[Literal["0", "1", "all"], BeforeValidator(_text)]
Retries = Annotated[Literal["0", "max"], BeforeValidator(_text)]
MetadataMode = Literal["kraft-isolated", "kraft-combined", "zookeeper"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
FIRST_CONTROLLER_ID = 3001
"""Isolated controllers are numbered from here, as Kafka's own system tests do; brokers from 1."""
FIRST_ZOOKEEPER_ID = 4001
"""ZooKeeper servers have ids of their own there (1, 2, …); here they are told from brokers."""


class TopicConfiguration(Frozen):
    """What varies per topic."""

    replication_factor: PositiveInt = 3
    min_insync_replicas: PositiveInt = 1
    unclean_leader_election_enable: bool = False
    flush_messages: PositiveInt | None = None
    cleanup_policy: Literal["delete", "compact"] = "delete"
    properties: dict[str, Text] = Field(default_factory=dict)

    def kafka_properties(self) -> dict[str, str]:
        """As CreateTopics wants them."""
        named = {
            "min.insync.replicas": str(self.min_insync_replicas),
            "unclean.leader.election.enable": str(self.unclean_leader_election_enable).lower(),
            "cleanup.policy": self.cleanup_policy,
        }
        if self.flush_messages is not None:
            named["flush.messages"] = str(self.flush_messages)
        return named | self.properties


class ProducerConfiguration(Frozen):
    """What varies per producer. `retries="max"` is the client's own maximum."""

    client: Literal["librdkafka", "java"] = "librdkafka"
    acks: Acks = "all"
    enable_idempotence: bool = False
    retries: Retries = "max"
    max_in_flight: PositiveInt = 5
    delivery_timeout_ms: PositiveInt = 60_000
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    linger_ms: Annotated[float, Field(ge=0)] = 5
    properties: dict[str, Text] = Field(default_factory=dict)


LAST_WITH_ZOOKEEPER = "3.9.2"
"""Kafka 4.0 has no ZooKeeper mode any more (KIP-500)."""


class Variant(Frozen):
    """A kind of cluster. Times are brokers' settings that shape a trial; the report states them."""

    metadata_mode: MetadataMode = "kraft-isolated"
    kafka_version: Text = "4.3.1"
    versions: dict[str, Text] = Field(default_factory=dict)
    """Node → its version of Kafka, where that is another one: a cluster in the middle of an upgrade."""
    brokers: Annotated[int, Field(ge=1, le=9)] = 3
    controllers: Annotated[int, Field(ge=1, le=5)] = 1
    """Of `kraft-isolated`."""
    zookeepers: Annotated[int, Field(ge=1, le=5)] = 1
    """Of `zookeeper`."""
    migration_controllers: Annotated[int, Field(ge=0, le=5)] = 0
    """Of `zookeeper`: controllers that do not run until a step `migrate` starts them (KIP-866)."""
    racks: tuple[str, ...] = ()
    """Brokers are dealt to them in turn."""
    features: dict[str, Annotated[int, Field(ge=0, le=1000)]] = Field(default_factory=dict)
    """Feature levels other than those of the version, `transaction.version` for one (KIP-1022)."""
    properties: dict[str, Text] = Field(default_factory=dict)
    """Broker properties laid over the defaults of the backend."""

    def version_of(self, node: str) -> str:
        """The version of Kafka that the node of this name runs."""
        return self.versions.get(node, self.kafka_version)

    def rack_of(self, broker: int) -> str | None:
        """The rack of the broker with this id; None if there are none."""
        return self.racks[(broker - 1) % len(self.racks)] if self.racks else None

    @property
    def kafka_versions(self) -> tuple[str, ...]:
        """Every version that some node runs, the oldest first."""
        servers = self.server_names()
        return tuple(sorted({self.version_of(name) for name in servers.values()}, key=version_numbers))

    @property
    def oldest_version(self) -> str:
        """What the whole cluster can rely on: the oldest version of any node."""
        return self.kafka_versions[0]

    @property
    def metadata_keepers(self) -> tuple[int, ...]:
        """Node ids of the controllers; with ZooKeeper its servers and every broker, each of which may be the controller."""
        everyone = tuple(self.server_names())
        return everyone if self.metadata_mode != "kraft-isolated" else everyone[self.brokers :]

    def server_names(self) -> dict[int, str]:
        """Node id → name of every server; Kafka's own ids, and such as no broker can have for ZooKeeper's."""
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
    """To compare versions by: "3.9.2" → (3, 9, 2). What is no number counts as 0."""
    return tuple(int(part) if part.isdigit() else 0 for part in version.partition("-")[0].split("."))


class ComposeService(Frozen):
    """A service of a person's own Compose file that runs Kafka, as far as its labels and environment do not tell."""

    node_id: Annotated[int, Field(ge=1)] | None = None
    roles: str | None = None
    """broker; controller; broker,controller."""
    clients: str | None = None
    """HOST:PORT at which clients on this machine reach it, as it advertises it."""
    observer: str | None = None
    """HOST:PORT for administration and audit, which faults of clients leave alone. None: that of clients."""
    controllers: str | None = None
    """HOST:PORT of its controller listener. None: its port at the container's address."""
    data: str | None = None
    """Its log directory in the container."""


class ComposeOptions(Frozen):
    """Of the compose backend alone."""

    kafka_image: str | None = None
    """{version} stands for the variant's. None: the official image, or the one that `prozess images build` built."""
    zookeeper_image: str | None = None
    broker_heap: str | None = None
    """Options of a JVM, such as "-Xms64m -Xmx512m"; None: as of the local backend."""
    controller_heap: str | None = None
    file: str | None = None
    """A Compose file of one's own, to be used as it is; relative to the trial's file."""
    services: dict[str, ComposeService] = Field(default_factory=dict)
    """Service of that file → what it is. Other services are known by label or environment, or run no Kafka."""


class DeliveryBound(Frozen):
    """What a trial promises of its own deliveries: each acknowledged record reaches whoever is to be given it in time."""

    latency_s: Annotated[float, Field(ge=0.1, le=86_400)]
    """From before produce() was called until the poll returned that gave the record. A poll tells it up to 50 ms late."""
    window_s: Annotated[float, Field(ge=0.1, le=86_400)] = 1.0
    """Counts and latencies are told per window of this length, by when records were sent, on the trial's clock."""
    except_during_faults: bool = True
    """Does the promise leave out records that a fault may have delayed: at work before their deadline, and not over for
    `recovery_s` when they were sent?"""
    recovery_s: Annotated[float, Field(ge=0, le=86_400)] = 10.0
    """How long after a fault is undone the promise holds again."""

    @property
    def latency_ns(self) -> int:
        return round(self.latency_s * 1e9)

    @property
    def window_ns(self) -> int:
        return round(self.window_s * 1e9)

    @property
    def recovery_ns(self) -> int:
        return round(self.recovery_s * 1e9)


class GroupConfiguration(Frozen):
    """What varies per consumer group. `protocol` is how members share partitions; `commit` when they say what they did."""

    client: Literal["librdkafka", "java"] = "librdkafka"
    protocol: Literal["classic-eager", "classic-cooperative", "consumer"] = "classic-cooperative"
    """classic-eager: range; classic-cooperative: cooperative-sticky (KIP-429); consumer: KIP-848."""
    commit: Literal["auto", "auto-stored", "sync-after", "sync-before", "async-after", "on-revoke", "none"] = (
        "sync-after"
    )
    """auto: at an interval, what was delivered; auto-stored: at an interval, what was stored after processing; before,
    after: relative to processing the batch; on-revoke: only when partitions are taken away and at the end."""
    auto_commit_interval_ms: PositiveInt = 1_000
    auto_offset_reset: Literal["earliest", "latest", "error"] = "earliest"
    isolation_level: IsolationLevel = "read_committed"
    static_membership: bool = False
    session_timeout_ms: PositiveInt = 6_000
    """Of the members, in the classic protocols. With KIP-848 it is the brokers' `group.consumer.session.timeout.ms`."""
    max_poll_interval_ms: PositiveInt = 300_000
    subscription: Literal["topics", "pattern"] = "topics"
    """pattern: a regular expression that late topics of the cell match too."""
    failure_share: Annotated[float, Field(ge=0, lt=1)] = 0
    """Share of records whose processing fails when a member tries it for the first time."""
    on_failure: Literal["pause", "retry-topic", "retry-topic-unawaited"] = "pause"
    """What it does then. pause: it pauses the partition, commits what was before, and tries again `retry_after_ms` later.
    retry-topic: it sends the record to a topic of its own, which the group consumes too, waits for the acknowledgement and
    commits past it; -unawaited: it does not wait."""
    retry_after_ms: PositiveInt = 500
    processing_ms: Annotated[float, Field(ge=0)] = 0
    """How long processing one record takes."""
    batch: PositiveInt = 100
    """Records per poll at most."""
    members: Annotated[int, Field(ge=1, le=16)] = 2
    late_members: Annotated[int, Field(ge=0, le=15)] = 0
    """How many of the members (the last ones) start only when a step says so (`client`, do = "start")."""
    properties: dict[str, Text] = Field(default_factory=dict)

    @property
    def hands_on(self) -> bool:
        """Has it a retry topic?"""
        return self.on_failure != "pause"


class CompactionConfiguration(Frozen):
    """What varies per keyed workload: which keys are written, and how often one is deleted."""

    keys: Annotated[int, Field(ge=1, le=1_000_000)] = 200
    """Different keys per partition; each record takes one of them, drawn by the trial's seed."""
    tombstone_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of records that are tombstones: a key and no value."""
    properties: dict[str, Text] = Field(default_factory=dict)


class ProvocationConfiguration(Frozen):
    """What varies per producer of the errors workload."""

    error: Error
    """Which error it provokes (`harness.provocations`)."""
    every: Annotated[int, Field(ge=2)] = 10
    """Every n-th record is bad, where records bring the error about."""
    properties: dict[str, Text] = Field(default_factory=dict)


Delivery = Literal["exactly-once", "at-least-once", "at-most-once"]
"""What a copier promises of each record. [Kafka documentation, design, 'Message Delivery Semantics']"""


class CopierConfiguration(Frozen):
    """What varies per copying group (consume - process - produce). `delivery` is how it keeps its progress."""

    client: Literal["librdkafka", "java"] = "librdkafka"
    """java: Kafka's TransactionalMessageCopier."""
    delivery: Delivery | Literal["transaction-alone"] = "exactly-once"
    """exactly-once: the offsets in the transaction (KIP-447); transaction-alone: copies in a transaction, the offsets
    once a second; at-least-once: committed once the copies are acknowledged; at-most-once: committed before they are
    made."""
    protocol: Literal["classic-eager", "classic-cooperative", "consumer"] = "classic-cooperative"
    members: Annotated[int, Field(ge=1, le=16)] = 2
    batch: PositiveInt = 50
    """Records per poll, and so per transaction, at most."""
    processing_ms: Annotated[float, Field(ge=0)] = 0
    """How long copying one record takes."""
    abort_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of transactions that are aborted on purpose, and copied again."""
    session_timeout_ms: PositiveInt = 6_000
    """As of `group`."""
    max_poll_interval_ms: PositiveInt = 300_000
    transaction_timeout_ms: PositiveInt = 10_000
    properties: dict[str, Text] = Field(default_factory=dict)

    @property
    def transactional(self) -> bool:
        """Are its copies made in transactions?"""
        return self.delivery in ("exactly-once", "transaction-alone")


class ApplicationConfiguration(Frozen):
    """What varies per application under test: any process that copies one topic into another."""

    command: Annotated[tuple[str, ...], Field(min_length=1)]
    """Words. In them {bootstrap}, {input} and {output} (topics), {group}, {instance} (0, 1, …), {delivery}, {python}
    (the interpreter that runs prozess) and {trials} (the directory of its own trials) are replaced; {{ and }} stand
    for braces."""
    environment: dict[str, Text] = Field(default_factory=dict)
    """Beside the environment of prozess itself; the same words are replaced."""
    delivery: Delivery = "at-least-once"
    """What it promises, and is held to."""
    instances: Annotated[int, Field(ge=1, le=16)] = 1
    input_carrier: Literal["value", "header"] = "header"
    """Where the identity of what it is given is: in a binary value, or in a record header beside a value of JSON text."""
    output_carrier: Literal["value", "header", "content"] = "content"
    """Where the identity of what it writes is: it copies the value, or the header, or neither: then input and output are
    compared as multisets of (key, value)."""
    stop_s: Annotated[float, Field(gt=0, le=15)] = 10.0
    """From SIGTERM to SIGKILL."""


class TransactionConfiguration(Frozen):
    """What varies per transactional producer."""

    records: PositiveInt = 10
    """Per transaction, over the cell's partitions."""
    dwell_ms: Annotated[int, Field(ge=0)] = 0
    """So long a transaction waits after the first half of its records, and again before its end."""
    abort_share: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Share of transactions that are aborted on purpose."""
    timeout_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of transactions that are left open past their timeout."""
    transaction_timeout_ms: PositiveInt = 10_000
    transactional_ids: Annotated[int, Field(ge=1, le=16)] = 2
    """Producers at work side by side, each with an id of its own."""
    rate_hz: Annotated[float, Field(gt=0)] = 10
    """Transactions per second and id, at most."""
    reads: Literal["none", "read_committed", "read_uncommitted"] = "none"
    """At which isolation level transactions read the cell's partitions, before and while they write; none: they do not."""
    standby: bool = False
    """A second process per id, that does nothing until it is told to take the id over (`take_over`)."""
    properties: dict[str, Text] = Field(default_factory=dict)
