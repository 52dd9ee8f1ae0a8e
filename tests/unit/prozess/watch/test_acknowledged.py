"""Lost records are counted, each once, whatever the log of another leader has in their stead."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.clock import NS_PER_S
from prozess.harness.schema import NONE, ReadFlag
from prozess.watch.acknowledged import ROWS_MAX, AcknowledgedRecords
from prozess.watch.leader_changes import HOLD_S, TRIES_MAX, AuditOrder, LeaderChanges


def acknowledged(*offsets, at_ns=1):
    """Record n was acknowledged at the n-th of these offsets."""
    records = AcknowledgedRecords()
    for sequence, offset in enumerate(offsets):
        records.acknowledged(sequence, offset, at_ns)
    return records


def compared(records, log, *, before_ns=10, corrupt=()):
    """What is lost if the log has these records, as offset → sequence."""
    flags = [ReadFlag.CORRUPT if offset in corrupt else 0 for offset in log]
    columns = (np.array(values, dtype=np.int64) for values in ([*log], [*log.values()], flags))
    return records.compare(*columns, before_ns=before_ns)


def test_the_end_of_a_log_that_an_unclean_leader_lacks_is_lost_however_long_its_log_is_now():
    records = acknowledged(0, 1, 2, 3, 4)
    lost = compared(records, {0: 0, 1: 1, 2: 5, 3: 6, 4: 7, 5: 8})
    assert (lost.count, lost.first_offset, lost.sequences.tolist(), records.lost) == (3, 2, [2, 3, 4], 3)
    assert lost.span == "offsets 2 to 4, records 2 to 4"


def test_an_empty_log_lacks_every_record():
    records = acknowledged(*range(1000))
    assert compared(records, {}).count == 1000
    assert (records.lost, len(records)) == (1000, 0)


def test_a_log_that_has_every_record_lacks_none_and_they_are_compared_again():
    records = acknowledged(0, 1, 2)
    assert not compared(records, {0: 0, 1: 1, 2: 2}).count
    assert compared(records, {0: 0, 1: 1}).sequences.tolist() == [2]


def test_what_was_acknowledged_after_the_leader_was_asked_may_stand_behind_what_was_read():
    records = acknowledged(0, 1)
    records.acknowledged(2, 2, 10)
    assert not compared(records, {0: 0, 1: 1}).count
    assert compared(records, {0: 0, 1: 1}, before_ns=11).sequences.tolist() == [2]


def test_what_stands_in_front_of_the_start_of_the_log_was_removed_and_is_not_lost():
    records = acknowledged(0, 1, 2, 3)
    records.removed(2)
    assert not compared(records, {2: 2, 3: 3}).count
    assert records.lost == 0


def test_a_record_that_cannot_be_read_is_there_and_one_without_offset_is_not_followed():
    records = acknowledged(0, 1, NONE)
    assert not compared(records, {0: 0, 1: NONE}, corrupt={1}).count


def test_a_record_that_moved_is_not_lost():
    records = acknowledged(0, 1, 2)
    assert compared(records, {0: 0, 1: 2}).sequences.tolist() == [1]


def test_a_record_that_the_reader_was_not_given_is_counted_once_whoever_notices():
    records = acknowledged(0, 1, 2, 3)
    assert records.passed_by(np.array([1, 1])) == 1
    assert records.passed_by(np.array([1])) == 0
    assert compared(records, {0: 0, 2: 2}).sequences.tolist() == [3]
    assert records.passed_by(np.array([3])) == 0
    assert records.lost == 2


def test_no_more_rows_are_kept_than_the_limit(monkeypatch):
    monkeypatch.setattr("prozess.watch.acknowledged.ROWS_MAX", 1000)
    records = acknowledged(*range(10_000))
    assert len(records) <= 1000 < ROWS_MAX
    assert compared(records, {}).log_offsets.tolist()[-1] == 9_999


@given(data=st.data())
def test_over_many_elections_every_lost_record_is_counted_exactly_once(data):
    """Leaders cut their logs at random offsets, producers write on, retention removes, and the reader passes records by."""
    records, log, sequence, start, gone = AcknowledgedRecords(), {}, 0, 0, set()
    for round_ in range(1, data.draw(st.integers(1, 8))):
        for _ in range(data.draw(st.integers(0, 12))):
            end = max([*log, start - 1]) + 1
            log[end] = sequence
            records.acknowledged(sequence, end, round_)
            sequence += 1
        cut = data.draw(st.integers(start, max([*log, start]) + 1))
        gone |= {log[offset] for offset in log if offset >= cut}
        log = {offset: value for offset, value in log.items() if offset < cut}
        if data.draw(st.booleans()) and gone:
            records.passed_by(np.array(sorted(gone)[:1]))
        compared(records, log, before_ns=round_ + 1)
        assert records.lost == len(gone)
        if data.draw(st.booleans()) and log:
            start = data.draw(st.integers(start, max(log)))
            log = {offset: value for offset, value in log.items() if offset >= start}
            records.removed(start)


def order(epoch, *, node=1):
    return AuditOrder(node, epoch, 0, 10, 0)


def test_a_new_leader_is_audited_when_it_answers_for_the_second_time():
    changes = LeaderChanges()
    assert changes.answered(order(3), 0) is None  # the topic is new
    assert changes.answered(order(3), 1) is None
    assert changes.answered(order(4), 2) is None
    assert changes.holds(2)
    assert changes.answered(order(4), 3) == order(4)
    assert changes.answered(order(4), 4) is None  # it is under way
    assert not changes.ended(whole=True)
    assert (changes.open, changes.holds(4), changes.count) == (False, False, 1)
    assert changes.answered(order(4), 5) is None


def test_a_leader_that_others_replaced_is_not_believed():
    changes = LeaderChanges()
    changes.answered(order(3), 0)
    changes.named(6)
    for now_ns in range(1, 9):
        assert changes.answered(order(5), now_ns) is None
    assert not changes.open


def test_a_leader_that_is_replaced_before_its_second_answer_is_not_audited():
    changes = LeaderChanges()
    for epoch in (3, 4, 5, 6):
        assert changes.answered(order(epoch), epoch) is None
    assert changes.answered(order(6), 9) == order(6)


def test_an_audit_that_ends_early_is_repeated_and_told_once():
    changes, told = LeaderChanges(), []
    changes.answered(order(3), 0)
    changes.answered(order(4), 1)
    for _ in range(TRIES_MAX + 2):
        assert changes.answered(order(4), 2) == order(4)
        told.append(changes.ended(whole=False))
    assert sum(told) == 1
    assert not changes.holds(int(1 + HOLD_S * NS_PER_S))
