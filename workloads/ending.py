"""How a trial's clients come to their end: groups drained, transactions fenced, every partition audited.

Each is asked of the clients whose role it is, and what one of them does not answer is told with the reason, never left out.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from harness.clock import NS_PER_S, Clock, wait_until
from harness.errors import HarnessFailed, NotReady
from harness.plan import PlannedClient
from harness.protocols import AuditResult
from harness.stalls import STALLED_NS
from workloads.drain import Drain
from workloads.exits import obituary
from workloads.launching import ISOLATION, Launching
from workloads.processes import ClientProcess, ClientProcesses

ANSWER_GRACE_S = 10.0
"""What a client may need beyond the limit it was given, to say what it reached."""
SENTINEL_SHARE = 0.5
"""Of the audit's limit, at most, for the sentinels."""
DRAIN_QUIET_S = 20.0
"""Members that move nothing for so long will not: longer than any session of a trial and the rebalance after it."""
LOOK_UP_S = 20.0
MEMBERS = ("member", "java-member")
"""Roles of members of groups, until they are told to leave."""
COPYING = ("copier", "java-copier", "application")
"""Roles that derive one topic from another, until they are told to stop."""


class Ending:
    """Of the clients of one trial, after healing. `planned`: role → its clients."""

    def __init__(
        self,
        planned: Mapping[str, Sequence[PlannedClient]],
        processes: ClientProcesses,
        launching: Launching,
        *,
        clock: Clock,
    ) -> None:
        self._planned, self._processes, self._launching, self._clock = planned, processes, launching, clock

    def drain(self, *, timeout_s: float) -> None:
        """Members of groups process what is left and leave; copiers copy what is left, as far as they commit it, and end.
        Members that are tools, and copiers, do not know what is left: what they commit is followed. Nothing to do where
        there are none."""
        until_ns = self._clock.monotonic_ns() + int(timeout_s * 1e9)
        drain = Drain(self._processes, self._clock, quiet_s=DRAIN_QUIET_S)
        followed = self._follow(self._partitions_of(("java-member",)), until_ns)
        if partitions := self._partitions_of(MEMBERS):
            members = self._processes.running(MEMBERS)
            drain.until_done(members, partitions, timeout_s=timeout_s)
            self._answers(followed, "followed", limit_s=self._left_s(until_ns))
            drain.end(members)
        if partitions := self._partitions_of(COPYING):
            followed = self._follow(partitions, until_ns)
            self._answers(followed, "followed", limit_s=self._left_s(until_ns))
            drain.end(self._processes.running(COPYING))

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
        except HarnessFailed as error:
            # An audit that cannot be made leaves everything unknown; the run still has a history.
            every = [(p, int(ISOLATION[c.isolation_level])) for c in planned if c.isolation_level for p in c.partitions]
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

    # --- parts ------------------------------------------------------------------------------------------------------

    def _partitions_of(self, roles: Collection[str]) -> set[int]:
        """Those that clients of these roles have, and that are there."""
        every = {p for role in roles for client in self._planned[role] for p in client.partitions}
        return every - self._launching.absent

    def _follow(self, partitions: Collection[int], until_ns: int) -> list[ClientProcess]:
        """Observers of these partitions, which tell `followed` once everything in them is committed, or nothing moves."""
        planned = [c for c in self._planned["observer"] if not set(partitions).isdisjoint(c.partitions)]
        started = self._observers(planned)
        left_s = self._left_s(until_ns)
        for process in started:
            process.events[:] = [said for said in process.events if said["event"] != "followed"]
        self._processes.tell(started, "follow", partitions=sorted(partitions), quiet_s=DRAIN_QUIET_S, timeout_s=left_s)
        return started

    def _observers(self, planned: Sequence[PlannedClient]) -> list[ClientProcess]:
        """Those of these that run, and the others started."""
        known = self._processes.clients
        new = self._start_for_audit([client for client in planned if client.client not in known])
        return [*(known[c.client] for c in planned if c.client in known and known[c.client] not in new), *new]

    def _start_for_audit(self, planned: Sequence[PlannedClient], *, limit_s: float = 0.0) -> list[ClientProcess]:
        return self._processes.start([self._launching.launch_observing(client, limit_s=limit_s) for client in planned])

    def _let_readers_reach(self, written: Mapping[int, int]) -> None:
        """Tailing readers read through the sentinels, or get the time after which they count as stalled."""
        readers = self._processes.running(("reader",))
        self._processes.tell(readers, "reach", through=sorted(written.items()))
        self._answers(readers, "reached", limit_s=STALLED_NS / NS_PER_S)

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
            isolation = int(ISOLATION[planned.isolation_level])
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
        return f"{name}: {obituary(process, self._processes.last_words(process))}"

    def _left_s(self, until_ns: int) -> float:
        return max(0.1, (until_ns - self._clock.monotonic_ns()) / 1e9)
