"""What the controllers' own log says: minimums are kept, leaders come from the ISR, one controller at a time. Stage check.

Only rows of CONTROLLER_LOG count (and, of the quorum, what each controller says of itself): samples may come from zombies.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from checkers.arrays import PartitionIndex
from checkers.lookup import Lookup, differs_from_previous
from harness.metrics import MICRO, code_of
from harness.plan import SENTINEL_CLIENT
from harness.protocols import CellHistory, KernelResult, PartitionHistory
from harness.schema import MISSING, NONE, MetadataKind, MetadataSource, Outcome
from harness.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses

LEARNS_NS = 1_000_000_000
"""A living leader knows what the controllers committed: normally within ms, on a busy machine later (brokers long-poll the
metadata log, KIP-595); and it counts a replica that is about to join before that is committed (maximal ISR, KIP-497)."""
_FOREVER = np.iinfo(np.int64).max


def under_acknowledged(history: PartitionHistory) -> KernelResult:
    """No acks=all send is acknowledged while fewer replicas are in sync than min.insync.replicas asks for.

    Source: min.insync.replicas, https://kafka.apache.org/documentation/#topicconfigs_min.insync.replicas;
    Partition.checkEnoughReplicasReachOffset. Counts acknowledged acks=all sends whose whole interval, widened by the clock
    error, lies in a period in which the committed ISR had fewer than min(min.insync.replicas, replicas) members
    (KAFKA-15583), LEARNS_NS after its begin and before its end: the leader may not have known yet, or have counted who was
    about to join. Incomplete without the controllers' log. Witness: the send; `other_ns`: when the period began,
    `other_offset`: how many were in sync. O(n log r) for r changes.
    """
    sends, found = history.sends, short_of_replicas(history)
    if found.unknown:
        return KernelResult(no_witnesses(), count=0, judged=found.judged, incomplete=found.unknown)
    count = len(found.rows)
    rows, since_ns, in_sync = (a[:WITNESSES_MAX] for a in (found.rows, found.since_ns, found.in_sync))
    columns: dict[str, np.ndarray | int] = {
        "partition": history.partition,
        "client": sends["client"][rows],
        "sequence": sends["sequence"][rows],
        "log_offset": sends["log_offset"][rows],
        "begin_ns": sends["invoked_ns"][rows],
        "end_ns": sends["completed_ns"][rows],
        "outcome": sends["outcome"][rows],
        "other_ns": since_ns,
        "other_offset": in_sync,
    }
    return KernelResult(make_witnesses(len(rows), columns), count, found.judged)


@dataclass(frozen=True, slots=True)
class Short:
    """Sends that were acknowledged while too few replicas were in sync: rows of `sends`; since when, and how many were."""

    rows: np.ndarray
    since_ns: np.ndarray
    in_sync: np.ndarray
    judged: int
    unknown: str | None
    """Why none can be told."""


def short_of_replicas(history: PartitionHistory) -> Short:
    """What `under_acknowledged` finds."""
    sends, table, wanted = history.sends, history.metadata, history.min_insync_replicas
    acks = PartitionIndex.of(history).fact(history.client_acks, sends["client"], unknown=0)
    rows = np.flatnonzero(
        (sends["outcome"] == Outcome.OK)
        & (sends["completed_ns"] != MISSING)
        & (acks == -1)
        & (sends["client"] != SENTINEL_CLIENT)
    )
    judged = len(rows)
    truth = _ground_truth(table)
    if not len(truth) or wanted is None:
        reason = f"the controllers' log says nothing about who was in sync in partition {history.partition}"
        nothing = np.empty(0, dtype=np.int64)
        return Short(nothing, nothing, nothing, judged, reason)
    time_ns = np.maximum.accumulate(table["time_ns"][truth])
    in_sync, replicas = _members(table["isr"][truth]), _members(table["replicas"][truth])
    short = in_sync < np.minimum(wanted, replicas)
    # Of each row: since when, and until when, it has been short without a break.
    began = np.maximum.accumulate(np.where(short & ~np.append(False, short[:-1]), np.arange(len(truth)), 0))
    enough = np.append(np.where(short, _FOREVER, time_ns), _FOREVER)
    ends_ns = np.minimum.accumulate(enough[::-1])[::-1][1:]
    begin_ns = sends["invoked_ns"][rows] - history.metadata_error_ns - LEARNS_NS
    end_ns = sends["completed_ns"][rows] + history.metadata_error_ns + LEARNS_NS
    place = np.searchsorted(time_ns, begin_ns, side="right") - 1
    found = np.flatnonzero((place >= 0) & short[place] & (ends_ns[place] > end_ns))
    rows, place = rows[found], place[found]
    return Short(rows, time_ns[began[place]], in_sync[place], judged, None)


def unclean(history: PartitionHistory) -> KernelResult:
    """Every leader was, just before its election, in the ISR or among the eligible leader replicas.

    Source: KIP-966; https://kafka.apache.org/documentation/#design_uncleanleader. Counts elections of others by the
    controllers' log. Not counted: the last known leader that comes back when nobody is in sync (KIP-966), which is
    complete unless its copy was destroyed; who was still eligible is dropped in the same change if it comes back after a
    crash (seen with 4.3.1: ELR [2], broker 2 registers again after a SIGKILL, broker 1 leads). And whoever a change puts
    in sync and into the lead at once that takes a copy away: so reassignments end (KIP-455;
    PartitionReassignmentReplicas.maybeCompleteReassignment), and an unclean election takes no copy away.
    Witness: `reader` was elected at `begin_ns` in epoch `sequence`; before, `other_client` led. O(r log r) for r changes.
    """
    table = history.metadata
    rows = _ground_truth(table)
    if not len(rows):
        reason = f"the controllers' log says nothing about elections of partition {history.partition}"
        return KernelResult(no_witnesses(), count=0, judged=0, incomplete=reason)
    leader = table["leader"][rows].astype(np.int64)
    elected = np.flatnonzero((leader[1:] != leader[:-1]) & (leader[1:] != NONE)) + 1
    before = rows[elected - 1]
    removed = table["replicas"][before] & ~table["replicas"][rows[elected]] != 0
    eligible = table["isr"][before] | table["elr"][before] | np.where(removed, table["isr"][rows[elected]], 0)
    last_known = (table["isr"][before] == 0) & (table["last_known_elr"][before] >> leader[elected] & 1 == 1)
    outside = elected[(eligible >> leader[elected] & 1 == 0) & ~last_known]
    led = np.maximum.accumulate(np.where(leader != NONE, np.arange(len(rows)), 0))
    columns: dict[str, np.ndarray | int] = {
        "partition": history.partition,
        "reader": leader[outside],
        "sequence": table["leader_epoch"][rows[outside]],
        "other_client": leader[led[outside - 1]],
        "begin_ns": np.maximum.accumulate(table["time_ns"][rows])[outside],
    }
    return KernelResult(make_witnesses(len(outside), columns), len(outside), judged=len(elected) + 1)


def two_controllers(history: CellHistory) -> KernelResult:
    """No two nodes are the active controller in one epoch, and epochs of the metadata log only rise.

    Source: KIP-595 (a quorum elects at most one leader per epoch). Counts nodes beyond the first that claimed an epoch, by
    the metadata log's own records of who became leader and by what each controller said of itself (DescribeQuorum); and
    records of the log with a lower epoch than one before. A deposed controller that believes in its own, older epoch for a
    while is normal. It is the cluster's, so every cell lives under it. Witness: `reader` claimed epoch `sequence` at
    `begin_ns`, `other_client` had claimed `other_sequence`. O(n log n).
    """
    node, epoch, time_ns = _claims(history)
    order = np.lexsort((time_ns, node, epoch))
    node, epoch, time_ns = node[order], epoch[order], time_ns[order]
    claim = differs_from_previous(epoch) | differs_from_previous(node)
    node, epoch, time_ns = node[claim], epoch[claim], time_ns[claim]
    again = np.flatnonzero(~differs_from_previous(epoch))
    table = history.tables["metadata"]
    log = np.flatnonzero(
        (table["kind"] == MetadataKind.CONTROLLER) & (table["source"] == MetadataSource.CONTROLLER_LOG)
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
    """(node, epoch, when): who said that it is, or was said by the log to have become, the active controller."""
    table, metrics = history.tables["metadata"], history.tables["metrics"]
    log = np.flatnonzero(
        (table["kind"] == MetadataKind.CONTROLLER) & (table["source"] == MetadataSource.CONTROLLER_LOG)
    )
    told = metrics["absent"] == 0
    leaders = np.flatnonzero(told & (metrics["metric"] == code_of("quorum_leader")))
    epochs = np.flatnonzero(told & (metrics["metric"] == code_of("quorum_epoch")))
    # Only who names itself claims the role. One answer is two rows, of one node and one time.
    own = leaders[metrics["value_micro"][leaders] == metrics["node"][leaders].astype(np.int64) * MICRO]
    times = np.unique(metrics["time_ns"])
    answer = np.searchsorted(times, metrics["time_ns"]) << 32 | metrics["node"]
    epochs = epochs[np.argsort(answer[epochs], kind="stable")]
    epochs = epochs[differs_from_previous(answer[epochs])]
    place = Lookup(answer[epochs]).find(answer[own])
    own, place = own[place >= 0], place[place >= 0]
    return (
        np.concatenate([table["node"][log], metrics["node"][own]]).astype(np.int64),
        np.concatenate([table["leader_epoch"][log], metrics["value_micro"][epochs[place]] // MICRO]).astype(np.int64),
        np.concatenate([table["time_ns"][log], metrics["time_ns"][own]]),
    )


def _ground_truth(table: Mapping[str, np.ndarray]) -> np.ndarray:
    """Rows of one partition's `metadata` by the controllers' log, in its order."""
    rows = np.flatnonzero(
        (table["source"] == MetadataSource.CONTROLLER_LOG) & (table["kind"] == MetadataKind.PARTITION)
    )
    return np.asarray(rows[np.lexsort((table["time_ns"][rows], table["log_position"][rows]))])


def _members(mask: np.ndarray) -> np.ndarray:
    """int64[n]: how many brokers each mask holds (at most 63)."""
    bits = mask[:, np.newaxis] >> np.arange(63) & 1
    return np.asarray(bits.sum(axis=1))
