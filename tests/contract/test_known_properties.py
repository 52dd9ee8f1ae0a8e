"""What `prozess validate` knows of properties is what the programs themselves say of theirs."""

import json

import pytest

from clusters.known_properties import DATA, VERSIONS, of_kafka, of_librdkafka
from harness.validation.known import properties_of


@pytest.mark.parametrize("version", VERSIONS)
def test_kafkas_own_classes_tell_the_properties_that_are_on_file(version):
    assert of_kafka(version) == json.loads(DATA.read_text(encoding="utf-8"))["kafka"][version]


def test_librdkafka_tells_the_properties_that_are_on_file():
    """By name: a newer librdkafka than the one on file may have more, and other defaults."""
    told = of_librdkafka()
    for scope, properties in told.items():
        assert set(properties_of(scope, "librdkafka", VERSIONS[-1])) <= set(properties)
