"""This kernel compares the two audits of a partition: what read_committed shows (V) is what is in the log (L), less the
records of transactions that did not commit."""

import numpy as np

from prozess.checkers.lookup import UNREADABLE, distinct
from prozess.checkers.partition_index import PartitionIndex
from prozess.harness.interfaces.checking import KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses
from prozess.harness.schema import NONE, Isolation


def invisible(history: PartitionHistory) -> KernelResult:
    """The audit at read_committed is given every record of the log that no transaction wrote.

    Source: https://kafka.apache.org/documentation/#consumerconfigs_isolation.level ("Non-transactional messages will be
    returned unconditionally in either mode"); KIP-98, "Consumer": up to the last stable offset, which is beyond the sentinel
    that both audits were given. Counts records of L(p) at whose offset V(p) has none; `begin_ns`, `end_ns` and `outcome` are
    the send's, `seen_ns` and `reader` report the first consumer that was given the record, `other_ns` is when the audit at
    read_uncommitted was. What a transaction wrote is judged by `torn`, `lost-transaction` and `not-exactly-once`: the row of
    its send says so, or else the attributes of its batch in the replicas. Not judged: records of which neither is known, and
    what retention or compaction may have removed between the two readings.

    Example: L has 0, 1, 2, 3, and a transaction that was aborted wrote 2. V must have 0, 1, 3. If it has 0, 3, then 1 is
    invisible.

    The audits also have to agree with the replicas: where every replica has more records up to the sentinel than L(p), the
    audit passed over some, and the result is incomplete. O(n).
    """
    index = PartitionIndex.of(history)
    log = index.log
    if not index.audited:
        return KernelResult(no_witnesses(), count=0, judged=0)
    reasons = [index.incomplete(), index.incomplete(Isolation.READ_COMMITTED), _fewer_than_stored(index, history)]
    reason = "; ".join(why for why in reasons if why) or None
    slot = index.unshown
    slot = slot[_outside_transactions(index, slot)]
    slot = slot[~_cleaned(index, slot)]
    count = len(slot)
    if not count:
        return KernelResult(no_witnesses(), 0, judged=_judged(index), incomplete=reason)
    rows = log.rows[slot[:WITNESSES_MAX]]
    key = index.keys_of_reads(rows)
    columns = {
        "partition": index.partition,
        **index.records_read(rows),
        **index.sent(index.send_in_log[slot[:WITNESSES_MAX]]),
        **index.seen(key),
        "other_ns": index.reads["read_ns"][rows],
    }
    # What read_committed lacks is certain where that audit is complete, and `unshown` is empty where it is not.
    return KernelResult(make_witnesses(len(rows), columns), count, judged=_judged(index), incomplete=reason)


def _judged(index: PartitionIndex) -> int:
    """Returns of how many records of L(p) it is known that no transaction wrote them."""
    # All that have a send, less those whose send was in a transaction, and of the others those that replicas answer for.
    row, transaction = index.send_in_log[:-1], index.sends["transaction"]
    unsent = np.flatnonzero(row < 0)
    count = len(row) - len(unsent)
    if transaction.strides != (0,) or (len(transaction) and transaction[0] != NONE):
        # The NONE at the end is what row -1 takes.
        count -= int(np.count_nonzero((row >= 0) & (np.append(transaction, NONE)[row] != NONE)))
    return count + int(np.count_nonzero(_outside_transactions(index, unsent)))


def _outside_transactions(index: PartitionIndex, slot: np.ndarray) -> np.ndarray:
    """Returns bool[k]: did certainly no transaction write the records at these positions of L(p)?"""
    row = index.send_in_log[slot]
    # Example: three positions: a send outside of transactions; a send in one; none, and a replica's batch is transactional.
    # Only the first is outside for certain.
    sent, outside = row >= 0, np.zeros(len(slot), dtype=bool)
    outside[sent] = index.sends["transaction"][row[sent]] == NONE
    # A send of ours says it by itself. Otherwise a batch of a replica must say no, and none may say yes.
    yes, no = index.stored.in_transaction(index.log.offset[slot])
    return np.asarray(~yes & np.where(sent, outside, no))


def _cleaned(index: PartitionIndex, slot: np.ndarray) -> np.ndarray:
    """Returns bool[k]: may cleaning have removed these records after the audit at read_uncommitted was given them? A record
    whose send or key is not known may be a tombstone, which expires."""
    row, read = index.send_in_log[slot], index.log.rows[slot]
    tombstone = row < 0
    tombstone[~tombstone] = index.sends["size"][row[~tombstone]] == NONE
    key = index.reads["key"][read]
    cleaned = index.may_be_cleaned(record_key=key, offset=index.log.offset[slot], tombstone=tombstone)
    return np.asarray(cleaned | (index.compacted & (index.log.key[slot] == UNREADABLE)))


def begins_everywhere(history: PartitionHistory) -> int:
    """Returns the offset from which on every replica has its log, or may have: below it, one may lack what another has."""
    return max([history.log_start, *(copy.log_start for copy in history.copies.values())])


def _fewer_than_stored(index: PartitionIndex, history: PartitionHistory) -> str | None:
    """Returns why the audit at read_uncommitted cannot have been given all records. None: it was given as many as one of the
    replicas has, or that is not known."""
    end, low = index.log.end, begins_everywhere(history)
    if end is None or index.compacted:
        return None
    stored = index.stored.count(low, end)
    if stored is None:
        return None
    audited = index.sentinel_reads[~index.read_by_consumer(index.sentinel_reads)]
    # Earlier sentinels are records of the replicas, too, and no records of L(p): they are counted apart.
    sentinels = index.reads["log_offset"][audited][
        index.client_isolation[index.reads["client"][audited]] == Isolation.READ_UNCOMMITTED.value
    ]
    assert history.left_out >= 0, history.left_out
    given = int(np.count_nonzero(index.log.offset >= low)) + history.left_out
    # Each once, as L(p) has each offset once, however often the audit was given it.
    given += len(distinct(sentinels[(sentinels >= low) & (sentinels < end)]))
    if given >= stored:
        return None
    return (
        f"the audit of partition {index.partition} at read_uncommitted was given {given} records up to its sentinel, and "
        f"every replica has {stored}"
    )
