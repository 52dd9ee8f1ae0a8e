"""Reads the transaction log: what coordinators wrote down of each transactional.id, in the files of `__transaction_state`.

Layout: KIP-98, and `TransactionLogKey.json`, `TransactionLogValue.json` of Kafka. Version 0 is of KIP-98. Version 1 has
compact fields and tags (KIP-890); a version beyond it would not be backward compatible (KIP-915).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prozess.clusters.files.internal_logs import decoded_logs
from prozess.clusters.files.segments import BatchRecord
from prozess.clusters.protocol.client import Cursor, Malformed
from prozess.harness.recording.codes import TRANSACTIONS_TOPIC
from prozess.harness.schema import TransactionState

_VERSION_OF_CLIENT_TAG = 2
_STATES = frozenset(map(int, TransactionState)) - {TransactionState.FORGOTTEN}
COLUMNS = (
    *("log_offset", "timestamp_ms", "producer_id", "leader_epoch", "state", "producer_epoch"),
    *("partitions", "client_version"),
)


@dataclass(frozen=True, slots=True)
class TransactionLog:
    """What the best copy of one partition of the transaction log holds, in the order of the log."""

    number: int
    """The number of the partition within `__transaction_state`."""
    columns: Mapping[str, np.ndarray]
    """Each of COLUMNS → int64[n]. `timestamp_ms`: the coordinator's wall clock. `state`: a TransactionState."""
    ids: tuple[str, ...]
    """The transactional.id of each record."""


def read_transaction_log(
    data_directories: Mapping[int, Path], *, on_problem: Callable[[str], None]
) -> Iterator[TransactionLog]:
    """Reads each partition of the transaction log. A partition that cannot be read, or is not understood, is left out, and
    `on_problem` learns why (`decoded_logs`)."""
    for log in decoded_logs(data_directories, TRANSACTIONS_TOPIC, COLUMNS, _read, on_problem=on_problem):
        yield TransactionLog(log.number, log.columns, tuple(name for (name,) in log.named))


def _read(record: BatchRecord, leader_epoch: int) -> Iterator[tuple[tuple[str], tuple[int, ...]]]:
    if (name := _key(record.key)) is not None:
        yield (name,), _value(record.value, leader_epoch)


def _key(key: bytes | None) -> str | None:
    """Reads the transactional.id. None: a key of another kind, which Kafka's coordinators pass over."""
    if key is None:
        raise Malformed("has a record without a key")
    cursor = Cursor(key)
    return cursor.string() if cursor.int16() == 0 else None


def _value(value: bytes | None, leader_epoch: int) -> tuple[int, ...]:
    """Reads a value: the columns from `producer_id` on. Without one the transactional.id is forgotten."""
    if value is None:
        return -1, leader_epoch, int(TransactionState.FORGOTTEN), -1, 0, 0
    cursor = Cursor(value)
    version = cursor.int16()
    if version not in (0, 1):
        raise Malformed(f"has a value of version {version}, while 0 and 1 are known")
    producer_id, producer_epoch, _, state = cursor.int64(), cursor.int16(), cursor.int32(), cursor.int8()
    partitions, tags = 0, dict[int, bytes]()
    for _ in range(cursor.unsigned_varint() - 1 if version else cursor.int32()):
        cursor.compact_string() if version else cursor.string()
        partitions += len(cursor.compact_int32s() if version else cursor.int32s(cursor.int32()))
        if version:
            cursor.tagged_fields()
    cursor.int64(), cursor.int64()
    if version:
        tags = cursor.tagged_fields()
    if cursor.position != len(value):
        raise Malformed(f"has a value of {len(value)} bytes, of which version {version} explains {cursor.position}")
    if state not in _STATES:
        raise Malformed(f"has a transaction in the state {state}, which is not known")
    client_version = Cursor(tags[_VERSION_OF_CLIENT_TAG]).int16() if _VERSION_OF_CLIENT_TAG in tags else 0
    return producer_id, leader_epoch, state, producer_epoch, partitions, client_version
