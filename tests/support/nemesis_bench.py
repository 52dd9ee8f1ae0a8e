"""A nemesis on a cluster that only remembers: nodes whose actions fail, or silently do nothing, as a test says."""

import pytest

from prozess.harness.errors import StorageFull
from prozess.harness.interfaces import NodeState, PartitionView, TopicSpec
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.schedule import FaultAction, Step
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import NONE, TABLES, FaultPhase, Tristate
from prozess.nemesis.journal import read_journal
from prozess.nemesis.nemesis import Nemesis
from tests.support.clock import FakeClock
from tests.support.fake_cluster.cluster import FakeCluster

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


class RememberingNode:
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


class RememberingCluster:
    def __init__(self, world):
        self.nodes = [RememberingNode(world, "controller-3001", 3001, "controller")]
        self.nodes += [RememberingNode(world, f"broker-{b}", b, "broker") for b in (1, 2, 3)]

    def __getitem__(self, name):
        return next(node for node in self.nodes if node.name == name)

    def is_whole(self):
        return all(node.observed is NodeState.RUNNING and not node.blocked for node in self.nodes)


class RememberingAdmin:
    def __init__(self):
        self.leader, self.controller = 1, 3001

    def view(self, node_id, topics, *, timeout_s=2.0):
        view = PartitionView(leader=self.leader, leader_epoch=1, replicas=(1, 2, 3), isr=(1, 2, 3))
        return {(topic, 0): view for topic in topics}

    def active_controller(self, *, timeout_s=2.0):
        return self.controller


class RememberingRecorder:
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


class NemesisBench:
    def __init__(self, path):
        self.run = RunDirectory(path)
        self.run.create()
        plan = make_plan(parse_trial(TRIAL, source="unit"), seed=1)
        self.run.plan.write_text(plan.model_dump_json())
        self.world, self.recorder, self.admin, self.clock = (
            World(),
            RememberingRecorder(),
            RememberingAdmin(),
            FakeClock(),
        )
        self.cluster = RememberingCluster(self.world)
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
    return NemesisBench(tmp_path / "run")


def really_cut(cluster):
    nodes = cluster.nodes
    return {(n.name, s.name) for n in nodes for s in nodes if s is not n and n.receives_from(s) is Tristate.NO}


# ----------------------------------------------------------------------------------------------------------------------
# A nemesis on three brokers in memory, which behave as Kafka's do, on a clock that a test moves.


class Rows:
    """A recorder that keeps `faults` in memory."""

    def __init__(self):
        self.rows = []

    def write(self, table, **columns):
        assert table == "faults"
        self.rows.append(columns)

    def code(self, dictionary, text):
        return 0


class FakeBench:
    """`make_recorder`: of the run's directory; None = one in memory."""

    def __init__(self, path, *, seed=1, timings=None, make_recorder=None, **variant):
        self.run, self.clock = RunDirectory(path), FakeClock()
        self.run.create()
        self.recorder = Rows() if make_recorder is None else make_recorder(self.run)
        self.plan = make_plan(parse_trial(TRIAL | {"variant": variant}, source="unit"), seed=seed)
        self.run.plan.write_text(self.plan.model_dump_json())
        self.cluster = FakeCluster(self.plan, self.run, clock=self.clock, timings=timings)
        self.cluster.setup()
        self.cluster.wait_ready(timeout_s=600)
        self.admin = self.cluster.admin()
        self.admin.create_topics([TopicSpec("cell-000", ((1, 2, 3),))], timeout_s=60)
        self.nemesis = Nemesis(self.run, self.cluster, self.admin, self.recorder, self.clock)

    def strike(self, name, fault, *targets, **parameters):
        action = FaultAction(kind="fault", fault=fault, targets=targets, parameters=parameters)
        return self.nemesis.strike(0, Step(name=name, do=action))
