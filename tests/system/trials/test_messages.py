"""Single messages of Kafka's protocol on real Kafka: refused, lost, held, and waited for by a step."""

import numpy as np
import pytest

from prozess.harness.config.messages.names import api_keys, error_codes
from prozess.harness.interfaces import ALL_CLIENTS_NODE
from prozess.harness.recording.codes import read_texts
from prozess.harness.verdict import AnomalyOutcome, Verdict

pytestmark = pytest.mark.cluster

TRIAL = """
name = "single-messages"
title = "A request is refused, an answer is lost, another one waits until the leader is dead"
control = "required"

[variant]
metadata_mode = "kraft-combined"
brokers = 3

[variant.properties]
"broker.session.timeout.ms" = 3000
"broker.heartbeat.interval.ms" = 500

[topics]
partitions = 1
placement = [[1, 2, 3]]

[traffic]
rate_hz = 50
value_bytes = 100

[base]
"topic.replication_factor" = 3
"topic.min_insync_replicas" = 2
"producer.acks" = "all"
"producer.delivery_timeout_ms" = 30000
"producer.linger_ms" = 0
"producer.properties.batch.num.messages" = 1

[axes]
"producer.enable_idempotence" = [false, true]

[[controls]]
anomaly = "reordered"
cells = { "producer.enable_idempotence" = "false" }

[[controls]]
anomaly = "duplicate"
cells = { "producer.enable_idempotence" = "false" }

[[steps]]
name = "quiet"
after = { condition = "elapsed", seconds = 1 }
do = { kind = "pause_sends" }

[[steps]]
name = "a request is refused"
after = { condition = "settled" }
[steps.do]
kind = "fault"
fault = "message"
targets = ["brokers"]
[steps.do.parameters]
match = { api = "Produce", partition = 0, nth = 2 }
action = { do = "answer", error = "NOT_ENOUGH_REPLICAS" }

[[steps]]
name = "several requests are in flight"
do = { kind = "send", count = 30 }

[[steps]]
name = "an answer is lost"
after = { condition = "settled" }
[steps.do]
kind = "fault"
fault = "message"
targets = ["brokers"]
[steps.do.parameters]
match = { api = "Produce", direction = "answer", error = "NONE", partition = 0, nth = 1 }
action = { do = "lose" }

[[steps]]
name = "what followers fetch is recorded"
[steps.do]
kind = "fault"
fault = "message"
targets = ["leader(0)"]
[steps.do.parameters]
others = "brokers"
match = { api = "Fetch", partition = 0, until = 5 }
action = { do = "record" }

[[steps]]
name = "traffic again"
do = { kind = "resume_sends" }

[[steps]]
name = "it flows"
after = { condition = "acked", count = 30 }

[[steps]]
name = "the leader dies before its acknowledgement arrives"
after = { condition = "message", match = { api = "Produce", direction = "answer", partition = 1, error = "NONE" } }
do = { kind = "fault", fault = "kill", targets = ["leader(1)"] }

[[steps]]
name = "another one leads"
after = { condition = "leader-moved" }
timeout_s = 60

[[steps]]
name = "it returns"
after = { condition = "acked", count = 30 }
do = { kind = "heal" }
"""


@pytest.fixture(scope="module")
def finished(run_trial, need):
    need("java")
    need("namespaces")
    need("iptables")
    return run_trial(TRIAL, "--engine", "local")


def rows_of(finished, step):
    """The messages of a step, by its name."""
    number = next(n for n, planned in enumerate(finished.history.plan.steps) if planned.name == step)
    table = finished.history.table("messages")
    return {name: column[table["step"] == number] for name, column in table.items()}


def test_it_holds_and_every_fault_of_messages_is_proven_by_the_proxys_journal(finished):
    assert finished.verdict.verdict is Verdict.HELD, finished.verdict.sentence
    assert {fault.effective for fault in finished.verdict.faults} == {True}
    assert all(control.fired for control in finished.verdict.controls)


def test_what_is_done_to_one_cell_is_seen_in_it_and_not_in_the_idempotent_one(finished):
    plain, idempotent = finished.verdict.cells
    for name in ("reordered", "duplicate"):
        assert plain.anomalies[name].outcome is AnomalyOutcome.PERMITTED
        assert idempotent.anomalies[name].count == 0


def test_the_history_has_the_messages_with_what_they_say(finished):
    did = read_texts(finished.run.dictionaries)["did"]
    refused = rows_of(finished, "a request is refused")
    assert [did[code] for code in refused["did"]] == ["answer"]
    assert (refused["api"][0], refused["answer"][0], refused["opener"][0]) == (
        api_keys()["Produce"],
        0,
        ALL_CLIENTS_NODE,
    )
    lost = rows_of(finished, "an answer is lost")
    assert (lost["answer"][0], lost["error"][0], lost["partition"][0]) == (1, error_codes()["NONE"], 0)
    fetched = rows_of(finished, "what followers fetch is recorded")
    assert np.isin(fetched["opener"], (2, 3)).all(), "followers open the connections, and name the topic by its id"
    assert (len(fetched["did"]), set(fetched["partition"])) == (5, {0})


def test_the_step_that_waited_for_a_message_came_while_that_was_held(finished):
    step = "the leader dies before its acknowledgement arrives"
    held = rows_of(finished, step)
    number = next(n for n, planned in enumerate(finished.history.plan.steps) if planned.name == step)
    steps = finished.history.table("steps")
    (done_ns,) = steps["done_ns"][steps["step"] == number]
    first, last = held["time_ns"][[0, -1]]
    assert first < done_ns <= last, "it goes on when the leader is dead"


@pytest.mark.long
@pytest.mark.parametrize(
    ("trial", "verdict"),
    [
        ("message-lost-answer", Verdict.HELD),
        ("message-order", Verdict.HELD),
        ("message-stale-fetch", Verdict.HELD),
        ("message-late-isr", Verdict.HELD),
        ("message-late-join", Verdict.HELD),
    ],
)
def test_each_trial_about_messages_does_what_it_says(run_trial, need, trial, verdict):
    need("java")
    need("namespaces")
    need("iptables")
    found = run_trial(trial, "--engine", "local", seeds=(1,)).verdict
    assert found.verdict is verdict, found.sentence
    assert {fault.effective for fault in found.faults if fault.fault == "message"} == {True}


@pytest.mark.long
@pytest.mark.parametrize(
    ("trial", "defect"),
    [
        ("message-first-batch", "KAFKA-15591"),
        ("message-late-commit", "KAFKA-17754"),
        ("kafka-14402", "KAFKA-14402"),
    ],
)
def test_each_trial_about_a_known_defect_shows_it_and_no_other_violation(run_trial, need, trial, defect):
    need("java")
    need("namespaces")
    need("iptables")
    found = run_trial(trial, "--engine", "local", seeds=(1,)).verdict
    assert (found.verdict, found.by_known_defects) == (Verdict.VIOLATED, True), found.sentence
    assert defect in found.sentence


@pytest.mark.long
def test_a_produce_request_that_comes_after_its_transaction_is_refused_by_newer_brokers(run_trial, need):
    need("java")
    need("namespaces")
    need("iptables")
    done = run_trial("kafka-14402", "--engine", "local", "--set", 'variant.kafka_version="4.4.0"', seeds=(1,))
    assert done.verdict.verdict is Verdict.HELD, done.verdict.sentence
    answered = rows_of(done, "what is answered to one producer is recorded")["error"]
    assert error_codes()["INVALID_PRODUCER_EPOCH"] in answered
