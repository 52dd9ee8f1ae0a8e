"""Shrinking: what is tried is valid and smaller, what is found still fails, and chance is counted as the statistics say."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.app.run_process import StopRequest
from prozess.campaigns.engine import TrialAttempt, TrialEngine
from prozess.campaigns.shrink import (
    RUNS_MIN,
    BegunShrink,
    Chance,
    ShrinkDirectory,
    TimeIsUp,
    Trials,
    WantedViolation,
    comes_back,
    key_of,
    tries_needed,
    wanted_violation,
)
from prozess.campaigns.smaller_plans import (
    ddmin,
    shrink,
    size_in_words,
    spare_clients,
    steps_to_halve,
    valid_plan,
    with_cells,
    with_half_waits,
    with_steps,
    without_clients,
)
from prozess.harness.errors import BadInput, HarnessFailed
from prozess.harness.plan.checks import check_steps
from prozess.harness.plan.plan import parse_plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.schedule import Elapsed, FaultAction, HealAction, Step, parse_target
from prozess.harness.plan.trial_files import known_trials, load_trial, parse_trial
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import CellAnomaly, CellVerdict, FaultShown, TrialVerdict, Verdict
from tests.support.clock import FakeClock
from tests.support.examples import examples

WANTED = WantedViolation(anomaly="lost", workload="log", axes={"producer.acks": "all"})


# --- delta debugging ------------------------------------------------------------------------------------------------


@given(items=st.lists(st.integers(), max_size=14, unique=True), data=st.data())
@settings(max_examples=examples(300))
def test_what_is_needed_is_found_and_nothing_else(items, data):
    needed = set(data.draw(st.lists(st.sampled_from(items), unique=True))) if items else set()
    asked = []

    def fails(part):
        asked.append(part)
        return needed <= set(part)

    assert ddmin(items, fails) == tuple(item for item in items if item in needed)
    assert len(asked) <= len(items) ** 2 + 3 * len(items) + 1  # the bound of the paper


@given(items=st.lists(st.integers(0, 50), max_size=10, unique=True), seed=st.integers(0, 2**30))
@settings(max_examples=examples(200))
def test_whatever_fails_what_is_found_fails_and_no_single_one_can_go(items, seed):
    import random

    verdicts = {}

    def fails(part):
        if set(part) == set(items):
            return True
        return verdicts.setdefault(frozenset(part), random.Random(f"{seed}{sorted(part)}").random() < 0.4)

    found = ddmin(items, fails)
    assert fails(found)
    if len(found) > 1:
        assert not any(fails(tuple(x for x in found if x != gone)) for gone in found)


# --- chance ---------------------------------------------------------------------------------------------------------


@given(probability=st.floats(0.01, 1))
def test_so_many_runs_miss_a_failure_at_most_one_time_in_twenty_and_one_less_would_miss_it_more_often(probability):
    needed = tries_needed(probability)
    assert (1 - probability) ** needed <= 0.05 + 1e-12
    if probability < 1:
        assert needed == math.ceil(math.log(0.05) / math.log1p(-probability))
        assert needed == 1 or (1 - probability) ** (needed - 1) > 0.05 - 1e-12


@given(runs=st.integers(1, 40), data=st.data())
def test_the_interval_holds_the_estimate(runs, data):
    chance = Chance(hits=data.draw(st.integers(0, runs)), runs=runs)
    low, high = chance.interval
    assert 0 <= low <= chance.probability <= high <= 1
    assert f"{chance.hits} of {runs} runs" in str(chance)


# --- smaller plans --------------------------------------------------------------------------------------------------

NAMES = ("smoke", "safe", "mix", "windows", "exactly-once", "order", "message-order")
PLANS = {name: make_plan(load_trial(name), seed=1) for name in NAMES}
SOME = st.sampled_from(sorted(PLANS))


def assert_whole(plan):
    """Numbered through, and nothing names what is not there."""
    assert [cell.cell for cell in plan.cells] == list(range(len(plan.cells)))
    assert [p.partition for p in plan.partitions] == list(range(len(plan.partitions)))
    assert [client.client for client in plan.clients] == list(range(len(plan.clients)))
    for cell in plan.cells:
        own = [p for p in plan.partitions if p.cell == cell.cell]
        assert tuple(p.partition for p in own) == cell.partitions
        assert {p.topic_name for p in own} <= {cell.topic_name, cell.derived_topic_name, f"{cell.topic_name}-late"}
        assert set(cell.derived) <= set(cell.partitions)
    every = range(len(plan.partitions))
    assert all(set(client.partitions) <= set(every) for client in plan.clients)
    assert all(client.cell is None or client.cell < len(plan.cells) for client in plan.clients)
    for step in plan.steps:
        if isinstance(step.do, FaultAction):
            for target in map(parse_target, step.do.targets):
                assert target.partition is None or target.partition in every
                assert target.cell is None or target.cell < len(plan.cells)
    check_steps(plan)
    assert parse_plan(plan.model_dump_json(), source="here") == plan


@given(name=SOME, data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_fewer_cells_are_a_whole_plan_about_the_same(name, data):
    plan = PLANS[name]
    kept = data.draw(st.sets(st.sampled_from([cell.cell for cell in plan.cells]), min_size=1))
    made = with_cells(plan, kept)
    if made is None:  # a step is aimed at a group, or a placement, that nothing left stands for
        return
    assert [cell.name for cell in made.cells] == [cell.name for cell in plan.cells if cell.cell in kept]
    if valid_plan(made) is not None:
        assert_whole(made)
    old = {(p.topic_name, p.number): p.assignment for p in plan.partitions}
    assert all(old[p.topic_name, p.number] == p.assignment for p in made.partitions)
    assert {c.name for c in made.clients} <= {c.name for c in plan.clients}
    assert [c.role for c in made.clients].count("audit") == 2


def test_a_role_of_a_partition_that_is_gone_names_one_that_lives_through_the_same():
    plan = PLANS["smoke"]
    last = plan.cells[-1].cell
    made = with_cells(plan, {last})
    before = [parse_target(t) for s in plan.steps if isinstance(s.do, FaultAction) for t in s.do.targets]
    after = [parse_target(t) for s in made.steps if isinstance(s.do, FaultAction) for t in s.do.targets]
    assert len(before) == len(after) > 0
    for old, new in zip(before, after, strict=True):
        if old.partition is not None:
            assert plan.partitions[old.partition].assignment == made.partitions[new.partition].assignment


def test_a_step_for_cells_that_are_gone_goes_with_them():
    plan = PLANS["windows"]
    theirs = {"condition": "acked", "count": 1, "cells": {"producer.acks": "1"}}
    waits_only = Step.model_validate({"name": "of acks=1", "after": theirs})
    kills = Step.model_validate(
        {"name": "a kill", "after": theirs, "do": {"kind": "fault", "fault": "kill", "targets": ["leader(0)"]}}
    )
    plan = plan.model_copy(update={"steps": (waits_only, kills, *plan.steps)})
    kept = {cell.cell for cell in plan.cells if cell.axes["producer.acks"] == "all"}
    made = with_cells(plan, kept)
    assert made.steps[0].name == "a kill", "what is done to the cluster is done to all"
    assert made.steps[0].after is None


@given(name=SOME, data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_fewer_steps_never_heal_what_is_not_there(name, data):
    plan = PLANS[name]
    kept = data.draw(st.sets(st.sampled_from(range(len(plan.steps)))))
    made = with_steps(plan, kept)
    names = {step.name for step in made.steps}
    assert all(s.do.step is None or s.do.step in names for s in made.steps if isinstance(s.do, HealAction))
    assert names <= {step.name for step in plan.steps}


def test_what_is_expected_of_a_step_that_is_gone_is_expected_no_more():
    plan = PLANS["message-order"]
    (until,) = {e.before for step in plan.steps for e in step.expect}
    refusals = [step for step in plan.steps if step.expect]
    made = with_steps(plan, [n for n, step in enumerate(plan.steps) if step.name != until])
    assert [step.name for step in made.steps if step.name in {r.name for r in refusals}] == [r.name for r in refusals]
    assert not any(step.expect for step in made.steps)
    assert valid_plan(made) is not None
    assert with_steps(plan, range(len(plan.steps))) == plan


def test_messages_of_a_partition_keep_to_it_and_those_of_one_that_is_gone_are_not_expected():
    plan = PLANS["message-order"]
    made = valid_plan(with_cells(plan, {2}))
    (refusal,) = [step for step in made.steps if step.expect]
    assert refusal.name == "a request of the third cell is refused"
    assert refusal.do.parameters["match"]["partition"] == 0, "it was 2"
    assert_whole(made)


def test_whatever_names_a_partition_or_a_cell_is_numbered_anew_or_gone():
    waits = {"condition": "message", "match": {"api": "Produce", "partition": 1}}
    held = {"do": "hold", "until": {"api": "Produce", "partition": 3}}
    of = {"match": {"api": "Produce", "partition": 1}, "action": held}
    message = {"kind": "fault", "fault": "message", "targets": ["brokers"], "parameters": of}
    steps = [
        {"name": "both", "after": waits, "do": message, "expect": {"what": "message", "did": "wait"}},
        {"name": "a kill", "after": waits, "do": {"kind": "fault", "fault": "kill", "targets": ["leader(1)"]},
         "expect": [{"what": "message", "did": "wait"}, {"what": "leader", "of": 1, "moved": True},
                    {"what": "isr", "partition": 3, "at_most": 2}, {"what": "markers", "partition": 1},
                    {"what": "sends", "outcome": "failed", "cells": {"producer.acks": "1"}},
                    {"what": "controller", "moved": True}]},
        {"name": "healed", "do": {"kind": "heal", "step": "both"}},
    ]  # fmt: skip
    axes = {"producer.acks": ["0", "1"], "producer.max_in_flight": [1, 2]}
    trial = {"name": "x", "title": "t", "topics": {"partitions": 1}, "axes": axes, "steps": steps}
    plan = make_plan(parse_trial(trial, source="x"), seed=1)
    assert [cell.partitions for cell in plan.cells] == [(0,), (1,), (2,), (3,)]

    both, kill, healed = with_cells(plan, {1, 3}).steps
    assert both.after.match.partition == 0, "it was 1"
    assert (both.do.parameters["match"]["partition"], both.do.parameters["action"]["until"]["partition"]) == (0, 1)
    assert (kill.expect[1].of, kill.expect[2].partition, kill.expect[3].partition) == (0, 1, 0)
    assert healed.do.step == "both"

    (kill,) = with_cells(plan, {0, 3}).steps
    assert kill.after is None, "no message of the second cell passes any more"
    assert not {"message", "markers"} & {e.what for e in kill.expect}
    assert "controller" in {e.what for e in kill.expect}
    assert len(with_cells(plan, {1}).steps) == 2, "the message that ends the wait is gone, and the healing with it"


@given(name=SOME, data=st.data())
@settings(max_examples=40, deadline=None)
def test_spare_clients_leave_whoever_writes_each_partition_and_the_audit(name, data):
    plan = PLANS[name]
    spare = spare_clients(plan)
    made = without_clients(plan, data.draw(st.sets(st.sampled_from(spare))) if spare else set())
    for role in ("producer", "transactor", "audit", "sentinel", "member"):
        before = {p for c in plan.clients if c.role == role for p in c.partitions}
        assert {p for c in made.clients if c.role == role for p in c.partitions} == before
    assert [client.client for client in made.clients] == list(range(len(made.clients)))


@given(name=SOME)
@settings(deadline=None)
def test_waiting_is_halved_until_there_is_little_left(name):
    plan = PLANS[name]
    for _ in range(12):
        if not (numbers := steps_to_halve(plan)):
            break
        before = size_in_words(plan)["seconds of waiting"]
        plan = with_half_waits(plan, numbers)
        assert size_in_words(plan)["seconds of waiting"] < before
    assert not steps_to_halve(plan)
    assert all(s.after.seconds < 0.5 for s in plan.steps if isinstance(s.after, Elapsed))


# --- the search -----------------------------------------------------------------------------------------------------


def test_the_search_ends_at_what_the_failure_needs():
    plan = PLANS["smoke"]
    kill = next(s.name for s in plan.steps if isinstance(s.do, FaultAction) and s.do.fault == "kill")
    target = next(c.cell for c in plan.cells if c.axes["producer.acks"] == "all")
    name = plan.cells[target].name

    def needs(candidate, _what):
        assert_whole(candidate)
        return name in [c.name for c in candidate.cells] and kill in [s.name for s in candidate.steps]

    *_, found = shrink(plan, needs, [target])
    assert [cell.name for cell in found.cells] == [name]
    assert [step.name for step in found.steps] == [kill]
    assert not spare_clients(found)
    assert not steps_to_halve(found)


def test_where_one_cell_is_not_enough_those_that_are_needed_stay():
    plan = PLANS["smoke"]
    needed = {plan.cells[2].name, plan.cells[-1].name}

    def needs(candidate, _what):
        return needed <= {c.name for c in candidate.cells}

    *_, found = shrink(plan, needs, [2])
    assert {c.name for c in found.cells} == needed
    assert found.steps == ()


# --- trying ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path):
    made = ShrinkDirectory(tmp_path / "shrink")
    made.begin(BegunShrink(run="smoke-1", wanted=WANTED, duration_s=100), PLANS["smoke"])
    return made


def verdict(outcome="violated", *, effective=True, axes=None):
    lost = CellAnomaly(anomaly="lost", outcome=outcome, verdict=Verdict.VIOLATED)
    cell = CellVerdict(
        cell=0, name="c", workload="log", axes=axes or WANTED.axes, verdict=Verdict.VIOLATED, anomalies={"lost": lost}
    )
    fault = FaultShown(step="s", fault="kill", nodes=(), begin_s=0, end_s=1, effective=effective)
    return TrialVerdict(
        verdict=Verdict.VIOLATED, sentence="", trial="t", title="", seed=1, cells=(cell,), faults=(fault,)
    )


class Machine(TrialEngine):
    """Gives the verdicts it is asked to, one for each run; None = none."""

    def __init__(self, directory, verdicts, took_s=1.0):
        super().__init__(directory, FakeClock(), StopRequest(), (), attempts=directory.attempts())
        self.verdicts, self.took_s, self.runs = list(verdicts), took_s, 0

    def run(self, job, look=None):
        assert parse_plan(Path(job.trial).read_text(), source="candidate")
        judged = self.verdicts[self.runs]
        self.runs += 1
        run = self.directory.runs / f"run-{self.runs:03d}"
        run.mkdir()
        over = {"exit_code": 255 if judged is None else 1, "verdict": judged and judged.verdict}
        hit = judged is not None and look(judged)
        done = TrialAttempt(job=job, run=run.name, began_s=0, took_s=self.took_s, hit=hit, **over)
        self.directory.append(done)
        self.attempts.append(done)
        return done


def test_the_same_anomaly_counts_only_in_the_same_class_of_cell_with_its_fault_effective():
    assert comes_back(verdict(), WANTED)
    assert not comes_back(verdict("permitted"), WANTED)
    assert not comes_back(verdict(effective=False), WANTED)
    assert not comes_back(verdict(axes={"producer.acks": "1"}), WANTED)
    assert comes_back(verdict(effective=None), WANTED), "whether it had its effect is not known, the violation is"


def test_the_original_is_run_five_times_and_candidates_as_often_as_that_asks_for(directory):
    machine = Machine(
        directory, [verdict(), verdict("held"), verdict(), verdict("held"), verdict("held"), *[verdict("held")] * 30]
    )
    trials = Trials(directory, WANTED, machine, 100)
    assert trials.measure(PLANS["smoke"], "original") == Chance(hits=2, runs=RUNS_MIN)
    trials.probability = 2 / 5
    assert not trials.still_fails(PLANS["windows"], "less")
    assert machine.runs == RUNS_MIN + tries_needed(2 / 5)


def test_a_candidate_that_fails_is_kept_with_its_run_and_others_are_removed(directory):
    machine = Machine(directory, [verdict("held"), verdict()])
    trials = Trials(directory, WANTED, machine, 100, probability=0.5)
    assert trials.still_fails(PLANS["windows"], "less")
    assert [p.name for p in directory.runs.iterdir()] == ["run-002"]
    assert parse_plan(directory.smallest.read_text(), source="smallest") == PLANS["windows"]


def test_what_was_tried_is_not_tried_again_after_an_interruption(directory):
    first = Machine(directory, [verdict(), verdict("held"), verdict()])
    Trials(directory, WANTED, first, 100, probability=1.0).still_fails(PLANS["windows"], "a")
    Trials(directory, WANTED, first, 100, probability=1.0).still_fails(PLANS["mix"], "b")
    again = Machine(directory, [verdict("held")])
    trials = Trials(directory, WANTED, again, 100, probability=1.0)
    assert trials.still_fails(PLANS["windows"], "a")
    assert not trials.still_fails(PLANS["mix"], "b")
    assert again.runs == 0
    with (directory.path / "entries.jsonl").open("a") as file:
        file.write('{"job": "torn')
    assert len(directory.attempts()) == 2


def test_runs_without_a_verdict_are_no_runs_and_three_in_a_row_end_it(directory):
    machine = Machine(directory, [None, verdict(), None, None, None])
    trials = Trials(directory, WANTED, machine, 100, probability=1.0)
    assert trials.still_fails(PLANS["windows"], "less")
    with pytest.raises(HarnessFailed, match=r"3 runs of .* in a row .* --resume"):
        trials.still_fails(PLANS["mix"], "less")


def test_no_run_begins_when_the_time_is_up_but_the_result_is_measured(directory):
    machine = Machine(directory, [verdict()] * 10, took_s=60)
    trials = Trials(directory, WANTED, machine, 100, probability=1.0)
    assert trials.still_fails(PLANS["windows"], "a")
    assert trials.still_fails(PLANS["mix"], "b")
    with pytest.raises(TimeIsUp):
        trials.still_fails(PLANS["safe"], "c")
    assert trials.measure(PLANS["mix"], "result", until_time=False).runs == RUNS_MIN


def test_plans_that_ask_for_the_same_have_one_key():
    plan = PLANS["smoke"]
    assert key_of(plan) == key_of(plan.model_copy(update={"title": "another", "replays": "x"}))
    assert key_of(plan) != key_of(plan.model_copy(update={"settle_s": 1.25}))


@pytest.mark.parametrize("name", sorted(known_trials()))
def test_every_trial_can_lose_all_cells_but_one_or_says_that_it_cannot(name):
    plan = make_plan(load_trial(name), seed=1)
    for cell in plan.cells[:2]:
        made = valid_plan(with_cells(plan, {cell.cell}))
        if made is not None:
            assert_whole(made)


# --- the command ----------------------------------------------------------------------------------------------------


def test_a_run_that_was_not_violated_cannot_be_shrunk(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.create()
    run.plan.write_text(PLANS["smoke"].model_dump_json())
    with pytest.raises(BadInput, match="has no verdict"):
        wanted_violation(run, None, None)


def test_there_must_be_a_run_or_something_to_go_on_with(tmp_path, monkeypatch):
    from prozess.campaigns.shrink import ShrinkRequest, carry_out

    asked = ShrinkRequest(None, None, None, "1h", tmp_path, None, "auto")
    with pytest.raises(BadInput, match="Give the directory of a violated run"):
        carry_out(asked)
    with pytest.raises(BadInput, match="holds no shrink"):
        carry_out(replace(asked, resume=tmp_path))
