"""Damage to a stored run, wherever it is, leaves everything unknown, by name: nothing held, nothing violated, no traceback.

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

from prozess.harness.app.commands.offline import report
from prozess.harness.app.conduct import Options, recheck, replay_plan
from prozess.harness.errors import BadInput, HistoryUnreadable
from prozess.harness.history.manifest import condition_of, refuse_damaged, seal_history
from prozess.harness.report import report_run
from prozess.harness.verdict import TrialVerdict, Verdict
from tests.support.damages import KINDS, copied, judged, manifest_removed, reported, result_damaged
from tests.support.stored_runs import MAKERS

MORE = int(os.environ.get("PROZESS_FUZZ", "1"))
TRIES = 2
"""Cases of each kind of damage and each run."""


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


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_whatever_is_damaged_everything_is_unknown_and_the_damage_is_named(runs, tmp_path, kind):
    rng, names, done = random.Random(kind.__name__), sorted(runs), 0
    for number in range(TRIES * MORE):
        for name in names:
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
            assert {cell.verdict for cell in found.cells} <= {Verdict.UNKNOWN}, (name, what)
            assert "the evidence is damaged: " in found.unknown_reasons[0], (name, what)
            if done == 1:
                assert reported(run).startswith("# unknown"), (name, what)
    assert done >= TRIES * MORE, "this kind of damage is possible in too few runs to show anything"


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
    for number in range(20 * MORE):
        name = rng.choice(names)
        run = copied(runs[name], tmp_path / str(number))
        what = rng.choice(documents)(rng, run, runs[rng.choice(names)])
        run.manifest.unlink()
        found = judged(run)
        assert isinstance(found, str) or found.verdict is Verdict.UNKNOWN, (name, what)


def test_a_verdict_that_is_not_as_it_was_judged_is_unknown_in_every_report(runs, tmp_path):
    rng, names = random.Random(2), sorted(runs)
    for number in range(15 * MORE):
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


def test_a_run_with_damage_cannot_be_replayed_from_what_is_damaged(held):
    held.plan.write_text(held.plan.read_text(encoding="utf-8").replace("orders", "0rders"), encoding="utf-8")
    with pytest.raises(HistoryUnreadable, match=r"plan\.json has changed since it was written .*make the run again"):
        replay_plan(held, exact=False)
    with pytest.raises(HistoryUnreadable, match=r"plan\.json"):
        refuse_damaged(held, held.plan)


def test_reports_of_a_damaged_run_are_written_from_its_plan_alone(held):
    held.dictionaries.write_text("[]", encoding="utf-8")
    paths = report_run(held)
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
    options = Options(Path(), "local", 2, "auto", quiet=True, as_json=False)
    work = partial(recheck, read_only, options) if command == "check" else partial(report, read_only.path)
    with pytest.raises(BadInput, match=r"cannot be written, .*Make it writable, or copy the run"):
        work()


def test_the_command_says_what_is_damaged_and_ends_with_two(held):
    held.dictionaries.write_text("[]", encoding="utf-8")
    for command in (["check", str(held.path), "--engine", "local", "--quiet"], ["report", str(held.path)]):
        done = subprocess.run(
            [sys.executable, "-m", "prozess.harness.app.cli", *command],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert "the evidence is damaged: dictionaries.json has 2 bytes instead of" in done.stdout + done.stderr
