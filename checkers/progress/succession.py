"""This kernel checks that an active controller that was replaced gives way."""

from collections.abc import Mapping

import numpy as np

from prozess.checkers.lookup import differs_from_previous
from prozess.harness.clock import NS_PER_S
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, join_witnesses, make_witnesses
from prozess.harness.recording.metrics import MICRO, code_of
from prozess.harness.schema import MetadataKind, MetadataSource

REPLACED_NS = 5 * NS_PER_S
"""How long a controller may go on that was replaced: it asks itself 1.5 times controller.quorum.fetch.timeout.ms (by default
2 s) after a majority last fetched from it, and nodes are asked once a second."""
ANSWERS_APART_NS = 2_500_000_000
"""Answers that are further apart do not show what the node took itself for in between: it may have stood still."""


def stale_controller(history: CellHistory) -> KernelResult:
    """A controller that was replaced gives way.

    Source: KIP-595, "Leader Progress Timeout": a leader from which no majority fetches resigns; KAFKA-15489. Counts epochs
    in which a node went on to answer that it is the active controller for more than REPLACED_NS after a later epoch had its
    own, answer after answer. A node that stood still, and answers again as what it was, is given the time anew: answers that
    are too far apart end the stretch. This anomaly belongs to the cluster, so every cell shows it.

    Example: node 1 is active in epoch 4. The metadata log says that node 2 became it in epoch 5 at 10 s. Node 1 answers
    that it is active in epoch 4 at 11, 12, … 17 s: a witness from 10 s to 17 s. If it last stated so at 12 s, it gave way.
    Witness: `reader` went on in epoch `sequence` from `begin_ns` to `end_ns`, while `other_client` was active in epoch
    `other_sequence` since `other_ns`. O(n log n); the loop runs over claims to an epoch.
    """
    node, leader, epoch, time_ns = answers(history.tables["metrics"])
    table = history.tables["metadata"]
    log = np.flatnonzero(
        (table["kind"] == MetadataKind.CONTROLLER) & (table["source"] == MetadataSource.CONTROLLER_LOG)
    )
    own = np.flatnonzero(leader == node)
    began_epoch = np.concatenate([table["leader_epoch"][log], epoch[own]]).astype(np.int64)
    began_node = np.concatenate([table["node"][log], node[own]]).astype(np.int64)
    began_ns = np.concatenate([table["time_ns"][log], time_ns[own]])
    found, judged = [], 0
    for claimant, claimed in sorted(set(zip(node[own].tolist(), epoch[own].tolist(), strict=True))):
        later = np.flatnonzero((began_epoch > claimed) & (began_node != claimant))
        if not len(later):
            continue
        judged += 1
        # The first of them in time; epoch and node decide between equals, so that the result does not depend on the order.
        next_row = later[np.lexsort((began_node[later], began_epoch[later], began_ns[later]))[0]]
        replaced_ns = int(began_ns[next_row])
        mine = np.flatnonzero((node == claimant) & (time_ns > replaced_ns))  # ascending
        ends = (leader[mine] != claimant) | (epoch[mine] != claimed)
        ends |= np.diff(time_ns[mine], prepend=replaced_ns) > ANSWERS_APART_NS
        # Answer after answer it went on as what it was, until the first that ends the stretch.
        last = int(np.argmax(ends)) if ends.any() else len(mine)
        if not last or int(time_ns[mine[last - 1]]) - replaced_ns <= REPLACED_NS:
            continue
        columns = {
            "partition": min(history.partitions),
            "reader": claimant,
            "sequence": claimed,
            "begin_ns": replaced_ns,
            "end_ns": int(time_ns[mine[last - 1]]),
            "other_ns": replaced_ns,
            "other_client": int(began_node[next_row]),
            "other_sequence": int(began_epoch[next_row]),
        }
        found.append(make_witnesses(1, columns))
    witnesses = join_witnesses(found)
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), judged)


def answers(metrics: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns (node, leader, epoch, time) of each answer of a node about the metadata quorum, ascending by time. One answer
    is two rows, of one node and one time."""
    known = metrics["absent"] == 0
    leaders = np.flatnonzero(known & (metrics["metric"] == code_of("quorum_leader")))
    epochs = np.flatnonzero(known & (metrics["metric"] == code_of("quorum_epoch")))
    leaders, epochs = (
        rows[np.lexsort((metrics["node"][rows], metrics["time_ns"][rows]))] for rows in (leaders, epochs)
    )
    # Moment and node as one number: the moment's rank in the high half, the node in the low one. A leader and an epoch with
    # the same number are one answer.
    times = np.unique(metrics["time_ns"])
    of_leaders, of_epochs = (
        np.searchsorted(times, metrics["time_ns"][rows]) << 32 | metrics["node"][rows] for rows in (leaders, epochs)
    )
    leaders, of_leaders = leaders[differs_from_previous(of_leaders)], of_leaders[differs_from_previous(of_leaders)]
    epochs, of_epochs = epochs[differs_from_previous(of_epochs)], of_epochs[differs_from_previous(of_epochs)]
    assert len(leaders) == len(of_leaders), "each answer has its key"
    _, mine, theirs = np.intersect1d(of_leaders, of_epochs, assume_unique=True, return_indices=True)
    leaders, epochs = leaders[mine], epochs[theirs]
    return (
        metrics["node"][leaders].astype(np.int64),
        metrics["value_micro"][leaders] // MICRO,
        metrics["value_micro"][epochs] // MICRO,
        metrics["time_ns"][leaders],
    )
