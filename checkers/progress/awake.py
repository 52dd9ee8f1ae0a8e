"""This module says for how long a client that waited was awake, and asked: what its process slept through, or what its
application did not ask for, it may not have noticed."""

from collections.abc import Sequence

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.schema import NONE, RECORDED_ROLES, ObservationKind

BEAT_GAP_NS = NS_PER_S
"""A process whose heartbeats stop for longer than this stood still."""


def longest_awake(beats: np.ndarray, begin_ns: int, end_ns: int) -> tuple[int, int]:
    """Returns the longest part of [begin_ns, end_ns] without a gap of more than BEAT_GAP_NS between heartbeats, which
    ascend.

    Example: beats at 0, 1, 2, 9, 10 s. For [0, 10] it is [0, 2]: from 2 to 9 the process stood still.
    """
    inside = beats[np.searchsorted(beats, begin_ns, side="right") : np.searchsorted(beats, end_ns, side="left")]
    assert begin_ns <= end_ns, (begin_ns, end_ns)
    edges = np.concatenate([[begin_ns], inside, [end_ns]])
    still = np.flatnonzero(np.diff(edges) > BEAT_GAP_NS)
    # In the example the edges are 0 1 2 9 10, still from 2 to 9. It was awake from 0 until 2, and from 9 until 10.
    since, until = np.append(begin_ns, edges[still + 1]), np.append(edges[still], end_ns)
    longest = int(np.argmax(until - since))
    return int(since[longest]), int(until[longest])


Span = tuple[int, int]
UNBOUNDED: Sequence[Span] = ((-(2**62), 2**62),)
_UNASKED = frozenset(RECORDED_ROLES) - {"recorded-command"}
"""The roles of clients that an application drives: they notice something only while it asks."""


def asked_of(history: CellHistory, client: int, kind: ObservationKind) -> Sequence[Span]:
    """Returns when a client was asked (ASKED) or called (CALLED) without a pause, in order. UNBOUNDED for clients that
    prozess drives, or that drive themselves; nothing for one of an application of which no row says so. For POLLED there
    is only what rows say."""
    table = history.tables["clients"]
    planned = {int(one) for one in table["planned"][table["client"] == client]} | {client}
    driven = any(one.client in planned and one.role in _UNASKED for one in history.clients)
    if not driven and kind is not ObservationKind.POLLED:
        return UNBOUNDED
    asked = history.tables["asked"]
    rows = np.flatnonzero((asked["client"] == client) & (asked["kind"] == kind.value))
    begin_ns, lasted_ns = asked["time_ns"][rows], asked["value"][rows]
    end_ns = np.where(lasted_ns == NONE, UNBOUNDED[0][1], begin_ns + lasted_ns)
    return sorted(zip(begin_ns.tolist(), end_ns.tolist(), strict=True))


def while_asked(spans: Sequence[Span], waits: Sequence[Span], least_ns: int) -> list[Span]:
    """Returns the parts of these waits that lie in one of the spans, and last for `least_ns`.

    Example: spans of 0 to 10 s and of 30 to 55 s, a wait of 5 s to 50 s, and 10 s: 30 s to 50 s.
    """
    parts = [(max(a, since), min(b, until)) for a, b in waits for since, until in spans]
    return [(a, b) for a, b in parts if b - a >= least_ns]
