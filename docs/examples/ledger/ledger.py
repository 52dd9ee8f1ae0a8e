"""Four small applications, each with a bug that loses nothing in Kafka, and each mended. They know nothing of prozess.

* `Relay` passes events on. With `urgent_first` it sends the urgent ones of a batch first, and so changes their order.
* `Balances` keeps the balance of each account in a topic. With `forget` it begins from nothing when it is started again.
* `Desk` handles orders, and sends those that it cannot handle to a topic of dead letters. With `whole_batch` it sends the
  others of the batch there, too.
* `Booking` books orders in transactions. With `leave_open` it turns back in the middle of one.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

BATCH, WAIT_S, LIMIT_S = 10, 0.5, 60.0
CONSUMER = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
PRODUCER = {"acks": "all", "enable.idempotence": True}
Clients = tuple[Callable[[dict[str, Any]], Consumer], Callable[[dict[str, Any]], Producer]]


class Application:
    """Reads a topic batch by batch, and commits a batch once what came of it is acknowledged."""

    group = "ledger"

    def __init__(self, source: str, target: str, *, clients: Clients) -> None:
        consumer, producer = clients
        self._target = target
        self._consumer = consumer({**CONSUMER, "group.id": self.group})
        self._producer = producer(PRODUCER)
        self._consumer.subscribe([source])

    def run(self, count: int) -> None:
        """Until so many records are done."""
        try:
            for batch in self._batches(count):
                self.handle(batch)
                if self._producer.flush(LIMIT_S):
                    raise TimeoutError("records were not acknowledged")
                self._consumer.commit(asynchronous=False)
        finally:
            self._consumer.close()

    def handle(self, batch: list[Message]) -> None:
        """Make something of these records."""
        raise NotImplementedError

    def _batches(self, count: int) -> Iterator[list[Message]]:
        done = 0
        while done < count:
            batch = [m for m in self._consumer.consume(min(BATCH, count - done), WAIT_S) if m.error() is None]
            done += len(batch)
            if batch:
                yield batch


class Relay(Application):
    """Events in, the same events out."""

    group = "relay"

    def __init__(self, source: str, target: str, *, clients: Clients, urgent_first: bool) -> None:
        super().__init__(source, target, clients=clients)
        self._urgent_first = urgent_first

    def handle(self, batch: list[Message]) -> None:
        """Pass them on."""
        if self._urgent_first:  # the bug: what an account was reported last is no longer the last
            batch = sorted(batch, key=lambda message: b"urgent" not in (message.value() or b""))
        for message in batch:
            self._producer.produce(self._target, message.value(), message.key())


class Balances(Application):
    """Payments in, balances out: the last record of an account is its balance."""

    group = "balances"

    def __init__(self, source: str, target: str, *, clients: Clients, forget: bool) -> None:
        super().__init__(source, target, clients=clients)
        self._balances: dict[bytes, int] = {}
        if not forget:  # the bug: what the process knew before it ended is gone
            self._remember(clients[0])

    def _remember(self, consumer: Callable[[dict[str, Any]], Consumer]) -> None:
        reader = consumer({**CONSUMER, "group.id": "balances-of-before"})
        number = TopicPartition(self._target, 0)
        _, end = reader.get_watermark_offsets(number, timeout=LIMIT_S)
        reader.assign([TopicPartition(self._target, 0, 0)])
        while end > 0:
            message = reader.poll(WAIT_S)
            if message is not None and message.error() is None:
                self._balances[message.key() or b""] = int(message.value() or b"0")
                if (message.offset() or 0) + 1 >= end:
                    break
        reader.close()

    def handle(self, batch: list[Message]) -> None:
        """Add each payment to the balance of its account."""
        for message in batch:
            account = message.key() or b""
            self._balances[account] = self._balances.get(account, 0) + int(message.value() or b"0")
            self._producer.produce(self._target, str(self._balances[account]), account)


class Desk(Application):
    """Orders in, dead letters out; the others are handled."""

    group = "desk"

    def __init__(self, source: str, target: str, *, clients: Clients, whole_batch: bool) -> None:
        super().__init__(source, target, clients=clients)
        self._whole_batch = whole_batch

    def handle(self, batch: list[Message]) -> None:
        """Handle them, or send them to the dead letters."""
        for message in batch:
            try:
                json.loads(message.value() or b"")
            except ValueError:
                letters = batch if self._whole_batch else [message]  # the bug: others of the batch are not dead
                for letter in letters:
                    self._producer.produce(self._target, letter.value(), letter.key())
                if self._whole_batch:
                    return


class Booking:
    """Orders out, several in a transaction."""

    def __init__(self, bookings: str, producer: Callable[[dict[str, Any]], Producer], *, leave_open: bool) -> None:
        self._bookings, self._leave_open = bookings, leave_open
        self._producer = producer({"transactional.id": "booking", "transaction.timeout.ms": 60_000})
        self._producer.init_transactions(LIMIT_S)

    def book(self, orders: list[int]) -> bool:
        """All of them, or none: the stock ends at 9."""
        self._producer.begin_transaction()
        for order in orders:
            if order > 9:
                if not self._leave_open:  # the bug: nothing ends what was begun
                    self._producer.abort_transaction(LIMIT_S)
                return False
            self._producer.produce(self._bookings, str(order), str(order))
            self._producer.flush(LIMIT_S)
        self._producer.commit_transaction(LIMIT_S)
        return True
