"""What clusters of containers have in common, whoever wrote their Compose file: readiness, facts, logs, and their end."""

import hashlib
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from clusters.compose_exec import by_exec
from clusters.compose_network import network_problem
from clusters.compose_node import ComposeNode
from clusters.engine import PROBLEMS, connect, endpoint, run_label, save_logs, sweep
from clusters.images import has_tools
from clusters.impairers import Parts
from clusters.properties import shaping_settings
from clusters.ready import Readiness
from clusters.wire import WireClient
from clusters.wire_requests import api_versions_request
from harness.clock import Clock
from harness.errors import ClusterFailed, HarnessFailed
from harness.plan import Plan
from harness.protocols import Capability
from harness.run_directory import RunDirectory


class ContainersCluster:
    """`harness.protocols.Cluster`, but for where its servers are and how they are brought up."""

    def __init__(self, plan: Plan, run: RunDirectory, *, clock: Clock) -> None:
        """BadInput if the engine is not of this machine."""
        endpoint()
        self._plan, self._variant, self._run, self._clock = plan, plan.variant, run, clock
        self._label = run_label(run)
        self._project = "prozess-" + hashlib.sha256(self._label.encode()).hexdigest()[:10]
        self._connection: Any = None
        self._images: Mapping[str, str] = {}
        """Name of a node → its image."""
        self._cluster_id = ""
        self._features: Mapping[str, int] = {}
        self._parts = Parts()
        self._nodes: tuple[ComposeNode, ...] = ()

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
        if self._cuts_lacking is None:
            found[Capability.BLOCK] = "an iptables rule in the network namespace of the receiving node"
        return {**found, **self._more()}

    @property
    def lacks(self) -> Mapping[Capability, str]:
        lacking = {
            **{c: "this version of the compose backend cannot" for c in Capability},
            **self._lacks_of_more(),
        }
        by_engine = "cuts are made by the engine here, and this one cannot be: that needs root"
        lacking |= {Capability.BLOCK: self._cuts_lacking or "", Capability.CUT_CLIENTS: self._cuts_lacking or by_engine}
        return {c: why for c, why in lacking.items() if c not in self.capabilities}

    @cached_property
    def _cuts_lacking(self) -> str | None:
        """Why there are no cuts here; None: there are."""
        if not by_exec():
            return None
        if all(has_tools(image) for image in self._images_of_networks()):
            return None
        return (
            f"{network_problem() or 'it is asked for'}, and the image has no iptables that could be run in it instead"
        )

    def _images_of_networks(self) -> Collection[str]:
        """Images in which cuts are made, where they are made from within."""
        raise NotImplementedError

    def _more(self) -> Mapping[Capability, str]:
        """Capabilities beyond processes and cuts."""
        return {}

    def _lacks_of_more(self) -> Mapping[Capability, str]:
        """Why not, where it is known better."""
        return {}

    @property
    def observer_servers(self) -> Mapping[int, tuple[str, int]]:
        """As of the protocol."""
        raise NotImplementedError

    def setup(self) -> None:
        self.teardown()
        try:
            self._bring_up()
            for node in self._nodes:
                node.began()
                node.network.open_probe(node.address)
            self._check_alive()
        except BaseException:
            with suppress(HarnessFailed, *PROBLEMS):
                self.teardown()
            raise

    def _bring_up(self) -> None:
        """Let Compose make and start everything."""
        raise NotImplementedError

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
            "cluster_id": self._id_of_cluster(),
            "features": dict(self._features),
            "settings": shaping_settings(self._variant),
            "engine": {"version": version.get("Version"), "kernel": version.get("KernelVersion")},
            "images": dict(self._images),
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
        self._thaw()
        self._parts.close()
        for node in self._nodes:
            node.close()
        if self._connection is None and not self._run.compose.exists():
            return
        try:
            self._keep_data()
            swept = sweep(self._client(), self._run)
            self._let_go_of_disks()
        finally:
            self._disconnect()
        if swept.left:
            raise ClusterFailed("Not everything could be removed: " + "; ".join(swept.left))

    def _thaw(self) -> None:
        """Whoever waits for a frozen disk cannot be ended."""

    def _let_go_of_disks(self) -> None:
        """Containers are gone; what is mounted on the host goes."""

    def _keep_data(self) -> None:
        """What must be read after the end, and would go with the containers."""

    def _client(self) -> Any:  # noqa: ANN401 - docker.DockerClient
        if self._connection is None:
            self._connection = connect()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _finalized_features(self) -> Mapping[str, int]:
        """As the brokers say them; none in ZooKeeper mode."""
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

    @property
    def _zookeeper(self) -> bool:
        return self._variant.metadata_mode == "zookeeper"

    def _id_of_cluster(self) -> str:
        return self._cluster_id
