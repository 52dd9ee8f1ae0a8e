"""Tables over many runs in Delta Lake: written and written again, each run is there once."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from prozess.clusters.install.locks import parse_lock
from prozess.clusters.install.repository import fetch_locked, repository_of
from prozess.harness.installation import make_cache
from prozess.harness.run_tables.definitions import RUN_TABLES
from tests.support.paths import ROOT
from tests.support.stored_runs import generated_run

pytestmark = [pytest.mark.spark, pytest.mark.long]  # its cheaper neighbour, test_run_tables.py, reads Parquet
PYSPARK = "4.1.4"
"""The newest Spark for which Delta Lake's jars were published: with 4.3 they end by NoSuchMethodError (LogicalRDD)."""
LOCK = ROOT / "tests" / "support" / "data" / "delta-4.3.1.lock"
INSTALLED_TIMEOUT_S, ANSWER_TIMEOUT_S = 600.0, 400.0
# Writes the runs twice, the second time with one that was judged anew, and prints what each table has.
PROGRAM = """
import json, sys
import pyarrow.parquet
from prozess import spark as trial
from prozess.spark_checkers.session import start_session
jars, warehouse, runs, again = sys.argv[1:]
spark = start_session(settings={
    "spark.jars": jars, "spark.sql.warehouse.dir": warehouse,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
})
spark.sql("create schema trials")
counts = [trial.save_tables(spark, runs, into="trials"), trial.save_tables(spark, again, into="trials")]
tables = {name: spark.table(f"trials.{name}") for name in json.loads(sys.stdin.read())}
rows = {name: sorted(map(repr, table.toArrow().to_pylist())) for name, table in tables.items()}
wanted = {name: frame.toArrow().to_pylist() for name, frame in trial.tables(spark, runs).items()}
print(json.dumps({
    "counts": counts, "state": {row.name: row.state for row in tables["runs"].collect()},
    "same": {name: rows[name] == sorted(map(repr, wanted[name])) for name in rows},
    "partitioned": spark.sql("describe detail trials.runs").collect()[0].partitionColumns, "version": spark.version,
    "comment": tables["runs"].schema["state"].metadata["comment"],
}))
"""


@pytest.fixture(scope="module")
def pyspark():
    """A folder with that Spark, installed once."""
    folder = make_cache("test-pyspark", PYSPARK)
    with FileLock(folder / "installing", timeout=INSTALLED_TIMEOUT_S):
        if not (folder / "done").exists():
            words = ["-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", folder, f"pyspark=={PYSPARK}"]
            subprocess.run([sys.executable, *words], check=True, timeout=INSTALLED_TIMEOUT_S)
            (folder / "done").touch()
    return folder


@pytest.fixture(scope="module")
def jars():
    locked = parse_lock(LOCK.read_text(encoding="utf-8"))
    folder = make_cache("test-servers", LOCK.stem)
    with FileLock(folder / "fetching", timeout=INSTALLED_TIMEOUT_S):
        fetch_locked(locked, folder, repository_of(), what=LOCK.stem)
    return [folder / jar.coordinates.file_name for jar in locked]


def test_runs_in_delta_lake_are_there_once_and_as_they_were_judged_last(pyspark, jars, tmp_path, need):
    need("java")
    made = generated_run(tmp_path / "made", "log", "group", "transactions", lost=3, duplicate=2)
    runs = tmp_path / "runs"
    for stamp in ("20260101T220000", "20260102T220000"):
        shutil.copytree(made.path, runs / f"safe-1-{stamp}")
    changed = runs / "safe-1-20260102T220000"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(map(str, jars)), tmp_path / "warehouse", runs, changed],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(pyspark), str(ROOT)])},
        input=json.dumps(list(RUN_TABLES)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=ANSWER_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["version"] == PYSPARK
    assert answer["counts"] == [2, 1]
    assert answer["same"] == dict.fromkeys(RUN_TABLES, True)
    assert answer["state"] == {Path(run).name: "judged" for run in runs.iterdir()}
    assert answer["partitioned"] == ["day"]
    assert answer["comment"].startswith("`judged`")
