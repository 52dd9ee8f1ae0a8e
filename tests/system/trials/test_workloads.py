"""Compaction, a dead cluster and verifiable clients on real Kafka: the control of each fires, the safe cells hold."""

import numpy as np
import pytest

from prozess.harness.recording.metrics import MICRO, code_of
from prozess.harness.schema import NONE, Outcome
from prozess.harness.verdict import AnomalyOutcome, Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.long]  # its cheaper neighbour is test_every_workload.py

CONTROLS = {
    "compaction": ("compacted-away", "1"),
    "dead-cluster": ("lost", "0"),
    "verifiable": ("lost", "1"),
}
"""Trial → (anomaly, acks of the cells that must show it)."""
SETTINGS = {"compaction": ("--set", "traffic.rate_hz=50")}
"""Trial → settings with which it shows the same in less time."""


@pytest.fixture(
    scope="module",
    params=["compaction", "dead-cluster", "verifiable"],
)
def finished(request, run_trial, need):
    need("java")
    need("namespaces")
    done = run_trial(request.param, "--engine", "local", *SETTINGS.get(request.param, ()))
    return request.param, done.verdict, done.history


def test_the_control_fires_and_acks_all_holds(finished):
    name, verdict, _ = finished
    anomaly, acks = CONTROLS[name]
    assert verdict.verdict is Verdict.HELD
    assert next(c for c in verdict.controls if c.anomaly == anomaly).fired
    for cell in verdict.cells:
        judged = cell.anomalies[anomaly]
        if cell.axes["producer.acks"] == "all":
            assert (judged.outcome, judged.proven) == (AnomalyOutcome.HELD, True), cell.name
        elif cell.axes["producer.acks"] != acks:
            assert judged.count == 0, cell.name


def test_what_was_recorded_is_of_the_kind_that_the_trial_is_about(finished):
    name, _, history = finished
    sends, reads = history.table("sends"), history.table("reads")
    if name == "compaction":
        tombstones = sends["size"] == NONE
        assert 0.1 < np.mean(tombstones) < 0.3
        assert (sends["key"][tombstones] != NONE).all()
    elif name == "dead-cluster":
        acks_0 = [c.client for c in history.plan.clients if c.producer is not None and c.producer.acks == "0"]
        of_acks_0 = np.isin(sends["client"], acks_0)
        assert (sends["outcome"][of_acks_0] != Outcome.FAIL).all()
    else:
        java = [c for c in history.plan.clients if c.producer is not None and c.producer.client == "java"]
        for table, role in ((sends, "verifiable-producer"), (reads, "verifiable-consumer")):
            for client in (c.client for c in java if c.role == role):
                assert np.count_nonzero(table["client"] == client) > 100
        told = history.table("metrics")
        for role, metric in (
            ("verifiable-producer", "java_records_sent"),
            ("verifiable-consumer", "java_records_consumed"),
        ):
            known = (told["metric"] == code_of(metric)) & (told["absent"] == 0) & (told["value_micro"] > 100 * MICRO)
            assert set(told["client"][known].tolist()) == {c.client for c in java if c.role == role}
        assert (reads["flags"] == 0).all()
