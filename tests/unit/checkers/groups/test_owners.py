"""Kernels of ownership: each with the smallest bad history, and the one next to it that is good."""

import pytest

from prozess.checkers.groups.assignments import session_ns
from prozess.checkers.groups.owners_and_commits import orphaned, two_owners
from prozess.harness.config.configuration import GroupConfiguration, Variant
from prozess.harness.errors import BadInput
from prozess.harness.interfaces.witnesses import GroupCase
from prozess.harness.plan.cell_work import GroupSession, group_session
from prozess.harness.schema import ObservationKind
from tests.support.cells.evidence import ns
from tests.support.cells.groups import (
    ASSIGN,
    CLOSE,
    LOST,
    REVOKE,
    A,
    B,
    beats,
    cases,
    cell,
    client,
    commit,
    drained,
    event,
)


def test_ownership_that_begins_within_anothers_is_two_owners():
    bad = cell(assignments=[event(A, ASSIGN, 1), event(A, REVOKE, 5), event(B, ASSIGN, 4)])
    found = two_owners(bad)
    assert found.witnesses[["reader", "other_client"]].tolist() == [(B, A)]
    assert two_owners(cell(assignments=[event(A, ASSIGN, 1), event(A, REVOKE, 5), event(B, ASSIGN, 5)])).count == 0


def test_two_owners_whose_commits_are_both_accepted_are_told_from_those_who_only_believed():
    facts = {"assignments": [event(A, ASSIGN, 1), event(A, LOST, 5), event(B, ASSIGN, 3)]}
    assert cases(two_owners(cell(commits=[commit(B, 2, 3.5)], **facts))) == [GroupCase.NO_CAUSE]
    assert cases(two_owners(cell(commits=[commit(B, 2, 3.5), commit(A, 3, 2)], **facts))) == [GroupCase.NO_CAUSE]
    both = [commit(B, 2, 3.5), commit(A, 3, 4)]
    assert cases(two_owners(cell(commits=both, **facts))) == [GroupCase.BOTH_COMMITTED]


def test_the_dead_and_the_evicted_own_nothing():
    assigned = [event(A, ASSIGN, 1), event(B, ASSIGN, 6)]
    dead = cell(
        assignments=assigned, clients=[client(A, killed=True), client(B)], heartbeats=[*beats(A, 3), *beats(B, 99)]
    )
    assert two_owners(dead).count == 0
    frozen = [*beats(A, 99, without=(1, 9)), *beats(B, 99)]
    zombie = [event(A, ASSIGN, 0.5), event(A, LOST, 9.5), event(B, ASSIGN, 6)]
    assert two_owners(cell(assignments=zombie, heartbeats=frozen)).count == 0
    assert two_owners(cell(assignments=zombie)).count == 1
    early = [event(A, ASSIGN, 0.5), event(A, LOST, 9.5), event(B, ASSIGN, 3)]
    assert two_owners(cell(assignments=early, heartbeats=frozen)).count == 1


def test_an_idle_owner_keeps_what_it_has_where_rows_say_that_it_polled():
    idle = {"group": {"max_poll_interval_ms": 4000}}
    assigned = [event(A, ASSIGN, 1), event(A, LOST, 30), event(B, ASSIGN, 20)]

    def polled(end_s):
        return {"client": A, "kind": ObservationKind.POLLED, "time_ns": ns(0.5), "value": ns(end_s - 0.5)}

    assert two_owners(cell(assignments=assigned, **idle)).count == 0
    assert two_owners(cell(assignments=assigned, asked=[polled(40)], **idle)).count == 1
    assert two_owners(cell(assignments=assigned, asked=[polled(15)], **idle)).count == 0, "it may have stopped"


def test_commits_of_a_zombie_and_of_its_successor_are_both_accepted():
    facts = {
        "assignments": [event(A, ASSIGN, 0.5), event(A, LOST, 9.5), event(B, ASSIGN, 6)],
        "heartbeats": [*beats(A, 99, without=(1, 9)), *beats(B, 99)],
    }
    found = two_owners(cell(commits=[commit(B, 2, 7), commit(A, 3, 9.2)], **facts))
    assert cases(found) == [GroupCase.BOTH_COMMITTED]
    assert two_owners(cell(commits=[commit(B, 2, 7), commit(A, 3, 0.9)], **facts)).count == 0
    not_yet_evicted = [commit(A, 3, 5.5), commit(B, 4, 7)]
    assert two_owners(cell(commits=not_yet_evicted, **facts)).count == 0


def test_a_commit_between_a_supposed_eviction_and_the_successor_is_no_second_owners():
    """Idle polls are not recorded: a member that had nothing to read for long was not evicted, and its commits count."""
    facts = {
        "assignments": [event(A, ASSIGN, 0.5), event(A, LOST, 9.5), event(B, ASSIGN, 9)],
        "heartbeats": [*beats(A, 99, without=(1, 7)), *beats(B, 99)],
    }
    assert two_owners(cell(commits=[commit(A, 2, 8), commit(B, 3, 9.2)], **facts)).count == 0
    both = [commit(A, 2, 9.1), commit(B, 3, 9.2)]
    assert cases(two_owners(cell(commits=both, **facts))) == [GroupCase.BOTH_COMMITTED]


def test_an_assignment_that_a_member_is_told_of_after_a_silence_may_be_over_already():
    owned = [event(B, ASSIGN, 6), event(B, REVOKE, 12)]
    stale = [*owned, event(A, ASSIGN, 9.2), event(A, LOST, 9.4)]
    frozen = [*beats(A, 99, without=(1, 9)), *beats(B, 99)]
    assert two_owners(cell(assignments=stale, heartbeats=frozen)).count == 0
    assert two_owners(cell(assignments=stale)).count == 1
    later = [*owned, event(A, ASSIGN, 11.5), event(A, LOST, 11.9)]
    assert two_owners(cell(assignments=later, heartbeats=frozen)).count == 1


def test_a_second_process_with_one_instance_id_is_told_from_any_other_owner():
    places = [client(A) | {"planned": A}, client(B) | {"planned": A}]
    facts = {"assignments": [event(A, ASSIGN, 1), event(A, LOST, 5), event(B, ASSIGN, 4)], "clients": places}
    static = {"static_membership": True, "protocol": "classic-cooperative"}
    assert cases(two_owners(cell(group=static, **facts))) == [GroupCase.SAME_INSTANCE]
    assert cases(two_owners(cell(group={"protocol": "classic-cooperative"}, **facts))) == [GroupCase.NO_CAUSE]
    refused = {"static_membership": True, "protocol": "consumer"}
    assert cases(two_owners(cell(group=refused, **facts))) == [GroupCase.NO_CAUSE]
    others = facts | {"clients": [places[0], client(B) | {"planned": B}]}
    assert cases(two_owners(cell(group=static, **others))) == [GroupCase.NO_CAUSE]


def test_in_the_consumer_protocol_sessions_are_the_brokers():
    group = GroupConfiguration(protocol="consumer", session_timeout_ms=3000)
    assert group_session(group, Variant()).timeout_ms == 45_000
    brokers = Variant(
        properties={"group.consumer.session.timeout.ms": "7000", "group.consumer.heartbeat.interval.ms": "900"}
    )
    assert group_session(group, brokers) == GroupSession(timeout_ms=7000, heartbeat_ms=900)
    classic = GroupConfiguration(session_timeout_ms=8000, properties={"heartbeat.interval.ms": "500"})
    assert group_session(classic, brokers) == GroupSession(timeout_ms=8000, heartbeat_ms=500)
    with pytest.raises(BadInput, match="number of milliseconds"):
        group_session(group, Variant(properties={"group.consumer.session.timeout.ms": "soon"}))


def test_a_partition_that_nobody_owns_when_the_drain_ends_is_orphaned():
    facts = {"observations": [drained(50)]}
    left = [event(A, ASSIGN, 1), event(A, REVOKE, 40)]
    assert orphaned(cell(assignments=left, **facts)).count == 1
    owned = [event(A, ASSIGN, 1), event(A, CLOSE, 60)]
    assert orphaned(cell(assignments=owned, **facts)).count == 0
    assert orphaned(cell(assignments=owned)).incomplete


def test_an_orphan_may_wait_for_a_member_that_died_in_the_protocols_in_which_all_join_together():
    def case_of(into_session_s, protocol="classic-eager"):
        group = {"protocol": protocol}
        died_s = 60 - session_ns(cell(group=group).cell) / 1e9 + into_session_s
        events = [event(A, ASSIGN, 1), event(A, REVOKE, 59), event(A, CLOSE, 60)]
        lived = {
            "clients": [client(A), client(B, killed=True)],
            "heartbeats": [*beats(A, 99), *beats(B, died_s)],
        }
        one = cell(assignments=events, observations=[drained(58)], group=group, **lived)
        return cases(orphaned(one))

    assert case_of(0.2) == [GroupCase.WAITED_FOR]
    assert case_of(-0.2) == [GroupCase.NO_CAUSE], "that session is over"
    assert case_of(99) == [GroupCase.NO_CAUSE], "it died only then"
    assert case_of(0.2, protocol="consumer") == [GroupCase.NO_CAUSE], "which waits for the owner alone"


def test_an_orphan_whose_last_owner_had_just_given_its_id_up_may_wait_for_the_session_of_that_id():
    def case_of(kind, lost_s, **more):
        events = [event(A, ASSIGN, 1), event(A, kind, lost_s), event(A, CLOSE, 60)]
        result = orphaned(cell(assignments=events, observations=[drained(50)], **more))
        return [int(case) for case in result.witnesses["case"]]

    session_s = session_ns(cell().cell) / 1e9
    assert case_of(LOST, 60 - session_s + 0.1) == [GroupCase.GAVE_UP]
    assert case_of(LOST, 60 - session_s - 0.1) == [GroupCase.NO_CAUSE], "that session is over"
    assert case_of(REVOKE, 60 - session_s + 0.1) == [GroupCase.NO_CAUSE], "whoever revokes keeps its id"
