"""The processes of planned clients as targets of faults: `harness.protocols.ClientNode`.

A node is a *place*: a planned client's. Whoever has the place now is what is killed or paused; `start` puts a new client
there, with an id of its own, as a restarted application is a new client to Kafka.
"""

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from harness.clock import Clock, wait_until
from harness.errors import ClusterFailed, NotReady
from harness.plan import PlannedClient
from harness.processes import process_status
from harness.protocols import CLIENT_NODE, ClientNode, Node, NodeState
from harness.schedule import client_target, parse_target
from harness.schema import Tristate
from workloads.client import Launch
from workloads.processes import ClientProcess, ClientProcesses

SIGNAL_LIMIT_S = 10.0
"""Until a signalled process is gone, or seen to stand still: milliseconds, on a starved machine seconds."""


class ClientPlace:
    """One place. `current`: who has it now; `restart`: put a new client there, ready; `end`: end whoever has it."""

    def __init__(
        self,
        planned: PlannedClient,
        *,
        current: Callable[[], ClientProcess | None],
        restart: Callable[[], None],
        end: Callable[[float], None],
        rows: Path,
        clock: Clock,
    ) -> None:
        self._planned, self._current, self._restart, self._end = planned, current, restart, end
        self._rows, self._clock = rows, clock

    @property
    def name(self) -> str:
        """Of the planned client."""
        return self._planned.name

    @property
    def node_id(self) -> int:
        """Beyond every id of Kafka's."""
        return CLIENT_NODE + self._planned.client

    @property
    def roles(self) -> frozenset[str]:
        """No server."""
        return frozenset()

    @property
    def client_role(self) -> str:
        """Of the plan."""
        return self._planned.role

    @property
    def cell(self) -> int | None:
        """The only cell it serves."""
        return self._planned.cell

    @property
    def instance(self) -> int:
        """Number among its like."""
        return self._planned.instance

    @property
    def address(self) -> str:
        """Clients share the run stage's."""
        return ""

    @property
    def data_directory(self) -> Path:
        """Where it records."""
        return self._rows

    @property
    def os_pid(self) -> int | None:
        """Of its process now."""
        process = self._current()
        return process.os_pid if process is not None and process.running else None

    def state(self) -> NodeState:
        """Observed now: /proc says T of a process that a signal stopped (proc(5))."""
        pid = self.os_pid
        status = process_status(pid) if pid is not None else None
        if status is None:
            return NodeState.STOPPED
        return NodeState.PAUSED if status.state in "Tt" else NodeState.RUNNING

    def kill(self) -> None:
        """SIGKILL; nothing of the client runs on. Safe on a place that is empty."""
        process = self._current()
        if process is None or not process.running or process.os_pid is None:
            return
        process.killed = True
        self._signal(process.os_pid, signal.SIGKILL)
        self._await(lambda: self.os_pid is None, f"client {self.name} to be gone")

    def stop(self, *, timeout_s: float) -> None:
        """In order: a member leaves its group, a producer flushes."""
        self._end(timeout_s)

    def start(self) -> None:
        """A new client, once it is ready. Safe on a place that is taken."""
        if self.os_pid is None:
            self._restart()

    def pause(self) -> None:
        """SIGSTOP: its librdkafka's threads stand still too."""
        pid = self.os_pid
        if pid is None:
            raise ClusterFailed(f"client {self.name} cannot be paused: it has no process.")
        self._signal(pid, signal.SIGSTOP)
        self._await(lambda: self.state() is NodeState.PAUSED, f"client {self.name} to stand still")

    def resume(self) -> None:
        """SIGCONT."""
        if (pid := self.os_pid) is not None:
            self._signal(pid, signal.SIGCONT)

    def block(self, source: Node) -> None:
        """ClusterFailed: clients have no link of their own."""
        raise ClusterFailed(
            f"client {self.name} has no link of its own that could be cut. Cut the brokers', or pause it."
        )

    def unblock(self, source: Node) -> None:
        """Nothing is ever blocked."""

    def receives_from(self, source: Node) -> Tristate:
        """Not observed."""
        return Tristate.UNKNOWN

    @staticmethod
    def _signal(pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # its zygote reaps it, and tells: then it is seen to be gone
            os.kill(pid, number)

    def _await(self, probe: Callable[[], bool], awaited: str) -> None:
        wait_until(
            probe,
            awaited=awaited,
            timeout_s=SIGNAL_LIMIT_S,
            clock=self._clock,
            last_seen=lambda: f"it is {self.state()}",
            interval_s=0.005,
        )


class Places:
    """The places of a trial's clients: who has each now, and how it is taken again.

    `launch(planned, client, name)` makes what a new client is started with; `taken(planned, process)` is told of each that
    was started in a place. New ids are beyond the plan's.
    """

    def __init__(
        self,
        planned: Sequence[PlannedClient],
        *,
        processes: ClientProcesses,
        launch: Callable[[PlannedClient, int, str], Launch],
        taken: Callable[[PlannedClient, ClientProcess], None],
        first_new_client: int,
        rows: Path,
        clock: Clock,
    ) -> None:
        self._processes, self._launch, self._taken = processes, launch, taken
        self._next = first_new_client
        self._incarnations = {client.client: [client.client] for client in planned}
        self.nodes: tuple[ClientNode, ...] = tuple(
            ClientPlace(
                client,
                current=partial(self._current, client),
                restart=partial(self._restart, client),
                end=partial(self._end, client),
                rows=rows,
                clock=clock,
            )
            for client in planned
        )

    def planned_of(self, client: int) -> int:
        """The planned client whose place a client has, or had."""
        return next((planned for planned, ids in self._incarnations.items() if client in ids), client)

    def named(self, name: str) -> ClientNode:
        """By the name of the planned client, or `member(CELL, INSTANCE)`. ClusterFailed if there is none."""
        target = parse_target(client_target(name))
        for node in self.nodes:
            member = node.client_role == "member" and (node.cell, node.instance) == (target.cell, target.instance)
            if member or (target.client is not None and node.name == target.client):
                return node
        raise ClusterFailed(f"There is no client {name!r} that could be stopped or started.")

    def _current(self, planned: PlannedClient) -> ClientProcess | None:
        self._processes.poll()
        return self._processes.clients.get(self._incarnations[planned.client][-1])

    def _restart(self, planned: PlannedClient) -> None:
        client, self._next = self._next, self._next + 1
        ids = self._incarnations[planned.client]
        ids.append(client)
        (process,) = self._processes.start([self._launch(planned, client, f"{planned.name}~{len(ids)}")])
        self._taken(planned, process)

    def _end(self, planned: PlannedClient, timeout_s: float) -> None:
        process = self._current(planned)
        if process is None or not process.running:
            return
        process.expected_to_end = True
        self._processes.tell([process], "stop")
        if not self._processes.wait([process], timeout_s=timeout_s):
            raise NotReady(
                awaited=f"client {process.name} to end in order", timeout_s=timeout_s, last_seen="it still runs"
            )
