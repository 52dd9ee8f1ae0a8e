"""What Kafka promises its readers: what was given stays, and within one assignment the position neither jumps nor falls.
Stage check: the arrays of one partition in, findings out.

*Positions* are dense: transaction markers and compaction leave holes in the offsets, and a hole is not a record.
"""

import numpy as np

from checkers.arrays import PartitionIndex
from checkers.lookup import UNREADABLE
from harness.plan import SENTINEL_CLIENT
from harness.protocols import KernelResult, PartitionHistory
from harness.schema import NONE, Isolation, Role
from harness.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses

DIRTY_GONE = 0
"""`dirty-read`: no record stands where it was read."""
DIRTY_REPLACED = 1
"""`dirty-read`: another record stands where it was read (`other_*`)."""


def dirty_read(history: PartitionHistory) -> KernelResult:
    """Every record that a consumer was given is in the log, at the offset where it was read.

    Source: "Only committed messages are ever given out to the consumer",
    https://kafka.apache.org/documentation/#design_ha. Counts reads: each time a consumer was given a record that is not in
    L(p), or that stands where L(p) has another one. Not judged: reads behind the sentinel (unless made before it was sent:
    its lower offset proves that the log was cut), what retention or compaction may have removed, unreadable records. Needs
    a complete audit. `begin_ns` and `end_ns` are the send's, `seen_ns` is this read. O(n), O(k log n) for what L(p) does not
    confirm.
    """
    index = PartitionIndex.of(history)
    judged = int(np.count_nonzero(index.by_consumer & (index.reads["sender"] != SENTINEL_CLIENT)))
    if reason := index.incomplete():
        return KernelResult(no_witnesses(), count=0, judged=judged, incomplete=reason)
    reads, sends, log = index.reads, index.sends, index.log
    rows = index.unmatched_reads
    rows = rows[index.by_consumer[rows]]
    concerned = index.concerns_log(rows)
    judged -= int(np.count_nonzero(~concerned))
    rows = rows[concerned]
    position = index.read_position[rows]
    replaced = position >= 0
    if index.unreadable_positions:  # what stands there cannot be told from what was read
        readable = ~replaced | (log.key[position] != UNREADABLE)
        rows, position, replaced = rows[readable], position[readable], replaced[readable]
    send = index.send_rows(index.read_key[rows])
    tombstone = np.zeros(len(rows), dtype=bool)
    tombstone[send >= 0] = sends["size"][send[send >= 0]] == NONE
    cleaned = index.may_be_cleaned(record_key=reads["key"][rows], offset=reads["log_offset"][rows], tombstone=tombstone)
    dirty = replaced | ((index.identities.find(index.read_key[rows]) < 0) & ~cleaned)
    count = int(np.count_nonzero(dirty))
    rows, position, send = rows[dirty][:WITNESSES_MAX], position[dirty][:WITNESSES_MAX], send[dirty][:WITNESSES_MAX]
    columns = {
        "partition": index.partition,
        "client": reads["sender"][rows],
        "sequence": reads["sequence"][rows],
        "log_offset": reads["log_offset"][rows],
        "reader": reads["client"][rows],
        "seen_ns": reads["read_ns"][rows],
        "leader_epoch": reads["leader_epoch"][rows],
        "case": np.where(position >= 0, DIRTY_REPLACED, DIRTY_GONE),
        **index.record_at(position),
        **index.sent(send),
    }
    return KernelResult(make_witnesses(len(rows), columns), count, judged)


def skipped(history: PartitionHistory) -> KernelResult:
    """Within one assignment, a consumer is given every record that its isolation level shows, from its first position to
    its last.

    Source: https://kafka.apache.org/documentation/#intro_guarantees ("A consumer instance sees records in the order they are
    stored in the log"); KafkaConsumer, "Offsets and Consumer Position" (the position advances to the next record). Counts
    jumps: pairs of reads in sequence, upwards, with records of L(p) (read_committed: V(p)) between them. The witness is the
    first record jumped over; `begin_ns` and `end_ns` are the times of the read before and of the read after, `other_client`
    and `other_sequence` name the latter, `other_offset` is the position that the reader had, `other_ns` is when the record
    jumped over was sent (later than the jump, where the log was cut and written anew). That a reader ended early is no jump.
    Needs the audit at the reader's level. O(n), O(j log n) for j steps that are not 1.
    """
    index = PartitionIndex.of(history)
    reads = index.reads
    before, after = index.uneven_steps
    upwards = (reads["log_offset"][after] > reads["log_offset"][before]) & index.by_consumer[after]
    before, after = before[upwards], after[upwards]
    level = index.fact(index.client_isolation, reads["client"][after], unknown=Isolation.NOT_A_READER)
    committed = level == Isolation.READ_COMMITTED
    parts = [
        _jumps(index, log_level, before[of_level], after[of_level])
        for log_level, of_level in ((Isolation.READ_UNCOMMITTED, ~committed), (Isolation.READ_COMMITTED, committed))
    ]
    reasons = [reason for level_read in _levels_read(index) if (reason := index.incomplete(level_read))]
    before, after, over = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    count = len(after)
    order = np.argsort(after, kind="stable")[:WITNESSES_MAX]
    before, after, over = before[order], after[order], over[order]
    columns = {
        "partition": index.partition,
        "client": reads["sender"][over],
        "sequence": reads["sequence"][over],
        "log_offset": reads["log_offset"][over],
        "begin_ns": reads["read_ns"][before],
        "end_ns": reads["read_ns"][after],
        "reader": reads["client"][after],
        "other_client": reads["sender"][after],
        "other_sequence": reads["sequence"][after],
        "other_offset": reads["log_offset"][before] + 1,
    }
    if count:
        columns["seen_ns"] = index.seen(index.read_key[over])["seen_ns"]
        if sent := index.sent(index.send_rows(index.read_key[over])):
            columns["other_ns"] = sent["begin_ns"]
    judged = int(np.count_nonzero(index.by_consumer & (reads["sender"] != SENTINEL_CLIENT)))
    if count and not index.audited:  # the records it jumped over were seen, or acknowledged
        reasons = []
    return KernelResult(make_witnesses(len(after), columns), count, judged, incomplete="; ".join(reasons) or None)


def _jumps(
    index: PartitionIndex, isolation: Isolation, before: np.ndarray, after: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of these pairs of rows those that jump over records of L(p) or V(p), and the row by which the audit read the first."""
    log = index.visible if isolation is Isolation.READ_COMMITTED else index.log
    if not len(log.offset):
        return before[:0], after[:0], log.rows[:0]
    first = np.searchsorted(log.offset, index.reads["log_offset"][before], side="right")
    jumps = np.searchsorted(log.offset, index.reads["log_offset"][after], side="left") > first
    if (
        log.end is None and index.audited
    ):  # an unfinished audit: what it shows is there all the same, but absence is not concluded
        jumps[:] = False
    return before[jumps], after[jumps], log.rows[first[jumps]]


def _levels_read(index: PartitionIndex) -> list[Isolation]:
    """The isolation levels at which consumers read this partition."""
    clients = {client for _, _, client in index.reader_runs if not index.has(client, index.client_role, Role.AUDIT)}
    committed = {index.has(c, index.client_isolation, Isolation.READ_COMMITTED) for c in clients}
    return [Isolation.READ_COMMITTED if c else Isolation.READ_UNCOMMITTED for c in sorted(committed)]


def rewound(history: PartitionHistory) -> KernelResult:
    """Within one assignment, a client is given no offset that it was already past.

    Source: KafkaConsumer, "Offsets and Consumer Position" ("It will be one larger than the highest offset the consumer has
    seen in that partition. It automatically advances"). Counts steps: pairs of reads in sequence of which the second has no
    higher offset. The witness is the record given (again), `other_*` the one before; `begin_ns` and `end_ns` are the times of
    the first and the second read. The audit is judged too: it is a client like others. O(n).
    """
    index = PartitionIndex.of(history)
    reads = index.reads
    before, after = index.uneven_steps
    back = reads["log_offset"][after] <= reads["log_offset"][before]
    before, after = before[back], after[back]
    count = len(after)
    before, after = before[:WITNESSES_MAX], after[:WITNESSES_MAX]
    columns = {
        "partition": index.partition,
        "client": reads["sender"][after],
        "sequence": reads["sequence"][after],
        "log_offset": reads["log_offset"][after],
        "begin_ns": reads["read_ns"][before],
        "end_ns": reads["read_ns"][after],
        "reader": reads["client"][after],
        "other_client": reads["sender"][before],
        "other_sequence": reads["sequence"][before],
        "other_offset": reads["log_offset"][before],
        "other_ns": reads["read_ns"][before],
    }
    if count:
        columns["seen_ns"] = index.seen(index.read_key[after])["seen_ns"]
    return KernelResult(make_witnesses(len(after), columns), count, judged=index.records_read)
