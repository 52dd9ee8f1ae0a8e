"""confluent_kafka's Producer, recorded: a test's application uses it in place of the other, and knows nothing of it.

A row of `sends` is written before each `produce`, and completed by the delivery report; transactions are recorded as they
are begun and ended. What differs from the original: the partition is chosen here (by the same partitioner), because the row
and the record's header name it; each record has one header more; `produce_batch` is not there.
"""

import random
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from harness.errors import NotReady
from harness.rows import RowWriter
from harness.schema import MISSING, NONE, SENDS, TRANSACTIONS, Isolation, Outcome
from harness.testing.registry import TopicFacts
from workloads.carrier import key_id
from workloads.partitioners import partitioner
from workloads.recorded_client import (
    OVER,
    Headers,
    Life,
    Sealed,
    identity,
    now_ns,
    plain,
    recording_of,
    remember,
    with_identity,
)
from workloads.recorded_consumer import consumer_of
from workloads.recorded_topics import known_topic
from workloads.send_rows import complete_refused, completer_at
from workloads.transaction_rows import ABORT, COMMIT, TransactionalSends, TransactionRows

Delivery = Callable[[KafkaError | None, Message], Any]


class RecordedProducer(Producer):
    """Drop-in for `confluent_kafka.Producer`. `recording`: the test's; None = the environment says."""

    recording: ClassVar[Path | None] = None
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Properties that a configuration need not give: where the test's cluster is."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **more: Any) -> None:  # noqa: ANN401
        logger = {"logger": more.pop("logger")} if "logger" in more else {}
        given = {**self.defaults, **(config or {}), **more}
        self._deliver: Delivery | None = given.pop("on_delivery", None)
        super().__init__(given, **logger)
        properties = plain(given)
        run = recording_of(self.recording)
        self._properties, self._lock, self._sealed, self._ended = properties, threading.RLock(), False, False
        self._choose = partitioner(str(properties.get("partitioner", "consistent_random")), random.Random())
        self._life = Life(run, "producer", properties, isolation=Isolation.NOT_A_READER)
        self._rows = RowWriter(run.rows, SENDS, self._life.client)
        self._complete = completer_at(self._rows, properties, now_ns, lambda _, __: None)
        self._topics: dict[str, TopicFacts] = {}
        self._transactions = self._make_transactions() if "transactional.id" in properties else None
        remember(run, self)

    # --- sending ----------------------------------------------------------------------------------------------------

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
        """As the original; BadInput if the topic is not there, Sealed after the test."""
        facts = self._topics.get(topic) or self._first_use(topic)
        raw_key = key.encode() if isinstance(key, str) else key
        number = partition if partition >= 0 else self._choose(raw_key, len(facts.assignment))
        deliver = callback or on_delivery or self._deliver
        with self._lock:  # rows are in the order of the calls, whatever thread makes them
            if self._sealed:
                raise Sealed(OVER)
            if number >= len(facts.assignment):  # librdkafka refuses it
                return super().produce(topic, value, key, number)
            dense = facts.first + number
            sequence = self._issue(dense, raw_key, value)
            told = with_identity(headers, identity(self._life.client, dense, sequence))
            try:
                super().produce(
                    topic,
                    value=value,
                    key=key,
                    partition=number,
                    on_delivery=partial(self._reported, dense, sequence, deliver),
                    timestamp=timestamp,
                    headers=told,
                )
            except BufferError:
                complete_refused(self._rows, sequence, code=KafkaError._QUEUE_FULL, completed_ns=now_ns())
                raise
            except KafkaException as error:
                complete_refused(self._rows, sequence, code=error.args[0].code(), completed_ns=now_ns())
                raise
            except BaseException:  # a value of a wrong type
                complete_refused(self._rows, sequence, code=KafkaError._INVALID_ARG, completed_ns=now_ns())
                raise

    def produce_batch(self, *arguments: Any, **more: Any) -> Any:  # noqa: ANN401
        """Not recorded, and so not there."""
        raise NotImplementedError("A recorded producer has no produce_batch: call produce for each record.")

    def _first_use(self, topic: str) -> TopicFacts:
        facts = known_topic(self._life.registry, topic, {**self._properties})
        self._life.registry.note(self._life.client, "wrote", topic)
        self._topics[topic] = facts
        return facts

    def _issue(self, dense: int, key: bytes | None, value: str | bytes | None) -> int:
        """The row of a record that is about to be produced; its sequence."""
        size = NONE if value is None else len(value.encode()) if isinstance(value, str) else len(value)
        transaction = NONE if self._transactions is None else self._transactions.number
        sequence = self._rows.count
        return self._rows.append(
            now_ns(), MISSING, NONE, sequence, transaction, key_id(key), dense, int(Outcome.INFO), 0, size
        )

    def _reported(
        self, dense: int, sequence: int, deliver: Delivery | None, error: KafkaError | None, message: Message
    ) -> None:
        with self._lock:
            if not self._sealed and self._transactions is None:
                self._complete(dense, sequence, error, message)
            elif not self._sealed and error is None and (offset := message.offset()) is not None and offset >= 0:
                # In a transaction it was appended, and no more is known until that has ended.
                self._rows.complete(np.array([sequence]), {"log_offset": offset})
        if deliver is not None and not self._ended:
            deliver(error, message)

    # --- transactions -----------------------------------------------------------------------------------------------

    def init_transactions(self, *arguments: Any, **more: Any) -> None:  # noqa: ANN401
        """As the original."""
        told = self._told()
        with self._lock:
            told.initialising()
        super().init_transactions(*arguments, **more)
        with self._lock:
            told.initialised()

    def begin_transaction(self) -> None:
        """As the original."""
        told = self._told()
        with self._lock:
            told.begin(self._rows.count)
        try:
            super().begin_transaction()
        except KafkaException as error:
            told.ended(Outcome.FAIL, error.args[0].code())
            raise

    def commit_transaction(self, *arguments: Any, **more: Any) -> None:  # noqa: ANN401
        """As the original."""
        told = self._told()
        with self._lock:
            told.ending(COMMIT)
        try:
            super().commit_transaction(*arguments, **more)
        except KafkaException as error:
            told.failed(error.args[0])
            raise
        told.ended(Outcome.OK, 0)

    def abort_transaction(self, *arguments: Any, **more: Any) -> None:  # noqa: ANN401
        """As the original."""
        told = self._told()
        with self._lock:
            told.ending(ABORT)
        try:
            super().abort_transaction(*arguments, **more)
        except KafkaException as error:
            told.failed(error.args[0])
            raise
        # After a commit even a confirmed abort proves nothing (KIP-360).
        told.ended(Outcome.INFO if told.commit_invoked else Outcome.FAIL, 0)

    def send_offsets_to_transaction(
        self,
        positions: list[TopicPartition],
        group_metadata: object,
        *arguments: Any,  # noqa: ANN401
    ) -> None:
        """As the original; of a recorded consumer the commit is recorded, too."""
        consumer, told = consumer_of(group_metadata), self._told()
        if consumer is not None:
            told.offsets.append(consumer.committing_in_transaction(positions))
        super().send_offsets_to_transaction(positions, group_metadata, *arguments)

    def _told(self) -> "_Transactions":
        if self._transactions is None:  # librdkafka says so, too, but not what was missing
            self._transactions = self._make_transactions()
        return self._transactions

    def _make_transactions(self) -> "_Transactions":
        return _Transactions(self._life, self._rows, str(self._properties.get("transactional.id", "")))

    # --- the end ----------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = -1) -> int:
        """As the original; nothing once it was ended."""
        return 0 if self._ended else super().poll(timeout)

    def flush(self, timeout: float = -1) -> int:
        """As the original; nothing is left once it was ended."""
        return 0 if self._ended else super().flush(timeout)

    def seal(self, *, timeout_s: float) -> None:
        """See `recorded_client.Recorded`."""
        with suppress(RuntimeError):  # the application has closed it
            super().flush(timeout_s)
        with self._lock:
            if self._sealed:
                return
            self._sealed = True
            self._rows.close()
            if self._transactions is not None:
                self._transactions.close()
            self._life.end(issued=self._rows.count)

    def end(self) -> None:
        """See `recorded_client.Recorded`. What is under way is given up: the history says that nobody knows its end."""
        self._ended = True
        with suppress(KafkaException, RuntimeError, RuntimeWarning):
            super().purge()
            super().close()

    @property
    def in_flight(self) -> int:
        """Records that nobody knows the end of yet."""
        return len(self)

    def await_delivered(self, *, timeout_s: float) -> None:
        """Flush, and NotReady if that was not all."""
        left = super().flush(timeout_s)
        if left:
            raise NotReady(awaited="delivery of every record", timeout_s=timeout_s, last_seen=f"{left} in flight")


class _Transactions:
    """Rows of `transactions`, and the outcome of the records within."""

    def __init__(self, life: Life, sends: RowWriter, transactional_id: str) -> None:
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
        """Of the open transaction; NONE = there is none."""
        self.commit_invoked = False
        self.offsets: list[Callable[[KafkaError | None], None]] = []
        """What tells consumers how the commit of their offsets ended."""

    def initialising(self) -> None:
        if not self._initialising:  # the same call again goes on with what it began
            self._rows.initialising()
        self._initialising = True

    def initialised(self) -> None:
        self._rows.initialised()
        self._initialising = False

    def begin(self, first: int) -> None:
        self.number, self._first, self.commit_invoked = self._rows.begin(), first, False
        self.offsets = []

    def ending(self, how: int) -> None:
        if self.number != NONE:
            self._rows.ending(how)
            self.commit_invoked |= how == COMMIT

    def failed(self, error: KafkaError) -> None:
        """A call that may be made again, or be followed by an abort, ends nothing."""
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
