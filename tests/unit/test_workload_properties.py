"""Configurations become properties that librdkafka accepts and that say the same."""

import pytest
from confluent_kafka import Consumer, Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.configuration import ProducerConfiguration
from harness.errors import BadInput
from workloads.properties import (
    RETRIES_MAX,
    producer_properties,
    reader_properties,
    retries_allowed,
    sentinel_properties,
)

SERVERS = "127.0.0.1:1"


def properties_of(partitions=2, unacknowledged_max=100, **configuration):
    return producer_properties(
        ProducerConfiguration(**configuration),
        bootstrap_servers=SERVERS,
        client_name="p",
        partitions=partitions,
        unacknowledged_max=unacknowledged_max,
    )


@settings(max_examples=15, deadline=None)
@given(
    acks=st.sampled_from(["0", "1", "all"]),
    retries=st.sampled_from(["0", "max"]),
    in_flight=st.sampled_from([1, 5, 100]),
    compression=st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    timeout_ms=st.integers(1_000, 600_000),
    cap=st.integers(1, 10**9),
)
def test_librdkafka_accepts_every_configuration(acks, retries, in_flight, compression, timeout_ms, cap):
    properties = properties_of(
        acks=acks,
        retries=retries,
        max_in_flight=in_flight,
        compression_type=compression,
        delivery_timeout_ms=timeout_ms,
        unacknowledged_max=cap,
    )
    Producer(properties)
    assert properties["acks"] == acks
    assert properties["delivery.timeout.ms"] == timeout_ms
    assert properties["message.send.max.retries"] == (0 if retries == "0" else RETRIES_MAX)
    assert retries_allowed(properties) is (retries != "0")


def test_librdkafka_accepts_an_idempotent_producer_a_sentinel_and_both_readers():
    Producer(properties_of(enable_idempotence=True))
    Producer(sentinel_properties(bootstrap_servers=SERVERS, client_name="s", timeout_s=0.5))
    for level in ("read_uncommitted", "read_committed"):
        properties = reader_properties(level, bootstrap_servers=SERVERS, client_name="r")
        assert (properties["isolation.level"], properties["check.crcs"]) == (level, True)
        Consumer(properties).close()


def test_the_queue_is_larger_than_the_caps_of_all_partitions():
    assert properties_of(partitions=100, unacknowledged_max=5_000)["queue.buffering.max.messages"] >= 500_000


def test_the_users_own_properties_win():
    properties = properties_of(properties={"retry.backoff.ms": 7, "batch.num.messages": "3"})
    assert (properties["retry.backoff.ms"], properties["batch.num.messages"]) == ("7", "3")


@pytest.mark.parametrize(
    ("properties", "allowed"),
    [
        ({}, True),
        ({"retries": "0"}, False),
        ({"retries": 0, "message.send.max.retries": 0}, False),
        ({"retries": "3", "message.send.max.retries": 0}, True),
        ({"message.send.max.retries": 1}, True),
    ],
)
def test_retries_are_excluded_only_if_every_spelling_says_zero(properties, allowed):
    assert retries_allowed(properties) is allowed


def test_a_java_producer_is_refused_with_the_way_out():
    with pytest.raises(BadInput, match=r"producer\.client='java'.*librdkafka"):
        properties_of(client="java")
