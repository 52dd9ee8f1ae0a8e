"""A local cluster for a caller outside the sandbox: pytest, an application's own tests.

`clusters.host` runs it inside; this forwards to it. Clients outside reach the brokers through the relay: this process
binds 127.0.0.1:PORT per broker and passes the listening sockets in, and each broker advertises that address.
"""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clusters.host_process import HostProcess
from clusters.properties import BROKER, node_name, node_roles
from harness.clock import Clock
from harness.impairments import Harm, Impairment
from harness.plan import Plan
from harness.protocols import Capability, Node, NodeState
from harness.run_directory import RunDirectory
from harness.schema import Tristate

CALL_TIMEOUT_S = 60.0
SETUP_TIMEOUT_S = 180.0


class HostedCluster:
    """`harness.protocols.Cluster`, in a sandbox of its own. Its nodes may be used from any thread."""

    def __init__(self, plan: Plan, run: RunDirectory, *, clock: Clock) -> None:
        self._plan, self._run, self._clock = plan, run, clock
        self._host: HostProcess | None = None
        self._lock = threading.RLock()
        self._nodes = tuple(
            HostedNode(self, node_name(node_id, roles), node_id, roles)
            for node_id, roles in sorted(
                node_roles(plan.variant).items(), key=lambda item: (BROKER in item[1], item[0])
            )
        )

    @property
    def nodes(self) -> Sequence["HostedNode"]:
        return self._nodes

    @property
    def capabilities(self) -> Mapping[Capability, str]:
        return {Capability(name): how for name, how in self.facts["capabilities"].items()}

    @property
    def lacks(self) -> Mapping[Capability, str]:
        return {Capability(name): why for name, why in self.facts["lacks"].items()}

    @property
    def bootstrap_servers(self) -> str:
        """Inside the sandbox; a caller outside wants `relay_servers`."""
        return str(self.facts["bootstrap_servers"])

    @property
    def relay_servers(self) -> str:
        """Bootstrap servers for clients outside."""
        return ",".join(f"127.0.0.1:{port}" for port in self._running().relay_ports.values())

    @property
    def observer_servers(self) -> Mapping[int, tuple[str, int]]:
        """Inside the sandbox."""
        return {i: (host, port) for i, host, port in self.facts["observer_servers"]}

    @property
    def controller_servers(self) -> Mapping[int, tuple[str, int]]:
        """Inside the sandbox."""
        return {i: (host, port) for i, host, port in self.facts["controller_servers"]}

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the host said of the cluster it built; starts the host if need be, but no server."""
        return self._running().facts

    @property
    def host_pid(self) -> int:
        """Of the process this one started."""
        return self._running().pid

    def setup(self) -> None:
        self.teardown()
        try:
            self.call(None, "setup", timeout_s=SETUP_TIMEOUT_S)
        except BaseException:
            self.teardown()
            raise

    def wait_ready(self, *, timeout_s: float) -> None:
        self.call(None, "wait_ready", {"timeout_s": timeout_s}, timeout_s=timeout_s + CALL_TIMEOUT_S)

    def describe(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.call(None, "describe")
        return {**found, "relay_servers": self.relay_servers}

    def collect_logs(self, into: Path) -> None:
        self.call(None, "collect_logs", {"into": str(into.resolve())})

    def teardown(self) -> None:
        with self._lock:
            host, self._host = self._host, None
        if host is not None:
            host.end()

    def call(
        self,
        node: str | None,
        method: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Any:  # noqa: ANN401 - JSON
        """Ask the host; what it raised is raised here."""
        return self._running().call(node, method, arguments or {}, timeout_s=timeout_s)

    def _running(self) -> "HostProcess":
        with self._lock:
            if self._host is None:
                self._host = HostProcess(self._plan, self._run)
            return self._host


class HostedNode:
    """`harness.protocols.Node`: forwards."""

    def __init__(self, cluster: HostedCluster, name: str, node_id: int, roles: frozenset[str]) -> None:
        self._cluster, self._name, self._node_id, self._roles = cluster, name, node_id, roles

    @property
    def name(self) -> str:
        return self._name

    @property
    def node_id(self) -> int:
        return self._node_id

    @property
    def roles(self) -> frozenset[str]:
        return self._roles

    @property
    def address(self) -> str:
        return str(self._cluster.facts["nodes"][self._name]["address"])

    @property
    def data_directory(self) -> Path:
        return Path(self._cluster.facts["nodes"][self._name]["data_directory"])

    @property
    def os_pid(self) -> int | None:
        found = self._call("os_pid")
        return None if found is None else int(found)

    def state(self) -> NodeState:
        return NodeState(self._call("state"))

    def start(self) -> None:
        self._call("start")

    def kill(self) -> None:
        self._call("kill")

    def stop(self, *, timeout_s: float) -> None:
        self._cluster.call(self._name, "stop", {"timeout_s": timeout_s}, timeout_s=timeout_s + CALL_TIMEOUT_S)

    def pause(self) -> None:
        self._call("pause")

    def resume(self) -> None:
        self._call("resume")

    def block(self, source: Node) -> None:
        self._call("block", source=source.name)

    def unblock(self, source: Node) -> None:
        self._call("unblock", source=source.name)

    def receives_from(self, source: Node) -> Tristate:
        return Tristate(self._call("receives_from", source=source.name))

    def impair(self, impairment: Impairment) -> None:
        self._call("impair", impairment=impairment.model_dump(mode="json"))

    def repair(self, impairment: Impairment) -> None:
        self._call("repair", impairment=impairment.model_dump(mode="json"))

    def impaired(self, impairment: Impairment) -> tuple[Tristate, str]:
        seen, what = self._call("impaired", impairment=impairment.model_dump(mode="json"))
        return Tristate(seen), str(what)

    def harm(self, harm: Harm) -> str:
        return str(self._call("harm", harm=harm.model_dump(mode="json")))

    def _call(self, method: str, **arguments: Any) -> Any:  # noqa: ANN401 - JSON
        return self._cluster.call(self._name, method, arguments)
