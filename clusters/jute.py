"""Jute, ZooKeeper's wire and log format: big endian, no tags, every length an int32 (-1: null).

https://github.com/apache/zookeeper/blob/release-3.8.4/zookeeper-jute/src/main/resources/zookeeper.jute says which record
holds what; https://github.com/apache/zookeeper/blob/release-3.8.4/zookeeper-jute/src/main/java/org/apache/jute/
BinaryInputArchive.java how.
"""

import struct

from clusters.wire import Cursor, Malformed

_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")


class JuteCursor(Cursor):
    """Reads jute's types; int and long are `int32` and `int64`. `Malformed` if the bytes end too early."""

    __slots__ = ()

    def boolean(self) -> bool:
        return self.int8() != 0

    def buffer(self) -> bytes:
        """Null is empty."""
        return self.take(max(0, self.int32()))

    def text(self) -> str:
        """Null is empty."""
        data = self.buffer()
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise Malformed(f"a text before byte {self.position} is not UTF-8") from error

    def length(self) -> int:
        """Of a vector; null is empty. What it holds follows. `Malformed` if it cannot be: an element has a byte at least."""
        length = max(0, self.int32())
        if length > len(self.data) - self.position:
            raise Malformed(f"a vector before byte {self.position} has {length} elements, more than there are bytes")
        return length


def integer(value: int) -> bytes:
    """An int."""
    return _INT.pack(value)


def long(value: int) -> bytes:
    """A long."""
    return _LONG.pack(value)


def boolean(value: bool) -> bytes:
    """A boolean."""
    return bytes([value])


def buffer(data: bytes) -> bytes:
    """A buffer, or a vector of bytes."""
    return _INT.pack(len(data)) + data


def text(value: str) -> bytes:
    """A ustring."""
    return buffer(value.encode())


def vector(*elements: bytes) -> bytes:
    """A vector of encoded elements."""
    return _INT.pack(len(elements)) + b"".join(elements)
