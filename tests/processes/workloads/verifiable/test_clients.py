"""Our verifiable clients as real processes on librdkafka's mock cluster: what they print, how they end, what is recorded."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.config.configuration import ProducerConfiguration
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import NONE, Isolation, Outcome, Role
from prozess.workloads.verifiable.clients import ConfirmedNumbers
from prozess.workloads.verifiable.settings import file_option, producer_file
from prozess.workloads.verifiable.tools import for_librdkafka, read_properties
from tests.support.log_workload import RESUME, alive, bench
from tests.support.mock_kafka import PRODUCE_API, MockKafka, mock_kafka

LIMIT_S = 20


def run_tool(kafka: MockKafka, kind: str, *arguments: str) -> tuple[int, list[dict[str, object]]]:
    """Exit code and events."""
    command = [
        sys.executable,
        "-m",
        "prozess.workloads.verifiable.tools",
        kind,
        "--bootstrap-server",
        kafka.bootstrap_servers,
    ]
    done = subprocess.run([*command, *arguments], capture_output=True, timeout=LIMIT_S, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@given(order=st.permutations(range(60)), swaps=st.integers(0, 60), again=st.lists(st.integers(0, 70), max_size=10))
def test_what_was_seen_is_known_exactly_and_takes_no_room_once_it_is_complete(order, swaps, again):
    numbers = [*order[:swaps], *sorted(order[swaps:]), *again]
    seen, known = ConfirmedNumbers(), set()
    for number in numbers:
        assert seen.add(number) == (number not in known)
        known.add(number)
        missing = next(n for n in range(100) if n not in known)
        assert len(seen) == sum(n > missing for n in known)


def test_a_producer_that_ends_by_a_fatal_error_reports_every_record(tmp_path):
    out_of_order_sequence_number = 45
    settings = tmp_path / "producer.properties"
    settings.write_text("enable.idempotence=true\nretries=5\n")
    with mock_kafka() as kafka:
        kafka.create("t", partitions=1)
        kafka.refuse(PRODUCE_API, [out_of_order_sequence_number])
        arguments = ("--max-messages", "5", "--throughput", "20", "--producer.config", str(settings))
        code, events = run_tool(kafka, "producer", "--topic", "t", *arguments)
    names = [event["name"] for event in events]
    assert (code, names[-1]) == (0, "tool_data")
    assert names.count("producer_send_error") == 5


def test_a_producer_prints_one_line_per_send_and_tool_data_after_the_end():
    with mock_kafka() as kafka:
        kafka.create("t", partitions=2)
        code, events = run_tool(
            kafka, "producer", "--topic", "t", "--max-messages", "20", "--value-prefix", "7", "--repeating-keys", "4"
        )
    assert code == 0
    names = [event["name"] for event in events]
    assert names == ["startup_complete", *["producer_send_success"] * 20, "shutdown_complete", "tool_data"]
    assert all(list(event)[:2] == ["timestamp", "name"] for event in events)
    sent = events[1:21]
    assert {event["value"] for event in sent} == {f"7.{n}" for n in range(20)}
    assert {event["key"] for event in sent} == {"0", "1", "2", "3"}
    assert set(sent[0]) == {"timestamp", "name", "key", "value", "topic", "partition", "offset"}
    assert (events[-1]["sent"], events[-1]["acked"], events[-1]["target_throughput"]) == (20, 20, -1)


def test_a_refused_send_is_an_error_line_with_its_value():
    with mock_kafka() as kafka:
        kafka.create("t", partitions=1)
        kafka.refuse(PRODUCE_API, [10])  # MESSAGE_TOO_LARGE
        code, events = run_tool(kafka, "producer", "--topic", "t", "--max-messages", "1")
    assert code == 0
    assert events[1]["name"] == "producer_send_error"
    assert (events[1]["value"], events[1]["topic"]) == ("0", "t")
    assert set(events[1]) == {"timestamp", "name", "key", "value", "topic", "exception", "message"}


def test_a_consumer_prints_records_before_their_summary_and_the_commit_after_it():
    with mock_kafka() as kafka:
        kafka.create("t", partitions=1)
        run_tool(kafka, "producer", "--topic", "t", "--max-messages", "10")
        code, events = run_tool(
            kafka, "consumer", "--topic", "t", "--group-id", "g", "--verbose", "--max-messages", "10"
        )
    assert code == 0
    told = [event for event in events if event["name"] not in ("startup_complete", "partitions_revoked")]
    assert told[0] | {"timestamp": 0} == {
        "timestamp": 0, "name": "partitions_assigned", "partitions": [{"topic": "t", "partition": 0}]
    }  # fmt: skip
    assert [event["value"] for event in told if event["name"] == "record_data"] == [str(n) for n in range(10)]
    summaries = [event for event in told if event["name"] == "records_consumed"]
    assert sum(event["count"] for event in summaries) == 10  # type: ignore[misc]
    last = told.index(summaries[-1])
    assert told[last + 1]["name"] == "offsets_committed"
    assert (told[last + 1]["success"], told[last + 1]["offsets"]) == (
        True,
        [{"topic": "t", "partition": 0, "offset": 10}],
    )
    assert [event["name"] for event in told[-2:]] == ["shutdown_requested", "shutdown_complete"]


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_no_arguments_are_help_and_wrong_ones_exit_code_1(kind):
    command = [sys.executable, "-m", "prozess.workloads.verifiable.tools", kind]
    assert subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False).returncode == 0
    assert subprocess.run([*command, "--topic"], capture_output=True, timeout=LIMIT_S, check=False).returncode == 1


def plan_of(**base: object) -> Plan:
    document = {
        "name": "test",
        "title": "test",
        "workload": "verifiable",
        "topics": {"partitions": 2},
        "traffic": {"rate_hz": 100},
        "base": {"producer.delivery_timeout_ms": 5000, **base},
    }
    return make_plan(parse_trial(document, source="test"), seed=1)


def tools_of(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def test_what_the_tools_say_becomes_sends_reads_commits_and_assignments(tmp_path):
    with bench(plan_of(), tmp_path) as made:
        producer, consumer = (made.clients[f"{kind}-test"] for kind in ("producer", "consumer"))
        made.workload.command(RESUME)
        made.until(lambda: made.total("ok") >= 20, "20 acknowledgements")
        made.workload.finish_sends(timeout_s=60)
        sends = made.rows("sends", producer)
        tailing = made.clients["reader-read_uncommitted"]
        for reader in (consumer, tailing):
            made.until(lambda reader=reader: len(made.rows("reads", reader)) >= len(sends), "every record to be read")
            reads = made.rows("reads", reader)
            assert (reads["sender"] == producer).all()
            assert (reads["flags"] == 0).all()
            assert sorted(reads["sequence"].tolist()) == sorted(sends["sequence"].tolist())
        assert (sends["outcome"] == Outcome.OK).all()
        assert (sends["invoked_ns"] < sends["completed_ns"]).all()
        assert sorted(sends["sequence"].tolist()) == list(range(len(sends)))
        made.until(lambda: made.rows("commits", consumer)["log_offset"].sum() >= len(sends), "the last commits")
        assert (made.rows("commits", consumer)["log_offset"] <= made.rows("commits", consumer)["position"]).all()
        assert set(made.rows("assignments", consumer)["partition"].tolist()) >= {0, 1}
        assert made.rows("clients", producer)["role"][0] == Role.PRODUCER
        assert made.workload.dead_clients() == {}


LANGUAGES = Path(__file__).parents[4] / "docs" / "examples" / "languages"


def test_a_program_of_another_client_library_is_recorded_by_what_it_prints(tmp_path):
    plan = plan_of(
        **{"producer.command": ["{python}", str(LANGUAGES / "aiokafka_producer.py")], "producer.client": "command"}
    )
    with bench(plan, tmp_path) as made:
        producer = made.clients["producer-test"]
        made.workload.command(RESUME)
        made.until(lambda: made.total("ok") >= 20, "20 acknowledgements")
        made.workload.finish_sends(timeout_s=60)
        sends = made.rows("sends", producer)
        tailing = made.clients["reader-read_uncommitted"]
        made.until(lambda: len(made.rows("reads", tailing)) >= len(sends), "every record to be read")
        assert (made.rows("reads", tailing)["sender"] == producer).all()
        assert (sends["outcome"] == Outcome.OK).all()
        assert sorted(sends["sequence"].tolist()) == list(range(len(sends)))
        # It says before it sends: so no send begins before the one whose answer was there by then.
        began = sends["invoked_ns"][sends["sequence"].argsort()]
        assert (sends["invoked_ns"] < sends["completed_ns"]).all()
        assert (began[1:] >= began[:-1]).all()
        assert began[-1] > began[0]
        assert made.workload.dead_clients() == {}


PROGRAM = """
import json, signal, sys, time

topic = sys.argv[sys.argv.index("--topic") + 1]
print(json.dumps({"name": "startup_complete"}))
print(json.dumps({"name": "partitions_assigned", "partitions": [{"topic": topic, "partition": 0}]}))
for offset in (0, 1, 7, 3):
    print(json.dumps({"name": "record_data", "value": "0.5", "topic": topic, "partition": 0, "offset": offset}))
reported = [{"topic": topic, "partition": 0, "offset": 8}]
print(json.dumps({"name": "offsets_committed", "success": True, "offsets": reported}), flush=True)
signal.sigwait({signal.SIGTERM})
"""
"""A consumer that no client library has."""


def test_of_a_program_that_consumes_nothing_is_taken_for_granted_that_it_does_not_print(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    program = str(tmp_path / "program.py").replace("{", "{{").replace("}", "}}")
    run = tmp_path / "run"
    run.mkdir()
    with bench(plan_of(**{"consumer.command": ["{python}", program]}), run) as made:
        consumer = made.clients["consumer-test"]
        made.until(lambda: len(made.rows("commits", consumer)) == 1, "the commit")
        assert made.rows("clients", consumer)["isolation"].tolist() == [Isolation.UNREPORTED]
        assert made.rows("reads", consumer)["log_offset"].tolist() == [0, 1, 7, 3]
        (commit,) = made.rows("commits", consumer)
        assert (commit["log_offset"], commit["position"], commit["mode"]) == (8, NONE, NONE)
        assert commit["invoked_ns"] < made.rows("reads", consumer)["read_ns"][0], (
            "it may have begun before anything was reported"
        )
        assert made.rows("positions", consumer)["log_offset"].tolist() == [NONE]


def test_a_tool_that_ends_by_itself_is_a_dead_client_whatever_its_exit_code(tmp_path):
    with bench(plan_of(), tmp_path) as made:
        (tool,) = tools_of(made.pid(made.clients["consumer-test"]))
        made.until(lambda: b"consumer" in Path(f"/proc/{tool}/cmdline").read_bytes(), "the tool to run")
        os.kill(tool, signal.SIGTERM)
        assert "the tool ended by itself" in made.until_dead("consumer-test")


def test_a_tool_dies_with_its_client(tmp_path):
    with bench(plan_of(), tmp_path) as made:
        pid = made.pid(made.clients["consumer-test"])
        (tool,) = tools_of(pid)
        os.kill(pid, signal.SIGKILL)
        made.until(lambda: not alive(tool), "the tool to be gone")


def test_the_file_names_everything_that_the_tools_own_defaults_would_change():
    configuration = ProducerConfiguration(acks="all", enable_idempotence=True, properties={"batch.size": "1"})
    file = producer_file(configuration, "p")
    assert (file["acks"], file["retries"], file["enable.idempotence"]) == ("all", "2147483647", "true")
    assert file["batch.size"] == "1"
    assert producer_file(ProducerConfiguration(retries=3), "p")["retries"] == "3"
    assert int(file["delivery.timeout.ms"]) >= int(file["linger.ms"]) + int(file["request.timeout.ms"])


def test_the_option_for_the_file_changed_with_4_2():
    assert [file_option("producer", v) for v in ("3.9.2", "4.1.0", "4.2.0", "4.10.1")] == [
        "--producer.config",
        "--producer.config",
        "--command-config",
        "--command-config",
    ]


def test_a_java_file_of_properties_is_read_and_what_librdkafka_lacks_is_passed_over(tmp_path, capsys):
    path = tmp_path / "p.properties"
    path.write_text("# comment\nacks = all\nretries:5\n\nbuffer.memory=1\nsasl.jaas.config=a=b\n", encoding="utf-8")
    properties = read_properties(str(path))
    assert properties == {"acks": "all", "retries": "5", "buffer.memory": "1", "sasl.jaas.config": "a=b"}
    assert "buffer.memory" not in for_librdkafka(properties)
    assert "buffer.memory" in capsys.readouterr().err
