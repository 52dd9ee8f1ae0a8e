"""This module says how a replica that was in sync came to lead without a committed record: what known defects of brokers
leave in the controllers' log. Loops run over elections, never over witnesses.

    epoch 0: broker 1 leads, 2 and 3 follow    the record is acknowledged at offset 40
    epoch 1: broker 2 leads                    broker 3 follows a change of leader
    epoch 2: broker 3 leads                    its epoch begins at offset 30: it led without the record
"""

from collections.abc import Callable

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.guarantees.evidence.envelope import Envelope, or_never
from prozess.harness.guarantees.evidence.ground_truth import FOREVER, Election
from prozess.harness.guarantees.facts.server_logs import AT_ONCE_NS, cut_though_its_leader_had_it, cut_under
from prozess.harness.guarantees.facts.truncation import epochs_above
from prozess.harness.guarantees.logic import TRUE, UNKNOWN, Truth, any_true, as_truth, constant
from prozess.harness.schema import MISSING, Tristate

PENDING_NS = 30 * NS_PER_S
"""A follower's fetch may be on its way for so long: replica.socket.timeout.ms. [Kafka documentation, broker configuration]"""

OfElection = Callable[[Election, np.ndarray], np.ndarray]
"""(an election, when each record was acknowledged) → bool: it is as the defect leaves it."""


def followed_a_change_then_led_without_it(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A replica that was in sync from the acknowledgement on began to lead without the record, and it had followed another
    new leader before. An answer to a fetch of the epoch before that makes it cut its log, as that log says where it was
    read. [KAFKA-18991]"""
    timeline = envelope.timeline

    def as_left(election: Election, acknowledged_ns: np.ndarray) -> np.ndarray:
        cut = cut_under(envelope, election, acknowledged_ns, witnesses["log_offset"], later=True)
        others = [e.time_ns for e in timeline.elections if e.leader != election.leader and e.time_ns < election.time_ns]
        followed = np.zeros(len(acknowledged_ns), dtype=bool)
        for time_ns in others:
            followed |= time_ns > acknowledged_ns - PENDING_NS - envelope.error_ns
        followed &= timeline.in_sync_until(election.leader, acknowledged_ns) >= election.time_ns
        return followed if cut is None else followed & cut

    return _led_without(envelope, witnesses, as_left)


def followed_its_new_leader_then_led_without_it(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A replica in sync, which followed the leader that acknowledged the record and was new then, began to lead without the
    record. A leader takes the offset of such a follower's fetch for what the follower has, even where it asks it to cut
    its log; that log says so where it was read. [KAFKA-13141]"""
    timeline = envelope.timeline

    def as_left(election: Election, acknowledged_ns: np.ndarray) -> np.ndarray:
        offset = witnesses["log_offset"]
        cut = cut_under(envelope, election, acknowledged_ns, offset, later=False, late_ns=AT_ONCE_NS)
        since_ns = np.full(len(acknowledged_ns), -FOREVER)
        for one in timeline.elections:
            since_ns[one.time_ns <= acknowledged_ns] = one.time_ns if one.leader != election.leader else -FOREVER
        new: np.ndarray = acknowledged_ns < since_ns + PENDING_NS
        new &= timeline.in_sync_until(election.leader, acknowledged_ns) >= election.time_ns
        return new if cut is None else new & cut

    return _led_without(envelope, witnesses, as_left)


def cut_by_the_leader_that_acknowledged_it(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A replica says in its own log that it cut the record off after the acknowledgement, under the very leader that gave it,
    and began to lead without it. Unknown where its log was not read. [KAFKA-13141]"""

    def as_left(election: Election, acknowledged_ns: np.ndarray) -> np.ndarray:
        cut = cut_under(envelope, election, acknowledged_ns, witnesses["log_offset"], later=False)
        return np.zeros(len(acknowledged_ns), dtype=bool) if cut is None else cut

    proven = _led_without(envelope, witnesses, as_left)
    return np.where(proven == TRUE, TRUE, UNKNOWN).astype(np.int8)


def cut_though_its_leader_had_it_then_led_without_it(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A replica in sync says in its own log that it cut off, after its acknowledgement by acks=all, a record that its leader
    of that time had, and it began to lead without the record. Only an answer that it had asked for in an older epoch orders
    that. Unknown where their logs were not read. [KAFKA-18991]"""
    if envelope.acks != "all":
        return constant(UNKNOWN, len(witnesses))

    def as_left(election: Election, acknowledged_ns: np.ndarray) -> np.ndarray:
        found = cut_though_its_leader_had_it(envelope, election, acknowledged_ns, witnesses["log_offset"])
        found &= envelope.timeline.in_sync_until(election.leader, acknowledged_ns) >= election.time_ns
        return found

    # A record may be sent again, and be acknowledged in a later epoch than it was written in. Elections count from then on.
    proven = _led_without(envelope, witnesses, as_left, sent_again=True)
    return np.where(proven == TRUE, TRUE, UNKNOWN).astype(np.int8)


def registered_anew_then_led_without_it(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A broker that had registered anew since the acknowledgement, and so had been started again, began to lead without the
    record. A leader that knows its state before that takes it back into the ISR. [KAFKA-14617; KIP-903]"""

    def as_left(election: Election, acknowledged_ns: np.ndarray) -> np.ndarray:
        times_ns = envelope.registrations.get(election.leader, np.empty(0, dtype=np.int64))
        before = times_ns[times_ns < election.time_ns]
        latest_ns = int(before.max(initial=-FOREVER))
        return acknowledged_ns + envelope.error_ns < latest_ns

    return _led_without(envelope, witnesses, as_left)


def rejoined_with_nothing_then_led_without_it(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A replica whose copy had been destroyed since the acknowledgement, as was seen, was back in the ISR later, and began
    to lead without the record. Nobody is taken back who has not caught up. Never ruled out: a copy may be lost and nobody
    see it. [KAFKA-14617; KIP-903]"""
    timeline = envelope.timeline

    def as_left(election: Election, acknowledged_ns: np.ndarray) -> np.ndarray:
        found = np.zeros(len(acknowledged_ns), dtype=bool)
        for fault in envelope.faults:
            if fault.may("destroys") is not Tristate.YES or election.leader not in fault.seen or fault.made_ns is None:
                continue
            back = timeline.joined_ns(election.leader, election.time_ns) > fault.made_ns
            found |= back & (acknowledged_ns + envelope.error_ns < fault.begin_ns)
        return found

    proven = _led_without(envelope, witnesses, as_left)
    return np.where(proven == TRUE, TRUE, UNKNOWN).astype(np.int8)


def _led_without(envelope: Envelope, witnesses: np.ndarray, as_left: OfElection, *, sent_again: bool = False) -> Truth:
    """Says whether an election is as `as_left` wants it, of those from the record's epoch to the first in the log that began
    without it. Unknown where nobody can say which elections these are: that may be so unless the record was sent in the
    epoch in which it was acknowledged, or `sent_again` says that it may be older."""
    timeline, acknowledged_ns = envelope.timeline, or_never(witnesses["end_ns"])
    begun_ns = envelope.begun_ns(witnesses)
    if not timeline.known or not len(witnesses):
        return constant(UNKNOWN, len(witnesses))
    row, before = timeline.index_at(acknowledged_ns), timeline.index_at(begun_ns)
    epoch = timeline.leader_epoch[np.maximum(row, 0)]
    above = epochs_above(envelope, epoch)
    if above is None:
        return constant(UNKNOWN, len(witnesses))
    known = (witnesses["end_ns"] != MISSING) & (before >= 0)
    known &= sent_again | (epoch == timeline.leader_epoch[np.maximum(before, 0)])
    parts = [
        as_truth((epoch < election.epoch) & (election.epoch <= above) & as_left(election, acknowledged_ns))
        for election in timeline.elections
    ]
    found = any_true(constant(0, len(witnesses)), *parts)
    return np.where(known, found, UNKNOWN).astype(np.int8)
