"""A recorded Consumer of confluent_kafka. A test's application uses it in place of the original, without any change.


The records that it reads become rows of `reads`; assignments, seeks and commits become rows of their tables. Processing is
the application's own: where it says `with consumer.processing(message):`, a record counts as processed when that ends without
an exception; where it never does, when it asks for the next one (`prozess.testing.recorded.processing_steps`).
"""

import functools
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from prozess.harness.errors import NotReady
from prozess.harness.schema import Isolation, ObservationKind, Role
from prozess.harness.watchdog import watchdog
from prozess.testing.recorded.client import (
    TEST_IS_OVER,
    ClientSealed,
    RecordedLife,
    crashes_at,
    logger_for,
    now_ns,
    properties_to_record,
    recording_of,
    remember_client,
)
from prozess.testing.recorded.consumer_rows import ConsumerRows
from prozess.testing.recorded.polls import AskedRows
from prozess.workloads.librdkafka import HANG_LIMIT_S, close
from prozess.workloads.record.members import ASSIGN, LOST, PAUSED, RESUMED, REVOKE

Rebalanced = Callable[[Any, Sequence[TopicPartition]], Any]
SLICE_S = 0.25
END_LIMIT_S = 2 * HANG_LIMIT_S
"""How long ending may take: until no other thread uses the consumer, and until it is closed."""
_METADATA: dict[int, tuple[Any, "RecordedConsumer"]] = {}
"""The consumer of each group metadata: id of the metadata → the metadata, which keeps that id its own, and the
consumer."""


class RecordedConsumer(Consumer):
    """A drop-in for `confluent_kafka.Consumer`. `recording`: the test's directory; None = the environment names it."""

    recording: ClassVar[Path | None] = None
    defaults: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, config: Mapping[str, Any] | None = None, /, **more: object) -> None:
        run = recording_of(self.recording)
        logger = logger_for(run, config or {}, more)
        given: dict[str, Any] = {**self.defaults, **(config or {}), **more}
        self._on_commit: Callable[..., Any] | None = given.pop("on_commit", None)
        super().__init__({**given, "on_commit": self._answered}, **logger)
        properties = properties_to_record(given)
        committed = str(properties.get("isolation.level", "read_committed")) == "read_committed"
        isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
        self._properties = properties
        self._life = RecordedLife(run, "consumer", given, isolation=isolation)
        self._rows = ConsumerRows(run, self._life, properties)
        self._asked = AskedRows(run.rows, self._life.client)
        self._life.on_beat = self._asked.look
        self._uses, self._ended, self._closed = self._new_uses(), False, False
        remember_client(run, self)

    @staticmethod
    def _new_uses() -> "CallsUnderWay":
        """Makes the counter of calls under way: by thread, unless a subclass distinguishes callers otherwise."""
        return CallsUnderWay()

    # Reading and processing.

    def poll(self, timeout: float = -1) -> Message | None:
        """Returns the next message, as confluent_kafka does; Sealed once the consumer was ended."""
        self._rows.asked()
        asked_ns = now_ns()
        until_ns = None if timeout < 0 else asked_ns + int(timeout * 1e9)
        while True:  # a long wait is interrupted when the test is over
            left_s = SLICE_S if until_ns is None else max(0.0, (until_ns - now_ns()) / 1e9)
            with self._while_there():
                message: Message | None = super().poll(min(left_s, SLICE_S))
            self._asked.short += 1
            if message is not None or (until_ns is not None and now_ns() >= until_ns):
                break
        if message is not None and message.error() is None:
            self._rows.given([message], asked_ns=asked_ns)
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Returns several messages, as confluent_kafka does; Sealed once the consumer was ended."""
        self._rows.asked()
        asked_ns = now_ns()
        with self._while_there(), self._asked.asking(ObservationKind.ASKED, may_last=True):
            messages: list[Message] = super().consume(num_messages, timeout)
        self._rows.given([message for message in messages if message.error() is None], asked_ns=asked_ns)
        return messages

    @contextmanager
    def _while_there(self) -> Iterator[None]:
        """Guards a call: a consumer is not ended while a thread asks it something, for librdkafka might never answer
        then."""
        with self._uses.one(timeout_s=HANG_LIMIT_S):
            if self._ended:
                raise ClientSealed(TEST_IS_OVER)
            yield

    def processing(self, messages: Message | Sequence[Message]) -> AbstractContextManager[None]:
        """Returns a context for the processing of these records: they count as processed once it ends without an
        exception."""
        return self._rows.processing([messages] if isinstance(messages, Message) else list(messages))

    # Assignments and positions.

    def subscribe(  # type: ignore[override]
        self,
        topics: Sequence[str],
        on_assign: Rebalanced | None = None,
        on_revoke: Rebalanced | None = None,
        on_lost: Rebalanced | None = None,
        **more: object,
    ) -> None:
        """Subscribes to topics, as confluent_kafka does."""
        self._life.registry.note(self._life.client, "how", "subscribe")
        self._life.becomes(Role.MEMBER)

        def recording(event: int, callback: Rebalanced | None) -> Rebalanced:
            def rebalanced(consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
                with self._rows.rebalanced(event, partitions):
                    if callback is not None and not self._ended:
                        callback(consumer, partitions)

            return rebalanced

        with self._while_there():
            super().subscribe(
                list(topics),
                on_assign=recording(ASSIGN, on_assign),
                on_revoke=recording(REVOKE, on_revoke),
                on_lost=recording(LOST, on_lost or on_revoke),
                **more,
            )

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Assigns partitions, as confluent_kafka does."""
        self._rows.assigned(partitions)
        with self._while_there():
            super().assign(list(partitions))

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Assigns more partitions, as confluent_kafka does."""
        self._rows.assigned(partitions)
        with self._while_there():
            super().incremental_assign(list(partitions))

    def unassign(self) -> None:
        """Gives all partitions up, as confluent_kafka does."""
        with self._while_there():
            super().unassign()
        self._rows.given_up(None)

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Gives some partitions up, as confluent_kafka does."""
        with self._while_there():
            super().incremental_unassign(list(partitions))
        self._rows.given_up(partitions)

    def seek(self, partition: TopicPartition) -> None:
        """Seeks to an offset, as confluent_kafka does."""
        with self._while_there():
            super().seek(partition)
        self._rows.sought(partition)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Pauses partitions, as confluent_kafka does."""
        with self._while_there():
            super().pause(list(partitions))
        self._rows.note_positions(partitions, PAUSED)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Resumes partitions, as confluent_kafka does."""
        with self._while_there():
            super().resume(list(partitions))
        self._rows.note_positions(partitions, RESUMED)

    # Commits.

    def commit(  # type: ignore[override]
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commits offsets, as confluent_kafka does."""
        more: dict[str, Any] = {"asynchronous": asynchronous}
        if message is not None:
            more["message"] = message
        if offsets is not None:
            more["offsets"] = list(offsets)
        with self._while_there():
            ended = self._rows.begin_commit(message, offsets, asynchronous=asynchronous)
            try:
                answers: list[TopicPartition] | None = super().commit(**more)
            except KafkaException as error:
                ended(None, error)
                raise
            ended(answers, None)
            return answers

    def _answered(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        self._rows.answered(error, partitions)
        if self._on_commit is not None and not self._ended:
            self._on_commit(error, partitions)

    def store_offsets(self, message: Message | None = None, offsets: Sequence[TopicPartition] | None = None) -> None:
        """Stores offsets for the next commit, as confluent_kafka does."""
        with self._while_there():
            super().store_offsets(**({"message": message} if message is not None else {"offsets": list(offsets or ())}))
        self._rows.stored(message, offsets or ())

    def consumer_group_metadata(self) -> object:
        """Returns the group's metadata, as confluent_kafka does. A recorded producer knows by it whose offsets it
        sends."""
        with self._while_there():
            metadata = super().consumer_group_metadata()
        _METADATA[id(metadata)] = (metadata, self)
        return metadata

    def committing_in_transaction(self, positions: Sequence[TopicPartition]) -> Callable[[KafkaError | None], None]:
        """Notes that a producer is about to send these offsets in its transaction. Returns what to call when that has
        ended."""
        return self._rows.committing_in_transaction(positions)

    # The end.

    def close(self) -> None:
        """Closes the consumer. Unlike the original, it makes the rebalance callbacks before librdkafka closes
        (`prozess.workloads.librdkafka`)."""
        if not self._closed:
            with self._guarded(), self._rows.closing():
                self._close(self._properties)

    def _close(self, properties: Mapping[str, Any]) -> None:
        with self._uses.none(timeout_s=HANG_LIMIT_S):
            closed, self._closed = self._closed, True
            if not closed:
                close(self, properties)

    def _guarded(self) -> AbstractContextManager[None]:
        return watchdog(f"Closing a consumer of the group {self._properties.get('group.id')!r}", limit_s=END_LIMIT_S)

    def __exit__(self, *_: object) -> None:
        self.close()

    def seal(self, *, timeout_s: float) -> None:
        """Ends the rows (`Sealable`). What the application still does with the consumer is not recorded."""
        for key in [key for key, (_, whose) in _METADATA.items() if whose is self]:
            del _METADATA[key]
        self._asked.close()
        self._rows.seal()

    def end(self) -> None:
        """Closes the consumer for good (`Sealable`)."""
        self._ended = True
        leaving = {key: value for key, value in self._properties.items() if key != "group.instance.id"}
        if not self._closed:
            with self._guarded(), suppress(KafkaException, RuntimeError, NotReady):
                self._close(leaving)


def _while_there(name: str) -> Callable[..., Any]:
    """Returns a method of the original that asks librdkafka, and that needs no record."""
    original: Callable[..., Any] = getattr(Consumer, name)

    @functools.wraps(original)
    def asked(self: RecordedConsumer, *given: object, **more: object) -> object:
        with self._while_there():
            return original(self, *given, **more)

    return asked


for _name in (
    *("unsubscribe", "assignment", "committed", "position", "memberid"),
    *("list_topics", "get_watermark_offsets", "offsets_for_times"),
):
    setattr(RecordedConsumer, _name, _while_there(_name))

crashes_at(RecordedConsumer, {"poll": "receive", "consume": "receive", "processing": "process", "commit": "commit"})


def consumer_of(metadata: object) -> RecordedConsumer | None:
    """Returns the recorded consumer that gave this group metadata; None if none did."""
    held = _METADATA.get(id(metadata))
    return None if held is None else held[1]


# Counts the users of a client of many threads: the thread that ends it waits until there are none.


class CallsUnderWay:
    """Counts the calls that are under way, by thread. A thread that is in a call may make another one, in a callback.

    `who`: the id of the caller, if it is not the thread.
    """

    def __init__(self, who: Callable[[], Hashable] = threading.get_ident) -> None:
        self._who = who
        self._changed = threading.Condition()
        self._depth: dict[Hashable, int] = {}
        self._alone: Hashable | None = None

    @contextmanager
    def one(self, *, timeout_s: float) -> Iterator[None]:
        """Guards one call. It waits while another thread is alone; NotReady after `timeout_s`."""
        me = self._who()
        with self._changed:
            if me not in self._depth and not self._changed.wait_for(lambda: self._alone in (None, me), timeout_s):
                raise NotReady(awaited="a client to be closed", timeout_s=timeout_s, last_seen="it is being closed")
            self._depth[me] = self._depth.get(me, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                self._depth[me] -= 1
                if not self._depth[me]:
                    del self._depth[me]
                    self._changed.notify_all()

    @contextmanager
    def none(self, *, timeout_s: float) -> Iterator[None]:
        """Makes the caller the only one: no other thread is in a call, and none begins one. NotReady if they do not
        end within `timeout_s`."""
        me = self._who()
        with self._changed:
            free = self._changed.wait_for(lambda: self._alone in (None, me), timeout_s)
            before, self._alone = self._alone, me if free else self._alone
        try:
            with self._changed:
                if not free or not self._changed.wait_for(lambda: not self._depth.keys() - {me}, timeout_s):
                    others = len(self._depth.keys() - {me})
                    seen = f"{others} other threads are in one" if free else "it is being closed"
                    raise NotReady(awaited="calls of a client to end", timeout_s=timeout_s, last_seen=seen)
            yield
        finally:
            with self._changed:
                if free:
                    self._alone = before
                self._changed.notify_all()
