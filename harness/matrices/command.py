"""`prozess matrix`: says what a matrix is, runs it or goes on with it, tells what all of its trials say, and compares."""

import json
import sys
import tempfile
from pathlib import Path

from harness.campaign.plan import parse_duration
from harness.campaign.state import CampaignDirectory
from harness.clock import SystemClock
from harness.errors import BadInput, ExitCode
from harness.matrices.file import load_matrix
from harness.matrices.show import show_matrix
from harness.matrices.trials import Layout
from harness.plan import Plan
from harness.run_directory import RunDirectory
from harness.stages.run import check_capabilities


def matrix(
    name: str | None, *, run: Path | None, diff: tuple[Path, Path] | None, duration: str | None, as_json: bool
) -> int:
    """The exit code: as of a campaign where something is run or told, 1 for a regression, else 0."""
    if diff is not None:
        if name is not None or run is not None:
            raise BadInput("--diff compares two directories of results: give neither a matrix nor --run with it.")
        return _compare(*diff, as_json=as_json)
    if name is None:
        raise BadInput("Give a matrix (its name or file), a directory of its results, or --diff OLD NEW.")
    if Path(name).is_dir():
        if run is not None:
            raise BadInput(
                f"{name} is a directory of results; --run wants the matrix: prozess matrix FILE --run {name}."
            )
        return _tell(Path(name), as_json=as_json)
    layout = Layout(load_matrix(name), able=_able)
    if run is None:
        if duration is not None:
            raise BadInput("--for says how long to run: it needs --run DIRECTORY.")
        _say(layout, as_json=as_json)
        return int(ExitCode.HELD)
    from harness.matrices.runner import run_matrix

    seconds = None if duration is None else parse_duration(duration)
    code = run_matrix(layout, run.resolve(), clock=SystemClock(), seconds=seconds)
    return max(code, _tell(run, as_json=as_json)) if code != ExitCode.HELD else _tell(run, as_json=as_json)


def _able(plan: Plan) -> None:
    """UnsupportedFault if the plan's backend cannot do one of its faults on this machine."""
    from harness import catalogue

    isolation = str(catalogue.service("isolation")().level) if plan.backend == "local" else "signals"
    with tempfile.TemporaryDirectory(prefix="prozess-") as directory:
        check_capabilities(plan, RunDirectory(Path(directory)), isolation=isolation)


def _say(layout: Layout, *, as_json: bool) -> None:
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
    from harness.matrices.page import write_page
    from harness.matrices.results import read_results
    from harness.matrices.table import show_results

    results = read_results(CampaignDirectory(path.resolve()))
    pages = write_page(path.resolve(), results)
    if as_json:
        sys.stdout.write(results.model_dump_json(indent=1) + "\n")
    else:
        show_results(results)
        sys.stdout.write("".join(f"{page}\n" for page in pages))
    return int(results.exit_code)


def _compare(old: Path, new: Path, *, as_json: bool) -> int:
    from harness.matrices.diff import compare, show_difference
    from harness.matrices.results import read_results

    before, after = (read_results(CampaignDirectory(path.resolve())) for path in (old, new))
    difference = compare(before, after)
    if as_json:
        sys.stdout.write(difference.model_dump_json(indent=1) + "\n")
    else:
        show_difference(difference)
    return int(ExitCode.VIOLATED if difference.regressions else ExitCode.HELD)
