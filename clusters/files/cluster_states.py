"""Reads what the controllers' log states of brokers and features, as rows of `prozess.harness.schema.CLUSTER_STATES`.

Layouts of the records: `common/metadata/*.json` in every `kafka-metadata` jar, 3.3 to 4.4.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from prozess.clusters.protocol.client import Cursor
from prozess.harness.schema import CLUSTER_STATES, ELR_VERSION, METADATA_VERSION, NONE, ClusterRecord

_IDS = struct.Struct(">qq")
_LEVELS = struct.Struct(">hh")
_ROW = {column.name: NONE for column in CLUSTER_STATES.columns} | {"shutting_down": 0}


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """A record about one broker."""

    kind: ClusterRecord
    node: int
    epoch: int
    fenced: int = NONE
    shutting_down: int = 0
    incarnation: UUID | None = None
    directories: Sequence[UUID] = ()
    features: Sequence[tuple[str, int, int]] = ()
    """Name, lowest and highest level."""


class ClusterStates:
    """Collects the rows. Features are numbered in the order in which they are named, behind those that rules know."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []
        self._numbers: dict[str, int] = {
            "metadata.version": METADATA_VERSION,
            "eligible.leader.replicas.version": ELR_VERSION,
        }
        self._topics: dict[str, UUID] = {}
        self._awaited: list[tuple[str, int]] = []
        """Settings of topics that are not there (yet): the name, and the row."""

    def broker(self, record: BrokerRecord, time_ns: int, log_offset: int) -> None:
        """Takes a record about a broker."""
        of_record = {"time_ns": time_ns, "log_offset": log_offset, "node": record.node, "broker_epoch": record.epoch}
        own = {"fenced": record.fenced, "shutting_down": record.shutting_down, **_of_id(record.incarnation)}
        self._row(record.kind, **of_record, **own)
        for directory in record.directories:
            self._row(ClusterRecord.DIRECTORY, **of_record, **_of_id(directory))
        for name, lowest, highest in record.features:
            of_feature = {"feature": self._number(name), "lowest": lowest, "level": highest}
            self._row(ClusterRecord.SUPPORTED, **of_record, **of_feature)

    def feature(self, name: str, level: int, time_ns: int, log_offset: int) -> None:
        """Takes the level of a feature."""
        of_feature = {"feature": self._number(name), "level": level}
        self._row(ClusterRecord.FEATURE, time_ns=time_ns, log_offset=log_offset, **of_feature)

    def topic(self, name: str, topic: UUID | None) -> None:
        """Takes a topic that is made, None: that is deleted. Before 3.5 its settings stand in front of it, in one batch."""
        self._topics.pop(name, None)
        if topic is not None:
            self._topics[name] = topic
            for row in [row for awaited, row in self._awaited if awaited == name]:
                self.rows[row] = tuple((dict(zip(_ROW, self.rows[row], strict=True)) | _of_id(topic)).values())

    def setting(self, name: str, time_ns: int, log_offset: int) -> None:
        """Takes a setting of a topic."""
        topic = self._topics.get(name)
        if topic is None:
            self._awaited.append((name, len(self.rows)))
        self._row(ClusterRecord.CONFIGURED, time_ns=time_ns, log_offset=log_offset, **_of_id(topic))

    def batch_ends(self) -> None:
        """What was not made by now is not made."""
        self._awaited.clear()

    def roll_back(self, rows: int, topics: Mapping[UUID, str]) -> None:
        """Forgets what came behind so many rows; these topics are there."""
        del self.rows[rows:]
        self._topics = {name: topic for topic, name in topics.items()}
        self._awaited.clear()

    def snapshot(self, time_ns: int, log_offset: int) -> None:
        """Takes the beginning of a snapshot."""
        self._row(ClusterRecord.SNAPSHOT, time_ns=time_ns, log_offset=log_offset)

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def _row(self, kind: ClusterRecord, **columns: int) -> None:
        self.rows.append(tuple((_ROW | columns | {"kind": int(kind)}).values()))


def _of_id(value: UUID | None) -> dict[str, int]:
    return {} if value is None else dict(zip(("id_high", "id_low"), _IDS.unpack(value.bytes), strict=True))


def _registered(cursor: Cursor, version: int) -> BrokerRecord:
    node = cursor.int32()
    if version >= 2:
        cursor.int8()  # migrating from ZooKeeper
    incarnation, epoch = cursor.uuid(), cursor.int64()
    for _ in range(cursor.unsigned_varint() - 1):
        cursor.compact_string()  # name of the listener
        cursor.compact_string()  # host
        cursor.take(2 + 2)  # port, security protocol
        cursor.tagged_fields()
    features = []
    for _ in range(cursor.unsigned_varint() - 1):
        name = cursor.compact_string() or ""
        lowest, highest = cursor.numbers(_LEVELS)
        cursor.tagged_fields()
        features.append((name, lowest, highest))
    cursor.compact_string()  # rack
    fenced, shutting_down = cursor.int8(), cursor.int8() if version >= 1 else 0
    directories = _directories(cursor.tagged_fields(), 0)
    return BrokerRecord(
        ClusterRecord.REGISTERED, node, epoch, fenced, shutting_down, incarnation, directories, features
    )


def _changed(cursor: Cursor, _version: int) -> BrokerRecord:
    node, epoch = cursor.int32(), cursor.int64()
    tags = cursor.tagged_fields()
    fenced, shutting_down = (Cursor(tags[tag]).int8() if tag in tags else 0 for tag in (0, 1))
    # 1: fenced, -1: unfenced, 0: as before.
    stated = {1: 1, 0: NONE}.get(fenced, 0)
    return BrokerRecord(ClusterRecord.CHANGED, node, epoch, stated, shutting_down, directories=_directories(tags, 2))


def _plain(kind: ClusterRecord, fenced: int) -> Callable[[Cursor, int], BrokerRecord]:
    return lambda cursor, _version: BrokerRecord(kind, cursor.int32(), cursor.int64(), fenced)


def _directories(tags: Mapping[int, bytes], tag: int) -> Sequence[UUID]:
    cursor = Cursor(tags.get(tag, b"\0"))
    return [cursor.uuid() for _ in range(cursor.unsigned_varint() - 1)]


BROKER_RECORDS: Mapping[int, tuple[int, Callable[[Cursor, int], BrokerRecord]]] = {
    0: (4, _registered),
    1: (0, _plain(ClusterRecord.UNREGISTERED, 1)),  # gone for good, which is fenced as well
    7: (0, _plain(ClusterRecord.CHANGED, 1)),
    8: (0, _plain(ClusterRecord.CHANGED, 0)),
    17: (3, _changed),
}
"""API key of a record → the newest version that is known, and how it is read."""
