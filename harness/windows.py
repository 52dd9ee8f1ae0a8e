"""What came of a delivery bound, window by window: the kernel counts, the judge says what is excused, reports show it.

Everything is exact but percentiles of latencies: those are counted in bins, so that partitions, or pieces of one, can be
counted wherever they are and put together. A bin is 1/128 of a power of two wide, and a percentile is the upper end of its
bin: never too small, and less than 0.8 % too large.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum

import numpy as np

from harness.schema import MISSING

WINDOW = np.dtype(
    [
        ("number", "<i8"),  # it begins at number × window_s on the trial's clock: records that were sent in it
        ("sent", "<i8"),  # handed to producers, whatever became of them
        ("acknowledged", "<i8"),  # those of them that are owed: produced
        ("delivered", "<i8"),  # owed, and given to everyone who was to be given it: consumed
        ("late", "<i8"),  # delivered, but beyond the bound
        ("missing", "<i8"),  # owed, and somebody was never given it
        ("open", "<i8"),  # whoever was to be given it ended in order before the bound had passed
        ("unmeasured", "<i8"),  # of the late and missing: a client stood still, or the audit did not end
        ("unacknowledged", "<i8"),  # delivered, though never acknowledged
        ("p50_ns", "<i8"),  # latencies of what was delivered, rounded up to a bin; MISSING = nothing was
        ("p99_ns", "<i8"),
        ("max_ns", "<i8"),  # exact
    ]
)
BINNED = np.dtype([("number", "<i8"), ("bin", "<i8"), ("count", "<i8")])
"""Latencies of what was delivered, of the window `number`: so many in a bin. Ascending by window and bin, counts > 0."""
_BIN_BITS = 7
"""Of a latency as a float64, all but the exponent's and the fraction's first bits are dropped: that is its bin."""
_SHIFT = 52 - _BIN_BITS
_DENSE = 1 << 16
_SUMMED = tuple(name for name in (WINDOW.names or ()) if name != "number" and not name.endswith("_ns"))
_SHARES = {"p50_ns": 0.5, "p99_ns": 0.99}


class LateCase(IntEnum):
    """`case` of witnesses of `late`."""

    LATE = 0
    """It was given, after its deadline."""
    MISSING = 1
    """It was never given, though who was to be given it lived on past the deadline."""
    STOOD_STILL = 2
    """Its producer, or who was to be given it, stood still or was dead for so long that this alone may explain it."""
    UNAUDITED = 3
    """It was never given, and the audit of its partition did not end."""


def no_windows() -> np.ndarray:
    """An empty array of WINDOW."""
    return np.empty(0, dtype=WINDOW)


def no_latencies() -> np.ndarray:
    """An empty array of BINNED."""
    return np.empty(0, dtype=BINNED)


def bin_latencies(numbers: np.ndarray, place: np.ndarray, latency_ns: np.ndarray) -> np.ndarray:
    """BINNED, of deliveries. `numbers`: windows, ascending; `place`: in which of them each was sent. What is below 0 (clocks
    that differ) counts as 0. O(n), O(n log n) for few deliveries in many windows."""
    if not len(latency_ns):
        return no_latencies()
    bins = np.maximum(latency_ns, 0).astype(np.float64).view(np.int64) >> _SHIFT
    least = int(bins.min())
    width = int(bins.max()) - least + 1
    cell = place * width + (bins - least)
    if len(numbers) * width <= 4 * len(cell) + _DENSE:
        counts = np.bincount(cell)
        cell = np.flatnonzero(counts)
        counts = counts[cell]
    else:
        cell, counts = np.unique(cell, return_counts=True)
    made = np.empty(len(cell), dtype=BINNED)
    made["number"], made["bin"], made["count"] = numbers[cell // width], least + cell % width, counts
    return made


def merge_windows(windows: Sequence[np.ndarray], latencies: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(WINDOW, BINNED) of several parts together."""
    every, binned = np.concatenate([no_windows(), *windows]), _added(np.concatenate([no_latencies(), *latencies]))
    numbers, place = np.unique(every["number"], return_inverse=True)
    columns: dict[str, np.ndarray] = {"number": numbers}
    for name in _SUMMED:
        columns[name] = np.zeros(len(numbers), dtype=np.int64)
        np.add.at(columns[name], place, every[name])
    columns["max_ns"] = np.full(len(numbers), MISSING)  # less than every latency
    np.maximum.at(columns["max_ns"], place, every["max_ns"])
    return make_windows(columns | percentiles(numbers, binned, columns["max_ns"])), binned


def percentiles(numbers: np.ndarray, binned: np.ndarray, max_ns: np.ndarray) -> dict[str, np.ndarray]:
    """Column of WINDOW → its values: the upper end of the first bin up to which so many of a window's latencies are, and the
    greatest latency at most; MISSING = there are none. `numbers`, `max_ns`: of each window; ascending."""
    first, last = (np.searchsorted(binned["number"], numbers, side=side) for side in ("left", "right"))
    until = np.concatenate([[0], np.cumsum(binned["count"])])
    total = until[last] - until[first]
    there = total > 0
    found = {}
    for name, share in _SHARES.items():
        rank = np.maximum(np.ceil(total * share).astype(np.int64), 1)
        bins = binned["bin"][np.searchsorted(until[1:], (until[first] + rank)[there])]
        found[name] = np.full(len(numbers), MISSING)
        upper_ns = np.ceil(((bins + 1) << _SHIFT).view(np.float64)).astype(np.int64) - 1
        found[name][there] = np.minimum(upper_ns, max_ns[there])
    return found


def _added(binned: np.ndarray) -> np.ndarray:
    """Bins that stand several times, once. Ascending."""
    order = np.lexsort((binned["bin"], binned["number"]))
    number, bins = binned["number"][order], binned["bin"][order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (number[1:] != number[:-1]) | (bins[1:] != bins[:-1])
    starts = np.flatnonzero(new)
    made = np.empty(len(starts), dtype=BINNED)
    made["number"], made["bin"] = number[starts], bins[starts]
    made["count"] = np.add.reduceat(binned["count"][order], starts) if len(starts) else 0
    return made


def make_windows(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Windows from all their columns, arrays of one length."""
    assert set(columns) == set(WINDOW.names or ()), set(columns) ^ set(WINDOW.names or ())
    made = np.empty(len(columns["number"]), dtype=WINDOW)
    for name, values in columns.items():
        made[name] = values
    return made
