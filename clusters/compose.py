"""The compose backend: real Kafka in containers of Docker Compose, on an engine of this machine.

The run stage runs on the host: it reaches the nodes by their addresses on two networks, `data`, which faults touch, and
`observer`, which no fault touches. Whatever is made is labelled with the run (`clusters.engine`), and goes with it.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from clusters.agent import metrics_agent
from clusters.compose_file import HOLDER, Heaps, Images, Setting, place_in_networks, run_document, text_of
from clusters.compose_network import SUBNETS, first_number, free_prefixes, network_problem, subnets_of
from clusters.compose_node import ComposeNode, Place
from clusters.engine import MARKER_NAME, PROBLEMS, command, connect, run_label, save_logs, sweep
from clusters.images import find_image
from clusters.impairers import Parts
from clusters.properties import BROKER, CONTROLLER, Placement, shaping_settings
from clusters.ready import Readiness
from clusters.storage_format import new_kafka_uuid
from clusters.wire import WireClient
from clusters.wire_requests import api_versions_request
from harness.clock import Clock
from harness.errors import BadInput, ClusterFailed, HarnessFailed
from harness.plan import Plan
from harness.protocols import Capability
from harness.run_directory import RunDirectory

UP_TIMEOUT_S = 120.0
UP_TRIES = 3
"""Another run may take the same subnet between our look and Compose's deed."""
_KAFKA_USER_ID = 1000
"""Of `appuser` in the official image, whose servers write into the nodes' data directories."""
_OVERLAP = "overlaps with"


class ComposeCluster:
    """`harness.protocols.Cluster` of containers. Any number at a time on one engine."""

    def __init__(
        self,
        plan: Plan,
        run: RunDirectory,
        *,
        clock: Clock,
        isolation: str | None = None,
    ) -> None:
        self._plan, self._variant, self._run, self._clock = plan, plan.variant, run, clock
        if self._variant.features:
            raise BadInput(
                "variant.features cannot be chosen on the compose backend: the image formats with the levels of its version. "
                "Leave it out, or use the local backend."
            )
        self._agent = metrics_agent() if plan.metrics else None
        self._label = run_label(run)
        self._project = "prozess-" + hashlib.sha256(self._label.encode()).hexdigest()[:10]
        self._prefixes: Mapping[str, str] = {name: f"{start}.0" for name, start in SUBNETS.items()}
        self._placements = place_in_networks(self._variant, run.nodes, self._prefixes)
        self._connection: Any = None
        self._images = Images("")
        self._cluster_id = ""
        self._features: Mapping[str, int] = {}
        self._parts = Parts()
        self._nodes = tuple(self._node(index) for index in range(len(self._placements)))

    @property
    def nodes(self) -> Sequence[ComposeNode]:
        return self._nodes

    @property
    def capabilities(self) -> Mapping[Capability, str]:
        found: dict[Capability, str] = {
            Capability.KILL: "SIGKILL to the container's first process, which is the server",
            Capability.STOP: "SIGTERM to the container's first process: a controlled shutdown",
            Capability.PAUSE: "the engine freezes the container",
        }
        if network_problem() is None:
            found[Capability.BLOCK] = "an iptables rule in the network namespace of the receiving node"
        return found

    @property
    def lacks(self) -> Mapping[Capability, str]:
        lacking = {c: "this version of the compose backend cannot" for c in Capability if c not in self.capabilities}
        if (problem := network_problem()) is not None:
            lacking[Capability.BLOCK] = problem
        return lacking

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{p.data_address}:{p.data_port}" for p in self._having(BROKER))

    @property
    def relay_servers(self) -> str:
        """For callers outside the run: they are on the host, too."""
        return self.bootstrap_servers

    @property
    def observer_servers(self) -> Mapping[int, tuple[str, int]]:
        return {p.node_id: (p.observer_address, p.observer_port) for p in self._having(BROKER)}

    @property
    def controller_servers(self) -> Mapping[int, tuple[str, int]]:
        return {p.node_id: (p.observer_address, p.controller_observer_port) for p in self._having(CONTROLLER)}

    @property
    def metrics_servers(self) -> Mapping[int, tuple[str, int]]:
        """Per node id: (host, port) of its metrics agent, on the observer's link; empty if there is none here."""
        if not self._agent:
            return {}
        return {p.node_id: (p.observer_address, p.metrics_port) for p in self._placements}

    @property
    def client_address(self) -> str:
        """Where clients on the host come from on the data network: what `ComposeNode.block_address` takes to cut them off."""
        return f"{self._prefixes['data']}.1"

    def setup(self) -> None:
        self.teardown()
        self._images = Images(find_image("kafka", self._variant.kafka_version, wanted=self._plan.compose.kafka_image))
        self._cluster_id = new_kafka_uuid()
        try:
            self._make_directories()
            self._up()
            for node, placement in zip(self._nodes, self._placements, strict=True):
                if network_problem() is None:
                    node.network.open_probe(placement.data_address)
            self._check_alive()
        except BaseException:
            with suppress(HarnessFailed, *PROBLEMS):
                self.teardown()
            raise

    def wait_ready(self, *, timeout_s: float) -> None:
        Readiness(self.observer_servers, timeout_s=timeout_s, clock=self._clock, check_alive=self._check_alive).wait({})
        self._features = self._finalized_features()

    def describe(self) -> Mapping[str, Any]:
        memory = {node.name: node.memory_mib() for node in self._nodes}
        version = self._client().api.version()
        return {
            "backend": "compose",
            "kafka_version": self._variant.kafka_version,
            "metadata_mode": self._variant.metadata_mode,
            "cluster_id": self._cluster_id,
            "features": dict(self._features),
            "settings": shaping_settings(self._variant),
            "engine": {"version": version.get("Version"), "kernel": version.get("KernelVersion")},
            "images": {"kafka": self._images.kafka},
            "nodes": {
                node.name: {
                    "id": node.node_id,
                    "roles": sorted(node.roles),
                    "address": node.address,
                    "state": node.state().value,
                    "pid": node.os_pid,
                    "memory_pss_mib": memory[node.name],
                }
                for node in self._nodes
            },
            "memory_pss_mib": round(sum(m for m in memory.values() if m is not None), 1),
        }

    def collect_logs(self, into: Path) -> None:
        """Of a cluster that was taken down: what `teardown` kept in the run."""
        into.mkdir(parents=True, exist_ok=True)
        if self._connection is not None:
            save_logs(self._connection, self._run, into)
        for node in self._nodes:
            log, copy = self._run.logs / f"{node.name}.log", into / f"{node.name}.log"
            if log.exists() and not copy.exists():
                shutil.copyfile(log, copy)

    def teardown(self) -> None:
        """Not `docker compose down`: without a quorum brokers hang in their controlled shutdown, and what is left of a run
        is found by its label, whoever made it."""
        for node in self._nodes:
            node.network.close_probe()
        if self._connection is None and not (self._run.path / MARKER_NAME).exists():
            return
        try:
            swept = sweep(self._client(), self._run)
        finally:
            self._disconnect()
        if swept.left:
            raise ClusterFailed("Not everything could be removed: " + "; ".join(swept.left))

    # --- parts ------------------------------------------------------------------------------------------------------

    def _having(self, role: str) -> list[Placement]:
        return [p for p in self._placements if role in p.roles]

    def _client(self) -> Any:  # noqa: ANN401 - docker.DockerClient
        if self._connection is None:
            self._connection = connect()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _node(self, index: int) -> ComposeNode:
        placement = self._placements[index]
        place = Place(
            name=placement.name,
            node_id=placement.node_id,
            roles=placement.roles,
            data_directory=placement.data_directory,
            container=f"{self._project}-{placement.name}-1",
            holder=f"{self._project}-{HOLDER.format(placement.name)}-1",
        )
        return ComposeNode(
            place,
            address=lambda: self._placements[index].data_address,
            client=self._client,
            parts=self._parts,
            clock=self._clock,
        )

    def _make_directories(self) -> None:
        """Empty data directories, which the servers' user may write; no data survives from an earlier run."""
        for placement in self._placements:
            shutil.rmtree(placement.data_directory, ignore_errors=True)
            placement.data_directory.mkdir(parents=True)
            if os.geteuid() == 0:
                os.chown(placement.data_directory, _KAFKA_USER_ID, _KAFKA_USER_ID)
            else:
                placement.data_directory.chmod(0o777)

    def _up(self) -> None:
        """Write the file, and let Compose make what is in it."""
        first = first_number(self._label)
        for attempt in range(UP_TRIES):
            taken = subnets_of(self._client().api.networks())
            self._prefixes = free_prefixes(taken, first=first + attempt)
            self._placements = place_in_networks(self._variant, self._run.nodes, self._prefixes)
            file = self._run.path / MARKER_NAME
            file.write_text(text_of(self._document(), comment="What this run runs on."), encoding="utf-8")
            try:
                command(["compose", "--file", str(file), "up", "--detach", "--no-build"], timeout_s=UP_TIMEOUT_S)
            except ClusterFailed as error:
                if _OVERLAP not in str(error) or attempt == UP_TRIES - 1:
                    raise ClusterFailed(f"Compose could not start the cluster: {error}") from error
                sweep(self._client(), self._run)
            else:
                return

    def _document(self) -> Mapping[str, Any]:
        options = self._plan.compose
        setting = Setting(
            images=self._images,
            cluster_id=self._cluster_id,
            heaps=Heaps(options.broker_heap or Heaps().broker, options.controller_heap or Heaps().controller),
            agent=self._agent,
        )
        return run_document(
            self._variant,
            self._placements,
            setting,
            run_label=self._label,
            project=self._project,
            prefixes=self._prefixes,
        )

    def _finalized_features(self) -> Mapping[str, int]:
        """As the brokers say them: the image formats with the levels of its version."""
        wire = WireClient(lambda: self.observer_servers, name="broker", clock=self._clock)
        try:
            answers = wire.ask(next(iter(self.observer_servers)), api_versions_request(), timeout_s=5.0)
        finally:
            wire.close()
        return {} if answers is None else dict(answers[0].features)

    def _check_alive(self) -> None:
        for node in self._nodes:
            if (code := node.died) is not None:
                raise ClusterFailed(
                    f"{node.name} ended by itself (exit {code}). Its last log lines: {node.log_tail()}. "
                    f"The whole log is kept in {self._run.logs}."
                )
