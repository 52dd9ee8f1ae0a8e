"""Disks, clocks, files and clients' links of containers: effects are seen, Kafka lives through them, and nothing is left."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prozess.clusters.compose.cluster import ComposeCluster
from prozess.clusters.disks.volumes import devices_of
from prozess.clusters.links.links import API_VERSIONS
from prozess.harness.clock import SystemClock
from prozess.harness.config.impairments import (
    CLIENTS,
    Bandwidth,
    ClientCut,
    ClockShift,
    FailedDisk,
    FrozenDisk,
    FullDisk,
    Latency,
    Loss,
    PowerLoss,
    ResetConnections,
    SlowDisk,
    Wipe,
)
from prozess.harness.interfaces import Capability, NodeState
from prozess.harness.schema import Tristate
from tests.contract.test_compose_cluster import left_of
from tests.support.servers.clusters import READY_S, ensure_images, new_run
from tests.support.servers.impaired_nodes import equipped, seen

pytestmark = [pytest.mark.cluster, pytest.mark.docker]
CLOCK = SystemClock()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, need: Callable[[str], None]) -> Iterator[ComposeCluster]:
    for part in ("docker", "loop-disks", "shim"):
        need(part)
    ensure_images("4.4.0")
    run = new_run(tmp_path_factory.mktemp("run"))
    plan = equipped(backend="compose", variant={"metadata_mode": "kraft-combined", "brokers": 2})
    built = ComposeCluster(plan, run, clock=CLOCK)
    try:
        built.setup()
        built.wait_ready(timeout_s=READY_S)
        yield built
    finally:
        built.teardown()
    assert left_of(run) == []
    assert devices_of(run.path) == []
    assert (run.nodes / "broker-1" / "data" / "meta.properties").is_file(), "the disk's contents stay readable"


@pytest.fixture
def node(cluster: ComposeCluster) -> Iterator[Any]:
    """The broker; after the test it runs and is whole."""
    yield cluster.nodes[0]
    cluster.nodes[0].start()
    cluster.wait_ready(timeout_s=READY_S)


def test_what_it_can_do_is_said(cluster: ComposeCluster) -> None:
    assert {
        Capability.CUT_CLIENTS,
        Capability.LOSE,
        Capability.SHAPE,
        Capability.RESET,
        Capability.FILL_DISK,
        Capability.FREEZE_DISK,
        Capability.FAIL_DISK,
        Capability.LOSE_POWER,
        Capability.CHANGE_FILES,
        Capability.SHIFT_CLOCK,
    } <= set(cluster.capabilities)
    assert not set(cluster.capabilities) & set(cluster.lacks)


@pytest.mark.parametrize("way", ["to-node", "from-node"])
def test_clients_are_cut_off_one_way_and_the_observer_is_not(cluster: ComposeCluster, node: Any, way: Any) -> None:
    cut = ClientCut(way=way)
    host, _, port = cluster.bootstrap_servers.split(",")[0].partition(":")
    node.impair(cut)
    seen(node, cut, Tristate.YES)
    with pytest.raises(OSError, match="timed out"):
        socket.create_connection((host, int(port)), 1.0)
    cluster.wait_ready(timeout_s=READY_S)  # over the observer's link
    node.repair(cut)
    seen(node, cut, Tristate.NO)
    socket.create_connection((host, int(port)), 5.0).close()


def test_packets_of_one_node_are_lost_by_chance_at_another(cluster: ComposeCluster, node: Any) -> None:
    loss = Loss(share=0.5, source=cluster.nodes[1].name)
    node.impair(loss)
    seen(node, loss, Tristate.YES)
    node.repair(loss)
    seen(node, loss, Tristate.NO)


def test_what_a_node_sends_to_another_is_slowed_down(cluster: ComposeCluster, node: Any) -> None:
    limit = Bandwidth(bytes_per_s=100_000, peer=cluster.nodes[1].name)
    node.impair(limit)
    seen(node, limit, Tristate.YES)
    node.repair(limit)
    seen(node, limit, Tristate.NO)


def test_what_a_node_opens_to_another_is_late(cluster: ComposeCluster, node: Any, need: Callable[[str], None]) -> None:
    if Capability.DELAY not in cluster.capabilities:
        pytest.skip(cluster.lacks[Capability.DELAY])
    late = Latency(peer=cluster.nodes[1].name, latency_ms=200)
    node.impair(late)
    seen(node, late, Tristate.YES)
    node.repair(late)
    seen(node, late, Tristate.NO)


def answer_s(cluster: ComposeCluster) -> float:
    """How long the first broker takes to answer a client of this host on a new connection."""
    host, _, port = cluster.bootstrap_servers.split(",")[0].partition(":")
    begun_ns = CLOCK.monotonic_ns()
    with socket.create_connection((host, int(port)), 10.0) as connection:
        assert asked(connection)
    return (CLOCK.monotonic_ns() - begun_ns) / 1e9


def asked(connection: socket.socket) -> bytes:
    """The beginning of a broker's answer."""
    connection.sendall(API_VERSIONS)
    return connection.recv(1)


@pytest.mark.long
def test_what_clients_open_is_late_also_once_its_server_is_another_and_is_cut_like_the_rest(
    cluster: ComposeCluster, node: Any
) -> None:
    if Capability.DELAY not in cluster.capabilities:
        pytest.skip(cluster.lacks[Capability.DELAY])
    late, cut = Latency(peer=CLIENTS, latency_ms=400), ClientCut(way="to-node")
    host, _, port = cluster.bootstrap_servers.split(",")[0].partition(":")
    with socket.create_connection((host, int(port)), 5.0) as before:
        node.impair(late)
        with pytest.raises(ConnectionError):
            asked(before)
    seen(node, late, Tristate.YES)
    node.kill()
    node.start()
    cluster.wait_ready(timeout_s=READY_S)
    seen(node, late, Tristate.YES)
    assert answer_s(cluster) >= 0.75
    node.impair(cut)
    with pytest.raises(OSError, match="timed out"):
        answer_s(cluster)
    node.repair(cut)
    node.repair(late)
    seen(node, late, Tristate.NO)
    assert min(answer_s(cluster) for _ in range(5)) < 0.4
    rules = node.network.run_as_root(["iptables-save", "-t", "nat"]).stdout
    assert "-A PREROUTING" not in rules


def test_connections_with_clients_and_nodes_are_reset(node: Any) -> None:
    assert "connections reset" in node.harm(ResetConnections())


@pytest.mark.long
def test_the_clock_of_its_server_is_moved_and_put_right(cluster: ComposeCluster, node: Any) -> None:
    shift = ClockShift(offset_ms=5000)
    node.impair(shift)
    seen(node, shift, Tristate.YES)
    node.repair(shift)
    seen(node, shift, Tristate.NO)


@pytest.mark.long
def test_a_frozen_disk_is_seen_to_hang_and_goes_on(node: Any) -> None:
    node.impair(FrozenDisk())
    seen(node, FrozenDisk(), Tristate.YES)
    node.repair(FrozenDisk())
    seen(node, FrozenDisk(), Tristate.NO)


def test_a_slow_disk_is_seen_to_be_slow_after_a_restart_too(cluster: ComposeCluster, node: Any) -> None:
    if Capability.SLOW_DISK not in cluster.capabilities:
        pytest.skip(cluster.lacks[Capability.SLOW_DISK])
    slow = SlowDisk(bytes_per_s=200_000)
    node.impair(slow)
    node.kill()
    node.start()
    seen(node, slow, Tristate.YES)
    group = Path(f"/proc/{node.os_pid}/cgroup").read_text(encoding="utf-8")
    assert any("blkio" in line and "prozess-" in line for line in group.splitlines())
    node.repair(slow)
    seen(node, slow, Tristate.NO)


@pytest.mark.long
def test_a_full_disk_refuses_writes_and_a_freed_one_takes_them(node: Any) -> None:
    node.impair(FullDisk())
    seen(node, FullDisk(), Tristate.YES)
    node.repair(FullDisk())
    seen(node, FullDisk(), Tristate.NO)


def test_an_io_error_ends_the_server_and_a_repaired_disk_takes_it_back(node: Any) -> None:
    failed = FailedDisk(how="io-error")
    node.impair(failed)
    seen(node, failed, Tristate.YES)
    node.kill()
    node.repair(failed)
    seen(node, failed, Tristate.NO)


@pytest.mark.long
def test_after_a_loss_of_power_it_starts_again(node: Any) -> None:
    assert node.harm(PowerLoss())
    assert node.state() is NodeState.STOPPED


@pytest.mark.long
def test_a_wiped_server_starts_anew(node: Any) -> None:
    node.kill()
    assert "are gone" in node.harm(Wipe())
