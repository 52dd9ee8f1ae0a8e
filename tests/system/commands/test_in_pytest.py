"""The plugin on real Kafka: suites of sample applications and a few tests beside them, each suite on one cluster."""

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec

import pytest

from tests.support.paths import EXAMPLES

pytestmark = pytest.mark.cluster
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
    for target, stated in ((f"leader({topic}/7)", "is no partition"), ("king", "is not a role"), ("node:x", "no node")):
        with pytest.raises(Exception, match=stated):
            nemesis.kill(target)
    with pytest.raises(Exception, match="prepared for it before they started"):
        nemesis.inject("power-loss", "broker-1")


def test_what_cannot_be_expected_is_refused(kafka_cluster):
    orders = kafka_cluster.create_topic("orders")
    compacted = kafka_cluster.create_topic("table", config={"cleanup.policy": "compact"})
    kafka_cluster.identity(orders, lambda record: record.key)
    with pytest.raises(Exception, match="it was given already"):
        kafka_cluster.identity(orders, lambda record: record.key)
    with pytest.raises(Exception, match="is compacted: records leave its log"):
        kafka_cluster.expect(orders, compacted, function=lambda record: None)
    with pytest.raises(Exception, match="topic 'nothing'"):
        kafka_cluster.expect(orders, "nothing", function=lambda record: None)


def test_what_others_sent_is_compared_too(kafka_cluster):
    from confluent_kafka import Producer
    raw, done = kafka_cluster.create_topic("raw", partitions=2), kafka_cluster.create_topic("done")
    kafka_cluster.expect(raw, done, function=lambda record: [record.value.upper()] * 2, at_least_once=True)
    kafka_cluster.expect(raw, done, function=lambda r: (r.key, 1), identity=lambda r: (r.key, len(r.value)))
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    for text in "abc":
        producer.produce(raw, text, text)
        producer.produce(done, text.upper(), text)
        producer.produce(done, text.upper(), text)
    assert producer.flush(60) == 0


@pytest.fixture(scope="session")
def servers(kafka_cluster):
    assert kafka_cluster.nodes and kafka_cluster.version
    with pytest.raises(Exception, match="it belongs to one test, and no test runs here"):
        kafka_cluster.create_topic("shared")
    yield kafka_cluster.bootstrap_servers
    assert kafka_cluster.bootstrap_servers


@pytest.fixture(scope="module")
def admin(servers):
    from confluent_kafka.admin import AdminClient
    return AdminClient({"bootstrap.servers": servers})


@pytest.fixture
def letters(kafka_cluster):
    return kafka_cluster.create_topic("letters")


@pytest.mark.parametrize("number", [1, 2])
def test_fixtures_of_a_session_and_a_module_share_the_cluster(admin, letters, recorded_producer, kafka_cluster, number):
    producer = recorded_producer({"enable.idempotence": True}, identity=lambda value: value)
    producer.produce(letters, "a")
    assert producer.flush(60) == 0
    assert {topic for topic in admin.list_topics(timeout=30).topics if topic == letters} == {letters}
    assert kafka_cluster.expect


@pytest.mark.prozess(brokers=1)
def test_another_kind_of_cluster_is_refused_while_such_a_fixture_holds_this_one(kafka_cluster):
    pass

'''
TRIAL = """
def test_a_trial(trial):
    document = {
        "name": "mini", "title": "one cell", "metrics": False,
        "variant": {"metadata_mode": "kraft-combined", "brokers": 1},
        "workloads": [{"kind": "log", "topics": {"partitions": 1}, "base": {"topic.replication_factor": 1}}],
        "steps": [{"name": "a while", "after": {"condition": "elapsed", "seconds": 1}}],
    }
    run = trial(document)
    assert run.held, run
    assert run.count("lost") == 0
    assert run.report.is_file()
"""
ASYNCHRONOUS = """
import asyncio


def test_asyncio_through_a_dead_leader(
    kafka_cluster, nemesis, recorded_aio_producer, recorded_aio_consumer
):
    topic = kafka_cluster.create_topic("asked", config={"min.insync.replicas": 2})

    async def work():
        producer = recorded_aio_producer({"acks": "all", "enable.idempotence": True}, batch_size=10)
        reported = [await producer.produce(topic, str(number)) for number in range(50)]
        await producer.flush()
        killed = await asyncio.to_thread(nemesis.kill, f"leader({topic}/0)")
        reported += [await producer.produce(topic, str(number)) for number in range(50, 100)]
        await producer.flush()
        await asyncio.gather(*reported)
        consumer = recorded_aio_consumer({"group.id": "a", "auto.offset.reset": "earliest", "enable.auto.commit": False})
        await consumer.subscribe([topic])
        left = 100
        async with asyncio.timeout(90):
            while left:
                for message in await consumer.consume(20, 1):
                    if message.error() is None:
                        left -= 1
                        with consumer.processing(message):
                            await asyncio.sleep(0)
                        await consumer.commit(message, asynchronous=False)
        await consumer.close()
        await producer.close()
        await asyncio.to_thread(killed.heal)

    asyncio.run(work())


def test_aiokafka_through_a_dead_leader(
    kafka_cluster, nemesis, recorded_aiokafka_producer, recorded_aiokafka_consumer
):
    topic = kafka_cluster.create_topic("awaited", config={"min.insync.replicas": 2})

    async def work():
        async with recorded_aiokafka_producer(enable_idempotence=True) as producer:
            await asyncio.gather(*(producer.send_and_wait(topic, b"%d" % number) for number in range(50)))
            killed = await asyncio.to_thread(nemesis.kill, f"leader({topic}/0)")
            await asyncio.gather(*(producer.send_and_wait(topic, b"%d" % number) for number in range(50, 100)))
        async with recorded_aiokafka_consumer(
            topic, group_id="a", auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer, asyncio.timeout(90):
            for _ in range(100):
                record = await consumer.getone()
                with consumer.processing(record):
                    await asyncio.sleep(0)
                await consumer.commit()
        await asyncio.to_thread(killed.heal)

    asyncio.run(work())
"""
SUITES = {"orders": MORE, "killed-service": TRIAL, "shipments": ASYNCHRONOUS}
"""Suite → the tests that are beside those of its examples."""
FOLDERS = {"killed-service": ("orders",), "shipments": ("shipments", "ledger")}
"""The examples of a suite, where it is not named after its only one."""
CRASHES = "crash or committing_first or test_a_trial"
CHOSEN = {"orders": ("-k", f"not ({CRASHES})"), "killed-service": ("-k", CRASHES)}
"""What pytest is given, so that two suites share an example. -k looks at names of folders, too: those are the suites'."""
OUTCOMES = {
    "orders": {
        "test_an_invoice_has_the_tax": "PASSED",
        "test_every_order_has_an_invoice_although_a_leader_dies": "PASSED",
        "test_demonstration_acks_1_loses_orders": "FAILED",
        "test_transactions_with_offsets": "PASSED",
        "test_its_own_failure_stays_what_it_failed_with": "FAILED",
        "test_targets_that_are_not_there_are_refused": "PASSED",
        "test_what_cannot_be_expected_is_refused": "PASSED",
        "test_what_others_sent_is_compared_too": "FAILED",
        "test_fixtures_of_a_session_and_a_module_share_the_cluster[1]": "PASSED",
        "test_fixtures_of_a_session_and_a_module_share_the_cluster[2]": "PASSED",
        "test_another_kind_of_cluster_is_refused_while_such_a_fixture_holds_this_one": "ERROR",
    },
    "killed-service": {
        "test_demonstration_committing_first_leaves_orders_out": "FAILED",
        "test_no_order_is_left_out_although_the_service_crashes_before_it_commits": "PASSED",
        "test_demonstration_committing_first_and_crashing_leaves_orders_out": "FAILED",
        "test_a_trial": "PASSED",
    },
    "shipments": {
        "test_shipments[bug]": "FAILED",
        "test_shipments[mended]": "PASSED",
        "test_shipments_of_a_service_that_dies[bug]": "FAILED",
        "test_shipments_of_a_service_that_dies[mended]": "PASSED",
        "test_payments_while_a_leader_stands_still[bug]": "FAILED",
        "test_payments_while_a_leader_stands_still[mended]": "PASSED",
        "test_every_order_is_copied[bug]": "FAILED",
        "test_every_order_is_copied[mended]": "PASSED",
        "test_events_of_an_account_keep_their_order[bug]": "FAILED",
        "test_events_of_an_account_keep_their_order[mended]": "PASSED",
        "test_balances_are_the_sums_of_the_payments[bug]": "FAILED",
        "test_balances_are_the_sums_of_the_payments[mended]": "PASSED",
        "test_dead_letters_are_the_orders_that_failed[bug]": "FAILED",
        "test_dead_letters_are_the_orders_that_failed[mended]": "PASSED",
        "test_every_transaction_is_ended[bug]": "FAILED",
        "test_every_transaction_is_ended[mended]": "PASSED",
        "test_asyncio_through_a_dead_leader": "PASSED",
        "test_aiokafka_through_a_dead_leader": "PASSED" if find_spec("aiokafka") else "ERROR",
    },
}
"""Suite → how each of its tests must end."""
LONG = {"killed-service": pytest.mark.long, "shipments": pytest.mark.long}
"""Their cheaper neighbours: tests/processes/prozess/testing/test_applications.py crashes applications, test_ledger.py has
each bug of one, and tests/system/trials runs trials."""


def of_suite(suite, *values):
    """The values of a test's parameters, with the suite whose output it reads."""
    return pytest.param(suite, *values, marks=LONG.get(suite, ()))


@pytest.fixture(scope="module")
def said_of(tmp_path_factory):
    """Returns what pytest stated of a suite, which is run when it is first asked for."""
    return cache(lambda suite: run_suite(suite, tmp_path_factory))


@pytest.fixture
def told(request, said_of):
    """What pytest stated of the suite that the test names, and where it ran."""
    return said_of(request.param)


def run_suite(suite, tmp_path_factory):
    """Runs the examples' own tests and those beside them in a pytest of their own; the demonstrations are not excused."""
    here = tmp_path_factory.mktemp(suite)
    for folder in FOLDERS.get(suite, (suite,)):
        for file in (EXAMPLES / folder).glob("*.py"):
            shutil.copy(file, here)
    (here / "test_more.py").write_text(SUITES[suite])
    installed = any(point.value == "prozess.testing.plugin" for point in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "prozess.testing.plugin"]
    command = [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
    checkout = str(EXAMPLES.parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([checkout, str(here)])}
    command += CHOSEN.get(suite, ())
    done = subprocess.run(
        [*command, "-v", "--tb=short", "--runxfail", "--durations=0", f"--prozess-runs={here / 'runs'}"],
        cwd=here, env=environment, capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    sys.stdout.write(done.stdout[-20_000:])
    return done.stdout, here


def outcome(text, test):
    return re.search(rf"::{re.escape(test)} (\w+)", text)[1]  # type: ignore[index]


@pytest.mark.parametrize(
    ("told", "test", "expected"),
    [of_suite(suite, *ends) for suite, outcomes in OUTCOMES.items() for ends in outcomes.items()],
    indirect=["told"],
)
def test_a_suite_on_one_cluster_ends_as_it_must(told, test, expected):
    text, _ = told
    assert outcome(text, test) == expected, text[-6000:]


@pytest.mark.parametrize("told", ["orders"], indirect=True)
def test_a_loss_is_told_with_the_faults_and_how_to_see_it_again(told):
    text, here = told
    assert re.search(r"lost \d+ \(permitted\) in orders-t\d+ \(.*acks=1", text)
    assert "The configuration permits it, the test does not (forbid)." in text
    assert re.search(r"kill of broker-\d: \d+\.\d s to \d+\.\d s, effective", text)
    command = "reproduce: pytest test_orders_service.py::test_demonstration_acks_1_loses_orders"
    assert command in text
    assert len(list((here / "runs").glob("test-demonstration*/report.html"))) == 1


@pytest.mark.parametrize("told", [of_suite("killed-service")], indirect=True)
def test_what_was_committed_and_never_processed_is_told(told):
    text, _ = told
    assert re.search(r"unprocessed \d+ \(forbidden\) in orders-t\d+", text)


@pytest.mark.parametrize("told", [of_suite("killed-service")], indirect=True)
def test_the_crash_of_an_application_is_told_as_a_fault(told):
    text, _ = told
    assert re.search(r"kill of client-\d+, client-\d+: \d+\.\d s to \d+\.\d s, effective", text)
    assert "kill orders_service after its 3rd commit" in text


@pytest.mark.parametrize(
    ("told", "said"),
    [
        of_suite("shipments", r"prozess: violated: commit-first in orders-t\d+\n"),
        of_suite(
            "shipments", r"- orders-t\d+/0, offset 19: committed, and then a record was produced to shipments-t\d+"
        ),
        of_suite("shipments", r"unprocessed 20 \(forbidden\) in orders-t\d+ "),
        of_suite("shipments", r"prozess: violated: repeated in payments-t\d+\n"),
        of_suite(
            "shipments",
            r"- 'p-2': payments-t\d+/0, offset 1 \(record 1 of client 1\) and payments-t\d+/0, offset 2 \(record 2",
        ),
        of_suite("shipments", r"prozess: violated: missing-output in orders-t\d+ → copies-t\d+\n"),
        of_suite("shipments", r"- orders-t\d+/0, offset 7 \(committed by group 'copier'\): "),
        of_suite(
            "shipments", r"- 'anna': events-t\d+/0, offset 0 → relayed-t\d+/0, offset 1, but events-t\d+/0, offset 2 → "
        ),
        of_suite("shipments", r"- 'anna': the table has 3 \(balances-t\d+/0, offset 2\), and its 2 records give 8 "),
        of_suite("shipments", r"✗ unexpected-output 2 in orders-t\d+ → orders-dead-t\d+ \(dead letters\)"),
        of_suite("shipments", r"✗ open-transaction 1 in transactional\.id 'booking'"),
        of_suite("orders", r"✗ doubled-output 3 in raw-t\d+ → done"),
    ],
    indirect=["told"],
)
def test_a_bug_of_the_application_is_told_with_its_records(told, said):
    text, _ = told
    assert re.search(said, text), text[-6000:]


@pytest.mark.parametrize("told", ["orders"], indirect=True)
def test_what_nobody_could_judge_is_said_at_the_end_with_what_to_add(told):
    text, _ = told
    summary = text[text.rindex("= prozess =") :]
    assert re.search(r"not judged in .*: repeated: .*; give recorded_producer\(…, identity=…\)", summary)
    assert re.search(
        r"not judged in .*: missing-output, unexpected-output, doubled-output, unordered-output, wrong-state: "
        r".*kafka_cluster\.expect",
        summary,
    )


@pytest.mark.parametrize("told", ["orders"], indirect=True)
def test_the_tests_own_words_come_first(told):
    text, _ = told
    assert "the test's own words" in text
    assert re.search(
        r"every promise that was judged held\. `prozess report \S+test-its-own-failure\S* shows what happened", text
    )


@pytest.mark.parametrize("told", [of_suite(suite) for suite in SUITES], indirect=True)
def test_all_of_it_used_one_cluster_and_left_nothing(told):
    _, here = told
    clusters = list((here / "runs").glob("cluster-*"))
    assert [path.name for path in clusters] == ["cluster-1"]
    last = (clusters[0] / "events.jsonl").read_text().splitlines()[-1]
    assert '"end"' in last
    assert (clusters[0] / "logs" / "broker-1.log").is_file()
