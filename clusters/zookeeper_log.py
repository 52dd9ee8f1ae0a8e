"""ZooKeeper's transaction logs: what every change of the tree was, and which of them were committed.

Each server appends every proposal to its log before it acknowledges it, and a proposal that a majority has is committed
(https://zookeeper.apache.org/doc/r3.8.4/zookeeperInternals.html). A file is a header, then records of checksum (Adler-32),
length, bytes and the letter B; zeros where space was reserved. [FileTxnLog]
"""

import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from clusters.jute import JuteCursor
from clusters.wire import Malformed
from harness.errors import HistoryUnreadable

VERSION_DIRECTORY = "version-2"
_FILE = re.compile(r"log\.([0-9a-f]+)")
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
class ServerLog:
    """One server's log. `transactions` is not empty, and in order."""

    directory: Path
    transactions: list[Transaction]

    @property
    def last(self) -> int:
        return self.transactions[-1].zxid

    @property
    def gap(self) -> str | None:
        """Where something is missing; None = nothing from the ensemble's first transaction on."""
        before = None
        for transaction in self.transactions:
            follows = before is not None and (transaction.epoch, transaction.number) == (
                before.epoch,
                before.number + 1,
            )
            begins = transaction.number == 1 and (before is None or transaction.epoch > before.epoch)
            if not follows and not begins:
                return f"before transaction {transaction.zxid:#x}"
            before = transaction
        return None

    def shared_end(self, other: "ServerLog") -> int:
        """The newest transaction that both have; 0 = none."""
        mine = {(t.zxid, t.checksum) for t in self.transactions}
        return next((t.zxid for t in reversed(other.transactions) if (t.zxid, t.checksum) in mine), 0)

    def before(self) -> dict[int, int]:
        """First transaction of each epoch but the first → the one before it."""
        pairs = zip(self.transactions, self.transactions[1:], strict=False)
        return {b.zxid: a.zxid for a, b in pairs if a.epoch < b.epoch}


def committed_transactions(directories: Sequence[Path]) -> list[Transaction]:
    """What a majority of the servers has, of the most complete log. `directories`: the data directory of *each* server of
    the ensemble (or its `version-2`), missing ones too: they count.

    HistoryUnreadable: no majority is readable, none of the logs is whole from the beginning, or they contradict one another
    where a new leader took over: then one of them may hold what was never committed.
    """
    logs, problems = [], []
    for directory in directories:
        try:
            logs.append(_read_log(directory))
        except HistoryUnreadable as error:
            problems.append(str(error))
    majority = len(directories) // 2 + 1
    whole = [log for log in logs if log.gap is None]
    problems += [f"{log.directory} lacks what was {log.gap}." for log in logs if log.gap is not None]
    if len(logs) < majority or not whole:
        raise HistoryUnreadable(
            f"The committed transactions need the logs of {majority} of {len(directories)} ZooKeeper servers, one of them "
            f"whole; readable: {len(logs)}, whole: {len(whole)}. " + " ".join(problems)
        )
    best = max(whole, key=lambda log: log.last)
    for log in logs:
        _check_agrees(best, log)
    end = sorted((best.shared_end(log) for log in logs), reverse=True)[majority - 1]
    return [transaction for transaction in best.transactions if transaction.zxid <= end]


def _check_agrees(best: ServerLog, other: ServerLog) -> None:
    """Whoever has the first transaction of an epoch has the whole past that its leader had, and nothing else."""
    theirs = other.before()
    for first, before in best.before().items():
        if theirs.get(first, before) != before:
            raise HistoryUnreadable(
                f"The logs in {best.directory} and {other.directory} differ in what came before {first:#x}: "
                f"{before:#x} and {theirs[first]:#x}."
            )


def _read_log(directory: Path) -> ServerLog:
    inner = directory / VERSION_DIRECTORY
    directory = inner if inner.is_dir() else directory
    paths = {int(match[1], 16): path for path in directory.glob("log.*") if (match := _FILE.fullmatch(path.name))}
    found: dict[int, Transaction] = {}
    for _, path in sorted(paths.items()):
        try:
            found |= {transaction.zxid: transaction for transaction in read_transactions(path.read_bytes())}
        except OSError as error:
            raise HistoryUnreadable(f"{path} cannot be read: {error.strerror}.") from error
        except Malformed as error:
            raise HistoryUnreadable(f"{path} {error}.") from error
    if not found:
        raise HistoryUnreadable(f"{directory} holds no transaction of ZooKeeper.")
    return ServerLog(directory, [found[zxid] for zxid in sorted(found)])
