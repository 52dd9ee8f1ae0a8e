"""This kernel checks that a topic that was deleted stays deleted, in the metadata and on disks."""

import numpy as np

from prozess.checkers.log.leadership import ground_truth
from prozess.harness.clock import NS_PER_S
from prozess.harness.interfaces.checking import KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, OnDisk, UndeletedCase, make_witnesses, no_witnesses
from prozess.harness.schema import NONE, MetadataKind

SERVED_NS = 15 * NS_PER_S
"""A broker that hears of a deletion renames the directory at once. A machine that stands still may take a few seconds."""
REMOVED_NS = 45 * NS_PER_S
"""Beyond log.segment.delete.delay.ms: the first round begins log.initial.task.delay.ms after the start, 30 s by default."""


def undeleted(history: PartitionHistory) -> KernelResult:
    """A topic that was deleted does not come back, and its logs go from every disk.

    Source: KIP-516 (a broker removes logs whose topic id is gone); LogManager.asyncDelete and deleteLogs (renamed at
    once, removed after log.segment.delete.delay.ms); ReplicationControlManager, RemoveTopicRecord. Topics are compared
    by their ids. Counts directories and records. Judged: deletions in the controllers' log. Witness: the directory of
    broker `reader` was there at `end_ns`, and the topic was deleted at `begin_ns`. O(n), and O(n) for each deletion:
    there are few.

    Example: the topic was deleted at 10 s, and the disks were read at 30 s. Broker 1 has a directory t-0 with its id: SERVED.
    Broker 2 has t-0.0ab…-delete, which may stay for a minute: no finding.
    """
    table = history.metadata
    if not (table["kind"] == MetadataKind.DELETED.value).any():
        return KernelResult(no_witnesses(), count=0, judged=0)
    truth = ground_truth(table)
    deletions = truth[table["kind"][truth] == MetadataKind.DELETED.value]
    kept = np.flatnonzero(table["kind"] == MetadataKind.ON_DISK.value)
    found, cases, since = [], [], []
    for row in deletions.tolist():
        deleted_ns = int(table["time_ns"][row])
        same = (table["topic_id_high"] == table["topic_id_high"][row]) & (
            table["topic_id_low"] == table["topic_id_low"][row]
        )
        later = truth[(table["log_position"][truth] > table["log_position"][row]) & same[truth]]
        later = later[table["kind"][later] == MetadataKind.PARTITION.value]
        there = kept[same[kept]]
        served = table["leader"][there] == OnDisk.SERVED.value
        limit_ns = np.where(served, SERVED_NS, REMOVED_NS + history.delete_delay_ns) + history.metadata_error_ns
        there, served = there[late := table["time_ns"][there] > deleted_ns + limit_ns], served[late]
        found.append(np.concatenate([later, there]))
        cases.append(np.full(len(later), UndeletedCase.RETURNED.value))
        cases.append(np.where(served, UndeletedCase.SERVED.value, UndeletedCase.NOT_REMOVED.value))
        since.append(np.full(len(found[-1]), deleted_ns))
    rows = np.concatenate([np.empty(0, dtype=np.intp), *found])
    count, rows = len(rows), rows[:WITNESSES_MAX]
    nothing = np.empty(0, dtype=np.int64)
    columns: dict[str, np.ndarray | int] = {
        "partition": history.partition,
        "reader": np.where(table["kind"][rows] == MetadataKind.ON_DISK.value, table["node"][rows], NONE),
        "begin_ns": np.concatenate([nothing, *since])[:WITNESSES_MAX],
        "end_ns": table["time_ns"][rows],
        "case": np.concatenate([nothing, *cases])[:WITNESSES_MAX],
    }
    return KernelResult(make_witnesses(len(rows), columns), count, judged=len(deletions))
