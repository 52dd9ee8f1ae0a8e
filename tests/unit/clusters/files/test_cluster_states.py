"""What the controllers' log states of brokers and features, against what Kafka's own decoder says of the same logs."""

import struct
from uuid import UUID

import pytest

from prozess.clusters.files.metadata_log import LOG_DIRECTORY, decode_metadata_log
from prozess.clusters.files.segments import read_batches
from prozess.clusters.protocol.client import compact_string, unsigned_varint
from prozess.harness.schema import CLUSTER_STATES, NONE
from prozess.harness.schema import ClusterRecord as Record
from tests.support.metadata_logs import (
    ABORT,
    BEGIN,
    END,
    WALL_MINUS_MONOTONIC_NS,
    ClusterOracle,
    assert_same_rows,
    batch,
    controller,
    fence,
    quorum,
    record_value,
    rows,
    topic,
    unzipped,
)

PROCESS, DIRECTORY, OTHER = (UUID(int=number << 64 | 5) for number in (1, 2, 3))


def decode(*directories):
    return decode_metadata_log(directories, partition_ids={}, wall_minus_monotonic_ns=WALL_MINUS_MONOTONIC_NS).states


def registration(node: int, epoch: int, *directories: UUID, version: int = 4, fenced: int = 1, shutting_down: int = 0):
    """A listener, a feature, no rack."""
    broker = struct.pack(">i", node) + (b"\0" if version >= 2 else b"") + PROCESS.bytes + struct.pack(">q", epoch)
    listener = b"\x02" + compact_string("A") + compact_string("h") + struct.pack(">Hh", 9092, 0) + b"\0"
    feature = b"\x02" + compact_string("group.version") + struct.pack(">hh", 0, 1) + b"\0"
    state = bytes([0, fenced, *([shutting_down] if version >= 1 else [])])
    return record_value(0, version, broker + listener + feature + state + tagged({0: ids(directories)}))


def changed(node: int, epoch: int, *directories: UUID, fenced: int = 0, shutting_down: int = 0) -> bytes:
    tags = {0: struct.pack(">b", fenced), 1: struct.pack(">b", shutting_down), 2: ids(directories)}
    return record_value(17, 3, struct.pack(">iq", node, epoch) + tagged(tags | {3: b"\x01"}))


def ids(values) -> bytes:
    return unsigned_varint(len(values) + 1) + b"".join(value.bytes for value in values)


def tagged(tags: dict[int, bytes]) -> bytes:
    return unsigned_varint(len(tags)) + b"".join(
        unsigned_varint(tag) + unsigned_varint(len(value)) + value for tag, value in tags.items()
    )


def by_hand(directory, *values):
    return decode(controller(directory, batch(0, list(values))))


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_every_row_is_what_kafkas_own_decoder_says(version, tmp_path):
    columns = decode(controller(tmp_path, unzipped(f"metadata-{version}.log.gz")))
    assert_same_rows(columns, ClusterOracle(f"metadata-{version}.dump.jsonl.gz"), at_least=40)
    assert {name: values.dtype.str for name, values in columns.items()} == {
        c.name: "<" + c.kind for c in CLUSTER_STATES.columns
    }
    assert {int(kind) for kind in columns["kind"]} == set(Record) - {Record.SNAPSHOT, Record.UNREGISTERED}


def test_three_controllers_give_what_is_committed(tmp_path):
    columns = decode(*quorum(tmp_path))
    assert_same_rows(columns, ClusterOracle("metadata-quorum-4.3.1.dump.jsonl.gz"), at_least=30)


def test_records_that_no_captured_log_has(tmp_path):
    columns = by_hand(
        tmp_path,
        registration(1, 0, DIRECTORY, OTHER),
        changed(1, 0, OTHER, fenced=-1),
        changed(1, 0, shutting_down=1),
        fence(1),
        record_value(8, 0, struct.pack(">iq", 1, 0) + b"\0"),
        record_value(1, 0, struct.pack(">iq", 1, 0) + b"\0"),
        registration(2, 6, version=1, fenced=0, shutting_down=1),
    )
    names = ("log_offset", "kind", "node", "broker_epoch", "fenced", "shutting_down", "id_high", "level")
    assert rows(columns, *names) == [
        (0, Record.REGISTERED, 1, 0, 1, 0, 1, NONE),
        (0, Record.DIRECTORY, 1, 0, NONE, 0, 2, NONE),
        (0, Record.DIRECTORY, 1, 0, NONE, 0, 3, NONE),
        (0, Record.SUPPORTED, 1, 0, NONE, 0, NONE, 1),
        (1, Record.CHANGED, 1, 0, 0, 0, NONE, NONE),
        (1, Record.DIRECTORY, 1, 0, NONE, 0, 3, NONE),
        (2, Record.CHANGED, 1, 0, NONE, 1, NONE, NONE),
        (3, Record.CHANGED, 1, 1, 1, 0, NONE, NONE),
        (4, Record.CHANGED, 1, 0, 0, 0, NONE, NONE),
        (5, Record.UNREGISTERED, 1, 0, 1, 0, NONE, NONE),
        (6, Record.REGISTERED, 2, 6, 0, 1, 1, NONE),
        (6, Record.SUPPORTED, 2, 6, NONE, 0, NONE, 1),
    ]


def test_a_setting_is_of_the_topic_that_has_its_name_or_gets_it_in_the_same_batch(tmp_path):
    def setting(name, kind=2):
        return record_value(
            4, 0, bytes([kind]) + compact_string(name) + compact_string("a") + compact_string("1") + b"\0"
        )

    gone, ids = record_value(9, 0, OTHER.bytes + b"\0"), {"a": PROCESS, "b": DIRECTORY, "c": OTHER}
    a, b, c = (topic(name, one.bytes) for name, one in ids.items())
    first = batch(
        0, [setting("a"), a, setting("a"), c, setting("c"), gone, setting("", kind=4), setting("b"), setting("c")]
    )
    then = batch(9, [b, setting("b"), BEGIN, c, setting("c"), ABORT, setting("c")])
    columns = decode(controller(tmp_path, first + then))
    assert set(columns["kind"]) == {Record.CONFIGURED}
    found = rows(columns, "log_offset", "id_high")
    assert found == [(0, 1), (2, 1), (4, 3), (7, NONE), (8, NONE), (10, 2), (15, NONE)]


def test_what_an_aborted_transaction_states_never_happened(tmp_path):
    broker = registration(1, 1)
    assert len(by_hand(tmp_path / "aborted", BEGIN, broker, ABORT)["kind"]) == 0
    assert len(by_hand(tmp_path / "open", BEGIN, broker)["kind"]) == 0
    assert len(by_hand(tmp_path / "ended", BEGIN, broker, END)["kind"]) == 2


def test_a_snapshot_is_marked_where_the_log_begins_with_it(tmp_path):
    log = unzipped("metadata-quorum-4.3.1.3001.log.gz")
    cut = [b for b in read_batches(log).batches if b.base_offset < 20]
    position = sum(61 + len(b.payload) for b in cut)
    directory = controller(tmp_path / "cut", log[position:], first_offsets=(cut[-1].last_offset + 1,))
    name = "00000000000000000043-0000000002.checkpoint"
    (directory / LOG_DIRECTORY / name).write_bytes(unzipped(f"metadata-quorum-4.3.1.{name}.gz"))
    columns, whole = decode(directory), decode(controller(tmp_path / "whole", log))
    held = columns["log_offset"] == 42
    assert columns["kind"][0] == Record.SNAPSHOT
    assert sorted(columns["node"][held & (columns["kind"] == Record.REGISTERED)].tolist()) == [1, 2, 3]
    names = ("kind", "log_offset", "node", "broker_epoch", "id_low", "fenced")
    assert rows(columns, *names)[held.sum() :] == [row for row in rows(whole, *names) if row[1] > 42]
