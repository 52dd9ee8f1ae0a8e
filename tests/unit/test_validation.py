"""Settings that `prozess validate` is given: what is known, what is misspelt, and what the clients make of them."""

import pytest

from harness.errors import BadInput
from harness.validation.clients import translate_consumer, translate_producer
from harness.validation.known import properties_of, versions
from harness.validation.servers import translate_servers
from tests.unit.predictions import SAFE_TOPIC, VERSION, of, predicted, weak

# --- what is known, and what is misspelt


def test_properties_of_both_versions_and_of_librdkafka_are_known_with_their_defaults():
    assert versions() == ["3.9.2", "4.3.1"]
    assert properties_of("producer", "java", VERSION)["acks"]["default"] == "all"
    assert properties_of("producer", "librdkafka", VERSION)["enable.idempotence"]["default"] == "false"
    assert properties_of("topic", "java", "4.0.0")["min.insync.replicas"]["server"] == "min.insync.replicas"
    assert "zookeeper.connect" in properties_of("broker", "java", "3.9.0")


@pytest.mark.parametrize(
    ("name", "meant"), [("ack", "acks"), ("ackz", "acks"), ("enable.idempotent", "enable.idempotence")]
)
def test_a_misspelt_property_is_refused_with_the_one_that_was_meant(name, meant):
    with pytest.raises(BadInput, match=f"the file, {name}.*did you mean '{meant}'"):
        translate_producer(of({name: "1"}), "java", VERSION)


def test_a_name_that_is_nobodys_is_said_to_do_nothing():
    found = translate_producer(of({"my.own.thing": "1"}), "java", VERSION)
    assert "my.own.thing is no property of Kafka's: it does nothing" in found.notes
    assert not any("my.own" in key for key in found.base)


def test_a_name_that_is_nobodys_is_told_with_the_nearest_one_that_is_known():
    found = translate_producer(of({"idempotence": "true"}), "java", VERSION)
    assert (
        "idempotence is no property of Kafka's: it does nothing (the nearest one is enable.idempotence)" in found.notes
    )
    found = translate_servers(of({"min.insync": "2"}), None, VERSION, None)
    assert any("the nearest one is min.insync.replicas" in note for note in found.notes)


@pytest.mark.parametrize(("name", "value"), [("linger.ms", "soon"), ("enable.idempotence", "yes")])
def test_a_value_of_another_type_is_refused(name, value):
    with pytest.raises(BadInput, match=f"{name} = '{value}'"):
        translate_producer(of({name: value}), "java", VERSION)


# --- defaults and contradictions, as the clients have them


def test_a_java_producer_is_idempotent_by_default_and_silently_not_with_acks_1():
    assert translate_producer({}, "java", VERSION).base["producer.enable_idempotence"] is True
    found = translate_producer(of({"acks": "1"}), "java", VERSION)
    assert found.base["producer.enable_idempotence"] is False
    assert any("silently off" in note for note in found.notes)


def test_librdkafka_is_not_idempotent_by_default_and_lowers_what_nobody_set():
    assert translate_producer({}, "librdkafka", VERSION).base["producer.enable_idempotence"] is False
    found = translate_producer(of({"enable.idempotence": "true"}), "librdkafka", VERSION)
    assert found.base["producer.max_in_flight"] == 5


@pytest.mark.parametrize("client", ["java", "librdkafka"])
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"enable.idempotence": "false"}, "transactional.id needs enable.idempotence=true.*Change enable.idempotence"),
        ({"acks": "1"}, "transactional.id needs acks=all, not 1.*Change acks, or leave transactional.id out"),
    ],
)
def test_a_transactional_id_without_what_it_needs_is_refused(client, values, said):
    with pytest.raises(BadInput, match=said):
        translate_producer(of({"transactional.id": "a"} | values), client, VERSION)


@pytest.mark.parametrize("client", ["java", "librdkafka"])
def test_a_transactional_producer_is_predicted_and_put_on_trial_with_somebody_to_take_its_id_over(client):
    prediction = predicted({"transactional.id": "orders"}, client=client)
    assert {"torn", "zombie-write", "lost"} <= {guarantee.anomaly for guarantee in prediction.promised}
    plan = prediction.parts.plan()
    assert any(step.do is not None and step.do.kind == "take_over" for step in plan.steps)
    assert {client.instance for client in plan.clients if client.transactional_id is not None} == {0, 1}


def test_what_the_trials_own_readers_see_of_open_and_aborted_transactions_is_no_broken_promise():
    prediction = predicted({"transactional.id": "orders"})
    assert {"aborted-read", "early-read"} <= weak(prediction)
    assert "own-read" in {guarantee.anomaly for guarantee in prediction.promised}, "its transactions read nothing"


def test_aliases_of_librdkafka_are_one_setting():
    for name in ("acks", "request.required.acks"):
        assert translate_producer(of({name: "1"}), "librdkafka", VERSION).base["producer.acks"] == "1"


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"acks": "1"}, "acks"),
        ({"retries": "0"}, "retries"),
        ({"max.in.flight.requests.per.connection": "6"}, "in flight"),
    ],
)
@pytest.mark.parametrize("client", ["java", "librdkafka"])
def test_what_the_client_would_refuse_is_refused_with_file_and_way_out(more, what, client):
    with pytest.raises(BadInput, match=rf"the file.*{what}.*refuses to start"):
        translate_producer(of({"enable.idempotence": "true"} | more), client, VERSION)


def test_each_client_has_its_own_default_isolation_level():
    levels = {
        c: translate_consumer({}, c, VERSION, commits="sync-after").base["group.isolation_level"]
        for c in ("java", "librdkafka")
    }
    assert levels == {"java": "read_uncommitted", "librdkafka": "read_committed"}


def test_a_topic_takes_what_it_does_not_say_from_its_brokers_and_they_from_kafka():
    broker = of({"min.insync.replicas": "2", "default.replication.factor": "3", "log.cleanup.policy": "compact"})
    found = translate_servers(of({"min.insync.replicas": "1"}), broker, VERSION, None).base
    assert (found["topic.min_insync_replicas"], found["topic.replication_factor"]) == (1, 3)
    assert found["topic.cleanup_policy"] == "compact"
    assert found["topic.unclean_leader_election_enable"] is False
    assert translate_servers(None, None, VERSION, None).base["topic.replication_factor"] == 1


def test_where_brokers_are_is_left_out_and_what_they_promise_is_kept():
    broker = of({"listeners": "PLAINTEXT://:9092", "log.dirs": "/d", "replica.lag.time.max.ms": "5000", "node.id": "1"})
    found = translate_servers(None, broker, VERSION, None).base
    assert found["variant.properties.replica.lag.time.max.ms"] == "5000"
    assert not any(key.endswith(("listeners", "log.dirs", "node.id")) for key in found)


def test_brokers_defaults_of_topics_are_set_on_the_topic_so_that_no_internal_one_has_them():
    broker = of({"log.cleanup.policy": "compact", "log.segment.bytes": "1048576", "min.insync.replicas": "2"})
    found = translate_servers(None, broker, VERSION, None).base
    assert found["topic.properties.segment.bytes"] == "1048576"
    assert not any(key.startswith("variant.properties.") for key in found)


def test_a_compacted_topic_is_written_with_keys_and_groups_read_one_that_is_not():
    topic = SAFE_TOPIC | {"cleanup.policy": "compact"}
    cells = predicted({"acks": "all"}, consumer={"auto.offset.reset": "earliest"}, topic=topic).plan.cells
    assert [(cell.workload, cell.topic.cleanup_policy) for cell in cells] == [
        ("compaction", "compact"),
        ("group", "delete"),
    ]
