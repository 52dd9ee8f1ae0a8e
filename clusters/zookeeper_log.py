"""ZooKeeper's transaction logs: what every change of the tree was, and which of them were committed.

Each server appends every proposal to its log before it acknowledges it, and a proposal that a majority has is committed
(https://zookeeper.apache.org/doc/r3.8.4/zookeeperInternals.html). A file is a header, then records of checksum (Adler-32),
length, bytes and the letter B; zeros where space was reserved. [FileTxnLog]
"""

import re
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from clusters.jute import JuteCursor
from clusters.wire import Malformed
from harness.errors import HistoryUnreadable

VERSION_DIRECTORY = "version-2"
_FILE, _SNAPSHOT = re.compile(r"log\.([0-9a-f]+)"), re.compile(r"snapshot\.([0-9a-f]+)")
_HEADER, _RECORD = struct.Struct(">4siq"), struct.Struct(">qi")
_MAGIC, _FILE_VERSION, _END_OF_RECORD = b"ZKLG", 2, b"B"


class Operation(IntEnum):
    """Types of transactions that change the tree or end a session. [ZooDefs.OpCode]"""

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


CREATES = (Operation.CREATE, Operation.CREATE2, Operation.CREATE_CONTAINER, Operation.CREATE_TTL)
DELETES = (Operation.DELETE, Operation.DELETE_CONTAINER)


@dataclass(frozen=True, slots=True)
class Transaction:
    """One proposal. `zxid`: epoch of its leader in the upper 32 bits, its number in that epoch in the lower."""

    zxid: int
    time_ms: int
    """Wall clock of the leader that proposed it."""
    session: int
    operation: int
    """Of `Operation`, or another one."""
    body: bytes
    checksum: int

    @property
    def epoch(self) -> int:
        return self.zxid >> 32

    @property
    def number(self) -> int:
        return self.zxid & 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Change:
    """A node of the tree was created, written or deleted. `data`: of the first two."""

    operation: Operation
    path: str
    data: bytes = b""
    ephemeral: bool = False


def changes_of(operation: int, body: bytes) -> Iterator[Change]:
    """What a transaction (not a closed session) does to the tree, in order; nothing for what failed or does nothing to it."""
    cursor = JuteCursor(body)
    if operation == Operation.MULTI:
        parts = [(cursor.int32(), cursor.buffer()) for _ in range(cursor.length())]
        # One failed part fails all of them. [DataTree.processTxn]
        if not any(of_part == Operation.ERROR for of_part, _ in parts):
            for of_part, data in parts:
                yield from changes_of(of_part, data)
    elif operation in CREATES:
        path, data = cursor.text(), cursor.buffer()
        for _ in range(cursor.length()):
            cursor.int32(), cursor.text(), cursor.text()  # permissions, scheme, id
        plain = operation in (Operation.CREATE, Operation.CREATE2)
        yield Change(Operation.CREATE, path, data, ephemeral=plain and cursor.boolean())
    elif operation in DELETES:
        yield Change(Operation.DELETE, cursor.text())
    elif operation == Operation.SET_DATA:
        yield Change(Operation.SET_DATA, cursor.text(), cursor.buffer())


def closed_paths(body: bytes) -> list[str]:
    """What the end of a session deletes, as far as the transaction tells (ZOOKEEPER-3145); its ephemeral nodes."""
    if len(body) < 4:
        return []
    cursor = JuteCursor(body)
    return [cursor.text() for _ in range(cursor.length())]


def read_transactions(data: bytes) -> list[Transaction]:
    """Of one log file, up to where it ends or is torn. `Malformed` if it is no such file."""
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


# --- several servers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of one server's log that was written without a break. Whoever has a committed transaction has in the same
    stretch, before it, nothing but what was committed before it, and all of that: followers take a leader's past as it is.
    Behind the last committed one may be proposals that nobody else took."""

    transactions: list[Transaction]
    from_the_beginning: bool
    """Of the ensemble; else it follows a snapshot."""

    def up_to(self, zxid: int, checksum: int) -> list[Transaction]:
        """All of it up to that transaction; empty if it is not there."""
        before = [transaction for transaction in self.transactions if transaction.zxid <= zxid]
        return before if before and (before[-1].zxid, before[-1].checksum) == (zxid, checksum) else []

    @property
    def gap(self) -> bool:
        """Is something missing in it?"""
        pairs = zip(self.transactions, self.transactions[1:], strict=False)
        return any(
            (b.epoch, b.number) != (a.epoch, a.number + 1) and not (b.number == 1 and b.epoch > a.epoch)
            for a, b in pairs
        )


def committed_transactions(directories: Sequence[Path]) -> list[Transaction]:
    """What a majority of the servers has, and everything before that. `directories`: the data directory of *each* server of
    the ensemble (or its `version-2`), missing ones too: they count.

    A server that was away for long, or whose unfinished proposals must go, is given a snapshot by the leader: the stretch of
    its log before that may end in what was never committed, and what the snapshot covers is in other servers' logs. So the
    past is put together from the end on, from stretches that share a transaction.
    HistoryUnreadable: no majority is readable, or no log tells some part of the past.
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


def _past_of(end: tuple[int, int], stretches: Sequence[Stretch]) -> list[Transaction]:
    """Everything up to the transaction `end` (zxid, checksum), the ensemble's first one first."""
    past: list[Transaction] = []
    while True:
        known = [(found, stretch) for stretch in stretches if (found := stretch.up_to(*end))]
        found, stretch = min(known, key=lambda pair: pair[0][0].zxid, default=([], None))
        past = found + past[1:]
        if stretch is not None and stretch.from_the_beginning and found[0].number == 1:
            return past
        if len(found) < 2:
            raise HistoryUnreadable(f"No ZooKeeper server's log tells what was before transaction {end[0]:#x}.")
        end = found[0].zxid, found[0].checksum


def _stretches(directory: Path) -> list[Stretch]:
    """One server's log, divided where it was given a snapshot: one of a state that its own log does not lead to."""
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
    given = [zxid for zxid in sorted(_numbered(directory, _SNAPSHOT)) if zxid > 0 and zxid not in found]
    ordered, stretches = [found[zxid] for zxid in sorted(found)], []
    for after, until in zip([0, *given], [*given, 1 << 63], strict=True):
        part = [transaction for transaction in ordered if after < transaction.zxid <= until]
        if part:
            stretches.append(Stretch(part, from_the_beginning=after == 0))
    return stretches


def _numbered(directory: Path, pattern: re.Pattern[str]) -> dict[int, Path]:
    """Files by the transaction in their names."""
    return {int(match[1], 16): path for path in directory.glob("*") if (match := pattern.fullmatch(path.name))}
