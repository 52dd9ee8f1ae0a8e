"""The notebook of the documentation answers its ten questions of a month of nights."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from prozess.harness.clock import NS_PER_S
from prozess.harness.history.manifest import seal_judged, seal_recorded
from prozess.harness.run_directory import RunDirectory, read_object, write_json
from prozess.harness.run_tables.definitions import RUN_TABLES
from prozess.harness.run_tables.location import TablesLocation
from prozess.harness.run_tables.rows_of_run import tables_of
from prozess.spark_checkers.session import start_session
from tests.support.paths import ROOT
from tests.support.stored_runs import generated_run
from tests.unit.prozess.campaigns.test_measured import struck
from tests.unit.prozess.campaigns.test_scenarios import run_of  # noqa: F401 - a fixture

pytestmark = [pytest.mark.spark, pytest.mark.long]  # its cheaper neighbour asks the questions of docs/run-tables.md
NOTEBOOK = ROOT / "docs" / "examples" / "spark" / "month_of_nights.ipynb"
FIRST, NIGHTS, BAD = date(2026, 11, 1), 30, 12
"""The month, and the night from which on a version of Kafka loses records."""


@pytest.fixture
def month(tmp_path, run_of):  # noqa: F811 - the fixture of that name
    """Tables of a month: a calm run each night, from the bad night on one that is violated, and one that was torn."""
    calm = RunDirectory(Path(run_of(struck(known_ms=4_000), struck(effect="no")).row["address"]))
    lossy = generated_run(tmp_path / "lossy", "log", lost=3)
    (torn := generated_run(tmp_path / "torn", "log")).verdict.write_text('{"verdict": "he')
    began = datetime(FIRST.year, FIRST.month, FIRST.day, tzinfo=UTC)
    write_json(lossy.clock, read_object(lossy.clock) | {"wall_minus_monotonic_ns": int(began.timestamp()) * NS_PER_S})
    seal_recorded(lossy)
    seal_judged(lossy)
    lossy.logs.mkdir(exist_ok=True)
    (lossy.logs / "broker-1.log").write_text(
        f"[{began:%Y-%m-%d %H:%M:%S},000] ERROR Disk is gone (kafka.log.LogManager)\n" * 2
    )
    store = TablesLocation.made(tmp_path / "tables", packed=True)
    for night in range(NIGHTS):
        runs = {"calm": calm} | ({"lossy": lossy} if night >= BAD else {}) | ({"torn": torn} if night == BAD else {})
        tables = [_of_night(run, name, night) for name, run in runs.items()]
        for table in RUN_TABLES:
            store._write_table(table, FIRST + timedelta(night), "day", pa.concat_tables(one[table] for one in tables))
    return tmp_path / "tables"


def _of_night(run, name, night):
    stamp = datetime(FIRST.year, FIRST.month, FIRST.day, 22, tzinfo=UTC) + timedelta(night)
    return tables_of(run, f"{name}-1-{stamp:%Y%m%dT%H%M%S}", str(run.path))


def test_the_notebook_answers_ten_questions_of_a_month_of_nights(month, monkeypatch):
    monkeypatch.setenv("TABLES", str(month))
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    names: dict[str, object] = {}
    session = start_session()
    try:
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                exec(compile(cell["source"], str(NOTEBOOK), "exec"), names)
        answers = {number: frame.collect() for number, frame in names["answers"].items()}
    finally:
        session.stop()
    assert sorted(answers) == list(range(1, 11))
    assert all(answers.values()), {number: len(rows) for number, rows in answers.items()}
    bad = FIRST + timedelta(BAD)
    assert [row.night for row in answers[1] if row.violated] == [FIRST + timedelta(n) for n in range(BAD, NIGHTS)]
    assert [(row.night, row.state) for row in answers[2]] == [(bad, "damaged")]
    assert {(row.night, row.anomaly, row.records) for row in answers[4]} >= {(bad, "lost", 3)}
    assert next(row.first_night for row in answers[5] if row.anomaly == "lost") == FIRST
    assert {row.kind for row in answers[9]} == {"kill"}
    assert answers[10][0].since == bad
