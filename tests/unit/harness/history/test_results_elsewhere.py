"""Where results of a check go: with `--out` to a place of their own, and the run stays as it was."""

import hashlib
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import typer

from prozess.app.commands.offline import check
from prozess.app.commands.options import spark_settings
from prozess.app.run_options import RunOptions
from prozess.harness.checking.findings import schema_of
from prozess.harness.errors import BadInput, HistoryUnreadable
from prozess.harness.history.store import opened_run
from prozess.harness.result_tables import RESULT_TABLES
from prozess.harness.run_directory import REPORTS
from prozess.spark_checkers.session import _configuration
from tests.support.damages import copied
from tests.support.stored_runs import generated_run, recorded_run


def contents(folder):
    """Name of each file below a folder → its digest, and when it was written."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
            path.is_symlink(),
        )
        for path in files
    }


def checked(run, out):
    """The exit code of `prozess check RUN --out OUT`."""
    with pytest.raises(typer.Exit) as end:
        check(str(run), engine="local", quiet=True, out=str(out))
    return end.value.exit_code


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    return generated_run(tmp_path_factory.mktemp("elsewhere") / "run", "log", "transactions", lost=2, torn=1)


def test_results_go_there_and_the_run_is_not_touched(generated, tmp_path):
    run, out = copied(generated, tmp_path / "run"), tmp_path / "deep" / "out"
    for folder in (run.path, *(path for path in run.path.rglob("*") if path.is_dir())):
        folder.chmod(0o500)
    before = contents(run.path)
    try:
        assert checked(run.path, out) == 1
    finally:
        for folder in (run.path, *(path for path in run.path.rglob("*") if path.is_dir())):
            folder.chmod(0o700)
    assert contents(run.path) == before
    assert {path.name for path in out.iterdir()} == {"findings", "verdict.json", "impact.json", *REPORTS}
    assert not any(path.is_symlink() for path in out.rglob("*"))
    assert json.loads((out / "verdict.json").read_text()) == json.loads(run.verdict.read_text())
    for name in ("findings", "witnesses", "windows"):
        assert pq.read_table(out / "findings" / f"{name}.parquet").equals(
            pq.read_table(run.findings / f"{name}.parquet")
        )
    for name in ("facts", "verdict_inputs"):
        table = pq.read_table(out / "findings" / f"{name}.parquet")
        assert table.schema.equals(schema_of(RESULT_TABLES[name]))
        assert table.num_rows


def test_a_run_that_has_only_rows_is_checked_and_has_only_rows_afterwards(tmp_path):
    run, out = recorded_run(tmp_path / "run"), tmp_path / "out"
    shutil.rmtree(run.history)
    before = contents(run.path)
    assert checked(run.path, out) == 0
    assert contents(run.path) == before
    assert json.loads((out / "verdict.json").read_text())["verdict"] == "held"
    assert not (out / "history").exists()


def test_of_a_damaged_run_nothing_of_an_earlier_check_is_passed_on(generated, tmp_path):
    run, out = copied(generated, tmp_path / "run"), tmp_path / "out"
    (run.history / "clients.parquet").unlink()
    assert checked(run.path, out) == 2
    assert json.loads((out / "verdict.json").read_text())["verdict"] == "unknown"
    assert not (out / "findings").exists()


def test_a_place_that_is_not_empty_or_no_place_is_refused_before_anything_is_read(generated, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(BadInput, match=r"--out .*/out is not empty: mine\.txt is there.*new or an empty"):
        check(str(generated.path), engine="local", out=str(tmp_path / "out"))
    with pytest.raises(BadInput, match=r"--out .* is not empty"):
        check(str(generated.path), engine="local", out=str(generated.path))
    with pytest.raises(BadInput, match="there is no way to read wasb://"):
        check(str(generated.path), engine="local", out="wasb://container/results")
    with pytest.raises(BadInput, match="is not a run directory"):
        check(str(tmp_path / "nothing"), engine="local", out=str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_a_place_that_cannot_be_written_is_named(generated, tmp_path):
    (tmp_path / "file").write_text("no directory")
    with (
        pytest.raises(HistoryUnreadable, match=r"/file/out cannot be (read|written)"),
        opened_run(generated.path, out=tmp_path / "file" / "out") as run,
    ):
        run.verdict.write_text("{}")


def test_settings_of_spark_are_keys_and_values_that_begin_with_spark():
    assert spark_settings(["spark.a=1", "spark.b = x=y", "spark.a=2"]) == {"spark.a": "2", "spark.b": "x=y"}
    for text in ("spark.a", "a=1", "=1", ""):
        with pytest.raises(BadInput, match="is not KEY=VALUE"):
            spark_settings([text])
    with pytest.raises(BadInput, match=r"--conf 'spark\.remote=sc://x'.* stated by --remote sc://x"):
        spark_settings(["spark.remote=sc://x"])
    options = RunOptions(Path(), "local", 2, "auto", quiet=True, as_json=False, conf={"spark.a": "1"})
    with pytest.raises(BadInput, match=r"--conf spark\.a is a setting of Spark, but --engine is 'local'"):
        options.refuse_contradictions()


def test_settings_replace_ours_and_options_of_java_are_added(tmp_path):
    given = {"spark.sql.shuffle.partitions": "64", "spark.driver.extraJavaOptions": "-Dmine=1", "spark.mine": "x"}
    ours = dict(_configuration("local[2]", tmp_path, {}).getAll())
    made = dict(_configuration("local[2]", tmp_path, given).getAll())
    assert made["spark.sql.shuffle.partitions"] == "64"
    assert made["spark.driver.extraJavaOptions"] == f"{ours['spark.driver.extraJavaOptions']} -Dmine=1"
    assert made["spark.mine"] == "x"
    assert {name for name, value in made.items() if ours.get(name) != value} == set(given)
