"""The smoke trial on another kind of cluster: with ZooKeeper it loses what it may, and its ground truth is whole."""

import numpy as np
import pytest

from prozess.harness.schema import MetadataKind, MetadataSource
from prozess.harness.verdict import AnomalyOutcome, Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.long]


@pytest.fixture(scope="module")
def smoke(run_trial, need):
    need("java")
    need("namespaces")
    return run_trial("smoke", "--variant", "zookeeper", "--set", "variant.zookeepers=3", "--engine", "local")


def test_smoke_with_zookeeper_holds_and_its_control_fired(smoke):
    assert smoke.verdict.verdict is Verdict.HELD, smoke.verdict.sentence
    (control,) = [control for control in smoke.verdict.controls if control.required]
    assert len(control.fired_in) == len(control.cells) == 8
    for cell in smoke.verdict.cells:
        if cell.axes["producer.acks"] == "all":
            assert cell.anomalies["lost"].outcome is AnomalyOutcome.HELD, cell.name


def test_leaders_and_controllers_are_told_by_zookeepers_own_logs(smoke):
    table = smoke.history.table("metadata")
    truth = table["source"] == MetadataSource.CONTROLLER_LOG
    led = table["kind"][truth] == MetadataKind.PARTITION
    assert set(np.unique(table["partition"][truth][led])) == set(range(56))
    moved = table["leader"][truth][led]
    assert {1} < set(moved[moved >= 0].tolist()), "broker 1 led, and then others"
    controllers = table["node"][truth][table["kind"][truth] == MetadataKind.CONTROLLER]
    assert len(controllers) >= 1
    assert set(controllers.tolist()) <= {1, 2, 3}
    assert {fault.fault for fault in smoke.verdict.faults if fault.effective} == {"pause", "kill"}
