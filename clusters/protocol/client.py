"""Kafka's wire format, and a bounded client that asks exactly one node.

Why not librdkafka: it may send a metadata or offset request to any broker, while a trial needs what *this* broker says (a
zombie goes on naming itself leader). Framing and primitive types: https://kafka.apache.org/protocol. The requests
themselves are in `prozess.clusters.protocol.requests`.

Encoders and decoders are pure. Only `WireClient` touches the network, and each of its calls ends within `timeout_s`.
"""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.errors import ClusterFailed

T = TypeVar("T")
CLIENT_ID = "prozess-observer"
RESPONSE_MAX_BYTES = 64 << 20

NO_TAGS = b"\0"
"""The bytes of no tagged fields (KIP-482)."""

_INT8, _INT16, _INT32, _INT64 = (struct.Struct(">" + code) for code in "bhiq")


class Malformed(ValueError):
    """An error: the bytes are not what the schema says."""


class Cursor:
    """Reads Kafka's primitive types from `data`, big endian, from `position` on. `Malformed` if it ends too early."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data, self.position = data, position

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        """Reads the integers of a `struct` layout."""
        try:
            values = layout.unpack_from(self.data, self.position)
        except struct.error as error:
            raise Malformed(f"ends at byte {len(self.data)} inside a value that begins at {self.position}") from error
        self.position += layout.size
        return values

    def int8(self) -> int:
        return self.numbers(_INT8)[0]

    def int16(self) -> int:
        return self.numbers(_INT16)[0]

    def int32(self) -> int:
        return self.numbers(_INT32)[0]

    def int64(self) -> int:
        return self.numbers(_INT64)[0]

    def int32s(self, length: int) -> tuple[int, ...]:
        """Reads `length` times int32; a null array (length -1) is empty."""
        return self.numbers(struct.Struct(f">{length}i")) if length > 0 else ()

    def take(self, length: int) -> bytes:
        """Reads the next `length` bytes."""
        end = self.position + length
        if length < 0 or end > len(self.data):
            raise Malformed(f"asks for {length} bytes at {self.position}, but there are {len(self.data)} in all")
        value = self.data[self.position : end]
        self.position = end
        return value

    def unsigned_varint(self) -> int:
        """Reads an unsigned varint: base 128, least significant group first."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise Malformed(f"a varint before byte {self.position} has no end")

    def varint(self) -> int:
        """Reads a varint in zigzag order: 0, -1, 1, -2, …"""
        value = self.unsigned_varint()
        return (value >> 1) ^ -(value & 1)

    def string(self) -> str | None:
        """Reads a string: int16 length, then UTF-8; length -1 is null."""
        length = self.int16()
        return None if length < 0 else self._text(length)

    def compact_string(self) -> str | None:
        """Reads a compact string: length + 1 as unsigned varint; 0 is null."""
        length = self.unsigned_varint() - 1
        return None if length < 0 else self._text(length)

    def compact_int32s(self) -> tuple[int, ...]:
        """Reads a compact array of int32: length + 1 as unsigned varint; null is empty."""
        return self.int32s(self.unsigned_varint() - 1)

    def uuid(self) -> UUID:
        return UUID(bytes=self.take(16))

    def tagged_fields(self) -> dict[int, bytes]:
        """Reads tagged fields: tag → its bytes."""
        return {self.unsigned_varint(): self.take(self.unsigned_varint()) for _ in range(self.unsigned_varint())}

    def _text(self, length: int) -> str:
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise Malformed(f"a text before byte {self.position} is not UTF-8") from error


# Encoding


def unsigned_varint(value: int) -> bytes:
    """Writes what `Cursor.unsigned_varint` reads."""
    assert value >= 0, value
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Writes what `Cursor.varint` reads."""
    return unsigned_varint(value << 1 if value >= 0 else (-value << 1) - 1)


def string(text: str) -> bytes:
    """Writes what `Cursor.string` reads."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def compact_string(text: str) -> bytes:
    """Writes what `Cursor.compact_string` reads."""
    data = text.encode()
    return unsigned_varint(len(data) + 1) + data


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """A request, and how to read its response. `flexible`: the newer header with tagged fields (KIP-482)."""

    api_key: int
    version: int
    body: bytes
    decode: Callable[[Cursor], T]
    flexible: bool = False
    flexible_response: bool = False

    def frame(self, correlation: int) -> bytes:
        """Returns the bytes that go over the wire."""
        assert not self.flexible_response or self.flexible, (
            f"API {self.api_key}: no inflexible request has a flexible response"
        )
        head = struct.pack(">hhi", self.api_key, self.version, correlation) + string(CLIENT_ID)
        payload = head + NO_TAGS * self.flexible + self.body
        return _INT32.pack(len(payload)) + payload

    def answer(self, payload: bytes, correlation: int) -> T:
        """Decodes a response, without its length prefix. `Malformed` if it is not one to this request."""
        cursor = Cursor(payload)
        if (answered := cursor.int32()) != correlation:
            raise Malformed(f"answers request {answered} instead of {correlation}")
        if self.flexible_response:
            cursor.tagged_fields()
        return self.decode(cursor)


# Asking


class LogsIn(Protocol):
    """The way by which a client logs in (`prozess.clusters.protocol.login`)."""

    def secured(self, connection: socket.socket, host: str) -> socket.socket: ...
    def refused(self, error: ssl.SSLError) -> ClusterFailed | None: ...
    def authenticate(self, ask: Callable[[Request[tuple[int, str, bytes]]], tuple[int, str, bytes]]) -> None: ...


class WireClient:
    """Asks nodes by id, over connections that are kept while they work. Safe to use from many threads.

    `servers` says where they are: node id → (host, port). `name`: what they are, for errors ("broker"). `login`: how it logs
    in; None = PLAINTEXT.
    """

    def __init__(
        self,
        servers: Callable[[], Mapping[int, tuple[str, int]]],
        *,
        name: str,
        clock: Clock,
        login: LogsIn | None = None,
    ) -> None:
        self._servers, self._name, self._clock, self._login = servers, name, clock, login
        self._idle: dict[int, list[socket.socket]] = {}
        self._lock = threading.Lock()

    def ask(self, node_id: int, *requests: Request[T], timeout_s: float) -> list[T] | None:
        """Sends the requests at once, and returns the node's answers; None if it does not answer them all in time.

        A kept connection that turns out to be dead (the node was restarted) is replaced once. ClusterFailed if the answer
        is not one of Kafka's: another program listens there, or another version; or if the node refuses our login.
        """
        deadline_ns = self._clock.monotonic_ns() + int(timeout_s * NS_PER_S)
        kept = self._take_idle(node_id)
        if kept is not None:
            try:
                return self._exchange(node_id, kept, requests, deadline_ns)
            except TimeoutError:
                return None
            except OSError:
                self._drop_idle(node_id)  # closed by the other side: a new connection says whether the node lives
        try:
            return self._exchange(node_id, self._connect(node_id, deadline_ns), requests, deadline_ns)
        except ssl.SSLError as error:
            self._raise_if_refused(node_id, error)
            return None
        except OSError:
            return None

    def close(self) -> None:
        """Closes every kept connection. The client may be used again."""
        with self._lock:
            nodes = list(self._idle)
        for node_id in nodes:
            self._drop_idle(node_id)

    def _drop_idle(self, node_id: int) -> None:
        with self._lock:
            dropped = self._idle.pop(node_id, [])
        for connection in dropped:
            connection.close()

    def _take_idle(self, node_id: int) -> socket.socket | None:
        with self._lock:
            return self._idle[node_id].pop() if self._idle.get(node_id) else None

    def _connect(self, node_id: int, deadline_ns: int) -> socket.socket:
        """Opens a connection, and logs in."""
        connection = socket.create_connection(self._servers()[node_id], self._left_s(deadline_ns))
        if self._login is None:
            return connection
        try:
            connection.settimeout(self._left_s(deadline_ns))
            connection = self._login.secured(connection, self._servers()[node_id][0])
            self._login.authenticate(lambda request: self._answers(connection, (request,), deadline_ns)[0])
        except BaseException as error:
            connection.close()
            if isinstance(error, ClusterFailed | Malformed):
                raise self._named(node_id, error) from error
            raise
        return connection

    def _raise_if_refused(self, node_id: int, error: ssl.SSLError) -> None:
        refused = None if self._login is None else self._login.refused(error)
        if refused is not None:
            raise self._named(node_id, refused) from error

    def _named(self, node_id: int, error: Exception) -> ClusterFailed:
        host, port = self._servers()[node_id]
        text = f"its answer to the login {error}." if isinstance(error, Malformed) else str(error)
        return ClusterFailed(f"{self._name} {node_id} at {host}:{port}: {text}")

    def _exchange(
        self, node_id: int, connection: socket.socket, requests: Sequence[Request[T]], deadline_ns: int
    ) -> list[T]:
        """Sends all requests, reads all answers, and keeps the connection; closes it if anything goes wrong."""
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answers = self._answers(connection, requests, deadline_ns)
        except Malformed as error:
            connection.close()
            host, port = self._servers()[node_id]
            raise ClusterFailed(
                f"{self._name} {node_id} at {host}:{port} sent an answer that is not Kafka's: it {error}. "
                "Is another program listening there?"
            ) from error
        except BaseException:
            connection.close()
            raise
        assert len(answers) == len(requests), "a connection that is kept has no answer on its way"
        with self._lock:
            self._idle.setdefault(node_id, []).append(connection)
        return answers

    def _answers(self, connection: socket.socket, requests: Sequence[Request[T]], deadline_ns: int) -> list[T]:
        connection.settimeout(self._left_s(deadline_ns))
        connection.sendall(b"".join(request.frame(number) for number, request in enumerate(requests)))
        answers = []
        for number, request in enumerate(requests):
            length = _INT32.unpack(self._receive(connection, 4, deadline_ns))[0]
            if not 4 <= length <= RESPONSE_MAX_BYTES:
                raise Malformed(f"claims to be {length} bytes long")
            answers.append(request.answer(self._receive(connection, length, deadline_ns), number))
        return answers

    def _receive(self, connection: socket.socket, length: int, deadline_ns: int) -> bytes:
        data = bytearray(length)
        view, done = memoryview(data), 0
        while done < length:
            connection.settimeout(self._left_s(deadline_ns))
            got = connection.recv_into(view[done:])
            if got == 0:
                raise ConnectionResetError("closed by the other side")
            done += got
        return bytes(data)

    def _left_s(self, deadline_ns: int) -> float:
        left_s = (deadline_ns - self._clock.monotonic_ns()) / NS_PER_S
        if left_s <= 0:
            raise TimeoutError("no time left")
        return left_s
