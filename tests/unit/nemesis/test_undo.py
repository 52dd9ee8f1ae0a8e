"""The nemesis heals: undone in any order from any state, by whoever comes after a crash, and open until seen to be undone."""

from itertools import permutations

import pytest

from prozess.harness.errors import ClusterFailed, StorageFull
from prozess.harness.interfaces import NodeState
from prozess.harness.schema import NONE, FaultPhase, Tristate
from prozess.nemesis.journal import UndoState, read_journal
from tests.support.nemesis_bench import bench as bench


def test_one_undo_that_raises_does_not_keep_the_others_from_being_done(bench):
    bench.strike("a", "kill", "node:broker-1")
    bench.strike("b", "pause", "node:broker-2")
    bench.strike("c", "partition", "node:broker-3", others="controllers")
    bench.world.broken["resume", "broker-2"] = RuntimeError("cannot")
    with pytest.raises(ClusterFailed, match="1 of 1 undos did not work: resume broker-2: cannot"):
        bench.nemesis.heal(None)
    assert bench.cluster["broker-1"].observed is NodeState.RUNNING
    assert not bench.cluster["broker-3"].blocked
    assert bench.open() == [("b", "resume", "broker-2")]
    assert bench.nemesis.unhealed() == {2}
    bench.world.broken.clear()
    bench.nemesis.heal(None)
    assert bench.cluster.is_whole()


def test_an_undo_that_is_seen_not_to_work_stays_open(bench):
    bench.strike("b", "pause", "node:broker-2")
    bench.world.deaf.add("resume")
    with pytest.raises(ClusterFailed, match="resume broker-2: the process is paused"):
        bench.nemesis.heal(None)
    assert bench.recorder.phases()[-1] == ("UNDO_VERIFIED", 2, NONE, 0)
    assert bench.open() == [("b", "resume", "broker-2")]


def test_a_history_that_is_full_keeps_no_fault_in_place(bench):
    bench.strike("a", "kill", "node:broker-1")
    bench.strike("b", "pause", "node:broker-2")
    bench.recorder.full_at = FaultPhase.UNDONE
    with pytest.raises(StorageFull):
        bench.nemesis.heal(None)
    assert bench.cluster.is_whole()


def test_healing_twice_and_healing_nothing_do_nothing(bench):
    assert bench.nemesis.heal(None) == []
    assert bench.nemesis.heal("no such step") == []
    bench.strike("a", "kill", "node:broker-1")
    bench.nemesis.heal(None)
    rows, log = len(bench.recorder.rows), len(bench.world.log)
    assert bench.nemesis.heal(None) == []
    assert bench.nemesis.heal("a") == []
    assert (len(bench.recorder.rows), len(bench.world.log)) == (rows, log)


def test_everything_is_undone_newest_first(bench):
    bench.strike("a", "pause", "node:broker-1")
    bench.strike("b", "kill", "node:broker-2")
    bench.world.log.clear()
    bench.nemesis.heal(None)
    assert bench.world.log == [("start", "broker-2"), ("resume", "broker-1")]


@pytest.mark.parametrize("order", list(permutations(["freeze", "kill", "cut"])))
def test_a_node_paused_and_cut_and_killed_is_whole_after_healing_in_any_order(bench, order):
    bench.strike("freeze", "pause", "node:broker-1")
    bench.strike("cut", "partition", "node:broker-1", others="brokers")
    bench.strike("kill", "kill", "node:broker-1")
    for step in order:
        assert all(effect.effect is Tristate.YES for effect in bench.nemesis.heal(step))
    assert bench.cluster.is_whole()
    assert bench.open() == []


def test_a_restart_undoes_a_pause_but_no_cut(bench):
    bench.strike("freeze", "pause", "node:broker-1")
    bench.strike("cut", "partition", "node:broker-2", others=["broker-3"])
    for name in ("broker-1", "broker-2"):
        bench.cluster[name].kill()
        bench.cluster[name].start()
    assert bench.nemesis.unhealed() == {2}
    bench.world.log.clear()
    bench.nemesis.heal(None)
    assert ("resume", "broker-1") not in bench.world.log, "the new process never stood still"
    assert ("unblock", "broker-2", "broker-3") in bench.world.log
    assert bench.cluster.is_whole()


def test_a_link_that_two_steps_cut_opens_when_both_are_healed(bench):
    bench.strike("a", "partition", "node:broker-1", others=["broker-2"], direction="to-targets")
    bench.strike("b", "partition", "node:broker-1", others=["broker-2", "broker-3"], direction="to-targets")
    (effect,) = bench.nemesis.heal("a")
    assert (effect.effect, effect.detail) == (Tristate.NO, "step 'b' still holds it")
    assert bench.cluster["broker-1"].blocked == {"broker-2", "broker-3"}
    assert not any(phase.startswith("UND") for phase, *_ in bench.recorder.phases(fault=0))
    bench.nemesis.heal("b")
    assert bench.cluster.is_whole()
    for fault, count in ((0, 1), (1, 2)):
        assert sum(p[0] == "UNDO_VERIFIED" and p[3] == 1 for p in bench.recorder.phases(fault)) == count
    assert bench.open() == []


def test_a_nemesis_that_comes_after_a_crash_heals_what_the_first_one_broke(bench):
    bench.strike("a", "kill", "node:broker-1")
    bench.strike("b", "partition", "node:broker-2", others="all")
    bench.nemesis = bench.fresh_nemesis()
    assert bench.nemesis.unhealed() == {1, 2}
    bench.nemesis.heal(None)
    assert bench.cluster.is_whole()
    struck = bench.strike("c", "kill", "node:broker-1")
    assert struck.number == 2


def test_journal_marks_follow_the_fault(bench):
    bench.strike("a", "kill", "node:broker-1")
    assert [e.state for e in read_journal(bench.run.journal).entries] == [UndoState.APPLIED]
    bench.nemesis.heal("a")
    assert [e.state for e in read_journal(bench.run.journal).entries] == [UndoState.UNDONE]


def test_an_undo_of_another_version_is_refused_and_stays_open(bench):
    bench.strike("k", "kill", "node:broker-1")
    text = bench.run.journal.read_text().replace('"action": "start"', '"action": "conjure"')
    bench.run.journal.write_text(text)
    with pytest.raises(ClusterFailed, match="conjure"):
        bench.fresh_nemesis().heal(None)
    assert bench.open() == [("k", "conjure", "broker-1")]
