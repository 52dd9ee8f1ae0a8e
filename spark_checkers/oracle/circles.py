"""Circles among transactions, for the second opinion: SQL says which transaction depends on which, and networkx which of them
reach one another. Kernels look for the same with scipy, and cut the graph by time first; nothing here does."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import networkx as nx
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
    """Returns the sets of two or more nodes of which each reaches each other. O(edges).

    Example: 1 → 2, 2 → 1 and 2 → 3 have one such set, 1 and 2.
    """
    return [members for members in nx.strongly_connected_components(nx.DiGraph(edges)) if len(members) > 1]
