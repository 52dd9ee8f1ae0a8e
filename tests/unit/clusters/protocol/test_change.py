"""What is asked of Kafka to change it, byte by byte, and through brokers on loopback: refused, silent, or sent elsewhere."""

import struct

import pytest

from prozess.clusters.protocol.client import Cursor, compact_string, string
from prozess.clusters.protocol.requests import (
    Reassignment,
    alter_reassignments_request,
    elect_leaders_request,
    list_reassignments_request,
    update_feature_request,
)
from prozess.harness.errors import ClusterFailed
from tests.unit.clusters.protocol.test_admin import SILENT, administer

__all__ = ["administer"]  # the fixture

ELECT, ALTER, LIST, UPDATE = 43, 45, 46, 57
NOT_CONTROLLER, NOT_NEEDED, NOTHING_MOVES = 41, 84, 85


def elected(error=0, *, of_partition=0, message=None):
    """ElectLeaders v1: one partition of topic t."""
    told = struct.pack(">ih", 3, of_partition) + (string(message) if message else struct.pack(">h", -1))
    return struct.pack(">ihi", 0, error, 1) + string("t") + struct.pack(">i", 1) + told


def altered(error=0, *, of_partition=0, message=""):
    """AlterPartitionReassignments v0, with the response header's tags in front."""
    told = struct.pack(">ih", 3, of_partition) + (compact_string(message) if message else b"\0") + b"\0"
    topics = b"\x02" + compact_string("t") + b"\x02" + told + b"\0"
    return b"\0" + struct.pack(">ih", 0, error) + b"\0" + topics + b"\0"


def listed(*lists):
    """ListPartitionReassignments v0 of t-3."""
    told = struct.pack(">i", 3) + b"".join(bytes([len(x) + 1]) + struct.pack(f">{len(x)}i", *x) for x in lists) + b"\0"
    topics = b"\x02" + compact_string("t") + b"\x02" + told + b"\0" if lists else b"\x01"
    return b"\0" + struct.pack(">ih", 0, 0) + b"\0" + topics + b"\0"


def updated(error=0, *, of_feature=0, message=""):
    """UpdateFeatures v1 of one feature."""
    told = compact_string("metadata.version") + struct.pack(">h", of_feature) + compact_string(message) + b"\0"
    return b"\0" + struct.pack(">ih", 0, error) + b"\0" + b"\x02" + told + b"\0"


# --- bytes


def test_an_election_names_its_kind_and_each_topics_partitions_once():
    body = elect_leaders_request([("t", 0), ("u", 1), ("t", 2)], unclean=True, timeout_ms=5000).body
    cursor = Cursor(body)
    assert (cursor.int8(), cursor.int32()) == (1, 2)
    assert (cursor.string(), cursor.int32s(cursor.int32())) == ("t", (0, 2))
    assert (cursor.string(), cursor.int32s(cursor.int32())) == ("u", (1,))
    assert (cursor.int32(), cursor.position) == (5000, len(body))


def test_a_reassignment_names_the_brokers_in_order_and_null_gives_it_up():
    body = alter_reassignments_request({("t", 0): (3, 1), ("t", 1): None}, timeout_ms=5000).body
    cursor = Cursor(body)
    assert (cursor.int32(), cursor.unsigned_varint() - 1, cursor.compact_string()) == (5000, 1, "t")
    assert cursor.unsigned_varint() - 1 == 2
    assert (cursor.int32(), cursor.compact_int32s(), cursor.tagged_fields()) == (0, (3, 1), {})
    assert (cursor.int32(), cursor.unsigned_varint(), cursor.tagged_fields()) == (1, 0, {})
    assert (cursor.tagged_fields(), cursor.tagged_fields(), cursor.position) == ({}, {}, len(body))


def test_every_reassignment_is_listed_when_no_topic_is_named():
    assert list_reassignments_request(timeout_ms=7).body == struct.pack(">i", 7) + b"\0\0"


def test_a_feature_is_raised_and_never_lowered():
    body = update_feature_request("metadata.version", 25, timeout_ms=9).body
    cursor = Cursor(body)
    assert (cursor.int32(), cursor.unsigned_varint() - 1, cursor.compact_string()) == (9, 1, "metadata.version")
    assert (cursor.int16(), cursor.int8()) == (25, 1), "1 is an upgrade (KIP-778)"
    assert (cursor.tagged_fields(), cursor.int8(), cursor.tagged_fields()) == ({}, 0, {}), "not only validated"
    assert cursor.position == len(body)


# --- through brokers


def test_partitions_that_were_not_elected_are_told_with_why(administer):
    admin, _ = administer([{ELECT: elected(of_partition=NOT_NEEDED, message="it leads")}])
    told = admin.elect_leaders([("t", 3)], unclean=False, timeout_s=5)
    assert told == {("t", 3): "ELECTION_NOT_NEEDED: it leads"}
    admin, _ = administer([{ELECT: elected()}])
    assert admin.elect_leaders([("t", 3)], unclean=False, timeout_s=5) == {}


def test_a_broker_that_is_not_the_controller_or_is_gone_is_passed_over(administer):
    admin, servers = administer([{ALTER: altered(NOT_CONTROLLER)}, {ALTER: altered()}])
    admin.reassign({("t", 3): (1, 2)}, timeout_s=10)
    assert [len(server.requests) for server in servers.values()] == [1, 1]
    admin, servers = administer([SILENT, {ALTER: altered()}], stopped=(1,))
    admin.reassign({("t", 3): (1, 2)}, timeout_s=10)
    assert [len(server.requests) for server in servers.values()] == [0, 1], "those that run are asked first"


def test_a_broker_that_says_so_of_each_partition_is_passed_over_too(administer):
    """As 3.9 with ZooKeeper answers ElectLeaders where it is not the controller."""
    admin, servers = administer([{ELECT: elected(of_partition=NOT_CONTROLLER)}, {ELECT: elected()}])
    assert admin.elect_leaders([("t", 3)], unclean=False, timeout_s=10) == {}
    assert [len(server.requests) for server in servers.values()] == [1, 1]


def test_a_refused_partition_is_an_error_with_kafkas_words_and_nothing_to_give_up_is_none(administer):
    admin, _ = administer([{ALTER: altered(of_partition=39, message="no such broker")}])
    with pytest.raises(ClusterFailed, match=r"refuses to reassign t-3: error 39: no such broker"):
        admin.reassign({("t", 3): (1, 9)}, timeout_s=5)
    admin, _ = administer([{ALTER: altered(of_partition=NOTHING_MOVES)}])
    admin.reassign({("t", 3): None}, timeout_s=5)


def test_what_is_under_way_is_told(administer):
    admin, _ = administer([{LIST: listed((1, 2, 4), (4,), (1,))}])
    assert admin.reassignments() == {("t", 3): Reassignment((1, 2, 4), (4,), (1,))}
    admin, _ = administer([{LIST: listed()}])
    assert admin.reassignments() == {}


def test_if_nobody_can_tell_the_last_answer_is_in_the_error(administer):
    admin, _ = administer([{ELECT: elected(NOT_CONTROLLER)}])
    with pytest.raises(ClusterFailed, match=r"No broker can be asked to elect leaders: broker 1: NOT_CONTROLLER"):
        admin.elect_leaders([("t", 3)], unclean=True, timeout_s=5)


def test_a_refused_feature_level_is_an_error_with_kafkas_words(administer):
    admin, _ = administer([{UPDATE: updated()}])
    admin.update_feature("metadata.version", 25, timeout_s=5)
    admin, _ = administer([{UPDATE: updated(of_feature=95, message="broker 2 knows 21 at most")}])
    with pytest.raises(ClusterFailed, match=r"finalize metadata.version = 25: .*error 95: broker 2 knows 21 at most"):
        admin.update_feature("metadata.version", 25, timeout_s=5)
