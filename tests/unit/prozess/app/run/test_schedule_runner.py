"""Conditions and the schedule runner against a scripted world: what fires, what times out, and what is then recorded."""

from collections import defaultdict

import pytest

from prozess.app.run.schedule_runner import Actors, Context, ScheduleRunner, Snapshot, evaluate
from prozess.harness.clock import NS_PER_S
from prozess.harness.errors import ClusterFailed, TargetMissing
from prozess.harness.interfaces import PartitionView, Progress
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.schedule import Acked, Behind, Elapsed, IsrIs, LeaderMoved, Offline, Settled
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import MISSING, StepOutcome
from tests.support.clock import FakeClock

PAUSE = {"kind": "fault", "fault": "pause", "targets": ["followers(0)"]}


def plan_with(*steps, **more):
    document = {"name": "x", "title": "t", "topics": {"partitions": 2}, "steps": list(steps), **more}
    return make_plan(parse_trial(document, source="x"), seed=1)


class ScriptedAdmin:
    """Every broker answers with `views_by_node`."""

    def __init__(self, views_by_node):
        self.views_by_node = views_by_node

    def view(self, node, topics, *, timeout_s=2.0):
        return self.views_by_node[node]


def seen(leader=1, isr=(1, 2, 3), error=0):
    view = PartitionView(leader=leader, leader_epoch=3, replicas=(1, 2, 3), isr=isr, error=error)
    return {("cell-000", 0): view, ("cell-000", 1): view}


def world(*, views=None, counts=None, unhealed=(), plan=None, clock=None, ends=None):
    clock = clock or FakeClock()
    counts = counts if counts is not None else {0: Progress(0, 0, 0, 0), 1: Progress(0, 0, 0, 0)}
    return Context(
        plan=plan or plan_with(),
        admin=ScriptedAdmin(views or {1: seen(), 2: seen(), 3: seen()}),
        progress=lambda: dict(counts),
        unhealed=lambda: unhealed,
        now_ns=clock.monotonic_ns,
        log_ends=lambda partitions: {key: end for key, end in (ends or {}).items() if key[1] in partitions},
    )


START = Snapshot(0, {0: Progress(10, 10, 0, 0), 1: Progress(10, 10, 0, 0)})


def test_acked_counts_from_the_previous_step_and_needs_every_partition():
    condition = Acked(condition="acked", count=5)
    short = world(counts={0: Progress(20, 15, 0, 0), 1: Progress(20, 14, 0, 6)})
    assert evaluate(condition, short, START).seen == "1 of 2 partitions have fewer; partition 1 has 4 of 5"
    assert evaluate(condition, world(counts={0: Progress(20, 15, 0, 0), 1: Progress(20, 15, 0, 0)}), START).holds


def test_settled_means_that_nothing_is_in_flight_whatever_became_of_it():
    condition = Settled(condition="settled")
    assert evaluate(condition, world(counts={0: Progress(3, 1, 1, 1), 1: Progress(0, 0, 0, 0)}), START).holds
    flying = evaluate(condition, world(counts={0: Progress(4, 1, 1, 1), 1: Progress(0, 0, 0, 0)}), START)
    assert not flying.holds
    assert flying.seen == "1 records in flight to 1 partitions"


def test_a_leader_has_moved_only_if_every_broker_that_no_fault_holds_says_so():
    condition = LeaderMoved(condition="leader-moved")
    zombie = {1: seen(leader=1), 2: seen(leader=2), 3: seen(leader=2)}
    assert evaluate(condition, world(views=zombie, unhealed=(1,)), START).holds
    assert not evaluate(condition, world(views=zombie | {3: seen(leader=1)}, unhealed=(1,)), START).holds
    assert not evaluate(condition, world(views={2: seen(leader=-1), 3: seen(leader=-1)}, unhealed=(1,)), START).holds
    silent = evaluate(condition, world(views={1: None, 2: None, 3: seen(leader=3)}, unhealed=(1,)), START)
    assert (silent.holds, silent.seen) == (False, "no answer from broker 2")
    assert not evaluate(condition, world(views={}, unhealed=(1, 2, 3)), START).holds


def test_isr_is_whole_only_on_every_brokers_own_view():
    condition = IsrIs(condition="isr")
    assert evaluate(condition, world(), START).holds
    assert not evaluate(condition, world(views={1: seen(), 2: seen(), 3: seen(isr=(1, 2))}), START).holds
    assert not evaluate(condition, world(views={1: seen(), 2: seen(error=5), 3: seen()}), START).holds
    exact = IsrIs(condition="isr", partition=1, brokers=(1,))
    assert evaluate(exact, world(views=dict.fromkeys((1, 2, 3), seen(isr=(1,)))), START).holds


def test_offline_means_that_every_living_broker_says_that_nobody_leads():
    condition = Offline(condition="offline")
    nobody = seen(leader=-1, isr=(), error=5)  # LEADER_NOT_AVAILABLE, as brokers say it
    assert evaluate(condition, world(views={3: nobody}, unhealed=(1, 2)), START).holds
    assert not evaluate(condition, world(views={2: nobody, 3: seen()}, unhealed=(1,)), START).holds
    assert not evaluate(condition, world(views={}, unhealed=(1, 2, 3)), START).holds, "nobody is left to say it"
    assert not evaluate(IsrIs(condition="isr", brokers=()), world(views={3: nobody}, unhealed=(1, 2)), START).holds


def test_leaders_and_isrs_may_be_asked_of_some_cells_alone():
    plan = plan_with(axes={"producer.acks": ["1", "all"]})
    views = {b: {("cell-000", n): seen()["cell-000", n] for n in (0, 1)} for b in (1, 2, 3)}
    for view in views.values():
        view |= {("cell-001", n): PartitionView(-1, 3, (1, 2, 3), (1,), 5) for n in (0, 1)}
    there = world(views=views, plan=plan)
    first, second = {"producer.acks": "1"}, {"producer.acks": "all"}
    assert evaluate(IsrIs(condition="isr", cells=first), there, START).holds
    assert evaluate(Offline(condition="offline", cells=second), there, START).holds
    assert not evaluate(LeaderMoved(condition="leader-moved", cells=second), there, START).holds
    assert not evaluate(IsrIs(condition="isr"), there, START).holds


def test_elapsed_is_since_the_previous_step():
    clock = FakeClock(7 * NS_PER_S)
    since = Snapshot(5 * NS_PER_S, {})
    assert evaluate(Elapsed(condition="elapsed", seconds=2), world(clock=clock), since).holds
    assert not evaluate(Elapsed(condition="elapsed", seconds=2.1), world(clock=clock), since).holds


def test_copies_are_behind_by_exactly_so_many_offsets_on_every_partition():
    condition = Behind(condition="behind", node="broker-1", records={"broker-2": 0, "broker-3": 1})
    both = {(1, 0): 7, (2, 0): 7, (3, 0): 6, (1, 1): 9, (2, 1): 9, (3, 1): 8}
    assert evaluate(condition, world(ends=both), START).holds
    near = evaluate(condition, world(ends=both | {(3, 1): 7}), START)
    assert (near.holds, near.seen) == (
        False,
        "partition 1: broker-1 ends at 9, broker-3 ends at 7; it should be 1 behind",
    )
    assert not evaluate(condition, world(ends=both | {(2, 0): 8}), START).holds
    unread = {key: end for key, end in both.items() if key != (1, 0)}
    assert evaluate(condition, world(ends=unread), START).seen.startswith("broker-1 has no copy of partition 0")
    assert not evaluate(condition, world(ends={k: e for k, e in both.items() if k != (3, 1)}), START).holds


def test_only_the_selected_cells_are_compared():
    plan = plan_with(axes={"producer.acks": ["1", "all"]})
    condition = Behind(condition="behind", node="broker-1", records={"broker-2": -1}, cells={"producer.acks": "all"})
    ends = {(1, 0): 5, (2, 0): 0, (1, 1): 5, (2, 1): 0, (1, 2): 5, (2, 2): 6, (1, 3): 7, (2, 3): 8}
    assert evaluate(condition, world(plan=plan, ends=ends), START).holds


class Scripted:
    """Workload, nemesis, inspector and recorder in one, noting what was asked of them."""

    def __init__(self, *, failing=(), missing=()):
        self.done, self.rows, self.failing, self.missing, self.texts = [], [], failing, missing, []

    def command(self, action):
        self.done.append(action)

    def inspect(self, partitions, *, step):
        self.done.append(("inspect", list(partitions), step))

    def strike(self, number, step):
        if step.name in self.missing:
            raise TargetMissing("nobody leads")
        if step.name in self.failing:
            raise ClusterFailed("no such leader now")
        self.done.append(("strike", step.name))

    def heal(self, name):
        self.done.append(("heal", name))

    def write(self, table, **columns):
        assert table == "steps"
        self.rows.append(columns)

    def code(self, dictionary, text):
        self.texts.append(text)
        return len(self.texts) - 1


def run(plan, scripted, *, counts=None, clock=None):
    clock = clock or FakeClock()
    announced = []
    runner = ScheduleRunner(
        world(plan=plan, counts=counts, clock=clock),
        Actors(scripted, scripted, scripted, scripted),
        recorder=scripted,
        clock=clock,
        start_ns=0,
        announce=lambda number, step, what: announced.append((number, what)),
    )
    return runner.run(), announced


def test_steps_are_done_in_order_each_after_its_wait():
    clock = FakeClock()
    plan = plan_with(
        {"name": "quiet", "do": {"kind": "pause_sends"}},
        {"name": "freeze", "after": {"condition": "elapsed", "seconds": 1.5}, "do": PAUSE},
        {"name": "write", "at_s": 4, "do": {"kind": "send", "count": 3}},
        {"name": "thaw", "do": {"kind": "heal", "step": "freeze"}},
        {"name": "on", "do": {"kind": "resume_sends"}},
    )
    scripted = Scripted()
    done, announced = run(plan, scripted, clock=clock)
    assert done
    assert scripted.done == [
        plan.steps[0].do,
        ("strike", "freeze"),
        plan.steps[2].do,
        ("heal", "freeze"),
        plan.steps[4].do,
    ]
    assert [row["outcome"] for row in scripted.rows] == [StepOutcome.DONE] * 5
    assert 1.5 * NS_PER_S <= scripted.rows[1]["fired_ns"] < 1.6 * NS_PER_S
    assert 4 * NS_PER_S <= scripted.rows[2]["fired_ns"] < 4.1 * NS_PER_S
    assert [what for _, what in announced] == ["done"] * 5


def test_a_step_that_times_out_ends_the_schedule_and_the_rest_is_skipped():
    plan = plan_with(
        {"name": "never", "after": {"condition": "acked", "count": 1}, "timeout_s": 2, "do": PAUSE},
        {"name": "later", "do": PAUSE},
    )
    scripted, clock = Scripted(), FakeClock()
    done, _ = run(plan, scripted, clock=clock)
    assert not done
    assert scripted.done == []
    assert [row["outcome"] for row in scripted.rows] == [StepOutcome.TIMED_OUT, StepOutcome.SKIPPED]
    assert scripted.rows[0]["fired_ns"] == MISSING
    assert "waited 2 s for step 'never'; last seen: 2 of 2 partitions have fewer" in scripted.texts[0]
    assert 2 <= clock.monotonic_ns() / NS_PER_S < 2.1


def test_what_a_step_itself_asks_to_wait_is_not_part_of_its_limit():
    plan = plan_with({"name": "long", "after": {"condition": "elapsed", "seconds": 100}, "timeout_s": 1})
    assert run(plan, Scripted())[0]


def test_a_fault_that_cannot_be_done_fails_its_step_and_skips_the_rest():
    plan = plan_with({"name": "freeze", "do": PAUSE}, {"name": "after", "do": {"kind": "resume_sends"}})
    scripted = Scripted(failing=("freeze",))
    done, announced = run(plan, scripted)
    assert not done
    assert [row["outcome"] for row in scripted.rows] == [StepOutcome.FAILED, StepOutcome.SKIPPED]
    assert announced == [(0, "failed: no such leader now")]


def test_a_step_that_may_miss_is_left_out_where_its_target_is_not_there_and_the_schedule_goes_on():
    goes_on = {"name": "goes on", "do": {"kind": "resume_sends"}}
    scripted = Scripted(missing=("freeze",))
    done, announced = run(plan_with({"name": "freeze", "do": PAUSE, "may_miss": True}, goes_on), scripted)
    assert done
    assert [row["outcome"] for row in scripted.rows] == [StepOutcome.MISSED, StepOutcome.DONE]
    assert announced == [(0, "left out: nobody leads"), (1, "done")]
    strict = Scripted(missing=("freeze",))
    assert not run(plan_with({"name": "freeze", "do": PAUSE}, goes_on), strict)[0]
    assert [row["outcome"] for row in strict.rows] == [StepOutcome.FAILED, StepOutcome.SKIPPED]


def test_a_step_that_may_miss_is_left_out_where_its_condition_does_not_hold_in_time_and_the_schedule_goes_on():
    never = {"name": "never", "after": {"condition": "acked", "count": 99}, "timeout_s": 1, "do": PAUSE}
    goes_on = {"name": "goes on", "after": {"condition": "elapsed", "seconds": 2}, "do": {"kind": "resume_sends"}}
    scripted = Scripted()
    done, announced = run(plan_with(never | {"may_miss": True}, goes_on), scripted)
    assert done
    assert [row["outcome"] for row in scripted.rows] == [StepOutcome.MISSED, StepOutcome.DONE]
    assert scripted.rows[0]["fired_ns"] == MISSING
    assert scripted.rows[1]["fired_ns"] - scripted.rows[1]["awaited_ns"] >= 2e9, (
        "it counts from when the other was left out"
    )
    assert announced[0][1].startswith("left out: ")
    assert announced[1] == (1, "done")
    assert len(scripted.done) == 1, "the fault of a step that was left out does not strike"
    assert not run(plan_with(never, goes_on), Scripted())[0]


def test_acknowledgements_that_come_while_a_step_acts_count_for_the_next():
    counts = defaultdict(lambda: Progress(0, 0, 0, 0), {0: Progress(0, 0, 0, 0), 1: Progress(0, 0, 0, 0)})
    plan = plan_with(
        {"name": "write", "do": {"kind": "send", "count": 3}},
        {"name": "acked", "after": {"condition": "acked", "count": 3}, "timeout_s": 1},
    )

    class Quick(Scripted):
        def command(self, action):
            counts.update({0: Progress(3, 3, 0, 0), 1: Progress(3, 3, 0, 0)})

    assert run(plan, Quick(), counts=counts)[0]


@pytest.mark.parametrize("kind", ["unfenced"])
def test_unfenced_asks_the_node_itself(kind):
    from prozess.harness.plan.schedule import Unfenced

    class One:
        def view(self, node, topics, *, timeout_s=2.0):
            return {3: seen(isr=(1, 2, 3)), 2: None}[node]

    asked = Context(plan_with(), One(), lambda: {}, lambda: (), lambda: 0)
    assert evaluate(Unfenced(condition=kind, node="broker-3"), asked, START).holds
    assert not evaluate(Unfenced(condition=kind, node="broker-2"), asked, START).holds


def test_an_inspection_is_of_the_selected_cells_and_knows_its_step():
    plan = plan_with(
        {"name": "quiet", "do": {"kind": "pause_sends"}},
        {"name": "look", "do": {"kind": "inspect", "cells": {"producer.acks": "all"}}},
        {"name": "only the second", "do": {"kind": "send", "count": 1, "producer": 2}},
        axes={"producer.acks": ["1", "all"]},
        traffic={"producers": 2},
    )
    scripted = Scripted()
    assert run(plan, scripted)[0]
    assert scripted.done[1:] == [("inspect", [2, 3], 1), plan.steps[2].do]
