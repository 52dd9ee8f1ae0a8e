"""What is forgotten by design after a time: producers, records before the log start, tombstones."""

import numpy as np

from harness.guarantees.envelope import Envelope
from harness.guarantees.faults import FOREVER
from harness.guarantees.logic import FALSE, UNKNOWN, Truth, both, constant, either, truth
from harness.schema import MISSING, NONE, Tristate
from harness.snapshot_cases import SnapshotCase


def forgot(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The producer's state had expired before the send ended, so a retry was taken for new.
    [KIP-854 producer.id.expiration.ms]"""
    lived_ns = np.where(witnesses["end_ns"] == MISSING, FOREVER, witnesses["end_ns"] - envelope.begun_ns(witnesses))
    if envelope.producer_expiry_ns is None:
        return constant(UNKNOWN, len(witnesses))
    return truth(lived_ns + envelope.error_ns >= envelope.producer_expiry_ns)


def may_have_expired(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A snapshot does not know a producer, and from the first send to the reading it was as long as producer ids are
    kept. [KIP-854 producer.id.expiration.ms]"""
    unknown_there = truth(witnesses["case"] == SnapshotCase.UNKNOWN_THERE)
    return both(unknown_there, forgot(envelope, witnesses))


def log_start_passed(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The log start was seen beyond the position: what the reader jumped over had been deleted. Not seen = no."""
    times, values = envelope.log_starts
    if not len(times):
        return constant(FALSE, len(witnesses))
    position = np.where(
        witnesses["other_offset"] == NONE,
        witnesses["log_offset"],
        np.minimum(witnesses["log_offset"], witnesses["other_offset"]),
    )
    return truth((position != NONE) & (int(values.max()) > position))


def read_beyond_retention(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """From the older record (`other_*`) to the end the audit took as long as tombstones are kept, so the one behind it
    may have expired meanwhile."""
    if envelope.delete_retention_ns is None or envelope.audited_ns is None:
        return constant(UNKNOWN, len(witnesses))
    began_ns = np.where(witnesses["other_ns"] == MISSING, -FOREVER, witnesses["other_ns"])
    return truth(envelope.audited_ns - began_ns >= envelope.delete_retention_ns)


def audit_beyond_retention(envelope: Envelope) -> Tristate:
    """Did the audit as a whole, from its first look at the log start, take that long?"""
    times, _ = envelope.log_starts
    if envelope.delete_retention_ns is None or envelope.audited_ns is None or not len(times):
        return Tristate.UNKNOWN
    return Tristate.YES if envelope.audited_ns - int(times.min()) >= envelope.delete_retention_ns else Tristate.NO


def away_beyond_retention(envelope: Envelope) -> Tristate:
    """Did a broker lead that a fault had kept away for as long as tombstones are kept?"""
    if envelope.delete_retention_ns is None:
        return Tristate.UNKNOWN if envelope.faults else Tristate.NO
    long = [f for f in envelope.faults if f.end_ns - f.begin_ns + envelope.error_ns >= envelope.delete_retention_ns]
    if long and not envelope.timeline.known:
        return Tristate.UNKNOWN
    led = (
        either(*(np.int8(f.may(what)) for what in ("stops", "freezes", "cuts")))
        for f in long
        for e in envelope.timeline.elections
        if e.leader in f.nodes and e.time_ns + envelope.error_ns >= f.begin_ns
    )
    return Tristate(int(either(np.int8(FALSE), *led)))


def replica_away(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """`away_beyond_retention`, of each witness."""
    return constant(int(away_beyond_retention(envelope)), len(witnesses))
