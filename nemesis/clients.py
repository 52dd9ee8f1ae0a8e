"""Faults of clients: they restart clients, let members of groups leave and join, start a duplicate of a static member,
or move the clock of a producer."""

import random
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Literal, TypeVar

from pydantic import Field, PositiveFloat, model_validator

from prozess.harness.clock import NS_PER_S, Clock, wait_until
from prozess.harness.config.configuration import Limit, Pause
from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.config.impairments import ClockShift, Impairment
from prozess.harness.interfaces import ClientNode, Effect, Fault, FaultContext, Node, NodeState, Undo, end_in_order
from prozess.harness.schema import Tristate
from prozess.harness.values import Frozen
from prozess.nemesis.faults import ImpairingFault, Observation, Watch, observe
from prozess.nemesis.roles import TargetMissing, is_client

# What faults of clients share: their targets, and the proof that a new client has a slot and does its work.


P = TypeVar("P", bound=Frozen)


class ClientFault(Fault[P]):
    """A fault whose targets are clients. A subclass has its own `name`, `parameters_model`, `apply` and `verify`."""

    of_clients = True

    def __init__(self) -> None:
        self._before: dict[str, int | None] = {}
        """Place of a client → the id of the client that had it before the fault."""
        self._killed: dict[str, str] = {}
        """Place of a client → what there is to say of its end, if it was not in order."""

    def undos(self, context: FaultContext, parameters: P) -> Sequence[Undo]:
        """Plans to start every client again that is gone when the fault is healed."""
        return [Undo(action="start", node=node.name) for node in self._client_nodes(context.targets)]

    def _client_nodes(self, targets: Sequence[Node]) -> list[ClientNode]:
        return client_nodes_of(targets, fault=self.name)


def client_nodes_of(targets: Sequence[Node], *, fault: str) -> list[ClientNode]:
    """Returns the targets, which must all be slots of running clients. TargetMissing otherwise."""
    nodes = []
    for node in targets:
        if not is_client(node):
            raise TargetMissing(f"{fault} is for clients, and {node.name} is a server of the cluster.")
        if node.state() is not NodeState.RUNNING:
            raise TargetMissing(f"{node.name} cannot take part in {fault}: its process is {node.state()}.")
        nodes.append(node)
    return nodes


def await_work(nodes: Sequence[ClientNode], *, clock: Clock, timeout_s: float) -> None:
    """Waits until each client was seen to work. NotReady after the limit, with the names of those that were not."""
    idle = [node.name for node in nodes]

    def all_at_work() -> bool:
        idle[:] = [node.name for node in nodes if not node.at_work()]
        return not idle

    wait_until(
        all_at_work,
        awaited="restarted clients to be at work again",
        timeout_s=timeout_s,
        clock=clock,
        last_seen=lambda: f"not yet: {', '.join(idle)}",
    )


def verify_successors(
    nodes: Sequence[ClientNode], before: dict[str, int | None], clock: Clock, *, killed: Mapping[str, str]
) -> list[Effect]:
    """Observes whether each slot has a new client that was seen to work. `before`: slot → the client that it had;
    `killed`: slot → how its client ended, in words."""
    seen = observe([Watch(p.name, None, partial(_successor, p, before[p.name])) for p in nodes], clock=clock)
    return [e.model_copy(update={"detail": f"{e.detail}; {why}"}) if (why := killed.get(e.node)) else e for e in seen]


def _successor(node: ClientNode, before: int | None) -> Observation:
    if node.client == before:
        return Tristate.NO, "nobody new has its slot"
    if node.state() is not NodeState.RUNNING:
        return Tristate.NO, f"the new client is {node.state()}"
    if not node.at_work():
        return Tristate.UNKNOWN, "the new client was not seen at work"
    return Tristate.YES, f"client {node.client} is at work in its place"


class RestartParameters(Frozen):
    """`how`: "stop" ends a client in order (a member leaves its group, a producer flushes), "kill" ends it at once.
    `away_s`: the time until its successor starts. `timeout_s`: how long a client may take to end, and then its
    successor to start working."""

    how: Literal["stop", "kill"] = "stop"
    away_s: Pause = 0.0
    timeout_s: Limit = 45.0


class RestartClients(ClientFault[RestartParameters]):
    """Restarts consumers or producers one after the other: one ends, its successor starts and works, then the next one
    ends. Groups are restarted side by side, and so are producers.

    The effect is that every slot has a new client that was seen to work.
    """

    name = "restart-clients"
    nature = FaultNature(stops=True)
    parameters_model = RestartParameters
    ends_itself = True

    def apply(self, context: FaultContext, parameters: RestartParameters) -> None:
        nodes = self._client_nodes(context.targets)
        self._before = {node.name: node.client for node in nodes}
        for turn in rounds(nodes):
            for node in turn:
                if parameters.how == "kill":
                    node.kill()
                else:
                    self._killed[node.name] = end_in_order(node, timeout_s=parameters.timeout_s)
            if parameters.away_s:
                context.clock.sleep(parameters.away_s)
            for node in turn:
                node.start()
            await_work(turn, clock=context.clock, timeout_s=parameters.timeout_s)

    def verify(self, context: FaultContext, parameters: RestartParameters) -> Sequence[Effect]:
        return verify_successors(self._client_nodes(context.targets), self._before, context.clock, killed=self._killed)


def rounds(nodes: Sequence[ClientNode]) -> list[list[ClientNode]]:
    """Returns the clients that are restarted together: the first of every group, then the second, and so on. A client
    in no group counts as a group of its own."""
    together: dict[object, list[ClientNode]] = {}
    for node in nodes:
        grouped = node.client_role in ("member", "java-member", "share-member")
        together.setdefault((node.client_role, node.cell if grouped else None), []).append(node)
    return [[node for node in turn if node is not None] for turn in zip_longest(*together.values())]


class StormParameters(Frozen):
    """`duration_s`: how long the storm lasts. `rate_hz`: how many times a second a member leaves or joins, at most,
    over all targets. `how`: a member that leaves ends in order ("stop"), is killed ("kill"), or either by chance
    ("both"). `seed`: decides times and order; None means that of the plan. `timeout_s`: how long a member may take to
    end, and all of them to work again."""

    duration_s: Limit
    rate_hz: PositiveFloat = 1.0
    how: Literal["stop", "kill", "both"] = "both"
    seed: str | int | None = None
    timeout_s: Limit = 45.0


class RebalanceStorm(ClientFault[StormParameters]):
    """Lets members of consumer groups leave and join, one at a time, at times and in an order that a seed decides.

    The effect is that members left, and that new members in their places were assigned partitions.
    """

    name = "rebalance-storm"
    nature = FaultNature(stops=True)
    parameters_model = StormParameters
    ends_itself = True

    def apply(self, context: FaultContext, parameters: StormParameters) -> None:
        nodes = self._client_nodes(context.targets)
        self._before = {node.name: node.client for node in nodes}
        rng = random.Random(str(parameters.seed))
        until_ns = context.clock.monotonic_ns() + int(parameters.duration_s * NS_PER_S)
        while True:
            context.clock.sleep(min(rng.expovariate(parameters.rate_hz), _left_s(until_ns, context.clock)))
            if context.clock.monotonic_ns() >= until_ns:
                break
            node = rng.choice(nodes)
            self._killed[node.name] = _leave_or_join(node, rng, parameters) or self._killed.get(node.name, "")
        for node in nodes:
            node.start()
        await_work(nodes, clock=context.clock, timeout_s=parameters.timeout_s)

    def verify(self, context: FaultContext, parameters: StormParameters) -> Sequence[Effect]:
        """Observes the clients that have a successor. A storm after which no client has one had no effect."""
        nodes = self._client_nodes(context.targets)
        changed = [node for node in nodes if node.client != self._before[node.name]]
        if not changed:
            return [Effect(node=p.name, effect=Tristate.NO, detail="nobody left and joined") for p in nodes]
        return verify_successors(changed, self._before, context.clock, killed=self._killed)


def _left_s(until_ns: int, clock: Clock) -> float:
    return max(0.0, (until_ns - clock.monotonic_ns()) / NS_PER_S)


def _leave_or_join(node: ClientNode, rng: random.Random, parameters: StormParameters) -> str:
    """Returns what there is to say of the end of one that was to leave in order, and had to be killed."""
    crash = {"stop": False, "kill": True, "both": rng.random() < 0.5}[parameters.how]  # drawn in any case
    if node.state() is NodeState.STOPPED:
        node.start()
    elif crash:
        node.kill()
    else:
        return end_in_order(node, timeout_s=parameters.timeout_s)
    return ""


class DuplicateParameters(Frozen):
    """`timeout_s`: how long Kafka may take to end one of the two, which it does at a heartbeat of the older or at the
    first one of the newer."""

    timeout_s: Limit = 30.0


class DuplicateMember(ClientFault[DuplicateParameters]):
    """Starts a second process with the group.instance.id of a static member that is alive. The classic protocol fences
    the old process (KIP-345: FENCED_INSTANCE_ID), and the consumer protocol refuses the new one (KIP-848:
    UNRELEASED_INSTANCE_ID).

    The effect is that one of the two has ended and the other one works. Which one ended is observed and recorded.
    """

    name = "duplicate-member"
    nature = FaultNature(stops=True)
    parameters_model = DuplicateParameters

    def apply(self, context: FaultContext, parameters: DuplicateParameters) -> None:
        for node in self._client_nodes(context.targets):
            self._before[node.name] = node.client
            node.duplicate()

    def verify(self, context: FaultContext, parameters: DuplicateParameters) -> Sequence[Effect]:
        watches = [Watch(p.name, None, partial(self._one_left, p)) for p in context.targets if is_client(p)]
        return observe(watches, clock=context.clock, timeout_s=parameters.timeout_s)

    def _one_left(self, node: ClientNode) -> Observation:
        left = node.clients_alive
        if len(left) == 2:
            return Tristate.NO, "both live"
        if not left or node.state() is not NodeState.RUNNING or not node.at_work():
            return Tristate.UNKNOWN, f"{len(left)} of the two live, and nobody was seen at work"
        who = "the newcomer was refused" if left[0] == self._before[node.name] else "the older one was fenced"
        return Tristate.YES, f"{who}; client {left[0]} is at work"


OFFSET_MAX_MS = 3_000_000
OFFSET_LEAST_MS = 10_000
"""The smallest offset of a client's clock. A record may be seconds old when it is seen, so less could not be reported
apart."""
DRIFT_MAX_PPM = 500_000
DRIFT_LEAST_PPM = 200_000
STAMPING = ("producer", "keyed-producer", "text-producer", "transactor")


class ClientClockParameters(Frozen):
    """`offset_ms`: how far the clock is off at once; a negative value sets it back. `drift_ppm`: what it gains from
    then on, in microseconds per second; a negative value makes it lose. Give at least one of them, and enough to be
    seen in records."""

    offset_ms: float = Field(default=0.0, ge=-OFFSET_MAX_MS, le=OFFSET_MAX_MS)
    drift_ppm: float = Field(default=0.0, ge=-DRIFT_MAX_PPM, le=DRIFT_MAX_PPM)

    @model_validator(mode="after")
    def _is_seen(self) -> "ClientClockParameters":
        if abs(self.offset_ms) < OFFSET_LEAST_MS and abs(self.drift_ppm) < DRIFT_LEAST_PPM:
            raise ValueError(
                f"a client's clock must be off by at least {OFFSET_LEAST_MS} ms, or drift by {DRIFT_LEAST_PPM} ppm, for its "
                "records to show it"
            )
        return self


class ClientClock(ImpairingFault[ClientClockParameters]):
    """The wall clock of a producer's process jumps, stays off, or drifts, while the process runs.

    A producer stamps its records by its wall clock (CreateTime), and Kafka retains, rolls and looks up records by this
    time. The timeouts and retries of librdkafka go by the monotonic clock, and so does the history. Brokers refuse
    records from too far ahead (`message.timestamp.after.max.ms`, one hour), so the clock may be off by less than that.
    By default retention is a week and does not notice it.

    The effect is that the records which the producer writes from now on are stamped with another time.
    """

    name = "client-clock"
    # It moves the clock by less than retention sees: only CreateTime differs.
    nature = FaultNature()
    of_clients = True
    parameters_model = ClientClockParameters
    observe_s = 30.0
    moves_client_clocks = True

    def impairments(
        self, context: FaultContext, parameters: ClientClockParameters
    ) -> Sequence[tuple[Node, Impairment]]:
        nodes = client_nodes_of(context.targets, fault=self.name)
        for node in nodes:
            if node.client_role not in STAMPING:
                raise TargetMissing(
                    f"{node.name} stamps no records of its own, so nobody could see its clock. Name producers."
                )
        shift = ClockShift(offset_ms=parameters.offset_ms, drift_ppm=parameters.drift_ppm)
        return [(node, shift) for node in nodes]
