"""A recorded Producer of confluent_kafka. A test's application uses it in place of the original, without any change.


A row of `sends` is written before each `produce`, and completed by the delivery report; transactions are recorded as they
are begun and ended. What differs from the original: the partition is chosen here (by the same partitioner), because the row
and the record's header name it; each record has one header more; `produce_batch` is not there. With `identity`, a function of
the value, another header has the application's identity of the record: two sends of one identity are one message, sent twice.
"""

import random
import threading
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from prozess.harness.errors import BadInput
from prozess.harness.interfaces.application import RegisteredTopic
from prozess.harness.recording.codes import identity_text
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import MISSING, NONE, SENDS, TRANSACTIONS, Isolation, ObservationKind, Outcome
from prozess.testing.recorded.client import (
    TEST_IS_OVER,
    ClientLog,
    ClientSealed,
    Headers,
    RecordedLife,
    crash_at,
    crashes_at,
    identity,
    logger_for,
    now_ns,
    properties_to_record,
    raise_pending,
    recording_of,
    remember_client,
    with_identity,
)
from prozess.testing.recorded.consumer import consumer_of
from prozess.testing.recorded.polls import SHORT_S, AskedRows
from prozess.testing.recorded.processing_steps import produced
from prozess.testing.recorded.topics import known_topic
from prozess.workloads.record.identity import key_id
from prozess.workloads.record.sends import ABORT, COMMIT, complete_refused, completer_at
from prozess.workloads.record.transactions import TransactionalSends, TransactionRows

Delivery = Callable[[KafkaError | None, Message], Any]


class RecordedProducer(Producer):
    """A drop-in for `confluent_kafka.Producer`. `recording`: the test's directory; None = the environment names it."""

    recording: ClassVar[Path | None] = None
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Properties that a configuration need not give: where the test's cluster is."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **more: object) -> None:
        run = recording_of(self.recording)
        logger = logger_for(run, config or {}, more)
        given: dict[str, Any] = {**self.defaults, **(config or {}), **more}
        self._deliver: Delivery | None = given.pop("on_delivery", None)
        self._identify: Callable[[Any], object] | None = given.pop("identity", None)
        if self._identify is not None and not callable(self._identify):
            raise BadInput(
                f"identity = {self._identify!r}: give a function of a record's value: identity=lambda value: …"
            )
        super().__init__(given, **logger)
        self._unreported = 0
        """The number of delivery reports that were not handed over yet. The lines of the client's log wait in the same queue
        as those."""
        self._counts = isinstance(logger.get("logger"), ClientLog) and "delivery.report.only.error" not in given
        properties = properties_to_record(given)
        self._properties, self._lock, self._sealed, self._ended = properties, threading.RLock(), False, False
        self._choose = partitioner(str(properties.get("partitioner", "consistent_random")), random.Random())
        self._life = RecordedLife(run, "producer", given, isolation=Isolation.NOT_A_READER)
        if self._identify is not None:
            self._life.registry.note(self._life.client, "how", "identity")
        self._rows = RowWriter(run.rows, SENDS, self._life.client)
        self._asked = AskedRows(run.rows, self._life.client)
        self._life.on_beat = self._asked.look
        self._complete = completer_at(self._rows, properties, now_ns, lambda _, __: None)
        self._topics: dict[str, RegisteredTopic] = {}
        self._transactions = self._make_transactions() if "transactional.id" in properties else None
        remember_client(run, self)

    # Sending.

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: Delivery | None = None,
        on_delivery: Delivery | None = None,
        timestamp: int = 0,
        headers: Headers = None,
    ) -> None:
        """Sends a record, as confluent_kafka does. BadInput if the topic is not there, Sealed after the test."""
        facts = self._topics.get(topic) or self._first_use(topic)
        raw_key = key.encode() if isinstance(key, str) else key
        number = partition if partition >= 0 else self._choose(raw_key, len(facts.assignment))
        deliver = callback or on_delivery or self._deliver
        thing = None if self._identify is None else identity_text(self._identify(value))
        produced(topic)
        with self._lock:  # rows are in the order of the calls, whatever thread makes them
            if self._sealed:
                raise ClientSealed(TEST_IS_OVER)
            if number >= len(facts.assignment):  # librdkafka refuses it
                return super().produce(topic, value, key, number)
            dense = facts.first + number
            sequence = self._issue(dense, raw_key, value)
            own_headers = with_identity(headers, identity(self._life.client, dense, sequence, self._life.token), thing)
            self._unreported += 1
            try:
                super().produce(
                    topic,
                    value=value,
                    key=key,
                    partition=number,
                    on_delivery=partial(self._reported, dense, sequence, deliver),
                    timestamp=timestamp,
                    headers=own_headers,
                )
            except BaseException as error:
                self._refused(sequence, error)
                raise

    def _refused(self, sequence: int, error: BaseException) -> None:
        """Completes a send as failed: librdkafka did not take it."""
        self._unreported -= 1
        if isinstance(error, BufferError):
            code = KafkaError._QUEUE_FULL
        elif isinstance(error, KafkaException):
            code = error.args[0].code()
        else:  # a value of a wrong type
            code = KafkaError._INVALID_ARG
        complete_refused(self._rows, sequence, code=code, completed_ns=now_ns())

    def produce_batch(self, *_: object, **__: object) -> NoReturn:
        """Refuses: a batch would not be recorded."""
        raise NotImplementedError("A recorded producer has no produce_batch: call produce for each record.")

    def _first_use(self, topic: str) -> RegisteredTopic:
        facts = known_topic(self._life.registry, topic, self._life.reaching, ClientLog(self._life.run))
        self._life.registry.note(self._life.client, "wrote", topic)
        self._topics[topic] = facts
        return facts

    def _issue(self, dense: int, key: bytes | None, value: str | bytes | None) -> int:
        """Writes the row of a record that is about to be produced, and returns its sequence."""
        size = NONE if value is None else len(value.encode()) if isinstance(value, str) else len(value)
        transaction = NONE if self._transactions is None else self._transactions.number
        sequence = self._rows.count
        return self._rows.append(
            now_ns(), MISSING, NONE, sequence, transaction, key_id(key), dense, int(Outcome.INFO), 0, size
        )

    def _reported(
        self, dense: int, sequence: int, deliver: Delivery | None, error: KafkaError | None, message: Message
    ) -> None:
        """Completes a send, and calls the application's callback.

        flush() of the binding goes on with callbacks after a fatal error, while the exception waits to be raised: in the
        first callback the next call of C code would fail, and the report be lost. It is taken here, and raised after it:
        flush() then raises it when every report was handed over."""
        try:
            raise_pending()
        finally:
            self._complete_report(dense, sequence, deliver, error, message)

    def _complete_report(
        self, dense: int, sequence: int, deliver: Delivery | None, error: KafkaError | None, message: Message
    ) -> None:
        if error is None:
            crash_at("before", "deliver")
        with self._lock:
            self._unreported -= 1
            if not self._sealed and self._transactions is None:
                self._complete(dense, sequence, error, message)
            elif not self._sealed and error is None and (offset := message.offset()) is not None and offset >= 0:
                # In a transaction it was appended, and no more is known until that has ended.
                self._rows.complete(np.array([sequence]), {"log_offset": offset})
        if deliver is not None and not self._ended:
            deliver(error, message)
        if error is None:
            crash_at("after", "deliver")

    # Transactions.

    def init_transactions(self, timeout: float = -1) -> None:
        """Initialises transactions, as confluent_kafka does."""
        transaction = self._transaction()
        with self._lock:
            transaction.initialising()
        try:
            with self._asked.asking(ObservationKind.CALLED, may_last=True):
                super().init_transactions(timeout)
        except KafkaException as error:
            if not error.args[0].retriable():  # the same call again is another one
                with self._lock:
                    transaction.not_initialised(error.args[0])
            raise
        with self._lock:
            transaction.initialised()

    def begin_transaction(self) -> None:
        """Begins a transaction, as confluent_kafka does."""
        transaction = self._transaction()
        with self._lock:
            transaction.begin(self._rows.count)
        try:
            super().begin_transaction()
        except KafkaException as error:
            transaction.ended(Outcome.FAIL, error.args[0].code())
            raise

    def commit_transaction(self, timeout: float = -1) -> None:
        """Commits the transaction, as confluent_kafka does."""
        transaction = self._transaction()
        with self._lock:
            transaction.ending(COMMIT)
        try:
            with self._asked.asking(ObservationKind.CALLED, may_last=True):
                super().commit_transaction(timeout)
        except KafkaException as error:
            transaction.failed(error.args[0])
            raise
        transaction.ended(Outcome.OK, 0)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Aborts the transaction, as confluent_kafka does."""
        transaction = self._transaction()
        with self._lock:
            transaction.ending(ABORT)
        try:
            with self._asked.asking(ObservationKind.CALLED, may_last=True):
                super().abort_transaction(timeout)
        except KafkaException as error:
            transaction.failed(error.args[0])
            raise
        # After a commit even a confirmed abort proves nothing (KIP-360).
        transaction.ended(Outcome.INFO if transaction.commit_invoked else Outcome.FAIL, 0)

    def send_offsets_to_transaction(
        self,
        positions: list[TopicPartition],
        group_metadata: object,
        timeout: float = -1,
    ) -> None:
        """Sends offsets in the transaction, as confluent_kafka does. Those of a recorded consumer are recorded as its
        commit."""
        consumer, transaction = consumer_of(group_metadata), self._transaction()
        if consumer is not None:
            transaction.offsets.append(consumer.committing_in_transaction(positions))
        super().send_offsets_to_transaction(positions, group_metadata, timeout)

    def _transaction(self) -> "_Transactions":
        if self._transactions is None:  # librdkafka says so, too, but not what was missing
            self._transactions = self._make_transactions()
        return self._transactions

    def _make_transactions(self) -> "_Transactions":
        return _Transactions(self._life, self._rows, str(self._properties.get("transactional.id", "")))

    # The end.

    def poll(self, timeout: float = -1) -> int:
        """Serves callbacks, as confluent_kafka does; does nothing once the producer was ended."""
        if self._ended:
            return 0
        if 0 <= timeout <= SHORT_S:
            self._asked.short += 1
            return super().poll(timeout)
        with self._asked.asking(ObservationKind.ASKED, may_last=True):
            return super().poll(timeout)

    def flush(self, timeout: float = -1) -> int:
        """Waits for delivery reports, as confluent_kafka does; nothing is left once the producer was ended."""
        if self._ended:
            return 0
        with self._asked.asking(ObservationKind.ASKED, may_last=True):
            left = super().flush(timeout)
        return len(self) if left and self._counts else left

    def __len__(self) -> int:
        """Returns how many records have no report yet. Unlike the original, it does not count lines of the log."""
        if self._counts:
            return 0 if self._ended else self._unreported
        return super().__len__()

    def seal(self, *, timeout_s: float) -> None:
        """Waits for delivery reports, and ends the rows (`Sealable`)."""
        with suppress(RuntimeError, KafkaException):  # the application has closed it; a fatal error, after every report
            super().flush(timeout_s)
        with self._lock:
            if self._sealed:
                return
            self._sealed = True
            self._rows.close()
            self._asked.close()
            if self._transactions is not None:
                self._transactions.close()
            self._life.end(issued=self._rows.count)

    def end(self) -> None:
        """Gives up the sends under way (`Sealable`). Their outcome in the history is unknown."""
        self._ended = True
        with suppress(KafkaException, RuntimeError, RuntimeWarning):
            super().purge()
            super().close()

    @property
    def in_flight(self) -> int:
        """Returns how many records have no report yet."""
        return len(self)


crashes_at(
    RecordedProducer,
    {
        name: name
        for name in (
            *("produce", "flush", "begin_transaction"),
            *("send_offsets_to_transaction", "commit_transaction", "abort_transaction"),
        )
    },
)


class _Transactions:
    """Writes the rows of `transactions`, and the outcomes of the records within."""

    def __init__(self, life: RecordedLife, sends: RowWriter, transactional_id: str) -> None:
        owner = next(
            (
                client.client
                for client in life.registry.clients
                if client.properties.get("transactional.id") == transactional_id
            ),
            life.client,
        )
        self._rows = TransactionRows(
            RowWriter(life.run.rows, TRANSACTIONS, life.client), now_ns, transactional_id=owner
        )
        self._sends = TransactionalSends(sends, now_ns, value_bytes=0)
        self._first = 0
        self._initialising = False
        self.number = NONE
        """The number of the open transaction; NONE = there is none."""
        self.commit_invoked = False
        self.offsets: list[Callable[[KafkaError | None], None]] = []
        """Callbacks that give each consumer the result of its offset commit."""

    def initialising(self) -> None:
        if not self._initialising:  # the same call again continues the first one
            self._rows.initialising()
        self._initialising = True

    def initialised(self) -> None:
        self._rows.initialised()
        self._initialising = False

    def not_initialised(self, error: KafkaError) -> None:
        self._rows.ended(Outcome.INFO, error.code())
        self._initialising = False

    def begin(self, first: int) -> None:
        self.number, self._first, self.commit_invoked = self._rows.begin(), first, False
        self.offsets = []

    def ending(self, how: int) -> None:
        if self.number != NONE:
            self._rows.ending(how)
            self.commit_invoked |= how == COMMIT

    def failed(self, error: KafkaError) -> None:
        """Takes the error of a call. One that may be made again, or that an abort may follow, ends nothing."""
        if not error.retriable() and not error.txn_requires_abort():
            self.ended(Outcome.INFO, error.code())

    def ended(self, outcome: Outcome, code: int) -> None:
        if self.number == NONE:
            return
        completed_ns = self._rows.ended(outcome, code)
        self._sends.complete(self._first, outcome=outcome, code=code, completed_ns=completed_ns)
        for tell in self.offsets:
            tell(None if outcome is Outcome.OK else KafkaError(code or KafkaError._FAIL))
        self.number = NONE

    def close(self) -> None:
        self._rows.close()


# librdkafka's own partitioners, so that the partition of a record is known before it is sent. Pure.
#
# [librdkafka: CONFIGURATION.md, `partitioner`; rdkafka_msg.c, rd_kafka_msg_partitioner_*; rdmurmur2.c, rdfnv1a.c]


_MASK = 0xFFFFFFFF
ChoosePartition = Callable[[bytes | None, int], int]
"""A partitioner: (key, number of partitions) → partition."""


def murmur2(data: bytes) -> int:
    """Returns the hash of Java's DefaultPartitioner: MurmurHash2, 32 bits, seed 0x9747b28c. It is not yet made
    positive."""
    multiplier, length = 0x5BD1E995, len(data)
    value = 0x9747B28C ^ length
    whole = length - length % 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * multiplier & _MASK
        word = (word ^ word >> 24) * multiplier & _MASK
        value = value * multiplier & _MASK ^ word
    if tail := data[whole:]:
        value = (value ^ int.from_bytes(tail, "little")) * multiplier & _MASK
    value = (value ^ value >> 13) * multiplier & _MASK
    return value ^ value >> 15


def fnv1a(data: bytes) -> int:
    """Returns the FNV-1a hash of 32 bits, as Sarama's partitioner does: the absolute value of a signed number."""
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & _MASK
    return (1 << 32) - value if value >> 31 else value


def _consistent(key: bytes | None, count: int) -> int:
    return zlib.crc32(key or b"") % count


def _murmur2(key: bytes | None, count: int) -> int:
    return (murmur2(key or b"") & 0x7FFFFFFF) % count


def _fnv1a(key: bytes | None, count: int) -> int:
    return fnv1a(key or b"") % count


def partitioner(name: str, rng: random.Random) -> ChoosePartition:
    """Returns the partitioner of this name. BadInput if librdkafka has none such.

    `consistent_random` takes an empty key for none; `murmur2_random` and `fnv1a_random` do not. A record for any partition
    goes to a random one here: librdkafka prefers those that have a leader, and keeps to one for
    `sticky.partitioning.linger.ms`.
    """

    def anywhere(_: bytes | None, count: int) -> int:
        return rng.randrange(count)

    def or_random(hashed: ChoosePartition, *, empty_too: bool) -> ChoosePartition:
        def choose(key: bytes | None, count: int) -> int:
            return anywhere(key, count) if key is None or (empty_too and not key) else hashed(key, count)

        return choose

    known: dict[str, ChoosePartition] = {
        "random": anywhere,
        "consistent": _consistent,
        "consistent_random": or_random(_consistent, empty_too=True),
        "murmur2": _murmur2,
        "murmur2_random": or_random(_murmur2, empty_too=False),
        "fnv1a": _fnv1a,
        "fnv1a_random": or_random(_fnv1a, empty_too=False),
    }
    if name not in known:
        raise BadInput(f"partitioner = {name!r} is none that librdkafka has. Known: {', '.join(known)}.")
    return known[name]
