"""A member of a consumer group subscribes, processes the records that it is given, and commits as its configuration
says.

The application in small: a batch, its processing (which takes its time and has an effect: the row in `processed`), and a
commit before it, after it, or by librdkafka. Whatever it is killed in, the rows say how far it was. Rebalance callbacks run
inside `consume` and `close`, between two batches. It outlives a consumer that died because its group is gone.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from prozess.harness.clock import NS_PER_S
from prozess.harness.config.configuration import GroupConfiguration
from prozess.harness.config.library_defaults import MEMBER_PROPERTY_OF
from prozess.harness.config.librdkafka_fixes import read_one_by_one
from prozess.harness.errors import BadInput
from prozess.harness.plan.cell_work import GroupWork, work_as
from prozess.harness.plan.plan import Plan, PlannedClient
from prozess.harness.recording.asked import AskedStretch
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import NONE, OBSERVATIONS, READS, ObservationKind
from prozess.workloads import messages
from prozess.workloads.client import Client, FatalClient
from prozess.workloads.group.commits import MemberCommits
from prozess.workloads.group.observer import Answerers
from prozess.workloads.group.positions import LOOK_UP_S, MemberPositions
from prozess.workloads.group.retries import (
    Retries,
    RetryOptions,
    RetryTopic,
    chosen_records,
    fails_at_first,
    next_offsets,
)
from prozess.workloads.librdkafka import LOST_POSITION, close, end_if_hanging, logged_in
from prozess.workloads.log.reader import ReadRows
from prozess.workloads.record.identity import CopyRules
from prozess.workloads.record.members import (
    ASSIGN,
    CLOSE,
    LOST,
    REVOKE,
    AssignmentRows,
    ProcessedRows,
    by_partition,
    in_order,
)
from prozess.workloads.settings import (
    FOR_A_BROKEN_CLUSTER,
    QUIET,
    LaunchContext,
    Property,
    RoleOptions,
    Settings,
    copy_rules,
    known_to,
    options_of,
    producer_properties,
)

CONSUME_S = 0.05
SLICE_MS = 10.0
"""Processing is recorded in pieces of about this length, so that a SIGKILL can leave some of a batch undone."""
REPORT_NS = 100_000_000
STALL_SLICE_S = 0.05


class MemberOptions(RoleOptions):
    """Describes what a member subscribes to, and what its application does with what it is given."""

    group: int
    """The number of the group: its cell."""
    subscribe: tuple[str, ...]
    failure_share: float
    retry_after_ms: float
    commit: str
    processing_ms: float
    batch: int
    one_by_one: bool = False
    """It asks for one record at a time."""
    eager: bool
    retry_topic: RetryOptions | None = None
    copies: CopyRules = CopyRules()


class GroupMember:
    """A member of a consumer group (role `member`). Commands: stall, drain, stop."""

    def __init__(self, client: Client, options: MemberOptions | None = None) -> None:
        spec, options = client.spec, options or options_of(client.spec, MemberOptions)
        self._subscribed = options.subscribe
        self._client, self._now_ns = client, client.now_ns
        self._batch, self._one_by_one = options.batch, options.one_by_one
        self._processing_ms = options.processing_ms
        self._eager = options.eager
        group, rows = options.group, client.rows
        self._reads = ReadRows(
            RowWriter(rows, READS, spec.client), spec.partitions, client.now_ns, copies=options.copies
        )
        self._positions = MemberPositions(client, self._reads, eager=self._eager)
        self._observations = RowWriter(rows, OBSERVATIONS, spec.client)
        self._answerers = Answerers(self._observations)
        self._polled = AskedStretch(ObservationKind.POLLED)
        self._processed = ProcessedRows(rows, spec.client, group)
        self._commits = MemberCommits(client, self._reads, how=options.commit, group=group, on_error=self._on_error)
        self._assignments = AssignmentRows(rows, spec.client, group, client.now_ns, incremental=not self._eager)
        self._names = {dense: (topic, number) for dense, topic, number in spec.partitions}
        self._dense = {name: dense for dense, name in self._names.items()}
        self._owned: dict[int, int] = {}
        """The end of each owned partition, as a broker last answered it; NONE = not yet."""
        self._stopped, self._report_ns = False, 0
        self._draining, self._busy = False, False
        """`_busy`: it has a batch, all of which `next_offset` has already left behind."""
        self._stalled_until_ns = 0
        """Until then Kafka is asked nothing, as by an application that is busy with something else."""
        self._failure_share, handing_on = options.failure_share, options.retry_topic
        self._retries = Retries(share=0.0 if handing_on else self._failure_share, after_ms=options.retry_after_ms)
        self._retry_topic: RetryTopic | None = None
        if handing_on:
            self._retry_topic = RetryTopic(client, handing_on, between=self._between, stopped=lambda: self._stopped)
        self._consumer_died, self._group_lost = False, False
        """Whether the consumer has died (and not the producer for the retry topic), and whether that was because its
        group is gone."""
        self._successors = Successors(client.now_ns())
        self._consumer = self._new_consumer()

    def run(self) -> None:
        """Works until `stop`, and then leaves the group in order."""
        while not self._stopped:
            self._between()
            if self._client.fatal is not None:
                self._go_on_without(self._client.fatal)
            if self._now_ns() < self._stalled_until_ns:
                self._between(wait_s=STALL_SLICE_S)
            else:
                self._turn()
        if self._retry_topic is not None:
            self._retry_topic.settle()
        closing = self._assignments.begin(CLOSE, sorted(self._owned), self._now_ns())
        self._close_consumer()
        self._assignments.done(closing)

    def issued(self) -> int:
        """Returns how many records were sent to the retry topic if there is one, and else how many were read."""
        return self._reads.writer.count if self._retry_topic is None else self._retry_topic.issued

    def close(self) -> None:
        """Writes every table to its end."""
        for table in (
            self._reads.writer,
            self._positions,
            self._observations,
            self._processed,
            self._commits.rows,
            self._assignments,
        ):
            table.close()
        if self._retry_topic is not None:
            self._retry_topic.close()

    def _turn(self) -> None:
        """Asks Kafka once for records, and does the work that they give."""
        self._positions.seek_what_is_due(self._consumer)
        asked_ns = self._now_ns()
        for dense, columns in self._retries.due(asked_ns).items():
            self._work(columns, asked_ns)
            if dense not in self._retries.held:
                self._positions.resume(self._consumer, dense)
        given = self._client.serve(self._ask) or []
        if len(given) < (1 if self._one_by_one else self._batch):  # nothing that was fetched waits for the next call
            self._polled.begin(self._observations, asked_ns)
            self._polled.end(self._observations, self._now_ns())
        messages = self._records(given)
        if messages:
            self._handle_busily(messages, asked_ns)
        else:
            self._commits.settle()
            if self._commits.owing:
                self._commits.with_owing(self._consumer, {})
        if self._retry_topic is not None:
            self._retry_topic.serve(0)

    def _ask(self) -> list[Message]:
        """Asks the consumer for a batch, or for one record."""
        if not self._one_by_one:
            return self._consumer.consume(self._batch, CONSUME_S)
        message = self._consumer.poll(CONSUME_S)
        return [] if message is None else [message]

    # Instances of the consumer.

    def _new_consumer(self) -> Consumer:
        spec = self._client.spec
        callbacks = {"error_cb": self._on_error, "on_commit": self._commits.answered}
        of_brokers = self._client.statistics.callbacks_of_brokers(self._answerers.note)
        consumer = Consumer(logged_in({**spec.properties, **callbacks, **of_brokers}))
        consumer.subscribe(
            list(self._subscribed),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        return consumer

    def _close_consumer(self) -> None:
        with end_if_hanging():
            self._client.serve(lambda: close(self._consumer, self._client.spec.properties))
        self._commits.settle()

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._FATAL and self._client.fatal is None:
            self._consumer_died = True
        self._group_lost = self._group_lost or is_group_lost(error)
        self._client.on_error(error)

    def _go_on_without(self, fatal: str) -> None:
        """Makes another consumer after one that died because its group is gone. FatalClient for any other death."""
        if self._consumer_died and not self._group_lost:
            # The reason may not have been reported; what comes with it is nobody's.
            self._records(self._client.serve(self._consumer.consume, self._batch, REASON_S) or [])
        gone = self._consumer_died and self._group_lost
        due_ns = self._successors.due_ns(self._now_ns()) if gone else None
        if due_ns is None:
            raise FatalClient(fatal)
        self._client.log("the group is gone, and the consumer died of it: its partitions are lost, a new one joins")
        # librdkafka drops the assignment of a dead consumer without a callback.
        self._on_lost(self._consumer, self._commits.named(dict.fromkeys(sorted(self._owned), NONE)))
        self._close_consumer()
        self._commits.rows.forget()
        while (left_ns := due_ns - self._now_ns()) > 0 and not self._stopped:
            self._between(wait_s=min(STALL_SLICE_S, left_ns / 1e9))
        self._consumer_died, self._group_lost, self._client.fatal = False, False, None
        self._consumer = self._new_consumer()
        self._successors.made(self._now_ns())

    # A batch.

    def _handle_busily(self, messages: Sequence[Message], asked_ns: int) -> None:
        """Handles a batch, and marks the member as busy: meanwhile no partition counts as at its end."""
        self._busy = True
        self._handle(messages, asked_ns)
        self._busy = False

    def _handle(self, messages: Sequence[Message], asked_ns: int) -> None:
        """Records a batch, notices resets, and does the work. `asked_ns`: a moment before the records were asked for."""
        expected = self._reads.next_offset.copy()
        columns = self._reads.record(messages)
        self._positions.given(self._consumer, columns, expected)
        self._commits.delivered(self._consumer, next_offsets(columns), asked_ns=asked_ns)
        self._commits.settle()
        if self._retry_topic is None:
            self._work(columns, asked_ns)
        else:
            self._work_with(self._retry_topic, columns, asked_ns)

    def _work(self, columns: Mapping[str, np.ndarray], asked_ns: int) -> None:
        """Processes what does not fail, holds back what does and what is behind it, and commits what was processed."""
        columns, failed, paused = self._retries.take(columns, asked_ns)
        self._process(columns)
        if len(failed["log_offset"]):
            self._processed.begin(failed, started_ns=self._now_ns())  # an attempt without an effect is never finished
        for dense in paused:
            self._positions.pause(self._consumer, dense, int(self._retries.held[dense].columns["log_offset"][0]))
        if offsets := next_offsets(columns):
            self._commits.processed_up_to(self._consumer, offsets)

    def _work_with(self, retry_topic: RetryTopic, columns: Mapping[str, np.ndarray], asked_ns: int) -> None:
        """Processes what does not fail, sends what does to the retry topic, and commits past both. A record that comes
        from the retry topic waits first."""
        waits = retry_topic.holds(columns["partition"])
        for dense in self._retries.hold(chosen_records(columns, waits), asked_ns):
            self._positions.pause(self._consumer, dense, int(self._retries.held[dense].columns["log_offset"][0]))
        columns = chosen_records(columns, ~waits)
        fails = fails_at_first(columns, self._failure_share)
        self._process(chosen_records(columns, ~fails))
        if fails.any():
            failed = chosen_records(columns, fails)
            self._processed.begin(failed, started_ns=self._now_ns())  # an attempt without an effect is never finished
            if not retry_topic.hand_on(failed):
                return
        if offsets := next_offsets(columns):
            self._commits.processed_up_to(self._consumer, offsets)

    def _process(self, columns: Mapping[str, np.ndarray]) -> None:
        """Processes records, `processing_ms` each. The row of a record is written before, and completed after."""
        count = len(columns["log_offset"])
        piece = max(1, count) if not self._processing_ms else max(1, int(SLICE_MS / self._processing_ms))
        for low in range(0, count, piece):
            part = {name: values[low : low + piece] for name, values in columns.items()}
            started_ns = self._now_ns()
            first = self._processed.begin(part, started_ns=started_ns)
            until_ns = started_ns + int(len(part["log_offset"]) * self._processing_ms * 1e6)
            while (left_ns := until_ns - self._now_ns()) > 0:
                self._between(wait_s=min(0.05, left_ns / 1e9))
            self._processed.done(first, done_ns=self._now_ns())
            self._client.heartbeat(self._now_ns())

    def _records(self, messages: Sequence[Message]) -> list[Message]:
        """Returns the messages that are records; handles those that are errors."""
        errors = list(map(Message.error, messages))
        if not any(errors):  # a KafkaError is truthy
            return list(messages)
        for message, error in zip(messages, errors, strict=True):
            if error is not None:
                self._note(message, error)
        return [message for message, error in zip(messages, errors, strict=True) if error is None]

    def _note(self, message: Message, error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            dense = self._reads.dense(message)
            if dense in self._owned:
                self._owned[dense] = message.offset() or 0
            return
        self._on_error(error)
        if error.code() in LOST_POSITION:
            self._positions.lost(self._reads.dense(message))

    # Callbacks, inside consume() and close().

    def _on_assign(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        given = sorted(by_partition(partitions, self._dense))
        started_ns = self._now_ns()
        begun = self._assignments.begin(ASSIGN, given, started_ns)
        committed = self._committed(given)
        for dense in given:
            offset = committed.get(dense, NONE)
            self._owned[dense] = NONE
            self._positions.assigned(dense, offset, started_ns, resolved=dense not in committed or offset != NONE)
        self._assignments.done(begun)

    def _on_revoke(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        taken = sorted(by_partition(partitions, self._dense))
        begun = self._assignments.begin(REVOKE, taken, self._now_ns())
        self._commits.revoked(consumer, taken)
        self._forget(consumer, taken)
        self._assignments.done(begun)

    def _on_lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Records partitions as lost. They may belong to another member already, so nothing is committed."""
        taken = sorted(by_partition(partitions, self._dense))
        begun = self._assignments.begin(LOST, taken, self._now_ns())
        self._forget(consumer, taken)
        self._assignments.done(begun)

    def _forget(self, consumer: Consumer, partitions: Sequence[int]) -> None:
        self._positions.let_go(consumer, partitions)
        self._retries.forget(partitions)
        self._positions.forget(partitions)
        self._commits.forget(partitions)
        for dense in partitions:
            self._owned.pop(dense, None)

    def _committed(self, partitions: Sequence[int]) -> dict[int, int]:
        """Asks what the group has committed: partition → offset, NONE = nothing. Partitions without an answer are left
        out."""
        if not partitions:
            return {}
        asked_ns = self._now_ns()
        wanted = [TopicPartition(*self._names[dense]) for dense in partitions]
        try:
            answers = by_partition(self._consumer.committed(wanted, timeout=LOOK_UP_S), self._dense)
        except KafkaException as error:
            self._client.log(f"committed offsets were not reported: {error.args[0].str()}")
            return {}
        answered_ns = self._now_ns()
        found = {d: max(NONE, a.offset) for d, a in answers.items() if a.error is None}
        for dense, offset in found.items():
            row = self._observed(ObservationKind.COMMITTED, dense, offset, asked_ns)
            self._answerers.asked(row, asked_ns=asked_ns, answered_ns=answered_ns)
        return found

    def _observed(self, kind: ObservationKind, dense: int, value: int, time_ns: int) -> int:
        values: dict[str, int] = {"time_ns": time_ns, "value": value, "partition": dense, "kind": kind}
        return self._observations.append(*in_order(OBSERVATIONS, values))

    # Commands.

    def _between(self, *, wait_s: float = 0.0) -> None:
        """Beats, obeys commands, and reports progress while draining. Called between two looks at Kafka."""
        now_ns = self._now_ns()
        self._client.heartbeat(now_ns)
        control = self._client.control
        for order in control.until(timeout_s=wait_s) if wait_s else control.commands():
            self._obey(order)
        if self._draining and now_ns >= self._report_ns:
            self._report_ns = now_ns + REPORT_NS
            positions = {dense: int(self._reads.next_offset[dense]) for dense in self._owned}
            at = {dense: (position, self._at_end(dense, position)) for dense, position in positions.items()}
            control.send(messages.DrainingEvent(at=at, processed=self._processed.count))

    def _at_end(self, dense: int, position: int) -> bool:
        """Says whether everything up to the end that a broker has named was processed. The event that says so is
        thrown away with everything that waits when a partition is paused, and not sent again; then the end that the
        last fetch reported counts."""
        if (
            self._busy
            or dense in self._commits.owing
            or dense in self._retries.held
            or (self._retry_topic is not None and self._retry_topic.under_way)
        ):
            return False
        if self._owned[dense] >= max(0, position) or position < 0:
            return self._owned[dense] >= 0
        try:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(*self._names[dense]), cached=True)
        except KafkaException:  # nothing was fetched yet
            return False
        return 0 <= end <= position

    def _obey(self, order: messages.Order) -> None:
        match order.command:
            case messages.DrainCommand(quiet_s=quiet_s):
                self._draining = True
                for dense in self._names:
                    self._observed(ObservationKind.DRAIN_BEGUN, dense, int(quiet_s * 1000), self._now_ns())
            case messages.StopCommand():
                self._stopped = True
            case messages.StallCommand(seconds=seconds):
                self._stalled_until_ns = self._now_ns() + int(seconds * 1e9)
            case unknown:
                raise AssertionError(unknown)
        self._client.control.send(messages.DoneEvent(number=order.number))


# The group of a KIP-848 consumer is gone: how that is reported, and when another consumer may be made in its place.
#
# A coordinator that has the group no more, because its partition of `__consumer_offsets` was destroyed, answers
# heartbeats GROUP_ID_NOT_FOUND. That is fatal to librdkafka's consumer, as to Kafka's own: the application has to
# begin again. Its next consumer joins with epoch 0, which makes the group anew. [librdkafka#5485, librdkafka#5488;
# KIP-848]


PAUSE_NS = 1 * NS_PER_S
"""The least time between the making of two consumers."""
LIVED_NS = 10 * NS_PER_S
"""A consumer that lived so long was a member: its first heartbeats were answered.
[group.consumer.heartbeat.interval.ms, 5 s]"""
GIVE_UP_NS = 60 * NS_PER_S
"""If one consumer after another has died for so long, no other is made."""
REASON_S = 1.0
"""How long to wait for the reason of a death: a commit may have been refused before."""
_FATAL_REASON = f"Fatal error: {KafkaError(KafkaError.GROUP_ID_NOT_FOUND).str()}: "


def is_group_lost(error: KafkaError) -> bool:
    """Says whether a consumer died because its group is gone.

    librdkafka hands a consumer's fatal error on as _FATAL, with the description of the original code in front of its own
    words; that code itself (rd_kafka_fatal_error) confluent_kafka does not give. [rd_kafka_set_fatal_error0]
    """
    return error.code() == KafkaError._FATAL and error.str().startswith(_FATAL_REASON)


class Successors:
    """Decides when the next consumer of an application may be made, after one that died."""

    def __init__(self, made_ns: int) -> None:
        """`made_ns`: when the first consumer was made."""
        self._made_ns, self._dying_ns, self.count = made_ns, made_ns, 0

    def due_ns(self, died_ns: int) -> int | None:
        """Returns when another consumer may be made, now that the newest was found dead. None = no more: the
        application dies with it."""
        if not self.count or died_ns - self._made_ns >= LIVED_NS:
            self._dying_ns = died_ns
        return None if died_ns - self._dying_ns >= GIVE_UP_NS else max(died_ns, self._made_ns + PAUSE_NS)

    def made(self, now_ns: int) -> None:
        """Notes that another consumer was made."""
        self._made_ns = now_ns
        self.count += 1


# Members of consumer groups as librdkafka spells them. Pure.

HANDED_ON_MAX = 1_000
"""Records that a member may send to the retry topic and have unacknowledged, per partition: more than a batch."""
ASSIGNORS = {"classic-eager": "range", "classic-cooperative": "cooperative-sticky"}
"""Protocol of a group → the assignor that its members name, unless the trial names another."""


def launch_member(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `member`."""
    planned = context.planned
    work = work_as(GroupWork, planned.work)
    group = work.configuration
    assert planned.group_id is not None, planned
    assert planned.cell is not None, planned
    properties = member_properties(
        group,
        bootstrap_servers=context.servers,
        client_name=planned.name,
        group_id=planned.group_id,
        instance=planned.instance,
        heartbeat_ms=work.session.heartbeat_ms,
    )
    partitions = context.plan.partitions
    topics = sorted({partitions[p].topic_name for p in planned.partitions if not partitions[p].late})
    options = MemberOptions(
        group=planned.cell,
        # librdkafka takes what begins with ^ for a regular expression. [rd_kafka_subscribe]
        subscribe=tuple(f"^{topic}.*" for topic in topics) if group.subscription == "pattern" else tuple(topics),
        failure_share=group.failure_share,
        retry_after_ms=group.retry_after_ms,
        commit=group.commit,
        processing_ms=group.processing_ms,
        batch=group.batch,
        one_by_one=read_one_by_one(group),
        eager=group.protocol == "classic-eager",
        retry_topic=_retry_topic(context, group) if group.hands_on else None,
        copies=copy_rules(context),
    )
    return Settings(properties, options)


def outputs_of(plan: Plan, planned: PlannedClient) -> tuple[tuple[int, int, str, int], ...]:
    """Returns (input partition, output partition of the same number, its topic and number) for every input partition."""
    assert planned.cell is not None, planned
    cell = plan.cells[planned.cell]
    outputs = [plan.partitions[p] for p in cell.derived]
    return tuple((source, o.partition, o.topic_name, o.number) for source, o in zip(cell.written, outputs, strict=True))


def _retry_topic(context: LaunchContext, group: GroupConfiguration) -> RetryOptions:
    """Returns what `RetryTopic` needs: a member sends as the producers of its cell do."""
    planned = context.planned
    assert planned.producer is not None, planned
    return RetryOptions(
        producer=producer_properties(
            planned.producer,
            bootstrap_servers=context.servers,
            client_name=planned.name,
            partitions=len(planned.partitions),
            unacknowledged_max=HANDED_ON_MAX,
        ),
        outputs=outputs_of(context.plan, planned),
        awaited=group.on_failure == "retry-topic",
    )


def member_properties(
    group: GroupConfiguration,
    *,
    bootstrap_servers: str,
    client_name: str,
    group_id: str,
    instance: int,
    heartbeat_ms: int,
) -> dict[str, Property]:
    """Returns the properties of one member's consumer. BadInput if the configuration is for another client.

    enable.auto.offset.store is on with `auto` alone: then librdkafka stores what it has *delivered*, processed or not, which
    is its default and no Java client's way (CONFIGURATION.md, enable.auto.offset.store). In the consumer protocol sessions
    and heartbeats are the brokers' (KIP-848): librdkafka refuses a configuration that names them.
    """
    if group.client != "librdkafka":
        raise BadInput(f'group.client={group.client!r} is not a client that runs here yet. Set it to "librdkafka".')
    chosen_assignor = group.assignor != "default"
    protocol: dict[str, Property] = {"group.protocol": "consumer"}
    if group.protocol == "consumer" and chosen_assignor:
        protocol["group.remote.assignor"] = group.assignor
    if group.protocol != "consumer":
        protocol = {
            "group.protocol": "classic",
            "partition.assignment.strategy": group.assignor if chosen_assignor else ASSIGNORS[group.protocol],
            "session.timeout.ms": group.session_timeout_ms,
            "heartbeat.interval.ms": heartbeat_ms,
        }
    static: dict[str, Property] = {"group.instance.id": f"{group_id}-{instance}"} if group.static_membership else {}
    identity: dict[str, Property] = {
        "bootstrap.servers": bootstrap_servers,
        "client.id": client_name,
        "group.id": group_id,
        **static,
        "enable.partition.eof": True,  # so that the trial knows when a member has read everything
    }
    named: dict[str, Property] = {
        "isolation.level": group.isolation_level,
        "auto.offset.reset": group.auto_offset_reset,
        "enable.auto.commit": group.commit in ("auto", "auto-stored"),
        "enable.auto.offset.store": group.commit == "auto",
        "auto.commit.interval.ms": group.auto_commit_interval_ms,
        # librdkafka wants max.poll.interval.ms >= session.timeout.ms.
        "max.poll.interval.ms": group.max_poll_interval_ms,
    }
    if group.defaults == "library":
        left = {MEMBER_PROPERTY_OF[name] for name in group.left_to_client}
        left |= {"group.protocol"} if "protocol" in group.left_to_client else set()
        left |= {"enable.auto.offset.store"} if "commit" in group.left_to_client else set()
        left -= {"partition.assignment.strategy"} if chosen_assignor else set()
        chosen = {
            key: value for key, value in (protocol | named).items() if key not in left | {"heartbeat.interval.ms"}
        }
        return known_to(group.client_version, chosen) | identity | QUIET | group.properties
    ours: dict[str, Property] = {
        **FOR_A_BROKEN_CLUSTER,
        **protocol,
        **identity,
        "check.crcs": True,
        **named,
        "allow.auto.create.topics": False,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 100,
        "fetch.queue.backoff.ms": 100,
    }
    return known_to(group.client_version, ours) | group.properties
