"""A small trial of consumer groups on real Kafka: partitions are added, members restarted; latest skips, earliest not."""

import numpy as np
import pytest
from confluent_kafka import KafkaError

from prozess.harness.schema import MISSING, Role
from prozess.harness.verdict import AnomalyOutcome, Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.long]  # its cheaper neighbour is test_every_workload.py

RESET = 3
"""`positions.event`."""
TRIAL = """
name = "small-groups"
title = "Partitions are added while members are restarted"
control = "required"
workload = "group"
isolation_levels = []
settle_s = 1
metrics = false

[variant.properties]
"group.min.session.timeout.ms" = 3000
"group.consumer.session.timeout.ms" = 5000
"group.consumer.min.session.timeout.ms" = 3000
"group.consumer.heartbeat.interval.ms" = 1000
"group.consumer.min.heartbeat.interval.ms" = 500

[topics]
partitions = 2
late_partitions = 1
late_topic_partitions = 1

[traffic]
rate_hz = 50

[base]
"producer.enable_idempotence" = true
"group.subscription" = "pattern"
"group.session_timeout_ms" = 5000
"group.failure_share" = 0.01

[axes]
"group.protocol" = ["classic-cooperative", "consumer"]
"group.auto_offset_reset" = ["earliest", "latest"]

[[controls]]
anomaly = "unprocessed"
cells = { "group.auto_offset_reset" = "latest" }

[[steps]]
name = "more partitions"
after = { condition = "elapsed", seconds = 2 }
do = { kind = "add_partitions" }

[[steps]]
name = "members are restarted"
after = { condition = "elapsed", seconds = 4 }
do = { kind = "fault", fault = "restart-clients", targets = ["member(*,0)"] }

[[steps]]
name = "all members stop"
after = { condition = "elapsed", seconds = 1 }
do = { kind = "client", do = "stop", client = "member(*,*)" }

[[steps]]
name = "what they have not read is deleted"
after = { condition = "acked", count = 60 }
do = { kind = "delete_records", keep = 20 }

[[steps]]
name = "they return"
do = { kind = "client", do = "start", client = "member(*,*)" }

[[steps]]
name = "steady again"
after = { condition = "elapsed", seconds = 6 }
"""


@pytest.fixture(scope="module")
def finished(run_trial, need):
    need("java")
    need("namespaces")
    return run_trial(TRIAL, "--engine", "local")


def test_latest_skips_what_comes_before_the_discovery_of_a_partition_and_earliest_skips_nothing(finished):
    verdict, history = finished.verdict, finished.history
    assert verdict.verdict is Verdict.HELD, verdict.sentence
    positions = history.table("positions")
    for cell, planned in zip(verdict.cells, history.plan.cells, strict=True):
        judged = cell.anomalies["unprocessed"]
        late = np.isin(positions["partition"], planned.late_partitions) & (positions["event"] == RESET)
        seen = set(positions["partition"][late].tolist())
        if cell.axes["group.auto_offset_reset"] == "earliest":
            assert (judged.outcome, judged.proven) == (AnomalyOutcome.HELD, True), cell.name
            assert seen == set(planned.late_partitions), cell.name
            assert positions["log_offset"][late].min() == 0
        else:
            assert judged.outcome is AnomalyOutcome.PERMITTED
            assert seen <= set(planned.late_partitions), cell.name
        for promised in ("two-owners", "orphaned", "commit-regression", "commit-ahead"):
            assert cell.anomalies[promised].count == 0, (cell.name, promised)


def test_no_send_to_a_partition_that_was_just_added_is_refused_by_a_library_that_does_not_know_it_yet(finished):
    sends, plan = finished.history.table("sends"), finished.history.plan
    late = np.isin(sends["partition"], [p for cell in plan.cells for p in cell.late_partitions])
    assert late.sum() > 0
    assert not (sends["code"][late] == KafkaError._UNKNOWN_PARTITION).any()


def test_every_group_has_a_new_member_that_worked_and_a_table_of_what_it_cost(finished):
    history = finished.history
    clients, processed = history.table("clients"), history.table("processed")
    first = {c.client for c in history.plan.clients if c.role == "member" and c.instance == 0}
    new = (
        (clients["role"] == Role.MEMBER)
        & np.isin(clients["planned"], list(first))
        & ~np.isin(clients["client"], list(first))
    )
    assert len(clients["client"][new]) == 2 * len(first) == 8  # one after the restart, one after the return
    done = processed["client"][processed["done_ns"] != MISSING]
    assert np.isin(clients["client"][new], done).all()
    assert "## What rebalances cost" in (finished.run.path / "summary.md").read_text(encoding="utf-8")
