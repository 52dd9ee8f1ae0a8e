"""An application as you would write it: it copies one topic into another, and knows nothing of trials.

    python copy_topic.py BOOTSTRAP INPUT OUTPUT GROUP INSTANCE DELIVERY

DELIVERY: exactly-once (the offsets in the transaction of the copies), at-least-once (committed once the copies are
acknowledged) or at-most-once (committed before they are made). Keys and values are handed on, headers are not. WORK_MS
in the environment is how long a record takes. Ends with SIGTERM.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

BATCH, WAIT_S, FLUSH_S, CALL_S, TRANSACTION_S = 50, 0.2, 30.0, 2.0, 10.0
WORK_S = float(os.environ.get("WORK_MS", "0")) / 1000
ENDING = threading.Event()


class Copier:
    """Copies the records of one topic into another, and commits what it has copied."""

    def __init__(self, bootstrap: str, source: str, target: str, group: str, instance: str, delivery: str) -> None:
        self._bootstrap, self._target, self._delivery = bootstrap, target, delivery
        self._transactional_id = f"{group}-application-{instance}"
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6000,
            }
        )
        self._producer = self._new_producer()
        self._consumer.subscribe([source])

    def run(self) -> None:
        """Copies until SIGTERM comes."""
        while not ENDING.is_set():
            records = [r for r in self._consumer.consume(BATCH, WAIT_S) if r.error() is None]
            if records and not self._handle(records):
                self._back_to_committed()
        self._consumer.close()

    def _handle(self, records: Sequence[Message]) -> bool:
        try:
            match self._delivery:
                case "exactly-once":
                    self._in_transaction(records)
                case "at-least-once":
                    self._copy(records)
                    self._consumer.commit(offsets=_behind(records), asynchronous=False)
                case "at-most-once":
                    self._consumer.commit(offsets=_behind(records), asynchronous=False)
                    self._copy(records)
        except KafkaException as error:
            sys.stderr.write(f"starting again from the committed offsets: {error}\n")
            return False
        return True

    def _in_transaction(self, records: Sequence[Message]) -> None:
        try:
            self._producer.begin_transaction()
            self._copy(records)
            offsets, group = _behind(records), self._consumer.consumer_group_metadata()
            _until_done("offsets", lambda: self._producer.send_offsets_to_transaction(offsets, group, CALL_S))
            _until_done("commit", lambda: self._producer.commit_transaction(CALL_S))
        except KafkaException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Aborts the transaction. If even that fails, a new producer takes over and fences the old one."""
        try:
            _until_done("abort", lambda: self._producer.abort_transaction(CALL_S))
        except KafkaException as error:
            sys.stderr.write(f"the abort failed, so a new producer takes over: {error}\n")
            self._producer.purge()
            self._producer = self._new_producer()

    def _copy(self, records: Sequence[Message]) -> None:
        failed = []
        for record in records:
            self._producer.produce(
                self._target, record.value(), record.key(), on_delivery=lambda e, _: failed.append(e) if e else None
            )
            self._producer.poll(0)
            ENDING.wait(WORK_S)
        if self._producer.flush(FLUSH_S):
            raise SystemExit("copies were not acknowledged in time")
        if failed:
            raise KafkaException(failed[0])

    def _back_to_committed(self) -> None:
        """Seeks to the committed offsets, which the consumer does not do by itself (KAFKA-17582)."""
        while not ENDING.is_set():
            try:
                for place in self._consumer.committed(self._consumer.assignment(), CALL_S):
                    there = place.offset if place.offset >= 0 else OFFSET_BEGINNING
                    self._consumer.seek(TopicPartition(place.topic, place.partition, there))
            except KafkaException as error:
                sys.stderr.write(f"the committed offsets were not reported: {error}\n")
            else:
                return

    def _new_producer(self) -> Producer:
        common = {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 5}
        if self._delivery != "exactly-once":
            return Producer(common)
        transactional = {
            "transactional.id": self._transactional_id,
            "transaction.timeout.ms": int(1000 * TRANSACTION_S),
            # send_offsets_to_transaction may wait for ever for a group coordinator that is gone, whatever its timeout, until
            # any connection changes (librdkafka#5456, #5511): idle ones are closed, so that one does.
            "connections.max.idle.ms": 3000,
        }
        producer = Producer({**common, **transactional})
        _until_done("init", lambda: producer.init_transactions(CALL_S))
        return producer


def _until_done(what: str, call: Callable[[], None]) -> None:
    """Makes a call, and makes it again for some time if it ran into its limit (KafkaError.retriable)."""
    until = time.monotonic() + 3 * TRANSACTION_S
    while True:
        try:
            return call()
        except KafkaException as error:
            sys.stderr.write(f"{what}: {error}\n")
            if not error.args[0].retriable() or time.monotonic() > until:
                raise


def _behind(records: Sequence[Message]) -> list[TopicPartition]:
    """Returns for each partition the offset behind its last record."""
    last = {(record.topic(), record.partition()): record.offset() + 1 for record in records}
    return [TopicPartition(topic, number, offset) for (topic, number), offset in last.items()]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: ENDING.set())
    Copier(*sys.argv[1:]).run()
