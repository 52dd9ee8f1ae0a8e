"""The guarantee about keys: one key, one partition, where producers leave the choice to their library."""

from prozess.harness.config.configuration import KEYED
from prozess.harness.guarantees.table.rules import Guarantee, Rule

_SPLIT_KEY = Guarantee(
    anomaly="split-key",
    meaning="Records of one key are in two partitions, so that nobody reads them in their order.",
    promise="All records of one key go to one partition, as long as the topic has as many partitions.",
    found=(
        "1 time a key went to another partition than before",
        "{n} times a key went to another partition than before",
    ),
    nothing="no record with a key was acknowledged",
    source="Kafka documentation, producer, partitioner.class: 'choose a partition based on a hash of the key'; librdkafka "
    "CONFIGURATION, partitioner",
    workloads=(KEYED,),
    rules=(
        Rule(
            id="split-key/partitions-added",
            when=("partitions were added",),
            label="partitions added",
            reason="the hash of a key is divided by the number of partitions, and that number has changed",
            change="a new topic with more partitions, to which the old records are copied by key",
            source="Kafka documentation, operations, adding partitions: 'doesn't change the partitioning of existing data'",
        ),
        Rule(
            id="split-key/keys-ignored",
            when=("keys are ignored",),
            label="the partitioner ignores keys",
            reason="the producer's partitioner chooses a partition without looking at the key",
            change="the library's own partitioner, or murmur2_random",
            source="librdkafka CONFIGURATION, partitioner (random); KIP-369 (RoundRobinPartitioner); KIP-794 "
            "(partitioner.ignore.keys)",
        ),
        Rule(
            id="split-key/unlike-partitioners",
            when=("sent by two producers", "unlike partitioners"),
            label="unlike partitioners",
            reason="the producers of this topic hash a key differently, so one key has a partition for each of them",
            change="one partitioner for all: partitioner=murmur2_random in librdkafka is what Java's clients do",
            source="librdkafka CONFIGURATION, partitioner: consistent_random (CRC32) by default, murmur2_random is 'Java "
            "Producer compatible'",
        ),
    ),
)
KEYS = (_SPLIT_KEY,)
"""These guarantees, in the order in which reports list them."""
