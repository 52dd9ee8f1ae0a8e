"""Programs in other languages, recorded by what they print, on real Kafka: Kafka's own tools in Java, and a shop in Node."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.paths import EXAMPLES

pytestmark = [pytest.mark.cluster, pytest.mark.long]
EXAMPLE = EXAMPLES / "languages"
LIMIT_S = 240
INSTALL_LIMIT_S = 60
TOOLS = '''
import pytest
from prozess.clusters.install.kafka_jars import ensure_jars
from prozess.clusters.install.tools import find_java

COUNT = 2000
MEMBER = {
    "group.id": "desk", "enable.auto.commit": False, "isolation.level": "read_uncommitted",
    "auto.offset.reset": "earliest",
}
DURABLE = {"acks": "all", "enable.idempotence": True, "delivery.timeout.ms": 120_000}


def words(kafka, tool, file, *more):
    """Of one of Kafka's own tools, as if it were somebody's program."""
    jars = ":".join(map(str, ensure_jars(kafka.version)))
    java = str(find_java().executable)
    return [
        java, "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars, f"org.apache.kafka.tools.{tool}",
        "--bootstrap-server", kafka.bootstrap_servers, "--command-config", str(file), *more,
    ]


def test_kafkas_own_tools_through_a_dead_leader(kafka_cluster, nemesis, recorded_command, tmp_path):
    topic = kafka_cluster.create_topic("lines", partitions=2, config={"min.insync.replicas": 2})
    file = tmp_path / "client.properties"
    file.write_text("enable.idempotence=true\\nacks=all\\nretries=2147483647\\ndelivery.timeout.ms=120000\\n")
    sending = ["--topic", topic, "--max-messages", str(COUNT), "--throughput", "400", "--repeating-keys", "10"]
    producer = recorded_command(
        words(kafka_cluster, "VerifiableProducer", file, *sending, "--value-prefix", "{prefix}"),
        role="producer", configuration=DURABLE, name="producer",
    )
    reading = ["--topic", topic, "--group-id", "desk", "--verbose", "--max-messages", str(COUNT)]
    (tmp_path / "none").write_text("")
    consumer = recorded_command(
        words(kafka_cluster, "VerifiableConsumer", tmp_path / "none", *reading),
        role="consumer", configuration=MEMBER, name="consumer",
    )
    producer.wait_printed("producer_send_success", count=200)
    with nemesis.kill(f"leader({topic}/0)"):
        assert producer.wait(timeout_s=90) == 0
        consumer.wait_printed("record_data", count=producer.printed("producer_send_success"), timeout_s=60)
    consumer.stop()
    assert producer.printed("producer_send_success") == COUNT
'''


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What pytest stated; the demonstration is not excused."""
    here = tmp_path_factory.mktemp("suite")
    for file in ("package.json", "shop.js", "test_shop.py"):
        shutil.copy(EXAMPLE / file, here)
    (here / "test_tools.py").write_text(TOOLS)
    installed = _install(here)
    checkout = str(EXAMPLES.parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([checkout, str(here)])}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", "-v", "--tb=short",
         "--runxfail", "-rs", "--durations=0", f"--prozess-runs={here / 'runs'}"],
        cwd=here, env=environment, capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    sys.stdout.write(done.stdout[-20_000:])
    return done.stdout, installed


def _install(here):
    """Why kafkajs cannot be had here; None: it is installed."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        return "there is no Node here"
    words = ["npm", "install", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(words, cwd=here, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"npm install takes longer than {INSTALL_LIMIT_S} s"
    return None if done.returncode == 0 else f"npm install: {done.stderr[-500:]}"


def outcome(text, test):
    return re.search(rf"::{re.escape(test)} (\w+)", text)[1]  # type: ignore[index]


def test_kafkas_own_tools_are_recorded_and_keep_every_promise_although_a_leader_dies(told):
    text, _ = told
    assert outcome(text, "test_kafkas_own_tools_through_a_dead_leader") == "PASSED", text[-6000:]


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("test_no_order_of_the_shop_is_lost_although_a_leader_dies", "PASSED"),
        ("test_demonstration_the_shop_with_acks_1_loses_orders", "FAILED"),
    ],
)
def test_a_shop_in_node_ends_as_it_must(told, test, expected):
    text, why_not = told
    if why_not is not None:
        pytest.skip(f"NOT TESTED, the example in Node: {why_not}")
    assert outcome(text, test) == expected, text[-6000:]


def test_a_record_that_a_program_lost_is_told_with_the_program_and_the_faults(told):
    text, why_not = told
    if why_not is not None:
        pytest.skip(f"NOT TESTED, the example in Node: {why_not}")
    assert re.search(r"lost \d+ \(permitted\) in orders-t\d+ \(.*acks=1", text)
    assert re.search(r"offset \d+, record \d+ of producer-\d+ \(shop\), at .* kill leader\(orders-t\d+/0\)", text)
    assert re.search(r"kill of client-\d+: \d+\.\d s to the end, effective", text)
