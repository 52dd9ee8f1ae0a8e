"""The remote store of tiered storage as it is read: its objects, what the metadata topic says of them, and checksums."""

import base64
import struct
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.clusters.files.remote_segments import STORE_DIRECTORY, parse_event, read_remote_logs
from prozess.clusters.files.segments import crc32c
from prozess.clusters.files.sums import checksums
from prozess.clusters.protocol.client import Malformed
from prozess.harness.schema import NONE, RemoteState

TOPIC_ID, SEGMENT, OTHER = (UUID(int=number) for number in (7, 8, 9))
COPY_BEGUN = bytes.fromhex(
    "0100000963656c6c2d30303059529ab4b7a943a3b783d4b191794bbd000000000022f9982a48694c6dbcd45b106b538018000000000000000000"
    "000000000000020400000001000001a22377af46000001a22377b0910200000000000000000000000000000ff9a5000001000101"
)
COPY_ENDED = bytes.fromhex(
    "0101000963656c6c2d30303059529ab4b7a943a3b783d4b191794bbd000000000022f9982a48694c6dbcd45b106b5380180000000001000001a2"
    "2377b0f5000100"
)
"""Two records that a broker of 4.4.0 wrote."""
_HEAD = struct.Struct(">qiibI")
_REST = struct.Struct(">hiqqqhii")


def batch(base, records, *, epoch=0, body=b"r" * 40, damaged=False):
    """A batch whose checksum is that of its bytes."""
    rest = _REST.pack(0, records - 1, 1000, 1005, -1, -1, -1, records) + body
    head = _HEAD.pack(base, len(rest) + 9, epoch, 2, crc32c(rest))
    return head + (rest[:-1] + bytes([rest[-1] ^ 1]) if damaged else rest)


def name_of(identity):
    return base64.urlsafe_b64encode(identity.bytes).decode().rstrip("=")


def put(store, first, segment, *batches, topic="t"):
    directory = store / STORE_DIRECTORY / f"{topic}-0-{name_of(TOPIC_ID)}"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{first:020d}-{name_of(segment)}.log").write_bytes(b"".join(batches))


def event(segment, first, last, state, *, topic="t"):
    """What a broker writes when a copy begins, with another state."""
    of_segment = bytes([len(topic) + 1]) + topic.encode() + TOPIC_ID.bytes + bytes(4) + b"\0" + segment.bytes + b"\0"
    rest = struct.pack(">qqiqq", first, last, 1, 0, 1000) + b"\x01" + struct.pack(">i", 99) + b"\0"
    return b"\x01\0\0" + of_segment + rest + bytes([state]) + b"\0"


def varint(value):
    value, made = value << 1, b""
    while value >= 0x80:
        made, value = made + bytes([value & 0x7F | 0x80]), value >> 7
    return made + bytes([value])


def believes(node, *events, topic="t", topic_id=TOPIC_ID):
    """Writes the metadata topic into the data directory of a broker, and which topic its log is of."""
    log = node / "__remote_log_metadata-0"
    log.mkdir(parents=True)
    records = b""
    for offset, value in enumerate(events):
        record = b"\0\0" + varint(offset) + b"\x01" + varint(len(value)) + value + b"\0"
        records += varint(len(record)) + record
    (log / f"{0:020d}.log").write_bytes(batch(0, len(events), body=records))
    (node / f"{topic}-0").mkdir(exist_ok=True)
    (node / f"{topic}-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {name_of(topic_id)}")
    return {1: node}


def one_log(store, problems=None, nodes=()):
    found = [] if problems is None else problems
    (log,) = read_remote_logs(store, dict(nodes), [(5, "t", 0)], on_problem=found.append)
    assert problems is not None or not found
    return log


def test_what_a_broker_writes_of_a_copy_is_read():
    begun, ended = parse_event(COPY_BEGUN), parse_event(COPY_ENDED)
    assert begun is not None
    assert ended is not None
    assert (begun.topic, begun.number, begun.offsets, begun.size, begun.node) == ("cell-000", 0, (0, 516), 1046949, 1)
    assert (begun.state, ended.state) == (RemoteState.COPYING, RemoteState.COPIED)
    assert begun.segment == ended.segment
    assert begun.topic_id == ended.topic_id
    assert (ended.offsets, ended.size, ended.event_ms - begun.event_ms) == (None, None, 100)


@pytest.mark.parametrize("value", [COPY_BEGUN[:-20], COPY_ENDED[:40], b"", b"\x02" + COPY_ENDED[1:]])
def test_what_no_schema_says_is_no_event(value):
    with pytest.raises(Malformed):
        parse_event(value)


def test_an_event_about_a_whole_partition_is_passed_over():
    assert parse_event(b"\x01\x02" + COPY_ENDED[2:]) is None


def test_an_object_is_whole_up_to_its_last_batch(tmp_path):
    put(tmp_path, 10, SEGMENT, batch(10, 5), batch(15, 5))
    (segment,) = one_log(tmp_path).segments
    assert (segment.first_offset, segment.whole_to, segment.damaged, segment.state) == (10, 20, 0, NONE)
    assert segment.batches["base_offset"].tolist() == [10, 15]


def test_an_object_is_whole_up_to_a_damaged_batch_and_no_further(tmp_path):
    put(tmp_path, 10, SEGMENT, batch(10, 5), batch(15, 5, damaged=True), batch(20, 5))
    (segment,) = one_log(tmp_path).segments
    assert (segment.whole_to, segment.damaged) == (15, 1)
    assert segment.batches["base_offset"].tolist() == [10, 20]


def test_an_object_is_whole_up_to_a_batch_that_does_not_follow(tmp_path):
    put(tmp_path, 10, SEGMENT, batch(10, 5), batch(16, 5))
    (segment,) = one_log(tmp_path).segments
    assert (segment.whole_to, segment.damaged) == (15, 0)


def test_an_object_that_is_cut_off_or_empty_is_whole_up_to_there(tmp_path):
    put(tmp_path, 10, SEGMENT, batch(10, 5), batch(15, 5)[:-3])
    put(tmp_path, 30, OTHER)
    cut, empty = one_log(tmp_path).segments
    assert (cut.whole_to, empty.whole_to) == (15, 30)


def test_a_batch_in_two_objects_is_one_and_two_unlike_batches_are_two(tmp_path):
    put(tmp_path, 10, SEGMENT, batch(10, 5), batch(15, 5))
    put(tmp_path, 15, OTHER, batch(15, 5), batch(20, 5))
    copied = RemoteState.COPIED
    nodes = believes(tmp_path / "node", event(SEGMENT, 10, 19, copied), event(OTHER, 15, 24, copied))
    assert one_log(tmp_path, nodes=nodes).batches["base_offset"].tolist() == [10, 15, 20]
    put(tmp_path, 15, OTHER, batch(15, 5, epoch=3), batch(20, 5))
    assert one_log(tmp_path, nodes=nodes).batches["base_offset"].tolist() == [10, 15, 15, 20]


def test_what_brokers_believe_of_a_segment_and_what_lies_there_are_joined_by_its_id(tmp_path):
    put(tmp_path, 10, SEGMENT, batch(10, 5))
    states = [event(SEGMENT, 10, 14, state) for state in (RemoteState.COPYING, RemoteState.COPIED)]
    nodes = believes(tmp_path / "node", *states, event(OTHER, 15, 19, RemoteState.COPIED))
    log = one_log(tmp_path, nodes=nodes)
    there, gone = log.segments
    assert (there.segment, there.state, there.last_offset, there.whole_to, there.size) == (SEGMENT, 1, 14, 15, 99)
    assert (gone.segment, gone.state, gone.whole_to, gone.stored_size) == (OTHER, RemoteState.COPIED, NONE, NONE)
    assert log.topic_id == TOPIC_ID


@pytest.mark.parametrize("state", [RemoteState.COPYING, RemoteState.DELETING, RemoteState.DELETED])
def test_batches_of_an_object_whose_copy_is_not_finished_are_no_part_of_the_log(tmp_path, state):
    put(tmp_path, 10, SEGMENT, batch(10, 5))
    log = one_log(tmp_path, nodes=believes(tmp_path / "node", event(SEGMENT, 10, 14, state)))
    assert (log.batches, log.segments[0].whole_to) == ({}, 15)


def test_batches_of_a_topic_that_was_deleted_are_no_part_of_the_log(tmp_path):
    put(tmp_path, 10, SEGMENT, batch(10, 5))
    nodes = believes(tmp_path / "node", event(SEGMENT, 10, 14, RemoteState.COPIED), topic_id=UUID(int=99))
    assert one_log(tmp_path, nodes=nodes).batches == {}


def test_a_metadata_topic_that_cannot_be_read_is_a_problem(tmp_path):
    put(tmp_path, 10, SEGMENT, batch(10, 5))
    problems = []
    one_log(tmp_path, problems, believes(tmp_path / "node", COPY_BEGUN[:40]))
    assert "what Kafka believes of the remote store cannot be read" in problems[0]


def test_a_store_that_is_not_there_is_a_problem(tmp_path):
    problems = []
    assert not list(read_remote_logs(tmp_path / "gone", {}, [(5, "t", 0)], on_problem=problems.append))
    assert "is not there" in problems[0]


def test_files_that_are_no_objects_are_passed_over(tmp_path):
    put(tmp_path, 10, SEGMENT, batch(10, 5))
    directory = tmp_path / STORE_DIRECTORY
    (directory / "no-partition").mkdir()
    (directory / f"t-0-{name_of(TOPIC_ID)}" / "00000000000000000010.log").write_bytes(b"x")
    assert len(one_log(tmp_path).segments) == 1


@given(
    data=st.binary(min_size=8, max_size=3000),
    cuts=st.lists(st.tuples(st.integers(0, 3000), st.integers(4, 3000)), min_size=1, max_size=5),
)
def test_checksums_side_by_side_are_those_one_by_one(data, cuts):
    starts = np.array([min(start, len(data) - 4) for start, _ in cuts])
    ends = np.minimum(starts + [length for _, length in cuts], len(data))
    found = checksums(np.frombuffer(data, dtype=np.uint8), starts, ends)
    assert found.tolist() == [crc32c(data[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


def test_the_checksum_of_a_known_text_is_the_known_one():
    found = checksums(np.frombuffer(b"123456789", dtype=np.uint8), np.array([0]), np.array([9]))
    assert found.tolist() == [0xE3069283]
