"""Reads the transaction log: what coordinators wrote down of each transactional.id, in the files of `__transaction_state`.

Layout: KIP-98, and `TransactionLogKey.json`, `TransactionLogValue.json` of Kafka. Version 0 is of KIP-98. Version 1 has
compact fields and tags (KIP-890); a version beyond it would not be backward compatible (KIP-915).
"""

import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prozess.clusters.files.segments import (
    HEADER,
    LENGTH_FROM,
    Batch,
    batch_starts,
    read_headers,
    read_records,
    segments_of,
)
from prozess.clusters.protocol.client import Cursor, Malformed
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.recording.codes import TRANSACTIONS_TOPIC
from prozess.harness.schema import TransactionState

_DIRECTORY = re.compile(rf"{TRANSACTIONS_TOPIC}-(?P<number>\d+)")
_COMPRESSED = 0x07
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
    """Reads the copy of each partition that a leader would have: of the last leader epoch the longest one (KIP-101).

    `data_directories`: node id → directory. Brokers must have ended. Checksums are not tested. A partition of which a copy
    cannot be read is left out, and `on_problem` learns why.
    """
    copies: dict[int, list[Path]] = {}
    for directory in data_directories.values():
        for path in directory.glob(f"{TRANSACTIONS_TOPIC}-*"):
            if match := _DIRECTORY.fullmatch(path.name):
                copies.setdefault(int(match["number"]), []).append(path)
    for number in sorted(copies):
        try:
            read = [_headers(path) for path in copies[number]]
            segments = max(read, key=_end_of)
            yield _decoded(number, segments)
        except (HistoryUnreadable, OSError) as error:
            on_problem(str(error))


_Segments = list[tuple[Path, np.ndarray]]


def _headers(log: Path) -> _Segments:
    """Reads the headers of each segment. HistoryUnreadable if a segment other than the last is torn."""
    found: _Segments = []
    torn = ""
    for path in segments_of(log):
        if torn:
            raise HistoryUnreadable(f"{log} is torn at {torn}, yet the log goes on in {path.name}.")
        headers, torn = read_headers(path)
        found.append((path, headers))
    return found


def _end_of(segments: _Segments) -> tuple[int, int]:
    """Returns (the last leader epoch, the last offset). A copy without a batch is behind every other one."""
    lasts = [headers[-1] for _, headers in segments if len(headers)]
    if not lasts:
        return -1, -1
    return int(lasts[-1]["leader_epoch"]), int(lasts[-1]["base_offset"]) + int(lasts[-1]["last_offset_delta"])


def _decoded(number: int, segments: _Segments) -> TransactionLog:
    columns = {name: array("q") for name in COLUMNS}
    ids: list[str] = []
    for path, headers in segments:
        data = path.read_bytes()
        try:
            for batch in _batches(data, headers):
                for record in read_records(batch):
                    name = _key(record.key)
                    if name is None:
                        continue
                    ids.append(name)
                    values = (record.log_offset, record.timestamp_ms, *_value(record.value, batch.leader_epoch))
                    for column, value in zip(columns.values(), values, strict=True):
                        column.append(value)
        except Malformed as error:
            raise HistoryUnreadable(f"{path} {error}.") from error
    return TransactionLog(
        number, {name: np.frombuffer(values, dtype=np.int64) for name, values in columns.items()}, tuple(ids)
    )


def _batches(data: bytes, headers: np.ndarray) -> Iterator[Batch]:
    for begin, header in zip(batch_starts(headers).tolist(), headers, strict=True):
        if header["attributes"] & _COMPRESSED:
            raise Malformed(f"has a compressed batch at byte {begin}, which is not read")
        yield Batch(
            base_offset=int(header["base_offset"]),
            last_offset=int(header["base_offset"]) + int(header["last_offset_delta"]),
            leader_epoch=int(header["leader_epoch"]),
            checksum=int(header["checksum"]),
            base_timestamp_ms=int(header["base_timestamp_ms"]),
            count=int(header["records"]),
            control=False,
            payload=data[begin + HEADER.itemsize : begin + LENGTH_FROM + int(header["length"])],
        )


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
