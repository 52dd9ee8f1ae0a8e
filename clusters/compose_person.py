"""Compose files for a person, who wants a cluster of `docker compose up` and no trial: one network, named volumes, brokers on
ports of 127.0.0.1, health checks. `python -m clusters.compose_person` writes those in `compose/`; `prozess compose-file`
prints one with other numbers of nodes, racks and properties.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from clusters.compose_file import (
    DATA_IN_CONTAINER,
    Document,
    Heaps,
    Images,
    Setting,
    environment,
    environment_name,
    in_order,
    placement_of,
    text_of,
)
from clusters.images import OFFICIAL, compose_directory
from clusters.properties import BROKER, Placement, node_name
from harness.configuration import Variant

FIRST_PORT = 19091
"""Of broker 1 on 127.0.0.1; `PORT_1` in the environment is another one."""
VARIANTS: Mapping[str, Variant] = {
    "kraft-combined": Variant(metadata_mode="kraft-combined"),
    "kraft-isolated": Variant(metadata_mode="kraft-isolated", controllers=3),
}
"""Name of a file in `compose/` → what is in it."""
_COMMENT = """{title}. Written by `python -m clusters.compose_person`; edit that.

    docker compose --file {name}.yaml up --detach --wait
    docker compose --file {name}.yaml down --volumes --timeout 0

Brokers are at 127.0.0.1:{ports}. From the environment: KAFKA_IMAGE (any that has the environment
of apache/kafka; `prozess images build` builds one), BROKER_HEAP, CONTROLLER_HEAP, PORT_1 and so on, CLUSTER_ID.
Other numbers of nodes, racks and properties: `prozess compose-file --help`."""


def persons_file(variant: Variant, *, name: str) -> str:
    """The whole file, as YAML."""
    image = f"${{KAFKA_IMAGE:-{OFFICIAL['kafka'].format(version=variant.kafka_version)}}}"
    heaps = Heaps()
    setting = Setting(
        images=Images(image),
        cluster_id="${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}",
        heaps=replace(
            heaps,
            broker=f"${{BROKER_HEAP:-{heaps.broker}}}",
            controller=f"${{CONTROLLER_HEAP:-{heaps.controller}}}",
        ),
    )
    title = f"Kafka {variant.kafka_version}, {variant.metadata_mode}, {variant.brokers} brokers"
    ports = f"{FIRST_PORT} … {FIRST_PORT + variant.brokers - 1}" if variant.brokers > 1 else str(FIRST_PORT)
    return text_of(
        persons_document(variant, setting), comment=_COMMENT.format(title=title, name=name, ports=ports), escape=False
    )


def persons_document(variant: Variant, setting: Setting) -> Document:
    """Nodes find each other by the names of their services."""
    placements = tuple(
        placement_of(
            variant, node_id, roles, Path(), *[node_name(node_id, roles)] * 2, relay_port=FIRST_PORT - 1 + node_id
        )
        for node_id, roles in in_order(variant)
    )
    services = {node.name: _service(variant, node, placements, setting) for node in placements}
    return {"services": services, "volumes": {node.name: {} for node in placements}}


def _service(variant: Variant, node: Placement, nodes: tuple[Placement, ...], setting: Setting) -> dict[str, Any]:
    broker = BROKER in node.roles
    published = f"${{PORT_{node.node_id}:-{node.relay_port}}}"
    told = environment(variant, node, nodes, setting)
    if broker:
        advertised = environment_name("advertised.listeners")
        told[advertised] = told[advertised].replace(f"127.0.0.1:{node.relay_port}", f"127.0.0.1:{published}")
    return {
        "image": setting.images.kafka,
        "hostname": node.name,
        "restart": "no",
        "environment": told,
        **({"ports": [f"127.0.0.1:{published}:{node.client_port}"]} if broker else {}),
        "volumes": [f"{node.name}:{DATA_IN_CONTAINER}"],
        "healthcheck": {
            "test": ["CMD-SHELL", f"nc -z {node.name} {node.data_port if broker else node.controller_port}"],
            "interval": "10s",
            "timeout": "2s",
            "retries": 30,
            "start_period": "60s",
            "start_interval": "500ms",
        },
    }


def main() -> None:
    """Write every file of `compose/`."""
    for name, variant in VARIANTS.items():
        file = compose_directory() / f"{name}.yaml"
        file.write_text(persons_file(variant, name=name), encoding="utf-8")
        sys.stdout.write(f"{file}\n")


if __name__ == "__main__":
    main()
