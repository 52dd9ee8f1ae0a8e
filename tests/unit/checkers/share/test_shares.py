"""Kernels of share groups: each with the smallest bad history, and the one next to it that is good."""

import pytest

from prozess.checkers.share.dead_letters import NEVER_READ, dead_letter_extra, dead_letter_missing
from prozess.checkers.share.deliveries import MAY_BE_HELD, NOT_ASKED, NOT_FINISHED, TOO_LATE
from prozess.checkers.share.given_up import given_up
from prozess.checkers.share.miscounted import miscounted
from prozess.checkers.share.redelivered import accepted_again, rejected_again
from prozess.checkers.share.start_offsets import share_start_regression
from prozess.checkers.share.two_holders import two_holders
from prozess.checkers.share.undelivered import undelivered
from prozess.harness.interfaces.witnesses import ShareCase
from prozess.harness.schema import ObservationKind, Outcome
from tests.support.cells.groups import beats, cases, drained
from tests.support.cells.shares import (
    ACCEPT,
    REJECT,
    RELEASE,
    A,
    B,
    dead_letters,
    ended,
    given,
    nothing_left,
    share_cell,
    start,
)
from tests.support.cells.shares import offsets as offset


def offsets(result):
    return result.witnesses["log_offset"].tolist()


def test_a_record_that_nobody_was_given_is_undelivered_once_the_group_was_asked_to_finish():
    some = [given(A, 0, 1, ACCEPT), given(B, 2, 1, ACCEPT)]
    found = undelivered(share_cell(*some))
    assert (offsets(found), found.judged, found.incomplete) == ([1, 3], 4, None)
    assert undelivered(share_cell(*some, given(A, 1, 2), given(A, 3, 2))).count == 0
    early = undelivered(share_cell(*some, observations=[]))
    assert (early.count, early.judged, early.incomplete) == (0, 0, NOT_ASKED)


def test_a_group_that_its_members_left_before_it_had_finished_owes_nothing_that_is_known():
    left = [offset(ObservationKind.DRAIN_BEGUN, 1_000, 50), offset(ObservationKind.SHARE_LAG, 3, 60)]
    given_s, quiet_s = 70, 1
    for heard_s, expected in ((70.5, NOT_FINISHED), (given_s + quiet_s, None)):
        beating = [*beats(A, heard_s), *beats(B, 99)]
        found = undelivered(share_cell(given(B, 0, given_s, ACCEPT), observations=left, heartbeats=beating))
        assert (found.count, found.incomplete) == (0 if expected else 3, expected)


@pytest.mark.parametrize("exit_code", [-9, 3])
def test_a_member_that_died_may_have_its_partitions_until_its_session_ends(exit_code):
    asked = [offset(ObservationKind.DRAIN_BEGUN, 1_000, 50), offset(ObservationKind.SHARE_LAG, 3, 60)]
    dead, session_s, quiet_s = 29.2, 45, 1
    for heard_s, code, expected in (
        (dead + session_s + quiet_s - 0.2, exit_code, MAY_BE_HELD),
        (dead + session_s + quiet_s + 0.2, exit_code, None),
        (dead + session_s + quiet_s - 0.2, 0, None),  # it left in order
    ):
        found = undelivered(
            share_cell(
                given(A, 0, 20, ACCEPT),
                observations=asked,
                heartbeats=[*beats(A, heard_s), *beats(B, dead)],
                clients=[ended(A, 0), ended(B, code)],
            )
        )
        assert (found.count, found.incomplete) == (0 if expected else 3, expected), heard_s


def test_what_stands_before_the_first_start_offset_that_was_seen_is_told_apart():
    found = undelivered(share_cell(observations=[*nothing_left(50), start(2, 1), start(4, 9)]))
    assert cases(found) == [ShareCase.BEFORE_START] * 2 + [ShareCase.NO_CAUSE] * 2


def test_who_was_given_another_record_at_an_offset_was_not_given_the_one_that_stands_there():
    every = [given(A, n, 1, ACCEPT) for n in range(4)]
    assert undelivered(share_cell(*every)).count == 0
    assert offsets(undelivered(share_cell(*every[:3], given(A, 3, 1, sequence=77)))) == [3]
    assert undelivered(share_cell(*every[:3], given(A, 3, 1, sequence=-1))).count == 0, "it could not be read"


@pytest.mark.parametrize(("kernel", "did"), [(accepted_again, ACCEPT), (rejected_again, REJECT)])
def test_a_record_that_comes_again_after_the_answer_is_a_witness(kernel, did):
    first = given(A, 1, 1, did)  # answered at 1.1 s
    found = kernel(share_cell(first, given(B, 1, 3, ACCEPT, count=2)))
    assert found.witnesses[["log_offset", "reader", "other_client"]].tolist() == [(1, B, A)]
    assert found.judged == 1 + (did == ACCEPT)
    near = [
        given(B, 1, 3, ACCEPT, count=2, absent_s=2.0),  # it may have been on its way for 1 s
        given(B, 2, 3, ACCEPT),
        given(B, 1, 3, ACCEPT, sequence=77),  # another record has the offset
    ]
    for other in near:
        assert kernel(share_cell(first, other)).count == 0
    assert kernel(share_cell(given(A, 1, 1, did, answered=False), given(B, 1, 3, count=2))).count == 0
    assert kernel(share_cell(given(A, 1, 1, RELEASE), given(B, 1, 3, count=2))).count == 0


def test_a_second_delivery_while_the_first_holds_for_certain_is_two_holders():
    held = given(A, 1, 2.1, ACCEPT, did_s=9)  # until 2.0 - 1 + 4 s
    found = two_holders(share_cell(held, given(B, 1, 4.5, count=2)))
    assert found.witnesses[["log_offset", "reader", "other_client"]].tolist() == [(1, B, A)]
    assert found.witnesses["begin_ns"].tolist() == [1_000_000_000]
    assert two_holders(share_cell(held, given(B, 1, 5.5, count=2))).count == 0, "the lock may have ended"
    assert two_holders(share_cell(held, given(B, 1, 5.5, count=2), lock_duration_ms=9_000)).count == 1


def test_who_acknowledges_died_or_learns_late_of_a_record_holds_it_no_longer():
    again = given(B, 1, 4.5, count=2)
    assert two_holders(share_cell(given(A, 1, 2.1, RELEASE, did_s=4), again)).count == 0
    assert two_holders(share_cell(given(A, 1, 2.1), again, heartbeats=[*beats(A, 4), *beats(B, 99)])).count == 0
    assert two_holders(share_cell(given(A, 1, 2.1), again, heartbeats=beats(B, 99))).count == 0
    assert two_holders(share_cell(given(A, 1, 2.1), given(B, 1, 4.5, absent_s=0))).count == 0, "it may be the older one"
    renewed = given(A, 1, 2.1, ACCEPT, did_s=9, renewed_s=4)
    assert two_holders(share_cell(renewed, given(B, 1, 7.5, count=2))).count == 1


def test_an_acknowledgement_of_an_earlier_delivery_that_was_on_its_way_may_end_the_next_one_of_the_same_member():
    """Seen: the lock of 4 s ended before the member was given the record, and the member acquired it again."""
    again, third = given(A, 1, 6.5, count=2), given(A, 1, 6.6, count=3)
    assert two_holders(share_cell(given(A, 1, 5.7, RELEASE, did_s=6.1), again, third)).count == 0
    assert two_holders(share_cell(given(A, 1, 5.7, RELEASE, did_s=6.1, answered=False), again, third)).count == 0
    assert two_holders(share_cell(given(A, 1, 2.1, RELEASE, did_s=2.2), again, third)).count == 1, "long before"
    assert two_holders(share_cell(given(B, 1, 5.7, RELEASE, did_s=6.1), again, third)).count == 1, "another member"
    assert two_holders(share_cell(again, third)).count == 1


def test_a_count_that_does_not_rise_or_rises_beyond_the_limit_is_miscounted():
    released = given(A, 1, 1, RELEASE)
    assert cases(miscounted(share_cell(released, given(B, 1, 3)))) == [ShareCase.RELEASE_FORGOTTEN]
    assert cases(miscounted(share_cell(given(A, 1, 1), given(B, 1, 9)))) == [ShareCase.NOT_RAISED]
    assert cases(miscounted(share_cell(given(A, 1, 1), given(B, 1, 9, count=6)))) == [ShareCase.BEYOND_LIMIT]
    for count in (2, 5):
        assert miscounted(share_cell(released, given(B, 1, 3, count=count))).count == 0
    assert miscounted(share_cell(released, given(B, 1, 3, count=-1))).count == 0, "none was given"


def test_a_lower_count_that_may_have_been_the_earlier_one_is_none():
    late = given(B, 1, 9, count=1, absent_s=0)
    assert miscounted(share_cell(given(A, 1, 1, count=2), late)).count == 0
    assert miscounted(share_cell(given(A, 1, 1, count=2), given(B, 1, 9, count=1))).count == 1


def test_a_record_that_the_group_finished_and_nobody_accepted_or_rejected_was_given_up():
    done = nothing_left(50)
    assert cases(given_up(share_cell(given(A, 1, 1, RELEASE), observations=done))) == [ShareCase.NO_CAUSE]
    assert cases(given_up(share_cell(given(A, 1, 1, RELEASE, count=4), observations=done))) == [ShareCase.ONE_SHORT]
    assert cases(given_up(share_cell(given(A, 1, 1, count=5), observations=done))) == [ShareCase.AT_LIMIT]
    for did in (ACCEPT, REJECT):
        unanswered = given(B, 1, 9, did, count=2, answered=False)
        assert given_up(share_cell(given(A, 1, 1, RELEASE), unanswered, observations=done)).count == 0, "in doubt"


def test_an_acknowledgement_that_came_too_late_leaves_a_record_given_up_at_the_limit_and_in_doubt_below():
    refused = {"outcome": Outcome.INFO, "code": TOO_LATE}
    for count, expected in ((5, [ShareCase.AT_LIMIT]), (4, [])):
        late = given(A, 1, 1, ACCEPT, count=count, did_s=9) | refused
        assert cases(given_up(share_cell(late, observations=nothing_left(50)))) == expected
    assert given_up(share_cell(late, given(B, 1, 20, ACCEPT, count=5), observations=nothing_left(50))).count == 0


def test_what_the_group_has_not_finished_was_not_given_up():
    released = given(A, 1, 1, RELEASE)
    assert given_up(share_cell(released, observations=[drained(50)])).judged == 0
    assert given_up(share_cell(released, observations=[*nothing_left(50)[:1], start(1, 9)])).count == 0
    assert given_up(share_cell(released, observations=[*nothing_left(50)[:1], start(2, 9)])).count == 1


def queued(*deliveries, queue, limit=3):
    return share_cell(*deliveries, observations=queue, delivery_count_limit=limit, dead_letter_replicas=1)


def test_what_was_rejected_or_exhausted_and_is_not_in_the_dead_letter_queue_is_missing_there():
    some = (
        *(given(A, 0, 1, REJECT), given(A, 1, 1, REJECT)),
        *(given(A, 2, 1, RELEASE, count=2), given(B, 2, 9, RELEASE, count=3)),
        given(A, 3, 1, ACCEPT),
    )
    found = dead_letter_missing(queued(*some, queue=dead_letters(0)))
    assert (offsets(found), cases(found), found.judged) == ([1, 2], [ShareCase.NO_CAUSE, ShareCase.AT_LIMIT], 3)
    assert dead_letter_missing(queued(*some, queue=dead_letters(0, 1, 2))).count == 0
    unread = dead_letter_missing(queued(*some, queue=nothing_left(50)))
    assert (unread.count, unread.incomplete) == (0, NEVER_READ)
    without = dead_letter_missing(share_cell(*some))
    assert (without.count, without.judged, without.incomplete) == (0, 0, None), "it has no queue"


@pytest.mark.parametrize(
    "near",
    [
        (given(A, 0, 1, REJECT, answered=False),),
        (given(A, 0, 1, REJECT), given(B, 0, 9, ACCEPT, count=2, answered=False)),  # it may be the accepted one
        (given(A, 0, 1, RELEASE, count=2),),
        (given(A, 0, 1, REJECT, count=3) | {"outcome": Outcome.INFO, "code": 0},),
    ],
)
def test_a_record_that_need_not_be_a_dead_letter_is_not_missed(near):
    assert dead_letter_missing(queued(*near, queue=dead_letters())).count == 0


def test_what_the_group_has_not_finished_need_not_be_in_the_queue_yet():
    read = [row for row in dead_letters() if row["kind"] != ObservationKind.SHARE_LAG]
    assert dead_letter_missing(queued(given(A, 0, 1, REJECT), queue=read)).count == 0
    assert dead_letter_missing(queued(given(A, 0, 1, REJECT), queue=[*read, start(1, 51)])).count == 1


def test_an_accepted_record_in_the_dead_letter_queue_is_extra_unless_it_may_have_been_exhausted():
    for count, expected in ((1, [ShareCase.NO_CAUSE]), (2, [ShareCase.ONE_SHORT]), (3, [])):
        found = dead_letter_extra(queued(given(A, 1, 1, ACCEPT, count=count), queue=dead_letters(1, 1)))
        assert cases(found) == expected, count
        assert found.judged == 2
    doubt = given(B, 1, 9, REJECT, count=2, answered=False)
    for near in ((given(A, 1, 1, ACCEPT), doubt), (given(A, 1, 1, ACCEPT, answered=False),), (given(A, 1, 1, REJECT),)):
        assert dead_letter_extra(queued(*near, queue=dead_letters(1))).count == 0
    assert dead_letter_extra(queued(given(A, 1, 1, ACCEPT), queue=dead_letters(2))).count == 0


def test_a_start_offset_that_one_member_was_answered_never_goes_back():
    found = share_start_regression(share_cell(observations=[start(3, 1), start(7, 2), start(5, 3)]))
    assert found.witnesses[["log_offset", "other_offset"]].tolist() == [(5, 7)]
    assert share_start_regression(share_cell(observations=[start(7, 1, B), start(5, 2, A), start(6, 3, A)])).count == 0
    assert share_start_regression(share_cell(observations=[start(7, 1), start(-1, 2), start(8, 3)])).count == 0
