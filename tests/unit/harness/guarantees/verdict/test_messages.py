"""What was done to messages decides whether a violation says anything of Kafka."""

import pytest

from prozess.harness.guarantees.verdict.judge import judge
from prozess.harness.schema import Tristate
from prozess.harness.verdict import AnomalyOutcome, Verdict
from tests.support.cells.evidence import (
    ACKS,
    ACKS_ALL,
    DICTIONARIES,
    evidence,
    failover,
    fault,
    findings,
    lost_in,
    ns,
    of,
    plan,
    result,
    strike,
    witnesses,
)
from tests.support.cells.partitions import table


def verdict_after(action, *, direction="request", effect=Tristate.YES):
    """Of a record that acks=all had acknowledged and that is gone, after something was done to a Produce message."""
    step = strike("it is done", "message", match={"api": "Produce", "direction": direction}, action=action)
    made = plan(ACKS, steps=[step])
    rows = fault(0, "message", [1], 3, 8, step=0, effect=effect)
    return judge(made, findings(made, lost_in(ACKS_ALL, 1)), evidence(made, metadata=failover(3), faults=rows))


@pytest.mark.parametrize(
    ("action", "direction"),
    [
        ({"do": "swap"}, "request"),
        ({"do": "twice"}, "request"),
        ({"do": "lose", "connection": "keep"}, "answer"),
        ({"do": "answer", "error": "NOT_LEADER_OR_FOLLOWER"}, "answer"),
    ],
)
def test_what_no_network_does_leaves_a_violation_unknown(action, direction):
    verdict = verdict_after(action, direction=direction)
    found = of(verdict, ACKS_ALL)
    assert (verdict.verdict, found.outcome, found.forbidden) == (Verdict.UNKNOWN, AnomalyOutcome.UNKNOWN, 1)
    assert "Step 'it is done' did what no network and no broker does" in found.reason


@pytest.mark.parametrize(
    "action", [{"do": "lose"}, {"do": "hold"}, {"do": "answer", "error": "NOT_LEADER_OR_FOLLOWER"}, {"do": "close"}]
)
def test_what_networks_and_brokers_do_leaves_it_violated(action):
    verdict = verdict_after(action)
    assert (verdict.verdict, of(verdict, ACKS_ALL).outcome) == (Verdict.VIOLATED, AnomalyOutcome.VIOLATED)


def test_what_had_no_effect_excuses_nothing():
    assert of(verdict_after({"do": "swap"}, effect=Tristate.NO), ACKS_ALL).outcome is AnomalyOutcome.VIOLATED


HOLD, DELIVERED, LOSE = range(3)
HEARTBEATS = [(10, HOLD, 0), (15, DELIVERED, 0), (18, HOLD, 0), (23, DELIVERED, 0), (19, HOLD, 1), (24, DELIVERED, 1)]
"""Of two members: when, what was done, whose. Each waits for 5 s."""


def owners_after(*steps, session_ms=20_000, protocol="classic-eager"):
    """Of a second owner at 40 s, after heartbeats that waited, for each step; the coordinator may be silent for 17 s."""
    named = [
        strike(f"step {n}", "message", target="group-coordinator(0)", match={"api": "Heartbeat"}, action={"do": "hold"})
        for n in range(len(steps))
    ]
    base = {"group.session_timeout_ms": session_ms, "group.protocol": protocol}
    made = plan({}, workload="group", base=base, steps=named)
    faults = [row for n in range(len(steps)) for row in fault(n, "message", [1], 3, 60, step=n)]
    links = {"opener": 99, "server": 1}
    messages = [
        links | {"step": n, "time_ns": ns(at_s), "did": did, "sender": sender, "partition": partition}
        for n, rows in enumerate(steps)
        for at_s, did, sender in rows
        for partition in range(2 if did == HOLD else 1)
    ]
    columns = {"partition": 0, "reader": 2, "other_client": 1, "other_s": 5}
    found = {("two-owners", 0): result(witnesses(begin_s=40, end_s=50, **columns))}
    given = evidence(
        made,
        faults=faults,
        messages=table("messages", messages),
        dictionaries=DICTIONARIES | {"did": ["hold", "delivered", "lose"]},
    )
    return of(judge(made, findings(made, found), given), 0, "two-owners").outcome


def test_heartbeats_that_wait_for_5_s_each_evict_nobody_whose_session_is_20_s():
    assert owners_after(HEARTBEATS) is AnomalyOutcome.VIOLATED
    assert owners_after(HEARTBEATS, session_ms=6_000) is AnomalyOutcome.PERMITTED
    assert owners_after(HEARTBEATS, session_ms=6_700) is AnomalyOutcome.VIOLATED


def test_messages_of_one_member_that_wait_one_behind_the_other_may_evict_it():
    chain = [(10, HOLD, 0), (20, HOLD, 0), (21, DELIVERED, 0), (28, DELIVERED, 0)]
    assert owners_after(chain) is AnomalyOutcome.PERMITTED
    assert owners_after([(at_s, did, at_s // 20) for at_s, did, _ in chain[:3]]) is AnomalyOutcome.PERMITTED, (
        "one still waits"
    )
    assert owners_after([*chain[:2], (21, DELIVERED, 0), (26.9, DELIVERED, 0)]) is AnomalyOutcome.VIOLATED


def test_what_waits_by_one_step_and_then_by_the_next_waits_for_both_times():
    nine = [(10, HOLD, 0), (19, DELIVERED, 0)]
    assert owners_after(nine) is AnomalyOutcome.VIOLATED
    assert owners_after(nine, [(19, HOLD, 0), (28, DELIVERED, 0)]) is AnomalyOutcome.PERMITTED


def test_heartbeats_that_are_lost_or_whose_fault_matched_nothing_are_judged_as_before():
    assert owners_after([*HEARTBEATS, (25, LOSE, 0)]) is AnomalyOutcome.PERMITTED
    assert owners_after([]) is AnomalyOutcome.PERMITTED
