"""Configurations become properties that librdkafka accepts and that say the same."""

import pytest
from confluent_kafka import Consumer, Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.config.configuration import RETRIES_MAX, ProducerConfiguration
from prozess.harness.errors import BadInput
from prozess.workloads.librdkafka import BACKOFF_KEY, LIMIT_KEY, backoff_limit_ms, least_retry_ms
from prozess.workloads.settings import producer_properties, reader_properties, retries_allowed, sentinel_properties
from prozess.workloads.transactions.launch import within_lifetime

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
    retries=st.sampled_from(["0", "1", "3", "max"]) | st.integers(0, RETRIES_MAX).map(str),
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
    assert properties["message.send.max.retries"] == (RETRIES_MAX if retries == "max" else int(retries))
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


@pytest.mark.parametrize("retries", ["-1", "2147483648", "5.0", "many", ""])
def test_retries_that_no_client_knows_are_refused(retries):
    with pytest.raises(ValueError, match="a number from 0 to 2147483647, or 'max'"):
        ProducerConfiguration(retries=retries)


def test_retries_are_one_text_for_one_number():
    assert ProducerConfiguration(retries=3).retries == ProducerConfiguration(retries="03").retries == "3"
    assert ProducerConfiguration(retries=RETRIES_MAX).retries == "max"


# ----------------------------------------------------------------------------------------------------------------------
# The longest wait between retries: a record's time is over before librdkafka's product of it overflows.


LIMIT_MAX_MS = 300_000


def waits_ms(backoff_ms, limit_ms):
    """What rd_kafka_retry_msgq computes, with the least jitter, until its product of two ints is too large for one."""
    waits = []
    while backoff_ms << len(waits) < 2**31:
        waits.append(min((backoff_ms << len(waits)) * 80 // 100, limit_ms))
    return waits


@given(lives_ms=st.integers(1, 3_600_000), backoff_ms=st.integers(1, 10_000))
def test_the_retries_that_are_counted_rightly_outlast_a_record_and_the_limit_is_the_least_that_does_it(
    lives_ms, backoff_ms
):
    limit_ms = backoff_limit_ms({BACKOFF_KEY: backoff_ms, "delivery.timeout.ms": lives_ms})
    assert max(200, backoff_ms) <= limit_ms <= LIMIT_MAX_MS
    waits = waits_ms(backoff_ms, limit_ms)
    assert sum(waits) >= lives_ms - len(waits) or limit_ms == LIMIT_MAX_MS
    if limit_ms > max(200, backoff_ms) and limit_ms < LIMIT_MAX_MS:
        assert sum(waits_ms(backoff_ms, limit_ms - 100)) < lives_ms


@pytest.mark.parametrize(("lives_ms", "limit_ms"), [(5_000, 300), (30_000, 1_400), (60_000, 2_900), (120_000, 6_200)])
def test_of_the_usual_100_ms_there_are_25_retries(lives_ms, limit_ms):
    assert len(waits_ms(100, limit_ms)) == 25
    assert backoff_limit_ms({"delivery.timeout.ms": lives_ms}) == limit_ms
    assert least_retry_ms(100, limit_ms) >= lives_ms > least_retry_ms(100, limit_ms - 100)


def limit_of(delivery_timeout_ms=60_000, **properties):
    made = producer_properties(
        ProducerConfiguration(delivery_timeout_ms=delivery_timeout_ms, properties=properties),
        bootstrap_servers="127.0.0.1:1",
        client_name="p",
        partitions=1,
        unacknowledged_max=10,
    )
    Producer(made)
    return made[LIMIT_KEY]


def test_the_users_own_limit_wins_and_a_limit_follows_the_users_own_times():
    assert limit_of(**{LIMIT_KEY: "250"}) == "250"
    assert limit_of() == 2_900
    assert limit_of(**{"delivery.timeout.ms": "30000"}) == 1_400
    assert limit_of(**{"message.timeout.ms": 30_000}) == 1_400
    assert limit_of(**{BACKOFF_KEY: "5000"}) == 5_000, "librdkafka waits for the limit where it is the smaller one"
    assert limit_of(**{"message.timeout.ms": 0}) == 1_000, "for ever"


def test_what_lives_in_a_transaction_does_not_outlive_it():
    assert within_lifetime(ProducerConfiguration(delivery_timeout_ms=60_000), 10_000).delivery_timeout_ms == 10_000
    assert within_lifetime(ProducerConfiguration(delivery_timeout_ms=5_000), 10_000).delivery_timeout_ms == 5_000
