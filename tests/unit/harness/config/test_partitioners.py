"""Partitioners: which hash of a key a producer uses, and what the producer beside it uses."""

import pytest

from prozess.harness.config.configuration import ProducerConfiguration
from prozess.harness.config.partitioners import key_hash, key_hashes, second_producer

INTERNALS = "org.apache.kafka.clients.producer.internals.DefaultPartitioner"


@pytest.mark.parametrize(
    ("client", "properties", "found"),
    [
        ("librdkafka", {}, "crc32"),
        ("librdkafka", {"partitioner": "murmur2"}, "murmur2"),
        ("librdkafka", {"partitioner": "fnv1a_random"}, "fnv1a"),
        ("librdkafka", {"partitioner": "random"}, "none"),
        ("librdkafka", {"partitioner": "mine"}, None),
        ("java", {}, "murmur2"),
        ("java", {"partitioner": "random"}, "murmur2"),
        ("java", {"partitioner.class": INTERNALS}, "murmur2"),
        ("java", {"partitioner.class": "com.acme.DefaultPartitioner"}, None),
        ("java", {"partitioner.ignore.keys": "TRUE"}, "none"),
        ("command", {}, None),
    ],
)
def test_the_hash_of_a_key_follows_from_client_and_properties(client, properties, found):
    assert key_hash(client, properties, librdkafka_default="consistent_random") == found


def test_the_producer_beside_differs_only_in_client_and_partitioner():
    first = ProducerConfiguration(
        client="java",
        client_version="3.9.2",
        acks="1",
        beside="librdkafka",
        properties={"partitioner.class": INTERNALS, "a": "b"},
    )
    second = second_producer(first)
    assert second.properties == {"a": "b", "partitioner": "consistent_random"}
    assert (second.client, second.client_version, second.beside, second.acks) == ("librdkafka", None, None, "1")
    assert second_producer(second) is None
    assert key_hashes(first) == ("murmur2", "crc32")


def test_two_producers_of_one_client_have_one_version():
    first = ProducerConfiguration(client="java", client_version="3.9.2", beside="java")
    assert second_producer(first).client_version == "3.9.2"
    assert key_hashes(ProducerConfiguration(beside="java")) == ("murmur2", "murmur2")
