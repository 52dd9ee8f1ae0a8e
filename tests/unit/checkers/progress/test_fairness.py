"""Members of a group that are left without a partition: found, and not the near miss. Times in seconds: all live for 99."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.checkers.progress.fairness import starved
from prozess.checkers.progress.stability import settle_ns
from prozess.harness.config.configuration import GroupConfiguration
from prozess.harness.guarantees.table.cell_configuration import has_other_assignor
from prozess.harness.interfaces.witnesses import GroupCase
from prozess.harness.plan.bounds import Bounds
from prozess.harness.schema import NONE
from tests.support.cells.evidence import ns
from tests.support.cells.groups import ASSIGN, CLOSE, REVOKE, A, B, C, beats, cell, client, event
from tests.support.cells.partitions import PARTITION

OTHER, THIRD = PARTITION + 1, PARTITION + 2
FAST = {"session_timeout_ms": 4000}
SETTLE_S = settle_ns(cell(group=FAST).cell, Bounds().rebalance_delay_ns) / 1e9
TURN_S = SETTLE_S + 4
LIVE = [client(one) | {"started_ns": 0} for one in (A, B, C)]


def of(partition, *events):
    return [one | {"partition": partition} for one in events]


def learned(member, at_s=1.0):
    """A callback by which a member learns that there is nothing for it."""
    return of(NONE, event(member, ASSIGN, at_s))


def kept(member, *partitions, begin_s=1.0, end_s=90.0):
    return [row for p in partitions for row in of(p, event(member, ASSIGN, begin_s), event(member, CLOSE, end_s))]


def result_of(*rows, members=(A, B), partitions=(PARTITION, OTHER, THIRD), derived=(), late=(), group=None, **tables):
    clients = tables.pop("clients", [row for row in LIVE if row["client"] in members])
    heartbeats = tables.pop("heartbeats", [row for one in members for row in beats(one, 99)])
    made = cell(
        clients=clients,
        assignments=sorted(rows, key=lambda row: row["started_ns"]),
        group=FAST | (group or {}),
        heartbeats=heartbeats,
        **tables,
    )
    planned = made.cell.model_copy(update={"partitions": partitions, "derived": derived, "late_partitions": late})
    own = made.partitions[PARTITION]
    return starved(replace(made, cell=planned, partitions={p: replace(own, partition=p) for p in partitions}))


def found(*rows, **given):
    result = result_of(*rows, **given)
    assert result.incomplete is None
    assert result.count == len(result.witnesses)
    return [
        (int(w["reader"]), int(w["other_client"]), int(w["partition"]), round(w["end_ns"] / 1e9, 3), int(w["case"]))
        for w in result.witnesses
    ]


def test_a_member_without_a_partition_beside_one_that_has_two_starves_in_each_turn_that_it_lasts():
    turns = [round(1 + SETTLE_S + n * TURN_S, 3) for n in range(4)]
    assert found(*kept(A, PARTITION, OTHER), *learned(B)) == [(B, A, OTHER, t, GroupCase.IDLE) for t in turns]


def test_one_that_was_never_informed_of_anything_starves_too_and_has_come_after_a_while():
    turns = [round(2 * SETTLE_S + n * TURN_S, 3) for n in range(3)]
    assert found(*kept(A, PARTITION, OTHER)) == [(B, A, OTHER, t, GroupCase.UNASSIGNED) for t in turns]


@pytest.mark.parametrize(
    "rows",
    [
        [*kept(A, PARTITION), *learned(B)],
        [*kept(A, PARTITION, OTHER), *kept(B, THIRD)],
        [*kept(A, PARTITION, OTHER, end_s=SETTLE_S), *learned(B)],
        [*kept(A, PARTITION, OTHER), *learned(B), *of(NONE, event(B, CLOSE, 3))],
    ],
    ids=["nobody has two", "both have some", "not for long enough", "it left the group"],
)
def test_this_is_no_starvation(rows):
    assert found(*rows) == []


def test_partitions_of_two_topics_do_not_count_together():
    rows = [*kept(A, PARTITION, OTHER), *learned(B)]
    assert found(*rows, derived=(OTHER,)) == []
    assert {partition for _, _, partition, *_ in found(*rows, derived=(THIRD,))} == {OTHER}


def test_a_partition_that_was_added_may_be_of_another_topic():
    rows = [*kept(A, PARTITION, OTHER), *learned(B)]
    assert found(*rows, late=(OTHER,)) == []
    assert found(*kept(A, PARTITION, OTHER), *kept(B, THIRD), late=(THIRD,)) == [], "nobody is without one"
    assert found(*rows, *kept(C, THIRD), late=(THIRD,), members=(A, B, C))


def test_who_has_most_is_named_and_everybody_who_has_none_is_a_witness():
    rows = [*kept(B, PARTITION, OTHER), *learned(A), *learned(C)]
    assert {(who, other) for who, other, *_ in found(*rows, members=(A, B, C))} == {(A, B), (C, B)}
    more = [*kept(A, 40, 41), *kept(B, PARTITION, OTHER, THIRD), *learned(C)]
    partitions = (PARTITION, OTHER, THIRD, 40, 41)
    assert {(who, other) for who, other, *_ in found(*more, members=(A, B, C), partitions=partitions)} == {(C, B)}


def test_a_member_that_was_given_one_in_between_did_not_starve_in_that_turn():
    rows = [*kept(A, PARTITION, OTHER), *learned(B), *of(THIRD, event(B, ASSIGN, 24), event(B, REVOKE, 26))]
    all_turns = [round(1 + SETTLE_S + n * TURN_S, 3) for n in range(4)]
    fed = [t for t in all_turns if t - SETTLE_S < 26 and t >= 24]
    assert fed
    assert [t for *_, t, _ in found(*rows)] == [t for t in all_turns if t not in fed]


@pytest.mark.parametrize(
    "change",
    [
        {"heartbeats": [*beats(A, 99), *(row for row in beats(B, 99) if row["time_ns"] // ns(1) % 12 < 9)]},
        {"group": {"max_poll_interval_ms": 4000}},
        {"clients": [LIVE[0], client(B) | {"started_ns": ns(75)}]},
    ],
    ids=["it stood still again and again", "it may have polled too rarely", "it came late"],
)  # fmt: skip
def test_who_may_not_have_been_a_member_all_the_time_does_not_starve(change):
    assert found(*kept(A, PARTITION, OTHER), *learned(B, 76 if "clients" in change else 1), **change) == []


def test_without_heartbeats_nothing_is_concluded_and_one_member_alone_shares_with_nobody():
    assert result_of(*kept(A, PARTITION, OTHER), heartbeats=beats(A, 99)).incomplete
    alone = result_of(*kept(A, PARTITION, OTHER), members=(A,))
    assert (alone.count, alone.judged, alone.incomplete) == (0, 0, None)


@given(
    owners=st.dictionaries(st.sampled_from((PARTITION, OTHER, THIRD)), st.sampled_from((A, B, C))),
    members=st.sets(st.sampled_from((A, B, C)), min_size=2),
)
@settings(max_examples=60, deadline=None)
def test_as_long_as_nothing_moves_exactly_those_starve_who_have_none_beside_one_that_has_two(owners, members):
    owned = [owner for owner in owners.values() if owner in members]
    rows = [row for p, owner in owners.items() if owner in members for row in kept(owner, p)]
    starving = {one for one in members if one not in owned} if any(owned.count(o) > 1 for o in owned) else set()
    rows += [row for one in members for row in learned(one)]
    assert {who for who, *_ in found(*rows, members=tuple(members))} == starving


@pytest.mark.parametrize(
    ("properties", "other"),
    [
        ({}, False),
        ({"partition.assignment.strategy": "range,roundrobin"}, False),
        ({"partition.assignment.strategy": "[class org.apache.kafka.clients.consumer.RangeAssignor]"}, False),
        ({"partition.assignment.strategy": "com.acme.RangeAssignor"}, True),
        ({"group.remote.assignor": "uniform"}, False),
        ({"group.remote.assignor": "by-weight"}, True),
    ],
)
def test_assignors_of_somebody_else_are_known_by_their_names(properties, other):
    assert has_other_assignor(GroupConfiguration(properties=properties)) is other
