"""Runs the trials of a matrix in a directory, one process each, as a campaign whose next trial is that of the matrix. What
was run is in the campaign's files, so that it goes on after any interruption.

matrix.json    what the matrix is: to be told from another, and for the table
plans/         plan of each trial that was begun
matrix.html    what these settings are worth; result.json is the same as data
"""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from prozess.harness.app.run.outside import check_capabilities
from prozess.harness.app.run_process import RUN
from prozess.harness.app.runs.campaign_plan import (
    BegunCampaign,
    Campaign,
    CampaignDirectory,
    Entry,
    next_number,
    parse_duration,
)
from prozess.harness.app.runs.campaign_runner import run_campaign
from prozess.harness.app.runs.engine import Keep, TrialAttempt, TrialJob
from prozess.harness.app.runs.matrix_layout import (
    MATRIX_FILE,
    BegunMatrix,
    CellCount,
    MatrixLayout,
    MatrixTrial,
    load_matrix,
    read_matrix_file,
)
from prozess.harness.app.runs.matrix_results import compare, read_results, show_difference, show_results, write_page
from prozess.harness.clock import Clock, SystemClock
from prozess.harness.console import console
from prozess.harness.errors import BadInput, ExitCode
from prozess.harness.guarantees.verdict.sentences import number_of
from prozess.harness.plan.plan import Plan
from prozess.harness.run_directory import RunDirectory, write_json

RUNNER = (*RUN, "--engine", "local")
"""Histories of hundreds of cells are small: Spark's start alone takes longer than threads need to check them."""
FOREVER_S = 10 * 365 * 86_400.0
PLANS = "plans"


def run_matrix(layout: MatrixLayout, path: Path, *, clock: Clock, seconds: float | None) -> int:
    """Begins or continues a matrix, until every trial was run or `seconds` are over. Returns the campaign's exit code."""
    directory = CampaignDirectory(path)
    trials = layout.trials
    _begin(layout, directory, trials)
    before = directory.attempts()

    def following(begun: BegunCampaign, attempts: list[TrialAttempt]) -> TrialJob | None:
        number, attempt = next_number(attempts, begun.campaign.retries)
        late = seconds is not None and sum(attempt.took_s for attempt in attempts[len(before) :]) > seconds
        if number >= len(trials) or late:
            return None
        return _job(layout, trials[number], path, attempt)

    sys.stdout.write(
        f"matrix     {path}: {len({attempt.job.number for attempt in before})} of {len(trials)} trials were run before\n"
    )
    sys.stdout.flush()
    return run_campaign(directory, clock=clock, runner=RUNNER, following=following)


def _job(layout: MatrixLayout, trial: MatrixTrial, path: Path, attempt: int) -> TrialJob:
    plan = layout.plan(trial)
    file = path / PLANS / f"{plan.trial}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(plan.model_dump_json(), encoding="utf-8")
    return TrialJob(number=trial.number, attempt=attempt, trial=str(file), seed=trial.seed)


def _begin(layout: MatrixLayout, directory: CampaignDirectory, trials: list[MatrixTrial]) -> None:
    """Writes matrix.json into a new directory. BadInput if there is something else."""
    matrix = layout.matrix
    begun = BegunMatrix(
        name=matrix.name,
        title=matrix.title,
        values=matrix.spec.values,
        trials=[{"number": t.number, "row": t.row, "seed": t.seed, "part": t.part, "parts": t.parts} for t in trials],
        document=json.loads(json.dumps(matrix.document, default=str)),
    )
    file = directory.path / MATRIX_FILE
    if file.exists():
        if read_matrix_file(directory.path) != begun:
            raise BadInput(
                f"{directory.path} holds results of another matrix, or of this one before it was changed. Give another "
                "directory to --run."
            )
        return
    if directory.path.exists() and any(directory.path.iterdir()):
        raise BadInput(
            f"--run {directory.path}: this directory holds something else. Give a new one, or one of this matrix."
        )
    campaign = Campaign(
        name=matrix.name,
        title=matrix.title,
        entries=(Entry(trial=matrix.name),),
        keep=Keep(held="history", disk_max_gib=40),
    )
    directory.begin(BegunCampaign(campaign=campaign, seed=0, duration_s=FOREVER_S))
    write_json(file, begun.model_dump(mode="json"))


_REASONS = 12
"""So many reasons of each list of exclusions are shown; the rest is counted."""


def show_matrix(layout: MatrixLayout) -> None:
    """Prints what a matrix is: cells, exclusions with reasons, axes, what the trials cover, and about how long they
    take."""
    out = console()
    matrix = layout.matrix
    out.print(f"[bold]{matrix.name}[/bold]  {matrix.title}", markup=True)
    _show_cells(out, layout)
    _show_trials(out, layout)


def _show_cells(out: Console, layout: MatrixLayout) -> None:
    first = layout.rows[0]
    out.print(f"\nCells (on the first cluster: {', '.join(list(first.values())[:-1])}):")
    table = Table(box=None, pad_edge=False)
    columns = ("workload", "raw product", "valid", "strength", "run", "pairs or triples covered", "per trial", "parts")
    for column in columns:
        table.add_column(column, justify="left" if column in ("workload", "strength") else "right")
    counts = layout.counts(first)
    workloads = layout.matrix.trial(first).workloads
    for count, workload in zip(counts, workloads, strict=True):
        covered = "all" if count.pairs is None else f"{count.pairs[0]:,} of {count.pairs[1]:,}"
        cells = (f"{n:,}" for n in (count.raw, count.valid))
        table.add_row(
            count.kind,
            *cells,
            str(workload.strength),
            f"{count.chosen:,}",
            covered,
            f"{count.of_trial:,}",
            str(count.parts),
        )
    table.add_row(
        "together",
        *(f"{sum(getattr(c, name) for c in counts):,}" for name in ("raw", "valid")),
        "",
        f"{sum(c.chosen for c in counts):,}",
        "",
        f"{sum(c.of_trial for c in counts):,}",
        "",
    )
    out.print(table)
    for count in counts:
        _show_reasons(out, f"Excluded combinations of {count.kind} cells", _reasons(count))


def _reasons(count: CellCount) -> Iterable[str]:
    return (exclusion.reason for exclusion in count.exclusions)


def _show_reasons(out: Console, title: str, reasons: Iterable[str]) -> None:
    counted = Counter(reasons).most_common()
    if not counted:
        return
    out.print(f"\n{title} ({sum(n for _, n in counted):,}):")
    for reason, count in counted[:_REASONS]:
        out.print(f"  {count:6,}  {reason}", markup=False, soft_wrap=True)
    if len(counted) > _REASONS:
        out.print(f"          and {len(counted) - _REASONS} more reasons")


def _show_trials(out: Console, layout: MatrixLayout) -> None:
    spec = layout.matrix.spec
    out.print("\nAxes whose values need a trial each:")
    for axis, values in spec.values.items():
        out.print(f"  {axis}: {'; '.join(values)}", markup=False, soft_wrap=True)
    _show_reasons(out, "Excluded choices", (why for _, why in layout.excluded))
    done, possible, impossible = layout.coverage()
    strength = 2 if spec.strength == "full" else spec.strength
    what = {2: "pairs", 3: "triples"}[strength]
    raw = len(layout.valid) + len(layout.excluded)
    out.print(
        f"\nChoices: {raw:,} in all, {len(layout.valid):,} are valid, {len(layout.rows):,} are run (strength "
        f"{spec.strength}). They cover {done:,} of {possible:,} valid {what} of values.",
        soft_wrap=True,
    )
    if impossible:
        out.print(f"No valid choice has these {len(impossible):,} {what}:")
        for apart in impossible[: 2 * _REASONS]:
            named = ", ".join(f"{axis}={value}" for axis, value in apart.items())
            out.print(f"  {named}: {layout.why_impossible(apart)}", markup=False, soft_wrap=True)
        if len(impossible) > 2 * _REASONS:
            out.print(f"  and {len(impossible) - 2 * _REASONS} more")
    trials = layout.trials
    cells, clients = layout.size(trials[0])
    hours = sum(layout.seconds(trial) for trial in trials) / 3600
    time = (
        f"{hours * 60:.0f} minutes" if hours < 2 else f"{hours:,.1f} hours" if hours < 72 else f"{hours / 24:,.0f} days"
    )
    out.print(
        f"\nTrials: {len(trials):,}, each with {number_of(len(spec.seeds), 'seed')}. The first has {cells:,} cells and "
        f"{clients:,} clients. They take about {time} on two cores.",
        soft_wrap=True,
    )


def matrix(
    name: str | None, *, run: Path | None, diff: tuple[Path, Path] | None, duration: str | None, as_json: bool
) -> int:
    """`prozess matrix`: describes a matrix, runs or continues it, prints its results, or compares two results.

    Returns the exit code: that of a campaign if something is run or its results are printed, 1 for a regression, else
    0.
    """
    if diff is not None:
        if name is not None or run is not None:
            raise BadInput("--diff compares two directories of results. Leave the matrix and --run out.")
        return _compare(*diff, as_json=as_json)
    if name is None:
        raise BadInput("Give the name or file of a matrix, a directory of its results, or --diff OLD NEW.")
    if Path(name).is_dir():
        if run is not None:
            raise BadInput(
                f"{name} is a directory of results. --run needs the matrix itself: prozess matrix FILE --run {name}."
            )
        return _tell(Path(name), as_json=as_json)
    layout = MatrixLayout(load_matrix(name), able=_able)
    if run is None:
        if duration is not None:
            raise BadInput("--for says how long to run, so it needs --run DIRECTORY.")
        _say(layout, as_json=as_json)
        return int(ExitCode.HELD)

    seconds = None if duration is None else parse_duration(duration)
    code = run_matrix(layout, run.resolve(), clock=SystemClock(), seconds=seconds)
    return max(code, _tell(run, as_json=as_json)) if code != ExitCode.HELD else _tell(run, as_json=as_json)


def _able(plan: Plan) -> None:
    """Raises UnsupportedFault if the plan's backend cannot make one of its faults on this machine."""
    from prozess.clusters.machine.sandbox import probe

    isolation = str(probe().level) if plan.backend == "local" else "signals"
    with tempfile.TemporaryDirectory(prefix="prozess-") as directory:
        check_capabilities(plan, RunDirectory(Path(directory)), isolation=isolation)


def _say(layout: MatrixLayout, *, as_json: bool) -> None:
    if not as_json:
        show_matrix(layout)
        return
    done, possible, impossible = layout.coverage()
    counts = [
        {"workload": c.kind, "raw": c.raw, "valid": c.valid, "run": c.chosen, "per_trial": c.of_trial, "parts": c.parts}
        for c in layout.counts(layout.rows[0])
    ]
    said = {
        "name": layout.matrix.name,
        "cells": counts,
        "choices": {
            "raw": len(layout.valid) + len(layout.excluded),
            "valid": len(layout.valid),
            "run": len(layout.rows),
        },
        "covered": done,
        "can_be_covered": possible,
        "impossible": impossible,
        "trials": [
            {"number": t.number, "seed": t.seed, "part": t.part, "parts": t.parts, **t.row} for t in layout.trials
        ],
        "seconds": round(sum(layout.seconds(t) for t in layout.trials)),
    }
    sys.stdout.write(json.dumps(said, indent=1) + "\n")


def _tell(path: Path, *, as_json: bool) -> int:
    results = read_results(CampaignDirectory(path.resolve()))
    pages = write_page(path.resolve(), results)
    if as_json:
        sys.stdout.write(results.model_dump_json(indent=1) + "\n")
    else:
        show_results(results)
        sys.stdout.write("".join(f"{page}\n" for page in pages))
    return int(results.exit_code)


def _compare(old: Path, new: Path, *, as_json: bool) -> int:
    before, after = (read_results(CampaignDirectory(path.resolve())) for path in (old, new))
    difference = compare(before, after)
    if as_json:
        sys.stdout.write(difference.model_dump_json(indent=1) + "\n")
    else:
        show_difference(difference)
    return int(ExitCode.VIOLATED if difference.regressions else ExitCode.HELD)
