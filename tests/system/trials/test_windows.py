"""A delivery bound on real Kafka: what a leader that stands still delays is counted, and excused where the trial says so."""

import numpy as np
import pytest

from prozess.harness.checking.findings import read_findings, read_windows
from prozess.harness.interfaces.witnesses import LateCase
from prozess.harness.schema import Outcome
from prozess.harness.verdict import AnomalyOutcome, Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.long]

TRIAL = """
name = "short-windows"
title = "A leader stands still for longer than one bound, and for less than the other"
control = "required"

[variant.properties]
"broker.session.timeout.ms" = 18000

[topics]
partitions = 1
placement = [[1, 2, 3]]

[traffic]
rate_hz = 50

[delivery]
latency_s = 3.0
recovery_s = 60.0

[base]
"topic.min_insync_replicas" = 2

[axes]
"delivery.latency_s" = [3.0, 120.0]
"delivery.except_during_faults" = [true, false]

[[exclude]]
when = { "delivery.latency_s" = "3.0", "delivery.except_during_faults" = "false" }
reason = "it is broken on purpose"

[[exclude]]
when = { "delivery.latency_s" = "120.0", "delivery.except_during_faults" = "true" }
reason = "it holds whatever happens"

[[controls]]
anomaly = "late"
cells = { "delivery.latency_s" = "3.0" }

[[steps]]
name = "steady"
after = { condition = "acked", count = 50 }

[[steps]]
name = "freeze"
do = { kind = "fault", fault = "pause", targets = ["leader(0)"] }

[[steps]]
name = "go on"
after = { condition = "elapsed", seconds = 5 }
do = { kind = "heal", step = "freeze" }

[[steps]]
name = "it flows again"
after = { condition = "acked", count = 100 }
timeout_s = 60
"""
BRIEF, LONG = 0, 1


@pytest.fixture(scope="module")
def finished(run_trial, need):
    need("java")
    need("namespaces")
    return run_trial(TRIAL, "--engine", "local")


def test_the_brief_bound_is_broken_where_it_may_be_and_the_long_one_holds(finished):
    assert finished.verdict.verdict is Verdict.HELD
    brief, long = (cell.anomalies["late"] for cell in finished.verdict.cells)
    assert (brief.outcome, brief.permitted) == (AnomalyOutcome.PERMITTED, brief.count)
    assert brief.count > 0
    assert (long.outcome, long.proven) == (AnomalyOutcome.HELD, True)


def test_what_is_late_was_sent_to_the_leader_that_stood_still(finished):
    [fault] = finished.verdict.faults
    [found] = [f.result for f in read_findings(finished.run) if f.anomaly == "late" and f.partition == BRIEF]
    assert set(found.witnesses["case"].tolist()) <= {LateCase.LATE, LateCase.STOOD_STILL}
    sent_s = found.witnesses["begin_ns"] / 1e9
    assert np.count_nonzero((sent_s > fault.begin_s) & (sent_s < fault.begin_s + 2)) > 0


def test_windows_count_every_acknowledged_record_once(finished):
    sends, windows = finished.history.table("sends"), read_windows(finished.run)
    for cell in (BRIEF, LONG):
        producers = [c.client for c in finished.history.plan.clients if c.role == "producer"]
        mine = (sends["partition"] == cell) & np.isin(sends["client"], producers) & (sends["invoked_ns"] >= 0)
        acknowledged = int(np.count_nonzero(mine & (sends["outcome"] == Outcome.OK)))
        counted = windows[cell]
        assert (counted["sent"].sum(), counted["acknowledged"].sum()) == (np.count_nonzero(mine), acknowledged)
        assert (counted["delivered"] == counted["acknowledged"]).all()
        assert (np.diff(counted["number"]) > 0).all()
        assert (counted["p50_ns"] <= counted["p99_ns"]).all()
        assert (counted["p99_ns"] <= counted["max_ns"]).all()


def test_the_reports_tell_the_windows(finished):
    summary = (finished.run.path / "summary.md").read_text(encoding="utf-8")
    assert "within 3 s, except during faults and 60 s after them" in summary
    assert "within 120 s, whatever happens" in summary
    page = (finished.run.path / "report.html").read_text(encoding="utf-8")
    assert "Delivery, window by window" in page
    assert "beyond, permitted" in page
