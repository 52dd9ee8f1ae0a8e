"""The longest wait between retries: a record's time is over before librdkafka's product of it overflows."""

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from harness.configuration import ProducerConfiguration
from workloads.backoff import BACKOFF_KEY, LIMIT_KEY, backoff_limit_ms, least_ms
from workloads.properties import producer_properties
from workloads.transaction_properties import living_within

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
    assert least_ms(100, limit_ms) >= lives_ms > least_ms(100, limit_ms - 100)


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
    assert living_within(ProducerConfiguration(delivery_timeout_ms=60_000), 10_000).delivery_timeout_ms == 10_000
    assert living_within(ProducerConfiguration(delivery_timeout_ms=5_000), 10_000).delivery_timeout_ms == 5_000
