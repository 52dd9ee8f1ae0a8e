"""A retry topic: records whose processing failed are sent there, so that what is behind them need not wait.

A record keeps the number of its partition, and its value carries where it came from (`workloads.copies`). The application
commits past a failed record once the retry topic has acknowledged it; or, where its author forgot that `produce()` only
queues, at once.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from harness.rows import RowWriter
from harness.schema import NONE, SENDS
from workloads.carrier import HEADER, IDENTITY, IDENTITY_OFFSET, pack_header
from workloads.client import Client
from workloads.copies import copy_encoder
from workloads.producer import NS_PER_S, POLL_S
from workloads.send_rows import completer
from workloads.transaction_rows import TransactionalSends

STOP_NS = 10 * NS_PER_S
"""How long a member that was told to stop goes on waiting for what it has sent."""


class RetryTopic:
    """The sending half, of one member. Every send is a row of `sends`, written before it is tried."""

    def __init__(
        self, client: Client, options: Mapping[str, Any], *, between: Callable[[], None], stopped: Callable[[], bool]
    ) -> None:
        """`options`: producer (its properties), outputs (dense id of a partition, and of its retry partition; topic; number),
        awaited. `between` is called while waiting; `stopped`: was the member told to stop?"""
        self._client, self._between, self._stopped = client, between, stopped
        self._awaited = bool(options["awaited"])
        outputs: Sequence[tuple[int, int, str, int]] = options["outputs"]
        self._retry_of = {source: dense for source, dense, _, _ in outputs}
        self._names = {dense: (topic, number) for _, dense, topic, number in outputs}
        self._value_bytes = client.spec.value_bytes
        self._encode = copy_encoder(sender=client.spec.client, value_bytes=self._value_bytes)
        writer = RowWriter(client.rows, SENDS, client.spec.client)
        self._sends = TransactionalSends(writer, client.now_ns, value_bytes=self._value_bytes)
        self._complete = completer(writer, options["producer"], client.now_ns, lambda partition, error: None)
        self._in_flight = 0
        self._again: list[tuple[int, bytes]] = []
        """(retry partition, header of the failed record) of sends that are to be tried again."""
        callbacks = {"on_delivery": self._reported, "error_cb": client.on_error}
        self._producer = Producer({**options["producer"], **callbacks})

    @property
    def issued(self) -> int:
        """Sends tried."""
        return self._sends.count

    @property
    def under_way(self) -> bool:
        """Is anything sent and not reported?"""
        return bool(self._in_flight or self._again)

    def holds(self, partition: np.ndarray) -> np.ndarray:
        """bool[n]: is it a partition of the retry topic?"""
        return np.isin(partition, list(self._names))

    def hand_on(self, columns: Mapping[str, np.ndarray]) -> bool:
        """Send these records (columns of `reads`), and wait until all are acknowledged, if the application does. May it
        commit past them?"""
        wanted = ("sender", "sent_partition", "sequence", "partition")
        for sender, sent, sequence, source in zip(*(columns[name].tolist() for name in wanted), strict=True):
            self._send(self._retry_of[source], pack_header(sender, sent, sequence, self._value_bytes))
        return not self._awaited or self.settle()

    def settle(self) -> bool:
        """Wait until everything is acknowledged; what failed is sent again. False: told to stop, and out of time."""
        until_ns = None
        while self.under_way:
            if until_ns is None and self._stopped():
                until_ns = self._client.now_ns() + STOP_NS
            if until_ns is not None and self._client.now_ns() >= until_ns:
                self._client.log(f"{self._in_flight + len(self._again)} records never reached the retry topic")
                return False
            self._between()
            self._client.check()
            self.serve(POLL_S)
        return True

    def serve(self, wait_s: float) -> None:
        """Take delivery reports, and try again what was refused."""
        try:
            self._producer.poll(wait_s)
        except KafkaException as error:  # the binding raises a fatal error in place of calling back
            self._client.on_error(error.args[0])
        again, self._again = self._again, []
        for dense, header in again:
            self._send(dense, header)

    def close(self) -> None:
        """Flush the rows."""
        self._sends.close()

    def _send(self, dense: int, header: bytes) -> None:
        topic, number = self._names[dense]
        sequence = self._sends.issue(transaction=NONE, partition=dense)
        try:
            self._producer.produce(topic, self._encode(dense, sequence, header), None, number)
            self._in_flight += 1
        except BufferError:
            self._sends.refused(sequence, KafkaError._QUEUE_FULL)
            self._again.append((dense, header))
        except KafkaException as error:
            self._client.on_error(error.args[0])
            self._sends.refused(sequence, error.args[0].code())
            self._again.append((dense, header))

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        self._complete(error, message)
        self._in_flight -= 1
        if error is None:
            return
        self._client.log(f"the retry topic was not reached: {error.name()} {error.str()}")
        if self._awaited:
            value = message.value() or b""
            dense, _ = IDENTITY.unpack_from(value, IDENTITY_OFFSET)
            self._again.append((dense, value[HEADER.itemsize : 2 * HEADER.itemsize]))
