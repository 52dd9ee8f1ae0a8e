"""Damage to a stored run, wherever it is, leaves everything that rests on it unknown, by name: the run is neither held nor
violated, and there is no traceback.

PROZESS_FUZZ multiplies the number of cases (`make fuzz`); `tests.fuzzing.damaged_runs` does the same to runs of any size.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

from prozess.app.conduct import recheck
from prozess.app.replay import replay_plan
from prozess.app.run.judge import judged_tables
from prozess.app.run_options import RunOptions
from prozess.app.trial_run import load
from prozess.campaigns.cli import report
from prozess.harness.checking.findings import read_findings
from prozess.harness.errors import BadInput, HistoryUnreadable
from prozess.harness.history.manifest import condition_of, read_manifest, refuse_damaged, seal_history, seal_recorded
from prozess.harness.history.reader import History
from prozess.harness.history.store import opened_run
from prozess.harness.plan.plan import read_plan
from prozess.harness.report.reports import report_run
from prozess.harness.verdict import TrialVerdict, Verdict
from tests.support.damages import KINDS, copied, judged, manifest_removed, reported, result_damaged
from tests.support.examples import ALL
from tests.support.stored_runs import MAKERS, generated_run, inputs_added_up, judgements

MORE = int(os.environ.get("PROZESS_FUZZ", "1"))
TRIES = 2 if ALL else 1
"""Cases of each kind of damage and each run."""
RUNS_MAX = None if ALL else 4
"""How many runs each kind of damage is done to, of those drawn where it is possible; None: all of them."""
CASES = 20 if ALL else 8
"""How many runs are damaged where the kind of damage is drawn, too."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored")
    return {name: make(folder / str(number)) for number, (name, make) in enumerate(MAKERS.items())}


@pytest.fixture
def held(runs, tmp_path):
    """A copy of one that is held, with rows."""
    return copied(runs["recorded"], tmp_path / "copy")


def verdict_of(run):
    found = judged(run)
    assert isinstance(found, TrialVerdict), found
    return found


def test_runs_that_nobody_touched_are_whole_and_checked_again_they_say_the_same(runs, tmp_path):
    verdicts = {}
    for number, (name, run) in enumerate(runs.items()):
        assert condition_of(run, ("recorded", "history", "judged")).whole, name
        before = json.loads(run.verdict.read_text(encoding="utf-8"))
        again = copied(run, tmp_path / str(number))
        assert json.loads(verdict_of(again).model_dump_json()) == before, name
        verdicts[name] = before["verdict"]
    assert set(verdicts.values()) == {"held", "violated"}, verdicts


def test_what_every_verdict_is_made_of_adds_up_to_it(runs):
    for name, run in runs.items():
        verdict = TrialVerdict.model_validate_json(run.verdict.read_text(encoding="utf-8"))
        tables = judged_tables(run, condition_of(run))
        assert inputs_added_up(tables["verdict_inputs"].to_pylist()) == judgements(verdict), name
        partitions = {planned.partition for planned in read_plan(run).partitions}
        assert set(tables["facts"].column("partition").to_pylist()) == partitions, name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_whatever_is_damaged_the_run_is_unknown_the_damage_is_named_and_other_cells_are_judged_as_before(
    runs, tmp_path, kind
):
    rng, names, done = random.Random(kind.__name__), sorted(runs), 0
    for number in range(TRIES * MORE):
        for name in rng.sample(names, len(names)):
            if RUNS_MAX is not None and done >= RUNS_MAX * (number + 1):
                break
            run = copied(runs[name], tmp_path / f"{number}-{names.index(name)}")
            others = [other for other in names if other != name]
            what = kind(rng, run, runs["recorded, sent alone" if name == "recorded" else rng.choice(others)])
            if what is None:
                continue
            done += 1
            found = judged(run)
            if isinstance(found, str):
                assert "plan.json" in found, (what, found)  # nothing can be judged without a plan
                continue
            assert found.verdict is Verdict.UNKNOWN, (name, what)
            before = TrialVerdict.model_validate_json(runs[name].verdict.read_text(encoding="utf-8"))
            for cell in found.cells:
                assert cell.verdict is Verdict.UNKNOWN or cell in before.cells, (name, what)
            assert "the evidence is damaged: " in found.unknown_reasons[0], (name, what)
            if done == 1:
                assert reported(run).startswith("# unknown"), (name, what)
    assert done >= TRIES * MORE, "this kind of damage is possible in too few runs to show anything"


@pytest.fixture
def mixed(tmp_path):
    """Two cells, of a log and of a group, with something lost in the first one."""
    run = generated_run(tmp_path / "mixed", "log", "group", lost=3)
    plan = History.open(run).plan
    assert [cell.workload for cell in plan.cells] == ["log", "group"]
    return run, plan


def bytes_of(run, table, partition):
    """Where the pages of its first row group are."""
    groups = read_manifest(run).files[f"history/{table}.parquet"].row_groups
    group = next(group for group in groups if group.partition == partition)
    return group.begin, group.begin + group.size


@pytest.mark.parametrize("place", ["first page", "last byte"])
def test_damage_in_a_row_group_costs_its_own_cell_and_what_was_found_in_others_stays(mixed, place):
    run, plan = mixed
    before = TrialVerdict.model_validate_json(run.verdict.read_text(encoding="utf-8"))
    begin, end = bytes_of(run, "sends", plan.cells[1].partitions[1])
    path = run.history / "sends.parquet"
    content = bytearray(path.read_bytes())
    content[begin + 40 if place == "first page" else end - 1] ^= 4
    path.write_bytes(content)
    found = verdict_of(run)
    assert found.verdict is Verdict.UNKNOWN
    assert found.cells[0] == before.cells[0]
    assert found.findings["lost"] == 3
    assert found.cells[1].verdict is Verdict.UNKNOWN
    reasons = {anomaly.reason for anomaly in found.cells[1].anomalies.values()}
    (reason,) = reasons
    assert "history/sends.parquet has changed since it was written" in reason
    assert "1 of 2 cells is not judged. Judged by intact files: 1 violated." in found.sentence
    told = {(f.partition in plan.cells[1].partitions, f.result.incomplete is not None) for f in read_findings(run)}
    assert told == {(True, True), (False, False)}
    assert reported(run).startswith("# unknown")
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "records <b>not counted: the evidence is damaged</b>" in page
    assert verdict_of(run) == found, "and so it is the next time"


@pytest.mark.parametrize("damage", ["cut", "gone", "footer"])
def test_a_table_that_cannot_be_read_costs_the_cells_that_have_rows_in_it(mixed, damage):
    run, plan = mixed
    before = TrialVerdict.model_validate_json(run.verdict.read_text(encoding="utf-8"))
    for table, concerned in (("processed", {1}), ("reads", {0, 1})):
        path = run.history / f"{table}.parquet"
        content = bytearray(path.read_bytes())
        path.unlink()
        if damage == "cut":
            path.write_bytes(content[: len(content) * 2 // 3])
        if damage == "footer":
            content[-40] ^= 1
            path.write_bytes(content)
        found = verdict_of(run)
        assert found.verdict is Verdict.UNKNOWN
        for cell in plan.cells:
            assert (found.cells[cell.cell] == before.cells[cell.cell]) == (cell.cell not in concerned), table
        assert reported(run).startswith("# unknown")


def test_a_verdict_that_is_older_than_the_damage_is_not_repeated(mixed):
    run, plan = mixed
    begin, _ = bytes_of(run, "reads", plan.cells[0].partitions[0])
    path = run.history / "reads.parquet"
    content = bytearray(path.read_bytes())
    content[begin + 30] ^= 1
    path.write_bytes(content)
    assert reported(run).startswith("# unknown")
    assert "violated" not in (run.path / "summary.md").read_text(encoding="utf-8").splitlines()[0]


def test_of_a_table_that_is_not_clustered_a_damage_may_concern_everything(mixed):
    run, _ = mixed
    (run.history / "commits.parquet").unlink()
    found = verdict_of(run)
    assert {cell.verdict for cell in found.cells} == {Verdict.UNKNOWN}
    assert "None of 2 cells is judged" in found.sentence


def test_a_run_without_a_manifest_is_unknown_and_tells_what_was_found(runs, tmp_path):
    for number, run in enumerate(runs.values()):
        killed = copied(run, tmp_path / str(number))
        manifest_removed(random.Random(1), killed, run)
        found = verdict_of(killed)
        assert found.verdict is Verdict.UNKNOWN
        assert "it has no manifest.json" in found.sentence
        assert found.findings == json.loads(run.verdict.read_text(encoding="utf-8"))["findings"]
        assert reported(killed).startswith("# unknown")


def test_files_of_any_shape_beside_no_manifest_are_never_a_traceback(runs, tmp_path):
    rng, names = random.Random(3), sorted(runs)
    documents = [kind for kind in KINDS if kind.__name__.startswith("document")]
    for number in range(CASES * MORE):
        name = rng.choice(names)
        run = copied(runs[name], tmp_path / str(number))
        what = rng.choice(documents)(rng, run, runs[rng.choice(names)])
        run.manifest.unlink()
        found = judged(run)
        assert isinstance(found, str) or found.verdict is Verdict.UNKNOWN, (name, what)


def test_a_verdict_that_is_not_as_it_was_judged_is_unknown_in_every_report(runs, tmp_path):
    rng, names = random.Random(2), sorted(runs)
    for number in range(CASES * MORE):
        name = rng.choice(names)
        run = copied(runs[name], tmp_path / str(number))
        what = result_damaged(rng, run, run)
        assert reported(run).startswith("# unknown"), (name, what)
        again = judged(run)
        assert isinstance(again, TrialVerdict)
        assert again.verdict == json.loads(runs[name].verdict.read_text(encoding="utf-8"))["verdict"], (name, what)


def test_a_history_that_was_removed_as_a_whole_is_made_again_of_its_rows(held):
    before = json.loads(held.verdict.read_text(encoding="utf-8"))
    for path in held.history.iterdir():
        path.unlink()
    assert json.loads(verdict_of(held).model_dump_json()) == before
    assert condition_of(held, ("recorded", "history", "judged")).whole


def test_an_archived_run_is_judged_by_its_history_alone_and_not_without_that(held):
    before = json.loads(held.verdict.read_text(encoding="utf-8"))
    for path in held.rows.iterdir():
        path.unlink()
    assert json.loads(verdict_of(held).model_dump_json()) == before
    (held.history / "steps.parquet").unlink()
    assert verdict_of(held).verdict is Verdict.UNKNOWN
    for path in held.history.iterdir():
        path.unlink()
    assert verdict_of(held).verdict is Verdict.UNKNOWN


def test_a_history_that_nobody_sealed_is_made_again_of_its_rows(held):
    told = json.loads(held.manifest.read_text(encoding="utf-8"))
    assert any(proof["part"] == "history" for proof in told["files"].values())
    for path in held.history.iterdir():
        path.unlink()
    seal_history(held)  # as if a check had been killed before it sealed
    (held.history / "sends.parquet").write_bytes(b"half of one")
    assert verdict_of(held).verdict is Verdict.HELD


@pytest.mark.parametrize("elsewhere", [False, True], ids=["beside the run", "with --out"])
def test_tables_that_an_earlier_version_did_not_know_have_no_rows_and_one_that_is_gone_is_not_made_up(
    tmp_path, elsewhere
):
    run = generated_run(tmp_path / "run", "log")
    before = json.loads(run.verdict.read_text(encoding="utf-8"))
    for table in ("deliveries", "remote_segments"):
        (run.history / f"{table}.parquet").unlink()
    seal_recorded(run)  # as that version did: its manifest never named them
    with opened_run(
        str(run.path), lambda _: None, kept=True, out=str(tmp_path / "out") if elsewhere else None
    ) as opened:
        assert json.loads(verdict_of(opened).model_dump_json()) == before
    assert "deliveries" not in {path.stem for path in run.history.iterdir()}
    assert load(run.path).history("deliveries").to_arrow().num_rows == 0
    assert load(run.path).history("deliveries", readable=True).to_arrow().num_rows == 0
    (run.history / "commits.parquet").unlink()
    assert verdict_of(run).verdict is Verdict.UNKNOWN


def test_a_run_with_damage_cannot_be_replayed_from_what_is_damaged(held):
    held.plan.write_text(held.plan.read_text(encoding="utf-8").replace("orders", "0rders"), encoding="utf-8")
    with pytest.raises(HistoryUnreadable, match=r"plan\.json has changed since it was written .*make the run again"):
        replay_plan(held, exact=False)
    with pytest.raises(HistoryUnreadable, match=r"plan\.json"):
        refuse_damaged(held, held.plan)


def test_reports_of_a_damaged_run_are_written_from_its_plan_alone(held):
    held.dictionaries.write_text("[]", encoding="utf-8")
    paths = report_run(held).paths
    assert [path.name for path in paths] == ["report.html", "junit.xml", "summary.md"]
    assert all(path.parent == held.path for path in paths)
    assert "dictionaries.json has 2 bytes instead of" in paths[2].read_text(encoding="utf-8")
    assert 'failures="0"' in paths[1].read_text(encoding="utf-8")
    page = paths[0].read_text(encoding="utf-8")
    assert "<span>records <b>not counted: the evidence is damaged</b></span>" in page
    assert "records sent" not in page, "0 would be a count"


@pytest.mark.parametrize("shape", ["[]", "null", '{"run": "long"}', "{"])
def test_seconds_of_a_wrong_shape_are_said(held, shape):
    (held.path / "seconds.json").write_text(shape, encoding="utf-8")
    with pytest.raises(HistoryUnreadable, match=r"seconds\.json"):
        report_run(held)


@pytest.fixture
def read_only(runs):
    """A run that this process may read and not write, whoever it is."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        run = copied(runs["recorded"], Path(folder) / "run")
        run.path.chmod(0o555)
        was = os.geteuid()
        if was == 0:
            os.seteuid(65534)
        try:
            yield run
        finally:
            os.seteuid(was)
            run.path.chmod(0o755)


@pytest.mark.parametrize("command", ["check", "report"])
def test_a_run_that_cannot_be_written_is_refused_with_the_way_out(read_only, command):
    options = RunOptions(Path(), "local", 2, "auto", quiet=True, as_json=False)
    work = partial(recheck, read_only, options) if command == "check" else partial(report, read_only.path)
    with pytest.raises(BadInput, match=r"cannot be written, .*Make it writable, or copy the run"):
        work()


def test_the_command_says_what_is_damaged_and_ends_with_two(held):
    held.dictionaries.write_text("[]", encoding="utf-8")
    for command in (["check", str(held.path), "--engine", "local", "--quiet"], ["report", str(held.path)]):
        done = subprocess.run(
            [sys.executable, "-m", "prozess", *command],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert "the evidence is damaged: dictionaries.json has 2 bytes instead of" in done.stdout + done.stderr
