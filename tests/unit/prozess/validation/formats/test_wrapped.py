"""Formats that once ended in a refusal: .NET, files and variables inside of Kubernetes' manifests, TOML and INI, kafka-go."""

import base64
import json
import textwrap

import pytest

from prozess.harness.errors import BadInput
from prozess.harness.exit_codes import ExitCode
from prozess.validation.command import ValidationInput, validate
from prozess.validation.comparison import Budget
from prozess.validation.reading import SCOPES
from prozess.validation.sources import read_all, read_file

APPSETTINGS = {
    "Logging": {"LogLevel": {"Default": "Information"}},
    "Kafka": {
        "BootstrapServers": "kafka:9092",
        "Producer": {"Acks": "Leader", "EnableIdempotence": False, "MessageSendMaxRetries": 3},
        "Consumer": {"GroupId": "orders", "AutoOffsetReset": "Latest", "IsolationLevel": "ReadUncommitted"},
    },
}


def read(tmp_path, text, name, *wanted):
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else json.dumps(text, indent=1))
    return read_file(path, wanted or SCOPES)


def values(reading, scope):
    return {name: setting.value for name, setting in reading.scopes.get(scope, {}).items()}


def names(reading):
    return [each.name for each in reading.unclear]


# --- .NET ---


def test_settings_of_dotnet_are_those_of_librdkafka(tmp_path):
    reading = read(tmp_path, APPSETTINGS, "appsettings.json")
    assert reading.library == "librdkafka"
    assert not reading.stands_in, "Confluent.Kafka runs librdkafka"
    assert values(reading, "producer") == {
        "acks": "1", "enable.idempotence": "false", "message.send.max.retries": "3", "bootstrap.servers": "kafka:9092",
    }  # fmt: skip
    assert values(reading, "consumer") == {
        "group.id": "orders", "auto.offset.reset": "latest", "isolation.level": "read_uncommitted",
        "bootstrap.servers": "kafka:9092",
    }  # fmt: skip
    assert (names(reading), reading.aside) == ([], ["Logging"])


@pytest.mark.parametrize(
    ("part", "name", "value", "told"),
    [
        ("Producer", "Ackz", "All", ["Kafka.Producer.Ackz"]),
        ("Producer", "EnableDeliveryReports", False, ["Kafka.Producer.EnableDeliveryReports"]),
        ("Producer", "EnableDeliveryReports", True, []),
        ("Producer", "LingerMs", "${LINGER}", ["Kafka.Producer.LingerMs"]),
        ("Consumer", "EnableAutoCommit", {"a": 1}, []),
        ("Consumer", "EnableAutoCommit", [{"a": 1}], ["Kafka.Consumer.EnableAutoCommit"]),
        ("Producer", "Topic", "orders", []),
    ],
)
def test_what_is_not_understood_of_dotnet_is_named(tmp_path, part, name, value, told):
    settings = json.loads(json.dumps(APPSETTINGS))
    settings["Kafka"][part][name] = value
    assert names(read(tmp_path, settings, "appsettings.json")) == told


def test_two_producers_in_one_file_of_dotnet_are_not_understood(tmp_path):
    settings = APPSETTINGS | {"Other": {"Producer": {"Acks": "All"}}}
    assert names(read(tmp_path, settings, "appsettings.json")) == ["Other.Producer.Acks"]


def test_the_file_of_an_environment_beside_appsettings_is_unclear_unless_it_is_given(tmp_path):
    base, over = tmp_path / "appsettings.json", tmp_path / "appsettings.Production.json"
    base.write_text(json.dumps(APPSETTINGS))
    over.write_text(json.dumps({"Kafka": {"Producer": {"Acks": "All"}}}))
    (reading,) = read_all({}, [base])
    assert names(reading) == ["appsettings.Production.json"]
    (reading,) = read_all({}, [base], ["Staging"])
    assert names(reading) == []
    (reading,) = read_all({}, [base, over], ["Production"])
    assert (names(reading), values(reading, "producer")["acks"]) == ([], "all")


# --- Kubernetes ---

MAP = """
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: app}
    data:
      application.yml: |
        spring.kafka.producer:
          acks: 1
          retries: ${RETRIES}
      other: text
"""


def test_a_file_inside_of_a_config_map_is_read_with_the_lines_of_the_manifest(tmp_path):
    reading = read(tmp_path, textwrap.dedent(MAP).lstrip(), "map.yaml")
    assert values(reading, "producer")["acks"] == "1"
    assert reading.scopes["producer"]["acks"].origin.startswith(f"{tmp_path}/map.yaml:7, ConfigMap/app.application.yml")
    assert reading.path == tmp_path / "map.yaml"


def test_files_of_a_secret_and_of_profiles_lie_over_one_another(tmp_path):
    text = base64.b64encode(b"spring.kafka.producer.acks=all\n").decode()
    more = textwrap.dedent(MAP) + (
        "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {application-prod.properties: " + text + "}\n"
    )
    path = tmp_path / "all.yaml"
    path.write_text(more)
    reading = read_file(path, SCOPES, ["prod"])
    assert values(reading, "producer")["acks"] == "all"


def test_files_with_kafkas_own_names_are_of_the_client_that_they_are_named_after(tmp_path):
    text = """
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: app}
        data:
          producer.properties: "acks=1"
          consumer.properties: "auto.offset.reset=latest"
    """
    reading = read(tmp_path, textwrap.dedent(text), "map.yaml")
    assert (values(reading, "producer"), values(reading, "consumer")) == (
        {"acks": "1"},
        {"auto.offset.reset": "latest"},
    )
    twice = (
        textwrap.dedent(text)
        .replace("consumer.properties", "producer-2.properties")
        .replace("auto.offset.reset=latest", "acks=0")
    )
    with pytest.raises(BadInput, match="only one can be meant"):
        read(tmp_path, twice, "map.yaml")


DEPLOYMENT = """
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: shop}
    spec:
      template:
        spec:
          containers:
            - name: app
              image: shop:1
              env:
                - {name: SPRING_KAFKA_PRODUCER_ACKS, value: "1"}
                - {name: PORT, value: "80"}
"""


def test_variables_of_a_deployment_are_read_as_those_of_an_application(tmp_path):
    reading = read(tmp_path, textwrap.dedent(DEPLOYMENT), "deployment.yaml")
    assert values(reading, "producer") == {"acks": "1"}
    assert names(reading) == []


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('value: "1"', "valueFrom: {secretKeyRef: {name: s, key: k}}", "SPRING_KAFKA_PRODUCER_ACKS"),
        ("env:", "envFrom: [{secretRef: {name: s}}]\n          env:", "Deployment/shop.app.envFrom[0]"),
        ("PORT", "SPRING_KAFKA_PRODUCER_ACKZ", "spring.kafka.producer.ackz"),
    ],
)
def test_what_is_not_understood_of_a_deployment_promises_nothing(tmp_path, before, after, told):
    class Options:
        as_json = False

    assert before in DEPLOYMENT
    path = tmp_path / "deployment.yaml"
    path.write_text(textwrap.dedent(DEPLOYMENT).replace(before, after))
    if told in names(read_file(path, SCOPES)):
        assert (
            validate(ValidationInput(applications=(path,), kafka_defaults=True), Budget(0), Options())
            == ExitCode.UNKNOWN
        )
    else:
        (setting,) = read_file(path, SCOPES).scopes["producer"].values()
        assert setting.value == "${SPRING_KAFKA_PRODUCER_ACKS}"


# --- Variables of Connect and of SmallRye ---


def test_variables_of_a_connect_container_are_its_workers_settings(tmp_path):
    names_ = ("BOOTSTRAP_SERVERS=k:1", "OFFSET_STORAGE_TOPIC=o", "PRODUCER_ACKS=1", "LOG4J_LOGGERS=x", "SURPRISE=1")
    text = "".join(f"CONNECT_{name}\n" for name in names_)
    reading = read(tmp_path, text, "connect.env")
    assert values(reading, "producer") == {"acks": "1"}
    assert names(reading) == ["surprise"]


def test_variables_of_channels_are_those_of_smallrye(tmp_path):
    text = (
        "MP_MESSAGING_OUTGOING_PRICE_FEED_CONNECTOR=smallrye-kafka\nMP_MESSAGING_OUTGOING_PRICE_FEED_ACKS=all\n"
        "MP_MESSAGING_OUTGOING_PRICE_FEED_ENABLE_IDEMPOTENCE=true\nKAFKA_BOOTSTRAP_SERVERS=k:1\n"
    )
    reading = read(tmp_path, text, "app.env")
    assert values(reading, "producer")["acks"] == "all"
    assert values(reading, "producer")["enable.idempotence"] == "true"
    more = text + "MP_MESSAGING_INCOMING_ORDERS_FAILURE_STRATEGY=ignore\nMP_MESSAGING_OUTGOING_PRICE_FEED_SURPRISE=1\n"
    (reading,) = read_all({}, [_written(tmp_path, more)])
    assert "mp.messaging.incoming.orders.failure-strategy" in names(reading)


def _written(tmp_path, text):
    path = tmp_path / "more.env"
    path.write_text(text)
    return path


# --- TOML, INI, HCL ---


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("app.toml", '[producer]\nacks = "1"\n"linger.ms" = 5\n[consumer]\nauto.offset.reset = "latest"\n'),
        ("app.ini", "[producer]\nacks = 1\nlinger.ms = 5\n[consumer]\nauto.offset.reset: latest\n"),
    ],
)
def test_toml_and_ini_are_read_with_their_lines(tmp_path, name, text):
    reading = read(tmp_path, text, name)
    assert values(reading, "producer") == {"acks": "1", "linger.ms": "5"}
    assert values(reading, "consumer") == {"auto.offset.reset": "latest"}
    assert reading.scopes["producer"]["acks"].origin == f"{tmp_path}/{name}:2"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.toml", "acks = 1\nacks = 2\n", "is not TOML"),
        ("a.ini", "[producer]\nacks=1\nacks=2\n", "is not INI"),
        ("main.tf", 'resource "kafka_topic" "a" {}\n', "Terraform's HCL .write the `config` of its topic"),
    ],
)
def test_what_is_no_such_file_is_refused_by_name(tmp_path, name, text, told):
    with pytest.raises(BadInput, match=told):
        read(tmp_path, text, name)


# --- kafka-go ---


def test_a_writer_of_kafka_go_waits_for_nobody_unless_it_is_set(tmp_path):
    writer = {"Writer": {"Addr": "k:1", "MaxAttempts": 3, "BatchTimeout": "10ms"}, "Reader": {"GroupID": "g"}}
    reading = read(tmp_path, writer, "a.json")
    assert reading.library == "kafka-go"
    assert reading.defaults["producer"]["acks"].value == "0"
    assert values(reading, "producer")["retries"] == "2"
    writer["Writer"] |= {"RequiredAcks": "RequireAll", "Async": True}
    reading = read(tmp_path, writer, "a.json")
    assert values(reading, "producer")["acks"] == "all"
    assert names(reading) == ["Writer.Async"]


@pytest.mark.parametrize(
    ("writer", "acks", "told"),
    [({"Addr": "k"}, "0", []), ({"Brokers": ["k"]}, "all", []), ({"MaxAttempts": 2}, "0", ["RequiredAcks"])],
)
def test_what_kafka_go_takes_for_required_acks_depends_on_how_the_writer_is_made(tmp_path, writer, acks, told):
    reading = read(tmp_path, {"kafka-go": {"Writer": writer}}, "a.json")
    assert (reading.defaults["producer"]["acks"].value, names(reading)) == (acks, told)
