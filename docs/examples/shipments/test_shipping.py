"""Each application with its bug, which the plugin finds, and mended. `pip install 'prozess[run]' pytest`, and `pytest` here.

The demonstrations fail, and are meant to: `pytest --runxfail` shows what each of them is reported.
"""

import json
import threading

import pytest
from shipping import Copier, Shipping, Till, shipment_of

ORDERS = 30
DURABLE = {"min.insync.replicas": 2}
found = pytest.mark.xfail(strict=True, reason="what it shows is a bug", raises=pytest.fail.Exception)


@pytest.fixture
def clients(recorded_consumer, recorded_producer):
    return recorded_consumer, recorded_producer


def place_orders(producer, topic, *, without_address=()):
    for number in range(ORDERS):
        order = {"id": number} | ({} if number in without_address else {"address": f"street {number}"})
        producer.produce(topic, json.dumps(order), key=f"order-{number}")
    assert producer.flush(60) == 0


# --- committed before it is processed -------------------------------------------------------------------------------------


@pytest.mark.prozess(forbid=["commit-first", "unprocessed"])
@pytest.mark.parametrize("commit_first", [pytest.param(True, marks=found, id="bug"), pytest.param(False, id="mended")])
def test_shipments(kafka_cluster, recorded_producer, clients, commit_first):
    """Nothing dies, and no shipment is missing: what the one does is shown by the order in which it does it."""
    orders, shipments = (kafka_cluster.create_topic(name, config=DURABLE) for name in ("orders", "shipments"))
    place_orders(recorded_producer({"acks": "all"}), orders)
    Shipping(orders, shipments, clients=clients, commit_first=commit_first).run(ORDERS)


@pytest.mark.parametrize("commit_first", [pytest.param(True, marks=found, id="bug"), pytest.param(False, id="mended")])
def test_shipments_of_a_service_that_dies(kafka_cluster, recorded_producer, clients, commit_first):
    """An order without an address ends it. Committed first, nobody looks at that batch again."""
    orders, shipments = (kafka_cluster.create_topic(name, config=DURABLE) for name in ("orders", "shipments"))
    place_orders(recorded_producer({"acks": "all"}), orders, without_address=[7])
    with pytest.raises(KeyError):
        Shipping(orders, shipments, clients=clients, commit_first=commit_first).run(ORDERS)


# --- sent again by hand ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_hand", [pytest.param(True, marks=found, id="bug"), pytest.param(False, id="mended")])
def test_payments_while_a_leader_stands_still(kafka_cluster, nemesis, recorded_producer, by_hand):
    """A payment that is not confirmed within half a second is not lost: it arrives once the leader goes on."""
    payments = kafka_cluster.create_topic("payments", config=DURABLE)
    kafka_cluster.identity(payments, lambda record: json.loads(record.value)["payment"])
    till = Till(payments, recorded_producer, by_hand=by_hand)
    till.pay("p-1", 100, patience_s=10)
    with nemesis.pause(f"leader({payments}/0)"):
        paying = threading.Thread(target=till.pay, args=("p-2", 200), kwargs={"patience_s": 0.5})
        paying.start()
        nemesis.wait("elapsed", seconds=2)
    paying.join(90)
    assert not paying.is_alive()


# --- an error that is swallowed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("swallow", [pytest.param(True, marks=found, id="bug"), pytest.param(False, id="mended")])
def test_every_order_is_copied(kafka_cluster, recorded_producer, clients, swallow):
    """What the handler swallowed is not in the log of errors that anybody reads; it is not among the copies either."""
    orders, copies = (kafka_cluster.create_topic(name, config=DURABLE) for name in ("orders", "copies"))

    def copy_of(order):
        try:
            return shipment_of(order.value)
        except KeyError:
            return json.dumps({"not understood": order.value.decode()})

    kafka_cluster.expect(orders, copies, function=copy_of)
    place_orders(recorded_producer({"acks": "all"}), orders, without_address=[7, 11])
    Copier(orders, copies, clients=clients, swallow=swallow).run(ORDERS)
