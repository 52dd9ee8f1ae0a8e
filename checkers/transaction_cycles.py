"""Transactions that depend on one another in circles. Kernels over a whole cell; stage check.

Terms (wr, ww, G0, G1c): Adya, "Weak Consistency: A Generalized Theory and Optimistic Implementations for Distributed
Transactions", MIT 1999; as Jepsen uses them of Kafka, https://jepsen.io/analyses/redpanda-21.10.1. wr: one read what the
other wrote; ww: one wrote behind the other.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from checkers.cycles import components, entangled, shortest_cycle, stretches
from checkers.lookup import differs_from_previous
from checkers.transaction_arrays import CellIndex
from checkers.transaction_reads import reads_inside
from checkers.transactions import AT_READ_COMMITTED, AT_READ_UNCOMMITTED
from harness.protocols import CellHistory, KernelResult
from harness.schema import Isolation
from harness.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses

BY_WRITES = 2
"""`case` of `write-cycle`: the cycle needs both the order of two writes and a read (G1c over ww edges)."""
BY_WRITES_ALONE = 3
"""… the order of writes is a cycle already (G0)."""


def information_cycle(history: CellHistory) -> KernelResult:
    """Among committed transactions there is no cycle of "read what the other wrote" (wr): who reads at read_committed inside
    a transaction depends on transactions that were committed before.

    Source: KIP-98, read_committed; Adya's G1c over wr edges alone. Counts the sets of transactions that are connected in
    cycles; per set and isolation level one witness: of a shortest cycle the read that came before the writer's commit was
    invoked, of which there must be one (`client`, `sequence`, `log_offset`: the record read; `reader`: by whom;
    `other_*`: the record whose reading leads on). O(n + e).
    """
    index = CellIndex.of(history)
    edges, judged = _read(index)
    found, count = [no_witnesses()], 0
    for level, case in (
        (Isolation.READ_COMMITTED, AT_READ_COMMITTED),
        (Isolation.READ_UNCOMMITTED, AT_READ_UNCOMMITTED),
    ):
        inside, number = cyclic(index, edges.chosen(edges.level == level))
        for members in _groups(number, below=WITNESSES_MAX):
            mine = inside.chosen(members)
            found.append(_witness(index, mine, shortest_cycle(mine.writer, mine.reader), case))
        count += int(number.max(initial=-1)) + 1
    return KernelResult(np.concatenate(found)[:WITNESSES_MAX], count, judged)


def write_cycle(history: CellHistory) -> KernelResult:
    """Transactions interleave: their writes, with or without what they read, form cycles (G0; G1c over ww edges).

    Kafka promises nothing against it: each partition is written in the order of arrival. Counts the sets of committed
    transactions that are connected in cycles with at least one edge of the order of writes in V; one witness each, as
    `information-cycle`, of a cycle with such an edge; `case`: BY_WRITES_ALONE, BY_WRITES. O(n + e).
    """
    index = CellIndex.of(history)
    written, judged = _written(index)
    inside, number = cyclic(index, _read(index)[0].and_those(written))
    by_write = inside.level == Isolation.NOT_A_READER
    alone = np.full(len(number), -1, dtype=np.intp)
    alone[by_write] = components(inside.writer[by_write], inside.reader[by_write])
    counted = np.zeros(int(number.max(initial=-1)) + 1, dtype=bool)
    counted[number[by_write]] = True
    found = [no_witnesses()]
    for one in np.flatnonzero(counted)[:WITNESSES_MAX].tolist():
        members, case = number == one, BY_WRITES
        if (alone[members] >= 0).any():  # perhaps several times: of the first
            members, case = alone == alone[members & (alone >= 0)].min(), BY_WRITES_ALONE
        mine = inside.chosen(members)
        first = int(np.flatnonzero(mine.level == Isolation.NOT_A_READER)[0])
        found.append(_witness(index, mine, shortest_cycle(mine.writer, mine.reader, first), case))
    return KernelResult(np.concatenate(found), int(np.count_nonzero(counted)), judged)


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
        return joined([self, more])


def joined(parts: list[Edges]) -> Edges:
    """All of them, in their order."""

    def column(name: str) -> np.ndarray:
        return np.concatenate([np.empty(0, dtype=np.intp), *(getattr(part, name) for part in parts)])

    return Edges(column("writer"), column("reader"), column("position"), column("row"), column("level"))


def _read(index: CellIndex) -> tuple[Edges, int]:
    """Edges by reads, all that may be in cycles, and how many there are in all."""
    if index.known is None:
        edges = wr_edges(index)
        return edges, len(edges.writer)
    known: Edges = index.known.edges
    return known.chosen(known.level != Isolation.NOT_A_READER), index.known.edges_judged[0]


def _written(index: CellIndex) -> tuple[Edges, int]:
    """The same by writes."""
    if index.known is None:
        edges = ww_edges(index)
        return edges, len(edges.writer)
    known: Edges = index.known.edges
    return known.chosen(known.level == Isolation.NOT_A_READER), index.known.edges_judged[1]


def wr_edges(index: CellIndex) -> Edges:
    """What transactions read of one another."""
    parts = []
    for position in range(len(index.partitions)):
        rows, writer, reader, level = reads_inside(index, position)
        keep = (writer != reader) & index.committed[writer] & index.committed[reader]
        parts.append(Edges(writer[keep], reader[keep], np.full(int(keep.sum()), position), rows[keep], level[keep]))
    return joined(parts)


def ww_edges(index: CellIndex) -> Edges:
    """Of neighbours in V: the order of all follows from them."""
    parts = []
    for position in range(len(index.partitions)):
        rows, transaction = index.shown_by(position)
        keep = index.committed[transaction]
        rows, transaction = rows[keep], transaction[keep]
        new = np.flatnonzero(differs_from_previous(transaction))[1:]
        level = np.full(len(new), Isolation.NOT_A_READER)
        parts.append(Edges(transaction[new - 1], transaction[new], np.full(len(new), position), rows[new - 1], level))
    return joined(parts)


# --- cycles ---------------------------------------------------------------------------------------------------------


def cyclic(index: CellIndex, edges: Edges) -> tuple[Edges, np.ndarray]:
    """The edges that are in cycles, and which set each belongs to, numbered by the first transaction."""
    stretch = stretches(edges.writer, edges.reader, index.transactions.in_time)
    edges = edges.chosen(entangled(edges.writer, edges.reader, stretch))
    number = components(edges.writer, edges.reader)
    return edges.chosen(number >= 0), number[number >= 0]


def _groups(number: np.ndarray, *, below: int) -> list[np.ndarray]:
    """Rows of each number that is below so many, ascending."""
    order = np.argsort(number, kind="stable")
    bounds = np.searchsorted(number[order], np.arange(min(below, int(number.max(initial=-1)) + 1) + 1))
    return [order[low:high] for low, high in pairwise(bounds)]


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
