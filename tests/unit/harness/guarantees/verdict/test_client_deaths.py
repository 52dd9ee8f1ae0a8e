"""Clients that died, or stood still, unasked: whom it concerns, and what is judged all the same."""

import numpy as np
import pytest

from prozess.harness.guarantees.evidence.trial import KNOWN_BROKERS
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.verdict.judge import judge
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.metrics import MICRO, code_of
from prozess.harness.verdict import AnomalyOutcome, Verdict
from tests.support.cells.evidence import (
    ACKS,
    ACKS_1,
    ACKS_ALL,
    KILLED,
    UNCLEAN,
    evidence,
    failover,
    findings,
    lost_in,
    ns,
    of,
    plan,
    result,
    witnesses,
)
from tests.support.cells.partitions import table

IN_A_LOG_CELL = [anomaly for anomaly in TABLE if TABLE[anomaly].applies(["log"])]


def test_a_dead_client_concerns_only_the_cells_it_served():
    made = plan(ACKS)
    producer = next(c for c in made.clients if c.role == "producer" and c.partitions == (ACKS_1,))
    verdict = judge(
        made, findings(made), evidence(made, metadata=failover(3), dead_clients={producer.name: "signal 9"})
    )
    assert of(verdict, ACKS_1).outcome is AnomalyOutcome.UNKNOWN
    assert of(verdict, ACKS_ALL).outcome is AnomalyOutcome.HELD
    more = len(IN_A_LOG_CELL) - 4
    assert verdict.unknown_reasons[0].startswith(f"{', '.join(IN_A_LOG_CELL[:4])} and {more} more: Client "), "not all"


CRASHED = 'killed by signal 6: python: rdkafka_txnmgr.c:253: rd_kafka_txn_set_state: Assertion `!*"BUG: …"\' failed.'


def members_of(made: Plan) -> list[str]:
    return [c.name for c in made.clients if c.role == "member"]


def group_plan() -> Plan:
    return make_plan(
        parse_trial({"name": "t", "title": "", "workload": "group", "topics": {"partitions": 2}}, source="t"), seed=1
    )


@pytest.mark.parametrize(
    ("deaths", "held"),
    [
        ({0: CRASHED}, True),
        ({0: CRASHED, 1: CRASHED}, False),  # nobody did their work
        ({0: CRASHED, 1: "exit 1: KeyError"}, False),
        ({0: "killed by signal 11: it left no word"}, False),
        ({0: "killed by signal 6: Fatal Python error: Aborted"}, False),
        ({0: "exit 1: rdkafka_txnmgr.c:253: rd_kafka_txn_set_state: Assertion"}, False),
    ],
)
def test_a_member_that_librdkafka_itself_ended_leaves_its_work_to_the_others(deaths, held):
    made = group_plan()
    names = members_of(made)
    assert len(names) == 2
    dead = {names[number] + "~2": how for number, how in deaths.items()}
    verdict = judge(made, findings(made), evidence(made, metadata=failover(1), dead_clients=dead))
    assert (verdict.verdict is Verdict.HELD) == held, verdict.unknown_reasons
    assert ("An assertion in librdkafka ended" in verdict.sentence) == held
    assert any("ended although nobody stopped it" in why for why in verdict.unknown_reasons) != held


def test_a_producer_that_librdkafka_itself_ended_leaves_its_cell_unknown():
    made = plan(ACKS)
    producer = next(c for c in made.clients if c.role == "producer" and c.partitions == (ACKS_1,))
    given = evidence(made, metadata=failover(3), dead_clients={producer.name: CRASHED})
    assert of(judge(made, findings(made), given), ACKS_1).outcome is AnomalyOutcome.UNKNOWN


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("_INCONSISTENT: Unable to reconstruct MessageSet (currently with 9 message(s)) with msgid range 21..35", True),
        ("_INCONSISTENT: something else", False),
        ("_FATAL: Unable to reconstruct MessageSet", False),
    ],
)
def test_a_producer_that_a_known_defect_of_librdkafka_ended_leaves_its_cell_unknown_and_the_defect_is_named(
    words, known
):
    made = plan(ACKS)
    producer = next(c for c in made.clients if c.role == "producer" and c.partitions == (ACKS_1,))
    died = {producer.name: f"exit 3: the Kafka client died: {words}"}
    verdict = judge(made, findings(made), evidence(made, metadata=failover(3), dead_clients=died))
    found = of(verdict, ACKS_1)
    assert found.outcome is AnomalyOutcome.UNKNOWN
    assert "ended although nobody stopped it" in found.reason
    assert ("librdkafka#4736" in found.reason) == known


OUT_OF_ORDER = "exit 3: the Kafka client died: OUT_OF_ORDER_SEQUENCE_NUMBER: ProduceRequest for cell-000 [0] failed"


@pytest.mark.parametrize(
    ("how", "lost", "judged"),
    [
        (OUT_OF_ORDER, True, True),
        (OUT_OF_ORDER, False, False),  # nothing is gone: why it was informed cannot be stated
        ("exit 3: the Kafka client died: _FENCED: OUT_OF_ORDER_SEQUENCE_NUMBER", True, False),
        ("killed by signal 9: OUT_OF_ORDER_SEQUENCE_NUMBER", True, False),
    ],
)
def test_a_producer_that_kafka_told_of_a_loss_is_judged_by_what_it_did_before(how, lost, judged):
    made = plan(ACKS)
    producer = next(c for c in made.clients if c.role == "producer" and c.partitions == (ACKS_1,))
    found = {("lost", ACKS_1): result(witnesses(3, partition=ACKS_1, client=producer.client))} if lost else {}
    died = {producer.name: how}
    verdict = judge(made, findings(made, found), evidence(made, metadata=failover(3), dead_clients=died))
    assert of(verdict, ACKS_1, "lost").outcome is (AnomalyOutcome.PERMITTED if judged else AnomalyOutcome.UNKNOWN)
    assert (of(verdict, ACKS_1, "phantom").outcome is AnomalyOutcome.HELD) == judged
    assert ("1 producer ended because a broker reported the loss" in verdict.sentence) == judged


@pytest.mark.parametrize(("metadata", "judged"), [(UNCLEAN, True), (failover(1), False)])
def test_a_producer_is_told_of_a_loss_too_where_an_unclean_election_cut_its_log_and_nothing_was_found_missing(
    metadata, judged
):
    made = plan({"topic.unclean_leader_election_enable": [True]})
    producer = next(c for c in made.clients if c.role == "producer")
    given = evidence(made, metadata=metadata, faults=KILLED, dead_clients={producer.name: OUT_OF_ORDER})
    verdict = judge(made, findings(made), given)
    assert (of(verdict, 0, "phantom").outcome is AnomalyOutcome.HELD) == judged


def knew(*samples: tuple[float, int], client: int) -> dict[str, np.ndarray]:
    """(second, how many brokers) as a client's own statistics say."""
    rows = [
        {
            "time_ns": ns(at_s),
            "value_micro": count * MICRO,
            "metric": code_of(KNOWN_BROKERS),
            "client": client,
            "absent": 0,
        }
        for at_s, count in samples
    ]
    return table("metrics", rows)


@pytest.mark.parametrize(
    ("samples", "forgot"),
    [
        (((1, 3), (2, 0), (12, 0)), True),
        (((1, 3), (12, 0), (2, 0)), True),
        (((1, 3), (2, 0), (11.9, 0)), False),
        (((1, 3), (2, 0), (12, 0), (13, 1)), False),
        (((2, 0), (12, 0)), False),
        (((1, 3), (2, 0), (3, 2), (4, 0), (13, 0)), False),
        (((1, 3),), False),
    ],
    ids=["to the end", "rows in another order", "too short", "came back", "never knew any", "between", "knows them"],
)
def test_a_client_that_forgot_every_broker_for_good_leaves_its_cell_unknown_and_the_defect_is_named(samples, forgot):
    made = plan(ACKS)
    producer = next(c for c in made.clients if c.role == "producer" and c.partitions == (ACKS_1,))
    given = evidence(made, metadata=failover(3), metrics=knew(*samples, client=producer.client))
    verdict = judge(made, findings(made), given)
    said = f"client {producer.name} knew no broker from 2.0 s on (a known defect of librdkafka, librdkafka#5301"
    assert (of(verdict, ACKS_1).outcome is AnomalyOutcome.UNKNOWN) == forgot
    assert (said.casefold() in of(verdict, ACKS_1).reason.casefold()) == forgot
    assert of(verdict, ACKS_ALL).outcome is AnomalyOutcome.HELD, "it served another cell"
    broken = judge(made, findings(made, lost_in(ACKS_ALL)), given)
    assert broken.verdict is Verdict.VIOLATED
