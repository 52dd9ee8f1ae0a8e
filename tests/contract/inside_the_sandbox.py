"""Run by test_local_cluster in the sandbox: every link that faults touch is cut, and the observer's still works."""

import socket
import sys
from pathlib import Path

from prozess.clusters.local.cluster import LocalCluster, LocalNode
from prozess.clusters.protocol.client import WireClient
from prozess.clusters.protocol.requests import describe_quorum_request, metadata_request
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.plan.plan import parse_plan
from prozess.harness.run_directory import RunDirectory

CLOCK = SystemClock()


def connects(server: tuple[str, int]) -> bool:
    try:
        socket.create_connection(server, 1.0).close()
    except TimeoutError:
        return False
    return True


def main(directory: Path) -> None:
    run = RunDirectory(directory)
    cluster = LocalCluster(parse_plan(run.plan.read_text(encoding="utf-8"), source="plan"), run, clock=CLOCK)
    assert cluster.isolation == "namespaces", cluster.isolation
    try:
        cluster.setup()
        cluster.wait_ready(timeout_s=120.0)
        brokers = [node for node in cluster.nodes if "broker" in node.roles]
        cut_everything(cluster, brokers)
    finally:
        cluster.teardown()


def cut_everything(cluster: LocalCluster, brokers: list[LocalNode]) -> None:
    data = {node.name: (node.address, node.placement.data_port) for node in brokers}
    assert all(connects(server) for server in data.values())
    for node in cluster.nodes:
        node.block_address(cluster.client_address)
        for source in cluster.nodes:
            if source is not node:
                node.block(source)
    assert not any(connects(server) for server in data.values()), "a client got through the cut"
    wire = WireClient(lambda: cluster.observer_servers, name="broker", clock=CLOCK)
    for node in brokers:
        answers = wire.ask(node.node_id, metadata_request([]), timeout_s=60)
        assert answers is not None, f"{node.name} does not answer the observer"
    wire.close()
    quorum = WireClient(lambda: cluster.controller_servers, name="controller", clock=CLOCK)
    for controller in cluster.controller_servers:
        told = quorum.ask(controller, describe_quorum_request(), timeout_s=60)
        assert told is not None, f"controller {controller} does not answer the observer"
        assert (told[0].error, told[0].leader) == (0, controller)
    quorum.close()
    for node in cluster.nodes:
        node.unblock_address(cluster.client_address)
        for source in cluster.nodes:
            if source is not node:
                node.unblock(source)
    wait_until(
        lambda: all(connects(server) for server in data.values()),
        awaited="clients to reach every broker again",
        timeout_s=60,
        clock=CLOCK,
    )
    cluster.wait_ready(timeout_s=120.0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stdout.write("observed\n")
