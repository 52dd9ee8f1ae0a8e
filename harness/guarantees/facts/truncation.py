"""This module says why a record is gone from a log that was led anew: which leader epoch cut it off, whether committed
data may be missing, and what was an unacknowledged tail. Loops run over leaderships and elections, never over records.

A leader appends under its own epoch alone, a log holds its epochs in ascending order, and two logs that have a record of one
epoch at one offset are the same up to there. Therefore a record of epoch e is gone from a log that has another epoch, or
nothing, where it stood; and the first epoch above e in that log began without it. [KIP-101; KIP-279; KIP-320]
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from prozess.harness.guarantees.evidence.envelope import Envelope, Wiped, or_never
from prozess.harness.guarantees.evidence.ground_truth import FOREVER, Election
from prozess.harness.guarantees.facts.stale_leaders import (
    OFFSET_TAKEN_CASE,
    answered_until_ns,
    destroyed_leader,
    keepers_hampered_between,
    leader_hampered_between,
    moved_under,
    moves_away,
    zombie_answered,
)
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
from prozess.harness.interfaces.witnesses import GroupCase
from prozess.harness.schema import MISSING, NONE, Outcome, Tristate

Unclean = Sequence[tuple[Election, Truth]]
"""Elections that may have been unclean, each with the truth value of whether it was."""


@dataclass(frozen=True, slots=True)
class _Logged:
    """Epochs of the log as it was at the end, ascending, and where each begins; the last stands for whatever is behind the
    end."""

    epoch: np.ndarray
    start: np.ndarray

    @staticmethod
    def of(envelope: Envelope) -> "_Logged | None":
        """Makes it from the epochs of the replicas' logs; None = no logs were read."""
        if envelope.epoch_starts is None:
            return None
        epoch, start = np.array(sorted(envelope.epoch_starts.items()), dtype=np.int64).reshape(-1, 2).T
        # No epoch begins behind a later one: some copy learned of it late.
        # Example: epochs 3 4 6 begin at 0, 50, 40. Epoch 4 cannot begin behind 6, so the starts are 0 40 40, and 4 has no
        # offset.
        return _Logged(epoch, np.minimum.accumulate(start[::-1])[::-1])

    def at(self, offset: np.ndarray) -> np.ndarray:
        """The epoch that holds each offset; NONE = before all of them."""
        # The last epoch that begins at or before the offset. Example: epochs 3 4 6 begin at 0 40 40: offset 40 is of 6, and 4
        # has none.
        index = np.searchsorted(self.start, offset, side="right") - 1
        return np.where(index >= 0, self.epoch[np.maximum(index, 0)], NONE)

    def above(self, epoch: np.ndarray) -> np.ndarray:
        """Returns the first epoch in the log above each; FOREVER = none."""
        # Behind the last epoch the search returns the length, where FOREVER was appended.
        return np.append(self.epoch, FOREVER)[np.searchsorted(self.epoch, epoch, side="right")]

    def start_of(self, epoch: int) -> int:
        """The first offset of an epoch; -FOREVER if the epoch is not in the log."""
        index = int(np.searchsorted(self.epoch, epoch))
        known = index < len(self.epoch) and self.epoch[index] == epoch
        return int(self.start[index]) if known else -FOREVER


def epochs_above(envelope: Envelope, epoch: np.ndarray) -> np.ndarray | None:
    """Returns the first epoch in the log above each: what its leader lacked is gone. FOREVER = none. None: no logs were
    read."""
    logged = _Logged.of(envelope)
    return None if logged is None else logged.above(epoch)


def cut_from_epoch(envelope: Envelope, unclean: Unclean, epoch: np.ndarray, offset: np.ndarray) -> Truth:
    """A record of this epoch at this offset is not in the log, and of the elections from its epoch to the first that began
    without it, one was unclean. Where no logs were read it is unknown which began without it."""
    return _cut(_Logged.of(envelope), unclean, epoch, offset)


def _cut(logged: _Logged | None, unclean: Unclean, epoch: np.ndarray, offset: np.ndarray) -> Truth:
    if logged is None:
        later = [all_true(was, as_truth(epoch < e.epoch)) for e, was in unclean]
        return doubt_unless(any_true(constant(FALSE, len(epoch)), *later), known=False)
    gone, began_without = (offset == NONE) | (logged.at(offset) != epoch), logged.above(epoch)
    parts = [all_true(was, as_truth(gone & (epoch < e.epoch) & (e.epoch <= began_without))) for e, was in unclean]
    return any_true(constant(FALSE, len(epoch)), *parts)


def cut_from_any_epoch(
    envelope: Envelope, unclean: Unclean, begun_ns: np.ndarray, acknowledged_ns: np.ndarray, offset: np.ndarray
) -> Truth:
    """Decides `cut_from_epoch` for a record that is in no log any more and of which nobody learned the epoch, in the epoch
    of every leader that may have acknowledged it at this offset; unknown if it is so in some of them. No leader gave the
    offset who gave it to another record, began behind it, or led to the end: a leader gives an offset once, and keeps what
    it has."""
    logged = _Logged.of(envelope)
    if logged is None:
        return constant(UNKNOWN, len(offset))
    some_cut, some_not = np.zeros(len(offset), dtype=bool), np.zeros(len(offset), dtype=bool)
    holder = logged.at(offset)
    for epoch, began_ns, until_ns in _ended_leaderships(envelope):
        may = (began_ns - envelope.error_ns <= acknowledged_ns) & (begun_ns <= until_ns)
        may &= (holder != epoch) & (logged.start_of(epoch) <= offset)
        cut = _cut(logged, unclean, np.full(len(offset), epoch), offset)
        some_cut |= may & (cut != FALSE)
        some_not |= may & (cut != TRUE)
    # True: it is cut in the epoch of every leader that may have taken it; false: in that of none; unknown: it depends on
    # which.
    known = offset != NONE
    return np.where(known & ~some_cut, FALSE, np.where(known & ~some_not, TRUE, UNKNOWN)).astype(np.int8)


def _ended_leaderships(envelope: Envelope) -> Iterator[tuple[int, int, int]]:
    """Yields every epoch that another leader ended: its number, when it began, and until when a send could still begin
    that its leader took."""
    timeline = envelope.timeline
    # NONE in front: the first row differs from it, and begins an epoch.
    begins = np.flatnonzero((timeline.leader != NONE) & (np.diff(timeline.leader_epoch, prepend=NONE) != 0))
    for row in begins.tolist():
        epoch = int(timeline.leader_epoch[row])
        ended = next((e for e in timeline.elections if e.epoch > epoch), None)
        if ended is not None:
            yield epoch, int(timeline.time_ns[row]), answered_until_ns(envelope, ended)


# Committed data may be missing: an unclean election cut it off, or every copy that could lead was destroyed.
#
# An unclean election cuts off whatever its leader's log has not, also what the leader before it takes afterwards:
# while nobody says that one, it is still all of the ISR it knows of, and acknowledges, with acks=all too, what stands
# on itself alone. After a clean election it cannot: the new leader was in its ISR, and fetches from it no more. Therefore not
# times decide but epochs, where a reader learned them.
# [Partition.maybeIncrementLeaderHW; KIP-497]


IN_LOG_CASES = (1, 3, 6)
"""WITNESS.case of `offset-conflict` (prozess.checkers.log.order): the other of the two records is the one in the log."""


def cutoff(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """An unclean election made a log without it the truth: certainly so if the record existed before; unknown
    if its send had only begun, or if the deposed leader may have taken it."""
    return decided_by_epoch(envelope, witnesses, _cut_off_by_time(envelope, witnesses))


def _cut_off_by_time(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    existed_ns = envelope.existed_ns(witnesses)
    return _cut_off(envelope, witnesses, lambda e: e.time_ns > existed_ns + envelope.error_ns)


def cutoff_of_missing_record(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Was a record that is in no log cut off by an unclean election, whichever leader acknowledged it?"""
    by_time = any_true(_cut_off_by_time(envelope, witnesses), _whoever_took_it(envelope, witnesses))
    return decided_by_epoch(envelope, witnesses, by_time)


def cutoff_after_read(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Did an unclean election cut the record off after a consumer had read it? Unknown if a replaced leader may have served
    the read."""
    seen_ns = or_never(witnesses["seen_ns"])
    by_time = _cut_off(envelope, witnesses, lambda e: e.time_ns + envelope.error_ns >= seen_ns)
    # A leader that was deposed may lead again with what it alone had before: then the cut begins below its new epoch.
    later = _any_unclean(envelope, len(witnesses), lambda e: as_truth(e.time_ns + envelope.error_ns >= seen_ns))
    whoever = all_true(later, _whoever_took_it(envelope, witnesses))
    return decided_by_epoch(envelope, witnesses, any_true(by_time, whoever))


def unclean_after_the_step(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """An unclean election came after a member had processed another record at the offset (`other_ns`): what the log has there
    is of another leader, and was not there to be given."""
    step_ns = or_never(witnesses["other_ns"])
    other = as_truth(witnesses["case"] == GroupCase.MISTAKEN)
    after = _any_unclean(envelope, len(witnesses), lambda e: as_truth(e.time_ns + envelope.error_ns >= step_ns))
    return all_true(other, after)


def cutoff_of_either(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """An unclean election came after the first of the two was acknowledged or seen: the offset was given away again."""
    first_ns = np.minimum(envelope.existed_ns(witnesses), or_never(witnesses["other_ns"]))
    by_time = _cut_off(envelope, witnesses, lambda e: e.time_ns + envelope.error_ns >= first_ns)
    in_log = np.isin(witnesses["case"], IN_LOG_CASES)  # the other one is, so this one is not: it was cut off
    gone = any_true(by_time, all_true(as_truth(in_log), _whoever_took_it(envelope, witnesses)))
    return np.where(in_log, decided_by_epoch(envelope, witnesses, gone), by_time)


def unclean_between(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """An unclean election began an epoch after that of the earlier of two answers, up to that of the later one."""
    earlier, later = witnesses["other_sequence"], witnesses["sequence"]
    return _any_unclean(envelope, len(witnesses), lambda e: as_truth((earlier < e.epoch) & (e.epoch <= later)))


def decided_by_epoch(envelope: Envelope, witnesses: np.ndarray, otherwise: Truth) -> Truth:
    """Decides by epochs where a reader learned the record's epoch; elsewhere `otherwise` decides."""
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
        all_true(was, any_true(as_truth(e.time_ns > existed_ns), moved_under(envelope, e, witnesses, begun_ns)))
        for e, was in unclean
    ]
    possibly = any_true(constant(FALSE, len(witnesses)), *parts)
    by_any = cut_from_any_epoch(envelope, unclean, begun_ns, existed_ns, witnesses["log_offset"])
    return np.where(possibly != FALSE, by_any, FALSE).astype(np.int8)


def _cut_off(envelope: Envelope, witnesses: np.ndarray, certainly: Callable[[Election], np.ndarray]) -> Truth:
    begun_ns, offset = envelope.begun_ns(witnesses), witnesses["log_offset"]

    def holds(election: Election) -> Truth:
        possibly = (
            any_true(moves_away(envelope, election, begun_ns), zombie_answered(envelope, election, begun_ns)) != FALSE
        )
        when = np.where(certainly(election), 1, np.where(possibly, UNKNOWN, 0)).astype(np.int8)
        return all_true(when, envelope.reaches(election, offset))

    return _any_unclean(envelope, len(witnesses), holds)


def unclean_before(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """An unclean election came between the witness's two reads, or so shortly before the first that the leader it deposed may
    have answered that one: positions of the old log mean nothing in the new one. Longer before: who answered is not known."""
    return _unclean_between(envelope, witnesses["begin_ns"], or_never(witnesses["end_ns"]))


def unclean_since_the_other(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """An unclean election came between `other_ns` and `begin_ns`: what a group did before it means nothing in the new log."""
    return _unclean_between(envelope, witnesses["other_ns"], witnesses["begin_ns"])


def _unclean_between(envelope: Envelope, first_ns: np.ndarray, later_ns: np.ndarray) -> Truth:
    def holds(election: Election) -> Truth:
        old = doubt_unless(as_truth(np.ones(len(first_ns), dtype=bool)), known=first_ns <= envelope.known_ns(election))
        return all_true(as_truth(election.time_ns - envelope.error_ns <= later_ns), old)

    return _any_unclean(envelope, len(first_ns), holds)


def unclean_before_read(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """An unclean election after the record's send began, and before somebody was given it (`seen_ns`; else the audit): the
    marker of its transaction may have been cut off. What was sent after the election has its markers behind it."""
    begun_ns, seen_ns = witnesses["begin_ns"], or_never(witnesses["seen_ns"])

    def holds(election: Election) -> Truth:
        before = as_truth(begun_ns <= election.time_ns + envelope.error_ns)
        possibly = any_true(moves_away(envelope, election, begun_ns), zombie_answered(envelope, election, begun_ns))
        when = np.where(before == TRUE, TRUE, np.where(possibly != FALSE, UNKNOWN, FALSE))
        when = np.where(begun_ns == MISSING, UNKNOWN, when).astype(np.int8)
        return all_true(when, as_truth(election.time_ns - envelope.error_ns <= seen_ns))

    return _any_unclean(envelope, len(witnesses), holds)


def that_election_unclean(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Was the election unclean that began the leader epoch in `sequence`?"""
    return _any_unclean(envelope, len(witnesses), lambda e: as_truth(witnesses["sequence"] == e.epoch))


def unclean_asked_for(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Somebody asked for an unclean election of the partition, and that of the witness (`begin_ns`) came of it: not before it
    was asked for, nor, for certain, after the request had been answered."""
    at_ns = witnesses["begin_ns"]
    parts = [
        all_true(
            as_truth(f.begin_ns - envelope.error_ns <= at_ns),
            doubt_unless(
                as_truth(np.ones(len(witnesses), dtype=bool)),
                known=at_ns <= (f.begin_ns if f.made_ns is None else f.made_ns) + envelope.error_ns,
            ),
            np.int8(f.may("elects_unclean")),
        )
        for f in envelope.faults
    ]
    return any_true(constant(FALSE, len(witnesses)), *parts)


def unclean_since(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """An unclean election of a partition of the cell came after the record was sent; unknown where it came before, since what
    it did to the other topic is not known."""
    if envelope.cell_unclean is Tristate.NO:
        return constant(FALSE, len(witnesses))
    begun_ns = envelope.begun_ns(witnesses)
    since = (begun_ns != -FOREVER) & (begun_ns <= envelope.cell_unclean_ns)
    return np.where(since, TRUE, UNKNOWN).astype(np.int8)


def last_unclean_ns(envelope: Envelope) -> int:
    """Returns when the last election of the partition was that was unclean for certain, widened; -FOREVER = none was."""
    certain = (e.time_ns + envelope.error_ns for e, was in _unclean_elections(envelope) if was == TRUE)
    return max(certain, default=-FOREVER)


def elected_unclean(envelope: Envelope, *, stated_alone: bool = False) -> Tristate:
    """Was there any unclean election of this partition? Samples may prove that there was; that there was none they cannot.
    `stated_alone`: no fault struck that nobody stated."""
    if not envelope.timeline.known and envelope.sampled_unclean:
        return Tristate.YES
    unstated = envelope.unstated and not stated_alone
    return Tristate(int(_any_unclean(envelope, 1, lambda _: constant(1, 1), unstated=unstated)[0]))


def _any_unclean(
    envelope: Envelope, length: int, holds: Callable[[Election], Truth], *, unstated: bool | None = None
) -> Truth:
    if not envelope.timeline.known:
        # False by configuration: nobody was allowed to elect from outside, nobody asked for it, and nobody saw it. Seen in
        # samples it is never more than unknown what it did: at which offset the new leader began they do not say.
        asked = any_true(*(np.int8(f.may("elects_unclean")) for f in envelope.faults))
        anything = envelope.unstated if unstated is None else unstated
        never = asked == FALSE and not (envelope.unclean_enabled or anything or envelope.sampled_unclean)
        return constant(FALSE if never else UNKNOWN, length)
    return any_true(constant(0, length), *(all_true(was, holds(e)) for e, was in _unclean_elections(envelope)))


def _unclean_elections(envelope: Envelope) -> Unclean:
    return [(e, was) for e in envelope.timeline.elections if (was := _unclean(envelope, e)) != FALSE]


def _unclean(envelope: Envelope, election: Election) -> Truth:
    if not election.last_leader_standing:
        return as_truth(election.from_outside)
    # The last leader came back: harmless unless its copy was destroyed since it was last copied from others. [KIP-966]
    joined_ns = envelope.timeline.joined_ns(election.leader, election.time_ns)
    return any_true(*(
        np.int8(f.may("destroys"))
        for f in envelope.faults
        if election.leader in f.hit
        and f.begin_ns - envelope.error_ns <= election.time_ns
        and (f.begin_ns if f.made_ns is None else f.made_ns) + envelope.error_ns >= joined_ns
    ))  # fmt: skip


def wiped(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """At some time every copy that could lead had been destroyed after the record's send began."""
    begun_ns = envelope.begun_ns(witnesses)
    return _wiped_when(envelope, lambda w: begun_ns <= w.destroyed_ns + envelope.error_ns, len(witnesses))


def wiped_of_either(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Every copy that could lead was destroyed after the first of two records was sent: the offset was given away again. If
    one of the two is in the log, after the other one was, which is gone."""
    begun_ns = envelope.begun_ns(witnesses)
    in_log = np.isin(witnesses["case"], IN_LOG_CASES)
    first_ns = np.where(in_log, begun_ns, np.minimum(begun_ns, or_never(witnesses["other_ns"])))
    return _wiped_when(envelope, lambda w: first_ns <= w.destroyed_ns + envelope.error_ns, len(witnesses))


def wiped_after_read(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Had every replica that could lead lost its data at some time after a consumer read the record?"""
    seen_ns = or_never(witnesses["seen_ns"])
    return _wiped_when(envelope, lambda w: seen_ns <= w.destroyed_ns + envelope.error_ns, len(witnesses))


def wiped_after_it_was_there(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Had every replica that could lead lost its data at some time after the record was in the log?

    It was there when a consumer read it, and when a broker acknowledged it: consumers fetch in advance, so a record that was
    fetched before may be given long after. Unknown where a send began before, and nobody knows when it ended: it may have
    been appended, and fetched, before or after. Example: power is lost at 3 s. A record that was acknowledged at 2 s and
    given at 9 s was there; of one that was acknowledged at 5 s and given at 9 s nothing says so."""
    outcome, error_ns = witnesses["outcome"], envelope.error_ns
    begun_ns, seen_ns = witnesses["begin_ns"], or_never(witnesses["seen_ns"])
    acknowledged = (outcome == Outcome.OK) & (envelope.acks != "0")
    there_ns = np.minimum(seen_ns, np.where(acknowledged, or_never(witnesses["end_ns"]), FOREVER))
    certain = _wiped_when(envelope, lambda w: there_ns <= w.destroyed_ns + error_ns, len(witnesses))
    in_doubt = ~acknowledged & (outcome != Outcome.FAIL) & (begun_ns != MISSING)
    perhaps = _wiped_when(envelope, lambda w: in_doubt & (begun_ns <= w.destroyed_ns + error_ns), len(witnesses))
    return np.where((certain == TRUE) | (perhaps == FALSE), certain, UNKNOWN).astype(np.int8)


def wiped_before(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Every copy that could lead was destroyed between the witness's two reads. Before the first: the position was one of the
    log that was written anew."""
    return _wiped_between(envelope, witnesses["begin_ns"], or_never(witnesses["end_ns"]))


def wiped_since_the_other(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Every copy that could lead was destroyed between the witness's two events `other_ns` and `begin_ns`."""
    return _wiped_between(envelope, witnesses["other_ns"], witnesses["begin_ns"])


def _wiped_between(envelope: Envelope, first_ns: np.ndarray, later_ns: np.ndarray) -> Truth:
    error_ns = envelope.error_ns
    return _wiped_when(
        envelope,
        lambda w: (w.begin_ns - error_ns <= later_ns) & (first_ns <= max(w.begin_ns, w.destroyed_ns) + error_ns),
        len(first_ns),
    )


def _wiped_when(envelope: Envelope, holds: Callable[[Wiped], np.ndarray], length: int) -> Truth:
    if envelope.unstated:
        return constant(UNKNOWN, length)
    if all(f.may("destroys") is Tristate.NO for f in envelope.faults):
        return constant(FALSE, length)
    if not envelope.timeline.known or any(f.may("destroys") is Tristate.UNKNOWN for f in envelope.faults):
        return constant(UNKNOWN, length)
    certainly = any_true(constant(0, length), *(as_truth(holds(wiped)) for wiped in envelope.wiped_moments))
    perhaps = any_true(constant(0, length), *(as_truth(holds(wiped)) for wiped in envelope.perhaps_wiped_moments))
    return np.where(certainly == TRUE, TRUE, doubt_unless(perhaps, known=False)).astype(np.int8)


def sent_later(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The record jumped over was sent (`other_ns`) after the later of the two reads: it was not there to be given."""
    sent_ns = np.where(witnesses["other_ns"] == MISSING, -FOREVER, witnesses["other_ns"])
    return as_truth(sent_ns > or_never(witnesses["end_ns"]))


# acks=1: the tail of a log that a change of leader takes away, and what is beyond that because it was committed.


LAG_FACTOR = 1.5
"""A follower that lags leaves the ISR within replica.lag.time.max.ms plus half of it between two checks.
[ReplicaManager: scheduler period replicaLagTimeMaxMs / 2]"""


def committed(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Returns whether acks=all acknowledged it, a consumer was given it, or the high watermark was seen above it. Not
    seen = no."""
    acknowledged = (witnesses["outcome"] == Outcome.OK) & (envelope.acks == "all")
    return as_truth(acknowledged | (witnesses["seen_ns"] != MISSING) | _below_watermark(envelope, witnesses))


def _below_watermark(envelope: Envelope, witnesses: np.ndarray) -> np.ndarray:
    """Returns bool: a high watermark above its offset was seen after its acknowledgement, in the one leadership that
    can have acknowledged it. Later ones may have given the offset to another record."""
    times, values = envelope.high_watermarks
    if not len(times) or not envelope.timeline.known:
        return np.zeros(len(witnesses), dtype=bool)
    begun_ns, until_ns = envelope.begun_ns(witnesses), np.full(len(witnesses), FOREVER)
    for election in reversed(envelope.timeline.elections):
        moved = moved_under(envelope, election, witnesses, begun_ns)
        until_ns = np.where(moved != FALSE, election.time_ns - envelope.error_ns, until_ns)
    # The last time that it was seen before another leader may have given the offset away, if that was after the
    # acknowledgement.
    last = np.searchsorted(times, until_ns, side="left") - 1
    seen = (last >= 0) & (times[last] > envelope.acknowledged_ns(witnesses)) & (witnesses["log_offset"] != NONE)
    return np.asarray(seen & (values[last] > witnesses["log_offset"]))


def in_uncommitted_tail(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Returns whether it was not committed, and some later leader never had it, whatever the cause of the move; or the
    leader that acknowledged it was destroyed. A move while the send was under way counts, if the old leader could still
    answer: on which side of it the append fell cannot be known. [acks; KAFKA-20554]"""
    if not envelope.timeline.known:
        return all_true(constant(UNKNOWN, len(witnesses)), negate(committed(envelope, witnesses)))
    begun_ns = envelope.begun_ns(witnesses)
    parts = [destroyed_leader(envelope, witnesses, begun_ns)]
    for election in envelope.timeline.elections:
        moved = moved_under(envelope, election, witnesses, begun_ns)
        if not moved.any():
            continue
        missed = negate(new_leader_had_it(envelope, election, witnesses, begun_ns))
        # A deposed leader's own epoch may begin below the next one's start, and all of it is cut. [KIP-101]
        taken = witnesses["case"] == OFFSET_TAKEN_CASE
        parts.append(
            all_true(moved, any_true(envelope.reaches(election, witnesses["log_offset"]), as_truth(taken)), missed)
        )
    return all_true(negate(committed(envelope, witnesses)), any_true(*parts))


def new_leader_had_it(envelope: Envelope, election: Election, witnesses: np.ndarray, begun_ns: np.ndarray) -> Truth:
    """Returns whether the new leader had the (uncommitted) record: it acknowledged it itself, or it stayed in the ISR
    so long after the acknowledgement, under a leader that could reach a living controller, that lagging would have cost
    it its place."""
    # A send that seems to begin after the election reached the deposed leader, if anything (clock error, zombie).
    asked = np.where(begun_ns < election.time_ns, envelope.timeline.leader_at(begun_ns), election.previous)
    itself = asked == election.leader
    acknowledged_ns = envelope.existed_ns(witnesses)
    since_ns = acknowledged_ns - envelope.error_ns
    until_ns = np.minimum(
        envelope.timeline.in_sync_until(election.leader, since_ns), election.time_ns - envelope.error_ns
    )
    stayed = as_truth(until_ns > since_ns)
    if envelope.lag_max_ns is None:
        long_enough, end_ns = doubt_unless(stayed, known=False), since_ns
    else:
        end_ns = acknowledged_ns + int(LAG_FACTOR * envelope.lag_max_ns) + envelope.error_ns
        long_enough = all_true(stayed, as_truth(until_ns >= end_ns))
    held_up = any_true(
        leader_hampered_between(envelope, since_ns, end_ns), keepers_hampered_between(envelope, since_ns, end_ns)
    )
    return any_true(as_truth(itself), all_true(long_enough, negate(held_up)))
