"""Every workload of prozess in one small trial on real Kafka, beside one another, while a leader dies: all of it is judged.
What is read of Kafka's files is what Kafka's own DumpLogSegments says of them, and they are looked at in mid-trial, too.

The trials of each workload, with their own faults and controls, are long tests, and so are those of other releases' files
(test_versions.py) and of exactly which replica had what (test_replica_recovery.py): `make test-all` runs them.
"""

import numpy as np
import pytest

from prozess.harness.plan.workloads.registry import KINDS
from prozess.harness.schema import NONE, Outcome
from prozess.harness.verdict import AnomalyOutcome, Verdict
from tests.system.trials import test_versions
from tests.system.trials.test_versions import FilesOfRun

pytestmark = pytest.mark.cluster

OTHERS = {
    "verifiable-share": "needs a release with share groups",
    "share": "needs a release with share groups; its trial is share-groups",
    "application": "needs a program of yours",
}
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
"transaction.standby" = true

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
name = "a transactional.id is taken over"
after = { condition = "elapsed", seconds = 2 }
do = { kind = "take_over" }

[[steps]]
name = "a look at the replicas"
after = { condition = "elapsed", seconds = 2 }
do = { kind = "inspect" }

[[steps]]
name = "a leader is killed"
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
    return FilesOfRun("4.4.0", run_trial(TRIAL, "--engine", "local"))


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


def test_replicas_that_were_looked_at_in_mid_trial_had_the_beginning_of_what_they_have_at_its_end(finished):
    table = finished.history.table("replicas")
    (look,) = (n for n, step in enumerate(finished.plan.steps) if step.name == "a look at the replicas")
    compacted = {p for cell in finished.plan.cells if cell.workload == "compaction" for p in cell.written}
    columns = ("partition", "node", "base_offset", "leader_epoch", "checksum")
    then, now = (
        set(zip(*(table[name][table["step"] == step].tolist() for name in columns), strict=True))
        for step in (look, NONE)
    )
    assert {batch[:2] for batch in then} >= {(p, node) for p in finished.plan.written for node in (1, 2, 3)}
    assert {batch for batch in then - now if batch[0] not in compacted} == set()
    assert len(now) > len(then)


@pytest.mark.parametrize(
    "agree",
    [
        test_versions.test_batches_of_data_of_groups_and_of_transactions_are_read_as_dump_log_segments_reads_them,
        test_versions.test_producer_snapshots_are_read_as_dump_log_segments_reads_them,
        test_versions.test_the_metadata_log_is_decoded_as_dump_log_segments_decodes_it,
    ],
    ids=["batches", "snapshots of producers", "the metadata log"],
)
def test_files_are_read_as_dump_log_segments_reads_them(finished, agree):
    agree(finished)
