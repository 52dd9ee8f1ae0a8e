"""Runs in an object store: `prozess.spark` finds there what the local engine finds here, and writes it there."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import prozess
from prozess import spark as trial
from prozess.app.run.check import CheckOptions, check_run
from prozess.app.run_tables import write_tables
from prozess.checkers.registry import select
from prozess.exchange.commands import generate_history
from prozess.harness.checking.kernels import check_locally
from prozess.harness.errors import BadInput, HistoryUnreadable, MissingTool
from prozess.harness.exit_codes import ExitCode
from prozess.harness.history.manifest import read_manifest
from prozess.harness.history.reader import History
from prozess.harness.history.store import opened_run, runs_below
from prozess.harness.result_tables import RESULT_TABLES
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import Verdict
from prozess.spark_checkers.oracle.second_opinion import second_opinion
from prozess.spark_checkers.session import start_session
from tests.support.paths import ROOT
from tests.support.servers.object_store import (
    BUCKET,
    CONNECTOR,
    PLAIN_CHECKSUMS,
    ObjectStore,
    jars,
    object_store,
)
from tests.support.stored_runs import generated_run, recorded_run

pytestmark = pytest.mark.spark
SUBMITTED_TIMEOUT_S = 600.0
COMMAND_TIMEOUT_S = 300.0
PLANTED = {"lost": 5, "duplicate": 3, "torn": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("generated") / "run"
    plant = ",".join(f"{name}={count}" for name, count in PLANTED.items())
    generate_history(path, rows=20_000, partitions=3, plant=plant, workloads=["log", "transactions"], seed=3)
    return RunDirectory(path)


@pytest.fixture(scope="module")
def store(tmp_path_factory, need):
    need("java")
    with pytest.MonkeyPatch.context() as patched, object_store(tmp_path_factory.mktemp("store")) as store:
        for name, value in PLAIN_CHECKSUMS.items():
            patched.setenv(name, value)
        yield store


@pytest.fixture(scope="module")
def session(store):
    session = start_session(master="local[2]")
    try:
        hadoop = session.sparkContext._jsc.hadoopConfiguration()
        for name, value in store.settings.items():
            hadoop.set(name, value)
        yield session
    finally:
        session.stop()


def test_a_run_in_a_bucket_is_checked_there_and_keeps_what_was_found(run, store, session, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    uri = store.put(run.path, "one")
    verdict = trial.check(session, uri)
    assert verdict.verdict is Verdict.VIOLATED
    found = {
        row.anomaly: row["sum(count)"] for row in trial.findings(session, uri).groupBy("anomaly").sum("count").collect()
    }
    here: dict[str, int] = {}
    for finding in check_locally(History.open(run), select(), workers=2):
        here[finding.anomaly] = here.get(finding.anomaly, 0) + finding.result.count
    assert found == here
    assert {name: found[name] for name in PLANTED} == PLANTED
    assert trial.witnesses(session, uri).where("anomaly = 'torn'").count() == PLANTED["torn"]
    kept = store.folder / BUCKET / "one"
    assert json.loads((kept / "verdict.json").read_text())["verdict"] == "violated"
    assert sorted(path.name for path in (kept / "findings").iterdir())[0] == "findings.parquet"
    assert list(tmp_path.iterdir()) == [], "nothing of it stays here"


def test_results_go_to_another_place_in_the_bucket_and_the_run_there_stays_as_it_was(run, store, session):
    uri = store.put(run.path, "untouched")
    there = store.folder / BUCKET / "untouched"
    before = {path.relative_to(there): path.read_bytes() for path in there.rglob("*") if path.is_file()}
    out = f"s3a://{BUCKET}/results/untouched"
    assert trial.check(session, uri, out=out).verdict is Verdict.VIOLATED
    assert {path.relative_to(there): path.read_bytes() for path in there.rglob("*") if path.is_file()} == before
    kept = store.folder / BUCKET / "results" / "untouched"
    assert {path.stem for path in (kept / "findings").iterdir()} == set(RESULT_TABLES)
    told = pq.read_table(kept / "findings" / "verdict_inputs.parquet", columns=["anomaly", "judgement", "count"])
    assert {"anomaly": "torn", "judgement": "forbidden", "count": 1} in told.to_pylist()
    with pytest.raises(BadInput, match=r"--out s3a://runs/results/untouched is not empty"):
        trial.check(session, uri, out=out)


def test_what_was_changed_or_removed_in_the_bucket_makes_the_verdict_unknown_by_name(run, store, session):
    uri = store.put(run.path, "changed")
    sends = store.folder / BUCKET / "changed" / "history" / "sends.parquet"
    content = bytearray(sends.read_bytes())
    content[len(content) // 2] ^= 1
    with store.filesystem.open_output_stream(f"{BUCKET}/changed/history/sends.parquet") as there:
        there.write(bytes(content))
    store.filesystem.delete_file(f"{BUCKET}/changed/history/reads.parquet")
    verdict = trial.check(session, uri)
    assert verdict.verdict is Verdict.UNKNOWN
    assert any("history/sends.parquet has changed since it was written" in why for why in verdict.unknown_reasons)
    assert any("history/reads.parquet is missing" in why for why in verdict.unknown_reasons)
    assert trial.findings(session, uri).where("incomplete is null").count() == 0, "each cell has rows in `reads`"
    store.filesystem.delete_file(f"{BUCKET}/changed/history/clients.parquet")
    with pytest.raises(HistoryUnreadable, match=r"s3a://runs/changed is damaged: .*clients\.parquet"):
        trial.findings(session, uri)


def test_a_row_group_that_is_damaged_in_the_bucket_costs_its_own_cell(run, store, session):
    uri = store.put(run.path, "rotten")
    mine = History.open(run).plan.cells[1]
    groups = read_manifest(run).files["history/sends.parquet"].row_groups
    begin = next(group.begin for group in groups if group.partition == mine.partitions[0])
    content = bytearray((run.history / "sends.parquet").read_bytes())
    content[begin + 30] ^= 1
    with store.filesystem.open_output_stream(f"{BUCKET}/rotten/history/sends.parquet") as there:
        there.write(bytes(content))
    verdict = trial.check(session, uri)
    assert verdict.verdict is Verdict.UNKNOWN
    assert [cell.verdict for cell in verdict.cells] == [Verdict.VIOLATED, Verdict.UNKNOWN]
    reasons = {anomaly.reason for anomaly in verdict.cells[1].anomalies.values()}
    assert all("history/sends.parquet has changed since it was written" in reason for reason in reasons)
    assert verdict.findings["lost"] == PLANTED["lost"]
    found = trial.findings(session, uri)
    assert (
        found.where("anomaly = 'lost' and incomplete is null").groupBy().sum("count").collect()[0][0] == PLANTED["lost"]
    )
    assert {row.cell for row in found.where("incomplete is not null").collect()} == {1}


def test_a_history_that_is_not_there_is_made_from_the_rows_and_copied_there(store, session, tmp_path):
    recorded = recorded_run(tmp_path / "recorded")
    shutil.rmtree(recorded.history)
    uri = store.put(recorded.path, "rows")
    assert trial.check(session, uri).verdict is Verdict.HELD
    names = {path.name for path in (store.folder / BUCKET / "rows" / "history").iterdir()}
    assert {"sends.parquet", "reads.parquet"} <= names
    assert trial.check(session, uri).verdict is Verdict.HELD


def test_what_is_no_run_and_who_may_not_enter_are_said_in_a_sentence(store, session):
    with pytest.raises(BadInput, match=r"s3a://runs/nothing is not a run directory"):
        trial.check(session, f"s3a://{BUCKET}/nothing")
    with pytest.raises(BadInput, match=r"s3a://nobodys/run is not a run directory"):
        trial.check(session, "s3a://nobodys/run")
    with pytest.raises(BadInput, match=r"there is no way to read wasb://"):
        trial.check(session, "wasb://container/run")
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.s3a.bucket.runs.secret.key", "another")
    try:
        with pytest.raises(HistoryUnreadable, match=r"s3a://runs/one cannot be read: .*how to log in"):
            trial.check(session, f"s3a://{BUCKET}/one")
    finally:
        hadoop.unset("fs.s3a.bucket.runs.secret.key")


def command(store: ObjectStore, *words: object, **more: str) -> "subprocess.CompletedProcess[str]":
    """`prozess …` as somebody runs it who is logged in to the store by the environment."""
    return subprocess.run(
        [sys.executable, "-m", "prozess", *map(str, words)],
        env={**os.environ, **store.environment, **more},
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )


def test_the_command_checks_a_run_at_a_uri_and_leaves_findings_verdict_and_report_there(run, store):
    uri = store.put(run.path, "commanded")
    done = command(store, "check", uri, "--engine", "local")
    assert done.returncode == 1, done.stderr
    assert f"report     {uri}/report.html" in done.stdout
    kept = store.folder / BUCKET / "commanded"
    assert {"verdict.json", "report.html", "junit.xml", "summary.md", "findings"} <= {
        path.name for path in kept.iterdir()
    }
    told = pq.read_table(kept / "findings" / "findings.parquet", columns=["anomaly", "count"]).to_pylist()
    found = {name: sum(row["count"] for row in told if row["anomaly"] == name) for name in PLANTED}
    assert found == PLANTED


def test_the_command_says_in_a_sentence_what_is_wrong_with_a_uri(run, store):
    uri = store.put(run.path, "refused")
    for words, more, said in (
        ((f"s3a://{BUCKET}/nothing",), {}, "is not a run directory"),
        (("wasb://container/run",), {}, "there is no way to read wasb://"),
        ((uri,), {"AWS_SECRET_ACCESS_KEY": "another"}, "how to log in"),
        ((uri, "--master", "local[2]"), {}, "--master says where Spark is"),
    ):
        done = command(store, "check", *words, "--engine", "local", **more)
        assert done.returncode in (ExitCode.BAD_INPUT, ExitCode.HARNESS_FAILED), done
        assert said in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.long  # its cheaper neighbours are the check of a run at a URI, and the second opinion in test_oracle.py
def test_the_second_opinion_on_a_run_at_a_uri_needs_no_path_that_spark_sees(run, store, session, monkeypatch):
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    few = select(list(PLANTED))
    with opened_run(store.put(run.path, "asked")) as opened:
        assert opened.tables is not None
        findings = check_run(opened, CheckOptions(engine="local", anomalies=tuple(few.order)))
        assert second_opinion(opened, findings, workers=2, session=session) == ()
        fewer = [f for f in findings if not (f.anomaly == "lost" and f.result.count)]
        said = second_opinion(opened, fewer, workers=2, session=session)
    assert [sentence.partition(":")[0] for sentence in said] == ["lost in cell 0"]


@pytest.mark.long  # its cheaper neighbour asks for three anomalies
def test_the_command_asks_for_a_second_opinion_at_a_uri_and_logs_in_by_settings_of_spark(run, store):
    settings = [word for name, value in store.settings.items() for word in ("--conf", f"spark.hadoop.{name}={value}")]
    words = ("--quiet", "--oracle", "--no-report", "--out", f"s3a://{BUCKET}/results/oracle", *settings)
    done = command(store, "check", store.put(run.path, "oracle"), *words, AWS_SECRET_ACCESS_KEY="another")
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    assert not (store.folder / BUCKET / "oracle" / "verdict.json").exists()
    assert (store.folder / BUCKET / "results" / "oracle" / "findings" / "facts.parquet").is_file()


@pytest.mark.long  # its cheaper neighbour is test_run_tables.py
def test_tables_of_runs_in_a_bucket_are_those_of_the_same_runs_here(store, run, session, tmp_path, monkeypatch):
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    here = Path(shutil.copytree(run.path, tmp_path / "nights" / "safe-1-20260101T220000"))
    torn = Path(shutil.copytree(run.path, tmp_path / "nights" / "safe-1-20260104T233000"))
    (torn / "verdict.json").write_text('{"verdict": "he')
    address = store.put(here.parent, "nights")
    there = [path.name for path in (here, torn)]
    assert [found.address for found in runs_below(address)] == [f"{address}/{name}" for name in there]
    kept = f"s3a://{BUCKET}/tables"
    write_tables([address], kept, packed=False, progress=str)
    made, frames = prozess.tables(here.parent), trial.tables(session, address)
    far, stored = prozess.tables(address), prozess.tables(kept)
    for name in made:
        found = (made[name].to_arrow(), frames[name].toArrow(), far[name].to_arrow(), stored[name].to_arrow())
        rows = [one.drop_columns(["address"] if name == "runs" else []).to_pylist() for one in found]
        assert all(sorted(one, key=repr) == sorted(rows[0], key=repr) for one in rows), name
    with pytest.raises(BadInput, match=r"There is no run below s3a://runs/nowhere"):
        prozess.tables(f"s3a://{BUCKET}/nowhere")
    with pytest.raises(MissingTool, match=r"has no connector that reads s3a://runs/tables"):
        trial.tables(session, kept)


@pytest.mark.long  # its cheaper neighbour reads the same tables without Spark's connector
def test_trends_of_tables_in_a_bucket_are_read_by_spark_with_its_connector(store, tmp_path, monkeypatch):
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    night = generated_run(tmp_path / "safe-1-20260101T220000", "log").path
    write_tables([str(night)], f"s3a://{BUCKET}/trends", packed=False, progress=str)
    settings = {f"spark.hadoop.{name}": value for name, value in store.settings.items()}
    settings["spark.jars"] = ",".join(map(str, jars(CONNECTOR)))
    wanted = ["trends", f"s3a://{BUCKET}/trends", "--out", tmp_path / "trends.html", "--master", "local[2]"]
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "prozess", *wanted, *conf],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == ExitCode.HELD, done.stderr
    assert "1 run; 0 regressions" in done.stdout
    assert "2026-01-01" in (tmp_path / "trends.html").read_text(encoding="utf-8")


def test_a_file_uri_is_a_directory(run, session, tmp_path):
    copy = Path(shutil.copytree(run.path, tmp_path / "run"))
    assert trial.check(session, copy.as_uri()).verdict is Verdict.VIOLATED
    assert (copy / "findings" / "findings.parquet").is_file()


def submitted(uri: str, store: ObjectStore, python: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """The example of the documentation, as Spark's users begin it: with their settings, and Hadoop's connector."""
    settings = [word for name, value in store.settings.items() for word in ("--conf", f"spark.hadoop.{name}={value}")]
    connector = ["--jars", ",".join(map(str, jars(CONNECTOR)))]
    pythons = ["--conf", f"spark.pyspark.python={python}", "--conf", f"spark.pyspark.driver.python={sys.executable}"]
    submit = [Path(sys.executable).parent / "spark-submit", "--master", "local[2]", *pythons]
    return subprocess.run(
        [*submit, *connector, *settings, ROOT / "docs" / "examples" / "spark" / "check_run.py", uri],
        env={**os.environ, "PYSPARK_DRIVER_PYTHON": sys.executable},  # with which spark-submit finds Spark
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=SUBMITTED_TIMEOUT_S,
        check=False,
    )


@pytest.mark.long  # its cheaper neighbour checks a run in a bucket by prozess's own readers
def test_the_example_checks_a_run_in_a_bucket_and_spark_reads_its_tables_there_by_its_own_connector(
    run, store, tmp_path
):
    done = submitted(store.put(run.path, "submitted"), store, sys.executable, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr[-3000:]
    assert done.stdout.startswith("violated - "), done.stdout
    rows = [tuple(map(str.strip, line.split("|")[1:3])) for line in done.stdout.splitlines() if line.startswith("|")]
    assert {name: int(count) for name, count in rows if name in PLANTED} == PLANTED
    sends = pq.read_table(run.history / "sends.parquet")["partition"].to_pylist()
    assert {(str(n), str(sends.count(n))) for n in set(sends)} <= set(rows)


@pytest.mark.long  # its cheaper neighbour is in test_engine.py
def test_workers_whose_python_has_no_prozess_are_told_what_is_missing_and_what_to_do(run, store, tmp_path):
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False, symlinks=True)
    done = submitted(store.put(run.path, "bare"), store, str(bare / "bin" / "python"), tmp_path)
    assert done.returncode == 1
    assert "MissingTool: the Python of Spark's workers has no " in done.stdout, done.stdout[-3000:]
