"""Compose files for a person, who wants a cluster of `docker compose up` and no trial: one network, named volumes, brokers on
ports of 127.0.0.1, health checks. `python -m clusters.compose_person` writes those in `compose/`; `prozess compose-file`
prints one with other numbers of nodes, racks and properties.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clusters.compose_file import (
    DATA_IN_CONTAINER,
    ZOOKEEPER_DATA_IN_CONTAINER,
    Document,
    Heaps,
    Setting,
    environment,
    environment_name,
    in_order,
    placement_of,
    text_of,
    zookeeper_flags,
)
from clusters.engine import compose_directory
from clusters.images import BUILT, OFFICIAL
from clusters.properties import BROKER, ZOOKEEPER, Placement, node_name, zookeeper_number
from clusters.zookeeper import TICK_MS
from harness.configuration import Variant

FIRST_PORT = 19091
"""Of broker 1 on 127.0.0.1; `PORT_1` in the environment is another one."""
VARIANTS: Mapping[str, Variant] = {
    "kraft-combined": Variant(metadata_mode="kraft-combined"),
    "kraft-isolated": Variant(metadata_mode="kraft-isolated", controllers=3),
    "zookeeper": Variant(metadata_mode="zookeeper", kafka_version="3.9.2", zookeepers=3),
}
"""Name of a file in `compose/` → what is in it."""
_COMMENT = """{title}. Written by `python -m clusters.compose_person`; edit that.

    docker compose --file {name}.yaml up --detach --wait
    docker compose --file {name}.yaml down --volumes --timeout 0

Brokers are at 127.0.0.1:{ports}. From the environment: KAFKA_IMAGE (any that has the environment of
apache/kafka; `prozess images build` builds one), {variables}, PORT_1 and so on.
Other numbers of nodes, racks and properties: `prozess compose-file --help`."""


def persons_file(variant: Variant, *, name: str) -> str:
    """The whole file, as YAML."""
    zookeeper = variant.metadata_mode == "zookeeper"
    images = {
        # The official image has no ZooKeeper mode.
        "kafka": f"${{KAFKA_IMAGE:-{(BUILT if zookeeper else OFFICIAL)['kafka'].format(version=variant.kafka_version)}}}",
        "zookeeper": f"${{ZOOKEEPER_IMAGE:-{OFFICIAL['zookeeper']}}}",
    }
    kinds = {name: "zookeeper" if name.startswith(ZOOKEEPER) else "kafka" for name in variant.server_names().values()}
    heaps = Heaps()
    setting = Setting(
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


def persons_document(variant: Variant, setting: Setting) -> Document:
    """Nodes find each other by the names of their services."""
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
                _zookeeper(node, placements, setting)
                if ZOOKEEPER in node.roles
                else _kafka(variant, node, placements, setting)
            ),
        }
        for node in placements
    }
    return {"services": services, "volumes": {node.name: {} for node in placements}}


def guarded(variant: Variant, node: Placement) -> bool:
    """A broker in ZooKeeper mode ends if its last session is still there, and wants to be started again."""
    return variant.metadata_mode == "zookeeper" and BROKER in node.roles


def _kafka(variant: Variant, node: Placement, nodes: tuple[Placement, ...], setting: Setting) -> dict[str, Any]:
    broker = BROKER in node.roles
    published = f"${{PORT_{node.node_id}:-{node.relay_port}}}"
    told = environment(variant, node, nodes, setting)
    if broker:
        advertised = environment_name("advertised.listeners")
        told[advertised] = told[advertised].replace(f"127.0.0.1:{node.relay_port}", f"127.0.0.1:{published}")
    return {
        "environment": told,
        **({"ports": [f"127.0.0.1:{published}:{node.client_port}"]} if broker else {}),
        "volumes": [f"{node.name}:{DATA_IN_CONTAINER}"],
        **_health(node.name, node.data_port if broker else node.controller_port),
    }


def _zookeeper(node: Placement, nodes: tuple[Placement, ...], setting: Setting) -> dict[str, Any]:
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
    """Is the port open? In KRaft a broker's is once it is unfenced."""
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
    """Write every file of `compose/`."""
    for name, variant in VARIANTS.items():
        file = compose_directory() / f"{name}.yaml"
        file.write_text(persons_file(variant, name=name), encoding="utf-8")
        sys.stdout.write(f"{file}\n")


if __name__ == "__main__":
    main()
