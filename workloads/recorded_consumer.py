"""confluent_kafka's Consumer, recorded: a test's application uses it in place of the other, and knows nothing of it.

What it is given becomes rows of `reads`, what it is assigned, seeks and commits rows of those tables. Processing is the
application's own: where it says `with consumer.processing(message):`, a record counts as processed when that ends without
an exception; where it never does, when it is given.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from harness.schema import Isolation, Role
from workloads.consumer_rows import ConsumerRows
from workloads.consumer_spans import PAUSED, RESUMED
from workloads.member_rows import ASSIGN, LOST, REVOKE
from workloads.recorded_client import OVER, Life, Sealed, now_ns, plain, recording_of, remember

Rebalanced = Callable[[Any, Sequence[TopicPartition]], Any]
SLICE_S = 0.25
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
        self._life = Life(run, "consumer", properties, isolation=isolation)
        self._rows = ConsumerRows(run, self._life, properties)
        self._asking, self._ended = threading.RLock(), False
        remember(run, self)

    # --- reading and processing -------------------------------------------------------------------------------------

    def poll(self, timeout: float = -1) -> Message | None:
        """As the original; Sealed once it was ended."""
        asked_ns = now_ns()
        until_ns = None if timeout < 0 else asked_ns + int(timeout * 1e9)
        while True:  # who waits for long learns that it is over
            left_s = SLICE_S if until_ns is None else max(0.0, (until_ns - now_ns()) / 1e9)
            with self._while_there():
                message: Message | None = super().poll(min(left_s, SLICE_S))
            if message is not None or (until_ns is not None and now_ns() >= until_ns):
                break
        if message is not None and message.error() is None:
            self._rows.given([message], asked_ns=asked_ns)
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """As the original; Sealed once it was ended."""
        asked_ns = now_ns()
        with self._while_there():
            messages: list[Message] = super().consume(num_messages, timeout)
        self._rows.given([message for message in messages if message.error() is None], asked_ns=asked_ns)
        return messages

    @contextmanager
    def _while_there(self) -> Iterator[None]:
        """librdkafka never ends a consumer that a thread is asking: that one would take the answer to the ending."""
        with self._asking:
            if self._ended:
                raise Sealed(OVER)
            yield

    def processing(self, messages: Message | Sequence[Message]) -> AbstractContextManager[None]:
        """What is done with these records: they count as processed once it ends without an exception."""
        return self._rows.processing([messages] if isinstance(messages, Message) else list(messages))

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

        def told(event: int, callback: Rebalanced | None) -> Rebalanced:
            def rebalanced(consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
                with self._rows.rebalanced(event, partitions):
                    if callback is not None and not self._ended:
                        callback(consumer, partitions)

            return rebalanced

        super().subscribe(
            list(topics),
            on_assign=told(ASSIGN, on_assign),
            on_revoke=told(REVOKE, on_revoke),
            on_lost=told(LOST, on_lost or on_revoke),
            **more,
        )

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """As the original."""
        self._rows.assigned(partitions)
        super().assign(list(partitions))

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """As the original."""
        self._rows.assigned(partitions)
        super().incremental_assign(list(partitions))

    def seek(self, partition: TopicPartition) -> None:
        """As the original."""
        super().seek(partition)
        self._rows.sought(partition)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """As the original."""
        super().pause(list(partitions))
        self._rows.note_positions(partitions, PAUSED)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """As the original."""
        super().resume(list(partitions))
        self._rows.note_positions(partitions, RESUMED)

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
        ended = self._rows.begin_commit(message, offsets, asynchronous=asynchronous)
        try:
            answers: list[TopicPartition] | None = super().commit(**more)
        except KafkaException as error:
            ended(None, error.args[0])
            raise
        ended(answers, None)
        return answers

    def _answered(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        self._rows.answered(error, partitions)
        if self._on_commit is not None and not self._ended:
            self._on_commit(error, partitions)

    def store_offsets(self, message: Message | None = None, offsets: Sequence[TopicPartition] | None = None) -> None:
        """As the original."""
        super().store_offsets(**({"message": message} if message is not None else {"offsets": list(offsets or ())}))
        self._rows.stored(message, offsets or ())

    def consumer_group_metadata(self) -> Any:  # noqa: ANN401
        """As the original; a recorded producer knows whose it is."""
        metadata = super().consumer_group_metadata()
        _METADATA[id(metadata)] = (metadata, self)
        return metadata

    def committing_in_transaction(self, positions: Sequence[TopicPartition]) -> Callable[[KafkaError | None], None]:
        """A producer is about to send these offsets in its transaction; what to call when that has ended."""
        return self._rows.committing_in_transaction(positions)

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """As the original."""
        with self._rows.closing():
            super().close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def seal(self, *, timeout_s: float) -> None:
        """See `recorded_client.Recorded`. What the application still does with it is nobody's business here."""
        for key in [key for key, (_, whose) in _METADATA.items() if whose is self]:
            del _METADATA[key]
        self._rows.seal()

    def end(self) -> None:
        """See `recorded_client.Recorded`."""
        self._ended = True
        with self._asking, suppress(KafkaException, RuntimeError):
            super().close()


def consumer_of(metadata: object) -> RecordedConsumer | None:
    """Whose group metadata this is; None = of nobody who is recorded."""
    held = _METADATA.get(id(metadata))
    return None if held is None else held[1]
