"""Readers that are given nothing although there is something, and last stable offsets that stand still. Kernel over a whole
cell; stage check.

What happened to brokers meanwhile is not looked at here: the guarantee table asks the envelope for a stretch without faults,
elections and gaps in the ISR that is as long as the stated time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from checkers.arrays import PartitionIndex
from checkers.log_arrays import Log
from checkers.transaction_arrays import CellIndex
from checkers.transaction_rows import NEVER
from harness.metrics import MICRO, code_of
from harness.plan import PlannedClient
from harness.protocols import CellHistory, KernelResult
from harness.schema import MISSING, NONE, Isolation, Outcome
from harness.stalls import SCAN_NS, STALLED_NS, StallCase
from harness.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses

BEAT_GAP_NS = 1_000_000_000
"""A heart that is silent for longer stood still."""
ASSIGNED = 1
"""`positions.event`."""
_LEVELS = {"read_uncommitted": Isolation.READ_UNCOMMITTED, "read_committed": Isolation.READ_COMMITTED}


@dataclass(frozen=True, slots=True)
class Life:
    """One incarnation of a reader; `beats`: its heartbeats, ascending."""

    client: int
    level: Isolation
    assigned_ns: Mapping[int, int]
    """Partition → since when it was assigned it."""
    end_ns: int
    beats: np.ndarray


def stalled(history: CellHistory) -> KernelResult:
    """A reader of a partition with unread records that its isolation level shows is given one within STALLED_NS; and the last
    stable offset moves on once no transaction can hold it back.

    Source: KafkaConsumer, "Offsets and Consumer Position"; KIP-98 (a transaction past its timeout is aborted by its
    coordinator). Witness: the first unread record (`client`, `sequence`, `log_offset`), since when it was certainly visible
    and unread (`begin_ns`), until when (`end_ns`), `reader`; `case`: StallCase. A record is certainly visible once the audit
    was given it, or its acks ≠ 0 send, or its transaction's commit, was confirmed; at read_committed not before what stands
    before it was ended, or must have been (transaction.timeout.ms and SCAN_NS after its begin). O(n); loops run over readers,
    partitions and the silences of readers that last long enough: normally none.
    """
    index = CellIndex.of(history)
    lives = lives_of(history)
    found, judged = [no_witnesses()], 0
    for partition in index.partitions:
        mine = [life for life in lives if partition.partition in life.assigned_ns]
        judged += len(mine)
        found += [witness for life in mine for witness in _silences(history, index, partition, life)]
        found.append(_stable_offsets(history, index, partition))
    witnesses = np.concatenate(found)
    reasons = [r for partition in index.partitions if (r := partition.incomplete())]
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), judged, incomplete="; ".join(reasons) or None)


# --- readers --------------------------------------------------------------------------------------------------------


def lives_of(history: CellHistory) -> list[Life]:
    """Each incarnation of each reader of a cell."""
    return [life for client in history.clients if client.role == "reader" for life in _lives(history, client)]


def _lives(history: CellHistory, reader: PlannedClient) -> list[Life]:
    assert reader.isolation_level is not None, reader
    table, positions = history.tables["clients"], history.tables["positions"]
    lives = []
    for row in np.flatnonzero(table["planned"] == reader.client).tolist():
        client = int(table["client"][row])
        rows = np.flatnonzero((positions["client"] == client) & (positions["event"] == ASSIGNED))
        rows = rows[np.argsort(positions["time_ns"][rows], kind="stable")[::-1]]  # the first one stays
        assigned_ns = dict(zip(positions["partition"][rows].tolist(), positions["time_ns"][rows].tolist(), strict=True))
        beats, ended_ns = _beats(history, client), int(table["ended_ns"][row])
        if len(beats):
            end_ns = int(beats.max()) if ended_ns == MISSING else ended_ns
            lives.append(Life(client, _LEVELS[reader.isolation_level], assigned_ns, end_ns, beats))
    return lives


def _beats(history: CellHistory, client: int) -> np.ndarray:
    hearts = history.tables["heartbeats"]
    return np.sort(hearts["time_ns"][hearts["client"] == client])


def _silences(
    history: CellHistory,
    index: CellIndex,
    partition: PartitionIndex,
    life: Life,
) -> list[np.ndarray]:
    """Stretches in which this client was given nothing of the partition, although there was something, long enough."""
    runs = [(a, b) for a, b, who in partition.reader_runs if who == life.client]
    first, last = runs[0] if runs else (0, 0)
    times = np.concatenate(
        [[life.assigned_ns[partition.partition]], partition.reads["read_ns"][first:last], [life.end_ns]]
    )
    silent = np.flatnonzero(np.diff(times) >= STALLED_NS)
    if not len(silent):
        return []
    reached = np.concatenate([[-1], np.maximum.accumulate(partition.reads["log_offset"][first:last])])
    log = partition.log if life.level is Isolation.READ_UNCOMMITTED else partition.visible
    since_ns = _visible_since(partition, log)
    found = []
    for gap in silent.tolist():
        unread = int(np.searchsorted(log.offset, reached[gap] + 1))
        if unread == len(log.offset):
            continue
        start_ns = max(int(times[gap]), int(since_ns[unread]))
        if life.level is Isolation.READ_COMMITTED:
            start_ns = max(start_ns, _held_until(history, index, partition, int(log.offset[unread])))
        found += _witness(partition, log.rows[unread], life, (start_ns, int(times[gap + 1])))
    return found


def _visible_since(partition: PartitionIndex, log: Log) -> np.ndarray:
    """int64[records of the log]: from when on this record, or a later one, was certainly visible."""
    sends, send = partition.sends, partition.send_rows(log.key)
    acks = partition.fact(partition.client_acks, partition.reads["sender"][log.rows], unknown=0)
    told = (send >= 0) & (acks != 0)
    told[told] = sends["outcome"][send[told]] == Outcome.OK
    since_ns: np.ndarray = partition.reads["read_ns"][log.rows].copy()
    since_ns[told] = np.minimum(since_ns[told], sends["completed_ns"][send[told]])
    return np.minimum.accumulate(since_ns[::-1])[::-1]


def _held_until(history: CellHistory, index: CellIndex, partition: PartitionIndex, offset: int) -> int:
    """When every transaction that wrote up to this offset had ended, or ought to have been aborted; -NEVER: there is none."""
    cell, transactions = history.cell, index.transactions
    if cell.transaction is None:
        return -NEVER
    rows, place = index.transactions_of_sends(partition)
    there = partition.sends["log_offset"][rows]
    place = place[(there <= offset) | (there == NONE)]
    if not len(place):
        return -NEVER
    columns = transactions.columns
    limit_ns = columns["begun_ns"][place] + cell.transaction.transaction_timeout_ms * 1_000_000 + SCAN_NS
    ended = (columns["completed_ns"][place] != MISSING) & (columns["outcome"][place] != Outcome.INFO)
    return int(np.where(ended, np.minimum(columns["completed_ns"][place], limit_ns), limit_ns).max())


def _witness(partition: PartitionIndex, row: int, life: Life, stretch: tuple[int, int]) -> list[np.ndarray]:
    begin_ns, end_ns = stretch
    if end_ns - begin_ns < STALLED_NS:
        return []
    inside = life.beats[(life.beats > begin_ns) & (life.beats < end_ns)]
    edges = np.concatenate([[begin_ns], inside, [end_ns]])
    still = np.flatnonzero(np.diff(edges) > BEAT_GAP_NS)
    bounds = [(int(a), int(b)) for a, b in zip([begin_ns, *edges[still + 1]], [*edges[still], end_ns], strict=True)]
    longest = max(bounds, key=lambda bound: bound[1] - bound[0])
    alive = longest[1] - longest[0] >= STALLED_NS
    begin_ns, end_ns = longest if alive else stretch
    columns = {
        "partition": partition.partition,
        "client": int(partition.reads["sender"][row]),
        "sequence": int(partition.reads["sequence"][row]),
        "log_offset": int(partition.reads["log_offset"][row]),
        "reader": life.client,
        "begin_ns": begin_ns,
        "end_ns": end_ns,
        "case": StallCase.READER if alive else StallCase.STARVED,
    }
    return [make_witnesses(1, columns)]


# --- the last stable offset -----------------------------------------------------------------------------------------


def _stable_offsets(history: CellHistory, index: CellIndex, partition: PartitionIndex) -> np.ndarray:
    """Stretches in which leaders said the same last stable offset, below the high watermark, too long for any transaction."""
    stable_ns, stable = _series(history.tables["leader_offsets"], "last_stable_offset", partition.partition)
    high_ns, high = _series(history.tables["leader_offsets"], "high_watermark", partition.partition)
    if not len(stable) or not len(high):
        return no_witnesses()
    new = np.flatnonzero(np.concatenate([[True], stable[1:] != stable[:-1]]))
    last = np.concatenate([new[1:], [len(stable)]]) - 1
    long = np.flatnonzero(stable_ns[last] - stable_ns[new] >= STALLED_NS)
    found = [no_witnesses()]
    for begin, end in zip(new[long].tolist(), last[long].tolist(), strict=True):
        above = high_ns[(high > stable[begin]) & (high_ns >= stable_ns[begin]) & (high_ns <= stable_ns[end])]
        if not len(above):
            continue
        begin_ns = max(int(above[0]), _held_until(history, index, partition, int(stable[begin])))
        end_ns = int(min(stable_ns[end], above[-1]))
        if end_ns - begin_ns >= STALLED_NS:
            columns = {"partition": partition.partition, "log_offset": int(stable[begin])}
            columns |= {"begin_ns": begin_ns, "end_ns": end_ns, "case": StallCase.STABLE_OFFSET}
            found.append(make_witnesses(1, columns))
    return np.concatenate(found)


def _series(
    told: Mapping[str, np.ndarray], metric: str, partition: int
) -> tuple[np.ndarray, Sequence[int] | np.ndarray]:
    """(time_ns, offset) of one partition, ascending."""
    mine = (told["metric"] == code_of(metric)) & (told["partition"] == partition) & (told["absent"] == 0)
    rows = np.flatnonzero(mine)
    rows = rows[np.argsort(told["time_ns"][rows], kind="stable")]
    return told["time_ns"][rows], told["value_micro"][rows] // MICRO
