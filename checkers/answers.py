"""What single brokers answer: their high watermarks and leader epochs do not fall. Stage check.

A zombie may answer, so an answer is judged only against what the same broker, or a leader of an earlier epoch, had answered.
"""

import numpy as np

from checkers.lookup import differs_from_previous
from harness.protocols import KernelResult, PartitionHistory
from harness.schema import MISSING, MetadataKind, MetadataSource, ObservationKind
from harness.witnesses import WITNESSES_MAX, make_witnesses

SAME_EPOCH = 0
"""`watermark-regression`: more had been answered in the same leader epoch."""
LATER_EPOCH = 1
"""… in an earlier one."""


def watermark_regression(history: PartitionHistory) -> KernelResult:
    """The high watermark that a leader answers is never below one that it, or a leader of an earlier epoch, had answered.

    Source: KIP-207 (a new leader does not answer ListOffsets until its high watermark has reached the start of its epoch);
    Partition.fetchOffsetForTimestamp. Counts answers below an earlier one. Two nodes are asked at once, so that an answer
    counts against another node's only if that one had come before this node's last answer, after which it was asked. What a
    deposed leader still answers, in its own lower epoch, is judged only against itself. Witness: `reader` (broker) answered
    `log_offset` + 1 at `end_ns`, `other_client` had answered `other_offset` at `begin_ns`; `sequence`, `other_sequence` are
    the leader epochs. O(n log n).
    """
    seen = history.observations
    rows = np.flatnonzero(
        (seen["kind"] == ObservationKind.LEADER_HIGH_WATERMARK) & (seen["node"] >= 0) & (seen["leader_epoch"] >= 0)
    )
    rows = rows[np.argsort(seen["time_ns"][rows], kind="stable")]
    time_ns, value, node, epoch = (seen[name][rows] for name in ("time_ns", "value", "node", "leader_epoch"))
    asked_after = _previous_of_node(node)
    before = np.full(len(rows), -1, dtype=np.intp)
    for number in np.unique(epoch).tolist():  # as many as there were leaders
        mine = np.flatnonzero(epoch == number)
        earlier = np.flatnonzero(epoch <= number)
        reached = np.maximum.accumulate(value[earlier])
        # Of another node: what was answered before this node's last answer. Of this node: whatever came before.
        known = asked_after[mine]
        told = np.searchsorted(time_ns[earlier], np.where(known >= 0, time_ns[known], MISSING), side="right") - 1
        fell = (told >= 0) & (reached[told] > value[mine])
        first = np.searchsorted(reached, reached[told[fell]], side="left")
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


def _previous_of_node(node: np.ndarray) -> np.ndarray:
    """intp[n]: the answer before of the same node, -1 = none. Answers are in the order of time."""
    order = np.argsort(node, kind="stable")
    previous = np.full(len(node), -1, dtype=np.intp)
    same = ~differs_from_previous(node[order])
    previous[order[same]] = order[np.flatnonzero(same) - 1]
    return previous


def epoch_regression(history: PartitionHistory) -> KernelResult:
    """The leader epoch that one broker tells of a partition never falls.

    Source: a leader epoch only rises (KIP-101), and a broker applies the controllers' log in its order (KIP-500); topics are
    not made anew within a trial. Counts answers (Metadata, by the 2 Hz samples) with a lower epoch than the same broker's
    before. Between brokers nothing is compared: zombies answer. Witness: `reader` told epoch `sequence` at `end_ns`, after
    `other_sequence` at `begin_ns`. O(n log n).
    """
    table = history.metadata
    rows = np.flatnonzero(
        (table["source"] == MetadataSource.SAMPLE)
        & (table["kind"] == MetadataKind.PARTITION)
        & (table["leader_epoch"] >= 0)
    )
    rows = rows[np.lexsort((table["time_ns"][rows], table["node"][rows]))]
    node, epoch, time_ns = (table[name][rows] for name in ("node", "leader_epoch", "time_ns"))
    later = np.flatnonzero(~differs_from_previous(node))
    later = later[epoch[later] < epoch[later - 1]]
    count = len(later)
    later = later[:WITNESSES_MAX]
    columns: dict[str, np.ndarray | int] = {
        "partition": history.partition,
        "reader": node[later],
        "sequence": epoch[later],
        "other_sequence": epoch[later - 1],
        "begin_ns": time_ns[later - 1],
        "end_ns": time_ns[later],
    }
    return KernelResult(make_witnesses(len(later), columns), count, judged=len(rows))
