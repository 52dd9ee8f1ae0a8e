"""Did a fault delay a delivery, as far as the trial's bound excepts it? Vectorised over witnesses; loops run over faults."""

import numpy as np

from harness.guarantees.envelope import Envelope
from harness.guarantees.logic import FALSE, UNKNOWN, Truth, both, constant, either, truth
from harness.windows import LateCase


def fault_at_work(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A fault held at some time between the sending (`begin_ns`) and the deadline (`other_ns`), or had been undone for less
    than the stated recovery when it was sent. Of any kind, on any node; but not on those alone that measure."""
    bound = envelope.delivery_bound
    if bound is None:
        return constant(UNKNOWN, len(witnesses))
    since_ns = witnesses["begin_ns"] - bound.recovery_ns - envelope.error_ns
    until_ns = witnesses["other_ns"] + envelope.error_ns
    parts = [
        both(truth((f.begin_ns <= until_ns) & (f.end_ns >= since_ns)), np.int8(f.effective))
        for f in envelope.faults
        if not f.nodes or not set(f.nodes) <= envelope.measured_by
    ]
    return either(constant(FALSE, len(witnesses)), *parts)


def unmeasured(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Nothing in the envelope tells more than the kernel knew."""
    return truth(np.isin(witnesses["case"], (LateCase.STOOD_STILL, LateCase.UNAUDITED)))
