"""What transactions read themselves: their own records, and one another's. Kernels over a whole cell; stage check.

A read belongs to the transaction that its client had open when it was given the record. Terms (wr, ww, G0, G1c): Adya, "Weak
Consistency: A Generalized Theory and Optimistic Implementations for Distributed Transactions", MIT 1999; as Jepsen uses them
of Kafka, https://jepsen.io/analyses/redpanda-21.10.1.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import breadth_first_order, connected_components

from checkers.lookup import differs_from_previous, distinct
from checkers.transaction_arrays import CellIndex, reading_transactions
from checkers.transactions import AT_READ_COMMITTED, AT_READ_UNCOMMITTED, of_reads
from harness.protocols import CellHistory, KernelResult
from harness.schema import Isolation
from harness.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses

BY_WRITES = 2
"""`case` of `write-cycle`: some edge of the cycle is the order of two writes."""


def own_read(history: CellHistory) -> KernelResult:
    """A transaction that reads at read_committed is not given what it has itself written, which is not committed yet.

    Source: KIP-98; https://kafka.apache.org/documentation/#consumerconfigs_isolation.level. Counts records per isolation
    level, as `aborted-read`. O(k log n) for k reads inside transactions.
    """
    index = CellIndex.of(history)
    judged = 0

    def of(position: int) -> np.ndarray:
        nonlocal judged
        rows, writer, reader, _ = _inside(index, position)
        judged += len(rows)
        own: np.ndarray = rows[writer == reader]
        return own

    found = of_reads(index, of)
    return KernelResult(found.witnesses, found.count, judged, incomplete=None)


def information_cycle(history: CellHistory) -> KernelResult:
    """Among committed transactions there is no cycle of "read what the other wrote" (wr): who reads at read_committed inside
    a transaction depends on transactions that were committed before.

    Source: KIP-98, read_committed; Adya's G1c over wr edges alone. Counts the sets of transactions that are connected in
    cycles; per set and isolation level one witness: of a shortest cycle the read that came before the writer's commit was
    invoked, of which there must be one (`client`, `sequence`, `log_offset`: the record read; `reader`: by whom;
    `other_*`: the record whose reading leads on). O(n + e).
    """
    index = CellIndex.of(history)
    edges = _wr_edges(index)
    found = [
        _cycle_witnesses(index, edges.chosen(edges.level == level), case)
        for level, case in (
            (Isolation.READ_COMMITTED, AT_READ_COMMITTED),
            (Isolation.READ_UNCOMMITTED, AT_READ_UNCOMMITTED),
        )
    ]
    witnesses = np.concatenate(found)
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), judged=len(edges.writer), incomplete=None)


def write_cycle(history: CellHistory) -> KernelResult:
    """Transactions interleave: their writes, with or without what they read, form cycles (G0; G1c over ww edges).

    Kafka promises nothing against it: each partition is written in the order of arrival. Counts the sets of committed
    transactions that are connected in cycles with at least one edge of the order of writes in V; one witness each, as
    `information-cycle`. O(n + e).
    """
    index = CellIndex.of(history)
    written = _ww_edges(index)
    edges = _wr_edges(index).and_those(written)
    witnesses = _cycle_witnesses(index, edges, BY_WRITES)
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), judged=len(written.writer), incomplete=None)


# --- edges ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Edges:
    """Arrays of one length, one entry per edge between committed transactions."""

    writer: np.ndarray
    """intp: place of the transaction whose record was read or overwritten."""
    reader: np.ndarray
    """intp: place of the one that read it, or wrote after it."""
    position: np.ndarray
    """intp: which partition of the cell."""
    row: np.ndarray
    """intp: row of `reads` there that shows the record."""
    level: np.ndarray
    """int32, Isolation; NOT_A_READER of an edge between writes."""

    def chosen(self, mask: np.ndarray) -> "Edges":
        """Those where `mask` is true."""
        return Edges(self.writer[mask], self.reader[mask], self.position[mask], self.row[mask], self.level[mask])

    def and_those(self, more: "Edges") -> "Edges":
        """Both."""
        return _joined([self, more])


def _joined(parts: list[Edges]) -> Edges:
    def column(name: str) -> np.ndarray:
        return np.concatenate([np.empty(0, dtype=np.intp), *(getattr(part, name) for part in parts)])

    return Edges(column("writer"), column("reader"), column("position"), column("row"), column("level"))


def _wr_edges(index: CellIndex) -> Edges:
    parts = []
    for position in range(len(index.partitions)):
        rows, writer, reader, level = _inside(index, position)
        keep = (writer != reader) & index.committed[writer] & index.committed[reader]
        parts.append(Edges(writer[keep], reader[keep], np.full(int(keep.sum()), position), rows[keep], level[keep]))
    return _joined(parts)


def _ww_edges(index: CellIndex) -> Edges:
    """Of neighbours in V: the order of all follows from them."""
    parts = []
    for position, partition in enumerate(index.partitions):
        rows, transaction = index.transactions_of_reads(position, partition.visible.rows)
        keep = index.committed[transaction]
        rows, transaction = rows[keep], transaction[keep]
        new = np.flatnonzero(differs_from_previous(transaction))[1:]
        level = np.full(len(new), Isolation.NOT_A_READER)
        parts.append(Edges(transaction[new - 1], transaction[new], np.full(len(new), position), rows[new - 1], level))
    return _joined(parts)


def _inside(index: CellIndex, position: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Reads inside transactions, of records of transactions: rows of `reads`, writing and reading transaction, level."""
    rows, writer, level = index.consumed(position)
    reads = index.partitions[position].reads
    reader = reading_transactions(index.transactions, reads["client"][rows], reads["read_ns"][rows])
    mine = reader >= 0
    return rows[mine], writer[mine], reader[mine], level[mine]


# --- cycles ---------------------------------------------------------------------------------------------------------


def _cycle_witnesses(index: CellIndex, edges: Edges, case: int) -> np.ndarray:
    """One witness for each strongly connected component of more than one transaction."""
    size = len(index.transactions)
    if not len(edges.writer):
        return no_witnesses()
    ones = np.ones(len(edges.writer), dtype=np.int8)
    graph = coo_matrix((ones, (edges.writer, edges.reader)), shape=(size, size)).tocsr()
    _, label = connected_components(graph, directed=True, connection="strong")
    cyclic = np.bincount(label, minlength=1) > 1
    inside = edges.chosen((label[edges.writer] == label[edges.reader]) & cyclic[label[edges.writer]])
    component = label[inside.writer]
    order = np.argsort(component, kind="stable")
    starts = np.flatnonzero(differs_from_previous(component[order]))
    found = [no_witnesses()]
    for members in np.split(order, starts[1:]) if len(order) else []:  # as many as there are components
        found.append(_witness(index, inside, _shortest_cycle(inside, members), case))
    return np.concatenate(found)


def _shortest_cycle(edges: Edges, members: np.ndarray) -> list[int]:
    """Edges of a shortest cycle through the transaction that comes first: `members` are edges of one component."""
    writer, reader = edges.writer[members], edges.reader[members]
    nodes = distinct(writer)  # in a component everybody writes
    writer, reader = np.searchsorted(nodes, writer), np.searchsorted(nodes, reader)
    graph = coo_matrix((np.ones(len(members), dtype=np.int8), (writer, reader)), shape=(len(nodes), len(nodes))).tocsr()
    order, before = breadth_first_order(graph, 0, directed=True, return_predecessors=True)
    leads_back = np.zeros(len(nodes), dtype=bool)
    leads_back[writer[reader == 0]] = True
    path = [int(order[leads_back[order]][0])]  # found nearest first
    while path[-1] != 0:
        path.append(int(before[path[-1]]))
    path = [*path[::-1], 0]
    return [int(members[np.flatnonzero((writer == a) & (reader == b))[0]]) for a, b in pairwise(path)]


def _witness(index: CellIndex, edges: Edges, cycle: list[int], case: int) -> np.ndarray:
    """Of the read (or write) that closes the cycle too early, and the next one."""

    def early(edge: int) -> bool:
        reads = index.partitions[int(edges.position[edge])].reads
        commit_ns = index.transactions.commit_invoked_ns[edges.writer[edge]]
        return bool(edges.level[edge] != Isolation.NOT_A_READER and reads["read_ns"][edges.row[edge]] < commit_ns)

    at = next((place for place, edge in enumerate(cycle) if early(edge)), 0)
    edge, following = cycle[at], cycle[(at + 1) % len(cycle)]
    partition, row = index.partitions[int(edges.position[edge])], edges.row[[edge]]
    other, other_row = index.partitions[int(edges.position[following])], edges.row[following]
    columns = {
        "partition": partition.partition,
        "client": partition.reads["sender"][row],
        "sequence": partition.reads["sequence"][row],
        "log_offset": partition.reads["log_offset"][row],
        "reader": int(index.transactions.columns["client"][edges.reader[edge]]),
        "seen_ns": partition.reads["read_ns"][row],
        "other_client": int(other.reads["sender"][other_row]),
        "other_sequence": int(other.reads["sequence"][other_row]),
        "other_offset": int(other.reads["log_offset"][other_row]),
        "other_ns": int(other.reads["read_ns"][other_row]),
        "case": case,
        **partition.sent(partition.send_rows(partition.read_key[row])),
    }
    return make_witnesses(1, columns)
