"""The cluster in memory: it must behave as the protocols say, and as Kafka does where a schedule can see it."""

import threading

import pytest

from clusters.fake import FakeCluster
from harness.clock import FakeClock, SystemClock, wait_until
from harness.errors import BadInput, ClusterFailed, HarnessFailed, NotReady
from harness.impairments import FrozenDisk, Loss, PowerLoss, Wipe
from harness.planning import make_plan
from harness.protocols import Capability, NodeState, TopicSpec
from harness.run_directory import RunDirectory
from harness.schema import Tristate
from harness.trial import parse_trial

TOPIC = TopicSpec("t", ((1, 2, 3),))
UNCLEAN = TopicSpec("u", ((1, 2, 3),), {"unclean.leader.election.enable": "true"})


def plan_of(**variant):
    properties = {"broker.session.timeout.ms": 4000, "replica.lag.time.max.ms": 10000}
    document = {"name": "tiny", "title": "tiny", "variant": {"properties": properties} | variant}
    return make_plan(parse_trial(document, source="here"), seed=1)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def build(clock, tmp_path):
    """A ready cluster and its administration, of this variant."""

    def make(*topics, capabilities=None, **variant):
        options = {} if capabilities is None else {"capabilities": capabilities}
        cluster = FakeCluster(plan_of(**variant), RunDirectory(tmp_path), clock=clock, **options)
        cluster.setup()
        cluster.wait_ready(timeout_s=10)
        admin = cluster.admin()
        admin.create_topics(topics, timeout_s=10)
        return cluster, admin

    return make


def node(cluster, node_id):
    return next(n for n in cluster.nodes if n.node_id == node_id)


def seen(admin, broker, topic="t"):
    view = admin.view(broker, [topic])
    return None if view is None else (view[topic, 0].leader, view[topic, 0].leader_epoch, view[topic, 0].isr)


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


# --- leaders and ISR


def test_topics_are_led_by_the_preferred_replica_with_whole_isr(build):
    _, admin = build(TOPIC)
    assert [seen(admin, broker) for broker in (1, 2, 3)] == [(1, 0, (1, 2, 3))] * 3
    assert admin.view(1, ["other"]) == {}


def test_a_topic_on_an_unknown_broker_or_with_a_known_name_is_refused(build):
    _, admin = build(TOPIC)
    with pytest.raises(BadInput, match=r"\[9\]"):
        admin.create_topics([TopicSpec("x", ((1, 9),))], timeout_s=1)
    with pytest.raises(ClusterFailed, match="exists already"):
        admin.create_topics([TOPIC], timeout_s=1)


def test_a_topic_with_a_dead_replica_is_not_ready(build):
    cluster, admin = build()
    node(cluster, 3).kill()
    with pytest.raises(NotReady, match="whole ISR"):
        admin.create_topics([TOPIC], timeout_s=5)


def test_a_killed_leader_is_replaced_when_its_session_ends_and_not_before(build, clock):
    cluster, admin = build(TOPIC)
    node(cluster, 1).kill()
    clock.sleep(3.9)
    assert seen(admin, 2) == (1, 0, (1, 2, 3))
    assert seen(admin, 1) is None
    clock.sleep(0.2)
    assert seen(admin, 2) == seen(admin, 3) == (2, 1, (2, 3))
    assert admin.living_brokers(2) == {2, 3}
    node(cluster, 1).start()
    clock.sleep(1)
    assert seen(admin, 1) == (2, 1, (1, 2, 3)), "back in sync, but leadership stays"


def test_a_restarted_broker_is_refused_until_its_old_session_ends(build, clock):
    cluster, admin = build(TOPIC)
    node(cluster, 3).kill()
    node(cluster, 3).start()
    clock.sleep(3.5)
    assert seen(admin, 1) == (1, 0, (1, 2, 3))
    clock.sleep(0.6)
    assert admin.living_brokers(1) == {1, 2, 3}
    assert seen(admin, 1) == (1, 0, (1, 2))
    clock.sleep(0.5)
    assert seen(admin, 1) == (1, 0, (1, 2, 3))


def test_a_broker_paused_for_less_than_its_session_loses_nothing(build, clock):
    cluster, admin = build(TOPIC)
    node(cluster, 2).pause()
    clock.sleep(3)
    assert seen(admin, 2) is None
    node(cluster, 2).resume()
    clock.sleep(20)
    assert seen(admin, 2) == (1, 0, (1, 2, 3))


def test_a_clean_stop_hands_leadership_over_at_once(build):
    cluster, admin = build(TOPIC)
    node(cluster, 1).stop(timeout_s=5)
    assert seen(admin, 2) == (2, 1, (2, 3))


def test_a_zombie_goes_on_believing_what_it_knew(build, clock):
    cluster, admin = build(TOPIC)
    zombie, controller = node(cluster, 1), node(cluster, 3001)
    zombie.block(controller)
    clock.sleep(5)
    assert seen(admin, 1) == (1, 0, (1, 2, 3))
    assert seen(admin, 2) == (2, 1, (2, 3))
    assert admin.living_brokers(1) == {1, 2, 3}
    zombie.unblock(controller)
    clock.sleep(1)
    assert seen(admin, 1) == (2, 1, (1, 2, 3))


def test_a_follower_cut_from_its_leader_leaves_the_isr_after_the_lag_time_each_time(build, clock):
    cluster, admin = build(TOPIC)
    leader, follower = node(cluster, 1), node(cluster, 3)
    for _ in range(2):
        leader.block(follower)
        clock.sleep(9.5)
        assert seen(admin, 1) == (1, 0, (1, 2, 3))
        clock.sleep(1)
        assert seen(admin, 1) == (1, 0, (1, 2))
        leader.unblock(follower)
        clock.sleep(1)
        assert seen(admin, 1) == (1, 0, (1, 2, 3))


def test_the_last_in_sync_replica_is_waited_for_unless_unclean_election_is_on(build, clock):
    cluster, admin = build(TOPIC, UNCLEAN)
    for broker in (2, 3, 1):
        node(cluster, broker).kill()
        clock.sleep(5)
    node(cluster, 2).start()
    clock.sleep(2)
    assert seen(admin, 2, "t") == (-1, 1, (1,))
    leader, epoch, isr = seen(admin, 2, "u")
    assert (leader, isr) == (2, (2,))
    assert epoch > 1
    node(cluster, 1).start()
    clock.sleep(2)
    assert seen(admin, 2, "t") == (1, 2, (1, 2))


def test_events_happen_in_order_however_rarely_somebody_looks(build, clock):
    cluster, admin = build(TOPIC)
    node(cluster, 1).kill()
    clock.sleep(2)
    node(cluster, 2).kill()
    clock.sleep(3600)
    assert seen(admin, 3) == (3, 2, (3,)), "first 1 was fenced (2 leads), then 2"


# --- controllers


def test_without_its_only_controller_nothing_is_fenced_and_sessions_begin_anew(build, clock):
    cluster, admin = build(TOPIC)
    controller = node(cluster, 3001)
    controller.kill()
    assert admin.active_controller() is None
    node(cluster, 1).kill()
    clock.sleep(60)
    assert seen(admin, 2) == (1, 0, (1, 2, 3))
    controller.start()
    clock.sleep(1)
    assert admin.active_controller() == 3001
    clock.sleep(2)
    assert seen(admin, 2) == (1, 0, (1, 2, 3)), "the returned controller gives the dead broker its full time"
    clock.sleep(3)
    assert seen(admin, 2) == (2, 1, (2, 3))


def test_another_controller_takes_over_and_the_deposed_one_stays_deposed(build, clock):
    cluster, admin = build(TOPIC, controllers=3)
    assert admin.active_controller() == 3001
    node(cluster, 3001).pause()
    assert admin.active_controller() is None
    clock.sleep(3)
    assert admin.active_controller() == 3002
    node(cluster, 3001).resume()
    clock.sleep(3)
    assert admin.active_controller() == 3002
    node(cluster, 3003).kill()
    clock.sleep(3)
    assert admin.active_controller() == 3002, "two of three are a majority"
    node(cluster, 3001).kill()
    node(cluster, 1).kill()
    clock.sleep(60)
    assert seen(admin, 2) == (1, 0, (1, 2, 3)), "without a majority nobody decides"


def test_combined_nodes_are_brokers_and_controllers(build, clock):
    cluster, admin = build(TOPIC, metadata_mode="kraft-combined")
    assert [n.name for n in cluster.nodes] == ["broker-1", "broker-2", "broker-3"]
    assert admin.active_controller() == 1
    node(cluster, 1).kill()
    clock.sleep(10)
    assert admin.active_controller() == 2
    assert seen(admin, 2) == (2, 1, (2, 3))


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
