"""Record identity in the value: who sent it, where to, which one; and a checksum over all of it.

    magic "PZ1\\0" | sender u32 | dense partition u32 | sequence u64 | length of the value u32 | padding | crc32 u32

Little-endian. The checksum covers everything before it, so the crc32 of a *whole* value is one constant, and a batch is
validated by `map(zlib.crc32, values)` without a Python loop body per record. It is ours, not Kafka's crc32c of the batch:
it also notices what happens between the client and the log (compression, batching, memory).
"""

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import cast

import numpy as np
from confluent_kafka import Message

from harness.schema import NONE, ReadFlag
from workloads.verifiable_events import foreign_identities

MAGIC = b"PZ1\0"
HEADER = np.dtype([("magic", "<u4"), ("sender", "<u4"), ("partition", "<u4"), ("sequence", "<u8"), ("length", "<u4")])
RESIDUE = 0x2144DF1C
"""crc32 of any message followed by its own crc32, little-endian (a property of the CRC-32 of zlib, RFC 1952)."""
VALUE_BYTES_MIN = HEADER.itemsize + 4
IDENTITY = struct.Struct("<IQ")
"""Dense partition and sequence, at IDENTITY_OFFSET of a value: what a delivery report needs to find its row."""
IDENTITY_OFFSET = 8
SENTINEL_KEY = b"sentinel"
HEADER_NAME = "prozess"
"""The record header that carries the identity where there is no value: a value of VALUE_BYTES_MIN bytes, as above."""

_HEADER = struct.Struct("<4sIIQI")
_HEADER_SLICE = itemgetter(slice(0, HEADER.itemsize))
_ID_MAX, _SEQUENCE_MAX = 2**31 - 1, 2**63 - 1
assert _HEADER.size == HEADER.itemsize


@dataclass(frozen=True, slots=True)
class Identities:
    """What a batch of values says of itself; NONE in the first three where `flags` has CORRUPT."""

    sender: np.ndarray
    """int32"""
    sent_partition: np.ndarray
    """int32"""
    sequence: np.ndarray
    """int64"""
    flags: np.ndarray
    """int32, ReadFlag bits"""


def encoder(*, sender: int, value_bytes: int) -> Callable[[int, int], bytes]:
    """A function (dense partition, sequence) → value of `value_bytes` bytes: made once per client, called per record."""
    assert value_bytes >= VALUE_BYTES_MIN, value_bytes
    pack, crc32, padding = _HEADER.pack, zlib.crc32, bytes(value_bytes - VALUE_BYTES_MIN)

    def encode(partition: int, sequence: int) -> bytes:
        head = pack(MAGIC, sender, partition, sequence, value_bytes) + padding
        return head + crc32(head).to_bytes(4, "little")

    return encode


def decode(values: Sequence[bytes | None]) -> Identities:
    """The identities of a batch. Tolerates anything: what is not one of our values is CORRUPT, tombstones included."""
    # A tombstone is too short to be ours, which is all that matters here.
    whole = cast(Sequence[bytes], values) if None not in values else [value or b"" for value in values]
    count = len(whole)
    lengths = np.fromiter(map(len, whole), dtype=np.int64, count=count)
    residues = np.fromiter(map(zlib.crc32, whole), dtype=np.uint32, count=count)
    long_enough = lengths >= VALUE_BYTES_MIN
    if not long_enough.all():
        blank = bytes(VALUE_BYTES_MIN)
        whole = [value if len(value) >= VALUE_BYTES_MIN else blank for value in whole]
    # Slicing first copies 24 bytes of each value, however long the values are.
    headers = np.frombuffer(b"".join(map(_HEADER_SLICE, whole)), dtype=HEADER)
    good = (
        long_enough
        & (residues == RESIDUE)
        & (headers["magic"] == int.from_bytes(MAGIC, "little"))
        & (headers["length"] == lengths)
        & (headers["sender"] <= _ID_MAX)
        & (headers["partition"] <= _ID_MAX)
        & (headers["sequence"] <= _SEQUENCE_MAX)
    )
    return Identities(
        sender=np.where(good, headers["sender"], NONE).astype(np.int32),
        sent_partition=np.where(good, headers["partition"], NONE).astype(np.int32),
        sequence=np.where(good, headers["sequence"].astype(np.int64), NONE),
        flags=np.where(good, 0, ReadFlag.CORRUPT).astype(np.int32),
    )


def decode_foreign(values: Sequence[bytes | None], ours: Identities, foreign: np.ndarray) -> Identities:
    """The same batch, where records at `foreign` (bool[n]) that are none of ours may be a verifiable producer's: "prefix.n",
    the prefix being the client's id. Such a record does not say which partition it was sent to, and has no checksum."""
    rows = np.flatnonzero(foreign & (ours.flags != 0))
    if not len(rows):
        return ours
    sender, sequence = foreign_identities([values[row] for row in rows.tolist()])
    ours.sender[rows], ours.sequence[rows] = sender, sequence
    ours.flags[rows] = np.where(sender == NONE, int(ReadFlag.CORRUPT), 0)
    return ours


def identity_values(messages: Sequence[Message]) -> list[bytes | None]:
    """What `decode` reads of each record: its value; of a tombstone the header `prozess`, or None if it has none."""
    values = cast(list[bytes | None], list(map(Message.value, messages)))
    if None in values:  # headers are looked at only where the value is absent
        for index, message in enumerate(messages):
            if values[index] is None:
                values[index] = _header_of(message)
    return values


def _header_of(message: Message) -> bytes | None:
    held = cast(list[tuple[str, bytes | None]], message.headers() or [])
    return next((value for name, value in held if name == HEADER_NAME), None)


def key_id(key: bytes | None) -> int:
    """The id of a key in `sends` and `reads`: NONE for the null key, else its crc32. The log workload has one key only; the
    keys of the compaction workload have four bytes, of which the crc32 is one-to-one."""
    return NONE if key is None else zlib.crc32(key)


def key_ids(keys: Sequence[bytes | None]) -> np.ndarray:
    """`key_id` of a batch, int64."""
    if keys.count(None) == len(keys):
        return np.full(len(keys), NONE, dtype=np.int64)
    return np.fromiter(map(key_id, keys), dtype=np.int64, count=len(keys))
