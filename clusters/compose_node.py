"""One Kafka server of the compose backend: a container that joins the network of another one, which outlives it."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from docker.errors import APIError, NotFound

from clusters.compose_exec import ExecNetwork, by_exec
from clusters.compose_network import NodeNetwork
from clusters.container_guardian import ContainerGuardian
from clusters.engine import PROBLEMS
from clusters.impairers import HasParts, Parts
from clusters.server_facts import proportional_mib, telling_tail
from harness.clock import Clock, wait_until
from harness.errors import ClusterFailed, HarnessFailed
from harness.protocols import Node, NodeState
from harness.schema import Tristate

SIGNAL_TIMEOUT_S = 20.0
"""A killed or paused container of a starved machine takes its time to die or stop."""


@dataclass(frozen=True, slots=True)
class Place:
    """Who a node is, and where in the engine."""

    name: str
    node_id: int
    roles: frozenset[str]
    data_directory: Path
    container: str
    """Name of the server's container."""
    holder: str
    """Of the one that holds its network; the same one where the server has a network of its own."""
    guarded: bool = False
    """A server that ends because the cluster is not ready for it is started again."""


class ComposeNode(HasParts):
    """`harness.protocols.Node`. Methods may be called from any thread. `client`: of the engine, once there is one."""

    def __init__(
        self,
        place: Place,
        *,
        address: Callable[[], str],
        client: Callable[[], Any],
        parts: Parts,
        clock: Clock,
        started: Callable[[int], None] = lambda pid: None,
    ) -> None:
        """`started`: is told the pid of each new server."""
        self._place, self._address, self._started = place, address, started
        self._client, self._parts, self._clock = client, parts, clock
        self._asked_to_end = False
        self._guardian: ContainerGuardian | None = None
        self._blocked: set[str] = set()
        self._lock = threading.RLock()
        self.network = (
            ExecNetwork(place.name, place.holder, client) if by_exec() else NodeNetwork(place.name, self._network_pid)
        )
        """The node's network namespace, which outlives its server."""

    @property
    def name(self) -> str:
        return self._place.name

    @property
    def node_id(self) -> int:
        return self._place.node_id

    @property
    def roles(self) -> frozenset[str]:
        return self._place.roles

    @property
    def address(self) -> str:
        return self._address()

    @property
    def data_directory(self) -> Path:
        return self._place.data_directory

    @property
    def container_name(self) -> str:
        """Of the server's container."""
        return self._place.container

    @property
    def os_pid(self) -> int | None:
        state = self._inspect(self._place.container)
        return int(state["Pid"]) if state.get("Running") else None

    @property
    def died(self) -> int | None:
        """Exit code of the server if it ended although nobody here asked it to, for good."""
        if self._asked_to_end or (self._guardian is not None and self._guardian.undecided):
            return None
        return self._ended()

    def _ended(self) -> int | None:
        state = self._inspect(self._place.container)
        return int(state["ExitCode"]) if state.get("Status") in ("exited", "dead") else None

    def state(self) -> NodeState:
        state = self._inspect(self._place.container)
        if not state.get("Running"):
            return NodeState.STOPPED
        return NodeState.PAUSED if state.get("Paused") else NodeState.RUNNING

    # --- process ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        with self._lock:
            if self.state() is not NodeState.STOPPED:
                return
            self._ask("start", self._place.container)
            self.began()
            if self._place.holder == self._place.container:  # its network is a new one
                self._put_back()

    def _put_back(self) -> None:
        """What a new network does not have any more. The server needs longer to open a port than this."""
        self.network.open_probe(self.address)
        for address in sorted(self._blocked):
            self.network.drop_from(address)

    def began(self) -> None:
        """It was started, here or by Compose, and is meant to run."""
        self._asked_to_end = False
        if (pid := self.os_pid) is not None:
            with suppress(OSError):  # it ended at once: that is told otherwise
                self._started(pid)
        self._let_go()
        if self._place.guarded:
            self._guardian = ContainerGuardian(
                self.name, ended=self._ended, told=self._told, again=self._start_again, clock=self._clock
            )

    def _start_again(self) -> None:
        with self._lock:
            if not self._asked_to_end and self.state() is NodeState.STOPPED:
                self._ask("start", self._place.container)

    def _told(self) -> str:
        """What the server logged since its last start."""
        try:
            api = self._client().api
            began = datetime.fromisoformat(str(api.inspect_container(self._place.container)["State"]["StartedAt"])[:19])
            told: bytes = api.logs(self._place.container, since=began.replace(tzinfo=UTC))
        except PROBLEMS as error:
            raise HarnessFailed(f"The Docker engine does not tell the log of {self.name}: {error}.") from error
        return told.decode(errors="replace")

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
        """A server that ended meanwhile needs none."""
        try:
            self._client().api.kill(self._place.container, signal=name)
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
            if self.state() is NodeState.RUNNING:
                self._ask("pause", self._place.container)
        self._await(NodeState.PAUSED, awaited=f"{self.name} to be paused", timeout_s=SIGNAL_TIMEOUT_S)

    def resume(self) -> None:
        with self._lock:
            if self.state() is NodeState.PAUSED:
                self._ask("unpause", self._place.container)

    def _await(self, wanted: NodeState, *, awaited: str, timeout_s: float) -> None:
        wait_until(
            lambda: self.state() is wanted,
            awaited=awaited,
            timeout_s=timeout_s,
            clock=self._clock,
            last_seen=lambda: f"the container is {self.state().value}",
            interval_s=0.02,
        )

    # --- network ----------------------------------------------------------------------------------------------------

    def block(self, source: Node) -> None:
        self.block_address(source.address)

    def unblock(self, source: Node) -> None:
        self.unblock_address(source.address)

    def block_address(self, source_address: str) -> None:
        """As `block`, for who is no node: clients (`ComposeCluster.client_address`)."""
        self._blocked.add(source_address)
        if self._has_network():
            self.network.drop_from(source_address)

    def unblock_address(self, source_address: str) -> None:
        """As `unblock`, for who is no node."""
        self._blocked.discard(source_address)
        if self._has_network():
            self.network.accept_from(source_address)

    def receives_from(self, source: Node) -> Tristate:
        assert isinstance(source, ComposeNode), source
        return self.network.hears(source.network, address=self.address, source_address=source.address)

    def _has_network(self) -> bool:
        return bool(self._inspect(self._place.holder).get("Running"))

    def _network_pid(self) -> int:
        pid = self._inspect(self._place.holder).get("Pid")
        if not pid:
            raise ClusterFailed(f"{self.name} has no network now: its container {self._place.holder} does not run.")
        return int(pid)

    # --- for the cluster --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Before the container is removed: nobody starts it again, nobody listens in its network."""
        self._is_to_end()
        self.network.close_probe()

    def log_tail(self) -> str:
        """The last lines of the server's log that say something: stack frames are left out."""
        try:
            text = self._client().api.logs(self._place.container, tail=60).decode(errors="replace")
        except PROBLEMS:
            return "(no log)"
        return telling_tail(text)

    def memory_mib(self) -> float | None:
        """Proportional set size of the server, MiB; None when stopped, or not ours to look at."""
        return proportional_mib(self.os_pid)

    def _inspect(self, container: str) -> dict[str, Any]:
        """The state of a container, as the engine says it now; {} if there is none."""
        try:
            return dict(self._client().api.inspect_container(container)["State"])
        except NotFound:
            return {}
        except PROBLEMS as error:
            raise HarnessFailed(f"The Docker engine does not tell about {container}: {error}.") from error

    def _ask(self, verb: str, container: str) -> None:
        try:
            getattr(self._client().api, verb)(container)
        except PROBLEMS as error:
            raise ClusterFailed(
                f"The Docker engine could not {verb} {self.name}: {getattr(error, 'explanation', None) or error}."
            ) from error
