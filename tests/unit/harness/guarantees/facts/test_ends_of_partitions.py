"""librdkafka#4844: the end of a partition that is taken for a record, as a commit one beyond its member's position shows."""

from dataclasses import replace

import numpy as np
import pytest

from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration
from prozess.harness.guarantees.verdict.evaluation import Judgement, evaluate_witnesses
from prozess.harness.interfaces.witnesses import make_witnesses
from prozess.harness.schema import MISSING, NONE, Outcome
from tests.support.cells.evidence import evidence, failover, ns, plan
from tests.support.cells.partitions import table

STORED = CellConfiguration(acks="all", idempotent=True, retries=True, several_in_flight=True, ends_are_stored=True)


def named(anomaly, *, offset=7, beyond=(7,), configuration=STORED):
    """The label of the defect that a record left out at that offset is ascribed to; None = none."""
    offsets = None if beyond is None else np.array(beyond, dtype=np.int64)
    envelope = Envelope(acks="all", unclean_enabled=False, committed_one_beyond=lambda: offsets)
    columns = {"log_offset": offset, "other_offset": offset, "begin_ns": ns(1), "end_ns": ns(2), "other_ns": MISSING}
    found = evaluate_witnesses(anomaly, configuration, envelope, make_witnesses(1, columns))
    assert found.judgement.tolist() == [Judgement.FORBIDDEN]
    assert found.possible.tolist() == [0], "it is proven, or not named"
    rule = int(found.rule[0])
    return TABLE[anomaly].rules[rule].label if rule >= 0 else None


@pytest.mark.parametrize("anomaly", ["unprocessed", "skipped"])
def test_a_record_is_left_out_where_a_member_that_stood_at_it_committed_the_one_behind(anomaly):
    assert named(anomaly) == "librdkafka#4844"
    assert named(anomaly, offset=8) is None, "another record"
    assert named(anomaly, beyond=()) is None
    assert named(anomaly, beyond=None) is None, "nobody recorded commits"
    assert named(anomaly, configuration=replace(STORED, ends_are_stored=False)) is None, "no such library, or setting"


def commit(offset, position, *, outcome=Outcome.OK, partition=0):
    return {
        "client": 5, "partition": partition, "log_offset": offset, "position": position, "outcome": outcome,
        "completed_ns": ns(3),
    }  # fmt: skip


def test_commits_one_beyond_are_found_in_their_partition_unless_they_were_refused():
    made = plan({"producer.acks": ["1", "all"]})
    rows = [
        commit(8, 7), commit(5, 5), commit(12, 10), commit(4, 3, outcome=Outcome.FAIL), commit(21, 20, partition=1),
        commit(0, NONE), commit(31, 30, outcome=Outcome.INFO),
    ]  # fmt: skip
    told = evidence(made, metadata=failover(2), commits=table("commits", rows))
    found = [told.envelope(made, cell, cell.cell).committed_one_beyond().tolist() for cell in made.cells]
    assert found == [[7, 30], [20]]
    assert evidence(made, metadata=failover(2)).envelope(made, made.cells[0], 0).committed_one_beyond() is None
