"""Witnesses: the records and observations that show an anomaly. What kernels return and guarantees judge, one by one."""

from collections.abc import Mapping

import numpy as np

from harness.schema import MISSING, NONE

WITNESSES_MAX = 100_000
"""Per anomaly and partition. Beyond it the count stays exact, and the rest cannot be judged: unknown unless violated."""
WITNESSES_SHOWN = 32

WITNESS = np.dtype(
    [
        ("begin_ns", "<i8"),  # invocation of the send, or the earlier event
        ("end_ns", "<i8"),  # its completion, or the later event; MISSING = never
        ("sequence", "<i8"),  # the record concerned
        ("log_offset", "<i8"),  # where it was acknowledged or seen; NONE = unknown
        ("other_sequence", "<i8"),  # the record it conflicts with
        ("other_offset", "<i8"),
        ("other_ns", "<i8"),
        ("seen_ns", "<i8"),  # when a consumer (not the audit) was first given the record; MISSING = never
        ("partition", "<i4"),
        ("client", "<i4"),  # the record's producer
        ("other_client", "<i4"),
        ("reader", "<i4"),  # the client that saw it, NONE
        ("outcome", "<i4"),  # Outcome of the record's send; NONE = not a send
        (
            "leader_epoch",
            "<i4",
        ),  # of the batch in which a reader was given the record (at `log_offset`, if any)
        ("case", "<i4"),  # which of the anomaly's cases, 0 = the only one; see the kernel
    ]
)
_UNSET = {
    "begin_ns": MISSING,
    "end_ns": MISSING,
    "other_ns": MISSING,
    "seen_ns": MISSING,
    "case": 0,
    **dict.fromkeys(
        ("sequence", "log_offset", "other_sequence", "other_offset", "partition", "client", "other_client"),
        NONE,
    ),
    "reader": NONE,
    "outcome": NONE,
    "leader_epoch": NONE,
}


def no_witnesses() -> np.ndarray:
    """An empty array of WITNESS."""
    return np.empty(0, dtype=WITNESS)


def make_witnesses(length: int, columns: Mapping[str, np.ndarray | int]) -> np.ndarray:
    """`length` witnesses with these columns (arrays of that length, or one value for all); the rest is unset."""
    made = np.empty(length, dtype=WITNESS)
    assert columns.keys() <= _UNSET.keys(), columns.keys() - _UNSET.keys()
    for name, unset in _UNSET.items():
        made[name] = columns.get(name, unset)
    return made
