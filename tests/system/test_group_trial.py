"""A small trial of consumer groups on real Kafka: partitions are added, members restarted; latest skips, earliest not."""

import numpy as np
import pytest

from harness.history import History
from harness.run_directory import RunDirectory
from harness.schema import MISSING, Role
from harness.verdict import AnomalyOutcome, TrialVerdict, Verdict
from tests.system.conftest import Command

pytestmark = pytest.mark.cluster

LIMIT_S = 400
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
name = "all but the newest is deleted behind them"
do = { kind = "delete_records", keep = 50 }
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory, need):
    need("java")
    need("namespaces")
    directory = tmp_path_factory.mktemp("groups")
    trial = directory / "small-groups.toml"
    trial.write_text(TRIAL, encoding="utf-8")
    command = Command(["run", str(trial), "--engine", "local", "--json"], directory)
    try:
        output = command.output(timeout_s=LIMIT_S)
        assert command.process.returncode == 0, command.errors + output[-3000:]
        yield TrialVerdict.model_validate_json(output), RunDirectory(command.run_directory)
    finally:
        command.end()


def test_latest_skips_what_comes_before_the_discovery_of_a_partition_and_earliest_skips_nothing(finished):
    verdict, run = finished
    assert verdict.verdict is Verdict.HELD
    history = History.open(run)
    positions = history.table("positions")
    for cell, planned in zip(verdict.cells, history.plan.cells, strict=True):
        judged = cell.anomalies["unprocessed"]
        late = np.isin(positions["partition"], planned.late_partitions) & (positions["event"] == RESET)
        assert set(positions["partition"][late].tolist()) == set(planned.late_partitions), cell.name
        if cell.axes["group.auto_offset_reset"] == "earliest":
            assert (judged.outcome, judged.proven) == (AnomalyOutcome.HELD, True), cell.name
            assert positions["log_offset"][late].min() == 0
        elif judged.count:
            assert judged.outcome is AnomalyOutcome.SHOWN
            assert positions["log_offset"][late].max() > 0
        for promised in ("two-owners", "orphaned", "commit-regression", "commit-ahead"):
            assert cell.anomalies[promised].count == 0, (cell.name, promised)


def test_every_group_has_a_new_member_that_worked_and_a_table_of_what_it_cost(finished):
    _, run = finished
    history = History.open(run)
    clients, processed = history.table("clients"), history.table("processed")
    first = {c.client for c in history.plan.clients if c.role == "member" and c.instance == 0}
    new = (
        (clients["role"] == Role.MEMBER)
        & np.isin(clients["planned"], list(first))
        & ~np.isin(clients["client"], list(first))
    )
    assert len(clients["client"][new]) == len(first) == 4
    done = processed["client"][processed["done_ns"] != MISSING]
    assert np.isin(clients["client"][new], done).all()
    assert "## What rebalances cost" in (run.path / "summary.md").read_text(encoding="utf-8")
