"""What steps were to bring about, and whether the recorded history has it: what came true, a near miss, and what nobody can
say."""

from dataclasses import replace

import pytest

from prozess.harness.clock import NS_PER_S
from prozess.harness.guarantees.verdict.expectations import expectation_results
from prozess.harness.guarantees.verdict.judge import judge
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.codes import partition_for, recorded_as
from prozess.harness.schema import NONE, MetadataKind, MetadataSource, ObservationKind, Outcome, StepOutcome
from prozess.harness.verdict import AnomalyOutcome, Verdict
from tests.support.cells.evidence import (
    ACKS,
    ACKS_ALL,
    evidence,
    failover,
    findings,
    lost_in,
    ns,
    of,
    plan,
    state,
)
from tests.support.cells.partitions import table

WAIT = {"after": {"condition": "elapsed", "seconds": 1}}
LATER_S = 9.0
"""The first step lasts from 3 s to then, and the second to 12 s."""


def made(expect, *, do=None, axes=ACKS, **more):
    """A plan of two steps, the first of which expects something."""
    first = {"name": "first", **(do or WAIT), "expect": expect}
    return plan(axes, steps=[first, {"name": "second", **WAIT}], **more)


def seen(planned, *, outcomes=None, **told):
    """The evidence of both steps, done in their time."""
    tables = {name: told.pop(name) for name in ("messages", "sends", "transactions") if name in told}
    whole = evidence(planned, outcomes=outcomes, **told)
    times = {"step": [0, 1], "fired_ns": [ns(3), ns(LATER_S)], "done_ns": [ns(4), ns(12)]}
    rows = [
        {name: values[number] for name, values in times.items()}
        | {"outcome": (outcomes or {}).get(number, StepOutcome.DONE)}
        for number in (0, 1)
    ]
    if "messages" in tables:
        tables["messages"] = table("messages", tables["messages"])
    if "transactions" in tables:
        tables["transactions"] = table("transactions", tables["transactions"])
    if "sends" in tables:
        rows_of = table("sends", tables["sends"])
        tables["sends"] = lambda p, names: {n: rows_of[n][rows_of["partition"] == p] for n in names}
    return replace(whole, steps=table("steps", rows), **tables)


def result(expect, *, do=None, axes=ACKS, **told):
    planned = made(expect, do=do, axes=axes)
    (found,) = expectation_results(planned, seen(planned, **told))
    return found


# The verdict.


def verdict(*, moves_at_s, lost=0):
    planned = made({"what": "leader", "of": 0, "moved": True})
    found = lost_in(ACKS_ALL, lost) if lost else {}
    return judge(planned, findings(planned, found), seen(planned, metadata=failover(3, at_s=moves_at_s)))


def test_a_trial_that_reached_its_situation_is_judged_as_before():
    whole = verdict(moves_at_s=5)
    assert whole.verdict is Verdict.HELD
    assert [(one.step, one.reached, one.seen) for one in whole.expectations] == [
        ("first", True, "broker 1, then broker 2 led")
    ]


def test_a_trial_that_did_not_reach_its_situation_is_unknown_and_says_what_was_expected_and_seen():
    whole = verdict(moves_at_s=10)
    assert (whole.verdict, of(whole, ACKS_ALL).outcome) == (Verdict.UNKNOWN, AnomalyOutcome.UNKNOWN)
    assert whole.sentence.startswith(
        "Unknown: the situation was not reached: step 'first' expects that another node leads partition 0; seen: broker 1 led"
    )


def test_what_was_found_in_such_a_trial_is_still_reported():
    whole = verdict(moves_at_s=10, lost=100)
    assert (whole.verdict, of(whole, ACKS_ALL).forbidden) == (Verdict.VIOLATED, 100)
    assert any("the situation was not reached" in reason for reason in whole.unknown_reasons)


@pytest.mark.parametrize("outcome", [StepOutcome.MISSED, StepOutcome.FAILED, StepOutcome.SKIPPED])
def test_a_step_that_was_not_done_has_brought_nothing_about(outcome):
    found = result({"what": "leader", "of": 0, "node": "broker-2"}, metadata=failover(3), outcomes={0: outcome})
    assert (found.reached, found.seen) == (False, "the step was not done")


# Leaders and ISRs.


@pytest.mark.parametrize(
    ("expect", "moves_at_s", "reached"),
    [
        ({"node": "broker-2"}, 5, True),
        ({"node": "broker-2"}, LATER_S + 1, False),
        ({"node": "broker-3"}, 5, False),
        ({"moved": True}, 2, False),
        ({"moved": False}, 5, False),
        ({"moved": False}, 2, True),
        ({"nobody": True}, 5, False),
    ],
)
def test_who_leads_from_when_the_step_begins_to_when_the_next_one_does(expect, moves_at_s, reached):
    assert result({"what": "leader", "of": 0, **expect}, metadata=failover(3, at_s=moves_at_s)).reached is reached


def test_the_time_of_an_expectation_may_last_to_a_later_step():
    planned = plan(
        ACKS,
        steps=[
            {"name": "first", **WAIT, "expect": {"what": "leader", "of": 0, "moved": True, "until": "third"}},
            {"name": "second", **WAIT},
            {"name": "third", **WAIT},
        ],
    )
    rows = [
        {"step": s, "fired_ns": ns(t), "done_ns": ns(t), "outcome": StepOutcome.DONE} for s, t in enumerate((3, 4, 8))
    ]
    for moves_at_s, reached in ((6, True), (9, False)):
        told = evidence(planned, metadata=failover(3, at_s=moves_at_s))
        (found,) = expectation_results(planned, replace(told, steps=table("steps", rows)))
        assert found.reached is reached


def test_nobody_leads_where_the_controllers_log_says_it():
    led = [state(-10, 0, 1, 0, (1, 2, 3)), state(5, 0, NONE, 1, (1,))]
    assert result({"what": "leader", "of": 0, "nobody": True}, metadata=led).reached


def test_without_the_controllers_log_nobody_can_tell_who_led():
    found = result({"what": "leader", "of": 0, "moved": True}, metadata=[])
    assert found.reached is None
    planned = made({"what": "leader", "of": 0, "moved": True})
    whole = judge(planned, findings(planned), seen(planned, metadata=[]))
    assert "it cannot be known: the controllers' log has nothing of it" in whole.unknown_reasons[0]


@pytest.mark.parametrize(
    ("expect", "reached"),
    [({"brokers": [1]}, True), ({"brokers": [2, 1]}, False), ({"at_most": 1}, True), ({"at_most": 0}, False)],
)
def test_who_is_in_sync(expect, reached):
    led = [state(-10, 0, 1, 0, (1, 2, 3)), state(5, 0, 1, 0, (1,)), state(8, 0, 1, 0, (1, 2, 3))]
    assert result({"what": "isr", "partition": 0, **expect}, metadata=led).reached is reached


def became_active(at_s, node, epoch, *, source=MetadataSource.CONTROLLER_LOG):
    kind = MetadataKind.CONTROLLER
    return {"time_ns": ns(at_s), "kind": kind, "source": source, "partition": NONE, "node": node, "leader_epoch": epoch}


@pytest.mark.parametrize(
    ("later", "moved", "words"),
    [
        ([(5, 3002)], True, "node 3001, then node 3002 was the active controller"),
        ([(5, 3001)], False, "node 3001 was the active controller"),  # elected again: the same one
        ([(5, 3002), (7, 3001)], True, "node 3001, then node 3002, then node 3001 was the active controller"),
        ([(2, 3002)], False, "node 3002 was the active controller"),  # before the step began
        ([(LATER_S + 1, 3002)], False, "node 3001 was the active controller"),
    ],
)
def test_whether_another_controller_becomes_the_active_one(later, moved, words):
    rows = [became_active(at_s, node, 2 + n) for n, (at_s, node) in enumerate([(-10, 3001), *later])]
    for expected in (True, False):
        found = result({"what": "controller", "moved": expected}, metadata=rows)
        assert (found.reached, found.seen) == (moved is expected, words)


def test_what_a_broker_answers_about_controllers_does_not_tell_who_is_the_active_one():
    answered = [became_active(t, n, t + 20, source=MetadataSource.DESCRIBED) for t, n in ((-10, 3001), (5, 3002))]
    assert result({"what": "controller", "moved": True}, metadata=answered).reached is None


@pytest.mark.parametrize("kind", ["group", "transactions"])
def test_who_coordinates_a_group_or_transactional_id_is_who_leads_its_partition(kind):
    of_groups = kind == "group"
    role = "group-coordinator(0)" if of_groups else "transaction-coordinator(0)"
    step = {"name": "first", **WAIT, "expect": {"what": "leader", "of": role, "node": "broker-3"}}
    document = {"name": "x", "title": "t", "workload": kind, "topics": {"partitions": 1}}
    planned = make_plan(parse_trial(document | {"steps": [step, {"name": "second", **WAIT}]}, source="x"), seed=1)
    key = (planned.names.groups if of_groups else planned.names.transactional_ids)[0]
    own = MetadataKind.OFFSETS_PARTITION if of_groups else MetadataKind.TRANSACTIONS_PARTITION
    other = MetadataKind.TRANSACTIONS_PARTITION if of_groups else MetadataKind.OFFSETS_PARTITION
    for internal, led, reached in ((own, 3, True), (own, 2, False), (other, 3, None)):
        rows = [
            state(-10, recorded_as(number), led if number == partition_for(key, 5) else 1, 0, (1, 2, 3))
            | {"kind": internal}
            for number in range(5)
        ]
        (found,) = expectation_results(planned, seen(planned, metadata=rows))
        assert found.reached is reached


# Messages.

OF_MESSAGES = {
    "do": {
        "kind": "fault",
        "fault": "message",
        "targets": ["brokers"],
        "parameters": {"match": {"api": "Produce"}, "action": {"do": "hold"}},
    }
}


def message(at_s, did, *, step=0, partition=0):
    codes = ["hold", "delivered", "connection gone"]
    return {
        "time_ns": ns(at_s),
        "did": codes.index(did),
        "step": step,
        "partition": partition,
        "opener": 1,
        "server": 2,
    }


@pytest.mark.parametrize(
    ("expect", "reached"),
    [
        ({}, True),
        ({"at_least": 2}, False),
        ({"at_most": 0}, False),
        ({"after": "second"}, True),
        ({"before": "second"}, False),
        ({"partition": 1}, True),
        ({"partition": 2}, False),
        ({"did": "dropped"}, False),
    ],
)
def test_what_was_done_to_messages_is_what_the_journal_says(expect, reached):
    rows = [
        message(4, "hold"),
        message(10, "delivered"),
        message(10, "delivered", partition=1),
        message(5, "hold", step=1),
    ]
    told = {"dictionaries": {"did": ["hold", "delivered", "connection gone"]}}
    found = result({"what": "message", "did": "delivered", **expect}, do=OF_MESSAGES, messages=rows, **told)
    assert found.reached is reached


def test_a_message_that_was_held_and_whose_connection_was_gone_was_not_delivered():
    rows = [message(4, "hold"), message(10, "connection gone")]
    told = {"dictionaries": {"did": ["hold", "delivered", "connection gone"]}}
    found = result({"what": "message", "did": "delivered"}, do=OF_MESSAGES, messages=rows, **told)
    assert (found.reached, found.seen) == (False, "'connection gone' 1, 'hold' 1")
    assert not result({"what": "message", "did": "delivered"}, do=OF_MESSAGES).reached


# Logs.

INSPECT = {"do": {"kind": "inspect"}}


def batch(base, *, step, node=1, epoch=0, checksum=None):
    return {
        "partition": 0, "node": node, "step": step, "base_offset": base, "last_offset": base + 1,
        "leader_epoch": epoch, "checksum": base if checksum is None else checksum,
    }  # fmt: skip


def told_by(node, step, *, start=0, end=0):
    kinds = ((ObservationKind.REPLICA_LOG_START, start), (ObservationKind.REPLICA_LOG_END, end))
    return [{"partition": 0, "node": node, "step": step, "kind": kind, "value": value} for kind, value in kinds]


@pytest.mark.parametrize(
    ("at_the_end", "start", "at_least", "reached"),
    [
        ([batch(0, step=NONE), batch(2, step=NONE), batch(4, step=NONE)], 0, 1, False),
        ([batch(0, step=NONE), batch(2, step=NONE)], 0, 2, True),
        ([batch(0, step=NONE), batch(2, step=NONE)], 0, 3, False),
        ([batch(0, step=NONE), batch(2, step=NONE), batch(4, step=NONE, epoch=1, checksum=9)], 0, 2, True),
        ([batch(4, step=NONE)], 4, 1, False),
    ],
    ids=["all are there", "two records are gone", "not three", "others stand there", "retention took the first"],
)
def test_a_replica_that_truncated_has_not_what_it_had(at_the_end, start, at_least, reached):
    then = [batch(0, step=0), batch(2, step=0), batch(4, step=0), batch(6, step=0, node=2)]
    expect = {"what": "truncated", "partition": 0, "node": "broker-1", "at_least": at_least}
    observations = [*told_by(1, 0, end=6), *told_by(1, NONE, start=start, end=6)]
    found = result(expect, do=INSPECT, replicas=[*then, *at_the_end], observations=observations)
    assert found.reached is reached


def test_of_a_replica_that_was_not_read_nobody_can_tell_whether_it_truncated():
    expect = {"what": "truncated", "partition": 0, "node": "broker-1"}
    for observations in ([*told_by(1, 0)], [*told_by(1, NONE)]):
        assert result(expect, do=INSPECT, replicas=[batch(0, step=0)], observations=observations).reached is None


@pytest.mark.parametrize(
    ("numbers", "reached"),
    [({"at_least": 2, "at_most": 2}, True), ({"at_least": 3}, False), ({"at_most": 1}, False)],
)
def test_how_many_records_stand_behind_the_cut(numbers, reached):
    expect = {"what": "behind", "partition": 0, "node": "broker-2", "ahead": "broker-1", **numbers}
    observations = [*told_by(1, 0, end=6), *told_by(2, 0, end=4), *told_by(2, NONE, end=6)]
    assert result(expect, do=INSPECT, observations=observations).reached is reached


def test_a_replica_that_is_ahead_is_not_behind():
    expect = {"what": "behind", "partition": 0, "node": "broker-2", "ahead": "broker-1", "at_most": 5}
    assert not result(expect, do=INSPECT, observations=[*told_by(1, 0, end=4), *told_by(2, 0, end=6)]).reached
    assert result(expect, do=INSPECT, observations=told_by(1, 0)).reached is None


@pytest.mark.parametrize(
    ("at_s", "numbers", "reached"),
    [
        (5, {}, True),
        (2, {}, False),
        (10, {}, False),
        (10, {"at_most": 0}, True),
        (5, {"at_most": 0}, False),
        (LATER_S, {}, None),
        (LATER_S, {"at_most": 0}, None),
    ],
)
def test_markers_are_counted_by_the_brokers_clock_and_one_at_the_border_proves_nothing(at_s, numbers, reached):
    zero_s = 1_700_000_000
    control = {"attributes": 0x30, "base_timestamp_ms": round((zero_s + at_s) * 1000)}
    plain = {"attributes": 0x10, "base_timestamp_ms": round((zero_s + 5) * 1000)}
    rows = [batch(0, step=NONE) | plain, batch(2, step=NONE) | control]
    found = result({"what": "markers", "partition": 0, **numbers}, replicas=rows, wall_zero_ns=zero_s * NS_PER_S)
    assert found.reached is reached


# Sends.


@pytest.mark.parametrize(
    ("expect", "reached"),
    [
        ({"outcome": "acknowledged", "at_least": 2}, True),
        ({"outcome": "acknowledged", "at_least": 3}, False),
        ({"outcome": "acknowledged", "at_least": 2, "cells": {}}, True),
        ({"outcome": "failed", "at_most": 0}, True),
        ({"outcome": "failed"}, False),
    ],
)
def test_sends_that_end_in_the_time_of_the_step_are_counted_in_each_partition(expect, reached):
    done = [(0, 2, Outcome.OK), (0, 5, Outcome.OK), (0, 6, Outcome.OK), (0, 10, Outcome.FAIL)]
    rows = [{"partition": p, "completed_ns": ns(t), "outcome": o} for p, t, o in done]
    assert result({"what": "sends", **expect}, axes={"producer.acks": ["all"]}, sends=rows).reached is reached


@pytest.mark.parametrize(
    ("outcome", "count"), [("acknowledged", 1), ("failed", 2), ("unacknowledged", 5)], ids=lambda value: str(value)
)
def test_a_send_of_which_nobody_knows_how_it_ended_is_unacknowledged_and_has_not_failed(outcome, count):
    ended = [Outcome.OK, *[Outcome.FAIL] * 2, *[Outcome.INFO] * 3]
    rows = [{"partition": 0, "completed_ns": ns(5), "outcome": o} for o in ended]
    expect = {"what": "sends", "outcome": outcome, "at_least": count, "at_most": count}
    assert result(expect, axes={"producer.acks": ["all"]}, sends=rows).reached


def test_one_partition_without_enough_sends_is_not_enough():
    rows = [{"partition": 0, "completed_ns": ns(5), "outcome": Outcome.OK}]
    found = result({"what": "sends", "outcome": "acknowledged"}, sends=rows)
    assert (found.reached, found.seen) == (False, "0 in partition 1")


@pytest.mark.parametrize(
    ("starts", "reached", "words"),
    [
        ((7, 9), True, "7 to 7"),  # the least of the replicas counts
        ((4, 9), False, "4 in partition 0"),
        ((), None, "no copy of partition 0 was read at the end"),
    ],
)
def test_what_retention_removed_is_what_each_replica_has_no_more(starts, reached, words):
    rows = [one for node, start in enumerate(starts, 1) for one in told_by(node, NONE, start=start, end=20)]
    found = result(
        {"what": "removed", "at_least": 5}, axes={"producer.acks": ["all"]}, observations=[*rows, *told_by(1, 0)]
    )
    assert (found.reached, found.seen) == (reached, words)


@pytest.mark.parametrize(
    ("took_s", "least_s", "reached"),
    [(0.5, 0.5, True), (0.5, 0.51, False), (4.0, 0.5, True)],
)
def test_sends_that_took_long_are_counted_by_how_long_they_took(took_s, least_s, reached):
    rows = [{"partition": 0, "invoked_ns": ns(5 - took_s), "completed_ns": ns(5), "outcome": Outcome.OK}]
    expect = {"what": "sends", "outcome": "acknowledged", "took_s": least_s}
    assert result(expect, axes={"producer.acks": ["all"]}, sends=rows).reached is reached


def with_transactions(expect):
    steps = [{"name": "first", **WAIT, "expect": expect}, {"name": "second", **WAIT}]
    document = {"name": "made-by-hand", "title": "t", "workload": "transactions", "steps": steps}
    return make_plan(parse_trial(document, source="test"), seed=1)


def ends(*answered, took_s=1.5, **expect):
    """What becomes of it: answered are (client, asked for at, answered at)."""
    rows = [
        {"client": client, "transaction": n, "end_invoked_ns": ns(asked_s), "completed_ns": ns(done_s)}
        for n, (client, asked_s, done_s) in enumerate(answered)
    ]
    planned = with_transactions({"what": "ends", "took_s": took_s, **expect})
    (found,) = expectation_results(planned, seen(planned, transactions=rows))
    return found


def test_ends_of_transactions_are_counted_in_each_cell_by_how_long_they_took():
    planned = with_transactions({"what": "ends"})
    mine = next(client.client for client in planned.clients if client.transactional_id is not None)
    assert ends((mine, 4, 5.5)).reached
    assert not ends((mine, 4, 5.4)).reached
    assert not ends((mine, 1, 2.9)).reached, "before the step"
    assert not ends((mine, 4, LATER_S + 1)).reached, "after it"
    assert ends((mine, 4, LATER_S + 1), until="second").reached is False, "the second begins at its own begin"
    assert not ends((999, 4, 5.5)).reached, "another cell's"
    assert ends((mine, 4, 5.5), (mine, 6, 8), at_least=2).reached
    assert ends((mine, 4, 5.5)).seen == "1 to 1"


def test_where_nobody_recorded_transactions_it_cannot_be_told_how_they_ended():
    planned = with_transactions({"what": "ends"})
    (found,) = expectation_results(planned, seen(planned))
    assert found.reached is None
