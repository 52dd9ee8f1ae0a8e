"""Files of JVM frameworks that `prozess validate` reads: of each a real example, and near misses that promise nothing."""

import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from prozess.harness.config.known_properties import properties_of
from prozess.harness.errors import BadInput
from prozess.harness.exit_codes import ExitCode
from prozess.validation.command import ValidationInput, translate, validate
from prozess.validation.comparison import Budget, Comparison
from prozess.validation.prediction import Prediction
from prozess.validation.reading import SCOPES, is_foreign, of_no_promise
from prozess.validation.sources import read_all, read_file
from tests.support.examples import examples
from tests.support.predictions import VERSION
from tests.unit.prozess.app.test_cli import called

TOPIC = "replication.factor=3\nmin.insync.replicas=2\nunclean.leader.election.enable=false\n"


class Files:
    """A folder to write files into, and what becomes of them."""

    def __init__(self, folder):
        self.folder = folder
        self.write("topic.properties", TOPIC)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text if isinstance(text, str) else json.dumps(text, indent=1))
        return path

    def predicted(self, *names, profiles=(), **more):
        paths = tuple(self.folder / name for name in names)
        topic = self.folder / "topic.properties"
        return Prediction(
            translate(ValidationInput(applications=paths, profiles=profiles, topic=topic, **more)), kafka_defaults=True
        )

    def base(self, *names, **more):
        return self.predicted(*names, **more).parts.base

    def unclear(self, *names, profiles=()):
        """Names that were not understood; of such a configuration nothing is promised, and the exit code says so."""
        found = self.predicted(*names, profiles=profiles)
        if found.unclear:
            assert found.promised == ()
            assert Comparison(found, ()).exit_code is ExitCode.UNKNOWN
        return [each.name for each in found.unclear]


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


# --- Spring Boot

SPRING = """
server:
  port: 8080
spring:
  application:
    name: orders
  kafka:
    bootstrap-servers: ${KAFKA_SERVERS}
    properties:
      security.protocol: SASL_SSL
      sasl.jaas.config: ${JAAS}
    producer:
      acks: all
      compressionType: lz4
      batch-size: 32KB
      value-serializer: org.springframework.kafka.support.serializer.JsonSerializer
      properties:
        linger.ms: 20
        "[delivery.timeout.ms]": 60000
        spring.json.add.type.headers: false
    consumer:
      group-id: orders
      auto_offset_reset: earliest
      isolation-level: READ_COMMITTED
      max-poll-interval: 2m
    listener:
      ack-mode: record
      concurrency: 3
"""


def test_a_spring_application_is_read_with_relaxed_names_and_springs_defaults(files):
    files.write("application.yml", SPRING)
    found = files.predicted("application.yml")
    base = found.parts.base
    assert files.unclear("application.yml") == []
    assert {"lost", "duplicate", "unprocessed"} <= {guarantee.anomaly for guarantee in found.promised}
    assert base["producer.acks"] == "all"
    assert base["producer.compression_type"] == "lz4"
    assert base["producer.delivery_timeout_ms"] == 60000
    assert base["producer.linger_ms"] == 20
    assert base["producer.properties.batch.size"] == "32768"
    assert base["group.commit"] == "sync-after"
    assert base["group.auto_offset_reset"] == "earliest"
    assert base["group.isolation_level"] == "read_committed"
    assert base["group.max_poll_interval_ms"] == 120000
    assert found.parts.origins["producer.acks"].endswith("application.yml:13")


def test_acks_1_of_a_spring_application_is_a_weakness(files):
    files.write("application.properties", "spring.kafka.producer.acks=1\nspring.kafka.producer.retries=5\n")
    found = files.predicted("application.properties")
    assert "lost" in {weakness.guarantee.anomaly for weakness in found.weaknesses}
    assert not any(key.startswith("group.") for key in found.parts.base), "it has no consumer"


def test_springs_map_of_properties_counts_more_than_its_names_and_both_more_than_shared_ones(files):
    text = "spring.kafka.properties.acks=0\nspring.kafka.producer.acks=1\n"
    files.write("a.properties", text)
    assert files.base("a.properties")["producer.acks"] == "1"
    files.write("a.properties", text + "spring.kafka.producer.properties[acks]=all\n")
    assert files.base("a.properties")["producer.acks"] == "all"
    files.write("a.properties", "spring.kafka.producer.client-id=a\nspring.kafka.properties.acks=0\n")
    assert files.base("a.properties")["producer.acks"] == "0"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("spring.kafka.producer.ackz=1", "spring.kafka.producer.ackz"),
        ("spring.kafka.producer.acks=${ACKS:1}", "acks"),
        ("spring.kafka.producer.properties.my.thing=1", "my.thing"),
        ("spring.kafka.producer.batch-size=much", "spring.kafka.producer.batchsize"),
        ("spring.kafka.listener.ack-mode=sometimes", "spring.kafka.listener.ackmode"),
        ("spring.kafka.listener.surprise=1", "spring.kafka.listener.surprise"),
        ("spring.kafka.streams.application-id=a", "spring.kafka.streams.applicationid"),
        ("spring.kafka.retry.topic.enabled=true", "spring.kafka.retry.topic.enabled"),
        ("spring.cloud.stream.kafka.binder.required-acks=1", "spring.cloud.stream.kafka.binder.requiredacks"),
        ("spring.config.import=configserver:", "spring.config.import"),
        ("my.kafka.producer.acks=0", "my.kafka.producer.acks"),
        ("spring.kafka.producer.transaction-id-prefix=tx-", "spring.kafka.producer.transaction-id-prefix"),
    ],
)
def test_what_is_not_understood_of_a_spring_application_is_named_and_promises_nothing(files, line, name):
    files.write("a.properties", "spring.kafka.producer.retries=9\nspring.kafka.consumer.group-id=g\n" + line + "\n")
    assert files.unclear("a.properties") == [name]


def test_a_spring_listener_that_acknowledges_by_hand_commits_as_no_file_tells(files):
    files.write("a.properties", "spring.kafka.consumer.group-id=g\nspring.kafka.listener.ack-mode=MANUAL\n")
    found = files.predicted("a.properties")
    assert any("no file says how the application commits" in note for note in found.parts.notes)
    assert files.base("a.properties", commits="sync-before")["group.commit"] == "sync-before"


PROFILES = """
spring.kafka.producer.acks: all
---
spring.config.activate.on-profile: prod
spring.kafka.producer.acks: 1
---
spring.config.activate.on-profile: "!prod"
spring.kafka.producer.acks: 0
"""


def test_documents_of_profiles_count_where_they_are_active_and_are_unclear_where_nobody_says_which_is(files):
    files.write("application.yaml", PROFILES)
    assert files.base("application.yaml", profiles=("prod",))["producer.acks"] == "1"
    assert files.base("application.yaml", profiles=("test",))["producer.acks"] == "0"
    assert files.unclear("application.yaml") == ["spring.kafka.producer.acks"] * 2
    files.write("application.yaml", "spring.profiles.active: prod\n" + PROFILES)
    assert files.base("application.yaml")["producer.acks"] == "1"
    files.write("application.yaml", PROFILES.replace('"!prod"', '"a & b"'))
    assert files.unclear("application.yaml", profiles=("prod",)) == ["spring.kafka.producer.acks"]


def test_documents_of_a_properties_file_are_separated_as_spring_does(files):
    text = (
        "spring.kafka.producer.acks=all\n#---\nspring.config.activate.on-profile=prod\nspring.kafka.producer.acks=1\n"
    )
    files.write("application.properties", text)
    assert files.base("application.properties", profiles=("prod",))["producer.acks"] == "1"
    assert files.base("application.properties", profiles=("eu",))["producer.acks"] == "all"


def test_a_profiles_file_lies_over_the_application_and_the_environment_over_both(files):
    files.write(
        "application.yml",
        "spring.kafka:\n  producer: {acks: all, retries: 7}\n  consumer: {group-id: g}\n"
        "  listener: {ack-mode: manual}\n",
    )
    files.write("application-prod.yml", "spring.kafka.producer.acks: 1\n")
    both = files.base("application-prod.yml", "application.yml", commits=None)
    assert both["producer.acks"] == "1"
    assert both["group.commit"] == "sync-after"
    files.write(".env", "SPRING_KAFKA_PRODUCER_ACKS=0\nSPRING_KAFKA_PRODUCER_PROPERTIES_LINGER_MS=7\nHOME=/root\n")
    found = files.predicted(".env", "application-prod.yml", "application.yml")
    assert (found.parts.base["producer.acks"], found.parts.base["producer.linger_ms"]) == ("0", 7)
    assert found.parts.readings[-1].over


def test_two_applications_that_say_the_same_are_refused(files):
    one, other = files.write("one.yml", SPRING), files.write("other.yml", SPRING)
    with pytest.raises(BadInput, match="each say what the producer is set to"):
        read_all({}, (one, other))


def test_a_spring_file_without_kafka_is_refused_with_its_format(files):
    path = files.write("application.yml", "spring:\n  application:\n    name: a\n")
    with pytest.raises(BadInput, match=r"application\.yml, Spring Boot's application\.yml.*no setting of a producer"):
        validate(ValidationInput(producer=path), Budget(0), None)
    with pytest.raises(BadInput, match=r"No settings of a producer, a consumer, a topic or brokers.*Spring Boot's"):
        validate(ValidationInput(applications=(path,)), Budget(0), None)


def test_a_java_framework_stays_one_beside_files_of_librdkafka(files):
    spring = files.write(
        "a.properties", "spring.kafka.consumer.group-id=g\nspring.kafka.consumer.properties.log_level=1\n"
    )
    plain = files.write("p.properties", "message.timeout.ms=5000\nacks=all\n")
    found = Prediction(translate(ValidationInput(producer=plain, consumer=spring)))
    assert [each.name for each in found.unclear] == ["log_level"], "librdkafka's, and not Java's"
    assert found.parts.base["producer.client"] == "librdkafka"
    assert (found.parts.base["group.client"], found.parts.base["group.isolation_level"]) == ("java", "read_uncommitted")


# --- Kafka Connect

WORKER = """
bootstrap.servers=kafka:9092
group.id=connect
key.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=false
value.converter=org.apache.kafka.connect.json.JsonConverter
offset.storage.topic=connect-offsets
offset.storage.replication.factor=1
config.storage.topic=connect-configs
config.storage.replication.factor=3
status.storage.topic=connect-status
plugin.path=/usr/share/java
producer.compression.type=zstd
"""
SOURCE = {
    "name": "inventory",
    "config": {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": "postgres",
        "database.password": "${file:/secrets:password}",
        "topic.prefix": "db",
        "schema.history.internal.kafka.bootstrap.servers": "kafka:9092",
        "producer.override.acks": "1",
    },
}
SINK = "name=files\nconnector.class=org.apache.kafka.connect.file.FileStreamSinkConnector\ntopics=orders\nfile=/tmp/x\n"


def test_a_worker_has_connects_defaults_for_the_clients_of_its_connectors(files):
    files.write("worker.properties", WORKER)
    found = files.predicted("worker.properties")
    base = found.parts.base
    assert files.unclear("worker.properties") == []
    assert (base["producer.acks"], base["producer.enable_idempotence"], base["producer.max_in_flight"]) == (
        "all",
        False,
        1,
    )
    assert base["producer.delivery_timeout_ms"] == 2**31 - 1
    assert base["producer.compression_type"] == "zstd"
    assert (base["group.commit"], base["group.auto_offset_reset"]) == ("sync-after", "earliest")
    assert "duplicate" in {weakness.guarantee.anomaly for weakness in found.weaknesses}
    internal = found.parts.readings[-1].internal
    assert {name: setting.value for name, setting in internal.items()} == {
        "offset.storage.replication.factor": "1",
        "config.storage.replication.factor": "3",
    }


def test_a_connector_counts_more_than_its_worker_and_has_one_part(files):
    files.write("worker.properties", WORKER)
    files.write("source.json", SOURCE)
    found = files.predicted("source.json", "worker.properties")
    assert found.unclear == ()
    assert found.parts.base["producer.acks"] == "1"
    assert found.parts.base["producer.compression_type"] == "zstd"
    assert found.parts.consumer is None
    assert "lost" in {weakness.guarantee.anomaly for weakness in found.weaknesses}
    files.write("sink.properties", SINK)
    found = files.predicted("worker.properties", "sink.properties")
    assert found.parts.producer is None
    assert found.parts.base["group.auto_offset_reset"] == "earliest"


def test_a_bare_configuration_of_a_connector_is_read_alike(files):
    files.write("worker.properties", WORKER)
    files.write("source.json", SOURCE["config"])
    assert files.base("source.json", "worker.properties")["producer.acks"] == "1"


def test_a_connector_without_its_worker_promises_nothing(files):
    files.write("source.json", SOURCE)
    assert files.unclear("source.json") == ["connector.class"]


def test_exactly_once_of_a_worker_makes_its_sources_transactional(files):
    files.write("worker.properties", WORKER + "exactly.once.source.support=enabled\n")
    files.write("source.json", {**SOURCE, "config": {**SOURCE["config"], "producer.override.acks": "all"}})
    found = files.predicted("worker.properties", "source.json")
    assert found.parts.transactional
    assert found.parts.base["producer.enable_idempotence"] is True


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("producer.acks", "1"),
        ("errors.tolerance", "all"),
        ("errors.tolerance", "${TOLERANCE}"),
        ("connector.class", "${CLASS}"),
        ("schema.history.internal.producer.acks", "1"),
        ("connector.class", "org.apache.kafka.connect.mirror.MirrorSourceConnector"),
        ("producer.override.my.thing", "1"),
    ],
)
def test_what_is_not_understood_of_a_connector_is_named_and_promises_nothing(files, name, value):
    files.write("worker.properties", WORKER)
    files.write("source.json", {"name": "a", "config": {**SOURCE["config"], name: value}})
    assert files.unclear("source.json", "worker.properties") == [name.removeprefix("producer.override.")]


@pytest.mark.parametrize("line", ["acks=1", "surprise=1", "producer.acks=$(ACKS)"])
def test_what_is_not_understood_of_a_worker_is_named_and_promises_nothing(files, line):
    files.write("worker.properties", WORKER + line + "\n")
    assert files.unclear("worker.properties") == [line.partition("=")[0].removeprefix("producer.")]


def test_a_connector_that_sets_what_its_worker_forbids_promises_nothing(files):
    files.write("worker.properties", WORKER + "connector.client.config.override.policy=None\n")
    files.write("source.json", SOURCE)
    assert files.unclear("source.json", "worker.properties") == ["acks"]


# --- Kafka Streams

STREAMS = """
application.id=totals
bootstrap.servers=kafka:9092
num.stream.threads=4
replication.factor=2
default.key.serde=org.apache.kafka.common.serialization.Serdes$StringSerde
processing.guarantee=at_least_once
producer.acks=1
main.consumer.max.poll.interval.ms=90000
consumer.max.poll.interval.ms=80000
"""


def test_a_streams_application_has_streams_defaults_and_its_clients_prefixes(files):
    files.write("streams.properties", STREAMS)
    found = files.predicted("streams.properties")
    base = found.parts.base
    assert found.unclear == ()
    assert (base["producer.acks"], base["producer.linger_ms"]) == ("1", 100)
    assert (base["group.commit"], base["group.max_poll_interval_ms"]) == ("sync-after", 90000)
    assert base["group.auto_offset_reset"] == "earliest"
    assert "lost" in {weakness.guarantee.anomaly for weakness in found.weaknesses}
    assert found.parts.readings[-1].internal["replication.factor"].value == "2"


def test_exactly_once_of_streams_is_a_transactional_producer_and_a_consumer_that_is_not_predicted(files):
    path = files.write("streams.properties", "application.id=a\nprocessing.guarantee=exactly_once_v2\n")
    given = ValidationInput(producer=path, topic=files.folder / "topic.properties")
    found = Prediction(translate(given))
    assert found.unclear == ()
    assert found.parts.transactional
    assert found.parts.base["transaction.transaction_timeout_ms"] == 10000
    assert "torn" in {guarantee.anomaly for guarantee in found.promised}
    assert files.unclear("streams.properties") == ["processing.guarantee"]
    assert files.base("streams.properties")["group.isolation_level"] == "read_committed"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("surprise=1", "surprise"),
        ("producer.acks=${env:ACKS}", "acks"),
        ("restore.consumer.max.poll.records=1", "restore.consumer.max.poll.records"),
        ("default.production.exception.handler=com.example.Ignore", "default.production.exception.handler"),
        ("default.client.supplier=com.example.Mine", "default.client.supplier"),
        ("processing.guarantee=${G}", "processing.guarantee"),
        ("processing.guarantee=exactly_once", "processing.guarantee"),
    ],
)
def test_what_is_not_understood_of_a_streams_application_is_named_and_promises_nothing(files, line, name):
    files.write("streams.properties", "application.id=a\nproducer.linger.ms=5\n" + line + "\n")
    assert set(files.unclear("streams.properties")) == {name}


def test_a_guarantee_that_streams_does_not_have_is_refused(files):
    files.write("streams.properties", "application.id=a\nprocessing.guarantee=twice\n")
    with pytest.raises(BadInput, match=r"streams\.properties:2: processing.guarantee = 'twice' must be"):
        files.predicted("streams.properties")


# --- Quarkus

QUARKUS = """
quarkus.application.name=prices
kafka.bootstrap.servers=kafka:9092
mp.messaging.outgoing.prices.connector=smallrye-kafka
mp.messaging.outgoing.prices.topic=prices
mp.messaging.outgoing.prices.value.serializer=org.apache.kafka.common.serialization.DoubleSerializer
mp.messaging.incoming.orders.connector=smallrye-kafka
mp.messaging.incoming.orders.auto.offset.reset=earliest
mp.messaging.incoming.orders.failure-strategy=fail
"""


def test_a_quarkus_application_has_smallryes_defaults_of_which_acks_1_loses(files):
    files.write("application.properties", QUARKUS)
    found = files.predicted("application.properties")
    assert found.unclear == ()
    assert found.parts.base["producer.acks"] == "1"
    assert "SmallRye's default" in found.parts.origins["producer.acks"]
    assert found.parts.base["group.commit"] == "sync-after"
    assert "lost" in {weakness.guarantee.anomaly for weakness in found.weaknesses}
    files.write("application.properties", QUARKUS + "mp.messaging.outgoing.prices.acks=all\n")
    found = files.predicted("application.properties")
    assert "lost" in {guarantee.anomaly for guarantee in found.promised}


def test_a_channel_counts_more_than_the_connector_and_that_more_than_kafka(files):
    text = "kafka.acks=0\nmp.messaging.outgoing.a.topic=a\n"
    files.write("application.properties", text)
    assert files.base("application.properties")["producer.acks"] == "0"
    text += "mp.messaging.connector.smallrye-kafka.acks=1\n"
    files.write("application.properties", text)
    assert files.base("application.properties")["producer.acks"] == "1"
    files.write("application.properties", text + "mp.messaging.outgoing.a.acks=all\n")
    assert files.base("application.properties")["producer.acks"] == "all"


def test_quarkus_profiles_are_read_and_prod_is_the_one_that_is_active(files):
    yaml = 'mp:\n  messaging:\n    outgoing:\n      a:\n        acks: all\n"%dev":\n  mp.messaging.outgoing.a.acks: 0\n'
    files.write("application.yaml", yaml + '"%prod":\n  mp.messaging.outgoing.a.acks: 1\n')
    assert files.base("application.yaml")["producer.acks"] == "1"
    assert files.base("application.yaml", profiles=("dev",))["producer.acks"] == "0"
    assert files.base("application.yaml", profiles=("eu",))["producer.acks"] == "all"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("mp.messaging.outgoing.prices.acks=${ACKS:all}", "acks"),
        ("mp.messaging.outgoing.prices.surprise=1", "surprise"),
        ("mp.messaging.outgoing.prices.retries=3", "mp.messaging.outgoing.prices.retries"),
        (
            "mp.messaging.outgoing.prices.waitForWriteCompletion=false",
            "mp.messaging.outgoing.prices.waitForWriteCompletion",
        ),
        ("mp.messaging.incoming.orders.enable.auto.commit=true", "mp.messaging.incoming.orders.enable.auto.commit"),
        ("mp.messaging.incoming.orders.commit-strategy=latest", "mp.messaging.incoming.orders.commit-strategy"),
        ("mp.messaging.outgoing.other.acks=0", "mp.messaging.outgoing.other.acks"),
        ("quarkus.kafka-streams.topics=a", "quarkus.kafka-streams.topics"),
        ("my.kafka.acks=0", "my.kafka.acks"),
    ],
)
def test_what_is_not_understood_of_a_quarkus_application_is_named_and_promises_nothing(files, line, name):
    files.write("application.properties", QUARKUS + line + "\n")
    assert files.unclear("application.properties") == [name]


# --- the command


def test_the_command_takes_applications_profiles_and_says_what_is_unclear(files, monkeypatch, capsys):
    path = files.write("application.yml", PROFILES)
    arguments = [
        "validate",
        "--minutes",
        "0",
        "--topic",
        str(files.folder / "topic.properties"),
        "--application",
        str(path),
    ]
    assert called(monkeypatch, *arguments) == ExitCode.UNKNOWN
    said = " ".join(capsys.readouterr().out.split())
    assert "no file says which profile is active: say --profile" in said
    assert f"{path}, Spring Boot's application.yml: 1 setting understood, 2 not of Kafka, 2 not understood" in said
    assert "prozess promises none of these" in said
    path.write_text(
        path.read_text().replace('"!prod"', '"!prod"\nserver.port: 1\n---\nspring.config.activate.on-profile: eu')
    )
    assert called(monkeypatch, *arguments, "--profile", "prod") == ExitCode.HELD
    assert "acks=1" in capsys.readouterr().out


# --- formats that are known by sight


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.yml", "kafka:\n  producers:\n    default:\n      acks: all\n", "Micronaut's configuration"),
        ("a.properties", "camel.component.kafka.request-required-acks=all\n", "Camel's configuration"),
        ("mm2.properties", "clusters=A,B\nA->B.enabled=true\nA.producer.acks=1\n", "MirrorMaker 2's configuration"),
        ("a.yaml", "apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: 3}\n", "a Deployment of Kubernetes"),
        ("a.conf", "akka.kafka.producer {\n  acks = all\n}\n", "Akka's or Pekko's configuration"),
        (
            "a.json",
            '{"kafkaHost": "k:1", "producer": {"requireAcks": 1}, "consumer": {"sessionTimeout": 3}}',
            "kafka-node's configuration",
        ),
        (
            "a.json",
            '{"bootstrap_servers": "k:1", "topic_id": "t", "acks": "1", "codec": "json"}',
            "Logstash's or Beats' configuration",
        ),
        ("a.conf", 'input { kafka { topics => ["t"] } }\n', "Logstash's or Beats' configuration"),
        ("a.conf", "[OUTPUT]\n    Name kafka\n    rdkafka.acks 0\n", "Vector's or Fluent Bit's configuration"),
        ("a.toml", '[[outputs.kafka]]\nbrokers = ["k"]\nrequired_acks = 0\n', "Telegraf's configuration"),
        (
            "a.yaml",
            "exporters: {kafka/two: {producer: {required_acks: 0}}}\n",
            "the OpenTelemetry Collector's configuration",
        ),
        ("a.tf.json", '{"resource": {"kafka_topic": {"t": {"replication_factor": 3}}}}', "Terraform's configuration"),
        ("a.properties", "id=r\napi.v3.enable=true\nproducer.acks=0\n", "the REST Proxy's configuration"),
        ("a.properties", "ksql.service.id=s\nksql.streams.producer.acks=all\n", "ksqlDB's configuration"),
        ("a.properties", "kafka.rest.advertised.listeners=x\nproducer.acks=all\n", "the REST Proxy's configuration"),
        ("a.yml", "services: {k1: {image: apache/kafka:4.1.0, environment: {KAFKA_X: 1}}}\n", "a Compose file"),
        ("a.yml", "all: {vars: {kafka_broker_custom_properties: {a: 1}}}\n", "an inventory of cp-ansible"),
    ],
)
@pytest.mark.parametrize("option", ["producer", "applications"])
def test_a_format_that_is_not_read_is_refused_by_its_name(files, name, text, told, option):
    path = files.write(name, text)
    with pytest.raises(BadInput, match=f"{name} is {told}, which prozess does not read. .*(Write|Give) "):
        translate(ValidationInput(**{option: (path,) if option == "applications" else path}))


# --- of all of them

WHOLE = {
    "spring.properties": (
        "spring.kafka.producer.acks=all\nspring.kafka.consumer.group-id=g\n",
        ("spring.kafka.producer.", "spring.kafka.consumer.", "spring.kafka.producer.properties.", "spring.kafka.listener.",
         "spring.kafka.properties."),
    ),
    "worker.properties": (WORKER, ("", "producer.", "consumer.")),
    "streams.properties": (STREAMS, ("", "producer.", "consumer.", "main.consumer.", "restore.consumer.")),
    "quarkus.properties": (
        QUARKUS,
        ("kafka.", "mp.messaging.outgoing.prices.", "mp.messaging.incoming.orders.",
         "mp.messaging.connector.smallrye-kafka."),
    ),
}  # fmt: skip
WORDS = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=9)
NAMES = st.lists(WORDS, min_size=1, max_size=3).map(".".join)
NO_VALUES = st.sampled_from(["${%s}", "${%s:all}", "$(%s)", "{{ %s }}", "%%{%s}", "#{%s}", "<%s>"])
MATTERS = {
    "spring.properties": (
        "spring.kafka.producer.acks",
        "spring.kafka.consumer.enable-auto-commit",
        "spring.kafka.producer.transaction-id-prefix",
        "spring.kafka.listener.ack-mode",
        "spring.kafka.listener.async-acks",
    ),
    "worker.properties": (
        "producer.acks",
        "consumer.isolation.level",
        "exactly.once.source.support",
        "connector.client.config.override.policy",
    ),
    "streams.properties": ("producer.acks", "processing.guarantee", "consumer.auto.offset.reset"),
    "quarkus.properties": (
        "mp.messaging.outgoing.prices.acks",
        "mp.messaging.incoming.orders.auto.offset.reset",
        "mp.messaging.outgoing.prices.waitForWriteCompletion",
        "mp.messaging.incoming.orders.commit-strategy",
        "mp.messaging.incoming.orders.failure-strategy",
        "quarkus.profile",
    ),
}


def known(name):
    tables = [properties_of(scope, "java", VERSION) for scope in ("producer", "consumer", "topic")]
    return any(name in table for table in tables) or is_foreign(name) or of_no_promise(name)


@pytest.mark.parametrize("name", WHOLE)
def test_each_example_is_understood_as_a_whole(files, name):
    files.write(name, WHOLE[name][0])
    assert files.unclear(name) == []
    assert files.predicted(name).promised


@pytest.mark.parametrize("name", WHOLE)
@settings(max_examples=examples(100), deadline=None)
@given(
    lines=st.lists(st.tuples(st.integers(0, 5), NAMES, st.sampled_from(["1", "true", "all", "", "${a}"])), max_size=6)
)
def test_every_name_of_a_framework_is_somewhere(tmp_path_factory, name, lines):
    """A setting, the framework's own, of its topics, aside, or unclear: what is nowhere was passed over in silence."""
    path = tmp_path_factory.mktemp("account") / name
    prefixes = WHOLE[name][1]
    text = WHOLE[name][0] + "".join(f"{prefixes[at % len(prefixes)]}{key}={value}\n" for at, key, value in lines)
    path.write_text(text)
    reading = read_file(path, SCOPES)
    somewhere = (
        {each for settings in reading.scopes.values() for each in settings} | set(reading.own) | set(reading.internal)
    )
    somewhere |= set(reading.aside) | {each.name for each in reading.unclear}
    for written in (line.partition("=")[0] for line in text.splitlines() if "=" in line):
        assert any(written == each or written.endswith((f".{each}", f".{_springs(each)}")) for each in somewhere), (
            written
        )


def _springs(name):
    """Spring's names as they are in the file."""
    return {"group.id": "group-id"}.get(name, name)


@pytest.mark.parametrize("name", WHOLE)
@settings(max_examples=examples(60))
@given(st.data())
def test_no_framework_with_a_name_that_nobody_knows_is_promised_anything(tmp_path_factory, name, data):
    added = data.draw(NAMES)
    assume(not known(added))
    prefix = data.draw(st.sampled_from(WHOLE[name][1]))
    never_promised(tmp_path_factory.mktemp("unknown"), name, f"{prefix}{added}=1")


@pytest.mark.parametrize("name", WHOLE)
@settings(max_examples=examples(60))
@given(st.data())
def test_no_framework_with_a_placeholder_is_promised_anything(tmp_path_factory, name, data):
    value = data.draw(NO_VALUES) % data.draw(WORDS)
    never_promised(tmp_path_factory.mktemp("placeholder"), name, f"{data.draw(st.sampled_from(MATTERS[name]))}={value}")


def never_promised(folder, name, line):
    files = Files(folder)
    files.write(name, WHOLE[name][0] + line + "\n")
    try:
        found = files.unclear(name)
    except BadInput as refused:
        found = [name] if name in str(refused) else []
    assert found != [], line
