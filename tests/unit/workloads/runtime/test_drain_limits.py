"""Members give up at the end of a trial only once the sessions of those that died are over."""

from types import SimpleNamespace

import pytest

from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.workloads.runtime.final_phase import COPYING, DRAIN_QUIET_S, MEMBERS, FinalPhase, quiet_s_of


def members(**base):
    document = {"name": "x", "title": "t", "workload": "group", "base": {f"group.{k}": v for k, v in base.items()}}
    return [
        client for client in make_plan(parse_trial(document, source="test"), seed=1).clients if client.role in MEMBERS
    ]


@pytest.mark.parametrize(
    ("base", "session_s"),
    [
        ({"session_timeout_ms": 6_000}, 6),
        ({"session_timeout_ms": 45_000}, 45),
        ({"session_timeout_ms": 45_000, "client": "java"}, 45),
        ({"protocol": "consumer"}, 45),  # the brokers': group.consumer.session.timeout.ms
    ],
    ids=str,
)
def test_nothing_moves_for_a_session_and_a_rebalance_before_members_give_up(base, session_s):
    assert quiet_s_of(members(**base)) == DRAIN_QUIET_S + session_s


@pytest.mark.parametrize(("base", "session_s"), [({}, 45), ({"copier.session_timeout_ms": 60_000}, 60)], ids=str)
def test_what_copiers_commit_is_followed_for_as_long(base, session_s):
    document = {"name": "x", "title": "t", "workload": "exactly-once", "base": base}
    plan = make_plan(parse_trial(document, source="test"), seed=1)
    assert quiet_s_of(c for c in plan.clients if c.role in COPYING) == DRAIN_QUIET_S + session_s


def test_observers_of_java_groups_wait_as_long_as_their_members():
    sent = []
    planned = {role: [] for role in (*MEMBERS, *COPYING, "observer")} | {
        "java-member": members(client="java", session_timeout_ms=45_000)
    }
    phase = FinalPhase(
        planned,
        SimpleNamespace(clients={}, send=lambda _, order: sent.append(order), start=lambda _: []),
        SimpleNamespace(served=lambda c: c.partitions, absent=set(), missing=set()),
        clock=SimpleNamespace(monotonic_ns=lambda: 0),
    )
    phase._follow(("java-member",), 10**12)
    assert [order.quiet_s for order in sent] == [DRAIN_QUIET_S + 45]


def test_without_members_there_is_no_session_to_wait_for():
    assert quiet_s_of([]) == DRAIN_QUIET_S
