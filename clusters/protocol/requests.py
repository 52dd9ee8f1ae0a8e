"""The requests that the observer sends to one broker or controller, and how their answers are read.

Layouts: the message schemas that every `kafka-clients` jar carries (`common/message/*.json`). Versions are chosen such that
brokers 2.8 … 4.3 speak them: Metadata v7 and ListOffsets v5 are the last with a fixed layout.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from prozess.clusters.protocol.client import (
    NO_TAGS,
    Cursor,
    Malformed,
    Request,
    compact_string,
    string,
    unsigned_varint,
)
from prozess.harness.interfaces import PartitionView
from prozess.harness.interfaces.cluster import CoordinatedTransaction, OpenTransaction
from prozess.harness.schema import NONE, Isolation

METADATA_LOG_TOPIC = "__cluster_metadata"
EARLIEST, LATEST = -2, -1
"""Special timestamps of ListOffsets: LATEST asks for the high watermark, at read_committed for the last stable offset."""
DESCRIBE_QUORUM = 55
"""The api key of DescribeQuorum, which brokers with controllers in KRaft know (KIP-595)."""
DESCRIBE_TOPIC_PARTITIONS = 75
"""The api key of DescribeTopicPartitions, which brokers know since 3.8 (KIP-966)."""

_INT32 = struct.Struct(">i")
_PARTITION_HEAD = struct.Struct(">hiiii")  # error, number, leader, leader epoch, count of replicas
_QUORUM_PARTITION = struct.Struct(">ihiiq")  # number, error, leader, leader epoch, high watermark
_VOTER = struct.Struct(">iq")  # id, end of its log
_API_RANGE = struct.Struct(">hhh")  # key, lowest, highest version
_TOPIC_PARTITION = struct.Struct(">hiii")  # error, number, leader, leader epoch
_LISTED_OFFSET = struct.Struct(">ihqqi")  # number, error, timestamp, offset, leader epoch
# What these take on the wire by Kafka's schemas: `>` has no padding, which a layout without it would have.
assert (_PARTITION_HEAD.size, _QUORUM_PARTITION.size, _VOTER.size) == (18, 22, 12)
assert (_API_RANGE.size, _TOPIC_PARTITION.size, _LISTED_OFFSET.size) == (6, 14, 26)


@dataclass(frozen=True, slots=True)
class MetadataAnswer:
    """The brokers that a broker takes for alive, and what it says of the topics that it knows."""

    brokers: frozenset[int]
    partitions: Mapping[tuple[str, int], PartitionView]
    """What the broker says of partitions; topics that it does not know are left out."""
    addresses: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    """Where the living brokers are, on the listener that was asked."""
    controller: int = NONE
    """With ZooKeeper the active controller. In KRaft a random living broker, never to be used."""


def metadata_request(topics: Sequence[str]) -> Request[MetadataAnswer]:
    """Returns a Metadata request, v7: the last version with a fixed layout and the first with leader epochs. It creates
    no topic."""
    body = struct.pack(">i", len(topics)) + b"".join(map(string, topics)) + b"\0"
    return Request(3, 7, body, _metadata_answer)


def all_topics_request() -> Request[MetadataAnswer]:
    """Returns a Metadata request, v7, for every topic that we may describe."""
    return Request(3, 7, struct.pack(">i", -1) + b"\0", _metadata_answer)


def _metadata_answer(cursor: Cursor) -> MetadataAnswer:
    cursor.int32()  # throttle time
    brokers = {}
    for _ in range(cursor.int32()):
        number, host, port = cursor.int32(), cursor.string() or "", cursor.int32()
        brokers[number] = (host, port)
        cursor.string()
    cursor.string()  # cluster id
    controller = cursor.int32()
    partitions: dict[tuple[str, int], PartitionView] = {}
    for _ in range(cursor.int32()):
        topic_error, name, _internal = cursor.int16(), cursor.string() or "", cursor.int8()
        for _ in range(cursor.int32()):
            error, number, leader, epoch, length = cursor.numbers(_PARTITION_HEAD)
            replicas = cursor.int32s(length)
            isr = cursor.int32s(cursor.int32())
            cursor.int32s(cursor.int32())  # offline replicas
            if topic_error == 0:
                partitions[name, number] = PartitionView(leader, epoch, replicas, isr, error)
    return MetadataAnswer(frozenset(brokers), partitions, brokers, controller)


def topic_ids_request(topics: Sequence[str]) -> Request[Mapping[str, UUID]]:
    """Returns a Metadata request, v10: the first with the ids of topics (KIP-516). It creates no topic."""
    named = b"".join(bytes(16) + compact_string(topic) + NO_TAGS for topic in topics)
    body = unsigned_varint(len(topics) + 1) + named + b"\0\0\0" + NO_TAGS
    return Request(3, 10, body, _topic_ids, flexible=True, flexible_response=True)


def _topic_ids(cursor: Cursor) -> Mapping[str, UUID]:
    cursor.int32()  # throttle time
    for _ in range(cursor.unsigned_varint() - 1):
        cursor.int32()
        cursor.compact_string()
        cursor.int32()
        cursor.compact_string()
        cursor.tagged_fields()
    cursor.compact_string()  # cluster id
    cursor.int32()
    found: dict[str, UUID] = {}
    for _ in range(cursor.unsigned_varint() - 1):
        error, name, topic_id = cursor.int16(), cursor.compact_string() or "", cursor.uuid()
        cursor.int8()
        for _ in range(cursor.unsigned_varint() - 1):
            cursor.numbers(_TOPIC_PARTITION)
            for _replicas in range(3):
                cursor.compact_int32s()
            cursor.tagged_fields()
        cursor.int32()
        cursor.tagged_fields()
        if error == 0 and topic_id.int:
            found[name] = topic_id
    return found


@dataclass(frozen=True, slots=True)
class QuorumAnswer:
    """Describes what a controller says of the quorum. Only the leader answers with `error` 0; else the rest is NONE: the
    ids that Kafka fills in are 0, and a node 0 would seem to name itself (DescribeQuorumResponse.singletonErrorResponse)."""

    error: int
    leader: int
    leader_epoch: int
    high_watermark: int
    voters: Mapping[int, int] = field(default_factory=dict)
    """Where each controller's log ends, as the leader knows."""


def describe_quorum_request() -> Request[QuorumAnswer]:
    """Returns a DescribeQuorum request, v0, for the metadata log (KIP-595, KIP-642)."""
    body = b"\x02" + compact_string(METADATA_LOG_TOPIC) + b"\x02" + struct.pack(">i", 0) + NO_TAGS * 3
    return Request(DESCRIBE_QUORUM, 0, body, _quorum_answer, flexible=True, flexible_response=True)


def _quorum_answer(cursor: Cursor) -> QuorumAnswer:
    error = cursor.int16()
    if error or cursor.unsigned_varint() < 2:
        return QuorumAnswer(error or NONE, NONE, NONE, NONE)
    cursor.compact_string()
    if cursor.unsigned_varint() < 2:
        return QuorumAnswer(NONE, NONE, NONE, NONE)
    _number, error, leader, epoch, watermark = cursor.numbers(_QUORUM_PARTITION)
    voters = {}
    for _ in range(cursor.unsigned_varint() - 1):
        voter, end = cursor.numbers(_VOTER)
        cursor.tagged_fields()
        voters[voter] = end
    return QuorumAnswer(error, NONE, NONE, NONE) if error else QuorumAnswer(error, leader, epoch, watermark, voters)


@dataclass(frozen=True, slots=True)
class VersionsAnswer:
    """The requests that a node can speak, and the finalized feature levels that it knows."""

    apis: Mapping[int, tuple[int, int]]
    """The lowest and the highest version of each api key."""
    features: Mapping[str, int]
    supported: Mapping[str, int] = field(default_factory=dict)
    """The highest level of each feature that it knows; features that begin at 0 are left out (KAFKA-17011)."""


def api_versions_request() -> Request[VersionsAnswer]:
    """Returns an ApiVersions request, v3 (KIP-511, KIP-584). Its response header never has tagged fields."""
    body = compact_string("prozess") + compact_string("0") + NO_TAGS
    return Request(18, 3, body, _versions_answer, flexible=True)


def _versions_answer(cursor: Cursor) -> VersionsAnswer:
    if error := cursor.int16():
        raise Malformed(f"ApiVersions v3 was refused with error code {error}")
    apis = {}
    for _ in range(cursor.unsigned_varint() - 1):
        key, lowest, highest = cursor.numbers(_API_RANGE)
        cursor.tagged_fields()
        apis[key] = (lowest, highest)
    cursor.int32()  # throttle time
    tagged = cursor.tagged_fields()
    finalized = {name: highest for name, highest, _lowest in _feature_levels(tagged.get(2, b"\x01"))}
    supported = {name: highest for name, _lowest, highest in _feature_levels(tagged.get(0, b"\x01"))}
    return VersionsAnswer(apis, finalized, supported)


def _feature_levels(field_of_tag: bytes) -> Iterator[tuple[str, int, int]]:
    """Reads names with two levels: of finalized features the highest comes first, of supported ones the lowest."""
    cursor = Cursor(field_of_tag)
    for _ in range(cursor.unsigned_varint() - 1):
        yield cursor.compact_string() or "", cursor.int16(), cursor.int16()
        cursor.tagged_fields()


@dataclass(frozen=True, slots=True)
class EligibleReplicas:
    """The brokers that may lead besides the ISR without losing what was committed, and the last known such (KIP-966)."""

    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DescribedPartition:
    """Describes what a broker's copy of the metadata says about the leadership of a partition."""

    topic_id: UUID
    leader: int
    """The node id of the leader; -1 if there is none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: EligibleReplicas


@dataclass(frozen=True, slots=True)
class TopicPartitionsAnswer:
    """One page of partitions. `next_page`: (topic, number) where the next page begins."""

    described: Mapping[tuple[str, int], DescribedPartition]
    next_page: tuple[str, int] | None

    @property
    def partitions(self) -> Mapping[tuple[str, int], EligibleReplicas]:
        """The brokers that may lead besides the ISR, by (topic, number)."""
        return {key: found.eligible for key, found in self.described.items()}


def describe_topic_partitions_request(
    topics: Sequence[str], *, page: tuple[str, int] | None = None
) -> Request[TopicPartitionsAnswer]:
    """Returns a DescribeTopicPartitions request, v0 (KIP-966), with at most 2000 partitions per answer."""
    names = b"".join(compact_string(name) + NO_TAGS for name in topics)
    start = b"\xff" if page is None else b"\x01" + compact_string(page[0]) + _INT32.pack(page[1]) + NO_TAGS
    body = unsigned_varint(len(topics) + 1) + names + _INT32.pack(2000) + start + NO_TAGS
    return Request(DESCRIBE_TOPIC_PARTITIONS, 0, body, _topic_partitions_answer, flexible=True, flexible_response=True)


def _topic_partitions_answer(cursor: Cursor) -> TopicPartitionsAnswer:
    cursor.int32()  # throttle time
    partitions = {}
    for _ in range(cursor.unsigned_varint() - 1):
        error, name = cursor.int16(), cursor.compact_string() or ""
        topic_id, _internal = cursor.uuid(), cursor.int8()
        for _ in range(cursor.unsigned_varint() - 1):
            _error, number, leader, epoch = cursor.numbers(_TOPIC_PARTITION)
            replicas, isr = cursor.compact_int32s(), cursor.compact_int32s()
            elr, last_known = cursor.compact_int32s(), cursor.compact_int32s()
            cursor.compact_int32s()  # offline replicas
            cursor.tagged_fields()
            if error == 0:
                eligible = EligibleReplicas(elr, last_known)
                partitions[name, number] = DescribedPartition(topic_id, leader, epoch, replicas, isr, eligible)
        cursor.int32()  # authorized operations
        cursor.tagged_fields()
    if cursor.int8() < 0:
        return TopicPartitionsAnswer(partitions, None)
    return TopicPartitionsAnswer(partitions, (cursor.compact_string() or "", cursor.int32()))


@dataclass(frozen=True, slots=True)
class OffsetAnswer:
    """The offset of one partition. With an `error` the broker did not say: it does not lead, or knows none since an
    election."""

    error: int
    log_offset: int
    leader_epoch: int
    timestamp_ms: int = NONE
    """It is that of the record at that offset, where a time was asked for."""


OffsetAnswers = Mapping[tuple[str, int], OffsetAnswer]


def list_offsets_request(
    partitions: Mapping[str, Sequence[int]], *, timestamp: int | Mapping[tuple[str, int], int], isolation: Isolation
) -> Request[OffsetAnswers]:
    """Returns a ListOffsets request, v5, as a consumer: the answer never exceeds the high watermark (last stable
    offset). `timestamp`: the same of all partitions, or that of each."""
    body = [struct.pack(">ibi", -1, int(isolation), len(partitions))]
    for topic, numbers in partitions.items():
        body += [string(topic), _INT32.pack(len(numbers))]
        asked = [timestamp if isinstance(timestamp, int) else timestamp[topic, number] for number in numbers]
        body += [struct.pack(">iiq", number, -1, time_ms) for number, time_ms in zip(numbers, asked, strict=True)]
    return Request(2, 5, b"".join(body), _list_offsets_answer)


def _list_offsets_answer(cursor: Cursor) -> OffsetAnswers:
    cursor.int32()  # throttle time
    answers = {}
    for _ in range(cursor.int32()):
        topic = cursor.string() or ""
        for _ in range(cursor.int32()):
            number, error, timestamp_ms, log_offset, epoch = cursor.numbers(_LISTED_OFFSET)
            answers[topic, number] = OffsetAnswer(error, log_offset, epoch, timestamp_ms)
    return answers


# What is asked of leaders and coordinators about transactions, and the marker that ends one by hand (KIP-664). Pure:
# bodies out, answers in.
#
# Layouts: `DescribeProducers` and `ListTransactions` version 0, `WriteTxnMarkers` version 1 (0 is gone since 4.0; 2 is
# for coordinators, KIP-1228), of every `kafka-clients` jar.


PartitionKey = tuple[str, int]
OpenTransactions = Mapping[PartitionKey, tuple[OpenTransaction, ...]]

_PRODUCER = struct.Struct(">qiiqiq")  # id, epoch, last sequence, last timestamp, coordinator epoch, transaction's start
_MARKER_HEAD = struct.Struct(">qhb")  # producer id, producer epoch, 0 = abort
_MARKED = struct.Struct(">ih")  # number, error
assert (_PRODUCER.size, _MARKER_HEAD.size, _MARKED.size) == (36, 11, 6)


def list_transactions_request(states: Sequence[str] = ()) -> Request[tuple[CoordinatedTransaction, ...] | None]:
    """Returns a ListTransactions request, v0 (KIP-664; brokers since 3.0), for the transactions in these states, or in
    all.

    The answer is None if the coordinator is still loading, or must not say."""
    wanted = unsigned_varint(len(states) + 1) + b"".join(map(compact_string, states))
    body = wanted + b"\x01" + NO_TAGS
    return Request(66, 0, body, _list_transactions_answer, flexible=True, flexible_response=True)


def _list_transactions_answer(cursor: Cursor) -> tuple[CoordinatedTransaction, ...] | None:
    cursor.int32()  # throttle time
    if cursor.int16():
        return None
    for _ in range(cursor.unsigned_varint() - 1):
        cursor.compact_string()  # states it does not know
    found = []
    for _ in range(cursor.unsigned_varint() - 1):
        name, producer_id, state = cursor.compact_string() or "", cursor.int64(), cursor.compact_string() or ""
        cursor.tagged_fields()
        found.append(CoordinatedTransaction(name, producer_id, state))
    return tuple(found)


def describe_producers_request(partitions: Mapping[str, Sequence[int]]) -> Request[OpenTransactions]:
    """Returns a DescribeProducers request, v0 (KIP-664; brokers since 2.8), for each partition's open transactions, by
    their start.

    Partitions that the broker does not lead are left out."""
    body = [unsigned_varint(len(partitions) + 1)]
    for topic, numbers in partitions.items():
        body += [compact_string(topic), unsigned_varint(len(numbers) + 1), *map(_INT32.pack, numbers), NO_TAGS]
    return Request(61, 0, b"".join(body) + NO_TAGS, _describe_producers_answer, flexible=True, flexible_response=True)


def _describe_producers_answer(cursor: Cursor) -> OpenTransactions:
    cursor.int32()  # throttle time
    found = {}
    for _ in range(cursor.unsigned_varint() - 1):
        topic = cursor.compact_string() or ""
        for _ in range(cursor.unsigned_varint() - 1):
            number, error = cursor.int32(), cursor.int16()
            cursor.compact_string()  # error message
            opened = []
            for _ in range(cursor.unsigned_varint() - 1):
                producer, epoch, _sequence, last_ms, coordinator_epoch, start = cursor.numbers(_PRODUCER)
                cursor.tagged_fields()
                if start >= 0:
                    opened.append(OpenTransaction(start, producer, epoch, last_ms, coordinator_epoch))
            cursor.tagged_fields()
            if error == 0:
                found[topic, number] = tuple(sorted(opened, key=lambda one: one.start_offset))
        cursor.tagged_fields()
    return found


def abort_marker_request(partition: PartitionKey, transaction: OpenTransaction) -> Request[Mapping[PartitionKey, int]]:
    """Returns a WriteTxnMarkers request, v1, for one abort, to the leader: (topic, number) → error code.

    It has the epochs that the leader reported; 0 for a producer that was never given a marker, which is below every
    coordinator's. [KIP-664; TransactionsCommand of Kafka's tools]"""
    topic, number = partition
    head = _MARKER_HEAD.pack(transaction.producer_id, transaction.producer_epoch, 0)
    where = b"\x02" + compact_string(topic) + b"\x02" + _INT32.pack(number) + NO_TAGS
    marker = head + where + _INT32.pack(max(transaction.coordinator_epoch, 0)) + NO_TAGS
    return Request(27, 1, b"\x02" + marker + NO_TAGS, _markers_answer, flexible=True, flexible_response=True)


def _markers_answer(cursor: Cursor) -> Mapping[PartitionKey, int]:
    found = {}
    for _ in range(cursor.unsigned_varint() - 1):
        cursor.int64()  # producer id
        for _ in range(cursor.unsigned_varint() - 1):
            topic = cursor.compact_string() or ""
            for _ in range(cursor.unsigned_varint() - 1):
                number, error = cursor.numbers(_MARKED)
                cursor.tagged_fields()
                found[topic, number] = error
            cursor.tagged_fields()
        cursor.tagged_fields()
    return found


# Requests that elect leaders (KIP-460), move replicas (KIP-455) and raise feature levels (KIP-584). Pure: bodies out,
# answers in. Brokers ask the active controller (KIP-590).
#
# Layouts: `ElectLeaders` version 1 (the last with a fixed layout), `AlterPartitionReassignments` and
# `ListPartitionReassignments` version 0, `UpdateFeatures` version 1 (the last that answers for each feature), of every
# `kafka-clients` jar.


NOT_CONTROLLER = 41
NO_REASSIGNMENT_IN_PROGRESS = 85
ELECTION_NOT_NEEDED = 84
UNKNOWN_TOPIC_ID = 100
_ELECTION_ERRORS = {
    NOT_CONTROLLER: "NOT_CONTROLLER",
    80: "PREFERRED_LEADER_NOT_AVAILABLE",
    83: "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    ELECTION_NOT_NEEDED: "ELECTION_NOT_NEEDED",
}

Assignments = Mapping[PartitionKey, tuple[int, ...] | None]
"""The brokers that shall have copies, preferred leader first, by (topic, number); None gives up what is under way."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Says whether Kafka accepted something: `error` is 0 if it did."""

    error: int
    message: str = ""

    @property
    def text(self) -> str:
        """Returns a sentence for a person."""
        name = _ELECTION_ERRORS.get(self.error, f"error {self.error}")
        return f"{name}: {self.message}" if self.message else name


@dataclass(frozen=True, slots=True)
class PartitionAnswers:
    """The answers to a whole request, and for each partition."""

    whole: Refusal
    partitions: Mapping[PartitionKey, Refusal]


def alter_reassignments_request(assignments: Assignments, *, timeout_ms: int) -> Request[PartitionAnswers]:
    """Returns an AlterPartitionReassignments request, v0. What is accepted has begun, and is not done."""
    body = [struct.pack(">i", timeout_ms), unsigned_varint(len(_topics(assignments)) + 1)]
    for topic, numbers in _topics(assignments).items():
        body += [compact_string(topic), unsigned_varint(len(numbers) + 1)]
        for number in numbers:
            body += [struct.pack(">i", number), _replicas(assignments[topic, number]), NO_TAGS]
        body.append(NO_TAGS)
    return Request(45, 0, b"".join(body) + NO_TAGS, _alter_answer, flexible=True, flexible_response=True)


@dataclass(frozen=True, slots=True)
class FeatureAnswer:
    """The answer about a feature that was to be raised."""

    whole: Refusal


def update_feature_request(feature: str, level: int, *, timeout_ms: int) -> Request[FeatureAnswer]:
    """Returns an UpdateFeatures request, v1 (KIP-584, KIP-778), that raises one feature."""
    one = compact_string(feature) + struct.pack(">hb", level, 1) + NO_TAGS
    body = struct.pack(">i", timeout_ms) + unsigned_varint(2) + one + b"\0" + NO_TAGS
    return Request(57, 1, body, _update_answer, flexible=True, flexible_response=True)


def _update_answer(cursor: Cursor) -> FeatureAnswer:
    cursor.int32()  # throttle time
    whole = Refusal(cursor.int16(), cursor.compact_string() or "")
    for _ in range(cursor.unsigned_varint() - 1):
        cursor.compact_string()
        refusal = Refusal(cursor.int16(), cursor.compact_string() or "")
        cursor.tagged_fields()
        whole = whole if whole.error else refusal
    return FeatureAnswer(whole)


def elect_leaders_request(
    partitions: Sequence[PartitionKey], *, unclean: bool, timeout_ms: int
) -> Request[PartitionAnswers]:
    """Returns an ElectLeaders request, v1. Partitions that need no election answer ELECTION_NOT_NEEDED."""
    topics = _topics(dict.fromkeys(partitions))
    body = [struct.pack(">bi", int(unclean), len(topics))]
    for topic, numbers in topics.items():
        body += [string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return Request(43, 1, b"".join(body) + struct.pack(">i", timeout_ms), _elect_answer)


def _elect_answer(cursor: Cursor) -> PartitionAnswers:
    cursor.int32()  # throttle time
    whole = Refusal(cursor.int16())
    partitions = {}
    for _ in range(cursor.int32()):
        topic = cursor.string() or ""
        for _ in range(cursor.int32()):
            number = cursor.int32()
            partitions[topic, number] = Refusal(cursor.int16(), cursor.string() or "")
    return PartitionAnswers(whole, partitions)


@dataclass(frozen=True, slots=True)
class TopicAnswers:
    """The answers to a request about topics: those that were refused, by id. A topic that is gone is none of them."""

    whole: Refusal
    refused: Mapping[UUID, Refusal]


def delete_topics_request(ids: Sequence[UUID], *, timeout_ms: int) -> Request[TopicAnswers]:
    """Returns a DeleteTopics request, v6: the first that names topics by their ids (KIP-516)."""
    topics = b"".join(b"\0" + topic_id.bytes + NO_TAGS for topic_id in ids)
    body = unsigned_varint(len(ids) + 1) + topics + struct.pack(">i", timeout_ms) + NO_TAGS
    return Request(20, 6, body, _deleted_answer, flexible=True, flexible_response=True)


def _deleted_answer(cursor: Cursor) -> TopicAnswers:
    cursor.int32()  # throttle time
    refused: dict[UUID, Refusal] = {}
    for _ in range(cursor.unsigned_varint() - 1):
        cursor.compact_string()
        topic_id = cursor.uuid()
        refusal = Refusal(cursor.int16(), cursor.compact_string() or "")
        cursor.tagged_fields()
        if refusal.error not in (0, UNKNOWN_TOPIC_ID):
            refused[topic_id] = refusal
    elsewhere = any(refusal.error == NOT_CONTROLLER for refusal in refused.values())
    return TopicAnswers(Refusal(NOT_CONTROLLER if elsewhere else 0), refused)


def _replicas(replicas: Sequence[int] | None) -> bytes:
    if replicas is None:
        return b"\0"
    return unsigned_varint(len(replicas) + 1) + struct.pack(f">{len(replicas)}i", *replicas)


def _topics(keys: Mapping[PartitionKey, object]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in keys:
        topics.setdefault(topic, []).append(number)
    return topics


def _alter_answer(cursor: Cursor) -> PartitionAnswers:
    cursor.int32()  # throttle time
    whole = Refusal(cursor.int16(), cursor.compact_string() or "")
    partitions = {}
    for _ in range(cursor.unsigned_varint() - 1):
        topic = cursor.compact_string() or ""
        for _ in range(cursor.unsigned_varint() - 1):
            number = cursor.int32()
            partitions[topic, number] = Refusal(cursor.int16(), cursor.compact_string() or "")
            cursor.tagged_fields()
        cursor.tagged_fields()
    return PartitionAnswers(whole, partitions)


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment that is under way. `replicas`: all that have or get a copy now."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListAnswer:
    """The reassignments that are under way."""

    whole: Refusal
    partitions: Mapping[PartitionKey, Reassignment]


def list_reassignments_request(*, timeout_ms: int) -> Request[ListAnswer]:
    """Returns a ListPartitionReassignments request, v0, for every topic."""
    body = struct.pack(">i", timeout_ms) + b"\0" + NO_TAGS
    return Request(46, 0, body, _list_answer, flexible=True, flexible_response=True)


def _list_answer(cursor: Cursor) -> ListAnswer:
    cursor.int32()  # throttle time
    whole = Refusal(cursor.int16(), cursor.compact_string() or "")
    partitions = {}
    for _ in range(cursor.unsigned_varint() - 1):
        topic = cursor.compact_string() or ""
        for _ in range(cursor.unsigned_varint() - 1):
            number = cursor.int32()
            lists = [cursor.compact_int32s() for _ in range(3)]
            cursor.tagged_fields()
            partitions[topic, number] = Reassignment(*lists)
        cursor.tagged_fields()
    return ListAnswer(whole, partitions)
