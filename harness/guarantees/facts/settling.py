"""Facts about how long a cluster had been left in peace, where something should have settled by then.

Functions return one truth value for each witness. Loops run over faults and changes of leaders, never over witnesses.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.evidence.ground_truth import FOREVER, FaultRecord
from prozess.harness.guarantees.logic import FALSE, TRUE, UNKNOWN, Truth, any_true, as_truth, constant, doubt_unless
from prozess.harness.schema import NONE, Tristate


def disturbances(envelope: Envelope, faults: Sequence[FaultRecord]) -> Iterator[tuple[int, int]]:
    """Yields (begin, end) of each fault, of any kind, and of each time in which the partition had no leader or lacked
    replicas in its ISR; a change of leader is a moment. Widened by the clock error."""
    error_ns, timeline = envelope.error_ns, envelope.timeline
    yield from ((fault.begin_ns - error_ns, fault.end_ns + error_ns) for fault in faults)
    whole = int(np.bitwise_or.reduce(timeline.isr)) if timeline.known else 0
    ends = [*timeline.time_ns[1:].tolist(), FOREVER]
    states = zip(timeline.time_ns.tolist(), ends, timeline.leader.tolist(), timeline.isr.tolist(), strict=True)
    for time_ns, end_ns, leader, isr in states:
        yield time_ns - error_ns, (end_ns if leader == NONE or isr != whole else time_ns) + error_ns


def troubled(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Was there a fault, a change of leader (of the partition, or of any partition of `__consumer_offsets`) or a gap in the
    ISR between `begin_ns` and `end_ns`? Unknown without ground truth, and where it is so only by a fault that was not
    seen to work."""
    if not envelope.timeline.known:
        return constant(UNKNOWN, len(witnesses))
    proven = [fault for fault in envelope.faults if fault.effective is Tristate.YES]
    moved = [(time_ns - envelope.error_ns, time_ns + envelope.error_ns) for time_ns in envelope.coordinators_moved_ns()]

    def overlapped(faults: Sequence[FaultRecord]) -> Truth:
        spans = (*disturbances(envelope, faults), *moved)
        parts = (as_truth((witnesses["end_ns"] >= a) & (witnesses["begin_ns"] <= b)) for a, b in spans)
        return any_true(constant(FALSE, len(witnesses)), *parts)

    return doubt_unless(overlapped(envelope.faults), known=overlapped(proven) == TRUE)
