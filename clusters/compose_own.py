"""A person's own Compose file under trial: their images, their configuration, their networks; our labels, laid over it.

What cannot be had there: a link that only the observer uses (unless `prozess.observer` names one), metrics from inside the
servers, and a network that outlives its server: cuts are made again when a server starts.
"""

import json
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from docker.errors import NotFound

from clusters.compose_base import ContainersCluster
from clusters.compose_file import text_of
from clusters.compose_node import ComposeNode, Place
from clusters.engine import NODE_LABEL, PROBLEMS, RUN_LABEL, command
from clusters.own_services import OwnServer, own_servers
from clusters.properties import BROKER, CONTROLLER
from harness.clock import Clock
from harness.errors import BadInput, ClusterFailed
from harness.plan import Plan
from harness.run_directory import RunDirectory

CONFIG_TIMEOUT_S, UP_TIMEOUT_S = 60.0, 600.0
"""Compose may pull their images, or build them."""
COPY_TIMEOUT_S = 300.0


class OwnComposeCluster(ContainersCluster):
    """`harness.protocols.Cluster` of the services of `compose.file` that run Kafka; the others are started beside them."""

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
    def bootstrap_servers(self) -> str:
        return ",".join(f"{host}:{port}" for s in self._servers if s.clients for host, port in [s.clients])

    @property
    def relay_servers(self) -> str:
        """For callers outside the run: they are on the host, too."""
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
    def client_address(self) -> str:
        """Where clients on the host come from: the gateway of the first broker's network."""
        broker = next(s for s in self._servers if BROKER in s.roles)
        return self._network_of(broker, "Gateway")

    def _images_of_networks(self) -> Collection[str]:
        return {str(self._configuration["services"][s.service].get("image", "built")) for s in self._servers}

    def _read(self) -> Mapping[str, Any]:
        try:
            told = command(
                ["compose", "--file", str(self._file), "--project-name", self._project, "config", "--format", "json"],
                timeout_s=CONFIG_TIMEOUT_S,
            )
        except ClusterFailed as error:
            raise BadInput(f"compose.file = {str(self._file)!r}: Compose does not take it: {error}") from error
        found: Mapping[str, Any] = json.loads(told)
        return found

    def _container(self, server: OwnServer) -> str:
        service = self._configuration["services"][server.service]
        return str(service.get("container_name") or f"{self._project}-{server.service}-1")

    def _node(self, server: OwnServer) -> ComposeNode:
        container = self._container(server)
        place = Place(
            name=server.name,
            node_id=server.node_id,
            roles=server.roles,
            data_directory=self._run.nodes / server.name / "data",
            container=container,
            holder=container,
            guarded=self._zookeeper and BROKER in server.roles,
        )
        return ComposeNode(
            place,
            address=lambda: self._network_of(server, "IPAddress"),
            client=self._client,
            parts=self._parts,
            clock=self._clock,
        )

    def _network_of(self, server: OwnServer, what: str) -> str:
        """Of the first of its networks, by name; "" while it has none."""
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
        labels.write_text(text_of(self._labels(), comment=f"What is laid over {self._file}."), encoding="utf-8")
        files = ["--file", str(self._file), "--file", str(labels)]
        try:
            command(["compose", *files, "--project-name", self._project, "up", "--detach"], timeout_s=UP_TIMEOUT_S)
        except ClusterFailed as error:
            raise ClusterFailed(f"Compose could not start {self._file}: {error}") from error

    def _labels(self) -> Mapping[str, Any]:
        """Of everything the file makes, so that it can be found and removed. What is external is left alone."""
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

    def _keep_data(self) -> None:
        """Data is in volumes or in the containers: copied out of them once their servers are dead."""
        for server, node in zip(self._servers, self._nodes, strict=True):
            shutil.rmtree(node.data_directory, ignore_errors=True)
            with suppress(ClusterFailed, *PROBLEMS):
                node.kill()
                self._copy_out(server, node.data_directory)

    def _copy_out(self, server: OwnServer, into: Path) -> None:
        into.mkdir(parents=True)
        command(["cp", f"{self._container(server)}:{server.data}/.", str(into)], timeout_s=COPY_TIMEOUT_S)
