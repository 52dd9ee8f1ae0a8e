"""When members of a group were seen to poll, over all partitions of a cell: what ownership must know of them together."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from checkers.ownership import Polls, polls_of_reads
from harness.cell_parts import Look
from harness.protocols import CellHistory

FACTS = "polls"


def gather(
    cells: Mapping[int, Mapping[int, int]], each: Callable[[Sequence[Look]], Sequence[Any]], anomalies: Sequence[str]
) -> Mapping[int, Polls]:
    """Of these cells (cell → partition → rows), one look at each partition. `anomalies`: whoever asks, asks the same."""
    looks = [Look(cell, p, FACTS, "", (), rows) for cell, parts in cells.items() for p, rows in parts.items()]
    found: dict[int, dict[int, list[np.ndarray]]] = {cell: {} for cell in cells}
    for one, times in zip(looks, each(looks), strict=True):
        for member, part in times.items():
            found[one.cell].setdefault(member, []).append(part)
    return {
        cell: {member: np.unique(np.concatenate(parts)) for member, parts in members.items()}
        for cell, members in found.items()
    }


def look(history: CellHistory, _stage: str) -> Polls:
    """In the partition that this cell has here."""
    return polls_of_reads(history)
