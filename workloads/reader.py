"""A tailing reader by assignment: every record it is given becomes a row of `reads`, in the order given, without a Python
loop body per record.

Order is judged within a *span*. Every assignment, seek and reset begins a new one, with a row in `positions`. Resets are
ours: `auto.offset.reset=error` makes librdkafka report out-of-range offsets and log truncation (KIP-320) instead of silently
jumping, and the reader then goes back to the log start, as `earliest` would.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from harness.rows import RowWriter
from harness.schema import NONE, POSITIONS, READS
from workloads.carrier import decode, decode_foreign, identity_values, key_ids
from workloads.client import Client, NowNs
from workloads.copies import CopyReader, CopyRules, rules_from

CONSUME_RECORDS_MAX = 2_000
CONSUME_S = 0.05
"""A batch that is not full is given after this long: what `read_ns` may be late by."""
RESET_PAUSE_NS = 500_000_000
"""Between two resets of one partition: a log start that cannot be looked up would be asked for in a busy loop."""
ASSIGNED, RESET = 1, 3
"""`positions.event`."""
_TOPIC_OF = cast(Callable[[Message], str], Message.topic)  # None only for errors that concern no topic


class ReadRows:
    """Turns batches of messages into rows of `reads`."""

    def __init__(
        self,
        writer: RowWriter,
        partitions: Sequence[tuple[int, str, int]],
        now_ns: NowNs,
        *,
        foreign: Sequence[int] = (),
        copies: CopyRules | None = None,
    ) -> None:
        """`foreign`: dense ids of partitions whose records carry "prefix.n" in place of our identity; `copies`: where
        identity and origin are in topics that are copied."""
        self.writer, self._now_ns = writer, now_ns
        self._topics = {topic: index for index, topic in enumerate(dict.fromkeys(topic for _, topic, _ in partitions))}
        numbers = 1 + max(number for _, _, number in partitions)
        self._dense = np.full((len(self._topics), numbers), NONE, dtype=np.int32)
        for dense, topic, number in partitions:
            self._dense[self._topics[topic], number] = dense
        size = 1 + max(dense for dense, _, _ in partitions)
        self.span = np.zeros(size, dtype=np.int32)
        """By dense partition: the span that records read now belong to."""
        self.next_offset = np.zeros(size, dtype=np.int64)
        """By dense partition: one past the last record read."""
        self._foreign, self._any_foreign = np.zeros(size, dtype=bool), bool(foreign)
        self._foreign[list(foreign)] = True
        self._copies = CopyReader(copies or CopyRules(), size)

    def dense(self, message: Message) -> int:
        """Dense id of the partition a message (or an error) is of."""
        topic, number = message.topic(), message.partition()
        assert topic is not None
        assert number is not None
        return int(self._dense[self._topics[topic], number])

    def record(self, messages: Sequence[Message]) -> Mapping[str, np.ndarray]:
        """Append one row per message (none of them an error) and return the columns."""
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
            identities = decode_foreign(values, identities, self._foreign[partitions])
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


def _epochs(messages: Sequence[Message]) -> np.ndarray:
    epochs = list(map(Message.leader_epoch, messages))
    try:
        return np.array(epochs, dtype=np.int32)
    except TypeError:
        return np.array([NONE if epoch is None else epoch for epoch in epochs], dtype=np.int32)


def without_errors(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """Records, and what was given in their place: errors."""
    errors = list(map(Message.error, messages))
    if not any(errors):  # not `errors.count(None)`: a KafkaError raises when compared with None
        return messages, []
    records = [m for m, error in zip(messages, errors, strict=True) if error is None]
    return records, [m for m, error in zip(messages, errors, strict=True) if error is not None]


class Reading:
    """A consumer instance over fixed partitions, and its successors: consumes, records, resets, is made anew when it dies."""

    def __init__(self, client: Client, *, start_offsets: Mapping[int, int]) -> None:
        """`start_offsets`: by dense partition; 0 where it says nothing."""
        spec = client.spec
        self._client, self._spec = client, spec
        self.rows = ReadRows(
            RowWriter(client.rows, READS, spec.client),
            spec.partitions,
            client.now_ns,
            foreign=spec.options.get("foreign", ()),
            copies=rules_from(spec.options),
        )
        self._positions = RowWriter(client.rows, POSITIONS, spec.client)
        self._names = {dense: (topic, number) for dense, topic, number in spec.partitions}
        self._last_reset_ns: dict[int, int] = {}
        self._to_reset: set[int] = set()
        self._spans = -1
        self.was_reset: set[int] = set()
        for dense, offset in start_offsets.items():
            self.rows.next_offset[dense] = offset
        self._consumer = self._new_consumer()

    def consume(self, *, timeout_s: float = CONSUME_S) -> Mapping[str, np.ndarray] | None:
        """Take what is there and record it; the columns of the new rows, or None if there was no record."""
        if self._client.fatal is not None:
            self._renew()
        self._reset_what_is_due()
        messages = self._client.serve(self._consumer.consume, CONSUME_RECORDS_MAX, timeout_s) or []
        messages, errors = without_errors(messages)
        for message in errors:
            self._handle(message)
        return self.rows.record(messages) if messages else None

    def close(self) -> None:
        """Flush `reads` and `positions`."""
        self.rows.writer.close()
        self._positions.close()

    def _new_consumer(self) -> Consumer:
        """An instance assigned every partition at the position reached: one new span."""
        callbacks = {"error_cb": self._client.on_error, **self._client.statistics.callbacks}
        consumer = Consumer({**self._spec.properties, **callbacks})
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
        """An error in place of a record. Only a lost position needs something done; the rest librdkafka retries."""
        error = message.error()
        assert error is not None
        self._client.on_error(error)
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION):
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
        """Back to the log start, whose offset is not told: a new span."""
        topic, number = self._names[dense]
        self._spans += 1
        self.was_reset.add(dense)
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
    """The role `reader`: reads until told to stop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._reading = Reading(client, start_offsets=client.launch.start_offsets)
        self._stopped = False
        self._through: dict[int, int] | None = None
        """By dense partition: through which offset it is to read before it tells `reached`."""

    def run(self) -> None:
        """Until `stop`. Once told `reach`, it tells `reached` when it has read through the offsets given."""
        while not self._stopped:
            for command in self._client.control.commands():
                self._obey(command)
            self._client.heartbeat(self._client.now_ns())
            self._reading.consume()
            if self._through is not None and self._has_reached(self._through):
                self._through = None
                self._client.control.tell("reached")

    def issued(self) -> int:
        """Records read."""
        return self._reading.rows.writer.count

    def close(self) -> None:
        """Flush."""
        self._reading.close()

    def _obey(self, command: dict[str, Any]) -> None:
        match command["do"]:
            case "reach":
                self._through = dict(command["through"])
            case "stop":
                self._stopped = True
            case unknown:
                raise AssertionError(unknown)
        self._client.control.tell("done", number=command["number"])

    def _has_reached(self, through: Mapping[int, int]) -> bool:
        reached = self._reading.rows.next_offset
        return all(reached[dense] > through[dense] for dense, _, _ in self._client.spec.partitions if dense in through)
