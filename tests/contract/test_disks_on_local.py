"""Disks and clocks of a real local cluster: effects are seen, Kafka lives through them, and nothing is left behind."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from prozess.app.wiring import heal_run
from prozess.clusters.disks.volumes import devices_of
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.config.impairments import (
    ClockShift,
    Corrupt,
    FailedDisk,
    FrozenDisk,
    FullDisk,
    PowerLoss,
    SlowDisk,
    Wipe,
)
from prozess.harness.interfaces import Capability, NodeState
from prozess.harness.plan.plan import Plan
from prozess.harness.schema import Tristate
from prozess.workloads.librdkafka import close
from tests.support.servers.clusters import READY_S, new_run, processes_naming
from tests.support.servers.hosted import HostedCluster, HostedNode
from tests.support.servers.impaired_nodes import equipped, seen

pytestmark = pytest.mark.cluster
CLOCK = SystemClock()
ENDS_S = 30.0


def plan_of(brokers: int) -> Plan:
    properties = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "500"}
    return equipped(variant={"brokers": brokers, "properties": properties})


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory, need: Callable[[str], None]) -> Iterator[HostedCluster]:
    for part in ("java", "namespaces", "loop-disks", "shim"):
        need(part)
    cluster = HostedCluster(plan_of(3), new_run(tmp_path_factory.mktemp("run")), clock=CLOCK, close=close)
    try:
        cluster.setup()
        cluster.wait_ready(timeout_s=READY_S)
        yield cluster
    finally:
        cluster.teardown()


def broker(cluster: HostedCluster, number: int) -> HostedNode:
    return next(node for node in cluster.nodes if node.node_id == number)


def ends(node: HostedNode) -> None:
    wait_until(
        lambda: node.state() is NodeState.STOPPED,
        awaited=f"{node.name} to end by itself",
        timeout_s=ENDS_S,
        clock=CLOCK,
        last_seen=lambda: node.state(),
    )


def make_topic(cluster: HostedCluster, name: str, **properties: str) -> None:
    config = {"min.insync.replicas": "2", **{key.replace("_", "."): value for key, value in properties.items()}}
    topic = NewTopic(name, num_partitions=1, replication_factor=3, config=config)
    admin = AdminClient({"bootstrap.servers": cluster.relay_servers})
    admin.create_topics([topic])[name].result(30)


def write(cluster: HostedCluster, topic: str, count: int) -> None:
    """Acknowledged by all in sync, each."""
    outcomes: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.relay_servers, "acks": "all", "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, str(number).encode(), on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(60) == 0
    assert outcomes == [None] * count


def in_sync(cluster: HostedCluster, topic: str, copies: int) -> None:
    """Waits until so many replicas of the topic's partition are in sync: a cluster is ready before."""
    admin = AdminClient({"bootstrap.servers": cluster.relay_servers})

    def isr() -> list[int]:
        described = admin.describe_topics(TopicCollection([topic]))[topic].result(30)
        return sorted(node.id for node in described.partitions[0].isr)

    wait_until(
        lambda: len(isr()) == copies,
        awaited=f"{copies} replicas of {topic} to be in sync",
        timeout_s=READY_S,
        clock=CLOCK,
        last_seen=lambda: str(isr()),
    )


def count_of(cluster: HostedCluster, topic: str) -> int:
    """How many records readers are given up to a last one, written now; without that one."""
    write(cluster, topic, 1)
    consumer = Consumer(
        {"bootstrap.servers": cluster.relay_servers, "group.id": "outside", "enable.auto.commit": False}
    )
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    finally:
        consumer.close()
    return int(end) - 1


def test_the_backend_says_what_it_can_do_to_disks_and_clocks(disks: HostedCluster) -> None:
    ours = {Capability.FILL_DISK, Capability.FREEZE_DISK, Capability.FAIL_DISK, Capability.LOSE_POWER}
    assert ours | {Capability.CHANGE_FILES, Capability.SHIFT_CLOCK} <= disks.capabilities.keys()
    assert not (disks.capabilities.keys() & disks.lacks.keys())


def test_a_broker_whose_disk_is_full_ends_and_comes_back_when_there_is_room(disks: HostedCluster) -> None:
    make_topic(disks, "filled")
    node, full = broker(disks, 1), FullDisk()
    node.impair(full)
    assert "ENOSPC" in seen(node, full, Tristate.YES)
    write(disks, "filled", 10)  # two of three are enough, and the third must write, too
    ends(node)
    node.repair(full)
    node.start()
    seen(node, full, Tristate.NO)
    disks.wait_ready(timeout_s=READY_S)


def test_a_slow_disk_is_slow_also_after_a_restart(disks: HostedCluster, need: Callable[[str], None]) -> None:
    need("disk-groups")
    node, slow = broker(disks, 2), SlowDisk(bytes_per_s=50_000)
    node.impair(slow)
    seen(node, slow, Tristate.YES)
    node.kill()
    node.start()
    disks.wait_ready(timeout_s=READY_S)
    seen(node, slow, Tristate.YES)
    node.repair(slow)
    seen(node, slow, Tristate.NO)


def test_a_broker_whose_disk_hangs_stays_and_goes_on_when_it_moves(disks: HostedCluster) -> None:
    node, frozen = broker(disks, 2), FrozenDisk()
    node.impair(frozen)
    assert "waited" in seen(node, frozen, Tristate.YES)
    assert node.state() is NodeState.RUNNING
    node.repair(frozen)
    seen(node, frozen, Tristate.NO)
    disks.wait_ready(timeout_s=READY_S)


@pytest.mark.parametrize(("how", "errno"), [("read-only", "EROFS"), ("io-error", "EIO")])
def test_a_broker_whose_disk_fails_comes_back_with_a_mended_one(disks: HostedCluster, how: Any, errno: str) -> None:
    node, failed = broker(disks, 3), FailedDisk(how=how)
    node.impair(failed)
    assert errno in seen(node, failed, Tristate.YES)
    node.repair(failed)
    node.start()
    seen(node, failed, Tristate.NO)
    disks.wait_ready(timeout_s=READY_S)


def test_without_power_only_what_was_flushed_is_left_and_that_is_all_there(disks: HostedCluster) -> None:
    make_topic(disks, "flushed", flush_messages="1")
    make_topic(disks, "unflushed")
    for topic in ("flushed", "unflushed"):
        write(disks, topic, 200)
    brokers = [node for node in disks.nodes if "broker" in node.roles]
    for node in brokers:
        assert "bytes of segments are gone" in node.harm(PowerLoss())
        assert node.state() is NodeState.STOPPED
    for node in brokers:
        node.start()
    disks.wait_ready(timeout_s=READY_S)
    assert count_of(disks, "flushed") == 200
    assert count_of(disks, "unflushed") < 200, "the control: acknowledged by all, and on no disk"


def test_a_wiped_broker_copies_everything_and_a_corrupted_one_what_it_lost(disks: HostedCluster) -> None:
    make_topic(disks, "copied")
    write(disks, "copied", 100)
    node = broker(disks, 1)
    for harm in (Wipe(), Corrupt(file="segment", topic="copied", number=0, bytes=64, seed=7)):
        node.kill()
        assert node.harm(harm)
        node.start()
        disks.wait_ready(timeout_s=READY_S)
        in_sync(disks, "copied", 3)
    assert count_of(disks, "copied") == 100


def test_a_running_servers_clock_is_what_its_jvm_says_also_after_a_restart(disks: HostedCluster) -> None:
    for node in (broker(disks, 1), broker(disks, 3001)):
        before, ahead = node.os_pid, ClockShift(offset_ms=7_200_000)
        node.impair(ahead)
        seen(node, ahead, Tristate.YES)
        assert node.os_pid == before, "the same process"
        node.kill()
        node.start()
        assert "off by +7" in seen(node, ahead, Tristate.YES)
        node.repair(ahead)
        seen(node, ahead, Tristate.NO)
    disks.wait_ready(timeout_s=READY_S)


def test_a_host_killed_while_a_disk_is_frozen_leaves_nothing_once_it_is_healed(
    tmp_path: Any, need: Callable[[str], None]
) -> None:
    for part in ("java", "namespaces", "loop-disks", "shim"):
        need(part)
    run = new_run(tmp_path)
    cluster = HostedCluster(plan_of(1), run, clock=CLOCK, close=close)
    cluster.setup()
    cluster.wait_ready(timeout_s=READY_S)
    node = broker(cluster, 1)
    node.impair(FrozenDisk())
    seen(node, FrozenDisk(), Tristate.YES)  # and whoever looked waits for the disk
    os.kill(cluster.host_pid, signal.SIGKILL)
    assert devices_of(run.path)
    report = heal_run(run, clock=CLOCK)
    assert report.clean, report
    assert any("thawed" in line for line in report.done)
    assert devices_of(run.path) == []
    cluster.teardown()
    assert not processes_naming(str(run.path))
