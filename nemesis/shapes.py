"""Shapes of partitions, pure: which node no longer hears which. Drawn from a seed where there is a choice.

A cut is (receiver, source): nothing that source sends reaches receiver. Every shape here cuts both ways, as connections need
both.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Cut = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Shape:
    """A partition that was drawn. `parts`: what the seed decided, name → nodes, for the record of the run."""

    cuts: tuple[Cut, ...]
    parts: Mapping[str, tuple[str, ...]]


def both_ways(one_side: Sequence[str], other_side: Sequence[str]) -> list[Cut]:
    """Every cut between two sides."""
    return [cut for a in one_side for b in other_side for cut in ((a, b), (b, a))]


def isolated(nodes: Sequence[str], everybody: Sequence[str]) -> list[Cut]:
    """Each of `nodes` alone: cut off from everybody else, each other too."""
    others = [other for other in everybody if other not in nodes]
    return both_ways(nodes, others) + [(a, b) for a in nodes for b in nodes if a != b]


def halves(nodes: Sequence[str], rng: random.Random, racks: Mapping[str, str] | None = None) -> Shape:
    """Two sides that do not hear each other, of sizes as equal as can be; with `racks` (node → rack), of whole racks.
    ValueError if there are not two nodes, or two racks."""
    if racks is None:
        drawn = _shuffled(nodes, rng, at_least=2)
        return _two_sides(drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :])
    if without := [node for node in nodes if node not in racks]:
        raise ValueError(f"halves by rack: {without[0]} has no rack (variant.racks)")
    names = _shuffled(sorted({racks[node] for node in nodes}), rng, at_least=2, what="racks")
    first = set(names[: len(names) // 2])
    return _two_sides([n for n in nodes if racks[n] in first], [n for n in nodes if racks[n] not in first])


def bridge(nodes: Sequence[str], rng: random.Random) -> Shape:
    """Two halves that do not hear each other, and one node that hears, and is heard by, both. ValueError below three."""
    middle, *rest = _shuffled(nodes, rng, at_least=3)
    sides = _two_sides(rest[: len(rest) // 2], rest[len(rest) // 2 :])
    return Shape(sides.cuts, {"bridge": (middle,), **sides.parts})


def ring(nodes: Sequence[str], rng: random.Random) -> Shape:
    """Every node hears a majority, itself included, and no two hear the same: on a ring in drawn order, each hears its
    nearest neighbours. Of three nodes, where two neighbours are everybody, one pair is cut. ValueError below three."""
    order = _shuffled(nodes, rng, at_least=3)
    count = len(order)
    reach = (count // 2 + 1) // 2  # the least with 2 · reach + 1 a majority
    if 2 * reach + 1 >= count:
        return Shape(tuple(both_ways(order[:1], order[-1:])), {"ring": tuple(order)})
    cuts = [
        (a, b)
        for i, a in enumerate(order)
        for j, b in enumerate(order)
        if min((i - j) % count, (j - i) % count) > reach
    ]
    return Shape(tuple(cuts), {"ring": tuple(order)})


SHAPES: Mapping[str, Callable[[Sequence[str], random.Random], Shape]] = {
    "halves": halves,
    "bridge": bridge,
    "ring": ring,
}
"""Drawn shapes of the nodes that a step targets."""


def open_ways(nodes: Sequence[str], cuts: Sequence[Cut]) -> list[Cut]:
    """Between these nodes, what is not cut."""
    closed = set(cuts)
    return [(a, b) for a in nodes for b in nodes if a != b and (a, b) not in closed]


def _two_sides(one: Sequence[str], other: Sequence[str]) -> Shape:
    parts = {"one half": tuple(sorted(one)), "the other half": tuple(sorted(other))}
    return Shape(tuple(both_ways(*parts.values())), parts)


def _shuffled(names: Sequence[str], rng: random.Random, *, at_least: int, what: str = "nodes") -> list[str]:
    """In an order that depends on the seed and the set of names alone."""
    if len(names) < at_least:
        raise ValueError(f"it takes {at_least} {what} at least, and the targets have {len(names)}: {', '.join(names)}")
    return rng.sample(sorted(names), len(names))
