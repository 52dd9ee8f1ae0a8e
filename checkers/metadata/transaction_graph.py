"""The states of a transactional.id in the transaction log as a graph: which may follow which by the rules, and which did."""

from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from prozess.checkers.metadata.graph import Edge
from prozess.checkers.metadata.illegal_transaction_state import forbidden
from prozess.checkers.metadata.transaction_changes import TransactionChanges, TransactionRecords, TransactionStates
from prozess.harness.schema import NONE
from prozess.harness.schema import TransactionState as State

if TYPE_CHECKING:
    from networkx import DiGraph

_OPEN = (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)


def name_of(state: int) -> str:
    """Returns a state's name in words: "prepare commit"."""
    return State(state).name.lower().replace("_", " ")


def states_taken(records: TransactionRecords) -> Counter[Edge]:
    """Returns how often one state followed another. Nothing in front of an id's first record is "forgotten"."""
    seen = np.flatnonzero(records.seen)
    changes = records.changes(seen, records.previous[seen])
    return _edges(changes.before, changes.after)


def states_permitted() -> "DiGraph[str]":
    """Returns the graph of what no rule forbids: an edge if some record breaks none. Every record of a producer is tried that
    keeps or raises its epoch, or has the next producer id, with up to two partitions, at each transaction.version."""
    from networkx import DiGraph

    rows = [
        (state, producer, epoch, partitions, version)
        for state, producer, epoch, partitions, version in product(State, (1, 2), (1, 2), (0, 1, 2), (0, 2))
        if (partitions > 0) == (state in _OPEN)
    ]
    every = np.array(rows, dtype=np.int64)
    every[every[:, 0] == State.FORGOTTEN, 1:] = NONE
    states = TransactionStates(*every.T)
    first, second = (index.ravel() for index in np.indices((len(rows), len(rows))))
    changes = TransactionChanges(after=states.taken(second), before=states.taken(first))
    kept = np.flatnonzero(~forbidden(changes))
    graph: DiGraph[str] = DiGraph()
    graph.add_nodes_from(map(name_of, State))
    graph.add_edges_from(_edges(changes.before.taken(kept), changes.after.taken(kept)))
    return graph


def _edges(before: TransactionStates, after: TransactionStates) -> Counter[Edge]:
    pairs, counts = np.unique(np.stack([before.state, after.state]), axis=1, return_counts=True)
    return Counter(
        {(name_of(a), name_of(b)): count for (a, b), count in zip(pairs.T.tolist(), counts.tolist(), strict=True)}
    )
