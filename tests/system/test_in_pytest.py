"""The plugin on real Kafka: the sample application's own suite, and a few tests beside it, on one cluster, in one pytest."""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster
EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "orders"
LIMIT_S = 550
MORE = '''
import pytest
from confluent_kafka import TopicPartition


def test_transactions_with_offsets(kafka_cluster, nemesis, recorded_producer, recorded_consumer):
    """Consume, transform, produce, and the offsets in the transaction; its coordinator is killed in between."""
    source, target = (kafka_cluster.create_topic(name, config={"min.insync.replicas": 2}) for name in ("in", "out"))
    feeder = recorded_producer({"enable.idempotence": True})
    for number in range(60):
        feeder.produce(source, str(number))
    assert feeder.flush(60) == 0
    consumer = recorded_consumer({"group.id": "copy", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([source])
    producer = recorded_producer({"transactional.id": "copier"})
    producer.init_transactions(60)
    copied = 0
    while copied < 60:
        batch = [m for m in consumer.consume(20, 5) if m.error() is None]
        producer.begin_transaction()
        for message in batch:
            producer.produce(target, message.value(), on_delivery=lambda error, message: None)
        if copied == 0:
            nemesis.kill("transaction-coordinator(copier)")
        offsets = [TopicPartition(m.topic(), m.partition(), m.offset() + 1) for m in batch[-1:]]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
        producer.commit_transaction(60)
        copied += len(batch)
    consumer.close()


def test_its_own_failure_stays_what_it_failed_with(kafka_cluster, recorded_producer):
    producer = recorded_producer()
    producer.produce(kafka_cluster.create_topic("t"), "x")
    assert producer.flush(60) == 1, "the test's own words"


def test_targets_that_are_not_there_are_refused(kafka_cluster, nemesis):
    topic = kafka_cluster.create_topic("t")
    for target, said in ((f"leader({topic}/7)", "is no partition"), ("king", "is not a role"), ("node:x", "no node")):
        with pytest.raises(Exception, match=said):
            nemesis.kill(target)
    with pytest.raises(Exception, match="prepared for it before they started"):
        nemesis.strike("power-loss", "broker-1")


def test_a_trial(trial):
    document = {
        "name": "mini", "title": "one cell", "metrics": False,
        "workloads": [{"kind": "log", "topics": {"partitions": 1}}],
        "steps": [{"name": "a while", "after": {"condition": "elapsed", "seconds": 1}}],
    }
    run = trial(document)
    assert run.held, run
    assert run.count("lost") == 0
    assert run.report.is_file()
'''


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What pytest said; the demonstrations are not excused."""
    here = tmp_path_factory.mktemp("suite")
    for file in EXAMPLE.glob("*.py"):
        shutil.copy(file, here)
    (here / "test_more.py").write_text(MORE)
    installed = any(point.value == "harness.pytest_plugin" for point in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "harness.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
    checkout = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([checkout, str(here)])}
    done = subprocess.run(
        [*command, "-v", "--tb=short", "--runxfail", "--durations=0", f"--prozess-runs={here / 'runs'}"],
        cwd=here, env=environment, capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    sys.stdout.write(done.stdout[-20_000:])
    return done.stdout, here


def outcome(text, test):
    return re.search(rf"::{test} (\w+)", text)[1]  # type: ignore[index]


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("test_an_invoice_has_the_tax", "PASSED"),
        ("test_every_order_has_an_invoice_although_a_leader_dies", "PASSED"),
        ("test_demonstration_acks_1_loses_orders", "FAILED"),
        ("test_demonstration_committing_first_leaves_orders_out", "FAILED"),
        ("test_transactions_with_offsets", "PASSED"),
        ("test_its_own_failure_stays_what_it_failed_with", "FAILED"),
        ("test_targets_that_are_not_there_are_refused", "PASSED"),
        ("test_a_trial", "PASSED"),
    ],
)
def test_a_suite_on_one_cluster_ends_as_it_must(told, test, expected):
    text, _ = told
    assert outcome(text, test) == expected, text[-6000:]


def test_a_loss_is_told_with_the_faults_and_how_to_see_it_again(told):
    text, here = told
    assert re.search(r"lost \d+ \(permitted\) in orders-t\d+ \(.*acks=1", text)
    assert "The configuration permits it, the test does not (forbid)." in text
    assert re.search(r"kill of broker-\d: \d+\.\d s to \d+\.\d s, effective", text)
    command = "reproduce: pytest test_orders_service.py::test_demonstration_acks_1_loses_orders"
    assert command in text
    assert len(list((here / "runs").glob("test-demonstration*/report.html"))) == 2


def test_what_was_committed_and_never_processed_is_told(told):
    text, _ = told
    assert re.search(r"unprocessed \d+ \(forbidden\) in orders-t\d+", text)


def test_the_tests_own_words_come_first(told):
    text, _ = told
    assert "the test's own words" in text
    assert re.search(r"every promise held\. `prozess report \S+test-its-own-failure\S* shows what happened", text)


def test_all_of_it_used_one_cluster_and_left_nothing(told):
    _, here = told
    clusters = list((here / "runs").glob("cluster-*"))
    assert [path.name for path in clusters] == ["cluster-1"]
    last = (clusters[0] / "events.jsonl").read_text().splitlines()[-1]
    assert '"end"' in last
    assert (clusters[0] / "logs" / "broker-1.log").is_file()
