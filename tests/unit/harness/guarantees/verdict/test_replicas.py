"""What the judge makes of replicas: copies that differ, and where a leader epoch began."""

from dataclasses import replace

import numpy as np

from prozess.harness.guarantees.verdict.judge import judge
from prozess.harness.interfaces.checking import KernelResult
from prozess.harness.interfaces.witnesses import make_witnesses
from prozess.harness.report.words import seen_in
from prozess.harness.schema import NONE, ObservationKind
from prozess.harness.verdict import AnomalyOutcome
from tests.support.cells.evidence import evidence, failover, findings, of, plan, result, state

START, END = ObservationKind.REPLICA_EPOCH_START, ObservationKind.REPLICA_LOG_END


def copies_differ(*, reader=3, other_client=1):
    columns = {"partition": 0, "log_offset": 5, "other_offset": 5, "reader": reader, "other_client": other_client}
    return {("diverged", 0): KernelResult(make_witnesses(1, columns), count=1, judged=9)}


def judged(found, *, metadata=None, **more):
    made = plan({"producer.acks": ["all"]})
    told = evidence(made, metadata=metadata or failover(1), **more)
    return of(judge(made, findings(made, found), told), 0, "diverged")


def test_copies_in_sync_that_differ_are_a_violation():
    outcome = judged(copies_differ())
    assert (outcome.outcome, outcome.forbidden) == (AnomalyOutcome.VIOLATED, 1)
    assert "1 difference between two replicas" in outcome.reason


def test_a_copy_that_ended_outside_the_isr_need_not_be_the_same():
    ended = [*failover(1), state(20, 0, 2, 1, (1, 2))]
    outcome = judged(copies_differ(), metadata=ended)
    assert (outcome.outcome, outcome.forbidden, outcome.count) == (AnomalyOutcome.HELD, 0, 1)
    assert judged(copies_differ(reader=2), metadata=ended).forbidden == 1


def test_a_copy_behind_outside_the_isr_is_not_told_as_found_where_the_cluster_was_never_whole_again():
    made = plan({"producer.acks": ["all"]})
    told = replace(evidence(made, metadata=[*failover(1), state(20, 0, 2, 1, (1, 2))]), not_whole=["no broker 3"])
    verdict = judge(made, findings(made, copies_differ()), told)
    assert of(verdict, 0, "diverged").outcome is AnomalyOutcome.UNKNOWN
    assert "diverged" not in verdict.sentence
    assert "diverged unknown" in seen_in(verdict.cells[0]), "the copy was down, and so it is behind"
    in_sync = judge(made, findings(made, copies_differ(reader=2)), told)
    assert in_sync.sentence.startswith("Violated: 1 difference between two replicas"), "a real one stays one"


def test_what_is_told_of_replicas_in_sync_leaves_out_the_one_that_is_behind():
    made = plan({"producer.acks": ["all"]})
    told = replace(evidence(made, metadata=[*failover(1), state(20, 0, 2, 1, (1, 2))]), not_whole=["no broker 3"])
    both = np.concatenate([copies_differ(reader=reader)["diverged", 0].witnesses for reader in (2, 3)])
    verdict = judge(made, findings(made, {("diverged", 0): result(both)}), told)
    found = of(verdict, 0, "diverged")
    assert (found.count, found.seen, found.not_applicable) == (2, 1, 1)
    assert found.reason.startswith("1 difference between two replicas")
    assert "diverged 1 (forbidden)" in seen_in(verdict.cells[0])


def test_an_unclean_election_is_no_excuse_because_followers_truncate_by_epoch():
    unclean = [state(-10, 0, 1, 0, (1,)), state(6, 0, 2, 1, (2,)), state(9, 0, 2, 1, (1, 2, 3))]
    assert judged(copies_differ(), metadata=unclean).outcome is AnomalyOutcome.VIOLATED


def test_copies_that_differ_are_named_after_a_defect_of_their_brokers_only_where_an_older_epoch_stands_behind_a_newer():
    old = {"kafka_version": "4.0.0", "settings": {}, "features": {}}
    in_order = [
        {"partition": 0, "node": node, "step": NONE, "base_offset": first, "last_offset": 300, "leader_epoch": epoch}
        for node, first, epoch in ((1, 0, 1), (2, 0, 1))
    ]
    outcome = judged(copies_differ(), cluster=old, replicas=in_order)
    assert (outcome.outcome, outcome.defects, list(outcome.possible)) == (AnomalyOutcome.VIOLATED, (), [])
    behind = [*in_order, {**in_order[0], "node": 3, "base_offset": 5, "leader_epoch": 0}]
    outcome = judged(copies_differ(), cluster=old, replicas=behind)
    assert (outcome.outcome, outcome.defects) == (
        AnomalyOutcome.VIOLATED,
        ("KAFKA-18991, fixed after 3.9.0 and 4.0.0",),
    )


# --- where an epoch began -------------------------------------------------------------------------------------------


def starts(observations, replicas=()):
    made = plan({"producer.acks": ["1"]})
    told = evidence(made, observations=observations, replicas=[{"step": NONE, **row} for row in replicas])
    return told.envelope(made, made.cells[0], 0).epoch_starts


def said(kind, node, value, epoch=NONE, **more):
    return {"partition": 0, "kind": kind, "node": node, "value": value, "leader_epoch": epoch, **more}


def batch(epoch, base, **more):
    return {"partition": 0, "leader_epoch": epoch, "base_offset": base, "last_offset": base + 1, **more}


def test_checkpoints_say_where_an_epoch_began_the_earliest_of_all_copies():
    rows = [said(START, 1, 0, 0), said(START, 2, 0, 0), said(START, 2, 67, 1), said(START, 3, 70, 1), said(END, 2, 90)]
    assert starts(rows, [batch(0, 0), batch(1, 80)]) == {0: 0, 1: 67, 2**31: 90}


def test_what_a_checkpoint_said_at_a_step_is_not_what_it_said_in_the_end():
    rows = [said(START, 1, 0, 0), said(END, 1, 90), said(START, 1, 12, 1, step=3), said(END, 1, 99, step=3)]
    assert starts(rows) == {0: 0, 2**31: 90}


def test_without_checkpoints_the_batches_say_it_and_without_batches_nobody_does():
    assert starts([], [batch(0, 0), batch(1, 68), batch(1, 66)]) == {0: 0, 1: 66, 2**31: 70}
    assert starts([said(END, 1, 90)], [batch(0, 4)]) == {0: 4, 2**31: 6}
    assert starts([], [batch(0, 0, step=2)]) is None
