"""What happened to records, from hand-made ground truth. Node 1 leads first; the clock error is 1 ms unless stated."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.guarantees.evidence.envelope import AppendedBatches, Envelope, TransactionTimes
from prozess.harness.guarantees.evidence.ground_truth import fault_records, timelines
from prozess.harness.guarantees.facts.retention import forgot, log_start_passed
from prozess.harness.guarantees.facts.stale_leaders import leader_hampered, out_of_sync_at_the_end
from prozess.harness.guarantees.facts.truncation import (
    committed,
    in_uncommitted_tail,
    wiped,
    wiped_after_it_was_there,
    wiped_after_read,
)
from prozess.harness.guarantees.facts.witnessed import OF_WITNESSES
from prozess.harness.guarantees.logic import all_true, any_true, negate
from prozess.harness.plan.catalogue import NATURES
from prozess.harness.schema import MISSING, NONE, MetadataSource, Outcome, Tristate
from tests.support.cells.evidence import DICTIONARIES, MS, fault, ns, state, witnesses
from tests.support.cells.partitions import table

SO, NOT_SO, UNKNOWN = 1, 0, -1
NOTHING_LEFT = {2**31: 0}
"""Of logs that end where they begin: what was in them is gone, by whichever epoch."""
MORE_NATURES = {**NATURES, "wipe": FaultNature(stops=True, destroys=True)}


def envelope(rows: list[dict[str, int]], faults: list[dict[str, int]] | None = None, **more: Any) -> Envelope:
    known = timelines(table("metadata", rows))
    logs = {"epoch_starts": NOTHING_LEFT}
    given = {"acks": "1", "unclean_enabled": False, "error_ns": MS, "lag_max_ns": ns(10)} | logs | more
    records = fault_records(table("faults", faults or []), DICTIONARIES, MORE_NATURES)
    return Envelope(**({"timeline": known[0]} if known else {}), faults=records, **given)


def failover(at_s: float = 6.0, *, elected_isr: tuple[int, ...] = (2, 3)) -> list[dict[str, int]]:
    return [state(-10, 0, 1, 0, (1, 2, 3)), state(at_s, 0, 2, 1, elected_isr)]


def one(found: np.ndarray) -> int:
    assert found.dtype == np.int8
    assert found.shape == (1,)
    return int(found[0])


# --- committed ------------------------------------------------------------------------------------------------------


def test_an_acks_all_acknowledgement_commits_and_an_acks_1_one_does_not():
    assert one(committed(envelope(failover(), acks="all"), witnesses())) == SO
    assert one(committed(envelope(failover(), acks="1"), witnesses())) == NOT_SO


def test_what_a_consumer_was_given_is_committed_whatever_acks():
    assert one(committed(envelope(failover(), acks="0"), witnesses(seen_s=4.5))) == SO


def test_a_high_watermark_above_the_offset_commits_only_in_the_same_leadership():
    def seen(at_s: float) -> Envelope:
        return envelope(failover(), high_watermarks=(np.array([ns(at_s)]), np.array([200])))

    assert one(committed(seen(5.0), witnesses())) == SO
    assert one(committed(seen(7.0), witnesses())) == NOT_SO
    assert one(committed(seen(3.0), witnesses())) == NOT_SO
    assert one(committed(seen(9.0), witnesses(begin_s=8, end_s=8.1))) == SO


def test_a_high_watermark_says_nothing_of_what_a_deposed_leader_acknowledged():
    later = (np.array([ns(20)]), np.array([200]))
    rows = [*failover(), state(12, 0, 2, 1, (1, 2, 3))]
    frozen = envelope(rows, fault(0, "pause", [1], 2, 9), high_watermarks=later)
    assert one(committed(frozen, witnesses(begin_s=9.1, end_s=9.2))) == NOT_SO
    during_the_move = envelope(rows, high_watermarks=later)
    assert one(committed(during_the_move, witnesses(begin_s=5.999, end_s=6.01))) == NOT_SO
    assert one(committed(envelope([], high_watermarks=later), witnesses())) == NOT_SO


# --- tail -----------------------------------------------------------------------------------------------------------


def test_a_leader_change_just_after_an_acks_1_acknowledgement_makes_it_tail():
    assert one(in_uncommitted_tail(envelope(failover()), witnesses())) == SO


def test_without_a_later_leader_change_nothing_is_tail():
    assert one(in_uncommitted_tail(envelope(failover(at_s=2.5)), witnesses())) == NOT_SO


def test_long_after_the_acknowledgement_a_leader_that_was_in_sync_throughout_had_the_record():
    assert one(in_uncommitted_tail(envelope(failover(at_s=19.0)), witnesses())) == SO
    assert one(in_uncommitted_tail(envelope(failover(at_s=19.2)), witnesses())) == NOT_SO


def test_a_leader_that_left_the_isr_in_between_need_not_have_had_it():
    rows = [
        state(-10, 0, 1, 0, (1, 2, 3)),
        state(8, 0, 1, 0, (1, 3)),
        state(12, 0, 1, 0, (1, 2, 3)),
        state(30, 0, 2, 1, (2, 3)),
    ]
    assert one(in_uncommitted_tail(envelope(rows), witnesses())) == SO


def test_a_leader_elected_from_elr_never_had_what_was_acknowledged_below_min_isr():
    rows = [state(-10, 0, 1, 0, (1,), elr=(2,)), state(40, 0, 2, 1, (2,))]
    assert one(in_uncommitted_tail(envelope(rows), witnesses())) == SO


def test_an_unknown_lag_limit_leaves_the_tail_unknown_if_the_new_leader_was_in_sync():
    assert one(in_uncommitted_tail(envelope(failover(at_s=19.2), lag_max_ns=None), witnesses())) == UNKNOWN
    rows = [state(-10, 0, 1, 0, (1,)), state(40, 0, 2, 1, (2,))]
    assert one(in_uncommitted_tail(envelope(rows, lag_max_ns=None), witnesses())) == SO


def test_a_leader_cut_off_for_a_while_may_not_have_shrunk_the_isr():
    cut = fault(0, "partition", [1], 5, 9)
    assert one(in_uncommitted_tail(envelope(failover(at_s=40), cut), witnesses())) == SO
    doubtful = fault(0, "partition", [1], 5, 9, effect=None)
    assert one(in_uncommitted_tail(envelope(failover(at_s=40), doubtful), witnesses())) == UNKNOWN
    elsewhere = fault(0, "partition", [3], 5, 9)
    assert one(in_uncommitted_tail(envelope(failover(at_s=40), elsewhere), witnesses())) == NOT_SO


def test_while_nobody_could_change_the_isr_a_follower_in_it_need_not_have_had_the_record():
    dead = fault(0, "kill", [3001], 5, 9)
    assert one(in_uncommitted_tail(envelope(failover(at_s=40), dead, keepers=frozenset({3001})), witnesses())) == SO
    long_before = fault(0, "kill", [3001], 1, 2)
    assert (
        one(in_uncommitted_tail(envelope(failover(at_s=40), long_before, keepers=frozenset({3001})), witnesses()))
        == NOT_SO
    )
    another = fault(0, "kill", [4001], 5, 9)
    assert (
        one(in_uncommitted_tail(envelope(failover(at_s=40), another, keepers=frozenset({3001})), witnesses())) == NOT_SO
    )


def test_the_leader_that_acknowledged_it_and_came_back_had_it():
    rows = [state(-10, 0, 1, 0, (1,)), state(5, 0, NONE, 1, (1,)), state(9, 0, 1, 2, (1,))]
    assert one(in_uncommitted_tail(envelope(rows, fault(0, "kill", [1], 4.5, 7)), witnesses())) == NOT_SO


def test_a_send_that_began_when_the_old_leader_was_dead_went_to_the_new_one():
    killed = fault(0, "kill", [1], 4.5, 9)
    assert one(in_uncommitted_tail(envelope(failover(), killed), witnesses(begin_s=5.0, end_s=6.5))) == NOT_SO
    assert one(in_uncommitted_tail(envelope(failover(), killed), witnesses(begin_s=4.4, end_s=6.5))) == SO


def test_a_deposed_leader_that_was_frozen_may_still_acknowledge_until_it_follows():
    rows = [*failover(at_s=6.0), state(12, 0, 2, 1, (1, 2, 3))]
    frozen = fault(0, "pause", [1], 2, 9)
    assert one(in_uncommitted_tail(envelope(rows, frozen), witnesses(begin_s=9.1, end_s=9.2))) == UNKNOWN, (
        "or it was the new one's"
    )
    assert one(in_uncommitted_tail(envelope(rows, frozen), witnesses(begin_s=9.1, end_s=9.2, case=1))) == SO
    assert (
        one(in_uncommitted_tail(envelope(rows, frozen, batches=copies_end_at(99)), witnesses(begin_s=9.1, end_s=9.2)))
        == SO
    )
    assert one(in_uncommitted_tail(envelope(rows, frozen), witnesses(begin_s=13, end_s=13.1))) == NOT_SO
    assert one(in_uncommitted_tail(envelope(rows), witnesses(begin_s=9.1, end_s=9.2))) == NOT_SO


def test_an_offset_given_twice_was_acknowledged_by_the_deposed_leader_until_it_is_back_in_sync():
    rows = [*failover(at_s=6.0), state(12, 0, 2, 1, (1, 2, 3))]
    taken = {"begin_s": 9.1, "end_s": 9.2, "case": 1}
    assert one(in_uncommitted_tail(envelope(rows), witnesses(**taken))) == SO
    assert one(in_uncommitted_tail(envelope(rows), witnesses(**taken | {"case": 0}))) == NOT_SO
    assert one(in_uncommitted_tail(envelope(rows), witnesses(**taken | {"begin_s": 13, "end_s": 13.1}))) == NOT_SO
    watermark = {"high_watermarks": (np.array([ns(10)]), np.array([1_000]))}
    assert one(committed(envelope(rows, **watermark), witnesses(**taken))) == NOT_SO, "it is the other record's"
    assert one(committed(envelope(rows, **watermark), witnesses(**taken | {"case": 0}))) == SO
    never_back = envelope(failover(at_s=6.0))
    assert one(in_uncommitted_tail(never_back, witnesses(**taken))) == NOT_SO


def copies_end_at(offset):
    """The copy that reaches furthest ends there."""
    one_batch = {
        name: np.array([0]) for name in ("base_offset", "producer_id", "producer_epoch", "attributes", "timestamp_ms")
    }
    return lambda: AppendedBatches(first_sequence=np.array([NONE]), last_offset=np.array([offset]), **one_batch)


def test_an_offset_that_the_new_leader_never_came_to_was_acknowledged_by_the_deposed_one_while_it_lived():
    rows = [*failover(at_s=6.0), state(12, 0, 2, 1, (1, 2, 3))]
    unaware, told = witnesses(begin_s=9.1, end_s=9.2), witnesses(begin_s=13, end_s=13.1)  # of offset 100
    assert one(in_uncommitted_tail(envelope(rows, batches=copies_end_at(99)), unaware)) == SO
    assert one(in_uncommitted_tail(envelope(rows, batches=copies_end_at(100)), unaware)) == NOT_SO
    assert one(in_uncommitted_tail(envelope(rows, batches=copies_end_at(99)), told)) == NOT_SO, "the new leader's own"
    assert one(in_uncommitted_tail(envelope(rows), unaware)) == NOT_SO, "no copy was read"
    dead = fault(0, "kill", [1], 4.5, 11)
    assert one(in_uncommitted_tail(envelope(rows, dead, batches=copies_end_at(99)), unaware)) == NOT_SO, (
        "the dead acknowledge nothing"
    )
    never_back = envelope(failover(at_s=6.0), batches=copies_end_at(99))
    assert one(in_uncommitted_tail(never_back, unaware)) == NOT_SO


def test_an_offset_below_the_start_of_the_new_epoch_is_no_tail():
    assert one(in_uncommitted_tail(envelope(failover(), epoch_starts={0: 0, 1: 100}), witnesses())) == SO
    assert one(in_uncommitted_tail(envelope(failover(), epoch_starts={0: 0, 1: 101}), witnesses())) == NOT_SO
    assert (
        one(in_uncommitted_tail(envelope(failover(), epoch_starts={0: 0, 1: 101}), witnesses(log_offset=NONE)))
        == UNKNOWN
    )
    assert one(in_uncommitted_tail(envelope(failover(), epoch_starts=None), witnesses())) == UNKNOWN, (
        "no logs were read"
    )
    # Another record stands there: the branch of the deposed leader was cut from further down.
    assert one(in_uncommitted_tail(envelope(failover(), epoch_starts={0: 0, 1: 101}), witnesses(case=1))) == SO


def test_a_leader_change_within_the_clock_error_counts():
    after = witnesses(begin_s=6.05, end_s=6.1)
    assert one(in_uncommitted_tail(envelope(failover(at_s=6.0), error_ns=100 * MS), after)) == SO
    assert one(in_uncommitted_tail(envelope(failover(at_s=6.0), error_ns=MS), after)) == UNKNOWN
    later = witnesses(begin_s=7.05, end_s=7.1)
    assert one(in_uncommitted_tail(envelope(failover(at_s=6.0), error_ns=100 * MS), later)) == UNKNOWN
    assert one(in_uncommitted_tail(envelope(failover(at_s=6.0), error_ns=MS), later)) == NOT_SO


def test_a_living_leader_answers_until_it_knows_that_it_was_deposed():
    just_after = witnesses(begin_s=6.5, end_s=6.6)
    assert one(in_uncommitted_tail(envelope(failover()), just_after)) == UNKNOWN, (
        "or the new one's, which has to keep it"
    )
    assert one(in_uncommitted_tail(envelope(failover()), witnesses(begin_s=6.5, end_s=6.6, case=1))) == SO
    assert one(in_uncommitted_tail(envelope(failover(), fault(0, "kill", [1], 5, 9)), just_after)) == NOT_SO


def test_a_leader_that_was_cut_off_is_hampered_while_nobody_leads_in_its_place_too():
    """Cut off from the controllers it was fenced and so was everybody: it goes on with the ISR that it knew."""
    rows = [state(-10, 0, 1, 0, (1, 2)), state(3, 0, NONE, 1, (1,)), state(9, 0, 2, 2, (2,))]
    sent = witnesses(begin_s=5, end_s=5.1)
    assert one(leader_hampered(envelope(rows, fault(0, "partition", [1], 1, 8), acks="all"), sent)) == SO
    assert one(leader_hampered(envelope(rows, fault(0, "partition", [3], 1, 8), acks="all"), sent)) == NOT_SO
    assert one(leader_hampered(envelope(rows, fault(0, "partition", [1], 1, 2), acks="all"), sent)) == NOT_SO


def test_a_leader_that_was_fenced_and_deposed_without_any_fault_is_hampered_until_it_is_in_sync_again():
    """The machine stood still: the controllers had not heard of it, and it had not heard of them."""
    fenced = [state(-10, 0, 1, 0, (1, 2, 3)), state(3, 0, 3, 1, (3,)), state(8, 0, 3, 1, (1, 3))]
    before, unaware, told = (witnesses(begin_s=s, end_s=s + 0.1) for s in (1, 5, 8.5))
    assert one(leader_hampered(envelope(fenced, acks="all"), before)) == NOT_SO
    assert one(leader_hampered(envelope(fenced, acks="all"), unaware)) == SO
    assert one(leader_hampered(envelope(fenced, acks="all"), told)) == NOT_SO
    leaderless = [
        state(-10, 0, 1, 0, (1, 2, 3)),
        state(3, 0, NONE, 1, (3,)),
        state(7, 0, 3, 2, (3,)),
        state(8, 0, 3, 2, (1, 3)),
    ]
    assert one(leader_hampered(envelope(leaderless, acks="all"), unaware)) == SO
    assert one(leader_hampered(envelope(leaderless, acks="all"), before)) == NOT_SO
    in_order = [state(-10, 0, 1, 0, (1, 2, 3)), state(3, 0, 3, 1, (1, 3))]
    assert one(leader_hampered(envelope(in_order, acks="all"), unaware)) == NOT_SO


def test_a_leader_that_was_restarted_in_its_turn_goes_on_acknowledging_and_may_lose_it_when_it_is_deposed():
    """A kill that holds has silenced the leader; of a rolling restart nobody is down once it is proven."""
    rows = [state(-10, 0, 1, 0, (1, 2, 3)), state(1, 0, 2, 1, (2, 3)), state(6, 0, 3, 2, (1, 3))]
    restarted = fault(0, "rolling-restart", [1, 2, 3], 0.5, 3)
    assert one(in_uncommitted_tail(envelope(rows, restarted), witnesses())) == SO
    assert one(in_uncommitted_tail(envelope(rows, fault(0, "kill", [2], 2, 3)), witnesses())) == NOT_SO


def test_without_ground_truth_tail_is_unknown_but_for_what_is_committed():
    assert one(in_uncommitted_tail(envelope([]), witnesses())) == UNKNOWN
    assert one(in_uncommitted_tail(envelope([]), witnesses(seen_s=4.2))) == NOT_SO


def test_samples_are_no_ground_truth():
    rows = [{**row, "source": MetadataSource.SAMPLE} for row in failover()]
    assert one(in_uncommitted_tail(envelope(rows), witnesses())) == UNKNOWN


def test_an_epoch_bumped_under_the_same_leader_moves_nothing():
    rows = [state(-10, 0, 1, 0, (1, 2, 3)), state(6, 0, 1, 1, (1, 2))]
    assert one(in_uncommitted_tail(envelope(rows), witnesses())) == NOT_SO


# --- destroyed copies -----------------------------------------------------------------------------------------------


def test_kills_and_freezes_and_cuts_destroy_nothing():
    rows = [*fault(0, "kill", [1, 2, 3], 5, 6), *fault(1, "pause", [1], 7, 8), *fault(2, "partition", [1], 7, 8)]
    assert one(wiped(envelope([], rows), witnesses())) == NOT_SO


def test_a_fault_nobody_described_or_proved_leaves_it_unknown():
    assert one(wiped(envelope(failover(), fault(0, "mystery", [1], 5, 6)), witnesses())) == UNKNOWN
    assert one(wiped(envelope(failover(), fault(0, "wipe", [1], 5, 6, effect=None)), witnesses())) == UNKNOWN
    assert one(wiped(envelope(failover(), fault(0, "wipe", [1], 5, 6, effect=Tristate.NO)), witnesses())) == NOT_SO


def test_the_only_copy_wiped_excuses_what_was_written_before_and_nothing_after():
    rows = [state(-10, 0, 1, 0, (1,)), state(5.5, 0, NONE, 1, (1,)), state(8, 0, 1, 2, (1,))]
    env = envelope(rows, fault(0, "wipe", [1], 5, 7), acks="all")
    assert one(wiped(env, witnesses())) == SO
    assert one(wiped(env, witnesses(begin_s=9, end_s=9.1))) == NOT_SO
    assert one(wiped_after_read(env, witnesses(seen_s=4.5))) == SO
    assert one(wiped_after_read(env, witnesses(seen_s=9.5))) == NOT_SO


def test_what_was_fetched_before_a_wipe_may_be_given_after_it_if_it_was_acknowledged_before():
    rows = [state(-10, 0, 1, 0, (1,)), state(5.5, 0, NONE, 1, (1,)), state(8, 0, 1, 2, (1,))]
    env = envelope(rows, fault(0, "wipe", [1], 5, 7), acks="all")

    def there(**columns):
        return one(wiped_after_it_was_there(env, witnesses(seen_s=9.5, **columns)))

    assert there() == SO
    assert there(end_s=9.1) == NOT_SO, "it may have been appended afterwards"
    assert there(begin_s=9, end_s=9.1) == NOT_SO
    assert there(outcome=Outcome.INFO, end_s=None) == UNKNOWN
    assert there(outcome=Outcome.INFO, begin_s=9, end_s=None) == NOT_SO
    assert one(wiped_after_it_was_there(env, witnesses(seen_s=4.5, outcome=Outcome.INFO, end_s=None))) == SO
    unasked = envelope(rows, fault(0, "wipe", [1], 5, 7), acks="0")
    assert one(wiped_after_it_was_there(unasked, witnesses(seen_s=9.5))) == UNKNOWN, "nobody acknowledged it"


def test_one_of_three_wiped_excuses_nothing_while_an_intact_copy_is_in_sync():
    env = envelope(failover(), fault(0, "wipe", [1], 5, 7), acks="all")
    assert one(wiped(env, witnesses())) == NOT_SO


def test_a_wiped_copy_that_came_back_into_the_isr_is_intact_again():
    rows = [
        state(-10, 0, 1, 0, (1, 2)),
        state(6, 0, 2, 1, (2,)),
        state(9, 0, 2, 1, (1, 2)),
        state(12, 0, 1, 2, (1,)),
    ]
    twice = [*fault(0, "wipe", [1], 5, 7), *fault(1, "wipe", [2], 11, 13)]
    assert one(wiped(envelope(rows, twice, acks="all"), witnesses())) == NOT_SO
    never_back = [rows[0], rows[1], state(12, 0, NONE, 2, (2,))]
    assert one(wiped(envelope(never_back, twice, acks="all"), witnesses())) == SO


ALL_DARK = [
    state(-10, 0, 1, 0, (1, 2, 3)),
    state(5.5, 0, NONE, 1, (1,)),
    state(8, 0, 1, 2, (1,)),
]


@pytest.mark.parametrize(("hit", "flushed", "expected"), [([1, 2, 3], False, SO), ([1, 2, 3], True, NOT_SO)])
def test_power_lost_by_all_destroys_what_was_not_flushed(hit, flushed, expected):
    faults = fault_records(table("faults", fault(0, "power-loss", hit, 5, 7)), DICTIONARIES, NATURES)
    env = envelope(ALL_DARK, acks="all")
    env = replace(env, faults=tuple(f.of_topic(flushed=flushed) for f in faults))
    assert one(wiped(env, witnesses())) == expected


@pytest.mark.parametrize(
    ("case", "other_s", "expected"),
    [(4, 4.0, SO), (4, 9.0, NOT_SO), (1, 4.0, NOT_SO)],
    ids=["the first was before", "both came later", "the first is in the log"],
)
def test_an_offset_is_given_away_again_where_the_first_of_two_records_was_destroyed(case, other_s, expected):
    faults = fault_records(table("faults", fault(0, "power-loss", [1, 2, 3], 5, 7)), DICTIONARIES, NATURES)
    env = replace(envelope(ALL_DARK, acks="all"), faults=tuple(f.of_topic(flushed=False) for f in faults))
    later = witnesses(begin_s=8.5, end_s=8.6, other_s=other_s, case=case)
    assert one(OF_WITNESSES["wiped of either"](env, later)) == expected


@pytest.mark.parametrize(
    ("hit", "brokers_flush", "end_s", "expected"),
    [
        ([1, 2, 3], False, 6.0, SO),
        ([1, 2, 3], False, 4.0, UNKNOWN),
        ([1, 2, 3], True, 6.0, NOT_SO),
        ([1, 2], False, 6.0, UNKNOWN),
    ],
)
@pytest.mark.parametrize("fact", ["group state lost", "transaction state lost"])
def test_what_coordinators_knew_is_lost_when_every_broker_lost_what_was_not_flushed(
    fact, hit, brokers_flush, end_s, expected
):
    faults = fault_records(table("faults", fault(0, "power-loss", hit, 5, 7)), DICTIONARIES, NATURES)
    env = replace(
        envelope(ALL_DARK, acks="all"), faults=faults, broker_ids=frozenset({1, 2, 3}), brokers_flush=brokers_flush
    )
    assert one(OF_WITNESSES[fact](env, witnesses(end_s=end_s))) == expected


@pytest.mark.parametrize(("end_s", "expected"), [(19.0, UNKNOWN), (21.0, SO), (31.0, SO)])
def test_a_decision_made_shortly_before_all_lost_power_may_have_had_no_markers_yet(end_s, expected):
    faults = fault_records(table("faults", fault(0, "power-loss", [1, 2, 3], 30, 32)), DICTIONARIES, NATURES)
    env = replace(envelope(ALL_DARK, acks="all"), faults=faults, broker_ids=frozenset({1, 2, 3}), brokers_flush=False)
    assert one(OF_WITNESSES["transaction decision lost"](env, witnesses(end_s=end_s))) == expected


def test_power_lost_by_one_of_three_excuses_nothing():
    faults = fault_records(table("faults", fault(0, "power-loss", [1], 5, 7)), DICTIONARIES, NATURES)
    env = replace(envelope(failover(), acks="all"), faults=tuple(f.of_topic(flushed=False) for f in faults))
    assert one(wiped(env, witnesses())) == NOT_SO


# --- the rest -------------------------------------------------------------------------------------------------------


def test_a_producer_is_forgotten_when_a_send_outlives_its_id():
    env = envelope([], producer_expiry_ns=ns(1))
    assert one(forgot(env, witnesses(begin_s=4, end_s=6))) == SO
    assert one(forgot(env, witnesses(begin_s=4, end_s=4.5))) == NOT_SO
    assert one(forgot(envelope([], producer_expiry_ns=None), witnesses())) == UNKNOWN


def test_a_log_start_beyond_the_position_was_seen():
    starts = (np.array([ns(4)]), np.array([150]))
    assert one(log_start_passed(envelope([], log_starts=starts), witnesses(log_offset=100, other_offset=160))) == SO
    seen_later = envelope([], log_starts=(np.array([ns(5)]), np.array([150])))
    assert one(log_start_passed(seen_later, witnesses(log_offset=100, other_offset=160))) == UNKNOWN
    assert one(log_start_passed(envelope([], log_starts=starts), witnesses(log_offset=150, other_offset=160))) == NOT_SO
    # The first record jumped over is the first that is left; the position was among those deleted.
    assert one(log_start_passed(envelope([], log_starts=starts), witnesses(log_offset=150, other_offset=120))) == SO
    assert one(log_start_passed(envelope([]), witnesses())) == NOT_SO


def test_predicates_of_no_witnesses_are_empty():
    nothing = witnesses(0)
    for env in (envelope([]), envelope(failover()), envelope(failover(), fault(0, "wipe", [1], 5, 7))):
        for predicate in (committed, in_uncommitted_tail, wiped, forgot):
            assert predicate(env, nothing).shape == (0,), predicate.__name__


@settings(deadline=None)
@given(st.lists(st.sampled_from([1, 0, -1]), min_size=1, max_size=4))
def test_logic_is_kleenes(values):
    parts = [np.array([v], dtype=np.int8) for v in values]
    all_of = 0 if 0 in values else -1 if -1 in values else 1
    any_of = 1 if 1 in values else -1 if -1 in values else 0
    assert int(all_true(*parts)[0]) == all_of
    assert int(any_true(*parts)[0]) == any_of
    assert int(negate(parts[0])[0]) == {1: 0, 0: 1, -1: -1}[values[0]]


@settings(deadline=None)
@given(
    begin=st.floats(0, 40),
    length=st.floats(0, 5),
    outcome=st.sampled_from(list(Outcome)),
    seen=st.one_of(st.none(), st.floats(0, 40)),
    error=st.sampled_from([0, 1, 500]),
)
def test_a_wider_clock_error_never_withdraws_a_tail(begin, length, outcome, seen, error):
    found = witnesses(
        begin_s=begin, end_s=begin + length, outcome=outcome, **({} if seen is None else {"seen_s": seen})
    )
    narrow = one(in_uncommitted_tail(envelope(failover(), error_ns=error * MS), found))
    wide = one(in_uncommitted_tail(envelope(failover(), error_ns=(error + 1000) * MS), found))
    assert not (narrow == SO and wide == NOT_SO)


def test_a_replica_that_ended_outside_the_isr_is_out_of_sync():
    ended = envelope([state(0, 0, 1, 0, [1, 2, 3]), state(5, 0, 1, 0, [1, 3])], acks="all")
    assert one(out_of_sync_at_the_end(ended, witnesses(reader=2, other_client=1))) == SO
    assert one(out_of_sync_at_the_end(ended, witnesses(reader=1, other_client=2))) == SO
    assert one(out_of_sync_at_the_end(ended, witnesses(reader=3, other_client=1))) == NOT_SO
    back = envelope([state(0, 0, 1, 0, [1]), state(5, 0, 1, 0, [1, 2, 3])], acks="all")
    assert one(out_of_sync_at_the_end(back, witnesses(reader=2, other_client=1))) == NOT_SO


def test_an_end_that_was_not_answered_in_time_concerns_what_its_client_sent_after_it_was_asked_for():
    names = ("client", "begun_ns", "end_invoked_ns", "completed_ns")
    ends = [
        (3, 0, 10, 11),
        (3, 20, 30, 45),
        (3, 50, 60, 90),
        (5, 5, 6, MISSING),
        (7, 0, 1, 2),
        (8, 0, MISSING, MISSING),
    ]
    rows = [dict(zip(names, end, strict=True)) | {"transaction": 0} for end in ends]
    times = TransactionTimes.of(table("transactions", rows))
    asked = {(3, 31): True, (3, 30): False, (5, 7): True, (5, 6): False, (7, 99): False, (8, 99): False, (9, 99): False}
    client, sent_ns = np.array(list(asked), dtype=np.int64).T
    assert times.end_took_long_before(client, sent_ns, 10).tolist() == list(asked.values())
    nobody = TransactionTimes.of(table("transactions", []))
    assert not nobody.end_took_long_before(client, sent_ns, 10).any()
