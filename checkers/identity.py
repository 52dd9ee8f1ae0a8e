"""Is every record one that was sent, here, and whole? Stage check: the arrays of one partition in, findings out."""

import numpy as np

from checkers.arrays import PartitionIndex
from checkers.lookup import Lookup, differs_from_previous, distinct
from harness.plan import SENTINEL_CLIENT
from harness.protocols import KernelResult, PartitionHistory
from harness.schema import MISSING, NONE, Outcome, ReadFlag
from harness.witnesses import WITNESSES_MAX, make_witnesses


def phantom(history: PartitionHistory) -> KernelResult:
    """Every record that anyone was given was issued by a client of the trial.

    Source: no Kafka promise allows invention; INTRODUCTION of librdkafka, "Message reliability". Counts records per offset,
    however many readers were given them. Not phantom: what stands past the recorded rows of a producer that crashed
    (client_issued NONE); unreadable records (`corrupt`). O(n).
    """
    index = PartitionIndex.of(history)
    # What agrees with the log is judged there, once.
    rows = np.concatenate([index.log.rows, index.unmatched_reads])
    rows = rows[index.never_issued(rows)]
    if len(rows):  # now everyone who was given one of them
        rows = np.flatnonzero(Lookup(distinct(index.read_key[rows])).find(index.read_key) >= 0)
    return _records_seen(index, rows)


def corrupt(history: PartitionHistory) -> KernelResult:
    """Every record that anyone was given has the checksum, size and header it was sent with.

    Source: check.crcs, https://kafka.apache.org/documentation/#consumerconfigs_check.crcs ("ensures no on-the-wire or
    on-disk corruption to the messages occurred"). Counts offsets, however many readers. O(n).
    """
    index = PartitionIndex.of(history)
    return _records_seen(index, np.flatnonzero(index.reads["flags"] & ReadFlag.CORRUPT))


def misplaced(history: PartitionHistory) -> KernelResult:
    """Every record that anyone was given from this partition says that it was sent to this partition.

    Source: https://kafka.apache.org/documentation/#intro_concepts_and_terms (a record is written to one partition). Counts
    records per offset, however many readers, in the partition where they were read. Where it was sent to is in the reads.
    O(n).
    """
    index = PartitionIndex.of(history)
    said = index.reads["sent_partition"]
    rows = np.flatnonzero((said != index.partition) & (said != NONE))
    return _records_seen(index, rows[index.sent_elsewhere(rows)])


def resurrected(history: PartitionHistory) -> KernelResult:
    """No record whose send certainly failed, outside transactions, is in the log.

    Source: librdkafka INTRODUCTION, "Message persistence status" (not persisted); the short list of certain failures is the
    workload's. Counts records. O(n), and O(f) for f failed sends.
    """
    index = PartitionIndex.of(history)
    sends, log = index.sends, index.log
    failed = (sends["outcome"] == Outcome.FAIL) & (sends["transaction"] == NONE) & (sends["client"] != SENTINEL_CLIENT)
    rows = np.flatnonzero(failed)
    judged = len(rows)
    if not index.audited:  # what a consumer was given stood in the log, whatever else was seen there
        return _given_although_failed(index, rows, judged)
    position = index.identities.find(index.send_key[rows])
    rows, position = rows[position >= 0], position[position >= 0]
    count = len(rows)
    rows, position = rows[:WITNESSES_MAX], position[:WITNESSES_MAX]
    columns = {
        "client": sends["client"][rows],
        "sequence": sends["sequence"][rows],
        "log_offset": log.offset[position],
        **index.sent(rows),
        **(index.seen(index.send_key[rows]) if count else {}),
    }
    witnesses = make_witnesses(len(rows), {"partition": index.partition, **columns})
    return KernelResult(witnesses, count, judged, incomplete=index.incomplete())


def _given_although_failed(index: PartitionIndex, failed: np.ndarray, judged: int) -> KernelResult:
    rows = failed[index.given.keys.find(index.send_key[failed]) >= 0]
    count, rows = len(rows), rows[:WITNESSES_MAX]
    if not count:
        return KernelResult(make_witnesses(0, {}), 0, judged, incomplete=index.incomplete())
    key, sends = index.send_key[rows], index.sends
    columns = {
        "partition": np.full(len(rows), index.partition),
        "client": sends["client"][rows],
        "sequence": sends["sequence"][rows],
        "log_offset": index.reads["log_offset"][index.first_seen(key)],
        **index.sent(rows),
        **index.seen(key),
    }
    return KernelResult(make_witnesses(len(rows), columns), count, judged, incomplete=index.incomplete())


def _records_seen(index: PartitionIndex, rows: np.ndarray) -> KernelResult:
    """A finding of these rows of `reads`: one witness per record and offset, with whoever was given it first; a consumer
    before the audit."""
    reads, judged = index.reads, index.records_read
    audit = ~index.by_consumer[rows]
    order = np.lexsort((reads["read_ns"][rows], audit, index.read_key[rows], reads["log_offset"][rows]))
    rows, audit = rows[order], audit[order]
    new = differs_from_previous(reads["log_offset"][rows]) | differs_from_previous(index.read_key[rows])
    rows, audit = rows[new], audit[new]
    count = len(rows)
    rows, audit = rows[:WITNESSES_MAX], audit[:WITNESSES_MAX]
    columns = {
        "client": reads["sender"][rows],
        "sequence": reads["sequence"][rows],
        "log_offset": reads["log_offset"][rows],
        "reader": reads["client"][rows],
        "seen_ns": np.where(audit, MISSING, reads["read_ns"][rows]),
        **index.sent(index.send_rows(index.read_key[rows])),
    }
    if "begin_ns" in columns:
        unsent = columns["outcome"] == NONE
        columns["begin_ns"] = np.where(unsent, reads["read_ns"][rows], columns["begin_ns"])
    else:
        columns["begin_ns"] = reads["read_ns"][rows]
    witnesses = make_witnesses(len(rows), {"partition": index.partition, **columns})
    return KernelResult(witnesses, count, judged, incomplete=index.incomplete())
