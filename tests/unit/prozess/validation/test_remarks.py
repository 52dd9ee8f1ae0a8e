"""Remarks about a configuration, in the formats of other programs: each can be read again, whatever is in the sentences."""

import json
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.validation.command import Prediction, ValidationInput, translate
from prozess.validation.remarks import FORMATS, Level, Remark, remarks_of, to_github, to_junit, to_sarif

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
REMARKS = st.lists(st.builds(Remark, st.sampled_from(Level), TEXT, TEXT, TEXT), max_size=5)


@pytest.fixture
def weak(tmp_path):
    producer, topic = tmp_path / "producer.properties", tmp_path / "topic.properties"
    producer.write_text("# a comment\nacks=1\nenable.idempotence=false\n")
    topic.write_text("replication.factor=3\nmin.insync.replicas=2\nunclean.leader.election.enable=false\n")
    return Prediction(translate(ValidationInput(producer, topic=topic)), kafka_defaults=True), producer


def test_a_weakness_is_a_warning_at_the_line_to_blame_and_an_error_if_strict(weak):
    prediction, producer = weak
    lost = next(remark for remark in remarks_of(prediction, strict=False) if remark.rule == "lost/acks-1")
    assert (lost.level, lost.location) == (Level.WARNING, (str(producer), 2))
    assert lost.sentence.startswith("lost is possible: a producer with acks=1")
    strict = next(remark for remark in remarks_of(prediction, strict=True) if remark.rule == "lost/acks-1")
    assert strict.level is Level.ERROR


def test_each_rule_stands_at_the_line_that_decides_it_although_others_permit_the_anomaly_too(tmp_path):
    producer, broker = tmp_path / "my producer.properties", tmp_path / "server.properties"
    producer.write_text("acks=1\n")
    broker.write_text("# x\nunclean.leader.election.enable=true\ndefault.replication.factor=3\n")
    prediction = Prediction(translate(ValidationInput(producer, broker=broker)), kafka_defaults=True)
    found = {remark.rule: remark.location for remark in remarks_of(prediction, strict=False)}
    assert found["lost/acks-1"] == (str(producer), 1)
    assert found["lost/unclean"] == (str(broker), 2)
    document = json.loads(to_sarif([*remarks_of(prediction, strict=False)], ""))
    places = [result["locations"][0]["physicalLocation"] for result in document["runs"][0]["results"]]
    assert all(place["region"]["startLine"] >= 1 for place in places)  # code scanning refuses a result without one
    uris = {place["artifactLocation"]["uri"] for place in places}
    assert {unquote(uri) for uri in uris} <= {str(producer), str(broker)}
    assert not any(" " in uri for uri in uris)


def test_what_was_not_understood_is_a_warning_with_its_place(tmp_path):
    producer = tmp_path / "producer.properties"
    producer.write_text("acks=${ACKS}\nlinger.ms=5\n")
    prediction = Prediction(translate(ValidationInput(producer)))
    (doubt,) = [remark for remark in remarks_of(prediction, strict=False) if remark.rule == "unclear:acks"]
    assert (doubt.level, doubt.location) == (Level.WARNING, (str(producer), 1))


@pytest.mark.parametrize(
    ("origin", "location"),
    [
        ("app.properties:3", ("app.properties", 3)),
        ("C:/app.yml:12, spring.kafka", ("C:/app.yml", 12)),
        ("app.json, producer.acks", ("app.json", None)),
        ("", ("", None)),
    ],
)
def test_an_origin_is_a_file_and_often_a_line(origin, location):
    assert Remark(Level.NOTE, "rule", "sentence", origin).location == location


@pytest.mark.hypothesis
@given(REMARKS, TEXT)
def test_github_reads_one_command_a_remark_with_the_sentence_as_it_was(remarks, conclusion):
    lines = to_github(remarks, conclusion).split("\n")
    assert len(lines) == len(remarks) + 2
    for remark, line in zip(remarks, lines, strict=False):
        _, command, said = line.split("::", 2)
        assert command.split(" ")[0] in ("error", "warning", "notice")
        assert said.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%") == remark.sentence
        assert unquote(command.rpartition("title=")[2], errors="strict") == remark.rule


@pytest.mark.hypothesis
@given(REMARKS, TEXT)
def test_sarif_names_the_rule_of_each_result_and_its_lines_begin_at_1(remarks, conclusion):
    document = json.loads(to_sarif(remarks, conclusion))
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(rules) == len(set(rules))
    assert [(r["ruleId"], r["level"], r["message"]["text"]) for r in run["results"]] == [
        (remark.rule, remark.level, remark.sentence) for remark in remarks
    ]
    assert {result["ruleId"] for result in run["results"]} == set(rules)


@pytest.mark.hypothesis
@given(REMARKS, TEXT)
def test_junit_has_a_test_for_each_rule_and_counts_those_with_errors(remarks, conclusion):
    suite = ElementTree.fromstring(to_junit(remarks, conclusion))
    failed = {remark.rule for remark in remarks if remark.level is Level.ERROR}
    assert (
        int(suite.attrib["failures"])
        == len(failed)
        == len([t for t in suite.iter("testcase") if t.find("failure") is not None])
    )
    assert int(suite.attrib["tests"]) == len(list(suite.iter("testcase"))) == max(1, len({r.rule for r in remarks}))


@pytest.mark.hypothesis
@given(REMARKS, TEXT)
def test_markdown_has_a_row_for_each_remark_whatever_is_in_it(remarks, conclusion):
    rows = [line for line in FORMATS["markdown"](remarks, conclusion).split("\n") if line.startswith("| ")]
    assert len(rows) == (len(remarks) + 1 if remarks else 0)
    assert all(row.replace("\\\\", "").replace("\\|", "").count("|") == 5 for row in rows)
