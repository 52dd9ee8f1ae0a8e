"""These kernels check transactions: all or nothing, only what was committed (G1a), nothing of a fenced producer, and no
cycles (G0, G1c)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from prozess.checkers.lookup import differs_from_previous, distinct
from prozess.checkers.transactions.index import CellIndex, NoticedTransactions
from prozess.harness.columns import of_clients
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, EarlyCase, join_witnesses, make_witnesses, no_witnesses
from prozess.harness.schema import MISSING, NONE, Isolation

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


# What Kafka promises to consumers at read_committed.
#
# Source of all: KIP-98 "Exactly Once Delivery and Transactional Messaging", and
# https://kafka.apache.org/documentation/#consumerconfigs_isolation.level. Counts are of records. Each record is a
# witness of its own, in its own partition, because what excuses one (its partition lost data) does not excuse another.


AT_READ_COMMITTED = EarlyCase.READ_COMMITTED.value
"""Case of `aborted-read`, and EarlyCase: a read_committed consumer received the record, or V shows it."""
AT_READ_UNCOMMITTED = EarlyCase.READ_UNCOMMITTED.value
"""Case of `aborted-read`, and EarlyCase: a read_uncommitted consumer received the record, and nothing else was promised."""


def torn(history: CellHistory) -> KernelResult:
    """read_committed shows all records of a transaction, or none of them.

    Counts the records that are missing from V while V shows another of their transaction (`other_*`). Not judged:
    transactions that were only ever aborted (what is shown of them is `aborted-read`); what retention or compaction may have
    removed, what may stand behind the sentinel. O(n).

    Example: a transaction wrote a, b and c, and V is [a c]: b is missing, and `other_*` names a. If V had none of the
    three, this would be `lost-transaction`, or right, if the transaction was aborted.
    """
    index = CellIndex.of(history)
    rows = index.missing_of(index.judged_whole)
    if not len(rows):
        return _of_records(index, rows, {}, judged=index.committed_count)
    which = index.transaction[rows[:WITNESSES_MAX]]
    sequence, offset = index.first_shown(which)
    columns = {
        "other_client": index.transactions.columns["client"][which],
        "other_sequence": sequence,
        "other_offset": offset,
    }
    return _of_records(index, rows, columns, judged=index.committed_count)


def lost_transaction(history: CellHistory) -> KernelResult:
    """A transaction whose commit was confirmed, or seen by a read_committed consumer, is shown.

    Counts the records of committed transactions of which V shows none. O(n).

    Example: a transaction wrote a and b, its commit was confirmed, and V has neither: two records count.
    """
    index = CellIndex.of(history)
    rows = index.missing_of(index.gone)
    return _of_records(index, rows, {}, judged=index.committed_count)


def zombie_write(history: CellHistory) -> KernelResult:
    """Once init_transactions of a later instance of a transactional.id has returned, no earlier instance commits
    anything.

    Source: KIP-98, "Zombie fencing". Counts records in V of transactions whose commit was invoked after that (`other_ns`,
    `other_client`: the later instance). A commit that overlaps the init is legal; so is one of an instance of which it is not
    certain that it is the earlier. O(n).

    Example: instance 1 of an id wrote a, and init_transactions of instance 2 returned at 10 s. Instance 1 then invoked its
    commit at 12 s, and V shows a: a counts. A commit that was invoked at 9 s overlaps the init, and is legal.
    """
    index = CellIndex.of(history)
    transactions = index.transactions
    rows = index.visible_of(transactions.zombie)
    if not len(rows):
        return _of_records(index, rows, {}, judged=transactions.committing)
    since, successor = transactions.superseded
    which = index.transaction[rows[:WITNESSES_MAX]]
    columns = {
        "log_offset": index.visible_offsets(rows[:WITNESSES_MAX]),
        "other_ns": since[which],
        "other_client": successor[which],
    }
    return _of_records(index, rows, columns, judged=transactions.committing)


def aborted_read(history: CellHistory) -> KernelResult:
    """A record of an aborted transaction is never shown at read_committed.

    Counts records per isolation level, however often they were given: at read_committed by a consumer or V
    (AT_READ_COMMITTED), at read_uncommitted by a consumer (AT_READ_UNCOMMITTED). O(n), O(k log k) for k reads of aborted
    records.

    Example: a transaction that wrote a was aborted. Two consumers at read_committed and one at read_uncommitted received a:
    one witness for each of the two levels.
    """
    index = CellIndex.of(history)
    return finding_of_reads(index, partial(aborted_reads, index))


def aborted_reads(index: CellIndex, position: int) -> np.ndarray:
    """Returns the rows of `reads` of partition number `position` that show a record of an aborted transaction."""
    if not index.has(position, NoticedTransactions.ABORTED):
        return np.empty(0, dtype=np.intp)
    aborted = index.transactions.aborted
    rows, transaction, _ = index.consumed(position)
    shown, shown_transaction = index.shown_by(position)
    return np.concatenate([rows[aborted[transaction]], shown[aborted[shown_transaction]]])


def _of_records(index: CellIndex, rows: np.ndarray, columns: dict[str, np.ndarray], *, judged: int) -> KernelResult:
    """Returns a finding of these records. `columns` belong to the first WITNESSES_MAX of them."""
    count = len(rows)
    rows = rows[:WITNESSES_MAX]
    if not len(rows):
        return KernelResult(no_witnesses(), count, judged, incomplete=index.incomplete)
    numbers = np.array([partition.partition for partition in index.partitions])
    whole = {
        "partition": numbers[index.which[rows]],
        "client": index.of_sends("client")[rows],
        "sequence": index.of_sends("sequence")[rows],
        "log_offset": index.of_sends("log_offset")[rows],
        "begin_ns": index.of_sends("invoked_ns")[rows],
        "end_ns": index.of_sends("completed_ns")[rows],
        "outcome": index.of_sends("outcome")[rows],
        "seen_ns": np.full(len(rows), MISSING),
        "reader": np.full(len(rows), NONE),
    }
    for position, partition in enumerate(index.partitions):
        mine = index.which[rows] == position
        if mine.any():
            seen = partition.seen(partition.send_key[index.row[rows[mine]]])
            whole["seen_ns"][mine], whole["reader"][mine] = seen["seen_ns"], seen["reader"]
    # Without an audit what is missing was read past: the finding stands.
    reason = index.incomplete if index.audited else None
    return KernelResult(make_witnesses(len(rows), whole | columns), count, judged, incomplete=reason)


def finding_of_reads(index: CellIndex, of: Callable[[int], np.ndarray]) -> KernelResult:
    """Returns a finding of the reads that `of` chooses (rows for each partition). It has one witness for each record and
    isolation level, which names the first reader. read_committed comes before read_uncommitted."""
    parts: list[np.ndarray] = []
    judged = 0
    for position, partition in enumerate(index.partitions):
        judged += index.reads_judged(position)
        rows = of(position)
        if not len(rows):
            continue
        reads = partition.reads
        level = of_clients(partition.client_isolation, reads["client"][rows], unknown=Isolation.READ_UNCOMMITTED)
        case = np.where(level == Isolation.READ_COMMITTED.value, AT_READ_COMMITTED, AT_READ_UNCOMMITTED)
        audit = ~partition.read_by_consumer(rows)
        # Sorted by level, then record, then consumers before the audit, then time: the first row of each (level, record)
        # is the witness.
        # AT_READ_COMMITTED is less than AT_READ_UNCOMMITTED, and so comes first.
        order = np.lexsort((reads["read_ns"][rows], audit, partition.read_key[rows], case))
        rows, case, audit = rows[order], case[order], audit[order]
        new = differs_from_previous(partition.read_key[rows]) | differs_from_previous(case)
        rows, case, audit = rows[new], case[new], audit[new]
        columns = {
            "partition": np.full(len(rows), partition.partition),
            **partition.records_read(rows),
            "reader": reads["client"][rows],
            "seen_ns": np.where(audit, MISSING, reads["read_ns"][rows]),
            "case": case,
            **partition.sent(partition.send_rows(partition.read_key[rows])),
        }
        parts.append(make_witnesses(len(rows), columns))
    found = join_witnesses(parts)
    found = found[np.argsort(found["case"], kind="stable")]
    return KernelResult(found[:WITNESSES_MAX], len(found), judged, incomplete=index.incomplete)


# What transactions read themselves. A read belongs to the transaction that its client had open when it received the
# record.


def own_read(history: CellHistory) -> KernelResult:
    """A transaction that reads at read_committed does not receive what it wrote itself, which is not committed yet.

    Source: KIP-98; https://kafka.apache.org/documentation/#consumerconfigs_isolation.level. Counts records per isolation
    level, as `aborted-read`. O(k log n) for k reads inside transactions.

    Example: a client begins a transaction, sends a, polls at read_committed and is given a before it has committed: a
    counts.
    """
    index = CellIndex.of(history)
    judged = 0

    def of(position: int) -> np.ndarray:
        nonlocal judged
        rows, writer, _ = index.consumed(position)
        reader = index.read_inside(position)
        judged += int(np.count_nonzero(reader >= 0))
        own: np.ndarray = rows[writer == reader]
        return own

    found = finding_of_reads(index, of)
    return KernelResult(found.witnesses, found.count, judged, incomplete=None)


# Transactions that depend on one another in circles.
#
# Terms (wr, ww, G0, G1c): Adya, "Weak Consistency: A Generalized Theory and Optimistic Implementations for Distributed
# Transactions", MIT 1999; as Jepsen uses them of Kafka, https://jepsen.io/analyses/redpanda-21.10.1. wr: the second
# transaction read what the first wrote. ww: it wrote behind the first.


BY_WRITES = 2
"""Case of `write-cycle`: the cycle needs both the order of two writes and a read (G1c over ww edges)."""
BY_WRITES_ALONE = 3
"""Case of `write-cycle`: the order of writes is a cycle already (G0)."""


def information_cycle(history: CellHistory) -> KernelResult:
    """Among committed transactions there is no cycle of "read what the other wrote" (wr): a transaction that reads at
    read_committed depends on transactions that were committed before.

    Source: KIP-98, read_committed; Adya's G1c over wr edges alone. Counts the sets of transactions that are connected in
    cycles; per set and isolation level one witness: of a shortest cycle the read that came before the writer's commit was
    invoked, of which there must be one (`client`, `sequence`, `log_offset`: the record read; `reader`: by whom;
    `other_*`: the record whose reading leads on). O(n + e).

    Example: transaction 1 received a record of 2, and 2 received one of 1, and both were committed. The edges 2 → 1 and 1 →
    2 are a cycle: one set. The read that came before the writer's commit is the witness.
    """
    index = CellIndex.of(history)
    edges, judged = _read(index)
    found, count = list[np.ndarray](), 0
    for level, case in (
        (Isolation.READ_COMMITTED, AT_READ_COMMITTED),
        (Isolation.READ_UNCOMMITTED, AT_READ_UNCOMMITTED),
    ):
        inside, number = cyclic(index, edges.chosen(edges.level == level))
        cycles = [
            members[shortest_cycle(inside.writer[members], inside.reader[members])]
            for members in _groups(number, below=WITNESSES_MAX)
        ]
        found.append(_witnesses(index, inside, cycles, [case] * len(cycles)))
        count += int(number.max(initial=-1)) + 1
    return KernelResult(join_witnesses(found)[:WITNESSES_MAX], count, judged)


def write_cycle(history: CellHistory) -> KernelResult:
    """Transactions interleave: their writes, with or without what they read, form cycles (G0; G1c over ww edges).

    Kafka promises nothing against it: each partition is written in the order of arrival. Counts the sets of committed
    transactions that are connected in cycles with at least one edge of the order of writes in V; one witness each, as
    `information-cycle`, of a cycle with such an edge; `case`: BY_WRITES_ALONE, BY_WRITES. O(n + e).

    Example: one partition has the records of transactions 1 and 2 in the order [1 2], another one in the order [2 1]: the
    edges 1 → 2 and 2 → 1 are a cycle, BY_WRITES_ALONE.
    """
    index = CellIndex.of(history)
    written, judged = _written(index)
    inside, number = cyclic(index, _read(index)[0].and_those(written))
    by_write = inside.level == Isolation.NOT_A_READER.value
    # G0 is looked for within the edges of writes alone; a set that has such a cycle shows that one.
    alone = np.full(len(number), -1, dtype=np.intp)
    alone[by_write] = components(inside.writer[by_write], inside.reader[by_write])
    # Which sets have an edge by writes at all: those without are `information-cycle` alone.
    counted = np.zeros(int(number.max(initial=-1)) + 1, dtype=bool)
    counted[number[by_write]] = True
    sets, alone_sets = _groups(number, below=len(counted)), _groups(alone, below=len(alone))
    cycles, cases = list[np.ndarray](), list[int]()
    for one in np.flatnonzero(counted)[:WITNESSES_MAX].tolist():
        members, case = sets[one], BY_WRITES
        its = alone[members]
        if (its >= 0).any():  # perhaps several times: of the first
            members, case = alone_sets[int(its[its >= 0].min())], BY_WRITES_ALONE
        first = int(np.flatnonzero(by_write[members])[0])
        cycles.append(members[shortest_cycle(inside.writer[members], inside.reader[members], first)])
        cases.append(case)
    witnesses = _witnesses(index, inside, cycles, cases)
    return KernelResult(witnesses, int(np.count_nonzero(counted)), judged)


# Edges.


@dataclass(frozen=True, slots=True)
class Edges:
    """Edges between committed transactions: the second read what the first wrote, or wrote behind it. All arrays have
    one entry for each edge."""

    writer: np.ndarray
    """intp: the index of the transaction whose record was read or overwritten."""
    reader: np.ndarray
    """intp: the index of the transaction that read it, or wrote after it."""
    position: np.ndarray
    """intp: which partition of the cell it happened in."""
    row: np.ndarray
    """intp: the row of `reads` of that partition that shows the record."""
    level: np.ndarray
    """int32, Isolation: the level of the read. NOT_A_READER for an edge between writes."""

    def chosen(self, mask: np.ndarray) -> "Edges":
        """Returns the edges where `mask` is true, or in the indices that it names."""
        return Edges(self.writer[mask], self.reader[mask], self.position[mask], self.row[mask], self.level[mask])

    def and_those(self, more: "Edges") -> "Edges":
        """Returns these edges, and behind them `more`."""
        return join_edges([self, more])


def join_edges(parts: list[Edges]) -> Edges:
    """Returns all of these edges, in their order."""
    if len(parts) == 1:
        return parts[0]
    assert all(len(part.writer) == len(part.row) == len(part.level) for part in parts), "one entry for each edge"

    def column(name: str) -> np.ndarray:
        return np.concatenate([np.empty(0, dtype=np.intp), *(getattr(part, name) for part in parts)])

    return Edges(column("writer"), column("reader"), column("position"), column("row"), column("level"))


def _read(index: CellIndex) -> tuple[Edges, int]:
    """Returns all edges by reads that may be in cycles, and how many edges by reads there are."""
    if index.known is None:
        edges = wr_edges(index)
        return edges, len(edges.writer)
    known: Edges = index.known.ranked_edges
    return _numbered(index, known.chosen(known.level != Isolation.NOT_A_READER.value)), index.known.edges_judged[0]


def _written(index: CellIndex) -> tuple[Edges, int]:
    """Returns all edges by writes that may be in cycles, and how many edges by writes there are."""
    if index.known is None:
        edges = ww_edges(index)
        return edges, len(edges.writer)
    known: Edges = index.known.ranked_edges
    return _numbered(index, known.chosen(known.level == Isolation.NOT_A_READER.value)), index.known.edges_judged[1]


def _numbered(index: CellIndex, ranked: Edges) -> Edges:
    """Returns these edges with the numbers of their transactions, instead of their ranks in time."""
    number = index.transactions.by_rank
    return replace(ranked, writer=number[ranked.writer], reader=number[ranked.reader])


def wr_edges(index: CellIndex, among: np.ndarray | None = None) -> Edges:
    """Returns an edge for each read by one transaction of what another transaction wrote. `among`: bool[transactions],
    those that count. None: the committed ones."""
    committed = index.committed if among is None else among
    parts = []
    for position in range(len(index.partitions)):
        rows, writer, level = index.consumed(position)
        reader = index.read_inside(position)
        inside = (reader >= 0) & (writer != reader)
        keep = np.flatnonzero(inside & committed[writer] & committed[reader])
        parts.append(Edges(writer[keep], reader[keep], np.full(len(keep), position), rows[keep], level[keep]))
    return join_edges(parts)


def ww_edges(index: CellIndex, among: np.ndarray | None = None) -> Edges:
    """Returns an edge for each two transactions that are neighbours in V, among those that count (as of
    `wr_edges`). The order of all writes follows from these."""
    committed = index.committed if among is None else among
    parts = []
    for position in range(len(index.partitions)):
        rows, transaction = index.shown_by(position)
        keep = committed[transaction]
        rows, transaction = rows[keep], transaction[keep]
        # Example: V has records of transactions [1 1 2 2 1]. Neighbours change at 2 and at 4: the edges 1 → 2 and 2 → 1.
        new = np.flatnonzero(differs_from_previous(transaction))[1:]
        if index.part is not None:  # what stands between those two is in another part
            slot = gap_numbers(index, position, rows)
            new = new[slot[new - 1] == slot[new]]
        level = np.full(len(new), Isolation.NOT_A_READER)
        parts.append(Edges(transaction[new - 1], transaction[new], np.full(len(new), position), rows[new - 1], level))
    return join_edges(parts)


def gap_numbers(index: CellIndex, position: int, rows: np.ndarray) -> np.ndarray:
    """Returns intp[k]: in which index between records of other parts these rows of `reads` stand in the log. Rows with the
    same number follow one another there. In the last part each has its own."""
    assert index.part is not None
    return np.asarray(np.searchsorted(index.part.breaks, index.partitions[position].reads["log_offset"][rows]))


# Cycles.


def cyclic(index: CellIndex, edges: Edges) -> tuple[Edges, np.ndarray]:
    """Returns the edges that are in cycles, and the set that each belongs to. Sets are numbered by their first
    transaction."""
    span = time_spans(edges.writer, edges.reader, index.transactions.in_time)
    edges = edges.chosen(entangled(edges.writer, edges.reader, span))
    number = components(edges.writer, edges.reader)
    assert len(number) == len(edges.writer), "each edge has a component, or -1"
    return edges.chosen(number >= 0), number[number >= 0]


def _groups(number: np.ndarray, *, below: int) -> list[np.ndarray]:
    """Returns the rows of each number that is less than `below`, ascending."""
    order = np.argsort(number, kind="stable")
    # Example: numbers 1 0 1 in order are 0 1 1, and their bounds 0 1 3: the rows [1] and [0 2].
    bounds = np.searchsorted(number[order], np.arange(min(below, int(number.max(initial=-1)) + 1) + 1))
    return [order[low:high] for low, high in pairwise(bounds)]


def _witnesses(index: CellIndex, edges: Edges, cycles: Sequence[np.ndarray], cases: Sequence[int]) -> np.ndarray:
    """Returns one witness for each cycle (edges in their order): of the read (or write) that closes it too early, and of the
    edge after it."""
    lengths = np.cumsum([0, *map(len, cycles)])
    on = edges.chosen(np.concatenate([np.empty(0, dtype=np.intp), *cycles]))
    read_ns = _of_reads(index, on, "read_ns")
    early = (on.level != Isolation.NOT_A_READER.value) & (read_ns < index.transactions.commit_invoked_ns[on.writer])
    # Example: edges 4 9 2, of which 9 and 2 are early: the witness is of 9, and 2 follows it. If none is, it is of 4.
    at = [int(np.argmax(early[begin:end])) for begin, end in pairwise(lengths)]
    assert len(cases) == len(cycles), "a case for each cycle"
    chosen, following = (
        lengths[:-1] + np.array([(slot + ahead) % len(cycle) for slot, cycle in zip(at, cycles, strict=True)], np.intp)
        for ahead in (0, 1)
    )
    mine, other = on.chosen(chosen), on.chosen(following)
    columns = {
        "partition": np.array([partition.partition for partition in index.partitions], dtype=np.int64)[mine.position],
        "client": _of_reads(index, mine, "sender"),
        "sequence": _of_reads(index, mine, "sequence"),
        "log_offset": _of_reads(index, mine, "log_offset"),
        "reader": index.transactions.columns["client"][mine.reader],
        "seen_ns": read_ns[chosen],
        "other_client": _of_reads(index, other, "sender"),
        "other_sequence": _of_reads(index, other, "sequence"),
        "other_offset": _of_reads(index, other, "log_offset"),
        "other_ns": read_ns[following],
        "case": np.array(cases, dtype=np.int64),
        "begin_ns": np.full(len(chosen), MISSING),
        "end_ns": np.full(len(chosen), MISSING),
        "outcome": np.full(len(chosen), NONE),
    }
    for position, rows in _by_partition(mine):
        partition = index.partitions[position]
        for name, values in partition.sent(partition.send_rows(partition.read_key[mine.row[rows]])).items():
            columns[name][rows] = values
    return make_witnesses(len(chosen), columns)


def _of_reads(index: CellIndex, edges: Edges, column: str) -> np.ndarray:
    """Returns int64[edges]: a column of the reads that show the edges."""
    found = np.zeros(len(edges.row), dtype=np.int64)
    for position, rows in _by_partition(edges):
        found[rows] = index.partitions[position].reads[column][edges.row[rows]]
    return found


def _by_partition(edges: Edges) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the index of each partition that shows some of these edges, and which."""
    groups = _groups(edges.position, below=int(edges.position.max(initial=-1)) + 1)
    return ((position, rows) for position, rows in enumerate(groups) if len(rows))


# Cycles in a graph whose edges nearly all lead forward in time: which nodes are in them, and a shortest one. Edges are
# pairs of arrays, `tail` → `head`, of numbers of nodes. These functions do not know what nodes and edges are.


# Importing scipy takes a seventh of a second, which most checks need not spend: they find no edge at all.


def entangled(tail: np.ndarray, head: np.ndarray, span: np.ndarray) -> np.ndarray:
    """Returns bool[edges]: may this edge be in a cycle, by the order in time? `span` is what `time_spans` returns."""
    found: np.ndarray = span[tail] == span[head]
    return found


def time_spans(tail: np.ndarray, head: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Returns intp[nodes]: the span of time that each node belongs to, such that no cycle leaves a span. `rank` is
    the index of each node in time, a permutation. Only edges that lead backwards matter, so the others may be left out.

    Where a cycle passes a moment forwards it must come back: moments that no edge passes backwards are in no cycle. Any
    ranks are right; the better they order the edges, the shorter the spans are. O(nodes + edges).
    """
    assert len(tail) == len(head), "an edge has two ends"
    assert not len(rank) or len(rank) == rank.max() + 1, "ranks are a permutation"
    back = rank[tail] > rank[head]
    # Example: ranks 0 to 4 and an edge back from 3 to 1. From 1 up to 3 a moment is passed backwards: the spans are 0,
    # 1–3, 4.
    begin, end = (np.bincount(rank[of[back]], minlength=len(rank)) for of in (head, tail))
    uncut = np.cumsum(begin - end) > 0  # does an edge lead back from behind each index to it, or to one before it?
    # In the example begin - end is [0 1 0 -1 0], its sum [0 1 1 0 0]: uncut behind 1 and 2. The numbers are 0 1 1 1 2.
    number = np.cumsum(np.concatenate([[0], ~uncut[:-1]])) if len(rank) else np.empty(0, dtype=np.int64)
    found: np.ndarray = number[rank]
    return found


def components(tail: np.ndarray, head: np.ndarray) -> np.ndarray:
    """Returns intp[edges]: the number of the strongly connected component that an edge is inside of, -1 if it is in no
    cycle. Components of one node do not count, nor does an edge from a node to itself. They are numbered by their least
    node. O(edges · log edges)."""
    assert len(tail) == len(head), "an edge has two ends"
    found = np.full(len(tail), -1, dtype=np.intp)
    nodes = distinct(np.concatenate([tail, head]))
    # Nodes 4 7 9 become 0 1 2: the graph is as large as what is left, and not as the cell.
    tail, head = np.searchsorted(nodes, tail), np.searchsorted(nodes, head)
    rows = _leading_on(tail, head, len(nodes))
    if not len(rows):
        return found
    from scipy.sparse.csgraph import connected_components

    tail, head = tail[rows], head[rows]
    _, label = connected_components(_graph(tail, head, len(nodes)), directed=True, connection="strong")
    # An edge whose ends have one label is in a cycle: there is a way back.
    inside = (label[tail] == label[head]) & (tail != head)
    order = np.argsort(label, kind="stable")  # the first of each label is its least node
    # scipy numbers components in no order that we know: each is named by its least node instead.
    starts = differs_from_previous(label[order])
    least = np.zeros(len(nodes), dtype=np.intp)
    least[label[order[starts]]] = order[starts]
    of_edge = least[label[tail]]
    found[rows[inside]] = np.searchsorted(distinct(of_edge[inside]), of_edge[inside])
    return found


_TRIMS = 32
"""How many times edges of dead ends are left out before components are looked for."""


def _leading_on(tail: np.ndarray, head: np.ndarray, size: int) -> np.ndarray:
    """Returns intp[k]: which edges are left when those are left out that no edge leads to, or on from, again and again: all
    that are in cycles, and few others. Where nothing is left there is no cycle."""
    rows = np.arange(len(tail))
    for _ in range(_TRIMS):
        # Example: edges 0→1, 1→2, 2→1. No edge leads to 0, so 0→1 goes; 1 and 2 have edges both ways, and stay.
        on = (np.bincount(tail[rows], minlength=size) > 0) & (np.bincount(head[rows], minlength=size) > 0)
        keep = on[tail[rows]] & on[head[rows]]
        if keep.all():
            break
        rows = rows[keep]
    return rows


def shortest_cycle(tail: np.ndarray, head: np.ndarray, first: int | None = None) -> list[int]:
    """Returns the edges, in their order, of a shortest cycle through edge `first`. None: through the least node. All
    edges are inside one component. Among equally short cycles it takes the first."""
    assert len(tail) == len(head) > 0, "a component has edges"
    if (two := _cycle_of_two(tail, head, first)) is not None:
        return two
    from scipy.sparse.csgraph import breadth_first_order

    nodes = distinct(tail)  # in a component every node has an edge
    tail, head = np.searchsorted(nodes, tail), np.searchsorted(nodes, head)
    begin, end = (0, None) if first is None else (int(head[first]), int(tail[first]))
    # Breadth first from behind the edge that must be in it: the first way found to its other end is a shortest one.
    graph = _graph(tail, head, len(nodes))
    order, before = breadth_first_order(graph, begin, directed=True, return_predecessors=True)
    if end is None:
        leads_back = np.zeros(len(nodes), dtype=bool)
        leads_back[tail[head == begin]] = True
        leads_back[begin] = False
        end = int(order[leads_back[order]][0])  # found nearest first
    # `before` leads back from each node to the one that it was found from: the path is read from its end.
    path = [end]
    while path[-1] != begin:
        path.append(int(before[path[-1]]))
    path = path[::-1]
    edges = [int(np.flatnonzero((tail == a) & (head == b))[0]) for a, b in pairwise(path)]
    closing = first if first is not None else int(np.flatnonzero((tail == end) & (head == begin))[0])
    return [*edges, closing]


def _cycle_of_two(tail: np.ndarray, head: np.ndarray, first: int | None) -> list[int] | None:
    """Returns the cycle that `shortest_cycle` returns, if it has two edges, as nearly all have. It needs no graph."""
    if first is None:
        begin = int(tail.min())
        near = set(head[tail == begin].tolist()) & set(tail[head == begin].tolist()) - {begin}
        if not near:
            return None
        first = int(np.flatnonzero((tail == min(near)) & (head == begin))[0])
    # Example: the edges 1→2 2→3 3→1 2→1, and `first` is 3, which leads from 2 to 1: the cycle is 1→2, 2→1.
    back = np.flatnonzero((tail == head[first]) & (head == tail[first]))
    return [int(back[0]), first] if len(back) else None


def _graph(tail: np.ndarray, head: np.ndarray, size: int) -> "csr_matrix":
    """Returns a graph that has each edge once, in order, so that the same edges give the same graph in whatever order
    they came."""
    from scipy.sparse import csr_matrix

    # Each edge once, as one number, ascending: by tail, then by head, as a sparse matrix has its rows.
    # Example: 3 nodes and the edges 2→0, 0→1: the numbers 6 and 1, in order 1 6, which are 0→1 and 2→0.
    key = distinct(tail.astype(np.int64) * size + head)
    tail, head = key // max(1, size), key % max(1, size)
    # The rows of a CSR matrix: edges of node n are from first[n] to first[n + 1]. Example: tails 0 0 2 → [0 2 2 3].
    first = np.searchsorted(tail, np.arange(size + 1))
    return csr_matrix((np.ones(len(key), dtype=np.int8), head, first), shape=(size, size))
