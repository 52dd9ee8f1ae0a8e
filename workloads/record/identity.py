"""Every record carries its identity in its value: who sent it, to which partition, which one it is, and of what it is
a copy."""

import hashlib
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import cast

import numpy as np
from confluent_kafka import Message

from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.recording.verifiable_output import foreign_identities
from prozess.harness.schema import NONE, ORIGIN_SEQUENCE_BITS, ReadFlag

# Record identity in the value: who sent it, where to, which one; and a checksum over all of it.
#
#     magic "PZ1\0" | sender u32 | dense partition u32 | sequence u64 | length of the value u32 | padding | crc32 u32
#
# Little-endian. The checksum covers everything before it, so the crc32 of a *whole* value is one constant, and a batch
# is validated by `map(zlib.crc32, values)` without a Python loop body per record. It is ours, not Kafka's crc32c of
# the batch: it also notices what happens between the client and the log (compression, batching, memory).


MAGIC = b"PZ1\0"
HEADER = np.dtype([("magic", "<u4"), ("sender", "<u4"), ("partition", "<u4"), ("sequence", "<u8"), ("length", "<u4")])
RESIDUE = 0x2144DF1C
"""crc32 of any message followed by its own crc32, little-endian (a property of the CRC-32 of zlib, RFC 1952)."""
VALUE_BYTES_MIN = HEADER.itemsize + 4
IDENTITY = struct.Struct("<IQ")
"""The dense partition and the sequence, at IDENTITY_OFFSET of a value: a delivery report finds its row by them."""
IDENTITY_OFFSET = 8
SENTINEL_KEY = b"sentinel"
HEADER_NAME = "prozess"
"""The record header that carries the identity where the value does not. It has the form of a value of VALUE_BYTES_MIN
bytes."""

_HEADER = struct.Struct("<4sIIQI")
_HEADER_SLICE = itemgetter(slice(0, HEADER.itemsize))
_IDENTITY_SLICE = itemgetter(slice(IDENTITY_OFFSET, IDENTITY_OFFSET + IDENTITY.size))
_IDENTITY_DTYPE = np.dtype([("partition", "<u4"), ("sequence", "<u8")])
_ID_MAX, _SEQUENCE_MAX = 2**31 - 1, 2**63 - 1
assert _HEADER.size == HEADER.itemsize


@dataclass(frozen=True, slots=True)
class RecordIdentities:
    """The identities in a batch of values. The first three are NONE where `flags` has CORRUPT."""

    sender: np.ndarray
    """The sender, int32."""
    sent_partition: np.ndarray
    """The dense id of the partition that it was sent to, int32."""
    sequence: np.ndarray
    """Which of the sender's records it is, int64."""
    flags: np.ndarray
    """Bits of ReadFlag, int32."""


def pack_header(sender: int, partition: int, sequence: int, value_bytes: int) -> bytes:
    """Returns the first HEADER.itemsize bytes of a value of `value_bytes` bytes."""
    return _HEADER.pack(MAGIC, sender, partition, sequence, value_bytes)


def encoder(*, sender: int, value_bytes: int) -> Callable[[int, int], bytes]:
    """Returns a function (dense partition, sequence) → value of `value_bytes` bytes. It is made once per client and
    called per record."""
    assert value_bytes >= VALUE_BYTES_MIN, value_bytes
    pack, crc32, padding = _HEADER.pack, zlib.crc32, bytes(value_bytes - VALUE_BYTES_MIN)

    def encode(partition: int, sequence: int) -> bytes:
        head = pack(MAGIC, sender, partition, sequence, value_bytes) + padding
        return head + crc32(head).to_bytes(4, "little")

    return encode


_SLAB_BYTES = 1 << 22
"""The most bytes of values that are made in one piece."""
_IDENTITY_BYTES = IDENTITY.size


def encoder_of_many(*, sender: int, value_bytes: int) -> Callable[[np.ndarray, np.ndarray], list[bytes]]:
    """Returns a function (dense partitions int[n], sequences int64[n]) → the n values that `encoder` gives, without a
    Python loop body per record: made once per client, called per batch.

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
    """Returns what byte b of the identity adds (by XOR) to the checksum of `head`, in which it is zero: uint32[12,
    256]."""
    changed, without = bytearray(head), zlib.crc32(head)
    tables = np.zeros((_IDENTITY_BYTES, 256), dtype="<u4")
    for position in range(_IDENTITY_BYTES):
        for bit in range(8):
            changed[IDENTITY_OFFSET + position] = 1 << bit
            tables[position, np.arange(256) >> bit & 1 == 1] ^= zlib.crc32(changed) ^ without
        changed[IDENTITY_OFFSET + position] = 0
    return tables


def identities_of(values: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Returns (dense partitions uint32[n], sequences uint64[n]) of values that are known to be ours. Nothing is
    checked."""
    held = np.frombuffer(b"".join(map(_IDENTITY_SLICE, values)), dtype=_IDENTITY_DTYPE)
    return held["partition"], held["sequence"]


def decode(values: Sequence[bytes | None]) -> RecordIdentities:
    """Returns the identities in a batch of values. A value that is not ours is CORRUPT; so is a tombstone."""
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
    return RecordIdentities(
        # Signed first: from NumPy 2.5 on, NONE is no value for what is unsigned.
        sender=np.where(good, headers["sender"].astype(np.int64), NONE).astype(np.int32),
        sent_partition=np.where(good, headers["partition"].astype(np.int64), NONE).astype(np.int32),
        sequence=np.where(good, headers["sequence"].astype(np.int64), NONE),
        flags=np.where(good, 0, ReadFlag.CORRUPT).astype(np.int32),
    )


def decode_foreign(
    values: Sequence[bytes | None], ours: RecordIdentities, foreign: np.ndarray, senders: np.ndarray | None = None
) -> RecordIdentities:
    """Returns the identities of a batch in which records at `foreign` (bool[n]) that are none of ours may be a
    verifiable producer's: "prefix.n", the prefix being the client's id. Such a record does not say which partition
    it was sent to, and has no checksum. `senders`: which ids count; None = any."""
    rows = np.flatnonzero(foreign & (ours.flags != 0))
    if not len(rows):
        return ours
    sender, sequence = foreign_identities([values[row] for row in rows.tolist()])
    if senders is not None:
        others = ~np.isin(sender, senders)
        sender[others], sequence[others] = NONE, NONE
    ours.sender[rows], ours.sequence[rows] = sender, sequence
    ours.flags[rows] = np.where(sender == NONE, int(ReadFlag.CORRUPT), 0)
    return ours


def identity_values(messages: Sequence[Message]) -> list[bytes | None]:
    """Returns the bytes in which `decode` finds each record's identity: its value; of a tombstone the header
    `prozess`, or None."""
    values = cast(list[bytes | None], list(map(Message.value, messages)))
    if None in values:  # headers are looked at only where the value is absent
        for index, message in enumerate(messages):
            if values[index] is None:
                values[index] = header_of(message)
    return values


def header_of(message: Message) -> bytes | None:
    """Returns the record header that carries the identity; None if there is none."""
    held = cast(list[tuple[str, bytes | None]], message.headers() or [])
    return next((value for name, value in held if name == HEADER_NAME), None)


def without_token(header: bytes | None, token: bytes) -> bytes | None:
    """Returns what a header `prozess` has before the token of its test; None if it is whole, and has the token of another
    test, or none. What is not whole is returned, and is corrupt."""
    if header is None or not token:
        return header
    head, behind = header[:VALUE_BYTES_MIN], header[VALUE_BYTES_MIN:]
    if behind == token or len(head) < VALUE_BYTES_MIN or zlib.crc32(head) != RESIDUE:
        return head
    return None


def key_id(key: bytes | None) -> int:
    """Returns the id of a key in `sends` and `reads`: NONE for the null key, else its crc32. The log workload has one
    key only; the keys of the compaction workload have four bytes, of which the crc32 is one-to-one."""
    return NONE if key is None else zlib.crc32(key)


def key_ids(keys: Sequence[bytes | None]) -> np.ndarray:
    """Returns the id of each key (`key_id`), int64."""
    if keys.count(None) == len(keys):
        return np.full(len(keys), NONE, dtype=np.int64)
    return np.fromiter(map(key_id, keys), dtype=np.int64, count=len(keys))


# Copies: what a record that was derived from another says of where it came from.
#
# Our own copier puts the fixed header of what it copied behind the header of its own value: so a copy has an identity
# of its own, as every record has, and names its origin. Any client that else copies hands on the value, or the record header
# `prozess`, as it was: such a copy has the identity of its origin and none of its own. Where an application hands on
# neither, all that is left to compare is what key and value are: a digest of both, on either side.
#
#     our copy: header of the copier | header of the source | padding | crc32


COPY_BYTES_MIN = VALUE_BYTES_MIN + HEADER.itemsize
_DIGEST_BYTES = 8
_DIGEST_MAX = 2**63 - 1

EncodeCopy = Callable[[int, int, bytes], bytes]


def copy_encoder(*, sender: int, value_bytes: int) -> EncodeCopy:
    """Returns a function (dense partition, sequence, value that is copied) → value of `value_bytes` bytes."""
    assert value_bytes >= COPY_BYTES_MIN, value_bytes
    padding, size = bytes(value_bytes - COPY_BYTES_MIN), HEADER.itemsize

    def encode(partition: int, sequence: int, source: bytes) -> bytes:
        origin = source[:size].ljust(size, b"\0")
        body = pack_header(sender, partition, sequence, value_bytes) + origin + padding
        return body + zlib.crc32(body).to_bytes(4, "little")

    return encode


def origin_of(sender: np.ndarray, sequence: np.ndarray) -> np.ndarray:
    """Returns `reads.origin` (int64[n]) of copies of these records; NONE where there is no identity."""
    known = (sender >= 0) & (sequence >= 0) & (sequence < 1 << ORIGIN_SEQUENCE_BITS)
    packed = (sender.astype(np.int64) << ORIGIN_SEQUENCE_BITS) | sequence
    return np.asarray(np.where(known, packed, NONE))


def digest(key: bytes | None, value: bytes | None) -> int:
    """Returns 63 bits that are equal for equal key and value, and hardly ever for others."""
    hasher = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in (key, value):
        hasher.update(b"\0" if part is None else len(part).to_bytes(8, "little") + b"\1" + part)
    return int.from_bytes(hasher.digest(), "little") & _DIGEST_MAX


@dataclass(frozen=True, slots=True)
class CopyRules:
    """Says where the identity is in a client's partitions (dense ids). If all are empty it is in the value, and there
    are no copies."""

    by_header: tuple[int, ...] = ()
    """Partitions whose records carry their identity in the record header, beside a value that is not ours."""
    transformed: tuple[int, ...] = ()
    """Partitions with copies by our own copier, which have their own identity and their origin's."""
    handed_on: tuple[int, ...] = ()
    """Partitions with copies by somebody else, which have their origin's identity, if any."""
    shared: tuple[int, ...] = ()
    """Partitions to which others write too: a record without the header is theirs, and has no identity."""
    digested: tuple[int, ...] = ()
    """Partitions in which `origin` is the digest of key and value."""
    token: str = ""
    """Hexadecimal: what stands behind the identity in the headers of this test. A record with another token is of another
    test."""


class CopyReader:
    """Finds the identity and the origin of each record in a batch, by the rules for its partition."""

    def __init__(self, rules: CopyRules, size: int) -> None:
        """`size`: one more than the greatest dense id."""
        every = (rules.by_header, rules.transformed, rules.handed_on, rules.digested, rules.shared)
        self.any, self._token = any(every), bytes.fromhex(rules.token)
        self._by_header, self._transformed, self._handed_on, self._digested, self._shared = (
            partition_mask(size, chosen) for chosen in every
        )

    def carriers(
        self, messages: Sequence[Message], values: list[bytes | None], partitions: np.ndarray
    ) -> list[bytes | None]:
        """Returns the bytes from which identities are decoded: in partitions with the identity in the header, the
        header where there is one (a sentinel has none)."""
        for row in np.flatnonzero(self._by_header[partitions]).tolist():
            if header := header_of(messages[row]):
                values[row] = without_token(header, self._token)
        return values

    def resolve(
        self,
        messages: Sequence[Message],
        values: Sequence[bytes | None],
        found: RecordIdentities,
        partitions: np.ndarray,
    ) -> np.ndarray:
        """Returns `reads.origin` (int64[n]). In place, a copy that was handed on loses the identity that is not its
        own."""
        origin = np.full(len(values), NONE, dtype=np.int64)
        own = (found.flags == 0) & (found.sent_partition == partitions)
        rows = np.flatnonzero(self._transformed[partitions] & own)
        if len(rows):
            origin[rows] = _origins_within([values[row] or b"" for row in rows.tolist()])
        sentinel = own & (found.sender == SENTINEL_CLIENT)
        rows = np.flatnonzero(self._handed_on[partitions] & ~sentinel)
        if len(rows):
            origin[rows] = origin_of(found.sender[rows], found.sequence[rows])
            for column in (found.sender, found.sequence, found.sent_partition):
                column[rows] = NONE
            found.flags[rows] = int(ReadFlag.ANONYMOUS)  # and never corrupt: what it writes is its own to choose
        for row in np.flatnonzero(self._shared[partitions] & (found.flags == int(ReadFlag.CORRUPT))).tolist():
            if without_token(header_of(messages[row]), self._token) is None:
                found.flags[row] = int(ReadFlag.ANONYMOUS)
        rows = np.flatnonzero(self._digested[partitions] & ~sentinel)
        if len(rows):
            chosen = [messages[row] for row in rows.tolist()]
            origin[rows] = np.fromiter(
                map(digest, map(Message.key, chosen), map(Message.value, chosen)), dtype=np.int64, count=len(rows)
            )
        return origin


def _origins_within(values: Sequence[bytes]) -> np.ndarray:
    """Returns the origins named in values of our copier (int64[n]); NONE where there is none."""
    start, size = HEADER.itemsize, HEADER.itemsize
    held = np.frombuffer(b"".join(value[start : start + size].ljust(size, b"\0") for value in values), dtype=HEADER)
    named = held["magic"] == int.from_bytes(MAGIC, "little")
    sender = np.where(named, held["sender"].astype(np.int64), NONE)
    return origin_of(sender, np.where(named, held["sequence"].astype(np.int64), NONE))


def partition_mask(size: int, chosen: Sequence[int]) -> np.ndarray:
    """Returns bool[size]: is the partition of this dense id one of these? Ids beyond the size are left out: a topic that is
    made again has ids of its own in the plan, and clients record those of the first topic that had the name."""
    mask = np.zeros(size, dtype=bool)
    mask[[dense for dense in chosen if dense < size]] = True
    return mask
