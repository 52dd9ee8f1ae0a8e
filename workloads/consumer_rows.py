"""The rows of a recorded consumer, and what it takes to write them: what it was given, what it owns, what it will commit."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from confluent_kafka import KafkaError, Message, TopicPartition

from harness.rows import RowWriter
from harness.run_directory import RunDirectory
from harness.schema import NONE, READS
from harness.testing.registry import Property, TopicFacts
from workloads.carrier import HEADER_NAME, header_of, key_id
from workloads.consumer_spans import ASSIGNED, SOUGHT, ConsumerSpans
from workloads.member_rows import (
    ASSIGN,
    ASYNC,
    CLOSE,
    IN_TRANSACTION,
    SYNC,
    AssignmentRows,
    CommitRows,
    ProcessedRows,
)
from workloads.recorded_client import Life, identity_in, now_ns
from workloads.recorded_topics import known_topic

GIVEN_MAX = 50_000
"""Records that may be given before their processing is told."""
GROUP = 0
"""`group` of rows: which group a member is of is in the plan."""


class ConsumerRows:
    """Of one consumer with these properties. Safe from many threads; once sealed it writes nothing more."""

    def __init__(self, run: RunDirectory, life: Life, properties: Mapping[str, Property]) -> None:
        self._run, self._life, self._properties = run, life, properties
        self._lock, self._sealed = threading.RLock(), False
        self._auto = _truth(properties, "enable.auto.commit")
        self._stores = _truth(properties, "enable.auto.offset.store")
        self._reads = RowWriter(run.rows, READS, life.client)
        self._spans = ConsumerSpans(run.rows, life.client)
        self._commits = CommitRows(run.rows, life.client, GROUP, now_ns)
        cooperative = "cooperative" in str(properties.get("partition.assignment.strategy", ""))
        incremental = cooperative or properties.get("group.protocol") == "consumer"
        self._assignments = AssignmentRows(run.rows, life.client, GROUP, now_ns, incremental=incremental)
        self._processed: ProcessedRows | None = None
        self._topics: dict[str, TopicFacts] = {}
        self._owned: dict[int, None] = {}
        self._stored: dict[int, int] = {}
        """Partition → the next offset that a commit without arguments commits."""
        self._given: dict[tuple[int, int], tuple[int, int, int]] = {}
        """(partition, offset) → sender, sequence and span, of the last ones that were given."""
        self._in_callback = False

    # --- reading and processing -------------------------------------------------------------------------------------

    def given(self, messages: Sequence[Message], *, asked_ns: int) -> None:
        """A row for each, in the order given; the application does not see our header."""
        read_ns, reached = now_ns(), {}
        with self._lock:
            for message in messages:
                told = header_of(message)
                if not self._sealed:
                    dense, offset = self._read(message, told, read_ns)
                    reached[dense] = offset + 1
                if told is not None:
                    held = cast(list[tuple[str, Any]], message.headers() or [])
                    message.set_headers([pair for pair in held if pair[0] != HEADER_NAME])
            if self._stores:
                self._stored |= reached
            if self._auto:
                self._commits.may_commit(reached, since_ns=asked_ns)

    def _read(self, message: Message, told: bytes | None, read_ns: int) -> tuple[int, int]:
        """Its partition and offset."""
        dense, offset = self._dense(str(message.topic()), int(message.partition() or 0)), int(message.offset() or 0)
        span = self._spans.given(dense, offset)
        sender, sent_partition, sequence, flags = identity_in(told)
        epoch = message.leader_epoch()
        whose = (read_ns, offset, sequence, key_id(_bytes(message.key())), NONE, sender, dense, sent_partition)
        self._reads.append(*whose, span, flags, NONE if epoch is None else epoch)
        self._given[dense, offset] = (sender, sequence, span)
        if len(self._given) > GIVEN_MAX:
            del self._given[next(iter(self._given))]
        return dense, offset

    @contextmanager
    def processing(self, given: Sequence[Message]) -> Iterator[None]:
        """What is done with these records: they count as processed once it ends without an exception."""
        with self._lock:
            if self._processed is None:
                self._life.registry.note(self._life.client, "how", "processing")
                self._processed = ProcessedRows(self._run.rows, self._life.client, GROUP)
            first = self._processed.begin(self._columns(given), started_ns=now_ns())
        yield
        with self._lock:
            if not self._sealed:
                self._processed.done(first, count=len(given), done_ns=now_ns())

    def _columns(self, messages: Sequence[Message]) -> dict[str, np.ndarray]:
        """As `ProcessedRows.begin` wants them."""
        where = [(self._dense(str(m.topic()), int(m.partition() or 0)), int(m.offset() or 0)) for m in messages]
        told = np.array([self._given.get(at, (NONE, NONE, NONE)) for at in where], dtype=np.int64).reshape(-1, 3)
        return {
            "log_offset": np.array([offset for _, offset in where], dtype=np.int64),
            "sequence": told[:, 1],
            "sender": told[:, 0].astype(np.int32),
            "partition": np.array([dense for dense, _ in where], dtype=np.int32),
            "span": told[:, 2].astype(np.int32),
        }

    # --- assignments and positions ----------------------------------------------------------------------------------

    @contextmanager
    def rebalanced(self, event: int, partitions: Sequence[TopicPartition]) -> Iterator[None]:
        """A rebalance callback: recorded before the application's own is called, and completed when that returns."""
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
        """By the application itself, in a rebalance callback or without a group: an offset it names is a seek."""
        if not self._in_callback:
            self._life.registry.note(self._life.client, "how", "assign")
        with self._lock:
            for dense, partition in self._known(partitions).items():
                if partition.offset >= 0:
                    self._begin_span(dense, partition.offset, SOUGHT)
                elif not self._in_callback:
                    self._owned[dense] = None
                    self._begin_span(dense, NONE, ASSIGNED)

    def sought(self, partition: TopicPartition) -> None:
        """From there on it reads."""
        with self._lock:
            dense = self._dense(partition.topic, partition.partition)
            self._begin_span(dense, max(partition.offset, NONE), SOUGHT)

    def note_positions(self, partitions: Sequence[TopicPartition], event: int) -> None:
        """Where it is in each, and that this happened there."""
        with self._lock:
            for dense in self._known(partitions):
                if not self._sealed:
                    self._spans.note(dense, event)

    def _begin_span(self, dense: int, offset: int, event: int) -> None:
        if not self._sealed:
            self._spans.begin(dense, offset, event)

    # --- commits ----------------------------------------------------------------------------------------------------

    def begin_commit(
        self, message: Message | None, offsets: Sequence[TopicPartition] | None, *, asynchronous: bool
    ) -> Callable[[Sequence[TopicPartition] | None, KafkaError | None], None]:
        """A commit with these arguments is about to be made; what to call with its answer, or its error."""
        with self._lock:
            wanted = self._wanted(message, offsets)
            begun = self._commits.begin(wanted, self._spans.next_offset, mode=ASYNC if asynchronous else SYNC)
        self._life.registry.note(self._life.client, "how", "commit")

        def ended(answers: Sequence[TopicPartition] | None, error: KafkaError | None) -> None:
            if error is not None:
                self._ended(wanted, begun, dict.fromkeys(wanted, error), asynchronous=asynchronous)
            elif not asynchronous:
                self._ended(wanted, begun, {d: p.error for d, p in self._known(answers).items() if d in wanted})

        return ended

    def committing_in_transaction(self, positions: Sequence[TopicPartition]) -> Callable[[KafkaError | None], None]:
        """A producer is about to send these offsets in its transaction; what to call when that has ended."""
        with self._lock:
            wanted = {dense: p.offset for dense, p in self._known(positions).items() if p.offset >= 0}
            begun = self._commits.begin(wanted, self._spans.next_offset, mode=IN_TRANSACTION)
        self._life.registry.note(self._life.client, "how", "commit")

        def ended(error: KafkaError | None) -> None:
            self._ended(wanted, begun, dict.fromkeys(wanted, error), mode=IN_TRANSACTION)

        return ended

    def answered(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        """librdkafka's offset commit callback: of asynchronous and of automatic commits."""
        with self._lock:
            for dense, p in self._known(partitions).items():
                if p.offset >= 0 and not self._sealed:
                    position = int(self._spans.next_offset[dense])
                    self._commits.answered(dense, p.offset, error or p.error, position=position, auto=self._auto)

    def stored(self, message: Message | None, offsets: Sequence[TopicPartition]) -> None:
        """A commit without arguments commits these."""
        with self._lock:
            self._stored |= self._wanted(message, offsets)

    def _wanted(self, message: Message | None, offsets: Sequence[TopicPartition] | None) -> dict[int, int]:
        """Partition → offset, of a commit."""
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

    # --- the end ----------------------------------------------------------------------------------------------------

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Its `close`."""
        with self._lock:
            begun = [] if self._sealed else self._assignments.begin(CLOSE, sorted(self._owned), now_ns())
        yield
        with self._lock:
            if not self._sealed:
                self._assignments.done(begun)

    def seal(self) -> None:
        """Write the end of the rows. Safe to call twice."""
        with self._lock:
            if self._sealed:
                return
            self._sealed = True
            for table in (self._reads, self._spans, self._commits, self._assignments, self._processed):
                if table is not None:
                    table.close()
            self._life.end(issued=self._reads.count)

    # --- partitions -------------------------------------------------------------------------------------------------

    def _dense(self, topic: str, number: int) -> int:
        facts = self._topics.get(topic)
        if facts is None:
            facts = self._topics[topic] = known_topic(self._life.registry, topic, self._properties)
            self._life.registry.note(self._life.client, "read", topic)
            self._spans.make_room(facts.partitions[-1])
        return facts.first + number

    def _known(self, partitions: Sequence[TopicPartition] | None) -> dict[int, TopicPartition]:
        return {self._dense(p.topic, p.partition): p for p in partitions or ()}


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _truth(properties: Mapping[str, Any], key: str) -> bool:
    """A property that is true by default."""
    return str(properties.get(key, True)).lower() == "true"
