"""Programs that print what they do, recorded in a test on librdkafka's mock cluster: what is understood, and what is not."""

import re
import signal
import sys

import pytest

from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.errors import BadInput, NotReady
from prozess.harness.history.convert import History
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import NONE, Outcome
from prozess.harness.verdict import Verdict
from prozess.testing.application import Applications, RecordedCommands
from prozess.testing.recorded.consumer import RecordedConsumer
from prozess.testing.recorded.producer import RecordedProducer
from prozess.testing.recording import Recording
from tests.support.mock_kafka import mock_kafka

DURABLE = {"acks": "all", "enable.idempotence": True, "delivery.timeout.ms": 30_000}
MEMBER = {
    "group.id": "g",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
}
PRODUCER = [
    sys.executable,
    "-m",
    "prozess.workloads.verifiable.tools",
    "producer",
    "--topic",
    "t",
    "--value-prefix",
    "{prefix}",
]
CONSUMER = [
    sys.executable,
    "-m",
    "prozess.workloads.verifiable.tools",
    "consumer",
    "--topic",
    "t",
    "--group-id",
    "g",
    "--verbose",
]
SENT = "producer_send_success"
SAYING = """
import json, os, sys, time
from confluent_kafka import Producer
servers, stated = sys.argv[1], sys.argv[2].replace("@", os.environ["PROZESS_PREFIX"])
stated = stated.replace("NOW", str(time.time_ns() // 1_000_000))
producer, reported = Producer({"bootstrap.servers": servers}), []
producer.produce("t", os.environ["PROZESS_PREFIX"] + ".0", partition=0, on_delivery=lambda e, m: reported.append(m.offset()))
producer.flush(20)
value = os.environ["PROZESS_PREFIX"] + ".0"
print(json.dumps({"name": "producer_send_success", "value": value, "topic": "t", "partition": 0, "offset": reported[0]}))
print(stated)
print('{"name": "shutdown_complete"}')
"""


@pytest.fixture
def kafka(monkeypatch):
    monkeypatch.setattr("prozess.clusters.existing.adoption.ASK_TIMEOUT_S", 0.2)
    with mock_kafka() as made:
        made.create("t", partitions=2)
        yield made


@pytest.fixture
def recording(tmp_path, kafka):
    made = Recording(RunDirectory(tmp_path / "run"), test="tests/test_x.py::test_y", command="pytest x")
    made.registry.add_topic("t", [[1], [1]], {})
    yield made
    made.close()


@pytest.fixture
def recorded_command(recording, kafka):
    applications = Applications(recording, SystemClock())
    commands = RecordedCommands(recording, applications)
    recording.companions += [applications, commands]

    def start(words, *, role="producer", configuration, **more):
        told = {**configuration, "bootstrap.servers": kafka.bootstrap_servers}
        return commands(words, role=role, configuration=told, **more)

    return start


def sends_of(recording):
    """By programs: the audit sends, too."""
    sends = History.open(recording.run).table("sends")
    ours = sends["client"] > 0
    return {name: column[ours] for name, column in sends.items()}


def of(kafka, words, *more):
    return [*words, "--bootstrap-server", kafka.bootstrap_servers, *more]


def test_what_a_program_prints_is_recorded_and_judged(kafka, recording, recorded_command):
    program = recorded_command(of(kafka, PRODUCER, "--max-messages", "40"), configuration=DURABLE, name="shop")
    assert program.wait(timeout_s=60) == 0
    reader = recorded_command(
        of(kafka, CONSUMER, "--max-messages", "40"), role="consumer", configuration=MEMBER, name="desk"
    )
    assert reader.wait(timeout_s=60) == 0
    judged = recording.conclude()
    assert judged.verdict.verdict is Verdict.HELD, judged.verdict.unknown_reasons
    sends = sends_of(recording)
    assert sorted(sends["sequence"].tolist()) == list(range(40))
    assert (sends["outcome"] == Outcome.OK).all()
    assert (sends["invoked_ns"] <= sends["completed_ns"]).all()
    reads = History.open(recording.run).table("reads")
    by_program = reads["sender"] == 1
    assert by_program.sum() >= 80, "the consumer's, and the audit's"
    assert History.open(recording.run).table("processed")["sequence"].tolist()
    assert program.printed(SENT) == 40
    with pytest.raises(NotReady, match="40; it has ended with status 0"):
        program.wait_printed(SENT, count=41)


def test_a_record_that_a_program_was_acknowledged_and_that_no_log_has_is_lost(
    kafka, recording, recorded_command, tmp_path
):
    (tmp_path / "saying.py").write_text(SAYING)
    printed = '{"name": "producer_send_success", "value": "@.1", "topic": "t", "partition": 0, "offset": 1}'
    words = [sys.executable, str(tmp_path / "saying.py"), kafka.bootstrap_servers, printed]
    assert recorded_command(words, configuration=DURABLE).wait(timeout_s=60) == 0
    verdict = recording.conclude().verdict
    (cell,) = verdict.cells
    assert (verdict.verdict, cell.anomalies["lost"].count) == (Verdict.VIOLATED, 1), verdict.unknown_reasons
    (witness,) = cell.anomalies["lost"].witnesses
    assert (witness.client, witness.sequence) == (1, 1)


def test_a_send_that_was_announced_began_then_and_any_other_may_have_begun_with_the_program(
    kafka, recording, recorded_command, tmp_path
):
    (tmp_path / "saying.py").write_text(SAYING)
    printed = '{"name": "producer_send", "value": "@.1", "timestamp": NOW}'
    printed += '\n{"name": "producer_send_error", "value": "@.1", "topic": "t"}'
    words = [sys.executable, str(tmp_path / "saying.py"), kafka.bootstrap_servers, printed]
    assert recorded_command(words, configuration=DURABLE).wait(timeout_s=60) == 0
    assert recording.conclude().verdict.verdict is Verdict.HELD
    sends = sends_of(recording)
    assert sends["sequence"].tolist() == [0, 1]
    assert sends["outcome"].tolist() == [Outcome.OK, Outcome.INFO]
    begun, ended = sends["invoked_ns"], sends["completed_ns"]
    assert begun[0] < begun[1] <= ended[1]


def test_a_program_that_is_ended_before_it_was_started_makes_the_test_unknown(kafka, recording, recorded_command):
    recorded_command(of(kafka, PRODUCER), configuration=DURABLE, name="shop").stop()
    verdict = recording.conclude().verdict
    assert verdict.verdict is Verdict.UNKNOWN
    assert any("shop printed nothing about any record" in reason for reason in verdict.unknown_reasons)


NOT_UNDERSTOOD = (
    ("good morning", "a line is no event: 'good morning'"),
    ('{"name": "producer_send_succ', "a line is no event"),
    ('{"value": 1}', "a line is no event"),
    ('{"name": "producer_sent", "value": "@.1"}', "an event with the unknown name 'producer_sent'"),
    ('{"name": "record_data", "topic": "t", "partition": 0, "offset": 0}', "unknown name 'record_data'"),
    ('{"name": "producer_send_success", "value": "77.1", "topic": "t", "partition": 0, "offset": 1}', "not understood"),
    ('{"name": "producer_send_success", "value": "@.0", "topic": "t", "partition": 0, "offset": 1}', "not understood"),
    ('{"name": "producer_send_success", "value": "@.1", "topic": "t", "partition": 7, "offset": 1}', "not understood"),
    ('{"name": "producer_send_success", "value": "@.1", "topic": "t"}', "not understood"),
    ('{"name": "producer_send", "value": "@.1"}', "it announced 1 sends and did not say how they ended"),
    ('{"name": "tool_data", "sent": 3, "acked": 1}', "it sent 3 records, and reported 1 how their sends ended"),
)
"""What a program prints → why its history is unknown."""
ENDED_OTHERWISE = (
    ("pass", "it ended (exit code 0) without the line shutdown_complete"),
    ("raise SystemExit(3)", "ended with status 3, although the test did not ask for it"),
    ("import os; os.abort()", "ended with status 134, although the test did not ask for it"),
    ("""print('{"name": "shutdown_complete"}')""", "printed nothing about any record"),
)
"""What a program does → why its history is unknown."""


def test_each_of_many_programs_that_print_or_end_otherwise_than_they_should_makes_the_test_unknown_by_its_name(
    kafka, recording, recorded_command, tmp_path
):
    (tmp_path / "saying.py").write_text(SAYING)
    shown = {
        f"shop-{number}": ([sys.executable, str(tmp_path / "saying.py"), kafka.bootstrap_servers, printed], why)
        for number, (printed, why) in enumerate(NOT_UNDERSTOOD)
    }
    for number, (code, why) in enumerate(ENDED_OTHERWISE):
        shown[f"desk-{number}"] = ([sys.executable, "-c", code], why)
    shown["fine"] = ([*shown["shop-0"][0][:-1], '{"name": "tool_data", "sent": 1}'], None)
    programs = {name: recorded_command(words, configuration=DURABLE, name=name) for name, (words, _) in shown.items()}
    for name, program in programs.items():
        if name.startswith("desk"):  # their statuses are the history's to say
            wait_until(lambda: not program.running, awaited="its end", timeout_s=60, clock=SystemClock())  # noqa: B023
        else:
            assert program.wait(timeout_s=60) == 0, name
    verdict = recording.conclude().verdict
    assert verdict.verdict is Verdict.UNKNOWN
    for name, (_, why) in shown.items():
        reasons = [reason for reason in verdict.unknown_reasons if re.search(rf"\b{name}\b", reason)]
        assert any(why in reason for reason in reasons) if why else not reasons, (name, verdict.unknown_reasons)


def test_what_is_not_told_of_the_configuration_makes_the_test_unknown(kafka, recording, recorded_command):
    words = of(kafka, PRODUCER, "--max-messages", "3")
    assert recorded_command(words, configuration={"acks": "all"}, name="shop").wait(timeout_s=60) == 0
    verdict = recording.conclude().verdict
    assert verdict.verdict is Verdict.UNKNOWN
    assert any(
        "shop: prozess does not know its client's enable.idempotence, delivery.timeout.ms, retries, max.in.flight"
        in reason
        for reason in verdict.unknown_reasons
    )


def test_a_program_that_is_killed_has_all_it_said_in_the_history_and_begins_anew(kafka, recording, recorded_command):
    words = of(kafka, PRODUCER, "--throughput", "200")
    program = recorded_command(words, configuration=DURABLE, name="shop")
    program.wait_printed(SENT, count=20, timeout_s=30)
    program.kill()
    before = program.printed(SENT)
    program.restart()
    program.wait_printed(SENT, count=before + 20, timeout_s=30)
    assert program.stop() == 128 + signal.SIGTERM
    verdict = recording.conclude().verdict
    assert verdict.verdict is Verdict.HELD, verdict.unknown_reasons
    sends = sends_of(recording)
    assert (sends["client"] == 1).sum() == before, "whatever it had stated before it was killed"
    assert (sends["client"] == 2).sum() == program.printed(SENT) - before
    (fault,) = verdict.faults
    assert (fault.fault, fault.effective, fault.nodes) == ("kill", True, ("client-1",))


def test_values_of_others_are_not_taken_for_a_programs(kafka, recording, recorded_command):
    from confluent_kafka import Producer

    other = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in ("3.14", "77.2", "none"):
        other.produce("t", value, partition=0)
    assert other.flush(20) == 0
    program = recorded_command(of(kafka, PRODUCER, "--max-messages", "10"), configuration=DURABLE)
    assert program.wait(timeout_s=60) == 0
    verdict = recording.conclude().verdict
    assert verdict.verdict is Verdict.HELD, verdict.unknown_reasons
    reads = History.open(recording.run).table("reads")
    assert set(reads["sender"].tolist()) == {0, 1, NONE}


@pytest.mark.parametrize(
    ("words", "more", "why"),
    [
        ("node shop.js", {}, "as a list"),
        ([], {}, "as a list"),
        (["x"], {"role": "judge"}, "'producer' or 'consumer'"),
        (["x"], {"configuration": {"acks": "2"}}, "must be 0, 1 or all"),
        (["x"], {"configuration": {**DURABLE, "acks": 1}}, "needs acks=all"),
        (["x"], {"configuration": {"transactional.id": "x"}}, "does not judge 'transactional.id' of a program"),
        (["x"], {"role": "consumer", "configuration": {**MEMBER, "enable.auto.commit": True}}, "commits automatically"),
        (["no-such-program"], {}, "cannot be started"),
    ],
)
def test_what_cannot_be_run_or_judged_is_refused(recorded_command, words, more, why):
    with pytest.raises(BadInput, match=why):
        recorded_command(words, **{"configuration": DURABLE, **more})


def test_a_program_and_a_recorded_client_of_the_test_read_what_the_other_wrote(
    kafka, recording, recorded_command, tmp_path
):
    ours = {"bootstrap.servers": kafka.bootstrap_servers}
    producer = recording.client_class(RecordedProducer)(ours)
    for number in range(20):
        producer.produce("t", f"order {number}")
    assert producer.flush(20) == 0
    recording.registry.add_topic("u", [[1]], {})
    kafka.create("u", partitions=1)
    (tmp_path / "committing.py").write_text(COMMITTING)
    words = [sys.executable, str(tmp_path / "committing.py"), kafka.bootstrap_servers, "last"]
    desk = recorded_command(words, role="consumer", configuration=MEMBER, name="desk")
    assert desk.wait(timeout_s=60) == 0
    words = [word if word != "t" else "u" for word in of(kafka, PRODUCER, "--max-messages", "20")]
    assert recorded_command(words, configuration=DURABLE).wait(timeout_s=60) == 0
    reader = recording.client_class(RecordedConsumer)({**ours, "group.id": "h", "auto.offset.reset": "earliest"})
    reader.subscribe(["u"])
    given = 0
    while given < 20:
        message = reader.poll(20)
        assert message is not None
        given += 1
    reader.close()
    verdict = recording.conclude().verdict
    assert verdict.verdict is Verdict.HELD, verdict.unknown_reasons
    assert not {a for cell in verdict.cells for a, told in cell.anomalies.items() if told.count}
    reads = History.open(recording.run).table("reads")
    assert (reads["sender"][reads["client"] == 4] == 3).all(), "by the value, as nobody wrote our header"


def test_a_program_that_does_not_tell_whose_records_it_was_given_makes_the_test_unknown(
    kafka, recording, recorded_command
):
    producer = recording.client_class(RecordedProducer)({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce("t", "order 1")
    assert producer.flush(20) == 0
    words = of(kafka, CONSUMER, "--max-messages", "1")
    assert recorded_command(words, role="consumer", configuration=MEMBER).wait(timeout_s=60) == 0
    verdict = recording.conclude().verdict
    assert verdict.verdict is Verdict.UNKNOWN
    assert any("nobody knows whose records it was given" in reason for reason in verdict.unknown_reasons)


COMMITTING = """
import json, os, sys
from confluent_kafka import Consumer, TopicPartition

def say(name, **more):
    print(json.dumps({"name": name, **more}), flush=True)

consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "auto.offset.reset": "earliest",
                     "enable.auto.commit": False})
there = lambda partitions: [{"topic": p.topic, "partition": p.partition} for p in partitions]
consumer.subscribe(["t"], on_assign=lambda c, p: say("partitions_assigned", partitions=there(p)),
                   on_revoke=lambda c, p: say("partitions_revoked", partitions=there(p)))
for number in range(20):
    message = consumer.poll(20)
    where = {"topic": "t", "partition": message.partition()}
    def commit():
        consumer.commit(message, asynchronous=False)
        say("offsets_committed", offsets=[{**where, "offset": message.offset() + 1}], success=True)
    def done():
        header = {name: value.hex() for name, value in message.headers() or [] if name == "prozess"}
        say("record_data", value=message.value().decode(), offset=message.offset(), **where, **header)
    if sys.argv[2] == "first":
        commit()
        done()
    elif sys.argv[2] == "never":
        commit()
        number == 19 or done()
    else:
        done()
        commit()
consumer.close()
say("shutdown_complete")
"""


@pytest.mark.parametrize(
    ("how", "verdict", "hazards", "unprocessed"),
    [
        ("last", Verdict.HELD, 0, 0),
        ("first", Verdict.HELD, 20, 0),
        ("never", Verdict.VIOLATED, 19, 1),
    ],
)
def test_what_a_program_committed_and_never_said_to_have_processed_is_caught(
    kafka, recording, recorded_command, tmp_path, how, verdict, hazards, unprocessed
):
    words = of(kafka, PRODUCER, "--max-messages", "20")
    assert recorded_command(words, configuration=DURABLE).wait(timeout_s=60) == 0
    (tmp_path / "committing.py").write_text(COMMITTING)
    words = [sys.executable, str(tmp_path / "committing.py"), kafka.bootstrap_servers, how]
    desk = recorded_command(words, role="consumer", configuration=MEMBER, name="desk")
    assert desk.wait(timeout_s=60) == 0
    judged = recording.conclude()
    (cell,) = judged.verdict.cells
    assert cell.anomalies["unprocessed"].count == unprocessed
    assert judged.verdict.verdict is verdict, judged.verdict.unknown_reasons
    assert sum(len(client.hazards) for client in recording.registry.clients) == hazards


def test_a_count_that_agrees_with_what_a_program_told_says_nothing_more(kafka, recording, recorded_command, tmp_path):
    (tmp_path / "saying.py").write_text(SAYING)
    words = [sys.executable, str(tmp_path / "saying.py"), kafka.bootstrap_servers, '{"name": "tool_data", "sent": 1}']
    assert recorded_command(words, configuration=DURABLE, name="shop").wait(timeout_s=60) == 0
    judged = recording.conclude()
    assert judged.verdict.verdict is Verdict.HELD, judged.verdict.unknown_reasons
    assert [one for one in judged.unjudged if "stuck" in one.anomalies] == []
