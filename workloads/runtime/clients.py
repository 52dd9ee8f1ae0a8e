"""Starts, commands, follows and ends all clients of a trial, of every workload.

Each client of the plan is a process; what it does is its role's (`prozess.workloads.roles.ROLES`). The run stage
commands them over pipes and follows their rows; it never handles a record itself.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import assert_never

from prozess.harness.clock import Clock
from prozess.harness.history.progress import SendsTail, progress_of
from prozess.harness.interfaces import AuditResult, ClientNode, Progress
from prozess.harness.plan.plan import Plan, PlannedClient
from prozess.harness.plan.schedule import (
    ClientAction,
    ClientCommand,
    PauseSends,
    ResumeSends,
    Send,
    StallAction,
    TakeOver,
)
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import RECORDED_ROLES, SENDING
from prozess.workloads import messages
from prozess.workloads.client import ClientExit, clock_file_of
from prozess.workloads.roles import OF_THE_AUDIT, ROLES, ClientServers, Launcher
from prozess.workloads.runtime.clocks import SlotClock, prepare
from prozess.workloads.runtime.final_phase import FinalPhase
from prozess.workloads.runtime.fork_server import share
from prozess.workloads.runtime.incarnations import Incarnations
from prozess.workloads.runtime.processes import ClientProcess, ClientProcesses, ExitRows, ForkServers, how_it_ended
from prozess.workloads.settings import Toolbox

STOP_LIMIT_S = 30.0
"""How long one client may take to end in order: a batch, a last commit, leaving its group; deliveries under way."""
COMMAND_LIMIT_S = 10.0
"""The limit for pause and resume: longer than any client may be busy with one batch."""
SEND_LIMIT_S = 60.0
FINISH_GRACE_S = 15.0
"""What producers with acks=0 may take beyond the limit given (`prozess.workloads.log.producer`)."""


class Clients:
    """All clients of a trial (`prozess.harness.interfaces.Workload`). Nothing runs before `start`."""

    def __init__(
        self,
        plan: Plan,
        run: RunDirectory,
        *,
        cluster: ClientServers,
        clock: Clock,
        toolbox: Toolbox,
        servers: ForkServers | None = None,
    ) -> None:
        """`servers`: where fork servers are taken from and left for others; None: nowhere."""
        self._plan, self._run, self._clock = plan, run, clock
        self._clocks = toolbox.clocks
        self._launching = Launcher(plan, run, cluster=cluster, toolbox=toolbox)
        self._processes = ClientProcesses(
            rows=run.rows,
            logs=run.logs,
            clock=clock,
            prefix=lambda: cluster.client_prefix,
            environment=lambda: prepare(plan, run.rows, toolbox.clocks),
            servers=servers,
        )
        planned: dict[str, list[PlannedClient]] = {role: [] for role in ROLES}
        for client in plan.clients:
            if client.role not in RECORDED_ROLES:
                planned[client.role].append(client)
        self._ending = FinalPhase(planned, self._processes, self._launching, clock=clock)
        self._exits = ExitRows(run.rows)
        self._tails: dict[int, SendsTail] = {}
        self._take_overs = TakeOvers(plan)
        self._resumed = False
        self._incarnations = Incarnations(
            [client for client in plan.clients if client.role not in (*OF_THE_AUDIT, *RECORDED_ROLES)],
            processes=self._processes,
            launch=self._launching.relaunch,
            taken=self._taken,
            late=frozenset(self._launching.absent),
            first_new_client=1 + max((client.client for client in plan.clients), default=0),
            rows=run.rows,
            clock=clock,
            slot_clock=self._slot_clock,
        )

    def _slot_clock(self, client: PlannedClient, clients: Callable[[], Sequence[int]]) -> SlotClock:
        topics = {partition: name for name, partition in self._plan.recorded.items()}
        return SlotClock(
            clock_file_of(self._run.rows, client.client),
            partitions=[topics[partition] for partition in client.partitions if partition in topics],
            servers=lambda: self._launching.observer_servers,
            clients=clients,
            clock=self._clock,
            clocks=self._clocks,
        )

    def nodes(self) -> Sequence[ClientNode]:
        """Returns the slots of planned clients, as targets of faults."""
        return self._incarnations.nodes

    def start(self) -> None:
        """Starts all clients but the audit's and late starters, each in its own process or in one that it shares
        (`prozess.workloads.runtime.fork_server`); return once each is ready. Those that send wait for
        `resume_sends`. BadInput if librdkafka refuses a configuration; else HarnessFailed or NotReady."""
        planned = [client for client in self._plan.clients if client.role not in OF_THE_AUDIT and not client.late]
        self._processes.start(
            [self._launching.launch(client) for client in planned],
            together=share(planned, self._plan.steps),
        )
        count = len(self._plan.partitions)
        self._tails = {c.client: SendsTail(self._run.rows, c.client, count) for c in planned if c.role in SENDING}

    def command(self, action: ClientCommand) -> None:
        """Carries out an action of the schedule. Returns once every living client that it concerns has done so.
        NotReady, naming those that have not, after a limit."""
        match action:
            case PauseSends():
                self._resumed = False
                self._processes.command(
                    self._processes.running(SENDING), messages.PauseCommand(), timeout_s=COMMAND_LIMIT_S
                )
            case ResumeSends():
                self._resumed = True
                self._processes.command(
                    self._processes.running(SENDING), messages.ResumeCommand(), timeout_s=COMMAND_LIMIT_S
                )
            case Send():
                self._send(action)
            case TakeOver():
                cells = [cell.cell for cell in self._plan.cells_matching(action.cells)]
                self._take_overs.take_over(self._processes, cells, hold=action.hold)
            case ClientAction():
                for name in action.client:
                    self._stop_or_start(action, self._incarnations.named(name))
            case StallAction():
                stall = messages.StallCommand(seconds=action.seconds)
                for name in action.client:
                    stalled = self._incarnations.processes_of(self._incarnations.named(name))
                    self._processes.command(stalled, stall, timeout_s=COMMAND_LIMIT_S)
            case _:
                assert_never(action)

    def begin(self, partitions: Collection[int]) -> None:
        """Reports producers that these late partitions exist now. NotReady if they do not answer in time."""
        new = set(partitions)
        self._launching.absent -= new
        self._launching.missing -= new
        of = {c.client for c in self._plan.clients if new.intersection(c.partitions)}
        processes = [p for p in self._processes.running(SENDING) if self._incarnations.planned_of(p.client) in of]
        self._processes.command(processes, messages.BeginCommand(partitions=sorted(new)), timeout_s=COMMAND_LIMIT_S)

    def appeared(self, partitions: Collection[int], *, there: bool) -> None:
        """Notes that partitions (recorded ids) are there, or are there no more, so that the audit asks for those that
        are. Clients go on as they are."""
        if there:
            self._launching.missing.difference_update(partitions)
        else:
            self._launching.missing.update(partitions)

    def _send(self, action: Send) -> None:
        partitions = sorted(p for cell in self._plan.cells_matching(action.cells) for p in cell.written)
        wanted = set(partitions)
        alike = [c for c in self._plan.clients if action.producer is None or c.number == action.producer]
        concerned = {c.client for c in alike if wanted.intersection(c.partitions)}
        self._processes.command(
            [p for p in self._processes.running(SENDING) if self._incarnations.planned_of(p.client) in concerned],
            messages.SendCommand(partitions=partitions, count=action.count),
            timeout_s=SEND_LIMIT_S,
        )

    def _stop_or_start(self, action: ClientAction, nodes: Sequence[ClientNode]) -> None:
        match action.do:
            case "stop":
                for node in nodes:
                    node.stop(timeout_s=STOP_LIMIT_S)
            case "start":
                for node in nodes:
                    node.start()
            case _:
                assert_never(action.do)

    def progress(self) -> Mapping[int, Progress]:
        """Returns the progress of each partition (dense id), from the rows of its producers. What a dead producer left
        open counts as info."""
        self._processes.poll()
        # Whether a client is dead is asked before its rows are read: it cannot complete one after.
        dead = [i for i, client in enumerate(self._tails) if not self._processes.clients[client].running]
        for index, tail in enumerate(self._tails.values()):
            tail.end() if index in dead else tail.advance()
        return progress_of(tuple(self._tails.values()), dead, partitions=len(self._plan.partitions))

    def dead_clients(self) -> Mapping[str, str]:
        """Returns the clients that ended although nobody asked them to: name → exit and last words."""
        self._processes.poll()
        self._exits.note(self._processes.clients.values())
        dead = [p for p in self._processes.clients.values() if not p.running and (p.exit_code or not p.expected_to_end)]
        return {
            p.name: how_it_ended(p, self._processes.last_words(p))
            for p in dead
            if not p.killed and not (p.may_be_fenced and p.exit_code == ClientExit.FATAL)
        }

    def finish_sends(self, *, timeout_s: float) -> Sequence[str]:
        """Ends all sending: the producers end when every report has come, or at the limit. What is open then stays
        INFO. Returns the names of those that did not end by themselves."""
        producers = self._processes.running(SENDING)
        for process in producers:
            process.expected_to_end = True
        self._processes.send(producers, messages.FinishCommand(timeout_s=timeout_s))
        ended = self._processes.wait(producers, timeout_s=timeout_s + FINISH_GRACE_S)
        late = [] if ended else [p.name for p in producers if p.running]
        if late:
            self._processes.end(producers)
        self._exits.note(self._processes.clients.values())
        return late

    def drain(self, *, timeout_s: float) -> Sequence[str]:
        """Drains groups and copiers, see `FinalPhase.drain`."""
        return self._ending.drain(timeout_s=timeout_s)

    def fence(self, *, timeout_s: float) -> Mapping[str, str]:
        """Ends every open transaction, see `FinalPhase.fence`."""
        return self._ending.fence(timeout_s=timeout_s)

    def audit(self, *, timeout_s: float) -> AuditResult:
        """Audits every partition, see `FinalPhase.audit`."""
        return self._ending.audit(timeout_s=timeout_s)

    def close(self) -> Sequence[str]:
        """Ends every client. Safe to call twice. Returns the names of those that did not stop when they were asked to."""
        before = {p.client for p in self._processes.clients.values() if p.killed}
        self._processes.close()
        self._exits.note(self._processes.clients.values())
        return [p.name for p in self._processes.clients.values() if p.killed and p.client not in before]

    def _taken(self, planned: PlannedClient, process: ClientProcess) -> None:
        """Follows a restarted producer too, and has it do what the others do."""
        if planned.role in SENDING:
            self._tails[process.client] = SendsTail(self._run.rows, process.client, len(self._plan.partitions))
            if self._resumed:
                self._processes.command([process], messages.ResumeCommand(), timeout_s=COMMAND_LIMIT_S)


# Knows who has each transactional.id, and how another takes it over while the first still holds an open transaction.


TAKE_OVER_LIMIT_S = 60.0
"""The limit for a takeover, with its init_transactions: a coordinator may be moving."""


class TakeOvers:
    """Pairs of processes that share a transactional.id (`transaction.standby`)."""

    def __init__(self, plan: Plan) -> None:
        self._having: dict[str, int] = {}
        """The client that has each transactional.id."""
        self._waiting: dict[str, int] = {}
        self._cell: dict[str, int | None] = {}
        for client in plan.clients:
            if client.role == "transactor" and client.transactional_id is not None:
                who = self._waiting if client.instance else self._having
                who[client.transactional_id] = client.client
                self._cell[client.transactional_id] = client.cell

    def take_over(self, processes: ClientProcesses, cells: Collection[int], *, hold: bool) -> None:
        """Lets the standby of each id of these cells initialise it. The client that had the id goes on as a zombie,
        and stands by once it is fenced.

        `hold`: it begins a transaction first, and ends it afterwards; else it is left as it is, paused perhaps. NotReady if
        one of them does not answer in time.
        """
        ids = [text for text in self._waiting if self._cell[text] in cells]
        zombies = self._processes(processes, self._having, ids)
        successors = self._processes(processes, self._waiting, ids)
        if hold:
            processes.command(zombies, messages.HoldCommand(), timeout_s=TAKE_OVER_LIMIT_S)
        processes.command(successors, messages.TakeOverCommand(), timeout_s=TAKE_OVER_LIMIT_S)
        # Not awaited: one that is paused reads it when it is resumed.
        processes.send(zombies, messages.GoOnCommand())
        for text in ids:
            self._having[text], self._waiting[text] = self._waiting[text], self._having[text]

    @staticmethod
    def _processes(processes: ClientProcesses, of: Mapping[str, int], ids: Collection[str]) -> list[ClientProcess]:
        return [processes.clients[of[text]] for text in ids]
