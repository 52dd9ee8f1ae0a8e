"""The Compose file of a run, pure: a variant and where its nodes are in, the file out. A person's: `clusters.compose_person`.

Each node is two containers. One holds the node's network, and sleeps; the server joins it. So the network of a
node outlives its server: a kill and a start of it undo no cut, and whether datagrams arrive can be seen while it is dead.
It has two links: `data`, which faults touch, and `observer`, which no fault touches.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clusters.engine import NODE_LABEL, RUN_LABEL
from clusters.placements import PORTS
from clusters.properties import (
    BROKER,
    CONTROLLER,
    HEAP,
    JVM_FLAGS,
    ZOOKEEPER,
    Placement,
    node_name,
    node_roles,
    server_properties,
    zookeeper_number,
)
from clusters.zookeeper import JVM_FLAGS as ZOOKEEPER_FLAGS
from harness.configuration import FIRST_CONTROLLER_ID, FIRST_ZOOKEEPER_ID, Variant
from harness.jolokia import agent_flags

NETWORKS = ("data", "observer")
HOLDER = "{}-network"
"""Name of the service that holds a node's network."""
DATA_IN_CONTAINER = "/var/lib/kafka/data"
OURS_IN_CONTAINER = "/opt/prozess"
"""What is bound there may be anywhere on the host, also where the servers' user may not look."""
AGENT_IN_CONTAINER = f"{OURS_IN_CONTAINER}/jolokia.jar"
REGISTRATION_TIMEOUT_MS = 180_000
"""A broker ends itself if no controller takes it for so long: Kafka's minute is short where many start at once."""
ZOOKEEPER_DATA_IN_CONTAINER, ZOOKEEPER_FILE_IN_CONTAINER = "/data", "/conf/zoo.cfg"
_BEFORE_BROKERS, _BEFORE_CONTROLLERS, _BEFORE_ZOOKEEPERS = 10, 30, 50

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Heaps:
    """Options of the JVMs, by role; a combined node is a broker."""

    broker: str = " ".join(HEAP[BROKER])
    controller: str = " ".join(HEAP[CONTROLLER])
    zookeeper: str = " ".join(HEAP[ZOOKEEPER])


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything of a cluster but its variant."""

    images: Mapping[str, str]
    """Name of a node → its image."""
    cluster_id: str
    heaps: Heaps = field(default_factory=Heaps)
    agent: Path | None = None
    """The metrics agent's jar on the host."""
    preloads: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Node → variables that name what is preloaded into its server, and the files of that, all by their paths on the host."""


def place_in_networks(variant: Variant, directory: Path, prefixes: Mapping[str, str]) -> tuple[Placement, ...]:
    """Every node, brokers last, at fixed addresses. `prefixes`: network → first three numbers of its addresses."""
    return tuple(
        placement_of(
            variant, node_id, roles, directory, *(f"{prefixes[name]}.{host_number(node_id)}" for name in NETWORKS)
        )
        for node_id, roles in in_order(variant)
    )


def host_number(node_id: int) -> int:
    """Last number of a node's addresses: brokers 11…, controllers 31…, ZooKeeper servers 51…; the gateway has 1."""
    if node_id >= FIRST_ZOOKEEPER_ID:
        return node_id - FIRST_ZOOKEEPER_ID + 1 + _BEFORE_ZOOKEEPERS
    if node_id >= FIRST_CONTROLLER_ID:
        return node_id - FIRST_CONTROLLER_ID + 1 + _BEFORE_CONTROLLERS
    return node_id + _BEFORE_BROKERS


def in_order(variant: Variant) -> list[tuple[int, frozenset[str]]]:
    """(node id, roles), brokers last."""
    return sorted(node_roles(variant).items(), key=lambda item: (BROKER in item[1], item[0]))


def placement_of(
    variant: Variant,
    node_id: int,
    roles: frozenset[str],
    directory: Path,
    data_address: str,
    observer_address: str,
    *,
    relay_port: int = 0,
) -> Placement:
    """Every node has addresses of its own, so all have the same ports. `relay_port`: on this host's 127.0.0.1."""
    data, observer, client, controller, controller_observer, metrics = PORTS
    relayed = relay_port if BROKER in roles else 0
    return Placement(
        node_id=node_id,
        roles=roles,
        data_address=data_address,
        observer_address=observer_address,
        data_port=data,
        observer_port=data if ZOOKEEPER in roles else observer,
        controller_port=controller,
        controller_observer_port=controller_observer,
        data_directory=directory / node_name(node_id, roles) / "data",
        client_port=client if relayed else 0,
        relay_port=relayed,
        metrics_port=metrics,
        rack=variant.rack_of(node_id) if BROKER in roles else None,
    )


def environment(variant: Variant, node: Placement, nodes: Sequence[Placement], setting: Setting) -> dict[str, str]:
    """Of a Kafka container, as the official image takes it."""
    properties = {
        "initial.broker.registration.timeout.ms": str(REGISTRATION_TIMEOUT_MS),
        **server_properties(variant, node, nodes),
        "log.dirs": DATA_IN_CONTAINER,
    }
    heap = setting.heaps.broker if BROKER in node.roles else setting.heaps.controller
    agent = agent_flags(
        Path(AGENT_IN_CONTAINER) if setting.agent else None, host=node.observer_address, port=node.metrics_port
    )
    return {
        "CLUSTER_ID": setting.cluster_id,
        "KAFKA_HEAP_OPTS": heap,
        "KAFKA_JVM_PERFORMANCE_OPTS": " ".join(JVM_FLAGS),
        **({"KAFKA_OPTS": " ".join(agent)} if agent else {}),
        "MALLOC_ARENA_MAX": "2",
        **{environment_name(key): value for key, value in properties.items()},
    }


def environment_name(key: str) -> str:
    """As the official image spells a property: https://github.com/apache/kafka/tree/trunk/docker/examples"""
    return "KAFKA_" + key.translate({ord("-"): "___", ord("_"): "__", ord("."): "_"}).upper()


def run_document(
    variant: Variant,
    placements: Sequence[Placement],
    setting: Setting,
    *,
    run_label: str,
    project: str,
    prefixes: Mapping[str, str],
) -> Document:
    """The file of one run: two networks, and two containers per node."""
    services: dict[str, Any] = {}
    for node in placements:
        services |= _run_services(variant, node, placements, setting, run_label)
    networks = {
        name: {
            "labels": {RUN_LABEL: run_label},
            "ipam": {"config": [{"subnet": f"{prefixes[name]}.0/24", "gateway": f"{prefixes[name]}.1"}]},
        }
        for name in NETWORKS
    }
    return {"name": project, "services": services, "networks": networks}


def _run_services(
    variant: Variant, node: Placement, nodes: Sequence[Placement], setting: Setting, run_label: str
) -> dict[str, Any]:
    holder, image = HOLDER.format(node.name), setting.images[node.name]
    server = _zookeeper(node, setting) if ZOOKEEPER in node.roles else _kafka(variant, node, nodes, setting)
    preloads = {name: Path(path) for name, path in setting.preloads.get(node.name, {}).items()}
    inside = {name: f"{OURS_IN_CONTAINER}/{path.name}" for name, path in preloads.items()}
    server["environment"] = {**server["environment"], **inside}
    server["volumes"] = [*server["volumes"], *(_bind(path, inside[name]) for name, path in preloads.items())]
    return {
        holder: {
            # Any image that has `sleep`; every server's is here. That of a Kafka server has what faults are made with.
            "image": next(setting.images[n.name] for n in nodes if ZOOKEEPER not in n.roles),
            "entrypoint": ["sleep", "infinity"],
            "hostname": node.name,
            "stop_signal": "SIGKILL",
            "restart": "no",
            "labels": {RUN_LABEL: run_label},
            "networks": {
                name: {"ipv4_address": address}
                for name, address in zip(NETWORKS, (node.data_address, node.observer_address), strict=True)
            },
        },
        node.name: {
            "image": image,
            "network_mode": f"service:{holder}",
            "restart": "no",
            "labels": {RUN_LABEL: run_label, NODE_LABEL: node.name},
            **server,
        },
    }


def _kafka(variant: Variant, node: Placement, nodes: Sequence[Placement], setting: Setting) -> dict[str, Any]:
    volumes = [_bind(node.data_directory, DATA_IN_CONTAINER)]
    if setting.agent is not None:
        volumes.append(_bind(setting.agent, AGENT_IN_CONTAINER, read_only=True))
    return {"environment": environment(variant, node, nodes, setting), "volumes": volumes}


def _zookeeper(node: Placement, setting: Setting) -> dict[str, Any]:
    """Its configuration is a file, which the official image takes if it is there."""
    return {
        # The image writes `myid` where it is not: of a server whose data was wiped.
        "environment": {"ZOO_MY_ID": str(zookeeper_number(node.node_id)), "JVMFLAGS": zookeeper_flags(setting)},
        "volumes": [
            _bind(node.data_directory, ZOOKEEPER_DATA_IN_CONTAINER),
            _bind(zookeeper_file(node), ZOOKEEPER_FILE_IN_CONTAINER, read_only=True),
        ],
    }


def zookeeper_flags(setting: Setting) -> str:
    """Options of a ZooKeeper server's JVM."""
    return " ".join([setting.heaps.zookeeper, *JVM_FLAGS, *ZOOKEEPER_FLAGS])


def zookeeper_file(node: Placement) -> Path:
    """Where zoo.cfg of that node is on the host."""
    return node.data_directory.with_name("zoo.cfg")


def _bind(source: Path, target: str, *, read_only: bool = False) -> dict[str, Any]:
    return {"type": "bind", "source": str(source), "target": target, "read_only": read_only}


def text_of(document: Document, *, comment: str = "", escape: bool = True) -> str:
    """As YAML: block style, every text in JSON's quotes. `escape`: a `$` in it is one, and no variable of Compose."""
    head = "".join(f"# {line}".rstrip() + "\n" for line in comment.splitlines())
    return head + _block(document, 0, escape=escape)


def _block(value: Mapping[str, Any], depth: int, *, escape: bool) -> str:
    lines = []
    for key, inner in value.items():
        start = "  " * depth + (key if key.replace("-", "").replace("_", "").isalnum() else json.dumps(key)) + ":"
        if isinstance(inner, Mapping) and inner:
            lines.append(f"{start}\n{_block(inner, depth + 1, escape=escape)}")
        else:
            text = json.dumps(inner, ensure_ascii=False)
            lines.append(f"{start} {text.replace('$', '$$') if escape else text}\n")
    return "".join(lines)
