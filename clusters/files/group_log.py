"""Reads what group coordinators wrote down of consumer groups, in the files of `__consumer_offsets`.

Layout: KIP-848, and `ConsumerGroupMetadata`, `ConsumerGroupTargetAssignmentMetadata` and
`ConsumerGroupCurrentMemberAssignment` of Kafka, keys and values. Groups of the classic protocols, commits and share groups
have other records, which are passed over.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import numpy as np

from prozess.clusters.files.internal_logs import Segments, batches_of, best_copies, is_whole
from prozess.clusters.files.segments import BatchRecord, read_records
from prozess.clusters.protocol.client import Cursor, Malformed
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.recording.codes import OFFSETS_TOPIC
from prozess.harness.schema import NONE, GroupRecord

_GROUP, _TARGET, _CURRENT = 3, 6, 8
"""The kinds of keys that are read."""
COLUMNS = ("log_offset", "timestamp_ms", "leader_epoch", "kind", "epoch")
_Row = tuple[GroupRecord, int, tuple[UUID, int] | None]


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
    and `on_problem` learns why (`best_copies`)."""
    for number, segments in best_copies(data_directories, OFFSETS_TOPIC, on_problem=on_problem):
        try:
            if not is_whole(segments):
                raise HistoryUnreadable(f"{segments[0][0].parent} was compacted: it does not say what came before.")
            yield _decoded(number, segments)
        except (HistoryUnreadable, OSError) as error:
            on_problem(str(error))


def _decoded(number: int, segments: Segments) -> GroupLog:
    columns = {name: array("q") for name in COLUMNS}
    groups, members, partitions = list[str](), list[str](), list[tuple[UUID, int] | None]()
    for path, headers in segments:
        try:
            for batch in batches_of(path.read_bytes(), headers):
                for record in read_records(batch):
                    if (read := _read(record)) is None:
                        continue
                    group, member, rows = read
                    for kind, epoch, partition in rows:
                        values = (record.log_offset, record.timestamp_ms, batch.leader_epoch, int(kind), epoch)
                        for column, value in zip(columns.values(), values, strict=True):
                            column.append(value)
                        groups.append(group)
                        members.append(member)
                        partitions.append(partition)
        except Malformed as error:
            raise HistoryUnreadable(f"{path} {error}.") from error
    made = {name: np.frombuffer(values, dtype=np.int64) for name, values in columns.items()}
    return GroupLog(number, made, tuple(groups), tuple(members), tuple(partitions))


def _read(record: BatchRecord) -> tuple[str, str, list[_Row]] | None:
    """Reads a record: group.id, member, and its rows. None: it is of another kind."""
    if record.key is None:
        raise Malformed("has a record without a key")
    key = Cursor(record.key)
    kind = key.int16()
    if kind not in (_GROUP, _TARGET, _CURRENT):
        return None
    group, member = key.string() or "", (key.string() or "") if kind == _CURRENT else ""
    if record.value is None:
        gone = {_GROUP: [GroupRecord.GROUP_GONE], _TARGET: [], _CURRENT: [GroupRecord.MEMBER_GONE]}[kind]
        return group, member, [(one, NONE, None) for one in gone]
    value = Cursor(record.value)
    if (version := value.int16()) != 0:
        raise Malformed(f"has a value of version {version} of the key {kind}, while 0 is known")
    epoch = value.int32()
    if kind != _CURRENT:
        value.position = len(record.value)  # what else it says is of no interest
        return group, member, [(GroupRecord.GROUP_EPOCH if kind == _GROUP else GroupRecord.TARGET_EPOCH, epoch, None)]
    value.int32(), value.int8()  # the epoch before, and the state of the member
    rows: list[_Row] = [(GroupRecord.MEMBER, epoch, None)]
    for what in (GroupRecord.OWNED, GroupRecord.RELEASING):
        rows += [(what, epoch, partition) for partition in _partitions(value)]
    value.tagged_fields()
    if value.position != len(record.value):
        raise Malformed(f"has an assignment of {len(record.value)} bytes, of which {value.position} are explained")
    return group, member, rows


def _partitions(value: Cursor) -> Iterator[tuple[UUID, int]]:
    for _ in range(value.unsigned_varint() - 1):
        topic, numbers = value.uuid(), value.compact_int32s()
        value.tagged_fields()
        yield from ((topic, number) for number in numbers)
