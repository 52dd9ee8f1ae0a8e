"""`prozess scenarios`: runs every trial of the scenarios once, in one directory. It continues where it was interrupted."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prozess.harness.app.run_process import RUN
from prozess.harness.app.runs.engine import (
    JobDirectory,
    Keep,
    TrialAttempt,
    TrialEngine,
    TrialJob,
    engine_in,
    exit_code_of,
    tidy,
)
from prozess.harness.clock import SystemClock
from prozess.harness.errors import BadInput, ExitCode
from prozess.harness.plan.trial_files import known_trials, load_trial
from prozess.harness.report.runs.scenarios import ScenarioRow, line_of, row_of, rows_of, table_text, write_table
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import Verdict

FIRST_SEED = 1
TRIES = 2
"""A trial that is unknown is run once more, with the next seed."""
KEEP = Keep(held="history")
CUT_SHORT = "interrupted"
"""The folder of runs that Ctrl-C ended. They say nothing about their trial, which is run again."""


def scenarios(
    names: Sequence[str],
    runs: Path,
    *,
    table: Path | None,
    engine: str,
    only_table: bool,
    runner: tuple[str, ...] = RUN,
) -> int:
    """Runs what is left of these trials (none named: every trial with a scenario), prints the table, and writes it to
    `table`.

    Returns the exit code of the worst verdict: 1 violated, else 2 unknown, not run or interrupted, else 0. `runner`:
    the command that runs a trial.
    """
    wanted = [(name, mode) for name in _wanted(names) for mode in _modes(name)]
    runs.mkdir(parents=True, exist_ok=True)
    interrupted = False
    if not only_table:
        with engine_in(ScenarioDirectory(runs), clock=SystemClock(), runner=(*runner, "--engine", engine)) as working:
            _run(wanted, working)
            interrupted = working.stop.asked
    rows = newest(rows_of([runs]))
    shown = [row for row in rows.values() if not names or row.trial in names]
    sys.stdout.write(table_text(shown))
    if table is not None:
        write_table(table, rows.values())
        sys.stdout.write(f"\ntable  {table}\n")
    if interrupted:
        return int(ExitCode.UNKNOWN)
    return int(exit_code_of(_as_expected(key[0], rows[key].verdict) if key in rows else None for key in wanted))


def newest(rows: Iterable[ScenarioRow]) -> dict[tuple[str, str], ScenarioRow]:
    """Returns (trial, metadata mode) → its last run."""
    return {(row.trial, row.metadata_mode): row for row in rows}


def next_seed(rows: Sequence[ScenarioRow], trial: str, mode: str) -> int | None:
    """Returns the seed with which to run the trial now; None if it has its verdict, or was unknown often enough."""
    own = [row for row in rows if (row.trial, row.metadata_mode) == (trial, mode)]
    if not own:
        return FIRST_SEED
    if own[-1].verdict != Verdict.UNKNOWN or len(own) >= TRIES:
        return None
    return own[-1].seed + 1


def _wanted(names: Sequence[str]) -> list[str]:
    known = known_trials()
    if unknown := [name for name in names if name not in known]:
        raise BadInput(f"There is no trial {unknown[0]!r}. Known: {', '.join(sorted(known))}.")
    return list(names) or [name for name, path in sorted(known.items()) if load_trial(str(path)).scenarios]


def _modes(name: str) -> list[str]:
    trial = load_trial(name)
    return list(trial.side_by_side) or [trial.variant.metadata_mode]


@dataclass(frozen=True)
class ScenarioDirectory(JobDirectory):
    """The directory with the runs of the scenarios. A run that you made there by hand counts, too."""

    @property
    def runs(self) -> Path:
        return self.path


def _run(wanted: Sequence[tuple[str, str]], engine: TrialEngine) -> None:
    """Runs each trial until it has a verdict. A trial that gives none (exit 254, 255) is named, and left for the next
    time."""
    runs = engine.directory.runs
    for plan in runs.glob("*/plan.json"):
        if RunDirectory(plan.parent).interrupted.exists():
            _set_aside(plan.parent)
    rows, gave_none = rows_of([runs]), set()

    def following() -> TrialJob | None:
        for name, mode in wanted:
            if (name, mode) not in gave_none and (seed := next_seed(rows, name, mode)) is not None:
                variant = mode if load_trial(name).side_by_side else None
                return TrialJob(number=len(engine.attempts), trial=name, seed=seed, variant=variant)
        return None

    def over(done: TrialAttempt) -> None:
        row = None if done.run is None else row_of(runs / done.run)
        if row is None:
            mode = done.job.variant or load_trial(done.job.trial).variant.metadata_mode
            gave_none.add((done.job.trial, mode))
            what = f"{done.job.trial}, {mode}, seed {done.job.seed}: no verdict (exit {done.exit_code}): {done.why}"
        else:
            tidy(runs, done, KEEP)
            rows.append(row)
            what = line_of(row)
        sys.stdout.write(f"{what}\n")
        sys.stdout.flush()

    def cut_short(done: TrialAttempt) -> None:
        if done.run is not None:
            _set_aside(runs / done.run)

    engine.work(following, over, cut_short)


def _set_aside(run: Path) -> None:
    """Moves a run that was cut short into a folder of its own: you may look at it, and it does not count."""
    aside = run.parent / CUT_SHORT / run.name
    aside.parent.mkdir(exist_ok=True)
    run.replace(aside)
    sys.stdout.write(f"interrupted: what was recorded is in {aside}. The same command continues.\n")


def _as_expected(name: str, verdict: Verdict) -> Verdict:
    """Returns held for a trial that was to be violated and is."""
    expected = load_trial(name).expects
    if verdict == expected:
        return Verdict.HELD
    return Verdict.VIOLATED if verdict == Verdict.HELD else verdict
