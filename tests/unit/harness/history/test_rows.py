"""Rows in shared memory-mapped files: what is written is read, torn rows are left out, a full disk is stated plainly."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.columns import row_dtype
from prozess.harness.errors import StorageFull
from prozess.harness.recording.rows import FIRST_SEGMENT_ROWS, RowTail, RowWriter, read_rows, recorded, segment_rows
from prozess.harness.schema import HEARTBEATS, SENDS, TABLES

VALUES = [1, 2, 3, 4, 5, 6, 7, 1, 0, 100]


def test_every_table_has_aligned_rows_whose_last_word_is_the_mark():
    for table in TABLES.values():
        assert row_dtype(table).itemsize % 8 == 0
        assert row_dtype(table).names[-1] == "mark"
        assert len({c.name for c in table.columns}) == len(table.columns)


@given(st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=10, max_size=10), max_size=50))
def test_what_is_written_is_read(tmp_path_factory, rows):
    directory = tmp_path_factory.mktemp("rows")
    writer = RowWriter(directory, SENDS, 7)
    for row in rows:
        writer.append(*row)
    found, torn = read_rows(directory, SENDS, 7)
    assert torn == 0
    assert [list(row)[:10] for row in found.tolist()] == rows


def test_rows_beyond_a_segment_go_on_in_the_next(tmp_path):
    writer = RowWriter(tmp_path, HEARTBEATS, 1)
    count = segment_rows(0) + segment_rows(1) + 5
    writer.extend({"time_ns": np.arange(count)})
    writer.append(count)
    found, _ = read_rows(tmp_path, HEARTBEATS, 1)
    assert found["time_ns"].tolist() == list(range(count + 1))
    assert len(list(tmp_path.iterdir())) == 3


def test_a_row_completed_in_place_keeps_its_index_in_any_segment(tmp_path):
    writer = RowWriter(tmp_path, SENDS, 1)
    for _ in range(FIRST_SEGMENT_ROWS + 2):
        writer.append(*VALUES)
    for index in (0, FIRST_SEGMENT_ROWS - 1, FIRST_SEGMENT_ROWS):
        writer.rewrite(index, 99, *VALUES[1:])
    found, torn = read_rows(tmp_path, SENDS, 1)
    assert torn == 0
    assert np.flatnonzero(found["invoked_ns"] == 99).tolist() == [0, FIRST_SEGMENT_ROWS - 1, FIRST_SEGMENT_ROWS]


@given(st.sets(st.integers(0, FIRST_SEGMENT_ROWS * 3 + 9)), st.booleans())
def test_columns_completed_together_reach_exactly_their_rows_in_any_segment(tmp_path_factory, chosen, backwards):
    directory = tmp_path_factory.mktemp("rows")
    writer = RowWriter(directory, SENDS, 1)
    count = FIRST_SEGMENT_ROWS * 3 + 10
    writer.extend({column.name: np.zeros(count, dtype=np.int64) for column in SENDS.columns})
    indices = np.array(sorted(chosen, reverse=backwards), dtype=np.int64)
    writer.complete(indices, {"outcome": 1, "log_offset": indices * 2, "completed_ns": 7})
    found, torn = read_rows(directory, SENDS, 1)
    expected = np.zeros(count, dtype=bool)
    expected[indices] = True
    assert (len(found), torn) == (count, 0)
    assert ((found["outcome"] == 1) == expected).all()
    assert ((found["completed_ns"] == 7) == expected).all()
    assert (found["log_offset"] == np.where(expected, np.arange(count) * 2, 0)).all()


def test_a_torn_row_is_left_out_and_counted(tmp_path):
    writer = RowWriter(tmp_path, SENDS, 1)
    for _ in range(5):
        writer.append(*VALUES)
    writer.close()
    path = next(tmp_path.iterdir())
    rows = np.memmap(path, dtype=row_dtype(SENDS), mode="r+", shape=(FIRST_SEGMENT_ROWS,))
    rows["mark"][2] = 0
    rows["mark"][5] = 77
    rows.flush()
    found, torn = read_rows(tmp_path, SENDS, 1)
    assert found["mark"].tolist() == [1, 2, 4, 5]
    assert torn == 2


def test_rows_survive_the_kill_of_their_writer(tmp_path):
    script = (
        "import sys, pathlib, time\nfrom prozess.harness.recording.rows import RowWriter\n"
        "from prozess.harness.schema import HEARTBEATS\n"
        f"w = RowWriter(pathlib.Path({str(tmp_path)!r}), HEARTBEATS, 3)\n"
        "for i in range(1000): w.append(i)\nprint('written', flush=True)\nsys.stdin.read()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"written\n"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate(timeout=10)
    found, torn = read_rows(tmp_path, HEARTBEATS, 3)
    assert found["time_ns"].tolist() == list(range(1000))
    assert torn == 0


def test_a_tail_sees_rows_as_they_come(tmp_path):
    tail = RowTail(tmp_path, HEARTBEATS, 1)
    assert tail.segments() == []
    writer = RowWriter(tmp_path, HEARTBEATS, 1)
    writer.append(5)
    assert [int((s["mark"] > 0).sum()) for s in tail.segments()] == [1]
    writer.extend({"time_ns": np.arange(FIRST_SEGMENT_ROWS)})
    assert [int((s["mark"] > 0).sum()) for s in tail.segments()] == [FIRST_SEGMENT_ROWS, 1]


def test_a_full_disk_is_said_with_the_way_out_and_keeps_what_was_written(tmp_path, monkeypatch):
    writer = RowWriter(tmp_path, HEARTBEATS, 1)
    writer.extend({"time_ns": np.arange(FIRST_SEGMENT_ROWS)})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageFull, match=r"cannot allocate .*No space left.* Free space there"):
        writer.append(1)
    assert len(read_rows(tmp_path, HEARTBEATS, 1)[0]) == FIRST_SEGMENT_ROWS
    assert recorded(tmp_path) == {"heartbeats": [1]}


def test_foreign_files_are_no_rows(tmp_path):
    (tmp_path / "notes.rows").write_text("x")
    (tmp_path / "unknown.1.0.rows").write_text("x")
    RowWriter(tmp_path, SENDS, 2)
    assert recorded(tmp_path) == {"sends": [2]}
