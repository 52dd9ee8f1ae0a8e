"""A broker of the attach backend: an address that answers, and the link of the trial's clients to it."""

import socket
from collections.abc import Callable
from pathlib import Path

from clusters.attach_proxy import Toxiproxy
from clusters.impairers import HasParts, Parts
from clusters.wire import WireClient
from clusters.wire_requests import api_versions_request
from harness.clock import Clock
from harness.errors import HarnessFailed
from harness.protocols import Node, NodeState
from harness.schema import Tristate

ASK_TIMEOUT_S = 2.0


class AttachNode(HasParts):
    """`harness.protocols.Node`, of which little can be done. Methods may be called from any thread."""

    def __init__(
        self,
        node_id: int,
        server: tuple[str, int],
        data: Path,
        *,
        toxiproxy: Callable[[], Toxiproxy | None],
        parts: Parts,
        clock: Clock,
    ) -> None:
        self._id, self._server, self._data, self._toxiproxy, self._parts = node_id, server, data, toxiproxy, parts
        self._wire = WireClient(lambda: {node_id: server}, name="broker", clock=clock)

    @property
    def name(self) -> str:
        return f"broker-{self._id}"

    @property
    def node_id(self) -> int:
        return self._id

    @property
    def roles(self) -> frozenset[str]:
        """As far as is known."""
        return frozenset({"broker"})

    @property
    def address(self) -> str:
        return socket.gethostbyname(self._server[0])

    @property
    def data_directory(self) -> Path:
        """Where nothing ever is."""
        return self._data

    @property
    def os_pid(self) -> int | None:
        """Not known."""
        return None

    @property
    def toxiproxy(self) -> Toxiproxy | None:
        """The server between the clients and this node; None if there is none: nothing is between them."""
        return self._toxiproxy()

    def state(self) -> NodeState:
        """Does it answer? Whether one that does not is dead, paused or cut off cannot be told: it counts as stopped."""
        answers = self._wire.ask(self._id, api_versions_request(), timeout_s=ASK_TIMEOUT_S)
        return NodeState.STOPPED if answers is None else NodeState.RUNNING

    def kill(self) -> None:
        self._refuse()

    def stop(self, *, timeout_s: float) -> None:
        self._refuse()

    def start(self) -> None:
        """Nothing, for one that runs."""
        if self.state() is NodeState.STOPPED:
            self._refuse()

    def pause(self) -> None:
        self._refuse()

    def resume(self) -> None:
        """It never was paused by us."""

    def block(self, source: Node) -> None:
        self._refuse()

    def unblock(self, source: Node) -> None:
        """It never was blocked."""

    def receives_from(self, source: Node) -> Tristate:
        """Nobody here can look."""
        return Tristate.UNKNOWN

    def close(self) -> None:
        """The connection by which it is asked; it comes again when it is needed."""
        self._wire.close()

    def _refuse(self) -> None:
        raise HarnessFailed(f"{self.name} cannot be touched: only its bootstrap servers are known.")
