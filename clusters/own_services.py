"""Which services of a person's own Compose file are Kafka servers, and how they are reached, pure: what `docker compose
config` says, in.

Told by the trial (`compose.services`), else by labels of the service (`prozess.node-id`, `prozess.roles`, `prozess.clients`,
`prozess.observer`, `prozess.controllers`, `prozess.data`), else by the environment that images of Kafka take.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusters.properties import BROKER, CONTROLLER, node_name, node_roles
from harness.configuration import ComposeService, Variant
from harness.errors import BadInput

Server = tuple[str, int]
"""Host and port."""
_PREFIXES = ("KAFKA_CFG_", "KAFKA_")
"""Of variables: bitnami's and the official image's."""
_HERE = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "host.docker.internal"})
_LISTENER = re.compile(r"^(?P<name>\w+)://(?P<host>[^:]*):(?P<port>\d+)$")


@dataclass(frozen=True, slots=True)
class OwnServer:
    """One Kafka server of the file."""

    service: str
    node_id: int
    roles: frozenset[str]
    clients: Server | None
    """Where clients on this host reach it; None of a mere controller."""
    observer: Server | None
    """Where the observer does: what faults of clients must leave alone."""
    controllers: Server | None
    """Where its controller listener is reached; the host "" = at the container's address."""
    data: str
    """Its log directory in the container."""

    @property
    def name(self) -> str:
        return node_name(self.node_id, self.roles)


def own_servers(
    configuration: Mapping[str, Any], named: Mapping[str, ComposeService], variant: Variant, *, source: str
) -> tuple[OwnServer, ...]:
    """Every Kafka server of the file, in the order of ids. BadInput for a file without one, for what it leaves open, and for
    servers that are not those of the variant."""
    services: Mapping[str, Mapping[str, Any]] = configuration.get("services") or {}
    if missing := sorted(set(named) - set(services)):
        raise BadInput(f"compose.services names {missing[0]!r}, which {source} has not. It has: {', '.join(services)}.")
    found = [
        server
        for name, service in services.items()
        if (server := _server(name, service, named.get(name), source)) is not None
    ]
    if not found:
        raise BadInput(
            f"{source} has no service that runs Kafka, as far as can be seen. Label it with prozess.node-id, or name it in "
            "the trial: compose.services.NAME.node_id = 1."
        )
    _check_variant(found, variant, source)
    return tuple(sorted(found, key=lambda server: (BROKER in server.roles, server.node_id)))


def _server(name: str, service: Mapping[str, Any], told: ComposeService | None, source: str) -> OwnServer | None:
    facts = _Facts(name, service, told or ComposeService(), source)
    node_id = facts.text("node_id", "prozess.node-id", "NODE_ID", "BROKER_ID")
    if node_id is None:
        return None
    if not node_id.isdigit():
        raise BadInput(f"{source}: service {name!r} has the node id {node_id!r}, which is no number.")
    roles = frozenset((facts.text("roles", "prozess.roles", "PROCESS_ROLES") or BROKER).replace(" ", "").split(","))
    if not roles <= {BROKER, CONTROLLER}:
        raise BadInput(
            f"{source}: service {name!r} has the roles {', '.join(sorted(roles))}; known: broker, controller."
        )
    clients = facts.server("clients", "prozess.clients") or facts.advertised_here()
    if BROKER in roles and clients is None:
        raise BadInput(
            f"{source}: nothing says where clients on this machine reach service {name!r}: none of its advertised listeners "
            "is at localhost. Publish one, or label the service with prozess.clients: HOST:PORT."
        )
    return OwnServer(
        service=name,
        node_id=int(node_id),
        roles=roles,
        clients=clients if BROKER in roles else None,
        observer=(facts.server("observer", "prozess.observer") or clients) if BROKER in roles else None,
        controllers=(
            facts.server("controllers", "prozess.controllers") or facts.controller_listener()
            if CONTROLLER in roles
            else None
        ),
        data=(facts.text("data", "prozess.data", "LOG_DIRS", "LOG_DIR") or "/tmp/kraft-combined-logs").split(",")[0],
    )


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is said of one service, by whom it is said first."""

    name: str
    service: Mapping[str, Any]
    told: ComposeService
    source: str

    def text(self, key: str, label: str, *properties: str) -> str | None:
        told = getattr(self.told, key)
        if told is not None:
            return str(told)
        labels = self.service.get("labels") or {}
        if label in labels:
            return str(labels[label])
        return self.variable(*properties)

    def variable(self, *properties: str) -> str | None:
        environment = self.service.get("environment") or {}
        names = [prefix + name for name in properties for prefix in _PREFIXES]
        return next((str(environment[name]) for name in names if environment.get(name) is not None), None)

    def server(self, key: str, label: str) -> Server | None:
        text = self.text(key, label)
        if text is None:
            return None
        host, _, port = text.rpartition(":")
        if not host or not port.isdigit():
            raise BadInput(f"{self.source}: service {self.name!r}: {label} = {text!r} is not HOST:PORT.")
        return host, int(port)

    def advertised_here(self) -> Server | None:
        for listener in (self.variable("ADVERTISED_LISTENERS") or "").split(","):
            match = _LISTENER.match(listener.strip())
            if match and match["host"] in _HERE:
                return "127.0.0.1", int(match["port"])
        return None

    def controller_listener(self) -> Server | None:
        names = (self.variable("CONTROLLER_LISTENER_NAMES") or "CONTROLLER").split(",")
        for listener in (self.variable("LISTENERS") or "").split(","):
            match = _LISTENER.match(listener.strip())
            if match and match["name"] in names:
                return "", int(match["port"])
        return None


def _check_variant(servers: list[OwnServer], variant: Variant, source: str) -> None:
    wanted = node_roles(variant)
    here = {server.node_id: server.roles for server in servers}
    if len(here) != len(servers):
        raise BadInput(f"{source}: two services have the same node id. Give each its own.")
    brokers = {node for node, roles in here.items() if BROKER in roles}
    if brokers != {node for node, roles in wanted.items() if BROKER in roles}:
        raise BadInput(
            f"{source} has the brokers {sorted(brokers)}, and the trial wants {variant.brokers}, numbered from 1. Set "
            "variant.brokers, or number the brokers so."
        )
    combined = any({BROKER, CONTROLLER} <= roles for roles in here.values())
    if combined != (variant.metadata_mode == "kraft-combined") and variant.metadata_mode != "zookeeper":
        mode = "kraft-combined" if combined else "kraft-isolated"
        raise BadInput(f"{source} is {mode}, and the trial says {variant.metadata_mode}. Set --variant {mode}.")
