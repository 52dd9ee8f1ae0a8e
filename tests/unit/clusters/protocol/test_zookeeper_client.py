"""Whom the observer believes: a server that can open a session, and not the one that says it leads."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from prozess.clusters.protocol import zookeeper
from prozess.clusters.protocol.zookeeper import JuteCursor, ZooKeeperClient
from prozess.harness.clock import SystemClock
from prozess.harness.errors import ClusterFailed

NO_NODE = -101


class Server:
    """Answers as a ZooKeeper server does, over real sockets. `data`: of every node; None: there is none. `quorum`: without
    one it opens no session. `mode` None: it serves nobody."""

    def __init__(self, mode: str | None, *, zxid: int = 0x100000001, data: bytes | None = None, quorum: bool = True):
        self.mode, self.zxid, self.data, self.quorum = mode, zxid, data, quorum
        self.sessions = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()[:2]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection:
            first = connection.recv(4)
            if first == b"srvr":
                told = f"Zxid: {self.zxid:#x}\nMode: {self.mode}\n" if self.mode else "not currently serving requests\n"
                connection.sendall(told.encode())
                return
            self._frame(connection, first)
            if not self.quorum:
                connection.recv(1)  # until the other side gives up
                return
            self.sessions += 1
            connection.sendall(
                zookeeper.buffer(
                    zookeeper.integer(0) + zookeeper.integer(10_000) + zookeeper.long(7) + zookeeper.buffer(bytes(16))
                )
            )
            self._frame(connection, connection.recv(4))
            answer = (
                zookeeper.integer(NO_NODE) if self.data is None else zookeeper.integer(0) + zookeeper.buffer(self.data)
            )
            connection.sendall(zookeeper.buffer(zookeeper.integer(1) + zookeeper.long(self.zxid) + answer))
            self._frame(connection, connection.recv(4))
            connection.sendall(
                zookeeper.buffer(zookeeper.integer(2) + zookeeper.long(self.zxid) + zookeeper.integer(0))
            )

    @staticmethod
    def _frame(connection: socket.socket, length: bytes) -> bytes:
        wanted, data = JuteCursor(length).int32(), b""
        while len(data) < wanted:
            data += connection.recv(wanted - len(data))
        return data

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        self._thread.join(10)


@pytest.fixture
def ensemble() -> Iterator:
    servers: list[Server] = []

    def make(*given: Server) -> ZooKeeperClient:
        servers.extend(given)
        return ZooKeeperClient(
            lambda: {4001 + i: server.address for i, server in enumerate(given)}, clock=SystemClock()
        )

    yield make
    for server in servers:
        server.close()


def controller(broker: int) -> bytes:
    return json.dumps({"version": 2, "brokerid": broker, "timestamp": "1"}).encode()


def test_the_leader_of_the_newest_epoch_is_the_leader(ensemble):
    client = ensemble(Server("leader", zxid=0x300000009), Server("leader", zxid=0x400000001), Server("follower"))
    assert client.leader(timeout_s=20) == 4002
    assert ensemble(Server("standalone")).leader(timeout_s=20) == 4001


def test_without_anybody_who_leads_there_is_no_leader_and_no_controller(ensemble):
    assert ensemble(Server("follower"), Server(None)).leader(timeout_s=20) is None
    assert ensemble(Server(None), Server(None)).controller(timeout_s=20) is None
    assert ensemble().leader(timeout_s=20) is None


def test_the_controller_is_who_the_node_names_and_nobody_where_there_is_no_such_node(ensemble):
    server = Server("leader", data=controller(3))
    assert ensemble(server, Server("follower", data=controller(3))).controller(timeout_s=20) == 3
    assert server.sessions == 1
    assert ensemble(Server("leader", data=None)).controller(timeout_s=20) is None


def test_who_leads_without_a_quorum_is_passed_over(ensemble):
    zombie = Server("leader", zxid=0x100000009, data=controller(1), quorum=False)
    client = ensemble(zombie, Server("follower", zxid=0x100000009, data=controller(2)))
    assert client.controller(timeout_s=6) == 2
    assert ensemble(Server("leader", quorum=False)).controller(timeout_s=1) is None


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"brokerid": "x"}', b"\xff"])
def test_a_node_that_is_not_kafkas_is_told(ensemble, data):
    with pytest.raises(ClusterFailed, match="/controller that is not Kafka's"):
        ensemble(Server("leader", data=data)).controller(timeout_s=20)


def test_a_server_that_is_not_there_serves_nobody(ensemble):
    gone = Server("leader")
    gone.close()
    client = ensemble(gone, Server("follower"))
    assert {node: state is not None for node, state in client.states(timeout_s=5).items()} == {4001: False, 4002: True}
