"""What is predicted is provoked: schedules for weaknesses, which of them a trial is given, and what is stated in the end."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.errors import BadInput
from prozess.harness.exit_codes import ExitCode
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.rules import RuleEffect
from prozess.harness.impact.cost import WindowShown
from prozess.harness.plan.schedule import Elapsed, FaultAction, HealAction, IsrIs, TakeOver
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import MISSING, NONE, Outcome
from prozess.harness.verdict import (
    AnomalyOutcome,
    CellAnomaly,
    CellVerdict,
    FaultShown,
    TrialVerdict,
    Verdict,
    WitnessShown,
)
from prozess.validation.availability import CONCERNS, RULES
from prozess.validation.comparison import (
    DYING_S,
    AnomalySummary,
    Comparison,
    Observed,
    WeaknessAttempt,
    WeaknessProvocation,
    WeaknessState,
    attempt_of,
    closing_line,
    names_of,
    observe,
    steps_of,
    with_loss,
)
from prozess.validation.prediction import expected_faults
from prozess.validation.running import lacking, steps_done
from prozess.validation.schedules import (
    INTERNAL_DOWN,
    SCHEDULES,
    ScheduleInputs,
    bound_s,
    schedule_of,
    why_none,
)
from prozess.validation.stalled_commits import Standstill, of_group, of_transactions
from prozess.validation.terminal import show_comparison, to_json
from tests.support.predictions import SAFE_TOPIC, predicted

UNCLEAN_TOPIC = SAFE_TOPIC | {"unclean.leader.election.enable": "true"}
CONFIGURATIONS = {
    "acks=1, librdkafka, a group": {"producer": {"acks": "1"}, "consumer": {}, "client": "librdkafka"},
    "acks=0, java, a group": {"producer": {"acks": "0"}, "consumer": {}, "client": "java"},
    "static members": {"producer": {"acks": "all"}, "consumer": {"group.instance.id": "a"}, "client": "librdkafka"},
    "a group alone": {"consumer": {"auto.offset.reset": "latest"}, "client": "java"},
    "transactions": {"producer": {"transactional.id": "a"}, "client": "librdkafka"},
    "topic and brokers alone": {},
    "idempotent librdkafka": {"producer": {"enable.idempotence": "true"}, "client": "librdkafka"},
}
TOPICS = {
    "three copies": UNCLEAN_TOPIC,
    "two copies": UNCLEAN_TOPIC | {"replication.factor": "2", "min.insync.replicas": "1"},
    "one copy": UNCLEAN_TOPIC | {"replication.factor": "1", "min.insync.replicas": "1"},
    "compacted": UNCLEAN_TOPIC | {"cleanup.policy": "compact"},
}
MANY = predicted(**CONFIGURATIONS["acks=1, librdkafka, a group"], topic=UNCLEAN_TOPIC)
PROVOCATION = WeaknessProvocation.of(MANY)


@pytest.mark.parametrize(
    "rule", [rule.id for g in TABLE.values() for rule in g.rules if rule.change and rule.effect is RuleEffect.PERMITTED]
)
def test_every_rule_that_can_be_predicted_has_a_schedule_or_a_reason_why_not(rule):
    assert (schedule_of(rule) is not None) != bool(why_none(rule))


def test_a_rule_that_nobody_knows_is_not_tried_and_says_so():
    provocation = replace(PROVOCATION, weaknesses=(("stalled/invented", "stalled"),))
    (outcome,) = provocation.outcome([WeaknessAttempt()])
    assert (outcome.state, outcome.sentence()) == (
        WeaknessState.NOT_TRIED,
        "not tried, because there is no schedule for it",
    )


@pytest.mark.parametrize("backend", ["local", "compose"])
@pytest.mark.parametrize("topic", TOPICS.values(), ids=TOPICS)
@pytest.mark.parametrize("configuration", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_the_plan_with_every_schedule_is_valid_and_bounded_in_time(configuration, topic, backend):
    prediction = predicted(**configuration, topic=topic)
    provocation = WeaknessProvocation.of(prediction, CONCERNS)
    schedules = provocation.wanted(())
    assert bool(schedules) == any(provocation.why_not(rule) is None for rule, _ in provocation.weaknesses)
    made = steps_of(schedules, provocation.inputs, prediction.parts.faults, 10_000)
    plan = prediction.parts.plan(steps=made.steps, backend=backend)
    assert len(plan.steps) == len(made.steps)
    for schedule in schedules:
        steps = schedule.steps(provocation.inputs)
        assert schedule.lasts_s(provocation.inputs) < bound_s(steps) <= 600, schedule.name


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_a_schedule_heals_what_it_broke_and_breaks_nothing_that_the_prediction_leaves_out(schedule):
    here = ScheduleInputs(
        replicas=3,
        brokers=3,
        combined=False,
        broker_session_s=9,
        groups=(1,),
        group_session_s=45,
        transactions=(0,),
        fatal=True,
    )
    open_: set[str] = set()
    for step in schedule.steps(here):
        assert step.name.startswith(f"{schedule.name}: ")
        if isinstance(step.do, FaultAction):
            assert step.do.fault in expected_faults()
            if step.do.fault not in ("elect-preferred", "restart-clients"):  # over at once
                open_.add(step.name)
        if isinstance(step.do, HealAction):
            open_ -= {step.do.step} if step.do.step else set(open_)
    assert not open_
    broken = {target for s in schedule.steps(here) if isinstance(s.do, FaultAction) for target in s.do.targets}
    if any("member" not in target and target != "producers" for target in broken):
        assert any(isinstance(step.after, IsrIs) for step in schedule.steps(here))


def test_an_unclean_election_lets_the_first_that_died_return_alone():
    names = [step.name for step in SCHEDULES["unclean"].steps(PROVOCATION.inputs)]
    assert [name.removeprefix("unclean: ") for name in names] == [
        "a follower dies",
        "every in-sync replica dies",
        "the replica that died first returns",
        "the others return",
        "every replica is in sync",
    ]
    by_name = {step.name: step for step in SCHEDULES["unclean"].steps(PROVOCATION.inputs)}
    died, away = by_name["unclean: a follower dies"], by_name["unclean: every in-sync replica dies"]
    assert died.do.targets == ("follower(0, 2)",)
    assert set(away.do.targets) == {"leader(0)", "in-sync-followers(0)"}
    assert isinstance(away.after, Elapsed)
    assert away.after.seconds > PROVOCATION.inputs.broker_session_s, "else it would be in the ISR still"


@pytest.mark.parametrize(
    ("replicas", "brokers", "possible"), [(2, 3, True), (3, 3, False), (3, 5, True), (1, 3, False)]
)
def test_brokers_that_are_controllers_can_only_die_while_a_majority_is_left(replicas, brokers, possible):
    here = ScheduleInputs(replicas=replicas, brokers=brokers, combined=True, broker_session_s=9)
    why = SCHEDULES["unclean"].refusal(here)
    assert (why is None) == possible


@pytest.mark.parametrize(("interval_s", "name"), [(5.0, "uncommitted"), (None, "unfinished")])
def test_what_is_not_committed_is_repeated_between_commits_or_amid_what_was_given(interval_s, name):
    here = replace(PROVOCATION.inputs, commit_interval_s=interval_s)
    schedule = schedule_of("reprocessed/uncommitted", here)
    assert schedule is SCHEDULES[name]
    assert schedule.refusal(here) is None


# --- which a trial is given


def test_what_was_not_shown_is_tried_again_and_what_was_tried_least_first():
    assert PROVOCATION.wanted(())[0].name == "unclean", "it may show most"
    first = WeaknessAttempt(tried=frozenset({"unclean", "unreplicated"}), counts={"lost/acks-1": 3})
    again = [schedule.name for schedule in PROVOCATION.wanted([first])]
    assert set(again[-2:]) == {"unclean", "unreplicated"}, "time-travel/acks-1 was not shown yet"
    shown = WeaknessAttempt(counts=dict.fromkeys((rule for rule, _ in PROVOCATION.weaknesses), 1))
    assert PROVOCATION.wanted([first, shown]) == ()


@given(st.floats(min_value=-100, max_value=2000), st.integers(min_value=0, max_value=3))
def test_schedules_fit_into_the_time_and_the_first_trial_has_one_at_least(seconds, number):
    attempts = [WeaknessAttempt(tried=frozenset(s.name for s in PROVOCATION.wanted(())[:number]))] if number else []
    chosen = PROVOCATION.chosen(attempts, seconds)
    lasts_s = sum(schedule.lasts_s(PROVOCATION.inputs) for schedule in chosen)
    assert lasts_s <= max(seconds, 0) or (len(chosen) == 1 and not attempts)
    assert chosen or attempts


@given(st.floats(min_value=0, max_value=400))
def test_a_trial_has_its_schedules_first_undisturbed_and_then_whole_faults_alone(seconds):
    chosen = PROVOCATION.chosen((), seconds)
    made = steps_of(chosen, PROVOCATION.inputs, MANY.parts.faults, seconds)
    names = [step.name for step in made.steps]
    assert len(set(names)) == len(names)
    of_schedules = [step.name for schedule in chosen for step in schedule.steps(PROVOCATION.inputs)]
    assert names[: len(of_schedules)] == of_schedules
    blocks, closing = MANY.parts.faults
    assert made.faults == tuple(block[0].name for block in blocks[: len(made.faults)])
    rest = [step.name for block in blocks[: len(made.faults)] for step in block] + [step.name for step in closing]
    assert names[len(of_schedules) :] == rest


def test_without_a_weakness_the_trial_is_every_fault():
    safe = predicted({"acks": "all"})
    provocation = WeaknessProvocation.of(safe)
    assert provocation.wanted(()) == ()
    made = steps_of((), provocation.inputs, safe.parts.faults, 10_000)
    assert made.steps == safe.parts.every_step
    assert len(made.faults) == len(safe.parts.faults[0]) > 5


def test_what_makes_the_control_lose_comes_first_and_once():
    here = PROVOCATION.inputs
    faults = with_loss(MANY.parts.faults, here)
    loses = SCHEDULES["unreplicated"].steps(here)
    for schedules in ((), (SCHEDULES["unreplicated"],), (SCHEDULES["moves"],)):
        steps = steps_of(schedules, here, faults, 10_000).steps
        assert [step for step in steps if step in loses] == list(loses)
    assert names_of(faults)[0] == loses[0].name
    one_copy = replace(here, replicas=1)
    assert with_loss(MANY.parts.faults, one_copy) == MANY.parts.faults


def test_what_is_no_fault_is_not_counted_as_one():
    transactions = predicted(**CONFIGURATIONS["transactions"]).parts.faults
    taken_over = [block[0].name for block in transactions[0] if isinstance(block[0].do, TakeOver)]
    assert taken_over
    assert not set(taken_over) & set(names_of(transactions))


# --- what became of them


def made_of(*names):
    return steps_of([SCHEDULES[name] for name in names], PROVOCATION.inputs, MANY.parts.faults, 0)


def verdict_of(made, *, count=0, effective=True, rule="lost/acks-1"):
    witness = WitnessShown(
        partition=0, topic="cell-000", number=2, client=1, sequence=17, log_offset=40, effect="permitted", rule=rule
    )
    lost = CellAnomaly(
        anomaly="lost",
        outcome=AnomalyOutcome.PERMITTED if count else AnomalyOutcome.POSSIBLE,
        verdict=Verdict.HELD,
        permitted=count,
        count=count,
        by_rule={rule: count} if count else {},
        witnesses=(witness,) if count else (),
    )
    cells = [
        CellVerdict(cell=n, name="a", workload="log", axes={}, verdict=Verdict.HELD, anomalies={"lost": lost})
        for n in (0, 7)
    ]
    faults = [
        FaultShown(step=step.name, fault=step.do.fault, nodes=(), begin_s=0, end_s=1, effective=effective)
        for step in made.steps
        if isinstance(step.do, FaultAction)
    ]
    return TrialVerdict(
        verdict=Verdict.HELD, sentence="", trial="validate", title="", seed=1, cells=tuple(cells), faults=tuple(faults)
    )


def outcome_of(rule, *attempts):
    return next(of for of in PROVOCATION.outcome(attempts) if of.rule == rule)


def tried(made, verdict, done=None):
    done = {step.name: "done" for step in made.steps} if done is None else done
    return attempt_of(verdict, made, PROVOCATION.inputs, cells={0}, done=done, report="runs/a/report.html")


def test_a_weakness_that_is_seen_in_the_users_cells_is_shown_with_a_witness_and_the_report():
    made = made_of("unreplicated")
    shown = outcome_of("lost/acks-1", tried(made, verdict_of(made, count=3)))
    assert (shown.state, shown.count, shown.tries) == (WeaknessState.SHOWN, 3, 1)
    assert shown.sentence() == (
        "shown, 3 times, such as record 17 of client 1 in cell-000-2 at offset 40; runs/a/report.html"
    )


def test_the_controls_losses_show_nothing_of_the_users():
    made = made_of("unreplicated")
    verdict = verdict_of(made, count=3)
    attempt = attempt_of(
        verdict, made, PROVOCATION.inputs, cells={5}, done={s.name: "done" for s in made.steps}, report=""
    )
    assert outcome_of("lost/acks-1", attempt).sentence() == "not shown, although tried 1 time"


def test_tries_are_counted_and_only_whole_ones_whose_faults_were_seen_to_work():
    made = made_of("unreplicated")
    whole = tried(made, verdict_of(made))
    idle = tried(made, verdict_of(made, effective=None))
    assert outcome_of("lost/acks-1", whole, whole, idle).sentence() == "not shown, although tried 2 times"
    assert outcome_of("lost/acks-1", idle).sentence() == (
        "not tried, because its step 'unreplicated: its followers stand still' was not seen to take effect; to try it alone: "
        "--provoke lost/acks-1 --minutes 2"
    )


@pytest.mark.parametrize(
    ("became", "said"),
    [
        (
            {"unreplicated: a leader dies": "failed: nobody leads"},
            "its step 'unreplicated: a leader dies' failed: nobody",
        ),
        (None, "the trial did not come to its step 'unreplicated: its followers stand still'"),
    ],
)
def test_a_schedule_that_was_not_carried_out_is_no_try(became, said):
    made = made_of("unreplicated")
    done = {} if became is None else {step.name: "done" for step in made.steps} | became
    outcome = outcome_of("lost/acks-1", tried(made, verdict_of(made), done))
    assert outcome.state is WeaknessState.NOT_TRIED
    assert said in outcome.sentence()


def test_a_trial_without_a_verdict_tries_nothing():
    made = made_of("unreplicated")
    assert "could not be run to its end" in outcome_of("lost/acks-1", tried(made, None)).sentence()


def test_one_weakness_can_be_provoked_alone_and_each_that_there_was_no_time_for_says_how():
    alone = PROVOCATION.only(["lost/acks-1"])
    assert {schedule.name for schedule in alone.wanted(())} == {"unreplicated"}
    told = {of.rule: of.sentence() for of in PROVOCATION.outcome(())}
    assert "; to try it alone: --provoke lost/acks-1 --minutes 2" in told["lost/acks-1"]
    assert all("--provoke" not in told[rule] for rule, _ in PROVOCATION.weaknesses if PROVOCATION.why_not(rule))
    with pytest.raises(BadInput, match="no such weakness"):
        PROVOCATION.only(["nothing/at-all"])
    impossible = next(rule for rule, _ in PROVOCATION.weaknesses if PROVOCATION.why_not(rule))
    with pytest.raises(BadInput, match="no trial can show it"):
        PROVOCATION.only([impossible])


def test_what_there_was_no_time_for_and_what_cannot_be_had_here_is_not_tried():
    assert outcome_of("unclean/enabled", WeaknessAttempt()).sentence() == (
        "not tried, because there was no time left (--minutes); to try it alone: --provoke unclean/enabled --minutes 2"
    )
    without = replace(PROVOCATION, lacking={"unclean": "no namespaces"})
    (outcome,) = [of for of in without.outcome([WeaknessAttempt()]) if of.rule == "unclean/enabled"]
    assert "is impossible here: no namespaces" in outcome.sentence()
    assert "unclean" not in [schedule.name for schedule in without.wanted(())]


# --- on this machine


def test_what_cannot_be_made_here_is_left_out_and_said_and_the_rest_is_not():
    groups = {name: SCHEDULES[name].steps(PROVOCATION.inputs) for name in ("unreplicated", "lost answers", "deleted")}
    found = lacking(MANY.parts, groups, backend="local", isolation="signals")
    assert list(found) == ["lost answers"]
    assert found["lost answers"]


def test_what_became_of_each_step_is_read_from_events_and_a_torn_line_says_nothing(tmp_path):
    run = RunDirectory(tmp_path)
    assert steps_done(run) == {}
    lines = [{"event": "phase", "name": "x"}, {"event": "step", "name": "a", "what": "done"}]
    run.events.write_text("\n".join(map(json.dumps, lines)) + '\n{"event": "step", "name": "b"')
    assert steps_done(run) == {"a": "done"}


# --- what no anomaly says

AVAILABILITY = "availability/min-insync-equals-replication-factor"


def down(*, begin_s=10.0, end_s=31.0, effective=True):
    return FaultShown(
        step="one broker down: a broker dies", fault="kill", nodes=(), begin_s=begin_s, end_s=end_s, effective=effective
    )


@pytest.mark.parametrize(
    ("window", "count"),
    [
        ((10.2, 33.0), 1),
        ((10.2, None), 1),
        ((10.2, 20.0), 0),  # another led
        ((29.0, 33.0), 0),  # it came back, and that was noticed
        ((2.0, 8.0), 0),
    ],
)
def test_a_partition_that_takes_no_records_until_the_broker_is_back_shows_that_it_needs_it(window, count):
    made = made_of("one broker down")
    verdict = verdict_of(made).model_copy(update={"faults": (down(),)})
    attempt = attempt_of(
        verdict,
        made,
        PROVOCATION.inputs,
        cells={0},
        done={step.name: "done" for step in made.steps},
        report="there",
        windows=[WindowShown(partition=2, begin_s=window[0], end_s=window[1], fault=None)],
    )
    provocation = WeaknessProvocation.of(MANY, [AVAILABILITY])
    assert "one broker down" in [schedule.name for schedule in provocation.wanted(())]
    outcome = provocation.outcome([attempt])[-1]
    assert (outcome.rule, outcome.count, outcome.tries) == (AVAILABILITY, count, 1)
    assert outcome.sentence().startswith("shown, 1 time" if count else "not shown, although tried 1 time")


@pytest.mark.parametrize("rule", CONCERNS)
def test_every_weakness_of_availability_has_a_schedule_or_a_reason_why_not(rule):
    assert (schedule_of(rule) is not None) != bool(why_none(rule))


INTERNAL = {
    "internal-offsets": ("offsets down: the group's coordinator dies", "the group"),
    "internal-transactions": ("transactions down: the transactions' coordinator dies", "transactional.id number 1"),
}


@pytest.mark.parametrize("of", INTERNAL)
@pytest.mark.parametrize(
    ("stood", "wanted", "count"),
    [
        ((9.8, 33.0), 12.0, 1),
        ((9.8, None), 12.0, 1),
        ((9.8, 33.0), 9.9, 1),  # what was asked for just before was answered when the broker was back
        ((9.8, 20.0), 12.0, 0),  # another coordinator took over
        ((9.8, 33.0), 32.0, 0),  # there was nothing to commit
        ((9.8, 33.0), None, 0),
        ((0.5, 33.0), 12.0, 0),  # it had stopped before
        ((29.0, 33.0), 30.0, 0),  # it stopped when the broker was back
    ],
)
def test_nothing_committed_until_the_broker_of_an_internal_topic_is_back_shows_that_all_rests_on_it(
    of, stood, wanted, count
):
    made = made_of("unreplicated")
    step, who = INTERNAL[of]
    died = FaultShown(step=step, fault="kill", nodes=(), begin_s=10.0, end_s=31.0, effective=True)
    attempt = attempt_of(
        verdict_of(made).model_copy(update={"faults": (died,)}),
        made,
        PROVOCATION.inputs,
        cells={0},
        done={},
        report="there",
        standstills=[Standstill(of, who, *stood, wanted_s=wanted)],
    )
    rule = f"{of}/replication-factor-1"
    outcome = WeaknessProvocation.of(MANY, [rule]).outcome([attempt])[-1]
    assert (outcome.rule, outcome.count) == (rule, count)
    assert outcome.sentence().startswith(f"shown, 1 time, such as {who} " if count else "not tried")
    assert set(attempt.counts) <= {f"{of}/{name}" for name in RULES}, "it shows nothing of the other topic"


@pytest.mark.parametrize("name", ["offsets down", "transactions down"])
def test_the_broker_of_an_internal_topic_is_away_longer_than_another_needs_to_take_over(name):
    here = replace(PROVOCATION.inputs, transactions=(0,))
    dies, *rest = SCHEDULES[name].steps(here)
    returns, whole = (next(s for s in rest if isinstance(s.do, HealAction)), next(s for s in rest if s.do is None))
    assert dies.name in INTERNAL_DOWN
    assert dies.do.targets[0].endswith("-coordinator(0)" if name == "transactions down" else "-coordinator(1)")
    group_s = (
        here.group_session_s + 20 if name == "offsets down" else 0
    )  # seen with three copies: 27 s with sessions of 10 s
    assert returns.after.seconds > here.broker_session_s + DYING_S + group_s
    assert isinstance(whole.after, IsrIs)


@pytest.mark.parametrize(
    ("consumer", "client", "commits", "why"),
    [
        ({}, "java", None, "does not say when it commits by itself"),
        ({}, "librdkafka", None, None),
        ({"auto.commit.interval.ms": "60000"}, "librdkafka", None, "too seldom"),
        ({"enable.auto.commit": "false"}, "java", "sync-after", None),
        ({"enable.auto.commit": "false"}, "librdkafka", "none", "too seldom"),
    ],
)
def test_where_nobody_sees_the_groups_commits_nobody_can_show_that_it_cannot_commit(consumer, client, commits, why):
    one_copy = {"offsets.topic.replication.factor": "1"}
    found = predicted(consumer=consumer, client=client, commits=commits, broker=one_copy)
    rule = "internal-offsets/replication-factor-1"
    assert rule in [concern.rule for concern in found.concerns]
    told = WeaknessProvocation.of(found, [rule]).why_not(rule)
    assert told is None if why is None else why in told


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("internal-shares/replication-factor-1", "no share group is part"),
        ("internal-framework/min-insync-1", "neither Kafka Connect nor Kafka Streams"),
        ("internal-offsets/min-insync-1", "destroyed disks"),
        ("internal-offsets/unclean", "your topic only"),
    ],
)
def test_what_cannot_be_shown_of_an_internal_topic_says_why(rule, why):
    assert schedule_of(rule) is None
    assert why in why_none(rule)


def test_an_unclean_election_that_somebody_asks_for_is_no_weakness_of_a_configuration():
    assert "unclean/enabled" in [rule for rule, _ in PROVOCATION.weaknesses]
    assert "unclean/asked" not in [rule for rule, _ in PROVOCATION.weaknesses]


def test_whether_elections_are_unclean_is_unknown_where_nobody_says_how_the_topic_is_set():
    without = predicted({"acks": "all"}, topic=None, broker=None)
    assert "unclean" in {guarantee.anomaly for guarantee in without.unknown}
    assert "unclean" not in {guarantee.anomaly for guarantee in without.promised}
    assert "unclean" in {guarantee.anomaly for guarantee in predicted({"acks": "all"}).promised}


# --- when nothing was committed

S = 1_000_000_000


def commits_of(*rows):
    """(asked, accepted or None), in seconds."""
    return {
        "invoked_ns": np.array([int(asked * S) for asked, _ in rows], dtype=np.int64),
        "completed_ns": np.array([MISSING if done is None else int(done * S) for _, done in rows], dtype=np.int64),
        "outcome": np.array([Outcome.INFO if done is None else Outcome.OK for _, done in rows], dtype=np.int32),
    }


def test_a_group_stands_still_between_two_accepted_commits_that_are_far_apart_and_after_the_last():
    rows = commits_of((1, 1.1), (3, 3.1), (4, None), (20, 20.5), (21, 21.1), (30, None))
    first, last = of_group(rows, np.array([10 * S]))
    assert (first.begin_s, first.end_s, first.wanted_s) == (3.1, 20.5, 4.0)
    assert (last.begin_s, last.end_s, last.wanted_s) == (21.1, None, 30.0)
    assert first.sentence() == "the group committed no offset from 3.1 s to 20.5 s"


def test_a_group_that_never_committed_or_that_commits_steadily_does_not_stand_still():
    nothing = np.array([], dtype=np.int64)
    assert list(of_group(commits_of((1, None), (9, None)), nothing)) == []
    assert list(of_group(commits_of(*[(at, at + 0.1) for at in range(20)]), nothing)) == []
    assert list(of_group(commits_of(), nothing)) == []


def test_each_transactional_id_stands_still_by_itself_and_the_row_of_an_instance_is_no_transaction():
    ends = [(0, 1, 1, 1.2), (0, 2, 9, 9.5), (1, 1, 1, 1.2), (1, 2, 3, 3.1), (0, NONE, 0.1, None)]
    table = {
        "transactional_id": np.array([of for of, *_ in ends], dtype=np.int32),
        "transaction": np.array([number for _, number, *_ in ends], dtype=np.int64),
        "begun_ns": np.array([int(asked * S) for _, _, asked, _ in ends], dtype=np.int64),
        "end_invoked_ns": np.array([int(asked * S) + 5 for _, _, asked, _ in ends], dtype=np.int64),
        "completed_ns": np.array([MISSING if d is None else int(d * S) for *_, d in ends], dtype=np.int64),
        "outcome": np.full(len(ends), Outcome.OK, dtype=np.int32),
    }
    (one,) = of_transactions(table)
    assert (one.who, one.begin_s, one.end_s) == ("transactional.id number 1", 1.2, 9.5)
    assert one.wanted_before(12)
    assert not one.wanted_before(5)


def test_what_another_guarantee_judges_is_not_counted_as_what_the_configuration_costs():
    made = made_of("unreplicated")
    verdict = verdict_of(made, count=3)
    (lost,) = verdict.cells[0].anomalies.values()
    more = verdict.cells[0].model_copy(update={"anomalies": {"lost": lost.model_copy(update={"count": 113})}})
    seen = observe(verdict.model_copy(update={"cells": (more,)}), {0}).anomalies["lost"]
    assert seen.count == 3


# --- the last line


def compared(outcome, attempts=(), *, not_proven=frozenset()):
    promised = {g.anomaly: AnomalySummary(AnomalyOutcome.HELD) for g in MANY.promised}
    weak = {w.guarantee.anomaly: AnomalySummary(AnomalyOutcome.POSSIBLE) for w in MANY.weaknesses}
    first = next(iter(promised))
    seen = promised | weak | {first: AnomalySummary(outcome, 1)}
    run = Observed(seen, faults=("a", "b"), not_proven=not_proven)
    return Comparison(MANY, (run,), PROVOCATION.outcome(attempts), ("a", "b", "c"))


def test_the_last_line_says_what_held_under_what_and_how_many_weaknesses_were_shown():
    comparison = compared(AnomalyOutcome.HELD, [WeaknessAttempt(counts={"lost/acks-1": 3})])
    n, weak = len(MANY.promised), len(comparison.provoked)
    assert comparison.exit_code is ExitCode.HELD
    assert closing_line(comparison) == (
        f"held: {n} of {n} promises, under 2 of 3 faults; 1 of {weak} weaknesses shown, {weak - 1} not tried"
    )


@pytest.mark.parametrize(
    ("outcome", "said"), [(AnomalyOutcome.VIOLATED, "violated: "), (AnomalyOutcome.UNKNOWN, "unknown: ")]
)
def test_the_last_line_of_what_did_not_hold_never_says_that_it_held(outcome, said):
    line = closing_line(compared(outcome))
    assert line.startswith(said)
    assert "held" not in line
    assert "weaknesses shown" in line


def test_what_rests_on_what_nobody_told_is_unknown_in_the_last_line_too():
    untold = predicted({"acks": "all"}, topic=None, broker=None)
    assert untold.missing_settings
    seen = {name: AnomalySummary(AnomalyOutcome.HELD) for name in untold.judged}
    line = closing_line(Comparison(untold, (Observed(seen),), (), ()))
    assert line.startswith("unknown: whether ")
    assert "depends on settings that nobody gave" in line
    assert "held" not in line


def test_a_promise_whose_control_was_silent_is_not_said_to_be_proven():
    promised = MANY.promised[0].anomaly
    line = closing_line(compared(AnomalyOutcome.HELD, not_proven=frozenset({promised, "lost"})))
    assert f"but no control shows that prozess would have seen {promised}" in line


def test_the_last_line_on_the_terminal_is_the_conclusion_and_each_weakness_stands_above_it(capsys):
    comparison = compared(
        AnomalyOutcome.HELD, [WeaknessAttempt(counts={"lost/acks-1": 3}, report="runs/a/report.html")]
    )
    show_comparison(comparison, [Path("runs/a")])
    lines = capsys.readouterr().out.rstrip("\n").splitlines()
    assert lines[-1] == f"✓ {closing_line(comparison)}"
    above = lines[-1 - len(comparison.provoked) : -1]
    assert above[0] == "● lost by acks=1: shown, 3 times; runs/a/report.html"
    assert all(line[0] in "●○–" for line in above)


def test_a_program_is_told_the_same(capsys):
    comparison = compared(AnomalyOutcome.HELD, [WeaknessAttempt(counts={"lost/acks-1": 3})])
    to_json(comparison)
    document = json.loads(capsys.readouterr().out)
    assert document["conclusion"] == closing_line(comparison)
    assert [(of["rule"], of["state"], of["count"]) for of in document["provoked"]] == [
        (of.rule, of.state, of.count) for of in comparison.provoked
    ]
