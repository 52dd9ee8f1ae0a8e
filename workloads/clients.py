"""All clients of a trial, of every workload: started, commanded, followed, ended; and the audit that reads what is there.

Each client of the plan is a process; what it does is its role's (`harness.catalogue.ROLES`). The run stage commands them over
pipes and follows their rows; it never handles a record itself.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from harness import catalogue
from harness.clock import NS_PER_S, Clock, wait_until
from harness.errors import HarnessFailed, NotReady
from harness.plan import Plan, PlannedClient
from harness.protocols import AuditResult, ClientNode, ClientSpec, Progress
from harness.run_directory import RunDirectory
from harness.schema import CLIENTS, NONE, RECORDED_ROLES, SENDING, Isolation
from harness.send_progress import SendsTail, progress_of
from harness.stalls import STALLED_NS
from workloads.client import ClientExit, Launch
from workloads.client_clock import PlaceClock, prepare
from workloads.client_nodes import Places
from workloads.drain import Drain
from workloads.own_clock import file_of
from workloads.processes import ClientProcess, ClientProcesses
from workloads.properties import LaunchContext, Settings
from workloads.sharing import share
from workloads.statistics import INTERVAL_MS, INTERVAL_PROPERTY
from workloads.take_over import TakeOvers

STOP_LIMIT_S = 30.0
"""For one client to end in order: a batch, a last commit, leaving its group; deliveries under way."""
COMMAND_LIMIT_S = 10.0
"""For pause and resume: longer than any client may be busy with one batch."""
SEND_LIMIT_S = 60.0
FINISH_GRACE_S = 15.0
"""Beyond the limit given: for the end of producers with acks=0 (`producer.HANDLED_LIMIT_NS`)."""
ANSWER_GRACE_S = 10.0
"""What a client may need beyond the limit it was given, to say what it reached."""
SENTINEL_SHARE = 0.5
"""Of the audit's limit, at most, for the sentinels."""


MEMBERS = ("member", "java-member")
"""Roles of members of groups, until they are told to leave."""
COPYING = ("copier", "java-copier", "application")
"""Roles that derive one topic from another, until they are told to stop."""
_OF_THE_AUDIT = ("sentinel", "audit", "fencer", "observer")
_GROWING = ("producer", "text-producer")
"""Roles that write late partitions from when they are told of them."""
DRAIN_QUIET_S = 20.0
"""Members that move nothing for so long will not: longer than any session of a trial and the rebalance after it."""
LOOK_UP_S = 20.0
_ISOLATION = {
    "read_uncommitted": Isolation.READ_UNCOMMITTED,
    "read_committed": Isolation.READ_COMMITTED,
}


class Servers(Protocol):
    """What this workload needs of a cluster."""

    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def observer_servers(self) -> Mapping[int, tuple[str, int]]: ...


class Clients:
    """`harness.protocols.Workload`. Nothing runs before `start`."""

    def __init__(self, plan: Plan, run: RunDirectory, *, cluster: Servers, clock: Clock) -> None:
        self._plan, self._run, self._cluster, self._clock = plan, run, cluster, clock
        self._processes = ClientProcesses(
            rows=run.rows,
            logs=run.logs,
            clock=clock,
            prefix=lambda: getattr(cluster, "client_prefix", ()),
            environment=lambda: prepare(plan, run.rows),
        )
        self._of_cell = {cell.cell: cell.written for cell in plan.cells}
        self._planned: dict[str, list[PlannedClient]] = {role: [] for role in catalogue.ROLES}
        for client in plan.clients:
            if client.role not in RECORDED_ROLES:
                self._planned[client.role].append(client)
        self._tails: dict[int, SendsTail] = {}
        self._exits_noted: set[int] = set()
        self._take_overs = TakeOvers(plan)
        self._absent = {p.partition for p in plan.partitions if p.late}
        """Late partitions that nobody was told of yet."""
        self._resumed = False
        self._places = Places(
            [client for client in plan.clients if client.role not in (*_OF_THE_AUDIT, *RECORDED_ROLES)],
            processes=self._processes,
            launch=self._relaunch,
            taken=self._taken,
            late=frozenset(self._absent),
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
            servers=lambda: ",".join(f"{host}:{port}" for host, port in self._cluster.observer_servers.values()),
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
        planned = [client for client in self._plan.clients if client.role not in _OF_THE_AUDIT and not client.late]
        self._processes.start(
            [self._launch(client, self._cluster.bootstrap_servers) for client in planned],
            together=share(planned, self._plan.steps),
        )
        count = len(self._plan.partitions)
        self._tails = {c.client: SendsTail(self._run.rows, c.client, count) for c in planned if c.role in SENDING}

    def command(self, name: str, **arguments: Any) -> None:  # noqa: ANN401 - checked by the schedule's models
        """pause_sends(), resume_sends(), send(cells, count, producer), take_over(cells, hold): returns once every living
        producer has carried it out. NotReady, naming those that have not, after a limit."""
        if name.endswith("_client"):
            return self._command_clients(name, **arguments)
        producers = self._running(SENDING)
        match name:
            case "pause_sends":
                self._resumed = False
                self._processes.command(producers, "pause", timeout_s=COMMAND_LIMIT_S)
            case "resume_sends":
                self._resumed = True
                self._processes.command(producers, "resume", timeout_s=COMMAND_LIMIT_S)
            case "send":
                partitions = sorted(p for cell in arguments["cells"] for p in self._of_cell[cell])
                wanted = set(partitions)
                number = arguments.get("producer")  # of several that are alike
                alike = [c for c in self._plan.clients if number is None or c.number == number]
                concerned = {c.client for c in alike if wanted.intersection(c.partitions)}
                self._processes.command(
                    [p for p in producers if self._places.planned_of(p.client) in concerned],
                    "send",
                    timeout_s=SEND_LIMIT_S,
                    partitions=partitions,
                    count=arguments["count"],
                )
            case "begin":
                new = set(arguments["partitions"])
                self._absent -= new
                of = {c.client for c in self._plan.clients if new.intersection(c.partitions)}
                told = [p for p in producers if self._places.planned_of(p.client) in of]
                self._processes.command(told, "begin", timeout_s=COMMAND_LIMIT_S, partitions=sorted(new))
            case "take_over":
                self._take_overs.take_over(self._processes, arguments["cells"], hold=arguments["hold"])
            case _:
                raise AssertionError(name)

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
        self._note_exits()
        dead = [p for p in self._processes.clients.values() if not p.running and (p.exit_code or not p.expected_to_end)]
        return {
            p.name: _obituary(p, self._processes.last_words(p))
            for p in dead
            if not p.killed and not (p.may_be_fenced and p.exit_code == ClientExit.FATAL)
        }

    def finish_sends(self, *, timeout_s: float) -> None:
        """No new sends; the producers end when every report has come, or at the limit, where the rest stays INFO."""
        producers = self._running(SENDING)
        for process in producers:
            process.expected_to_end = True
        self._processes.tell(producers, "finish", timeout_s=timeout_s)
        if not self._processes.wait(producers, timeout_s=timeout_s + FINISH_GRACE_S):
            self._processes.end(producers)
        self._note_exits()

    def drain(self, *, timeout_s: float) -> None:
        """Members of groups process what is left and leave; copiers copy what is left, as far as they commit it, and end.
        Members that are tools, and copiers, do not know what is left: what they commit is followed. Nothing to do where
        there are none."""
        until_ns = self._clock.monotonic_ns() + int(timeout_s * 1e9)
        drain = Drain(self._processes, self._clock, quiet_s=DRAIN_QUIET_S)
        followed = self._follow(self._partitions_of(("java-member",)), until_ns)
        if partitions := self._partitions_of(MEMBERS):
            members = self._running(MEMBERS)
            drain.until_done(members, partitions, timeout_s=timeout_s)
            self._answers(followed, "followed", limit_s=self._left_s(until_ns))
            drain.end(members)
        if partitions := self._partitions_of(COPYING):
            followed = self._follow(partitions, until_ns)
            self._answers(followed, "followed", limit_s=self._left_s(until_ns))
            drain.end(self._running(COPYING))

    def _partitions_of(self, roles: Collection[str]) -> set[int]:
        """Those that clients of these roles have, and that are there."""
        every = {p for role in roles for client in self._planned[role] for p in client.partitions}
        return every - self._absent

    def _follow(self, partitions: Collection[int], until_ns: int) -> list[ClientProcess]:
        """Observers of these partitions, which tell `followed` once everything in them is committed, or nothing moves."""
        planned = [c for c in self._planned["observer"] if not set(partitions).isdisjoint(c.partitions)]
        started = self._observers(planned)
        left_s = self._left_s(until_ns)
        for process in started:
            process.events[:] = [said for said in process.events if said["event"] != "followed"]
        self._processes.tell(started, "follow", partitions=sorted(partitions), quiet_s=DRAIN_QUIET_S, timeout_s=left_s)
        return started

    def fence(self, *, timeout_s: float) -> Mapping[str, str]:
        """Initialise every transactional.id once more, over the observer's listeners, so that no transaction stays open:
        which ids that failed for, and why. Then look up what every group has committed. Nothing to do where nobody has one.
        To be called once, before the audit."""
        problems: dict[str, str] = {}
        if planned := self._planned["fencer"]:
            started = self._start_for_audit(planned, limit_s=timeout_s)
            self._processes.tell(started, "fence", timeout_s=timeout_s)
            answers = self._answers(started, "fenced", limit_s=timeout_s)
            problems = {p.name: self._silence(p.name) for p in started if p.client not in answers}
            for said in answers.values():
                problems |= said["problems"]
            self._processes.end(started)
        if planned := self._planned["observer"]:
            started = self._observers(planned)
            self._processes.tell(started, "look", timeout_s=LOOK_UP_S)
            self._answers(started, "looked", limit_s=LOOK_UP_S)
            self._processes.end(started)
        return problems

    def audit(self, *, timeout_s: float) -> AuditResult:
        """Sentinels with acks=all to each partition, then a read of each from its start through its sentinel at both
        isolation levels, over the observer's listeners; then tailing readers are given time to get as far. To be called
        once."""
        planned = [*self._planned["sentinel"], *self._planned["audit"]]
        until_ns = self._clock.monotonic_ns() + int(timeout_s * 1e9)
        try:
            started = self._start_for_audit(planned, limit_s=timeout_s)
        except (
            HarnessFailed
        ) as error:  # an audit that cannot be made leaves everything unknown; the run still has a history
            every = [
                (p, int(_ISOLATION[c.isolation_level])) for c in planned if c.isolation_level for p in c.partitions
            ]
            return AuditResult(complete={}, incomplete=dict.fromkeys(every, str(error)))
        sentinels = [p for p in started if p.role == "sentinel"]
        readers = [p for p in started if p.role == "audit"]

        self._processes.tell(sentinels, "write", timeout_s=self._left_s(until_ns) * SENTINEL_SHARE)
        written: dict[int, int] = {}
        missing: dict[int, str] = {}
        for _, said in self._answers(sentinels, "sentinels", limit_s=self._left_s(until_ns)).items():
            written |= dict(said["written"])
            missing |= dict(said["missing"])
        self._processes.tell(readers, "read", through=sorted(written.items()), timeout_s=self._left_s(until_ns))
        answers = self._answers(readers, "audited", limit_s=self._left_s(until_ns))
        result = self._result(written, missing, answers)
        self._processes.end(started)
        self._let_readers_reach(written)
        return result

    def close(self) -> None:
        """End every client. Safe to call twice."""
        self._processes.close()
        self._note_exits()

    def _observers(self, planned: Sequence[PlannedClient]) -> list[ClientProcess]:
        """Those of these that run, and the others started."""
        known = self._processes.clients
        new = self._start_for_audit([client for client in planned if client.client not in known])
        return [*(known[c.client] for c in planned if c.client in known and known[c.client] not in new), *new]

    def _start_for_audit(self, planned: Sequence[PlannedClient], *, limit_s: float = 0.0) -> list[ClientProcess]:
        """Over the observer's listeners, which no fault touches."""
        servers = ",".join(f"{host}:{port}" for host, port in self._cluster.observer_servers.values())
        return self._processes.start([self._launch(client, servers, limit_s=limit_s) for client in planned])

    def _let_readers_reach(self, written: Mapping[int, int]) -> None:
        """Tailing readers read through the sentinels, or get the time after which they count as stalled."""
        readers = self._running(("reader",))
        self._processes.tell(readers, "reach", through=sorted(written.items()))
        self._answers(readers, "reached", limit_s=STALLED_NS / NS_PER_S)

    # --- parts ------------------------------------------------------------------------------------------------------

    def _running(self, roles: Collection[str]) -> list[ClientProcess]:
        self._processes.poll()
        return [p for p in self._processes.clients.values() if p.role in roles and p.running]

    def _left_s(self, until_ns: int) -> float:
        return max(0.1, (until_ns - self._clock.monotonic_ns()) / 1e9)

    def _relaunch(self, planned: PlannedClient, client: int, name: str) -> Launch:
        """A new client in the place of a planned one."""
        # What it writes names the new one; what it is known by to Kafka stays: the instance of a group, a client.id.
        launch = self._launch(planned.model_copy(update={"client": client}), self._cluster.bootstrap_servers)
        return launch.model_copy(
            update={"spec": launch.spec.model_copy(update={"name": name}), "planned": planned.client}
        )

    def _taken(self, planned: PlannedClient, process: ClientProcess) -> None:
        """A restarted producer is followed too, and does what the others do."""
        if planned.role in SENDING:
            self._tails[process.client] = SendsTail(self._run.rows, process.client, len(self._plan.partitions))
            if self._resumed:
                self._processes.command([process], "resume", timeout_s=COMMAND_LIMIT_S)

    def _launch(self, planned: PlannedClient, servers: str, *, limit_s: float = 0.0) -> Launch:
        partitions = self._plan.partitions
        make = catalogue.resolve(catalogue.LAUNCHES, planned.role, what="role")
        settings: Settings = make(LaunchContext(plan=self._plan, planned=planned, servers=servers, limit_s=limit_s))
        late = sorted(self._absent.intersection(planned.partitions)) if planned.role in _GROWING else []
        spec = ClientSpec(
            client=planned.client,
            role=planned.role,
            name=planned.name,
            bootstrap_servers=servers,
            properties=settings.properties | self._statistics(planned),
            partitions=tuple((p, partitions[p].topic_name, partitions[p].number) for p in planned.partitions),
            rate_hz=planned.traffic.rate_hz if planned.role in SENDING else 0,
            value_bytes=planned.traffic.value_bytes,
            unacknowledged_max=planned.traffic.unacknowledged_max,
            options=settings.options | ({"late": late} if late else {}),
        )
        isolation = _ISOLATION[planned.isolation_level] if planned.isolation_level else Isolation.NOT_A_READER
        return Launch(spec=spec, rows=self._run.rows, planned=planned.client, isolation=int(isolation))

    def _statistics(self, planned: PlannedClient) -> dict[str, int]:
        wanted = self._plan.metrics and planned.role not in _OF_THE_AUDIT
        return {INTERVAL_PROPERTY: INTERVAL_MS} if wanted else {}

    def _answers(self, processes: list[ClientProcess], event: str, *, limit_s: float) -> dict[int, dict[str, Any]]:
        """What each said, by client id; one that ended or was silent is not in it."""
        found: dict[int, dict[str, Any]] = {}

        def all_answered() -> bool:
            self._processes.poll()
            for process in processes:
                for said in process.events:
                    if said["event"] == event:
                        found[process.client] = said
            return all(p.client in found or not p.running for p in processes)

        with suppress(NotReady):  # what did not answer becomes `incomplete`, with the reason
            wait_until(
                all_answered, awaited=event, timeout_s=limit_s + ANSWER_GRACE_S, clock=self._clock, interval_s=0.01
            )
        return found

    def _result(
        self, written: Mapping[int, int], missing: Mapping[int, str], answers: Mapping[int, Mapping[str, Any]]
    ) -> AuditResult:
        complete: dict[tuple[int, int], int] = {}
        incomplete: dict[tuple[int, int], str] = {}
        no_sentinel = f"no sentinel was written: {self._silence('sentinel')}"
        for planned in self._planned["audit"]:
            assert planned.isolation_level is not None
            isolation = int(_ISOLATION[planned.isolation_level])
            answer = answers.get(planned.client)
            read = dict(answer["complete"]) if answer else {}
            why = dict(answer["incomplete"]) if answer else {}
            for partition in planned.partitions:
                key = (partition, isolation)
                if partition in read:
                    complete[key] = read[partition]
                elif partition not in written:
                    incomplete[key] = missing.get(partition, no_sentinel)
                else:
                    incomplete[key] = why.get(partition, f"it was not read: {self._silence(planned.name)}")
        return AuditResult(complete=complete, incomplete=incomplete)

    def _silence(self, name: str) -> str:
        """Why a client said nothing."""
        process = next(p for p in self._processes.clients.values() if p.name == name)
        if process.running:
            return f"{name} did not answer within the limit"
        return f"{name}: {_obituary(process, self._processes.last_words(process))}"

    def _note_exits(self) -> None:
        """Complete `clients.exit_code` for those that could not do it themselves: killed by a signal, or crashed. Their
        `ended_ns` stays MISSING: nobody saw the moment."""
        for process in self._processes.clients.values():
            path = self._run.rows / f"{CLIENTS.name}.{process.client}.0.rows"
            if process.running or process.client in self._exits_noted or not path.exists():
                continue
            self._exits_noted.add(process.client)
            row = np.memmap(path, dtype=CLIENTS.row_dtype, mode="r+", shape=(1,))
            if row["mark"][0] == 1 and row["exit_code"][0] == NONE:
                row["exit_code"][0] = process.exit_code
                row.flush()


def _obituary(process: ClientProcess, last_words: str) -> str:
    code = process.exit_code
    assert code is not None
    how = f"killed by signal {-code}" if code < 0 else f"exit {code}"
    if code < 0 and process.company:
        how += f", and with it the {process.company} that shared its process"
    return f"{how}: {last_words}"
