"""The rows of a group's member: what it processed, what it committed, what it was assigned. They are written before,
and completed after."""

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from confluent_kafka import KafkaError, TopicPartition

from prozess.harness.columns import row_dtype
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import ASSIGNMENTS, COMMITS, MISSING, NONE, PROCESSED, Outcome, Table
from prozess.workloads.client import NowNs

_PROCESSED_ROW = row_dtype(PROCESSED)

SYNC, ASYNC, AUTO, IN_TRANSACTION = 1, 2, 3, 4
"""Values of `commits.mode`."""
ASSIGN, REVOKE, LOST, CLOSE = 1, 2, 3, 4
"""Values of `assignments.event`."""
ASSIGNED, SOUGHT, RESET, PAUSED, RESUMED = 1, 2, 3, 4, 5
"""Values of `positions.event`."""
REMEMBERED_MAX = 1000
"""Batches that are remembered: more than there can be automatic commits under way."""
NEVER_SENT = frozenset({KafkaError._NO_OFFSET, KafkaError._STATE})
"""Codes of a commit that never left the client. Every other error is INFO, a refusal by the coordinator included: librdkafka
sends a commit again by itself, and what is refused may be the second copy of one that was written."""


def commit_outcome(error: KafkaError | None) -> tuple[int, int]:
    """Returns what is recorded of a commit that ended so: (Outcome, code). FAIL: it never left the client (NEVER_SENT)."""
    if error is None:
        return int(Outcome.OK), 0
    code = error.code()
    return int(Outcome.FAIL if code in NEVER_SENT else Outcome.INFO), code


class ProcessedRows:
    """Writes rows of `processed`, many at once."""

    def __init__(self, rows: Path, client: int, group: int) -> None:
        self._writer, self._group = RowWriter(rows, PROCESSED, client), group

    @property
    def count(self) -> int:
        """Returns how many rows there are."""
        return self._writer.count

    def begin(self, columns: Mapping[str, np.ndarray], *, started_ns: int) -> int:
        """Writes unfinished rows of records (columns of `reads`) that begin to be processed. Returns the index of the
        first."""
        first, length = self._writer.count, len(columns["log_offset"])
        kept = {name: columns[name] for name in ("log_offset", "sequence", "sender", "partition", "span")}
        assert all(len(column) == length for column in kept.values()), "the columns of one batch have one length"
        self._writer.extend(
            {
                **kept,
                "started_ns": np.full(length, started_ns, dtype=np.int64),
                "done_ns": np.full(length, MISSING, dtype=np.int64),
                "group": np.full(length, self._group, dtype=np.int32),
            }
        )
        return first

    def done(self, first: int, *, done_ns: int, count: int | None = None) -> None:
        """Completes `count` rows from `first` on as processed (None = all that there are): in place, segment by
        segment."""
        size, end = _PROCESSED_ROW.itemsize, self._writer.count if count is None else first + count
        assert first >= 0, f"row {first} is no row"
        assert end <= self._writer.count, f"there are {self._writer.count} rows, and not {end}"
        while first < end:
            mapping, start, after = self._writer.segment_at(first)
            take = min(end, after) - first
            rows = np.frombuffer(mapping, dtype=_PROCESSED_ROW, count=take, offset=(first - start) * size)
            rows["done_ns"] = done_ns
            first += take

    def close(self) -> None:
        """Writes the rows to their end."""
        self._writer.close()


class CommitRows:
    """Writes rows of `commits`: one per partition, before the commit. Its answer completes them."""

    def __init__(self, rows: Path, client: int, group: int, now_ns: NowNs) -> None:
        self._writer, self._group, self._now_ns = RowWriter(rows, COMMITS, client), group, now_ns
        self._open: dict[tuple[int, int], deque[tuple[int, int, int]]] = {}
        """Asynchronous commits without an answer, oldest first: (partition, offset) → (row, invoked, position)."""
        self._unsettled: list[tuple[int, int, int, int, tuple[int, int]]] = []
        """Automatic commits whose position is not known yet: (row, completed, partition, offset, outcome and code)."""
        self._begun_ns, self._forgotten = now_ns(), False
        self._reached: dict[int, deque[tuple[int, int]]] = {}
        """What librdkafka may have committed by itself, in order of time: partition → (next offset, since when)."""

    def may_commit(self, offsets: Mapping[int, int], *, since_ns: int) -> None:
        """Notes that librdkafka may commit these by itself from `since_ns` on."""
        for partition, offset in offsets.items():
            self._reached.setdefault(partition, deque()).append((offset, since_ns))

    def begin(self, offsets: Mapping[int, int], positions: np.ndarray, *, mode: int) -> dict[int, int]:
        """Writes the rows of a commit that is about to be made: partition → row."""
        now_ns = self._now_ns()
        rows = {}
        for partition, offset in offsets.items():
            position = int(positions[partition])
            values = (partition, offset, position, mode)
            rows[partition] = self._append(now_ns, MISSING, *values, int(Outcome.INFO), 0)
            if mode == ASYNC:
                self._open.setdefault((partition, offset), deque()).append((rows[partition], now_ns, position))
            else:
                self._invoked = now_ns
        return rows

    def complete(
        self,
        rows: Mapping[int, int],
        offsets: Mapping[int, int],
        positions: np.ndarray,
        errors: Mapping[int, KafkaError | None],
        *,
        mode: int = SYNC,
    ) -> None:
        """Completes a synchronous commit, or one in a transaction, for the partitions of `errors`."""
        assert errors.keys() <= rows.keys(), "a commit was answered for a partition that it did not have"
        now_ns = self._now_ns()
        for partition, error in errors.items():
            values = (partition, offsets[partition], int(positions[partition]), mode)
            self._rewrite(rows[partition], self._invoked, now_ns, *values, *commit_outcome(error))

    def answered(
        self,
        partition: int,
        offset: int,
        error: KafkaError | None,
        *,
        position: int,
        auto: bool,
        within_call: bool = False,
    ) -> None:
        """Takes librdkafka's offset commit callback for one partition. What nobody asked for, librdkafka committed by
        itself: at some moment since it was given that offset, for several such commits are under way at once.

        `within_call`: the call that serves the callback may have taken records for the application before it, which
        count as delivered and are in its hands only when the call returns. Then the position is not known before
        `settle`. [rd_kafka_q_serve_rkmessages: it stores the offset of each record that it puts into the batch, and serves
        other callbacks in the same loop]"""
        now_ns, waiting = self._now_ns(), self._open.get((partition, offset))
        if waiting:
            row, invoked_ns, then = waiting.popleft()
            self._rewrite(row, invoked_ns, now_ns, partition, offset, then, ASYNC, *commit_outcome(error))
        elif auto:
            since_ns, outcome = self._since_ns(partition, offset), commit_outcome(error)
            known_position = NONE if within_call else position
            row = self._append(since_ns, now_ns, partition, offset, known_position, AUTO, *outcome)
            if within_call:
                self._unsettled.append((row, now_ns, partition, offset, outcome))

    def settle(self, positions: np.ndarray) -> None:
        """Completes the automatic commits that were answered within a call which has returned. `positions`: by dense
        partition, with the records that it returned."""
        for row, now_ns, partition, offset, outcome in self._unsettled:
            since_ns, position = self._since_ns(partition, offset), int(positions[partition])
            self._rewrite(row, since_ns, now_ns, partition, offset, position, AUTO, *outcome)
        self._unsettled.clear()

    def forget(self) -> None:
        """Forgets the commits that are under way: another consumer goes on, and they are not answered any more."""
        self._open.clear()
        self._reached.clear()
        self._begun_ns, self._forgotten = self._now_ns(), False

    def _since_ns(self, partition: int, offset: int) -> int:
        """Returns when the offset was first reached, in whatever assignment."""
        reached = self._reached.get(partition, deque())
        while len(reached) > REMEMBERED_MAX:
            reached.popleft()
            self._forgotten = True
        if self._forgotten and reached and offset <= reached[0][0]:
            return self._begun_ns
        return next((since_ns for there, since_ns in reached if there >= offset), self._begun_ns)

    def close(self) -> None:
        """Writes the rows to their end."""
        self._writer.close()

    def _append(self, *values: int) -> int:
        return self._writer.append(*self._row(*values))

    def _rewrite(self, index: int, *values: int) -> None:
        self._writer.rewrite(index, *self._row(*values))

    def _row(
        self,
        invoked_ns: int,
        completed_ns: int,
        partition: int,
        offset: int,
        position: int,
        mode: int,
        outcome: int,
        code: int,
    ) -> tuple[int, ...]:
        values = {
            "invoked_ns": invoked_ns,
            "completed_ns": completed_ns,
            "log_offset": offset,
            "position": position,
            "partition": partition,
            "group": self._group,
            "outcome": outcome,
            "code": code,
            "mode": mode,
        }
        return tuple(values[column.name] for column in COMMITS.columns)


class AssignmentRows:
    """Writes rows of `assignments`: one per partition of a callback, before what it does. They are completed when it
    returns."""

    def __init__(self, rows: Path, client: int, group: int, now_ns: NowNs, *, incremental: bool) -> None:
        self._writer, self._group, self._now_ns = RowWriter(rows, ASSIGNMENTS, client), group, now_ns
        self._incremental = int(incremental)

    def begin(self, event: int, partitions: Sequence[int], started_ns: int) -> list[tuple[int, int, int, int]]:
        """Writes unfinished rows; an empty callback has one row, of no partition."""
        begun = []
        for partition in partitions or (NONE,):
            row = self._writer.append(*self._row(started_ns, MISSING, partition, event))
            begun.append((row, started_ns, partition, event))
        return begun

    def done(self, begun: Sequence[tuple[int, int, int, int]], *, done_ns: int | None = None) -> None:
        """Completes the rows: the callback returns now, or did at `done_ns`."""
        now_ns = self._now_ns() if done_ns is None else done_ns
        for row, started_ns, partition, event in begun:
            self._writer.rewrite(row, *self._row(started_ns, now_ns, partition, event))

    def close(self) -> None:
        """Writes the rows to their end."""
        self._writer.close()

    def _row(self, started_ns: int, done_ns: int, partition: int, event: int) -> tuple[int, ...]:
        values = {
            "started_ns": started_ns,
            "done_ns": done_ns,
            "partition": partition,
            "group": self._group,
            "event": event,
            "incremental": self._incremental,
        }
        return tuple(values[column.name] for column in ASSIGNMENTS.columns)


def by_partition(found: Sequence[TopicPartition], dense: Mapping[tuple[str, int], int]) -> dict[int, TopicPartition]:
    """Returns what librdkafka says of partitions, by dense id. Topics that are none of ours are left out."""
    named = {dense.get((p.topic, p.partition), NONE): p for p in found}
    named.pop(NONE, None)
    return named


def in_order(table: Table, values: Mapping[str, int]) -> list[int]:
    """Returns the values of a row in the order of its table; NONE where there is none."""
    return [int(values.get(column.name, NONE)) for column in table.columns]
