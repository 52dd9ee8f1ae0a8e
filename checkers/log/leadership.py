"""These kernels check leaders: enough in-sync replicas, elections from the ISR, one controller at a time, and high
watermarks that do not fall."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prozess.checkers.lookup import Lookup, differs_from_previous
from prozess.checkers.partition_index import PartitionIndex
from prozess.harness.columns import joined, of_clients
from prozess.harness.interfaces.checking import CellHistory, KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.recording.metrics import MICRO, code_of
from prozess.harness.recording.topic_lives import lives_of, made_anew_ns
from prozess.harness.schema import METADATA, MISSING, NONE, MetadataKind, MetadataSource, ObservationKind, Outcome

# What the controllers' own log says. Only rows of CONTROLLER_LOG count (and, of the quorum, what each controller says
# of itself), because samples may come from zombies.


LEARNS_NS = 1_000_000_000
"""How long a leader may take to learn what the controllers committed. That is normally milliseconds, and more on a busy
machine (brokers long-poll the metadata log, KIP-595). A leader also counts a replica that is about to join before that
is committed (maximal ISR, KIP-497)."""
_FOREVER = np.iinfo(np.int64).max
_OF_ISR = ("source", "kind", "time_ns", "log_position", "isr", "replicas")


def under_acknowledged(history: PartitionHistory) -> KernelResult:
    """No acks=all send is acknowledged while fewer replicas are in sync than min.insync.replicas asks for.

    Source: min.insync.replicas, https://kafka.apache.org/documentation/#topicconfigs_min.insync.replicas;
    Partition.checkEnoughReplicasReachOffset. Counts acknowledged acks=all sends whose whole interval, widened by the clock
    error, lies in a period in which the committed ISR had fewer than min(min.insync.replicas, replicas) members
    (KAFKA-15583), LEARNS_NS after its begin and before its end: the leader may not have known yet, or have counted who was
    about to join. Incomplete without the controllers' log. Witness: the send; `other_ns`: when the period began,
    `other_offset`: how many were in sync. O(n log r) for r changes.

    Example: min.insync.replicas is 2, and the committed ISR has one member from 10 s to 20 s. A send from 12 s to 13 s that
    was acknowledged counts. One from 10.5 s to 12 s does not: its leader may have learned of the change a second late.
    """
    index, found = PartitionIndex.of(history), short_of_replicas(history)
    if found.unknown:
        return KernelResult(no_witnesses(), count=0, judged=found.judged, incomplete=found.unknown)
    if not (count := len(found.rows)):
        return KernelResult(no_witnesses(), 0, found.judged)
    rows, since_ns, in_sync = (a[:WITNESSES_MAX] for a in (found.rows, found.since_ns, found.in_sync))
    columns: dict[str, np.ndarray | int] = {
        "partition": history.partition,
        **index.records_sent(rows),
        **index.sent(rows),
        "other_ns": since_ns,
        "other_offset": in_sync,
    }
    return KernelResult(make_witnesses(len(rows), columns), count, found.judged)


def under_acknowledged_of_each(histories: Sequence[PartitionHistory]) -> list[KernelResult]:
    """Returns what `under_acknowledged` finds in each of these small partitions."""
    count, acks = len(histories), histories[0].client_acks
    assert all(one.client_acks is acks for one in histories), "partitions of one history"
    sends, owner = joined([one.sends for one in histories], ("client", "outcome", "completed_ns"))
    client = sends["client"]
    acknowledged = (sends["outcome"] == Outcome.OK.value) & (sends["completed_ns"] != MISSING)
    acknowledged &= (client != SENTINEL_CLIENT) & (of_clients(acks, client, unknown=0) == -1)
    judged = np.bincount(owner[acknowledged], minlength=count).tolist()
    table, its = joined([one.metadata for one in histories], _OF_ISR)
    rows = ground_truth(table)
    wanted = np.array([one.min_insync_replicas or 0 for one in histories])[its[rows]]
    short = _members(table["isr"][rows]) < np.minimum(wanted, _members(table["replicas"][rows]))
    known = np.bincount(its[rows], minlength=count) > 0
    strange = np.bincount(its[rows[short]], minlength=count) > 0
    strange[owner[1:][(owner[1:] == owner[:-1]) & (client[1:] < client[:-1])]] = True  # not as producers wrote them
    return [
        under_acknowledged(one)
        if strange[i]
        else KernelResult(
            no_witnesses(),
            0,
            judged[i],
            None if known[i] and one.min_insync_replicas is not None else _unknown_isr(one),
        )
        for i, one in enumerate(histories)
    ]


def _unknown_isr(history: PartitionHistory) -> str:
    return f"the controllers' log says nothing about the ISR of partition {history.partition}"


@dataclass(frozen=True, slots=True)
class Short:
    """Sends that were acknowledged while too few replicas were in sync: their rows of `sends`, since when too few were
    in sync, and how many were."""

    rows: np.ndarray
    since_ns: np.ndarray
    in_sync: np.ndarray
    judged: int
    unknown: str | None
    """Why this cannot be known. None: it can."""


def short_of_replicas(history: PartitionHistory) -> Short:
    """Returns the sends that `under_acknowledged` finds."""
    sends, table, wanted = history.sends, history.metadata, history.min_insync_replicas
    index = PartitionIndex.of(history)
    rows = np.flatnonzero(index.acknowledged & (sends["completed_ns"] != MISSING) & index.sent_with(acks=-1))
    judged = len(rows)
    truth = ground_truth(table)
    if not len(truth) or wanted is None:
        nothing = np.empty(0, dtype=np.int64)
        return Short(nothing, nothing, nothing, judged, _unknown_isr(history))
    # The log's order is the truth. The clock of a new controller may be behind that of the one before.
    time_ns = np.maximum.accumulate(table["time_ns"][truth])
    in_sync, replicas = _members(table["isr"][truth]), _members(table["replicas"][truth])
    # One row for each change of the partition, in the order of the controllers' log: did it leave too few in sync?
    short = in_sync < np.minimum(wanted, replicas)
    if not short.any():
        return Short(rows[:0], time_ns[:0], in_sync[:0], judged, None)
    # For each row: since when, and until when, the ISR has been short without a break.
    # Example: short is F T T F T. It began to be short at 1 and at 4, so `began` is 0 1 1 1 4. Times at which enough were in
    # sync again are taken from the end: the next one for rows 1 and 2 is that of row 3, and row 4 has none.
    began = np.maximum.accumulate(np.where(short & ~np.append(False, short[:-1]), np.arange(len(truth)), 0))
    enough = np.append(np.where(short, _FOREVER, time_ns), _FOREVER)
    ends_ns = np.minimum.accumulate(enough[::-1])[::-1][1:]
    begin_ns = sends["invoked_ns"][rows] - history.metadata_error_ns - LEARNS_NS
    end_ns = sends["completed_ns"][rows] + history.metadata_error_ns + LEARNS_NS
    # The change that held when the send began. It counts if too few were in sync from there to the end of the send.
    slot = np.searchsorted(time_ns, begin_ns, side="right") - 1
    assert len(began) == len(ends_ns) == len(time_ns), "an entry for each change"
    found = np.flatnonzero((slot >= 0) & short[slot] & (ends_ns[slot] > end_ns))
    rows, slot = rows[found], slot[found]
    return Short(rows, time_ns[began[slot]], in_sync[slot], judged, None)


def unclean(history: PartitionHistory) -> KernelResult:
    """Every leader was, just before its election, in the ISR or among the eligible leader replicas.

    Source: KIP-966; https://kafka.apache.org/documentation/#design_uncleanleader. Counts other elections in the
    controllers' log. These elections do not count: the last known leader comes back when no replica is in sync
    (KIP-966), because its copy is complete unless it was destroyed. (A replica that was still eligible is dropped in the
    same change if it comes back after a crash: seen with 4.3.1, where the ELR was [2], broker 2 registered again after a
    SIGKILL, and broker 1 led.) Nor does an election by a change that adds the new leader to the ISR and takes a copy
    away, because reassignments end so (KIP-455; PartitionReassignmentReplicas.maybeCompleteReassignment), and an unclean
    election takes no copy away. The first leader of a topic was not elected, even if another topic had its name before
    (KIP-516). Witness: `reader` was elected at `begin_ns` in epoch `sequence`; before, `other_client` led. O(r log r)
    for r changes.

    Example: the ISR is {1, 2}, nobody else is eligible, and leader 1 goes. If 2 is elected, that is right. If 3 is elected,
    it counts: 3 may lack what was acknowledged.
    """
    table = history.metadata
    rows = ground_truth(table)
    if not len(rows):
        reason = f"the controllers' log says nothing about elections of partition {history.partition}"
        return KernelResult(no_witnesses(), count=0, judged=0, incomplete=reason)
    leader, life = table["leader"][rows].astype(np.int64), lives_of({name: table[name][rows] for name in table})
    same = life[1:] == life[:-1]  # who leads a new topic first was elected by nobody
    # An election: another leader than in the row before, of the same topic.
    elected = np.flatnonzero((leader[1:] != leader[:-1]) & (leader[1:] != NONE) & same) + 1
    before = rows[elected - 1]
    # Masks of brokers: bit n is broker n.
    removed = table["replicas"][before] & ~table["replicas"][rows[elected]] != 0
    eligible = table["isr"][before] | table["elr"][before] | np.where(removed, table["isr"][rows[elected]], 0)
    last_known = (table["isr"][before] == 0) & (table["last_known_elr"][before] >> leader[elected] & 1 == 1)
    # Example: isr 0b110 is brokers 1 and 2. Shifted by 3, the lowest bit is 0: broker 3 was not among them.
    outside = elected[(eligible >> leader[elected] & 1 == 0) & ~last_known]
    # The row of the last leader before an election, where nobody led for a while in between.
    led = np.maximum.accumulate(np.where(leader != NONE, np.arange(len(rows)), 0))
    columns: dict[str, np.ndarray | int] = {
        "partition": history.partition,
        "reader": leader[outside],
        "sequence": table["leader_epoch"][rows[outside]],
        "other_client": leader[led[outside - 1]],
        "begin_ns": np.maximum.accumulate(table["time_ns"][rows])[outside],
    }
    first = int(life[-1]) + 1
    return KernelResult(make_witnesses(len(outside), columns), len(outside), judged=len(elected) + first)


def unclean_of_each(histories: Sequence[PartitionHistory]) -> list[KernelResult]:
    """Returns what `unclean` finds in each of these small partitions."""
    table, owner = joined([one.metadata for one in histories], METADATA.column_names)
    rows, strange = truth_of_each(table, owner)
    owner, leader = owner[rows], table["leader"][rows].astype(np.int64)
    new = differs_from_previous(owner)
    # Several topics of one name, and whom nobody had named as in sync, are looked at one by one.
    elected = np.flatnonzero(differs_from_previous(leader) & ~new & (leader != NONE))
    eligible = table["isr"][rows[elected - 1]] | table["elr"][rows[elected - 1]]
    strange[elected[eligible >> leader[elected] & 1 == 0]] = True
    odd = np.bincount(owner[strange], minlength=len(histories)) + (np.bincount(owner, minlength=len(histories)) == 0)
    judged = np.bincount(owner[elected], minlength=len(histories)) + 1
    return [
        unclean(one) if odd[i] else KernelResult(no_witnesses(), 0, judged=int(judged[i]))
        for i, one in enumerate(histories)
    ]


def truth_of_each(table: Mapping[str, np.ndarray], owner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of `ground_truth` by partition (`owner`), and which of these begin, or may begin, another topic of the
    same name."""
    rows = ground_truth(table)
    rows = rows[np.argsort(owner[rows], kind="stable")]
    apart = differs_from_previous(table["topic_id_high"][rows]) | differs_from_previous(table["topic_id_low"][rows])
    apart &= ~differs_from_previous(owner[rows])
    return rows, apart | (table["kind"][rows] == MetadataKind.DELETED.value)


def two_controllers(history: CellHistory) -> KernelResult:
    """No two nodes are the active controller in one epoch, and epochs of the metadata log only rise.

    Source: KIP-595 (a quorum elects at most one leader per epoch). Counts the nodes beyond the first that claimed an
    epoch, by the metadata log's own records of who became leader and by what each controller stated of itself
    (DescribeQuorum). It also counts records of the metadata log with a lower epoch than a record before. It is normal
    that a deposed controller believes in its own, older epoch for a while. This anomaly belongs to the cluster, so every
    cell shows it. Witness: `reader` claimed epoch `sequence` at `begin_ns`, and `other_client` had claimed
    `other_sequence`. O(n log n).

    Example: node 1 claims epoch 5, node 2 epoch 5, node 2 epoch 6. Epoch 5 has one node too many: one witness. Records of
    the metadata log with the epochs 5, 7, 6 fall once.
    """
    node, epoch, time_ns = _claims(history)
    order = np.lexsort((time_ns, node, epoch))
    node, epoch, time_ns = node[order], epoch[order], time_ns[order]
    # Each (epoch, node) once, at its first claim; a second node of an epoch is a finding. In the example of the docstring the
    # claims in order are (5, 1) (5, 2) (6, 2): only the second has the epoch of the one before it.
    claim = differs_from_previous(epoch) | differs_from_previous(node)
    node, epoch, time_ns = node[claim], epoch[claim], time_ns[claim]
    again = np.flatnonzero(~differs_from_previous(epoch))
    table = history.tables["metadata"]
    log = np.flatnonzero(
        (table["kind"] == MetadataKind.CONTROLLER.value) & (table["source"] == MetadataSource.CONTROLLER_LOG.value)
    )
    log = log[np.argsort(table["log_position"][log], kind="stable")]
    fell = np.flatnonzero(table["leader_epoch"][log][1:] < table["leader_epoch"][log][:-1]) + 1
    first = min(history.partitions)
    parts = [
        {
            "reader": node[again],
            "sequence": epoch[again],
            "begin_ns": time_ns[again],
            "other_client": node[again - 1],
            "other_sequence": epoch[again - 1],
        },
        {
            "reader": table["node"][log[fell]],
            "sequence": table["leader_epoch"][log[fell]],
            "begin_ns": table["time_ns"][log[fell]],
            "other_client": table["node"][log[fell - 1]],
            "other_sequence": table["leader_epoch"][log[fell - 1]],
        },
    ]
    found = np.concatenate([make_witnesses(len(p["reader"]), {"partition": first, **p}) for p in parts])
    return KernelResult(found[:WITNESSES_MAX], len(found), judged=len(node))


def _claims(history: CellHistory) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (node, epoch, time) of each claim: a node stated that it is the active controller, or the metadata log stated
    that it became it."""
    table, metrics = history.tables["metadata"], history.tables["metrics"]
    log = np.flatnonzero(
        (table["kind"] == MetadataKind.CONTROLLER.value) & (table["source"] == MetadataSource.CONTROLLER_LOG.value)
    )
    present = metrics["absent"] == 0
    leaders = np.flatnonzero(present & (metrics["metric"] == code_of("quorum_leader")))
    epochs = np.flatnonzero(present & (metrics["metric"] == code_of("quorum_epoch")))
    # Only who names itself claims the role. One answer is two rows, of one node and one time.
    own = leaders[metrics["value_micro"][leaders] == metrics["node"][leaders].astype(np.int64) * MICRO]
    # Moment and node as one number: the moment's rank in the high half, the node in the low one.
    times = np.unique(metrics["time_ns"])
    answer = np.searchsorted(times, metrics["time_ns"]) << 32 | metrics["node"]
    epochs = epochs[np.argsort(answer[epochs], kind="stable")]
    epochs = epochs[differs_from_previous(answer[epochs])]
    # To each claim the epoch of the same answer; without one, it is a claim to nothing.
    slot = Lookup(answer[epochs]).find(answer[own])
    own, slot = own[slot >= 0], slot[slot >= 0]
    return (
        np.concatenate([table["node"][log], metrics["node"][own]]).astype(np.int64),
        np.concatenate([table["leader_epoch"][log], metrics["value_micro"][epochs[slot]] // MICRO]).astype(np.int64),
        np.concatenate([table["time_ns"][log], metrics["time_ns"][own]]),
    )


def ground_truth(table: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the rows of one partition's `metadata` that come from the controllers' log, in the order of that log."""
    if not len(table["source"]):
        return np.empty(0, dtype=np.intp)
    kind = table["kind"]
    of_partitions = (kind == MetadataKind.PARTITION.value) | (kind == MetadataKind.DELETED.value)
    rows = np.flatnonzero((table["source"] == MetadataSource.CONTROLLER_LOG.value) & of_partitions)
    return np.asarray(rows[np.lexsort((table["time_ns"][rows], table["log_position"][rows]))])


def broker_truth(table: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the rows of `metadata` in which the controllers' log registers, fences or unfences a broker, in its order."""
    kinds = (MetadataKind.BROKER_REGISTERED, MetadataKind.BROKER_FENCED, MetadataKind.BROKER_UNFENCED)
    rows = np.flatnonzero((table["source"] == MetadataSource.CONTROLLER_LOG.value) & np.isin(table["kind"], kinds))
    return np.asarray(rows[np.argsort(table["log_position"][rows], kind="stable")])


def made_at_ns(table: Mapping[str, np.ndarray]) -> int | None:
    """Returns when the partition was made, as the controllers' log in its `metadata` says; None if it says nothing."""
    truth = ground_truth(table)
    made = truth[table["kind"][truth] == MetadataKind.PARTITION.value]
    return int(table["time_ns"][made].min()) if len(made) else None


def _members(mask: np.ndarray) -> np.ndarray:
    """Returns int64[n]: how many brokers each mask holds (at most 63)."""
    # A column for each bit, and a sum along the row.
    # Example: mask 0b110 has the row 0 1 1 0 …, and the sum 2.
    bits = mask[:, np.newaxis] >> np.arange(63) & 1
    return np.asarray(bits.sum(axis=1))


# What single brokers answer. A zombie may answer, too. An answer is judged only against what the same broker, or a
# leader of an earlier epoch, had answered.


SAME_EPOCH = 0
"""Case of `watermark-regression`: a greater high watermark had been answered in the same leader epoch."""
LATER_EPOCH = 1
"""Case of `watermark-regression`: a greater high watermark had been answered in an earlier leader epoch."""


def watermark_regression(history: PartitionHistory) -> KernelResult:
    """The high watermark that a leader answers is never below one that it, or a leader of an earlier epoch, had
    answered.

    Source: KIP-207 (a new leader does not answer ListOffsets until its high watermark has reached the start of its
    epoch); Partition.fetchOffsetForTimestamp. Counts answers below an earlier one. Two nodes are asked at the same time.
    Therefore an answer counts against another node's only if that one had come before this node's last answer, after which
    this node was asked. What a deposed leader still answers, in its own lower epoch, is judged only against its own answers.
    Each of several topics that had one name is judged alone. Answers in the second after a topic was created may be
    about the topic before, and are left out. Witness: `reader` (a broker) answered `log_offset` + 1 at `end_ns`, and
    `other_client` had answered `other_offset` at `begin_ns`; `sequence` and `other_sequence` are the leader epochs. O(n
    log n).

    Example: broker 1 answers 100 in epoch 4. Then broker 2 answers 80 in epoch 5, twice. The second answer counts
    (LATER_EPOCH): it was asked for after the first one, and so after the 100. Broker 1, deposed, then answers 90 in epoch
    4: SAME_EPOCH, because it had answered 100 itself.
    """
    seen = history.observations
    rows = np.flatnonzero(
        (seen["kind"] == ObservationKind.LEADER_HIGH_WATERMARK.value)
        & (seen["node"] >= 0)
        & (seen["leader_epoch"] >= 0)
    )
    if not len(rows):
        return KernelResult(no_witnesses(), count=0, judged=0)
    rows = rows[np.argsort(seen["time_ns"][rows], kind="stable")]
    assert (np.diff(seen["time_ns"][rows]) >= 0).all(), "answers in the order of time"
    rows, life = of_lives(history, rows)
    time_ns, value, node, epoch = (seen[name][rows] for name in ("time_ns", "value", "node", "leader_epoch"))
    asked_after = previous_of_node(node)
    before = np.full(len(rows), -1, dtype=np.intp)
    # One pass for each (topic, epoch), as many as there were leaders. Answers are in the order of time: a running maximum and
    # a search by time judge all answers of the pair at once.
    pairs = np.unique(np.stack([life, epoch]), axis=1).T
    for of, number in pairs.tolist():
        mine = np.flatnonzero((life == of) & (epoch == number))
        earlier = np.flatnonzero((life == of) & (epoch <= number))
        # The greatest value up to each answer in this or an earlier epoch.
        reached = np.maximum.accumulate(value[earlier])
        # What another node answered counts if it came before this node's last answer; what this node answered, in any case.
        known = asked_after[mine]
        last_known = np.searchsorted(time_ns[earlier], np.where(known >= 0, time_ns[known], MISSING), side="right") - 1
        fell = (last_known >= 0) & (reached[last_known] > value[mine])
        # The running maximum first had that value where the answer is that was as great.
        first = np.searchsorted(reached, reached[last_known[fell]], side="left")
        before[mine[fell]] = earlier[first]
    later = np.flatnonzero(before >= 0)
    earlier = before[later]
    count = len(later)
    later, earlier = later[:WITNESSES_MAX], earlier[:WITNESSES_MAX]
    columns: dict[str, np.ndarray | int] = {
        "partition": history.partition,
        "log_offset": value[later],
        "other_offset": value[earlier],
        "reader": node[later],
        "other_client": node[earlier],
        "sequence": epoch[later],
        "other_sequence": epoch[earlier],
        "begin_ns": time_ns[earlier],
        "end_ns": time_ns[later],
        "seen_ns": time_ns[earlier],
        "case": np.where(epoch[later] == epoch[earlier], SAME_EPOCH, LATER_EPOCH),
    }
    return KernelResult(make_witnesses(len(later), columns), count, judged=len(rows))


def of_lives(history: PartitionHistory, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns those of these answers, ascending by time, of which it is known which topic of this name they are about;
    and which topic that is."""
    table = history.metadata
    truth = ground_truth(table)
    of_truth = {name: column[truth] for name, column in table.items()}
    made_ns = made_anew_ns(np.maximum.accumulate(of_truth["time_ns"]), lives_of(of_truth))
    time_ns, error_ns = history.observations["time_ns"][rows], history.metadata_error_ns
    # Which topic an answer is about, at the latest and at the earliest: known where both are the same.
    life = np.searchsorted(made_ns, time_ns + error_ns, side="right")
    known = life == np.searchsorted(made_ns, time_ns - error_ns - LEARNS_NS, side="right")
    return rows[known], life[known]


def previous_of_node(node: np.ndarray) -> np.ndarray:
    """Returns intp[n]: the answer of the same node before this one, -1 if there is none. The answers are in the order of
    time."""
    order = np.argsort(node, kind="stable")
    previous = np.full(len(node), -1, dtype=np.intp)
    same = ~differs_from_previous(node[order])
    # Example: answers of the nodes 1 2 1. Sorted by node they are 0 2 | 1: answer 2 has 0 before it, the others none.
    previous[order[same]] = order[np.flatnonzero(same) - 1]
    return previous
