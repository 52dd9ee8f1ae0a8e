"""Facts about how long a cluster had been without faults, where something should have settled by then.

Functions return one truth value for each witness. Loops run over faults and changes of leaders, never over witnesses.
"""

from collections.abc import Callable, Sequence

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.evidence.ground_truth import FaultRecord
from prozess.harness.guarantees.facts.undisturbed import disturbances
from prozess.harness.guarantees.logic import (
    FALSE,
    TRUE,
    UNKNOWN,
    Truth,
    all_true,
    any_true,
    as_truth,
    constant,
    doubt_unless,
)
from prozess.harness.schema import MISSING, Tristate

RESIGNS_AFTER = 1.5
"""A leader of the metadata quorum resigns after so many times controller.quorum.fetch.timeout.ms without fetches of a
majority. [KAFKA-15489: LeaderState, its timer for the check of the quorum]"""
ASKED_EVERY_NS = 2 * NS_PER_S
"""Controllers are asked once a second, and answer within another."""


def troubled(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Was there a fault, a change of leader (of the partition, or of any partition of `__consumer_offsets`) or a gap in the
    ISR between `begin_ns` and `end_ns`? Unknown without ground truth, and where it is so only by a fault that was not
    seen to work."""
    if not envelope.timeline.known:
        return constant(UNKNOWN, len(witnesses))
    proven = [fault for fault in envelope.faults if fault.effective is Tristate.YES]
    moved = [(time_ns - envelope.error_ns, time_ns + envelope.error_ns) for time_ns in envelope.coordinators_moved_ns()]

    def overlapped(faults: Sequence[FaultRecord]) -> Truth:
        spans = (*disturbances([envelope.timeline], faults, envelope.error_ns), *moved)
        parts = (as_truth((witnesses["end_ns"] >= a) & (witnesses["begin_ns"] <= b)) for a, b in spans)
        return any_true(constant(FALSE, len(witnesses)), *parts)

    return doubt_unless(overlapped(envelope.faults), known=overlapped(proven) == TRUE)


def quorum_was_out(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Were so many of those that keep the metadata hit by faults at once, some time between `begin_ns` and `end_ns`, that the
    others may have been no majority? Unknown where it is so only by faults that were not seen to work."""
    keepers = envelope.keepers
    enough = (len(keepers) + 1) // 2

    def out(faults: Sequence[FaultRecord]) -> Truth:
        harmful = [f for f in faults if f.nature is None or f.nature.stops or f.nature.freezes or f.nature.cuts]
        parts = []
        for begin_ns in {f.begin_ns for f in harmful}:  # the most are hit when one begins
            active = [f for f in harmful if f.begin_ns <= begin_ns <= f.end_ns]
            if len(keepers.intersection({node for f in active for node in f.nodes})) >= enough:
                end_ns = max(f.end_ns for f in active) + envelope.error_ns
                inside = (witnesses["begin_ns"] <= end_ns) & (witnesses["end_ns"] >= begin_ns - envelope.error_ns)
                parts.append(as_truth(inside))
        return any_true(constant(FALSE, len(witnesses)), *parts)

    proven = [fault for fault in envelope.faults if fault.effective is Tristate.YES]
    return doubt_unless(out(envelope.faults), known=out(proven) == TRUE)


def store_harmed(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Is the offset one that was copied to the remote store, and did a fault keep brokers from the store, or from an object
    of the partition in it, at some time between `begin_ns` and `end_ns`? Unknown where the store was not read."""
    harmed = _fault_meanwhile(envelope, witnesses, lambda fault: np.int8(fault.may("harms_store")))
    if envelope.remote_to is None:
        return doubt_unless(harmed, known=False)
    return all_true(harmed, as_truth(witnesses["log_offset"] < envelope.remote_to))


def fault_meanwhile(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Was there a fault of any kind between `begin_ns` and `end_ns`? Unknown where it was not seen to work."""
    return _fault_meanwhile(envelope, witnesses, lambda fault: np.int8(fault.effective))


def within_fetch_timeout(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Did the controller that was replaced go on for no longer than controller.quorum.fetch.timeout.ms allows? Unknown where
    it is not known when it was replaced (`other_ns`)."""
    allowed_ns = int(envelope.quorum_fetch_ns * RESIGNS_AFTER) + ASKED_EVERY_NS + envelope.error_ns
    short = as_truth(witnesses["end_ns"] - witnesses["begin_ns"] <= allowed_ns)
    return doubt_unless(short, known=witnesses["other_ns"] != MISSING)


def controller_cut_off(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Was the controller (`reader`) cut off from somebody while it went on?"""

    def cut_off(fault: FaultRecord) -> Truth:
        return all_true(as_truth(np.isin(witnesses["reader"], fault.nodes)), np.int8(fault.may("cuts")))

    return _fault_meanwhile(envelope, witnesses, cut_off)


def _fault_meanwhile(
    envelope: Envelope, witnesses: np.ndarray, harmful: Callable[[FaultRecord], Truth | np.int8]
) -> Truth:
    """Was a fault that was `harmful` active at some time between `begin_ns` and `end_ns`, as far as clocks agree?"""
    parts = (
        all_true(
            as_truth(
                (fault.begin_ns - envelope.error_ns <= witnesses["end_ns"])
                & (fault.end_ns + envelope.error_ns >= witnesses["begin_ns"])
            ),
            harmful(fault),
        )
        for fault in envelope.faults
    )
    return any_true(constant(FALSE, len(witnesses)), *parts)
