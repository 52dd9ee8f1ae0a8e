"""Tests of the rules for share groups in `__share_group_state`: each by a log that breaks it, all by a second model."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.checkers.metadata import illegal_share_state as kernel
from prozess.checkers.metadata.illegal_share_state import illegal_share_state
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import ShareStateCase as Case
from prozess.harness.schema import NONE, ShareRecord
from prozess.harness.schema import ShareState as State
from tests.support.cells.partitions import CELL, PARTITION, history, table

Row = dict[str, int]


def judged(rows: Sequence[Row]) -> KernelResult:
    cell = CELL.model_copy(update={"partitions": (PARTITION,)})
    tables = {"share_states": table("share_states", rows)}
    made = CellHistory(cell=cell, partitions={PARTITION: history()}, tables=tables, clients=())
    result = illegal_share_state(made)
    assert result.count == len(result.witnesses)
    return result


def rows_of(records: Sequence[Sequence[Row]]) -> list[Row]:
    """Record n is at offset n, at n ns."""
    return [row | {"log_offset": n, "time_ns": n} for n, record in enumerate(records) for row in record]


def broken(*records: Sequence[Row]) -> list[tuple[Case, int, int]]:
    """The rules that records break, each with the number of the record, and the offset it is about."""
    found = judged(rows_of(records)).witnesses
    return sorted((Case(int(w["case"])), int(w["begin_ns"]), int(w["log_offset"])) for w in found)


def row(kind: ShareRecord, **more: int) -> Row:
    return {"group": CELL.cell, "partition": PARTITION, "kind": int(kind)} | more


def states(*ranges: tuple[int, int, State, int]) -> list[Row]:
    names = ("first_offset", "last_offset", "state", "delivery_count")
    return [row(ShareRecord.RANGE, **dict(zip(names, map(int, one), strict=True))) for one in ranges]


def update(*ranges: tuple[int, int, State, int], start: int = NONE, leader: int = 1) -> list[Row]:
    return [row(ShareRecord.UPDATE, partition_epoch=leader, first_offset=start), *states(*ranges)]


def snapshot(*ranges: tuple[int, int, State, int], epoch: int = 1, start: int = 0, leader: int = 1) -> list[Row]:
    own = row(ShareRecord.SNAPSHOT, state_epoch=epoch, partition_epoch=leader, first_offset=start)
    return [own, *states(*ranges)]


GONE = [row(ShareRecord.GONE)]


def test_a_record_that_was_released_is_delivered_again_and_accepted():
    released = update((5, 7, State.AVAILABLE, 1))
    again = update((5, 7, State.AVAILABLE, 2), (6, 6, State.ACKNOWLEDGED, 3))
    assert broken(snapshot(), released, again, update((6, 7, State.ACKNOWLEDGED, 3), start=5)) == []
    archived = [update((5, 7, State.ARCHIVING, 2)), update((5, 7, State.ARCHIVED, 2), start=8)]
    assert broken(snapshot(), released, *archived) == []


@pytest.mark.parametrize("final", [State.ACKNOWLEDGED, State.ARCHIVED])
@pytest.mark.parametrize("then", [State.AVAILABLE, State.ACQUIRED])
def test_what_is_final_stays_so(final, then):
    begun = [snapshot(), update((5, 9, final, 2))]
    assert broken(*begun, update((6, 7, then, 2))) == [(Case.FINAL_TAKEN_BACK, 2, 6), (Case.FINAL_TAKEN_BACK, 2, 7)]
    assert broken(*begun, update((6, 7, final, 2))) == []
    assert broken(*begun, update((4, 4, then, 1), (10, 12, then, 1))) == []


def test_what_is_on_its_way_to_the_dead_letter_queue_goes_nowhere_else():
    begun = [snapshot(), update((5, 5, State.ARCHIVING, 2))]
    assert broken(*begun, update((5, 5, State.ACKNOWLEDGED, 2))) == [(Case.FINAL_TAKEN_BACK, 2, 5)]


def test_an_older_write_that_comes_after_a_newer_one_is_two_findings():
    found = broken(snapshot(start=63), update((63, 63, State.ARCHIVED, 2)), update((63, 63, State.AVAILABLE, 1)))
    assert found == [(Case.FINAL_TAKEN_BACK, 2, 63), (Case.COUNT_FELL, 2, 63)]


def test_the_start_offset_and_epochs_go_forward():
    assert broken(snapshot(start=5), update(start=4)) == [(Case.START_FELL, 1, 4)]
    assert broken(snapshot(start=5), update(start=5), update(), update(start=6)) == []
    assert broken(snapshot(epoch=2), snapshot(epoch=1)) == [(Case.STATE_EPOCH_FELL, 1, NONE)]
    assert broken(snapshot(leader=3), update(leader=2)) == [(Case.LEADER_EPOCH_FELL, 1, NONE)]


def test_another_state_epoch_begins_anew_and_so_does_what_is_gone():
    begun = [snapshot(start=9), update((9, 9, State.ACKNOWLEDGED, 2))]
    assert broken(*begun, snapshot((9, 9, State.AVAILABLE, 0), epoch=2, start=3)) == []
    assert broken(*begun, GONE, snapshot((9, 9, State.AVAILABLE, 0), start=3, leader=0)) == []
    assert len(broken(*begun, snapshot((9, 9, State.AVAILABLE, 2), start=9))) == 1, "of the same epoch"


def test_without_the_log_nothing_was_looked_at(monkeypatch):
    result = judged([])
    assert (result.count, result.judged) == (0, 0)
    assert result.incomplete == f"no share coordinator's log says anything about partition {PARTITION}"
    others = [one | {"group": NONE} for one in rows_of([snapshot()])]
    assert judged(others).judged == 0
    monkeypatch.setattr(kernel, "OFFSETS_MAX", 4)
    assert "more than 4 states of records" in (judged(rows_of([update((1, 5, State.AVAILABLE, 1))])).incomplete or "")


@pytest.mark.parametrize(
    ("at", "change"),
    [
        (0, {"state_epoch": NONE}),
        (1, {"log_offset": 3}),
        (1, {"last_offset": 4}),
        (1, {"state": NONE}),
        (0, {"kind": 4}),
    ],
)
def test_rows_that_are_no_record_make_it_incomplete(at, change):
    rows = rows_of([snapshot((5, 7, State.AVAILABLE, 1))])
    assert judged(rows).incomplete is None
    rows[at] = rows[at] | change
    assert "are missing, or say what no record does" in (judged(rows).incomplete or "")


# --- a second model, which goes through the log record by record


def naive(records: Sequence[Sequence[Row]]) -> list[tuple[Case, int, int]]:
    found = list[tuple[Case, int, int]]()
    epoch: int | None = None
    known, start, last_epoch, leader = dict[int, tuple[State, int]](), NONE, NONE, NONE
    for at, (own, *ranges) in enumerate(records):
        if own["kind"] == ShareRecord.GONE:
            known, start, last_epoch, leader = {}, NONE, NONE, NONE
            continue
        if own["kind"] == ShareRecord.SNAPSHOT:
            if own["state_epoch"] != epoch:
                known, start, epoch = {}, NONE, own["state_epoch"]
            found += [(Case.STATE_EPOCH_FELL, at, NONE)] if own["state_epoch"] < last_epoch else []
            last_epoch = own["state_epoch"]
        found += [(Case.LEADER_EPOCH_FELL, at, NONE)] if own["partition_epoch"] < leader else []
        leader = own["partition_epoch"]
        if own["first_offset"] >= 0:
            found += [(Case.START_FELL, at, own["first_offset"])] if own["first_offset"] < start else []
            start = own["first_offset"]
        for one in ranges:
            for offset in range(one["first_offset"], one["last_offset"] + 1):
                now = State(one["state"]), one["delivery_count"]
                was = known.get(offset)
                known[offset] = now
                found += [(case, at, offset) for case in ([] if was is None else changed(was, now))]
    return sorted(found)


def changed(was: tuple[State, int], now: tuple[State, int]) -> list[Case]:
    final = {State.ACKNOWLEDGED: [State.ACKNOWLEDGED], State.ARCHIVED: [State.ARCHIVED]}
    final[State.ARCHIVING] = [State.ARCHIVING, State.ARCHIVED]
    found = [Case.FINAL_TAKEN_BACK] if now[0] not in final.get(was[0], State) else []
    return found + ([Case.COUNT_FELL] if now[1] < was[1] else [])


ranges = st.lists(
    st.builds(
        lambda first, length, state, count: (first, first + length, state, count),
        st.integers(0, 6),
        st.integers(0, 3),
        st.sampled_from(State),
        st.integers(0, 2),
    ),
    max_size=3,
)
updates = st.builds(
    lambda some, start, leader: update(*some, start=start, leader=leader),
    ranges,
    st.integers(-1, 3),
    st.integers(0, 2),
)
snapshots = st.builds(
    lambda some, epoch, start, leader: snapshot(*some, epoch=epoch, start=start, leader=leader),
    ranges,
    st.integers(0, 2),
    st.integers(0, 3),
    st.integers(0, 2),
)


@given(snapshots, st.lists(st.one_of(updates, updates, snapshots, st.just(GONE)), max_size=9))
def test_the_rules_agree_with_a_model_that_goes_record_by_record(first, log):
    assert broken(first, *log) == naive([first, *log])
