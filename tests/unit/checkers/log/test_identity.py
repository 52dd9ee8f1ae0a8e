"""What `phantom`, `corrupt`, `misplaced` and `resurrected` report: bad histories, near-miss good ones, corners."""

import pytest

from prozess.checkers.log.records import corrupt, misplaced, phantom, resurrected
from prozess.harness.schema import MISSING, NONE
from tests.support.cells.partitions import (
    AUDIT,
    CORRUPT,
    CRASHED,
    FAIL,
    INFO,
    ISSUED,
    OK,
    OTHER_PARTITION,
    PRODUCER,
    READER,
    READER_2,
    history,
)


@pytest.mark.parametrize("sender", [6, READER, AUDIT, 17, 99, 2**31 - 1, -1, -5, -(2**31)])
def test_a_record_of_whoever_is_no_producer_is_a_phantom(sender):
    result = phantom(history([], [(0, sender, 0)]))
    assert result.count == 1
    witness = result.witnesses[0]
    assert (witness["client"], witness["log_offset"], witness["seen_ns"]) == (sender, 0, MISSING)
    assert witness["reader"] == AUDIT


@pytest.mark.parametrize("sequence", [ISSUED, 2**40, 2**62, -1, -(2**63)])
def test_a_sequence_that_was_never_issued_is_a_phantom(sequence):
    assert phantom(history([], [(0, PRODUCER, sequence)])).count == 1


def test_the_last_sequence_issued_is_no_phantom():
    assert phantom(history([], [(0, PRODUCER, ISSUED - 1)])).count == 0


def test_what_stands_past_the_rows_of_a_crashed_producer_is_unrecorded_and_no_phantom():
    assert phantom(history([], [(0, CRASHED, 10**6)], [(READER, 0, CRASHED, 10**6)])).count == 0
    assert phantom(history([], [(0, CRASHED, -1)])).count == 1


def test_a_phantom_is_counted_once_per_offset_however_many_were_given_it():
    reads = [(READER, 0, 99, 0), (READER_2, 0, 99, 0)]
    result = phantom(history([], [(0, 99, 0)], reads))
    assert (result.count, result.judged) == (1, 4)
    assert (result.witnesses[0]["reader"], result.witnesses[0]["seen_ns"]) == (READER, 1_010)
    assert phantom(history([], [(0, 99, 0), (1, 99, 0)], reads)).count == 2


def test_a_phantom_that_only_a_consumer_saw_is_one_without_any_audit():
    result = phantom(history([], [], [(READER, 0, 99, 0)], sentinel=None))
    assert result.count == 1
    assert result.incomplete is not None


def test_an_unreadable_record_is_corrupt_and_no_phantom():
    bad = history([], [(0, PRODUCER, 0, CORRUPT)], [(READER, 0, PRODUCER, 0, CORRUPT)])
    assert (corrupt(bad).count, phantom(bad).count, misplaced(bad).count) == (1, 0, 0)
    witness = corrupt(bad).witnesses[0]
    assert (witness["log_offset"], witness["client"], witness["reader"]) == (0, NONE, READER)


def test_a_record_that_only_one_reader_got_unreadable_is_corrupt():
    assert corrupt(history([], [(0, PRODUCER, 0)], [(READER, 0, PRODUCER, 0, CORRUPT)])).count == 1


def test_two_unreadable_records_at_two_offsets_are_two():
    assert corrupt(history([], [(0, PRODUCER, 0, CORRUPT), (1, PRODUCER, 0, CORRUPT)])).count == 2


def test_readable_records_are_not_corrupt():
    assert corrupt(history([], [(0, PRODUCER, 0)])).count == 0


def test_a_record_that_says_it_was_sent_elsewhere_is_misplaced():
    row = {"sent_partition": OTHER_PARTITION}
    bad = history([], [(0, PRODUCER, 0, row)], [(READER, 0, PRODUCER, 0, row)])
    assert (misplaced(bad).count, phantom(bad).count) == (1, 0)
    assert misplaced(bad).witnesses[0]["reader"] == READER
    assert misplaced(bad).witnesses["case"].tolist() == [OTHER_PARTITION]


def test_a_record_that_says_it_was_sent_here_is_not_misplaced():
    assert misplaced(history([], [(0, PRODUCER, 0)], [(READER, 0, PRODUCER, 0)])).count == 0


def test_a_failed_send_in_the_log_is_resurrected():
    sends = [(PRODUCER, 0, FAIL, NONE), (PRODUCER, 1, FAIL, NONE)]
    result = resurrected(history(sends, [(4, PRODUCER, 0)], [(READER, 4, PRODUCER, 0)]))
    assert (result.count, result.judged) == (1, 2)
    witness = result.witnesses[0]
    assert (witness["sequence"], witness["log_offset"], witness["outcome"]) == (0, 4, FAIL)
    assert witness["seen_ns"] == 1_010


def test_a_send_of_unknown_outcome_in_the_log_is_not_resurrected():
    assert resurrected(history([(PRODUCER, 0, INFO, NONE), (PRODUCER, 1, OK, 5)], [(4, PRODUCER, 0)])).count == 0


def test_a_failed_send_that_only_a_consumer_saw_is_not_in_the_log():
    assert resurrected(history([(PRODUCER, 0, FAIL, NONE)], [], [(READER, 0, PRODUCER, 0)])).count == 0


def test_an_aborted_record_in_the_log_is_not_resurrected():
    assert resurrected(history([(PRODUCER, 0, FAIL, NONE, {"transaction": 1})], [(4, PRODUCER, 0)])).count == 0


def test_a_resurrected_record_in_an_unfinished_audit_stands():
    result = resurrected(history([(PRODUCER, 0, FAIL, NONE)], [(4, PRODUCER, 0)], sentinel=None))
    assert result.count == 1
    assert result.incomplete is not None
