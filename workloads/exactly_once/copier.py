"""A copier is a member of a group that consumes, processes and produces, and keeps its progress in one of four ways."""

import random
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from prozess.harness.clock import NS_PER_S
from prozess.harness.config.configuration import CopierConfiguration, GroupConfiguration
from prozess.harness.config.librdkafka_fixes import read_one_by_one
from prozess.harness.plan.cell_work import CopierWork, group_session, work_as
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import NONE, SENDS, TRANSACTIONS, Outcome
from prozess.workloads import messages
from prozess.workloads.client import Client
from prozess.workloads.group.member import (
    CONSUME_S,
    SLICE_MS,
    GroupMember,
    MemberOptions,
    member_properties,
    outputs_of,
)
from prozess.workloads.group.retries import next_offsets
from prozess.workloads.librdkafka import logged_in
from prozess.workloads.log.producer import POLL_S
from prozess.workloads.record.identity import copy_encoder
from prozess.workloads.record.members import IN_TRANSACTION
from prozess.workloads.record.sends import ABORT, COMMIT, completer
from prozess.workloads.record.transactions import TransactionalSends, TransactionRows
from prozess.workloads.settings import LaunchContext, Property, Settings, options_of, producer_properties
from prozess.workloads.transactions.calls import TransactionCalls, TransactionOutcome
from prozess.workloads.transactions.launch import owner_of, within_lifetime, within_transaction

# exactly-once: copies and offsets in one transaction, with the group's metadata, so that a member that was evicted is
# fenced (KIP-447). transaction-alone: copies in a transaction, offsets once a second, as enable.auto.commit does. at-
# least-once: offsets committed once every copy is acknowledged. at-most-once: offsets committed first.
#
# What is consumed is recorded before it is copied, a copy before it is produced, offsets before they are sent. After
# anything but success the member goes back to what is committed: the consumer does not do that by itself
# (KAFKA-17582). While it has not got there, what it is given is dropped.


RETRY_AFTER_NS = 500_000_000
"""How long to wait between two tries to initialise a producer."""
COMMIT_EVERY_NS = 1_000_000_000
"""How often transaction-alone commits: seldom enough that a killed copier has records to repeat."""
STOP_NS = 10 * NS_PER_S
"""How long a member that was asked to stop goes on with the batch it has begun."""


class GroupCopier(GroupMember):
    """A member of a group that copies what it reads into another topic (role `copier`). It obeys the commands of
    GroupMember."""

    def __init__(self, client: Client) -> None:
        spec, options = client.spec, options_of(client.spec, CopierOptions)
        self._properties = options.producer
        self._delivery = options.delivery
        self._transactional = self._delivery in ("exactly-once", "transaction-alone")
        self._abort_share, self._random = options.abort_share, random.Random(options.seed)
        self._outputs = {source: (dense, topic, number) for source, dense, topic, number in options.outputs}
        self._encode = copy_encoder(sender=spec.client, value_bytes=spec.value_bytes)
        writer = RowWriter(client.rows, SENDS, spec.client)
        self._sends = TransactionalSends(writer, client.now_ns, value_bytes=spec.value_bytes)
        self._report = (
            self._sends.reported
            if self._transactional
            else completer(writer, options.producer, client.now_ns, lambda partition, error: None)
        )
        rows = RowWriter(client.rows, TRANSACTIONS, spec.client)
        self._transactions = TransactionRows(rows, client.now_ns, transactional_id=options.transactional_id)
        self._calls = TransactionCalls(
            now_ns=client.now_ns, breathe=lambda: self._breathe(POLL_S), given_up=self._given_up
        )
        self._producer: Producer | None = None
        self._in_flight, self._again_ns = 0, 0
        self._problem: KafkaError | None = None
        """Why the batch that is being copied cannot be completed."""
        self._dead: str | None = None
        """Why the producer can no longer be used."""
        self._rewinding: set[int] = set()
        """Partitions that still have to go back to their committed offset."""
        self._commit_ns = 0
        """When transaction-alone commits next."""
        self._stopped_ns: int | None = None
        super().__init__(client, options)

    def issued(self) -> int:
        """Returns how many copies were tried: each has a sequence of its own."""
        return self._sends.count

    def close(self) -> None:
        """Writes every table to its end."""
        super().close()
        self._sends.close()
        self._transactions.close()

    # A turn.

    def _turn(self) -> None:
        if self._producer is None and not self._prepare():
            return
        self._positions.seek_what_is_due(self._consumer)
        self._rewind()
        asked_ns = self._now_ns()
        messages = self._records(self._client.serve(self._consumer.consume, self._batch, CONSUME_S) or [])
        if self._rewinding:
            messages = [message for message in messages if self._reads.dense(message) not in self._rewinding]
        if messages:
            self._handle_busily(messages, asked_ns)
        if self._commits.owing:
            self._commit_what_is_due()
        self._serve_producer(0)
        if self._dead is not None:
            self._bury()

    def _handle(self, messages: Sequence[Message], asked_ns: int) -> None:
        """Copies a batch of records. `asked_ns` matters only to members that commit automatically."""
        expected = self._reads.next_offset.copy()
        columns = self._reads.record(messages)
        self._positions.given(self._consumer, columns, expected)
        offsets = next_offsets(columns)
        self._problem = None
        match self._delivery:
            case "at-most-once" if self._commits.now(self._consumer, offsets):
                self._copy(messages, columns)
            case "at-least-once" if self._copy(messages, columns):
                self._commits.with_owing(self._consumer, offsets)
            case "exactly-once" | "transaction-alone" if self._copy_in_transaction(messages, columns, offsets):
                if self._delivery == "transaction-alone":
                    self._commits.owing |= offsets
            case _:  # nothing is known to be done: again from what is committed
                self._go_back()

    def _commit_what_is_due(self) -> None:
        """Commits what was copied before: at once, or once a second with transaction-alone."""
        now_ns = self._now_ns()
        if self._delivery == "transaction-alone" and not self._draining and now_ns < self._commit_ns:
            return
        self._commit_ns = now_ns + COMMIT_EVERY_NS
        self._commits.with_owing(self._consumer, {})

    def _copy(self, messages: Sequence[Message], columns: Mapping[str, np.ndarray]) -> bool:
        """Copies records outside of a transaction. Returns whether every copy was acknowledged."""
        first = self._processed.count
        self._produce(messages, columns, transaction=NONE)
        self._await_reports()
        done = self._whole()
        if done:
            self._processed.done(first, done_ns=self._now_ns())
        return done

    def _copy_in_transaction(
        self, messages: Sequence[Message], columns: Mapping[str, np.ndarray], offsets: Mapping[int, int]
    ) -> bool:
        """Copies records in a transaction. Returns whether the transaction was committed, as far as is known."""
        assert self._producer is not None
        processed, first, number = self._processed.count, self._sends.count, self._transactions.begin()
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            self._dead = f"begin_transaction: {error.args[0].str()}"
            self._transactions.ended(Outcome.FAIL, error.args[0].code())
            return False
        self._produce(messages, columns, transaction=number)
        self._await_reports()
        wanted = ABORT if self._random.random() < self._abort_share else COMMIT
        with_offsets = wanted == COMMIT and self._delivery == "exactly-once" and self._whole()
        positions = self._reads.next_offset
        rows = self._commits.rows.begin(offsets, positions, mode=IN_TRANSACTION) if with_offsets else {}
        if with_offsets:
            self._problem = self._send_offsets(self._producer, offsets)
        ended = self._end(self._producer, wanted)
        completed_ns = self._transactions.ended(ended.outcome, ended.code)
        self._sends.complete(first, outcome=ended.outcome, code=ended.code, completed_ns=completed_ns)
        committed = ended.outcome is Outcome.OK
        refused = None if committed else KafkaError(ended.code or KafkaError._FAIL)
        self._commits.rows.complete(rows, offsets, positions, dict.fromkeys(rows, refused), mode=IN_TRANSACTION)
        if committed:
            self._processed.done(processed, done_ns=completed_ns)
        return committed

    def _send_offsets(self, producer: Producer, offsets: Mapping[int, int]) -> KafkaError | None:
        """Sends offsets with the metadata of the group, so that an evicted member is refused (KIP-447)."""
        named, metadata = self._commits.named(offsets), self._consumer.consumer_group_metadata()
        error = self._calls.make(lambda limit_s: producer.send_offsets_to_transaction(named, metadata, limit_s))
        if error is not None:
            self._client.log(f"send_offsets_to_transaction: {error.name()} {error.str()}")
        return error

    def _end(self, producer: Producer, wanted: int) -> TransactionOutcome:
        if self._dead is not None or (self._in_flight and self._problem is None):  # dead, or out of time
            self._dead = self._dead or "given up with copies in flight"
            return TransactionOutcome(Outcome.INFO, KafkaError._FATAL)
        ended = self._calls.end(producer, self._transactions, wanted=wanted, problem=self._problem)
        self._dead = self._dead or ended.dead
        return ended

    # Producing.

    def _produce(self, messages: Sequence[Message], columns: Mapping[str, np.ndarray], *, transaction: int) -> None:
        """Produces a copy of each record, in pieces of about SLICE_MS: what a SIGKILL in the middle leaves undone."""
        count = len(messages)
        piece = count if not self._processing_ms else max(1, int(SLICE_MS / self._processing_ms))
        for low in range(0, count, piece):
            part = {name: values[low : low + piece] for name, values in columns.items()}
            started_ns = self._now_ns()
            self._processed.begin(part, started_ns=started_ns)
            for message, dense in zip(messages[low : low + piece], part["partition"].tolist(), strict=True):
                self._produce_one(message, dense, transaction)
            until_ns = started_ns + int(len(part["partition"]) * self._processing_ms * 1e6)
            while (left_ns := until_ns - self._now_ns()) > 0:
                self._breathe(min(POLL_S, left_ns / NS_PER_S))
            self._breathe(0)
            if self._problem is not None or self._dead is not None:
                return

    def _produce_one(self, message: Message, source: int, transaction: int) -> None:
        """Produces one copy. Its row is written before that."""
        assert self._producer is not None
        dense, topic, number = self._outputs[source]
        sequence = self._sends.issue(transaction=transaction, partition=dense)
        value = self._encode(dense, sequence, message.value() or b"")
        try:
            self._producer.produce(topic, value, message.key(), number)
            self._in_flight += 1
        except BufferError:
            self._sends.refused(sequence, KafkaError._QUEUE_FULL)
            self._problem = self._problem or KafkaError(KafkaError._QUEUE_FULL)
        except KafkaException as error:
            self._sends.refused(sequence, error.args[0].code())
            self._problem = self._problem or error.args[0]

    def _whole(self) -> bool:
        return self._problem is None and self._dead is None and not self._in_flight

    def _await_reports(self) -> None:
        """Waits until every copy is appended, or something went wrong."""
        while self._in_flight and self._problem is None and self._dead is None and not self._given_up():
            self._breathe(POLL_S)

    def _reported(self, instance: int, error: KafkaError | None, message: Message) -> None:
        self._report(error, message)
        if instance != self._instance:
            return
        self._in_flight -= 1
        if error is not None:
            self._problem = self._problem or error

    # Instances of the producer.

    _instance = 0
    """How many producers there were so far: a report of an earlier one does not count for this one's batch."""

    def _prepare(self) -> bool:
        """Makes and initialises a producer. A transactional one decides what the one before it left open. False if it
        has to be tried again."""
        if self._now_ns() < self._again_ns:
            self._between(wait_s=POLL_S)
            return False
        self._instance += 1
        callbacks = {"on_delivery": partial(self._reported, self._instance), "error_cb": self._producer_error}
        producer = Producer(logged_in({**self._properties, **callbacks}))
        self._dead, self._in_flight = None, 0
        if self._transactional:
            self._transactions.initialising()
            error = self._calls.make(producer.init_transactions)
            if error is not None:
                self._client.log(f"init_transactions: {error.name()} {error.str()}")
                self._again_ns = self._now_ns() + RETRY_AFTER_NS
                return False
            self._transactions.initialised()
        self._producer = producer
        self._go_back()
        return True

    def _producer_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._dead = self._dead or f"{error.name()}: {error.str()}"
        self._client.log(f"producer: {error.name()} {error.str()}")

    def _bury(self) -> None:
        assert self._producer is not None
        self._client.log(f"the producer died: {self._dead}")
        self._producer.purge(blocking=False)  # else its end would wait for deliveries
        self._producer, self._dead = None, None

    def _serve_producer(self, wait_s: float) -> None:
        if self._producer is None:
            return
        try:
            self._producer.poll(wait_s)
        except KafkaException as error:  # the binding raises a fatal error in place of calling back
            self._producer_error(error.args[0])

    # Positions.

    def _go_back(self) -> None:
        """Marks all owned partitions: each goes back as soon as it is known where to."""
        self._rewinding |= set(self._owned)
        self._commits.owing = {}

    def _rewind(self) -> None:
        """Goes back to what the group has committed, or to where the log begins. Each begins a new span."""
        self._rewinding &= set(self._owned)
        if not self._rewinding:
            return
        for dense, offset in self._committed(sorted(self._rewinding)).items():
            if self._positions.back_to(self._consumer, dense, offset):
                self._rewinding.discard(dense)

    def _forget(self, consumer: Consumer, partitions: Sequence[int]) -> None:
        super()._forget(consumer, partitions)
        self._rewinding -= set(partitions)

    def _at_end(self, dense: int, position: int) -> bool:
        """Says whether a partition is at its end, and has gone back where it had to."""
        return dense not in self._rewinding and super()._at_end(dense, position)

    # Commands.

    def _breathe(self, wait_s: float) -> None:
        self._between()
        self._serve_producer(wait_s)

    def _obey(self, order: messages.Order) -> None:
        super()._obey(order)
        if self._stopped and self._stopped_ns is None:
            self._stopped_ns = self._now_ns()

    def _given_up(self) -> bool:
        """Says whether there is no more time to wait for anything."""
        return self._stopped_ns is not None and self._now_ns() - self._stopped_ns >= STOP_NS


# Settings of copying groups, as librdkafka spells them. Pure.


IN_FLIGHT_MAX = 10_000
IDLE_MAX_MS = 3_000
"""Idle connections are closed after this. send_offsets_to_transaction may wait for ever for a group coordinator that
is gone, whatever its timeout, until any connection of the producer changes (librdkafka#5456, #5511; seen with
2.16.0). Idle ones are closed, so that one does."""


class CopierOptions(MemberOptions):
    """Describes what a copier does, beside what a member does."""

    outputs: tuple[tuple[int, int, str, int], ...]
    """(dense id of an input partition, and of the output partition; topic; number)."""
    delivery: str
    abort_share: float
    seed: str
    transactional_id: int
    producer: dict[str, Property]
    """The properties of its producer."""


def launch_copier(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `copier`."""
    planned, copier = context.planned, work_as(CopierWork, context.planned.work).configuration
    assert planned.group_id is not None, planned
    assert planned.cell is not None, planned
    group = group_of(copier)
    properties = member_properties(
        group,
        bootstrap_servers=context.servers,
        client_name=planned.name,
        group_id=planned.group_id,
        instance=planned.instance,
        heartbeat_ms=group_session(group, context.plan.variant).heartbeat_ms,
    )
    transactional_id = planned.transactional_id
    options = CopierOptions(
        group=planned.cell,
        commit="none",
        processing_ms=copier.processing_ms,
        batch=copier.batch,
        one_by_one=read_one_by_one(group),
        eager=copier.protocol == "classic-eager",
        subscribe=(context.plan.cells[planned.cell].topic_name,),
        failure_share=group.failure_share,
        retry_after_ms=group.retry_after_ms,
        outputs=outputs_of(context.plan, planned),
        delivery=copier.delivery,
        abort_share=copier.abort_share,
        seed=f"{context.plan.seed}-{planned.name}",
        transactional_id=owner_of(context.plan, transactional_id) if transactional_id else planned.client,
        producer=_producer(context, copier),
    )
    return Settings(properties, options)


def group_of(copier: CopierConfiguration) -> GroupConfiguration:
    """Returns the configuration of a group without commits, with the copier's protocol, timeouts and size."""
    return GroupConfiguration(
        client_version=copier.client_version,
        protocol=copier.protocol,
        commit="none",
        session_timeout_ms=copier.session_timeout_ms,
        max_poll_interval_ms=copier.max_poll_interval_ms,
        batch=copier.batch,
        members=copier.members,
        properties=copier.properties,
    )


def _producer(context: LaunchContext, copier: CopierConfiguration) -> dict[str, Property]:
    planned = context.planned
    assert planned.producer is not None, planned
    timeout_ms, in_transactions = copier.transaction_timeout_ms, planned.transactional_id is not None
    properties = producer_properties(
        within_lifetime(planned.producer, timeout_ms) if in_transactions else planned.producer,
        bootstrap_servers=context.servers,
        client_name=planned.name,
        partitions=len(planned.partitions),
        unacknowledged_max=IN_FLIGHT_MAX,
    )
    if planned.transactional_id is None:
        return properties
    properties = {"connections.max.idle.ms": IDLE_MAX_MS} | properties
    return within_transaction(properties, planned.transactional_id, timeout_ms=timeout_ms)
