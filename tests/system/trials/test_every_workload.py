"""Every workload of prozess in one small trial on real Kafka, beside one another, while a leader dies: all of it is judged.

The trials of each workload, with their own faults and controls, are long tests: `make test-all` runs them.
"""

import numpy as np
import pytest

from prozess.harness.plan.workloads.registry import KINDS
from prozess.harness.schema import Outcome
from prozess.harness.verdict import AnomalyOutcome, Verdict

pytestmark = pytest.mark.cluster

OTHERS = {"verifiable-share": "needs a release with share groups", "application": "needs a program of yours"}
"""The kinds of workload that are not in this trial, and why."""
TRIAL = """
name = "every-workload"
title = "A leader is killed beneath every workload"
settle_s = 1

[variant]
metadata_mode = "kraft-isolated"
brokers = 3
controllers = 1

[variant.properties]
"broker.session.timeout.ms" = 3000
"broker.heartbeat.interval.ms" = 500
"replica.lag.time.max.ms" = 10000
"log.cleaner.backoff.ms" = 200
"transaction.abort.timed.out.transaction.cleanup.interval.ms" = 500

[[workloads]]
kind = "log"
topics = { partitions = 1 }
traffic = { rate_hz = 20 }
base = { "topic.replication_factor" = 3, "topic.min_insync_replicas" = 2, "producer.enable_idempotence" = true }

[[workloads]]
kind = "group"
isolation_levels = []
topics = { partitions = 2 }
traffic = { rate_hz = 20 }
axes = { "group.protocol" = ["classic-cooperative", "consumer"] }

[workloads.base]
"topic.replication_factor" = 3
"topic.min_insync_replicas" = 2
"producer.enable_idempotence" = true
"group.members" = 2
"group.processing_ms" = 1

[[workloads]]
kind = "transactions"
topics = { partitions = 2 }

[workloads.base]
"topic.replication_factor" = 3
"topic.min_insync_replicas" = 2
"transaction.records" = 6
"transaction.abort_share" = 0.25
"transaction.transactional_ids" = 1

[[workloads]]
kind = "compaction"
topics = { partitions = 1 }
traffic = { rate_hz = 50 }

[workloads.base]
"topic.replication_factor" = 3
"topic.min_insync_replicas" = 2
"topic.cleanup_policy" = "compact"
"topic.properties.segment.ms" = 1000
"topic.properties.internal.segment.bytes" = 65536
"topic.properties.min.cleanable.dirty.ratio" = 0.01
"topic.properties.max.compaction.lag.ms" = 2000
"topic.properties.delete.retention.ms" = 3000
"producer.enable_idempotence" = true
"producer.properties.batch.size" = 16384
"compaction.tombstone_share" = 0.2
"compaction.keys" = 20

[[workloads]]
kind = "exactly-once"
topics = { partitions = 2 }
traffic = { rate_hz = 20 }

[workloads.base]
"topic.replication_factor" = 3
"topic.min_insync_replicas" = 2
"copier.members" = 1
"copier.processing_ms" = 1
"copier.delivery" = "exactly-once"

[[workloads]]
kind = "verifiable"
topics = { partitions = 1 }
traffic = { rate_hz = 20 }
base = { "topic.replication_factor" = 3, "topic.min_insync_replicas" = 2, "producer.enable_idempotence" = true }

[[workloads]]
kind = "errors"
topics = { partitions = 1 }
traffic = { rate_hz = 20 }

[workloads.base]
"topic.replication_factor" = 3
"topic.min_insync_replicas" = 2
"producer.properties.batch.num.messages" = 1
"provocation.error" = "too-large-for-client"

[[steps]]
name = "a leader is killed"
after = { condition = "elapsed", seconds = 4 }
do = { kind = "fault", fault = "kill", targets = ["leader(0)"] }

[[steps]]
name = "another leads"
after = { condition = "leader-moved" }
timeout_s = 60

[[steps]]
name = "it returns"
after = { condition = "elapsed", seconds = 3 }
do = { kind = "heal" }
"""


@pytest.fixture(scope="module")
def finished(run_trial, need):
    need("java")
    need("namespaces")
    return run_trial(TRIAL, "--engine", "local")


def test_it_has_every_workload_and_each_holds_while_a_leader_dies(finished):
    assert {cell.workload for cell in finished.history.plan.cells} == KINDS.keys() - OTHERS
    assert finished.verdict.verdict is Verdict.HELD, finished.verdict.sentence
    assert [(fault.fault, fault.effective) for fault in finished.verdict.faults] == [("kill", True)]


def test_every_promise_of_every_cell_rests_on_records_that_were_acknowledged(finished):
    sends = finished.history.table("sends")
    acknowledged = sends["partition"][sends["outcome"] == Outcome.OK]
    for cell, planned in zip(finished.verdict.cells, finished.history.plan.cells, strict=True):
        lost = cell.anomalies["lost"]
        assert (lost.outcome, lost.count) == (AnomalyOutcome.HELD, 0), cell.name
        assert np.isin(acknowledged, planned.written).sum() > 20, cell.name
