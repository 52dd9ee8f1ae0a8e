"""KAFKA-13598: a Java producer on which nothing is set, and whose documentation alone says that it is idempotent."""

import numpy as np
import pytest

from prozess.harness.guarantees.verdict.judge import judge
from prozess.harness.schema import NONE
from prozess.harness.verdict import AnomalyOutcome
from tests.support.cells.evidence import KILL, KILLED, evidence, failover, findings, of, plan, result, witnesses


def judged(version, *, anomaly="duplicate", producer_id=NONE, read=True, found=1, **base):
    """One record stands again at 200, or behind it, in batches of that producer id."""
    nothing_set = {"producer.client": "java", "producer.client_version": version, "producer.defaults": "library"}
    more = {f"producer.{name}": value for name, value in base.items()}
    made = plan({"topic.min_insync_replicas": [2]}, steps=KILL, base=nothing_set | more, workload="verifiable")
    rows = [
        {"partition": 0, "node": 1, "base_offset": first, "last_offset": last, "producer_id": producer_id}
        for first, last in ((100, 199), (200, 202))
    ]
    given = evidence(made, metadata=failover(1), faults=KILLED, **({"replicas": rows} if read else {}))
    columns = {"log_offset": np.full(found, 200), "other_offset": np.full(found, 100)}
    return of(judge(made, findings(made, {(anomaly, 0): result(witnesses(found, **columns))}), given), 0, anomaly)


@pytest.mark.parametrize("anomaly", ["duplicate", "reordered"])
@pytest.mark.parametrize("version", ["3.0.0", "3.1.0"])
def test_what_the_documentation_alone_promises_is_forbidden_and_the_defect_is_named(anomaly, version):
    found = judged(version, anomaly=anomaly)
    assert found.outcome is AnomalyOutcome.VIOLATED
    assert found.known == {"KAFKA-13598": 1}
    assert judged(version, anomaly=anomaly, found=0).outcome is AnomalyOutcome.HELD, "nothing permits it"


def test_where_no_batch_was_read_it_is_possible_and_with_a_producer_id_it_is_not():
    found = judged("3.1.0", read=False)
    assert (found.outcome, found.known, found.possible) == (AnomalyOutcome.VIOLATED, {}, {"KAFKA-13598": 1})
    assert (judged("3.1.0", producer_id=7).known, judged("3.1.0", producer_id=7).possible) == ({}, {})


@pytest.mark.parametrize(
    "base",
    [
        {"enable_idempotence": False},
        {"acks": "1"},
        {"max_in_flight": 6},
        {"client_version": "2.8.2", "acks": "all"},
        {"defaults": "prozess"},
    ],
    ids=str,
)
def test_nothing_is_promised_where_something_else_is_set_or_by_another_version(base):
    found = judged("3.1.0", **base)
    assert (found.outcome, found.known, found.possible) == (AnomalyOutcome.PERMITTED, {}, {})


def test_a_version_that_keeps_the_promise_has_no_such_defect():
    found = judged("3.1.2")
    assert (found.outcome, found.known, found.possible) == (AnomalyOutcome.VIOLATED, {}, {})
