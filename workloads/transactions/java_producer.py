"""Kafka's own Java producer, which answers as confluent_kafka's producer does.

It runs in this process. The JVM is started with the first one (JPype), and its records are polled for: no thread of Java's
enters Python. Java's transactional calls return after `max.block.ms` and may then be made again ("It is safe to retry",
KafkaProducer), which is what a retriable error means to whoever calls. Which exceptions end the producer is in its
documentation (beginTransaction, commitTransaction); any other means that the transaction must be aborted.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from prozess.workloads.java import JavaOptions, JavaThrowable, java_machine, java_properties
from prozess.workloads.record.sends import DeliveryReport

_FATAL = (
    "ProducerFencedException",
    "InvalidProducerEpochException",
    "OutOfOrderSequenceException",
    "UnsupportedVersionException",
    "AuthorizationException",
    "TransactionalIdAuthorizationException",
    "InvalidTxnStateException",
    "IllegalStateException",
)
_TOO_LATE = "TimeoutException"


@dataclass(frozen=True, slots=True)
class JavaDeliveryReport:
    """A delivery report of Kafka's Java producer (`prozess.workloads.record.sends.DeliveryReport`)."""

    copied_value: bytes
    copied_offset: int | None

    def value(self) -> bytes:
        """Returns the record's value."""
        return self.copied_value

    def offset(self) -> int | None:
        """Returns where the record was appended; None = it was not, as far as is known."""
        return self.copied_offset


class JavaRecordMetadata(Protocol):
    """Describes what Kafka's Java producer says of a record that was appended."""

    def offset(self) -> int: ...


class JavaFuture(Protocol):
    """java.util.concurrent.Future of a send, as JPype shows it."""

    def isDone(self) -> bool: ...
    def get(self, *limit: object) -> JavaRecordMetadata: ...


class JavaProducer:
    """Kafka's own Java producer, with those of confluent_kafka's methods that are used here. A timeout given to them
    is the producer's own `max.block.ms`."""

    def __init__(self, java: JavaOptions, *, on_delivery: Callable[[KafkaError | None, DeliveryReport], None]) -> None:
        self._jpype = java_machine(java.library, java.jars)
        self._record = self._jpype.JClass("org.apache.kafka.clients.producer.ProducerRecord")
        self._integer = self._jpype.JClass("java.lang.Integer")
        self._on_delivery = on_delivery
        self._pending: deque[tuple[JavaFuture, bytes]] = deque()
        serializer = self._jpype.JClass("org.apache.kafka.common.serialization.ByteArraySerializer")
        self._producer = self._jpype.JClass("org.apache.kafka.clients.producer.KafkaProducer")(
            java_properties(self._jpype, java.properties), serializer(), serializer()
        )

    def produce(self, topic: str, value: bytes, key: None, partition: int) -> None:
        """Sends a record. KafkaException if it is refused; one that does not get into the queue in time is reported as
        failed."""
        assert key is None
        record = self._record(topic, self._integer(partition), None, self._jpype.JArray(self._jpype.JByte)(value))
        self._call(lambda: self._pending.append((self._producer.send(record), value)))

    def poll(self, timeout_s: float) -> int:
        """Reports what is done, the oldest first. It waits for the first for up to `timeout_s`."""
        reported = self._report()
        if not reported and timeout_s > 0:
            if self._pending:
                self._wait(self._pending[0][0], timeout_s)
            else:
                threading.Event().wait(timeout_s)
            reported = self._report()
        return reported

    def begin_transaction(self) -> None:
        """Begins a transaction. KafkaException if the producer is in no state for it."""
        self._call(self._producer.beginTransaction)

    def init_transactions(self, _timeout_s: float) -> None:
        """Initialises the transactional.id. KafkaException, which is retriable if the call is only late."""
        self._call(self._producer.initTransactions)

    def commit_transaction(self, _timeout_s: float) -> None:
        """Commits the transaction. KafkaException as of `init_transactions`."""
        self._call(self._producer.commitTransaction)
        self._report()

    def abort_transaction(self, _timeout_s: float) -> None:
        """Aborts the transaction. KafkaException as of `init_transactions`."""
        self._call(self._producer.abortTransaction)
        self._report()

    def purge(self, *, blocking: bool) -> None:
        """Ends the producer, whatever is under way."""
        assert not blocking
        self._pending.clear()
        self._producer.close(self._jpype.JClass("java.time.Duration").ZERO)

    def _report(self) -> int:
        reported = 0
        while self._pending and self._pending[0][0].isDone():
            future, value = self._pending.popleft()
            error, offset = None, None
            try:
                offset = int(future.get().offset())
            except self._jpype.JException as failure:
                error = _error_of(failure.getCause() or failure)
            self._on_delivery(error, JavaDeliveryReport(value, offset))
            reported += 1
        return reported

    def _wait(self, future: JavaFuture, timeout_s: float) -> None:
        unit = self._jpype.JClass("java.util.concurrent.TimeUnit").MILLISECONDS
        try:
            future.get(int(timeout_s * 1000), unit)
        except self._jpype.JException:
            return  # not yet, or failed: `_report` says which

    def _call(self, call: Callable[[], object]) -> None:
        try:
            call()
        except self._jpype.JException as error:
            _give_up(error)


def _give_up(error: JavaThrowable) -> NoReturn:
    raise KafkaException(_error_of(error)) from None


def _error_of(error: JavaThrowable) -> KafkaError:
    """Returns the error of librdkafka that means the same to whoever asks."""
    name = str(error.getClass().getSimpleName())
    text = f"{name}: {error.getMessage()}"
    if name == _TOO_LATE:
        return KafkaError(KafkaError._TIMED_OUT, text, retriable=True)
    if name in _FATAL:
        return KafkaError(KafkaError._FATAL, text, fatal=True)
    return KafkaError(KafkaError._FAIL, text, txn_requires_abort=True)


AnyProducer = Producer | JavaProducer
