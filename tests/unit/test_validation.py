"""`prozess validate` before anything runs: files become settings, settings a prediction; bad files are refused by name."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import BadInput, ClusterFailed, ExitCode
from harness.validation.clients import translate_consumer, translate_producer
from harness.validation.command import Budget, Given, translate, validate
from harness.validation.comparison import Comparison, Observed, Seen, observe
from harness.validation.known import Setting, properties_of, versions
from harness.validation.live import version_to_run
from harness.validation.predict import CHANGES, Prediction
from harness.validation.servers import translate_servers
from harness.validation.sources import broker_property, compose_services, read_settings
from harness.validation.trial import Parts
from harness.verdict import AnomalyOutcome

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
VERSION = "4.3.1"
SAFE_TOPIC = {"replication.factor": "3", "min.insync.replicas": "2"}


def settings(**values):
    return {name.replace("_", "."): Setting(str(value), f"app:{name}") for name, value in values.items()}


def of(names):
    return {name: Setting(value, f"the file, {name}") for name, value in names.items()}


def predicted(producer=None, *, consumer=None, topic=SAFE_TOPIC, client="java", commits="sync-after"):
    return Prediction(
        Parts(
            translate_servers(of(topic), None, VERSION, None),
            None if producer is None else translate_producer(of(producer), client, VERSION),
            None if consumer is None else translate_consumer(of(consumer), client, VERSION, commits=commits),
            VERSION,
        )
    )


def weak(prediction):
    return {weakness.guarantee.anomaly for weakness in prediction.weaknesses}


# --- files


def test_the_same_settings_are_read_from_properties_json_and_yaml(tmp_path):
    texts = {
        "a.properties": "# a comment\nacks = all\nlinger.ms: 5\nenable.idempotence=\\\n  true\n",
        "a.json": json.dumps({"acks": "all", "linger": {"ms": 5}, "enable.idempotence": True}),
        "a.yaml": "producer:\n  acks: all\n  linger.ms: 5\n  enable.idempotence: true\nconsumer:\n  group.id: g\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        found = read_settings(tmp_path / name, "producer")
        assert {key: setting.value for key, setting in found.items()} == {
            "acks": "all",
            "linger.ms": "5",
            "enable.idempotence": "true",
        }


def test_a_setting_of_a_properties_file_knows_its_line(tmp_path):
    path = tmp_path / "app.properties"
    path.write_text("# one\n\nlinger.ms=\\\n  5\nacks=1\n")
    assert {k: s.origin for k, s in read_settings(path, "producer").items()} == {
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
        read_settings(tmp_path / name, "producer")


@given(st.binary(max_size=200), st.sampled_from(["x.properties", "x.json", "x.yaml"]))
def test_no_garbage_brings_a_traceback(tmp_path_factory, content, name):
    path = tmp_path_factory.mktemp("garbage") / name
    path.write_bytes(content)
    for read in (lambda: read_settings(path, "producer"), lambda: compose_services(path)):
        with suppress(BadInput):
            read()


def test_environment_variables_are_spelt_as_the_apache_kafka_image_does():
    assert broker_property("KAFKA_MIN_INSYNC_REPLICAS") == "min.insync.replicas"
    assert broker_property("KAFKA_A__B___C_D") == "a_b-c.d"


def test_a_compose_file_gives_its_brokers_settings_and_their_number():
    services = compose_services(EXAMPLES / "clickstream" / "compose.yaml")
    assert list(services) == ["kafka-1", "kafka-2", "kafka-3"]
    assert services["kafka-2"]["default.replication.factor"].value == "2"
    assert "heap.opts" not in services["kafka-1"]


def test_a_compose_file_without_brokers_is_refused(tmp_path):
    path = tmp_path / "compose.yaml"
    path.write_text("services:\n  web:\n    image: nginx\n    environment: [A=1]\n")
    with pytest.raises(BadInput, match="KAFKA_"):
        compose_services(path)


# --- what is known, and what is misspelt


def test_properties_of_both_versions_and_of_librdkafka_are_known_with_their_defaults():
    assert versions() == ["3.9.2", "4.3.1"]
    assert properties_of("producer", "java", VERSION)["acks"]["default"] == "all"
    assert properties_of("producer", "librdkafka", VERSION)["enable.idempotence"]["default"] == "false"
    assert properties_of("topic", "java", "4.0.0")["min.insync.replicas"]["server"] == "min.insync.replicas"
    assert "zookeeper.connect" in properties_of("broker", "java", "3.9.0")


@pytest.mark.parametrize(("name", "meant"), [("ack", "acks"), ("enable.idempotent", "enable.idempotence")])
def test_a_misspelt_property_is_refused_with_the_one_that_was_meant(name, meant):
    with pytest.raises(BadInput, match=f"the file, {name}.*did you mean '{meant}'"):
        translate_producer(of({name: "1"}), "java", VERSION)


def test_a_name_that_is_nobodys_is_said_to_do_nothing():
    found = translate_producer(of({"my.own.thing": "1"}), "java", VERSION)
    assert "my.own.thing is no property of Kafka's: it does nothing" in found.notes
    assert not any("my.own" in key for key in found.base)


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


# --- prediction


def test_the_safest_producer_is_promised_everything_about_its_log():
    found = predicted({"acks": "all"})
    assert weak(found) == set()
    assert {"lost", "duplicate", "reordered", "dirty-read"} <= {g.anomaly for g in found.promised}
    assert found.smallest_change() == ((), ())


def test_acks_1_is_blamed_for_losses_and_the_change_is_one_setting():
    found = predicted({"acks": "1"})
    assert {"lost", "duplicate"} <= weak(found)
    (lost,) = [w for w in found.weaknesses if w.guarantee.anomaly == "lost"]
    assert found.remedy(lost) == ("producer.acks",)
    assert found.smallest_change()[0] == ("producer.acks",), "idempotence comes back by itself (KIP-679)"


def test_librdkafkas_defaults_permit_duplicates_and_idempotence_alone_rules_them_out():
    found = predicted({}, client="librdkafka")
    assert "duplicate" in weak(found)
    assert "lost" not in weak(found)
    assert found.smallest_change()[0] == ("producer.enable_idempotence",)


def test_unclean_elections_permit_losses_even_with_acks_all():
    found = predicted({"acks": "all"}, topic=SAFE_TOPIC | {"unclean.leader.election.enable": "true"})
    assert "lost" in weak(found)
    assert found.smallest_change()[0] == ("topic.unclean_leader_election_enable",)


def test_librdkafkas_automatic_commit_may_leave_records_unprocessed_and_javas_does_not():
    consumer = {"enable.auto.commit": "true", "auto.offset.reset": "earliest"}
    assert "unprocessed" in weak(predicted(consumer=consumer, client="librdkafka"))
    assert "unprocessed" not in weak(predicted(consumer=consumer, client="java"))


def test_margins_count_brokers_and_disks():
    margins = predicted({"acks": "all"}).margins
    assert (margins.writes, margins.disks) == (1, 1)
    margins = predicted({"acks": "all"}, topic={"replication.factor": "1"}).margins
    assert (margins.writes, margins.disks) == (0, 0)
    assert "may be lost with a single disk" in " ".join(margins.sentences())
    assert "lose power at once" in " ".join(margins.sentences())
    flushed = predicted({"acks": "all"}, topic=SAFE_TOPIC | {"flush.messages": "1"}).margins
    assert "survives a loss of power" in " ".join(flushed.sentences())


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "acks": st.sampled_from(["0", "1", "all", "-1"]),
            "retries": st.sampled_from(["0", "3", "2147483647"]),
            "max.in.flight.requests.per.connection": st.sampled_from(["1", "5", "10"]),
            "enable.idempotence": st.sampled_from(["true", "false"]),
        },
    ),
    st.sampled_from(["true", "false"]),
    st.sampled_from(["java", "librdkafka"]),
)
def test_every_producer_is_either_refused_or_predicted_and_a_change_never_adds_a_weakness(producer, unclean, client):
    try:
        found = predicted(producer, topic=SAFE_TOPIC | {"unclean.leader.election.enable": unclean}, client=client)
    except BadInput:
        assert producer.get("enable.idempotence") == "true"
        return
    assert not weak(found) & {g.anomaly for g in found.promised}
    changes, left = found.smallest_change()
    assert set(changes) <= set(CHANGES)
    assert {w.guarantee.anomaly for w in left} <= weak(found)
    assert bool(changes) == (len(left) < len(found.weaknesses))


# --- comparison


def compared(outcome, *, judged=True):
    seen = {name: Seen(AnomalyOutcome.HELD) for name in ("lost", "duplicate")} | {"lost": Seen(outcome, 3)}
    found = predicted({"acks": "1"})
    names = {w.guarantee.anomaly for w in found.weaknesses} | {g.anomaly for g in found.promised}
    whole = {name: seen.get(name, Seen(AnomalyOutcome.HELD)) for name in names}
    return Comparison(found, (Observed(whole, judged=judged), Observed(whole)))


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (AnomalyOutcome.SHOWN, ExitCode.HELD),
        (AnomalyOutcome.PERMITTED, ExitCode.HELD),
        (AnomalyOutcome.VIOLATED, ExitCode.VIOLATED),
        (AnomalyOutcome.UNKNOWN, ExitCode.UNKNOWN),
    ],
)
def test_what_was_seen_decides_and_unknown_never_passes(outcome, code):
    assert compared(outcome).exit_code is code


def test_counts_of_several_runs_are_added():
    assert compared(AnomalyOutcome.SHOWN).seen("lost").count == 6


def test_a_run_without_a_verdict_is_unknown():
    assert observe(None, {0}).judged is False
    assert compared(AnomalyOutcome.HELD, judged=False).exit_code is ExitCode.UNKNOWN


# --- the command


@pytest.mark.parametrize(
    "given_files",
    [
        Given(
            producer=EXAMPLES / "payments" / "producer.properties",
            consumer=EXAMPLES / "payments" / "consumer.properties",
            topic=EXAMPLES / "payments" / "topic.properties",
        ),
        Given(producer=EXAMPLES / "clickstream" / "producer.yaml", compose=EXAMPLES / "clickstream" / "compose.yaml"),
        Given(
            producer=EXAMPLES / "cdc" / "producer.json",
            consumer=EXAMPLES / "cdc" / "consumer.properties",
            broker=EXAMPLES / "cdc" / "server.properties",
        ),
    ],
    ids=["payments", "clickstream", "cdc"],
)
def test_the_examples_are_predicted_and_make_a_trial(given_files, capsys):
    parts = translate(given_files)
    assert validate(given_files, Budget(0), options=_Options(as_json=False)) == 0
    assert "promised" in capsys.readouterr().out
    plan = parts.plan()
    own = Prediction(parts).plan.cells
    assert [cell.axes for cell in plan.cells[: len(own)]] == [cell.axes for cell in own]
    assert plan.cells[-1].producer.acks == "1"
    assert plan.controls


def test_strict_makes_a_weakness_a_failure(tmp_path, capsys):
    (tmp_path / "p.properties").write_text("acks=1\n")
    weak_one = Given(producer=tmp_path / "p.properties")
    assert validate(weak_one, Budget(0), _Options(as_json=True)) == ExitCode.HELD
    assert json.loads(capsys.readouterr().out)["change"] == ["acks=all"]
    assert validate(weak_one, Budget(0, strict=True), _Options(as_json=True)) == ExitCode.VIOLATED


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"cluster": "there:9092", "broker": Path("server.properties")}, "--broker and --cluster each say"),
        ({"cluster": "there:9092", "cluster_topic": "t", "topic": Path("t.properties")}, "--topic and --cluster-topic"),
        ({"cluster_topic": "t"}, "Give --cluster HOST:PORT"),
    ],
)
def test_a_running_cluster_and_a_file_that_say_the_same_are_refused(tmp_path, more, said):
    (tmp_path / "p.properties").write_text("acks=1\n")
    with pytest.raises(BadInput, match=said):
        translate(Given(producer=tmp_path / "p.properties", **more))


@pytest.mark.parametrize(
    ("release", "zookeeper", "version"),
    [
        ("4.3", False, "4.3.1"),
        ("3.9", False, "3.9.2"),
        ("4.1", False, "4.1.0"),
        (None, True, "3.9.2"),
        (None, False, VERSION),
    ],
)
def test_trials_run_a_version_of_the_release_that_the_cluster_tells(release, zookeeper, version):
    assert version_to_run(release, zookeeper=zookeeper) == version


def test_a_cluster_that_does_not_answer_is_said_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr("clusters.live_settings.ASK_TIMEOUT_S", 0.3)
    (tmp_path / "p.properties").write_text("acks=1\n")
    with pytest.raises(ClusterFailed, match=r"Kafka at 127.0.0.1:1 does not answer within 0.3 s.*Give --cluster"):
        translate(Given(producer=tmp_path / "p.properties", cluster="127.0.0.1:1"))


def test_nothing_given_is_refused():
    with pytest.raises(BadInput, match="--producer or --consumer"):
        translate(Given())


class _Options:
    def __init__(self, *, as_json):
        self.as_json = as_json
