"""The nemesis strikes: journaled before made, verified by observation, and taken back whole where it fails half-way."""

import json

import pytest

from prozess.harness.errors import ClusterFailed, NotReady
from prozess.harness.interfaces import NodeState
from prozess.harness.schema import NONE, Tristate
from tests.support.nemesis_bench import bench as bench


def test_a_kill_is_journaled_applied_verified_undone_and_seen_to_be_undone(bench):
    struck = bench.strike("kill the leader", "kill", "leader(0)")
    assert (struck.nodes, struck.effective) == (("broker-1",), Tristate.YES)
    assert bench.cluster["broker-1"].observed is NodeState.STOPPED
    assert bench.nemesis.unhealed() == {1}
    (effect,) = bench.nemesis.heal("kill the leader")
    assert (effect.node, effect.effect) == ("broker-1", Tristate.YES)
    assert bench.recorder.phases() == [
        ("JOURNALED", 1, NONE, -1),
        ("APPLIED", 1, NONE, -1),
        ("VERIFIED", 1, NONE, 1),
        ("UNDONE", 1, NONE, -1),
        ("UNDO_VERIFIED", 1, NONE, 1),
    ]
    assert all(row["step"] == 7 and row["fault"] == 0 for row in bench.recorder.rows)
    assert (bench.cluster.is_whole(), bench.open(), set(bench.nemesis.unhealed())) == (True, [], set())


def test_the_undo_is_in_the_journal_before_the_fault_is_made(bench):
    seen = []
    node = bench.cluster["broker-1"]
    kill = node.kill
    node.kill = lambda: (seen.append(bench.open()), kill())
    bench.strike("k", "kill", "node:broker-1")
    assert seen == [[("k", "start", "broker-1")]]


def test_a_pause_of_the_followers_hits_both_and_leaves_the_leader_alone(bench):
    struck = bench.strike("freeze", "pause", "followers(0)")
    assert struck.nodes == ("broker-2", "broker-3")
    assert bench.nemesis.unhealed() == {2, 3}
    assert bench.cluster["broker-1"].observed is NodeState.RUNNING
    bench.nemesis.heal("freeze")
    assert bench.cluster.is_whole()


def test_what_was_hit_is_written_down_per_role(bench):
    bench.strike("cut", "partition", "leader(0)", "node:broker-2", others="controllers")
    bench.strike("kill", "kill", "active-controller")
    said = json.loads(bench.run.resolved.read_text())
    assert [(e["step"], e["step_number"], e["role"], e["nodes"]) for e in said] == [
        ("cut", 7, "leader(0)", ["broker-1"]),
        ("cut", 7, "node:broker-2", ["broker-2"]),
        ("cut", 7, "others", ["controller-3001"]),
        ("kill", 7, "active-controller", ["controller-3001"]),
    ]
    assert all(isinstance(e["time_ns"], int) for e in said)


@pytest.mark.parametrize("fault", ["kill", "stop", "pause"])
def test_a_signal_that_did_nothing_is_recorded_as_without_effect(bench, fault):
    bench.world.deaf.add(fault)
    struck = bench.strike("s", fault, "leader(0)")
    assert struck.effective is Tristate.NO
    assert ("VERIFIED", 1, NONE, 0) in bench.recorder.phases()


def test_a_target_that_does_not_exist_now_fails_the_step_and_touches_nothing(bench):
    bench.admin.leader = -1
    with pytest.raises(ClusterFailed, match=r"Step 'k': leader\(0\): the partition has no leader now"):
        bench.strike("k", "kill", "node:broker-2", "leader(0)")
    assert bench.world.log == []
    assert bench.open() == []
    assert bench.recorder.phases() == [("FAILED", NONE, NONE, -1)]
    assert "no leader now" in bench.recorder.detail(bench.recorder.rows[0])
    assert not bench.run.resolved.exists()


def test_a_node_without_a_process_is_neither_killed_nor_paused_and_keeps_its_own_undo(bench):
    bench.strike("first", "kill", "node:broker-1")
    for fault in ("kill", "stop", "pause"):
        with pytest.raises(ClusterFailed, match="broker-1 cannot be"):
            bench.strike("again", fault, "node:broker-2", "node:broker-1")
    assert bench.cluster["broker-2"].observed is NodeState.RUNNING
    assert bench.open() == [("first", "start", "broker-1")]


def test_a_fault_that_fails_half_way_is_taken_back_whole(bench):
    bench.world.broken["kill", "broker-3"] = ClusterFailed("no")
    with pytest.raises(ClusterFailed, match="Step 'k': kill failed: no"):
        bench.strike("k", "kill", "followers(0)")
    assert ("kill", "broker-2") in bench.world.log, "it was made half-way"
    assert bench.cluster.is_whole()
    assert bench.open() == []
    assert [r[:2] for r in bench.recorder.phases() if r[0] == "FAILED"] == [("FAILED", 2), ("FAILED", 3)]
    assert set(bench.nemesis.unhealed()) == set()


def test_a_node_that_shuts_down_is_seen_to_be_gone_and_comes_back_when_healed(bench):
    struck = bench.strike("restart", "stop", "leader(0)")
    assert (struck.effective, bench.cluster["broker-1"].observed) == (Tristate.YES, NodeState.STOPPED)
    assert bench.open() == [("restart", "start", "broker-1")]
    bench.nemesis.heal("restart")
    assert bench.cluster.is_whole()


def test_a_paused_node_is_not_asked_to_shut_down_and_one_that_stays_is_killed_and_the_effect_says_so(bench):
    bench.strike("p", "pause", "node:broker-1")
    with pytest.raises(ClusterFailed, match="broker-1 cannot be shut down: its process is paused"):
        bench.strike("s", "stop", "node:broker-1")
    bench.world.broken["stop", "broker-2"] = NotReady(awaited="its end", timeout_s=30, last_seen="running")
    struck = bench.strike("s", "stop", "node:broker-2", timeout_s=7)
    assert (struck.effective, bench.cluster["broker-2"].observed) == (Tristate.YES, NodeState.STOPPED)
    assert struck.effects[0].detail == "the process is gone: it did not shut down within 7 s, and was killed"
    assert bench.open() == [("p", "resume", "broker-1"), ("s", "start", "broker-2")]
    bench.nemesis.heal(None)
    assert bench.cluster.is_whole()


def test_what_could_not_be_taken_back_at_once_is_healed_later(bench):
    bench.world.broken["block", "controller-3001"] = ClusterFailed("ip refused")
    bench.world.broken["unblock", "broker-1"] = ClusterFailed("ip refused again")
    with pytest.raises(ClusterFailed, match=r"partition failed: ip refused$"):
        bench.strike("cut", "partition", "node:broker-1", others=["controller-3001"])
    assert bench.open() == [("cut", "unblock", "broker-1")]
    bench.world.broken.clear()
    bench.nemesis.heal(None)
    assert bench.cluster.is_whole()
    assert bench.open() == []


def test_an_interruption_in_the_midst_of_a_fault_is_taken_back_and_passes_on(bench):
    bench.world.broken["pause", "broker-3"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        bench.strike("p", "pause", "followers(0)")
    assert bench.cluster.is_whole()
