"""Gathers what must be known of all partitions of a cell to judge its transactions, by a few looks at each partition,
where that partition is checked.

What is brought together is small: bits for each transaction, and those edges between transactions that may be in cycles.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from prozess.checkers.lookup import distinct
from prozess.checkers.transactions.index import CellIndex, Known, packed, reasons_of
from prozess.checkers.transactions.isolation import Edges, entangled, joined, stretches, wr_edges, ww_edges
from prozess.harness.checking.checker import Look
from prozess.harness.interfaces import CellHistory
from prozess.harness.schema import once

FACTS = "transactions"
_CYCLES = frozenset({"information-cycle", "write-cycle"})
Each = Callable[[Sequence[Look]], Sequence[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Suspects:
    """Pairs of transactions of a cell of which the first depends on the second, although it was over before the second."""

    tail: np.ndarray
    head: np.ndarray


@dataclass(frozen=True, slots=True)
class Survey:
    """Describes what one partition alone shows of the transactions of its cell. The fields are those of `Known`."""

    audited: bool
    reason: str | None
    unrecorded: int
    shown: np.ndarray
    seen_committed: np.ndarray
    missing: np.ndarray
    """Bits: should V of this partition show a record of it if it was committed, and does not?"""


def gather(cells: Mapping[int, Mapping[int, int]], each: Each, anomalies: Sequence[str]) -> Mapping[int, Known]:
    """Returns what is known of these cells (cell → partition → rows), as these anomalies need it."""
    known = {cell: _together(parts) for cell, parts in _looks(cells, each, "survey", lambda _: ()).items()}
    torn = {cell: cells[cell] for cell, (_, places) in known.items() if len(places)}
    found = {cell: one for cell, (one, _) in known.items()}
    for cell, parts in _looks(torn, each, "first", lambda cell: (known[cell][1],)).items():
        found[cell] = replace(found[cell], first=_first_of(parts))
    if _CYCLES.isdisjoint(anomalies):
        return found
    backwards = _looks(cells, each, "backwards", lambda cell: (found[cell],))
    suspects = {cell: partitions for cell, partitions in cells.items() if any(len(p[0]) for p in backwards[cell])}
    suspected = {
        cell: Suspects(*(np.concatenate([p[n] for p in backwards[cell]]) for n in (0, 1))) for cell in suspects
    }
    edges = _looks(suspects, each, "edges", lambda cell: (found[cell], suspected[cell]))
    for cell, partitions in cells.items():
        # Looks at partitions know them as number 0, and are in the order of partitions.
        parts = [
            replace(part, position=np.full(len(part.row), position, dtype=np.intp))
            for position, part in enumerate(edges.get(cell, ()))
        ]
        judged = tuple(sum(part[which] for part in backwards[cell]) for which in (2, 3))
        assert len(partitions) == len(backwards[cell])
        found[cell] = replace(found[cell], edges=joined(parts), edges_judged=judged)
    return found


def _looks(
    cells: Mapping[int, Mapping[int, int]], each: Each, stage: str, arguments: Callable[[int], tuple[Any, ...]]
) -> dict[int, list[Any]]:
    """Returns what a look at each partition gives, in the order of partitions."""
    if not cells:
        return {}
    looks = []
    for cell, partitions in cells.items():
        given = arguments(cell)  # one object, so that it is sent once
        looks += [Look(cell, p, FACTS, stage, given, partitions[p]) for p in sorted(partitions)]
    found: dict[int, list[Any]] = {cell: [] for cell in cells}
    for look, result in zip(looks, each(looks), strict=True):
        found[look.cell].append(result)
    return found


def _together(parts: Sequence[Survey]) -> tuple[Known, np.ndarray]:
    """Returns what the partitions show together, without the first records; and the transactions that may be torn."""

    def any_of(name: str) -> np.ndarray:
        return np.asarray(reduce(np.bitwise_or, [getattr(part, name) for part in parts]))

    shown, nothing = any_of("shown"), np.empty(0, dtype=np.int64)
    torn = np.flatnonzero(np.unpackbits(any_of("missing") & shown))
    incomplete = reasons_of([part.reason for part in parts], sum(part.unrecorded for part in parts))
    audited = all(part.audited for part in parts)
    return Known(audited, incomplete, shown, any_of("seen_committed"), (nothing, nothing, nothing)), torn


def _first_of(parts: Sequence[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    place, sequence, offset = (np.concatenate([part[column] for part in parts]) for column in range(3))
    which, row = np.unique(place, return_index=True)  # the first of each: of the first partition
    return which, sequence[row], offset[row]


# The looks at one partition, by stage.


def look(history: CellHistory, stage: str, *arguments: object) -> object:
    """Looks at the one partition that this cell has here."""
    return _STAGES[stage](history, *arguments)


def _survey(history: CellHistory) -> Survey:
    index = CellIndex.of(history)
    missing = np.zeros(len(index.transactions), dtype=bool)
    missing[index.transaction[index.missing]] = True
    (partition,) = index.partitions
    return Survey(
        index.audited,
        index.reason(partition),
        index.unrecorded,
        packed(index.shown),
        packed(index.seen_committed),
        packed(missing),
    )


def _first(history: CellHistory, transactions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    index = CellIndex.of(history)
    wanted = np.zeros(len(index.transactions), dtype=bool)
    wanted[transactions] = True
    which = np.flatnonzero(wanted & index.shown)
    return which, *index.first_shown(which)


def _backwards(history: CellHistory, known: Known) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Returns pairs of transactions of which the first depends on the second although it was over before the second, and
    how many edges there are by reads and by writes."""
    index, (read, written) = _edges_here(history, known)
    rank, both = index.transactions.in_time, read.and_those(written)
    back = rank[both.writer] > rank[both.reader]
    pairs = distinct(both.writer[back].astype(np.int64) * len(rank) + both.reader[back])
    return pairs // max(1, len(rank)), pairs % max(1, len(rank)), len(read.writer), len(written.writer)


def _edges(history: CellHistory, known: Known, suspects: Suspects) -> Edges:
    """Returns the edges that may be in cycles, given all edges that lead backwards."""
    index, (read, written) = _edges_here(history, known)

    def cut() -> np.ndarray:
        return stretches(suspects.tail, suspects.head, index.transactions.in_time)

    both, stretch = read.and_those(written), once(history.tables["transactions"], suspects, cut)
    return both.chosen(entangled(both.writer, both.reader, stretch))


def _edges_here(history: CellHistory, known: Known) -> tuple[CellIndex, tuple[Edges, Edges]]:
    index = CellIndex(replace(history, known={FACTS: known}))
    return index, (wr_edges(index), ww_edges(index))


_STAGES: Mapping[str, Callable[..., object]] = {
    "survey": _survey,
    "first": _first,
    "backwards": _backwards,
    "edges": _edges,
}
