"""Schedules: seeds, targets, round trips."""

import random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from prozess.harness.errors import BadInput
from prozess.harness.plan import schedule
from prozess.harness.plan.schedule import (
    Between,
    ClientAction,
    Elapsed,
    FaultAction,
    OfCells,
    Step,
    draw,
    parse_target,
)
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.values import Frozen


def waiting(low: float, high: float) -> Step:
    return Step(name="wait", after=Elapsed(condition="elapsed", seconds=Between(between=(low, high))))


@given(st.integers(), st.floats(0, 50), st.floats(0, 50))
def test_the_same_seed_draws_the_same_schedule_within_the_bounds(seed, first, second):
    low, high = sorted((first, second))
    steps = (waiting(low, high), waiting(low, high))
    drawn = draw(steps, random.Random(seed))
    assert drawn == draw(steps, random.Random(seed))
    for step in drawn:
        assert low - 1e-3 <= step.after.seconds <= high + 1e-3


def test_a_step_with_nothing_to_draw_stays_as_it_is():
    step = Step(name="now")
    assert draw((step,), random.Random(1)) == (step,)


def test_bounds_in_the_wrong_order_are_refused():
    with pytest.raises(ValidationError, match="must not be greater"):
        Between(between=(2, 1))


@pytest.mark.parametrize(
    ("text", "role", "partition", "node"),
    [
        ("leader(0)", "leader", 0, None),
        ("followers(12)", "followers", 12, None),
        ("replicas(3)", "replicas", 3, None),
        ("active-controller", "active-controller", None, None),
        ("zookeeper-leader", "zookeeper-leader", None, None),
        ("node:broker-2", "node", None, "broker-2"),
        ("rack(east-1)", "rack", None, None),
        ("minority(controllers)", "minority", None, None),
        ("majority(brokers)", "majority", None, None),
    ],
)
def test_targets_are_roles(text, role, partition, node):
    target = parse_target(text)
    assert (target.role, target.partition, target.node) == (role, partition, node)


@pytest.mark.parametrize(
    "text", ["leader", "leader(-1)", "broker-2", "followers(x)", "leader(0) ", "rack()", "minority", "majority(x)", ""]
)
def test_anything_else_is_refused_with_the_rule(text):
    with pytest.raises(ValueError, match="is not a role; give leader"):
        parse_target(text)


@pytest.mark.parametrize("name", ["member(0,*)\x00", "member(x)", "member("])
def test_a_client_that_is_named_as_no_role_can_be_is_refused_with_the_rule(name):
    with pytest.raises(ValidationError, match="is not a role; give leader"):
        ClientAction(kind="client", do="stop", client=name)


@pytest.mark.parametrize(
    ("do", "says"),
    [
        ({"do": "stop", "seconds": 3}, "do.seconds is not a known key"),
        ({"do": "stall"}, "do.seconds is missing; give it"),
        ({"do": "stall", "seconds": 0}, "do.seconds = 0: Input should be greater than 0"),
        ({"do": "pause"}, "'pause' .* does not match any of the expected tags: 'stop', 'start', 'stall'"),
    ],
)
def test_only_a_stall_lasts_for_a_time_and_it_needs_one(do, says):
    document = {"name": "x", "title": "t", "steps": [{"name": "a", "do": {"kind": "client", "client": "b"} | do}]}
    with pytest.raises(BadInput, match=says):
        parse_trial(document, source="x.toml")


def test_a_fault_without_targets_is_refused():
    with pytest.raises(ValidationError):
        FaultAction(kind="fault", fault="kill", targets=())


def test_whatever_selects_cells_is_known_to_so_that_its_selector_is_checked():
    kinds = [kind for kind in vars(schedule).values() if isinstance(kind, type) and issubclass(kind, Frozen)]
    assert {kind for kind in kinds if "cells" in kind.model_fields} == set(get_args(OfCells))
