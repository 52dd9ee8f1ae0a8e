"""`prozess shrink`: measure how often a run's violation comes back, search for less that still shows it, measure again."""

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.campaign.plan import parse_duration
from harness.clock import NS_PER_S, Clock, SystemClock
from harness.errors import BadInput, ExitCode, Interrupted
from harness.own_process import RUN, Stop, listening, run_one
from harness.plan import Plan
from harness.replay import replay_plan
from harness.run_directory import RunDirectory
from harness.shrink.chance import Chance
from harness.shrink.search import shrink
from harness.shrink.smaller import size
from harness.shrink.state import BegunShrink, ShrinkDirectory, Wanted
from harness.shrink.trials import TimeIsUp, Trials
from harness.verdict import AnomalyOutcome, TrialVerdict

RUN_TIMEOUT_S = 1800.0
NEVER_CAME_BACK = (
    "It did not come back in {runs} runs, so that nothing can be told apart: its probability is below {high:.2f} with 95 % "
    "confidence. Shrink a run of a plan that fails more often: longer, with more faults, or another seed."
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for on the command line."""

    run: Path | None
    anomaly: str | None
    cell: int | None
    duration: str
    runs: Path
    resume: Path | None
    isolation: str


def carry_out(asked: Asked) -> int:
    """The exit code: 0 when there is a plan that fails, 2 when the failure never came back or the search was interrupted."""
    clock = SystemClock()
    directory = _directory(asked, clock)
    begun, plan = directory.begun()
    sys.stdout.write(f"looks for  {begun.wanted}\nshrink     {directory.path}\n")
    with listening() as stop:
        runner = _Runner(clock, asked.isolation, stop)
        trials = Trials(directory, begun.wanted, runner.run, begun.duration_s)
        original = trials.measure(plan, "original", until_time=False)
        sys.stdout.write(f"original   {original}\n")
        if not original.hits:
            _write(directory, begun, plan, original, plan, None, "nothing: " + _never(original))
            sys.stdout.write(_never(original) + "\n")
            return int(ExitCode.UNKNOWN)
        trials.probability = original.probability
        smallest, why = _search(plan, trials, begun.wanted)
        result = trials.measure(smallest, "result", until_time=False) if smallest != plan else original
    directory.write_plan(directory.smallest, smallest)
    _write(directory, begun, plan, original, smallest, result, why)
    sys.stdout.write(f"result     {result}; {why}\n{_sizes(plan, smallest)}plan       {directory.smallest}\n")
    sys.stdout.write(f"told       {directory.told}\n")
    return int(ExitCode.HELD)


def _search(plan: Plan, trials: Trials, wanted: Wanted) -> tuple[Plan, str]:
    targets = [cell.cell for cell in plan.cells if (cell.workload, cell.axes) == (wanted.workload, wanted.axes)]
    smallest = plan
    try:
        for smaller in shrink(plan, trials.still_fails, targets):
            smallest = smaller
            sys.stdout.write(_sizes(plan, smallest))
    except TimeIsUp:
        return smallest, "the time was up: there may be less"
    return smallest, "nothing more can be left out, one thing at a time"


def _directory(asked: Asked, clock: Clock) -> ShrinkDirectory:
    if asked.resume is not None:
        return ShrinkDirectory(asked.resume.resolve())
    if asked.run is None:
        raise BadInput("Give a run directory that was violated, or --resume DIRECTORY to go on with a shrink.")
    run = RunDirectory.existing(asked.run)
    plan = replay_plan(run, exact=False)
    wanted = wanted_of(run, asked.anomaly, asked.cell)
    duration_s = parse_duration(asked.duration)
    stamp = datetime.fromtimestamp(clock.wall_ns() / NS_PER_S, UTC).strftime("%Y%m%dT%H%M%S")
    directory = ShrinkDirectory((asked.runs / f"shrink-{plan.trial}-{stamp}").resolve())
    directory.begin(BegunShrink(run=run.path.name, wanted=wanted, duration_s=duration_s), plan)
    return directory


def wanted_of(run: RunDirectory, anomaly: str | None, cell: int | None) -> Wanted:
    """What was violated in the run; of several the one with the most witnesses. BadInput if nothing of that was."""
    if not run.verdict.exists():
        raise BadInput(f"{run.path.name} has no verdict. `prozess check {run.path}` makes one from what was recorded.")
    verdict = TrialVerdict.model_validate_json(run.verdict.read_bytes())
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
        asked = " ".join(filter(None, (anomaly, f"in cell {cell}" if cell is not None else None))) or "nothing"
        raise BadInput(
            f"{run.path.name}: {asked} was violated. Violated in it: {', '.join(there) or 'nothing'}. Shrink a run that "
            "is violated, or name one of its anomalies and cells."
        )
    _, name, judged = max(found, key=lambda one: (one[0], -one[2].cell))
    return Wanted(anomaly=name, workload=judged.workload, axes=judged.axes)


def _never(original: Chance) -> str:
    return NEVER_CAME_BACK.format(runs=original.runs, high=original.interval[1])


def _sizes(before: Plan, after: Plan) -> str:
    told = ", ".join(
        f"{b:g} → {a:g} {name}" for (name, b), a in zip(size(before).items(), size(after).values(), strict=True)
    )
    return f"so far     {told}\n"


def _write(
    directory: ShrinkDirectory,
    begun: BegunShrink,
    plan: Plan,
    original: Chance,
    smallest: Plan,
    result: Chance | None,
    why: str,
) -> None:
    rows = [
        f"| {name} | {b:g} | {a:g} |" for (name, b), a in zip(size(plan).items(), size(smallest).values(), strict=True)
    ]
    steps = [f"{n}. {step.name}" for n, step in enumerate(smallest.steps, 1)]
    text = [
        f"# {begun.wanted}",
        "",
        f"Of run {begun.run}. As it was: {original}. "
        + (f"The smallest plan found: {result}." if result is not None else ""),
        "",
        f"The search ended: {why}.",
        "",
        "| | as it was | smallest |",
        "|---|---|---|",
        *rows,
        "",
        *steps,
        "",
        f"    prozess run {directory.smallest.name}",
        "",
    ]
    directory.told.write_text("\n".join(text), encoding="utf-8")


@dataclass(slots=True)
class _Runner:
    """Each plan by `prozess run` in a process of its own."""

    clock: Clock
    isolation: str
    stop: Stop

    def run(self, plan: Path, runs: Path) -> tuple[Path | None, float]:
        if self.stop.asked:
            raise Interrupted("the search was interrupted; what was learnt is kept, go on by --resume")
        began_ns = self.clock.monotonic_ns()
        words = [*RUN, str(plan), "--runs", str(runs), "--engine", "local", "--isolation", self.isolation, "--quiet"]
        _, run = run_one(words, runs, runs.parent / "last.log", timeout_s=RUN_TIMEOUT_S, stop=self.stop)
        if self.stop.asked:
            raise Interrupted("the search was interrupted; what was learnt is kept, go on by --resume")
        return run, (self.clock.monotonic_ns() - began_ns) / NS_PER_S
