"""Kafka's record batches (magic 2) as they lie in a log segment or a snapshot. Pure: bytes in, values out.

Layout: https://kafka.apache.org/documentation/#recordbatch. Uncompressed only: KRaft's metadata log is never compressed
(`BatchAccumulator` is built with CompressionType.NONE).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from clusters.wire import Cursor, Malformed

_HEAD = struct.Struct(">qiibIhiqqqhii")
"""base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and max timestamp, producer id, epoch
and base sequence, count."""
_LENGTH_FROM = 12
"""The length counts from here."""
_CHECKED_FROM = 21
"""The CRC covers everything from the attributes on."""
_COMPRESSION_BITS, _CONTROL_BIT = 0x07, 0x20


def _crc32c_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ 0x82F63B78 * (value & 1)
        table.append(value)
    return tuple(table)


_CRC32C = _crc32c_table()


def crc32c(data: bytes) -> int:
    """Castagnoli's checksum. Some MB/s: for metadata logs, not for data."""
    table, value = _CRC32C, 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Batch:
    """One valid batch. `payload`: its records."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    checksum: int
    base_timestamp_ms: int
    count: int
    control: bool
    payload: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """One record. `timestamp_ms`: CreateTime, the wall clock of who wrote it."""

    log_offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Batches:
    """The valid batches from the start of the data, and where they end."""

    batches: list[Batch]
    torn_at: int | None
    """Position of what is no valid batch; None = every byte belongs to one."""
    torn_reason: str = ""


def read_batches(data: bytes) -> Batches:
    """Every batch up to the first that is not whole. `Malformed` if a damaged batch has a whole one behind it: then it is
    no torn tail (normal after SIGKILL), but the middle of the log that is damaged."""
    batches: list[Batch] = []
    position = 0
    while position < len(data):
        batch, end, reason = _batch_at(data, position)
        if batch is None:
            if end is not None and end < len(data) and _batch_at(data, end)[0] is not None:
                raise Malformed(f"is damaged at byte {position} ({reason}), and goes on after that")
            return Batches(batches, position, reason)
        batches.append(batch)
        position = end or len(data)
    return Batches(batches, None)


def _batch_at(data: bytes, position: int) -> tuple[Batch | None, int | None, str]:
    """The batch at `position`, where it says it ends, and why it is none."""
    if position + _HEAD.size > len(data):
        return None, None, "not even a whole header"
    head = _HEAD.unpack_from(data, position)
    base_offset, length, epoch, magic, checksum, attributes, last_delta, base_timestamp = head[:8]
    end = position + _LENGTH_FROM + length
    if length < _HEAD.size - _LENGTH_FROM or magic != 2:
        return None, None, f"length {length}, magic {magic}"
    if end > len(data):
        return None, None, f"{end - len(data)} bytes are missing"
    if crc32c(data[position + _CHECKED_FROM : end]) != checksum:
        return None, end, "its checksum does not match"
    if attributes & _COMPRESSION_BITS:
        raise Malformed(f"has a compressed batch at byte {position}, which a metadata log never has")
    payload = data[position + _HEAD.size : end]
    last_offset = base_offset + last_delta
    control = bool(attributes & _CONTROL_BIT)
    batch = Batch(base_offset, last_offset, epoch, checksum, base_timestamp, head[-1], control, payload)
    return batch, end, ""


def read_records(batch: Batch) -> Iterator[Record]:
    """The records of one batch, in order. `Malformed` if it does not hold what its header says."""
    cursor = Cursor(batch.payload)
    for _ in range(batch.count):
        length = cursor.varint()
        begin, end = cursor.position, cursor.position + length
        cursor.int8()  # attributes, unused
        timestamp_ms = batch.base_timestamp_ms + cursor.varint()
        log_offset = batch.base_offset + cursor.varint()
        key, value = _bytes(cursor), _bytes(cursor)
        if not begin < cursor.position <= end <= len(cursor.data):
            raise Malformed(f"has a record that ends outside itself or its batch (offset {log_offset})")
        cursor.position = end  # record headers are of no interest
        yield Record(log_offset, timestamp_ms, key, value)


def _bytes(cursor: Cursor) -> bytes | None:
    length = cursor.varint()
    return None if length < 0 else cursor.take(length)
