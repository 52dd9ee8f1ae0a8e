"""A watch's producer, whose reports a thread takes at once, and when a client that ended is replaced."""

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from prozess.harness.clock import NS_PER_S, Clock, SystemClock

_QUIET = logging.Logger("prozess.watch", logging.CRITICAL + 1)
POLL_S = 0.2
"""How long the thread that takes delivery reports waits for the next one."""
RENEW_S, RENEW_MAX_S = 1.0, 30.0
"""The pause before a second producer or reader is made, which doubles with each, and its limit."""
STEADY_S = 60.0
"""A client that lived so long is replaced without a pause."""


@dataclass(frozen=True, slots=True)
class PolledReport:
    """What a delivery callback was given, and when."""

    completed_ns: int
    error: KafkaError | None
    message: Message


class PolledProducer:
    """A producer and the thread that takes its delivery reports the moment they come.

    The binding raises a fatal error out of poll(), flush() and produce(), and gives it to no callback: it is kept here, and
    nothing is raised."""

    def __init__(self, properties: Mapping[str, Any], clock: Clock) -> None:
        self._clock = clock
        self._reports: queue.SimpleQueue[PolledReport] = queue.SimpleQueue()
        self._complaints: queue.SimpleQueue[KafkaError] = queue.SimpleQueue()
        self._over = threading.Event()
        # Without a logger librdkafka writes of a fatal error to standard error, whatever its log_level.
        self._producer = Producer({**properties, "error_cb": self._complaints.put, "logger": _QUIET})
        self._thread = threading.Thread(target=self._poll, name="delivery-reports", daemon=True)
        self._thread.start()

    def produce(self, topic: str, value: bytes, partition: int) -> KafkaError | None:
        """Hands a record to the producer. Returns why it does not take it; None if it does."""
        try:
            self._producer.produce(topic, value, partition=partition, on_delivery=self._delivered)
        except BufferError:
            return KafkaError(KafkaError._QUEUE_FULL)
        except KafkaException as error:
            refused: KafkaError = error.args[0]
            if refused.fatal():
                self._complaints.put(refused)
            return refused
        return None

    def taken(self) -> tuple[list[PolledReport], list[KafkaError]]:
        """Returns the delivery reports and the complaints that came since the last call."""
        reports, complaints = [], []
        while not self._reports.empty():
            reports.append(self._reports.get())
        while not self._complaints.empty():
            complaints.append(self._complaints.get())
        return reports, complaints

    def know(self, topic: str, timeout_s: float) -> None:
        """Asks for the topic's metadata, so that a new partition is known."""
        with suppress(KafkaException):
            self._producer.list_topics(topic, timeout=timeout_s)

    def close(self, timeout_s: float) -> None:
        """Ends the producer. What it had under way is reported as purged.

        flush() would go on with callbacks after a fatal error, while the binding's exception waits to be raised: they fail.
        The thread goes on polling instead."""
        deadline_ns = self._clock.monotonic_ns() + int(timeout_s * NS_PER_S)
        self._guarded(self._producer.purge)
        while len(self._producer) and self._clock.monotonic_ns() < deadline_ns:
            self._clock.sleep(0.01)
        self._over.set()
        self._thread.join(2 * POLL_S)

    def _poll(self) -> None:
        while not self._over.is_set():
            self._guarded(self._producer.poll, POLL_S)

    def _guarded(self, call: Callable[..., object], *arguments: float) -> None:
        try:
            call(*arguments)
        except KafkaException as error:
            self._complaints.put(error.args[0])

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._reports.put(PolledReport(self._clock.monotonic_ns(), error, message))


@dataclass(slots=True)
class Renewals:
    """When a client that ended may be replaced: the pause grows with each one that did not live long."""

    pause_s: float = 0.0
    began_ns: int = 0
    due_ns: int | None = None
    reason: str = ""

    def ended(self, reason: str, now_ns: int) -> None:
        """Notes that the client can do nothing more, unless that is known."""
        if self.due_ns is None:
            steady = now_ns - self.began_ns > STEADY_S * NS_PER_S
            self.pause_s = 0.0 if steady else min(RENEW_MAX_S, 2 * self.pause_s or RENEW_S)
            self.due_ns, self.reason = now_ns + int(self.pause_s * NS_PER_S), reason

    def due(self, now_ns: int) -> bool:
        """Returns whether a new client is to be made now."""
        return self.due_ns is not None and now_ns >= self.due_ns

    def renewed(self, now_ns: int) -> str:
        """Notes that there is a new client. Returns why."""
        self.began_ns, self.due_ns = now_ns, None
        return self.reason


def in_time(closes: Sequence[Callable[[], object]], timeout_s: float) -> None:
    """Calls all of them at once, and waits until the limit. One that takes longer, as brokers are gone, goes on alone."""

    def call(close: Callable[[], object]) -> None:
        with suppress(KafkaException, RuntimeError):
            close()

    threads = [threading.Thread(target=call, args=(close,), name="close", daemon=True) for close in closes]
    for thread in threads:
        thread.start()
    deadline_ns = SystemClock().monotonic_ns() + int(timeout_s * NS_PER_S)
    for thread in threads:
        thread.join(max(0.0, (deadline_ns - SystemClock().monotonic_ns()) / NS_PER_S))
