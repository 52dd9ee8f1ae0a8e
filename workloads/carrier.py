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
from harness.verifiable_events import foreign_identities

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
_IDENTITY_SLICE = itemgetter(slice(IDENTITY_OFFSET, IDENTITY_OFFSET + IDENTITY.size))
_IDENTITY_DTYPE = np.dtype([("partition", "<u4"), ("sequence", "<u8")])
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


def pack_header(sender: int, partition: int, sequence: int, value_bytes: int) -> bytes:
    """The first HEADER.itemsize bytes of a value of `value_bytes` bytes."""
    return _HEADER.pack(MAGIC, sender, partition, sequence, value_bytes)


def encoder(*, sender: int, value_bytes: int) -> Callable[[int, int], bytes]:
    """A function (dense partition, sequence) → value of `value_bytes` bytes: made once per client, called per record."""
    assert value_bytes >= VALUE_BYTES_MIN, value_bytes
    pack, crc32, padding = _HEADER.pack, zlib.crc32, bytes(value_bytes - VALUE_BYTES_MIN)

    def encode(partition: int, sequence: int) -> bytes:
        head = pack(MAGIC, sender, partition, sequence, value_bytes) + padding
        return head + crc32(head).to_bytes(4, "little")

    return encode


_SLAB_BYTES = 1 << 22
"""Values made in one piece."""
_IDENTITY_BYTES = IDENTITY.size


def encoder_of_many(*, sender: int, value_bytes: int) -> Callable[[np.ndarray, np.ndarray], list[bytes]]:
    """A function (dense partitions int[n], sequences int64[n]) → the n values that `encoder` gives, without a Python loop
    body per record: made once per client, called per batch.

    CRC-32 is affine over XOR: of two values of one length that differ in some bytes, the checksums differ by the XOR of what
    each changed byte contributes, so twelve tables replace reading every value.
    """
    encode = encoder(sender=sender, value_bytes=value_bytes)
    blank = np.frombuffer(encode(0, 0), dtype=np.uint8)
    blank_crc, tables = int.from_bytes(blank[-4:].tobytes(), "little"), _contributions(blank[:-4].tobytes())
    once = max(1, _SLAB_BYTES // value_bytes)

    def encode_some(partitions: np.ndarray, sequences: np.ndarray) -> list[bytes]:
        slab = np.tile(blank, (len(sequences), 1))
        varying = slab[:, IDENTITY_OFFSET : IDENTITY_OFFSET + _IDENTITY_BYTES]
        varying[:, :4] = partitions.astype("<u4").view(np.uint8).reshape(-1, 4)
        varying[:, 4:] = sequences.astype("<u8").view(np.uint8).reshape(-1, 8)
        crcs = np.full(len(sequences), blank_crc, dtype="<u4")
        for position in np.flatnonzero(varying.any(axis=0)).tolist():
            crcs ^= tables[position][varying[:, position]]
        slab[:, -4:] = crcs.view(np.uint8).reshape(-1, 4)
        values: list[bytes] = slab.view(f"V{value_bytes}").ravel().tolist()
        return values

    def encode_many(partitions: np.ndarray, sequences: np.ndarray) -> list[bytes]:
        if len(sequences) <= once:
            return encode_some(partitions, sequences)
        starts = range(0, len(sequences), once)
        return [v for i in starts for v in encode_some(partitions[i : i + once], sequences[i : i + once])]

    return encode_many


def _contributions(head: bytes) -> np.ndarray:
    """uint32[12, 256]: what byte b of the identity adds (by XOR) to the checksum of `head`, in which it is zero."""
    changed, without = bytearray(head), zlib.crc32(head)
    tables = np.zeros((_IDENTITY_BYTES, 256), dtype="<u4")
    for position in range(_IDENTITY_BYTES):
        for bit in range(8):
            changed[IDENTITY_OFFSET + position] = 1 << bit
            tables[position, np.arange(256) >> bit & 1 == 1] ^= zlib.crc32(changed) ^ without
        changed[IDENTITY_OFFSET + position] = 0
    return tables


def identities_of(values: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """(dense partitions uint32[n], sequences uint64[n]) of values that are known to be ours: nothing is checked."""
    held = np.frombuffer(b"".join(map(_IDENTITY_SLICE, values)), dtype=_IDENTITY_DTYPE)
    return held["partition"], held["sequence"]


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
                values[index] = header_of(message)
    return values


def header_of(message: Message) -> bytes | None:
    """The record header that carries the identity; None if there is none."""
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
