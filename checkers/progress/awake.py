"""This module says for how long a client that waited was awake: what its process slept through, it may not have noticed."""

import numpy as np

from prozess.harness.clock import NS_PER_S

BEAT_GAP_NS = NS_PER_S
"""A process whose heartbeats stop for longer than this stood still."""


def longest_awake(beats: np.ndarray, begin_ns: int, end_ns: int) -> tuple[int, int]:
    """Returns the longest part of [begin_ns, end_ns] without a gap of more than BEAT_GAP_NS between heartbeats, which
    ascend.

    Example: beats at 0, 1, 2, 9, 10 s. Of [0, 10] it is [0, 2]: from 2 to 9 the process stood still.
    """
    inside = beats[np.searchsorted(beats, begin_ns, side="right") : np.searchsorted(beats, end_ns, side="left")]
    edges = np.concatenate([[begin_ns], inside, [end_ns]])
    still = np.flatnonzero(np.diff(edges) > BEAT_GAP_NS)
    since, until = np.append(begin_ns, edges[still + 1]), np.append(edges[still], end_ns)
    longest = int(np.argmax(until - since))
    return int(since[longest]), int(until[longest])
