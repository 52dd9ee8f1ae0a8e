"""Groups that do not settle: found, and not the near miss. Times in seconds; A and B live from 0 to 99."""

from dataclasses import replace

import numpy as np
import pytest

from prozess.checkers.progress.stability import settle_ns, unstable
from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.evidence.ground_truth import fault_records, timelines
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration
from prozess.harness.guarantees.verdict.evaluation import Judgement, evaluate_witnesses
from prozess.harness.interfaces.witnesses import GroupCase, make_witnesses
from prozess.harness.plan.bounds import Bounds
from prozess.harness.plan.catalogue import NATURES
from prozess.harness.schema import ObservationKind
from tests.support.cells.evidence import DICTIONARIES, fault, ns, state
from tests.support.cells.groups import ASSIGN, CLOSE, LOST, REVOKE, A, B, C, beats, cell, client, event
from tests.support.cells.partitions import PARTITION, table

FAST = {"session_timeout_ms": 4000}
SETTLE_S = settle_ns(cell(group=FAST).cell, Bounds().rebalance_delay_ns) / 1e9
SESSION_S = 4.0
BEGUN = [event(A, ASSIGN, 1) | {"partition": 77}, event(B, ASSIGN, 1)]
"""Both had their first callbacks at 1 s; B has the partition."""
BOTH = [client(A) | {"started_ns": 0}, client(B) | {"started_ns": 0}]
CLOSED = [event(A, CLOSE, 90) | {"partition": 77}, event(B, CLOSE, 90)]


def found(*moves, clients=None, **tables):
    members = BOTH if clients is None else clients
    group = FAST | tables.pop("group", {})
    result = unstable(cell(clients=members, assignments=[*BEGUN, *moves, *CLOSED], group=group, **tables))
    assert result.incomplete is None
    assert result.count == len(result.witnesses)
    return [
        (int(w["reader"]), int(w["other_client"]), round(w["end_ns"] / 1e9, 3), int(w["case"]))
        for w in result.witnesses
    ]


def moved(at_s):
    return event(B, LOST, at_s - 0.1), event(A, ASSIGN, at_s), event(A, REVOKE, 89)


def test_a_partition_that_moves_long_after_the_last_member_came_is_unstable():
    assert found(*moved(60)) == [(A, B, 60.0, GroupCase.REASSIGNED)]


def test_and_one_that_moves_while_the_group_may_still_settle_is_not():
    assert found(*moved(1 + SETTLE_S - 0.1)) == []
    assert len(found(*moved(1 + SETTLE_S + 0.2))) == 1


def test_members_that_evict_one_another_are_found_as_often_as_they_do():
    moves = [event(who, kind, at) for at in range(40, 80, 4) for who, kind in ((B, LOST), (A, ASSIGN))]
    moves += [event(who, kind, at + 2) for at in range(40, 80, 4) for who, kind in ((A, LOST), (B, ASSIGN))]
    assert len(found(*moves)) == 20


def test_a_partition_that_nobody_owns_is_unstable_once_the_calm_has_lasted():
    assert found(event(B, REVOKE, 3)) == [(-1, B, 90.0, GroupCase.UNOWNED)]
    assert found(event(B, REVOKE, 80)) == []


def test_nobody_who_lives_need_own_what_the_dead_had():
    gone = [client(A, ended_s=30) | {"started_ns": 0}, client(B, ended_s=30) | {"started_ns": 0}]
    assert found(event(B, CLOSE, 29), event(A, CLOSE, 29), clients=gone) == []


@pytest.mark.parametrize(
    "change",
    [
        {
            "clients": [*BOTH, client(C) | {"started_ns": ns(50)}],
            "heartbeats": [r for c in (A, B, C) for r in beats(c, 99)],
        },
        {"clients": [BOTH[0], client(B, ended_s=55) | {"started_ns": 0}]},
        {"heartbeats": [*beats(A, 99, without=(50, 52)), *beats(B, 99)]},
        {"group": {"max_poll_interval_ms": 4000}},
    ],
    ids=["a member began", "a member ended", "a member stood still", "idle members may not have polled"],
)
def test_a_member_that_came_or_went_explains_it(change):
    assert found(*moved(60), **change) == []


def polled(member, begin_s, end_s=None):
    """It asked for records from then on without a pause, until then or until it ended."""
    value = -1 if end_s is None else ns(end_s - begin_s)
    return {"client": member, "kind": ObservationKind.POLLED, "time_ns": ns(begin_s), "value": value}


IDLE = {"group": {"max_poll_interval_ms": 4000}}
ASKING = [polled(A, 1), polled(B, 1)]


def test_idle_members_of_which_rows_say_that_they_poll_do_not_come_or_go():
    assert found(*moved(60), **IDLE, asked=ASKING) == [(A, B, 60.0, GroupCase.REASSIGNED)]
    assert found(*moved(60), **IDLE, asked=[polled(A, 1, 99), polled(B, 1, 62)]) == [(A, B, 60.0, GroupCase.REASSIGNED)]


@pytest.mark.parametrize(
    ("asked", "asleep"),
    [
        ([polled(A, 1)], None),
        ([polled(A, 1), polled(B, 1, 50)], None),
        ([polled(A, 1), polled(B, 1, 50), polled(B, 54.2)], None),
        (ASKING, (50, 54.5)),
    ],
    ids=[
        "one of them may not poll",
        "one of them stopped",
        "one of them worked for as long",
        "one of them stood still",
    ],
)
def test_idle_members_that_may_not_have_polled_explain_it(asked, asleep):
    hearts = {} if asleep is None else {"heartbeats": [*beats(A, 99), *beats(B, 99, without=asleep)]}
    assert found(*moved(60), **IDLE, asked=asked, **hearts) == []


def test_a_killed_member_counts_until_its_session_is_over():
    killed = [BOTH[0], client(B, killed=True) | {"started_ns": 0}]
    facts = {"clients": killed, "heartbeats": [*beats(A, 99), *beats(B, 40)]}
    again = (event(A, REVOKE, 89),)

    def taken_over(at_s):
        return found(event(A, ASSIGN, at_s), *again, **facts)

    assert taken_over(40 + SESSION_S + SETTLE_S - 0.2) == []
    assert [case for *_, case in taken_over(40 + SESSION_S + SETTLE_S + 0.2)] == [GroupCase.REASSIGNED]


def test_without_heartbeats_nothing_is_concluded():
    assert unstable(cell(assignments=[*BEGUN, *moved(60)], heartbeats=beats(A, 99))).incomplete


OTHERS_ONLY = (event(A, ASSIGN, 1) | {"partition": 77},)


def grown(*moves, begun=OTHERS_ONLY, partition=None):
    """What is found in a partition that was added, of which A and B are informed; and why nothing is."""
    made = cell(clients=BOTH, assignments=[*begun, *moves, *CLOSED], group=FAST, late=True)
    if partition is not None:
        made = replace(made, partitions={PARTITION: replace(made.partitions[PARTITION], **partition)})
    return unstable(made)


FIRST_OWNED = (event(A, ASSIGN, 1) | {"partition": 77}, event(B, ASSIGN, 40))
"""The added partition has its first owner at 40 s, when all members had come long before."""


def test_a_partition_that_was_added_has_to_settle_from_its_first_owner_on():
    assert (grown(begun=FIRST_OWNED).count, grown(begun=FIRST_OWNED).judged) == (0, 1)
    assert grown(*moved(40 + SETTLE_S - 0.1), begun=FIRST_OWNED).count == 0
    late = grown(*moved(40 + SETTLE_S + 0.2), begun=FIRST_OWNED)
    assert [(int(w["other_client"]), int(w["case"])) for w in late.witnesses] == [(B, GroupCase.REASSIGNED)]
    assert late.incomplete is None


def test_one_that_was_added_and_is_without_an_owner_again_is_unstable():
    result = grown(event(B, REVOKE, 42), begun=FIRST_OWNED)
    assert [int(w["case"]) for w in result.witnesses] == [GroupCase.UNOWNED]


def test_of_one_that_was_added_and_never_had_an_owner_it_is_not_known_when_the_group_learned():
    result = grown()
    assert (result.count, result.judged) == (0, 0)
    assert result.incomplete == f"partition {PARTITION} was added, and never had an owner"
    absent = grown(partition={"sends": table("sends", []), "metadata": table("metadata", [])})
    assert (absent.count, absent.judged, absent.incomplete) == (0, 0, None), "it was never added"


def test_the_other_partitions_of_a_group_are_judged_once_all_that_were_added_had_an_owner():
    made = cell(clients=BOTH, assignments=[*BEGUN, *moved(60), *CLOSED], group=FAST)
    own = made.partitions[PARTITION]
    for late, found in ((), 1), ((77,), 1), ((77, 78), 0):
        planned = made.cell.model_copy(update={"partitions": (PARTITION, 77, *late[1:]), "late_partitions": late})
        partitions = {number: replace(own, partition=number) for number in planned.partitions}
        result = unstable(replace(made, cell=planned, partitions=partitions))
        assert (result.count, result.incomplete is None) == (found, 78 not in late)


QUIET = [state(-10, 0, 1, 0, (1, 2, 3))]
NEW = CellConfiguration(acks="all", idempotent=True, retries=True, several_in_flight=True, version=(4, 3, 1))


def judged(*faults, metadata=QUIET, coordinators=()):
    rows = [row for made in faults for row in made]
    envelope = Envelope(
        acks="all",
        unclean_enabled=False,
        timeline=timelines(table("metadata", metadata)).get(0, Envelope(acks="all", unclean_enabled=False).timeline),
        faults=fault_records(table("faults", rows), DICTIONARIES, NATURES) if rows else (),
        coordinators_moved_ns=lambda: [ns(t) for t in coordinators],
    )
    one = make_witnesses(1, {"partition": PARTITION, "begin_ns": ns(40), "end_ns": ns(60), "other_ns": ns(10)})
    return Judgement(int(evaluate_witnesses("unstable", NEW, envelope, one).judgement[0]))


def test_a_group_that_does_not_settle_in_a_quiet_cluster_breaks_its_promise():
    assert judged() is Judgement.FORBIDDEN
    assert judged(fault(0, "kill", [2], 10, 30), coordinators=[39]) is Judgement.FORBIDDEN


def test_a_fault_or_a_change_of_leaders_shortly_before_makes_it_inapplicable():
    assert judged(fault(0, "kill", [2], 10, 45)) is Judgement.NOT_APPLICABLE
    assert judged(coordinators=[41]) is Judgement.NOT_APPLICABLE
    changed = [*QUIET, state(50, 0, 2, 1, (1, 2, 3))]
    assert judged(metadata=changed) is Judgement.NOT_APPLICABLE


def test_without_ground_truth_it_is_unknown():
    assert judged(metadata=[]) is Judgement.UNKNOWN


def test_the_bound_grows_with_heartbeats():
    slow, fast = (settle_ns(cell(group={"session_timeout_ms": ms}).cell, 0) for ms in (40_000, 4_000))
    assert slow > fast
    assert np.isclose(SETTLE_S, 13 + 4 * 1.0)
