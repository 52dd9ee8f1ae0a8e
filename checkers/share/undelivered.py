"""undelivered: a record from the group's start offset on that no member was ever given."""

import numpy as np

from prozess.checkers.groups.assignments import OwnershipResult, put_together
from prozess.checkers.lookup import UNREADABLE
from prozess.checkers.partition_index import PartitionIndex
from prozess.checkers.share.deliveries import SharedDeliveries, first_start, share_of, why_unfinished
from prozess.harness.interfaces.checking import CellHistory, KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import ShareCase, make_witnesses
from prozess.harness.schema import NONE, Isolation


def undelivered(history: CellHistory) -> KernelResult:
    """Every record of the log was delivered to a member of the share group.

    Source: KIP-932, "Share-partition": from its start offset on a share group delivers every record, until it is
    acknowledged, rejected or given up; what is below is owed to nobody. Owed are the records that the group's isolation
    level shows, by the audit, which must be complete, once the group was asked to finish and did (`why_unfinished`).
    Witness: the record; `case`: BEFORE_START if the group was first seen with a start
    offset beyond it, else NO_CAUSE. O(n log n).

    Example: the log is [a b c d], members were given a and c, and the group was first seen to start at 1: b and d count, both
    without a cause.
    """
    return put_together([_undelivered(history, partition) for partition in history.partitions.values()])


def _undelivered(history: CellHistory, partition: PartitionHistory) -> OwnershipResult:
    number, committed = partition.partition, share_of(history).isolation_level == "read_committed"
    level = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
    if why := why_unfinished(history, number):
        return make_witnesses(0, {}), 0, why
    index = PartitionIndex.of(partition)
    log = index.visible if committed else index.log
    deliveries = SharedDeliveries.of(history, number)
    given = np.zeros(len(log.offset), dtype=bool)
    position = log.positions.find(deliveries["log_offset"])
    there = np.flatnonzero(position >= 0)
    # A delivery of another record at this offset is none of this one. What cannot be read may be either.
    same = deliveries.key[there] == log.key[position[there]]
    same |= (log.key[position[there]] == UNREADABLE) | (deliveries["sequence"][there] == NONE)
    given[position[there[same]]] = True
    left = np.flatnonzero(~given)
    rows, offset = log.rows[left], log.offset[left]
    before = offset < first_start(history, number)
    witnesses = make_witnesses(
        len(left),
        {
            "partition": number,
            "client": partition.reads["sender"][rows],
            "sequence": partition.reads["sequence"][rows],
            "log_offset": offset,
            "case": np.where(before, ShareCase.BEFORE_START.value, ShareCase.NO_CAUSE.value),
        },
    )
    return witnesses, len(log.offset), index.incomplete(level)
