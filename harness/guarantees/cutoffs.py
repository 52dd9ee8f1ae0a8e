"""Committed data may be missing: an unclean election cut it off, or every copy that could lead was destroyed.

An unclean election cuts off whatever its leader's log has not, also what the leader before it takes afterwards: while nobody
tells that one, it is still all of the ISR it knows of, and acknowledges, with acks=all too, what stands on itself alone.
After a clean election it cannot: the new leader was in its ISR, and fetches from it no more. So not times decide but epochs,
where a reader was told them (`harness.guarantees.epochs`). [Partition.maybeIncrementLeaderHW; KIP-497]
"""

from collections.abc import Callable

import numpy as np

from harness.guarantees.deposed import moved_under, moves_away, zombie_answered
from harness.guarantees.destruction import Wiped
from harness.guarantees.envelope import Envelope, or_never
from harness.guarantees.epochs import Unclean, cut_from_any_epoch, cut_from_epoch
from harness.guarantees.faults import FOREVER
from harness.guarantees.logic import FALSE, UNKNOWN, Truth, both, constant, either, truth
from harness.guarantees.timeline import Election
from harness.schema import MISSING, NONE, Tristate

IN_LOG_CASES = (1, 3, 6)
"""WITNESS.case of `offset-conflict` (checkers.conflict): the other of the two records is the one in the log."""


def cutoff(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """An unclean election made a log without it the truth: certainly so if the record existed before; unknown if its
    send had only begun, or if the deposed leader may have taken it."""
    return by_epoch(envelope, witnesses, _cut_off_by_time(envelope, witnesses))


def _cut_off_by_time(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    existed_ns = envelope.existed_ns(witnesses)
    return _cut_off(envelope, witnesses, lambda e: e.time_ns > existed_ns + envelope.error_ns)


def cutoff_of_the_gone(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The same of records that are not in the log: whoever of the leaders acknowledged it, it was cut off."""
    by_time = either(_cut_off_by_time(envelope, witnesses), _whoever_took_it(envelope, witnesses))
    return by_epoch(envelope, witnesses, by_time)


def cutoff_after_read(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The same, after a consumer was given the record; unknown if a deposed leader may have served the read."""
    seen_ns = or_never(witnesses["seen_ns"])
    by_time = _cut_off(envelope, witnesses, lambda e: e.time_ns + envelope.error_ns >= seen_ns)
    return by_epoch(envelope, witnesses, by_time)


def cutoff_of_either(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """An unclean election came after the first of the two was acknowledged or seen: the offset was given away again."""
    first_ns = np.minimum(envelope.existed_ns(witnesses), or_never(witnesses["other_ns"]))
    by_time = _cut_off(envelope, witnesses, lambda e: e.time_ns + envelope.error_ns >= first_ns)
    in_log = np.isin(witnesses["case"], IN_LOG_CASES)  # the other one is, so this one is not: it was cut off
    gone = either(by_time, both(truth(in_log), _whoever_took_it(envelope, witnesses)))
    return np.where(in_log, by_epoch(envelope, witnesses, gone), by_time)


def unclean_between(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """An unclean election began an epoch after that of the earlier of two answers, up to that of the later one."""
    earlier, later = witnesses["other_sequence"], witnesses["sequence"]
    return _any_unclean(envelope, len(witnesses), lambda e: truth((earlier < e.epoch) & (e.epoch <= later)))


def by_epoch(envelope: Envelope, witnesses: np.ndarray, otherwise: Truth) -> Truth:
    """Of records whose epoch a reader was told the epochs decide; of the rest, what is known `otherwise`."""
    epoch = witnesses["leader_epoch"]
    if not envelope.timeline.known or not (epoch != NONE).any():
        return otherwise
    cut = cut_from_epoch(envelope, _unclean_elections(envelope), epoch, witnesses["log_offset"])
    return np.where(epoch != NONE, cut, otherwise)


def _whoever_took_it(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A leader that an unclean election deposed may have acknowledged it, before it or after; and whoever did, it was cut
    off."""
    unclean = _unclean_elections(envelope)
    if not unclean:
        return constant(FALSE, len(witnesses))
    begun_ns, existed_ns = envelope.begun_ns(witnesses), envelope.existed_ns(witnesses)
    parts = [
        both(was, either(truth(e.time_ns > existed_ns), moved_under(envelope, e, witnesses, begun_ns)))
        for e, was in unclean
    ]
    possibly = either(constant(FALSE, len(witnesses)), *parts)
    by_any = cut_from_any_epoch(envelope, unclean, begun_ns, existed_ns, witnesses["log_offset"])
    return np.where(possibly != FALSE, by_any, FALSE).astype(np.int8)


def _cut_off(envelope: Envelope, witnesses: np.ndarray, certainly: Callable[[Election], np.ndarray]) -> Truth:
    begun_ns, offset = envelope.begun_ns(witnesses), witnesses["log_offset"]

    def holds(election: Election) -> Truth:
        possibly = (
            either(moves_away(envelope, election, begun_ns), zombie_answered(envelope, election, begun_ns)) != FALSE
        )
        when = np.where(certainly(election), 1, np.where(possibly, UNKNOWN, 0)).astype(np.int8)
        return both(when, truth(envelope.reaches(election, offset)))

    return _any_unclean(envelope, len(witnesses), holds)


def unclean_before(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """An unclean election before the later of the witness's two events: positions of the old log mean nothing now."""
    later_ns = or_never(witnesses["end_ns"])
    return _any_unclean(envelope, len(witnesses), lambda e: truth(e.time_ns - envelope.error_ns <= later_ns))


def elected_unclean(envelope: Envelope) -> Tristate:
    """Was there any unclean election of this partition?"""
    return Tristate(int(_any_unclean(envelope, 1, lambda _: constant(1, 1))[0]))


def _any_unclean(envelope: Envelope, length: int, holds: Callable[[Election], Truth]) -> Truth:
    if not envelope.timeline.known:
        # False by configuration: nobody was allowed to elect from outside, and nobody asked for it.
        asked = either(*(np.int8(f.may("elects_unclean")) for f in envelope.faults))
        return constant(FALSE if not envelope.unclean_enabled and asked == FALSE else UNKNOWN, length)
    return either(constant(0, length), *(both(was, holds(e)) for e, was in _unclean_elections(envelope)))


def _unclean_elections(envelope: Envelope) -> Unclean:
    return [(e, was) for e in envelope.timeline.elections if (was := _unclean(envelope, e)) != FALSE]


def _unclean(envelope: Envelope, election: Election) -> Truth:
    if not election.last_leader_standing:
        return truth(election.from_outside)
    # The last leader came back: harmless unless its copy was destroyed meanwhile. [KIP-966]
    return either(*(
        np.int8(f.may("destroys"))
        for f in envelope.faults
        if election.leader in f.hit and f.begin_ns - envelope.error_ns <= election.time_ns
    ))  # fmt: skip


def wiped(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """At some time every copy that could lead had been destroyed after the record's send began."""
    begun_ns = envelope.begun_ns(witnesses)
    return _wiped_when(envelope, lambda w: begun_ns <= w.destroyed_ns + envelope.error_ns, len(witnesses))


def wiped_of_either(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The same, of the first of two records: the offset was given away again. Where one is in the log, of the one that is
    gone."""
    begun_ns = envelope.begun_ns(witnesses)
    in_log = np.isin(witnesses["case"], IN_LOG_CASES)
    first_ns = np.where(in_log, begun_ns, np.minimum(begun_ns, or_never(witnesses["other_ns"])))
    return _wiped_when(envelope, lambda w: first_ns <= w.destroyed_ns + envelope.error_ns, len(witnesses))


def wiped_after_read(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The same, at some time after a consumer was given the record."""
    seen_ns = or_never(witnesses["seen_ns"])
    return _wiped_when(envelope, lambda w: seen_ns <= w.destroyed_ns + envelope.error_ns, len(witnesses))


def wiped_before(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Every copy that could lead had been destroyed at some time before the later of the witness's two events."""
    later_ns = or_never(witnesses["end_ns"])
    return _wiped_when(envelope, lambda w: w.begin_ns - envelope.error_ns <= later_ns, len(witnesses))


def _wiped_when(envelope: Envelope, holds: Callable[[Wiped], np.ndarray], length: int) -> Truth:
    if all(f.may("destroys") is Tristate.NO for f in envelope.faults):
        return constant(FALSE, length)
    if not envelope.timeline.known or any(f.may("destroys") is Tristate.UNKNOWN for f in envelope.faults):
        return constant(UNKNOWN, length)
    return either(constant(0, length), *(truth(holds(wiped)) for wiped in envelope.wiped_moments))


def sent_later(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The record jumped over was sent (`other_ns`) after the later of the two reads: it was not there to be given."""
    sent_ns = np.where(witnesses["other_ns"] == MISSING, -FOREVER, witnesses["other_ns"])
    return truth(sent_ns > or_never(witnesses["end_ns"]))
