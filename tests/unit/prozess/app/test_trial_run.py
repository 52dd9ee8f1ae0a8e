"""A stored run as values and tables: what `prozess.load` and `prozess.check` return."""

import shutil

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import prozess
from prozess.harness.errors import BadInput, HistoryUnreadable
from prozess.harness.history.store import opened_run
from prozess.harness.plan.plan import read_plan
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import TABLES
from prozess.harness.verdict import TrialVerdict, Verdict
from tests.support.stored_runs import generated_run


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return generated_run(tmp_path_factory.mktemp("stored") / "run", "log", "transactions", lost=3, duplicate=2)


@pytest.fixture
def copied(stored, tmp_path):
    return RunDirectory(shutil.copytree(stored.path, tmp_path / "run"))


def test_a_loaded_run_has_the_verdict_of_its_file(stored):
    run = prozess.load(stored.path)
    assert run.verdict == TrialVerdict.model_validate_json(stored.verdict.read_text("utf-8"))
    assert (run.held, run.verdict.verdict) == (False, Verdict.VIOLATED)
    assert (run.count("lost"), run.count("duplicate"), run.count("reordered")) == (3, 2, 0)
    assert (run.path, run.report) == (stored.path, stored.path / "report.html")
    assert run.plan == read_plan(stored)
    assert str(run).startswith("violated: Violated")


def test_a_run_given_as_text_or_as_a_file_uri_is_the_same(stored):
    wanted = prozess.load(stored.path).verdict
    assert prozess.load(str(stored.path)).verdict == wanted
    assert prozess.load(stored.path.as_uri()).verdict == wanted
    assert prozess.load(stored.path.as_uri()).path == stored.path


def test_a_run_in_an_object_store_has_no_directory_here(stored):
    far = prozess.TrialRun("s3a://bucket/run", prozess.load(stored.path).verdict)
    with pytest.raises(BadInput, match="s3a://bucket/run is in an object store"):
        far.report  # noqa: B018 - what is looked at is the access


def test_cells_and_outcomes_are_those_of_the_verdict(stored):
    run = prozess.load(stored.path)
    cells, outcomes = run.cells.to_arrow(), run.outcomes.to_arrow()
    assert cells["cell"].to_pylist() == [cell.cell for cell in run.verdict.cells]
    assert cells["verdict"].to_pylist() == [str(cell.verdict) for cell in run.verdict.cells]
    for cell in run.verdict.cells:
        for axis, value in cell.axes.items():
            assert cells[axis][cell.cell].as_py() == value
    told = {(row["cell"], row["anomaly"]): row for row in outcomes.to_pylist()}
    assert len(told) == outcomes.num_rows == sum(len(cell.anomalies) for cell in run.verdict.cells)
    for cell in run.verdict.cells:
        for one in cell.anomalies.values():
            row = told[cell.cell, one.anomaly]
            assert (row["outcome"], row["verdict"], row["reason"]) == (one.outcome, one.verdict, one.reason)
            assert (row["count"], row["forbidden"], row["proven"]) == (one.count, one.forbidden, one.proven)


def test_findings_witnesses_and_history_are_the_tables_of_the_run(stored):
    run = prozess.load(stored.path)
    findings, witnesses = run.findings.to_arrow(), run.witnesses.to_arrow()
    of_lost = [row for row in findings.to_pylist() if row["anomaly"] == "lost" and row["count"]]
    assert sum(row["count"] for row in of_lost) == 3
    numbers = {row["finding"] for row in of_lost}
    assert sum(number in numbers for number in witnesses["finding"].to_pylist()) == 3
    for name in TABLES:
        with pq.ParquetFile(stored.history / f"{name}.parquet") as file:
            assert run.history(name).to_arrow().equals(file.read().replace_schema_metadata(None)), name


def test_a_table_in_pandas_has_the_same_columns_and_rows(stored):
    run = prozess.load(stored.path)
    every = (run.findings, run.witnesses, run.windows, run.facts, run.verdict_inputs)
    for table in (run.cells, run.outcomes, *every, run.history("sends")):
        arrow, frame = table.to_arrow(), table.to_pandas()
        assert isinstance(frame, pd.DataFrame)
        assert (list(frame.columns), len(frame)) == (arrow.column_names, arrow.num_rows)
    sequences = run.history("sends").to_pandas(["sequence"])["sequence"].to_numpy()
    assert np.array_equal(sequences, run.history("sends").to_arrow()["sequence"].to_numpy())


def test_only_the_columns_that_are_asked_for_come_in_that_order(stored):
    run = prozess.load(stored.path)
    assert run.witnesses.to_arrow(["sequence", "anomaly"]).column_names == ["sequence", "anomaly"]
    assert run.outcomes.to_arrow(["count", "anomaly"]).column_names == ["count", "anomaly"]
    assert run.history("sends").to_arrow(["sequence"]).column_names == ["sequence"]
    for table in (run.cells, run.outcomes, run.findings, run.witnesses, run.history("sends")):
        with pytest.raises(BadInput, match=f"table '{table.name}' has no column 'nothing'. Its columns are "):
            table.to_arrow(["nothing"])


def test_a_table_that_there_is_not_is_refused(stored):
    with pytest.raises(
        BadInput, match=r"a history has no table 'sent'\. Its tables are admin_operations, assignments, "
    ):
        prozess.load(stored.path).history("sent")


def test_what_is_no_run_or_was_not_judged_is_refused(copied, tmp_path):
    with pytest.raises(BadInput, match="is not a run directory"):
        prozess.load(tmp_path)
    copied.verdict.unlink()
    with pytest.raises(BadInput, match=r"has no verdict\.json yet"):
        prozess.load(copied.path)


def test_a_check_gives_the_same_verdict_again_and_writes_it(copied):
    before = prozess.load(copied.path)
    copied.verdict.write_text("{}")
    after = prozess.check(copied.path)
    assert after.verdict == before.verdict == prozess.load(copied.path).verdict
    chosen = after.check(decide=["reordered"]).verdict
    assert (chosen.verdict is Verdict.VIOLATED, chosen.decided) == (False, ("reordered",))


def test_a_stored_plan_is_taken_as_it_stands_and_an_imported_one_cannot_be_run(stored, tmp_path):
    made = prozess.plan("smoke", seed=4, isolation="signals")
    (tmp_path / "plan.json").write_text(made.model_dump_json(), encoding="utf-8")
    assert prozess.plan(tmp_path / "plan.json") == prozess.plan(tmp_path) == prozess.plan(made) == made
    with pytest.raises(BadInput, match=r"--set changes a trial file, but a plan\.json is run as it stands"):
        prozess.plan(tmp_path, overrides={"traffic.rate_hz": 1})
    with pytest.raises(BadInput, match=r"cannot be read: .* Give an existing plan\.json"):
        prozess.plan(tmp_path / "other.json")
    with pytest.raises(BadInput, match=r"of another origin \(synthetic\) than a trial"):
        prozess.plan(stored.path)


def test_a_trial_is_planned_from_a_document_and_a_wrong_one_is_named():
    document = {"name": "mini", "title": "", "axes": {"producer.acks": ["1", "all"]}}
    assert [cell.axes["producer.acks"] for cell in prozess.plan(document).cells] == ["1", "all"]
    with pytest.raises(BadInput, match="this trial: backend 'moon' is not known"):
        prozess.plan(document | {"backend": "moon"})
    assert prozess.plan(document, decide=["lost"]).decide == ("lost",)
    with pytest.raises(BadInput, match="nothing"):
        prozess.plan(document, decide=["nothing"])


def test_an_engine_that_there_is_not_is_refused_before_anything_is_read(copied):
    copied.verdict.unlink()
    with pytest.raises(BadInput, match="--engine 'flink' is not known"):
        prozess.check(copied.path, engine="flink")
    assert not copied.verdict.exists()


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def test_damaged_files_make_the_verdict_unknown_and_their_tables_unreadable(copied):
    damage(copied.path / "plan.json")
    with pytest.raises(prozess.NotJudged, match=r"plan\.json .* everything rests on it"):
        prozess.load(copied.path)


def test_a_damaged_table_is_refused_and_its_run_unknown(copied):
    run = prozess.load(copied.path)
    damage(copied.history / "clients.parquet")
    assert prozess.load(copied.path).verdict.verdict is Verdict.UNKNOWN
    for table in (run.findings, run.witnesses, run.history("clients"), run.history("sends")):
        with pytest.raises(HistoryUnreadable, match=r"is damaged: the evidence is damaged: history/clients\.parquet"):
            table.to_arrow()


def test_damaged_rows_are_refused_with_what_was_found_in_their_cells_before(copied):
    run = prozess.load(copied.path)
    damage(copied.history / "sends.parquet")
    assert prozess.load(copied.path).verdict.verdict in (Verdict.UNKNOWN, Verdict.VIOLATED)
    with pytest.raises(HistoryUnreadable, match=r"history/sends\.parquet"):
        run.history("sends").to_arrow()
    with pytest.raises(HistoryUnreadable, match=r"was damaged after it was checked|is damaged"):
        run.findings.to_arrow()
    assert run.history("clients").to_arrow().num_rows >= 0


def test_a_run_without_a_manifest_proves_nothing(copied):
    copied.manifest.unlink()
    assert prozess.load(copied.path).verdict.verdict is not Verdict.HELD
    assert any("manifest.json" in reason for reason in prozess.load(copied.path).verdict.unknown_reasons)


def test_a_history_is_made_from_its_rows_when_it_is_asked_for(tmp_path):
    from tests.support.small_runs import START_NS, make_small

    small = make_small(tmp_path / "run")
    small.send(
        1, [{"sequence": n, "partition": 0, "invoked_ns": START_NS, "completed_ns": START_NS + 5} for n in range(4)]
    )
    verdict = TrialVerdict(verdict=Verdict.UNKNOWN, sentence="", trial="small", title="", seed=1, cells=())
    with opened_run(small.run.path) as directory:
        assert not directory.history.exists()
    table = prozess.TrialRun(small.run.path, verdict).history("sends").to_arrow(["sequence"])
    assert table["sequence"].to_pylist() == [0, 1, 2, 3]
