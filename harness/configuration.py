"""Configurations: frozen values that print, validate and round-trip. Kafka's own spelling, with `_` for `.`.

`None` means "not set: whatever the client or broker defaults to".
"""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt


class Frozen(BaseModel):
    """A value from a file: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


def _text(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value


Text = Annotated[str, BeforeValidator(_text)]
"""A Kafka property value: numbers and booleans from TOML become Kafka's spelling of them."""

Acks = Annotated[Literal["0", "1", "all"], BeforeValidator(_text)]
Retries = Annotated[Literal["0", "max"], BeforeValidator(_text)]
MetadataMode = Literal["kraft-isolated", "kraft-combined", "zookeeper"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]


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


class Variant(Frozen):
    """A kind of cluster. Times are brokers' settings that shape a trial; the report states them."""

    metadata_mode: MetadataMode = "kraft-isolated"
    kafka_version: Text = "4.3.1"
    brokers: Annotated[int, Field(ge=1, le=9)] = 3
    controllers: Annotated[int, Field(ge=1, le=5)] = 1
    racks: tuple[str, ...] = ()
    properties: dict[str, Text] = Field(default_factory=dict)
    """Broker properties laid over the defaults of the backend."""


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
    """Of the members, in the classic protocols. With KIP-848 it is the brokers' `group.consumer.session.timeout.ms`: set
    both alike, ownership is judged by this one."""
    max_poll_interval_ms: PositiveInt = 300_000
    processing_ms: Annotated[float, Field(ge=0)] = 0
    """How long processing one record takes."""
    batch: PositiveInt = 100
    """Records per poll at most."""
    members: Annotated[int, Field(ge=1, le=16)] = 2
    properties: dict[str, Text] = Field(default_factory=dict)


class CompactionConfiguration(Frozen):
    """What varies per keyed workload: which keys are written, and how often one is deleted."""

    keys: Annotated[int, Field(ge=1, le=1_000_000)] = 200
    """Different keys per partition; each record takes one of them, drawn by the trial's seed."""
    tombstone_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of records that are tombstones: a key and no value."""
    properties: dict[str, Text] = Field(default_factory=dict)


class TransactionConfiguration(Frozen):
    """What varies per transactional producer."""

    records: PositiveInt = 10
    """Per transaction, over the cell's partitions."""
    abort_share: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Share of transactions that are aborted on purpose."""
    timeout_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of transactions that are left open past their timeout."""
    transaction_timeout_ms: PositiveInt = 10_000
    transactional_ids: Annotated[int, Field(ge=1, le=16)] = 2
    """Producers at work side by side, each with an id of its own."""
    rate_hz: Annotated[float, Field(gt=0)] = 10
    """Transactions per second and id, at most."""
    standby: bool = False
    """A second process per id, that does nothing until it is told to take the id over (`take_over`)."""
    properties: dict[str, Text] = Field(default_factory=dict)
