"""Where logs begin: what was deleted does not come back, and retention takes nothing before its time."""

from dataclasses import replace

import numpy as np
import pytest

from prozess.checkers.log.log_starts import BELOW_DELETED, SAME_EPOCH_START, expired_early, log_start_regression
from prozess.harness.interfaces.checking import Retention
from prozess.harness.schema import NONE, ObservationKind
from tests.support.cells.partitions import INFO, OK, PARTITION, PRODUCER, history, table

LEADER, ASKED = ObservationKind.LEADER_LOG_START, ObservationKind.LOG_START
MS = 1_000_000


def answer(time_ns, value, node=1, epoch=0, kind=LEADER, step=NONE):
    return {
        "time_ns": time_ns, "value": value, "node": node, "leader_epoch": epoch, "kind": int(kind), "step": step,
        "partition": PARTITION,
    }  # fmt: skip


def deletion(time_ns, value):
    return answer(time_ns, value, node=NONE, epoch=NONE, kind=ASKED, step=3)


def begun(*rows, sends=(), retention=None, replicas=()):
    made = replace(history(sends), observations=table("observations", rows), retention=retention)
    return replace(made, replicas=table("replicas", replicas)) if replicas else made


def found(*rows):
    result = log_start_regression(begun(*rows))
    assert result.count == len(result.witnesses)
    return [tuple(w) for w in result.witnesses[["end_ns", "log_offset", "other_offset", "case"]].tolist()]


def test_what_delete_records_has_deleted_does_not_come_back_under_another_leader():
    rows = [deletion(10, 50), answer(20, 40, node=2, epoch=1), answer(30, 40, node=2, epoch=1)]
    assert found(*rows) == [(30, 40, 50, BELOW_DELETED)], "the first answer may have been asked for before"


def test_an_answer_that_was_asked_for_before_the_deletion_was_acknowledged_proves_nothing():
    assert found(answer(5, 0), deletion(10, 50), answer(11, 0)) == []
    assert found(answer(5, 0), deletion(10, 50), answer(11, 50), answer(12, 50)) == []


def test_a_leader_does_not_go_back_within_its_epoch_and_a_new_one_may_begin_further_back():
    assert found(answer(1, 30), answer(2, 20)) == [(2, 20, 30, SAME_EPOCH_START)]
    assert found(answer(1, 30), answer(2, 20, epoch=1), answer(3, 20, node=2, epoch=2)) == []


def test_the_audit_is_an_answer_too():
    audit = {"node": NONE, "epoch": NONE, "kind": ASKED}
    assert found(deletion(10, 50), answer(20, 50, **audit), answer(30, 0, **audit)) == [(30, 0, 50, BELOW_DELETED)]


# --- retention ----------------------------------------------------------------------------------------------------------


def sent(offset, at_ms):
    return (PRODUCER, offset, OK, offset, {"invoked_ns": at_ms * MS, "completed_ns": at_ms * MS + 5})


SENDS = [sent(0, 10), sent(1, 20), sent(2, 30)]


def early(*rows, retention, replicas=()):
    result = expired_early(begun(*rows, sends=SENDS, retention=retention, replicas=replicas))
    assert result.count == len(result.witnesses)
    return result.witnesses["log_offset"].tolist(), result.judged


@pytest.mark.parametrize(("seen_ms", "expected"), [(108, [0, 1]), (112, [1]), (118, [1]), (122, [])])
def test_retention_takes_no_record_before_its_time(seen_ms, expected):
    assert early(answer(seen_ms * MS, 2), retention=Retention(100 * MS)) == (expected, 2)


def test_a_record_goes_when_the_log_start_was_first_seen_beyond_it():
    rows = [answer(105 * MS, 1), answer(300 * MS, 3)]
    assert early(*rows, retention=Retention(100 * MS)) == ([0], 3)


def test_what_delete_records_took_is_not_judged():
    assert early(deletion(40 * MS, 2), answer(50 * MS, 3), retention=Retention(100 * MS)) == ([2], 1)
    assert early(deletion(40 * MS, 3), retention=Retention(100 * MS)) == ([], 0)


def batch(first, last, size, node=1):
    return {
        "node": node, "step": NONE, "base_offset": first, "last_offset": last, "size": size, "partition": PARTITION,
    }  # fmt: skip


def test_with_a_limit_on_bytes_the_last_removal_is_judged_if_less_is_left_than_that():
    rows, by_size = [answer(50 * MS, 1), answer(60 * MS, 2)], Retention(100 * MS, 500)
    assert early(*rows, retention=by_size, replicas=[batch(2, 9, 499)]) == ([1], 1), "0 may have gone by the size"
    assert early(*rows, retention=by_size, replicas=[batch(2, 9, 500)]) == ([], 0)
    two = [batch(2, 9, 300), batch(2, 5, 300, node=2), batch(6, 9, 300, node=2)]
    assert early(*rows, retention=by_size, replicas=two) == ([], 0), "the copy that holds most"
    assert early(*rows, retention=by_size) == ([], 0), "the topic was deleted, and nobody read what was left"
    assert early(*rows, retention=Retention(100 * MS)) != ([], 0), "which matters for the size alone"


def test_where_nobody_knows_what_retention_may_take_nothing_is_judged():
    assert early(answer(50 * MS, 2), retention=None) == ([], 0)
    assert early(answer(50 * MS, 0), retention=Retention(100 * MS)) == ([], 0)
    assert np.isin(["client", "begin_ns"], expired_early(begun()).witnesses.dtype.names).all()


def test_of_a_compacted_log_the_last_record_of_each_key_is_judged_where_no_send_of_the_key_is_open():
    keyed = [
        (PRODUCER, n, OK, n, {"invoked_ns": 10 * MS, "completed_ns": 11 * MS, "key": key})
        for n, key in enumerate((7, 7, 8))
    ]
    open_send = (PRODUCER, 3, INFO, NONE, {"invoked_ns": 12 * MS, "completed_ns": NONE, "key": 8})

    def judged(*sends):
        made = begun(answer(50 * MS, 3), sends=sends, retention=Retention(100 * MS))
        result = expired_early(replace(made, compacted=True))
        return result.witnesses["log_offset"].tolist(), result.judged

    assert judged(*keyed) == ([1, 2], 2), "0 need not have been there"
    assert judged(*keyed, open_send) == ([1], 1), "another value of key 8 may stand behind"
