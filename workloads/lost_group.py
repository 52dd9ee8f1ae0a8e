"""The group of a KIP-848 consumer is gone: how that is told, and when another consumer may be made in its place.

A coordinator that has the group no more, because its partition of `__consumer_offsets` was destroyed, answers heartbeats
GROUP_ID_NOT_FOUND. That is fatal to librdkafka's consumer, as to Kafka's own: the application has to begin again. Its next
consumer joins with epoch 0, which makes the group anew. [librdkafka#5485, librdkafka#5488; KIP-848]
"""

from confluent_kafka import KafkaError

from harness.clock import NS_PER_S

PAUSE_NS = 1 * NS_PER_S
"""Between the making of two consumers, at least."""
LIVED_NS = 10 * NS_PER_S
"""Whoever lived so long was a member: its first heartbeats were answered. [group.consumer.heartbeat.interval.ms, 5 s]"""
GIVE_UP_NS = 60 * NS_PER_S
"""One after the other has died for so long: there is no use in another."""
REASON_S = 1.0
"""For the reason to be handed on: a commit may have been refused before."""
_FATAL_REASON = f"Fatal error: {KafkaError(KafkaError.GROUP_ID_NOT_FOUND).str()}: "


def is_group_lost(error: KafkaError) -> bool:
    """Did the consumer die because its group is gone?

    librdkafka hands a consumer's fatal error on as _FATAL, with the description of the original code in front of its own
    words; that code itself (rd_kafka_fatal_error) confluent_kafka does not give. [rd_kafka_set_fatal_error0]
    """
    return error.code() == KafkaError._FATAL and error.str().startswith(_FATAL_REASON)


class Successors:
    """When the consumers of one application may be made, one in place of the other."""

    def __init__(self, made_ns: int) -> None:
        """`made_ns`: when the first one was."""
        self._made_ns, self._dying_ns, self.count = made_ns, made_ns, 0

    def due_ns(self, died_ns: int) -> int | None:
        """The newest one was found dead. When there may be another; None = no more, the application dies with it."""
        if not self.count or died_ns - self._made_ns >= LIVED_NS:
            self._dying_ns = died_ns
        return None if died_ns - self._dying_ns >= GIVE_UP_NS else max(died_ns, self._made_ns + PAUSE_NS)

    def made(self, now_ns: int) -> None:
        """Another one was made."""
        self._made_ns = now_ns
        self.count += 1
