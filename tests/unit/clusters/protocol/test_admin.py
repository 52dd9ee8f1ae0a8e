"""Administration over the observer's link, against sockets on loopback that answer as brokers and controllers would."""

import socket
import struct
import threading
from contextlib import ExitStack, suppress
from types import SimpleNamespace

import pytest

from prozess.clusters.protocol.admin import Admin, PartitionOffsets
from prozess.clusters.protocol.client import compact_string, string, unsigned_varint
from prozess.clusters.protocol.requests import EligibleReplicas
from prozess.harness.clock import SystemClock
from prozess.harness.errors import NotReady
from prozess.harness.interfaces import NodeState, PartitionView
from tests.support.paths import DATA

METADATA, LIST_OFFSETS, API_VERSIONS, DESCRIBE_QUORUM, DESCRIBE_TOPIC_PARTITIONS = 3, 2, 18, 55, 75
SILENT = None
"""Accepts connections and never answers: a paused process."""


class Server:
    """Answers by api key: a body, or a function of the request; what is not there is not answered."""

    def __init__(self, answers) -> None:
        self.answers = answers
        self.requests: list[int] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        self.address = self._socket.getsockname()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError):
            while head := connection.recv(4, socket.MSG_WAITALL):
                request = connection.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
                key = struct.unpack_from(">h", request)[0]
                self.requests.append(key)
                if self.answers is not SILENT and key in self.answers:
                    answer = self.answers[key]
                    body = request[4:8] + (answer(request) if callable(answer) else answer)
                    connection.sendall(struct.pack(">i", len(body)) + body)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()
        for connection in self._connections:
            connection.close()


@pytest.fixture
def administer():
    """An `Admin` of brokers 1, 2, … and controllers 3001, 3002, … that answer so; and the servers."""
    with ExitStack() as at_exit:

        def make(brokers=(), controllers=(), *, stopped=()):
            def serve(answers):
                server = Server(answers)
                at_exit.callback(server.close)
                return server

            of_brokers = {node: serve(answers) for node, answers in enumerate(brokers, start=1)}
            of_controllers = {node: serve(answers) for node, answers in enumerate(controllers, start=3001)}
            cluster = SimpleNamespace(
                observer_servers={node: server.address for node, server in of_brokers.items()},
                controller_servers={node: server.address for node, server in of_controllers.items()},
                zookeeper_servers={},
                metrics_servers={},
                login=None,
                nodes=[
                    SimpleNamespace(
                        node_id=node,
                        roles=frozenset({"broker"}),
                        state=lambda node=node: NodeState.STOPPED if node in stopped else NodeState.RUNNING,
                    )
                    for node in of_brokers
                ],
            )
            admin = Admin(cluster)
            at_exit.callback(admin.close)
            return admin, of_brokers | of_controllers

        yield make


def metadata(*, leader: int, brokers=(1, 2, 3)) -> bytes:
    """Metadata v7 of topic t with one partition."""
    living = b"".join(struct.pack(">i", b) + string("h") + struct.pack(">ih", 9092, -1) for b in brokers)
    partition = struct.pack(">hiii", 0, 0, leader, 5) + struct.pack(">i2i", 2, 1, 2) * 2 + struct.pack(">i", 0)
    topic = struct.pack(">h", 0) + string("t") + b"\0" + struct.pack(">i", 1) + partition
    return struct.pack(">ii", 0, len(brokers)) + living + struct.pack(">hii", -1, 1, 1) + topic


def quorum(*, leader: int, epoch: int, error: int = 0) -> bytes:
    """DescribeQuorum v0, with the response header's tags in front."""
    partition = struct.pack(">ihiiq", 0, error, leader, epoch, 100) + b"\x01\x01\0"
    return b"\0" + struct.pack(">h", 0) + b"\x02" + compact_string("__cluster_metadata") + b"\x02" + partition + b"\0\0"


NOT_LEADER = quorum(leader=0, epoch=0, error=6)
"""What Kafka answers: ids are 0 beside an error."""


# --- views


def test_each_brokers_own_view_is_asked_of_it_alone(administer):
    admin, servers = administer([{METADATA: metadata(leader=1)}, {METADATA: metadata(leader=2)}])
    assert admin.view(1, ["t"]) == {("t", 0): PartitionView(1, 5, (1, 2), (1, 2))}
    assert admin.view(2, ["t"])["t", 0].leader == 2
    assert [len(server.requests) for server in servers.values()] == [1, 1]
    assert admin.living_brokers(1) == {1, 2, 3}


def test_silent_brokers_cost_one_limit_together_and_give_none(administer):
    admin, _ = administer([SILENT, {METADATA: metadata(leader=2)}, SILENT])
    clock = SystemClock()
    begin = clock.monotonic_ns()
    views = admin.views(["t"], timeout_s=3.0)
    took_s = (clock.monotonic_ns() - begin) / 1e9
    assert (views[1], views[3]) == (None, None)
    assert views[2]["t", 0].leader == 2
    assert 2.95 < took_s < 5.9, "one after the other they would cost 6 s"


# --- the active controller


def test_the_active_controller_is_who_answers_as_leader(administer):
    admin, _ = administer(
        controllers=[{DESCRIBE_QUORUM: body} for body in (NOT_LEADER, quorum(leader=3002, epoch=7), NOT_LEADER)]
    )
    assert admin.active_controller() == 3002


def test_a_deposed_controller_that_does_not_know_it_has_the_lower_epoch(administer):
    admin, _ = administer(
        controllers=[{DESCRIBE_QUORUM: quorum(leader=3001, epoch=7)}, {DESCRIBE_QUORUM: quorum(leader=3002, epoch=8)}]
    )
    assert admin.active_controller() == 3002


def test_a_controller_that_names_another_one_claims_nothing(administer):
    admin, _ = administer(controllers=[{DESCRIBE_QUORUM: quorum(leader=3002, epoch=9)}, SILENT])
    assert admin.active_controller(timeout_s=0.2) is None


# --- features, ELR, offsets


def test_features_come_from_the_first_broker_that_answers(administer):
    answers = {API_VERSIONS: (DATA / "api_versions_v3.response").read_bytes()[4:]}
    admin, servers = administer([SILENT, answers], stopped=[1])
    assert admin.features(timeout_s=5)["metadata.version"] == 30
    assert servers[1].requests == [], "a stopped broker is asked last"


def test_features_of_a_silent_cluster_are_not_ready(administer):
    admin, _ = administer([SILENT])
    with pytest.raises(NotReady, match=r"waited 0.2 s for feature levels .* no broker answered"):
        admin.features(timeout_s=0.2)


def eligible(topic: str, elr: int, page: bytes) -> bytes:
    """DescribeTopicPartitions v0 with one partition, and where the next page begins."""
    arrays = b"\x01\x01" + b"\x02" + struct.pack(">i", elr) + b"\x01\x01"
    partition = struct.pack(">hiii", 0, 0, 1, 0) + arrays + b"\0"
    one = struct.pack(">h", 0) + compact_string(topic) + bytes(17) + b"\x02" + partition + struct.pack(">i", 0) + b"\0"
    return b"\0" + struct.pack(">i", 0) + b"\x02" + one + page + b"\0"


def test_eligible_replicas_are_read_page_by_page(administer):
    def page(request):
        second = request.endswith(b"\x01" + compact_string("b") + struct.pack(">i", 0) + b"\0\0")
        next_page = b"\x01" + compact_string("b") + struct.pack(">i", 0) + b"\0"
        return eligible("b", 3, b"\xff") if second else eligible("a", 2, next_page)

    versions = (DATA / "api_versions_v3.response").read_bytes()[4:]
    admin, servers = administer([{API_VERSIONS: versions, DESCRIBE_TOPIC_PARTITIONS: page}])
    assert admin.elr(["a", "b"]) == {
        ("a", 0): EligibleReplicas(elr=(2,), last_known_elr=()),
        ("b", 0): EligibleReplicas(elr=(3,), last_known_elr=()),
    }
    assert servers[1].requests == [API_VERSIONS, DESCRIBE_TOPIC_PARTITIONS, DESCRIBE_TOPIC_PARTITIONS]


def test_brokers_that_know_no_elr_cannot_say(administer):
    only_metadata = struct.pack(">h", 0) + unsigned_varint(2) + struct.pack(">hhh", 3, 0, 12) + b"\0" + bytes(4) + b"\0"
    admin, servers = administer([{API_VERSIONS: only_metadata}])
    assert admin.elr(["t"]) is None
    assert DESCRIBE_TOPIC_PARTITIONS not in servers[1].requests


def listed(request: bytes) -> bytes:
    """ListOffsets v5: log start 10; high watermark 30, last stable offset 20; by special timestamp and isolation."""
    timestamp = struct.unpack_from(">q", request, len(request) - 8)[0]
    isolation = struct.unpack_from(">b", request, 8 + 2 + len("prozess-observer") + 4)[0]
    log_offset = 10 if timestamp == -2 else (20 if isolation == 1 else 30)
    return struct.pack(">ii", 0, 1) + string("t") + struct.pack(">iihqqi", 1, 0, 0, -1, log_offset, 5)


def test_offsets_are_told_by_whoever_takes_itself_for_the_leader(administer):
    zombie = {METADATA: metadata(leader=1), LIST_OFFSETS: listed}
    leader = {METADATA: metadata(leader=2), LIST_OFFSETS: listed}
    admin, _ = administer([zombie, leader, {METADATA: metadata(leader=2)}])
    assert admin.log_starts_and_ends(["t"]) == {
        ("t", 0): [PartitionOffsets(1, 5, 10, 30, 20), PartitionOffsets(2, 5, 10, 30, 20)]
    }


def test_an_offset_that_is_not_available_yet_is_not_told(administer):
    unknown = struct.pack(">ii", 0, 1) + string("t") + struct.pack(">iihqqi", 1, 0, 78, -1, -1, -1)
    admin, _ = administer([{METADATA: metadata(leader=1), LIST_OFFSETS: unknown}])
    assert admin.log_starts_and_ends(["t"]) == {("t", 0): [PartitionOffsets(1, -1, None, None, None)]}


def test_closing_twice_is_safe(administer):
    admin, _ = administer([{METADATA: metadata(leader=1)}])
    admin.view(1, [])
    admin.close()
    admin.close()
