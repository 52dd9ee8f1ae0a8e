"""confluent_kafka's Consumer, recorded: a test's application uses it in place of the other, and knows nothing of it.

What it is given becomes rows of `reads`, what it is assigned, seeks and commits rows of those tables. Processing is the
application's own: where it says `with consumer.processing(message):`, a record counts as processed when that ends without
an exception; where it never does, when it is given.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from harness.rows import RowWriter
from harness.schema import NONE, POSITIONS, READS, Isolation, Role
from harness.testing.registry import TopicFacts
from workloads.carrier import HEADER_NAME, header_of, key_id
from workloads.member_rows import (
    ASSIGN,
    ASYNC,
    CLOSE,
    IN_TRANSACTION,
    LOST,
    REVOKE,
    SYNC,
    AssignmentRows,
    CommitRows,
    ProcessedRows,
)
from workloads.recorded_client import Life, identity_in, now_ns, plain, recording_of, remember
from workloads.recorded_topics import known_topic

ASSIGNED, SOUGHT, PAUSED, RESUMED = 1, 2, 4, 5
"""`positions.event`."""
GIVEN_MAX = 50_000
"""Records that may be given before their processing is told."""
GROUP = 0
"""`group` of rows: which group a member is of is in the plan."""
Rebalanced = Callable[[Any, Sequence[TopicPartition]], Any]
_METADATA: dict[int, tuple[Any, "RecordedConsumer"]] = {}
"""id of what `consumer_group_metadata` gave → itself, so that the id stays its own, and whose it is."""


class RecordedConsumer(Consumer):
    """Drop-in for `confluent_kafka.Consumer`. `recording`: the test's; None = the environment says."""

    recording: ClassVar[Path | None] = None
    defaults: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, config: Mapping[str, Any] | None = None, /, **more: Any) -> None:  # noqa: ANN401
        logger = {"logger": more.pop("logger")} if "logger" in more else {}
        given = {**self.defaults, **(config or {}), **more}
        self._on_commit: Callable[..., Any] | None = given.pop("on_commit", None)
        super().__init__({**given, "on_commit": self._answered}, **logger)
        properties = plain(given)
        run = recording_of(self.recording)
        committed = str(properties.get("isolation.level", "read_committed")) == "read_committed"
        isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
        self._properties, self._lock, self._sealed = properties, threading.RLock(), False
        self._auto = _truth(properties, "enable.auto.commit")
        self._stores = _truth(properties, "enable.auto.offset.store")
        self._life = life = Life(run, "consumer", properties, isolation=isolation)
        self._reads = RowWriter(run.rows, READS, life.client)
        self._positions = RowWriter(run.rows, POSITIONS, life.client)
        self._commits = CommitRows(run.rows, life.client, GROUP, now_ns)
        cooperative = "cooperative" in str(properties.get("partition.assignment.strategy", ""))
        incremental = cooperative or properties.get("group.protocol") == "consumer"
        self._assignments = AssignmentRows(run.rows, life.client, GROUP, now_ns, incremental=incremental)
        self._processed: ProcessedRows | None = None
        self._topics: dict[str, TopicFacts] = {}
        self._names: dict[int, tuple[str, int]] = {}
        self._span: dict[int, int] = {}
        self._unfilled: dict[int, int] = {}
        """Partition → its row of `positions` that does not say yet where it begins."""
        self._owned: dict[int, None] = {}
        self._stored: dict[int, int] = {}
        """Partition → the next offset that a commit without arguments commits."""
        self._given: dict[tuple[int, int], tuple[int, int, int]] = {}
        """(partition, offset) → sender, sequence and span, of the last ones that were given."""
        self._next = np.full(16, NONE, dtype=np.int64)
        self._spans, self._in_callback, self._closed = -1, False, False
        remember(run, self)

    # --- reading ----------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = -1) -> Message | None:
        """As the original."""
        asked_ns = now_ns()
        message: Message | None = super().poll(timeout)
        if message is not None and message.error() is None:
            self._record([message], asked_ns)
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """As the original."""
        asked_ns = now_ns()
        messages: list[Message] = super().consume(num_messages, timeout)
        self._record([message for message in messages if message.error() is None], asked_ns)
        return messages

    def _record(self, messages: Sequence[Message], asked_ns: int) -> None:
        """A row for each, in the order given; the application does not see our header."""
        read_ns, reached = now_ns(), {}
        with self._lock:
            for message in messages:
                told = header_of(message)
                if not self._sealed:
                    dense, offset = (
                        self._dense(str(message.topic()), int(message.partition() or 0)),
                        int(message.offset() or 0),
                    )
                    self._fill_start(dense, offset)
                    sender, sent_partition, sequence, flags = identity_in(told)
                    epoch = message.leader_epoch()
                    self._reads.append(
                        *(
                            read_ns,
                            offset,
                            sequence,
                            key_id(_bytes(message.key())),
                            NONE,
                            sender,
                            dense,
                            sent_partition,
                        ),
                        *(self._span[dense], flags, NONE if epoch is None else epoch),
                    )
                    self._next[dense] = reached[dense] = offset + 1
                    self._given[dense, offset] = (sender, sequence, self._span[dense])
                    if len(self._given) > GIVEN_MAX:
                        del self._given[next(iter(self._given))]
                if told is not None:
                    held = cast(list[tuple[str, Any]], message.headers() or [])
                    message.set_headers([pair for pair in held if pair[0] != HEADER_NAME])
            if self._stores:
                self._stored |= reached
            if self._auto:
                self._commits.may_commit(reached, since_ns=asked_ns)

    def _dense(self, topic: str, number: int) -> int:
        facts = self._topics.get(topic)
        if facts is None:
            facts = self._topics[topic] = known_topic(self._life.registry, topic, self._properties)
            self._life.registry.note(self._life.client, "read", topic)
            if facts.partitions[-1] >= len(self._next):
                more = np.full(2 * (facts.partitions[-1] + 1) - len(self._next), NONE, dtype=np.int64)
                self._next = np.concatenate([self._next, more])
            self._names |= {facts.first + i: (topic, i) for i in range(len(facts.assignment))}
        return facts.first + number

    def _known(self, partitions: Sequence[TopicPartition] | None) -> dict[int, TopicPartition]:
        return {self._dense(p.topic, p.partition): p for p in partitions or ()}

    # --- processing -------------------------------------------------------------------------------------------------

    @contextmanager
    def processing(self, messages: Message | Sequence[Message]) -> Iterator[None]:
        """What is done with these records: they count as processed once it ends without an exception."""
        given = [messages] if isinstance(messages, Message) else list(messages)
        with self._lock:
            if self._processed is None:
                self._life.registry.note(self._life.client, "how", "processing")
                self._processed = ProcessedRows(self._life.run.rows, self._life.client, GROUP)
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

    def subscribe(  # type: ignore[override]
        self,
        topics: Sequence[str],
        on_assign: Rebalanced | None = None,
        on_revoke: Rebalanced | None = None,
        on_lost: Rebalanced | None = None,
        **more: Any,  # noqa: ANN401
    ) -> None:
        """As the original."""
        self._life.registry.note(self._life.client, "how", "subscribe")
        self._life.becomes(Role.MEMBER)

        def given(consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
            self._told(ASSIGN, consumer, partitions, on_assign)

        def revoked(consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
            self._told(REVOKE, consumer, partitions, on_revoke)

        def lost(consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
            self._told(LOST, consumer, partitions, on_lost or on_revoke)

        super().subscribe(list(topics), on_assign=given, on_revoke=revoked, on_lost=lost, **more)

    def _told(
        self,
        event: int,
        consumer: Consumer,
        partitions: Sequence[TopicPartition],
        callback: Rebalanced | None,
    ) -> None:
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
            if callback is not None:
                callback(consumer, partitions)
        finally:
            self._in_callback = False
            with self._lock:
                if event != ASSIGN:
                    for partition in dense:
                        self._owned.pop(partition, None)
                        self._stored.pop(partition, None)
                if not self._sealed:
                    self._assignments.done(begun)

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """As the original."""
        self._assigning(partitions)
        super().assign(list(partitions))

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """As the original."""
        self._assigning(partitions)
        super().incremental_assign(list(partitions))

    def _assigning(self, partitions: Sequence[TopicPartition]) -> None:
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

    def seek(self, partition: TopicPartition) -> None:
        """As the original."""
        super().seek(partition)
        with self._lock:
            dense = self._dense(partition.topic, partition.partition)
            self._begin_span(dense, max(partition.offset, NONE), SOUGHT)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """As the original."""
        super().pause(list(partitions))
        self._note_positions(partitions, PAUSED)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """As the original."""
        super().resume(list(partitions))
        self._note_positions(partitions, RESUMED)

    def _note_positions(self, partitions: Sequence[TopicPartition], event: int) -> None:
        with self._lock:
            for dense in self._known(partitions):
                if not self._sealed:
                    self._positions.append(now_ns(), int(self._next[dense]), dense, event, self._span.get(dense, NONE))

    def _begin_span(self, dense: int, offset: int, event: int) -> None:
        """What is read from here on is in order by itself. NONE: where that is, the first record will tell."""
        if self._sealed:
            return
        self._spans += 1
        self._span[dense], self._next[dense] = self._spans, offset
        row = self._positions.append(now_ns(), offset, dense, event, self._spans)
        self._unfilled.pop(dense, None)
        if offset == NONE and event == ASSIGNED:
            self._unfilled[dense] = row

    def _fill_start(self, dense: int, offset: int) -> None:
        if dense not in self._span:  # given without an assignment that was seen
            self._begin_span(dense, NONE, ASSIGNED)
        row = self._unfilled.pop(dense, None)
        if row is not None:
            self._positions.complete(np.array([row]), {"log_offset": offset})

    # --- commits ----------------------------------------------------------------------------------------------------

    def commit(  # type: ignore[override]
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """As the original."""
        more: dict[str, Any] = {"asynchronous": asynchronous}
        if message is not None:
            more["message"] = message
        if offsets is not None:
            more["offsets"] = list(offsets)
        with self._lock:
            wanted = self._wanted(message, offsets)
            begun = self._commits.begin(wanted, self._next, mode=ASYNC if asynchronous else SYNC)
        self._life.registry.note(self._life.client, "how", "commit")
        try:
            answers: list[TopicPartition] | None = super().commit(**more)
        except KafkaException as error:
            self._ended(wanted, begun, dict.fromkeys(wanted, error.args[0]), asynchronous=asynchronous)
            raise
        if not asynchronous:
            self._ended(wanted, begun, {d: p.error for d, p in self._known(answers).items() if d in wanted})
        return answers

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
            if not asynchronous:
                return self._commits.complete(begun, wanted, self._next, errors, mode=mode)
            for dense, error in errors.items():
                self._commits.answered(dense, wanted[dense], error, position=int(self._next[dense]), auto=False)

    def _answered(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        """librdkafka's offset commit callback: of asynchronous and of automatic commits."""
        with self._lock:
            for dense, p in self._known(partitions).items():
                if p.offset >= 0 and not self._sealed:
                    position = int(self._next[dense])
                    self._commits.answered(dense, p.offset, error or p.error, position=position, auto=self._auto)
        if self._on_commit is not None:
            self._on_commit(error, partitions)

    def store_offsets(self, message: Message | None = None, offsets: Sequence[TopicPartition] | None = None) -> None:
        """As the original."""
        super().store_offsets(**({"message": message} if message is not None else {"offsets": list(offsets or ())}))
        with self._lock:
            self._stored |= self._wanted(message, offsets or ())

    def consumer_group_metadata(self) -> Any:  # noqa: ANN401
        """As the original; a recorded producer knows whose it is."""
        metadata = super().consumer_group_metadata()
        _METADATA[id(metadata)] = (metadata, self)
        return metadata

    def committing_in_transaction(self, positions: Sequence[TopicPartition]) -> Callable[[KafkaError | None], None]:
        """A producer is about to send these offsets in its transaction; what to call when that has ended."""
        with self._lock:
            wanted = {dense: p.offset for dense, p in self._known(positions).items() if p.offset >= 0}
            begun = self._commits.begin(wanted, self._next, mode=IN_TRANSACTION)
        self._life.registry.note(self._life.client, "how", "commit")

        def ended(error: KafkaError | None) -> None:
            self._ended(wanted, begun, dict.fromkeys(wanted, error), mode=IN_TRANSACTION)

        return ended

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """As the original."""
        with self._lock:
            begun = [] if self._sealed else self._assignments.begin(CLOSE, sorted(self._owned), now_ns())
        super().close()
        with self._lock:
            self._closed = True
            if not self._sealed:
                self._assignments.done(begun)

    def __exit__(self, *_: object) -> None:
        self.close()

    def seal(self, *, timeout_s: float) -> None:
        """See `recorded_client.Recorded`. What the application still does with it is nobody's business here."""
        with self._lock:
            if self._sealed:
                return
            self._sealed = True
            for key in [key for key, (_, whose) in _METADATA.items() if whose is self]:
                del _METADATA[key]
            for table in (self._reads, self._positions, self._commits, self._assignments, self._processed):
                if table is not None:
                    table.close()
            self._life.end(issued=self._reads.count)


def consumer_of(metadata: object) -> RecordedConsumer | None:
    """Whose group metadata this is; None = of nobody who is recorded."""
    held = _METADATA.get(id(metadata))
    return None if held is None else held[1]


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _truth(properties: Mapping[str, Any], key: str) -> bool:
    """A property that is true by default."""
    return str(properties.get(key, True)).lower() == "true"
