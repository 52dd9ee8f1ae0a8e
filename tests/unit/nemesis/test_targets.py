"""Roles become nodes: by a majority of the living brokers' own views, never by one broker's answer."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.interfaces import NodeState, PartitionView
from prozess.nemesis.roles import AGREE_S, Roles, TargetMissing, majority_view
from tests.support.clock import FakeClock

KEY = ("cell-000", 0)


@dataclass
class FakeNode:
    name: str
    node_id: int
    roles: frozenset
    observed: NodeState = NodeState.RUNNING

    def state(self):
        return self.observed


@dataclass
class FakeCluster:
    nodes: list


@dataclass
class FakeAdmin:
    answers: dict
    controller: int | None = 3001
    asked: list = field(default_factory=list)

    def view(self, node_id, topics, *, timeout_s=2.0):
        assert topics == [KEY[0]]
        self.asked.append(node_id)
        view = self.answers[node_id]
        return None if view is None else {KEY: view}

    def active_controller(self, *, timeout_s=2.0):
        return self.controller

    def zookeeper_leader(self, *, timeout_s=2.0):
        return 4002


def view(leader, epoch=5, replicas=(1, 2, 3)):
    return PartitionView(leader=leader, leader_epoch=epoch, replicas=replicas, isr=replicas)


def make(answers, *, states=None, controller=3001):
    nodes = [FakeNode("controller-3001", 3001, frozenset({"controller"}))]
    nodes += [FakeNode(f"broker-{b}", b, frozenset({"broker"})) for b in (1, 2, 3)]
    for name, state in (states or {}).items():
        next(n for n in nodes if n.name == name).observed = state
    cluster, admin, clock = FakeCluster(nodes), FakeAdmin(answers, controller), FakeClock()
    return Roles(cluster, admin, lambda: {0: KEY}, clock), cluster, admin, clock


def names(nodes):
    return [node.name for node in nodes]


def test_leader_followers_and_replicas_are_what_the_brokers_agree_on():
    roles, *_ = make({1: view(2), 2: view(2), 3: view(2)})
    assert names(roles.resolve("leader(0)")) == ["broker-2"]
    assert names(roles.resolve("followers(0)")) == ["broker-1", "broker-3"]
    assert names(roles.resolve("replicas(0)")) == ["broker-1", "broker-2", "broker-3"]


def test_a_zombie_leader_that_still_believes_in_itself_is_outvoted():
    roles, *_ = make({1: view(1, epoch=5), 2: view(2, epoch=6), 3: view(2, epoch=6)})
    assert names(roles.resolve("leader(0)")) == ["broker-2"]


def test_a_paused_broker_does_not_count_and_is_not_even_asked_since_it_would_keep_the_fault_waiting():
    states = {"broker-2": NodeState.PAUSED, "broker-3": NodeState.STOPPED}
    roles, _, admin, _ = make({1: view(1), 2: view(2, epoch=9), 3: view(2, epoch=9)}, states=states)
    assert names(roles.resolve("leader(0)")) == ["broker-1"]
    assert admin.asked == [1]


def test_one_answer_of_three_living_brokers_is_not_enough():
    roles, _, _, clock = make({1: view(1), 2: None, 3: None})
    with pytest.raises(TargetMissing, match="a majority of the living brokers to agree on cell-000-0"):
        roles.resolve("leader(0)")
    assert clock.now_ns >= AGREE_S * 1e9


def test_without_a_running_broker_nobody_leads_and_nobody_is_waited_for():
    roles, _, admin, clock = make({}, states={f"broker-{b}": NodeState.PAUSED for b in (1, 2, 3)})
    with pytest.raises(TargetMissing, match="no broker runs now"):
        roles.resolve("leader(0)")
    assert (admin.asked, clock.now_ns) == ([], 0)


def test_brokers_that_disagree_at_first_are_asked_until_they_agree():
    roles, _, admin, clock = make({1: view(1), 2: view(2, epoch=6), 3: None})
    sleep = clock.sleep

    def news_spreads(seconds):
        admin.answers = {b: view(2, epoch=6) for b in (1, 2, 3)}
        sleep(seconds)

    clock.sleep = news_spreads
    assert names(roles.resolve("leader(0)")) == ["broker-2"]
    assert sorted(admin.asked) == [1, 1, 2, 2, 3, 3]


def test_a_partition_without_a_leader_has_no_leader_to_hit_but_has_replicas():
    roles, *_ = make({b: view(-1) for b in (1, 2, 3)})
    with pytest.raises(TargetMissing, match=r"leader\(0\): the partition has no leader now"):
        roles.resolve("leader(0)")
    with pytest.raises(TargetMissing, match="no leader now"):
        roles.resolve("followers(0)")
    assert len(roles.resolve("replicas(0)")) == 3


def test_a_partition_with_one_replica_has_no_followers():
    roles, *_ = make({b: view(1, replicas=(1,)) for b in (1, 2, 3)})
    with pytest.raises(TargetMissing, match="no such replica"):
        roles.resolve("followers(0)")


def test_the_active_controller_is_asked_of_the_quorum():
    roles, *_ = make({})
    assert names(roles.resolve("active-controller")) == ["controller-3001"]
    roles, *_ = make({}, controller=None)
    with pytest.raises(TargetMissing, match="no server says that it has this role"):
        roles.resolve("active-controller")
    roles, *_ = make({}, controller=77)
    with pytest.raises(TargetMissing, match="node 77"):
        roles.resolve("active-controller")


def test_a_node_is_found_by_name_and_an_unknown_one_is_named_with_those_there_are():
    roles, *_ = make({})
    assert names(roles.resolve("node:broker-3")) == ["broker-3"]
    with pytest.raises(TargetMissing, match=r"no node 'broker-9'.*controller-3001, broker-1"):
        roles.resolve("node:broker-9")


def test_an_unknown_partition_is_no_target():
    roles, *_ = make({})
    with pytest.raises(TargetMissing, match="no partition 7"):
        roles.resolve("leader(7)")


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ("all", ["controller-3001", "broker-2", "broker-3"]),
        ("brokers", ["broker-2", "broker-3"]),
        ("controllers", ["controller-3001"]),
        ("followers", ["broker-2", "broker-3"]),
        (["broker-3", "active-controller", "replicas(0)"], ["broker-3", "controller-3001", "broker-2"]),
        (["node:broker-2"], ["broker-2"]),
    ],
)
def test_the_other_side_never_holds_a_target_and_names_each_node_once(others, expected):
    roles, cluster, *_ = make({b: view(1) for b in (1, 2, 3)})
    side = roles.others(others, targets=[cluster.nodes[1]], roles=["leader(0)"])
    assert names(side) == expected


def test_another_side_with_nobody_on_it_is_refused():
    roles, cluster, *_ = make({b: view(1) for b in (1, 2, 3)})
    with pytest.raises(TargetMissing, match="nobody is left"):
        roles.others(["broker-1"], targets=[cluster.nodes[1]], roles=["node:broker-1"])
    with pytest.raises(TargetMissing, match="names none"):
        roles.others("followers", targets=[cluster.nodes[1]], roles=["node:broker-1"])
    with pytest.raises(TargetMissing, match="no node 'brooker-2'"):
        roles.others(["brooker-2"], targets=[cluster.nodes[1]], roles=["node:broker-1"])


@given(
    views=st.dictionaries(
        st.integers(1, 5), st.none() | st.builds(view, st.integers(-1, 3), st.integers(0, 2)), max_size=5
    ),
    living=st.lists(st.integers(1, 5), unique=True),
)
def test_a_majority_view_is_held_by_more_than_half_of_the_living(views, living):
    asked = {b: None if v is None else {KEY: v} for b, v in views.items()}
    found, _ = majority_view(asked, living, KEY)
    tally = {}
    for broker in living:
        if (v := views.get(broker)) is not None:
            tally[v.leader, v.leader_epoch] = tally.get((v.leader, v.leader_epoch), 0) + 1
    winners = [opinion for opinion, count in tally.items() if 2 * count > len(living)]
    assert ([(found.leader, found.leader_epoch)] if found else []) == winners


def make_with_zookeeper(brokers=5):
    nodes = [FakeNode(f"zookeeper-{n}", 4000 + n, frozenset({"zookeeper"})) for n in (3, 1, 2)]
    nodes += [FakeNode(f"broker-{b}", b, frozenset({"broker"})) for b in range(1, brokers + 1)]
    return Roles(FakeCluster(nodes), FakeAdmin({}), lambda: {}, FakeClock(), rack_of=lambda broker: "ab"[broker % 2])


def test_the_leader_of_zookeeper_is_asked_of_zookeeper():
    assert names(make_with_zookeeper().resolve("zookeeper-leader")) == ["zookeeper-2"]


def test_a_rack_is_its_brokers():
    roles = make_with_zookeeper()
    assert names(roles.resolve("rack(a)")) == ["broker-2", "broker-4"]
    assert names(roles.resolve("rack(b)")) == ["broker-1", "broker-3", "broker-5"]
    with pytest.raises(TargetMissing, match=r"rack\(c\): this means none of the 5 brokers"):
        roles.resolve("rack(c)")


@given(st.integers(1, 9))
def test_a_majority_is_more_than_half_and_a_minority_what_is_left_of_an_odd_number(count):
    roles = make_with_zookeeper(brokers=count)
    majority = names(roles.resolve("majority(brokers)"))
    assert 2 * len(majority) > count >= 2 * (len(majority) - 1)
    if count > 2:
        minority = names(roles.resolve("minority(brokers)"))
        assert 2 * len(minority) < count <= 2 * (len(minority) + 1)
    else:
        with pytest.raises(TargetMissing, match="none of"):
            roles.resolve("minority(brokers)")
    assert names(roles.resolve("minority(zookeepers)")) == ["zookeeper-1"]


def test_zookeepers_are_a_side_of_a_cut():
    roles = make_with_zookeeper()
    targets = roles.resolve("node:broker-1")
    assert sorted(names(roles.others("zookeepers", targets=targets, roles=["node:broker-1"]))) == [
        "zookeeper-1",
        "zookeeper-2",
        "zookeeper-3",
    ]
    assert names(roles.others(("zookeeper-leader", "rack(a)"), targets=targets, roles=[])) == [
        "zookeeper-2",
        "broker-2",
        "broker-4",
    ]
