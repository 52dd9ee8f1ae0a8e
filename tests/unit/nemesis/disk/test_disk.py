"""Faults of disks and files, on a cluster in memory: what is broken is undone in the right order, whatever else strikes."""

from itertools import permutations

import pytest

from prozess.harness.config.impairments import ClockShift, FailedDisk, FrozenDisk, FullDisk, SlowDisk
from prozess.harness.errors import BadInput, ClusterFailed
from prozess.harness.interfaces import Capability, NodeState
from prozess.harness.plan.checks import capabilities_needed, check_parameters
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import Tristate
from prozess.nemesis.journal import read_journal
from tests.support.nemesis_bench import TRIAL, FakeBench


class Bench(FakeBench):
    def node(self, name):
        return next(node for node in self.cluster.nodes if node.name == name)

    @property
    def whole(self):
        return all(n.state() is NodeState.RUNNING and not n.impairments for n in self.cluster.nodes)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "run")


IMPAIRING = [
    ("disk-full", {"left_bytes": 4096}, FullDisk(left_bytes=4096)),
    ("disk-hang", {}, FrozenDisk()),
    ("disk-slow", {"bytes_per_s": 20_000}, SlowDisk(bytes_per_s=20_000)),
    ("disk-error", {"how": "read-only"}, FailedDisk(how="read-only")),
    ("clock", {"offset_ms": 5000, "drift_ppm": -2000}, ClockShift(offset_ms=5000, drift_ppm=-2000)),
]
HARMING = [("power-loss", {}), ("wipe", {}), ("corrupt-file", {"file": "index"})]


@pytest.mark.parametrize(("fault", "parameters", "impairment"), IMPAIRING)
def test_a_disk_is_impaired_as_asked_seen_to_be_and_repaired(bench, fault, parameters, impairment):
    struck = bench.strike("d", fault, "leader(0)", **parameters)
    assert (struck.nodes, struck.effective) == (("broker-1",), Tristate.YES)
    assert bench.node("broker-1").impairments == {impairment}
    assert 1 in bench.nemesis.unhealed()
    assert all(effect.effect is Tristate.YES for effect in bench.nemesis.heal("d"))
    assert bench.whole
    assert read_journal(bench.run.journal).open == ()


@pytest.mark.parametrize(("fault", "parameters", "_"), IMPAIRING[:4:3])
def test_a_node_that_ended_over_its_disk_is_started_after_the_disk_is_repaired(bench, fault, parameters, _):
    bench.strike("d", fault, "node:broker-2", **parameters)
    node = bench.node("broker-2")
    node.end("all log dirs have failed")
    seen = []
    start, repair = node.start, node.repair
    node.start = lambda: (seen.append("start"), start())
    node.repair = lambda impairment: (seen.append("repair"), repair(impairment))
    bench.nemesis.heal(None)
    assert seen == ["repair", "start"]
    assert bench.whole


@pytest.mark.parametrize(("fault", "parameters"), HARMING)
def test_a_harmed_node_is_down_until_it_is_healed_and_what_was_done_is_recorded(bench, fault, parameters):
    struck = bench.strike("h", fault, "leader(0)", **parameters)
    assert (struck.nodes, struck.effective) == (("broker-1",), Tristate.YES)
    assert struck.effects[0].detail == f"{fault.removesuffix('-file')}, in memory"
    assert bench.node("broker-1").state() is NodeState.STOPPED
    bench.nemesis.heal("h")
    assert bench.whole


def test_power_is_lost_by_every_target_at_once(bench):
    struck = bench.strike("dark", "power-loss", "replicas(0)", "active-controller")
    assert set(struck.nodes) == {"broker-1", "broker-2", "broker-3", "controller-3001"}
    assert all(node.state() is NodeState.STOPPED for node in bench.cluster.nodes)
    bench.nemesis.heal(None)
    assert bench.whole


def test_files_of_a_running_node_are_not_touched_it_is_killed_first(bench):
    bench.strike("w", "wipe", "node:broker-3")
    assert bench.node("broker-3").log[-2:] == ["killed", "wipe"]


@pytest.mark.parametrize("fault", ["disk-full", "disk-slow", "disk-hang", "disk-error", "power-loss"])
def test_a_node_that_is_down_has_no_disk_at_work(bench, fault):
    bench.strike("k", "kill", "node:broker-1")
    with pytest.raises(ClusterFailed, match="it has no process now"):
        bench.strike("d", fault, "node:broker-1")
    bench.nemesis.heal(None)
    assert bench.whole


def test_a_controllers_metadata_is_not_wiped(bench):
    with pytest.raises(ClusterFailed, match="the cluster itself"):
        bench.strike("w", "wipe", "active-controller")
    assert bench.whole


@pytest.mark.parametrize("parameters", [{"offset_ms": 300_000}, {"offset_ms": 3_600_000, "drift_ppm": 1000}])
def test_a_controllers_clock_is_moved_far_or_not_at_all(bench, parameters):
    with pytest.raises(ClusterFailed, match="times of leaders and replicas come from its clock"):
        bench.strike("c", "clock", "active-controller", **parameters)
    assert bench.whole
    struck = bench.strike("far", "clock", "active-controller", offset_ms=-3_600_000)
    assert struck.effective is Tristate.YES
    bench.nemesis.heal(None)
    assert bench.whole


def test_a_broken_checkpoint_is_seen_by_the_broker_and_removed_by_healing(bench):
    struck = bench.strike("c", "corrupt-file", "node:broker-2", file="checkpoint")
    assert struck.effective is Tristate.YES
    node = bench.node("broker-2")
    assert node.log[-3:] == ["killed", "corrupt", "started"]
    node.end("all log dirs have failed")
    assert all(effect.effect is Tristate.YES for effect in bench.nemesis.heal("c"))
    assert node.log[-2:] == ["drop-checkpoint", "started"]
    assert bench.whole
    bench.strike("c", "corrupt-file", "node:broker-2", file="checkpoint")
    bench.strike("k", "kill", "node:broker-2")
    bench.nemesis.heal("c")
    assert node.state() is NodeState.STOPPED, "the other step keeps it down"
    bench.nemesis.heal("k")
    assert bench.whole


def test_a_partition_that_is_not_planned_cannot_be_corrupted(bench):
    with pytest.raises(ClusterFailed, match="no partition 7"):
        bench.strike("c", "corrupt-file", "node:broker-1", partition=7)
    bench.nemesis.heal(None)
    assert bench.whole


@pytest.mark.parametrize("order", list(permutations(["full", "cut", "kill"])))
def test_a_full_disk_of_a_cut_and_killed_node_is_healed_in_any_order(bench, order):
    bench.strike("full", "disk-full", "node:broker-1")
    bench.strike("cut", "partition", "node:broker-1", others="brokers")
    bench.strike("kill", "kill", "node:broker-1")
    for step in order:
        bench.nemesis.heal(step)
    assert bench.whole
    assert read_journal(bench.run.journal).open == ()


@pytest.mark.parametrize(
    ("fault", "parameters", "words"),
    [
        ("disk-full", {"left_bytes": -1}, "left_bytes"),
        ("disk-error", {"how": "tired"}, "how"),
        ("disk-slow", {"bytes_per_s": 0}, "bytes_per_s"),
        ("clock", {}, "to be seen"),
        ("clock", {"offset_ms": 3}, "to be seen"),
        ("corrupt-file", {"file": "everything"}, "file"),
        ("power-loss", {"flag": 2}, "is not a known key; remove it"),
        ("disk-hang", {"seconds": 2}, "is not a known key; remove it"),
    ],
)
def test_parameters_that_make_no_sense_are_refused_when_planned(fault, parameters, words):
    with pytest.raises(BadInput, match=words):
        check_parameters(fault, parameters)


def test_a_plan_needs_what_the_faults_of_its_steps_need():
    steps = [
        {"name": name, "do": {"kind": "fault", "fault": fault, "targets": ["leader(0)"]}}
        for name, fault in (("a", "disk-full"), ("b", "wipe"))
    ]
    plan = make_plan(parse_trial(TRIAL | {"steps": steps}, source="unit"), seed=1)
    assert capabilities_needed(plan) == {Capability.FILL_DISK, Capability.KILL, Capability.CHANGE_FILES}
