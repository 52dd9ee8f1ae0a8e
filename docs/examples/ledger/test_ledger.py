"""Each application with its bug, which the plugin finds, and mended. `pip install 'prozess[run]' pytest`, and `pytest` here.

Nothing breaks here, and Kafka keeps all its promises: what each application must do is stated by `expect` and its like. The
demonstrations fail, and are meant to: `pytest --runxfail` shows what each of them is reported.
"""

import json

import pytest
from ledger import Balances, Booking, Desk, Relay

DURABLE = {"min.insync.replicas": 2}
found = pytest.mark.xfail(strict=True, reason="what it shows is a bug", raises=pytest.fail.Exception)
each_way = pytest.mark.parametrize("bug", [pytest.param(True, marks=found, id="bug"), pytest.param(False, id="mended")])


@pytest.fixture
def clients(recorded_consumer, recorded_producer):
    return recorded_consumer, recorded_producer


@pytest.fixture
def create(kafka_cluster):
    return lambda *names, **more: [kafka_cluster.create_topic(name, config=DURABLE | more) for name in names]


@pytest.fixture
def fill(recorded_producer):
    """Sends (key, value) to a topic; no value is sent twice to one."""

    def fill(topic, *records):
        producer = recorded_producer({"acks": "all", "enable.idempotence": True})
        for key, value in records:
            producer.produce(topic, value, key)
        assert producer.flush(60) == 0

    return fill


@each_way
def test_events_of_an_account_keep_their_order(kafka_cluster, create, fill, clients, bug):
    events, relayed = create("events", "relayed")
    kafka_cluster.expect(events, relayed, function=lambda record: record.value, order="key")
    fill(events, ("anna", "0 opened"), ("ben", "1 opened"), ("anna", "2 urgent: blocked"), ("anna", "3 closed"))
    Relay(events, relayed, clients=clients, urgent_first=bug).run(4)


@each_way
def test_balances_are_the_sums_of_the_payments(kafka_cluster, create, fill, clients, bug):
    payments, (balances,) = create("payments")[0], create("balances", **{"cleanup.policy": "compact"})
    kafka_cluster.expect_state(
        payments,
        balances,
        fold=lambda balance, record: (balance or 0) + int(record.value),
        identity=lambda record: int(record.value),
    )
    fill(payments, ("anna", "5"), ("ben", "7"))
    Balances(payments, balances, clients=clients, forget=bug).run(2)
    fill(payments, ("anna", "3"))
    Balances(payments, balances, clients=clients, forget=bug).run(1)  # it is started again


@each_way
def test_dead_letters_are_the_orders_that_failed(kafka_cluster, create, fill, clients, bug):
    orders, dead = create("orders", "orders-dead")

    def is_broken(record):
        try:
            json.loads(record.value)
        except ValueError:
            return True
        return False

    kafka_cluster.expect_dead_letters(orders, dead, failed=is_broken)
    fill(orders, ("a", '{"order": 1}'), ("b", "{"), ("c", '{"order": 3}'))
    Desk(orders, dead, clients=clients, whole_batch=bug).run(3)


@each_way
def test_every_transaction_is_ended(kafka_cluster, create, recorded_producer, bug):
    (bookings,) = create("bookings")
    kafka_cluster.expect_transactions_ended()
    booking = Booking(bookings, recorded_producer, leave_open=bug)
    assert booking.book([1, 2])
    assert not booking.book([3, 12])
