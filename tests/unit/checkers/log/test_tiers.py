"""`remote-gap` and `remote-conflict` on hand-made tiers, each bad one with the near miss, and against brute force."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prozess.checkers.log.tiers import remote_conflict, remote_gap
from prozess.harness.columns import empty_rows
from prozess.harness.interfaces.checking import CopyFacts, PartitionHistory
from prozess.harness.interfaces.witnesses import GapCase, RemoteCase
from prozess.harness.schema import NONE, READS, REMOTE_STORE, Isolation, RemoteState
from tests.support.cells.partitions import PARTITION, table

COPYING, COPIED, DELETING, DELETED = RemoteState
END = 100


def segment(first, last, *, whole_to=None, state=COPIED, current=1, step=NONE):
    """A segment whose object is whole, unless `whole_to` says how far it is: NONE = it is not there."""
    return {
        "first_offset": first,
        "last_offset": last,
        "whole_to": last + 1 if whole_to is None else whole_to,
        "state": int(state),
        "current": current,
        "step": step,
        "read_ns": 900,
    }


def batch(base, last, node, *, epoch=0, checksum=7, step=NONE):
    return {
        "base_offset": base,
        "last_offset": last,
        "leader_epoch": epoch,
        "checksum": checksum,
        "node": node,
        "step": step,
        "read_ns": 900,
    }


def history(segments=(), batches=(), *, begins=(30,), log_start=0, tiered=True, read=True):
    """Brokers 1, 2, … whose own logs begin at these offsets."""
    nobody = table("clients", [])["client"]
    return PartitionHistory(
        partition=PARTITION,
        sends=table("sends", []),
        reads=empty_rows(READS),
        client_role=nobody,
        client_isolation=nobody,
        client_issued=nobody,
        client_acks=nobody,
        audit_end={Isolation.READ_UNCOMMITTED: END},
        log_start=log_start,
        assignment=tuple(range(1, 1 + len(begins))),
        copies={node: CopyFacts(begin, END) for node, begin in enumerate(begins, 1)},
        replicas=table("replicas", batches),
        tiered=tiered,
        remote=table("remote_segments", segments),
        remote_read=read,
    )


def gaps(*segments, **more):
    result = remote_gap(history(segments, **more))
    assert result.count == len(result.witnesses)
    assert result.incomplete is None
    return [
        (int(w["reader"]), int(w["log_offset"]), int(w["other_offset"]), GapCase(w["case"]).name)
        for w in result.witnesses
    ]


def conflicts(*batches, **more):
    result = remote_conflict(history((), batches, **more))
    assert result.count == len(result.witnesses)
    return [(int(w["reader"]), int(w["log_offset"]), RemoteCase(w["case"]).name) for w in result.witnesses]


# --- remote-gap ---------------------------------------------------------------------------------------------------------


def test_segments_that_follow_one_another_up_to_the_brokers_own_log_leave_no_gap():
    assert gaps(segment(0, 9), segment(10, 29)) == []
    assert gaps(segment(0, 9), segment(8, 35)) == []  # copied again from the middle, by another leader
    assert remote_gap(history([segment(0, 9), segment(10, 29)])).judged == 2


def test_an_object_that_is_gone_is_a_gap_up_to_where_the_brokers_own_log_begins():
    lost = segment(10, 29, whole_to=NONE)
    assert gaps(segment(0, 9), lost) == [(1, 10, 29, "GONE")]
    assert gaps(segment(0, 9), lost, begins=(10, 25)) == [(2, 10, 24, "GONE")]
    assert gaps(segment(0, 9), lost, segment(10, 29)) == []


def test_an_object_that_is_damaged_is_a_gap_from_there_on():
    assert gaps(segment(0, 9), segment(10, 29, whole_to=15)) == [(1, 15, 29, "DAMAGED")]
    assert gaps(segment(0, 9), segment(10, 29, whole_to=10)) == [(1, 10, 29, "DAMAGED")]


def test_what_was_copied_in_part_or_never_is_a_gap_if_the_broker_has_deleted_its_own():
    assert gaps(segment(0, 9), segment(10, 29, state=COPYING)) == [(1, 10, 29, "UNFINISHED")]
    assert gaps(segment(0, 9)) == [(1, 10, 29, "NEVER_COPIED")]
    assert gaps(segment(0, 9), segment(10, 29, state=COPYING), begins=(10,)) == []


def test_what_was_deleted_above_the_log_start_was_taken_and_below_it_is_not_asked_for():
    gone = segment(0, 9, state=DELETED, whole_to=NONE)
    assert gaps(gone, segment(10, 29)) == [(1, 0, 9, "TAKEN")]
    assert gaps(segment(0, 9, state=DELETING), segment(10, 29)) == [(1, 0, 9, "TAKEN")]
    assert gaps(gone, segment(10, 29), log_start=10) == []
    assert gaps(gone, segment(10, 29), log_start=12) == []


def test_segments_of_a_topic_that_was_deleted_do_not_count_nor_do_those_of_an_earlier_look():
    assert gaps(segment(0, 29, current=0)) == [(1, 0, 29, "NEVER_COPIED")]
    assert gaps(segment(0, 29, step=3)) == [(1, 0, 29, "NEVER_COPIED")]


def test_without_tiered_storage_and_with_a_log_that_begins_at_its_start_there_is_nothing_to_judge():
    assert remote_gap(history([], tiered=False)).judged == 0
    assert remote_gap(history([], begins=(0,))).judged == 0


def test_a_store_that_was_not_read_proves_nothing():
    assert "was not read" in (remote_gap(history([segment(0, 29)], read=False)).incomplete or "")
    assert "was not read" in (remote_conflict(history([], read=False)).incomplete or "")


@given(
    st.lists(
        st.tuples(st.integers(0, 25), st.integers(0, 12), st.integers(-1, 14), st.sampled_from(RemoteState)), max_size=6
    ),
    st.integers(0, 8),
    st.lists(st.integers(0, 30), min_size=1, max_size=3),
)
def test_a_gap_is_what_no_segment_has_offset_by_offset(drawn, log_start, begins):
    made = [
        segment(first, first + more, whole_to=NONE if whole < 0 else first + min(whole, more + 1), state=state)
        for first, more, whole, state in drawn
    ]

    def case_of(offset):
        at = [one for one in made if one["first_offset"] <= offset <= one["last_offset"]]
        copied = [one for one in at if one["state"] == COPIED]
        if any(offset < one["whole_to"] for one in copied):
            return None
        if any(one["state"] in (DELETING, DELETED) for one in at):
            return "TAKEN"
        if any(one["whole_to"] == NONE for one in copied):
            return "GONE"
        return "DAMAGED" if copied else "UNFINISHED" if at else "NEVER_COPIED"

    wanted = {
        (node, offset, case)
        for node, begin in enumerate(begins, 1)
        for offset in range(log_start, begin)
        if (case := case_of(offset)) is not None
    }
    found = [
        (node, offset, case)
        for node, first, last, case in gaps(*made, log_start=log_start, begins=tuple(begins))
        for offset in range(first, last + 1)
    ]
    assert len(found) == len(set(found))
    assert set(found) == wanted


# --- remote-conflict ----------------------------------------------------------------------------------------------------

STORE = REMOTE_STORE


def test_equal_batches_in_both_tiers_are_no_conflict():
    assert conflicts(batch(0, 4, STORE), batch(5, 9, STORE), batch(5, 9, 1), batch(10, 14, 1, epoch=1)) == []


def test_another_batch_at_the_same_offset_is_a_twin():
    assert conflicts(batch(0, 4, STORE), batch(5, 9, STORE), batch(5, 9, 1, checksum=8)) == [(1, 5, "TWIN")]
    assert conflicts(batch(0, 4, STORE), batch(3, 9, 1)) == [(1, 3, "TWIN")]


def test_two_objects_that_disagree_are_a_twin_once_whatever_brokers_have():
    found = conflicts(batch(0, 4, STORE), batch(0, 4, STORE, checksum=8), batch(5, 9, 1), batch(5, 9, 2), begins=(5, 5))
    assert found == [(STORE, 0, "TWIN")]


def test_a_batch_within_another_is_a_twin_and_so_is_the_next_one_that_the_other_reaches():
    assert conflicts(batch(0, 9, STORE), batch(3, 4, STORE), batch(5, 9, STORE)) == [
        (STORE, 3, "TWIN"),
        (STORE, 5, "TWIN"),
    ]


def test_a_leader_epoch_that_falls_at_the_border_is_found_and_one_that_rises_is_not():
    assert conflicts(batch(0, 4, STORE, epoch=3), batch(5, 9, 1, epoch=2)) == [(1, 5, "EPOCH_FELL")]
    assert conflicts(batch(0, 4, STORE, epoch=3), batch(5, 9, 1, epoch=3)) == []


def test_what_lies_below_the_log_start_and_what_was_read_earlier_is_not_judged():
    assert conflicts(batch(0, 4, STORE), batch(0, 4, STORE, checksum=8), batch(5, 9, STORE), log_start=5) == []
    assert conflicts(batch(0, 4, STORE), batch(0, 4, STORE, checksum=8, step=2)) == []
    assert remote_conflict(history((), [batch(0, 4, STORE), batch(0, 4, STORE)], tiered=False)).judged == 0


def test_without_a_batch_in_the_store_nothing_is_judged():
    result = remote_conflict(history((), [batch(0, 4, 1), batch(3, 9, 1)]))
    assert (result.count, result.judged) == (0, 0)


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 4), st.sampled_from([STORE, 1]), st.integers(7, 8)), max_size=8
    )
)
def test_without_conflict_every_offset_has_one_batch_at_most(drawn):
    batches = [batch(base, base + size - 1, node, checksum=checksum) for base, size, node, checksum in drawn]
    if not any(node == STORE for _, _, node, _ in drawn):
        return
    distinct = {(one["base_offset"], one["last_offset"], one["checksum"]) for one in batches}
    offsets = [offset for base, last, _ in distinct for offset in range(base, last + 1)]
    assert bool(conflicts(*batches)) == (len(offsets) > len(set(offsets)))
    assert np.all([where == 1 or where == STORE for where, _, _ in conflicts(*batches)])
