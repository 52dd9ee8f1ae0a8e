"""What came of a delivery bound, window by window: the kernel counts, the judge says what is excused, reports show it."""

from collections.abc import Mapping
from enum import IntEnum

import numpy as np

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
        ("p50_ns", "<i8"),  # latencies of what was delivered; MISSING = nothing was
        ("p99_ns", "<i8"),
        ("max_ns", "<i8"),
    ]
)


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


def make_windows(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Windows from all their columns, arrays of one length."""
    assert set(columns) == set(WINDOW.names or ()), set(columns) ^ set(WINDOW.names or ())
    made = np.empty(len(columns["number"]), dtype=WINDOW)
    for name, values in columns.items():
        made[name] = values
    return made
