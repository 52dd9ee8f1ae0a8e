"""Facts about leaders and coordinators at the time of a witness: replaced, cut off, frozen, dead, or robbed of what they
knew; about faults that were active; and about the traces that known defects leave.

Functions return one truth value for each witness. Loops run over elections and faults, never over witnesses.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.config.configuration import FIRST_CONTROLLER_ID
from prozess.harness.guarantees.evidence.envelope import DEPOSED_NS, AppendedBatches, Envelope, or_never
from prozess.harness.guarantees.evidence.ground_truth import FOREVER, Columns, Election, FaultRecord
from prozess.harness.guarantees.facts.server_logs import below_what_a_follower_took_back
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
    negate,
)
from prozess.harness.interfaces.witnesses import CopyCase, EarlyCase, LateCase
from prozess.harness.recording.verifiable_output import EXPIRED
from prozess.harness.schema import MISSING, NONE, ORIGIN_SEQUENCE_BITS, Outcome, Tristate

OFFSET_TAKEN_CASE = 1
"""WITNESS.case of `lost` (prozess.checkers.log.losses): another record stands at the offset it was acknowledged at."""


def moved_under(envelope: Envelope, election: Election, witnesses: np.ndarray, begun_ns: np.ndarray) -> Truth:
    """The leader that the election deposed acknowledged it; unknown where that one or the next may have: the send began after
    the election, and its offset is not one that only the deposed leader can have given."""
    by_old = (witnesses["case"] == OFFSET_TAKEN_CASE) | envelope.beyond(witnesses["log_offset"])
    began_before = begun_ns <= election.time_ns + envelope.error_ns
    return any_true(
        doubt_unless(moves_away(envelope, election, begun_ns), known=began_before | by_old),
        doubt_unless(zombie_answered(envelope, election, begun_ns), known=began_before | by_old),
        _given_by_two(envelope, election, witnesses, begun_ns),
    )


def moves_away(envelope: Envelope, election: Election, begun_ns: np.ndarray) -> Truth:
    """The election came after the send began, or so shortly before that the old leader may not have known; and that one
    was not already dead by then."""
    known_ns = election.time_ns + DEPOSED_NS + envelope.error_ns
    return as_truth((begun_ns <= known_ns) & (begun_ns <= _dead_ns(envelope, election) + envelope.error_ns))


def _dead_ns(envelope: Envelope, election: Election) -> int:
    """Returns from when on the leader that the election replaced was certainly dead; FOREVER = nothing says so."""
    return min(
        (
            f.proven_ns
            for f in envelope.faults
            if f.leaves_down is Tristate.YES and election.previous in f.hit and f.proven_ns > election.previous_since_ns
        ),
        default=FOREVER,
    )


def _given_by_two(envelope: Envelope, election: Election, witnesses: np.ndarray, begun_ns: np.ndarray) -> Truth:
    """The leader deposed by the election may have answered still, and its offset was given by the next one as well, or is
    beyond what that one's log ever came to: one leader gives an offset once, and keeps what it has. Therefore it was the
    deposed one who acknowledged. [Seen on a machine that stood still: fenced without any fault, it acknowledged for 3.6 s
    more]"""
    after_ns = election.time_ns - envelope.error_ns
    asked = (begun_ns >= after_ns) & (begun_ns <= envelope.known_ns(election))
    alive = begun_ns <= _dead_ns(envelope, election) + envelope.error_ns
    taken = witnesses["case"] == OFFSET_TAKEN_CASE
    return as_truth(asked & (taken | (alive & envelope.beyond(witnesses["log_offset"]))))


def zombie_answered(envelope: Envelope, election: Election, begun_ns: np.ndarray) -> Truth:
    """The leader deposed by it, cut off or frozen then, may still have acknowledged until it was in sync again."""
    after_ns = election.time_ns - envelope.error_ns
    rejoined_ns = envelope.timeline.rejoined_ns(election.previous, election.time_ns) + envelope.error_ns
    out = any_true(*_out_then(envelope, election))
    return all_true(out, as_truth((begun_ns >= after_ns) & (begun_ns <= rejoined_ns)))


def _out_then(envelope: Envelope, election: Election) -> list[Truth]:
    """Was the deposed leader cut off or frozen when it was deposed? Keyed by each fault that may have been the cause."""
    return [
        any_true(np.int8(f.may("freezes")), np.int8(f.may("cuts")))
        for f in envelope.faults
        if election.previous in f.nodes
        and f.begin_ns <= election.time_ns + envelope.error_ns
        and f.end_ns >= election.time_ns - envelope.error_ns
    ]


def answered_until_ns(envelope: Envelope, election: Election) -> int:
    """Until when a send may have begun that the leader deposed by it took: alive, fenced, cut off or frozen."""
    causes = any_true(*_out_then(envelope, election))
    rejoined_ns = envelope.timeline.rejoined_ns(election.previous, election.time_ns) + envelope.error_ns
    until_ns = max(envelope.known_ns(election), rejoined_ns) if causes != FALSE else envelope.known_ns(election)
    return min(until_ns, _dead_ns(envelope, election) + envelope.error_ns)


def leader_hampered(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The leader was cut from somebody, frozen or dead for a part of the send, so it may not have learned of the ISR; or the
    controllers had not heard of it for a session, fenced and deposed it, and it had not heard of that."""
    begun_ns = envelope.begun_ns(witnesses) - DEPOSED_NS - envelope.error_ns
    if not envelope.timeline.known:
        return constant(UNKNOWN, len(witnesses))
    by_faults = leader_hampered_between(envelope, begun_ns, or_never(witnesses["end_ns"]))
    return any_true(by_faults, _fenced_unawares(envelope, witnesses))


def _fenced_unawares(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A leader that was fenced and deposed may have acknowledged it. Seen: the machine stood still for seconds; records were
    acknowledged 2.9 s after the controllers had fenced their leader, which every broker still named."""
    begun_ns, end_ns = envelope.begun_ns(witnesses), or_never(witnesses["end_ns"])
    parts = [
        as_truth(
            (begun_ns <= envelope.known_ns(election)) & (end_ns >= _lost_ns(envelope, election) - envelope.error_ns)
        )
        for election in envelope.timeline.elections
        if election.deposed_fenced
        and envelope.timeline.rejoined_ns(election.previous, election.time_ns) != FOREVER  # else nothing says how long
    ]
    return any_true(constant(0, len(witnesses)), *parts)


def _lost_ns(envelope: Envelope, election: Election) -> int:
    """Returns when the leader before the election stopped to lead; since then the partition may have had no leader for
    a while."""
    timeline = envelope.timeline
    led = np.flatnonzero((timeline.time_ns < election.time_ns) & (timeline.leader == election.previous))
    return int(timeline.time_ns[led[-1] + 1]) if len(led) else election.time_ns


def leader_hampered_between(envelope: Envelope, since_ns: np.ndarray, until_ns: np.ndarray) -> Truth:
    """The leader of that time was cut from somebody, frozen or dead for a while, so it may not have shrunk the ISR."""
    leader = envelope.timeline.last_leader_at(since_ns)
    return _hampered(envelope, since_ns, until_ns, lambda f: np.isin(leader, f.nodes))


def keepers_hampered_between(envelope: Envelope, since_ns: np.ndarray, until_ns: np.ndarray) -> Truth:
    """A node was cut off, frozen or dead that the cluster may need to change the ISR."""
    return _hampered(
        envelope,
        since_ns,
        until_ns,
        lambda f: np.full(len(since_ns), not envelope.keepers.isdisjoint(f.nodes), dtype=bool),
    )


def _hampered(
    envelope: Envelope, since_ns: np.ndarray, until_ns: np.ndarray, touches: Callable[[FaultRecord], np.ndarray]
) -> Truth:
    parts = []
    for f in envelope.faults:
        overlap = (f.begin_ns - envelope.error_ns <= until_ns) & (f.end_ns + envelope.error_ns >= since_ns)
        harm = any_true(*(np.int8(f.may(what)) for what in ("stops", "freezes", "cuts")))
        parts.append(all_true(as_truth(overlap & touches(f)), harm))
    return any_true(constant(0, len(since_ns)), *parts)


def destroyed_leader(envelope: Envelope, witnesses: np.ndarray, begun_ns: np.ndarray) -> Truth:
    """The leader's copy was destroyed, and nobody else led next: whether another leader had the record is shown by that one's
    election."""
    leader = envelope.timeline.leader_at(begun_ns)
    parts = []
    for f in envelope.faults:
        later = (e for e in envelope.timeline.elections if e.time_ns + envelope.error_ns >= f.begin_ns)
        successor = next(later, None)
        took_over = successor is not None and successor.previous in f.hit and successor.leader not in f.hit
        was_led = np.isin(leader, f.hit) & (f.end_ns >= begun_ns)
        parts.append(all_true(as_truth(was_led & (not took_over)), np.int8(f.may("destroys"))))
    return any_true(constant(0, len(witnesses)), *parts)


# What else may explain a witness: a leader or coordinator that was deposed, out, or lost what it knew. Loops run over
# elections and faults, never over witnesses.


def leader_changed(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    if not envelope.timeline.known:
        return constant(UNKNOWN, len(witnesses))
    begun_ns = envelope.begun_ns(witnesses)
    # A client learns of it from a leader that knows it was deposed.
    changes = (as_truth(envelope.known_ns(e) >= begun_ns) for e in envelope.timeline.elections)
    return any_true(constant(FALSE, len(witnesses)), *changes)


def leader_changed_during_the_send(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Did the leader change before the client knew how the send ended? After that the client sends nothing again."""
    if not envelope.timeline.known:
        return constant(UNKNOWN, len(witnesses))
    begun_ns, end_ns = envelope.begun_ns(witnesses), or_never(witnesses["end_ns"]) + envelope.error_ns
    changes = (
        as_truth((envelope.known_ns(e) >= begun_ns) & (e.time_ns <= end_ns)) for e in envelope.timeline.elections
    )
    return any_true(constant(FALSE, len(witnesses)), *changes)


def leader_may_have_refused(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Finds sends that a leader may have refused, because it did not know that it leads when the send began, or was deposed
    after, or its topic was deleted. It refuses what comes before it knows, and takes what comes after. The first leader too,
    and one that a fault stopped and that leads again in the same epoch."""
    timeline = envelope.timeline
    if not timeline.known:
        return constant(UNKNOWN, len(witnesses))
    begun_ns, end_ns = envelope.begun_ns(witnesses), or_never(witnesses["end_ns"]) + envelope.error_ns
    began = [
        (int(timeline.leader_epoch[0]), int(timeline.time_ns[0])),
        *((e.epoch, e.time_ns) for e in timeline.elections),
        *_returned_leaders(envelope),
    ]
    unaware = (
        as_truth((begun_ns <= envelope.led_by_ns(epoch, since_ns)) & (since_ns <= end_ns)) for epoch, since_ns in began
    )
    deleted = (
        as_truth((begun_ns <= life.deleted_ns + DEPOSED_NS + envelope.error_ns) & (life.deleted_ns <= end_ns))
        for life in timeline.lives
        if life.deleted_ns is not None
    )
    return any_true(leader_changed_during_the_send(envelope, witnesses), *unaware, *deleted)


def _returned_leaders(envelope: Envelope) -> Iterator[tuple[int, int]]:
    """(leader epoch, when it was started again) of leaders that a fault stopped."""
    timeline = envelope.timeline
    for fault in envelope.faults:
        row = int(timeline.index_at(np.asarray(fault.begin_ns)))
        if fault.may("stops") is not Tristate.NO and row >= 0 and int(timeline.leader[row]) in fault.hit:
            yield int(timeline.leader_epoch[row]), fault.end_ns


BEFORE_NS = 10 * NS_PER_S
"""A request that a fault delayed may arrive this much after it: clients wait so long for an answer here
(socket.timeout.ms)."""


MARKERS_NS = 10 * NS_PER_S
"""A decision's markers may be this late, while brokers sync every record: commit returns before they are written. Until then
__transaction_state alone has the decision. [KIP-98; seen: 0.2 s]"""


def decision_lost(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A decision of the transaction coordinator was lost: its state was (`coordinator_state_lost`), also by a fault so soon
    after the decision that markers need not have been written."""
    return coordinator_state_lost(envelope, witnesses, late_ns=MARKERS_NS)


def coordinator_state_lost(envelope: Envelope, witnesses: np.ndarray, *, late_ns: int = 0) -> Truth:
    """Partitions of internal topics are not sampled: not lost if nothing could destroy or cut them; lost, from then on, and
    for what ended `late_ns` before, if one fault destroyed what every broker had; else not known."""
    ways = _ways_to_lose(envelope)
    # An unclean election that was asked for is one of partitions under trial: whether of internal ones too is not known.
    destroying = [what for what in ways if what != "elects_unclean"]
    harm = any_true(*(np.int8(f.may(what)) for f in envelope.faults for what in ways))
    everybody = envelope.broker_ids
    certain = [
        as_truth(f.begin_ns - envelope.error_ns - late_ns <= _or_forever(witnesses["end_ns"]))
        for f in envelope.faults
        if everybody and everybody <= set(f.seen) and any(f.may(what) is Tristate.YES for what in destroying)
    ]
    never = harm == FALSE and not envelope.unstated
    return any_true(constant(FALSE if never else UNKNOWN, len(witnesses)), *certain)


def owner_since_before_the_loss(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Did the other owner have the partition since before the fault? One that got it later got it from a coordinator that
    knows the group as it is now."""
    parts = [
        all_true(as_truth(witnesses["other_ns"] <= f.end_ns + envelope.error_ns), np.int8(f.may(what)))
        for f in envelope.faults
        for what in _ways_to_lose(envelope)
    ]
    return any_true(constant(FALSE, len(witnesses)), *parts)


def _ways_to_lose(envelope: Envelope) -> list[str]:
    """The ways in which a fault may destroy __consumer_offsets and __transaction_state."""
    return ["destroys", "elects_unclean"] + ([] if envelope.brokers_flush else ["loses_unflushed"])


def _or_forever(times_ns: np.ndarray) -> np.ndarray:
    return np.where(times_ns == MISSING, FOREVER, times_ns)


def delayed(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Was a node frozen or cut off around the transaction? Any node counts, because it may have coordinated the
    transaction."""
    begun_ns = envelope.begun_ns(witnesses) - BEFORE_NS - envelope.error_ns
    end_ns = np.where(witnesses["end_ns"] == MISSING, FOREVER, witnesses["end_ns"]) + envelope.error_ns
    parts = [
        all_true(
            as_truth((f.begin_ns <= end_ns) & (f.end_ns >= begun_ns)),
            any_true(np.int8(f.may("freezes")), np.int8(f.may("cuts"))),
        )
        for f in envelope.faults
    ]
    return any_true(constant(FALSE, len(witnesses)), *parts)


def session_may_have_ended(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Was a node, or a client, stopped, frozen or cut off around the deliveries? Then connections may have ended, and share
    sessions with them. Any node counts: a member has a session with each leader."""
    begun_ns = envelope.begun_ns(witnesses) - BEFORE_NS - envelope.error_ns
    end_ns = np.where(witnesses["end_ns"] == MISSING, FOREVER, witnesses["end_ns"]) + envelope.error_ns
    parts = [
        all_true(
            as_truth((f.begin_ns <= end_ns) & (f.end_ns >= begun_ns)),
            any_true(*(np.int8(f.may(what)) for what in ("stops", "freezes", "cuts"))),
        )
        for f in envelope.faults
    ]
    return any_true(constant(FALSE, len(witnesses)), *parts)


TRIED_FOR_NS = 10 * NS_PER_S
"""A broker tries to write a dead letter for longer: four waits, of 1 s to 8 s less a fifth. [ShareGroupDLQStateManager]"""


def out_of_reach_for_long(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Was a node stopped, frozen or cut off for so long, when the record was last given or later, that a broker may have
    given up writing it to the dead-letter queue? Any node counts: which of them led the queue is not known."""
    begun_ns = envelope.begun_ns(witnesses) - BEFORE_NS - envelope.error_ns
    parts = [
        all_true(
            as_truth((f.end_ns >= begun_ns) & (f.end_ns - f.begin_ns + 2 * envelope.error_ns >= TRIED_FOR_NS)),
            any_true(*(np.int8(f.may(what)) for what in ("stops", "freezes", "cuts"))),
        )
        for f in envelope.faults
    ]
    return any_true(constant(FALSE, len(witnesses)), *parts)


ASKED_AGAIN_NS = NS_PER_S
"""No client here gives up a request, and sends it again on another connection, sooner than this."""


def earlier_end_took_long(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Had the record's client asked for the end of a transaction before this one, and waited so long for the answer that it
    may have asked again? The request that was given up may arrive later. [KAFKA-17754]"""
    times = envelope.transactions()
    if times is None:
        return constant(UNKNOWN, len(witnesses))
    return as_truth(times.end_took_long_before(witnesses["client"], witnesses["begin_ns"], ASKED_AGAIN_NS))


def send_took_long(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Did the send of the record take so long that its request may have been given up? [KAFKA-14402: such a request arrives
    when its transaction has been aborted]"""
    took_ns = or_never(witnesses["end_ns"]) - envelope.begun_ns(witnesses)
    return as_truth((witnesses["outcome"] != Outcome.OK) | (took_ns >= ASKED_AGAIN_NS))


def coordinator_out(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The group's coordinator, where the fault was aimed at it, or at every broker; any other may have coordinated the group,
    which is not known. It was out of reach for so long that a member may have been evicted: a coordinator that takes a group
    over gives each of its members a whole session. [KIP-62; GroupMetadataManager, as `orphaned/rejoined` has it]

    Clients frozen or dead are no reason here: kernels know of them."""
    begin_ns, everybody = witnesses["begin_ns"], envelope.broker_ids
    parts = [
        all_true(
            as_truth(
                (f.begin_ns <= begin_ns + envelope.error_ns)
                & (f.end_ns >= begin_ns - BEFORE_NS - envelope.error_ns)
                & (_out_ns(f, begin_ns) + 2 * envelope.error_ns >= envelope.session_ns)
            ),
            any_true(*(np.int8(f.may(what)) for what in ("stops", "freezes", "cuts"))),
            TRUE if f.step in envelope.coordinator_steps or (everybody and everybody <= set(f.nodes)) else UNKNOWN,
        )
        for f in envelope.faults
        if any(node < FIRST_CONTROLLER_ID for node in f.nodes)
    ]
    return any_true(constant(FALSE, len(witnesses)), *parts)


def _out_ns(fault: FaultRecord, until_ns: np.ndarray) -> np.ndarray:
    """Returns for how long the fault may have kept a broker out of reach by then, with what it delayed beyond its end."""
    out_ns = np.minimum(until_ns, fault.end_ns + BEFORE_NS) - fault.begin_ns
    return np.asarray(out_ns if fault.kept_ns is None else np.minimum(out_ns, fault.kept_ns))


def bumped(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    batches = envelope.batches()
    return constant(UNKNOWN, len(witnesses)) if batches is None else batches.bumped(witnesses)


def without_producer_id(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    batches = envelope.batches()
    return constant(UNKNOWN, len(witnesses)) if batches is None else batches.without_id(witnesses)


def never_written_before_the_first_batch(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The log begins with a batch that was not the first of its producer, and nobody learned an offset of the record: its
    client took the acknowledgement of a later batch for its own. [KAFKA-15591; librdkafka rdkafka_request.c,
    rd_kafka_handle_idempotent_Produce_success; rdkafka_broker.c, rd_kafka_dr_implicit_ack]"""
    batches = envelope.batches()
    if batches is None or batches.begins_late is Tristate.UNKNOWN:
        return constant(UNKNOWN, len(witnesses))
    return as_truth((witnesses["log_offset"] == NONE) & (batches.begins_late is Tristate.YES))


def out_of_sync_at_the_end(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """One of the two replicas compared (brokers `reader` and `other_client`) was not in the last ISR there was."""
    if not envelope.timeline.known:
        return constant(UNKNOWN, len(witnesses))
    in_sync = (
        int(envelope.timeline.isr[-1]) >> witnesses["reader"]
        & int(envelope.timeline.isr[-1]) >> witnesses["other_client"]
    )
    return as_truth(in_sync & 1 == 0)


def reply_endangered(envelope: Envelope, witnesses: np.ndarray) -> np.ndarray:
    """Returns bool: a fault or a change of leader overlapped the send, so a reply may have been lost. Names a cause,
    permits nothing."""
    begun_ns, end_ns = (
        envelope.begun_ns(witnesses) - envelope.error_ns,
        or_never(witnesses["end_ns"]) + envelope.error_ns,
    )
    moments = [(e.time_ns, e.time_ns) for e in envelope.timeline.elections]
    moments += [(f.begin_ns, f.end_ns) for f in envelope.faults]
    overlaps = [(begin <= end_ns) & (end >= begun_ns) for begin, end in moments]
    return np.logical_or.reduce(overlaps) if overlaps else np.zeros(len(witnesses), dtype=bool)


# Did a fault delay a delivery, as far as the trial's bound excepts it? Vectorised over witnesses; loops run over
# faults.


def fault_at_work(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A fault held at some time between the sending (`begin_ns`) and the deadline (`other_ns`), or had been undone for less
    than the stated recovery when it was sent. For any kind, on any node; but not on those alone that measure."""
    bound = envelope.delivery_bound
    if bound is None:
        return constant(UNKNOWN, len(witnesses))
    since_ns = witnesses["begin_ns"] - bound.recovery_ns - envelope.error_ns
    until_ns = witnesses["other_ns"] + envelope.error_ns
    parts = [
        all_true(as_truth((f.begin_ns <= until_ns) & (f.end_ns >= since_ns)), np.int8(f.effective))
        for f in envelope.faults
        if not f.nodes or not set(f.nodes) <= envelope.measured_by
    ]
    return any_true(constant(FALSE, len(witnesses)), *parts)


def unmeasured(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Could the delay not be measured? The checker has already found that out."""
    return as_truth(np.isin(witnesses["case"], (LateCase.STOOD_STILL, LateCase.UNAUDITED)))


# What known defects leave in a history, and nothing else does: a defect is named by this, never by a fault that was
# near.
#
# Each predicate is true of what was seen, false where the history rules the defect out, and unknown where it cannot
# say.


STAMP_NS = 1_000_000
"""Timestamps of batches are cut to ms."""


def ended_by_a_late_request(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The first marker behind the record, of its producer id under the same epoch, was written before the record's client had
    asked for any end of its transaction: so it answers a request for the end of an earlier one. A coordinator that ends
    a transaction by itself, or for a new producer, writes a higher epoch. [KAFKA-17754; KIP-890; KIP-360]

    Unknown where the record or the clocks are, or where the two times are too close; and of a record that was copied twice,
    since it may be the other copy's."""
    found = _written_before_the_end(envelope, witnesses, AppendedBatches.next_marker)
    elsewhere = np.isin(witnesses["case"], (CopyCase.REPEATED,)) & (witnesses["other_offset"] != NONE)
    return np.where(elsewhere & (found == FALSE), UNKNOWN, found)


def behind_its_own_end(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The last marker before the record, of its producer id under the same epoch, was written after the record's client had
    asked for the end of its transaction: so the record was appended when that had ended. A client writes to a partition
    only after its coordinator has added that, which it does once all markers of the transaction before are written.
    [KAFKA-14402; KIP-890]

    Unknown where the record or the clocks are, or where the two times are too close."""
    return negate(_written_before_the_end(envelope, witnesses, AppendedBatches.last_marker))


BEHIND_CASES = (EarlyCase.BEHIND_OPEN.value, EarlyCase.BEHIND_ABORTED.value)


def an_open_one_ended_by_a_late_request(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Finds witnesses of `early-read` whose transaction a late request may have ended: that of the record, or the open one
    behind which it was read."""
    asked = witnesses.copy()
    behind = np.isin(witnesses["case"], BEHIND_CASES)
    for name, other in (("client", "other_client"), ("log_offset", "other_offset"), ("begin_ns", "other_ns")):
        asked[name][behind] = witnesses[other][behind]
    return _written_before_the_end(envelope, asked, AppendedBatches.next_marker)


def a_clock_may_have_ended_it(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A coordinator aborts what is beyond its timeout by its own wall clock, which a fault may have moved: so a transaction
    that was aborted later may have been aborted before. Unknown at best."""
    moved = any_true(*(np.int8(f.may("shifts_clock")) for f in envelope.faults))
    aborted = witnesses["case"] == EarlyCase.BEHIND_ABORTED.value
    return np.where(aborted & (moved != FALSE), UNKNOWN, FALSE).astype(np.int8)


def broker_may_have_been_out(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A fault may have kept the broker (`reader`) away between the two times. Unknown at best."""
    away = np.zeros(len(witnesses), dtype=bool)
    for fault in envelope.faults:
        may = any_true(*(np.int8(fault.may(what)) for what in ("stops", "freezes", "cuts")))
        if may != FALSE:
            during = (witnesses["end_ns"] >= fault.begin_ns) & (
                witnesses["begin_ns"] <= fault.end_ns + envelope.error_ns
            )
            away |= during & np.isin(witnesses["reader"], fault.nodes)
    return np.where(away, UNKNOWN, FALSE).astype(np.int8)


def a_clock_may_have_been_ahead(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Retention goes by the broker's wall clock, which a fault may have moved. Unknown at best."""
    moved = any_true(*(np.int8(f.may("shifts_clock")) for f in envelope.faults))
    return constant(FALSE if moved == FALSE else UNKNOWN, len(witnesses))


def _written_before_the_end(
    envelope: Envelope, witnesses: np.ndarray, beside: Callable[[AppendedBatches, np.ndarray], np.ndarray]
) -> Truth:
    """Says whether the marker beside a record was written before its client had asked for the end of its transaction."""
    batches, times = envelope.batches(), envelope.transactions()
    moved = any_true(*(np.int8(f.may("shifts_clock")) for f in envelope.faults))
    if batches is None or times is None or envelope.wall_zero_ns is None or moved != FALSE:
        return constant(UNKNOWN, len(witnesses))
    asked_ns = times.end_invoked_of(witnesses["client"], witnesses["begin_ns"])
    index = batches.at(witnesses["log_offset"])
    known = (index >= 0) & (asked_ns != MISSING) & (batches.producer_id[index] != NONE)
    marker = np.full(len(witnesses), -1, dtype=np.intp)
    marker[known] = beside(batches, index[known])
    known &= marker >= 0
    found = constant(UNKNOWN, len(witnesses))
    stamped_ns = batches.timestamp_ms[marker[known]] * STAMP_NS - envelope.wall_zero_ns
    before = stamped_ns + STAMP_NS + envelope.error_ns < asked_ns[known]
    after = stamped_ns - envelope.error_ns >= asked_ns[known]
    found[known] = np.where(before, TRUE, np.where(after, FALSE, UNKNOWN))
    return found


def committed_one_beyond_it(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A member that had yet to be given the record committed the offset behind it: it took the end of the partition, where it
    stood, for a record. Unknown where nobody recorded commits. [librdkafka#4844]"""
    offsets = envelope.committed_one_beyond()
    if offsets is None:
        return constant(UNKNOWN, len(witnesses))
    return as_truth((witnesses["log_offset"] != NONE) & np.isin(witnesses["log_offset"], offsets))


def an_expired_send_had_gone_there(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Had a send of the record's producer to this partition expired, when the record may have got the memory of its batch,
    and may a request with that memory still have been written? [KAFKA-19012]

    Times of beginnings are lower bounds, and those of ends upper ones. Unknown where the record's own send was not recorded.
    The loops run over partitions and clients."""
    if envelope.sends is None or not len(witnesses):
        return constant(UNKNOWN, len(witnesses))
    there = envelope.sends(int(witnesses["partition"][0]), ("client", "completed_ns", "code"))
    begun_ns, ended_ns, known = _sends_of(envelope.sends, witnesses)
    found = np.zeros(len(witnesses), dtype=bool)
    for client in np.unique(witnesses["client"]).tolist():
        expired_ns = np.sort(there["completed_ns"][(there["client"] == client) & (there["code"] == EXPIRED)])
        mine = witnesses["client"] == client
        # Example: sends expired at 3 s and 9 s, and requests last 2 s. What was sent at 4 s and acknowledged at 6 s may have
        # the memory of the first, which lies between 2 s and 6 s. What was sent at 6 s and acknowledged at 8 s has neither's.
        first = np.searchsorted(expired_ns, begun_ns[mine] - envelope.request_ns, side="left")
        found[mine] = np.searchsorted(expired_ns, ended_ns[mine], side="right") > first
    return doubt_unless(as_truth(found), known=known)


def _sends_of(
    sends: Callable[[int, Sequence[str]], Columns], witnesses: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns when the sends of misplaced records began and ended (FOREVER = never), and bool[k]: was it recorded?"""
    begun_ns, ended_ns = np.full(len(witnesses), -FOREVER), np.full(len(witnesses), FOREVER)
    known = np.zeros(len(witnesses), dtype=bool)
    for partition in np.unique(witnesses["case"]).tolist():
        rows = sends(partition, ("client", "sequence", "invoked_ns", "completed_ns"))
        sent, asked = (c["client"].astype(np.int64) << ORIGIN_SEQUENCE_BITS | c["sequence"] for c in (rows, witnesses))
        order = np.argsort(sent)
        row = np.append(order, NONE)[np.searchsorted(sent[order], asked)]
        mine = np.flatnonzero((witnesses["case"] == partition) & (np.append(sent, NONE)[row] == asked))
        known[mine] = True
        begun_ns[mine] = rows["invoked_ns"][row[mine]]
        ended_ns[mine] = or_never(rows["completed_ns"][row[mine]])
    return begun_ns, ended_ns, known


def older_epoch_behind_a_newer(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Some copy has, at the record's offset or before it, a batch of an older leader epoch where a newer one had begun. Never
    ruled out: a log that was cut by such an answer is whole again when it is read. [KAFKA-18991]"""
    where = envelope.older_epoch_from()
    if where is None or where == NONE:
        return constant(UNKNOWN, len(witnesses))
    return np.where(witnesses["log_offset"] >= where, TRUE, UNKNOWN).astype(np.int8)


def given_after_its_leader_was_replaced(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A consumer was given the record, under the epoch of a leader that another one had replaced by then; or a follower says
    that it was, for a library that knows no epochs. [KAFKA-14704: the former leader, now a follower, raises its high
    watermark before it cuts its log]"""
    if not envelope.timeline.known:
        return constant(UNKNOWN, len(witnesses))
    epoch, seen_ns = witnesses["leader_epoch"], witnesses["seen_ns"]
    parts = [
        all_true(as_truth(e.epoch > epoch), _certainly_after(seen_ns, e.time_ns, envelope.error_ns))
        for e in envelope.timeline.elections
    ]
    known = (epoch != NONE) & (seen_ns != MISSING)
    by_epoch = np.where(known, any_true(constant(FALSE, len(witnesses)), *parts), UNKNOWN).astype(np.int8)
    return any_true(by_epoch, as_truth(below_what_a_follower_took_back(envelope, witnesses["log_offset"], seen_ns)))


def left_open(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """At the end, with every transactional.id fenced, the log has a transaction that no marker ends, from the offset on at
    which the last stable offset stood still. [KIP-664, hanging transactions]"""
    batches = envelope.batches()
    if batches is None:
        return constant(UNKNOWN, len(witnesses))
    return as_truth((batches.open_from != NONE) & (witnesses["log_offset"] == batches.open_from))


def _certainly_after(times_ns: np.ndarray, moment_ns: int, error_ns: int) -> Truth:
    later, sooner = times_ns > moment_ns + error_ns, times_ns < moment_ns - error_ns
    return np.where(later, TRUE, np.where(sooner, FALSE, UNKNOWN)).astype(np.int8)
