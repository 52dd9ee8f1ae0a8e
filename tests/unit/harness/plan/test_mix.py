"""Mixes, and lists of faults that strike once each: the same seed gives the same steps; nothing overlaps that must not, and
all is healed in the end."""

import random
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prozess.app.run.outside_sandbox import _why_not, lacking_faults
from prozess.harness.config.impairments import Capability
from prozess.harness.errors import BadInput, UnsupportedFault
from prozess.harness.plan import planning
from prozess.harness.plan.planning import draw_strikes, make_plan
from prozess.harness.plan.schedule import FaultAction, HealAction, IsrIs, Mix, MixFault
from prozess.harness.plan.trial_files import parse_trial

KILL = {"fault": "kill", "targets": ["leader(0)"], "lasts_s": [1, 4]}
PAUSE = {"fault": "pause", "one_of": ["leader(0)", "followers(0)"], "lasts_s": [0.5, 9]}
CUT = {
    "fault": "partition",
    "targets": ["leader(0)"],
    "parameters": {"others": {"one_of": ["all", "brokers"]}},
    "alone": True,
}
ROLL = {
    "fault": "rolling-restart",
    "targets": ["brokers"],
    "lasts_s": [0, 0],
    "parameters": {"away_s": {"between": [0, 2]}},
}


def trial(*faults, **more):
    mix = {"kind": "mix", "length_s": 60, "faults": list(faults) or [KILL, PAUSE, CUT, ROLL]} | more
    steps = [
        {"name": "before", "after": {"condition": "elapsed", "seconds": 1}},
        {"name": "chaos", "do": mix},
        {"name": "after", "after": {"condition": "acked", "count": 5}},
    ]
    return parse_trial({"name": "x", "title": "", "topics": {"partitions": 1}, "steps": steps}, source="x")


def plan(*faults, seed=1, lacking=None, **more):
    return make_plan(trial(*faults, **more), seed=seed, lacking=lacking)


MIXES = st.fixed_dictionaries(
    {
        "length_s": st.floats(1, 200),
        "quiet_s": st.tuples(st.floats(0, 5), st.floats(5, 9)),
        "overlap": st.integers(1, 3),
    }
)
FAULTS = st.lists(st.sampled_from([KILL, PAUSE, CUT, ROLL]), min_size=1, max_size=4)
SEEDS = st.integers(0, 2**31)


@settings(deadline=None)
@given(given_=MIXES, faults=FAULTS, seed=SEEDS)
def test_the_same_trial_and_seed_give_the_same_schedule(given_, faults, seed):
    assert plan(*faults, seed=seed, **given_) == plan(*faults, seed=seed, **given_)


@settings(deadline=None)
@given(given_=MIXES, faults=FAULTS, seed=SEEDS)
@example(given_={"length_s": 4.0, "quiet_s": (0, 5), "overlap": 2}, faults=[PAUSE, KILL], seed=3)
def test_no_more_than_allowed_overlap_alone_is_alone_and_all_is_over_in_time(given_, faults, seed):
    mix = Mix.model_validate({"kind": "mix", "faults": faults} | given_)
    strikes = draw_strikes(mix, mix.faults, random.Random(seed))
    assert [s.begin_s for s in strikes] == sorted(s.begin_s for s in strikes)
    for strike in strikes:
        together = [s for s in strikes if s.begin_s < strike.end_s - 0.002 and strike.begin_s < s.end_s - 0.002]
        begun = [s for s in together if s.begin_s <= strike.begin_s]
        assert len(begun) <= mix.overlap
        if strike.fault.alone:
            assert together == [strike]
        low, high = strike.fault.lasts_s
        assert low - 0.002 <= strike.end_s - strike.begin_s <= high + 0.002
    if len(strikes) > 1:
        assert max(s.end_s for s in strikes) <= mix.length_s + 0.001
    for before, after in pairwise(strikes):
        assert after.begin_s - before.begin_s >= mix.quiet_s[0] - 0.002


@settings(deadline=None)
@given(given_=MIXES, faults=FAULTS, seed=SEEDS)
def test_every_strike_is_healed_and_whole_isrs_are_awaited_whenever_nothing_is_broken(given_, faults, seed):
    steps = plan(*faults, seed=seed, **given_).steps
    open_ = set()
    for step, after in pairwise(steps):
        if isinstance(step.do, FaultAction):
            assert step.may_miss
            assert not isinstance(step.do.parameters.get("others"), dict), "every parameter is drawn"
            open_.add(step.name)
        elif isinstance(step.do, HealAction):
            open_.remove(step.do.step)
            assert isinstance(after.after, IsrIs) is (not open_)
    assert not open_
    assert [step.name for step in (steps[0], steps[-1])] == ["before", "after"]
    assert len({step.name for step in steps}) == len(steps)


@given(seed=SEEDS)
def test_without_overlap_it_is_quiet_for_a_while_between_two_faults(seed):
    mix = Mix.model_validate({"kind": "mix", "faults": [PAUSE], "quiet_s": [2, 3], "length_s": 300})
    strikes = draw_strikes(mix, mix.faults, random.Random(seed))
    assert len(strikes) > 10
    for before, after in pairwise(strikes):
        assert after.begin_s - before.end_s >= 2 - 0.002 or after.begin_s - before.begin_s >= 2 - 0.002
        assert after.begin_s >= before.end_s


@pytest.mark.parametrize(
    "given_",
    [
        {"length_s": 600_000},
        {"length_s": 60, "quiet_s": [0, 0], "overlap": 2**40},
        {"length_s": 600_000, "quiet_s": [0, 0]},
    ],
)
def test_a_mix_of_more_faults_than_can_be_meant_is_refused_instead_of_planned_for_ever(given_, monkeypatch):
    monkeypatch.setattr(planning, "STRIKES_MAX", 1_000)
    mix = Mix.model_validate({"kind": "mix", "faults": [PAUSE, KILL]} | given_)
    with pytest.raises(
        BadInput, match=r"comes to more than 1,000 faults\. Give a shorter length_s, or a longer quiet_s"
    ):
        draw_strikes(mix, mix.faults, random.Random(1))


def test_weights_decide_how_often_a_fault_is_drawn():
    steps = plan(KILL | {"weight": 50}, PAUSE, length_s=600).steps
    named = [step.do.fault for step in steps if isinstance(step.do, FaultAction)]
    assert named.count("kill") > 5 * named.count("pause")


LABELS = {
    "kill": "kill of leader(0)",
    "pause": "pause of leader(0) or followers(0)",
    "partition": "partition of leader(0): others={'one_of': ['all', 'brokers']}",
}


def test_what_the_backend_cannot_do_is_left_out_and_said():
    lacking = {LABELS["partition"]: "no namespaces here", LABELS["pause"]: "nor that", "loss": "is not of this mix"}
    made = plan(lacking=lacking)
    assert {step.do.fault for step in made.steps if isinstance(step.do, FaultAction)} <= {"kill", "rolling-restart"}
    assert made.left_out == {LABELS["pause"]: "nor that", LABELS["partition"]: "no namespaces here"}
    with pytest.raises(UnsupportedFault, match="no namespaces here"):
        plan(CUT, lacking=lacking)


def test_what_this_machine_lacks_is_asked_of_the_backend_itself():
    """Without namespaces there are no cuts; and one controller cannot hand over."""
    move = {"fault": "move-controller", "targets": ["active-controller"]}
    lacking = lacking_faults(trial(KILL, CUT, move), isolation="signals")
    assert lacking.keys() == {LABELS["partition"], "move-controller of active-controller"}
    assert "needs 3 controllers" in lacking["move-controller of active-controller"]
    assert lacking_faults(parse_trial({"name": "x", "title": ""}, source="x"), isolation="signals") == {}


def test_whom_the_variant_does_not_have_is_told_beforehand():
    keeper = {"fault": "kill", "targets": ["zookeeper-leader"]}
    from_keeper = CUT | {"parameters": {"others": "zookeepers"}}
    lacking = plan(KILL, keeper, from_keeper).left_out
    assert 'needs metadata_mode = "zookeeper"' in lacking["kill of zookeeper-leader"]
    assert "no zookeepers" in lacking["partition of leader(0): others=zookeepers"]


def test_what_means_nothing_on_the_variant_is_left_out_and_said():
    move = {"fault": "migrate", "targets": ["brokers"], "parameters": {"stage": {"one_of": ["kraft", "migrating"]}}}
    (why,) = plan(KILL, move).left_out.values()
    assert why.startswith("the cluster is kraft-isolated, and a migration begins with ZooKeeper")


def test_what_a_backend_refuses_of_some_links_only_is_asked_with_every_parameter_that_may_be_drawn():
    refusal_of = lambda fault, parameters: "not so" if parameters["others"] == "brokers" else None  # noqa: E731
    everything = dict.fromkeys(Capability, "somehow")
    cluster = SimpleNamespace(capabilities=everything, lacks={}, nodes=[], refusal_of=refusal_of)
    assert _why_not(MixFault.model_validate(CUT), cluster) == "not so"
    assert _why_not(MixFault.model_validate(CUT | {"parameters": {"others": "all"}}), cluster) is None
    wrong = MixFault.model_validate(CUT | {"parameters": {"others": "nobody"}})
    assert _why_not(wrong, cluster) is None, "what is wrong with parameters is stated when they are drawn"


def listed(*faults, seed=1, lacking=None):
    steps = [{"name": "list", "do": {"kind": "each", "faults": list(faults)}}]
    document = {"name": "x", "title": "", "topics": {"partitions": 1}, "steps": steps}
    return make_plan(parse_trial(document, source="x"), seed=seed, lacking=lacking)


@settings(deadline=None)
@given(faults=st.permutations([KILL, PAUSE, CUT, ROLL]), seed=SEEDS)
def test_of_a_list_each_strikes_once_and_all_is_whole_before_the_next(faults, seed):
    made = listed(*faults, seed=seed)
    begins, *steps = made.steps
    assert begins.do is None
    assert made == listed(*faults, seed=seed)
    assert len(steps) == 3 * len(faults)
    struck = []
    for strike, heal, whole in zip(steps[::3], steps[1::3], steps[2::3], strict=True):
        assert isinstance(strike.do, FaultAction)
        assert not strike.may_miss, "everything must strike"
        assert isinstance(heal.do, HealAction)
        assert heal.do.step == strike.name
        assert isinstance(whole.after, IsrIs)
        struck.append(strike.do.fault)
    assert sorted(struck) == ["kill", "partition", "pause", "rolling-restart"]


def test_the_seed_decides_the_order_of_a_list():
    orders = {tuple(s.do.fault for s in listed(KILL, PAUSE, CUT, seed=n).steps if isinstance(s.do, FaultAction))
              for n in range(40)}  # fmt: skip
    assert len(orders) == 6


def test_of_a_list_too_what_cannot_be_done_here_is_left_out_and_said():
    made = listed(KILL, PAUSE, lacking={LABELS["pause"]: "it cannot"})
    assert [s.do.fault for s in made.steps if isinstance(s.do, FaultAction)] == ["kill"]
    assert made.left_out == {LABELS["pause"]: "it cannot"}
    with pytest.raises(UnsupportedFault, match="it cannot"):
        listed(PAUSE, lacking={LABELS["pause"]: "it cannot"})


def test_a_fault_that_is_twice_in_a_list_is_refused():
    with pytest.raises(BadInput, match="is in the list twice"):
        listed(KILL, PAUSE, KILL)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"fault": "kill"}, "give targets"),
        (KILL | {"one_of": ["leader(0)"]}, "one of the two only"),
        (KILL | {"lasts_s": [4, 1]}, "must not be greater"),
        (KILL | {"targets": ["somebody"]}, "is not a role"),
        (KILL | {"fault": "kil"}, "is not known"),
    ],
)
def test_a_mix_that_cannot_be_is_refused(fault, why):
    with pytest.raises(BadInput, match=why):
        plan(fault)


@pytest.mark.parametrize(
    "value",
    [
        {"between": [1, "x"]},
        {"between": [2, 1]},
        {"between": 3},
        {"between": [1, 2, 3]},
        {"one_of": []},
        {"one_of": "x"},
    ],
)
def test_a_parameter_from_which_nothing_can_be_drawn_is_refused(value):
    with pytest.raises(ValueError, match=r"parameters\.share"):
        MixFault(fault="loss", targets=("brokers",), parameters={"share": value})
