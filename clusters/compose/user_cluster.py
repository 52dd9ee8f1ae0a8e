"""A trial on your own Compose file: your images, your configuration and your networks, with our labels laid over them.

What cannot be had there: a link that only the observer uses (unless `prozess.observer` names one), metrics from inside the
servers, and a network that outlives its server: cuts are made again when a server starts.
"""

import json
import re
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prozess.clusters.compose.containers import ComposeNode, ContainersCluster, ContainerSetting
from prozess.clusters.compose.engine import NODE_LABEL, PROBLEMS, RUN_LABEL, command
from prozess.clusters.compose.file import text_of
from prozess.clusters.machine.server_properties import BROKER, CONTROLLER, node_name
from prozess.harness.clock import Clock
from prozess.harness.config.configuration import ComposeService, Variant
from prozess.harness.config.existing_clusters import refuse_bad_servers, split_server
from prozess.harness.errors import BadInput, ClusterFailed
from prozess.harness.installation import of_an_extra
from prozess.harness.machine_record import kept
from prozess.harness.plan.plan import Plan
from prozess.harness.run_directory import RunDirectory, write_whole

with of_an_extra("Docker"):
    from docker.errors import NotFound

# Which services of a person's own Compose file are Kafka servers, and how they are reached, pure: what `docker compose
# config` says, in.
#
# Reported by the trial (`compose.services`), else by labels of the service (`prozess.node-id`, `prozess.roles`,
# `prozess.clients`, `prozess.observer`, `prozess.controllers`, `prozess.data`), else by the environment that images of
# Kafka take.


Server = tuple[str, int]
"""A host and a port."""
_PREFIXES = ("KAFKA_CFG_", "KAFKA_")
"""The prefixes of variables: bitnami's and the official image's."""
_HERE = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "host.docker.internal"})
_LISTENER = re.compile(r"^(?P<name>\w+)://(?P<host>[^:]*):(?P<port>\d+)$")


@dataclass(frozen=True, slots=True)
class OwnServer:
    """A service of the file that runs Kafka."""

    service: str
    node_id: int
    roles: frozenset[str]
    clients: Server | None
    """The host and port at which clients on this host reach it; None for a controller that is no broker."""
    observer: Server | None
    """The host and port at which the observer reaches it: faults of clients must leave them alone."""
    controllers: Server | None
    """The host and port of its controller listener; the host "" means the container's address."""
    data: str
    """Its log directory in the container."""

    @property
    def name(self) -> str:
        return node_name(self.node_id, self.roles)


def own_servers(
    configuration: Mapping[str, Any], named: Mapping[str, ComposeService], variant: Variant, *, source: str
) -> tuple[OwnServer, ...]:
    """Finds every Kafka server of the file, in the order of ids.

    BadInput for a file without one, for what it leaves open, and for servers that are not those of the variant."""
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
            f"{source}: prozess finds no service that runs Kafka. Label it with prozess.node-id, or name it in "
            "the trial: compose.services.NAME.node_id = 1."
        )
    _check_variant(found, variant, source)
    return tuple(sorted(found, key=lambda server: (BROKER in server.roles, server.node_id)))


def _server(name: str, service: Mapping[str, Any], resolved: ComposeService | None, source: str) -> OwnServer | None:
    facts = _Facts(name, service, resolved or ComposeService(), source)
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
    """Describes what is known of one service: the trial's word counts first, then its labels, then its environment."""

    name: str
    service: Mapping[str, Any]
    resolved: ComposeService
    source: str

    def text(self, key: str, label: str, *properties: str) -> str | None:
        value = getattr(self.resolved, key)
        if value is not None:
            return str(value)
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
        refuse_bad_servers(text, f"{self.source}: service {self.name!r}: {label} =")
        return split_server(text)

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
    here = {server.node_id: server.roles for server in servers}
    if len(here) != len(servers):
        raise BadInput(f"{source}: two services have the same node id. Give each its own.")
    brokers = sorted(node for node, roles in here.items() if BROKER in roles)
    if len(brokers) != variant.brokers:
        raise BadInput(
            f"{source} has the brokers {brokers}, and the trial wants {variant.brokers}. "
            f"Set variant.brokers to {len(brokers)}."
        )
    combined = any({BROKER, CONTROLLER} <= roles for roles in here.values())
    if combined != (variant.metadata_mode == "kraft-combined") and variant.metadata_mode != "zookeeper":
        mode = "kraft-combined" if combined else "kraft-isolated"
        raise BadInput(f"{source} is {mode}, and the trial says {variant.metadata_mode}. Set --variant {mode}.")


CONFIG_TIMEOUT_S, UP_TIMEOUT_S = 60.0, 600.0
"""Limits of Compose's commands: it may pull images, or build them."""
COPY_TIMEOUT_S = 300.0


class OwnComposeCluster(ContainersCluster):
    """The cluster of the services in `compose.file` that run Kafka. The other services are started beside them."""

    def __init__(self, plan: Plan, run: RunDirectory, *, clock: Clock) -> None:
        super().__init__(plan, run, clock=clock)
        assert plan.compose.file is not None, plan.compose
        self._file = Path(plan.compose.file)
        if not self._file.is_file():
            raise BadInput(f"compose.file = {plan.compose.file!r} does not exist. Give the path of a Compose file.")
        self._configuration = self._read()
        self._servers = own_servers(self._configuration, plan.compose.services, plan.variant, source=str(self._file))
        self._nodes = tuple(self._node(server) for server in self._servers)

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """Returns the ids of the file's brokers, which need not begin at 1."""
        return tuple(sorted(server.node_id for server in self._servers if BROKER in server.roles))

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{host}:{port}" for s in self._servers if s.clients for host, port in [s.clients])

    @property
    def relay_servers(self) -> str:
        """The bootstrap servers for callers outside the run, who are on the host, too."""
        return self.bootstrap_servers

    @property
    def observer_servers(self) -> Mapping[int, tuple[str, int]]:
        return {s.node_id: s.observer for s in self._servers if s.observer is not None}

    @property
    def controller_servers(self) -> Mapping[int, tuple[str, int]]:
        nodes = {node.node_id: node for node in self._nodes}
        found = {}
        for server in self._servers:
            if CONTROLLER in server.roles and server.controllers is not None:
                host, port = server.controllers
                found[server.node_id] = (host or nodes[server.node_id].address, port)
        return found

    @property
    def zookeeper_servers(self) -> Mapping[int, tuple[str, int]]:
        """Returns no servers: the observer does not ask the ZooKeeper of the file."""
        return {}

    @property
    def metrics_servers(self) -> Mapping[int, tuple[str, int]]:
        """Returns no servers: the file's servers have no metrics agents of prozess."""
        return {}

    @property
    def client_address(self) -> str:
        """Returns the address of clients on the host: the gateway of the first broker's network."""
        broker = next(s for s in self._servers if BROKER in s.roles)
        return self._network_of(broker, "Gateway")

    def _images_of_networks(self) -> Collection[str]:
        return {str(self._configuration["services"][s.service].get("image", "built")) for s in self._servers}

    def _read(self) -> Mapping[str, Any]:
        try:
            output = command(
                ["compose", "--file", str(self._file), "--project-name", self._project, "config", "--format", "json"],
                timeout_s=CONFIG_TIMEOUT_S,
            )
        except ClusterFailed as error:
            raise BadInput(f"compose.file = {str(self._file)!r}: Compose does not take it: {error}") from error
        found: Mapping[str, Any] = json.loads(output)
        return found

    def _container(self, server: OwnServer) -> str:
        service = self._configuration["services"][server.service]
        return str(service.get("container_name") or f"{self._project}-{server.service}-1")

    def _node(self, server: OwnServer) -> ComposeNode:
        container = self._container(server)
        in_container = ContainerSetting(
            name=server.name,
            node_id=server.node_id,
            roles=server.roles,
            data_directory=self._run.nodes / server.name / "data",
            container=container,
            holder=container,
            guarded=self._zookeeper and BROKER in server.roles,
        )
        return ComposeNode(
            in_container,
            address=lambda: self._network_of(server, "IPAddress"),
            client=self._client,
            parts=self._parts,
            clock=self._clock,
        )

    def _network_of(self, server: OwnServer, what: str) -> str:
        """The service's address or gateway in the first of its networks, by name; "" while it has none."""
        try:
            networks = self._client().api.inspect_container(self._container(server))["NetworkSettings"]["Networks"]
        except NotFound:
            return ""
        return next((str(networks[name][what]) for name in sorted(networks) if networks[name][what]), "")

    def _bring_up(self) -> None:
        self._images = {
            s.name: str(self._configuration["services"][s.service].get("image", "built")) for s in self._servers
        }
        labels = self._run.compose
        for path in kept(labels):
            write_whole(path, text_of(self._labels(), comment=f"What is laid over {self._file}."))
        files = ["--file", str(self._file), "--file", str(labels)]
        try:
            command(["compose", *files, "--project-name", self._project, "up", "--detach"], timeout_s=UP_TIMEOUT_S)
        except ClusterFailed as error:
            raise ClusterFailed(f"Compose could not start {self._file}: {error}") from error

    def _labels(self) -> Mapping[str, Any]:
        """Labels for everything that the file makes, so that it can be found and removed. What is external is left alone."""
        nodes = {s.service: s.name for s in self._servers}
        services = {
            name: {"labels": {RUN_LABEL: self._label, **({NODE_LABEL: nodes[name]} if name in nodes else {})}}
            for name in self._configuration["services"]
        }
        made: dict[str, Any] = {"services": services}
        for kind in ("networks", "volumes"):
            things = self._configuration.get(kind) or {}
            own = [name for name, thing in things.items() if not (thing or {}).get("external")]
            if own:
                made[kind] = {name: {"labels": {RUN_LABEL: self._label}} for name in own}
        return made

    def _thaw(self) -> None:
        """Does nothing: faults of disks are refused here."""

    def _let_go_of_disks(self) -> None:
        """Does nothing: no disk is mounted for these nodes."""

    def _keep_data(self) -> None:
        """Kills the servers, and copies their data out of the volumes or containers."""
        for server, node in zip(self._servers, self._nodes, strict=True):
            shutil.rmtree(node.data_directory, ignore_errors=True)
            with suppress(ClusterFailed, *PROBLEMS):
                node.kill()
                self._copy_out(server, node.data_directory)

    def _copy_out(self, server: OwnServer, into: Path) -> None:
        into.mkdir(parents=True)
        command(["cp", f"{self._container(server)}:{server.data}/.", str(into)], timeout_s=COPY_TIMEOUT_S)
