"""Was a partition left in peace for long enough? Vectorised over witnesses; loops run over faults and changes."""

import numpy as np

from harness.guarantees.envelope import Envelope
from harness.guarantees.faults import FOREVER
from harness.guarantees.logic import UNKNOWN, Truth, constant, truth
from harness.schema import NONE


def unsettled(envelope: Envelope, witnesses: np.ndarray, lasting_ns: int) -> Truth:
    """No stretch of `lasting_ns` between `begin_ns` and `end_ns` was free of faults (of any kind, clients' too), changes of
    leader and gaps in the ISR. Unknown without ground truth."""
    if not envelope.timeline.known:
        return constant(UNKNOWN, len(witnesses))
    longest = np.zeros(len(witnesses), dtype=np.int64)
    for begin_ns, end_ns in _free_stretches(envelope):
        overlap = np.minimum(witnesses["end_ns"], end_ns) - np.maximum(witnesses["begin_ns"], begin_ns)
        longest = np.maximum(longest, overlap)
    return truth(longest < lasting_ns)


def _free_stretches(envelope: Envelope) -> list[tuple[int, int]]:
    error_ns, timeline = envelope.error_ns, envelope.timeline
    whole = int(np.bitwise_or.reduce(timeline.isr))
    disturbed = [(f.begin_ns - error_ns, f.end_ns + error_ns) for f in envelope.faults]
    ends = [*timeline.time_ns[1:].tolist(), None]
    for time_ns, end_ns, leader, isr in zip(
        timeline.time_ns.tolist(), ends, timeline.leader.tolist(), timeline.isr.tolist(), strict=True
    ):
        broken = leader == NONE or isr != whole
        until_ns = (FOREVER if end_ns is None else end_ns) if broken else time_ns
        disturbed.append((time_ns - error_ns, until_ns + error_ns))
    free, since_ns = [], -FOREVER
    for begin_ns, end_ns in sorted(disturbed):
        if begin_ns > since_ns:
            free.append((since_ns, begin_ns))
        since_ns = max(since_ns, end_ns)
    return [*free, (since_ns, FOREVER)]
