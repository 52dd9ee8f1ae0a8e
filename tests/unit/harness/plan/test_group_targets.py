"""Clients as targets of faults, groups in plans and schedules."""

from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaError

from prozess.harness.errors import BadInput
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.schedule import Target, parse_target
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.codes import java_hash
from prozess.harness.recording.rows import read_rows
from prozess.harness.schema import COMMITS, NONE, Outcome
from prozess.workloads.record.members import CommitRows, commit_outcome
from prozess.workloads.runtime.final_phase import positions_of


def plan_with(*steps: dict[str, Any], **base: Any) -> Plan:
    document = {
        "name": "x",
        "title": "t",
        "workload": "group",
        "steps": list(steps),
        "base": {f"group.{key}": value for key, value in base.items()},
        "axes": {"group.commit": ["sync-before", "sync-after"]},
    }
    return make_plan(parse_trial(document, source="x"), seed=1)


def kill(target: str) -> dict[str, Any]:
    return {"name": target, "do": {"kind": "fault", "fault": "kill", "targets": [target]}}


def test_members_clients_and_coordinators_are_roles():
    assert parse_target("member(3, 1)") == Target(role="member", cell=3, instance=1)
    assert parse_target("client:producer-x") == Target(role="client", client="producer-x")
    assert parse_target("group-coordinator(2)") == Target(role="group-coordinator", cell=2)
    with pytest.raises(ValueError, match="member"):
        parse_target("member(3)")


def test_each_cell_has_a_group_of_its_own_and_one_observer_looks_at_all():
    plan = plan_with(members=3)
    members = [c for c in plan.clients if c.role == "member"]
    assert [(c.cell, c.instance) for c in members] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert len({c.group_id for c in members}) == 2
    (observer,) = [c for c in plan.clients if c.role == "observer"]
    assert observer.partitions == tuple(p.partition for p in plan.partitions)


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (kill("member(9,0)"), "cell 9 has no group"),
        (kill("member(0,7)"), "members 0…1, not 7"),
        (kill("client:nobody"), "no client 'nobody'"),
        (kill("group-coordinator(4)"), "cell 4 has no group"),
        ({"name": "x", "do": {"kind": "client", "do": "stop", "client": "member(0,5)"}}, "not 5"),
    ],
)
def test_a_target_that_the_plan_does_not_have_is_refused(step, says):
    with pytest.raises(BadInput, match=says):
        plan_with(step)


def test_the_consumer_protocol_is_refused_what_is_the_brokers_to_set_and_old_brokers():
    with pytest.raises(BadInput, match=r"KIP-848"):
        plan_with(protocol="consumer", **{"properties.session.timeout.ms": "6000"})
    with pytest.raises(BadInput, match=r"set group\.session_timeout_ms"):
        plan_with(protocol="classic-eager", **{"properties.session.timeout.ms": "6000"})


def test_the_hash_of_a_group_is_javas():
    assert java_hash("") == 0
    assert java_hash("hello") == 99162322
    assert java_hash("polygenelubricants") == -(2**31)


def test_of_a_partition_that_two_claim_the_one_behind_counts():
    assert positions_of({1: {0: (5, True)}, 2: {0: (3, False), 1: (7, True)}}) == {0: (3, False), 1: (7, True)}


def test_a_refusal_may_be_of_a_second_copy_and_is_no_certain_failure():
    assert commit_outcome(None) == (Outcome.OK, 0)
    assert commit_outcome(KafkaError(KafkaError.ILLEGAL_GENERATION))[0] is not Outcome.FAIL
    assert commit_outcome(KafkaError(KafkaError._NO_OFFSET))[0] == Outcome.FAIL


def test_the_position_of_an_automatic_commit_is_known_when_the_call_that_answered_it_returns(tmp_path):
    now = [100]
    rows = CommitRows(tmp_path, 1, 0, lambda: now[0])
    # librdkafka counts what it has put into a batch as delivered, and answers before the batch is returned.
    now[0] = 200
    rows.answered(0, 7, None, position=6, auto=True, within_call=True)
    rows.answered(1, 3, None, position=3, auto=True, within_call=True)
    written, _ = read_rows(tmp_path, COMMITS, 1)
    assert written["position"].tolist() == [NONE, NONE], "not judged if the member is killed now"
    now[0] = 210
    rows.may_commit({0: 7}, since_ns=150)
    rows.settle(np.array([7, 3]))
    rows.settle(np.array([9, 9]))
    written, _ = read_rows(tmp_path, COMMITS, 1)
    assert written["position"].tolist() == [7, 3]
    assert written["invoked_ns"].tolist() == [150, 100]
    assert (written["completed_ns"] == 200).all()


def test_an_automatic_commit_may_have_been_made_since_its_offset_was_reached(tmp_path):
    now = [100]
    rows = CommitRows(tmp_path, 1, 0, lambda: now[0])
    rows.may_commit({0: 10}, since_ns=110)
    rows.may_commit({0: 20}, since_ns=120)
    now[0] = 200
    for offset in (20, 10, 15, 99):
        rows.answered(0, offset, None, position=20, auto=True)
    written, _ = read_rows(tmp_path, COMMITS, 1)
    assert written["invoked_ns"].tolist() == [120, 110, 120, 100]
    assert (written["completed_ns"] == 200).all()
