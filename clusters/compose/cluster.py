"""The compose backend: real Kafka in containers of Docker Compose, on an engine of this machine.

The run stage runs on the host: it reaches the nodes by their addresses on two networks, `data`, which faults touch, and
`observer`, which no fault touches. Whatever is made is labelled with the run (`prozess.clusters.compose.engine`), and
goes with it."""

import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from prozess.clusters.compose.containers import ComposeNode, ContainersCluster, ContainerSetting
from prozess.clusters.compose.engine import command, find_image, sweep
from prozess.clusters.compose.file import (
    HOLDER,
    ZOOKEEPER_DATA_IN_CONTAINER,
    ComposeSetting,
    Heaps,
    connect_to_networks,
    run_document,
    text_of,
    zookeeper_file,
)
from prozess.clusters.compose.network import (
    COMMAND_TIMEOUT_S,
    SUBNETS,
    TOOLS_PATH,
    NodeNetwork,
    by_exec,
    first_number,
    free_prefixes,
    subnets_of,
)
from prozess.clusters.compose.user_cluster import OwnComposeCluster
from prozess.clusters.disks.impairers import Equipment, Equipped
from prozess.clusters.disks.volumes import Disk, groups_support
from prozess.clusters.impairers import Parts
from prozess.clusters.install.kafka_jars import cached_extra, ensure_jars
from prozess.clusters.install.tools import find_java
from prozess.clusters.links.latency import DelayConnections
from prozess.clusters.links.links import API_VERSIONS, FOUR_LETTERS, ClientCuts, LinkEnd, Links
from prozess.clusters.links.support import WAYS, harmers, impairers, refusals
from prozess.clusters.machine.processes import PIDS_NAME
from prozess.clusters.machine.server_properties import (
    BROKER,
    CONTROLLER,
    ZOOKEEPER,
    Placement,
    prepare_directory,
    properties_text,
    zookeeper_properties,
)
from prozess.clusters.machine.servers import (
    Checkpoint,
    PlacedServers,
    bootstrap_checkpoint,
    cluster_id_in,
    format_directory,
    new_kafka_uuid,
)
from prozess.clusters.messages.placing import AlteredMessages, MessageProxies
from prozess.harness.clock import Clock
from prozess.harness.config.impairments import CLIENTS
from prozess.harness.errors import ClusterFailed, HarnessFailed
from prozess.harness.installation import make_cache
from prozess.harness.interfaces import Capability, MessageWatch
from prozess.harness.machine_record import kept
from prozess.harness.plan.checks import capabilities_needed, watched_openers
from prozess.harness.plan.plan import Plan
from prozess.harness.run_directory import RunDirectory, write_whole

UP_TIMEOUT_S = 120.0
UP_TRIES = 3
"""Another run may take the same subnet between our look and Compose's deed."""
_KAFKA_USER_ID = 1000
"""The user id of `appuser` in the official image, whose servers write into the nodes' data directories."""
_OVERLAP = "overlaps with"


def compose_cluster(
    plan: Plan,
    run: RunDirectory,
    *,
    clock: Clock,
) -> "ComposeCluster | OwnComposeCluster":
    """Returns the cluster of a plan: of the file that it names, or of one that is written for the run."""
    return (
        ComposeCluster(plan, run, clock=clock)
        if plan.compose.file is None
        else OwnComposeCluster(plan, run, clock=clock)
    )


class ComposeCluster(PlacedServers, ContainersCluster):
    """A cluster of containers from a Compose file that prozess writes. One engine runs any number of them at a time."""

    def __init__(self, plan: Plan, run: RunDirectory, *, clock: Clock) -> None:
        super().__init__(plan, run, clock=clock)
        self._agent = cached_extra() if plan.metrics else None
        self._prefixes: Mapping[str, str] = {name: f"{start}.0" for name, start in SUBNETS.items()}
        self._placements = connect_to_networks(self._variant, run.nodes, self._prefixes)
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
        delays = DelayConnections(self._links, logs=run.logs, clock=clock, record_pids=run.path / PIDS_NAME)
        self._watched = watched_openers(plan)
        self._proxies = MessageProxies(
            self._links, log=run.logs / "message-proxy.log", clock=clock, record_pids=run.path / PIDS_NAME
        )
        self._parts = Parts(
            {
                **self._equipment.impairers,
                **impairers(self._links, delays),
                "client-cut": ClientCuts(cuts, self._links),
                "message": AlteredMessages(self._links, self._proxies),
            },
            {**self._equipment.harmers, **harmers(self._links, delays, clock)},
            close=(delays.close, self._proxies.close),
        )
        self._nodes = tuple(self._node(index) for index in range(len(self._placements)))
        self._networks |= {node.name: node.network for node in self._nodes}

    @property
    def messages(self) -> MessageWatch | None:
        return self._proxies if self._plan.message_steps and not by_exec() else None

    @property
    def relay_servers(self) -> str:
        """The bootstrap servers for callers outside the run, who are on the host, too."""
        return self.bootstrap_servers

    @property
    def _has_agents(self) -> bool:
        return self._agent is not None

    def wait_ready(self, *, timeout_s: float) -> None:
        """Waits, and then syncs what the image's formatting wrote: no node could start after a power loss without it."""
        super().wait_ready(timeout_s=timeout_s)
        for placement in self._placements:
            if (disk := self._equipment.disk_of(placement.name)) is not None:
                disk.sync()

    @property
    def client_address(self) -> str:
        """Returns the address of clients on the host in the data network: `ComposeNode.block_address` takes it to cut
        them off."""
        return f"{self._prefixes['data']}.1"

    # Faults

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
        by_engine = "entering the network of a container needs root"
        links = dict.fromkeys(WAYS, by_engine) if by_exec() else refusals()
        slow = {Capability.SLOW_DISK: "a server cannot be taken out of its container's control group (cgroup v2)"}
        return {**slow, **self._equipment.lacks, **links}

    def _images_of_networks(self) -> Collection[str]:
        return {self._find_image(p) for p in self._placements if ZOOKEEPER not in p.roles}

    def _thaw(self) -> None:
        self._equipment.release()

    def _keep_data(self) -> None:
        """Does nothing: the data directories are on this host, and stay."""

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

    # Parts

    def _node(self, index: int) -> ComposeNode:
        placement = self._placements[index]
        container = ContainerSetting(
            name=placement.name,
            node_id=placement.node_id,
            roles=placement.roles,
            data_directory=placement.data_directory,
            container=f"{self._project}-{placement.name}-1",
            holder=f"{self._project}-{HOLDER.format(placement.name)}-1",
            guarded=self._zookeeper and BROKER in placement.roles,
        )
        return ComposeNode(
            container,
            address=lambda: self._placements[index].data_address,
            client=self._client,
            parts=self._parts,
            clock=self._clock,
            started=lambda pid: self._join_group(placement.name, pid),
        )

    def _join_group(self, name: str, pid: int) -> None:
        """Moves the server with all of its threads into the node's control group, and nothing else of its container."""
        if self._equipment.has_groups and groups_can_be_left():
            (self._equipment.group_of(name).directory / "cgroup.procs").write_text(f"{pid}\n")

    def _find_image(self, placement: Placement) -> str:
        options = self._plan.compose
        version = self._variant.version_of(placement.name)
        if ZOOKEEPER in placement.roles:
            return find_image("zookeeper", version, wanted=options.zookeeper_image)
        return find_image("kafka", version, wanted=options.kafka_image, zookeeper=self._zookeeper)

    def _id_of_cluster(self) -> str:
        """Returns the id of the cluster. With ZooKeeper, brokers make it up when they first start."""
        return self._cluster_id or next(
            filter(None, (cluster_id_in(p.data_directory / "meta.properties") for p in self._placements)), ""
        )

    def _make_directories(self) -> None:
        """Makes fresh data directories that the servers' user may write to. No data survives from an earlier run.

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
                    directory,
                    node_id=placement.node_id,
                    cluster_id=self._cluster_id,
                    checkpoint=checkpoint if checkpoint.belongs_to(placement.roles) else None,
                )
            else:
                directory.mkdir(parents=True)
        self._equipment.install()
        for placement in self._placements:
            for path in (placement.data_directory, *placement.data_directory.rglob("*")):
                give_away(path, _KAFKA_USER_ID)
            if (disk := self._equipment.disk_of(placement.name)) is not None:
                disk.sync()

    def _checkpoint(self) -> Checkpoint:
        """The bootstrap checkpoint of the oldest version, since every server must understand it."""
        version = self._variant.oldest_version
        return bootstrap_checkpoint(
            version,
            java=find_java().executable,
            jars=ensure_jars(version),
            cache=make_cache("formats"),
            features=self._variant.features,
        )

    def _bring_up(self) -> None:
        """Writes the Compose file, and lets Compose make what is in it."""
        self._images = {p.name: self._find_image(p) for p in self._placements}
        first = first_number(self._label)
        for attempt in range(UP_TRIES):
            taken = subnets_of(self._client().api.networks())
            self._prefixes = free_prefixes(taken, first=first + attempt)
            self._placements = connect_to_networks(self._variant, self._run.nodes, self._prefixes)
            self._make_directories()
            file = self._run.compose
            for path in kept(file):
                write_whole(path, text_of(self._document(), comment="What this run runs on."))
            try:
                command(["compose", "--file", str(file), "up", "--detach", "--no-build"], timeout_s=UP_TIMEOUT_S)
            except ClusterFailed as error:
                if _OVERLAP not in str(error) or attempt == UP_TRIES - 1:
                    raise ClusterFailed(f"Compose could not start the cluster: {error}") from error
                sweep(self._client(), self._run)
            else:
                if self.messages is not None:
                    self._proxies.install(self._watched)
                return

    def _preloads(self, name: str) -> Mapping[str, str]:
        """Returns the environment that preloads a library into the server. The file that it writes to is made first, so
        that it can be bound."""
        found = self._equipment.environment(name)
        if str(syncs := self._equipment.syncs_of(name)) in found.values():
            syncs.touch()
            give_away(syncs, _KAFKA_USER_ID)
        return found

    def _document(self) -> Mapping[str, Any]:
        options = self._plan.compose
        setting = ComposeSetting(
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


# What faults of disks, clocks and links need of containers: the parts that other backends have, acting there.
#
# Disks are mounted on the host, where a node's data directory is, and bound into its container, as is what is
# preloaded into its server. Clients are on the host: what a node sends them is dropped as it leaves the node, so that
# no rule is ever made in the host's own network.


T = TypeVar("T")
Server = tuple[str, int]


class Now(Mapping[int, Server]):
    """The servers by node id as they are when they are asked for, since a run finds its subnets late."""

    def __init__(self, servers: Callable[[], Mapping[int, Server]]) -> None:
        self._servers = servers

    def __getitem__(self, node_id: int) -> Server:
        return self._servers()[node_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._servers())

    def __len__(self) -> int:
        return len(self._servers())


class HostNetwork:
    """The clients' network, which is the host's own: connections are looked at and ended, and nothing else is changed."""

    def run_as_root(self, argv: Sequence[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs `ss`, which looks at connections and ends them. HarnessFailed for any other command."""
        if argv[0] == "ss":
            return subprocess.run(
                list(argv),
                capture_output=True,
                text=True,
                timeout=COMMAND_TIMEOUT_S,
                check=False,
                env={**os.environ, "PATH": TOOLS_PATH, "LC_ALL": "C"},
            )
        raise HarnessFailed(
            f"Clients share the network of this host, and prozess runs no {argv[0]} there. Aim the fault at links between "
            "nodes."
        )

    def call(self, function: Callable[[], T]) -> T:
        """Calls the function in this process and returns its result."""
        return function()


class ContainerCuts:
    """Drops what nodes and clients send one another.

    `networks`: node → its network; `clients`: their address now; `addresses`: node → its address now."""

    def __init__(
        self,
        networks: Mapping[str, NodeNetwork],
        addresses: Callable[[], Mapping[str, str]],
        clients: Callable[[], str],
    ) -> None:
        self._networks, self._addresses, self._clients = networks, addresses, clients

    def block(self, name: str | None, source_address: str) -> None:
        """Drops what the address sends to the node; with None, what the node with that address sends to the clients."""
        if name is not None:
            self._networks[name].drop_from(source_address)
        else:
            self._network_at(source_address).drop_to(self._clients())

    def unblock(self, name: str | None, source_address: str) -> None:
        """Undoes `block`; safe when nothing is blocked."""
        if name is not None:
            self._networks[name].accept_from(source_address)
        else:
            self._network_at(source_address).accept_to(self._clients())

    def _network_at(self, address: str) -> NodeNetwork:
        name = next((name for name, found in self._addresses().items() if found == address), None)
        if name is None:
            raise HarnessFailed(f"No node has the address {address} now.")
        return self._networks[name]


def groups_can_be_left() -> bool:
    """Can a server be moved to another control group for block devices alone?

    In version 1 it can, since each controller has groups of its own."""
    root = groups_support()[0]
    return root is not None and root.name == "blkio"


def served_ports(node: Placement) -> tuple[int, ...]:
    """Returns the ports on which a node serves in the network that faults touch."""
    quorum = [node.controller_port] if {CONTROLLER, ZOOKEEPER} & node.roles else []
    return (node.data_port, *quorum) if node.roles != {CONTROLLER} else tuple(quorum)


def keep_contents(disk: Disk) -> None:
    """Unmounts a node's disk, and leaves its contents where it was mounted. What cannot be read is left out."""
    if not disk.mounted:
        disk.drop()
        return
    disk.thaw()
    beside = disk.mount_point.with_name(f"{disk.mount_point.name}.kept")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        shutil.copytree(disk.mount_point, beside, ignore=shutil.ignore_patterns(disk.ballast.name))
    except (OSError, shutil.Error):
        beside.mkdir(exist_ok=True)  # a failed disk that nobody healed
    disk.drop()
    shutil.rmtree(disk.mount_point)
    beside.rename(disk.mount_point)


def give_away(path: Path, user_id: int) -> None:
    """Gives a file to the servers' user or, where that is not allowed, lets everybody write to it."""
    if os.geteuid() == 0:
        os.chown(path, user_id, user_id)
    else:
        path.chmod(0o777 if path.is_dir() else 0o666)
