"""All clients of a trial, of every workload: started, commanded, followed, ended.

Each client of the plan is a process; what it does is its role's (`harness.catalogue.ROLES`). The run stage commands them over
pipes and follows their rows; it never handles a record itself.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from harness import catalogue
from harness.clock import Clock
from harness.plan import Plan, PlannedClient
from harness.protocols import AuditResult, ClientNode, Progress
from harness.run_directory import RunDirectory
from harness.schema import RECORDED_ROLES, SENDING
from harness.send_progress import SendsTail, progress_of
from workloads.client import ClientExit
from workloads.client_clock import PlaceClock, prepare
from workloads.ending import Ending
from workloads.exits import Exits, obituary
from workloads.launching import OF_THE_AUDIT, Launching, Servers
from workloads.own_clock import file_of
from workloads.places import Places
from workloads.processes import ClientProcess, ClientProcesses
from workloads.sharing import share
from workloads.take_over import TakeOvers

STOP_LIMIT_S = 30.0
"""For one client to end in order: a batch, a last commit, leaving its group; deliveries under way."""
COMMAND_LIMIT_S = 10.0
"""For pause and resume: longer than any client may be busy with one batch."""
SEND_LIMIT_S = 60.0
FINISH_GRACE_S = 15.0
"""Beyond the limit given: for the end of producers with acks=0 (`producer.HANDLED_LIMIT_NS`)."""


class Clients:
    """`harness.protocols.Workload`. Nothing runs before `start`."""

    def __init__(self, plan: Plan, run: RunDirectory, *, cluster: Servers, clock: Clock) -> None:
        self._plan, self._run, self._clock = plan, run, clock
        self._launching = Launching(plan, run, cluster=cluster)
        self._processes = ClientProcesses(
            rows=run.rows,
            logs=run.logs,
            clock=clock,
            prefix=lambda: getattr(cluster, "client_prefix", ()),
            environment=lambda: prepare(plan, run.rows),
        )
        self._of_cell = {cell.cell: cell.written for cell in plan.cells}
        planned: dict[str, list[PlannedClient]] = {role: [] for role in catalogue.ROLES}
        for client in plan.clients:
            if client.role not in RECORDED_ROLES:
                planned[client.role].append(client)
        self._ending = Ending(planned, self._processes, self._launching, clock=clock)
        self._exits = Exits(run.rows)
        self._tails: dict[int, SendsTail] = {}
        self._take_overs = TakeOvers(plan)
        self._resumed = False
        self._places = Places(
            [client for client in plan.clients if client.role not in (*OF_THE_AUDIT, *RECORDED_ROLES)],
            processes=self._processes,
            launch=self._launching.relaunch,
            taken=self._taken,
            late=frozenset(self._launching.absent),
            first_new_client=1 + max((client.client for client in plan.clients), default=0),
            rows=run.rows,
            clock=clock,
            place_clock=self._place_clock,
        )

    def _place_clock(self, client: PlannedClient, clients: Callable[[], Sequence[int]]) -> PlaceClock:
        topics = {p.partition: (p.topic_name, p.number) for p in self._plan.partitions}
        return PlaceClock(
            file_of(self._run.rows, client.client),
            partitions=[topics[partition] for partition in client.partitions],
            servers=lambda: self._launching.observer_servers,
            clients=clients,
            clock=self._clock,
        )

    def nodes(self) -> Sequence[ClientNode]:
        """The processes of planned clients, as targets of faults."""
        return self._places.nodes

    def start(self) -> None:
        """Start all clients but the audit's and late starters, each in its process or in one that it shares
        (`workloads.sharing`); return once each is ready. Those that send wait for `resume_sends`. BadInput if librdkafka
        refuses a configuration; else HarnessFailed or NotReady."""
        planned = [client for client in self._plan.clients if client.role not in OF_THE_AUDIT and not client.late]
        self._processes.start(
            [self._launching.launch(client) for client in planned],
            together=share(planned, self._plan.steps),
        )
        count = len(self._plan.partitions)
        self._tails = {c.client: SendsTail(self._run.rows, c.client, count) for c in planned if c.role in SENDING}

    def command(self, name: str, **arguments: Any) -> None:  # noqa: ANN401 - checked by the schedule's models
        """pause_sends(), resume_sends(), send(cells, count, producer), take_over(cells, hold): returns once every living
        producer has carried it out. NotReady, naming those that have not, after a limit."""
        if name.endswith("_client"):
            return self._command_clients(name, **arguments)
        producers = self._processes.running(SENDING)
        match name:
            case "pause_sends":
                self._resumed = False
                self._processes.command(producers, "pause", timeout_s=COMMAND_LIMIT_S)
            case "resume_sends":
                self._resumed = True
                self._processes.command(producers, "resume", timeout_s=COMMAND_LIMIT_S)
            case "send":
                self._send(producers, **arguments)
            case "begin":
                self._begin(producers, set(arguments["partitions"]))
            case "take_over":
                self._take_overs.take_over(self._processes, arguments["cells"], hold=arguments["hold"])
            case _:
                raise AssertionError(name)

    def _send(
        self, producers: Sequence[ClientProcess], *, cells: Collection[int], count: int, producer: int | None = None
    ) -> None:
        """`producer`: the number of the one among several that are alike; None = all of them."""
        partitions = sorted(p for cell in cells for p in self._of_cell[cell])
        wanted = set(partitions)
        alike = [c for c in self._plan.clients if producer is None or c.number == producer]
        concerned = {c.client for c in alike if wanted.intersection(c.partitions)}
        self._processes.command(
            [p for p in producers if self._places.planned_of(p.client) in concerned],
            "send",
            timeout_s=SEND_LIMIT_S,
            partitions=partitions,
            count=count,
        )

    def _begin(self, producers: Sequence[ClientProcess], new: set[int]) -> None:
        """These late partitions are there now."""
        self._launching.absent -= new
        of = {c.client for c in self._plan.clients if new.intersection(c.partitions)}
        told = [p for p in producers if self._places.planned_of(p.client) in of]
        self._processes.command(told, "begin", timeout_s=COMMAND_LIMIT_S, partitions=sorted(new))

    def _command_clients(self, name: str, *, client: str, seconds: float = 0.0) -> None:
        nodes = self._places.named(client)
        match name:
            case "stop_client":
                for node in nodes:
                    node.stop(timeout_s=STOP_LIMIT_S)
            case "start_client":
                for node in nodes:
                    node.start()
            case "stall_client":
                stalled = self._places.processes_of(nodes)
                self._processes.command(stalled, "stall", timeout_s=COMMAND_LIMIT_S, seconds=seconds)
            case _:
                raise AssertionError(name)

    def progress(self) -> Mapping[int, Progress]:
        """Per dense partition id, from the rows of the producers. What a dead producer left open counts as info."""
        self._processes.poll()
        # Who is dead is asked before its rows are read: it cannot complete one after.
        dead = [i for i, client in enumerate(self._tails) if not self._processes.clients[client].running]
        for index, tail in enumerate(self._tails.values()):
            tail.end() if index in dead else tail.advance()
        return progress_of(tuple(self._tails.values()), dead, partitions=len(self._plan.partitions))

    def dead_clients(self) -> Mapping[str, str]:
        """Clients that ended although nobody asked them to: name → exit and last words."""
        self._processes.poll()
        self._exits.note(self._processes.clients.values())
        dead = [p for p in self._processes.clients.values() if not p.running and (p.exit_code or not p.expected_to_end)]
        return {
            p.name: obituary(p, self._processes.last_words(p))
            for p in dead
            if not p.killed and not (p.may_be_fenced and p.exit_code == ClientExit.FATAL)
        }

    def finish_sends(self, *, timeout_s: float) -> None:
        """No new sends; the producers end when every report has come, or at the limit, where the rest stays INFO."""
        producers = self._processes.running(SENDING)
        for process in producers:
            process.expected_to_end = True
        self._processes.tell(producers, "finish", timeout_s=timeout_s)
        if not self._processes.wait(producers, timeout_s=timeout_s + FINISH_GRACE_S):
            self._processes.end(producers)
        self._exits.note(self._processes.clients.values())

    def drain(self, *, timeout_s: float) -> None:
        """See `Ending.drain`."""
        self._ending.drain(timeout_s=timeout_s)

    def fence(self, *, timeout_s: float) -> Mapping[str, str]:
        """See `Ending.fence`."""
        return self._ending.fence(timeout_s=timeout_s)

    def audit(self, *, timeout_s: float) -> AuditResult:
        """See `Ending.audit`."""
        return self._ending.audit(timeout_s=timeout_s)

    def close(self) -> None:
        """End every client. Safe to call twice."""
        self._processes.close()
        self._exits.note(self._processes.clients.values())

    def _taken(self, planned: PlannedClient, process: ClientProcess) -> None:
        """A restarted producer is followed too, and does what the others do."""
        if planned.role in SENDING:
            self._tails[process.client] = SendsTail(self._run.rows, process.client, len(self._plan.partitions))
            if self._resumed:
                self._processes.command([process], "resume", timeout_s=COMMAND_LIMIT_S)
