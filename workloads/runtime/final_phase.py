"""Ends a trial's clients in this order: groups are drained, transactions are fenced, every partition is audited."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from prozess.harness.clock import NS_PER_S, Clock, wait_until
from prozess.harness.errors import HarnessFailed, NotReady
from prozess.harness.interfaces import AuditResult
from prozess.harness.interfaces.witnesses import STALLED_NS
from prozess.harness.plan.cell_work import CopierWork, GroupWork, ShareWork
from prozess.harness.plan.plan import PlannedClient
from prozess.workloads import messages
from prozess.workloads.roles import ISOLATION, Launcher
from prozess.workloads.runtime.processes import ClientProcess, ClientProcesses, how_it_ended

# Each question goes to the clients with the role for it. An answer that does not come is reported with the reason, and never
# left out.


ANSWER_GRACE_S = 10.0
"""What a client may take beyond the limit it was given, to say what it reached."""
SENTINEL_SHARE = 0.5
"""The share of the audit's limit that the sentinels may take."""
DRAIN_QUIET_S = 20.0
"""Members that have moved nothing for so long never will, once the sessions of those that died are over (`quiet_s_of`): it
is longer than a rebalance."""
LIBRARY_SESSION_MS = 45_000
"""The session timeout of a program that sets none. [Kafka documentation, consumer configuration session.timeout.ms]"""
LOOK_UP_S = 20.0
MEMBERS = ("member", "java-member", "share-member")
"""Roles of members of groups, until they are asked to leave."""
COPYING = ("copier", "java-copier", "application")
"""Roles that derive one topic from another, until they are asked to stop."""


A = TypeVar("A", bound=messages.Answer)


class FinalPhase:
    """Ends the clients of one trial, after healing. `planned`: role → its clients."""

    def __init__(
        self,
        planned: Mapping[str, Sequence[PlannedClient]],
        processes: ClientProcesses,
        launching: Launcher,
        *,
        clock: Clock,
    ) -> None:
        self._planned, self._processes, self._launching, self._clock = planned, processes, launching, clock

    def drain(self, *, timeout_s: float) -> Sequence[str]:
        """Waits until members of groups have processed what is left, and ends them. Copiers copy what is left, as far
        as they commit it, and end. Members that are tools, and copiers, do not know what is left: what they commit
        is followed. Nothing to do where there are none. Returns what was awaited in vain."""
        vain: list[str] = []
        until_ns = self._clock.monotonic_ns() + int(timeout_s * 1e9)
        drain = Drain(self._processes, self._clock, quiet_s=self._quiet_s(MEMBERS))
        followed = self._follow(("java-member",), until_ns)
        if partitions := self._partitions_of(MEMBERS):
            members = self._processes.running(MEMBERS)
            vain += drain.until_done(members, partitions, timeout_s=timeout_s)
            vain += self._uncommitted(followed, until_ns)
            vain += drain.end(members)
        if self._partitions_of(COPYING):
            followed = self._follow(COPYING, until_ns)
            vain += self._uncommitted(followed, until_ns)
            vain += drain.end(self._processes.running(COPYING))
        return vain

    def fence(self, *, timeout_s: float) -> Mapping[str, str]:
        """Initialises every transactional.id once more, over the observer's listeners, so that no transaction stays
        open. Then it looks up what every group has committed. Returns the ids for which it failed, and why. Call it
        once, before the audit."""
        problems: dict[str, str] = {}
        if planned := self._planned["fencer"]:
            started = self._start_for_audit(planned, limit_s=timeout_s)
            self._processes.send(started, messages.FenceCommand(timeout_s=timeout_s))
            answers = self._answers(started, messages.FencedEvent, limit_s=timeout_s)
            problems = {p.name: self._silence(p.name) for p in started if p.client not in answers}
            for answer in answers.values():
                problems |= answer.problems
            self._processes.end(started)
        if planned := self._planned["observer"]:
            started = self._observers(planned)
            self._processes.send(started, messages.LookCommand(timeout_s=LOOK_UP_S))
            self._answers(started, messages.LookedEvent, limit_s=LOOK_UP_S)
            self._processes.end(started)
        return problems

    def audit(self, *, timeout_s: float) -> AuditResult:
        """Writes a sentinel with acks=all to each partition, and reads each from its start through its sentinel at
        both isolation levels, over the observer's listeners. Then it gives tailing readers time to get as far. Call
        it once."""
        planned = [*self._planned["sentinel"], *self._planned["audit"]]
        until_ns = self._clock.monotonic_ns() + int(timeout_s * 1e9)
        try:
            started = self._start_for_audit(planned, limit_s=timeout_s)
        except HarnessFailed as error:
            # An audit that cannot be made leaves everything unknown; the run still has a history.
            every = [(p, int(ISOLATION[c.isolation_level])) for c in planned if c.isolation_level for p in c.partitions]
            return AuditResult(complete={}, incomplete=dict.fromkeys(every, str(error)))
        sentinels = [p for p in started if p.role == "sentinel"]
        readers = [p for p in started if p.role == "audit"]

        self._processes.send(sentinels, messages.WriteCommand(timeout_s=self._left_s(until_ns) * SENTINEL_SHARE))
        written: dict[int, int] = {}
        missing: dict[int, str] = {}
        for _, event in self._answers(sentinels, messages.SentinelsEvent, limit_s=self._left_s(until_ns)).items():
            written |= event.written
            missing |= event.missing
        self._processes.send(readers, messages.ReadCommand(through=written, timeout_s=self._left_s(until_ns)))
        answers = self._answers(readers, messages.AuditedEvent, limit_s=self._left_s(until_ns))
        result = self._result(written, missing, answers)
        self._processes.end(started)
        self._let_readers_reach(written)
        return result

    def _partitions_of(self, roles: Collection[str]) -> set[int]:
        """Returns the existing partitions that clients of these roles have."""
        every = {p for role in roles for client in self._planned[role] for p in self._launching.served(client)}
        return every - self._launching.absent - self._launching.missing

    def _quiet_s(self, roles: Collection[str]) -> float:
        return quiet_s_of(client for role in roles for client in self._planned[role])

    def _follow(self, roles: Collection[str], until_ns: int) -> list[ClientProcess]:
        """Starts observers of the partitions of these roles. They say `followed` once everything in them is committed, or
        nothing moves."""
        partitions = self._partitions_of(roles)
        planned = [c for c in self._planned["observer"] if not set(partitions).isdisjoint(c.partitions)]
        started = self._observers(planned)
        left_s = self._left_s(until_ns)
        for process in started:
            process.events[:] = [event for event in process.events if not isinstance(event, messages.FollowedEvent)]
        quiet_s = self._quiet_s(roles)
        self._processes.send(
            started, messages.FollowCommand(partitions=sorted(partitions), quiet_s=quiet_s, timeout_s=left_s)
        )
        return started

    def _observers(self, planned: Sequence[PlannedClient]) -> list[ClientProcess]:
        """Returns observers: those that run already, and the others newly started."""
        known = self._processes.clients
        new = self._start_for_audit([client for client in planned if client.client not in known])
        return [*(known[c.client] for c in planned if c.client in known and known[c.client] not in new), *new]

    def _start_for_audit(self, planned: Sequence[PlannedClient], *, limit_s: float = 0.0) -> list[ClientProcess]:
        return self._processes.start([self._launching.launch_observing(client, limit_s=limit_s) for client in planned])

    def _let_readers_reach(self, written: Mapping[int, int]) -> None:
        """Lets tailing readers read through the sentinels, or until the time after which they count as stalled."""
        readers = self._processes.running(("reader",))
        self._processes.send(readers, messages.ReachCommand(through=dict(written)))
        self._answers(readers, messages.ReachedEvent, limit_s=STALLED_NS / NS_PER_S)

    def _answers(self, processes: list[ClientProcess], kind: type[A], *, limit_s: float) -> dict[int, A]:
        """Returns each client's answer, by client id. A client that ended or was silent is not in it."""
        found: dict[int, A] = {}

        def all_answered() -> bool:
            self._processes.poll()
            for process in processes:
                for event in process.events:
                    if isinstance(event, kind):
                        found[process.client] = event
            return all(p.client in found or not p.running for p in processes)

        with suppress(NotReady):  # what did not answer becomes `incomplete`, with the reason
            wait_until(
                all_answered,
                awaited=kind.__name__,
                timeout_s=limit_s + ANSWER_GRACE_S,
                clock=self._clock,
                interval_s=0.01,
            )
        return found

    def _uncommitted(self, observers: list[ClientProcess], until_ns: int) -> list[str]:
        """Waits until these observers have followed what groups commit. Returns which of them did not answer, and what
        was not committed to its end, as clauses."""
        answers = self._answers(observers, messages.FollowedEvent, limit_s=self._left_s(until_ns))
        silent = [self._silence(p.name) for p in observers if p.client not in answers]
        behind = [each for answer in answers.values() for each in sorted(answer.behind.items())]
        return silent + [
            f"partition {partition}: its group committed {'nothing' if offset < 0 else offset}, and the end is {end}"
            for partition, (offset, end) in behind
        ]

    def _result(
        self, written: Mapping[int, int], missing: Mapping[int, str], answers: Mapping[int, messages.AuditedEvent]
    ) -> AuditResult:
        complete: dict[tuple[int, int], int] = {}
        incomplete: dict[tuple[int, int], str] = {}
        no_sentinel = f"no sentinel was written: {self._silence('sentinel')}"
        for planned in self._planned["audit"]:
            assert planned.isolation_level is not None
            isolation = int(ISOLATION[planned.isolation_level])
            answer = answers.get(planned.client)
            read = answer.complete if answer else {}
            why = answer.incomplete if answer else {}
            for partition in self._launching.served(planned):
                key = (partition, isolation)
                if partition in read:
                    complete[key] = read[partition]
                elif partition not in written:
                    incomplete[key] = missing.get(partition, no_sentinel)
                else:
                    incomplete[key] = why.get(partition, f"it was not read: {self._silence(planned.name)}")
        return AuditResult(complete=complete, incomplete=incomplete)

    def _silence(self, name: str) -> str:
        """Returns why a client gave no answer."""
        process = next(p for p in self._processes.clients.values() if p.name == name)
        if process.running:
            return f"{name} did not answer within the limit"
        return f"{name}: {how_it_ended(process, self._processes.last_words(process))}"

    def _left_s(self, until_ns: int) -> float:
        return max(0.1, (until_ns - self._clock.monotonic_ns()) / 1e9)


# Draining groups: after healing their members go on until everything is processed, or nothing moves any more.


SETTLED_S = 1.0
"""For this long every partition must have had an owner that is at its end: a fetch is answered within 100 ms, and right
after a failover the end that a broker names may be an old one."""
END_S = 20.0
"""How long members may take to leave their groups."""
INTERVAL_S = 0.02
Positions = Mapping[int, tuple[int, bool]]
"""The positions of members: dense partition → (position, whether that is the end), of those that have an owner."""


class Drain:
    """Follows what draining members say. `quiet_s`: give up when nothing has moved for so long."""

    def __init__(self, processes: ClientProcesses, clock: Clock, *, quiet_s: float) -> None:
        self._processes, self._clock, self._quiet_s = processes, clock, quiet_s

    def until_done(
        self, members: Sequence[ClientProcess], partitions: Collection[int], *, timeout_s: float
    ) -> list[str]:
        """Asks the members to drain, and waits until each partition is read to its end by an owner and has been for
        SETTLED_S. Returns the partitions of which that is not so, as clauses: nothing moved for `quiet_s`, or `timeout_s` is
        over. None, if no member runs any more."""
        begun_ns = self._clock.monotonic_ns()
        self._processes.send(members, messages.DrainCommand(quiet_s=self._quiet_s))
        latest: dict[int, dict[int, tuple[int, bool]]] = {}
        done_ns = moved_ns = begun_ns
        before: tuple[Positions, int] = ({}, 0)
        wanted = set(partitions)
        while (now_ns := self._clock.monotonic_ns()) - begun_ns < timeout_s * NS_PER_S:
            processed = self._listen(members, latest)
            # A member may hold on to a partition that a topic has no more, since it was made again with fewer of them.
            now = ({p: at for p, at in positions_of(latest).items() if p in wanted}, processed)
            if now != before:
                before, moved_ns = now, now_ns
            if not wanted <= now[0].keys() or not all(end for _, end in now[0].values()):
                done_ns = now_ns
            elif now_ns - done_ns >= SETTLED_S * NS_PER_S:
                return []
            if not any(m.running for m in members):
                return []
            if now_ns - moved_ns >= self._quiet_s * NS_PER_S:
                break
            self._clock.sleep(INTERVAL_S)
        return not_at_their_end(before[0], wanted)

    def end(self, members: Sequence[ClientProcess]) -> list[str]:
        """Ends the members: they make their last commits and leave their groups. Those that still run after END_S are
        ended, and it says which."""
        for member in members:
            member.expected_to_end = True
        self._processes.send(members, messages.StopCommand())
        if self._processes.wait(members, timeout_s=END_S):
            return []
        late = [f"{member.name} did not leave within {END_S:g} s" for member in members if member.running]
        self._processes.end(members)
        return late

    def _listen(self, members: Sequence[ClientProcess], events: dict[int, dict[int, tuple[int, bool]]]) -> int:
        """Takes the newest report of each member, and returns how many records they processed in all."""
        self._processes.poll()
        processed = 0
        for member in members:
            drained = [event for event in member.events if isinstance(event, messages.DrainingEvent)]
            if drained:
                events[member.client] = dict(drained[-1].at)
                member.events[:] = [
                    e for e in member.events if not isinstance(e, messages.DrainingEvent) or e is drained[-1]
                ]
                processed += drained[-1].processed
            if not member.running:
                events.pop(member.client, None)
        return processed


def quiet_s_of(members: Iterable[PlannedClient]) -> float:
    """Returns for how long nothing must move until members give up. The partitions of a member that died are nobody else's
    until its session ends, and a rebalance of a classic group waits for it: the longest session is waited for before."""
    return DRAIN_QUIET_S + max(map(_session_ms, members), default=0) / 1000


def _session_ms(member: PlannedClient) -> int:
    match member.work:
        case GroupWork(session=session):
            return session.timeout_ms
        case ShareWork(configuration=share):
            return share.session_timeout_ms
        case CopierWork(configuration=copier):
            return max(copier.session_timeout_ms, LIBRARY_SESSION_MS)
    return LIBRARY_SESSION_MS


def not_at_their_end(positions: Positions, partitions: Collection[int]) -> list[str]:
    """Returns the partitions that no member of a group has read to their end, as clauses: how far it came, or that nobody has
    it.

    Example: members report that 0 is at 40, which is its end, and 1 at 7, which is not. Nobody reports 2. 1 and 2 are named.
    """
    there = {partition: positions.get(partition) for partition in sorted(partitions)}
    return [
        f"partition {partition}: no member of its group owned it"
        if at is None
        else f"partition {partition}: the member that owned it stood at {at[0]}, and not at its end"
        for partition, at in there.items()
        if at is None or not at[1]
    ]


def positions_of(events: Mapping[int, Positions]) -> dict[int, tuple[int, bool]]:
    """Returns the positions of all members together. If two members claim a partition for a moment, the one that is
    further behind counts."""
    found: dict[int, tuple[int, bool]] = {}
    for positions in events.values():
        for partition, at in positions.items():
            found[partition] = min(at, found.get(partition, at))
    return found
