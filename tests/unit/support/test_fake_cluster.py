"""Nodes of the cluster in memory: it must behave as the protocols say."""

import threading

import pytest

from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.config.impairments import FrozenDisk, Loss, PowerLoss, Wipe
from prozess.harness.errors import ClusterFailed, HarnessFailed, NotReady
from prozess.harness.interfaces import Capability, NodeState
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import Tristate
from tests.support.fake_cluster.builders import TOPIC, node, plan_of, seen
from tests.support.fake_cluster.builders import build as build
from tests.support.fake_cluster.builders import clock as clock
from tests.support.fake_cluster.cluster import FakeCluster

# --- nodes


def test_a_killed_node_is_stopped_and_a_started_one_has_a_new_pid(build):
    cluster, _ = build()
    broker = node(cluster, 1)
    first = broker.os_pid
    broker.kill()
    assert (broker.state(), broker.os_pid) == (NodeState.STOPPED, None)
    broker.kill()
    broker.start()
    assert broker.state() is NodeState.RUNNING
    assert broker.os_pid not in (None, first)
    again = broker.os_pid
    broker.start()
    assert broker.os_pid == again, "start on a running node does nothing"


def test_a_paused_node_goes_on_and_a_paused_one_can_be_killed(build):
    cluster, _ = build()
    broker = node(cluster, 1)
    broker.resume()
    broker.pause()
    assert broker.state() is NodeState.PAUSED
    broker.start()
    assert broker.state() is NodeState.PAUSED, "start is no SIGCONT"
    broker.resume()
    assert broker.state() is NodeState.RUNNING
    broker.pause()
    broker.kill()
    assert broker.state() is NodeState.STOPPED
    broker.pause()
    broker.resume()
    assert broker.state() is NodeState.STOPPED


def test_a_clean_stop_of_a_paused_node_times_out_and_takes_effect_when_it_goes_on(build):
    cluster, _ = build()
    broker = node(cluster, 1)
    broker.pause()
    with pytest.raises(NotReady, match="broker-1 to shut down after SIGTERM"):
        broker.stop(timeout_s=3)
    assert broker.state() is NodeState.PAUSED
    broker.resume()
    assert broker.state() is NodeState.STOPPED


def test_a_clean_stop_hangs_while_no_controller_is_there(build):
    cluster, _ = build()
    node(cluster, 3001).kill()
    with pytest.raises(NotReady):
        node(cluster, 1).stop(timeout_s=3)
    node(cluster, 1).kill()
    node(cluster, 3001).stop(timeout_s=1)


def test_blocks_are_one_way_and_survive_kill_and_start(build):
    cluster, _ = build()
    one, two = node(cluster, 1), node(cluster, 2)
    one.block(two)
    assert one.receives_from(two) is Tristate.NO
    assert two.receives_from(one) is Tristate.YES
    one.kill()
    assert one.receives_from(two) is Tristate.NO
    one.start()
    assert one.receives_from(two) is Tristate.NO
    one.unblock(two)
    one.unblock(two)
    assert one.receives_from(two) is Tristate.YES


def test_what_the_backend_lacks_is_refused_with_the_reason(build):
    cluster, _ = build(capabilities={Capability.KILL: "in memory"})
    assert set(cluster.lacks) == set(Capability) - {Capability.KILL}
    acts = [lambda n: n.pause(), lambda n: n.stop(timeout_s=1), lambda n: n.block(node(cluster, 2))]
    acts += [lambda n: n.impair(FrozenDisk()), lambda n: n.harm(Wipe())]
    for act in acts:
        with pytest.raises(HarnessFailed, match="cannot"):
            act(node(cluster, 1))
    node(cluster, 1).kill()
    assert node(cluster, 1).state() is NodeState.STOPPED
    cluster.teardown()


def test_an_impairment_lasts_until_it_is_repaired_whatever_becomes_of_the_process(build):
    cluster, _ = build()
    one, loss = node(cluster, 1), Loss(share=0.3, source="broker-2")
    one.impair(loss)
    one.impair(loss)
    one.kill()
    one.start()
    assert one.impaired(loss)[0] is Tristate.YES
    assert one.impaired(Loss(share=0.3))[0] is Tristate.NO
    one.repair(loss)
    one.repair(loss)
    assert one.impaired(loss)[0] is Tristate.NO


def test_files_are_changed_only_while_the_node_is_down_and_a_power_loss_ends_it(build):
    cluster, _ = build()
    one = node(cluster, 1)
    with pytest.raises(HarnessFailed, match="down"):
        one.harm(Wipe())
    one.harm(PowerLoss())
    assert one.state() is NodeState.STOPPED
    one.harm(Wipe())


# --- the cluster


def test_setup_and_teardown_can_be_repeated_and_no_data_survives(build, tmp_path):
    cluster, admin = build(TOPIC)
    left = node(cluster, 1).data_directory / "left"
    left.write_text("data")
    node(cluster, 1).block(node(cluster, 2))
    cluster.teardown()
    cluster.teardown()
    assert left.exists(), "after teardown the data stays readable"
    assert {n.state() for n in cluster.nodes} == {NodeState.STOPPED}
    assert node(cluster, 1).receives_from(node(cluster, 2)) is Tristate.UNKNOWN
    assert admin.view(1, ["t"]) is None
    cluster.setup()
    cluster.wait_ready(timeout_s=10)
    assert not left.exists()
    assert admin.view(1, ["t"]) == {}
    assert node(cluster, 1).receives_from(node(cluster, 2)) is Tristate.YES
    cluster.setup()
    cluster.wait_ready(timeout_s=10)


def test_a_cluster_that_was_never_set_up_can_be_taken_down(tmp_path, clock):
    cluster = FakeCluster(plan_of(), RunDirectory(tmp_path), clock=clock)
    cluster.teardown()
    with pytest.raises(ClusterFailed, match="not set up"):
        node(cluster, 1).start()
    with pytest.raises(NotReady):
        cluster.wait_ready(timeout_s=1)


def test_logs_of_stopped_nodes_are_collected(build, tmp_path):
    cluster, _ = build()
    node(cluster, 1).kill()
    cluster.teardown()
    cluster.collect_logs(tmp_path / "kept")
    assert (tmp_path / "kept" / "broker-1.log").read_text() == "started\nkilled\n"
    assert {p.name for p in (tmp_path / "kept").iterdir()} == {f"{n.name}.log" for n in cluster.nodes}


def test_a_cluster_whose_broker_never_starts_is_not_ready(build):
    cluster, _ = build()
    node(cluster, 2).kill()
    with pytest.raises(NotReady, match=r"every broker to see every broker unfenced; last seen: .*2: None"):
        cluster.wait_ready(timeout_s=10)


def test_many_threads_may_look_and_act_at_once(tmp_path):
    clock = SystemClock()
    cluster = FakeCluster(plan_of(), RunDirectory(tmp_path), clock=clock)
    cluster.setup()
    cluster.wait_ready(timeout_s=10)
    admin = cluster.admin()
    admin.create_topics([TOPIC], timeout_s=10)
    failures: list[BaseException] = []

    def work(broker):
        try:
            for _ in range(100):
                node(cluster, broker).pause()
                admin.views(["t"])
                node(cluster, broker).resume()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(broker,)) for broker in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures
    wait_until(lambda: seen(admin, 1) == (1, 0, (1, 2, 3)), awaited="calm", timeout_s=10, clock=clock)
    cluster.teardown()
