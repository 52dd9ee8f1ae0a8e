"""Reads what share coordinators wrote down of share groups, in the files of `__share_group_state`.

Layout: KIP-932, and `ShareSnapshot`, `ShareUpdate` of Kafka, keys and values. A snapshot states everything, an update what
changed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import numpy as np

from prozess.clusters.files.internal_logs import decoded_logs
from prozess.clusters.files.segments import BatchRecord
from prozess.clusters.protocol.client import Cursor, Malformed
from prozess.harness.schema import NONE, ShareRecord

TOPIC = "__share_group_state"
_SNAPSHOT, _UPDATE = 0, 1
"""The kinds of keys."""
COLUMNS = (
    *("log_offset", "timestamp_ms", "leader_epoch", "kind", "state_epoch", "partition_epoch"),
    *("first_offset", "last_offset", "state", "delivery_count"),
)


@dataclass(frozen=True, slots=True)
class ShareLog:
    """What the best copy of one partition of `__share_group_state` states, in the order of the log."""

    number: int
    """The number of the partition."""
    columns: Mapping[str, np.ndarray]
    """Each of COLUMNS → int64[n]. A record has a row for itself, with the start offset, and one for each range of offsets."""
    groups: tuple[str, ...]
    """The group.id of each row."""
    partitions: tuple[tuple[UUID, int], ...]
    """The topic and number of the partition of each row."""


def read_share_log(data_directories: Mapping[int, Path], *, on_problem: Callable[[str], None]) -> Iterator[ShareLog]:
    """Reads each partition of `__share_group_state`. One that cannot be read or understood, or lacks records, is left out,
    and `on_problem` learns why (`decoded_logs`)."""
    logs = decoded_logs(data_directories, TOPIC, COLUMNS, _read, on_problem=on_problem, without_holes="lacks records")
    for log in logs:
        groups, partitions = zip(*log.named, strict=True) if log.named else ((), ())
        yield ShareLog(log.number, log.columns, groups, partitions)


def _read(record: BatchRecord, leader_epoch: int) -> Iterator[tuple[tuple[str, tuple[UUID, int]], tuple[int, ...]]]:
    """Reads a record: for each row its group.id and partition, and the columns from `leader_epoch` on."""
    if record.key is None:
        raise Malformed("has a record without a key")
    key = Cursor(record.key)
    kind = key.int16()
    if kind not in (_SNAPSHOT, _UPDATE):
        raise Malformed(f"has a key of the kind {kind}, while 0 and 1 are known")
    names = (key.string() or "", (key.uuid(), key.int32()))
    if record.value is None:
        yield names, (leader_epoch, ShareRecord.GONE, NONE, NONE, NONE, NONE, NONE, NONE)
        return
    value = Cursor(record.value)
    if (version := value.int16()) != 0:
        raise Malformed(f"has a value of version {version} of the key {kind}, while 0 is known")
    value.int32()  # the number of the snapshot
    state_epoch = value.int32() if kind == _SNAPSHOT else NONE
    partition_epoch, start = value.int32(), value.int64()
    if kind == _SNAPSHOT:
        value.int64(), value.int64()  # when it was made, and written
    what = ShareRecord.SNAPSHOT if kind == _SNAPSHOT else ShareRecord.UPDATE
    yield names, (leader_epoch, what, state_epoch, partition_epoch, start, NONE, NONE, NONE)
    for _ in range(value.unsigned_varint() - 1):
        first, last, state, count = value.int64(), value.int64(), value.int8(), value.int16()
        value.tagged_fields()
        yield names, (leader_epoch, ShareRecord.RANGE, NONE, partition_epoch, first, last, state, count)
    value.tagged_fields()
    if value.position != len(record.value):
        raise Malformed(f"has a value of {len(record.value)} bytes, of which {value.position} are explained")
