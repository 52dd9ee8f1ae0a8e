"""KAFKA-19012: a Java producer gives the memory of a batch that expired to another one, which is written in its place."""

import numpy as np
import pytest

from prozess.harness.config.configuration import ProducerConfiguration
from prozess.harness.guarantees.table.cell_configuration import uses_memory_again
from prozess.harness.guarantees.verdict.judge import judge
from prozess.harness.recording.verifiable_output import EXPIRED
from prozess.harness.schema import MISSING, Outcome
from prozess.harness.verdict import AnomalyOutcome
from tests.support.cells.evidence import evidence, findings, ns, of, plan, result, witnesses

HERE, ELSEWHERE, PRODUCER, OTHER = 0, 5, 1, 2
SENT = {
    "client": PRODUCER,
    "sequence": 7,
    "invoked_ns": ns(4),
    "completed_ns": ns(6),
    "outcome": int(Outcome.OK),
    "code": 0,
}
"""The record: it was sent to partition 5, acknowledged there, and stands in partition 0 as well."""


def send(ended_s, client=PRODUCER, code=EXPIRED, sequence=3):
    """A send that failed."""
    times = {"invoked_ns": MISSING, "completed_ns": ns(ended_s)}
    return {"client": client, "sequence": sequence, "outcome": int(Outcome.INFO), "code": code, **times}


def judged(here, *, elsewhere=(SENT,), version="3.7.2", recorded=True):
    base = {
        "producer.client": "java",
        "producer.client_version": version,
        "producer.properties.request.timeout.ms": "2000",
    }
    made = plan({}, base=base, workload="verifiable")
    rows = {HERE: list(here), ELSEWHERE: list(elsewhere)}

    def sends(partition, names):
        return {name: np.array([row[name] for row in rows[partition]], dtype=np.int64) for name in names}

    columns = {"partition": HERE, "client": PRODUCER, "sequence": 7, "log_offset": 40, "case": ELSEWHERE}
    found = {("misplaced", HERE): result(witnesses(begin_s=20, end_s=None, **columns))}
    given = evidence(made, **({"sends": sends} if recorded else {}))
    return of(judge(made, findings(made, found), given), 0, "misplaced")


def named(found):
    assert found.outcome is AnomalyOutcome.VIOLATED, "it is forbidden all the same"
    return found.known, found.possible


@pytest.mark.parametrize("ended_s", [2, 3, 6])
def test_a_record_that_stands_where_a_send_of_its_producer_had_expired_is_ascribed_to_memory_used_again(ended_s):
    assert named(judged([send(ended_s)])) == ({"KAFKA-19012": 1}, {})


@pytest.mark.parametrize(
    "here",
    [
        [],
        [send(6.1)],
        [send(1.9)],
        [send(5, client=OTHER)],
        [send(5, code=-1)],
        [SENT | {"sequence": 3}],
    ],
    ids=[
        "nothing was sent there",
        "it expired when the record had been acknowledged",
        "it expired longer before than a request lasts",
        "it was another producer's",
        "it failed with another error",
        "it was acknowledged",
    ],
)
def test_a_record_in_another_partition_is_ascribed_to_nothing_where_no_send_to_that_one_had_expired_meanwhile(here):
    assert named(judged(here)) == ({}, {})


def test_where_its_own_send_or_all_sends_were_not_recorded_nothing_is_named():
    assert named(judged([send(5)], elsewhere=[SENT | {"sequence": 6}])) == ({}, {})
    assert named(judged([], elsewhere=[])) == ({}, {})
    assert named(judged([], recorded=False)) == ({}, {})


def test_of_a_version_that_keeps_the_memory_it_is_not():
    assert named(judged([send(5)], version="3.9.2")) == ({}, {})


@pytest.mark.parametrize(
    ("client", "version", "brokers", "expected"),
    [
        ("java", "2.7.2", (3, 7, 2), False), ("java", "2.8.0", (4, 4, 0), True), ("java", "3.9.1", (4, 4, 0), True),
        ("java", "3.9.2", (3, 7, 2), False), ("java", "4.0.1", None, True), ("java", "4.0.2", None, False),
        ("java", "4.1.1", None, True), ("java", "4.1.2", None, False), ("java", "4.2.0", None, False),
        ("java", None, (3, 8, 1), True), ("java", None, None, False), ("librdkafka", None, (3, 8, 1), False),
    ],
)  # fmt: skip
def test_which_producers_use_memory_again_goes_by_their_version(client, version, brokers, expected):
    assert uses_memory_again(ProducerConfiguration(client=client, client_version=version), brokers) is expected
