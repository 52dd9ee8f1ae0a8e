"""Cycles among transactions against brute force: edges record by record from the definitions, reachability by Warshall's
algorithm, on cells of up to 200 transactions. No code of the kernels, and no scipy."""

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prozess.checkers.transactions.index import CellIndex
from prozess.checkers.transactions.isolation import (
    AT_READ_COMMITTED,
    AT_READ_UNCOMMITTED,
    BY_WRITES,
    BY_WRITES_ALONE,
    components,
    cyclic,
    entangled,
    information_cycle,
    shortest_cycle,
    time_spans,
    wr_edges,
    write_cycle,
    ww_edges,
)
from prozess.harness.schema import NONE, Isolation
from tests.support.cells.partitions import CRASHED, FAIL, INFO, OK, PRODUCER, PRODUCER_2, READER_COMMITTED
from tests.support.cells.transactions import ABORT, COMMIT, A, B, cell_of, ended
from tests.support.examples import examples

QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
SEEDS = st.integers(0, 2**32)
LEVELS = {PRODUCER: Isolation.READ_COMMITTED, PRODUCER_2: Isolation.READ_UNCOMMITTED, CRASHED: Isolation.READ_COMMITTED}
Name = tuple[int, int]
"""A transaction: client, number."""
Graph = set[tuple[Name, Name]]


@dataclass
class Drawn:
    """A cell, as plain rows."""

    rows: list[dict[str, int]] = field(default_factory=list)
    sends: dict[int, list[tuple[int, ...]]] = field(default_factory=lambda: {A: [], B: []})
    """Partition → (client, sequence, outcome, offset, transaction)."""
    visible: dict[int, list[tuple[int, int, int]]] = field(default_factory=lambda: {A: [], B: []})
    """Partition → (offset, client, sequence)."""
    reads: dict[int, list[tuple[int, int, int, int, int]]] = field(default_factory=lambda: {A: [], B: []})
    """Partition → (reader, offset, client, sequence, when)."""

    def cell(self):
        """The arrays that kernels look at."""

        def partition(number):
            given_then = sorted(self.reads[number], key=lambda read: read[4])
            return {
                "sends": self.sends[number],
                "log": sorted((s[3], s[0], s[1]) for s in self.sends[number]),
                "visible": self.visible[number],
                "reads": [(*read[:4], {"read_ns": read[4]}) for read in given_then],
            }

        made = cell_of(partition(A), partition(B), self.rows)
        for one in made.partitions.values():
            for client, level in LEVELS.items():
                one.client_isolation[client] = level
        return made


def drawn(seed: int) -> Drawn:
    """Three clients with transactions one after the other, open at the same time as others'; records that stand, and are
    read, in nearly any order: as they come, or far too early."""
    rng, cell = random.Random(seed), Drawn()
    size = rng.choice((1, 2, 3, 5, 8, 13, 30)) if rng.random() < 0.95 else rng.randrange(30, 67)
    orderly, shown = rng.choice((0.0, 0.5, 0.95, 1.0)), rng.choice((0.02, 0.1, 0.9))
    written: dict[int, list[tuple[int, int, int, int]]] = {A: [], B: []}
    for client in LEVELS:
        sequence = 0
        for number in range(rng.randrange(size + 1)):
            outcome, by = rng.choices(((OK, COMMIT), (INFO, COMMIT), (FAIL, ABORT), (INFO, ABORT)), (80, 10, 5, 5))[0]
            begun = 1_000 * number + rng.randrange(100)
            end = begun + rng.randrange(1, 800)
            cell.rows.append(ended(client, number, outcome, by=by, at=end, begun_ns=begun))
            for _ in range(rng.randrange(4)):
                moment = rng.randrange(begun, end) if rng.random() < orderly else rng.randrange(1_000 * size)
                transaction = number if rng.random() < 0.95 else NONE
                written[rng.choice((A, B))].append((moment, client, sequence, transaction))
                sequence += 1
    for partition, records in written.items():
        for offset, (_, client, sequence, transaction) in enumerate(sorted(records)):
            cell.sends[partition].append((client, sequence, rng.choice((OK, INFO)), offset, transaction))
            if rng.random() < shown:
                cell.visible[partition].append((offset, client, sequence))
            for _ in range(rng.randrange(4)):
                reader = rng.choice((*LEVELS, READER_COMMITTED))
                inside = [row for row in cell.rows if row["client"] == reader]
                when = rng.randrange(1_000 * size)
                if inside and rng.random() < 0.9:
                    likely = inside if rng.random() >= orderly else inside[len(inside) * offset // len(records) :]
                    row = rng.choice(likely)
                    when = rng.randrange(row["begun_ns"], row["end_invoked_ns"] + 1)
                cell.reads[partition].append((reader, offset, client, sequence, when))
    return cell


# --- by the definitions -----------------------------------------------------------------------------------------------


def transaction_of(cell: Drawn) -> dict[Name, Name]:
    """Record → its transaction."""
    return {(s[0], s[1]): (s[0], s[4]) for sends in cell.sends.values() for s in sends if s[4] != NONE}


def committed(cell: Drawn) -> set[Name]:
    """Confirmed; or in doubt, and one record of it was shown at read_committed."""
    of = transaction_of(cell)
    shown = {of.get((client, sequence)) for rows in cell.visible.values() for _, client, sequence in rows}
    for rows in cell.reads.values():
        for reader, _, client, sequence, _ in rows:
            if reader == READER_COMMITTED or LEVELS.get(reader) == Isolation.READ_COMMITTED:
                shown.add(of.get((client, sequence)))
    return {
        (row["client"], row["transaction"])
        for row in cell.rows
        if row["ended_by"] == COMMIT and (row["outcome"] == OK or (row["client"], row["transaction"]) in shown)
    }


def ww(cell: Drawn) -> Graph:
    """Whoever stands before whom in V, near or far."""
    of, members = transaction_of(cell), committed(cell)
    edges = set()
    for rows in cell.visible.values():
        order = [of.get((client, sequence)) for _, client, sequence in sorted(rows)]
        edges |= {(one, other) for one, other in combinations(order, 2) if one != other and {one, other} <= members}
    return edges


def wr(cell: Drawn, level: Isolation) -> Graph:
    """Whose record was given to whom inside a transaction, by a client that reads at this level."""
    of, members = transaction_of(cell), committed(cell)
    edges = set()
    for rows in cell.reads.values():
        for reader, _, client, sequence, when in rows:
            writer = of.get((client, sequence))
            for row in cell.rows:
                inside = row["client"] == reader and row["begun_ns"] <= when <= row["end_invoked_ns"]
                name = (row["client"], row["transaction"])
                if inside and LEVELS[reader] == level and writer != name and {writer, name} <= members:
                    edges.add((writer, name))
    return edges


def circles(edges: set[tuple[object, object]]) -> set[frozenset[object]]:
    """Sets of nodes that reach one another, by Warshall: bit j of reach[i] says that i reaches j."""
    nodes = sorted({node for edge in edges for node in edge})
    place = {node: number for number, node in enumerate(nodes)}
    reach = [0] * len(nodes)
    for one, other in edges:
        reach[place[one]] |= 1 << place[other]
    for between in range(len(nodes)):
        for one in range(len(nodes)):
            if reach[one] >> between & 1:
                reach[one] |= reach[between]
    found = {
        frozenset(nodes[b] for b in range(len(nodes)) if b == a or (reach[a] >> b & 1 and reach[b] >> a & 1))
        for a in range(len(nodes))
    }
    return {members for members in found if len(members) > 1}


# --- the twin ---------------------------------------------------------------------------------------------------------


def sets_of(index, edges) -> set[frozenset[Name]]:
    """The sets of transactions that the kernels see in cycles."""
    inside, number = cyclic(index, edges)
    columns = index.transactions.columns
    names = list(zip(columns["client"].tolist(), columns["transaction"].tolist(), strict=True))
    found: dict[int, set[Name]] = {}
    for one, tail, head in zip(number.tolist(), inside.writer.tolist(), inside.reader.tolist(), strict=True):
        found.setdefault(one, set()).update((names[tail], names[head]))
    return {frozenset(members) for members in found.values()}


@settings(QUICK, max_examples=examples(600))
@given(SEEDS)
def test_transactions_in_cycles_are_those_that_brute_force_finds(seed):
    cell = drawn(seed)
    made = cell.cell()
    index = CellIndex.of(made)
    read = wr_edges(index)
    for level in (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED):
        assert sets_of(index, read.chosen(read.level == level)) == circles(wr(cell, level))
    everything = ww(cell) | wr(cell, Isolation.READ_COMMITTED) | wr(cell, Isolation.READ_UNCOMMITTED)
    assert sets_of(index, read.and_those(ww_edges(index))) == circles(everything)


@settings(QUICK, max_examples=examples(600))
@given(SEEDS)
def test_kinds_of_cycles_are_counted_as_brute_force_counts_them(seed):
    cell = drawn(seed)
    by_reads = {
        case: circles(wr(cell, level))
        for case, level in (
            (AT_READ_COMMITTED, Isolation.READ_COMMITTED),
            (AT_READ_UNCOMMITTED, Isolation.READ_UNCOMMITTED),
        )
    }
    written = ww(cell)
    everything = written | wr(cell, Isolation.READ_COMMITTED) | wr(cell, Isolation.READ_UNCOMMITTED)
    sets = [members for members in circles(everything) if any({*edge} <= members for edge in written)]
    alone = circles(written)
    by_writes = {
        BY_WRITES_ALONE: {members for members in sets if any(smaller <= members for smaller in alone)},
        BY_WRITES: {members for members in sets if not any(smaller <= members for smaller in alone)},
    }
    of = transaction_of(cell)
    for kernel, expected in ((information_cycle, by_reads), (write_cycle, by_writes)):
        result = kernel(cell.cell())
        assert result.count == sum(map(len, expected.values()))
        assert len(result.witnesses) == min(32, result.count)
        if result.count <= 32:
            cases = Counter({case: len(members) for case, members in expected.items()})
            assert Counter(result.witnesses["case"].tolist()) == +cases
        for witness in result.witnesses:
            names = {
                of[int(witness["client"]), int(witness["sequence"])],
                of[int(witness["other_client"]), int(witness["other_sequence"])],
            }
            assert any(names <= members for members in expected[int(witness["case"])])


def test_the_cells_that_are_drawn_have_cycles_of_every_kind_and_none_and_many_transactions():
    kinds: Counter[str] = Counter()
    for seed in range(400):
        cell = drawn(seed)
        kinds["many"] += len(cell.rows) > 90
        written, read = circles(ww(cell)), circles(wr(cell, Isolation.READ_COMMITTED))
        kinds["writes"] += bool(written)
        kinds["reads"] += bool(read)
        kinds["none"] += not written and not read and len(cell.rows) > 2
        result = write_cycle(cell.cell())
        kinds["writes and reads"] += BY_WRITES in result.witnesses["case"]
    assert len(kinds) == 5
    assert min(kinds.values()) >= 4, kinds


# --- the parts --------------------------------------------------------------------------------------------------------

GRAPHS = st.integers(1, 40).flatmap(
    lambda size: st.tuples(
        st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=3 * size),
        st.permutations(range(size)),
    )
)


def arrays(pairs):
    return (np.array([pair[end] for pair in pairs], dtype=np.intp) for end in (0, 1))


@settings(QUICK, max_examples=examples(500))
@given(GRAPHS)
def test_the_cut_by_time_takes_no_edge_of_a_cycle_whatever_the_order(graph):
    pairs, rank = graph
    tail, head = arrays(pairs)
    span = time_spans(tail, head, np.array(rank, dtype=np.intp))
    kept = entangled(tail, head, span)
    whole = components(tail, head)
    assert kept[whole >= 0].all()
    assert (components(tail[kept], head[kept]) == whole[kept]).all()
    backwards = [rank[one] > rank[other] for one, other in pairs]
    # The edges that lead forward change nothing: who makes them may ask first.
    only_back = np.array(backwards, dtype=bool)
    assert (time_spans(tail[only_back], head[only_back], np.array(rank, dtype=np.intp)) == span).all()
    if not any(backwards):
        assert not kept[tail != head].any()


@settings(QUICK, max_examples=examples(500))
@given(GRAPHS)
def test_components_and_shortest_cycles_are_those_of_brute_force(graph):
    pairs, _ = graph
    tail, head = arrays(pairs)
    number = components(tail, head)
    expected = sorted(circles({(one, other) for one, other in pairs}), key=min)
    found = [{*tail[number == n].tolist()} for n in range(number.max(initial=-1) + 1)]
    assert found == [set(members) for members in expected]
    for n, members in enumerate(expected):
        rows = np.flatnonzero(number == n)
        for first in (None, 0, len(rows) - 1):
            cycle = shortest_cycle(tail[rows], head[rows], first)
            assert first is None or first in cycle
            steps = [(int(tail[rows[edge]]), int(head[rows[edge]])) for edge in cycle]
            assert all(a[1] == b[0] for a, b in zip(steps, [*steps[1:], steps[0]], strict=True))
            through = min(members) if first is None else steps[-1][0]
            assert len(cycle) == girth(set(pairs), through, None if first is None else steps[-1][1])


def girth(edges: set[tuple[int, int]], through: int, then: int | None) -> int:
    """Length of a shortest cycle through a node (and, if one is given, straight on to that one), by walking."""
    reached, steps = {then} if then is not None else {b for a, b in edges if a == through and b != through}, 1
    while through not in reached:
        reached, steps = {b for a, b in edges if a in reached and a != b}, steps + 1
    return steps
