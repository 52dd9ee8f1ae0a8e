"""The processes of planned clients as targets of faults: `harness.protocols.ClientNode`.

A node is a *place*: a planned client's. Whoever has the place now is what is killed or paused.
"""

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from harness.clock import Clock, wait_until
from harness.errors import ClusterFailed, NotReady
from harness.impairments import ClockShift, Harm, Impairment
from harness.plan import PlannedClient
from harness.processes import ProcessStatus, process_status, session_members
from harness.protocols import CLIENT_NODE, Node, NodeState
from harness.schema import Tristate
from workloads.at_work import seen_at_work
from workloads.client_clock import PlaceClock
from workloads.processes import ClientProcess

SIGNAL_LIMIT_S = 10.0
"""Until a signalled process is gone, or seen to stand still: milliseconds, on a starved machine seconds."""


class ClientPlace:
    """One place. `had_by`: everybody who has it or had it, in order; `restart`: put a new client there, ready; `end`: end
    whoever has it; `partitions`: how many it serves that are there from the start."""

    def __init__(
        self,
        planned: PlannedClient,
        *,
        had_by: Callable[[], Sequence[ClientProcess]],
        restart: Callable[[], None],
        end: Callable[[float], None],
        partitions: int,
        rows: Path,
        clock: Clock,
        place_clock: PlaceClock,
    ) -> None:
        self._planned, self._had_by, self._restart, self._end = planned, had_by, restart, end
        self._place_clock = place_clock
        self._partitions, self._rows, self._clock = partitions, rows, clock

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

    @property
    def client(self) -> int | None:
        """Of who has the place now, alive or dead."""
        process = self._current()
        return None if process is None else process.client

    @property
    def clients_alive(self) -> Sequence[int]:
        """Everybody in this place who lives."""
        return [process.client for process in self._had_by() if process.running]

    def at_work(self) -> bool:
        """By the rows of who has the place now."""
        client = self.client
        return client is not None and seen_at_work(self._rows, self._planned, client, partitions=self._partitions)

    def state(self) -> NodeState:
        """Observed now: /proc says T of a process that a signal stopped (proc(5))."""
        pid = self.os_pid
        status = process_status(pid) if pid is not None else None
        if status is None:
            return NodeState.STOPPED
        still = all(s.state in "Tt" for s in (status, *self._children()))
        return NodeState.PAUSED if still else NodeState.RUNNING

    def kill(self) -> None:
        """SIGKILL; nothing of the client runs on. Safe on a place that is empty. Of two the newer one."""
        process = self._current()
        if process is None or not process.running or process.os_pid is None:
            return
        self._refuse_company(process)
        process.killed = True
        if process.child_speaks:
            self._hear_out(process)
        self._signal(process.os_pid, signal.SIGKILL)  # before its children: it would start a new one
        for status in _children_of(process):
            self._signal(status.identity.pid, signal.SIGKILL)
        self._await(
            lambda: process.client not in self.clients_alive and not _children_of(process),
            f"client {process.name} to be gone",
        )

    def _hear_out(self, process: ClientProcess) -> None:
        """The child dies, and the client records what it had said, which nobody else could: what it printed and then
        committed would be missing. The client ends by itself then."""
        assert process.os_pid is not None
        for status in _children_of(process):
            self._signal(status.identity.pid, signal.SIGKILL)
        self._signal(process.os_pid, signal.SIGCONT)
        with suppress(NotReady):
            self._await(
                lambda: process.client not in self.clients_alive, f"client {process.name} to hear its child out"
            )

    def stop(self, *, timeout_s: float) -> None:
        """In order: a member leaves its group, a producer flushes."""
        self._end(timeout_s)

    def start(self) -> None:
        """A new client, once it is ready. Safe on a place that is taken."""
        if self.os_pid is None:
            self._restart()

    def duplicate(self) -> None:
        """A new client beside the one that is there. Kafka may end either: then it was fenced, and did not die unasked."""
        before = self._current()
        self._restart()
        for process in filter(None, (before, self._current())):
            process.may_be_fenced = True

    def pause(self) -> None:
        """SIGSTOP: its librdkafka's threads stand still too, and the processes it runs."""
        pid = self.os_pid
        if pid is None:
            raise ClusterFailed(f"client {self.name} cannot be paused: it has no process.")
        self._refuse_company(self._current())
        self._signal(pid, signal.SIGSTOP)
        self._signal_children(signal.SIGSTOP)
        self._await(lambda: self.state() is NodeState.PAUSED, f"client {self.name} to stand still")

    def resume(self) -> None:
        """SIGCONT."""
        if (pid := self.os_pid) is not None:
            self._signal_children(signal.SIGCONT)
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

    def impair(self, impairment: Impairment) -> None:
        """Its wall clock; ClusterFailed for anything else: a client has neither disk nor link of its own."""
        if not isinstance(impairment, ClockShift) or not self._place_clock.there:
            raise ClusterFailed(
                f"client {self.name} cannot be impaired by {impairment.kind!r}: it is no node of the cluster."
            )
        self._place_clock.impair(impairment)

    def repair(self, impairment: Impairment) -> None:
        """Nothing where it was never impaired."""
        if isinstance(impairment, ClockShift) and self._place_clock.there:
            self._place_clock.repair(impairment)

    def impaired(self, impairment: Impairment) -> tuple[Tristate, str]:
        """Its clock, by what it writes."""
        if not isinstance(impairment, ClockShift) or not self._place_clock.there:
            return Tristate.NO, "a client is never impaired"
        if self.os_pid is None and not self._place_clock.is_moved:
            return Tristate.NO, "there is no process, and the next one starts with the true time"
        return self._place_clock.impaired(impairment)

    def harm(self, harm: Harm) -> str:
        """ClusterFailed: as `impair`."""
        raise ClusterFailed(f"client {self.name} cannot be harmed by {harm.kind!r}: it is no node of the cluster.")

    def _refuse_company(self, process: ClientProcess | None) -> None:
        """What no step means may share a process (`workloads.sharing`): others would be hit, and nobody would know."""
        if process is not None and process.company:
            raise ClusterFailed(
                f"client {self.name} cannot be hit alone: {process.company} others have the same process. Name it in a step."
            )

    def _current(self) -> ClientProcess | None:
        """The newest that lives, else the newest."""
        had_by = self._had_by()
        return next((process for process in reversed(had_by) if process.running), had_by[-1] if had_by else None)

    def _children(self) -> list[ProcessStatus]:
        """What runs in the sessions of the processes that it runs."""
        process = self._current()
        return _children_of(process) if process else []

    def _signal_children(self, number: signal.Signals) -> None:
        for status in self._children():
            self._signal(status.identity.pid, number)

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


def _children_of(process: ClientProcess) -> list[ProcessStatus]:
    return [status for session in process.sessions for status in session_members(session)]
