"""What was done to calls of methods decides whether a violation says anything of Kafka."""

import pytest

from prozess.harness.guarantees.verdict.judge import judge
from prozess.harness.schema import Tristate
from prozess.harness.verdict import AnomalyOutcome, Verdict
from tests.support.cells.evidence import ACKS, ACKS_ALL, evidence, failover, fault, findings, lost_in, of, plan, strike

MATCH = {"method": "kafka.cluster.Partition#appendRecordsToLeader"}
THROW = {"do": "throw", "exception": "java.lang.IllegalStateException"}


def verdict_after(action, *, effect=Tristate.YES):
    """Of a record that acks=all had acknowledged and that is gone, after something was done to a call."""
    made = plan(ACKS, steps=[strike("it is done", "method", match=MATCH, action=action)])
    rows = fault(0, "method", [1], 3, 8, step=0, effect=effect)
    return judge(made, findings(made, lost_in(ACKS_ALL, 1)), evidence(made, metadata=failover(3), faults=rows))


def test_an_exception_that_is_never_thrown_there_leaves_a_violation_unknown():
    verdict = verdict_after(THROW)
    found = of(verdict, ACKS_ALL)
    assert (verdict.verdict, found.outcome, found.forbidden) == (Verdict.UNKNOWN, AnomalyOutcome.UNKNOWN, 1)
    told = "Step 'it is done' did what Kafka's code may never do (Partition#appendRecordsToLeader threw java.lang."
    assert told in found.reason


@pytest.mark.parametrize("action", [{"do": "delay", "seconds": 3}, {"do": "pause"}])
def test_a_thread_that_stands_still_is_what_every_jvm_may_have_and_leaves_it_violated(action):
    verdict = verdict_after(action)
    assert (verdict.verdict, of(verdict, ACKS_ALL).outcome) == (Verdict.VIOLATED, AnomalyOutcome.VIOLATED)


def test_an_exception_that_was_never_thrown_excuses_nothing():
    assert of(verdict_after(THROW, effect=Tristate.NO), ACKS_ALL).outcome is AnomalyOutcome.VIOLATED
