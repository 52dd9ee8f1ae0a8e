"""What a producer's partitioner does to the order of a key: a weakness where it ignores keys, else an assumption."""

from collections.abc import Iterator

from prozess.harness.config.partitioners import LIBRDKAFKA_DEFAULT, MURMUR2, NO_HASH, key_hash
from prozess.validation.availability import Concern
from prozess.validation.trial import ConfigurationParts

KEYS_IGNORED = "keys/ignored"
_SETTINGS = ("partitioner", "partitioner.class", "partitioner.ignore.keys")
_SOURCE = (
    "librdkafka CONFIGURATION, partitioner (random); KIP-369 (RoundRobinPartitioner); KIP-480 (UniformStickyPartitioner); "
    "KIP-794 (partitioner.ignore.keys)"
)


def of_keys(parts: ConfigurationParts) -> Iterator[Concern]:
    """Yields the weakness of a producer whose partitioner ignores keys."""
    if _hash_of(parts) != NO_HASH:
        return
    named = [(name, key) for name in _SETTINGS if (key := f"producer.properties.{name}") in parts.base]
    yield Concern(
        rule=KEYS_IGNORED,
        what="records of one key are in several partitions, so nobody reads them in the order in which they were sent",
        blame=tuple(f"{name}={parts.base[key]} ({parts.origins.get(key, 'given')})" for name, key in named),
        change="the client's own partitioner",
        source=_SOURCE,
        denies=("split-key",),
        permitted_by=("split-key/keys-ignored",),
    )


def assumed_of_keys(parts: ConfigurationParts) -> Iterator[str]:
    """Yields what is taken for granted of the other producers of the topic, where Java's clients would do otherwise."""
    mine = _hash_of(parts)
    if mine not in (None, MURMUR2, NO_HASH):
        yield (
            f"every producer of the topic that uses keys hashes them with {mine}, as yours does. Java's clients, Streams and "
            "Connect use murmur2, and put the same key into another partition; partitioner=murmur2_random of librdkafka does "
            "the same"
        )


def _hash_of(parts: ConfigurationParts) -> str | None:
    if parts.producer is None:
        return None
    properties = {
        name: str(value) for name in _SETTINGS if (value := parts.base.get(f"producer.properties.{name}")) is not None
    }
    return key_hash(parts.base["producer.client"], properties, librdkafka_default=LIBRDKAFKA_DEFAULT)
