"""The few requests that the observer asks of one broker or controller. Pure: bodies out, answers in.

Layouts: the message schemas that every `kafka-clients` jar carries (`common/message/*.json`). Versions are chosen such that
brokers 2.8 … 4.3 speak them: Metadata v7 and ListOffsets v5 are the last with a fixed layout.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from clusters.wire import NO_TAGS, Cursor, Malformed, Request, compact_string, string, unsigned_varint
from harness.protocols import PartitionView
from harness.schema import NONE, Isolation

METADATA_LOG_TOPIC = "__cluster_metadata"
EARLIEST, LATEST = -2, -1
"""Special timestamps of ListOffsets. LATEST answers the high watermark, at read_committed the last stable offset."""
DESCRIBE_TOPIC_PARTITIONS = 75
"""Its api key: brokers know it since 3.8 (KIP-966)."""

_INT32 = struct.Struct(">i")
_PARTITION_HEAD = struct.Struct(">hiiii")  # error, number, leader, leader epoch, count of replicas
_QUORUM_PARTITION = struct.Struct(">ihiiq")  # number, error, leader, leader epoch, high watermark
_VOTER = struct.Struct(">iq")  # id, end of its log
_API_RANGE = struct.Struct(">hhh")  # key, lowest, highest version
_TOPIC_PARTITION = struct.Struct(">hiii")  # error, number, leader, leader epoch
_LISTED_OFFSET = struct.Struct(">ihqqi")  # number, error, timestamp, offset, leader epoch


@dataclass(frozen=True, slots=True)
class MetadataAnswer:
    """Who the broker thinks is alive, and what it says of the topics it knows."""

    brokers: frozenset[int]
    partitions: Mapping[tuple[str, int], PartitionView]
    """Topics the broker does not know are not there."""


def metadata_request(topics: Sequence[str]) -> Request[MetadataAnswer]:
    """Metadata v7, the last version with fixed layout and the first with leader epochs. Creates no topic."""
    body = struct.pack(">i", len(topics)) + b"".join(map(string, topics)) + b"\0"
    return Request(3, 7, body, _metadata_answer)


def _metadata_answer(cursor: Cursor) -> MetadataAnswer:
    cursor.int32()  # throttle time
    brokers = []
    for _ in range(cursor.int32()):
        brokers.append(cursor.int32())
        cursor.string()
        cursor.int32()
        cursor.string()
    cursor.string()  # cluster id
    cursor.int32()  # "controller": in KRaft a random live broker, never to be used
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
    return MetadataAnswer(frozenset(brokers), partitions)


@dataclass(frozen=True, slots=True)
class QuorumAnswer:
    """What a controller says of the quorum. Only the leader answers with `error` 0."""

    error: int
    leader: int
    leader_epoch: int
    high_watermark: int
    voters: Mapping[int, int] = field(default_factory=dict)
    """Controller → where its log ends, as the leader knows."""


def describe_quorum_request() -> Request[QuorumAnswer]:
    """DescribeQuorum v0 of the metadata log (KIP-595, KIP-642)."""
    body = b"\x02" + compact_string(METADATA_LOG_TOPIC) + b"\x02" + struct.pack(">i", 0) + NO_TAGS * 3
    return Request(55, 0, body, _quorum_answer, flexible=True, flexible_response=True)


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
    return QuorumAnswer(error, leader, epoch, watermark, voters)


@dataclass(frozen=True, slots=True)
class VersionsAnswer:
    """What a node can speak, and the finalized feature levels it knows of."""

    apis: Mapping[int, tuple[int, int]]
    """api key → (lowest, highest version)."""
    features: Mapping[str, int]
    supported: Mapping[str, int] = field(default_factory=dict)
    """Feature → the highest level it knows; those that begin at 0 are left out (KAFKA-17011)."""


def api_versions_request() -> Request[VersionsAnswer]:
    """ApiVersions v3 (KIP-511, KIP-584). Its response header never has tagged fields."""
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
    """Name and two levels: of what is finalized the highest comes first, of what is supported the lowest."""
    cursor = Cursor(field_of_tag)
    for _ in range(cursor.unsigned_varint() - 1):
        yield cursor.compact_string() or "", cursor.int16(), cursor.int16()
        cursor.tagged_fields()


@dataclass(frozen=True, slots=True)
class EligibleReplicas:
    """KIP-966: who may lead besides the ISR without losing what was committed, and who led last."""

    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicPartitionsAnswer:
    """One page. `next_page`: (topic, number) where the next one begins."""

    partitions: Mapping[tuple[str, int], EligibleReplicas]
    next_page: tuple[str, int] | None


def describe_topic_partitions_request(
    topics: Sequence[str], *, page: tuple[str, int] | None = None
) -> Request[TopicPartitionsAnswer]:
    """DescribeTopicPartitions v0 (KIP-966), at most 2000 partitions per answer."""
    names = b"".join(compact_string(name) + NO_TAGS for name in topics)
    start = b"\xff" if page is None else b"\x01" + compact_string(page[0]) + _INT32.pack(page[1]) + NO_TAGS
    body = unsigned_varint(len(topics) + 1) + names + _INT32.pack(2000) + start + NO_TAGS
    return Request(DESCRIBE_TOPIC_PARTITIONS, 0, body, _topic_partitions_answer, flexible=True, flexible_response=True)


def _topic_partitions_answer(cursor: Cursor) -> TopicPartitionsAnswer:
    cursor.int32()  # throttle time
    partitions = {}
    for _ in range(cursor.unsigned_varint() - 1):
        error, name = cursor.int16(), cursor.compact_string() or ""
        cursor.take(17)  # topic id, is internal
        for _ in range(cursor.unsigned_varint() - 1):
            _error, number, _leader, _epoch = cursor.numbers(_TOPIC_PARTITION)
            cursor.compact_int32s()  # replicas
            cursor.compact_int32s()  # ISR
            elr, last_known = cursor.compact_int32s(), cursor.compact_int32s()
            cursor.compact_int32s()  # offline replicas
            cursor.tagged_fields()
            if error == 0:
                partitions[name, number] = EligibleReplicas(elr, last_known)
        cursor.int32()  # authorized operations
        cursor.tagged_fields()
    if cursor.int8() < 0:
        return TopicPartitionsAnswer(partitions, None)
    return TopicPartitionsAnswer(partitions, (cursor.compact_string() or "", cursor.int32()))


@dataclass(frozen=True, slots=True)
class OffsetAnswer:
    """Offset of one partition; `error` ≠ 0: the broker did not tell (not leader, or not yet known after an election)."""

    error: int
    log_offset: int
    leader_epoch: int


OffsetAnswers = Mapping[tuple[str, int], OffsetAnswer]


def list_offsets_request(
    partitions: Mapping[str, Sequence[int]], *, timestamp: int, isolation: Isolation
) -> Request[OffsetAnswers]:
    """ListOffsets v5, as a consumer: the answer never exceeds the high watermark (last stable offset)."""
    body = [struct.pack(">ibi", -1, int(isolation), len(partitions))]
    for topic, numbers in partitions.items():
        body += [string(topic), _INT32.pack(len(numbers))]
        body += [struct.pack(">iiq", number, -1, timestamp) for number in numbers]
    return Request(2, 5, b"".join(body), _list_offsets_answer)


def _list_offsets_answer(cursor: Cursor) -> OffsetAnswers:
    cursor.int32()  # throttle time
    answers = {}
    for _ in range(cursor.int32()):
        topic = cursor.string() or ""
        for _ in range(cursor.int32()):
            number, error, _timestamp, log_offset, epoch = cursor.numbers(_LISTED_OFFSET)
            answers[topic, number] = OffsetAnswer(error, log_offset, epoch)
    return answers
