"""Each change of a partition in the controllers' log beside the state before it: what the rules of the KIPs look at."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.log.leadership import broker_truth, ground_truth
from prozess.checkers.lookup import differs_from_previous
from prozess.checkers.progress.leaders import MASK_BITS
from prozess.harness.columns import once
from prozess.harness.schema import NONE, MetadataKind


@dataclass(frozen=True, slots=True)
class PartitionStates:
    """What the log says of a partition, one entry for each change. Sets of brokers are masks: bit n is broker n."""

    leader: NDArray[np.int64]
    """Node ids, int64. NONE: nobody leads."""
    epoch: NDArray[np.int64]
    """Leader epochs, int64."""
    isr: NDArray[np.int64]
    elr: NDArray[np.int64]
    replicas: NDArray[np.int64]
    """0: not recorded."""
    recovering: NDArray[np.bool_]
    """bool: the leader was elected uncleanly, and has not recovered yet (KIP-704)."""
    ended: NDArray[np.bool_]
    """bool: the topic was deleted."""

    def taken(self, rows: np.ndarray) -> "PartitionStates":
        """Returns the state of these rows."""
        columns = (self.leader, self.epoch, self.isr, self.elr, self.replicas, self.recovering, self.ended)
        return PartitionStates(*(column[rows] for column in columns))


@dataclass(frozen=True, slots=True)
class PartitionChanges:
    """Changes of one partition, in the order of the log, of one life of its topic after the other."""

    rows: NDArray[np.int64]
    """Their rows of the partition's `metadata`."""
    time_ns: NDArray[np.int64]
    """Times that do not fall, whatever the clock of a new controller says."""
    after: PartitionStates
    before: PartitionStates
    """Where nothing came before, this is the state itself, which follows from itself by every rule."""
    follows: NDArray[np.bool_]
    """bool: a state of the same topic came before."""
    fenced: NDArray[np.int64]
    """Mask of the brokers that the log had as fenced before the change, and still after all that it says of that moment."""
    led_fenced: NDArray[np.bool_]
    """bool: its leader was fenced later than that moment, and the next change of the partition came later still, or never."""
    kraft: bool
    """The log is that of KRaft's controllers, not ZooKeeper's."""


def has(mask: NDArray[np.int64], broker: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns whether each mask has this broker. No mask has NONE. Example: 0b110 has brokers 1 and 2, but not 3."""
    return np.asarray((broker >= 0) & (mask >> np.maximum(broker, 0) & 1 == 1))


def changes_of(
    table: Mapping[str, np.ndarray], brokers: Mapping[str, np.ndarray], owner: np.ndarray | None = None
) -> PartitionChanges:
    """Returns the changes of one partition by its rows of `metadata`; `brokers`: the rows that name no partition. `owner`:
    the rows are of several partitions, which are numbered.

    Example: rows of leaders 1, 1, 2 of a topic, and 3 of the next topic of its name, are four changes. The first and the
    last follow from nothing."""
    rows = ground_truth(table)
    fences = once(brokers, _Fences, lambda: _Fences.of(brokers))
    time_ns = fences.instants(table["log_position"][rows], table["time_ns"][rows])
    life = (table["topic_id_high"][rows], table["topic_id_low"][rows])
    owner = np.zeros(len(rows), dtype=np.int64) if owner is None else owner[rows]
    order = np.lexsort((life[1], life[0], owner))
    rows, time_ns = rows[order], time_ns[order]
    begins = differs_from_previous(life[0][order]) | differs_from_previous(life[1][order])
    begins |= differs_from_previous(owner[order])
    state = PartitionStates(
        table["leader"][rows].astype(np.int64),
        table["leader_epoch"][rows].astype(np.int64),
        table["isr"][rows],
        table["elr"][rows],
        table["replicas"][rows],
        table["recovering"][rows] == 1,
        table["kind"][rows] == MetadataKind.DELETED.value,
    )
    previous = np.arange(len(rows)) - ~begins
    last = np.append(begins[1:], True)[: len(rows)]
    until_ns = np.where(last, _FOREVER, np.roll(time_ns, -1))
    return PartitionChanges(
        rows=rows,
        time_ns=time_ns,
        after=state,
        before=state.taken(previous),
        follows=~begins,
        fenced=fences.fenced_at(time_ns),
        led_fenced=fences.between(state.leader, time_ns, until_ns),
        kraft=fences.kraft != 0,
    )


_FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class _Fences:
    """When which broker was fenced, by the log of KRaft's controllers, which registers each broker as a fenced one."""

    position: np.ndarray
    node: np.ndarray
    free: np.ndarray
    """bool: it is not fenced from here on."""
    time_ns: np.ndarray
    kraft: int
    """Mask of the brokers that the log registered as fenced ones."""

    @staticmethod
    def of(table: Mapping[str, np.ndarray]) -> "_Fences":
        rows = broker_truth(table)
        kind, node, position = table["kind"][rows], table["node"][rows].astype(np.int64), table["log_position"][rows]
        # A registration, and in the row behind it, of the same record, that the broker is fenced.
        same = (np.diff(position) == 0) & (np.diff(node) == 0)
        born = np.flatnonzero(
            same & (kind[:-1] == MetadataKind.BROKER_REGISTERED) & (kind[1:] == MetadataKind.BROKER_FENCED)
        )
        mask = int(np.bitwise_or.reduce(np.int64(1) << node[born])) if len(born) else 0
        # The log's order is the truth. The clock of a new controller may be behind that of the one before.
        time_ns = np.maximum.accumulate(table["time_ns"][rows]) if len(rows) else table["time_ns"][rows]
        return _Fences(position, node, kind == MetadataKind.BROKER_UNFENCED, time_ns, mask)

    def instants(self, position: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
        """Returns times of records of the log that fall neither among themselves nor against those of brokers."""
        both = np.concatenate([self.position, position])
        order = np.argsort(both, kind="stable")
        times = np.empty(len(both), dtype=np.int64)
        times[order] = np.maximum.accumulate(np.concatenate([self.time_ns, time_ns])[order]) if len(both) else 0
        return times[len(self.position) :]

    def fenced_at(self, time_ns: np.ndarray) -> np.ndarray:
        """Returns the mask of brokers that were fenced right before each of these times, and right after as well.

        What one decision writes has one time, in whatever order its records come."""
        mask = np.zeros(len(time_ns), dtype=np.int64)
        for node, own in self._nodes():
            free = self.free[own]
            before = np.searchsorted(self.time_ns[own], time_ns, side="left")
            after = np.searchsorted(self.time_ns[own], time_ns, side="right")
            # How many of the first rows have it unfenced. In front of its first row a broker is not registered.
            unfenced = np.append(0, np.cumsum(free))
            was_free = np.where(before > 0, free[np.maximum(before - 1, 0)], False)
            mask |= np.where(was_free | (unfenced[after] > unfenced[before]), 0, np.int64(1) << node)
        return mask

    def between(self, leader: np.ndarray, begin_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
        """Returns whether each of these leaders was fenced after it began to lead, and was so before its end."""
        found = np.zeros(len(leader), dtype=np.bool_)
        for node, own in self._nodes():
            mine, free, time_ns = leader == node, self.free[own], self.time_ns[own]
            fell = np.flatnonzero(~free & np.append(True, free[:-1]))  # it was unfenced, and is so no more
            slot = np.searchsorted(time_ns[fell], begin_ns, side="right")
            at_ns = np.append(time_ns[fell], _FOREVER)[slot]
            found |= mine & (at_ns < end_ns)
        return found

    def _nodes(self) -> list[tuple[int, np.ndarray]]:
        """Returns each broker that a rule may speak of, with its rows."""
        nodes = (node for node in range(MASK_BITS) if self.kraft >> node & 1)
        return [(node, np.flatnonzero(self.node == node)) for node in nodes]


def nobody(changes: PartitionChanges) -> NDArray[np.bool_]:
    """Returns that a rule forbids none of these changes."""
    return np.zeros(len(changes.rows), dtype=np.bool_)


def elects(changes: PartitionChanges) -> NDArray[np.bool_]:
    """Returns whether each change makes another broker the leader."""
    other = changes.after.leader != changes.before.leader
    return np.asarray(changes.follows & other & (changes.after.leader != NONE))
