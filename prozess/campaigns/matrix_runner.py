"""Runs the trials of a matrix in a directory, one process each, as a campaign whose next trial is that of the matrix. What
was run is in the campaign's files, so that it goes on after any interruption.

matrix.json    what the matrix is: to be distinguished from another, and for the table
plans/         plan of each trial that was begun
matrix.html    what these settings are worth; result.json is the same as data
"""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from prozess.app.run.outside_sandbox import check_capabilities, isolation_of, refuse_plan
from prozess.app.webhook import Webhook, trials_message
from prozess.campaigns.campaign_plan import (
    ALL_TRIALS,
    CAMPAIGN_FILE,
    BegunCampaign,
    Campaign,
    CampaignDirectory,
    Entry,
    JobList,
    Shard,
    parse_shard,
)
from prozess.campaigns.campaign_runner import begin_shared, print_known, run_campaign, run_shared
from prozess.campaigns.engine import TrialJob, refuse_strangers
from prozess.campaigns.kept_runs import Keep
from prozess.campaigns.matrix_layout import (
    MATRIX_FILE,
    BegunMatrix,
    MatrixLayout,
    RefuseImpossible,
    load_matrix,
    read_matrix_file,
)
from prozess.campaigns.matrix_merge import merge
from prozess.campaigns.matrix_query import read_results
from prozess.campaigns.matrix_results import Results, compare, show_difference, show_results, write_page
from prozess.campaigns.on_spark import SparkCluster, opened_results, runs_of
from prozess.campaigns.shared_results import SharedResults
from prozess.harness.clock import Clock, SystemClock, parse_duration
from prozess.harness.console import console
from prozess.harness.errors import BadInput
from prozess.harness.exit_codes import ExitCode
from prozess.harness.history.store import location_of
from prozess.harness.machine_record import TOKEN
from prozess.harness.plan.plan import Plan
from prozess.harness.printable import number_of
from prozess.harness.run_directory import RunDirectory, write_whole

OPTIONS = ("--engine", "local", "--trust")
"""The options of every trial. Histories of hundreds of cells are small: Spark's start alone takes longer than threads need to
check them. The plans that it carries out are written by this command."""
PLANS = "plans"
MERGE = "merge"
"""The first argument that asks to merge shares, in place of the name of a matrix."""
_LEFT_BY_BEGIN = {"runs", *(f"{name}{end}" for name in (TOKEN, MATRIX_FILE, CAMPAIGN_FILE) for end in ("", ".part"))}
"""All that a command may leave that was killed while it began."""


def run_matrix(
    layout: MatrixLayout,
    path: Path,
    *,
    clock: Clock,
    seconds: float | None,
    shard: Shard = ALL_TRIALS,
    webhook: Webhook | None = None,
) -> int:
    """Begins or continues a matrix, until every trial of this share was run or `seconds` are over. Returns the campaign's
    exit code. `webhook`: as for `run_campaign`."""
    directory = CampaignDirectory(path)
    if directory.is_there:
        refuse_strangers(directory, trust=False, what="matrix")
    begin_matrix(layout, directory, shard, lambda plan: refuse_plan(plan, isolation="auto"))
    before = directory.attempts()
    limit_s = None if seconds is None else seconds + sum(attempt.took_s for attempt in before)
    print_known("matrix", path, before, sum(shard.has(trial.number) for trial in layout.trials))
    (path / PLANS).mkdir(exist_ok=True)

    def job(number: int) -> TrialJob:
        plan = layout.plan(layout.trials[number])
        file = path / PLANS / f"{plan.trial}.json"
        write_whole(file, plan.model_dump_json())
        return TrialJob(number=number, trial=str(file), seed=plan.seed)

    jobs = JobList(len(layout.trials), job)
    return run_campaign(directory, clock=clock, options=OPTIONS, jobs=jobs, limit_s=limit_s, webhook=webhook)


def run_matrix_on_spark(layout: MatrixLayout, location: str, asked: "MatrixRequest", master: str) -> int:
    """Begins or continues a matrix on the machines of a Spark cluster, each trial a task. `location`: a directory that they
    share, or a URI. Returns the exit code: that of the results, or UNKNOWN if somebody interrupted."""
    matrix, trials = layout.matrix, layout.trials
    begun, campaign = _begun(layout, ALL_TRIALS)
    begin_shared(location, {MATRIX_FILE: begun, CAMPAIGN_FILE: campaign})
    done = run_shared(
        "matrix",
        location,
        JobList(len(trials), lambda n: TrialJob(number=n, trial=f"{matrix.name}-{n:03}", seed=trials[n].seed)),
        cluster=SparkCluster(
            master, asked.cores, None if asked.duration is None else parse_duration(asked.duration), asked.conf
        ),
        plan_of=lambda job: layout.plan(trials[job.number]),
        webhook=asked.webhook,
    )
    return int(ExitCode.HELD if done else ExitCode.UNKNOWN)


def begin_matrix(
    layout: MatrixLayout,
    directory: CampaignDirectory,
    shard: Shard = ALL_TRIALS,
    refuse: RefuseImpossible | None = None,
) -> None:
    """Writes matrix.json and campaign.json into a new directory. BadInput if there is something else. `refuse`: raises it if
    this machine lacks what a plan needs."""
    begun, campaign = _begun(layout, shard)
    if directory.is_there:
        if read_matrix_file(directory.path) != begun:
            raise BadInput(
                f"{directory.path} holds results of another matrix, or of this one before it was changed. Give another "
                "directory to --run."
            )
        if directory.begun().shard != shard:
            raise BadInput(
                f"{directory.path} holds the share {directory.begun().shard}, not {shard}. Give the same --shard as before, "
                "or another directory to --run."
            )
        return
    layout.check(refuse)
    if directory.path.exists() and any(path.name not in _LEFT_BY_BEGIN for path in directory.path.iterdir()):
        raise BadInput(
            f"--run {directory.path}: this directory holds something else. Give a new one, or one of this matrix."
        )
    directory.begin(campaign, {MATRIX_FILE: begun})


def _begun(layout: MatrixLayout, shard: Shard) -> tuple[BegunMatrix, BegunCampaign]:
    """Returns the content of matrix.json and of campaign.json."""
    matrix = layout.matrix
    begun = BegunMatrix(
        name=matrix.name,
        title=matrix.title,
        values=matrix.spec.values,
        trials=tuple(layout.trials),
        document=json.loads(json.dumps(matrix.document, default=str)),
    )
    campaign = Campaign(
        name=matrix.name,
        title=matrix.title,
        entries=(Entry(trial=matrix.name),),
        keep=Keep(held="history", disk_max_gib=40),
    )
    return begun, BegunCampaign(campaign=campaign, seed=0, shard=shard)


_REASONS = 12
"""At most this many reasons of each list of exclusions are printed; the others are counted."""


def show_matrix(layout: MatrixLayout) -> None:
    """Prints what a matrix is: cells, exclusions with reasons, axes, what the trials cover, and about how long they
    take."""
    out = console()
    matrix = layout.matrix
    out.print(f"[bold]{matrix.name}[/bold]  {matrix.title}", markup=True)
    _show_cells(out, layout)
    _show_trials(out, layout)


def _show_cells(out: Console, layout: MatrixLayout) -> None:
    first = layout.fullest
    out.print(
        f"\nCells (on the first cluster that can have all workloads, or most: {', '.join(list(first.values())[:-1])}):"
    )
    table = Table(box=None, pad_edge=False)
    columns = ("workload", "raw product", "valid", "strength", "run", "pairs or triples covered", "per trial", "parts")
    for column in columns:
        table.add_column(column, justify="left" if column in ("workload", "strength") else "right")
    counts = layout.counts(first)
    workloads = layout.matrix.trial(first).workloads
    rows: list[tuple[str | int, ...]] = []
    for c, workload in zip(counts, workloads, strict=True):
        covered = "all" if c.strength == "full" else f"{c.choice.covered:,} of {c.choice.possible:,}"
        valid = "not counted" if c.valid is None else c.valid
        rows.append((c.kind, c.choice.raw, valid, str(workload.strength), c.chosen, covered, c.of_trial, c.parts))
    raw, chosen, of_trial = (
        sum(c.choice.raw for c in counts),
        sum(c.chosen for c in counts),
        sum(c.of_trial for c in counts),
    )
    all_valid = "" if any(c.valid is None for c in counts) else sum(c.valid or 0 for c in counts)
    for row in (*rows, ("together", raw, all_valid, "", chosen, "", of_trial, "")):
        table.add_row(*(value if isinstance(value, str) else f"{value:,}" for value in row))
    out.print(table)
    for count in counts:
        if count.strength != "full":
            done, there = count.choice.beyond()
            what = _MANY[count.choice.size + 1]
            out.print(f"{count.kind}: {done:,} of {there:,} {what} of values, valid or not, are in some cell")
    for count in counts:
        what = "combinations" if count.valid is not None else _MANY[count.choice.size]
        _show_reasons(out, f"Excluded {what} of {count.kind} cells", count.choice.reasons())
    left_out = (f"{kind}: {why}" for kind, why in layout.left_out())
    _show_reasons(
        out, f"Workloads that a choice of cluster and schedule cannot have, of {len(layout.rows):,} choices", left_out
    )


_MANY = {1: "values", 2: "pairs", 3: "triples", 4: "quadruples"}


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
    choice, impossible = layout.choice, layout.choice.impossible
    met = "" if choice.valid is not None else ", among those that were tried"
    _show_reasons(out, f"Excluded choices{met}", (why for _, why in choice.excluded))
    what = _MANY[choice.size]
    valid = "" if choice.valid is None else f" {len(choice.valid):,} are valid,"
    out.print(
        f"\nChoices: {choice.raw:,} in all,{valid} {len(layout.rows):,} are run (strength "
        f"{spec.strength}). They cover {choice.covered:,} of {choice.possible:,} valid {what} of values.",
        soft_wrap=True,
    )
    if impossible:
        out.print(
            f"No valid choice {'has' if choice.valid is not None else 'was found with'} these {len(impossible):,} {what}:"
        )
        for apart in impossible[: 2 * _REASONS]:
            named = ", ".join(f"{axis}={value}" for axis, value in apart.items())
            out.print(f"  {named}: {choice.why_impossible(apart)}", markup=False, soft_wrap=True)
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


@dataclass(frozen=True)
class MatrixRequest:
    """The options of `prozess matrix`."""

    name: str | None
    merged: Sequence[Path] = ()
    """After `merge`: the new directory, and the shares."""
    run: str | None = None
    diff: tuple[str, str] | None = None
    duration: str | None = None
    shard: str | None = None
    master: str | None = None
    cores: int = 2
    as_json: bool = False
    webhook: Webhook | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark."""


def matrix(asked: MatrixRequest) -> int:
    """`prozess matrix`: describes a matrix, runs or continues it, prints its results, or compares two results.

    Returns the exit code: that of a campaign if something is run or its results are printed, 1 for a regression, else
    0.
    """
    name, run, as_json = asked.name, asked.run, asked.as_json
    _refuse_contradictions(asked)
    if asked.diff is not None:
        return _compare(*asked.diff, asked)
    if name is None:
        raise BadInput("Give the name or file of a matrix, a directory of its results, or --diff OLD NEW.")
    if name == MERGE:
        if not asked.merged:
            raise BadInput("`prozess matrix merge` needs a new directory, and then the shares.")
        merge(asked.merged[0], asked.merged[1:])
        return _print_results(asked.merged[0], asked)
    if _has_results(name):
        if run is not None:
            raise BadInput(
                f"{name} is a directory of results. --run needs the matrix itself: prozess matrix FILE --run {name}."
            )
        return _print_results(name, asked)
    layout = MatrixLayout(load_matrix(name), able=_able)
    if run is None:
        _say(layout, as_json=as_json)
        return int(ExitCode.HELD)
    if asked.master is not None:
        code = run_matrix_on_spark(layout, run, asked, asked.master)
        code = max(code, _print_results(run, asked))
        if (webhook := asked.webhook) is not None:
            webhook.post(trials_message(layout.matrix.name, code, "the matrix is over", run, webhook.host))
        return code

    seconds = None if asked.duration is None else parse_duration(asked.duration)
    shard = ALL_TRIALS if asked.shard is None else parse_shard(asked.shard)
    code = run_matrix(
        layout, Path(run).resolve(), clock=SystemClock(), seconds=seconds, shard=shard, webhook=asked.webhook
    )
    return max(code, _print_results(run, asked))


def _refuse_contradictions(asked: MatrixRequest) -> None:
    """Raises BadInput for options that do not go together."""
    if asked.diff is not None and (asked.name is not None or asked.run is not None):
        raise BadInput("--diff compares two directories of results. Leave the matrix and --run out.")
    if asked.merged and asked.name != MERGE:
        raise BadInput(f"One matrix at a time: leave {asked.merged[0]} out, or merge shares by `prozess matrix merge`.")
    if asked.run is None:
        for option, value in (("--for", asked.duration), ("--shard", asked.shard)):
            if value is not None:
                raise BadInput(f"{option} says how to run a matrix, so it needs --run DIRECTORY.")
        if asked.master is not None and asked.name not in (None, MERGE) and not _has_results(str(asked.name)):
            raise BadInput(
                "--master runs a matrix, which needs --run DIRECTORY, or reads results: give their directory."
            )
    elif asked.master is None and not isinstance(location_of(asked.run), Path):
        raise BadInput(
            f"--run {asked.run}: one machine runs a matrix into a directory. A URI is for --master, whose machines write "
            "there."
        )
    if asked.master is not None and asked.shard is not None:
        raise BadInput("--master shares the trials out itself. Leave --shard out.")
    if asked.conf and asked.master is None:
        raise BadInput(f"--conf {next(iter(asked.conf))} is a setting of Spark, so it needs --master.")


def _able(plan: Plan) -> None:
    """Raises UnsupportedFault if the plan's backend cannot make one of its faults on this machine."""
    isolation = isolation_of(plan, "auto")
    with tempfile.TemporaryDirectory(prefix="prozess-") as directory:
        check_capabilities(plan, RunDirectory(Path(directory)), isolation=isolation)


def _say(layout: MatrixLayout, *, as_json: bool) -> None:
    if not as_json:
        show_matrix(layout)
        return
    choice = layout.choice
    counts = [
        {
            **{"workload": c.kind, "raw": c.choice.raw, "valid": c.valid, "run": c.chosen},
            **{"per_trial": c.of_trial, "parts": c.parts},
        }
        for c in layout.counts(layout.fullest)
    ]
    document = {
        "name": layout.matrix.name,
        "cells": counts,
        "left_out": [
            {"workload": kind, "reason": why, "choices": n} for (kind, why), n in Counter(layout.left_out()).items()
        ],
        "choices": {
            "raw": choice.raw,
            "valid": None if choice.valid is None else len(choice.valid),
            "run": len(layout.rows),
        },
        "covered": choice.covered,
        "can_be_covered": choice.possible,
        "impossible": choice.impossible,
        "trials": [{**trial.model_dump(exclude={"row"}), **trial.row} for trial in layout.trials],
        "seconds": round(sum(layout.seconds(t) for t in layout.trials)),
    }
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


def _has_results(name: str) -> bool:
    """Returns whether an argument is a place of results, and not the name or the file of a matrix."""
    return Path(name).is_dir() or not isinstance(location_of(name), Path)


def _results(location: Path | str, directory: CampaignDirectory, asked: MatrixRequest) -> Results:
    """Reads the results of a directory, whose runs are below a location."""
    return read_results(directory, runs_of(location), master=asked.master, conf=asked.conf)


def _print_results(location: Path | str, asked: MatrixRequest) -> int:
    with opened_results(location) as directory:
        results = _results(location, directory, asked)
        pages = [page.name for page in write_page(directory.path, results)]
    if asked.as_json:
        sys.stdout.write(results.model_dump_json(indent=1) + "\n")
    else:
        show_results(results)
        sys.stdout.write("".join(f"{SharedResults.at(location).address}/{page}\n" for page in pages))
    return int(results.exit_code)


def _compare(old: str, new: str, asked: MatrixRequest) -> int:
    with opened_results(old) as one, opened_results(new) as other:
        before, after = _results(old, one, asked), _results(new, other, asked)
    difference = compare(before, after)
    if asked.as_json:
        sys.stdout.write(difference.model_dump_json(indent=1) + "\n")
    else:
        show_difference(difference)
    return int(ExitCode.VIOLATED if difference.regressions else ExitCode.HELD)
