"""How a producer's library chooses the partition of a record that has a key."""

from collections.abc import Mapping

from prozess.harness.config.configuration import ProducerConfiguration

CRC32, MURMUR2, FNV1A, NO_HASH = "crc32", "murmur2", "fnv1a", "none"
_OF_LIBRDKAFKA = {
    **dict.fromkeys(("consistent", "consistent_random"), CRC32),
    **dict.fromkeys(("murmur2", "murmur2_random"), MURMUR2),
    **dict.fromkeys(("fnv1a", "fnv1a_random"), FNV1A),
    "random": NO_HASH,
}
"""[librdkafka CONFIGURATION, partitioner]"""
_PACKAGES = ("org.apache.kafka.clients.producer.internals.", "org.apache.kafka.clients.producer.")
_OF_JAVA = {
    "DefaultPartitioner": MURMUR2,
    "RoundRobinPartitioner": NO_HASH,
    "UniformStickyPartitioner": NO_HASH,
}
"""Kafka's own classes. [Kafka documentation, producer, partitioner.class; KIP-480, KIP-369]"""
LIBRDKAFKA_DEFAULT = "consistent_random"
TOOL_DEFAULT = "murmur2_random"
"""The partitioner of prozess's own verifiable producer on librdkafka, which does what Java's does."""


def key_hash(client: str, properties: Mapping[str, str], *, librdkafka_default: str) -> str | None:
    """Returns by which hash of the key a producer chooses: crc32, murmur2 or fnv1a; "none" if the key does not matter. None:
    a class or a program of yours decides.

    Example: Java hashes with murmur2 and librdkafka with crc32, if nothing is set. One key goes to two partitions then."""
    if client == "librdkafka":
        return _OF_LIBRDKAFKA.get(properties.get("partitioner", librdkafka_default))
    if client != "java":
        return None
    if (name := properties.get("partitioner.class")) is not None:
        return next((_OF_JAVA.get(name.removeprefix(p)) for p in _PACKAGES if name.startswith(p)), None)
    return NO_HASH if properties.get("partitioner.ignore.keys", "false").lower() == "true" else MURMUR2


def second_producer(producer: ProducerConfiguration) -> ProducerConfiguration | None:
    """Returns the configuration of the producer beside this one (`producer.beside`): all alike, but the client and its own
    partitioner. None: there is none."""
    if producer.beside is None:
        return None
    kept = {key: value for key, value in producer.properties.items() if not key.startswith("partitioner")}
    own = {"partitioner": LIBRDKAFKA_DEFAULT} if producer.beside == "librdkafka" else {}
    version = producer.client_version if producer.beside == producer.client else None
    return producer.model_copy(
        update={"client": producer.beside, "beside": None, "properties": kept | own, "client_version": version}
    )


def key_hashes(producer: ProducerConfiguration) -> tuple[str | None, ...]:
    """Returns `key_hash` of the verifiable producers of a cell: one, or two."""
    both = (producer, second_producer(producer))
    return tuple(key_hash(p.client, p.properties, librdkafka_default=TOOL_DEFAULT) for p in both if p is not None)
