"""Expectations that could never come true, or never fail, are refused when a trial is planned, in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess import trials
from prozess.harness.errors import BadInput
from prozess.harness.plan.expectations import SendsExpected
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import known_trials, load_trial, parse_trial

WAIT = {"after": {"condition": "elapsed", "seconds": 1}}
OF_MESSAGES = {"after": {"condition": "message", "match": {"api": "Produce"}}}
INSPECT = {"do": {"kind": "inspect"}}


def planned(expect, *, do=None, **more):
    first, second = {"name": "first", **(do or WAIT), "expect": expect}, {"name": "second", **WAIT}
    return make_plan(parse_trial({"name": "x", "title": "t", "steps": [first, second], **more}, source="x"), seed=1)


@pytest.mark.parametrize(
    ("expect", "do", "why"),
    [
        ({"what": "leader", "of": 0}, WAIT, r"give one of node"),
        ({"what": "leader", "of": 99, "moved": True}, WAIT, "the plan has partitions 0…"),
        ({"what": "leader", "of": 0, "node": "broker-9"}, WAIT, "there is no node 'broker-9'; nodes: broker-1"),
        ({"what": "leader", "of": "leader(0)", "moved": True}, WAIT, "neither a partition id nor group-coordinator"),
        (
            {"what": "leader", "of": "group-coordinator(0)", "moved": True},
            WAIT,
            "cell 0 has no group; cells with one: none",
        ),
        ({"what": "leader", "of": 0, "moved": True, "until": "first"}, WAIT, "until = 'first' is no later step"),
        (
            {"what": "leader", "of": 0, "moved": True, "until": "secnd"},
            WAIT,
            "there is no step 'secnd'; did you mean 'second'",
        ),
        ({"what": "isr", "partition": 0}, WAIT, "give one of brokers"),
        ({"what": "controller"}, WAIT, "moved"),
        ({"what": "message", "did": "hold"}, WAIT, "the step is not about messages"),
        ({"what": "message", "did": "held"}, OF_MESSAGES, "'hold'"),
        ({"what": "message", "did": "wait", "after": "third"}, OF_MESSAGES, "there is no step 'third'"),
        (
            {"what": "truncated", "partition": 0, "node": "broker-1"},
            WAIT,
            'give do = { kind = "inspect" } to this step',
        ),
        (
            {"what": "behind", "partition": 99, "node": "broker-1", "ahead": "broker-2"},
            INSPECT,
            "the plan has partitions",
        ),
        ({"what": "sends", "outcome": "failed", "cells": {"producer.acks": "7"}}, WAIT, "no cell matches"),
        (
            {"what": "sends", "outcome": "failed", "at_least": 3, "at_most": 2},
            WAIT,
            "at_least = 3 is more than at_most = 2",
        ),
        ({"what": "sends", "outcome": "failed", "at_least": 0}, WAIT, "at_least = 0 is always so"),
        ({"what": "ends"}, WAIT, "none of these cells has transactions of its own"),
        ({"what": "ends", "took_s": 0}, WAIT, "greater than 0"),
        ({"what": "weather"}, WAIT, "weather"),
    ],
)
def test_an_expectation_that_means_nothing_is_refused_in_words(expect, do, why):
    with pytest.raises(BadInput, match=why):
        planned(expect, do=do)


def test_what_is_compacted_cannot_be_told_from_what_was_truncated():
    expect = {"what": "truncated", "partition": 0, "node": "broker-1"}
    with pytest.raises(BadInput, match="partition 0 is compacted"):
        planned(expect, do=INSPECT, workload="compaction", base={"topic.cleanup_policy": "compact"})


def test_of_somebody_elses_cluster_only_messages_and_sends_are_known():
    attached = {"backend": "attach", "attach": {"bootstrap_servers": ["h:9092"]}}
    with pytest.raises(BadInput, match="the controllers' own log, which cannot be read"):
        planned({"what": "leader", "of": 0, "moved": True}, **attached)
    with pytest.raises(BadInput, match="the controllers' own log, which cannot be read"):
        planned({"what": "controller", "moved": True}, **attached)
    with pytest.raises(BadInput, match="the replicas' own files, which cannot be read"):
        planned({"what": "markers", "partition": 0}, **attached)
    assert planned(
        [{"what": "message", "did": "wait"}, {"what": "sends", "outcome": "failed"}], do=OF_MESSAGES, **attached
    )


def test_a_mix_has_no_time_of_its_own_to_expect_something_in():
    mix = {"kind": "mix", "length_s": 5, "faults": [{"fault": "kill", "targets": ["leader(0)"]}]}
    with pytest.raises(BadInput, match=r"expect: a step of kind .mix. becomes many steps"):
        planned({"what": "sends", "outcome": "failed"}, do={"do": mix})


def test_a_trial_in_python_says_the_same():
    step = trials.step("first", after=trials.elapsed(seconds=1), expect=[trials.expect_leader(of=0, moved=True)])
    assert step.expect == planned({"what": "leader", "of": 0, "moved": True}).steps[0].expect
    with pytest.raises(BadInput, match="give one of node"):
        trials.expect_leader(of=0)


@given(st.integers(0, 9), st.none() | st.integers(0, 9))
def test_bounds_say_what_their_words_say(least, most):
    if (most is not None and least > most) or (least == 0 and most is None):
        return
    one = SendsExpected(outcome="failed", at_least=least, at_most=most)
    assert one.bounds == (least, most)
    told = one.number_in_words
    assert str(least) in told or least == 0
    assert most is None or str(most) in told or told == "none"


@pytest.mark.parametrize("name", [name for name in known_trials() if name.startswith(("message-", "method-"))])
def test_each_shipped_trial_about_a_message_or_a_method_says_what_must_have_come_of_it(name):
    trial = load_trial(name)
    assert any(step.expect for step in trial.steps)
