"""Producer snapshots: what a broker wrote down of every producer of a log, when it rolled a segment or shut down in order.

A file `<offset>.snapshot` beside the segments says what the batches below that offset say: after a restart, the broker
begins with it, and knows a retry from a new batch. Layout [ProducerStateManager, KIP-98]: version int16, CRC32C of the rest
uint32, number of entries int32, entries of 46 bytes, big-endian.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clusters.record_batches import crc32c

ENTRY = np.dtype(
    [
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp_ms", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("transaction_offset", ">i8"),
    ]
)
"""One producer, packed. -1: no sequence and offset (its last batch is a marker of a new epoch), no marker, no transaction."""
_HEAD = struct.Struct(">hIi")
_VERSION = 1
_CHECKED_FROM = 6
"""The checksum covers everything from the number of entries on."""
ATTEMPTS = 3
"""To list and read the snapshots of a log that a living broker may just delete."""


@dataclass(frozen=True, slots=True)
class ProducerSnapshot:
    """One file."""

    offset: int
    """It describes the batches below this offset."""
    entries: np.ndarray
    """ENTRY[n], in the order of the file; empty if it is damaged."""
    damage: str = ""
    """Why it cannot be read. Cut off by a SIGKILL it is of no consequence: the broker begins with the one before."""


def read_snapshots(log: Path) -> tuple[ProducerSnapshot, ...]:
    """Every snapshot of a log, by offset. OSError if one cannot be read; FileNotFoundError if they change meanwhile."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return tuple(parse_snapshot(path.read_bytes(), int(path.stem)) for path in _files(log))
        except FileNotFoundError:  # deleted meanwhile, with its segment: look again
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("not reached")


def parse_snapshot(data: bytes, offset: int) -> ProducerSnapshot:
    """One file's content. Damage is told, not raised."""

    def damaged(why: str) -> ProducerSnapshot:
        return ProducerSnapshot(offset, np.empty(0, dtype=ENTRY), why)

    if len(data) < _HEAD.size:
        return damaged(f"{len(data)} bytes are no whole header")
    version, checksum, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        return damaged(f"version {version}; version {_VERSION} is known")
    expected = _HEAD.size + count * ENTRY.itemsize
    if len(data) != expected:
        return damaged(f"{len(data)} bytes, where {count} entries make {expected}")
    if crc32c(data[_CHECKED_FROM:]) != checksum:
        return damaged(f"its checksum is not {checksum}")
    return ProducerSnapshot(offset, np.frombuffer(data, dtype=ENTRY, offset=_HEAD.size))


def _files(log: Path) -> list[Path]:
    """By offset. Kafka names a snapshot by its offset in 20 digits; others (`.deleted`) do not count."""
    return sorted(path for path in log.glob("*.snapshot") if len(path.stem) == 20 and path.stem.isdigit())
