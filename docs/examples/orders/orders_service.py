"""A small service: reads orders, makes an invoice of each, and writes it. It knows nothing of prozess.

    python orders_service.py BOOTSTRAP ORDERS INVOICES

At least once: an order is committed when its invoice is acknowledged. `COMMIT_FIRST=1` commits before, as services do that
were written in a hurry; the tests show what that costs.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer

BATCH, WAIT_S, FLUSH_S = 20, 0.2, 60.0
VAT_PERCENT = 19
CONSUMER = {
    "group.id": "invoicing",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "session.timeout.ms": 6000,
}
PRODUCER = {"acks": "all", "enable.idempotence": True}


def invoice_of(order: Mapping[str, Any]) -> dict[str, Any]:
    """The invoice of an order. KeyError for an order that has no amount."""
    net = int(order["amount_cents"])
    return {"order": order["id"], "net_cents": net, "gross_cents": net * (100 + VAT_PERCENT) // 100}


class InvoiceService:
    """Orders in, invoices out. The classes of its clients are given, as in any service that can be tested."""

    def __init__(
        self,
        orders: str,
        invoices: str,
        *,
        bootstrap: str,
        consumer: Callable[[dict[str, Any]], Consumer] = Consumer,
        producer: Callable[[dict[str, Any]], Producer] = Producer,
        producer_settings: Mapping[str, Any] = PRODUCER,
        commit_first: bool = False,
    ) -> None:
        self._invoices, self._commit_first = invoices, commit_first
        self._consumer = consumer({**CONSUMER, "bootstrap.servers": bootstrap})
        self._producer = producer({**producer_settings, "bootstrap.servers": bootstrap})
        self._consumer.subscribe([orders])
        self._stopping = threading.Event()

    def stop(self) -> None:
        """From any thread: end after the batch at hand."""
        self._stopping.set()

    def run(self) -> None:
        """Until asked to stop; what a batch raises ends it, too."""
        try:
            while not self._stopping.is_set():
                orders = [m for m in self._consumer.consume(BATCH, WAIT_S) if m.error() is None]
                if orders:
                    self._handle(orders)
        finally:
            self._consumer.close()

    def _handle(self, orders: Sequence[Message]) -> None:
        if self._commit_first:
            self._commit(orders)
        # A recorded consumer learns what is being processed; the ordinary one does not ask.
        processing = getattr(self._consumer, "processing", lambda _: nullcontext())
        with processing(orders):
            for order in orders:
                invoice = invoice_of(json.loads(order.value() or b"{}"))
                self._producer.produce(self._invoices, json.dumps(invoice), order.key())
            if self._producer.flush(FLUSH_S):
                raise TimeoutError(f"invoices were not acknowledged within {FLUSH_S:g} s")
        if not self._commit_first:
            self._commit(orders)

    def _commit(self, orders: Sequence[Message]) -> None:
        for last in {order.partition(): order for order in orders}.values():
            try:
                self._consumer.commit(last, asynchronous=False)
            except KafkaException as error:  # a rebalance took the partition: whoever has it now does them again
                sys.stderr.write(f"not committed: {error}\n")


def main() -> None:
    """As a process of its own, until SIGTERM."""
    bootstrap, orders, invoices = sys.argv[1:]
    service = InvoiceService(orders, invoices, bootstrap=bootstrap, commit_first="COMMIT_FIRST" in os.environ)
    signal.signal(signal.SIGTERM, lambda *_: service.stop())
    service.run()


if __name__ == "__main__":
    main()
