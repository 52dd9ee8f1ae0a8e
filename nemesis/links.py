"""Faults of network links: packets are lost, late or slowed down, connections are reset, and a node vanishes without a
word."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.config.impairments import (
    CLIENTS,
    Bandwidth,
    ClientCut,
    DelayOpen,
    Harm,
    Impairment,
    Latency,
    Loss,
    ResetConnections,
    Vanish,
)
from prozess.harness.errors import HarnessFailed
from prozess.harness.interfaces import Capability, Effect, Fault, FaultContext, Node, NodeState, Undo
from prozess.harness.plan.schedule import is_role, parse_target
from prozess.harness.schema import Tristate
from prozess.harness.values import Frozen
from prozess.nemesis.faults import ImpairingFault, observe, watch_state
from prozess.nemesis.roles import TargetMissing

PEERS = ("all", "brokers", "controllers", "zookeepers", "followers", CLIENTS, "everybody")


def _peer(value: object) -> object:
    if value is None:
        return None
    if isinstance(value, str):
        if value not in PEERS:
            raise ValueError(f"it must be one of {', '.join(PEERS)}, or a list of roles and names of nodes")
        return value
    if not isinstance(value, list | tuple) or not value or not all(isinstance(text, str) for text in value):
        raise ValueError(f"it must be one of {', '.join(PEERS)}, or a list, not empty, of roles and names of nodes")
    for text in value:
        if is_role(text):
            parse_target(text)
    return tuple(value)


Peer = Annotated[str | tuple[str, ...], BeforeValidator(_peer)]
"""The other side of the targets: `all` other nodes, `brokers`, `controllers`, `zookeepers`, `followers` (of the
partitions that the targets name), `clients` (the trial's clients), `everybody` (all nodes and clients), or a list of
roles and names of nodes.

Targets are never on the other side. The nemesis turns this into names of nodes (and `clients`) before a fault sees it.
"""
AnyPeer = Annotated[str | tuple[str, ...] | None, BeforeValidator(_peer)]
"""The other side of the targets, as for `Peer`. None means nobody in particular."""


def names_of(others: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """Returns the names of the nodes on the other side, which the nemesis has resolved."""
    assert not isinstance(others, str), "the nemesis resolves `others` to names before it strikes"
    return others or ()


def capabilities_for(others: str | Sequence[str] | None) -> frozenset[Capability]:
    """Returns what the backend must be able to do beyond breaking links between nodes."""
    of_clients = others is not None and (others in (CLIENTS, "everybody") or CLIENTS in others)
    return frozenset({Capability.CUT_CLIENTS}) if of_clients else frozenset()


class LatencyParameters(Frozen):
    """`latency_ms`: how late everything is, each way, so that an answer is late by twice that. `jitter_ms`: the
    variation. `back_ms`: how late is what the targets send, if that differs: with 0 of one of the two, only one way is late.
    `others`: who is at the other end of the links."""

    latency_ms: int = Field(ge=0, le=300_000)
    jitter_ms: int = Field(default=0, ge=0, le=300_000)
    """The variation: each piece of a stream is early or late by up to this, drawn uniformly, and by no more than the
    latency."""
    back_ms: int | None = Field(default=None, ge=0, le=300_000)
    """How late is what the targets send, if that differs from what is sent to them."""
    others: Peer = "all"
    """The nodes at the other end of the links."""

    @model_validator(mode="after")
    def _positive(self) -> "LatencyParameters":
        most_ms = max(self.latency_ms, self.back_ms or 0)
        if not most_ms:
            raise ValueError("latency_ms = 0 delays nothing: give latency_ms, back_ms, or both")
        if self.jitter_ms >= most_ms:
            raise ValueError(f"jitter_ms = {self.jitter_ms} must be less than the latency, {most_ms} ms")
        return self


class DelayLinks(ImpairingFault[LatencyParameters]):
    """Everything that passes between the targets and others is late, on every connection, whoever opened it. Open
    connections are closed and must be made again.

    The effect is that a server's answer takes as long as it must.
    """

    name = "latency"
    nature = FaultNature(cuts=True)
    needs = frozenset({Capability.DELAY})
    parameters_model = LatencyParameters
    role_parameters = frozenset({"others"})
    observe_s = 60.0

    def impairments(self, context: FaultContext, parameters: LatencyParameters) -> Sequence[tuple[Node, Impairment]]:
        there, back = parameters.latency_ms, parameters.back_ms
        late = partial(Latency, jitter_ms=parameters.jitter_ms)

        found: list[tuple[Node, Impairment]] = []
        for node in context.targets:
            for other in names_of(parameters.others):
                found.append((node, late(peer=other, latency_ms=there, back_ms=back)))
                if other != CLIENTS:  # who open connections, and take none
                    mirrored = (there, None) if back is None else (back, there)
                    found.append(
                        (context.node(other), late(peer=node.name, latency_ms=mirrored[0], back_ms=mirrored[1]))
                    )
        return found


class LossParameters(Frozen):
    """`share`: which share of the packets is lost. `others`: whose packets; None means everybody's, those of clients
    included."""

    share: float = Field(gt=0.005, lt=1)
    """The share of packets that is lost. Each packet is drawn by itself."""
    others: AnyPeer = None
    """The nodes whose packets are lost. None means everybody's, those of clients included."""


class LosePackets(ImpairingFault[LossParameters]):
    """A share of the packets that others send to the targets never arrives. TCP sends them again, ever more slowly.

    The effect is that of many datagrams about this share does not arrive.
    """

    name = "loss"
    # A lost or late packet looks like a cut to the node that waits for it.
    nature = FaultNature(cuts=True)
    needs = frozenset({Capability.LOSE})
    parameters_model = LossParameters
    role_parameters = frozenset({"others"})

    def impairments(self, context: FaultContext, parameters: LossParameters) -> Sequence[tuple[Node, Impairment]]:
        sources = names_of(parameters.others) or (None,)
        return [(node, Loss(share=parameters.share, source=source)) for node in context.targets for source in sources]


class BandwidthParameters(Frozen):
    """`bytes_per_s`: the limit of what the targets send; None means no limit. `others`: to whom; None means to everybody
    together. `back_bytes_per_s`: the limit of what each of the others sends to the targets; None means no limit."""

    bytes_per_s: int | None = Field(default=None, ge=10_000, le=10_000_000)
    """Above the allowed range the machine is the limit. Below it, one packet takes a second."""
    others: AnyPeer = None
    """The limit holds for what is sent to each of these. None means that it holds for everybody together."""
    back_bytes_per_s: int | None = Field(default=None, ge=10_000, le=10_000_000)
    """The limit of what each of the others sends to each target, and of what all clients together send to it. None means no
    limit."""

    @model_validator(mode="after")
    def _limits_something(self) -> "BandwidthParameters":
        if self.bytes_per_s is None and self.back_bytes_per_s is None:
            raise ValueError("nothing is limited: give bytes_per_s, back_bytes_per_s, or both")
        if self.back_bytes_per_s is not None and self.others is None:
            raise ValueError(f"back_bytes_per_s = {self.back_bytes_per_s} limits what others send: say which `others`")
        return self


class LimitBandwidth(ImpairingFault[BandwidthParameters]):
    """What the targets send goes out at a low rate, to everybody together or to each of some others; or what the others send
    to the targets does, or both.

    The effect is that a transfer of known size takes as long as it must.
    """

    name = "bandwidth"
    nature = FaultNature(cuts=True)
    needs = frozenset({Capability.SHAPE})
    parameters_model = BandwidthParameters
    role_parameters = frozenset({"others"})
    observe_s = 20.0

    def impairments(self, context: FaultContext, parameters: BandwidthParameters) -> Sequence[tuple[Node, Impairment]]:
        peers = names_of(parameters.others) or (None,)
        found: list[tuple[Node, Impairment]] = []
        if (limit := parameters.bytes_per_s) is not None:
            found += [(n, Bandwidth(bytes_per_s=limit, peer=p)) for n in context.targets for p in peers]
        if (back := parameters.back_bytes_per_s) is not None:
            named = [peer for peer in peers if peer is not None and peer != CLIENTS]
            found += [
                (context.node(p), Bandwidth(bytes_per_s=back, peer=n.name)) for p in named for n in context.targets
            ]
            if CLIENTS in peers:  # who have no node
                to_node = Bandwidth(bytes_per_s=back, peer=CLIENTS, way="to-node")
                found += [(node, to_node) for node in context.targets]
        return found


class HalfOpenParameters(Frozen):
    """`silent`: true means that nothing answers in place of the node while it is gone. False means that its machine is
    there again at once without the process, and answers packets on old connections with an RST."""

    silent: bool = True


class HalfOpen(Fault[HalfOpenParameters]):
    """A node vanishes without a word, as if its power or its cable were pulled: no FIN and no RST is sent. Others keep
    their connections to it, send into nothing, and find out by timeouts only.

    The node is cut off from everybody, clients included, and killed, and its kernel forgets its connections. If it is
    not `silent`, its machine is joined again.

    The effect is that the process is gone, and others still count connections to it as established.
    """

    name = "half-open"
    nature = FaultNature(stops=True, cuts=True)
    needs = frozenset({Capability.KILL, Capability.BLOCK, Capability.CUT_CLIENTS, Capability.RESET})
    parameters_model = HalfOpenParameters

    def __init__(self) -> None:
        self._done: dict[str, str] = {}

    def undos(self, context: FaultContext, parameters: HalfOpenParameters) -> Sequence[Undo]:
        undos = []
        for node in context.targets:
            if node.state() is NodeState.STOPPED:
                raise TargetMissing(f"{node.name} cannot vanish: it has no process now.")
            undos.append(Undo(action="start", node=node.name))
            undos += [Undo.of("repair", node.name, CLIENTS, **way.model_dump(mode="json")) for way in _client_cuts()]
            for other in _others(context, node):
                undos += [
                    Undo(action="unblock", node=node.name, peer=other.name),
                    Undo(action="unblock", node=other.name, peer=node.name),
                ]
        return undos

    def apply(self, context: FaultContext, parameters: HalfOpenParameters) -> None:
        """Makes the nodes vanish. HarnessFailed if everybody was informed of their end, so that it was an ordinary one, or
        might have been."""
        for node in context.targets:
            for other in _others(context, node):
                node.block(other)
                other.block(node)
            for way in _client_cuts():
                node.impair(way)
            self._done[node.name] = node.harm(Vanish())
            if not parameters.silent:
                self._join_again(context, node)

    def verify(self, context: FaultContext, parameters: HalfOpenParameters) -> Sequence[Effect]:
        watches = [watch_state(node, NodeState.STOPPED, seen=self._done.get(node.name, "")) for node in context.targets]
        return [
            effect
            if effect.detail
            else effect.model_copy(update={"effect": Tristate.UNKNOWN, "detail": "nobody looked at its connections"})
            for effect in observe(watches, clock=context.clock)
        ]

    def _join_again(self, context: FaultContext, node: Node) -> None:
        for way in _client_cuts():
            node.repair(way)
        for other in _others(context, node):
            node.unblock(other)
            other.unblock(node)
        if node.state() is not NodeState.STOPPED:
            raise HarnessFailed(f"{node.name} runs, although it was made to vanish.")


def _client_cuts() -> tuple[ClientCut, ClientCut]:
    return ClientCut(way="to-node"), ClientCut(way="from-node")


def _others(context: FaultContext, node: Node) -> list[Node]:
    return [other for other in context.cluster.nodes if other.roles and other.name != node.name]


# What faults share that do a harm to links in rounds, and are over when they return.


BEYOND_S = 1.0
"""How much longer than their latency the open connections stay late, so that what was sent at first can arrive."""


class LateConnectionsParameters(Frozen):
    """`latency_ms`: how late connections are, each way, without variation. `others`: whose connections to the targets.
    `times`: how often this happens, each time with new connections. `every_s`: the time between one and the next."""

    latency_ms: int = Field(gt=0, le=60_000)
    others: Peer = CLIENTS
    times: int = Field(default=1, ge=1, le=100)
    every_s: float = Field(default=1.0, ge=0, le=60)


class ResetParameters(Frozen):
    """`others`: whose connections are reset; None means everybody's, those of clients included. `times`: how often.
    `every_s`: the time between one round and the next."""

    others: AnyPeer = None
    """The nodes whose connections with the targets are reset. None means everybody's, those of clients included."""
    times: int = Field(default=1, ge=1, le=1000)
    every_s: float = Field(default=1.0, gt=0, le=60)
    """The time between one round and the next."""


Link = tuple[str, str | None]
"""A link as (node, peer). None as the peer means every peer."""


R = TypeVar("R", bound=LateConnectionsParameters | ResetParameters)


class RepeatedHarm(Fault[R]):
    """A fault that harms links several times: `times` rounds, and `every_s` between one and the next. A subclass has
    its own `name`, `needs`, `parameters_model`, `links`, `harm` and `seen`."""

    role_parameters = frozenset({"others"})
    ends_itself = True
    later_may_fail = False
    """True means that a round after the first may find nothing to harm."""

    def __init__(self) -> None:
        self._done: dict[Link, list[str]] = {}

    @abstractmethod
    def links(self, context: FaultContext, parameters: R) -> Sequence[Link]:
        """Returns the links that are harmed, each once in every round."""

    @abstractmethod
    def harm(self, peer: str | None, parameters: R) -> Harm:
        """Returns the harm that is done to the link with that peer."""

    @abstractmethod
    def seen(self, node: str, peer: str | None, done: Sequence[str]) -> Effect:
        """Returns the effect on a link. `done`: what the node observed in each round that did not fail."""

    def undos(self, context: FaultContext, parameters: R) -> Sequence[Undo]:
        """Plans nothing: the harm ends by itself."""
        return [Undo(action="nothing", node=node, peer=peer) for node, peer in self.links(context, parameters)]

    def apply(self, context: FaultContext, parameters: R) -> None:
        """Harms each link `times` times. HarnessFailed if there is nothing to harm, unless it is a later round and
        `later_may_fail`."""
        for number in range(parameters.times):
            if number:
                context.clock.sleep(parameters.every_s)
            for node, peer in self.links(context, parameters):
                try:
                    done = context.node(node).harm(self.harm(peer, parameters))
                except HarnessFailed:
                    if number and self.later_may_fail:
                        continue
                    raise
                self._done.setdefault((node, peer), []).append(done)

    def verify(self, context: FaultContext, parameters: R) -> Sequence[Effect]:
        return [
            self.seen(node, peer, self._done.get((node, peer), [])) for node, peer in self.links(context, parameters)
        ]


class LateConnections(RepeatedHarm[LateConnectionsParameters]):
    """All open connections become late at once, while new connections are not late. Therefore a request that its client has
    given up and sent again arrives after the second one was answered long ago. The fault is over when it returns.

    The effect is that an answer on one of the open connections comes as late as it must.
    """

    name = "late-connections"
    nature = FaultNature(cuts=True)
    needs = frozenset({Capability.DELAY})
    parameters_model = LateConnectionsParameters

    def links(self, context: FaultContext, parameters: LateConnectionsParameters) -> Sequence[Link]:
        """Returns (who is called, who calls) for each link."""
        others = names_of(parameters.others)
        return [(node.name, other) for node in context.targets for other in others if other != node.name]

    def harm(self, peer: str | None, parameters: LateConnectionsParameters) -> Harm:
        assert peer is not None
        latency_ms = parameters.latency_ms
        return DelayOpen(peer=peer, latency_ms=latency_ms, lasts_s=latency_ms / 1000 + BEYOND_S)

    def seen(self, node: str, peer: str | None, done: Sequence[str]) -> Effect:
        detail = f"{len(done)} times, the last: {done[-1]}" if done else "nothing was late"
        return Effect(node=node, peer=peer, effect=Tristate.YES if done else Tristate.NO, detail=detail)


class Reset(RepeatedHarm[ResetParameters]):
    """Ends open connections of the targets with an RST, as a firewall does that restarts. Clients and brokers open new
    ones. Requests that were under way may have been carried out or not. The fault is over at once.

    The effect is that the connections which were open are gone at both ends.
    """

    name = "reset"
    nature = FaultNature(cuts=True)
    needs = frozenset({Capability.RESET})
    parameters_model = ResetParameters
    later_may_fail = True
    """A later round may come before the next connection is there."""

    def links(self, context: FaultContext, parameters: ResetParameters) -> Sequence[Link]:
        others = names_of(parameters.others) or (None,)
        return [(node.name, peer) for node in context.targets for peer in others]

    def harm(self, peer: str | None, parameters: ResetParameters) -> Harm:
        return ResetConnections(peer=peer)

    def seen(self, node: str, peer: str | None, done: Sequence[str]) -> Effect:
        detail = f"{done[0]}; {len(done)} rounds" if done else "nothing was seen of it"
        return Effect(node=node, peer=peer, effect=Tristate.YES if done else Tristate.UNKNOWN, detail=detail)
