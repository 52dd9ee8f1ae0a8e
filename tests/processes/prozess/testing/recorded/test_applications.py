"""Applications with bugs, and mended, on librdkafka's mock cluster: what each of their tests is reported."""

import json
import subprocess
import sys
import threading

import pytest

from prozess.harness.errors import BadInput
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import AnomalyOutcome, Verdict
from prozess.testing.expectations import Expectation
from prozess.testing.outcome import outcome_of
from prozess.testing.recorded.consumer import RecordedConsumer
from prozess.testing.recorded.producer import RecordedProducer
from prozess.testing.recording import Recording
from tests.support.mock_kafka import mock_kafka

READING = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
RECORDS = 6


@pytest.fixture
def kafka(monkeypatch):
    monkeypatch.setattr(
        "prozess.clusters.existing.adoption.ASK_TIMEOUT_S", 0.2
    )  # the made-up broker never answers who it is
    with mock_kafka() as made:
        for topic in ("orders", "invoices"):
            made.create(topic, partitions=1)
        yield made


@pytest.fixture
def recording(tmp_path, kafka):
    made = Recording(RunDirectory(tmp_path / "run"), test="tests/test_x.py::test_y", command="pytest x")
    made.registry.add_topic("orders", [[1]], {})
    yield made
    made.close()


def producer(recording, kafka, **more):
    return recording.client_class(RecordedProducer)({"bootstrap.servers": kafka.bootstrap_servers}, **more)


def consumer(recording, kafka, **more):
    made = recording.client_class(RecordedConsumer)({"bootstrap.servers": kafka.bootstrap_servers, **READING, **more})
    made.subscribe(["orders"])
    return made


def place_orders(recording, kafka, count=RECORDS, **more):
    shop = producer(recording, kafka, **more)
    for number in range(count):
        shop.produce("orders", json.dumps({"id": number}))
    assert shop.flush(15) == 0


def orders_of(reader, count=RECORDS):
    """In batches of two, as an application asks for them."""
    done = 0
    while done < count:
        batch = [m for m in reader.consume(2, 1) if m.error() is None]
        done += len(batch)
        if batch:
            yield batch


@pytest.fixture
def invoices(recording):
    """Only where something is written to it: nothing is known of a topic that nobody used."""
    recording.registry.add_topic("invoices", [[1]], {})


def work(reader, till, *, commit_first, dies_at=None, count=RECORDS):
    try:
        for batch in orders_of(reader, count):
            if commit_first:
                reader.commit(asynchronous=False)
            for order in batch:
                if order.offset() == dies_at:
                    raise KeyError(dies_at)
                till.produce("invoices", order.value())
            assert till.flush(15) == 0
            if not commit_first:
                reader.commit(asynchronous=False)
    finally:
        reader.close()


def outcome(judged, recording, *forbid):
    return outcome_of(judged, recording.plan(), forbid=forbid)


def names(judged):
    return {name for one in judged.unjudged for name in one.anomalies}


@pytest.mark.parametrize("commit_first", [True, False])
def test_who_commits_first_is_told_and_fails_who_forbids_it(recording, kafka, invoices, commit_first):
    place_orders(recording, kafka)
    work(consumer(recording, kafka), producer(recording, kafka), commit_first=commit_first)
    judged = recording.conclude()
    assert judged.verdict.verdict is Verdict.HELD, judged.verdict.unknown_reasons
    lenient, strict = outcome(judged, recording), outcome(judged, recording, "commit-first")
    assert lenient.failure is None
    assert any("orders: commit-first" in cost for cost in lenient.costs) == commit_first
    assert (strict.failure is not None) == commit_first
    assert not commit_first or "committed, and then a record was produced to invoices" in strict.failure


@pytest.mark.parametrize("commit_first", [True, False])
def test_a_batch_that_was_committed_before_its_application_died_is_unprocessed(
    recording, kafka, invoices, commit_first
):
    place_orders(recording, kafka)
    with pytest.raises(KeyError):
        work(consumer(recording, kafka), producer(recording, kafka), commit_first=commit_first, dies_at=3)
    judged = recording.conclude()
    found = judged.verdict.cells[0].anomalies["unprocessed"]
    assert found.count == (2 if commit_first else 0)
    assert (found.outcome is AnomalyOutcome.VIOLATED) == commit_first
    assert "unprocessed" not in names(judged)


def test_records_that_a_successor_processed_are_not_left_out(recording, kafka, invoices):
    place_orders(recording, kafka)
    till = producer(recording, kafka)
    brief = {"session.timeout.ms": 6000}  # the mock cluster forgets who left only when its session is over
    with pytest.raises(KeyError):
        work(consumer(recording, kafka, **brief), till, commit_first=False, dies_at=3)
    work(consumer(recording, kafka, **brief), till, commit_first=False, count=RECORDS - 2)
    judged = recording.conclude()
    assert judged.verdict.cells[0].anomalies["unprocessed"].outcome is AnomalyOutcome.HELD
    assert outcome(judged, recording, "unprocessed").failure is None


def test_a_process_that_is_killed_after_its_commit_is_doubtful_and_fails_who_forbids_it(recording, kafka):
    place_orders(recording, kafka)
    code = (
        "import os, signal, sys\nfrom prozess.testing.recorded.consumer import RecordedConsumer\n"
        f"consumer = RecordedConsumer({{'bootstrap.servers': sys.argv[1], **{READING!r}}})\n"
        "consumer.subscribe(['orders'])\n"
        "message = consumer.poll(15)\n"
        "while message is None or message.error() is not None: message = consumer.poll(15)\n"
        "consumer.commit(message, asynchronous=False)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with recording.environment():
        subprocess.run([sys.executable, "-c", code, kafka.bootstrap_servers], check=False, timeout=60)
    judged = recording.conclude()
    assert judged.verdict.cells[0].anomalies["unprocessed"].count == 0, "it may have been processed before the commit"
    assert "unprocessed" in names(judged)
    assert outcome(judged, recording).failure is None
    failure = outcome(judged, recording, "unprocessed").failure
    assert failure.startswith("prozess: unknown: unprocessed in orders: the test forbids it, and prozess cannot say")
    assert "its process ended before it asked for more records (the first is orders/0, offset 0)" in failure


def test_a_consumer_that_commits_by_itself_what_it_gave_and_dies_is_told(recording, kafka):
    place_orders(recording, kafka)
    reader = consumer(recording, kafka, **{"enable.auto.commit": True})
    with pytest.raises(KeyError):
        work_without_commits(reader)
    judged = recording.conclude()
    found = judged.verdict.cells[0].anomalies["unprocessed"]
    assert (found.outcome, found.count) == (AnomalyOutcome.PERMITTED, 2), "librdkafka's default: at most once"


def work_without_commits(reader):
    try:
        for batch in orders_of(reader):
            if batch[-1].offset() == RECORDS - 1:
                raise KeyError
    finally:
        reader.close()


# --- identities -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_record_that_the_application_sent_again_is_found(recording, kafka, by_hand):
    till = producer(recording, kafka, identity=lambda value: json.loads(value)["id"])
    for number in range(3):
        till.produce("orders", json.dumps({"id": number, "try": 1}))
    if by_hand:
        till.produce("orders", json.dumps({"id": 1, "try": 2}))
    till.flush(15)
    judged = recording.conclude()
    assert "repeated" not in names(judged)
    told = outcome(judged, recording)
    if not by_hand:
        assert (judged.found, told.failure) == ((), None)
        return
    assert told.failure.startswith("prozess: violated: repeated in orders\n")
    assert (
        "- 1: orders/0, offset 1 (record 1 of client 1) and orders/0, offset 3 (record 3 of client 1)" in told.failure
    )


def test_identities_of_another_process_travel_with_its_records_and_no_application_sees_them(recording, kafka):
    code = (
        "import sys\nfrom prozess.testing.recorded.producer import RecordedProducer\n"
        "producer = RecordedProducer({'bootstrap.servers': sys.argv[1]}, identity=lambda value: value)\n"
        "producer.produce('orders', 'x', headers={'own': b'1'}); producer.produce('orders', 'x'); producer.flush(15)\n"
    )
    with recording.environment():
        subprocess.run([sys.executable, "-c", code, kafka.bootstrap_servers], check=True, timeout=60)
    reader = consumer(recording, kafka)
    seen = [message.headers() for batch in orders_of(reader, 2) for message in batch]
    assert seen == [[("own", b"1")], []]
    reader.close()
    (found,) = recording.conclude().found
    assert (found.anomaly, found.count) == ("repeated", 1)


def test_an_identity_that_is_no_function_is_refused(recording, kafka):
    with pytest.raises(BadInput, match="give a function of a record's value"):
        producer(recording, kafka, identity="id")


def test_a_test_that_forbids_repetitions_without_identities_fails(recording, kafka):
    place_orders(recording, kafka)
    judged = recording.conclude()
    assert names(judged) == {"repeated"}
    failure = outcome(judged, recording, "repeated").failure
    assert "not judged, and forbidden by the test (forbid): repeated in orders" in failure
    assert "give recorded_producer(…, identity=…)" in failure


# --- input and output -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("swallow", [True, False])
def test_an_error_that_the_handler_swallows_is_a_missing_output(recording, kafka, invoices, swallow):
    recording.expectations.append(Expectation("orders", "invoices", lambda record: record.value))
    place_orders(recording, kafka)
    reader, till = consumer(recording, kafka), producer(recording, kafka)
    for batch in orders_of(reader):
        for order in batch:
            if not (swallow and order.offset() == 4):
                till.produce("invoices", order.value())
        till.flush(15)
        reader.commit(asynchronous=False)
    reader.close()
    judged = recording.conclude()
    assert "missing-output" not in names(judged)
    told = outcome(judged, recording)
    if not swallow:
        assert told.failure is None, told.failure
        return
    assert "✗ missing-output 1 in orders → invoices" in told.failure
    assert "- orders/0, offset 4 (committed by group 'g'): '{\"id\": 4}'" in told.failure


def test_topics_that_cannot_be_read_make_an_expectation_unknown(recording, kafka, invoices):
    recording.expectations.append(Expectation("orders", "invoices", lambda record: record.value))
    place_orders(recording, kafka)
    kafka.delete_records("orders", 0, before=2)
    judged = recording.conclude()
    told = outcome(judged, recording)
    assert "records of orders/0 below offset 2 were deleted" in told.failure
    assert judged.found[0].unknown


def test_a_service_in_a_thread_that_never_closes_its_consumer_is_doubtful_for_its_last_records(recording, kafka):
    place_orders(recording, kafka)
    reader = consumer(recording, kafka)

    def serve():
        for _ in orders_of(reader):
            reader.commit(asynchronous=False)

    service = threading.Thread(target=serve)
    service.start()
    service.join(60)
    judged = recording.conclude()
    (doubt,) = [one for one in judged.unjudged if one.anomalies == ("unprocessed",)]
    assert (
        "2 records were committed, and prozess does not know whether your code was done: its thread ended "
        "without asking"
    ) in doubt.why
