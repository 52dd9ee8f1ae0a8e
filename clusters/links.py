"""The ends of a cluster's links, as faults of the network need them: where each is, and how to act in its network.

A backend gives one `LinkEnd` per node and one for the trial's clients; with them it has every part of `clusters.link_parts`.
Everything here is done from inside an end's network namespace, so the observer's link is left alone by choosing addresses of
the data network, and a rule belongs to the node and not to its process.
"""

import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from harness.clock import NS_PER_S, Clock
from harness.errors import HarnessFailed

T = TypeVar("T")
API_VERSIONS = b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff"
"""ApiVersions v0, correlation 1, no client id: every Kafka server answers (KIP-35)."""
FOUR_LETTERS = b"srvr"
"""A ZooKeeper server answers: the only word that `4lw.commands.whitelist` has by default."""
ARRIVE_S = 0.1
"""How long a datagram may take; between namespaces of one machine it takes microseconds, on a starved one milliseconds."""
_BURST = 40
"""Datagrams sent before any is taken out: fewer than a socket's default buffer holds (rmem_default, 208 KiB)."""


class NetworkSeam(Protocol):
    """How a backend acts in the network namespace of one end."""

    def run_as_root(self, argv: Sequence[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of this host there, as root. What it returns is the caller's to judge; MissingTool or HarnessFailed
        if it cannot be run or does not end in time."""
        ...

    def call(self, function: Callable[[], T]) -> T:
        """Call `function` there: a socket it makes stays in that namespace, and a process it starts is born there."""
        ...


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """A node, or the trial's clients."""

    name: str
    address: str
    """On the network that faults touch."""
    network: NetworkSeam
    ports: tuple[int, ...] = ()
    """TCP ports on which it serves there."""
    question: bytes = API_VERSIONS
    """What a server at the first of them answers."""
    has_rules: bool = True
    """May rules be made in its network? Where not, they are made at the other end of its links."""


class Links(Mapping[str, LinkEnd]):
    """Every end, by name. Asked anew each time: addresses and namespaces may change when a node restarts."""

    def __init__(self, ends: Callable[[], Iterable[LinkEnd]], *, clock: Clock) -> None:
        self._ends, self._clock = ends, clock
        self._probing = threading.Lock()
        self._probes = 0

    def __getitem__(self, name: str) -> LinkEnd:
        for end in self._ends():
            if end.name == name:
                return end
        raise HarnessFailed(f"{name!r} is no end of a link of this cluster.")

    def __iter__(self) -> Iterator[str]:
        return (end.name for end in self._ends())

    def __len__(self) -> int:
        return sum(1 for _ in self._ends())

    def besides(self, name: str) -> list[LinkEnd]:
        """All but that one."""
        return [end for end in self._ends() if end.name != name]

    def arrivals(self, source: str, receiver: str, *, count: int = 1, bytes_each: int = 32) -> int:
        """Of so many datagrams that `source` sends now, how many reach `receiver`. One it is not allowed to send (a rule at
        its own end) does not arrive. OSError or HarnessFailed if it could not be tried."""
        sender, taker = self[source], self[receiver]
        with self._probing, ExitStack() as closing:
            ours = closing.enter_context(taker.network.call(lambda: _bound(taker.address)))
            theirs = closing.enter_context(sender.network.call(lambda: _bound(sender.address)))
            arrived = 0
            for begun in range(0, count, _BURST):
                burst = min(_BURST, count - begun)
                self._probes += 1
                mark = self._probes.to_bytes(8).ljust(bytes_each, b".")
                for _ in range(burst):
                    try:
                        theirs.sendto(mark, ours.getsockname())
                    except PermissionError:
                        continue
                arrived += _take(ours, mark, burst)
            return arrived

    def transfer(self, source: str, receiver: str, count: int, *, connect_s: float, limit_s: float) -> float | None:
        """Seconds that so many bytes take on a new connection that `source` opens; None if they are not through by the limit.
        HarnessFailed if there is no connection to be had."""
        sender, taker = self[source], self[receiver]
        arrived_ns: list[int] = []
        with self._probing, _sink(taker, connect_s) as listener:
            reader = threading.Thread(target=_receive_all, args=(listener, count, arrived_ns, self._clock), daemon=True)
            reader.start()
            try:
                connection = sender.network.call(lambda: _connected(sender, listener.getsockname(), connect_s))
            except OSError as error:
                raise HarnessFailed(f"{source} cannot connect to {receiver}: {error}.") from error
            with connection, suppress(TimeoutError):
                begun_ns = self._clock.monotonic_ns()
                connection.settimeout(limit_s)
                connection.sendall(bytes(count))
                connection.shutdown(socket.SHUT_WR)
                reader.join(limit_s)
        return (arrived_ns[0] - begun_ns) / NS_PER_S if arrived_ns else None


def _connected(sender: LinkEnd, to: tuple[str, int], timeout_s: float) -> socket.socket:
    return socket.create_connection(to, timeout_s, source_address=(sender.address, 0))


def _sink(taker: LinkEnd, timeout_s: float) -> socket.socket:
    def listen() -> socket.socket:
        return socket.create_server((taker.address, 0))

    listener = taker.network.call(listen)
    listener.settimeout(timeout_s)
    return listener


def _receive_all(listener: socket.socket, count: int, arrived_ns: list[int], clock: Clock) -> None:
    """When the last of so many bytes of one connection came; nothing if they did not."""
    try:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(listener.gettimeout())
            while count > 0:
                received = len(connection.recv(65536))
                if not received:
                    return
                count -= received
    except OSError:
        return
    arrived_ns.append(clock.monotonic_ns())


def _bound(address: str) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    found.settimeout(ARRIVE_S)
    try:
        found.bind((address, 0))
    except OSError:
        found.close()
        raise
    return found


def _take(ours: socket.socket, mark: bytes, expected: int) -> int:
    """How many with that mark come before none comes for a while."""
    arrived = 0
    while arrived < expected:
        try:
            arrived += ours.recv(65536) == mark
        except TimeoutError:
            break
    return arrived
