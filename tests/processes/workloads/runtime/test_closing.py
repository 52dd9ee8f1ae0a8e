"""Closing a consumer, and what ends a process in which a call into C keeps the interpreter's lock."""

import signal
import subprocess
import sys
import threading

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from prozess.harness.errors import NotReady
from prozess.testing.recorded.consumer import CallsUnderWay
from prozess.workloads.librdkafka import close
from tests.support.mock_kafka import mock_kafka
from tests.support.paths import ROOT

TOPIC = "orders"
CLOSES = """
import faulthandler, os, pathlib, sys
from confluent_kafka import Consumer
from tests.support.mock_kafka import mock_kafka
from prozess.harness.clock import SystemClock, wait_until
from prozess.workloads.librdkafka import close

log, cluster, properties = pathlib.Path(sys.argv[1]), sys.argv[2], dict(pair.split("=") for pair in sys.argv[3:])
with log.open("wb") as file:
    os.dup2(file.fileno(), 2)  # librdkafka's own lines go there
faulthandler.dump_traceback_later(120, exit=True)
debug = {"log_level": 7, "debug": "cgrp"}
has_partitions = "-> wait-assign-call"  # the client has its partitions, and waits until its application is reported
with mock_kafka() as kafka:
    kafka.create("orders", partitions=2)
    made, reported = [], []
    for number in range(16):
        given = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"g{number}", **debug, **properties}
        made.append((Consumer(given), given))
    for consumer, _ in made:
        consumer.subscribe(["orders"], on_assign=lambda *_: reported.append(1), on_revoke=lambda *_: reported.append(2))
        consumer.poll(0)
    wait_until(
        lambda: log.read_text(errors="replace").count(has_partitions) == len(made),
        awaited="partitions for every consumer",
        timeout_s=60,
        clock=SystemClock(),
    )
    if cluster == "gone":
        kafka.down()
    for consumer, given in made:
        close(consumer, given)
    print(f"closed {len(made)}, reported {len(reported)}")
"""
HANGS = """
import ctypes, faulthandler
from prozess.harness.watchdog import watchdog
from prozess.workloads.librdkafka import end_if_hanging
faulthandler.enable()
with {guard}:
    ctypes.PyDLL(None).sleep({sleep_s})  # with the interpreter's lock
print("returned")
"""


def run(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.parametrize("cluster", ["there", "gone"])
@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(("partition.assignment.strategy=range",), id="eager"),
        pytest.param(("partition.assignment.strategy=cooperative-sticky",), id="cooperative"),
        pytest.param(("partition.assignment.strategy=range", "group.instance.id=i"), id="static"),
        pytest.param(("group.protocol=consumer",), id="consumer-protocol"),
    ],
)
def test_a_consumer_that_was_not_told_of_its_partitions_yet_is_closed(cluster, properties, tmp_path):
    """With `Consumer.close` alone about a third of these closes never return."""
    log = tmp_path / "stderr"
    done = run(CLOSES, log, cluster, *properties)
    assert done.stdout.startswith("closed 16, reported "), log.read_text(errors="replace")[-2000:]


def test_closing_a_member_gives_up_its_partitions_in_order_and_stores_nothing_that_was_not_given():
    with mock_kafka() as kafka:
        kafka.create(TOPIC, partitions=1)
        properties = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        producer = kafka_producer(kafka)
        for number in range(100):
            producer.produce(TOPIC, str(number), partition=0)
        producer.flush(15)
        told = []
        consumer = Consumer(properties)
        consumer.subscribe(
            [TOPIC], on_assign=lambda *_: told.append("assigned"), on_revoke=lambda *_: told.append("revoked")
        )
        given = [message for _ in range(3) if (message := consumer.poll(15)) is not None]
        close(consumer, properties)
        looks = Consumer(properties)
        (committed,) = looks.committed([TopicPartition(TOPIC, 0)], timeout=15)
        looks.close()
    assert told == ["assigned", "revoked"]
    assert committed.offset == len(given) == 3


def test_what_a_callback_raises_is_raised_once_the_consumer_is_closed():
    with mock_kafka() as kafka:
        kafka.create(TOPIC, partitions=1)
        properties = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g"}
        consumer = Consumer(properties)

        def revoked(*_):
            raise ZeroDivisionError

        assigned = threading.Event()
        consumer.subscribe([TOPIC], on_assign=lambda *_: assigned.set(), on_revoke=revoked)
        while not assigned.is_set():
            consumer.poll(0.1)
        with pytest.raises(ZeroDivisionError):
            close(consumer, properties)
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


def kafka_producer(kafka):
    return Producer({"bootstrap.servers": kafka.bootstrap_servers})


def test_a_process_that_keeps_the_lock_in_a_guarded_call_is_ended_with_a_word_and_its_stacks():
    done = run(HANGS.format(guard="watchdog('Closing a consumer', limit_s=0.5)", sleep_s=60))
    assert done.returncode == -signal.SIGABRT
    assert "Closing a consumer has not returned for 0.5 s" in done.stderr
    assert 'File "<string>", line 7' in done.stderr, "where it was"


def test_a_guarded_call_that_returns_is_left_alone():
    done = run(HANGS.format(guard="watchdog('Closing a consumer', limit_s=30)", sleep_s=0))
    assert (done.returncode, done.stdout, done.stderr) == (0, "returned\n", "")


def test_a_client_process_that_keeps_the_lock_ends_by_itself():
    done = run(HANGS.format(guard="end_if_hanging(0.5)", sleep_s=60))
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert 'File "<string>", line 7' in done.stderr, "where it was"


def test_nobody_is_alone_with_a_client_while_another_thread_uses_it():
    uses, inside, leave = CallsUnderWay(), threading.Event(), threading.Event()

    def use():
        with uses.one(timeout_s=60), uses.one(timeout_s=10):  # and again, in a callback
            inside.set()
            leave.wait(30)

    user = threading.Thread(target=use)
    user.start()
    inside.wait(30)
    with pytest.raises(NotReady, match="1 other threads"), uses.none(timeout_s=0.05):
        pytest.fail("it is in use")
    leave.set()
    with uses.none(timeout_s=30), uses.one(timeout_s=0.05):  # its own callbacks may ask
        late = []
        other = threading.Thread(target=lambda: late.append(refused(uses)))
        other.start()
        other.join(30)
    assert late == [True]
    assert not refused(uses)
    user.join(30)


def refused(uses):
    try:
        with uses.one(timeout_s=0.05):
            return False
    except NotReady:
        return True
