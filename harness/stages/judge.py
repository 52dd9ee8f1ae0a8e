"""Stage four: findings and evidence in, `verdict.json` out. Pure but for reading and writing the files of the run."""

import json
from collections.abc import Sequence

from harness.findings import read_findings
from harness.guarantees import Evidence, judge
from harness.history import History
from harness.plan import parse_plan
from harness.protocols import Finding
from harness.run_directory import RunDirectory, read_json
from harness.verdict import TrialVerdict

EVIDENCE_TABLES = ("metadata", "faults", "steps", "clients", "heartbeats", "observations")
REPLICA_COLUMNS = ("partition", "step", "leader_epoch", "base_offset", "last_offset")
"""Where an epoch began, if no checkpoint was read: the rest of `replicas` is the kernels'."""


def judge_run(run: RunDirectory, findings: Sequence[Finding] | None = None) -> TrialVerdict:
    """The verdict of a run; writes `verdict.json`. Findings are read from the run if not given."""
    plan = parse_plan(json.dumps(read_json(run.plan)), source=str(run.plan))
    history = History.open(run)
    tables = {name: history.table(name) for name in EVIDENCE_TABLES}
    if history.rows("replicas"):
        tables["replicas"] = history.files["replicas"].read(REPLICA_COLUMNS)
    evidence = Evidence.from_run(run, plan, tables)
    verdict = judge(plan, read_findings(run) if findings is None else findings, evidence)
    run.verdict.write_text(verdict.model_dump_json(indent=1), encoding="utf-8")
    return verdict
