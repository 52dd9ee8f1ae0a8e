"""A fault, an undo, a checker and a kind of workload of another package, on a real cluster."""

import json

import pytest

from prozess.harness.checking.findings import read_findings
from tests.support.added_package import install
from tests.support.command import OURS

pytestmark = pytest.mark.cluster

TRIAL = """
name = "added"
title = "what another package adds"
workload = "more-readers"
metrics = false
topics = { partitions = 1 }

[base]
"topic.min_insync_replicas" = 2

[[steps]]
name = "stop the leader"
after = { condition = "acked", count = 20 }
do = { kind = "fault", fault = "stop-slowly", targets = ["leader(0)"] }

[[steps]]
name = "go on"
after = { condition = "leader-moved", partition = 0 }

[[steps]]
name = "heal"
after = { condition = "elapsed", seconds = 1 }
do = { kind = "heal" }
"""


@pytest.mark.long  # tests/unit/test_extending.py does the same with a cluster that only remembers
def test_what_a_package_adds_runs_as_what_prozess_has(run_trial, tmp_path_factory):
    place = install(tmp_path_factory.mktemp("acme"), tmp_path_factory.mktemp("installed"))
    program = ("env", f"PYTHONPATH={place}", *OURS)
    ran = run_trial(TRIAL, "--engine", "local", program=program)
    (fault,) = ran.verdict.faults
    assert (fault.fault, fault.effective) == ("stop-slowly", True)
    assert fault.end_s is not None
    assert sum(client.role == "reader" for client in ran.history.plan.clients) == 4
    assert "open-ended" in {finding.anomaly for finding in read_findings(ran.run)}
    assert ran.verdict.verdict == "held", ran.verdict.sentence
    assert json.loads(ran.run.versions.read_text("utf-8"))["packages"]["acme-trials"] == "1.0"
