"""Three small applications, each with a bug that is common, and each of them mended. They know nothing of prozess.

* `Shipping` reads orders and writes shipments. With `commit_first` it commits a batch, and then does it.
* `Till` writes payments, and sends what was not confirmed in time again: `by_hand` as a new record, else the client does.
* `Copier` copies orders into another topic. With `swallow` it logs what it cannot handle, and goes on.
"""

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, Message, Producer

BATCH, WAIT_S, FLUSH_S = 20, 0.5, 60.0
CONSUMER = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
PRODUCER = {"acks": "all", "enable.idempotence": True}
Clients = tuple[Callable[[dict[str, Any]], Consumer], Callable[[dict[str, Any]], Producer]]


def shipment_of(order: bytes) -> str:
    """The shipment of an order. KeyError for an order without an address."""
    held = json.loads(order)
    return json.dumps({"order": held["id"], "to": held["address"]})


class Shipping:
    """Orders in, shipments out."""

    def __init__(self, orders: str, shipments: str, *, clients: Clients, commit_first: bool) -> None:
        consumer, producer = clients
        self._shipments, self._commit_first = shipments, commit_first
        self._consumer = consumer({**CONSUMER, "group.id": "shipping"})
        self._producer = producer(PRODUCER)
        self._consumer.subscribe([orders])

    def run(self, count: int) -> None:
        """Until so many orders are done; what a batch raises ends it, too."""
        try:
            done = 0
            while done < count:
                orders = [m for m in self._consumer.consume(BATCH, WAIT_S) if m.error() is None]
                if orders:
                    self._handle(orders)
                done += len(orders)
        finally:
            self._consumer.close()

    def _handle(self, orders: Sequence[Message]) -> None:
        if self._commit_first:  # the bug: whoever dies behind this line leaves the batch out
            self._consumer.commit(asynchronous=False)
        for order in orders:
            self._producer.produce(self._shipments, shipment_of(order.value() or b"{}"), order.key())
        if self._producer.flush(FLUSH_S):
            raise TimeoutError("shipments were not acknowledged")
        if not self._commit_first:
            self._consumer.commit(asynchronous=False)


class Till:
    """Writes payments."""

    def __init__(self, payments: str, producer: Callable[[dict[str, Any]], Producer], *, by_hand: bool) -> None:
        self._payments, self._by_hand = payments, by_hand
        self._producer = producer(PRODUCER)

    def pay(self, number: str, cents: int, *, patience_s: float) -> None:
        """Return once it is confirmed."""
        payment = json.dumps({"payment": number, "cents": cents})
        self._send(number, payment)
        if self._by_hand and self._producer.flush(patience_s):  # the bug: it may be on its way, or even written
            self._send(number, payment)
        if self._producer.flush(FLUSH_S):
            raise TimeoutError("the payment was not acknowledged")

    def _send(self, number: str, payment: str) -> None:
        self._producer.produce(self._payments, payment, number)


class Copier:
    """Copies each order that it understands into another topic."""

    def __init__(self, orders: str, copies: str, *, clients: Clients, swallow: bool) -> None:
        consumer, producer = clients
        self._copies, self._swallow = copies, swallow
        self._consumer = consumer({**CONSUMER, "group.id": "copier"})
        self._producer = producer(PRODUCER)
        self._consumer.subscribe([orders])

    def run(self, count: int) -> None:
        """Until so many orders are done."""
        try:
            for _ in range(count):
                while (order := self._consumer.poll(WAIT_S)) is None or order.error() is not None:
                    pass
                self._copy(order)
                self._consumer.commit(order, asynchronous=False)
        finally:
            self._consumer.close()

    def _copy(self, order: Message) -> None:
        try:
            copy = shipment_of(order.value() or b"{}")
        except KeyError:
            if self._swallow:  # the bug: it is committed all the same
                logging.exception("an order was not understood")
                return
            copy = json.dumps({"not understood": (order.value() or b"").decode()})
        self._producer.produce(self._copies, copy, order.key())
        if self._producer.flush(FLUSH_S):
            raise TimeoutError("the copy was not acknowledged")
