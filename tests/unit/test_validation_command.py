"""The command `prozess validate`: examples, running clusters, and what is refused."""

import json
from pathlib import Path

import pytest

from harness.errors import BadInput, ClusterFailed, ExitCode
from harness.validation.command import Budget, Given, translate, validate
from harness.validation.live import version_to_run
from harness.validation.predict import Prediction
from tests.unit.predictions import EXAMPLES, VERSION


@pytest.mark.parametrize(
    "given_files",
    [
        Given(
            producer=EXAMPLES / "payments" / "producer.properties",
            consumer=EXAMPLES / "payments" / "consumer.properties",
            topic=EXAMPLES / "payments" / "topic.properties",
        ),
        Given(producer=EXAMPLES / "clickstream" / "producer.yaml", compose=EXAMPLES / "clickstream" / "compose.yaml"),
        Given(
            producer=EXAMPLES / "cdc" / "producer.json",
            consumer=EXAMPLES / "cdc" / "consumer.properties",
            broker=EXAMPLES / "cdc" / "server.properties",
        ),
    ],
    ids=["payments", "clickstream", "cdc"],
)
def test_the_examples_are_predicted_and_make_a_trial(given_files, capsys):
    parts = translate(given_files)
    assert validate(given_files, Budget(0), options=_Options(as_json=False)) == 0
    assert "promised" in capsys.readouterr().out
    plan = parts.plan()
    own = Prediction(parts).plan.cells
    assert [cell.axes for cell in plan.cells[: len(own)]] == [cell.axes for cell in own]
    assert plan.cells[-1].producer.acks == "1"
    assert plan.controls


def test_strict_makes_a_weakness_a_failure(tmp_path, capsys):
    (tmp_path / "p.properties").write_text("acks=1\n")
    weak_one = Given(producer=tmp_path / "p.properties")
    assert validate(weak_one, Budget(0), _Options(as_json=True)) == ExitCode.HELD
    assert json.loads(capsys.readouterr().out)["change"] == ["acks=all"]
    assert validate(weak_one, Budget(0, strict=True), _Options(as_json=True)) == ExitCode.VIOLATED


def test_strict_lets_pass_what_no_setting_would_rule_out():
    payments = Given(
        producer=EXAMPLES / "payments" / "producer.properties",
        consumer=EXAMPLES / "payments" / "consumer.properties",
        topic=EXAMPLES / "payments" / "topic.properties",
    )
    assert Prediction(translate(payments)).weaknesses
    assert validate(payments, Budget(0, strict=True), _Options(as_json=True)) == ExitCode.HELD


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"cluster": "there:9092", "broker": Path("server.properties")}, "--broker and --cluster each say"),
        ({"cluster": "there:9092", "cluster_topic": "t", "topic": Path("t.properties")}, "--topic and --cluster-topic"),
        ({"cluster_topic": "t"}, "Give --cluster HOST:PORT"),
    ],
)
def test_a_running_cluster_and_a_file_that_say_the_same_are_refused(tmp_path, more, said):
    (tmp_path / "p.properties").write_text("acks=1\n")
    with pytest.raises(BadInput, match=said):
        translate(Given(producer=tmp_path / "p.properties", **more))


@pytest.mark.parametrize(
    ("release", "zookeeper", "version"),
    [
        ("4.3", False, "4.3.1"),
        ("3.9", False, "3.9.2"),
        ("4.1", False, "4.1.0"),
        (None, True, "3.9.2"),
        (None, False, VERSION),
    ],
)
def test_trials_run_a_version_of_the_release_that_the_cluster_tells(release, zookeeper, version):
    assert version_to_run(release, zookeeper=zookeeper) == version


def test_a_cluster_that_does_not_answer_is_said_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr("clusters.live_settings.ASK_TIMEOUT_S", 0.3)
    (tmp_path / "p.properties").write_text("acks=1\n")
    with pytest.raises(ClusterFailed, match=r"Kafka at 127.0.0.1:1 does not answer within 0.3 s.*Give --cluster"):
        translate(Given(producer=tmp_path / "p.properties", cluster="127.0.0.1:1"))


def test_nothing_given_is_refused():
    with pytest.raises(BadInput, match="--producer or --consumer"):
        translate(Given())


class _Options:
    def __init__(self, *, as_json):
        self.as_json = as_json
