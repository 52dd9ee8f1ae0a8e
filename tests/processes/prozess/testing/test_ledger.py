"""The applications of docs/examples/ledger, with their bugs and mended, on librdkafka's mock cluster.

The mock does not end transactions in its log, so that no audit comes to its end there: of `Booking` only the rows are judged.
"""

import json
import sys

import pytest

from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import Verdict
from prozess.testing.fixture_objects import KafkaCluster
from prozess.testing.open_transactions import open_transactions
from prozess.testing.recorded.client import seal_clients
from prozess.testing.recorded.consumer import RecordedConsumer
from prozess.testing.recorded.producer import RecordedProducer
from prozess.testing.recording import Recording
from tests.support.mock_kafka import mock_kafka
from tests.support.paths import EXAMPLES

TOPICS = ("events", "relayed", "payments", "balances", "orders", "orders-dead", "bookings")
QUICK = {"session.timeout.ms": 1000, "heartbeat.interval.ms": 100}


@pytest.fixture
def ledger(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "ledger"))
    monkeypatch.delitem(sys.modules, "ledger", raising=False)
    import ledger

    return ledger


@pytest.fixture
def recording(tmp_path, monkeypatch):
    monkeypatch.setattr("prozess.clusters.existing.adoption.ASK_TIMEOUT_S", 0.2)
    with mock_kafka() as kafka:
        made = Recording(RunDirectory(tmp_path / "run"), test="tests/test_x.py::test_y", command="pytest x")
        for topic in TOPICS:
            kafka.create(topic, partitions=1)
            made.registry.add_topic(topic, [[1]], {})
        servers = {"bootstrap.servers": kafka.bootstrap_servers}
        made.producer = made.client_class(RecordedProducer)
        made.producer.defaults = servers
        consumer = made.client_class(RecordedConsumer)
        consumer.defaults = servers
        made.clients = (lambda told: consumer({**told, **QUICK}), made.producer)
        yield made
        made.close()


def fill(recording, topic, *records):
    producer = recording.producer({"enable.idempotence": True})
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0


def is_broken(record):
    return record.value == b"{"


def say_what_they_must_do(cluster):
    cluster.expect("events", "relayed", function=lambda record: record.value, order="key")
    cluster.expect_state(
        "payments",
        "balances",
        fold=lambda balance, record: (balance or 0) + int(record.value),
        identity=lambda record: int(record.value),
    )
    cluster.expect_dead_letters("orders", "orders-dead", failed=is_broken)


def run_all(recording, ledger, *, bug):
    fill(recording, "events", ("anna", "0 opened"), ("ben", "1 opened"), ("anna", "2 urgent"), ("anna", "3 closed"))
    ledger.Relay("events", "relayed", clients=recording.clients, urgent_first=bug).run(4)
    fill(recording, "payments", ("anna", "5"), ("ben", "7"))
    ledger.Balances("payments", "balances", clients=recording.clients, forget=bug).run(2)
    fill(recording, "payments", ("anna", "3"))
    ledger.Balances("payments", "balances", clients=recording.clients, forget=bug).run(1)
    fill(recording, "orders", ("a", json.dumps(1)), ("b", "{"), ("c", json.dumps(3)))
    ledger.Desk("orders", "orders-dead", clients=recording.clients, whole_batch=bug).run(3)


WITH_BUGS = {
    (
        "unordered-output",
        "events → relayed",
    ): "'anna': events/0, offset 0 → relayed/0, offset 1, but events/0, offset 2 → relayed/0, offset 0",
    (
        "wrong-state",
        "payments ⇒ balances",
    ): "'anna': the table has 3 (balances/0, offset 2), and its 2 records give 8 (the last is payments/0, offset 2)",
    ("unexpected-output", "orders → orders-dead (dead letters)"): "orders-dead/0, offset 0: (b'a', b'1')",
}
"""What is found, and how its first witness begins."""


@pytest.mark.parametrize("bug", [True, False], ids=["bug", "mended"])
def test_each_bug_is_found_with_its_records_and_without_it_nothing_is(recording, ledger, bug):
    def refuse():
        raise AssertionError("no cluster of prozess's own is asked for")

    cluster = KafkaCluster(refuse)
    with cluster.under(recording):
        say_what_they_must_do(cluster)
        run_all(recording, ledger, bug=bug)
        judged = recording.conclude()
    found = {(one.anomaly, one.where): one for one in judged.found}
    assert not any(one.unknown for one in judged.found), judged.found
    assert set(found) == (set(WITH_BUGS) if bug else set())
    assert not judged.silent
    for at, begins in WITH_BUGS.items() if bug else ():
        assert found[at].fails
        assert found[at].witnesses[0].text.startswith(begins)
    assert judged.verdict.verdict is (Verdict.VIOLATED if bug else Verdict.HELD), judged.verdict.unknown_reasons


@pytest.mark.parametrize("bug", [True, False], ids=["bug", "mended"])
def test_a_transaction_that_an_application_leaves_open_is_in_its_rows(recording, ledger, bug):
    booking = ledger.Booking("bookings", recording.producer, leave_open=bug)
    assert booking.book([1, 2])
    assert not booking.book([3, 12])
    seal_clients(recording.run, timeout_s=10)
    found = open_transactions(recording._transactional(), recording.registry.topics, expected=True)
    assert [(one.where, one.count, one.fails) for one in found] == (
        [("transactional.id 'booking'", 1, True)] if bug else []
    )
    if bug:
        assert found[0].witnesses[0].text.startswith("bookings/0, offset ")
