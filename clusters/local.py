"""The local backend: a real Kafka cluster as plain JVM processes, each in its own network namespace. No Docker, no root.

The run stage runs inside the sandbox (`clusters.sandbox`); this module makes namespaces and servers in it. What keeps the
nodes apart where there are no namespaces, and what that costs, is `clusters.sandbox.COSTS`.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clusters.agent import metrics_agent
from clusters.archives import archive_flags, class_data_archive
from clusters.cache import make_cache
from clusters.impairers import Parts
from clusters.jars import class_path, ensure_jars
from clusters.java import JavaRuntime, find_java
from clusters.local_node import Launch, LocalNode
from clusters.network import DATA, RELAY_HOST, RUN_STAGE_HOST, Network, address_of
from clusters.orphans import PIDS_NAME
from clusters.placements import place_nodes
from clusters.properties import (
    BROKER,
    CONTROLLER,
    HEAP,
    JVM_FLAGS,
    SCRATCH,
    Placement,
    logging_properties,
    properties_text,
    server_properties,
    shaping_settings,
)
from clusters.ready import Readiness
from clusters.sandbox import COSTS, Isolation, checked_isolation, isolation_here
from clusters.storage_format import bootstrap_checkpoint, feature_levels, format_directory, new_kafka_uuid
from harness.clock import Clock
from harness.errors import ClusterFailed
from harness.jolokia import agent_flags
from harness.plan import Plan
from harness.protocols import Capability
from harness.run_directory import RunDirectory


class LocalCluster:
    """`harness.protocols.Cluster` of real JVMs on this machine. At most one at a time in a sandbox."""

    def __init__(
        self,
        plan: Plan,
        run: RunDirectory,
        *,
        clock: Clock,
        isolation: Isolation | None = None,
        relay_ports: Mapping[int, int] | None = None,
    ) -> None:
        """`isolation`: how nodes are kept apart; None = as the sandbox told this process. `relay_ports`: broker id → port
        on 127.0.0.1 outside, where a relay listens for it; each such broker gets a CLIENT listener that advertises it."""
        self._variant, self._run, self._clock = plan.variant, run, clock
        self._agent = metrics_agent() if plan.metrics else None
        self._isolation = isolation_here() if isolation is None else checked_isolation(isolation)
        self._placements = place_nodes(
            plan.variant, run.nodes, shared_host=self._isolation != "namespaces", relay_ports=relay_ports or {}
        )
        hosts = {p.name: int(p.data_address.rpartition(".")[2]) for p in self._placements}
        self._network = Network(hosts) if self._isolation == "namespaces" else None
        self._parts = Parts()
        self._nodes: tuple[LocalNode, ...] = ()
        self._java: JavaRuntime | None = None
        self._features: Mapping[str, int] = {}
        self._archives: dict[str, Path | None] = {}
        self._jars: tuple[Path, ...] = ()
        self._cluster_id = ""
        self._nodes = tuple(self._node(p) for p in self._placements)

    @property
    def nodes(self) -> Sequence[LocalNode]:
        return self._nodes

    @property
    def isolation(self) -> Isolation:
        """How nodes are kept apart."""
        return self._isolation

    @property
    def capabilities(self) -> Mapping[Capability, str]:
        processes: dict[Capability, str] = {
            Capability.KILL: "SIGKILL to the server process",
            Capability.STOP: "SIGTERM to the server process: a controlled shutdown",
            Capability.PAUSE: "SIGSTOP to the server process",
        }
        if self._network is None:
            return processes
        return processes | {Capability.BLOCK: "a blackhole rule in the receiving node's own network namespace"}

    @property
    def lacks(self) -> Mapping[Capability, str]:
        lacking = {c: "this version of the local backend cannot" for c in Capability if c not in self.capabilities}
        if self._network is None:
            lacking[Capability.BLOCK] = "no network namespaces here: " + " ".join(COSTS["signals"][:1])
        return lacking

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{p.data_address}:{p.data_port}" for p in self._having(BROKER))

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
    def client_servers(self) -> Mapping[int, tuple[str, int]]:
        """Per broker id: (host, port) of its CLIENT listener, to which a relay connects; empty without a relay."""
        return {p.node_id: (p.data_address, p.client_port) for p in self._having(BROKER) if p.client_port}

    @property
    def client_address(self) -> str:
        """Where workload clients of this process come from: what `LocalNode.block_address` takes to cut them off."""
        return address_of(RUN_STAGE_HOST, DATA) if self._network is not None else "127.0.0.1"

    @property
    def relay_address(self) -> str | None:
        """Where a relay calls from, other than `client_address`; None: the system's choice."""
        return address_of(RELAY_HOST, DATA) if self._network is not None else None

    def setup(self) -> None:
        self.teardown()
        try:
            self._format()
            if self._network is not None:
                self._network.setup()
            for node in self._nodes:
                node.open_network()
            for node in self._nodes:
                node.start()
            self._check_alive()
        except BaseException:
            self.teardown()
            raise

    def wait_ready(self, *, timeout_s: float) -> None:
        Readiness(self.observer_servers, timeout_s=timeout_s, clock=self._clock, check_alive=self._check_alive).wait(
            self._features
        )

    def describe(self) -> Mapping[str, Any]:
        memory = {node.name: node.memory_mib() for node in self._nodes}
        return {
            "backend": "local",
            "kafka_version": self._variant.kafka_version,
            "metadata_mode": self._variant.metadata_mode,
            "cluster_id": self._cluster_id,
            "java": None if self._java is None else {"major": self._java.major, "origin": self._java.origin},
            "features": dict(self._features),
            "settings": shaping_settings(self._variant),
            "isolation": {"level": self._isolation, "costs": list(COSTS[self._isolation])},
            "class_data_archives": {role: path is not None for role, path in self._archives.items()},
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
        into.mkdir(parents=True, exist_ok=True)
        for node in self._nodes:
            log, copy = self._log_of(node.name), into / f"{node.name}.log"
            if log.exists() and log.resolve() != copy.resolve():
                shutil.copyfile(log, copy)

    def teardown(self) -> None:
        """SIGKILL, not SIGTERM: without a quorum the last node of a combined cluster hangs in its controlled shutdown."""
        problems = []
        for node in self._nodes:
            try:
                node.close()
            except Exception as error:  # noqa: BLE001 - the others are ended all the same
                problems.append(str(error))
        if self._network is not None:
            self._network.teardown()
        if problems:
            raise ClusterFailed("Not everything could be removed: " + "; ".join(problems))

    # --- parts ------------------------------------------------------------------------------------------------------

    def _having(self, role: str) -> list[Placement]:
        return [p for p in self._placements if role in p.roles]

    def _log_of(self, name: str) -> Path:
        return self._run.logs / f"{name}.log"

    def _node(self, placement: Placement) -> LocalNode:
        launch = Launch(
            command=lambda: self._command(placement),
            log=self._log_of(placement.name),
            working_directory=self._run.nodes / placement.name,
            record_pids=None if self._network is not None else self._run.path / PIDS_NAME,
        )
        return LocalNode(placement, launch, network=self._network, parts=self._parts, clock=self._clock)

    def _format(self) -> None:
        """Fresh directories and files of every node; no data survives from an earlier run."""
        version = self._variant.kafka_version
        self._java = find_java()
        self._jars = jars = ensure_jars(version)
        self._cluster_id = new_kafka_uuid()
        checkpoint = bootstrap_checkpoint(
            version,
            java=self._java.executable,
            jars=jars,
            cache=make_cache("formats"),
            features=self._variant.features,
        )
        self._features = feature_levels(checkpoint)
        self._run.logs.mkdir(parents=True, exist_ok=True)
        file_name, text, _ = logging_properties(version)
        for placement in self._placements:
            directory = self._run.nodes / placement.name
            shutil.rmtree(directory, ignore_errors=True)
            (directory / SCRATCH).mkdir(parents=True)
            format_directory(
                placement.data_directory,
                node_id=placement.node_id,
                cluster_id=self._cluster_id,
                checkpoint=checkpoint,
            )
            (directory / file_name).write_text(text, encoding="utf-8")
            properties = server_properties(self._variant, placement, self._placements)
            (directory / "server.properties").write_text(properties_text(properties), encoding="utf-8")
        for role in {_main_role(p) for p in self._placements}:
            self._archives[role] = class_data_archive(version, role, self._java, jars)

    def _command(self, placement: Placement) -> list[str]:
        assert self._java is not None, "not set up"
        role, directory = _main_role(placement), self._run.nodes / placement.name
        file_name, _, option = logging_properties(self._variant.kafka_version)
        return [
            str(self._java.executable),
            *HEAP[role],
            *JVM_FLAGS,
            f"-Djava.io.tmpdir={directory / SCRATCH}",
            *archive_flags(self._archives.get(role)),
            *agent_flags(self._agent, host=placement.observer_address, port=placement.metrics_port),
            f"{option}{directory / file_name}",
            "-cp",
            class_path(self._jars),
            "kafka.Kafka",
            str(directory / "server.properties"),
        ]

    def _check_alive(self) -> None:
        for node in self._nodes:
            if (code := node.died) is not None:
                raise ClusterFailed(
                    f"{node.name} ended by itself (exit {code}). Its last log lines, from "
                    f"{self._log_of(node.name)}:\n{node.log_tail()}"
                )


def _main_role(placement: Placement) -> str:
    """As heaps and archives are named: a combined node is a broker."""
    return BROKER if BROKER in placement.roles else CONTROLLER
