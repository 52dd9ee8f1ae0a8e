"""Campaigns on their way: they go on after any interruption, and keep what is worth keeping."""

import signal
import sys

import pytest

from prozess import command
from prozess.campaigns.campaign_plan import BegunCampaign, CampaignDirectory, TrialOverrides, draw, with_settings
from prozess.campaigns.campaign_runner import CampaignRequest, campaign, run_campaign
from prozess.campaigns.kept_runs import Keep, make_room, size_of, tidy
from prozess.harness.clock import SystemClock
from prozess.harness.errors import BadInput, HarnessFailed
from prozess.harness.exit_codes import ExitCode
from tests.support.campaigns import a_campaign, attempt, begun_in

# In the place of `prozess run`: makes a run directory and a verdict, or fails, as the trial's name says.
RUNNER = """
import json, pathlib, sys
trial, runs, seed = sys.argv[1], pathlib.Path(sys.argv[5]), sys.argv[3]
if trial == "broken":
    print("no cluster today"); sys.exit(255)
run = runs / f"{trial}-{seed}"
for part in ("rows", "history", "logs", "findings"):
    (run / part).mkdir(parents=True); (run / part / "data").write_bytes(b"x" * 50_000)
verdict = "violated" if trial == "bad" else "held"
whole = {"verdict": verdict, "sentence": "", "trial": trial, "title": "", "seed": 1, "cells": []}
(run / "verdict.json").write_text(json.dumps(whole | {"findings": {"lost": 3, "duplicate": 0}}))
(run / "report.html").write_text("report")
sys.exit({"held": 0, "violated": 1}[verdict])
"""
RUN = (sys.executable, "-c", RUNNER)
# Somebody presses Ctrl-C: as a trial does, it is reported, heals, and ends with what was recorded, which is unknown.
INTERRUPTED = """
import json, os, pathlib, signal, sys, time
reported = []
signal.signal(signal.SIGINT, lambda *_: reported.append(1))
os.kill(os.getppid(), signal.SIGINT)
for _ in range(3000):
    if reported: break
    time.sleep(0.01)
run = pathlib.Path(sys.argv[5]) / "cut-short"
run.mkdir()
whole = {"verdict": "unknown", "sentence": "", "trial": "t", "title": "", "seed": 1, "cells": []}
(run / "verdict.json").write_text(json.dumps(whole))
sys.exit(2 if reported else 255)
"""


# --- what is kept


def a_run(path, **sizes):
    for part, size in sizes.items():
        (path / part).mkdir(parents=True)
        (path / part / "data").write_bytes(b"x" * size)
    return path


@pytest.mark.parametrize(
    ("verdict", "held", "left"),
    [
        ("held", "verdict", {"findings"}),
        ("held", "history", {"findings", "history", "logs"}),
        ("held", "everything", {"findings", "history", "logs", "rows"}),
        ("violated", "verdict", {"findings", "history", "logs", "rows"}),
        ("unknown", "verdict", {"findings", "history", "logs", "rows"}),
    ],
)
def test_findings_always_stay_and_everything_of_what_did_not_hold(tmp_path, verdict, held, left):
    run = a_run(tmp_path / "run", rows=10, history=10, logs=10, findings=10)
    tidy(tmp_path, attempt(verdict=verdict, run="run"), Keep(held=held))
    assert {p.name for p in run.iterdir()} == left


def test_beyond_the_limit_the_oldest_that_held_lose_first_and_no_findings_ever(tmp_path):
    megabyte = 2**20
    for name in ("old", "new", "bad"):
        a_run(tmp_path / name, rows=megabyte, history=megabyte, findings=megabyte)
    attempts = [
        attempt(0, run="old"),
        attempt(1, run="new"),
        attempt(2, run="bad", verdict="violated"),
    ]
    whole = size_of(tmp_path)
    assert make_room(tmp_path, attempts, Keep(held="everything", disk_max_gib=(whole - megabyte // 2) / 2**30))
    assert not (tmp_path / "old" / "rows").exists()
    assert (tmp_path / "new" / "rows").exists()
    assert not make_room(tmp_path, attempts, Keep(held="everything", disk_max_gib=1e-9))
    assert all((tmp_path / name / "findings" / "data").exists() for name in ("old", "new", "bad"))
    assert (tmp_path / "bad" / "history").exists()


# --- running


@pytest.mark.parametrize(("trial", "code"), [("good", ExitCode.HELD), ("bad", ExitCode.VIOLATED)])
def test_a_campaign_runs_until_its_time_is_over_and_shows_every_trial(tmp_path, capsys, trial, code):
    directory = begun_in(tmp_path, a_campaign(trial), duration_s=0.2)
    assert run_campaign(directory, clock=SystemClock(), runner=RUN) == code
    attempts = directory.attempts()
    assert sum(a.took_s for a in attempts) >= 0.2
    assert all(a.findings == {"lost": 3} for a in attempts)
    page = directory.index.read_text()
    assert all(f"runs/{a.run}/report.html" in page for a in attempts)
    assert all((directory.runs / a.run / "history").exists() == (trial == "bad") for a in attempts)
    said = capsys.readouterr()
    assert trial in said.out
    assert f"   0 {trial} seed {attempts[0].job.seed} begins; 0 trials over, about 0 s left\n" in said.err


def test_every_trial_gets_the_options_and_the_settings_of_the_command_line(tmp_path):
    directory = CampaignDirectory(tmp_path / "campaign")
    found = with_settings(a_campaign("good", "bad", rounds=1), {"traffic.rate_hz": 7})
    directory.begin(BegunCampaign(campaign=found, seed=1, options=("--engine", "local")))
    told = tmp_path / "told"
    code = f"import pathlib, sys; pathlib.Path({str(told)!r}).open('a').write(' '.join(sys.argv[1:]) + chr(10)); sys.exit(3)"
    run_campaign(directory, clock=SystemClock(), runner=(sys.executable, "-c", code))
    lines = told.read_text().splitlines()
    assert {line.split()[2] for line in lines} == {"good", "bad"}
    assert all(line.startswith("--engine local ") and "--set traffic.rate_hz=7" in line for line in lines)


def test_a_campaign_that_is_continued_keeps_what_it_was_begun_with(tmp_path):
    directory = begun_in(tmp_path, a_campaign("good"))
    each = TrialOverrides({"traffic.rate_hz": 7}, ("--engine", "local"))
    with pytest.raises(BadInput, match=r"Leave out --set traffic.rate_hz=7 --engine local\."):
        campaign(CampaignRequest("-", resume=directory.path, each=each))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--quiet"], "--quiet applies to one run"),
        (["--json"], "--json applies to one run"),
        (["--set", "cells=[1]"], "a campaign gives a key one text, number or truth value"),
        (["--set", "no.such_key=1"], "no"),
        (["--shard", "9/2"], "--shard '9/2' is not a share"),
        (["--master", "spark://here:1", "--engine", "local"], "Leave --engine out"),
        (["--master", "spark://here:1", "--shard", "1/2"], "Leave --resume and --shard out"),
    ],
)
def test_what_a_campaign_cannot_give_to_its_trials_is_refused_before_the_first(
    tmp_path, capsys, monkeypatch, words, said
):
    monkeypatch.setattr(sys, "argv", ["prozess", "run", "smoke", "--rounds", "1", "--runs", str(tmp_path), *words])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == ExitCode.BAD_INPUT
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_campaign_whose_time_is_over_goes_on_with_nothing(tmp_path):
    directory = begun_in(tmp_path, a_campaign("good"))
    run_campaign(directory, clock=SystemClock(), runner=RUN)
    before = directory.attempts()
    assert run_campaign(directory, clock=SystemClock(), runner=RUN) == ExitCode.HELD
    assert directory.attempts() == before


def test_an_interrupted_campaign_goes_on_where_it_was(tmp_path):
    found = a_campaign("good", "bad", "fine")
    directory = begun_in(tmp_path, found, duration_s=0.4)
    for number in range(2):
        directory.append(attempt(0, took_s=0.1).model_copy(update={"job": draw(found, 1, number)}))
    run_campaign(directory, clock=SystemClock(), runner=RUN)
    done = directory.attempts()
    assert len(done) >= 3
    assert [a.job for a in done] == [draw(found, 1, number) for number in range(len(done))]


def test_a_trial_that_was_cut_short_by_ctrl_c_is_drawn_again(tmp_path):
    directory = begun_in(tmp_path, a_campaign("good", rounds=1), duration_s=None)
    runner = (sys.executable, "-c", INTERRUPTED)
    assert run_campaign(directory, clock=SystemClock(), runner=runner) == ExitCode.UNKNOWN
    assert directory.attempts() == []
    assert run_campaign(directory, clock=SystemClock(), runner=RUN) == ExitCode.HELD
    assert len(directory.attempts()) == 1


def test_a_campaign_in_rounds_ends_when_they_are_over_and_needs_no_time(tmp_path):
    directory = begun_in(tmp_path, a_campaign("good", "fine", rounds=2), duration_s=None)
    assert run_campaign(directory, clock=SystemClock(), runner=RUN) == ExitCode.HELD
    assert [a.job.trial for a in directory.attempts()] == ["good", "fine", "good", "fine"]
    assert run_campaign(directory, clock=SystemClock(), runner=RUN) == ExitCode.HELD
    assert len(directory.attempts()) == 4


def test_machinery_that_fails_again_and_again_ends_the_campaign_with_what_it_said(tmp_path):
    directory = begun_in(tmp_path, a_campaign("broken", failures_in_a_row_max=3), duration_s=60)
    with pytest.raises(HarnessFailed, match=r"3 trials in a row.*no cluster today"):
        run_campaign(directory, clock=SystemClock(), runner=RUN)
    assert [(a.job.number, a.job.attempt) for a in directory.attempts()] == [(0, 0), (0, 1), (1, 0)]


def test_a_trial_that_does_not_end_is_ended(tmp_path):
    sleeper = (sys.executable, "-c", "import time; time.sleep(60)")
    directory = begun_in(tmp_path, a_campaign("t", trial_timeout_s=0.3, failures_in_a_row_max=1), duration_s=60)
    with pytest.raises(HarnessFailed):
        run_campaign(directory, clock=SystemClock(), runner=sleeper)
    (only,) = directory.attempts()
    assert only.verdict is None
    assert only.exit_code == -signal.SIGINT, "it was asked, and did not end by itself"


def test_a_directory_that_is_a_campaign_is_not_begun_twice(tmp_path):
    directory = begun_in(tmp_path, a_campaign("t"))
    with pytest.raises(BadInput, match="--resume"):
        directory.begin(BegunCampaign(campaign=a_campaign("t"), seed=1, duration_s=1))


def test_resuming_another_campaign_or_for_another_time_is_refused(tmp_path):
    begun_in(tmp_path, a_campaign("t"))
    with pytest.raises(BadInput, match="'test'"):
        campaign(CampaignRequest("nightly", resume=tmp_path))
    with pytest.raises(BadInput, match="--for"):
        campaign(CampaignRequest("test", duration="1h", resume=tmp_path))


def test_rounds_on_the_command_line_make_a_campaign(tmp_path, monkeypatch, capsys):
    begun_in(tmp_path, a_campaign("t"))
    monkeypatch.setattr(sys, "argv", ["prozess", "run", "test", "--resume", str(tmp_path), "--rounds", "2"])
    assert command.run() == ExitCode.BAD_INPUT
    assert "Leave --for and --rounds out" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["prozess", "run", "nothing-of-that-name", "--rounds", "2"])
    assert command.run() == ExitCode.BAD_INPUT
    assert "There is no campaign and no trial" in capsys.readouterr().err
