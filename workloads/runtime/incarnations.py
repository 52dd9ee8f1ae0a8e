"""An incarnation is one process in the slot of a planned client. Faults kill and pause it, and a restart puts a new
one there."""

import os
import signal
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from prozess.harness.clock import Clock, wait_until
from prozess.harness.config.impairments import ClockShift, Harm, Impairment
from prozess.harness.errors import ClusterFailed, NotReady
from prozess.harness.interfaces import CLIENT_NODE, ClientNode, Node, NodeState
from prozess.harness.plan.cell_work import GroupWork
from prozess.harness.plan.plan import PlannedClient
from prozess.harness.plan.schedule import client_target, means_client, parse_target
from prozess.harness.processes import ProcessStatus, process_status, session_members
from prozess.harness.recording.rows import read_rows
from prozess.harness.schema import ASSIGNMENTS, CLIENTS, NONE, SENDING, SENDS, Outcome, Role, Tristate, role_named
from prozess.workloads import messages
from prozess.workloads.client import ClientLaunch
from prozess.workloads.record.members import ASSIGN
from prozess.workloads.runtime.clocks import SlotClock
from prozess.workloads.runtime.processes import ClientProcess, ClientProcesses

# The slots of planned clients: which client has each one now, and which had it before.
#
# A slot that is taken again has a new client, with an id of its own, as a restarted application is a new client to
# Kafka.


class Incarnations:
    """Knows which client has the slot of each planned client now, and puts new clients there.

    `launch(planned, client, name)` makes what a new client is started with; `taken(planned, process)` is called for each
    client that was started in a slot. New ids are beyond the plan's. `late`: partitions that are not there from the start.
    `slot_clock` returns the clock of a slot; it is given a function that returns the ids of the slot's clients.
    """

    def __init__(  # noqa: PLR0913 - parts of one trial, by name
        self,
        planned: Sequence[PlannedClient],
        *,
        processes: ClientProcesses,
        launch: Callable[[PlannedClient, int, str], ClientLaunch],
        taken: Callable[[PlannedClient, ClientProcess], None],
        first_new_client: int,
        late: Collection[int],
        rows: Path,
        clock: Clock,
        slot_clock: Callable[[PlannedClient, Callable[[], Sequence[int]]], SlotClock],
    ) -> None:
        self._processes, self._launch, self._taken = processes, launch, taken
        self._next = first_new_client
        self._incarnations = {client.client: [client.client] for client in planned}
        self.nodes: tuple[ClientNode, ...] = tuple(
            ClientSlot(
                client,
                had_by=partial(self._had_by, client),
                restart=partial(self._restart, client),
                end=partial(self._end, client),
                partitions=len(set(client.partitions) - set(late)),
                rows=rows,
                clock=clock,
                slot_clock=slot_clock(client, partial(self._incarnations.__getitem__, client.client)),
            )
            for client in planned
        )

    def planned_of(self, client: int) -> int:
        """Returns the planned client whose place a client has, or had."""
        return next((planned for planned, ids in self._incarnations.items() if client in ids), client)

    def named(self, name: str) -> list[ClientNode]:
        """Returns the slots that a name means: of a planned client, `member(CELL, INSTANCE)`, or `producers`.
        ClusterFailed if there is none."""
        target = parse_target(client_target(name))
        found = [
            node
            for node in self.nodes
            if means_client(target, name=node.name, role=node.client_role, cell=node.cell, instance=node.instance)
        ]
        if not found:
            raise ClusterFailed(f"There is no client {name!r} that could be stopped or started.")
        return found

    def processes_of(self, nodes: Sequence[ClientNode]) -> list[ClientProcess]:
        """Returns the processes that have these slots now and live."""
        alive = (client for node in nodes for client in node.clients_alive[-1:])
        return [self._processes.clients[client] for client in alive]

    def _had_by(self, planned: PlannedClient) -> list[ClientProcess]:
        self._processes.poll()
        clients = self._processes.clients
        return [clients[client] for client in self._incarnations[planned.client] if client in clients]

    def _restart(self, planned: PlannedClient) -> None:
        """Starts a new client in a slot. In the slot of a late starter, which nobody had yet, it is the planned
        client itself."""
        ids, client, name = self._incarnations[planned.client], planned.client, planned.name
        if client in self._processes.clients:
            client, self._next = self._next, self._next + 1
            ids.append(client)
            name = f"{name}~{len(ids)}"
        assert client not in self._processes.clients, (
            f"client id {client} was given before: a new process gets a new id"
        )
        (process,) = self._processes.start([self._launch(planned, client, name)])
        self._taken(planned, process)

    def _end(self, planned: PlannedClient, timeout_s: float) -> None:
        process = next((p for p in reversed(self._had_by(planned)) if p.running), None)
        if process is None:
            return
        process.expected_to_end = True
        if planned.role in SENDING:
            self._processes.send([process], messages.FinishCommand(timeout_s=timeout_s))
        else:
            self._processes.send([process], messages.StopCommand())
        if not self._processes.wait([process], timeout_s=timeout_s):
            raise NotReady(
                awaited=f"client {process.name} to end in order", timeout_s=timeout_s, last_seen="it still runs"
            )


# The processes of planned clients as targets of faults: `prozess.harness.interfaces.ClientNode`.
#
# A node is a *slot*: a planned client's. Any client that has the slot now is what is killed or paused.


SIGNAL_LIMIT_S = 10.0
"""The limit until a signalled process is gone, or seen to stand still: that takes milliseconds, on a starved machine
seconds."""


class ClientSlot:
    """The slot of one planned client, as a target of faults. `had_by`: everybody who has it or had it, in order;
    `restart`: put a new client there, ready; `end`: end whoever has it; `partitions`: how many it serves that are
    there from the start."""

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
        slot_clock: SlotClock,
    ) -> None:
        self._planned, self._had_by, self._restart, self._end = planned, had_by, restart, end
        self._slot_clock = slot_clock
        self._partitions, self._rows, self._clock = partitions, rows, clock

    @property
    def name(self) -> str:
        """Returns the name of the planned client."""
        return self._planned.name

    @property
    def node_id(self) -> int:
        """Returns a number beyond every node id of Kafka's."""
        return CLIENT_NODE + self._planned.client

    @property
    def roles(self) -> frozenset[str]:
        """Returns no roles: a client is no server."""
        return frozenset()

    @property
    def client_role(self) -> str:
        """Returns the role of the planned client."""
        return self._planned.role

    @property
    def cell(self) -> int | None:
        """Returns the only cell that the client serves; None if it serves several."""
        return self._planned.cell

    @property
    def instance(self) -> int:
        """The number of the client among those that are alike."""
        return self._planned.instance

    @property
    def address(self) -> str:
        """Returns the empty text: clients share the address of the run stage."""
        return ""

    @property
    def data_directory(self) -> Path:
        """Returns where the client records."""
        return self._rows

    @property
    def os_pid(self) -> int | None:
        """The process id of the client that has the slot now."""
        process = self._current()
        return process.os_pid if process is not None and process.running else None

    @property
    def client(self) -> int | None:
        """The id of the client that has the slot now, alive or dead."""
        process = self._current()
        return None if process is None else process.client

    @property
    def clients_alive(self) -> Sequence[int]:
        """Returns the ids of all clients in this slot that live."""
        return [process.client for process in self._had_by() if process.running]

    def at_work(self) -> bool:
        """Reports, by the rows of the client that has the slot now, whether it was seen at work."""
        client = self.client
        return client is not None and has_worked(self._rows, self._planned, client, partitions=self._partitions)

    def state(self) -> NodeState:
        """Returns what is observed now: /proc says T of a process that a signal stopped (proc(5))."""
        pid = self.os_pid
        status = process_status(pid) if pid is not None else None
        if status is None:
            return NodeState.STOPPED
        still = all(s.state in "Tt" for s in (status, *self._children()))
        return NodeState.PAUSED if still else NodeState.RUNNING

    def kill(self) -> None:
        """Kills the client with SIGKILL, and what it runs. Safe on a slot that is empty. For two clients it is the
        newer one."""
        process = self._current()
        if process is None or not process.running or process.os_pid is None:
            return
        self._refuse_shared(process)
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
        """Kills the client's child, and lets the client record what the child had printed, which nobody else could: what it
        printed and then committed would be missing. The client ends by itself then."""
        assert process.os_pid is not None
        for status in _children_of(process):
            self._signal(status.identity.pid, signal.SIGKILL)
        self._signal(process.os_pid, signal.SIGCONT)
        with suppress(NotReady):
            self._await(
                lambda: process.client not in self.clients_alive, f"client {process.name} to hear its child out"
            )

    def stop(self, *, timeout_s: float) -> None:
        """Ends the client in order: a member leaves its group, a producer flushes."""
        self._end(timeout_s)

    def start(self) -> None:
        """Starts a new client, and returns once it is ready. Safe on a slot that is taken."""
        if self.os_pid is None:
            self._restart()

    def duplicate(self) -> None:
        """Starts a new client beside the one that is there. Kafka may end either: then it was fenced, and did not die
        unasked."""
        before = self._current()
        self._restart()
        for process in filter(None, (before, self._current())):
            process.may_be_fenced = True

    def pause(self) -> None:
        """Stops the client with SIGSTOP: the threads of its librdkafka stand still too, and so do the processes it
        runs."""
        pid = self.os_pid
        if pid is None:
            raise ClusterFailed(f"client {self.name} cannot be paused: it has no process.")
        self._refuse_shared(self._current())
        self._signal(pid, signal.SIGSTOP)
        self._signal_children(signal.SIGSTOP)
        self._await(lambda: self.state() is NodeState.PAUSED, f"client {self.name} to stand still")

    def resume(self) -> None:
        """Resumes the client with SIGCONT."""
        if (pid := self.os_pid) is not None:
            self._signal_children(signal.SIGCONT)
            self._signal(pid, signal.SIGCONT)

    def block(self, source: Node) -> None:
        """Raises ClusterFailed: clients have no link of their own."""
        raise ClusterFailed(
            f"client {self.name} has no link of its own that could be cut. Cut the brokers', or pause it."
        )

    def unblock(self, source: Node) -> None:
        """Does nothing: no link is ever blocked."""

    def receives_from(self, source: Node) -> Tristate:
        """Returns UNKNOWN: this is not observed."""
        return Tristate.UNKNOWN

    def impair(self, impairment: Impairment) -> None:
        """Moves the client's wall clock. ClusterFailed for anything else: a client has neither disk nor link of its
        own."""
        if not isinstance(impairment, ClockShift) or not self._slot_clock.there:
            raise ClusterFailed(
                f"client {self.name} cannot be impaired by {impairment.kind!r}: it is no node of the cluster."
            )
        self._slot_clock.impair(impairment)

    def repair(self, impairment: Impairment) -> None:
        """Sets the client's clock right, if it was moved."""
        if isinstance(impairment, ClockShift) and self._slot_clock.there:
            self._slot_clock.repair(impairment)

    def impaired(self, impairment: Impairment) -> tuple[Tristate, str]:
        """Observes the client's clock, by what it writes."""
        if not isinstance(impairment, ClockShift) or not self._slot_clock.there:
            return Tristate.NO, "a client is never impaired"
        if self.os_pid is None and not self._slot_clock.is_moved:
            return Tristate.NO, "there is no process, and the next one starts with the true time"
        return self._slot_clock.impaired(impairment)

    def harm(self, harm: Harm) -> str:
        """Raises ClusterFailed, as `impair` does."""
        raise ClusterFailed(f"client {self.name} cannot be harmed by {harm.kind!r}: it is no node of the cluster.")

    def _refuse_shared(self, process: ClientProcess | None) -> None:
        """Raises ClusterFailed if others have the same process (`prozess.workloads.runtime.fork_server`): they would
        be hit too, and nobody would know."""
        if process is not None and process.others:
            raise ClusterFailed(
                f"client {self.name} cannot be hit alone: {process.others} other clients run in the same "
                "process. Name it in a step, then it has a process of its own."
            )

    def _current(self) -> ClientProcess | None:
        """Returns the newest process that lives, else the newest."""
        had_by = self._had_by()
        return next((process for process in reversed(had_by) if process.running), had_by[-1] if had_by else None)

    def _children(self) -> list[ProcessStatus]:
        """Returns what runs in the sessions of the processes that the client runs."""
        process = self._current()
        return _children_of(process) if process else []

    def _signal_children(self, number: signal.Signals) -> None:
        for status in self._children():
            self._signal(status.identity.pid, number)

    @staticmethod
    def _signal(pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # the fork server reaps it and reports that: then it is seen to be gone
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


# Is a client at its work? Reported by the rows that it writes, while it writes them.


def has_worked(rows: Path, planned: PlannedClient, client: int, *, partitions: int) -> bool:
    """Says whether this client, in the slot of the planned one, was seen at work
    (`prozess.harness.interfaces.ClientNode.at_work`)? `partitions`: how many of its partitions were there from the
    start."""
    if isinstance(planned.work, GroupWork):
        written, _ = read_rows(rows, ASSIGNMENTS, client)
        assigned = written["event"] == ASSIGN
        # A group of more members than partitions leaves some without any.
        enough = partitions >= planned.work.configuration.members
        return bool((assigned & (written["partition"] != NONE)).any() if enough else assigned.any())
    if role_named(planned.role) is Role.PRODUCER and not planned.on_standby:
        written, _ = read_rows(rows, SENDS, client)
        return bool((written["outcome"] == Outcome.OK).any())
    return (rows / f"{CLIENTS.name}.{client}.0.rows").exists()
