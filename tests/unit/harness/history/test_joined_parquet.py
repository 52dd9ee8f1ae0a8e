"""Parts of a table, joined, are byte for byte the file that one writer writes."""

import errno
import pickle

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.errors import StorageFull
from prozess.harness.history import parquet
from prozess.harness.history.joining import FileToJoin
from prozess.harness.history.parquet import TableFile, TableWriter, join_into, rows_into, table_path, writer_to
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import SENDS, TABLES

PARTITIONED = [table for table in TABLES.values() if table.partitioned]


def rows_of(table, partition, count, seed):
    """Columns of a partition: some of one value, some of small numbers, some of any."""
    rng = np.random.default_rng(seed)
    columns = {"client": rng.integers(0, 3, count).astype(np.int32)}
    for number, column in enumerate(table.columns):
        bounds = ((7, 8), (-1, 40), (-(2**31), 2**31 - 1))[number % 3]
        columns[column.name] = rng.integers(*bounds, count).astype(column.kind)
    return columns | {"partition": np.full(count, partition, dtype=np.int32)}


def both(folder, table, groups, cuts, *, torn=0, start_ns=5):
    """The bytes that a TableWriter writes of these groups of rows, and those of their parts, joined."""
    run = RunDirectory(folder / "run")
    run.create()
    with TableWriter(run, table, start_ns=start_ns, torn_rows=torn) as writer:
        for columns in groups:
            writer.write(columns)
    whole = table_path(run, table.name).read_bytes()
    table_path(run, table.name).unlink()
    parts = []
    for number, (low, high) in enumerate(zip([0, *cuts], [*cuts, len(groups)], strict=True)):
        path = folder / f"{number}.part"
        with writer_to(path, table) as writer:
            for columns in groups[low:high]:
                rows_into(writer, table, columns)
        parts.append(pickle.loads(pickle.dumps(FileToJoin.of(path))))
    join_into(run, table, parts, start_ns=start_ns, torn_rows=torn)
    return run, whole, table_path(run, table.name).read_bytes()


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(PARTITIONED),
    st.lists(st.integers(0, 300), max_size=20),
    st.lists(st.integers(0, 20), max_size=4),
    st.integers(0, 3),
    st.integers(-(2**62), 2**62),
)
def test_parts_joined_are_the_file_that_one_writer_writes(tmp_path_factory, table, lengths, cuts, torn, start_ns):
    groups = [rows_of(table, partition, count, partition) for partition, count in enumerate(lengths)]
    cuts = sorted(min(cut, len(groups)) for cut in cuts)
    _, whole, joined = both(tmp_path_factory.mktemp("parts"), table, groups, cuts, torn=torn, start_ns=start_ns)
    assert joined == whole


def test_of_a_large_partition_there_are_several_row_groups_and_its_neighbours_stay_where_they_are(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(parquet, "ROW_GROUP_MAX", 500)
    groups = [rows_of(SENDS, partition, count, partition) for partition, count in enumerate([40_000, 3, 9_000])]
    run, whole, joined = both(tmp_path, SENDS, groups, [1, 2])
    assert joined == whole
    assert pq.read_metadata(table_path(run, "sends")).num_row_groups == 80 + 1 + 18
    file = TableFile(run, SENDS)
    assert {p: file.rows_of(p) for p in file.row_ranges} == {0: 40_000, 1: 3, 2: 9_000}
    assert np.array_equal(file.read(["sequence"], file.row_ranges[2])["sequence"], groups[2]["sequence"])


def test_no_parts_are_a_table_without_rows(tmp_path):
    _, whole, joined = both(tmp_path, SENDS, [], [])
    assert joined == whole


def test_a_full_disk_is_said_plainly_and_leaves_the_old_table(tmp_path, monkeypatch):
    run, _, joined = both(tmp_path, SENDS, [rows_of(SENDS, 0, 10, 1)], [])

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(parquet, "join_files", full)
    with pytest.raises(StorageFull, match=r"sends\.parquet: no room left for the history"):
        join_into(run, SENDS, [], start_ns=0, torn_rows=0)
    assert [path.name for path in run.history.iterdir()] == ["sends.parquet"]
    assert table_path(run, "sends").read_bytes() == joined
