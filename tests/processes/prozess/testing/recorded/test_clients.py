"""Recorded clients on librdkafka's mock cluster: an application's calls become the history, and the history a verdict."""

import gc
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.errors import BadInput, ProzessError
from prozess.harness.history.convert import History
from prozess.harness.plan.schedule import FaultAction, Step
from prozess.harness.recording.rows import Recorder, read_rows
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import (
    MISSING,
    NONE,
    SENDS,
    TRANSACTIONS,
    FaultPhase,
    Outcome,
    ReadFlag,
    Role,
    StepOutcome,
    Tristate,
)
from prozess.harness.verdict import AnomalyOutcome, Verdict
from prozess.testing.outcome import outcome_of
from prozess.testing.recorded import topics
from prozess.testing.recorded.client import seal_clients
from prozess.testing.recorded.consumer import RecordedConsumer
from prozess.testing.recorded.producer import RecordedProducer
from prozess.testing.recording import Recording
from tests.support.mock_kafka import end_by_fatal_error, mock_kafka

TOPIC = "orders"
READING = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}


@pytest.fixture
def kafka(monkeypatch):
    # librdkafka's made-up broker never answers who it is: each test would wait for that as long as for a real cluster.
    monkeypatch.setattr("prozess.clusters.existing.adoption.ASK_TIMEOUT_S", 0.2)
    with mock_kafka() as made:
        made.create(TOPIC, partitions=2)
        yield made


@pytest.fixture
def recording(tmp_path, kafka):
    made = Recording(RunDirectory(tmp_path / "run"), test="tests/test_x.py::test_y", command="pytest x")
    made.registry.add_topic(TOPIC, [[1], [1]], {})
    yield made
    made.close()


def client(recording, kafka, service, **properties):
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return recording.client_class(service)({"bootstrap.servers": kafka.bootstrap_servers, **named})


def table(recording, name):
    return History.open(recording.run).table(name)


def read_all(consumer, count):
    found = []
    while len(found) < count:
        message = consumer.poll(15)
        assert message is not None, f"{len(found)} of {count}"
        assert message.error() is None, message.error()
        found.append(message)
    return found


def test_what_was_sent_and_read_is_judged_and_held(recording, kafka):
    producer = client(recording, kafka, RecordedProducer)
    consumer = recording.client_class(RecordedConsumer)({"bootstrap.servers": kafka.bootstrap_servers, **READING})
    told = []
    for number in range(20):
        producer.produce(
            TOPIC, f"order {number}", f"key-{number}", on_delivery=lambda e, m: told.append((e, m.offset()))
        )
    producer.flush(15)
    consumer.subscribe([TOPIC])
    for message in read_all(consumer, 20):
        assert message.headers() in (None, []), "the header is ours, and not the application's"
        consumer.commit(message, asynchronous=False)
    consumer.close()
    judged = recording.conclude()
    assert judged.verdict.verdict is Verdict.HELD, judged.verdict.unknown_reasons
    assert len(told) == 20
    sends, reads, commits = (table(recording, name) for name in ("sends", "reads", "commits"))
    ours = sends["client"] == 1
    assert ours.sum() == 20
    assert (sends["outcome"][ours] == Outcome.OK).all()
    given = reads["client"] == 2
    assert sorted(reads["sequence"][given].tolist()) == list(range(20))
    assert (reads["sender"][given] == 1).all()
    assert (commits["outcome"] == Outcome.OK).all()
    assert {"lost", "unprocessed", "commit-ahead", "skipped"} <= {
        name for name, anomaly in judged.verdict.cells[0].anomalies.items() if anomaly.verdict is Verdict.HELD
    }


def test_what_is_committed_and_never_processed_is_found(recording, kafka):
    producer = client(recording, kafka, RecordedProducer)
    for number in range(10):
        producer.produce(TOPIC, str(number), partition=0)
    producer.flush(15)
    consumer = recording.client_class(RecordedConsumer)({"bootstrap.servers": kafka.bootstrap_servers, **READING})
    consumer.subscribe([TOPIC])
    for number, message in enumerate(read_all(consumer, 10)):
        consumer.commit(message, asynchronous=False)  # before it is processed
        if number == 7:
            with pytest.raises(ZeroDivisionError), consumer.processing(message):
                _ = 1 / 0
        else:
            with consumer.processing(message):
                pass
    consumer.close()
    verdict = recording.conclude().verdict
    found = verdict.cells[0].anomalies["unprocessed"]
    assert (verdict.verdict, found.outcome, found.count) == (Verdict.VIOLATED, AnomalyOutcome.VIOLATED, 1)
    assert found.witnesses[0].log_offset == 7


def test_a_commit_beyond_the_position_is_found(recording, kafka):
    producer = client(recording, kafka, RecordedProducer)
    for number in range(10):
        producer.produce(TOPIC, str(number), partition=0)
    producer.flush(15)
    consumer = recording.client_class(RecordedConsumer)({"bootstrap.servers": kafka.bootstrap_servers, **READING})
    consumer.subscribe([TOPIC])
    read_all(consumer, 3)
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 9)], asynchronous=False)
    consumer.close()
    anomalies = recording.conclude().verdict.cells[0].anomalies
    assert anomalies["commit-ahead"].forbidden == 1


def test_records_of_others_are_nobodys_fault(recording, kafka):
    stranger = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer = client(recording, kafka, RecordedProducer)
    for number in range(5):
        stranger.produce(TOPIC, f"theirs {number}", partition=0)
        producer.produce(TOPIC, f"ours {number}", partition=0)
    stranger.flush(15)
    producer.flush(15)
    reader = client(recording, kafka, RecordedConsumer, group_id="x", auto_offset_reset="earliest")
    reader.assign([TopicPartition(TOPIC, 0)])
    read_all(reader, 10)
    judged = recording.conclude()
    assert judged.verdict.verdict is Verdict.HELD, judged.verdict.unknown_reasons
    reads = table(recording, "reads")
    mine = reads["client"] == 2
    assert (reads["flags"][mine] == int(ReadFlag.ANONYMOUS)).sum() == 5
    clients = table(recording, "clients")
    assert clients["role"][np.isin(clients["client"], (1, 2))].tolist() == [Role.PRODUCER, Role.READER]


def test_a_refused_record_certainly_failed_and_the_caller_is_told(recording, kafka):
    producer = client(recording, kafka, RecordedProducer, message_max_bytes=2000)
    with pytest.raises(KafkaException):
        producer.produce(TOPIC, b"x" * 5000, partition=0)
    with pytest.raises(TypeError):
        producer.produce(TOPIC, object(), partition=0)
    producer.produce(TOPIC, "fits", partition=0)
    producer.flush(15)
    judged = recording.conclude()
    sends = table(recording, "sends")
    assert sends["outcome"][sends["client"] == 1].tolist() == [Outcome.FAIL, Outcome.OK], "the other was none"
    assert judged.verdict.verdict is Verdict.HELD, judged.verdict.unknown_reasons


@pytest.mark.parametrize("wait", ["flush", "seal"])
def test_no_delivery_report_is_lost_after_a_fatal_error(recording, kafka, wait):
    kafka.down()
    producer = client(recording, kafka, RecordedProducer, enable_idempotence=True, linger_ms=60_000)
    reported = []
    for number in range(5):
        producer.produce(
            TOPIC, b"x", partition=0, on_delivery=lambda error, _, n=number: reported.append((n, error.code()))
        )
    end_by_fatal_error(producer, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "the broker lost the producer's state")
    if wait == "flush":
        with pytest.raises(KafkaException) as raised:
            producer.flush(20)
        assert raised.value.args[0].fatal()
    else:
        producer.seal(timeout_s=20)
    assert [number for number, _ in reported] == [0, 1, 2, 3, 4]
    assert len(producer) == 0
    assert len({code for _, code in reported}) == 1
    kafka.up()
    recording.conclude()
    sends = table(recording, "sends")
    assert MISSING not in sends["completed_ns"][sends["client"] == 1]


def test_two_configurations_on_one_topic_are_unknown_and_said(recording, kafka):
    for acks in ("all", "1"):
        producer = client(recording, kafka, RecordedProducer, acks=acks)
        producer.produce(TOPIC, "x")
        producer.flush(15)
    verdict = recording.conclude().verdict
    assert verdict.verdict is Verdict.UNKNOWN
    assert any("producers with different configurations" in reason for reason in verdict.unknown_reasons)


def test_clients_that_did_nothing_are_unknown(recording, kafka):
    client(recording, kafka, RecordedProducer)
    made = Recording(RunDirectory(recording.run.path.parent / "second"), test="t", command="pytest t")
    made.client_class(RecordedProducer)({"bootstrap.servers": kafka.bootstrap_servers})
    verdict = made.conclude().verdict
    made.close()
    assert verdict.verdict is Verdict.UNKNOWN
    assert "none of them sent or read anything" in verdict.unknown_reasons[0]


def test_nothing_recorded_is_nothing_to_judge(tmp_path):
    assert Recording(RunDirectory(tmp_path / "r"), test="t", command="pytest t").conclude().verdict is None


def test_after_the_test_nothing_can_be_sent(recording, kafka):
    producer = client(recording, kafka, RecordedProducer)
    producer.produce(TOPIC, "x")
    recording.conclude()
    with pytest.raises(ProzessError, match="The test is over"):
        producer.produce(TOPIC, "y")


def threads():
    """Of this process: id to name. A new one has the name of the thread that made it until it runs."""
    told = {}
    for name in Path("/proc/self/task").glob("*/comm"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            told[name.parent.name] = name.read_text().strip()
    return told


def clients_main_threads(before):
    """Ids of the main threads of clients that are new since then. A client joins its other threads in its main thread, and
    that one last (rd_kafka_destroy_internal in rdkafka.c). Clients of earlier tests, which are left to close by themselves,
    start new threads for brokers while they look for their cluster (KIP-899)."""
    return {thread for thread, name in threads().items() if thread not in before and name == "rdk:main"}


def test_clients_that_somebody_still_holds_neither_send_nor_log_when_their_fixture_is_over(recording, kafka):
    before, reported = threads(), []
    producer = client(recording, kafka, RecordedProducer)
    consumer = client(recording, kafka, RecordedConsumer, group_id="g")
    consumer.subscribe([TOPIC])
    consumer.poll(0.1)
    wait_until(  # a thread for a broker has the name of the main thread that starts it until it runs
        lambda: len(clients_main_threads(before)) == 2,
        awaited="one main thread of each client",
        timeout_s=60,
        last_seen=lambda: str(threads()),
        clock=SystemClock(),
    )
    recording.conclude()
    kafka.down()
    Producer.produce(producer, TOPIC, "late", on_delivery=lambda *told: reported.append(told))  # what seals cannot stop
    recording.close()

    def gone():
        gc.collect()  # a client is in a cycle, and these tests look for cycles less often than Python does by itself
        return not clients_main_threads(before)

    wait_until(  # a thread that was joined is listed for a moment more
        gone,
        awaited="the clients' main threads to be gone",
        timeout_s=60,
        last_seen=lambda: str(threads()),
        clock=SystemClock(),
    )
    assert (producer.poll(1), producer.flush(), len(producer), consumer.close()) == (0, 0, 0, None)
    with pytest.raises(ProzessError, match="The test is over"):
        consumer.poll(1)


def test_a_thread_that_waits_for_a_record_for_ever_learns_that_the_test_is_over(recording, kafka):
    consumer, learnt = client(recording, kafka, RecordedConsumer, group_id="g"), []

    def wait():
        try:
            while True:  # an error is given in place of a record
                consumer.poll()
        except ProzessError as error:
            learnt.append(str(error))

    consumer.subscribe([TOPIC])
    waiting = threading.Thread(target=wait)
    waiting.start()
    recording.conclude()
    recording.close()
    waiting.join(30)
    assert [text.partition(",")[0] for text in learnt] == ["The test is over"]


def test_a_producer_that_the_application_closed_is_judged_as_any_other(recording, kafka):
    producer = client(recording, kafka, RecordedProducer)
    producer.produce(TOPIC, "x")
    producer.close()
    judged = recording.conclude()
    assert judged.verdict.verdict is Verdict.HELD, judged.verdict.unknown_reasons
    assert table(recording, "sends")["outcome"].tolist()[0] == Outcome.OK


def test_without_a_test_there_is_no_recorded_client(monkeypatch):
    monkeypatch.delenv("PROZESS_RECORDING", raising=False)
    with pytest.raises(BadInput, match="No test records"):
        RecordedProducer({"bootstrap.servers": "127.0.0.1:1"})


def test_a_process_of_the_test_finds_its_recording(recording, kafka):
    code = (
        "import sys\nfrom prozess.testing.recorded.producer import RecordedProducer\n"
        "producer = RecordedProducer({'bootstrap.servers': sys.argv[1]})\n"
        "producer.produce('orders', 'from a child'); producer.flush(15)\n"
    )
    with recording.environment():
        subprocess.run([sys.executable, "-c", code, kafka.bootstrap_servers], check=True, timeout=60)
    judged = recording.conclude()
    assert judged.verdict.verdict is Verdict.HELD, judged.verdict.unknown_reasons
    sends = table(recording, "sends")
    assert (sends["client"] == 1).sum() == 1


def test_a_transaction_is_recorded_as_it_ends(recording, kafka):
    producer = client(recording, kafka, RecordedProducer, transactional_id="t")
    producer.init_transactions(15)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(TOPIC, str(number), partition=0)
        producer.flush(15)
        end(15)
    seal_clients(recording.run, timeout_s=60)
    sends, _ = read_rows(recording.run.rows, SENDS, 1)
    assert sends["outcome"].tolist() == [Outcome.OK] * 3 + [Outcome.FAIL] * 3
    assert (sends["log_offset"] >= 0).all()
    rows, _ = read_rows(recording.run.rows, TRANSACTIONS, 1)
    assert rows["transaction"].tolist() == [NONE, 0, 1]
    assert rows["ended_by"].tolist() == [NONE, 1, 2]
    assert np.all(rows["initialised_ns"] > 0)


def test_the_registry_gives_each_client_its_own_id(recording):
    ids = [recording.registry.add_client("producer", {"n": n}) for n in range(3)]
    assert ids == [1, 2, 3]
    lines = (recording.run.path / "registry.jsonl").read_text().splitlines()
    assert [told["client"] for told in map(json.loads, lines) if "client" in told] == ids


def test_a_fault_without_effect_makes_the_test_unknown(recording, kafka):
    producer = client(recording, kafka, RecordedProducer)
    producer.produce(TOPIC, "x")
    producer.flush(15)
    action = FaultAction(kind="fault", fault="kill", targets=("leader(0)",))
    recording.steps.append(Step(name="1: kill leader(orders/0)", do=action))
    with Recorder(recording.run) as recorder:  # as the session's nemesis writes it
        now_ns = time.monotonic_ns()
        recorder.write("steps", awaited_ns=now_ns, fired_ns=now_ns, done_ns=now_ns, step=0, outcome=StepOutcome.DONE)
        row = {"fault": 0, "kind": recorder.code("fault", "kill"), "step": 0, "node": 1, "time_ns": now_ns}
        recorder.write("faults", **row, phase=FaultPhase.APPLIED, effect=Tristate.UNKNOWN)
        recorder.write("faults", **row, phase=FaultPhase.VERIFIED, effect=Tristate.NO)
    judged = recording.conclude()
    assert judged.verdict.verdict is Verdict.UNKNOWN
    failure = outcome_of(judged, recording.plan(), forbid=()).failure
    assert failure is not None
    assert "had no effect" in failure
    assert "without effect" in failure


def test_what_the_configuration_permits_fails_only_a_test_that_forbids_it(recording, kafka):
    producer = client(recording, kafka, RecordedProducer, acks="1")
    for number in range(3):
        producer.produce(TOPIC, str(number), partition=0)
    producer.flush(15)
    judged = recording.conclude()
    verdict = judged.verdict
    cell = verdict.cells[0]
    lost = cell.anomalies["lost"].model_copy(update={"outcome": AnomalyOutcome.PERMITTED, "count": 2, "permitted": 2})
    shown = cell.model_copy(update={"anomalies": {**cell.anomalies, "lost": lost}})
    seen = replace(judged, verdict=verdict.model_copy(update={"cells": (shown,)}))
    tolerant = outcome_of(seen, recording.plan(), forbid=())
    assert (tolerant.failure, tolerant.costs) == (None, ("orders: lost 2 (permitted)",))
    strict = outcome_of(seen, recording.plan(), forbid=("lost",)).failure
    assert strict is not None
    assert "the test does not (forbid)" in strict
    assert "reproduce: pytest x" in strict
    assert "acks=1" in strict


def test_brokers_that_do_not_tell_a_topics_settings_are_said(monkeypatch):
    class Silent:
        def describe_configs(self, resources, request_timeout):
            return {resource: Future() for resource in resources}

    monkeypatch.setattr(topics, "ASK_S", 0.1)
    with pytest.raises(
        BadInput, match=r"settings of topic 'orders' .* no broker answered within 0\.1 s\. Is the cluster there\?"
    ):
        topics._settings(Silent(), "orders")
