"""Gathers what must be known of all partitions of a cell to judge its transactions, by a look at each partition, where that
partition is checked.

What is brought together is small, and grows with the records, not with partitions times transactions: which transactions a
partition showed, and those edges between transactions that may be in cycles. An edge can be in a cycle only where another
leads backwards in time, so only edges between transactions that are near in time are brought along. Where edges lead back
further than that, partitions are looked at once more.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

import numpy as np

from prozess.checkers.chunked.edges import Chains, NearEdges, join_edges_of, seams_of
from prozess.checkers.lookup import Lookup, differs_from_previous, distinct
from prozess.checkers.transactions.early_reads import (
    OpenRecords,
    any_behind_open,
    early_reads,
    open_records_of_part,
)
from prozess.checkers.transactions.index import (
    CellIndex,
    KnownTransactions,
    NoticedTransactions,
    PartitionSurvey,
    distinct_below,
    pack_bits,
    reasons_of,
)
from prozess.checkers.transactions.isolation import Edges, aborted_reads, wr_edges, ww_edges
from prozess.harness.checking.checker import CellShare, Look, TakenRows
from prozess.harness.interfaces.checking import CellHistory

FACTS = "transactions"
NEAR = 256
"""Edges are brought along that lead no further than so many transactions, in the order of time."""
EDGE_BYTES_MAX = 600_000_000
"""The most memory that the edges of a cell take that are brought along: 13 bytes each, 25 in a partition that is looked at in
parts. A partition, or part, with more than its share is looked at again, if edges lead backwards."""
_CYCLES = frozenset({"information-cycle", "write-cycle"})
Each = Callable[[Sequence[Look]], Sequence[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Holds the edges of one partition that may be in cycles. Transactions are named by their ranks in time."""

    backwards: np.ndarray
    """int32[2, n]: writer and reader of each pair where the reader is earlier."""
    near: NearEdges | None
    """The edges that lead backwards, or not far. None: there are too many."""
    read: int
    """How many edges by reads there are, without the doubtful ones."""
    doubtful: np.ndarray
    """int64[3, n]: writer, reader, and how many edges by reads there are between these, of which one is in doubt."""
    written: int
    """How many edges by writes there are."""
    in_doubt: np.ndarray
    """int64[2, n]: the transactions of all these edges of which it is not known here whether they were committed: their
    ranks, ascending, and their numbers."""
    chains: Chains | None = None
    """What the order of writes in other parts of the partition must know of this one. None: it was looked at whole."""


_NO_CANDIDATES = Candidates(
    np.empty((2, 0), dtype=np.int32), None, 0, np.empty((3, 0), dtype=np.int64), 0, np.empty((2, 0), dtype=np.int64)
)


@dataclass(frozen=True, slots=True)
class Survey:
    """Describes what one partition alone shows of the transactions of its cell. Arrays have the numbers of transactions."""

    alone: PartitionSurvey
    audited: bool
    reason: str | None
    unrecorded: int
    transactions: int
    """How many transactions the cell has."""
    shown: np.ndarray
    """Those of which V shows a record."""
    seen_committed: np.ndarray
    """Those of which a read_committed consumer received a record."""
    missing: np.ndarray
    """Those of which V should show a record if it was committed, and does not."""
    edges: Candidates | None
    """None: no kernel asked for edges, or which there are depends on what other partitions show."""
    open_records: OpenRecords | None = None
    """What other parts of the partition must know. None: it was looked at whole."""


def gather(
    cells: Mapping[int, Sequence[CellShare]], each: Each, anomalies: Sequence[str]
) -> Mapping[int, KnownTransactions]:
    """Returns what is known of these cells, as these anomalies need it."""
    cycles = not _CYCLES.isdisjoint(anomalies)
    most = {cell: EDGE_BYTES_MAX // max(1, len(shares)) if cycles else -1 for cell, shares in cells.items()}
    surveys: dict[int, list[Survey]] = _looks(cells, each, "survey", lambda cell: (most[cell],))
    known = {cell: _together(parts, cells[cell]) for cell, parts in surveys.items()}
    torn = {cell: cells[cell] for cell, (_, maybe_torn) in known.items() if len(maybe_torn)}
    found = {cell: one for cell, (one, _) in known.items()}
    for cell, firsts in _looks(torn, each, "first", lambda cell: (known[cell][1],)).items():
        found[cell] = replace(found[cell], first=_first_of(firsts, cells[cell]))
    if not cycles:
        return found
    candidates = {cell: [survey.edges for survey in parts] for cell, parts in surveys.items()}
    _fill(candidates, cells, each, "candidates", lambda cell: (found[cell], most[cell]))
    proven = {cell: found[cell].shown | found[cell].seen_committed for cell in candidates}
    # What each partition alone took for perhaps committed is now known to be, or not to be.
    left = {
        cell: [_certain(one, proven[cell]) for one in parts if one is not None] for cell, parts in candidates.items()
    }
    assert all(len(parts) == len(cells[cell]) for cell, parts in left.items())
    seams = {cell: _seams(cells[cell], left[cell]) for cell in cells}
    spans = {cell: _spans([*left[cell], *map(_of_seams, seams[cell].values())]) for cell in cells}
    # A span wider than NEAR may have edges within it that were not brought along.
    far = {cell: bool((span[1] - span[0] > NEAR).any()) for cell, span in spans.items()}
    edges = {cell: [_entangled(one, spans[cell], far[cell]) for one in parts] for cell, parts in left.items()}
    _fill(edges, cells, each, "edges", lambda cell: (found[cell], spans[cell]))
    for cell, parts in edges.items():
        written = sum(one.written for one in left[cell]) + sum(len(one.row) for one in seams[cell].values())
        met = {p: one.chosen(_inside(one.writer, one.reader, spans[cell])) for p, one in seams[cell].items()}
        ranked, rows = join_edges_of(cells[cell], [part for part in parts if part is not None], met)
        found[cell] = replace(
            found[cell],
            ranked_edges=ranked,
            edges_judged=(sum(one.read for one in left[cell]), written),
            edge_rows=rows,
        )
    return found


def rows_of_edges(known: KnownTransactions) -> TakenRows:
    """Returns the rows that kernels which look for cycles need of partitions that were looked at in parts."""
    return known.edge_rows


def _seams(shares: Sequence[CellShare], parts: Sequence["Candidates"]) -> dict[int, NearEdges]:
    """Returns the edges between parts, for each partition that was looked at in parts."""
    chains: dict[int, list[Chains]] = {}
    for share, part in zip(shares, parts, strict=True):
        if part.chains is not None:
            chains.setdefault(share.partition, []).append(part.chains)
    return {partition: seams_of(of_parts) for partition, of_parts in chains.items()}


def _of_seams(seams: NearEdges) -> "Candidates":
    back = seams.chosen(seams.reader < seams.writer)
    return replace(_NO_CANDIDATES, backwards=np.stack([back.writer, back.reader]))


def _looks(
    cells: Mapping[int, Sequence[CellShare]], each: Each, stage: str, arguments: Callable[[int], tuple[Any, ...]]
) -> dict[int, list[Any]]:
    """Returns what a look at each share of these cells gives, in their order."""
    if not cells:
        return {}
    looks = []
    for cell, shares in cells.items():
        given = arguments(cell)  # one object, so that it is sent once
        looks += [share.look(cell, FACTS, stage, given) for share in shares]
    found: dict[int, list[Any]] = {cell: [] for cell in cells}
    for look, result in zip(looks, each(looks), strict=True):
        found[look.cell].append(result)
    return found


def _fill(
    parts: Mapping[int, list[Any]],
    cells: Mapping[int, Sequence[CellShare]],
    each: Each,
    stage: str,
    arguments: Callable[[int], tuple[Any, ...]],
) -> None:
    """Looks at the shares of which there is nothing yet (None), and fills in what that gives."""
    missing = {
        cell: [share for share, part in zip(cells[cell], of_cell, strict=True) if part is None]
        for cell, of_cell in parts.items()
    }
    filled = _looks({cell: shares for cell, shares in missing.items() if shares}, each, stage, arguments)
    for cell, results in filled.items():
        rest = iter(results)
        assert len(results) == sum(part is None for part in parts[cell]), "a result for each share that was asked"
        parts[cell][:] = [next(rest) if part is None else part for part in parts[cell]]


def _together(parts: Sequence[Survey], shares: Sequence[CellShare]) -> tuple[KnownTransactions, np.ndarray]:
    """Returns what the partitions show together, without the first records; and the transactions that may be torn."""

    def any_of(name: str) -> np.ndarray:
        there = np.zeros(parts[0].transactions, dtype=bool)
        for part in parts:
            there[getattr(part, name)] = True
        return there

    shown, nothing = any_of("shown"), np.empty(0, dtype=np.int64)
    torn = np.flatnonzero(any_of("missing") & shown)
    reasons = {share.partition: part.reason for share, part in zip(shares, parts, strict=True)}
    incomplete = reasons_of(list(reasons.values()), sum(part.unrecorded for part in parts))
    audited = all(part.audited for part in parts)
    surveys = {share.key: part.alone for share, part in zip(shares, parts, strict=True)}
    of_parts: dict[int, list[OpenRecords]] = {}
    for share, part in zip(shares, parts, strict=True):
        if part.open_records is not None:
            of_parts.setdefault(share.partition, []).append(part.open_records)
    return KnownTransactions(
        audited,
        incomplete,
        pack_bits(shown),
        pack_bits(any_of("seen_committed")),
        (nothing, nothing, nothing),
        surveys,
        open_records={partition: OpenRecords.joined(records) for partition, records in of_parts.items()},
    ), torn


def _first_of(
    parts: Sequence[tuple[np.ndarray, ...]], shares: Sequence[CellShare]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    slot, sequence, offset = (np.concatenate([part[column] for part in parts]) for column in range(3))
    partition = np.repeat([share.partition for share in shares], [len(part[0]) for part in parts])
    # Sorted by transaction, then by partition, then by sequence: the first row of each transaction is its first record, as
    # `CellIndex.first_shown` has it of a whole cell.
    order = np.lexsort((sequence, partition, slot))
    assert len(slot) == len(sequence) == len(partition), "one entry for each transaction of a share"
    first = order[differs_from_previous(slot[order])]
    return slot[first], sequence[first], offset[first]


def _certain(part: Candidates, proven: np.ndarray) -> Candidates:
    """Returns the edges between transactions that were committed, as is known now. `proven` has the bits of those that
    somebody was shown."""
    ranks, numbers = part.in_doubt
    if not len(ranks):
        return part
    # Bit n of packed bits is in byte n // 8, and counts from the highest bit of that. Example: bit 10 is in byte 1, which is
    # shifted right by 5, so that the bit comes to stand last.
    refused = Lookup(ranks[(proven[numbers >> 3] >> (7 - (numbers & 7)) & 1) == 0])

    def kept(writer: np.ndarray, reader: np.ndarray) -> np.ndarray:
        found: np.ndarray = (refused.find(writer) < 0) & (refused.find(reader) < 0)
        return found

    # `part.read` has the edges without doubt. Others count, as often as they were there, if both of their transactions were
    # committed.
    read = part.read + int(part.doubtful[2][kept(*part.doubtful[:2])].sum())
    backwards = part.backwards[:, kept(*part.backwards)]
    near = None if part.near is None else part.near.chosen(kept(part.near.writer, part.near.reader))
    return replace(part, read=read, backwards=backwards, near=near)


def _spans(parts: Sequence[Candidates]) -> np.ndarray:
    """Returns int64[2, n]: the first and the last rank of each span of time that edges lead back over. No cycle leaves
    one: where it passes a moment forwards it must come back."""
    writer, reader = np.concatenate([part.backwards for part in parts], axis=1).astype(np.int64)
    assert (reader < writer).all(), "these edges lead back in time"
    order = np.argsort(reader, kind="stable")
    begin, end = reader[order], np.maximum.accumulate(writer[order])
    # Example: edges lead back from 5 to 2, from 4 to 3, and from 9 to 7. Ordered by their earlier ends these are 2–5, 3–4,
    # 7–9, with the greatest later ends 5 5 9. Only 7 is behind all ends before it: the spans are 2–5 and 7–9.
    apart = np.flatnonzero(begin[1:] > end[:-1]) + 1
    # The first span begins with the first edge, if there is one; each ends with the greatest end before the next begins.
    first = np.concatenate([np.zeros(min(1, len(begin)), dtype=np.intp), apart])
    return np.stack([begin[first], np.append(end[apart - 1], end[-1:])])


def _inside(writer: np.ndarray, reader: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Returns bool[edges]: are both transactions of an edge, by their ranks, in one span?"""
    if not spans.size:
        return np.zeros(len(writer), dtype=bool)
    # Example: spans 2–5 and 7–9. Writer 6 comes behind the begin 2, and past its end: in none. Writer 1 is before all (-1).
    number = np.searchsorted(spans[0], writer, side="right") - 1
    assert (spans[0] <= spans[1]).all(), "a span ends at or after its begin"
    low, high = spans[:, number]
    found: np.ndarray = (number >= 0) & (writer <= high) & (reader >= low) & (reader <= high)
    return found


def _entangled(part: Candidates, spans: np.ndarray, far: bool) -> NearEdges | None:
    """Returns the edges that may be in cycles. None: only another look at the partition can say. `far`: does an edge lead
    back further than those that were brought along?"""
    if not spans.size:
        return NearEdges.nothing()
    if part.near is None or far:
        return None
    return part.near.chosen(_inside(part.near.writer, part.near.reader, spans))


# The looks at one partition, by stage.


def look(history: CellHistory, stage: str, *arguments: object) -> object:
    """Looks at the one partition that this cell has here."""
    assert stage in _STAGES, stage
    return _STAGES[stage](history, *arguments)


def _survey(history: CellHistory, bytes_max: int) -> Survey:
    index = CellIndex.of(history)
    (partition,) = index.partitions
    count = len(index.transactions)
    shown = distinct_below(index.transaction[index.visible_at >= 0], count)
    seen = distinct_below(index.seen_committed_in(0), count)
    noticed = {
        NoticedTransactions.MISSING: index.missing.any(),
        NoticedTransactions.ZOMBIE: len(index.visible_of(index.transactions.zombie)),
        NoticedTransactions.ABORTED: len(aborted_reads(index, 0)),
        NoticedTransactions.EARLY: len(early_reads(index, 0)),
        NoticedTransactions.BEHIND_OPEN: any_behind_open(index, 0),
    }
    alone = PartitionSurvey(
        reduce(or_, (one for one, there in noticed.items() if there), NoticedTransactions(0)), index.reads_judged(0)
    )
    return Survey(
        alone,
        index.audited,
        index.reason(partition),
        index.unrecorded,
        count,
        shown,
        seen,
        distinct_below(index.transaction[index.missing], count),
        _candidates_alone(index, shown, seen, bytes_max) if bytes_max >= 0 else None,
        None if index.part is None else open_records_of_part(index),
    )


def _first(history: CellHistory, transactions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    index = CellIndex.of(history)
    shown = distinct_below(index.transaction[index.visible_at >= 0], len(index.transactions))
    which = transactions[Lookup(shown).find(transactions) >= 0]
    return which, *index.first_shown(which)


def _candidates_alone(index: CellIndex, shown: np.ndarray, seen: np.ndarray, bytes_max: int) -> Candidates | None:
    """Returns the edges between transactions that may have been committed. None: the neighbours in V depend on one of which
    only another partition can say."""
    doubt = index.transactions.in_doubt
    _, transaction = index.shown_by(0)
    # Neighbours in V are those among the committed: one that is shown here, and might not be committed, would stand between
    # two others or not. If somebody saw a record of it at read_committed here, it is committed, and nothing is open.
    doubtful = distinct(transaction[doubt[transaction]])
    if ((Lookup(shown).find(doubtful) < 0) & (Lookup(seen).find(doubtful) < 0)).any():
        return None
    return _candidates_among(index, index.transactions.perhaps_committed, doubt, bytes_max)


def _candidates(history: CellHistory, known: KnownTransactions, bytes_max: int) -> Candidates:
    """Returns the edges between committed transactions."""
    index = CellIndex(replace(history, known={FACTS: known}))
    return _candidates_among(index, index.committed, None, bytes_max)


def _candidates_among(index: CellIndex, committed: np.ndarray, doubt: np.ndarray | None, bytes_max: int) -> Candidates:
    rank = index.transactions.in_time
    read, written = wr_edges(index, committed), ww_edges(index, committed)
    count, written_count, doubtful = len(read.writer), len(written.writer), np.empty((3, 0), dtype=np.int64)
    if doubt is not None:
        unsure = np.flatnonzero(doubt[read.writer] | doubt[read.reader])
        # Each pair of transactions once, with how many edges there are between the two: that is all that `_certain` needs.
        pairs, times = np.unique(_pair(rank[read.writer[unsure]], rank[read.reader[unsure]]), return_counts=True)
        count, doubtful = count - len(unsure), np.stack([*_unpaired(pairs), times])
    # Equal edges in sequence count once: cycles have each once.
    assert len(rank) == len(index.transactions), "each transaction has a rank"
    new = differs_from_previous(read.writer) | differs_from_previous(read.reader) | differs_from_previous(read.level)
    read, written = read.chosen(np.flatnonzero(new & _is_near(read, rank))), written.chosen(_is_near(written, rank))
    near = NearEdges.of(index, read.and_those(written))
    back = near.reader < near.writer
    backwards = np.stack(_unpaired(distinct(_pair(near.writer[back], near.reader[back])))).astype(np.int32)
    edges = None if near.size_bytes > bytes_max else near
    there = np.zeros((2, 0), dtype=np.int64)
    if doubt is not None:
        named = [*doubtful[:2], *backwards, *(() if edges is None else (edges.writer, edges.reader))]
        numbers = index.transactions.by_rank
        ranked = distinct(np.concatenate([one[doubt[numbers[one]]].astype(np.int64) for one in named]))
        there = np.stack([ranked, numbers[ranked]])
    chains = None if index.part is None else Chains.of(index, committed)
    return Candidates(backwards, edges, count, doubtful, written_count, there, chains)


def _is_near(edges: Edges, rank: np.ndarray) -> np.ndarray:
    """Returns bool[edges]: does an edge lead backwards in time, or not far?"""
    return np.asarray(rank[edges.reader] - rank[edges.writer] <= NEAR)


def _pair(tail: np.ndarray, head: np.ndarray) -> np.ndarray:
    """Returns int64[n]: one number for each pair of transactions."""
    # Ranks are below 2^31: one in the high half, one in the low half, and pairs ascend by the first, then by the second.
    found: np.ndarray = (tail.astype(np.int64) << 32) | head
    return found


def _unpaired(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return pairs >> 32, pairs & 0xFFFFFFFF


def _edges(history: CellHistory, known: KnownTransactions, spans: np.ndarray) -> NearEdges:
    """Returns the edges that may be in cycles, given the spans that edges lead back over."""
    index = CellIndex(replace(history, known={FACTS: known}))
    rank, both = index.transactions.in_time, wr_edges(index).and_those(ww_edges(index))
    return NearEdges.of(index, both.chosen(np.flatnonzero(_inside(rank[both.writer], rank[both.reader], spans))))


_STAGES: Mapping[str, Callable[..., object]] = {
    "survey": _survey,
    "first": _first,
    "candidates": _candidates,
    "edges": _edges,
}
