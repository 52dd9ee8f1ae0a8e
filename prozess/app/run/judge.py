"""The judge stage: reads findings and evidence of a run, and writes `verdict.json`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from prozess.harness import run_directory
from prozess.harness.checking.findings import read_findings, result_table, write_whole
from prozess.harness.clock import NS_PER_S
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.guarantees.evidence.trial import EVIDENCE_TABLES, Evidence
from prozess.harness.guarantees.verdict.doubts import partly_unlooked, unlooked, with_doubts
from prozess.harness.guarantees.verdict.inputs import tables_of
from prozess.harness.guarantees.verdict.judge import judge
from prozess.harness.history.convert import History
from prozess.harness.history.manifest import Condition, condition_of, naming_unproven, plan_of, seal_judged
from prozess.harness.impact.alerts import judge_alerts, with_alerts
from prozess.harness.interfaces.checking import Finding
from prozess.harness.plan.alerts import metrics_of, parse_expression
from prozess.harness.plan.plan import Plan, read_plan
from prozess.harness.recording.metric_series import MetricTable
from prozess.harness.recording.metrics import BY_NAME, Origin
from prozess.harness.report.reports import complaints_of_run
from prozess.harness.report.server_complaints import with_server_errors
from prozess.harness.result_tables import FACTS, VERDICT_INPUTS
from prozess.harness.run_directory import RunDirectory, read_document
from prozess.harness.schema import MISSING, StepOutcome
from prozess.harness.verdict import (
    SERVER_ERRORS,
    AlertResult,
    AnomalyOutcome,
    ApplicationVerdict,
    TrialVerdict,
    Verdict,
    worst,
)

TRANSACTION_COLUMNS = ("client", "transaction", "begun_ns", "end_invoked_ns", "completed_ns")
"""The columns that show whether a marker was written before anybody had asked for it."""
COMMIT_COLUMNS = ("client", "partition", "log_offset", "position", "invoked_ns", "completed_ns", "outcome")
"""The columns that show whether an answer was older than what was committed, and a commit beyond its member's position."""
MESSAGE_COLUMNS = ("time_ns", "step", "opener", "server", "sender", "partition", "did")
"""The columns that show what was done to which messages."""
METRIC_COLUMNS = ("time_ns", "value_micro", "client", "metric", "absent")
"""The columns that clients report about themselves."""


def judge_run(
    run: RunDirectory,
    findings: Sequence[Finding] | None = None,
    condition: Condition | None = None,
    *,
    decide: Sequence[str] = (),
) -> TrialVerdict:
    """Judges a run, writes `verdict.json`, and returns the verdict. Findings are read from the run if they are not
    given.

    `condition`: the condition of the run's files, as for `check_run`. What rests on files that are damaged, or that
    nothing proves, is unknown; if rows of some cells are, the others are judged, and the run is unknown. `decide`: the
    guarantees that were chosen to decide, instead of the plan's. NotJudged if the plan itself cannot be read.
    """
    condition = condition or condition_of(run)
    if not condition.readable:
        verdict = unlooked(plan_of(run, condition), condition.doubts)
    else:
        with naming_unproven(run, condition):
            verdict = _judged(replace(run, lost=condition.lost), findings, decide)
        if condition.damaged:
            verdict = partly_unlooked(verdict, plan_of(run, condition), condition.lost, condition.doubts)
        elif not condition.sealed:
            verdict = with_doubts(verdict, condition.doubts)
    run_directory.write_whole(run.verdict, verdict.model_dump_json(indent=1))
    if condition.whole or condition.bounded:
        seal_judged(run)
    return verdict


def _judged(run: RunDirectory, findings: Sequence[Finding] | None, decide: Sequence[str]) -> TrialVerdict:
    """Judges the files as they are."""
    plan = read_plan(run)
    history = History.open(run)
    evidence = _evidence(history, plan)
    verdict = judge(plan, read_findings(run) if findings is None else findings, evidence, decide=decide)
    if plan.alerts:
        verdict = with_alerts(verdict, _alerts(plan, history, evidence, verdict))
    if SERVER_ERRORS in (*decide, *plan.decide):
        verdict = with_server_errors(verdict, complaints_of_run(run, plan, verdict, history))
    verdict = verdict.model_copy(update={"interrupted": run.interrupted.exists()})
    return with_application(verdict, read_application(run)) if run.application.exists() else verdict


def _evidence(history: History, plan: Plan) -> Evidence:
    tables = {name: history.table(name) for name in EVIDENCE_TABLES}
    if history.rows("transactions"):
        tables["transactions"] = history.files["transactions"].read(TRANSACTION_COLUMNS)
    if history.rows("commits"):
        tables["commits"] = history.files["commits"].read(COMMIT_COLUMNS)
    if history.rows("messages"):
        tables["messages"] = history.files["messages"].read(MESSAGE_COLUMNS)
    if history.rows("metrics"):
        tables["metrics"] = history.files["metrics"].read(METRIC_COLUMNS)
    return Evidence.from_run(history, plan, tables)


def judged_tables(run: RunDirectory, condition: Condition) -> Mapping[str, pa.Table]:
    """Returns the tables `facts` and `verdict_inputs` of a checked run (`prozess.harness.result_tables`), computed as the
    verdict is, from the files as they are. Cells of which rows are damaged have no rows. HistoryUnreadable."""
    run = replace(run, lost=condition.lost)
    with naming_unproven(run, condition):
        plan, history = read_plan(run), History.open(run)
        made = tables_of(plan, read_findings(run), _evidence(history, plan), unreadable=history.unreadable)
    return {
        FACTS.name: result_table(FACTS, made.facts),
        VERDICT_INPUTS.name: result_table(VERDICT_INPUTS, made.verdict_inputs),
    }


def write_judged_tables(run: RunDirectory, condition: Condition) -> None:
    """Writes the tables `facts` and `verdict_inputs` of a checked run beside its findings. It does nothing for a run of which
    nothing was read because its files are damaged. StorageFull if there is no room."""
    if condition.readable:
        for name, table in judged_tables(run, condition).items():
            write_whole(run.findings / f"{name}.parquet", table)


def read_application(run: RunDirectory) -> ApplicationVerdict:
    """Returns what a test found of its application. HistoryUnreadable if application.json is not of this version."""
    try:
        return ApplicationVerdict.model_validate_json(read_document(run.application))
    except (OSError, ValueError) as error:
        raise HistoryUnreadable(
            f"{run.application} is not what a test of this version writes: {error}. Run the test again."
        ) from error


def with_application(verdict: TrialVerdict, found: ApplicationVerdict) -> TrialVerdict:
    """Returns the verdict when the application counts, too: what its test forbids violates, and what could not be judged
    although it should have been is unknown."""
    wrong, doubts = found.of(AnomalyOutcome.VIOLATED), found.doubts()
    seen = ", ".join(f"{one.anomaly} {one.count:,} in {one.where}" for one in found.anomalies if one.count)
    own = Verdict.VIOLATED if wrong else Verdict.UNKNOWN if doubts else Verdict.NOT_JUDGED
    whole = verdict.verdict if own is Verdict.NOT_JUDGED else worst([verdict.verdict, own])
    if wrong:
        text = f"Violated by the application: {seen}. Kafka's own promises: {_first_small(verdict.sentence)}"
    elif doubts and whole is Verdict.UNKNOWN:
        text = f"Unknown: {doubts[0].rstrip('.')}. Kafka's own promises: {_first_small(verdict.sentence)}"
    elif seen:
        text = f"{verdict.sentence} Of the application: {seen}; this is a hazard, and the test does not forbid it."
    else:
        text = verdict.sentence
    counts = Counter(verdict.findings)
    for one in found.anomalies:
        counts[one.anomaly] += one.count
    return verdict.model_copy(
        update={
            "verdict": whole,
            "sentence": text,
            "unknown_reasons": (*verdict.unknown_reasons, *doubts),
            "findings": dict(counts),
            "application": found,
            "of_kafka": verdict.verdict,
        }
    )


def _first_small(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _alerts(plan: Plan, history: History, evidence: Evidence, verdict: TrialVerdict) -> tuple[AlertResult, ...]:
    asked = {name for alert in plan.alerts for name in metrics_of(parse_expression(alert.expr))}
    derived = any(name in BY_NAME and BY_NAME[name].origin is Origin.HISTORY for name in asked)
    sends = history.files["sends"].read(("completed_ns", "outcome")) if derived else None
    table = MetricTable(history.table("metrics"), evidence.dictionaries.get("metric", ()), sends)
    steps = evidence.steps
    done = (steps["outcome"] == StepOutcome.DONE) & (steps["done_ns"] != MISSING)
    ended = len(plan.steps) > 0 and int(done.sum()) == len(plan.steps)
    last_s = float(steps["done_ns"][done].max()) / NS_PER_S if ended else None
    return judge_alerts(plan.alerts, table, verdict.faults, schedule_end_s=last_s)
