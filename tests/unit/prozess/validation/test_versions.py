"""Versions that are not known, and settings of two files that do not fit each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.config.client_settings import translate_consumer, translate_producer
from prozess.harness.config.known_properties import librdkafka_version, versions
from prozess.harness.errors import BadInput, MissingTool
from prozess.validation.command import ValidationInput, translate
from prozess.validation.servers import doubt_across, translate_servers
from prozess.validation.trial import doubts_of_client, doubts_of_kafka
from tests.support.predictions import VERSION, of

# --- versions


def there(version):
    pass


def never_published(version):
    raise BadInput(f"the repository has no such version of Kafka: {version}")


def nobody_to_ask(version):
    raise MissingTool("the repository cannot be reached")


@pytest.mark.parametrize("version", versions())
def test_a_version_that_is_known_is_not_asked_for(version):
    assert not list(doubts_of_kafka(version, "--kafka-version", never_published))


def test_a_version_that_was_never_published_is_refused():
    with pytest.raises(BadInput, match=r"--kafka-version: the repository has no such version of Kafka: 9.9.9"):
        list(doubts_of_kafka("9.9.9", "--kafka-version", never_published))


def test_a_version_that_nobody_could_be_asked_for_is_unknown():
    (doubt,) = doubts_of_kafka("4.1.0", "--kafka-version", nobody_to_ask)
    assert "may not exist" in doubt.sentence()


@given(st.integers(0, 9), st.integers(0, 20), st.integers(0, 9))
def test_of_a_minor_release_that_nobody_knows_nothing_is_promised(major, minor, patch):
    version = f"{major}.{minor}.{patch}"
    known = any(each.startswith(f"{major}.{minor}.") for each in versions())
    assert bool(list(doubts_of_kafka(version, "--kafka-version", there))) is not known
    assert bool(list(doubts_of_kafka(version, "", never_published))) is not known, "a running cluster is there"


def test_another_client_than_the_trials_promises_nothing():
    assert not list(doubts_of_client("librdkafka", librdkafka_version(), VERSION, never_published))
    (other,) = doubts_of_client("librdkafka", "2.3.0", VERSION, never_published)
    assert "is 2.3.0" in other.why
    assert "commits (librdkafka#4844), " in other.why, "what later releases fixed"
    assert not list(doubts_of_client("java", None, VERSION, never_published))
    assert not list(doubts_of_client("java", VERSION, VERSION, never_published))
    assert not list(doubts_of_client("java", "3.9.2", VERSION, never_published)), "the trials run it"
    (older,) = doubts_of_client("java", "3.9.2", VERSION, never_published, runs=False)
    assert (other.rule, older.rule) == ("other-client", "other-client")


@pytest.mark.parametrize(
    ("client", "version", "more", "runs"),
    [
        ("java", "3.9.2", "", ("java", "3.9.2")),
        ("java", "4.3.1", "", ("java", "4.3.1")),
        ("java", "3.9.2", "transactional.id=a\n", ("librdkafka", None)),
        ("librdkafka", "2.8.0", "", ("librdkafka", "2.8.0")),
        ("librdkafka", librdkafka_version(), "", ("librdkafka", None)),
        ("librdkafka", None, "", ("librdkafka", None)),
    ],
)
def test_trials_run_the_version_of_the_client_that_was_told(tmp_path, client, version, more, runs):
    path = tmp_path / "producer.properties"
    path.write_text(f"acks=all\n{more}", encoding="utf-8")
    parts = translate(ValidationInput(producer=path, client=client, client_version=version, kafka_version="4.3.1"))
    plan = parts.plan(control=False)
    assert {(library.client, library.version) for library in plan.libraries} == {runs}
    doubted = any(each.rule == "other-client" for each in parts.producer.unclear)
    assert doubted == (bool(more) or version == "2.8.0")


# --- two files

TRANSACTIONAL = {"transactional.id": "a", "transaction.timeout.ms": "1000000"}


def test_a_transaction_longer_than_the_brokers_allow_is_refused_where_they_are_told_and_doubted_where_not():
    said = "transaction.timeout.ms = 1000000 must be at most transaction.max.timeout.ms, 900000 .*INVALID_TRANSACTION_TIMEOUT"
    client, servers = (
        translate_producer(of(TRANSACTIONAL), "java", VERSION),
        translate_servers(None, of({}), VERSION, None),
    )
    with pytest.raises(BadInput, match=said):
        doubt_across(client, servers, VERSION, given_by_somebody=True)
    doubt_across(client, servers, VERSION, given_by_somebody=False)
    assert [each.name for each in client.unclear] == ["transaction.timeout.ms"]
    longer = translate_servers(None, of({"transaction.max.timeout.ms": "1000000"}), VERSION, None)
    client = translate_producer(of(TRANSACTIONAL), "java", VERSION)
    doubt_across(client, longer, VERSION, given_by_somebody=True)
    assert not client.unclear


@pytest.mark.parametrize(
    ("session", "limits", "said"),
    [
        ("5999", {}, "at least group.min.session.timeout.ms, 6000"),
        ("60001", {"group.max.session.timeout.ms": "60000"}, "at most group.max.session.timeout.ms, 60000"),
    ],
)
def test_a_session_outside_the_brokers_limits_is_refused(session, limits, said):
    given = of({"session.timeout.ms": session, "heartbeat.interval.ms": "1000"})
    member = translate_consumer(given, "java", VERSION, commits="none")
    with pytest.raises(BadInput, match=f"{said}.*INVALID_SESSION_TIMEOUT"):
        doubt_across(member, translate_servers(None, of(limits), VERSION, None), VERSION, given_by_somebody=True)


# --- brokers and topics


@pytest.mark.parametrize(
    ("topic", "broker", "said"),
    [
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, {}, "is more than max.compaction.lag.ms, 1"),
        (
            {},
            {"replica.lag.time.max.ms": "100"},
            "replica.fetch.wait.max.ms, 500, is more than replica.lag.time.max.ms",
        ),
        ({}, {"log.retention.ms": "0"}, "log.retention.ms = 0 must be at least 1, or -1 for ever"),
        ({}, {"log.cleaner.threads": "128"}, "must be more than 1 MB for each of log.cleaner.threads, 128"),
        ({"cleanup.policy": "banana"}, {}, "cleanup.policy = 'banana' must be a list of compact, delete"),
        ({"min.insync.replicas": "0"}, {}, "min.insync.replicas = '0' must be at least 1"),
        ({}, {"unclean.leader.election.enable": "maybe"}, "must be true or false"),
        ({"replication.factor": "0"}, {}, "replication.factor = '0' must be a number from 1 on"),
    ],
)
def test_what_brokers_refuse_is_refused(topic, broker, said):
    with pytest.raises(BadInput, match=f"the file, .*{said}"):
        translate_servers(of(topic), of(broker), VERSION, None)


def test_a_topic_that_is_compacted_and_deleted_is_run_by_no_trial():
    found = translate_servers(of({"cleanup.policy": "compact,delete"}), None, VERSION, None)
    assert [each.name for each in found.unclear] == ["cleanup.policy"]


def test_a_placeholder_of_a_topic_is_unknown():
    found = translate_servers(of({"min.insync.replicas": "${ISR}"}), of({"log.roll.ms": "${ROLL}"}), VERSION, None)
    assert [each.name for each in found.unclear] == ["min.insync.replicas", "log.roll.ms"]


def test_a_replication_factor_of_minus_one_is_the_brokers_own():
    found = translate_servers(of({"replication.factor": "-1"}), of({"default.replication.factor": "3"}), VERSION, None)
    assert found.base["topic.replication_factor"] == 3
