"""Tables over many runs are the same in Spark as without it, and so are readable histories."""

import shutil
from datetime import date
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import prozess
from prozess import spark as trial
from prozess.app.run_tables import write_tables
from prozess.harness.history.parquet import table_path
from prozess.harness.history.readable import RunNames, readable, readable_columns
from prozess.harness.plan.plan import read_plan
from prozess.harness.run_tables.definitions import RUN_TABLES
from prozess.harness.run_tables.location import sources_of
from prozess.harness.schema import TABLES
from prozess.spark_checkers.run_tables import collected
from prozess.spark_checkers.session import start_session, to_arrow
from tests.support.stored_runs import generated_run, recorded_run
from tools.table_page import QUESTIONS


@pytest.fixture(scope="module")
def session():
    started = start_session()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of two days and one without, and one that was killed."""
    folder = tmp_path_factory.mktemp("runs")
    made = generated_run(folder / "undated", "log", "group", "transactions", lost=3, duplicate=2)
    for stamp in ("20260101T220000", "20260102T220000"):
        shutil.copytree(made.path, folder / f"safe-1-{stamp}")
    killed = Path(shutil.copytree(made.path, folder / "safe-1-20260102T230000"))
    (killed / "manifest.json").unlink()
    recorded_run(folder / "recorded")
    return folder


@pytest.fixture(scope="module")
def kept(runs, tmp_path_factory):
    tables = tmp_path_factory.mktemp("kept") / "tables"
    assert write_tables([str(runs)], str(tables), packed=False, progress=str)[0] == 5
    return tables


def in_order(table):
    return sorted(table.to_pylist(), key=repr)


# Run directories take Spark twice as long; tests/unit/harness/tables reads them without it.
@pytest.mark.parametrize("where", [pytest.param("runs", marks=pytest.mark.long), "kept"])
def test_spark_gives_what_arrow_gives(session, where, request):
    location = request.getfixturevalue(where)
    frames, tables = trial.tables(session, location), prozess.tables(location)
    assert list(frames) == list(tables) == list(RUN_TABLES)
    for name, frame in frames.items():
        assert in_order(to_arrow(frame)) == in_order(tables[name].to_arrow()), name
        for column in RUN_TABLES[name].columns:
            assert frame.schema[column.name].metadata == {"comment": column.meaning}
        assert tables[name].to_spark(session).schema == frame.schema


def test_spark_reads_only_the_days_that_are_wanted(session, kept):
    day = date(2026, 1, 2)
    wanted = trial.tables(session, kept, since=day, until=day)["outcomes"]
    assert {row.day for row in wanted.select("day").distinct().collect()} == {day}
    plan = wanted._jdf.queryExecution().executedPlan().toString()
    assert "PartitionFilters: [isnotnull(day" in plan
    assert {row.run for row in wanted.select("run").distinct().collect()} == set(
        prozess.tables(kept, since=day, until=day)["runs"].to_arrow(["run"]).column("run").to_pylist()
    )


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_questions_of_the_page_have_answers(session, kept, question):
    for name, frame in trial.tables(session, kept).items():
        frame.createOrReplaceTempView(name)
    answers = session.sql(QUESTIONS[question]).collect()
    if not any(word in question for word in ("kill", "faults", "effect", "servers", "permitted", "controls")):
        assert answers, "these runs have an answer"


def test_what_spark_reads_for_a_matrix_is_what_arrow_reads(session, kept):
    sources = sources_of([kept])
    for name, columns in {"outcomes": ["run", "cell", "anomaly", "defects"], "cells": ["run", "cell", "axes"]}.items():
        of_spark = collected(session, name, columns, sources=sources)
        assert in_order(of_spark) == in_order(prozess.tables(kept)[name].to_arrow(columns))


@pytest.mark.parametrize("name", [pytest.param("undated", marks=pytest.mark.long), "recorded"])
def test_a_readable_history_is_the_same_in_spark(session, runs, name):
    run = prozess.load(runs / name)
    names = RunNames.of(trial.RunDirectory(run.path), read_plan(trial.RunDirectory(run.path)))
    for table in TABLES.values():
        with pq.ParquetFile(table_path(trial.RunDirectory(run.path), table.name)) as file:
            raw = file.read()
        wanted = readable(raw, readable_columns(table.stored_columns, named=True), names)
        frame = trial.history(session, run.path, table.name, readable=True)
        assert in_order(to_arrow(frame)) == in_order(wanted), table.name
        assert in_order(run.history(table.name, readable=True).to_arrow()) == in_order(wanted)
        assert all(field.metadata["comment"] for field in frame.schema)
        assert trial.history(session, run.path, table.name).columns == list(table.column_names)
