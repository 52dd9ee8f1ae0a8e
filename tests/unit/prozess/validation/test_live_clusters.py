"""A running cluster is what its weakest broker is: of settings, of releases, of copies."""

import pytest

from prozess.clusters.existing.adoption import what_to_do
from prozess.validation.sources import brokers_together

ALIKE = {"min.insync.replicas": "2", "process.roles": "broker,controller"}
RELEASES = {1: "4.4", 2: "4.4", 3: "4.4"}


def together(*brokers, releases=RELEASES, version=None):
    return brokers_together(dict(enumerate(brokers, 1)), releases, "k:9092", version)


@pytest.mark.parametrize("odd", [1, 2, 3])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("unclean.leader.election.enable", "true"),
        ("min.insync.replicas", "1"),
        ("log.retention.ms", "1000"),
        ("offsets.retention.minutes", "1"),
        ("producer.id.expiration.ms", "1000"),
    ],
)
def test_whichever_broker_promises_less_decides_and_is_named(odd, name, value):
    brokers = [ALIKE | ({name: value} if number == odd else {}) for number in (1, 2, 3)]
    found = together(*brokers)
    assert found.broker[name].value == value
    (note,) = [note for note in found.notes if name in note]
    assert f"{value}: broker {odd}" in note
    assert found.doubts == ()


def test_a_default_that_promises_less_than_what_another_broker_sets_decides():
    found = together(ALIKE | {"log.retention.ms": "-1"}, ALIKE, ALIKE | {"log.retention.ms": "-1"})
    assert "log.retention.ms" not in found.broker
    assert any("log.retention.ms differs" in note and "which does not set it" in note for note in found.notes)


def test_brokers_that_are_alike_are_one_and_nothing_is_said():
    found = together(ALIKE, ALIKE, ALIKE)
    assert found.version.startswith("4.4")
    assert found.notes == (f"3 brokers at k:9092, Kafka 4.4: trials run {found.version}",)


def test_of_several_releases_the_oldest_decides_and_each_is_named():
    found = together(ALIKE, ALIKE, ALIKE, releases={1: "4.4", 2: "3.9", 3: "4.4"})
    assert found.version.startswith("3.9")
    assert "the brokers run different releases (3.9: 2, 4.4: 1 3): the oldest decides" in found.notes


def test_a_broker_that_does_not_tell_its_release_leaves_it_unclear_unless_somebody_says_it():
    silent = {1: "4.4", 2: None, 3: "4.4"}
    (doubt,) = together(ALIKE, ALIKE, ALIKE, releases=silent).doubts
    assert "of broker 2" in doubt.why
    assert together(ALIKE, ALIKE, ALIKE, releases=silent, version="4.4.0").doubts == ()
    zookeeper = ALIKE | {"zookeeper.connect": "zk"}
    assert together(zookeeper, zookeeper, zookeeper, releases={}).doubts == ()


def test_of_controllers_that_are_no_brokers_it_is_said_that_they_were_not_asked():
    isolated = ALIKE | {"process.roles": "broker"}
    assert any(note.startswith("controllers that are no brokers") for note in together(*[isolated] * 3).notes)


@pytest.mark.parametrize(
    ("words", "log_in"),
    [
        ("_TRANSPORT: Connect to ipv4#127.0.0.1:1 failed: Connection refused", False),
        ("_RESOLVE: Failed to resolve 'nowhere:9092': Name or service not known", False),
        ("_TRANSPORT: Disconnected while requesting ApiVersion", True),
        ("_TIMED_OUT: Failed while waiting for controller", True),
    ],
)
def test_nobody_is_asked_to_log_in_where_nobody_listens(words, log_in):
    assert ("log in?" in what_to_do(words)) is log_in
