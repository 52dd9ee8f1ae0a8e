"""Decodes ZooKeeper's transaction logs and snapshots into what the cluster decided about leaders and in-sync replicas.

A file is a header, then records of checksum (Adler-32), length, bytes and the letter B; zeros where space was reserved.
[FileTxnLog; zookeeper.jute]
"""

import base64
import json
import re
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import IntEnum, unique
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from prozess.clusters.protocol import zookeeper
from prozess.clusters.protocol.client import Malformed
from prozess.clusters.protocol.zookeeper import JuteCursor
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.recording.codes import broker_mask
from prozess.harness.schema import METADATA, NONE, MetadataKind, MetadataSource

_HEADER, _RECORD = struct.Struct(">4siq"), struct.Struct(">qi")
_MAGIC, _FILE_VERSION, _END_OF_RECORD = b"ZKLG", 2, b"B"


@unique
class ZooKeeperOperation(IntEnum):
    """The types of transactions that change the tree or end a session. [ZooDefs.OpCode]"""

    CREATE = 1
    DELETE = 2
    SET_DATA = 5
    MULTI = 14
    CREATE2 = 15
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    CLOSE_SESSION = -11
    ERROR = -1


CREATES = (
    ZooKeeperOperation.CREATE,
    ZooKeeperOperation.CREATE2,
    ZooKeeperOperation.CREATE_CONTAINER,
    ZooKeeperOperation.CREATE_TTL,
)
DELETES = (ZooKeeperOperation.DELETE, ZooKeeperOperation.DELETE_CONTAINER)


@dataclass(frozen=True, slots=True)
class Transaction:
    """A proposal of ZooKeeper. `zxid`: the epoch of its leader in the upper 32 bits, its number in that epoch in the
    lower."""

    zxid: int
    time_ms: int
    """The wall clock of the leader that proposed it."""
    session: int
    operation: int
    """A `ZooKeeperOperation`, or another one."""
    body: bytes
    checksum: int

    @property
    def epoch(self) -> int:
        return self.zxid >> 32

    @property
    def number(self) -> int:
        return self.zxid & 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class ZnodeChange:
    """A change of the tree: a node was created, written or deleted. `data`: what was written."""

    operation: ZooKeeperOperation
    path: str
    data: bytes = b""
    ephemeral: bool = False


def changes_of(operation: int, body: bytes) -> Iterator[ZnodeChange]:
    """The changes that a transaction (no closed session) makes to the tree, in order; none if it failed."""
    cursor = JuteCursor(body)
    if operation == ZooKeeperOperation.MULTI:
        parts = [(cursor.int32(), cursor.buffer()) for _ in range(cursor.length())]
        # One failed part fails all of them. [DataTree.processTxn]
        if not any(of_part == ZooKeeperOperation.ERROR for of_part, _ in parts):
            for of_part, data in parts:
                yield from changes_of(of_part, data)
    elif operation in CREATES:
        path, data = cursor.text(), cursor.buffer()
        for _ in range(cursor.length()):
            cursor.int32(), cursor.text(), cursor.text()  # permissions, scheme, id
        plain = operation in (ZooKeeperOperation.CREATE, ZooKeeperOperation.CREATE2)
        yield ZnodeChange(ZooKeeperOperation.CREATE, path, data, ephemeral=plain and cursor.boolean())
    elif operation in DELETES:
        yield ZnodeChange(ZooKeeperOperation.DELETE, cursor.text())
    elif operation == ZooKeeperOperation.SET_DATA:
        yield ZnodeChange(ZooKeeperOperation.SET_DATA, cursor.text(), cursor.buffer())


def closed_paths(body: bytes) -> list[str]:
    """The ephemeral nodes that the end of a session deletes, as far as the transaction reports (ZOOKEEPER-3145)."""
    if len(body) < 4:
        return []
    cursor = JuteCursor(body)
    return [cursor.text() for _ in range(cursor.length())]


def read_transactions(data: bytes) -> list[Transaction]:
    """Reads the transactions of one log file, up to where it ends or is torn. `Malformed` if it is no such file."""
    if len(data) < _HEADER.size:
        return []  # killed before it was begun
    magic, version, _ = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != _FILE_VERSION:
        raise Malformed(f"is no transaction log of version {_FILE_VERSION}: it begins with {data[:8]!r}")
    found, position = [], _HEADER.size
    while position + _RECORD.size <= len(data):
        checksum, length = _RECORD.unpack_from(data, position)
        body = data[position + _RECORD.size : position + _RECORD.size + length]
        end = position + _RECORD.size + length
        whole = 0 < length == len(body) and data[end : end + 1] == _END_OF_RECORD and zlib.adler32(body) == checksum
        if not whole:
            break  # reserved space, or a record that was cut off: acknowledged to nobody
        found.append(_transaction(body, checksum))
        position = end + 1
    return found


def _transaction(body: bytes, checksum: int) -> Transaction:
    cursor = JuteCursor(body)
    session, _, zxid, time_ms, operation = (
        cursor.int64(),
        cursor.int32(),
        cursor.int64(),
        cursor.int64(),
        cursor.int32(),
    )
    return Transaction(zxid, time_ms, session, operation, body[cursor.position :], checksum)


# A snapshot of ZooKeeper's tree, as transactions: each node as it was last written, with when that was.
#
# Read where no log reports the beginning. It is fuzzy: taken while transactions went on, so it may hold some that are
# newer than its name says; those are in the log behind it, and left out here. [SnapStream, FileSnap, SerializeUtils,
# DataTree.serialize]


_TREE_HEADER = struct.Struct(">4siq")
_TREE_MAGIC, _TREE_VERSION = b"ZKSN", 2
_STAT = struct.Struct(">qqqqiiiqq")
"""The layout of a node's facts: czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeral owner, pzxid."""
_END = "/"
"""The path that ends the tree; the root's is empty."""


def snapshot_transactions(path: Path, zxid: int) -> list[Transaction]:
    """Reads the nodes of the tree from a snapshot, in the order in which they were last written.

    HistoryUnreadable if the file is no whole snapshot."""
    try:
        return sorted((t for t in _read(path.read_bytes()) if t.zxid <= zxid), key=lambda transaction: transaction.zxid)
    except OSError as error:
        raise HistoryUnreadable(f"{path} cannot be read: {error.strerror}.") from error
    except Malformed as error:
        raise HistoryUnreadable(f"{path} {error}.") from error


def _read(data: bytes) -> list[Transaction]:
    if len(data) < _TREE_HEADER.size or _TREE_HEADER.unpack_from(data)[:2] != (_TREE_MAGIC, _TREE_VERSION):
        raise Malformed(f"is no snapshot of version {_TREE_VERSION}: it begins with {data[:8]!r}")
    cursor = JuteCursor(data, _TREE_HEADER.size)
    for _ in range(cursor.length()):
        cursor.int64(), cursor.int32()  # a session and its timeout
    for _ in range(cursor.length()):
        cursor.int64()  # number of a list of permissions
        for _ in range(cursor.length()):
            cursor.int32(), cursor.text(), cursor.text()  # permissions, scheme, id
    found = []
    while (name := cursor.text()) != _END:
        content = cursor.buffer()
        cursor.int64()  # its list of permissions
        _, changed, _, changed_ms, _, _, _, owner, _ = cursor.numbers(_STAT)
        body = (
            zookeeper.text(name)
            + zookeeper.buffer(content)
            + zookeeper.vector()
            + zookeeper.boolean(owner != 0)
            + zookeeper.integer(0)
        )
        found.append(Transaction(changed, changed_ms, owner, ZooKeeperOperation.CREATE, body, checksum=0))
    return found


# ZooKeeper's transaction logs of several servers: which transactions were committed.
#
# Each server appends every proposal to its log before it acknowledges it, and a proposal that a majority has is
# committed (https://zookeeper.apache.org/doc/r3.8.4/zookeeperInternals.html).


VERSION_DIRECTORY = "version-2"
_FILE, _SNAPSHOT = re.compile(r"log\.([0-9a-f]+)"), re.compile(r"snapshot\.([0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class LogStretch:
    """A part of one server's log that was written without a break.

    A server that has a committed transaction has in the same stretch, before it, nothing but what was committed before it,
    and all of that: followers take a leader's past as it is. Behind the last committed one may be proposals that nobody
    else took."""

    transactions: list[Transaction]
    given: tuple[Path, int] | None = None
    """The snapshot that it follows, and that snapshot's transaction; None if it begins with the ensemble."""

    def up_to(self, zxid: int, checksum: int) -> list[Transaction]:
        """The part up to that transaction; empty if it is not there."""
        before = [transaction for transaction in self.transactions if transaction.zxid <= zxid]
        return before if before and (before[-1].zxid, before[-1].checksum) == (zxid, checksum) else []

    @property
    def gap(self) -> bool:
        """Is something missing in the stretch?"""
        pairs = zip(self.transactions, self.transactions[1:], strict=False)
        return any(
            (b.epoch, b.number) != (a.epoch, a.number + 1) and not (b.number == 1 and b.epoch > a.epoch)
            for a, b in pairs
        )


def committed_transactions(directories: Sequence[Path]) -> list[Transaction]:
    """Reads the transactions that a majority of the servers has, and everything before them.

    `directories`: the data directory of *each* server of the ensemble (or its `version-2`), missing ones too: they count.

    A server that was away for long, or whose unfinished proposals must go, is given a snapshot by the leader: the stretch of
    its log before that may end in what was never committed, and what the snapshot covers is in other servers' logs.
    Therefore the past is put together from the end on, from stretches that share a transaction. Where no log reports the
    beginning, it is the nodes of a snapshot, each as it was last written.
    HistoryUnreadable: no majority is readable, or neither a log nor a snapshot reports some part of the past.
    """
    logs, problems = [], []
    for directory in directories:
        try:
            logs.append(_stretches(directory))
        except HistoryUnreadable as error:
            problems.append(str(error))
    majority = len(directories) // 2 + 1
    counts = Counter((t.zxid, t.checksum) for log in logs for stretch in log for t in stretch.transactions)
    agreed = [key for key, count in counts.items() if count >= majority]
    if not agreed:
        raise HistoryUnreadable(
            f"Committed is what {majority} of {len(directories)} ZooKeeper servers have in their logs, and nothing is; "
            f"readable: {len(logs)}. " + " ".join(problems)
        )
    return _past_of(max(agreed), [stretch for log in logs for stretch in log if not stretch.gap])


def _past_of(end: tuple[int, int], stretches: Sequence[LogStretch]) -> list[Transaction]:
    """Returns all transactions up to `end` (zxid, checksum), the ensemble's first one first."""
    past: list[Transaction] = []
    while True:
        known = [(found, stretch) for stretch in stretches if (found := stretch.up_to(*end))]
        found, longest = min(known, key=lambda pair: pair[0][0].zxid, default=([], None))
        past = found + past[1:]
        if longest is not None and longest.given is None and found[0].number == 1:
            return past
        if len(found) < 2:
            return _in_a_snapshot(end[0], [stretch for _, stretch in known]) + past
        end = found[0].zxid, found[0].checksum


def _in_a_snapshot(zxid: int, stretches: Sequence[LogStretch]) -> list[Transaction]:
    """Returns the snapshot that one of these stretches follows. They begin with that transaction."""
    given = [stretch.given for stretch in stretches if stretch.given is not None]
    if not given:
        raise HistoryUnreadable(f"No ZooKeeper server's log or snapshot says what was before transaction {zxid:#x}.")
    return snapshot_transactions(*given[0])


def _stretches(directory: Path) -> list[LogStretch]:
    """Divides one server's log where it was given a snapshot of a state to which its own log does not lead."""
    inner = directory / VERSION_DIRECTORY
    directory = inner if inner.is_dir() else directory
    found: dict[int, Transaction] = {}
    for _, path in sorted(_numbered(directory, _FILE).items()):
        try:
            found |= {transaction.zxid: transaction for transaction in read_transactions(path.read_bytes())}
        except OSError as error:
            raise HistoryUnreadable(f"{path} cannot be read: {error.strerror}.") from error
        except Malformed as error:
            raise HistoryUnreadable(f"{path} {error}.") from error
    if not found:
        raise HistoryUnreadable(f"{directory} holds no transaction of ZooKeeper.")
    snapshots = _numbered(directory, _SNAPSHOT)
    given = [zxid for zxid in sorted(snapshots) if zxid > 0 and zxid not in found]
    ordered, stretches = [found[zxid] for zxid in sorted(found)], []
    for after, until in zip([0, *given], [*given, 1 << 63], strict=True):
        part = [transaction for transaction in ordered if after < transaction.zxid <= until]
        if part:
            stretches.append(LogStretch(part, given=(snapshots[after], after) if after else None))
    return stretches


def _numbered(directory: Path, pattern: re.Pattern[str]) -> dict[int, Path]:
    """The files by the transaction in their names."""
    return {int(match[1], 16): path for path in directory.glob("*") if (match := pattern.fullmatch(path.name))}


# Rows of `metadata` from the controllers' own records, whoever wrote those: KRaft's log, or ZooKeeper's.


COLUMNS = tuple(column.name for column in METADATA.columns)
"""The columns in the order that they have in a row."""
_EMPTY = {
    "isr": 0,
    "elr": 0,
    "last_known_elr": 0,
    "replicas": 0,
    "source": int(MetadataSource.CONTROLLER_LOG),
    "topic_id_high": NONE,
    "topic_id_low": NONE,
    "partition": NONE,
    "node": NONE,
    "leader": NONE,
    "leader_epoch": NONE,
    "recovering": 0,
}


def columns_of_id(topic_id: UUID) -> dict[str, int]:
    """Returns a topic's id as its two columns, signed."""
    high, low = struct.unpack(">qq", topic_id.bytes)
    return {"topic_id_high": high, "topic_id_low": low}


def truth_row(**columns: int) -> tuple[int, ...]:
    """Makes a row in the order of `COLUMNS`. `kind`, `time_ns` and `log_position` must be given; the rest may be left out."""
    row = _EMPTY | columns
    return tuple(row[name] for name in COLUMNS)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of a partition as a controller decided it. Sets of brokers are masks with bit n set for broker n."""

    leader: int
    leader_epoch: int
    isr: int
    replicas: int = 0
    elr: int = 0
    last_known_elr: int = 0
    recovering: int = 0

    def columns(self, partition: int) -> dict[str, int]:
        """Returns the columns of a row about it. `partition`: its dense id."""
        return {"partition": partition, **asdict(self)}


# Ground truth with ZooKeeper: its transaction logs decoded into who led and who was in sync, over time.
#
# Kafka's controller writes each decision there before it informs a broker: leader and ISR of a partition, the brokers
# that are alive (an ephemeral node each, gone when the session ends), who is the controller and in which epoch. Paths
# and JSON: https://github.com/apache/kafka/blob/3.9.2/core/src/main/scala/kafka/zk/ZkData.scala. The rows are those of
# `prozess.clusters.files.metadata_log`; there are no eligible leader replicas (KIP-966 is KRaft's).


NS_PER_MS = 1_000_000
CONTROLLER, CONTROLLER_EPOCH = "/controller", "/controller_epoch"
_STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_TOPIC = re.compile(r"/brokers/topics/([^/]+)")
_BROKER = re.compile(r"/brokers/ids/(\d+)")


def decode_zookeeper_logs(
    directories: Sequence[Path], *, partition_ids: Mapping[tuple[str, int], int], wall_minus_monotonic_ns: int
) -> dict[str, np.ndarray]:
    """Decodes ZooKeeper's logs into the columns that `prozess.clusters.files.metadata_log.decode_metadata_log` returns.

    They come from the data directory of *each* ZooKeeper server. `log_position` is the zxid. HistoryUnreadable as of
    `prozess.clusters.files.zookeeper_log.committed_transactions`, and for what is not Kafka's JSON."""
    replay = TreeReplay(partition_ids, wall_minus_monotonic_ns=wall_minus_monotonic_ns)
    try:
        for transaction in committed_transactions(directories):
            replay.transaction(transaction)
    except Malformed as error:
        raise HistoryUnreadable(f"A ZooKeeper log in {directories[0].parent} {error}.") from error
    try:
        rows = np.array(replay.rows, dtype=np.int64).reshape(-1, len(COLUMNS))
    except OverflowError as error:
        raise HistoryUnreadable(
            f"A ZooKeeper log in {directories[0].parent} holds a number of more than 64 bits."
        ) from error
    return {column.name: rows[:, i].astype(column.kind) for i, column in enumerate(METADATA.columns)}


class TreeReplay:
    """Replays ZooKeeper's transactions one by one. `rows` has one value per METADATA column."""

    def __init__(self, partition_ids: Mapping[tuple[str, int], int], *, wall_minus_monotonic_ns: int) -> None:
        self.rows: list[tuple[int, ...]] = []
        self._ids, self._wall_minus_monotonic_ns = partition_ids, wall_minus_monotonic_ns
        self._owners: dict[str, int] = {}
        """The session of each ephemeral node."""
        self._states: dict[tuple[str, int], PartitionState] = {}
        self._replicas: dict[tuple[str, int], int] = {}
        self._topic_ids: dict[str, dict[str, int]] = {}
        """The id of each topic, as the two columns; its partitions are deleted before it is."""
        self._controller, self._epoch, self._reported_epoch = NONE, NONE, NONE
        self._now = {"time_ns": 0, "log_position": NONE}
        self._kinds: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], ZnodeChange], None]], ...] = (
            (_STATE, self._partition),
            (_TOPIC, self._topic),
            (_BROKER, self._broker),
        )

    def transaction(self, transaction: Transaction) -> None:
        """Takes the next committed transaction. `Malformed` if it is not what Kafka and ZooKeeper write."""
        time_ns = transaction.time_ms * NS_PER_MS - self._wall_minus_monotonic_ns
        self._now = {"time_ns": time_ns, "log_position": transaction.zxid}
        if transaction.operation == ZooKeeperOperation.CLOSE_SESSION:
            own = [path for path, session in self._owners.items() if session == transaction.session]
            for path in dict.fromkeys((*own, *closed_paths(transaction.body))):
                self._change(ZnodeChange(ZooKeeperOperation.DELETE, path), transaction)
        else:
            for change in changes_of(transaction.operation, transaction.body):
                try:
                    self._change(change, transaction)
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise Malformed(f"has {change.data[:80]!r} at {change.path}, which is not Kafka's") from error
        # One multi makes somebody the controller and counts the epoch. [registerControllerAndIncrementControllerEpoch]
        if self._controller != NONE and self._epoch != self._reported_epoch:
            self._reported_epoch = self._epoch
            self._row(MetadataKind.CONTROLLER, node=self._controller, leader_epoch=self._epoch)

    def _change(self, change: ZnodeChange, transaction: Transaction) -> None:
        gone = change.operation is ZooKeeperOperation.DELETE
        if change.ephemeral:
            self._owners[change.path] = transaction.session
        elif gone:
            self._owners.pop(change.path, None)
        if change.path == CONTROLLER:
            self._controller = NONE if gone else int(json.loads(change.data)["brokerid"])
        elif change.path == CONTROLLER_EPOCH and not gone:
            self._epoch = int(change.data)
        else:
            for pattern, apply in self._kinds:
                if match := pattern.fullmatch(change.path):
                    apply(match, change)

    def _partition(self, match: re.Match[str], change: ZnodeChange) -> None:
        key = (match[1], int(match[2]))
        if change.operation is ZooKeeperOperation.DELETE:
            old = self._states.pop(key, None)
            self._replicas.pop(key, None)
            gone = PartitionState(NONE, old.leader_epoch if old else NONE, isr=0)
            self._partition_row(key, gone, MetadataKind.DELETED)
            return
        document = json.loads(change.data)
        state = self._states[key] = PartitionState(
            leader=int(document["leader"]),
            leader_epoch=int(document["leader_epoch"]),
            isr=broker_mask(document["isr"]),
            recovering=int(document.get("leader_recovery_state", 0)),
        )
        self._partition_row(key, state)

    def _topic(self, match: re.Match[str], change: ZnodeChange) -> None:
        if change.operation is ZooKeeperOperation.DELETE:
            self._topic_ids.pop(match[1], None)
            return
        document = json.loads(change.data)
        self._topic_ids[match[1]] = self._id_of(match[1], document)
        for number, replicas in document["partitions"].items():
            key, mask = (match[1], int(number)), broker_mask(replicas)
            before, self._replicas[key] = self._replicas.get(key), mask
            if before != mask and key in self._states:
                self._partition_row(key, self._states[key])

    def _id_of(self, topic: str, values: dict[str, Any]) -> dict[str, int]:
        """The id of a topic as ZooKeeper has it, since 2.8 (KIP-516); where it has none, the transaction that made the
        topic names it."""
        if "topic_id" in values:
            return columns_of_id(UUID(bytes=base64.urlsafe_b64decode(f"{values['topic_id']}==")))
        made = {"topic_id_high": NONE, "topic_id_low": self._now["log_position"]}
        return self._topic_ids.get(topic, made)

    def _broker(self, match: re.Match[str], change: ZnodeChange) -> None:
        node = int(match[1])
        if change.operation is ZooKeeperOperation.CREATE:
            self._row(MetadataKind.BROKER_REGISTERED, node=node)
            self._row(MetadataKind.BROKER_UNFENCED, node=node)
        elif change.operation is ZooKeeperOperation.DELETE:
            self._row(MetadataKind.BROKER_FENCED, node=node)

    def _partition_row(
        self, key: tuple[str, int], state: PartitionState, kind: MetadataKind = MetadataKind.PARTITION
    ) -> None:
        dense = self._ids.get(key)
        if dense is not None:
            whole = replace(state, replicas=self._replicas.get(key, 0))
            self._row(kind, **self._topic_ids.get(key[0], {}), **whole.columns(dense))

    def _row(self, kind: MetadataKind, **columns: int) -> None:
        self.rows.append(truth_row(**columns, **self._now, kind=int(kind)))
