"""zoo.cfg of each ZooKeeper server, pure. The server is the one whose jars Kafka 3.9 brings along.

https://zookeeper.apache.org/doc/r3.8.4/zookeeperAdmin.html. What is not Kafka's or ZooKeeper's default, and why:
    sessions as short as two ticks of 1 s, as long as anybody asks for: a trial sets zookeeper.session.timeout.ms
    four-letter words srvr and mntr: who leads, asked over the observer's link
    log files that are not padded to 64 MiB: a trial writes a few hundred KiB
    many proposals kept for followers that were away: they catch up by a difference, not by a snapshot, so that the
    transaction log of each stays without gaps: it is the trial's ground truth (`clusters.zookeeper_log`)
"""

from collections.abc import Sequence
from pathlib import Path

from clusters.properties import ZOOKEEPER, Placement, zookeeper_number

MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JVM_FLAGS = ("-Dzookeeper.preAllocSize=64", "-Dzookeeper.commitLogCount=200000", "-Dzookeeper.admin.enableServer=false")
"""preAllocSize in KiB; commitLogCount in proposals."""
TICK_MS = 1_000
EVERY_ADDRESS = "0.0.0.0"
SESSION_MAX_MS = 3_600_000


def zookeeper_properties(node: Placement, nodes: Sequence[Placement], *, own_network: bool) -> dict[str, str]:
    """zoo.cfg of `node`. `own_network`: it has a network namespace of its own, in which it listens everywhere, for the
    observer too."""
    servers = [n for n in nodes if ZOOKEEPER in n.roles]
    quorum = {
        f"server.{zookeeper_number(n.node_id)}": f"{n.data_address}:{n.controller_port}:{n.controller_observer_port}"
        for n in servers
        if len(servers) > 1
    }
    return {
        "tickTime": str(TICK_MS),
        "initLimit": "10",  # ticks
        "syncLimit": "5",
        "maxSessionTimeout": str(SESSION_MAX_MS),
        "dataDir": str(node.data_directory),
        "clientPort": str(node.data_port),
        "clientPortAddress": EVERY_ADDRESS if own_network else node.data_address,
        "maxClientCnxns": "0",
        "4lw.commands.whitelist": "srvr,mntr",
        **quorum,
    }


def prepare_directory(directory: Path, node: Placement) -> None:
    """An empty data directory, in which the server finds who it is."""
    directory.mkdir(parents=True)
    (directory / "myid").write_text(f"{zookeeper_number(node.node_id)}\n", encoding="ascii")
