"""The clients of `prozess watch`: one producer and one reader of a topic that the watch has made, in the caller's thread.

They do what the clients of a trial do: records carry their identity, a send is noted before it is made, and an error proves
only what `prozess.workloads.record.sends` says that it proves.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.config.configuration import ProducerConfiguration
from prozess.harness.config.existing_clusters import hidden
from prozess.harness.schema import NONE, Outcome
from prozess.workloads.librdkafka import LOST_POSITION, logged_in
from prozess.workloads.log.reader import ReadRows, records_and_errors
from prozess.workloads.record.identity import IDENTITY, IDENTITY_OFFSET, encoder
from prozess.workloads.record.sends import INSTANCE_IS_DEAD, outcomes_by_code
from prozess.workloads.settings import producer_properties, reader_properties

VALUE_BYTES = 100
DELIVERY_TIMEOUT_MS = 30_000
"""How long a record may wait for its acknowledgement. It bounds what waits in the producer's queue."""
CONSUME_RECORDS_MAX = 500
END_LIMIT_S = 5.0
"""How long the last acknowledgements, and the last records, are waited for."""
RECONNECT_MAX_MS = 1_000
"""The longest pause between two tries to connect to a broker that is down. A trial's clients try three times as often, which
a watch of days would pay for; this is still far below the time after which silence is an outage."""


class CanaryLog(Protocol):
    """Takes down what the clients do. Partitions are numbers within the topic."""

    def invoked(self, partition: int, *, client: int, sequence: int, invoked_ns: int, size: int) -> None:
        """A record is about to be sent."""
        ...

    def completed(
        self,
        partition: int,
        sequence: int,
        *,
        completed_ns: int,
        log_offset: int,
        outcome: Outcome,
        error: str,
        code: int,
    ) -> None:
        """The producer was told how a send ended. `error`: "" if it was acknowledged."""
        ...

    def read(self, partition: int, columns: Mapping[str, np.ndarray]) -> None:
        """The reader was given records of one partition: columns of `reads`."""
        ...

    def position_lost(self, partition: int, error: str) -> None:
        """The reader's position is not in the log any more. It reads nothing there until `Canary.seek`."""
        ...

    def producer_replaced(self, reason: str) -> None:
        """The producer could not go on. A new one has taken its place."""
        ...


class _ReadCount:
    """Counts rows where a client of a trial has a file: the caller has their columns."""

    count = 0

    def extend(self, columns: Mapping[str, np.ndarray]) -> None:
        """Counts the rows."""
        self.count += len(columns["log_offset"])

    def close(self) -> None:
        """Does nothing."""


class Canary:
    """Sends records to every partition at a rate, and reads them all. For one thread, which calls `turn` all the time."""

    def __init__(
        self, servers: str, topic: str, partitions: Sequence[int], *, rate_hz: float, log: CanaryLog, clock: Clock
    ) -> None:
        """`partitions`: 0, 1, …, all of the topic's, which is empty. `rate_hz`: records per second of each."""
        self._servers, self._topic, self._log, self._clock = servers, topic, log, clock
        self._every_ns = int(NS_PER_S / rate_hz)
        now_ns = clock.monotonic_ns()
        self._due_ns = {
            number: now_ns + place * self._every_ns // len(partitions) for place, number in enumerate(partitions)
        }
        """When each partition's next record is due."""
        self._outcomes = outcomes_by_code(retries_allowed=True)
        self._client = 0
        self._sequence = 0
        self._dead: str | None = None
        self.last_error = ""
        """What a client complained of last."""
        self._rows = ReadRows(_ReadCount(), [(number, topic, number) for number in partitions], clock.monotonic_ns)
        self._producer = self._new_producer()
        self._consumer = Consumer(logged_in(self._reader_properties()))
        self._consumer.assign([TopicPartition(topic, number, 0) for number in partitions])

    def turn(self, timeout_s: float) -> None:
        """Sends what is due, and takes what was acknowledged and what can be read. It takes about `timeout_s`."""
        if self._dead is not None:
            self._replace_producer()
        now_ns = self._clock.monotonic_ns()
        for number, due_ns in self._due_ns.items():
            if due_ns <= now_ns:
                # What was missed is not made up for: a watch that stood still sends no burst.
                late = due_ns + self._every_ns <= now_ns
                self._due_ns[number] = (now_ns if late else due_ns) + self._every_ns
                self._send(number)
        self._producer.poll(0)
        self._read(timeout_s)

    def seek(self, partition: int, offset: int) -> None:
        """Lets the reader go on at this offset. That is a new span, in which order is judged."""
        self._rows.span[partition] += 1
        place = TopicPartition(self._topic, partition)
        # seek() is refused (_STATE) once librdkafka has given a partition up; assigning it anew is not.
        with suppress(KafkaException):
            self._consumer.incremental_unassign([place])
        self._consumer.incremental_assign([TopicPartition(self._topic, partition, offset)])

    def finish(self, done: Callable[[], bool]) -> None:
        """Ends sending, and waits for the last acknowledgements, and for the last records until `done`: END_LIMIT_S each."""
        self._producer.flush(END_LIMIT_S)
        deadline_ns = self._clock.monotonic_ns() + int(END_LIMIT_S * NS_PER_S)
        while not done() and self._clock.monotonic_ns() < deadline_ns:
            self._read(0.05)

    def close(self) -> None:
        """Ends the clients. What was not acknowledged stays in doubt."""
        self._producer.purge()
        self._producer.flush(1)
        self._consumer.close()

    def _send(self, number: int) -> None:
        sequence = self._sequence
        self._sequence += 1
        self._log.invoked(
            number, client=self._client, sequence=sequence, invoked_ns=self._clock.monotonic_ns(), size=VALUE_BYTES
        )
        try:
            self._producer.produce(
                self._topic, self._encode(number, sequence), partition=number, on_delivery=self._delivered
            )
        except (BufferError, KafkaException) as error:  # it never entered the queue
            code = error.args[0].code() if isinstance(error, KafkaException) else KafkaError._QUEUE_FULL
            self._complete(number, sequence, NONE, Outcome.FAIL, hidden(str(error)), code)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        number, sequence = IDENTITY.unpack_from(message.value(), IDENTITY_OFFSET)  # type: ignore[arg-type] # we sent one
        if error is None:
            offset = message.offset()
            told = NONE if offset is None or offset < 0 else offset
            self._complete(number, sequence, told, Outcome.OK, "", 0)
            return
        outcome = self._outcomes.get(error.code(), Outcome.INFO)
        self._complete(number, sequence, NONE, outcome, hidden(error.str()), error.code())
        if error.code() in INSTANCE_IS_DEAD or error.fatal():
            self._dead = hidden(error.str())

    def _complete(self, number: int, sequence: int, offset: int, outcome: Outcome, error: str, code: int) -> None:
        self.last_error = error or self.last_error
        self._log.completed(
            number,
            sequence,
            completed_ns=self._clock.monotonic_ns(),
            log_offset=offset,
            outcome=outcome,
            error=error,
            code=code,
        )

    def _read(self, timeout_s: float) -> None:
        messages, errors = records_and_errors(self._consumer.consume(CONSUME_RECORDS_MAX, timeout_s))
        for message in errors:
            error = message.error()
            assert error is not None
            self.last_error = hidden(error.str())
            if error.code() in LOST_POSITION and message.partition() is not None:
                self._log.position_lost(self._rows.dense(message), self.last_error)
        if not messages:
            return
        columns = self._rows.record(messages)
        for number in np.unique(columns["partition"]).tolist():
            mine = columns["partition"] == number
            self._log.read(number, {name: values[mine] for name, values in columns.items()})

    def _on_error(self, error: KafkaError) -> None:
        self.last_error = hidden(error.str())
        if error.fatal() or error.code() in INSTANCE_IS_DEAD:
            self._dead = self.last_error

    def _new_producer(self) -> Producer:
        self._client += 1
        self._encode = encoder(sender=self._client, value_bytes=VALUE_BYTES)
        configuration = ProducerConfiguration(
            acks="all", enable_idempotence=True, linger_ms=0, delivery_timeout_ms=DELIVERY_TIMEOUT_MS
        )
        properties: dict[str, Any] = producer_properties(
            configuration,
            bootstrap_servers=self._servers,
            client_name="prozess-watch-producer",
            partitions=len(self._due_ns),
            unacknowledged_max=1000,
        )
        properties |= {"allow.auto.create.topics": False, "log_level": 0, "error_cb": self._on_error}
        return Producer(logged_in(properties | {"reconnect.backoff.max.ms": RECONNECT_MAX_MS}))

    def _replace_producer(self) -> None:
        reason, self._dead = self._dead or "", None
        self._producer.purge()
        self._producer.flush(1)
        self._dead = None  # the old one's last words do not concern the new one
        self._producer = self._new_producer()
        self._log.producer_replaced(reason)

    def _reader_properties(self) -> dict[str, Any]:
        properties: dict[str, Any] = reader_properties(
            "read_uncommitted", bootstrap_servers=self._servers, client_name="watch-reader"
        )
        return properties | {
            "client.id": "prozess-watch-reader",  # as its group, which commits nothing
            "fetch.wait.max.ms": 500,
            "reconnect.backoff.max.ms": RECONNECT_MAX_MS,
            "log_level": 0,
            "error_cb": self._on_reader_error,
        }

    def _on_reader_error(self, error: KafkaError) -> None:
        self.last_error = hidden(error.str())
