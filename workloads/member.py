"""A member of a consumer group: subscribes, processes what it is given, commits in the way its configuration says.

The application in small: a batch, its processing (which takes its time and has an effect: the row in `processed`), and a
commit before it, after it, or by librdkafka. Whatever it is killed in, the rows say how far it was. Rebalance callbacks run
inside `consume` and `close`, between two batches. It outlives a consumer that died because its group is gone
(`workloads.lost_group`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from harness.rows import RowWriter
from harness.schema import NONE, OBSERVATIONS, READS, ObservationKind
from workloads.client import Client, FatalClient
from workloads.copies import rules_from
from workloads.lost_group import REASON_S, Successors, is_group_lost
from workloads.member_commits import MemberCommits
from workloads.member_positions import LOOK_UP_S, MemberPositions
from workloads.member_rows import (
    ASSIGN,
    CLOSE,
    LOST,
    REVOKE,
    AssignmentRows,
    ProcessedRows,
    by_partition,
)
from workloads.reader import ReadRows
from workloads.retries import Retries, chosen, next_offsets, unlucky
from workloads.retry_topic import RetryTopic

CONSUME_S = 0.05
SLICE_MS = 10.0
"""Processing is recorded in pieces of about this long: what a SIGKILL in the middle leaves undone."""
REPORT_NS = 100_000_000
STALL_SLICE_S = 0.05


class GroupMember:
    """The role `member`. Commands: stall, drain, stop."""

    def __init__(self, client: Client) -> None:
        spec, options = client.spec, client.spec.options
        self._client, self._now_ns = client, client.now_ns
        self._batch = int(options["batch"])
        self._processing_ms = float(options["processing_ms"])
        self._eager = bool(options["eager"])
        group, rows = int(options["group"]), client.rows
        self._reads = ReadRows(
            RowWriter(rows, READS, spec.client), spec.partitions, client.now_ns, copies=rules_from(options)
        )
        self._positions = MemberPositions(client, self._reads, eager=self._eager)
        self._observations = RowWriter(rows, OBSERVATIONS, spec.client)
        self._processed = ProcessedRows(rows, spec.client, group)
        self._commits = MemberCommits(client, self._reads, on_error=self._on_error)
        self._assignments = AssignmentRows(rows, spec.client, group, client.now_ns, incremental=not self._eager)
        self._names = {dense: (topic, number) for dense, topic, number in spec.partitions}
        self._dense = {name: dense for dense, name in self._names.items()}
        self._owned: dict[int, int] = {}
        """Partition → where a broker last said that its end was; NONE = not yet."""
        self._stopped, self._report_ns = False, 0
        self._draining, self._busy = False, False
        """`_busy`: with a batch, all of which `next_offset` has left behind."""
        self._stalled_until_ns = 0
        """Until then nothing is asked of Kafka, as by an application that is busy with something else."""
        self._failure_share, handing_on = float(options["failure_share"]), options.get("retry_topic")
        self._retries = Retries(
            share=0.0 if handing_on else self._failure_share, after_ms=float(options["retry_after_ms"])
        )
        self._retry_topic: RetryTopic | None = None
        if handing_on:
            self._retry_topic = RetryTopic(client, handing_on, between=self._between, stopped=lambda: self._stopped)
        self._consumer_died, self._group_lost = False, False
        """Is it the consumer that has died, and not what sends to a retry topic; and because its group is gone?"""
        self._successors = Successors(client.now_ns())
        self._consumer = self._new_consumer()

    def run(self) -> None:
        """Until `stop`; then the group is left in order."""
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
        self._client.serve(self._consumer.close)
        self._assignments.done(closing)

    def issued(self) -> int:
        """Records sent to the retry topic, where there is one; else records read."""
        return self._reads.writer.count if self._retry_topic is None else self._retry_topic.issued

    def close(self) -> None:
        """Flush every table."""
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
        """One look at Kafka, and the work it gives."""
        self._positions.seek_what_is_due(self._consumer)
        asked_ns = self._now_ns()
        for dense, columns in self._retries.due(asked_ns).items():
            self._work(columns, asked_ns)
            if dense not in self._retries.held:
                self._positions.resume(self._consumer, dense)
        messages = self._records(self._client.serve(self._consumer.consume, self._batch, CONSUME_S) or [])
        if messages:
            self._handle_busily(messages, asked_ns)
        elif self._commits.owing:
            self._commits.with_owing(self._consumer, {})
        if self._retry_topic is not None:
            self._retry_topic.serve(0)

    # --- instances of the consumer ----------------------------------------------------------------------------------

    def _new_consumer(self) -> Consumer:
        spec = self._client.spec
        callbacks = {"error_cb": self._on_error, "on_commit": self._commits.answered}
        consumer = Consumer({**spec.properties, **callbacks, **self._client.statistics.callbacks_of_brokers})
        consumer.subscribe(
            list(spec.options["subscribe"]),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        return consumer

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._FATAL and self._client.fatal is None:
            self._consumer_died = True
        self._group_lost = self._group_lost or is_group_lost(error)
        self._client.on_error(error)

    def _go_on_without(self, fatal: str) -> None:
        """Another consumer takes over from one that died because its group is gone. FatalClient for any other death."""
        if self._consumer_died and not self._group_lost:
            # The reason may not have been told; what comes with it is nobody's.
            self._records(self._client.serve(self._consumer.consume, self._batch, REASON_S) or [])
        gone = self._consumer_died and self._group_lost
        due_ns = self._successors.due_ns(self._now_ns()) if gone else None
        if due_ns is None:
            raise FatalClient(fatal)
        self._client.log("the group is gone, and the consumer died of it: its partitions are lost, a new one joins")
        # librdkafka drops the assignment of a dead consumer without a callback.
        self._on_lost(self._consumer, self._commits.named(dict.fromkeys(sorted(self._owned), NONE)))
        self._client.serve(self._consumer.close)
        self._commits.rows.forget()
        while (left_ns := due_ns - self._now_ns()) > 0 and not self._stopped:
            self._between(wait_s=min(STALL_SLICE_S, left_ns / 1e9))
        self._consumer_died, self._group_lost, self._client.fatal = False, False, None
        self._consumer = self._new_consumer()
        self._successors.made(self._now_ns())

    # --- a batch ----------------------------------------------------------------------------------------------------

    def _handle_busily(self, messages: Sequence[Message], asked_ns: int) -> None:
        """Meanwhile no partition is at its end."""
        self._busy = True
        self._handle(messages, asked_ns)
        self._busy = False

    def _handle(self, messages: Sequence[Message], asked_ns: int) -> None:
        """Record them, notice resets, and do the work. `asked_ns`: before they were asked for."""
        expected = self._reads.next_offset.copy()
        columns = self._reads.record(messages)
        self._positions.given(self._consumer, columns, expected)
        self._commits.delivered(self._consumer, next_offsets(columns), asked_ns=asked_ns)
        if self._retry_topic is None:
            self._work(columns, asked_ns)
        else:
            self._work_with(self._retry_topic, columns, asked_ns)

    def _work(self, columns: Mapping[str, np.ndarray], asked_ns: int) -> None:
        """Process what does not fail, hold back what does and what is behind it, commit what was processed."""
        columns, failed, paused = self._retries.take(columns, asked_ns)
        self._process(columns)
        if len(failed["log_offset"]):
            self._processed.begin(failed, started_ns=self._now_ns())  # an attempt without an effect is never finished
        for dense in paused:
            self._positions.pause(self._consumer, dense, int(self._retries.held[dense].columns["log_offset"][0]))
        if offsets := next_offsets(columns):
            self._commits.processed_up_to(self._consumer, offsets)

    def _work_with(self, retry_topic: RetryTopic, columns: Mapping[str, np.ndarray], asked_ns: int) -> None:
        """Process what does not fail, hand on what does, commit past both. What is read of the retry topic has its time to
        wait first."""
        waits = retry_topic.holds(columns["partition"])
        for dense in self._retries.hold(chosen(columns, waits), asked_ns):
            self._positions.pause(self._consumer, dense, int(self._retries.held[dense].columns["log_offset"][0]))
        columns = chosen(columns, ~waits)
        fails = unlucky(columns, self._failure_share)
        self._process(chosen(columns, ~fails))
        if fails.any():
            failed = chosen(columns, fails)
            self._processed.begin(failed, started_ns=self._now_ns())  # an attempt without an effect is never finished
            if not retry_topic.hand_on(failed):
                return
        if offsets := next_offsets(columns):
            self._commits.processed_up_to(self._consumer, offsets)

    def _process(self, columns: Mapping[str, np.ndarray]) -> None:
        """The processing step: each record takes `processing_ms`. Its row is there before, and its end after."""
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
        """Without those that are errors, which are dealt with."""
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
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION):
            self._positions.lost(self._reads.dense(message))

    # --- callbacks, inside consume() and close() ----------------------------------------------------------------------

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
        self._forget(taken)
        self._assignments.done(begun)

    def _on_lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """They may belong to somebody else already: nothing is committed."""
        taken = sorted(by_partition(partitions, self._dense))
        begun = self._assignments.begin(LOST, taken, self._now_ns())
        self._forget(taken)
        self._assignments.done(begun)

    def _forget(self, partitions: Sequence[int]) -> None:
        self._retries.forget(partitions)
        self._positions.forget(partitions)
        self._commits.forget(partitions)
        for dense in partitions:
            self._owned.pop(dense, None)

    def _committed(self, partitions: Sequence[int]) -> dict[int, int]:
        """What the group has committed, asked now: partition → offset, NONE = nothing. Without an answer: nothing is said."""
        if not partitions:
            return {}
        asked_ns = self._now_ns()
        wanted = [TopicPartition(*self._names[dense]) for dense in partitions]
        try:
            answers = by_partition(self._consumer.committed(wanted, timeout=LOOK_UP_S), self._dense)
        except KafkaException as error:
            self._client.log(f"committed offsets were not told: {error.args[0].str()}")
            return {}
        found = {d: max(NONE, a.offset) for d, a in answers.items() if a.error is None}
        for dense, offset in found.items():
            self._observed(ObservationKind.COMMITTED, dense, offset, asked_ns)
        return found

    def _observed(self, kind: ObservationKind, dense: int, value: int, time_ns: int) -> None:
        values: dict[str, int] = {"time_ns": time_ns, "value": value, "partition": dense, "kind": kind}
        self._observations.append(*(int(values.get(column.name, NONE)) for column in OBSERVATIONS.columns))

    # --- commands ---------------------------------------------------------------------------------------------------

    def _between(self, *, wait_s: float = 0.0) -> None:
        """Between two looks at Kafka: heartbeat, commands, and while draining a report."""
        now_ns = self._now_ns()
        self._client.heartbeat(now_ns)
        control = self._client.control
        for command in control.until(timeout_s=wait_s) if wait_s else control.commands():
            self._obey(command)
        if self._draining and now_ns >= self._report_ns:
            self._report_ns = now_ns + REPORT_NS
            positions = {dense: int(self._reads.next_offset[dense]) for dense in self._owned}
            at = [[dense, position, int(self._at_end(dense, position))] for dense, position in positions.items()]
            control.tell("draining", at=at, processed=self._processed.count)

    def _at_end(self, dense: int, position: int) -> bool:
        """Has everything been processed that a broker has named? The event that says so is thrown away with everything that
        waits when a partition is paused, and not sent again; then the end that the last fetch told counts."""
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
            _, told = self._consumer.get_watermark_offsets(TopicPartition(*self._names[dense]), cached=True)
        except KafkaException:  # nothing was fetched yet
            return False
        return 0 <= told <= position

    def _obey(self, command: dict[str, Any]) -> None:
        match command["do"]:
            case "drain":
                self._draining = True
                for dense in self._names:
                    self._observed(ObservationKind.DRAIN_BEGUN, dense, int(command["quiet_s"] * 1000), self._now_ns())
            case "stop":
                self._stopped = True
            case "stall":
                self._stalled_until_ns = self._now_ns() + int(command["seconds"] * 1e9)
            case unknown:
                raise AssertionError(unknown)
        self._client.control.tell("done", number=command["number"])
