"""The relay over real loopback sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from prozess.clusters.local.relay import BUFFER_BYTES, Relay, Route, main, relay_command

LIMIT_S = 20.0
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def run(test: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(LIMIT_S):
            await test

    asyncio.run(bounded())


@asynccontextmanager
async def relayed(handler: Handler | None, *, source: str | None = None) -> AsyncIterator[tuple[Relay, int]]:
    """A relay in front of an upstream; None = nobody listens there. Yields the relay and the port to call."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    if handler is None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            upstream_port = closed.getsockname()[1]
        server = None
    else:
        server = await asyncio.start_server(handler, "127.0.0.1", 0)
        upstream_port = server.sockets[0].getsockname()[1]
    async with Relay([Route(listener.detach(), "127.0.0.1", upstream_port, source)]) as relay:
        yield relay, port
    if server is not None:
        server.close()


async def none_open(relay: Relay) -> None:
    while relay.callers:
        await asyncio.sleep(0.01)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


def test_bytes_go_both_ways_unchanged_whatever_their_number() -> None:
    async def test() -> None:
        async with relayed(echo) as (relay, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            sent = bytes(range(256)) * 20_000
            writer.write(sent)
            assert await reader.readexactly(len(sent)) == sent
            writer.close()
            await none_open(relay)

    run(test())


def test_an_upstream_that_speaks_first_is_heard() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    async def test() -> None:
        async with relayed(greet) as (relay, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.read() == b"hello"
            writer.close()
            await none_open(relay)

    run(test())


def test_a_caller_that_has_said_everything_still_gets_the_whole_answer() -> None:
    async def count_until_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = await reader.read()  # only an end of stream lets this return
        await asyncio.sleep(0.05)
        writer.write(str(len(received)).encode() * 1000)
        writer.close()

    async def test() -> None:
        async with relayed(count_until_the_end) as (relay, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"x" * 12345)
            writer.write_eof()
            assert await reader.read() == b"12345" * 1000
            writer.close()
            await none_open(relay)

    run(test())


def test_a_refusing_upstream_is_a_reset_for_the_caller_and_leaves_nothing_open() -> None:
    async def test() -> None:
        async with relayed(None) as (relay, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with pytest.raises(ConnectionResetError):
                await reader.readexactly(1)
            writer.close()
            await none_open(relay)
            assert relay.refused == 1

    run(test())


@pytest.mark.parametrize("who", ["caller", "upstream"])
def test_a_reset_of_one_side_is_a_reset_for_the_other(who: str) -> None:
    seen: list[BaseException] = []
    over = asyncio.Event()

    def reset(writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        if who == "upstream":
            reset(writer)
        else:
            writer.write(b"pong")
            try:
                await reader.readexactly(1)
            except (ConnectionResetError, asyncio.IncompleteReadError) as error:
                seen.append(error)
            writer.close()
        over.set()

    async def test() -> None:
        async with relayed(upstream) as (relay, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"ping")
            if who == "caller":
                await reader.readexactly(4)
                reset(writer)
                await over.wait()
                assert [type(e) for e in seen] == [ConnectionResetError]
            else:
                with pytest.raises(ConnectionResetError):
                    await reader.readexactly(1)
                writer.close()
            await none_open(relay)

    run(test())


def test_a_slow_reader_holds_the_writer_back_instead_of_filling_memory() -> None:
    go = asyncio.Event()
    received = 0

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        await go.wait()
        while data := await reader.read(1 << 20):
            received += len(data)
        writer.close()

    async def test() -> None:
        async with relayed(slow) as (relay, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            total = 64 * 1024 * 1024
            writer.write(bytes(total))
            writer.write_eof()
            await asyncio.sleep(0.3)
            (caller,) = relay.callers
            assert caller.other is not None
            assert caller.other.transport is not None
            assert 0 < caller.other.transport.get_write_buffer_size() < 4 * BUFFER_BYTES
            go.set()
            assert await reader.read() == b""
            assert received == total
            writer.close()
            await none_open(relay)

    run(test())


def test_hundreds_of_connections_at_once_do_not_mix() -> None:
    async def one(port: int, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for turn in range(3):
            message = f"{number}:{turn}\n".encode() * 50
            writer.write(message)
            assert await reader.readexactly(len(message)) == message
        writer.close()
        await writer.wait_closed()

    async def test() -> None:
        async with relayed(echo) as (relay, port):
            await asyncio.gather(*(one(port, number) for number in range(200)))
            await none_open(relay)

    run(test())


def test_the_upstream_sees_the_source_address_of_the_route() -> None:
    async def who(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(writer.get_extra_info("peername")[0].encode())
        writer.close()

    async def test() -> None:
        async with relayed(who, source="127.0.0.9") as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.read() == b"127.0.0.9"
            writer.close()

    run(test())


def test_closing_the_relay_resets_what_is_open() -> None:
    async def test() -> None:
        async with relayed(echo) as (relay, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"x")
            await reader.readexactly(1)
            await relay.close()
            assert not relay.callers
            with pytest.raises(ConnectionResetError):
                await reader.readexactly(1)
            writer.close()

    run(test())


@pytest.mark.parametrize("route", [Route(5, "10.0.0.1", 9092), Route(7, "10.0.0.2", 1, "10.0.0.9")])
def test_a_route_survives_the_command_line(route: Route) -> None:
    assert Route.parse(relay_command([route])[-1]) == route


@pytest.mark.parametrize("text", ["", "x=1.2.3.4:9092", "3=host", "3=host:0", "3=host:70000", "3=host:1@"])
def test_a_malformed_route_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([text]) == 254
    assert "FD=HOST:PORT" in capsys.readouterr().err
