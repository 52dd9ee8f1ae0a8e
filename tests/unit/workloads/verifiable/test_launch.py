"""How verifiable clients are started, and that a history has their sends in the order of sequence."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from prozess.harness.errors import BadInput
from prozess.harness.history.convert import History, write_history
from prozess.harness.plan.plan import PlannedClient
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.rows import RowWriter
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import MISSING, NONE, SENDS
from prozess.workloads.settings import LaunchContext
from prozess.workloads.verifiable.settings import launch_verifiable_consumer, launch_verifiable_producer, written
from tests.support.tools import PRETENDED


def context_of(role: str, client: str, version: str = "4.3.1", **base: object) -> LaunchContext:
    document = {
        "name": "test",
        "title": "test",
        "workload": "verifiable",
        "variant": {"kafka_version": version},
        "base": {"producer.client": client, **base},
    }
    plan = make_plan(parse_trial(document, source="test"), seed=1)
    (planned,) = (c for c in plan.clients if c.role == role)
    return LaunchContext(plan=plan, planned=planned, servers="h:1", limit_s=0, toolbox=PRETENDED)


def test_the_java_tools_get_their_class_their_options_and_a_file(tmp_path):
    tool = launch_verifiable_producer(context_of("verifiable-producer", "java")).options.tool
    command = written(tool.command, tool.files, tmp_path / "tools")
    assert command[0] == "/jvm/bin/java"
    at = command.index("org.apache.kafka.tools.VerifiableProducer")
    assert command[at - 1] == "/jars/4.3.1/a.jar:/jars/4.3.1/b.jar"
    assert command[command.index("--acks") + 1] == "-1"
    file = Path(command[command.index("--command-config") + 1])
    assert "acks=all\n" in file.read_text(encoding="utf-8")
    (logging,) = (part for part in command if part.startswith("-Dlog4j2.configurationFile="))
    assert "SYSTEM_ERR" in Path(logging.partition("=")[2]).read_text(encoding="utf-8")


def test_java_tools_carry_the_metrics_agent_if_metrics_are_wanted_and_others_never():
    for role, launch, kind in (
        ("verifiable-producer", launch_verifiable_producer, "producer"),
        ("verifiable-consumer", launch_verifiable_consumer, "consumer"),
    ):
        context = context_of(role, "java")
        tool = launch(context).options.tool
        (flag,) = (word for word in tool.command if word.startswith("-javaagent:"))
        assert flag.startswith("-javaagent:/jars/agent.jar=host=127.0.0.1,port=0,")
        assert tool.metrics == kind
        silent = launch(replace(context, plan=context.plan.model_copy(update={"metrics": False}))).options.tool
        ours = launch(context_of(role, "librdkafka")).options.tool
        for other in (silent, ours):
            assert other.metrics is None
            assert not any("-javaagent" in word for word in other.command)


def test_an_older_java_tool_has_another_option_and_another_logging():
    tool = launch_verifiable_consumer(context_of("verifiable-consumer", "java", "3.9.2")).options.tool
    assert "--consumer.config" in tool.command
    assert any(part.startswith("-Dlog4j.configuration=file:") for part in tool.command)


def test_java_tools_of_another_version_get_its_jars_and_its_options():
    context = context_of("verifiable-producer", "java", **{"producer.client_version": "2.8.2"})
    tool = launch_verifiable_producer(context).options.tool
    assert "/jars/2.8.2/a.jar:/jars/2.8.2/b.jar" in tool.command
    assert "--producer.config" in tool.command
    assert any(part.startswith("-Dlog4j.configuration=file:") for part in tool.command)


def test_tools_of_two_generations_never_read_the_same_file_of_logging():
    files = [
        launch_verifiable_producer(context_of("verifiable-producer", "java", version)).options.tool.files
        for version in ("3.9.2", "4.3.1")
    ]
    assert {name for name in files[0] if name in files[1]} == {"producer-1.properties"}


def test_nothing_set_on_a_java_producer_writes_only_what_the_tool_would_set_otherwise():
    base = {"producer.defaults": "library", "producer.client_version": "2.8.2"}
    (file,) = launched_files(context_of("verifiable-producer", "java", **base))
    # Kafka's own tool sets acks, and retries=0: it gets the library's own values.
    assert file == "client.id=producer-test\nacks=1\nretries=2147483647\n"
    (file,) = launched_files(context_of("verifiable-producer", "java", **base, **{"producer.linger_ms": 9}))
    assert file == "client.id=producer-test\nacks=1\nretries=2147483647\nlinger.ms=9\n"


def launched_files(context: LaunchContext) -> list[str]:
    files = launch_verifiable_producer(context).options.tool.files
    return [text for name, text in files.items() if name.startswith("producer-")]


def test_a_command_is_started_with_the_options_of_the_tool_and_nobody_knows_how_long_it_sends():
    base = {"producer.command": ["{python}", "{{mine}}.py", "--fast"]}
    context = context_of("verifiable-producer", "command", **base)
    options = launch_verifiable_producer(context).options
    assert options.tool.command[:3] == (sys.executable, "{mine}.py", "--fast")
    java = launch_verifiable_producer(context_of("verifiable-producer", "java")).options.tool.command
    at = java.index("--bootstrap-server")
    assert options.tool.command[3:] == java[at:]
    assert options.report_limit_ms is None
    assert launch_verifiable_consumer(replace(context, planned=consumer_of(context))).options.tool.command[0] == (
        sys.executable
    )


@pytest.mark.parametrize("client", ["java", "librdkafka"])
def test_the_consumer_may_be_a_program_whoever_produces(client):
    base = {"consumer.command": ["{python}", "mine.py"]}
    options = launch_verifiable_consumer(context_of("verifiable-consumer", client, **base)).options
    assert options.tool.command[:2] == (sys.executable, "mine.py")
    kafkas = launch_verifiable_consumer(context_of("verifiable-consumer", "java")).options
    at = kafkas.tool.command.index("--bootstrap-server")
    assert options.tool.command[2:] == kafkas.tool.command[at:]
    assert options.tool.files == {
        name: text for name, text in kafkas.tool.files.items() if name.startswith("consumer-")
    }, "it is reported at which level to read"
    assert (options.yours, kafkas.yours) == (True, False)
    producer = launch_verifiable_producer(context_of("verifiable-producer", client, **base)).options
    assert "mine.py" not in producer.tool.command


def consumer_of(context: LaunchContext) -> PlannedClient:
    (planned,) = (c for c in context.plan.clients if c.role == "verifiable-consumer")
    return planned


@pytest.mark.parametrize(
    ("kind", "base", "why"),
    [
        ("log", {"producer.command": ["x"]}, "producer.command is for verifiable and verifiable-share workloads"),
        ("verifiable", {"producer.command": ["x"], "producer.client": "java"}, "belong together"),
        ("verifiable", {"producer.client": "command"}, "belong together"),
        ("verifiable", {"producer.command": ["{x}"]}, "is no placeholder"),
        ("verifiable", {"consumer.command": ["{x}"]}, "consumer.command: 'x' is no placeholder"),
        ("log", {"consumer.command": ["x"]}, "'consumer.command' is not a setting of a log cell"),
        ("verifiable-share", {"consumer.command": ["x"]}, "is not a setting of a verifiable-share cell"),
        ("verifiable", {"producer.command": ["x"], "producer.defaults": "library"}, "nobody knows what its library"),
        ("verifiable", {"producer.command": ["x"], "producer.client_version": "1.2.3"}, "nobody knows what its lib"),
        ("verifiable", {"producer.client": "java", "producer.client_version": "2.7.2"}, "from 2.8 on"),
        ("group", {"group.client_version": "2.3.0", "group.protocol": "consumer"}, "no group.protocol=consumer"),
        ("log", {"producer.left_to_client": ["acks"]}, "is not a setting of a log cell"),
        ("log", {"producer.client_version": "newest"}, "producer.client_version = 'newest'"),
    ],
)
def test_a_client_that_cannot_be_what_is_asked_is_left_out_with_the_reason(kind, base, why):
    document = {"name": "t", "title": "t", "workload": kind, "base": base}
    with pytest.raises(BadInput, match=why):
        make_plan(parse_trial(document, source="test"), seed=1)


def test_both_kinds_get_the_same_options():
    java, ours = (
        launch_verifiable_consumer(context_of("verifiable-consumer", client)).options.tool.command
        for client in ("java", "librdkafka")
    )
    assert java[java.index("--bootstrap-server") :] == ours[ours.index("--bootstrap-server") :]


def test_a_cell_of_this_workload_has_no_group_settings():
    document = {"name": "t", "title": "t", "workload": "verifiable", "base": {"group.members": 2}}
    with pytest.raises(BadInput, match="is not a setting of a verifiable cell"):
        make_plan(parse_trial(document, source="test"), seed=1)


def test_sends_that_ended_in_another_order_are_put_in_the_order_of_sequence(tmp_path):
    context = context_of("verifiable-producer", "librdkafka")
    run = RunDirectory(tmp_path)
    run.create()
    run.plan.write_text(context.plan.model_dump_json(), encoding="utf-8")
    writer = RowWriter(run.rows, SENDS, context.planned.client)
    for sequence in (2, 0, 3, 1):
        writer.append(sequence, MISSING, NONE, sequence, NONE, NONE, sequence % 2, 0, 0, 5)
    writer.close()
    write_history(run)
    history = History.open(run)
    found = [history.partition_history(p).sends["sequence"].tolist() for p in (0, 1)]
    assert found == [[0, 2], [1, 3]]
    assert np.all(history.partition_history(0).sends["client"] == context.planned.client)
