"""What `validate` prints first, and at which line each setting stands."""

import json

import pytest

from prozess.harness.guarantees.table import TABLE
from prozess.validation.command import ValidationInput, validate
from prozess.validation.comparison import Budget
from prozess.validation.first_lines import LINES_MAX, OF_LOSS, WORDS, first_lines
from prozess.validation.lines import DocumentLines
from prozess.validation.reading import json_value, yaml_documents
from prozess.validation.terminal import HEADING
from tests.support.predictions import SAFE_TOPIC, predicted

UNCLEAN = SAFE_TOPIC | {"unclean.leader.election.enable": "true"}


def words(prediction):
    found = {}
    for word, sentence in first_lines(prediction):
        found.setdefault(word, []).append(sentence)
    return found


def test_every_anomaly_of_loss_is_one_of_the_table():
    assert set(OF_LOSS) <= set(TABLE)


def test_a_safe_configuration_is_promised_in_the_first_line():
    found = words(predicted({"acks": "all", "max.in.flight.requests.per.connection": "1"}))
    assert found["verdict"][0].startswith("✓ promised: no setting is weak")
    assert found["losses"][0].startswith("acknowledged records stay; every failed send is reported")
    assert ("defects" in found) == ("known defects" in found["verdict"][0])
    assert not {"why", "change"} & set(found)


def test_a_weak_configuration_says_what_may_be_lost_why_and_the_change_that_helps_most():
    found = words(predicted({"acks": "1"}, topic=UNCLEAN))
    assert found["verdict"] == [
        "! Records can be lost (acks=1, unclean.leader.election.enable=true). "
        "acks=all and unclean.leader.election.enable=false rule it out."
    ]
    assert found["losses"][0].startswith("acknowledged records can disappear; every failed send is reported")
    assert any(line.startswith("acks=1 (the file, acks)") for line in found["why"])
    (change,) = found["change"]
    assert "unclean.leader.election.enable=false: rules out" in change or "acks=all: rules out" in change
    assert change.endswith(" as well: removes every weakness that a setting can remove")


@pytest.mark.parametrize("parts", [{"topic": SAFE_TOPIC}, {"consumer": {"auto.offset.reset": "earliest"}}])
def test_nothing_is_said_of_losses_that_no_part_was_given_for(parts):
    found = words(predicted(None, **parts))
    before, unjudged, after = found["losses"][0].partition("not judged (you gave no ")
    assert unjudged
    assert "producer" in after.partition("): whether acknowledged records can disappear")[0]
    assert "acknowledged records" not in before
    assert "promised" not in found["verdict"][0] or "depends on a producer" in found["verdict"][0]


def test_the_worst_comes_first_and_then_what_was_not_understood():
    found = words(predicted({"acks": "${ACKS}"}, topic=UNCLEAN))
    assert found["verdict"] == [
        "! Records can be lost (unclean.leader.election.enable=true). unclean.leader.election.enable=false rules it out. "
        "No promise is made, because 1 thing was not understood."
    ]
    assert found["why"][0].startswith("the file, acks: acks is a placeholder")


@pytest.mark.parametrize(
    ("producer", "verdict"),
    [
        (
            {"acks": "1"},
            "! Records can be lost (acks=1). acks=all rules it out. "
            "7 further promises depend on settings that no file gives (--topic).",
        ),
        ({"acks": "all"}, "? 9 promises depend on settings that no file gives (--topic)."),
    ],
)
def test_what_can_be_lost_is_said_before_what_no_file_gives(producer, verdict):
    assert words(predicted(producer, topic=None, broker=None))["verdict"] == [verdict]


def test_what_one_broken_disk_takes_away_is_a_loss_and_names_its_setting():
    (verdict,) = words(predicted({"acks": "all"}, topic=SAFE_TOPIC | {"replication.factor": "1"}))["verdict"]
    assert verdict.startswith("! Records can be lost (replication.factor=1). Better: ")


def test_every_anomaly_of_loss_has_words_for_what_can_happen_and_for_what_is_promised():
    assert set(WORDS) == set(OF_LOSS)


@pytest.mark.parametrize(
    "prediction",
    [
        predicted({"acks": "0"}, consumer={}, topic=UNCLEAN, broker={"offsets.topic.replication.factor": "1"}),
        predicted({"acks": "all", "transactional.id": "a"}, topic=None, broker=None, version="3.9.0"),
        predicted(None, consumer={"enable.auto.commit": "true"}),
        predicted({f"x{number}": "1" for number in range(20)} | {"acks": "1"}),
    ],
)
def test_there_are_ten_lines_at_most_and_the_verdict_is_the_first(prediction):
    lines = first_lines(prediction)
    assert len(lines) <= LINES_MAX
    assert lines[0][0] == "verdict"


def test_the_rest_follows_behind_a_heading(tmp_path, capsys):
    class Options:
        as_json = False

    path = tmp_path / "p.properties"
    path.write_text("acks=1\n")
    validate(ValidationInput(producer=path, kafka_defaults=True), Budget(0), Options())
    before, heading, after = capsys.readouterr().out.partition(HEADING)
    assert heading
    assert before.startswith("verdict")
    assert len(before.strip().splitlines()) <= LINES_MAX + 2
    assert "weak       lost is possible" in after


# --- Lines. ---

YAML = """
spec:
  kafka:
    config:
      min.insync.replicas: 1
      nested: {min.insync.replicas: 2}
containers:
  - name: one
    env:
      - {name: KAFKA_X, value: 1}
      - name: KAFKA_Y
        value: 2
  - name: two
    env: [{name: KAFKA_Z, value: 3}]
"""


@pytest.mark.parametrize(
    ("spelt", "line"),
    [
        ("Kafka/main.spec.kafka.config.min.insync.replicas", 5),
        ("config.nested.min.insync.replicas", 6),
        ("StatefulSet/kafka.one.KAFKA_X", 10),
        ("StatefulSet/kafka.one.KAFKA_Y", 11),
        ("two.KAFKA_Z", 14),
        ("absent", None),
        ("replicas", None),
    ],
)
def test_the_line_of_a_name_is_that_of_the_path_that_fits_best(spelt, line):
    assert DocumentLines(yaml_documents(YAML)).line_of(spelt) == line


def test_a_name_that_stands_twice_has_a_line_only_with_what_tells_them_apart():
    lines = DocumentLines(json_value('{"a": {"acks": 1},\n "b": {"acks": 2}}'))
    assert (lines.line_of("acks"), lines.line_of("b.acks")) == (None, 2)


def test_annotations_point_at_the_line_that_decides(tmp_path, capsys):
    class Options:
        as_json = False

    path = tmp_path / "client.json"
    path.write_text(
        json.dumps({"kafkajs": {"brokers": ["b"], "producer": {"maxInFlightRequests": 5, "acks": 1}}}, indent=1)
    )
    validate(ValidationInput(applications=(path,), kafka_defaults=True), Budget(0), Options(), format="sarif")
    results = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    of_acks = [each for each in results if each["ruleId"] == "lost/acks-1"]
    (location,) = [each["physicalLocation"] for each in of_acks[0]["locations"]]
    assert location["artifactLocation"]["uri"] == str(path)
    assert path.read_text().splitlines()[location["region"]["startLine"] - 1].strip() == '"acks": 1'


def test_a_file_of_brokers_does_not_say_which_client_reads_the_producers_file(tmp_path, capsys):
    class Options:
        as_json = True

    producer, broker = tmp_path / "p.properties", tmp_path / "kafka.env"
    producer.write_text("acks=all\n")
    broker.write_text("KAFKA_MIN_INSYNC_REPLICAS=2\nKAFKA_DEFAULT_REPLICATION_FACTOR=3\n")
    validate(ValidationInput(producer=producer, broker=broker), Budget(0), Options())
    assert {"duplicate", "reordered"} <= set(json.loads(capsys.readouterr().out)["unknown"])
