"""The rolling window of a watch: what it says, what it does not, and that it stays small. A partition is played by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.clock import NS_PER_S
from prozess.harness.schema import NONE, SENDS, Outcome, ReadFlag
from prozess.watch.window import DOUBTED_AFTER_CHANGES, FOREIGN, KEEP_NS, PartitionWindow, WindowRows

RETENTION_NS = 1800 * NS_PER_S


class Played:
    """A partition whose log, acknowledgements and reads a test decides. A second passes with every step."""

    def __init__(self):
        self.window = PartitionWindow(0, retention_ns=RETENTION_NS)
        self.now_ns, self.sequence, self.epoch, self.client, self.span = 0, -1, 3, 1, 0
        self.told = []

    def send(self):
        self.now_ns += NS_PER_S // 2
        self.sequence += 1
        self.window.invoked(client=self.client, sequence=self.sequence, invoked_ns=self.now_ns, size=100)
        return self.sequence

    def complete(self, sequence, offset, outcome=Outcome.OK):
        self.window.completed(sequence, completed_ns=self.now_ns + 1, log_offset=offset, outcome=outcome, code=0)

    def acknowledged(self, offset):
        sequence = self.send()
        self.complete(sequence, offset)
        return sequence

    def read(self, offset, sequence, *, client=None, corrupt=False, sent_partition=0):
        self.now_ns += NS_PER_S // 2
        given = NONE if corrupt else sequence
        self.window.read(
            {
                "read_ns": np.array([self.now_ns]),
                "log_offset": np.array([offset]),
                "sequence": np.array([given]),
                "key": np.array([NONE]),
                "origin": np.array([NONE]),
                "sender": np.array([NONE if corrupt else self.client if client is None else client]),
                "partition": np.array([0]),
                "sent_partition": np.array([NONE if corrupt else sent_partition]),
                "span": np.array([self.span]),
                "flags": np.array([int(ReadFlag.CORRUPT) if corrupt else 0]),
                "leader_epoch": np.array([self.epoch]),
            }
        )

    def both(self, offset):
        self.read(offset, self.acknowledged(offset))

    def sample(self, high_watermark, *, node=1, log_start=0, epoch=None):
        self.now_ns += 1
        self.window.answered(
            time_ns=self.now_ns,
            node=node,
            leader_epoch=self.epoch if epoch is None else epoch,
            log_start=log_start,
            high_watermark=high_watermark,
        )

    def check(self, after_s=0.0):
        self.now_ns += int(after_s * NS_PER_S)
        found = self.window.check(self.now_ns)
        self.told += found
        return [(sighting.name, sighting.certain, sighting.count) for sighting in found]


@pytest.fixture
def played():
    return Played()


def test_a_partition_in_order_is_told_of_never_and_the_window_stays_small(played):
    for offset in range(400):
        played.both(offset)
        played.sample(offset + 1)
        if offset % 5 == 0:
            assert played.check() == []
    assert played.window.rows < 150
    assert played.window.unproven() == 0


def test_a_record_that_the_reader_passed_by_is_lost_and_is_told_once(played):
    played.both(0)
    lost = played.acknowledged(1)
    assert played.check() == []
    played.both(2)
    assert played.check() == [("lost", True, 1)]
    assert f"record {lost} of producer 1" in played.told[0].text
    for offset in range(3, 60):
        played.both(offset)
        assert played.check() == []
    assert played.window.unproven() == 0


def test_an_acknowledged_record_that_was_not_reached_is_waited_for_and_not_lost(played):
    played.both(0)
    played.acknowledged(1)
    since_ns = played.window.unread_since()
    assert since_ns is not None
    assert played.check(after_s=300) == []
    assert (played.window.unread_since(), played.window.unproven()) == (since_ns, 1)
    played.read(1, 1)
    assert (played.window.unread_since(), played.window.unproven()) == (None, 0)


def test_records_in_doubt_are_neither_lost_nor_kept(played):
    played.both(0)
    played.complete(played.send(), NONE, Outcome.INFO)
    played.both(1)
    assert played.check() == []
    for offset in range(2, 40):
        played.both(offset)
        assert played.check() == []
    assert played.window.rows < 150


def test_a_second_copy_is_told_and_in_doubt_only_if_the_leader_changed(played):
    played.both(0)
    played.both(1)
    played.read(2, 1)
    assert ("duplicate", True, 1) in played.check()
    other = Played()
    other.both(0)
    other.epoch += 1
    other.both(1)
    other.read(2, 1)
    assert [(name, certain) for name, certain, _ in other.check()] == [("duplicate", False)]


def test_a_second_copy_is_in_doubt_within_a_minute_of_a_failed_send_and_certain_later(played):
    played.both(0)
    played.window.disturbed(played.now_ns)
    played.both(1)
    played.read(2, 1)
    assert [(name, certain) for name, certain, _ in played.check()] == [("duplicate", False)]
    later = Played()
    later.window.disturbed(later.now_ns)
    later.now_ns += 61 * NS_PER_S
    later.both(0)
    later.both(1)
    later.read(2, 1)
    assert ("duplicate", True, 1) in later.check()


def test_a_copy_of_a_record_that_was_dropped_is_told_as_out_of_order(played):
    for offset in range(60):
        played.both(offset)
        played.check()
    played.read(60, 3)
    played.both(61)
    assert ("reordered", True) in [(name, certain) for name, certain, _ in played.check()]


def test_records_in_another_order_are_told(played):
    first, second = played.send(), played.send()
    played.complete(first, 1)
    played.complete(second, 0)
    played.read(0, second)
    played.read(1, first)
    assert ("reordered", True, 1) in played.check()


def test_two_producers_within_the_window_make_an_order_doubtful(played):
    played.both(0)
    played.client = 2
    first, second = played.send(), played.send()
    played.complete(first, 2)
    played.complete(second, 1)
    played.read(1, second)
    played.read(2, first)
    found = played.check()
    assert found
    assert not any(certain for _, certain, _ in found)


def test_what_somebody_else_wrote_is_unknown(played):
    played.both(0)
    played.read(1, 0, corrupt=True)
    assert played.check() == [("corrupt", False, 1)]
    assert "somebody else may write" in played.told[0].text
    assert "record -1" not in played.told[0].text


def test_an_acknowledged_record_that_cannot_be_read_as_it_was_sent_is_a_violation(played):
    played.both(0)
    played.acknowledged(1)
    played.read(1, 1, corrupt=True)
    assert ("corrupt", True, 1) in played.check()


def test_a_high_watermark_that_goes_back_under_a_later_leader_tells_how_many_are_gone(played):
    for offset in range(20):
        played.both(offset)
    played.sample(20, node=1)
    played.sample(20, node=2, epoch=2)  # whom it is asked after
    assert played.check() == []
    played.epoch += 1
    played.sample(12, node=2)
    assert played.check() == [("watermark-regression", True, 8)]
    assert played.window.restart_offset(12) <= 12
    for offset in range(12, 40):
        played.both(offset)
        played.sample(offset + 1, node=2)
        assert played.check() == []


def test_an_empty_log_of_a_broker_that_comes_back_is_told(played):
    for offset in range(20):
        played.both(offset)
        played.sample(offset + 1)
    played.epoch += 1
    played.now_ns += 200 * NS_PER_S  # it was away
    assert played.check() == []
    played.sample(0)
    assert played.check() == [("watermark-regression", True, 20)]
    assert played.window.restart_offset(0) == 0


def test_what_a_deposed_leader_still_answers_is_not_told(played):
    for offset in range(20):
        played.both(offset)
        played.sample(offset + 1, node=1)
    old, played.epoch = played.epoch, played.epoch + 1
    for offset in range(20, 30):
        played.both(offset)
        played.sample(offset + 1, node=2)
        played.sample(20, node=1, epoch=old)
        assert played.check() == []


def test_records_that_were_deleted_are_told_and_are_not_lost(played):
    for offset in range(20):
        played.both(offset)
        played.sample(offset + 1)
    played.acknowledged(20)
    played.sample(21, log_start=21)
    assert played.check() == [("deleted", True, 21)]
    played.both(21)
    assert played.check() == []


def test_what_retention_removes_is_told_by_nobody(played):
    for offset in range(4_000):
        played.both(offset)
        removed = max(0, offset - RETENTION_NS // NS_PER_S - 60)
        played.sample(offset + 1, log_start=removed)
        if offset % 50 == 0:
            assert played.check() == [], offset


def test_records_that_retention_removed_before_they_were_read_are_unknown(played):
    for offset in range(100):
        played.both(offset)
    for offset in range(100, 5_000):  # nothing can be read
        played.acknowledged(offset)
        if offset % 20 == 0:
            played.sample(offset + 1)
    played.sample(5_000, log_start=1_000)
    assert played.check() == [("not-followed", False, 900)]
    played.read(1_000, 1_000)
    assert played.check(after_s=60) == []


def test_an_acknowledgement_without_offset_is_proven_by_its_read_and_else_by_what_stands_in_its_stead(played):
    played.both(0)
    played.complete(played.send(), NONE)
    played.read(1, 1)
    played.complete(played.send(), NONE)
    for offset in range(2, 40):
        played.both(offset)
        played.check()
    found = [(sighting.name, sighting.certain, sighting.count) for sighting in played.told]
    assert found == [("lost", True, 1), ("not-followed", False, 1)]


def test_an_acknowledgement_without_offset_that_nothing_proves_is_unknown(played):
    for offset in range(2, 40):
        played.both(offset)
        played.complete(played.send(), NONE) if offset == 5 else None
        played.check()
    found = [(sighting.name, sighting.certain, sighting.count) for sighting in played.told]
    assert found == [("not-followed", False, 1)], "nobody read from offset 0 on"


def test_a_read_before_its_acknowledgement_proves_it_however_late_that_comes(played):
    late = played.send()
    played.read(0, late)
    for offset in range(1, 60):
        played.both(offset)
        assert played.check() == []
    played.complete(late, 0)
    assert played.check(after_s=20) == []
    assert played.window.unproven() == 0


def test_a_kernel_that_fails_is_unknown_once(played, monkeypatch):
    def broken(history):
        raise ValueError(history.partition)

    monkeypatch.setattr("prozess.watch.window.KERNELS", {"lost": broken})
    played.both(0)
    assert played.check() == [("judge-failed", False, 1)]
    assert played.check() == []


STEPS = st.lists(st.sampled_from(["ok", "doubt", "late", "pause", "epoch"]), min_size=1, max_size=100)


@given(steps=STEPS)
def test_nothing_is_told_of_a_log_that_keeps_every_acknowledged_record_in_order(steps):
    """Records in doubt may stand in the log or not, reads and acknowledgements come late, leaders change."""
    played, offset, unread = Played(), 0, []
    for number, step in enumerate(steps):
        if step == "ok":
            unread.append((offset, played.acknowledged(offset)))
            offset += 1
        elif step == "doubt":
            sequence = played.send()
            if number % 2:
                unread.append((offset, sequence))
                offset += 1
            played.complete(sequence, NONE, Outcome.INFO)
        elif step == "late":
            for place, sequence in unread:
                played.read(place, sequence)
            unread.clear()
            played.sample(offset)
        elif step == "pause":
            played.now_ns += KEEP_NS
            assert played.check() == []
        else:
            played.epoch += 1
    assert played.check() == []


@given(count=st.integers(4, 40), lost=st.data())
def test_every_acknowledged_record_that_is_missing_is_told_exactly_once(count, lost):
    missing = lost.draw(st.sets(st.integers(1, count - 2), max_size=5))
    played = Played()
    for offset in range(count):
        sequence = played.acknowledged(offset)
        if offset not in missing:
            played.read(offset, sequence)
        if offset % 4 == 0:
            played.check(after_s=1)
    played.check()
    assert sum(sighting.count for sighting in played.told if sighting.name == "lost") == len(missing)
    assert {sighting.name for sighting in played.told} <= {"lost"}


@given(kept=st.lists(st.booleans(), max_size=700))
def test_rows_keep_what_is_chosen_in_its_order(kept):
    rows = WindowRows(SENDS)
    for number, _ in enumerate(kept):
        rows.append(**dict.fromkeys(SENDS.column_names, number))
    rows.keep(np.array(kept, dtype=bool))
    assert rows.columns()["sequence"].tolist() == [number for number, chosen in enumerate(kept) if chosen]


def test_what_may_be_doubted_is_not_what_is_always_certain():
    assert not FOREIGN & DOUBTED_AFTER_CHANGES
    assert "lost" not in FOREIGN | DOUBTED_AFTER_CHANGES
