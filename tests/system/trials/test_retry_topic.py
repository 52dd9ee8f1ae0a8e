"""A small trial of retry topics on real Kafka: who waits for the acknowledgement loses nothing, who does not does."""

import numpy as np
import pytest

from prozess.harness.schema import MISSING, ORIGIN_SEQUENCE_BITS, Outcome, Role
from prozess.harness.verdict import AnomalyOutcome, Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.long]  # its cheaper neighbour is test_every_workload.py

TRIAL = """
name = "small-retry-topic"
title = "Members that hand on what fails crash"
control = "required"
workload = "group"
isolation_levels = []
settle_s = 1
metrics = false

[variant]
brokers = 1

[variant.properties]
"group.min.session.timeout.ms" = 3000

[traffic]
rate_hz = 100

[base]
"topic.replication_factor" = 1
"producer.enable_idempotence" = true
"group.protocol" = "classic-cooperative"
"group.batch" = 20
"group.session_timeout_ms" = 4000
"group.failure_share" = 0.2
"group.processing_ms" = 1

[axes]
"group.on_failure" = ["retry-topic", "retry-topic-unawaited"]
"producer.linger_ms" = [20, 2000]

[[exclude]]
when = { "group.on_failure" = "retry-topic", "producer.linger_ms" = "2000" }
reason = "who waits would wait two seconds for every batch"

[[exclude]]
when = { "group.on_failure" = "retry-topic-unawaited", "producer.linger_ms" = "20" }
reason = "who does not wait shall have something to lose"

[[controls]]
anomaly = "unprocessed"
cells = { "group.on_failure" = "retry-topic-unawaited" }

# What a member has sent waits two seconds for its batch: whoever is killed in the midst of work has some. The second is
# killed once the group has got over the first.
[[steps]]
name = "one member crashes"
after = { condition = "elapsed", seconds = 3 }
do = { kind = "fault", fault = "restart-clients", targets = ["member(*,0)"], parameters = { how = "kill" } }

[[steps]]
name = "the other one crashes"
after = { condition = "elapsed", seconds = 7 }
do = { kind = "fault", fault = "restart-clients", targets = ["member(*,1)"], parameters = { how = "kill" } }
"""


@pytest.fixture(scope="module")
def finished(run_trial, need):
    need("java")
    need("namespaces")
    done = run_trial(TRIAL, "--engine", "local")
    return done.verdict, done.history


def test_only_who_does_not_wait_leaves_records_behind(finished):
    verdict, _ = finished
    assert verdict.verdict is Verdict.HELD
    awaited, unawaited = (cell.anomalies["unprocessed"] for cell in verdict.cells)
    assert (awaited.outcome, awaited.proven) == (AnomalyOutcome.HELD, True)
    assert unawaited.count > 0
    for cell in verdict.cells:
        for promised in ("lost", "phantom", "two-owners", "orphaned", "commit-ahead"):
            assert cell.anomalies[promised].count == 0, (cell.name, promised)


def test_what_the_verdict_counts_is_what_is_missing_from_all_that_members_processed(finished):
    verdict, history = finished
    sends, reads, steps, clients = (history.table(name) for name in ("sends", "reads", "processed", "clients"))
    audited = np.isin(reads["client"], clients["client"][clients["role"] == Role.AUDIT])
    for cell, planned in zip(verdict.cells, history.plan.cells, strict=True):
        sent = np.isin(sends["partition"], planned.written) & (sends["outcome"] == Outcome.OK) & (sends["client"] > 0)
        copies = audited & np.isin(reads["partition"], planned.derived) & (reads["origin"] >= 0)
        of_copy = {
            (sender, sequence): (origin >> ORIGIN_SEQUENCE_BITS, origin & ((1 << ORIGIN_SEQUENCE_BITS) - 1))
            for sender, sequence, origin in zip(
                *(reads[name][copies].tolist() for name in ("sender", "sequence", "origin")), strict=True
            )
        }
        mine = (steps["done_ns"] != MISSING) & np.isin(steps["partition"], planned.partitions)
        done = set(zip(steps["sender"][mine].tolist(), steps["sequence"][mine].tolist(), strict=True))
        done = {of_copy.get(identity, identity) for identity in done}
        expected = set(zip(sends["client"][sent].tolist(), sends["sequence"][sent].tolist(), strict=True))
        assert len(expected - done) == cell.anomalies["unprocessed"].count, cell.name
        assert len(of_copy) > len(expected) / 10
