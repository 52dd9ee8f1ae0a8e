"""The engine under campaigns, matrices, scenarios and shrink: what it notes, and how it goes on after a SIGKILL."""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from prozess.campaigns import engine
from prozess.campaigns.engine import JobDirectory, RunningJob, TrialJob, engine_in
from prozess.harness import machine_record
from prozess.harness.clock import SystemClock
from prozess.harness.errors import BadInput, StorageFull
from prozess.harness.processes import boot_id, identify
from prozess.harness.run_directory import RunDirectory
from tests.support.paths import ROOT

JOB = TrialJob(number=0, trial="smoke", seed=1)
# In the place of `prozess run`: says that it began, and ends when it is asked to.
SLEEPS = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path(sys.argv[5], "..", "asked").touch(), sys.exit(143)))
pathlib.Path(sys.argv[5], "..", "began").touch()
time.sleep(600)
"""
HELD = """
import json, pathlib, sys
run = pathlib.Path(sys.argv[5], "run-1")
run.mkdir()
whole = {"verdict": "held", "sentence": "", "trial": "t", "title": "", "seed": 1, "cells": []}
(run / "verdict.json").write_text(json.dumps(whole if "whole" in sys.argv[1] else {"verdict": "held"}))
"""
COMMAND = f"""
import pathlib, sys
from prozess.campaigns import engine
from prozess.campaigns.engine import TrialJob, JobDirectory, engine_in
from prozess.harness.clock import SystemClock
directory = JobDirectory(pathlib.Path(sys.argv[1]))
with engine_in(directory, clock=SystemClock(), runner=(sys.executable, "-c", {SLEEPS!r})) as working:
    working.run(TrialJob(number=0, trial="smoke", seed=1))
"""
TIMEOUT_S = 60.0


@pytest.fixture
def directory(tmp_path):
    made = JobDirectory(tmp_path)
    made.runs.mkdir()
    machine_record.begin(RunDirectory(tmp_path))
    return made


def note(directory, left):
    for path in machine_record.kept(directory.running):
        path.write_text(left.model_dump_json())


def who(pid):
    found = identify(pid)
    return found.pid, found.start_time


def await_file(path):
    for _ in range(int(TIMEOUT_S * 20)):
        if path.exists():
            return
        SystemClock().sleep(0.05)
    raise AssertionError(f"{path} did not come")


def test_a_trial_that_outlives_the_command_that_was_killed_is_ended_before_another_begins(directory):
    command = [sys.executable, "-P", "-c", COMMAND, str(directory.path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment) as killed:
        await_file(directory.path / "began")
        killed.send_signal(signal.SIGKILL)
    left = RunningJob.model_validate_json(directory.running.read_bytes())
    assert left.job == JOB
    assert left.runs(left.process)
    with engine_in(directory, clock=SystemClock()) as working:
        assert not left.runs(left.process)
        assert (directory.path / "asked").exists(), "it was asked, so that it heals"
        assert not directory.running.exists()
        assert working.attempts == []


def test_a_directory_that_somebody_works_on_is_refused_and_his_trial_left_alone(directory):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as other, ExitStack() as at_exit:
        at_exit.callback(other.kill)
        left = RunningJob(job=JOB, boot=boot_id(), owner=who(other.pid), process=who(other.pid))
        note(directory, left)
        with (
            pytest.raises(BadInput, match=f"Process {other.pid} is working in"),
            engine_in(directory, clock=SystemClock()),
        ):
            pass
        assert other.poll() is None


def test_what_was_noted_before_the_machine_was_started_anew_is_no_process_of_ours(directory):
    left = RunningJob(job=JOB, boot="another", owner=who(os.getpid()), process=who(os.getpid()))
    note(directory, left)
    with engine_in(directory, clock=SystemClock()):
        assert not directory.running.exists()


@pytest.mark.parametrize(("trial", "verdict"), [("whole", "held"), ("torn", None)])
def test_an_attempt_is_noted_with_its_verdict_only_if_all_of_it_is_there(directory, trial, verdict):
    with engine_in(directory, clock=SystemClock(), runner=(sys.executable, "-c", HELD)) as working:
        done = working.run(JOB.model_copy(update={"trial": trial}))
    assert (done.verdict, done.run, done.exit_code) == (verdict, "run-1", 0)
    assert directory.attempts() == [done]
    assert not directory.running.exists()


def test_a_job_is_told_as_options_of_prozess_run():
    job = TrialJob(number=3, trial="t", seed=7, settings={"variant.brokers": 5, "x": "a b"}, variant="zookeeper")
    runs = Path("runs")
    assert job.words(runs)[:6] == ["t", "--seed", "7", "--runs", "runs", "--quiet"]
    assert job.words(runs)[6:] == [
        "--variant",
        "zookeeper",
        "--set",
        "variant.brokers=5",
        "--set",
        f"x={json.dumps('a b')}",
    ]


def test_a_trial_that_cannot_be_noted_is_ended(directory, monkeypatch):
    noted = []

    def once(path, value):
        noted.append(value)
        if value["process"] is not None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(engine, "write_json", once)
    with (
        pytest.raises(StorageFull, match="No space left"),
        engine_in(directory, clock=SystemClock(), runner=(sys.executable, "-c", SLEEPS)) as working,
    ):
        working.run(JOB)
    assert [one["process"] is None for one in noted] == [True, True, False], (
        "in the record and here; then in the record"
    )
    assert identify(noted[-1]["process"][0]) is None
