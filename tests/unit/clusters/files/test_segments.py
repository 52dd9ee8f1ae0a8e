"""Reading log segments by their batch headers: whole logs, torn tails, damaged middles, checkpoints."""

import struct
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.clusters.files.segments import (
    HEADER,
    batch_starts,
    log_end,
    read_epoch_checkpoint,
    read_headers,
    read_offset_checkpoint,
    read_replicas,
)
from prozess.harness.errors import HistoryUnreadable

_LAYOUT = struct.Struct(">qiibIhiqqqhii")
"""Written out once more, so that the reader's layout is not tested against itself."""


def batch(base=0, records=1, *, epoch=0, body=b"r" * 20, producer=(-1, -1, -1), checksum=7, attributes=0):
    return (
        _LAYOUT.pack(base, 49 + len(body), epoch, 2, checksum, attributes, records - 1, 1000, 1005, *producer, records)
        + body
    )


def log_of(tmp_path, *segments, topic="t-0"):
    """`segments`: (base offset, bytes)."""
    directory = tmp_path / topic
    directory.mkdir()
    for base, data in segments:
        (directory / f"{base:020d}.log").write_bytes(data)
    return directory


def replicas(tmp_path, problems=None):
    found = [] if problems is None else problems
    read = list(read_replicas({1: tmp_path}, [(5, "t", 0)], on_problem=found.append))
    assert problems is not None or not found
    return read


def test_every_field_of_every_batch_is_read_over_all_segments(tmp_path):
    first = batch(0, 3, epoch=1, producer=(1000, 2, 40), checksum=0xFFFFFFFF, attributes=0x10)
    log_of(tmp_path, (0, first), (3, batch(3, 1, epoch=4, body=b"") + batch(9, 2)))
    (replica,) = replicas(tmp_path)
    assert {name: values.tolist() for name, values in replica.batches.items()} == {
        "base_offset": [0, 3, 9],
        "last_offset": [2, 3, 10],
        "leader_epoch": [1, 4, 0],
        "producer_id": [1000, -1, -1],
        "producer_epoch": [2, -1, -1],
        "base_sequence": [40, -1, -1],
        "records": [3, 1, 2],
        "checksum": [0xFFFFFFFF, 7, 7],
        "attributes": [16, 0, 0],
        "base_timestamp_ms": [1000] * 3,
        "max_timestamp_ms": [1005] * 3,
        "size": [81, 61, 81],
    }
    assert (replica.node, replica.partition, replica.log_start, replica.log_end) == (1, 5, 0, 11)
    assert (replica.high_watermark, replica.epoch_starts, replica.torn) == (None, {}, "")


@given(cut=st.integers(0, 399), lengths=st.lists(st.integers(0, 90), min_size=1, max_size=6))
def test_wherever_a_segment_is_cut_exactly_the_whole_batches_are_read(cut, lengths):
    batches = [batch(n, body=b"x" * length) for n, length in enumerate(lengths)]
    data = b"".join(batches)[:cut]
    with NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        headers, torn = read_headers(Path(file.name))
    ends = np.cumsum([len(b) for b in batches])
    assert headers["base_offset"].tolist() == list(range(int((ends <= len(data)).sum())))
    assert bool(torn) == (len(data) not in (0, *ends.tolist()))


def test_preallocated_zeros_behind_the_last_batch_are_its_end(tmp_path):
    log_of(tmp_path, (0, batch(0) + bytes(500)))
    (replica,) = replicas(tmp_path)
    assert replica.log_end == 1
    assert replica.torn == "00000000000000000000.log byte 81 of 581: length 0, magic 0"


def test_a_torn_segment_with_another_behind_it_is_no_evidence(tmp_path):
    log_of(tmp_path, (0, batch(0) + batch(1)[:-1]), (2, batch(2)))
    problems = []
    assert replicas(tmp_path, problems) == []
    assert "byte 81 of 161: 1 bytes are missing, yet the log goes on in 00000000000000000002.log" in problems[0]


def test_what_kafka_put_aside_is_no_part_of_the_log(tmp_path):
    directory = log_of(tmp_path, (0, batch(0)))
    (directory / "00000000000000000000.log.deleted").write_bytes(batch(0))
    (directory / "00000000000000000000.log.swap").write_bytes(batch(0))
    (directory / "leftover.log").write_bytes(b"?")
    assert len(replicas(tmp_path)[0].batches["size"]) == 1


def test_an_empty_copy_begins_and_ends_at_its_segments_name(tmp_path):
    log_of(tmp_path, (40, b""))
    (replica,) = replicas(tmp_path)
    assert (replica.log_start, replica.log_end, len(replica.batches["size"])) == (40, 40, 0)
    assert log_end(tmp_path, "t", 0) == 40


def test_a_broker_without_the_partition_has_no_copy(tmp_path):
    assert replicas(tmp_path) == []
    assert log_end(tmp_path, "t", 0) is None


def test_the_log_end_is_that_of_the_last_segment(tmp_path):
    log_of(tmp_path, (0, batch(0)), (1, batch(1, 4) + batch(5, 2)[:-3]))
    assert log_end(tmp_path, "t", 0) == 5


def test_checkpoints_are_read_as_kafka_writes_them(tmp_path):
    directory = log_of(tmp_path, (0, batch(0)))
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 67\n")
    (tmp_path / "replication-offset-checkpoint").write_text("0\n2\nt 0 1\nother-topic 12 99\n")
    (tmp_path / "log-start-offset-checkpoint").write_text(
        ""
    )  # made at the start, written when there is something to say
    (replica,) = replicas(tmp_path)
    assert (replica.epoch_starts, replica.high_watermark, replica.log_start) == ({0: 0, 3: 67}, 1, 0)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 1\n")
    assert replicas(tmp_path)[0].log_start == 1
    assert read_offset_checkpoint(tmp_path / "none") == {}


@pytest.mark.parametrize(
    "text",
    [
        "0\n3\n0 0\n",
        "1\n1\n0 0\n",
        "0\n1\n0 zero\n",
        "0\n1\n0 0 0\n",
        "0\n",
        "0\n1\n0 --5\n",
        "0\n1\n0 ²\n",
        f"0\n1\n0 {10**30}\n",
    ],
)
def test_a_malformed_checkpoint_is_refused_by_name(tmp_path, text):
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text(text)
    with pytest.raises(HistoryUnreadable, match="leader-epoch-checkpoint is no checkpoint"):
        read_epoch_checkpoint(path)


def test_a_checkpoint_that_is_no_text_is_refused_by_name(tmp_path):
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(HistoryUnreadable, match="leader-epoch-checkpoint is no text"):
        read_epoch_checkpoint(path)


def test_one_bad_checkpoint_costs_that_copy_and_no_other(tmp_path):
    directory = log_of(tmp_path, (0, batch(0)))
    log_of(tmp_path, (0, batch(0)), topic="t-1")
    (directory / "leader-epoch-checkpoint").write_text("?")
    problems: list[str] = []
    named = [(5, "t", 0), (6, "t", 1)]
    read = list(read_replicas({1: tmp_path}, named, on_problem=problems.append))
    assert [replica.partition for replica in read] == [6]
    assert len(problems) == 1


def test_the_header_is_as_long_as_kafka_says():
    assert HEADER.itemsize == _LAYOUT.size == 61


BODIES = st.lists(st.integers(0, 40), min_size=1, max_size=6)


@given(here=BODIES, there=BODIES, cut=st.integers(0, 60), damage=st.none() | st.integers(0, 300))
def test_what_another_copy_was_found_to_be_changes_nothing(here, there, cut, damage):
    """Whether the other copy is the same, longer, shorter or altogether another, and whatever befell this one."""

    def log(bodies):
        return b"".join(batch(n, body=b"x" * size) for n, size in enumerate(bodies))

    data = bytearray(log(here)[: max(0, len(log(here)) - cut)])
    if damage is not None and damage < len(data):
        data[damage] ^= 0xFF
    with NamedTemporaryFile() as other, NamedTemporaryFile() as file:
        Path(other.name).write_bytes(log(there))
        Path(file.name).write_bytes(data)
        expected = batch_starts(read_headers(Path(other.name))[0])
        headers, torn = read_headers(Path(file.name), expected)
        alone, torn_alone = read_headers(Path(file.name))
    assert headers.tobytes() == alone.tobytes()
    assert torn == torn_alone


def test_copies_on_several_brokers_are_each_read_for_what_they_are(tmp_path):
    same = [batch(0, 3), batch(3, 2)]
    for node, tail in ((1, batch(5)), (2, batch(5)), (3, batch(5, body=b"other") + batch(6))):
        (tmp_path / str(node)).mkdir()
        log_of(tmp_path / str(node), (0, b"".join(same) + tail))
    brokers = {node: tmp_path / str(node) for node in (1, 2, 3)}
    read = list(read_replicas(brokers, [(5, "t", 0)], on_problem=pytest.fail))
    assert [replica.batches["base_offset"].tolist() for replica in read] == [[0, 3, 5], [0, 3, 5], [0, 3, 5, 6]]
    assert [replica.batches["size"][2] for replica in read] == [81, 81, 66]
