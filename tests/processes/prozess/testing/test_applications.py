"""Applications of a test that crash between two of their own steps, on librdkafka's mock cluster."""

import os
import signal
import subprocess
import sys
from importlib.metadata import entry_points

import numpy as np
import pytest

from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.errors import BadInput, NotReady
from prozess.harness.history.convert import History
from prozess.harness.interfaces.application import CrashPoints, Point, checked_point, read_reached, write_points
from prozess.harness.processes import identify, is_running
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import Outcome
from prozess.harness.verdict import Verdict
from prozess.testing.application import Applications, Crash
from prozess.testing.recorded.producer import RecordedProducer
from prozess.testing.recording import Recording
from tests.support.mock_kafka import mock_kafka
from tests.support.paths import ROOT

COUNT = 10
SERVICE = '''
"""Reads ten numbers and writes their squares; `first` commits before it processes, `last` after."""
import sys
from confluent_kafka import Consumer, Producer


def main():
    servers, how = sys.argv[1:3]
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest",
                         "enable.auto.commit": False, "session.timeout.ms": 1000, "heartbeat.interval.ms": 100})
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    consumer.subscribe(["numbers"])
    print("at work", flush=True)
    done = 0
    while done < 10:
        message = consumer.poll(0.2)
        if message is None or message.error() is not None:
            continue
        if how == "first":
            consumer.commit(message, asynchronous=False)
        with consumer.processing(message):
            producer.produce("squares", str(int(message.value()) ** 2), partition=0)
            assert producer.flush(15) == 0
        if how == "last":
            consumer.commit(message, asynchronous=False)
        done = message.offset() + 1
    consumer.close()


if __name__ == "__main__":
    main()
'''


@pytest.fixture
def kafka(monkeypatch):
    monkeypatch.setattr("prozess.clusters.existing.adoption.ASK_TIMEOUT_S", 0.2)
    with mock_kafka() as made:
        for topic in ("numbers", "squares"):
            made.create(topic, partitions=1)
        yield made


@pytest.fixture
def recording(tmp_path, kafka):
    made = Recording(RunDirectory(tmp_path / "run"), test="tests/test_x.py::test_y", command="pytest x")
    for topic in ("numbers", "squares"):
        made.registry.add_topic(topic, [[1]], {})
    yield made
    made.close()


@pytest.fixture
def run_application(recording, tmp_path, monkeypatch):
    (tmp_path / "service.py").write_text(SERVICE)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Applications(recording, SystemClock())
    recording.companions.append(made)
    return made


@pytest.fixture
def crash(run_application):
    return Crash(run_application)


def send_numbers(recording, kafka):
    producer = recording.client_class(RecordedProducer)({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(COUNT):
        producer.produce("numbers", str(number), partition=0)
    assert producer.flush(15) == 0


def anomalies(verdict, topic):
    (cell,) = [cell for cell in verdict.cells if cell.name == topic]
    return cell.anomalies


def test_who_commits_first_and_crashes_before_it_has_processed_is_caught(recording, kafka, run_application, crash):
    send_numbers(recording, kafka)
    killed = crash.after("commit", nth=4)
    service = run_application("service:main", kafka.bootstrap_servers, "first")
    assert killed.wait(timeout_s=60) is service
    service.restart()
    assert service.wait(timeout_s=60) == 0
    verdict = recording.conclude().verdict
    found = anomalies(verdict, "numbers")["unprocessed"]
    assert (verdict.verdict, found.count) == (Verdict.VIOLATED, 1), verdict.unknown_reasons
    assert found.witnesses[0].log_offset == 3
    (fault,) = verdict.faults
    assert (fault.fault, fault.effective, fault.step) == ("kill", True, "1: kill service after its 4th commit")
    assert fault.end_s is not None, "it was started again"
    assert {"client-2", "client-3"} == set(fault.nodes)


def test_who_commits_last_and_crashes_in_between_does_it_again_and_loses_nothing(
    recording, kafka, run_application, crash, tmp_path
):
    send_numbers(recording, kafka)
    killed = crash.before("commit", nth=4)
    service = run_application(str(tmp_path / "service.py"), kafka.bootstrap_servers, "last")
    killed.wait(timeout_s=60)
    service.restart()
    assert service.wait(timeout_s=60) == 0
    verdict = recording.conclude().verdict
    assert verdict.verdict is Verdict.HELD, verdict.unknown_reasons
    sends = History.open(recording.run).table("sends")
    squares = np.isin(sends["client"], [3, 5])
    assert squares.sum() == COUNT + 1, "the fourth twice"
    assert (sends["outcome"][squares] == Outcome.OK).all()


ASYNC_SERVICES = {
    "aio": """
import asyncio, sys
from confluent_kafka.aio import AIOConsumer, AIOProducer

async def work(servers):
    consumer = AIOConsumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest",
                            "enable.auto.commit": False})
    producer = AIOProducer({"bootstrap.servers": servers, "acks": "all"})
    await consumer.subscribe(["numbers"])
    while True:
        message = await consumer.poll(0.2)
        if message is None or message.error() is not None:
            continue
        with consumer.processing(message):
            reported = await producer.produce("squares", message.value(), partition=0)
            await producer.flush()
            await reported
        await consumer.commit(message, asynchronous=False)
""",
    "aiokafka": """
import asyncio, sys
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

async def work(servers):
    consumer = AIOKafkaConsumer("numbers", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest",
                                enable_auto_commit=False)
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all")
    async with consumer, producer:
        async for record in consumer:
            with consumer.processing(record):
                await producer.send_and_wait("squares", record.value, partition=0)
            await consumer.commit()
""",
}


@pytest.mark.parametrize("library", sorted(ASYNC_SERVICES))
def test_an_application_of_asyncio_is_crashed_between_its_steps_too(
    recording, kafka, run_application, crash, tmp_path, library
):
    if library == "aiokafka":
        pytest.importorskip("aiokafka", reason="aiokafka is not installed: pip install 'prozess[aiokafka]'")
    source = ASYNC_SERVICES[library] + "\n\nasyncio.run(work(sys.argv[1]))\n"
    (tmp_path / f"{library}_service.py").write_text(source)
    send_numbers(recording, kafka)
    point = crash.before("commit", nth=3)
    service = run_application(str(tmp_path / f"{library}_service.py"), kafka.bootstrap_servers)
    assert point.wait(timeout_s=60) is service
    verdict = recording.conclude().verdict
    (fault,) = verdict.faults
    assert fault.effective
    history = History.open(recording.run)
    sends, processed, commits = (history.table(name) for name in ("sends", "processed", "commits"))
    assert ((sends["client"] == 3) & (sends["outcome"] == Outcome.OK)).sum() == 3
    assert (processed["done_ns"] > 0).sum() == 3
    assert (commits["outcome"] == Outcome.OK).sum() == 2, "the third was not asked for"


@pytest.mark.parametrize(
    ("when", "step", "nth", "effects"),
    [("before", "produce", 3, 2), ("after", "flush", 3, 3), ("after", "receive", 1, 0), ("after", "process", 2, 2),
     ("before", "process", 2, 1), ("before", "deliver", 2, 1)],
)  # fmt: skip
def test_each_step_can_be_the_last(recording, kafka, run_application, crash, when, step, nth, effects):
    send_numbers(recording, kafka)
    point = getattr(crash, when)(step, nth=nth)
    service = run_application("service:main", kafka.bootstrap_servers, "last")
    point.wait(timeout_s=60)
    assert service.wait(timeout_s=1) == -signal.SIGKILL
    recording.conclude()
    sends = History.open(recording.run).table("sends")
    acknowledged = (sends["client"] == 3) & (sends["outcome"] == Outcome.OK)
    assert acknowledged.sum() == effects


def test_a_crash_that_was_never_reached_is_unknown_and_said(recording, kafka, run_application, crash):
    send_numbers(recording, kafka)
    crash.before("commit", nth=99)
    assert run_application("service:main", kafka.bootstrap_servers, "last").wait(timeout_s=60) == 0
    verdict = recording.conclude().verdict
    assert verdict.verdict is Verdict.UNKNOWN
    assert "the crash before its 99th commit was never reached" in verdict.unknown_reasons[0]


def test_an_application_that_dies_by_itself_is_unknown_and_said_unless_the_test_saw_it(
    recording, kafka, run_application, tmp_path
):
    send_numbers(recording, kafka)
    (tmp_path / "broken.py").write_text("raise SystemExit('no luck today')\n")
    assert run_application(str(tmp_path / "broken.py")).wait(timeout_s=60) == 1
    other = run_application(str(tmp_path / "broken.py"))
    wait_until(lambda: not other.running, awaited="its end", timeout_s=60, clock=SystemClock())
    verdict = recording.conclude().verdict
    assert verdict.verdict is Verdict.UNKNOWN
    told = [reason for reason in verdict.unknown_reasons if "ended with status 1" in reason]
    assert told == [
        "the application broken-2 ended with status 1, although the test did not ask for it (its last line: no luck today)"
    ]


def test_a_kill_by_the_test_is_a_fault_of_the_history(recording, kafka, run_application):
    send_numbers(recording, kafka)
    service = run_application("service:main", kafka.bootstrap_servers, "never")
    wait_until(lambda: service.output.read_text() == "at work\n", awaited="its work", timeout_s=60, clock=SystemClock())
    service.kill()
    with pytest.raises(BadInput, match="is not running"):
        service.kill()
    (fault,) = recording.conclude().verdict.faults
    assert (fault.step, fault.effective) == ("1: kill service", True)


def test_it_is_ended_with_its_test_and_everything_it_has_started(recording, run_application, tmp_path):
    (tmp_path / "parent.py").write_text(
        "import subprocess, sys, time\n"
        "for session in (True, False):\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=session)\n"
        "    print(child.pid, flush=True)\n"
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "time.sleep(600)\n"
    )
    application = run_application([sys.executable, str(tmp_path / "parent.py")])
    with pytest.raises(NotReady, match="it runs"):
        application.wait(timeout_s=0.1)
    wait_until(
        lambda: len(application.output.read_text().split()) == 2,
        awaited="two children",
        timeout_s=60,
        clock=SystemClock(),
    )
    there = [identify(int(pid)) for pid in (application.pid, *application.output.read_text().split())]
    assert all(there)
    recording.close()
    assert not any(is_running(process) for process in there)


def test_a_pytest_that_is_killed_leaves_no_application_behind(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import os, signal, sys\n"
        "def test_it(run_application):\n"
        "    code = 'import time; time.sleep(600)'\n"
        "    application = run_application([sys.executable, '-c', code])\n"
        "    open('pid', 'w').write(str(application.pid))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    installed = any(point.value == "prozess.testing.plugin" for point in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "prozess.testing.plugin"]
    command = [sys.executable, "-m", "pytest", *plugin, "-c", os.devnull, "--rootdir", "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", f"--prozess-runs={tmp_path / 'runs'}", "test_it.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stdout
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: identify(pid) is None, awaited="the application to be gone", timeout_s=30, clock=SystemClock())


@pytest.mark.parametrize(
    ("asked", "printed"),
    [
        (("before", "comit", 1), "did you mean 'commit'"),
        (("before", "xyz", 1), "Known: produce, deliver"),
        (("before", "receive", 1), r'Give crash.after\("receive"\)'),
        (("after", "commit", 0), "Give a positive number"),
    ],
)
def test_a_point_that_cannot_be_reached_is_refused(asked, printed):
    with pytest.raises(BadInput, match=printed):
        checked_point(0, *asked, None)


@pytest.mark.parametrize(
    ("target", "printed"),
    [("service", "is nothing that can be started"), ("gone.py", "there is no such file"), ([], "the command is empty"),
     (["/no/such/program"], "cannot be started: No such file")],
)  # fmt: skip
def test_what_is_no_application_is_refused(run_application, target, printed):
    with pytest.raises(BadInput, match=printed):
        run_application(target)


def test_a_client_that_nobody_records_is_refused_in_an_application(recording, run_application, tmp_path):
    (tmp_path / "serializing.py").write_text(
        "from confluent_kafka import SerializingProducer\nSerializingProducer({'bootstrap.servers': '127.0.0.1:1'})\n"
    )
    application = run_application(str(tmp_path / "serializing.py"))
    assert application.wait(timeout_s=60) == 1
    assert "SerializingProducer is not recorded" in (recording.run.logs / "serializing.stderr.log").read_text()


def test_points_count_by_themselves_and_each_strikes_once(tmp_path):
    struck, clock = [], iter(range(100))
    write_points(tmp_path, [Point(0, "before", "commit", 2, None), Point(1, "after", "commit", 1, "other")])
    mine = CrashPoints(tmp_path, "mine#1", now_ns=lambda: next(clock), kill=lambda: struck.append("mine#1"))
    for _ in range(3):
        mine.at("before", "commit")
        mine.at("after", "commit")
    assert struck == ["mine#1"], "the other is not of this application"
    write_points(tmp_path, [Point(0, "before", "commit", 2, None), Point(2, "before", "flush", 1, "mine")])
    again = CrashPoints(tmp_path, "mine#2", now_ns=lambda: next(clock), kill=lambda: struck.append("mine#2"))
    for _ in range(3):
        again.at("before", "commit")
    assert struck == ["mine#1"], "it was reached before"
    mine.at("before", "flush")  # learnt of meanwhile
    assert [(told.number, told.life) for told in read_reached(tmp_path)] == [(0, "mine#1"), (2, "mine#1")]
