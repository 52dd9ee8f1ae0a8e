"""A history that is torn, foreign, or older than its rows: named, or written again; never a wrong number."""

import os

import numpy as np
import pyarrow.parquet as pq
import pytest

from prozess.harness.errors import HistoryUnreadable
from prozess.harness.history import parquet
from prozess.harness.history.convert import History, ensure_history, write_history
from prozess.harness.history.participants import client_facts
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import FORMAT_VERSION, TABLES
from tests.support.small_runs import make_small


@pytest.fixture
def small(tmp_path):
    return make_small(tmp_path / "run")


def test_a_missing_table_is_named(small):
    small.send(1, [{"partition": 0, "sequence": 0}])
    write_history(small.run)
    (small.run.history / "observations.parquet").unlink()
    with pytest.raises(
        HistoryUnreadable, match=r"table observations: .*is missing. Remove .*history and check the run again"
    ):
        History.open(small.run)
    for path in small.run.rows.iterdir():
        path.unlink()
    with pytest.raises(HistoryUnreadable, match="There are no rows to write it from: put back the file") as error:
        History.open(small.run)
    assert "Remove" not in str(error.value)


@pytest.mark.parametrize("kept", [0, 3, 0.5, 0.99])
def test_a_truncated_table_is_named(small, kept):
    small.send(1, [{"partition": 0, "sequence": s} for s in range(500)])
    write_history(small.run)
    path = small.run.history / "sends.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept) if isinstance(kept, float) else kept])
    with pytest.raises(HistoryUnreadable, match=r"table sends: .*is torn or no Parquet"):
        History.open(small.run)


def test_a_rotten_page_is_named_and_never_a_wrong_number(small):
    small.send(1, [{"partition": 0, "sequence": s * s, "invoked_ns": s} for s in range(500)])
    write_history(small.run)
    path = small.run.history / "sends.parquet"
    column = pq.read_metadata(path).row_group(0).column(TABLES["sends"].column_names.index("sequence"))
    rotten = bytearray(path.read_bytes())
    rotten[column.data_page_offset + column.total_compressed_size - 20] ^= 0xFF
    path.write_bytes(rotten)
    sends = History.open(small.run).partition_history(0).sends
    with pytest.raises(HistoryUnreadable, match=r"table sends: .*is torn"):
        sends["sequence"]


def test_another_format_version_is_refused(small, monkeypatch):
    write_history(small.run)
    monkeypatch.setattr(parquet, "FORMAT_VERSION", FORMAT_VERSION + 1)
    with pytest.raises(
        HistoryUnreadable, match=f"has format version {FORMAT_VERSION}; this prozess reads {FORMAT_VERSION + 1}"
    ):
        History.open(small.run)


def test_a_table_under_another_name_is_refused(small):
    write_history(small.run)
    (small.run.history / "steps.parquet").write_bytes((small.run.history / "faults.parquet").read_bytes())
    with pytest.raises(HistoryUnreadable, match=r"table steps: .*holds table 'faults'"):
        History.open(small.run)


def test_a_parquet_file_of_somebody_else_is_refused(small):
    write_history(small.run)
    path = small.run.history / "sends.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["key"]), path)
    with pytest.raises(HistoryUnreadable, match="table sends"):
        History.open(small.run)


def test_a_torn_clock_is_named(small):
    small.run.clock.write_text('{"start_monotonic_ns": 12')
    with pytest.raises(HistoryUnreadable, match=r"clock\.json"):
        write_history(small.run)
    small.run.clock.write_text("{}")
    with pytest.raises(HistoryUnreadable, match="start_monotonic_ns"):
        write_history(small.run)


def _bytes(run: RunDirectory) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.history.iterdir()}


def test_writing_twice_gives_the_same_files_and_leaves_nothing_else(small):
    small.send(1, [{"partition": 1, "sequence": 0}])
    write_history(small.run)
    first = _bytes(small.run)
    write_history(small.run)
    assert _bytes(small.run) == first
    assert set(first) == {f"{name}.parquet" for name in TABLES}


def test_ensure_writes_what_is_missing_and_only_then(small):
    small.send(1, [{"partition": 0, "sequence": 0}])
    ensure_history(small.run)
    stamps = {path: path.stat().st_mtime_ns for path in small.run.history.iterdir()}
    ensure_history(small.run)
    assert {path: path.stat().st_mtime_ns for path in small.run.history.iterdir()} == stamps
    (small.run.history / "sends.parquet").unlink()
    ensure_history(small.run)
    assert History.open(small.run).rows("sends") == 1


def test_a_history_without_rows_is_never_made_empty_for_want_of_a_table(small):
    small.send(1, [{"partition": 0, "sequence": 0}])
    ensure_history(small.run)
    for path in small.run.rows.glob("*.rows"):
        path.unlink()
    (small.run.history / "reads.parquet").unlink()
    with pytest.raises(HistoryUnreadable, match=r"table reads: .*is missing"):
        ensure_history(small.run)
    assert (small.run.history / "sends.parquet").exists()


def test_ensure_writes_again_when_rows_came_later(small):
    ensure_history(small.run)
    small.send(1, [{"partition": 0, "sequence": 0}])
    later_ns = max(path.stat().st_mtime_ns for path in small.run.history.iterdir()) + 10**9
    os.utime(small.run.rows / "sends.1.0.rows", ns=(later_ns, later_ns))
    ensure_history(small.run)
    assert History.open(small.run).rows("sends") == 1


def test_a_history_from_before_the_runs_end_is_written_again(small):
    ensure_history(small.run)
    early_ns = min(path.stat().st_mtime_ns for path in small.run.history.iterdir())
    small.send(1, [{"partition": 0, "sequence": 0}])
    os.utime(small.run.rows / "sends.1.0.rows", ns=(early_ns, early_ns))  # as on a file system in memory
    small.run.events.write_text("{}\n")
    os.utime(small.run.events, ns=(early_ns + 10**9, early_ns + 10**9))
    ensure_history(small.run)
    assert History.open(small.run).rows("sends") == 1


def test_ensure_replaces_a_torn_history_from_the_rows_but_not_one_without_rows(small):
    small.send(1, [{"partition": 0, "sequence": 0}])
    ensure_history(small.run)
    path = small.run.history / "sends.parquet"
    path.write_bytes(b"PAR1")
    ensure_history(small.run)
    assert History.open(small.run).rows("sends") == 1
    for rows in small.run.rows.iterdir():
        rows.unlink()
    ensure_history(small.run)
    path.write_bytes(b"PAR1")
    with pytest.raises(HistoryUnreadable):
        ensure_history(small.run)


@pytest.mark.parametrize("text", ["[]", "null", "7", '"x"'])
def test_a_clock_that_is_no_object_is_named(small, text):
    write_history(small.run)
    small.run.clock.write_text(text)
    with pytest.raises(HistoryUnreadable, match=r"clock.json holds no JSON object"):
        History.open(small.run).partition_history(0)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"client": -2}, "names client -2"),
        ({"planned": 5_000}, "client 1 has the place of client 5000"),
        ({"planned": -9}, "client 1 has the place of client -9"),
    ],
    ids=str,
)
def test_a_client_that_cannot_be_is_named(small, row, said):
    history = small.history()
    told = {name: np.append(values, values.dtype.type(-1)) for name, values in history.table("clients").items()}
    for name, value in ({"client": 1} | row).items():
        told[name][-1] = value
    with pytest.raises(HistoryUnreadable, match=said):
        client_facts(history.plan, told)


def test_of_many_small_partitions_each_is_read_as_alone_and_a_rotten_page_costs_only_its_own(tmp_path):
    run, table, partitions = RunDirectory(tmp_path), TABLES["reads"], range(parquet.ROW_GROUPS_MANY)
    rows = {p: parquet.filled(table, {"partition": p, "log_offset": np.arange(p, p + 9)}, length=9) for p in partitions}
    with parquet.TableWriter(run, table) as writer:
        for one in rows.values():
            writer.write(one)
    offset = table.column_names.index("log_offset")

    def read(file, partition):
        return file.read(table.column_names, file.row_ranges[partition])

    file = parquet.TableFile(run, table)
    for p in [*partitions, *partitions]:
        found = read(file, p)
        assert all((found[name] == rows[p][name]).all() and len(found[name]) == 9 for name in rows[p])
    both = file.read(["log_offset"], [3, 1])["log_offset"]
    assert both.tolist() == [*range(3, 12), *range(1, 10)]
    column = file.metadata.row_group(5).column(offset)
    path = parquet.table_path(run, table.name)
    text = bytearray(path.read_bytes())
    text[column.data_page_offset + column.total_compressed_size - 3] ^= 0xFF
    path.write_bytes(text)
    file = parquet.TableFile(run, table)
    for p in [*partitions, *partitions]:
        if p == 5:
            with pytest.raises(HistoryUnreadable):
                read(file, p)
        else:
            assert (read(file, p)["log_offset"] == rows[p]["log_offset"]).all()
