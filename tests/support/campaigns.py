"""Campaigns without a cluster: what was run is written down; and some in processes of their own, which die at one of their
writes."""

import multiprocessing
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from prozess.app.run_process import RUN, run_while
from prozess.campaigns.campaign_plan import BegunCampaign, Campaign, CampaignDirectory, Entry, draw
from prozess.campaigns.campaign_runner import run_campaign
from prozess.campaigns.engine import TrialAttempt
from prozess.harness.clock import SystemClock
from prozess.harness.history.manifest import seal_judged, seal_recorded
from prozess.harness.impact.cost import ImpactShown
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import CellAnomaly, CellVerdict, TrialVerdict, Verdict
from tests.support.small_runs import TRIAL


def a_campaign(*trials, **more):
    return Campaign(name="test", title="A test", entries=tuple(Entry(trial=t) for t in trials), **more)


def begun_in(path, found, *, duration_s=1e-9, seed=1):
    directory = CampaignDirectory(path)
    directory.begin(BegunCampaign(campaign=found, seed=seed, duration_s=duration_s))
    return directory


def attempt(number=0, *, trial="t", verdict="held", attempts=0, run=None, took_s=1.0):
    job = draw(a_campaign(trial), 1, number).model_copy(update={"attempt": attempts})
    return TrialAttempt(job=job, exit_code=0, verdict=verdict, run=run, began_s=0, took_s=took_s)


def judged(verdict, *cells, reasons=()):
    return TrialVerdict(
        verdict=verdict, sentence="", trial="t", title="", seed=1, controls=(), unknown_reasons=reasons,
        cells=tuple(
            CellVerdict(
                cell=number, name=f"cell-{number}", workload="log", verdict=verdict, axes={},
                anomalies={a.anomaly: a for a in anomalies},
            )
            for number, anomalies in enumerate(cells)
        ),
    )  # fmt: skip


def store(run, verdict, name="t"):
    """Writes the files of a judged run, whose plan has the cells of the verdict, and their manifest."""
    run.mkdir(parents=True, exist_ok=True)
    plan = make_plan(parse_trial(TRIAL | {"name": name}, source="test"), seed=1)
    planned = tuple(
        plan.cells[0].model_copy(
            update={
                "cell": c.cell,
                "name": c.name,
                "workload": c.workload,
                "axes": {k: str(v) for k, v in c.axes.items()},
            }
        )
        for c in verdict.cells
    )
    (run / "plan.json").write_text(plan.model_copy(update={"cells": planned}).model_dump_json())
    (run / "verdict.json").write_text(verdict.model_dump_json())
    (run / "impact.json").write_text(ImpactShown().model_dump_json())
    seal_recorded(RunDirectory(run))
    seal_judged(RunDirectory(run))


def anomaly(name, outcome, reason, **more):
    verdict = Verdict.UNKNOWN if outcome == "unknown" else Verdict.VIOLATED
    return CellAnomaly(anomaly=name, outcome=outcome, verdict=verdict, reason=reason, **more)


def a_campaign_of_every_kind(path):
    """Held, violated, and one that the machinery failed twice: the first time it was tried again."""
    directory = begun_in(path, a_campaign("good", "bad", "broken"), duration_s=None)
    for number, trial in enumerate(("good", "bad")):
        run = directory.runs / trial
        (run / "rows").mkdir(parents=True)
        (run / "rows" / "data").write_bytes(b"x" * 2**20)
        (run / "report.html").write_text("")
        lost = anomaly("lost", "violated", "They are <gone>.", forbidden=3)
        verdict = judged("violated", [lost]) if trial == "bad" else judged("held", [])
        store(run, verdict, trial)
        directory.append(attempt(number, trial=trial, verdict=verdict.verdict, run=trial))
    for again in range(2):
        failed = attempt(2, trial="broken", verdict=None, attempts=again)
        directory.append(failed.model_copy(update={"reason": "no cluster today", "exit_code": 255}))
    return directory


# A campaign in a process of its own, which gets a signal just before one of its writes.

WRITES = frozenset({"os.mkdir", "os.remove", "os.rename", "os.rmdir", "subprocess.Popen"})
"""The audit events of Python before something is changed on the disk, or begun; beside `open` for writing."""
STARTS, OVERLAP, CODE = "starts", "overlap", "code"
# It takes the part of `prozess run`: it makes a run directory as the trial's name says, notes that it began, and notes if
# another trial runs at the same time.
SCRIPT = f"""
import json, os, pathlib, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
_, trial, _, seed, _, runs = sys.argv[1:7]
here = pathlib.Path(runs).parent
try:
    (here / "busy").mkdir()
except FileExistsError:
    (here / "{OVERLAP}").touch()
try:
    with (here / "{STARTS}").open("a") as starts:
        starts.write(trial + " " + seed + chr(10))
    if trial == "fails":
        sys.exit("no cluster today")
    run = here / "runs" / f"{{trial}}-{{seed}}-{{os.getpid()}}"
    (run / "rows").mkdir(parents=True)
    (run / "rows" / "data").write_bytes(b"x" * 5000)
    (run / "verdict.json").write_text(
        json.dumps({{"verdict": trial, "sentence": "", "trial": trial, "title": "", "seed": 1, "cells": []}})
    )
    sys.exit(["held", "violated", "unknown"].index(trial))
finally:
    (here / "busy").rmdir()
"""
TORN = b'{"job": {"num'
END_TIMEOUT_S = 60


@dataclass(frozen=True)
class Ending:
    """When a campaign gets a signal: `later` writes after the `nth` one to a file or folder of that name."""

    name: str
    nth: int
    later: int
    signal: int
    torn: bool = False
    """Whether a line of entries.jsonl, if that is what it writes then, is begun."""


def campaign_process(path, ending=None):
    """Runs or continues the campaign in a directory, in a process of its own, and returns its exit code."""
    return own_process(_run_campaign, path, ending=ending)


def own_process(work, *given, ending=None):
    """Calls a function in a process of its own, which may get a signal meanwhile, and returns its exit code."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_work, args=(work, given, ending))
    process.start()
    process.join(END_TIMEOUT_S)
    assert process.exitcode is not None, f"the campaign did not end within {END_TIMEOUT_S} s"
    return process.exitcode


def _work(work, given, ending):
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    if ending is not None:
        sys.addaudithook(_end_at(ending))
    work(*given)


def _run_campaign(path):
    words = run_while(os.getpid())
    runner = (*words[:3], words[3].replace(RUN[3], SCRIPT), *words[4:])
    code = run_campaign(CampaignDirectory(path), clock=SystemClock(), runner=runner)
    Path(path, CODE).write_text(str(code))


def _end_at(ending):
    seen, left = 0, None

    def hook(event, given):
        nonlocal seen, left
        writes = event in WRITES or (
            event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if not writes:
            return
        names = [event, *(str(name) for name in given[:2])]
        if left is None and any(ending.name in name for name in names):
            left, seen = (ending.later if seen == ending.nth else None), seen + 1
        if left == 0:
            if ending.torn and event == "open" and str(given[0]).endswith("entries.jsonl"):
                os.write(os.open(given[0], os.O_WRONLY | os.O_CREAT | os.O_APPEND), TORN)
            os.kill(os.getpid(), ending.signal)
        left = None if left is None else left - 1

    return hook
