"""What the guarantee table asks of a cell's configuration."""

import re
from dataclasses import dataclass

from prozess.harness.config.configuration import PROVOCATIONS, Acks, GroupConfiguration, ProducerConfiguration
from prozess.harness.config.library_defaults import is_idempotent_by_documentation_alone
from prozess.harness.config.librdkafka_fixes import stores_ends, wants_ends
from prozess.harness.config.partitioners import key_hashes
from prozess.harness.plan.cell_work import CopierWork, ErrorsWork, ShareWork
from prozess.harness.plan.plan import Cell

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellConfiguration:
    """The settings of a cell that the guarantee table asks for."""

    acks: Acks
    idempotent: bool
    """It is idempotent, or its documentation promises that."""
    retries: bool
    several_in_flight: bool
    lifo: bool = False
    by_documentation_alone: bool = False
    """Its documentation promises that it is idempotent, and it is not (KAFKA-13598)."""
    uses_memory_again: bool = False
    """The producer is of a Java client that uses the memory of an expired batch again (KAFKA-19012)."""
    several_per_batch: bool = False
    refused_by_brokers: bool = False
    """The errors that its records provoke are the brokers'."""
    librdkafka: bool = True
    """The producer uses librdkafka; else it is the Java client."""
    key_hashes: tuple[str | None, ...] = ()
    """The hash of a key by which each producer chooses a partition (`prozess.harness.config.partitioners`)."""
    other_library: bool = False
    """The producer is a program of yours, of whose library nothing is known."""
    transactions_before_v2: bool = False
    """Transactions, and none of version 2 (KIP-890): a client that has no such version, or brokers that do not allow it."""
    delivery: str | None = None
    """How a copier keeps its progress (`CopierConfiguration.delivery`), or what an application promises; None = no copier."""
    unclean_enabled: bool = False
    """unclean.leader.election.enable of the topic."""
    retention_limited: bool = False
    """The topic has a retention.ms or a retention.bytes."""
    tiered: bool = False
    """The topic has tiered storage (KIP-405)."""
    commits_first: bool = False
    """The group commits what its members may not have processed yet."""
    commits_by_name: bool = False
    """Members name topics in their commits, not the ids of topics (OffsetCommit before version 10)."""
    ends_are_stored: bool = False
    """Members ask for the ends of partitions, of a librdkafka that takes them for records, and commit what it stored."""
    knows_names_alone: bool = False
    """Members are of a Java client that compares leader epochs, and knows no ids of topics (KAFKA-12257)."""
    forgets_topic_ids: bool = False
    """Members are of a Java client that takes a topic which it saw missing by the epochs of its name (KAFKA-13488)."""
    commits_while_it_collects: bool = False
    """Members are of a Java client that commits by itself what poll() is only about to return (KAFKA-18641)."""
    crcs_unchecked: bool = False
    """The group's members give on what they read without comparing its checksum."""
    resets_to_latest: bool = False
    other_assignor: bool = False
    """The group names an assignor that is none of Kafka's own."""
    hands_on: bool = False
    """The group sends what failed to a retry topic."""
    hands_on_unawaited: bool = False
    """The group commits past a record that it sent to the retry topic without waiting for the acknowledgement."""
    share_latest: bool = False
    """Its share group begins at the end of the log."""
    faults_excepted: bool = False
    """The trial's delivery bound leaves out what a fault may have delayed."""
    version: Version | None = None
    """The version of the oldest broker; None = not known."""


_RETENTION = ("retention.ms", "retention.bytes")
TRANSACTION_VERSION_2 = 2
"""Level of the feature transaction.version from which on the epoch changes with every transaction (KIP-890 part 2)."""


def configuration_of(cell: Cell, kafka_version: str | None, *, transaction_version: int = 0) -> CellConfiguration:
    """Returns what the table asks of a cell. `kafka_version`: what the cluster really runs; `transaction_version`: the
    level of its feature transaction.version."""
    producer, group = cell.producer, None if cell.group is None else cell.group.configuration
    promised = _is_promised_alone(producer, kafka_version)
    return CellConfiguration(
        acks=producer.acks,
        idempotent=is_idempotent(producer) or promised,
        by_documentation_alone=promised,
        uses_memory_again=uses_memory_again(producer, parse_version(kafka_version)),
        retries=producer.retries != "0",
        several_in_flight=producer.max_in_flight > 1,
        lifo=producer.client != "command" and producer.properties.get("queuing.strategy", "fifo") == "lifo",
        several_per_batch=producer.properties.get("batch.num.messages") != "1",
        refused_by_brokers=isinstance(cell.work, ErrorsWork) and PROVOCATIONS[cell.work.configuration.error].by_broker,
        librdkafka=producer.client == "librdkafka",
        key_hashes=key_hashes(producer),
        other_library=producer.client == "command",
        transactions_before_v2=_before_v2(cell, transaction_version),
        delivery=cell.delivery,
        unclean_enabled=cell.topic.unclean_leader_election_enable,
        retention_limited=any(cell.topic.properties.get(name, "-1") != "-1" for name in _RETENTION),
        tiered=cell.topic.is_tiered,
        commits_first=group is not None and commits_first(group),
        commits_by_name=group is not None and commits_by_name(group, parse_version(kafka_version)),
        ends_are_stored=group is not None and stores_ends(group) and wants_ends(group),
        knows_names_alone=group is not None and knows_names_alone(group, parse_version(kafka_version)),
        forgets_topic_ids=group is not None and forgets_topic_ids(group, parse_version(kafka_version)),
        commits_while_it_collects=group is not None and commits_while_it_collects(group, parse_version(kafka_version)),
        crcs_unchecked=group is not None and group.properties.get("check.crcs", "true").lower() == "false",
        resets_to_latest=group is not None and group.auto_offset_reset == "latest",
        other_assignor=group is not None and has_other_assignor(group),
        hands_on=group is not None and group.hands_on,
        hands_on_unawaited=group is not None and group.on_failure == "retry-topic-unawaited",
        share_latest=isinstance(cell.work, ShareWork) and cell.work.configuration.auto_offset_reset == "latest",
        faults_excepted=cell.delivery_bound is not None and cell.delivery_bound.except_during_faults,
        version=parse_version(kafka_version),
    )


def _before_v2(cell: Cell, transaction_version: int) -> bool:
    """Has it transactions of version 0 or 1? librdkafka's always are, whatever the brokers allow (librdkafka#5423), and
    so are those of Java clients before 4.0 (KIP-890)."""
    client: str
    if isinstance(cell.work, CopierWork):
        one, transactional = cell.work.configuration, cell.work.configuration.transactional
        client, version = one.client, one.client_version
    else:
        transactional = cell.transaction is not None
        client, version = cell.producer.client, cell.producer.client_version
    older = client == "librdkafka" or (version is not None and (parse_version(version) or ()) < TRANSACTIONS_V2)
    return transactional and (older or transaction_version < TRANSACTION_VERSION_2)


def is_idempotent(producer: ProducerConfiguration) -> bool:
    """Returns whether the producer is idempotent. librdkafka: exactly when set; Java: silently off when acks, retries
    or requests in flight contradict a default. [KIP-679; librdkafka CONFIGURATION]"""
    return producer.enable_idempotence and (_fits_idempotence(producer) or producer.client == "librdkafka")


def _fits_idempotence(producer: ProducerConfiguration) -> bool:
    return producer.acks == "all" and producer.retries != "0" and producer.max_in_flight <= 5


def _is_promised_alone(producer: ProducerConfiguration, kafka_version: str | None) -> bool:
    """Says whether the documentation of a Java producer on which nothing is set that concerns it promises an idempotence
    that the client does not have. [KAFKA-13598]"""
    version = producer.client_version or kafka_version
    unset = producer.client == "java" and "enable_idempotence" in producer.left_to_client
    lacks = version is not None and parse_version(version) is not None and is_idempotent_by_documentation_alone(version)
    return unset and lacks and not producer.enable_idempotence and _fits_idempotence(producer)


def uses_memory_again(producer: ProducerConfiguration, brokers: Version | None) -> bool:
    """Does the producer give the memory of an expired batch to another one while its request is being written?
    [KAFKA-19012, since 2.8.0; fixed in 3.9.2, 4.0.2, 4.1.2 and 4.2.0]"""
    v = parse_version(producer.client_version) or brokers
    has = v is not None and ((2, 8) <= v < (3, 9, 2) or (4,) <= v < (4, 0, 2) or (4, 1) <= v < (4, 1, 2))
    return producer.client == "java" and has


_ASSIGNOR = re.compile(
    r"(class )?org\.apache\.kafka\.clients\.consumer\.(Range|RoundRobin|Sticky|CooperativeSticky)Assignor"
    "|range|roundrobin|cooperative-sticky|uniform|"
)
"""Kafka's own assignors, by the names that Java, librdkafka and the brokers have for them."""


def has_other_assignor(group: GroupConfiguration) -> bool:
    """Returns whether the group names an assignor that is none of Kafka's own: all that is promised of it is its author's."""
    given = (group.properties.get(name, "") for name in ("partition.assignment.strategy", "group.remote.assignor"))
    return not all(_ASSIGNOR.fullmatch(one.strip()) for names in given for one in names.strip("[]").split(","))


def commits_first(group: GroupConfiguration) -> bool:
    """librdkafka stores what it has delivered, processed or not, unless reported otherwise; a Java consumer commits what
    the last poll returned. [librdkafka CONFIGURATION, enable.auto.offset.store; KafkaConsumer, "Automatic Offset
    Committing"]"""
    return group.commit == "sync-before" or (group.commit == "auto" and group.client == "librdkafka")


COMMITS_BY_ID: Version = (4, 2)
"""The first release whose Java client sends ids of topics in its commits. [KAFKA-15283]"""


def commits_by_name(group: GroupConfiguration, brokers: Version | None) -> bool:
    """librdkafka 2.16 sends at most version 9 of OffsetCommit; Java and brokers know 10 since 4.2. [KAFKA-14690]"""
    client = parse_version(group.client_version) or brokers
    return group.client == "librdkafka" or any(v is not None and v < COMMITS_BY_ID for v in (client, brokers))


def forgets_topic_ids(group: GroupConfiguration, brokers: Version | None) -> bool:
    """Does the members' client compare leader epochs with those of a topic whose id it has forgotten? [KAFKA-13488, fixed in
    2.8.2, 3.0.1 and 3.1.0; before 2.8.1 it knows no ids]"""
    version = parse_version(group.client_version) or brokers
    forgets = version is not None and ((2, 8, 1) <= version < (2, 8, 2) or (3,) <= version < (3, 0, 1))
    return group.client == "java" and forgets


def knows_names_alone(group: GroupConfiguration, brokers: Version | None) -> bool:
    """Does the members' client compare leader epochs with those of whichever topic had the name? [KAFKA-12257, since KIP-320
    in 2.1; fixed in 2.8.1 and 3.0.0]"""
    version = parse_version(group.client_version) or brokers
    return group.client == "java" and version is not None and (2, 1) <= version < (2, 8, 1)


def commits_while_it_collects(group: GroupConfiguration, brokers: Version | None) -> bool:
    """Does the members' client commit by itself while poll() collects? [KAFKA-18641: the new consumer, but not that of
    4.0 and 4.1]"""
    version = parse_version(group.client_version) or brokers
    own = group.client == "java" and group.protocol == "consumer" and group.commit == "auto"
    return own and version is not None and not (4,) <= version < (4, 2)


def parse_version(text: str | None) -> Version | None:
    """Returns "4.4.0" as (4, 4, 0); None if it is no release's number."""
    parts = (text or "").split("-")[0].split(".")
    return tuple(int(p) for p in parts) if all(p.isdigit() for p in parts) else None


TRANSACTIONS_V2: Version = (4, 0)
"""First release whose brokers and Java clients have transactions version 2. A cluster that was made with it has the feature
transaction.version at 2; one that was upgraded has it once somebody asked for it. [KIP-890; KIP-1022]"""
