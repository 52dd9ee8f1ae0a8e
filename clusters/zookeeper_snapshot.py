"""A snapshot of ZooKeeper's tree, as transactions: each node as it was last written, with when that was.

Read where no log tells the beginning. It is fuzzy: taken while transactions went on, so it may hold some that are newer than
its name says; those are in the log behind it, and left out here. [SnapStream, FileSnap, SerializeUtils, DataTree.serialize]
"""

import struct
from pathlib import Path

from clusters import jute
from clusters.jute import JuteCursor
from clusters.wire import Malformed
from clusters.zookeeper_transactions import Operation, Transaction
from harness.errors import HistoryUnreadable

_HEADER = struct.Struct(">4siq")
_MAGIC, _VERSION = b"ZKSN", 2
_STAT = struct.Struct(">qqqqiiiqq")
"""czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeral owner, pzxid."""
_END = "/"
"""The path that ends the tree; the root's is empty."""


def snapshot_transactions(path: Path, zxid: int) -> list[Transaction]:
    """The nodes of the tree as of that transaction, in the order in which they were last written. HistoryUnreadable if the
    file is no whole snapshot."""
    try:
        return sorted((t for t in _read(path.read_bytes()) if t.zxid <= zxid), key=lambda transaction: transaction.zxid)
    except OSError as error:
        raise HistoryUnreadable(f"{path} cannot be read: {error.strerror}.") from error
    except Malformed as error:
        raise HistoryUnreadable(f"{path} {error}.") from error


def _read(data: bytes) -> list[Transaction]:
    if len(data) < _HEADER.size or _HEADER.unpack_from(data)[:2] != (_MAGIC, _VERSION):
        raise Malformed(f"is no snapshot of version {_VERSION}: it begins with {data[:8]!r}")
    cursor = JuteCursor(data, _HEADER.size)
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
        body = jute.text(name) + jute.buffer(content) + jute.vector() + jute.boolean(owner != 0) + jute.integer(0)
        found.append(Transaction(changed, changed_ms, owner, Operation.CREATE, body, checksum=0))
    return found
