"""Stage five: reads verdict, plan and history; writes report.html, junit.xml and summary.md. Judges nothing."""

import json
from pathlib import Path

from pydantic import ValidationError

from harness.errors import BadInput
from harness.history import History
from harness.plan import Plan, parse_plan
from harness.run_directory import RunDirectory, read_json
from harness.verdict import TrialVerdict


def report_run(run: RunDirectory) -> list[Path]:
    """Write every report of a judged run, return their paths. BadInput if the run was not judged yet."""
    from harness.report.html import write_html
    from harness.report.junit import write_junit
    from harness.report.summary import write_summary

    if not run.verdict.is_file():
        raise BadInput(f"{run.path} has no verdict.json yet. Run `prozess check {run.path}` first.")
    plan = load_plan_of(run)
    verdict = read_verdict(run)
    seconds: dict[str, float] = read_json(run.path / "seconds.json") if (run.path / "seconds.json").exists() else {}
    history = History.open(run)
    return [
        write_html(run, plan, verdict, seconds, history),
        write_junit(run, verdict, seconds),
        write_summary(run, plan, verdict, history),
    ]


def read_verdict(run: RunDirectory) -> TrialVerdict:
    """The verdict of a run. BadInput if verdict.json is not one of this version."""
    try:
        return TrialVerdict.model_validate_json(run.verdict.read_text(encoding="utf-8"))
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"])) or "the file"
        raise BadInput(
            f"{run.verdict} is not a verdict of this version: {where}: {problem['msg']}. "
            f"Judge the run again: `prozess check {run.path}`."
        ) from error


def load_plan_of(run: RunDirectory) -> Plan:
    """The plan of a run."""
    return parse_plan(json.dumps(read_json(run.plan)), source=str(run.plan))
