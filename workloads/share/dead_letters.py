"""The dead-letter queue of a share group: its topic, and what stands in it (KIP-1191)."""

from collections.abc import Callable
from types import ModuleType

from prozess.harness.clock import NS_PER_S
from prozess.harness.schema import ObservationKind
from prozess.workloads.client import Client, FatalClient
from prozess.workloads.java import REQUEST_MS, JavaObject, java_list, java_properties
from prozess.workloads.settings import Property

READ_LIMIT_S = 10
"""How long it may take to read the queue to its end."""
SET_LIMIT_S = 20
ENABLED = "errors.deadletterqueue.group.enable"
"""What a topic must have before brokers write dead letters to it. [KIP-1191]"""
_TOPIC, _PARTITION, _OFFSET = (f"__dlq.errors.{name}" for name in ("topic", "partition", "offset"))
"""Headers of a dead letter: where its record stands. [ShareGroupDLQRecordHelper, 4.4.0]"""
Observe = Callable[[ObservationKind, int, int, int], None]


class DeadLetters:
    """The queue of one topic. `observe` takes (kind, dense partition, value, now) of each thing seen."""

    def __init__(
        self, client: Client, jpype: ModuleType, servers: dict[str, Property], topic: str, observe: Observe
    ) -> None:
        self._client, self._jpype, self._servers, self._observe = client, jpype, servers, observe
        self._name = f"dlq.{topic}"  # the least that brokers ask for. [errors.deadletterqueue.topic.name.prefix]
        self._dense = {(topic, number): dense for dense, of, number in client.spec.partitions if of == topic}

    @property
    def settings(self) -> dict[str, str]:
        """Returns what the group is set to: records are copied to the queue."""
        return {
            "errors.deadletterqueue.topic.name": self._name,
            "errors.deadletterqueue.copy.record.enable": "true",
        }

    def make(self, admin: JavaObject, replication_factor: int) -> None:
        """Makes the topic, with as many partitions as the written one has, unless another member has made it. FatalClient
        if it cannot be made."""
        java = self._jpype.JClass
        topic = java("org.apache.kafka.clients.admin.NewTopic")(
            self._name,
            java("java.lang.Integer")(len(self._dense)).intValue(),
            java("java.lang.Short")(replication_factor),
        )
        topic.configs(java("java.util.Collections").singletonMap(ENABLED, "true"))
        try:
            made = admin.createTopics(java_list(self._jpype, [topic])).all()
            made.get(SET_LIMIT_S, java("java.util.concurrent.TimeUnit").SECONDS)
        except self._jpype.JException as error:
            if "TopicExistsException" not in str(error.toString()):
                raise FatalClient(f"the dead-letter queue {self._name} could not be made: {error.toString()}") from None

    def read(self) -> None:
        """Reads the queue to its end, and writes down which records stand in it; and, if the end was reached, that it was."""
        java, duration = self._jpype.JClass, self._jpype.JClass("java.time.Duration")
        deserializer = java("org.apache.kafka.common.serialization.ByteArrayDeserializer")
        own: dict[str, Property] = {"default.api.timeout.ms": REQUEST_MS, "enable.auto.commit": False}
        consumer = java("org.apache.kafka.clients.consumer.KafkaConsumer")(
            java_properties(self._jpype, self._servers | own), deserializer(), deserializer()
        )
        partition = java("org.apache.kafka.common.TopicPartition")
        parts = java_list(self._jpype, [partition(self._name, number) for number in range(len(self._dense))])
        until_ns = self._client.now_ns() + READ_LIMIT_S * NS_PER_S
        try:
            consumer.assign(parts)
            consumer.seekToBeginning(parts)
            ends = consumer.endOffsets(parts)
            while (now_ns := self._client.now_ns()) < until_ns:
                if all(int(consumer.position(part)) >= int(ends.get(part)) for part in parts):
                    for dense in self._dense.values():
                        self._observe(
                            ObservationKind.DEAD_LETTERS_READ, dense, sum(int(e) for e in ends.values()), now_ns
                        )
                    return
                self._client.heartbeat(now_ns)
                for record in consumer.poll(duration.ofMillis(100)):
                    self._seen(record, now_ns)
            self._client.log(f"the dead-letter queue {self._name} was not read to its end within {READ_LIMIT_S} s")
        except self._jpype.JException as error:
            self._client.log(f"the dead-letter queue {self._name} could not be read: {error.toString()}")
        finally:
            consumer.close(duration.ZERO)

    def _seen(self, record: JavaObject, now_ns: int) -> None:
        """Notes a dead letter. The headers of the record itself were copied, too, and stand before those of the broker."""
        found = [record.headers().lastHeader(name) for name in (_TOPIC, _PARTITION, _OFFSET)]
        if any(header is None or header.value() is None for header in found):
            return  # nobody knows of which record it is
        topic, number, offset = (bytes(header.value()).decode("utf-8", "replace") for header in found)
        if (dense := self._dense.get((topic, int(number)))) is not None:
            self._observe(ObservationKind.DEAD_LETTER, dense, int(offset), now_ns)
