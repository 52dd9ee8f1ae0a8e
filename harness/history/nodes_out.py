"""This module says when nodes were certainly out of reach, by what faults were seen to do to them. Pure."""

from collections.abc import Mapping, Sequence

import numpy as np

from prozess.harness.schema import FaultPhase, Tristate

ENDS_OR_FREEZES = frozenset({"kill", "stop", "pause", "power-loss", "wipe"})
"""Faults whose nodes neither answer nor ask anybody, from when that was observed until the fault is undone."""
NOT_UNDONE_NS = 2**62
"""When a fault ends that was never undone."""


def nodes_out(
    faults: Mapping[str, np.ndarray], dictionaries: Mapping[str, Sequence[str]]
) -> Mapping[int, tuple[tuple[int, int], ...]]:
    """Returns, for each node, since when and until when it was out of reach, in ns: ascending, none within another.

    Example: a kill of node 2 is observed at 5 s and undone at 30 s, a pause of it is observed at 20 s and undone at 40 s.
    Node 2 was out from 5 s to 40 s.
    """
    names = dictionaries.get("fault", ())
    codes = [code for code, name in enumerate(names) if name in ENDS_OR_FREEZES]
    mine = np.isin(faults["kind"], codes)
    seen = np.flatnonzero(mine & (faults["phase"] == FaultPhase.VERIFIED) & (faults["effect"] == Tristate.YES))
    found: dict[int, list[tuple[int, int]]] = {}
    for row in seen.tolist():  # a few faults
        node = int(faults["node"][row])
        of_fault = mine & (faults["fault"] == faults["fault"][row]) & (faults["phase"] == FaultPhase.UNDONE)
        undone = faults["time_ns"][of_fault & np.isin(faults["node"], (node, -1))]
        found.setdefault(node, []).append(
            (int(faults["time_ns"][row]), int(undone.min()) if len(undone) else NOT_UNDONE_NS)
        )
    return {node: _joined(spans) for node, spans in sorted(found.items())}


def _joined(spans: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    joined: list[tuple[int, int]] = []
    for begin_ns, end_ns in sorted(spans):
        if end_ns <= begin_ns:
            continue
        if joined and begin_ns <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end_ns))
        else:
            joined.append((begin_ns, end_ns))
    return tuple(joined)
