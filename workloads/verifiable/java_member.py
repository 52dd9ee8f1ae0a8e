"""Runs Kafka's VerifiableConsumer as a member of a group. Its events become the rows that our own members write."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition, admin
from confluent_kafka.admin import AdminClient

from prozess.harness.clock import NS_PER_S
from prozess.harness.recording.asked import AskedStretch
from prozess.harness.recording.rows import RowWriter
from prozess.harness.recording.verifiable_output import event_partition, event_partitions
from prozess.harness.schema import (
    COMMITS,
    MISSING,
    NONE,
    OBSERVATIONS,
    POSITIONS,
    PROCESSED,
    READS,
    ObservationKind,
    Outcome,
    ReadFlag,
)
from prozess.workloads import messages
from prozess.workloads.client import Client
from prozess.workloads.log.producer import text_identity
from prozess.workloads.record.identity import SENTINEL_KEY, key_id
from prozess.workloads.record.members import ASSIGN, ASSIGNED, CLOSE, RESET, REVOKE, SYNC, AssignmentRows, in_order
from prozess.workloads.settings import FOR_A_BROKEN_CLUSTER, options_of
from prozess.workloads.verifiable.clients import NO_CODE, UNREPORTED_ERROR, Tool, ToolClient, encoded
from prozess.workloads.verifiable.settings import JavaMemberOptions

# The tool has no processing of its own: printing a record is its effect, and it commits after it (`--enable-
# autocommit`: with a later poll). Therefore a record counts as processed when it was printed. It informs the moment of each
# event itself, in milliseconds of this host's clock (`Tool.moment`): what begins is taken for as early, and what ends
# for as late, as that allows, so that no two members ever seem to overlap that did not.


STOP_LIMIT_NS = 15 * NS_PER_S
"""How long the tool may take to end: its shutdown hook commits and leaves the group, which may wait for brokers."""
REPORT_NS = 100_000_000
WAITS_NS = 50_000_000
"""A poll that takes so long has nothing to give that was fetched before."""


class JavaMember(ToolClient):
    """A Java member of a consumer group (role `java-member`). Commands: drain, stop. Options: see
    `prozess.workloads.verifiable.settings.launch_java_member`."""

    make_admin = AdminClient
    """Makes the client that looks offsets up."""

    def __init__(self, client: Client) -> None:
        options = options_of(client.spec, JavaMemberOptions)
        super().__init__(client, options.tool)
        rows, number = client.rows, client.spec.client
        self._group, self._auto = options.group, options.auto
        self._reads, self._processed = RowWriter(rows, READS, number), RowWriter(rows, PROCESSED, number)
        self._commits = JavaCommitRows(RowWriter(rows, COMMITS, number), self._group)
        self._assignments = AssignmentRows(rows, number, self._group, client.now_ns, incremental=not options.eager)
        self._owned: set[int] = set()
        self._draining, self._report_ns = False, 0
        self._polls, self._polling_since_ns = AskedStretch(ObservationKind.POLLED), MISSING
        """When the tool began to poll. MISSING: it does not, or what it waits for was noted already."""
        self._begin()
        # After the tool was forked: what looks offsets up has threads.
        self._positions = JavaPositions(client, options.group_id, latest=options.latest, make_admin=self.make_admin)

    def run(self) -> None:
        """Runs the tool until `stop`, when it leaves the group, and until its end. See `ToolClient.run`."""
        super().run()
        self._assignments.done(self._closing)

    def issued(self) -> int:
        """Returns how many records were read."""
        return self._reads.count

    def close(self) -> None:
        """Writes every table to its end."""
        for table in (self._reads, self._processed, self._commits, self._assignments, self._positions):
            table.close()

    # Commands.

    def _obey(self, order: messages.Order) -> None:
        match order.command:
            case messages.DrainCommand(quiet_s=quiet_s):
                self._draining = True
                for dense in self._dense.values():
                    self._positions.observed(
                        ObservationKind.DRAIN_BEGUN, dense, int(quiet_s * 1000), self._client.now_ns()
                    )
            case messages.StopCommand() if not self._stopped:
                self._closing = self._assignments.begin(CLOSE, sorted(self._owned), self._client.now_ns())
                self._end(limit_ns=STOP_LIMIT_NS)
            case messages.StopCommand():
                pass
            case other:
                self._client.log(f"a Java member cannot {other.do}: it goes on")
        self._client.control.send(messages.DoneEvent(number=order.number))

    def _look_after(self, tool: Tool) -> None:
        super()._look_after(tool)
        self._between()

    def _between(self) -> None:
        self._positions.turn()
        now_ns = self._client.now_ns()
        if self._polling_since_ns != MISSING and now_ns - self._polling_since_ns >= WAITS_NS:
            self._polls.begin(self._positions.observations, self._polling_since_ns, may_last=True)
            self._polling_since_ns = MISSING
        if self._draining and not self._stopped and now_ns >= self._report_ns:
            self._report_ns = now_ns + REPORT_NS
            # Where the end is it does not know; that is what the observer follows.
            at = {dense: (self._positions.next.get(dense, NONE), True) for dense in sorted(self._owned)}
            self._client.control.send(messages.DrainingEvent(at=at, processed=self._processed.count))

    # Events.

    def _take(self, tool: Tool, event: Mapping[str, Any]) -> None:
        match event["name"]:
            case "record_data":
                self._given(tool, event)
            case "records_consumed":
                self._polled(tool, event)
            case "offsets_committed":
                self._committed(tool, event)
            case "partitions_assigned" | "partitions_revoked":
                self._rebalanced(tool, event)
            case "shutdown_complete":
                self.shutdown_complete = True

    def _given(self, tool: Tool, event: Mapping[str, Any]) -> None:
        """Records that a record was read, and processed."""
        tp = event_partition(event)
        dense = None if tp is None else self._dense.get((tp.topic, tp.partition))
        if tp is None or dense is None or tp.offset == NONE:
            self.not_understood(event)
            return
        low_ns, high_ns = tool.moment(event)
        key = event.get("key")
        # A sentinel's value is no text.
        sentinel = key == SENTINEL_KEY.decode()
        sender, sequence = (0, 0) if sentinel else text_identity(event.get("value"))
        self._positions.given(dense, tp.offset, low_ns)
        same = {
            "log_offset": tp.offset,
            "sequence": sequence,
            "sender": sender,
            "partition": dense,
            "span": self._positions.span.get(dense, NONE),
        }
        read = {
            "read_ns": high_ns,
            "key": key_id(encoded(key)),
            "flags": int(ReadFlag.CORRUPT) if sender == NONE else 0,
        }
        self._reads.append(*in_order(READS, same | read))
        done = {"started_ns": low_ns, "done_ns": low_ns, "group": self._group}
        self._processed.append(*in_order(PROCESSED, same | done))

    def _polled(self, tool: Tool, event: Mapping[str, Any]) -> None:
        """Notes that all that a poll gave was printed. It is committed now, unless that is Kafka's own affair."""
        invoked_ns, polled_ns = tool.moment(event)
        if self._polling_since_ns == MISSING and self._polls.row >= 0:
            self._polls.end(self._positions.observations, invoked_ns)
        self._polling_since_ns = polled_ns if self._auto else MISSING
        listed = event.get("partitions")
        for entry in listed if isinstance(listed, list) else [None]:
            last = entry.get("maxOffset") if isinstance(entry, dict) else None
            tp = event_partition({**entry, "offset": last}) if isinstance(entry, dict) else None
            dense = None if tp is None else self._dense.get((tp.topic, tp.partition))
            if tp is None or dense is None or self._positions.next.get(dense) != tp.offset + 1:
                self.not_understood(event)
                continue
            if not self._auto:
                self._commits.begin(dense, tp.offset + 1, invoked_ns)

    def _committed(self, tool: Tool, event: Mapping[str, Any]) -> None:
        success = event.get("success") is True
        if not success:
            self._client.log(f"commit: {event.get('error')}")
        invoked_ns, done_ns = tool.moment(event)
        self._polling_since_ns = done_ns
        for tp in event_partitions(event, "offsets"):
            dense = self._dense.get((tp.topic, tp.partition))
            if dense is None or tp.offset == NONE:
                self.not_understood(event)
                continue
            position = self._positions.next.get(dense, NONE)
            self._commits.answered(dense, tp.offset, invoked_ns, done_ns, position=position, success=success)

    def _rebalanced(self, tool: Tool, event: Mapping[str, Any]) -> None:
        """Records an assignment or a revocation. Lost partitions are reported as revoked: the tool does not distinguish
        them. An empty list is a row too."""
        low_ns, high_ns = tool.moment(event)
        found = [self._dense.get((p.topic, p.partition)) for p in event_partitions(event, "partitions")]
        known = sorted(dense for dense in found if dense is not None)
        if len(known) < len(found) or not isinstance(event.get("partitions"), list):
            self.not_understood(event)
        given = event["name"] == "partitions_assigned"
        if self._polls.row < 0 and self._polling_since_ns == MISSING:
            self._polling_since_ns = high_ns
        begun = self._assignments.begin(ASSIGN if given else REVOKE, known, low_ns)
        self._assignments.done(begun, done_ns=high_ns)
        if given:
            self._owned |= set(known)
            self._positions.assigned(known, low_ns)
        else:
            self._owned -= set(known)
            self._positions.forget(known)


class JavaCommitRows:
    """Writes rows of `commits`: one per partition, when the tool is about to commit. They are completed when it says
    how that went."""

    def __init__(self, writer: RowWriter, group: int) -> None:
        self._writer, self._group = writer, group
        self._open: dict[tuple[int, int], tuple[int, int]] = {}
        """The commits without an answer: (partition, offset) → (row, invoked)."""

    def begin(self, dense: int, offset: int, invoked_ns: int) -> None:
        """Writes the row of a commit of all that was printed, and of nothing beyond it."""
        row = self._writer.append(*self._row(dense, offset, invoked_ns, None, position=offset, success=False))
        self._open[dense, offset] = row, invoked_ns

    def answered(self, dense: int, offset: int, invoked_ns: int, done_ns: int, *, position: int, success: bool) -> None:
        """Completes a commit. A refusal is INFO: the client sends a commit again by itself, and what is refused may be
        the second copy."""
        row, begun_ns = self._open.pop((dense, offset), (None, invoked_ns))
        values = self._row(dense, offset, begun_ns, done_ns, position=position, success=success)
        if row is None:
            self._writer.append(*values)
        else:
            self._writer.rewrite(row, *values)

    def close(self) -> None:
        """Writes the rows to their end."""
        self._writer.close()

    def _row(
        self, dense: int, offset: int, invoked_ns: int, done_ns: int | None, *, position: int, success: bool
    ) -> list[int]:
        answered = (
            {} if done_ns is None else {"completed_ns": done_ns, "code": NO_CODE if success else UNREPORTED_ERROR}
        )
        row = {
            "invoked_ns": invoked_ns,
            "completed_ns": MISSING,
            "log_offset": offset,
            "position": position,
            "partition": dense,
            "group": self._group,
            "outcome": int(Outcome.OK if success else Outcome.INFO),
            "code": NO_CODE,
            "mode": SYNC,
        }
        return in_order(COMMITS, row | answered)


# Where a Java member stands in its partitions. Its tool says no position, so they are looked up beside it.
#
# A span begins at what the group had committed, which is asked when the tool says that it was assigned the partition.
# Only who owns a partition commits there. Therefore an answer is from before the member's own first commit if it came before
# the first record, or is not beyond it; else it is in doubt. If nothing was committed, the first record says where
# auto.offset.reset led; so does a jump over a committed offset, or a position, that the log start has passed.
#
# In doubt the first record is what is known. A group that goes on at `latest` may have been reset there, and owes
# nothing before it that nobody had committed; any other had its position there, for it was given no record before it.


RETRY_AFTER_NS = 300_000_000
"""How long to wait between two questions about what is committed."""
ANSWER_LIMIT_S = 5.0


@dataclass(slots=True)
class _Span:
    """A span that has begun, and of which it is not known yet where."""

    number: int
    row: int
    begun_ns: int
    first: tuple[int, int] | None = None
    """(offset, not after) of its first record."""
    committed: tuple[int, int] | None = None
    """(offset, NONE = nothing; when the answer was there)."""


@dataclass(slots=True)
class _Jump:
    """A jump from one offset to a later one. Was the log start beyond the former?"""

    dense: int
    span: int
    expected: int
    offset: int
    time_ns: int
    answer: "Future[Any]"


class JavaPositions:
    """The positions of one member. Every assignment begins a span. `make_admin` makes an AdminClient of properties.
    `turn` is to be called often; nothing here ever waits."""

    def __init__(
        self, client: Client, group_id: str, *, latest: bool, make_admin: Callable[[dict[str, Any]], AdminClient]
    ) -> None:
        self._client, self._group_id, self._make_admin = client, group_id, make_admin
        self._latest = latest
        self._rows = RowWriter(client.rows, POSITIONS, client.spec.client)
        self.observations = RowWriter(client.rows, OBSERVATIONS, client.spec.client)
        self._names = {dense: (topic, number) for dense, topic, number in client.spec.partitions}
        self._spans = -1
        self.span: dict[int, int] = {}
        """The span that records read now belong to, by dense partition."""
        self.next: dict[int, int] = {}
        """The offset behind the last record read in that span, by dense partition."""
        self._begun: dict[int, _Span] = {}
        self._asked: tuple[Future[Any], dict[int, int], int] | None = None
        """The question that is under way: (answer to come, dense partition → span, when it was asked)."""
        self._again_ns = 0
        self._jumps: list[_Jump] = []

    def assigned(self, partitions: Iterable[int], time_ns: int) -> None:
        """Begins a span in each partition, and asks at once what is committed: the tool will not wait."""
        for dense in partitions:
            self._spans += 1
            self.span[dense] = self._spans
            self.next.pop(dense, None)
            row = self._append(dense, NONE, ASSIGNED, time_ns)
            self._begun[dense] = _Span(self._spans, row, time_ns)
        self._again_ns = 0
        self.turn()

    def forget(self, partitions: Iterable[int]) -> None:
        """Forgets partitions that were taken away."""
        for dense in partitions:
            begun = self._begun.pop(dense, None)
            if begun is not None and begun.first is not None:
                self._in_doubt(dense, begun, *begun.first)
            elif begun is not None and begun.committed is not None:  # it was given nothing from there on
                self._rows.rewrite(
                    begun.row, *self._row(dense, begun.committed[0], ASSIGNED, begun.begun_ns, begun.number)
                )

    def given(self, dense: int, offset: int, time_ns: int) -> None:
        """Notes that a record was given, not before `time_ns`."""
        begun, expected = self._begun.get(dense), self.next.get(dense)
        self.next[dense] = offset + 1
        if begun is not None and begun.first is None:
            begun.first = offset, time_ns
            self._resolve(dense, begun)
        elif expected is not None and offset > expected:
            self._jumped(dense, expected, offset, time_ns)

    def observed(self, kind: ObservationKind, dense: int, value: int, time_ns: int) -> None:
        """Writes a row of `observations`."""
        values: dict[str, int] = {"time_ns": time_ns, "value": value, "partition": dense, "kind": kind}
        self.observations.append(*in_order(OBSERVATIONS, values))

    def turn(self) -> None:
        """Takes the answers that are there, and asks for what is missing."""
        if self._asked is not None and self._asked[0].done():
            (answer, spans, asked_ns), self._asked = self._asked, None
            self._take(answer, spans, asked_ns)
        missing = {dense: begun.number for dense, begun in self._begun.items() if begun.committed is None}
        now_ns = self._client.now_ns()
        if missing and self._asked is None and now_ns >= self._again_ns:
            self._again_ns = now_ns + RETRY_AFTER_NS
            wanted = [TopicPartition(*self._names[dense]) for dense in sorted(missing)]
            asked = self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(self._group_id, wanted)], request_timeout=ANSWER_LIMIT_S
            )
            self._asked = asked[self._group_id], missing, now_ns
        for jump in [jump for jump in self._jumps if jump.answer.done()]:
            self._jumps.remove(jump)
            self._landed(jump)

    def close(self) -> None:
        """Writes the rows to their end."""
        self.forget(list(self._begun))
        self._rows.close()
        self.observations.close()

    @cached_property
    def _admin(self) -> AdminClient:
        servers = self._client.spec.bootstrap_servers
        return self._make_admin({**FOR_A_BROKEN_CLUSTER, "bootstrap.servers": servers})

    def _take(self, answer: "Future[Any]", spans: dict[int, int], asked_ns: int) -> None:
        now_ns, dense_of = self._client.now_ns(), {self._names[dense]: dense for dense in spans}
        try:
            committed: Sequence[TopicPartition] = answer.result(timeout=0).topic_partitions or ()
        except (KafkaException, TimeoutError) as error:
            self._client.log(f"committed offsets were not reported: {error or 'no answer'}")
            return
        for partition in committed:
            dense = dense_of.get((partition.topic, partition.partition))
            if dense is None or partition.error is not None:
                continue
            offset = max(NONE, partition.offset)
            self.observed(ObservationKind.COMMITTED, dense, offset, asked_ns)
            begun = self._begun.get(dense)
            if begun is not None and begun.number == spans[dense]:
                begun.committed = offset, now_ns
                self._resolve(dense, begun)

    def _resolve(self, dense: int, begun: _Span) -> None:
        """Decides where a span began, once its first record and what was committed are known."""
        if begun.first is None or begun.committed is None:
            return
        del self._begun[dense]
        (offset, first_ns), (committed, answered_ns) = begun.first, begun.committed
        if committed == NONE:
            self._append(dense, offset, RESET, first_ns)
        elif committed <= offset or answered_ns <= first_ns:
            self._rows.rewrite(begun.row, *self._row(dense, committed, ASSIGNED, begun.begun_ns, begun.number))
            if committed < offset:
                self._jumped(dense, committed, offset, first_ns)
        else:
            self._in_doubt(dense, begun, offset, first_ns)

    def _in_doubt(self, dense: int, begun: _Span, offset: int, first_ns: int) -> None:
        self._client.log(
            f"partition {dense}: what was committed was not reported in time; its first record was {offset}"
        )
        if self._latest:
            self._rows.append(*self._row(dense, offset, RESET, first_ns, begun.number))
        else:
            self._rows.rewrite(begun.row, *self._row(dense, offset, ASSIGNED, begun.begun_ns, begun.number))

    def _jumped(self, dense: int, expected: int, offset: int, time_ns: int) -> None:
        name = TopicPartition(*self._names[dense])
        asked = self._admin.list_offsets(
            {name: admin.OffsetSpec.earliest()},  # type: ignore[no-untyped-call, attr-defined]
            isolation_level=confluent_kafka.IsolationLevel.READ_UNCOMMITTED,
            request_timeout=ANSWER_LIMIT_S,
        )
        self._jumps.append(_Jump(dense, self.span[dense], expected, offset, time_ns, asked[name]))

    def _landed(self, jump: _Jump) -> None:
        try:
            log_start = jump.answer.result(timeout=0).offset
        except (KafkaException, TimeoutError) as error:
            self._client.log(f"the log start of partition {jump.dense} was not reported: {error or 'no answer'}")
            log_start = jump.expected + int(self._latest)  # in doubt
        if log_start > jump.expected:
            self._client.log(f"partition {jump.dense} was reset from {jump.expected} to {jump.offset}")
            self._rows.append(*self._row(jump.dense, jump.offset, RESET, jump.time_ns, jump.span))

    def _append(self, dense: int, offset: int, event: int, time_ns: int) -> int:
        return self._rows.append(*self._row(dense, offset, event, time_ns, self.span[dense]))

    @staticmethod
    def _row(dense: int, offset: int, event: int, time_ns: int, span: int) -> list[int]:
        values = {"time_ns": time_ns, "log_offset": offset, "partition": dense, "event": event, "span": span}
        return [values[column.name] for column in POSITIONS.columns]
