"""Who may have answered a send: a leader that an election deposed, or one that was cut off, frozen or dead. Of each witness;
loops run over elections and faults."""

from collections.abc import Callable

import numpy as np

from harness.guarantees.envelope import DEPOSED_NS, Envelope, or_never
from harness.guarantees.faults import FOREVER, FaultRecord
from harness.guarantees.logic import FALSE, UNKNOWN, Truth, both, constant, either, truth
from harness.guarantees.timeline import Election
from harness.schema import Tristate

OFFSET_TAKEN_CASE = 1
"""WITNESS.case of `lost` (checkers.log): another record stands at the offset it was acknowledged at."""


def moved_under(envelope: Envelope, election: Election, witnesses: np.ndarray, begun_ns: np.ndarray) -> Truth:
    """The leader that the election deposed may have acknowledged it."""
    return either(
        moves_away(envelope, election, begun_ns),
        zombie_answered(envelope, election, begun_ns),
        _given_by_two(envelope, election, witnesses, begun_ns),
    )


def moves_away(envelope: Envelope, election: Election, begun_ns: np.ndarray) -> Truth:
    """The election came after the send began, or so shortly before that the old leader may not have known; and that one
    was not already dead by then."""
    known_ns = election.time_ns + DEPOSED_NS + envelope.error_ns
    return truth((begun_ns <= known_ns) & (begun_ns <= _dead_ns(envelope, election) + envelope.error_ns))


def _dead_ns(envelope: Envelope, election: Election) -> int:
    """When the leader that it deposed was dead for certain; FOREVER = nothing says so."""
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
    beyond what that one's log ever came to: one leader gives an offset once, and keeps what it has. So it was the deposed
    one who acknowledged. [Seen on a machine that stood still: fenced without any fault, it acknowledged for 3.6 s more]"""
    after_ns = election.time_ns - envelope.error_ns
    asked = (begun_ns >= after_ns) & (begun_ns <= envelope.known_ns(election))
    alive = begun_ns <= _dead_ns(envelope, election) + envelope.error_ns
    taken = witnesses["case"] == OFFSET_TAKEN_CASE
    return truth(asked & (taken | (alive & envelope.beyond(witnesses["log_offset"]))))


def zombie_answered(envelope: Envelope, election: Election, begun_ns: np.ndarray) -> Truth:
    """The leader deposed by it, cut off or frozen then, may still have acknowledged until it was in sync again."""
    after_ns = election.time_ns - envelope.error_ns
    rejoined_ns = envelope.timeline.rejoined_ns(election.previous, election.time_ns) + envelope.error_ns
    out = either(*_out_then(envelope, election))
    return both(out, truth((begun_ns >= after_ns) & (begun_ns <= rejoined_ns)))


def _out_then(envelope: Envelope, election: Election) -> list[Truth]:
    """Was the deposed leader cut off or frozen when it was deposed? By each fault that may have been the cause."""
    return [
        either(np.int8(f.may("freezes")), np.int8(f.may("cuts")))
        for f in envelope.faults
        if election.previous in f.nodes
        and f.begin_ns <= election.time_ns + envelope.error_ns
        and f.end_ns >= election.time_ns - envelope.error_ns
    ]


def answered_until_ns(envelope: Envelope, election: Election) -> int:
    """Until when a send may have begun that the leader deposed by it took: alive, fenced, cut off or frozen."""
    causes = either(*_out_then(envelope, election))
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
    return either(by_faults, _fenced_unawares(envelope, witnesses))


def _fenced_unawares(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A leader that was fenced and deposed may have acknowledged it. Seen: the machine stood still for seconds; records were
    acknowledged 2.9 s after the controllers had fenced their leader, which every broker still named."""
    begun_ns, end_ns = envelope.begun_ns(witnesses), or_never(witnesses["end_ns"])
    parts = [
        truth((begun_ns <= envelope.known_ns(election)) & (end_ns >= _lost_ns(envelope, election) - envelope.error_ns))
        for election in envelope.timeline.elections
        if election.deposed_fenced
        and envelope.timeline.rejoined_ns(election.previous, election.time_ns) != FOREVER  # else nothing tells how long
    ]
    return either(constant(0, len(witnesses)), *parts)


def _lost_ns(envelope: Envelope, election: Election) -> int:
    """When the leader before it lost the lead; nobody may have led for a while since."""
    timeline = envelope.timeline
    led = np.flatnonzero((timeline.time_ns < election.time_ns) & (timeline.leader == election.previous))
    return int(timeline.time_ns[led[-1] + 1]) if len(led) else election.time_ns


def leader_hampered_between(envelope: Envelope, since_ns: np.ndarray, until_ns: np.ndarray) -> Truth:
    """The leader of that time was cut from somebody, frozen or dead for a while, so it may not have shrunk the ISR."""
    leader = envelope.timeline.last_leader_at(since_ns)
    return _hampered(envelope, since_ns, until_ns, lambda f: np.isin(leader, f.nodes))


def keepers_hampered_between(envelope: Envelope, since_ns: np.ndarray, until_ns: np.ndarray) -> Truth:
    """Somebody was, without whom the ISR may not have been changed meanwhile."""
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
        harm = either(*(np.int8(f.may(what)) for what in ("stops", "freezes", "cuts")))
        parts.append(both(truth(overlap & touches(f)), harm))
    return either(constant(0, len(since_ns)), *parts)


def destroyed_leader(envelope: Envelope, witnesses: np.ndarray, begun_ns: np.ndarray) -> Truth:
    leader = envelope.timeline.leader_at(begun_ns)
    parts = [
        both(truth(np.isin(leader, f.hit) & (f.end_ns >= begun_ns)), np.int8(f.may("destroys")))
        for f in envelope.faults
    ]
    return either(constant(0, len(witnesses)), *parts)
