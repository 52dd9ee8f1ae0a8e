"""Where a group member stands in its partitions: assigned, reset, sought, paused, resumed; each a row of `positions`."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, OFFSET_STORED, Consumer, KafkaException, TopicPartition

from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import NONE, POSITIONS
from prozess.workloads.client import Client
from prozess.workloads.log.reader import ReadRows
from prozess.workloads.record.members import ASSIGNED, PAUSED, RESET, RESUMED, SOUGHT

LOOK_UP_S = 1.0
"""The limit for offsets that are looked up while the member works."""


class MemberPositions:
    """The positions of one member in its partitions. Every assignment and every seek begins a span."""

    def __init__(self, client: Client, reads: ReadRows, *, eager: bool) -> None:
        self._client, self._reads, self._eager = client, reads, eager
        self._rows = RowWriter(client.rows, POSITIONS, client.spec.client)
        self._names = {dense: (topic, number) for dense, topic, number in client.spec.partitions}
        self._spans = -1
        self._owned: set[int] = set()
        self._unresolved: set[int] = set()
        """Partitions that were assigned without a committed offset, and of which no record came yet."""
        self._lost: set[int] = set()
        """Partitions without a position, which has to be sought."""
        self._paused: set[int] = set()
        """Partitions that are paused."""
        self._at_start: set[int] = set()
        """Partitions that were sought to their log start, and of which no record came yet."""

    def assigned(self, dense: int, offset: int, time_ns: int, *, resolved: bool) -> None:
        """Notes an assignment at the committed offset; NONE = it was not reported, or (not `resolved`) there is none."""
        self._owned.add(dense)
        if not resolved:
            self._unresolved.add(dense)
        self._begin_span(dense, offset, ASSIGNED, time_ns)

    def forget(self, partitions: Iterable[int]) -> None:
        """Forgets partitions that were taken away."""
        for held in (self._owned, self._unresolved, self._lost, self._at_start):
            held.difference_update(partitions)

    def lost(self, dense: int) -> None:
        """Notes that librdkafka has no position there (auto.offset.reset=error), so that the application has to choose
        one."""
        if dense in self._owned:
            self._lost.add(dense)

    def given(self, consumer: Consumer, columns: Mapping[str, np.ndarray], expected: np.ndarray) -> None:
        """Notes that records were given. `expected`: by dense partition, the offset that was next before; NONE = not
        known. Reports where auto.offset.reset led, which librdkafka does not: without a committed offset, by the
        first record; out of range, by a jump over a position that the log start has passed."""
        partitions, first = np.unique(columns["partition"], return_index=True)
        offsets = columns["log_offset"][first]
        self._at_start.difference_update(partitions.tolist())
        unresolved = np.isin(partitions, list(self._unresolved))
        jumped = (expected[partitions] >= 0) & (offsets > expected[partitions]) & ~unresolved
        for at in np.flatnonzero(unresolved).tolist():
            self._unresolved.discard(int(partitions[at]))
            self._append(int(partitions[at]), int(offsets[at]), RESET)
        for at in np.flatnonzero(jumped).tolist():  # seldom: each costs a request
            self._jumped(consumer, int(partitions[at]), int(expected[partitions[at]]), int(offsets[at]))

    def pause(self, consumer: Consumer, dense: int, at: int) -> None:
        """Pauses a partition. `at`: the offset of the record that holds it up. What librdkafka has fetched already is
        thrown away, and fetched again from behind what it has given. [rd_kafka_toppar_pause_resume]"""
        self._append(dense, at, PAUSED)
        self._paused.add(dense)
        consumer.pause([TopicPartition(*self._names[dense])])

    def resume(self, consumer: Consumer, dense: int) -> None:
        """Resumes a partition where it stands, unless it was taken away meanwhile. librdkafka learns where that is:
        seen on a starved machine, once in some thousand pauses, it went on from where it had first begun instead
        (compare librdkafka#4637)."""
        if dense not in self._owned:
            return
        at = int(self._reads.next_offset[dense])
        self._append(dense, at, RESUMED)
        try:
            consumer.seek(TopicPartition(*self._names[dense], at))
        except KafkaException as error:
            self._client.log(f"partition {dense} goes on without a seek to {at}: {error.args[0].str()}")
        self._paused.discard(dense)
        consumer.resume([TopicPartition(*self._names[dense])])

    def let_go(self, consumer: Consumer, partitions: Sequence[int]) -> None:
        """Resumes those of these partitions that are paused, before they are given up: librdkafka keeps them paused for as
        long as the consumer lives, also if it is assigned them again (librdkafka#1849; Java forgets it)."""
        for dense in self._paused.intersection(partitions):
            self._paused.discard(dense)
            try:
                consumer.resume([TopicPartition(*self._names[dense])])
            except KafkaException as error:  # a consumer that died
                self._client.log(f"partition {dense} was not resumed: {error.args[0].str()}")

    def seek_what_is_due(self, consumer: Consumer) -> None:
        """Goes back to the log start of every partition that has lost its position."""
        due, self._lost = self._lost, set()
        if not due:
            return
        for dense in sorted(due):
            self._begin_span(dense, NONE, SOUGHT, self._client.now_ns())
            self._client.log(f"partition {dense} has no position; back to its log start")
        self._at_start |= due
        try:
            self._assign_anew(consumer, due)
        except KafkaException as error:
            self._client.log(f"seeking failed: {error.args[0].str()}; trying again")
            self._lost |= due

    def back_to(self, consumer: Consumer, dense: int, offset: int) -> bool:
        """Seeks to an offset; NONE: to the log start. Returns False if librdkafka refuses, so that it has to be tried
        again."""
        there = OFFSET_BEGINNING if offset == NONE else offset
        try:
            consumer.seek(TopicPartition(*self._names[dense], there))
        except KafkaException as error:
            self._client.log(f"seek failed: {error.args[0].str()}; trying again")
            return False
        self._begin_span(dense, offset, SOUGHT, self._client.now_ns())
        return True

    def close(self) -> None:
        """Writes the rows to their end."""
        self._rows.close()

    def _assign_anew(self, consumer: Consumer, due: Iterable[int]) -> None:
        """seek() is refused (_STATE) once librdkafka has given a partition up; assigning it anew is not: with the eager
        protocol together with all the others, each where it is."""
        if not self._eager:
            consumer.incremental_unassign([TopicPartition(*self._names[dense]) for dense in due])
            consumer.incremental_assign([TopicPartition(*self._names[dense], OFFSET_BEGINNING) for dense in due])
            return
        consumer.assign([TopicPartition(*self._names[dense], self._start(dense)) for dense in sorted(self._owned)])

    def _start(self, dense: int) -> int:
        reached = int(self._reads.next_offset[dense])
        return OFFSET_BEGINNING if dense in self._at_start else OFFSET_STORED if reached == NONE else reached

    def _jumped(self, consumer: Consumer, dense: int, expected: int, offset: int) -> None:
        try:
            low, _ = consumer.get_watermark_offsets(TopicPartition(*self._names[dense]), timeout=LOOK_UP_S)
        except KafkaException as error:
            self._client.log(f"the log start of partition {dense} was not reported: {error.args[0].str()}")
            return
        if low > expected:
            self._client.log(f"partition {dense} was reset from {expected} to {offset}; its log starts at {low}")
            self._append(dense, offset, RESET)

    def _begin_span(self, dense: int, offset: int, event: int, time_ns: int) -> None:
        self._spans += 1
        self._reads.span[dense], self._reads.next_offset[dense] = self._spans, offset
        self._append(dense, offset, event, time_ns)

    def _append(self, dense: int, offset: int, event: int, time_ns: int | None = None) -> None:
        values = {
            "time_ns": self._client.now_ns() if time_ns is None else time_ns,
            "log_offset": offset,
            "partition": dense,
            "event": event,
            "span": int(self._reads.span[dense]),
        }
        self._rows.append(*(values[column.name] for column in POSITIONS.columns))
