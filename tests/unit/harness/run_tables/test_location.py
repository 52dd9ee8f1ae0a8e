"""Tables over many runs are kept as one file a run and table, and read from there or from the run directories."""

import json
import shutil
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prozess.harness.errors import BadInput, HarnessFailed, HistoryUnreadable
from prozess.harness.history.manifest import seal_judged
from prozess.harness.run_directory import RunDirectory, read_object, write_json
from prozess.harness.run_tables import location as at
from prozess.harness.run_tables.definitions import RUN_TABLES
from prozess.harness.run_tables.location import (
    TablesLocation,
    append_run,
    read_table,
    run_directories_below,
    sources_of,
)
from tests.support.stored_runs import generated_run

DAYS = ("20260101T220000", "20260102T220000", "20260103T220000")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of three days, one without a day, and one that was killed."""
    folder = tmp_path_factory.mktemp("nights")
    made = generated_run(folder / "undated", "log", lost=2)
    for stamp in DAYS:
        shutil.copytree(made.path, folder / "campaign" / "runs" / f"safe-1-{stamp}")
    killed = Path(shutil.copytree(made.path, folder / "campaign" / "runs" / "safe-1-20260103T230000"))
    (killed / "manifest.json").unlink()
    return folder


@pytest.fixture
def place(folder, tmp_path):
    """A place of tables with all runs of the folder."""
    for path in run_directories_below(folder):
        append_run(RunDirectory(path), str(tmp_path / "tables"))
    return tmp_path / "tables"


def rows(table, *locations, **options):
    return read_table(table, sources=sources_of(locations), **options)


def in_order(table):
    return sorted(table.to_pylist(), key=repr)


def test_a_run_has_one_file_in_each_table_by_its_day(place):
    files = [path.relative_to(place) for path in place.rglob("*.parquet")]
    assert len(files) == 5 * len(RUN_TABLES)
    assert {path.parts[0] for path in files} == set(RUN_TABLES)
    assert {path.parts[1] for path in files} == {
        *("day=2026-01-01", "day=2026-01-02", "day=2026-01-03", "day=__HIVE_DEFAULT_PARTITION__"),
    }
    assert {path.stem for path in files} == set(rows("runs", place).column("run").to_pylist())


@pytest.mark.parametrize("table", RUN_TABLES)
def test_what_is_kept_is_what_the_run_directories_say(folder, place, table):
    kept, made = rows(table, place), rows(table, folder)
    assert kept.schema.equals(made.schema)
    assert in_order(kept) == in_order(made)


def test_a_run_that_is_written_again_is_replaced(folder, place):
    before = {name: in_order(rows(name, place)) for name in RUN_TABLES}
    run = RunDirectory(folder / "campaign" / "runs" / f"safe-1-{DAYS[0]}")
    assert append_run(run, str(place)) == str(place)
    assert {name: in_order(rows(name, place)) for name in RUN_TABLES} == before


def test_a_run_that_is_judged_anew_has_its_new_verdict_alone(folder, tmp_path):
    run = RunDirectory(Path(shutil.copytree(folder / "undated", tmp_path / "undated")))
    append_run(run, str(tmp_path / "tables"))
    write_json(run.verdict, read_object(run.verdict) | {"verdict": "unknown"})
    seal_judged(run)
    append_run(run, str(tmp_path / "tables"))
    assert rows("runs", tmp_path / "tables").column("verdict").to_pylist() == ["unknown"]


def test_a_run_that_is_torn_is_a_row_that_says_so(place):
    states = rows("runs", place, columns=["name", "state", "verdict"]).to_pylist()
    assert [row for row in states if row["state"] != "judged"] == [
        {"name": "safe-1-20260103T230000", "state": "unproven", "verdict": "unknown"}
    ]


@pytest.mark.parametrize("packed", [False, True])
def test_days_and_columns_choose(folder, place, tmp_path, packed):
    if packed:
        assert TablesLocation.made(tmp_path / "packed", packed=True).pack(sources_of([place])) == 5
    for where in (folder, tmp_path / "packed" if packed else place):
        found = rows("outcomes", where, columns=["run", "day"], days=(date(2026, 1, 2), date(2026, 1, 3)))
        assert found.column_names == ["run", "day"]
        assert set(found.column("day").to_pylist()) == {date(2026, 1, 2), date(2026, 1, 3)}
        assert len(set(found.column("run").to_pylist())) == 3
        assert not rows("runs", where, days=(date(2027, 1, 1), None)).num_rows


def test_only_files_of_the_wanted_days_are_read(place):
    for path in (place / "runs").glob("day=2026-01-01/*"):
        path.write_text("torn")
    assert rows("runs", place, days=(date(2026, 1, 2), None)).num_rows == 3
    with pytest.raises(HistoryUnreadable, match=r"runs cannot be read.*prozess tables RUN"):
        rows("runs", place)


@pytest.mark.parametrize("table", RUN_TABLES)
def test_packed_tables_have_one_file_a_day_and_the_same_rows(place, tmp_path, table):
    packed = tmp_path / "packed"
    TablesLocation.made(packed, packed=True).pack(sources_of([place]))
    assert len(list((packed / table).rglob("*.parquet"))) == 4
    assert in_order(rows(table, packed)) == in_order(rows(table, place))


def test_a_packed_place_takes_no_further_run(folder, place, tmp_path):
    TablesLocation.made(tmp_path / "packed", packed=True).pack(sources_of([place]))
    with pytest.raises(BadInput, match="is packed, and takes no further run"):
        append_run(RunDirectory(folder / "undated"), str(tmp_path / "packed"))
    with pytest.raises(BadInput, match="has tables already"):
        TablesLocation.made(place, packed=True)


def test_a_column_that_older_files_lack_is_null_there(place):
    path = next((place / "runs" / "day=2026-01-01").glob("*.parquet"))
    with pq.ParquetFile(path) as file:
        older = file.read()
    pq.write_table(older.drop_columns(["night", "prozess"]), path)
    found = rows("runs", place, columns=["day", "night", "title"]).to_pylist()
    assert {str(row["day"]) for row in found if row["night"] is None} == {"2026-01-01", "None"}
    assert all(row["title"] for row in found)


def test_tables_of_another_format_are_refused(place):
    (place / at.MARKER).write_text(json.dumps({"format": 99}))
    with pytest.raises(BadInput, match=r"another format than 2.*Write them again"):
        rows("runs", place)


def test_places_and_run_directories_go_together(folder, place):
    assert rows("runs", place, folder / "undated").num_rows == 6


def test_a_place_without_runs_has_empty_tables(tmp_path):
    TablesLocation.made(tmp_path / "tables")
    assert rows("outcomes", tmp_path / "tables", columns=["run"]).schema == pa.schema([("run", pa.string())])


@pytest.mark.parametrize("name", ["nowhere", "file.txt"])
def test_a_location_with_neither_runs_nor_tables_is_refused(tmp_path, name):
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(BadInput, match="is no directory"):
        sources_of([tmp_path / name])
    with pytest.raises(BadInput, match="no run below"):
        sources_of([tmp_path])


def test_a_link_in_a_folder_of_runs_is_not_followed(folder, tmp_path):
    (tmp_path / "linked").symlink_to(folder)
    shutil.copytree(folder / "undated", tmp_path / "mine")
    assert [path.name for path in run_directories_below(tmp_path)] == ["mine"]


def test_many_directories_are_read_by_several_processes_in_the_same_order(folder, monkeypatch):
    few = rows("runs", folder)
    monkeypatch.setattr(at, "_FEW_RUNS", 2)
    monkeypatch.setattr(at, "_RUNS_AT_ONCE", 2)
    assert rows("runs", folder).equals(few)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises((HarnessFailed, HistoryUnreadable), match=r"file.* cannot be"):
        TablesLocation.made(tmp_path / "file" / "tables")


def test_nothing_half_written_is_seen(place):
    (place / "runs" / "day=2026-01-01" / ".safe.parquet.1.part").write_text("half")
    assert rows("runs", place).num_rows == 5
