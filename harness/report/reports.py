"""Stage five: reads verdict, plan and history; writes report.html, junit.xml and summary.md. Judges nothing."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from prozess.harness.checking.findings import write_findings
from prozess.harness.clock import NS_PER_S
from prozess.harness.errors import BadInput, HistoryUnreadable
from prozess.harness.guarantees.verdict.doubts import partly_unlooked, unlooked, with_doubts
from prozess.harness.history.convert import History
from prozess.harness.history.manifest import Condition, condition_of, naming_unproven, plan_of
from prozess.harness.history.parquet import ensure_every_table
from prozess.harness.plan.checks import versions_installed
from prozess.harness.plan.plan import Plan, read_plan
from prozess.harness.plan.schedule import Inspect, PauseSends, ResumeSends, Send
from prozess.harness.report.server_complaints import ServerComplaints, cluster_kinds, of_run
from prozess.harness.report.words import again
from prozess.harness.run_directory import RunDirectory, read_document, read_object, write_json, write_whole
from prozess.harness.schema import MISSING
from prozess.harness.verdict import TrialVerdict

_HARMLESS = (Inspect, PauseSends, ResumeSends, Send)
"""What a step may do that servers have no reason to complain of."""


class WrittenReports(NamedTuple):
    """The reports of a run, and what they say that stands in no other file of it."""

    paths: list[Path]
    complaints: ServerComplaints


def report_run(run: RunDirectory, condition: Condition | None = None) -> WrittenReports:
    """Writes every report of a judged run. BadInput if the run was not judged yet.

    `condition`: of the run's files, if it is known already. For a run with damaged ones the reports say that everything that
    rests on them is unknown, and why, whatever verdict.json says; NotJudged if its plan cannot be read.
    """
    if not run.verdict.is_file():
        raise BadInput(f"{run.path} has no verdict.json yet. Run `prozess check {run.path}` first.")
    condition = condition or condition_of(run, ("recorded", "history", "judged"))
    if condition.damaged and not condition.bounded:
        return _report_damaged(run, condition)
    with naming_unproven(run, condition):
        verdict = proven_verdict(run, condition)
        return _write(replace(run, lost=condition.lost), verdict, counted=not condition.bounded)


def proven_verdict(run: RunDirectory, condition: Condition) -> TrialVerdict:
    """Returns the verdict of a judged run, as far as its files prove it: what rests on damaged ones is unknown, and so is
    everything if nothing proves them. BadInput if verdict.json is not one of this version; NotJudged if the plan cannot be
    read."""
    if condition.damaged and not condition.bounded:
        return unlooked(plan_of(run, condition), condition.doubts)
    verdict = read_verdict(run)
    if condition.bounded:
        return partly_unlooked(verdict, plan_of(run, condition), condition.lost, condition.doubts)
    return verdict if condition.sealed else with_doubts(verdict, condition.doubts)


def _write(run: RunDirectory, verdict: TrialVerdict, *, counted: bool = True) -> WrittenReports:
    from prozess.harness.report.html import write_html
    from prozess.harness.report.summary import write_junit, write_summary

    plan, history, seconds = read_plan(run), History.open(run), _seconds(run)
    complaints = complaints_of_run(run, plan, verdict, history)
    paths = [
        write_html(run, plan, verdict, seconds, history, complaints, counted=counted),
        write_junit(run, verdict, seconds),
        write_summary(run, plan, verdict, history, complaints),
    ]
    return WrittenReports(paths, complaints)


def complaints_of_run(run: RunDirectory, plan: Plan, verdict: TrialVerdict, history: History) -> ServerComplaints:
    """Returns what the servers of a run complained of, and those of clean runs do not. HistoryUnreadable."""
    ended_ns = history.table("clients")["ended_ns"]
    known = ended_ns[ended_ns != MISSING]
    end_s = float(known.max()) / NS_PER_S if len(known) else 0.0
    done = [(fault.begin_s, fault.end_s) for fault in verdict.faults]
    steps = history.table("steps")
    for number, fired_ns, done_ns in zip(
        *(steps[name].tolist() for name in ("step", "fired_ns", "done_ns")), strict=True
    ):
        if MISSING not in (fired_ns, done_ns) and not isinstance(plan.steps[number].do, _HARMLESS):
            done.append((fired_ns / NS_PER_S, done_ns / NS_PER_S))
    kinds = cluster_kinds(plan.variant, (*plan.variant.kafka_versions, *versions_installed(plan)))
    return of_run(run, plan.server_names.values(), kinds, done, end_s)


def _report_damaged(run: RunDirectory, condition: Condition) -> WrittenReports:
    """Out of the plan and of nothing else, because what the other files say may be anything."""
    plan = plan_of(run, condition)
    with tempfile.TemporaryDirectory(prefix="prozess-") as directory:
        bare = RunDirectory(Path(directory))
        bare.plan.write_text(plan.model_dump_json(), encoding="utf-8")
        write_json(bare.source, {"command": again(run)})
        ensure_every_table(bare)
        write_findings(bare, ())
        made = _write(bare, unlooked(plan, condition.doubts), counted=False)
        for path in made.paths:
            write_whole(run.path / path.name, path.read_text(encoding="utf-8"))
        return made._replace(paths=[run.path / path.name for path in made.paths])


def _seconds(run: RunDirectory) -> dict[str, float]:
    """Returns how long parts took; nothing of a run of which nobody noted it."""
    path = run.path / "seconds.json"
    seconds = read_object(path) if path.exists() else {}
    if not all(isinstance(took_s, int | float) for took_s in seconds.values()):
        raise HistoryUnreadable(
            f"{path} must map parts of a run to seconds, and does not. Remove it, and report again."
        )
    return seconds


def read_verdict(run: RunDirectory) -> TrialVerdict:
    """Returns the verdict of a run. BadInput if verdict.json is not one of this version."""
    try:
        return TrialVerdict.model_validate_json(read_document(run.verdict))
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"])) or "the file"
        raise BadInput(
            f"{run.verdict} is not a verdict of this version: {where}: {problem['msg']}. "
            f"Judge the run again: `prozess check {run.path}`."
        ) from error
