"""Settings that `prozess validate` is given: what is known, what is misspelt, and what the clients make of them."""

import pytest

from prozess.harness.config.client_settings import translate_consumer, translate_producer
from prozess.harness.config.known_properties import properties_of, versions
from prozess.harness.errors import BadInput
from prozess.validation.servers import translate_servers
from tests.support.predictions import SAFE_TOPIC, VERSION, of, predicted

# --- what is known, and what is misspelt


def test_properties_of_every_minor_version_and_of_librdkafka_are_known_with_their_defaults():
    minors = ["2.8", *(f"3.{n}" for n in range(10)), *(f"4.{n}" for n in range(5))]
    assert [version.rpartition(".")[0] for version in versions()] == minors
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


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("linger.ms", "soon", "must be a whole number"),
        ("linger.ms", "-1", "must be at least 0"),
        ("linger.ms", "5.0", "must be a whole number"),
        ("enable.idempotence", "yes", "must be true or false"),
        ("acks", "2", "must be one of all, -1, 0, 1"),
        ("acks", "banana", "must be one of all, -1, 0, 1"),
        ("retries", "-5", "must be 0 to 2147483647"),
        ("batch.size", "-7", "must be at least 0"),
        ("compression.type", "zip", "must be one of none, gzip, snappy, lz4, zstd"),
    ],
)
def test_a_value_that_kafkas_producer_refuses_is_refused_with_the_rule_and_the_way_out(name, value, rule):
    with pytest.raises(
        BadInput, match=f"the file, {name}: {name} = '{value}' {rule}.*Kafka refuses it. Change the value"
    ):
        translate_producer(of({name: value}), "java", VERSION)


@pytest.mark.parametrize(
    ("name", "value"), [("isolation.level", "foo"), ("auto.offset.reset", "smallest"), ("max.poll.records", "0")]
)
def test_a_value_that_kafkas_consumer_refuses_is_refused(name, value):
    with pytest.raises(BadInput, match=f"{name} = '{value}' must be .*Kafka refuses it"):
        translate_consumer(of({name: value}), "java", VERSION, commits="none")


def test_by_duration_is_known_from_4_0_on_and_no_trial_runs_it():
    by_duration = of({"auto.offset.reset": "by_duration:PT1H"})
    with pytest.raises(BadInput, match="must be one of latest, earliest, none:"):
        translate_consumer(by_duration, "java", "3.9.2", commits="none")
    found = translate_consumer(by_duration, "java", "4.0.0", commits="none")
    assert [each.name for each in found.unclear] == ["auto.offset.reset"]


def test_what_librdkafka_takes_is_read_as_it_reads_it():
    given = of({"retries": "0x3 times", "enable.idempotence": "T", "linger.ms": "0.5", "acks": "ALL"})
    found = translate_producer(given, "librdkafka", VERSION).base
    assert (found["producer.retries"], found["producer.enable_idempotence"]) == ("3", True)
    assert (found["producer.linger_ms"], found["producer.acks"]) == (0.5, "all")


def test_acks_that_librdkafka_takes_and_brokers_refuse_are_refused():
    with pytest.raises(BadInput, match=r"acks = '2' must be 0, 1 or all.*INVALID_REQUIRED_ACKS"):
        translate_producer(of({"acks": "2"}), "librdkafka", VERSION)


@pytest.mark.parametrize("value", ["${ACKS}", "${ACKS:all}", "$(ACKS)", "{{ acks }}", "%{acks}", "#{acks}"])
def test_a_placeholder_is_no_wrong_value_and_nothing_is_known_of_it(value):
    found = translate_producer(of({"acks": value}), "java", VERSION)
    assert [(each.name, each.why) for each in found.unclear] == [
        ("acks", f"is a placeholder: what {value} stands for is not in the file")
    ]


def test_code_that_takes_part_in_every_record_is_unknown():
    found = translate_producer(of({"interceptor.classes": "com.example.Audit"}), "java", VERSION)
    assert [each.name for each in found.unclear] == ["interceptor.classes"]


def test_retries_are_run_as_they_are():
    assert translate_producer(of({"retries": "3"}), "java", VERSION).base["producer.retries"] == "3"
    assert predicted({"retries": "3"}).plan.cells[0].producer.retries == "3"


@pytest.mark.parametrize(
    ("client", "values", "said"),
    [
        ("java", {"delivery.timeout.ms": "1000"}, "must be at least linger.ms .*Set it to 30005 or more"),
        ("java", {"max.in.flight.requests.per.connection": "6"}, "its default, needs at most 5 in flight, not 6"),
        ("librdkafka", {"linger.ms": "400", "message.timeout.ms": "300"}, "must be less than message.timeout.ms, 300"),
        (
            "librdkafka",
            {"transactional.id": "a", "message.timeout.ms": "70000"},
            "at most transaction.timeout.ms, 60000",
        ),
        ("librdkafka", {"enable.gapless.guarantee": "true"}, "needs enable.idempotence=true"),
    ],
)
def test_settings_of_a_producer_that_do_not_fit_each_other_are_refused(client, values, said):
    with pytest.raises(BadInput, match=f"the file, .*{said}"):
        translate_producer(of(values), client, VERSION)


@pytest.mark.parametrize(
    ("client", "values", "said"),
    [
        ("java", {"heartbeat.interval.ms": "50000"}, "less than session.timeout.ms, 45000"),
        ("java", {"group.protocol": "consumer", "session.timeout.ms": "10000"}, "is decided by the brokers.*KIP-848"),
        ("java", {"group.instance.id": "a b"}, "at most 249 letters"),
        ("librdkafka", {"max.poll.interval.ms": "1000"}, "at least session.timeout.ms, 45000"),
        (
            "librdkafka",
            {"group.protocol": "consumer", "heartbeat.interval.ms": "1"},
            "is decided by the brokers.*KIP-848",
        ),
    ],
)
def test_settings_of_a_consumer_that_do_not_fit_each_other_are_refused(client, values, said):
    with pytest.raises(BadInput, match=f"the file, .*{said}"):
        translate_consumer(of(values), client, VERSION, commits="none")


def test_an_older_clients_own_rules_count():
    assert translate_producer(of({"enable.idempotence": "true"}), "java", "2.8.2").base["producer.acks"] == "all"
    assert translate_producer({}, "java", "2.8.2").base["producer.acks"] == "1"
    for version, idempotent in (("3.0.0", False), ("3.0.1", True), ("3.1.0", False), ("3.1.1", True), ("4.3.1", True)):
        assert translate_producer({}, "java", version).base["producer.enable_idempotence"] is idempotent, version
    given = of({"max.in.flight.requests.per.connection": "6"})
    assert translate_producer(given, "java", "3.9.2").base["producer.enable_idempotence"] is False


def test_a_default_that_does_not_fit_is_moved_as_the_client_moves_it():
    found = translate_producer(of({"linger.ms": "200000"}), "java", VERSION)
    assert found.base["producer.delivery_timeout_ms"] == 230_000
    assert any("configureDeliveryTimeout" in note for note in found.notes)
    assert (
        translate_producer(of({"message.timeout.ms": "0"}), "librdkafka", VERSION).base["producer.delivery_timeout_ms"]
        == 2**31 - 1
    )


# --- defaults and contradictions, as the clients have them


def test_a_java_producer_is_idempotent_by_default_and_silently_not_with_acks_1():
    assert translate_producer({}, "java", VERSION).base["producer.enable_idempotence"] is True
    found = translate_producer(of({"acks": "1"}), "java", VERSION)
    assert found.base["producer.enable_idempotence"] is False
    assert any("silently switches idempotence off" in note for note in found.notes)


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
    assert {"aborted-read", "early-read"} <= {weakness.guarantee.anomaly for weakness in prediction.of_trial}
    assert {"aborted-read", "early-read"} <= set(prediction.not_judged["consumer"]), "of a consumer that was not given"
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


def test_brokers_defaults_of_topics_are_set_on_the_topic_so_that_no_internal_one_has_them_but_for_its_minimum():
    broker = of({"log.cleanup.policy": "compact", "log.segment.bytes": "1048576", "min.insync.replicas": "2"})
    found = translate_servers(None, broker, VERSION, None).base
    assert found["topic.properties.segment.bytes"] == "1048576"
    of_brokers = {key: value for key, value in found.items() if key.startswith("variant.properties.")}
    assert of_brokers == {"variant.properties.min.insync.replicas": "2"}, "__consumer_offsets takes it from them"


@pytest.mark.parametrize(("value", "brokers"), [("1", 3), ("5", 5), ("50", 9)])
def test_a_trial_has_as_many_brokers_as_an_internal_topic_has_copies_up_to_nine(value, brokers):
    name = "offsets.topic.replication.factor"
    found = translate_servers(None, of({name: value}), VERSION, None)
    assert found.base["variant.brokers"] == brokers
    assert found.base[f"variant.properties.{name}"] == str(min(9, int(value)))
    assert any("9 brokers, and not 50" in note for note in found.notes) == (value == "50")


def test_more_copies_than_a_trial_has_brokers_are_refused_with_the_way_out():
    with pytest.raises(BadInput, match=r"replication\.factor = 50.*at most 9"):
        translate_servers(of({"replication.factor": "50"}), None, VERSION, None)
    assert translate_servers(of({"replication.factor": "3"}), None, VERSION, 20).base["variant.brokers"] == 9


def test_a_compacted_topic_is_written_with_keys_and_groups_read_one_that_is_not():
    topic = SAFE_TOPIC | {"cleanup.policy": "compact"}
    cells = predicted({"acks": "all"}, consumer={"auto.offset.reset": "earliest"}, topic=topic).plan.cells
    assert [(cell.workload, cell.topic.cleanup_policy) for cell in cells] == [
        ("compaction", "compact"),
        ("group", "delete"),
    ]
