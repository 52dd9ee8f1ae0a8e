"""A consumer inside the transactions of a producer: reads what is new while a transaction is open, and never else.

What it is given becomes rows of `reads` under the producer's client id, at the consumer's isolation level; the transaction it
belongs to is the one that is open then. Its own troubles are no reason for the producer to end: a consumer that lost its
position is made anew, at the end of the log, as a new span.
"""

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from harness.rows import RowWriter
from harness.schema import NONE, POSITIONS, READS
from workloads.client import Client
from workloads.reader import ASSIGNED, CONSUME_RECORDS_MAX, ReadRows

SLICE_S = 0.01


class InsideReader:
    """Reads every partition of its client from the end of the log on."""

    def __init__(self, client: Client, properties: Mapping[str, Any]) -> None:
        self._client, self._properties = client, properties
        writer = RowWriter(client.rows, READS, client.spec.client)
        self._rows = ReadRows(writer, client.spec.partitions, client.now_ns)
        self._positions = RowWriter(client.rows, POSITIONS, client.spec.client)
        self._spans = -1
        self._lost: str | None = None
        self._consumer = self._assigned()

    def read(self, lasting_s: float, breathe: Callable[[float], None]) -> None:
        """Record what is given within that time; `breathe` keeps the client alive meanwhile."""
        if self._lost is not None:
            self._client.log(f"the consumer inside transactions is made anew: {self._lost}")
            self._consumer.close()
            self._consumer, self._lost = self._assigned(), None
        until_ns = self._client.now_ns() + int(lasting_s * 1e9)
        while self._client.now_ns() < until_ns:
            breathe(0)
            try:
                messages = self._consumer.consume(CONSUME_RECORDS_MAX, SLICE_S)
            except KafkaException as error:
                self._lost = str(error.args[0].str())
                return
            for problem in (e for message in messages if (e := message.error()) is not None):
                self._note(problem)
            if records := [message for message in messages if message.error() is None]:
                self._rows.record(records)

    def close(self) -> None:
        """Flush."""
        self._consumer.close()
        self._rows.writer.close()
        self._positions.close()

    def _assigned(self) -> Consumer:
        consumer = Consumer({**self._properties, "error_cb": self._note})
        self._spans += 1
        for dense, _, _ in self._client.spec.partitions:
            self._rows.span[dense] = self._spans
            self._positions.append(self._client.now_ns(), NONE, dense, ASSIGNED, self._spans)
        consumer.assign(
            [TopicPartition(topic, number, OFFSET_END) for _, topic, number in self._client.spec.partitions]
        )
        return consumer

    def _note(self, error: KafkaError) -> None:
        """Only a lost position or a dead instance needs something done; the rest librdkafka retries."""
        lost = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)
        if error.fatal() or error.code() in lost:
            self._lost = f"{error.name()} {error.str()}"
