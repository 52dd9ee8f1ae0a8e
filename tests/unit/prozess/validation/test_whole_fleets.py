"""Fleets that are validated as they are: with ZooKeeper, without any client's file, with names that brokers and clients
share, and with values that Kafka's own parser refuses."""

import pytest

from prozess.harness.config.configuration import LAST_WITH_ZOOKEEPER
from prozess.harness.errors import BadInput
from prozess.harness.plan.schedule import FaultAction
from prozess.validation.command import ValidationInput, translate, validate
from prozess.validation.comparison import Budget
from prozess.validation.prediction import Prediction
from prozess.validation.sources import read_file
from tests.support.predictions import SAFE_BROKER, predicted, weak

ZOOKEEPER = SAFE_BROKER | {"zookeeper.connect": "zk:2181", "broker.id": "1"}
CONSUMER = {"group.id": "g", "auto.offset.reset": "earliest"}


def cuts(parts):
    return {
        step.do.parameters["others"]
        for step in parts.every_step
        if isinstance(step.do, FaultAction) and "others" in step.do.parameters
    }


def test_a_fleet_with_zookeeper_is_predicted_and_put_on_trial_with_zookeeper():
    found = predicted({"acks": "all"}, consumer=CONSUMER, broker=ZOOKEEPER, version="3.9.2")
    plan = found.parts.plan()
    assert plan.variant.metadata_mode == "zookeeper"
    assert cuts(found.parts) == {"followers", "zookeepers"}
    assert "a leader is cut off from ZooKeeper alone" in {step.name for step in plan.steps}
    assert "lost" in {guarantee.anomaly for guarantee in found.promised}
    assert cuts(predicted({"acks": "all"}).parts) == {"followers", "controllers"}


def test_brokers_with_zookeeper_are_of_the_last_release_that_has_it_where_no_file_says_another(tmp_path):
    (tmp_path / "server.properties").write_text("zookeeper.connect=zk:2181\nbroker.id=1\n")
    assert translate(ValidationInput(broker=tmp_path / "server.properties")).version == LAST_WITH_ZOOKEEPER


def test_topic_and_brokers_alone_are_judged_by_what_depends_on_no_client():
    found = predicted(broker=SAFE_BROKER | {"unclean.leader.election.enable": "true"})
    assert {"dirty-read", "unclean"} <= weak(found)
    assert "lost" in found.not_judged["producer"]
    assert "unprocessed" in found.not_judged["consumer"]
    assert {concern.rule for concern in found.concerns} >= {"internal-offsets/unclean"}
    assert {concern.rule for concern in predicted(topic={"replication.factor": "3"}, broker={}).concerns} >= {
        "availability/min-insync-1", "internal-offsets/min-insync-1"
    }  # fmt: skip
    assert len(found.plan.cells) == 1


@pytest.mark.parametrize("commits", ["sync-after", "sync-before", "async-after", "none"])
def test_what_kafkas_own_program_cannot_be_librdkafkas_members_are_in_the_trial(commits):
    consumer = {"group.id": "g", "auto.offset.reset": "none", "enable.auto.commit": "false", "max.poll.records": "7"}
    found = predicted({"acks": "all"}, consumer=consumer, commits=commits)
    (group,) = [cell.group.configuration for cell in found.plan.cells if cell.group is not None]
    assert (group.client, group.auto_offset_reset, group.properties) == ("librdkafka", "error", {})
    assert any("NoOffsetForPartitionException" in note for note in found.parts.notes)
    earliest = predicted(consumer=consumer | {"auto.offset.reset": "earliest"}, commits=commits)
    assert any("does not commit as you say" in note for note in earliest.parts.notes) is (commits != "sync-after")


@pytest.mark.parametrize("name", ["socket.send.buffer.bytes", "socket.receive.buffer.bytes", "message.max.bytes"])
@pytest.mark.parametrize("more", ["", "num.partitions=3\n"])
def test_a_name_that_brokers_and_librdkafka_share_is_of_whom_the_file_was_given_for(tmp_path, name, more):
    path = tmp_path / "server.properties"
    path.write_text(f"{name}=1000000\n{more}")
    assert set(read_file(path, ("broker",)).scopes) == {"broker"}
    assert read_file(path, ("producer",)).library == ("" if more else "librdkafka")


@pytest.mark.parametrize("space", ["\u00a0", "\u2003", "\u0085", "\u2028"])
@pytest.mark.parametrize("name", ["linger.ms", "acks", "enable.idempotence"])
def test_a_space_that_java_does_not_trim_is_a_part_of_the_value_and_refused(tmp_path, name, space):
    """[ConfigDef.parseType trims with String.trim; seen: Kafka 4.4.0 refuses each of these]"""
    value = {"linger.ms": "5", "acks": "all", "enable.idempotence": "true"}[name]
    path = tmp_path / "producer.properties"
    path.write_text(f"{name}={value}{space}\n", encoding="utf-8")
    with pytest.raises(BadInput, match="Kafka refuses it"):
        validate(ValidationInput(producer=path, client="java"), Budget(0), None)
    path.write_text(f"{name}={value} \t\n", encoding="utf-8")
    assert translate(ValidationInput(producer=path, client="java")).producer is not None


def test_digits_of_any_script_are_a_whole_number_to_java_and_none_to_c(tmp_path):
    """[Integer.parseInt; seen: Kafka 4.4.0 takes them for ints and longs, and refuses them for doubles]"""
    path = tmp_path / "producer.properties"
    path.write_text("batch.size=\u0661\u0666\u0663\u0668\u0664\n", encoding="utf-8")
    assert translate(ValidationInput(producer=path, client="java")).producer is not None
    with pytest.raises(BadInput, match="librdkafka refuses it"):
        translate(ValidationInput(producer=path, client="librdkafka"))


@pytest.mark.parametrize(
    ("line", "version", "clear"),
    [
        ("group.protocol=streams", "4.4.0", True),
        ("group.protocol=streams", "4.0.0", False),
        ("processing.guarantee=exactly_once", "3.9.2", True),
        ("processing.guarantee=exactly_once_beta", "3.9.2", True),
        ("processing.guarantee=exactly_once", "4.0.0", False),
    ],
)
def test_what_only_some_releases_of_streams_have_is_unclear_in_the_others(tmp_path, line, version, clear):
    path = tmp_path / "streams.properties"
    path.write_text(f"application.id=a\n{line}\n")
    parts = translate(ValidationInput(applications=(path,), kafka_version=version))
    doubts = [doubt for doubt in Prediction(parts).unclear if "KIP-" in doubt.why]
    assert (not doubts) is clear
