"""Finds the messages in the bytes of a connection, without touching what nobody asks for. No sockets: bytes in, pieces out.

A message is its size (int32), then a header: of a request the API key, the version and the correlation id, of an answer the
correlation id (https://kafka.apache.org/protocol). What is not of this form is passed on as it is, from there to the end of
the connection.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

MESSAGE_MAX_BYTES = 512 << 20
"""A larger size is no message of Kafka's (`socket.request.max.bytes` is 100 MiB, an answer to a Fetch may be larger)."""
COLLECTED_MAX_BYTES = 128 << 20
"""A larger message is passed on, and not looked into."""
API_MAX, VERSION_MAX = 1023, 127
PRODUCE = 0
"""The key of the API Produce."""

_SIZE = struct.Struct(">i")
_REQUEST = struct.Struct(">ihhi")
_ANSWER = struct.Struct(">ii")

_NAMED_AT = 14
"""Where the client id of a request begins. Two bytes before it say how long it is; a null one is shorter than nothing."""
assert _REQUEST.size + 2 == _NAMED_AT
_NULL = 0x8000
_NO_ACKS, _NO_ACKS_SINCE_3, _NO_ACKS_SINCE_9 = b"\0\0", b"\xff\xff\0\0", b"\0\0\0\0"
"""What follows the client id in a Produce request with acks=0: acks; since version 3 a null transactional id before it, and
since version 9, which is flexible (KIP-482), a count of no tagged fields before that. A transactional producer has
acks=all."""

Seen = Callable[[int, int, int], bool]
"""(API key, version, correlation id; of an answer -1, -1 and the correlation id) → whether the whole message is wanted."""
SeenToo = Callable[[int, int, int, bool], bool]
"""The same, and whether the message is a request that nobody answers: a Produce request with acks=0."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A whole message that somebody wants to see: its size, header and body."""

    data: bytes
    correlation: int


Piece = bytes | memoryview | Frame


class Splitter:
    """Divides one direction of a connection into pieces: whole messages that are wanted, and bytes to pass on."""

    def __init__(self, *, answers: bool, seen: SeenToo) -> None:
        self._answers, self._seen = answers, seen
        self._head = _ANSWER if answers else _REQUEST
        self._passing = 0
        """How many bytes of the present message are passed on without being looked at."""
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._wanted_bytes = 0
        """How many bytes must have come before it is worth looking again; 0: look now."""
        self.foreign = False
        """The bytes are none of Kafka's messages."""

    def feed(self, data: bytes) -> list[Piece]:
        """Takes the next bytes, and returns what can go on, in order."""
        if self.foreign:
            return [data]
        assert not (self._kept and self._passing), "a message is kept whole, or passed on, and not both"
        if self._kept:
            self._kept.append(data)
            self._kept_bytes += len(data)
            if self._kept_bytes < self._wanted_bytes:
                return []
            data = b"".join(self._kept)
            self._kept, self._kept_bytes = [], 0
        passing, length = self._passing, len(data)
        if passing >= length:
            self._passing = passing - length
            return [data]
        return self._divide(data, passing, length)

    def _divide(self, data: bytes, at: int, length: int) -> list[Piece]:
        """Divides `data`, in which the next message begins at `at`."""
        pieces: list[Piece] = []
        passed_from, view = 0, memoryview(data)
        self._passing = 0
        while at < length:
            head = self._read_head(data, at, length)
            if head is None:
                at = length if self.foreign else at
                break
            size, api, version, correlation = head
            end = at + 4 + size
            unanswered = api == PRODUCE and self._unanswered(data, at, version, end)
            if unanswered is None:
                break
            if end > length and size <= COLLECTED_MAX_BYTES and self._would_want(api, version, correlation):
                self._keep(data[at:], 4 + size)
                break
            if self._seen(api, version, correlation, unanswered) and end <= length:
                if passed_from < at:
                    pieces.append(view[passed_from:at])
                pieces.append(Frame(data[at:end], correlation))
                passed_from = end
            at = end
        kept_from = min(at, length - self._kept_bytes)
        if passed_from < kept_from:
            pieces.append(view[passed_from:kept_from])
        self._passing = max(0, at - length)
        return pieces

    def _read_head(self, data: bytes, at: int, length: int) -> tuple[int, int, int, int] | None:
        """Returns size, API key, version and correlation id. None if they have not all come, which are then kept, or if
        this is no message."""
        if length - at < self._head.size:
            if length - at >= 4 and not 4 <= _SIZE.unpack_from(data, at)[0] <= MESSAGE_MAX_BYTES:
                self.foreign = True  # it may be answered, and then more comes: this cannot wait for a whole header
            else:
                self._keep(data[at:], self._head.size)
            return None
        if self._answers:
            size, correlation = _ANSWER.unpack_from(data, at)
            api = version = -1
            self.foreign = not 4 <= size <= MESSAGE_MAX_BYTES
        else:
            size, api, version, correlation = _REQUEST.unpack_from(data, at)
            self.foreign = not (8 <= size <= MESSAGE_MAX_BYTES and 0 <= api <= API_MAX and 0 <= version <= VERSION_MAX)
        return None if self.foreign else (size, api, version, correlation)

    def _unanswered(self, data: bytes, at: int, version: int, end: int) -> bool | None:
        """Says whether a Produce request has acks=0. None if too little of it has come to say, which is then kept."""
        body_at = at + _NAMED_AT
        if body_at <= len(data):
            client_bytes = data[body_at - 2] << 8 | data[body_at - 1]
            body_at += client_bytes if client_bytes < _NULL else 0
        begins = _NO_ACKS_SINCE_9 if version >= 9 else _NO_ACKS_SINCE_3 if version >= 3 else _NO_ACKS
        needed = body_at + len(begins)
        if needed > end:
            return False  # whatever it is, it is no Produce request
        if needed > len(data):
            self._keep(data[at:], needed - at)
            return None
        return data.startswith(begins, body_at)

    @property
    def passing(self) -> int:
        """How many bytes are still to come of a message whose beginning was passed on already."""
        return self._passing

    would_want: Seen | None = None
    """Like `seen`, but asked before the message is whole, and without effect."""

    def _would_want(self, api: int, version: int, correlation: int) -> bool:
        return self.would_want is not None and self.would_want(api, version, correlation)

    def _keep(self, rest: bytes, wanted_bytes: int) -> None:
        assert len(rest) < wanted_bytes, f"{len(rest)} bytes are enough: {wanted_bytes} are awaited"
        self._kept, self._kept_bytes, self._wanted_bytes = [rest], len(rest), wanted_bytes

    def rest(self) -> bytes:
        """Returns bytes that were kept back, when the connection ends within a message."""
        found = b"".join(self._kept)
        self._kept, self._kept_bytes = [], 0
        return found
