"""The fault `partition` cuts the network: what one side sends no longer reaches the other, both ways or one way, or a
shape made of several cuts."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.config.impairments import CLIENTS, ClientCut
from prozess.harness.interfaces import Capability, Effect, Fault, FaultContext, Undo
from prozess.harness.schema import Tristate
from prozess.harness.values import Frozen
from prozess.nemesis.faults import Observation, Watch, observe
from prozess.nemesis.links import AnyPeer, capabilities_for, names_of
from prozess.nemesis.roles import TargetMissing

# Shapes of partitions, pure: which node no longer hears which. Drawn from a seed where there is a choice.
#
# A cut is (receiver, source): nothing that source sends reaches receiver. Every shape here cuts both ways, as
# connections need both.


Cut = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Grudge:
    """The cuts of a partition that was drawn. `parts` holds what the seed decided, name → nodes, for the record of the
    run."""

    cuts: tuple[Cut, ...]
    parts: Mapping[str, tuple[str, ...]]


def both_ways(one_side: Sequence[str], other_side: Sequence[str]) -> list[Cut]:
    """Returns every cut between two sides, in both directions."""
    return [cut for a in one_side for b in other_side for cut in ((a, b), (b, a))]


def isolated(nodes: Sequence[str], everybody: Sequence[str]) -> list[Cut]:
    """Cuts each of `nodes` off from everybody else, and from each other."""
    others = [other for other in everybody if other not in nodes]
    return both_ways(nodes, others) + [(a, b) for a in nodes for b in nodes if a != b]


def halves(nodes: Sequence[str], rng: random.Random, racks: Mapping[str, str] | None = None) -> Grudge:
    """Cuts nodes into two sides of sizes as equal as possible that do not hear each other. With `racks` (node → rack)
    whole racks stay together.

    ValueError if there are not two nodes, or two racks.
    """
    if racks is None:
        drawn = _shuffled(nodes, rng, at_least=2)
        return _two_sides(drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :])
    if without := [node for node in nodes if node not in racks]:
        raise ValueError(f"halves by rack: {without[0]} has no rack (variant.racks)")
    names = _shuffled(sorted({racks[node] for node in nodes}), rng, at_least=2, what="racks")
    first = set(names[: len(names) // 2])
    return _two_sides([n for n in nodes if racks[n] in first], [n for n in nodes if racks[n] not in first])


def bridge(nodes: Sequence[str], rng: random.Random) -> Grudge:
    """Cuts nodes into two halves that do not hear each other, and one node that still hears both and is heard by both.
    ValueError below three nodes."""
    middle, *rest = _shuffled(nodes, rng, at_least=3)
    sides = _two_sides(rest[: len(rest) // 2], rest[len(rest) // 2 :])
    return Grudge(sides.cuts, {"bridge": (middle,), **sides.parts})


def ring(nodes: Sequence[str], rng: random.Random) -> Grudge:
    """Arranges the nodes in a ring in which each hears a majority, itself included, and no two hear the same.

    The order is drawn, and each node hears its nearest neighbours. With three nodes the two neighbours are everybody,
    so one pair is cut. ValueError below three nodes.
    """
    order = _shuffled(nodes, rng, at_least=3)
    count = len(order)
    reach = (count // 2 + 1) // 2  # the least with 2 · reach + 1 a majority
    if 2 * reach + 1 >= count:
        return Grudge(tuple(both_ways(order[:1], order[-1:])), {"ring": tuple(order)})
    cuts = [
        (a, b)
        for i, a in enumerate(order)
        for j, b in enumerate(order)
        if min((i - j) % count, (j - i) % count) > reach
    ]
    return Grudge(tuple(cuts), {"ring": tuple(order)})


GRUDGES: Mapping[str, Callable[[Sequence[str], random.Random], Grudge]] = {
    "halves": halves,
    "bridge": bridge,
    "ring": ring,
}
"""Name of a shape → the function that draws its cuts among the nodes that a step targets."""


def open_ways(nodes: Sequence[str], cuts: Sequence[Cut]) -> list[Cut]:
    """Returns the links between these nodes that are not cut."""
    closed = set(cuts)
    return [(a, b) for a in nodes for b in nodes if a != b and (a, b) not in closed]


def _two_sides(one: Sequence[str], other: Sequence[str]) -> Grudge:
    parts = {"one half": tuple(sorted(one)), "the other half": tuple(sorted(other))}
    return Grudge(tuple(both_ways(*parts.values())), parts)


def _shuffled(names: Sequence[str], rng: random.Random, *, at_least: int, what: str = "nodes") -> list[str]:
    """Returns the nodes in an order that depends only on the seed and the set of names."""
    if len(names) < at_least:
        raise ValueError(f"it takes {at_least} {what} at least, and the targets have {len(names)}: {', '.join(names)}")
    return rng.sample(sorted(names), len(names))


# An idle partition's ISR does not shrink, however long its replicas are cut apart: with equal log ends a follower is
# in sync. Traffic makes a cut visible to Kafka.


Direction = Literal["both", "to-targets", "from-targets"]


class PartitionParameters(Frozen):
    """`shape`: "sides" cuts the targets from `others`, "isolate" cuts each target from every other node, and the other
    shapes cut the targets from one another, as the seed draws it. `others`: who is on the other side. `direction`: both
    ways, or one. `by`: whether halves are equal in number, or of whole racks. `seed`: None means that of the plan and
    the step's name."""

    shape: Literal["sides", "isolate", "halves", "bridge", "ring"] = "sides"
    """`sides` cuts the targets from `others`; `isolate` cuts each target from every other node. The other shapes cut
    the targets from one another, as the seed draws it, and leave all other nodes connected to all of them."""
    others: AnyPeer = None
    """The other side, for the shape `sides`: `all` other nodes (the default), or what
    `prozess.nemesis.links.Peer` says."""
    direction: Direction = Field(default="both")
    """Which way is cut, for the shape `sides`. `to-targets`: nothing that the others send reaches the targets.
    `from-targets`: the reverse."""
    by: Literal["count", "rack"] = "count"
    """How halves are made: `count` makes them equal in number, `rack` keeps whole racks together."""
    seed: str | int | None = None
    """Decides what is drawn. None means the seed of the plan and the name of the step."""

    @model_validator(mode="before")
    @classmethod
    def _consistent(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        shape, others = given.get("shape", "sides"), given.get("others")
        if shape == "sides":
            return {**given, "others": "all" if others is None else others}
        if others is not None or given.get("direction", "both") != "both":
            raise ValueError(
                f'shape = "{shape}" is of the targets alone, both ways; others and direction are for "sides"'
            )
        return given


def cuts(targets: Sequence[str], others: Sequence[str], direction: Direction) -> list[Cut]:
    """Returns (receiver, source) for every one-way cut between two sides: nothing that source sends reaches
    receiver."""
    inward = [(target, other) for target in targets for other in others]
    outward = [(other, target) for target in targets for other in others]
    return {"both": inward + outward, "to-targets": inward, "from-targets": outward}[direction]


class Partition(Fault[PartitionParameters]):
    """Drops what one side sends to the other, both ways or one way, or separates the targets from one another in a shape.

    An idle partition's ISR does not shrink, however long its replicas are cut apart, because a follower with the same
    log end is in sync. Kafka notices a cut only under traffic.

    The effect, per direction that is cut, is that a datagram really does not arrive. What must stay connected (the other
    direction of a one-way cut, the rest of a shape) must be open. Where it is not, the fault is not the one that was
    asked for, and its effect is unknown.
    """

    name = "partition"
    nature = FaultNature(cuts=True)
    needs = frozenset({Capability.BLOCK})
    parameters_model = PartitionParameters
    role_parameters = frozenset({"others"})

    def spares(self, parameters: PartitionParameters) -> frozenset[Capability]:
        """Returns what the fault does not need because only links of clients are cut."""
        only_clients = parameters.others in (CLIENTS, (CLIENTS,))
        return frozenset({Capability.BLOCK}) if only_clients else frozenset()

    def needs_for(self, parameters: PartitionParameters) -> frozenset[Capability]:
        """Returns what the backend must also be able to do because links of clients are cut."""
        return capabilities_for(parameters.others)

    def drawn(self, context: FaultContext, parameters: PartitionParameters) -> Mapping[str, tuple[str, ...]]:
        """Returns what the seed decides, for the record of the run: part of the shape → nodes."""
        return self._shape(context, parameters).parts

    def undos(self, context: FaultContext, parameters: PartitionParameters) -> Sequence[Undo]:
        return [
            Undo.of("repair", node, CLIENTS, **client_cut.model_dump(mode="json"))
            if client_cut is not None
            else Undo(action="unblock", node=node, peer=source)
            for node, source, client_cut in map(_placed, self._shape(context, parameters).cuts)
        ]

    def apply(self, context: FaultContext, parameters: PartitionParameters) -> None:
        for node, source, client_cut in map(_placed, self._shape(context, parameters).cuts):
            if client_cut is not None:
                context.node(node).impair(client_cut)
            else:
                context.node(node).block(context.node(source))

    def verify(self, context: FaultContext, parameters: PartitionParameters) -> Sequence[Effect]:
        edges = self._shape(context, parameters).cuts
        effects = observe([_watch_cut(context, *edge) for edge in edges], clock=context.clock)
        if parameters.shape == "sides" and parameters.direction != "both":
            ways = [(source, receiver) for receiver, source in edges]
            open_effects = observe([_watch_open(context, *way) for way in ways], clock=context.clock)
            return [_one_way(cut, way) for cut, way in zip(effects, open_effects, strict=True)]
        if parameters.shape in GRUDGES:
            ways = open_ways([node.name for node in context.targets], edges)
            open_effects = observe([_watch_open(context, *way) for way in ways], clock=context.clock)
            return _whole_shape(effects, open_effects)
        return effects

    def _shape(self, context: FaultContext, parameters: PartitionParameters) -> Grudge:
        targets = [node.name for node in context.targets]
        if parameters.shape == "sides":
            return Grudge(tuple(cuts(targets, names_of(parameters.others), parameters.direction)), {})
        if parameters.shape == "isolate":
            return Grudge(tuple(isolated(targets, [n.name for n in context.cluster.nodes if n.roles])), {})
        rng = random.Random(str(parameters.seed))
        try:
            if parameters.by == "rack":
                return halves(targets, rng, context.racks)
            return GRUDGES[parameters.shape](targets, rng)
        except ValueError as error:
            raise TargetMissing(f"{error}.") from error


def _placed(cut: Cut) -> tuple[str, str, ClientCut | None]:
    """Returns (node that is reported, source, how its clients are cut off). Clients are no node, so what they are not to
    hear is cut at the node that they would hear."""
    receiver, source = cut
    if source == CLIENTS:
        return receiver, source, ClientCut(way="to-node")
    if receiver == CLIENTS:
        return source, receiver, ClientCut(way="from-node")
    return receiver, source, None


def _watch_cut(context: FaultContext, receiver: str, source: str) -> Watch:
    node, peer, client_cut = _placed((receiver, source))

    def probe() -> Observation:
        if client_cut is not None:
            return context.node(node).impaired(client_cut)
        arrives = context.node(receiver).receives_from(context.node(source))
        return {
            Tristate.NO: (Tristate.YES, "datagrams do not arrive"),
            Tristate.YES: (Tristate.NO, "datagrams still arrive"),
            Tristate.UNKNOWN: (Tristate.UNKNOWN, "whether datagrams arrive could not be seen"),
        }[arrives]

    return Watch(node, peer, probe)


def _watch_open(context: FaultContext, receiver: str, source: str) -> Watch:
    node, peer, client_cut = _placed((receiver, source))

    def probe() -> Observation:
        if client_cut is None:
            return context.node(receiver).receives_from(context.node(source)), ""
        closed, seen = context.node(node).impaired(client_cut)
        return {Tristate.YES: Tristate.NO, Tristate.NO: Tristate.YES}.get(closed, closed), seen

    return Watch(node, peer, probe)


def _one_way(cut: Effect, other_way: Effect) -> Effect:
    if cut.effect is not Tristate.YES or other_way.effect is Tristate.YES:
        return cut
    seen = "is cut as well" if other_way.effect is Tristate.NO else "could not be seen"
    return _doubted(cut, f"but the other way {seen}: not a one-way cut")


def _whole_shape(cut_effects: Sequence[Effect], open_effects: Sequence[Effect]) -> list[Effect]:
    closed = [f"{e.peer} to {e.node}" for e in open_effects if e.effect is not Tristate.YES]
    if not closed:
        return list(cut_effects)
    return [
        _doubted(cut, f"but the way from {closed[0]} is not open: another shape") if cut.effect is Tristate.YES else cut
        for cut in cut_effects
    ]


def _doubted(effect: Effect, why: str) -> Effect:
    return effect.model_copy(update={"effect": Tristate.UNKNOWN, "detail": f"{effect.detail}, {why}"})
