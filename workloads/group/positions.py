"""A member's positions and commits, and its records whose processing failed: the partition is paused, or a retry topic
takes them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_STORED,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from prozess.harness.clock import NS_PER_S
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import NONE, POSITIONS, SENDS
from prozess.workloads.client import Client
from prozess.workloads.librdkafka import logged_in
from prozess.workloads.log.producer import POLL_S
from prozess.workloads.log.reader import ReadRows
from prozess.workloads.record.identity import HEADER, IDENTITY, IDENTITY_OFFSET, copy_encoder, pack_header
from prozess.workloads.record.members import (
    ASSIGNED,
    ASYNC,
    PAUSED,
    RESET,
    RESUMED,
    SOUGHT,
    SYNC,
    CommitRows,
    by_partition,
)
from prozess.workloads.record.sends import TransactionalSends, completer
from prozess.workloads.settings import Property, RoleOptions

# Where a group member stands in its partitions: assigned, reset, sought, paused, resumed; each a row of `positions`.


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


# What a group member informs Kafka of what it has processed: in the way, and at the moment, that its configuration says.


_UNANSWERED = KafkaError(KafkaError._TIMED_OUT)


class MemberCommits:
    """The commits of one member. `on_error` is called with the error of a refused synchronous commit."""

    def __init__(
        self, client: Client, reads: ReadRows, *, how: str, group: int, on_error: Callable[[KafkaError], None]
    ) -> None:
        spec = client.spec
        self._client, self._reads, self._on_error = client, reads, on_error
        self._how = how
        self._names = {dense: (topic, number) for dense, topic, number in spec.partitions}
        self._dense = {name: dense for dense, name in self._names.items()}
        self._uncommitted: dict[int, int] = {}
        """The next offset by partition, of records that are processed and not yet committed by us."""
        self.rows = CommitRows(client.rows, spec.client, group, client.now_ns)
        self.owing: dict[int, int] = {}
        """The next offset by partition, of processed records whose commit was refused. It is tried again while the
        partition is owned."""

    def delivered(self, consumer: Consumer, offsets: Mapping[int, int], *, asked_ns: int) -> None:
        """Commits, or lets librdkafka commit, what was given and is not processed yet. `asked_ns`: before the records
        were asked for."""
        if self._how == "sync-before":
            self.now(consumer, offsets)
        if self._how in ("auto", "auto-stored"):
            self.rows.may_commit(offsets, since_ns=asked_ns)

    def processed_up_to(self, consumer: Consumer, offsets: Mapping[int, int]) -> None:
        """Commits what was processed, now or later, as the configuration says."""
        match self._how:
            case "sync-after":
                self.with_owing(consumer, offsets)
            case "async-after":
                self._soon(consumer, offsets)
            case "auto-stored":
                self._store(consumer, offsets)
            case "on-revoke":
                self._uncommitted |= offsets

    def now(self, consumer: Consumer, offsets: Mapping[int, int]) -> bool:
        """Commits synchronously. Returns whether all of it was accepted; librdkafka gives up waiting for a coordinator
        after the session timeout. Was all of it accepted?"""
        if not offsets:
            return True
        positions = self._reads.next_offset
        rows = self.rows.begin(offsets, positions, mode=SYNC)
        errors: dict[int, KafkaError | None] = {}
        try:
            answers = consumer.commit(offsets=self.named(offsets), asynchronous=False) or []
            errors = {dense: answer.error for dense, answer in by_partition(answers, self._dense).items()}
        except KafkaException as error:
            errors = dict.fromkeys(offsets, error.args[0])
            self._on_error(error.args[0])
        self.rows.complete(rows, offsets, positions, errors)
        return all(errors.get(dense, _UNANSWERED) is None for dense in offsets)

    def with_owing(self, consumer: Consumer, offsets: Mapping[int, int]) -> None:
        """Commits these offsets and those that are owed. A rebalance also refuses commits of members that keep their
        partitions."""
        self.owing |= offsets
        if self.now(consumer, self.owing):
            self.owing = {}
            return
        # A partition that the topic has no more, because it was made again with fewer, makes the whole call fail. What was
        # processed now is committed by itself, and does not stay owing because of it.
        if offsets and offsets.keys() < self.owing.keys() and self.now(consumer, offsets):
            self.owing = {dense: offset for dense, offset in self.owing.items() if dense not in offsets}

    def revoked(self, consumer: Consumer, partitions: Sequence[int]) -> None:
        """Commits what was processed of these partitions and not committed yet, before they are given up."""
        processed = self._uncommitted if self._how == "on-revoke" else self.owing
        self.now(consumer, {dense: processed[dense] for dense in partitions if dense in processed})

    def forget(self, partitions: Sequence[int]) -> None:
        """Forgets partitions that were taken away."""
        for dense in partitions:
            self._uncommitted.pop(dense, None)
            self.owing.pop(dense, None)

    def answered(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        """Takes the result of asynchronous and automatic commits. librdkafka calls it."""
        for dense, partition in by_partition(partitions or (), self._dense).items():
            if partition.offset >= 0:
                self._answer_one(dense, partition.offset, error or partition.error)

    def named(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        """Returns these offsets under the names of Kafka's topics and partitions."""
        return [TopicPartition(*self._names[dense], offset) for dense, offset in offsets.items()]

    def _soon(self, consumer: Consumer, offsets: Mapping[int, int]) -> None:
        self.rows.begin(offsets, self._reads.next_offset, mode=ASYNC)
        try:
            consumer.commit(offsets=self.named(offsets), asynchronous=True)
        except KafkaException as error:
            for dense, offset in offsets.items():
                self._answer_one(dense, offset, error.args[0])

    def _store(self, consumer: Consumer, offsets: Mapping[int, int]) -> None:
        try:
            consumer.store_offsets(offsets=self.named(offsets))
        except KafkaException as error:  # a partition was lost meanwhile: then nothing of it is stored
            self._client.log(f"storing offsets failed: {error.args[0].str()}")

    def _answer_one(self, dense: int, offset: int, error: KafkaError | None) -> None:
        position, auto = int(self._reads.next_offset[dense]), self._how in ("auto", "auto-stored")
        self.rows.answered(dense, offset, error, position=position, auto=auto, within_call=True)

    def settle(self) -> None:
        """Completes the automatic commits that were answered within a call of the consumer's that has returned."""
        self.rows.settle(self._reads.next_offset)


# Records whose processing fails at first: their partition is paused, and they are tried again later, before what is
# behind them. Therefore a partition's records are processed in order, each once, however often one fails.


Columns = Mapping[str, np.ndarray]
"""Columns of `reads`, with one entry per record."""
_SPREAD, _HASHES = np.uint64(2654435761), 1 << 32
"""Knuth's multiplicative hash: which records fail is spread evenly, and the same for whoever is given them."""


@dataclass(slots=True)
class HeldRecords:
    """Records of one partition that wait to be tried again. `due_ns`: when."""

    columns: Columns
    due_ns: int


class Retries:
    """Holds back records whose processing failed. `share` of the records fail when this member processes them for the
    first time; they are tried again `after_ms` later."""

    def __init__(self, *, share: float, after_ms: float) -> None:
        self._share, self._after_ns = share, int(after_ms * 1e6)
        self._failed: set[tuple[int, int]] = set()
        """The (partition, offset) of records that have failed."""
        self.held: dict[int, HeldRecords] = {}
        """The records that wait, by partition."""

    def take(self, columns: Columns, now_ns: int) -> tuple[Columns, Columns, list[int]]:
        """Divides these records: those to be processed now, those that fail (one per partition at most), and the
        partitions that have to wait from now on. A failed one is held back with all behind it."""
        partition = columns["partition"]
        if not self._share and not self.held:
            return columns, chosen_records(columns, np.zeros(len(partition), dtype=bool)), []
        fails, waits = self._fails(columns), np.zeros(len(partition), dtype=bool)
        failed, paused = np.zeros(len(partition), dtype=bool), []
        for dense in np.unique(partition).tolist():
            rows = np.flatnonzero(partition == dense)
            if dense in self.held:  # it was under way when the partition was paused
                waits[rows] = True
                self.held[dense].columns = joined_records(self.held[dense].columns, chosen_records(columns, rows))
                continue
            bad = rows[fails[rows]]
            if len(bad):
                behind = rows[rows >= bad[0]]
                waits[behind] = True
                failed[bad[0]] = True
                self._failed.add((dense, int(columns["log_offset"][bad[0]])))
                self.held[dense] = HeldRecords(chosen_records(columns, behind), now_ns + self._after_ns)
                paused.append(dense)
        return chosen_records(columns, ~waits), chosen_records(columns, failed), paused

    def hold(self, columns: Columns, now_ns: int) -> list[int]:
        """Holds all of these records back. Returns the partitions that have to wait from now on."""
        paused = []
        for dense in np.unique(columns["partition"]).tolist():
            late = chosen_records(columns, columns["partition"] == dense)
            if dense in self.held:
                self.held[dense].columns = joined_records(self.held[dense].columns, late)
            else:
                self.held[dense] = HeldRecords(late, now_ns + self._after_ns)
                paused.append(dense)
        return paused

    def due(self, now_ns: int) -> dict[int, Columns]:
        """Returns what is to be tried again now, by partition, and holds it no longer."""
        ready = [dense for dense, held in self.held.items() if held.due_ns <= now_ns]
        return {dense: self.held.pop(dense).columns for dense in ready}

    def forget(self, partitions: Iterable[int]) -> None:
        """Forgets partitions that were taken away: their next owner is given their records again."""
        for dense in partitions:
            self.held.pop(dense, None)

    def _fails(self, columns: Columns) -> np.ndarray:
        fails = fails_at_first(columns, self._share)
        for row in np.flatnonzero(fails).tolist():  # as many as fail
            if (int(columns["partition"][row]), int(columns["log_offset"][row])) in self._failed:
                fails[row] = False
        return fails


def fails_at_first(columns: Columns, share: float) -> np.ndarray:
    """Reports for each record whether its processing fails the first time (bool[n]). It is the same for every member."""
    identity = columns["sequence"].astype(np.uint64) + (columns["sender"].astype(np.uint64) << np.uint64(20))
    return np.asarray((identity * _SPREAD) % np.uint64(_HASHES) < np.uint64(int(share * _HASHES)))


def chosen_records(columns: Columns, rows: np.ndarray) -> Columns:
    """Returns some of the records, by a mask or by indexes."""
    return {name: values[rows] for name, values in columns.items()}


def joined_records(first: Columns, second: Columns) -> Columns:
    """Returns both sets of records, in order."""
    return {name: np.concatenate([values, second[name]]) for name, values in first.items()}


def next_offsets(columns: Columns) -> dict[int, int]:
    """Returns for each partition the offset behind its last record here."""
    partitions, last = np.unique(columns["partition"][::-1], return_index=True)
    offsets = columns["log_offset"][::-1][last] + 1
    return dict(zip(partitions.tolist(), offsets.tolist(), strict=True))


# A retry topic: records whose processing failed are sent there, so that what is behind them need not wait.
#
# A record keeps the number of its partition, and its value carries where it came from
# (`prozess.workloads.record.identity`). The application commits past a failed record once the retry topic has
# acknowledged it; or, where its author forgot that `produce()` only queues, at once.


STOP_NS = 10 * NS_PER_S
"""How long a member that was asked to stop goes on waiting for its sends to the retry topic."""


class RetryOptions(RoleOptions):
    """Says how a member sends to the retry topic."""

    producer: dict[str, Property]
    """The properties of its producer."""
    outputs: tuple[tuple[int, int, str, int], ...]
    """(dense id of a partition, and of its retry partition; topic; number)."""
    awaited: bool


class RetryTopic:
    """Sends records whose processing failed to the retry topic. Every send is a row of `sends`, written before it is
    tried."""

    def __init__(
        self, client: Client, options: RetryOptions, *, between: Callable[[], None], stopped: Callable[[], bool]
    ) -> None:
        """`between` is called while waiting; `stopped`: was the member asked to stop?"""
        self._client, self._between, self._stopped = client, between, stopped
        self._awaited = options.awaited
        outputs = options.outputs
        self._retry_of = {source: dense for source, dense, _, _ in outputs}
        self._names = {dense: (topic, number) for _, dense, topic, number in outputs}
        self._value_bytes = client.spec.value_bytes
        self._encode = copy_encoder(sender=client.spec.client, value_bytes=self._value_bytes)
        writer = RowWriter(client.rows, SENDS, client.spec.client)
        self._sends = TransactionalSends(writer, client.now_ns, value_bytes=self._value_bytes)
        self._complete = completer(writer, options.producer, client.now_ns, lambda partition, error: None)
        self._in_flight = 0
        self._again: list[tuple[int, bytes]] = []
        """The (retry partition, header of the failed record) of sends that have to be tried again."""
        callbacks = {"on_delivery": self._reported, "error_cb": client.on_error}
        self._producer = Producer(logged_in({**options.producer, **callbacks}))

    @property
    def issued(self) -> int:
        """Returns how many sends were tried."""
        return self._sends.count

    @property
    def under_way(self) -> bool:
        """Returns whether anything was sent and not reported yet."""
        return bool(self._in_flight or self._again)

    def holds(self, partition: np.ndarray) -> np.ndarray:
        """Reports for each record whether it is in a partition of the retry topic (bool[n])."""
        return np.isin(partition, list(self._names))

    def hand_on(self, columns: Mapping[str, np.ndarray]) -> bool:
        """Sends these records (columns of `reads`) to the retry topic, and waits until all are acknowledged if the
        application does. Returns whether it may commit past them."""
        wanted = ("sender", "sent_partition", "sequence", "partition")
        for sender, sent, sequence, source in zip(*(columns[name].tolist() for name in wanted), strict=True):
            self._send(self._retry_of[source], pack_header(sender, sent, sequence, self._value_bytes))
        return not self._awaited or self.settle()

    def settle(self) -> bool:
        """Waits until everything is acknowledged, and sends again what failed. False if the member was asked to stop
        and is out of time."""
        until_ns = None
        while self.under_way:
            if until_ns is None and self._stopped():
                until_ns = self._client.now_ns() + STOP_NS
            if until_ns is not None and self._client.now_ns() >= until_ns:
                self._client.log(f"{self._in_flight + len(self._again)} records did not reach the retry topic in time")
                return False
            self._between()
            self._client.check()
            self.serve(POLL_S)
        return True

    def serve(self, wait_s: float) -> None:
        """Takes delivery reports, and tries again what was refused."""
        try:
            self._producer.poll(wait_s)
        except KafkaException as error:  # the binding raises a fatal error in place of calling back
            self._client.on_error(error.args[0])
        again, self._again = self._again, []
        for dense, header in again:
            self._send(dense, header)

    def close(self) -> None:
        """Writes the rows to their end."""
        self._sends.close()

    def _send(self, dense: int, header: bytes) -> None:
        topic, number = self._names[dense]
        sequence = self._sends.issue(transaction=NONE, partition=dense)
        try:
            self._producer.produce(topic, self._encode(dense, sequence, header), None, number)
            self._in_flight += 1
        except BufferError:
            self._sends.refused(sequence, KafkaError._QUEUE_FULL)
            self._again.append((dense, header))
        except KafkaException as error:
            self._client.on_error(error.args[0])
            self._sends.refused(sequence, error.args[0].code())
            self._again.append((dense, header))

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        self._complete(error, message)
        self._in_flight -= 1
        if error is None:
            return
        self._client.log(f"the retry topic was not reached: {error.name()} {error.str()}")
        if self._awaited:
            value = message.value() or b""
            dense, _ = IDENTITY.unpack_from(value, IDENTITY_OFFSET)
            self._again.append((dense, value[HEADER.itemsize : 2 * HEADER.itemsize]))
