"""The nemesis on the cluster in memory, where leaders move and sessions expire: any schedule, in any order, heals whole."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.errors import ClusterFailed
from prozess.harness.interfaces import NodeState
from prozess.harness.run_directory import read_json
from prozess.harness.schema import FaultPhase, Tristate
from prozess.nemesis.journal import read_journal
from tests.support.nemesis_bench import FakeBench


class Bench(FakeBench):
    def broken(self):
        """Ids of nodes that are not running, and (receiver, source) of every link that is cut."""
        nodes = self.cluster.nodes
        down = {n.node_id for n in nodes if n.state() is not NodeState.RUNNING}
        cut = {
            (n.node_id, s.node_id)
            for n in nodes
            for s in nodes
            if n is not s and n.receives_from(s) is not Tristate.YES
        }
        return down, cut


def test_the_leader_is_whoever_leads_when_the_fault_strikes(tmp_path):
    bench = Bench(tmp_path / "run")
    first = bench.strike("first", "kill", "leader(0)").nodes
    bench.clock.sleep(30)
    second = bench.strike("second", "kill", "leader(0)").nodes
    assert first == ("broker-1",)
    assert second != first
    assert [entry["nodes"] for entry in read_json(bench.run.resolved)] == [list(first), list(second)]
    bench.nemesis.heal(None)
    assert bench.broken() == (set(), set())


def test_a_leader_cut_off_from_the_controllers_is_no_longer_the_leader_that_is_hit(tmp_path):
    bench = Bench(tmp_path / "run")
    cut = bench.strike("cut", "partition", "leader(0)", others="all")
    bench.clock.sleep(30)
    assert bench.admin.view(1, ["cell-000"])["cell-000", 0].leader == 1, "the zombie still believes in itself"
    assert bench.strike("kill", "kill", "leader(0)").nodes != cut.nodes


TARGETS = st.sampled_from(
    ["leader(0)", "followers(0)", "replicas(0)", "active-controller", "node:broker-1", "node:broker-2"]
)
FAULTS = st.one_of(
    st.tuples(st.just("kill"), TARGETS, st.just({})),
    st.tuples(st.just("pause"), TARGETS, st.just({})),
    st.tuples(
        st.just("partition"),
        TARGETS,
        st.fixed_dictionaries(
            {
                "others": st.sampled_from(["all", "brokers", "controllers", ["broker-3"]]),
                "direction": st.sampled_from(["both", "to-targets", "from-targets"]),
            }
        ),
    ),
)
MOVES = st.lists(
    st.one_of(FAULTS, st.tuples(st.just("heal"), st.integers(0, 5)), st.tuples(st.just("wait"), st.integers(1, 20))),
    min_size=1,
    max_size=8,
)


@settings(max_examples=40, deadline=None)
@given(moves=MOVES)
def test_after_any_faults_and_heals_whatever_is_broken_is_in_the_journal_and_healing_leaves_nothing(moves):
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory) / "run")
        for number, move in enumerate(moves):
            if move[0] == "wait":
                bench.clock.sleep(move[1])
            elif move[0] == "heal":
                bench.nemesis.heal(f"step {move[1]}")
            else:
                fault, target, parameters = move
                before = bench.broken()
                try:
                    bench.strike(f"step {number}", fault, target, **parameters)
                except ClusterFailed:
                    assert bench.broken() == before, "a step that failed broke nothing"
            down, cut = bench.broken()
            ids = {node.name: node.node_id for node in bench.cluster.nodes}
            undos = [entry.undo for entry in read_journal(bench.run.journal).open]
            assert down <= {ids[undo.node] for undo in undos if undo.peer is None}
            assert cut <= {(ids[undo.node], ids[undo.peer]) for undo in undos if undo.peer is not None}
            assert down <= set(bench.nemesis.unhealed())
        bench.nemesis.heal(None)
        assert bench.broken() == (set(), set())
        assert read_journal(bench.run.journal).open == ()
        assert set(bench.nemesis.unhealed()) == set()
        _assert_every_fault_ended(bench.recorder.rows)


def _assert_every_fault_ended(rows):
    def edges(phase):
        return {(r["fault"], r["node"], r["peer"]) for r in rows if FaultPhase(r["phase"]) is phase}

    assert edges(FaultPhase.APPLIED) == edges(FaultPhase.UNDONE) == edges(FaultPhase.UNDO_VERIFIED)
    assert edges(FaultPhase.APPLIED) <= edges(FaultPhase.JOURNALED)
