"""What a message says of topics, groups, transactions and errors, and whether a match means it. Pure functions."""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from prozess.harness.config.messages.schemas import Body

BATCH_HEAD = struct.Struct(">qiib i h i q q q h i i".replace(" ", ""))
"""The head of a batch of records (KIP-98): base offset, length, leader epoch, magic, CRC, attributes, last offset delta, two
timestamps, producer id, producer epoch, first sequence, count."""
_MAGIC_AT, _MAGIC = 3, 2


class PartitionFacts(NamedTuple):
    """What a message says of one partition. None: it does not say."""

    topic: str | None = None
    topic_id: UUID | None = None
    number: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    first_sequence: int | None = None
    error: int | None = None


class MessageFacts(NamedTuple):
    """What a message says. None: it does not say."""

    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    producer_id: int | None = None
    producer_epoch: int | None = None
    commit: bool | None = None
    errors: tuple[int, ...] = ()
    """The error codes that are no partition's."""
    partitions: tuple[PartitionFacts, ...] = ()


@dataclass(slots=True)
class _Gathered:
    groups: list[str] = field(default_factory=list)
    transactional_ids: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    commit: bool | None = None
    errors: list[int] = field(default_factory=list)
    partitions: list[PartitionFacts] = field(default_factory=list)


_NOTHING = PartitionFacts()


def facts_of(body: Body) -> MessageFacts:
    """Returns what a body says. It goes by the names that fields have in Kafka's schemas, which are the same in all APIs."""
    gathered = _Gathered()
    _walk(body, gathered, _NOTHING)
    return MessageFacts(
        groups=tuple(gathered.groups),
        transactional_ids=tuple(gathered.transactional_ids),
        producer_id=gathered.numbers.get("producer_id"),
        producer_epoch=gathered.numbers.get("producer_epoch"),
        commit=gathered.commit,
        errors=tuple(gathered.errors),
        partitions=tuple(gathered.partitions),
    )


_TOPIC_NAMES = ("name", "topic", "topic_name")
_NUMBERS = ("index", "partition", "partition_index", "partition_id")
_OF_A_PRODUCER = ("producer_id", "producer_epoch")
_OF_THE_WHOLE = ("group_id", "transactional_id", *_OF_A_PRODUCER, "committed", "error_code")


class _Names(NamedTuple):
    """Names the fields of a structure that say which topic, partition, producer or group a message is about."""

    topics: tuple[str, ...]
    numbers: tuple[str, ...]
    identifies: bool
    """It names a topic or a producer, for all that is in it."""
    of_the_whole: bool


@lru_cache(maxsize=1024)
def _names(fields: tuple[str, ...]) -> _Names:
    topics = tuple(name for name in _TOPIC_NAMES if name in fields)
    return _Names(
        topics,
        tuple(name for name in _NUMBERS if name in fields),
        bool(topics) or any(name in fields for name in ("topic_id", *_OF_A_PRODUCER)),
        any(name in fields for name in _OF_THE_WHOLE),
    )


def _walk(body: Mapping[str, Any], gathered: _Gathered, within: PartitionFacts) -> None:
    """Adds what a structure and all that is in it say. A proxy does this for each message, so only names that it has are
    looked up."""
    names = _names(tuple(body))
    inner = _within(body, names, within) if names.identifies or within.number is not None else within
    number = _first(body, names.numbers, int) if names.numbers else None
    topic, topic_id = inner.topic, inner.topic_id
    if number is not None and (topic is not None or topic_id is not None):
        error = body.get("error_code", body.get("partition_error_code"))
        batches = _batches(body.get("records"))
        inner = PartitionFacts(topic, topic_id, number, inner.producer_id, inner.producer_epoch, None, error)
        gathered.partitions += [PartitionFacts(topic, topic_id, number, *batch, error) for batch in batches] or [inner]
    elif names.of_the_whole:
        _note_top(body, gathered)
    for name, value in body.items():
        if isinstance(value, dict):
            _walk(value, gathered, inner)
        elif isinstance(value, list) and value:
            if isinstance(value[0], dict):
                for one in value:
                    _walk(one, gathered, inner)
            elif name.startswith("partition") and isinstance(value[0], int) and (topic or topic_id):
                gathered.partitions += [inner._replace(number=one) for one in value]


def _within(body: Mapping[str, Any], names: _Names, within: PartitionFacts) -> PartitionFacts:
    """Returns what is known for all that is in a structure: the topic and the producer."""
    topic, get = _first(body, names.topics, str), body.get
    return PartitionFacts(
        within.topic if topic is None else topic,
        get("topic_id", within.topic_id),
        None,
        get("producer_id", within.producer_id),
        get("producer_epoch", within.producer_epoch),
    )


def _first(body: Mapping[str, Any], names: Iterable[str], kind: type) -> Any:  # noqa: ANN401 - of that kind, or None
    for name in names:
        if isinstance(value := body.get(name), kind):
            return value
    return None


def _note_top(body: Mapping[str, Any], gathered: _Gathered) -> None:
    get = body.get
    if isinstance(group := get("group_id"), str):
        gathered.groups.append(group)
    if isinstance(transactional := get("transactional_id"), str):
        gathered.transactional_ids.append(transactional)
    for name in _OF_A_PRODUCER:
        if isinstance(number := get(name), int):
            gathered.numbers.setdefault(name, number)
    if isinstance(committed := get("committed"), bool):
        gathered.commit = committed
    if isinstance(code := get("error_code"), int):
        gathered.errors.append(code)


def _batches(records: object) -> list[tuple[int, int, int]]:
    """Returns (producer id, producer epoch, first sequence) of each batch of format 2."""
    found: list[tuple[int, int, int]] = []
    if isinstance(records, bytes):
        at, last = 0, len(records) - BATCH_HEAD.size
        while at <= last:
            head = BATCH_HEAD.unpack_from(records, at)
            if head[_MAGIC_AT] != _MAGIC or head[1] <= 0:
                break
            found.append(head[9:12])
            at += 12 + head[1]
    return found


def joined(request: MessageFacts | None, answer: MessageFacts) -> MessageFacts:
    """Returns what an answer says, with what only its request says."""
    if request is None:
        return answer
    requested = {(p.topic, p.topic_id, p.number): p for p in request.partitions}
    partitions = tuple(_filled(p, requested.get((p.topic, p.topic_id, p.number))) for p in answer.partitions)
    return MessageFacts(
        groups=answer.groups or request.groups,
        transactional_ids=answer.transactional_ids or request.transactional_ids,
        producer_id=request.producer_id if answer.producer_id is None else answer.producer_id,
        producer_epoch=request.producer_epoch if answer.producer_epoch is None else answer.producer_epoch,
        commit=request.commit,
        errors=answer.errors,
        partitions=partitions or request.partitions,
    )


def _filled(answer: PartitionFacts, request: PartitionFacts | None) -> PartitionFacts:
    if request is None:
        return answer
    return answer._replace(
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        first_sequence=request.first_sequence,
    )


@dataclass(frozen=True, slots=True)
class WantedMessage:
    """A match whose names were looked up: what the proxy compares with. None: anything."""

    apis: frozenset[int]
    answer: bool
    client: str | None = None
    topic: str | None = None
    topic_id: UUID | None = None
    number: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    producer_epoch: int | None = None
    first_sequence: int | None = None
    commit: bool | None = None
    error: int | None = None
    nth: int | None = None
    every: int | None = None
    until: int | None = None
    after: frozenset[str] | None = None
    """Rules of which one must have acted before."""
    released: bool = False
    """A message that was held by another rule is wanted when it goes on, too."""

    @property
    def reads_body(self) -> bool:
        """Says whether the body must be read."""
        named = (
            self.topic, self.number, self.group, self.transactional_id, self.producer_epoch, self.first_sequence,
            self.commit, self.error,
        )  # fmt: skip
        return any(one is not None for one in named)

    @property
    def of_partition(self) -> bool:
        """Says whether a partition, or a batch of one, is meant."""
        return any(one is not None for one in (self.topic, self.number, self.first_sequence))

    def counts(self, number: int) -> bool:
        """Says whether the match of this number (from 1) is one that is acted on."""
        if self.nth is not None:
            return number == self.nth
        return (self.until is None or number <= self.until) and (self.every is None or number % self.every == 0)

    def header(self, api: int, answer: bool, client: str) -> bool:
        """Says whether the API, the direction and the client.id of a message are wanted. `client`: a client.id."""
        return api in self.apis and answer == self.answer and (self.client is None or fnmatchcase(client, self.client))

    def body(self, facts: MessageFacts) -> tuple[PartitionFacts, ...] | None:
        """Returns the partitions of the message that are meant, all if none is named; None if it is not wanted."""
        if self.group is not None and self.group not in facts.groups:
            return None
        if self.transactional_id is not None and self.transactional_id not in facts.transactional_ids:
            return None
        if self.commit is not None and facts.commit is not self.commit:
            return None
        if not self.of_partition:
            return self._whole(facts)
        meant = tuple(partition for partition in facts.partitions if self._partition(partition, facts))
        return meant or None

    def _whole(self, facts: MessageFacts) -> tuple[PartitionFacts, ...] | None:
        if self.producer_epoch is not None:
            epochs = {facts.producer_epoch, *(p.producer_epoch for p in facts.partitions)}
            if self.producer_epoch not in epochs:
                return None
        if self.error is not None:
            codes = [*facts.errors, *(p.error for p in facts.partitions if p.error is not None)]
            if not _has_error(codes, self.error):
                return None
        return facts.partitions

    def _topic(self, one: PartitionFacts) -> bool:
        if one.topic is not None:
            return one.topic == self.topic
        return self.topic_id is not None and one.topic_id == self.topic_id

    def _partition(self, one: PartitionFacts, facts: MessageFacts) -> bool:
        if self.topic is not None and not self._topic(one):
            return False
        if self.number is not None and one.number != self.number:
            return False
        if self.first_sequence is not None and one.first_sequence != self.first_sequence:
            return False
        epoch = facts.producer_epoch if one.producer_epoch is None else one.producer_epoch
        if self.producer_epoch is not None and epoch != self.producer_epoch:
            return False
        return self.error is None or _has_error(facts.errors if one.error is None else [one.error], self.error)


def _has_error(codes: Iterable[int], wanted: int) -> bool:
    """Says whether a message with these error codes has that one. Success is meant only where nothing failed."""
    found = set(codes)
    return found <= {0} if wanted == 0 else wanted in found
