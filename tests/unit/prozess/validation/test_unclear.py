"""What `prozess validate` does not understand of a file: it is named, nothing is promised, and the exit code says so."""

import json

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from prozess.harness.config.known_properties import CLIENTS, properties_of
from prozess.harness.errors import BadInput
from prozess.harness.exit_codes import ExitCode
from prozess.validation.command import ValidationInput, translate, validate
from prozess.validation.comparison import Budget, Comparison
from prozess.validation.prediction import Prediction
from prozess.validation.reading import SCOPES, is_foreign, placeholder_in
from prozess.validation.sources import read_file
from tests.support.predictions import VERSION

SAFE = "acks=all\nenable.idempotence=true\n"


class _Options:
    def __init__(self, *, as_json):
        self.as_json = as_json


def judged(capsys, *, strict=False, **files):
    """Exit code and what is printed as JSON."""
    code = validate(ValidationInput(kafka_defaults=True, **files), Budget(0, strict=strict), _Options(as_json=True))
    return code, json.loads(capsys.readouterr().out)


def printed(capsys, **files):
    validate(ValidationInput(kafka_defaults=True, **files), Budget(0), _Options(as_json=False))
    return " ".join(capsys.readouterr().out.split())


def test_a_name_that_nobody_knows_leaves_every_promise_unknown(tmp_path, capsys):
    path = tmp_path / "p.properties"
    path.write_text(SAFE + "my.own.thing=1\n")
    code, told = judged(capsys, producer=path)
    assert code == ExitCode.UNKNOWN
    assert told["promised"] == []
    assert "duplicate" in told["unknown"]
    assert [(each["name"], each["origin"], each["rule"]) for each in told["unclear"]] == [
        ("my.own.thing", f"{path}:3", "unknown-property:my.own.thing")
    ]
    said = printed(capsys, producer=path)
    assert f"{path}:3: my.own.thing is no producer property of Kafka {VERSION}" in said
    assert "promised" not in said.replace("nothing is promised", "")
    assert "2 settings understood, 1 not understood" in said


def test_the_same_file_without_it_is_promised(tmp_path, capsys):
    path = tmp_path / "p.properties"
    path.write_text(SAFE)
    code, told = judged(capsys, producer=path)
    assert (code, told["unclear"], told["unknown"]) == (ExitCode.HELD, [], [])
    assert "duplicate" in told["promised"]
    assert "lost" not in told["promised"], "Kafka's default is one copy, which is gone with its disk"


@pytest.mark.parametrize(
    "value",
    [
        "${env:ACKS}", "${ACKS:all}", "${ACKS:-1}", "$ACKS", "$(ACKS)", "{{ .Values.acks }}", "{{acks}}", "%{acks}",
        "#{acks}", "<acks>", "@acks@", "%ACKS%", "__ACKS__", "<%= acks %>", "ENC(abc)", "${file:/a.properties:acks}",
    ],
)  # fmt: skip
def test_a_placeholder_is_no_value_and_is_named(tmp_path, capsys, value):
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"enable.idempotence": True, "acks": value}, indent=1))
    code, told = judged(capsys, producer=path)
    assert (code, told["promised"]) == (ExitCode.UNKNOWN, [])
    assert told["unclear"][0]["name"] == "acks"
    assert told["unclear"][0]["origin"] == f"{path}:3"
    assert "is a placeholder" in told["unclear"][0]["why"]


def test_a_placeholder_where_no_promise_depends_on_the_value_is_passed_over(tmp_path, capsys):
    path = tmp_path / "p.properties"
    path.write_text(
        SAFE + 'bootstrap.servers=${BROKERS}\nsasl.jaas.config=a password="$(SECRET)";\nclient.id=${HOST}\n'
    )
    code, told = judged(capsys, producer=path)
    assert code == ExitCode.HELD
    assert "2 settings understood, 3 not of Kafka" in told["files"][0]


@pytest.mark.parametrize(
    "value", ["all", "-1", "RULE:^CN=(.*?)$/$1/L", "100%", "x.y_z", "{}", "a<b", "org.example.Foo$1", "a@b", ""]
)
def test_a_value_that_only_looks_odd_is_no_placeholder(value):
    assert placeholder_in(value) is None


def test_a_compose_files_variable_with_a_default_is_a_placeholder(tmp_path, capsys):
    producer, compose = tmp_path / "p.properties", tmp_path / "compose.yaml"
    producer.write_text(SAFE)
    variables = "KAFKA_NODE_ID: '${ID}', KAFKA_DEFAULT_REPLICATION_FACTOR: 3, KAFKA_MIN_INSYNC_REPLICAS"
    service = "services: {a: {image: 'apache/kafka:4.4.0', volumes: ['a:/tmp/kafka-logs'], environment: {"
    text = service + variables + ": '%s'}}}"
    compose.write_text(text % "2")
    assert judged(capsys, producer=producer, compose=compose)[0] == ExitCode.HELD
    compose.write_text(text % "${ISR:-2}")
    code, told = judged(capsys, producer=producer, compose=compose)
    assert (code, told["promised"]) == (ExitCode.UNKNOWN, [])
    assert [each["name"] for each in told["unclear"]] == ["min.insync.replicas"]


def test_settings_of_serializers_are_passed_over(tmp_path, capsys):
    path = tmp_path / "p.properties"
    path.write_text(
        SAFE + "schema.registry.url=http://registry\nauto.register.schemas=false\nspring.json.add.type.headers=false\n"
    )
    code, told = judged(capsys, producer=path)
    assert (code, told["unclear"]) == (ExitCode.HELD, [])


def test_nothing_understood_at_all_is_refused_with_the_way_out(tmp_path):
    path = tmp_path / "app.properties"
    path.write_text("server.port=8080\nlogging.level=info\n")
    with pytest.raises(BadInput, match=r"app\.properties.*nothing in it is a setting.*server\.port.*\.properties file"):
        validate(ValidationInput(producer=path), Budget(0), _Options(as_json=True))


@pytest.mark.parametrize("name", ["main.tf", "Producer.java", "application.hocon"])
def test_a_file_of_another_kind_is_refused(tmp_path, name):
    (tmp_path / name).write_text(SAFE)
    with pytest.raises(BadInput, match="is not read by prozess"):
        read_file(tmp_path / name, ["producer"])


def test_a_weakness_is_told_although_something_is_unclear_and_fails_strict(tmp_path, capsys):
    path = tmp_path / "p.properties"
    path.write_text("acks=1\nmy.own.thing=1\n")
    code, told = judged(capsys, producer=path)
    assert code == ExitCode.UNKNOWN
    assert "lost" in {each["anomaly"] for each in told["weaknesses"]}
    assert judged(capsys, producer=path, strict=True)[0] == ExitCode.VIOLATED


def test_strict_does_not_make_unknown_a_pass(tmp_path, capsys):
    path, topic = tmp_path / "p.properties", tmp_path / "t.properties"
    path.write_text(SAFE + "my.own.thing=1\n")
    topic.write_text("replication.factor=3\nmin.insync.replicas=2\n")
    assert judged(capsys, producer=path, topic=topic, strict=True)[0] == ExitCode.UNKNOWN


def test_one_file_may_be_given_as_producer_and_consumer(tmp_path, capsys):
    path = tmp_path / "both.yaml"
    path.write_text("producer:\n  enable.idempotence: true\nconsumer:\n  enable.auto.commit: false\n")
    code, told = judged(capsys, producer=path, consumer=path, commits="sync-after")
    assert code == ExitCode.HELD
    assert "2 settings understood" in told["files"][0]
    assert judged(capsys, applications=(path,), commits="sync-after")[1]["promised"] == told["promised"]


def test_what_is_beside_a_files_parts_is_unclear(tmp_path, capsys):
    path = tmp_path / "both.yaml"
    path.write_text("producer:\n  acks: all\nretries: 0\n")
    code, told = judged(capsys, producer=path)
    assert code == ExitCode.UNKNOWN
    assert told["unclear"][0]["origin"] == f"{path}:3"


def test_two_files_that_say_the_same_part_are_refused(tmp_path):
    one, other = tmp_path / "a.yaml", tmp_path / "b.properties"
    one.write_text("producer:\n  acks: all\n")
    other.write_text("acks=1\n")
    with pytest.raises(BadInput, match="each say what the producer is set to"):
        validate(ValidationInput(producer=other, applications=(one,)), Budget(0), _Options(as_json=True))


def test_a_file_that_does_not_tell_whose_settings_it_has_is_no_application(tmp_path):
    path = tmp_path / "a.properties"
    path.write_text("bootstrap.servers=b:9092\n")
    with pytest.raises(BadInput, match=f"Say whose settings these are: --producer {path}"):
        validate(ValidationInput(applications=(path,)), Budget(0), _Options(as_json=True))


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ("bootstrap.servers=b:9092\nacks=1\n", "producer"),
        ("bootstrap.servers=b:9092\ngroup.id=g\n", "consumer"),
        ("retention.ms=1000\nreplication.factor=3\n", "topic"),
        ("log.retention.ms=1000\nmin.insync.replicas=2\n", "broker"),
    ],
)
def test_names_that_one_part_alone_has_say_whose_settings_a_file_has(tmp_path, text, owner):
    path = tmp_path / "a.properties"
    path.write_text(text)
    assert list(read_file(path, SCOPES).scopes) == [owner]


@pytest.mark.parametrize(
    "text", ["bootstrap.servers=b:9092\n", "acks=1\ngroup.id=g\n", "min.insync.replicas=2\n", "x=1\n"]
)
def test_a_file_that_is_of_several_parts_or_of_none_is_refused(tmp_path, text):
    path = tmp_path / "a.properties"
    path.write_text(text)
    with pytest.raises(BadInput, match="Say whose settings these are"):
        read_file(path, SCOPES)


def test_yaml_with_several_documents_is_refused_where_no_format_says_which_counts(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("acks: all\n---\nacks: 1\n")
    with pytest.raises(BadInput, match="holds 2 YAML documents"):
        read_file(path, ["producer"])


def test_settings_of_json_and_yaml_know_their_lines(tmp_path):
    (tmp_path / "a.json").write_text('{"acks":\n "all", "x:": ["acks:", {"y": 1}],\n\n"linger": {\n"ms": 5}}')
    (tmp_path / "a.yaml").write_text("# one\nacks: all\nlinger:\n\n  ms: 5\n")
    for name, lines in (("a.json", {"acks": 1, "linger.ms": 5}), ("a.yaml", {"acks": 2, "linger.ms": 5})):
        path = tmp_path / name
        found = read_file(path, ["producer"]).scopes["producer"]
        assert {key: found[key].origin for key in lines} == {key: f"{path}:{line}" for key, line in lines.items()}


def test_a_profile_is_refused_where_no_file_has_profiles(tmp_path):
    path = tmp_path / "p.properties"
    path.write_text(SAFE)
    with pytest.raises(BadInput, match=r"--profile 'prod': none of the files"):
        validate(ValidationInput(producer=path, profiles=("prod",)), Budget(0), _Options(as_json=True))


WORDS = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=9)
NAMES = st.lists(WORDS, min_size=1, max_size=4).map(".".join)
NO_VALUES = st.sampled_from(["${%s}", "${%s:all}", "$(%s)", "{{ %s }}", "%%{%s}", "#{%s}", "<%s>", "${env:%s}"])
MATTERS = ("acks", "retries", "enable.idempotence", "max.in.flight.requests.per.connection", "delivery.timeout.ms")


@given(NAMES, st.sampled_from(["properties", "json", "yaml"]))
@example("foo.bar", "json")
def test_no_file_with_a_name_that_nobody_knows_is_promised_anything(tmp_path_factory, name, ending):
    assume(not is_foreign(name))
    assume(not any(name in properties_of("producer", client, VERSION) for client in CLIENTS))
    never_promised(tmp_path_factory.mktemp("unknown"), {"acks": "all", name: "1"}, ending)


@given(st.sampled_from(MATTERS), WORDS, NO_VALUES, st.sampled_from(["properties", "json", "yaml"]))
def test_no_file_with_a_placeholder_is_promised_anything(tmp_path_factory, name, variable, form, ending):
    never_promised(tmp_path_factory.mktemp("p"), {"linger.ms": "5", name: form % variable}, ending)


def never_promised(folder, settings, ending):
    path = folder / f"a.{ending}"
    lines = [f"{name}={value}" for name, value in settings.items()]
    path.write_text("\n".join(lines) if ending == "properties" else json.dumps(settings))
    try:
        found = Prediction(translate(ValidationInput(producer=path)))
    except BadInput:
        return
    assert found.promised == ()
    assert Comparison(found, ()).exit_code is ExitCode.UNKNOWN
