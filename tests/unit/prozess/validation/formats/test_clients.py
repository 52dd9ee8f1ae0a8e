"""Client libraries by their own names: librdkafka, sarama, franz-go, kafkajs, kafka-python, aiokafka."""

import json

import pytest

from prozess.harness.errors import BadInput
from prozess.harness.exit_codes import ExitCode
from prozess.validation.command import ValidationInput, validate
from prozess.validation.comparison import Budget
from prozess.validation.formats.client_libraries import LIBRARIES, go_duration_ms
from prozess.validation.formats.filing import CLIENT_SCOPES, names_of
from prozess.validation.reading import SCOPES
from prozess.validation.sources import read_file


def read(tmp_path, document, *wanted, name="client.json"):
    path = tmp_path / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return read_file(path, wanted or ("producer",))


def given(reading, scope):
    return {name: setting.value for name, setting in reading.scopes.get(scope, {}).items()}


def effective(reading, scope):
    defaults = {name: setting.value for name, setting in reading.defaults.get(scope, {}).items()}
    return defaults | given(reading, scope)


def doubts(reading):
    return {each.name: each.why for each in reading.unclear}


def judged(capsys, **files):
    class Options:
        as_json = True

    code = validate(ValidationInput(**files), Budget(0), Options())
    return code, json.loads(capsys.readouterr().out)


# --- every library -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=lambda library: library.name)
def test_every_option_and_default_of_a_library_is_a_property_of_librdkafka(library):
    for scope in CLIENT_SCOPES:
        names = {option.name for option in library.options[scope].values()} | set(library.defaults[scope])
        assert names <= names_of(scope, "librdkafka")


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=lambda library: library.name)
def test_no_option_of_a_library_counts_and_is_put_aside(library):
    for scope in CLIENT_SCOPES:
        assert not [name for name in library.options[scope] if name in library.unclear]
        assert not [name for name in library.options[scope] if library.is_aside(name) and library.name != "aiokafka"]


@pytest.mark.parametrize(
    ("library", "document"),
    [
        ("sarama", {"Producer": {"RequiredAcks": -1, "Retry": {"Max": 10}}, "Net": {"MaxOpenRequests": 1}}),
        ("franz-go", {"RequiredAcks": "AllISRAcks"}),
        ("kafkajs", {"idempotent": True, "maxInFlightRequests": 1, "acks": -1}),
        ("kafka-python", {"acks": "all", "retries": 5, "enable_idempotence": True, "bootstrap_servers": "x:9092"}),
        ("aiokafka", {"aiokafka": {"acks": "all", "enable_idempotence": True}}),
    ],
)
def test_what_another_client_runs_is_never_promised_and_its_rule_can_be_accepted(tmp_path, capsys, library, document):
    path = tmp_path / "client.json"
    path.write_text(json.dumps(document))
    code, told = judged(capsys, producer=path)
    assert (code, told["promised"]) == (ExitCode.UNKNOWN, [])
    (other,) = [each for each in told["unclear"] if each["rule"] == "other-client"]
    assert f"{library}'s own code is not judged" in other["why"]


@pytest.mark.parametrize(
    "document",
    [
        {"acks": "all", "linger.ms": 5},
        {"producer": {"acks": "all"}, "consumer": {"group.id": "g"}},
        {"linger": {"ms": 5}},
        {"retries": 3, "acks": "1"},
    ],
)
def test_kafkas_own_names_are_of_no_library(tmp_path, document):
    assert read(tmp_path, document).format == "JSON with Kafka's names"


# --- librdkafka ----------------------------------------------------------------------------------------------------------


def test_properties_of_librdkafka_are_read_with_those_of_topics_and_bindings(tmp_path):
    reading = read(
        tmp_path,
        {
            "confluent_kafka": {
                "bootstrap.servers": "${BROKERS}",
                "go.delivery.reports": True,
                "producer": {"default.topic.config": {"request.required.acks": -1, "message.timeout.ms": 60000}},
                "consumer": {"group.id": "g", "enable.auto.offset.store": False},
            }
        },
        "producer",
        "consumer",
    )
    assert given(reading, "producer") == {"request.required.acks": "-1", "message.timeout.ms": "60000"}
    assert given(reading, "consumer") == {"group.id": "g", "enable.auto.offset.store": "false"}
    assert (reading.library, reading.stands_in) == ("librdkafka", "")
    assert {"confluent_kafka.bootstrap.servers", "confluent_kafka.go.delivery.reports"} <= set(reading.aside)
    assert not reading.unclear


def test_what_librdkafka_does_not_know_is_named(tmp_path):
    reading = read(tmp_path, {"queue.buffering.max.ms": 5, "message.timeout": 1, "request.required.acks": "$ACKS"})
    assert "did you mean message.timeout.ms" in doubts(reading)["message.timeout"]
    assert "$ACKS" in doubts(reading)["request.required.acks"]


def test_librdkafka_itself_is_run_so_that_it_can_be_promised(tmp_path, capsys):
    path = tmp_path / "client.yaml"
    path.write_text("queue.buffering.max.ms: 5\nacks: all\nenable.idempotence: true\n")
    code, told = judged(capsys, producer=path, kafka_defaults=True)
    assert code == ExitCode.HELD
    assert "duplicate" in told["promised"]


# --- sarama --------------------------------------------------------------------------------------------------------------


def test_a_config_of_sarama_is_read_with_saramas_defaults(tmp_path):
    document = {
        "Producer": {"RequiredAcks": "WaitForAll", "Retry": {"Max": 10}, "Return": {"Successes": True}},
        "Consumer": {"Offsets": {"Initial": -2}, "IsolationLevel": 1, "Group": {"Session": {"Timeout": "30s"}}},
        "ClientID": "orders",
    }
    reading = read(tmp_path, document, "producer", "consumer")
    assert effective(reading, "producer") == {
        "acks": "all",
        "enable.idempotence": "false",
        "retries": "10",
        "max.in.flight.requests.per.connection": "5",
    }
    assert given(reading, "consumer") == {
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "session.timeout.ms": "30000",
    }
    assert effective(reading, "consumer")["enable.auto.offset.store"] == "false"
    assert (
        "sarama's default (WaitForLocal, config.go"
        in read(tmp_path, {"sarama": {}}).defaults["producer"]["acks"].origin
    )
    assert not reading.unclear


def test_a_config_of_sarama_in_lower_case_and_dotted_names_is_the_same(tmp_path):
    text = "producer.requiredacks: 1\nproducer:\n  retry: {max: 0}\nnet.maxopenrequests: 1\n"
    assert given(read(tmp_path, text, name="sarama.yaml"), "producer") == {
        "acks": "1",
        "retries": "0",
        "max.in.flight.requests.per.connection": "1",
    }


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ({"Producer": {"RequiredAcks": 2}}, "Producer.RequiredAcks"),
        ({"Producer": {"RequiredAcks": -1, "Retries": 5}}, "Producer.Retries"),
        ({"Producer": {"RequiredAcks": -1, "Transaction": {"Timeout": 60000}}}, "Producer.Transaction.Timeout"),
        ({"Producer": {"RequiredAcks": "${ACKS}"}}, "Producer.RequiredAcks"),
        ({"Producer": {"RequiredAcks": -1, "Interceptors": ["mine"]}}, "Producer.Interceptors"),
        ({"Consumer": {"Offsets": {"Initial": -2, "Retention": "1h"}}}, "Consumer.Offsets.Retention"),
    ],
)
def test_what_is_not_understood_of_sarama_is_named_and_has_no_default(tmp_path, document, name):
    reading = read(tmp_path, document, "producer", "consumer")
    assert name in doubts(reading)
    if name == "Producer.RequiredAcks":
        assert "acks" not in effective(reading, "producer")


@pytest.mark.parametrize(
    ("producer", "why"),
    [
        ({"Idempotent": True, "RequiredAcks": -1}, "Net.MaxOpenRequests=5"),
        ({"Transaction": {"ID": "t"}, "RequiredAcks": -1}, "without Producer.Idempotent"),
    ],
)
def test_what_sarama_itself_refuses_is_refused(tmp_path, producer, why):
    with pytest.raises(BadInput, match=why):
        read(tmp_path, {"Producer": producer})


def test_durations_of_go_have_units():
    assert [go_duration_ms(text) for text in ("1m30s", "1.5s", "250ms", "0", "5000", "s", "-1s")] == [
        "90000", "1500", "250", "0", None, None, None,
    ]  # fmt: skip


# --- franz-go ------------------------------------------------------------------------------------------------------------


def test_options_of_franz_go_are_read_as_a_mapping_and_as_calls(tmp_path):
    calls = ["kgo.RequiredAcks(kgo.LeaderAck())", "kgo.DisableIdempotentWrite()", 'kgo.SeedBrokers("b:9092")']
    for document in ({"RequiredAcks": "LeaderAck", "DisableIdempotentWrite": True, "SeedBrokers": ["b:9092"]}, calls):
        reading = read(tmp_path, document)
        assert effective(reading, "producer") == {
            "acks": "1",
            "enable.idempotence": "false",
            "linger.ms": "10",
            "max.in.flight.requests.per.connection": "1",
        }
        assert not reading.unclear


def test_franz_gos_defaults_are_idempotent_and_begin_at_the_start(tmp_path):
    reading = read(tmp_path, {"ConsumerGroup": "g", "ProducerLinger": "5ms"}, "producer", "consumer")
    assert effective(reading, "producer")["max.in.flight.requests.per.connection"] == "5"
    assert effective(reading, "producer")["enable.idempotence"] == "true"
    assert effective(reading, "consumer")["auto.offset.reset"] == "earliest"


def test_what_is_not_understood_of_franz_go_is_named(tmp_path):
    document = {
        "AllowIdempotentProduceCancellation": True,
        "RequiredAcks": "SomeAcks",
        "RecordRetry": 5,
        "RecordDeliveryTimeout": 30,
    }
    assert set(doubts(read(tmp_path, document))) == set(document)


@pytest.mark.parametrize("option", [{"RequiredAcks": "NoAck"}, {"MaxProduceRequestsInflightPerBroker": 5}])
def test_what_franz_go_itself_refuses_with_idempotence_is_refused(tmp_path, option):
    with pytest.raises(BadInput, match="franz-go refuses"):
        read(tmp_path, option)


# --- kafkajs -------------------------------------------------------------------------------------------------------------


def test_options_of_kafkajs_are_read_and_a_part_overrides_the_client(tmp_path):
    document = {
        "clientId": "shop",
        "brokers": ["b:9092"],
        "retry": {"retries": 8, "initialRetryTime": 100},
        "producer": {"idempotent": True, "maxInFlightRequests": 1, "retry": {"retries": 20}},
        "consumer": {"groupId": "g", "fromBeginning": True, "sessionTimeout": 45000, "autoCommit": False},
    }
    reading = read(tmp_path, document, "producer", "consumer")
    assert effective(reading, "producer") == {
        "acks": "all",
        "enable.idempotence": "true",
        "max.in.flight.requests.per.connection": "1",
        "retries": "20",
    }
    assert effective(reading, "consumer") == {
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "session.timeout.ms": "45000",
        "max.poll.interval.ms": "60000",
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
    }
    assert "retry.retries" in reading.aside
    assert not reading.unclear


def test_kafkajs_gives_up_after_five_retries_with_idempotence_too(tmp_path):
    assert effective(read(tmp_path, {"idempotent": True}), "producer")["retries"] == "5"


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ({"idempotent": "yes"}, "idempotent"),
        ({"idempotent": True, "idempotence": True}, "idempotence"),
        ({"idempotent": True, "acks": 2}, "acks"),
        ({"autoCommitThreshold": 100, "fromBeginning": True}, "autoCommitThreshold"),
        ({"producer": {"idempotent": True, "fromBeginning": True}}, "producer.fromBeginning"),
    ],
)
def test_what_is_not_understood_of_kafkajs_is_named(tmp_path, document, name):
    assert list(doubts(read(tmp_path, document))) == [name]


# --- kafka-python and aiokafka -------------------------------------------------------------------------------------------


def test_arguments_of_kafka_python_are_read(tmp_path):
    document = {"acks": "all", "enable_idempotence": False, "retries": 3, "max_in_flight_requests_per_connection": 1}
    reading = read(tmp_path, document)
    assert effective(reading, "producer") == {
        "acks": "all",
        "enable.idempotence": "false",
        "retries": "3",
        "max.in.flight.requests.per.connection": "1",
    }
    assert not reading.unclear


def test_a_default_of_kafka_python_that_depends_on_its_release_is_named(tmp_path):
    reading = read(tmp_path, {"bootstrap_servers": "b:9092", "delivery_timeout_ms": 60000})
    assert set(doubts(reading)) == {"acks", "enable_idempotence", "retries"}
    assert "1 up to 2.3 and all since 3.0" in doubts(reading)["acks"]


def test_arguments_of_aiokafka_are_read_and_acks_follow_idempotence(tmp_path):
    plain = effective(read(tmp_path, {"aiokafka": {"linger_ms": 5}}), "producer")
    assert (plain["acks"], plain["max.in.flight.requests.per.connection"]) == ("1", "1")
    assert effective(read(tmp_path, {"aiokafka": {"enable_idempotence": True}}), "producer")["acks"] == "all"
    transactional = effective(read(tmp_path, {"aiokafka": {"transactional_id": "t"}}), "producer")
    assert (transactional["acks"], transactional["enable.idempotence"]) == ("all", "true")
    with pytest.raises(BadInput, match="aiokafka refuses acks=1"):
        read(tmp_path, {"aiokafka": {"enable_idempotence": True, "acks": 1}})


def test_arguments_that_either_library_may_have_are_not_understood_whole(tmp_path):
    reading = read(tmp_path, {"bootstrap_servers": "b:9092", "group_id": "g"}, "consumer")
    assert reading.library == "kafka-python or aiokafka"
    assert any("put the arguments below the library's name" in why for why in doubts(reading).values())
    assert "acks" in doubts(read(tmp_path, {"bootstrap_servers": "b:9092", "enable_idempotence": True}))


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ({"retries": 3, "delivery_timeout_ms": 1, "acks": "quorum"}, "acks"),
        ({"delivery_timeout_ms": 1, "acknowledgements": 1}, "acknowledgements"),
        ({"aiokafka": {"linger_ms": 5, "retries": 3}}, "aiokafka.retries"),
        ({"aiokafka": {"linger_ms": "$LINGER"}}, "aiokafka.linger_ms"),
    ],
)
def test_what_is_not_understood_of_python_clients_is_named(tmp_path, document, name):
    assert name in doubts(read(tmp_path, document))


def test_options_of_kafkajs_calls_are_those_of_producer_and_consumer(tmp_path):
    path = tmp_path / "kafkajs.json"
    run = {"autoCommit": True, "autoCommitInterval": 5000, "eachBatchAutoResolve": True}
    path.write_text(json.dumps({"kafkajs": {"producer": {"idempotent": False}, "send": {"acks": 1}, "run": run}}))
    reading = read_file(path, SCOPES)
    assert reading.unclear == []
    assert reading.scopes["producer"]["acks"].value == "1"
    assert reading.scopes["consumer"]["auto.commit.interval.ms"].value == "5000"
    path.write_text(
        json.dumps(
            {"kafkajs": {"producer": {"acks": 1}, "send": {"acks": -1}, "run": run | {"eachBatchAutoResolve": False}}}
        )
    )
    assert [each.name for each in read_file(path, SCOPES).unclear] == [
        "kafkajs.send.acks",
        "kafkajs.run.eachBatchAutoResolve",
    ]
