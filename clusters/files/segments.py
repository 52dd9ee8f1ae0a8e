"""Reads replicas as they lie on disk: the headers of all record batches, Kafka's checkpoints, and producer snapshots.

Headers only: nothing is decompressed and no record is looked at. A log is hopped through by the batches' own lengths, then
all headers of a segment are taken out at once, so the cost is per batch, and the bytes between are never touched.

Layout: https://kafka.apache.org/documentation/#recordbatch. The checksum covers everything from the attributes on, *not*
the base offset and the partition leader epoch, which the leader sets on append; followers append the leader's bytes
unchanged (`UnifiedLog.appendAsFollower`). Therefore of one batch every header field is the same in every copy. The
checksum is taken as stored: that the bytes behind it still match it is not tested here (`DumpLogSegments` does).
"""

import mmap
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from prozess.clusters.protocol.client import Cursor, Malformed
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.schema import REPLICAS

# Kafka's record batches (magic 2) as they lie in a log segment or a snapshot. Pure: bytes in, values out.
#
# Layout: https://kafka.apache.org/documentation/#recordbatch. Uncompressed only: KRaft's metadata log is never
# compressed (`BatchAccumulator` is built with CompressionType.NONE).


_BATCH_HEAD = struct.Struct(">qiibIhiqqqhii")
"""The layout of a batch's header: base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and
max timestamp, producer id, producer epoch, base sequence, count."""
_LENGTH_FROM = 12
"""The byte from which the length counts."""
_BATCH_CHECKED_FROM = 21
"""The byte from which the CRC counts: that of the attributes."""
_COMPRESSION_BITS, _CONTROL_BIT = 0x07, 0x20


def _crc32c_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ 0x82F63B78 * (value & 1)
        table.append(value)
    return tuple(table)


CRC32C_TABLE = _crc32c_table()


def crc32c(data: bytes) -> int:
    """Returns Castagnoli's checksum. It does some MB/s, which is enough for metadata logs and not for data."""
    table, value = CRC32C_TABLE, 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Batch:
    """A valid record batch. `payload`: its records."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    checksum: int
    base_timestamp_ms: int
    count: int
    control: bool
    payload: bytes


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A record of a batch. `timestamp_ms`: CreateTime, by the writer's wall clock."""

    log_offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class ValidBatches:
    """The valid batches from the start of the data, and where they end."""

    batches: list[Batch]
    torn_at: int | None
    """The position of what is no valid batch; None if every byte belongs to one."""
    torn_reason: str = ""


def read_batches(data: bytes) -> ValidBatches:
    """Reads every batch up to the first that is not whole.

    `Malformed` if a damaged batch has a whole one behind it: then it is no torn tail, which is normal after SIGKILL, but
    the middle of the log that is damaged."""
    batches: list[Batch] = []
    position = 0
    while position < len(data):
        batch, end, reason = _batch_at(data, position)
        if batch is None:
            if end is not None and end < len(data) and _batch_at(data, end)[0] is not None:
                raise Malformed(f"is damaged at byte {position} ({reason}), and goes on after that")
            return ValidBatches(batches, position, reason)
        batches.append(batch)
        position = end or len(data)
    return ValidBatches(batches, None)


def _batch_at(data: bytes, position: int) -> tuple[Batch | None, int | None, str]:
    """Reads the batch at `position`: the batch, the position where it says it ends, and why it is none."""
    if position + _BATCH_HEAD.size > len(data):
        return None, None, "not even a whole header"
    head = _BATCH_HEAD.unpack_from(data, position)
    base_offset, length, epoch, magic, checksum, attributes, last_delta, base_timestamp = head[:8]
    end = position + _LENGTH_FROM + length
    if length < _BATCH_HEAD.size - _LENGTH_FROM or magic != 2:
        return None, None, f"length {length}, magic {magic}"
    if end > len(data):
        return None, None, f"{end - len(data)} bytes are missing"
    if crc32c(data[position + _BATCH_CHECKED_FROM : end]) != checksum:
        return None, end, "its checksum does not match"
    if attributes & _COMPRESSION_BITS:
        raise Malformed(f"has a compressed batch at byte {position}, which a metadata log never has")
    payload = data[position + _BATCH_HEAD.size : end]
    last_offset = base_offset + last_delta
    control = bool(attributes & _CONTROL_BIT)
    batch = Batch(base_offset, last_offset, epoch, checksum, base_timestamp, head[-1], control, payload)
    return batch, end, ""


def read_records(batch: Batch) -> Iterator[BatchRecord]:
    """Reads the records of one batch, in order. `Malformed` if it does not hold what its header says."""
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
        yield BatchRecord(log_offset, timestamp_ms, key, value)


def _bytes(cursor: Cursor) -> bytes | None:
    length = cursor.varint()
    return None if length < 0 else cursor.take(length)


# Producer snapshots: what a broker wrote down of every producer of a log, when it rolled a segment or shut down in
# order.
#
# A file `<offset>.snapshot` beside the segments says what the batches below that offset say: after a restart, the
# broker begins with it, and knows a retry from a new batch. Layout [ProducerStateManager, KIP-98]: version int16,
# CRC32C of the rest uint32, number of entries int32, entries of 46 bytes, big-endian.


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
"""One producer in a snapshot, packed. -1 stands for no sequence and offset (its last batch is a marker of a new epoch), no
marker, no transaction."""
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_VERSION = 1
_SNAPSHOT_CHECKED_FROM = 6
"""The byte from which the checksum of a snapshot counts: that of the number of entries."""
ATTEMPTS = 3
"""How often the snapshots of a log are listed and read: a living broker may just delete one."""


@dataclass(frozen=True, slots=True)
class ProducerSnapshot:
    """A producer snapshot: what a broker wrote down of the producers of one partition."""

    offset: int
    """The offset below which it describes the batches."""
    entries: np.ndarray
    """ENTRY[n], in the order of the file; empty if it is damaged."""
    damage: str = ""
    """Why it cannot be read; "" if it can. One cut off by a SIGKILL does not matter: the broker begins with the one
    before."""


def read_snapshots(log: Path) -> tuple[ProducerSnapshot, ...]:
    """Reads every snapshot of a log, by offset. OSError if one cannot be read; FileNotFoundError if they change meanwhile."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return tuple(parse_snapshot(path.read_bytes(), int(path.stem)) for path in _files(log))
        except FileNotFoundError:  # deleted meanwhile, with its segment: look again
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("not reached")


def parse_snapshot(data: bytes, offset: int) -> ProducerSnapshot:
    """Reads the content of a snapshot file. Damage is reported in the result, not raised."""

    def damaged(why: str) -> ProducerSnapshot:
        return ProducerSnapshot(offset, np.empty(0, dtype=ENTRY), why)

    if len(data) < _SNAPSHOT_HEAD.size:
        return damaged(f"{len(data)} bytes are no whole header")
    version, checksum, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != _VERSION:
        return damaged(f"version {version}; version {_VERSION} is known")
    expected = _SNAPSHOT_HEAD.size + count * ENTRY.itemsize
    if len(data) != expected:
        return damaged(f"{len(data)} bytes, where {count} entries make {expected}")
    if crc32c(data[_SNAPSHOT_CHECKED_FROM:]) != checksum:
        return damaged(f"its checksum is not {checksum}")
    return ProducerSnapshot(offset, np.frombuffer(data, dtype=ENTRY, offset=_SNAPSHOT_HEAD.size))


def _files(log: Path) -> list[Path]:
    """Returns the snapshot files by offset. Kafka names a snapshot by its offset in 20 digits; others (`.deleted`) do
    not count."""
    return sorted(path for path in log.glob("*.snapshot") if len(path.stem) == 20 and path.stem.isdigit())


HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("checksum", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp_ms", ">i8"),
        ("max_timestamp_ms", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("records", ">i4"),
    ]
)
"""A batch's header, magic 2, packed."""
LENGTH_FROM = 12
"""The byte from which `length` counts."""
_MAGIC_AT, _MAGIC = 16, 2
_LENGTH = struct.Struct(">i")
HEADERS_AT_ONCE = 1 << 16
"""How many headers are gathered in one go: 4 MB."""
_COPIED = ("leader_epoch", "producer_id", "producer_epoch", "base_sequence", "records", "checksum", "attributes")
_COPIED_MS = ("base_timestamp_ms", "max_timestamp_ms")
_READ = ("base_offset", "last_offset", *_COPIED, *_COPIED_MS, "size")
"""The columns of `REPLICAS` that a segment itself says."""


Expected = dict[str, np.ndarray]
"""The name of a segment and its directory → where its batches begin."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A copy of a partition, as its own files say."""

    node: int
    partition: int
    """The dense id of the partition."""
    batches: Mapping[str, np.ndarray]
    """The columns of `prozess.harness.schema.REPLICAS` that describe a batch, in the order of the log."""
    log_start: int
    log_end: int
    """The offset behind the last whole batch."""
    high_watermark: int | None
    """The high watermark as it was last checkpointed; None if it never was."""
    epoch_starts: Mapping[int, int] = field(default_factory=dict)
    """Leader epoch → first offset, by `leader-epoch-checkpoint`."""
    snapshots: tuple[ProducerSnapshot, ...] = ()
    """The producer snapshots of the broker, by offset."""
    torn: str = ""
    """Where and why the last segment ends in no whole batch, which is normal after SIGKILL."""


def read_replicas(
    data_directories: Mapping[int, Path],
    partitions: Sequence[tuple[int, str, int]],
    *,
    on_problem: Callable[[str], None],
) -> Iterator[Replica]:
    """Reads every copy of these partitions that there is. `data_directories`: node id → directory; `partitions`: (dense
    id, topic, number). Works on living, frozen and dead brokers: what one appended is in the page cache at once.

    A copy that cannot be known for certain is left out, and `on_problem` learns why: a file cannot be read, a checkpoint is
    malformed, or a segment other than the last is torn.
    """
    # Copies are the same, byte for byte, almost everywhere: what one was found to be is tried on the next.
    expected: Expected = {}
    for node, directory in data_directories.items():
        try:
            log_starts = read_offset_checkpoint(directory / "log-start-offset-checkpoint")
            watermarks = read_offset_checkpoint(directory / "replication-offset-checkpoint")
        except HistoryUnreadable as error:
            on_problem(str(error))
            continue
        for partition, topic, number in partitions:
            log = directory / f"{topic}-{number}"
            if not log.is_dir():
                continue
            try:
                snapshots = _read_snapshots(log)
                batches, first, torn = _read_log(log, expected)
                epoch_starts = read_epoch_checkpoint(log / "leader-epoch-checkpoint")
            except HistoryUnreadable as error:
                on_problem(str(error))
                continue
            last = batches["last_offset"]
            yield Replica(
                node=node,
                partition=partition,
                batches=batches,
                log_start=max(first, log_starts.get((topic, number), 0)),
                log_end=int(last[-1]) + 1 if len(last) else first,
                high_watermark=watermarks.get((topic, number)),
                epoch_starts=epoch_starts,
                snapshots=snapshots,
                torn=torn,
            )


def log_end(data_directory: Path, topic: str, number: int) -> int | None:
    """The offset behind the last whole batch of a copy; None if there is none. Reads the last segment only."""
    directory = data_directory / f"{topic}-{number}"
    for _ in range(ATTEMPTS):
        segments = segments_of(directory)
        if not segments:
            return None
        try:
            headers, _ = read_headers(segments[-1])
        except FileNotFoundError:
            continue
        if len(headers):
            return int(headers["base_offset"][-1]) + int(headers["last_offset_delta"][-1]) + 1
        return int(segments[-1].stem)
    return None


# Segments


def read_headers(path: Path, expected: np.ndarray | None = None) -> tuple[np.ndarray, str]:
    """Reads the header of every whole batch of a segment as HEADER[n], and where and why they end before the file does.

    "" means that they do not. `expected`: where batches may begin, as in another copy of the segment: tried first, all at
    once."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if not size:
            return np.empty(0, dtype=HEADER), ""
        with mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as data:
            known = _chain(data, size, expected) if expected is not None else np.empty(0, dtype=HEADER)
            positions, end = _hop(data, size, from_=int(_ends(known)[-1]) if len(known) else 0)
            headers = np.concatenate([known, _gather(data, positions)])
            reason = "" if end == size else f"{path.name} byte {end} of {size}: {_why_not(data, end, size)}"
    return headers, reason


def batch_starts(headers: np.ndarray) -> np.ndarray:
    """Returns the positions where a segment's batches begin, as int64[n]."""
    return np.asarray(_ends(headers) - headers["length"] - LENGTH_FROM)


def _ends(headers: np.ndarray) -> np.ndarray:
    return np.cumsum(headers["length"].astype(np.int64) + LENGTH_FROM)


def _chain(data: mmap.mmap, size: int, expected: np.ndarray) -> np.ndarray:
    """Reads the batches that begin where they are expected to, each at the end of the one before, as HEADER[n].

    Hopping would have found the same."""
    headers = _gather(data, expected[expected <= size - HEADER.itemsize])
    ends = _ends(headers)
    sound = (headers["length"] >= HEADER.itemsize - LENGTH_FROM) & (headers["magic"] == _MAGIC) & (ends <= size)
    sound &= batch_starts(headers) == expected[: len(headers)]
    first_wrong = int(np.argmin(sound)) if not sound.all() else len(headers)
    return headers[:first_wrong]


def _hop(data: mmap.mmap, size: int, *, from_: int) -> tuple[list[int], int]:
    """Hops from batch to batch: where each whole batch from there on begins, and where the last one ends."""
    positions: list[int] = []
    add, unpack = positions.append, _LENGTH.unpack_from
    position, last = from_, size - HEADER.itemsize
    shortest = HEADER.itemsize - LENGTH_FROM
    while position <= last:
        (length,) = unpack(data, position + 8)
        end = position + LENGTH_FROM + length
        if length < shortest or end > size or data[position + _MAGIC_AT] != _MAGIC:
            break
        add(position)
        position = end
    return positions, position


def _gather(data: mmap.mmap, positions: Sequence[int] | np.ndarray) -> np.ndarray:
    """Reads the headers that begin at these positions, as HEADER[n]."""
    found = np.empty(len(positions), dtype=HEADER)
    whole = np.frombuffer(data, dtype=np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(whole, HEADER.itemsize) if len(positions) else whole
    for first in range(0, len(positions), HEADERS_AT_ONCE):
        at = np.array(positions[first : first + HEADERS_AT_ONCE], dtype=np.int64)
        found[first : first + len(at)] = windows[at].view(HEADER)[:, 0]
    del windows, whole  # a mapping with views of it cannot be closed
    return found


def _why_not(data: mmap.mmap, position: int, size: int) -> str:
    if size - position < HEADER.itemsize:
        return f"{size - position} bytes are no whole header"
    (length,) = _LENGTH.unpack_from(data, position + 8)
    if length < HEADER.itemsize - LENGTH_FROM or data[position + _MAGIC_AT] != _MAGIC:
        return f"length {length}, magic {data[position + _MAGIC_AT]}"
    return f"{position + LENGTH_FROM + length - size} bytes are missing"


def _read_snapshots(log: Path) -> tuple[ProducerSnapshot, ...]:
    try:
        return read_snapshots(log)
    except OSError as error:
        raise HistoryUnreadable(f"{error.filename or log} cannot be read: {error.strerror}.") from error


def segments_of(directory: Path) -> list[Path]:
    """Returns the segments of a log, in order.

    Kafka names a segment by its base offset in 20 digits; others (`.deleted`, `.cleaned`, `.swap`) are no part of the log."""
    return sorted(path for path in directory.glob("*.log") if len(path.stem) == 20 and path.stem.isdigit())


def _read_log(directory: Path, expected: Expected) -> tuple[dict[str, np.ndarray], int, str]:
    """Reads a log: its columns, the base offset of its first segment, and where it is torn."""
    problem: OSError | None = None
    for _ in range(ATTEMPTS):
        try:
            return _read_segments(segments_of(directory), expected)
        except FileNotFoundError as error:  # rolled or deleted meanwhile: look again
            problem = error
        except OSError as error:
            raise HistoryUnreadable(f"{error.filename or directory} cannot be read: {error.strerror}.") from error
    raise HistoryUnreadable(f"{directory} changes faster than it can be read: {problem}.")


def _read_segments(segments: Sequence[Path], expected: Expected) -> tuple[dict[str, np.ndarray], int, str]:
    parts, torn = [np.empty(0, dtype=HEADER)], ""
    for path in segments:
        if torn:
            raise HistoryUnreadable(f"{path.parent} is torn at {torn}, yet the log goes on in {path.name}.")
        name = f"{path.parent.name}/{path.name}"
        headers, torn = read_headers(path, expected.get(name))
        expected[name] = batch_starts(headers)
        parts.append(headers)
    return batch_columns(np.concatenate(parts)), int(segments[0].stem) if segments else 0, torn


def batch_columns(headers: np.ndarray) -> dict[str, np.ndarray]:
    kinds = {column.name: column.kind for column in REPLICAS.columns}
    made = {name: headers[name] for name in ("base_offset", *_COPIED, *_COPIED_MS)}
    made["last_offset"] = headers["base_offset"] + headers["last_offset_delta"]
    made["size"] = headers["length"] + LENGTH_FROM
    return {name: made[name].astype(kinds[name]) for name in _READ}


# Checkpoints


_NUMBER = re.compile(r"-?[0-9]{1,18}")
"""A number that fits into 64 bits."""


def read_epoch_checkpoint(path: Path) -> dict[int, int]:
    """Reads leader epoch → start offset; empty if there is no file. [KIP-101; LeaderEpochCheckpointFile]"""
    return {int(epoch): int(start) for epoch, start in _entries(path, words=2)}


def read_offset_checkpoint(path: Path) -> dict[tuple[str, int], int]:
    """Reads (topic, partition) → offset; empty if there is no file. [OffsetCheckpointFile]"""
    return {(topic, int(number)): int(offset) for topic, number, offset in _entries(path, words=3)}


def _entries(path: Path, *, words: int) -> list[list[str]]:
    """Reads the entries of a checkpoint file: version, count, one entry per line. Kafka replaces it as a whole, so a living
    broker's is never half written. [CheckpointFile]"""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise HistoryUnreadable(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise HistoryUnreadable(f"{path} is no text ({error.reason}).") from error
    if not lines:  # made empty at the start, written when there is something to say
        return []
    entries = [line.split(" ") for line in lines[2:]]
    whole = len(lines) >= 2 and lines[0] == "0" and lines[1] == str(len(entries))
    if not whole or any(len(e) != words or not all(map(_NUMBER.fullmatch, e[-2:])) for e in entries):
        raise HistoryUnreadable(f"{path} is no checkpoint of version 0 with as many entries as it says.")
    return entries
