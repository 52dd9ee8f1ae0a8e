"""Replicas as they lie on disk: the headers of every record batch in every copy's log segments, and Kafka's checkpoints.
Producer snapshots beside them are read by `clusters.producer_snapshots`.

Headers only: nothing is decompressed and no record is looked at. A log is hopped through by the batches' own lengths, then
all headers of a segment are taken out at once, so the cost is per batch, and the bytes between are never touched.

Layout: https://kafka.apache.org/documentation/#recordbatch. The checksum covers everything from the attributes on, *not*
the base offset and the partition leader epoch, which the leader sets on append; followers append the leader's bytes
unchanged (`UnifiedLog.appendAsFollower`). So of one batch every header field is the same in every copy. The checksum is
taken as stored: that the bytes behind it still match it is not tested here (`DumpLogSegments` does).
"""

import mmap
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from clusters.producer_snapshots import ProducerSnapshot, read_snapshots
from harness.errors import HistoryUnreadable
from harness.schema import REPLICAS

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
"""`length` counts from here."""
_MAGIC_AT, _MAGIC = 16, 2
_LENGTH = struct.Struct(">i")
HEADERS_AT_ONCE = 1 << 16
"""Gathered in one go: 4 MB."""
ATTEMPTS = 3
"""To list and open the segments of a log that a living broker may just roll or delete."""
_COPIED = ("leader_epoch", "producer_id", "producer_epoch", "base_sequence", "records", "checksum", "attributes")
_COPIED_MS = ("base_timestamp_ms", "max_timestamp_ms")
_READ = ("base_offset", "last_offset", *_COPIED, *_COPIED_MS, "size")
"""What of `REPLICAS` a segment itself tells."""


Expected = dict[str, np.ndarray]
"""Name of a segment and its directory → where its batches begin."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of one partition, as its own files say."""

    node: int
    partition: int
    """Dense id."""
    batches: Mapping[str, np.ndarray]
    """Columns of `harness.schema.REPLICAS` that describe a batch, in the order of the log."""
    log_start: int
    log_end: int
    """Behind the last whole batch."""
    high_watermark: int | None
    """As last checkpointed; None = never."""
    epoch_starts: Mapping[int, int] = field(default_factory=dict)
    """Leader epoch → first offset, by `leader-epoch-checkpoint`."""
    snapshots: tuple[ProducerSnapshot, ...] = ()
    """What the broker wrote down of producers, by offset."""
    torn: str = ""
    """Where and why the last segment ends in no whole batch: normal after SIGKILL."""


def read_replicas(
    data_directories: Mapping[int, Path],
    partitions: Sequence[tuple[int, str, int]],
    *,
    on_problem: Callable[[str], None],
) -> Iterator[Replica]:
    """Every copy of these partitions that there is. `data_directories`: node id → directory; `partitions`: (dense id, topic,
    number). Works on living, frozen and dead brokers: what one appended is in the page cache at once.

    A copy that cannot be told for certain is left out, and `on_problem` is told why: a file cannot be read, a checkpoint is
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
    """Behind the last whole batch of a copy; None if there is none. Reads the last segment only."""
    directory = data_directory / f"{topic}-{number}"
    for _ in range(ATTEMPTS):
        segments = _segments(directory)
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


# --- segments -------------------------------------------------------------------------------------------------------


def read_headers(path: Path, expected: np.ndarray | None = None) -> tuple[np.ndarray, str]:
    """Every whole batch's header from the start of a segment, as HEADER[n], and where and why it ends before the file does
    ("" = it does not). `expected`: where batches may begin, as in another copy of the segment: tried first, all at once."""
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
    """int64[n]: where each of a segment's batches begins."""
    return np.asarray(_ends(headers) - headers["length"] - LENGTH_FROM)


def _ends(headers: np.ndarray) -> np.ndarray:
    return np.cumsum(headers["length"].astype(np.int64) + LENGTH_FROM)


def _chain(data: mmap.mmap, size: int, expected: np.ndarray) -> np.ndarray:
    """HEADER[n]: the batches from the start of the segment that begin where they are expected to, each at the end of the one
    before: what hopping would have found too."""
    headers = _gather(data, expected[expected <= size - HEADER.itemsize])
    ends = _ends(headers)
    sound = (headers["length"] >= HEADER.itemsize - LENGTH_FROM) & (headers["magic"] == _MAGIC) & (ends <= size)
    sound &= batch_starts(headers) == expected[: len(headers)]
    first_wrong = int(np.argmin(sound)) if not sound.all() else len(headers)
    return headers[:first_wrong]


def _hop(data: mmap.mmap, size: int, *, from_: int) -> tuple[list[int], int]:
    """Where each whole batch from there on begins, and where the last one ends."""
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
    """The headers that begin at these positions, as HEADER[n]."""
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


def _segments(directory: Path) -> list[Path]:
    """In the order of the log. Kafka names a segment by its base offset in 20 digits; others (`.deleted`, `.cleaned`,
    `.swap`) are no part of the log."""
    return sorted(path for path in directory.glob("*.log") if len(path.stem) == 20 and path.stem.isdigit())


def _read_log(directory: Path, expected: Expected) -> tuple[dict[str, np.ndarray], int, str]:
    """(columns, base offset of the first segment, where it is torn)."""
    problem: OSError | None = None
    for _ in range(ATTEMPTS):
        try:
            return _read_segments(_segments(directory), expected)
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
    return _columns(np.concatenate(parts)), int(segments[0].stem) if segments else 0, torn


def _columns(headers: np.ndarray) -> dict[str, np.ndarray]:
    kinds = {column.name: column.kind for column in REPLICAS.columns}
    made = {name: headers[name] for name in ("base_offset", *_COPIED, *_COPIED_MS)}
    made["last_offset"] = headers["base_offset"] + headers["last_offset_delta"]
    made["size"] = headers["length"] + LENGTH_FROM
    return {name: made[name].astype(kinds[name]) for name in _READ}


# --- checkpoints ----------------------------------------------------------------------------------------------------


_NUMBER = re.compile(r"-?[0-9]{1,18}")
"""That fits into 64 bits."""


def read_epoch_checkpoint(path: Path) -> dict[int, int]:
    """Leader epoch → start offset; empty if there is no file. [KIP-101; LeaderEpochCheckpointFile]"""
    return {int(epoch): int(start) for epoch, start in _entries(path, words=2)}


def read_offset_checkpoint(path: Path) -> dict[tuple[str, int], int]:
    """(topic, partition) → offset; empty if there is no file. [OffsetCheckpointFile]"""
    return {(topic, int(number)): int(offset) for topic, number, offset in _entries(path, words=3)}


def _entries(path: Path, *, words: int) -> list[list[str]]:
    """The entries of a checkpoint file: version, count, one entry per line. Kafka replaces it as a whole, so a living
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
