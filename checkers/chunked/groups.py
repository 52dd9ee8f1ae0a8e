"""What a group did with the records of a large partition is checked in pieces, which are ranges of offsets.

Whether a record was processed, and which steps repeat one of the same offset, each piece finds by itself. Only copies of one
record may stand in several pieces. Each piece therefore returns the ranges of keys that its records are in, and is looked at
again only for records whose keys are in ranges of two pieces: nearly always there are none.

Example: piece 0 processed the keys 1–5 and 9, piece 1 the keys 9–12. Both have 9 in a range: a second look finds which rows
of `processed` these are, and whether 9 was processed twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from prozess.checkers.groups.processing import (
    first_steps,
    repeated_copies,
    repeated_steps,
    steps_in_order,
    unprocessed,
)
from prozess.checkers.lookup import differs_from_next, differs_from_previous, distinct, identity_keys
from prozess.harness.checking.checker import Columns, Source
from prozess.harness.interfaces.checking import KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, join_witnesses

UNPROCESSED, REPROCESSED = "unprocessed", "reprocessed"
PROCESSING = frozenset({UNPROCESSED, REPROCESSED})
"""The anomalies that are found here."""
RANGES_MAX = 4096
"""In so many ranges of numbers a piece says which records were processed. Fewer ranges have more numbers that it has not."""
_LEAST = np.iinfo(np.int64).min
_NOTHING = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class ProcessedRecords:
    """Says of which records a piece has finished steps, in little memory."""

    ranges: np.ndarray
    """int64[2, n]: ranges of identity keys, ascending: the first and the last of each."""
    copied: np.ndarray
    """int64: rows of `processed`, ascending, the first of each record of an offset, of records with several copies in
    the piece, or with no key."""


@dataclass(frozen=True, slots=True)
class ProcessedPiece:
    """What one piece shows of a group's work: what kernels find there, and what other pieces must know."""

    found: Mapping[str, KernelResult]
    records: ProcessedRecords


def survey_processed(
    source: Source, history: PartitionHistory, low: int, high: int, asked: frozenset[str]
) -> ProcessedPiece:
    """Returns what the piece with these offsets shows. `history` has its sends and reads. `asked` are anomalies of
    PROCESSING."""
    table, numbers = _steps(source, low, high)
    assert source.cell is not None, "a group's work is judged in cells"
    cell = source.cell()
    cell = replace(cell, partitions={history.partition: history}, tables={**cell.tables, "processed": table})
    found, records = {}, ProcessedRecords(np.empty((2, 0), dtype=np.int64), _NOTHING)
    if UNPROCESSED in asked:
        found[UNPROCESSED] = unprocessed(cell)
    if REPROCESSED in asked:
        rows = steps_in_order(table, history.partition)
        again = repeated_steps(cell, history.partition, rows)
        found[REPROCESSED] = KernelResult(again[:WITNESSES_MAX], len(again), len(rows))
        records = _ranges_of_records(table, numbers, first_steps(table, rows))
    return ProcessedPiece(found, records)


def _steps(source: Source, low: int, high: int) -> tuple[Columns, np.ndarray]:
    assert source.processed is not None, "a group's work is judged in cells"
    return source.processed.by_offset(low or _LEAST, high)  # rows without an offset are in the first piece


def _ranges_of_records(table: Columns, numbers: np.ndarray, rows: np.ndarray) -> ProcessedRecords:
    key = identity_keys(table["sender"][rows], table["sequence"][rows])
    ranges = ranges_of(distinct(key[key >= 0]), RANGES_MAX)
    return ProcessedRecords(ranges, np.sort(numbers[np.concatenate([rows[key < 0], rows[_several(key)]])]))


def _several(key: np.ndarray) -> np.ndarray:
    """Returns the indices of the keys that are there several times."""
    order = np.argsort(key, kind="stable")
    single = differs_from_previous(key[order])
    # Equal keys: the first differs from the one before it, and the next one does not: both are several.
    # Example: 3 5 5 8 differ T T F T from the one before. With the next one's answer it is T F F T: both 5 are several.
    single[:-1] &= single[1:]
    return np.asarray(order[~single])


def ranges_of(keys: np.ndarray, most: int) -> np.ndarray:
    """Returns int64[2, n]: at most so many ranges that all of these keys (ascending, different) are in: the first and the
    last key of each. The widest gaps between keys are left out."""
    if not len(keys):
        return np.empty((2, 0), dtype=np.int64)
    gap = np.diff(keys)
    apart = np.flatnonzero(gap > 1)
    if len(apart) >= most:
        # Example: keys 1 2 9 11 50, and at most 2 ranges. The gaps are 7, 2, 39, and the widest one stays: 1–11 and 50–50.
        # n gaps separate n+1 ranges: the `most` - 1 widest stay, in the order of the keys again.
        apart = np.sort(apart[np.argsort(gap[apart], kind="stable")[len(apart) - most + 1 :]])
    assert (gap > 0).all(), "keys ascend, each once"
    return np.stack([keys[np.append(0, apart + 1)], keys[np.append(apart, len(keys) - 1)]])


def shared_ranges(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Returns int64[2, n]: the ranges of keys, ascending, that are in ranges of more than one part."""
    bounds = np.concatenate([np.empty((2, 0), dtype=np.int64), *parts], axis=1)
    # Example: 1–5 and 4–9 are +1 at 1 and 4, −1 at 6 and 10. The sum is 2 from 4 to 5: that range is shared.
    at = np.concatenate([bounds[0], bounds[1] + 1])
    change = np.repeat([1, -1], bounds.shape[1])
    order = np.argsort(at, kind="stable")
    at, depth = at[order], np.cumsum(change[order])
    # If several change at one key, what is true after the last of them counts: 1–5 and 6–9 meet at 6, and share nothing.
    last = differs_from_next(at)
    at, several = at[last], depth[last] > 1
    # Where the depth rises above 1 a shared range begins, and where it falls again one has ended just before.
    begins, ends = (np.flatnonzero(np.diff(several.astype(np.int8), prepend=0) == step) for step in (1, -1))
    return np.stack([at[begins], at[ends] - 1])


def within(keys: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Returns bool[k]: is each key in one of these ranges, which ascend?"""
    slot = np.searchsorted(ranges[0], keys, side="right") - 1
    if not ranges.shape[1]:
        return np.zeros(len(keys), dtype=bool)
    assert (ranges[0][1:] > ranges[0][:-1]).all(), "ranges ascend"
    # Slot -1 takes the last range, whose end may be beyond the key: the first condition drops that.
    return np.asarray((slot >= 0) & (keys <= ranges[1][slot]))


def meets(ranges: np.ndarray, others: np.ndarray) -> bool:
    """Returns whether a key may be in one of these ranges and in one of the others."""
    return bool(shared_ranges([ranges, others]).shape[1])


def shared_steps(source: Source, low: int, high: int, shared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first finished step of each offset of a piece whose record is in `shared` ranges: keys, and rows of
    `processed`."""
    table, numbers = _steps(source, low, high)
    rows = first_steps(table, steps_in_order(table, source.history.partition))
    key = identity_keys(table["sender"][rows], table["sequence"][rows])
    chosen = np.flatnonzero((key >= 0) & within(key, shared))
    return key[chosen], numbers[rows[chosen]]


def copied_steps(parts: Sequence[tuple[np.ndarray, np.ndarray]], more: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the rows of `processed`, ascending, that may be of records with several copies. `parts` are what `shared_steps`
    returns, and `more` further such rows."""
    key, row = (np.concatenate([_NOTHING, *(part[column] for part in parts)]) for column in (0, 1))
    return distinct(np.concatenate([row[_several(key)], *more]))


def find_processed(source: Source, pieces: Sequence[ProcessedPiece], copied: np.ndarray, anomaly: str) -> KernelResult:
    """Returns what this kernel finds in the whole partition. `copied` is what `copied_steps` returns."""
    assert anomaly in PROCESSING, anomaly
    parts = [piece.found[anomaly] for piece in pieces]
    witnesses, count = [part.witnesses for part in parts], sum(part.count for part in parts)
    if anomaly == REPROCESSED and len(copied):
        assert source.processed is not None
        table = source.processed.take(copied)
        # `copied` ascends by row, and members take turns: by offset the first copy comes first, as in the whole partition.
        order = np.argsort(table["log_offset"], kind="stable")
        found = repeated_copies({name: table[name][order] for name in table}, source.history.partition)
        witnesses, count = [*witnesses, found[:WITNESSES_MAX]], count + len(found)
    reasons = dict.fromkeys(part.incomplete for part in parts if part.incomplete)
    return KernelResult(
        join_witnesses(witnesses)[:WITNESSES_MAX],
        count,
        judged=sum(part.judged for part in parts),
        incomplete="; ".join(reasons) or None,
    )
