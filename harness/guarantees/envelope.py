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
from harness.guarantees.timeline import Election, Timeline, no_timeline
from harness.schema import MISSING, NONE, Outcome, Tristate

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
    leader_answers: tuple[np.ndarray, np.ndarray] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    """(time_ns ascending, leader epoch) of what brokers answered as its leaders."""
    log_starts: tuple[np.ndarray, np.ndarray] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    """(time_ns ascending, offset) as observed."""

    batches: Callable[[], Batches | None] = lambda: None
    """Batches of one copy at the end, made when first asked for; None = no segments were read."""

    @staticmethod
    def begun_ns(witnesses: np.ndarray) -> np.ndarray:
        """When the record's send was invoked, or the first thing known of it; -FOREVER = nothing is."""
        earliest = _earliest(witnesses, "end_ns", "seen_ns", "other_ns")
        begun = np.where(witnesses["begin_ns"] != MISSING, witnesses["begin_ns"], earliest)
        return np.asarray(np.where(begun == FOREVER, -FOREVER, begun))

    def acknowledged_ns(self, witnesses: np.ndarray) -> np.ndarray:
        """When a broker's acknowledgement had arrived; FOREVER = never. With acks=0 no broker ever says anything."""
        acknowledged = (witnesses["outcome"] == Outcome.OK) & (self.acks != "0")
        return or_never(np.where(acknowledged, witnesses["end_ns"], MISSING))

    def existed_ns(self, witnesses: np.ndarray) -> np.ndarray:
        """By when the record was certainly in a log: acknowledged, or given to a consumer; FOREVER = not known."""
        return np.asarray(np.minimum(self.acknowledged_ns(witnesses), or_never(witnesses["seen_ns"])))

    def reaches(self, election: Election, offset: np.ndarray) -> np.ndarray:
        """offset ≥ first offset of that epoch: only those were decided anew. Without logs, or offset, the test is skipped."""
        if self.epoch_starts is None:
            return np.ones(len(offset), dtype=bool)
        starts = [start for epoch, start in self.epoch_starts.items() if epoch >= election.epoch]
        return np.asarray((offset == NONE) | (offset >= min(starts, default=-FOREVER)))

    def beyond(self, offset: np.ndarray) -> np.ndarray:
        """Is the offset behind the end of every copy that was read at the end? Nothing is where none was."""
        batches = self.batches()
        if batches is None or not len(batches.last_offset):
            return np.zeros(len(offset), dtype=bool)
        return np.asarray(offset > batches.last_offset[-1])

    def known_ns(self, election: Election) -> int:
        """Until when the leader it deposed may have answered as one. A leader that lost its place in the ISR with it was
        fenced: it had not been heard for a session, so it need not hear either, until it is back in the ISR of the new
        epoch. [KIP-631, fencing; seen: 1.2 s on a machine that stood still]"""
        soon_ns = election.time_ns + DEPOSED_NS
        rejoined_ns = self.timeline.rejoined_ns(election.previous, election.time_ns)
        # Never back: nothing tells how long it went on, so no more is assumed than of any other.
        fenced = election.deposed_fenced and rejoined_ns != FOREVER
        return max(soon_ns, rejoined_ns if fenced else soon_ns, self._still_answered_ns(election)) + self.error_ns

    def _still_answered_ns(self, election: Election) -> int:
        """When the leader that it deposed last answered somebody in its own epoch. [Seen: 3.5 s after the election]"""
        times, epochs = self.leader_answers
        own = int(self.timeline.leader_epoch[self.timeline.index_at(np.asarray(election.previous_since_ns))])
        told = times[(epochs >= own) & (epochs < election.epoch)]
        return int(told[-1]) if len(told) else -FOREVER

    def led_by_ns(self, epoch: int, since_ns: int) -> int:
        """By when a leader of this epoch, or of a later one, had answered somebody as one; where nobody was, as long after
        `since_ns` as for any other. A broker knows who is to lead before it leads: it tells clients of the new state first,
        and then goes from partition to partition. [BrokerMetadataPublisher.onMetadataUpdate; ReplicaManager.applyDelta;
        seen: 11 s between the first and the last of 336]"""
        times, epochs = self.leader_answers
        answered = times[(epochs >= epoch) & (times >= since_ns - self.error_ns)]
        return int(answered[0] if len(answered) else since_ns + DEPOSED_NS) + self.error_ns

    @cached_property
    def wiped_moments(self) -> tuple[Wiped, ...]:
        """Every moment from which no intact copy could lead."""
        return wiped_moments(self.timeline, self.faults)


def or_never(times_ns: np.ndarray) -> np.ndarray:
    return np.where(times_ns == MISSING, FOREVER, times_ns)


def _earliest(witnesses: np.ndarray, *names: str) -> np.ndarray:
    return np.asarray(np.minimum.reduce([or_never(witnesses[name]) for name in names]))
