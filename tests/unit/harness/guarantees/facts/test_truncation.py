"""What an unclean election cut off, from hand-made ground truth. Node 1 leads first; the clock error is 1 ms unless
stated."""

import pytest

from prozess.checkers.log import order
from prozess.harness.guarantees.facts.truncation import (
    IN_LOG_CASES,
    cutoff,
    cutoff_after_read,
    cutoff_of_either,
    cutoff_of_missing_record,
    unclean_before,
    unclean_between,
)
from prozess.harness.schema import NONE
from tests.support.cells.evidence import fault, mask, state, witnesses
from tests.unit.harness.guarantees.evidence.test_envelope import (
    NOT_SO,
    NOTHING_LEFT,
    SO,
    UNKNOWN,
    copies_end_at,
    envelope,
    failover,
    one,
)

# --- unclean elections ----------------------------------------------------------------------------------------------

UNCLEAN = [state(-10, 0, 1, 0, (1, 2, 3)), state(3, 0, 1, 0, (1,)), state(6, 0, 2, 1, (2,))]


def test_a_leader_from_outside_isr_and_elr_cuts_off_what_existed_before():
    assert one(cutoff(envelope(UNCLEAN, acks="all"), witnesses())) == SO
    assert one(cutoff(envelope(failover(), acks="all"), witnesses())) == NOT_SO


def test_the_end_of_a_reassignment_is_no_unclean_election():
    moving = state(-10, 0, 1, 0, (1, 2, 3)) | {"replicas": mask(1, 2, 3, 4)}
    ended = state(6, 0, 4, 1, (2, 3, 4)) | {"replicas": mask(2, 3, 4)}
    assert one(cutoff(envelope([moving, ended], acks="all"), witnesses())) == NOT_SO
    grown = ended | {"replicas": mask(1, 2, 3, 4), "isr": mask(4)}
    assert one(cutoff(envelope([moving, grown], acks="all"), witnesses())) == SO


def test_a_record_of_the_unclean_epoch_itself_is_not_cut_off():
    assert one(cutoff(envelope(UNCLEAN, acks="all"), witnesses(begin_s=7.5, end_s=7.6))) == NOT_SO


def test_a_send_under_way_during_the_unclean_election_is_unknown():
    assert one(cutoff(envelope(UNCLEAN, acks="all"), witnesses(begin_s=5.9, end_s=6.5))) == UNKNOWN


def test_what_an_isolated_leader_took_after_the_unclean_election_is_unknown_until_it_follows():
    rows = [*UNCLEAN, state(12, 0, 2, 1, (1, 2))]
    isolated = envelope(rows, fault(0, "partition", [1], 2, 9), acks="all")
    assert one(cutoff(isolated, witnesses(begin_s=8, end_s=8.1))) == UNKNOWN
    assert one(cutoff_after_read(isolated, witnesses(begin_s=8, end_s=8.1, seen_s=8.2))) == UNKNOWN
    assert one(cutoff(isolated, witnesses(begin_s=13, end_s=13.1))) == NOT_SO
    assert one(cutoff(envelope(rows, acks="all"), witnesses(begin_s=8, end_s=8.1))) == NOT_SO


def test_a_send_that_began_after_the_old_leaders_death_is_not_cut_off():
    killed = fault(0, "kill", [1], 4.5, 9)
    assert one(cutoff(envelope(UNCLEAN, killed, acks="all"), witnesses(begin_s=5.5, end_s=6.5))) == NOT_SO


def test_an_offset_is_given_away_again_by_an_unclean_election_after_either_was_seen():
    env = envelope(UNCLEAN, acks="all")
    assert one(cutoff_of_either(env, witnesses(other_s=9.0))) == SO
    assert one(cutoff_of_either(env, witnesses(begin_s=8, end_s=8.1, other_s=9.0))) == NOT_SO
    assert one(cutoff_of_either(envelope(failover(), acks="all"), witnesses(other_s=9.0))) == NOT_SO


def test_only_offsets_from_the_start_of_the_unclean_epoch_on_are_cut_off():
    assert one(cutoff(envelope(UNCLEAN, acks="all", epoch_starts={0: 0, 1: 100}), witnesses())) == SO
    assert one(cutoff(envelope(UNCLEAN, acks="all", epoch_starts={0: 0, 1: 101}), witnesses())) == NOT_SO


def test_an_election_from_elr_is_clean():
    rows = [state(-10, 0, 1, 0, (1,), elr=(2,)), state(6, 0, 2, 1, (2,))]
    assert one(cutoff(envelope(rows, acks="all"), witnesses())) == NOT_SO


def test_the_last_known_leader_is_harmless_unless_its_data_was_destroyed():
    rows = [
        state(-10, 0, 1, 0, (1,)),
        state(5, 0, NONE, 1, (), last=1),
        state(9, 0, 1, 2, (1,)),
    ]
    assert one(cutoff(envelope(rows, fault(0, "kill", [1], 4.5, 8), acks="all"), witnesses())) == NOT_SO
    assert one(cutoff(envelope(rows, fault(0, "wipe", [1], 4.5, 8), acks="all"), witnesses())) == SO


def test_it_is_so_too_where_the_only_eligible_replica_returns_from_a_crash():
    rows = [
        state(-10, 0, 1, 0, (1,), elr=(2,)),
        state(5, 0, NONE, 1, (), elr=(2,), last=1),
        state(9, 0, 1, 2, (1,)),
    ]
    assert one(cutoff(envelope(rows, fault(0, "kill", [1], 4.5, 8), acks="all"), witnesses())) == NOT_SO
    assert one(cutoff(envelope(rows, fault(0, "wipe", [1], 4.5, 8), acks="all"), witnesses())) == SO


def test_without_ground_truth_uncleanness_is_false_only_by_configuration():
    assert one(cutoff(envelope([], acks="all"), witnesses())) == NOT_SO
    assert one(cutoff(envelope([], acks="all", unclean_enabled=True), witnesses())) == UNKNOWN
    assert one(cutoff(envelope([], fault(0, "mystery", [1], 1, 2), acks="all"), witnesses())) == UNKNOWN


@pytest.mark.parametrize(("seen_s", "expected"), [(5.0, SO), (6.5, UNKNOWN)])
def test_a_read_before_the_unclean_election_is_excused_and_one_after_it_doubtful(seen_s, expected):
    found = cutoff_after_read(envelope(UNCLEAN, acks="all"), witnesses(begin_s=4, end_s=4.1, seen_s=seen_s))
    assert one(found) == expected


def test_a_record_sent_after_the_unclean_election_and_read_is_not_excused():
    found = cutoff_after_read(envelope(UNCLEAN, acks="all"), witnesses(begin_s=7.5, end_s=7.6, seen_s=7.7))
    assert one(found) == NOT_SO


def test_positions_mean_nothing_after_an_unclean_election():
    env = envelope(UNCLEAN)
    assert one(unclean_before(env, witnesses(begin_s=4, end_s=7))) == SO
    assert one(unclean_before(env, witnesses(begin_s=4, end_s=5))) == NOT_SO


# --- by epochs ------------------------------------------------------------------------------------------------------

FENCED = [*UNCLEAN, state(12, 0, 2, 1, (1, 2))]
"""Leader 1 was fenced at 6 s, alive, and is back in the ISR at 12 s."""
BEHIND = 2**31
"""The epoch of whatever is behind the end of the log."""


def told(rows, epoch, *, starts=NOTHING_LEFT, **columns):
    env = envelope(rows, acks="all", epoch_starts=starts)
    return one(cutoff_of_missing_record(env, witnesses(leader_epoch=epoch, **columns)))


def test_what_a_living_leader_gave_out_after_it_was_deposed_unclean_is_cut_off_by_its_epoch_at_any_time():
    late = {"begin_s": 10, "end_s": 10.1, "seen_s": 10.2}
    assert told(FENCED, 0, **late) == SO
    assert told(FENCED, 1, **late) == NOT_SO
    env = envelope(FENCED, acks="all")
    assert one(cutoff_after_read(env, witnesses(leader_epoch=0, **late))) == SO
    assert one(cutoff_after_read(env, witnesses(leader_epoch=1, **late))) == NOT_SO


def test_a_record_of_the_epoch_that_the_log_still_has_at_its_offset_was_not_cut_off():
    assert told(UNCLEAN, 0, starts={0: 0, 1: 100, BEHIND: 200}) == SO
    assert told(UNCLEAN, 0, starts={0: 0, 1: 101, BEHIND: 200}) == NOT_SO


def test_an_unclean_leader_brings_an_older_tail_of_its_own():
    """Seen: the leader of epoch 2 had been that of epoch 0, and what epoch 1 had at the same offsets was gone, although its
    own epoch began behind them."""
    rows = [
        state(-10, 0, 1, 0, (1, 2)),
        state(3, 0, 2, 1, (2,)),
        state(6, 0, 1, 2, (1,)),
    ]
    starts = {0: 0, 2: 103, BEHIND: 200}
    assert told(rows, 1, starts=starts) == SO
    assert told(rows, 0, starts=starts) == NOT_SO
    assert told(rows, NONE, starts=starts, begin_s=4.5, end_s=4.6) == SO


def test_a_deposed_leader_that_leads_again_unclean_cuts_off_below_its_new_epoch_what_the_one_between_gave_out():
    """Broker 3 leads, and dies with a tail of its own up to offset 103; broker 1 gives out another record at offset 100; 3
    returns alone. Seen: 4 records at offsets 474 to 477, and the new epoch began at 478."""
    rows = [state(-10, 0, 3, 0, (1, 2, 3)), state(5, 0, 1, 1, (1, 2)), state(9, 0, -1, 1, ()), state(12, 0, 3, 2, (3,))]
    env = envelope(rows, acks="1", epoch_starts={0: 0, 2: 104, BEHIND: 200})
    assert one(cutoff_after_read(env, witnesses(begin_s=1.7, end_s=7, seen_s=7.5))) == SO
    assert one(cutoff_after_read(env, witnesses(begin_s=1.7, end_s=1.8, seen_s=1.9))) == NOT_SO, (
        "3 kept what it gave out"
    )
    assert one(cutoff_after_read(env, witnesses(begin_s=1.7, end_s=7, seen_s=20))) == NOT_SO, "it was cut off before"


def test_a_clean_leader_that_began_without_it_is_not_excused_by_a_later_unclean_election():
    rows = [state(-10, 0, 1, 0, (1, 2, 3)), state(3, 0, 2, 1, (2, 3)), state(4, 0, 2, 1, (2,)), state(6, 0, 3, 2, (3,))]
    assert told(rows, 0, starts={0: 0, 1: 90, 2: 95, BEHIND: 200}, end_s=2.0, begin_s=1.9) == NOT_SO
    assert told(rows, 0, starts={0: 0, 2: 95, BEHIND: 200}, end_s=2.0, begin_s=1.9) == SO
    assert told(rows, 1, starts={0: 0, 1: 90, 2: 95, BEHIND: 200}) == SO


def test_of_an_unread_record_every_leader_that_may_have_acknowledged_it_is_asked():
    starts = {0: 0, 1: 50, BEHIND: 90}
    behind_the_end = {"begin_s": 10, "end_s": 10.1}
    env = envelope(FENCED, acks="all", epoch_starts=starts, batches=copies_end_at(89))
    assert one(cutoff_of_missing_record(env, witnesses(**behind_the_end))) == SO
    back_in_sync = witnesses(begin_s=13, end_s=13.1)
    assert one(cutoff_of_missing_record(env, back_in_sync)) == NOT_SO
    longer = envelope(FENCED, acks="all", epoch_starts={0: 0, 1: 50, BEHIND: 200}, batches=copies_end_at(199))
    assert one(cutoff_of_missing_record(longer, witnesses(**behind_the_end))) == NOT_SO
    assert one(cutoff_of_missing_record(longer, witnesses(case=1, **behind_the_end))) == SO
    clean = [state(-10, 0, 1, 0, (1, 2)), state(6, 0, 2, 1, (2,)), state(12, 0, 2, 1, (1, 2))]
    env = envelope(clean, acks="all", epoch_starts=starts, batches=copies_end_at(89))
    assert one(cutoff_of_missing_record(env, witnesses(**behind_the_end))) == NOT_SO


def test_it_is_unknown_where_one_of_those_leaders_would_have_lost_it_cleanly():
    rows = [
        *(state(-10, 0, 1, 0, (1, 2, 3)), state(3, 0, 2, 1, (2, 3)), state(3.5, 0, 2, 1, (1, 2, 3))),
        *(state(3.6, 0, 2, 1, (2,)), state(6, 0, 3, 2, (3,)), state(12, 0, 3, 2, (2, 3))),
    ]
    starts = {0: 0, 1: 50, 2: 60, BEHIND: 200}
    env = envelope(rows, acks="all", epoch_starts=starts)
    across_both = witnesses(begin_s=2.9, end_s=6.5, case=1)
    assert one(cutoff_of_missing_record(env, across_both)) == UNKNOWN
    across_the_unclean_one = witnesses(begin_s=5.5, end_s=6.5, case=1)
    assert one(cutoff_of_missing_record(env, across_the_unclean_one)) == SO


def test_of_two_records_the_one_that_is_in_no_log_is_asked_for_its_epoch():
    env = envelope(FENCED, acks="all", epoch_starts={0: 0, 1: 50, BEHIND: 200})
    late = {"begin_s": 10, "end_s": 10.1, "other_s": 20.0}
    against_the_audit, against_a_consumer = 3, 5
    assert one(cutoff_of_either(env, witnesses(case=against_the_audit, leader_epoch=0, **late))) == SO
    assert one(cutoff_of_either(env, witnesses(case=against_the_audit, leader_epoch=1, **late))) == NOT_SO
    assert one(cutoff_of_either(env, witnesses(case=against_a_consumer, leader_epoch=0, **late))) == NOT_SO


def test_the_kernels_cases_in_which_the_other_record_is_in_the_log_are_known_here():
    in_log = (order.ACKNOWLEDGEMENT_AGAINST_AUDIT, order.CONSUMER_AGAINST_AUDIT, order.AUDIT_AGAINST_AUDIT)
    assert in_log == IN_LOG_CASES


@pytest.mark.parametrize(
    ("earlier", "later", "expected"), [(0, 1, SO), (0, 2, SO), (1, 2, NOT_SO), (1, 1, NOT_SO), (0, 0, NOT_SO)]
)
def test_a_watermark_may_fall_only_from_one_side_of_an_unclean_election_to_the_other(earlier, later, expected):
    rows = [*UNCLEAN, state(8, 0, 2, 1, (1, 2)), state(9, 0, 1, 2, (1, 2))]
    found = unclean_between(envelope(rows), witnesses(sequence=later, other_sequence=earlier))
    assert one(found) == expected


def test_nothing_is_cut_off_where_there_are_no_witnesses():
    for env in (envelope([]), envelope(failover()), envelope(FENCED, epoch_starts={0: 0, 1: 50, BEHIND: 200})):
        for predicate in (
            cutoff,
            cutoff_after_read,
            cutoff_of_either,
            cutoff_of_missing_record,
            unclean_before,
            unclean_between,
        ):
            assert predicate(env, witnesses(0)).shape == (0,), predicate.__name__
