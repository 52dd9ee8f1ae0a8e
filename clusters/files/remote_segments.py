"""Reads the remote store of tiered storage (KIP-405): its objects, and what Kafka's metadata topic says of each.

LocalTieredStorage keeps an object as files of a directory for each partition, `TOPIC-NUMBER-TOPICID`: a copy of the segment,
`OFFSET-SEGMENTID.log`, its indexes, its leader epochs and its producer snapshot [RemoteLogSegmentFileset]. What brokers
believe of an object stands in `__remote_log_metadata`, an event a record [RemoteLogMetadataSerde; the messages
RemoteLogSegmentMetadataRecord and RemoteLogSegmentMetadataUpdateRecord]. The checksum of every batch is compared with its
bytes here, since nobody but a reader would find out otherwise.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import numpy as np

from prozess.clusters.files.log_directories import parse_uuid, topic_id_of
from prozess.clusters.files.segments import (
    batch_columns,
    batch_starts,
    read_batches,
    read_headers,
    read_records,
    segments_of,
)
from prozess.clusters.files.sums import checksums
from prozess.clusters.protocol.client import Cursor, Malformed
from prozess.harness.schema import NONE, RemoteState

STORE_DIRECTORY = "kafka-tiered-storage"
"""What LocalTieredStorage calls its directory, below `rsm.config.dir`."""
METADATA_TOPIC = "__remote_log_metadata"
_OBJECT = re.compile(r"(\d{1,20})-([A-Za-z0-9_-]{22})\.log")
_DIRECTORY = re.compile(r"(.+)-(\d{1,9})-([A-Za-z0-9_-]{22})")
_COPIED, _CHANGED = 0, 1
"""The keys of the two messages about one segment. Others are about partitions that are deleted."""
_FRAME = 1
"""The version of what stands around each message. [AbstractApiMessageSerde]"""
_CHECKED_FROM = 21
"""The byte of a batch from which its checksum counts: that of the attributes."""


@dataclass(frozen=True, slots=True)
class SegmentEvent:
    """A record of the metadata topic about one remote segment. A change has neither offsets nor a size: None."""

    topic: str
    topic_id: UUID
    number: int
    segment: UUID
    node: int
    state: int
    event_ms: int
    """The time on the wall clock of the broker that wrote it."""
    offsets: tuple[int, int] | None = None
    size: int | None = None


@dataclass(slots=True)
class RemoteSegment:
    """A segment of a partition as the metadata topic and the store have it. Whatever is not known is NONE."""

    topic_id: UUID
    segment: UUID
    first_offset: int = NONE
    """What the metadata topic says, or else the name of the object."""
    last_offset: int = NONE
    size: int = NONE
    """What the metadata topic says; bytes."""
    state: int = NONE
    """A RemoteState."""
    node: int = NONE
    """The broker that wrote the last event."""
    copied_ms: int = NONE
    changed_ms: int = NONE
    stored_size: int = NONE
    """The bytes of the object; NONE if it is not there."""
    whole_to: int = NONE
    """The offset up to which the object is whole from its first offset on."""
    damaged: int = 0
    """How many batches of the object have another checksum than their bytes."""
    batches: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The batches that are whole, as `Replica` has them."""


@dataclass(frozen=True, slots=True)
class RemoteLog:
    """The segments of one partition in the remote store, those of each topic id of its name."""

    partition: int
    """The dense id of the partition."""
    segments: tuple[RemoteSegment, ...]
    topic_id: UUID | None
    """The id of the topic that has the name now, by the brokers' own files; None if no broker has the partition."""

    @property
    def copied_to(self) -> int:
        """The offset behind the last of that topic's segments whose copy was finished; 0 if none was."""
        done = [one for one in self.segments if one.topic_id == self.topic_id and one.state >= RemoteState.COPIED]
        return max((one.last_offset + 1 for one in done), default=0)

    @property
    def batches(self) -> dict[str, np.ndarray]:
        """The batches of the objects of that topic whose copy is finished, by offset, each once. Several objects may hold one
        batch: after a change of leaders a segment may be copied again."""
        own = [one for one in self.segments if one.topic_id == self.topic_id and one.state == RemoteState.COPIED]
        parts = [one.batches for one in own if one.batches]
        if not parts:
            return {}
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        order = np.lexsort((joined["checksum"], joined["leader_epoch"], joined["base_offset"]))
        again = np.zeros(len(order), dtype=bool)
        again[1:] = True
        for column in joined.values():
            again[1:] &= column[order[1:]] == column[order[:-1]]
        return {name: column[order[~again]] for name, column in joined.items()}


def read_remote_logs(
    store: Path,
    data_directories: Mapping[int, Path],
    partitions: Sequence[tuple[int, str, int]],
    *,
    on_problem: Callable[[str], None],
) -> Iterator[RemoteLog]:
    """Reads what the store has of these partitions, (dense id, topic, number), and what the metadata topic says of it, by the
    brokers' own logs. `store`: the directory that `rsm.config.dir` means. `on_problem` learns what could not be read."""
    if not (store / STORE_DIRECTORY).is_dir():
        on_problem(f"the remote store {store} is not there")
    known: dict[tuple[str, int], dict[UUID, RemoteSegment]] = {}
    for event in read_events(data_directories, on_problem=on_problem):
        segments = known.setdefault((event.topic, event.number), {})
        _take(segments.setdefault(event.segment, RemoteSegment(event.topic_id, event.segment)), event)
    for (topic, number), topic_id, segment, path in objects_of(store):
        found = known.setdefault((topic, number), {}).setdefault(segment, RemoteSegment(topic_id, segment))
        try:
            _read_object(found, path)
        except OSError as error:
            on_problem(f"{path} cannot be read: {error.strerror}.")
    for partition, topic, number in partitions:
        if of_partition := known.get((topic, number)):
            order = sorted(of_partition.values(), key=lambda one: (one.first_offset, one.copied_ms, one.segment.bytes))
            ids = (topic_id_of(directory / f"{topic}-{number}") for directory in data_directories.values())
            yield RemoteLog(partition, tuple(order), next(filter(None, ids), None))


def objects_of(store: Path) -> Iterator[tuple[tuple[str, int], UUID, UUID, Path]]:
    """Yields (topic, number), topic id, segment id and the file with the records, of every object that is there."""
    for directory in sorted((store / STORE_DIRECTORY).glob("*")):
        if not (named := _DIRECTORY.fullmatch(directory.name)) or (topic_id := parse_uuid(named[3])) is None:
            continue
        for path in sorted(directory.glob("*.log")):
            if (match := _OBJECT.fullmatch(path.name)) and (segment := parse_uuid(match[2])) is not None:
                yield (named[1], int(named[2])), topic_id, segment, path


def _take(segment: RemoteSegment, event: SegmentEvent) -> None:
    """Brings a segment to the state after an event."""
    if event.offsets is not None:
        segment.first_offset, segment.last_offset = event.offsets
        segment.copied_ms = event.event_ms
    if event.size is not None:
        segment.size = event.size
    segment.state, segment.node, segment.changed_ms = event.state, event.node, event.event_ms


def _read_object(segment: RemoteSegment, path: Path) -> None:
    """Reads the batches of an object, and how far it is whole. OSError if it cannot be read."""
    content = np.fromfile(path, dtype=np.uint8)
    headers, _ = read_headers(path)
    starts = batch_starts(headers)
    ends = np.append(
        starts[1:], len(content) if not len(headers) else int(starts[-1]) + int(headers["length"][-1]) + 12
    )
    sound = checksums(content, starts + _CHECKED_FROM, ends[: len(starts)]) == headers["checksum"]
    segment.stored_size, segment.damaged = len(content), int((~sound).sum())
    columns = batch_columns(headers)
    segment.batches = {name: column[sound] for name, column in columns.items()}
    if segment.first_offset == NONE:
        segment.first_offset = int(path.name.partition("-")[0])
    # Example: first offset 10, batches 10–14, 15–19 (damaged), 20–24: whole up to 15.
    begins = np.append(segment.first_offset, columns["last_offset"] + 1)
    follows = sound & (columns["base_offset"] == begins[:-1])
    good = len(follows) if follows.all() else int(np.argmin(follows))
    segment.whole_to = int(begins[good])


# What the metadata topic says, event by event.


def read_events(data_directories: Mapping[int, Path], *, on_problem: Callable[[str], None]) -> Iterator[SegmentEvent]:
    """Yields every event about a segment, in the order of each partition of the metadata topic, of the copy that reaches
    furthest."""
    copies: dict[str, list[Path]] = {}
    for directory in data_directories.values():
        for log in sorted(directory.glob(f"{METADATA_TOPIC}-*")):
            if log.name.removeprefix(f"{METADATA_TOPIC}-").isdigit():
                copies.setdefault(log.name, []).append(log)
    for logs in copies.values():
        try:
            furthest = max((_records(log) for log in logs), key=lambda found: found[0])
            yield from furthest[1]
        except (OSError, Malformed) as error:
            on_problem(f"{logs[0].name}: what Kafka believes of the remote store cannot be read: {error}.")


def _records(log: Path) -> tuple[int, list[SegmentEvent]]:
    """Reads (the offset behind its last batch, its events) of a copy of a partition of the metadata topic."""
    end, events = 0, []
    for path in segments_of(log):
        for batch in read_batches(path.read_bytes()).batches:
            end = batch.last_offset + 1
            values = [] if batch.control else [record.value for record in read_records(batch)]
            events += [event for value in values if value is not None and (event := parse_event(value)) is not None]
    return end, events


def parse_event(value: bytes) -> SegmentEvent | None:
    """Reads the value of a record of the metadata topic; None if it is not about one segment. `Malformed` if it is not what
    the schemas say."""
    cursor = Cursor(value)
    if (frame := cursor.unsigned_varint()) != _FRAME:
        raise Malformed(f"has a frame of version {frame}; version {_FRAME} is known")
    kind = cursor.unsigned_varint()
    cursor.unsigned_varint()  # the version: later ones add tagged fields alone
    if kind not in (_COPIED, _CHANGED):
        return None
    topic, topic_id, number = cursor.compact_string() or "", cursor.uuid(), cursor.int32()
    cursor.tagged_fields()
    segment = cursor.uuid()
    cursor.tagged_fields()
    offsets = (cursor.int64(), cursor.int64()) if kind == _COPIED else None
    node = cursor.int32()
    size = None
    if kind == _COPIED:
        cursor.int64()  # the greatest timestamp of its records
    event_ms = cursor.int64()
    if kind == _COPIED:
        for _ in range(cursor.unsigned_varint() - 1):  # leader epochs
            cursor.int32(), cursor.int64(), cursor.tagged_fields()
        size = cursor.int32()
    cursor.take(max(0, cursor.unsigned_varint() - 1))  # what a plugin of its own wrote down
    return SegmentEvent(topic, topic_id, number, segment, node, cursor.int8(), event_ms, offsets, size)
