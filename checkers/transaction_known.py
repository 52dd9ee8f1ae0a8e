"""What must be known of all partitions of a cell to judge its transactions in each of them. Made by
`checkers.transaction_parts`, used where a cell is looked at a partition at a time."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Bits are packed, one per transaction of the cell."""

    audited: bool
    incomplete: str | None
    """As of the whole cell (`CellIndex.incomplete`)."""
    shown: np.ndarray
    """Bits: V of some partition shows a record of it."""
    seen_committed: np.ndarray
    """Bits: a read_committed consumer was given a record of it."""
    first: tuple[np.ndarray, np.ndarray, np.ndarray]
    """Of transactions that may be torn, ascending: which, and the sequence and offset of the first record that V shows."""
    edges: Any = None
    """`transaction_cycles.Edges` that may be in cycles; None: nobody asked."""
    edges_judged: tuple[int, int] = (0, 0)
    """How many edges there are by reads, and by writes."""


def packed(flags: np.ndarray) -> np.ndarray:
    """Bits of a bool array."""
    return np.packbits(flags)


def unpacked(bits: np.ndarray, length: int) -> np.ndarray:
    """bool[length]."""
    return np.unpackbits(bits, count=length).astype(bool)
