"""What several controllers have of the log, beginning with snapshots, torn, or damaged: decoded as far as it is certain."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.metadata_log import LOG_DIRECTORY
from clusters.record_batches import read_batches
from harness.errors import HistoryUnreadable
from tests.unit.metadata_logs import batch, controller, decode, fence, of_partition, quorum, rows, unzipped


def test_what_only_a_deposed_controller_has_is_not_committed(tmp_path):
    whole = decode(*quorum(tmp_path / "whole"))
    one, two, three = quorum(tmp_path / "tail")
    last = read_batches(unzipped("metadata-quorum-4.3.1.3001.log.gz")).batches[-1]
    invented = batch(last.last_offset + 1, [fence(1)], epoch=last.leader_epoch)
    with (one / LOG_DIRECTORY / f"{0:020d}.log").open("ab") as log:
        log.write(invented)
    columns = decode(one, two, three)
    assert rows(columns, "kind", "log_position") == rows(whole, "kind", "log_position")


def test_what_a_majority_has_is_committed_although_one_controller_is_gone(tmp_path):
    whole = decode(*quorum(tmp_path / "whole"))
    one, _, three = quorum(tmp_path / "two")
    columns = decode(one, tmp_path / "wiped", three)
    assert rows(columns, "kind", "log_position") == rows(whole, "kind", "log_position")


def test_a_minority_of_the_controllers_proves_nothing(tmp_path):
    one, _, _ = quorum(tmp_path)
    with pytest.raises(HistoryUnreadable, match="needs 2 of 3 controllers' logs; readable: 1"):
        decode(one, tmp_path / "wiped", tmp_path / "too")


def test_a_log_that_begins_with_a_snapshot_goes_on_from_it(tmp_path):
    log = unzipped("metadata-quorum-4.3.1.3001.log.gz")
    snapshot = unzipped("metadata-quorum-4.3.1.00000000000000000043-0000000002.checkpoint.gz")
    cut = [b for b in read_batches(log).batches if b.base_offset < 20]  # so that 20 … 42 are in both
    position = sum(61 + len(b.payload) for b in cut)
    end = cut[-1].last_offset + 1
    directory = controller(tmp_path / "cut", log[position:], first_offsets=(end,))
    (directory / LOG_DIRECTORY / "00000000000000000043-0000000002.checkpoint").write_bytes(snapshot)
    columns, whole = decode(directory), decode(controller(tmp_path / "whole", log))

    def final(history, p):
        return rows(of_partition(history, p), "leader", "leader_epoch", "isr", "replicas", "elr", "recovering")[-1]

    assert [final(columns, p) for p in (0, 1, 2)] == [final(whole, p) for p in (0, 1, 2)]
    after = whole["log_position"] >= 43
    assert after.any()
    names = ("kind", "log_position", "node")
    assert rows(columns, *names)[-after.sum() :] == rows(whole, *names)[-after.sum() :]
    before = columns["log_position"] < 43
    assert before.any()
    assert set(columns["log_position"][before]) == {42}, "what the snapshot holds is stated at its last record"


def test_a_log_that_begins_late_without_a_snapshot_is_refused(tmp_path):
    log = unzipped("metadata-3.9.2.log.gz")
    first = read_batches(log).batches[0]
    directory = controller(tmp_path, log[61 + len(first.payload) :], first_offsets=(first.last_offset + 1,))
    with pytest.raises(HistoryUnreadable, match="begins at offset 1, and no snapshot"):
        decode(directory)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_torn_last_batch_is_left_out_wherever_it_is_cut(tmp_path_factory, data):
    log = unzipped("metadata-3.9.2.log.gz")
    batches = read_batches(log).batches
    missing = data.draw(st.integers(1, 61 + len(batches[-1].payload)))
    columns = decode(controller(tmp_path_factory.mktemp("torn"), log[:-missing]))
    whole = decode(controller(tmp_path_factory.mktemp("whole"), log))
    kept = int((whole["log_position"] < batches[-1].base_offset).sum())
    assert rows(columns, "kind", "log_position") == rows(whole, "kind", "log_position")[:kept]


def test_zeros_behind_the_last_batch_are_a_torn_tail(tmp_path):
    log = unzipped("metadata-3.9.2.log.gz")
    columns = decode(controller(tmp_path / "zeros", log + bytes(4096)))
    assert len(columns["kind"]) == len(decode(controller(tmp_path / "whole", log))["kind"])


def test_damage_in_the_middle_is_refused(tmp_path):
    log = bytearray(unzipped("metadata-3.9.2.log.gz"))
    log[len(log) // 2] ^= 0xFF
    with pytest.raises(HistoryUnreadable, match="is damaged at byte"):
        decode(controller(tmp_path, bytes(log)))


def test_a_torn_segment_that_is_not_the_last_is_refused(tmp_path):
    first, second = batch(0, [fence(1)]), batch(1, [fence(2)])
    with pytest.raises(HistoryUnreadable, match="yet the log goes on"):
        decode(controller(tmp_path, first + first[:20], second, first_offsets=(0, 1)))


def test_a_missing_segment_is_refused(tmp_path):
    with pytest.raises(HistoryUnreadable, match="offset 5 follows 0"):
        decode(controller(tmp_path, batch(0, [fence(1)]), batch(5, [fence(2)]), first_offsets=(0, 5)))


def test_segments_are_read_one_after_the_other(tmp_path):
    columns = decode(controller(tmp_path, batch(0, [fence(1)]), batch(1, [fence(2)]), b"", first_offsets=(0, 1, 2)))
    assert rows(columns, "node", "log_position") == [(1, 0), (2, 1)]


@pytest.mark.parametrize("content", [None, b""])
def test_a_missing_or_empty_log_is_refused_by_name(tmp_path, content):
    directory = controller(tmp_path, content) if content is not None else tmp_path
    with pytest.raises(HistoryUnreadable, match="holds no metadata log"):
        decode(directory)
