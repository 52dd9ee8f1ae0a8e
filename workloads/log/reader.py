"""A tailing reader by assignment records every record that it is given as a row of `reads`, in that order. It does so
without a Python loop body per record.

Order is judged within a *span*. Every assignment, seek and reset begins a new one, with a row in `positions`. Resets are
ours: `auto.offset.reset=error` makes librdkafka report out-of-range offsets and log truncation (KIP-320) instead of silently
jumping, and the reader then goes back to the log start, as `earliest` would.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import confluent_kafka
import numpy as np
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
    admin,
)

from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import NONE, POSITIONS, READS
from prozess.workloads import messages
from prozess.workloads.client import Client, NowNs
from prozess.workloads.librdkafka import LOST_POSITION, logged_in
from prozess.workloads.record.identity import (
    CopyReader,
    CopyRules,
    decode,
    decode_foreign,
    identity_values,
    key_ids,
    partition_mask,
)
from prozess.workloads.record.members import ASSIGNED, RESET
from prozess.workloads.settings import FOR_A_BROKEN_CLUSTER, ReaderOptions, options_of

if TYPE_CHECKING:  # an old version of the library, whose producers and members are on trial, has none of them
    from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec  # type: ignore[attr-defined] # it is there

CONSUME_RECORDS_MAX = 2_000
CONSUME_S = 0.05
"""A batch that is not full is given after this long, so `read_ns` may be late by as much."""
RESET_PAUSE_NS = 500_000_000
"""The least time between two resets of one partition: else a log start that cannot be looked up would be asked for all
the time."""
_TOPIC_OF = cast(Callable[[Message], str], Message.topic)  # None only for errors that concern no topic


class ReadWriter(Protocol):
    """Takes the columns of new rows of `reads`."""

    @property
    def count(self) -> int:
        """Returns how many rows it has taken."""
        ...

    def extend(self, columns: Mapping[str, np.ndarray]) -> object: ...

    def close(self) -> None: ...


class ReadRows:
    """Turns batches of messages into rows of `reads`."""

    def __init__(
        self,
        writer: ReadWriter,
        partitions: Sequence[tuple[int, str, int]],
        now_ns: NowNs,
        *,
        foreign: Sequence[int] = (),
        senders: Sequence[int] | None = None,
        copies: CopyRules | None = None,
    ) -> None:
        """`foreign`: dense ids of partitions whose records carry "prefix.n" in place of our identity, `senders`: which
        prefixes count (None = any); `copies`: where identity and origin are in topics that are copied."""
        self.writer, self._now_ns = writer, now_ns
        self._topics = {topic: index for index, topic in enumerate(dict.fromkeys(topic for _, topic, _ in partitions))}
        numbers = 1 + max(number for _, _, number in partitions)
        self._dense = np.full((len(self._topics), numbers), NONE, dtype=np.int32)
        for dense, topic, number in partitions:
            self._dense[self._topics[topic], number] = dense
        size = 1 + max(dense for dense, _, _ in partitions)
        self.span = np.zeros(size, dtype=np.int32)
        """The span that records read now belong to, by dense partition."""
        self.next_offset = np.zeros(size, dtype=np.int64)
        """The offset behind the last record read, by dense partition."""
        self._foreign, self._any_foreign = partition_mask(size, foreign), bool(foreign)
        self._senders = None if senders is None else np.array(senders, dtype=np.int32)
        self._copies = CopyReader(copies or CopyRules(), size)

    def dense(self, message: Message) -> int:
        """Returns the dense id of the partition that a message (or an error) is of."""
        topic, number = message.topic(), message.partition()
        assert topic is not None
        assert number is not None
        return int(self._dense[self._topics[topic], number])

    def record(self, messages: Sequence[Message]) -> Mapping[str, np.ndarray]:
        """Appends one row per message (none of them an error) and returns the columns."""
        read_ns, count = self._now_ns(), len(messages)
        offsets = np.fromiter(map(Message.offset, messages), dtype=np.int64, count=count)
        topics = np.fromiter(map(self._topics.__getitem__, map(_TOPIC_OF, messages)), dtype=np.intp, count=count)
        numbers = np.fromiter(map(Message.partition, messages), dtype=np.intp, count=count)
        partitions = self._dense[topics, numbers]
        values = identity_values(messages)
        if self._copies.any:
            values = self._copies.carriers(messages, values, partitions)
        identities, origin = decode(values), np.full(count, NONE, dtype=np.int64)
        if self._any_foreign:
            identities = decode_foreign(values, identities, self._foreign[partitions], self._senders)
        if self._copies.any:
            origin = self._copies.resolve(messages, values, identities, partitions)
        columns: dict[str, np.ndarray] = {
            "read_ns": np.full(count, read_ns, dtype=np.int64),
            "log_offset": offsets,
            "sequence": identities.sequence,
            "key": key_ids(list(map(Message.key, messages))),
            "origin": origin,
            "sender": identities.sender,
            "partition": partitions,
            "sent_partition": identities.sent_partition,
            "span": self.span[partitions],
            "flags": identities.flags,
            "leader_epoch": _epochs(messages),
        }
        self.writer.extend(columns)
        self.next_offset[partitions] = offsets + 1  # of several in one batch numpy keeps the last
        return columns


_HAS_EPOCH = hasattr(Message, "leader_epoch")
"""confluent-kafka has it since 2.1.0 (KIP-320)."""


def _epochs(messages: Sequence[Message]) -> np.ndarray:
    if not _HAS_EPOCH:
        return np.full(len(messages), NONE, dtype=np.int32)
    epochs = list(map(Message.leader_epoch, messages))
    try:
        return np.array(epochs, dtype=np.int32)
    except TypeError:
        return np.array([NONE if epoch is None else epoch for epoch in epochs], dtype=np.int32)


def records_and_errors(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """Divides messages into records and errors."""
    errors = list(map(Message.error, messages))
    if not any(errors):  # not `errors.count(None)`: a KafkaError raises when compared with None
        return messages, []
    records = [m for m, error in zip(messages, errors, strict=True) if error is None]
    return records, [m for m, error in zip(messages, errors, strict=True) if error is not None]


class PartitionConsumer:
    """A consumer of fixed partitions, and its successors: it consumes, records, resets, and is made anew when it dies."""

    def __init__(self, client: Client, *, start_offsets: Mapping[int, int]) -> None:
        """`start_offsets`: where to begin, by dense partition; 0 for partitions that are not in it."""
        spec, options = client.spec, options_of(client.spec, ReaderOptions)
        self._client, self._spec = client, spec
        self.rows = ReadRows(
            RowWriter(client.rows, READS, spec.client),
            spec.partitions,
            client.now_ns,
            foreign=options.foreign,
            senders=options.senders,
            copies=options.copies,
        )
        self._positions = RowWriter(client.rows, POSITIONS, spec.client)
        self._names = {dense: (topic, number) for dense, topic, number in spec.partitions}
        self._last_reset_ns: dict[int, int] = {}
        self._to_reset: set[int] = set()
        self._spans = -1
        self.lost_at: dict[int, int] = {}
        """The greatest position that was out of range, by dense partition: each was reset to the log start."""
        for dense, offset in start_offsets.items():
            self.rows.next_offset[dense] = offset
        self._consumer = self._new_consumer()

    def consume(self, *, timeout_s: float = CONSUME_S) -> Mapping[str, np.ndarray] | None:
        """Takes the records that are there and records them. Returns the columns of the new rows, or None if there was
        no record."""
        if self._client.fatal is not None:
            self._renew()
        self._reset_what_is_due()
        messages = self._client.serve(self._consumer.consume, CONSUME_RECORDS_MAX, timeout_s) or []
        messages, errors = records_and_errors(messages)
        for message in errors:
            self._handle(message)
        return self.rows.record(messages) if messages else None

    def close(self) -> None:
        """Writes `reads` and `positions` to their end."""
        self.rows.writer.close()
        self._positions.close()

    def _new_consumer(self) -> Consumer:
        """Makes a consumer that is assigned every partition at the position reached. That is one new span."""
        callbacks = {"error_cb": self._client.on_error, **self._client.statistics.callbacks}
        consumer = Consumer(logged_in({**self._spec.properties, **callbacks}))
        self._spans += 1
        now_ns = self._client.now_ns()
        assignment = []
        for dense, (topic, number) in self._names.items():
            offset = int(self.rows.next_offset[dense])
            self.rows.span[dense] = self._spans
            self._positions.append(now_ns, offset, dense, ASSIGNED, self._spans)
            assignment.append(TopicPartition(topic, number, offset))
        consumer.assign(assignment)
        return consumer

    def _renew(self) -> None:
        self._client.log(f"the consumer died ({self._client.fatal}); a new one goes on at its positions")
        self._client.fatal = None
        self._to_reset.clear()
        self._consumer.close()
        self._consumer = self._new_consumer()

    def _handle(self, message: Message) -> None:
        """Takes an error that came in place of a record. Only a lost position needs something done; the rest
        librdkafka retries."""
        error = message.error()
        assert error is not None
        self._client.on_error(error)
        if error.code() in LOST_POSITION:
            self._to_reset.add(self.rows.dense(message))

    def _reset_what_is_due(self) -> None:
        now_ns = self._client.now_ns()
        for dense in tuple(self._to_reset):
            if now_ns - self._last_reset_ns.get(dense, -RESET_PAUSE_NS) < RESET_PAUSE_NS:
                continue
            self._to_reset.discard(dense)
            self._last_reset_ns[dense] = now_ns
            self._reset(dense)

    def _reset(self, dense: int) -> None:
        """Goes back to the log start, whose offset is not reported. That is a new span."""
        topic, number = self._names[dense]
        self._spans += 1
        self.lost_at[dense] = max(self.lost_at.get(dense, 0), int(self.rows.next_offset[dense]))
        self.rows.span[dense] = self._spans
        self._positions.append(self._client.now_ns(), NONE, dense, RESET, self._spans)
        self._client.log(f"partition {dense} ({topic}-{number}) is reset to its log start")
        # seek() is refused (_STATE) once librdkafka has given a partition up; assigning it anew is not.
        try:
            self._consumer.incremental_unassign([TopicPartition(topic, number)])
            self._consumer.incremental_assign([TopicPartition(topic, number, OFFSET_BEGINNING)])
        except KafkaException as error:
            self._client.log(f"resetting failed: {error.args[0].str()}; trying again")
            self._to_reset.add(dense)


class LogReader:
    """A tailing reader (role `reader`): it reads until it is asked to stop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._reading = PartitionConsumer(client, start_offsets=client.launch.start_offsets)
        self._stopped = False
        self._through: dict[int, int] | None = None
        """The offset, by dense partition, through which it is to read before it says `reached`."""

    def run(self) -> None:
        """Reads until `stop`. After a command `reach` it sends `reached` once it has read through the given offsets."""
        while not self._stopped:
            for order in self._client.control.commands():
                self._obey(order)
            self._client.heartbeat(self._client.now_ns())
            self._reading.consume()
            if self._through is not None and self._has_reached(self._through):
                self._through = None
                self._client.control.send(messages.ReachedEvent())

    def issued(self) -> int:
        """Returns how many records were read."""
        return self._reading.rows.writer.count

    def close(self) -> None:
        """Writes the rows to their end."""
        self._reading.close()

    def _obey(self, order: messages.Order) -> None:
        match order.command:
            case messages.ReachCommand(through=through):
                self._through = through
            case messages.StopCommand():
                self._stopped = True
            case unknown:
                raise AssertionError(unknown)
        self._client.control.send(messages.DoneEvent(number=order.number))

    def _has_reached(self, through: Mapping[int, int]) -> bool:
        reached = self._reading.rows.next_offset
        return all(reached[dense] > through[dense] for dense, _, _ in self._client.spec.partitions if dense in through)


# Offsets looked up for many partitions at once (ListOffsets, KIP-396), while the heart goes on beating.

LOOK_UP_S = 5.0
_SLICE_S = 0.02


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """The offset of a partition that was looked up. `leader_epoch` NONE = not reported."""

    offset: int
    leader_epoch: int


class Offsets:
    """Looks up offsets of many partitions at once, through a connection of its own (ListOffsets, KIP-396)."""

    def __init__(self, client: Client, partitions: Collection[int] | None = None) -> None:
        """`partitions`: dense ids; None = all partitions of the client."""
        self._client = client
        servers = client.spec.properties["bootstrap.servers"]
        self._admin = admin.AdminClient(logged_in({**FOR_A_BROKEN_CLUSTER, "bootstrap.servers": servers}))
        self._dense: Mapping[TopicPartition, int] = {
            TopicPartition(topic, number): dense
            for dense, topic, number in client.spec.partitions
            if partitions is None or dense in partitions
        }

    def earliest(self) -> dict[int, PartitionOffset]:
        """Returns the log start of every partition that was answered for within LOOK_UP_S, by dense id."""
        return self._wait(self._ask(admin.OffsetSpec.earliest()))  # type: ignore[no-untyped-call, attr-defined]

    def latest(self) -> dict[int, PartitionOffset]:
        """Returns the high watermark of every partition, which is what `latest` is at read_uncommitted."""
        return self._wait(self.ask_latest())

    def ask_latest(self) -> "OffsetRequest":
        """Asks for the high watermarks without waiting for the answers."""
        return self._ask(admin.OffsetSpec.latest())  # type: ignore[no-untyped-call, attr-defined]

    def _ask(self, spec: "OffsetSpec") -> "OffsetRequest":
        answers = self._admin.list_offsets(
            dict.fromkeys(self._dense, spec),
            isolation_level=confluent_kafka.IsolationLevel.READ_UNCOMMITTED,
            request_timeout=LOOK_UP_S,
        )
        return OffsetRequest(self._client, {self._dense[partition]: future for partition, future in answers.items()})

    def _wait(self, asked: "OffsetRequest") -> dict[int, PartitionOffset]:
        while not asked.answered:
            wait(asked.futures.values(), timeout=_SLICE_S)
            self._client.heartbeat(self._client.now_ns())
        return asked.found()


class OffsetRequest:
    """A look-up that was sent. `futures`: the answers to come, by dense id."""

    def __init__(self, client: Client, futures: Mapping[int, "Future[ListOffsetsResultInfo]"]) -> None:
        self.futures = futures
        self._client = client
        self._until_ns = client.now_ns() + int((LOOK_UP_S + 1) * 1e9)

    @property
    def answered(self) -> bool:
        """Returns whether everything was answered, or its time has passed."""
        return all(future.done() for future in self.futures.values()) or self._client.now_ns() >= self._until_ns

    def found(self) -> dict[int, PartitionOffset]:
        """Returns the offsets by dense id; logs what was not found."""
        found: dict[int, PartitionOffset] = {}
        for dense, future in self.futures.items():
            try:
                answer = future.result(timeout=0)
            except (KafkaException, TimeoutError) as error:
                self._client.log(f"the offset of partition {dense} was not found: {error or 'no answer'}")
                continue
            epoch = NONE if answer.leader_epoch is None else answer.leader_epoch
            found[dense] = PartitionOffset(offset=answer.offset, leader_epoch=epoch)
        return found
