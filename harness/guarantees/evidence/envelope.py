"""The envelope of one partition: what really happened to the records that witnesses speak of, and who appended what by
the headers of the batches in the replicas' own segments.

Source: https://kafka.apache.org/documentation/#recordbatch (producerId, producerEpoch, attributes); KIP-360 (an idempotent
producer goes on under a higher epoch of the same id, and its sequences begin at 0 again).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.config.configuration import Acks, DeliveryBound
from prozess.harness.guarantees.evidence.ground_truth import (
    FOREVER,
    Columns,
    Election,
    FaultRecord,
    SampledElection,
    Timeline,
    no_timeline,
    timelines,
)
from prozess.harness.guarantees.logic import UNKNOWN, Truth, as_truth, constant, doubt_unless
from prozess.harness.plan.plan import Plan
from prozess.harness.recording.codes import number_of, partition_for
from prozess.harness.schema import MISSING, NONE, REMOTE_STORE, MetadataKind, ObservationKind, Outcome, Tristate

TRANSACTIONAL, CONTROL = 0x10, 0x20
"""Bits of a batch's attributes. A control batch of a transaction is a marker: it ends what its producer id has open."""


@dataclass(frozen=True)
class AppendedBatches:
    """Batches of one copy of a partition, ascending by offset: arrays of one length."""

    base_offset: np.ndarray
    last_offset: np.ndarray
    producer_id: np.ndarray
    producer_epoch: np.ndarray
    attributes: np.ndarray
    first_sequence: np.ndarray
    """NONE if the producer is not idempotent."""
    timestamp_ms: np.ndarray
    """For a marker this is the wall clock of the broker that wrote it, cut to ms."""

    def at(self, offset: np.ndarray) -> np.ndarray:
        """Returns intp[k]: the batch that holds each offset, -1 where none does."""
        index = np.searchsorted(self.base_offset, offset, side="right") - 1
        if not len(self.base_offset):
            return np.full(len(offset), -1, dtype=np.intp)
        inside = (index >= 0) & (self.last_offset[index] >= offset)
        return np.asarray(np.where(inside, index, -1))

    def _of_both(self, witnesses: np.ndarray, holds: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Truth:
        """Does it hold of the batches with the witness's two offsets? Unknown where one of them stands in none that was
        read."""
        # -1 takes the last batch; what is computed of it is dropped in the end.
        one, other = self.at(witnesses["log_offset"]), self.at(witnesses["other_offset"])
        known = (one >= 0) & (other >= 0)
        if not known.any():
            return np.full(len(witnesses), UNKNOWN, dtype=np.int8)
        return np.asarray(np.where(known, holds(one, other), UNKNOWN), dtype=np.int8)

    def bumped(self, witnesses: np.ndarray) -> Truth:
        """Were the two offsets written under different epochs of one producer id, outside transactions?"""

        def are(one: np.ndarray, other: np.ndarray) -> np.ndarray:
            same_id = (self.producer_id[one] == self.producer_id[other]) & (self.producer_id[one] != NONE)
            plain = ((self.attributes[one] | self.attributes[other]) & TRANSACTIONAL) == 0
            return np.asarray(same_id & plain & (self.producer_epoch[one] != self.producer_epoch[other]))

        return self._of_both(witnesses, are)

    def without_id(self, witnesses: np.ndarray) -> Truth:
        """Were the two offsets written without a producer id?"""
        without = self.producer_id == NONE
        return self._of_both(witnesses, lambda one, other: without[one] & without[other])

    @property
    def begins_late(self) -> Tristate:
        """Says whether the first batch of some producer, under one of its epochs, was not its first: what came before it in
        the producer's sequence was never written. Unknown if the log's beginning is not there any more."""
        if not len(self.base_offset) or self.base_offset[0] != 0:
            return Tristate.UNKNOWN
        sequenced = np.flatnonzero((self.producer_id != NONE) & ((self.attributes & CONTROL) == 0))
        # Batches ascend by offset, so the first index of each (producer, epoch) is its first batch in the log.
        who = np.stack([self.producer_id[sequenced], self.producer_epoch[sequenced].astype(np.int64)], axis=1)
        first = sequenced[np.unique(who, axis=0, return_index=True)[1]]
        return Tristate(int((self.first_sequence[first] > 0).any()))

    @cached_property
    def _markers(self) -> np.ndarray:
        """Indices of the transaction markers, sorted by producer id, producer epoch and offset."""
        rows = np.flatnonzero((self.attributes & (TRANSACTIONAL | CONTROL)) == TRANSACTIONAL | CONTROL)
        return rows[np.lexsort((rows, self.producer_epoch[rows], self.producer_id[rows]))]

    def next_marker(self, index: np.ndarray) -> np.ndarray:
        """Returns intp[k]: of batches (places), the first marker behind each that has its producer id and epoch; -1 =
        none."""
        return self._marker_beside(index, behind=True)

    def last_marker(self, index: np.ndarray) -> np.ndarray:
        """Returns intp[k]: of batches (places), the last marker before each that has its producer id and epoch; -1 =
        none."""
        return self._marker_beside(index, behind=False)

    def _marker_beside(self, index: np.ndarray, *, behind: bool) -> np.ndarray:
        markers = self._markers
        if not len(markers) or not len(index):
            return np.full(len(index), -1, dtype=np.intp)
        both_of = np.concatenate([markers, index])
        who = np.stack([self.producer_id[both_of], self.producer_epoch[both_of].astype(np.int64)], axis=1)
        number = np.unique(who, axis=0, return_inverse=True)[1].reshape(-1)
        # Markers and batches of one producer and epoch have one number; with the index behind it, keys ascend in the order of
        # the log. Example: batches of P at 0 and 2, its marker at 3, of ten batches: keys 0 2 3, and the first marker above 0
        # is 3.
        key = number * len(self.base_offset) + both_of  # ascending in the markers' own order
        own, asked = key[: len(markers)], key[len(markers) :]
        found = np.searchsorted(own, asked, side="right") if behind else np.searchsorted(own, asked, side="left") - 1
        there = (found >= 0) & (found < len(markers))
        there[there] = number[: len(markers)][found[there]] == number[len(markers) :][there]
        return np.where(there, markers[np.clip(found, 0, len(markers) - 1)], -1)

    @cached_property
    def open_from(self) -> int:
        """The first offset of a transaction that no marker ends, of whichever epoch; NONE = every one is ended. In a log at
        rest it hangs."""
        transactional = np.flatnonzero((self.attributes & TRANSACTIONAL) != 0)
        marker = (self.attributes[transactional] & CONTROL) != 0
        ids, of = np.unique(self.producer_id[transactional], return_inverse=True)
        assert len(of) == len(transactional), "each batch has its producer"
        last_marker = np.full(len(ids), NONE, dtype=np.int64)
        np.maximum.at(last_marker, of[marker], self.base_offset[transactional[marker]])
        # A marker ends whatever its producer id has open: what is left stands behind the last marker of its producer.
        left = transactional[~marker & (self.base_offset[transactional] > last_marker[of])]
        return int(self.base_offset[left[0]]) if len(left) else NONE


def batches_by_partition(replicas: Mapping[str, np.ndarray]) -> Mapping[int, AppendedBatches]:
    """Returns, for each partition, the batches of the replica whose log reached furthest at the end, and before them those
    of the remote store, as far back as none is missing, if these ascend: two segments with one offset are of several
    lineages, and nothing says which is this log's. `replicas`: columns of the table."""
    rows = np.flatnonzero(replicas["step"] == NONE)
    order = np.lexsort((replicas["base_offset"][rows], replicas["node"][rows], replicas["partition"][rows]))
    rows = rows[order]
    partition, node, first, last = (
        replicas[name][rows] for name in ("partition", "node", "base_offset", "last_offset")
    )
    assert len(partition) == len(node) == len(last), "columns of one length"
    starts = np.flatnonzero(np.r_[True, (partition[1:] != partition[:-1]) | (node[1:] != node[:-1])][: len(rows)])
    ends = np.append(starts[1:], len(rows))
    furthest: dict[int, tuple[int, int, int]] = {}
    stored: dict[int, tuple[int, int]] = {}
    for start, end in zip(starts.tolist(), ends.tolist(), strict=False):  # as many as there are copies
        if node[start] == REMOTE_STORE:
            stored[int(partition[start])] = (start, end)
            continue
        # Compared as a tuple: by its last offset first. The rows decide between copies that reached equally far.
        copy = (int(last[end - 1]), start, end)
        furthest[int(partition[start])] = max(copy, furthest.get(int(partition[start]), copy))

    def chosen(number: int, start: int, end: int) -> np.ndarray:
        # Example: the store has 0-9 10-19 20-29, and the broker 20-24 25-33. Chosen: 0-9 10-19 20-24 25-33.
        begin, stop = stored.get(number, (start, start))
        stop = begin + int(np.searchsorted(last[begin:stop], first[start]))
        remote = np.arange(begin, stop)
        one_lineage = bool((first[remote][1:] > last[remote][:-1]).all())
        # Tiered topics are not compacted (KIP-405): where an offset is missing, so is a batch, maybe a marker.
        gaps = np.flatnonzero(np.append(first[remote], first[start])[1:] != last[remote] + 1)
        remote = remote[gaps[-1] + 1 if len(gaps) else 0 :]
        return rows[np.r_[remote if one_lineage else remote[:0], np.arange(start, end)]]

    names = ("base_offset", "last_offset", "producer_id", "producer_epoch", "attributes")
    return {
        number: AppendedBatches(
            **{name: replicas[name][of_log] for name in names},
            first_sequence=replicas["base_sequence"][of_log],
            timestamp_ms=replicas["base_timestamp_ms"][of_log],
        )
        for number, of_log in ((number, chosen(number, start, end)) for number, (_, start, end) in furthest.items())
    }


def older_epoch_from(replicas: Mapping[str, np.ndarray], partition: int, epoch_starts: Mapping[int, int]) -> int:
    """The first offset at which a copy has, at the end, a batch of an older leader epoch where a newer one had begun already:
    logs hold their epochs in ascending order. NONE = nowhere. [KIP-101]

    `epoch_starts` is what the checkpoints say. A broker that appends an older epoch strikes the newer ones out of its own, so
    the batches say it, too. [LeaderEpochFileCache.assign: "caused truncation of conflicting entries"]"""
    rows = np.flatnonzero((replicas["partition"] == partition) & (replicas["step"] == NONE))
    epochs, starts = np.array(list(epoch_starts.items()), dtype=np.int64).reshape(-1, 2).T
    epochs = np.append(epochs, replicas["leader_epoch"][rows])
    starts = np.append(starts, replicas["base_offset"][rows])
    if not len(rows):
        return NONE
    order = np.argsort(epochs)
    epochs, starts = epochs[order], starts[order]
    # From each epoch on, the least start of it and of those above; behind the last one no offset is reached.
    least = np.append(np.minimum.accumulate(starts[::-1])[::-1], np.iinfo(np.int64).max)
    newer = least[np.searchsorted(epochs, replicas["leader_epoch"][rows], side="right")]
    # Example: epoch 5 begins at 100. A batch of epoch 4 that ends at 120 stands where epoch 5 had begun: from 100 on it is
    # wrong.
    wrong = replicas["last_offset"][rows] >= newer
    return int(np.maximum(replicas["base_offset"][rows], newer)[wrong].min()) if wrong.any() else NONE


# Committed offsets that members were shown by a broker that coordinated their group no more: older than what was
# committed.
#
# A coordinator that was deposed and has not heard of it answers from what it knew: a fetch of offsets, with
# require_stable too, writes nothing, so it waits for no replica unless a write of its own is open.
# [CoordinatorRuntime, CoordinatorContext.append: "it was a read operation after all";
# GroupCoordinatorService.fetchOffsets; seen: reported 1527, 0.2 s after 1577 was committed under a newer leader epoch]


LOOK_UP_NS = 2_000_000_000
"""A member gives up asking for its group's committed offset after less than this."""


@dataclass(frozen=True, slots=True)
class StaleAnswer:
    """A member asked for its group's committed offset, and a former coordinator answered with one that was too old."""

    client: int
    partition: int
    asked_ns: int
    until_ns: int
    """When the member asked again; FOREVER = never."""
    answered: int
    committed: int
    """The offset whose commit the group had learned was accepted by then."""
    node: int
    """The broker that answered; it did not coordinate the group from `asked_ns` on."""


def stale_answers(
    plan: Plan, *, observations: Columns, commits: Columns, metadata: Columns, clients: Columns, error_ns: int
) -> tuple[StaleAnswer, ...]:
    """Returns every stale answer that is proven: who answered was recorded, the controllers' log names another leader of
    the group's partition of `__consumer_offsets` for as long as the look-up may have taken, and a commit beyond the answer
    had been confirmed before. Loops run over groups and their look-ups, never over records."""
    leaders = offsets_leaders(metadata)
    count = 1 + max(leaders, default=NONE)
    group_of = _groups(plan, clients)
    found: list[StaleAnswer] = []
    rows = np.flatnonzero(
        (observations["kind"] == ObservationKind.COMMITTED) & np.isin(observations["client"], list(group_of))
    )
    looked = {name: observations[name][rows] for name in ("client", "partition", "time_ns", "value", "node")}
    for row in np.flatnonzero(looked["node"] != NONE).tolist():
        client, partition, asked_ns, answered, node = (int(column[row]) for column in looked.values())
        group_id = group_of[client]
        timeline = leaders.get(partition_for(group_id, count)) if count else None
        if timeline is None or _may_lead(timeline, node, asked_ns - error_ns, asked_ns + LOOK_UP_NS + error_ns):
            continue
        members = [member for member, group in group_of.items() if group == group_id]
        confirmed = _confirmed(commits, members, partition, before_ns=asked_ns)
        if confirmed <= answered:
            continue
        later = looked["time_ns"][(looked["client"] == client) & (looked["partition"] == partition)]
        until_ns = int(later[later > asked_ns].min(initial=FOREVER))
        found.append(StaleAnswer(client, partition, asked_ns, until_ns, answered, confirmed, node))
    return tuple(found)


def answered_by_deposed_coordinator(answers: Sequence[StaleAnswer], witnesses: np.ndarray) -> np.ndarray:
    """Returns bool[k]: the copy (of `client`, begun at `begin_ns`) came after such an answer, and before the next
    look-up."""
    found = np.zeros(len(witnesses), dtype=bool)
    for answer in answers:
        after = (witnesses["begin_ns"] >= answer.asked_ns) & (witnesses["begin_ns"] < answer.until_ns)
        found |= after & (witnesses["client"] == answer.client)
    return found


def offsets_leaders(metadata: Columns) -> Mapping[int, Timeline]:
    """Number of a partition of `__consumer_offsets` → who led it."""
    return {number_of(p): t for p, t in timelines(metadata, kind=MetadataKind.OFFSETS_PARTITION).items()}


def _groups(plan: Plan, clients: Columns) -> dict[int, str]:
    """Client, and whoever took its place → its group.id."""
    planned = {c.client: c.group_id for c in plan.clients if c.group_id is not None}
    taken = zip(clients["client"].tolist(), clients["planned"].tolist(), strict=True)
    return planned | {client: planned[stood_for] for client, stood_for in taken if stood_for in planned}


def _may_lead(timeline: Timeline, node: int, from_ns: int, until_ns: int) -> bool:
    """May the node have led at some time in between? Also true if nothing is known of the beginning."""
    first, last = timeline.index_at(np.array([from_ns, until_ns])).tolist()
    return bool(first < 0 or (timeline.leader[first : last + 1] == node).any())


def _confirmed(commits: Columns, members: Sequence[int], partition: int, *, before_ns: int) -> int:
    """The greatest offset whose commit was confirmed before; NONE = none was."""
    mine = (
        np.isin(commits["client"], members) & (commits["partition"] == partition) & (commits["outcome"] == Outcome.OK)
    )
    offsets = commits["log_offset"][mine & (commits["completed_ns"] < before_ns)]
    return int(offsets.max(initial=NONE))


# Copies whose data was destroyed, and whether an intact one was left to lead.


_MASK_BITS = 63


@dataclass(frozen=True, slots=True)
class Wiped:
    """No intact copy could lead from `begin_ns` on; records sent or read after `destroyed_ns` are not concerned: until then
    a copy that was being destroyed may still have been written to, and read."""

    begin_ns: int
    destroyed_ns: int


def wiped_moments(timeline: Timeline, faults: Sequence[FaultRecord], *, seen: bool = True) -> tuple[Wiped, ...]:
    """Every moment from which no member of safe(p) = ISR ∪ ELR, else the last known leader, was intact: each had been
    destroyed and not yet copied from an intact one (left ISR ∪ ELR and came back into the ISR since). `seen`: only copies
    whose destruction was observed on their node; else all that were aimed at."""
    wipes = [
        (f.begin_ns, f.begin_ns if f.made_ns is None else f.made_ns, node)
        for f in faults
        if f.may("destroys") is Tristate.YES
        for node in (f.seen if seen else f.hit)
    ]
    moments = np.unique(np.concatenate([timeline.time_ns, np.array([t for t, _, _ in wipes], dtype=np.int64)]))
    gone: dict[int, int] = {}
    left: set[int] = set()
    found: list[Wiped] = []
    for moment in moments.tolist():
        row = int(timeline.index_at(np.asarray(moment)))
        if row < 0:
            continue
        isr = int(timeline.isr[row])
        eligible = isr | int(timeline.elr[row])
        # Example: brokers 1 and 2 are in sync, and 1 is wiped at 5 s. It is `gone`; 2 is intact, so this is no moment. At 6 s
        # 1 leaves the ISR (`left`), at 9 s it is back in it, copied from 2, and counts as intact. Had 2 been wiped at 7 s,
        # nobody intact would have been left from 7 s on.
        back = {node for node in left if isr >> node & 1}
        gone = {node: wiped_ns for node, wiped_ns in gone.items() if node not in back}
        gone |= {node: made_ns for begin_ns, made_ns, node in wipes if begin_ns == moment}
        left = {node for node in gone if not eligible >> node & 1 or (node in left and node not in back)}
        safe = [node for node in range(_MASK_BITS) if (eligible or int(timeline.last_known_elr[row])) >> node & 1]
        if safe and all(node in gone for node in safe):
            found.append(Wiped(moment, min(gone[node] for node in safe)))
    return tuple(found)


# When clients began their transactions and asked for their ends, as they recorded it.


@dataclass(frozen=True, slots=True)
class TransactionTimes:
    """Says when each client began its transactions, and when it asked for their ends: arrays of one length, ascending
    by client and time. A client has one transaction at a time."""

    client: np.ndarray
    begun_ns: np.ndarray
    end_invoked_ns: np.ndarray
    """MISSING = the client never asked for an end, or did not live to record that."""
    completed_ns: np.ndarray
    """When the end was answered; MISSING = never."""

    @staticmethod
    def of(table: Mapping[str, np.ndarray]) -> "TransactionTimes":
        """Makes the times from columns of `transactions`; rows of instances are left out."""
        rows = np.flatnonzero((table["transaction"] != NONE) & (table["begun_ns"] != MISSING))
        rows = rows[np.lexsort((table["begun_ns"][rows], table["client"][rows]))]
        return TransactionTimes(
            *(table[name][rows] for name in ("client", "begun_ns", "end_invoked_ns", "completed_ns"))
        )

    def end_took_long_before(self, client: np.ndarray, sent_ns: np.ndarray, long_ns: int) -> np.ndarray:
        """Returns bool[k]: before that time each of these clients had asked for an end that was not answered for so long."""
        asked = self.end_invoked_ns != MISSING
        long = asked & (or_never(self.completed_ns) - np.where(asked, self.end_invoked_ns, 0) >= long_ns)
        # Rows ascend by client and time: the first long one of each client answers for all of its records.
        clients, rows = np.unique(self.client[long], return_index=True)
        first_ns = np.append(self.end_invoked_ns[long][rows], FOREVER)
        index = np.searchsorted(clients, client)
        known = np.append(clients, NONE)[index] == client
        return np.asarray(np.where(known, first_ns[index], FOREVER) < sent_ns)

    def end_invoked_of(self, client: np.ndarray, sent_ns: np.ndarray) -> np.ndarray:
        """Returns int64[k]: when the end was asked for of the transaction in which each of these clients sent something
        at that time; MISSING = not known. The loop runs over clients."""
        found = np.full(len(client), MISSING, dtype=np.int64)
        for number in np.unique(client).tolist():
            low, high = np.searchsorted(self.client, [number, number + 1])
            mine = np.flatnonzero((client == number) & (sent_ns != MISSING))
            # The client's last transaction that had begun by then. Example: begun at 1 s and 5 s, sent at 4 s: the first one.
            index = low + np.searchsorted(self.begun_ns[low:high], sent_ns[mine], side="right") - 1
            inside = index >= low
            ended = (
                self.end_invoked_ns[np.maximum(index, 0)] if len(self.end_invoked_ns) else np.full(len(mine), MISSING)
            )
            # A client that sent after an end was asked for is in no transaction that was recorded.
            found[mine] = np.where(inside & (ended >= sent_ns[mine]), ended, MISSING)
        return found


# The envelope of one partition: what really happened to the records that witnesses speak of.
#
# Every predicate takes an array of WITNESS and returns int8 of the same length: 1 so, 0 not so, -1 unknown. Times are
# widened by the clock error, always so that a permission is not withheld for a few milliseconds. Loops run over
# elections and faults, never over records.


DEPOSED_NS = NS_PER_S
"""A living leader answers as one until it has replayed the record that deposed it: normally ms (brokers long-poll the
metadata log, KIP-595), on a busy machine more."""


_NO_NUMBERS = np.empty(0, dtype=np.int64)


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
    cell_unclean_ns: int = -FOREVER
    """`last_unclean_ns` of any partition of the cell."""
    cell_timelines: tuple[Timeline, ...] = ()
    """The timelines of all partitions of the cell. Empty: only its own is known."""
    topics_may_go: bool = False
    """Somebody else than the trial may delete its topics, and the controllers' log is to say."""
    topics_apart: bool = False
    """The rows of each topic that had the name were distinguished: what is gone with another one is not expected here."""
    coordinator_steps: frozenset[int] = frozenset()
    """Steps whose fault was aimed at the coordinator of the cell's group."""
    session_ns: int = 0
    """How long the coordinator of the cell's group must not hear of a member before it evicts it: a session less a heartbeat,
    or max.poll.interval.ms, in which a member must join a rebalance."""
    registrations: Mapping[int, np.ndarray] = field(default_factory=dict)
    """Broker → when it registered with the controllers (ns): each process of it does once."""
    lag_max_ns: int | None = None
    """replica.lag.time.max.ms."""
    keepers: frozenset[int] = frozenset()
    """Node ids of those that a change of the ISR may need: controllers, or who may become one, and ZooKeeper's servers."""
    producer_expiry_ns: int | None = None
    """producer.id.expiration.ms."""
    delete_retention_ns: int | None = None
    """delete.retention.ms of the topic."""
    offsets_retention_ns: int | None = None
    """offsets.retention.minutes."""
    audited_ns: int | None = None
    """When the last audit of the partition was complete; None = never."""
    delivery_bound: DeliveryBound | None = None
    """What the trial promises of deliveries."""
    broker_ids: frozenset[int] = frozenset()
    """The ids of the brokers; empty = not known."""
    brokers_flush: bool = False
    """Every record of topics that do not say otherwise, internal ones too, is synced before it is acknowledged."""
    unstated: bool = False
    """It is not known what others did to the cluster: replicas may have lost data, unclean elections may have been asked
    for."""
    measured_by: frozenset[int] = frozenset()
    """Node ids of the places of its tailing readers: a fault that hits nothing else spoils the measurement alone."""
    seeks_unrecorded: frozenset[int] = frozenset()
    """The clients that read it and are programs of yours: what they print does not say when they seek."""
    epoch_starts: Mapping[int, int] | None = None
    """Leader epoch → first offset of its batches in the replicas' logs; None = no logs were read."""
    high_watermarks: tuple[np.ndarray, np.ndarray] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    """(time_ns ascending, offset) as observed."""
    leader_answers: tuple[np.ndarray, np.ndarray] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    """(time_ns ascending, leader epoch) of what brokers answered as its leaders."""
    log_starts: tuple[np.ndarray, np.ndarray] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    """(time_ns ascending, offset) as observed."""

    remote_to: int | None = None
    """The offset behind the last segment that was copied to the remote store; None = it was not read."""
    logs_read: frozenset[int] = frozenset()
    """The brokers whose own logs were read."""
    truncations: tuple[np.ndarray, np.ndarray, np.ndarray] = (_NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS)
    """(broker, time_ns, offset) of each time that one of them says it cut its copy off, by its own clock."""
    taken_back: tuple[np.ndarray, np.ndarray, np.ndarray] = (_NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS)
    """The same of a high watermark that it took back: (broker, time_ns, offset at which it had been)."""
    markers_refused_ns: np.ndarray = field(default_factory=lambda: _NO_NUMBERS)
    """The seconds, ascending, in which one of them says that it refused WriteTxnMarkers of a version unknown to it."""
    sampled_unclean: tuple[SampledElection, ...] = ()
    """Unclean elections that samples prove, where the controllers' log was not read. None says nothing."""
    batches: Callable[[], AppendedBatches | None] = lambda: None
    """Batches of one copy at the end, made when first asked for; None = no segments were read."""
    older_epoch_from: Callable[[], int | None] = lambda: None
    """Where a copy has, at the end, records of an older leader epoch behind the beginning of a newer one; looked for when it
    is first asked for. NONE = nowhere, None = no segments were read."""
    committed_one_beyond: Callable[[], np.ndarray | None] = lambda: None
    """Offsets at which a member stood that committed the one behind; None = nobody recorded commits."""
    group_commits: Callable[[], tuple[np.ndarray, np.ndarray]] = lambda: (_NO_NUMBERS, _NO_NUMBERS)
    """(invoked_ns, completed_ns), ascending by the first, of the commits that the group accepted, of any of its partitions.
    None where members may stop subscribing to a topic: then offsets expire although the group has members."""
    of_librdkafka: Callable[[np.ndarray], Truth] = lambda clients: constant(UNKNOWN, len(clients))
    """Does each of these clients read by librdkafka?"""
    sends: Callable[[int, Sequence[str]], Columns] | None = None
    """(partition, names) → these columns of what clients sent to any partition; None = nothing was recorded."""
    request_ns: int = 30 * NS_PER_S
    """request.timeout.ms of the producer."""
    transactions: Callable[[], TransactionTimes | None] = lambda: None
    """When each client began and ended its transactions; None = nobody recorded transactions."""
    stale_answers: Callable[[], Sequence[StaleAnswer]] = tuple
    """What deposed coordinators informed members of the partition that is read, or copied."""
    quorum_fetch_ns: int = 2 * NS_PER_S
    """controller.quorum.fetch.timeout.ms."""
    coordinators_moved_ns: Callable[[], Sequence[int]] = tuple
    """When a partition of `__consumer_offsets` changed its leader, or lost it."""
    wall_zero_ns: int | None = None
    """Time 0 of the trial by the wall clock of the machine that recorded it; None = not known."""

    @staticmethod
    def begun_ns(witnesses: np.ndarray) -> np.ndarray:
        """Returns when the record's send was invoked, or the first thing known of it; -FOREVER = nothing is."""
        earliest = _earliest(witnesses, "end_ns", "seen_ns", "other_ns")
        begun = np.where(witnesses["begin_ns"] != MISSING, witnesses["begin_ns"], earliest)
        return np.asarray(np.where(begun == FOREVER, -FOREVER, begun))

    def acknowledged_ns(self, witnesses: np.ndarray) -> np.ndarray:
        """Returns when a broker's acknowledgement had arrived; FOREVER = never. With acks=0 no broker ever says
        anything."""
        acknowledged = (witnesses["outcome"] == Outcome.OK) & (self.acks != "0")
        return or_never(np.where(acknowledged, witnesses["end_ns"], MISSING))

    def existed_ns(self, witnesses: np.ndarray) -> np.ndarray:
        """Returns by when the record was certainly in a log: acknowledged, or given to a consumer; FOREVER = not known."""
        return np.asarray(np.minimum(self.acknowledged_ns(witnesses), or_never(witnesses["seen_ns"])))

    def reaches(self, election: Election, offset: np.ndarray) -> Truth:
        """offset ≥ first offset of that epoch: only those were decided anew. Unknown without logs, or offset."""
        if self.epoch_starts is None:
            return constant(UNKNOWN, len(offset))
        starts = [start for epoch, start in self.epoch_starts.items() if epoch >= election.epoch]
        return doubt_unless(
            as_truth((offset == NONE) | (offset >= min(starts, default=-FOREVER))), known=offset != NONE
        )

    def beyond(self, offset: np.ndarray) -> np.ndarray:
        """Is the offset behind the end of every copy that was read at the end? Nothing is where none was."""
        batches = self.batches()
        if batches is None or not len(batches.last_offset):
            return np.zeros(len(offset), dtype=bool)
        return np.asarray(offset > batches.last_offset[-1])

    def known_ns(self, election: Election) -> int:
        """Returns until when the leader that the election replaced may have answered as leader. A leader that lost its
        place in the ISR with it was fenced: it had not been heard for a session, so it need not hear either, until it is
        back in the ISR of the new epoch. [KIP-631, fencing; seen: 1.2 s on a machine that stood still]"""
        soon_ns = election.time_ns + DEPOSED_NS
        rejoined_ns = self.timeline.rejoined_ns(election.previous, election.time_ns)
        # Never back: nothing says how long it went on, so no more is assumed than of any other.
        fenced = election.deposed_fenced and rejoined_ns != FOREVER
        return max(soon_ns, rejoined_ns if fenced else soon_ns, self._still_answered_ns(election)) + self.error_ns

    def _still_answered_ns(self, election: Election) -> int:
        """Returns when the leader that it deposed last answered somebody in its own epoch. [Seen: 3.5 s after the
        election]"""
        times, epochs = self.leader_answers
        # Its epochs begin where it began to lead, and end below the next leader's: an epoch may rise under one leader.
        own = int(self.timeline.leader_epoch[self.timeline.index_at(np.asarray(election.previous_since_ns))])
        answered = times[(epochs >= own) & (epochs < election.epoch)]
        return int(answered[-1]) if len(answered) else -FOREVER

    def led_by_ns(self, epoch: int, since_ns: int) -> int:
        """Returns by when a leader of this epoch, or of a later one, had answered somebody as one; where nobody was, as
        long after `since_ns` as for any other. A broker knows who is to lead before it leads: it informs clients of the
        new state first, and then goes from partition to partition. [BrokerMetadataPublisher.onMetadataUpdate;
        ReplicaManager.applyDelta; seen: 11 s between the first and the last of 336]"""
        times, epochs = self.leader_answers
        answered = times[(epochs >= epoch) & (times >= since_ns - self.error_ns)]
        return int(answered[0] if len(answered) else since_ns + DEPOSED_NS) + self.error_ns

    @cached_property
    def lives(self) -> "tuple[Envelope, ...]":
        """One envelope for each topic that the name stood for, with times, elections and observations of that topic alone.
        What was read from the replicas at the end is of the last. For one topic: itself."""
        lives = self.timeline.lives
        if len(lives) < 2:
            return (self,)
        return tuple(self._of_life(number, last=number == len(lives) - 1) for number in range(len(lives)))

    def _of_life(self, number: int, *, last: bool) -> "Envelope":
        since_ns = self.timeline.lives[number].created_ns - self.error_ns
        until_ns = FOREVER if last else self.timeline.lives[number + 1].created_ns + self.error_ns
        own = replace(
            self,
            timeline=self.timeline.of_life(number),
            high_watermarks=_within(self.high_watermarks, since_ns, until_ns),
            leader_answers=_within(self.leader_answers, since_ns, until_ns),
            log_starts=_within(self.log_starts, since_ns, until_ns),
        )
        return own if last else replace(own, epoch_starts=None, batches=lambda: None)

    @cached_property
    def wiped_moments(self) -> tuple[Wiped, ...]:
        """Returns every moment from which no intact copy could lead."""
        return wiped_moments(self.timeline, self.faults)

    @cached_property
    def perhaps_wiped_moments(self) -> tuple[Wiped, ...]:
        """Returns every moment from which perhaps no intact copy could lead: if replicas lost their data also on nodes on
        which nobody observed it."""
        return wiped_moments(self.timeline, self.faults, seen=False)


def _within(seen: tuple[np.ndarray, np.ndarray], since_ns: int, until_ns: int) -> tuple[np.ndarray, np.ndarray]:
    times, values = seen
    inside = (times >= since_ns) & (times <= until_ns)
    return times[inside], values[inside]


def or_never(times_ns: np.ndarray) -> np.ndarray:
    return np.where(times_ns == MISSING, FOREVER, times_ns)


def _earliest(witnesses: np.ndarray, *names: str) -> np.ndarray:
    return np.asarray(np.minimum.reduce([or_never(witnesses[name]) for name in names]))
