"""Replay: the same plan again; exactly: the nodes and parameters of resolved.json in the place of roles."""

import pytest

from prozess.app.replay import replay_plan, steps_not_struck
from prozess.harness.errors import BadInput
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.run_directory import RunDirectory, write_json

STEPS = [
    {"name": "wait", "after": {"condition": "elapsed", "seconds": {"between": [1, 9]}}},
    {"name": "kill", "do": {"kind": "fault", "fault": "kill", "targets": ["leader(0)", "active-controller"]}},
    {
        "name": "cut",
        "do": {"kind": "fault", "fault": "partition", "targets": ["followers(0)"], "parameters": {"others": "all"}},
    },
    {"name": "crash", "do": {"kind": "fault", "fault": "kill", "targets": ["producers"]}},
    {"name": "elect", "do": {"kind": "fault", "fault": "elect-preferred", "targets": ["partition(0)"]}},
    {"name": "missed", "do": {"kind": "fault", "fault": "pause", "targets": ["leader(0)"]}, "may_miss": True},
    {"name": "over", "do": {"kind": "heal", "step": "missed"}},
]


@pytest.fixture
def recorded(tmp_path):
    """A run whose faults struck, but for the last one; and its plan."""
    run = RunDirectory(tmp_path / "run")
    run.create()
    plan = make_plan(parse_trial({"name": "x", "title": "", "steps": STEPS}, source="x"), seed=7)
    run.plan.write_text(plan.model_dump_json())
    producer = next(client.name for client in plan.clients if client.producer is not None)

    def hit(step, role, nodes, **parameters):
        return {
            "step_number": step,
            "step": STEPS[step]["name"],
            "role": role,
            "nodes": nodes,
            "parameters": parameters,
        }

    cut = {"others": ["broker-1"], "direction": "both"}
    write_json(
        run.resolved,
        [
            hit(1, "leader(0)", ["broker-1"]),
            hit(1, "active-controller", ["controller-3001"]),
            hit(2, "followers(0)", ["broker-2", "broker-3"], **cut),
            hit(2, "others", ["broker-1"], **cut),
            hit(3, "producers", [producer]),
            hit(4, "partition(0)", ["broker-1", "broker-2", "broker-3"], timeout_s=20.0),
        ],
    )
    return run, plan, producer


def test_a_replay_is_the_same_plan_and_says_of_what(recorded):
    run, plan, _ = recorded
    assert replay_plan(run, exact=False) == plan.model_copy(update={"replays": "run"})


def test_an_exact_replay_hits_whoever_was_hit_with_the_parameters_that_were_used(recorded):
    run, plan, producer = recorded
    steps = replay_plan(run, exact=True).steps
    assert steps[0] == plan.steps[0], "what was drawn stays drawn"
    assert steps[1].do.targets == ("node:broker-1", "node:controller-3001")
    assert steps[2].do.targets == ("node:broker-2", "node:broker-3")
    assert steps[2].do.parameters == {"others": ["broker-1"], "direction": "both"}
    assert steps[3].do.targets == (f"client:{producer}",)
    assert steps[4].do.targets == ("partition(0)",), "a partition is what it was"
    assert steps[6] == plan.steps[6]


def test_what_struck_nobody_strikes_nobody_in_an_exact_replay(recorded):
    run, plan, _ = recorded
    exact = replay_plan(run, exact=True)
    assert exact.steps[5].do is None
    assert steps_not_struck(plan, exact) == ["missed"]


def test_an_exact_replay_of_a_run_in_which_no_fault_struck_is_refused(recorded):
    run, *_ = recorded
    run.resolved.unlink()
    with pytest.raises(BadInput, match="without --exact"):
        replay_plan(run, exact=True)


def test_what_is_no_run_of_a_trial_cannot_be_run_again(recorded, tmp_path):
    run, plan, _ = recorded
    run.plan.write_text(plan.model_copy(update={"origin": "jepsen"}).model_dump_json())
    with pytest.raises(BadInput, match="not run again"):
        replay_plan(run, exact=False)
    with pytest.raises(BadInput, match="cannot be read"):
        replay_plan(RunDirectory(tmp_path / "nowhere"), exact=False)
