"""acks=1: the tail of a log that a change of leader takes away, and what is beyond that because it was committed."""

import numpy as np

from harness.guarantees.deposed import (
    OFFSET_TAKEN_CASE,
    destroyed_leader,
    keepers_hampered_between,
    leader_hampered_between,
    moved_under,
)
from harness.guarantees.envelope import Envelope
from harness.guarantees.faults import FOREVER
from harness.guarantees.logic import FALSE, UNKNOWN, Truth, both, constant, doubted, either, negate, truth
from harness.guarantees.timeline import Election
from harness.schema import MISSING, NONE, Outcome

LAG_FACTOR = 1.5
"""A follower that lags leaves the ISR within replica.lag.time.max.ms plus half of it between two checks.
[ReplicaManager: scheduler period replicaLagTimeMaxMs / 2]"""


def committed(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """acks=all acknowledged it, a consumer was given it, or the high watermark was seen above it. Not seen = no."""
    acknowledged = (witnesses["outcome"] == Outcome.OK) & (envelope.acks == "all")
    return truth(acknowledged | (witnesses["seen_ns"] != MISSING) | _below_watermark(envelope, witnesses))


def _below_watermark(envelope: Envelope, witnesses: np.ndarray) -> np.ndarray:
    """bool: a high watermark above its offset was seen after its acknowledgement, in the one leadership that can have
    acknowledged it. Later ones may have given the offset to another record."""
    times, values = envelope.high_watermarks
    if not len(times) or not envelope.timeline.known:
        return np.zeros(len(witnesses), dtype=bool)
    begun_ns, until_ns = envelope.begun_ns(witnesses), np.full(len(witnesses), FOREVER)
    for election in reversed(envelope.timeline.elections):
        moved = moved_under(envelope, election, witnesses, begun_ns)
        until_ns = np.where(moved != FALSE, election.time_ns - envelope.error_ns, until_ns)
    last = np.searchsorted(times, until_ns, side="left") - 1
    seen = (last >= 0) & (times[last] > envelope.acknowledged_ns(witnesses)) & (witnesses["log_offset"] != NONE)
    return np.asarray(seen & (values[last] > witnesses["log_offset"]))


def tail(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Not committed, and some later leader never had it, whatever the cause of the move; or the leader that
    acknowledged it was destroyed. A move while the send was under way counts, if the old leader could still answer:
    on which side of it the append fell cannot be told. [acks; KAFKA-20554]"""
    if not envelope.timeline.known:
        return both(constant(UNKNOWN, len(witnesses)), negate(committed(envelope, witnesses)))
    begun_ns = envelope.begun_ns(witnesses)
    parts = [destroyed_leader(envelope, witnesses, begun_ns)]
    for election in envelope.timeline.elections:
        moved = moved_under(envelope, election, witnesses, begun_ns)
        if not moved.any():
            continue
        missed = negate(had(envelope, election, witnesses, begun_ns))
        # A deposed leader's own epoch may begin below the next one's start, and all of it is cut. [KIP-101]
        taken = witnesses["case"] == OFFSET_TAKEN_CASE
        parts.append(both(moved, truth(envelope.reaches(election, witnesses["log_offset"]) | taken), missed))
    return both(negate(committed(envelope, witnesses)), either(*parts))


def had(envelope: Envelope, election: Election, witnesses: np.ndarray, begun_ns: np.ndarray) -> Truth:
    """The new leader had the (uncommitted) record: it acknowledged it itself, or it stayed in the ISR so long after
    the acknowledgement, under a leader that could reach a living controller, that lagging would have cost it its
    place."""
    # A send that seems to begin after the election reached the deposed leader, if anything (clock error, zombie).
    asked = np.where(begun_ns < election.time_ns, envelope.timeline.leader_at(begun_ns), election.previous)
    itself = asked == election.leader
    acknowledged_ns = envelope.existed_ns(witnesses)
    since_ns = acknowledged_ns - envelope.error_ns
    until_ns = np.minimum(
        envelope.timeline.in_sync_until(election.leader, since_ns), election.time_ns - envelope.error_ns
    )
    stayed = truth(until_ns > since_ns)
    if envelope.lag_max_ns is None:
        long_enough, end_ns = doubted(stayed, known=False), since_ns
    else:
        end_ns = acknowledged_ns + int(LAG_FACTOR * envelope.lag_max_ns) + envelope.error_ns
        long_enough = both(stayed, truth(until_ns >= end_ns))
    held_up = either(
        leader_hampered_between(envelope, since_ns, end_ns), keepers_hampered_between(envelope, since_ns, end_ns)
    )
    return either(truth(itself), both(long_enough, negate(held_up)))
