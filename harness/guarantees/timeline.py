"""Ground truth of one partition over time: who led, in which epoch, who was in sync. From the controllers' own log.

Rows of any other source (samples by clients or single brokers) are never used: one may come from a zombie.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from harness.guarantees.faults import FOREVER, Columns
from harness.schema import NONE, MetadataKind, MetadataSource

_COLUMNS = ("time_ns", "leader", "leader_epoch", "isr", "elr", "last_known_elr", "replicas")


@dataclass(frozen=True, slots=True)
class Election:
    """A node began to lead in a new epoch."""

    time_ns: int
    epoch: int
    leader: int
    previous: int
    """The last node that led before it; NONE = nobody ever."""
    previous_since_ns: int
    """When that one's leadership began."""
    eligible: int
    """Mask: ISR ∪ ELR just before; and the ISR of a change that ends a reassignment, which puts a copy in sync, takes one
    away and moves the lead, all at once. [KIP-455; PartitionReassignmentReplicas.maybeCompleteReassignment]"""
    last_known: int
    """Mask: LastKnownElr just before (KIP-966)."""
    in_sync: int = 0
    """Mask: the ISR just before."""
    deposed_fenced: bool = False
    """The leader before is not in the new ISR."""

    @property
    def last_leader_standing(self) -> bool:
        """Nobody was in sync and the last known leader came back: complete as long as its data was not destroyed. Who was
        still eligible is dropped in the same change, if it comes back after a crash."""
        return self.in_sync == 0 and bool(self.last_known >> self.leader & 1)

    @property
    def from_outside(self) -> bool:
        """The new leader was in neither ISR nor ELR. [KIP-966; PartitionChangeBuilder.electAnyLeader]"""
        return not self.eligible >> self.leader & 1 and not self.last_leader_standing


@dataclass(frozen=True, slots=True)
class Timeline:
    """State of the partition from `time_ns[i]` on, in the log's own order (int64 arrays of one length)."""

    time_ns: np.ndarray
    leader: np.ndarray
    leader_epoch: np.ndarray
    isr: np.ndarray
    elr: np.ndarray
    last_known_elr: np.ndarray
    replicas: np.ndarray
    elections: tuple[Election, ...] = ()

    @property
    def known(self) -> bool:
        """Is there any ground truth?"""
        return len(self.time_ns) > 0

    def index_at(self, time_ns: np.ndarray) -> np.ndarray:
        """Which row holds at these times; -1 = before the first."""
        return np.asarray(np.searchsorted(self.time_ns, time_ns, side="right") - 1)

    def leader_at(self, time_ns: np.ndarray) -> np.ndarray:
        """Node id; NONE = no leader, or before the first row."""
        if not self.known:
            return np.full(np.shape(time_ns), NONE)
        index = self.index_at(time_ns)
        return np.where(index >= 0, self.leader[index], NONE)

    def last_leader_at(self, time_ns: np.ndarray) -> np.ndarray:
        """As `leader_at`; while nobody leads, whoever did last: cut off, it may not know."""
        if not self.known:
            return np.full(np.shape(time_ns), NONE)
        led = np.maximum.accumulate(np.where(self.leader != NONE, np.arange(len(self.leader)), 0))
        index = self.index_at(time_ns)
        return np.where(index >= 0, self.leader[led[index]], NONE)

    def in_sync_until(self, node: int, time_ns: np.ndarray) -> np.ndarray:
        """Until when `node` stays in the ISR without a break from these times on (ns); -FOREVER where it was not in it
        then, FOREVER where it never leaves."""
        inside = (self.isr >> node & 1).astype(bool)
        leaves = np.append(np.where(inside, FOREVER, self.time_ns), FOREVER)
        next_leave = np.minimum.accumulate(leaves[::-1])[::-1]
        index = self.index_at(time_ns)
        return np.where((index >= 0) & inside[index], next_leave[index], -FOREVER)

    def rejoined_ns(self, node: int, after_ns: int) -> int:
        """First moment at or after which the ISR holds `node` again; FOREVER = never."""
        rows = np.flatnonzero((self.time_ns >= after_ns) & (self.isr >> node & 1 == 1))
        return int(self.time_ns[rows[0]]) if len(rows) else FOREVER


def timelines(metadata: Columns) -> Mapping[int, Timeline]:
    """Dense partition id → its timeline; partitions without ground truth are absent."""
    truth = (metadata["source"] == MetadataSource.CONTROLLER_LOG) & (metadata["kind"] == MetadataKind.PARTITION)
    rows = np.flatnonzero(truth & (metadata["partition"] != NONE))
    keys = (metadata["time_ns"], metadata["log_position"], metadata["partition"])
    rows = rows[np.lexsort(tuple(key[rows] for key in keys))]
    if not len(rows):
        return {}
    partition = metadata["partition"][rows]
    ids, starts = np.unique(partition, return_index=True)
    return {
        int(p): _timeline({name: metadata[name][part].astype(np.int64) for name in _COLUMNS})
        for p, part in zip(ids, np.split(rows, starts[1:]), strict=True)
    }


def no_timeline() -> Timeline:
    """Nothing is known."""
    nothing = np.empty(0, dtype=np.int64)
    return Timeline(nothing, nothing, nothing, nothing, nothing, nothing, nothing)


def _timeline(rows: dict[str, np.ndarray]) -> Timeline:
    # The log's order is the truth; the clock of a new controller may be behind the old one's.
    rows["time_ns"] = np.maximum.accumulate(rows["time_ns"])
    return Timeline(**rows, elections=_elections(rows))


def _elections(rows: Mapping[str, np.ndarray]) -> tuple[Election, ...]:
    time_ns, leader, epoch, isr, elr, last, replicas = (rows[name].tolist() for name in _COLUMNS)
    found: list[Election] = []
    previous, since_ns = leader[0], time_ns[0]
    for i in range(1, len(leader)):
        # An epoch bumped under the same leader (an ISR shrink before metadata version 3.6) moves nothing.
        if leader[i] != NONE and leader[i] != leader[i - 1]:
            found.append(
                Election(
                    time_ns[i],
                    epoch[i],
                    leader[i],
                    previous,
                    since_ns,
                    isr[i - 1] | elr[i - 1] | (isr[i] if replicas[i - 1] & ~replicas[i] else 0),
                    last[i - 1],
                    in_sync=isr[i - 1],
                    deposed_fenced=previous >= 0 and not isr[i] >> previous & 1,
                )
            )
            previous, since_ns = leader[i], time_ns[i]
    return tuple(found)
