"""What the kernels of the log report: for each anomaly a bad history and a near-miss good one, then the corner rules."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.checkers.log.duplicates import duplicate
from prozess.checkers.log.losses import LOST_ABSENT, LOST_REPLACED, lost, unseen
from prozess.checkers.log.order import REORDERED_OR_COPY, offset_conflict, reordered
from prozess.harness.interfaces.witnesses import WITNESSES_MAX
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import MISSING, NONE
from tests.support.cells.partitions import (
    CORRUPT,
    CRASHED,
    FAIL,
    INFO,
    OK,
    PRODUCER,
    PRODUCER_2,
    PRODUCER_ACKS_0,
    PRODUCER_ACKS_1,
    READER,
    READER_2,
    READER_COMMITTED,
    SENTINEL_NS,
    history,
)
from tests.support.examples import examples
from tests.support.kafka_model.forgotten import forgotten
from tests.support.kafka_model.partition import drawn_facts
from tests.support.kafka_model.unaudited import unaudited

FAR = 10**12

# --- lost -----------------------------------------------------------------------------------------------------------


def test_an_acknowledged_record_nobody_has_is_lost():
    result = lost(history([(PRODUCER, 0, OK, 0), (PRODUCER, 1, OK, 1)], log=[(0, PRODUCER, 0)]))
    assert (result.count, result.judged, result.incomplete) == (1, 2, None)
    witness = result.witnesses[0]
    assert (witness["client"], witness["sequence"], witness["log_offset"]) == (PRODUCER, 1, 1)
    assert (witness["begin_ns"], witness["end_ns"], witness["seen_ns"]) == (20, 25, MISSING)
    assert (witness["outcome"], witness["case"], witness["reader"]) == (OK, LOST_ABSENT, NONE)


def test_a_record_of_unknown_outcome_that_nobody_saw_is_not_lost():
    result = lost(history([(PRODUCER, 0, OK, 0), (PRODUCER, 1, INFO, NONE)], log=[(0, PRODUCER, 0)]))
    assert (result.count, result.judged) == (0, 1)


def test_a_record_of_unknown_outcome_that_a_consumer_saw_is_lost_if_the_log_lacks_it():
    sends = [(PRODUCER, 0, OK, 0), (PRODUCER, 1, INFO, NONE)]
    reads = [(READER, 1, PRODUCER, 1), (READER_2, 1, PRODUCER, 1)]
    result = lost(history(sends, [(0, PRODUCER, 0)], reads))
    assert (result.count, result.judged) == (1, 2)
    witness = result.witnesses[0]
    assert (witness["outcome"], witness["seen_ns"], witness["reader"]) == (INFO, 1_010, READER)
    assert (witness["begin_ns"], witness["log_offset"]) == (20, 1)


def test_a_record_of_unknown_outcome_in_the_log_is_proven_and_not_lost():
    result = lost(history([(PRODUCER, 0, INFO, NONE)], [(0, PRODUCER, 0)], [(READER, 0, PRODUCER, 0)]))
    assert (result.count, result.judged) == (0, 1)


def test_the_witness_of_a_lost_record_says_who_had_been_given_it():
    result = lost(history([(PRODUCER, 0, OK, 0)], [], [(READER, 0, PRODUCER, 0)]))
    assert result.count == 1
    assert (result.witnesses[0]["seen_ns"], result.witnesses[0]["reader"]) == (1_010, READER)


@pytest.mark.parametrize(("acknowledged", "read", "epoch"), [(4, 4, 2), (NONE, 4, 2), (5, 4, NONE)])
def test_it_says_in_which_leader_epoch_it_was_given_at_that_offset(acknowledged, read, epoch):
    reads = [(READER, read, PRODUCER, 0, {"leader_epoch": 2})]
    result = lost(history([(PRODUCER, 0, OK, acknowledged)], [], reads))
    assert result.witnesses["leader_epoch"].tolist() == [epoch]
    assert lost(history([(PRODUCER, 0, OK, acknowledged)])).witnesses["leader_epoch"].tolist() == [NONE]


def test_an_unrecorded_record_of_a_crashed_producer_that_was_read_and_is_gone_is_lost():
    result = lost(history([], [], [(READER, 0, CRASHED, 5)]))
    assert result.count == 1
    assert result.witnesses[0]["outcome"] == INFO
    assert result.witnesses[0]["begin_ns"] == MISSING


def test_a_phantom_is_never_lost():
    assert lost(history([], [], [(READER, 0, 99, 5)])).count == 0


OVERTAKEN = [(PRODUCER, 0, OK, NONE, {"completed_ns": 25}), (PRODUCER, 1, OK, 0), (PRODUCER, 2, OK, 1)]
"""0 was acknowledged at 25 ns, and nobody knows where; 1 was sent at 20 ns, and 2 at 30 ns."""
EPOCH = {"leader_epoch": 4}
FROM_0 = [(READER, 0, PRODUCER, 1, EPOCH), (READER, 1, PRODUCER, 2, EPOCH)]


def test_a_record_without_an_offset_is_lost_where_consumers_received_all_that_stands_before_a_later_one():
    """Seen: a topic made again, KAFKA-15591, and DeleteRecords: two records were unknown, and stood nowhere."""
    result = lost(history(OVERTAKEN, [(1, PRODUCER, 2, EPOCH)], FROM_0, log_start=1))
    assert (result.count, result.incomplete) == (1, None)
    assert (result.witnesses["sequence"].tolist(), result.witnesses["case"].tolist()) == ([0], [LOST_ABSENT])
    unaudited = replace(history(OVERTAKEN, [], FROM_0, sentinel=None), audited=False)
    assert (lost(unaudited).count, unseen(unaudited).count) == (1, 0)


@pytest.mark.parametrize(
    ("sends", "reads"),
    [
        (OVERTAKEN, FROM_0[1:]),
        (OVERTAKEN, [FROM_0[0], (READER, 2, PRODUCER, 2, EPOCH)]),
        (OVERTAKEN, [(READER, 0, PRODUCER, 1, CORRUPT | EPOCH), FROM_0[1]]),
        (OVERTAKEN[:2], FROM_0[:1]),
        ([(PRODUCER, 0, OK, NONE, {"completed_ns": 31}), *OVERTAKEN[1:]], FROM_0),
        (OVERTAKEN, [FROM_0[0], (READER, 1, PRODUCER, 2, {"leader_epoch": 5})]),
        ([(PRODUCER_ACKS_0, *OVERTAKEN[0][1:]), *OVERTAKEN[1:]], FROM_0),
    ],
    ids=[
        "not from 0 on",
        "with a gap",
        "with an unreadable one",
        "none was sent later",
        "nor after the acknowledgement",
        "what stood there may be another leader's",
        "and acks=0 acknowledges nothing",
    ],
)
def test_without_that_proof_a_record_without_an_offset_may_be_what_was_deleted(sends, reads):
    result = lost(history(sends, [(1, PRODUCER, 2, EPOCH)] if len(sends) > 2 else [], reads, log_start=1))
    assert result.count == 0
    assert result.incomplete


def test_nor_is_it_lost_if_a_consumer_received_it_later_and_what_stood_there_was_deleted():
    reads = [*FROM_0, (READER, 9, PRODUCER, 0, EPOCH)]
    result = lost(history([*OVERTAKEN, (PRODUCER, 3, OK, 10)], [(10, PRODUCER, 3)], reads, log_start=10))
    assert (result.count, result.incomplete) == (0, None)


def test_it_may_stand_in_the_log_of_a_later_leader_who_took_it_while_the_deposed_one_went_on():
    """An unclean election: consumers of the deposed leader, of epoch 4, received 1 and 2, which was sent when the new one had
    acknowledged 0. The log has what the new one wrote at 1, and nothing from before."""
    log = [(1, PRODUCER, 3, {"leader_epoch": 5})]
    result = lost(history([*OVERTAKEN[:2], (PRODUCER, 2, OK, NONE), (PRODUCER, 3, OK, 1)], log, FROM_0, log_start=1))
    assert 0 not in result.witnesses["sequence"].tolist()
    assert result.incomplete
    deleted = [(9, PRODUCER, 3, {"leader_epoch": 5})]
    result = lost(history([*OVERTAKEN, (PRODUCER, 3, OK, 9)], deleted, FROM_0, log_start=9))
    assert (result.count, bool(result.incomplete)) == (0, True), "nobody knows from where on the new one wrote"


def test_the_clock_of_whoever_sends_the_sentinels_is_no_producers():
    made = history(OVERTAKEN, [(1, PRODUCER, 2, EPOCH)], FROM_0, log_start=1)
    clocks = made.client_clock.copy()
    clocks[SENTINEL_CLIENT] = 2
    assert lost(replace(made, client_clock=clocks)).count == 1
    clocks[PRODUCER_2] = 3
    assert lost(replace(made, client_clock=clocks)).count == 1, "that one sent nothing here"
    clocks[PRODUCER] = NONE
    assert lost(replace(made, client_clock=clocks)).incomplete


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 2**32))
def test_no_record_is_lost_for_want_of_its_offset(seed):
    made, rng = drawn_facts(seed, duplicates=True)
    valid = forgotten(made.history(), rng, lose=False)
    for one in (valid, unaudited(valid)):
        assert lost(one).count == 0


def test_a_failed_send_is_never_lost():
    assert lost(history([(PRODUCER, 0, FAIL, NONE)], [], [(READER, 0, PRODUCER, 0)])).count == 0


def test_a_success_with_unknown_offset_takes_part_through_the_log():
    sends = [(PRODUCER, 0, OK, NONE), (PRODUCER, 1, OK, NONE)]
    assert lost(history(sends, [(0, PRODUCER, 0), (1, PRODUCER, 1)])).count == 0
    result = lost(history(sends, [(0, PRODUCER, 0)]))
    assert result.count == 1
    assert result.witnesses[0]["log_offset"] == NONE


def test_an_acks_0_success_that_is_not_in_the_log_is_lost():
    assert lost(history([(PRODUCER_ACKS_0, 0, OK, NONE)])).count == 1


def test_an_acks_1_acknowledgement_whose_offset_was_given_away_is_lost_and_no_conflict():
    bad = history([(PRODUCER_ACKS_1, 0, OK, 0), (PRODUCER, 0, OK, 0)], [(0, PRODUCER, 0)])
    result = lost(bad)
    assert (result.count, offset_conflict(bad).count) == (1, 0)
    witness = result.witnesses[0]
    assert (witness["case"], witness["other_client"], witness["other_offset"]) == (LOST_REPLACED, PRODUCER, 0)


def test_a_record_that_stands_elsewhere_than_acknowledged_is_not_lost():
    sends = [(PRODUCER_ACKS_1, 0, OK, 0), (PRODUCER, 0, OK, 0)]
    assert lost(history(sends, [(0, PRODUCER, 0), (1, PRODUCER_ACKS_1, 0)])).count == 0


def test_a_record_acknowledged_beyond_the_sentinel_before_that_was_sent_is_lost():
    assert lost(history([(PRODUCER, 0, OK, 9)], sentinel=3)).count == 1


def test_a_straggler_completed_after_the_sentinel_was_sent_is_not_judged():
    late = {"completed_ns": SENTINEL_NS + 1}
    for offset in (9, NONE):
        result = lost(history([(PRODUCER, 0, OK, offset, late)], sentinel=3))
        assert (result.count, result.judged) == (0, 0)


def test_a_straggler_acknowledged_below_the_sentinel_is_judged():
    assert lost(history([(PRODUCER, 0, OK, 2, {"completed_ns": SENTINEL_NS + 1})], sentinel=3)).count == 1


def test_a_record_that_the_audit_saw_behind_the_sentinel_is_not_lost():
    assert lost(history([(PRODUCER, 0, OK, NONE)], [(9, PRODUCER, 0)], sentinel=3)).count == 0


def test_without_a_complete_audit_nothing_is_lost_and_nothing_held():
    result = lost(history([(PRODUCER, 0, OK, 0)], sentinel=None))
    assert result.count == 0
    assert result.incomplete == "the audit of partition 7 at read_uncommitted did not reach its sentinel"


def test_what_retention_may_have_removed_is_not_lost():
    sends = [(PRODUCER, 0, OK, 4), (PRODUCER, 1, OK, 5)]
    result = lost(history(sends, log_start=5))
    assert (result.count, result.judged) == (1, 1)
    assert result.witnesses[0]["sequence"] == 1
    assert result.incomplete is None


def test_a_success_without_offset_may_have_been_removed_by_retention():
    result = lost(history([(PRODUCER, 0, OK, NONE)], log_start=5))
    assert result.count == 0
    assert result.incomplete is not None


def test_a_compacted_record_is_lost_only_if_its_key_has_no_later_record():
    sends = [(PRODUCER, 0, OK, 0, {"key": 1}), (PRODUCER, 1, OK, 1, {"key": 2}), (PRODUCER, 2, OK, 2, {"key": 1})]
    result = lost(history(sends, [(2, PRODUCER, 2, {"key": 1})], compacted=True))
    assert result.count == 1
    assert result.witnesses[0]["sequence"] == 1


def test_a_record_behind_the_latest_of_its_key_is_lost_though_compacted():
    sends = [(PRODUCER, 0, OK, 0, {"key": 1}), (PRODUCER, 1, OK, 1, {"key": 1})]
    assert lost(history(sends, [(0, PRODUCER, 0, {"key": 1})], compacted=True)).count == 1


def test_a_tombstone_may_be_compacted_away_entirely():
    tombstone = [(PRODUCER, 0, OK, 0, {"key": 1, "size": NONE})]
    assert lost(history(tombstone, compacted=True)).count == 0
    assert lost(history(tombstone)).count == 1


def test_a_record_without_key_is_not_compacted():
    sends = [(PRODUCER, 0, OK, 0), (PRODUCER, 1, OK, 1)]
    assert lost(history(sends, [(1, PRODUCER, 1)], compacted=True)).count == 1


def test_a_record_whose_place_holds_an_unreadable_one_is_corrupt_and_not_lost():
    result = lost(history([(PRODUCER, 0, OK, 0)], [(0, PRODUCER, 0, CORRUPT)]))
    assert (result.count, result.incomplete) == (0, None)


def test_a_success_without_offset_may_be_the_unreadable_record():
    result = lost(history([(PRODUCER, 0, OK, NONE)], [(0, PRODUCER, 0, CORRUPT)]))
    assert result.count == 0
    assert result.incomplete is not None


def test_a_reader_may_know_the_offset_that_an_acknowledgement_did_not_tell():
    sends = [(PRODUCER, 0, OK, NONE), (PRODUCER, 1, OK, 1)]
    result = lost(history(sends, [(1, PRODUCER, 1, CORRUPT)], [(READER, 0, PRODUCER, 0)]))
    assert (result.count, result.incomplete) == (1, None)
    assert (result.witnesses[0]["outcome"], result.witnesses[0]["log_offset"]) == (OK, 0)
    assert lost(history(sends, [(1, PRODUCER, 1)], [(READER, 0, PRODUCER, 0)], log_start=1)).count == 0


def test_in_a_transaction_only_what_was_seen_at_read_committed_is_proven():
    sends = [(PRODUCER, 0, INFO, NONE, {"transaction": 1})]
    assert lost(history(sends, [], [(READER, 0, PRODUCER, 0)])).count == 0
    assert lost(history(sends, [], [(READER_COMMITTED, 0, PRODUCER, 0)])).count == 1


def test_a_read_at_read_uncommitted_does_not_hide_a_record_whose_commit_another_record_proves():
    sends = [(PRODUCER, number, INFO, NONE, {"transaction": 1}) for number in range(2)]
    proof, read = (READER_COMMITTED, 0, PRODUCER, 0), (READER, 1, PRODUCER, 1)
    for reads in ([proof], [proof, read]):
        result = lost(history(sends, [(0, PRODUCER, 0)], reads))
        assert (result.witnesses["sequence"].tolist(), result.incomplete) == ([1], None)
    assert lost(history(sends, [(0, PRODUCER, 0)], [read], visible=[])).count == 0, "nothing proves the commit"


def test_a_reader_at_read_uncommitted_may_know_the_offset_of_a_record_whose_commit_is_proven():
    sends = [(PRODUCER, number, INFO, NONE, {"transaction": 1, "key": 9}) for number in range(2)]
    log = [(0, PRODUCER, 0, {"key": 9}), (5, PRODUCER_2, 0, {"key": 9})]
    for offset, count in ((7, 1), (3, 0)):
        read = (READER, offset, PRODUCER, 1, {"key": 9})
        assert lost(history(sends, log, [read], compacted=True)).count == count


# --- duplicate ------------------------------------------------------------------------------------------------------


def test_a_record_at_two_offsets_is_a_duplicate():
    result = duplicate(history([(PRODUCER, 0, OK, 3)], [(0, PRODUCER, 0), (3, PRODUCER, 0)]))
    assert (result.count, result.judged) == (1, 2)
    witness = result.witnesses[0]
    assert (witness["sequence"], witness["log_offset"], witness["other_offset"]) == (0, 3, 0)
    assert (witness["begin_ns"], witness["outcome"]) == (10, OK)


def test_each_copy_beyond_the_first_is_counted():
    log = [(0, PRODUCER, 0), (1, PRODUCER, 1), (2, PRODUCER, 0), (3, PRODUCER, 0), (4, PRODUCER, 1)]
    result = duplicate(history([], log))
    assert result.count == 3
    assert result.witnesses["log_offset"].tolist() == [2, 3, 4]
    assert result.witnesses["other_offset"].tolist() == [0, 0, 1]


def test_the_same_sequence_of_two_producers_is_no_duplicate():
    assert duplicate(history([], [(0, PRODUCER, 0), (1, PRODUCER_2, 0)])).count == 0


def test_one_record_read_twice_at_one_offset_is_no_duplicate():
    assert duplicate(history([], [(0, PRODUCER, 0), (0, PRODUCER, 0)])).count == 0


def test_a_copy_behind_the_sentinel_is_no_duplicate():
    assert duplicate(history([], [(0, PRODUCER, 0), (9, PRODUCER, 0)], sentinel=3)).count == 0


def test_two_unreadable_records_are_no_duplicates():
    assert duplicate(history([], [(0, PRODUCER, 0, CORRUPT), (1, PRODUCER, 1, CORRUPT)])).count == 0


def test_a_transactional_copy_counts_only_if_both_are_visible():
    sends, log = [(PRODUCER, 0, OK, 1, {"transaction": 3})], [(0, PRODUCER, 0), (1, PRODUCER, 0)]
    assert duplicate(history(sends, log, visible=[(1, PRODUCER, 0)])).count == 0
    assert duplicate(history(sends, log)).count == 1
    log = [(0, PRODUCER, 0), (1, PRODUCER, 0), (2, PRODUCER, 0)]
    result = duplicate(history(sends, log, visible=log[1:]))
    assert result.count == 1
    assert (result.witnesses[0]["log_offset"], result.witnesses[0]["other_offset"]) == (2, 1)


def test_a_duplicate_in_an_unfinished_audit_stands_and_none_is_not_held():
    result = duplicate(history([], [(0, PRODUCER, 0), (1, PRODUCER, 0)], sentinel=None))
    assert result.count == 1
    assert result.incomplete is not None


def test_more_witnesses_than_are_kept_are_counted_exactly():
    copies = WITNESSES_MAX + 5
    result = duplicate(history([], [(offset, PRODUCER, 0) for offset in range(copies + 1)], sentinel=copies + 2))
    assert (result.count, len(result.witnesses)) == (copies, WITNESSES_MAX)


# --- reordered ------------------------------------------------------------------------------------------------------


def test_a_record_that_stands_before_one_sent_earlier_is_reordered():
    sends = [(PRODUCER, 0, OK, 1), (PRODUCER, 1, OK, 0)]
    result = reordered(history(sends, [(0, PRODUCER, 1), (1, PRODUCER, 0)]))
    assert (result.count, result.judged) == (1, 2)
    witness = result.witnesses[0]
    assert (witness["sequence"], witness["log_offset"]) == (0, 1)
    assert (witness["other_sequence"], witness["other_offset"], witness["other_ns"]) == (1, 0, 20)


def test_a_late_second_copy_is_not_reordered():
    assert reordered(history([], [(0, PRODUCER, 0), (1, PRODUCER, 1), (2, PRODUCER, 0)])).count == 0


def test_a_first_copy_that_is_late_is_reordered_though_more_copies_follow():
    log = [(0, PRODUCER, 1), (1, PRODUCER, 0), (2, PRODUCER, 0), (3, PRODUCER, 1)]
    assert reordered(history([], log)).count == 1


def test_producers_are_not_ordered_among_each_other():
    log = [(0, PRODUCER, 5), (1, PRODUCER_2, 0), (2, PRODUCER, 6), (3, PRODUCER_2, 4)]
    assert reordered(history([], log)).count == 0


def test_interleaved_producers_are_judged_one_by_one():
    log = [(0, PRODUCER, 5), (1, PRODUCER_2, 7), (2, PRODUCER, 4), (3, PRODUCER_2, 8)]
    assert reordered(history([], log)).count == 1


def test_gaps_in_the_sequence_are_no_disorder():
    assert reordered(history([(PRODUCER, 4, FAIL, NONE)], [(0, PRODUCER, 3), (9, PRODUCER, 7)])).count == 0


def test_records_that_were_not_sent_here_have_no_place_in_the_order():
    elsewhere = {"sent_partition": 8}
    assert reordered(history([], [(0, PRODUCER, 5), (1, PRODUCER, 3, elsewhere)])).count == 0
    assert reordered(history([], [(0, PRODUCER, 5), (1, PRODUCER, -3)])).count == 0
    assert reordered(history([], [(0, 99, 5), (1, 99, 3)])).count == 0


@pytest.mark.parametrize("facts", [{"compacted": True}, {"log_start": 1}])
def test_where_first_copies_may_have_been_cleaned_a_descent_may_be_a_second_copy(facts):
    result = reordered(history([], [(5, PRODUCER, 1), (6, PRODUCER, 0)], **facts))
    assert (result.count, result.witnesses["case"].tolist()) == (1, [REORDERED_OR_COPY])
    assert reordered(history([], [(5, PRODUCER, 0), (6, PRODUCER, 1)], **facts)).count == 0


# --- corners --------------------------------------------------------------------------------------------------------


def test_offsets_near_a_trillion_and_spread_far_apart_are_found():
    log = [(FAR, PRODUCER, 0), (FAR + 1, PRODUCER, 1), (2 * FAR, PRODUCER, 2)]
    sends = [(PRODUCER, 0, OK, FAR), (PRODUCER, 1, OK, FAR + 1), (PRODUCER, 2, OK, 2 * FAR), (PRODUCER, 3, OK, 3)]
    result = lost(history(sends, log, sentinel=3 * FAR))
    assert result.count == 1
    assert result.witnesses[0]["sequence"] == 3


@pytest.mark.parametrize("sender", [-5, 99, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("sequence", [-1, 0, 2**62, -(2**63)])
def test_strange_identities_are_told_apart(sender, sequence):
    log = [(0, sender, sequence), (1, PRODUCER, 0), (2, sender, sequence), (3, sender, 77)]
    result = duplicate(history([(PRODUCER, 0, OK, 1)], log))
    assert result.count == 1
    assert (result.witnesses[0]["client"], result.witnesses[0]["log_offset"]) == (sender, 2)


def test_rows_that_the_audit_read_twice_count_as_read_last():
    log = [(0, PRODUCER, 0), (1, PRODUCER, 1), (0, PRODUCER, 2), (1, PRODUCER, 1)]
    sends = [(PRODUCER, 0, OK, 0), (PRODUCER, 1, OK, 1), (PRODUCER, 2, OK, 0)]
    result = lost(history(sends, log))
    assert result.witnesses["sequence"].tolist() == [0]
    assert np.all(result.witnesses["other_sequence"] == 2)
