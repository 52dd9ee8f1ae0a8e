"""Requests that elect leaders (KIP-460), move replicas (KIP-455) and raise feature levels (KIP-584). Pure: bodies out,
answers in. Brokers ask the active controller (KIP-590).

Layouts: `ElectLeaders` version 1 (the last with a fixed layout), `AlterPartitionReassignments` and
`ListPartitionReassignments` version 0, `UpdateFeatures` version 1 (the last that answers for each feature), of every
`kafka-clients` jar.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clusters.wire import NO_TAGS, Cursor, Request, compact_string, string, unsigned_varint

NOT_CONTROLLER = 41
NO_REASSIGNMENT_IN_PROGRESS = 85
ELECTION_NOT_NEEDED = 84
_ELECTION_ERRORS = {
    NOT_CONTROLLER: "NOT_CONTROLLER",
    80: "PREFERRED_LEADER_NOT_AVAILABLE",
    83: "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    ELECTION_NOT_NEEDED: "ELECTION_NOT_NEEDED",
}

PartitionKey = tuple[str, int]
Assignments = Mapping[PartitionKey, tuple[int, ...] | None]
"""(topic, number) → who shall have copies, preferred leader first; None: whatever is under way is given up."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """`error` 0 = accepted."""

    error: int
    message: str = ""

    @property
    def text(self) -> str:
        """For a person."""
        name = _ELECTION_ERRORS.get(self.error, f"error {self.error}")
        return f"{name}: {self.message}" if self.message else name


@dataclass(frozen=True, slots=True)
class PartitionAnswers:
    """Of the whole request, and of each partition."""

    whole: Refusal
    partitions: Mapping[PartitionKey, Refusal]


def alter_reassignments_request(assignments: Assignments, *, timeout_ms: int) -> Request[PartitionAnswers]:
    """AlterPartitionReassignments v0: accepted means begun, not done."""
    body = [struct.pack(">i", timeout_ms), unsigned_varint(len(_topics(assignments)) + 1)]
    for topic, numbers in _topics(assignments).items():
        body += [compact_string(topic), unsigned_varint(len(numbers) + 1)]
        for number in numbers:
            body += [struct.pack(">i", number), _replicas(assignments[topic, number]), NO_TAGS]
        body.append(NO_TAGS)
    return Request(45, 0, b"".join(body) + NO_TAGS, _alter_answer, flexible=True, flexible_response=True)


@dataclass(frozen=True, slots=True)
class FeatureAnswer:
    """Of a feature that was to be raised."""

    whole: Refusal


def update_feature_request(feature: str, level: int, *, timeout_ms: int) -> Request[FeatureAnswer]:
    """UpdateFeatures v1 (KIP-584, KIP-778) of one feature, upwards."""
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
    """ElectLeaders v1. Partitions that need no election answer ELECTION_NOT_NEEDED."""
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
    """One that is under way. `replicas`: all that have or get a copy now."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListAnswer:
    """Every reassignment under way."""

    whole: Refusal
    partitions: Mapping[PartitionKey, Reassignment]


def list_reassignments_request(*, timeout_ms: int) -> Request[ListAnswer]:
    """ListPartitionReassignments v0, of every topic."""
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
