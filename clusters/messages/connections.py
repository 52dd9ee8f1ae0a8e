"""The connections that a proxy carries: sockets, what waits to be sent on them, and messages that wait in between.

A connection has two directions. In each of them, what arrives is sent on in order. A message that a rule holds is a `Slot` in
that order: whatever is behind it waits, as behind a packet that is late. If one end is gone, what was on its way to the other
still arrives there.
"""

import ctypes
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from prozess.clusters.messages.frames import Frame, Splitter
from prozess.harness.config.messages.facts import MessageFacts

READ_BYTES = 256 << 10
WAITING_MAX_BYTES = 16 << 20
"""A direction is read no further while so much waits to be sent on it."""
SENT_TOGETHER = 256
"""At most this many pieces are sent with one call (writev(2) takes 1,024)."""
PENDING_MAX = 10_000
"""At most this many requests of a connection may be without an answer; older ones are forgotten."""
MARK = 0x70726F7A
"""What the proxy opens carries this mark, so that it is not led back to the proxy (socket(7), SO_MARK)."""
_RESET = struct.pack("ii", 1, 0)  # struct linger: on, 0 s (socket(7))
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Link:
    """A link is known by who opens its connections, and by the server that takes them."""

    opener: str
    server: str


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where the connections of a listener go on to. `network`: a descriptor of the network namespace to call from."""

    link: Link
    host: str
    port: int
    network: int | None


@dataclass(slots=True)
class Pending:
    """A request whose answer is still to come."""

    api: int
    version: int
    client: str = ""
    facts: MessageFacts | None = None
    after: list[bytes] | None = None
    """Answers of the proxy's own that must follow the answer to this request."""
    drop: bool = False
    """The answer is the second one to a request that was sent twice."""
    again: bool = False
    """The request was sent twice."""
    partner: int | None = None
    """The correlation id of the request that this one was swapped with."""
    early: "EarlyAnswer | None" = None
    """The answer to that request, which has come and waits for the one to this request."""


@dataclass(eq=False, slots=True)
class Slot:
    """A message's place among the bytes that are sent on. `data` None: it waits."""

    half: "Half"
    frame: Frame
    data: bytes | memoryview | None = None
    resets: bool = False
    """The connection is reset once everything before this, and `data`, was sent."""
    gone: bool = False
    """Its connection ended before it could be sent."""

    def end_with(self, data: bytes) -> None:
        """Lets the connection be reset once everything before this, and `data`, was sent."""
        self.data, self.resets, self.half.ending = data, True, True


@dataclass(eq=False, slots=True)
class Seen:
    """A message as rules see it."""

    link: Link
    api: int
    version: int
    answer: bool
    client: str
    facts: MessageFacts | None
    """None: it could not be read, or nobody asked."""
    pending: Pending | None = None


@dataclass(eq=False, slots=True)
class EarlyAnswer:
    """The answer to a swapped request, which waits for the one to its partner."""

    slot: Slot
    message: Seen


class DecidesOnMessages(Protocol):
    """Decides about messages: the rules of the proxy."""

    def wants(self, link: Link, api: int, *, answer: bool) -> bool:
        """Says whether any rule may concern such a message."""
        ...

    def request(self, slot: Slot) -> None:
        """Decides about a request, now or later, by `slot.data`."""
        ...

    def answer(self, slot: Slot, pending: Pending | None) -> None:
        """Decides about an answer, now or later."""
        ...


class Half:
    """One direction of a connection."""

    def __init__(self, connection: "Connection", source: socket.socket, sink: socket.socket, *, answers: bool) -> None:
        self.connection, self.source, self.sink, self.answers = connection, source, sink, answers
        self.queue: deque[memoryview | bytes | Slot] = deque()
        self.waiting_bytes = 0
        self.ended = False
        """Nothing more comes from the source."""
        self.finished = False
        """Everything was sent on, and the end, too."""
        self.discards = False
        """The sink is gone."""
        self.ending = False
        """A message that is in the queue resets the connection, so nothing behind it will ever arrive."""
        seen = connection.answer_seen if answers else connection.request_seen
        self.splitter = Splitter(answers=answers, seen=seen)
        self.splitter.would_want = connection.answer_wanted if answers else connection.request_wanted

    def push(self, data: memoryview | bytes | Slot) -> None:
        """Puts something behind everything that waits."""
        if self.discards and isinstance(data, Slot):
            data.gone = True
        self.queue.append(data)
        self.waiting_bytes += len(data.frame.data) if isinstance(data, Slot) else len(data)

    def send(self) -> None:
        """Sends on what can be sent now. Resets or ends the connection where that is due."""
        while self.queue:
            ready = self._ready()
            if not ready:
                return
            sent = sum(map(len, ready))
            if sent and not self.discards:
                try:
                    sent = self.sink.sendmsg(ready)
                except BlockingIOError:
                    return
                except OSError:
                    self.discard()
                    continue
            if not self._forget_sent(ready, sent):
                return
        if self.ended and not self.finished:
            self.finished = True
            self.connection.half_finished(self)

    def _ready(self) -> list[memoryview | bytes]:
        """Returns what can be sent now with one call: nothing behind a message that waits, or behind the connection's end."""
        ready: list[memoryview | bytes] = []
        for one in islice(self.queue, SENT_TOGETHER):
            data = one.data if isinstance(one, Slot) else one
            if data is None:
                break
            ready.append(data)
            if isinstance(one, Slot) and one.resets:
                break
        return ready

    def _forget_sent(self, ready: Sequence[memoryview | bytes], sent: int) -> bool:
        """Takes what was sent from the queue. Returns whether more can be sent."""
        for data in ready:
            first = self.queue[0]
            if sent < len(data):
                self._keep_rest(first, memoryview(data)[sent:])
                return False
            sent -= len(data)
            self.queue.popleft()
            self.waiting_bytes -= len(first.frame.data) if isinstance(first, Slot) else len(data)
            if isinstance(first, Slot) and first.resets:
                self.connection.reset()
                return False
        assert self.waiting_bytes >= 0, "more was sent than waited"
        assert self.queue or not self.waiting_bytes, f"nothing waits, and {self.waiting_bytes} bytes do"
        return True

    def _keep_rest(self, first: memoryview | bytes | Slot, rest: memoryview) -> None:
        if isinstance(first, Slot):
            first.data = rest
        else:
            self.waiting_bytes -= len(first) - len(rest)
            self.queue[0] = rest

    def discard(self) -> None:
        """Forgets what was to be sent: the other end is gone."""
        self.discards = True
        for one in self.queue:
            if isinstance(one, Slot):
                one.gone = True
        self.queue.clear()
        self.waiting_bytes = 0

    @property
    def can_send(self) -> bool:
        """Says whether there is something to send: the first in the queue is no message that waits."""
        if not self.queue:
            return False
        first = self.queue[0]
        return not (isinstance(first, Slot) and first.data is None)


class Connection:
    """Two sockets, and what passes between them."""

    def __init__(self, client: socket.socket, upstream: Upstream, watcher: DecidesOnMessages, poller: "Poller") -> None:
        """OSError if the upstream cannot even be called."""
        self.link, self._watcher, self._poller = upstream.link, watcher, poller
        self.client = client
        self.pending: dict[int, Pending] = {}
        self.broken = False
        """One end was reset, or could not be reached."""
        self.closed = False
        self.connected = False
        self._settled: list[bytes] = []
        """Answers of the proxy's own that wait until an answer has passed of which a part has gone on already."""
        self.server = _opened(upstream)
        for one in (client, self.server):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.requests = Half(self, client, self.server, answers=False)
        self.replies = Half(self, self.server, client, answers=True)
        poller.add(self)

    # What the splitters ask

    def request_wanted(self, api: int, _version: int, _correlation: int) -> bool:
        """Says whether a request of this API must be seen whole."""
        return self._watcher.wants(self.link, api, answer=False) or self._watcher.wants(self.link, api, answer=True)

    def request_seen(self, api: int, version: int, correlation: int, unanswered: bool) -> bool:
        """Notes a request, unless nobody will answer it. Returns whether it must be seen whole."""
        pending = self.pending
        if not unanswered:
            pending[correlation] = Pending(api, version)
            if len(pending) > PENDING_MAX:
                del pending[next(iter(pending))]
        return self.request_wanted(api, version, correlation)

    def answer_wanted(self, _api: int, _version: int, correlation: int) -> bool:
        """Says whether the answer with this correlation id must be seen whole."""
        pending = self.pending.get(correlation)
        if pending is None:
            return False
        special = pending.after or pending.drop or pending.again or pending.partner is not None
        return bool(special) or self._watcher.wants(self.link, pending.api, answer=True)

    def answer_seen(self, api: int, version: int, correlation: int, _unanswered: bool) -> bool:
        """Notes an answer. Returns whether it must be seen whole."""
        if self.answer_wanted(api, version, correlation):
            return True
        self.pending.pop(correlation, None)
        return False

    # Events

    def readable(self, half: Half) -> None:
        """Reads once, and sends on what can go on."""
        try:
            data = half.source.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._source_lost(half)
            return
        if not data:
            self._source_ended(half)
            return
        was_foreign = half.splitter.foreign
        if half.answers and self._settled and 0 < (passing := half.splitter.passing) <= len(data):
            self._feed(half, data[:passing])
            self._push_own(self._settled)
            self._settled, data = [], data[passing:]
        self._feed(half, data)
        if self.closed:
            return
        if half.splitter.foreign and not was_foreign:
            other = self._opposite(half)
            other.splitter.foreign = True
            if rest := other.splitter.rest():
                other.push(rest)
                other.send()
        half.send()
        self._poller.update(self)

    def _feed(self, half: Half, data: bytes) -> None:
        for piece in half.splitter.feed(data) if data else ():
            if isinstance(piece, Frame):
                self._message(half, piece)
            else:
                half.push(piece)
            if self.closed:  # a rule has let a message go on that ends the connection
                return

    def _opposite(self, half: Half) -> Half:
        return self.replies if half is self.requests else self.requests

    def _message(self, half: Half, frame: Frame) -> None:
        slot = Slot(half, frame)
        half.push(slot)
        if half.ending:  # no rule can do anything to a message that never arrives
            slot.data = b""
            return
        if not half.answers:
            self._watcher.request(slot)
            return
        pending = self.pending.pop(frame.correlation, None)
        if pending is not None and pending.drop:
            slot.data = b""
            return
        if pending is not None and pending.again:
            self.pending[frame.correlation] = Pending(pending.api, pending.version, drop=True)
        self._watcher.answer(slot, pending)
        if pending is not None:
            for own in pending.after or ():
                half.push(own)

    def _source_ended(self, half: Half) -> None:
        half.ended = True
        if rest := half.splitter.rest():
            half.push(rest)
        half.send()
        self._poller.update(self)

    def _source_lost(self, half: Half) -> None:
        """The source was reset: nothing can be sent to it either."""
        self.broken = True
        back = self._opposite(half)
        back.discard()
        back.ended = back.finished = True
        half.ended = True
        half.send()
        if half.finished or not half.queue:
            self.reset()
        else:
            self._poller.update(self)

    def half_finished(self, half: Half) -> None:
        """Is called when everything of one direction was sent and its source has ended."""
        if self.broken:
            self.reset()
            return
        with suppress(OSError):
            half.sink.shutdown(socket.SHUT_WR)
        if self.requests.finished and self.replies.finished:
            self.reset(gently=True)

    def hung_up(self, half: Half) -> None:
        """Is called when the end that this direction came from has ended, and takes nothing any more."""
        back = self._opposite(half)
        back.discard()
        back.send()
        self._poller.forget(half.source)
        self._poller.update(self)

    def writable(self, half: Half) -> None:
        """Sends on what waits."""
        if half is self.requests and not self.connected:
            failed = self.server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failed:
                self.reset()
                return
            self.connected = True
        half.send()
        self._poller.update(self)

    def resume(self, slot: Slot) -> None:
        """Goes on after something was decided about a message that waited."""
        if not self.closed:
            slot.half.send()
            if not self.closed:
                self._poller.update(self)

    def settle(self, correlation: int, *own: bytes) -> None:
        """Expects no answer to a request any more: it was lost, or this is the proxy's own answer, which goes to the client
        after the answers to all requests before it.

        The client asked 1, 2 and 3. Request 3 is answered by the proxy: `pending[2].after` has that answer. Then request 2 is
        lost: what follows its answer follows answer 1 from now on. Answer 1 comes, and answer 3 goes on behind it.
        """
        before = None
        for number, pending in self.pending.items():
            if number == correlation:
                break
            before = pending if not pending.drop else before
        mine = self.pending.pop(correlation, None)
        answers = [*own, *((mine.after if mine is not None else None) or ())]
        if before is not None:
            before.after = [*(before.after or ()), *answers]
        elif self.replies.splitter.passing:
            self._settled += answers
        else:
            self._push_own(answers)
            self.replies.send()

    def _push_own(self, answers: Sequence[bytes]) -> None:
        for one in answers:
            self.replies.push(one)

    def swap_pending(self, first: int, second: int) -> None:
        """Notes that the server gets the second request before the first one.

        `pending` is in the order in which the server answers, and `after` belongs to a position in it. The client asked 1, 2
        and 3, the proxy answers 2 itself, and 1 and 3 are swapped:

            before    1 (after: own 2), 3         the server gets 3, 1
            after     3 (after: own 2), 1         answers 3, own 2, 1; answers 3 and 1 change slots: 1, own 2, 3
        """
        assert first != second, f"request {first} cannot pass itself"
        one, other = self.pending.get(first), self.pending.get(second)
        if one is None or other is None:
            return  # nobody answers one of them, so nothing must be put in order
        one.partner, other.partner = second, first
        one.after, other.after = other.after, one.after
        changed = {first: (second, other), second: (first, one)}
        self.pending = dict(changed.get(number, (number, pending)) for number, pending in self.pending.items())

    def reset(self, *, gently: bool = False) -> None:
        """Ends the connection at both ends, with an RST unless `gently`."""
        if self.closed:
            return
        self.closed = True
        self._poller.remove(self)
        for half in (self.requests, self.replies):
            half.discard()
        for one in (self.client, self.server):
            with suppress(OSError):
                if not gently:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            one.close()


def _opened(upstream: Upstream) -> socket.socket:
    """Opens a socket in the opener's network, and begins to connect it."""
    found = in_network(upstream.network, lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    found.setblocking(False)
    with suppress(OSError):  # without the capability nothing is redirected either
        found.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
    code = found.connect_ex((upstream.host, upstream.port))
    if code not in (0, 115):  # EINPROGRESS
        found.close()
        raise OSError(code, os.strerror(code))
    return found


def in_network(network: int | None, make: Callable[[], socket.socket]) -> socket.socket:
    """Makes a socket in the network namespace of a descriptor, and comes back. This process has one thread."""
    if network is None:
        return make()
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        if _libc.setns(network, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        try:
            return make()
        finally:
            if _libc.setns(home, _CLONE_NEWNET):
                raise AssertionError("the proxy cannot come back to its own network")
    finally:
        os.close(home)


class Poller:
    """Waits for the sockets of all connections, and for each only as long as its connection can use that."""

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.halves: dict[int, tuple[Connection, Half, Half]] = {}
        """Descriptor → the connection, the direction that is read from it, and the one that is written to it."""
        self._masks: dict[int, int] = {}
        self.opened = 0

    def add(self, connection: Connection) -> None:
        """Begins to wait for a connection."""
        self.opened += 1
        client, server = connection.client.fileno(), connection.server.fileno()
        assert not {client, server} & self.halves.keys(), "a closed connection was not removed"
        self.halves[client] = (connection, connection.requests, connection.replies)
        self.halves[server] = (connection, connection.replies, connection.requests)
        for descriptor, mask in ((client, select.EPOLLIN), (server, select.EPOLLIN | select.EPOLLOUT)):
            self._masks[descriptor] = mask
            self.epoll.register(descriptor, mask)

    def update(self, connection: Connection) -> None:
        """Waits from now on for what the connection can use."""
        if connection.closed:
            return
        for descriptor in (connection.client.fileno(), connection.server.fileno()):
            if descriptor not in self._masks:
                continue
            _, read, written = self.halves[descriptor]
            mask = 0
            if not read.ended and read.waiting_bytes < WAITING_MAX_BYTES:
                mask |= select.EPOLLIN
            if written.can_send or (written is connection.requests and not connection.connected):
                mask |= select.EPOLLOUT
            if mask != self._masks[descriptor]:
                self._masks[descriptor] = mask
                self.epoll.modify(descriptor, mask)

    def forget(self, one: socket.socket) -> None:
        """Waits for a socket no more: it would be reported as hung up for ever."""
        if self._masks.pop(one.fileno(), None) is not None:
            del self.halves[one.fileno()]
            self.epoll.unregister(one.fileno())

    def remove(self, connection: Connection) -> None:
        """Waits for the connection no more."""
        self.forget(connection.client)
        self.forget(connection.server)
