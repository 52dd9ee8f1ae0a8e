"""Duplicates of an idempotent producer that bumped its epoch: named by the batches' headers, and forbidden all the same."""

import numpy as np
import pytest

from prozess.harness.guarantees.evidence.envelope import TRANSACTIONAL, batches_by_partition
from prozess.harness.guarantees.verdict.judge import judge
from prozess.harness.schema import NONE
from prozess.harness.verdict import AnomalyOutcome
from tests.support.cells.evidence import KILL, KILLED, evidence, failover, findings, of, plan, result, witnesses
from tests.support.cells.partitions import table

IDEMPOTENT = {"producer.acks": "all", "producer.enable_idempotence": True}


def batch(first: int, last: int, *, epoch: int = 0, node: int = 1, **columns: int) -> dict[str, int]:
    named = {"partition": 0, "node": node, "base_offset": first, "last_offset": last, "producer_id": 7}
    return named | {"producer_epoch": epoch, "attributes": 0} | columns


def duplicated(*batches: dict[str, int], base=IDEMPOTENT):
    """The records at 100 … 102 stand again at 200 … 202."""
    made = plan({"topic.min_insync_replicas": [2]}, steps=KILL, base=base)
    twice = witnesses(3, log_offset=200 + np.arange(3), other_offset=100 + np.arange(3))
    more = {"replicas": list(batches)} if batches else {}
    given = evidence(made, metadata=failover(1), faults=KILLED, **more)
    return of(judge(made, findings(made, {("duplicate", 0): result(twice)}), given), 0, "duplicate")


def test_copies_under_a_higher_epoch_of_the_same_producer_name_the_clients_defect_and_stay_forbidden():
    found = duplicated(batch(100, 102), batch(103, 199), batch(200, 202, epoch=1))
    assert found.outcome is AnomalyOutcome.VIOLATED
    assert found.forbidden == 3
    assert found.defects == ("librdkafka#4953, open in 2.16.0; a transactional.id avoids it",)
    assert "librdkafka#4953" in found.reason


@pytest.mark.parametrize(
    "second",
    [
        batch(200, 202),
        batch(200, 202, epoch=1, producer_id=8),
        batch(200, 202, epoch=1, attributes=TRANSACTIONAL),
        batch(200, 202, epoch=1, step=3),
        batch(203, 299, epoch=1),
    ],
    ids=["same epoch", "another producer", "in a transaction", "read earlier", "another batch"],
)
def test_nothing_less_names_it(second):
    found = duplicated(batch(100, 102), second)
    assert found.outcome is AnomalyOutcome.VIOLATED
    assert found.defects == ()


def test_without_segments_nothing_is_named():
    assert duplicated().defects == ()
    assert duplicated().outcome is AnomalyOutcome.VIOLATED


def test_a_producer_without_idempotence_has_no_such_defect():
    found = duplicated(batch(100, 102), batch(200, 202, epoch=1), base={"producer.acks": "all"})
    assert found.outcome is AnomalyOutcome.PERMITTED


def test_of_several_copies_the_one_that_reaches_furthest_is_asked():
    rows = [batch(0, 9, node=1), batch(0, 9, node=2), batch(10, 19, node=2, epoch=3), batch(0, 4, node=3)]
    rows += [batch(0, 99, node=3, step=1), batch(50, 59, node=1, partition=4)]
    found = batches_by_partition(table("replicas", rows))
    assert set(found) == {0, 4}
    assert found[0].at(np.array([-1, 0, 9, 10, 19, 20])).tolist() == [-1, 0, 0, 1, 1, -1]
    assert found[0].producer_epoch.tolist() == [0, 3]
    assert found[4].at(np.array([49, 50, NONE])).tolist() == [-1, 0, -1]
    assert batches_by_partition(table("replicas", [])) == {}
