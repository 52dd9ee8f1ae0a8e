"""Writes Compose files: the one of a run, and those that a person starts with `docker compose up`.

Each node is two containers. One holds the node's network, and sleeps; the server joins it. Therefore the network of a
node outlives its server: a kill and a start of it undo no cut, and whether datagrams arrive can be seen while it is dead.
It has two links: `data`, which faults touch, and `observer`, which no fault touches.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prozess.clusters.compose.engine import BUILT, NODE_LABEL, OFFICIAL, RUN_LABEL, compose_directory
from prozess.clusters.machine.server_properties import (
    BROKER,
    CONTROLLER,
    HEAP,
    JVM_FLAGS,
    TICK_MS,
    ZOOKEEPER,
    Placement,
    node_name,
    node_roles,
    server_properties,
    zookeeper_number,
)
from prozess.clusters.machine.server_properties import ZOOKEEPER_JVM_FLAGS as ZOOKEEPER_FLAGS
from prozess.clusters.machine.servers import PORTS
from prozess.harness.config.configuration import FIRST_CONTROLLER_ID, FIRST_ZOOKEEPER_ID, Variant, version_numbers
from prozess.harness.errors import BadInput
from prozess.harness.recording.jolokia import agent_flags

NETWORKS = ("data", "observer")
HOLDER = "{}-network"
"""The name of the service that holds a node's network."""
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
    """The heap options of the JVMs by role; a combined node is a broker."""

    broker: str = " ".join(HEAP[BROKER])
    controller: str = " ".join(HEAP[CONTROLLER])
    zookeeper: str = " ".join(HEAP[ZOOKEEPER])


@dataclass(frozen=True, slots=True)
class ComposeSetting:
    """Describes what a Compose file must know of a cluster besides its variant."""

    images: Mapping[str, str]
    """The name of a node → its image."""
    cluster_id: str
    heaps: Heaps = field(default_factory=Heaps)
    agent: Path | None = None
    """The metrics agent's jar on the host."""
    preloads: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Node → variables that name what is preloaded into its server, and the files of that, all by their paths on the host."""


def connect_to_networks(variant: Variant, directory: Path, prefixes: Mapping[str, str]) -> tuple[Placement, ...]:
    """Places every node at fixed addresses, brokers last. `prefixes`: network → first three numbers of its addresses."""
    return tuple(
        placement_of(
            variant, node_id, roles, directory, *(f"{prefixes[name]}.{host_number(node_id)}" for name in NETWORKS)
        )
        for node_id, roles in in_order(variant)
    )


def host_number(node_id: int) -> int:
    """Returns the last number of a node's addresses: brokers 11…, controllers 31…, ZooKeeper servers 51…; the gateway
    has 1."""
    if node_id >= FIRST_ZOOKEEPER_ID:
        return node_id - FIRST_ZOOKEEPER_ID + 1 + _BEFORE_ZOOKEEPERS
    if node_id >= FIRST_CONTROLLER_ID:
        return node_id - FIRST_CONTROLLER_ID + 1 + _BEFORE_CONTROLLERS
    return node_id + _BEFORE_BROKERS


OLDEST_IMAGE = (3, 9)
"""The first line whose images were tried. The official ones begin with 3.7."""


def check_images(variant: Variant) -> None:
    """Raises BadInput, with a way out, for a version of which no image was tried."""
    if version_numbers(variant.oldest_version) < OLDEST_IMAGE:
        raise BadInput(
            f"kafka_version = {variant.oldest_version!r}: in containers that prozess makes, Kafka is run from "
            f"{OLDEST_IMAGE[0]}.{OLDEST_IMAGE[1]} on. Use --backend local, or your own Compose file ([compose] file)."
        )


def in_order(variant: Variant) -> list[tuple[int, frozenset[str]]]:
    """Returns the node ids and their roles, brokers last."""
    check_images(variant)
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
    """Places one node. Each has addresses of its own, so all have the same ports. `relay_port`: on this host's 127.0.0.1."""
    data, observer, client, controller, controller_observer, metrics, _ = PORTS
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


def environment(
    variant: Variant, node: Placement, nodes: Sequence[Placement], setting: ComposeSetting
) -> dict[str, str]:
    """The environment of a Kafka container, as the official image reads it."""
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
    """The environment variable by which the official image takes a property: https://github.com/apache/kafka/tree/trunk/docker/examples"""
    return "KAFKA_" + key.translate({ord("-"): "___", ord("_"): "__", ord("."): "_"}).upper()


def run_document(
    variant: Variant,
    placements: Sequence[Placement],
    setting: ComposeSetting,
    *,
    run_label: str,
    project: str,
    prefixes: Mapping[str, str],
) -> Document:
    """Returns the Compose file of one run: two networks, and two containers per node."""
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
    variant: Variant, node: Placement, nodes: Sequence[Placement], setting: ComposeSetting, run_label: str
) -> dict[str, Any]:
    holder, image = HOLDER.format(node.name), setting.images[node.name]
    server = _zookeeper(node, setting) if ZOOKEEPER in node.roles else _kafka(variant, node, nodes, setting)
    preloads = {name: Path(path) for name, path in setting.preloads.get(node.name, {}).items()}
    inside = {name: f"{OURS_IN_CONTAINER}/{path.name}" for name, path in preloads.items()}
    server["environment"] = {**server["environment"], **inside}
    server["volumes"] = [*server["volumes"], *(_bind(path, inside[name]) for name, path in preloads.items())]
    return {
        holder: {
            # Any image that has `sleep`; every server's is here. The image of a Kafka server has what faults are made with.
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


def _kafka(variant: Variant, node: Placement, nodes: Sequence[Placement], setting: ComposeSetting) -> dict[str, Any]:
    volumes = [_bind(node.data_directory, DATA_IN_CONTAINER)]
    if setting.agent is not None:
        volumes.append(_bind(setting.agent, AGENT_IN_CONTAINER, read_only=True))
    return {"environment": environment(variant, node, nodes, setting), "volumes": volumes}


def _zookeeper(node: Placement, setting: ComposeSetting) -> dict[str, Any]:
    """Returns the service of a ZooKeeper server. The official image takes a configuration file if there is one."""
    return {
        # The image writes `myid` where it is not: of a server whose data was wiped.
        "environment": {"ZOO_MY_ID": str(zookeeper_number(node.node_id)), "JVMFLAGS": zookeeper_flags(setting)},
        "volumes": [
            _bind(node.data_directory, ZOOKEEPER_DATA_IN_CONTAINER),
            _bind(zookeeper_file(node), ZOOKEEPER_FILE_IN_CONTAINER, read_only=True),
        ],
    }


def zookeeper_flags(setting: ComposeSetting) -> str:
    """Returns the options of a ZooKeeper server's JVM."""
    return " ".join([setting.heaps.zookeeper, *JVM_FLAGS, *ZOOKEEPER_FLAGS])


def zookeeper_file(node: Placement) -> Path:
    """Returns the path of a node's zoo.cfg on the host."""
    return node.data_directory.with_name("zoo.cfg")


def _bind(source: Path, target: str, *, read_only: bool = False) -> dict[str, Any]:
    return {"type": "bind", "source": str(source), "target": target, "read_only": read_only}


def text_of(document: Document, *, comment: str = "", escape: bool = True) -> str:
    """Returns a document as YAML in block style, with every text in JSON's quotes.

    `escape`: a `$` in it is a `$`, and no variable of Compose."""
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


# Compose files for a person, who wants a cluster of `docker compose up` and no trial: one network, named volumes,
# brokers on ports of 127.0.0.1, health checks. `python -m prozess.clusters.compose.file` writes those in `compose/`;
# `prozess compose-file` prints one with other numbers of nodes, racks and properties.


FIRST_PORT = 19091
"""The port of broker 1 on 127.0.0.1; `PORT_1` in the environment sets another one."""
VARIANTS: Mapping[str, Variant] = {
    "kraft-combined": Variant(metadata_mode="kraft-combined"),
    "kraft-isolated": Variant(metadata_mode="kraft-isolated", controllers=3),
    "zookeeper": Variant(metadata_mode="zookeeper", kafka_version="3.9.2", zookeepers=3),
}
"""The name of a file in `compose/` → the variant that is in it."""
_COMMENT = """{title}. Written by `python -m prozess.clusters.compose.file`: change that module, not this file.

    docker compose --file {name}.yaml up --detach --wait
    docker compose --file {name}.yaml down --volumes --timeout 0

The brokers are at 127.0.0.1:{ports}. You can set these variables: KAFKA_IMAGE (any image that reads the
environment of apache/kafka; `prozess images build` builds one), {variables}, PORT_1 and so on.
`prozess compose-file` writes a file with other numbers of nodes, racks and properties."""


def persons_file(variant: Variant, *, name: str) -> str:
    """Returns the whole file for a person, as YAML."""
    zookeeper = variant.metadata_mode == "zookeeper"
    images = {
        # The official image has no ZooKeeper mode.
        "kafka": f"${{KAFKA_IMAGE:-{(BUILT if zookeeper else OFFICIAL)['kafka'].format(version=variant.kafka_version)}}}",
        "zookeeper": f"${{ZOOKEEPER_IMAGE:-{OFFICIAL['zookeeper']}}}",
    }
    kinds = {name: "zookeeper" if name.startswith(ZOOKEEPER) else "kafka" for name in variant.server_names().values()}
    heaps = Heaps()
    setting = ComposeSetting(
        images={name: images[kind] for name, kind in kinds.items()},
        cluster_id="${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}",
        heaps=Heaps(
            broker=f"${{BROKER_HEAP:-{heaps.broker}}}",
            controller=f"${{CONTROLLER_HEAP:-{heaps.controller}}}",
            zookeeper=f"${{ZOOKEEPER_HEAP:-{heaps.zookeeper}}}",
        ),
    )
    variables = (
        "ZOOKEEPER_IMAGE, BROKER_HEAP, ZOOKEEPER_HEAP" if zookeeper else "BROKER_HEAP, CONTROLLER_HEAP, CLUSTER_ID"
    )
    title = f"Kafka {variant.kafka_version}, {variant.metadata_mode}, {variant.brokers} brokers"
    ports = f"{FIRST_PORT} … {FIRST_PORT + variant.brokers - 1}" if variant.brokers > 1 else str(FIRST_PORT)
    comment = _COMMENT.format(title=title, name=name, ports=ports, variables=variables)
    return text_of(persons_document(variant, setting), comment=comment, escape=False)


def persons_document(variant: Variant, setting: ComposeSetting) -> Document:
    """Returns the Compose file for a person: nodes find each other by the names of their services."""
    placements = tuple(
        placement_of(
            variant, node_id, roles, Path(), *[node_name(node_id, roles)] * 2, relay_port=FIRST_PORT - 1 + node_id
        )
        for node_id, roles in in_order(variant)
    )
    services = {
        node.name: {
            "image": setting.images[node.name],
            "hostname": node.name,
            "restart": "on-failure" if guarded(variant, node) else "no",
            **(
                _persons_zookeeper(node, placements, setting)
                if ZOOKEEPER in node.roles
                else _persons_kafka(variant, node, placements, setting)
            ),
        }
        for node in placements
    }
    return {"services": services, "volumes": {node.name: {} for node in placements}}


def guarded(variant: Variant, node: Placement) -> bool:
    """The command that starts a broker in ZooKeeper mode again: it ends if its last session is still there."""
    return variant.metadata_mode == "zookeeper" and BROKER in node.roles


def _persons_kafka(
    variant: Variant, node: Placement, nodes: tuple[Placement, ...], setting: ComposeSetting
) -> dict[str, Any]:
    broker = BROKER in node.roles
    published = f"${{PORT_{node.node_id}:-{node.relay_port}}}"
    variables = environment(variant, node, nodes, setting)
    if broker:
        advertised = environment_name("advertised.listeners")
        variables[advertised] = variables[advertised].replace(f"127.0.0.1:{node.relay_port}", f"127.0.0.1:{published}")
    return {
        "environment": variables,
        **({"ports": [f"127.0.0.1:{published}:{node.client_port}"]} if broker else {}),
        "volumes": [f"{node.name}:{DATA_IN_CONTAINER}"],
        **_health(node.name, node.data_port if broker else node.controller_port),
    }


def _persons_zookeeper(node: Placement, nodes: tuple[Placement, ...], setting: ComposeSetting) -> dict[str, Any]:
    servers = [
        f"server.{zookeeper_number(n.node_id)}={n.name}:{n.controller_port}:{n.controller_observer_port};{n.data_port}"
        for n in nodes
        if ZOOKEEPER in n.roles
    ]
    return {
        "environment": {
            "ZOO_MY_ID": str(zookeeper_number(node.node_id)),
            "ZOO_SERVERS": " ".join(servers),
            "ZOO_TICK_TIME": str(TICK_MS),
            "ZOO_INIT_LIMIT": "10",
            "ZOO_SYNC_LIMIT": "5",
            "ZOO_MAX_CLIENT_CNXNS": "0",
            "ZOO_ADMINSERVER_ENABLED": "false",
            "ZOO_4LW_COMMANDS_WHITELIST": "srvr,mntr",
            "JVMFLAGS": zookeeper_flags(setting),
        },
        "volumes": [f"{node.name}:{ZOOKEEPER_DATA_IN_CONTAINER}"],
        **_health("localhost", node.data_port),
    }


def _health(host: str, port: int) -> dict[str, Any]:
    """Returns a health check: is the port open? In KRaft a broker's port opens once it is unfenced."""
    return {
        "healthcheck": {
            "test": ["CMD-SHELL", f"nc -z {host} {port}"],
            "interval": "10s",
            "timeout": "2s",
            "retries": 30,
            "start_period": "60s",
            "start_interval": "500ms",
        }
    }


def main() -> None:
    """Writes every file of `compose/`."""
    for name, variant in VARIANTS.items():
        file = compose_directory() / f"{name}.yaml"
        file.write_text(persons_file(variant, name=name), encoding="utf-8")
        sys.stdout.write(f"{file}\n")


if __name__ == "__main__":
    main()
