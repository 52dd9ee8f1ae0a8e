"""Asks ZooKeeper servers over the observer's link: who leads the ensemble, and who is Kafka's controller.

The leader is shown by the four-letter word `srvr`. The controller is read from `/controller` in a session of its own:
opening a session is a transaction, which a server cut off from its ensemble cannot commit, so no zombie answers.
https://zookeeper.apache.org/doc/r3.8.4/zookeeperAdmin.html#sc_4lw; zookeeper.jute for the requests.
"""

import json
import re
import socket
import struct
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from prozess.clusters.protocol.client import Cursor, Malformed
from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.errors import ClusterFailed

CONTROLLER = "/controller"
_GET_DATA, _CLOSE = 4, -11
_NO_NODE = -101
_SESSION_MS = 10_000
_RESPONSE_MAX_BYTES = 4 << 20
_PASSWORD_BYTES = 16


@dataclass(frozen=True, slots=True)
class ServerState:
    """Describes what a ZooKeeper server says of itself. `mode`: leader, follower, standalone; `zxid`: of the last
    transaction it knows."""

    mode: str
    zxid: int

    @property
    def leads(self) -> bool:
        return self.mode in ("leader", "standalone")


def parse_srvr(found: str) -> ServerState | None:
    """Reads the answer to `srvr`; None if the server serves nobody now."""
    mode, zxid = (
        re.search(r"^Mode: (\w+)$", found, re.MULTILINE),
        re.search(r"^Zxid: 0x([0-9a-f]+)$", found, re.MULTILINE),
    )
    return ServerState(mode[1], int(zxid[1], 16)) if mode and zxid else None


class ZooKeeperClient:
    """Asks ZooKeeper servers. `servers`: node id → (host, port). Every call ends within its limit. Safe to use from many
    threads."""

    def __init__(self, servers: Callable[[], Mapping[int, tuple[str, int]]], *, clock: Clock) -> None:
        self._servers, self._clock = servers, clock

    def states(self, *, timeout_s: float) -> Mapping[int, ServerState | None]:
        """Asks every server in parallel what it is; None if it does not answer, or serves nobody."""
        servers = self._servers()
        with ThreadPoolExecutor(max_workers=max(1, len(servers)), thread_name_prefix="srvr") as pool:
            found = pool.map(lambda node: self._state(node, timeout_s), servers)
            return dict(zip(servers, found, strict=True))

    def leader(self, *, timeout_s: float) -> int | None:
        """The node id of the ensemble's leader; None if no server says that it leads.

        For several (one is deposed and does not know yet) it is the one with the newest epoch."""
        leading = [node for node, state in self._newest_first(timeout_s) if state.leads]
        return leading[0] if leading else None

    def controller(self, *, timeout_s: float) -> int | None:
        """The broker id of Kafka's controller; None if there is none, or no server with a quorum reports in time."""
        deadline_ns = self._deadline_ns(timeout_s)
        serving = [node for node, _ in self._newest_first(timeout_s / 2)]
        for left, node in zip(range(len(serving), 0, -1), serving, strict=True):
            try:
                now_ns = self._clock.monotonic_ns()  # the next one may answer where this one cannot
                return self._controller_by(node, now_ns + (deadline_ns - now_ns) // left)
            except OSError:
                continue
        return None

    def _newest_first(self, timeout_s: float) -> list[tuple[int, ServerState]]:
        """Returns the servers that serve, by the epoch that they know, newest first, and in each epoch its leader
        first."""
        known = [(node, state) for node, state in self.states(timeout_s=timeout_s).items() if state is not None]
        return sorted(known, key=lambda pair: (pair[1].zxid >> 32, pair[1].leads), reverse=True)

    def _controller_by(self, node: int, deadline_ns: int) -> int | None:
        try:
            data = self._read(node, CONTROLLER, deadline_ns)
            return None if data is None else int(json.loads(data)["brokerid"])
        except (Malformed, ValueError, KeyError, TypeError) as error:
            host, port = self._servers()[node]
            raise ClusterFailed(
                f"ZooKeeper at {host}:{port} has a {CONTROLLER} that is not Kafka's: {error}."
            ) from error

    def _state(self, node: int, timeout_s: float) -> ServerState | None:
        deadline_ns = self._deadline_ns(timeout_s)
        try:
            with socket.create_connection(self._servers()[node], timeout_s) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while len(answer) < _RESPONSE_MAX_BYTES:
                    connection.settimeout(self._left_s(deadline_ns))
                    if not (part := connection.recv(65536)):
                        break
                    answer += part
        except OSError:
            return None
        return parse_srvr(answer.decode(errors="replace"))

    def _read(self, node: int, path: str, deadline_ns: int) -> bytes | None:
        """Reads the data of a node of the tree; None if there is none. OSError if there is no answer in time."""
        with socket.create_connection(self._servers()[node], self._left_s(deadline_ns)) as connection:
            opening = integer(0) + long(0) + integer(_SESSION_MS) + long(0)
            connection.sendall(_framed(opening + buffer(bytes(_PASSWORD_BYTES)) + boolean(False)))
            opened = JuteCursor(self._frame(connection, deadline_ns))
            opened.int32()  # protocol version
            if opened.int32() <= 0:
                raise ConnectionResetError("the session was refused")
            connection.sendall(_framed(integer(1) + integer(_GET_DATA) + text(path) + boolean(False)))
            answer = JuteCursor(self._frame(connection, deadline_ns))
            answer.int32(), answer.int64()  # number of the request, zxid
            error = answer.int32()
            connection.sendall(_framed(integer(2) + integer(_CLOSE)))
            self._frame(connection, deadline_ns)  # it is closed once the transaction is committed
        if error not in (0, _NO_NODE):
            raise ConnectionResetError(f"error {error}")
        return None if error else answer.buffer()

    def _frame(self, connection: socket.socket, deadline_ns: int) -> bytes:
        length = JuteCursor(self._receive(connection, 4, deadline_ns)).int32()
        if not 0 <= length <= _RESPONSE_MAX_BYTES:
            raise Malformed(f"claims to be {length} bytes long")
        return self._receive(connection, length, deadline_ns)

    def _receive(self, connection: socket.socket, length: int, deadline_ns: int) -> bytes:
        data = b""
        while len(data) < length:
            connection.settimeout(self._left_s(deadline_ns))
            if not (part := connection.recv(length - len(data))):
                raise ConnectionResetError("closed by the other side")
            data += part
        return data

    def _deadline_ns(self, timeout_s: float) -> int:
        return self._clock.monotonic_ns() + int(timeout_s * NS_PER_S)

    def _left_s(self, deadline_ns: int) -> float:
        left_s = (deadline_ns - self._clock.monotonic_ns()) / NS_PER_S
        if left_s <= 0:
            raise TimeoutError("no time left")
        return left_s


def _framed(body: bytes) -> bytes:
    return buffer(body)


# Jute, ZooKeeper's wire and log format: big endian, no tags, every length an int32 (-1: null).
#
# https://github.com/apache/zookeeper/blob/release-3.8.4/zookeeper-jute/src/main/resources/zookeeper.jute says which
# record holds what; https://github.com/apache/zookeeper/blob/release-3.8.4/zookeeper-
# jute/src/main/java/org/apache/jute/ BinaryInputArchive.java how.


_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")


class JuteCursor(Cursor):
    """Reads jute's types; int and long are `int32` and `int64`. `Malformed` if the bytes end too early."""

    __slots__ = ()

    def boolean(self) -> bool:
        return self.int8() != 0

    def buffer(self) -> bytes:
        """Reads bytes or text; null is empty."""
        return self.take(max(0, self.int32()))

    def text(self) -> str:
        """Reads bytes or text; null is empty."""
        data = self.buffer()
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise Malformed(f"a text before byte {self.position} is not UTF-8") from error

    def length(self) -> int:
        """Reads the length of a vector, whose elements follow; null is empty. `Malformed` if the bytes cannot hold so
        many."""
        length = max(0, self.int32())
        if length > len(self.data) - self.position:
            raise Malformed(f"a vector before byte {self.position} has {length} elements, more than there are bytes")
        return length


def integer(value: int) -> bytes:
    """Encodes an int: 4 bytes, the most significant first (jute)."""
    return _INT.pack(value)


def long(value: int) -> bytes:
    """Encodes a long: 8 bytes, the most significant first (jute)."""
    return _LONG.pack(value)


def boolean(value: bool) -> bytes:
    """Encodes a boolean: one byte, 1 or 0 (jute)."""
    return bytes([value])


def buffer(data: bytes) -> bytes:
    """Writes a buffer, or a vector of bytes."""
    return _INT.pack(len(data)) + data


def text(value: str) -> bytes:
    """Encodes a ustring: its length in UTF-8 as an int, then these bytes (jute)."""
    return buffer(value.encode())


def vector(*elements: bytes) -> bytes:
    """Writes a vector of encoded elements."""
    return _INT.pack(len(elements)) + b"".join(elements)
