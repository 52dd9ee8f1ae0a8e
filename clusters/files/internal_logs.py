"""Reads topics in which coordinators keep what they decide, from the brokers' files: of each partition the best copy."""

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prozess.clusters.files.segments import (
    HEADER,
    LENGTH_FROM,
    Batch,
    BatchRecord,
    batch_starts,
    read_headers,
    read_records,
    segments_of,
)
from prozess.clusters.protocol.client import Malformed
from prozess.harness.errors import HistoryUnreadable

_COMPRESSED, _CONTROL = 0x07, 0x20
Segments = list[tuple[Path, np.ndarray]]
"""The segments of a log in order, each with the headers of its batches (HEADER[n])."""
ReadRecord = Callable[[BatchRecord, int], Iterable[tuple[tuple[Any, ...], tuple[int, ...]]]]
"""A record and its leader epoch → for each row what it names, and its numbers. Malformed if it is not understood."""


def best_copies(
    data_directories: Mapping[int, Path], topic: str, *, on_problem: Callable[[str], None]
) -> Iterator[tuple[int, Segments]]:
    """Yields the number of each partition of a topic, and the copy that would lead: of the last leader epoch the longest one
    (KIP-101).

    `data_directories`: node id → directory. Brokers must have ended. Checksums are not tested. A partition of which a copy
    cannot be read is left out, and `on_problem` learns why.
    """
    name = re.compile(rf"{re.escape(topic)}-(?P<number>\d+)")
    copies: dict[int, list[Path]] = {}
    for directory in data_directories.values():
        for path in directory.glob(f"{topic}-*"):
            if match := name.fullmatch(path.name):
                copies.setdefault(int(match["number"]), []).append(path)
    for number in sorted(copies):
        try:
            yield number, max(map(_headers, copies[number]), key=_end_of)
        except (HistoryUnreadable, OSError) as error:
            on_problem(str(error))


@dataclass(frozen=True, slots=True)
class DecodedLog:
    """What the best copy of one partition of a topic says, in the order of the log."""

    number: int
    """The number of the partition within its topic."""
    columns: Mapping[str, np.ndarray]
    """Column → int64[n]."""
    named: tuple[tuple[Any, ...], ...]
    """What each row names: groups, members and so on, as `read` returned them."""


def decoded_logs(
    data_directories: Mapping[int, Path],
    topic: str,
    columns: Sequence[str],
    read: ReadRecord,
    *,
    on_problem: Callable[[str], None],
    without_holes: str | None = None,
) -> Iterator[DecodedLog]:
    """Yields each partition of a topic, decoded. A partition that cannot be read, or is not understood, is left out, and
    `on_problem` learns why.

    `columns`: the record's offset, its time in ms, and the numbers that `read` returns. `without_holes`: what is wrong with a
    log that lacks records, where such a log is left out.
    """
    for number, segments in best_copies(data_directories, topic, on_problem=on_problem):
        try:
            if without_holes is not None and not _is_whole(segments):
                raise HistoryUnreadable(f"{segments[0][0].parent} {without_holes}: it does not say what came before.")
            yield _decoded(number, segments, columns, read)
        except (HistoryUnreadable, OSError) as error:
            on_problem(str(error))


def _decoded(
    number: int,
    segments: Segments,
    columns: Sequence[str],
    read: ReadRecord,
) -> DecodedLog:
    numbers, named = [array("q") for _ in columns], list[tuple[Any, ...]]()
    for path, headers in segments:
        try:
            for batch in _batches_of(path.read_bytes(), headers):
                for record in read_records(batch):
                    for names, values in read(record, batch.leader_epoch):
                        named.append(names)
                        for column, value in zip(
                            numbers, (record.log_offset, record.timestamp_ms, *values), strict=True
                        ):
                            column.append(value)
        except Malformed as error:
            raise HistoryUnreadable(f"{path} {error}.") from error
    made = {name: np.frombuffer(values, dtype=np.int64) for name, values in zip(columns, numbers, strict=True)}
    return DecodedLog(number, made, tuple(named))


def _batches_of(data: bytes, headers: np.ndarray) -> Iterator[Batch]:
    """Yields the batches of records in a segment, without those of markers. Malformed: one is compressed."""
    for begin, header in zip(batch_starts(headers).tolist(), headers, strict=True):
        if header["attributes"] & _COMPRESSED:
            raise Malformed(f"has a compressed batch at byte {begin}, which is not read")
        if header["attributes"] & _CONTROL:
            continue
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


def _is_whole(segments: Segments) -> bool:
    """Returns whether a log has every record from the offset 0 on: nothing was compacted, deleted or left out."""
    parts = [headers for _, headers in segments if len(headers)]
    if not parts:
        return True
    headers = np.concatenate(parts)
    ends = headers["base_offset"].astype(np.int64) + headers["last_offset_delta"] + 1
    follows = np.append(0, ends[:-1]) == headers["base_offset"]
    return bool(follows.all() and (headers["records"] == headers["last_offset_delta"] + 1).all())


def _headers(log: Path) -> Segments:
    """Reads the headers of each segment. HistoryUnreadable if a segment other than the last is torn."""
    found: Segments = []
    torn = ""
    for path in segments_of(log):
        if torn:
            raise HistoryUnreadable(f"{log} is torn at {torn}, yet the log goes on in {path.name}.")
        headers, torn = read_headers(path)
        found.append((path, headers))
    return found


def _end_of(segments: Segments) -> tuple[int, int]:
    """Returns (the last leader epoch, the last offset). A copy without a batch is behind every other one."""
    lasts = [headers[-1] for _, headers in segments if len(headers)]
    if not lasts:
        return -1, -1
    return int(lasts[-1]["leader_epoch"]), int(lasts[-1]["base_offset"]) + int(lasts[-1]["last_offset_delta"])
