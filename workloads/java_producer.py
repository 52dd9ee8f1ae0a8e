"""Kafka's own Java producer, in this process: what `workloads.transactor` needs of a producer, answered as confluent_kafka's
answers. The JVM is started with the first one (JPype), and its records are polled for: no thread of Java's enters Python.

Java's transactional calls return after `max.block.ms` and may then be made again ("It is safe to retry", KafkaProducer),
which is what a retriable error means to whoever calls. Which exceptions end the producer is in its documentation
(beginTransaction, commitTransaction); any other means that the transaction must be aborted.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from confluent_kafka import KafkaError, KafkaException

_FLAGS = ("-Xrs", "-Xmx96m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""-Xrs: signals are Python's."""
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
class Report:
    """What a delivery report tells of a record, as `confluent_kafka.Message` does."""

    told_value: bytes
    told_offset: int | None

    def value(self) -> bytes:
        """The record's."""
        return self.told_value

    def offset(self) -> int | None:
        """None = it was not appended, as far as is known."""
        return self.told_offset


def java_machine(library: str, jars: Sequence[str]) -> Any:  # noqa: ANN401 - the module, which has no types
    """JPype, with the machine running; only the first caller's jars count."""
    import jpype

    if not jpype.isJVMStarted():
        jpype.startJVM(library, *_FLAGS, classpath=list(jars), convertStrings=True, interrupt=False)
    return jpype


class JavaProducer:
    """One KafkaProducer. Its methods are confluent_kafka's, of those that are used here; a timeout given to them is the
    producer's own `max.block.ms`."""

    def __init__(self, java: Mapping[str, Any], *, on_delivery: Callable[[KafkaError | None, Any], None]) -> None:
        """`java`: `library` (libjvm), `jars`, and `properties` of the producer, as Java spells them."""
        self._jpype = java_machine(java["library"], java["jars"])
        self._record = self._jpype.JClass("org.apache.kafka.clients.producer.ProducerRecord")
        self._integer = self._jpype.JClass("java.lang.Integer")
        self._on_delivery = on_delivery
        self._pending: deque[tuple[Any, bytes]] = deque()
        properties = self._jpype.JClass("java.util.Properties")()
        for key, value in java["properties"].items():
            properties.setProperty(key, str(value))
        serializer = self._jpype.JClass("org.apache.kafka.common.serialization.ByteArraySerializer")
        self._producer = self._jpype.JClass("org.apache.kafka.clients.producer.KafkaProducer")(
            properties, serializer(), serializer()
        )

    def produce(self, topic: str, value: bytes, key: None, partition: int) -> None:
        """KafkaException if the record is refused; one that does not get into the queue in time is reported as failed."""
        assert key is None
        record = self._record(topic, self._integer(partition), None, self._jpype.JArray(self._jpype.JByte)(value))
        self._call(lambda: self._pending.append((self._producer.send(record), value)))

    def poll(self, timeout_s: float) -> int:
        """Report what is done, the oldest first; waits for the first for so long."""
        reported = self._report()
        if not reported and timeout_s > 0:
            if self._pending:
                self._wait(self._pending[0][0], timeout_s)
            else:
                threading.Event().wait(timeout_s)
            reported = self._report()
        return reported

    def begin_transaction(self) -> None:
        """KafkaException if the producer is in no state for it."""
        self._call(self._producer.beginTransaction)

    def init_transactions(self, _timeout_s: float) -> None:
        """KafkaException, retriable where it is only late."""
        self._call(self._producer.initTransactions)

    def commit_transaction(self, _timeout_s: float) -> None:
        """As `init_transactions`."""
        self._call(self._producer.commitTransaction)
        self._report()

    def abort_transaction(self, _timeout_s: float) -> None:
        """As `init_transactions`."""
        self._call(self._producer.abortTransaction)
        self._report()

    def purge(self, *, blocking: bool) -> None:
        """End it, whatever is under way."""
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
            self._on_delivery(error, Report(value, offset))
            reported += 1
        return reported

    def _wait(self, future: Any, timeout_s: float) -> None:  # noqa: ANN401 - Java's
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


def _give_up(error: Any) -> NoReturn:  # noqa: ANN401 - Java's
    raise KafkaException(_error_of(error)) from None


def _error_of(error: Any) -> KafkaError:  # noqa: ANN401 - Java's
    """What it means to whoever asks librdkafka's errors."""
    name = _name_of(error)
    said = f"{name}: {error.getMessage()}"
    if name == _TOO_LATE:
        return KafkaError(KafkaError._TIMED_OUT, said, retriable=True)
    if name in _FATAL:
        return KafkaError(KafkaError._FATAL, said, fatal=True)
    return KafkaError(KafkaError._FAIL, said, txn_requires_abort=True)


def _name_of(error: Any) -> str:  # noqa: ANN401 - Java's
    return str(error.getClass().getSimpleName())
