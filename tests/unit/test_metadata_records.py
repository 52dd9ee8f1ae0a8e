"""Records of the metadata log made by hand: what no captured log has."""

import struct

import pytest

from clusters.record_batches import crc32c
from clusters.wire import varint
from harness.errors import HistoryUnreadable
from tests.unit.metadata_logs import (
    ABORT,
    BEGIN,
    END,
    TOPIC_ID,
    batch,
    by_hand,
    change,
    controller,
    decode,
    fence,
    leaders,
    partition,
    record_value,
    topic,
)


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


def test_a_record_type_that_is_not_known_is_left_out(tmp_path):
    assert len(by_hand(tmp_path, record_value(200, 9, b""), fence(1))["kind"]) == 1


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
