"""Reads what group coordinators wrote down of consumer groups, in the files of `__consumer_offsets`.

Layout: KIP-848, and `ConsumerGroupMetadata`, `ConsumerGroupTargetAssignmentMetadata` and
`ConsumerGroupCurrentMemberAssignment` of Kafka, keys and values. Groups of the classic protocols, commits and share groups
have other records, which are passed over.
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

_GROUP, _TARGET, _CURRENT = 3, 6, 8
"""The kinds of keys that are read."""
COLUMNS = ("log_offset", "timestamp_ms", "leader_epoch", "kind", "epoch")
_Named = tuple[str, str, tuple[UUID, int] | None]


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
    """The member of each row; "" for a row of the group."""
    partitions: tuple[tuple[UUID, int] | None, ...]
    """The topic and number of the partition of each row; None for a row of the group, or of a member itself."""


def read_group_log(data_directories: Mapping[int, Path], *, on_problem: Callable[[str], None]) -> Iterator[GroupLog]:
    """Reads each partition of `__consumer_offsets`. One that cannot be read or understood, or was compacted, is left out,
    and `on_problem` learns why (`decoded_logs`)."""
    logs = decoded_logs(
        data_directories, OFFSETS_TOPIC, COLUMNS, _read, on_problem=on_problem, without_holes="was compacted"
    )
    for log in logs:
        groups, members, partitions = zip(*log.named, strict=True) if log.named else ((), (), ())
        yield GroupLog(log.number, log.columns, groups, members, partitions)


def _read(record: BatchRecord, leader_epoch: int) -> Iterator[tuple[_Named, tuple[int, ...]]]:
    """Reads a record: for each row what it names, and the columns from `leader_epoch` on. One of another kind has no rows."""
    if record.key is None:
        raise Malformed("has a record without a key")
    key = Cursor(record.key)
    kind = key.int16()
    if kind not in (_GROUP, _TARGET, _CURRENT):
        return
    group, member = key.string() or "", (key.string() or "") if kind == _CURRENT else ""
    if record.value is None:
        if kind != _TARGET:
            gone = GroupRecord.GROUP_GONE if kind == _GROUP else GroupRecord.MEMBER_GONE
            yield (group, member, None), (leader_epoch, gone, NONE)
        return
    value = Cursor(record.value)
    if (version := value.int16()) != 0:
        raise Malformed(f"has a value of version {version} of the key {kind}, while 0 is known")
    epoch = value.int32()
    if kind != _CURRENT:  # what else it says is of no interest
        what = GroupRecord.GROUP_EPOCH if kind == _GROUP else GroupRecord.TARGET_EPOCH
        yield (group, member, None), (leader_epoch, what, epoch)
        return
    value.int32(), value.int8()  # the epoch before, and the state of the member
    yield (group, member, None), (leader_epoch, GroupRecord.MEMBER, epoch)
    for what in (GroupRecord.OWNED, GroupRecord.RELEASING):
        for partition in _partitions(value):
            yield (group, member, partition), (leader_epoch, what, epoch)
    value.tagged_fields()
    if value.position != len(record.value):
        raise Malformed(f"has an assignment of {len(record.value)} bytes, of which {value.position} are explained")


def _partitions(value: Cursor) -> Iterator[tuple[UUID, int]]:
    for _ in range(value.unsigned_varint() - 1):
        topic, numbers = value.uuid(), value.compact_int32s()
        value.tagged_fields()
        yield from ((topic, number) for number in numbers)
