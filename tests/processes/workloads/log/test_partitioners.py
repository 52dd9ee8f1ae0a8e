"""Partitioners: a record goes where librdkafka would have sent it."""

import random

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.errors import BadInput
from prozess.testing.recorded.producer import partitioner
from tests.support.mock_kafka import mock_kafka

KEYS = [b"a", b"ab", b"abc", b"abcd", b"customer-17", b"\xff\x00\x80", "grüße".encode(), bytes(range(256))]
COUNT = 13


@pytest.fixture(scope="module")
def kafka():
    with mock_kafka() as made:
        made.create("t", partitions=COUNT)
        yield made


@pytest.mark.parametrize(
    "name", ["consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"]
)
def test_a_key_goes_where_librdkafka_sends_it(kafka, name):
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": name})
    found = {}
    for key in KEYS:
        producer.produce("t", b"", key, on_delivery=lambda error, m: found.update({m.key(): (error, m.partition())}))
    assert producer.flush(30) == 0
    choose = partitioner(name, random.Random(0))
    assert found == {key: (None, choose(key, COUNT)) for key in KEYS}


@given(st.binary(max_size=40), st.integers(1, 100), st.sampled_from(["consistent", "murmur2_random", "fnv1a"]))
def test_a_key_always_goes_to_one_partition_that_is_there(key, count, name):
    first = partitioner(name, random.Random(1))(key, count)
    assert first == partitioner(name, random.Random(2))(key, count)
    assert 0 <= first < count


def test_without_a_key_records_are_spread():
    choose = partitioner("consistent_random", random.Random(0))
    assert {choose(None, 5) for _ in range(200)} == set(range(5))
    assert {choose(b"", 5) for _ in range(200)} == set(range(5)), "an empty key is none"
    assert len({partitioner("murmur2_random", random.Random(0))(b"", 5) for _ in range(20)}) == 1


def test_a_partitioner_that_librdkafka_has_not_is_refused():
    with pytest.raises(BadInput, match=r"'sticky' is none that librdkafka has. Known: random"):
        partitioner("sticky", random.Random(0))
