"""Producers that send at a rate, in turn to each of their partitions, and record every send. Some send keyed records
or text."""

import json
import random
import struct
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, TypeGuard

from confluent_kafka import KafkaError, KafkaException, Producer

from prozess.harness.clock import NS_PER_S
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import MISSING, NONE, SENDS, WITHHELD
from prozess.workloads import messages
from prozess.workloads.client import Client, FatalClient
from prozess.workloads.librdkafka import logged_in
from prozess.workloads.log.reader import Offsets
from prozess.workloads.record.identity import HEADER_NAME, VALUE_BYTES_MIN, encoder, key_id
from prozess.workloads.record.outcomes import INSTANCE_IS_DEAD
from prozess.workloads.record.sends import (
    FEW,
    Issuing,
    PartitionName,
    Reports,
    WithheldRows,
    complete_refused,
    completer,
    completer_at,
)
from prozess.workloads.settings import KeyedOptions, offsets_are_reported, options_of

# A send's row is written before produce() and completed in place by its delivery report; a row nobody completes is
# INFO. Therefore nothing that reached Kafka is missing from the history, whoever is killed when. What a partition's cap of
# unacknowledged records holds back is recorded as withheld, and is no send.


POLL_S = 0.02
CATCH_UP_NS = 100_000_000
"""A producer that was starved for longer than this does not catch up: a burst would be another workload."""
ISSUE_MAX = 500
"""The most records that are issued between two polls."""
FATAL_DRAIN_NS = 500_000_000
"""How long a dead instance may still hand out delivery reports."""
FATAL_REASON_S = 0.2
"""How long after a fatal error its reason may come."""
LEARN_LIMIT_NS, LEARN_ASK_S = 5_000_000_000, 0.5
"""How long a producer may ask for new partitions, and writes to them then all the same; and how long one answer may take."""
HANDLED_LIMIT_NS, HANDLED_QUIET_NS, HANDLED_INTERVAL_S = 10_000_000_000, 1_500_000_000, 0.05
"""At the end with acks=0: how long to wait at most, how long without growth of the logs, and how often to look."""
_DENSE = itemgetter(0)


def until_handled(offsets: Offsets, reported: Mapping[int, int], client: Client) -> Iterator[float]:
    """Stays connected until the brokers have handled what acks=0 only put into sockets. Yields how long to wait, in seconds,
    before the next look. `reported`: how many records were reported without an error, by dense partition.

    A broker that is behind may find, among the produce requests, one that it answers. If this process has ended by then,
    its kernel resets the connection, and the broker drops everything behind that request: lost by us and not by Kafka
    (seen without any fault: the last 1.7 s of a partition). No answer says when it has caught up; so look until the
    partitions hold as many records as were sent, or have not grown for a while, because some were really lost.
    """
    began_ns = grown_ns = client.now_ns()
    last: dict[int, int] = {}
    while (now_ns := client.now_ns()) - began_ns < HANDLED_LIMIT_NS and now_ns - grown_ns < HANDLED_QUIET_NS:
        asked = offsets.ask_latest()
        while not asked.answered:
            client.heartbeat(client.now_ns())
            yield HANDLED_INTERVAL_S
        ends = {dense: found.offset for dense, found in asked.found().items()}
        if all(ends.get(dense, 0) >= count for dense, count in reported.items()):
            return
        if ends != last:
            last, grown_ns = ends, client.now_ns()
        client.heartbeat(client.now_ns())
        yield HANDLED_INTERVAL_S


@dataclass(frozen=True, slots=True)
class _Begin:
    """A command to write to late partitions too, which is done once the library knows them."""

    partitions: tuple[PartitionName, ...]
    order: int
    until_ns: int


class LogProducer:
    """A producer of the log workload (role `producer`). It starts paused; commands: resume, pause, send, begin,
    finish, stop. Option: `late`, dense ids of partitions that it writes to once asked to `begin`."""

    def __init__(self, client: Client) -> None:
        spec = client.spec
        self._client, self._spec, self._now_ns = client, spec, client.now_ns
        self._sends = RowWriter(client.rows, SENDS, spec.client)
        self._withheld = WithheldRows(RowWriter(client.rows, WITHHELD, spec.client), client.now_ns)
        self._encode = encoder(sender=spec.client, value_bytes=spec.value_bytes)
        self._in_flight = {dense: 0 for dense, _, _ in spec.partitions}
        self._reported = dict(self._in_flight)
        """How many records were reported without an error, by dense partition."""
        complete_one = completer(self._sends, spec.properties, client.now_ns, self._settled)
        self._reports = Reports(
            self._sends,
            client.now_ns,
            complete_one=complete_one,
            acknowledged=self._settled_without_error,
            offsets_reported=offsets_are_reported(spec.properties),
        )
        self._issuing = Issuing(
            self._sends, client.now_ns, sender=spec.client, value_bytes=spec.value_bytes, most=ISSUE_MAX
        )
        callbacks = {"on_delivery": self._reports.reported, "error_cb": client.on_error, **client.statistics.callbacks}
        self._producer = self._made({**spec.properties, **callbacks})
        self._partitions = tuple(partition for partition in spec.partitions if partition[0] not in spec.late)
        """The partitions that it writes to now."""
        self._resumed, self._stopped = False, False
        self._due_ns, self._turn = 0.0, 0
        self._asked: deque[PartitionName] = deque()
        self._asked_by: deque[tuple[int, int]] = deque()
        self._asked_count = self._asked_done = 0
        self._finish_by_ns: int | None = None
        self._begins: deque[_Begin] = deque()

    def _made(self, configuration: dict[str, Any]) -> Producer:
        """Makes the Kafka client."""
        return Producer(logged_in(configuration))

    def run(self) -> None:
        """Works until `stop`, or until `finish` and the last delivery report, or the limit of `finish`."""
        for wait_s in self.steps():
            self.poll(wait_s)

    def steps(self) -> Iterator[float]:
        """Does what `run` does, piece by piece. Each piece ends by saying how long reports may be waited for, in
        seconds, before the next is due. Anyone who takes the steps calls `poll` in between."""
        while not self._done():
            for order in self._client.control.commands():
                self._obey(order)
            now_ns = self._now_ns()
            self._client.heartbeat(now_ns)
            self._begin_what_is_known(now_ns)
            self._issue_asked()
            yield 0.0 if self._asked else self._issue_due(now_ns)
            if self._client.fatal is not None:
                yield from self._drain_dead()
        if not self._stopped and str(self._spec.properties.get("acks")) == "0":
            yield from until_handled(Offsets(self._client), self._reported, self._client)

    def poll(self, wait_s: float) -> None:
        """Serves librdkafka's callbacks, and completes what they reported."""
        self._client.serve(self._producer.poll, wait_s)
        self._reports.complete()

    def let_go(self) -> None:
        """Drops what is still queued, as if the process had ended: the client has, and its process lives on."""
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)

    def issued(self) -> int:
        """Returns how many rows of `sends` there are: each is one sequence."""
        return self._sends.count

    def close(self) -> None:
        """Writes `sends` and `withheld` to their end."""
        self._sends.close()
        self._withheld.close()

    # Commands.

    def _obey(self, order: messages.Order) -> None:
        match order.command:
            case messages.ResumeCommand():
                self._resumed, self._due_ns = True, float(self._now_ns())
            case messages.PauseCommand():
                self._resumed = False
                self._withheld.end_all()
            case messages.SendCommand() as send:
                return self._ask(send, order.number)
            case messages.BeginCommand(partitions=partitions):
                new = tuple(partition for partition in self._spec.partitions if partition[0] in set(partitions))
                return self._begins.append(_Begin(new, order.number, self._now_ns() + LEARN_LIMIT_NS))
            case messages.FinishCommand(timeout_s=timeout_s):
                self._resumed = False
                self._asked.clear()
                self._finish_by_ns = self._now_ns() + int(timeout_s * NS_PER_S)
            case messages.StopCommand():
                self._stopped = True
            case unknown:
                raise AssertionError(unknown)
        self._client.control.send(messages.DoneEvent(number=order.number))

    def _ask(self, command: messages.SendCommand, number: int) -> None:
        """Notes a command to send; it is answered once all of its records have been issued."""
        chosen = set(command.partitions)
        round_ = [partition for partition in self._partitions if partition[0] in chosen]
        self._asked.extend(round_ * command.count)
        self._asked_count += len(round_) * command.count
        self._asked_by.append((self._asked_count, number))

    def _begin_what_is_known(self, now_ns: int) -> None:
        """Obeys a command to begin, and answers it, once the library knows the partitions, or after a limit.

        It knows a topic's partitions by its last look, once a second here, and refuses a record of any other one in
        produce(), whatever the brokers know by then. [librdkafka rdkafka_msg.c, rd_kafka_msg_partitioner]"""
        if not self._begins:
            return
        begin = self._begins[0]
        if now_ns < begin.until_ns and not all(
            number in self._numbers_of(topic) for _, topic, number in begin.partitions
        ):
            return
        begun = {dense for dense, _, _ in (*self._partitions, *begin.partitions)}
        self._partitions = tuple(partition for partition in self._spec.partitions if partition[0] in begun)
        self._begins.popleft()
        self._client.control.send(messages.DoneEvent(number=begin.order))

    def _numbers_of(self, topic: str) -> Collection[int]:
        """Asks for a topic's partitions, which the library then knows, too. None where nobody answers in time."""
        try:
            numbers: Collection[int] = self._producer.list_topics(topic, LEARN_ASK_S).topics[topic].partitions
            return numbers
        except KafkaException:
            return ()

    def _done(self) -> bool:
        if self._stopped or self._finish_by_ns is None:
            return self._stopped
        return not any(self._in_flight.values()) or self._now_ns() >= self._finish_by_ns

    # Issuing.

    def _issue_asked(self) -> None:
        count = min(ISSUE_MAX, len(self._asked))
        if count:
            self._issue([self._asked.popleft() for _ in range(count)])
            self._asked_done += count
        while self._asked_by and self._asked_by[0][0] <= self._asked_done:
            self._client.control.send(messages.DoneEvent(number=self._asked_by.popleft()[1]))

    def _issue_due(self, now_ns: int) -> float:
        """Issues what the rate owes until now, and returns how many seconds to wait for the next record."""
        if not self._resumed or not self._spec.rate_hz:
            return POLL_S
        period_ns = NS_PER_S / (self._spec.rate_hz * len(self._partitions))
        self._due_ns = max(self._due_ns, now_ns - CATCH_UP_NS)
        if self._due_ns <= now_ns:
            count = min(ISSUE_MAX, int((now_ns - self._due_ns) / period_ns) + 1)
            self._issue(self._turns(count))
            self._due_ns += count * period_ns
        return min(POLL_S, max(0.0, (self._due_ns - now_ns) / NS_PER_S))

    def _turns(self, count: int) -> list[PartitionName]:
        """Returns the next `count` partitions, in turn."""
        partitions, begin = self._partitions, self._turn
        self._turn = (begin + count) % len(partitions)
        first = partitions[begin : begin + count]
        rounds, rest = divmod(count - len(first), len(partitions))
        return [*first, *partitions * rounds, *partitions[:rest]]

    def _issue(self, turns: Sequence[PartitionName]) -> None:
        """Sends one record for each turn; its row is written before."""
        wanted = Counter(map(_DENSE, turns)) if len(turns) >= FEW and not self._withheld.open else {}
        if wanted and all(self._in_flight[d] + n <= self._spec.unacknowledged_max for d, n in wanted.items()):
            return self._issue_many(turns, wanted)
        in_flight, cap = self._in_flight, self._spec.unacknowledged_max
        append, size, holding = self._sends.append, self._spec.value_bytes, self._withheld
        for dense, topic, number in turns:
            if in_flight[dense] >= cap:
                holding.hold(dense)
                continue
            if holding.open:
                holding.release(dense)
            sequence = append(self._now_ns(), MISSING, NONE, self._sends.count, NONE, NONE, dense, 0, 0, size)
            in_flight[dense] += 1
            try:
                self._producer.produce(topic, self._encode(dense, sequence), None, number)
            except (BufferError, KafkaException) as error:
                if not self._goes_on(sequence, dense, error):
                    return

    def _issue_many(self, turns: Sequence[PartitionName], wanted: Mapping[int, int]) -> None:
        """Does the same where no cap holds anything back. `wanted`: how many turns each partition (dense id) has."""
        first = sequence = self._sends.count
        values, produce = self._issuing.invoke(turns), self._producer.produce
        for dense, count in wanted.items():
            self._in_flight[dense] += count
        for value, (dense, topic, number) in zip(values, turns, strict=True):
            try:
                produce(topic, value, None, number)
            except (BufferError, KafkaException) as error:
                if not self._goes_on(sequence, dense, error):
                    return self._not_attempted(turns[sequence + 1 - first :], sequence + 1, error)
            sequence += 1

    def _goes_on(self, sequence: int, dense: int, error: BufferError | KafkaException) -> bool:
        """Completes a send for which produce() raised: it never entered the client's queue, so it certainly failed.
        Returns whether others can be sent."""
        self._in_flight[dense] -= 1
        cause = None if isinstance(error, BufferError) else error.args[0]
        code = KafkaError._QUEUE_FULL if cause is None else cause.code()
        complete_refused(self._sends, sequence, code=code, completed_ns=self._now_ns())
        if cause is None:
            self.poll(0)
        elif cause.fatal() or code in INSTANCE_IS_DEAD:
            if self._client.fatal is None:
                # Why it died comes by the callback of errors, set off a moment after the state.
                self.poll(FATAL_REASON_S)
            self._client.fatal = self._client.fatal or cause.str()
            return False
        return True

    def _not_attempted(self, turns: Sequence[PartitionName], first: int, error: BufferError | KafkaException) -> None:
        """Completes sends that were never handed to the instance because it died: they failed as certainly as the
        refused one."""
        for sequence, (dense, _, _) in enumerate(turns, start=first):
            self._goes_on(sequence, dense, error)

    def _settled(self, partition: int, error: KafkaError | None) -> None:
        self._in_flight[partition] -= 1
        self._reported[partition] += error is None
        if error is not None and (error.fatal() or error.code() in INSTANCE_IS_DEAD):
            self._client.fatal = self._client.fatal or f"{error.name()}: {error.str()}"

    def _settled_without_error(self, counts: Mapping[int, int]) -> None:
        for partition, count in counts.items():
            self._in_flight[partition] -= count
            self._reported[partition] += count

    def _drain_dead(self) -> Iterator[float]:
        """Records what a dead instance still reports, and raises FatalClient. Everything else stays INFO."""
        until_ns = self._now_ns() + FATAL_DRAIN_NS
        while any(self._in_flight.values()) and self._now_ns() < until_ns:
            self._client.heartbeat(self._now_ns())
            yield POLL_S
        raise FatalClient(self._client.fatal)


# A producer of keyed upserts and tombstones: the log workload's, with a key for every record and now and then no
# value.
#
# Which key, and whether the value is absent, is drawn from a generator that the trial's seed begins. A tombstone's
# identity travels in the record header `prozess`; its delivery report knows neither value nor headers, so it has a
# callback of its own.


_KEY = struct.Struct("<I")
"""A key has four bytes: its id is the crc32, which is one-to-one on four bytes, so two keys never share an id."""

DrawKey = Callable[[], tuple[int, bool]]


def key_drawing(rng: random.Random, *, keys: int, tombstone_share: float) -> DrawKey:
    """Returns a function that draws (number of the key, whether it is a tombstone)."""
    uniform = rng.random
    return lambda: (int(uniform() * keys), uniform() < tombstone_share)


class KeyedProducer(LogProducer):
    """A producer of keyed records and tombstones (role `keyed-producer`). Options: `seed` (any text), `keys`,
    `tombstone_share`. It obeys the commands of LogProducer."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        options = options_of(client.spec, KeyedOptions)
        self._draw = key_drawing(
            random.Random(options.seed), keys=options.keys, tombstone_share=options.tombstone_share
        )
        keys = [_KEY.pack(number) for number in range(options.keys)]
        self._keys = [(key, key_id(key)) for key in keys]
        self._encode_header = encoder(sender=client.spec.client, value_bytes=VALUE_BYTES_MIN)
        self._complete = completer_at(self._sends, client.spec.properties, client.now_ns, self._settled)

    def _issue(self, turns: Sequence[PartitionName]) -> None:
        """Sends one record for each turn; its row is written before."""
        for dense, topic, number in turns:
            if self._in_flight[dense] >= self._spec.unacknowledged_max:
                self._withheld.hold(dense)
                continue
            self._withheld.release(dense)
            key_number, tombstone = self._draw()
            key, identifier = self._keys[key_number]
            sequence = self._sends.count
            size = NONE if tombstone else self._spec.value_bytes
            self._sends.append(self._now_ns(), MISSING, NONE, sequence, NONE, identifier, dense, 0, 0, size)
            self._in_flight[dense] += 1
            try:
                if tombstone:
                    self._bury(dense, sequence, topic, number, key)
                else:
                    self._producer.produce(topic, self._encode(dense, sequence), key, number)
            except (BufferError, KafkaException) as error:
                if not self._goes_on(sequence, dense, error):
                    return

    def _bury(self, dense: int, sequence: int, topic: str, number: int, key: bytes) -> None:
        self._producer.produce(
            topic,
            None,
            key,
            number,
            on_delivery=partial(self._complete, dense, sequence),
            headers={HEADER_NAME: self._encode_header(dense, sequence)},
        )


# A producer of text for applications: keys and values that any program can read, the identity beside them in the
# record header `prozess`. A delivery report gives neither back, so each send has a callback of its own.


ACCOUNTS = 100
"""How many different keys there are."""
CLIENTS_END, NUMBERS_END = 2**31, 2**62
"""Numbers from these on do not fit into the columns of a history."""


class TextProducer(LogProducer):
    """A producer of text (role `text-producer`). It obeys the commands of LogProducer. A value is a JSON object of
    `value_bytes` bytes: {"client", "order", "account", "note"}; its key is the account."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._keys = [(f"account-{number}".encode(), number) for number in range(ACCOUNTS)]
        self._encode_header = encoder(sender=client.spec.client, value_bytes=VALUE_BYTES_MIN)
        self._complete = completer_at(self._sends, client.spec.properties, client.now_ns, self._settled)

    def _issue(self, turns: Sequence[PartitionName]) -> None:
        """Sends one record for each turn; its row is written before."""
        for dense, topic, number in turns:
            if self._in_flight[dense] >= self._spec.unacknowledged_max:
                self._withheld.hold(dense)
                continue
            self._withheld.release(dense)
            sequence = self._sends.count
            key, account = self._keys[sequence % ACCOUNTS]
            value = text_value(self._spec.client, sequence, account, size=self._spec.value_bytes)
            self._sends.append(self._now_ns(), MISSING, NONE, sequence, NONE, key_id(key), dense, 0, 0, len(value))
            self._in_flight[dense] += 1
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    number,
                    on_delivery=partial(self._complete, dense, sequence),
                    headers={HEADER_NAME: self._encode_header(dense, sequence)},
                )
            except (BufferError, KafkaException) as error:
                if not self._goes_on(sequence, dense, error):
                    return


def text_value(client: int, order: int, account: int, *, size: int) -> bytes:
    """Returns a value of at least `size` bytes, different for every (client, order)."""
    fields = {"client": client, "order": order, "account": account, "note": ""}
    bare = json.dumps(fields, separators=(",", ":"))
    return (bare[:-2] + "." * (size - len(bare)) + bare[-2:]).encode()


def text_identity(value: object) -> tuple[int, int]:
    """Returns (client, order) of such a value; (NONE, NONE) unless it is one to the letter."""
    try:
        fields = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        return NONE, NONE
    if not isinstance(fields, dict):
        return NONE, NONE
    numbers = [n for name in ("client", "order", "account") if _is_number(n := fields.get(name))]
    if len(numbers) < 3 or not isinstance(value, str):
        return NONE, NONE
    client, order, account = numbers
    whole = text_value(client, order, account, size=len(value)) == value.encode("utf-8", "surrogatepass")
    return (client, order) if whole and client < CLIENTS_END else (NONE, NONE)


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < NUMBERS_END
