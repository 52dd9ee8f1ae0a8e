"""Runs the trials of a matrix in a directory, one process each, as a campaign whose next trial is that of the matrix. What
was run is in the campaign's files, so that it goes on after any interruption.

matrix.json    what the matrix is: to be told from another, and for the table
plans/         plan of each trial that was begun
matrix.html    what these settings are worth; result.json is the same as data
"""

import json
import sys
from pathlib import Path

from harness.campaign.plan import Campaign, Drawn, Entry, Keep
from harness.campaign.runner import run_campaign
from harness.campaign.state import Attempt, Begun, CampaignDirectory, next_number
from harness.clock import NS_PER_S, Clock
from harness.errors import BadInput
from harness.matrices.trials import Layout, MatrixTrial
from harness.own_process import RUN
from harness.run_directory import write_json

RUNNER = (*RUN, "--engine", "local")
"""Histories of hundreds of cells are small: Spark's start alone takes longer than threads need to check them."""
FOREVER_S = 10 * 365 * 86_400.0
FORMAT_VERSION = 1
FILE = "matrix.json"
PLANS = "plans"


def run_matrix(layout: Layout, path: Path, *, clock: Clock, seconds: float | None) -> int:
    """Begin, or go on, until every trial was run or `seconds` are over; returns the campaign's exit code."""
    directory = CampaignDirectory(path)
    trials = layout.trials
    _begin(layout, directory, trials)
    begun_ns = clock.monotonic_ns()

    def following(begun: Begun, attempts: list[Attempt]) -> tuple[Drawn, int] | None:
        number, attempt = next_number(attempts, begun.campaign.retries)
        late = seconds is not None and clock.monotonic_ns() - begun_ns > seconds * NS_PER_S
        if number >= len(trials) or late:
            return None
        return _drawn(layout, trials[number], path), attempt

    sys.stdout.write(f"matrix     {path}, {len(trials)} trials, {_done(directory)} of them run\n")
    sys.stdout.flush()
    return run_campaign(directory, clock=clock, runner=RUNNER, following=following)


def _done(directory: CampaignDirectory) -> int:
    return len({attempt.drawn.number for attempt in directory.attempts()})


def _drawn(layout: Layout, trial: MatrixTrial, path: Path) -> Drawn:
    plan = layout.plan(trial)
    file = path / PLANS / f"{plan.trial}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(plan.model_dump_json(), encoding="utf-8")
    return Drawn(number=trial.number, trial=str(file), seed=trial.seed)


def _begin(layout: Layout, directory: CampaignDirectory, trials: list[MatrixTrial]) -> None:
    """BadInput if something else is there."""
    matrix = layout.matrix
    said = {
        "format_version": FORMAT_VERSION,
        "name": matrix.name,
        "title": matrix.title,
        "values": matrix.spec.values,
        "trials": [
            {"number": t.number, "row": t.row, "seed": t.seed, "part": t.part, "parts": t.parts} for t in trials
        ],
        "document": json.loads(json.dumps(matrix.document, default=str)),
    }
    file = directory.path / FILE
    if file.exists():
        if read_matrix_file(directory.path) != said:
            raise BadInput(
                f"{directory.path} holds results of another matrix, or of this one before it was changed. Give another "
                "--run directory."
            )
        return
    if directory.path.exists() and any(directory.path.iterdir()):
        raise BadInput(f"--run {directory.path}: there is something else. Give a new directory, or one of this matrix.")
    campaign = Campaign(
        name=matrix.name,
        title=matrix.title,
        entries=(Entry(trial=matrix.name),),
        keep=Keep(held="history", disk_max_gib=40),
    )
    directory.begin(Begun(campaign=campaign, seed=0, duration_s=FOREVER_S))
    write_json(file, said)


def read_matrix_file(path: Path) -> dict[str, object]:
    """matrix.json of a directory of results. BadInput if it is none, half written, or of another version."""
    try:
        found = json.loads((path / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInput(f"{str(path)!r} holds no results of a matrix: it has no {FILE}.") from error
    except (OSError, ValueError) as error:
        raise BadInput(f"{path / FILE} cannot be read: {error}. Begin again in another directory.") from error
    if not isinstance(found, dict) or found.get("format_version") != FORMAT_VERSION:
        raise BadInput(f"{path} holds results of another version; this prozess reads {FORMAT_VERSION}.")
    return found
