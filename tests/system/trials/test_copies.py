"""Copying groups on real Kafka: exactly once where the offsets are in the transaction; the weaker ways, and an application
that fails, are reported for what they are."""

import json

import numpy as np
import pytest

from prozess.harness.history.convert import History
from prozess.harness.schema import Outcome
from prozess.harness.verdict import AnomalyOutcome, Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.long]  # its cheaper neighbour is test_every_workload.py

TRIAL = """
name = "copies"
title = "Copiers and applications crash"
settle_s = 1

[variant.properties]
"group.min.session.timeout.ms" = 3000

[[workloads]]
kind = "exactly-once"
traffic = { rate_hz = 20 }
topics = { partitions = 2 }
base = { "copier.session_timeout_ms" = 3000, "copier.processing_ms" = 10, "copier.abort_share" = 0.2 }

[[workloads]]
kind = "exactly-once"
traffic = { rate_hz = 20 }
topics = { partitions = 2 }
isolation_levels = []
base = { "copier.delivery" = "at-least-once", "copier.session_timeout_ms" = 3000, "copier.processing_ms" = 15 }

[[workloads]]
kind = "application"
traffic = { rate_hz = 20 }
topics = { partitions = 2 }
isolation_levels = []
[workloads.base]
"application.command" = [
  "{python}", "{trials}/applications/copy_topic.py", "{bootstrap}", "{input}", "{output}", "{group}", "{instance}",
  "{delivery}",
]

[[workloads]]
kind = "application"
traffic = { rate_hz = 20 }
topics = { partitions = 2 }
isolation_levels = []
base = { "application.command" = ["sh", "-c", "echo not {{json; echo no such option >&2; exit 3"] }

[[workloads]]
kind = "application"
traffic = { rate_hz = 20 }
topics = { partitions = 2 }
isolation_levels = []
base = { "application.command" = ["/no/such/program"] }

[[steps]]
name = "steady"
after = { condition = "elapsed", seconds = 5 }

[[steps]]
name = "crash"
do = { kind = "fault", fault = "kill", targets = ["member(0,0)", "member(1,0)", "member(2,0)"] }

[[steps]]
name = "return"
after = { condition = "elapsed", seconds = 1 }
do = { kind = "heal" }

[[steps]]
name = "steady again"
after = { condition = "elapsed", seconds = 5 }
"""


@pytest.fixture(scope="module")
def finished(run_trial, need):
    """(run directory, verdict)"""
    need("java")
    need("namespaces")
    done = run_trial(TRIAL, "--engine", "local", timeout_s=300, seeds=(1,))
    return done.run, done.verdict


def test_with_the_offsets_in_the_transaction_every_record_is_copied_once(finished):
    run, verdict = finished
    cell = verdict.cells[0]
    assert cell.verdict is Verdict.HELD, cell.anomalies
    assert cell.anomalies["not-exactly-once"].count == 0
    history = History.open(run)
    transactions, positions = history.table("transactions"), history.table("positions")
    aborted = transactions["outcome"] == Outcome.FAIL
    copiers = [c.client for c in history.plan.clients if c.role == "copier" and c.cell == 0]
    assert np.isin(transactions["client"][aborted], copiers).any()
    assert ((positions["event"] == 2) & np.isin(positions["client"], copiers)).any()  # and sought back


def test_weaker_ways_are_permitted_what_they_cost_and_nothing_else(finished):
    for cell in finished[1].cells[1:3]:
        judged = cell.anomalies["not-exactly-once"]
        assert judged.outcome in (AnomalyOutcome.PERMITTED, AnomalyOutcome.POSSIBLE), (cell.name, judged)
        assert judged.forbidden == 0


def test_an_application_that_fails_is_told_with_its_last_words_and_never_held(finished):
    run, verdict = finished
    assert [cell.verdict for cell in verdict.cells[3:]] == [Verdict.UNKNOWN] * 2
    dead = json.loads((run.path / "dead_clients.json").read_text(encoding="utf-8"))
    assert len(dead) == 2, dead
    told = " ".join(dead.values())
    assert "exit code 3; its last words: no such option" in told
    assert "could not be started" in told
    assert "not {json" in (run.logs / "application-application-2-0.stdout").read_text(encoding="utf-8")
