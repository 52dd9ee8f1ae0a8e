"""Tables over many runs, as people ask for them: in Python and on the command line."""

import shutil
import sys
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

import prozess
from prozess import command
from prozess.app.conduct import recheck
from prozess.app.run_options import RunOptions
from prozess.harness.errors import BadInput
from prozess.harness.run_directory import RunDirectory
from prozess.harness.run_tables.definitions import RUN_TABLES
from tests.support.stored_runs import generated_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    made = generated_run(folder / "safe-1-20260101T220000", "log", lost=2)
    shutil.copytree(made.path, folder / "safe-1-20260102T220000")
    return folder


@pytest.fixture
def called(monkeypatch, capsys):
    """Exit code, standard output and standard error of a command."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["prozess", *map(str, words)])
        return command.run(), *capsys.readouterr()

    return call


def test_each_table_is_read_in_the_form_that_is_asked_for(runs):
    tables = prozess.tables(runs)
    assert list(tables) == list(RUN_TABLES)
    assert (
        tables["runs"].to_arrow(["trial", "verdict"]).to_pylist() == [{"trial": "generated", "verdict": "violated"}] * 2
    )
    assert len(tables["outcomes"].to_pandas()) == tables["outcomes"].to_arrow().num_rows
    assert prozess.tables(runs, since=date(2026, 1, 2))["runs"].to_arrow(["day"]).to_pylist() == [
        {"day": date(2026, 1, 2)}
    ]


def test_what_is_not_there_is_refused(runs, tmp_path):
    with pytest.raises(BadInput, match=r"no column 'nothing'\. Its columns are run, trial"):
        prozess.tables(runs)["runs"].to_arrow(["nothing"])
    with pytest.raises(BadInput, match="needs a location"):
        prozess.tables()
    with pytest.raises(BadInput, match="no run below"):
        prozess.tables(tmp_path)


def test_the_command_writes_tables_and_packs_them(runs, tmp_path, called):
    kept, packed = tmp_path / "tables", tmp_path / "packed"
    assert called("tables", runs, "--out", kept) == (0, f"2 runs in {kept}\n", "")
    assert called("tables", kept, "--out", packed, "--packed") == (0, f"2 runs in {packed}\n", "")
    rows = [prozess.tables(where)["outcomes"].to_arrow().sort_by("run") for where in (runs, kept, packed)]
    assert rows[0].equals(rows[1])
    assert rows[0].equals(rows[2])
    assert "To copy them is to pack them: add --packed" in called("tables", kept, "--out", tmp_path / "other")[2]


def test_trends_read_directories_and_tables_alike(runs, tmp_path, called):
    called("tables", str(runs), "--out", str(tmp_path / "tables"))
    told = [called("trends", str(where), "--out", str(tmp_path / "t.html")) for where in (runs, tmp_path / "tables")]
    assert told[0] == told[1]
    assert "2 runs" in told[0][1]
    assert "2026-01-02" in told[0][1]


def test_a_check_writes_the_rows_of_its_new_verdict(runs, tmp_path, called):
    run = RunDirectory(Path(shutil.copytree(runs / "safe-1-20260101T220000", tmp_path / "safe-1-20260101T220000")))
    kept = tmp_path / "tables"
    called("tables", str(run.path), "--out", str(kept))
    options = RunOptions(Path(), "local", 1, "auto", quiet=True, as_json=False, report=False, tables=str(kept))
    recheck(run, options, decide=("duplicate",))
    (row,) = prozess.tables(kept)["runs"].to_arrow(["verdict", "state"]).to_pylist()
    assert row == {"verdict": str(prozess.load(run.path).verdict.verdict), "state": "judged"}
    assert row["verdict"] != "violated", "what was lost does not decide any more"


def test_out_and_tables_contradict_each_other(runs, tmp_path, called):
    words = ("check", runs / "safe-1-20260101T220000", "--out", tmp_path / "o", "--tables", tmp_path / "t")
    assert "--tables writes what the run directory says" in called(*words)[2]
    assert not (tmp_path / "t").exists()


def test_a_readable_history_has_the_chosen_columns(runs):
    run = prozess.load(runs / "safe-1-20260101T220000")
    found = run.history("sends", readable=True).to_arrow(["topic", "number", "outcome"])
    assert found.schema == pa.schema([("topic", pa.string()), ("number", pa.int32()), ("outcome", pa.string())])
    assert set(found.column("outcome").to_pylist()) <= {"ok", "fail", "info"}
    with pytest.raises(BadInput, match="no column 'outcomes'"):
        run.history("sends", readable=True).to_arrow(["outcomes"])
