"""Where a Java member stands in its partitions. Its tool tells no position, so they are looked up beside it.

A span begins at what the group had committed, which is asked when the tool says that it was assigned the partition. Only who
owns a partition commits there. So an answer is from before the member's own first commit if it came before the first record,
or is not beyond it; else it is in doubt. If nothing was committed, the first record tells where auto.offset.reset led; so
does a jump over a committed offset, or a position, that the log start has passed.

In doubt the first record is what is known. A group that goes on at `latest` may have been reset there, and owes nothing
before it that nobody had committed; any other had its position there, for it was given no record before it.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined] # it is in its __init__

from harness.rows import RowWriter
from harness.schema import NONE, OBSERVATIONS, POSITIONS, ObservationKind
from workloads.client import Client
from workloads.properties import FOR_A_BROKEN_CLUSTER
from workloads.reader import ASSIGNED, RESET

AGAIN_NS = 300_000_000
"""Between two questions about what is committed."""
ANSWER_LIMIT_S = 5.0


@dataclass(slots=True)
class _Span:
    """One that has begun, and of which it is not known yet where."""

    number: int
    row: int
    begun_ns: int
    first: tuple[int, int] | None = None
    """(offset, not after) of its first record."""
    committed: tuple[int, int] | None = None
    """(offset, NONE = nothing; when the answer was there)."""


@dataclass(slots=True)
class _Jump:
    """From one offset to a later one: is the log start beyond the former?"""

    dense: int
    span: int
    expected: int
    offset: int
    time_ns: int
    answer: "Future[Any]"


class JavaPositions:
    """Of one member. Every assignment begins a span. `make_admin` makes an AdminClient of properties. `turn` is to be called
    often; nothing here ever waits."""

    def __init__(
        self, client: Client, group_id: str, *, latest: bool, make_admin: Callable[[dict[str, Any]], Any]
    ) -> None:
        self._client, self._group_id, self._make_admin = client, group_id, make_admin
        self._latest = latest
        self._rows = RowWriter(client.rows, POSITIONS, client.spec.client)
        self._observations = RowWriter(client.rows, OBSERVATIONS, client.spec.client)
        self._names = {dense: (topic, number) for dense, topic, number in client.spec.partitions}
        self._spans = -1
        self.span: dict[int, int] = {}
        """By dense partition: the span that records read now belong to."""
        self.next: dict[int, int] = {}
        """By dense partition: one past the last record read in that span."""
        self._begun: dict[int, _Span] = {}
        self._asked: tuple[Future[Any], dict[int, int], int] | None = None
        """(answer to come, dense partition → span, when it was asked)."""
        self._again_ns = 0
        self._jumps: list[_Jump] = []

    def assigned(self, partitions: Iterable[int], time_ns: int) -> None:
        """Each begins a span now. What is committed is asked at once: the tool will not wait."""
        for dense in partitions:
            self._spans += 1
            self.span[dense] = self._spans
            self.next.pop(dense, None)
            row = self._append(dense, NONE, ASSIGNED, time_ns)
            self._begun[dense] = _Span(self._spans, row, time_ns)
        self._again_ns = 0
        self.turn()

    def forget(self, partitions: Iterable[int]) -> None:
        """They were taken away."""
        for dense in partitions:
            if (begun := self._begun.pop(dense, None)) is not None and begun.first is not None:
                self._in_doubt(dense, begun, *begun.first)

    def given(self, dense: int, offset: int, time_ns: int) -> None:
        """A record was given, not before `time_ns`."""
        begun, expected = self._begun.get(dense), self.next.get(dense)
        self.next[dense] = offset + 1
        if begun is not None and begun.first is None:
            begun.first = offset, time_ns
            self._resolve(dense, begun)
        elif expected is not None and offset > expected:
            self._jumped(dense, expected, offset, time_ns)

    def observed(self, kind: ObservationKind, dense: int, value: int, time_ns: int) -> None:
        """A row of `observations`."""
        values: dict[str, int] = {"time_ns": time_ns, "value": value, "partition": dense, "kind": kind}
        self._observations.append(*(int(values.get(column.name, NONE)) for column in OBSERVATIONS.columns))

    def turn(self) -> None:
        """Take the answers that are there, and ask for what is missing."""
        if self._asked is not None and self._asked[0].done():
            (answer, spans, asked_ns), self._asked = self._asked, None
            self._take(answer, spans, asked_ns)
        missing = {dense: begun.number for dense, begun in self._begun.items() if begun.committed is None}
        now_ns = self._client.now_ns()
        if missing and self._asked is None and now_ns >= self._again_ns:
            self._again_ns = now_ns + AGAIN_NS
            wanted = [TopicPartition(*self._names[dense]) for dense in sorted(missing)]
            asked = self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(self._group_id, wanted)], request_timeout=ANSWER_LIMIT_S
            )
            self._asked = asked[self._group_id], missing, now_ns
        for jump in [jump for jump in self._jumps if jump.answer.done()]:
            self._jumps.remove(jump)
            self._landed(jump)

    def close(self) -> None:
        """Flush."""
        self.forget(list(self._begun))
        self._rows.close()
        self._observations.close()

    @cached_property
    def _admin(self) -> Any:  # noqa: ANN401 - an AdminClient
        servers = self._client.spec.bootstrap_servers
        return self._make_admin({**FOR_A_BROKEN_CLUSTER, "bootstrap.servers": servers})

    def _take(self, answer: "Future[Any]", spans: dict[int, int], asked_ns: int) -> None:
        now_ns, dense_of = self._client.now_ns(), {self._names[dense]: dense for dense in spans}
        try:
            told: Sequence[TopicPartition] = answer.result(timeout=0).topic_partitions or ()
        except (KafkaException, TimeoutError) as error:
            self._client.log(f"committed offsets were not told: {error or 'no answer'}")
            return
        for partition in told:
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
        """Where the span began, once its first record and what was committed are known."""
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
        self._client.log(f"partition {dense}: what was committed was not told in time; its first record was {offset}")
        if self._latest:
            self._rows.append(*self._row(dense, offset, RESET, first_ns, begun.number))
        else:
            self._rows.rewrite(begun.row, *self._row(dense, offset, ASSIGNED, begun.begun_ns, begun.number))

    def _jumped(self, dense: int, expected: int, offset: int, time_ns: int) -> None:
        name = TopicPartition(*self._names[dense])
        asked = self._admin.list_offsets(
            {name: OffsetSpec.earliest()},  # type: ignore[no-untyped-call]
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=ANSWER_LIMIT_S,
        )
        self._jumps.append(_Jump(dense, self.span[dense], expected, offset, time_ns, asked[name]))

    def _landed(self, jump: _Jump) -> None:
        try:
            log_start = jump.answer.result(timeout=0).offset
        except (KafkaException, TimeoutError) as error:
            self._client.log(f"the log start of partition {jump.dense} was not told: {error or 'no answer'}")
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
