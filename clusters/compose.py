"""The compose backend: real Kafka in containers of Docker Compose, on an engine of this machine.

The run stage runs on the host: it reaches the nodes by their addresses on two networks, `data`, which faults touch, and
`observer`, which no fault touches. Whatever is made is labelled with the run (`clusters.engine`), and goes with it.
"""

import os
import shutil
from collections.abc import Collection, Mapping
from typing import Any

from clusters.agent import metrics_agent
from clusters.cache import make_cache
from clusters.compose_base import ContainersCluster
from clusters.compose_exec import by_exec
from clusters.compose_faults import (
    ContainerCuts,
    HostNetwork,
    Now,
    give_away,
    groups_can_be_left,
    keep_contents,
    served_ports,
)
from clusters.compose_file import (
    HOLDER,
    ZOOKEEPER_DATA_IN_CONTAINER,
    Heaps,
    Setting,
    place_in_networks,
    run_document,
    text_of,
    zookeeper_file,
)
from clusters.compose_network import SUBNETS, NodeNetwork, first_number, free_prefixes, subnets_of
from clusters.compose_node import ComposeNode, Place
from clusters.compose_own import OwnComposeCluster
from clusters.engine import command, sweep
from clusters.equipment import Equipment, Equipped
from clusters.images import find_image
from clusters.impairers import Parts
from clusters.jars import ensure_jars
from clusters.java import find_java
from clusters.link_parts import WAYS, harmers, impairers
from clusters.link_support import refusals
from clusters.links import API_VERSIONS, FOUR_LETTERS, LinkEnd, Links
from clusters.local_clients import ClientCuts
from clusters.orphans import PIDS_NAME
from clusters.placed_servers import PlacedServers
from clusters.properties import BROKER, ZOOKEEPER, Placement, properties_text
from clusters.servers import cluster_id_in
from clusters.storage_format import bootstrap_checkpoint, format_directory, new_kafka_uuid
from clusters.zookeeper import prepare_directory, zookeeper_properties
from harness.clock import Clock
from harness.errors import ClusterFailed
from harness.impairments import CLIENTS
from harness.needs import capabilities_needed
from harness.plan import Plan
from harness.protocols import Capability
from harness.run_directory import RunDirectory

UP_TIMEOUT_S = 120.0
UP_TRIES = 3
"""Another run may take the same subnet between our look and Compose's deed."""
_KAFKA_USER_ID = 1000
"""Of `appuser` in the official image, whose servers write into the nodes' data directories."""
_OVERLAP = "overlaps with"


def compose_cluster(
    plan: Plan,
    run: RunDirectory,
    *,
    clock: Clock,
    isolation: str | None = None,
) -> ContainersCluster:
    """The cluster of a plan: of the file that it names, or of one that is written for the run."""
    return (
        ComposeCluster(plan, run, clock=clock)
        if plan.compose.file is None
        else OwnComposeCluster(plan, run, clock=clock)
    )


class ComposeCluster(PlacedServers, ContainersCluster):
    """`harness.protocols.Cluster` of containers. Any number at a time on one engine."""

    def __init__(self, plan: Plan, run: RunDirectory, *, clock: Clock) -> None:
        super().__init__(plan, run, clock=clock)
        self._agent = metrics_agent() if plan.metrics else None
        self._prefixes: Mapping[str, str] = {name: f"{start}.0" for name, start in SUBNETS.items()}
        self._placements = place_in_networks(self._variant, run.nodes, self._prefixes)
        self._equipment = Equipment(
            run,
            [Equipped(p.name, p.data_directory, run.nodes / p.name) for p in self._placements],
            needs=capabilities_needed(plan),
            mounts=os.geteuid() == 0,
            agents=Now(lambda: self.metrics_servers),
            clock=clock,
        )
        self._links = Links(self._link_ends, clock=clock)
        self._networks: dict[str, NodeNetwork] = {}
        cuts = ContainerCuts(self._networks, self._addresses, lambda: self.client_address)
        of_links = impairers(self._links, logs=run.logs, clock=clock, record_pids=run.path / PIDS_NAME)
        self._parts = Parts(
            {**self._equipment.impairers, **of_links, "client-cut": ClientCuts(cuts, self._links)},
            {**self._equipment.harmers, **harmers(self._links, clock, of_links)},
        )
        self._nodes = tuple(self._node(index) for index in range(len(self._placements)))
        self._networks |= {node.name: node.network for node in self._nodes}

    @property
    def relay_servers(self) -> str:
        """For callers outside the run: they are on the host, too."""
        return self.bootstrap_servers

    @property
    def _has_agents(self) -> bool:
        return self._agent is not None

    def wait_ready(self, *, timeout_s: float) -> None:
        """And what the image's formatting wrote is on the nodes' disks: without it none would start after a power loss."""
        super().wait_ready(timeout_s=timeout_s)
        for placement in self._placements:
            if (disk := self._equipment.disk_of(placement.name)) is not None:
                disk.sync()

    @property
    def client_address(self) -> str:
        """Where clients on the host come from on the data network: what `ComposeNode.block_address` takes to cut them off."""
        return f"{self._prefixes['data']}.1"

    # --- faults -----------------------------------------------------------------------------------------------------

    def _more(self) -> Mapping[Capability, str]:
        found = dict(self._equipment.capabilities)
        if not groups_can_be_left():
            found.pop(Capability.SLOW_DISK, None)
        if not by_exec():
            found[Capability.CUT_CLIENTS] = "an iptables rule in the node's network namespace"
            refused = refusals()
            found |= {capability: how for capability, how in WAYS.items() if capability not in refused}
        return found

    def _lacks_of_more(self) -> Mapping[Capability, str]:
        by_engine = "networks of containers are not entered here; that needs root"
        links = dict.fromkeys(WAYS, by_engine) if by_exec() else refusals()
        slow = {Capability.SLOW_DISK: "a server cannot be taken out of its container's control group (cgroup v2)"}
        return {**slow, **self._equipment.lacks, **links}

    def _images_of_networks(self) -> Collection[str]:
        return {self._find_image(p) for p in self._placements if ZOOKEEPER not in p.roles}

    def _thaw(self) -> None:
        self._equipment.release()

    def _let_go_of_disks(self) -> None:
        self._equipment.dissolve()
        for placement in self._placements:
            if (disk := self._equipment.disk_of(placement.name)) is not None:
                keep_contents(disk)

    def _addresses(self) -> Mapping[str, str]:
        return {p.name: p.data_address for p in self._placements}

    def _link_ends(self) -> list[LinkEnd]:
        ends = [
            LinkEnd(
                p.name,
                p.data_address,
                self._networks[p.name],
                served_ports(p),
                FOUR_LETTERS if ZOOKEEPER in p.roles else API_VERSIONS,
            )
            for p in self._placements
        ]
        return [*ends, LinkEnd(CLIENTS, self.client_address, HostNetwork(), has_rules=False)]

    # --- parts ------------------------------------------------------------------------------------------------------

    def _node(self, index: int) -> ComposeNode:
        placement = self._placements[index]
        place = Place(
            name=placement.name,
            node_id=placement.node_id,
            roles=placement.roles,
            data_directory=placement.data_directory,
            container=f"{self._project}-{placement.name}-1",
            holder=f"{self._project}-{HOLDER.format(placement.name)}-1",
            guarded=self._zookeeper and BROKER in placement.roles,
        )
        return ComposeNode(
            place,
            address=lambda: self._placements[index].data_address,
            client=self._client,
            parts=self._parts,
            clock=self._clock,
            started=lambda pid: self._join_group(placement.name, pid),
        )

    def _join_group(self, name: str, pid: int) -> None:
        """The server alone, with all of its threads; whatever else the engine does with the container stays."""
        if self._equipment.has_groups and groups_can_be_left():
            (self._equipment.group_of(name).directory / "cgroup.procs").write_text(f"{pid}\n")

    def _find_image(self, placement: Placement) -> str:
        options = self._plan.compose
        version = self._variant.version_of(placement.name)
        if ZOOKEEPER in placement.roles:
            return find_image("zookeeper", version, wanted=options.zookeeper_image)
        return find_image("kafka", version, wanted=options.kafka_image, zookeeper=self._zookeeper)

    def _id_of_cluster(self) -> str:
        """With ZooKeeper, brokers make an id up when they first start."""
        return self._cluster_id or next(
            filter(None, (cluster_id_in(p.data_directory / "meta.properties") for p in self._placements)), ""
        )

    def _make_directories(self) -> None:
        """Fresh data directories, which the servers' user may write; no data survives from an earlier run.

        The image formats with the levels of its own version. Where those are not wanted, or not every node has the same, it
        finds the directory formatted already.
        """
        self._cluster_id = "" if self._zookeeper else new_kafka_uuid()
        own_levels = not self._variant.features and len(self._variant.kafka_versions) == 1
        checkpoint = None if self._zookeeper or own_levels else self._checkpoint()
        for placement in self._placements:
            directory = placement.data_directory
            shutil.rmtree(directory, ignore_errors=True)
            if ZOOKEEPER in placement.roles:
                prepare_directory(directory, placement)
                zoo = zookeeper_properties(placement, self._placements, own_network=True)
                inside = zoo | {"dataDir": ZOOKEEPER_DATA_IN_CONTAINER}
                zookeeper_file(placement).write_text(properties_text(inside), encoding="utf-8")
            elif checkpoint is not None:
                format_directory(
                    directory, node_id=placement.node_id, cluster_id=self._cluster_id, checkpoint=checkpoint
                )
            else:
                directory.mkdir(parents=True)
        self._equipment.install()
        for placement in self._placements:
            for path in (placement.data_directory, *placement.data_directory.rglob("*")):
                give_away(path, _KAFKA_USER_ID)
            if (disk := self._equipment.disk_of(placement.name)) is not None:
                disk.sync()

    def _checkpoint(self) -> bytes:
        """Every server must understand it, so it is the oldest one's."""
        version = self._variant.oldest_version
        return bootstrap_checkpoint(
            version,
            java=find_java().executable,
            jars=ensure_jars(version),
            cache=make_cache("formats"),
            features=self._variant.features,
        )

    def _bring_up(self) -> None:
        """Write the file, and let Compose make what is in it."""
        self._images = {p.name: self._find_image(p) for p in self._placements}
        first = first_number(self._label)
        for attempt in range(UP_TRIES):
            taken = subnets_of(self._client().api.networks())
            self._prefixes = free_prefixes(taken, first=first + attempt)
            self._placements = place_in_networks(self._variant, self._run.nodes, self._prefixes)
            self._make_directories()
            file = self._run.compose
            file.write_text(text_of(self._document(), comment="What this run runs on."), encoding="utf-8")
            try:
                command(["compose", "--file", str(file), "up", "--detach", "--no-build"], timeout_s=UP_TIMEOUT_S)
            except ClusterFailed as error:
                if _OVERLAP not in str(error) or attempt == UP_TRIES - 1:
                    raise ClusterFailed(f"Compose could not start the cluster: {error}") from error
                sweep(self._client(), self._run)
            else:
                return

    def _preloads(self, name: str) -> Mapping[str, str]:
        """Where what it writes into is not there yet, it is made: a file cannot be bound that is none."""
        found = self._equipment.environment(name)
        if str(syncs := self._equipment.syncs_of(name)) in found.values():
            syncs.touch()
            give_away(syncs, _KAFKA_USER_ID)
        return found

    def _document(self) -> Mapping[str, Any]:
        options = self._plan.compose
        setting = Setting(
            images=self._images,
            cluster_id=self._cluster_id,
            heaps=Heaps(options.broker_heap or Heaps().broker, options.controller_heap or Heaps().controller),
            agent=self._agent,
            preloads={p.name: self._preloads(p.name) for p in self._placements},
        )
        return run_document(
            self._variant,
            self._placements,
            setting,
            run_label=self._label,
            project=self._project,
            prefixes=self._prefixes,
        )
