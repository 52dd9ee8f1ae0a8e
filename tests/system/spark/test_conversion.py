"""Rows become tables with Spark: the same bytes as in one process, and a check does so by itself where the run is large."""

import signal
from functools import partial

import numpy as np
import pytest

from prozess import spark as trial
from prozess.app.run import check as check_stage
from prozess.app.run.check import CheckOptions, check_run
from prozess.harness.checking.findings import read_findings
from prozess.harness.errors import HarnessFailed
from prozess.harness.history.convert import LargeTables, write_history
from prozess.harness.history.manifest import condition_of
from prozess.harness.history.parquet import table_path
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import TABLES
from prozess.spark_checkers import tables
from prozess.spark_checkers.session import start_session
from prozess.spark_checkers.tables import write_clustered
from tests.support.small_runs import make_small
from tests.system.spark.test_engine import described

pytestmark = pytest.mark.spark
CLUSTERED = [table for table in TABLES.values() if table.partitioned]


@pytest.fixture(scope="module")
def session(need):
    need("java")
    session = start_session()
    yield session
    session.stop()


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Four clients, 10,000 rows each in every clustered table, over 40 partitions of which four were planned."""
    monkeypatch.setattr(tables, "SHARE_ROWS_MIN", 5_000)
    run = make_small(tmp_path / "run").run
    rng = np.random.default_rng(11)
    for table in CLUSTERED:
        for client in (1, 2, 3, 9):
            columns = {c.name: rng.integers(-1, 4_000, 10_000) for c in table.columns}
            columns["partition"] = rng.integers(0, 40, 10_000)
            if table.name == "sends":
                columns["sequence"] = np.arange(10_000)
            writer = RowWriter(run.rows, table, client)
            writer.extend(columns)
            writer.close()
    return run


def contents(run):
    return {name: table_path(run, name).read_bytes() for name in TABLES}


def test_spark_writes_byte_for_byte_what_one_process_writes(run, session):
    write_history(run)
    here = contents(run)
    for name in TABLES:
        table_path(run, name).unlink()
    write_history(run, LargeTables(partial(write_clustered, session, 2), rows_min=1))
    assert contents(run) == here
    assert {path.name for path in run.history.iterdir()} == {f"{name}.parquet" for name in TABLES}
    said = [description for description in described(session) if ": writing rows" in description]
    tables_named = "sends, reads, processed, deliveries, replicas"
    assert said[0] == f"prozess check {run.name}: writing rows of {tables_named}: 200,000, parts: 10"


def test_a_check_has_spark_write_the_tables_of_a_large_run_and_finds_the_same(run, session, monkeypatch):
    check_run(run, CheckOptions(engine="local"))
    found, here = read_findings(run), contents(run)
    for name in TABLES:
        table_path(run, name).unlink()
    called = []
    monkeypatch.setattr(check_stage, "WRITTEN_BY_SPARK_ROWS", 160_000)
    monkeypatch.setattr(check_stage, "WRITTEN_BY_SPARK_WORKERS", 2)
    monkeypatch.setattr(tables, "write_clustered", lambda *told: called.append(told) or write_clustered(*told))
    assert trial.history(session, run.path, "sends").count() == 40_000
    assert len(called) == 1
    assert contents(run) == here
    check_run(run, CheckOptions(engine="spark", session=session), condition_of(run))
    assert len(called) == 1, "the history is there"
    again = read_findings(run)
    assert [(f.anomaly, f.partition, f.result.count, f.result.judged) for f in again] == [
        (f.anomaly, f.partition, f.result.count, f.result.judged) for f in found
    ]


def test_rows_that_change_meanwhile_or_cannot_be_read_there_are_one_sentence_and_leave_no_parts(
    run, session, monkeypatch
):
    before = signal.getsignal(signal.SIGINT)
    counted = tables._count

    def fewer(run, job):
        partitions, counts, torn = counted(run, job)
        return partitions, counts - 1, torn

    monkeypatch.setattr(tables, "_count", fewer)
    with pytest.raises(
        HarnessFailed, match=r"Spark could not write the history: .* were counted before: .*has changed"
    ):
        write_history(run, LargeTables(partial(write_clustered, session, 2), rows_min=1))
    assert not list(run.history.glob("parts-*"))
    assert signal.getsignal(signal.SIGINT) == before
