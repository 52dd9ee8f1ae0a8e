"""Faults of Kafka itself on the cluster in memory: elections, reassignments, configurations, the controller's move."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.errors import BadInput, ClusterFailed
from prozess.harness.interfaces import NodeState, PartitionView
from prozess.harness.plan.checks import check_parameters
from prozess.harness.plan.schedule import FaultAction, Step
from prozess.harness.schema import Tristate
from prozess.nemesis.journal import read_journal
from prozess.nemesis.kafka.reassignments import reassigned
from prozess.nemesis.roles import TargetMissing
from tests.unit.nemesis.process.test_rolling_restart import Bench as RollingBench

KEY = ("cell-000", 0)


class Bench(RollingBench):
    @property
    def partition(self):
        self.cluster.world.advance()
        return self.cluster.world.partitions[KEY]

    def open(self):
        return [entry.step for entry in read_journal(self.run.journal).open]

    def node(self, name):
        return next(node for node in self.cluster.nodes if node.name == name)

    def to_broker_2(self):
        """Broker 1 was away, so 2 leads; all are in sync again."""
        self.strike("away", "kill", "node:broker-1")
        self.clock.sleep(20)
        self.nemesis.heal("away")
        self.clock.sleep(30)
        assert (self.partition.leader, len(self.partition.isr)) == (2, 3)


# --- elections


def test_a_preferred_election_moves_the_lead_to_the_first_replica_and_leaves_nothing_to_heal(tmp_path):
    bench = Bench(tmp_path / "run")
    bench.to_broker_2()
    struck = bench.strike("elect", "elect-preferred", "partition(0)")
    assert (struck.effective, bench.partition.leader) == (Tristate.YES, 1)
    assert bench.open() == []


def test_a_preferred_election_of_who_leads_already_is_a_target_that_is_not_there(tmp_path):
    bench = Bench(tmp_path / "run")
    with pytest.raises(ClusterFailed, match="no target needs such an election"):
        bench.strike("elect", "elect-preferred", "partition(*)")
    assert bench.open() == []


def test_an_election_that_kafka_answers_and_does_not_make_has_no_effect(tmp_path):
    bench = Bench(tmp_path / "run")
    bench.to_broker_2()
    bench.nemesis._admin.elect_leaders = lambda *_, **__: {}
    assert bench.strike("elect", "elect-preferred", "partition(0)").effective is Tristate.NO


def test_an_election_that_kafka_refuses_is_a_fault_that_failed_with_the_reason(tmp_path):
    bench = Bench(tmp_path / "run")
    bench.to_broker_2()
    bench.nemesis._admin.elect_leaders = lambda *_, **__: {KEY: "NOT_CONTROLLER: not me"}
    with pytest.raises(ClusterFailed, match="NOT_CONTROLLER"):
        bench.strike("elect", "elect-preferred", "partition(0)")


def test_an_unclean_election_is_for_a_partition_that_nobody_leads(tmp_path):
    bench = Bench(tmp_path / "run")
    with pytest.raises(ClusterFailed, match="is led by 1"):
        bench.strike("too early", "elect-unclean", "partition(0)")
    for broker in (3, 2, 1):  # one after the other: 1 alone is in sync in the end
        bench.strike(f"kill {broker}", "kill", f"node:broker-{broker}")
        bench.clock.sleep(40)
    bench.nemesis.heal("kill 3")
    bench.clock.sleep(40)
    assert bench.partition.leader < 0
    assert bench.strike("elect", "elect-unclean", "partition(0)").effective is Tristate.YES
    assert bench.partition.leader == 3


def test_a_strike_that_may_miss_leaves_no_trace_where_it_does(tmp_path):
    bench = Bench(tmp_path / "run")
    action = FaultAction(kind="fault", fault="elect-preferred", targets=("partition(0)",))
    with pytest.raises(TargetMissing):
        bench.nemesis.strike(0, Step(name="elect", do=action, may_miss=True))
    assert bench.recorder.rows == []
    with pytest.raises(ClusterFailed):
        bench.nemesis.strike(0, Step(name="elect", do=action))
    assert len(bench.recorder.rows) == 1


# --- reassignments


@pytest.mark.parametrize("how", ["rotate", "shrink", "shrink-leader"])
def test_a_reassignment_is_undone_to_the_letter_and_twice(tmp_path, how):
    bench = Bench(tmp_path / "run")
    before = bench.partition.replicas
    assert bench.strike("move", "reassign", "partition(0)", how=how).effective is Tristate.YES
    assert bench.partition.replicas != before
    assert bench.nemesis.unhealed() == frozenset(), "no node is broken"
    bench.clock.sleep(30)
    assert [effect.effect for effect in bench.nemesis.heal("move")] == [Tristate.YES]
    assert bench.nemesis.heal("move") == []
    assert (bench.partition.replicas, bench.open()) == (before, [])


def test_copies_move_to_a_broker_that_has_none_under_a_throttle_that_is_taken_away(tmp_path):
    bench = Bench(tmp_path / "run", brokers=4)
    struck = bench.strike("move", "reassign", "partition(0)", how="move-leader", throttle_bytes_per_s=1000)
    assert (struck.effective, bench.partition.replicas) == (Tristate.YES, (4, 2, 3))
    assert bench.admin.own_configs("broker:2") == {
        "leader.replication.throttled.rate": "1000",
        "follower.replication.throttled.rate": "1000",
    }
    bench.nemesis.heal("move")
    assert bench.partition.replicas == (1, 2, 3)
    assert all(bench.admin.own_configs(r) == {} for r in ("broker:1", "broker:2", "topic:cell-000"))


def test_a_copy_more_needs_a_broker_to_spare(tmp_path):
    bench = Bench(tmp_path / "run")
    with pytest.raises(ClusterFailed, match="every running broker has a copy already"):
        bench.strike("grow", "reassign", "partition(0)", how="grow")


def test_healing_starts_the_dead_before_it_asks_kafka_to_take_anything_back(tmp_path):
    """The newest first would ask without a controller."""
    bench = Bench(tmp_path / "run")
    bench.strike("no controller", "kill", "active-controller")
    with pytest.raises(ClusterFailed):
        bench.strike("move", "reassign", "partition(0)")
    bench.nemesis.heal("no controller")
    bench.clock.sleep(10)
    bench.strike("configure", "configure", "partition(0)", properties={"segment.ms": 1000})
    bench.strike("move", "reassign", "partition(0)")
    bench.strike("nobody", "kill", "brokers")
    assert sorted({effect.effect for effect in bench.nemesis.heal(None)}) == [Tristate.YES]
    assert (bench.partition.replicas, bench.open()) == ((1, 2, 3), [])
    assert all(node.state() is NodeState.RUNNING for node in bench.cluster.nodes)


VIEWS = st.permutations([1, 2, 3, 4]).flatmap(
    lambda brokers: st.builds(
        lambda count, leader: PartitionView(brokers[min(leader, count - 1)], 0, tuple(brokers[:count]), ()),
        st.integers(1, 4),
        st.integers(0, 3),
    )
)


@given(seen=VIEWS, how=st.sampled_from(["rotate", "move-follower", "move-leader", "grow", "shrink", "shrink-leader"]))
def test_a_new_assignment_names_each_broker_once_and_changes_exactly_what_was_asked(seen, how):
    try:
        new = reassigned(seen, how, [1, 2, 3, 4])
    except TargetMissing:
        return
    before = set(seen.replicas)
    assert len(set(new)) == len(new)
    sizes = {"grow": 1, "shrink": -1, "shrink-leader": -1}
    assert len(new) == len(seen.replicas) + sizes.get(how, 0)
    assert (seen.leader in new) is (how not in ("move-leader", "shrink-leader"))
    assert len(before - set(new)) == (how not in ("rotate", "grow"))


# --- configurations


def test_a_topics_configuration_is_changed_and_put_back_what_was_set_and_what_was_not(tmp_path):
    bench = Bench(tmp_path / "run")
    bench.admin.alter_configs("topic:cell-000", {"segment.ms": "5000"})
    bench.nemesis._admin = bench.admin
    changed = {"segment.ms": 1000, "min.insync.replicas": 3}
    assert bench.strike("change", "configure", "partition(0)", properties=changed).effective is Tristate.YES
    assert bench.admin.own_configs("topic:cell-000") == {"segment.ms": "1000", "min.insync.replicas": "3"}
    bench.nemesis.heal("change")
    assert bench.admin.own_configs("topic:cell-000") == {"segment.ms": "5000"}


def test_min_insync_replicas_may_be_raised_and_not_lowered(tmp_path):
    bench = Bench(tmp_path / "run")
    bench.admin.alter_configs("topic:cell-000", {"min.insync.replicas": "2"})
    with pytest.raises(ClusterFailed, match="is less than the 2"):
        bench.strike("change", "configure", "partition(0)", properties={"min.insync.replicas": 1})
    assert bench.admin.own_configs("topic:cell-000") == {"min.insync.replicas": "2"}


def test_each_broker_that_is_named_is_configured_and_the_controller_is_none(tmp_path):
    bench = Bench(tmp_path / "run")
    bench.strike("change", "configure", "brokers", properties={"log.cleaner.threads": 2})
    assert [bench.admin.own_configs(f"broker:{b}") for b in (1, 2, 3)] == [{"log.cleaner.threads": "2"}] * 3
    bench.nemesis.heal(None)
    assert [bench.admin.own_configs(f"broker:{b}") for b in (1, 2, 3)] == [{}] * 3
    with pytest.raises(ClusterFailed, match="none of the targets is a broker"):
        bench.strike("controller", "configure", "active-controller", properties={"a": 1})


@pytest.mark.parametrize(
    "key", ["unclean.leader.election.enable", "cleanup.policy", "retention.ms", "log.retention.ms"]
)
def test_what_decides_what_may_be_lost_is_not_changed_behind_the_verdicts_back(key):
    with pytest.raises(BadInput, match="verdicts go by what the plan states"):
        check_parameters("configure", {"properties": {key: "1"}})


# --- the controller


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_another_controller_leads_and_the_old_one_comes_back(tmp_path, how):
    bench = Bench(tmp_path / "run", controllers=3)
    before = bench.admin.active_controller()
    assert bench.strike("move", "move-controller", "active-controller", how=how).effective is Tristate.YES
    assert bench.admin.active_controller() not in (None, before)
    bench.nemesis.heal("move")
    assert all(node.state() is NodeState.RUNNING for node in bench.cluster.nodes)


@pytest.mark.parametrize(
    ("targets", "nodes", "why"),
    [
        (["active-controller"], ["controller-3001", "broker-1", "broker-2", "broker-3"], "needs 3 controllers"),
        (["brokers"], ["controller-3001", "controller-3002", "controller-3003"], "moves the active controller"),
    ],
)
def test_a_move_that_cannot_be_is_refused_when_planned(targets, nodes, why):
    with pytest.raises(BadInput, match=why):
        check_parameters("move-controller", {}, targets=targets, nodes=nodes)


@pytest.mark.parametrize("fault", ["elect-preferred", "elect-unclean", "reassign"])
def test_faults_of_partitions_are_aimed_at_partitions(fault):
    with pytest.raises(BadInput, match="is for partitions"):
        check_parameters(fault, {}, targets=["leader(0)"], nodes=["broker-1"])
    check_parameters(fault, {}, targets=["partition(*)"], nodes=["broker-1"])
