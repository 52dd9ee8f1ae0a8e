"""Copies: what a record that was derived from another says of where it came from.

Our own copier puts the fixed header of what it copied behind the header of its own value: so a copy has an identity of
its own, as every record has, and names its origin. Whoever else copies hands on the value, or the record header
`prozess`, as it was: such a copy has the identity of its origin and none of its own. Where an application hands on
neither, all that is left to compare is what key and value are: a digest of both, on either side.

    our copy: header of the copier | header of the source | padding | crc32
"""

import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from confluent_kafka import Message

from harness.plan import SENTINEL_CLIENT
from harness.schema import NONE, ORIGIN_SEQUENCE_BITS, ReadFlag
from workloads.carrier import HEADER, MAGIC, VALUE_BYTES_MIN, Identities, header_of, pack_header

COPY_BYTES_MIN = VALUE_BYTES_MIN + HEADER.itemsize
_DIGEST_BYTES = 8
_DIGEST_MAX = 2**63 - 1

EncodeCopy = Callable[[int, int, bytes], bytes]


def copy_encoder(*, sender: int, value_bytes: int) -> EncodeCopy:
    """A function (dense partition, sequence, value that is copied) → value of `value_bytes` bytes."""
    assert value_bytes >= COPY_BYTES_MIN, value_bytes
    padding, size = bytes(value_bytes - COPY_BYTES_MIN), HEADER.itemsize

    def encode(partition: int, sequence: int, source: bytes) -> bytes:
        origin = source[:size].ljust(size, b"\0")
        body = pack_header(sender, partition, sequence, value_bytes) + origin + padding
        return body + zlib.crc32(body).to_bytes(4, "little")

    return encode


def origin_of(sender: np.ndarray, sequence: np.ndarray) -> np.ndarray:
    """int64[n]: `reads.origin` of copies of these records; NONE where there is no identity."""
    known = (sender >= 0) & (sequence >= 0) & (sequence < 1 << ORIGIN_SEQUENCE_BITS)
    packed = (sender.astype(np.int64) << ORIGIN_SEQUENCE_BITS) | sequence
    return np.asarray(np.where(known, packed, NONE))


def digest(key: bytes | None, value: bytes | None) -> int:
    """63 bits of what a record is: equal for equal key and value, and for hardly anything else."""
    told = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in (key, value):
        told.update(b"\0" if part is None else len(part).to_bytes(8, "little") + b"\1" + part)
    return int.from_bytes(told.digest(), "little") & _DIGEST_MAX


@dataclass(frozen=True, slots=True)
class CopyRules:
    """Where identity is, of the partitions of a client (dense ids); all empty: in the value, and there are no copies."""

    by_header: tuple[int, ...] = ()
    """In the record header, beside a value that is not ours."""
    transformed: tuple[int, ...] = ()
    """Copies by our own copier: their own, and their origin's."""
    handed_on: tuple[int, ...] = ()
    """Copies by somebody else: their origin's, if any."""
    shared: tuple[int, ...] = ()
    """Others write there too: a record without the header is theirs, and has no identity."""
    digested: tuple[int, ...] = ()
    """`origin` is the digest of key and value."""


class CopyReader:
    """Resolves identity and origin of batches, by partition."""

    def __init__(self, rules: CopyRules, size: int) -> None:
        """`size`: one more than the greatest dense id."""
        every = (rules.by_header, rules.transformed, rules.handed_on, rules.digested, rules.shared)
        self.any = any(every)
        self._by_header, self._transformed, self._handed_on, self._digested, self._shared = (
            _mask(size, chosen) for chosen in every
        )

    def carriers(
        self, messages: Sequence[Message], values: list[bytes | None], partitions: np.ndarray
    ) -> list[bytes | None]:
        """What identities are to be decoded from: of partitions with the identity in the header, the header where
        there is one (a sentinel has none)."""
        for row in np.flatnonzero(self._by_header[partitions]).tolist():
            values[row] = header_of(messages[row]) or values[row]
        return values

    def resolve(
        self, messages: Sequence[Message], values: Sequence[bytes | None], found: Identities, partitions: np.ndarray
    ) -> np.ndarray:
        """int64[n], `reads.origin`; and in place, a copy that was handed on loses the identity that is not its own."""
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
            if header_of(messages[row]) is None:
                found.flags[row] = int(ReadFlag.ANONYMOUS)
        rows = np.flatnonzero(self._digested[partitions] & ~sentinel)
        if len(rows):
            chosen = [messages[row] for row in rows.tolist()]
            origin[rows] = np.fromiter(
                map(digest, map(Message.key, chosen), map(Message.value, chosen)), dtype=np.int64, count=len(rows)
            )
        return origin


def _origins_within(values: Sequence[bytes]) -> np.ndarray:
    """int64[n]: the origins named in values of our copier; NONE where there is none."""
    start, size = HEADER.itemsize, HEADER.itemsize
    held = np.frombuffer(b"".join(value[start : start + size].ljust(size, b"\0") for value in values), dtype=HEADER)
    named = held["magic"] == int.from_bytes(MAGIC, "little")
    sender = np.where(named, held["sender"], NONE).astype(np.int64)
    return origin_of(sender, np.where(named, held["sequence"].astype(np.int64), NONE))


def _mask(size: int, chosen: Sequence[int]) -> np.ndarray:
    mask = np.zeros(size, dtype=bool)
    mask[list(chosen)] = True
    return mask


def rules_from(options: Mapping[str, Sequence[int]]) -> CopyRules:
    """From the options of a reader (`workloads.properties.launch_reader`)."""
    return CopyRules(**{name: tuple(options.get(name, ())) for name in CopyRules.__slots__})
