"""A small model of what a KRaft cluster does when nodes die, stop, hang or are cut off. Pure but for the given clock.

Only what schedules and faults can see: who leads, who is in sync, who is fenced, who is the active controller, and what each
broker itself believes of it. Conditions that have held long enough become transitions, each at its exact time, however
rarely somebody looks. Simplified on purpose: every partition has traffic (in Kafka the ISR of an idle one does not shrink),
elections of controllers take a fixed time, and there is no ELR.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.interfaces import NodeState, PartitionView

T = TypeVar("T")
P = ParamSpec("P")
PartitionKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Timings:
    """How long things take, in seconds."""

    start_s: float = 0.3
    """From fork until the process answers."""
    session_s: float = 9.0
    """broker.session.timeout.ms: a broker not heard of for so long is fenced; its id is not free before."""
    lag_s: float = 30.0
    """replica.lag.time.max.ms: a follower that does not fetch for so long leaves the ISR."""
    catch_up_s: float = 0.2
    """A follower that fetches again is in sync after this."""
    election_s: float = 2.0
    """Without an able active controller for so long, another one takes over (controller.quorum.fetch.timeout.ms)."""


@dataclass(slots=True)
class Process:
    """One node's process."""

    node_id: int
    roles: frozenset[str]
    state: NodeState = NodeState.STOPPED
    incarnation: int = 0
    up_ns: int = 0
    """From when on the current incarnation answers."""
    term_pending: bool = False
    """SIGTERM was sent and has not taken effect: the process is paused, or its controlled shutdown hangs."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What the controllers hold of a broker. `incarnation` None = its id is free."""

    incarnation: int | None = None
    fenced: bool = True


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What one broker believes; frozen when it is cut off."""

    living: frozenset[int]
    partitions: Mapping[PartitionKey, PartitionView]


@dataclass(slots=True)
class _Since:
    """Since when conditions have held without a break."""

    times: dict[object, int] = field(default_factory=dict)

    def held(self, name: object, condition: bool, now_ns: int) -> int | None:
        """Since when it has held; None if it does not hold."""
        if not condition:
            self.times.pop(name, None)
            return None
        return self.times.setdefault(name, now_ns)


def _locked(method: "Callable[Concatenate[World, P], T]") -> "Callable[Concatenate[World, P], T]":
    @wraps(method)
    def locked(world: "World", /, *arguments: P.args, **named: P.kwargs) -> T:
        with world.lock:
            return method(world, *arguments, **named)

    return locked


class World:
    """The state of the cluster, brought up to date by `advance`. Change it only through its methods, from any thread."""

    def __init__(self, roles: Mapping[int, frozenset[str]], timings: Timings, clock: Clock) -> None:
        self.processes = {node: Process(node, of_node) for node, of_node in roles.items()}
        self.timings, self.clock = timings, clock
        self.brokers = [node for node, of_node in roles.items() if "broker" in of_node]
        self.controllers = sorted(node for node, of_node in roles.items() if "controller" in of_node)
        self.blocked: set[tuple[int, int]] = set()
        """(source, target): nothing that source sends reaches target."""
        self.active: int | None = None
        self.controller_epoch = 0
        self.registrations = {broker: Registration() for broker in self.brokers}
        self.partitions: dict[PartitionKey, PartitionView] = {}
        self._unclean: set[PartitionKey] = set()
        self.knowledge: dict[int, Knowledge] = {}
        self._since = _Since()
        self.lock = threading.RLock()
        self._now_ns = clock.monotonic_ns()

    # --- what happens to nodes ---

    @_locked
    def start(self, node: int) -> None:
        """Fork; safe on a living process."""
        self.advance()
        process = self.processes[node]
        if process.state is NodeState.STOPPED:
            process.state, process.incarnation = NodeState.RUNNING, process.incarnation + 1
            process.up_ns = self._now_ns + int(self.timings.start_s * NS_PER_S)
            process.term_pending = False
            self.knowledge.pop(node, None)
        self.advance()

    @_locked
    def end(self, node: int) -> None:
        """SIGKILL, or a crash."""
        self.advance()
        self._stopped(node)
        self.advance()

    @_locked
    def terminate(self, node: int) -> None:
        """SIGTERM: takes effect at once, or when the process goes on, or when a broker reaches its controller."""
        self.advance()
        self.processes[node].term_pending = self.processes[node].state is not NodeState.STOPPED
        self.advance()

    @_locked
    def set_paused(self, node: int, paused: bool) -> None:
        """SIGSTOP, SIGCONT; nothing on a stopped process."""
        self.advance()
        process = self.processes[node]
        if process.state is not NodeState.STOPPED:
            process.state = NodeState.PAUSED if paused else NodeState.RUNNING
        self.advance()

    @_locked
    def set_blocked(self, source: int, target: int, blocked: bool) -> None:
        """Drop, or let through again, what `source` sends to `target`."""
        self.advance()
        (self.blocked.add if blocked else self.blocked.discard)((source, target))
        self.advance()

    @_locked
    def create(self, key: PartitionKey, replicas: Sequence[int], *, unclean: bool) -> None:
        """A new partition, led by the first replica that is unfenced."""
        self.advance()
        alive = tuple(broker for broker in replicas if not self.registrations[broker].fenced)
        self.partitions[key] = PartitionView(alive[0] if alive else -1, 0, tuple(replicas), alive or tuple(replicas))
        if unclean:
            self._unclean.add(key)
        self.advance()

    # --- what can be seen ---

    def answers(self, node: int) -> bool:
        """Does the process answer the observer?"""
        process = self.processes[node]
        return process.state is NodeState.RUNNING and process.up_ns <= self._now_ns

    def living(self) -> frozenset[int]:
        """Registered and unfenced, as the controllers hold it."""
        return frozenset(broker for broker, held in self.registrations.items() if not held.fenced)

    def in_contact(self, broker: int) -> bool:
        """Does the broker exchange messages with an active controller that has its quorum?"""
        active = self.active
        return self.answers(broker) and active is not None and self._able(active) and self._talk(broker, active)

    # --- time ---

    @_locked
    def advance(self) -> None:
        """Everything that has become due until now happens, in the order of time."""
        now_ns = self.clock.monotonic_ns()
        while True:
            self._settle()
            due_ns = min((time for time in self._due() if self._now_ns < time <= now_ns), default=None)
            if due_ns is None:
                break
            self._now_ns = due_ns
        self._now_ns = now_ns
        self._settle()

    def _settle(self) -> None:
        """Transitions that are due at this very moment, until nothing changes any more."""
        while any(transition() for transition in self._transitions()):
            pass
        for broker in self.brokers:
            if self.in_contact(broker):
                self.knowledge[broker] = Knowledge(self.living(), dict(self.partitions))

    def _transitions(self) -> Iterator[Callable[[], bool]]:
        yield self._end_terminated
        yield self._elect_controller
        yield self._expire_sessions
        yield self._register
        yield self._shrink
        yield self._expand

    def _due(self) -> Iterator[int]:
        """Every time at which something may change although nobody does anything."""
        yield from (process.up_ns for process in self.processes.values())
        spans = {"leaderless": self.timings.election_s, "silent": self.timings.session_s}
        spans |= {"behind": self.timings.lag_s, "fetching": self.timings.catch_up_s}
        for name, time_ns in self._since.times.items():
            assert isinstance(name, tuple)
            yield time_ns + int(spans[name[0]] * NS_PER_S)

    def _long_enough(self, name: tuple[object, ...], condition: bool, span_s: float) -> bool:
        since_ns = self._since.held(name, condition, self._now_ns)
        return since_ns is not None and self._now_ns >= since_ns + int(span_s * NS_PER_S)

    # --- transitions: each says whether it changed anything ---

    def _end_terminated(self) -> bool:
        for node, process in self.processes.items():
            if process.term_pending and process.state is NodeState.RUNNING:
                broker = "broker" in process.roles and self.answers(node)
                if broker and not self.in_contact(node):
                    continue  # a controlled shutdown hangs without a controller
                if broker:
                    self._fence(node, keep_id=True)
                self._stopped(node)
                return True
        return False

    def _elect_controller(self) -> bool:
        able = [node for node in self.controllers if self._able(node)]
        waited = self._long_enough(("leaderless",), self.active not in able, self.timings.election_s)
        if self.active in able or not able or not (waited or self.controller_epoch == 0):
            return False
        self.active, self.controller_epoch = able[0], self.controller_epoch + 1
        for broker in self.brokers:  # a new controller gives every session its full time
            self._since.times.pop(("silent", broker), None)
        return True

    def _expire_sessions(self) -> bool:
        controlled = self.active is not None and self._able(self.active)
        for broker, held in self.registrations.items():
            silent = controlled and held.incarnation is not None and not self._heard(broker)
            if self._long_enough(("silent", broker), silent, self.timings.session_s):
                self._since.times.pop(("silent", broker))
                self._fence(broker, keep_id=False)
                return True
        return False

    def _register(self) -> bool:
        for broker, held in self.registrations.items():
            if held.incarnation is None and self.in_contact(broker):
                self.registrations[broker] = Registration(self.processes[broker].incarnation, fenced=False)
                for key, partition in self.partitions.items():
                    if partition.leader < 0:
                        self._elect(key)
                return True
        return False

    def _shrink(self) -> bool:
        for key, partition in self.partitions.items():
            for follower in partition.replicas:
                follows = follower in partition.isr and partition.leader not in (follower, -1)
                behind = follows and not self._fetches(follower, partition)
                late = self._long_enough(("behind", key, follower), behind, self.timings.lag_s)
                if late and self._heard(partition.leader):
                    isr = tuple(broker for broker in partition.isr if broker != follower)
                    self.partitions[key] = replace(partition, isr=isr)
                    return True
        return False

    def _expand(self) -> bool:
        for key, partition in self.partitions.items():
            for follower in partition.replicas:
                missing = follower not in partition.isr and partition.leader >= 0 and self._fetches(follower, partition)
                caught_up = self._long_enough(("fetching", key, follower), missing, self.timings.catch_up_s)
                if caught_up and self._heard(partition.leader):
                    isr = tuple(b for b in partition.replicas if b in partition.isr or b == follower)
                    self.partitions[key] = replace(partition, isr=isr)
                    return True
        return False

    # --- parts ---

    def _stopped(self, node: int) -> None:
        self.processes[node].state, self.processes[node].term_pending = NodeState.STOPPED, False
        self.knowledge.pop(node, None)
        if self.active == node:  # its next incarnation has to be elected anew
            self.active = None

    def _talk(self, one: int, other: int) -> bool:
        return (one, other) not in self.blocked and (other, one) not in self.blocked

    def _able(self, controller: int) -> bool:
        """Answers, and exchanges messages with a majority of the controllers."""
        peers = [c for c in self.controllers if self.answers(c) and self._talk(controller, c)]
        return self.answers(controller) and len(peers) > len(self.controllers) // 2

    def _heard(self, broker: int) -> bool:
        """Do the controllers hear the incarnation that is registered?"""
        return self.in_contact(broker) and self.registrations[broker].incarnation == self.processes[broker].incarnation

    def _fetches(self, follower: int, partition: PartitionView) -> bool:
        leader = partition.leader
        both = self.answers(follower) and self.answers(leader) and self._talk(follower, leader)
        return both and not self.registrations[follower].fenced

    def _fence(self, broker: int, *, keep_id: bool) -> None:
        held = self.registrations[broker]
        self.registrations[broker] = Registration(held.incarnation if keep_id else None, fenced=True)
        for key, partition in self.partitions.items():
            if broker in partition.isr and len(partition.isr) > 1:
                isr = tuple(b for b in partition.isr if b != broker)
                self.partitions[key] = replace(partition, isr=isr)
            if partition.leader == broker:
                self._elect(key)

    def _elect(self, key: PartitionKey) -> None:
        """First unfenced replica in the ISR; else, if unclean election is on, first unfenced one; else nobody."""
        partition, living = self.partitions[key], self.living()
        leader = next((b for b in partition.replicas if b in partition.isr and b in living), -1)
        isr = partition.isr
        if leader < 0 and key in self._unclean:
            leader = next((b for b in partition.replicas if b in living), -1)
            isr = (leader,) if leader >= 0 else isr
        if leader != partition.leader:
            epoch = partition.leader_epoch + 1
            self.partitions[key] = replace(partition, leader=leader, leader_epoch=epoch, isr=isr)
