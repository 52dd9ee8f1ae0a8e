"""Stage four: findings and evidence in, `verdict.json` out. Pure but for reading and writing the files of the run."""

import json
from collections.abc import Sequence

from harness.alert_rules import metrics_of, parse_expression
from harness.alerts import judge_alerts, with_alerts
from harness.clock import NS_PER_S
from harness.findings import read_findings
from harness.guarantees import Evidence, judge
from harness.history import History
from harness.metric_series import MetricTable
from harness.metrics import BY_NAME, Origin
from harness.plan import Plan, parse_plan
from harness.protocols import Finding
from harness.run_directory import RunDirectory, read_json
from harness.schema import MISSING, StepOutcome
from harness.verdict import AlertResult, TrialVerdict

EVIDENCE_TABLES = ("metadata", "faults", "steps", "clients", "heartbeats", "observations")
REPLICA_COLUMNS = (
    *("partition", "step", "node", "leader_epoch", "base_offset", "last_offset"),
    *("producer_id", "producer_epoch", "attributes"),
)
"""Where an epoch began, and under which epoch a producer wrote: the rest of `replicas` is the kernels'."""
METRIC_COLUMNS = ("time_ns", "value_micro", "client", "metric", "absent")
"""For what clients said of themselves."""


def judge_run(run: RunDirectory, findings: Sequence[Finding] | None = None) -> TrialVerdict:
    """The verdict of a run; writes `verdict.json`. Findings are read from the run if not given."""
    plan = parse_plan(json.dumps(read_json(run.plan)), source=str(run.plan))
    history = History.open(run)
    tables = {name: history.table(name) for name in EVIDENCE_TABLES}
    if history.rows("replicas"):
        tables["replicas"] = history.files["replicas"].read(REPLICA_COLUMNS)
    if history.rows("metrics"):
        tables["metrics"] = history.files["metrics"].read(METRIC_COLUMNS)
    evidence = Evidence.from_run(run, plan, tables)
    verdict = judge(plan, read_findings(run) if findings is None else findings, evidence)
    if plan.alerts:
        verdict = with_alerts(verdict, _alerts(plan, history, evidence, verdict))
    run.verdict.write_text(verdict.model_dump_json(indent=1), encoding="utf-8")
    return verdict


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
