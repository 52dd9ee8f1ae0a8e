"""`prozess runs` and `prozess compare`: which runs there are, and in what two of them differ."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.app.run.check import CheckOptions, check_run
from prozess.app.run.judge import judge_run
from prozess.campaigns.comparing import RunSummary
from prozess.campaigns.comparing.comparison import compare_runs, print_comparison
from prozess.campaigns.comparing.listing import ListedRun, chosen, line_of, list_runs
from prozess.exchange.commands import generate_history
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import FaultShown, TrialVerdict


def judged(path, **options):
    generate_history(
        path, **({"rows": 3_000, "partitions": 2, "plant": "", "seed": 1, "workloads": ("log",)} | options)
    )
    run = RunDirectory(path)
    judge_run(run, check_run(run, CheckOptions(engine="local")))
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of one kind, of which the second lost and doubled records; and one that is torn."""
    folder = tmp_path_factory.mktemp("runs")
    judged(folder / "calm-1-20260301T100000")
    judged(folder / "bad-1-20260302T100000", plant="lost=3,duplicate=2", seed=2)
    torn = folder / "torn-1-20260303T100000"
    torn.mkdir()
    (torn / "plan.json").write_text('{"format_ver')
    return folder


def test_runs_are_listed_the_newest_first_with_what_came_of_each(runs, capsys):
    shown = list_runs([runs], trial=None, verdict=None, last=10, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert [line["began"] for line in told] == ["20260303T100000", "20260302T100000", "20260301T100000"]
    assert [line.verdict for line in shown] == [None, "violated", "held"]
    assert told[1]["findings"]["lost"] == 3
    assert "cannot be read" in told[0]["trouble"] or "plan.json" in told[0]["trouble"]
    list_runs([runs], trial=None, verdict="violated", last=10, as_json=False)
    assert "lost 3" in " ".join(capsys.readouterr().out.split())


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", "20260101T000000", "20260102T000000"]))))
def test_the_list_has_each_chosen_run_once_and_the_newest_first(made):
    lines = [
        ListedRun(path=str(n), trial=trial, seed=1, began=began, took_s=None, where="", verdict=None, findings={})
        for n, (trial, began) in enumerate(made)
    ]
    found = chosen(lines, trial="a", verdict=None)
    assert sorted(line.path for line in found) == sorted(line.path for line in lines if line.trial == "a")
    assert [line.began for line in found] == sorted((line.began for line in found), reverse=True)
    assert chosen(lines, trial=None, verdict="held") == []


def test_two_runs_side_by_side_differ_in_what_was_planted_and_in_their_settings(runs, capsys):
    one, other = (RunSummary.at(next(runs.glob(f"{name}-*"))) for name in ("calm", "bad"))
    found = compare_runs(one, other)
    findings = {pair.what: (pair.one, pair.other) for pair in found.findings}
    assert findings["lost"] == ("–", "3 forbidden")
    assert {pair.what for pair in found.settings} == {"seed"}
    assert any(pair.what.endswith(": lost") and pair.other == "✗ violated 3" for pair in found.cells)
    assert found.verdicts.differs
    print_comparison(found, as_json=False)
    told = capsys.readouterr().out
    assert "Settings that differ" in told
    assert "There was no fault." in told
    same = compare_runs(one, one)
    assert same.settings == same.cells == ()
    assert not any(pair.differs for pair in (*same.faults, *same.costs, *same.findings, same.verdicts))


def test_a_fault_is_beside_that_of_the_same_step_and_one_that_only_one_run_had_is_alone(runs, tmp_path):
    path = judged(tmp_path / "calm-2-20260304T100000")
    told = TrialVerdict.model_validate_json((path / "verdict.json").read_text())
    faults = [
        FaultShown(step="a kill", fault="kill", nodes=("broker-1",), begin_s=begin_s, end_s=end_s, effective=effective)
        for begin_s, end_s, effective in ((1.0, 2.5, True), (4.0, None, None))
    ]
    (path / "verdict.json").write_text(told.model_copy(update={"faults": tuple(faults)}).model_dump_json())
    (path / "manifest.json").unlink()
    calm = RunSummary.at(next(runs.glob("calm-*")))
    assert [(pair.what, pair.one, pair.other) for pair in compare_runs(calm, RunSummary.at(path)).faults] == [
        ("a kill: kill", "–", "broker-1 1.0 to 2.5"),
        ("a kill: kill", "–", "broker-1 4.0 to never, not seen to work"),
    ]


def test_a_run_without_a_verdict_is_not_compared_and_the_way_out_is_said(runs, tmp_path):
    path = tmp_path / "new-1-20260305T100000"
    generate_history(path, rows=1_000, partitions=1, plant="", seed=1, workloads=("log",))
    with pytest.raises(HistoryUnreadable, match=r"`prozess check .*` makes one"):
        compare_runs(RunSummary.at(path), RunSummary.at(path))
    assert line_of(path).verdict is None
