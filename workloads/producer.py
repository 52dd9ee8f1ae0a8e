"""A pipelined producer: issues at a rate, interleaved over its partitions, and records every send.

A send's row is written before produce() and completed in place by its delivery report; a row nobody completes is INFO. So
nothing that reached Kafka is missing from the history, whoever is killed when. What a partition's cap of unacknowledged
records holds back is recorded as withheld, and is no send.
"""

import mmap
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from harness.rows import RowWriter
from harness.schema import MISSING, NONE, SENDS, WITHHELD, Outcome
from workloads.carrier import IDENTITY, IDENTITY_OFFSET, encoder
from workloads.client import Client, FatalClient, NowNs
from workloads.offsets import Offsets
from workloads.outcomes import INSTANCE_IS_DEAD, certain_within_ns, outcomes_by_code
from workloads.properties import retries_allowed

POLL_S = 0.02
CATCH_UP_NS = 100_000_000
"""What a starved producer is behind by more than this is not caught up: a burst would be another workload."""
ISSUE_MAX = 500
"""Records issued between two polls."""
FATAL_DRAIN_NS = 500_000_000
"""How long a dead instance may still hand out delivery reports."""
HANDLED_LIMIT_NS, HANDLED_QUIET_NS, HANDLED_INTERVAL_S = 10_000_000_000, 1_500_000_000, 0.05
"""With acks=0, at the end: how long to wait at most, how long without growth, how often to look."""
NS_PER_S = 1_000_000_000

assert sys.byteorder == "little", "rows are little-endian, and completed with native stores"
_AT = {name: SENDS.row_dtype.fields[name][1] for name in SENDS.row_dtype.names or ()}  # type: ignore[index]
_OUTCOME, _COMPLETED, _INVOKED = struct.Struct("@ii"), struct.Struct("@qq"), struct.Struct("@q")
"""outcome, code; completed_ns, log_offset; invoked_ns."""
assert _AT["code"] == _AT["outcome"] + 4
assert _AT["log_offset"] == _AT["completed_ns"] + 8

PartitionName = tuple[int, str, int]
"""Dense id, topic, number within the topic."""


def completer(
    sends: RowWriter,
    properties: Mapping[str, str | int | float | bool],
    now_ns: NowNs,
    settled: Callable[[int, KafkaError | None], None],
) -> Callable[[KafkaError | None, Message], None]:
    """The delivery callback shared by all sends of a client: finds the row by the identity in the value and completes it.

    `properties` are the producer's: they decide what an error code proves. `settled(partition, error)` is called for each.
    `completed_ns` is written after the outcome: whoever follows the rows live takes a row that has it as judged. Reading the
    identity from the value costs less than a closure per record, and remembering the segment less than asking for it.
    """
    unpack, pack_outcome, pack_completed = IDENTITY.unpack_from, _OUTCOME.pack_into, _COMPLETED.pack_into
    at_outcome, at_completed, size = _AT["outcome"], _AT["completed_ns"], SENDS.row_dtype.itemsize
    outcomes, certain_ns = outcomes_by_code(retries_allowed=retries_allowed(properties)), certain_within_ns(properties)
    invoked_at, unknown, ok, fail = _INVOKED.unpack_from, int(Outcome.INFO), int(Outcome.OK), int(Outcome.FAIL)
    row: mmap.mmap | None = None
    first = end = 0

    def complete(error: KafkaError | None, message: Message) -> None:
        nonlocal row, first, end
        completed_ns, log_offset = now_ns(), NONE
        partition, sequence = unpack(message.value(), IDENTITY_OFFSET)  # type: ignore[arg-type] # we sent one
        if not first <= sequence < end:
            row, first, end = segment_of(sends, sequence)
        assert row is not None
        start = (sequence - first) * size
        if error is None:
            # None with acks=0, and for a duplicate sequence, which is a success that does not know its offset.
            told = message.offset()
            if told is not None and told >= 0:
                log_offset = told
            pack_outcome(row, start + at_outcome, ok, 0)
        else:
            code = error.code()
            outcome = int(outcomes.get(code, unknown))
            if outcome == fail and completed_ns - invoked_at(row, start + _AT["invoked_ns"])[0] >= certain_ns:
                outcome = unknown  # it may have been the answer to a second attempt
            pack_outcome(row, start + at_outcome, outcome, code)
        pack_completed(row, start + at_completed, completed_ns, log_offset)
        settled(partition, error)

    return complete


def segment_of(writer: RowWriter, index: int) -> tuple[mmap.mmap, int, int]:
    """The mapping that holds row `index`, the first row in it, and the first row after it."""
    mapping, offset = writer.slot(index)
    first = index - offset // writer.table.row_dtype.itemsize
    return mapping, first, first + len(mapping) // writer.table.row_dtype.itemsize


class LogProducer:
    """The role `producer`. Starts paused; commands: resume, pause, send, finish, stop."""

    def __init__(self, client: Client) -> None:
        spec = client.spec
        self._client, self._spec, self._now_ns = client, spec, client.now_ns
        self._sends = RowWriter(client.rows, SENDS, spec.client)
        self._withheld = WithheldRows(RowWriter(client.rows, WITHHELD, spec.client), client.now_ns)
        self._encode = encoder(sender=spec.client, value_bytes=spec.value_bytes)
        self._in_flight = {dense: 0 for dense, _, _ in spec.partitions}
        self._reported = dict(self._in_flight)
        """By dense partition: reported without an error."""
        report = completer(self._sends, spec.properties, client.now_ns, self._settled)
        self._producer = Producer({**spec.properties, "on_delivery": report, "error_cb": client.on_error})
        self._period_ns = NS_PER_S / (spec.rate_hz * len(spec.partitions)) if spec.rate_hz else 0.0
        self._resumed, self._stopped = False, False
        self._due_ns, self._turn = 0.0, 0
        self._asked: deque[PartitionName] = deque()
        self._asked_by: deque[tuple[int, int]] = deque()
        self._asked_count = self._asked_done = 0
        self._finish_by_ns: int | None = None

    def run(self) -> None:
        """Until `stop`, or until `finish` and every delivery report has come, or its limit has."""
        while not self._done():
            for command in self._client.control.commands():
                self._obey(command)
            now_ns = self._now_ns()
            self._client.heartbeat(now_ns)
            self._issue_asked()
            wait_s = 0.0 if self._asked else self._issue_due(now_ns)
            self._client.serve(self._producer.poll, wait_s)
            if self._client.fatal is not None:
                self._drain_dead()
        if not self._stopped and str(self._spec.properties.get("acks")) == "0":
            self._wait_until_handled()

    def issued(self) -> int:
        """Rows of `sends`: each is one sequence."""
        return self._sends.count

    def close(self) -> None:
        """Flush `sends` and `withheld`."""
        self._sends.close()
        self._withheld.close()

    # --- commands ---------------------------------------------------------------------------------------------------

    def _obey(self, command: dict[str, Any]) -> None:
        match command["do"]:
            case "resume":
                self._resumed, self._due_ns = True, float(self._now_ns())
            case "pause":
                self._resumed = False
                self._withheld.end_all()
            case "send":
                return self._ask(command)
            case "finish":
                self._resumed = False
                self._asked.clear()
                self._finish_by_ns = self._now_ns() + int(command["timeout_s"] * NS_PER_S)
            case "stop":
                self._stopped = True
            case unknown:
                raise AssertionError(unknown)
        self._client.control.tell("done", number=command["number"])

    def _ask(self, command: dict[str, Any]) -> None:
        """Answered once everything asked for has been issued."""
        chosen = set(command["partitions"])
        round_ = [partition for partition in self._spec.partitions if partition[0] in chosen]
        self._asked.extend(round_ * command["count"])
        self._asked_count += len(round_) * command["count"]
        self._asked_by.append((self._asked_count, command["number"]))

    def _done(self) -> bool:
        if self._stopped or self._finish_by_ns is None:
            return self._stopped
        return not any(self._in_flight.values()) or self._now_ns() >= self._finish_by_ns

    # --- issuing ----------------------------------------------------------------------------------------------------

    def _issue_asked(self) -> None:
        count = min(ISSUE_MAX, len(self._asked))
        if count:
            self._issue([self._asked.popleft() for _ in range(count)])
            self._asked_done += count
        while self._asked_by and self._asked_by[0][0] <= self._asked_done:
            self._client.control.tell("done", number=self._asked_by.popleft()[1])

    def _issue_due(self, now_ns: int) -> float:
        """Issue what the rate owes until now, and return how long to wait for the next, in seconds."""
        if not self._resumed or not self._period_ns:
            return POLL_S
        self._due_ns = max(self._due_ns, now_ns - CATCH_UP_NS)
        if self._due_ns <= now_ns:
            count = min(ISSUE_MAX, int((now_ns - self._due_ns) / self._period_ns) + 1)
            partitions, turn = self._spec.partitions, self._turn
            self._issue(partitions[(turn + i) % len(partitions)] for i in range(count))
            self._turn = (turn + count) % len(partitions)
            self._due_ns += count * self._period_ns
        return min(POLL_S, max(0.0, (self._due_ns - now_ns) / NS_PER_S))

    def _issue(self, turns: Iterable[PartitionName]) -> None:
        """One record for each turn, recorded before it is attempted."""
        in_flight, now_ns, encode, produce = self._in_flight, self._now_ns, self._encode, self._producer.produce
        append, size, cap, holding = (
            self._sends.append,
            self._spec.value_bytes,
            self._spec.unacknowledged_max,
            self._withheld,
        )
        sequence = self._sends.count
        for dense, topic, number in turns:
            if in_flight[dense] >= cap:
                holding.hold(dense)
                continue
            if holding.open:
                holding.release(dense)
            append(now_ns(), MISSING, NONE, sequence, NONE, NONE, dense, 0, 0, size)
            try:
                produce(topic, encode(dense, sequence), None, number)
                in_flight[dense] += 1
            except BufferError:
                self._refused(sequence, KafkaError._QUEUE_FULL)
                self._client.serve(self._producer.poll, 0)
            except KafkaException as error:
                self._refused(sequence, error.args[0].code())
                if error.args[0].fatal() or error.args[0].code() in INSTANCE_IS_DEAD:
                    self._client.fatal = self._client.fatal or error.args[0].str()
                    return
            sequence += 1

    def _refused(self, sequence: int, code: int) -> None:
        """produce() raised: the record never entered the client's queue, so it certainly failed."""
        row, start = self._sends.slot(sequence)
        _OUTCOME.pack_into(row, start + _AT["outcome"], int(Outcome.FAIL), code)
        _COMPLETED.pack_into(row, start + _AT["completed_ns"], self._now_ns(), NONE)

    def _settled(self, partition: int, error: KafkaError | None) -> None:
        self._in_flight[partition] -= 1
        self._reported[partition] += error is None
        if error is not None and (error.fatal() or error.code() in INSTANCE_IS_DEAD):
            self._client.fatal = self._client.fatal or f"{error.name()}: {error.str()}"

    def _wait_until_handled(self) -> None:
        """Stay connected until the brokers have handled what acks=0 only put into sockets.

        A broker that is behind may find, among the produce requests, one that it answers. If this process has ended by then,
        its kernel resets the connection, and the broker drops everything behind that request: lost by us and not by Kafka
        (seen without any fault: the last 1.7 s of a partition). No answer tells when it has caught up; so look until the
        partitions hold as many records as were sent, or have not grown for a while, because some were really lost.
        """
        offsets, began_ns = Offsets(self._client), self._now_ns()
        last: dict[int, int] = {}
        grown_ns = began_ns
        while (now_ns := self._now_ns()) - began_ns < HANDLED_LIMIT_NS and now_ns - grown_ns < HANDLED_QUIET_NS:
            ends = {dense: found.offset for dense, found in offsets.latest().items()}
            if all(ends.get(dense, 0) >= count for dense, count in self._reported.items()):
                return
            if ends != last:
                last, grown_ns = ends, self._now_ns()
            self._client.serve(self._producer.poll, HANDLED_INTERVAL_S)
            self._client.heartbeat(self._now_ns())

    def _drain_dead(self) -> None:
        """The instance is dead. What it still reports is recorded; everything else stays INFO."""
        until_ns = self._now_ns() + FATAL_DRAIN_NS
        while any(self._in_flight.values()) and self._now_ns() < until_ns:
            self._client.serve(self._producer.poll, POLL_S)
            self._client.heartbeat(self._now_ns())
        raise FatalClient(self._client.fatal)


class WithheldRows:
    """Rows of `withheld`: one per stretch during which a partition's cap held records back."""

    def __init__(self, writer: RowWriter, now_ns: NowNs) -> None:
        self._writer, self._now_ns = writer, now_ns
        self.open: dict[int, tuple[int, int, int]] = {}
        """Dense partition → (row, begun_ns, count)."""

    def hold(self, partition: int) -> None:
        """One record more is held back."""
        if partition not in self.open:
            begun_ns = self._now_ns()
            row = self._writer.append(begun_ns, MISSING, 1, partition)
            self.open[partition] = row, begun_ns, 1
            return
        row, begun_ns, count = self.open[partition]
        self.open[partition] = row, begun_ns, count + 1
        self._writer.rewrite(row, begun_ns, MISSING, count + 1, partition)

    def release(self, partition: int) -> None:
        """Records are issued again; safe when nothing was held back."""
        if partition in self.open:
            row, begun_ns, count = self.open.pop(partition)
            self._writer.rewrite(row, begun_ns, self._now_ns(), count, partition)

    def end_all(self) -> None:
        """Nothing is to be issued any more: nothing is held back."""
        for partition in tuple(self.open):
            self.release(partition)

    def close(self) -> None:
        """Flush. Open stretches stay open: still held back at the end."""
        self._writer.close()
