"""Recorded clients of aiokafka. Their configuration is written down under librdkafka's names, so that a verdict can
rest on it.

Where aiokafka does something in one place alone, that place is recorded, so that it does not matter by which of its methods
an application came there: records enter its accumulator, and offsets leave by one request. What is not recorded
(transactions, batches that the application builds itself, logging in) is refused, and never passed over.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as TopicPosition

from prozess.harness.installation import of_an_extra
from prozess.harness.interfaces.application import Property, RegisteredTopic
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import MISSING, NONE, SENDS, Isolation, Outcome, Role
from prozess.testing.recorded.client import (
    TEST_IS_OVER,
    ClientLog,
    ClientSealed,
    RecordedLife,
    crash_at,
    crashes_at,
    identity,
    now_ns,
    recording_of,
    remember_client,
    with_identity,
)
from prozess.testing.recorded.consumer_rows import ConsumerRows
from prozess.testing.recorded.topics import known_topic
from prozess.workloads.record.identity import key_id
from prozess.workloads.record.members import ASSIGN, AUTO, PAUSED, RESUMED, REVOKE, SYNC

with of_an_extra("A recorded client of aiokafka"):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
    from aiokafka.abc import ConsumerRebalanceListener

Answer = TypeVar("Answer")

_UNANSWERED = KafkaError(KafkaError._TIMED_OUT)
"""The error of a commit that failed in whatever way: nobody knows whether it took effect."""
REQUEST_TIMEOUT_MS = 40_000
STOP_S = 5.0
_OF_PRODUCERS = {"client_id": "client.id", "linger_ms": "linger.ms", "compression_type": "compression.type"}
_OF_CONSUMERS = {
    "client_id": "client.id",
    "group_id": "group.id",
    "group_instance_id": "group.instance.id",
    "auto_commit_interval_ms": "auto.commit.interval.ms",
    "max_poll_interval_ms": "max.poll.interval.ms",
    "heartbeat_interval_ms": "heartbeat.interval.ms",
}


def producer_properties(given: Mapping[str, Any]) -> dict[str, Property]:
    """Returns the properties of a librdkafka producer that would behave as an AIOKafkaProducer with these arguments.

    Its default of acks is 1, unless it is idempotent (aiokafka/producer/producer.py). A batch is given up request_timeout_ms
    after it was begun, and a request that is under way then may take as long again (message_accumulator.py, sender.py). While
    a request is under way to a partition, no other is sent there (`Sender._muted_partitions`).
    """
    _refuse(given)
    idempotent = bool(given.get("enable_idempotence", False))
    acks = str(given.get("acks", "all" if idempotent else 1))
    timeout_ms, linger_ms = int(given.get("request_timeout_ms", REQUEST_TIMEOUT_MS)), int(given.get("linger_ms", 0))
    return {
        "bootstrap.servers": _servers(given),
        "acks": "all" if acks == "-1" else acks,
        "enable.idempotence": idempotent,
        "message.timeout.ms": 2 * timeout_ms + linger_ms,
        "max.in.flight.requests.per.connection": 1,
        **_named(given, _OF_PRODUCERS),
    }


def consumer_properties(given: Mapping[str, Any]) -> dict[str, Property]:
    """Returns the properties of a librdkafka consumer that would behave as an AIOKafkaConsumer with these arguments.
    Its defaults differ from librdkafka's: read_uncommitted, a session of 10 s (aiokafka/consumer/consumer.py)."""
    _refuse(given)
    return {
        "bootstrap.servers": _servers(given),
        "enable.auto.commit": bool(given.get("enable_auto_commit", True)),
        "auto.offset.reset": str(given.get("auto_offset_reset", "latest")),
        "isolation.level": str(given.get("isolation_level", "read_uncommitted")),
        "session.timeout.ms": int(given.get("session_timeout_ms", 10_000)),
        **_named(given, _OF_CONSUMERS),
    }


class RecordedAIOKafkaProducer(AIOKafkaProducer):  # type: ignore[misc] # it has no types
    """A drop-in for `aiokafka.AIOKafkaProducer`. `recording`: the test's directory; None = the environment names it."""

    recording: ClassVar[Path | None] = None
    defaults: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, **given: object) -> None:
        settings = _with_defaults(self.defaults, given)
        properties, run = producer_properties(settings), recording_of(self.recording)
        super().__init__(**settings)
        self._life = RecordedLife(run, "producer", properties, isolation=Isolation.NOT_A_READER)
        self._rows = RowWriter(run.rows, SENDS, self._life.client)
        self._known: dict[str, RegisteredTopic] = {}
        self._turns: dict[TopicPartition, asyncio.Lock] = {}
        self._sealed, self._offsets_reported = False, properties["acks"] != "0"
        self._add = self._message_accumulator.add_message
        self._message_accumulator.add_message = self._add_recorded
        remember_client(run, self)

    async def _add_recorded(
        self, tp: TopicPartition, key: bytes | None, value: bytes | None, timeout: float,
        timestamp_ms: int | None = None, headers: Sequence[tuple[str, bytes]] = (),
    ) -> "asyncio.Future[Any]":  # fmt: skip
        """Records and sends a record whose partition is known. Records of one partition go one after the other, so
        that rows are in their order."""
        async with self._turns.setdefault(tp, asyncio.Lock()):
            facts = self._known.get(tp.topic) or await self._first_use(tp.topic)
            if self._sealed:
                raise ClientSealed(TEST_IS_OVER)
            dense, sequence = facts.first + tp.partition, self._rows.count
            size = NONE if value is None else len(value)
            info = int(Outcome.INFO)
            self._rows.append(now_ns(), MISSING, NONE, sequence, NONE, key_id(key), dense, info, 0, size)
            own_headers = with_identity(headers, identity(self._life.client, dense, sequence, self._life.token))
            try:
                future: asyncio.Future[Any] = await self._add(
                    tp, key, value, timeout, timestamp_ms=timestamp_ms, headers=own_headers
                )
            except BaseException:
                self._complete(sequence, Outcome.FAIL, NONE)  # it never entered the accumulator
                raise
            future.add_done_callback(partial(self._reported, sequence))
            return future

    async def _first_use(self, topic: str) -> RegisteredTopic:
        facts = await asyncio.to_thread(_topic, self._life, topic)
        self._life.registry.note(self._life.client, "wrote", topic)
        self._known[topic] = facts
        return facts

    def _reported(self, sequence: int, future: "asyncio.Future[Any]") -> None:
        """Completes a send. One that failed stays in doubt: it may have been appended all the same."""
        if future.cancelled() or future.exception() is not None:
            if not self._sealed:
                self._complete(sequence, Outcome.INFO, NONE)
            return
        crash_at("before", "deliver")
        if not self._sealed:
            offset = future.result().offset
            self._complete(sequence, Outcome.OK, offset if self._offsets_reported and offset >= 0 else NONE)
        crash_at("after", "deliver")

    def _complete(self, sequence: int, outcome: Outcome, offset: int) -> None:
        columns = {"outcome": int(outcome), "log_offset": offset, "completed_ns": now_ns()}
        self._rows.complete(np.array([sequence]), columns)

    async def send_batch(self, *_: object, **__: object) -> NoReturn:
        """Refuses: a batch that the application builds itself would not be recorded."""
        raise NotImplementedError("A recorded producer has no send_batch: call send for each record.")

    def seal(self, *, timeout_s: float) -> None:
        """Ends the rows (`Sealable`). It does not wait for what is under way: only the producer's event loop could
        bring that on."""
        if not self._sealed:
            self._sealed = True
            self._rows.close()
            self._life.end(issued=self._rows.count)

    def end(self) -> None:
        """Ends the producer (`Sealable`), in its event loop if that still runs."""
        _stop_in(self._loop, self.stop)


class RecordedAIOKafkaConsumer(AIOKafkaConsumer):  # type: ignore[misc] # it has no types
    """A drop-in for `aiokafka.AIOKafkaConsumer`. `recording`: as of the producer."""

    recording: ClassVar[Path | None] = None
    defaults: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, *topics: str, **given: object) -> None:
        settings = _with_defaults(self.defaults, given)
        properties, run = consumer_properties(settings), recording_of(self.recording)
        super().__init__(**settings)
        committed = properties["isolation.level"] == "read_committed"
        isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
        self._life = RecordedLife(run, "consumer", properties, isolation=isolation)
        # What it commits is recorded where the request is made, whoever asked for it.
        silent = {"enable.auto.commit": False, "enable.auto.offset.store": False}
        self._rows = ConsumerRows(run, self._life, properties | silent)
        self._ended, self._asked = False, False
        remember_client(run, self)
        if topics:
            self.subscribe(topics)

    async def start(self) -> None:
        """Connects, as aiokafka does. From then on its OffsetCommit requests are recorded, automatic ones too."""
        await super().start()
        if self._coordinator is not None and hasattr(self._coordinator, "_do_commit_offsets"):
            self._request = self._coordinator._do_commit_offsets
            self._coordinator._do_commit_offsets = self._commit_recorded

    # Reading and processing.

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        """Returns the next record, as aiokafka does; Sealed once the consumer was ended. `async for` comes here, too."""
        self._refuse_ended()
        asked_ns = now_ns()
        record = await super().getone(*partitions)
        return self._given([record], asked_ns)[0]

    async def getmany(
        self, *partitions: TopicPartition, **more: object
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:  # fmt: skip
        """Returns records by partition, as aiokafka does; Sealed once the consumer was ended."""
        self._refuse_ended()
        asked_ns = now_ns()
        found = await super().getmany(*partitions, **more)
        return {tp: self._given(records, asked_ns) for tp, records in found.items()}

    def _given(self, records: Sequence[ConsumerRecord[Any, Any]], asked_ns: int) -> list[ConsumerRecord[Any, Any]]:
        messages: list[Any] = [_Message(record) for record in records]
        self._rows.given(messages, asked_ns=asked_ns)
        return [message.record for message in messages]

    def processing(
        self, records: "ConsumerRecord[Any, Any] | Sequence[ConsumerRecord[Any, Any]]"
    ) -> AbstractContextManager[None]:
        """A context for the processing of these records, in which you may await: they count as processed once it ends
        without an exception."""
        several = [records] if isinstance(records, ConsumerRecord) else records
        messages: list[Any] = [_Message(record) for record in several]
        return self._rows.processing(messages)

    def _refuse_ended(self) -> None:
        if self._ended:
            raise ClientSealed(TEST_IS_OVER)

    # Assignments and positions.

    def subscribe(
        self,
        topics: Sequence[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribes to topics, as aiokafka does."""
        self._life.registry.note(self._life.client, "how", "subscribe")
        self._life.becomes(Role.MEMBER)
        super().subscribe(topics, pattern=pattern, listener=_Listener(self._rows, listener))

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Assigns partitions, as aiokafka does."""
        self._rows.assigned(_positions(partitions))
        super().assign(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Moves the position to an offset, as aiokafka does, and records it."""
        super().seek(partition, offset)
        self._rows.sought(TopicPosition(partition.topic, partition.partition, offset))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Seeks to the first offset, as aiokafka does."""
        return await self._sought(super().seek_to_beginning, partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Moves the positions behind the last records, as aiokafka does, and records a seek of each partition."""
        return await self._sought(super().seek_to_end, partitions)

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Moves the positions to the committed offsets, as aiokafka does, and records a seek of each partition."""
        return await self._sought(super().seek_to_committed, partitions)

    async def _sought(self, seek: Callable[..., Awaitable[Answer]], partitions: Sequence[TopicPartition]) -> Answer:
        answer = await seek(*partitions)
        for tp in _positions(partitions or self.assignment()):
            self._rows.sought(tp)
        return answer

    def pause(self, *partitions: TopicPartition) -> None:
        """Pauses partitions, as aiokafka does."""
        super().pause(*partitions)
        self._rows.note_positions(_positions(partitions), PAUSED)

    def resume(self, *partitions: TopicPartition) -> None:
        """Resumes partitions, as aiokafka does."""
        super().resume(*partitions)
        self._rows.note_positions(_positions(partitions), RESUMED)

    # Commits.

    async def commit(self, offsets: Mapping[TopicPartition, object] | None = None) -> None:
        """Commits offsets, as aiokafka does."""
        self._asked = True
        try:
            await super().commit(offsets)
        finally:
            self._asked = False

    async def _commit_recorded(self, assignment: object, offsets: Mapping[TopicPartition, Any]) -> object:
        """Records one commit request, whether `commit` or aiokafka itself makes it."""
        committed = [TopicPosition(tp.topic, tp.partition, position.offset) for tp, position in offsets.items()]
        ended = self._rows.begin_request(committed, mode=SYNC if self._asked else AUTO)
        try:
            answer = await self._request(assignment, offsets)
        except BaseException:
            ended(_UNANSWERED)
            raise
        ended(None)
        return answer

    # The end.

    async def stop(self) -> None:
        """Leaves the group and closes connections, as aiokafka does, and closes the rows. A second call does nothing."""
        if self._closed:
            return
        with self._rows.closing():
            await super().stop()

    def seal(self, *, timeout_s: float) -> None:
        """Ends the rows (`Sealable`)."""
        self._rows.seal()

    def end(self) -> None:
        """Ends the consumer (`Sealable`), in its event loop if that still runs."""
        self._ended = True
        _stop_in(self._loop, super().stop)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # it has no types
    """Records a rebalance, around what the application's own listener does."""

    def __init__(self, rows: ConsumerRows, own: ConsumerRebalanceListener | None) -> None:
        self._rows, self._own = rows, own

    async def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        with self._rows.rebalanced(REVOKE, _positions(revoked)):
            if self._own is not None:
                await _awaited(self._own.on_partitions_revoked(revoked))

    async def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        with self._rows.rebalanced(ASSIGN, _positions(assigned)):
            if self._own is not None:
                await _awaited(self._own.on_partitions_assigned(assigned))


class _Message:
    """A record of aiokafka with the methods of confluent_kafka's `Message`, which `ConsumerRows` reads."""

    def __init__(self, record: "ConsumerRecord[Any, Any]") -> None:
        self.record = record

    def topic(self) -> str:
        return str(self.record.topic)

    def partition(self) -> int:
        return int(self.record.partition)

    def offset(self) -> int:
        return int(self.record.offset)

    def key(self) -> bytes | str | None:
        key = self.record.key
        return key if key is None or isinstance(key, bytes | str) else repr(key)

    def headers(self) -> list[tuple[str, bytes]]:
        return list(self.record.headers)

    def set_headers(self, headers: Sequence[tuple[str, bytes]]) -> None:
        self.record = replace(self.record, headers=tuple(headers))

    def leader_epoch(self) -> None:
        return None


async def _awaited(answer: object) -> None:
    # A listener's methods may be plain functions.
    if asyncio.iscoroutine(answer):
        await answer


def _positions(partitions: Iterable[TopicPartition]) -> list[TopicPosition]:
    return [TopicPosition(tp.topic, tp.partition) for tp in partitions]


def _topic(life: RecordedLife, topic: str) -> RegisteredTopic:
    return known_topic(life.registry, topic, life.reaching, ClientLog(life.run))


def _stop_in(loop: asyncio.AbstractEventLoop, stop: Callable[[], Any]) -> None:
    if loop.is_running():
        with suppress(RuntimeError, TimeoutError):
            asyncio.run_coroutine_threadsafe(stop(), loop).result(STOP_S)


def _with_defaults(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    servers = {"bootstrap_servers": defaults["bootstrap.servers"]} if "bootstrap.servers" in defaults else {}
    return {**servers, **given}


def _servers(given: Mapping[str, Any]) -> str:
    servers = given.get("bootstrap_servers", "localhost")
    every = [servers] if isinstance(servers, str) else list(servers)
    return ",".join(server if ":" in server else f"{server}:9092" for text in every for server in text.split(","))


def _named(given: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Property]:
    return {name: given[own] for own, name in names.items() if given.get(own) is not None}


def _refuse(given: Mapping[str, Any]) -> None:
    """Raises NotImplementedError for arguments whose effect nobody would record."""
    if given.get("transactional_id") is not None:
        raise NotImplementedError("Transactions of aiokafka are not recorded: leave transactional_id away in the test.")
    if given.get("security_protocol", "PLAINTEXT") != "PLAINTEXT":
        raise NotImplementedError("Recorded clients of aiokafka do not log in: give the test a PLAINTEXT listener.")


crashes_at(RecordedAIOKafkaProducer, {"send": "produce", "flush": "flush"})
crashes_at(
    RecordedAIOKafkaConsumer,
    {"getone": "receive", "getmany": "receive", "processing": "process", "commit": "commit"},
)
