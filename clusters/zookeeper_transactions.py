"""ZooKeeper's transactions: what every change of the tree was, and how they stand in a log file.

A file is a header, then records of checksum (Adler-32), length, bytes and the letter B; zeros where space was reserved.
[FileTxnLog; zookeeper.jute]
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from clusters.jute import JuteCursor
from clusters.wire import Malformed

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
