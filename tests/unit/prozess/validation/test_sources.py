"""Files that `prozess validate` is given: they become settings, and bad ones are refused by name."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.errors import BadInput
from prozess.validation.compose.brokers import read_compose
from prozess.validation.formats.containers import property_of
from prozess.validation.sources import read_file
from tests.support.paths import EXAMPLES


def test_the_same_settings_are_read_from_properties_json_and_yaml(tmp_path):
    texts = {
        "a.properties": "# a comment\nacks = all\nlinger.ms: 5\nenable.idempotence=\\\n  true\n",
        "a.json": json.dumps({"acks": "all", "linger": {"ms": 5}, "enable.idempotence": True}),
        "a.yaml": "producer:\n  acks: all\n  linger.ms: 5\n  enable.idempotence: true\nconsumer:\n  group.id: g\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        found = read_file(tmp_path / name, ["producer"]).scopes["producer"]
        assert {key: setting.value for key, setting in found.items()} == {
            "acks": "all",
            "linger.ms": "5",
            "enable.idempotence": "true",
        }


def test_a_setting_of_a_properties_file_knows_its_line(tmp_path):
    path = tmp_path / "app.properties"
    path.write_text("# one\n\nlinger.ms=\\\n  5\nacks=1\n")
    assert {k: s.origin for k, s in read_file(path, ["producer"]).scopes["producer"].items()} == {
        "linger.ms": f"{path}:3",
        "acks": f"{path}:5",
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.json", "{"), ("a.json", "[1]"), ("a.yaml", "a: ["), ("a.yaml", "just words"), ("a.properties", "x=\\u00g0")],
)
def test_a_file_that_is_not_what_it_says_is_refused_by_name(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=name):
        read_file(tmp_path / name, ["producer"]).scopes["producer"]


@given(st.binary(max_size=200), st.sampled_from(["x.properties", "x.json", "x.yaml"]))
def test_no_garbage_brings_a_traceback(tmp_path_factory, content, name):
    path = tmp_path_factory.mktemp("garbage") / name
    path.write_bytes(content)
    for read in (lambda: read_file(path, ["producer"]).scopes["producer"], lambda: read_compose(path)):
        with suppress(BadInput):
            read()


def test_environment_variables_are_spelt_as_the_apache_kafka_image_does():
    assert property_of("KAFKA_MIN_INSYNC_REPLICAS", "kafka") == "min.insync.replicas"
    assert property_of("KAFKA_A__B___C_D", "kafka") == "a_b-c.d"


def test_a_compose_file_gives_its_brokers_settings_and_their_number():
    reading = read_compose(EXAMPLES / "clickstream" / "compose.yaml")
    assert (reading.brokers, reading.kafka_version) == (3, "4.4.0")
    assert reading.scopes["broker"]["default.replication.factor"].value == "2"
    assert "heap.opts" not in reading.scopes["broker"]


def test_a_compose_file_without_brokers_is_refused(tmp_path):
    path = tmp_path / "compose.yaml"
    path.write_text("services:\n  web:\n    image: nginx\n    environment: [A=1]\n")
    with pytest.raises(BadInput, match="KAFKA_"):
        read_compose(path)
