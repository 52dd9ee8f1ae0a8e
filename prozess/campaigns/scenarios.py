"""`prozess scenarios`: runs every trial of the scenarios once, in one directory, and writes a table of their results.

It continues where it was interrupted.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from prozess.app.run_tables import Row, by_run, opened_tables
from prozess.campaigns.comparing.measured import MedianAndWorst, markdown_table, write_between
from prozess.campaigns.engine import JobDirectory, TrialAttempt, TrialEngine, TrialJob, engine_in, exit_code_of
from prozess.campaigns.kept_runs import Keep, tidy
from prozess.harness.clock import SystemClock
from prozess.harness.errors import BadInput
from prozess.harness.exit_codes import ExitCode
from prozess.harness.impact.cost import RecoveryShown
from prozess.harness.machine_record import begin
from prozess.harness.plan.trial import SCENARIOS
from prozess.harness.plan.trial_files import known_trials, load_trial
from prozess.harness.run_directory import RunDirectory
from prozess.harness.run_tables.definitions import RUNS
from prozess.harness.verdict import Verdict

# The results of runs about their scenarios, from the tables over many runs: verdict, controls, and Kafka's reactions.


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


@dataclass(frozen=True)
class ScenarioRun:
    """One judged run, as the tables over many runs have it."""

    row: Row
    """Its row in `runs`."""
    controls: Sequence[Row]
    impacts: Sequence[Row]
    """What each fault cost."""
    steps: Mapping[int, str]
    """Fault → name of the step that made it."""
    counts: Sequence[Row]
    """Anomaly → how many witnesses are permitted and forbidden in all cells."""
    defects: Sequence[str]
    """The known defects whose signature was seen."""

    @property
    def key(self) -> tuple[str, str]:
        """The trial and the metadata mode."""
        return self.row["trial"], self.row["metadata_mode"]

    @property
    def verdict(self) -> Verdict:
        return Verdict(self.row["verdict"])


_READ = ("runs", "controls", "impacts", "faults", "outcomes")


def judged_runs(path: Path) -> list[ScenarioRun]:
    """Returns every judged run directly in a directory, the oldest first. Those whose files are not what their manifests say
    are left out, and so are those whose faults nobody measured."""
    return runs_at([plan.parent for plan in sorted(path.glob("*/plan.json"))])


def runs_at(paths: Sequence[Path]) -> list[ScenarioRun]:
    """Returns the judged runs among these directories, the oldest first."""
    if not paths:
        return []
    with opened_tables(paths, together=_READ) as read:
        runs = [run for run in read("runs", RUNS.schema.names).to_pylist() if run["state"] == "judged"]
        controls = by_run(read("controls", ["run", "anomaly", "fired", "count", "required"]))
        impacts = by_run(read("impacts", ["run", "fault", "what", "effect", "longest_s", "decided_median_ms",
                                          "decided_slowest_ms"]))  # fmt: skip
        steps = by_run(read("faults", ["run", "fault", "step"]))
        outcomes = read("outcomes", ["run", "anomaly", "permitted", "forbidden", "defects"])
    sums = outcomes.group_by(["run", "anomaly"], use_threads=False).aggregate(
        [("permitted", "sum"), ("forbidden", "sum")]
    )
    counts, defects = by_run(sums), by_run(outcomes.select(["run", "defects"]))
    found = [
        ScenarioRun(
            run,
            controls[run["run"]],
            impacts[run["run"]],
            {row["fault"]: row["step"] for row in steps[run["run"]]},
            counts[run["run"]],
            list(dict.fromkeys(defect for row in defects[run["run"]] for defect in row["defects"])),
        )
        for run in runs
        if run["open_gaps"] is not None
    ]
    return sorted(found, key=lambda run: str(run.row["began"] or ""))


def new_leader_s(impacts: Iterable[Row]) -> MedianAndWorst:
    """Returns the seconds until another node led, over those of these faults that were seen to work and should depose a
    leader. A leader that only came back is not counted."""
    own = [row for row in impacts if row["effect"] == "yes" and row["what"].split()[0] in _LOSING]
    return MedianAndWorst.seconds_of(
        RecoveryShown(median_ms=row["decided_median_ms"], slowest_ms=row["decided_slowest_ms"]) for row in own
    )


# The table of scenarios in Markdown: a line per trial, from the files of its run.


BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
"""The marks between which the table is replaced."""
_HEADINGS = "scenarios | trial | where | verdict | control | s | longest gap | new leader | lost and other costs"


def table_text(runs: Iterable[ScenarioRun]) -> str:
    """Returns a line per judged run, in the order of its first scenario; then the trials with several metadata modes, side by
    side.
    """
    ordered = sorted(runs, key=_order)
    alike = {run.key[0]: [other for other in ordered if other.key[0] == run.key[0]] for run in ordered}
    compared = [side_by_side(several) for several in alike.values() if len(several) > 1]
    return "\n\n".join([markdown_table(_HEADINGS, map(cells, ordered)), *compared]) + "\n"


def cells(run: ScenarioRun) -> tuple[str, ...]:
    """Returns the texts of the columns."""
    row = run.row
    known = ", by a known defect" if run.verdict is Verdict.VIOLATED and row["by_known_defects"] else ""
    return (
        " ".join(row["scenarios"]),
        row["trial"] + (f" (seed {row['seed']})" if row["seed"] != 1 else ""),
        f"{row['backend']}, {row['metadata_mode']} {row['version']}",
        f"{run.verdict}{known}",
        _control(run),
        "–" if row["took_s"] is None else f"{row['took_s']:.0f}",
        _gap(run),
        _leader(new_leader_s(run.impacts)),
        _costs(run),
    )


def line_of(run: ScenarioRun) -> str:
    """Returns one line for the terminal after the run."""
    row = run.row
    what = f"{row['trial']}, {row['metadata_mode']}, seed {row['seed']}: {run.verdict}; control {_control(run)}"
    took = f"longest gap {_gap(run)}; new leader {_leader(new_leader_s(run.impacts))}"
    why = f"; {row['unknown_reasons'][0]}" if row["unknown_reasons"] else ""
    return f"{what}; {took}; {_costs(run)}{why}"


def write_table(path: Path, runs: Iterable[ScenarioRun]) -> None:
    """Replaces the table between its marks. BadInput if the file has none."""
    write_between(path, BEGIN, END, table_text(runs))


def side_by_side(runs: Sequence[ScenarioRun]) -> str:
    """Returns a table of one trial on several metadata modes: a line per fault and for the whole run, a column per mode."""
    costs = [_cost_by_step(run) for run in runs]
    lines = [(step, *(cost.get(step, "not hit") for cost in costs)) for step in dict.fromkeys(chain(*costs))]
    for what, text_of in (("verdict", lambda run: str(run.verdict)), ("control", _control), ("costs", _costs)):
        lines.append((what, *map(text_of, runs)))
    modes = [f"{run.row['metadata_mode']} {run.row['version']}" for run in runs]
    return markdown_table(" | ".join([runs[0].key[0], *modes]), lines)


def _cost_by_step(run: ScenarioRun) -> dict[str, str]:
    """Returns what the first fault of each step cost."""
    found: dict[str, str] = {}
    for impact in run.impacts:
        if impact["fault"] in run.steps:
            longest_s, took_s = impact["longest_s"], new_leader_s([impact])
            gap = "gap under 1 s" if longest_s is None else f"gap {longest_s:.1f} s"
            led = "" if took_s.median is None else f"new leader {_leader(took_s)}; "
            found.setdefault(run.steps[impact["fault"]], led + gap)
    return found


def _order(run: ScenarioRun) -> tuple[int, str, str]:
    numbers = list(SCENARIOS)
    indices = [numbers.index(number) for number in run.row["scenarios"] if number in SCENARIOS]
    return min(indices, default=len(numbers)), *run.key


def _control(run: ScenarioRun) -> str:
    """Returns how many of the required controls fired, and how often each anomaly was shown."""
    named = [control for control in run.controls if control["required"]]
    if not named:
        return "none named"
    shown: Counter[str] = Counter()
    for control in named:
        shown[control["anomaly"]] += control["count"]
    text = f"{sum(control['fired'] for control in named)} of {len(named)} fired"
    return f"{text}: {_counted(+shown)}" if +shown else text


def _gap(run: ScenarioRun) -> str:
    """Returns the longest time in which a partition that records were sent to acknowledged nothing, and how many partitions
    acknowledged nothing until the end."""
    longest_s, still = run.row["longest_gap_s"], run.row["open_gaps"]
    text = "under 1 s" if longest_s is None else f"{longest_s:.1f} s"
    return f"{text}, {still} to the end" if still else text


def _leader(took_s: MedianAndWorst) -> str:
    if took_s.median is None:
        return "–"
    return f"{took_s.median:.1f} s" + (f", slowest {took_s.worst:.1f} s" if took_s.worst != took_s.median else "")


def _costs(run: ScenarioRun) -> str:
    """Returns what was found, and the known defects that are proven to have caused everything forbidden."""
    permitted, forbidden = (
        {row["anomaly"]: row[f"{of}_sum"] for row in run.counts} for of in ("permitted", "forbidden")
    )
    seen = {name: permitted[name] for name in _COUNTED if permitted.get(name)}
    bad = {name: forbidden[name] for name in (*_COUNTED, *forbidden) if forbidden.get(name)}
    parts = [f"permitted: {_counted(seen)}"] if seen else []
    parts += [f"**forbidden: {_counted(bad)}**"] if bad else []
    if run.row["by_known_defects"]:
        parts += [f"known defect: {defect}" for defect in run.defects]
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
    last = newest(judged_runs(runs))
    shown = [run for run in last.values() if not names or run.key[0] in names]
    sys.stdout.write(table_text(shown))
    if table is not None:
        write_table(table, last.values())
        sys.stdout.write(f"\ntable  {table}\n")
    if interrupted:
        return int(ExitCode.UNKNOWN)
    return int(exit_code_of(_as_expected(key[0], last[key].verdict) if key in last else None for key in wanted))


def newest(runs: Iterable[ScenarioRun]) -> dict[tuple[str, str], ScenarioRun]:
    """Returns (trial, metadata mode) → its last run."""
    return {run.key: run for run in runs}


def next_seed(runs: Sequence[ScenarioRun], trial: str, mode: str) -> int | None:
    """Returns the seed with which to run the trial now; None if it has its verdict, or was unknown often enough."""
    own = [run for run in runs if run.key == (trial, mode)]
    if not own:
        return FIRST_SEED
    if own[-1].verdict is not Verdict.UNKNOWN or len(own) >= TRIES:
        return None
    return int(own[-1].row["seed"]) + 1


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
    judged, gave_none = judged_runs(runs), set()

    def following() -> TrialJob | None:
        for name, mode in wanted:
            if (name, mode) not in gave_none and (seed := next_seed(judged, name, mode)) is not None:
                variant = mode if load_trial(name).side_by_side else None
                return TrialJob(number=len(engine.attempts), trial=name, seed=seed, variant=variant)
        return None

    def over(done: TrialAttempt) -> None:
        found = runs_at([runs / done.run]) if done.run is not None else []
        if not found:
            mode = done.job.variant or load_trial(done.job.trial).variant.metadata_mode
            gave_none.add((done.job.trial, mode))
            what = f"{done.job.trial}, {mode}, seed {done.job.seed}: no verdict (exit {done.exit_code}): {done.why}"
        else:
            tidy(runs, done, KEEP)
            judged.extend(found)
            what = line_of(found[0])
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
