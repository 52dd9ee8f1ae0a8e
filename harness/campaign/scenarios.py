"""`prozess scenarios`: every trial of the scenarios once, one after the other, in one directory. What is left to run follows
from the runs that are there, so that it can be gone on with."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.campaign.keep import drop_bulk
from harness.errors import BadInput, ExitCode
from harness.own_process import RUN, Stop, listening, run_one
from harness.report.scenarios import line_of, table_text, write_table
from harness.scenario_rows import ScenarioRow, row_of, rows_of
from harness.trial import known_trials, load_trial
from harness.verdict import Verdict

FIRST_SEED = 1
TRIES = 2
"""Of a trial that is unknown: once more, with the next seed."""
TRIAL_TIMEOUT_S = 1800.0
"""From the command to its reports; the longest that comes with prozess takes a fifth of it on two cores."""
CUT_SHORT = "interrupted"
"""Runs that Ctrl-C ended, in a directory of their own: they say nothing of their trial, which is run again."""
_CODES = {Verdict.VIOLATED.value: ExitCode.VIOLATED, Verdict.HELD.value: ExitCode.HELD}


def scenarios(
    names: Sequence[str],
    runs: Path,
    *,
    table: Path | None,
    engine: str,
    only_table: bool,
    runner: tuple[str, ...] = RUN,
) -> int:
    """Run what is left of these trials (none named: every one that runs a scenario), print the table, write it to `table`.
    The exit code is of the worst verdict: 1 violated, else 2 unknown, not run or interrupted, else 0. `runner`: what runs a
    trial."""
    wanted = [(name, mode) for name in _wanted(names) for mode in _modes(name)]
    runs.mkdir(parents=True, exist_ok=True)
    with listening() as stop:
        for name, mode in () if only_table else wanted:
            _run(name, mode, runs, _Running(engine, runner, stop))
    rows = newest(rows_of([runs]))
    shown = [row for row in rows.values() if not names or row.trial in names]
    sys.stdout.write(table_text(shown))
    if table is not None:
        write_table(table, rows.values())
        sys.stdout.write(f"\ntable  {table}\n")
    if stop.asked:
        return int(ExitCode.UNKNOWN)
    return int(_exit_code(_as_expected(key[0], rows[key].verdict) if key in rows else "" for key in wanted))


def newest(rows: Iterable[ScenarioRow]) -> dict[tuple[str, str], ScenarioRow]:
    """(trial, metadata mode) → its last run."""
    return {(row.trial, row.metadata_mode): row for row in rows}


def next_seed(rows: Sequence[ScenarioRow], trial: str, mode: str) -> int | None:
    """With which seed the trial is to be run now; None: it has its verdict, or was unknown often enough."""
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


@dataclass(frozen=True, slots=True)
class _Running:
    """How trials are run, and whether they still are to be."""

    engine: str
    runner: tuple[str, ...]
    stop: Stop


def _run(name: str, mode: str, runs: Path, how: _Running) -> None:
    """Until it has its verdict. A trial that gives none (exit 254, 255) is said, and left for the next time."""
    log = runs / "last.log"
    while not how.stop.asked and (seed := next_seed(rows_of([runs]), name, mode)) is not None:
        words = [*how.runner, name, "--seed", str(seed), "--runs", str(runs), "--engine", how.engine, "--quiet"]
        words += ["--variant", mode] if load_trial(name).side_by_side else []
        code, run = run_one(words, runs, log, timeout_s=TRIAL_TIMEOUT_S, stop=how.stop)
        row = None if run is None else row_of(run)
        if how.stop.asked and (row is None or code == ExitCode.UNKNOWN):
            _set_aside(run)
            return
        if row is None:
            told = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            sys.stdout.write(f"{name}, {mode}, seed {seed}: no verdict (exit {code}): {told[-1] if told else ''}\n")
            return
        sys.stdout.write(f"{line_of(row)}\n")
        sys.stdout.flush()
        if row.verdict == Verdict.HELD:
            drop_bulk(runs / row.run)


def _set_aside(run: Path | None) -> None:
    """It was cut short: kept to be looked at, and not counted. None: it had not begun."""
    if run is None:
        return
    aside = run.parent / CUT_SHORT / run.name
    aside.parent.mkdir(exist_ok=True)
    run.replace(aside)
    sys.stdout.write(f"interrupted; what was recorded is in {aside}. The same command goes on.\n")


def _as_expected(name: str, verdict: str) -> str:
    """Held, of a trial that was to be violated and is."""
    expected = load_trial(name).expects
    if verdict == expected:
        return Verdict.HELD.value
    return Verdict.VIOLATED.value if verdict == Verdict.HELD else verdict


def _exit_code(verdicts: Iterable[str]) -> ExitCode:
    codes = {_CODES.get(verdict, ExitCode.UNKNOWN) for verdict in verdicts}
    return next((c for c in (ExitCode.VIOLATED, ExitCode.UNKNOWN) if c in codes), ExitCode.HELD)
