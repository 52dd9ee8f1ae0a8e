"""What each record of the metadata log means: replayed in order, it gives rows of `harness.schema.METADATA`.

The semantics are those of Kafka's own images: `PartitionRegistration.merge` (a field that is not there is unchanged; a
leader that is there, even the same one, raises the leader epoch), `TopicsDelta.replay(ClearElrRecord)`, and KIP-868
(records of an aborted metadata transaction never happened).
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from clusters.record_batches import Batch, Record, read_records
from clusters.stamps import Stamps
from clusters.truth_rows import COLUMNS, truth_row
from clusters.wire import Cursor, Malformed
from harness.broker_masks import broker_mask
from harness.schema import NONE, MetadataKind

NO_LEADER_CHANGE = -2
"""Masks are signed 64-bit integers."""
_LEADER_CHANGE, _SNAPSHOT_HEADER = 2, 3
"""Types of control records (`ControlRecordType`)."""
_CONTROL_KEY = struct.Struct(">hh")


@dataclass(frozen=True, slots=True)
class _Partition:
    """A partition's registration. `isr`, `elr`, `last_known_elr`, `replicas`: masks with bit n set for broker n."""

    leader: int
    leader_epoch: int
    isr: int
    replicas: int
    elr: int = 0
    last_known_elr: int = 0
    recovering: int = 0


class Replay:
    """Replays records one by one. `finish` gives the rows (one value per METADATA column)."""

    def __init__(self, partition_ids: Mapping[tuple[str, int], int], stamps: Stamps) -> None:
        self._ids = partition_ids
        self._stamps = stamps
        self._rows: list[tuple[int, ...]] = []
        self._names: dict[UUID, str] = {}
        self._partitions: dict[tuple[UUID, int], _Partition] = {}
        self._before: tuple[dict[UUID, str], dict[tuple[UUID, int], _Partition], int] | None = None
        self._time_ns = self._log_offset = NONE
        # api key → (highest version known, what to do)
        self._known: dict[int, tuple[int, Callable[[Cursor, int], None]]] = {
            0: (4, self._register_broker),
            1: (0, self._fence_broker),  # UnregisterBroker: gone for good, which is fenced as well
            2: (0, self._topic),
            3: (2, self._partition),
            5: (2, self._partition_change),
            7: (0, self._fence_broker),
            8: (0, self._unfence_broker),
            9: (0, self._remove_topic),
            17: (3, self._broker_registration_change),
            23: (0, self._begin_transaction),
            24: (0, self._end_transaction),
            25: (0, self._abort_transaction),
            28: (0, self._clear_elr),
        }

    def record(self, record: Record, batch: Batch) -> None:
        """The next record of the log."""
        self._at(record.timestamp_ms, record.log_offset)
        if batch.control:
            self._control(record, batch.leader_epoch)
        elif record.value is not None:
            self._apply(record.value)

    def snapshot(self, batches: Sequence[Batch], *, last_contained: int) -> None:
        """The content of a snapshot: stated at the time of the last record that went into it."""
        for batch in batches:
            for record in read_records(batch):
                if not batch.control and record.value is not None:
                    self._apply(record.value)
                elif batch.control and self._control_type(record) == _SNAPSHOT_HEADER:
                    header = Cursor(record.value or b"")
                    header.int16()  # version
                    self._at(header.int64(), last_contained)

    def finish(self) -> list[tuple[int, ...]]:
        """All rows. A transaction that the log does not end has not happened (yet)."""
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
        if (known := self._known.get(key)) is not None:
            if version > known[0]:
                raise Malformed(
                    f"has a record of type {key} version {version} at offset {self._log_offset}; known: 0…{known[0]}"
                )
            known[1](cursor, version)

    def _control_type(self, record: Record) -> int:
        return Cursor(record.key or b"").numbers(_CONTROL_KEY)[1]

    def _control(self, record: Record, epoch: int) -> None:
        if self._control_type(record) == _LEADER_CHANGE:
            cursor = Cursor(record.value or b"")
            cursor.int16()  # version
            self._row(MetadataKind.CONTROLLER, node=cursor.int32(), leader_epoch=epoch)

    # --- topics and partitions ---

    def _topic(self, cursor: Cursor, _version: int) -> None:
        name = cursor.compact_string() or ""
        self._names[cursor.uuid()] = name

    def _remove_topic(self, cursor: Cursor, _version: int) -> None:
        topic = cursor.uuid()
        for key in [key for key in self._partitions if key[0] == topic]:
            gone = _Partition(leader=NONE, leader_epoch=self._partitions.pop(key).leader_epoch, isr=0, replicas=0)
            self._partition_row(key, gone)
        self._names.pop(topic, None)

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
            _Partition(
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
            _Partition(
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

    def _set(self, key: tuple[UUID, int], partition: _Partition) -> None:
        self._partitions[key] = partition
        self._partition_row(key, partition)

    # --- brokers ---

    def _register_broker(self, cursor: Cursor, version: int) -> None:
        broker = cursor.int32()
        self._row(MetadataKind.BROKER_REGISTERED, node=broker)
        if version >= 2:
            cursor.int8()  # migrating from ZooKeeper
        cursor.take(16 + 8)  # incarnation, broker epoch
        for _ in range(cursor.unsigned_varint() - 1):
            cursor.compact_string()  # name of the listener
            cursor.compact_string()  # host
            cursor.take(2 + 2)  # port, security protocol
            cursor.tagged_fields()
        for _ in range(cursor.unsigned_varint() - 1):
            cursor.compact_string()  # name of the feature
            cursor.take(2 + 2)  # lowest and highest level
            cursor.tagged_fields()
        cursor.compact_string()  # rack
        self._row(MetadataKind.BROKER_FENCED if cursor.int8() else MetadataKind.BROKER_UNFENCED, node=broker)

    def _fence_broker(self, cursor: Cursor, _version: int) -> None:
        self._row(MetadataKind.BROKER_FENCED, node=cursor.int32())

    def _unfence_broker(self, cursor: Cursor, _version: int) -> None:
        self._row(MetadataKind.BROKER_UNFENCED, node=cursor.int32())

    def _broker_registration_change(self, cursor: Cursor, _version: int) -> None:
        broker, _epoch = cursor.int32(), cursor.int64()
        change = _int8_in(cursor.tagged_fields(), 0, 0)
        if change:
            self._row(MetadataKind.BROKER_FENCED if change > 0 else MetadataKind.BROKER_UNFENCED, node=broker)

    # --- metadata transactions ---

    def _begin_transaction(self, _cursor: Cursor, _version: int) -> None:
        self._before = (dict(self._names), dict(self._partitions), len(self._rows))

    def _end_transaction(self, _cursor: Cursor, _version: int) -> None:
        self._before = None

    def _abort_transaction(self, _cursor: Cursor, _version: int) -> None:
        if self._before is not None:
            self._roll_back()

    def _roll_back(self) -> None:
        assert self._before is not None
        self._names, self._partitions, length = self._before
        # Who became controller is not part of the transaction: control records lie outside it.
        kind = COLUMNS.index("kind")
        self._rows[length:] = [row for row in self._rows[length:] if row[kind] == MetadataKind.CONTROLLER]
        self._before = None

    # --- rows ---

    def _partition_row(self, key: tuple[UUID, int], partition: _Partition) -> None:
        dense = self._ids.get((self._names.get(key[0], ""), key[1]))
        if dense is not None:
            self._row(
                MetadataKind.PARTITION,
                partition=dense,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                isr=partition.isr,
                elr=partition.elr,
                last_known_elr=partition.last_known_elr,
                replicas=partition.replicas,
                recovering=partition.recovering,
            )

    def _row(self, kind: MetadataKind, **columns: int) -> None:
        self._rows.append(truth_row(**columns, kind=kind, time_ns=self._time_ns, log_position=self._log_offset))


def _mask_in(tags: Mapping[int, bytes], tag: int, missing: int) -> int:
    """A tagged `[]int32`, nullable: not there and null both mean `missing`."""
    if tag not in tags or tags[tag] == b"\0":
        return missing
    return broker_mask(Cursor(tags[tag]).compact_int32s())


def _int32_in(tags: Mapping[int, bytes], tag: int, missing: int) -> int:
    return Cursor(tags[tag]).int32() if tag in tags else missing


def _int8_in(tags: Mapping[int, bytes], tag: int, missing: int) -> int:
    return Cursor(tags[tag]).int8() if tag in tags else missing
