"""The service on a real cluster, which is broken while it works. `pip install 'prozess[run]' pytest`, and `pytest` here."""

import json
import threading
from contextlib import contextmanager

import pytest
from orders_service import PRODUCER, InvoiceService, invoice_of

ORDERS = 200


@pytest.fixture
def topics(kafka_cluster):
    durable = {"min.insync.replicas": 2}
    return (
        kafka_cluster.create_topic("orders", partitions=2, config=durable),
        kafka_cluster.create_topic("invoices", partitions=2, config=durable),
    )


@contextmanager
def running(service):
    """The service at work in a thread; what it dies of is raised here."""
    died = []

    def work():
        try:
            service.run()
        except Exception as error:
            died.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield thread
    finally:
        service.stop()
        thread.join(60)
    if died:
        raise died[0]


def place_orders(producer, topic, numbers):
    for number in numbers:
        order = {"id": number, "amount_cents": 100 * number}
        producer.produce(topic, json.dumps(order), key=f"customer-{number % 7}")
    assert producer.flush(60) == 0


def read_invoices(consumer, topic, count):
    """The orders that have an invoice, once there are so many."""
    consumer.subscribe([topic])
    seen = set()
    for _ in range(600):
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            seen.add(json.loads(message.value())["order"])
        if len(seen) == count:
            break
    return seen


def test_an_invoice_has_the_tax():
    """No cluster, no recording: the plugin has no part in it."""
    assert invoice_of({"id": 1, "amount_cents": 1000})["gross_cents"] == 1190


def test_every_order_has_an_invoice_although_a_leader_dies(
    kafka_cluster, nemesis, recorded_producer, recorded_consumer, topics
):
    orders, invoices = topics
    shop = recorded_producer(PRODUCER)
    service = InvoiceService(
        orders,
        invoices,
        bootstrap=kafka_cluster.bootstrap_servers,
        consumer=recorded_consumer,
        producer=recorded_producer,
    )
    with running(service):
        place_orders(shop, orders, range(ORDERS // 2))
        with nemesis.kill(f"leader({invoices}/0)"):
            place_orders(shop, orders, range(ORDERS // 2, ORDERS))
            nemesis.wait("leader-moved")
        desk = recorded_consumer({"group.id": "desk", "auto.offset.reset": "earliest"})
        assert read_invoices(desk, invoices, ORDERS) == set(range(ORDERS))
        desk.close()


def test_no_order_is_left_out_although_the_service_crashes_before_it_commits(
    kafka_cluster, recorded_producer, recorded_consumer, run_application, crash, topics
):
    orders, invoices = topics
    place_orders(recorded_producer(PRODUCER), orders, range(ORDERS))
    killed = crash.before("commit", nth=3)
    service = run_application("orders_service:main", kafka_cluster.bootstrap_servers, orders, invoices)
    killed.wait(timeout_s=120)
    service.restart()
    desk = recorded_consumer({"group.id": "desk", "auto.offset.reset": "earliest"})
    assert read_invoices(desk, invoices, ORDERS) == set(range(ORDERS)), "some of them twice"
    desk.close()


# --- demonstrations: these fail, and are meant to -------------------------------------------------------------------------


@pytest.mark.prozess(forbid=["lost"])
@pytest.mark.xfail(strict=True, reason="acks=1 loses what only the dead leader had", raises=pytest.fail.Exception)
def test_demonstration_acks_1_loses_orders(kafka_cluster, nemesis, recorded_producer, topics):
    """Followers that stand still while the leader acknowledges, and a leader that dies then: nobody else has the orders. The
    configuration permits that, so that the test itself has to forbid it."""
    orders, _ = topics
    shop = recorded_producer({"acks": 1})
    place_orders(shop, orders, range(20))
    frozen = nemesis.pause(f"followers({orders}/0)")
    nemesis.wait("elapsed", seconds=0.6)  # a fetch that waits at the leader would still be answered
    for number in range(20, 60):
        shop.produce(orders, json.dumps({"id": number, "amount_cents": 1}), partition=0)
    assert shop.flush(60) == 0, "the leader alone acknowledges"
    nemesis.kill(f"leader({orders}/0)")
    frozen.heal()
    nemesis.wait("leader-moved", timeout_s=60)


@pytest.mark.xfail(strict=True, reason="committed first, and never processed", raises=pytest.fail.Exception)
def test_demonstration_committing_first_leaves_orders_out(kafka_cluster, recorded_producer, recorded_consumer, topics):
    """An order that cannot be understood ends the service, behind its commit: nobody looks at that batch again."""
    orders, invoices = topics
    shop = recorded_producer(PRODUCER)
    place_orders(shop, orders, range(10))
    shop.produce(orders, json.dumps({"id": 10}), partition=0)  # it has no amount
    place_orders(shop, orders, range(11, 20))
    service = InvoiceService(
        orders,
        invoices,
        bootstrap=kafka_cluster.bootstrap_servers,
        consumer=recorded_consumer,
        producer=recorded_producer,
        commit_first=True,
    )
    with pytest.raises(KeyError), running(service) as thread:
        thread.join(60)


@pytest.mark.xfail(
    strict=True, reason="committed first, and killed before it was processed", raises=pytest.fail.Exception
)
def test_demonstration_committing_first_and_crashing_leaves_orders_out(
    kafka_cluster, recorded_producer, run_application, crash, topics
):
    """Nothing is wrong with any order: the service alone is killed, behind its commit, and started again."""
    orders, invoices = topics
    place_orders(recorded_producer(PRODUCER), orders, range(ORDERS))
    killed = crash.after("commit", nth=3)
    servers, first = kafka_cluster.bootstrap_servers, {"COMMIT_FIRST": "1"}
    service = run_application("orders_service:main", servers, orders, invoices, environment=first)
    killed.wait(timeout_s=120)
    service.restart()
