"""What must be known of all partitions of a cell together is gathered by looks at its partitions, or at parts of them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from prozess.harness.checking.checker import (
    CellShare,
    CheckerSet,
    Failed,
    Job,
    Known,
    Look,
    PartitionRemainder,
    ShareKey,
)
from prozess.harness.history.reader import History
from prozess.harness.interfaces.checking import Finding
from prozess.harness.plan.plan import Cell

Each = Callable[[Sequence[Job | Look]], Sequence[object]]
"""Carries out jobs wherever an engine does that, and returns the result of `perform` for each, in their order."""


def readable_cells(history: History) -> list[Cell]:
    """Returns the cells of which no rows are damaged."""
    return [cell for cell in history.plan.cells if cell.cell not in history.unreadable]


def readable(history: History) -> list[int]:
    """Returns the partitions of no cell of which rows are damaged."""
    lost = {p for cell in history.unreadable for p in history.plan.cells[cell].partitions}
    lost = lost.union(*(rows.partitions for rows in history.run.lost))  # some may be of no cell
    return [partition for partition in history.partitions if partition not in lost]


@dataclass(frozen=True, slots=True)
class Looked:
    """The result of a look at a partition, and what was found there at the same time."""

    result: object
    findings: list[Finding]


class CheckedLooks:
    """Carries out looks. Each partition, and each part of one, is checked when it is first looked at, as far as that is all
    there is of it to check (`whole`)."""

    def __init__(self, each: Each, whole: Collection[int]) -> None:
        self._each, self._whole = each, whole
        self.checked: set[ShareKey] = set()
        self.found: list[Finding] = []

    def __call__(self, jobs: Sequence[Job | Look]) -> Sequence[object]:
        """Returns the result of each look, in their order. _LookFailed if one could not be done."""
        asked = [replace(job, check=self._is_new(job)) if isinstance(job, Look) else job for job in jobs]
        done = []
        for job, result in zip(asked, self._each(asked), strict=True):
            if isinstance(result, Looked):
                assert isinstance(job, Look), job
                self.checked.add(job.key)
                self.found += result.findings
            done.append(result.result if isinstance(result, Looked) else result)
        for result in done:
            if isinstance(result, Failed):
                raise _LookFailed(result.reason)
        return done

    def _is_new(self, look: Look) -> bool:
        return look.key not in self.checked and (look.part is not None or look.partition in self._whole)


def gather_known(
    history: History, checkers: CheckerSet, each: Each, left: Mapping[int, PartitionRemainder], rows_max: int
) -> Mapping[int, Known]:
    """Returns what is known of the partitions together, for each cell of several that has more than `rows_max` rows, and for
    each with a partition that was looked at in pieces (`left`)."""
    readable = readable_cells(history)
    found: dict[int, dict[str, Any]] = {}
    for facts in checkers.facts.values():
        asking = [checker for checker in checkers.cell.values() if checker.knows == facts]
        cells: dict[int, list[CellShare]] = {}
        unknown: dict[int, Failed] = {}
        for cell in readable:
            pieces = [left[p] for p in cell.partitions if p in left]
            large = len(cell.partitions) > 1 and sum(map(history.rows_of, cell.partitions)) > rows_max
            if not (large or pieces) or not any(checker.applies(cell.traits) for checker in asking):
                continue
            if failed := next((one.parts for one in pieces if isinstance(one.parts, Failed)), None):
                unknown[cell.cell] = failed
            else:
                cells[cell.cell] = _shares(history, cell, left)
        assert not cells.keys() & unknown.keys(), "a cell is asked about, or unknown"
        asked = [checker.anomaly for checker in asking]
        gathered = _gathered(partial(facts.gather, each=each, anomalies=asked), cells) if cells else {}
        # A cell that is too large is not given to kernels as a whole: what could not be found out of it is unknown.
        gathered = {c: known for c, known in gathered.items() if not isinstance(known, Failed) or _in_pieces(cells[c])}
        for number, known in [*gathered.items(), *unknown.items()]:
            found.setdefault(number, {})[facts.name] = known
    return found


def _shares(history: History, cell: Cell, left: Mapping[int, PartitionRemainder]) -> list[CellShare]:
    """Returns the partitions of a cell, or their parts, ascending."""
    shares = []
    for partition in sorted(cell.partitions):
        parts = left[partition].parts if partition in left else ()
        assert not isinstance(parts, Failed), parts
        shares += [CellShare(partition, part.rows, part) for part in parts]
        if partition not in left:
            shares.append(CellShare(partition, history.rows_of(partition)))
    assert [share.partition for share in shares] == sorted(share.partition for share in shares), "shares ascend"
    return shares


def _in_pieces(shares: Sequence[CellShare]) -> bool:
    return any(share.part is not None for share in shares)


class _LookFailed(Exception):
    """A look at a partition of a cell failed, so nothing is known of all of its partitions together."""


def _gathered(gather: Callable[[Any], Mapping[int, Any]], cells: Mapping[int, Any]) -> Mapping[int, Any]:
    """Returns what is known of those cells of which every partition can be looked at. For the others it is why it is not
    known."""
    try:
        return gather(cells)
    except _LookFailed as error:
        if len(cells) == 1:
            return dict.fromkeys(cells, Failed(str(error)))
        return {c: known for cell, rows in cells.items() for c, known in _gathered(gather, {cell: rows}).items()}
