"""`prozess scenarios`: runs every trial of the scenarios once, in one directory, and writes a table of their results.

It continues where it was interrupted.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prozess.campaigns.comparing import RunSummary
from prozess.campaigns.comparing.measured import MedianAndWorst, markdown_table, write_between
from prozess.campaigns.engine import (
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
from prozess.harness.errors import BadInput, ExitCode, ProzessError
from prozess.harness.impact.cost import FaultImpact
from prozess.harness.ledger import begin
from prozess.harness.plan.trial import SCENARIOS
from prozess.harness.plan.trial_files import known_trials, load_trial
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import TrialVerdict, Verdict

# The results of a run about its scenarios, read from its own files: verdict, controls, and Kafka's reactions.


_LOSING = ("kill", "stop", "pause", "partition", "half-open", "power-loss", "disk-full", "disk-error", "wipe")
"""Faults after which another node should lead."""
_COUNTED = (
    "lost",
    "duplicate",
    "reordered",
    "dirty-read",
    "aborted-read",
    "torn",
    "unprocessed",
    "reprocessed",
    "stalled",
)
"""At most this many findings are in a line."""


@dataclass(frozen=True, slots=True)
class FaultCost:
    """One fault: the step that made it, and what it cost."""

    step: str
    new_leader_s: MedianAndWorst
    """The seconds until another node led a partition whose leader it hit."""
    longest_s: float | None
    """The longest time without an acknowledgement that the fault caused; None if it was always below a second."""


@dataclass(frozen=True, slots=True)
class Controls:
    """The controls of a trial: how many of them fired, and the anomalies that they showed."""

    fired: int
    named: int
    shown: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ScenarioRow:
    """The results of one run about its scenarios: a line of the table."""

    began: str
    """When the run began (UTC), as the name of its directory says."""
    scenarios: tuple[str, ...]
    trial: str
    seed: int
    backend: str
    metadata_mode: str
    versions: str
    verdict: Verdict
    controls: Controls
    seconds: float | None
    """From the command to the verdict; None: not noted."""
    longest_s: float | None
    """The longest time that a partition acknowledged nothing although records were sent to it; None if it was always below a
    second.
    """
    open_windows: int
    """The number of partitions that acknowledged nothing until the end."""
    new_leader_s: MedianAndWorst
    """The seconds until another node led, of all faults together."""
    permitted: Mapping[str, int]
    """Anomaly → how many that the configuration allows."""
    forbidden: Mapping[str, int]
    unknown_reasons: tuple[str, ...] = ()
    defects: tuple[str, ...] = ()
    """Known defects that are proven to have caused everything forbidden; empty if not everything is explained."""
    faults: tuple[FaultCost, ...] = ()


def row_of(path: Path) -> ScenarioRow | None:
    """Returns the row of this run; None if it was not judged, or its files cannot be read."""
    run = RunSummary.at(path)
    try:
        plan, verdict, impact = run.plan, run.verdict, run.impact
    except ProzessError:
        return None
    if verdict is None or impact is None:
        return None
    steps = {fault.number: fault.step for fault in verdict.faults}
    permitted, forbidden = run.counts("permitted"), run.counts("forbidden")
    ended = [w.end_s - w.begin_s for w in impact.windows if w.end_s is not None]
    return ScenarioRow(
        began=run.began,
        scenarios=plan.scenarios,
        trial=plan.trial,
        seed=plan.seed,
        backend=plan.backend,
        metadata_mode=plan.variant.metadata_mode,
        versions=run.versions,
        verdict=verdict.verdict,
        controls=controls_of(verdict),
        seconds=run.took_s,
        longest_s=max(ended, default=None),
        open_windows=impact.windows_open,
        new_leader_s=new_leader_s(impact.faults),
        permitted={name: permitted[name] for name in _COUNTED if name in permitted},
        forbidden={name: forbidden[name] for name in (*_COUNTED, *forbidden) if name in forbidden},
        unknown_reasons=verdict.unknown_reasons,
        defects=_defects(verdict),
        faults=tuple(
            FaultCost(steps[fault.fault], new_leader_s([fault]), fault.longest_s)
            for fault in impact.faults
            if fault.fault in steps
        ),
    )


def _defects(verdict: TrialVerdict) -> tuple[str, ...]:
    named = (d for c in verdict.cells for a in c.anomalies.values() for d in a.defects)
    return tuple(dict.fromkeys(named)) if verdict.by_known_defects else ()


def rows_of(paths: Iterable[Path]) -> list[ScenarioRow]:
    """Returns the row of every judged run directly in these directories, the oldest first."""
    found = (row_of(plan.parent) for path in paths for plan in sorted(path.glob("*/plan.json")))
    return sorted((row for row in found if row is not None), key=lambda row: row.began)


def controls_of(verdict: TrialVerdict) -> Controls:
    named = [control for control in verdict.controls if control.required]
    shown: Counter[str] = Counter()
    for control in named:
        shown[control.anomaly] += control.count
    return Controls(sum(control.fired for control in named), len(named), +shown)


def new_leader_s(faults: Iterable[FaultImpact]) -> MedianAndWorst:
    """Returns the seconds until another node led, over those of these faults that were seen to work and should depose a
    leader. A leader that only came back is not counted."""
    reactions = [fault.reaction for fault in faults if fault.reaction is not None and fault.reaction.effect == "yes"]
    return MedianAndWorst.seconds_of(r.decided for r in reactions if r.what.split()[0] in _LOSING)


# The table of scenarios in Markdown: a line per trial, from the files of its run.


BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
"""The marks between which the table is replaced."""
_HEADINGS = "scenarios | trial | where | verdict | control | s | longest gap | new leader | lost and other costs"


def table_text(rows: Iterable[ScenarioRow]) -> str:
    """Returns a line per trial, in the order of its first scenario; then the trials with several metadata modes, side by
    side.
    """
    ordered = sorted(rows, key=_order)
    alike = {row.trial: [other for other in ordered if other.trial == row.trial] for row in ordered}
    compared = [side_by_side(several) for several in alike.values() if len(several) > 1]
    return "\n\n".join([markdown_table(_HEADINGS, map(cells, ordered)), *compared]) + "\n"


def cells(row: ScenarioRow) -> tuple[str, ...]:
    """Returns the texts of the columns."""
    return (
        " ".join(row.scenarios),
        row.trial + (f" (seed {row.seed})" if row.seed != 1 else ""),
        f"{row.backend}, {row.metadata_mode} {row.versions}",
        row.verdict + (", by a known defect" if row.verdict == "violated" and row.defects else ""),
        _control(row),
        "–" if row.seconds is None else f"{row.seconds:.0f}",
        _gap(row),
        _leader(row.new_leader_s),
        _costs(row),
    )


def line_of(row: ScenarioRow) -> str:
    """Returns one line for the terminal after the run."""
    what = f"{row.trial}, {row.metadata_mode}, seed {row.seed}: {row.verdict}; control {_control(row)}"
    took = f"longest gap {_gap(row)}; new leader {_leader(row.new_leader_s)}"
    why = f"; {row.unknown_reasons[0]}" if row.unknown_reasons else ""
    return f"{what}; {took}; {_costs(row)}{why}"


def write_table(path: Path, rows: Iterable[ScenarioRow]) -> None:
    """Replaces the table between its marks. BadInput if the file has none."""
    write_between(path, BEGIN, END, table_text(rows))


def side_by_side(rows: Sequence[ScenarioRow]) -> str:
    """Returns a table of one trial on several metadata modes: a line per fault and for the whole run, a column per mode."""
    steps = list(dict.fromkeys(cost.step for row in rows for cost in row.faults))
    lines = [(step, *(_cost_of(row, step) for row in rows)) for step in steps]
    for what, text_of in (("verdict", lambda row: str(row.verdict)), ("control", _control), ("costs", _costs)):
        lines.append((what, *map(text_of, rows)))
    return markdown_table(" | ".join([rows[0].trial, *(f"{r.metadata_mode} {r.versions}" for r in rows)]), lines)


def _cost_of(row: ScenarioRow, step: str) -> str:
    cost = next((cost for cost in row.faults if cost.step == step), None)
    if cost is None:
        return "not struck"
    gap = "gap under 1 s" if cost.longest_s is None else f"gap {cost.longest_s:.1f} s"
    return gap if cost.new_leader_s.median is None else f"new leader {_leader(cost.new_leader_s)}; {gap}"


def _order(row: ScenarioRow) -> tuple[int, str, str]:
    numbers = list(SCENARIOS)
    indices = [numbers.index(number) for number in row.scenarios if number in SCENARIOS]
    return min(indices, default=len(numbers)), row.trial, row.metadata_mode


def _control(row: ScenarioRow) -> str:
    if not row.controls.named:
        return "none named"
    text = f"{row.controls.fired} of {row.controls.named} fired"
    return f"{text}: {_counted(row.controls.shown)}" if row.controls.shown else text


def _gap(row: ScenarioRow) -> str:
    text = "under 1 s" if row.longest_s is None else f"{row.longest_s:.1f} s"
    return f"{text}, {row.open_windows} to the end" if row.open_windows else text


def _leader(took_s: MedianAndWorst) -> str:
    if took_s.median is None:
        return "–"
    return f"{took_s.median:.1f} s" + (f", slowest {took_s.worst:.1f} s" if took_s.worst != took_s.median else "")


def _costs(row: ScenarioRow) -> str:
    parts = [f"permitted: {_counted(row.permitted)}"] if row.permitted else []
    parts += [f"**forbidden: {_counted(row.forbidden)}**"] if row.forbidden else []
    parts += [f"known defect: {defect}" for defect in row.defects]
    return "; ".join(parts) or "nothing"


def _counted(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in found.items())


# Running them.


FIRST_SEED = 1
TRIES = 2
"""A trial that is unknown is run once more, with the next seed."""
KEEP = Keep(held="history")
CUT_SHORT = "interrupted"
"""The folder of runs that Ctrl-C ended. Their trials are run again."""


def scenarios(
    names: Sequence[str],
    runs: Path,
    *,
    table: Path | None,
    engine: str,
    only_table: bool,
    runner: tuple[str, ...] | None = None,
) -> int:
    """Runs the trials that have no verdict yet, prints the table, and writes it to `table`. Without names it runs every
    trial with a scenario.

    Returns the exit code of the worst verdict: 1 violated, else 2 unknown, not run or interrupted, else 0. `runner`: as
    for `engine_in`.
    """
    wanted = [(name, mode) for name in _wanted(names) for mode in _modes(name)]
    runs.mkdir(parents=True, exist_ok=True)
    interrupted = False
    if not only_table:
        begin(RunDirectory(runs))
        options = ("--engine", engine)
        with engine_in(ScenarioDirectory(runs), clock=SystemClock(), options=options, runner=runner) as working:
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
    """Moves a run that was cut short into a folder of its own. The run can be inspected there, and does not count."""
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
