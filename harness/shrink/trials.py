"""Runs plans until it is known whether they still fail. What was tried before is taken from the files."""

import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import HarnessFailed
from harness.own_process import verdict_of
from harness.plan import Plan
from harness.shrink.chance import RUNS_MIN, TRIES_MAX, Chance, tries
from harness.shrink.state import Attempt, ShrinkDirectory, Stage, Wanted, key_of
from harness.verdict import AnomalyOutcome

FAILURES_IN_A_ROW_MAX = 3

RunPlan = Callable[[Path, Path], tuple[Path | None, float]]
"""(plan.json, runs) → (the run directory, or None if there is none; seconds). Interrupted if it was stopped."""


class TimeIsUp(Exception):
    """The time for the search is over; what was found stands."""


@dataclass
class Trials:
    """What was tried, and what is to be tried."""

    directory: ShrinkDirectory
    wanted: Wanted
    run_plan: RunPlan
    duration_s: float
    probability: float = 0.0
    """Of the original; candidates are tried as often as it asks for."""
    _before: dict[str, list[Attempt]] = field(default_factory=lambda: defaultdict(list))
    _asked: Counter[str] = field(default_factory=Counter)
    _spent_s: float = 0.0

    def __post_init__(self) -> None:
        for attempt in self.directory.attempts():
            self._before[attempt.plan].append(attempt)
            self._spent_s += attempt.took_s

    def measure(self, plan: Plan, stage: Stage, *, until_time: bool = True) -> Chance:
        """How often it fails, over RUNS_MIN runs."""
        done = [self._learn(plan, stage, stage, until_time=until_time) for _ in range(RUNS_MIN)]
        return Chance(hits=sum(done), runs=len(done))

    def still_fails(self, plan: Plan, what: str) -> bool:
        """Does the candidate fail, in as many runs as the original's probability asks for? TimeIsUp when it is."""
        for _ in range(min(TRIES_MAX, tries(self.probability))):
            if self._learn(plan, "candidate", what, until_time=True):
                self.directory.write_plan(self.directory.smallest, plan)
                self._keep_runs_of(plan)
                return True
        return False

    def _learn(self, plan: Plan, stage: Stage, what: str, *, until_time: bool) -> bool:
        """One run that gave a verdict."""
        for _ in range(FAILURES_IN_A_ROW_MAX):
            attempt = self._next(plan, stage, what, until_time=until_time)
            if not attempt.failed:
                return attempt.hit
        raise HarnessFailed(
            f"{FAILURES_IN_A_ROW_MAX} runs in a row of {self.directory.candidate} gave no verdict. What was learnt is kept: "
            f"go on by --resume {self.directory.path}."
        )

    def _next(self, plan: Plan, stage: Stage, what: str, *, until_time: bool) -> Attempt:
        """The next run of this plan: one that was noted, or a new one."""
        key = key_of(plan)
        number = self._asked[key]
        self._asked[key] += 1
        if number < len(self._before[key]):
            return self._before[key][number]
        if until_time and self._spent_s >= self.duration_s:
            raise TimeIsUp
        self.directory.write_plan(self.directory.candidate, plan)
        run, took_s = self.run_plan(self.directory.candidate, self.directory.runs)
        verdict = verdict_of(run) if run is not None else {}
        hit = comes_back(verdict, self.wanted)
        attempt = Attempt(
            plan=key, stage=stage, what=what, hit=hit, failed=not verdict, run=run.name if run else None, took_s=took_s
        )
        self.directory.append(attempt)
        self._before[key].append(attempt)
        self._spent_s += took_s
        if run is not None and not hit:
            shutil.rmtree(run, ignore_errors=True)
        said = "came back" if hit else "no verdict" if attempt.failed else "stayed away"
        sys.stdout.write(f"{stage:9} {what:28} {said} {took_s:.0f} s\n")
        sys.stdout.flush()
        return attempt

    def _keep_runs_of(self, plan: Plan) -> None:
        kept = {attempt.run for attempt in self._before[key_of(plan)]}
        for run in self.directory.runs.iterdir():
            if run.name not in kept:
                shutil.rmtree(run, ignore_errors=True)


def comes_back(verdict: Mapping[str, Any], wanted: Wanted) -> bool:
    """Is the anomaly there, forbidden, in a cell of the same class, and had every fault that struck its effect?"""
    if any(fault.get("effective") is False for fault in verdict.get("faults", ())):
        return False
    return any(
        cell["workload"] == wanted.workload
        and cell["axes"] == wanted.axes
        and cell["anomalies"].get(wanted.anomaly, {}).get("outcome") == AnomalyOutcome.VIOLATED
        for cell in verdict.get("cells", ())
    )
