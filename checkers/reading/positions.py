"""These kernels check what consumers received: records that stay in the log, positions that neither jump nor fall, and
readers that do not stall.

A position is the index of a record among the records of the log. Positions are dense. Offsets are not: transaction markers
and compaction leave holes in them, and a hole is not a record.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from prozess.checkers.agreement import ends_where_agreed
from prozess.checkers.groups.assignments import AT_ASSIGNMENT
from prozess.checkers.lookup import UNREADABLE
from prozess.checkers.partition_index import PartitionIndex
from prozess.checkers.partition_log import Log
from prozess.checkers.reading.silences import asked_readers, holds_records_of_others, silences_of, witness_of
from prozess.checkers.transactions.index import NEVER, CellIndex
from prozess.harness.columns import of_clients, once
from prozess.harness.interfaces.checking import CellHistory, KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import (
    SCAN_NS,
    STALLED_NS,
    WITNESSES_MAX,
    StallCase,
    join_witnesses,
    make_witnesses,
    no_witnesses,
)
from prozess.harness.plan.plan import PlannedClient
from prozess.harness.recording.metrics import MICRO, code_of
from prozess.harness.schema import MISSING, NONE, Isolation, Outcome, Role

DIRTY_GONE = 0
"""Case of `dirty-read`: no record stands where it was read."""
DIRTY_REPLACED = 1
"""Case of `dirty-read`: another record stands where it was read (`other_*`)."""


def dirty_read(history: PartitionHistory) -> KernelResult:
    """Every record that a consumer received is in the log, at the offset where it was read.

    Source: "Only committed messages are ever given out to the consumer",
    https://kafka.apache.org/documentation/#design_ha. Counts reads: each time a consumer received a record that is not in
    L(p), or that stands where L(p) has another one. Not judged: reads behind the sentinel (unless made before it was sent:
    its lower offset proves that the log was cut), what retention or compaction may have removed, unreadable records. Needs
    a complete audit. `begin_ns` and `end_ns` are the send's, `seen_ns` is this read. O(n), O(k log n) for what L(p) does not
    confirm.

    Example: the log is [a b], with a hole at 2, and the sentinel stands at 3. A consumer received x at 1: DIRTY_REPLACED,
    by b. It received y at 2: DIRTY_GONE. What it received at 4, after the sentinel was sent, is not judged.
    """
    index = PartitionIndex.of(history)
    judged = index.consumer_read_count
    if reason := index.incomplete():
        return KernelResult(no_witnesses(), count=0, judged=judged, incomplete=reason)
    reads, sends, log = index.reads, index.sends, index.log
    rows = index.unmatched_reads
    rows = rows[index.read_by_consumer(rows)]
    concerned = index.concerns_log(rows)
    judged -= int(np.count_nonzero(~concerned))
    rows = rows[concerned]
    if not len(rows):
        return KernelResult(no_witnesses(), count=0, judged=judged)
    position = index.positions_of_reads(rows)
    replaced = position >= 0
    if index.unreadable_positions:  # what stands there cannot be distinguished from what was read
        readable = ~replaced | (log.key[position] != UNREADABLE)
        rows, position, replaced = rows[readable], position[readable], replaced[readable]
    # Only a tombstone may vanish with nothing left of its key: whether it is one, its send says.
    send = index.send_rows(index.keys_of_reads(rows))
    tombstone = np.zeros(len(rows), dtype=bool)
    tombstone[send >= 0] = sends["size"][send[send >= 0]] == NONE
    cleaned = index.may_be_cleaned(record_key=reads["key"][rows], offset=reads["log_offset"][rows], tombstone=tombstone)
    # Where another record stands, no cleaning explains it. Where none does, the record may stand elsewhere, or have been
    # cleaned.
    dirty = replaced | ((index.identities.find(index.keys_of_reads(rows)) < 0) & ~cleaned)
    count = int(np.count_nonzero(dirty))
    rows, position, send = rows[dirty][:WITNESSES_MAX], position[dirty][:WITNESSES_MAX], send[dirty][:WITNESSES_MAX]
    columns = {
        "partition": index.partition,
        **index.records_read(rows),
        "reader": reads["client"][rows],
        "seen_ns": reads["read_ns"][rows],
        "leader_epoch": reads["leader_epoch"][rows],
        "case": np.where(position >= 0, DIRTY_REPLACED, DIRTY_GONE),
        **index.record_at(position),
        **index.sent(send),
    }
    return KernelResult(make_witnesses(len(rows), columns), count, judged)


def skipped(history: PartitionHistory) -> KernelResult:
    """Within one assignment, a consumer receives every record that its isolation level shows, from its first position to
    its last.

    Source: https://kafka.apache.org/documentation/#intro_guarantees ("A consumer instance sees records in the order they are
    stored in the log"); KafkaConsumer, "Offsets and Consumer Position" (the position advances to the next record). Counts
    jumps: pairs of reads in sequence, upwards, with records of L(p) (read_committed: V(p)) between them. The witness is the
    first record jumped over; `begin_ns` and `end_ns` are the times of the read before and of the read after, `other_client`
    and `other_sequence` name the latter, `other_offset` is the position that the reader had, `other_ns` is when the record
    jumped over was sent (later than the jump, where the log was cut and written anew). A reader that ended early made no
    jump. Needs the audit at the reader's level. O(n), O(j log n) for j steps that are not 1.

    Example: the log is [a b - c d], where a transaction's marker stands at 2. A reader is given a, b, c, d: its step from 1
    to 3 leads to the next record, and is no jump. Given a, c, d, it jumped over b, which is the witness.
    """
    index = PartitionIndex.of(history)
    reads = index.reads
    before, after = index.uneven_steps
    upwards = index.read_by_consumer(after) & ~index.steps_back
    before, after = before[upwards], after[upwards]
    judged = index.consumer_read_count
    reasons = [reason for level_read in _levels_read(index) if (reason := index.incomplete(level_read))]
    if not len(after):
        return KernelResult(no_witnesses(), 0, judged, incomplete="; ".join(reasons) or None)
    level = of_clients(index.client_isolation, reads["client"][after], unknown=Isolation.NOT_A_READER)
    committed = level == Isolation.READ_COMMITTED.value
    # Each reader is held against the log of his level. The record that he jumped over is a row of the audit's reads (`over`).
    parts = [
        _jumps(index, log_level, before[of_level], after[of_level])
        for log_level, of_level in ((Isolation.READ_UNCOMMITTED, ~committed), (Isolation.READ_COMMITTED, committed))
    ]
    before, after, over = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    count = len(after)
    assert len(before) == len(after) == len(over), "a record for each jump"
    order = np.argsort(after, kind="stable")[:WITNESSES_MAX]
    before, after, over = before[order], after[order], over[order]
    columns = {
        "partition": index.partition,
        **index.records_read(over),
        "begin_ns": reads["read_ns"][before],
        "end_ns": reads["read_ns"][after],
        "reader": reads["client"][after],
        "other_client": reads["sender"][after],
        "other_sequence": reads["sequence"][after],
        "other_offset": reads["log_offset"][before] + 1,
    }
    if count:
        columns["seen_ns"] = index.seen(index.keys_of_reads(over))["seen_ns"]
        if sent := index.sent(index.send_rows(index.keys_of_reads(over))):
            columns["other_ns"] = sent["begin_ns"]
    if count and not index.audited:  # the records it jumped over were seen, or acknowledged
        reasons = []
    return KernelResult(make_witnesses(len(after), columns), count, judged, incomplete="; ".join(reasons) or None)


def _jumps(
    index: PartitionIndex, isolation: Isolation, before: np.ndarray, after: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns those of these pairs of rows that jump over records of L(p) or V(p), and the row by which the audit read
    the first record jumped over."""
    if not len(before):
        return before, after, before
    log = index.visible if isolation is Isolation.READ_COMMITTED else index.log
    if not len(log.offset):
        return before[:0], after[:0], log.rows[:0]
    # Nearly all steps lead from a record of the log to the next one, over the marker of a transaction.
    # If both logs have the same offsets, a position in one is the same in the other, and L(p)'s are computed already.
    if log is index.log or np.array_equal(log.offset, index.log.offset):
        at, to = index.positions_of_reads(before), index.positions_of_reads(after)
    else:
        at, to = (log.positions.find(index.reads["log_offset"][rows]) for rows in (before, after))
    # Example: the log is at 0 1 3 4. A step from 1 to 3 leads from position 1 to position 2, the next one: no jump.
    far = np.flatnonzero((at < 0) | (to != at + 1))
    before, after = before[far], after[far]
    # `first`: the first record of the log behind the read before. It jumped if that one stands in front of the read after.
    assert len(before) == len(after), "a step has two ends"
    first = np.searchsorted(log.offset, index.reads["log_offset"][before], side="right")
    # Example: the log is at 0 1 3 4, and a step leads from 1 to 4: `first` is position 2, and 4 stands at 3 > 2: it jumped
    # over the record at 3. A step from 1 to 2, where nothing stands, has `first` 2 as well, and 2 > 2 is false.
    jumps = np.searchsorted(log.offset, index.reads["log_offset"][after], side="left") > first
    if (
        log.end is None and index.audited
    ):  # an unfinished audit: what it shows is there all the same, but absence is not concluded
        jumps[:] = False
    return before[jumps], after[jumps], log.rows[first[jumps]]


def _levels_read(index: PartitionIndex) -> list[Isolation]:
    """Returns the isolation levels at which consumers read this partition."""
    readers = index.readers
    level = of_clients(index.client_isolation, readers, unknown=Isolation.NOT_A_READER)
    committed = (
        level[of_clients(index.client_role, readers, unknown=NONE) != Role.AUDIT.value]
        == Isolation.READ_COMMITTED.value
    )
    found = [] if committed.all() else [Isolation.READ_UNCOMMITTED]
    return [*found, Isolation.READ_COMMITTED] if committed.any() else found


def rewound(history: PartitionHistory) -> KernelResult:
    """Within one assignment, a client receives no offset that it had already passed.

    Source: KafkaConsumer, "Offsets and Consumer Position" ("It will be one larger than the highest offset the consumer has
    seen in that partition. It automatically advances"). Counts steps: pairs of reads in sequence of which the second has no
    higher offset. The witness is the record given (again), `other_*` the one before; `begin_ns` and `end_ns` are the times of
    the first and the second read. The audit is judged too: it is a client like others. O(n).

    Example: a client is given the offsets 0, 1, 2, 1, 2, 3 in one span. One step leads back, from 2 to 1. The steps after
    it ascend, although they repeat.
    """
    index = PartitionIndex.of(history)
    reads = index.reads
    before, after = index.uneven_steps
    before, after = before[index.steps_back], after[index.steps_back]
    if not len(after):
        return KernelResult(no_witnesses(), 0, judged=index.read_count)
    count = len(after)
    before, after = before[:WITNESSES_MAX], after[:WITNESSES_MAX]
    columns = {
        "partition": index.partition,
        **index.records_read(after),
        "begin_ns": reads["read_ns"][before],
        "end_ns": reads["read_ns"][after],
        "reader": reads["client"][after],
        "other_client": reads["sender"][before],
        "other_sequence": reads["sequence"][before],
        "other_offset": reads["log_offset"][before],
        "other_ns": reads["read_ns"][before],
    }
    columns["seen_ns"] = index.seen(index.keys_of_reads(after))["seen_ns"]
    return KernelResult(make_witnesses(len(after), columns), count, judged=index.read_count)


_LEVELS = {"read_uncommitted": Isolation.READ_UNCOMMITTED, "read_committed": Isolation.READ_COMMITTED}


@dataclass(frozen=True, slots=True)
class ReaderLife:
    """One incarnation of a reader. `beats` are its heartbeats, ascending."""

    client: int
    level: Isolation
    assigned_ns: Mapping[int, int]
    """When each partition was assigned to it."""
    end_ns: int
    beats: np.ndarray


def stalled(history: CellHistory) -> KernelResult:
    """A reader that has unread records to receive gets one within 20 s, or within its own timeout; and the last stable
    offset moves on once no transaction can hold it back.

    Source: KafkaConsumer, "Offsets and Consumer Position"; KIP-98 (a transaction past its timeout is aborted by its
    coordinator). Witness: the first unread record (`client`, `sequence`, `log_offset`), since when it was certainly visible
    and unread (`begin_ns`), until when (`end_ns`), `reader`; `case`: StallCase; `other_ns`, if set, is the bound after
    `begin_ns`. A reader that an application drives is judged while it is asked (poll), once it was given a record or has
    sought an offset; a member of a group while it owns the partition, has not paused it, and polls and is given all that was
    fetched, from what was committed on. A record is certainly visible once the audit was given it, or its acks ≠ 0 send, or
    its transaction's commit, was confirmed; at read_committed not before what stands before it was ended, or must have been
    (transaction.timeout.ms and SCAN_NS after its begin). O(n); loops run over readers, partitions and the silences of
    readers that last long enough: normally none.

    Example: the log is [a b]. A reader got a at 10 s, b was acknowledged at 12 s, and the reader, alive, got b at 40 s: it
    stalled from 12 s to 40 s. Had b been acknowledged at 30 s, there would be no finding: it waited 10 s.
    """
    index = CellIndex.of(history)
    lives, ends = lives_of(history), ends_where_agreed(history)
    found, judged = list[np.ndarray](), 0
    for partition in index.partitions:
        mine = [life for life in lives if partition.partition in life.assigned_ns]
        judged += len(mine)
        end = ends.get(partition.partition)
        found += [witness for life in mine for witness in _silences(history, index, partition, life, end)]
        asked = _asked(history, index, partition)
        judged += len(asked)
        found += [witness for witnesses in asked for witness in witnesses]
        found.append(_stable_offsets(history, index, partition))
    witnesses = join_witnesses(found)
    reasons = [r for one in index.partitions if one.partition not in ends and (r := one.incomplete())]
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), judged, incomplete="; ".join(reasons) or None)


# Readers.


def lives_of(history: CellHistory) -> list[ReaderLife]:
    """Returns each incarnation of each reader of a cell."""
    if not len(history.tables["heartbeats"]["client"]):  # nothing shows that any of them lived, as in imports
        return []
    return once(history.tables["positions"], ReaderLife, lambda: _find_lives(history))


def _find_lives(history: CellHistory) -> list[ReaderLife]:
    return [life for client in history.clients if client.role == "reader" for life in _lives(history, client)]


def _lives(history: CellHistory, reader: PlannedClient) -> list[ReaderLife]:
    assert reader.isolation_level is not None, reader
    table, positions = history.tables["clients"], history.tables["positions"]
    lives = []
    for row in np.flatnonzero(table["planned"] == reader.client).tolist():
        client = int(table["client"][row])
        rows = np.flatnonzero((positions["client"] == client) & (positions["event"] == AT_ASSIGNMENT))
        rows = rows[np.argsort(positions["time_ns"][rows], kind="stable")[::-1]]  # the first one stays
        assigned_ns = dict(zip(positions["partition"][rows].tolist(), positions["time_ns"][rows].tolist(), strict=True))
        beats, ended_ns = _beats(history, client), int(table["ended_ns"][row])
        if len(beats):
            end_ns = int(beats.max()) if ended_ns == MISSING else ended_ns
            lives.append(ReaderLife(client, _LEVELS[reader.isolation_level], assigned_ns, end_ns, beats))
    return lives


def _beats(history: CellHistory, client: int) -> np.ndarray:
    hearts = history.tables["heartbeats"]
    return np.sort(hearts["time_ns"][hearts["client"] == client])


def _silences(
    history: CellHistory,
    index: CellIndex,
    partition: PartitionIndex,
    life: ReaderLife,
    end: int | None,
) -> list[np.ndarray]:
    """Returns a witness for each long stretch in which this client received nothing of the partition, although there was
    something to read. `end`: the offset behind its last record, if that is known without a look at its log."""
    runs = [(a, b) for a, b, reader in partition.reader_runs if reader == life.client]
    first, last = runs[0] if runs else (0, 0)
    times = np.concatenate(
        [[life.assigned_ns[partition.partition]], partition.reads["read_ns"][first:last], [life.end_ns]]
    )
    silent = np.flatnonzero(np.diff(times) >= STALLED_NS)
    if not len(silent):
        return []
    # Before each gap: the greatest offset that the reader had been given. -1 before its first record.
    # Example: assigned at 0 s, records 5 and 6 at 1 s and 2 s, ended at 60 s. The times are 0 1 2 60, the gap is from 2 to
    # 60, and before it 6 was reached: the first unread record is the first of the log behind 6.
    reached = np.concatenate([[-1], np.maximum.accumulate(partition.reads["log_offset"][first:last])])
    if end is not None and (reached[silent] + 1 >= end).all():
        return []
    log = partition.log if life.level is Isolation.READ_UNCOMMITTED else partition.visible
    assert len(reached) == len(times) - 1, "an offset before each gap"
    since_ns = _visible_since(partition, log)
    found = []
    for gap in silent.tolist():
        # The first record at or behind the next offset: offsets may have holes, so the next record need not stand there.
        unread = int(np.searchsorted(log.offset, reached[gap] + 1))
        if unread == len(log.offset):  # it had read everything
            continue
        start_ns = max(int(times[gap]), int(since_ns[unread]))
        if life.level is Isolation.READ_COMMITTED:
            start_ns = max(start_ns, _held_until(history, index, partition, int(log.offset[unread])))
            start_ns = _stable_from(history, partition, int(log.offset[unread]), (start_ns, int(times[gap + 1])))
        wait, row = (start_ns, int(times[gap + 1])), int(log.rows[unread])
        found += witness_of(partition, row, life.client, life.beats, wait, STALLED_NS, named=False)
    return found


def _asked(history: CellHistory, index: CellIndex, partition: PartitionIndex) -> list[list[np.ndarray]]:
    """Returns, for each reader of which rows say when it was asked, a witness for each long time in which it was asked and
    given nothing of the partition, although there was something to read after what it had been given before."""
    found = []
    for reader in asked_readers(history):
        committed = reader.isolation is Isolation.READ_COMMITTED
        if partition.partition not in reader.planned.partitions or (committed and holds_records_of_others(partition)):
            continue
        log, mine = partition.visible if committed else partition.log, list[np.ndarray]()
        found.append(mine)
        since_ns = cache(partial(_visible_since, partition, log))
        for unread, (begin_ns, end_ns) in silences_of(history, partition, log, since_ns, reader):
            if committed:
                begin_ns = max(begin_ns, _held_until(history, index, partition, int(log.offset[unread])))
                begin_ns = _stable_from(history, partition, int(log.offset[unread]), (begin_ns, end_ns))
            wait, row, beats = (begin_ns, end_ns), int(log.rows[unread]), _beats(history, reader.client)
            mine += witness_of(partition, row, reader.client, beats, wait, reader.bound_ns, named=True)
    return found


def _visible_since(partition: PartitionIndex, log: Log) -> np.ndarray:
    """Returns int64[records of the log]: since when this record, or a later one, was certainly visible."""
    sends, send = partition.sends, partition.send_rows(log.key)
    acks = of_clients(partition.client_acks, partition.reads["sender"][log.rows], unknown=0)
    confirmed = (send >= 0) & (acks != 0)
    confirmed[confirmed] = sends["outcome"][send[confirmed]] == Outcome.OK.value
    # When the audit was given it, at the latest; when it was acknowledged, if that is known and was before.
    since_ns: np.ndarray = partition.reads["read_ns"][log.rows].copy()
    since_ns[confirmed] = np.minimum(since_ns[confirmed], sends["completed_ns"][send[confirmed]])
    # If a later record is visible, so is this one: the least of all times from here to the end.
    return np.minimum.accumulate(since_ns[::-1])[::-1]


def _held_until(history: CellHistory, index: CellIndex, partition: PartitionIndex, offset: int) -> int:
    """Returns when every transaction that wrote up to this offset had ended, or should have been aborted. -NEVER: there
    is no such transaction."""
    cell, transactions = history.cell, index.transactions
    if cell.transaction is None:
        return -NEVER
    rows, slot = index.transactions_of_sends(partition)
    there = partition.sends["log_offset"][rows]
    # A record of which nobody knows where it stands may stand in front.
    slot = slot[(there <= offset) | (there == NONE)]
    if not len(slot):
        return -NEVER
    columns = transactions.columns
    # A transaction holds readers back until it ended, but no longer than its coordinator leaves it open.
    limit_ns = columns["begun_ns"][slot] + cell.transaction.transaction_timeout_ms * 1_000_000 + SCAN_NS
    ended = (columns["completed_ns"][slot] != MISSING) & (columns["outcome"][slot] != Outcome.INFO.value)
    return int(np.where(ended, np.minimum(columns["completed_ns"][slot], limit_ns), limit_ns).max())


# The last stable offset.


def _stable_from(history: CellHistory, partition: PartitionIndex, offset: int, wait: tuple[int, int]) -> int:
    """Returns from when in this time leaders reported a last stable offset above `offset`. While they report a lower one,
    a reader at read_committed is given nothing there, and what stands still is the last stable offset.

    Example: 130 at 15, 16, … 69 s, and 140 at 70 s. Offset 134 could be read from 70 s on. If 140 was never reported in this
    time: from 69 s on. If nothing was, or 140 first: from the beginning."""
    time_ns, stable = _series(history.tables["leader_offsets"], "last_stable_offset", partition.partition)
    first, last = np.searchsorted(time_ns, [wait[0], wait[1]])
    reported = np.asarray(stable[first:last]) > offset
    if not len(reported) or reported[0]:
        return wait[0]
    above = int(np.argmax(reported)) if reported.any() else len(reported) - 1
    return int(time_ns[first + above])


def _stable_offsets(history: CellHistory, index: CellIndex, partition: PartitionIndex) -> np.ndarray:
    """Returns a witness for each stretch in which leaders reported the same last stable offset, below the high
    watermark, for longer than any transaction may take."""
    if not len(history.tables["leader_offsets"]["metric"]):
        return no_witnesses()
    stable_ns, stable = _series(history.tables["leader_offsets"], "last_stable_offset", partition.partition)
    high_ns, high = _series(history.tables["leader_offsets"], "high_watermark", partition.partition)
    if not len(stable) or not len(high):
        return no_witnesses()
    # Times at which the value stayed the same: from each first report of a value to its last.
    # Example: reported were 7 7 7 9. The values begin at 0 and 3, and last until 2 and 3.
    new = np.flatnonzero(np.concatenate([[True], stable[1:] != stable[:-1]]))
    last = np.concatenate([new[1:], [len(stable)]]) - 1
    long = np.flatnonzero(stable_ns[last] - stable_ns[new] >= STALLED_NS)
    found = []
    for begin, end in zip(new[long].tolist(), last[long].tolist(), strict=True):
        above = high_ns[(high > stable[begin]) & (high_ns >= stable_ns[begin]) & (high_ns <= stable_ns[end])]
        if not len(above):
            continue
        # From when something was above it, and no transaction held it any more, until the last report of both.
        begin_ns = max(int(above[0]), _held_until(history, index, partition, int(stable[begin])))
        end_ns = int(min(stable_ns[end], above[-1]))
        if end_ns - begin_ns >= STALLED_NS:
            columns = {"partition": partition.partition, "log_offset": int(stable[begin])}
            columns |= {"begin_ns": begin_ns, "end_ns": end_ns, "case": StallCase.STABLE_OFFSET}
            found.append(make_witnesses(1, columns))
    return join_witnesses(found)


def _series(
    table: Mapping[str, np.ndarray], metric: str, partition: int
) -> tuple[np.ndarray, Sequence[int] | np.ndarray]:
    """Returns (time_ns, offset) of one partition, ascending."""
    mine = (table["metric"] == code_of(metric)) & (table["partition"] == partition) & (table["absent"] == 0)
    rows = np.flatnonzero(mine)
    rows = rows[np.argsort(table["time_ns"][rows], kind="stable")]
    return table["time_ns"][rows], table["value_micro"][rows] // MICRO
