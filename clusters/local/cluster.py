"""The local backend: a real Kafka cluster as plain JVM processes, each in its own network namespace.

It has KRaft or ZooKeeper, and needs neither Docker nor root.

The run stage runs inside the sandbox (`prozess.clusters.machine.sandbox`); this module makes namespaces and servers in
it. What keeps the nodes apart where there are no namespaces, and what that costs, is
`prozess.clusters.machine.sandbox.COSTS`.
"""

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from prozess.clusters.disks.impairers import Equipment, Equipped
from prozess.clusters.disks.remote_store import HarmedObjects, StoresAway
from prozess.clusters.impairers import AnyHarmer, AnyImpairer, HasParts, Parts
from prozess.clusters.install.kafka_jars import METHODS_AGENT, cached_extra
from prozess.clusters.links.latency import DelayConnections
from prozess.clusters.links.links import API_VERSIONS, FOUR_LETTERS, ClientCuts, LinkEnd, Links
from prozess.clusters.links.support import WAYS, harmers, impairers, refusals
from prozess.clusters.local.relay import Route, relay_command
from prozess.clusters.machine.node_network import (
    DATA,
    PROBE_PORT,
    RELAY_HOST,
    RUN_STAGE_HOST,
    DatagramProbe,
    NamespaceOf,
    Network,
    address_of,
    bound,
)
from prozess.clusters.machine.processes import (
    PIDS_NAME,
    Guardian,
    last_lines,
    proportional_mib,
    read_end,
    recording_command,
)
from prozess.clusters.machine.sandbox import COSTS, Isolation, checked_isolation, isolation_here
from prozess.clusters.machine.server_properties import BROKER, CONTROLLER, ZOOKEEPER, Placement, shaping_settings
from prozess.clusters.machine.servers import NodeServers, PlacedServers, first_port, free_ports, put_into_namespaces
from prozess.clusters.messages.placing import AlteredMessages, MessageProxies
from prozess.clusters.methods.agents import DIRECTORY as METHODS_DIRECTORY
from prozess.clusters.methods.agents import AgentAddress, MethodAgents
from prozess.clusters.methods.class_files import KafkaClasses
from prozess.clusters.protocol.readiness import Readiness
from prozess.harness.clock import Clock, wait_until
from prozess.harness.config.existing_clusters import Login
from prozess.harness.config.impairments import CLIENTS, Install, MigrationStep
from prozess.harness.errors import ClusterFailed, HarnessFailed, NotReady
from prozess.harness.interfaces import Capability, MessageWatch, Node, NodeState
from prozess.harness.plan.checks import capabilities_needed, versions_installed, watched_openers
from prozess.harness.plan.plan import Plan
from prozess.harness.processes import parse_stat, process_status
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import Tristate

# One server: a JVM as a child process, in its own network namespace where there are any.


T = TypeVar("T")
SIGNAL_TIMEOUT_S = 15.0
"""A killed or paused process of a starved machine takes its time to die or stop."""
_TAIL_BYTES = 4000


@dataclass(frozen=True, slots=True)
class ServerLaunch:
    """Says how to start the server of a node."""

    command: Callable[[], Sequence[str]]
    """Gives the command, at each start."""
    log: Path
    """The log, to which every start appends."""
    working_directory: Path
    record_pids: Path | None
    """The file that names the process before it runs; None where the server ends with the sandbox."""
    guarded: bool = False
    """Is it started again when it ended because the cluster was not ready for it (`prozess.clusters.machine.processes`)?"""
    environment: Callable[[], Mapping[str, str]] = dict
    """Gives the variables that are laid over the harness's own, at each start."""


class LocalNode(HasParts):
    """A Kafka or ZooKeeper server as a child process. Methods may be called from any thread."""

    def __init__(
        self, placement: Placement, launch: ServerLaunch, *, network: Network | None, parts: Parts, clock: Clock
    ) -> None:
        self._parts = parts
        self._placement, self._launch, self._network, self._clock = placement, launch, network, clock
        self._process: subprocess.Popen[bytes] | None = None
        self._asked_to_end = False
        self._guardian: Guardian | None = None
        self._probe = DatagramProbe(placement.name)
        self._lock = threading.RLock()

    @property
    def name(self) -> str:
        return self._placement.name

    @property
    def node_id(self) -> int:
        return self._placement.node_id

    @property
    def roles(self) -> frozenset[str]:
        return self._placement.roles

    @property
    def address(self) -> str:
        return self._placement.data_address

    @property
    def data_directory(self) -> Path:
        return self._placement.data_directory

    @property
    def placement(self) -> Placement:
        """Returns every address and port of the node."""
        return self._placement

    @property
    def os_pid(self) -> int | None:
        with self._lock:
            return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def died(self) -> int | None:
        """Returns the exit code (negative: a signal) of a server that ended for good although nobody here asked it to;
        else None."""
        with self._lock:
            if self._process is None or self._asked_to_end or (self._guardian is not None and self._guardian.undecided):
                return None
            return self._process.poll()

    def state(self) -> NodeState:
        with self._lock:
            pid = self.os_pid
            status = process_status(pid) if pid is not None else None
            asked_to_end = self._asked_to_end
        if status is None:
            return NodeState.STOPPED
        if status.state in "Tt":
            return NodeState.PAUSED
        return NodeState.STOPPING if asked_to_end else NodeState.RUNNING

    # Process

    def start(self) -> None:
        with self._lock:
            if self.os_pid is not None:
                return
            self._launch_server(until_ns=None)

    def _launch_server(self, *, until_ns: int | None) -> None:
        """Starts the server. The caller holds the lock."""
        log = self._launch.log
        begun_at = log.stat().st_size if log.exists() else 0
        process = self._process = self._inside(self._fork)
        self._asked_to_end = False
        if self._launch.guarded:
            self._guardian = Guardian(
                process,
                last_output=lambda: read_end(log, after=begun_at),
                again=lambda: self._start_again(process),
                clock=self._clock,
                until_ns=until_ns,
            )

    def _start_again(self, ended: subprocess.Popen[bytes]) -> None:
        with self._lock:
            if self._process is ended and not self._asked_to_end:
                assert self._guardian is not None
                self._launch_server(until_ns=self._guardian.until_ns)

    def _fork(self) -> subprocess.Popen[bytes]:
        launch = self._launch
        command = launch.command()
        if launch.record_pids is not None:
            command = recording_command(command, name=self.name, into=launch.record_pids)
        try:
            with launch.log.open("ab") as log:
                return subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=launch.working_directory,
                    env={**os.environ, "MALLOC_ARENA_MAX": "2", **launch.environment()},
                    start_new_session=True,  # a terminal's Ctrl-C is for the harness, not for the servers
                )
        except OSError as error:
            raise ClusterFailed(f"{self.name} cannot be started: {error}.") from error

    def kill(self) -> None:
        self._end(signal.SIGKILL, awaited=f"{self.name} to be gone after SIGKILL", timeout_s=SIGNAL_TIMEOUT_S)

    def stop(self, *, timeout_s: float) -> None:
        self._end(signal.SIGTERM, awaited=f"{self.name} to shut down after SIGTERM", timeout_s=timeout_s)

    def _end(self, number: signal.Signals, *, awaited: str, timeout_s: float) -> None:
        """Sends a signal, and waits without the lock: a node that shuts down slowly can still be looked at, and killed."""
        with self._lock:
            process, self._asked_to_end = self._process, True
            if self._guardian is not None:
                self._guardian.let_go()
            self._signal(number)
        if process is None:
            return
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise NotReady(awaited=awaited, timeout_s=timeout_s, last_seen=f"process {self.state().value}") from error

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self._await_threads(stopped=True, awaited=f"every thread of {self.name} to be stopped")

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self._await_threads(stopped=False, awaited=f"{self.name} to run again")

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(number)

    def _await_threads(self, *, stopped: bool, awaited: str) -> None:
        """Waits until every thread is stopped, or none: a group stop is complete only when all are in state T."""

        def reached() -> bool:
            pid = self.os_pid
            return pid is None or all((letter in "Tt") == stopped for letter in _thread_states(pid))

        wait_until(
            reached,
            awaited=awaited,
            timeout_s=SIGNAL_TIMEOUT_S,
            clock=self._clock,
            last_seen=lambda: f"process {self.state().value}",
            interval_s=0.005,
        )

    # Network

    def block(self, source: Node) -> None:
        self.block_address(source.address)

    def unblock(self, source: Node) -> None:
        self.unblock_address(source.address)

    def block_address(self, source_address: str) -> None:
        """Drops what an address sends to this node: that of clients, say, which are no node
        (`LocalCluster.client_address`)."""
        if self._network is None:
            raise HarnessFailed(f"{self.name} cannot be cut off: there are no network namespaces here.")
        self._network.block(self.name, source_address)

    def unblock_address(self, source_address: str) -> None:
        """Undoes `block_address`; safe when nothing is blocked."""
        if self._network is not None:
            self._network.unblock(self.name, source_address)

    def receives_from(self, source: Node) -> Tristate:
        assert isinstance(source, LocalNode), source
        return self._probe.hears(source._probe, address=self.address, source_address=source.address)

    def open_network(self) -> None:
        """Binds the probe's socket where the server listens. It works while the server is dead or paused."""
        # Without namespaces the port may be someone's: then any free one does.
        port = PROBE_PORT if self._network is not None else 0
        self._probe.open(lambda: self._inside(lambda: bound(self.address, port)))

    def _inside(self, function: Callable[[], T]) -> T:
        return function() if self._network is None else self._network.run_inside(self.name, function)

    # For the cluster

    def close(self) -> None:
        """Ends the process, whatever its state, and closes the probe. Safe to call twice."""
        self.kill()
        self._probe.close()

    def log_tail(self) -> str:
        """Returns the last lines of the server's log that say something: stack frames are left out."""
        try:
            with self._launch.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                return last_lines(log.read().decode(errors="replace"))
        except OSError:
            return "(no log)"

    def memory_mib(self) -> float | None:
        """The proportional set size of the process in MiB; None if it is stopped."""
        return proportional_mib(self.os_pid)


def _thread_states(pid: int) -> list[str]:
    """The state of each thread as a letter (proc(5)); one that ends meanwhile is left out."""
    letters = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError, ValueError, IndexError):
                letters.append(parse_stat((thread / "stat").read_text(errors="replace")).state)
    return letters


# The cluster.


class LocalCluster(PlacedServers):
    """A cluster of JVMs on this machine. A sandbox holds at most one at a time."""

    login: Login | None = None
    client_prefix: Sequence[str] = ()

    def __init__(
        self,
        plan: Plan,
        run: RunDirectory,
        *,
        clock: Clock,
        isolation: str | None = None,
        relay_ports: Mapping[int, int] | None = None,
    ) -> None:
        """`isolation`: how nodes are kept apart; None = as the sandbox noted for this process. `relay_ports`: broker id →
        port on 127.0.0.1 outside, where a relay listens for it; each such broker gets a CLIENT listener that advertises
        it."""
        self._variant, self._run, self._clock = plan.variant, run, clock
        self._metrics = plan.metrics and cached_extra() is not None
        self._isolation = isolation_here() if isolation is None else checked_isolation(isolation)
        self._placements = put_into_namespaces(
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
        self._watched = watched_openers(plan)
        self._proxies = MessageProxies(self._links, log=run.logs / "message-proxy.log", clock=clock)
        self._has_proxies = bool(plan.message_steps) and self._network is not None
        self._has_methods = bool(plan.method_steps)
        self._classes: dict[str, KafkaClasses] = {}
        self._methods = MethodAgents(self._agent_addresses, self._classes_of, clock)
        self._parts = self._all_parts()
        self._nodes: tuple[LocalNode, ...] = ()
        self._servers = NodeServers(
            plan.variant,
            self._placements,
            run.nodes,
            own_networks=self._network is not None,
            agent=cached_extra() if self._metrics else None,
            later=versions_installed(plan),
            options=self._method_options,
        )
        self._nodes = tuple(self._node(p) for p in self._placements)

    @property
    def nodes(self) -> Sequence[LocalNode]:
        return self._nodes

    @property
    def messages(self) -> MessageWatch | None:
        return self._proxies if self._has_proxies else None

    @property
    def isolation(self) -> Isolation:
        """Returns how nodes are kept apart."""
        return self._isolation

    def refusal_of(self, fault: str, parameters: Mapping[str, Any]) -> str | None:
        """Returns None: what this backend can do, it can do to every link."""
        return None

    @property
    def capabilities(self) -> Mapping[Capability, str]:
        processes: dict[Capability, str] = {
            Capability.KILL: "SIGKILL to the server process",
            Capability.STOP: "SIGTERM to the server process: a controlled shutdown",
            Capability.PAUSE: "SIGSTOP to the server process",
            Capability.INSTALL: "its server is started from other jars",
            Capability.HARM_STORE: "files of the run's remote store",
            Capability.METHODS: f"{METHODS_AGENT.name} {METHODS_AGENT.version}, an agent in the server's JVM",
            **self._equipment.capabilities,
        }
        if self._network is None:
            return processes
        return processes | {
            Capability.BLOCK: "a blackhole rule in the receiving node's own network namespace",
            Capability.CUT_CLIENTS: "a blackhole rule in the receiver's network namespace",
            **{capability: how for capability, how in WAYS.items() if capability not in refusals()},
        }

    @property
    def lacks(self) -> Mapping[Capability, str]:
        lacking = {c: "the local backend cannot do this" for c in Capability if c not in self.capabilities}
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
        """Returns the host and port of each broker's CLIENT listener, to which a relay connects; empty without a relay."""
        return {p.node_id: (p.data_address, p.client_port) for p in self._having(BROKER) if p.client_port}

    @property
    def client_address(self) -> str:
        """Returns the address of this process's workload clients: `LocalNode.block_address` takes it to cut them off."""
        return address_of(RUN_STAGE_HOST, DATA) if self._network is not None else "127.0.0.1"

    @property
    def relay_address(self) -> str | None:
        """Returns the address from which a relay calls, other than `client_address`; None for the system's choice."""
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
            if self._has_proxies:  # before any connection is made
                self._proxies.install(self._watched)
            for node in self._nodes:
                node.open_network()
            for node in self._nodes:
                if not self._waits(node.placement):
                    node.start()
            self._check_alive()
        except BaseException:
            self.teardown()
            raise

    def start_relay(self, listeners: Mapping[int, socket.socket]) -> subprocess.Popen[bytes]:
        """Starts the relay as a process of its own, so that what it carries does not wait for our threads.

        `listeners`: broker id → listening socket outside. They are the relay's alone from then on."""
        routes = [
            Route(listeners[broker].fileno(), address, port, self.relay_address)
            for broker, (address, port) in self.client_servers.items()
        ]
        command = relay_command(routes)
        if self._network is None:
            command = recording_command(command, name="relay", into=self._run.path / PIDS_NAME)
        relay = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[route.listener for route in routes])
        for listener in listeners.values():
            listener.close()
        return relay

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
        """Ends everything by SIGKILL: without a quorum the last node of a combined cluster hangs in its controlled
        shutdown."""
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

    # Parts

    def _all_parts(self) -> Parts:
        equipment = self._equipment
        installs: dict[str, AnyHarmer] = {
            "install": InstalledServers(lambda: self._servers, clock=self._clock),
            "migrate": MigratedServers(lambda: self._servers),
        }
        of_store: dict[str, AnyImpairer] = {"store-away": StoresAway(), "harmed-object": HarmedObjects()}
        of_processes: dict[str, AnyImpairer] = {**equipment.impairers, "method": self._methods, **of_store}
        if self._network is None:
            return Parts(of_processes, {**equipment.harmers, **installs})
        of_links: dict[str, AnyImpairer] = {
            "client-cut": ClientCuts(self._network, self._links),
            "message": AlteredMessages(self._links, self._proxies),
        }
        delays = DelayConnections(self._links, logs=self._run.logs, clock=self._clock)
        return Parts(
            {**of_processes, **impairers(self._links, delays), **of_links},
            {**equipment.harmers, **harmers(self._links, delays, self._clock), **installs},
            close=(delays.close, self._proxies.close),
        )

    def _agent_addresses(self) -> Mapping[str, AgentAddress]:
        """Where the agents for calls of methods are; none if no step of the plan needs them."""
        kafka = (p for p in self._placements if self._has_methods and ZOOKEEPER not in p.roles)
        return {
            p.name: AgentAddress(self._run.nodes / p.name / METHODS_DIRECTORY, p.observer_address, p.methods_port)
            for p in kafka
        }

    def _method_options(self, name: str) -> Sequence[str]:
        """The JVM options of the agent for calls of methods, if the node has one."""
        if name not in self._agent_addresses():
            return ()
        jar = cached_extra(METHODS_AGENT)
        if jar is None:
            raise HarnessFailed(
                f"{METHODS_AGENT.name} {METHODS_AGENT.version} is not in the cache any more. Run again: it is fetched first."
            )
        return self._methods.options(name, jar)

    def _classes_of(self, name: str) -> KafkaClasses:
        """The classes of the version that a node runs."""
        version = self._servers.version_of(name)
        if version not in self._classes:
            jars = [*self._servers.jars_of(name), *self._servers.plugins_of(name)]
            self._classes[version] = KafkaClasses(version, jars)
        return self._classes[version]

    def _link_ends(self) -> list[LinkEnd]:
        """The ends of the nodes and of the clients, who are behind the relay where there is one."""
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
        launch = ServerLaunch(
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


def listen(brokers: Sequence[int]) -> dict[int, socket.socket]:
    """Opens a listening socket on 127.0.0.1 for each broker, for a relay to inherit."""
    listeners = {}
    for broker, port in zip(brokers, free_ports(["127.0.0.1"], len(brokers), first=first_port()), strict=True):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
        listeners[broker] = listener
    return listeners


# Another version of Kafka on a node of the local backend: its server is started from other jars, with the data it has.


SEEN_TIMEOUT_S = 20.0
"""How long it may take from the fork until the command line is the server's: a starved machine takes its time."""


class InstalledServers:
    """Starts a node with another version of Kafka, and sees it in the command line of the process that runs then."""

    def __init__(self, servers: Callable[[], NodeServers], *, clock: Clock) -> None:
        self._servers, self._clock = servers, clock

    def harm(self, node: LocalNode, harm: Install) -> str:
        if (state := node.state()) is not NodeState.STOPPED:
            raise HarnessFailed(
                f"{node.name}: another version can be installed only while the node is down; it is {state}."
            )
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
    """Starts a node at another stage of the migration to KRaft: with other properties."""

    def __init__(self, servers: Callable[[], NodeServers]) -> None:
        self._servers = servers

    def harm(self, node: LocalNode, harm: MigrationStep) -> str:
        if (state := node.state()) is not NodeState.STOPPED:
            raise HarnessFailed(
                f"{node.name}: its properties can be changed only while the node is down; it is {state}."
            )
        self._servers().migrate(node.placement, harm.stage)
        node.start()
        return f"started with the properties of the stage {harm.stage!r}"


def _command_line(pid: int | None) -> str:
    """The command line of a process; "" if there is none."""
    try:
        return "" if pid is None else Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""
