"""A broker that is cut off is asked to stop: it cannot end by itself, the schedule goes on, and after healing it is up."""

import pytest

from prozess.harness.schema import StepOutcome
from prozess.harness.verdict import Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.long]  # cheaper: tests/unit/nemesis/test_end_of_healing.py

TRIAL = """
name = "cut-then-stopped"
title = "A broker that is cut off is asked to stop, and the cut is lifted first"
isolation_levels = ["read_committed"]
settle_s = 1
metrics = false

[variant]
metadata_mode = "kraft-isolated"
brokers = 3
controllers = 1

[variant.properties]
"broker.session.timeout.ms" = 4000
"broker.heartbeat.interval.ms" = 500

[topics]
partitions = 1

[traffic]
rate_hz = 50

[base]
"topic.replication_factor" = 3
"topic.min_insync_replicas" = 2
"producer.acks" = "all"
"producer.enable_idempotence" = true

[[steps]]
name = "cut off"
after = { condition = "elapsed", seconds = 2 }
do = { kind = "fault", fault = "partition", targets = ["node:broker-1"], parameters = { others = "all" } }

[[steps]]
name = "asked to stop"
after = { condition = "elapsed", seconds = 1 }
do = { kind = "fault", fault = "stop", targets = ["node:broker-1"], parameters = { timeout_s = 8 } }

[[steps]]
name = "the schedule goes on"
after = { condition = "acked", count = 50 }
timeout_s = 60

[[steps]]
name = "the cut is lifted"
do = { kind = "heal", step = "cut off" }
"""


def test_a_stop_that_does_not_end_ends_in_its_time_and_the_broker_is_whole_after_healing(run_trial, need):
    need("java")
    need("namespaces")
    finished = run_trial(TRIAL, "--engine", "local")
    verdict = finished.verdict
    assert verdict.verdict is Verdict.HELD, verdict.sentence
    assert [fault.effective for fault in verdict.faults] == [True, True], verdict.faults
    assert "did not shut down within 8 s, and was killed" in verdict.faults[1].detail
    assert set(finished.history.table("steps")["outcome"].tolist()) == {StepOutcome.DONE}
    assert verdict.cells[0].anomalies["diverged"].seen == 0
