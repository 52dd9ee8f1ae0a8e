"""What of a cell's configuration the guarantee table asks for."""

from dataclasses import dataclass

from harness.configuration import Acks, GroupConfiguration, ProducerConfiguration
from harness.plan import Cell
from harness.provocations import PROVOCATIONS

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What of a cell's configuration the table asks for."""

    acks: Acks
    idempotent: bool
    retries: bool
    several_in_flight: bool
    lifo: bool = False
    several_per_batch: bool = False
    refused_by_brokers: bool = False
    """The errors that its records provoke are the brokers'."""
    librdkafka: bool = True
    """The producer is librdkafka's; else Java's."""
    transactions_before_v2: bool = False
    """Transactions, and none of version 2 (KIP-890): a client that has no such version, or brokers that do not allow it."""
    delivery: str | None = None
    """How a copier keeps its progress (`CopierConfiguration.delivery`), or what an application promises; None = no copier."""
    unclean_enabled: bool = False
    """unclean.leader.election.enable of the topic."""
    commits_first: bool = False
    """The group commits what its members may not have processed yet."""
    resets_to_latest: bool = False
    hands_on: bool = False
    """The group sends what failed to a retry topic."""
    hands_on_unawaited: bool = False
    """And commits past it without waiting for the acknowledgement."""
    faults_excepted: bool = False
    """The trial's delivery bound leaves out what a fault may have delayed."""
    version: Version | None = None
    """Of the oldest broker; None = not known."""


TRANSACTION_VERSION_2 = 2
"""Level of the feature transaction.version from which on the epoch changes with every transaction (KIP-890 part 2)."""


def configuration_of(cell: Cell, kafka_version: str | None, *, transaction_version: int = 0) -> Configuration:
    """Derived from a cell, the version the cluster really runs, and its level of the feature transaction.version."""
    producer = cell.producer
    return Configuration(
        acks=producer.acks,
        idempotent=is_idempotent(producer),
        retries=producer.retries != "0",
        several_in_flight=producer.max_in_flight > 1,
        lifo=producer.properties.get("queuing.strategy", "fifo") == "lifo",
        several_per_batch=producer.properties.get("batch.num.messages") != "1",
        refused_by_brokers=cell.provocation is not None and PROVOCATIONS[cell.provocation.error].by_broker,
        librdkafka=producer.client == "librdkafka",
        transactions_before_v2=_before_v2(cell, transaction_version),
        delivery=cell.delivery,
        unclean_enabled=cell.topic.unclean_leader_election_enable,
        commits_first=cell.group is not None and commits_first(cell.group),
        resets_to_latest=cell.group is not None and cell.group.auto_offset_reset == "latest",
        hands_on=cell.group is not None and cell.group.hands_on,
        hands_on_unawaited=cell.group is not None and cell.group.on_failure == "retry-topic-unawaited",
        faults_excepted=cell.delivery_bound is not None and cell.delivery_bound.except_during_faults,
        version=parse_version(kafka_version),
    )


def _before_v2(cell: Cell, transaction_version: int) -> bool:
    """Has it transactions of version 0 or 1? librdkafka's always are, whatever the brokers allow (librdkafka#5423)."""
    client = cell.producer.client if cell.copier is None else cell.copier.client
    transactional = cell.transaction is not None if cell.copier is None else cell.copier.transactional
    return transactional and (client == "librdkafka" or transaction_version < TRANSACTION_VERSION_2)


def is_idempotent(producer: ProducerConfiguration) -> bool:
    """librdkafka: exactly when set; Java: silently off when acks, retries or requests in flight contradict a default.
    [KIP-679; librdkafka CONFIGURATION]"""
    fits = producer.acks == "all" and producer.retries != "0" and producer.max_in_flight <= 5
    return producer.enable_idempotence and (fits or producer.client == "librdkafka")


def commits_first(group: GroupConfiguration) -> bool:
    """librdkafka stores what it has delivered, processed or not, unless told otherwise; a Java consumer commits what the last
    poll returned. [librdkafka CONFIGURATION, enable.auto.offset.store; KafkaConsumer, "Automatic Offset Committing"]"""
    return group.commit == "sync-before" or (group.commit == "auto" and group.client == "librdkafka")


def parse_version(text: str | None) -> Version | None:
    """ "4.3.1" → (4, 3, 1); None if it is no release's number."""
    parts = (text or "").split("-")[0].split(".")
    return tuple(int(p) for p in parts) if all(p.isdigit() for p in parts) else None
