"""Copies whose data was destroyed, and whether an intact one was left to lead."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.guarantees.faults import FaultRecord
from harness.guarantees.timeline import Timeline
from harness.schema import Tristate

_MASK_BITS = 63


@dataclass(frozen=True, slots=True)
class Wiped:
    """No intact copy could lead from `begin_ns` on; records sent or read after `destroyed_ns` are not concerned: until then
    a copy that was being destroyed may still have been written to, and read."""

    begin_ns: int
    destroyed_ns: int


def wiped_moments(timeline: Timeline, faults: Sequence[FaultRecord]) -> tuple[Wiped, ...]:
    """Every moment from which no member of safe(p) = ISR ∪ ELR, else the last known leader, was intact: each had been
    destroyed and not yet copied from an intact one (left ISR ∪ ELR and came back into the ISR since)."""
    wipes = [
        (f.begin_ns, f.begin_ns if f.made_ns is None else f.made_ns, node)
        for f in faults
        if f.may("destroys") is Tristate.YES
        for node in f.hit
    ]
    moments = np.unique(np.concatenate([timeline.time_ns, np.array([t for t, _, _ in wipes], dtype=np.int64)]))
    gone: dict[int, int] = {}
    left: set[int] = set()
    found: list[Wiped] = []
    for moment in moments.tolist():
        row = int(timeline.index_at(np.asarray(moment)))
        if row < 0:
            continue
        isr = int(timeline.isr[row])
        eligible = isr | int(timeline.elr[row])
        back = {node for node in left if isr >> node & 1}
        gone = {node: wiped_ns for node, wiped_ns in gone.items() if node not in back}
        gone |= {node: made_ns for begin_ns, made_ns, node in wipes if begin_ns == moment}
        left = {node for node in gone if not eligible >> node & 1 or (node in left and node not in back)}
        safe = [node for node in range(_MASK_BITS) if (eligible or int(timeline.last_known_elr[row])) >> node & 1]
        if safe and all(node in gone for node in safe):
            found.append(Wiped(moment, min(gone[node] for node in safe)))
    return tuple(found)
