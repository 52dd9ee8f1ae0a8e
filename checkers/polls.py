"""When members of a group were seen to poll, over all partitions of a cell: what ownership must know of them together."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from checkers.lookup import differs_from_previous
from checkers.ownership import Members, Polls, polls_of_reads, silence_ns
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
    """In the partition that this cell has here, thinned out: only silences of a certain length are asked for."""
    members = Members.of(history)
    polls = polls_of_reads(history)
    return {one: thinned(times, silence_ns(history.cell)) for one, times in polls.items() if one in members.beats}


def thinned(times: np.ndarray, silence: int) -> np.ndarray:
    """Of ascending times the first and the last within each stretch of that length. Silences that last at least so long stay
    as they are, and none is added, whatever other times come between: who was dropped stands between two that are nearer to
    one another than that."""
    if silence <= 0 or len(times) < 3:
        return times
    first = differs_from_previous(times // silence)
    kept: np.ndarray = times[first | np.append(first[1:], True)]
    return kept
