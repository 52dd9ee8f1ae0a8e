"""The envelope of one partition: what really happened to the records that witnesses speak of.

Every predicate takes an array of WITNESS and returns int8 of the same length: 1 so, 0 not so, -1 unknown. Times are widened
by the clock error, always so that a permission is not withheld for a few milliseconds. Loops run over elections and faults,
never over records.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from harness.clock import NS_PER_S
from harness.configuration import Acks, DeliveryBound
from harness.guarantees.batches import Batches
from harness.guarantees.destruction import Wiped, wiped_moments
from harness.guarantees.faults import FOREVER, FaultRecord
from harness.guarantees.logic import FALSE, UNKNOWN, Truth, both, constant, doubted, either, negate, truth
from harness.guarantees.timeline import Election, Timeline, no_timeline
from harness.schema import MISSING, NONE, Outcome, Tristate
from harness.snapshot_cases import SnapshotCase

LAG_FACTOR = 1.5
"""A follower that lags leaves the ISR within replica.lag.time.max.ms plus half of it between two checks.
[ReplicaManager: scheduler period replicaLagTimeMaxMs / 2]"""
OFFSET_TAKEN_CASE = 1
"""WITNESS.case of `lost` (checkers.log): another record stands at the offset it was acknowledged at."""
DEPOSED_NS = NS_PER_S
"""A living leader answers as one until it has replayed the record that deposed it: normally ms (brokers long-poll the
metadata log, KIP-595), on a busy machine more."""


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """Facts about one partition. `None` of a setting or table: not known, never a default."""

    timeline: Timeline = field(default_factory=no_timeline)
    faults: Sequence[FaultRecord] = ()
    error_ns: int = 0
    acks: Acks
    unclean_enabled: bool
    cell_unclean: Tristate = Tristate.NO
    """`elected_unclean` of any partition of the cell."""
    lag_max_ns: int | None = None
    """replica.lag.time.max.ms."""
    keepers: frozenset[int] = frozenset()
    """Node ids of those that a change of the ISR may need: controllers, or who may become one, and ZooKeeper's servers."""
    producer_expiry_ns: int | None = None
    """producer.id.expiration.ms."""
    delete_retention_ns: int | None = None
    """delete.retention.ms of the topic."""
    audited_ns: int | None = None
    """When the last audit of the partition was complete; None = never."""
    delivery_bound: DeliveryBound | None = None
    """What the trial promises of deliveries."""
    brokers: int = 0
    """How many there are, numbered from 1; 0 = not known."""
    brokers_flush: bool = False
    """Every record of topics that do not say otherwise, internal ones too, is synced before it is acknowledged."""
    measured_by: frozenset[int] = frozenset()
    """Node ids of the places of its tailing readers: a fault that hits nothing else spoils the measurement alone."""
    epoch_starts: Mapping[int, int] | None = None
    """Leader epoch → first offset of its batches in the replicas' logs; None = no logs were read."""
    high_watermarks: tuple[np.ndarray, np.ndarray] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    """(time_ns ascending, offset) as observed."""
    log_starts: tuple[np.ndarray, np.ndarray] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    """(time_ns ascending, offset) as observed."""

    batches: Callable[[], Batches | None] = lambda: None
    """Batches of one copy at the end, made when first asked for; None = no segments were read."""

    # --- what a witness says about its record -----------------------------------------------------------------------

    @staticmethod
    def begun_ns(witnesses: np.ndarray) -> np.ndarray:
        """When the record's send was invoked, or the first thing known of it; -FOREVER = nothing is."""
        earliest = _earliest(witnesses, "end_ns", "seen_ns", "other_ns")
        begun = np.where(witnesses["begin_ns"] != MISSING, witnesses["begin_ns"], earliest)
        return np.asarray(np.where(begun == FOREVER, -FOREVER, begun))

    def acknowledged_ns(self, witnesses: np.ndarray) -> np.ndarray:
        """When a broker's acknowledgement had arrived; FOREVER = never. With acks=0 no broker ever says anything."""
        acknowledged = (witnesses["outcome"] == Outcome.OK) & (self.acks != "0")
        return _or_never(np.where(acknowledged, witnesses["end_ns"], MISSING))

    def existed_ns(self, witnesses: np.ndarray) -> np.ndarray:
        """By when the record was certainly in a log: acknowledged, or given to a consumer; FOREVER = not known."""
        return np.asarray(np.minimum(self.acknowledged_ns(witnesses), _or_never(witnesses["seen_ns"])))

    def committed(self, witnesses: np.ndarray) -> Truth:
        """acks=all acknowledged it, a consumer was given it, or the high watermark was seen above it. Not seen = no."""
        acknowledged = (witnesses["outcome"] == Outcome.OK) & (self.acks == "all")
        return truth(acknowledged | (witnesses["seen_ns"] != MISSING) | self._below_watermark(witnesses))

    def _below_watermark(self, witnesses: np.ndarray) -> np.ndarray:
        """bool: a high watermark above its offset was seen after its acknowledgement, in the one leadership that can have
        acknowledged it. Later ones may have given the offset to another record."""
        times, values = self.high_watermarks
        if not len(times) or not self.timeline.known:
            return np.zeros(len(witnesses), dtype=bool)
        begun_ns, until_ns = self.begun_ns(witnesses), np.full(len(witnesses), FOREVER)
        for election in reversed(self.timeline.elections):
            moved = self._moved_under(election, witnesses, begun_ns)
            until_ns = np.where(moved != FALSE, election.time_ns - self.error_ns, until_ns)
        last = np.searchsorted(times, until_ns, side="left") - 1
        seen = (last >= 0) & (times[last] > self.acknowledged_ns(witnesses)) & (witnesses["log_offset"] != NONE)
        return np.asarray(seen & (values[last] > witnesses["log_offset"]))

    def _reaches(self, election: Election, offset: np.ndarray) -> np.ndarray:
        """offset ≥ first offset of that epoch: only those were decided anew. Without logs, or offset, the test is skipped."""
        if self.epoch_starts is None:
            return np.ones(len(offset), dtype=bool)
        starts = [start for epoch, start in self.epoch_starts.items() if epoch >= election.epoch]
        return np.asarray((offset == NONE) | (offset >= min(starts, default=-FOREVER)))

    # --- acks=1: the tail that a change of leader takes away --------------------------------------------------------

    def tail(self, witnesses: np.ndarray) -> Truth:
        """Not committed, and some later leader never had it, whatever the cause of the move; or the leader that
        acknowledged it was destroyed. A move while the send was under way counts, if the old leader could still answer:
        on which side of it the append fell cannot be told. [acks; KAFKA-20554]"""
        if not self.timeline.known:
            return both(constant(UNKNOWN, len(witnesses)), negate(self.committed(witnesses)))
        begun_ns = self.begun_ns(witnesses)
        parts = [self._destroyed_leader(witnesses, begun_ns)]
        for election in self.timeline.elections:
            moved = self._moved_under(election, witnesses, begun_ns)
            if not moved.any():
                continue
            missed = negate(self.had(election, witnesses, begun_ns))
            # A deposed leader's own epoch may begin below the next one's start, and all of it is cut. [KIP-101]
            taken = witnesses["case"] == OFFSET_TAKEN_CASE
            parts.append(both(moved, truth(self._reaches(election, witnesses["log_offset"]) | taken), missed))
        return both(negate(self.committed(witnesses)), either(*parts))

    def _moved_under(self, election: Election, witnesses: np.ndarray, begun_ns: np.ndarray) -> Truth:
        """The leader that the election deposed may have acknowledged it."""
        return either(
            self._moves_away(election, begun_ns),
            self._zombie_answered(election, begun_ns),
            self._given_twice(election, witnesses, begun_ns),
        )

    def _moves_away(self, election: Election, begun_ns: np.ndarray) -> Truth:
        """The election came after the send began, or so shortly before that the old leader may not have known; and that one
        was not already dead by then."""
        dead_ns = min(
            (
                f.proven_ns
                for f in self.faults
                if f.leaves_down is Tristate.YES
                and election.previous in f.hit
                and f.proven_ns > election.previous_since_ns
            ),
            default=FOREVER,
        )
        known_ns = election.time_ns + DEPOSED_NS + self.error_ns
        return truth((begun_ns <= known_ns) & (begun_ns <= dead_ns + self.error_ns))

    def known_ns(self, election: Election) -> int:
        """Until when the leader it deposed may have answered as one. A leader that lost its place in the ISR with it was
        fenced: it had not been heard for a session, so it need not hear either, until it is back in the ISR of the new
        epoch. [KIP-631, fencing; seen: 1.2 s on a machine that stood still]"""
        soon_ns = election.time_ns + DEPOSED_NS
        rejoined_ns = self.timeline.rejoined_ns(election.previous, election.time_ns)
        # Never back: nothing tells how long it went on, so no more is assumed than of any other.
        fenced = election.deposed_fenced and rejoined_ns != FOREVER
        return (max(soon_ns, rejoined_ns) if fenced else soon_ns) + self.error_ns

    def _given_twice(self, election: Election, witnesses: np.ndarray, begun_ns: np.ndarray) -> Truth:
        """Another record stands at its offset, and the leader deposed by the election may have answered still: one leader
        gives an offset once, so it was that one who acknowledged."""
        after_ns = election.time_ns - self.error_ns
        asked = (begun_ns >= after_ns) & (begun_ns <= self.known_ns(election))
        return truth(asked & (witnesses["case"] == OFFSET_TAKEN_CASE))

    def _zombie_answered(self, election: Election, begun_ns: np.ndarray) -> Truth:
        """The leader deposed by it, cut off or frozen then, may still have acknowledged until it was in sync again."""
        after_ns = election.time_ns - self.error_ns
        rejoined_ns = self.timeline.rejoined_ns(election.previous, election.time_ns) + self.error_ns
        causes = [
            either(np.int8(f.may("freezes")), np.int8(f.may("cuts")))
            for f in self.faults
            if election.previous in f.nodes and f.begin_ns <= election.time_ns + self.error_ns and f.end_ns >= after_ns
        ]
        return both(either(*causes), truth((begun_ns >= after_ns) & (begun_ns <= rejoined_ns)))

    def had(self, election: Election, witnesses: np.ndarray, begun_ns: np.ndarray) -> Truth:
        """The new leader had the (uncommitted) record: it acknowledged it itself, or it stayed in the ISR so long after
        the acknowledgement, under a leader that could reach a living controller, that lagging would have cost it its
        place."""
        # A send that seems to begin after the election reached the deposed leader, if anything (clock error, zombie).
        asked = np.where(begun_ns < election.time_ns, self.timeline.leader_at(begun_ns), election.previous)
        itself = asked == election.leader
        acknowledged_ns = self.existed_ns(witnesses)
        since_ns = acknowledged_ns - self.error_ns
        until_ns = np.minimum(self.timeline.in_sync_until(election.leader, since_ns), election.time_ns - self.error_ns)
        stayed = truth(until_ns > since_ns)
        if self.lag_max_ns is None:
            long_enough, end_ns = doubted(stayed, known=False), since_ns
        else:
            end_ns = acknowledged_ns + int(LAG_FACTOR * self.lag_max_ns) + self.error_ns
            long_enough = both(stayed, truth(until_ns >= end_ns))
        held_up = either(self._leader_hampered(since_ns, end_ns), self._keepers_hampered(since_ns, end_ns))
        return either(truth(itself), both(long_enough, negate(held_up)))

    def leader_hampered(self, witnesses: np.ndarray) -> Truth:
        """The leader was cut from somebody, frozen or dead for a part of the send, so it may not have learned of the ISR."""
        begun_ns = self.begun_ns(witnesses) - DEPOSED_NS - self.error_ns
        if not self.timeline.known:
            return constant(UNKNOWN, len(witnesses))
        return self._leader_hampered(begun_ns, _or_never(witnesses["end_ns"]))

    def _leader_hampered(self, since_ns: np.ndarray, until_ns: np.ndarray) -> Truth:
        """The leader of that time was cut from somebody, frozen or dead for a while, so it may not have shrunk the ISR."""
        leader = self.timeline.last_leader_at(since_ns)
        return self._hampered(since_ns, until_ns, lambda f: np.isin(leader, f.nodes))

    def _keepers_hampered(self, since_ns: np.ndarray, until_ns: np.ndarray) -> Truth:
        """Somebody was, without whom the ISR may not have been changed meanwhile."""
        return self._hampered(
            since_ns, until_ns, lambda f: np.full(len(since_ns), not self.keepers.isdisjoint(f.nodes), dtype=bool)
        )

    def _hampered(
        self, since_ns: np.ndarray, until_ns: np.ndarray, touches: Callable[[FaultRecord], np.ndarray]
    ) -> Truth:
        parts = []
        for f in self.faults:
            overlap = (f.begin_ns - self.error_ns <= until_ns) & (f.end_ns + self.error_ns >= since_ns)
            harm = either(*(np.int8(f.may(what)) for what in ("stops", "freezes", "cuts")))
            parts.append(both(truth(overlap & touches(f)), harm))
        return either(constant(0, len(since_ns)), *parts)

    def _destroyed_leader(self, witnesses: np.ndarray, begun_ns: np.ndarray) -> Truth:
        leader = self.timeline.leader_at(begun_ns)
        parts = [
            both(truth(np.isin(leader, f.hit) & (f.end_ns >= begun_ns)), np.int8(f.may("destroys")))
            for f in self.faults
        ]
        return either(constant(0, len(witnesses)), *parts)

    # --- hard: committed data may be missing ------------------------------------------------------------------------

    def cutoff(self, witnesses: np.ndarray) -> Truth:
        """An unclean election made a log without it the truth: certainly so if the record existed before; unknown if its
        send had only begun, or if the deposed leader may have taken it."""
        existed_ns = self.existed_ns(witnesses)
        return self._cut_off(witnesses, lambda e: e.time_ns > existed_ns + self.error_ns)

    def cutoff_after_read(self, witnesses: np.ndarray) -> Truth:
        """The same, after a consumer was given the record; unknown if a deposed leader may have served the read."""
        seen_ns = _or_never(witnesses["seen_ns"])
        return self._cut_off(witnesses, lambda e: e.time_ns + self.error_ns >= seen_ns)

    def cutoff_of_either(self, witnesses: np.ndarray) -> Truth:
        """An unclean election came after the first of the two was acknowledged or seen: the offset was given away again."""
        first_ns = np.minimum(self.existed_ns(witnesses), _or_never(witnesses["other_ns"]))
        return self._cut_off(witnesses, lambda e: e.time_ns + self.error_ns >= first_ns)

    def _cut_off(self, witnesses: np.ndarray, certainly: Callable[[Election], np.ndarray]) -> Truth:
        begun_ns, offset = self.begun_ns(witnesses), witnesses["log_offset"]

        def holds(election: Election) -> Truth:
            possibly = either(self._moves_away(election, begun_ns), self._zombie_answered(election, begun_ns)) != FALSE
            when = np.where(certainly(election), 1, np.where(possibly, UNKNOWN, 0)).astype(np.int8)
            return both(when, truth(self._reaches(election, offset)))

        return self._any_unclean(len(witnesses), holds)

    def unclean_before(self, witnesses: np.ndarray) -> Truth:
        """An unclean election before the later of the witness's two events: positions of the old log mean nothing now."""
        later_ns = _or_never(witnesses["end_ns"])
        return self._any_unclean(len(witnesses), lambda e: truth(e.time_ns - self.error_ns <= later_ns))

    def elected_unclean(self) -> Tristate:
        """Was there any unclean election of this partition?"""
        return Tristate(int(self._any_unclean(1, lambda _: constant(1, 1))[0]))

    def _any_unclean(self, length: int, holds: Callable[[Election], Truth]) -> Truth:
        if not self.timeline.known:
            # False by configuration: nobody was allowed to elect from outside, and nobody asked for it.
            asked = either(*(np.int8(f.may("elects_unclean")) for f in self.faults))
            return constant(FALSE if not self.unclean_enabled and asked == FALSE else UNKNOWN, length)
        parts = [both(unclean, holds(e)) for e in self.timeline.elections if (unclean := self._unclean(e)) != FALSE]
        return either(constant(0, length), *parts)

    def _unclean(self, election: Election) -> Truth:
        if not election.last_leader_standing:
            return truth(election.from_outside)
        # The last leader came back: harmless unless its copy was destroyed meanwhile. [KIP-966]
        return either(*(
            np.int8(f.may("destroys"))
            for f in self.faults
            if election.leader in f.hit and f.begin_ns - self.error_ns <= election.time_ns
        ))  # fmt: skip

    # --- destroyed copies -------------------------------------------------------------------------------------------

    def wiped(self, witnesses: np.ndarray) -> Truth:
        """At some time every copy that could lead had been destroyed after the record's send began."""
        begun_ns = self.begun_ns(witnesses)
        return self._wiped_when(lambda w: begun_ns <= w.destroyed_ns + self.error_ns, len(witnesses))

    def wiped_after_read(self, witnesses: np.ndarray) -> Truth:
        """The same, at some time after a consumer was given the record."""
        seen_ns = _or_never(witnesses["seen_ns"])
        return self._wiped_when(lambda w: seen_ns <= w.destroyed_ns + self.error_ns, len(witnesses))

    def wiped_before(self, witnesses: np.ndarray) -> Truth:
        """Every copy that could lead had been destroyed at some time before the later of the witness's two events."""
        later_ns = _or_never(witnesses["end_ns"])
        return self._wiped_when(lambda w: w.begin_ns - self.error_ns <= later_ns, len(witnesses))

    def _wiped_when(self, holds: Callable[[Wiped], np.ndarray], length: int) -> Truth:
        if all(f.may("destroys") is Tristate.NO for f in self.faults):
            return constant(FALSE, length)
        if not self.timeline.known or any(f.may("destroys") is Tristate.UNKNOWN for f in self.faults):
            return constant(UNKNOWN, length)
        return either(constant(0, length), *(truth(holds(wiped)) for wiped in self.wiped_moments))

    @cached_property
    def wiped_moments(self) -> tuple[Wiped, ...]:
        """Every moment from which no intact copy could lead."""
        return wiped_moments(self.timeline, self.faults)

    # --- the rest ---------------------------------------------------------------------------------------------------

    def forgot(self, witnesses: np.ndarray) -> Truth:
        """The producer's state had expired before the send ended, so a retry was taken for new.
        [KIP-854 producer.id.expiration.ms]"""
        lived_ns = np.where(witnesses["end_ns"] == MISSING, FOREVER, witnesses["end_ns"] - self.begun_ns(witnesses))
        if self.producer_expiry_ns is None:
            return constant(UNKNOWN, len(witnesses))
        return truth(lived_ns + self.error_ns >= self.producer_expiry_ns)

    def may_have_expired(self, witnesses: np.ndarray) -> Truth:
        """A snapshot does not know a producer, and from the first send to the reading it was as long as producer ids are
        kept. [KIP-854 producer.id.expiration.ms]"""
        unknown_there = truth(witnesses["case"] == SnapshotCase.UNKNOWN_THERE)
        return both(unknown_there, self.forgot(witnesses))

    def log_start_passed(self, witnesses: np.ndarray) -> Truth:
        """The log start was seen beyond the position: what the reader jumped over had been deleted. Not seen = no."""
        times, values = self.log_starts
        if not len(times):
            return constant(FALSE, len(witnesses))
        position = np.where(
            witnesses["other_offset"] == NONE,
            witnesses["log_offset"],
            np.minimum(witnesses["log_offset"], witnesses["other_offset"]),
        )
        return truth((position != NONE) & (int(values.max()) > position))

    def out_of_sync_at_the_end(self, witnesses: np.ndarray) -> Truth:
        """One of the two replicas compared (brokers `reader` and `other_client`) was not in the last ISR there was."""
        if not self.timeline.known:
            return constant(UNKNOWN, len(witnesses))
        in_sync = (
            int(self.timeline.isr[-1]) >> witnesses["reader"] & int(self.timeline.isr[-1]) >> witnesses["other_client"]
        )
        return truth(in_sync & 1 == 0)

    def read_beyond_retention(self, witnesses: np.ndarray) -> Truth:
        """From the older record (`other_*`) to the end the audit took as long as tombstones are kept, so the one behind it
        may have expired meanwhile."""
        if self.delete_retention_ns is None or self.audited_ns is None:
            return constant(UNKNOWN, len(witnesses))
        began_ns = np.where(witnesses["other_ns"] == MISSING, -FOREVER, witnesses["other_ns"])
        return truth(self.audited_ns - began_ns >= self.delete_retention_ns)

    def audit_beyond_retention(self) -> Tristate:
        """Did the audit as a whole, from its first look at the log start, take that long?"""
        times, _ = self.log_starts
        if self.delete_retention_ns is None or self.audited_ns is None or not len(times):
            return Tristate.UNKNOWN
        return Tristate.YES if self.audited_ns - int(times.min()) >= self.delete_retention_ns else Tristate.NO

    def away_beyond_retention(self) -> Tristate:
        """Did a broker lead that a fault had kept away for as long as tombstones are kept?"""
        if self.delete_retention_ns is None:
            return Tristate.UNKNOWN if self.faults else Tristate.NO
        long = [f for f in self.faults if f.end_ns - f.begin_ns + self.error_ns >= self.delete_retention_ns]
        if long and not self.timeline.known:
            return Tristate.UNKNOWN
        led = (
            either(*(np.int8(f.may(what)) for what in ("stops", "freezes", "cuts")))
            for f in long
            for e in self.timeline.elections
            if e.leader in f.nodes and e.time_ns + self.error_ns >= f.begin_ns
        )
        return Tristate(int(either(np.int8(FALSE), *led)))

    def replica_away(self, witnesses: np.ndarray) -> Truth:
        """`away_beyond_retention`, of each witness."""
        return constant(int(self.away_beyond_retention()), len(witnesses))

    def reply_endangered(self, witnesses: np.ndarray) -> np.ndarray:
        """bool: a fault or a change of leader overlapped the send, so a reply may have been lost. Names a cause, permits
        nothing."""
        begun_ns, end_ns = self.begun_ns(witnesses) - self.error_ns, _or_never(witnesses["end_ns"]) + self.error_ns
        moments = [(e.time_ns, e.time_ns) for e in self.timeline.elections]
        moments += [(f.begin_ns, f.end_ns) for f in self.faults]
        overlaps = [(begin <= end_ns) & (end >= begun_ns) for begin, end in moments]
        return np.logical_or.reduce(overlaps) if overlaps else np.zeros(len(witnesses), dtype=bool)


def _or_never(times_ns: np.ndarray) -> np.ndarray:
    return np.where(times_ns == MISSING, FOREVER, times_ns)


def _earliest(witnesses: np.ndarray, *names: str) -> np.ndarray:
    return np.asarray(np.minimum.reduce([_or_never(witnesses[name]) for name in names]))
