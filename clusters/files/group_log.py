"""Reads what group coordinators wrote down of consumer groups, in the files of `__consumer_offsets`.

Layout: KIP-848, and `ConsumerGroupMetadata`, `ConsumerGroupTargetAssignmentMetadata`,
`ConsumerGroupCurrentMemberAssignment` and, for the classic protocols, `GroupMetadata` of Kafka, keys and values. Commits and
share groups have other records, which are passed over.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import numpy as np

from prozess.clusters.files.internal_logs import decoded_logs
from prozess.clusters.files.segments import BatchRecord
from prozess.clusters.protocol.client import Cursor, Malformed
from prozess.harness.recording.codes import OFFSETS_TOPIC
from prozess.harness.schema import NONE, GroupRecord

_CLASSIC, _GROUP, _TARGET, _CURRENT = 2, 3, 6, 8
"""The kinds of keys that are read."""
_VERSIONS = {_CLASSIC: 3, _GROUP: 0, _TARGET: 0, _CURRENT: 0}
"""The version of the values of each. Brokers with the inter.broker.protocol.version 2.3 or newer write 3 (KIP-345)."""
_GONE = {_CLASSIC: GroupRecord.CLASSIC_GONE, _GROUP: GroupRecord.GROUP_GONE, _CURRENT: GroupRecord.MEMBER_GONE}
COLUMNS = ("log_offset", "timestamp_ms", "leader_epoch", "kind", "epoch")
_Named = tuple[str, str, tuple[UUID, int] | None, str]


@dataclass(frozen=True, slots=True)
class GroupLog:
    """What the best copy of one partition of `__consumer_offsets` states of consumer groups, in the order of the log."""

    number: int
    """The number of the partition."""
    columns: Mapping[str, np.ndarray]
    """Each of COLUMNS → int64[n]. A record of a member's assignment has a row for itself, and one for each partition."""
    groups: tuple[str, ...]
    """The group.id of each row."""
    members: tuple[str, ...]
    """The member of each row; "" for a row of the group, or where nobody leads."""
    partitions: tuple[tuple[UUID, int] | None, ...]
    """The topic and number of the partition of each row; None for a row of the group, or of a member itself."""
    names: tuple[str, ...]
    """What else each row names: a protocol type, a protocol or a group.instance.id; "" if nothing."""


def read_group_log(data_directories: Mapping[int, Path], *, on_problem: Callable[[str], None]) -> Iterator[GroupLog]:
    """Reads each partition of `__consumer_offsets`. One that cannot be read or understood, or was compacted, is left out,
    and `on_problem` learns why (`decoded_logs`)."""
    logs = decoded_logs(
        data_directories, OFFSETS_TOPIC, COLUMNS, _read, on_problem=on_problem, without_holes="was compacted"
    )
    for log in logs:
        groups, members, partitions, names = zip(*log.named, strict=True) if log.named else ((), (), (), ())
        yield GroupLog(log.number, log.columns, groups, members, partitions, names)


def _read(record: BatchRecord, leader_epoch: int) -> Iterator[tuple[_Named, tuple[int, ...]]]:
    """Reads a record: for each row what it names, and the columns from `leader_epoch` on. One of another kind has no rows."""
    if record.key is None:
        raise Malformed("has a record without a key")
    key = Cursor(record.key)
    kind = key.int16()
    if kind not in _VERSIONS:
        return
    group, member = key.string() or "", (key.string() or "") if kind == _CURRENT else ""
    if record.value is None:
        if kind != _TARGET:
            yield (group, member, None, ""), (leader_epoch, _GONE[kind], NONE)
        return
    value = Cursor(record.value)
    if (version := value.int16()) != _VERSIONS[kind]:
        raise Malformed(f"has a value of version {version} of the key {kind}, while {_VERSIONS[kind]} is known")
    if kind == _CLASSIC:
        yield from ((one, (leader_epoch, *numbers)) for one, numbers in _classic(group, value))
        return
    epoch = value.int32()
    if kind != _CURRENT:  # what else it says is of no interest
        what = GroupRecord.GROUP_EPOCH if kind == _GROUP else GroupRecord.TARGET_EPOCH
        yield (group, member, None, ""), (leader_epoch, what, epoch)
        return
    value.int32(), value.int8()  # the epoch before, and the state of the member
    yield (group, member, None, ""), (leader_epoch, GroupRecord.MEMBER, epoch)
    for what in (GroupRecord.OWNED, GroupRecord.RELEASING):
        for partition in _partitions(value):
            yield (group, member, partition, ""), (leader_epoch, what, epoch)
    value.tagged_fields()
    _end(value, "an assignment")


def _classic(group: str, value: Cursor) -> Iterator[tuple[_Named, tuple[int, int]]]:
    """Reads a value of GroupMetadata. The protocol has a row if one was chosen, and so has each member."""
    protocol_type, generation, protocol, leader = value.string(), value.int32(), value.string(), value.string()
    yield (group, leader or "", None, protocol_type or ""), (GroupRecord.CLASSIC, generation)
    if protocol is not None:
        yield (group, "", None, protocol), (GroupRecord.CLASSIC_PROTOCOL, generation)
    value.int64()  # since when it is in its state
    for _ in range(value.int32()):
        member, instance, _, _ = (value.string() for _ in range(4))  # client.id and host are of no interest
        value.int32(), value.int32()  # timeouts
        for _ in range(2):  # what it subscribes to, and its assignment, in the words of its assignor
            value.take(value.int32())
        yield (group, member or "", None, instance or ""), (GroupRecord.CLASSIC_MEMBER, generation)
    _end(value, "a group")


def _end(value: Cursor, what: str) -> None:
    if value.position != len(value.data):
        raise Malformed(f"has {what} of {len(value.data)} bytes, of which {value.position} are explained")


def _partitions(value: Cursor) -> Iterator[tuple[UUID, int]]:
    for _ in range(value.unsigned_varint() - 1):
        topic, numbers = value.uuid(), value.compact_int32s()
        value.tagged_fields()
        yield from ((topic, number) for number in numbers)
