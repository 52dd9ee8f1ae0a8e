"""The command `prozess validate`: examples, running clusters, and what is refused."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from prozess.harness.errors import BadInput, ClusterFailed
from prozess.harness.exit_codes import ExitCode
from prozess.validation.command import ValidationInput, translate, validate
from prozess.validation.comparison import Budget
from prozess.validation.prediction import Prediction
from prozess.validation.sources import version_to_run
from prozess.validation.terminal import print_begin
from tests.support.paths import EXAMPLES
from tests.support.predictions import VERSION


@pytest.mark.parametrize(
    "given_files",
    [
        ValidationInput(
            producer=EXAMPLES / "payments" / "producer.properties",
            consumer=EXAMPLES / "payments" / "consumer.properties",
            topic=EXAMPLES / "payments" / "topic.properties",
            commits="sync-after",
        ),
        ValidationInput(
            producer=EXAMPLES / "clickstream" / "producer.yaml", compose=EXAMPLES / "clickstream" / "compose.yaml"
        ),
        ValidationInput(
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
    weak_one = ValidationInput(producer=tmp_path / "p.properties", kafka_defaults=True)
    assert validate(weak_one, Budget(0), _Options(as_json=True)) == ExitCode.HELD
    assert json.loads(capsys.readouterr().out)["change"] == ["acks=all"]
    assert validate(weak_one, Budget(0, strict=True), _Options(as_json=True)) == ExitCode.VIOLATED


def test_the_last_line_of_a_strict_validation_says_why_it_fails(tmp_path, capsys):
    path, topic = tmp_path / "p.properties", EXAMPLES / "payments" / "topic.properties"
    path.write_text("acks=1\nenable.idempotence=false\n")
    validate(
        ValidationInput(producer=path, topic=topic, client="java"), Budget(0, strict=True), _Options(as_json=False)
    )
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(
        "✗ --strict fails, exit code 1: nobody has accepted these weaknesses and open defects: lost/acks-1, "
    )
    assert last.endswith("Change the settings, or accept the risk (--accept)")


def test_the_last_line_of_a_strict_validation_says_what_is_unknown(tmp_path, capsys):
    path, topic = tmp_path / "c.properties", EXAMPLES / "payments" / "topic.properties"
    path.write_text("auto.offset.reset=earliest\n")
    validate(
        ValidationInput(consumer=path, topic=topic, client="java"), Budget(0, strict=True), _Options(as_json=False)
    )
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("? --strict is unknown, exit code 2: whether your groups go on while a broker is down")


def test_strict_lets_pass_what_no_setting_would_rule_out_and_the_risk_that_is_accepted(capsys):
    payments = ValidationInput(
        producer=EXAMPLES / "payments" / "producer.properties",
        consumer=EXAMPLES / "payments" / "consumer.properties",
        topic=EXAMPLES / "payments" / "topic.properties",
        broker=EXAMPLES / "payments" / "server.properties",
        commits="sync-after",
    )
    assert Prediction(translate(payments)).weaknesses
    strict, day = Budget(0, strict=True), date(2026, 12, 1)
    assert validate(payments, strict, _Options(as_json=True), day) == ExitCode.VIOLATED
    assert json.loads(capsys.readouterr().out)["failures"] == ["KAFKA-14034"]
    accepted = replace(payments, accept=EXAMPLES / "payments" / "risks.toml")
    assert validate(accepted, strict, _Options(as_json=True), day) == ExitCode.HELD
    assert validate(accepted, strict, _Options(as_json=True), date(2029, 1, 1)) == ExitCode.VIOLATED


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({}, ExitCode.UNKNOWN),
        ({"kafka_defaults": True}, ExitCode.HELD),
        ({"broker": EXAMPLES / "cdc" / "server.properties"}, ExitCode.HELD),
        ({"compose": EXAMPLES / "clickstream" / "compose.yaml"}, ExitCode.HELD),
        ({"topic": EXAMPLES / "payments" / "topic.properties"}, ExitCode.HELD),
    ],
    ids=["nothing", "kafka-defaults", "broker", "compose", "topic"],
)
def test_a_producer_alone_is_promised_nothing_that_rests_on_brokers_of_which_nobody_told(more, code, capsys):
    producer = EXAMPLES / "payments" / "producer.properties"
    assert validate(ValidationInput(producer=producer, **more), Budget(0), _Options(as_json=True)) == code
    told = json.loads(capsys.readouterr().out)
    assert ("lost" in told["unknown"]) == (code is ExitCode.UNKNOWN)
    assert not set(told["unknown"]) & set(told["promised"])


def test_strict_does_not_pass_what_nobody_told_of_the_topics_that_brokers_keep_for_themselves(tmp_path):
    (tmp_path / "c.properties").write_text("auto.offset.reset=earliest\n")
    topic = EXAMPLES / "payments" / "topic.properties"
    alone = ValidationInput(consumer=tmp_path / "c.properties", topic=topic, client="java")
    assert validate(alone, Budget(0), _Options(as_json=True)) == ExitCode.HELD
    assert validate(alone, Budget(0, strict=True), _Options(as_json=True)) == ExitCode.UNKNOWN
    known = replace(alone, broker=EXAMPLES / "payments" / "server.properties")
    assert validate(known, Budget(0, strict=True), _Options(as_json=True)) == ExitCode.HELD


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
        translate(ValidationInput(producer=tmp_path / "p.properties", **more))


@pytest.mark.parametrize(
    ("release", "zookeeper", "version"),
    [
        ("4.4", False, "4.4.0"),
        ("4.3", False, "4.3.1"),
        ("3.9", False, "3.9.2"),
        ("4.1", False, "4.1.2"),
        (None, True, "3.9.2"),
        (None, False, VERSION),
    ],
)
def test_trials_run_a_version_of_the_release_that_the_cluster_tells(release, zookeeper, version):
    assert version_to_run(release, zookeeper=zookeeper) == version


def test_a_cluster_that_does_not_answer_is_said_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr("prozess.clusters.existing.adoption.SETTINGS_TIMEOUT_S", 0.3)
    (tmp_path / "p.properties").write_text("acks=1\n")
    with pytest.raises(ClusterFailed, match=r"Kafka at 127.0.0.1:1 does not answer within 0.3 s.*Nobody listens there"):
        translate(ValidationInput(producer=tmp_path / "p.properties", cluster="127.0.0.1:1"))


@pytest.mark.parametrize(
    ("text", "more", "unknown"),
    [
        ("acks=all\n", {}, ["duplicate", "reordered"]),
        ("acks=all\n", {"client": "java"}, []),
        ("acks=all\nenable.idempotence=true\n", {}, []),
        ("acks=all\nkey.serializer=org.example.Own\n", {}, []),
        ("acks=all\ntransactional.id=orders\n", {}, []),
        ("acks=1\n", {}, []),
    ],
)
def test_a_file_that_every_client_would_read_is_promised_what_each_of_them_keeps(tmp_path, capsys, text, more, unknown):
    (tmp_path / "p.properties").write_text(text)
    asked = ValidationInput(
        producer=tmp_path / "p.properties", topic=EXAMPLES / "payments" / "topic.properties", **more
    )
    code = validate(asked, Budget(0), _Options(as_json=True))
    told = json.loads(capsys.readouterr().out)
    assert told["unknown"] == unknown
    assert (code == ExitCode.UNKNOWN) == bool(unknown)
    assert not set(unknown) & set(told["promised"])


def test_of_a_file_that_every_client_would_read_the_defects_of_each_are_told(tmp_path, capsys):
    (tmp_path / "p.properties").write_text("enable.idempotence=true\n")
    asked = ValidationInput(producer=tmp_path / "p.properties", topic=EXAMPLES / "payments" / "topic.properties")
    validate(asked, Budget(0), _Options(as_json=True))
    assert {one["id"] for one in json.loads(capsys.readouterr().out)["defects"]} == {
        "KAFKA-14034",
        "KAFKA-15591",
        "librdkafka#4953",
    }


@pytest.mark.parametrize(
    ("more", "unknown"),
    [
        ({}, ["unprocessed"]),
        ({"commits": "sync-after"}, []),
        ({"commits": "sync-before", "client": "librdkafka"}, []),
    ],
)
def test_how_an_application_commits_is_known_only_if_somebody_says_it(tmp_path, capsys, more, unknown):
    (tmp_path / "c.properties").write_text("enable.auto.commit=false\nauto.offset.reset=earliest\n")
    asked = ValidationInput(
        consumer=tmp_path / "c.properties", topic=EXAMPLES / "payments" / "topic.properties", **more
    )
    code = validate(asked, Budget(0), _Options(as_json=True))
    told = json.loads(capsys.readouterr().out)
    assert (told["unknown"], code == ExitCode.UNKNOWN) == (unknown, bool(unknown))
    assert ("unprocessed" in told["promised"]) == (more.get("commits") == "sync-after")


def test_a_property_that_nobody_knows_counts_as_understood_until_its_last_day_if_somebody_accepts_it(tmp_path, capsys):
    (tmp_path / "p.properties").write_text("key.serializer=org.example.Own\nmy.own.thing=1\n")
    (tmp_path / "r.toml").write_text(
        '[[accept]]\nrule = "unknown-property:my.own.thing"\nreason = "ours"\nuntil = 2027-01-31\n'
    )
    topic = EXAMPLES / "payments" / "topic.properties"
    asked = ValidationInput(producer=tmp_path / "p.properties", topic=topic, accept=tmp_path / "r.toml")
    assert validate(asked, Budget(0), _Options(as_json=False), date(2027, 1, 31)) == ExitCode.HELD
    said = " ".join(capsys.readouterr().out.split())
    assert "[unknown-property:my.own.thing]; accepted until 2027-01-31: ours" in said
    assert "promised never lost" in said
    assert validate(asked, Budget(0), _Options(as_json=True), date(2027, 2, 1)) == ExitCode.UNKNOWN
    told = json.loads(capsys.readouterr().out)
    assert (told["promised"], told["accepted"]) == ([], {})
    assert "has passed, so it counts again" in told["remarks"][0]


def test_nothing_given_is_refused():
    with pytest.raises(BadInput, match="Give --producer, --consumer or --application"):
        translate(ValidationInput())


class _Options:
    def __init__(self, *, as_json):
        self.as_json = as_json


@pytest.mark.parametrize(
    ("over", "spent_s", "said"),
    [
        (0, 0.0, "trial 1 of at most 10 begins; at most 10 min left"),
        (1, 400.0, "trial 2 of at most 10 begins; about 3 min left"),
        (9, 90.0, "trial 10 of at most 10 begins; about 10 s left"),
    ],
)
def test_a_trial_that_begins_says_about_how_long_all_still_take(capsys, over, spent_s, said):
    print_begin(over, 10, spent_s=spent_s, limit_s=600.0)
    assert capsys.readouterr().err == said + "\n"
