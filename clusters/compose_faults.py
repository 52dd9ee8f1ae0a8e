"""What faults of disks, clocks and links need of containers: the parts that other backends have, acting there.

Disks are mounted on the host, where a node's data directory is, and bound into its container, as is what is preloaded into
its server. Clients are on the host: what a node sends them is dropped as it leaves the node, so that no rule is ever made in
the host's own network.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from clusters.compose_network import COMMAND_TIMEOUT_S, TOOLS_PATH, NodeNetwork
from clusters.disks import Disk
from clusters.properties import CONTROLLER, ZOOKEEPER, Placement
from clusters.throttles import groups_support
from harness.errors import HarnessFailed

T = TypeVar("T")
Server = tuple[str, int]


class Now(Mapping[int, Server]):
    """Servers by node id, as they are when asked: a run finds its subnets late."""

    def __init__(self, servers: Callable[[], Mapping[int, Server]]) -> None:
        self._servers = servers

    def __getitem__(self, node_id: int) -> Server:
        return self._servers()[node_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._servers())

    def __len__(self) -> int:
        return len(self._servers())


class HostNetwork:
    """`clusters.links.NetworkSeam` of the clients: sockets, and nothing that would change the host's own network."""

    def run_as_root(self, argv: Sequence[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Connections may be looked at and ended; of rules there are none, and HarnessFailed for whoever wants one."""
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
            f"clients share the network of this host, where {argv[0]} changes nothing. Aim the fault at links between nodes."
        )

    def call(self, function: Callable[[], T]) -> T:
        """Here."""
        return function()


class ContainerCuts:
    """Blocks between nodes and clients, as `clusters.network.Network` has them. `networks`: node → its network; `clients`:
    their address now; `addresses`: node → its address now."""

    def __init__(
        self,
        networks: Mapping[str, NodeNetwork],
        addresses: Callable[[], Mapping[str, str]],
        clients: Callable[[], str],
    ) -> None:
        self._networks, self._addresses, self._clients = networks, addresses, clients

    def block(self, name: str | None, source_address: str) -> None:
        """Drop what the address sends to the node; None: what the node with that address sends to the clients."""
        if name is not None:
            self._networks[name].drop_from(source_address)
        else:
            self._network_at(source_address).drop_to(self._clients())

    def unblock(self, name: str | None, source_address: str) -> None:
        """Undo `block`; safe when nothing is blocked."""
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
    """May a server be moved to another control group of block devices, its container's others being left alone? In version 1
    each controller has groups of its own."""
    root = groups_support()[0]
    return root is not None and root.name == "blkio"


def served_ports(node: Placement) -> tuple[int, ...]:
    """On the network that faults touch."""
    quorum = [node.controller_port] if {CONTROLLER, ZOOKEEPER} & node.roles else []
    return (node.data_port, *quorum) if node.roles != {CONTROLLER} else tuple(quorum)


def keep_contents(disk: Disk) -> None:
    """No disk is mounted any more, and its contents are where it was. Whatever cannot be read is left out."""
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
    """To the servers' user; where that is not allowed, to everybody."""
    if os.geteuid() == 0:
        os.chown(path, user_id, user_id)
    else:
        path.chmod(0o777 if path.is_dir() else 0o666)
