"""A Kafka server in a container, and what all clusters of containers have in common, whoever wrote their Compose file."""

import hashlib
import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from prozess.clusters.compose.engine import (
    PROBLEMS,
    EngineClient,
    connect,
    endpoint,
    has_tools,
    run_label,
    save_logs,
    sweep,
)
from prozess.clusters.compose.network import ExecNetwork, NodeNetwork, by_exec, network_problem
from prozess.clusters.impairers import HasParts, Parts, node_facts
from prozess.clusters.machine.processes import ContainerGuardian, last_lines, proportional_mib
from prozess.clusters.machine.server_properties import shaping_settings
from prozess.clusters.protocol.client import WireClient
from prozess.clusters.protocol.readiness import Readiness
from prozess.clusters.protocol.requests import api_versions_request
from prozess.harness.clock import Clock, wait_until
from prozess.harness.config.existing_clusters import Login
from prozess.harness.config.impairments import CLIENTS
from prozess.harness.errors import ClusterFailed, HarnessFailed
from prozess.harness.installation import of_an_extra
from prozess.harness.interfaces import Capability, MessageWatch, Node, NodeState
from prozess.harness.plan.plan import Plan
from prozess.harness.processes import is_shutting_down
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import Tristate

with of_an_extra("Docker"):
    from docker.errors import APIError, NotFound

# One Kafka server of the compose backend: a container that joins the network of another one, which outlives it.


SIGNAL_TIMEOUT_S = 20.0
"""A killed or paused container of a starved machine takes its time to die or stop."""


@dataclass(frozen=True, slots=True)
class ContainerSetting:
    """The names of a node and of its containers."""

    name: str
    node_id: int
    roles: frozenset[str]
    data_directory: Path
    container: str
    """The name of the server's container."""
    holder: str
    """The name of the container that holds its network: the server's own, if its network goes with it."""
    guarded: bool = False
    """Is the server started again when it ends because the cluster is not ready for it?"""


class ComposeNode(HasParts):
    """A Kafka server in a container. Methods may be called from any thread.

    `client`: gives a connection to the engine."""

    def __init__(
        self,
        setting: ContainerSetting,
        *,
        address: Callable[[], str],
        client: Callable[[], EngineClient],
        parts: Parts,
        clock: Clock,
        started: Callable[[int], None] = lambda pid: None,
    ) -> None:
        """`started` is called with the pid of each new server."""
        self._setting, self._address, self._started = setting, address, started
        self._client, self._parts, self._clock = client, parts, clock
        self._asked_to_end = False
        self._cut_from: dict[str, str] = {}
        """The name of a node that this one is cut off from → its address then."""
        self._guardian: ContainerGuardian | None = None
        self._blocked: set[str] = set()
        self._lock = threading.RLock()
        self.network = (
            ExecNetwork(setting.name, setting.holder, client)
            if by_exec()
            else NodeNetwork(setting.name, self._network_pid)
        )
        """The node's network namespace, which outlives its server."""

    @property
    def name(self) -> str:
        return self._setting.name

    @property
    def node_id(self) -> int:
        return self._setting.node_id

    @property
    def roles(self) -> frozenset[str]:
        return self._setting.roles

    @property
    def address(self) -> str:
        return self._address()

    @property
    def data_directory(self) -> Path:
        return self._setting.data_directory

    @property
    def container_name(self) -> str:
        """Returns the name of the server's container."""
        return self._setting.container

    @property
    def os_pid(self) -> int | None:
        state = self._inspect(self._setting.container)
        return int(state["Pid"]) if state.get("Running") else None

    @property
    def died(self) -> int | None:
        """Returns the exit code of a server that ended for good although nobody here asked it to; else None."""
        if self._asked_to_end or (self._guardian is not None and self._guardian.undecided):
            return None
        return self._ended()

    def _ended(self) -> int | None:
        state = self._inspect(self._setting.container)
        return int(state["ExitCode"]) if state.get("Status") in ("exited", "dead") else None

    def state(self) -> NodeState:
        state = self._inspect(self._setting.container)
        if not state.get("Running"):
            return NodeState.STOPPED
        if state.get("Paused"):
            return NodeState.PAUSED
        # Another process may have asked it, such as a run that was killed since.
        ending = self._asked_to_end or is_shutting_down(int(state.get("Pid") or 0))
        return NodeState.STOPPING if ending else NodeState.RUNNING

    # Process

    def start(self) -> None:
        with self._lock:
            if self.state() is not NodeState.STOPPED:
                return
            self._ask("start")
            self.began()
            if self._setting.holder == self._setting.container:  # its network is a new one
                self._put_back()

    def _put_back(self) -> None:
        """Makes the cuts again in a new network. The server needs longer than this to open a port."""
        self.network.open_probe(self.address)
        for address in sorted(self._blocked):
            self.network.drop_from(address)

    def began(self) -> None:
        """Notes that the server was started, here or by Compose, and is meant to run."""
        self._asked_to_end = False
        if (pid := self.os_pid) is not None:
            with suppress(OSError):  # it ended at once, which is reported elsewhere
                self._started(pid)
        self._let_go()
        if self._setting.guarded:
            self._guardian = ContainerGuardian(
                self.name, ended=self._ended, last_output=self._log_tail, again=self._start_again, clock=self._clock
            )

    def _start_again(self) -> None:
        with self._lock:
            if not self._asked_to_end and self.state() is NodeState.STOPPED:
                self._ask("start")

    def _log_tail(self) -> str:
        """Returns what the server has logged since its last start."""
        try:
            api = self._client().api
            began = datetime.fromisoformat(
                str(api.inspect_container(self._setting.container)["State"]["StartedAt"])[:19]
            )
            logs = api.logs(self._setting.container, since=began.replace(tzinfo=UTC))
        except PROBLEMS as error:
            raise HarnessFailed(f"The Docker engine did not give the log of {self.name}: {error}.") from error
        return logs.decode(errors="replace")

    def _let_go(self) -> None:
        if self._guardian is not None:
            self._guardian.let_go()

    def kill(self) -> None:
        self._is_to_end()
        if self.state() is NodeState.STOPPED:
            return
        self._signal("SIGKILL")
        self._await_stopped(awaited=f"{self.name} to be gone after SIGKILL", timeout_s=SIGNAL_TIMEOUT_S)

    def _is_to_end(self) -> None:
        with self._lock:
            self._asked_to_end = True
            self._let_go()

    def stop(self, *, timeout_s: float) -> None:
        self._is_to_end()
        if self.state() is NodeState.STOPPED:
            return
        self._signal("SIGTERM")
        self._await_stopped(awaited=f"{self.name} to shut down after SIGTERM", timeout_s=timeout_s)

    def _signal(self, name: str) -> None:
        """Sends the server a signal, if it still runs."""
        try:
            self._client().api.kill(self._setting.container, signal=name)
        except NotFound:
            return
        except APIError as error:
            if self.state() is not NodeState.STOPPED:
                raise ClusterFailed(f"{self.name} could not be sent {name}: {error.explanation}.") from error
        except PROBLEMS as error:
            raise HarnessFailed(f"{self.name} could not be sent {name}: {error}.") from error

    def _await_stopped(self, *, awaited: str, timeout_s: float) -> None:
        self._await(NodeState.STOPPED, awaited=awaited, timeout_s=timeout_s)

    def pause(self) -> None:
        with self._lock:
            wait_until(
                self._asked_to_pause,
                awaited=f"the Docker engine to pause {self.name}",
                timeout_s=SIGNAL_TIMEOUT_S,
                clock=self._clock,
                last_seen=lambda: "it was unable to freeze the container, and thawed it",
                interval_s=0.05,
            )
        self._await(NodeState.PAUSED, awaited=f"{self.name} to be paused", timeout_s=SIGNAL_TIMEOUT_S)

    def _asked_to_pause(self) -> bool:
        """Asks the engine to pause a running container. False: its runtime could not freeze it, which happens on a busy
        machine. It thaws what it had frozen, and leaves it to its caller to ask again. [opencontainers/runc#4388]"""
        if self.state() is not NodeState.RUNNING:
            return True
        try:
            self._ask("pause")
        except ClusterFailed as error:
            if "unable to freeze" not in str(error):
                raise
            return False
        return True

    def resume(self) -> None:
        with self._lock:
            if self.state() is NodeState.PAUSED:
                self._ask("unpause")

    def _await(self, wanted: NodeState, *, awaited: str, timeout_s: float) -> None:
        wait_until(
            lambda: self.state() is wanted,
            awaited=awaited,
            timeout_s=timeout_s,
            clock=self._clock,
            last_seen=lambda: f"the container is {self.state().value}",
            interval_s=0.02,
        )

    # Network

    def block(self, source: Node) -> None:
        """Drops what the source sends. ClusterFailed while its container has no address: nothing could be dropped."""
        address = source.address
        if not address:
            raise ClusterFailed(
                f"{source.name} has no network now, because its container does not run. Heal it before {self.name} is cut "
                "off from it."
            )
        self._cut_from[source.name] = address
        self.block_address(address)

    def unblock(self, source: Node) -> None:
        """Undoes `block`, also of a source that has another address by now, or none."""
        for address in {self._cut_from.pop(source.name, ""), source.address} - {""}:
            self.unblock_address(address)

    def block_address(self, source_address: str) -> None:
        """Drops what an address sends to this node: that of clients, say, which are no node
        (`ComposeCluster.client_address`)."""
        self._blocked.add(source_address)
        if self._has_network():
            self.network.drop_from(source_address)

    def unblock_address(self, source_address: str) -> None:
        """Undoes `block_address`; safe when nothing is blocked."""
        self._blocked.discard(source_address)
        if self._has_network():
            self.network.accept_from(source_address)

    def receives_from(self, source: Node) -> Tristate:
        assert isinstance(source, ComposeNode), source
        return self.network.hears(source.network, address=self.address, source_address=source.address)

    def _has_network(self) -> bool:
        return bool(self._inspect(self._setting.holder).get("Running"))

    def _network_pid(self) -> int:
        pid = self._inspect(self._setting.holder).get("Pid")
        if not pid:
            raise ClusterFailed(f"{self.name} has no network now: its container {self._setting.holder} does not run.")
        return int(pid)

    # For the cluster

    def close(self) -> None:
        """Sees to it, before the container is removed, that nobody starts it again or listens in its network."""
        self._is_to_end()
        self.network.close_probe()

    def log_tail(self) -> str:
        """Returns the last lines of the server's log that say something: stack frames are left out."""
        try:
            text = self._client().api.logs(self._setting.container, tail=60).decode(errors="replace")
        except PROBLEMS:
            return "(no log)"
        return last_lines(text)

    def memory_mib(self) -> float | None:
        """The proportional set size of the server in MiB; None if it is stopped, or another user's."""
        return proportional_mib(self.os_pid)

    def _inspect(self, container: str) -> dict[str, Any]:
        """Asks the engine for the state of a container; {} if there is none."""
        try:
            return dict(self._client().api.inspect_container(container)["State"])
        except NotFound:
            return {}
        except PROBLEMS as error:
            raise HarnessFailed(f"The Docker engine did not give the state of {container}: {error}.") from error

    def _ask(self, verb: Literal["start", "pause", "unpause"]) -> None:
        try:
            api = self._client().api
            {"start": api.start, "pause": api.pause, "unpause": api.unpause}[verb](self._setting.container)
        except PROBLEMS as error:
            raise ClusterFailed(
                f"The Docker engine could not {verb} {self.name}: {getattr(error, 'explanation', None) or error}."
            ) from error


class ContainersCluster(ABC):
    """A cluster of containers. Subclasses say where its servers are, and how they are brought up."""

    login: Login | None = None
    client_prefix: Sequence[str] = ()

    def __init__(self, plan: Plan, run: RunDirectory, *, clock: Clock) -> None:
        """Starts nothing. BadInput if the engine may be on another machine."""
        endpoint()
        self._plan, self._variant, self._run, self._clock = plan, plan.variant, run, clock
        self._label = run_label(run)
        self._project = "prozess-" + hashlib.sha256(self._label.encode()).hexdigest()[:10]
        self._connection: EngineClient | None = None
        self._images: Mapping[str, str] = {}
        """The name of a node → its image."""
        self._cluster_id = ""
        self._features: Mapping[str, int] = {}
        self._parts = Parts()
        self._nodes: tuple[ComposeNode, ...] = ()

    @property
    def nodes(self) -> Sequence[ComposeNode]:
        return self._nodes

    @property
    def messages(self) -> MessageWatch | None:
        """Returns None: nothing is between the links that could see messages."""
        return None

    def refusal_of(self, fault: str, parameters: Mapping[str, Any]) -> str | None:
        """Returns why a fault of these parameters cannot be made: what clients send passes the network of this host first,
        in which no rules are made."""
        others = parameters.get("others")
        of_clients = others in (CLIENTS, "everybody") or (not isinstance(others, str) and CLIENTS in (others or ()))
        if fault == "bandwidth" and parameters.get("back_bytes_per_s") is not None and of_clients:
            return "what clients of this host send to a container cannot be limited: leave back_bytes_per_s out, or clients"
        return None

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
            **{c: "the compose backend cannot do this" for c in Capability},
            Capability.METHODS: "an image starts its server without Byteman's agent; use the local backend",
            **self._lacks_of_more(),
        }
        by_engine = "cutting clients off needs root; without it only cuts between nodes can be made, by the engine"
        lacking |= {Capability.BLOCK: self._cuts_lacking or "", Capability.CUT_CLIENTS: self._cuts_lacking or by_engine}
        return {c: why for c, why in lacking.items() if c not in self.capabilities}

    @cached_property
    def _cuts_lacking(self) -> str | None:
        """Returns why nodes cannot be cut off here; None if they can."""
        if not by_exec():
            return None
        if all(has_tools(image) for image in self._images_of_networks()):
            return None
        return (
            f"{network_problem() or 'it is asked for'}, and the image has no iptables that could be run in it instead"
        )

    @abstractmethod
    def _images_of_networks(self) -> Collection[str]:
        """Returns the images of the containers that hold the nodes' networks: where namespaces cannot be entered, cuts
        are made in them."""

    def _more(self) -> Mapping[Capability, str]:
        """Returns the capabilities beyond processes and cuts."""
        return {}

    def _lacks_of_more(self) -> Mapping[Capability, str]:
        """The reasons that are better known than "this version cannot"."""
        return {}

    @property
    @abstractmethod
    def observer_servers(self) -> Mapping[int, tuple[str, int]]:
        """Returns, for each broker id, (host, port) of its observer listener."""

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

    @abstractmethod
    def _bring_up(self) -> None:
        """Lets Compose make and start everything."""

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
            "nodes": {node.name: {**node_facts(node), "memory_pss_mib": memory[node.name]} for node in self._nodes},
            "memory_pss_mib": round(sum(m for m in memory.values() if m is not None), 1),
        }

    def collect_logs(self, into: Path) -> None:
        """Copies the servers' logs; of a cluster that was taken down, those that `teardown` kept in the run."""
        into.mkdir(parents=True, exist_ok=True)
        if self._connection is not None:
            save_logs(self._connection, self._run, into)
        for node in self._nodes:
            log, copy = self._run.logs / f"{node.name}.log", into / f"{node.name}.log"
            if log.exists() and not copy.exists():
                shutil.copyfile(log, copy)

    def teardown(self) -> None:
        """Removes everything that carries the run's label, whoever made it.

        `docker compose down` would not do: without a quorum brokers hang in their controlled shutdown."""
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
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
        if swept.left:
            raise ClusterFailed("Not everything could be removed: " + "; ".join(swept.left))

    @abstractmethod
    def _thaw(self) -> None:
        """Thaws the nodes' disks: a process that waits for a frozen disk cannot be ended."""

    @abstractmethod
    def _let_go_of_disks(self) -> None:
        """Unmounts the nodes' disks from this host, once the containers are gone."""

    @abstractmethod
    def _keep_data(self) -> None:
        """Copies data that must be read after the end, and would go with the containers."""

    def _client(self) -> EngineClient:
        if self._connection is None:
            self._connection = connect()
        return self._connection

    def _finalized_features(self) -> Mapping[str, int]:
        """The finalized features that a broker names; none in ZooKeeper mode."""
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
