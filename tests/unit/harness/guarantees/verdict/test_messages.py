"""What was done to messages decides whether a violation says anything of Kafka."""

import pytest

from prozess.harness.guarantees.verdict.judge import judge
from prozess.harness.schema import Tristate
from prozess.harness.verdict import AnomalyOutcome, Verdict
from tests.support.cells.evidence import ACKS, ACKS_ALL, evidence, failover, fault, findings, lost_in, of, plan, strike


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
