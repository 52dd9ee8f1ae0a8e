"""What every backend promises (prozess.harness.interfaces.Cluster and Node), on the in-memory fake and on real Kafka."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.interfaces import Capability, Cluster, Node, NodeState
from prozess.harness.schema import Tristate

READY_S = 120.0
STOP_S = 60.0
CLOCK = SystemClock()


def named(cluster: Cluster, name: str) -> Node:
    return next(node for node in cluster.nodes if node.name == name)


def hears(receiver: Node, source: Node) -> bool:
    """A probe may be late on a busy machine: heard once within the limit is heard."""
    answer = wait_until(
        lambda: receiver.receives_from(source) is Tristate.YES,
        awaited=f"{receiver.name} to hear {source.name}",
        timeout_s=60,
        clock=CLOCK,
        last_seen=lambda: "not heard",
    )
    return bool(answer)


def keeper(cluster: Cluster) -> Node:
    """The one node that keeps the metadata and is no broker."""
    return next(node for node in cluster.nodes if "broker" not in node.roles)


@pytest.fixture
def whole(cluster: Any) -> Iterator[Any]:
    """The shared cluster; whatever a test broke is healed after it."""
    yield cluster
    for node in cluster.nodes:
        for source in cluster.nodes:
            if source is not node:
                node.unblock(source)
        node.resume()
        node.start()
    cluster.wait_ready(timeout_s=READY_S)


def test_every_planned_node_is_there_with_id_and_role(cluster: Any) -> None:
    found = {node.name: (node.node_id, set(node.roles)) for node in cluster.nodes}
    kept = {"controller-3001": (3001, {"controller"}), "zookeeper-1": (4001, {"zookeeper"})}
    assert found == {
        keeper(cluster).name: kept[keeper(cluster).name],
        "broker-1": (1, {"broker"}),
        "broker-2": (2, {"broker"}),
        "broker-3": (3, {"broker"}),
    }


def test_every_node_of_a_ready_cluster_runs_at_an_address_of_its_own(cluster: Any) -> None:
    assert {node.state() for node in cluster.nodes} == {NodeState.RUNNING}
    assert len({node.address for node in cluster.nodes}) == len(cluster.nodes)
    assert len({node.os_pid for node in cluster.nodes}) == len(cluster.nodes)
    assert all(node.os_pid for node in cluster.nodes)


def test_servers_are_named_per_broker_and_controller(cluster: Any) -> None:
    assert set(cluster.observer_servers) == {1, 2, 3}
    assert set(cluster.controller_servers) == ({3001} if keeper(cluster).node_id == 3001 else set())
    assert len(cluster.bootstrap_servers.split(",")) == 3


def test_each_capability_is_either_there_or_lacking_with_a_reason(cluster: Any) -> None:
    assert set(cluster.capabilities) | set(cluster.lacks) == set(Capability)
    assert not set(cluster.capabilities) & set(cluster.lacks)
    assert all(cluster.capabilities.values())
    assert all(cluster.lacks.values())


def test_the_facts_are_json_and_name_version_features_and_settings(cluster: Any) -> None:
    facts = json.loads(json.dumps(cluster.describe()))
    assert facts["settings"]["zookeeper.session.timeout.ms"] == facts["settings"]["broker.session.timeout.ms"] == "4000"
    if "zookeeper" in keeper(cluster).roles:
        assert (facts["kafka_version"], facts["features"]) == ("3.9.2", {})
        return
    assert facts["kafka_version"] == "4.4.0"
    assert facts["features"]["metadata.version"] > 0
    assert facts["features"]["eligible.leader.replicas.version"] == 1


def test_a_killed_node_is_stopped_and_runs_again_when_started(whole: Any) -> None:
    broker = named(whole, "broker-2")
    before = broker.os_pid
    broker.kill()
    assert broker.state() is NodeState.STOPPED
    assert broker.os_pid is None
    broker.kill()  # safe to repeat
    broker.start()
    assert broker.state() is NodeState.RUNNING
    assert broker.os_pid not in (None, before)
    # KRaft refuses a broker until the session of its former self has ended, and the broker tries again by itself; with
    # ZooKeeper it exits, and is started again.
    whole.wait_ready(timeout_s=READY_S)


def test_starting_a_running_node_changes_nothing(cluster: Any) -> None:
    broker = named(cluster, "broker-1")
    before = broker.os_pid
    broker.start()
    assert broker.os_pid == before


def test_a_paused_node_is_seen_paused_and_a_resumed_one_running(whole: Any) -> None:
    broker = named(whole, "broker-3")
    before = broker.os_pid
    broker.pause()
    assert broker.state() is NodeState.PAUSED
    broker.pause()  # safe to repeat
    broker.start()  # safe on a paused node, which it stays
    assert broker.state() is NodeState.PAUSED
    broker.resume()
    assert broker.state() is NodeState.RUNNING
    broker.resume()  # safe to repeat
    assert broker.os_pid == before


def test_a_paused_node_can_be_killed(whole: Any) -> None:
    broker = named(whole, "broker-3")
    broker.pause()
    broker.kill()
    assert broker.state() is NodeState.STOPPED


def test_a_stopped_node_is_gone_and_comes_back(whole: Any) -> None:
    broker = named(whole, "broker-1")
    broker.stop(timeout_s=STOP_S)
    assert broker.state() is NodeState.STOPPED
    broker.stop(timeout_s=STOP_S)  # safe to repeat
    broker.start()
    whole.wait_ready(timeout_s=READY_S)


def test_without_faults_every_node_hears_every_other(cluster: Any) -> None:
    for receiver in cluster.nodes:
        for source in cluster.nodes:
            if source is not receiver:
                assert hears(receiver, source)


def test_a_block_is_one_way(whole: Any) -> None:
    one, two, three = (named(whole, f"broker-{i}") for i in (1, 2, 3))
    two.block(one)
    two.block(one)  # safe to repeat
    assert two.receives_from(one) is Tristate.NO
    assert hears(one, two)
    assert hears(two, three)
    assert hears(three, one)
    two.unblock(one)
    assert hears(two, one)
    two.unblock(one)  # safe to repeat


def test_blocks_in_both_directions_cut_a_pair_and_nothing_else(whole: Any) -> None:
    one, two, controller = named(whole, "broker-1"), named(whole, "broker-2"), keeper(whole)
    one.block(two)
    two.block(one)
    assert (one.receives_from(two), two.receives_from(one)) == (Tristate.NO, Tristate.NO)
    assert hears(controller, one)
    assert hears(one, controller)
    one.unblock(two)
    two.unblock(one)
    assert hears(one, two)
    assert hears(two, one)


def test_a_block_survives_a_restart(whole: Any) -> None:
    one, two = named(whole, "broker-1"), named(whole, "broker-2")
    two.block(one)
    two.kill()
    assert two.receives_from(one) is Tristate.NO
    two.start()
    assert two.receives_from(one) is Tristate.NO
    two.unblock(one)
    assert hears(two, one)


def test_the_network_is_observed_even_of_dead_and_paused_nodes(whole: Any) -> None:
    one, two = named(whole, "broker-1"), named(whole, "broker-2")
    one.kill()
    two.pause()
    assert hears(one, two)
    assert hears(two, one)
    two.block(one)
    assert two.receives_from(one) is Tristate.NO


def test_the_log_of_every_node_is_collected_stopped_ones_too(whole: Any, tmp_path: Any) -> None:
    named(whole, "broker-2").kill()
    whole.collect_logs(tmp_path / "collected")
    sizes = {path.stem: path.stat().st_size for path in (tmp_path / "collected").glob("*.log")}
    assert set(sizes) >= {node.name for node in whole.nodes}
    assert all(sizes[node.name] > 0 for node in whole.nodes)


def test_a_cluster_can_be_torn_down_twice_and_set_up_again(cluster: Any) -> None:
    """Last, since it replaces the shared cluster."""
    former = cluster.describe()["cluster_id"]
    cluster.teardown()
    cluster.teardown()
    cluster.setup()
    cluster.wait_ready(timeout_s=READY_S)
    stays = cluster.describe()["backend"] == "ssh"  # it was there before, with whatever it holds
    assert (cluster.describe()["cluster_id"] == former) is stays
    assert {node.state() for node in cluster.nodes} == {NodeState.RUNNING}
