"""Which partition a record goes to: librdkafka's own partitioners, so that it is known before the record is sent. Pure.

[librdkafka: CONFIGURATION.md, `partitioner`; rdkafka_msg.c, rd_kafka_msg_partitioner_*; rdmurmur2.c, rdfnv1a.c]
"""

import random
import zlib
from collections.abc import Callable

from harness.errors import BadInput

_MASK = 0xFFFFFFFF
Choose = Callable[[bytes | None, int], int]
"""(key, number of partitions) → partition."""


def murmur2(data: bytes) -> int:
    """The hash of Java's DefaultPartitioner: MurmurHash2, 32 bits, seed 0x9747b28c. Not yet made positive."""
    multiplier, length = 0x5BD1E995, len(data)
    value = 0x9747B28C ^ length
    whole = length - length % 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * multiplier & _MASK
        word = (word ^ word >> 24) * multiplier & _MASK
        value = value * multiplier & _MASK ^ word
    if tail := data[whole:]:
        value = (value ^ int.from_bytes(tail, "little")) * multiplier & _MASK
    value = (value ^ value >> 13) * multiplier & _MASK
    return value ^ value >> 15


def fnv1a(data: bytes) -> int:
    """FNV-1a of 32 bits, as Sarama's: the absolute value of a signed number."""
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & _MASK
    return (1 << 32) - value if value >> 31 else value


def _consistent(key: bytes | None, count: int) -> int:
    return zlib.crc32(key or b"") % count


def _murmur2(key: bytes | None, count: int) -> int:
    return (murmur2(key or b"") & 0x7FFFFFFF) % count


def _fnv1a(key: bytes | None, count: int) -> int:
    return fnv1a(key or b"") % count


def partitioner(name: str, rng: random.Random) -> Choose:
    """The partitioner of this name. BadInput if librdkafka has none such.

    `consistent_random` takes an empty key for none; `murmur2_random` and `fnv1a_random` do not. What goes anywhere goes to a
    random partition here: librdkafka prefers those that have a leader, and keeps to one for `sticky.partitioning.linger.ms`.
    """

    def anywhere(_: bytes | None, count: int) -> int:
        return rng.randrange(count)

    def or_random(hashed: Choose, *, empty_too: bool) -> Choose:
        def choose(key: bytes | None, count: int) -> int:
            return anywhere(key, count) if key is None or (empty_too and not key) else hashed(key, count)

        return choose

    known: dict[str, Choose] = {
        "random": anywhere,
        "consistent": _consistent,
        "consistent_random": or_random(_consistent, empty_too=True),
        "murmur2": _murmur2,
        "murmur2_random": or_random(_murmur2, empty_too=False),
        "fnv1a": _fnv1a,
        "fnv1a_random": or_random(_fnv1a, empty_too=False),
    }
    if name not in known:
        raise BadInput(f"partitioner = {name!r} is none that librdkafka has. Known: {', '.join(known)}.")
    return known[name]
