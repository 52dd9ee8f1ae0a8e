"""Leaders, replicas and controllers of the cluster in memory: they must behave as Kafka's do where a schedule can see it."""

import pytest

from prozess.harness.errors import BadInput, ClusterFailed, NotReady
from prozess.harness.interfaces import TopicSpec
from tests.support.fake_cluster.builders import TOPIC, UNCLEAN, node, seen
from tests.support.fake_cluster.builders import build as build
from tests.support.fake_cluster.builders import clock as clock

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
