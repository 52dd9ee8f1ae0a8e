"""Where each node of a local cluster is: pure, but for finding free ports where nodes share the host's network."""

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from clusters.network import DATA, OBSERVER, address_of
from clusters.properties import BROKER, ZOOKEEPER, Placement, node_name, node_roles
from harness.configuration import FIRST_CONTROLLER_ID, FIRST_ZOOKEEPER_ID, Variant
from harness.errors import ClusterFailed

PORTS = (9092, 9093, 9094, 9095, 9096, 9097)
"""DATA, OBSERVER, CLIENT, CONTROLLER, CONTROLLEROBSERVER, the metrics agent: in a sandbox, every node has addresses of its
own."""
SHARED_PORTS = range(20_000, 32_000)
"""Below the ephemeral range (32768 on), whose ports any outgoing connection may hold."""
_FIRST_CONTROLLER_HOST, _FIRST_ZOOKEEPER_HOST = 11, 21


def host_number(node_id: int) -> int:
    """Last number of the node's addresses: brokers 1…9, isolated controllers 11…, ZooKeeper servers 21…"""
    if node_id >= FIRST_ZOOKEEPER_ID:
        return node_id - FIRST_ZOOKEEPER_ID + _FIRST_ZOOKEEPER_HOST
    return node_id if node_id < FIRST_CONTROLLER_ID else node_id - FIRST_CONTROLLER_ID + _FIRST_CONTROLLER_HOST


def place_nodes(
    variant: Variant, directory: Path, *, shared_host: bool, relay_ports: Mapping[int, int]
) -> tuple[Placement, ...]:
    """Every node of the variant, brokers last. `shared_host`: no namespaces, so 127.0.0.1, .2, … and free ports.

    ClusterFailed if no free ports are found. BadInput for a variant this backend does not run.
    """
    roles = node_roles(variant)
    hosts = {node_id: host_number(node_id) for node_id in roles}
    ports: Sequence[int] = PORTS
    if shared_host:
        ports = free_ports([f"127.0.0.{host}" for host in hosts.values()], len(PORTS), first=first_port())
    data, observer, client, controller, controller_observer, metrics = ports
    placements = []
    for node_id, of_node in sorted(roles.items(), key=lambda item: (BROKER in item[1], item[0])):
        host = hosts[node_id]
        relayed = relay_ports.get(node_id, 0) if BROKER in of_node else 0
        placements.append(
            Placement(
                node_id=node_id,
                roles=of_node,
                data_address=f"127.0.0.{host}" if shared_host else address_of(host, DATA),
                observer_address=f"127.0.0.{host}" if shared_host else address_of(host, OBSERVER),
                data_port=data,
                observer_port=data if ZOOKEEPER in of_node else observer,
                controller_port=controller,
                controller_observer_port=controller_observer,
                data_directory=directory / node_name(node_id, of_node) / "data",
                client_port=client if relayed else 0,
                relay_port=relayed,
                metrics_port=metrics,
                rack=variant.rack_of(node_id) if BROKER in of_node else None,
            )
        )
    return tuple(placements)


def first_port() -> int:
    """Clusters of several processes look in different places first."""
    return SHARED_PORTS.start + (os.getpid() * 37) % len(SHARED_PORTS)


def free_ports(addresses: Iterable[str], count: int, *, first: int) -> list[int]:
    """`count` ports that nobody listens on, on any of the addresses, searched from `first` on, around."""
    addresses = list(addresses)
    found: list[int] = []
    for shift in range(len(SHARED_PORTS)):
        port = SHARED_PORTS.start + (first - SHARED_PORTS.start + shift) % len(SHARED_PORTS)
        if all(_free(address, port) for address in addresses):
            found.append(port)
            if len(found) == count:
                return found
    raise ClusterFailed(
        f"No {count} free ports on {', '.join(addresses)} between {SHARED_PORTS.start} and {SHARED_PORTS.stop}. "
        "Stop what listens there."
    )


def _free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True
