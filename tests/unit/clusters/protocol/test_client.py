"""The wire format, against responses of a real 4.3.1 broker, and the bounded client, against sockets on loopback."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.clusters.protocol.client import (
    Cursor,
    Malformed,
    Request,
    WireClient,
    compact_string,
    string,
    unsigned_varint,
    varint,
)
from prozess.clusters.protocol.readiness import FoundCoordinator, find_coordinator_request, offset_fetch_request
from prozess.clusters.protocol.requests import (
    LATEST,
    EligibleReplicas,
    OffsetAnswer,
    QuorumAnswer,
    api_versions_request,
    describe_quorum_request,
    describe_topic_partitions_request,
    list_offsets_request,
    metadata_request,
)
from prozess.harness.clock import SystemClock
from prozess.harness.errors import ClusterFailed
from prozess.harness.interfaces import PartitionView
from prozess.harness.schema import NONE, Isolation
from tests.support.paths import DATA

CAPTURED = 7
"""Correlation id of the captured responses."""


def captured(name: str) -> bytes:
    return (DATA / f"{name}.response").read_bytes()


# --- primitives


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_zigzag_number_survives_the_round_trip(value):
    assert Cursor(varint(value)).varint() == value


@given(st.integers(0, 2**64 - 1))
def test_an_unsigned_number_survives_the_round_trip(value):
    assert Cursor(unsigned_varint(value)).unsigned_varint() == value


@given(st.text(max_size=200))
def test_a_text_survives_both_encodings(text):
    assert Cursor(string(text)).string() == text
    assert Cursor(compact_string(text)).compact_string() == text


def test_a_number_of_two_groups_is_encoded_as_the_protocol_guide_says():
    assert unsigned_varint(300) == b"\xac\x02"
    assert varint(-1) == b"\x01"
    assert varint(1) == b"\x02"


def test_null_texts_and_arrays_are_told_apart_from_empty_ones():
    assert Cursor(b"\xff\xff").string() is None
    assert Cursor(b"\x00\x00").string() == ""
    assert Cursor(b"\x00").compact_string() is None
    assert Cursor(b"\x01").compact_string() == ""
    assert Cursor(b"\x00").compact_int32s() == ()


def test_a_varint_without_end_is_malformed():
    with pytest.raises(Malformed, match="no end"):
        Cursor(b"\xff" * 20).unsigned_varint()


# --- requests and captured responses


def test_a_metadata_request_is_encoded_as_the_schema_says():
    body = struct.pack(">hhi", 3, 7, 5) + string("prozess-observer") + struct.pack(">i", 1) + string("t") + b"\0"
    assert metadata_request(["t"]).frame(5) == struct.pack(">i", len(body)) + body


def test_a_brokers_own_view_is_decoded():
    answer = metadata_request(["alpha", "beta", "nope"]).answer(captured("metadata_v7"), CAPTURED)
    assert answer.brokers == {1}
    assert answer.partitions == {
        ("alpha", 0): PartitionView(leader=1, leader_epoch=0, replicas=(1, 2, 3), isr=(1,)),
        ("alpha", 1): PartitionView(leader=1, leader_epoch=1, replicas=(2, 3, 1), isr=(1,)),
        ("beta", 0): PartitionView(leader=1, leader_epoch=0, replicas=(1, 2), isr=(1,)),
    }, "the topic that is not there must not appear"


def test_eligible_replicas_are_decoded():
    answer = describe_topic_partitions_request(["alpha"]).answer(captured("describe_topic_partitions_v0"), CAPTURED)
    assert answer.next_page is None
    assert answer.partitions["alpha", 0] == EligibleReplicas(elr=(2,), last_known_elr=())
    assert answer.partitions["beta", 0] == EligibleReplicas(elr=(), last_known_elr=())


def test_the_quorums_leader_is_decoded():
    answer = describe_quorum_request().answer(captured("describe_quorum_v0"), CAPTURED)
    assert answer == QuorumAnswer(error=0, leader=3001, leader_epoch=1, high_watermark=255, voters={3001: 255})
    assert answer.high_watermark > 0


def test_ids_beside_an_error_are_not_those_of_a_node_0():
    """Kafka answers so where another node leads: NOT_LEADER_OR_FOLLOWER, and every id has its default, 0."""
    partition = struct.pack(">ihiiq", 0, 6, 0, 0, 0) + b"\x01\x01\0"
    body = struct.pack(">h", 0) + b"\x02" + compact_string("__cluster_metadata") + b"\x02" + partition + b"\0\0"
    answer = describe_quorum_request().answer(struct.pack(">i", CAPTURED) + b"\0" + body, CAPTURED)
    assert answer == QuorumAnswer(error=6, leader=NONE, leader_epoch=NONE, high_watermark=NONE)


def test_feature_levels_and_api_versions_are_decoded():
    answer = api_versions_request().answer(captured("api_versions_v3"), CAPTURED)
    assert answer.features["eligible.leader.replicas.version"] == 1
    assert answer.features["transaction.version"] == 2
    assert answer.apis[3] == (0, 13)
    assert 75 in answer.apis


def test_offsets_are_decoded():
    request = list_offsets_request({"alpha": [0, 1]}, timestamp=LATEST, isolation=Isolation.READ_COMMITTED)
    answer = request.answer(captured("list_offsets_v5"), CAPTURED)
    assert answer["beta", 0] == OffsetAnswer(error=0, log_offset=20, leader_epoch=0)
    assert answer["alpha", 1] == OffsetAnswer(error=0, log_offset=0, leader_epoch=1)


@pytest.mark.parametrize(
    ("name", "request_made"),
    [
        ("metadata_v7", metadata_request([])),
        ("describe_topic_partitions_v0", describe_topic_partitions_request([])),
        ("describe_quorum_v0", describe_quorum_request()),
        ("api_versions_v3", api_versions_request()),
    ],
)
def test_a_response_cut_anywhere_before_its_last_field_is_malformed(name, request_made):
    whole = captured(name)
    refused = 0
    for end in range(0, len(whole) - 1):
        try:
            request_made.answer(whole[:end], CAPTURED)
        except Malformed:
            refused += 1
    # What the decoder does not need (authorized operations, voters, tags at the very end) may be missing.
    assert refused >= len(whole) // 3
    with pytest.raises(Malformed):
        request_made.answer(whole[:10], CAPTURED)


def test_the_answer_to_another_request_is_malformed():
    with pytest.raises(Malformed, match="answers request 7 instead of 8"):
        metadata_request([]).answer(captured("metadata_v7"), 8)


def test_250_topics_are_decoded_in_well_under_100_ms():
    clock = SystemClock()
    partition = struct.pack(">hiii", 0, 0, 1, 3) + struct.pack(">i3i", 3, 1, 2, 3) * 2 + struct.pack(">i", 0)
    topics = [
        struct.pack(">h", 0) + string(f"cell-{n:03}") + b"\0" + struct.pack(">i", 2) + partition * 2 for n in range(250)
    ]
    brokers = struct.pack(">i", 1) + struct.pack(">i", 1) + string("h") + struct.pack(">ih", 9092, -1)
    payload = struct.pack(">ii", 0, 0) + brokers + struct.pack(">hi", -1, 1) + struct.pack(">i", 250) + b"".join(topics)
    best = min(_timed(lambda: metadata_request([]).answer(payload, 0), clock) for _ in range(5))
    assert best < 0.05, f"{best * 1000:.1f} ms"


def _timed(call, clock):
    begin = clock.monotonic_ns()
    call()
    return (clock.monotonic_ns() - begin) / 1e9


# --- the client


@contextmanager
def listener(serve) -> Iterator[tuple[str, int]]:
    """`serve(connection)` in a thread for each connection to the address."""
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(10)
    opened: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            opened.append(connection)
            with suppress(OSError):  # the client hung up: what some of the tests are about
                serve(connection)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield server.getsockname()
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for connection in opened:
            connection.close()
        thread.join(10)
        assert not thread.is_alive()


def echo(connection: socket.socket) -> None:
    """Answer each request with its own correlation id and one int32, 42, until the client hangs up."""
    while head := connection.recv(4, socket.MSG_WAITALL):
        request = connection.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
        connection.sendall(struct.pack(">i4si", 8, request[4:8], 42))


def echo_once(connection: socket.socket) -> None:
    """Answer one request, then hang up: a broker that is restarted."""
    request = connection.recv(struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0], socket.MSG_WAITALL)
    connection.sendall(struct.pack(">i4si", 8, request[4:8], 42))
    connection.shutdown(socket.SHUT_RDWR)


ASK: Request[int] = Request(999, 0, b"", Cursor.int32)


def client(address) -> WireClient:
    return WireClient(lambda: {1: address}, name="broker", clock=SystemClock())


def test_several_requests_go_out_at_once_and_the_connection_is_kept():
    connections = []

    def serve(connection):
        connections.append(connection)
        echo(connection)

    with listener(serve) as address, closing(client(address)) as wire:
        assert wire.ask(1, ASK, ASK, ASK, timeout_s=5) == [42, 42, 42]
        assert wire.ask(1, ASK, timeout_s=5) == [42]
        assert len(connections) == 1


def test_a_kept_connection_that_died_is_replaced():
    with listener(echo_once) as address, closing(client(address)) as wire:
        assert wire.ask(1, ASK, timeout_s=5) == [42]
        assert wire.ask(1, ASK, timeout_s=5) == [42]


def test_a_node_that_accepts_but_does_not_answer_gives_none_in_time():
    released = threading.Event()
    clock = SystemClock()
    with listener(lambda _: released.wait(10)) as address, closing(client(address)) as wire:
        begin = clock.monotonic_ns()
        assert wire.ask(1, ASK, timeout_s=0.2) is None
        assert 0.15 < (clock.monotonic_ns() - begin) / 1e9 < 9, "the node never answers before 10 s"
        released.set()


def test_a_node_that_drips_its_answer_cannot_extend_the_limit():
    def drip(connection):
        connection.sendall(struct.pack(">i", 1000))
        ended = threading.Event()
        for _ in range(50):
            connection.sendall(b"x")
            ended.wait(0.05)

    clock = SystemClock()
    with listener(drip) as address, closing(client(address)) as wire:
        begin = clock.monotonic_ns()
        assert wire.ask(1, ASK, timeout_s=0.3) is None
        assert (clock.monotonic_ns() - begin) / 1e9 < 1.5


def test_nobody_listening_gives_none():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    with closing(client(address)) as wire:
        assert wire.ask(1, ASK, timeout_s=1) is None


def test_another_program_on_the_port_is_said_to_be_one():
    def http(connection):
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    refused = pytest.raises(ClusterFailed, match=r"broker 1 at 127.0.0.1:\d+ sent an answer that is not Kafka's")
    with listener(http) as address, closing(client(address)) as wire, refused:
        wire.ask(1, ASK, timeout_s=5)


def test_a_coordinator_is_found_or_its_error_is_told():
    request = find_coordinator_request("a group")
    assert request.body == string("a group") + b"\0"
    there = (
        struct.pack(">iih", CAPTURED, 0, 0)
        + string("NONE")
        + struct.pack(">i", 3)
        + string("10.0.0.3")
        + b"\0\0\x23\x84"
    )
    assert request.answer(there, CAPTURED) == FoundCoordinator(0, 3)
    nowhere = struct.pack(">iihhi", CAPTURED, 0, 15, -1, -1) + string("") + struct.pack(">i", -1)
    assert request.answer(nowhere, CAPTURED) == FoundCoordinator(15, -1)


def test_who_is_no_coordinator_says_so_behind_all_that_a_group_has_committed():
    request = offset_fetch_request("a group")
    refused = struct.pack(">iiih", CAPTURED, 0, 0, 16)
    assert request.answer(refused, CAPTURED) == 16
    partition = struct.pack(">iqi", 0, 42, 1) + string("") + struct.pack(">h", 0)
    committed = struct.pack(">iii", CAPTURED, 0, 1) + string("topic") + struct.pack(">i", 1) + partition
    assert request.answer(committed + struct.pack(">h", 0), CAPTURED) == 0
