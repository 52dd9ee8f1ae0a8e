"""The nemesis: journaled before made, verified by observation, undone in any order from any state."""

import json
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import catalogue
from harness.clock import FakeClock
from harness.errors import BadInput, ClusterFailed, HarnessFailed, NotReady, StorageFull
from harness.impairments import Bandwidth, ClientCut, FullDisk, Latency, Loss
from harness.plan import parse_plan
from harness.planning import make_plan
from harness.protocols import ALL_CLIENTS_NODE, Capability, NodeState, PartitionView
from harness.replay import exactly
from harness.run_directory import RunDirectory
from harness.schedule import FaultAction, Step
from harness.schema import NONE, TABLES, FaultPhase, Tristate
from harness.trial import parse_trial
from nemesis.impair import ImpairingFault
from nemesis.journal import UndoState, read_journal
from nemesis.nemesis import Nemesis
from nemesis.parameters import NoParameters, check_parameters
from nemesis.partition import Partition, cuts

TRIAL = {
    "name": "unit",
    "title": "",
    "topics": {"partitions": 1, "placement": [[1, 2, 3]]},
    "base": {"topic.replication_factor": 3},
}


class World:
    """What nodes share: who is alive, who stands still, which links are cut, and a log of what was done."""

    def __init__(self):
        self.log = []
        self.broken = {}
        """(action, node) → what it raises."""
        self.deaf = set()
        """Actions that do nothing, silently."""

    def act(self, action, node, *more):
        self.log.append((action, node, *more))
        if error := self.broken.get((action, node)):
            raise error
        return action not in self.deaf


class FakeNode:
    def __init__(self, world, name, node_id, role):
        self.world, self.name, self.node_id, self.roles = world, name, node_id, frozenset({role})
        self.observed = NodeState.RUNNING
        self.blocked, self.impairments = set(), set()

    def state(self):
        return self.observed

    def kill(self):
        if self.world.act("kill", self.name):
            self.observed = NodeState.STOPPED

    def stop(self, *, timeout_s):
        assert timeout_s > 0
        if self.world.act("stop", self.name):
            self.observed = NodeState.STOPPED

    def start(self):
        if self.world.act("start", self.name) and self.observed is NodeState.STOPPED:
            self.observed = NodeState.RUNNING

    def pause(self):
        if self.world.act("pause", self.name) and self.observed is NodeState.RUNNING:
            self.observed = NodeState.PAUSED

    def resume(self):
        if self.world.act("resume", self.name) and self.observed is NodeState.PAUSED:
            self.observed = NodeState.RUNNING

    def block(self, source):
        if self.world.act("block", self.name, source.name):
            self.blocked.add(source.name)

    def unblock(self, source):
        if self.world.act("unblock", self.name, source.name):
            self.blocked.discard(source.name)

    def receives_from(self, source):
        if ("receives_from", self.name) in self.world.broken:
            return Tristate.UNKNOWN
        return Tristate.NO if source.name in self.blocked else Tristate.YES

    def impair(self, impairment):
        if self.world.act("impair", self.name):
            self.impairments.add(impairment)

    def repair(self, impairment):
        if self.world.act("repair", self.name):
            self.impairments.discard(impairment)

    def harm(self, harm):
        if self.world.act("harm", self.name) and harm.kind == "vanish":
            self.observed = NodeState.STOPPED
        return f"{harm.kind} done"

    def impaired(self, impairment):
        return Tristate(int(impairment in self.impairments)), "looked"


class FakeCluster:
    def __init__(self, world):
        self.nodes = [FakeNode(world, "controller-3001", 3001, "controller")]
        self.nodes += [FakeNode(world, f"broker-{b}", b, "broker") for b in (1, 2, 3)]

    def __getitem__(self, name):
        return next(node for node in self.nodes if node.name == name)

    def is_whole(self):
        return all(node.observed is NodeState.RUNNING and not node.blocked for node in self.nodes)


class FakeAdmin:
    def __init__(self):
        self.leader, self.controller = 1, 3001

    def view(self, node_id, topics, *, timeout_s=2.0):
        view = PartitionView(leader=self.leader, leader_epoch=1, replicas=(1, 2, 3), isr=(1, 2, 3))
        return {(topic, 0): view for topic in topics}

    def active_controller(self, *, timeout_s=2.0):
        return self.controller


class FakeRecorder:
    def __init__(self):
        self.rows, self.texts = [], []
        self.full_at = None

    def write(self, table, **columns):
        assert columns.keys() <= {c.name for c in TABLES[table].columns}
        if self.full_at is not None and FaultPhase(columns["phase"]) is self.full_at:
            raise StorageFull("no room")
        self.rows.append(columns)
        return len(self.rows) - 1

    def code(self, dictionary, text):
        self.texts.append(f"{dictionary}:{text}")
        return len(self.texts) - 1

    def phases(self, fault=None):
        return [
            (FaultPhase(r["phase"]).name, r["node"], r["peer"], r["effect"])
            for r in self.rows
            if fault is None or r["fault"] == fault
        ]

    def detail(self, row):
        return self.texts[row["detail"]] if row["detail"] != NONE else ""


class Bench:
    def __init__(self, path):
        self.run = RunDirectory(path)
        self.run.create()
        plan = make_plan(parse_trial(TRIAL, source="unit"), seed=1)
        self.run.plan.write_text(plan.model_dump_json())
        self.world, self.recorder, self.admin, self.clock = World(), FakeRecorder(), FakeAdmin(), FakeClock()
        self.cluster = FakeCluster(self.world)
        self.nemesis = self.fresh_nemesis()

    def fresh_nemesis(self):
        return Nemesis(self.run, self.cluster, self.admin, self.recorder, self.clock)

    def strike(self, name, fault, *targets, **parameters):
        action = FaultAction(kind="fault", fault=fault, targets=targets, parameters=parameters)
        return self.nemesis.strike(7, Step(name=name, do=action))

    def open(self):
        return [(e.step, e.undo.action, e.undo.node) for e in read_journal(self.run.journal).open]


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "run")


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


def test_a_paused_node_is_not_asked_to_shut_down_and_one_that_stays_is_no_effect(bench):
    bench.strike("p", "pause", "node:broker-1")
    with pytest.raises(ClusterFailed, match="broker-1 cannot be shut down: its process is paused"):
        bench.strike("s", "stop", "node:broker-1")
    bench.world.broken["stop", "broker-2"] = NotReady(awaited="its end", timeout_s=30, last_seen="running")
    with pytest.raises(ClusterFailed, match="stop failed"):
        bench.strike("s", "stop", "node:broker-2")
    assert bench.open() == [("p", "resume", "broker-1")]


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


def test_one_undo_that_raises_does_not_keep_the_others_from_being_done(bench):
    bench.strike("a", "kill", "node:broker-1")
    bench.strike("b", "pause", "node:broker-2")
    bench.strike("c", "partition", "node:broker-3", others="controllers")
    bench.world.broken["resume", "broker-2"] = RuntimeError("cannot")
    with pytest.raises(ClusterFailed, match="1 of 4 undos did not work: resume broker-2: cannot"):
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


def really_cut(cluster):
    nodes = cluster.nodes
    return {(n.name, s.name) for n in nodes for s in nodes if s is not n and n.receives_from(s) is Tristate.NO}


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
    exact = exactly(plan, json.loads(bench.run.resolved.read_text())).steps[7]
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
    assert Partition().needs_for({"others": ["clients", "broker-2"]}) == {Capability.CUT_CLIENTS}
    assert Partition().needs_for({"others": "everybody"}) == {Capability.CUT_CLIENTS}
    assert Partition().needs_for({}) == Partition().needs_for({"shape": "ring"}) == frozenset()
    assert Partition().spares({"others": "clients"}) == Partition().spares({"others": ["clients"]}) == Partition.needs
    assert Partition().spares({"others": "everybody"}) == Partition().spares({}) == frozenset()


@pytest.mark.parametrize(
    ("fault", "parameters", "says"),
    [
        ("partition", {"direction": "sideways"}, "direction = 'sideways': Input should be 'both'"),
        ("partition", {"others": "everyone"}, "others = 'everyone': it must be one of all, brokers"),
        ("partition", {"others": []}, "others = .*a list, not empty"),
        ("partition", {"others": ["boss(1)"]}, "'boss.1.' is not a role"),
        ("partition", {"direction": 3}, "direction = 3"),
        ("partition", {"shape": "star"}, "shape = 'star'"),
        ("partition", {"shape": "ring", "others": "brokers"}, "of the targets alone"),
        ("partition", {"shape": "halves", "direction": "to-targets"}, "of the targets alone"),
        ("loss", {"share": 0}, "share = 0: Input should be greater than"),
        ("loss", {}, "the parameter 'share' is missing"),
        ("bandwidth", {"bytes_per_s": 1}, "bytes_per_s = 1: Input should be greater"),
        ("reset", {"others": "nobody"}, "others = 'nobody': it must be one of"),
        ("partition", {"directions": "both"}, "no parameter 'directions'; .*Did you mean 'direction'"),
        ("kill", {"signal": 9}, "fault 'kill': there is no parameter 'signal'; it takes none"),
        ("maim", {}, "fault 'maim' is not known. Known: .*kill"),
    ],
)
def test_wrong_parameters_are_refused_when_a_trial_is_planned(fault, parameters, says):
    with pytest.raises(BadInput, match=says):
        check_parameters(fault, parameters)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"others": "followers", "direction": "to-targets"},
        {"others": ["broker-1", "leader(0)", "node:broker-2"]},
        {"shape": "ring"},
    ],
)
def test_good_parameters_of_a_partition_are_accepted(parameters):
    check_parameters("partition", parameters)


def test_nodes_and_partitions_that_parameters_name_are_checked_against_the_plan():
    nodes = ["broker-1", "broker-2"]
    check_parameters("partition", {"others": ["broker-2", "leader(0)"]}, targets=["node:broker-1"], nodes=nodes)
    for named in ("brooker-2", "node:brooker-2"):
        with pytest.raises(BadInput, match=r"others: there is no node 'brooker-2'\. Nodes: broker-1, broker-2"):
            check_parameters("partition", {"others": [named]}, targets=["node:broker-1"], nodes=nodes)
    check_parameters("partition", {"others": "followers"}, targets=["leader(0)"], nodes=nodes)
    with pytest.raises(BadInput, match=r"name none. Give others = \["):
        check_parameters("partition", {"others": "followers"}, targets=["active-controller"], nodes=nodes)


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


# --- impairments


class Thirst(ImpairingFault):
    """The disks of the targets are full."""

    name = "thirst"
    needs = frozenset({Capability.FILL_DISK})
    parameters_model = NoParameters

    def impairments(self, scene, parameters):
        return [(node, FullDisk(left_bytes=7)) for node in scene.targets]


@pytest.fixture
def thirst(monkeypatch):
    monkeypatch.setitem(catalogue.FAULTS, "thirst", "tests.unit.test_nemesis:Thirst")


def test_an_impairment_is_journaled_whole_and_repaired_by_a_nemesis_that_never_saw_it(thirst, bench):
    assert bench.strike("dry", "thirst", "node:broker-1").effective is Tristate.YES
    (entry,) = read_journal(bench.run.journal).open
    assert entry.undo.given == {"kind": "full-disk", "left_bytes": 7}
    assert [effect.effect for effect in bench.fresh_nemesis().heal(None)] == [Tristate.YES]
    assert not bench.cluster["broker-1"].impairments
    assert bench.open() == []


def test_an_impairment_that_two_steps_hold_stays_until_both_are_healed(thirst, bench):
    bench.strike("first", "thirst", "node:broker-1")
    bench.strike("second", "thirst", "node:broker-1")
    assert [effect.effect for effect in bench.nemesis.heal("first")] == [Tristate.NO]
    assert bench.cluster["broker-1"].impairments
    assert [effect.effect for effect in bench.nemesis.heal("second")] == [Tristate.YES]
    assert not bench.cluster["broker-1"].impairments


def test_an_impairment_that_silently_does_nothing_has_no_effect(thirst, bench):
    bench.world.deaf.add("impair")
    assert bench.strike("dry", "thirst", "node:broker-1").effective is Tristate.NO


def test_an_undo_of_another_version_is_refused_and_stays_open(bench):
    bench.strike("k", "kill", "node:broker-1")
    text = bench.run.journal.read_text().replace('"action": "start"', '"action": "conjure"')
    bench.run.journal.write_text(text)
    with pytest.raises(ClusterFailed, match="conjure"):
        bench.fresh_nemesis().heal(None)
    assert bench.open() == [("k", "conjure", "broker-1")]


# --- faults of links


@pytest.mark.parametrize(
    ("fault", "parameters", "wanted"),
    [
        ("loss", {"share": 0.1}, {Loss(share=0.1)}),
        ("loss", {"share": 0.1, "others": "clients"}, {Loss(share=0.1, source="clients")}),
        ("bandwidth", {"bytes_per_s": 20000}, {Bandwidth(bytes_per_s=20000)}),
        (
            "bandwidth",
            {"bytes_per_s": 20000, "others": "followers"},
            {Bandwidth(bytes_per_s=20000, peer="broker-2"), Bandwidth(bytes_per_s=20000, peer="broker-3")},
        ),
    ],
)
def test_a_link_is_impaired_through_a_restart_until_it_is_healed(bench, fault, parameters, wanted):
    assert bench.strike("bad", fault, "leader(0)", **parameters).effective is Tristate.YES
    assert bench.cluster["broker-1"].impairments == wanted
    bench.strike("k", "kill", "node:broker-1")
    bench.nemesis.heal("k")
    assert bench.cluster["broker-1"].impairments == wanted
    assert bench.nemesis.unhealed() == {1}
    bench.fresh_nemesis().heal(None)
    assert not bench.cluster["broker-1"].impairments


def test_a_reset_is_over_at_once_and_says_what_was_reset(bench):
    struck = bench.strike("r", "reset", "leader(0)", others="followers", times=3, every_s=0.5)
    assert struck.effective is Tristate.YES
    assert {e.detail for e in struck.effects} == {"reset-connections done; 3 rounds"}
    assert bench.open() == []
    assert bench.recorder.phases()[-1][0] == "UNDO_VERIFIED"
    assert len([entry for entry in bench.world.log if entry[0] == "harm"]) == 6


def test_a_reset_of_what_is_not_connected_fails_and_leaves_nothing(bench):
    bench.world.broken["harm", "broker-1"] = HarnessFailed("no open connection")
    with pytest.raises(ClusterFailed, match="no open connection"):
        bench.strike("r", "reset", "leader(0)")
    assert bench.open() == []


@pytest.mark.parametrize("silent", [True, False])
def test_a_node_that_vanishes_is_cut_off_before_it_is_killed_and_joined_again(bench, silent):
    struck = bench.strike("v", "half-open", "leader(0)", silent=silent)
    assert struck.effective is Tristate.YES
    done = [entry[0] for entry in bench.world.log]
    assert done.index("harm") > max(i for i, what in enumerate(done) if what in ("block", "impair"))
    assert len(really_cut(bench.cluster)) == (6 if silent else 0)
    assert bool(bench.cluster["broker-1"].impairments) is silent
    bench.fresh_nemesis().heal(None)
    assert bench.cluster.is_whole()
    assert not bench.cluster["broker-1"].impairments


def test_a_node_that_vanishes_and_is_heard_all_the_same_is_put_together_again(bench):
    bench.world.broken["harm", "broker-1"] = HarnessFailed("each was told of its end")
    with pytest.raises(ClusterFailed, match="each was told"):
        bench.strike("v", "half-open", "leader(0)")
    assert bench.cluster.is_whole()
    bench.cluster["broker-2"].kill()
    with pytest.raises(ClusterFailed, match="no process now"):
        bench.strike("w", "half-open", "node:broker-2")


def test_a_link_that_is_late_is_late_for_connections_of_both_ends_and_clients_take_none(bench):
    bench.strike("late", "latency", "leader(0)", others=["broker-2", "clients"], latency_ms=50, jitter_ms=10)
    late = {"latency_ms": 50, "jitter_ms": 10}
    assert bench.cluster["broker-1"].impairments == {Latency(peer=p, **late) for p in ("broker-2", "clients")}
    assert bench.cluster["broker-2"].impairments == {Latency(peer="broker-1", **late)}
    bench.fresh_nemesis().heal(None)
    assert not any(node.impairments for node in bench.cluster.nodes)
    with pytest.raises(BadInput, match="must be less than latency_ms"):
        check_parameters("latency", {"latency_ms": 5, "jitter_ms": 5})


def test_the_two_ways_of_a_link_may_be_late_by_their_own_times_whoever_opened_the_connection(bench):
    bench.strike("late", "latency", "leader(0)", others=["broker-2"], latency_ms=50, jitter_ms=30, back_ms=10)
    (to_target,) = bench.cluster["broker-1"].impairments
    (from_target,) = bench.cluster["broker-2"].impairments
    assert to_target.streams == {"upstream": (50, 30), "downstream": (10, 10)}, "what the target sends is 10 ms late"
    assert from_target.streams == {"upstream": (10, 10), "downstream": (50, 30)}, "and so it is where it opened"
    bench.fresh_nemesis().heal(None)
    assert not any(node.impairments for node in bench.cluster.nodes)


def test_the_two_ways_of_a_link_may_be_narrow_by_their_own_rates(bench):
    bench.strike("narrow", "bandwidth", "leader(0)", others="followers", bytes_per_s=20_000, back_bytes_per_s=90_000)
    followers = ("broker-2", "broker-3")
    assert bench.cluster["broker-1"].impairments == {Bandwidth(bytes_per_s=20_000, peer=name) for name in followers}
    for name in followers:
        assert bench.cluster[name].impairments == {Bandwidth(bytes_per_s=90_000, peer="broker-1")}
    bench.fresh_nemesis().heal(None)
    assert not any(node.impairments for node in bench.cluster.nodes)


@pytest.mark.parametrize("others", [{}, {"others": "clients"}, {"others": "everybody"}, {"others": ["clients"]}])
def test_what_nobody_in_particular_or_clients_send_has_no_limit_of_its_own(others):
    with pytest.raises(BadInput, match="give `others`, without clients"):
        check_parameters("bandwidth", {"bytes_per_s": 20_000, "back_bytes_per_s": 20_000, **others})
