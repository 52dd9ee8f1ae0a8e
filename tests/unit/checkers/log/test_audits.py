"""What the two audits of a partition, and its replicas, say of each other: each bad history with the near miss beside it."""

from dataclasses import replace

import pytest

from prozess.checkers.batches import CONTROL, TRANSACTIONAL
from prozess.checkers.log.audits import invisible
from prozess.checkers.log.losses import lost
from prozess.checkers.partition_index import PartitionIndex
from prozess.checkers.reading.positions import dirty_read
from prozess.harness.interfaces.checking import CopyFacts
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import NONE, Isolation
from tests.support.cells.partitions import (
    AUDIT_NS,
    CORRUPT,
    CRASHED,
    FAIL,
    INFO,
    OK,
    PRODUCER,
    PRODUCER_ACKS_0,
    READER,
    READER_COMMITTED,
    SENTINEL_NS,
    history,
    table,
)

SENDS = [(PRODUCER, number, OK, number) for number in range(4)]
WHOLE = [(number, PRODUCER, number) for number in range(4)]
LESS = [WHOLE[0], WHOLE[1], WHOLE[3]]
NODES = (1, 2, 3)


def stored(one, batches, *, nodes=NODES, assignment=NODES, log_start=0):
    """The history with these batches, (base, last, attributes), in the copies of these nodes."""
    rows = [
        {"node": node, "step": NONE, "base_offset": base, "last_offset": last, "attributes": attributes}
        for node in nodes
        for base, last, attributes in batches
    ]
    copies = {node: CopyFacts(log_start, 2000) for node in nodes}
    return replace(one, replicas=table("replicas", rows), copies=copies, assignment=assignment)


def found(one):
    result = invisible(one)
    assert result.count == len(result.witnesses)
    return [int(w["log_offset"]) for w in result.witnesses], result.incomplete


def test_an_earlier_sentinel_that_was_read_twice_makes_up_for_no_record():
    sends, earlier = [SENDS[0], SENDS[1], SENDS[3]], (4, SENTINEL_CLIENT, 1)
    for log, whole in ([*LESS, earlier, earlier], False), ([*WHOLE, earlier, earlier], True):
        one = stored(history(sends, log, visible=log), [(0, 3, 0), (4, 4, 0)])
        assert (found(one)[1] is None) == whole


def test_without_an_end_of_the_log_its_first_sentinel_says_when_it_was_ended():
    later = (SENTINEL_CLIENT, 1, INFO, NONE, {"invoked_ns": SENTINEL_NS + 100})
    one = history([later], [])
    ended = {Isolation.READ_COMMITTED: one.audit_end[Isolation.READ_COMMITTED]}
    for ends in (one.audit_end, ended):
        assert PartitionIndex.of(replace(one, audit_end=ends)).sentinel_ns == SENTINEL_NS


def test_a_record_that_read_committed_lacks_is_invisible():
    result = invisible(history(SENDS, WHOLE, [(READER, 2, PRODUCER, 2)], visible=LESS))
    assert (result.count, result.judged, result.incomplete) == (1, 4, None)
    [witness] = result.witnesses
    assert (witness["client"], witness["sequence"], witness["log_offset"]) == (PRODUCER, 2, 2)
    assert (witness["begin_ns"], witness["end_ns"], witness["outcome"]) == (30, 35, OK)
    assert (witness["reader"], witness["seen_ns"], witness["other_ns"]) == (READER, 1_010, AUDIT_NS + 2)


def test_where_both_audits_show_the_same_nothing_is_invisible():
    assert found(history(SENDS, WHOLE)) == ([], None)


def test_what_a_transaction_wrote_is_not_judged_here():
    inside = [(*send, {"transaction": 0}) for send in SENDS]
    assert [invisible(history(sends, WHOLE)).judged for sends in (SENDS, SENDS[:2] + inside[2:], inside)] == [4, 2, 0]
    assert invisible(history(SENDS[:2], WHOLE)).judged == 2, "nothing says what wrote the others"


def test_an_audit_at_read_committed_that_sees_only_the_sentinel_hides_everything():
    assert found(history(SENDS, WHOLE, visible=[])) == ([0, 1, 2, 3], None)


@pytest.mark.parametrize("outcome", [OK, INFO, FAIL])
def test_what_a_transaction_wrote_is_judged_elsewhere_and_what_none_wrote_is_judged_whatever_became_of_it(outcome):
    within = [*SENDS[:2], (PRODUCER, 2, outcome, 2, {"transaction": 7}), SENDS[3]]
    assert found(history(within, WHOLE, visible=LESS)) == ([], None)
    outside = [*SENDS[:2], (PRODUCER, 2, outcome, 2), SENDS[3]]
    assert found(history(outside, WHOLE, visible=LESS)) == ([2], None)


def test_of_a_record_that_nobody_recorded_the_replicas_know_whether_a_transaction_wrote_it():
    whole = [*WHOLE[:2], (2, CRASHED, 9), WHOLE[3]]
    sends = [*SENDS[:2], SENDS[3]]
    one = history(sends, whole, visible=LESS)
    assert found(one) == ([], None), "nobody knows"
    assert found(stored(one, [(0, 3, 0)])) == ([2], None)
    assert found(stored(one, [(0, 1, 0), (2, 2, TRANSACTIONAL), (3, 3, 0)])) == ([], None)
    assert found(stored(one, [(0, 3, 0)], nodes=(2,))) == ([2], None), "one replica is enough"
    unreadable = history(sends, [*WHOLE[:2], (2, NONE, NONE, CORRUPT), WHOLE[3]], visible=LESS)
    assert found(unreadable) == ([], None)
    assert found(stored(unreadable, [(0, 3, 0)])) == ([2], None)


def test_a_row_that_names_no_transaction_does_not_count_where_the_replicas_know_of_one():
    one = history(SENDS, WHOLE, visible=LESS)
    assert found(stored(one, [(0, 1, 0), (2, 2, TRANSACTIONAL), (3, 3, 0)])) == ([], None)


def test_what_retention_may_have_taken_between_the_audits_is_not_invisible():
    assert found(history(SENDS, WHOLE, visible=WHOLE[2:], log_start=2)) == ([], None)
    assert found(history(SENDS, WHOLE, visible=WHOLE[3:], log_start=2)) == ([2], None)


def test_what_compaction_may_have_taken_between_the_audits_is_not_invisible():
    def keyed(keys, sizes=(100, 100, 100, 100)):
        sends = [(*row, {"key": k, "size": s}) for row, k, s in zip(SENDS, keys, sizes, strict=True)]
        log = [(*row, {"key": k}) for row, k in zip(WHOLE, keys, strict=True)]
        return history(sends, log, visible=[log[0], log[1], log[3]], compacted=True)

    assert found(keyed((0, 1, 2, 3))) == ([2], None)
    assert found(keyed((0, 1, 2, 2))) == ([], None), "a later record of its key stands behind it"
    assert found(keyed((0, 1, 2, 3), sizes=(100, 100, NONE, 100))) == ([], None), "a tombstone expires"


def test_where_an_audit_did_not_end_what_read_committed_lacks_is_not_concluded():
    one = history(SENDS, WHOLE, visible=LESS)
    cut = replace(one, audit_end={level: end for level, end in one.audit_end.items() if level == 0})
    assert found(cut) == ([], "the audit of partition 7 at read_committed did not reach its sentinel")
    other = replace(one, audit_end={level: end for level, end in one.audit_end.items() if level == 1})
    places, reason = found(other)
    assert (places, reason) == ([2], "the audit of partition 7 at read_uncommitted did not reach its sentinel")


def test_nobody_judges_it_without_an_audit():
    result = invisible(replace(history(SENDS, WHOLE, visible=LESS, sentinel=None), audited=False))
    assert (result.count, result.judged, result.incomplete) == (0, 0, None)


# --- an audit that passed over what is there ------------------------------------------------------------------------


PASSED = "the audit of partition 7 at read_uncommitted passed over 1 records that are there, the first at offset 2"


def test_a_record_that_only_the_other_audit_has_is_not_lost_but_passed_over():
    result = lost(history(SENDS, LESS, visible=WHOLE))
    assert (result.count, result.incomplete) == (0, PASSED)
    assert invisible(history(SENDS, LESS, visible=WHOLE)).incomplete == PASSED
    near = lost(history(SENDS, LESS))
    assert (near.count, near.incomplete) == (1, None), "neither has it"


def test_a_record_that_every_replica_has_is_not_lost_but_passed_over():
    one = history(SENDS, LESS)
    assert lost(stored(one, [(0, 3, 0)])).incomplete == PASSED
    for batches, nodes in (
        ([(0, 1, 0), (3, 3, 0)], NODES),  # they do not have it
        ([(0, 1, 0), (2, 2, CONTROL), (3, 3, 0)], NODES),  # a marker stands there
        ([(0, 3, 0)], (1, 3)),  # one replica was not read
    ):
        result = lost(stored(one, batches, nodes=nodes))
        assert (result.count, result.incomplete) == (1, None), batches
    later = lost(replace(stored(one, [(0, 3, 0)]), log_start=3))
    assert (later.count, later.incomplete) == (0, None), "retention may have taken it"


def test_a_record_that_a_consumer_was_given_and_every_replica_has_is_not_dirty():
    sends = [*SENDS[:2], (PRODUCER_ACKS_0, 0, OK, NONE), SENDS[3]]
    one = history(sorted(sends), LESS, [(READER_COMMITTED, 2, PRODUCER_ACKS_0, 0)])
    assert (dirty_read(one).count, dirty_read(one).incomplete) == (1, None)
    assert dirty_read(stored(one, [(0, 3, 0)])).incomplete == PASSED


def test_records_that_nobody_names_are_counted_in_the_replicas():
    one = history([], [WHOLE[0], WHOLE[3]])
    reason = (
        "the audit of partition 7 at read_uncommitted was given 2 records up to its sentinel, and every replica has 4"
    )
    assert invisible(stored(one, [(0, 3, 0)])).incomplete == reason
    assert invisible(stored(one, [(0, 1, 0), (2, 3, 0)], assignment=(1, 2, 3, 4))).incomplete is None
    assert invisible(stored(one, [(0, 0, 0), (1, 2, CONTROL), (3, 3, 0)])).incomplete is None
    assert invisible(stored(one, [(0, 0, 0), (3, 3, 0), (1000, 1200, 0)])).incomplete is None, "behind the sentinel"
    assert invisible(stored(replace(one, log_start=3), [(0, 3, 0)])).incomplete is None
    assert invisible(stored(one, [(0, 3, 0)], log_start=3)).incomplete is None
    assert invisible(replace(stored(one, [(0, 3, 0)]), left_out=2)).incomplete is None
    assert invisible(replace(stored(one, [(0, 3, 0)]), compacted=True)).incomplete is None


def test_an_earlier_sentinel_is_no_record_that_was_passed_over():
    sentinel = {"invoked_ns": 5, "completed_ns": 9}
    sends = [(0, 1, OK, 2, sentinel), *SENDS[:2], SENDS[3]]
    log = [*WHOLE[:2], (2, 0, 1), WHOLE[3]]
    one = stored(history(sends, log), [(0, 3, 0)])
    assert (found(one), lost(one).incomplete) == (([], None), None)
    assert not len(PartitionIndex.of(one).passed_over)


def test_a_compacted_audit_may_lack_what_was_cleaned_after_the_other_one_read_it():
    def keyed(keys):
        sends = [(*row, {"key": k}) for row, k in zip(SENDS, keys, strict=True)]
        log = [(*row, {"key": k}) for row, k in zip(WHOLE, keys, strict=True)]
        return history(sends, [log[0], log[1], log[3]], visible=log, compacted=True)

    assert PartitionIndex.of(one := keyed((0, 1, 2, 2))).passed_over.tolist() == []
    assert one.compacted
    assert PartitionIndex.of(two := keyed((0, 1, 2, 3))).passed_over.tolist() == [2]
    assert two.compacted


def test_an_empty_partition_has_nothing_invisible():
    assert found(history([], [])) == ([], None)
