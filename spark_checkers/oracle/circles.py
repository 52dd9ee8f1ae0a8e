"""Circles among transactions, for the second opinion: SQL says which transaction depends on which, and a textbook's algorithm
which of them reach one another. Kernels look for the same with scipy, and cut the graph by time first; nothing here does."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import pyarrow as pa

from prozess.harness.guarantees.facts.witnessed import BY_WRITES_CASES

BY_WRITES, BY_WRITES_ALONE = BY_WRITES_CASES
Node = tuple[int, int]
"""A transaction: its client and its number."""
Edge = tuple[Node, Node]
Circles = Counter[tuple[int, ...]]
"""(a partition of the cell, case) of each set of transactions that are connected in circles, as often as there is one."""
CycleName = Literal["information-cycle", "write-cycle"]
CYCLES: tuple[CycleName, ...] = ("information-cycle", "write-cycle")


def circles_in(anomaly: CycleName, edges: pa.Table) -> Circles:
    """Returns the sets of an anomaly. `edges`: the rows of `depends` in `cycles.sql`."""
    of_cells: dict[int, dict[int, list[Edge]]] = defaultdict(lambda: defaultdict(list))
    for somewhere, client, transaction, on_client, on_transaction, kind in zip(
        *(edges.column(name).to_pylist() for name in _COLUMNS), strict=True
    ):
        of_cells[somewhere][kind].append(((client, transaction), (on_client, on_transaction)))
    found = _by_reads if anomaly == "information-cycle" else _by_writes
    return Counter((somewhere, case) for somewhere, kinds in of_cells.items() for case in found(kinds))


_COLUMNS = ("somewhere", "client", "transaction", "on_client", "on_transaction", "kind")


def _by_reads(kinds: Mapping[int, list[Edge]]) -> Iterator[int]:
    """Yields the case of each set that reads of one isolation level connect."""
    for level, edges in kinds.items():
        yield from (level for _ in connected(edges))


def _by_writes(kinds: Mapping[int, list[Edge]]) -> Iterator[int]:
    """Yields the case of each set with an edge by the order of writes: whether that order is a circle by itself."""
    writes = kinds.get(BY_WRITES_ALONE, [])
    alone = {node for members in connected(writes) for node in members}
    for members in connected(edge for edges in kinds.values() for edge in edges):
        if any(one in members and other in members for one, other in writes):
            yield BY_WRITES if alone.isdisjoint(members) else BY_WRITES_ALONE


def connected(edges: Iterable[Edge]) -> list[set[Node]]:
    """Returns the sets of two or more nodes of which each reaches each other, by Kosaraju's algorithm: whoever is left last
    in the graph is looked for in the reversed one first. O(edges).

    Example: 1 → 2, 2 → 1 and 2 → 3 have one such set, 1 and 2.
    """
    onwards, backwards = defaultdict[Node, list[Node]](list), defaultdict[Node, list[Node]](list)
    for one, other in edges:
        onwards[one].append(other)
        backwards[other].append(one)
    seen, left = set[Node](), list[Node]()
    for start in list(onwards):
        left += _left_from(start, onwards, seen)
    taken, found = set[Node](), list[set[Node]]()
    for node in reversed(left):
        if len(members := set(_left_from(node, backwards, taken))) > 1:
            found.append(members)
    return found


def _left_from(start: Node, next_of: Mapping[Node, list[Node]], seen: set[Node]) -> list[Node]:
    """Returns the nodes that are reached from one and were not seen before, in the order in which a walk into the depth
    leaves them; and marks them as seen."""
    if start in seen:
        return []
    seen.add(start)
    left, path = list[Node](), [(start, iter(next_of.get(start, ())))]
    while path:
        node, nexts = path[-1]
        following = next((one for one in nexts if one not in seen), None)
        if following is None:
            path.pop()
            left.append(node)
        else:
            seen.add(following)
            path.append((following, iter(next_of.get(following, ()))))
    return left
