"""Delivery bounds: how a trial states them, where they are refused, and what the judge makes of their findings."""

import numpy as np
import pytest

from prozess.harness.config.configuration import BOUNDED
from prozess.harness.errors import BadInput
from prozess.harness.guarantees.verdict.judge import judge
from prozess.harness.interfaces import CLIENT_NODE
from prozess.harness.interfaces.witnesses import LateCase, make_witnesses
from prozess.harness.plan.plan import parse_plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.verdict import AnomalyOutcome, Verdict, WindowJudged
from tests.support.cells.evidence import evidence, fault, findings, ns, of, result, state, strike

STATED = {"latency_s": 2.0}


def plan_of(**document):
    return make_plan(parse_trial({"name": "x", "title": "t", **document}, source="x.toml"), seed=1)


# --- stating one --------------------------------------------------------------------------------------------------------


def test_without_a_bound_nothing_is_promised():
    [cell] = plan_of().cells
    assert cell.delivery_bound is None
    assert BOUNDED not in cell.traits


def test_a_stated_bound_is_every_cells_and_survives_the_plan():
    plan = plan_of(delivery=STATED | {"window_s": 0.5}, axes={"producer.acks": ["1", "all"]})
    for cell in parse_plan(plan.model_dump_json(), source="plan.json").cells:
        assert cell.delivery_bound is not None
        assert (cell.delivery_bound.latency_s, cell.delivery_bound.window_s) == (2.0, 0.5)
        assert (cell.delivery_bound.except_during_faults, cell.delivery_bound.recovery_s) == (True, 10.0)
        assert BOUNDED in cell.traits


def test_axes_vary_it_and_cells_that_differ_in_it_share_their_clients():
    plan = plan_of(delivery=STATED, axes={"delivery.latency_s": [1.0, 30.0]})
    assert [cell.delivery_bound.latency_s for cell in plan.cells] == [1.0, 30.0]
    assert len([client for client in plan.clients if client.role == "producer"]) == 1
    assert len(plan.cells_matching({"delivery.latency_s": "30.0"})) == 1


def test_a_bound_may_be_one_workloads_alone():
    workloads = [{"kind": "log", "delivery": STATED}, {"kind": "log"}, {"kind": "exactly-once"}]
    assert [cell.delivery_bound is not None for cell in plan_of(workloads=workloads).cells] == [True, False, False]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"delivery": {}}, "delivery.latency_s"),
        ({"delivery": {"latency_s": 0}}, "greater than or equal to 0.1"),
        ({"delivery": {"latency": 1}}, "did you mean 'latency_s'?"),
        ({"axes": {"delivery.latency": [1, 2]}}, "'delivery.latency' is not a setting of a log cell"),
        ({"axes": {"delivery.window_s": [1, 2]}}, "delivery.latency_s"),
        ({"delivery": STATED, "isolation_levels": []}, "no tailing readers: name a level in isolation_levels"),
        ({"axes": {"delivery.latency_s": [1]}, "isolation_levels": []}, "it has no tailing readers"),
        (
            {"workload": "transactions", "delivery": STATED, "isolation_levels": ["read_uncommitted"]},
            "no reader is at read_committed",
        ),
        ({"workload": "verifiable", "delivery": STATED}, "do not say when they sent a record"),
        ({"workload": "exactly-once", "delivery": STATED}, "says nothing of the copies in the other"),
    ],
)
def test_a_bound_that_cannot_be_measured_is_refused_in_a_sentence(document, words):
    with pytest.raises(BadInput) as caught:
        plan_of(**document)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["log", "compaction", "transactions", "group"])
def test_what_has_readers_or_members_may_be_bound(kind):
    base = {"topic.cleanup_policy": "compact"} if kind == "compaction" else {}
    levels = [] if kind == "group" else ["read_committed"]
    [cell] = plan_of(workload=kind, delivery=STATED, isolation_levels=levels, base=base).cells
    assert cell.delivery_bound is not None


# --- judging it -------------------------------------------------------------------------------------------------------

PAUSE = [strike("freeze", "pause")]
QUIET = [state(-10, 0, 1, 0, (1, 2, 3))]
FROZEN = fault(0, "pause", [1], 10, 15)


def bounded(*, steps=PAUSE, **more):
    document = {"name": "x", "title": "t", "topics": {"partitions": 1, "placement": [[1, 2, 3]]}, "steps": steps}
    stated = STATED | {"recovery_s": 3.0} | more
    return make_plan(parse_trial(document | {"delivery": stated}, source="test"), seed=1)


def late(*sent_s, case=LateCase.LATE):
    begin_ns = np.array([ns(t) for t in sent_s])
    return make_witnesses(
        len(begin_ns), {"partition": 0, "begin_ns": begin_ns, "other_ns": begin_ns + ns(2), "case": case}
    )


def verdict_of(plan, found, *faults, **more):
    given = {("late", 0): result(found, **more)}
    return judge(
        plan, findings(plan, given), evidence(plan, metadata=QUIET, faults=[row for rows in faults for row in rows])
    )


def test_what_is_in_time_holds_and_what_a_fault_delayed_is_told_window_by_window():
    plan = bounded()
    none = verdict_of(plan, late(), FROZEN)
    assert (of(none, 0, "late").outcome, none.cells[0].windows) == (AnomalyOutcome.POSSIBLE, ())
    shown = verdict_of(plan, late(10.1, 10.9, 11.5), FROZEN)
    assert (shown.verdict, of(shown, 0, "late").outcome) == (Verdict.HELD, AnomalyOutcome.PERMITTED)
    assert shown.cells[0].windows == (WindowJudged(number=10, permitted=2), WindowJudged(number=11, permitted=1))
    assert "Permitted, and seen: 3 acknowledged records were delivered later than the stated bound" in shown.sentence


def test_what_no_fault_explains_violates_and_its_window_is_named():
    verdict = verdict_of(bounded(), late(3.0, 11.0), FROZEN)
    assert (verdict.verdict, of(verdict, 0, "late").forbidden) == (Verdict.VIOLATED, 1)
    assert verdict.cells[0].windows == (WindowJudged(number=3, forbidden=1), WindowJudged(number=11, permitted=1))


def test_a_bound_that_excepts_nothing_is_held_or_violated_whatever_happened():
    plan = bounded(except_during_faults=False)
    assert of(verdict_of(plan, late(), FROZEN), 0, "late").outcome is AnomalyOutcome.HELD
    assert of(verdict_of(plan, late(11), FROZEN), 0, "late").outcome is AnomalyOutcome.VIOLATED


def test_without_a_fault_a_bound_is_held_even_where_faults_are_excepted():
    plan = bounded(steps=[])
    assert of(verdict_of(plan, late()), 0, "late").outcome is AnomalyOutcome.HELD


def test_a_bound_that_could_not_be_measured_is_unknown_never_held():
    plan = bounded(steps=[])
    assert of(verdict_of(plan, late(), judged=0), 0, "late").outcome is AnomalyOutcome.UNKNOWN
    assert of(verdict_of(plan, late(), incomplete="no sentinel"), 0, "late").outcome is AnomalyOutcome.UNKNOWN
    for case in (LateCase.STOOD_STILL, LateCase.UNAUDITED):
        assert of(verdict_of(plan, late(5, case=case)), 0, "late").outcome is AnomalyOutcome.UNKNOWN
    assert of(verdict_of(plan, late(5), incomplete="no sentinel"), 0, "late").outcome is AnomalyOutcome.VIOLATED


def test_a_paused_reader_leaves_its_late_records_unknown():
    plan = bounded(steps=[strike("freeze a reader", "pause", "client:reader-read_committed")])
    [reader] = [c.client for c in plan.clients if c.name == "reader-read_committed"]
    paused = fault(0, "pause", [CLIENT_NODE + reader], 10, 15)
    verdict = verdict_of(plan, late(11, case=LateCase.STOOD_STILL), paused)
    assert of(verdict, 0, "late").outcome is AnomalyOutcome.UNKNOWN
    assert "stood still or was dead long enough to explain" in of(verdict, 0, "late").reason
    assert verdict.cells[0].windows == (WindowJudged(number=11, unknown=1),)


def test_without_a_bound_it_is_not_judged():
    plan = make_plan(parse_trial({"name": "x", "title": "t", "topics": {"partitions": 1}}, source="test"), seed=1)
    assert "late" not in judge(plan, findings(plan), evidence(plan)).cells[0].anomalies


def test_the_envelope_of_a_bounded_cell_knows_who_measures():
    plan = bounded()
    made = evidence(plan).envelope(plan, plan.cells[0], 0)
    readers = {CLIENT_NODE + c.client for c in plan.clients if c.role == "reader"}
    assert (made.measured_by, made.delivery_bound) == (readers, plan.cells[0].delivery_bound)
