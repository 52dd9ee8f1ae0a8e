"""Calls of a broker's own methods on real Kafka: delayed, paused until another is called, broken; and through a restart."""

import re

import pytest

from prozess.harness.verdict import Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.long]  # its cheaper neighbour is test_methods_of_a_server.py

UNIFIED_LOG = "org.apache.kafka.storage.internals.log.UnifiedLog"
TRIAL = f"""
name = "methods"
title = "Appends are delayed, stand still and fail, and a broker is killed meanwhile"

[variant]
metadata_mode = "kraft-combined"
brokers = 3

[variant.properties]
"broker.session.timeout.ms" = 3000
"broker.heartbeat.interval.ms" = 500

[topics]
partitions = 2
placement = [[1, 2, 3]]

[traffic]
rate_hz = 20
value_bytes = 100

[base]
"topic.replication_factor" = 3
"topic.min_insync_replicas" = 2
"producer.acks" = "all"
"producer.enable_idempotence" = true
"producer.delivery_timeout_ms" = 40000

[[steps]]
name = "appends to one partition are late"
after = {{ condition = "elapsed", seconds = 1 }}
[steps.do]
kind = "fault"
fault = "method"
targets = ["leader(0)"]
[steps.do.parameters]
match = {{ method = "kafka.cluster.Partition#appendRecordsToLeader", partition = 1, every = 2, until = 4 }}
action = {{ do = "delay", seconds = 0.5 }}

[[steps]]
name = "an answer waits until the followers fetch again"
[steps.do]
kind = "fault"
fault = "method"
targets = ["leader(0)"]
[steps.do.parameters]
match = {{ method = "kafka.cluster.Partition#appendRecordsToLeader", at = "exit", partition = 0, nth = 3 }}
[steps.do.parameters.action]
do = "pause"
until = {{ method = "kafka.cluster.Partition#fetchRecords", partition = 0 }}

[[steps]]
name = "it flows"
after = {{ condition = "acked", count = 40 }}

[[steps]]
name = "heal"
after = {{ condition = "elapsed", seconds = 3 }}
do = {{ kind = "heal" }}

[[steps]]
name = "a follower stands still with what it has fetched"
[steps.do]
kind = "fault"
fault = "method"
targets = ["node:broker-2"]
[steps.do.parameters]
match = {{ method = "{UNIFIED_LOG}#appendAsFollower", partition = 0 }}
action = {{ do = "pause" }}

[[steps]]
name = "it is killed while it does"
after = {{ condition = "elapsed", seconds = 2 }}
do = {{ kind = "fault", fault = "kill", targets = ["node:broker-2"] }}

[[steps]]
name = "it comes back with the rule"
after = {{ condition = "elapsed", seconds = 1 }}
do = {{ kind = "heal", step = "it is killed while it does" }}

[[steps]]
name = "it stands still again, and is paused"
after = {{ condition = "elapsed", seconds = 20 }} # it cannot say that it is back: what it holds, others in it wait for
do = {{ kind = "fault", fault = "pause", targets = ["node:broker-2"] }}

[[steps]]
name = "it stands still no more"
do = {{ kind = "heal", step = "a follower stands still with what it has fetched" }}

[[steps]]
name = "it goes on"
do = {{ kind = "heal", step = "it stands still again, and is paused" }}

[[steps]]
name = "whole again"
after = {{ condition = "isr" }}
timeout_s = 60
"""


@pytest.fixture(scope="module")
def finished(run_trial, need):
    need("java")
    need("namespaces")
    return run_trial(TRIAL, "--engine", "local")


def effect_of(finished, step):
    """What was seen of the fault of a step."""
    (fault,) = [fault for fault in finished.verdict.faults if fault.step == step]
    return fault.detail


def test_it_holds_and_every_fault_is_proven_by_what_its_rule_has_counted(finished):
    assert finished.verdict.verdict is Verdict.HELD, finished.verdict.sentence
    assert {fault.effective for fault in finished.verdict.faults} == {True}


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (
            "appends to one partition are late",
            r"called 4 times, and 2 of the calls were delayed, for \d+\.\d s at most",
        ),
        ("an answer waits until the followers fetch again", r"called 3 times, and 1 of the calls stood still, for "),
        # once in each of its two processes, of which the first was killed in it
        (
            "a follower stands still with what it has fetched",
            r"called 2 times, and 2 of the calls stood still; 1 stands",
        ),
    ],
)
def test_the_count_names_each_call_whichever_process_made_it(finished, step, told):
    assert re.search(told, effect_of(finished, step)), effect_of(finished, step)


@pytest.mark.parametrize("trial", ["method-marker", "method-append", "method-verified"])
def test_each_trial_about_methods_does_what_it_says(run_trial, need, trial):
    need("java")
    need("namespaces")
    found = run_trial(trial, "--engine", "local", seeds=(1,)).verdict
    assert found.verdict is Verdict.HELD, found.sentence
    assert {fault.effective for fault in found.faults if fault.fault == "method"} == {True}
