"""Reports name the client libraries on trial, and what these take where nothing is set."""

from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import load_trial, parse_trial
from prozess.harness.report.words import clients_on_trial


def plan_of(*workloads):
    trial = {"name": "t", "title": "t", "variant": {"kafka_version": "4.3.1"}, "workloads": list(workloads)}
    return make_plan(parse_trial(trial, source="test"), seed=1)


def test_versions_and_what_was_left_to_a_library_are_named_once_each():
    java = {"producer.client": "java", "producer.defaults": "library"}
    plan = plan_of(
        {"kind": "verifiable", "base": java, "axes": {"producer.client_version": ["2.8.2", "default"]}},
        {"kind": "log", "axes": {"producer.client_version": ["2.3.0", "default"]}},
        {"kind": "group", "base": {"group.defaults": "library", "group.auto_offset_reset": "earliest"}},
    )
    lines = clients_on_trial(plan)
    assert lines[:2] == ["Kafka's Java client 2.8.2", "librdkafka 2.3.0"]
    assert lines[2].startswith("librdkafka 2.3.0 has defects that later releases fixed: commits (librdkafka#4844), ")
    assert (
        "Kafka's Java client 2.8.2, producers by its own defaults: acks=1, enable.idempotence=false, retries=max, "
        "max.in.flight.requests.per.connection=5, delivery.timeout.ms=120000, compression.type=none, linger.ms=0"
    ) in lines
    assert any(
        line.startswith("Kafka's Java client 4.3.1, producers by its own defaults: acks=all, ") for line in lines
    )
    (members,) = (line for line in lines if "members" in line)
    assert members.startswith("librdkafka, members by its own defaults: protocol=classic-eager, commit=auto, ")
    assert "auto.offset.reset" not in members
    assert len(lines) == len(set(lines)) == 6


def test_of_a_trial_that_names_no_library_nothing_is_said():
    assert clients_on_trial(make_plan(load_trial("smoke"), seed=1)) == []
