"""A producer that provokes errors which no retry can heal, beside records that are well; and records who was told what.

What was bad about a record is not written down: a record is bad by its sequence (`harness.provocations.is_bad`), and an
error that is a state of client or cluster is known by its code.
"""

import time
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.serialization import SerializationContext, SerializationError
from confluent_kafka.serializing_producer import SerializingProducer

from harness.provocations import DAY_MS, PROVOCATIONS
from harness.schema import MISSING, NONE
from workloads.bulk import PartitionName
from workloads.carrier import encoder, key_id
from workloads.client import Client
from workloads.denial import Denial
from workloads.producer import LogProducer

QUEUE_BURSTS = 2
"""A burst is so many times what the client's queue holds."""
MISCONFIGURED: tuple[dict[str, Any], ...] = (
    {"enable.idempotence": True, "acks": "1"},
    {"no.such.property": "1"},
    {"linger.ms": 10_000, "delivery.timeout.ms": 5_000},
    {"compression.type": "brotli"},
)
"""Each makes librdkafka refuse to make a producer: a contradiction, an unknown name, a limit below what it must exceed, a
value that is none."""
_QUEUE_HOLDS = "queue.buffering.max.messages"


class ErrorsProducer(LogProducer):
    """The role `errors-producer`. Options: `error` (a name of PROVOCATIONS), `every`. Commands as of LogProducer."""

    def __init__(self, client: Client) -> None:
        options = client.spec.options
        self._error, self._every = str(options["error"]), int(options["every"])
        self._provocation = PROVOCATIONS[options["error"]]
        self._turns_taken = 0
        super().__init__(client)
        self._bad_bytes = self._provocation.value_bytes or client.spec.value_bytes
        self._encode_bad = encoder(sender=client.spec.client, value_bytes=self._bad_bytes)
        self._denial = Denial(client) if self._error == "not-authorised" else None

    def close(self) -> None:
        """Flush; and let nobody be denied anything any more."""
        if self._denial is not None:
            self._denial.end()
        super().close()

    def _made(self, configuration: dict[str, Any]) -> Producer:
        if self._error == "serialization":
            return SerializingProducer({**configuration, "value.serializer": _only_bytes})
        return super()._made(configuration)

    def _obey(self, command: dict[str, Any]) -> None:
        if command["do"] == "finish" and self._denial is not None:
            self._denial.end()
        super()._obey(command)

    def _issue_due(self, now_ns: int) -> float:
        if self._denial is not None and self._resumed:
            self._denial.tick(now_ns)
        return super()._issue_due(now_ns)

    def _issue(self, turns: Sequence[PartitionName]) -> None:
        """One record for each turn; for every n-th a bad one, or a burst of them if the queue is to be full."""
        of_record, every = self._provocation.of_record, self._every
        burst = QUEUE_BURSTS * int(self._spec.properties[_QUEUE_HOLDS]) if self._error == "full-queue" else 1
        for turn in turns:
            last_of_n = (self._sends.count if of_record else self._turns_taken) % every == every - 1
            self._turns_taken += 1
            for partition in repeat(turn, burst if last_of_n else 1):
                if self._client.fatal is None:
                    self._attempt(partition, bad=of_record and last_of_n)

    def _attempt(self, partition: PartitionName, *, bad: bool) -> None:
        """One record, recorded before it is attempted. What the partition's cap holds back is none."""
        dense, topic, number = partition
        if self._in_flight[dense] >= self._spec.unacknowledged_max:
            self._withheld.hold(dense)
            return
        self._withheld.release(dense)
        sequence = self._sends.count
        record = self._record(dense, sequence, bad=bad)
        size = self._bad_bytes if bad else self._spec.value_bytes
        self._sends.append(self._now_ns(), MISSING, NONE, sequence, NONE, key_id(record.get("key")), dense, 0, 0, size)
        self._in_flight[dense] += 1
        try:
            if bad and self._error == "bad-configuration":
                self._misconfigure(sequence)
            self._producer.produce(topic, partition=number, **record)
        except (BufferError, KafkaException) as error:
            self._goes_on(sequence, dense, error)

    def _record(self, dense: int, sequence: int, *, bad: bool) -> dict[str, Any]:
        """What produce() is given of a record."""
        value: Any = (self._encode_bad if bad else self._encode)(dense, sequence)
        match self._error:
            case (
                "invalid-record"
            ):  # a compacted topic takes no record without key; a key of its own keeps the others there
                return {"value": value} if bad else {"value": value, "key": sequence.to_bytes(8, "little")}
            case "invalid-timestamp" if bad:
                return {"value": value, "timestamp": time.time_ns() // 1_000_000 - DAY_MS}
            case "serialization" if bad:
                return {"value": {"partition": dense, "sequence": sequence}}
        return {"value": value}

    def _misconfigure(self, sequence: int) -> None:
        """An application whose producer is made with a wrong configuration has none to send with: KafkaException."""
        wrong = MISCONFIGURED[sequence // self._every % len(MISCONFIGURED)]
        Producer({**self._spec.properties, **wrong})
        self._client.log(f"librdkafka took a configuration that contradicts itself: {wrong}")


def _only_bytes(value: object, context: SerializationContext) -> bytes:
    """A serializer of what this producer sends, which refuses everything else."""
    if isinstance(value, bytes):
        return value
    raise SerializationError(f"{type(value).__name__} cannot be written into {context.topic}")
