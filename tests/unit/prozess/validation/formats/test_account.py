"""Every name of a file is a setting, aside, or not understood: one of them, whatever the format and whatever is in it."""

import copy
import json
import textwrap
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prozess.harness.config.known_properties import Setting
from prozess.harness.errors import BadInput
from prozess.validation import reading as documents
from prozess.validation.formats import FORMATS
from prozess.validation.formats.filing import leaf_values
from prozess.validation.reading import SCOPES
from prozess.validation.sources import read_file
from tests.support.examples import examples
from tests.unit.prozess.validation.formats.test_brokers import (
    BITNAMI,
    CLUSTER,
    MANIFESTS,
    PROPERTIES,
    VALUES,
    configuration,
    topic,
)

PATH = Path("given.yaml")
OF_EACH = settings(max_examples=examples(100), deadline=None)
"""For a property that is tried with each of several libraries or files: together they have many cases at every change."""
OPTIONS = {
    "librdkafka": {"queue.buffering.max.ms": 5, "acks": "all", "default.topic.config": {"request.timeout.ms": 5000}},
    "sarama": {
        "Producer": {"RequiredAcks": -1, "Retry": {"Max": 3}, "Return": {"Errors": True}},
        "Consumer": {"Offsets": {"Initial": -2, "CommitInterval": "1s", "AutoCommit": {"Interval": "1s"}}},
    },
    "franz-go": {"RequiredAcks": "AllISRAcks", "SeedBrokers": ["b"], "RecordRetries": 5, "ConsumerGroup": "g"},
    "kafkajs": {"clientId": "c", "retry": {"retries": 3}, "producer": {"idempotent": True, "retry": {"retries": 5}}},
    "kafka-python": {"acks": "all", "retries": 3, "delivery_timeout_ms": 60000, "enable_idempotence": True},
    "kafka-go": {
        "RequiredAcks": "RequireAll",
        "MaxAttempts": 3,
        "Async": False,
        "StartOffset": -2,
        "WriteBackoffMin": "1s",
    },
    "aiokafka": {"aiokafka": {"acks": "all", "enable_idempotence": True, "max_batch_size": 5}},
}
VALUES_OF_ANY_KIND = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 10**9), st.sampled_from(["", "all", "${X}", "1s", "true", "$(Y)", "{{ z }}"]),
    st.text(max_size=6), st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(0, 2), max_size=1),
)  # fmt: skip


def parsed(text):
    return documents.yaml_documents(text)


def accounted(reading):
    """How often each name is anywhere; settings by where they stand, which is what their origin ends with."""
    settings = [
        setting.origin.removeprefix(f"{reading.path}, ")
        for settings in reading.scopes.values()
        for setting in settings.values()
    ]
    names = Counter({name: 1 for name in settings})  # a client's common setting is in both of its parts
    names.update(reading.aside)
    names.update(each.name for each in reading.unclear)
    return names


def assert_each_once(document, path=PATH):
    """Of a file of options: each leaf in one place, and nothing twice."""
    chosen = next(each for each in FORMATS if each.recognises(document, path))
    try:
        reading = chosen.read(document, path, ["producer", "consumer"])
    except BadInput:
        return
    found = accounted(reading)
    for name, _ in leaf_values(document[0] if isinstance(document, list) else document):
        assert found[name] == 1, (name, found)


@pytest.mark.parametrize("library", OPTIONS)
def test_a_files_options_are_each_in_one_place(library):
    assert_each_once([OPTIONS[library]])


@pytest.mark.parametrize("library", OPTIONS)
@OF_EACH
@given(data=st.data())
def test_options_with_any_value_are_each_in_one_place(library, data):
    document = copy.deepcopy(OPTIONS[library])
    name = data.draw(st.sampled_from([name for name, _ in leaf_values(document)]), label="name")
    inside, keys = document, _keys(document, name)
    for key in keys[:-1]:
        inside = inside[key]
    inside[keys[-1]] = data.draw(VALUES_OF_ANY_KIND, label="value")
    if not any(each.recognises([document], PATH) for each in FORMATS):
        return
    assert_each_once([document])


@pytest.mark.parametrize("library", OPTIONS)
@OF_EACH
@given(more=st.dictionaries(st.from_regex(r"[A-Za-z_]{1,12}", fullmatch=True), VALUES_OF_ANY_KIND, max_size=4))
def test_names_that_nobody_knows_are_each_in_one_place_and_none_is_a_setting(library, more):
    known = OPTIONS[library]
    document = known | {f"zz_{name}": value for name, value in more.items()}
    if library == "aiokafka":
        document = {"aiokafka": known["aiokafka"] | {f"zz_{name}": value for name, value in more.items()}}
    assert_each_once([document])
    reading = next(each for each in FORMATS if each.recognises([document], PATH)).read([document], PATH, ["producer"])
    named = {each.name for each in reading.unclear}
    for name, _ in leaf_values(document):
        if "zz_" in name:
            assert name in named


def _keys(document, name):
    """The keys that lead to a dotted name; keys hold dots themselves."""
    for key, value in document.items():
        if key == name:
            return [key]
        if name.startswith(f"{key}.") and isinstance(value, dict) and (rest := _keys(value, name[len(key) + 1 :])):
            return [key, *rest]
    return []


def test_settings_of_strimzi_are_each_in_one_place():
    document = parsed(_plain(CLUSTER + topic()))
    reading = FORMATS[0].read(document, PATH, SCOPES)
    found = accounted(reading)
    for each in document:
        spelt = f"{each['kind']}/{each['metadata']['name']}"
        for name, _ in leaf_values(each):
            assert sum(f"{spelt}.{name}" == told or f"{spelt}.{name}".startswith(f"{told}.") for told in found) == 1
    assert set(found.values()) == {1}


@given(names=st.dictionaries(st.from_regex(r"[a-z.]{1,20}", fullmatch=True), VALUES_OF_ANY_KIND, max_size=6))
@example(names={"min.insync.replicas": None})
def test_any_configuration_of_strimzi_and_of_charts_is_each_in_one_place(names):
    kafka = {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "Kafka",
        "metadata": {"name": "k"},
        "spec": {"kafka": {"config": names}},
    }
    found = accounted(FORMATS[0].read([kafka], PATH, SCOPES))
    for name in names:
        assert found[f"Kafka/k.spec.kafka.config.{name}"] == 1
    values = {"overrideConfiguration": names, "controller": {"replicaCount": 3}}
    reading = next(each for each in FORMATS if each.recognises([values], PATH)).read([values], PATH, SCOPES)
    for name in names:
        assert accounted(reading)[f"overrideConfiguration.{name}"] == 1


@given(st.dictionaries(st.from_regex(r"(KAFKA_(CFG_)?)?[A-Z_]{1,12}", fullmatch=True), st.text(max_size=5), min_size=1))
@example({"KAFKA_CFG_MIN_INSYNC_REPLICAS": "1", "KAFKA_MIN_INSYNC_REPLICAS": "2"})
def test_variables_are_each_in_one_place(variables):
    document = {name: Setting(value, f"{PATH}, {name}") for name, value in variables.items()}
    chosen = next((each for each in FORMATS if each.recognises(document, PATH)), None)
    if chosen is not None:
        found = accounted(chosen.read(document, PATH, ["broker"]))
        assert all(found[name] == 1 for name in variables)


@given(st.dictionaries(st.from_regex(r"[a-z.]{1,20}", fullmatch=True), st.text("abc1", min_size=1, max_size=5)))
def test_properties_of_msk_are_each_in_one_place(properties):
    text = PROPERTIES + "".join(f"{name}={value}\n" for name, value in properties.items())
    document = configuration(text)
    found = accounted(
        next(each for each in FORMATS if each.recognises(document, PATH)).read(document, PATH, ["broker"])
    )
    for name in [*properties, "min.insync.replicas"]:
        assert found[f"ServerProperties.{name}"] == 1
    assert all(found[name] == 1 for name in document if name != "ServerProperties")


# --- garbage -------------------------------------------------------------------------------------------------------------

_NAMES = """
    apiVersion kind spec kafka config metadata name items List Kafka KafkaTopic KafkaNodePool KafkaConnector
    StatefulSet Pod ConfigMap data kafka.strimzi.io/v1 v1 template containers env envFrom valueFrom value
    KAFKA_CFG_NODE_ID KAFKA_NODE_ID roles replicas storage type volumes controller broker provisioning topics
    extraConfig persistence extraEnvVars ServerProperties producer consumer Producer Consumer Net RequiredAcks Retry
    Max retry retries acks idempotent sarama kafkajs aiokafka confluent_kafka default.topic.config enable_idempotence
    transactional_id RequiredAcks(LeaderAck()) zookeeper labels
"""
_WORDS = st.sampled_from(_NAMES.split())
GARBAGE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 5), _WORDS, st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_WORDS, inner, max_size=5)),
    max_leaves=25,
)


@given(GARBAGE, st.sampled_from([(scope,) for scope in SCOPES] + [SCOPES]))
@example([{"apiVersion": "kafka.strimzi.io/v1", "kind": "Kafka", "spec": {"kafka": 5}}], SCOPES)
@example([{"kind": "Pod", "spec": {"containers": [{"env": [{"name": "KAFKA_NODE_ID"}]}]}}], SCOPES)
@example(["RequiredAcks(LeaderAck())", "RequiredAcks(LeaderAck())"], SCOPES)
def test_garbage_raises_nothing_but_bad_input(document, wanted):
    for each in FORMATS:
        for given_ in (document, [document]):
            if each.recognises(given_, PATH):
                with suppress(BadInput):
                    each.read(given_, PATH, wanted)


@pytest.mark.parametrize("text", [CLUSTER + topic(), MANIFESTS, VALUES], ids=["Strimzi", "Kubernetes", "Helm"])
@OF_EACH
@given(data=st.data())
def test_a_real_file_with_garbage_in_one_place_raises_nothing_but_bad_input(text, data):
    document = [json.loads(json.dumps(each)) for each in parsed(_plain(text))]
    paths = list(_paths(document))
    path = data.draw(st.sampled_from(paths), label="where")
    inside = document
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = data.draw(GARBAGE, label="garbage")
    for each in FORMATS:
        if each.recognises(document, PATH):
            with suppress(BadInput):
                each.read(document, PATH, SCOPES)


def _paths(document, above=()):
    pairs = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in pairs:
        yield (*above, key)
        yield from _paths(value, (*above, key))


def _plain(text):
    return textwrap.dedent(text)


def test_files_of_every_format_are_read_as_what_they_are(tmp_path):
    texts = {
        "strimzi.yaml": (_plain(CLUSTER), "resources of Strimzi"),
        "manifests.yaml": (_plain(MANIFESTS), "manifests of Kubernetes"),
        "values.yaml": (_plain(VALUES), "values of Bitnami's Helm chart"),
        "broker.env": (BITNAMI, "an environment of Bitnami's image"),
        "msk.json": (json.dumps(configuration(PROPERTIES)), "a configuration of Amazon MSK"),
        "sarama.json": (json.dumps(OPTIONS["sarama"]), "a Config of sarama"),
        "franz.yaml": (yaml.safe_dump(OPTIONS["franz-go"]), "options of franz-go"),
        "kafkajs.json": (json.dumps(OPTIONS["kafkajs"]), "options of kafkajs"),
        "kafka_python.yaml": (yaml.safe_dump(OPTIONS["kafka-python"]), "arguments of kafka-python"),
        "aiokafka.json": (json.dumps(OPTIONS["aiokafka"]), "arguments of aiokafka"),
        "librdkafka.yaml": (yaml.safe_dump(OPTIONS["librdkafka"]), "properties of librdkafka"),
    }
    for name, (text, told) in texts.items():
        (tmp_path / name).write_text(text)
        assert read_file(tmp_path / name, SCOPES).format.startswith(told), name
