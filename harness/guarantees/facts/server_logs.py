"""Facts that servers' own logs say: when a replica cut its copy off or took its high watermark back, and when it refused
markers. Loops run over elections and lines of that kind, never over witnesses.

    epoch 1: broker 1 leads    a record is acknowledged at offset 40
    epoch 2: broker 2 leads    broker 3 writes "Truncating to offset 30": under a later leader than acknowledged it
    epoch 3: broker 3 leads    its epoch begins at offset 30: the record is gone
"""

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.evidence.ground_truth import FOREVER, Election
from prozess.harness.guarantees.logic import FALSE, TRUE, UNKNOWN, Truth, constant
from prozess.harness.schema import MISSING, NONE, Tristate

AT_ONCE_NS = NS_PER_S // 2
"""A client may note an acknowledgement so much later than its leader gave it."""


def times_are_known(envelope: Envelope) -> bool:
    """Whether the times in servers' logs are those of the trial's clock: no fault may have set a clock."""
    return all(fault.may("shifts_clock") is Tristate.NO for fault in envelope.faults)


def _cuts_of(envelope: Envelope, broker: int) -> list[tuple[int, int]]:
    """Returns (time_ns, offset) of each time that this broker says it cut its copy off."""
    cuts = zip(*(part.tolist() for part in envelope.truncations), strict=True)
    return [(time_ns, cut_at) for node, time_ns, cut_at in cuts if node == broker]


def cut_under(
    envelope: Envelope,
    election: Election,
    acknowledged_ns: np.ndarray,
    offset: np.ndarray,
    *,
    later: bool,
    late_ns: int = 0,
) -> np.ndarray | None:
    """Returns bool[k]: the leader that was elected had cut these records off by its own log, after their acknowledgement (or
    up to `late_ns` before it was noted), and before it led. `later`: under a later leader than the one that acknowledged
    them; else under the same. None: its log was not read, or its times are not known."""
    if election.leader not in envelope.logs_read or not times_are_known(envelope):
        return None
    timeline, found = envelope.timeline, np.zeros(len(offset), dtype=bool)
    acknowledged_in = timeline.leader_epoch[np.maximum(timeline.index_at(acknowledged_ns), 0)]
    for time_ns, cut_at in _cuts_of(envelope, election.leader):
        row = int(timeline.index_at(np.asarray(time_ns)))
        if row < 0 or time_ns > election.time_ns + envelope.error_ns:
            continue
        epoch = int(timeline.leader_epoch[row])
        under = acknowledged_in < epoch if later else acknowledged_in == epoch
        found |= under & (acknowledged_ns <= time_ns + late_ns) & ((offset == NONE) | (cut_at <= offset))
    return found


def cut_though_its_leader_had_it(
    envelope: Envelope, election: Election, acknowledged_ns: np.ndarray, offset: np.ndarray
) -> np.ndarray:
    """Returns bool[k]: the broker that was elected had cut these records off by its own log, under a later leader than
    acknowledged them, and that leader had them: it was in sync from their acknowledgement on, had not been started again,
    and its own log was read and names no such cut. Records of acks=all alone are meant: whoever is in sync has them."""
    timeline, found = envelope.timeline, np.zeros(len(offset), dtype=bool)
    if election.leader not in envelope.logs_read or not times_are_known(envelope):
        return found
    acknowledged_in = timeline.leader_epoch[np.maximum(timeline.index_at(acknowledged_ns), 0)]
    for time_ns, cut_at in _cuts_of(envelope, election.leader):
        row = int(timeline.index_at(np.asarray(time_ns)))
        leader = int(timeline.leader[row]) if row >= 0 else NONE
        if time_ns > election.time_ns or leader in (NONE, election.leader):
            continue
        had_it = (leader in envelope.logs_read) & (timeline.in_sync_until(leader, acknowledged_ns) >= time_ns)
        for at_ns in envelope.registrations.get(leader, np.empty(0, dtype=np.int64)).tolist():
            had_it &= (at_ns < acknowledged_ns - envelope.error_ns) | (at_ns > time_ns + envelope.error_ns)
        for at_ns, others_at in _cuts_of(envelope, leader):
            had_it &= (at_ns > time_ns) | (at_ns < acknowledged_ns - AT_ONCE_NS) | (others_at > offset)
        cut = (acknowledged_in < int(timeline.leader_epoch[row])) & (acknowledged_ns <= time_ns) & (cut_at <= offset)
        found |= had_it & cut & (offset != NONE)
    return found


def below_what_a_follower_took_back(envelope: Envelope, offset: np.ndarray, seen_ns: np.ndarray) -> np.ndarray:
    """Returns bool[k]: after it was seen under one leader, a follower of this leader cut the record off and took back a high
    watermark above it, by its own log: until then it gave the record to consumers, although it was to be cut off."""
    found = np.zeros(len(offset), dtype=bool)
    if not envelope.timeline.known or not times_are_known(envelope):
        return found
    for node, time_ns, high in zip(*(one.tolist() for one in envelope.taken_back), strict=True):
        before = [e for e in envelope.timeline.elections if e.time_ns < time_ns]
        if not before or before[-1].leader == node:
            continue
        cut_at = min((at for ns, at in _cuts_of(envelope, node) if 0 <= time_ns - ns < AT_ONCE_NS), default=FOREVER)
        under = (seen_ns != MISSING) & (seen_ns > before[-1].time_ns + envelope.error_ns)
        found |= under & (offset < high) & (offset >= cut_at)
    return found


def markers_refused(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A broker wrote into its log, while the witness waited, that it does not know the version of WriteTxnMarkers that a
    coordinator sent: so it has no marker. Not so if the logs of all brokers were read and have none. [KAFKA-20322]"""
    times_ns = envelope.markers_refused_ns
    known = bool(envelope.broker_ids) and envelope.logs_read >= envelope.broker_ids and times_are_known(envelope)
    if not len(times_ns) or not times_are_known(envelope):
        return constant(FALSE if known else UNKNOWN, len(witnesses))
    first = np.searchsorted(times_ns, witnesses["begin_ns"] - envelope.error_ns - NS_PER_S)
    # Is the first refusal that is not before the wait before its end? Behind the last one there is none.
    within = (first < len(times_ns)) & (times_ns[np.minimum(first, len(times_ns) - 1)] <= witnesses["end_ns"])
    return np.where(within, TRUE, FALSE if known else UNKNOWN).astype(np.int8)
