"""Replay of a real run: the very broker that was hit is hit again, on a new cluster."""

import pytest

from prozess.harness.exit_codes import ExitCode
from prozess.harness.plan.plan import parse_plan
from prozess.harness.run_directory import RunDirectory, read_json
from prozess.harness.verdict import TrialVerdict, Verdict
from tests.support.command import Command

pytestmark = [pytest.mark.cluster, pytest.mark.long]

TRIAL = """
name = "hit-twice"
title = "A leader is killed, and again in the replay"

[variant.properties]
"broker.session.timeout.ms" = 4000
"broker.heartbeat.interval.ms" = 500

[topics]
partitions = 1

[base]
"topic.replication_factor" = 3
"topic.min_insync_replicas" = 2
"producer.enable_idempotence" = true

[[steps]]
name = "by chance"
after = { condition = "elapsed", seconds = 1 }
[steps.do]
kind = "mix"
length_s = 6
[[steps.do.faults]]
fault = "kill"
one_of = ["leader(0)", "followers(0)"]
lasts_s = [1, 3]
[[steps.do.faults]]
fault = "move-controller" # one controller cannot hand over: left out
targets = ["active-controller"]

[[steps]]
name = "it goes on"
after = { condition = "acked", count = 10 }
timeout_s = 60
"""


def test_an_exact_replay_hits_the_same_nodes_with_the_same_steps(run_trial, tmp_path, need):
    need("java")
    first = run_trial(TRIAL)
    assert first.verdict.verdict is Verdict.HELD, first.verdict.sentence
    plan = parse_plan(first.run.plan.read_text(), source="first")
    assert "needs 3 controllers" in plan.left_out["move-controller of active-controller"]
    command = Command(["replay", str(first.run.path), "--exact", "--quiet"], tmp_path)
    try:
        output = command.output(timeout_s=400)
        assert command.process.returncode in (ExitCode.HELD, ExitCode.UNKNOWN), output + command.errors
        again = RunDirectory(command.run_directory)
    finally:
        command.end()
    replayed = parse_plan(again.plan.read_text(), source="again")
    assert replayed.replays == f"{first.run.path.name}, exactly"
    assert [step.after for step in replayed.steps] == [step.after for step in plan.steps]
    assert hits(again) == hits(first.run), "the same nodes, whoever leads this time"
    assert hits(first.run)
    assert TrialVerdict.model_validate_json(again.verdict.read_text()).verdict is not Verdict.VIOLATED


def hits(run):
    """Step → names of all that its roles meant, one role of several or several of one."""
    found = {}
    for entry in read_json(run.resolved):
        found.setdefault(entry["step"], set()).update(entry["nodes"])
    return found
