"""Cycles in a graph whose edges nearly all lead forward in time: which nodes are in them, and a shortest one.

Edges are pairs of arrays, `tail` → `head`: numbers of nodes. Nothing here knows what nodes and edges are.
"""

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from checkers.lookup import differs_from_previous, distinct

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
# Importing scipy takes a seventh of a second, which most checks need not spend: they find no edge at all.


def entangled(tail: np.ndarray, head: np.ndarray, stretch: np.ndarray) -> np.ndarray:
    """bool[edges]: the time-order cut: may this edge be in a cycle? `stretch`: of `stretches`."""
    found: np.ndarray = stretch[tail] == stretch[head]
    return found


def stretches(tail: np.ndarray, head: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """intp[nodes]: numbers of the stretches of time that no cycle leaves. `rank`: place of each node in time, a permutation.
    Only edges that lead backwards matter, so that the others may be missing.

    Where a cycle passes a moment forwards it must come back: moments that no edge passes backwards are in no cycle. Any
    ranks are right; the better they order the edges, the shorter the stretches are. O(nodes + edges).
    """
    back = rank[tail] > rank[head]
    begin, end = (np.bincount(rank[of[back]], minlength=len(rank)) for of in (head, tail))
    uncut = np.cumsum(begin - end) > 0  # does an edge lead back from behind each place to it, or to one before it?
    number = np.cumsum(np.concatenate([[0], ~uncut[:-1]])) if len(rank) else np.empty(0, dtype=np.int64)
    found: np.ndarray = number[rank]
    return found


def components(tail: np.ndarray, head: np.ndarray) -> np.ndarray:
    """intp[edges]: number of the strongly connected component of more than one node that an edge is inside of; -1 = it is in
    no cycle. Numbered by their least node. An edge from a node to itself is in none. O(edges · log edges)."""
    from scipy.sparse.csgraph import connected_components

    nodes = distinct(np.concatenate([tail, head]))
    tail, head = np.searchsorted(nodes, tail), np.searchsorted(nodes, head)
    _, label = connected_components(_graph(tail, head, len(nodes)), directed=True, connection="strong")
    inside = (label[tail] == label[head]) & (tail != head)
    order = np.argsort(label, kind="stable")  # the first of each label is its least node
    starts = differs_from_previous(label[order])
    least = np.zeros(len(nodes), dtype=np.intp)
    least[label[order[starts]]] = order[starts]
    of_edge = least[label[tail]]
    found = np.full(len(tail), -1, dtype=np.intp)
    found[inside] = np.searchsorted(distinct(of_edge[inside]), of_edge[inside])
    return found


def shortest_cycle(tail: np.ndarray, head: np.ndarray, first: int | None = None) -> list[int]:
    """Edges, in their order, of a shortest cycle through edge `first`; None: through the least node. All edges are inside one
    component; of equal ones the first is taken."""
    from scipy.sparse.csgraph import breadth_first_order

    nodes = distinct(tail)  # in a component every node has an edge
    tail, head = np.searchsorted(nodes, tail), np.searchsorted(nodes, head)
    begin, end = (0, None) if first is None else (int(head[first]), int(tail[first]))
    graph = _graph(tail, head, len(nodes))
    order, before = breadth_first_order(graph, begin, directed=True, return_predecessors=True)
    if end is None:
        leads_back = np.zeros(len(nodes), dtype=bool)
        leads_back[tail[head == begin]] = True
        leads_back[begin] = False
        end = int(order[leads_back[order]][0])  # found nearest first
    path = [end]
    while path[-1] != begin:
        path.append(int(before[path[-1]]))
    path = path[::-1]
    edges = [int(np.flatnonzero((tail == a) & (head == b))[0]) for a, b in pairwise(path)]
    closing = first if first is not None else int(np.flatnonzero((tail == end) & (head == begin))[0])
    return [*edges, closing]


def _graph(tail: np.ndarray, head: np.ndarray, size: int) -> "csr_matrix":
    """Each edge once, in order, so that the same edges give the same graph however they came."""
    from scipy.sparse import csr_matrix

    key = distinct(tail.astype(np.int64) * size + head)
    tail, head = key // max(1, size), key % max(1, size)
    first = np.searchsorted(tail, np.arange(size + 1))
    return csr_matrix((np.ones(len(key), dtype=np.int8), head, first), shape=(size, size))
