"""The decoder of the controllers' log, against logs of real clusters and what Kafka's own decoder says of them."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.clusters.files.metadata_log import LOG_DIRECTORY
from prozess.clusters.files.segments import crc32c, read_batches
from prozess.clusters.protocol.client import varint
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.schema import METADATA, NONE, MetadataKind, MetadataSource
from tests.support.metadata_logs import (
    ABORT,
    BEGIN,
    END,
    IDS,
    TOPIC_ID,
    WALL_MINUS_MONOTONIC_NS,
    MetadataOracle,
    assert_same_rows,
    batch,
    by_hand,
    change,
    controller,
    decode,
    fence,
    leaders,
    mask,
    of_partition,
    partition,
    quorum,
    record_value,
    rows,
    topic,
    unzipped,
)
from tests.support.metadata_logs import decoded as decoded
from tests.support.metadata_logs import version as version


def test_every_row_is_what_kafkas_own_decoder_says(decoded, version):
    assert_same_rows(decoded, MetadataOracle.stored(f"metadata-{version}.dump.jsonl.gz"), at_least=50)


def test_three_controllers_give_what_kafkas_own_decoder_says_of_the_committed_log(tmp_path):
    columns = decode(*quorum(tmp_path))
    assert_same_rows(columns, MetadataOracle.stored("metadata-quorum-4.3.1.dump.jsonl.gz"), at_least=25)
    controllers = [r[1:] for r in rows(columns, "kind", "node", "leader_epoch") if r[0] == MetadataKind.CONTROLLER]
    assert [node for node, _ in controllers][-1] == 3001
    assert sorted(epoch for _, epoch in controllers) == [epoch for _, epoch in controllers]


def test_the_columns_are_those_of_the_schema(decoded):
    assert {name: values.dtype.str for name, values in decoded.items()} == {
        c.name: "<" + c.kind for c in METADATA.columns
    }
    assert set(decoded["source"]) == {MetadataSource.CONTROLLER_LOG}


def test_times_are_monotonic_nanoseconds(tmp_path, decoded, version):
    other = decode(controller(tmp_path / "b", unzipped(f"metadata-{version}.log.gz")), wall_minus_monotonic_ns=0)
    assert (other["time_ns"] - decoded["time_ns"] == WALL_MINUS_MONOTONIC_NS).all()
    assert (np.diff(decoded["time_ns"]) >= 0).all()


def test_an_unclean_election_shows_as_a_leader_outside_isr_and_elr(decoded):
    beta = of_partition(decoded, IDS["beta", 0])
    eligible = (beta["isr"] | beta["elr"])[:-1]
    leader = beta["leader"][1:]
    unclean = (leader >= 0) & ((eligible >> np.maximum(leader, 0)) & 1 == 0)
    assert unclean.sum() == 1
    assert beta["leader"][1:][unclean] == [2]
    assert beta["recovering"][1:][unclean] == [1]
    assert beta["recovering"][-1] == 0


def test_with_elr_the_last_known_leader_is_kept_and_elected(tmp_path):
    alpha = of_partition(decode(controller(tmp_path, unzipped("metadata-4.3.1.log.gz"))), IDS["alpha", 0])
    states = rows(alpha, "leader", "isr", "elr", "last_known_elr", "recovering")
    assert (NONE, 0, mask([1, 2]), mask([1]), 0) in states, (
        "the last one in sync dies: ISR empty, ELR and last known kept"
    )
    assert (1, mask([1]), 0, 0, 1) in states, "the last known leader is elected although it is in neither"


def test_a_deleted_topics_partition_has_no_replicas(decoded):
    gone = of_partition(decoded, IDS["gone", 0])
    assert rows(gone, "leader", "isr", "replicas") == [(3, mask([3]), mask([3])), (NONE, 0, 0)]


def test_partitions_that_were_not_asked_for_are_left_out(tmp_path, version):
    directory = controller(tmp_path, unzipped(f"metadata-{version}.log.gz"))
    assert set(decode(directory, ids={("beta", 0): 17})["partition"]) == {NONE, 17}


# ----------------------------------------------------------------------------------------------------------------------
# What several controllers have of the log, beginning with snapshots, torn, or damaged: decoded as far as it is
# certain.


def test_what_only_a_deposed_controller_has_is_not_committed(tmp_path):
    whole = decode(*quorum(tmp_path / "whole"))
    one, two, three = quorum(tmp_path / "tail")
    last = read_batches(unzipped("metadata-quorum-4.3.1.3001.log.gz")).batches[-1]
    invented = batch(last.last_offset + 1, [fence(1)], epoch=last.leader_epoch)
    with (one / LOG_DIRECTORY / f"{0:020d}.log").open("ab") as log:
        log.write(invented)
    columns = decode(one, two, three)
    assert rows(columns, "kind", "log_position") == rows(whole, "kind", "log_position")


def test_what_a_majority_has_is_committed_although_one_controller_is_gone(tmp_path):
    whole = decode(*quorum(tmp_path / "whole"))
    one, _, three = quorum(tmp_path / "two")
    columns = decode(one, tmp_path / "wiped", three)
    assert rows(columns, "kind", "log_position") == rows(whole, "kind", "log_position")


def test_a_minority_of_the_controllers_proves_nothing(tmp_path):
    one, _, _ = quorum(tmp_path)
    with pytest.raises(HistoryUnreadable, match="needs 2 of 3 controllers' logs; readable: 1"):
        decode(one, tmp_path / "wiped", tmp_path / "too")


def test_a_log_that_begins_with_a_snapshot_goes_on_from_it(tmp_path):
    log = unzipped("metadata-quorum-4.3.1.3001.log.gz")
    snapshot = unzipped("metadata-quorum-4.3.1.00000000000000000043-0000000002.checkpoint.gz")
    cut = [b for b in read_batches(log).batches if b.base_offset < 20]  # so that 20 … 42 are in both
    position = sum(61 + len(b.payload) for b in cut)
    end = cut[-1].last_offset + 1
    directory = controller(tmp_path / "cut", log[position:], first_offsets=(end,))
    (directory / LOG_DIRECTORY / "00000000000000000043-0000000002.checkpoint").write_bytes(snapshot)
    columns, whole = decode(directory), decode(controller(tmp_path / "whole", log))

    def final(history, p):
        return rows(of_partition(history, p), "leader", "leader_epoch", "isr", "replicas", "elr", "recovering")[-1]

    assert [final(columns, p) for p in (0, 1, 2)] == [final(whole, p) for p in (0, 1, 2)]
    after = whole["log_position"] >= 43
    assert after.any()
    names = ("kind", "log_position", "node")
    assert rows(columns, *names)[-after.sum() :] == rows(whole, *names)[-after.sum() :]
    before = columns["log_position"] < 43
    assert before.any()
    assert set(columns["log_position"][before]) == {42}, "what the snapshot holds is stated at its last record"


def test_a_log_that_begins_late_without_a_snapshot_is_refused(tmp_path):
    log = unzipped("metadata-3.9.2.log.gz")
    first = read_batches(log).batches[0]
    directory = controller(tmp_path, log[61 + len(first.payload) :], first_offsets=(first.last_offset + 1,))
    with pytest.raises(HistoryUnreadable, match="begins at offset 1, and no snapshot"):
        decode(directory)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_torn_last_batch_is_left_out_wherever_it_is_cut(tmp_path_factory, data):
    log = unzipped("metadata-3.9.2.log.gz")
    batches = read_batches(log).batches
    missing = data.draw(st.integers(1, 61 + len(batches[-1].payload)))
    columns = decode(controller(tmp_path_factory.mktemp("torn"), log[:-missing]))
    whole = decode(controller(tmp_path_factory.mktemp("whole"), log))
    kept = int((whole["log_position"] < batches[-1].base_offset).sum())
    assert rows(columns, "kind", "log_position") == rows(whole, "kind", "log_position")[:kept]


def test_zeros_behind_the_last_batch_are_a_torn_tail(tmp_path):
    log = unzipped("metadata-3.9.2.log.gz")
    columns = decode(controller(tmp_path / "zeros", log + bytes(4096)))
    assert len(columns["kind"]) == len(decode(controller(tmp_path / "whole", log))["kind"])


def test_damage_in_the_middle_is_refused(tmp_path):
    log = bytearray(unzipped("metadata-3.9.2.log.gz"))
    log[len(log) // 2] ^= 0xFF
    with pytest.raises(HistoryUnreadable, match="is damaged at byte"):
        decode(controller(tmp_path, bytes(log)))


def test_a_torn_segment_that_is_not_the_last_is_refused(tmp_path):
    first, second = batch(0, [fence(1)]), batch(1, [fence(2)])
    with pytest.raises(HistoryUnreadable, match="yet the log goes on"):
        decode(controller(tmp_path, first + first[:20], second, first_offsets=(0, 1)))


def test_a_missing_segment_is_refused(tmp_path):
    with pytest.raises(HistoryUnreadable, match="offset 5 follows 0"):
        decode(controller(tmp_path, batch(0, [fence(1)]), batch(5, [fence(2)]), first_offsets=(0, 5)))


def test_segments_are_read_one_after_the_other(tmp_path):
    columns = decode(controller(tmp_path, batch(0, [fence(1)]), batch(1, [fence(2)]), b"", first_offsets=(0, 1, 2)))
    assert rows(columns, "node", "log_position") == [(1, 0), (2, 1)]


@pytest.mark.parametrize("content", [None, b""])
def test_a_missing_or_empty_log_is_refused_by_name(tmp_path, content):
    directory = controller(tmp_path, content) if content is not None else tmp_path
    with pytest.raises(HistoryUnreadable, match="holds no metadata log"):
        decode(directory)


# ----------------------------------------------------------------------------------------------------------------------
# Records of the metadata log made by hand: what no captured log has.


def test_a_change_that_names_the_same_leader_raises_the_epoch_all_the_same(tmp_path):
    columns = by_hand(tmp_path, topic("beta", TOPIC_ID), partition(TOPIC_ID, leader=1), change(TOPIC_ID, leader=1))
    assert leaders(columns) == [(1, 0, 1), (1, 1, 2)]


def test_an_aborted_metadata_transaction_never_happened(tmp_path):
    values = (topic("beta", TOPIC_ID), partition(TOPIC_ID, leader=1), BEGIN, change(TOPIC_ID, leader=2), ABORT)
    columns = by_hand(tmp_path, *values, change(TOPIC_ID, leader=3))
    assert leaders(columns) == [(1, 0, 1), (3, 1, 5)]


@pytest.mark.parametrize(("ending", "happened"), [((END,), [(2, 1, 3)]), ((), [])])
def test_a_metadata_transaction_happened_if_it_was_ended(tmp_path, ending, happened):
    values = (topic("beta", TOPIC_ID), partition(TOPIC_ID, leader=1), BEGIN, change(TOPIC_ID, leader=2), *ending)
    assert leaders(by_hand(tmp_path, *values)) == [(1, 0, 1), *happened]


def test_a_record_version_that_is_not_known_is_refused(tmp_path):
    with pytest.raises(HistoryUnreadable, match="type 5 version 3 at offset 0; known: 0…2"):
        by_hand(tmp_path, record_value(5, 3, b""))


def test_a_record_type_that_tells_nothing_of_partitions_and_brokers_is_left_out(tmp_path):
    assert len(by_hand(tmp_path, record_value(29, 9, b""), fence(1))["kind"]) == 1


def test_a_record_type_that_is_newer_than_all_known_ones_is_refused_since_it_may_tell_of_anything(tmp_path):
    with pytest.raises(HistoryUnreadable, match=r"has a record of type 30 .*; known: 0…29"):
        by_hand(tmp_path, fence(1), record_value(30, 0, b""))


def test_a_broker_id_that_fits_no_mask_is_refused(tmp_path):
    many = b"\x02" + struct.pack(">i", 1001)
    value = record_value(3, 0, struct.pack(">i", 0) + TOPIC_ID + many * 2 + b"\x01\x01" + bytes(12) + b"\0")
    with pytest.raises(HistoryUnreadable, match=r"Broker id 1001 .* use ids 0…62"):
        by_hand(tmp_path, topic("beta", TOPIC_ID), value)


@pytest.mark.parametrize("length", [0, 1, -1, -40, 2**30], ids=str)
def test_a_record_that_does_not_go_forward_is_refused_whatever_the_batch_says_how_many_there_are(tmp_path, length):
    payload = varint(length) + b"\0" + varint(0) * 2 + varint(-1) * 2 + varint(0)
    checked = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 2**31 - 1) + payload
    data = struct.pack(">qiibI", 0, len(checked) + 9, 1, 2, crc32c(checked)) + checked
    with pytest.raises(HistoryUnreadable, match="ends outside itself or its batch"):
        decode(controller(tmp_path, data))


def test_a_time_of_more_than_64_bits_is_refused(tmp_path):
    late = batch(0, [fence(1)], time_ms=2**62)
    with pytest.raises(HistoryUnreadable, match="holds a number of more than 64 bits"):
        decode(controller(tmp_path, late))


def test_the_checksum_is_castagnolis():
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720, B.4, and every table of check values
