"""Looks for a smaller plan that still shows a run's violation, and measures how often it does (`prozess shrink`)."""

import hashlib
import json
import math
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from prozess.app.replay import replay_plan
from prozess.campaigns.comparing import RunSummary
from prozess.campaigns.engine import (
    JobDirectory,
    TrialAttempt,
    TrialEngine,
    TrialJob,
    engine_in,
    read_begun,
    refuse_strangers,
)
from prozess.campaigns.smaller_plans import shrink, size_in_words
from prozess.harness import machine_record
from prozess.harness.clock import NS_PER_S, Clock, SystemClock, parse_duration
from prozess.harness.errors import BadInput, HarnessFailed, Interrupted
from prozess.harness.exit_codes import ExitCode
from prozess.harness.plan.outside_effects import refuse_strangers_plan
from prozess.harness.plan.plan import Plan, parse_plan
from prozess.harness.run_directory import RunDirectory, write_json, write_whole
from prozess.harness.values import Frozen
from prozess.harness.verdict import AnomalyOutcome, TrialVerdict

MISSED = 0.05
"""The probability of giving up a candidate that fails as often as the original."""
CONFIDENCE = 0.95
RUNS_MIN = 5
"""At most this many runs of the original, and of the result, give its probability."""
TRIES_MAX = 60
"""At most so many runs of a candidate. A failure in less than one of twenty runs cannot be shrunk in reasonable time.
"""


class Chance(Frozen):
    """The share of runs in which a failure came back: `hits` of `runs`."""

    hits: int
    runs: int

    @property
    def probability(self) -> float:
        """The share of runs in which it came back."""
        return self.hits / self.runs if self.runs else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the probability with 95 % confidence (Clopper and Pearson, Biometrika 26, 1934)."""
        from scipy.stats import binomtest

        if not self.runs:
            return 0.0, 1.0
        found = binomtest(self.hits, self.runs).proportion_ci(confidence_level=CONFIDENCE, method="exact")
        return float(found.low), float(found.high)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.hits} of {self.runs} runs (p = {self.probability:.2f}, 95 %: {low:.2f}–{high:.2f})"


def tries_needed(probability: float) -> int:
    """Returns ⌈ln 0.05 / ln(1 − p)⌉: in so many runs, a failure of that probability stays away with a chance of 5 % at
    most."""
    assert 0 < probability <= 1, probability
    if probability == 1:
        return 1
    return math.ceil(math.log(MISSED) / math.log1p(-probability))


Stage = Literal["original", "candidate", "result"]


class WantedViolation(Frozen):
    """The violation that must come back: the anomaly, forbidden, in a cell with the same values."""

    anomaly: str
    workload: str
    axes: dict[str, str]

    def __str__(self) -> str:
        axes = ", ".join(f"{axis}={value}" for axis, value in self.axes.items())
        return f"{self.anomaly} in {self.workload} ({axes})"


class BegunShrink(Frozen):
    """The file begun.json: the run that the search began with, and what it looks for."""

    run: str
    """The name of the run that it began with."""
    wanted: WantedViolation
    duration_s: float
    format_version: int = 1


@dataclass(frozen=True)
class ShrinkDirectory(JobDirectory):
    """The directory of a search, beside the files of every engine: begun.json, smallest.json, and shrink.md for a
    person.

    It records every attempt, so that an interrupted search continues and tries nothing twice. Only the runs of the smallest
    plan stay in runs/.
    """

    @property
    def original(self) -> Path:
        return self.path / "original.json"

    @property
    def smallest(self) -> Path:
        return self.path / "smallest.json"

    @property
    def record(self) -> Path:
        return self.path / "shrink.md"

    @property
    def candidate(self) -> Path:
        """The plan that is being tried."""
        return self.path / "candidate.json"

    def begin(self, begun: BegunShrink, plan: Plan) -> None:
        """Makes the directory. begun.json is the last file: a directory without it was not begun."""
        self.runs.mkdir(parents=True)
        machine_record.begin(RunDirectory(self.path))
        self.write_plan(self.original, plan)
        write_json(self.path / "begun.json", begun.model_dump(mode="json"))

    def begun(self) -> tuple[BegunShrink, Plan]:
        """Reads what the search looks for, and the plan that it began with. BadInput if it is none."""
        begun = read_begun(self.path / "begun.json", "shrink", BegunShrink)
        return begun, parse_plan(self.original.read_text(encoding="utf-8"), source=str(self.original))

    def write_plan(self, path: Path, plan: Plan) -> None:
        """Writes a plan that `prozess run` takes."""
        write_json(path, plan.model_dump(mode="json"))


def key_of(plan: Plan) -> str:
    """Returns a text that is equal for equal plans."""
    document: Mapping[str, object] = plan.model_dump(mode="json", exclude={"title", "replays", "scenarios"})
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


FAILURES_IN_A_ROW_MAX = 3


class TimeIsUp(Exception):
    """The time for the search is over. Its results so far are valid."""


@dataclass
class Trials:
    """Runs plans until it is known whether they still fail. Earlier attempts are taken from the files."""

    directory: ShrinkDirectory
    wanted: WantedViolation
    engine: TrialEngine
    duration_s: float
    probability: float = 0.0
    """The probability of the original. Candidates are tried as often as it asks for."""
    _before: dict[str, list[TrialAttempt]] = field(default_factory=lambda: defaultdict(list))
    """Key of a plan → its attempts so far."""
    _asked: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for attempt in self.engine.attempts:
            self._before[attempt.job.key].append(attempt)

    def measure(self, plan: Plan, stage: Stage, *, until_time: bool = True) -> Chance:
        """Returns how often a plan fails, over RUNS_MIN runs."""
        done = [self._learn(plan, stage, stage, until_time=until_time) for _ in range(RUNS_MIN)]
        return Chance(hits=sum(done), runs=len(done))

    def still_fails(self, plan: Plan, what: str) -> bool:
        """Returns whether the candidate fails, in as many runs as the original's probability asks for. TimeIsUp when it
        is."""
        for _ in range(min(TRIES_MAX, tries_needed(self.probability))):
            if self._learn(plan, "candidate", what, until_time=True):
                self.directory.write_plan(self.directory.smallest, plan)
                self._keep_runs_of(plan)
                return True
        return False

    def _learn(self, plan: Plan, stage: Stage, what: str, *, until_time: bool) -> bool:
        """Runs a plan until a run gives a verdict. Returns whether the failure came back."""
        for _ in range(FAILURES_IN_A_ROW_MAX):
            attempt = self._next(plan, stage, what, until_time=until_time)
            if not attempt.failed:
                return attempt.hit is True
        raise HarnessFailed(
            f"{FAILURES_IN_A_ROW_MAX} runs of {self.directory.candidate} in a row gave no verdict. What was learnt is kept: "
            f"continue with --resume {self.directory.path}."
        )

    def _next(self, plan: Plan, stage: Stage, what: str, *, until_time: bool) -> TrialAttempt:
        """Returns the next run of this plan: one that was noted, or a new one. Interrupted if somebody ends the search."""
        key = key_of(plan)
        number = self._asked[key]
        self._asked[key] += 1
        if number < len(self._before[key]):
            return self._before[key][number]
        if until_time and self.engine.spent_s >= self.duration_s:
            raise TimeIsUp
        self._refuse_interrupted()
        self.directory.write_plan(self.directory.candidate, plan)
        job = TrialJob(
            number=len(self.engine.attempts),
            trial=str(self.directory.candidate),
            seed=plan.seed,
            key=key,
            what=f"{stage}: {what}",
        )
        attempt = self.engine.run(job, look=lambda verdict: comes_back(verdict, self.wanted))
        if self.engine.cut_short(attempt):
            self._refuse_interrupted()
        self._before[key].append(attempt)
        if attempt.run is not None and not attempt.hit:
            shutil.rmtree(self.directory.runs / attempt.run, ignore_errors=True)
        outcome = "came back" if attempt.hit else "no verdict" if attempt.failed else "stayed away"
        sys.stdout.write(f"{stage:9} {what:28} {outcome} {attempt.took_s:.0f} s\n")
        sys.stdout.flush()
        return attempt

    def _refuse_interrupted(self) -> None:
        if self.engine.stop.asked:
            raise Interrupted("the search was interrupted. What was learnt is kept: continue with --resume")

    def _keep_runs_of(self, plan: Plan) -> None:
        kept = {attempt.run for attempt in self._before[key_of(plan)]}
        for run in self.directory.runs.iterdir():
            if run.name not in kept:
                shutil.rmtree(run, ignore_errors=True)


def comes_back(verdict: TrialVerdict, wanted: WantedViolation) -> bool:
    """Returns whether the anomaly is forbidden and seen in a cell with the same values, and every fault that struck had
    its effect."""
    if any(fault.effective is False for fault in verdict.faults):
        return False
    alike = [cell for cell in verdict.cells if (cell.workload, cell.axes) == (wanted.workload, wanted.axes)]
    found = (cell.anomalies.get(wanted.anomaly) for cell in alike)
    return any(anomaly is not None and anomaly.outcome is AnomalyOutcome.VIOLATED for anomaly in found)


@dataclass(frozen=True, slots=True)
class ShrinkRequest:
    """The options of `prozess shrink`."""

    run: Path | None
    anomaly: str | None
    cell: int | None
    duration: str
    runs: Path
    resume: Path | None
    isolation: str
    trust: bool = False


def carry_out(asked: ShrinkRequest) -> int:
    """`prozess shrink`: measures how often a violation comes back, searches for less that still shows it, and measures
    again.

    Returns the exit code: 0 if there is a plan that fails, 2 if the failure never came back or the search was
    interrupted.
    """
    clock = SystemClock()
    directory = _directory(asked, clock)
    begun, plan = directory.begun()
    sys.stdout.write(f"looks for  {begun.wanted}\ndirectory  {directory.path}\n")
    # Its plans are parts of one that the user trusted, or that stays on this machine.
    options = ("--engine", "local", "--trust", "--isolation", asked.isolation)
    with engine_in(directory, clock=clock, options=options) as engine:
        trials = Trials(directory, begun.wanted, engine, begun.duration_s)
        original = trials.measure(plan, "original", until_time=False)
        sys.stdout.write(f"original   {original}\n")
        if not original.hits:
            never = (
                f"The violation did not come back in {original.runs} runs, so smaller plans cannot be compared: its "
                f"probability is below {original.interval[1]:.2f} with 95 % confidence. Give a run whose plan fails more "
                "often: a longer one, one with more faults, or one with another seed."
            )
            _write(directory, begun, plan, original, plan, None, f"nothing: {never}")
            sys.stdout.write(f"{never}\n")
            return int(ExitCode.UNKNOWN)
        trials.probability = original.probability
        smallest, why = _search(plan, trials, begun.wanted)
        result = trials.measure(smallest, "result", until_time=False) if smallest != plan else original
    directory.write_plan(directory.smallest, smallest)
    _write(directory, begun, plan, original, smallest, result, why)
    sys.stdout.write(f"result     {result}; {why}\n{_so_far(plan, smallest)}plan       {directory.smallest}\n")
    sys.stdout.write(f"written    {directory.record}\n")
    return int(ExitCode.HELD)


def _search(plan: Plan, trials: Trials, wanted: WantedViolation) -> tuple[Plan, str]:
    targets = [cell.cell for cell in plan.cells if (cell.workload, cell.axes) == (wanted.workload, wanted.axes)]
    smallest = plan
    try:
        for smaller in shrink(plan, trials.still_fails, targets):
            smallest = smaller
            sys.stdout.write(_so_far(plan, smallest))
    except TimeIsUp:
        return smallest, "the time was up, so there may be a smaller plan"
    return smallest, "no single thing more can be left out"


def _directory(asked: ShrinkRequest, clock: Clock) -> ShrinkDirectory:
    if asked.resume is not None:
        directory = ShrinkDirectory(asked.resume.resolve())
        directory.begun()
        refuse_strangers(directory, trust=asked.trust, what="search")
        return directory
    if asked.run is None:
        raise BadInput("Give the directory of a violated run, or --resume DIRECTORY to continue a search.")
    run = RunDirectory.existing(asked.run)
    plan = replay_plan(run, exact=False)
    refuse_strangers_plan(run, plan, trust=asked.trust)
    wanted = wanted_violation(run, asked.anomaly, asked.cell)
    duration_s = parse_duration(asked.duration)
    stamp = datetime.fromtimestamp(clock.wall_ns() / NS_PER_S, UTC).strftime("%Y%m%dT%H%M%S")
    directory = ShrinkDirectory((asked.runs / f"shrink-{plan.trial}-{stamp}").resolve())
    directory.begin(BegunShrink(run=run.path.name, wanted=wanted, duration_s=duration_s), plan)
    return directory


def wanted_violation(run: RunDirectory, anomaly: str | None, cell: int | None) -> WantedViolation:
    """Returns what was violated in the run; of several anomalies, the one with the most witnesses. BadInput if nothing
    was."""
    if (verdict := RunSummary(run).verdict) is None:
        raise BadInput(f"{run.path.name} has no verdict. `prozess check {run.path}` makes one from what was recorded.")
    found = [
        (seen.forbidden, seen.anomaly, judged)
        for judged in verdict.cells
        for seen in judged.anomalies.values()
        if seen.outcome is AnomalyOutcome.VIOLATED and anomaly in (None, seen.anomaly) and cell in (None, judged.cell)
    ]
    if not found:
        there = sorted(
            {s.anomaly for c in verdict.cells for s in c.anomalies.values() if s.outcome is AnomalyOutcome.VIOLATED}
        )
        asked = " ".join(filter(None, (anomaly, f"in cell {cell}" if cell is not None else None)))
        denied = f"{asked} was not violated" if asked else "nothing was violated"
        raise BadInput(
            f"{run.path.name}: {denied}. Violated in it: {', '.join(there) or 'nothing'}. Give a run that is "
            "violated, or name one of its anomalies and cells."
        )
    _, name, judged = max(found, key=lambda one: (one[0], -one[2].cell))
    return WantedViolation(anomaly=name, workload=judged.workload, axes=judged.axes)


def _sizes(before: Plan, after: Plan) -> list[tuple[str, str, str]]:
    """Returns what a plan has, in words, and how much of it there was before and after."""
    sizes = size_in_words(after)
    return [(name, f"{size:g}", f"{sizes[name]:g}") for name, size in size_in_words(before).items()]


def _so_far(before: Plan, after: Plan) -> str:
    return "so far     " + ", ".join(f"{b} → {a} {name}" for name, b, a in _sizes(before, after)) + "\n"


def _write(
    directory: ShrinkDirectory,
    begun: BegunShrink,
    plan: Plan,
    original: Chance,
    smallest: Plan,
    result: Chance | None,
    why: str,
) -> None:
    steps = [f"{n}. {step.name}" for n, step in enumerate(smallest.steps, 1)]
    text = [
        f"# {begun.wanted}",
        "",
        f"This violation comes from run {begun.run}. With its own plan it came back in {original}. "
        + (f"With the smallest plan found it came back in {result}." if result is not None else ""),
        "",
        f"The search ended: {why}.",
        "",
        "| | original | smallest |",
        "|---|---|---|",
        *(f"| {name} | {b} | {a} |" for name, b, a in _sizes(plan, smallest)),
        "",
        *steps,
        "",
        f"    prozess run {directory.smallest.name}",
        "",
    ]
    write_whole(directory.record, "\n".join(text))
