"""The local backend: a real Kafka cluster, with KRaft or ZooKeeper, as plain JVM processes, each in its own network
namespace. No Docker, no root.

The run stage runs inside the sandbox (`clusters.sandbox`); this module makes namespaces and servers in it. What keeps the
nodes apart where there are no namespaces, and what that costs, is `clusters.sandbox.COSTS`.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clusters.agent import metrics_agent
from clusters.equipment import Equipment, Equipped
from clusters.impairers import Harmer, Parts
from clusters.installs import InstalledServers, MigratedServers
from clusters.link_parts import WAYS, harmers, impairers
from clusters.link_support import refusals
from clusters.links import API_VERSIONS, FOUR_LETTERS, LinkEnd, Links
from clusters.local_clients import ClientCuts
from clusters.local_node import Launch, LocalNode
from clusters.network import DATA, RELAY_HOST, RUN_STAGE_HOST, NamespaceOf, Network, address_of
from clusters.orphans import PIDS_NAME
from clusters.placed_servers import PlacedServers
from clusters.placements import place_nodes
from clusters.properties import BROKER, CONTROLLER, ZOOKEEPER, Placement, shaping_settings
from clusters.ready import Readiness
from clusters.sandbox import COSTS, Isolation, checked_isolation, isolation_here
from clusters.servers import Servers
from harness.clock import Clock
from harness.errors import ClusterFailed
from harness.impairments import CLIENTS
from harness.needs import capabilities_needed, versions_installed
from harness.plan import Plan
from harness.protocols import Capability
from harness.run_directory import RunDirectory


class LocalCluster(PlacedServers):
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
        self._metrics = plan.metrics and metrics_agent() is not None
        self._isolation = isolation_here() if isolation is None else checked_isolation(isolation)
        self._placements = place_nodes(
            plan.variant, run.nodes, shared_host=self._isolation != "namespaces", relay_ports=relay_ports or {}
        )
        hosts = {p.name: int(p.data_address.rpartition(".")[2]) for p in self._placements}
        self._network = Network(hosts) if self._isolation == "namespaces" else None
        self._equipment = Equipment(
            run,
            [Equipped(p.name, p.data_directory, run.nodes / p.name) for p in self._placements],
            needs=capabilities_needed(plan),
            mounts=self._network is not None,
            agents=self.metrics_servers,
            clock=clock,
        )
        self._relayed = bool(relay_ports)
        self._links = Links(self._link_ends, clock=clock)
        self._parts = self._all_parts()
        self._nodes: tuple[LocalNode, ...] = ()
        self._servers = Servers(
            plan.variant,
            self._placements,
            run.nodes,
            own_networks=self._network is not None,
            agent=metrics_agent() if self._metrics else None,
            later=versions_installed(plan),
        )
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
            Capability.INSTALL: "its server is started from other jars",
            **self._equipment.capabilities,
        }
        if self._network is None:
            return processes
        return processes | {
            Capability.BLOCK: "a blackhole rule in the receiving node's own network namespace",
            Capability.CUT_CLIENTS: "a blackhole rule in the namespace of whoever receives",
            **{capability: how for capability, how in WAYS.items() if capability not in refusals()},
        }

    @property
    def lacks(self) -> Mapping[Capability, str]:
        lacking = {c: "this version of the local backend cannot" for c in Capability if c not in self.capabilities}
        lacking |= self._equipment.lacks
        if self._network is None:
            why = "no network namespaces here: " + " ".join(COSTS["signals"][:1])
            return lacking | dict.fromkeys((Capability.BLOCK, Capability.CUT_CLIENTS, *WAYS), why)
        return lacking | dict(refusals())

    @property
    def _has_agents(self) -> bool:
        return self._metrics

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
            self._run.logs.mkdir(parents=True, exist_ok=True)
            self._equipment.remove()
            self._servers.format()
            self._equipment.install()
            if self._network is not None:
                self._network.setup()
            for node in self._nodes:
                node.open_network()
            for node in self._nodes:
                if not self._waits(node.placement):
                    node.start()
            self._check_alive()
        except BaseException:
            self.teardown()
            raise

    def wait_ready(self, *, timeout_s: float) -> None:
        Readiness(self.observer_servers, timeout_s=timeout_s, clock=self._clock, check_alive=self._check_alive).wait(
            self._servers.features
        )

    def describe(self) -> Mapping[str, Any]:
        memory, java = {node.name: node.memory_mib() for node in self._nodes}, self._servers.java
        return {
            "backend": "local",
            "kafka_version": self._variant.oldest_version,
            "kafka_versions": {node.name: self._servers.version_of(node.name) for node in self._nodes},
            "metadata_mode": self._variant.metadata_mode,
            "cluster_id": self._servers.cluster_id,
            "java": None if java is None else {"major": java.major, "origin": java.origin},
            "features": dict(self._servers.features),
            "settings": shaping_settings(self._variant),
            "isolation": {"level": self._isolation, "costs": list(COSTS[self._isolation])},
            "class_data_archives": dict(self._servers.archives),
            "nodes": {
                node.name: {
                    "id": node.node_id,
                    "roles": sorted(node.roles),
                    "address": node.address,
                    "rack": node.placement.rack,
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
        self._equipment.release()
        for node in self._nodes:
            try:
                node.close()
            except Exception as error:  # noqa: BLE001 - the others are ended all the same
                problems.append(str(error))
        self._parts.close()
        try:
            self._equipment.dissolve()
        except Exception as error:  # noqa: BLE001 - the network is removed all the same
            problems.append(str(error))
        if self._network is not None:
            self._network.teardown()
        if problems:
            raise ClusterFailed("Not everything could be removed: " + "; ".join(problems))

    # --- parts ------------------------------------------------------------------------------------------------------

    def _all_parts(self) -> Parts:
        equipment = self._equipment
        installs: dict[str, Harmer] = {
            "install": InstalledServers(lambda: self._servers, clock=self._clock),
            "migrate": MigratedServers(lambda: self._servers),
        }
        if self._network is None:
            return Parts(equipment.impairers, {**equipment.harmers, **installs})
        client_cuts = {"client-cut": ClientCuts(self._network, self._links)}
        of_links = impairers(self._links, logs=self._run.logs, clock=self._clock)
        return Parts(
            {**equipment.impairers, **of_links, **client_cuts},
            {**equipment.harmers, **harmers(self._links, self._clock, of_links), **installs},
        )

    def _link_ends(self) -> list[LinkEnd]:
        """Of the nodes, and of the clients: behind the relay where there is one."""
        assert self._network is not None, "without namespaces there is nothing to act on"
        clients = (self.relay_address if self._relayed else None) or self.client_address
        ends = [LinkEnd(CLIENTS, clients, NamespaceOf(self._network, None))]
        for placement in self._placements:
            ports = [placement.data_port] if {BROKER, ZOOKEEPER} & placement.roles else []
            ports += [placement.controller_port] if {CONTROLLER, ZOOKEEPER} & placement.roles else []
            ports += [placement.client_port] if placement.client_port else []
            seam = NamespaceOf(self._network, placement.name)
            question = FOUR_LETTERS if ZOOKEEPER in placement.roles else API_VERSIONS
            ends.append(LinkEnd(placement.name, placement.data_address, seam, tuple(ports), question))
        return ends

    def _waits(self, placement: Placement) -> bool:
        """Is it a controller that the migration from ZooKeeper starts?"""
        return self._variant.metadata_mode == "zookeeper" and CONTROLLER in placement.roles

    def _log_of(self, name: str) -> Path:
        return self._run.logs / f"{name}.log"

    def _node(self, placement: Placement) -> LocalNode:
        launch = Launch(
            command=lambda: self._equipment.command(placement.name, self._servers.command(placement)),
            log=self._log_of(placement.name),
            working_directory=self._run.nodes / placement.name,
            record_pids=None if self._network is not None else self._run.path / PIDS_NAME,
            environment=lambda: self._equipment.environment(placement.name),
            # A broker with ZooKeeper exits where one with KRaft waits.
            guarded=self._variant.metadata_mode == "zookeeper" and BROKER in placement.roles,
        )
        return LocalNode(placement, launch, network=self._network, parts=self._parts, clock=self._clock)

    def _check_alive(self) -> None:
        for node in self._nodes:
            if (code := node.died) is not None:
                raise ClusterFailed(
                    f"{node.name} ended by itself (exit {code}). Its last log lines, from "
                    f"{self._log_of(node.name)}:\n{node.log_tail()}"
                )
