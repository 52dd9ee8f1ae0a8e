"""A run directory becomes rows of the tables over many runs, whatever is wrong with it."""

import json
import os
import random
import shutil
from collections import Counter
from itertools import product
from pathlib import Path

import pyarrow.compute as pc
import pytest

from prozess.harness.checking.findings import findings_table, nested_table
from prozess.harness.config.configuration import ProducerConfiguration
from prozess.harness.history.manifest import seal_judged, seal_recorded
from prozess.harness.plan.plan import read_plan
from prozess.harness.report.reports import read_verdict
from prozess.harness.result_tables import WITNESSES
from prozess.harness.run_directory import RunDirectory, read_object
from prozess.harness.run_tables.definitions import RUN_TABLES
from prozess.harness.run_tables.rows_of_run import tables_of, tables_of_all
from prozess.harness.run_tables.run_files import READ, RunFiles
from prozess.harness.schema import MISSING
from tests.support.damages import KINDS, manifest_removed, result_damaged
from tests.support.stored_runs import generated_run, recorded_run, verifiable_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {
        "generated": generated_run(folder / "generated", "log", "transactions", lost=3, duplicate=2),
        "recorded": recorded_run(folder / "recorded"),
        "imported": verifiable_run(folder / "imported"),
    }


@pytest.fixture
def run(runs, tmp_path):
    """A copy of a violated run, to be spoiled."""
    return RunDirectory(Path(shutil.copytree(runs["generated"].path, tmp_path / "run")))


def tables(run, *wanted):
    return tables_of(run, run.path.name, str(run.path), wanted or tuple(RUN_TABLES))


def row(run):
    """The one row of a run in `runs`."""
    (found,) = tables(run)["runs"].to_pylist()
    return found


@pytest.mark.parametrize("name", ["generated", "recorded", "imported"])
def test_the_rows_of_a_run_are_what_its_files_say(runs, name):
    run = runs[name]
    made, plan, verdict = tables(run), read_plan(run), read_verdict(run)
    (told,) = made["runs"].to_pylist()
    assert (told["state"], told["problem"]) == ("judged", None)
    assert (told["trial"], told["seed"], told["verdict"], told["sentence"]) == (
        *(plan.trial, plan.seed, verdict.verdict, verdict.sentence),
    )
    assert dict(told["found"]) == {anomaly: count for anomaly, count in verdict.findings.items() if count}
    assert told["by_known_defects"] == verdict.by_known_defects
    outcomes = {(o["cell"], o["anomaly"]): o for o in made["outcomes"].to_pylist()}
    assert len(outcomes) == made["outcomes"].num_rows == sum(len(cell.anomalies) for cell in verdict.cells)
    for cell in verdict.cells:
        for anomaly, of in cell.anomalies.items():
            found = outcomes[cell.cell, anomaly]
            assert found["outcome"] == of.outcome
            assert (found["verdict"], found["reason"], found["proven"]) == (of.verdict, of.reason, of.proven)
            assert (found["count"], found["forbidden"], found["permitted"]) == (of.count, of.forbidden, of.permitted)
            assert dict(found["by_rule"]) == of.by_rule
    assert made["findings"].column("count").to_pylist() == findings_table(run).column("count").to_pylist()
    assert made["witnesses"].num_rows == nested_table(run, WITNESSES).num_rows


def test_every_table_has_its_schema_and_the_same_keys(runs):
    for run in runs.values():
        made = tables(run)
        assert list(made) == list(RUN_TABLES)
        for name, rows in made.items():
            assert rows.schema.equals(RUN_TABLES[name].schema, check_metadata=True)
            keys = {tuple(key.values()) for key in rows.select(["run", "trial", "seed", "version", "day"]).to_pylist()}
            assert keys <= {
                tuple(made["runs"].to_pylist()[0][key] for key in ("run", "trial", "seed", "version", "day"))
            }


def test_a_table_by_itself_is_that_of_all_tables_together(runs):
    for run in runs.values():
        together = tables(run)
        assert all(tables(run, name)[name].equals(together[name]) for name in RUN_TABLES)


def test_each_setting_of_a_cell_is_a_column(runs):
    (cell, *_), (planned, *_) = tables(runs["generated"])["cells"].to_pylist(), read_plan(runs["generated"]).cells
    for name in ProducerConfiguration.model_fields.keys() - {"properties", "command", "left_to_client"}:
        assert cell[f"producer_{name}"] == getattr(planned.producer, name), name
    assert cell["topic_min_insync_replicas"] == planned.topic.min_insync_replicas
    assert dict(cell["axes"]) == planned.axes
    assert cell["group_commit"] is None, "it has no group"


def test_the_environment_of_an_application_is_not_handed_on():
    assert not [column for column in RUN_TABLES["cells"].schema.names if "environment" in column]


def test_what_is_not_known_of_a_witness_is_null(runs):
    raw, found = nested_table(runs["generated"], WITNESSES), tables(runs["generated"])["witnesses"]
    for name in ("end_ns", "log_offset", "other_sequence", "reader", "leader_epoch"):
        absent = MISSING if name.endswith("_ns") else -1
        assert found.column(name).null_count == raw.column(name).to_pylist().count(absent), name
    assert set(found.column("outcome").to_pylist()) <= {"ok", "fail", "info", None}
    assert not found.column("topic").null_count


def test_a_run_that_was_killed_is_unproven_and_nothing_of_it_is_held(run):
    run.manifest.unlink()
    told = row(run)
    assert (told["state"], told["verdict"]) == ("unproven", "unknown")
    assert "manifest.json" in told["problem"]
    made = tables(run)
    assert set(made["outcomes"].column("outcome").to_pylist()) <= {"unknown", "not judged"}
    assert set(made["cells"].column("verdict").to_pylist()) == {"unknown"}


def test_a_run_that_was_not_judged_says_so(run):
    run.verdict.unlink()
    shutil.rmtree(run.findings)
    run.impact.unlink()
    seal_judged(run)
    told = row(run)
    assert (told["state"], told["verdict"]) == ("not judged", None)
    assert "prozess check" in told["problem"]
    assert not tables(run)["outcomes"].num_rows


def test_a_run_that_has_only_begun_is_a_row(tmp_path):
    (tmp_path / "smoke-1-20260101T220000").mkdir()
    (tmp_path / "smoke-1-20260101T220000" / "plan.json").write_text('{"format_version": 5, "tri')
    told = row(RunDirectory(tmp_path / "smoke-1-20260101T220000"))
    assert (told["state"], told["trial"], str(told["day"]), str(told["night"])) == (
        *("unreadable", None, "2026-01-01", "2026-01-01"),
    )
    assert told["problem"].startswith("plan.json is not of this version")


@pytest.mark.parametrize(
    "file", ["verdict.json", "plan.json", "impact.json", "findings/witnesses.parquet", "manifest.json"]
)
def test_a_torn_file_is_named_and_nothing_is_held(run, file):
    path = run.path / file
    path.write_bytes(path.read_bytes()[:-20])
    told = row(run)
    assert told["state"] == "damaged"
    assert file in told["problem"]
    assert told["verdict"] in ("unknown", None)


def test_a_file_that_is_missing_is_named_and_its_table_has_no_rows(run):
    (run.findings / "witnesses.parquet").unlink()
    assert "findings/witnesses.parquet is missing" in row(run)["problem"]
    assert not tables(run)["witnesses"].num_rows


def test_a_verdict_that_somebody_wrote_anew_is_not_believed(run):
    told = read_object(run.verdict) | {"verdict": "held", "sentence": "All is well."}
    run.verdict.write_text(json.dumps(told))
    found = row(run)
    assert (found["state"], found["verdict"], found["sentence"]) == ("damaged", None, None)
    assert not tables(run)["outcomes"].num_rows


def test_no_link_is_followed(run, tmp_path):
    outside = tmp_path / "outside.json"
    shutil.move(run.verdict, outside)
    run.verdict.symlink_to(outside)
    shutil.move(run.findings, tmp_path / "elsewhere")
    run.findings.symlink_to(tmp_path / "elsewhere")
    made = tables(run)
    (told,) = made["runs"].to_pylist()
    assert told["state"] == "damaged"
    assert "findings/findings.parquet is reached through a link" in told["problem"]
    assert not any(made[name].num_rows for name in ("outcomes", "findings", "witnesses"))


def test_a_pipe_does_not_keep_the_reader_waiting(run):
    run.verdict.unlink()
    os.mkfifo(run.verdict)
    assert "verdict.json is no file" in row(run)["problem"]


@pytest.mark.parametrize("seed", [2**63, -(2**70)])
def test_a_number_beyond_64_bits_makes_a_run_unreadable_and_raises_nothing(run, seed):
    plan = read_object(run.plan) | {"seed": seed}
    run.plan.write_text(json.dumps(plan))
    seal_recorded(run)
    seal_judged(run)
    told = row(run)
    assert (told["state"], told["verdict"]) == ("unreadable", None)
    assert told["problem"]


@pytest.mark.parametrize("odd", [False, True])
def test_the_rows_of_several_runs_are_those_of_each_by_itself(runs, run, tmp_path, odd):
    torn = RunDirectory(Path(shutil.copytree(run.path, tmp_path / "torn")))
    torn.verdict.write_text('{"verdict": "he')
    if odd:  # no column of Arrow's takes its seed
        run.plan.write_text(json.dumps(read_object(run.plan) | {"seed": 2**63}))
        seal_recorded(run)
        seal_judged(run)
    several = [*runs.values(), run, torn]

    def read():
        return [RunFiles.of(one, one.path.name, str(one.path)) for one in several]

    together = tables_of_all(read(), tuple(RUN_TABLES))
    alone = [tables_of_all([files], tuple(RUN_TABLES)) for files in read()]
    for name, rows in together.items():
        assert rows.to_pylist() == [row for one in alone for row in one[name].to_pylist()], name


def test_whatever_damages_a_run_it_has_a_row_that_never_says_more_than_before(runs, tmp_path):
    told = Counter()
    kinds = (*KINDS, manifest_removed, result_damaged)
    for number, (kind, seed, name) in enumerate(product(kinds, range(2), ("generated", "recorded"))):
        mine = RunDirectory(Path(shutil.copytree(runs[name].path, tmp_path / str(number))))
        if kind(random.Random(seed), mine, runs["imported"]) is None:
            continue
        found = row(mine)
        told[found["state"]] += 1
        if found["state"] == "judged":
            same = [file for file in READ if (runs[name].path / file).is_file()]
            assert all((mine.path / file).read_bytes() == (runs[name].path / file).read_bytes() for file in same), kind
        else:
            assert found["verdict"] in ("unknown", None), kind
            assert found["problem"], kind
    assert told["damaged"] > 5
    assert told["judged"] > 5, "damage to rows and history is not looked for"


def test_the_id_stays_when_a_run_is_checked_again_or_copied_and_differs_for_another(runs, tmp_path):
    run = RunDirectory(Path(shutil.copytree(runs["generated"].path, tmp_path / "generated")))
    before = row(runs["generated"])["run"]
    assert row(run)["run"] == before
    seal_judged(run)
    assert row(run)["run"] == before
    other = generated_run(tmp_path / "other" / "generated", "log", lost=1)
    assert row(other)["run"] != before
    assert before.startswith("generated-")


@pytest.mark.parametrize("name", ["a b", "ä=/day", "-x", ".hidden", "_held", "n" * 240, "new\nline"])
def test_an_id_is_the_name_of_a_file_that_readers_see(runs, name):
    made = tables_of(runs["imported"], name, "/runs", ("runs",))["runs"].to_pylist()[0]["run"]
    assert len(made) < 200
    assert made[0].isalnum()
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@pytest.mark.parametrize(
    ("name", "day", "night"),
    [
        ("smoke-1-20260102T110000", "2026-01-02", "2026-01-01"),
        ("smoke-1-20260102T130000-4", "2026-01-02", "2026-01-02"),
        ("smoke-1-20261399T250000", "None", "None"),
        ("mine", "None", "None"),
    ],
)
def test_the_day_and_the_night_are_those_of_the_name(runs, name, day, night):
    told = tables_of(runs["generated"], name, "/runs", ("runs",))["runs"].to_pylist()[0]
    assert (str(told["day"]), str(told["night"])) == (day, night)


def test_what_servers_complained_about_is_counted_by_kind(run):
    run.logs.mkdir(exist_ok=True)
    lines = [
        f"[2026-01-01 22:00:{s:02},000] ERROR Fetch of partition {s} failed (kafka.Server)\n\tat Stack.trace\n"
        for s in (1, 2)
    ]
    lines += ["[2026-01-01 22:00:05,000] WARN \x1b[31mred\x1b[0m\n", "[2026-01-01 22:00:06,000] INFO fine\n"]
    (run.logs / "broker-1.log").write_text("".join(lines))
    (run.logs / "client-1.log").write_text(lines[0])
    (run.logs / "broker-2.log").symlink_to(run.logs / "broker-1.log")
    run.clock.write_text(json.dumps({"start_monotonic_ns": 0, "wall_minus_monotonic_ns": 1767304800_000_000_000}))
    seal_recorded(run)
    seal_judged(run)
    found = tables(run)["server_errors"].to_pylist()
    first = found[0]
    assert (first["node"], first["level"], first["kind"]) == (
        *("broker-1", "ERROR", "Fetch of partition # failed (kafka.Server)"),
    )
    assert (first["count"], first["first_s"], first["last_s"]) == (2, 1.0, 2.0)
    assert str(first["first"]) == "2026-01-01 22:00:01+00:00"
    assert [e["level"] for e in found] == ["ERROR", "WARN"]
    assert "\x1b" not in found[1]["kind"]
    assert row(run)["server_logs"] == 1


def test_faults_and_impacts_have_their_times_and_costs(runs):
    # Of a real run: tests/system. Here: a run without a fault has no rows, and their schemas all the same.
    made = tables(runs["recorded"])
    assert made["faults"].num_rows == len(read_verdict(runs["recorded"]).faults)
    assert pc.sum(made["impacts"].column("windows")).as_py() in (None, 0)
