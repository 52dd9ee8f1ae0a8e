"""The states of a partition in the controllers' log as a graph: which may follow which by the rules, and which did."""

from collections import Counter
from collections.abc import Mapping
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.metadata.changes import PartitionChanges, PartitionStates
from prozess.checkers.metadata.illegal import RULES
from prozess.harness.schema import NONE

if TYPE_CHECKING:
    from networkx import DiGraph

NAMES = (
    "all in sync",
    "some in sync",
    "leader alone",
    "others eligible",
    "recovering",
    "nobody leads, some in sync",
    "nobody leads, some eligible",
    "nobody leads, nobody eligible",
    "deleted",
)
"""The states, as `names_of` numbers them."""
REPLICAS = 0b1110
"""The brokers 1, 2 and 3 of the small world in which every state and every change is tried."""
Edge = tuple[str, str]


def names_of(states: PartitionStates) -> NDArray[np.int64]:
    """Returns which of NAMES each state is. Example: leader 1, {1} in sync of {1, 2, 3}, {2} eligible: "others eligible"."""
    led, alone = states.leader != NONE, (states.isr & (states.isr - 1)) == 0
    choices = [
        states.ended,
        ~led & (states.isr != 0),
        ~led & (states.elr != 0),
        ~led,
        states.recovering,
        states.elr != 0,
        states.isr == states.replicas,
        alone,
    ]
    return np.asarray(np.select(choices, [8, 5, 6, 7, 4, 3, 0, 2], default=1), dtype=np.int64)


def taken(changes: PartitionChanges) -> Counter[Edge]:
    """Returns how often one state followed another."""
    before, after = (names_of(states)[changes.follows] for states in (changes.before, changes.after))
    pairs, counts = np.unique(before * len(NAMES) + after, return_counts=True)
    edges = ((NAMES[pair // len(NAMES)], NAMES[pair % len(NAMES)]) for pair in pairs.tolist())
    return Counter(dict(zip(edges, counts.tolist(), strict=True)))


def permitted() -> "DiGraph[str]":
    """Returns the graph of what no rule forbids: an edge if some change from one state to the other breaks none, where no
    broker is fenced. Every change of a partition with three replicas is tried."""
    from networkx import DiGraph

    states = _every_state()
    sound = _unbroken(_between(states, states, follows=False))
    states = states.taken(np.flatnonzero(sound))
    first, second = (index.ravel() for index in np.indices((len(states.leader), len(states.leader))))
    before, after = states.taken(first), states.taken(second)
    kept = np.flatnonzero(_unbroken(_between(before, after, follows=True)))
    possible = taken(_between(before.taken(kept), after.taken(kept), follows=True))
    graph: DiGraph[str] = DiGraph()
    graph.add_nodes_from(NAMES)
    graph.add_edges_from(possible)
    return graph


def _every_state() -> PartitionStates:
    sets = [mask for mask in range(REPLICAS + 1) if mask & ~REPLICAS == 0]
    rows = [
        *(
            (leader, isr, elr, recovering, 0)
            for leader, isr, elr, recovering in product((NONE, 1, 2, 3), sets, sets, (0, 1))
        ),
        (NONE, 0, 0, 0, 1),
    ]
    leader, isr, elr, recovering, ended = np.array(rows, dtype=np.int64).T
    nothing = np.zeros(len(rows), dtype=np.int64)
    return PartitionStates(leader, nothing, isr, elr, nothing + REPLICAS, recovering == 1, ended == 1)


def _between(before: PartitionStates, after: PartitionStates, *, follows: bool) -> PartitionChanges:
    """Returns the changes from each state to the other of its place; a leader epoch grows where the leader is another."""
    count = len(after.leader)
    epoch = (before.leader != after.leader).astype(np.int64)
    grown = PartitionStates(after.leader, epoch, after.isr, after.elr, after.replicas, after.recovering, after.ended)
    nothing = np.zeros(count, dtype=np.int64)
    never, ever = np.zeros(count, dtype=np.bool_), np.full(count, follows, dtype=np.bool_)
    return PartitionChanges(np.arange(count), nothing, grown, before, ever, nothing, never, kraft=True)


def _unbroken(changes: PartitionChanges) -> NDArray[np.bool_]:
    return np.asarray(~np.logical_or.reduce([rule.forbids(changes) for rule in RULES]))


def table_of(graph: "DiGraph[str]", counts: Mapping[Edge, int]) -> str:
    """Returns a table in Markdown: a row for each state before, a column for each after. A number says how often it was
    taken; 0: it is permitted, and was never taken. Nothing: a rule forbids it."""
    nodes = list(graph)
    lines = [f"| from, to | {' | '.join(nodes)} |", f"|{'---|' * (len(nodes) + 1)}"]
    for before in nodes:
        cells = (
            f"{counts.get((before, after), 0):,}" if graph.has_edge(before, after) or (before, after) in counts else ""
            for after in nodes
        )
        lines.append(f"| {before} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
