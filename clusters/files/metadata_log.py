"""Decodes what a cluster decided about leaders and in-sync replicas, over time, from KRaft's metadata log or ZooKeeper's."""

import json
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from uuid import UUID

import numpy as np

from prozess.clusters.files.cluster_states import BROKER_RECORDS, BrokerRecord, ClusterStates
from prozess.clusters.files.segments import Batch, BatchRecord, read_batches, read_records
from prozess.clusters.files.zookeeper_log import (
    COLUMNS,
    PartitionState,
    columns_of_id,
    decode_zookeeper_logs,
    truth_row,
)
from prozess.clusters.protocol.client import Cursor, Malformed
from prozess.harness.config.configuration import MetadataMode
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.recording.codes import broker_mask
from prozess.harness.schema import CLUSTER_STATES, METADATA, NONE, ClusterRecord, MetadataKind, Table

LOG_DIRECTORY = "__cluster_metadata-0"


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """What those who keep the metadata state, decoded, without `client`."""

    metadata: dict[str, np.ndarray]
    """Columns of `prozess.harness.schema.METADATA`."""
    states: dict[str, np.ndarray] | None
    """Columns of `prozess.harness.schema.CLUSTER_STATES`; None: ZooKeeper keeps no such records."""


def decode_ground_truth(
    directories: Sequence[Path],
    *,
    partition_ids: Mapping[tuple[str, int], int],
    wall_minus_monotonic_ns: int,
    metadata_mode: MetadataMode = "kraft-isolated",
    migrated: Sequence[Path] = (),
) -> GroundTruth:
    """Decodes what *each* node that keeps metadata has.

    The directories are those of KRaft's controllers, or of ZooKeeper's servers (`prozess.clusters.files.zookeeper_log`).
    `migrated`: those of the controllers that took over from ZooKeeper, if any did (KIP-866)."""
    if metadata_mode != "zookeeper":
        return decode_metadata_log(
            directories, partition_ids=partition_ids, wall_minus_monotonic_ns=wall_minus_monotonic_ns
        )
    before = decode_zookeeper_logs(
        directories, partition_ids=partition_ids, wall_minus_monotonic_ns=wall_minus_monotonic_ns
    )
    if not any((directory / LOG_DIRECTORY).is_dir() for directory in migrated):
        return GroundTruth(before, None)
    later = decode_metadata_log(migrated, partition_ids=partition_ids, wall_minus_monotonic_ns=wall_minus_monotonic_ns)
    return GroundTruth(join_after_migration(before, later.metadata), later.states)


def join_after_migration(
    zookeeper: Mapping[str, np.ndarray], controllers: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Joins ZooKeeper's rows and those of the controllers' log after a migration.

    ZooKeeper's count until the log first speaks of a partition. From there on the log decides, and what is also written to
    ZooKeeper follows it (KIP-866, dual write). The log's positions come behind all of ZooKeeper's.

    ZooKeeper's controllers are left out: their epochs are counted apart from the quorum's, and the quorum's controller takes
    the next one of theirs, too (KafkaZkClient.tryRegisterKRaftControllerAsActiveController)."""
    of_partitions = controllers["time_ns"][controllers["partition"] != NONE]
    kept = zookeeper["kind"] != MetadataKind.CONTROLLER.value
    zookeeper = {name: column[kept] for name, column in zookeeper.items()}
    if not len(of_partitions):
        return zookeeper
    begins_ns = of_partitions.min()
    first, then = zookeeper["time_ns"] < begins_ns, controllers["time_ns"] >= begins_ns
    behind = int(zookeeper["log_position"].max(initial=0)) + 1
    shifted = {**controllers, "log_position": controllers["log_position"] + behind}
    return {name: np.concatenate([column[first], shifted[name][then]]) for name, column in zookeeper.items()}


# Timestamps of the metadata log, although a fault moved the clock of the controller that wrote them.
#
# Whoever moves a node's clock writes down when and by how much, beside the node's data; and records stand in the order
# in which they were written. A record's time is the earliest one, not before the record before it, at which a clock
# stated what is stamped: the machine's, or one that was moved just then. For this to be one time only, a controller's
# clock is moved by more than its fault lasts (`prozess.nemesis.process`), and records come often: an idle controller
# writes one twice a second (metadata.max.idle.interval.ms, KIP-835).


HISTORY_NAME = "clock.history"
"""The file, in the directory above a node's data, that says when its clock was moved."""
EDGE_NS = 10_000_000
"""How exact the times of clock moves are: a clock moves a moment after it is written down, and stamps are in ms."""
ORDER_NS = 1_000_000_000
"""How much later the stamp of the first of two batches may be: a batch is stamped before it is appended."""
FOREVER_NS = 2**62


@dataclass(frozen=True, slots=True)
class MovedClock:
    """A time during which a node's clock was off, in ns of CLOCK_MONOTONIC."""

    begin_ns: int
    end_ns: int
    offset_ns: int


def write_moved_clock(directory: Path, *, at_ns: int, offset_ns: int) -> None:
    """Writes down, before the clock is moved, that the clock of the node in `directory` is off by so much from `at_ns` on."""
    with (directory / HISTORY_NAME).open("a", encoding="ascii") as file:
        file.write(json.dumps({"at_ns": at_ns, "offset_ns": offset_ns}) + "\n")


def read_moved_clocks(directory: Path) -> list[MovedClock]:
    """Reads when the clock of the node in `directory` was off. HistoryUnreadable if that cannot be read."""
    path = directory / HISTORY_NAME
    if not path.exists():
        return []
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
        changes = [(int(line["at_ns"]), int(line["offset_ns"])) for line in lines]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HistoryUnreadable(f"{path}: when the clock was moved cannot be read: {error}.") from error
    ends = [at_ns for at_ns, _ in changes[1:]] + [FOREVER_NS]
    return [MovedClock(at, end, offset) for (at, offset), end in zip(changes, ends, strict=True) if offset]


class Stamps:
    """Turns the stamps of records into times, in the order of the log."""

    def __init__(self, moved: Sequence[MovedClock], *, wall_minus_monotonic_ns: int) -> None:
        self._moved, self._wall_minus_monotonic_ns = moved, wall_minus_monotonic_ns
        self._before_ns = -FOREVER_NS

    @staticmethod
    def of(data_directories: Iterable[Path], *, wall_minus_monotonic_ns: int) -> "Stamps":
        """The stamps of a log that these nodes may have written."""
        moved = [m for directory in data_directories for m in read_moved_clocks(directory.parent)]
        return Stamps(moved, wall_minus_monotonic_ns=wall_minus_monotonic_ns)

    def time_ns(self, stamp_ms: int) -> int:
        """Returns the time of the next record, in ns of CLOCK_MONOTONIC."""
        stamped_ns = stamp_ms * 1_000_000 - self._wall_minus_monotonic_ns
        if not self._moved:
            return stamped_ns
        meant = [stamped_ns]
        meant += [
            stamped_ns - m.offset_ns
            for m in self._moved
            if m.begin_ns - EDGE_NS <= stamped_ns - m.offset_ns <= m.end_ns + EDGE_NS
        ]
        found = min((ns for ns in meant if ns >= self._before_ns - ORDER_NS), default=stamped_ns)
        self._before_ns = max(self._before_ns, found)
        return found


# What each record of the metadata log means: replayed in order, it gives rows of `prozess.harness.schema.METADATA`.
#
# The semantics are those of Kafka's own images: `PartitionRegistration.merge` (a field that is not there is unchanged;
# a leader that is there, even the same one, raises the leader epoch), `TopicsDelta.replay(ClearElrRecord)`, and
# KIP-868 (records of an aborted metadata transaction never happened).


NO_LEADER_CHANGE = -2
"""The value that says that a change record does not change the leader."""
_LEADER_CHANGE, _SNAPSHOT_HEADER = 2, 3
"""The types of control records that are looked at (`ControlRecordType`)."""
_TOPIC_RESOURCE = 2
"""The type of a setting that is of a topic (`ConfigResource.Type`)."""
_CONTROL_KEY = struct.Struct(">hh")
_NEWEST_TYPE = 29
"""The newest type of record (`MetadataRecordType`, UnregisterControllerRecord of 4.4). Those that are not looked at say
nothing of leaders, replicas, brokers, features and settings: quotas, credentials, permissions, controllers."""


class Replay:
    """Replays the records of a metadata log one by one. `finish` gives the rows, with one value per METADATA column."""

    def __init__(self, partition_ids: Mapping[tuple[str, int], int], stamps: Stamps) -> None:
        self._ids = partition_ids
        self._stamps = stamps
        self._rows: list[tuple[int, ...]] = []
        self.states = ClusterStates()
        """What it states of brokers and features."""
        self._names: dict[UUID, str] = {}
        self._partitions: dict[tuple[UUID, int], PartitionState] = {}
        self._before: tuple[dict[UUID, str], dict[tuple[UUID, int], PartitionState], int, int] | None = None
        self._time_ns = self._log_offset = NONE
        # api key → (highest version known, what to do)
        self._known: dict[int, tuple[int, Callable[[Cursor, int], None]]] = {
            2: (0, self._topic),
            3: (2, self._partition),
            4: (0, self._setting),
            5: (2, self._partition_change),
            9: (0, self._remove_topic),
            12: (0, self._feature),
            23: (0, self._begin_transaction),
            24: (0, self._end_transaction),
            25: (0, self._abort_transaction),
            28: (0, self._clear_elr),
        }
        self._known |= {key: (newest, partial(self._broker, read)) for key, (newest, read) in BROKER_RECORDS.items()}

    def record(self, record: BatchRecord, batch: Batch) -> None:
        """Takes the next record of the log."""
        self._at(record.timestamp_ms, record.log_offset)
        if record.log_offset == batch.base_offset:
            self.states.batch_ends()
        if batch.control:
            self._control(record, batch.leader_epoch)
        elif record.value is not None:
            self._apply(record.value)

    def snapshot(self, batches: Sequence[Batch], *, last_contained: int) -> None:
        """Takes the content of a snapshot, which counts as stated at the time of the last record that went into it."""
        for batch in batches:
            for record in read_records(batch):
                if not batch.control and record.value is not None:
                    self._apply(record.value)
                elif batch.control and self._control_type(record) == _SNAPSHOT_HEADER:
                    header = Cursor(record.value or b"")
                    header.int16()  # version
                    self._at(header.int64(), last_contained)
                    self.states.snapshot(self._time_ns, last_contained)

    def finish(self) -> list[tuple[int, ...]]:
        """Returns all rows. A transaction that the log does not end has not happened (yet)."""
        if self._before is not None:
            self._roll_back()
        return self._rows

    # --- one record ---

    def _at(self, timestamp_ms: int, log_offset: int) -> None:
        self._time_ns = self._stamps.time_ns(timestamp_ms)
        self._log_offset = log_offset

    def _apply(self, value: bytes) -> None:
        cursor = Cursor(value)
        frame_version, key, version = (cursor.unsigned_varint() for _ in range(3))
        if frame_version != 1:
            raise Malformed(f"has a record of frame version {frame_version} at offset {self._log_offset}; known: 1")
        if key > _NEWEST_TYPE:
            raise Malformed(f"has a record of type {key} at offset {self._log_offset}; known: 0…{_NEWEST_TYPE}")
        if (known := self._known.get(key)) is not None:
            if version > known[0]:
                raise Malformed(
                    f"has a record of type {key} version {version} at offset {self._log_offset}; known: 0…{known[0]}"
                )
            known[1](cursor, version)

    def _control_type(self, record: BatchRecord) -> int:
        return Cursor(record.key or b"").numbers(_CONTROL_KEY)[1]

    def _control(self, record: BatchRecord, epoch: int) -> None:
        if self._control_type(record) == _LEADER_CHANGE:
            cursor = Cursor(record.value or b"")
            cursor.int16()  # version
            self._row(MetadataKind.CONTROLLER, node=cursor.int32(), leader_epoch=epoch)

    # --- topics and partitions ---

    def _topic(self, cursor: Cursor, _version: int) -> None:
        name, topic = cursor.compact_string() or "", cursor.uuid()
        self._names[topic] = name
        self.states.topic(name, topic)

    def _setting(self, cursor: Cursor, _version: int) -> None:
        if cursor.int8() == _TOPIC_RESOURCE:
            self.states.setting(cursor.compact_string() or "", self._time_ns, self._log_offset)

    def _remove_topic(self, cursor: Cursor, _version: int) -> None:
        topic = cursor.uuid()
        for key in [key for key in self._partitions if key[0] == topic]:
            gone = PartitionState(leader=NONE, leader_epoch=self._partitions.pop(key).leader_epoch, isr=0, replicas=0)
            self._partition_row(key, gone, MetadataKind.DELETED)
        self.states.topic(self._names.pop(topic, ""), None)

    def _partition(self, cursor: Cursor, version: int) -> None:
        number, topic = cursor.int32(), cursor.uuid()
        replicas, isr = cursor.compact_int32s(), cursor.compact_int32s()
        cursor.compact_int32s()  # removing replicas
        cursor.compact_int32s()  # adding replicas
        leader, epoch = cursor.int32(), cursor.int32()
        cursor.int32()  # partition epoch
        if version >= 1:
            cursor.take(16 * max(0, cursor.unsigned_varint() - 1))  # directories (KIP-858)
        tags = cursor.tagged_fields()
        self._set(
            (topic, number),
            PartitionState(
                leader=leader,
                leader_epoch=epoch,
                isr=broker_mask(isr),
                replicas=broker_mask(replicas),
                elr=_mask_in(tags, 1, 0),
                last_known_elr=_mask_in(tags, 2, 0),
                recovering=_int8_in(tags, 0, 0),
            ),
        )

    def _partition_change(self, cursor: Cursor, _version: int) -> None:
        number, topic = cursor.int32(), cursor.uuid()
        tags = cursor.tagged_fields()
        old = self._partitions.get((topic, number))
        if old is None:
            raise Malformed(f"changes a partition it never created, at offset {self._log_offset}")
        leader = _int32_in(tags, 1, NO_LEADER_CHANGE)
        recovering = _int8_in(tags, 5, NONE)
        self._set(
            (topic, number),
            PartitionState(
                leader=old.leader if leader == NO_LEADER_CHANGE else leader,
                leader_epoch=old.leader_epoch + (leader != NO_LEADER_CHANGE),
                isr=_mask_in(tags, 0, old.isr),
                replicas=_mask_in(tags, 2, old.replicas),
                elr=_mask_in(tags, 6, old.elr),
                last_known_elr=_mask_in(tags, 7, old.last_known_elr),
                recovering=old.recovering if recovering == NONE else recovering,
            ),
        )

    def _clear_elr(self, cursor: Cursor, _version: int) -> None:
        name = cursor.compact_string()  # empty = every topic
        for key, partition in list(self._partitions.items()):
            if (partition.elr or partition.last_known_elr) and (not name or self._names.get(key[0]) == name):
                self._set(key, replace(partition, elr=0, last_known_elr=0))

    def _set(self, key: tuple[UUID, int], partition: PartitionState) -> None:
        self._partitions[key] = partition
        self._partition_row(key, partition)

    # Brokers and features

    def _broker(self, read: Callable[[Cursor, int], BrokerRecord], cursor: Cursor, version: int) -> None:
        record = read(cursor, version)
        if record.kind is ClusterRecord.REGISTERED:
            self._row(MetadataKind.BROKER_REGISTERED, node=record.node)
        if record.fenced != NONE:
            self._row(MetadataKind.BROKER_FENCED if record.fenced else MetadataKind.BROKER_UNFENCED, node=record.node)
        self.states.broker(record, self._time_ns, self._log_offset)

    def _feature(self, cursor: Cursor, _version: int) -> None:
        self.states.feature(cursor.compact_string() or "", cursor.int16(), self._time_ns, self._log_offset)

    # --- metadata transactions ---

    def _begin_transaction(self, _cursor: Cursor, _version: int) -> None:
        self._before = (dict(self._names), dict(self._partitions), len(self._rows), len(self.states.rows))

    def _end_transaction(self, _cursor: Cursor, _version: int) -> None:
        self._before = None

    def _abort_transaction(self, _cursor: Cursor, _version: int) -> None:
        if self._before is not None:
            self._roll_back()

    def _roll_back(self) -> None:
        assert self._before is not None
        self._names, self._partitions, length, states = self._before
        self.states.roll_back(states, self._names)
        # The record of who became controller is not part of the transaction: control records lie outside it.
        kind = COLUMNS.index("kind")
        self._rows[length:] = [row for row in self._rows[length:] if row[kind] == MetadataKind.CONTROLLER]
        self._before = None

    # Rows

    def _partition_row(
        self, key: tuple[UUID, int], partition: PartitionState, kind: MetadataKind = MetadataKind.PARTITION
    ) -> None:
        dense = self._ids.get((self._names.get(key[0], ""), key[1]))
        if dense is not None:
            self._row(kind, **columns_of_id(key[0]), **partition.columns(dense))

    def _row(self, kind: MetadataKind, **columns: int) -> None:
        self._rows.append(truth_row(**columns, kind=kind, time_ns=self._time_ns, log_position=self._log_offset))


def _mask_in(tags: Mapping[int, bytes], tag: int, missing: int) -> int:
    """The mask of a tagged, nullable `[]int32`; `missing` if it is not there, or null."""
    if tag not in tags or tags[tag] == b"\0":
        return missing
    return broker_mask(Cursor(tags[tag]).compact_int32s())


def _int32_in(tags: Mapping[int, bytes], tag: int, missing: int) -> int:
    return Cursor(tags[tag]).int32() if tag in tags else missing


def _int8_in(tags: Mapping[int, bytes], tag: int, missing: int) -> int:
    return Cursor(tags[tag]).int8() if tag in tags else missing


# Ground truth: the controllers' own log (`__cluster_metadata`) decoded into who led and who was in sync, over time.
#
# KRaft's controllers write every change of every partition into one replicated log; what is committed there is what
# was true (https://cwiki.apache.org/confluence/display/KAFKA/KIP-631). Layouts of the records: the schemas that every
# `kafka-metadata` jar carries (`common/metadata/*.json`); from 3.3 to 4.4 newer versions only add to them, and a type or
# a version that is not known is refused rather than guessed.
#
# What follows from a row and the one before (the judge does it, not this module): a leader outside the ISR and ELR of
# the row before was elected uncleanly; `recovering` = 1 says the same in the controller's own words (KIP-704).


_SEGMENT = re.compile(r"(\d{20})\.log")
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


def decode_metadata_log(
    metadata_directories: Sequence[Path],
    *,
    partition_ids: Mapping[tuple[str, int], int],
    wall_minus_monotonic_ns: int,
) -> GroundTruth:
    """Decodes the committed metadata log, in log order.

    `metadata_directories`: the data directory of *each* controller (or its `__cluster_metadata-0`), missing ones too: they
    count. With several, only what a majority of them holds is committed and decoded; an unfinished tail of a deposed
    controller is left out.
    `partition_ids`: (topic, number) → dense id of the partitions of interest; others are left out. Brokers and controllers
    are all there. `wall_minus_monotonic_ns`: turns the records' wall clock, cut to ms, into CLOCK_MONOTONIC ns; where
    a fault moved the clock of a controller, as stated above.

    A row states what holds from its time on. Where a topic was deleted, a row of that kind says so for each of its
    partitions; a topic that is made again under the name is another one, with another id. Where the log begins with a
    snapshot, its content is stated at the time of the last record it contains.

    HistoryUnreadable: no committed log, damaged in the middle, or of a version that is not known. A torn last batch is
    normal after SIGKILL and left out: it was never acknowledged to anyone.
    """
    stamps = Stamps.of(metadata_directories, wall_minus_monotonic_ns=wall_minus_monotonic_ns)
    replay = Replay(partition_ids, stamps)
    log, committed_end = _committed(metadata_directories)
    try:
        start = log.batches[0].base_offset
        if start > 0:
            snapshot_end, batches = _snapshot(log.directory, start)
            replay.snapshot(batches, last_contained=snapshot_end - 1)
            start = snapshot_end
        for batch in log.batches:
            if start <= batch.last_offset < committed_end:
                for record in read_records(batch):
                    if record.log_offset >= start:
                        replay.record(record, batch)
    except Malformed as error:
        raise HistoryUnreadable(f"The metadata log in {log.directory} {error}.") from error
    except OSError as error:
        raise HistoryUnreadable(f"A snapshot in {log.directory} cannot be read: {error.strerror}.") from error
    return GroundTruth(_columns(METADATA, replay.finish()), _columns(CLUSTER_STATES, replay.states.rows))


def _columns(table: Table, rows: Sequence[tuple[int, ...]]) -> dict[str, np.ndarray]:
    try:
        found = np.array(rows, dtype=np.int64).reshape(-1, len(table.columns))
    except OverflowError as error:
        raise HistoryUnreadable("A metadata log holds a number of more than 64 bits.") from error
    return {column.name: found[:, i].astype(column.kind) for i, column in enumerate(table.columns)}


@dataclass(frozen=True, slots=True)
class _Log:
    """The log of one controller. `batches` is not empty, and without gaps."""

    directory: Path
    batches: list[Batch]

    @property
    def end(self) -> int:
        return self.batches[-1].last_offset + 1

    def shared_end(self, other: "_Log") -> int:
        """The offset up to which both logs are the same: two Raft logs with the same epoch at one offset are the same up
        to it."""
        mine = {(b.last_offset, b.leader_epoch, b.checksum) for b in self.batches}
        shared = (b.last_offset for b in reversed(other.batches) if (b.last_offset, b.leader_epoch, b.checksum) in mine)
        return next(shared, -1) + 1


def _committed(directories: Sequence[Path]) -> tuple[_Log, int]:
    """Finds the most complete log (by Raft's rule: last epoch, then length), and the end of what a majority holds."""
    logs, problems = [], []
    for directory in directories:
        try:
            logs.append(_read_log(directory))
        except HistoryUnreadable as error:
            problems.append(str(error))
    majority = len(directories) // 2 + 1
    if len(logs) < majority:
        raise HistoryUnreadable(
            f"The committed metadata log needs {majority} of {len(directories)} controllers' logs; readable: {len(logs)}. "
            + " ".join(problems)
        )
    best = max(logs, key=lambda log: (log.batches[-1].leader_epoch, log.end))
    ends = sorted((best.shared_end(log) for log in logs), reverse=True)
    return best, ends[majority - 1]


def _read_log(directory: Path) -> _Log:
    inner = directory / LOG_DIRECTORY
    directory = inner if inner.is_dir() else directory
    segments = sorted(p for p in directory.glob("*.log") if _SEGMENT.fullmatch(p.name))
    batches: list[Batch] = []
    for path in segments:
        try:
            read = read_batches(path.read_bytes())
        except OSError as error:
            raise HistoryUnreadable(f"{path} cannot be read: {error.strerror}.") from error
        except Malformed as error:
            raise HistoryUnreadable(f"{path} {error}.") from error
        if read.torn_at is not None and path != segments[-1]:
            raise HistoryUnreadable(f"{path} is torn at byte {read.torn_at} ({read.torn_reason}), yet the log goes on.")
        for batch in read.batches:
            if batches and batch.base_offset != batches[-1].last_offset + 1:
                raise HistoryUnreadable(
                    f"{path}: offset {batch.base_offset} follows {batches[-1].last_offset}: records between are missing."
                )
            batches.append(batch)
    if not batches:
        raise HistoryUnreadable(f"{directory} holds no metadata log (no record in any segment).")
    return _Log(directory, batches)


def _snapshot(directory: Path, log_start: int) -> tuple[int, list[Batch]]:
    """Finds the oldest whole snapshot from which the log goes on without a gap: its end offset, and its batches."""
    for path in sorted(directory.glob("*.checkpoint")):
        match = _SNAPSHOT.fullmatch(path.name)
        if match is None or (end := int(match[1])) < log_start:
            continue
        read = read_batches(path.read_bytes())
        if read.torn_at is None:
            return end, read.batches
    raise HistoryUnreadable(
        f"The metadata log in {directory} begins at offset {log_start}, and no snapshot there holds what was before."
    )
