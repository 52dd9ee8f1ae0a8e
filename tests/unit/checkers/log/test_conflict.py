"""What `offset-conflict` reports: a bad history and a near-miss good one for each pair of observers."""

from prozess.checkers.log import order
from prozess.checkers.log.order import offset_conflict
from tests.support.cells.partitions import (
    CORRUPT,
    INFO,
    OK,
    PRODUCER,
    PRODUCER_2,
    PRODUCER_ACKS_0,
    PRODUCER_ACKS_1,
    READER,
    READER_2,
    history,
)


def test_observers_who_agree_do_not_conflict():
    sends = [(PRODUCER, 0, OK, 0), (PRODUCER_2, 0, OK, 1)]
    log = [(0, PRODUCER, 0), (1, PRODUCER_2, 0)]
    reads = [(READER, *row) for row in log] + [(READER_2, *row) for row in log]
    result = offset_conflict(history(sends, log, reads))
    assert (result.count, result.judged, result.incomplete) == (0, 2 + 4 + 4, None)


def test_an_acknowledgement_against_the_audit():
    sends = [(PRODUCER, 0, OK, 0), (PRODUCER_2, 0, OK, 0)]
    result = offset_conflict(history(sends, [(0, PRODUCER_2, 0)]))
    assert result.count == 1
    witness = result.witnesses[0]
    assert witness["case"] == order.ACKNOWLEDGEMENT_AGAINST_AUDIT
    assert (witness["client"], witness["log_offset"], witness["other_client"]) == (PRODUCER, 0, PRODUCER_2)
    assert (witness["begin_ns"], witness["end_ns"], witness["outcome"]) == (10, 15, OK)


def test_acknowledgements_without_acks_all_are_no_observers():
    for producer in (PRODUCER_ACKS_1, PRODUCER_ACKS_0):
        assert offset_conflict(history([(producer, 0, OK, 0)], [(0, PRODUCER_2, 0)])).count == 0


def test_an_unknown_outcome_with_an_offset_is_no_acknowledgement():
    assert offset_conflict(history([(PRODUCER, 0, INFO, 0)], [(0, PRODUCER_2, 0)])).count == 0


def test_two_acknowledgements_of_one_offset():
    result = offset_conflict(history([(PRODUCER, 0, OK, 5), (PRODUCER_2, 0, OK, 5)]))
    assert result.count == 1
    witness = result.witnesses[0]
    assert witness["case"] == order.ACKNOWLEDGEMENT_AGAINST_ACKNOWLEDGEMENT
    assert (witness["client"], witness["other_client"], witness["other_ns"]) == (PRODUCER, PRODUCER_2, 25)


def test_of_two_acknowledgements_the_later_one_stands_whoever_was_read_later():
    sends = [(PRODUCER, 0, OK, 5), (PRODUCER_2, 0, OK, 5)]
    for reads in ([], [(READER, 5, PRODUCER, 0)], [(READER, 5, PRODUCER_2, 0)]):
        [witness] = offset_conflict(history(sends, [], reads)).witnesses
        assert (witness["client"], witness["other_client"]) == (PRODUCER, PRODUCER_2)


def test_a_consumer_against_the_audit():
    sends = [(PRODUCER, 0, INFO, -1)]
    result = offset_conflict(history(sends, [(0, PRODUCER_2, 0)], [(READER, 0, PRODUCER, 0, {"leader_epoch": 3})]))
    assert result.count == 1
    witness = result.witnesses[0]
    assert (witness["case"], witness["leader_epoch"]) == (order.CONSUMER_AGAINST_AUDIT, 3)
    assert (witness["client"], witness["reader"], witness["seen_ns"]) == (PRODUCER, READER, 1_010)


def test_a_consumer_and_the_acknowledgement_of_one_loser_are_one_witness():
    sends = [(PRODUCER, 0, OK, 0)]
    result = offset_conflict(
        history(sends, [(0, PRODUCER_2, 0)], [(READER, 0, PRODUCER, 0), (READER_2, 0, PRODUCER, 0)])
    )
    assert result.count == 1
    assert result.witnesses[0]["case"] == order.CONSUMER_AGAINST_AUDIT


def test_a_consumer_against_an_acknowledgement_where_the_log_has_nothing():
    result = offset_conflict(history([(PRODUCER, 0, OK, 5)], [], [(READER, 5, PRODUCER_2, 0)]))
    assert result.count == 1
    assert result.witnesses[0]["case"] == order.CONSUMER_AGAINST_ACKNOWLEDGEMENT
    assert result.witnesses[0]["client"] == PRODUCER_2


def test_two_consumers_where_nobody_else_looked():
    reads = [(READER, 5, PRODUCER, 0), (READER_2, 5, PRODUCER_2, 0)]
    result = offset_conflict(history([], [], reads, sentinel=None))
    assert result.count == 1
    assert result.incomplete is not None
    witness = result.witnesses[0]
    assert witness["case"] == order.CONSUMER_AGAINST_CONSUMER
    assert (witness["reader"], witness["other_client"], witness["other_ns"]) == (READER, PRODUCER_2, 1_020)


def test_the_last_record_of_the_log_seen_where_the_log_has_a_hole_is_an_observation_there():
    reads = [(READER, 5, PRODUCER, 0), (READER_2, 5, PRODUCER, 1)]
    assert offset_conflict(history([], [(0, PRODUCER, 0)], reads)).count == 1


def test_one_consumer_that_saw_two_records_at_one_offset():
    reads = [(READER, 5, PRODUCER, 0), (READER, 5, PRODUCER, 1, {"span": 1})]
    assert offset_conflict(history([], [], reads)).count == 1


def test_the_audits_against_each_other():
    result = offset_conflict(history([], [(0, PRODUCER, 0)], visible=[(0, PRODUCER, 1)]))
    assert result.count == 1
    assert result.witnesses[0]["case"] == order.AUDIT_AGAINST_AUDIT


def test_each_other_record_at_an_offset_is_a_witness():
    reads = [(READER, 0, PRODUCER, 1), (READER_2, 0, PRODUCER, 2)]
    result = offset_conflict(history([(PRODUCER, 1, INFO, -1)], [(0, PRODUCER, 0)], reads))
    assert sorted(result.witnesses["sequence"].tolist()) == [1, 2]


def test_an_unreadable_record_is_no_other_record():
    sends, log = [(PRODUCER, 0, OK, 0)], [(0, PRODUCER, 0)]
    assert offset_conflict(history(sends, log, [(READER, 0, PRODUCER, 0, CORRUPT)])).count == 0
    assert offset_conflict(history(sends, [(0, PRODUCER, 0, CORRUPT)], [(READER, 0, PRODUCER, 0)])).count == 0


def test_the_sentinel_is_no_other_record():
    assert offset_conflict(history([(PRODUCER, 0, OK, 3)], [], sentinel=3)).count == 0


def test_observations_behind_the_sentinel_are_compared_with_each_other():
    sends = [(PRODUCER, 0, OK, 9)]
    assert offset_conflict(history(sends, [(9, PRODUCER, 0)], [(READER, 9, PRODUCER, 0)], sentinel=3)).count == 0
    result = offset_conflict(history(sends, [(9, PRODUCER, 1)], sentinel=3))
    assert result.count == 1
    assert result.witnesses[0]["case"] == order.ACKNOWLEDGEMENT_AGAINST_AUDIT
