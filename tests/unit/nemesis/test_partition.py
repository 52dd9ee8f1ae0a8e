"""The fault `partition`: which ways between which nodes and clients it cuts, and how it is seen that they are cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.app.replay import exact_replay
from prozess.harness.config.impairments import ClientCut
from prozess.harness.errors import ClusterFailed
from prozess.harness.interfaces import ALL_CLIENTS_NODE, Capability
from prozess.harness.plan.plan import parse_plan
from prozess.harness.plan.schedule import FaultAction, Step
from prozess.harness.schema import Tristate
from prozess.nemesis.partition import Partition, PartitionParameters, cuts
from tests.support.nemesis_bench import bench as bench
from tests.support.nemesis_bench import really_cut


@pytest.mark.parametrize(
    ("direction", "cut"),
    [
        ("both", {(1, 2), (1, 3), (2, 1), (3, 1)}),
        ("to-targets", {(1, 2), (1, 3)}),
        ("from-targets", {(2, 1), (3, 1)}),
    ],
)
def test_a_partition_cuts_exactly_the_directions_asked_for_and_heals_them(bench, direction, cut):
    struck = bench.strike("cut", "partition", "leader(0)", others="followers", direction=direction)
    assert struck.effective is Tristate.YES
    brokers = [n for n in bench.cluster.nodes if n.node_id < 3000]
    really = {(n.node_id, s.node_id) for n in brokers for s in brokers if n.receives_from(s) is Tristate.NO}
    assert really == cut
    assert {(r[1], r[2]) for r in bench.recorder.phases() if r[0] == "VERIFIED" and r[3] == 1} == cut
    assert bench.nemesis.unhealed() == {1}, "only the side aimed at counts as hit"
    assert all(effect.effect is Tristate.YES for effect in bench.nemesis.heal(None))
    assert bench.cluster.is_whole()


@pytest.mark.parametrize(("shape", "left"), [("halves", 1), ("bridge", 0), ("ring", 0)])
def test_of_a_shape_only_those_without_a_majority_count_as_hit(bench, shape, left):
    """Three brokers: halves leave one alone; on a bridge and on a ring each still hears two."""
    bench.strike("cut", "partition", "brokers", shape=shape)
    hit = bench.nemesis.unhealed()
    assert len(hit) == left
    assert hit <= {1, 2, 3}
    bench.nemesis.heal(None)
    assert set(bench.nemesis.unhealed()) == set()


def test_a_cut_that_lets_datagrams_through_is_recorded_as_without_effect(bench):
    bench.world.deaf.add("block")
    struck = bench.strike("cut", "partition", "leader(0)", others="followers")
    assert struck.effective is Tristate.NO
    assert {e.detail for e in struck.effects} == {"datagrams still arrive"}


def test_a_one_way_cut_that_closes_the_other_way_too_is_not_the_fault_asked_for(bench):
    node = bench.cluster["broker-2"]
    bench.cluster["broker-1"].blocked.add("broker-2")
    struck = bench.strike("cut", "partition", "node:broker-1", others=["broker-2"], direction="from-targets")
    assert node.blocked == {"broker-1"}
    assert struck.effective is Tristate.UNKNOWN
    assert "the other way is cut as well" in struck.effects[0].detail


def test_a_cut_nobody_can_observe_is_unknown(bench):
    bench.world.broken["receives_from", "broker-2"] = True
    struck = bench.strike("cut", "partition", "node:broker-1", others=["broker-2"])
    assert struck.effective is Tristate.UNKNOWN


@pytest.mark.parametrize("shape", ["halves", "bridge", "ring"])
def test_a_shape_is_drawn_by_the_seed_recorded_cut_and_healed(bench, shape):
    struck = bench.strike("cut", "partition", "brokers", shape=shape)
    assert struck.effective is Tristate.YES
    cut = really_cut(bench.cluster)
    assert cut == {(e.node, e.peer) for e in struck.effects}
    assert {len(cut), *map(len, cut)} == ({4, 2} if shape == "halves" else {2})
    said = {e["role"]: e["nodes"] for e in json.loads(bench.run.resolved.read_text())}
    assert said.pop("brokers") == ["broker-1", "broker-2", "broker-3"]
    assert sorted(n for nodes in said.values() for n in nodes) == ["broker-1", "broker-2", "broker-3"]
    bench.nemesis.heal("cut")
    assert bench.cluster.is_whole()
    bench.strike("cut", "partition", "brokers", shape=shape)
    assert really_cut(bench.cluster) == cut, "the same plan and step: the same draw"
    bench.strike("again", "partition", "brokers", shape=shape)
    bench.nemesis.heal(None)
    assert bench.cluster.is_whole()


@pytest.mark.parametrize("shape", ["halves", "bridge", "ring", "isolate"])
def test_an_exact_replay_draws_the_same_shape_again_in_a_step_of_any_name(bench, shape):
    bench.strike("cut", "partition", "brokers", shape=shape)
    cut = really_cut(bench.cluster)
    bench.nemesis.heal(None)
    action = FaultAction(kind="fault", fault="partition", targets=("brokers",), parameters={"shape": shape})
    plan = parse_plan(bench.run.plan.read_text(), source="unit")
    before = [Step(name=f"step {n}") for n in range(7)]
    plan = plan.model_copy(update={"steps": (*before, Step(name="cut", do=action))})
    exact = exact_replay(plan, json.loads(bench.run.resolved.read_text())).steps[7]
    assert exact.do.targets == ("node:broker-1", "node:broker-2", "node:broker-3")
    bench.nemesis.strike(7, exact.model_copy(update={"name": "another"}))
    assert really_cut(bench.cluster) == cut


def test_of_a_shape_what_is_not_cut_must_be_open(bench):
    bench.cluster["broker-1"].blocked |= {"broker-2", "broker-3"}
    bench.cluster["broker-2"].blocked |= {"broker-1", "broker-3"}
    struck = bench.strike("cut", "partition", "brokers", shape="bridge")
    assert struck.effective is Tristate.UNKNOWN
    assert "is not open: another shape" in struck.effects[0].detail


def test_isolated_nodes_are_cut_from_everybody_and_each_other(bench):
    bench.strike("cut", "partition", "node:broker-1", "node:broker-2", shape="isolate")
    cut = really_cut(bench.cluster)
    assert len(cut) == 2 * 5, "all pairs of four nodes but the one of the two that are left alone"
    assert not {("broker-3", "controller-3001"), ("controller-3001", "broker-3")} & cut


def test_halves_by_rack_take_racks_and_are_refused_without(bench):
    with pytest.raises(ClusterFailed, match="has no rack"):
        bench.strike("cut", "partition", "brokers", shape="halves", by="rack")
    assert bench.cluster.is_whole()


@pytest.mark.parametrize(
    ("direction", "ways"),
    [("both", {"to-node", "from-node"}), ("to-targets", {"to-node"}), ("from-targets", {"from-node"})],
)
def test_clients_are_cut_from_a_broker_both_ways_or_one_way(bench, direction, ways):
    struck = bench.strike("cut", "partition", "leader(0)", others="clients", direction=direction)
    assert struck.effective is Tristate.YES
    assert {i.way for i in bench.cluster["broker-1"].impairments} == ways
    assert {(e.node, e.peer) for e in struck.effects} == {("broker-1", "clients")}
    assert {(r["node"], r["peer"]) for r in bench.recorder.rows} == {(1, ALL_CLIENTS_NODE)}
    assert json.loads(bench.run.resolved.read_text())[-1]["nodes"] == ["clients"]
    assert bench.nemesis.unhealed() == {1}
    bench.fresh_nemesis().heal(None)
    assert not bench.cluster["broker-1"].impairments


def test_a_one_way_cut_of_clients_that_closes_the_other_way_too_is_not_the_fault_asked_for(bench):
    bench.cluster["broker-1"].impair(ClientCut(way="from-node"))
    struck = bench.strike("cut", "partition", "leader(0)", others="clients", direction="to-targets")
    assert struck.effective is Tristate.UNKNOWN


def test_everybody_is_every_node_and_the_clients(bench):
    bench.strike("cut", "partition", "leader(0)", others="everybody")
    assert len(really_cut(bench.cluster)) == 6
    assert len(bench.cluster["broker-1"].impairments) == 2
    bench.strike("less", "partition", "node:broker-2", others=["broker-3", "clients"])
    assert len(bench.cluster["broker-2"].impairments) == 2
    bench.nemesis.heal(None)
    assert bench.cluster.is_whole()
    assert not any(node.impairments for node in bench.cluster.nodes)


def test_only_a_cut_of_clients_needs_a_backend_that_can_cut_clients():
    cut, given = Partition(), PartitionParameters.model_validate
    assert cut.needs_for(given({"others": ["clients", "broker-2"]})) == {Capability.CUT_CLIENTS}
    assert cut.needs_for(given({"others": "everybody"})) == {Capability.CUT_CLIENTS}
    assert cut.needs_for(given({})) == cut.needs_for(given({"shape": "ring"})) == frozenset()
    assert cut.spares(given({"others": "clients"})) == cut.spares(given({"others": ["clients"]})) == Partition.needs
    assert cut.spares(given({"others": "everybody"})) == cut.spares(given({})) == frozenset()


SIDE = st.sets(st.sampled_from("abcdef"), min_size=1)


@given(targets=SIDE, others=SIDE)
def test_the_two_one_way_cuts_are_disjoint_and_together_the_cut_of_both_ways(targets, others):
    others = others - targets
    inward, outward = (set(cuts(targets, others, d)) for d in ("to-targets", "from-targets"))
    assert inward | outward == set(cuts(targets, others, "both"))
    assert not inward & outward
    assert len(inward) == len(outward) == len(targets) * len(others)
    assert inward == {(source, receiver) for receiver, source in outward}
    assert all(receiver in targets for receiver, _ in inward)
