"""What lies beside a file and was not given, profiles that nobody has, and settings that let records be passed over."""

import json
import textwrap

import pytest

from prozess.harness.exit_codes import ExitCode
from prozess.validation.command import ValidationInput, validate
from prozess.validation.comparison import Budget
from prozess.validation.sources import read_all

SPRING = "spring.kafka.producer.acks: all\nspring.kafka.producer.properties.enable.idempotence: true\n"
QUARKUS = "mp.messaging.outgoing.o.connector=smallrye-kafka\nmp.messaging.outgoing.o.acks=all\n"
NAMES = {"spring": ("application.yml", SPRING), "quarkus": ("application.properties", QUARKUS)}


def read(tmp_path, name, text, profiles=(), **beside):
    (tmp_path / "config").mkdir(exist_ok=True)
    for other, content in beside.items():
        (tmp_path / other.replace("__", "-").replace("_dot_", ".").replace("_in_", "/")).write_text(content)
    path = tmp_path / name
    path.write_text(textwrap.dedent(text))
    (reading,) = read_all({}, [path], profiles)
    return {each.name: each.why for each in reading.unclear}, reading


@pytest.mark.parametrize(
    ("kind", "other", "text", "why"),
    [
        ("spring", "application__prod_dot_yml", "spring: {kafka: {producer: {acks: 1}}}", "--profile prod"),
        ("spring", "application_dot_properties", "spring.kafka.producer.acks=1", "by itself"),
        ("spring", "config_in_application_dot_yaml", "spring.kafka.producer.acks: 1", "by itself"),
        ("spring", "_dot_env", "SPRING_KAFKA_PRODUCER_ACKS=1", "these variables"),
        ("spring", "_dot_env", "SPRING_APPLICATION_JSON='{}'", "these variables"),
        ("spring", "application__prod_dot_yml", "a: [", "cannot be read"),
        ("spring", "bootstrap_dot_yml", "spring: {cloud: {config: {uri: 'http://c'}}}", "by itself"),
        ("quarkus", "config_in_application_dot_properties", "mp.messaging.outgoing.o.acks=1", "by itself"),
        ("quarkus", "application_dot_yaml", "mp: {messaging: {outgoing: {o: {acks: 1}}}}", "by itself"),
        ("quarkus", "_dot_env", "MP_MESSAGING_OUTGOING_O_ACKS=1", "these variables"),
    ],
)
def test_a_file_that_the_framework_reads_and_nobody_gave_is_unclear(tmp_path, kind, other, text, why):
    name, own = NAMES[kind]
    found, _ = read(tmp_path, name, own, **{other: text})
    (told,) = found.values()
    assert why in told


@pytest.mark.parametrize(
    ("other", "text", "profiles"),
    [
        ("application__dev_dot_yml", "spring.kafka.producer.acks: 1", ("prod",)),
        ("application__dev_dot_yml", "server.port: 1", ()),
        ("_dot_env", "PORT=1", ()),
        ("notes_dot_yml", "spring.kafka.producer.acks: 1", ()),
    ],
)
def test_a_file_that_does_not_count_is_passed_over(tmp_path, other, text, profiles):
    own = SPRING + "---\nspring.config.activate.on-profile: prod\nserver.port: 2\n"
    found, _ = read(tmp_path, "application.yml", own, profiles, **{other: text})
    assert found == {}


@pytest.mark.parametrize(
    ("kind", "more", "profiles", "name", "meant"),
    [
        ("spring", "---\nspring.config.activate.on-profile: prod\nserver.port: 2\n", ("prd",), "prd", "mean 'prod'"),
        ("spring", "spring.profiles.active: live\n", (), "live", "they have none"),
        ("quarkus", "", ("prdo",), "prdo", "mean 'prod'"),
    ],
)
def test_a_profile_that_no_file_has_is_unclear(tmp_path, kind, more, profiles, name, meant):
    file, own = NAMES[kind]
    found, _ = read(tmp_path, file, own + more, profiles)
    assert meant in found[f"the profile {name!r}"]


def test_variables_in_json_count_most(tmp_path):
    told = json.dumps({"spring": {"kafka": {"producer": {"acks": "1", "properties": {"linger.ms": 7}}}}})
    text = f"SPRING_KAFKA_PRODUCER_ACKS=all\nSPRING_APPLICATION_JSON='{told}'\n"
    found, reading = read(tmp_path, "a.env", text)
    assert found == {}
    assert {name: each.value for name, each in reading.scopes["producer"].items()} == {"acks": "1", "linger.ms": "7"}
    assert reading.scopes["producer"]["acks"].origin.endswith("a.env:2, SPRING_APPLICATION_JSON")
    found, _ = read(tmp_path, "a.env", "SPRING_KAFKA_PRODUCER_ACKS=all\nSPRING_APPLICATION_JSON='${JSON}'\n")
    assert list(found) == ["SPRING_APPLICATION_JSON"]


WORKER = "offset.storage.topic=o\n"
SOURCE = "connector.class=io.debezium.connector.postgresql.PostgresConnector\n"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("event.processing.failure.handling.mode=skip", "event.processing.failure.handling.mode"),
        ("event.processing.failure.handling.mode=warn", "event.processing.failure.handling.mode"),
        ("inconsistent.schema.handling.mode=skip", "inconsistent.schema.handling.mode"),
        ("schema.history.internal.skip.unparseable.ddl=true", "schema.history.internal.skip.unparseable.ddl"),
        ("errors.tolerance=all", "errors.tolerance"),
        ("mongo.errors.tolerance=data", "mongo.errors.tolerance"),
        ("behavior.on.malformed.documents=ignore", "behavior.on.malformed.documents"),
        ("drop.invalid.message=true", "drop.invalid.message"),
        ("connect.jdbc.error.policy=NOOP", "connect.jdbc.error.policy"),
        ("consumer.override.isolation.level=read_uncommitted", "consumer.override.isolation.level"),
        ("topic.creation.mine.replication.factor=1", "topic.creation.mine.replication.factor"),
    ],
)
def test_a_connector_that_may_pass_records_over_is_promised_nothing(tmp_path, line, name):
    worker, connector = tmp_path / "worker.properties", tmp_path / "connector.properties"
    worker.write_text(WORKER)
    connector.write_text(SOURCE + "errors.tolerance=none\n" * (not line.startswith("errors")))
    assert [each.name for each in read_all({}, [worker, connector])[0].unclear] == []
    connector.write_text(SOURCE + line + "\n")
    assert [each.name for each in read_all({}, [worker, connector])[0].unclear] == [name]


@pytest.mark.parametrize(
    ("line", "unclear"),
    [
        ("spring.cloud.config.uri: http://c", True),
        ("spring.cloud.vault.uri: http://v", True),
        ("spring.cloud.azure.app-configuration.endpoint: x", True),
        ("spring.cloud.config.enabled: false", False),
        ("spring.cloud.gateway.routes: x", False),
    ],
)
def test_settings_that_spring_takes_from_a_server_are_unclear(tmp_path, line, unclear):
    found, _ = read(tmp_path, "application.yml", SPRING + line + "\n")
    assert ["from a server" in why for why in found.values()] == [True] * unclear


def test_a_connector_that_sets_nothing_for_its_client_is_predicted_by_its_workers_defaults(tmp_path, capsys):
    connector, worker = tmp_path / "source.properties", tmp_path / "worker.properties"
    connector.write_text("connector.class=io.debezium.connector.mysql.MySqlConnector\n")
    worker.write_text("offset.storage.topic=o\nconfig.storage.topic=c\nstatus.storage.topic=s\ngroup.id=g\n")

    class Options:
        as_json = True

    given = ValidationInput(applications=(connector, worker), kafka_defaults=True)
    assert validate(given, Budget(0), Options()) == ExitCode.HELD
    weak = {each["anomaly"] for each in json.loads(capsys.readouterr().out)["weaknesses"]}
    assert {"duplicate", "reordered"} <= weak  # Connect's producers are not idempotent


@pytest.mark.parametrize(("topic", "code"), [(None, 0), ("3", 0), ("1", 2)])
def test_what_topics_are_made_with_counts_unless_a_file_says_what_the_topic_has(tmp_path, capsys, topic, code):
    class Options:
        as_json = True

    worker, connector = tmp_path / "worker.properties", tmp_path / "connector.properties"
    worker.write_text(WORKER + "producer.enable.idempotence=true\n")
    connector.write_text(
        SOURCE + "topic.creation.default.replication.factor=3\ntopic.creation.default.partitions=1\n"
        "topic.creation.default.min.insync.replicas=2\ntopic.creation.default.unclean.leader.election.enable=false\n"
    )
    file = None
    if topic is not None:
        file = tmp_path / "topic.properties"
        more = "min.insync.replicas=2\nunclean.leader.election.enable=false\n"
        file.write_text(f"replication.factor={topic}\n{more}")
    given = ValidationInput(applications=(worker, connector), topic=file)
    assert validate(given, Budget(0), Options()) == code
    told = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in told["unclear"]] == ["topic.creation.default.replication.factor"] * (code == 2)
    assert any("min.insync.replicas=2" in line for line in told["copies"])


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (
            "application.properties",
            "mp.messaging.incoming.i.connector=smallrye-kafka\nmp.messaging.incoming.i.failure-strategy=ignore\n",
            "mp.messaging.incoming.i.failure-strategy",
        ),
        (
            "application.properties",
            "mp.messaging.incoming.i.connector=smallrye-kafka\n"
            "mp.messaging.incoming.i.fail-on-deserialization-failure=false\n",
            "mp.messaging.incoming.i.fail-on-deserialization-failure",
        ),
        (
            "streams.properties",
            "application.id=a\ndefault.deserialization.exception.handler="
            "org.apache.kafka.streams.errors.LogAndContinueExceptionHandler\n",
            "default.deserialization.exception.handler",
        ),
    ],
)
def test_a_record_that_is_passed_over_when_it_fails_is_promised_nothing(tmp_path, name, text, told):
    found, _ = read(tmp_path, name, text)
    assert list(found) == [told]


def test_exit_code_of_what_lies_beside_is_unknown(tmp_path):
    class Options:
        as_json = False

    (tmp_path / "application.yml").write_text(SPRING)
    (tmp_path / "application-prod.yml").write_text("spring.kafka.producer.acks: 1\n")
    given = ValidationInput(applications=(tmp_path / "application.yml",), kafka_defaults=True)
    assert validate(given, Budget(0), Options()) == ExitCode.UNKNOWN
