"""Another version of Kafka on a node of the local backend: its server is started from other jars, with the data it has."""

from collections.abc import Callable
from pathlib import Path

from clusters.local_node import LocalNode
from clusters.servers import Servers
from harness.clock import Clock, wait_until
from harness.errors import HarnessFailed
from harness.impairments import Install, Migrate
from harness.protocols import NodeState

SEEN_TIMEOUT_S = 20.0
"""From the fork until the command line is the server's: a starved machine takes its time."""


class InstalledServers:
    """`clusters.impairers.Harmer` of `Install`. What was done is seen in the command line of the process that runs then."""

    def __init__(self, servers: Callable[[], Servers], *, clock: Clock) -> None:
        self._servers, self._clock = servers, clock

    def harm(self, node: LocalNode, harm: Install) -> str:
        if (state := node.state()) is not NodeState.STOPPED:
            raise HarnessFailed(f"{node.name}: another version is for a node that is down; it is {state}.")
        servers = self._servers()
        before = servers.version_of(node.name)
        servers.install(node.placement, harm.version)
        node.start()
        jar = f"-{harm.version}.jar"
        wait_until(
            lambda: jar in _command_line(node.os_pid),
            awaited=f"{node.name} to run from jars of Kafka {harm.version}",
            timeout_s=SEEN_TIMEOUT_S,
            clock=self._clock,
            last_seen=lambda: f"process {node.state().value}",
        )
        return f"Kafka {before} gave way to {harm.version}"


class MigratedServers:
    """`clusters.impairers.Harmer` of `Migrate`: other properties, and the server that reads them."""

    def __init__(self, servers: Callable[[], Servers]) -> None:
        self._servers = servers

    def harm(self, node: LocalNode, harm: Migrate) -> str:
        if (state := node.state()) is not NodeState.STOPPED:
            raise HarnessFailed(f"{node.name}: other properties are for a node that is down; it is {state}.")
        self._servers().migrate(node.placement, harm.stage)
        node.start()
        return f"started with the properties of the stage {harm.stage!r}"


def _command_line(pid: int | None) -> str:
    """ "" where there is no process."""
    try:
        return "" if pid is None else Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""
