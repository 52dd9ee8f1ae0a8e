"""Writes the rows of a recorded consumer: the records that it was given, its assignments, its positions and its
commits."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from prozess.harness.interfaces.application import Property, RegisteredTopic
from prozess.harness.recording.rows import RowWriter
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import NONE, POSITIONS, READS
from prozess.testing.recorded.client import (
    OUR_HEADERS,
    ClientLog,
    RecordedLife,
    identity_in,
    identity_of_command,
    now_ns,
)
from prozess.testing.recorded.processing_steps import ApplicationSteps
from prozess.testing.recorded.topics import known_topic
from prozess.workloads.record.identity import header_of, key_id
from prozess.workloads.record.members import (
    ASSIGN,
    ASSIGNED,
    ASYNC,
    CLOSE,
    IN_TRANSACTION,
    PAUSED,
    SOUGHT,
    SYNC,
    AssignmentRows,
    CommitRows,
    ProcessedRows,
)

GIVEN_MAX = 50_000
"""The most records that are remembered until their processing is reported."""
GROUP = 0
"""The value of `group` in rows; the plan says which group a member is of."""


class ConsumerRows:
    """Writes the rows of one consumer with these properties. It is safe to use from many threads, and writes nothing
    more once it is sealed."""

    def __init__(self, run: RunDirectory, life: RecordedLife, properties: Mapping[str, Property]) -> None:
        self._run, self._life, self._properties = run, life, properties
        self._lock, self._sealed = threading.RLock(), False
        self._auto = _truth(properties, "enable.auto.commit")
        self._stores = _truth(properties, "enable.auto.offset.store")
        self._reads = RowWriter(run.rows, READS, life.client)
        self._spans = ConsumerSpans(run.rows, life.client)
        self._commits = CommitRows(run.rows, life.client, GROUP, now_ns)
        self._assignments = AssignmentRows(run.rows, life.client, GROUP, now_ns, incremental=is_incremental(properties))
        self._processed: ProcessedRows | None = None
        self._topics: dict[str, RegisteredTopic] = {}
        self._owned: dict[int, None] = {}
        self._stored: dict[int, int] = {}
        """The next offset that a commit without arguments commits, by partition."""
        self._given: dict[tuple[int, int], tuple[int, int, int]] = {}
        """The records that were given last: (partition, offset) → sender, sequence and span."""
        self._in_callback = False
        self._steps = ApplicationSteps(run, life.registry, life.client)

    # Reading and processing.

    def asked(self) -> None:
        """Records that the application asks for more: this thread is done with the records that it got before."""
        with self._lock:
            if not self._sealed:
                self._steps.asked(self._reads.count)

    def given(self, messages: Sequence[Message], *, asked_ns: int) -> None:
        """Writes a row for each record, in order, and hides the header of prozess from the application."""
        read_ns, reached = now_ns(), {}
        with self._lock:
            first = self._reads.count
            for message in messages:
                header = header_of(message)
                if not self._sealed:
                    dense, offset = self._read(message, header, read_ns)
                    reached[dense] = offset + 1
                if header is not None:
                    held = cast(list[tuple[str, Any]], message.headers() or [])
                    message.set_headers([pair for pair in held if pair[0] not in OUR_HEADERS])
            if reached:
                self._steps.given(first, self._reads.count, {dense: offset - 1 for dense, offset in reached.items()})
            if self._stores:
                self._stored |= reached
            if self._auto:
                self._commits.may_commit(reached, since_ns=asked_ns)

    def _read(self, message: Message, header: bytes | None, read_ns: int) -> tuple[int, int]:
        """Writes the row of a record, and returns its partition and offset."""
        dense, offset = self._dense(str(message.topic()), int(message.partition() or 0)), int(message.offset() or 0)
        span = self._spans.given(dense, offset)
        sender, sent_partition, sequence, flags = identity_in(header, self._life.token)
        if header is None and (found := identity_of_command(self._life.registry, message.value())) is not None:
            (sender, sequence), flags = found, 0
        epoch = message.leader_epoch()
        whose = (read_ns, offset, sequence, key_id(_bytes(message.key())), NONE, sender, dense, sent_partition)
        self._reads.append(*whose, span, flags, NONE if epoch is None else epoch)
        self._given[dense, offset] = (sender, sequence, span)
        if len(self._given) > GIVEN_MAX:
            del self._given[next(iter(self._given))]
        return dense, offset

    @contextmanager
    def processing(self, given: Sequence[Message]) -> Iterator[None]:
        """Yields a context for the processing of these records: they count as processed once it ends without an
        exception."""
        with self._lock:
            if self._processed is None:
                self._life.registry.note(self._life.client, "how", "processing")
                self._processed = ProcessedRows(self._run.rows, self._life.client, GROUP)
            first = self._processed.begin(self._columns(given), started_ns=now_ns())
            if (step := self._steps.own()) is not None:
                self._steps.effect(step, "the application began to process it")
        yield
        with self._lock:
            if not self._sealed:
                self._processed.done(first, count=len(given), done_ns=now_ns())

    def _columns(self, messages: Sequence[Message]) -> dict[str, np.ndarray]:
        """Returns these records as columns for `ProcessedRows.begin`."""
        where = [(self._dense(str(m.topic()), int(m.partition() or 0)), int(m.offset() or 0)) for m in messages]
        given = np.array([self._given.get(at, (NONE, NONE, NONE)) for at in where], dtype=np.int64).reshape(-1, 3)
        return {
            "log_offset": np.array([offset for _, offset in where], dtype=np.int64),
            "sequence": given[:, 1],
            "sender": given[:, 0].astype(np.int32),
            "partition": np.array([dense for dense, _ in where], dtype=np.int32),
            "span": given[:, 2].astype(np.int32),
        }

    # Assignments and positions.

    @contextmanager
    def rebalanced(self, event: int, partitions: Sequence[TopicPartition]) -> Iterator[None]:
        """Records a rebalance callback: before the application's own is called, and completed when that returns."""
        dense = sorted(self._known(partitions))
        with self._lock:
            begun = [] if self._sealed else self._assignments.begin(event, dense, now_ns())
            for partition in dense:
                if event == ASSIGN:
                    self._owned[partition] = None
                    self._begin_span(partition, NONE, ASSIGNED)
        self._in_callback = True
        try:
            yield
        finally:
            self._in_callback = False
            with self._lock:
                if event != ASSIGN:
                    for partition in dense:
                        self._owned.pop(partition, None)
                        self._stored.pop(partition, None)
                if not self._sealed:
                    self._assignments.done(begun)

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Records an assignment that the application makes, in a rebalance callback or without a group. An offset that
        it names is a seek."""
        if not self._in_callback:
            self._life.registry.note(self._life.client, "how", "assign")
        with self._lock:
            for dense, partition in self._known(partitions).items():
                if partition.offset >= 0:
                    self._begin_span(dense, partition.offset, SOUGHT)
                elif not self._in_callback:
                    self._owned[dense] = None
                    self._begin_span(dense, NONE, ASSIGNED)

    def given_up(self, partitions: Sequence[TopicPartition] | None) -> None:
        """Records that the application gives partitions up, outside a rebalance callback: it reads them no more, as after a
        pause. None: all of them."""
        with self._lock:
            for dense in list(self._owned) if partitions is None else list(self._known(partitions)):
                if not self._sealed and not self._in_callback:
                    self._spans.note(dense, PAUSED)

    def sought(self, partition: TopicPartition) -> None:
        """Records a seek to this partition's offset."""
        with self._lock:
            dense = self._dense(partition.topic, partition.partition)
            self._begin_span(dense, max(partition.offset, NONE), SOUGHT)

    def note_positions(self, partitions: Sequence[TopicPartition], event: int) -> None:
        """Records an event of these partitions (a pause, for example), with the positions in them."""
        with self._lock:
            for dense in self._known(partitions):
                if not self._sealed:
                    self._spans.note(dense, event)

    def _begin_span(self, dense: int, offset: int, event: int) -> None:
        if not self._sealed:
            self._spans.begin(dense, offset, event)

    # Commits.

    def begin_commit(
        self, message: Message | None, offsets: Sequence[TopicPartition] | None, *, asynchronous: bool
    ) -> Callable[[Sequence[TopicPartition] | None, KafkaException | None], None]:
        """Records a commit that is about to be made. Returns what to call with its answer, or with what it raised."""
        with self._lock:
            wanted = self._wanted(message, offsets)
            begun = self._commits.begin(wanted, self._spans.next_offset, mode=ASYNC if asynchronous else SYNC)
            if asynchronous:
                self._steps.committing(wanted)
        self._life.registry.note(self._life.client, "how", "commit")

        def ended(answers: Sequence[TopicPartition] | None, raised: KafkaException | None) -> None:
            error = None if raised is None else raised.args[0]
            with self._lock:
                if raised is not None:
                    self._steps.commit_raised(raised)
                elif not asynchronous:
                    self._steps.committing(wanted)
            if error is not None:
                self._ended(wanted, begun, dict.fromkeys(wanted, error), asynchronous=asynchronous)
            elif not asynchronous:
                self._ended(wanted, begun, {d: p.error for d, p in self._known(answers).items() if d in wanted})

        return ended

    def begin_request(self, positions: Sequence[TopicPartition], *, mode: int) -> Callable[[KafkaError | None], None]:
        """Records a commit that a client of another library is about to send. Returns what to call with the answer."""
        with self._lock:
            wanted = {dense: p.offset for dense, p in self._known(positions).items() if p.offset >= 0}
            begun = self._commits.begin(wanted, self._spans.next_offset, mode=mode)
        if mode == SYNC:
            self._life.registry.note(self._life.client, "how", "commit")

        def ended(error: KafkaError | None) -> None:
            self._ended(wanted, begun, dict.fromkeys(wanted, error), mode=mode)

        return ended

    def committing_in_transaction(self, positions: Sequence[TopicPartition]) -> Callable[[KafkaError | None], None]:
        """Records offsets that a producer is about to send in its transaction. Returns what to call when that has
        ended."""
        with self._lock:
            wanted = {dense: p.offset for dense, p in self._known(positions).items() if p.offset >= 0}
            begun = self._commits.begin(wanted, self._spans.next_offset, mode=IN_TRANSACTION)
        self._life.registry.note(self._life.client, "how", "commit")

        def ended(error: KafkaError | None) -> None:
            self._ended(wanted, begun, dict.fromkeys(wanted, error), mode=IN_TRANSACTION)
            if error is None:
                with self._lock:
                    self._steps.committed_with_effects(wanted)

        return ended

    def answered(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        """Takes the result of asynchronous and automatic commits. librdkafka calls it."""
        with self._lock:
            for dense, p in self._known(partitions).items():
                if p.offset >= 0 and not self._sealed:
                    position = int(self._spans.next_offset[dense])
                    self._commits.answered(dense, p.offset, error or p.error, position=position, auto=self._auto)

    def stored(self, message: Message | None, offsets: Sequence[TopicPartition]) -> None:
        """Notes offsets that a commit without arguments will commit."""
        with self._lock:
            wanted = self._wanted(message, offsets)
            self._stored |= wanted
            self._steps.committing(wanted, stored=True)

    def _wanted(self, message: Message | None, offsets: Sequence[TopicPartition] | None) -> dict[int, int]:
        """Returns the offsets that a commit with these arguments commits, by partition."""
        if message is not None:
            return {self._dense(str(message.topic()), int(message.partition() or 0)): int(message.offset() or 0) + 1}
        if offsets is not None:
            return {dense: p.offset for dense, p in self._known(offsets).items() if p.offset >= 0}
        return {dense: offset for dense, offset in self._stored.items() if dense in self._owned}

    def _ended(
        self,
        wanted: Mapping[int, int],
        begun: Mapping[int, int],
        errors: Mapping[int, KafkaError | None],
        *,
        asynchronous: bool = False,
        mode: int = SYNC,
    ) -> None:
        with self._lock:
            if self._sealed:
                return
            reached = self._spans.next_offset
            if not asynchronous:
                return self._commits.complete(begun, wanted, reached, errors, mode=mode)
            for dense, error in errors.items():
                self._commits.answered(dense, wanted[dense], error, position=int(reached[dense]), auto=False)

    # The end.

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Records the close of the consumer, around it."""
        with self._lock:
            if not self._sealed:
                self._steps.closing()
            begun = [] if self._sealed else self._assignments.begin(CLOSE, sorted(self._owned), now_ns())
        yield
        with self._lock:
            if not self._sealed:
                self._assignments.done(begun)

    def seal(self) -> None:
        """Writes the end of the rows. Safe to call twice."""
        with self._lock:
            if self._sealed:
                return
            self._sealed = True
            self._steps.seal()
            for table in (self._reads, self._spans, self._commits, self._assignments, self._processed):
                if table is not None:
                    table.close()
            self._life.end(issued=self._reads.count)

    # Partitions.

    def _dense(self, topic: str, number: int) -> int:
        facts = self._topics.get(topic)
        if facts is None:
            facts = self._topics[topic] = known_topic(
                self._life.registry, topic, self._life.reaching, ClientLog(self._life.run)
            )
            self._life.registry.note(self._life.client, "read", topic)
            self._spans.make_room(facts.partitions[-1])
        return facts.first + number

    def _known(self, partitions: Sequence[TopicPartition] | None) -> dict[int, TopicPartition]:
        return {self._dense(p.topic, p.partition): p for p in partitions or ()}


def is_incremental(properties: Mapping[str, Property]) -> bool:
    """Says whether a rebalance names only what changes."""
    cooperative = "cooperative" in str(properties.get("partition.assignment.strategy", "")).lower()
    return cooperative or str(properties.get("group.protocol", "")).lower() == "consumer"


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _truth(properties: Mapping[str, Any], key: str) -> bool:
    """Returns the value of a property that is true by default."""
    return str(properties.get(key, True)).lower() == "true"


# The spans of a recorded consumer, as rows of `positions`: a span is a sequence of records that it reads in order, without a
# seek.


class ConsumerSpans:
    """Knows the span that each partition (dense id) is in."""

    def __init__(self, rows: Path, client: int) -> None:
        self._positions = RowWriter(rows, POSITIONS, client)
        self._span: dict[int, int] = {}
        self._unfilled: dict[int, int] = {}
        """The rows of `positions` that do not say yet where their span begins, by partition."""
        self._spans = -1
        self.next_offset = np.full(16, NONE, dtype=np.int64)
        """Partition → the next offset; NONE until the first record."""

    def make_room(self, partition: int) -> None:
        """Makes room for a partition that is new, and for all with smaller ids."""
        if partition >= len(self.next_offset):
            more = np.full(2 * (partition + 1) - len(self.next_offset), NONE, dtype=np.int64)
            self.next_offset = np.concatenate([self.next_offset, more])

    def begin(self, partition: int, offset: int, event: int) -> None:
        """Begins a span: records from here on are read in order. NONE: the offset of the first record is its begin."""
        self._spans += 1
        self._span[partition], self.next_offset[partition] = self._spans, offset
        row = self._positions.append(now_ns(), offset, partition, event, self._spans)
        self._unfilled.pop(partition, None)
        if offset == NONE and event == ASSIGNED:
            self._unfilled[partition] = row

    def given(self, partition: int, offset: int) -> int:
        """Notes that a record was given, and returns the number of its span."""
        if partition not in self._span:  # read without a recorded assignment
            self.begin(partition, NONE, ASSIGNED)
        row = self._unfilled.pop(partition, None)
        if row is not None:
            self._positions.complete(np.array([row]), {"log_offset": offset})
        self.next_offset[partition] = offset + 1
        return self._span[partition]

    def note(self, partition: int, event: int) -> None:
        """Records an event of this partition with the position in it."""
        span = self._span.get(partition, NONE)
        self._positions.append(now_ns(), int(self.next_offset[partition]), partition, event, span)

    def close(self) -> None:
        """Writes the rows to their end."""
        self._positions.close()
