"""Brokers and topics as operators, images, charts and Amazon write them down: Strimzi, containers, Kubernetes, Helm, MSK."""

import base64
import json
import textwrap

import pytest

from prozess.harness.errors import BadInput
from prozess.harness.exit_codes import ExitCode
from prozess.validation.command import ValidationInput, validate
from prozess.validation.comparison import Budget
from prozess.validation.compose.brokers import read_compose
from prozess.validation.formats.containers import property_of
from prozess.validation.formats.helm import Helm
from prozess.validation.formats.managed import Strimzi
from prozess.validation.reading import SCOPES, load
from prozess.validation.sources import read_all, read_file

CLUSTER = """
    apiVersion: kafka.strimzi.io/v1
    kind: KafkaNodePool
    metadata: {name: controller, labels: {strimzi.io/cluster: orders}}
    spec:
      replicas: 3
      roles: [controller]
      storage: {type: jbod, volumes: [{id: 0, type: persistent-claim, size: 20Gi}]}
    ---
    apiVersion: kafka.strimzi.io/v1
    kind: KafkaNodePool
    metadata: {name: broker, labels: {strimzi.io/cluster: orders}}
    spec:
      replicas: 4
      roles: [broker]
      storage: {type: jbod, volumes: [{id: 0, type: persistent-claim, size: 500Gi}]}
    ---
    apiVersion: kafka.strimzi.io/v1
    kind: Kafka
    metadata: {name: orders}
    spec:
      kafka:
        version: 4.3.0
        metadataVersion: 4.3-IV0
        listeners: [{name: plain, port: 9092, type: internal, tls: false}]
        config:
          default.replication.factor: 3
          min.insync.replicas: 2
          unclean.leader.election.enable: false
          log.dirs: /ignored/by/strimzi
      entityOperator: {topicOperator: {}}
"""
TOPIC = """
    ---
    apiVersion: kafka.strimzi.io/v1
    kind: KafkaTopic
    metadata: {name: NAME, labels: {strimzi.io/cluster: orders}}
    spec:
      partitions: 12
      replicas: 3
      config: {min.insync.replicas: MIN, retention.ms: 604800000}
"""


def topic(name="payments", least=2):
    return TOPIC.replace("NAME", name).replace("MIN", str(least))


def read(tmp_path, text, *wanted, name="a.yaml"):
    path = tmp_path / name
    path.write_text(textwrap.dedent(text))
    return read_file(path, wanted or SCOPES)


def values(reading, scope):
    return {name: setting.value for name, setting in reading.scopes.get(scope, {}).items()}


def doubts(reading):
    return {each.name: each.why for each in reading.unclear}


# --- Strimzi -------------------------------------------------------------------------------------------------------------


def test_a_cluster_of_strimzi_is_read_with_its_brokers_and_its_version(tmp_path):
    reading = read(tmp_path, CLUSTER + topic())
    assert values(reading, "broker") == {
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "false",
    }
    assert values(reading, "topic") == {
        "replication.factor": "3",
        "min.insync.replicas": "2",
        "retention.ms": "604800000",
    }
    assert (reading.brokers, reading.kafka_version) == (4, "4.3.0")
    assert not reading.unclear
    assert "Kafka/orders.spec.kafka.config.log.dirs" in reading.aside


@pytest.mark.parametrize(
    ("before", "after", "name", "why"),
    [
        ("min.insync.replicas: 2\n", "min.insync.replica: 2\n", "config.min.insync.replica", "did you mean min.insync"),
        (
            "min.insync.replicas: 2\n",
            "min.insync.replicas: ${MIN}\n",
            "config.min.insync.replicas",
            "is a placeholder",
        ),
        ("metadataVersion: 4.3-IV0", "metadataVersion: 3.9-IV0", "spec.kafka.metadataVersion", "not that of"),
        (
            "type: persistent-claim, size: 500Gi",
            "type: ephemeral",
            "KafkaNodePool/broker.spec.storage",
            "loses its disk",
        ),
        ("roles: [broker]", "roles: [worker]", "KafkaNodePool/broker.spec.roles", "not understood"),
        ("metadata: {name: orders}", "metadata: {name: other}", "KafkaNodePool/broker", "not of one cluster"),
        ("entityOperator:", "somethingNew:", "Kafka/orders.spec.somethingNew", "not understood"),
        ("kind: KafkaNodePool", "kind: KafkaMirrorMaker2", "KafkaMirrorMaker2/controller", "not read"),
    ],
)
def test_what_is_not_understood_of_a_cluster_of_strimzi_is_named(tmp_path, before, after, name, why):
    assert before in CLUSTER
    found = doubts(read(tmp_path, CLUSTER.replace(before, after)))
    (told,) = [each for each in found if each.endswith(name)]
    assert why in found[told]


ZOOKEEPER = """
    apiVersion: kafka.strimzi.io/v1beta2
    kind: Kafka
    metadata: {name: old}
    spec:
      kafka: {replicas: 3, version: 3.9.0, storage: {type: persistent-claim, size: 1Gi}}
      zookeeper:
        replicas: 3
        storage: {type: persistent-claim, size: 1Gi}
        config: {initLimit: 10, autopurge.purgeInterval: 1}
        resources: {requests: {memory: 1Gi}}
"""


def test_the_zookeeper_of_a_cluster_of_strimzi_is_read(tmp_path):
    reading = read(tmp_path, ZOOKEEPER)
    assert not reading.unclear
    assert "zookeeper.connect" in reading.defaults["broker"]
    for name in ("replicas", "storage", "config.initLimit", "config.autopurge.purgeInterval", "resources"):
        assert f"Kafka/old.spec.zookeeper.{name}" in reading.aside


@pytest.mark.parametrize(
    ("before", "after", "name", "why"),
    [
        ("initLimit: 10", "forceSync: 'no'", "config.forceSync", "is not understood"),
        ("initLimit: 10", "tickTime: 100", "config.tickTime", "bounds how long brokers' sessions last"),
        ("        replicas: 3\n", "        replicas: three\n", "replicas", "is not understood"),
        (
            "        storage: {type: persistent-claim, size: 1Gi}",
            "        storage: {type: ephemeral}",
            "storage",
            "loses its disk",
        ),
        ("resources:", "somethingNew:", "somethingNew", "is not understood"),
        (
            "        config: {initLimit: 10, autopurge.purgeInterval: 1}",
            "        config: fast",
            "config",
            "is not understood",
        ),
    ],
)
def test_what_is_not_understood_of_strimzis_zookeeper_is_named(tmp_path, before, after, name, why):
    assert before in ZOOKEEPER
    found = doubts(read(tmp_path, ZOOKEEPER.replace(before, after)))
    assert list(found) == [f"Kafka/old.spec.zookeeper.{name}"]
    assert why in found[f"Kafka/old.spec.zookeeper.{name}"]


def test_a_topic_that_strimzi_does_not_manage_is_named(tmp_path):
    text = topic().replace("metadata: {", "metadata: {annotations: {strimzi.io/managed: 'false'}, ")
    found = doubts(read(tmp_path, text, "topic"))
    assert list(found) == ["KafkaTopic/payments.metadata.annotations.strimzi.io/managed"]


def test_combined_nodes_of_strimzi_are_combined_in_the_trial(tmp_path):
    _, _, rest = CLUSTER.partition("---")
    reading = read(tmp_path, rest.replace("roles: [broker]", "roles: [controller, broker]"))
    assert reading.defaults["broker"]["process.roles"].value == "broker,controller"
    assert reading.brokers == 4


def test_one_of_several_topics_that_differ_must_be_chosen_and_topics_alike_are_one(tmp_path):
    text = topic("a", 2) + topic("b", 1)
    with pytest.raises(BadInput, match=r"not set alike.*: a, b"):
        read(tmp_path, text, "topic")
    found = doubts(read(tmp_path, CLUSTER + text, "broker"))
    assert set(found) == {"KafkaTopic/a", "KafkaTopic/b"}
    assert values(read(tmp_path, topic("a", 2) + topic("b", 2), "topic"), "topic")["min.insync.replicas"] == "2"
    path = tmp_path / "a.yaml"
    path.write_text(textwrap.dedent(text))
    chosen = Strimzi(topic_name="b").read(load(path), path, ["topic"])
    assert values(chosen, "topic")["min.insync.replicas"] == "1"
    assert values(read_file(path, ["topic"], topic_name="a"), "topic")["min.insync.replicas"] == "2"
    with pytest.raises(BadInput, match="no topic 'c'"):
        Strimzi(topic_name="c").read(load(path), path, ["topic"])


def test_a_connector_of_strimzi_without_its_worker_is_never_understood_whole(tmp_path):
    reading = read(
        tmp_path,
        """
        apiVersion: kafka.strimzi.io/v1
        kind: KafkaConnector
        metadata: {name: outbox}
        spec:
          class: io.debezium.connector.postgresql.PostgresConnector
          tasksMax: 1
          config: {database.hostname: db, producer.override.acks: 1, exactly.once.support: required}
        """,
    )
    assert values(reading, "producer") == {"acks": "1"}
    assert "without its worker" in doubts(reading)["KafkaConnector/outbox"]
    assert "KafkaConnector/outbox.spec.config.exactly.once.support" in doubts(reading)


def test_a_topics_name_without_a_file_of_topics_is_refused(tmp_path):
    path = tmp_path / "p.properties"
    path.write_text("acks=all\n")
    with pytest.raises(BadInput, match="--topic-name 'x'"):
        read_all({"producer": path}, topic_name="x")


# --- containers ----------------------------------------------------------------------------------------------------------

BITNAMI = """\
KAFKA_CFG_NODE_ID=1
KAFKA_CFG_PROCESS_ROLES=broker
KAFKA_CFG_LISTENERS=PLAINTEXT://:${PORT}
KAFKA_CFG_MIN_INSYNC_REPLICAS=2
KAFKA_CFG_DEFAULT_REPLICATION_FACTOR=3
KAFKA_CFG_OFFSETS_TOPIC_REPLICATION_FACTOR=3
KAFKA_CFG_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=3
KAFKA_CFG_TRANSACTION_STATE_LOG_MIN_ISR=2
KAFKA_HEAP_OPTS=-Xmx1g
KAFKA_CLIENT_PASSWORDS=secret
ALLOW_PLAINTEXT_LISTENER=yes
"""


def test_variables_of_bitnamis_image_are_properties(tmp_path):
    reading = read(tmp_path, BITNAMI, name=".env")
    assert values(reading, "broker")["min.insync.replicas"] == "2"
    assert values(reading, "broker")["default.replication.factor"] == "3"
    assert reading.scopes["broker"]["min.insync.replicas"].origin.endswith(".env:4")
    assert set(reading.aside) == {
        "KAFKA_CFG_LISTENERS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_CLIENT_PASSWORDS",
        "ALLOW_PLAINTEXT_LISTENER",
    }
    assert not reading.unclear


def test_a_variable_that_bitnamis_image_does_not_read_is_named(tmp_path):
    text = BITNAMI.replace("KAFKA_CFG_MIN_INSYNC", "KAFKA_MIN_INSYNC").replace("KAFKA_CFG_OFFSETS", "KAFKA_CFG_OFFSET")
    found = doubts(read(tmp_path, text, name=".env"))
    assert "write KAFKA_CFG_MIN_INSYNC_REPLICAS" in found["KAFKA_MIN_INSYNC_REPLICAS"]
    assert "did you mean offsets.topic" in found["KAFKA_CFG_OFFSET_TOPIC_REPLICATION_FACTOR"]
    assert "config/server.properties" in found["KAFKA_CFG_OFFSETS_TOPIC_REPLICATION_FACTOR"]


def test_variables_of_apaches_and_confluents_images_are_properties(tmp_path):
    text = (
        "KAFKA_MIN_INSYNC_REPLICAS=1\nKAFKA_OPTS=-Dx=y\nKAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE=false\nCLUSTER_ID=abc\n"
    )
    reading = read(tmp_path, text, name=".env")
    assert values(reading, "broker") == {"min.insync.replicas": "1"}
    assert reading.aside == ["KAFKA_OPTS", "KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE", "CLUSTER_ID"]


def test_each_image_spells_properties_its_own_way():
    assert property_of("KAFKA_A__B___C_D", "kafka") == "a_b-c.d"
    assert (
        property_of("KAFKA_CFG_SASL_MECHANISM_INTER_BROKER_PROTOCOL", "bitnami")
        == "sasl.mechanism.inter.broker.protocol"
    )
    assert property_of("KAFKA_CFG_LISTENER_NAME_SASL_SSL_SCRAM", "bitnami") == "listener.name.sasl_ssl.scram"
    assert property_of("KAFKA_MIN_INSYNC_REPLICAS", "bitnami") is None
    assert property_of("KAFKA_LOG4J_LOGGERS", "kafka") is None


def test_bitnamis_variables_count_in_a_compose_file_and_others_are_not_dropped(tmp_path):
    path = tmp_path / "compose.yaml"
    path.write_text(
        "services:\n  broker:\n    image: bitnami/kafka:4.0\n    environment:\n"
        "      KAFKA_CFG_MIN_INSYNC_REPLICAS: 1\n      KAFKA_DEFAULT_REPLICATION_FACTOR: 3\n      KAFKA_HEAP_OPTS: -Xmx1g\n"
    )
    assert values(read_compose(path), "broker") == {"min.insync.replicas": "1", "KAFKA_DEFAULT_REPLICATION_FACTOR": "3"}


@pytest.mark.parametrize("least", ["1", "2"])
def test_internal_topics_that_bitnamis_image_leaves_at_one_copy_are_named_in_a_compose_file(tmp_path, capsys, least):
    class Options:
        as_json = True

    lines = [line for line in BITNAMI.splitlines() if least == "2" or "TRANSACTION" not in line]
    producer, path = tmp_path / "p.properties", tmp_path / "compose.yaml"
    producer.write_text("acks=all\nenable.idempotence=true\n")
    text = (
        "services:\n  broker:\n    image: bitnami/kafka:4.4.0\n    volumes: ['log:/bitnami/kafka']\n    environment:\n"
    )
    path.write_text(text + "".join(f"      - {line}\n" for line in lines))
    code = validate(ValidationInput(producer=producer, compose=path), Budget(0), Options())
    named = {each["name"] for each in json.loads(capsys.readouterr().out)["unclear"]}
    if least == "2":
        assert (code, named) == (ExitCode.HELD, set())
    else:
        both = {"KAFKA_CFG_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", "KAFKA_CFG_TRANSACTION_STATE_LOG_MIN_ISR"}
        assert (code, named) == (ExitCode.UNKNOWN, both)


# --- Kubernetes ----------------------------------------------------------------------------------------------------------

MANIFESTS = """
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: tuning}
    data: {KAFKA_UNCLEAN_LEADER_ELECTION_ENABLE: "true", FACTOR: "3"}
    ---
    apiVersion: apps/v1
    kind: StatefulSet
    metadata: {name: kafka}
    spec:
      replicas: 3
      template:
        spec:
          containers:
            - name: broker
              image: apache/kafka:4.4.0
              envFrom: [{configMapRef: {name: tuning}}]
              env:
                - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
                - {name: KAFKA_ADVERTISED_LISTENERS, value: "PLAINTEXT://$(POD).kafka:9092"}
                - {name: KAFKA_MIN_INSYNC_REPLICAS, value: "2"}
                - {name: KAFKA_DEFAULT_REPLICATION_FACTOR, valueFrom: {configMapKeyRef: {name: tuning, key: FACTOR}}}
                - {name: KAFKA_LOG_DIRS, value: /data/kafka}
              volumeMounts: [{name: data, mountPath: /data}]
      volumeClaimTemplates: [{metadata: {name: data}}]
"""


def test_a_stateful_set_of_brokers_is_read(tmp_path):
    reading = read(tmp_path, MANIFESTS)
    assert values(reading, "broker") == {
        "unclean.leader.election.enable": "true",
        "min.insync.replicas": "2",
        "default.replication.factor": "3",
        "log.dirs": "/data/kafka",
    }
    assert reading.brokers == 3
    assert not reading.unclear


@pytest.mark.parametrize(
    ("before", "after", "name", "why"),
    [
        (
            "configMapKeyRef: {name: tuning,",
            "secretKeyRef: {name: tuning,",
            "KAFKA_DEFAULT_REPLICATION_FACTOR",
            "elsewhere",
        ),
        ("configMapRef: {name: tuning}", "configMapRef: {name: others}", "envFrom[0]", "not in this file"),
        ("KAFKA_MIN_INSYNC_REPLICAS", "KAFKA_CFG_MIN_INSYNC_REPLICAS", "KAFKA_CFG_MIN_INSYNC_REPLICAS", "Apache"),
        ("mountPath: /data}", "mountPath: /data, readOnly: true}", "volumes", "are read-only"),
        ("volumeClaimTemplates:", "somethingElse:", "volumes", "ends with the container"),
        ("mountPath: /data", "mountPath: /elsewhere", "volumes", "no volume lies over it"),
        ("volumeMounts: [{name: data, mountPath: /data}]", "workingDir: /", "volumes", "no volume lies over it"),
        ("/data/kafka}", "$(POD)}", "log.dirs", "outlives the container is not known"),
        (
            "containers:",
            "volumes: [{name: data, hostPath: {path: /x}}]\n          containers:",
            "volumes",
            "ends with the container",
        ),
        ("volumeMounts: [", "volumeMounts: [{name: c, mountPath: /mnt/shared/config}, ", "volumes c", "set properties"),
        ("volumeMounts: [", "volumeMounts: [{name: c, mountPath: /opt}, ", "volumes c", "set properties"),
        ("envFrom:", "command: [/scripts/run.sh]\n              envFrom:", "command", "is not known"),
        (
            "envFrom:",
            "args: [kafka-server-start.sh, s.properties]\n              envFrom:",
            "command",
            "past the start",
        ),
        (
            "envFrom:",
            "lifecycle: {postStart: {exec: {command: [x]}}}\n              envFrom:",
            "lifecycle",
            "after each start",
        ),
        ('"2"', '"{{ .Values.least }}"', "KAFKA_MIN_INSYNC_REPLICAS", "is a placeholder"),
        ("envFrom:", "command: [sh, -c, 'export KAFKA_ACKS=1; run']\n              envFrom:", "command", "by itself"),
    ],
)
def test_what_is_not_understood_of_a_manifest_is_named(tmp_path, before, after, name, why):
    assert before in MANIFESTS
    found = doubts(read(tmp_path, MANIFESTS.replace(before, after)))
    (told,) = [each for each in found if each.endswith(f".{name}")]
    assert why in found[told]


def test_brokers_of_one_file_that_differ_are_named(tmp_path):
    second = MANIFESTS.replace("metadata: {name: kafka}", "metadata: {name: other}").replace('value: "2"', 'value: "1"')
    reading = read(tmp_path, MANIFESTS + "    ---" + second.partition("---")[2])
    assert "is not set as StatefulSet/kafka.broker is" in doubts(reading)["StatefulSet/other.broker"]


# --- Helm ----------------------------------------------------------------------------------------------------------------

VALUES = """
    image: {tag: 3.9.0-debian-12-r4}
    extraConfig: |
      min.insync.replicas=2
      default.replication.factor=3
    controller: {replicaCount: 3, controllerOnly: true}
    broker: {replicaCount: 5, persistence: {enabled: true, size: 100Gi}}
    provisioning:
      enabled: true
      topics:
        - {name: orders, partitions: 6, replicationFactor: 3, config: {min.insync.replicas: 2}}
"""


def test_values_of_bitnamis_chart_are_read(tmp_path):
    reading = read(tmp_path, VALUES)
    assert values(reading, "broker") == {"min.insync.replicas": "2", "default.replication.factor": "3"}
    assert values(reading, "topic") == {"replication.factor": "3", "min.insync.replicas": "2"}
    assert (reading.brokers, reading.kafka_version) == (5, "3.9.0")
    assert not reading.unclear
    assert any("up to 31" in note for note in reading.notes)


def test_the_chart_as_a_part_of_another_is_read(tmp_path):
    reading = read(tmp_path, "web: {replicas: 2}\nkafka:\n" + textwrap.indent(textwrap.dedent(VALUES), "  "))
    assert values(reading, "broker")["min.insync.replicas"] == "2"
    assert "web" in reading.aside


def test_a_topic_that_the_chart_creates_has_one_copy_unless_it_says_more(tmp_path):
    assert values(read(tmp_path, VALUES.replace(" replicationFactor: 3,", "")), "topic")["replication.factor"] == "1"


@pytest.mark.parametrize(
    ("before", "after", "name", "why"),
    [
        ("extraConfig: |", 'extraConfig: |\n      {{- include "x" . }}', "extraConfig", "template"),
        (
            "min.insync.replicas=2",
            "min.insync.replicas={{ .Values.n }}",
            "extraConfig.min.insync.replicas",
            "is a placeholder",
        ),
        (
            "extraConfig: |",
            "overrideConfiguration: {acks: 1}\n    extraConfig: |",
            "overrideConfiguration",
            "from 32 on",
        ),
        ("extraConfig: |", "config: a=b\n    extraConfig: |", "extraConfig", "beside config"),
        ("extraConfig: |", "existingConfigmap: mine\n    extraConfig: |", "existingConfigmap", "does not show"),
        (
            "extraConfig: |",
            "extraVolumeMounts: [{name: c, mountPath: /opt/bitnami/kafka/config}]\n    extraConfig: |",
            "extraVolumeMounts",
            "may set properties",
        ),
        (
            "replicaCount: 5",
            "replicaCount: 5, lifecycleHooks: {postStart: {}}",
            "broker.lifecycleHooks",
            "does not show",
        ),
        ("extraConfig: |", "extraConfigs: {}\n    extraConfig: |", "extraConfigs", "known"),
        ("min.insync.replicas=2", "min.insync.replica=2", "extraConfig.min.insync.replica", "did you mean"),
        ("persistence: {enabled: true,", "persistence: {enabled: false,", "broker.persistence", "loses its disk"),
        ("      enabled: true", "      enabled: false", "provisioning.topics", "not created"),
        (
            "replicaCount: 5",
            "replicaCount: 5, overrideConfiguration: {min.insync.replicas: 1}",
            "broker.overrideConfiguration",
            "from 32 on",
        ),
    ],
)
def test_what_is_not_understood_of_values_is_named(tmp_path, before, after, name, why):
    assert before in VALUES
    assert why in doubts(read(tmp_path, VALUES.replace(before, after)))[name]


def test_a_setting_of_some_brokers_alone_is_named(tmp_path):
    text = "controller: {replicaCount: 3, extraConfig: min.insync.replicas=1}\nbroker: {replicaCount: 2}\n"
    assert "some brokers only" in doubts(read(tmp_path, text))["controller.extraConfig"]


def test_a_mapping_of_brokers_properties_is_no_chart(tmp_path):
    assert not Helm().recognises([{"broker": {"min.insync.replicas": 2}}], tmp_path)


# --- MSK -----------------------------------------------------------------------------------------------------------------

PROPERTIES = "default.replication.factor=3\nmin.insync.replicas=2\nunclean.leader.election.enable=false\n"


def configuration(text, **more):
    return {"Arn": "arn:aws:kafka:eu-central-1:1:configuration/a/1", "Revision": 2, "ServerProperties": text, **more}


@pytest.mark.parametrize("encode", [lambda text: text, lambda text: base64.b64encode(text.encode()).decode()])
def test_a_configuration_of_msk_is_read_in_base_64_and_plain(tmp_path, encode):
    reading = read(tmp_path, json.dumps(configuration(encode(PROPERTIES))), name="msk.json")
    assert values(reading, "broker") == {
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "false",
    }
    assert not reading.unclear


def test_what_msk_decides_by_the_cluster_is_named(tmp_path):
    document = configuration("min.insync.replicas=2\nlog.retention.hourz=8\n", Zones=3)
    found = doubts(read(tmp_path, json.dumps(document), name="msk.json"))
    assert "3 in three Availability Zones" in found["ServerProperties.default.replication.factor"]
    assert "true without tiered storage" in found["ServerProperties.unclean.leader.election.enable"]
    assert "did you mean log.retention.hours" in found["ServerProperties.log.retention.hourz"]
    assert "Zones" in found


def test_server_properties_that_are_nothing_are_refused(tmp_path):
    with pytest.raises(BadInput, match="base 64"):
        read(tmp_path, json.dumps(configuration("!!")), name="msk.json")


# --- what all of them share ----------------------------------------------------------------------------------------------

UNDERSTOOD = {
    "strimzi.yaml": (CLUSTER, "min.insync.replicas: 2"),
    "values.yaml": (VALUES, "min.insync.replicas=2"),
    ".env": (BITNAMI, "KAFKA_CFG_MIN_INSYNC_REPLICAS=2"),
    "manifests.yaml": (MANIFESTS.replace('"true"', '"false"'), 'KAFKA_MIN_INSYNC_REPLICAS, value: "2"'),
    "msk.json": (json.dumps(configuration(PROPERTIES)), "min.insync.replicas=2"),
}


def judged(tmp_path, capsys, name, text):
    class Options:
        as_json = True

    producer, broker = tmp_path / "p.properties", tmp_path / name
    producer.write_text("acks=all\nenable.idempotence=true\n")
    broker.write_text(textwrap.dedent(text))
    version = "4.0.0" if name == "msk.json" else None
    code = validate(ValidationInput(producer=producer, broker=broker, kafka_version=version), Budget(0), Options())
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_a_file_that_is_understood_whole_is_promised(tmp_path, capsys, name):
    code, told = judged(tmp_path, capsys, name, UNDERSTOOD[name][0])
    assert (code, told["unclear"]) == (ExitCode.HELD, [])
    assert "lost" in told["promised"]


VERSIONS = {
    "strimzi.yaml": ("version: 4.3.0", "image: x", "Kafka/orders.spec.kafka.version"),
    "manifests.yaml": ("image: apache/kafka:4.4.0", "image: apache/kafka:latest", "StatefulSet/kafka.broker.image"),
    "values.yaml": ("tag: 3.9.0-debian-12-r4", "tag: latest", "image.tag"),
    "msk.json": ("", "", "the version of Kafka"),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_a_version_that_is_not_said_is_unclear_unless_somebody_gives_it(tmp_path, name):
    before, after, told = VERSIONS[name]
    text = textwrap.dedent(UNDERSTOOD[name][0])
    path = tmp_path / name
    assert before in text
    path.write_text(text.replace(before, after, 1))
    reading = read_file(path, SCOPES)
    assert [each.name for each in reading.no_version] == [told]
    assert "--kafka-version" in reading.no_version[0].why


@pytest.mark.parametrize(
    ("tag", "version"), [("apache/kafka:3.9.0", "3.9.0"), ("confluentinc/cp-kafka:7.6.1", "3.6.0")]
)
def test_the_image_of_a_manifest_tells_the_version(tmp_path, tag, version):
    assert read(tmp_path, MANIFESTS.replace("apache/kafka:4.4.0", tag)).kafka_version == version


@pytest.mark.parametrize("name", UNDERSTOOD)
@pytest.mark.parametrize("value", ["${MIN}", "{{ .Values.min }}", "$MIN"])
def test_the_same_file_with_a_placeholder_is_never_promised(tmp_path, capsys, name, value):
    text, setting = UNDERSTOOD[name]
    assert setting in text
    spoilt = setting.replace('"2"', f"'{value}'") if '"2"' in setting else setting.replace("2", value)
    if name == "strimzi.yaml":
        spoilt = setting.replace("2", f"'{value}'")
    code, told = judged(tmp_path, capsys, name, text.replace(setting, spoilt))
    assert (code, told["promised"]) == (ExitCode.UNKNOWN, [])


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_the_same_file_with_a_name_that_nobody_knows_is_never_promised(tmp_path, capsys, name):
    text, setting = UNDERSTOOD[name]
    spoilt = setting.replace("min.insync.replicas", "quite.unknown").replace("MIN_INSYNC_REPLICAS", "QUITE_UNKNOWN")
    assert spoilt != setting
    code, told = judged(tmp_path, capsys, name, text.replace(setting, spoilt))
    assert (code, told["promised"]) == (ExitCode.UNKNOWN, [])


CONFLUENT = """
    apiVersion: platform.confluent.io/v1beta1
    kind: Kafka
    metadata: {name: kafka, namespace: confluent}
    spec:
      replicas: 3
      image: {application: confluentinc/cp-server:7.6.1, init: confluentinc/confluent-init-container:2.8.0}
      dataVolumeCapacity: 100Gi
      configOverrides:
        server:
          - default.replication.factor=3
          - min.insync.replicas=2
          - unclean.leader.election.enable=false
    ---
    apiVersion: platform.confluent.io/v1beta1
    kind: KafkaTopic
    metadata: {name: orders}
    spec: {replicas: 3, partitionCount: 6, configs: {min.insync.replicas: 2}}
"""


def test_resources_of_confluents_operator_are_read(tmp_path):
    reading = read(tmp_path, CONFLUENT)
    assert values(reading, "broker")["min.insync.replicas"] == "2"
    assert values(reading, "topic") == {"replication.factor": "3", "min.insync.replicas": "2"}
    assert (reading.brokers, reading.kafka_version, reading.unclear) == (3, "3.6.0", [])


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("- unclean.leader.election.enable=false", "- num.partitions=3", "unclean.leader.election.enable"),
        ("dataVolumeCapacity: 100Gi", "surprise: 1", "Kafka/kafka.spec.surprise"),
        ("min.insync.replicas=2", "min.insync.replica=2", "server.min.insync.replica"),
        ("kind: KafkaTopic", "kind: Connect", "Connect/orders"),
    ],
)
def test_what_is_not_understood_of_confluents_operator_is_named(tmp_path, before, after, told):
    found = doubts(read(tmp_path, CONFLUENT.replace(before, after)))
    assert any(name.endswith(told) for name in found), found
    assert read(tmp_path, CONFLUENT.replace("cp-server:7.6.1", "cp-server:latest")).no_version
