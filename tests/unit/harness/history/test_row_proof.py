"""Files of rows prove themselves: what is changed, cut, lost or in another's place is stated; what a SIGKILL leaves is
not."""

import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.columns import row_dtype
from prozess.harness.recording.rows import (
    FIRST_SEGMENT_ROWS,
    PROOF_BYTES,
    RowWriter,
    damaged_rows,
    read_rows,
    rows_in,
    segment_rows,
)
from prozess.harness.schema import HEARTBEATS, SENDS

COLUMNS = {column.name: np.arange(10) for column in SENDS.columns}
NAME = "sends.1.0.rows"


def written(directory, *, rows=10, client=1, seal=True):
    writer = RowWriter(directory, SENDS, client)
    writer.extend({column.name: np.arange(rows) for column in SENDS.columns})
    if seal:
        writer.close()
    return writer


def test_a_file_that_nobody_touched_is_whole_sealed_or_not(tmp_path):
    written(tmp_path)
    written(tmp_path, client=2, seal=False)
    written(tmp_path, client=3, rows=0)
    written(tmp_path, client=4, rows=segment_rows(0) + segment_rows(1) + 3)
    assert damaged_rows(tmp_path) == {}
    assert [rows_in(tmp_path / f"sends.4.{n}.rows") for n in range(3)] == [segment_rows(0), segment_rows(1), 3]


@given(st.lists(st.sampled_from(["append", "rewrite", "complete", "close"]), max_size=12))
def test_rows_completed_in_place_are_whole_once_they_are_sealed_again(tmp_path_factory, deeds):
    directory = tmp_path_factory.mktemp("rows")
    writer = written(directory)
    for deed in deeds:
        if deed == "append":
            writer.append(*range(10))
        elif deed == "rewrite":
            writer.rewrite(3, *range(7, 17))
        elif deed == "complete":
            writer.complete(np.array([0, 9, 4]), {"outcome": 1, "completed_ns": 77})
        else:
            writer.close()
    writer.close()
    assert damaged_rows(directory) == {}
    assert len(read_rows(directory, SENDS, 1)[0]) == writer.count


@settings(deadline=None)
@given(st.integers(1, FIRST_SEGMENT_ROWS + 9), st.integers(0, 2**32), st.integers(0, 7), st.booleans())
def test_any_bit_that_is_flipped_in_a_row_or_in_its_proof_is_said(tmp_path_factory, rows, place, bit, of_proof):
    directory = tmp_path_factory.mktemp("rows")
    written(directory, rows=rows)
    size, whole = row_dtype(SENDS).itemsize, segment_rows(0) * row_dtype(SENDS).itemsize
    used = min(rows, segment_rows(0))
    # Of the proof that page which says something: identity, count, state and seal.
    said = [*range(whole, whole + 68), *range(whole + 64, whole + 96)]
    at = said[place % len(said)] if of_proof else place % (used * size)
    path = directory / NAME
    content = bytearray(path.read_bytes())
    if of_proof and whole + 48 <= at < whole + 64:
        return  # between identity and count there is nothing
    content[at] ^= 1 << bit
    path.write_bytes(content)
    assert set(damaged_rows(directory)) == {NAME}


@pytest.mark.parametrize("kept", [0, 1, PROOF_BYTES, 0.75, 0.999])
def test_a_file_that_is_cut_is_said_with_what_it_should_have(tmp_path, kept):
    written(tmp_path)
    content = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(content[: int(len(content) * kept) if isinstance(kept, float) else kept])
    assert f"instead of {len(content):,}" in damaged_rows(tmp_path)[NAME]


def test_rows_that_a_disk_lost_are_missed_though_their_writer_was_killed(tmp_path):
    written(tmp_path, rows=200, seal=False)
    size = row_dtype(SENDS).itemsize
    content = bytearray((tmp_path / NAME).read_bytes())
    content[100 * size : 200 * size] = bytes(100 * size)
    (tmp_path / NAME).write_bytes(content)
    assert damaged_rows(tmp_path)[NAME] == "has 100 of 200 rows torn, such as row 100"


def test_a_row_that_was_being_written_when_its_writer_was_killed_is_no_damage(tmp_path):
    written(tmp_path, seal=False)
    rows = np.memmap(tmp_path / NAME, dtype=row_dtype(SENDS), mode="r+", shape=(segment_rows(0),))
    rows["invoked_ns"][10] = 5  # without its mark
    rows.flush()
    assert damaged_rows(tmp_path) == {}
    assert len(read_rows(tmp_path, SENDS, 1)[0]) == 10


def test_files_in_each_others_place_are_said(tmp_path):
    written(tmp_path)
    written(tmp_path, client=2)
    one, other = tmp_path / NAME, tmp_path / "sends.2.0.rows"
    one.rename(tmp_path / "kept")
    other.rename(one)
    (tmp_path / "kept").rename(other)
    assert set(damaged_rows(tmp_path)) == {NAME, other.name}


def test_a_segment_that_is_missing_before_a_later_one_is_named(tmp_path):
    written(tmp_path, rows=segment_rows(0) + 5)
    (tmp_path / NAME).unlink()
    assert damaged_rows(tmp_path) == {NAME: "is missing, although later segments are there"}


@pytest.mark.parametrize("step", ["os.posix_fallocate", "mmap.mmap", "SegmentProof._put"])
def test_a_segment_that_was_being_made_when_its_writer_was_killed_is_no_damage(tmp_path, monkeypatch, step):
    writer = RowWriter(tmp_path, SENDS, 1)
    for number in range(segment_rows(0)):
        writer.append(*([number] * len(SENDS.columns)))

    def killed(*_words):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"prozess.harness.recording.rows.{step}", killed)
    with pytest.raises(KeyboardInterrupt):
        writer.append(*([1] * len(SENDS.columns)))
    monkeypatch.undo()
    assert len(list(tmp_path.iterdir())) == 2, "the second segment was begun"
    assert damaged_rows(tmp_path) == {}
    assert len(read_rows(tmp_path, SENDS, 1)[0]) == segment_rows(0)


WRITING = """
import pathlib, sys
import numpy as np
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import HEARTBEATS
writer = RowWriter(pathlib.Path(sys.argv[1]), HEARTBEATS, 3)
while True:
    writer.extend({"time_ns": np.arange(700)})
    for number in range(50):
        writer.append(number)
        writer.rewrite(writer.count // 2, number)
    writer.close()
    print(writer.count, flush=True)
"""


@pytest.mark.parametrize("seed", range(6))
def test_whenever_a_writer_is_killed_nothing_recorded_is_lost_and_nothing_is_taken_for_damage(tmp_path, seed):
    child = subprocess.Popen([sys.executable, "-c", WRITING, str(tmp_path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    counts = [int(child.stdout.readline()) for _ in range(random.Random(seed).randrange(1, 40))]
    os.kill(child.pid, signal.SIGKILL)  # while it writes, rewrites or seals
    child.communicate(timeout=30)
    assert damaged_rows(tmp_path) == {}
    assert len(read_rows(tmp_path, HEARTBEATS, 3)[0]) >= counts[-1]
