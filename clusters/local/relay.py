"""The relay lets callers outside the sandbox reach the brokers inside.

    python -m prozess.clusters.local.relay FD=HOST:PORT[@SOURCE] …

The parent outside binds and listens, and passes the sockets in by descriptor; they stay in its network namespace, while the
connections this process makes are inside. SOURCE is the address it then calls from, one per relayed client, so that faults
between a client and a broker cut relayed clients too. A relay neither reads nor delays what it carries: bytes both ways with
back-pressure, each half closed on its own, a reset passed on as a reset, and a broker that refuses or does not answer is a
reset for the caller, as if it had called directly.
"""

import asyncio
import re
import resource
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

CONNECT_TIMEOUT_S = 30.0
"""How long a caller waits for a broker that does not answer at all; socket.connection.setup.timeout.ms of clients."""
BUFFER_BYTES = 256 * 1024
"""The buffer of each direction of a connection; when it is full the reading side waits."""
_ROUTE = re.compile(r"(?P<fd>\d+)=(?P<host>[^:@=]+):(?P<port>\d+)(?:@(?P<source>[^:@=]+))?")
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # struct linger: on, 0 s; socket(7)


@dataclass(frozen=True, slots=True)
class Route:
    """One listening socket and where its callers want to go."""

    listener: int
    """File descriptor of a listening TCP socket, owned by the relay from now on."""
    host: str
    port: int
    source: str | None = None
    """The address to call from; None for the system's choice."""

    @classmethod
    def parse(cls, text: str) -> "Route":
        """Reads `FD=HOST:PORT[@SOURCE]`. ValueError, with the form, for anything else."""
        match = _ROUTE.fullmatch(text)
        if match is None or not 0 < int(match["port"]) < 65536:
            raise ValueError(f"route {text!r} is not FD=HOST:PORT[@SOURCE], as in 5=10.0.0.1:9092@10.0.0.50")
        return cls(int(match["fd"]), match["host"], int(match["port"]), match["source"])

    def __str__(self) -> str:
        return f"{self.listener}={self.host}:{self.port}" + (f"@{self.source}" if self.source else "")


def relay_command(routes: Sequence[Route]) -> list[str]:
    """Returns the command of a relay process; start it with `pass_fds=[route.listener for route in routes]`."""
    return [sys.executable, "-P", "-m", "prozess.clusters.local.relay", *map(str, routes)]


class _End(asyncio.Protocol):
    """One end of a relayed connection. What arrives goes to `other`; its reading waits while that one is full."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None
        self.ended = False
        """The peer will send no more."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:  # else it is being torn down
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        self.ended = True
        other = self.other
        if other is None or other.transport is None or other.transport.is_closing():
            return False
        with suppress(OSError):  # it may have been reset a moment ago; connection_lost then follows
            other.transport.write_eof()
        if other.ended:
            other.transport.close()  # writes out what is buffered first
            return False
        return True

    def pause_writing(self) -> None:
        self._reading_of_other(False)

    def resume_writing(self) -> None:
        self._reading_of_other(True)

    def _reading_of_other(self, on: bool) -> None:
        transport = self.other.transport if self.other is not None else None
        if transport is not None and not transport.is_closing():
            if on:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        other, self.transport = self.other, None
        if other is None or other.transport is None:
            return
        if error is None and self.ended:
            other.transport.close()
        else:
            other.reset()

    def reset(self) -> None:
        """Drops the connection so that the peer sees a reset."""
        if self.transport is None:
            return
        connection = self.transport.get_extra_info("socket")
        if connection is not None and connection.fileno() >= 0:
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.transport.abort()


class _Caller(_End):
    """The end that was accepted; it calls the upstream, and reads nothing before that answers."""

    def __init__(self, relay: "Relay", route: Route) -> None:
        super().__init__()
        self._relay, self._route = relay, route
        self._connecting: asyncio.Task[None] | None = None
        self._early: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        """Keeps data that comes before the upstream is there, and pauses reading once more.

        Python up to 3.11.2 (Debian 12's) reads on although `connection_made` paused: its transport adds the reader only
        afterwards."""
        if self.other is not None and self.other.transport is not None:
            super().data_received(data)
            return
        self._early.append(data)
        if self.transport is not None:
            self.transport.resume_reading()
            self.transport.pause_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.pause_reading()
        self._relay.callers.add(self)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def connection_lost(self, error: Exception | None) -> None:
        self._relay.callers.discard(self)
        if self._connecting is not None:
            self._connecting.cancel()
        super().connection_lost(error)

    async def _connect(self) -> None:
        route, upstream = self._route, _End()
        self.other, upstream.other = upstream, self  # before it connects: it may speak first
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await asyncio.get_running_loop().create_connection(
                    lambda: upstream,
                    route.host,
                    route.port,
                    local_addr=(route.source, 0) if route.source else None,
                )
        except (OSError, TimeoutError):
            self._relay.refused += 1
            self.reset()
            return
        if self.transport is None or self.transport.is_closing():
            upstream.reset()
            return
        for data in self._early:
            super().data_received(data)
        self._early.clear()
        self.transport.resume_reading()


class Relay:
    """Relays every route until `close`. Use inside a running event loop: `async with Relay(routes): …`."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = tuple(routes)
        self._servers: list[asyncio.Server] = []
        self.callers: set[_Caller] = set()
        """The connections that are open now."""
        self.refused = 0
        """How many callers so far had an upstream that refused or did not answer."""

    async def __aenter__(self) -> "Relay":
        loop = asyncio.get_running_loop()
        for route in self._routes:
            listener = socket.socket(fileno=route.listener)
            server = await loop.create_server(lambda r=route: _Caller(self, r), sock=listener, backlog=128)  # type: ignore[misc]
            self._servers.append(server)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops accepting, and resets what is open."""
        for server in self._servers:
            server.close()
        for caller in tuple(self.callers):
            caller.reset()
        await asyncio.sleep(0)  # let connection_lost of both ends run
        await asyncio.sleep(0)


async def _relay_until_signal(routes: Sequence[Route]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Relay(routes):
        await stop.wait()


def main(arguments: Sequence[str]) -> int:
    """Relays until SIGTERM or SIGINT."""
    try:
        routes = [Route.parse(text) for text in arguments]
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 254
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(_relay_until_signal(routes))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
