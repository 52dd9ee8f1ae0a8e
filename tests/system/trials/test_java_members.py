"""A small trial with Java members on real Kafka: what a crash leaves uncommitted is processed again, nothing is skipped."""

import numpy as np
import pytest

from prozess.harness.schema import MISSING, NONE, Role
from prozess.harness.verdict import AnomalyOutcome, Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.long]

ASSIGNED, RESET = 1, 3
"""`positions.event`."""
TRIAL = """
name = "small-groups-java"
title = "A Java member crashes"
control = "required"
workload = "group"
isolation_levels = []
settle_s = 1
metrics = false

[variant.properties]
"group.consumer.session.timeout.ms" = 4000
"group.consumer.min.session.timeout.ms" = 3000
"group.consumer.heartbeat.interval.ms" = 1000
"group.consumer.min.heartbeat.interval.ms" = 500

[topics]
partitions = 2

[traffic]
rate_hz = 50

[base]
"producer.enable_idempotence" = true
"group.client" = "java"
"group.protocol" = "consumer"
"group.auto_commit_interval_ms" = 6000

[axes]
"group.commit" = ["auto"]

[[controls]]
anomaly = "reprocessed"
cells = { "group.commit" = "auto" }

[[steps]]
name = "a member is restarted, and is at work"
do = { kind = "fault", fault = "restart-clients", targets = ["member(0,0)"] }

[[steps]]
name = "from now on"

[[steps]]
name = "it crashes, and another one takes its place"
after = { condition = "acked", count = 200 }
do = { kind = "fault", fault = "restart-clients", targets = ["member(0,0)"], parameters = { how = "kill" } }
"""


def test_what_a_crash_leaves_uncommitted_is_processed_again_and_nothing_is_skipped(run_trial, need):
    need("java")
    need("namespaces")
    finished = run_trial(TRIAL, "--engine", "local")
    verdict, history = finished.verdict, finished.history
    assert verdict.verdict is Verdict.HELD, verdict.sentence
    (cell,) = verdict.cells
    assert cell.anomalies["reprocessed"].outcome is AnomalyOutcome.PERMITTED
    for promised in ("unprocessed", "two-owners", "orphaned", "commit-regression", "lost"):
        assert cell.anomalies[promised].count == 0, promised
    clients, positions = history.table("clients"), history.table("positions")
    assert (clients["role"] == Role.MEMBER).sum() == 4  # two, and two that took a place
    first = positions["log_offset"][positions["event"] == RESET]
    assert (first == 0).all(), "earliest"
    begun = positions["log_offset"][positions["event"] == ASSIGNED]
    assert (begun != NONE).any(), "where a member went on was looked up"
    processed = history.table("processed")
    assert (processed["done_ns"] != MISSING).all()
    assert np.isin(processed["client"], clients["client"][clients["role"] == Role.MEMBER]).all()
